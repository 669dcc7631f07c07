# SPDX-License-Identifier: PostgreSQL
#
# The supervisor nudges workers to look for what nobody has announced. One
# nudge is enough: a worker that sleeps does not take it for an alarm that an
# old timeout has left.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use Test::More;

allow_late('rows are written behind the back of the workers');
my $node = new_node('main', 'sas.supervisors' => 0);
my $service = SasService->new;
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };

make_agent($node, 'remote', $service);
$sql->(q{CREATE FUNCTION echo(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input'});
my %workflow = (calls => { agent => 'remote', call => { path => '/it' } }, functions => { function => 'public.echo' });
define($node, $_, { steps => { it => $workflow{$_} } }) foreach keys %workflow;

foreach my $workflow (sort keys %workflow)
{
	my $first = submit($node, $workflow);
	is($sql->("SELECT result FROM sas.wait($first, '100 s')"), 'success', "$workflow: there is a worker");
	# the commit wakes, and there is nothing to be found
	my ($run, $lane) = split /\|/, $sql->(qq{CREATE TABLE hidden_$workflow (LIKE _sas.ready);
		BEGIN;
		CREATE TEMP TABLE submitted AS SELECT * FROM sas.submit('$workflow');
		WITH gone AS (DELETE FROM _sas.ready q USING submitted s WHERE q.run_id = s.run_id RETURNING q.*) INSERT INTO hidden_$workflow SELECT * FROM gone;
		COMMIT;
		SELECT run_id, lane FROM hidden_$workflow});
	# its last look is over, and nothing announces what is put back
	ok(wait_for($node, "SELECT bool_and(state = 'idle' AND state_change < clock_timestamp() - interval '1 s') FROM pg_stat_activity
		WHERE backend_type IN ('sas agent', 'sas function')", 't'), "$workflow: the workers sleep");
	$sql->("INSERT INTO _sas.ready SELECT * FROM hidden_$workflow");
	is($sql->("SELECT count(*) FROM _sas.ready WHERE run_id = $run"), '1', "$workflow: a step is ready, and nobody knows");
	$sql->("SELECT _sas.nudge('{$lane}', false, false, false)");
	is($sql->("SELECT result FROM sas.wait($run, '60 s')"), 'success', "$workflow: a nudge, and it is found");
}
$node->stop;
done_testing();

# SPDX-License-Identifier: PostgreSQL
#
# A step is to be taken back while a session holds its run. The supervisor sets
# the lease aside, asks no more than once a second, and is told when the
# session ends its transaction, by commit or by abort.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasSession;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('main', 'sas.supervisor_interval' => '60 s');
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
$sql->(q{SELECT sas.create_agent('outside', kind => 'external')});
define($node, 'task', { on_failure => 'fail', recovery => { max_failures => 1 }, steps => { x => { agent => 'outside', task => {}, complete_in => '4 s' } } });

my $session = SasSession->new($node);
foreach my $end ('COMMIT', 'ROLLBACK')
{
	my $run = submit($node, 'task');
	is($sql->(q{SELECT count(*) FROM sas.claim('outside', 'w', 1, '4 s')}), '1', "$end: a task is claimed");
	$session->query("BEGIN; SELECT run_id FROM _sas.run WHERE run_id = $run FOR UPDATE");
	# whoever finds the run held looks again a second later at the earliest, unless it is told
	ok(wait_for($node, q{SELECT count(*) FROM _sas.lease l JOIN _sas.step s USING (lease_id) WHERE l.next_by >= s.complete_by + interval '1 s'}, '1'),
		'its lease has expired, and is set aside');
	my $begun = time();
	$session->query($end);
	is($sql->("SELECT state, result FROM sas.wait($run, '60 s')"), 'stopped|error', 'it is taken back when its run is free');
	diag(sprintf '%s: %.0f ms', $end, (time() - $begun) * 1000);
}
$session->quit;
done_testing();

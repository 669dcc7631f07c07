# SPDX-License-Identifier: PostgreSQL
#
# A role inserts many runs in a transaction that has not ended, and has no
# others: whoever may see all roles' runs does not pass these to find out whose
# runs there are.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasSession;
use Test::More;

my $n = 20000;
my $node = new_node('main', 'sas.function_workers' => 0, 'sas.schedulers' => 0, 'sas.supervisors' => 0, 'sas.agents' => 0);
$node->safe_psql('postgres', q{
	CREATE ROLE holder;
	CREATE ROLE op;
	CREATE SCHEMA t;
	GRANT USAGE ON SCHEMA t TO holder, op;
	CREATE FUNCTION t.echo(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input';
	SELECT sas.create_workflow('w', '{"steps": {"a": {"function": "t.echo"}}}');
	SELECT sas.grant_usage(r, 'user') FROM unnest('{holder,op}'::regrole[]) r;
	SELECT sas.grant_usage('op', 'operator');
	SELECT sas.grant_workflow('w', r) FROM unnest('{holder,op}'::regrole[]) r});

my $holder = SasSession->new($node);
$holder->query(qq{BEGIN; SET LOCAL ROLE holder; SELECT count(*) FROM sas.submit_batch('w', array_fill('{}'::jsonb, ARRAY[$n]))});

my $op = SasSession->new($node);
$op->query('SET ROLE op');
my ($run) = $op->query(q{SELECT run_id FROM sas.submit('w', key => 'k')}) =~ /(\d+)/;
foreach my $query (
	"SELECT run_id FROM sas.runs WHERE run_id = $run",
	q{SELECT run_id FROM sas.runs WHERE key = 'k'},
	q{SELECT run_id FROM sas.find_runs('{"key": "k"}')})
{
	$op->query($query);		# plans are made
	my $entries = q{RESET ROLE; SELECT pg_stat_get_xact_tuples_returned('_sas.run_by_owner'::regclass) + pg_stat_get_xact_tuples_returned('_sas.run_pkey'::regclass)};
	my ($before, $found, $after) = split /\n/, $op->query("BEGIN; $entries; SET ROLE op; $query; $entries; SET ROLE op; COMMIT");
	my $read = $after - $before;
	is($found, $run, "found: $query");
	cmp_ok($read, '<', 1000, "$read entries of indexes were read");
}
$_->quit foreach $op, $holder;
$node->stop;
done_testing();

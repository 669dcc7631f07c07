# SPDX-License-Identifier: PostgreSQL
#
# Batches of short functions grow though each transaction of the function worker
# takes long by itself, as on a busy machine: a batch of one would pay that for
# each function. A worker that comes later knows what the one before it has
# learnt. Takes about 10 s.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use Test::More;

my $node = new_node('main', 'sas.function_workers' => 1, 'sas.function_workers_max' => 1);
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };

# what a busy machine does to a statement
$sql->(q{
	CREATE FUNCTION echo(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input';
	CREATE FUNCTION busy() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.015); RETURN NULL; END';
	CREATE TRIGGER busy AFTER UPDATE ON _sas.step FOR EACH STATEMENT EXECUTE FUNCTION busy()});
define($node, 'short', { steps => { x => { function => 'public.echo' } } });

# alone first: the worker learns what a batch of one takes
foreach (1 .. 5)
{
	my $run = $sql->(q{SELECT run_id FROM sas.submit('short')});
	wait_for($node, "SELECT state FROM sas.runs WHERE run_id = $run", 'stopped');
}
my $leases = q{SELECT last_value FROM _sas.lease_lease_id_seq};
my $before = $sql->($leases);
$sql->(q{SELECT count(*) FROM sas.submit_batch('short', array_fill('{}'::jsonb, '{400}'))});
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE result = 'success'}, '405'), 'all functions end');
my $claims = $sql->($leases) - $before;
cmp_ok($claims, '<', 60, "400 functions take few claims ($claims)");

# the steps of a claim began at the same time
my $worker = q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'sas function'};
my $pid = $sql->($worker);
$sql->("SELECT pg_terminate_backend($pid)");
ok(wait_for($node, qq{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'sas function' AND pid <> $pid}, '1'), 'another worker comes');
$sql->(q{SELECT count(*) FROM sas.submit_batch('short', array_fill('{}'::jsonb, '{400}'))});
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE result = 'success'}, '805'), 'all functions end');
my $first = $sql->(q{
	SELECT count(*) FROM _sas.step WHERE run_id > (SELECT max(run_id) - 400 FROM _sas.run)
	GROUP BY started_at ORDER BY started_at LIMIT 1});
cmp_ok($first, '>', 1, "its first claim is not of one function ($first)");
done_testing();

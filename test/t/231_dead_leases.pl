# SPDX-License-Identifier: PostgreSQL
#
# Leases that were deleted while an old snapshot is kept: the supervisor walks
# over their index entries once, and not in each tick. What is overdue, and the
# lease of a worker that has died, is found all the same.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasSession;
use Test::More;

my $node = new_node('main', 'sas.function_workers' => 0, 'sas.schedulers' => 0, 'sas.supervisors' => 0, 'sas.agents' => 0);
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
my $many = 50000;

# a supervisor as it ticks; how many index entries of leases it has read, and how many leases it has judged
$sql->(q{CREATE FUNCTION tick(OUT judged int, OUT entries bigint) LANGUAGE plpgsql AS $$
	DECLARE
		before bigint := pg_stat_get_xact_tuples_returned('_sas.lease_next'::regclass) + pg_stat_get_xact_tuples_returned('_sas.lease_pkey'::regclass);
	BEGIN
		judged := (SELECT worked FROM _sas.supervisor_tick(1, '{7}', 9, 100));
		entries := pg_stat_get_xact_tuples_returned('_sas.lease_next'::regclass) + pg_stat_get_xact_tuples_returned('_sas.lease_pkey'::regclass) - before;
	END $$;
	CREATE FUNCTION lease(worker bigint, next_by timestamptz) RETURNS bigint LANGUAGE sql AS $$
	INSERT INTO _sas.lease (boot, worker_id, locked_by, next_by, run_ids, step_nos, elements) VALUES (1, $1, 'w', $2, '{}', '{}', '{}') RETURNING lease_id $$});
my $supervisor = SasSession->new($node);
$supervisor->query('SET jit = off; SET enable_seqscan = off');
my $tick = sub { return split /\|/, $supervisor->query('SELECT * FROM tick()') };

my $pin = SasSession->new($node);
$pin->query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_current_xact_id()');
$sql->("INSERT INTO _sas.lease (boot, worker_id, locked_by, next_by, run_ids, step_nos, elements) SELECT 1, 7, 'w', now() + interval '30 s', '{}', '{}', '{}' FROM generate_series(1, $many)");
$sql->('DELETE FROM _sas.lease');
my ($judged, $first) = $tick->();
cmp_ok($first, '>=', $many, "the first tick walks over $many dead entries");
my ($again, $entries) = $tick->();
cmp_ok($entries, '<', 100, 'the next one does not');

# a lease of a worker that lives
my $held = $sql->(q{SELECT lease(7, now() + interval '1 min')});
($judged, $entries) = $tick->();
is($judged, 0, 'a lease of a worker that lives is not judged');
cmp_ok($entries, '<', 100, 'nor is anything dead read for it');
# of one that has died, and one that is overdue, written later with an earlier time
$sql->(q{SELECT lease(8, now() + interval '40 s')});
($judged, $entries) = $tick->();
is($judged, 1, 'the lease of a worker that has died is found');
cmp_ok($entries, '<', $many / 2, 'among the others') or diag($entries);
$sql->(q{SELECT lease(7, now() - interval '1 s')});
($judged) = $tick->();
is($judged, 1, 'and one that is overdue');
is($sql->("SELECT string_agg(lease_id::text, ' ') FROM _sas.lease"), $held, 'the other one is held');
$sql->('DELETE FROM _sas.lease');
$tick->();
(undef, $entries) = $tick->();
cmp_ok($entries, '<', 100, 'and when all are gone, nothing is read again');

# a transaction that is rolled back changes nothing
my $session = SasSession->new($node);
$session->query(q{BEGIN; SELECT lease(8, now()); ROLLBACK});
(undef, $entries) = $tick->();
cmp_ok($entries, '<', 100, 'nor after a lease that was rolled back');
$pin->query('ROLLBACK');
done_testing();

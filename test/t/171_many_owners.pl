# SPDX-License-Identifier: PostgreSQL
#
# Owners in one lane, as many as 5,000, while an old snapshot keeps all index
# entries of the past: a claim reads what its own owners have, and walks over
# nobody's past.  Each owner has its turn before anybody has a second one; a
# new run waits for one batch at most.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasSession;
use Test::More;

my $node = new_node('main', 'sas.function_workers' => 0, 'sas.schedulers' => 0, 'sas.supervisors' => 0, 'sas.agents' => 0);
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
$sql->(q{
	CREATE SCHEMA t;
	CREATE FUNCTION t.echo(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input';
	SELECT sas.create_workflow('w', '{"steps": {"a": {"function": "t.echo"}}}');
	-- t.claim(n): how many steps, of how many owners; index entries that were read; milliseconds
	CREATE TABLE t.owner (run_id bigint PRIMARY KEY, owner oid);
	CREATE FUNCTION t.claim(n int) RETURNS TABLE (steps int, owners oid[], entries bigint, ms float8) LANGUAGE plpgsql AS $$
	DECLARE
		before bigint := pg_stat_get_xact_tuples_returned('_sas.ready_claim'::regclass);
		begun timestamptz := clock_timestamp();
		ids bigint[];
	BEGIN
		SELECT array_agg(c.run_id) INTO ids FROM _sas.claim_functions(n, 1, 1, 'w') c;
		ms := extract(epoch FROM clock_timestamp() - begun) * 1000;
		entries := pg_stat_get_xact_tuples_returned('_sas.ready_claim'::regclass) - before;
		steps := coalesce(cardinality(ids), 0);
		owners := ARRAY(SELECT o.owner FROM t.owner o WHERE o.run_id = ANY (ids));
		RETURN NEXT;
	END $$;
	-- t.flood(owners, each): so many runs of each of so many owners
	CREATE FUNCTION t.flood(owners int, each int, first int DEFAULT 100000) RETURNS bigint LANGUAGE plpgsql AS $$
	DECLARE
		last bigint := (SELECT max(run_id) FROM _sas.run);
	BEGIN
		PERFORM count(*) FROM sas.submit_batch('w', array_fill('{}'::jsonb, ARRAY[owners * each]));
		UPDATE _sas.ready q SET owner = (first + q.run_id % owners)::oid::regrole WHERE q.run_id > coalesce(last, 0);
		INSERT INTO t.owner SELECT q.run_id, q.owner::oid FROM _sas.ready q WHERE q.run_id > coalesce(last, 0);
		RETURN owners * each;
	END $$});

# a claim as a worker makes it
my $worker = SasSession->new($node);
$worker->query('SET jit = off; SET enable_seqscan = off; SET enable_bitmapscan = off');
my $claim = sub { my ($n) = @_; my ($steps, $owners, $entries, $ms) = split /\|/, $worker->query("SELECT * FROM t.claim($n)"); return ($steps, [ $owners =~ /\d+/g ], $entries, $ms) };

my $pin = SasSession->new($node);
$pin->query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_current_xact_id()');

# -- the past of one owner: 100,000 entries that nobody can remove -----------------------------------

$sql->(q{INSERT INTO _sas.ready (run_id, step_no, element, lane, owner, rank, ready_at, undo, alone)
	SELECT -n, 1, 0, 0, 90000::oid::regrole, now() - interval '1 h', now(), false, false FROM generate_series(1, 100000) n});
$claim->(0);
$sql->('DELETE FROM _sas.ready WHERE run_id < 0');
# a look passes a few thousand of them
$worker->query(q{SELECT FROM _sas.next_ready_owners('{0}', '{100000}', false, '{}')}) foreach 1 .. 30;

foreach my $owners (10, 1000, 5000)
{
	my $each = $owners == 10 ? 200 : 2;
	$sql->("SELECT t.flood($owners, $each)");
	my ($most, $slowest, $total, $claims, $all_ms) = (0, 0, 0, 0, 0);
	my (%turns, $unfair);
	$claim->(0) foreach 1 .. 2;		# plans
	# what the flood itself has left
	$worker->query(q{SELECT FROM _sas.next_ready_owners('{0}', '{100000}', false, '{}')}) foreach 1 .. 5;
	while (1)
	{
		my ($steps, $of, $entries, $ms) = $claim->(100);
		last if $steps == 0;
		$claims++;
		$total += $steps;
		$all_ms += $ms;
		$most = $entries if $entries > $most;
		$slowest = $ms if $ms > $slowest;
		my %batch;
		$batch{$_}++ foreach @$of;
		$turns{$_}++ foreach keys %batch;
		my ($least) = sort { $a <=> $b } map { $turns{ 100000 + $_ } // 0 } 0 .. $owners - 1;
		my ($longest) = sort { $b <=> $a } values %turns;
		$unfair = "$least to $longest" if $longest - $least > 1 && $each == 2;
	}
	is($total, $owners * $each, "$owners owners: all steps are claimed");
	is($unfair, undef, "$owners owners: nobody has a second turn before all have had one");
	cmp_ok($most, '<', 1000, "$owners owners: a claim of 100 steps reads few entries of the index");
	diag(sprintf '%d owners: %.1f ms a claim of 100, slowest %.1f ms, at most %d entries', $owners, $all_ms / $claims, $slowest, $most);

	# all of these are the past now
	$sql->("SELECT t.flood(1, 1000, 80000)");
	$claim->(100);
	$sql->("SELECT t.flood(1, 1, 85000)");
	my ($steps, $of, $entries, $ms) = $claim->(100);
	is(scalar(grep { $_ == 85000 } @$of), 1, "$owners owners of the past: a new run beside 1,000 of another role is in the next batch");
	cmp_ok($entries, '<', 1000, 'without a walk over what they have left');
	diag(sprintf 'a new run beside a flood: %.1f ms, %d entries', $ms, $entries);
	while (1) { my ($left) = $claim->(500); last if $left == 0 }
}

# -- who comes back after his past was claimed -----------------------------------------------------

$sql->('SELECT t.flood(1, 1, 90000)');
my ($steps, $of, $entries, $ms) = $claim->(10);
is("@$of", '90000', 'the owner with a past of 100,000 entries has a new run claimed');
cmp_ok($entries, '<', 1000, 'and it is not walked over');
$pin->quit;
$worker->quit;
$node->stop;
done_testing();

# SPDX-License-Identifier: PostgreSQL
#
# Thousands of timers of one role are due at once. A timer, a signal and a child run of another role are
# carried out before most of them, and so is a signal to a run of the role itself. No time is measured: what
# is left of the flood tells. SAS_FLOOD: another number of timers. Then the same by hand, while an old snapshot
# keeps all index entries of the past: nobody walks over them again.
# Takes about 20 s.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasSession;
use Test::More;

my $flood = $ENV{SAS_FLOOD} // 10000;
my $node = new_node('main');
$node->safe_psql('postgres', q{
	CREATE ROLE flood;
	CREATE ROLE victim;
	SELECT sas.grant_usage('flood', 'user'), sas.grant_usage('victim', 'user');
	SELECT sas.create_workflow('waits', '{"steps": {"a": {"wait": {"until": "{{input.at}}"}}}}');
	SELECT sas.create_workflow('asks', '{"steps": {"a": {"wait": {"signal": "go"}}}}');
	SELECT sas.create_workflow('child', '{"steps": {}}');
	SELECT sas.create_workflow('parent', '{"steps": {"a": {"workflow": "child"}}}');
	SELECT sas.grant_workflow(w, r) FROM unnest('{waits,asks,child,parent}'::text[]) w, unnest('{flood,victim}'::regrole[]) r});

# as that role; gives the run
sub submit
{
	my ($role, $workflow, $input) = @_;
	my $run = $node->safe_psql('postgres', "SET ROLE $role; SELECT run_id FROM sas.submit('$workflow', '$input')");
	return $run;
}

my $in_an_hour = $node->safe_psql('postgres', q{SELECT jsonb_build_object('at', now() + interval '1 hour')});
my $made = $node->safe_psql('postgres', qq{
	SET ROLE flood;
	SELECT count(*) FROM sas.submit_batch('waits', ARRAY(SELECT '$in_an_hour'::jsonb FROM generate_series(1, $flood)))});
is($made, $flood, "$flood runs of one role wait for a timer");
my $own = submit('flood', 'asks', '{}');
my $asks = submit('victim', 'asks', '{}');
my $timer = submit('victim', 'waits', $in_an_hour);
my $timers = q{SELECT count(*) FROM _sas.message WHERE actor = 's' AND kind = 'timer'};
ok(wait_for($node, $timers, $flood + 1), 'all timers are set');
ok(wait_for($node, q{SELECT count(*) FROM _sas.step WHERE state = 'suspended'}, $flood + 3), 'and all runs wait');

# All is due at one commit, that of the other role last. When each has ended, what is left of the flood is noted.
$node->safe_psql('postgres', q{
	CREATE TABLE left_over (run_id bigint, n bigint, at timestamptz);
	CREATE TABLE watched (run_id bigint PRIMARY KEY);
	CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF EXISTS (SELECT FROM public.watched w WHERE w.run_id = NEW.run_id) THEN
			INSERT INTO public.left_over SELECT NEW.run_id, count(*), clock_timestamp() FROM _sas.message
			WHERE actor = 's' AND kind = 'timer';
		END IF;
		RETURN NULL;
	END $$;
	CREATE TRIGGER note AFTER UPDATE OF state ON _sas.run FOR EACH ROW WHEN (NEW.state = 'stopped') EXECUTE FUNCTION note()});
$node->safe_psql('postgres', "INSERT INTO watched SELECT u FROM unnest(ARRAY[$own, $asks, $timer]) u");
$node->safe_psql('postgres', 'GRANT INSERT ON watched TO victim');
my $begun = $node->safe_psql('postgres', qq{
	BEGIN;
	UPDATE _sas.message SET due_at = now() - interval '2 s' WHERE actor = 's' AND kind = 'timer' AND run_id <> $timer;
	UPDATE _sas.message SET due_at = now() WHERE actor = 's' AND kind = 'timer' AND run_id = $timer;
	UPDATE _sas.step SET waiting_until = now() WHERE run_id = $timer;
	UPDATE _sas.step SET waiting_until = now() - interval '2 s' WHERE run_id <> $timer AND waiting_until IS NOT NULL;
	SET ROLE flood;
	SELECT FROM sas.signal($own, 'go');
	SET ROLE victim;
	SELECT FROM sas.signal($asks, 'go');
	INSERT INTO watched SELECT run_id FROM sas.submit('parent');
	RESET ROLE;
	SELECT _sas.wake('{}', true, false, '{}') \\g /dev/null
	COMMIT;
	SELECT clock_timestamp()});
$begun = (split /\n/, $begun)[-1];
ok(wait_for($node, 'SELECT count(*) FROM left_over', '4', limit => 120), 'the signals, the timer and the parent of the child run have ended');
my %name = ($own => 'the signal of the role itself', $asks => 'the signal of another role', $timer => 'the timer of another role');
for (split /\n/, $node->safe_psql('postgres', "SELECT run_id, n, round(extract(epoch FROM at - '$begun'::timestamptz) * 1000) FROM left_over ORDER BY at"))
{
	my ($run, $left, $ms) = split /\|/;
	my $what = $name{$run} // 'the child run of another role';
	cmp_ok($left, '>', $flood / 2, "$what comes before most of the flood");
	note("$what: $ms ms, $left left");
}
ok(wait_for($node, $timers, '0', limit => 180), 'the flood is carried out, too');
$node->stop;

# -- the past, kept by an old snapshot ------------------------------------------------------------------

$node = new_node('past', 'sas.function_workers' => 0, 'sas.schedulers' => 0, 'sas.supervisors' => 0, 'sas.agents' => 0);
$node->safe_psql('postgres', q{
	CREATE SCHEMA t;
	-- t.flood(owner, n, urgent): so many messages of that owner that are due; of no run, so all are free
	CREATE FUNCTION t.flood(owner int, n int, urgent boolean) RETURNS void LANGUAGE sql AS $$
		INSERT INTO _sas.message (actor, due_at, run_id, kind, owner, urgent)
		SELECT 's', now() - interval '1 min' + g * interval '1 us', -g, 'start', $1::oid, $3 FROM generate_series(1, $2) g $$;
	-- t.take(n): how many messages, of whom, index entries that were read
	CREATE FUNCTION t.take(n int) RETURNS TABLE (taken bigint, owners text, entries bigint) LANGUAGE plpgsql AS $$
	DECLARE
		before bigint := t.entries();
	BEGIN
		SELECT count(*), string_agg(DISTINCT d.owner::oid::text, ' ') INTO taken, owners FROM _sas.take_messages('s', n) d;
		PERFORM _sas.next_message('s');
		entries := t.entries() - before;
		RETURN NEXT;
	END $$;
	CREATE FUNCTION t.entries() RETURNS bigint LANGUAGE sql AS $$
		SELECT sum(pg_stat_get_xact_tuples_returned(i.indexrelid))::bigint FROM pg_index i WHERE i.indrelid = '_sas.message'::regclass $$});
my $worker = SasSession->new($node);
$worker->query('SET jit = off; SET enable_seqscan = off; SET enable_bitmapscan = off; SET plan_cache_mode = force_generic_plan');
my $take = sub { my ($n) = @_; return split /\|/, $worker->query("SELECT * FROM t.take($n)") };
my $pin = SasSession->new($node);
$pin->query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_current_xact_id()');
$node->safe_psql('postgres', "SELECT t.flood(90000, 30000, u) FROM unnest('{true,false}'::boolean[]) u");
my ($taken, $owners, $entries, $total) = (0, '', 0, 0);
do { ($taken) = $take->(1000); $total += $taken } while ($taken > 0);
is($total, 60000, 'the past of one owner');
$node->safe_psql('postgres', 'SELECT t.flood(100000 + o, 100, u) FROM generate_series(1, 10) o, unnest(\'{true,false}\'::boolean[]) u');
$take->(100);
my $most = 0;
foreach (1 .. 5)
{
	($taken, $owners, $entries) = $take->(100);
	is(scalar(split / /, $owners), 10, 'all owners have their turn') or diag($owners);
	$most = $entries if $entries > $most;
}
cmp_ok($most, '<', 1000, 'a tick of 100 messages reads few index entries');
diag("at most $most entries");
$node->safe_psql('postgres', 'SELECT t.flood(90000, 1, false)');
($taken, $owners, $entries) = $take->(100);
like($owners, qr/\b90000\b/, 'the owner with the past is in the next tick');
cmp_ok($entries, '<', 1000, 'and the past is not walked over');
diag("$entries entries");
$_->quit foreach ($pin, $worker);
$node->stop;
done_testing();

# SPDX-License-Identifier: PostgreSQL
#
# A function of a user locks no row of sas while it runs: its run goes on beside
# it, operators reach it, and what it wrote is there once, whoever is killed.
# Takes about a minute.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use SasSession;
use Test::More;
use Time::HiRes qw(sleep time);

my $node = new_node('main', 'sas.function_workers' => 4, 'sas.supervisor_interval' => '2 min', statement_timeout => '20 s');
my $service = SasService->new;

sub sql { my ($query) = @_; return $node->safe_psql('postgres', $query) }
sub brief
{
	my ($id) = @_;
	return sql("SELECT r.state || coalesce('/' || r.result, '') || ': ' || string_agg(s.step || ' ' || s.state || CASE WHEN s.in_doubt THEN ' in doubt' ELSE '' END, ', ' ORDER BY s.step)
		FROM sas.runs r JOIN sas.steps s USING (run_id) WHERE run_id = $id GROUP BY r.state, r.result");
}
# functions that sleep now
sub asleep { return sql(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'sas function' AND wait_event = 'PgSleep'}) }
sub falls_asleep
{
	my ($quantity) = @_;
	return wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'sas function' AND wait_event = 'PgSleep'}, $quantity);
}
sub wakes { return falls_asleep(0) }
sub step_becomes { my ($id, $step, $state) = @_; return wait_for($node, "SELECT state FROM sas.steps WHERE run_id = $id AND step = '$step'", $state) }

$node->safe_psql('postgres', q{
	CREATE TABLE ledger (what text, n int, xid xid8 DEFAULT pg_current_xact_id());
	CREATE FUNCTION sleepy(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.ledger VALUES ('sleepy', (input->>'n')::int);
		PERFORM pg_sleep(coalesce((input->>'s')::float8, 60));
		RETURN '{}';
	END $$;
	CREATE FUNCTION unsleep(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ INSERT INTO public.ledger VALUES ('unsleep', (input->>'n')::int) RETURNING '{}'::jsonb $$;
	CREATE FUNCTION deaf(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		LOOP
			BEGIN
				PERFORM pg_sleep(60);
			EXCEPTION WHEN query_canceled THEN
				NULL;
			END;
		END LOOP;
	END $$;
	-- returns when three of them run at the same time
	CREATE FUNCTION meet(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM pg_advisory_xact_lock_shared(215);
		FOR i IN 1 .. 2000 LOOP
			IF (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 215) = 3 THEN
				PERFORM pg_sleep(1);
				RETURN '{"met": true}';
			END IF;
			PERFORM pg_sleep(0.01);
		END LOOP;
		RETURN '{"met": false}';
	END $$;
	-- takes a moment
	CREATE FUNCTION book(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.ledger VALUES (input->>'what', (input->>'n')::int);
		PERFORM pg_sleep(random() * 0.1);
		RETURN '{}';
	END $$});
make_agent($node, 'remote', $service);
sql(q{SELECT sas.create_agent('people', kind => 'external')});

# -- a function sleeps for a minute, and everything else goes on ------------------------------

define($node, 'beside', { steps => {
		long => { function => 'public.sleepy', input => { n => '{{run.id}}' }, complete_in => '5 min', undo => { function => 'public.unsleep', input => { n => '{{run.id}}' } } },
		call => { agent => 'remote', call => { method => 'POST', path => '/call' } },
		next => { function => 'public.unsleep', after => ['call'] },
		wait => { wait => { signal => 'go' } },
		task => { agent => 'people', task => {}, complete_in => '5 min' } } });
my $id = submit($node, 'beside', {});
ok(falls_asleep(1), 'a function of a run sleeps');
ok(step_becomes($id, 'next', 'succeeded'), 'a call of this run is answered, and the function that waited for it has run');
my $request = sql(q{SELECT request_id FROM sas.claim('people', 'ann')});
like($request, qr/^[0-9a-f-]{36}$/, 'an outside agent claims a task of it');
is(sql("SELECT sas.heartbeat('$request', 0.5)"), 'go', 'its heartbeat counts');
is(sql("SELECT sas.complete('$request', '{}')"), 't', 'and its reply');
sql("SELECT sas.signal($id, 'go')");
ok(step_becomes($id, 'wait', 'succeeded'), 'a signal is taken');
like(sql("SELECT sas.explain($id)"), qr/long/, 'explain answers');
is(sql("SELECT changed, state FROM sas.pause($id)"), 't|paused', 'pause acts');
is(sql("SELECT changed, state FROM sas.resume($id)"), 't|running', 'and resume');
is(asleep(), '1', 'all that while the function sleeps');
my $worker = sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'sas function' AND wait_event = 'PgSleep'});
is(sql("SELECT changed, state, result, refused FROM sas.halt($id, 'enough')"), 't|stopped|error|', 'halt acts at once');
ok(wakes(), 'and the function is cancelled');
ok(step_becomes($id, 'long', 'cancelled'), 'its step too');
is(brief($id), 'stopped/error: call succeeded, long cancelled, next succeeded, task succeeded, wait succeeded', 'all else stands');
is(scalar(grep { $_ == $worker } worker_pids($node, 'function')), 1, 'its worker lives');
is(sql("SELECT count(*) FROM ledger WHERE what = 'sleepy'"), '0', 'nothing is left of what it wrote');

$id = submit($node, 'beside', {});
ok(falls_asleep(1), 'another one sleeps');
is(sql("SELECT changed, state FROM sas.cancel($id)"), 't|compensating', 'cancel acts at once');
ok(wakes(), 'and the function is cancelled');
ok(step_becomes($id, 'long', 'cancelled'), 'its step too');
$request = sql(q{SELECT request_id FROM sas.claim('people', 'ann')});
sql("SELECT sas.complete('$request', '{}')") if $request;
ok(wait_for($node, "SELECT state || ' ' || result FROM sas.runs WHERE run_id = $id", 'stopped cancelled'), 'the run ends');
is(sql("SELECT count(*) FROM ledger WHERE what LIKE '%sleep' AND n = $id"), '0', 'there was nothing to undo');

# -- one that does not listen ------------------------------------------------------------------------

define($node, 'deaf', { steps => { it => { function => 'public.deaf', complete_in => '5 min' } } });
$id = submit($node, 'deaf', {});
ok(falls_asleep(1), 'a function that catches its cancellation');
my $deaf = sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'sas function' AND wait_event = 'PgSleep'});
is(sql("SELECT changed FROM sas.cancel($id)"), 't', 'its run is cancelled');
ok(wait_for($node, "SELECT state || ' ' || result FROM sas.runs WHERE run_id = $id", 'stopped cancelled'), 'and ends without it');
ok(wait_for($node, "SELECT count(*) FROM pg_stat_activity WHERE pid = $deaf", '0'), 'its worker is ended after a while');
ok(wait_for($node, q{SELECT count(*) FROM sas.workers WHERE actor = 'function'}, '4'), 'and another one stands in for it');

# -- functions of one run beside each other -------------------------------------------------------------

define($node, 'meeting', { steps => { map { $_ => { function => 'public.meet' } } qw(a b c) } });
my $run = run_of($node, submit($node, 'meeting', {}));
is($run->{result}, 'success', 'three functions of a run');
is(scalar(grep { $run->{steps}{$_}{output}{met} } qw(a b c)), 3, 'ran at the same time');

# -- a reply to a run that somebody holds ----------------------------------------------------------------

my $refusing = 'http://127.0.0.1:' . SasTest::free_port();
make_agent($node, 'absent', $refusing, retry => '{"max_attempts": 1}');
define($node, 'held', {
		recovery => { max_failures => 2, initial => '1 s' },
		steps => {
			f => { function => 'public.sleepy', input => { n => '{{run.id}}', s => 6 }, undo => { function => 'public.unsleep' } },
			c => { agent => 'remote', complete_in => '10 s', call => { method => 'POST', path => '/held' } },
			r => { agent => 'absent', complete_in => '10 s', on_failure => 'skip', call => { path => '/' } },
			t => { agent => 'people', task => {}, complete_in => '5 min' } } });
$service->script(held => [ { gate => 1 }, {} ]);
$id = submit($node, 'held', {});
ok($service->wait_for_requests('held', 1) && falls_asleep(1), 'a call and a function are on their way');
$request = sql(q{SELECT request_id FROM sas.claim('people', 'ann')});
my $session = SasSession->new($node);
$session->query("BEGIN; SET LOCAL statement_timeout = 0; SELECT FROM _sas.run WHERE run_id = $id FOR UPDATE");
$service->release;
ok(wait_for($node, "SELECT count(*) FROM _sas.answer a JOIN _sas.run r USING (run_id) JOIN _sas.workflow_step w USING (version_id, step_no)
	WHERE run_id = $id AND NOT w.undo AND w.name IN ('c', 'f')", '2'), 'both answers are stored while a session holds the run');
is(sql("SELECT sas.complete('$request', '{}')"), 't', 'the reply of an outside agent waits for nobody');
is(sql("SELECT sas.complete('$request', '{}')"), 'f', 'and is given once');
is(sql("SELECT count(*) FROM ledger WHERE what = 'sleepy' AND n = $id"), '1', 'what the function wrote is there');
is(sql("SELECT count(*) FROM _sas.lease l WHERE $id = ANY (l.run_ids) AND l.locked_by LIKE 'function%'"), '0', 'and its claim is over');
sleep(11);						# past the complete-by of the call, which the session outlasts
is(sql("SELECT state FROM sas.steps WHERE run_id = $id AND step = 'c'"), 'running', 'past complete-by nobody takes the call back');
$session->query('COMMIT');
ok(wait_for($node, "SELECT state || ' ' || result FROM sas.runs WHERE run_id = $id", 'stopped warning'), 'the run goes on when it is free');
is(brief($id), 'stopped/warning: c succeeded, f succeeded, r skipped, t succeeded', 'every reply that came in time has counted');
is(scalar($service->requests('held')), 1, 'the call was made once');
is(sql("SELECT count(*) FROM ledger WHERE what = 'sleepy' AND n = $id"), '1', 'and so was the function');
is(sql("SELECT count(*) FROM _sas.answer"), '0', 'no answer is left');
is(sql("SELECT count(*) FROM sas.attempts WHERE run_id = $id AND step = 'r' AND status = 'timed_out'"), '0', 'a refused connection is a refused connection');

# -- done before it was cancelled ----------------------------------------------------------------------------

$id = submit($node, 'held', {});
ok(falls_asleep(1), 'a function that is about to be done');
$session->query("BEGIN; SET LOCAL statement_timeout = 0; SELECT changed FROM sas.cancel($id)");
ok(wait_for($node, "SELECT count(*) FROM _sas.answer a JOIN _sas.workflow_step w USING (step_no) JOIN _sas.run r ON r.run_id = a.run_id AND r.version_id = w.version_id WHERE a.run_id = $id AND w.name = 'f' AND NOT w.undo", '1'),
	'it ends while a session is cancelling its run');
$session->query('COMMIT');
ok(wait_for($node, "SELECT state || ' ' || result FROM sas.runs WHERE run_id = $id", 'stopped cancelled'), 'the run is cancelled');
is(sql("SELECT state FROM sas.steps WHERE run_id = $id AND step = 'f'"), 'compensated', 'and the function, which was done first, undone');

# -- kills ------------------------------------------------------------------------------------------------------

# books of different steps of a run beside each other, and calls
define($node, 'books', {
		recovery => { max_failures => 100, initial => '100 ms', max => '300 ms' },
		steps => {
			(map { ("f$_" => { function => 'public.book', complete_in => '20 s', input => { what => "f$_", n => '{{input.n}}' } }) } 1 .. 6),
			(map { ("c$_" => { agent => 'remote', complete_in => '20 s', call => { method => 'POST', path => '/books' } }) } 1 .. 2),
			last => { function => 'public.book', complete_in => '20 s', after => [ (map { "f$_" } 1 .. 6), 'c1', 'c2' ], input => { what => 'last', n => '{{input.n}}' } } } });
sql('TRUNCATE ledger');
my $runs = 100;
my $left = 0;
sql("SELECT count(*) FROM sas.submit_batch('books', ARRAY(SELECT jsonb_build_object('n', n) FROM generate_series(1, $runs) n))");
# a server that has just crashed answers in a moment
sub patiently
{
	my ($query) = @_;
	my $out = '';
	wait_until(sub { (eval { $node->psql('postgres', $query, stdout => \$out) } // 2) == 0 }) or die "no answer to: $query";
	return $out;
}
foreach my $kill (0 .. 19)
{
	last if patiently(q{SELECT count(*) FROM sas.runs WHERE workflow = 'books' AND state = 'stopped'}) == $runs;
	# sessions hold some of the runs for a moment, so that answers are left
	patiently(q{SELECT count(*) FROM (SELECT FROM _sas.run WHERE state = 'running' AND run_id % 3 = 0 FOR UPDATE SKIP LOCKED) x, pg_sleep(0.2)});
	$left += patiently('SELECT count(*) FROM _sas.answer');
	# KILL: the server restarts
	my ($actor, $signal) = $kill % 5 == 1 ? ('function', 'KILL') : ((qw(function scheduler agent))[ $kill % 3 ], 'TERM');
	wait_until(sub { eval { kill_worker($node, $actor, $signal) } });
}
# a step that was being called by two workers that died is parked
ok(wait_until(sub {
			patiently(q{SELECT count(*) FROM sas.resume_runs(ARRAY(SELECT r.run_id FROM sas.runs r WHERE workflow = 'books' AND state = 'paused'
				AND EXISTS (SELECT FROM sas.steps s WHERE s.run_id = r.run_id AND s.error ->> 'type' = 'urn:sas:worker-lost')))});
			return patiently(q{SELECT count(*) FROM sas.runs WHERE workflow = 'books' AND state <> 'stopped'}) == 0;
		}), 'whoever is killed, every run ends; what was parked, once it is resumed');
is(sql(q{SELECT string_agg(DISTINCT result, ' ') FROM sas.runs WHERE workflow = 'books'}), 'success', 'well');
is(sql("SELECT count(*) || ' ' || count(DISTINCT (what, n)) FROM ledger"), join(' ', (7 * $runs) x 2), 'and every function of each run was done once');
is(sql('SELECT count(*) FROM _sas.answer'), '0', 'no answer is left');
note("answers that were seen: $left");
done_testing();

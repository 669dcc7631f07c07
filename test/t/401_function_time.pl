# SPDX-License-Identifier: PostgreSQL
#
# Function steps in time: cancelled at complete-by, ended when they do not
# listen, retried when the fault passes, and none of them holds up the others.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('main', 'sas.supervisor_interval' => '2 s', 'sas.function_workers_max' => 1);
$node->safe_psql('postgres', q{
	CREATE TABLE ledger (what text NOT NULL, n int);
	CREATE SEQUENCE tried;
	CREATE FUNCTION fast(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ INSERT INTO public.ledger VALUES ('fast', (input->>'n')::int) RETURNING to_jsonb(n) $$;
	CREATE FUNCTION sleepy(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.ledger VALUES ('sleepy');
		PERFORM pg_sleep((input->>'s')::float8);
		RETURN '{}';
	END $$;
	CREATE TABLE gate (open boolean);
	CREATE FUNCTION patient(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		WHILE NOT EXISTS (SELECT FROM public.gate) LOOP PERFORM pg_sleep(0.1); END LOOP;
		RETURN '{}';
	END $$;
	CREATE FUNCTION without_limits(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		SET statement_timeout = 0;
		PERFORM pg_sleep(300);
		RETURN '{}';
	END $$;
	CREATE FUNCTION deaf(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.ledger VALUES ('deaf');
		LOOP
			BEGIN
				PERFORM pg_sleep(300);
			EXCEPTION WHEN query_canceled THEN
				NULL;
			END;
		END LOOP;
	END $$;
	CREATE FUNCTION serial(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.ledger VALUES ('serial');
		IF nextval('public.tried') < 3 THEN
			RAISE serialization_failure USING MESSAGE = 'try again';
		END IF;
		RETURN '{}';
	END $$;
	CREATE FUNCTION zero(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(1 / (input->>'n')::int) $$;
	CREATE FUNCTION parent(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	DECLARE
		child bigint;
	BEGIN
		SELECT run_id INTO child FROM sas.submit('fast', '{"n": 1000}', key => input->>'child');
		IF input ? 'fail' THEN
			RAISE EXCEPTION 'no';
		END IF;
		RETURN to_jsonb(child);
	END $$;
	SELECT sas.create_workflow('fast', '{"steps": {"s": {"function": "public.fast"}}}');
	SELECT sas.create_workflow('sleepy', '{"steps": {"s": {"function": "public.sleepy", "complete_in": "2 s"}}, "recovery": {"max_failures": 1}, "on_failure": "fail"}');
	SELECT sas.create_workflow('patient', '{"steps": {"s": {"function": "public.patient", "complete_in": "300 s"}}}');
	SELECT sas.create_workflow('without_limits', '{"steps": {"s": {"function": "public.without_limits", "complete_in": "2 s"}}, "recovery": {"max_failures": 1}, "on_failure": "fail"}');
	SELECT sas.create_workflow('deaf', '{"steps": {"s": {"function": "public.deaf", "complete_in": "2 s"}}, "recovery": {"max_failures": 1}, "on_failure": "fail"}');
	SELECT sas.create_workflow('serial', '{"steps": {"s": {"function": "public.serial"}}}');
	SELECT sas.create_workflow('zero', '{"steps": {"s": {"function": "public.zero"}}, "on_failure": "fail"}');
	SELECT sas.create_workflow('zero_' || state, format('{"steps": {"s": {"function": "public.zero", "retry": {"on": ["%s"], "max_attempts": 3, "initial": "10 ms"}}},
		"recovery": {"max_failures": 1}, "on_failure": "fail"}', state)::jsonb) FROM unnest('{22012,23505}'::text[]) state;
	SELECT sas.create_workflow('parent', '{"steps": {"s": {"function": "public.parent"}}, "on_failure": "fail"}')});

sub submit
{
	my ($workflow, $input) = @_;
	$input //= '{}';
	return $node->safe_psql('postgres', qq{SELECT run_id FROM sas.submit('$workflow', '$input')});
}

sub ended
{
	my ($run, $limit) = @_;
	wait_for($node, "SELECT state FROM sas.runs WHERE run_id = $run", 'stopped', limit => $limit) or return 'never ended';
	return $node->safe_psql('postgres', "SELECT result FROM sas.runs WHERE run_id = $run");
}

# -- complete-by --------------------------------------------------------------------

my $begun = time();
my $run = submit('sleepy', '{"s": 300}');
is(ended($run), 'error', 'a function that sleeps past complete-by is cancelled');
cmp_ok(time() - $begun, '<', 60, 'at complete-by, not when it would have ended');
is($node->safe_psql('postgres', "SELECT status, error ->> 'type' FROM sas.attempts WHERE run_id = $run"), 'failed|urn:sas:sqlstate:57014', 'its attempt says so');
is($node->safe_psql('postgres', "SELECT failure_count FROM sas.steps WHERE run_id = $run"), '1', 'one failure was counted');
is($node->safe_psql('postgres', "SELECT count(*) FROM ledger"), '0', 'and nothing that it wrote is there');
is(ended(submit('without_limits')), 'error', 'it cannot lift that limit with statement_timeout');

my $pid = $node->safe_psql('postgres', q{SELECT pid FROM sas.workers WHERE actor = 'function'});
$begun = time();
$run = submit('deaf');
is(ended($run), 'error', 'a function that catches its cancellation is ended');
cmp_ok(time() - $begun, '<', 60, "at the supervisor's next look after complete-by");
ok(wait_for($node, "SELECT count(*) FROM sas.workers WHERE actor = 'function' AND pid <> $pid", '1'), 'with its worker; there is a new one');
is($node->safe_psql('postgres', q{SELECT count(*) FROM ledger WHERE what = 'deaf'}), '0', 'and nothing that it wrote is there');
is(ended(submit('fast', '{"n": 1}')), 'success', 'work goes on');

# -- faults -------------------------------------------------------------------------

$run = submit('serial');
is(ended($run), 'success', 'a function that meets serialization_failure is called again');
is($node->safe_psql('postgres', "SELECT attempt, failure_count FROM sas.steps WHERE run_id = $run"), '3|0', 'within its window: three attempts, no failure counted');
is($node->safe_psql('postgres', q{SELECT count(*) FROM ledger WHERE what = 'serial'}), '1', 'and what it wrote is there once');
$run = submit('zero', '{"n": 0}');
is(ended($run), 'error', 'a permanent error fails the step');
is($node->safe_psql('postgres', "SELECT attempt FROM sas.steps WHERE run_id = $run"), '1', 'at the first attempt');
is($node->safe_psql('postgres', "SELECT error ->> 'title' FROM sas.runs WHERE run_id = $run"), 'division by zero', 'and the error says what it was');
my %attempts = (22012 => 3, 23505 => 1);
foreach my $state (sort keys %attempts)
{
	$run = submit("zero_$state", '{"n": 0}');
	is(ended($run), 'error', "a step whose retry names SQLSTATE $state");
	is($node->safe_psql('postgres', "SELECT attempt FROM sas.steps WHERE run_id = $run"), $attempts{$state}, "is tried $attempts{$state} times if the error is 22012");
}

# -- company ------------------------------------------------------------------------

# one bad among many good in the same batch
$node->safe_psql('postgres', q{
	SELECT count(*) FROM sas.submit_batch('zero', ARRAY(SELECT jsonb_build_object('n', i % 7) FROM generate_series(1, 70) i))});
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE workflow = 'zero' AND state <> 'stopped'}, '0'), 'ten functions that fail among sixty others:');
is($node->safe_psql('postgres', q{SELECT count(*) FROM sas.runs WHERE workflow = 'zero' AND result = 'success'}), '60', 'the others succeed');

# a slow one does not hold up the fast: it runs alone, and a second worker takes the rest
$node->safe_psql('postgres', 'ALTER SYSTEM SET sas.function_workers = 2');
$node->reload;
wait_for($node, q{SELECT count(*) FROM sas.workers WHERE actor = 'function'}, '2');
$run = submit('patient');
wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'}, '1');
$node->safe_psql('postgres', q{SELECT count(*) FROM sas.submit_batch('fast', ARRAY(SELECT jsonb_build_object('n', i) FROM generate_series(2, 301) i))});
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE workflow = 'fast' AND state <> 'stopped'}, '0'), 'beside a slow function 300 fast ones end');
is($node->safe_psql('postgres', "SELECT state FROM sas.runs WHERE run_id = $run"), 'running', 'while it still runs');
$node->safe_psql('postgres', 'INSERT INTO gate VALUES (true)');
is(ended($run), 'success', 'and it ends too');

# -- sas.submit inside --------------------------------------------------------------

$run = submit('parent', '{"child": "born"}');
is(ended($run), 'success', 'a function step may submit');
ok(wait_for($node, q{SELECT result FROM sas.runs WHERE key = 'born'}, 'success'), 'and its child runs');
$run = submit('parent', '{"child": "unborn", "fail": 1}');
is(ended($run), 'error', 'when the function fails after it has submitted');
is($node->safe_psql('postgres', q{SELECT count(*) FROM sas.runs WHERE key = 'unborn'}), '0', 'there is no child: both are one commit');
is($node->safe_psql('postgres', q{SELECT count(*) - count(DISTINCT n) FROM ledger WHERE what = 'fast'}), '0', 'no function was done twice');
done_testing();

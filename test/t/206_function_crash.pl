# SPDX-License-Identifier: PostgreSQL
#
# A function step that takes its worker, or the whole server, down.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('main');
$node->safe_psql('postgres', q{
	CREATE TABLE ledger (n int NOT NULL, pid int DEFAULT pg_backend_pid(), xid xid8 DEFAULT pg_current_xact_id());
	-- how often it was called; a sequence is not rolled back with the function
	CREATE SEQUENCE called;
	CREATE FUNCTION book(input jsonb) RETURNS jsonb LANGUAGE sql AS $$
		INSERT INTO public.ledger (n) VALUES ((input->>'n')::int) RETURNING to_jsonb(n) $$;
	CREATE FUNCTION terminate_oneself(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM nextval('public.called');
		INSERT INTO public.ledger (n) VALUES ((input->>'n')::int);
		PERFORM pg_terminate_backend(pg_backend_pid());
		PERFORM pg_sleep(60);
		RETURN '{}';
	END $$;
	-- the superuser's run: COPY TO PROGRAM has the backend for a parent
	CREATE FUNCTION kill_oneself(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.ledger (n) VALUES ((input->>'n')::int);
		EXECUTE format('COPY (SELECT 1) TO PROGRAM %L', 'kill -9 ' || pg_backend_pid());
		PERFORM pg_sleep(60);
		RETURN '{}';
	END $$;
	SELECT sas.create_workflow('book', '{"steps": {"s": {"function": "public.book"}}, "recovery": {"initial": "100 ms"}}');
	SELECT sas.create_workflow('bad', '{"steps": {"s": {"function": "public.terminate_oneself"}},
		"recovery": {"initial": "100 ms", "max_failures": 3}}');
	SELECT sas.create_workflow('worse', '{"steps": {"s": {"function": "public.kill_oneself"}},
		"recovery": {"initial": "100 ms", "max_failures": 3}, "on_failure": "fail"}');});

my $next = 1;

# one of that workflow in the middle of twenty innocent ones, all ready at once
sub submit_among_innocents
{
	my ($workflow) = @_;
	my $first = $next;
	$next += 21;
	my $bad = $first + 10;
	# one of them may take the server down before this session is told of its commit: then psql fails
	my $said = '';
	eval { $node->psql('postgres', qq{
		BEGIN;
		SELECT count(*) FROM generate_series($first, $bad - 1) i, LATERAL sas.submit('book', jsonb_build_object('n', i));
		SELECT 'run ' || run_id FROM sas.submit('$workflow', '{"n": $bad}');
		SELECT count(*) FROM generate_series($bad + 1, $next - 1) i, LATERAL sas.submit('book', jsonb_build_object('n', i));
		COMMIT;}, stdout => \$said) };
	return $said =~ /^run (\d+)$/m ? $1 : die 'no run';
}

foreach my $case (
	[ 'bad', 'a function that terminates its worker', 'paused' ],
	[ 'worse', 'a function that kills the server', 'paused' ])
{
	my ($workflow, $name, $end) = @$case;
	my $from = $next;
	my $run = submit_among_innocents($workflow);
	ok(wait_for($node, "SELECT state FROM sas.runs WHERE run_id = $run", $end), "$name: its run ends $end after a few tries");
	ok(wait_for($node, "SELECT count(*) FROM sas.runs WHERE run_id <> $run AND state <> 'stopped' AND workflow = 'book'", '0'),
		"$name: the innocent ones in its batch end");
	is($node->safe_psql('postgres', q{SELECT count(*) FROM sas.runs WHERE workflow = 'book' AND result <> 'success'}), '0',
		"$name: all of them with success");
	is($node->safe_psql('postgres', q{SELECT count(*) FROM sas.steps JOIN sas.runs r USING (run_id) WHERE workflow = 'book' AND failure_count > 0}),
		'0', "$name: no failure was counted against them");
	is($node->safe_psql('postgres', "SELECT failure_count FROM sas.steps WHERE run_id = $run"), '2', "$name: two failures were counted against it");
	is($node->safe_psql('postgres', "SELECT count(*) FROM ledger WHERE n = $from + 10"), '0', "$name: nothing that it wrote is there");
	is($node->safe_psql('postgres', "SELECT count(*) || ' ' || count(DISTINCT n) FROM ledger WHERE n >= $from"), '20 20', "$name: what the others wrote is there once");
	is($node->safe_psql('postgres', "SELECT alone FROM _sas.step WHERE run_id = $run"), 't', "$name: it is run alone from then on");
	ok($node->safe_psql('postgres', "SELECT count(*) FROM sas.attempts WHERE run_id = $run AND status = 'lost'") >= 3, "$name: its attempts are shown as lost");
}
is($node->safe_psql('postgres', q{SELECT s.error ->> 'title' FROM sas.steps s JOIN sas.runs r USING (run_id) WHERE workflow = 'bad'}),
	'the worker that held the step is gone', 'the error says what happened');
is($node->safe_psql('postgres', q{SELECT count(*) FROM sas.alerts a JOIN sas.runs r USING (run_id) WHERE r.workflow = 'bad'}), '1', 'one alert stands for the run that was paused');
is($node->safe_psql('postgres', q{SELECT string_agg(a.kind || ' ' || r.workflow, ', ' ORDER BY r.workflow) FROM sas.alerts a JOIN sas.runs r USING (run_id)}), 'parked bad, parked worse', 'both are parked, whatever on_failure says');

# an idle server afterwards
my $run = submit_among_innocents('book');
ok(wait_for($node, "SELECT state FROM sas.runs WHERE run_id = $run", 'stopped'), 'work goes on afterwards');

# many functions and crashes: each exactly once; each takes a moment, so that they have not ended before this looks
$node->safe_psql('postgres', q{
	CREATE TABLE once (n int NOT NULL);
	CREATE FUNCTION once(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ INSERT INTO public.once SELECT (input->>'n')::int FROM pg_sleep(0.001) RETURNING to_jsonb(n) $$;
	SELECT sas.create_workflow('once', '{"steps": {"a": {"function": "public.once", "input": {"n": "{{input.a}}"}},
		"b": {"function": "public.once", "input": {"n": "{{input.b}}"}, "after": ["a"]}}, "recovery": {"initial": "100 ms"}}');
	SELECT count(*) FROM sas.submit_batch('once', ARRAY(SELECT jsonb_build_object('a', i, 'b', -i) FROM generate_series(1, 1500) i))});
my $crashes = 0;
foreach (1 .. 4)
{
	wait_until(sub { my $n = eval { $node->safe_psql('postgres', 'SELECT count(*) FROM once') }; defined $n && $n > $crashes * 500 + 50 });
	last if $node->safe_psql('postgres', q{SELECT count(*) FROM sas.runs WHERE workflow = 'once' AND state <> 'stopped'}) eq '0';
	my $boot = $node->safe_psql('postgres', 'SELECT _sas.current_boot()');
	kill_worker($node, 'function', 'KILL');
	wait_for($node, "SELECT _sas.current_boot() <> $boot");
	$crashes++;
}
cmp_ok($crashes, '>=', 2, "the server crashed $crashes times while functions ran");
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE workflow = 'once' AND state <> 'stopped'}, '0'), 'every run ends');
is($node->safe_psql('postgres', 'SELECT count(*) || \' \' || count(DISTINCT n) FROM once'), '3000 3000', 'across crashes each function step was done exactly once');
done_testing();

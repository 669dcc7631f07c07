# SPDX-License-Identifier: PostgreSQL
#
# Workers that are asked to end hand back what they hold: no attempt and no failure is counted, and nothing is
# done twice. Takes about 40 s.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use IO::Socket::INET;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('main', 'sas.supervisor_interval' => '6 min', 'sas.function_workers' => 1, 'sas.function_workers_max' => 1);
my $service = SasService->new;

# takes connections and never answers: a call to it over TLS has sent no byte of its request
my $deaf = IO::Socket::INET->new(Listen => 100, LocalAddr => '127.0.0.1', LocalPort => SasTest::free_port(), Proto => 'tcp') or die "listen: $!";

sub sql { my ($query) = @_; return $node->safe_psql('postgres', $query) }

sub prepare
{
	sql(q{
		CREATE TABLE ledger (n int NOT NULL);
		-- set by a session: a function that sees it does not sleep
		CREATE TABLE gate (open boolean);
		CREATE SEQUENCE called;
		CREATE FUNCTION sleepy(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
		BEGIN
			PERFORM nextval('public.called');
			INSERT INTO public.ledger VALUES ((input->>'n')::int);
			WHILE NOT EXISTS (SELECT FROM public.gate) LOOP
				PERFORM pg_sleep(0.1);
			END LOOP;
			RETURN '{}';
		END $$;
		CREATE FUNCTION brief(input jsonb) RETURNS jsonb LANGUAGE sql AS $$
			INSERT INTO public.ledger VALUES ((input->>'n')::int) RETURNING '{}'::jsonb $$;});
	make_agent($node, 'remote', $service, retry => '{"initial": "20 min", "max": "20 min", "max_attempts": 3}');
	make_agent($node, 'deaf', 'https://127.0.0.1:' . $deaf->sockport, retry => '{"max_attempts": 1}', request_timeout => '20 min', options => '{"connect_timeout": "20 min"}');
	define($node, 'work', {
			recovery => { max_failures => 1 },
			steps => {
				asleep => { function => 'public.sleepy', complete_in => '30 min', input => { n => '{{input.n}}' } },
				# some of a batch, which the one function worker claims together
				(map { ("brief$_" => { function => 'public.brief', complete_in => '30 min', input => { n => '{{input.n}}' } }) } 1 .. 5),
				answered => { agent => 'remote', complete_in => '30 min', call => { method => 'POST', path => '/answered' } },
				rests => { agent => 'remote', complete_in => '30 min', call => { method => 'POST', path => '/rests' } },
				unsent => { agent => 'deaf', complete_in => '30 min', call => { method => 'POST', path => '/unsent' } } } });
	return;
}

sub state_of { my ($run, $step) = @_; return "SELECT state || ' ' || attempt || ' ' || failure_count FROM sas.steps WHERE run_id = $run AND step = '$step'" }

my $n = 0;

# Work is under way in each way that there is; it is stopped; what it is then.
sub stopped_by
{
	my ($name, $stop) = @_;
	$n++;
	sql('TRUNCATE gate, ledger; ALTER SEQUENCE called RESTART');
	$service->script(answered => [ { delay => 0.7 } ], rests => [ { status => 503 }, {} ]);
	my $before = { map { $_ => scalar($service->requests($_)) } qw(answered rests) };
	my $run = submit($node, 'work', { n => $n });
	ok(wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND backend_type = 'sas function'}, '1'), "$name: a function is asleep");
	ok(wait_for($node, "SELECT count(*) FROM sas.attempts WHERE run_id = $run AND step = 'rests' AND status = 'failed'", '1'), "$name: a call rests after an attempt");
	ok(wait_for($node, state_of($run, 'unsent'), 'running 0 0'), "$name: a request cannot be sent");
	# one that is under way when the stop comes
	my $other = submit($node, 'work_call', {});
	$service->wait_for_requests('answered', $before->{answered} + 2) or return;
	my $begun = time();
	my @gone = map { worker_pids($node, $_) } qw(agent function);
	$stop->();
	ok(wait_for($node, 'SELECT count(*) FROM pg_stat_activity WHERE pid IN (' . join(',', @gone) . ')', '0'), "$name: the workers end");
	is(sql("SELECT count(*) FROM sas.steps WHERE run_id = $run AND failure_count > 0"), '0', "$name: no failure is counted");
	is(sql("SELECT count(*) FROM sas.attempts WHERE run_id IN ($run, $other) AND status <> 'succeeded'"), '1', "$name: nor an attempt");
	sql('INSERT INTO gate VALUES (true)');
	ok(wait_for($node, "SELECT string_agg(step || ' ' || state, ', ' ORDER BY step) FROM sas.steps WHERE run_id = $run AND step NOT IN ('unsent', 'rests')",
			'answered succeeded, asleep succeeded, ' . join(', ', map { "brief$_ succeeded" } 1 .. 5), limit => 180), "$name: the run goes on");
	note(sprintf "%s: the run has gone on after %.2f s", $name, time() - $begun);
	ok(wait_for($node, "SELECT state || ' ' || result FROM sas.runs WHERE run_id = $other", 'stopped success', limit => 180), "$name: a call that was under way has ended");
	is(scalar($service->requests('answered')), $before->{answered} + 2, "$name: no call was made twice");
	is(sql("SELECT count(*) FROM ledger WHERE n = $n"), '6', "$name: and each function counts once");
	ok(wait_for($node, state_of($run, 'unsent'), 'running 0 0'), "$name: what was not sent is tried by another worker");
	is(sql("SELECT count(*) FROM sas.attempts WHERE run_id IN ($run, $other) AND status <> 'succeeded'"), '1', "$name: nothing failed");
	is(sql(qq{SELECT count(*) FROM sas.steps WHERE run_id IN ($run, $other) AND in_doubt}), '0', "$name: and nothing is in doubt");
	sql("SELECT sas.halt($run)");
	return;
}

prepare();
define($node, 'work_call', { steps => { it => { agent => 'remote', complete_in => '30 min', call => { method => 'POST', path => '/answered' } } } });

stopped_by('worker_restart', sub { sql('SELECT sas.worker_restart()') });
stopped_by('SIGTERM', sub { kill('TERM', map { worker_pids($node, $_) } qw(agent function)) });
stopped_by('fast restart', sub { $node->restart });
stopped_by('ALTER EXTENSION UPDATE', sub {
		$node->safe_psql('postgres', q{ALTER EXTENSION sas UPDATE TO '0.2.900'; ALTER EXTENSION sas UPDATE TO '0.2.0'});
	});
# ALTER DATABASE RENAME: the test goes on in the database of the old name
$node->safe_psql('postgres', 'CREATE DATABASE other');
stopped_by('ALTER DATABASE RENAME', sub {
		$node->safe_psql('other', 'ALTER DATABASE postgres RENAME TO renamed; ALTER DATABASE renamed RENAME TO postgres');
	});
stopped_by('fewer workers', sub {
		$node->safe_psql('postgres', q{ALTER SYSTEM SET sas.agents = 0});
		$node->safe_psql('postgres', q{ALTER SYSTEM SET sas.function_workers = 0});
		$node->reload;
		wait_for($node, q{SELECT count(*) FROM sas.workers WHERE actor IN ('agent', 'function')}, '0');
		$node->safe_psql('postgres', q{ALTER SYSTEM RESET sas.agents});
		$node->safe_psql('postgres', q{ALTER SYSTEM RESET sas.function_workers});
		$node->reload;
	});

# a function that does not listen holds up nobody for long, and that is counted
sql(q{
	CREATE FUNCTION stubborn(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		LOOP
			BEGIN
				EXIT WHEN EXISTS (SELECT FROM public.gate);
				PERFORM pg_sleep(0.1);
			EXCEPTION WHEN query_canceled THEN
				NULL;
			END;
		END LOOP;
		RETURN '{}';
	END $$;
	TRUNCATE gate;});
define($node, 'stubborn', { recovery => { initial => '100 ms' }, steps => { it => { function => 'public.stubborn', complete_in => '30 min' } } });
my $run = submit($node, 'stubborn', {});
ok(wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND backend_type = 'sas function'}, '1'), 'a function that catches its cancellation');
my ($pid) = worker_pids($node, 'function');
sql('SELECT sas.worker_restart()');
ok(wait_for($node, "SELECT count(*) FROM pg_stat_activity WHERE pid = $pid", '0', limit => 180), 'its worker ends all the same');
sql('INSERT INTO gate VALUES (true)');
ok(wait_for($node, "SELECT state || ' ' || result FROM sas.runs WHERE run_id = $run", 'stopped success'), 'and its run goes on');

done_testing();

# SPDX-License-Identifier: PostgreSQL
#
# Long functions get out of the way of short ones: the launcher starts other
# function workers, up to sas.function_workers_max. And a worker that is
# stuck in a turn is told of.
# Takes about 50 s.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use Test::More;

my $node = new_node('main', 'sas.supervisor_interval' => '6 min', 'sas.function_workers_max' => 4, max_worker_processes => 20);
$node->safe_psql('postgres', q{
	CREATE TABLE gate (name text);
	CREATE FUNCTION patient(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		WHILE NOT EXISTS (SELECT FROM public.gate WHERE name = input->>'gate') LOOP PERFORM pg_sleep(0.1); END LOOP;
		RETURN '{}';
	END $$;
	CREATE FUNCTION short(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '{}'::jsonb $$;
	SELECT sas.create_workflow('patient', '{"steps": {"a": {"function": "public.patient", "complete_in": "10 min"}}}');
	SELECT sas.create_workflow('short', '{"steps": {"a": {"function": "public.short"}}}');
	SELECT sas.create_workflow('timer', '{"steps": {"a": {"wait": {"for": "1 s"}}}}');
	SELECT sas.set_limit(NULL, 'function_workers', 64);
});
# tasks that every worker hosts, so that one that leaves has some
$node->safe_psql('postgres', q{
	CREATE FUNCTION beat(turn jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(coalesce((turn->>'cursor')::int, 0) + 1) $$;
	SELECT sas.create_watcher('beat', '{"function": "public.beat", "every": "50 ms"}');
});
my $functions = q{SELECT count(*) FROM sas.workers WHERE actor = 'function'};
sub long { return $node->safe_psql('postgres', qq{SELECT run_id FROM sas.submit('patient', '{"gate": "$_[0]"}')}) }
sub short
{
	my $run = $node->safe_psql('postgres', q{SELECT run_id FROM sas.submit('short')});
	return wait_for($node, "SELECT state FROM sas.runs WHERE run_id = $run", 'stopped');
}

ok(wait_for($node, $functions, '1'), 'there is one function worker');
my $first = long('one');
ok(wait_for($node, $functions, '2'), 'a second one is started when its function takes more than a second');
$node->safe_psql('postgres', q{SELECT count(*) FROM generate_series(1, 5) n, sas.watch('beat', n::text)});
ok(wait_for($node, q{SELECT count(*) FROM sas.watches w JOIN sas.nodes n USING (node_id) WHERE w.cursor IS NOT NULL}, '5'), 'it hosts infinite tasks');
ok(short(), 'a short function ends beside a long one');
is($node->safe_psql('postgres', q{SELECT calls FROM sas.workers WHERE calls LIKE '/runs/%'}), "/runs/$first/steps/a",
	'sas.workers says whose function a worker waits for');

long($_) foreach qw(two three);
ok(wait_for($node, $functions, '4'), 'each long one gets a worker');
ok(short(), 'a short function ends beside three long ones');
long('four');
ok(wait_for($node, q{SELECT count(*) FROM sas.workers WHERE calls LIKE '/runs/%'}, '4'), 'all workers run a long function');
is($node->safe_psql('postgres', $functions), '4', 'there are no more than sas.function_workers_max');
is($node->safe_psql('postgres', q{SELECT count(*) FROM sas.alerts}), '0', 'long functions are no reason for an alert');
my $waiting = $node->safe_psql('postgres', q{SELECT run_id FROM sas.submit('short')});
$node->safe_psql('postgres', q{INSERT INTO gate VALUES ('four')});
ok(wait_for($node, "SELECT state FROM sas.runs WHERE run_id = $waiting", 'stopped'), 'a short one waits until one of them returns');

$node->safe_psql('postgres', q{INSERT INTO gate VALUES ('two'), ('three')});
ok(wait_for($node, q{SELECT count(*) FROM sas.workers WHERE calls LIKE '/runs/%'}, '1'), 'two more return');
ok(wait_for($node, $functions, '2'), 'workers that are not needed leave');
is($node->safe_psql('postgres', "SELECT state FROM sas.runs WHERE run_id = $first"), 'running', 'not the one that runs a function');
$node->safe_psql('postgres', q{INSERT INTO gate VALUES ('one')});
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE state <> 'stopped'}, '0'), 'all functions have returned');
ok(wait_for($node, $functions, '1'), 'and one worker is left');
is($node->safe_psql('postgres', q{SELECT count(*) FROM sas.runs WHERE result IS DISTINCT FROM 'success'}), '0', 'nobody has lost work');
is($node->safe_psql('postgres', q{SELECT sum(failures) FROM sas.watches}), '0', 'no infinite task has failed');
is($node->safe_psql('postgres', q{SELECT count(*) FROM sas.attempts WHERE status <> 'succeeded'}), '0', 'and no attempt failed');

# A turn that does not end
$node->safe_psql('postgres', q{
	CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		WHILE NOT EXISTS (SELECT FROM public.gate WHERE name = 'turn') LOOP PERFORM pg_sleep(0.1); END LOOP;
		RETURN NULL;
	END $$;
	CREATE TRIGGER hold AFTER DELETE ON _sas.message FOR EACH STATEMENT EXECUTE FUNCTION hold();
	SELECT FROM sas.submit('timer');
});
ok(wait_for($node, q{SELECT count(*) FROM sas.alerts WHERE kind = 'stalled' AND closed_at IS NULL}, '1'), 'a worker that stays in a turn for ten seconds is an alert');
like($node->safe_psql('postgres', q{SELECT message FROM sas.alerts WHERE kind = 'stalled'}),
	qr/^scheduler worker \d+ has been in one tick for 00:00:1\d; it waits for Timeout PgSleep$/, 'the alert says what it does');
like(PostgreSQL::Test::Utils::slurp_file($node->logfile), qr/WARNING:  sas scheduler with PID \d+ has been in one tick for 1\d seconds/, 'so does the log');
$node->safe_psql('postgres', q{INSERT INTO gate VALUES ('turn')});
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE state <> 'stopped'}, '0'), 'the run goes on when the turn does');
$node->safe_psql('postgres', q{ALTER SYSTEM SET sas.supervisor_interval = '1 s'; SELECT pg_reload_conf()});
ok(wait_for($node, q{SELECT count(*) FROM sas.alerts WHERE kind = 'stalled' AND closed_at IS NULL}, '0'), 'and the alert closes');

$node->stop;
done_testing();

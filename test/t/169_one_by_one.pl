# SPDX-License-Identifier: PostgreSQL
#
# What an agent worker writes as a set, it writes one by one where the set
# raises an error: a reply, the row of an attempt, or the state of an agent that
# cannot be written holds up nothing else, no call is made again because of it,
# and an alert says so. Takes about 80 s.
# Long
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use Test::More;

my $node = new_node('main', 'sas.agents' => 1);
my $service = SasService->new;
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
my @again = map { "again$_" } grep { $_ % 4 == 0 } 1 .. 40;
$service->script(many => [ { delay => 1 } ], map { $_ => [ { status => 503, delay => 1 }, {} ] } @again);
make_agent($node, 'remote', $service, retry => '{"initial": "100 ms", "max_attempts": 3}', max_in_flight => 100);
define($node, 'call', { steps => { it => { agent => 'remote', complete_in => '30 s', call => { method => 'POST', path => '/{{input.path}}', body => { n => '{{input.n}}' } } } } });

# what a disk, or somebody's trigger, does to one row
$sql->(q{
	CREATE TABLE refused (run_id bigint, what text);
	CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
	BEGIN
		IF EXISTS (SELECT FROM public.refused r WHERE r.run_id = NEW.run_id AND r.what = TG_ARGV[0]) AND (TG_ARGV[0] = 'attempt' OR to_jsonb(NEW) ->> 'state' = 'succeeded') THEN
			RAISE EXCEPTION 'refused by the test: %', TG_ARGV[0];
		END IF;
		RETURN NEW;
	END $$;
	CREATE TRIGGER refuse BEFORE UPDATE ON _sas.step FOR EACH ROW EXECUTE FUNCTION refuse('reply');
	CREATE TRIGGER refuse BEFORE INSERT ON _sas.attempt FOR EACH ROW EXECUTE FUNCTION refuse('attempt')});

my @runs = split /\n/, $sql->(q{
	SELECT run_id FROM generate_series(1, 40) g, sas.submit('call', jsonb_build_object('n', g, 'path', CASE WHEN g % 4 = 0 THEN 'again' || g ELSE 'many' END)) ORDER BY run_id});
my ($reply, $attempt) = ($runs[4], $runs[3]);
$sql->("INSERT INTO refused VALUES ($reply, 'reply'), ($attempt, 'attempt')");
my ($worker) = worker_pids($node, 'agent');

ok(wait_for($node, "SELECT count(*) FROM sas.runs WHERE result = 'success' AND run_id <> $reply", '39'), 'all others are written');
is($sql->("SELECT state FROM sas.steps WHERE run_id = $reply"), 'running', 'a reply that cannot be written waits for its complete-by');
is($sql->("SELECT string_agg(attempt::text, ',') FROM sas.attempts WHERE run_id = $attempt AND status = 'failed'"), '', 'an attempt that cannot be written is missing');
is($sql->('SELECT count(*) FROM sas.attempts WHERE status = $$failed$$'), '9', 'and no other');
is(scalar($service->requests('many')), 30, 'each call was made once');
is(scalar(map { $service->requests($_) } @again), 20, 'or twice, where that was asked for');
ok(wait_for($node, "SELECT count(*) FROM sas.alerts WHERE kind = 'stuck' AND run_id = $reply AND message LIKE 'run $reply: could not store a reply to step 1: refused by the test: reply%'", '1'),
	'an alert says so of the reply');
ok(wait_for($node, "SELECT occurrences FROM sas.alerts WHERE kind = 'stuck' AND run_id = $attempt AND message LIKE 'run $attempt: could not store attempt 2 of step 1: refused by the test: attempt%'", '2'),
	'another one of both attempts');
is((worker_pids($node, 'agent'))[0], $worker, 'it is the same worker');

$sql->('TRUNCATE refused');

# the row of one agent
$service->script(bad => [ { status => 500 } ]);
make_agent($node, $_, $service, retry => '{"max_attempts": 1}') foreach qw(sick ill);
define($node, "call_$_", { on_failure => 'fail', steps => { it => { agent => $_, complete_in => '30 s', on_failure => 'fail', recovery => { max_failures => 1 },
			call => { method => 'POST', path => '/bad' } } } }) foreach qw(sick ill);
$sql->(q{
	CREATE FUNCTION refuse_health() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		RAISE EXCEPTION 'refused by the test: health';
	END $$;
	CREATE TRIGGER refuse BEFORE UPDATE ON _sas.agent_health FOR EACH ROW
		WHEN (NEW.agent_id = 2) EXECUTE FUNCTION refuse_health()});
is($sql->("SELECT name FROM _sas.agent WHERE agent_id = 2"), 'sick', 'the agent whose row is refused');
$sql->("SELECT run_id FROM generate_series(1, 3), sas.submit('call_sick')");
ok(wait_for($node, "SELECT count(*) FROM sas.alerts WHERE kind = 'stuck' AND message LIKE 'could not store the breaker or last error of agent \"sick\": refused by the test: health%'", '1'),
	'an alert says so of the state of an agent');
$sql->("SELECT x.run_id FROM sas.submit('call_sick') x, sas.submit('call_ill') y");
ok(wait_for($node, "SELECT last_error IS NOT NULL FROM sas.agents WHERE name = 'ill'", 't'), 'that of another agent is written');
ok(wait_for($node, "SELECT count(*) FROM sas.runs WHERE workflow LIKE 'call_%' AND state <> 'stopped'", '0'), 'both are called');
$sql->('DROP TRIGGER refuse ON _sas.agent_health');
ok(wait_for($node, "SELECT last_error IS NOT NULL FROM sas.agents WHERE name = 'sick'", 't', limit => 180), 'it is written in the end');

ok(wait_for($node, "SELECT result FROM sas.runs WHERE run_id = $reply", 'success', limit => 180), 'the supervisor takes its step back, and it ends');
is(scalar($service->requests('many')), 31, 'that call was made again');

done_testing();

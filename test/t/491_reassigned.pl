# SPDX-License-Identifier: PostgreSQL
#
# REASSIGN OWNED while work is on its way: open runs, schedules and infinite
# tasks go on as the new role, and the old one can be dropped.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasSession;
use SasTest;
use Test::More;

my $node = new_node('main', 'sas.function_workers' => 2);
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
$sql->(q{
	CREATE ROLE ann;
	CREATE ROLE heir;
	SELECT sas.grant_usage('ann', 'user'), sas.grant_usage('heir', 'user');
	CREATE SCHEMA app;
	GRANT ALL ON SCHEMA app TO PUBLIC;
	CREATE TABLE app.hold (what text);
	CREATE TABLE app.seen (n serial, what text, who text DEFAULT session_user);
	GRANT ALL ON app.hold, app.seen, app.seen_n_seq TO PUBLIC;
	CREATE FUNCTION app.note(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO app.seen (what) VALUES (coalesce(input ->> 'what', 'turn'));
		WHILE EXISTS (SELECT FROM app.hold h WHERE h.what = input ->> 'what') LOOP
			PERFORM pg_sleep(0.02);
		END LOOP;
		RETURN input;
	END $$;
	INSERT INTO app.hold VALUES ('first');
	SET ROLE ann;
	SELECT sas.create_workflow('long', '{"steps": {
		"a": {"function": "app.note", "input": {"what": "first"}, "undo": {"function": "app.note", "input": {"what": "undo"}}},
		"w": {"wait": {"signal": "go"}, "after": ["a"]},
		"b": {"function": "app.note", "input": {"what": "second"}, "after": ["w"]}}}');
	SELECT sas.create_workflow('brief', '{"steps": {"a": {"function": "app.note", "input": {"what": "scheduled"}}}}');
	SELECT sas.schedule('often', 'every 1 s', 'brief');
	SELECT sas.create_watcher('turns', '{"function": "app.note", "every": "100 ms"}');
	SELECT sas.watch('turns', 'a')});
my $running = $sql->(q{SET ROLE ann; SELECT run_id FROM sas.submit('long', key => 'one')});
my $cancelled = $sql->(q{SET ROLE ann; SELECT run_id FROM sas.submit('long', key => 'two')});
ok(wait_for($node, q{SELECT count(*) FROM sas.steps WHERE step = 'a' AND state = 'running'}, '2'), 'functions of a role are running');

# a run that a schedule was submitting at that moment still belongs to it: then DROP ROLE is refused
ok(wait_until(sub { return eval { $sql->($_) foreach 'REASSIGN OWNED BY ann TO heir', 'DROP OWNED BY ann', 'DROP ROLE ann'; 1 } }),
	'its things are reassigned meanwhile, and it is dropped');
$sql->('DELETE FROM app.hold');
ok(wait_for($node, "SELECT count(*) FROM sas.steps WHERE run_id IN ($running, $cancelled) AND step = 'a' AND state = 'succeeded'", '2'), 'what was claimed ends well');
$sql->("SET ROLE heir; SELECT sas.signal($running, 'go')");
ok(wait_for($node, "SELECT state || ' ' || result FROM sas.runs WHERE run_id = $running", 'stopped success'), 'a run goes on');
is($sql->(q{SELECT DISTINCT who FROM app.seen WHERE what = 'second'}), 'heir', 'with the rights of the new owner');
$sql->("SET ROLE heir; SELECT sas.cancel($cancelled)");
ok(wait_for($node, "SELECT state || ' ' || result FROM sas.runs WHERE run_id = $cancelled", 'stopped cancelled'), 'another is cancelled');
is($sql->(q{SELECT DISTINCT who FROM app.seen WHERE what = 'undo'}), 'heir', 'and undone with these');
$sql->('TRUNCATE app.seen');
ok(wait_for($node, q{SELECT string_agg(DISTINCT who, ' ') FROM app.seen WHERE what = 'scheduled'}, 'heir'), 'its schedule submits runs of the new owner');
ok(wait_for($node, q{SELECT string_agg(DISTINCT who, ' ') FROM app.seen WHERE what = 'turn'}, 'heir'), 'its infinite task takes turns as the new owner');
is($sql->(q{SELECT count(*) FROM sas.alerts}), '0', 'nothing was out of order');
$sql->(q{SET ROLE heir; SELECT sas.unschedule('often'); SELECT FROM sas.unwatch('turns', '{a}')});

# -- while workers look ----------------------------------------------------------------------------

# a step that is ready is passed by while the session that reassigns it has not committed, and is found when it has
$sql->(q{
	CREATE ROLE ann;
	SELECT sas.grant_usage('ann', 'user');
	SELECT sas.grant_workflow('brief', 'ann');
	GRANT ALL ON app.hold, app.seen, app.seen_n_seq TO ann});
my @workers = worker_pids($node, 'function');
kill('STOP', @workers);
my $ready = $sql->(q{SET ROLE ann; SELECT run_id FROM sas.submit('brief', key => 'ready')});
my $session = SasSession->new($node);
$session->query('BEGIN; REASSIGN OWNED BY ann TO heir');
kill('CONT', @workers);
my $beside = $sql->(q{SET ROLE heir; SELECT run_id FROM sas.submit('brief', key => 'beside')});
ok(wait_for($node, "SELECT state FROM sas.runs WHERE run_id = $beside", 'stopped'), 'a session is reassigning a step that is ready: others are done');
is($sql->("SELECT state FROM sas.steps WHERE run_id = $ready"), 'ready', 'that one is passed by');
$session->query('COMMIT');
ok(wait_for($node, "SELECT result FROM sas.runs WHERE run_id = $ready", 'success'), 'when it has committed, it is done, too');
$session->quit;
done_testing();

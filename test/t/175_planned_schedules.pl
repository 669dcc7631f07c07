# SPDX-License-Identifier: PostgreSQL
#
# A schedule whose workflow a function plans: a function worker submits its
# runs, with the rights of its owner. Each instant has exactly one run,
# whatever ends: the worker, the server, the function. Nothing is locked while
# the function runs.
# Takes about 35 s.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasSession;
use SasTest;
use Test::More;

my $node = new_node('main', 'sas.function_workers' => 2, 'sas.complete_in' => '2 s', 'sas.supervisor_interval' => '1 s');
my @pam = (extra_params => [ '-U', 'pam' ]);

sub runs_again
{
	my ($name) = @_;
	wait_for($node, 'SELECT NOT pg_is_in_recovery()');
	my $last = $node->safe_psql('postgres', "SELECT coalesce(max(run_id), 0) FROM sas.runs WHERE schedule = '$name'");
	return wait_for($node, "SELECT count(*) > 0 FROM sas.runs WHERE schedule = '$name' AND run_id > $last");
}

# no instant is missing or there twice, and what the function wrote is there once for each
sub one_run_each
{
	my ($name, $claim) = @_;
	$node->safe_psql('postgres', "SELECT sas.pause_schedule('$name')");
	is($node->safe_psql('postgres', qq{
		SELECT count(*) > 1, count(*) = count(DISTINCT scheduled_at), count(*) = 1 + extract(epoch FROM max(scheduled_at) - min(scheduled_at)),
			(SELECT count(*) FROM shop.noted n WHERE n.what = '$name') = count(*)
		FROM sas.runs WHERE schedule = '$name'}), 't|t|t|t', $claim);
	return;
}

$node->safe_psql('postgres', q{
	CREATE SCHEMA shop; CREATE ROLE pam LOGIN; GRANT USAGE, CREATE ON SCHEMA shop TO pam; SELECT sas.grant_usage('pam', 'user');
	CREATE TABLE shop.hold (place text); GRANT SELECT ON shop.hold TO pam;
	CREATE FUNCTION shop.held() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		WHILE EXISTS (SELECT FROM shop.hold h WHERE h.place = TG_ARGV[0]) LOOP
			PERFORM set_config('application_name', 'held at ' || TG_ARGV[0], true), pg_sleep(0.05);
		END LOOP;
		RETURN NEW;
	END $$;
	CREATE TRIGGER held BEFORE INSERT ON _sas.run FOR EACH ROW EXECUTE FUNCTION shop.held('run');
	CREATE TRIGGER held AFTER UPDATE ON _sas.schedule FOR EACH ROW EXECUTE FUNCTION shop.held('schedule')});
$node->safe_psql('postgres', q{
	CREATE TABLE shop.noted (what text, who text DEFAULT current_user, at timestamptz DEFAULT clock_timestamp());
	CREATE FUNCTION shop.step(jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT $1';
	CREATE FUNCTION shop.plan(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO shop.noted (what) VALUES (input ->> 'name');
		WHILE EXISTS (SELECT FROM shop.hold h WHERE h.place = 'plan') LOOP
			PERFORM set_config('application_name', 'held at plan', true), pg_sleep(0.05);
		END LOOP;
		RETURN '{"steps": {"a": {"function": "shop.step"}}}';
	END $$;
	SELECT sas.create_workflow('planned', '{"plan": "shop.plan", "steps": {}}');
	SELECT sas.create_workflow('plain', '{"steps": {"a": {"function": "shop.step"}}}');
	SELECT sas.schedule('tick', 'every 1 s', 'planned', '{"name": "tick"}', catch_up => 'all', overlap => 'allow')}, @pam);
ok(runs_again('tick') && runs_again('tick'), 'a schedule runs a workflow that a function plans');
is($node->safe_psql('postgres', q{SELECT DISTINCT who FROM shop.noted}), 'pam', 'the function has the rights of the owner of the schedule');
is($node->safe_psql('postgres', q{SELECT count(*) FROM sas.runs WHERE schedule = 'tick' AND version <> 1}), '0', 'its runs are of the version that stands');

# -- what ends while the function runs, at the submit, and where the instant is written down ---------
sub held { return wait_for($node, "SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = 'held at $_[0]'") }

foreach my $place (qw(plan run schedule))
{
	my $name = "at_$place";
	$node->safe_psql('postgres', qq{SELECT sas.pause_schedule('tick'); ALTER SYSTEM SET sas.complete_in = '1 min'; SELECT pg_reload_conf()});
	$node->safe_psql('postgres', qq{SELECT sas.schedule('$name', 'every 1 s', 'planned', '{"name": "$name"}', catch_up => 'all', overlap => 'allow')}, @pam);
	ok(runs_again($name), "$name runs");
	$node->safe_psql('postgres', "INSERT INTO shop.hold VALUES ('$place')");
	ok(held($place), "a worker stands at the $place");
	if ($place eq 'plan')
	{
		is($node->safe_psql('postgres', q{SET lock_timeout = '5s'; SELECT count(*) > 0 FROM (SELECT FROM _sas.schedule FOR UPDATE) s, (SELECT FROM _sas.schedule_plan FOR UPDATE) p}), 't',
			'while the function runs nothing of the schedule is locked');
		kill_worker($node, 'function', 'TERM') foreach 1 .. 3;
		ok(held($place), 'its worker is ended: another stands there');
	}
	$node->stop('immediate');
	$node->start;
	ok(held($place), 'after a crash a worker stands there again');
	$node->safe_psql('postgres', 'DELETE FROM shop.hold');
	ok(runs_again($name), 'and goes on');
	one_run_each($name, "what ended at the $place: each instant has one run, and its plan one row");
}

# -- what changes while the function runs ------------------------------------------------------------
$node->safe_psql('postgres', q{INSERT INTO shop.hold VALUES ('plan')});
$node->safe_psql('postgres', q{SELECT sas.schedule('moved', 'every 1 s', 'planned', '{"name": "moved"}', overlap => 'allow')}, @pam);
ok(held('plan'), 'a function plans a run');
$node->safe_psql('postgres', q{SELECT sas.schedule('moved', '0 0 1 1 *', 'planned', '{"name": "moved"}', overlap => 'allow')}, @pam);
$node->safe_psql('postgres', q{DELETE FROM shop.hold});
ok(wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE application_name = 'held at plan'}, '0'), 'meanwhile its schedule is written again: it comes to an end');
is($node->safe_psql('postgres', q{SELECT (SELECT count(*) FROM sas.runs WHERE schedule = 'moved'), (SELECT count(*) FROM shop.noted WHERE what = 'moved'), (SELECT count(*) FROM _sas.schedule_plan)}), '0|0|0',
	'and has submitted and written nothing');

# -- functions that do not end, or raise, or leave something behind ------------------------------------
$node->safe_psql('postgres', q{ALTER SYSTEM SET sas.complete_in = '2 s'; SELECT pg_reload_conf(); SELECT sas.resume_schedule('tick')});
$node->safe_psql('postgres', q{
	CREATE FUNCTION shop.hang(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN INSERT INTO shop.noted (what) VALUES ('hang'); PERFORM pg_sleep(3600); RETURN '{}'; END $$;
	CREATE FUNCTION shop.deaf(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN LOOP BEGIN PERFORM pg_sleep(3600); EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP; END $$;
	CREATE TABLE shop.deferred (what text);
	CREATE FUNCTION shop.later() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO shop.noted (what) VALUES ('later'); IF NEW.what = 'bad' THEN RAISE 'not like that'; END IF; RETURN NULL; END $$;
	CREATE CONSTRAINT TRIGGER later AFTER INSERT ON shop.deferred DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION shop.later();
	CREATE FUNCTION shop.defer(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN INSERT INTO shop.deferred VALUES (input ->> 'name'); PERFORM set_config('search_path', 'shop', false); RETURN '{"steps": {}}'; END $$;
	SELECT sas.create_workflow('hangs', '{"plan": "shop.hang", "steps": {}}'), sas.create_workflow('is_deaf', '{"plan": "shop.deaf", "steps": {}}'), sas.create_workflow('defers', '{"plan": "shop.defer", "steps": {}}');
	SELECT sas.schedule('hangs', 'every 1 s', 'hangs'), sas.schedule('bad', 'every 1 s', 'defers', '{"name": "bad"}'), sas.schedule('good', 'every 1 s', 'defers', '{"name": "good"}')}, @pam);
ok(wait_for($node, q{SELECT error ->> 'title' FROM sas.schedules WHERE name = 'hangs'}, 'canceling statement due to statement timeout'), 'a function that does not end is cancelled, and its schedule says so');
ok(runs_again('tick'), 'others run meanwhile');
ok(wait_for($node, q{SELECT error ->> 'title' FROM sas.schedules WHERE name = 'bad'}, 'not like that'), 'a deferred trigger that raises fails the instant');
ok(runs_again('good'), 'one that does not is carried out');
is($node->safe_psql('postgres', q{SELECT DISTINCT who FROM shop.noted WHERE what = 'later'}), 'pam', 'with the rights of the owner of the schedule');
is($node->safe_psql('postgres', q{SELECT count(*) FROM shop.noted WHERE what = 'hang'}), '0', 'what a function wrote whose run was not submitted is gone');
is($node->safe_psql('postgres', q{SELECT count(*) FROM sas.runs WHERE schedule IN ('hangs', 'bad')}), '0', 'and it has no run');
$node->safe_psql('postgres', q{SELECT sas.unschedule(n) FROM unnest('{hangs,bad,good}'::text[]) n; SELECT sas.schedule('deaf', 'every 1 s', 'is_deaf')}, @pam);
my $log = -s $node->logfile;
$node->wait_for_log(qr/terminating background worker "sas function/, $log);
pass('a function that does not listen when it is cancelled: its worker is ended');
ok(runs_again('tick'), 'others go on');
$node->safe_psql('postgres', q{SELECT sas.unschedule('deaf')}, @pam);

# -- the owner is gone; the extension goes -----------------------------------------------------------
$node->safe_psql('postgres', q{INSERT INTO shop.hold VALUES ('plan')});
ok(held('plan'), 'a function plans a run');
$node->safe_psql('postgres', q{SELECT sas.unschedule('tick'); DELETE FROM shop.hold});
$node->safe_psql('postgres', q{SELECT sas.schedule('last', 'every 1 s', 'planned', '{"name": "last"}', overlap => 'allow')}, @pam);
ok(runs_again('last'), 'its schedule is removed: others run');
# DROP ROLE would refuse it; a database that was restored may lack the role
$node->safe_psql('postgres', q{DELETE FROM pg_authid WHERE rolname = 'pam'});
ok(wait_for($node, q{SELECT error ->> 'title' FROM sas.schedules WHERE name = 'last'}, 'the owner of the schedule does not exist'), 'the owner is gone: its schedule says so');
$node->safe_psql('postgres', q{SELECT sas.unschedule('last')});
is($node->safe_psql('postgres', q{SELECT count(*) FROM _sas.schedule_plan}), '0', 'nothing is left');

done_testing();

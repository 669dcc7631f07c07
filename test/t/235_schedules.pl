# SPDX-License-Identifier: PostgreSQL
#
# Each instant of a schedule has exactly one run: the server crashes while a
# run is being submitted, and while the schedule is being moved on; it is
# promoted; two sessions write one schedule at once; what it needs is dropped.
# Takes about 60 s.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use IPC::Run ();
use SasSession;
use SasTest;
use Test::More;

my $node = new_node('main', _init => [ allows_streaming => 1 ]);

# the instants of a schedule that runs each second, from its first run on: none is missing, none is there twice
sub one_run_each
{
	my ($server, $name, $claim, $dbname) = @_;
	wait_for($server, "SELECT count(*) > 2 FROM sas.runs WHERE schedule = '$name'", 't', $dbname);
	is($server->safe_psql($dbname // 'postgres', qq{
		SELECT count(*) > 2, count(*) = count(DISTINCT scheduled_at), count(*) = 1 + extract(epoch FROM max(scheduled_at) - min(scheduled_at)),
			bool_and(key = 'schedule:$name:' || to_char(scheduled_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))
		FROM sas.runs WHERE schedule = '$name'}), 't|t|t|t', $claim);
	return;
}

sub runs_again
{
	my ($server, $name) = @_;
	wait_for($server, 'SELECT NOT pg_is_in_recovery()');
	my $last = $server->safe_psql('postgres', "SELECT coalesce(max(run_id), 0) FROM sas.runs WHERE schedule = '$name'");
	return wait_for($server, "SELECT count(*) > 0 FROM sas.runs WHERE schedule = '$name' AND run_id > $last");
}

$node->safe_psql('postgres', q{
	CREATE SCHEMA shop;
	CREATE FUNCTION shop.noted(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input';
	SELECT sas.create_workflow('quick', '{"steps": {"a": {"function": "shop.noted"}}}');
	CREATE TABLE shop.hold (place text);
	CREATE TABLE shop.held (place text);
	CREATE FUNCTION shop.held() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		WHILE EXISTS (SELECT FROM shop.hold h WHERE h.place = TG_ARGV[0]) LOOP
			PERFORM pg_notify('held', TG_ARGV[0]), set_config('application_name', 'held at ' || TG_ARGV[0], true), pg_sleep(0.05);
		END LOOP;
		RETURN NEW;
	END $$;
	CREATE TRIGGER held BEFORE INSERT ON _sas.run FOR EACH ROW EXECUTE FUNCTION shop.held('run');
	CREATE TRIGGER held AFTER UPDATE ON _sas.schedule FOR EACH ROW EXECUTE FUNCTION shop.held('schedule');
	SELECT sas.schedule('tick', 'every 1 s', 'quick', catch_up => 'all', overlap => 'allow')});
ok(runs_again($node, 'tick'), 'a schedule runs each second');

# -- crashes at each point of the commit that submits -----------------------------------------------
foreach my $place (qw(run schedule))
{
	$node->safe_psql('postgres', "INSERT INTO shop.hold VALUES ('$place')");
	ok(wait_for($node, "SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = 'held at $place'"), "the scheduler stands at the $place");
	$node->stop('immediate');
	$node->start;
	ok(wait_for($node, "SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = 'held at $place'"), "after the crash it stands there again");
	$node->safe_psql('postgres', "DELETE FROM shop.hold");
	ok(runs_again($node, 'tick'), 'and goes on');
	one_run_each($node, 'tick', "a crash at the $place: each instant has one run");
}
kill_worker($node, 'scheduler');
wait_for($node, 'SELECT count(*) > 0 FROM sas.workers');
ok(runs_again($node, 'tick'), 'a scheduler that is killed is replaced');
one_run_each($node, 'tick', 'and each instant has one run');

# -- who writes one schedule at once ----------------------------------------------------------------
my @sessions = map { SasSession->new($node) } 1 .. 5;
$sessions[0]->query('BEGIN');
$sessions[0]->query(q{SELECT sas.schedule('one', '0 0 1 1 *', 'quick', '{"by": 0}')});
$sessions[$_]->start_query(qq{SELECT sas.schedule('one', '0 0 1 1 *', 'quick', '{"by": $_}')}) foreach 1 .. 4;
ok(wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%sas.schedule(%'}, '4'), 'four sessions wait for the first');
$sessions[0]->query('COMMIT');
$sessions[$_]->answer foreach 1 .. 4;
is($node->safe_psql('postgres', q{SELECT count(*), count(*) FILTER (WHERE (input ->> 'by')::int > 0) FROM sas.schedules WHERE name = 'one'}), '1|1',
	'there is one schedule, as the last of them has written it');

# one that a session holds is passed by; the others run, and it runs once the session is over
$sessions[0]->query('BEGIN');
$sessions[0]->query(q{SELECT sas.schedule('tick', 'every 1 s', 'quick', catch_up => 'all', overlap => 'allow', priority => 1)});
$node->safe_psql('postgres', q{SELECT sas.schedule('other', 'every 1 s', 'quick')});
ok(runs_again($node, 'other'), 'a session holds a schedule: others run');
ok(runs_again($node, 'other'), 'and go on');
$sessions[0]->query('ROLLBACK');
ok(runs_again($node, 'tick'), 'after its end the held one runs, too');
one_run_each($node, 'tick', 'and has missed no instant');

# -- what it needs is gone --------------------------------------------------------------------------
$node->safe_psql('postgres', q{
	CREATE ROLE shopper LOGIN; GRANT USAGE ON SCHEMA shop TO shopper; SELECT sas.grant_usage('shopper', 'user');
	SELECT sas.grant_workflow('quick', 'shopper')});
$node->safe_psql('postgres', q{SELECT sas.schedule('hers', 'every 1 s', 'quick')}, extra_params => [ '-U', 'shopper' ]);
ok(runs_again($node, 'hers'), 'a role has a schedule');
is($node->safe_psql('postgres', q{SELECT DISTINCT submitted_by FROM sas.runs WHERE schedule = 'hers'}), 'shopper', 'its runs are submitted as that role');
$node->safe_psql('postgres', q{ALTER ROLE shopper RENAME TO buyer; REVOKE EXECUTE ON FUNCTION shop.noted(jsonb) FROM PUBLIC});
ok(wait_for($node, q{SELECT error ->> 'title' FROM sas.schedules WHERE name = 'hers'}, 'permission denied for function shop.noted(jsonb)'), 'a right is taken: the schedule says so');
$node->safe_psql('postgres', q{GRANT EXECUTE ON FUNCTION shop.noted(jsonb) TO buyer});
ok(wait_for($node, q{SELECT error IS NULL FROM sas.schedules WHERE name = 'hers'}), 'it is given again: the next instant runs');
my ($status, undef, $error) = $node->psql('postgres', q{SELECT sas.schedule('tick', '@daily', 'quick')}, extra_params => [ '-U', 'buyer' ]);
like($error, qr/must be owner of schedule "tick"/, 'nobody replaces the schedule of another role');
is($node->safe_psql('postgres', q{SELECT string_agg(name, ',' ORDER BY name) FROM sas.schedules}, extra_params => [ '-U', 'buyer' ]), 'hers', 'nor sees it');
# DROP ROLE would refuse it; a database that was restored may lack the role
$node->safe_psql('postgres', q{DELETE FROM pg_authid WHERE rolname = 'buyer'});
ok(wait_for($node, q{SELECT state, error ->> 'title' FROM sas.schedules WHERE name = 'hers'}, 'failed|the owner of the schedule does not exist'),
	'the role is gone: its schedule fails, and stops after ten instants');
$node->safe_psql('postgres', q{SELECT sas.unschedule('hers')});
ok(runs_again($node, 'tick'), 'all that holds up no other schedule');

# -- restore, drop of the database ------------------------------------------------------------------
$node->safe_psql('postgres', q{SELECT sas.unschedule('other')});
IPC::Run::run([ 'pg_dump', '-d', $node->connstr('postgres'), '-f', $node->basedir . '/dump.sql' ]) or die 'pg_dump failed';
$node->safe_psql('postgres', 'CREATE DATABASE restored');
$node->command_ok([ 'psql', '-Xq', '-d', $node->connstr('restored'), '-f', $node->basedir . '/dump.sql' ], 'a dump is restored');
is($node->safe_psql('restored', 'SELECT sas.release()'), 't', 'which is released');
my $instants = q{SELECT count(*) > 0 FROM sas.runs WHERE schedule = 'tick' AND created_at > now() - interval '2 s'};
ok(wait_for($node, $instants, 't', dbname => 'restored'), 'its schedules run there');
one_run_each($node, 'tick', 'and no instant twice', 'restored');
$node->safe_psql('postgres', 'DROP DATABASE restored');
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_database WHERE datname = 'restored'}), '0', 'a database with a schedule that runs each second can be dropped');

# -- promotion --------------------------------------------------------------------------------------
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
$node->append_conf('postgresql.conf', "synchronous_standby_names = '*'");
$node->reload;
ok(wait_for($node, q{SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'}, '1'), 'a standby is synchronous');
ok(runs_again($node, 'tick'), 'the schedule runs on the primary');
$node->stop('immediate');
$standby->promote;
ok(runs_again($standby, 'tick'), 'after the promotion it runs on the standby');
one_run_each($standby, 'tick', 'and each instant has one run');

done_testing();

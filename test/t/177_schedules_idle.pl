# SPDX-License-Identifier: PostgreSQL
#
# 100,000 schedules that are not due cost nothing: nobody wakes up for them but
# the scheduler, once a minute, and nothing is written. One that is due among
# them runs at once. Jobs of pg_cron run as the how-to says.
# Takes about 120 s.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use Test::More;
use Time::HiRes;

my $node = new_node('main',
	autovacuum => 'off',
	checkpoint_timeout => '1h',
	bgwriter_lru_maxpages => 0,
	'sas.supervisor_interval' => '2 s');
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };

# -- a job of pg_cron -------------------------------------------------------------------------------
$sql->(q{
	CREATE SCHEMA shop;
	CREATE TABLE shop.basket (touched_at timestamptz);
	INSERT INTO shop.basket SELECT now() - (g - 0.5) * interval '1 day' FROM generate_series(1, 60) g;
	CREATE FUNCTION shop.run_command(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	DECLARE
		n bigint;
	BEGIN
		EXECUTE input ->> 'command';
		GET DIAGNOSTICS n = ROW_COUNT;
		RETURN jsonb_build_object('rows', n);
	END $$;
	SELECT sas.create_workflow('command', '{"steps": {"run": {"function": "shop.run_command", "on_failure": "fail"}}, "output": "{{steps.run.output}}"}');
	SELECT sas.schedule('clean_up', 'every 1 s', 'command', jsonb_build_object('command', $$DELETE FROM shop.basket WHERE touched_at < now() - interval '30 days'$$), timezone => 'GMT', max_runs => 1);
	SELECT sas.schedule('broken', 'every 1 s', 'command', '{"command": "SELECT 1 / 0"}', timezone => 'GMT', max_runs => 1)});
ok(wait_for($node, q{SELECT string_agg(status, ',' ORDER BY status) FROM sas.run_details WHERE jobname IN ('clean_up', 'broken')}, 'failed,succeeded'), 'commands of pg_cron run as the how-to says');
is($sql->(q{SELECT count(*) FROM shop.basket}), '30', 'once');
is($sql->(q{SELECT d.return_message FROM sas.run_details d JOIN sas.schedules s ON s.schedule_id = d.jobid WHERE s.name = 'broken'}), 'division by zero', 'run_details says why one failed');
is($sql->(q{SELECT string_agg(state, ',') FROM sas.schedules}), 'finished,finished', 'each has run once, and is finished');

# -- many that are not due ----------------------------------------------------------------------------
$sql->(q{SELECT sas.set_limit('postgres', 'schedules', 200000); SELECT sas.schedule('far_0', '0 0 1 1 *', 'command', '{"command": "SELECT 1"}', timezone => 'GMT')});
my $columns = $sql->(q{SELECT string_agg(quote_ident(attname), ', ') FROM pg_attribute WHERE attrelid = '_sas.schedule'::regclass AND attnum > 0 AND NOT attisdropped AND attname NOT IN ('schedule_id', 'name')});
$sql->("INSERT INTO _sas.schedule (name, $columns) SELECT 'far_' || g, $columns FROM _sas.schedule, generate_series(1, 99999) g WHERE name = 'far_0'; VACUUM ANALYZE _sas.schedule");
is($sql->(q{SELECT count(*) FROM sas.schedules WHERE state = 'active'}), '100000', 'there are 100,000 schedules');
# the scheduler looks once a minute, since clocks may jump: not in what follows
my ($scheduler) = worker_pids($node, 'scheduler');
my $woken = sub { return SasTest::switches($node)->{$scheduler} };
my $was;
ok(wait_until(sub { $was = $woken->(); sleep 2; return $woken->() == $was }), 'the scheduler sleeps');
ok(wait_until(sub { sleep 1; return $woken->() != $was }), 'the scheduler looks once a minute');
quiet_for($node, 10, '100,000 schedules');
my $let_go = hold_supervisor($node);
$sql->(q{SELECT sas.schedule('soon', 'every 1 s', 'command', '{"command": "SELECT 1"}', timezone => 'GMT')});
ok(wait_for($node, q{SELECT count(*) > 3 FROM sas.runs WHERE schedule = 'soon' AND created_at < scheduled_at + interval '30 s'}), 'one that is due each second runs, without the supervisor');
$let_go->();
done_testing();

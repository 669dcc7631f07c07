# SPDX-License-Identifier: PostgreSQL
#
# Owners take turns with the time of function workers. Slow functions of one role, however many, hold up a function of
# another role by one call at most; it does not wait until they have all workers that they may. So do plan functions of
# schedules, items and infinite tasks.
# Takes about 45 s.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasSession;
use Test::More;

my $node = new_node('main', 'sas.function_workers_max' => 1);
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
my $as = sub { my ($role, $what) = @_; return $sql->("SET ROLE $role; $what") };
$sql->(q{
	CREATE ROLE eager; CREATE ROLE calm;
	GRANT pg_read_all_stats TO calm;
	SELECT sas.create_agent('host', kind => 'external');
	SELECT sas.grant_usage(r, 'user'), sas.grant_agent('host', r) FROM unnest('{eager,calm}'::regrole[]) r;
	CREATE TABLE gate (open boolean);
	CREATE TABLE done (role name, what text, at timestamptz NOT NULL DEFAULT clock_timestamp());
	GRANT SELECT ON gate, done TO eager, calm;
	GRANT INSERT ON done TO eager, calm;
	CREATE FUNCTION called(what text, s float8) RETURNS jsonb LANGUAGE sql AS $$
		INSERT INTO public.done (role, what) VALUES (current_user, what); SELECT '{}'::jsonb FROM pg_sleep(s) $$;
	CREATE FUNCTION slow(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT public.called('slow', 0.1) $$;
	CREATE FUNCTION slow_plan(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT public.called('slow', 0.1) || '{"steps": {}}' $$;
	CREATE FUNCTION quick(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT public.called('quick', 0) $$;
	CREATE FUNCTION asleep() RETURNS bigint LANGUAGE sql AS $$
		SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'sas function' AND wait_event = 'PgSleep' $$;
	CREATE FUNCTION quick_among(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(public.asleep()) $$;
	CREATE FUNCTION sleeps(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		WHILE NOT EXISTS (SELECT FROM public.gate) LOOP
			PERFORM pg_sleep(0.05);
		END LOOP;
		RETURN '{"steps": {}}';
	END $$});
foreach my $role ('eager', 'calm')
{
	$as->($role, qq{SELECT sas.create_workflow('${role}_$_', '{"steps": {"a": {"function": "public.$_", "complete_in": "10 min"}}}')}) foreach qw(slow quick quick_among sleeps);
	$as->($role, qq{SELECT sas.create_workflow('${role}_$_', '{"plan": "public.$_"}')}) foreach qw(slow_plan);
	$as->($role, qq{SELECT sas.create_workflow('${role}_sleep_plan', '{"plan": "public.sleeps"}')});
}
my $n_of = sub { return $sql->("SELECT count(*) FROM done WHERE what = '$_[0]'") };
my $quick = sub {
	my ($name) = @_;
	$sql->("DELETE FROM done WHERE what IN ('asked', 'quick')");
	my $runs = $as->('calm', q{WITH runs AS MATERIALIZED (SELECT string_agg(run_id::text, ',') ids FROM sas.submit_batch('calm_quick', array_fill('{}'::jsonb, ARRAY[20]))),
		asked AS (INSERT INTO done (role, what) SELECT current_user, 'asked' FROM runs) SELECT ids FROM runs});
	ok(wait_for($node, "SELECT count(*) FROM sas.runs WHERE run_id IN ($runs) AND result = 'success'", '20'), "$name: functions of another role end");
	# until the last of them is called, not until this is seen
	my $slow = $sql->(q{SELECT count(*) FROM done WHERE what = 'slow'
		AND at BETWEEN (SELECT min(at) FROM done WHERE what = 'asked') AND (SELECT max(at) FROM done WHERE what = 'quick')});
	cmp_ok($slow, '<', 10, "$name: while a few slow ones are called");
	return;
};
my $none_left = "SELECT count(*) FROM sas.runs WHERE state <> 'stopped'";

# -- one worker --------------------------------------------------------------------------------------------

$as->('eager', q{SELECT sas.submit_batch('eager_slow', array_fill('{}'::jsonb, ARRAY[30]))});
wait_until(sub { return $n_of->('slow') > 2 });
$quick->('slow functions');
ok(wait_for($node, $none_left, '0'), 'all slow functions end');

$as->('eager', q{SELECT count(sas.schedule('s' || n, 'every 1 day', 'eager_slow_plan', start_at => clock_timestamp() + interval '1 s')) FROM generate_series(1, 30) n});
my $before = $n_of->('slow');
wait_until(sub { return $n_of->('slow') > $before + 2 });
$quick->('slow plans of schedules');
ok(wait_for($node, "SELECT count(*) FROM sas.runs WHERE workflow = 'eager_slow_plan' AND result = 'success'", '30'), 'all plans are made');
$as->('eager', q{SELECT count(sas.unschedule(name)) FROM sas.schedules});

# -- tasks that have no end, and items ------------------------------------------------------------------------

$as->('eager', qq{SELECT sas.create_watcher('slow', '{"function": "public.slow", "every": "1 ms"}'); SELECT count(*) FROM generate_series(1, 20) n, sas.watch('slow', n::text)});
$before = $n_of->('slow');
wait_until(sub { return $n_of->('slow') > $before + 2 });
$quick->('slow tasks');
my $quick_before = $n_of->('quick');
$as->('calm', q{SELECT sas.create_watcher('quick', '{"function": "public.quick", "every": "1 ms"}'); SELECT count(*) FROM sas.watch('quick', '1')});
ok(wait_until(sub { return $n_of->('quick') >= $quick_before + 20 }), 'a task of another role is called');
cmp_ok($sql->(qq{WITH calls AS MATERIALIZED (SELECT at FROM done WHERE what = 'quick' ORDER BY at OFFSET $quick_before LIMIT 20)
	SELECT count(*) FROM done WHERE what = 'slow' AND at BETWEEN (SELECT min(at) FROM calls) AND (SELECT max(at) FROM calls)}), '<', 40, 'as often as many that are slow');
$as->('calm', q{SELECT sas.unwatch('quick', '{1}')});
$as->('eager', q{SELECT sas.unwatch('slow', array_agg(key)) FROM sas.watches WHERE watcher = 'slow'});
ok(wait_for($node, q{SELECT count(*) FROM sas.watches WHERE state <> 'deleted'}, '0'), 'they end');

$as->('eager', q{SELECT sas.create_watcher('items', '{"agent": "host", "external": {}, "items": {"function": "public.slow"}}'); SELECT count(*) FROM generate_series(1, 30) n, sas.watch('items', n::text)});
my $host = SasSession->new($node);
$host->query(q{CREATE TEMP TABLE claimed AS SELECT c.* FROM sas.register_node('n', 100, '{host}', lease => '1 h') n, sas.claim_watchers(n, 100) c});
$before = $n_of->('slow');
$host->query(q{SELECT count(*) FROM claimed c, sas.append_items(c.watch_id, c.epoch, '[{}]') a});
wait_until(sub { return $n_of->('slow') > $before + 2 });
$quick->('slow items');
ok(wait_until(sub { return $n_of->('slow') == $before + 30 }), 'all items are taken');

# -- workers beside those that are busy -----------------------------------------------------------------------

my $workers = sub { my ($n) = @_; $sql->($_) foreach "ALTER SYSTEM SET sas.function_workers_max = $n", 'SELECT pg_reload_conf()' };
$workers->(5);
my $among = sub {
	my ($name) = @_;
	ok(wait_until(sub { return $sql->('SELECT asleep()') > 0 }), "$name: one does not return");
	my $run = $as->('calm', q{SELECT run_id FROM sas.submit('calm_quick_among')});
	is($sql->("SELECT result FROM sas.wait($run, '100 s')"), 'success', "$name: a function of another role ends");
	# on a busy machine the first one is seen late
	cmp_ok($sql->("SELECT output::text::int FROM sas.steps WHERE run_id = $run"), '<', 4, "$name: before all workers have one of those");
	ok(wait_until(sub { return $sql->('SELECT asleep()') == 4 }), "$name: which they have in the end, but for one");
	$run = $as->('calm', q{SELECT run_id FROM sas.submit('calm_quick_among')});
	is($sql->("SELECT result FROM sas.wait($run, '100 s')"), 'success', "$name: and that serves the others");
	$sql->('INSERT INTO gate VALUES (true)');
	return;
};
$as->('eager', q{SELECT sas.submit_batch('eager_sleeps', array_fill('{}'::jsonb, ARRAY[20]))});
$among->('functions');
ok(wait_for($node, $none_left, '0'), 'all of them end');
$workers->(1);
ok(wait_for($node, q{SELECT count(*) FROM sas.workers WHERE actor = 'function'}, '1'), 'and the workers leave');
$workers->(5);
$sql->('TRUNCATE gate');
$as->('eager', q{SELECT count(sas.schedule('s' || n, 'every 1 day', 'eager_sleep_plan', start_at => clock_timestamp() + interval '1 s')) FROM generate_series(1, 20) n});
$among->('plans of schedules');
ok(wait_for($node, "SELECT count(*) FROM sas.runs WHERE workflow = 'eager_sleep_plan' AND result = 'success'", '20'), 'all plans are made');
$as->('eager', q{SELECT count(sas.unschedule(name)) FROM sas.schedules});

# -- no more workers than there are ----------------------------------------------------------------------------

$workers->(1);
ok(wait_for($node, q{SELECT count(*) FROM sas.workers WHERE actor = 'function'}, '1'), 'the workers leave again');
$workers->(3);
$sql->('TRUNCATE gate');
$as->($_, qq{SELECT sas.submit('${_}_sleeps')}) foreach 'eager', 'calm';
ok(wait_for($node, 'SELECT asleep()', '2'), 'calls of two roles do not return');
$sql->(q{CREATE ROLE steady; SELECT sas.grant_usage('steady', 'user'); GRANT SELECT ON gate TO steady;
	CREATE FUNCTION goes_on(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		IF NOT EXISTS (SELECT FROM public.gate) THEN PERFORM sas.submit('steady'); END IF;
		RETURN to_jsonb(pg_sleep(0.01)::text);
	END $$});
$as->('steady', q{SELECT sas.create_workflow('steady', '{"steps": {"a": {"function": "public.goes_on"}}}')});
$as->('steady', q{SELECT sas.submit_batch('steady', array_fill('{}'::jsonb, ARRAY[50]))});
ok(wait_for($node, q{SELECT count(*) > 100 FROM sas.runs WHERE workflow = 'steady' AND state = 'stopped'}, 't'), 'the last worker is busy with those of a third role');
my $short = $as->('eager', q{SELECT string_agg(run_id::text, ',') FROM sas.submit_batch('eager_quick', array_fill('{}'::jsonb, ARRAY[20]))});
ok(wait_for($node, "SELECT count(*) FROM sas.runs WHERE run_id IN ($short) AND result = 'success'", '20'), 'and short functions of the others end');
is($sql->('SELECT asleep() >= 2'), 't', 'while their long ones do not');
$sql->('INSERT INTO gate VALUES (true)');
ok(wait_for($node, $none_left, '0'), 'all of them end');
is($sql->(q{SELECT string_agg(DISTINCT kind, ', ') FROM sas.alerts WHERE kind <> 'stalled'}), '', 'nothing was amiss');
done_testing();

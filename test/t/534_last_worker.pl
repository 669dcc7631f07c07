# SPDX-License-Identifier: PostgreSQL
#
# Functions of one role that do not return leave a function worker to the others, also if there is no process slot for
# as many workers as sas.function_workers_max allows, or if others have long functions, too.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use Test::More;

# the server has two slots of its own: for the launcher, and for that of logical replication
my $node = new_node('main', max_worker_processes => 2 + 3 + 3);
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
my $as = sub { my ($role, $what) = @_; return $sql->("SET ROLE $role; $what") };
$sql->(q{
	CREATE ROLE eager; CREATE ROLE calm; CREATE ROLE steady;
	SELECT sas.grant_usage(r, 'user') FROM unnest('{eager,calm,steady}'::regrole[]) r;
	CREATE TABLE gate (open boolean);
	GRANT SELECT ON gate TO eager, calm;
	CREATE FUNCTION asleep() RETURNS bigint LANGUAGE sql AS $$
		SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'sas function' AND wait_event = 'PgSleep' $$;
	CREATE FUNCTION quick(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT input $$;
	CREATE FUNCTION sleeps(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		WHILE NOT EXISTS (SELECT FROM public.gate) LOOP
			PERFORM pg_sleep(0.05);
		END LOOP;
		RETURN '{"steps": {}}';
	END $$});
foreach my $role ('eager', 'calm', 'steady')
{
	$as->($role, qq{SELECT sas.create_workflow('${role}_$_', '{"steps": {"a": {"function": "public.$_", "complete_in": "10 min"}}}')}) foreach qw(quick sleeps);
}
$as->('eager', q{SELECT sas.create_watcher('sleeps', '{"function": "public.sleeps", "every": "1 h"}'); SELECT sas.create_workflow('eager_plan', '{"plan": "public.sleeps"}')});
my $ends = sub {
	my ($role, $name) = @_;
	my $run = $as->($role, "SELECT run_id FROM sas.submit('${role}_quick')");
	is($sql->("SELECT result FROM sas.wait($run, '100 s')"), 'success', $name);
	return;
};
my $opens = sub {
	$sql->('INSERT INTO gate VALUES (true)');
	ok(wait_for($node, "SELECT count(*) FROM sas.runs WHERE state <> 'stopped'", '0'), 'all end');
	$sql->('TRUNCATE gate');
	return;
};

# a role that is alone has no other to leave a worker to
$ends->($_, "a function of $_ ends") foreach qw(eager calm);

# -- no slot for a further worker -----------------------------------------------------------------------------

# 2 calls do not return, and a third one has had its chance
my $fills = sub {
	my ($name) = @_;
	ok(wait_for($node, 'SELECT asleep() >= 2', 't'), "$name of one role do not return");
	wait_until(sub { return $sql->('SELECT asleep()') == 3 }, 5);
	return;
};
$as->('eager', q{SELECT sas.submit_batch('eager_sleeps', array_fill('{}'::jsonb, ARRAY[20]))});
$fills->('functions');
$ends->('calm', 'a function of another role ends, though there is no slot for one more worker');
is($sql->('SELECT asleep()'), '2', 'all workers but one have one of those');
$opens->();
$as->('eager', q{SELECT count(*) FROM generate_series(1, 20) n, sas.watch('sleeps', n::text)});
$fills->('infinite tasks');
$ends->('calm', 'a function of another role ends, though there is no slot for one more worker');
is($sql->('SELECT asleep()'), '2', 'all workers but one have one of those');
$sql->('INSERT INTO gate VALUES (true)');
$as->('eager', q{SELECT sas.unwatch('sleeps', array_agg(key)) FROM sas.watches});
ok(wait_for($node, q{SELECT count(*) FROM sas.watches WHERE state <> 'deleted'}, '0'), 'they end');
$opens->();
$as->('eager', q{SELECT count(sas.schedule('s' || n, 'every 1 day', 'eager_plan', start_at => clock_timestamp() + interval '1 s')) FROM generate_series(1, 20) n});
$fills->('plans of schedules');
$ends->('calm', 'a function of another role ends, though there is no slot for one more worker');
is($sql->('SELECT asleep()'), '2', 'all workers but one have one of those');
$sql->('INSERT INTO gate VALUES (true)');
ok(wait_for($node, "SELECT count(*) FROM sas.runs WHERE workflow = 'eager_plan' AND result = 'success'", '20'), 'all plans are made');
$as->('eager', 'SELECT count(sas.unschedule(name)) FROM sas.schedules');
$opens->();

# -- long functions of two roles ------------------------------------------------------------------------------

$sql->($_) foreach 'ALTER SYSTEM SET max_worker_processes = 16', 'ALTER SYSTEM SET sas.function_workers_max = 4';
$node->restart;
$as->('calm', q{SELECT sas.submit('calm_sleeps')});
ok(wait_for($node, 'SELECT asleep()', '1'), 'a long function of a role');
$as->('eager', q{SELECT sas.submit_batch('eager_sleeps', array_fill('{}'::jsonb, ARRAY[20]))});
ok(wait_for($node, 'SELECT asleep()', '3'), 'and of another one, on most workers');
$ends->('steady', 'a function of a third role ends');
$ends->('calm', 'and one of the first');
is($sql->('SELECT asleep()'), '3', 'the long ones do not');
$opens->();
done_testing();

# SPDX-License-Identifier: PostgreSQL
#
# Functions of one role that do not return leave a function worker to the others, without a limit that anybody has set.
# And they hold up none of their own role that was claimed with them and has not begun.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasSession;
use Test::More;

my $node = new_node('main', 'sas.function_workers_max' => 3);
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
$sql->(q{
	CREATE ROLE eager;
	CREATE ROLE calm;
	CREATE TABLE gate (open boolean);
	GRANT SELECT ON gate TO eager;
	CREATE FUNCTION asleep(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		WHILE NOT EXISTS (SELECT FROM public.gate) LOOP
			PERFORM pg_sleep(0.05);
		END LOOP;
		RETURN '{}';
	END $$;
	CREATE FUNCTION echo(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT input $$;
	SELECT sas.grant_usage(r, 'user') FROM unnest('{eager,calm}'::regrole[]) r});
$sql->(q{SET ROLE eager; SELECT sas.create_workflow('asleep', '{"steps": {"a": {"function": "public.asleep", "complete_in": "1 day"}}}');
	SELECT sas.submit_batch('asleep', array_fill('{}'::jsonb, ARRAY[10]))});
my $asleep = q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'sas function' AND wait_event = 'PgSleep'};
ok(wait_for($node, $asleep, '2'), 'functions that sleep have all function workers but one');
ok(wait_for($node, q{SELECT count(*) FROM sas.workers WHERE actor = 'function'}, '3'), 'which there is, too');
$sql->(q{SET ROLE calm; SELECT sas.create_workflow('echo', '{"steps": {"a": {"function": "public.echo"}, "b": {"function": "public.echo", "after": ["a"]}}}');
	SELECT sas.submit_batch('echo', array_fill('{}'::jsonb, ARRAY[50]))});
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE workflow = 'echo' AND result = 'success'}, '50'), 'functions of another role end meanwhile');
is($sql->($asleep), '2', 'while they sleep');
is($sql->(q{SELECT value FROM sas.limits WHERE role IS NULL AND name = 'function_workers'}), '2', 'sas.limits shows how many a role may use');
like($sql->(q{SELECT text FROM sas.explain() WHERE waiting_kind = 'function_workers'}), qr/functions of role "eager" run on as many workers as may: 2 of 2/, 'sas.explain says what the others wait for');
$sql->(q{SELECT sas.set_limit('eager', 'function_workers', 3)});
ok(wait_for($node, $asleep, '3'), 'an admin lets it have all');
$sql->(q{SELECT sas.set_limit('eager', 'function_workers', NULL); INSERT INTO gate VALUES (true)});
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE workflow = 'asleep' AND result = 'success'}, '10'), 'all of them end');

# without further workers for long functions a role uses all there are
$sql->($_) foreach 'ALTER SYSTEM SET sas.function_workers = 3', 'SELECT pg_reload_conf()', 'TRUNCATE gate';
ok(wait_for($node, q{SELECT value FROM sas.limits WHERE role IS NULL AND name = 'function_workers'}, '64'), 'the default follows the settings');
$sql->(q{SET ROLE eager; SELECT sas.submit_batch('asleep', array_fill('{}'::jsonb, ARRAY[10]))});
ok(wait_for($node, $asleep, '3'), 'a role uses all workers, where that is how many there are');
$sql->(q{INSERT INTO gate VALUES (true)});
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE workflow = 'asleep' AND result = 'success'}, '20'), 'and all end');

# what is claimed together, since all of it was short until now
$sql->($_) foreach 'ALTER SYSTEM SET sas.function_workers = 1', 'ALTER SYSTEM SET sas.supervisor_interval = \'6 min\'', 'SELECT pg_reload_conf()', 'TRUNCATE gate';
$sql->(q{
	CREATE TABLE gone (n int);
	GRANT SELECT, INSERT ON gone TO eager;
	CREATE FUNCTION mixed(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.gone VALUES ((input->>'n')::int);
		WHILE input ? 'gate' AND NOT EXISTS (SELECT FROM public.gate) LOOP
			PERFORM pg_sleep(0.05);
		END LOOP;
		RETURN '{}';
	END $$;
	CREATE FUNCTION taken(items jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT public.mixed(items->0) $$;
	SET ROLE eager;
	SELECT sas.create_workflow('mixed', '{"steps": {"a": {"function": "public.mixed"}}}')});
my $ended = sub { return wait_for($node, q{SELECT count(*) FROM sas.runs WHERE workflow = 'mixed' AND result = 'success'}, $_[0]) };
for my $n (1 .. 3)
{
	$sql->(q{SET ROLE eager; SELECT sas.submit_batch('mixed', array_fill('{}'::jsonb, ARRAY[3]))});
	$ended->(3 * $n);
}
$sql->(q{SET ROLE eager; SELECT sas.submit_batch('mixed', ARRAY(SELECT jsonb_build_object('n', n) || CASE n WHEN 3 THEN '{"gate": 1}'::jsonb ELSE '{}' END FROM generate_series(1, 8) n))});
# how many are claimed together depends on how long the others took: 1 and 2 may have been claimed before
my $behind = q{SELECT string_agg(n::text, ',' ORDER BY n) FROM gone WHERE n >= 3};
ok(wait_for($node, $behind, '4,5,6,7,8'), 'steps that were claimed after one that takes long go to other workers');
$sql->(q{INSERT INTO gate VALUES (true)});
ok($ended->(17), 'all of them end');
is($sql->(q{SELECT string_agg(n::text, ',' ORDER BY n) FROM gone WHERE n IS NOT NULL}), '1,2,3,4,5,6,7,8', 'each was called once');
is($sql->(q{SELECT count(*) FROM sas.attempts WHERE status <> 'succeeded'}), '0', 'and nothing was counted');

# the same with items
$sql->('TRUNCATE gate, gone');
$sql->(q{
	SELECT sas.create_agent('teller', kind => 'external');
	SELECT sas.grant_agent('teller', 'eager');
	SET ROLE eager;
	SELECT sas.create_watcher('told', '{"agent": "teller", "external": {}, "items": {"function": "public.taken"}}');
	SELECT FROM generate_series(1, 8) n, sas.watch('told', n::text)});
my $host = SasSession->new($node);
$host->query(q{CREATE TEMP TABLE claimed AS SELECT c.* FROM sas.register_node('n', 10, '{teller}') n, sas.claim_watchers(n, 10) c});
my $tell = sub { $host->query("SELECT sas.append_items(c.watch_id, c.epoch, jsonb_build_array($_[0])) FROM claimed c WHERE key::int <= $_[1] ORDER BY watch_id"); return };
foreach my $n (1 .. 3)
{
	$tell->("jsonb_build_object('n', 0)", 3);
	wait_for($node, q{SELECT count(*) FROM gone}, 3 * $n);
}
$sql->('TRUNCATE gone');
$tell->(q{jsonb_build_object('n', c.key::int) || CASE c.key WHEN '3' THEN '{"gate": 1}'::jsonb ELSE '{}' END}, 8);
ok(wait_for($node, $behind, '4,5,6,7,8'), 'items that were claimed after some that take long go to other workers');
$sql->(q{INSERT INTO gate VALUES (true)});
ok(wait_for($node, q{SELECT string_agg(n::text, ',' ORDER BY n) FROM gone}, '1,2,3,4,5,6,7,8'), 'each was taken once');
is($sql->(q{SELECT count(*) FROM sas.alerts}), '0', 'and nothing was amiss');

# a module of C that takes no notice of anything, as PostgreSQL takes none while it plans what functions in SQL make of each other
my $dir = PostgreSQL::Test::Utils::tempdir();
chomp(my $includes = `pg_config --includedir-server`);
system('cc', '-shared', '-fPIC', "-I$includes", '-o', "$dir/deaf.so", "$FindBin::RealBin/../modules/deaf.c") == 0 or die 'no module';
$sql->($_) foreach q{ALTER SYSTEM SET sas.supervisor_interval = '100 ms'}, 'SELECT pg_reload_conf()';
$sql->(qq{
	CREATE FUNCTION wait_for_file(text) RETURNS void LANGUAGE c STRICT AS '$dir/deaf', 'deaf';
	CREATE FUNCTION deaf(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS \$\$ BEGIN PERFORM public.wait_for_file('$dir/go'); RETURN '{}'; END \$\$;
	SET ROLE eager;
	SELECT sas.create_workflow('deaf', '{"steps": {"a": {"function": "public.deaf", "complete_in": "1 s"}}, "recovery": {"max_failures": 1}, "on_failure": "fail"}');
	SELECT sas.submit_batch('deaf', array_fill('{}'::jsonb, ARRAY[10]))});
ok(wait_for($node, q{SELECT count(*) > 0 FROM sas.runs WHERE workflow = 'deaf' AND result = 'error'}), 'a function that nothing can end fails with its step');
ok(wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'sas function' AND state = 'active'}, '2'), 'its worker, and another one, go on with what cannot be ended');
$sql->(q{SET ROLE calm; SELECT sas.submit_batch('echo', array_fill('{}'::jsonb, ARRAY[50]))});
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE workflow = 'echo' AND result = 'success'}, '100'), 'functions of another role end beside them');
like($sql->(q{SELECT text FROM sas.explain() WHERE waiting_kind = 'function_workers'}), qr/functions of role "eager" run on as many workers as may: 2 of 2/, 'for a worker that does not end counts for its role');
PostgreSQL::Test::Utils::append_to_file("$dir/go", '');
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE workflow = 'deaf' AND state = 'stopped'}, '10'), 'the others go on when they have ended');
done_testing();

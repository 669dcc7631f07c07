# SPDX-License-Identifier: PostgreSQL
#
# Functions of one role that do not return leave a function worker to the others, without a limit that anybody has set.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
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
done_testing();

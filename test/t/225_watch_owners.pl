# SPDX-License-Identifier: PostgreSQL
#
# One function worker calls the functions of several owners for ever: nothing
# of one is left for the next; and one that ends its worker again and again is
# found among the others, which are not blamed.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use Test::More;

my $node = new_node('main');
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
ok(wait_for($node, q{SELECT count(*) FROM sas.nodes WHERE kind = 'function' AND NOT is_deleted}, 1), 'there is one function worker, which has called nothing yet');

# -- what is left in the session ------------------------------------------------------------------------

$sql->(q{
	CREATE ROLE ann;
	CREATE ROLE bob;
	SELECT sas.grant_usage(r::regrole, 'user') FROM unnest('{ann,bob}'::text[]) r;
	CREATE SCHEMA s;
	GRANT USAGE ON SCHEMA s TO ann, bob;
	CREATE TABLE s.seen (who name, prepared bigint, locks bigint, temporary bigint);
	GRANT INSERT ON s.seen TO ann, bob;
	GRANT TEMP ON DATABASE postgres TO ann, bob;
	CREATE FUNCTION s.leave(turn jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO s.seen SELECT current_user, (SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'of_%' AND name <> 'of_' || current_user),
			(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND objid::bigint <> CASE current_user WHEN 'ann' THEN 1 ELSE 2 END),
			(SELECT count(*) FROM pg_class WHERE relnamespace = pg_my_temp_schema() AND relname LIKE 'of_%' AND relname <> 'of_' || current_user);
		IF NOT EXISTS (SELECT FROM pg_prepared_statements WHERE name = 'of_' || current_user) THEN
			EXECUTE format('PREPARE %I AS SELECT 1', 'of_' || current_user);
			PERFORM pg_advisory_lock(CASE current_user WHEN 'ann' THEN 1 ELSE 2 END);
			EXECUTE format('CREATE TEMP TABLE IF NOT EXISTS %I ()', 'of_' || current_user);
		END IF;
		RETURN NULL;
	END $$;
	SELECT sas.create_watcher('leave', '{"function": "s.leave", "every": "20 ms"}')});
foreach my $who (qw(ann bob))
{
	$sql->("SET ROLE $who; SELECT sas.watch('leave', '$who')");
	ok(wait_for($node, "SELECT count(*) > 5 FROM s.seen WHERE who = '$who'"), "$who: is called");
}
ok(wait_for($node, q{SELECT count(*) > 200 AND count(DISTINCT who) = 2 FROM s.seen}), 'both are called in turn');
is($sql->(q{SELECT max(prepared), max(locks), max(temporary) FROM s.seen}), '0|0|0', 'no prepared statement, lock or temporary table of one is left for the other');
is($sql->('SELECT sum(failures) FROM sas.watches'), '0', 'and none has failed');
$sql->(q{SELECT * FROM sas.unwatch('leave', '{ann,bob}')});
ok(wait_for($node, q{SELECT string_agg(DISTINCT state, ' ') FROM sas.watches}, 'deleted'), 'they are stopped');

# -- one that ends its worker -----------------------------------------------------------------------------

$sql->(q{
	CREATE TABLE tally (key text, n int);
	CREATE FUNCTION count(turn jsonb) RETURNS jsonb LANGUAGE sql AS $$
		INSERT INTO public.tally VALUES (turn ->> 'key', coalesce((turn ->> 'cursor')::int, 0) + 1) RETURNING to_jsonb(n) $$;
	CREATE FUNCTION public.kill(turn jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		EXECUTE format('COPY (SELECT 1) TO PROGRAM %L', 'kill -9 ' || pg_backend_pid());
		PERFORM pg_sleep(60);
		RETURN '1';
	END $$;
	SELECT sas.create_watcher('count', '{"function": "public.count", "every": "10 ms"}');
	SELECT sas.create_watcher('kill', '{"function": "public.kill", "every": "10 ms", "retry": {"initial": "200 ms", "max_failures": 4}}');
	SELECT count(*) FROM generate_series(1, 10) n, sas.watch('count', n::text)});
ok(wait_for($node, q{SELECT count(DISTINCT key) FROM tally}, 10), 'ten are called');
# the server may be down before this session is told of its commit
eval { $node->psql('postgres', q{SELECT * FROM sas.watch('kill', 'all')}) };
ok(wait_for($node, q{SELECT state || ' ' || failures FROM sas.watches WHERE watcher = 'kill'}, 'failed 4'), 'one that takes the server down each time has failed in the end');
is($sql->(q{SELECT message FROM sas.alerts WHERE kind = 'watch-failed'}), 'watch "all" of watcher "kill" failed: the worker that called the function is gone', 'with an alert');
is($sql->(q{SELECT max(failures) <= 1 FROM sas.watches WHERE watcher = 'count'}), 't', 'the others are suspected once, the first time, and not blamed after that');
my $most = $sql->('SELECT max(n) FROM tally');
ok(wait_for($node, "SELECT count(*) FROM (SELECT key FROM tally GROUP BY 1 HAVING max(n) > $most + 5) x", 10), 'they go on');
is($sql->(q{SELECT bool_and(n = max) FROM (SELECT count(*) AS n, max(n) FROM tally GROUP BY key) x}), 't', 'what each turn wrote and its cursor are one');
ok(wait_for($node, q{SELECT count(*) FROM _sas.watch_flow WHERE called_at IS NOT NULL AND failures = 0}, 0), 'and is noted no more');
$node->stop;
done_testing();

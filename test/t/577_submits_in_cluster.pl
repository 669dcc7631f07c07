# SPDX-License-Identifier: PostgreSQL
#
# In a cluster, a submit with a key asks the store for other nodes. Within the function of a step, the worker that has
# called it is in the middle of calls of its own: what those return stays where it was, and the worker goes on.
# In a session of another node, a notification waits until its transaction has committed, in one phase or in two.
# Takes about 30 s.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Utils qw(slurp_file);
use SasTest;
use Test::More;

my $node = new_node('main', max_prepared_transactions => 5);
sub sql { return $node->safe_psql('postgres', $_[0]) }

# a server with these tables takes itself for the only node of a cluster; 540_citus has a real one
sql(q{
	SET allow_system_table_mods = on;
	CREATE TABLE pg_catalog.pg_dist_local_group (groupid int);
	INSERT INTO pg_catalog.pg_dist_local_group VALUES (0);
	CREATE TABLE pg_catalog.pg_dist_node (groupid int, nodename text, nodeport int, isactive bool, noderole text)});
sql(q{
	CREATE SCHEMA app;
	SELECT sas.create_workflow('child', '{"steps": {"it": {"wait": {"for": "1 h"}}}}');
	CREATE FUNCTION app.ask(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM sas.submit('child', key => input ->> 'key');
		IF input ? 'raises' THEN
			RAISE EXCEPTION 'it raises %', input ->> 'key';
		END IF;
		RETURN input || jsonb_build_object('long', repeat('abcdefgh', 200));
	END $$;
	SELECT sas.create_workflow('asks', '{"steps": {"it": {"function": "app.ask", "expect": "$.output.good == true"}}, "on_failure": "fail"}')});
my $pid = sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'sas function'});
sql(q{SELECT count(*) FROM sas.submit_batch('asks', ARRAY(SELECT jsonb_build_object('key', 'k' || g, 'good', g % 3 = 0)
	|| CASE g % 3 WHEN 1 THEN '{"raises": true}' ELSE '{}' END::jsonb FROM generate_series(1, 300) g))});
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE workflow = 'asks' AND state = 'stopped'}, '300'), 'all runs end');
is(sql(q{SELECT string_agg(n || ' ' || result, ', ' ORDER BY result) FROM (SELECT result, count(*) AS n FROM sas.runs WHERE workflow = 'asks' GROUP BY 1) r}),
	'200 error, 100 success', 'as their functions say');
is(sql(q{SELECT string_agg(DISTINCT regexp_replace(error ->> 'title', '[0-9]+', 'n'), ', ') FROM sas.steps WHERE state = 'failed'}),
	'it raises kn, the result is not what was expected', 'with their errors');
is(sql(q{SELECT count(*) FROM sas.runs WHERE workflow = 'child'}), '100', 'and what was submitted by those that succeeded is there');
is(sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'sas function'}), $pid, 'by the same worker');

# what a session hears that has this name and ends a transaction with a notification so, and what waits before and after
sub hears
{
	my ($name, $end) = @_;
	my $said = sql(qq{
		SET application_name = '$name';
		LISTEN heard;
		BEGIN;
		SELECT _sas.notify('heard', 'hello');
		SELECT 'waiting ' || count(*) FROM _sas.delayed_note;
		$end;
		SELECT 'waiting ' || count(*) FROM _sas.delayed_note});
	return join ', ', $said =~ /(waiting \d+|with payload "hello")/g;
}
my $of_node = 'citus_internal gpid=20000000042';
is(hears('psql', 'COMMIT'), 'waiting 0, with payload "hello", waiting 0', 'a notification of an own session does not wait');
is(hears($of_node, 'COMMIT'), 'waiting 1, with payload "hello", waiting 0', 'one of a session of another node is sent as it commits');
is(hears($of_node, 'ROLLBACK'), 'waiting 1, waiting 0', 'not if it rolls back');
is(hears($of_node, q{PREPARE TRANSACTION 'p'; COMMIT PREPARED 'p'}), 'waiting 1, with payload "hello", waiting 0', 'and as the second phase commits');
done_testing();

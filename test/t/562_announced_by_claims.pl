# SPDX-License-Identifier: PostgreSQL
#
# What a claim itself makes ready is announced, though the claim takes all that
# was ready before: hooks of runs that begin. And a claim that is rolled back has
# taken nothing. Takes about 10 s.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasSession;
use SasTest;
use Test::More;

my $node = new_node('main', 'sas.function_workers' => 1, 'sas.function_workers_max' => 1);
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
my $connection = sprintf 'host=%s port=%s dbname=postgres', $node->host, $node->port;
$sql->(qq{
	CREATE EXTENSION dblink;
	CREATE SEQUENCE fails;
	CREATE SEQUENCE submits;
	CREATE TABLE told (run_id bigint);
	CREATE FUNCTION echo(input jsonb) RETURNS jsonb LANGUAGE sql AS \$\$ SELECT input \$\$;
	CREATE FUNCTION tell(input jsonb) RETURNS jsonb LANGUAGE sql AS
	\$\$ INSERT INTO public.told SELECT (input ->> 'run_id')::bigint RETURNING 'null'::jsonb \$\$;
	-- submits two runs in another session, once; the connection stays open
	CREATE FUNCTION others(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS \$\$
	BEGIN
		IF coalesce(array_position(public.dblink_get_connections(), 'c'), 0) = 0 THEN
			PERFORM public.dblink_connect('c', '$connection');
		END IF;
		IF input ? 'submits' AND nextval('public.submits') = 1 THEN
			PERFORM public.dblink_exec('c',
				'DO \$d\$ BEGIN PERFORM sas.submit_batch(''echo'', ARRAY[''{}'', ''{}'']::jsonb[]); END \$d\$');
		END IF;
		RETURN input;
	END \$\$;
	-- the first commit of a claim of two steps fails
	CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS \$\$
	BEGIN
		IF cardinality(new.step_nos) = 2 AND nextval('public.fails') = 1 THEN
			RAISE 'this claim is not committed';
		END IF;
		RETURN NULL;
	END \$\$;
	CREATE CONSTRAINT TRIGGER fails AFTER INSERT ON _sas.lease DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION fails();
	SELECT sas.create_workflow('echo', '{"steps": {"a": {"function": "public.echo"}}}');
	SELECT sas.create_workflow('others', '{"steps": {"a": {"function": "public.others"}}}');
	SELECT sas.create_workflow('hooked', '{"steps": {"a": {"function": "public.echo"}},
		"hooks": [{"on": "running", "function": "public.tell"}]}')});
my $open = q{SELECT count(*) FROM sas.runs WHERE state <> 'stopped'};
my $asleep = q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'sas function' AND state = 'idle'};

# nobody looks for what was forgotten: the supervisor sends none
ok(wait_for($node, $asleep, '1'), 'the function worker sleeps');
my $let_go = hold_supervisor($node);

my $run = $sql->(q{SELECT run_id FROM sas.submit('hooked', '{}')});
ok(wait_for($node, "SELECT count(*) FROM told WHERE run_id = $run", '1'), 'a hook of a run that begins is called by and by');
$sql->(q{SELECT count(*) FROM sas.submit_batch('hooked', ARRAY(SELECT '{}'::jsonb FROM generate_series(1, 5)))});
ok(wait_for($node, 'SELECT count(*) FROM told', '6'), 'and so are those of several runs');

# the first call opens the connection
$sql->('SELECT FROM sas.wait(' . $sql->(q{SELECT run_id FROM sas.submit('others', '{}')}) . ')') for 1 .. 2;
foreach my $n (1 .. 5)
{
	$sql->('ALTER SEQUENCE fails RESTART; ALTER SEQUENCE submits RESTART');
	$sql->(q{SELECT run_id FROM sas.submit('others', '{"submits": true}')});
	ok(wait_for($node, $open, '0'), 'what a claim had taken that was rolled back is claimed again');
	is($sql->(q{SELECT count(*) FROM sas.runs WHERE workflow = 'echo' AND result = 'success'}), 2 * $n, 'all are done');
}
$let_go->();
$node->stop;
done_testing();

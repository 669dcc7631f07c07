# SPDX-License-Identifier: PostgreSQL
#
# Function steps run as the owner of their run, and cannot climb from there to
# the worker's rights; nothing of one owner is left for the next.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use Test::More;

my $node = new_node('main');
$node->safe_psql('postgres', q{
	CREATE ROLE app LOGIN;
	CREATE ROLE batch NOLOGIN;
	CREATE ROLE other NOLOGIN;
	GRANT batch, other TO app;
	SELECT sas.grant_usage('batch', 'user');
	SELECT sas.grant_usage('other', 'user');
	SELECT sas.set_secret('token', 'very-secret-value');
	CREATE SCHEMA shop;
	GRANT USAGE, CREATE ON SCHEMA shop TO batch, other;
	CREATE TABLE shop.log (who text NOT NULL, session_who text NOT NULL, is_super boolean NOT NULL, what text);
	GRANT ALL ON shop.log TO PUBLIC;
	CREATE FUNCTION shop.note(what text) RETURNS text LANGUAGE sql VOLATILE AS $$
		INSERT INTO shop.log
		SELECT current_user, session_user, (SELECT rolsuper FROM pg_roles WHERE rolname = current_user), what
		RETURNING what $$;});

my $names = 0;

# the output or the error of one step that runs this body as that role
sub outcome
{
	my ($role, $body, %option) = @_;
	my $name = 'f' . ++$names;
	my $language = $option{language} // 'plpgsql';
	my $attributes = $option{attributes} // '';
	my $complete_in = $option{complete_in} // '60 s';
	my $run = $node->safe_psql('postgres', qq{
		SET ROLE $role;
		CREATE FUNCTION shop.$name(input jsonb) RETURNS jsonb LANGUAGE $language $attributes AS \$f\$ $body \$f\$;
		SELECT sas.create_workflow('$name', '{"steps": {"s": {"function": "shop.$name", "complete_in": "$complete_in", "retry": {"max_attempts": 1}}}, "on_failure": "fail",
			"recovery": {"max_failures": 1}, "output": {"o": "{{steps.s.output}}"}}') IS NULL;
		SELECT 'run ' || run_id FROM sas.submit('$name')});
	($run) = $run =~ /^run (\d+)$/m;
	wait_for($node, "SELECT state FROM sas.runs WHERE run_id = $run", 'stopped') or return 'never ended';
	return $node->safe_psql('postgres', "SELECT coalesce(error ->> 'title', output ->> 'o', '') FROM sas.runs WHERE run_id = $run");
}

# -- as whom ----------------------------------------------------------------------

is(outcome('batch', 'BEGIN RETURN to_jsonb(current_user::text); END'), 'batch', 'a function step runs as the owner of its run, who needs no LOGIN');
is(outcome('other', 'SELECT to_jsonb(current_user::text)', language => 'sql'), 'other', 'another owner\'s as that one');
is(outcome('batch', q{BEGIN RETURN to_jsonb(current_setting('search_path')); END}), 'pg_catalog, shop, pg_temp', 'with the search_path of promise 11');
like(outcome('batch', 'BEGIN RETURN to_jsonb((SELECT value FROM _sas.secret)); END'), qr/permission denied/, 'it cannot read a secret');
like(outcome('batch', 'BEGIN RETURN to_jsonb((SELECT count(*) FROM _sas.run)); END'), qr/permission denied/, 'nor a private table');
is(outcome('batch', q{BEGIN RETURN to_jsonb((SELECT count(*) FROM sas.runs WHERE submitted_by <> 'batch')); END}), '0', 'it sees its own runs only');

# -- what would end the worker ------------------------------------------------------

my ($worker) = worker_pids($node, 'function');
like(outcome('batch', q{BEGIN SET exit_on_error = on; RAISE 'x'; END}), qr/permission denied to set parameter "exit_on_error"/,
	'it cannot turn an error into the end of its worker');
like(outcome('batch', q{BEGIN PERFORM set_config('exit_on_error', 'on', true); RAISE 'x'; END}), qr/permission denied to set parameter "exit_on_error"/, 'nor in another way');
like(outcome('batch', q{BEGIN RAISE 'x'; END}, attributes => 'SET exit_on_error = on'), qr/permission denied to set parameter "exit_on_error"/, 'nor by a setting of its own');
if ($node->safe_psql('postgres', q{SELECT current_setting('server_version_num')::int >= 170000}) eq 't')
{
	like(outcome('batch', q{BEGIN SET transaction_timeout = '1ms'; PERFORM pg_sleep(1); RETURN '1'; END}), qr/permission denied to set parameter "transaction_timeout"/,
		'nor by a limit of the transaction, which is the worker\'s');
}
is(outcome('batch', q{BEGIN SET statement_timeout = '1ms'; SET lock_timeout = '1s'; PERFORM pg_sleep(0.01); RETURN '1'; END}), '1', 'limits of statements are its own');
is(join(' ', worker_pids($node, 'function')), $worker, 'its worker is the same as before');

# -- climbing ---------------------------------------------------------------------

foreach my $try (
	'SET ROLE postgres', 'RESET ROLE', 'SET ROLE NONE', 'SET LOCAL ROLE postgres', 'RESET SESSION AUTHORIZATION', 'SET SESSION AUTHORIZATION postgres',
	'SET SESSION AUTHORIZATION DEFAULT', 'SELECT set_config($q$role$q$, $q$postgres$q$, false)',
	'SELECT set_config($q$session_authorization$q$, $q$postgres$q$, false)', 'RESET ALL', 'DISCARD ALL')
{
	my $answer = outcome('batch', qq{
		DECLARE
			met text := 'nothing';
		BEGIN
			BEGIN
				EXECUTE \$x\$$try\$x\$;
			EXCEPTION WHEN OTHERS THEN
				met := SQLSTATE;
			END;
			RETURN (SELECT to_jsonb(format('%s %s %s', met, current_user, has_table_privilege(c.oid, 'SELECT')))
				FROM pg_class c WHERE c.relname = 'secret' AND c.relnamespace = (SELECT n.oid FROM pg_namespace n WHERE n.nspname = '_sas'));
		END});
	# RESET ALL leaves the role alone, so it need not be refused
	like($answer, $try eq 'RESET ALL' ? qr/^\w+ batch f$/ : qr/^(42501|25001|0A000|22023) batch f$/, "$try does not climb");
}
like(outcome('batch', 'BEGIN RETURN to_jsonb(current_user::text); END', attributes => 'SET search_path = shop'), qr/^batch$/, 'a function with settings of its own runs as the owner too');

# -- later in the transaction -----------------------------------------------------

$node->safe_psql('postgres', q{
	SET ROLE batch;
	CREATE TABLE shop.watched (n int);
	CREATE FUNCTION shop.later() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM shop.note('deferred trigger ' || NEW.n);
		IF NEW.n < 3 THEN
			INSERT INTO shop.watched VALUES (NEW.n + 1);	-- deferred again
		END IF;
		RETURN NULL;
	END $$;
	CREATE CONSTRAINT TRIGGER later AFTER INSERT ON shop.watched DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW EXECUTE FUNCTION shop.later();
	CREATE TABLE shop.strict (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)});
is(outcome('batch', q{BEGIN INSERT INTO shop.watched VALUES (1); RETURN '1'; END}), '1', 'a function that leaves deferred triggers succeeds');
is($node->safe_psql('postgres', q{SELECT string_agg(what || ' ' || who || ' ' || is_super, ', ' ORDER BY what) FROM shop.log WHERE what LIKE 'deferred%'}),
	'deferred trigger 1 batch false, deferred trigger 2 batch false, deferred trigger 3 batch false', 'they run as the owner, also those that follow from them');
like(outcome('batch', q{BEGIN INSERT INTO shop.strict VALUES (1), (1); RETURN '1'; END}), qr/duplicate key/, 'a deferred constraint that is broken fails the step');
is($node->safe_psql('postgres', 'SELECT count(*) FROM shop.strict'), '0', 'and what it wrote is gone');

# in its time, even when the trigger defers what follows
$node->safe_psql('postgres', q{
	SET ROLE batch;
	CREATE TABLE shop.endless (n int);
	CREATE FUNCTION shop.never_ends() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF NEW.n = 2 THEN
			PERFORM pg_sleep(3600);
		END IF;
		SET CONSTRAINTS ALL DEFERRED;
		INSERT INTO shop.endless VALUES (NEW.n + 1);
		RETURN NULL;
	END $$;
	CREATE CONSTRAINT TRIGGER never_ends AFTER INSERT ON shop.endless DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW EXECUTE FUNCTION shop.never_ends()});
($worker) = worker_pids($node, 'function');
foreach my $n (1, 2)
{
	like(outcome('batch', "BEGIN INSERT INTO shop.endless VALUES ($n); RETURN '1'; END", complete_in => '1 s'), qr/in time|timeout/, "a deferred trigger that never ends fails its step when the time is over: $n");
}
is(join(' ', worker_pids($node, 'function')), $worker, 'without the end of its worker');

# functions that share a transaction: each has its constraints deferred, and one that breaks a constraint fails alone
$node->safe_psql('postgres', q{
	SET ROLE batch;
	CREATE TABLE shop.parents (id int PRIMARY KEY);
	CREATE TABLE shop.children (id int REFERENCES shop.parents DEFERRABLE INITIALLY DEFERRED);
	CREATE FUNCTION shop.child_first(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO shop.children VALUES (input::int);
		IF input::int <> 17 THEN
			INSERT INTO shop.parents VALUES (input::int);
		END IF;
		RETURN to_jsonb(pg_current_xact_id()::text);
	END $$;
	SELECT sas.create_workflow('child_first', '{"steps": {"s": {"each": "{{input.ids}}", "function": "shop.child_first", "input": "{{item}}", "retry": {"max_attempts": 1}, "on_failure": "skip", "max_failed": 40}},
		"recovery": {"max_failures": 1}, "output": "{{steps.s.output}}"}');
	SELECT sas.submit('child_first', '{"ids": [101]}', key => 'alone')});
# a worker calls a function alone, until it knows that it is fast
wait_for($node, q{SELECT result FROM sas.runs WHERE key = 'alone'}, 'success');
$node->safe_psql('postgres', q{SET ROLE batch; SELECT sas.submit('child_first', jsonb_build_object('ids', (SELECT jsonb_agg(g) FROM generate_series(1, 40) g)), key => 'family')});
ok(wait_for($node, q{SELECT state FROM sas.runs WHERE key = 'family'}, 'stopped'), 'many functions that defer constraints');
is($node->safe_psql('postgres', 'SELECT count(*), count(*) FILTER (WHERE id = 17) FROM shop.children'), '40|0', 'all of them are done, but for the one that breaks its constraint');
cmp_ok($node->safe_psql('postgres', q{SELECT count(DISTINCT e) FROM sas.runs, jsonb_array_elements(output) e WHERE key = 'family'}), '<', 40, 'some of them in one transaction');

like(
	outcome('batch', q{
		BEGIN
			EXECUTE 'DECLARE c CURSOR WITH HOLD FOR SELECT shop.note(''held cursor'')';
			RETURN '1';
		END}),
	qr/^1$|cursor/, 'a WITH HOLD cursor is dropped or refused');
is($node->safe_psql('postgres', q{SELECT count(*) FROM shop.log WHERE is_super}), '0', 'nothing of all this ran as a superuser');
is($node->safe_psql('postgres', q{SELECT count(*) FROM shop.log WHERE who NOT IN ('batch', 'other')}), '0', 'nor as anybody else');
like(outcome('batch', q{BEGIN COMMIT; RETURN '1'; END}), qr/invalid transaction termination/, 'a function cannot commit the worker\'s transaction');
like(outcome('batch', q{BEGIN ROLLBACK; RETURN '1'; END}), qr/invalid transaction termination/, 'nor roll it back');

# -- what is left -------------------------------------------------------------------

my ($host, $port) = ($node->host, $node->port);
$node->safe_psql('postgres', qq{
	CREATE EXTENSION dblink SCHEMA shop;
	GRANT EXECUTE ON FUNCTION shop.dblink_connect_u(text), shop.dblink_connect_u(text, text) TO batch;
	CREATE TABLE shop.link AS SELECT 'host=$host port=$port dbname=postgres user=postgres application_name=left_open'::text AS link;
	GRANT SELECT ON shop.link TO batch;
	CREATE EXTENSION postgres_fdw;
	CREATE TABLE shop.here (n int);
	CREATE SERVER far FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '$host', port '$port', dbname 'postgres', application_name 'left_open');
	CREATE USER MAPPING FOR batch SERVER far OPTIONS (user 'postgres', password_required 'false');
	CREATE FOREIGN TABLE shop.elsewhere (n int) SERVER far OPTIONS (schema_name 'shop', table_name 'here');
	GRANT SELECT ON shop.elsewhere TO batch});

is(
	outcome('batch', q{
		DECLARE
			link text := (SELECT t.link FROM shop.link t);
		BEGIN
			PERFORM set_config('work_mem', '77MB', false);
			PERFORM set_config('my.secret', 'of batch', false);
			EXECUTE 'SET statement_timeout = 0';
			CREATE TEMP TABLE leftover AS SELECT 1 AS n;
			EXECUTE 'CREATE FUNCTION pg_temp.trap() RETURNS int LANGUAGE sql AS $x$ SELECT 1 $x$';
			EXECUTE 'PREPARE leftover AS SELECT 1';
			PERFORM pg_advisory_lock(4711);
			EXECUTE 'DECLARE leftover CURSOR WITH HOLD FOR SELECT 1';
			BEGIN
				EXECUTE 'LISTEN leftover';
			EXCEPTION WHEN feature_not_supported THEN NULL;	-- a background process cannot
			END;
			CREATE SEQUENCE shop.numbers;
			GRANT USAGE ON SEQUENCE shop.numbers TO other;
			PERFORM nextval('shop.numbers');
			PERFORM setseed(0.4711);
			PERFORM shop.dblink_connect_u('leftover', link), shop.dblink_connect_u(link), count(*) FROM shop.elsewhere;
			RETURN to_jsonb(pg_backend_pid());
		END}) =~ /^\d+$/ ? 'ok' : 'failed',
	'ok', 'an owner leaves all kinds of things in the session');
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE application_name = 'left_open'}), '3', 'connections, too');
my @left = split /\|/, outcome('other', q{
		DECLARE
			last text := 'none';
			first float8 := random();
			foretold float8;
		BEGIN
			PERFORM setseed(0.4711);
			foretold := random();
			BEGIN
				last := currval('shop.numbers');
			EXCEPTION WHEN OTHERS THEN NULL;
			END;
			-- a connection that is closed here ends a moment later at its other side
			FOR n IN 1 .. 200 LOOP
				EXIT WHEN NOT EXISTS (SELECT FROM pg_stat_get_activity(NULL) a WHERE a.application_name = 'left_open');
				PERFORM pg_sleep(0.05), pg_stat_clear_snapshot();
			END LOOP;
			RETURN to_jsonb(concat_ws('|', current_setting('work_mem'), coalesce(nullif(current_setting('my.secret', true), ''), 'none'),
				(SELECT count(*) FROM pg_class WHERE relnamespace = pg_my_temp_schema()), (SELECT count(*) FROM pg_proc WHERE pronamespace = pg_my_temp_schema()),
				(SELECT count(*) FROM pg_prepared_statements), (SELECT count(*) FROM pg_cursors WHERE is_holdable), (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'),
				(SELECT count(*) FROM pg_listening_channels()), last, CASE WHEN first = foretold THEN 'foretold' ELSE 'none' END,
				coalesce(shop.dblink_get_connections()::text, 'none'), (SELECT count(*) FROM pg_stat_get_activity(NULL) a WHERE a.application_name = 'left_open')));
		END});
my @names = ('setting of the server', 'setting of its own', 'temporary table', 'temporary function', 'prepared statement', 'held cursor', 'advisory lock', 'channel', 'sequence value', 'random number', 'connection of dblink', 'connection at all');
my @none = ('4MB', 'none', 0, 0, 0, 0, 0, 0, 'none', 'none', 'none', 0);
is($left[$_], $none[$_], "the next owner finds no $names[$_]") foreach 0 .. $#names;

# -- the same owner ---------------------------------------------------------------

$node->safe_psql('postgres', q{
	SET ROLE batch;
	CREATE FUNCTION shop.collects(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		CREATE TEMP TABLE collected AS SELECT input;
		RETURN to_jsonb((SELECT count(*) FROM collected));
	END $$;
	SELECT sas.create_workflow('collects', '{"steps": {"s": {"function": "shop.collects"}}, "output": "{{steps.s.output}}"}')});
my $ended = q{SELECT count(*) FROM sas.runs WHERE workflow = 'collects' AND state = 'stopped'};
my $collected = q{SELECT DISTINCT coalesce(output #>> '{}', error ->> 'title') FROM sas.runs WHERE workflow = 'collects'};
$node->safe_psql('postgres', q{SET ROLE batch; SELECT sas.submit('collects')}), wait_for($node, $ended, $_) foreach 1 .. 3;
is($node->safe_psql('postgres', $collected), '1', 'a function finds no temporary table that an earlier call of it has left');
$node->safe_psql('postgres', q{SET ROLE batch; SELECT count(*) FROM sas.submit_batch('collects', array_fill('{}'::jsonb, '{20}'))});
wait_for($node, $ended, 23);
is($node->safe_psql('postgres', $collected), '1', 'nor one of a call that is claimed with it');

# -- revoked ------------------------------------------------------------------------

$node->safe_psql('postgres', q{
	CREATE FUNCTION shop.mine(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(1) $$;
	CREATE FUNCTION shop.gone(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(1) $$;
	REVOKE ALL ON FUNCTION shop.mine FROM PUBLIC;
	GRANT EXECUTE ON FUNCTION shop.mine TO batch});
my ($out, $err);
isnt($node->psql('postgres', q{SET ROLE other; SELECT sas.create_workflow('x', '{"steps": {"s": {"function": "shop.mine"}}}')}, stderr => \$err), 0,
	'a function that one may not call is refused at define');
$node->safe_psql('postgres', q{SELECT sas.create_workflow('mine', '{"steps": {"s": {"function": "shop.mine"}}, "on_failure": "fail"}');
	SELECT sas.create_workflow('gone', '{"steps": {"s": {"function": "shop.gone"}}, "on_failure": "fail"}')});
isnt($node->psql('postgres', q{SET ROLE other; SELECT sas.submit('mine')}, stderr => \$err), 0, 'and at submit');
$node->safe_psql('postgres', 'ALTER SYSTEM SET sas.function_workers = 0');
$node->reload;
wait_for($node, q{SELECT count(*) FROM sas.workers WHERE actor = 'function'}, '0');
$node->safe_psql('postgres', q{SET ROLE batch; SELECT run_id FROM sas.submit('mine', key => 'revoked'); SELECT run_id FROM sas.submit('gone', key => 'gone')});
$node->safe_psql('postgres', 'REVOKE EXECUTE ON FUNCTION shop.mine FROM batch; DROP FUNCTION shop.gone');
$node->safe_psql('postgres', 'ALTER SYSTEM RESET sas.function_workers');
$node->reload;
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE key IN ('revoked', 'gone') AND state = 'stopped'}, '2'), 'when the right is taken away between submit and run');
is($node->safe_psql('postgres', q{SELECT result, error ->> 'title' FROM sas.runs WHERE key = 'revoked'}),
	'error|permission denied for function shop.mine(pg_catalog.jsonb)', 'the step fails');
like($node->safe_psql('postgres', q{SELECT result, error ->> 'title' FROM sas.runs WHERE key = 'gone'}), qr/^error\|.*does not exist/, 'so does one whose function is gone');
is($node->safe_psql('postgres', q{SELECT max(attempt) FROM sas.steps JOIN sas.runs r USING (run_id) WHERE r.key IN ('revoked', 'gone')}), '1', 'at once: no retry helps');

# -- revoked while a worker remembers the function -----------------------------------

$node->safe_psql('postgres', q{
	CREATE ROLE crew; GRANT crew TO batch;
	CREATE SCHEMA shut; GRANT USAGE ON SCHEMA shut TO batch;
	CREATE FUNCTION shop.kept(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT input $$;
	CREATE FUNCTION shop.by_crew(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT input $$;
	CREATE FUNCTION shut.within(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT input $$;
	REVOKE ALL ON FUNCTION shop.kept, shop.by_crew FROM PUBLIC;
	GRANT EXECUTE ON FUNCTION shop.kept TO batch; GRANT EXECUTE ON FUNCTION shop.by_crew TO crew;
	SELECT sas.create_workflow(split_part(f, '.', 2), jsonb_build_object('on_failure', 'fail', 'steps', jsonb_build_object('s', jsonb_build_object('function', f))))
	FROM unnest('{shop.kept,shop.by_crew,shut.within}'::text[]) f});
foreach (
	[ 'shop.kept', 'REVOKE EXECUTE ON FUNCTION shop.kept FROM batch', 'the right to call it' ],
	[ 'shop.by_crew', 'REVOKE crew FROM batch', 'the membership that gave it' ],
	[ 'shut.within', 'REVOKE USAGE ON SCHEMA shut FROM batch', 'its schema' ])
{
	my ($function, $revoke, $what) = @$_;
	my $workflow = $function =~ s/.*\.//r;
	my $later = $node->safe_psql('postgres', "SET ROLE batch; SELECT run_id FROM sas.submit('$workflow', start_at => now() + interval '1 day')");

	is($node->safe_psql('postgres', "SET ROLE batch; SELECT run_id FROM sas.submit('$workflow', key => 'first')") =~ /^\d+$/ &&
		wait_for($node, "SELECT result FROM sas.runs WHERE workflow = '$workflow' AND key = 'first'", 'success'), 1, "$function is called");
	$node->safe_psql('postgres', $revoke);
	$node->safe_psql('postgres', "SELECT FROM sas.set_start_at($later, now())");
	ok(wait_for($node, "SELECT result FROM sas.runs WHERE run_id = $later", 'error'), "$what was taken away: a run that was submitted before fails");
	is($node->safe_psql('postgres', "SELECT error ->> 'title' FROM sas.runs WHERE run_id = $later"), "permission denied for function $function(pg_catalog.jsonb)",
		'the worker does not go by what it remembers');
}

# -- advisory locks of several owners in one turn of a worker --------------------------

$node->safe_psql('postgres', q{
	CREATE TABLE shop.foreign_lock (n bigint); GRANT INSERT ON shop.foreign_lock TO batch, other;
	CREATE FUNCTION shop.locks(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	DECLARE
		me bigint := (SELECT r.oid FROM pg_roles r WHERE r.rolname = current_user);
		others bigint := (SELECT count(*) FROM pg_locks l WHERE l.locktype = 'advisory' AND l.pid = pg_backend_pid() AND l.objid <> me);
	BEGIN
		IF others > 0 THEN
			INSERT INTO shop.foreign_lock VALUES (others);
		END IF;
		PERFORM pg_advisory_lock(me);
		RETURN NULL;
	END $$;
	SELECT sas.create_workflow('locks', '{"steps": {"s": {"function": "shop.locks"}}}');
	SELECT sas.create_watcher('locks', '{"function": "shop.locks", "every": "0 s"}')});
$node->safe_psql('postgres', q{SET ROLE other; SELECT FROM sas.watch('locks', 'k')});
ok(wait_for($node, q{SELECT state FROM sas.watches WHERE watcher = 'locks'}, 'processing'), 'an infinite task of one owner keeps an advisory lock, turn by turn');
$node->safe_psql('postgres', q{SET ROLE batch; SELECT FROM sas.submit('locks')}) foreach 1 .. 30;
ok(wait_for($node, q{SELECT count(*) FROM sas.runs WHERE workflow = 'locks' AND result = 'success'}, '30'), 'functions of another one do so beside it');
is($node->safe_psql('postgres', 'SELECT count(*) FROM shop.foreign_lock'), '0', 'none finds a lock of the other owner');
$node->safe_psql('postgres', q{SELECT FROM sas.unwatch('locks', '{k}')});
ok(wait_for($node, q{SELECT state FROM sas.watches WHERE watcher = 'locks'}, 'deleted'), 'the task ends');

# -- an advisory lock that a function keeps ----------------------------------------------

$node->safe_psql('postgres', q{
	CREATE FUNCTION shop.keeps_lock(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_lock(815); RETURN input; END $$;
	SELECT sas.create_workflow('keeps', '{"steps": {"s": {"function": "shop.keeps_lock"}}}');
	SELECT sas.submit('keeps', key => 'keeps')});
ok(wait_for($node, q{SELECT result FROM sas.runs WHERE key = 'keeps'}, 'success'), 'a function takes an advisory lock of the session, and keeps it');
ok(wait_for($node, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}, '0'), 'an idle worker does not');

# -- an operator that comes between -----------------------------------------------------

# The worker has called the function before, and remembers it: only the operator is new.
$node->safe_psql('postgres', q{
	CREATE FUNCTION shop.joined(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN to_jsonb((input ->> 'a') || 1); END $$;
	SET ROLE other;
	CREATE FUNCTION shop.other_join(text, int) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN 'called by ' || current_user; END $$;
	RESET ROLE;
	SELECT sas.create_workflow('joins', '{"steps": {"w": {"wait": {"signal": "go"}}, "s": {"function": "shop.joined", "after": ["w"]}}, "output": "{{steps.s.output}}", "on_failure": "fail"}');
	SELECT sas.submit('joins', '{"a": "x"}', key => 'before'); SELECT sas.submit('joins', '{"a": "x"}', key => 'after');
	SELECT sas.signal_key('joins', 'before', 'go')});
ok(wait_for($node, q{SELECT result || output::text FROM sas.runs WHERE key = 'before'}, 'success"x1"'), 'a worker calls the function of a superuser');
$node->safe_psql('postgres', q{SET ROLE other; CREATE OPERATOR shop.|| (LEFTARG = text, RIGHTARG = int, FUNCTION = shop.other_join)});
$node->safe_psql('postgres', q{SELECT sas.signal_key('joins', 'after', 'go')});
ok(wait_for($node, q{SELECT state FROM sas.runs WHERE key = 'after'}, 'stopped'), 'when others have made an operator that it would find');
like($node->safe_psql('postgres', q{SELECT result, output, error ->> 'title' FROM sas.runs WHERE key = 'after'}),
	qr/^error\|\|function shop.joined\(pg_catalog.jsonb\) finds what others than superusers have created/, 'it is called no more');

# -- a table that is given away while items go to it ----------------------------------------

my ($watch, $epoch) = split /\|/, $node->safe_psql('postgres', q{
	CREATE SCHEMA boxes; GRANT USAGE, CREATE ON SCHEMA boxes TO other;
	CREATE TABLE boxes.box (item jsonb);
	SELECT sas.create_agent('feed', kind => 'external') \g /dev/null
	SELECT sas.create_watcher('box', '{"agent": "feed", "external": {}, "items": {"table": "boxes.box"}}') \g /dev/null
	SELECT sas.watch('box', 'k') \g /dev/null
	SELECT w.watch_id, w.epoch FROM (SELECT sas.register_node('boxer', 10, '{feed}', lease => '1 h', by_connection => false) AS id OFFSET 0) n, sas.claim_watchers(n.id, 1) w});
$node->safe_psql('postgres', qq{SELECT sas.append_items($watch, $epoch, '[1]')});
ok(wait_for($node, 'SELECT count(*) FROM boxes.box', 1), 'items of a superuser come to its table');
$node->safe_psql('postgres', q{
	SET ROLE other;
	CREATE FUNCTION boxes.climb() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN ALTER ROLE other CREATEROLE; RETURN NEW; END $$;
	RESET ROLE;
	ALTER TABLE boxes.box OWNER TO other;
	SET ROLE other;
	CREATE TRIGGER climb BEFORE INSERT ON boxes.box FOR EACH ROW EXECUTE FUNCTION boxes.climb()});
$node->safe_psql('postgres', qq{SELECT sas.append_items($watch, $epoch, '[2]')});
ok(wait_for($node, q{SELECT failures > 0 FROM sas.watches WHERE watcher = 'box'}), 'to a table that was given away they do not come');
like($node->safe_psql('postgres', q{SELECT last_error ->> 'title' FROM sas.watches WHERE watcher = 'box'}),
	qr/^table boxes.box is not owned by a superuser/, 'which the task says');
is($node->safe_psql('postgres', q{SELECT rolcreaterole FROM pg_roles WHERE rolname = 'other'}), 'f', 'and no trigger of its new owner has run');
done_testing();

# SPDX-License-Identifier: PostgreSQL
#
# A release is replaced by the next one (test/upgrade) under load, with runs of
# every kind open: the new library runs the old schema, ALTER EXTENSION UPDATE
# follows, nothing is lost, and there is no way back but a backup.
# Takes about 40 s.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasShop;
use SasTest;
use Test::More;

my $next_path = $ENV{SAS_NEXT} or die 'tools/check makes the next release';
my $node = new_node('main', 'sas.function_workers' => 2);
my $from = $node->safe_psql('postgres', q{SELECT extversion FROM pg_extension WHERE extname = 'sas'});
my ($first, $second) = $from =~ /^(\d+)\.(\d+)\./;
my $to = join '.', $first, $second + 1, 0;
my $shop = start_shop();
define_orders($node, $shop);

sub sql { return $node->safe_psql('postgres', $_[0]) }

sub refused
{
	my ($statement, $pattern, $name) = @_;
	my ($out, $err);
	$node->psql('postgres', $statement, stdout => \$out, stderr => \$err, timeout => 60);
	like($err, $pattern, $name);
	return;
}

sub start_with
{
	my ($path) = @_;
	$node->stop;
	$node->{_install_path} = $path;
	$node->start;
	return;
}

# -- runs of every kind, none of which can end by itself -------------------------

sql(q{
	CREATE ROLE upgrade_op; CREATE ROLE upgrade_stranger;
	SELECT sas.grant_usage('upgrade_op', 'operator');
	ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON FUNCTIONS TO upgrade_stranger;
	CREATE TABLE gate (open boolean);
	CREATE TABLE done (n int);
	CREATE FUNCTION echo(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT $1';
	CREATE FUNCTION fail(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '22023'; END $$;
	CREATE FUNCTION gated(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		WHILE NOT EXISTS (SELECT FROM public.gate) LOOP PERFORM pg_sleep(0.1); END LOOP;
		RETURN '{}';
	END $$;
	CREATE FUNCTION ticks(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ INSERT INTO public.done VALUES (1) RETURNING '{}'::jsonb $$;
	SELECT sas.create_agent('outside', kind => 'external');
	SELECT sas.create_workflow('k_wait', '{"steps": {"a": {"wait": {"signal": "go"}}, "b": {"function": "public.echo", "after": ["a"]}}}');
	SELECT sas.create_workflow('k_task', '{"steps": {"a": {"agent": "outside", "task": {}}}}');
	SELECT sas.create_workflow('k_child', '{"steps": {"a": {"workflow": "k_wait"}}}');
	SELECT sas.create_workflow('k_map', '{"steps": {"a": {"workflow": "k_wait", "each": "{{input.all}}", "concurrency": 2}}}');
	SELECT sas.create_workflow('k_long', '{"steps": {"a": {"function": "public.gated", "complete_in": "10 min"}}, "recovery": {"initial": "100 ms"}}');
	SELECT sas.create_workflow('k_undo', '{"steps": {"a": {"function": "public.echo", "undo": {"function": "public.gated", "complete_in": "10 min"}},
		"b": {"function": "public.fail", "after": ["a"]}}, "recovery": {"initial": "100 ms"}}');
	SELECT sas.create_workflow('k_timer', '{"steps": {"a": {"wait": {"for": "{{input.for}}"}}}}');
	SELECT sas.create_workflow('k_tick', '{"steps": {"a": {"function": "public.ticks"}}}');
	SELECT sas.schedule('ticks', 'every 1 s', 'k_tick');
	SELECT s.run_id FROM sas.submit('k_wait') w, sas.submit('k_task') t, sas.submit('k_child') c, sas.submit('k_map', '{"all": [1, 2, 3]}') m,
		sas.submit('k_long') l, sas.submit('k_undo') u, sas.submit('k_timer', '{"for": "25 s"}') x,
		sas.submit('k_wait', key => 'later', start_at => now() + interval '1 hour') s, sas.submit('k_wait', key => 'paused') p;
	SELECT sas.pause(run_id) FROM sas.runs WHERE key = 'paused'});
my $claim = sql(q{SELECT request_id FROM sas.claim('outside', 'me', lease => '10 min')});
ok(wait_for($node, q{SELECT string_agg(DISTINCT substr(r.workflow, 3), ' ' ORDER BY substr(r.workflow, 3)) FROM sas.steps s JOIN sas.runs r USING (run_id)
		WHERE s.state IN ('running', 'compensating', 'suspended') AND r.workflow NOT IN ('order', 'k_tick')}, 'child long map task timer undo wait'), 'runs of every kind are open');
$_->faults({ unavailable => 0.05, drop_after => 0.05 }) foreach values %$shop;

# the load: orders, until a file says that it is enough
my $enough = PostgreSQL::Test::Utils::tempdir() . '/enough';
my $submitter = fork();
if ($submitter == 0)
{
	my $connection = $node->connstr('postgres');
	foreach my $n (1 .. 2000)
	{
		last if -e $enough;
		# what the restart cut off is submitted again, under its key
		until (system("psql -XqAt -d \"$connection\" -c \"SELECT run_id FROM sas.submit('k_tick', key => 'load $n')\" >/dev/null 2>&1") == 0)
		{
			select(undef, undef, undef, 0.1);
		}
	}
	POSIX::_exit(0);
}
submit_orders($node, 100);

# -- the new package is there, the server is that of before ------------------------

refused("ALTER EXTENSION sas UPDATE TO '$to'", qr/the loaded library "sas" does not support version "\Q$to\E".*HINT:.*restart the server/s,
	'the update is refused as long as the old library is loaded');
ok(wait_for($node, q{SELECT count(DISTINCT actor) FROM sas.workers}, '4'), 'and its workers go on');

# -- the new library, the schema of before -----------------------------------------

start_with($next_path);
is(sql('SHOW sas.known_versions'), "$to $from", 'the new library is loaded, and knows both versions');
is(sql(q{SELECT extversion FROM pg_extension WHERE extname = 'sas'}), $from, 'the schema is that of before');
ok(wait_for($node, q{SELECT count(DISTINCT actor) FROM sas.workers}, '4'), 'every kind of worker runs it');
submit_orders($node, 50, first => 101);
ok(wait_for($node, q{SELECT count(*) >= 20 FROM sas.runs WHERE workflow = 'order' AND state = 'stopped'
		AND key = ANY (ARRAY(SELECT n::text FROM generate_series(101, 150) n))}), 'orders go on');
my $ticks = sql('SELECT count(*) FROM done');
ok(wait_for($node, "SELECT count(*) > $ticks FROM done", 't'), 'so do the schedule and the load');
is(sql(q{SELECT count(sas.signal(run_id, 'go')) FROM sas.runs WHERE workflow = 'k_child'}), '1', 'a child goes on')
	and ok(wait_for($node, q{SELECT result FROM sas.runs WHERE workflow = 'k_child'}, 'success'), 'to its end');

# -- the update, under load ----------------------------------------------------------

my $updated = 0;
foreach (1 .. 20)
{
	last if $updated = $node->psql('postgres', q{SET lock_timeout = '5s'; ALTER EXTENSION sas UPDATE}, timeout => 120) == 0;
}
ok($updated, 'ALTER EXTENSION UPDATE under load');
is(sql(q{SELECT extversion FROM pg_extension WHERE extname = 'sas'}), $to, 'the schema is the new one');
is(sql('SELECT _sas.next_of_library()'), $to, 'a function in C that only the new library has');
is(sql(q{SELECT count(*) FROM sas.transitions WHERE to_state = 'parked'}), '1', 'a state that only the new schema has');
is(sql(q{SELECT DISTINCT sas.noted(run_id) FROM sas.runs}), 'none', 'a column that only the new schema has');
is(sql(q{SELECT has_function_privilege('upgrade_op', 'sas.noted(bigint)', 'EXECUTE'), has_function_privilege('upgrade_stranger', 'sas.noted(bigint)', 'EXECUTE')}),
	't|f', 'who has a level has what is new of it, and nobody else has it');

# -- the same as created anew ----------------------------------------------------------

# What the two have in common is told line by line: kind, name, definition.
my $catalog = q{
	SET search_path = pg_catalog;
	WITH f AS (SELECT p.* FROM pg_proc p WHERE p.pronamespace IN ('sas'::regnamespace, '_sas'::regnamespace)),
	c AS (SELECT c.* FROM pg_class c WHERE c.relnamespace IN ('sas'::regnamespace, '_sas'::regnamespace))
	SELECT line FROM (
		SELECT 'function ' || f.oid::regprocedure || ' ' || md5(pg_get_functiondef(f.oid)) || coalesce(obj_description(f.oid, 'pg_proc'), '') AS line FROM f
		UNION ALL SELECT 'public ' || f.oid::regprocedure FROM f, aclexplode(coalesce(f.proacl, acldefault('f', f.proowner))) a WHERE a.grantee = 0
		UNION ALL SELECT 'view ' || c.oid::regclass || ' ' || md5(pg_get_viewdef(c.oid)) || coalesce(c.reloptions::text, '') || coalesce(obj_description(c.oid, 'pg_class'), '') FROM c WHERE c.relkind = 'v'
		UNION ALL SELECT 'relation ' || c.oid::regclass || ' ' || c.relkind::text || c.relreplident::text || c.relrowsecurity || coalesce(c.reloptions::text, '') FROM c
		UNION ALL SELECT 'column ' || c.oid::regclass || ' ' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod) || a.attnotnull || coalesce(pg_get_expr(d.adbin, d.adrelid), '')
			FROM c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
		UNION ALL SELECT 'constraint ' || o.conrelid::regclass || ' ' || o.conname || ' ' || pg_get_constraintdef(o.oid) FROM pg_constraint o JOIN c ON c.oid = o.conrelid
		UNION ALL SELECT 'index ' || pg_get_indexdef(i.indexrelid) FROM pg_index i JOIN c ON c.oid = i.indrelid
		UNION ALL SELECT 'trigger ' || pg_get_triggerdef(t.oid) || t.tgenabled::text FROM pg_trigger t JOIN c ON c.oid = t.tgrelid WHERE NOT t.tgisinternal
		UNION ALL SELECT 'policy ' || l.polname || ' ' || l.polrelid::regclass || pg_get_expr(l.polqual, l.polrelid) FROM pg_policy l JOIN c ON c.oid = l.polrelid
		UNION ALL SELECT 'member ' || pg_describe_object(d.classid, d.objid, d.objsubid) FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'sas' WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
		UNION ALL SELECT 'dumped ' || u.t::regclass || ' ' || u.w FROM pg_extension e, unnest(e.extconfig, e.extcondition) u(t, w) WHERE e.extname = 'sas'
		UNION ALL SELECT 'transition ' || t FROM _sas.transition t
		UNION ALL SELECT 'privilege ' || p FROM _sas.privilege p) l
	ORDER BY line COLLATE "C"};
$node->safe_psql('postgres', 'CREATE DATABASE anew TEMPLATE template0');
$node->safe_psql('anew', 'CREATE EXTENSION sas');
my (%upgraded, %anew);
$upgraded{$_}++ foreach split /\n/, sql($catalog);
$anew{$_}++ foreach split /\n/, $node->safe_psql('anew', $catalog);
cmp_ok(scalar keys %anew, '>', 1000, 'the catalog is read');
is(join("\n", sort map { "- $_" } grep { !$upgraded{$_} } keys %anew), '', 'what is created anew has nothing that the update leaves out');
is(join("\n", sort map { "+ $_" } grep { !$anew{$_} } keys %upgraded), '', 'and the update leaves nothing behind');
$node->safe_psql('postgres', 'DROP DATABASE anew');

# -- no way back -----------------------------------------------------------------------

refused("ALTER EXTENSION sas UPDATE TO '$from'", qr/no update path.*HINT:  The tables of \Q$to\E cannot be brought back\..*restore a backup/s, 'a downgrade is refused with a hint');
my $log = -s $node->logfile;
start_with(undef);
ok(wait_until(sub { PostgreSQL::Test::Utils::slurp_file($node->logfile, $log) =~ /version "\Q$to\E", which the loaded library does not support.*HINT:[^\n]*restart the server/s }),
	'the old library says that it does not know the new schema');
ok(wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'sas %' AND backend_type <> 'sas launcher'}, '0'), 'and runs nothing');
refused('ALTER EXTENSION sas UPDATE', qr/HINT:  The tables of \Q$to\E cannot be brought back/, 'its own version is a downgrade, too');
start_with($next_path);

# -- everything ends -------------------------------------------------------------------

open my $file, '>', $enough or die $!;
close $file;
waitpid($submitter, 0);
sql(q{
	SELECT sas.unschedule('ticks');
	INSERT INTO gate VALUES (true);
	SELECT sas.resume(run_id) FROM sas.runs WHERE key = 'paused';
	SELECT sas.cancel(run_id) FROM sas.runs WHERE key = 'later'});
is(sql("SELECT sas.complete('$claim', '{}')"), 't', 'the claim of an outside program held all the time');
$_->faults({}) foreach values %$shop;
# the runs of the map begin one after the other; who has ended meanwhile takes no signal
ok(wait_until(sub {
			$node->psql('postgres', q{SELECT sas.signal(s.run_id, 'go') FROM sas.steps s WHERE s.state = 'suspended'});
			return sql(q{SELECT count(*) FROM sas.runs WHERE state <> 'stopped'}) eq '0';
		}), 'every run ends') or diag(sql(q{SELECT run_id, workflow, state FROM sas.runs WHERE state <> 'stopped'}));
is(sql(q{SELECT string_agg(DISTINCT workflow || ' ' || result, ', ' ORDER BY workflow || ' ' || result) FROM sas.runs WHERE workflow LIKE 'k\_%' AND key IS DISTINCT FROM 'later'}),
	'k_child success, k_long success, k_map success, k_task success, k_tick success, k_timer success, k_undo compensated, k_wait success', 'as it should');
is(sql(q{SELECT count(*) FROM sas.runs WHERE workflow = 'k_tick' AND key LIKE 'load %'}), sql(q{SELECT max(substr(key, 6)::int) FROM sas.runs WHERE key LIKE 'load %'}),
	'no submit of the load was lost');
is(sql(q{SELECT count(*) FROM done}), sql(q{SELECT count(*) FROM sas.runs WHERE workflow = 'k_tick'}), 'and each wrote once');
all_ended($node, 'every order ended');
books_equal($node, $shop, 'the books of the services equal the database');
done_testing();

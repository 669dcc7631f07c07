# SPDX-License-Identifier: PostgreSQL
#
# Functions of users in workers see a session of their owner: session_user,
# current_user and is_superuser, whatever calls them. Row policies and definer
# functions that look at session_user see the owner, and nothing gets back to
# the worker's rights from there.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use Test::More;

my $node = new_node('main', 'sas.function_workers' => 2);
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
$sql->(q{
	CREATE ROLE ann;
	CREATE ROLE bob;
	CREATE ROLE chief SUPERUSER;
	CREATE ROLE "Odd 'name" ;
	SELECT sas.grant_usage(r::regrole, 'user') FROM unnest('{ann,bob,chief,"\"Odd ''name\""}'::text[]) r;
	CREATE SCHEMA app;
	GRANT USAGE, CREATE ON SCHEMA app TO PUBLIC;
	CREATE TABLE app.seen (what text, whole text, pid int DEFAULT pg_backend_pid());
	GRANT ALL ON app.seen TO PUBLIC;
	CREATE FUNCTION app.who() RETURNS text LANGUAGE sql AS $$
		SELECT format('%s %s %s %s', session_user, current_user, current_setting('is_superuser'), current_setting('session_authorization')) $$;
	CREATE FUNCTION app.note(what text) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO app.seen VALUES (what, app.who());
	END $$;
	CREATE FUNCTION app.step(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM app.note(coalesce(input ->> 'what', 'step'));
		RETURN to_jsonb(app.who());
	END $$;
	CREATE FUNCTION app.undo(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT app.note('undo'); SELECT '{}'::jsonb $$;
	CREATE FUNCTION app.fail(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;
	CREATE FUNCTION app.finalize(c jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT app.note('finalize'); SELECT '{}'::jsonb $$;
	CREATE FUNCTION app.hook(c jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT app.note('hook'); SELECT '{}'::jsonb $$;
	CREATE FUNCTION app.plan(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM app.note('plan ' || coalesce(input ->> 'what', ''));
		RETURN '{"steps": {"s": {"function": "app.step", "input": {"what": "step of a plan"}}}}';
	END $$;
	CREATE FUNCTION app.outside(c jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM app.note('middleware');
		RETURN NULL;
	END $$;
	CREATE FUNCTION app.turn(turn jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT app.note('turn'); SELECT NULL::jsonb $$;
	CREATE FUNCTION app.items(items jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT app.note('items'); SELECT NULL::jsonb $$;
	CREATE FUNCTION app.at_row() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM app.note(TG_ARGV[0]);
		RETURN NEW;
	END $$;
	SELECT sas.create_middleware('around', 'function', 'app.outside(jsonb)', 'app.outside(jsonb)');
	SELECT sas.create_workflow('child', '{"plan": "app.plan", "steps": {}}');
	SELECT sas.create_workflow('whole', '{"steps": {
		"s": {"function": "app.step"},
		"c": {"workflow": "child", "input": {"what": "of a child"}}},
		"finalize": "app.finalize", "hooks": [{"on": "success", "function": "app.hook"}], "output": {"o": "{{steps.s.output}}"}}');
	SELECT sas.create_workflow('undone', '{"steps": {
		"s": {"function": "app.step", "undo": {"function": "app.undo"}},
		"t": {"function": "app.fail", "after": ["s"]}}}')});

sub submit_as
{
	my ($role, $workflow) = @_;
	$role =~ s/"/""/g;
	my ($id) = $sql->(qq{SET ROLE "$role"; SELECT 'run ' || run_id FROM sas.submit('$workflow')}) =~ /^run (\d+)$/m;
	ok(wait_for($node, "SELECT state FROM sas.runs WHERE run_id = $id", 'stopped'), "a run of $workflow of $role ends");
	return $id;
}

# all that was noted, other than what the session of that role shows; of middleware, that of who created it
sub is_session_of
{
	my ($role, $super, $what, $claim) = @_;
	(my $quoted = $role) =~ s/'/''/g;
	ok(wait_for($node, "SELECT count(DISTINCT what) FROM app.seen WHERE what = ANY ('{$what}')", scalar(split /,/, $what)), "$claim: all of them are called: $what");
	is($sql->(qq{SELECT string_agg(DISTINCT what || ': ' || whole, ', ') FROM app.seen
		WHERE whole <> CASE what WHEN 'middleware' THEN 'postgres postgres on postgres' ELSE '$quoted $quoted $super $quoted' END}), '', $claim);
	$sql->('TRUNCATE app.seen');
	return;
}

# -- whatever calls them ----------------------------------------------------------------------------

my @whole = ('ann', 'bob', "Odd 'name");
foreach my $role (@whole)
{
	submit_as($role, 'whole');
	is_session_of($role, 'off', 'step,finalize,hook,plan of a child,step of a plan,middleware', "functions of a run of $role");
	submit_as($role, 'undone');
	is_session_of($role, 'off', 'step,undo,middleware', "undo of $role");
}
# a superuser's own session shows that, and so does its function
submit_as('chief', 'whole');
is_session_of('chief', 'on', 'step,finalize,hook,plan of a child,step of a plan,middleware', 'functions of a superuser');
submit_as('ann', 'whole');
is_session_of('ann', 'off', 'step,finalize,hook,plan of a child,step of a plan,middleware', 'functions of a run after those of a superuser');

# -- schedules and infinite tasks ----------------------------------------------------------------------

$sql->(q{SELECT sas.create_agent('teller', kind => 'external'); SELECT sas.grant_agent('teller', 'ann')});
$sql->(q{
	SET ROLE ann;
	CREATE TABLE app.target (id bigint GENERATED ALWAYS AS IDENTITY, item jsonb);
	CREATE TRIGGER first BEFORE INSERT ON app.target FOR EACH ROW EXECUTE FUNCTION app.at_row('row');
	CREATE CONSTRAINT TRIGGER later AFTER INSERT ON app.target DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION app.at_row('deferred');
	SELECT sas.schedule('planned', 'every 1 s', 'child', '{"what": "of a schedule"}');
	SELECT sas.create_watcher('turns', '{"function": "app.turn", "every": "100 ms"}');
	SELECT sas.watch('turns', 'a');
	SELECT sas.create_watcher('to_' || w, jsonb_build_object('agent', 'teller', 'external', '{}'::jsonb, 'items', jsonb_build_object(w, target)))
	FROM (VALUES ('function', 'app.items'), ('table', 'app.target'), ('workflow', 'child')) v (w, target);
	SELECT sas.watch('to_' || w, 'a') FROM unnest('{function,table,workflow}'::text[]) w});
$sql->(q{SELECT sas.append_items(c.watch_id, c.epoch, '[{"what": "of an item"}]') FROM sas.register_node('n', 10, '{teller}') n, sas.claim_watchers(n, 10) c});
is_session_of('ann', 'off', 'turn,plan of a schedule,plan of an item,step of a plan,items,row,deferred', 'functions of schedules, watchers and targets');
$sql->(q{SET ROLE ann; SELECT sas.unschedule('planned'); SELECT FROM sas.unwatch('turns', '{a}')});

# -- who looks at the session ---------------------------------------------------------------------------

my $names = 0;

# what one step that runs this body as that role returns, or its error
sub outcome
{
	my ($role, $body, $attributes) = @_;
	my $name = 'f' . ++$names;
	$attributes //= '';
	my $id = $sql->(qq{
		SET ROLE $role;
		CREATE FUNCTION app.$name(input jsonb) RETURNS jsonb LANGUAGE plpgsql $attributes AS \$f\$ $body \$f\$;
		SELECT sas.create_workflow('$name', '{"steps": {"s": {"function": "app.$name", "retry": {"max_attempts": 1}}}, "on_failure": "fail",
			"recovery": {"max_failures": 1}, "output": {"o": "{{steps.s.output}}"}}') IS NULL;
		SELECT 'run ' || run_id FROM sas.submit('$name')}) =~ /^run (\d+)$/m ? $1 : die;
	wait_for($node, "SELECT state FROM sas.runs WHERE run_id = $id", 'stopped') or return 'never ended';
	return $sql->("SELECT coalesce(error ->> 'title', output ->> 'o', '') FROM sas.runs WHERE run_id = $id");
}

$sql->(q{
	CREATE TABLE app.account (holder text, amount int);
	INSERT INTO app.account VALUES ('ann', 1), ('bob', 2), ('postgres', 1000);
	ALTER TABLE app.account ENABLE ROW LEVEL SECURITY;
	CREATE POLICY own ON app.account USING (holder = session_user OR session_user = 'postgres');
	GRANT SELECT ON app.account TO PUBLIC;
	CREATE FUNCTION app.vault() RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
	BEGIN
		IF session_user = 'postgres' OR current_setting('is_superuser')::boolean THEN
			RETURN 'open';
		END IF;
		RETURN 'closed to ' || session_user;
	END $$});
is(outcome('ann', 'BEGIN RETURN to_jsonb((SELECT sum(amount) FROM app.account)); END'), '1', 'a row policy that looks at session_user sees the owner');
is(outcome('ann', 'BEGIN RETURN to_jsonb(app.vault()); END'), 'closed to ann', 'and so does a definer function');
is(outcome('ann', q{DECLARE r text; BEGIN
		PERFORM set_config(CASE WHEN current_setting('server_version_num')::int >= 160000 THEN 'debug_parallel_query' ELSE 'force_parallel_mode' END, 'on', true),
			set_config('max_parallel_workers_per_gather', '2', true);
		SELECT format('%s %s %s', session_user, current_user, current_setting('is_superuser')) INTO r FROM pg_class LIMIT 1;
		RETURN to_jsonb(r); END}), 'ann ann off', 'and a parallel query');
is(outcome('ann', 'BEGIN PERFORM app.note($$fails$$); RAISE $$%$$, app.who(); END'), 'ann ann off ann', 'a function that fails runs so, too');
is(outcome('bob', 'BEGIN RETURN to_jsonb(app.who()); END'), 'bob bob off bob', 'the next one as its own owner');

# -- no way back --------------------------------------------------------------------------------------------

my @climbs = ('RESET SESSION AUTHORIZATION', 'SET SESSION AUTHORIZATION DEFAULT', 'SET LOCAL SESSION AUTHORIZATION DEFAULT', 'SET SESSION AUTHORIZATION postgres',
	'SET ROLE NONE', 'SET ROLE postgres', 'RESET ROLE', 'RESET session_authorization', 'RESET ALL', 'SET is_superuser = on',
	'SELECT set_config($q$session_authorization$q$, NULL, true)', 'SELECT set_config($q$is_superuser$q$, $q$on$q$, false)',
	'UPDATE pg_settings SET setting = $q$postgres$q$ WHERE name = $q$session_authorization$q$');
foreach my $try (@climbs)
{
	is( outcome('ann', qq{
			BEGIN
				BEGIN
					EXECUTE \$x\$$try\$x\$;
				EXCEPTION WHEN OTHERS THEN
					NULL;
				END;
				RETURN to_jsonb(app.who());
			END}),
		'ann ann off ann', "$try does not climb");
}
foreach my $attribute (q{SET session_authorization = 'postgres'}, q{SET role = 'postgres'})
{
	my $answer = eval { outcome('ann', 'BEGIN RETURN to_jsonb(app.who()); END', $attribute) } // 'refused';
	like($answer, qr/^ann ann off ann$|^refused$|permission denied|cannot set parameter/, "nor does a function's own $attribute");
}
# what a definer function of a superuser does within
$sql->(q{
	CREATE FUNCTION app.definer() RETURNS text LANGUAGE plpgsql SECURITY DEFINER AS $$
	BEGIN
		BEGIN
			SET SESSION AUTHORIZATION DEFAULT;
		EXCEPTION WHEN OTHERS THEN
			RETURN app.who();
		END;
		RETURN 'climbed to ' || app.who();
	END $$});
is(outcome('ann', 'BEGIN RETURN to_jsonb(app.definer()); END'), 'ann postgres off ann', 'a definer function of a superuser does not change the session either');
$sql->(q{SET ROLE ann; CREATE TABLE app.late (n int);
	CREATE FUNCTION app.climb_late() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		BEGIN
			RESET SESSION AUTHORIZATION;
		EXCEPTION WHEN OTHERS THEN
			NULL;
		END;
		PERFORM app.note('late ' || NEW.n);
		IF NEW.n < 3 THEN
			INSERT INTO app.late VALUES (NEW.n + 1);
		END IF;
		RETURN NULL;
	END $$;
	CREATE CONSTRAINT TRIGGER late AFTER INSERT ON app.late DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION app.climb_late();
	TRUNCATE app.seen});
is(outcome('ann', 'BEGIN INSERT INTO app.late VALUES (1); RETURN to_jsonb(app.who()); END'), 'ann ann off ann', 'a function leaves triggers for later');
is_session_of('ann', 'off', 'late 1,late 2,late 3', 'they do not climb either');

# -- the worker is what it was -------------------------------------------------------------------------------

is($sql->(q{SELECT count(*) FROM sas.steps WHERE state NOT IN ('succeeded', 'failed', 'skipped', 'compensated', 'cancelled')}), '0', 'nothing hangs');
is($sql->(q{SELECT count(*) FROM sas.alerts WHERE kind = 'stuck'}), '0', 'no work of the workers themselves was refused');
done_testing();

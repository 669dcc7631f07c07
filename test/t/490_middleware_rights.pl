# SPDX-License-Identifier: PostgreSQL
#
# Middleware in function workers runs in a session of the role that created
# it, also where it is in one transaction with the function of a run. Neither
# side leaves something in that transaction that the other runs.
# Long: only make check-long runs it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use Test::More;

my $node = new_node('main', 'sas.function_workers' => 1);
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
$sql->(q{
	CREATE ROLE ann;
	CREATE ROLE chief;
	CREATE ROLE deputy;
	SELECT sas.grant_usage('ann', 'user'), sas.grant_usage('chief', 'admin'), sas.grant_usage('deputy', 'admin');
	CREATE SCHEMA app;
	GRANT USAGE, CREATE ON SCHEMA app TO PUBLIC;
	CREATE TABLE app.seen (n serial, what text, whole text, tx xid8 DEFAULT pg_current_xact_id());
	GRANT ALL ON app.seen, app.seen_n_seq TO PUBLIC;
	CREATE FUNCTION app.note(what text) RETURNS void LANGUAGE sql AS $$
		INSERT INTO app.seen (what, whole) VALUES (what, format('%s %s %s', session_user, current_user, current_setting('is_superuser'))) $$;
	-- what belongs to ann, and to chief, alone
	SET ROLE ann;
	CREATE TABLE app.anns (secret text);
	INSERT INTO app.anns VALUES ('of ann');
	SET ROLE chief;
	CREATE TABLE app.chiefs (secret text);
	INSERT INTO app.chiefs VALUES ('of chief');
	RESET ROLE});
my $names = 0;

# a function jsonb -> jsonb of that role; its name
sub function
{
	my ($role, $body) = @_;
	my $name = 'app.f' . ++$names;
	$sql->(qq{SET ROLE $role; CREATE FUNCTION $name(c jsonb) RETURNS jsonb LANGUAGE plpgsql AS \$f\$ $body \$f\$});
	return $name;
}

sub middleware
{
	my ($role, $name, $phase, %bodies) = @_;
	my %functions = map { $_ => function($role, $bodies{$_}) } keys %bodies;
	$sql->("SET ROLE $role; SELECT sas.create_middleware('$name', '$phase', " . join(', ', map { "$_ => '$functions{$_}(jsonb)'" } sort keys %functions) . ')');
	return;
}

# how one step of ann that runs this body ends: its output, or its error
sub outcome
{
	my ($body, %option) = @_;
	my $role = $option{role} // 'ann';
	my $f = function($role, $body);
	my $name = 'w' . $names;
	my $id = $sql->(qq{SET ROLE $role;
		SELECT sas.create_workflow('$name', '{"steps": {"s": {"function": "$f", "retry": {"max_attempts": 1}}}, "on_failure": "fail",
			"recovery": {"max_failures": 1}, "output": {"o": "{{steps.s.output}}"}}') IS NULL;
		SELECT 'run ' || run_id FROM sas.submit('$name')}) =~ /^run (\d+)$/m ? $1 : die;
	wait_for($node, "SELECT state FROM sas.runs WHERE run_id = $id", 'stopped') or return 'never ended';
	return $sql->("SELECT coalesce(error ->> 'title', output ->> 'o', '') FROM sas.runs WHERE run_id = $id");
}

sub seen
{
	my $seen = $sql->(q{SELECT string_agg(what || ': ' || whole, ', ' ORDER BY n) || '; ' || count(DISTINCT tx) FROM app.seen});
	$sql->('TRUNCATE app.seen');
	return $seen;
}

# -- as whom ------------------------------------------------------------------------------------------

middleware('chief', 'outer', 'function', before => q{BEGIN PERFORM app.note('outer before'); RETURN NULL; END}, after => q{BEGIN PERFORM app.note('outer after'); RETURN NULL; END});
middleware('deputy', 'inner', 'function', before => q{BEGIN PERFORM app.note('inner before'); RETURN NULL; END}, after => q{BEGIN PERFORM app.note('inner after'); RETURN NULL; END});
is(outcome(q{BEGIN PERFORM app.note('step'); RETURN '1'; END}), '1', 'a step with middleware of two roles around it');
is(seen(), 'outer before: chief chief off, inner before: deputy deputy off, step: ann ann off, inner after: deputy deputy off, outer after: chief chief off; 1',
	'each has a session of its role, and all are one transaction');
$sql->(q{SELECT sas.drop_middleware('inner')});

# -- rights: none of one for the other -------------------------------------------------------------------

middleware('chief', 'outer', 'function', before => q{BEGIN RETURN jsonb_build_object('request', jsonb_build_object('got', (SELECT secret FROM app.anns))); END});
like(outcome(q{BEGIN RETURN '1'; END}), qr/permission denied for table anns/, 'middleware of an admin reads no table of who submitted');
middleware('chief', 'outer', 'function', before => q{BEGIN RETURN jsonb_build_object('request', jsonb_build_object('got', (SELECT secret FROM app.chiefs))); END});
is(outcome(q{BEGIN RETURN c -> 'got'; END}), 'of chief', 'it reads its own, and hands over what it wants to');
like(outcome(q{BEGIN RETURN to_jsonb((SELECT secret FROM app.chiefs)); END}), qr/permission denied for table chiefs/, 'of which the function inside reads nothing');
foreach my $try ('SET ROLE ann', 'RESET ROLE', 'RESET SESSION AUTHORIZATION', 'SET SESSION AUTHORIZATION ann')
{
	middleware('chief', 'outer', 'function', before => qq{
		DECLARE
			met text := 'nothing';
		BEGIN
			BEGIN
				EXECUTE '$try';
			EXCEPTION WHEN OTHERS THEN
				met := SQLSTATE;
			END;
			RETURN jsonb_build_object('request', format('%s %s %s', met, session_user, current_user));
		END});
	is(outcome(q{BEGIN RETURN c; END}), '42501 chief chief', "$try is refused");
}

# -- what a before leaves for the function of the run ---------------------------------------------------------

my %left = (
	'temporary table' => q{CREATE TEMP TABLE trap AS SELECT 1},
	'prepared statement' => q{PREPARE trap AS SELECT 1},
	'held cursor' => q{DECLARE trap CURSOR WITH HOLD FOR SELECT 1});
foreach my $what (sort keys %left)
{
	middleware('chief', 'outer', 'function', before => "BEGIN EXECUTE '$left{$what}'; RETURN NULL; END");
	like(outcome(q{BEGIN RETURN '1'; END}), qr/within security-restricted operation/, "a before makes no $what for the function of another role");
}
middleware('chief', 'outer', 'function', before => q{BEGIN PERFORM lo_open(lo_from_bytea(0, 'of chief'), 393216); RETURN NULL; END});
is(outcome(q{BEGIN RETURN to_jsonb(encode(loread(0, 10), 'escape')); END}), 'invalid large-object descriptor: 0', 'a before leaves no large object open');
$sql->(q{
	SET ROLE chief;
	CREATE TABLE app.trapped (n int);
	GRANT INSERT ON app.trapped TO PUBLIC;
	CREATE FUNCTION app.spring() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM app.note('deferred'); RETURN NULL; END $$;
	CREATE CONSTRAINT TRIGGER trap AFTER INSERT ON app.trapped DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION app.spring()});
middleware('chief', 'outer', 'function', before => q{BEGIN INSERT INTO app.trapped VALUES (1); RETURN NULL; END});
like(outcome(q{BEGIN RETURN '1'; END}), qr/cannot fire deferred trigger within security-restricted operation/, 'nor does it leave a deferred trigger');
middleware('chief', 'outer', 'function', before => q{BEGIN PERFORM set_config('app.tenant', 'blue', true); RETURN NULL; END},
	after => q{BEGIN RETURN jsonb_build_object('response', concat_ws(' ', c ->> 'response', current_setting('app.tenant'))); END});
is(outcome(q{BEGIN RETURN to_jsonb(current_setting('app.tenant')); END}), 'blue blue', 'what it sets holds inside');
is(outcome(q{BEGIN PERFORM set_config('app.tenant', 'red', true); RETURN to_jsonb(current_setting('app.tenant')); END}), 'red blue', 'what is set inside does not hold for its after');

# -- what the function leaves for an after ---------------------------------------------------------------------

my $look = q{BEGIN RETURN jsonb_build_object('response', concat_ws(' ', to_regclass('pg_temp.trap'), (SELECT count(*) FROM pg_class WHERE relnamespace = pg_my_temp_schema()),
	(SELECT count(*) FROM pg_proc WHERE pronamespace = pg_my_temp_schema()), (SELECT count(*) FROM pg_prepared_statements), (SELECT count(*) FROM pg_cursors WHERE name = 'trap'), current_setting('work_mem'))); END};
middleware('chief', 'outer', 'function', after => $look);
is(outcome(q{
	BEGIN
		CREATE TEMP TABLE trap AS SELECT 1 AS n;
		EXECUTE 'CREATE FUNCTION pg_temp.trap() RETURNS int LANGUAGE sql AS $x$ SELECT 1 $x$';
		EXECUTE 'PREPARE trap AS SELECT 1';
		EXECUTE 'DECLARE trap CURSOR WITH HOLD FOR SELECT 1';
		PERFORM set_config('work_mem', '77MB', false);
		RETURN '1';
	END}), '0 0 0 0 4MB', 'an after of another role finds no temporary object, prepared statement, cursor or setting of the function');
middleware('chief', 'outer', 'function', after => q{
	BEGIN
		RETURN jsonb_build_object('response', encode(loread(0, 10), 'escape'));
	EXCEPTION WHEN OTHERS THEN
		RETURN jsonb_build_object('response', SQLERRM);
	END});
is(outcome(q{BEGIN PERFORM lo_open(lo_from_bytea(0, 'of ann'), 393216); RETURN '1'; END}), 'invalid large-object descriptor: 0', 'nor a large object that it has opened');
$sql->(q{
	SET ROLE ann;
	CREATE TABLE app.late (n int);
	CREATE CONSTRAINT TRIGGER late AFTER INSERT ON app.late DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION app.spring()});
middleware('chief', 'outer', 'function', after => q{BEGIN SET CONSTRAINTS ALL IMMEDIATE; PERFORM app.note('after'); RETURN NULL; END});
is(outcome(q{BEGIN INSERT INTO app.late VALUES (1); RETURN '1'; END}), '1', 'a function that leaves a deferred trigger');
is(seen(), 'deferred: ann ann off, after: chief chief off; 1', 'has it fired as its owner, before the after');
# a trigger that defers another one, which would be left for the after
$sql->(q{
	SET ROLE ann;
	CREATE TABLE app.later (n int);
	CREATE FUNCTION app.defers_again() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM app.note('trigger ' || NEW.n);
		SET CONSTRAINTS ALL DEFERRED;
		IF NEW.n < 3 THEN
			INSERT INTO app.later VALUES (NEW.n + 1);
		END IF;
		RETURN NULL;
	END $$;
	CREATE CONSTRAINT TRIGGER later AFTER INSERT ON app.later DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION app.defers_again()});
is(outcome(q{BEGIN INSERT INTO app.later VALUES (1); RETURN '1'; END}), '1', 'a function that leaves a trigger which defers another one');
is(seen(), 'trigger 1: ann ann off, trigger 2: ann ann off, trigger 3: ann ann off, after: chief chief off; 1', 'has all of them fired as its owner, before the after');

# -- connections: neither side speaks through one of the other ---------------------------------------------------

my $link = 'host=' . $node->host . ' port=' . $node->port . ' dbname=postgres user=postgres';
$sql->(q{CREATE EXTENSION dblink SCHEMA app; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA app TO PUBLIC});
my $open = qq{PERFORM app.dblink_connect_u('left', '$link'), app.dblink_connect_u('$link')};
my $found = q{coalesce(app.dblink_get_connections()::text, 'none')};
middleware('chief', 'outer', 'function', before => "BEGIN $open; RETURN NULL; END");
is(outcome("BEGIN RETURN to_jsonb($found); END"), 'none', 'a function finds no connection of dblink that a before of another role opened');
middleware('chief', 'outer', 'function', after => "BEGIN RETURN jsonb_build_object('response', $found); END");
is(outcome("BEGIN $open; RETURN '1'; END"), 'none', 'nor does an after find one of the function');

# -- a middleware of the run's own owner shares what it likes ---------------------------------------------------

middleware('chief', 'outer', 'function', before => q{BEGIN DROP TABLE IF EXISTS pg_temp.shared; CREATE TEMP TABLE shared AS SELECT 7 AS n; RETURN NULL; END},
	after => q{BEGIN RETURN jsonb_build_object('response', (SELECT n FROM pg_temp.shared)); END});
is(outcome(q{BEGIN UPDATE pg_temp.shared SET n = 8; RETURN '1'; END}, role => 'chief'), '8', 'in a run of the same role all of them share a temporary table');
middleware('deputy', 'inner', 'function', before => $look =~ s/response/request/r);
is(outcome(q{BEGIN RETURN c; END}, role => 'chief'), 'relation "pg_temp.shared" does not exist', 'but not with a middleware of another role between them');
$sql->(q{SELECT sas.drop_middleware('inner')});

# -- superusers, and roles that are gone --------------------------------------------------------------------------

middleware('chief', 'outer', 'function', before => q{BEGIN PERFORM app.note('before'); RETURN NULL; END});
$sql->(q{CREATE FUNCTION app.plain(c jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT c $$; SELECT sas.create_workflow('plain', '{"steps": {"s": {"function": "app.plain"}}, "on_failure": "fail"}')});
$sql->(q{SELECT sas.submit('plain', key => 'super')});
ok(wait_for($node, q{SELECT result FROM sas.runs WHERE key = 'super'}, 'success'), 'middleware of an admin stops no run of a superuser');
is($sql->('SELECT count(*) FROM app.seen'), '0', 'which calls nothing of it');
$sql->(q{SELECT sas.create_middleware('outer', 'function', 'app.plain(jsonb)'); SELECT sas.drop_middleware('outer')});
is($sql->(q{SELECT count(*) FROM sas.alerts WHERE kind = 'stuck'}), '0', 'no work of the workers themselves was refused');

# -- an admin that is one no more ---------------------------------------------------------------------------------

middleware('deputy', 'stays', 'function', before => q{BEGIN PERFORM app.note('stays'); RETURN NULL; END});
my $alerted = function('deputy', q{BEGIN PERFORM app.note('alerted'); RETURN NULL; END});
$sql->("SET ROLE deputy; SELECT sas.set_alert_hook('$alerted(jsonb)')");
my $alert = sub { $sql->("SELECT _sas.raise_alert('stuck', 'test $_[0]', 'a test')"); return };
$sql->('TRUNCATE app.seen');
is(outcome(q{BEGIN RETURN '1'; END}), '1', 'a run has middleware of an admin around it');
$alert->('before');
ok(wait_for($node, q{SELECT string_agg(what, ' ' ORDER BY what) FROM app.seen}, 'alerted stays stays'), 'which is called, and so is the hook of alerts, with the same around it');
$sql->('TRUNCATE app.seen');
my $opened = function('ann', q{BEGIN PERFORM app.note('open'); RETURN '1'; END});
$sql->(qq{SET ROLE ann;
	SELECT sas.create_workflow('open', '{"steps": {"w": {"wait": {"signal": "go"}}, "s": {"function": "$opened", "after": ["w"], "retry": {"max_attempts": 1},
		"recovery": {"max_failures": 10000, "initial": "50 ms", "max": "50 ms"}}}}');
	SELECT sas.submit('open', key => 'open')});
middleware('deputy', 'around_calls', 'call', after => q{BEGIN RETURN NULL; END});
$sql->(q{SELECT sas.create_agent('nowhere', 'http://127.0.0.1:1'), sas.grant_agent('nowhere', 'ann');
	SET ROLE ann;
	SELECT sas.create_workflow('calls', '{"steps": {"w": {"wait": {"signal": "go"}}, "s": {"agent": "nowhere", "call": {"path": "/"}, "after": ["w"], "retry": {"max_attempts": 1},
		"recovery": {"max_failures": 10000, "initial": "50 ms", "max": "50 ms"}}}}');
	SELECT sas.submit('calls', key => 'calls')});
my $told = sub { my ($by) = @_; my $err = ''; $node->psql('postgres', $by, stderr => \$err); return $err };
is($told->(q{SELECT sas.revoke_usage('chief', 'admin')}), '', 'an admin that leaves nothing loses its level in silence');
$sql->(q{SELECT sas.grant_usage('deputy', 'user')});
is($told->(q{SELECT sas.revoke_usage('deputy', 'user')}), '', 'and so does a role that is still an admin');
like($told->(q{SELECT sas.revoke_usage('deputy', 'admin')}), qr/WARNING:  functions of role "deputy" are no longer called around the work of others.*DETAIL:  middleware "around_calls", middleware "stays", the hook of alerts\./s,
	'middleware and alert hook of a former admin are named when its level is revoked');
$alert->('after');
$sql->(q{SELECT sas.grant_usage('deputy', 'user')});
my $stays = q{the role that created middleware "stays" is no admin any more};
$sql->(q{SELECT sas.signal_key('calls', 'calls', 'go')});
ok(wait_for($node, q{SELECT count(*) > 1 FROM sas.attempts a JOIN sas.runs r USING (run_id) WHERE r.key = 'calls' AND a.step = 's'}, 't'), 'a call that such middleware comes after is tried again and again');
like($sql->(q{SELECT DISTINCT a.error ->> 'title' FROM sas.attempts a JOIN sas.runs r USING (run_id) WHERE r.key = 'calls' AND a.step = 's'}), qr/^the role that created middleware "around_calls" is no admin any more$/, 'and not made');
$sql->(q{SELECT sas.cancel(run_id) FROM sas.runs WHERE key = 'calls'; SELECT sas.drop_middleware('around_calls')});
like($told->(q{SET ROLE ann; SELECT sas.submit('open')}), qr/ERROR:  $stays.*HINT:  An admin can create it again, or drop it/s, 'a submit of another role is refused: what may be a rule is not passed by');
$sql->(q{SELECT sas.signal_key('open', 'open', 'go')});
ok(wait_for($node, q{SELECT count(*) > 1 FROM sas.attempts a JOIN sas.runs r USING (run_id) WHERE r.key = 'open' AND a.step = 's'}, 't'), 'an open run tries again and again');
is($sql->(q{SELECT DISTINCT a.error ->> 'title' FROM sas.attempts a JOIN sas.runs r USING (run_id) WHERE r.key = 'open' AND a.step = 's'}), $stays, 'and says why it does not go on');
is(outcome(q{BEGIN PERFORM app.note('of itself'); RETURN '1'; END}, role => 'deputy'), '1', 'and one of the former admin');
is(seen(), 'stays: deputy deputy off, of itself: deputy deputy off; 1', 'it is around its own runs only');
is($sql->(q{SELECT count(*) FROM sas.alerts WHERE kind = 'stuck' AND message = 'a test'}), 2, 'there was an alert');
ok(wait_for($node, q{SELECT count(*) FROM _sas.message WHERE kind = 'alert_hook'}, 0), 'which the supervisor has seen');
is($sql->(q{SELECT count(*) FROM _sas.run WHERE hook_of = 0}), 1, 'and its hook was not told');
$sql->(q{SELECT sas.grant_usage('deputy', 'admin')});
ok(wait_for($node, q{SELECT result FROM sas.runs WHERE key = 'open'}, 'success'), 'when it is an admin again, the open run goes on');
is(seen(), 'stays: deputy deputy off, open: ann ann off; 1', 'with the middleware around it');
is(outcome(q{BEGIN RETURN '1'; END}), '1', 'and all is as it was');
$sql->(q{SELECT sas.revoke_usage('deputy', 'admin'); SELECT sas.drop_middleware('stays')});
is(outcome(q{BEGIN RETURN '1'; END}), '1', 'nothing is asked for any more when an admin has dropped it');
done_testing();

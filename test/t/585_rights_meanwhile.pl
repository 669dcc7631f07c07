# SPDX-License-Identifier: PostgreSQL
#
# A run is submitted, and before it goes on its role is another one: it has lost
# a right, a level or its login, has a new name or settings, is a superuser, or
# is gone. The submit may stand in a prepared transaction meanwhile, which lasts
# for days, and which somebody else commits.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use Test::More;

my $node = new_node('main', max_prepared_transactions => 20);
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
$sql->(q{
	CREATE ROLE eve;
	CREATE ROLE crew;
	SELECT sas.grant_usage('eve', 'user');
	SELECT sas.create_agent('shop', 'http://127.0.0.1:1'), sas.grant_agent('shop', 'crew'), sas.grant_agent('shop', 'eve');
	CREATE SCHEMA app AUTHORIZATION eve;
	GRANT USAGE ON SCHEMA app TO PUBLIC;
	CREATE TABLE app.seen (what text, who text, super text DEFAULT current_setting('is_superuser'), path text DEFAULT current_setting('search_path'));
	GRANT ALL ON app.seen TO PUBLIC;
	SET SESSION AUTHORIZATION eve;
	CREATE FUNCTION app.note(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO app.seen VALUES (coalesce(input ->> 'what', 'finalize'), session_user || ' ' || current_user);
		RETURN '{}';
	END $$;
	CREATE FUNCTION app.plan(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM app.note('{"what": "plan"}');
		RETURN '{"steps": {}}';
	END $$;
	REVOKE ALL ON FUNCTION app.note FROM PUBLIC;
	SELECT sas.create_workflow('child', '{"steps": {"s": {"function": "app.note", "input": {"what": "child"}}}}');
	SELECT sas.create_workflow('planned', '{"plan": "app.plan"}');
	SELECT sas.create_workflow('notes', '{"steps": {"s": {"function": "app.note", "input": {"what": "{{input.what}}"}}}, "on_failure": "fail"}');
	SELECT sas.create_workflow('calls', '{"steps": {"s": {"agent": "shop", "call": {}}}, "on_failure": "fail", "recovery": {"max_failures": 1}}');
	SELECT sas.create_workflow('waits', '{"on_failure": "skip", "recovery": {"max_failures": 1}, "finalize": "app.note", "hooks": [{"on": "stopped", "function": "app.note"}], "steps": {
		"w": {"wait": {"signal": "go"}},
		"f": {"function": "app.note", "input": {"what": "step"}, "after": ["w"]},
		"c": {"workflow": "child", "after": ["w"]},
		"p": {"workflow": "planned", "after": ["w"]}}}')});

# A role that may do all of this.
sub role
{
	my ($role) = @_;
	$sql->(qq{
		CREATE ROLE $role LOGIN;
		SELECT sas.grant_usage('$role', 'user');
		GRANT crew TO $role;
		GRANT EXECUTE ON FUNCTION app.note TO $role;
		SET ROLE eve;
		SELECT sas.grant_workflow(w, '$role') FROM unnest('{child,planned,notes,calls,waits}'::text[]) w});
	return;
}

# Logs in as the role, submits such a run and leaves it in a prepared transaction of that name.
sub prepare
{
	my ($role, $workflow, $name) = @_;
	$node->safe_psql('postgres', qq{
		BEGIN;
		SELECT run_id FROM sas.submit('$workflow', '{"what": "$name"}', key => '$name');
		PREPARE TRANSACTION '$name'}, extra_params => [ '-U', $role ]);
	return;
}

sub ended
{
	my ($name) = @_;
	ok(wait_for($node, "SELECT state FROM sas.runs WHERE key = '$name'", 'stopped'), "the run of $name ends");
	return $sql->("SELECT concat_ws(' ', result, error ->> 'title') FROM sas.runs WHERE key = '$name'");
}

# -- in a prepared transaction -----------------------------------------------------------------------

role($_) foreach 'ann', 'bob', 'dora';
prepare('ann', 'notes', $_) foreach 'kept', 'no_level', 'no_right', 'given_up';
prepare('ann', 'calls', $_) foreach 'no_member';
prepare('bob', 'notes', 'no_role');
is($sql->(q{SELECT count(*) FROM sas.runs}), '0', 'what is prepared is not there');
$sql->(q{COMMIT PREPARED 'kept'});
is(ended('kept'), 'success', 'a superuser commits it');
is($sql->(q{SELECT who || ' ' || super FROM app.seen WHERE what = 'kept'}), 'ann ann off', 'and it runs as who has submitted it');
$sql->(q{SELECT sas.revoke_usage('ann'); SET ROLE eve; SELECT sas.revoke_workflow('notes', 'ann')});
$sql->(q{COMMIT PREPARED 'no_level'});
is(ended('no_level'), 'success', 'a run goes on without the level, and without the grant, that its submit needed');
$sql->(q{REVOKE EXECUTE ON FUNCTION app.note FROM ann});
$sql->(q{COMMIT PREPARED 'no_right'});
is(ended('no_right'), 'error permission denied for function app.note(pg_catalog.jsonb)', 'but without the right to its function it does not');
$sql->(q{REVOKE crew FROM ann});
$sql->(q{COMMIT PREPARED 'no_member'});
is(ended('no_member'), 'error permission denied for agent "shop"', 'nor without the membership that gave it its agent');
$sql->(q{SELECT sas.grant_usage('ann', 'user'); SET ROLE eve; SELECT sas.grant_workflow('notes', 'ann')});
$sql->(q{ROLLBACK PREPARED 'given_up'});
is($sql->(q{SELECT count(*) FROM sas.runs WHERE key = 'given_up'}), '0', 'one that is rolled back leaves no run');
$sql->(q{GRANT EXECUTE ON FUNCTION app.note TO ann});
is($sql->(q{SET ROLE ann; SELECT created FROM sas.submit('notes', '{"what": "again"}', key => 'given_up')}), 't', 'nor its key');
is(ended('given_up'), 'success', 'which another one has');
# the submit is not seen by DROP ROLE
$sql->(q{DROP OWNED BY bob; DROP ROLE bob; COMMIT PREPARED 'no_role'});
is(ended('no_role'), 'error the owner of the run no longer exists', 'the run of a role that is gone meanwhile fails');
is($sql->(q{SELECT string_agg(what, ' ' ORDER BY what) FROM app.seen}), 'again kept no_level', 'and none of these has called its function');
$sql->('CREATE ROLE bob LOGIN');
$sql->(q{SELECT sas.grant_usage('bob', 'user')});
is($node->safe_psql('postgres', 'SELECT count(*) FROM sas.runs', extra_params => [ '-U', 'bob' ]), '0', 'another role of that name does not see it');
# one who has lost its level commits what it has prepared, and can do no more
$node->safe_psql('postgres', q{BEGIN; SELECT sas.create_workflow('later', '{"steps": {}}'); PREPARE TRANSACTION 'later'}, extra_params => [ '-U', 'dora' ]);
$sql->(q{SELECT sas.revoke_usage('dora')});
$node->safe_psql('postgres', q{COMMIT PREPARED 'later'}, extra_params => [ '-U', 'dora' ]);
my ($out, $err);
isnt($node->psql('postgres', q{SELECT sas.submit('later')}, stderr => \$err, extra_params => [ '-U', 'dora' ]), 0, 'a role that has no level any more does not submit what it has prepared');
$node->psql('postgres', q{SET ROLE ann; SELECT sas.submit('later')}, stderr => \$err);
like($err, qr/permission denied|must be granted|does not exist/, 'nor does another one');

# -- its role is another one ---------------------------------------------------------------------------

$sql->('TRUNCATE app.seen');
my $run = $sql->(q{SET ROLE dora; RESET ROLE; SELECT sas.grant_usage('dora', 'user') \g /dev/null
	SET ROLE dora; SELECT run_id FROM sas.submit('waits')});
$sql->(qq{ALTER ROLE dora RENAME TO "do'ra"; ALTER ROLE "do'ra" NOLOGIN VALID UNTIL '2000-01-01' CONNECTION LIMIT 0;
	ALTER ROLE "do'ra" SET search_path = evil; ALTER ROLE "do'ra" SET role = 'eve'; ALTER ROLE "do'ra" SET statement_timeout = '1ms';
	SELECT FROM sas.signal($run, 'go')});
ok(wait_for($node, "SELECT result FROM sas.runs WHERE run_id = $run", 'success'), 'a run whose role was renamed, cannot log in and has settings goes on');
is($sql->(q{SELECT string_agg(DISTINCT concat_ws(' ', who, super, path), ', ') FROM app.seen}), q{do'ra do'ra off pg_catalog, app, pg_temp}, 'as that role, under the path of its functions');
ok(wait_for($node, q{SELECT string_agg(DISTINCT what, ' ' ORDER BY what) FROM app.seen}, 'child finalize plan step'), 'all of them are called');

$sql->('TRUNCATE app.seen');
$run = $sql->(q{SET ROLE ann; SELECT run_id FROM sas.submit('waits')});
$sql->('ALTER ROLE ann SUPERUSER');
$sql->("SELECT FROM sas.signal($run, 'go')");
ok(wait_for($node, "SELECT state || ' ' || result FROM sas.runs WHERE run_id = $run", 'stopped warning'), 'a run whose role has become a superuser ends');
is($sql->("SELECT string_agg(step || ' ' || state, ', ' ORDER BY step) FROM sas.steps WHERE run_id = $run"), 'c skipped, f skipped, finalize skipped, p skipped, w succeeded', 'without what others have written');
is($sql->("SELECT count(*) FROM sas.runs WHERE parent_run_id = $run"), '0', 'it has no child of theirs');
is($sql->('SELECT count(*) FROM app.seen'), '0', 'nothing of another role has run as a superuser');
done_testing();

# SPDX-License-Identifier: PostgreSQL
#
# Middleware in real function workers: the rights of who created it, one
# transaction with the function, nothing left in the session for the next.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
use SasService;
use Test::More;

my $node = new_node('main');
$node->safe_psql('postgres', q{
	CREATE ROLE ann LOGIN;
	SELECT sas.grant_usage('ann', 'user');
	SET check_function_bodies = off;
	CREATE SCHEMA app;
	GRANT USAGE ON SCHEMA app TO PUBLIC;
	CREATE TABLE app.log (what text, who text DEFAULT current_user, tx xid8 DEFAULT pg_current_xact_id());
	GRANT ALL ON app.log TO PUBLIC;
	CREATE FUNCTION app.noted(what text) RETURNS void LANGUAGE sql AS $$ INSERT INTO app.log (what) VALUES (what) $$;
	CREATE FUNCTION app.enter(c jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT set_config('app.tenant', c #>> '{run,labels,tenant}', true); SELECT noted('before'); SELECT NULL::jsonb $$;
	CREATE FUNCTION app.leave(c jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM noted('after');
		IF c -> 'response' ? 'spoil' THEN
			RAISE EXCEPTION 'spoilt';
		END IF;
		RETURN NULL;
	END $$;
	CREATE FUNCTION app.work(input jsonb) RETURNS jsonb LANGUAGE sql AS $$
		SELECT noted('work for ' || coalesce(current_setting('app.tenant', true), ''));
		SELECT input || jsonb_build_object('path', current_setting('search_path')) $$;
	SELECT sas.create_middleware('tenant', 'function', 'app.enter(jsonb)', 'app.leave(jsonb)');
	SELECT sas.create_workflow('wrapped', '{"steps": {"s": {"function": "app.work"}}, "output": "{{steps.s.output}}", "on_failure": "fail"}')});

sub ended
{
	my ($id) = @_;
	$node->safe_psql('postgres', "SELECT FROM sas.wait($id)");
	return $node->safe_psql('postgres', "SELECT state || ' ' || result || ' ' || coalesce(error ->> 'title', '-') FROM sas.runs WHERE run_id = $id");
}

my $id = $node->safe_psql('postgres', q{SET ROLE ann; SELECT run_id FROM sas.submit('wrapped', '{"n": 1}', labels => '{"tenant": "blue"}')});
is(ended($id), 'stopped success -', 'a step with middleware around it is carried out by a worker');
is($node->safe_psql('postgres', q{SELECT string_agg(what || ' as ' || who, ', ') || ' ' || count(DISTINCT tx) FROM app.log}),
	'before as postgres, work for blue as ann, after as postgres 1', 'middleware as who created it, the function as who submitted, in one transaction, and what was set before is seen inside');
is($node->safe_psql('postgres', "SELECT output ->> 'path' FROM sas.runs WHERE run_id = $id"), 'pg_catalog, app, pg_temp', 'each with the search_path of its own schema');

$node->safe_psql('postgres', 'TRUNCATE app.log');
$id = $node->safe_psql('postgres', q{SET ROLE ann; SELECT run_id FROM sas.submit('wrapped', '{"spoil": 1}', labels => '{"tenant": "red"}')});
is(ended($id), 'stopped error spoilt', 'an after that fails fails the step');
is($node->safe_psql('postgres', 'SELECT count(*) FROM app.log'), '0', 'and takes what the function wrote with it');

$node->safe_psql('postgres', q{SELECT sas.drop_middleware('tenant')});
$id = $node->safe_psql('postgres', q{SELECT run_id FROM sas.submit('wrapped', '{"n": 2}')});
is(ended($id), 'stopped success -', 'dropped, it is gone at once');
is($node->safe_psql('postgres', 'SELECT string_agg(what, \', \') FROM app.log'), 'work for ', 'and nothing that it set has stayed in the session of the worker');

# around calls: what was added is sent, what comes back is changed before the step keeps it, and each attempt sends the same
my $service = SasService->new;
make_agent($node, 'remote', $service);
$node->safe_psql('postgres', q{SELECT sas.grant_agent('remote', 'ann')});
$node->safe_psql('postgres', q{
	SET check_function_bodies = off;
	TRUNCATE app.log;
	CREATE FUNCTION app.sign(c jsonb) RETURNS jsonb LANGUAGE sql AS $$
		SELECT noted('sign');
		SELECT jsonb_build_object('request', c -> 'request' || jsonb_build_object('headers', jsonb_build_object('X-Stamp', gen_random_uuid(), 'X-Tenant', c #> '{run,labels,tenant}'))) $$;
	CREATE FUNCTION app.shorten(c jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT noted('shorten'); SELECT jsonb_build_object('response', c #> '{response,body}') $$;
	SELECT sas.create_middleware('sign', 'call', 'app.sign(jsonb)', 'app.shorten(jsonb)')});
define($node, 'signed', { steps => { s => { agent => 'remote', call => { method => 'POST', path => '/signed', body => { n => 1 } }, retry => { initial => '10 ms' } } },
	output => '{{steps.s.output}}' });
$node->safe_psql('postgres', q{SELECT sas.grant_workflow('signed', 'ann')});
$service->script(signed => [ { status => 500 }, { status => 201, json => { id => 7 } } ]);
$id = $node->safe_psql('postgres', q{SET ROLE ann; SELECT run_id FROM sas.submit('signed', labels => '{"tenant": "blue"}')});
is(ended($id), 'stopped success -', 'a call with middleware around it is made by an agent');
my @sent = $service->requests('signed');
is(scalar @sent, 2, 'it was tried again');
is(join(' ', map { header_of($_, 'x-tenant') } @sent), 'blue blue', 'with what was added');
is(header_of($sent[0], 'x-stamp'), header_of($sent[1], 'x-stamp'), 'the functions were asked once, so each attempt sends the same');
is(header_of($sent[0], 'idempotency-key'), header_of($sent[1], 'idempotency-key'), 'under the same key');
is($node->safe_psql('postgres', "SELECT output FROM sas.runs WHERE run_id = $id"), '{"id": 7}', 'the step keeps what came out at last');
is($node->safe_psql('postgres', q{SELECT string_agg(what || ' as ' || who, ', ') FROM app.log}), 'sign as postgres, shorten as postgres', 'all of it as who created it');
$node->safe_psql('postgres', q{SELECT sas.drop_middleware('sign')});

# the owner of a run needs no level for it, and may look up nothing in schema _sas
$node->safe_psql('postgres', q{
	TRUNCATE app.log;
	CREATE ROLE eve; SELECT sas.grant_agent('remote', 'eve');
	GRANT USAGE ON SCHEMA sas TO eve;
	SELECT sas.create_middleware('tenant', p, 'app.enter(jsonb)', 'app.leave(jsonb)') FROM unnest('{function,call,finalize}'::text[]) p;
	SELECT sas.create_workflow('both', '{"steps": {"s": {"function": "app.work"}, "c": {"agent": "remote", "call": {"path": "/plain"}, "after": ["s"]}}, "finalize": "app.work"}')});
my $submit = $node->safe_psql('postgres', q{SELECT 'sas.submit'::regproc::regprocedure});
$node->safe_psql('postgres', "GRANT EXECUTE ON FUNCTION $submit TO eve");
$id = $node->safe_psql('postgres', q{SET ROLE eve; SELECT run_id FROM sas.submit('both', labels => '{"tenant": "green"}')});
is(ended($id), 'stopped success -', 'steps with middleware of an owner without any level are carried out');
is($node->safe_psql('postgres', q{SELECT string_agg(DISTINCT who, ', ' ORDER BY who) || ' ' || count(*) FROM app.log}), 'eve, postgres 8', 'the functions as that owner');
is($node->safe_psql('postgres', q{SELECT has_schema_privilege('eve', '_sas', 'USAGE') OR EXISTS (SELECT FROM pg_proc p WHERE p.pronamespace = '_sas'::regnamespace AND has_function_privilege('eve', p.oid, 'EXECUTE'))}), 'f', 'who has no right on anything internal');
$node->safe_psql('postgres', q{SELECT sas.drop_middleware('tenant')});

# a child run that is planned: the plan function runs in a function worker, as the owner
$node->safe_psql('postgres', q{
	SET check_function_bodies = off;
	TRUNCATE app.log;
	CREATE FUNCTION app.plan(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM noted('plan');
		IF input ? 'bad' THEN
			RAISE EXCEPTION 'no plan for this';
		END IF;
		RETURN '{"steps": {"only": {"function": "app.work"}}, "output": "{{steps.only.output}}"}';
	END $$;
	SELECT sas.create_workflow('planned', '{"plan": "app.plan"}');
	SELECT sas.create_workflow('parent', '{"steps": {"c": {"workflow": "planned", "on_failure": "fail"}}, "output": "{{steps.c.output.n}}"}');
	SELECT sas.grant_workflow('planned', 'ann');
	SELECT sas.grant_workflow('parent', 'ann')});
$id = $node->safe_psql('postgres', q{SET ROLE ann; SELECT run_id FROM sas.submit('parent', '{"n": 5}')});
is(ended($id), 'stopped success -', 'a child run is planned');
is($node->safe_psql('postgres', q{SELECT string_agg(what || 'as ' || who, ', ') FROM (SELECT replace(what, 'work for ', 'work ') || CASE WHEN what = 'plan' THEN ' ' ELSE '' END AS what, who FROM app.log) x}),
	'plan as ann, work as ann', 'as the owner of the run');
$id = $node->safe_psql('postgres', q{SET ROLE ann; SELECT run_id FROM sas.submit('parent', '{"bad": 5}')});
is(ended($id), 'stopped error no plan for this', 'and what it raises is the error of the step');
is($node->safe_psql('postgres', q{SELECT count(*) FROM app.log WHERE what = 'plan'}), '1', 'with all that it wrote rolled back');

# a role that may no longer call its middleware: nobody gets past it
$node->safe_psql('postgres', q{
	CREATE ROLE chief; SELECT sas.grant_usage('chief', 'admin');
	REVOKE ALL ON FUNCTION app.enter FROM PUBLIC; GRANT EXECUTE ON FUNCTION app.enter TO chief;
	SET ROLE chief;
	SELECT sas.create_middleware('tenant', 'function', 'app.enter(jsonb)')});
$id = $node->safe_psql('postgres', q{SET ROLE ann; SELECT run_id FROM sas.submit('wrapped')});
is(ended($id), 'stopped success -', 'who submits needs no EXECUTE on a middleware');
$node->safe_psql('postgres', q{REVOKE ALL ON FUNCTION app.enter FROM chief});
my ($out, $err) = ('', '');
isnt($node->psql('postgres', q{SET ROLE ann; SELECT run_id FROM sas.submit('wrapped')}, stdout => \$out, stderr => \$err), 0, 'when who created a middleware may not call it, nobody submits');
like($err, qr/permission denied for function app\.enter/, 'and is told which');
done_testing();

# SPDX-License-Identifier: PostgreSQL
#
# Middleware in real function workers: the rights of who submitted, one
# transaction with the function, nothing left in the session for the next.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use SasTest;
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
	'before as ann, work for blue as ann, after as ann 1', 'all of it as who submitted, in one transaction, and what was set before is seen inside');
is($node->safe_psql('postgres', "SELECT output ->> 'path' FROM sas.runs WHERE run_id = $id"), 'pg_catalog, app, pg_temp', 'each with the search_path of its own schema');

$node->safe_psql('postgres', 'TRUNCATE app.log');
$id = $node->safe_psql('postgres', q{SET ROLE ann; SELECT run_id FROM sas.submit('wrapped', '{"spoil": 1}', labels => '{"tenant": "red"}')});
is(ended($id), 'stopped error spoilt', 'an after that fails fails the step');
is($node->safe_psql('postgres', 'SELECT count(*) FROM app.log'), '0', 'and takes what the function wrote with it');

$node->safe_psql('postgres', q{SELECT sas.drop_middleware('tenant')});
$id = $node->safe_psql('postgres', q{SELECT run_id FROM sas.submit('wrapped', '{"n": 2}')});
is(ended($id), 'stopped success -', 'dropped, it is gone at once');
is($node->safe_psql('postgres', 'SELECT string_agg(what, \', \') FROM app.log'), 'work for ', 'and nothing that it set has stayed in the session of the worker');

# a role that may not call it is told at submit
$node->safe_psql('postgres', q{REVOKE ALL ON FUNCTION app.enter FROM PUBLIC; SELECT sas.create_middleware('tenant', 'function', 'app.enter(jsonb)')});
my ($out, $err) = ('', '');
isnt($node->psql('postgres', q{SET ROLE ann; SELECT run_id FROM sas.submit('wrapped')}, stdout => \$out, stderr => \$err), 0, 'who may not call a middleware cannot submit');
like($err, qr/permission denied for function app\.enter/, 'and is told which');
done_testing();

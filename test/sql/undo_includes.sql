-- SPDX-License-Identifier: PostgreSQL
--
-- Undos and fallbacks that include a workflow: each is a run of the version that was current when the workflow was
-- created, whoever may submit that workflow by then.
\set SHOW_CONTEXT never
SELECT t.clean() \g /dev/null
SELECT t.workflow('inc_refund', '{"ask": {"agent": "payments", "call": {"method": "POST", "path": "/refunds", "body": {"charge": "{{input.charge}}"}}}, "tell": {"agent": "shipping", "call": {"body": {"refund": "{{steps.ask.output.body.id}}"}}}}', '{"output": {"refund": "{{steps.ask.output.body.id}}"}}') \g /dev/null
SELECT t.workflow('inc_transfer', '{"order": {"agent": "inventory", "call": {"method": "POST", "path": "/transfers"}, "undo": {"call": {"method": "DELETE", "path": "/transfers/{{steps.order.output.body.id}}"}}}, "book": {"function": "t.echo", "input": {"id": "{{steps.order.output.body.id}}"}}}', '{"output": {"by": "transfer", "id": "{{steps.book.output.id}}"}}') \g /dev/null
SELECT t.workflow('inc_sale', '{
    "take": {"agent": "inventory", "call": {"path": "/take"}, "undo": {"call": {"method": "DELETE", "path": "/take"}}},
    "charge": {"agent": "payments", "call": {"path": "/charge"}, "after": ["take"], "undo": {"include": "inc_refund", "input": {"charge": "{{steps.charge.output.body.id}}"}},
               "fallback": {"include": "inc_transfer", "input": {"of": "{{input}}"}}},
    "ship": {"agent": "shipping", "call": {"path": "/ship"}, "after": ["charge"]}}', '{"output": "{{steps.charge.output}}"}') \g /dev/null

-- the undo: both of its calls are made, then the step before is undone
SELECT run_id FROM sas.submit('inc_sale');
SELECT t.work('{"ship": "permanent 400"}');
SELECT t.brief(1), t.brief(2);
SELECT run_id, workflow, version, parent_run_id, input, output FROM sas.runs ORDER BY 1;
SELECT * FROM t.left_over();
-- it needs no more than what it includes: functions and agents are asked for at the door
SELECT cardinality(v.uses) AS uses, v.functions FROM _sas.workflow_version v JOIN _sas.workflow w USING (workflow_id) WHERE w.name = 'inc_sale' AND v.version = w.version;

-- the fallback: its output is that of the step, and it is undone by its own undos
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('inc_sale') UNION ALL SELECT run_id FROM sas.submit('inc_sale');
SELECT t.work('{"charge": "permanent 402"}');
SELECT t.brief(1), t.brief(3);
SELECT result, output FROM sas.runs WHERE run_id = 1;
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('inc_sale');
SELECT t.work('{"charge": "permanent 402", "ship": "permanent 400"}');
SELECT t.brief(1), t.brief(2);
SELECT * FROM t.left_over();

-- a run keeps what it includes, whatever is current by then; the same definition, stored again, includes the new version
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('inc_sale');
SELECT t.work('{"ship": "doubt"}') \g /dev/null
SELECT t.workflow('inc_refund', '{"other": {"agent": "payments", "call": {"path": "/other"}}}');
SELECT t.later('10 s'), t.work('{"ship": "permanent 400"}');
SELECT t.brief(1), t.brief(2);
SELECT run_id, workflow, version FROM sas.runs ORDER BY 1;
SELECT sas.create_workflow('inc_sale', definition), sas.create_workflow('inc_sale', definition) FROM sas.workflows WHERE workflow = 'inc_sale';
SELECT run_id AS id FROM sas.submit('inc_sale') \gset
SELECT t.work('{"ship": "permanent 400"}');
SELECT run_id, workflow, version, result FROM sas.runs WHERE run_id >= :id ORDER BY 1;

-- what fails in it is told by its run; the undo of the step has failed with it, and resume begins another one
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('inc_sale');
SELECT t.work('{"ship": "permanent 400", "other": "permanent 422"}') \g /dev/null
SELECT t.brief(1), t.brief(2);
SELECT * FROM t.alerts();
SELECT changed FROM sas.resume(1);
SELECT t.work();
SELECT t.brief(1), t.brief(2), t.brief(3);
SELECT * FROM t.left_over();

-- in a map each element; in an include, too; and the undo of a fallback
SELECT t.clean() \g /dev/null
SELECT t.workflow('inc_part', '{"m": {"agent": "inventory", "call": {"path": "/{{item}}"}, "each": "{{input.items}}", "undo": {"include": "inc_refund", "input": {"charge": "{{item}}"}}},
    "n": {"agent": "payments", "call": {}, "after": ["m"], "fallback": {"agent": "inventory", "call": {"path": "/else"}, "undo": {"include": "inc_refund"}}}}') \g /dev/null
SELECT t.workflow('inc_whole_sale', '{"p": {"include": "inc_part", "input": {"items": ["x", "y"]}}, "ship": {"agent": "shipping", "call": {}, "after": ["p"]}}') \g /dev/null
SELECT run_id FROM sas.submit('inc_whole_sale');
SELECT t.work('{"ship": "permanent 400", "p.n": "permanent 400"}');
SELECT t.brief(1);
SELECT run_id, workflow, input, parent_run_id, result FROM sas.runs ORDER BY 1;
SELECT * FROM t.left_over();

-- planned by a function, in a claim of its own; the version that was included plans
SELECT t.clean() \g /dev/null
CREATE OR REPLACE FUNCTION t.plan_back(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT jsonb_build_object('steps', jsonb_build_object('s', jsonb_build_object('function', 't.echo', 'input', input))) $$;
SELECT t.workflow('inc_planned_refund', '{}', '{"plan": "t.plan_back"}') \g /dev/null
SELECT t.workflow('inc_plans_refund', '{"a": {"agent": "inventory", "call": {}, "undo": {"include": "inc_planned_refund", "input": {"x": 1}}}, "b": {"agent": "payments", "call": {}, "after": ["a"]}}') \g /dev/null
SELECT t.workflow('inc_planned_refund', '{"s": {"function": "t.echo"}}') \g /dev/null
SELECT run_id FROM sas.submit('inc_plans_refund');
SELECT t.work('{"b": "permanent 400", "undo a": {"steps": {"p": {"function": "t.echo"}}}}');
SELECT t.brief(1), t.brief(2);
SELECT run_id, workflow, version FROM sas.runs ORDER BY 1;
SELECT * FROM t.left_over();

-- who runs the workflow may not submit what it includes, but needs the rights for what that does
SELECT t.clean() \g /dev/null
CREATE ROLE seller;
SELECT sas.grant_usage('seller', 'user'), t.allow('seller') \g /dev/null
CREATE FUNCTION t.give(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT input $$;
REVOKE ALL ON FUNCTION t.give FROM PUBLIC;
CREATE ROLE keeper;
SELECT sas.grant_usage('keeper', 'user'), t.allow('keeper') \g /dev/null
GRANT EXECUTE ON FUNCTION t.give TO keeper;
SET ROLE keeper;
SELECT sas.create_workflow('inc_kept', '{"steps": {"give": {"function": "t.give"}}}');
SELECT sas.create_workflow('inc_shared', '{"steps": {"a": {"function": "t.echo", "undo": {"include": "inc_kept"}}, "b": {"wait": {"for": "1 min"}, "expect": "false == true", "after": ["a"]}}}');
SELECT sas.grant_workflow('inc_shared', 'seller');
SET ROLE seller;
SELECT run_id FROM sas.submit('inc_kept');
SELECT run_id FROM sas.submit('inc_shared');
RESET ROLE;
GRANT EXECUTE ON FUNCTION t.give TO seller;
SET ROLE seller;
SELECT run_id AS id FROM sas.submit('inc_shared') \gset
RESET ROLE;
SELECT t.work(), t.later('1 min') \g /dev/null
SELECT t.work();
SELECT t.brief(:id);
SELECT workflow, submitted_by, result FROM sas.runs WHERE parent_run_id = :id;
-- what is included cannot be dropped
SELECT sas.drop_workflow('inc_kept');
SELECT * FROM t.left_over();
SELECT t.clean(), sas.drop_workflow('inc_shared'), sas.drop_workflow('inc_kept') \g /dev/null
SELECT sas.revoke_usage('seller', 'user'), sas.revoke_usage('keeper', 'user') \g /dev/null
DROP OWNED BY seller, keeper;
DROP ROLE seller, keeper;

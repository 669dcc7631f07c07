-- SPDX-License-Identifier: PostgreSQL
--
-- Plan: what a run does is known with its input only.
\set SHOW_CONTEXT never
SELECT t.clean() \g /dev/null
CREATE TABLE t.planned_for (who text, n int);
CREATE FUNCTION t.plan(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO t.planned_for VALUES (current_user, (input ->> 'n')::int);
    IF input ? 'fail' THEN
        RAISE EXCEPTION 'there is no plan for %', input ->> 'fail' USING ERRCODE = 'P0042';
    END IF;
    RETURN CASE WHEN input ? 'odd' THEN input -> 'odd'
                ELSE jsonb_build_object('steps', (SELECT coalesce(jsonb_object_agg('step_' || g, jsonb_build_object('function', 't.echo')
                                                         || CASE WHEN g > 1 THEN jsonb_build_object('after', jsonb_build_array('step_' || g - 1)) ELSE '{}' END), '{}')
                                                  FROM generate_series(1, (input ->> 'n')::int) g)) END;
END $$;
SELECT sas.create_workflow('made', '{"plan": "t.plan", "on_failure": "fail"}');
-- PH4 the plan is made inside submit, and may write; what comes out is run
SELECT run_id FROM sas.submit('made', '{"n": 2}');
SELECT * FROM t.planned_for;
SELECT t.work();
SELECT t.brief(1), (SELECT version FROM sas.runs WHERE run_id = 1);
-- different inputs, different steps; the same plan is stored once
SELECT run_id FROM sas.submit_batch('made', ARRAY['{"n": 3}', '{"n": 2}', '{"n": 0}']::jsonb[]);
SELECT t.work();
SELECT t.brief(2), t.brief(3), t.brief(4);
SELECT count(*) AS plans FROM _sas.planned;
-- PH3 a plan of nothing succeeds at once
SELECT state, result FROM sas.runs WHERE run_id = 4;
-- PH5, PH6 an error raises to the caller, and nothing is stored of run or application
SELECT run_id FROM sas.submit('made', '{"n": 7, "fail": "this"}');
SELECT count(*) AS runs FROM sas.runs;
SELECT count(*) AS kept FROM t.planned_for WHERE n = 7;
-- what is no plan, or not sound, is refused with its place
SELECT run_id FROM sas.submit('made', '{"odd": [1]}');
SELECT run_id FROM sas.submit('made', '{"odd": {"steps": {}, "plan": "t.plan"}}');
SELECT run_id FROM sas.submit('made', '{"odd": {"steps": {"a": {"function": "t.nope"}}}}');
SELECT run_id FROM sas.submit('made', '{"odd": null}');
-- a key that is taken is not planned again
SELECT run_id, created FROM sas.submit('made', '{"n": 1}', key => 'k');
SELECT run_id, created FROM sas.submit('made', '{"n": 1}', key => 'k');
SELECT count(*) AS asked FROM t.planned_for WHERE n = 1;
SELECT t.work();
DROP TABLE t.planned_for CASCADE;

-- an agent that the input names, among those that it may
SELECT t.workflow('routed', '{"a": {"agent": "{{input.to}}", "agents": "*ing", "call": {}, "undo": {"call": {"method": "DELETE"}}}}');
SELECT run_id FROM sas.submit('routed', '{"to": "shipping"}');
SELECT step, agent FROM sas.steps WHERE run_id = (SELECT max(run_id) FROM sas.runs);
SELECT t.work();
SELECT t.brief((SELECT max(run_id) FROM sas.runs));
SELECT run_id FROM sas.submit('routed', '{"to": "payments"}');
SELECT run_id FROM sas.submit('routed', '{"to": "nothing"}');
SELECT run_id FROM sas.submit('routed', '{"to": 7}');
SELECT run_id FROM sas.submit('routed', '{}');
-- also in a child
SELECT t.workflow('parent', '{"a": {"workflow": "routed"}}');
SELECT run_id FROM sas.submit('parent', '{"to": "shipping"}');
SELECT t.work();
SELECT t.brief((SELECT max(run_id) - 1 FROM sas.runs));
SELECT * FROM t.left_over();

-- steps that are no object are refused with their place, too
SELECT sas.create_workflow('told', '{"plan": "t.echo"}') \g /dev/null
SELECT run_id FROM sas.submit('told', '{"steps": []}');
SELECT run_id FROM sas.submit('told', '{"steps": null}');

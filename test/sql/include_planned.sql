-- SPDX-License-Identifier: PostgreSQL
--
-- Includes of workflows that are known with the input of the run only: plan functions, and agents that the input names.
\set SHOW_CONTEXT never
SELECT t.clean() \g /dev/null
-- t.steps_of(input): as many steps as it says, one after the other
CREATE FUNCTION t.steps_of(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM t.note(input::text);
    RETURN CASE WHEN input ? 'odd' THEN input -> 'odd'
                ELSE jsonb_build_object('steps', (SELECT coalesce(jsonb_object_agg('s' || g, jsonb_build_object('function', 't.echo', 'input', jsonb_build_object('g', g, 'x', '{{input.x?}}'))
                                                         || CASE WHEN g > 1 THEN jsonb_build_object('after', jsonb_build_array('s' || g - 1)) ELSE '{}' END), '{}')
                                                  FROM generate_series(1, (input ->> 'n')::int) g),
                                        'output', jsonb_build_object('last', format('{{steps.s%s.output.g}}', input ->> 'n'))) END;
END $$;
SELECT t.workflow('counted', '{}', '{"plan": "t.steps_of", "recovery": {"max_failures": 3}}') \g /dev/null
SELECT t.workflow('routed', '{"a": {"agent": "{{input.to}}", "agents": "*ing", "call": {"path": "/x"}, "undo": {"call": {"method": "DELETE"}}}}') \g /dev/null
SELECT t.workflow('outer', '{
    "first": {"agent": "payments", "call": {}},
    "in": {"include": "counted", "input": {"n": "{{input.n}}", "x": "{{input.x?}}"}, "after": ["first"]},
    "go": {"include": "routed", "input": {"to": "{{input.to}}"}, "after": ["in"]},
    "end": {"function": "t.echo", "input": {"last": "{{steps.in.output.last}}"}, "after": ["go"]}}', '{"output": "{{steps.end.output}}"}') \g /dev/null

-- the plan of what is included is made inside submit, with the input of the include
TRUNCATE t.trace;
SELECT run_id FROM sas.submit('outer', '{"n": 2, "to": "shipping", "x": 5}');
SELECT what FROM t.trace;
SELECT step, kind, agent FROM sas.steps WHERE run_id = 1 ORDER BY position;
SELECT t.work();
SELECT t.brief(1);
SELECT output FROM sas.runs WHERE run_id = 1;
-- each input its steps, the same plan once
SELECT run_id FROM sas.submit('outer', '{"n": 1, "to": "shipping"}') UNION ALL SELECT run_id FROM sas.submit('outer', '{"n": 2, "to": "shipping"}') UNION ALL SELECT run_id FROM sas.submit('outer', '{"n": 2, "to": "shipping"}');
SELECT t.work() \g /dev/null
SELECT t.brief(2), t.brief(3), t.brief(4);
SELECT count(DISTINCT version_id) AS versions FROM _sas.run;
-- what is wrong is told where the include is, and nothing is stored
SELECT run_id FROM sas.submit('outer', '{"n": 1, "to": "payments"}');
SELECT run_id FROM sas.submit('outer', '{"n": 1}');
SELECT run_id FROM sas.submit('outer', '{"to": "shipping"}');
SELECT t.workflow('odd', '{"in": {"include": "counted"}}') \g /dev/null
SELECT run_id FROM sas.submit('odd', '{"odd": {"steps": {"a": {"function": "t.nope"}}}}');
SELECT run_id FROM sas.submit('odd', '{"odd": {"steps": {"a": {"function": "t.echo", "after": ["b"]}, "b": {"function": "t.echo", "after": ["a"]}}}}');
SELECT run_id FROM sas.submit('odd', '{"odd": {"steps": {"a": {"function": "t.echo", "input": "{{steps.c.output}}"}}}}');
SELECT run_id FROM sas.submit('odd', '{"odd": [1]}');
SELECT run_id FROM sas.submit('odd', '{"odd": {"steps": {"a": {"include": "odd"}}}}');
SELECT count(*) AS runs FROM sas.runs;

-- includes of includes, and a plan that includes what is planned
SELECT t.workflow('deeper', '{"o": {"include": "outer", "input": {"n": 1, "to": "{{input.way}}"}}}') \g /dev/null
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('deeper', '{"way": "shipping"}');
SELECT step, agent FROM sas.steps WHERE run_id = 1 ORDER BY position;
SELECT t.work() \g /dev/null
SELECT t.brief(1);
CREATE FUNCTION t.other_plan(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT input -> 'odd' $$;
SELECT t.workflow('free', '{}', '{"plan": "t.other_plan"}') \g /dev/null
SELECT t.workflow('freer', '{"in": {"include": "free"}}') \g /dev/null
SELECT run_id FROM sas.submit('freer', '{"odd": {"steps": {"more": {"include": "counted", "input": {"n": 2}}}}}');
SELECT t.work() \g /dev/null
SELECT t.brief(2);
SELECT run_id FROM sas.submit('deeper', '{"way": "nowhere"}');

-- what is known only when the run is on its way is refused where it is defined
SELECT v.* FROM sas.validate_workflow('{"steps": {"a": {"function": "t.echo"}, "in": {"include": "counted", "input": {"n": "{{steps.a.output.n}}"}}}}') v;
SELECT v.* FROM sas.validate_workflow('{"steps": {"a": {"function": "t.echo"}, "d": {"include": "deeper", "input": {"way": "{{steps.a.output.way}}"}}, "r": {"include": "routed", "input": {"to": "{{run.key}}"}}}}') v ORDER BY 1;

-- as a child run each plan function is called by a claim of its own; what they write and the child are kept
SELECT t.clean() \g /dev/null
SELECT t.workflow('both', '{"p": {"include": "counted", "input": {"n": 1}}, "q": {"include": "counted", "input": {"n": 2}}}') \g /dev/null
SELECT t.workflow('parent', '{"c": {"workflow": "outer", "input": {"n": "{{input.n}}", "to": "shipping"}}}') \g /dev/null
SELECT run_id FROM sas.submit('parent', '{"n": 1}');
SELECT t.settle() \g /dev/null
SELECT * FROM t.perform();
SELECT t.work() \g /dev/null
SELECT t.brief(1), t.brief(2);
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('both');
SELECT t.work() \g /dev/null
SELECT t.brief(1);
SELECT t.workflow('calls_both', '{"two": {"workflow": "both"}}') \g /dev/null
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('calls_both');
SELECT t.settle() \g /dev/null
SELECT * FROM t.perform();
SELECT t.settle() \g /dev/null
-- paused between them
SELECT changed FROM sas.pause(1);
SELECT * FROM t.perform();
SELECT changed FROM sas.resume(1);
SELECT t.settle() \g /dev/null
SELECT * FROM t.perform();
SELECT t.work() \g /dev/null
SELECT t.brief(1), t.brief(2);
SELECT * FROM t.left_over();
-- a plan that fails is the error of the step
SELECT t.workflow('calls_odd', '{"c": {"workflow": "odd", "input": {"odd": {"steps": {"a": {"function": "t.nope"}}}}}}') \g /dev/null
SELECT run_id FROM sas.submit('calls_odd');
SELECT t.settle() \g /dev/null
SELECT * FROM t.perform();
SELECT t.settle() \g /dev/null
SELECT state, error ->> 'title' AS title, error ->> 'detail' AS detail FROM sas.steps WHERE run_id = 3;
SELECT * FROM t.left_over();

-- a run again, and a subscriber that is planned
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('outer', '{"n": 1, "to": "shipping"}');
SELECT t.work() \g /dev/null
SELECT changed, new_run_id FROM sas.rerun(1);
SELECT t.workflow('base', '{"b": {"function": "t.echo"}}') \g /dev/null
SELECT sas.subscribe('counted', 'base') \g /dev/null
SELECT run_id FROM sas.submit('base', '{"n": 2}');
SELECT t.work() \g /dev/null
SELECT t.brief(2), t.brief(3);
SELECT sas.unsubscribe('counted', 'base') \g /dev/null
SELECT t.clean() \g /dev/null

-- SPDX-License-Identifier: PostgreSQL
--
-- Maps with places per key, and maps that run through before the run pauses for what failed in them.
\set SHOW_CONTEXT never
SELECT t.clean() \g /dev/null
SELECT t.workflow('keyed', '{"m": {"agent": "inventory", "call": {"body": "{{item}}"}, "each": "{{input.items}}", "concurrency": {"limit": 3, "key": "{{item.who}}", "per_key": 1}}}') \g /dev/null
-- t.going(run): the elements that are ready or running, by key
CREATE FUNCTION t.going(id bigint) RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(string_agg(s.element || ' ' || coalesce(i.item ->> 'who', i.item::text), ', ' ORDER BY s.element), 'nothing')
    FROM sas.steps s JOIN _sas.item i ON i.run_id = s.run_id AND i.element = s.element
    WHERE s.run_id = id AND s.element > 0 AND s.state IN ('ready', 'running', 'suspended')
$$;

-- one of each key at a time, others pass by those that wait
SELECT run_id FROM sas.submit('keyed', '{"items": [{"who": "ann"}, {"who": "ann"}, {"who": "ann"}, {"who": "bob"}, {"who": "bob"}, {"who": "cy"}, {"who": "dan"}]}');
SELECT t.settle(), t.claim() \g /dev/null
SELECT t.going(1);
-- a key that has a place goes on with its next, in order, before what comes later
SELECT t.answer('m', for_element => 4);
SELECT t.going(1);
SELECT t.answer('m', for_element => 6), t.answer('m', for_element => 1);
SELECT t.going(1);
SELECT t.claim(), t.answer('m', for_element => 5), t.answer('m', for_element => 7);
SELECT t.going(1);
SELECT t.answer('m', for_element => 2);
SELECT t.going(1);
SELECT t.work();
SELECT t.brief(1), (SELECT output = (SELECT jsonb_agg(e.output ORDER BY e.element) FROM sas.steps e WHERE e.element > 0) AS in_order FROM sas.steps WHERE element IS NULL);
SELECT * FROM t.left_over();
SELECT count(*) FROM _sas.map_key;

-- two of a key; null is no key; a number is one as well
SELECT t.clean() \g /dev/null
SELECT t.workflow('pairs', '{"m": {"agent": "inventory", "call": {}, "each": "{{input.items}}", "concurrency": {"key": "{{item.who?}}", "per_key": 2}}}') \g /dev/null
SELECT run_id FROM sas.submit('pairs', '{"items": [{"who": 7}, {"who": 7}, {"who": 7}, {}, {"who": null}, {}, {"who": "7"}, {"who": 7}]}');
SELECT t.settle() \g /dev/null
SELECT t.going(1);
SELECT t.work();
-- one that fails and rests keeps its place; paused: nothing begins; resume goes on
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('keyed', '{"items": [{"who": "ann"}, {"who": "ann"}, {"who": "bob"}, {"who": "bob"}]}');
SELECT t.settle(), t.claim(), t.answer('m', 'transient 503', for_element => 1), t.settle() \g /dev/null
SELECT t.going(1);
SELECT changed FROM sas.pause(1);
SELECT t.answer('m', for_element => 3), t.settle() \g /dev/null
SELECT t.going(1);
SELECT changed FROM sas.resume(1);
SELECT t.going(1);
SELECT t.later('10 s'), t.work() \g /dev/null
SELECT t.brief(1);
-- a key that cannot be made fails the step, before anything begins; without each it means nothing
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('keyed', '{"items": [{"who": "ann"}, {"whom": "bob"}]}');
SELECT t.work();
SELECT t.brief(1), (SELECT error ->> 'detail' FROM sas.steps) AS detail;
-- mended it begins from its list
SELECT t.workflow('mended', '{"m": {"agent": "inventory", "call": {}, "each": "{{input.items}}", "on_failure": "pause", "concurrency": {"key": "{{item.who}}"}}}') \g /dev/null
SELECT run_id FROM sas.submit('mended', '{"items": [{"who": "ann"}, {}]}');
SELECT t.work();
SELECT changed FROM sas.set_input(2, 'm', '[{"who": "ann"}, {"who": "ann"}]');
SELECT changed FROM sas.resume(2);
SELECT t.settle() \g /dev/null
SELECT t.brief(2);
SELECT t.work();
SELECT t.clean() \g /dev/null
-- an empty list
SELECT run_id FROM sas.submit('keyed', '{"items": []}');
SELECT t.work() \g /dev/null
SELECT t.brief(1);
-- elements that fail for good give their place back; what is done is undone
SELECT run_id FROM sas.submit('keyed', '{"items": [{"who": "ann"}, {"who": "ann"}, {"who": "bob"}]}');
SELECT t.work('{"m[1]": "permanent 400"}');
SELECT t.brief(2);
-- child runs, one of each key
SELECT t.clean() \g /dev/null
SELECT t.workflow('map_leaf', '{"a": {"agent": "shipping", "call": {"body": "{{input}}"}}}') \g /dev/null
SELECT t.workflow('map_children', '{"m": {"workflow": "map_leaf", "input": "{{item}}", "each": "{{input.items}}", "concurrency": {"limit": 2, "key": "{{item.who}}"}}}') \g /dev/null
SELECT run_id FROM sas.submit('map_children', '{"items": [{"who": "ann"}, {"who": "ann"}, {"who": "bob"}, {"who": "cy"}]}');
SELECT t.settle() \g /dev/null
SELECT t.going(1);
SELECT t.claim(), t.answer('a', for_run => 2), t.settle() \g /dev/null
SELECT t.going(1);
SELECT t.work();
SELECT t.brief(1);
SELECT * FROM t.left_over();
-- many: never two of a key at once, and all in the end
SELECT t.clean() \g /dev/null
SELECT t.workflow('many', '{"m": {"function": "t.echo", "input": "{{item}}", "each": "{{input.items}}", "concurrency": {"limit": 40, "key": "{{item.k}}", "per_key": 1}}}') \g /dev/null
SELECT run_id FROM sas.submit('many', jsonb_build_object('items', (SELECT jsonb_agg(jsonb_build_object('k', CASE WHEN g <= 120 THEN 0 ELSE g % 37 END) ORDER BY g) FROM generate_series(1, 900) g)));
CREATE PROCEDURE t.drain(OUT most int, OUT most_of_key int) LANGUAGE plpgsql AS $$
DECLARE
    n int;
BEGIN
    SELECT 0, 0 INTO most, most_of_key;
    LOOP
        PERFORM t.settle();
        SELECT count(*), greatest(max(x.n), most_of_key) INTO n, most_of_key
        FROM (SELECT count(*) OVER (PARTITION BY i.key_no) AS n FROM _sas.ready q JOIN _sas.item i USING (run_id, step_no, element)) x;
        EXIT WHEN n = 0;
        most := greatest(most, n);
        PERFORM _sas.write_replies(array_agg(ROW(c.run_id, c.step_no, c.element, c.request_id, 'done', 1, c.input, NULL, false, NULL, NULL)::_sas.call_reply), array_agg(DISTINCT c.lease_id))
        FROM _sas.claim_functions(100, 1, t.worker('w'), 'w') c;
        COMMIT;
    END LOOP;
END $$;
CALL t.drain(NULL, NULL);
SELECT state, result, (SELECT count(*) FROM _sas.step WHERE state = 'succeeded' AND element > 0) AS succeeded FROM sas.runs;
SELECT * FROM t.left_over();

-- pause_at_end: the map runs through, then the run pauses, with one alert; one verb retries what failed
SELECT t.clean() \g /dev/null
SELECT t.workflow('through', '{"m": {"agent": "inventory", "call": {}, "each": "{{input.items}}", "concurrency": 2, "on_failure": "pause_at_end", "recovery": {"max_failures": 1}, "undo": {"call": {"method": "DELETE"}}}, "b": {"agent": "payments", "call": {}}, "z": {"function": "t.echo", "input": {"all": "{{steps.m.output[*].body.id}}"}}}') \g /dev/null
SELECT run_id FROM sas.submit('through', '{"items": [1, 2, 3, 4, 5]}');
SELECT t.work('{"m[2]": "permanent 400", "m[4]": "transient 503"}');
SELECT t.brief(1);
SELECT * FROM t.alerts();
SELECT paused_for, paused_by FROM sas.runs;
SELECT element, waiting_kind, error ->> 'title' AS title FROM sas.steps WHERE step = 'm' AND state = 'failed' ORDER BY element NULLS FIRST;
SELECT step, changed, state FROM sas.retry(1, 'm') ORDER BY 1;
SELECT t.settle() \g /dev/null
SELECT t.brief(1);
-- one fails again: the same again, for that one
SELECT t.work('{"m[2]": "permanent 400"}');
SELECT t.brief(1), (SELECT error ->> 'title' FROM sas.steps WHERE step = 'm' AND element IS NULL) AS title;
SELECT changed FROM sas.resume(1);
SELECT t.work();
SELECT t.brief(1);
SELECT * FROM t.left_over();
-- as many at once as ever, and in a map with keys one of each
SELECT t.clean() \g /dev/null
SELECT t.workflow('both', '{"m": {"agent": "inventory", "call": {}, "each": "{{input.items}}", "concurrency": {"limit": 2, "key": "{{item.who}}"}, "on_failure": "pause_at_end"}}') \g /dev/null
SELECT run_id FROM sas.submit('through', '{"items": [1, 2, 3, 4, 5]}') UNION ALL SELECT run_id FROM sas.submit('both', '{"items": [{"who": "ann"}, {"who": "bob"}, {"who": "bob"}, {"who": "bob"}, {"who": "ann"}, {"who": "cy"}]}');
SELECT t.work('{"m": "permanent 400"}') \g /dev/null
SELECT t.brief(1), t.brief(2);
SELECT changed FROM sas.retry(1, 'm') LIMIT 1;
SELECT changed FROM sas.retry(2, 'm') LIMIT 1;
SELECT t.settle() \g /dev/null
SELECT run_id, string_agg(element::text, ', ' ORDER BY element) FROM sas.steps WHERE state = 'ready' GROUP BY 1 ORDER BY 1;
SELECT t.claim(), t.answer('m', for_run => 2, for_element => 1) \g /dev/null
SELECT t.going(2);
SELECT t.work('{"m[3]": "permanent 400"}') \g /dev/null
SELECT t.brief(1), t.brief(2);
-- while a map runs through nothing is done about what failed; then an operator can settle each
SELECT step, changed, refused FROM sas.skip(1, 'm[3]');
SELECT step, changed, refused FROM sas.force_complete(2, 'm[3]', '{"status": 200}');
SELECT t.work() \g /dev/null
SELECT t.brief(1), t.brief(2);
SELECT result FROM sas.runs ORDER BY run_id;
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('through', '{"items": [1, 2, 3]}');
SELECT t.settle(), t.claim(), t.answer('m', 'permanent 400', for_element => 1), t.settle() \g /dev/null
SELECT text FROM sas.explain(1);
SELECT refused FROM sas.skip(1, 'm[1]');
-- cancelled meanwhile: what was done is undone
SELECT t.answer('m', for_element => 2);
SELECT changed FROM sas.cancel(1);
SELECT t.work() \g /dev/null
SELECT t.brief(1);
SELECT * FROM t.left_over();
-- cancelled when it has run through
SELECT run_id FROM sas.submit('through', '{"items": [1, 2, 3]}');
SELECT t.work('{"m[2]": "permanent 400"}') \g /dev/null
SELECT changed FROM sas.cancel(2);
SELECT t.work() \g /dev/null
SELECT t.brief(2);
-- by kind of failure; max_failed of them are skipped; where an operator decides it pauses all the same
SELECT t.workflow('kinds', '{"m": {"agent": "inventory", "call": {}, "each": "{{input.items}}", "max_failed": 1, "on_failure": {"transient": "pause_at_end", "permanent": "compensate"}, "recovery": {"max_failures": 1}}}', '{"auto_rescue": false}') \g /dev/null
SELECT run_id FROM sas.submit('kinds', '{"items": [1, 2, 3]}');
SELECT t.work('{"m": "transient 503"}') \g /dev/null
SELECT t.brief(3);
SELECT * FROM t.left_over();
SELECT t.clean() \g /dev/null

-- one that waits for its next try in doubt, when the run cannot go on, is undone; a halt leaves it in doubt
SELECT t.workflow('doubtful', '{"m": {"agent": "inventory", "call": {}, "each": "{{input.items}}", "concurrency": 1, "on_failure": "pause_at_end", "recovery": {"max_failures": 1}, "undo": {"call": {"method": "DELETE", "path": "/{{steps.m.key}}"}}}}') \g /dev/null
SELECT run_id FROM sas.submit('doubtful', '{"items": [1, 2]}') UNION ALL SELECT run_id FROM sas.submit('doubtful', '{"items": [1, 2]}');
SELECT t.work('{"m": "doubt"}') \g /dev/null
SELECT changed FROM sas.resume_runs('{1,2}');
SELECT t.settle() \g /dev/null
SELECT t.brief(1), (SELECT in_doubt FROM sas.steps WHERE run_id = 1 AND element = 2);
SELECT waiting_kind, text FROM sas.explain(1) WHERE waiting_kind = 'map_slot';
SELECT waiting_kind, runs, text FROM sas.explain() WHERE waiting_kind = 'map_slot';
SELECT changed FROM sas.cancel(1);
SELECT changed FROM sas.halt(2);
SELECT t.work() \g /dev/null
SELECT t.brief(1), t.brief(2);
SELECT message FROM t.alerts();
-- a rule ends the run, and a pause takes that back: it waits again
SELECT t.clean() \g /dev/null
SELECT t.workflow('beside', '{"m": {"agent": "inventory", "call": {}, "each": "{{input.items}}", "concurrency": 1, "on_failure": "pause_at_end", "recovery": {"max_failures": 1}, "undo": {"call": {"method": "DELETE", "path": "/{{steps.m.key}}"}}}, "b": {"agent": "payments", "call": {}, "on_failure": {"transient": "pause", "permanent": "compensate"}, "recovery": {"max_failures": 1}}}') \g /dev/null
SELECT run_id FROM sas.submit('beside', '{"items": [1, 2]}');
SELECT t.work('{"m": "doubt", "b": "transient 503"}') \g /dev/null
SELECT changed FROM sas.resume(1);
SELECT t.settle() \g /dev/null
SELECT t.brief(1);
SELECT t.claim() \g /dev/null
SELECT t.answer('b', 'permanent 400') \g /dev/null
SELECT t.answer('m', 'hand_back') \g /dev/null
SELECT t.settle() \g /dev/null
SELECT t.brief(1);
SELECT changed FROM sas.pause(1);
SELECT t.brief(1);
SELECT changed FROM sas.resume(1);
SELECT t.work() \g /dev/null
SELECT t.brief(1);
SELECT * FROM t.left_over();

-- elements that have failed with their fallback go on with it, as many at once as ever; the map waits for them
SELECT t.clean() \g /dev/null
SELECT t.workflow('second', '{"m": {"agent": "inventory", "call": {}, "output": "first", "each": "{{input.items}}", "concurrency": 2, "on_failure": "pause_at_end", "fallback": {"agent": "payments", "call": {}, "output": "second"}}}') \g /dev/null
SELECT t.workflow('second_keyed', '{"m": {"agent": "inventory", "call": {}, "output": "first", "each": "{{input.items}}", "concurrency": {"limit": 2, "key": "{{item}}"}, "on_failure": "pause_at_end", "fallback": {"agent": "payments", "call": {}, "output": "second"}}}') \g /dev/null
SELECT run_id FROM sas.submit('second', '{"items": [1, 2, 3, 4, 5]}') UNION ALL SELECT run_id FROM sas.submit('second_keyed', '{"items": ["ann", "ann", "bob", "ann", "cy"]}');
SELECT t.work('{"m[2]": "permanent 400", "m[3]": "permanent 400", "m[4]": "permanent 400", "m.fallback": "permanent 400"}') \g /dev/null
SELECT t.brief(1), t.brief(2);
SELECT count(*) FROM sas.resume(1), sas.retry(2, 'm') WHERE retry.changed;
SELECT t.settle() \g /dev/null
SELECT t.brief(1), t.brief(2);
-- one fails again
SELECT t.work('{"m.fallback[3]": "permanent 400"}') \g /dev/null
SELECT t.brief(1), t.brief(2);
SELECT changed FROM sas.skip(1, 'm[3]');
SELECT changed FROM sas.resume(2);
SELECT t.work() \g /dev/null
SELECT t.brief(1), t.brief(2);
SELECT run_id, result, (SELECT s.output FROM sas.steps s WHERE s.run_id = r.run_id AND s.step = 'm' AND s.element IS NULL) AS output FROM sas.runs r ORDER BY 1;
SELECT * FROM t.left_over();

-- what has failed is settled by the name of the step, or one by one: the outputs of the others are kept, and the
-- run continues; so it does beside a step that still waits
SELECT t.clean() \g /dev/null
SELECT t.workflow('settled', '{"m": {"agent": "inventory", "call": {}, "output": "{{item}}", "each": "{{input.items}}", "on_failure": "pause_at_end"}, "z": {"function": "t.echo", "input": {"all": "{{steps.m.output}}"}}}') \g /dev/null
SELECT t.workflow('settled_beside', '{"m": {"agent": "inventory", "call": {}, "output": "{{item}}", "each": "{{input.items}}", "on_failure": "pause_at_end"}, "z": {"function": "t.echo", "input": {"all": "{{steps.m.output}}"}}, "b": {"wait": {"signal": "go"}}}') \g /dev/null
SELECT count(*) FROM generate_series(1, 3) n, LATERAL sas.submit('settled', '{"items": [1, 2, 3, 4]}', key => n::text);
SELECT run_id FROM sas.submit('settled_beside', '{"items": [1, 2, 3, 4]}');
SELECT t.work('{"m[2]": "permanent 400", "m[4]": "permanent 400"}') \g /dev/null
SELECT t.brief(1), t.brief(4);
SELECT step, changed, state, refused FROM sas.skip(1, 'm') ORDER BY 1;
SELECT step, changed, state, refused FROM sas.skip(2, 'm[2]');
SELECT step, changed, state, refused FROM sas.skip(2, 'm[4]');
SELECT step, changed, state, refused FROM sas.force_complete(3, 'm', '"by hand"') ORDER BY 1;
SELECT step, changed, state, refused FROM sas.skip(4, 'm') ORDER BY 1;
SELECT t.work() \g /dev/null
SELECT r.run_id, r.state, r.result, s.output FROM sas.runs r JOIN sas.steps s USING (run_id) WHERE s.step = 'z' ORDER BY 1;
SELECT sas.signal(4, 'go') \g /dev/null
SELECT t.work() \g /dev/null
SELECT t.brief(4);
SELECT * FROM t.alerts();
SELECT * FROM t.left_over();
-- another input is for one of them
SELECT t.clean() \g /dev/null
SELECT t.workflow('posted', '{"m": {"agent": "inventory", "call": {"method": "POST", "body": {"n": "{{item}}"}}, "each": "{{input.items}}", "on_failure": "pause_at_end"}}') \g /dev/null
SELECT run_id FROM sas.submit('posted', '{"items": [1, 2, 3, 4]}');
SELECT t.work('{"m[2]": "permanent 400", "m[4]": "permanent 400"}') \g /dev/null
SELECT step, changed, refused FROM sas.set_input(1, 'm', '{"n": 7}');
SELECT step, changed, refused FROM sas.skip(1, 'm[4]');
SELECT step, changed, refused FROM sas.set_input(1, 'm', '{"n": 7}');
SELECT step, changed FROM sas.retry(1, 'm') ORDER BY 1;
SELECT t.work() \g /dev/null
SELECT element, state, input FROM sas.steps WHERE element > 0 ORDER BY 1;
SELECT state, result FROM sas.runs;
SELECT * FROM t.left_over();

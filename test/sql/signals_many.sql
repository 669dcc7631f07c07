-- SPDX-License-Identifier: PostgreSQL
--
-- One run has thousands of waits and thousands of signals. To find out which wait gets which signal takes long; so a
-- tick that has found it gives out many of them, also if that took longer than a tick may take. (The bounds are wide:
-- a tick gives out what it can in 200 ms of processor time. One that gives out few needs thousands.)
SELECT t.clean() \g /dev/null
SELECT t.workflow('waits', '{"w": {"each": "{{input.list}}", "wait": {"signal": "go"}, "concurrency": 1000000}}') \g /dev/null
SELECT run_id FROM sas.submit('waits', jsonb_build_object('list', (SELECT jsonb_agg(true) FROM generate_series(1, 10000))));
SELECT t.settle() \g /dev/null
SELECT count(*) FROM _sas.step WHERE waiting_kind = 'signal';
SELECT count(*) FROM (SELECT sas.signal(1, 'go', to_jsonb(g)) FROM generate_series(1, 9000) g) x;
CREATE PROCEDURE t.give_out(OUT ticks int) LANGUAGE plpgsql AS $$
BEGIN
    ticks := 0;
    WHILE EXISTS (SELECT FROM _sas.signal) AND ticks < 200 LOOP
        PERFORM _sas.scheduler_tick(500);
        COMMIT;
        ticks := ticks + 1;
    END LOOP;
END $$;
CALL t.give_out(NULL) \gset
SELECT :ticks BETWEEN 1 AND 150 AS few_ticks;
SELECT state, count(*), bool_and(output = to_jsonb(element)) AS in_order FROM _sas.step WHERE element > 0 GROUP BY 1 ORDER BY 2;
SELECT t.clean() \g /dev/null
SELECT t.workflow('several', jsonb_build_object('w', jsonb_build_object('each', '{{input.list}}', 'concurrency', 1000000,
    'wait', jsonb_build_object('signal', (SELECT jsonb_agg('go' || n) FROM generate_series(0, 29) n))))) \g /dev/null
SELECT run_id AS run FROM sas.submit('several', jsonb_build_object('list', (SELECT jsonb_agg(true) FROM generate_series(1, 5000)))) \gset
SELECT t.settle() \g /dev/null
SELECT count(*) FROM _sas.step WHERE waiting_kind = 'signal';
SELECT count(*) FROM (SELECT sas.signal(:run, 'go0', to_jsonb(g)) FROM generate_series(1, 4500) g) x;
CALL t.give_out(NULL) \gset
SELECT :ticks BETWEEN 1 AND 150 AS few_ticks;
SELECT state, count(*), bool_and(output -> 'payload' = to_jsonb(element)) AS in_order FROM _sas.step WHERE element > 0 GROUP BY 1 ORDER BY 2;
SELECT t.clean() \g /dev/null
-- what gets a signal may make others wait, and those get theirs at once: what was matched before is matched again
SELECT t.workflow('chain', '{"a": {"wait": {"signal": "go"}}, "b": {"wait": {"signal": "go"}}, "c": {"wait": {"signal": "go"}},
    "d": {"after": ["a"], "wait": {"signal": ["go", "stay"]}}, "e": {"after": ["b"], "wait": {"signal": "go"}}}') \g /dev/null
SELECT run_id AS run FROM sas.submit('chain') \gset
SELECT t.settle() \g /dev/null
SELECT count(*) FROM (SELECT sas.signal(:run, 'go', to_jsonb(g)) FROM generate_series(1, 6) g) x;
SELECT t.settle() \g /dev/null
SELECT step, state, output FROM sas.steps WHERE run_id = :run ORDER BY step;
SELECT name, payload FROM _sas.signal;
SELECT t.clean() \g /dev/null

-- SPDX-License-Identifier: PostgreSQL
--
-- One run has thousands of waits and thousands of signals. To find out which wait gets which signal takes long; so a
-- tick that has found it gives out many of them.
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
SELECT :ticks BETWEEN 1 AND 40 AS few_ticks;
SELECT state, count(*), bool_and(output = to_jsonb(element)) AS in_order FROM _sas.step WHERE element > 0 GROUP BY 1 ORDER BY 2;
SELECT t.clean() \g /dev/null

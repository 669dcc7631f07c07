-- SPDX-License-Identifier: PostgreSQL
--
-- Timers of deadlines: a run that has long until its deadline gets one once it has lived for a minute. Nothing that is
-- open misses its deadline for it, and nothing is judged twice.
\set SHOW_CONTEXT never
SELECT t.clean() \g /dev/null
SELECT t.workflow('timed', '{"a": {"agent": "inventory", "call": {}, "undo": {"call": {}}}}') \g /dev/null
SELECT t.workflow('waiting', '{"a": {"function": "t.echo"}, "b": {"wait": {"signal": "go"}, "after": ["a"]}}') \g /dev/null

-- t.timers(): who has one, and for how long still
CREATE FUNCTION t.timers() RETURNS TABLE (run_id bigint, kind text, due interval) LANGUAGE sql AS $$
    SELECT d.run_id, d.kind, d.due_at - sas._now() FROM sas.due d WHERE d.actor = 'v' ORDER BY d.run_id, d.due_at
$$;
-- t.forgotten(): as after a restart: nobody knows how far it was looked
CREATE FUNCTION t.forgotten() RETURNS void LANGUAGE sql AS $$ SELECT sas._lower_front('y', 0, '-infinity') $$;

\echo at the submit only those get a timer that have less than five minutes
SELECT count(*) FROM sas.submit('timed');
SELECT count(*) FROM sas.submit('timed', deadline => '4 min 59 s');
SELECT count(*) FROM sas.submit('timed', deadline => '5 min');
SELECT count(*) FROM sas.submit_batch('timed', '{"{}", "{}"}');
SELECT * FROM t.timers();
\echo the supervisor looks within two minutes, whatever the interval
SELECT next_due - sas._now() AS next FROM sas._supervisor_tick(1, '{}', 0, 100);
SELECT t.later('59 s');
SELECT worked FROM sas._supervisor_tick(1, '{}', 0, 100);
SELECT * FROM t.timers();
\echo after a minute all that are open have theirs, whoever has ended none
SELECT t.claim() \g /dev/null
SELECT changed FROM sas.halt(4);
SELECT t.later('1 s');
SELECT next_due - sas._now() AS next FROM sas._supervisor_tick(1, '{1}', 1, 100);
SELECT * FROM t.timers();
SELECT worked FROM sas._supervisor_tick(1, '{1}', 1, 100);
SELECT count(*) FROM t.timers();
\echo a run that ends takes its timer with it
SELECT changed FROM sas.halt(1);
SELECT * FROM t.timers();

\echo a younger run does not keep an older one waiting, and an older one that is told of later is not passed by
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('timed');
SELECT t.later('50 s');
SELECT run_id FROM sas.submit('timed');
SELECT t.later('10 s');
SELECT next_due - sas._now() AS next FROM sas._supervisor_tick(1, '{}', 0, 100);
SELECT * FROM t.timers();
SELECT t.later('50 s'), worked FROM sas._supervisor_tick(1, '{}', 0, 100) \g /dev/null
SELECT worked FROM sas._supervisor_tick(1, '{}', 0, 100);
SELECT * FROM t.timers();

\echo where nobody has looked until the deadline was over, it is judged in the same turn, once
SELECT t.clean() \g /dev/null
SELECT count(*) FROM sas.submit_batch('timed', '{"{}", "{}", "{}"}', deadline => '10 min');
SELECT count(*) FROM sas.submit('waiting', deadline => '10 min');
SELECT t.claim() \g /dev/null
SELECT run_id, changed FROM sas.pause(2);
SELECT t.later('1 h'), t.settle() \g /dev/null
SELECT run_id, state, result FROM sas.runs ORDER BY 1;
SELECT run_id, kind, occurrences FROM t.alerts();
SELECT t.forgotten(), t.settle() \g /dev/null
SELECT t.forgotten(), t.settle() \g /dev/null
SELECT run_id, state, result FROM sas.runs ORDER BY 1;
SELECT run_id, kind, occurrences FROM t.alerts();
SELECT * FROM t.timers();

\echo what an operator gives more time has it, and no second timer
SELECT t.clean() \g /dev/null
SELECT t.workflow('again', '{"a": {"agent": "inventory", "call": {}}}', '{"on_failure": {"permanent": "pause"}, "deadline": "10 min"}') \g /dev/null
SELECT run_id FROM sas.submit('again');
SELECT t.later('10 min'), t.settle() \g /dev/null
SELECT state, paused_for FROM sas.runs;
SELECT changed FROM sas.resume(1);
SELECT * FROM t.timers();
SELECT t.forgotten(), t.settle() \g /dev/null
SELECT * FROM t.timers();
SELECT t.later('10 min'), t.settle() \g /dev/null
SELECT state, paused_for FROM sas.runs;

\echo open runs are counted whether they have a timer or not
SELECT t.clean() \g /dev/null
SELECT count(*) FROM sas.submit_batch('waiting', ARRAY(SELECT '{}'::jsonb FROM generate_series(1, 7)));
SELECT t.work() \g /dev/null
SELECT changed FROM sas.halt(7);
SELECT (SELECT runs_open FROM sas.health()), (SELECT count(*) FROM t.timers()) AS timers;
SELECT t.later('1 min'), t.settle() \g /dev/null
SELECT (SELECT runs_open FROM sas.health()), (SELECT count(*) FROM t.timers()) AS timers;

\echo how far it was looked survives, in steps of ten thousand
SELECT t.clean() \g /dev/null
SELECT count(*) FROM sas.submit_batch('timed', ARRAY(SELECT '{}'::jsonb FROM generate_series(1, 25000)));
SELECT t.later('1 min');
-- a thousand in each transaction
CREATE PROCEDURE t.look() LANGUAGE plpgsql AS $$
BEGIN
    -- somebody else in the cluster may have begun before
    FOR n IN 1..10000 LOOP
        EXIT WHEN (SELECT worked FROM sas._supervisor_tick(1, '{}', 0, 100)) = 0 AND NOT EXISTS (SELECT FROM sas.timed WHERE until_xid IS NOT NULL);
        COMMIT;
        PERFORM pg_sleep(0.001);
    END LOOP;
END $$;
SELECT worked, upto, next_upto FROM sas._supervisor_tick(1, '{}', 0, 100) LEFT JOIN sas.timed ON true;
CALL t.look();
SELECT (SELECT count(*) FROM t.timers()) AS timers, upto BETWEEN 10001 AND 25001 AS upto, until_xid IS NULL AS settled FROM sas.timed;
\echo and from there on it is looked again after a restart
DELETE FROM sas.due WHERE run_id IN (SELECT upto - 1 FROM sas.timed) OR run_id IN (SELECT upto FROM sas.timed) OR run_id = 25000;
SELECT t.forgotten() \g /dev/null
CALL t.look();
SELECT run_id - upto AS beyond FROM sas.timed, LATERAL (SELECT run_id FROM sas.run EXCEPT SELECT run_id FROM t.timers()) r;

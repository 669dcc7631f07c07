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
    SELECT d.run_id, d.kind, d.due_at - sas.now() FROM _sas.message d WHERE d.actor = 'v' ORDER BY d.run_id, d.due_at
$$;
-- t.set_timers(): one step from the beginning, and then when to look again
CREATE FUNCTION t.set_timers() RETURNS interval LANGUAGE sql AS $$ SELECT next_look - sas.now() FROM _sas.set_timers(NULL, NULL, NULL) $$;
-- t.sweep(): whole sweeps, until nothing is left to be settled: somebody else in the cluster may have begun before
CREATE PROCEDURE t.sweep() LANGUAGE plpgsql AS $$
DECLARE
    w record;
BEGIN
    SELECT NULL::bigint AS at, NULL::bigint AS again, NULL::bigint AS settles INTO w;
    FOR n IN 1..10000 LOOP
        SELECT * INTO w FROM _sas.set_timers(w.at, w.again, w.settles);
        COMMIT;
        EXIT WHEN NOT w.more AND w.settles IS NULL AND NOT EXISTS (SELECT FROM _sas.deadline_sweep WHERE until_xid IS NOT NULL);
        PERFORM pg_sleep(0.001) WHERE NOT w.more;
    END LOOP;
END $$;

\echo at the submit only those get a timer that have less than five minutes
SELECT count(*) FROM sas.submit('timed');
SELECT count(*) FROM sas.submit('timed', deadline => '4 min 59 s');
SELECT count(*) FROM sas.submit('timed', deadline => '5 min');
SELECT count(*) FROM sas.submit_batch('timed', '{"{}", "{}"}');
SELECT * FROM t.timers();
\echo the supervisor looks within two minutes, whatever the interval
SELECT t.set_timers();
SELECT t.later('59 s');
SELECT t.set_timers();
SELECT * FROM t.timers();
\echo after a minute all that are open have theirs, whoever has ended none
SELECT t.claim() \g /dev/null
SELECT changed FROM sas.halt(4);
SELECT t.later('1 s');
SELECT t.set_timers();
SELECT * FROM t.timers();
SELECT t.set_timers();
SELECT count(*) FROM t.timers();
\echo a run that ends takes its timer with it
SELECT changed FROM sas.halt(1);
SELECT * FROM t.timers();

\echo a younger run does not keep an older one waiting
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('timed');
SELECT t.later('50 s');
SELECT run_id FROM sas.submit('timed');
SELECT t.later('10 s');
SELECT t.set_timers();
SELECT * FROM t.timers();
SELECT t.later('50 s');
SELECT t.set_timers();
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
SELECT t.settle() \g /dev/null
SELECT t.settle() \g /dev/null
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
SELECT t.settle() \g /dev/null
SELECT * FROM t.timers();
SELECT t.later('10 min'), t.settle() \g /dev/null
SELECT state, paused_for FROM sas.runs;

\echo a timer that was put off is one, whatever it is put off for
SELECT t.clean() \g /dev/null
SELECT count(*) FROM sas.submit_batch('timed', '{"{}", "{}"}', deadline => '10 min');
SELECT t.later('1 min'), t.set_timers() \g /dev/null
SELECT t.later('9 min') \g /dev/null
UPDATE _sas.message SET due_at = sas.now() + CASE run_id WHEN 1 THEN interval '250 ms' ELSE '1 min' END WHERE actor = 'v';
SELECT t.set_timers();
SELECT * FROM t.timers();
\echo a second one would change nothing, and nobody hears of it again
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('timed', deadline => '10 min');
SELECT run_id FROM sas.submit('again');
SELECT run_id FROM sas.submit('again');
SELECT t.claim() \g /dev/null
SELECT changed FROM sas.pause(3);
SELECT t.later('1 min'), t.set_timers() \g /dev/null
SELECT t.later('9 min'), t.supervise() \g /dev/null
SELECT run_id, state, paused_for FROM sas.runs ORDER BY 1;
SELECT * FROM t.alerts();
INSERT INTO _sas.message (actor, due_at, run_id, kind) SELECT 'v', sas.now(), g, 'deadline' FROM generate_series(1, 3) g;
SELECT t.supervise() \g /dev/null
SELECT run_id, state, paused_for FROM sas.runs ORDER BY 1;
SELECT * FROM t.alerts();
SELECT t.set_timers();
SELECT * FROM t.timers();
\echo nor does it end what has another deadline by now
SELECT changed FROM sas.resume(2);
INSERT INTO _sas.message (actor, due_at, run_id, kind) SELECT 'v', sas.now(), 2, 'deadline';
SELECT t.supervise() \g /dev/null
SELECT state FROM sas.runs WHERE run_id = 2;
SELECT changed FROM sas.pause(2);
\echo but of what is not undone by then an operator hears, once
SELECT t.later('1 h'), t.supervise() \g /dev/null
INSERT INTO _sas.message (actor, due_at, run_id, kind) SELECT 'v', sas.now(), g, 'deadline' FROM generate_series(1, 3) g;
SELECT t.supervise(), t.set_timers();
SELECT * FROM t.alerts();
SELECT * FROM t.timers();
\echo also where an operator was told before, and the run has gone on since
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('timed', deadline => '10 min');
SELECT t.claim() \g /dev/null
SELECT changed FROM sas.pause(1);
SELECT t.later('1 min'), t.set_timers() \g /dev/null
SELECT t.later('9 min'), t.supervise() \g /dev/null
SELECT * FROM t.alerts();
SELECT t.later('1 min') \g /dev/null
SELECT changed FROM sas.resume(1);
SELECT t.supervise() \g /dev/null
SELECT run_id, state FROM sas.runs;
SELECT * FROM t.alerts();
SELECT t.later('59 min'), t.supervise() \g /dev/null
SELECT * FROM t.alerts();
\echo and not before, where the undo fails for good
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('timed', deadline => '10 min');
SELECT t.claim() \g /dev/null
SELECT t.later('1 min'), t.set_timers() \g /dev/null
SELECT t.later('9 min'), t.supervise() \g /dev/null
SELECT t.answer('a') \g /dev/null
SELECT t.settle() \g /dev/null
SELECT t.claim() \g /dev/null
SELECT t.answer('a', 'permanent') \g /dev/null
SELECT t.settle() \g /dev/null
SELECT run_id, state FROM sas.runs;
SELECT t.set_timers();
SELECT t.supervise() \g /dev/null
SELECT kind, occurrences FROM t.alerts();
SELECT * FROM t.timers();
\echo not where nobody looked until it was too late for that
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('timed', deadline => '10 min');
SELECT t.claim() \g /dev/null
SELECT t.later('1 min'), t.set_timers() \g /dev/null
SELECT t.later('3 h'), t.supervise() \g /dev/null
SELECT run_id, state, paused_for FROM sas.runs;
SELECT t.set_timers();
SELECT t.supervise() \g /dev/null
SELECT * FROM t.alerts();
SELECT * FROM t.timers();

\echo open runs are counted whether they have a timer or not
SELECT t.clean() \g /dev/null
SELECT count(*) FROM sas.submit_batch('waiting', ARRAY(SELECT '{}'::jsonb FROM generate_series(1, 7)));
SELECT t.work() \g /dev/null
SELECT changed FROM sas.halt(7);
SELECT (SELECT runs_open FROM sas.health()), (SELECT count(*) FROM t.timers()) AS timers;
SELECT t.later('1 min'), t.settle() \g /dev/null
SELECT (SELECT runs_open FROM sas.health()), (SELECT count(*) FROM t.timers()) AS timers;

\echo a run of the future, as after a clock that was wrong, keeps nobody waiting
SELECT t.clean() \g /dev/null
SELECT t.later('1 day') \g /dev/null
SELECT run_id FROM sas.submit('timed');
SELECT t.later('-1 day') \g /dev/null
SELECT run_id FROM sas.submit('timed');
SELECT t.later('1 min'), t.set_timers() \g /dev/null
SELECT * FROM t.timers();
SELECT t.clean() \g /dev/null

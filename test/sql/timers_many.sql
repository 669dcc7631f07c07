-- SPDX-License-Identifier: PostgreSQL
--
-- Long. Sweeps over tens of thousands of runs; goes on with what timers has made.
\set SHOW_CONTEXT never
\echo how far it was looked survives, in steps of ten thousand
SELECT t.clean() \g /dev/null
SELECT count(*) FROM sas.submit_batch('timed', ARRAY(SELECT '{}'::jsonb FROM generate_series(1, 25000)));
SELECT t.later('1 min');
SELECT more, at FROM _sas.set_timers(NULL, NULL, NULL);
SELECT (SELECT count(*) FROM t.timers()) AS timers, upto FROM _sas.run_run_id_seq LEFT JOIN _sas.deadline_sweep ON true;
CALL t.sweep();
SELECT (SELECT count(*) FROM t.timers()) AS timers, upto, until_xid IS NULL AS settled FROM _sas.deadline_sweep;
\echo whoever looks anew begins there
SELECT run_id FROM sas.submit('timed');
SELECT t.later('1 min');
DELETE FROM _sas.message WHERE run_id = 25000;
SELECT more, at FROM _sas.set_timers(NULL, NULL, NULL);
SELECT run_id FROM _sas.run EXCEPT SELECT run_id FROM t.timers();
\echo unless numbers have begun anew
TRUNCATE _sas.run, _sas.ready, _sas.message RESTART IDENTITY;
SELECT run_id FROM sas.submit('timed');
SELECT t.later('1 min');
SELECT more, at FROM _sas.set_timers(NULL, NULL, NULL);
SELECT more, at FROM _sas.set_timers(NULL, NULL, NULL);
SELECT * FROM t.timers();

\echo a number that a session has kept for long is found though all beyond it is settled
SELECT t.clean() \g /dev/null
SELECT setval('_sas.run_run_id_seq', 100) \g /dev/null
SELECT count(*) FROM sas.submit_batch('timed', ARRAY(SELECT '{}'::jsonb FROM generate_series(1, 11000)));
SELECT t.later('1 min');
CALL t.sweep();
SELECT upto FROM _sas.deadline_sweep;
SELECT setval('_sas.run_run_id_seq', 5) \g /dev/null
SELECT run_id FROM sas.submit('timed');
SELECT setval('_sas.run_run_id_seq', 20000) \g /dev/null
SELECT t.later('1 min');
CALL t.sweep();
SELECT * FROM t.timers() WHERE run_id < 100;

\echo a sweep that is beyond the ids that the server gives out now, since its node changed, finds these all the same
SELECT t.clean() \g /dev/null
SET sas.node_id = 5;
SELECT count(*) FROM sas.submit_batch('timed', ARRAY(SELECT '{}'::jsonb FROM generate_series(1, 11000)));
SELECT t.later('1 min');
CALL t.sweep();
SELECT upto >> 41 AS node, upto & 2199023255551 AS n FROM _sas.deadline_sweep;
SET sas.node_id = 2;
SELECT run_id >> 41 AS node FROM sas.submit('timed');
SELECT t.later('1 min');
-- as after a crash: nothing is noted of it
SELECT _sas.take_noted_untimed() IS NOT NULL AS noted;
CALL t.sweep();
SELECT run_id & 2199023255551 AS n FROM t.timers() WHERE run_id >> 41 = 2;
SELECT count(*) FROM t.timers();
SELECT upto >> 41 < 5 AS not_beyond FROM _sas.deadline_sweep;
RESET sas.node_id;

\echo a sweep comes to its end though it is told of something before it again and again
SELECT t.clean() \g /dev/null
SELECT count(*) FROM sas.submit_batch('timed', ARRAY(SELECT '{}'::jsonb FROM generate_series(1, 5000)));
SELECT t.later('1 min');
CREATE TABLE t.sweep AS SELECT 0 AS n, NULL::bigint AS at, NULL::bigint AS again, NULL::bigint AS settles, true AS more;
CREATE FUNCTION t.step() RETURNS TABLE (at bigint, again bigint, more boolean) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM _sas.lower_low_water('y', 0, 0, '-infinity');
    UPDATE t.sweep w SET (at, again, settles, more, n) = (SELECT x.at, x.again, x.settles, x.more, w.n + 1 FROM _sas.set_timers(w.at, w.again, w.settles) x);
    RETURN QUERY SELECT w.at, w.again, w.more FROM t.sweep w;
END $$;
SELECT * FROM t.step();
SELECT * FROM t.step();
SELECT * FROM t.step();
SELECT count(*) FROM t.timers();
SELECT t.clean() \g /dev/null

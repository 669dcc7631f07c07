-- SPDX-License-Identifier: PostgreSQL
--
-- Owners take turns in messages and in schedules that are due: what one role has due delays nobody else.
SELECT t.clean() \g /dev/null
SELECT t.workflow('message_turn', '{"a": {"wait": {"for": "1 min"}}}') \g /dev/null
CREATE ROLE sas_test_message_a;
CREATE ROLE sas_test_message_b;
SELECT sas.grant_usage(r::regrole, 'user') FROM unnest('{sas_test_message_a,sas_test_message_b}'::text[]) r \g /dev/null
SELECT sas.grant_workflow('message_turn', r::regrole) FROM unnest('{sas_test_message_a,sas_test_message_b}'::text[]) r \g /dev/null
-- t.waiting(owner, n): so many runs of that role, whose timers are due in a minute
CREATE FUNCTION t.waiting(owner text, n int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    made bigint;
BEGIN
    PERFORM set_config('role', 'sas_test_message_' || owner, true);
    SELECT count(*) INTO made FROM sas.submit_batch('message_turn', ARRAY(SELECT '{}'::jsonb FROM generate_series(1, n)));
    PERFORM set_config('role', 'none', true);
    RETURN made;
END $$;
-- t.take(n): whose messages the next tick takes, of which kinds, and of which runs
CREATE FUNCTION t.take(n int, OUT whose text, OUT kind text, OUT runs text) RETURNS SETOF record LANGUAGE sql AS $$
    SELECT d.owner::text, d.kind, string_agg(d.run_id::text, ' ' ORDER BY d.run_id) FROM _sas.take_messages('s', $1) d GROUP BY 1, 2 ORDER BY 1, 2
$$;

\echo a message has the owner of its run, or the bootstrap superuser
SELECT t.waiting('a', 50), t.waiting('b', 1) \g /dev/null
SELECT t.settle() \g /dev/null
SELECT d.kind, d.owner, count(*) FROM _sas.message d WHERE d.actor = 's' GROUP BY 1, 2 ORDER BY 1, 2;
INSERT INTO _sas.message (actor, due_at, run_id, kind) VALUES ('v', sas.now() + interval '1 day', 0, 'alert_hook') RETURNING owner::oid;
SELECT count(*) AS of_another FROM _sas.message d JOIN _sas.run r USING (run_id) WHERE d.owner <> r.owner;
\echo the timer of one role is in the first tick beside fifty of another one
SELECT t.later('1 min') \g /dev/null
SELECT * FROM t.take(10);
\echo whoever is alone has all of it, the earliest first
UPDATE _sas.message SET due_at = due_at - interval '1 s' WHERE run_id = 50;
SELECT * FROM t.take(10);
\echo what an operator or a user waits for comes before the other messages of its owner
INSERT INTO _sas.message (actor, due_at, run_id, kind) SELECT 's', sas.now(), 49, k FROM unnest('{halt,signal}'::text[]) k;
SELECT * FROM t.take(10);
\echo with more owners than a tick takes, everybody has had a turn before anybody has a second one
INSERT INTO _sas.message (actor, due_at, run_id, kind, owner) SELECT 's', sas.now() - g * interval '1 s', 1, 'start', (100000 + g % 50)::oid FROM generate_series(1, 200) g;
DELETE FROM _sas.message WHERE actor = 's' AND kind = 'timer';
CREATE FUNCTION t.served(ticks int) RETURNS TABLE (owners bigint, times bigint) LANGUAGE plpgsql AS $$
BEGIN
    CREATE TEMP TABLE served (owner oid);
    FOR tick IN 1 .. ticks LOOP
        INSERT INTO served SELECT d.owner FROM _sas.take_messages('s', 10) d;
    END LOOP;
    RETURN QUERY SELECT count(*), s.n FROM (SELECT count(*) AS n FROM served GROUP BY owner) s GROUP BY s.n;
    DROP TABLE served;
END $$;
SELECT * FROM t.served(5);
SELECT * FROM t.served(10);
\echo leases that are to be taken back likewise
SELECT t.clean() \g /dev/null
SELECT t.waiting('a', 20), t.waiting('b', 1) \g /dev/null
INSERT INTO _sas.lease (boot, worker_id, locked_by, next_by, run_ids, step_nos, elements)
SELECT 0, 0, 'x', sas.now() - interval '1 min' + r.run_id * interval '1 s', ARRAY[r.run_id], '{1}', '{0}' FROM _sas.run r;
SELECT r.owner, count(*) FROM unnest(_sas.lock_judged(1, '{}', 1, sas.now(), 10)) l JOIN _sas.run r ON r.run_id = l.run_ids[1] GROUP BY 1 ORDER BY 1;
\echo of a worker that is gone, all but what was set aside for a second
TRUNCATE _sas.lease;
INSERT INTO _sas.lease (boot, worker_id, locked_by, next_by, run_ids, step_nos, elements)
SELECT 1, w, 'x', sas.now() + s * interval '1 s', '{1}', '{1}', '{0}' FROM unnest('{5,6}'::int[]) w, unnest('{1,2}'::int[]) s;
SELECT l.worker_id, l.next_by - sas.now() AS due FROM unnest(_sas.lock_judged(1, '{6}', 7, sas.now(), 10)) l;
\echo items likewise, a task at a time, too
INSERT INTO _sas.watch_work (due_at, watch_id, owner) SELECT sas.now() - interval '1 min' + g * interval '1 s', g, 'sas_test_message_a' FROM generate_series(1, 20) g;
INSERT INTO _sas.watch_work (due_at, watch_id, owner) VALUES (sas.now(), 21, 'sas_test_message_b');
SELECT count(*) AS tasks, min(place) FILTER (WHERE watch_id = 21) <= 2 AS soon FROM _sas.due_tasks(10, sas.now());
SELECT t.watch_id = 21 AS first FROM _sas.due_tasks(1, sas.now()) t ORDER BY place LIMIT 1;
DELETE FROM _sas.watch_work;
DELETE FROM _sas.lease;
\echo schedules likewise
SELECT t.clean() \g /dev/null
CREATE FUNCTION t.plan(owner text, n int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('role', 'sas_test_message_' || owner, true);
    PERFORM sas.schedule(format('message_%s_%s', owner, g), 'every 1 min', 'message_turn') FROM generate_series(1, n) g;
    PERFORM set_config('role', 'none', true);
END $$;
SELECT t.plan('a', 50), t.plan('b', 1) \g /dev/null
UPDATE _sas.schedule SET due_at = due_at + interval '1 s' WHERE owner = 'sas_test_message_b'::regrole;
SELECT t.later('2 min') \g /dev/null
SELECT worked FROM _sas.fire_schedules(10);
SELECT r.owner, count(*) FROM _sas.run r GROUP BY 1 ORDER BY 1;
\echo and those that a function worker plans, one by one
INSERT INTO _sas.schedule_plan (schedule_id, instant, owner, offered, due_at)
SELECT s.schedule_id, _sas.make_instant(s.schedule_id, sas.now()), s.owner, true, sas.now() + s.schedule_id * interval '1 s' FROM _sas.schedule s;
CREATE FUNCTION t.plan_next() RETURNS regrole LANGUAGE sql AS $$
    DELETE FROM _sas.schedule_plan WHERE worker_id IS NOT NULL;
    SELECT c.owner::regrole FROM _sas.claim_plan(1, 1) c
$$;
SELECT t.plan_next();
SELECT t.plan_next();
SELECT t.plan_next();

SELECT t.clean() \g /dev/null
DROP FUNCTION t.waiting, t.take, t.served, t.plan, t.plan_next;
SELECT sas.drop_workflow('message_turn') \g /dev/null
DROP OWNED BY sas_test_message_a, sas_test_message_b;
DROP ROLE sas_test_message_a, sas_test_message_b;

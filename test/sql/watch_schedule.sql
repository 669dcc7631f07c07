-- SPDX-License-Identifier: PostgreSQL
--
-- Infinite tasks that name a schedule: when they look, under a frozen clock.
\set SHOW_CONTEXT never
SELECT t.clean(), t.watching() \g /dev/null
SET timezone = 'Europe/London';
\echo what is refused, and where
CREATE FUNCTION t.refused_look(definition jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    detail text;
    hint text;
BEGIN
    PERFORM sas.create_watcher('wrong', definition);
    RETURN 'taken';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN concat_ws(' | ', SQLSTATE, SQLERRM, detail, hint);
END $$;
SELECT t.refused_look('{"function": "t.echo"}'::jsonb || jsonb_build_object('schedule', s::jsonb)) FROM unnest(ARRAY['"@daily"', '{}', '{"spec": 5}', '{"spec": "0 0 32 * *"}', '{"spec": "0 0 30 2 *"}', '{"spec": "every 100 ms"}', '{"spec": "@daily", "timezone": "Mars/Olympus"}', '{"spec": "@daily", "timezone": 7}', '{"spec": "@daily", "jitter": "2 days"}', '{"spec": "@daily", "jitter": "soon"}', '{"spec": "@daily", "at": 7}', 'null']) s;
SELECT t.refused_look('{"function": "t.echo", "every": "1 s", "schedule": {"spec": "@daily"}}');
SELECT t.refused_look('{"agent": "feed", "poll": {"call": {"path": "/"}, "every": "1 s", "schedule": {"spec": "@daily"}}, "items": {"function": "t.take_items"}}');
SELECT t.refused_look('{"agent": "feed", "poll": {"call": {"path": "/"}, "schedule": {"spec": "* * * * MOO"}}, "items": {"function": "t.take_items"}}');
SELECT t.refused_look('{"agent": "feed", "poll": {"call": {"path": "/"}}, "schedule": {"spec": "@daily"}, "items": {"function": "t.take_items"}}');
SELECT t.refused_look('{"agent": "host", "external": {}, "schedule": {"spec": "@daily"}, "items": {"function": "t.take_items"}}');
\echo the zone of the session is kept
SELECT sas.create_watcher('nightly', '{"agent": "feed", "poll": {"call": {"path": "/stock"}, "schedule": {"spec": "30 2 * * MON-FRI", "timezone": "America/New_York"}}, "items": {"function": "t.take_items"}, "retry": {"jitter": false}}');
SELECT sas.create_watcher('hourly', '{"function": "t.echo", "schedule": {"spec": " 0 * * * * "}, "retry": {"jitter": false}}');
SELECT definition -> 'schedule' AS at_top, definition #> '{poll,schedule}' AS in_poll FROM sas.watchers WHERE watcher IN ('hourly', 'nightly') ORDER BY watcher;
\echo t.host: what the host is told; t.look: it asks for what is next, and has made its look, or not
CREATE FUNCTION t.next(at timestamptz) RETURNS text LANGUAGE sql AS $$ SELECT to_char(at AT TIME ZONE 'UTC', 'Dy YYYY-MM-DD HH24:MI:SS"Z"') $$;
CREATE FUNCTION t.look(node text, looked boolean) RETURNS TABLE (key text, wait_ms float8, next text) LANGUAGE sql AS $$
    SELECT w.key, r.wait_ms, t.next(r.next_at) FROM _sas.watch w JOIN _sas.watch_held h USING (watch_id), _sas.watch_requests(t.node_id(node), ARRAY[w.watch_id], ARRAY[h.epoch], ARRAY[looked]) r WHERE h.node_id = t.node_id(node) ORDER BY 1
$$;
\echo weekdays at half past two in New York; on the day of the change in March there is no such time
SELECT t.set_clock('2026-03-05 12:00+00');
SELECT t.node('a');
SELECT sas.watch('nightly', 'one');
SELECT t.settle() \g /dev/null
SELECT t.next(c.next_at), c.wait_ms FROM _sas.claim_watches(t.node_id('a'), 10) c;
SELECT * FROM t.look('a', true);
SELECT t.next(next_at) FROM sas.watches;
SELECT t.set_clock('2026-03-06 07:30:01+00');
SELECT * FROM t.look('a', false);
SELECT * FROM t.look('a', true);
SELECT sas.create_watcher('nightly', '{"agent": "feed", "poll": {"call": {"path": "/stock"}, "schedule": {"spec": "30 2 * * *", "timezone": "America/New_York"}}, "items": {"function": "t.take_items"}, "retry": {"jitter": false}}');
SELECT t.news('a');
SELECT * FROM t.look('a', false);
SELECT t.set_clock('2026-03-07 12:00+00');
SELECT * FROM t.look('a', true);
SELECT t.set_clock('2026-03-08 07:00:00+00');
SELECT * FROM t.look('a', true);
\echo the clock is set back: no look is made twice
SELECT t.set_clock('2026-03-08 06:00:00+00');
SELECT * FROM t.look('a', true);
\echo a look that fails is repeated as after any failure, and is still that look
SELECT t.set_clock('2026-03-09 06:30:00+00');
SELECT t.lose('a', 'one');
SELECT * FROM t.look('a', false);
SELECT t.later('1 s');
SELECT * FROM t.look('a', false);
SELECT * FROM t.look('a', true);
\echo its host is gone for three days: the look is made once, as soon as another has it
SELECT t.set_clock('2026-03-10 18:30:01+00');
UPDATE t.worker SET alive = false WHERE name = 'a';
SELECT t.settle() \g /dev/null
SELECT t.later('2 days'), t.node('b');
SELECT t.settle() \g /dev/null
SELECT t.next(c.next_at), t.next(sas.now()) FROM _sas.claim_watches(t.node_id('b'), 10) c;
SELECT * FROM t.look('b', true);
\echo what lies in a pause is not made up for
SELECT sas.pause_watch('nightly', '{one}');
SELECT t.settle() \g /dev/null
SELECT t.release('b', '{one}');
SELECT t.later('5 days'), t.settle() \g /dev/null
SELECT key, state, next_at FROM sas.watches;
SELECT sas.resume_watch('nightly', '{one}');
SELECT t.settle() \g /dev/null
SELECT t.next(sas.now()), t.next(c.next_at) FROM _sas.claim_watches(t.node_id('b'), 10) c;
\echo stopped, and started again under its key days later: it waits for its next instant, as one that is new
SELECT sas.unwatch('nightly', '{one}') \g /dev/null
SELECT t.settle(), t.release('b', '{one}'), t.settle(), t.later('4 days') \g /dev/null
SELECT created FROM sas.watch('nightly', 'one');
SELECT t.settle() \g /dev/null
SELECT t.next(sas.now()), t.next(c.next_at) FROM _sas.claim_watches(t.node_id('b'), 10) c;
SELECT sas.unwatch('nightly', '{one}') \g /dev/null
\echo functions
SELECT t.clean() \g /dev/null
SELECT t.set_clock('2026-03-05 12:10+00');
SELECT t.node('f', 10, 'function');
SELECT sas.watch('hourly', 'h');
SELECT t.settle() \g /dev/null
SELECT t.next(c.next_at) FROM _sas.claim_watches(t.node_id('f'), 10) c;
SELECT every_ms, t.next(next_at) FROM _sas.begin_invocation(1, 1, 1);
SELECT _sas.end_invocation(1, 1, 1, NULL);
SELECT t.next(next_at) AS too_soon FROM sas.watches;
SELECT t.set_clock('2026-03-05 13:00+00');
SELECT _sas.end_invocation(1, 1, 1, '{"at": 5}');
SELECT t.next(next_at) FROM sas.watches;
SELECT input, t.next(next_at) FROM _sas.begin_invocation(1, 1, 1);
SELECT t.set_clock('2026-03-05 17:30+00');
SELECT t.next(next_at) AS made_once FROM _sas.begin_invocation(1, 1, 1);
SELECT _sas.end_invocation(1, 1, 1, NULL);
SELECT t.next(next_at) FROM sas.watches;
\echo many tasks of one watcher are spread, always the same
SELECT sas.create_watcher('hourly', '{"function": "t.echo", "schedule": {"spec": "0 * * * *", "jitter": "10 min"}}');
SELECT count(sas.watch('hourly', 'k' || g)) FROM generate_series(1, 100) g;
SELECT t.settle() \g /dev/null
SELECT count(DISTINCT c.next_at) > 90 AS spread, min(c.next_at) >= '2026-03-05 18:00+00' AND max(c.next_at) < '2026-03-05 18:10+00' AS within FROM _sas.claim_watches(_sas.register_worker('function', 'm', 200, 1, t.worker('m')), 200) c;
SELECT t.clean() \g /dev/null
SELECT sas.drop_watcher(w) FROM unnest('{nightly,hourly}'::text[]) w;
DROP FUNCTION t.refused_look(jsonb), t.next(timestamptz), t.look(text, boolean);
RESET timezone;

-- SPDX-License-Identifier: PostgreSQL
--
-- Looks: when a task whose watcher has a schedule polls, or calls its function, next.

-- _sas.next_look(d, key, after): when a task polls next; null: it has no schedule.
CREATE FUNCTION _sas.next_look(d _sas.watcher, key text, after timestamptz) RETURNS timestamptz
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN d.spec IS NOT NULL
           THEN _sas.next_instant(d.spec, d.timezone, NULL, after - o.late) + o.late END
    FROM (SELECT _sas.schedule_offset(d.name || '/' || key, d.jitter) AS late) o
$$;

-- _sas.look_name(d): the schedule of a watcher as one text.
CREATE FUNCTION _sas.look_name(d _sas.watcher) RETURNS text
LANGUAGE sql STABLE AS $$ SELECT concat_ws(' ', d.spec, d.timezone, extract(epoch FROM d.jitter)) $$;

-- _sas.is_next_look(d, w, f): is next_at valid? It is not after a change of the schedule, nor if it lies in
-- a pause, because instants in a pause are not made up for.
CREATE FUNCTION _sas.is_next_look(d _sas.watcher, w _sas.watch, f _sas.watch_flow) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT f.next_at IS NOT NULL AND f.next_by = _sas.look_name(d)
        AND coalesce(f.next_at > w.resumed_at, true)
$$;

-- _sas.next_looks(ids, looked): when these tasks poll next, by position; null: they have no schedule.
-- looked: they have made the poll that was due; instants that came meanwhile are skipped. New instants are
-- stored, except in rows that another transaction has locked; the host knows them even so.
-- Writes: watch_flow.
CREATE FUNCTION _sas.next_looks(ids bigint[], looked boolean[]) RETURNS timestamptz[]
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas.now();
    due bigint[];
    answer timestamptz[];
BEGIN
    SELECT array_agg(CASE WHEN d.spec IS NULL THEN NULL WHEN k.keeps THEN f.next_at
                          ELSE _sas.next_look(d, w.key, now) END ORDER BY u.n),
        array_agg(u.id) FILTER (WHERE d.spec IS NOT NULL AND NOT k.keeps)
    INTO answer, due
    FROM unnest(ids, looked) WITH ORDINALITY AS u (id, looked, n)
    JOIN _sas.watch w ON w.watch_id = u.id JOIN _sas.watcher d USING (watcher_id)
    JOIN _sas.watch_flow f ON f.watch_id = u.id
    CROSS JOIN LATERAL (SELECT _sas.is_next_look(d, w, f)
                        AND NOT coalesce(u.looked AND f.next_at <= now, false) AS keeps) k;
    IF due IS NOT NULL THEN
        UPDATE _sas.watch_flow f SET next_at = _sas.next_look(d, w.key, now), next_by = _sas.look_name(d)
        FROM (SELECT x.watch_id FROM _sas.watch_flow x WHERE x.watch_id = ANY (due)
              ORDER BY x.watch_id FOR NO KEY UPDATE SKIP LOCKED) free
        JOIN _sas.watch w ON w.watch_id = free.watch_id JOIN _sas.watcher d USING (watcher_id)
        WHERE f.watch_id = free.watch_id;
    END IF;
    RETURN answer;
END $$;

-- SPDX-License-Identifier: PostgreSQL
--
-- Elements: a map does its work for every element of an array; a step with "repeat" does it iteration after
-- iteration. Each element, or iteration, is a step with a row, a key, retries and an undo of its own.
-- Element 0 is the step as a whole; it is suspended until the last element has ended. The caller of each
-- function holds the lock of the runs.

-- _sas.map_width(): how many elements of a map without "concurrency" are ready or running at the same time.
CREATE FUNCTION _sas.map_width() RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT 1000 $$;

-- _sas.most_elements(): how many elements a map may have: their outputs are put into one array, in one tick.
CREATE FUNCTION _sas.most_elements() RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT 100000 $$;

-- _sas.map_limit(shape): how many elements of this map may be ready or running at the same time.
-- "concurrency" is a number, or {limit, key, per_key}.
CREATE FUNCTION _sas.map_limit(shape jsonb) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT coalesce(CASE jsonb_typeof(shape -> 'concurrency')
                    WHEN 'object' THEN shape #>> '{concurrency,limit}'
                    ELSE shape ->> 'concurrency' END::bigint,
                    _sas.map_width())
$$;

-- _sas.waiting_children(run_id, step_no): how many child runs of this map wait for a slot under their
-- concurrency key, at most map_width(): the map begins no more ahead. A child that has just stopped may
-- still have its row; it is counted as ended, so it does not count here.
CREATE FUNCTION _sas.waiting_children(run_id bigint, step_no int) RETURNS int
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT count(*)
            FROM (SELECT DISTINCT p.run_id FROM _sas.concurrency_slot p JOIN _sas.run c ON c.run_id = p.run_id
                  WHERE p.parent_run_id = $1 AND p.parent_step_no = $2 AND p.told
                      AND c.state = 'scheduled' LIMIT _sas.map_width()) w);
END $$;

-- _sas.room_of_map(for_run, for_no): how many more elements of this map may be in progress, without child
-- runs that wait for their concurrency key. A step that is no map has room. 0: another tick is changing the
-- map.
-- Locks: map_progress, until the transaction ends; so the room cannot become less.
CREATE FUNCTION _sas.room_of_map(for_run bigint, for_no int) RETURNS bigint
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM _sas.map_progress f WHERE f.run_id = for_run AND f.step_no = for_no
        FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN CASE WHEN EXISTS (SELECT FROM _sas.map_progress f
                                 WHERE f.run_id = for_run AND f.step_no = for_no) THEN 0
               ELSE 1000000 END;
    END IF;
    -- a statement of its own, which sees what was committed before the lock
    RETURN (SELECT _sas.map_limit(w.shape) - coalesce(f.open, f.fed - (f.total - f.remaining))
                + _sas.waiting_children(for_run, for_no)
            FROM _sas.map_progress f
            JOIN _sas.run r ON r.run_id = f.run_id
            JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = for_no AND NOT w.undo
            WHERE f.run_id = for_run AND f.step_no = for_no);
END $$;

-- _sas.has_parked(for_run, for_no): has this map a parked child run?
CREATE FUNCTION _sas.has_parked(for_run bigint, for_no int) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (SELECT FROM _sas.concurrency_slot p WHERE p.parent_run_id = for_run
                   AND p.parent_step_no = for_no AND p.told AND p.state = 'away');
END $$;

-- _sas.parked_children(for_run, for_no): the parked child runs of this map (_sas.past_maps) whose keys are
-- free now.
CREATE FUNCTION _sas.parked_children(for_run bigint, for_no int) RETURNS SETOF bigint
LANGUAGE sql STABLE AS $$
    SELECT x.run_id
    FROM (SELECT p.run_id, p.places, p.shared, held.n, held.alone,
              row_number() OVER (PARTITION BY p.owner, p.workflow_id, p.key ORDER BY p.run_id) AS nth
          FROM _sas.concurrency_slot p
          JOIN _sas.run c ON c.run_id = p.run_id AND c.state = 'scheduled'
          CROSS JOIN LATERAL (SELECT count(*) AS n, coalesce(bool_or(NOT h.shared), false) AS alone
                              FROM _sas.concurrency_slot h
                              WHERE h.owner = p.owner AND h.workflow_id = p.workflow_id AND h.key = p.key
                                  AND h.state = 'holds') held
          WHERE p.parent_run_id = for_run AND p.parent_step_no = for_no AND p.told AND p.state = 'away') x
    GROUP BY 1 HAVING bool_and(x.nth + x.n <= x.places OR x.shared AND NOT x.alone) ORDER BY 1
$$;

-- _sas.begin_parked(run_ids, step_nos): of the parked child runs of these maps whose key is free, as many as
-- the map has room for now enter the line again, and count against its limit.
-- Caller: a scheduler; holds the lock of the runs. Writes: concurrency_slot, message. Next: _sas.past_line.
CREATE FUNCTION _sas.begin_parked(run_ids bigint[], step_nos int[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    m record;
    children bigint[];
BEGIN
    FOR m IN SELECT DISTINCT u.run_id, u.step_no
             FROM unnest(run_ids, step_nos) AS u (run_id, step_no)
             JOIN _sas.run r ON r.run_id = u.run_id AND r.abandon_as IS NULL AND r.state <> 'paused'
             WHERE _sas.has_parked(u.run_id, u.step_no) ORDER BY 1, 2 LOOP
        -- waits only for a scheduler that is in the line, for a moment
        PERFORM FROM _sas.map_progress f WHERE f.run_id = m.run_id AND f.step_no = m.step_no
            FOR NO KEY UPDATE;
        children := ARRAY(SELECT c FROM _sas.parked_children(m.run_id, m.step_no) c
                          LIMIT greatest(_sas.room_of_map(m.run_id, m.step_no), 0));
        CONTINUE WHEN children = '{}';
        PERFORM _sas.send_for(children);
    END LOOP;
END $$;

-- _sas.release_elements(run_ids, step_nos, elements, of_room): makes as many elements ready as may be in
-- progress at the same time, and ends the steps that have no element left. Child runs that wait for their
-- concurrency key do not count; one whose key was free while there was no room comes before elements that
-- have not begun. elements: those that have just ended; null: unknown. At most map_width() elements of a map
-- become ready at once; if more may, a message to the scheduler continues; one after the other: those that
-- end meanwhile send none. of_room: this is that message. The messages of elements that are child runs are
-- written here: _sas.make_ready would look up their step for each of them.
-- Writes: map_progress, message. Wakes: the scheduler. Next: _sas.make_ready for the elements,
-- _sas.begin_steps for those that are child runs; _sas.count_elements when one of them has ended.
CREATE FUNCTION _sas.release_elements(run_ids bigint[], step_nos int[], elements int[] DEFAULT NULL,
                                      of_room boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    found record;
BEGIN
    -- the scheduler begins parked child runs before further ones: no session may lock their slots
    IF NOT of_room AND EXISTS (SELECT FROM (SELECT DISTINCT * FROM unnest(run_ids, step_nos) OFFSET 0)
                                   AS m (run_id, step_no) WHERE _sas.has_parked(m.run_id, m.step_no)) THEN
        INSERT INTO _sas.message (actor, due_at, run_id, kind, step_no, element)
        SELECT DISTINCT 's'::"char", sas.now(), u.run_id, 'room', u.step_no, 0
        FROM unnest(run_ids, step_nos) AS u (run_id, step_no);
        PERFORM _sas.wake('{}', true, false, '{}');
        RETURN;
    END IF;
    WITH open AS (
        SELECT f.run_id, f.step_no, f.fed, f.total, f.remaining, w.shape, w.kind,
               s.waiting_until IS NULL AS asks, least(m.most, f.fed + _sas.map_width()) AS want,
               m.most > f.fed + _sas.map_width() AS goes_on, f.open
        FROM (SELECT DISTINCT * FROM unnest(run_ids, step_nos) AS u (run_id, step_no)) u
        JOIN _sas.map_progress f ON f.run_id = u.run_id AND f.step_no = u.step_no AND f.loading IS NULL
        JOIN _sas.run r ON r.run_id = u.run_id AND r.abandon_as IS NULL AND r.state <> 'paused'
        CROSS JOIN LATERAL _sas.step_definition(r.version_id, u.step_no) w
        JOIN LATERAL _sas.step_row(u.run_id, u.step_no, 0) s ON s.state = 'suspended'
        CROSS JOIN LATERAL (
            SELECT CASE WHEN f.open IS NOT NULL THEN f.fed
                        ELSE least(f.total::bigint, f.total - f.remaining + _sas.map_limit(w.shape)
                                   + CASE WHEN w.kind = 'workflow' AND f.fed < f.total
                                       THEN _sas.waiting_children(u.run_id, u.step_no)
                                       ELSE 0 END)::int END AS most OFFSET 0) m),
    fed AS (
        UPDATE _sas.map_progress f SET fed = o.want FROM open o
        WHERE f.run_id = o.run_id AND f.step_no = o.step_no AND o.want > o.fed
        RETURNING f.run_id, f.step_no, o.fed AS before, o.want, o.kind),
    told AS (
        INSERT INTO _sas.message (actor, due_at, run_id, kind, step_no, element, together)
        SELECT 's'::"char", sas.now(), o.run_id, 'room', o.step_no, 0, NULL FROM open o
        WHERE o.goes_on AND elements IS NULL
        UNION ALL
        SELECT 's', sas.now(), d.run_id, 'enter', d.step_no, g,
               ARRAY(SELECT generate_series(g, least(g + _sas.most_together() - 1, d.want)))
        FROM fed d CROSS JOIN LATERAL generate_series(d.before + 1, d.want, _sas.most_together()) g
        WHERE d.kind = 'workflow' RETURNING 1),
    next AS (
        SELECT array_agg(e.run_id) AS runs, array_agg(e.step_no) AS nos, array_agg(e.element) AS elements
        FROM (SELECT d.run_id, d.step_no, g AS element FROM fed d
              CROSS JOIN LATERAL generate_series(d.before + 1, d.want) g
              WHERE d.kind <> 'workflow' ORDER BY 1, 2, 3) e)
    SELECT array_agg(o.run_id) FILTER (WHERE o.shape ? 'each') AS over_runs,
           array_agg(o.step_no) FILTER (WHERE o.shape ? 'each') AS over_nos,
           -- a step whose next iteration has its time already is not asked again
           array_agg(o.run_id) FILTER (WHERE o.shape ? 'repeat' AND o.asks) AS repeat_runs,
           array_agg(o.step_no) FILTER (WHERE o.shape ? 'repeat' AND o.asks) AS repeat_nos,
           (SELECT n.runs FROM next n) AS next_runs, (SELECT n.nos FROM next n) AS next_nos,
           (SELECT n.elements FROM next n) AS next_elements,
           (SELECT bool_or(x.open IS NOT NULL) FROM open x) AS scans,
           EXISTS (SELECT FROM told) AS goes_on
    INTO found FROM open o WHERE o.remaining = 0;
    PERFORM _sas.wake('{}', true, false, '{}') WHERE found.goes_on;
    PERFORM _sas.make_ready(found.next_runs, found.next_nos, found.next_elements);
    PERFORM _sas.scan_maps(run_ids, step_nos, elements) WHERE found.scans;
    PERFORM _sas.end_maps(found.over_runs, found.over_nos) WHERE found.over_runs IS NOT NULL;
    PERFORM _sas.next_iterations(found.repeat_runs, found.repeat_nos) WHERE found.repeat_runs IS NOT NULL;
END $$;

-- _sas.scan_maps(run_ids, step_nos, elements): makes elements ready, as many as there is room for, in those
-- of these maps whose elements do not simply begin in order (map_progress.open is not null). elements:
-- those that have just ended; null: unknown.
-- Writes: message. Wakes: the scheduler.
CREATE FUNCTION _sas.scan_maps(run_ids bigint[], step_nos int[], elements int[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    m record;
    room bigint;
    goes_on boolean;
BEGIN
    FOR m IN SELECT f.run_id, f.step_no, f.fed, f.open, w.kind, w.shape,
                    CASE WHEN elements IS NOT NULL AND w.kind <> 'workflow'
                        THEN ARRAY(SELECT e.element FROM unnest(run_ids, step_nos, elements)
                                       AS e (run_id, step_no, element)
                                   WHERE e.run_id = f.run_id AND e.step_no = f.step_no) END AS ended
             FROM (SELECT DISTINCT * FROM unnest(run_ids, step_nos) AS u (run_id, step_no)) u
             JOIN _sas.map_progress f ON f.run_id = u.run_id AND f.step_no = u.step_no AND f.open IS NOT NULL
                 AND f.remaining > 0 AND f.loading IS NULL
             JOIN _sas.run r ON r.run_id = u.run_id AND r.abandon_as IS NULL AND r.state <> 'paused'
             JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = u.step_no AND NOT w.undo
             JOIN _sas.step s ON s.run_id = u.run_id AND s.step_no = u.step_no AND s.element = 0
                 AND s.state = 'suspended'
             ORDER BY 1, 2 LOOP
        room := _sas.map_limit(m.shape) - m.open
            + CASE m.kind WHEN 'workflow' THEN _sas.waiting_children(m.run_id, m.step_no) ELSE 0 END;
        goes_on := room > _sas.map_width() AND elements IS NULL;
        room := least(room, _sas.map_width());
        IF m.fed > 0 AND (m.shape #> '{concurrency,key}' IS NOT NULL
                          OR EXISTS (SELECT FROM _sas.map_key k
                                     WHERE k.run_id = m.run_id AND k.step_no = m.step_no)) THEN
            room := room - _sas.begin_waiting(m.run_id, m.step_no, room, _sas.per_key(m.shape), m.ended);
        END IF;
        goes_on := _sas.begin_ahead(m.run_id, m.step_no, room, _sas.per_key(m.shape)) OR goes_on;
        IF goes_on THEN
            INSERT INTO _sas.message (actor, due_at, run_id, kind, step_no, element)
            SELECT 's', sas.now(), f.run_id, 'room', f.step_no, 0 FROM _sas.map_progress f
            WHERE f.run_id = m.run_id AND f.step_no = m.step_no AND f.fed < f.total;
            PERFORM _sas.wake('{}', true, false, '{}');
        END IF;
    END LOOP;
END $$;

-- _sas.per_key(shape): how many elements of one key of this map may be ready or running at the same time. A
-- map may have keys only from an earlier version of its definition: then all of them.
CREATE FUNCTION _sas.per_key(shape jsonb) RETURNS int
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN shape #> '{concurrency,key}' IS NULL THEN _sas.most_elements()
           ELSE coalesce((shape #>> '{concurrency,per_key}')::int, 1) END
$$;

-- _sas.places_of_keys(for_run, for_no, elements): the keys of these elements, where their rows are, and how
-- many of the elements have each of them. Each row is looked up by all columns of its key: a join may walk
-- all elements, or all keys, of the map for each of them.
CREATE FUNCTION _sas.places_of_keys(for_run bigint, for_no int, elements int[])
RETURNS TABLE (key_no int, place tid, n int)
LANGUAGE plpgsql STABLE ROWS 10 AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH used AS MATERIALIZED (
        SELECT i.key_no, count(*)::int AS n
        FROM unnest(elements) e
        CROSS JOIN LATERAL (SELECT x.key_no FROM _sas.item x WHERE x.run_id = for_run AND x.step_no = for_no
                            AND x.element = e OFFSET 0) i
        WHERE i.key_no IS NOT NULL GROUP BY 1)
    SELECT u.key_no, k.place, u.n
    FROM used u
    CROSS JOIN LATERAL (SELECT x.ctid AS place FROM _sas.map_key x WHERE x.run_id = for_run
                        AND x.step_no = for_no AND x.key_no = u.key_no OFFSET 0) k;
END $$;

-- _sas.begin_waiting(for_run, for_no, room, per_key, just_ended): begins elements that the scan has passed by
-- because their key had no room. just_ended: only the keys of these elements can have room now; null: all
-- keys are checked. Returns how many elements began. The elements of one key begin in order.
CREATE FUNCTION _sas.begin_waiting(for_run bigint, for_no int, room bigint, per_key int, just_ended int[])
RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    chosen int[];
    fed int := (SELECT f.fed FROM _sas.map_progress f WHERE f.run_id = for_run AND f.step_no = for_no);
BEGIN
    SELECT array_agg(x.element) INTO chosen
    FROM (SELECT i.element
          FROM _sas.map_progress f
          CROSS JOIN (SELECT k.key_no, k.begun, k.ended FROM _sas.map_key k
                      WHERE just_ended IS NULL AND k.run_id = for_run AND k.step_no = for_no
                        -- its row alone says that none of its elements can begin
                        AND k.begun < k.n AND k.begun < k.ended + per_key AND (k.begun > 0 OR k.first <= fed)
                      UNION ALL
                      SELECT p.key_no, k.begun, k.ended
                      FROM _sas.places_of_keys(for_run, for_no, just_ended) p
                      JOIN _sas.map_key k ON k.ctid = p.place) k
          CROSS JOIN LATERAL (SELECT o.element FROM _sas.item o WHERE o.run_id = for_run
                              AND o.step_no = for_no AND o.key_no = k.key_no AND o.nth > k.begun
                              AND o.nth <= k.ended + per_key AND o.element <= f.fed OFFSET 0) i
          WHERE f.run_id = for_run AND f.step_no = for_no
          ORDER BY i.element LIMIT greatest(room, 0)) x;
    PERFORM _sas.begin_elements(for_run, for_no, chosen);
    RETURN coalesce(cardinality(chosen), 0);
END $$;

-- _sas.begin_ahead(for_run, for_no, room, per_key): continues the scan through the elements, and begins those
-- whose key has room; _sas.begin_waiting begins the others later. The scan passes each element once, and some
-- thousands in one tick. Returns whether it has stopped for that reason.
-- Writes: map_progress.
CREATE FUNCTION _sas.begin_ahead(for_run bigint, for_no int, room bigint, per_key int) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    f _sas.map_progress;
    first int;
    chosen int[];
    beyond int;
BEGIN
    SELECT * INTO f FROM _sas.map_progress x WHERE x.run_id = for_run AND x.step_no = for_no;
    first := f.fed;
    WHILE room > 0 AND f.fed < f.total AND f.fed < first + 2 * _sas.most_loaded() LOOP
        WITH ahead AS (
            SELECT i.element, coalesce(i.nth <= k.ended + per_key, true) AS fits
            FROM _sas.item i
            LEFT JOIN LATERAL (SELECT x.ended FROM _sas.map_key x WHERE x.run_id = for_run
                               AND x.step_no = for_no AND x.key_no = i.key_no OFFSET 0) k ON true
            LEFT JOIN LATERAL (SELECT x.state FROM _sas.step x WHERE x.run_id = for_run
                               AND x.step_no = for_no AND x.element = i.element OFFSET 0) s ON true
            WHERE i.run_id = for_run AND i.step_no = for_no AND i.element > f.fed
              AND i.element <= f.fed + 1000 AND coalesce(s.state, 'waiting') = 'waiting'),
        counted AS (SELECT a.element, a.fits, count(*) FILTER (WHERE a.fits) OVER (ORDER BY a.element) AS n
                    FROM ahead a)
        SELECT array_agg(c.element ORDER BY c.element) FILTER (WHERE c.fits AND c.n <= room),
               min(c.element) FILTER (WHERE c.fits AND c.n > room)
        INTO chosen, beyond FROM counted c;
        PERFORM _sas.begin_elements(for_run, for_no, chosen);
        room := room - coalesce(cardinality(chosen), 0);
        f.fed := coalesce(beyond - 1, least(f.fed + 1000, f.total));
        EXIT WHEN beyond IS NOT NULL;
    END LOOP;
    UPDATE _sas.map_progress x SET fed = f.fed WHERE x.run_id = for_run AND x.step_no = for_no
        AND x.fed <> f.fed;
    RETURN room > 0 AND f.fed < f.total AND beyond IS NULL;
END $$;

-- _sas.begin_elements(for_run, for_no, elements): makes these elements, or their fallbacks, ready.
-- Writes: map_key, map_progress, step. Next: _sas.make_ready.
CREATE FUNCTION _sas.begin_elements(for_run bigint, for_no int, elements int[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    ready int[];
BEGIN
    IF elements IS NULL THEN
        RETURN;
    END IF;
    UPDATE _sas.map_key k SET begun = k.begun + d.n
    FROM _sas.places_of_keys(for_run, for_no, elements) d WHERE k.ctid = d.place;
    UPDATE _sas.map_progress f SET open = f.open + cardinality(elements)
    WHERE f.run_id = for_run AND f.step_no = for_no;
    PERFORM _sas.move_steps(array_agg(_sas.make_step_change(
        run_id => for_run, step_no => for_no, element => s.element, from_state => 'waiting',
        to_state => 'ready')))
    FROM unnest(elements) e
    CROSS JOIN LATERAL (SELECT x.element FROM _sas.step x WHERE x.run_id = for_run AND x.step_no = for_no
                        AND x.element = e AND x.state = 'waiting' OFFSET 0) s;
    ready := _sas.continue_fallbacks(for_run, for_no, elements);
    PERFORM _sas.make_ready(array_fill(for_run, ARRAY[cardinality(ready)]),
                            array_fill(for_no, ARRAY[cardinality(ready)]), ready) WHERE ready <> '{}';
END $$;

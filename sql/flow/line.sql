-- SPDX-License-Identifier: PostgreSQL
--
-- Lines: runs that wait for slots under their concurrency keys, and which of them is next. One scheduler at
-- a time gives out slots (_sas.take_mutex): all slots of a run at once, in the order of run_id.

-- _sas.fronts(run_ids, at_most): the runs that are next under each key of these runs: as many as there are
-- free slots, and no more than at_most. No run overtakes one that was submitted before it, neither by a
-- larger limit nor by sharing the key with its holders.
CREATE FUNCTION _sas.fronts(run_ids bigint[], at_most int) RETURNS TABLE (run_id bigint, rule_no int)
LANGUAGE sql AS $$
    SELECT f.run_id, f.rule_no
    FROM (SELECT DISTINCT p.owner, p.workflow_id, p.key FROM _sas.concurrency_slot p
          WHERE p.run_id = ANY (run_ids)) k
    CROSS JOIN LATERAL (SELECT count(*)::int AS n, bool_or(h.shared) AS shared
                        FROM _sas.concurrency_slot h
                        WHERE h.owner = k.owner AND h.workflow_id = k.workflow_id AND h.key = k.key
                          AND h.state = 'holds') held
    CROSS JOIN LATERAL (SELECT p.places, p.shared FROM _sas.concurrency_slot p
                        WHERE p.owner = k.owner AND p.workflow_id = k.workflow_id AND p.key = k.key
                          AND p.state = 'waits'
                        ORDER BY p.run_id LIMIT 1) front
    CROSS JOIN LATERAL (
        SELECT l.run_id, l.rule_no, row_number() OVER w AS n, min(l.places) OVER w AS places,
            bool_and(l.shared = front.shared) OVER w AS alike
        FROM (SELECT p.run_id, p.rule_no, p.places, p.shared FROM _sas.concurrency_slot p
              WHERE p.owner = k.owner AND p.workflow_id = k.workflow_id AND p.key = k.key
                AND p.state = 'waits'
              ORDER BY p.run_id
              LIMIT CASE WHEN front.shared THEN at_most
                  ELSE least(greatest(front.places - held.n, 0), at_most) END) l
        WINDOW w AS (ORDER BY l.run_id)) f
    WHERE (held.n = 0 OR held.shared = front.shared) AND f.alike
      AND (front.shared OR f.n <= f.places - held.n)
$$;

-- _sas.first_in_line(run_ids, at_most): the runs that can have a slot under all of their keys now, among
-- those that wait under the keys of these runs. The first of all waiting runs has none before it under any
-- key; therefore at least one run can continue when no slot is held.
-- Caller: holds the mutex "places".
CREATE FUNCTION _sas.first_in_line(run_ids bigint[], at_most int) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    first bigint[] := ARRAY(SELECT DISTINCT f.run_id FROM _sas.fronts(run_ids, at_most) f ORDER BY 1);
    several bigint[] := ARRAY(SELECT DISTINCT p.run_id FROM _sas.concurrency_slot p
                              WHERE p.run_id = ANY (first) AND p.rule_no > 1);
BEGIN
    IF several = '{}' THEN
        RETURN first;
    END IF;
    RETURN ARRAY(
        WITH fronts AS MATERIALIZED (SELECT f.run_id, f.rule_no FROM _sas.fronts(several, at_most) f)
        SELECT u FROM unnest(first) u
        WHERE u <> ALL (several)
           OR (SELECT true FROM _sas.concurrency_slot p WHERE p.run_id = u
               AND NOT EXISTS (SELECT FROM fronts f WHERE f.run_id = u AND f.rule_no = p.rule_no)
               LIMIT 1) IS NULL
        ORDER BY u);
END $$;

-- _sas.move_free_rows(run_ids, from_state, to_state): moves the rows of these runs in this state to another
-- one; they are told of. Rows that a session has locked, which ends these runs, stay: no tick waits for it.
-- Caller: holds the mutex "places". Writes: concurrency_slot.
CREATE FUNCTION _sas.move_free_rows(run_ids bigint[], from_state text, to_state text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE _sas.concurrency_slot p SET state = to_state, told = true
    WHERE p.ctid = ANY (ARRAY(SELECT x.ctid FROM _sas.concurrency_slot x WHERE x.run_id = ANY ($1)
                              AND x.state = from_state FOR UPDATE SKIP LOCKED));
END $$;

-- _sas.past_maps(run_ids): these runs, without the child runs among them whose map has no room. They have
-- waited for their key, so their map has begun others instead. They are parked: they leave the line, so that
-- the runs behind them are next. They enter it again when their key is free and an element of their map ends
-- (_sas.begin_parked), or the other way round (_sas.enter_parked).
--
-- A map that a tick is just changing is full for now: its message comes after that.
-- Caller: holds the mutex "places". Locks: map_progress. Writes: concurrency_slot, message. Next:
-- _sas.begin_parked.
CREATE FUNCTION _sas.past_maps(run_ids bigint[]) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    m record;
    stays bigint[];
    left_out bigint[] := '{}';
BEGIN
    FOR m IN SELECT p.parent_run_id, p.parent_step_no, array_agg(DISTINCT p.run_id) AS children
             FROM _sas.concurrency_slot p WHERE p.run_id = ANY ($1) AND p.told
             GROUP BY 1, 2 ORDER BY 1, 2 LOOP
        stays := m.children[greatest(_sas.room_of_map(m.parent_run_id, m.parent_step_no), 0) + 1 :];
        CONTINUE WHEN stays = '{}';
        left_out := left_out || stays;
        -- those behind them under the same keys, too: they would be next, and have no room, either
        PERFORM _sas.move_free_rows(ARRAY(
            SELECT x.run_id FROM _sas.concurrency_slot k
            JOIN _sas.concurrency_slot x USING (owner, workflow_id, key)
            WHERE k.run_id = ANY (stays) AND x.state = 'waits' AND x.told
              AND x.parent_run_id = m.parent_run_id AND x.parent_step_no = m.parent_step_no
              AND (x.run_id = ANY (stays) OR x.run_id <> ALL (m.children))), 'waits', 'away');
        INSERT INTO _sas.message (actor, due_at, run_id, kind, step_no, element)
        VALUES ('s', sas.now(), m.parent_run_id, 'room', m.parent_step_no, 0);
    END LOOP;
    RETURN ARRAY(SELECT u FROM unnest($1) u WHERE u <> ALL (left_out));
END $$;

-- _sas.enter_parked(run_ids): slots under the keys of these runs are free: of each map, as many parked child
-- runs as a key has slots enter the line again.
-- Caller: holds the mutex "places". Writes: concurrency_slot. Next: _sas.next_in_line.
CREATE FUNCTION _sas.enter_parked(run_ids bigint[]) RETURNS void
LANGUAGE sql AS $$
    SELECT _sas.move_free_rows(array_agg(DISTINCT x.run_id), 'away', 'waits')
    FROM (SELECT DISTINCT s.owner, s.workflow_id, s.key FROM _sas.concurrency_slot s
          WHERE s.run_id = ANY ($1)) k
    CROSS JOIN LATERAL (
        SELECT a.run_id, a.places, row_number() OVER (PARTITION BY a.parent_run_id, a.parent_step_no
                                                      ORDER BY a.run_id) AS nth
        FROM _sas.concurrency_slot a
        WHERE a.owner = k.owner AND a.workflow_id = k.workflow_id AND a.key = k.key
          AND a.state = 'away' AND a.told) x
    JOIN _sas.run c ON c.run_id = x.run_id AND c.state = 'scheduled'
    WHERE x.nth <= x.places
    HAVING count(*) > 0
$$;

-- _sas.next_in_line(run_ids, at_most): as _sas.first_in_line, of runs whose map has room for them.
-- Caller: holds the mutex "places". Writes: concurrency_slot, message.
CREATE FUNCTION _sas.next_in_line(run_ids bigint[], at_most int) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    before bigint[];
    first bigint[];
    fits bigint[];
BEGIN
    LOOP
        first := _sas.first_in_line(run_ids, at_most);
        -- the same again: a session that ends one of them has locked its row
        EXIT WHEN first = before;
        fits := _sas.past_maps(first);
        EXIT WHEN cardinality(fits) = cardinality(first);
        before := first;
    END LOOP;
    RETURN fits;
END $$;

-- _sas.past_line(run_ids): these runs, without those that must wait for a slot under their key. Runs that
-- are before them in line get a message to begin.
-- Writes: concurrency_slot, message.
CREATE FUNCTION _sas.past_line(run_ids bigint[]) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    first bigint[];
BEGIN
    IF NOT EXISTS (SELECT FROM _sas.concurrency_slot p WHERE p.run_id = ANY (run_ids)) THEN
        RETURN run_ids;
    END IF;
    IF NOT _sas.take_mutex('places') THEN
        PERFORM _sas.check_later(run_ids, 'start');
        RETURN NULL;
    END IF;
    UPDATE _sas.concurrency_slot p SET state = 'waits', since = sas.now()
    WHERE p.run_id = ANY (run_ids) AND p.state = 'away';
    -- more than these runs, so that the runs before them get their message, however many these are
    first := _sas.next_in_line(run_ids, cardinality(run_ids) + 100);
    UPDATE _sas.concurrency_slot p SET state = 'holds', since = sas.now(), told = false
    WHERE p.run_id = ANY (first) AND p.run_id = ANY (run_ids);
    PERFORM _sas.send_for(ARRAY(SELECT f FROM unnest(first) f WHERE f <> ALL (run_ids)));
    PERFORM _sas.tell_maps(run_ids);
    RETURN ARRAY(SELECT u FROM unnest(run_ids) u
                 WHERE NOT EXISTS (SELECT FROM _sas.concurrency_slot p WHERE p.run_id = u
                                   AND p.state <> 'holds'));
END $$;

-- _sas.send_for(run_ids): there is a slot for these runs: sends them a message to begin. A child run among
-- them counts against the limit of its map from now on, so that the map begins no other instead.
-- Writes: concurrency_slot, message.
CREATE FUNCTION _sas.send_for(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    -- a row that a session has locked stays as it is: that session ends the run
    UPDATE _sas.concurrency_slot p SET told = false
    WHERE p.ctid = ANY (ARRAY(SELECT x.ctid FROM _sas.concurrency_slot x WHERE x.run_id = ANY (run_ids)
                              AND x.told FOR UPDATE SKIP LOCKED));
    INSERT INTO _sas.message (actor, due_at, run_id, kind) SELECT 's', sas.now(), u, 'start'
    FROM unnest(run_ids) u;
END $$;

-- _sas.tell_maps(run_ids): child runs among these that must wait for a slot under their key do not count
-- against the limit of their map; the map may begin others instead.
-- Caller: holds the mutex "places". Writes: concurrency_slot; a message for each map. Next:
-- _sas.release_elements.
CREATE FUNCTION _sas.tell_maps(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    WITH waiting AS (
        UPDATE _sas.concurrency_slot p SET told = true
        -- by the runs; with the condition of its state, the index of all that wait may be read
        WHERE p.ctid = ANY (ARRAY(SELECT x.ctid FROM _sas.concurrency_slot x WHERE x.run_id = ANY (run_ids)))
          AND p.state = 'waits' AND p.parent_run_id IS NOT NULL AND NOT p.told
        RETURNING p.parent_run_id, p.parent_step_no)
    INSERT INTO _sas.message (actor, due_at, run_id, kind, step_no, element)
    SELECT DISTINCT 's'::"char", sas.now(), w.parent_run_id, 'room', w.parent_step_no, 0 FROM waiting w
    -- only a map can begin another child
    WHERE EXISTS (SELECT FROM _sas.map_progress m WHERE m.run_id = w.parent_run_id
                  AND m.step_no = w.parent_step_no AND (m.fed < m.total OR m.open IS NOT NULL))
       OR _sas.has_parked(w.parent_run_id, w.parent_step_no);
END $$;

-- _sas.leave_line(run_ids): runs that have stopped give back their slots, and runs that were paused before
-- they began leave the line. The runs that are next get a message.
-- Writes: concurrency_slot, concurrency_key, message.
CREATE FUNCTION _sas.leave_line(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    next bigint[];
BEGIN
    IF run_ids IS NULL THEN
        RETURN;
    END IF;
    IF NOT _sas.take_mutex('places') THEN
        PERFORM _sas.check_later(run_ids, 'leave');
        RETURN;
    END IF;
    UPDATE _sas.concurrency_slot p SET state = 'away', told = false FROM _sas.run r
    WHERE p.run_id = ANY (run_ids) AND r.run_id = p.run_id AND r.state = 'paused'
      AND (p.state = 'waits' OR p.told);
    PERFORM _sas.enter_parked(run_ids);
    -- before the rows with their keys are deleted
    next := _sas.next_in_line(run_ids, 100);
    PERFORM _sas.forget_places(run_ids);
    PERFORM _sas.send_for(next);
END $$;

-- _sas.forget_places(run_ids): deletes the rows of those of these runs that have stopped, and the keys that
-- no run needs. If a submit is checking for room under a key at this moment, these rows are tried again in a
-- minute, because that transaction may be rolled back. Writes: concurrency_slot, concurrency_key, message.
CREATE FUNCTION _sas.forget_places(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    free tid[];
    stays bigint[];
BEGIN
    free := ARRAY(SELECT k.ctid FROM _sas.concurrency_key k JOIN _sas.concurrency_slot p
                  USING (owner, workflow_id, key)
                  WHERE p.run_id = ANY ($1) AND p.state = 'left' FOR UPDATE OF k SKIP LOCKED);
    stays := ARRAY(SELECT DISTINCT p.run_id FROM _sas.concurrency_slot p JOIN _sas.concurrency_key k
                   USING (owner, workflow_id, key)
                   WHERE p.run_id = ANY ($1) AND p.state = 'left' AND k.ctid <> ALL (free)
                     AND NOT EXISTS (SELECT FROM _sas.concurrency_slot s
                                     WHERE s.owner = k.owner AND s.workflow_id = k.workflow_id
                                         AND s.key = k.key AND s.overlap <> 'wait' AND s.state <> 'left'));
    DELETE FROM _sas.concurrency_slot p
    WHERE p.run_id = ANY ($1) AND p.state = 'left' AND p.run_id <> ALL (stays);
    PERFORM _sas.forget_keys(free);
    INSERT INTO _sas.message (actor, due_at, run_id, kind)
    SELECT 's', sas.now() + interval '1 min', u, 'leave' FROM unnest(stays) u;
END $$;

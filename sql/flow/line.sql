-- SPDX-License-Identifier: PostgreSQL
--
-- Lines: runs that wait for slots under their concurrency keys, and which of them is next. One scheduler at
-- a time gives out slots (_sas.take_turn): all slots of a run at once, in the order of run_id.

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
    IF NOT _sas.take_turn('places') THEN
        PERFORM _sas.check_later(run_ids, 'start');
        RETURN NULL;
    END IF;
    UPDATE _sas.concurrency_slot p SET state = 'waits', since = sas.now()
    WHERE p.run_id = ANY (run_ids) AND p.state = 'away';
    -- more than these runs, so that the runs before them get their message, however many these are
    first := _sas.first_in_line(run_ids, cardinality(run_ids) + 100);
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
CREATE FUNCTION _sas.send_for(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE _sas.concurrency_slot p SET told = false WHERE p.run_id = ANY (run_ids) AND p.told;
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
        WHERE p.run_id = ANY (run_ids) AND p.state = 'waits' AND p.parent_run_id IS NOT NULL AND NOT p.told
        RETURNING p.parent_run_id, p.parent_step_no)
    INSERT INTO _sas.message (actor, due_at, run_id, kind, step_no, element)
    SELECT DISTINCT 's'::"char", sas.now(), w.parent_run_id, 'room', w.parent_step_no, 0 FROM waiting w
    -- only a map can begin another child
    WHERE EXISTS (SELECT FROM _sas.map_progress m WHERE m.run_id = w.parent_run_id
                  AND m.step_no = w.parent_step_no AND (m.fed < m.total OR m.open IS NOT NULL));
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
    IF NOT _sas.take_turn('places') THEN
        PERFORM _sas.check_later(run_ids, 'leave');
        RETURN;
    END IF;
    UPDATE _sas.concurrency_slot p SET state = 'away', told = false FROM _sas.run r
    WHERE p.run_id = ANY (run_ids) AND r.run_id = p.run_id AND r.state = 'paused' AND p.state = 'waits';
    -- before the rows with their keys are deleted
    next := _sas.first_in_line(run_ids, 100);
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
    DELETE FROM _sas.concurrency_key k
    WHERE k.ctid = ANY (free)
        AND NOT EXISTS (SELECT FROM _sas.concurrency_slot s
                        WHERE s.owner = k.owner AND s.workflow_id = k.workflow_id AND s.key = k.key
                            AND s.overlap <> 'wait');
    INSERT INTO _sas.message (actor, due_at, run_id, kind)
    SELECT 's', sas.now() + interval '1 min', u, 'leave' FROM unnest(stays) u;
END $$;

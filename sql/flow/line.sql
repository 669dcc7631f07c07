-- SPDX-License-Identifier: PostgreSQL
--
-- Lines: runs that wait for places under their concurrency keys, and which of them is next. Places are given
-- out in turns (_sas.take_turn), all of a run at once, in the order of run_id.

-- _sas.fronts(run_ids, at_most): who comes next under each key of these runs: as many as there are places,
-- and at most so many. Nobody passes by one that was submitted before it, not with a larger limit, and not
-- by sharing the key with those that hold it.
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

-- _sas.first_in_line(run_ids, at_most): the runs for which there is a place now, under all of their keys, of
-- those that wait under the keys of these. The first of all runs that wait has none before it under any key,
-- so one can always go on when nobody holds a place.
-- Caller: the turn of places.
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
           OR NOT EXISTS (SELECT FROM _sas.concurrency_slot p WHERE p.run_id = u
                          AND NOT EXISTS (SELECT FROM fronts f WHERE f.run_id = u AND f.rule_no = p.rule_no))
        ORDER BY u);
END $$;

-- _sas.past_line(run_ids): without those that must wait for a place under their key. Those that come
-- before them are sent for.
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
    -- some beyond these runs, so that those who do not begin now are sent for, however many there are
    first := _sas.first_in_line(run_ids, cardinality(run_ids) + 100);
    UPDATE _sas.concurrency_slot p SET state = 'holds', since = sas.now(), told = false
    WHERE p.run_id = ANY (first) AND p.run_id = ANY (run_ids);
    PERFORM _sas.send_for(ARRAY(SELECT f FROM unnest(first) f WHERE f <> ALL (run_ids)));
    PERFORM _sas.tell_maps(run_ids);
    RETURN ARRAY(SELECT u FROM unnest(run_ids) u
                 WHERE NOT EXISTS (SELECT FROM _sas.concurrency_slot p WHERE p.run_id = u
                                   AND p.state <> 'holds'));
END $$;

-- _sas.send_for(run_ids): there is a place for these runs: they try to begin. A child among them takes a
-- place of its map from now on, so that the map begins no other in this one.
CREATE FUNCTION _sas.send_for(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE _sas.concurrency_slot p SET told = false WHERE p.run_id = ANY (run_ids) AND p.told;
    INSERT INTO _sas.message (actor, due_at, run_id, kind) SELECT 's', sas.now(), u, 'start'
    FROM unnest(run_ids) u;
END $$;

-- _sas.tell_maps(run_ids): those of these runs that are children and must wait for a place under their key
-- take no place of their map: it begins others in their stead.
-- Caller: the turn of places. Writes: concurrency_slot; a message for each map. Next: _sas.release_elements.
CREATE FUNCTION _sas.tell_maps(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    WITH waiting AS (
        UPDATE _sas.concurrency_slot p SET told = true
        WHERE p.run_id = ANY (run_ids) AND p.state = 'waits' AND p.parent_run_id IS NOT NULL AND NOT p.told
        RETURNING p.parent_run_id, p.parent_step_no)
    INSERT INTO _sas.message (actor, due_at, run_id, kind, step_no, element)
    SELECT DISTINCT 's'::"char", sas.now(), w.parent_run_id, 'room', w.parent_step_no, 0 FROM waiting w
    -- a step that is no map begins no other
    WHERE EXISTS (SELECT FROM _sas.map_progress m WHERE m.run_id = w.parent_run_id
                  AND m.step_no = w.parent_step_no AND (m.fed < m.total OR m.open IS NOT NULL));
END $$;

-- _sas.leave_line(run_ids): runs that have stopped give back their place; those paused before they began
-- stand aside. Who comes next is sent for.
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
    -- while their rows still say which keys they had
    next := _sas.first_in_line(run_ids, 100);
    PERFORM _sas.forget_places(run_ids);
    PERFORM _sas.send_for(next);
END $$;

-- _sas.forget_places(run_ids): what is left of those of these runs that have stopped; their keys as well,
-- where no run needs them. Where a submit looks for room at this moment, they are looked at again in a
-- minute: its transaction may be rolled back. Writes: concurrency_slot, concurrency_key.
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

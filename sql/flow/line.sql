-- SPDX-License-Identifier: PostgreSQL
--
-- Lines: runs that wait for a place under their concurrency key, and which of them is next. Places are given
-- out in turns (_sas.take_turn), in the order of run_id.

-- _sas.first_in_line(workflow_ids, keys): who comes next under these keys, as many as there are places.
-- Called under the turn of places.
CREATE FUNCTION _sas.first_in_line(workflow_ids int[], keys text[]) RETURNS bigint[]
LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(
        SELECT f.run_id
        FROM (SELECT DISTINCT * FROM unnest(workflow_ids, keys) AS u (workflow_id, key)) k
        CROSS JOIN LATERAL (SELECT count(*)::int AS n FROM _sas.concurrency_slot h
                            WHERE h.workflow_id = k.workflow_id AND h.key = k.key AND h.state = 'holds') held
        CROSS JOIN LATERAL (SELECT max(v.place_limit) AS most FROM _sas.workflow_version v
                            WHERE v.workflow_id = k.workflow_id) v
        CROSS JOIN LATERAL (
            -- nobody passes by one before it, even where a later version has a larger limit
            SELECT l.run_id, row_number() OVER w AS n, min(lv.place_limit) OVER w AS place_limit
            FROM (SELECT p.run_id FROM _sas.concurrency_slot p WHERE p.workflow_id = k.workflow_id
                  AND p.key = k.key
                  AND p.state = 'waits'
                  ORDER BY p.run_id LIMIT greatest(v.most - held.n, 0)) l
            JOIN _sas.run r ON r.run_id = l.run_id
            JOIN _sas.workflow_version lv ON lv.version_id = r.version_id
            WINDOW w AS (ORDER BY l.run_id)) f
        WHERE f.n <= f.place_limit - held.n
        ORDER BY f.run_id);
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
    UPDATE _sas.concurrency_slot p SET state = 'waits' WHERE p.run_id = ANY (run_ids) AND p.state = 'away';
    SELECT _sas.first_in_line(array_agg(p.workflow_id), array_agg(p.key)) INTO first
    FROM _sas.concurrency_slot p
    WHERE p.run_id = ANY (run_ids);
    UPDATE _sas.concurrency_slot p SET state = 'holds', told = false WHERE p.run_id = ANY (first)
        AND p.run_id = ANY (run_ids);
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
                  AND m.step_no = w.parent_step_no AND m.fed < m.total);
END $$;

-- _sas.leave_line(run_ids): runs that have stopped give back their place; those paused before they began
-- stand aside. Who comes next is sent for.
CREATE FUNCTION _sas.leave_line(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    workflow_ids int[];
    keys text[];
BEGIN
    IF run_ids IS NULL THEN
        RETURN;
    END IF;
    IF NOT _sas.take_turn('places') THEN
        PERFORM _sas.check_later(run_ids, 'leave');
        RETURN;
    END IF;
    SELECT array_agg(p.workflow_id), array_agg(p.key) INTO workflow_ids, keys FROM _sas.concurrency_slot p
    WHERE p.run_id = ANY (run_ids);
    DELETE FROM _sas.concurrency_slot p USING _sas.run r WHERE p.run_id = ANY (run_ids)
        AND r.run_id = p.run_id
        AND r.state = 'stopped';
    UPDATE _sas.concurrency_slot p SET state = 'away', told = false FROM _sas.run r
    WHERE p.run_id = ANY (run_ids) AND p.state = 'waits' AND r.run_id = p.run_id AND r.state = 'paused';
    PERFORM _sas.send_for(_sas.first_in_line(workflow_ids, keys));
END $$;

-- SPDX-License-Identifier: PostgreSQL
--
-- Queues: a step of a named queue stands in sas.ready with a lane of its
-- queue (the negative of its id), which no worker claims. The scheduler lets
-- out as many as the queue has places, by rank: then it is a ready step like
-- any other. Its place is a row that goes when its claim ends, however that is.

-- sas._ring_queues(lanes): some of these are lanes of queues.
CREATE FUNCTION sas._ring_queues(lanes int[]) RETURNS void
LANGUAGE sql AS $$
    SELECT sas._ring(ARRAY(SELECT l FROM unnest(lanes) l WHERE l >= 0), true, false, '{}')
$$;

-- sas._free_places(run_ids): steps of these runs that are not let out or claimed any more give back the
-- place that they have in a queue. Called after the steps have moved.
CREATE FUNCTION sas._free_places(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM sas.queue_place p
    WHERE p.run_id = ANY (run_ids)
      AND NOT EXISTS (SELECT FROM sas.ready q WHERE q.run_id = p.run_id AND q.step_no = p.step_no AND q.element = p.element AND NOT q.fresh AND q.lane >= 0)
      AND NOT EXISTS (SELECT FROM sas.step s WHERE s.run_id = p.run_id AND s.step_no = p.step_no AND s.element = p.element AND s.request_id IS NOT NULL);
    IF FOUND THEN
        PERFORM sas._ring('{}', true, false, '{}');
    END IF;
END $$;

-- sas._give_queue_places(quantity): the scheduler lets out steps of queues that have places, at most
-- quantity of each, and takes back what no worker has claimed yet in those that are paused. How many were moved.
CREATE FUNCTION sas._give_queue_places(quantity int) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    lanes int[];
    out_now int;
    back_now int;
BEGIN
    IF NOT EXISTS (SELECT FROM sas.ready q WHERE q.lane < 0) AND NOT EXISTS (SELECT FROM sas.queue_place) THEN
        RETURN 0;
    END IF;
    PERFORM FROM sas.turn t WHERE t.what = 'queues' FOR UPDATE;

    WITH back AS (
        SELECT q.run_id, q.step_no, q.element, p.queue_id
        FROM sas.queue u
        JOIN sas.queue_place p ON p.queue_id = u.queue_id
        CROSS JOIN LATERAL (SELECT x.run_id, x.step_no, x.element FROM sas.ready x
                            WHERE x.run_id = p.run_id AND x.step_no = p.step_no AND x.element = p.element AND NOT x.fresh AND x.lane >= 0 FOR UPDATE SKIP LOCKED) q
        WHERE u.paused_at IS NOT NULL),
    moved AS (
        UPDATE sas.ready q SET lane = -b.queue_id FROM back b
        WHERE q.run_id = b.run_id AND q.step_no = b.step_no AND q.element = b.element AND NOT q.fresh)
    DELETE FROM sas.queue_place p USING back b WHERE p.run_id = b.run_id AND p.step_no = b.step_no AND p.element = b.element;
    GET DIAGNOSTICS back_now = ROW_COUNT;

    WITH out AS (
        SELECT n.ctid, n.run_id, n.step_no, n.element, n.undo, u.queue_id
        FROM sas.queue u
        CROSS JOIN LATERAL (SELECT count(*)::int AS n FROM sas.queue_place p WHERE p.queue_id = u.queue_id) taken
        -- a row that a session holds is passed by; it rings when it ends
        CROSS JOIN LATERAL (SELECT q.ctid, q.* FROM sas.ready q WHERE q.lane = -u.queue_id ORDER BY q.rank
                            LIMIT least(quantity, greatest(u.max_running - taken.n, 0)) FOR UPDATE SKIP LOCKED) n
        WHERE u.paused_at IS NULL AND u.dropped_at IS NULL),
    moved AS (
        UPDATE sas.ready q SET lane = sas._lane_now(o.run_id, o.step_no, o.element, o.undo, w.lane)
        FROM out o
        JOIN sas.run r ON r.run_id = o.run_id
        JOIN sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = o.step_no AND w.undo = o.undo
        WHERE q.ctid = o.ctid
        RETURNING q.lane, q.run_id, q.step_no, q.element, o.queue_id),
    -- not of what was locked but has changed since this statement began: that is not moved either
    placed AS (
        INSERT INTO sas.queue_place (run_id, step_no, element, queue_id)
        SELECT m.run_id, m.step_no, m.element, m.queue_id FROM moved m)
    SELECT array_agg(DISTINCT m.lane), count(*) INTO lanes, out_now FROM moved m;
    PERFORM sas._ring(sas._tell_outside(lanes), false, false, '{}') WHERE lanes IS NOT NULL;
    RETURN back_now + out_now;
END $$;

-- sas._live_queue(name): the queue, locked, or an error that says there is none.
CREATE FUNCTION sas._live_queue(queue_name text) RETURNS sas.queue
LANGUAGE plpgsql AS $$
DECLARE
    u sas.queue;
BEGIN
    SELECT * INTO u FROM sas.queue q WHERE q.name = queue_name AND q.dropped_at IS NULL FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'queue "%" does not exist', queue_name USING ERRCODE = 'undefined_object', DETAIL = 'The place is "/name".', HINT = 'See sas.queues for those that do.';
    END IF;
    RETURN u;
END $$;

-- sas._queue_id(value): the queue that a definition names; 0 for null (none), null where nothing is said.
CREATE FUNCTION sas._queue_id(value jsonb) RETURNS int
LANGUAGE sql STABLE AS $$
    SELECT CASE jsonb_typeof(value) WHEN 'null' THEN 0
                                    WHEN 'string' THEN (SELECT q.queue_id FROM sas.queue q WHERE q.name = value #>> '{}' AND q.dropped_at IS NULL) END
$$;

CREATE FUNCTION sas._check_queue(value jsonb, path text) RETURNS SETOF sas._problem
LANGUAGE sql STABLE AS $$
    SELECT path, CASE jsonb_typeof(value) WHEN 'string' THEN format('queue "%s" does not exist', left(value #>> '{}', 80)) ELSE 'the queue must be a name, or null for none' END,
           'Create it with sas.create_queue.', CASE jsonb_typeof(value) WHEN 'string' THEN '42704' ELSE '22023' END
    WHERE value IS NOT NULL AND sas._queue_id(value) IS NULL
$$;

-- sas._check_max_running(n)
CREATE FUNCTION sas._check_max_running(n int) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF n IS NULL OR n NOT BETWEEN 1 AND 1000000 THEN
        RAISE EXCEPTION 'max_running % is not from 1 to 1000000', coalesce(n::text, 'null')
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'The place is "/max_running".', HINT = 'It is how many steps of the queue may run at once; sas.pause_queue lets none begin.';
    END IF;
END $$;

CREATE FUNCTION sas._create_queue(caller oid, name text, max_running int) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, sas, pg_temp AS $$
#variable_conflict use_column
DECLARE
    p sas._problem;
BEGIN
    FOR p IN SELECT * FROM sas._check_name($2, '/name') LOOP
        PERFORM sas._raise(p);
    END LOOP;
    PERFORM sas._check_max_running($3);
    INSERT INTO sas.queue (name, max_running, created_at) VALUES ($2, $3, sas._now())
    ON CONFLICT (name) WHERE dropped_at IS NULL DO UPDATE SET max_running = EXCLUDED.max_running;
    PERFORM sas._ring('{}', true, false, '{}');
END $$;

CREATE FUNCTION sas._alter_queue(caller oid, name text, max_running int) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, sas, pg_temp AS $$
#variable_conflict use_column
DECLARE
    u sas.queue := sas._live_queue(name);
BEGIN
    PERFORM sas._check_max_running($3);
    UPDATE sas.queue q SET max_running = $3 WHERE q.queue_id = u.queue_id;
    PERFORM sas._ring('{}', true, false, '{}');
END $$;

CREATE FUNCTION sas._pause_queue(caller oid, name text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, sas, pg_temp AS $$
#variable_conflict use_column
DECLARE
    u sas.queue := sas._live_queue(name);
BEGIN
    UPDATE sas.queue q SET paused_at = coalesce(q.paused_at, sas._now()) WHERE q.queue_id = u.queue_id;
    PERFORM sas._ring('{}', true, false, '{}');
    PERFORM sas._record(caller, ARRAY[NULL::bigint], 'pause_queue', NULL, jsonb_build_object('queue', u.name))
    WHERE u.paused_at IS NULL;
    RETURN u.paused_at IS NULL;
END $$;

CREATE FUNCTION sas._resume_queue(caller oid, name text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, sas, pg_temp AS $$
#variable_conflict use_column
DECLARE
    u sas.queue := sas._live_queue(name);
BEGIN
    UPDATE sas.queue q SET paused_at = NULL WHERE q.queue_id = u.queue_id;
    PERFORM sas._ring('{}', true, false, '{}');
    PERFORM sas._record(caller, ARRAY[NULL::bigint], 'resume_queue', NULL,
                        jsonb_build_object('queue', u.name))
    WHERE u.paused_at IS NOT NULL;
    RETURN u.paused_at IS NOT NULL;
END $$;

CREATE FUNCTION sas._drop_queue(caller oid, name text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, sas, pg_temp AS $$
#variable_conflict use_column
DECLARE
    u sas.queue := sas._live_queue(name);
    used text;
BEGIN
    SELECT f.name INTO used
    FROM sas.workflow f
    JOIN sas.workflow_version v USING (workflow_id)
    WHERE (v.queue_id = u.queue_id OR EXISTS (SELECT FROM sas.workflow_step w WHERE w.version_id = v.version_id AND w.queue_id = u.queue_id))
      AND (f.dropped_at IS NULL AND coalesce(v.of_version, v.version) = f.version
           AND NOT EXISTS (SELECT FROM sas.composition c WHERE c.version_id = v.version_id AND NOT c.current)
           OR EXISTS (SELECT FROM sas.run r WHERE r.version_id = v.version_id AND r.state <> 'stopped'))
    ORDER BY f.name COLLATE "C"
    LIMIT 1;
    IF NOT FOUND THEN
        -- a child run has the queue of the step that it belongs to
        SELECT f.name INTO used
        FROM sas.run r JOIN sas.workflow_version v USING (version_id) JOIN sas.workflow f USING (workflow_id)
        WHERE r.queue_id = u.queue_id AND r.state <> 'stopped' LIMIT 1;
    END IF;
    IF FOUND THEN
        RAISE EXCEPTION 'queue "%" is in use', $2
            USING ERRCODE = 'dependent_objects_still_exist', DETAIL = format('Workflow "%s", or an open run of it, uses it.', used), HINT = 'Change or drop the workflow, and let its runs end, first.';
    END IF;
    UPDATE sas.queue q SET dropped_at = sas._now() WHERE q.queue_id = u.queue_id;
END $$;

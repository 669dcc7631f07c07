-- SPDX-License-Identifier: PostgreSQL
--
-- Queues: made, changed, paused and dropped by operators and admins; what a definition says of them.

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

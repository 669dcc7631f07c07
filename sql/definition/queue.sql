-- SPDX-License-Identifier: PostgreSQL
--
-- Queues: operators and admins create, change and pause them; and the key "queue" of a definition.

-- _sas.live_queue(queue_name): the queue, locked; raises an error if it does not exist.
CREATE FUNCTION _sas.live_queue(queue_name text) RETURNS _sas.queue
LANGUAGE plpgsql AS $$
DECLARE
    u _sas.queue;
BEGIN
    SELECT * INTO u FROM _sas.queue q WHERE q.name = queue_name AND q.dropped_at IS NULL FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        PERFORM _sas.refuse_missing('queue', queue_name, '/name', 'See sas.queues for existing queues.',
                                    ARRAY(SELECT q.name FROM _sas.queue q WHERE q.dropped_at IS NULL));
    END IF;
    RETURN u;
END $$;

-- _sas.queue_id(value): the queue that a definition names; 0 for a JSON null (none); null if the key is
-- missing.
CREATE FUNCTION _sas.queue_id(value jsonb) RETURNS int
LANGUAGE sql STABLE AS $$
    SELECT CASE jsonb_typeof(value) WHEN 'null' THEN 0
                                    WHEN 'string' THEN (SELECT q.queue_id FROM _sas.queue q
                                                        WHERE q.name = value #>> '{}'
                                                        AND q.dropped_at IS NULL) END
$$;

-- _sas.check_queue(value, path): the problem of a value that names no queue. No row: it names one, is null
-- for none, or the key is missing.
CREATE FUNCTION _sas.check_queue(value jsonb, path text) RETURNS SETOF _sas.problem
LANGUAGE sql STABLE AS $$
    SELECT path, CASE jsonb_typeof(value)
        WHEN 'string' THEN format('queue "%s" does not exist', left(value #>> '{}', 80))
        ELSE 'the queue must be a name, or null for none' END,
           _sas.meant(value #>> '{}',
                      ARRAY(SELECT q.name FROM _sas.queue q WHERE q.dropped_at IS NULL))
           || 'Create it with sas.create_queue.', CASE jsonb_typeof(value) WHEN 'string' THEN '42704'
               ELSE '22023' END
    WHERE value IS NOT NULL AND _sas.queue_id(value) IS NULL
$$;

-- _sas.check_max_running(n): raises an error if the limit is out of range.
CREATE FUNCTION _sas.check_max_running(n int) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF n IS NULL OR n NOT BETWEEN 1 AND 1000000 THEN
        RAISE EXCEPTION 'max_running % is not between 1 and 1000000', coalesce(n::text, 'null')
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /max_running.',
                HINT = 'It is the number of steps that may run at once. Call sas.pause_queue to start none.';
    END IF;
END $$;

-- _sas.check_step_key(key, path): errors of the template that gives the key of a step which waits; key null:
-- there is none.
CREATE FUNCTION _sas.check_step_key(key text, path text) RETURNS SETOF _sas.problem
LANGUAGE sql STABLE AS $$
    SELECT $2, r.problem, coalesce(r.hint, 'Write a template, such as "{{run.owner}}".'),
           CASE WHEN r.hint IS NULL THEN '42601' ELSE '0A000' END
    FROM _sas.references(to_jsonb(key)) r WHERE r.problem IS NOT NULL
    UNION ALL
    SELECT $2, format('"%s" is not known of a step that waits', r.path),
           'A reference here begins with input, item or index, or is run.owner, run.id, run.key, run.labels, '
           'run.created_at, run.deadline, run.schedule or run.scheduled_at.', '42P10'
    FROM _sas.references(to_jsonb(key)) r
    WHERE r.problem IS NULL
      AND (r.root NOT IN ('input', 'run', 'item', 'index')
           OR r.root = 'run' AND NOT coalesce(r.member IN ('owner', 'id', 'key', 'labels', 'created_at',
                                                           'deadline', 'schedule', 'scheduled_at'), false))
$$;

-- _sas.check_queue_key(key, per_key): key null: there is none.
CREATE FUNCTION _sas.check_queue_key(key text, per_key int) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF key IS NULL AND per_key IS NOT NULL THEN
        RAISE EXCEPTION 'per_key needs a key'
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /per_key.',
                HINT = 'Give a key, such as ''{{run.owner}}'': per_key steps with the same key run at once.';
    ELSIF per_key NOT BETWEEN 1 AND 1000000 THEN
        RAISE EXCEPTION 'per_key % is not between 1 and 1000000', per_key
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /per_key.',
                HINT = 'It is the number of steps with the same key that may run at once.';
    END IF;
    PERFORM _sas.raise(wrong) FROM _sas.check_step_key(key, '/key') wrong;
END $$;

-- _sas.record_queue(caller, act, old, new): the limits of a queue before and after, if they differ; null: no
-- queue.
CREATE FUNCTION _sas.record_queue(caller oid, act text, old _sas.queue, new _sas.queue) RETURNS void
LANGUAGE sql AS $$
    SELECT _sas.record_change(caller, act, jsonb_build_object('queue', coalesce(new.name, old.name)),
                              _sas.queue_limits(old), _sas.queue_limits(new))
    WHERE _sas.queue_limits(old) IS DISTINCT FROM _sas.queue_limits(new)
$$;

-- _sas.queue_limits(q): as history shows them; null: no queue.
CREATE FUNCTION _sas.queue_limits(q _sas.queue) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_strip_nulls(jsonb_build_object('max_running', q.max_running, 'key', q.key,
                                                'per_key', q.per_key))
    WHERE q.queue_id IS NOT NULL
$$;

-- _sas.create_queue_as(caller, name, max_running, key, per_key): the body of sas.create_queue: creates a
-- queue, or replaces its limits.
-- Locks: the queue. Writes: queue, freed_key. Wakes: the scheduler.
CREATE FUNCTION _sas.create_queue_as(caller oid, name text, max_running int, key text, per_key int)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    old _sas.queue;
    new _sas.queue;
BEGIN
    PERFORM _sas.raise(wrong) FROM _sas.check_name($2, '/name') wrong;
    PERFORM _sas.check_max_running($3);
    PERFORM _sas.check_queue_key($4, $5);
    SELECT q.* INTO old FROM _sas.queue q WHERE q.name = $2 AND q.dropped_at IS NULL FOR NO KEY UPDATE;
    INSERT INTO _sas.queue AS q (name, max_running, key, per_key, created_at)
    VALUES ($2, $3, $4, CASE WHEN $4 IS NOT NULL THEN coalesce($5, 1) END, sas.now())
    ON CONFLICT (name) WHERE dropped_at IS NULL DO UPDATE
        SET max_running = EXCLUDED.max_running, key = EXCLUDED.key, per_key = EXCLUDED.per_key
    RETURNING q.* INTO new;
    IF (old.key, old.per_key) IS DISTINCT FROM (new.key, new.per_key) THEN
        -- what is parked gets a new key, also what a scheduler parks at this moment
        INSERT INTO _sas.freed_key (queue_id) VALUES (new.queue_id);
    END IF;
    PERFORM _sas.wake(scheduler => true);
    PERFORM _sas.record_queue(caller, 'create_queue', old, new);
END $$;

-- _sas.alter_queue_as(caller, name, max_running): the body of sas.alter_queue.
-- Locks: the queue. Writes: queue. Wakes: the scheduler.
CREATE FUNCTION _sas.alter_queue_as(caller oid, name text, max_running int) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    u _sas.queue := _sas.live_queue(name);
    changed _sas.queue;
BEGIN
    PERFORM _sas.check_max_running($3);
    UPDATE _sas.queue q SET max_running = $3 WHERE q.queue_id = u.queue_id RETURNING q.* INTO changed;
    PERFORM _sas.wake(scheduler => true);
    PERFORM _sas.record_queue(caller, 'alter_queue', u, changed);
END $$;

-- _sas.switch_queue(caller, name, pause): pauses or resumes a queue. False: nothing has changed.
-- Writes: queue. Wakes: the scheduler.
CREATE FUNCTION _sas.switch_queue(caller oid, name text, pause boolean) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    u _sas.queue := _sas.live_queue(name);
BEGIN
    IF (u.paused_at IS NOT NULL) = pause THEN
        RETURN false;
    END IF;
    UPDATE _sas.queue q SET paused_at = CASE WHEN pause THEN sas.now() END WHERE q.queue_id = u.queue_id;
    PERFORM _sas.wake(scheduler => true);
    PERFORM _sas.record_change(caller, CASE WHEN pause THEN 'pause_queue' ELSE 'resume_queue' END,
                               jsonb_build_object('queue', u.name));
    RETURN true;
END $$;

-- _sas.pause_queue_as(caller, name): the body of sas.pause_queue.
CREATE FUNCTION _sas.pause_queue_as(caller oid, name text) RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT _sas.switch_queue(caller, name, true)
$$;

-- _sas.resume_queue_as(caller, name): the body of sas.resume_queue.
CREATE FUNCTION _sas.resume_queue_as(caller oid, name text) RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT _sas.switch_queue(caller, name, false)
$$;

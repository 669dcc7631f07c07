-- SPDX-License-Identifier: PostgreSQL
--
-- Verbs for infinite tasks: they are started, stopped, paused, resumed and moved, by watcher and key. With
-- several keys, each is applied or refused separately, and reported.

-- _sas.may_watch(caller, d): may the caller use this watcher? Roles may use their own watchers, and those
-- of superusers and admins.
CREATE FUNCTION _sas.may_watch(caller oid, d _sas.watcher) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT _sas.may_stand_for(caller, d.owner) OR _sas.has_level(d.owner, 'admin')
        OR _sas.is_superuser(d.owner)
$$;

-- _sas.check_watch(d, caller, key, input): raises an error if such a task is not possible.
CREATE FUNCTION _sas.check_watch(d _sas.watcher, caller oid, key text, input jsonb) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT _sas.may_watch(caller, d) THEN
        RAISE EXCEPTION 'permission denied for watcher "%"', d.name
            USING ERRCODE = 'insufficient_privilege', DETAIL = 'At /watcher.',
            HINT = 'You can use your own watchers and those of superusers and admins.';
    END IF;
    IF coalesce($3, '') = '' OR octet_length($3) > 1000 THEN
        RAISE EXCEPTION 'the key is empty or longer than 1000 bytes'
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /key.',
            HINT = 'The key names the task within its watcher.';
    END IF;
    IF jsonb_typeof($4) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION 'the input of an infinite task must be an object, not %',
            coalesce(jsonb_typeof($4), 'null')
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /input.',
                HINT = 'Pass jsonb such as {"symbol": "ABC"}.';
    END IF;
    PERFORM _sas.check_input_size($4, '/input', 'the input');
    -- functions, targets and agent are used as the owner of the task
    PERFORM _sas.raise(wrong) FROM _sas.check_function(to_jsonb(d.function), '/watcher', caller, true) wrong
    WHERE d.kind = 'function';
    PERFORM _sas.raise(wrong)
    FROM _sas.check_function(to_jsonb(d.target), '/items/function', caller, true) wrong
    WHERE d.target_kind = 'function';
    PERFORM _sas.raise(wrong) FROM _sas.check_target_table(to_jsonb(d.target), caller) wrong
    WHERE d.target_kind = 'table';
    PERFORM _sas.raise(wrong) FROM _sas.check_target_workflow(to_jsonb(d.target), caller) wrong
    WHERE d.target_kind = 'workflow';
    PERFORM _sas.raise(wrong) FROM _sas.check_watch_use(caller, d.lane, d.kind, d.request) wrong;
END $$;

-- _sas.start_cursor(d, key, input, given): the cursor at which the task begins.
CREATE FUNCTION _sas.start_cursor(d _sas.watcher, key text, input jsonb, given jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    made record;
BEGIN
    IF given IS NOT NULL OR d.cursor_start IS NULL THEN
        RETURN nullif(given, 'null');
    END IF;
    SELECT * INTO made FROM _sas.render(d.cursor_start,
                                        _sas.watch_context(d.name, key, input, NULL) - 'cursor');
    IF made.problem IS NOT NULL THEN
        RAISE EXCEPTION 'could not build the first cursor'
            USING ERRCODE = 'invalid_parameter_value',
            DETAIL = _sas.problem_text(made.problem),
            HINT = 'See "cursor" of the watcher.';
    END IF;
    RETURN nullif(made.result, 'null');
END $$;

-- _sas.watch_as(...): the body of sas.watch. A key whose task was deleted starts again. A key that is in
-- use is refused; or, with adopt, its task is left as it is, if it has the same input and is not being
-- stopped.
-- Writes: watch, watch_flow, watch_done.
CREATE FUNCTION _sas.watch_as(caller oid, watcher text, key text, input jsonb, cursor jsonb, adopt boolean,
                              OUT watch_id bigint, OUT created boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    d _sas.watcher;
    w _sas.watch;
    start jsonb;
BEGIN
    -- not dropped until this is committed
    SELECT * INTO d FROM _sas.watcher x WHERE x.name = $2 FOR KEY SHARE;
    IF NOT FOUND THEN
        PERFORM _sas.refuse_missing('watcher', $2, '/watcher', 'Create it with sas.create_watcher.');
    END IF;
    PERFORM _sas.check_latest_rows('watcher', d.watcher_id) WHERE _sas.keeps_snapshot();
    PERFORM _sas.check_watch(d, caller, key, input);
    start := _sas.start_cursor(d, key, input, cursor);

    LOOP
        INSERT INTO _sas.watch AS x (watcher_id, key, owner, input, state, epoch, created_at, changed_at)
        VALUES (d.watcher_id, key, caller, input, 'created', 0, sas.now(), sas.now())
        ON CONFLICT (watcher_id, key) DO NOTHING RETURNING x.watch_id INTO watch_id;
        created := FOUND;
        EXIT WHEN created;
        SELECT * INTO w FROM _sas.watch x WHERE x.watcher_id = d.watcher_id AND x.key = $3 FOR NO KEY UPDATE;
        -- a task that was deleted long ago may be purged at this moment
        EXIT WHEN FOUND;
    END LOOP;
    IF created THEN
        INSERT INTO _sas.watch_flow (watch_id, cursor) VALUES (watch_id, start);
        INSERT INTO _sas.watch_done (watch_id) VALUES (watch_id);
    ELSE
        watch_id := w.watch_id;
        IF w.state <> 'deleted' THEN
            PERFORM _sas.check_adoption(caller, d, w, input, adopt);
            RETURN;
        END IF;
        created := true;
        UPDATE _sas.watch x SET owner = caller, input = $4, restarts = 0, resumed_at = NULL,
            created_at = sas.now() WHERE x.watch_id = w.watch_id;
        UPDATE _sas.watch_flow f SET cursor = start, digest = NULL, items = 0, bytes = 0,
            last_item_at = NULL, moved_at = NULL, closed = false, failures = 0, retry_at = NULL,
            last_error = NULL, last_error_at = NULL, given_up_at = NULL, called_at = NULL,
            next_at = NULL, next_by = NULL
        WHERE f.watch_id = w.watch_id;
        UPDATE _sas.watch_done f SET items = 0, discarded = 0, bytes = 0, failures = 0, alone = false,
            retry_at = NULL, last_error = NULL, last_error_at = NULL, given_up_at = NULL
        WHERE f.watch_id = w.watch_id;
        PERFORM _sas.move_watches(ARRAY[w.watch_id], '{deleted}', '{created}');
    END IF;
    PERFORM _sas.open_more(caller, '{0,0,0,1}');
    PERFORM _sas.enqueue_watches(ARRAY[watch_id]);
END $$;

-- _sas.check_adoption(...): raises an error if the existing task of a key cannot be used for the requested
-- one.
CREATE FUNCTION _sas.check_adoption(caller oid, d _sas.watcher, w _sas.watch, input jsonb, adopt boolean)
RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT _sas.may_stand_for(caller, w.owner) AND NOT _sas.has_level(caller, 'admin') THEN
        RAISE EXCEPTION 'key "%" of watcher "%" is used by another role', w.key, d.name
            USING ERRCODE = 'insufficient_privilege', DETAIL = 'At /key.', HINT = 'Use another key.';
    ELSIF NOT coalesce(adopt, false) THEN
        RAISE EXCEPTION 'key "%" of watcher "%" is already used', w.key, d.name
            USING ERRCODE = 'unique_violation', DETAIL = format('At /key: the task is %s.', w.state),
                HINT = 'Pass adopt => true to use the existing task.';
    ELSIF w.input IS DISTINCT FROM $4 THEN
        RAISE EXCEPTION 'key "%" of watcher "%" is used with another input', w.key, d.name
            USING ERRCODE = 'unique_violation', DETAIL = 'At /input.',
                HINT = 'Stop it with sas.unwatch first, or use another key.';
    ELSIF w.state = 'on_deleting' THEN
        RAISE EXCEPTION 'key "%" of watcher "%" is being stopped', w.key, d.name
            USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = 'At /key.',
                HINT = 'Try again when it has been deleted.';
    END IF;
END $$;

-- _sas.operate_watches(caller, watcher, keys): locks the tasks that a verb names, in order; waits for other
-- sessions.
CREATE FUNCTION _sas.operate_watches(caller oid, watcher text, keys text[])
RETURNS TABLE (watch_id bigint, key text, state text, refused text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    d _sas.watcher;
    all_ boolean := _sas.is_operator(caller);
BEGIN
    SELECT * INTO d FROM _sas.watcher x WHERE x.name = $2;
    IF NOT FOUND THEN
        PERFORM _sas.refuse_missing('watcher', $2, '/watcher', 'See sas.watchers for existing watchers.');
    END IF;
    PERFORM _sas.wake_on_abort();
    PERFORM FROM _sas.watch w
    WHERE w.watcher_id = d.watcher_id AND w.key = ANY (keys)
        AND (all_ OR _sas.may_stand_for(caller, w.owner))
    ORDER BY w.watch_id FOR NO KEY UPDATE;
    RETURN QUERY
    SELECT w.watch_id, u.key, w.state,
           CASE WHEN w.watch_id IS NULL OR NOT (all_ OR _sas.may_stand_for(caller, w.owner))
               THEN format('task "%s" does not exist, or is not yours', u.key) END
    FROM (SELECT DISTINCT k AS key FROM unnest(keys) k WHERE k IS NOT NULL) u
    LEFT JOIN _sas.watch w ON w.watcher_id = d.watcher_id AND w.key = u.key
    ORDER BY w.watch_id, u.key;
END $$;

-- _sas.record_watches(caller, act, watcher, ids): records that an operator has acted on these tasks.
CREATE FUNCTION _sas.record_watches(caller oid, act text, watcher text, ids bigint[]) RETURNS void
LANGUAGE sql AS $$
    SELECT _sas.record_change(caller, act, jsonb_build_object('watcher', watcher, 'keys', (
        SELECT jsonb_agg(w.key ORDER BY w.key) FROM _sas.watch w WHERE w.watch_id = ANY (ids))))
$$;

-- _sas.apply_to_watches(caller, watcher, keys, from_states, to_state, refusal): moves those of these tasks
-- that are in one of from_states, notifies their hosts, settles them, and reports on all.
-- Writes: watch, watch_wait.
CREATE FUNCTION _sas.apply_to_watches(caller oid, watcher text, keys text[], from_states text[],
                                      to_state text, refusal text)
RETURNS TABLE (key text, changed boolean, state text, refused text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    found_ids bigint[];
    found_keys text[];
    refusals text[];
    ids bigint[];
    froms text[];
BEGIN
    SELECT array_agg(o.watch_id), array_agg(o.key),
        array_agg(coalesce(o.refused, CASE WHEN NOT o.state = ANY ($4) THEN format(refusal, o.state) END)),
           array_agg(o.watch_id) FILTER (WHERE o.refused IS NULL AND o.state = ANY ($4)),
               array_agg(o.state) FILTER (WHERE o.refused IS NULL AND o.state = ANY ($4))
    INTO found_ids, found_keys, refusals, ids, froms
    FROM _sas.operate_watches(caller, watcher, keys) o;
    IF ids IS NOT NULL THEN
        -- failed tasks are tried again, also when they are being stopped
        UPDATE _sas.watch w SET resumed_at = sas.now() WHERE w.watch_id = ANY (ids)
            AND (to_state = 'created' OR w.state = 'failed');
        PERFORM _sas.move_watches(ids, froms, array_fill(to_state, ARRAY[cardinality(ids)]));
        PERFORM _sas.close_alerts(ARRAY(SELECT format('watch %s', u.id) FROM unnest(ids, froms) AS u (id, f)
                                        WHERE u.f = 'failed'));
        IF to_state <> 'created' THEN
            DELETE FROM _sas.watch_wait q WHERE q.watch_id = ANY (ids);
        END IF;
        PERFORM _sas.notify_hosts(ids);
        PERFORM _sas.check_watches(ids);
        PERFORM _sas.record_watches(caller, CASE to_state WHEN 'paused' THEN 'pause_watch' WHEN 'created'
            THEN 'resume_watch' ELSE 'unwatch' END, watcher, ids);
    END IF;
    RETURN QUERY
    SELECT u.key, u.refused IS NULL, CASE WHEN u.refused IS NULL
        OR u.refused NOT LIKE '%is not yours' THEN w.state END, u.refused
    FROM unnest(found_ids, found_keys, refusals) WITH ORDINALITY AS u (id, key, refused, n)
    LEFT JOIN _sas.watch w ON w.watch_id = u.id ORDER BY u.n;
END $$;

-- _sas.unwatch_as(...): the body of sas.unwatch. A task without a host and with an empty inbox is deleted
-- at once; others are asked to end.
-- Writes: watch_wait, watch.
CREATE FUNCTION _sas.unwatch_as(caller oid, watcher text, keys text[], discard boolean)
RETURNS TABLE (key text, changed boolean, state text, refused text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    o record;
    done bigint[];
    busy text[];
BEGIN
    -- what is certain now: the task has no host, and its inbox is empty
    FOR o IN SELECT * FROM _sas.operate_watches(caller, watcher, keys) LOOP
        IF o.refused IS NOT NULL THEN
            RETURN QUERY SELECT o.key, false, NULL::text, o.refused;
        ELSIF o.state IN ('created', 'paused', 'failed')
            AND NOT EXISTS (SELECT FROM _sas.watch_held h WHERE h.watch_id = o.watch_id)
              AND NOT EXISTS (SELECT FROM _sas.watch_batch b WHERE b.watch_id = o.watch_id) THEN
            DELETE FROM _sas.watch_wait q WHERE q.watch_id = o.watch_id;
            PERFORM _sas.move_watches(ARRAY[o.watch_id], ARRAY[o.state], '{deleted}');
            PERFORM _sas.close_alerts(ARRAY[format('watch %s', o.watch_id)]) WHERE o.state = 'failed';
            done := done || o.watch_id;
            RETURN QUERY SELECT o.key, true, 'deleted', NULL::text;
        ELSIF o.state = 'on_deleting' AND discard THEN
            UPDATE _sas.watch w SET discard = true WHERE w.watch_id = o.watch_id;
            PERFORM _sas.check_watches(ARRAY[o.watch_id]);
            done := done || o.watch_id;
            RETURN QUERY SELECT o.key, true, o.state, NULL::text;
        ELSE
            busy := busy || o.key;
        END IF;
    END LOOP;
    PERFORM _sas.record_watches(caller, 'unwatch', watcher, done) WHERE done IS NOT NULL;
    IF busy IS NOT NULL THEN
        RETURN QUERY SELECT * FROM _sas.apply_to_watches(caller, watcher, busy,
                                                         '{created,processing,paused,failed}', 'on_deleting',
                                                         'it is %s already');
        IF discard THEN
            UPDATE _sas.watch w SET discard = true FROM _sas.watcher d
            WHERE d.name = $2 AND w.watcher_id = d.watcher_id AND w.key = ANY (busy)
                AND w.state = 'on_deleting' AND _sas.may_operate(caller, w.owner);
        END IF;
    END IF;
END $$;

-- _sas.pause_watch_as(caller, watcher, keys): the body of sas.pause_watch.
CREATE FUNCTION _sas.pause_watch_as(caller oid, watcher text, keys text[])
RETURNS TABLE (key text, changed boolean, state text, refused text)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT * FROM _sas.apply_to_watches(caller, watcher, keys, '{created,processing}', 'paused',
                                        'it is %s; only one that waits or is processed can be paused')
$$;

-- _sas.resume_watch_as(caller, watcher, keys): the body of sas.resume_watch.
CREATE FUNCTION _sas.resume_watch_as(caller oid, watcher text, keys text[])
RETURNS TABLE (key text, changed boolean, state text, refused text)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT * FROM _sas.apply_to_watches(caller, watcher, keys, '{paused,failed}', 'created',
                                        'it is %s; only one that is paused or has failed can be resumed')
$$;

-- _sas.rebalance_as(caller): the body of sas.rebalance: asks nodes that hold more than their share to give
-- tasks back. Returns how many tasks.
-- Writes: watch.
CREATE FUNCTION _sas.rebalance_as(caller oid) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ids bigint[];
BEGIN
    PERFORM _sas.wake_on_abort();
    WITH load AS (
        SELECT n.node_id, n.capacity, n.kind, n.lanes,
            (SELECT count(*) FROM _sas.watch_held h WHERE h.node_id = n.node_id) AS held
        FROM _sas.node n WHERE n.ended_at IS NULL),
    goal AS (
        SELECT l.node_id, l.held, ceil(sum(p.held) * l.capacity / nullif(sum(p.capacity), 0))::bigint AS share
        FROM load l JOIN load p ON p.kind = l.kind AND (l.lanes IS NULL OR p.lanes && l.lanes)
        GROUP BY l.node_id, l.held, l.capacity)
    SELECT array_agg(x.watch_id) INTO ids
    FROM goal g
    CROSS JOIN LATERAL (SELECT h.watch_id FROM _sas.watch_held h WHERE h.node_id = g.node_id
                        ORDER BY h.watch_id DESC LIMIT greatest(0, g.held - g.share)) x;
    WITH asked AS (
        UPDATE _sas.watch w SET moving = true
        WHERE w.watch_id = ANY (ARRAY(SELECT l.watch_id FROM _sas.watch l WHERE l.watch_id = ANY (ids)
                                      AND l.state = 'processing' AND NOT l.moving
                                      ORDER BY l.watch_id FOR NO KEY UPDATE))
        RETURNING w.watch_id)
    SELECT array_agg(a.watch_id) INTO ids FROM asked a;
    PERFORM _sas.notify_hosts(ids) WHERE ids IS NOT NULL;
    PERFORM _sas.record_change(caller, 'rebalance',
                               jsonb_build_object('tasks', coalesce(cardinality(ids), 0)));
    RETURN coalesce(cardinality(ids), 0);
END $$;

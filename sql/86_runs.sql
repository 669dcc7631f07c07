-- SPDX-License-Identifier: PostgreSQL
--
-- Workflows, runs and the verbs of users and operators, each with the
-- caller's role as its first parameter (see the head of the agents' piece).

-- sas._level(level): called by nobody; who may execute it has that level. One function per level.
CREATE FUNCTION sas._level_admin() RETURNS void LANGUAGE sql AS $$ $$;
CREATE FUNCTION sas._level_operator() RETURNS void LANGUAGE sql AS $$ $$;
CREATE FUNCTION sas._level_user() RETURNS void LANGUAGE sql AS $$ $$;
CREATE FUNCTION sas._level_monitor() RETURNS void LANGUAGE sql AS $$ $$;
CREATE FUNCTION sas._level_worker() RETURNS void LANGUAGE sql AS $$ $$;

CREATE FUNCTION sas._has_level(role oid, level text) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT has_function_privilege(role, format('sas._level_%s()', level)::regprocedure, 'EXECUTE')
$$;

-- sas._own_workflow(caller, name): the workflow, locked, if the caller may change it.
CREATE FUNCTION sas._own_workflow(caller oid, workflow_name text) RETURNS sas.workflow
LANGUAGE plpgsql AS $$
DECLARE
    f sas.workflow;
BEGIN
    SELECT * INTO f FROM sas.workflow w WHERE w.name = workflow_name AND w.dropped_at IS NULL FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'workflow "%" does not exist', workflow_name USING ERRCODE = 'undefined_object', HINT = 'See sas.workflows for those that do.';
    END IF;
    IF NOT pg_has_role(caller, f.owner, 'MEMBER') AND NOT sas._has_level(caller, 'admin') THEN
        RAISE EXCEPTION 'must be owner of workflow "%"', workflow_name USING ERRCODE = 'insufficient_privilege', HINT = 'Its owner, or a role with level admin, can do this.';
    END IF;
    RETURN f;
END $$;

CREATE FUNCTION sas._create_workflow(caller oid, name text, definition jsonb) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, sas, pg_temp AS $$
#variable_conflict use_column
DECLARE
    f sas.workflow;
    p sas._problem;
BEGIN
    FOR p IN SELECT * FROM sas._check_name($2, '/name') UNION ALL SELECT * FROM sas._check_definition($3, caller) LOOP
        PERFORM sas._raise(p);
    END LOOP;
    INSERT INTO sas.workflow AS w (name, owner, version, created_at) VALUES ($2, caller, 1, sas._now())
    ON CONFLICT (name) WHERE dropped_at IS NULL DO NOTHING
    RETURNING * INTO f;
    IF NOT FOUND THEN
        f := sas._own_workflow(caller, $2);
        f.version := f.version + 1;
        UPDATE sas.workflow w SET version = f.version WHERE w.workflow_id = f.workflow_id;
    END IF;
    PERFORM sas._store_version(f.workflow_id, f.version, definition, caller);
    RETURN f.version;
END $$;

CREATE FUNCTION sas._validate_workflow(caller oid, definition jsonb) RETURNS TABLE (path text, problem text, hint text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, sas, pg_temp AS $$
    SELECT p.path, p.problem, p.hint FROM sas._check_definition(definition, caller) p
$$;

CREATE FUNCTION sas._drop_workflow(caller oid, name text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, sas, pg_temp AS $$
#variable_conflict use_column
DECLARE
    f sas.workflow := sas._own_workflow(caller, $2);
BEGIN
    IF EXISTS (SELECT FROM sas.run r JOIN sas.workflow_version v USING (version_id) WHERE v.workflow_id = f.workflow_id AND r.state <> 'stopped') THEN
        RAISE EXCEPTION 'workflow "%" has open runs', $2 USING ERRCODE = 'dependent_objects_still_exist', HINT = 'Let them end, or cancel them with sas.cancel, first.';
    END IF;
    UPDATE sas.workflow w SET dropped_at = sas._now() WHERE w.workflow_id = f.workflow_id;
END $$;

CREATE FUNCTION sas._grant_workflow(caller oid, workflow text, role regrole) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, sas, pg_temp AS $$
#variable_conflict use_column
DECLARE
    f sas.workflow := sas._own_workflow(caller, workflow);
BEGIN
    INSERT INTO sas.workflow_grant VALUES (f.workflow_id, role) ON CONFLICT DO NOTHING;
END $$;

CREATE FUNCTION sas._revoke_workflow(caller oid, workflow text, role regrole) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, sas, pg_temp AS $$
#variable_conflict use_column
DECLARE
    f sas.workflow := sas._own_workflow(caller, workflow);
BEGIN
    DELETE FROM sas.workflow_grant g WHERE g.workflow_id = f.workflow_id AND g.role = $3;
END $$;

-- sas._submittable(caller, name): the current version of a workflow that the caller may submit.
CREATE FUNCTION sas._submittable(caller oid, workflow_name text) RETURNS sas.workflow_version
LANGUAGE plpgsql STABLE AS $$
DECLARE
    f sas.workflow;
    v sas.workflow_version;
    p sas._problem;
BEGIN
    SELECT * INTO f FROM sas.workflow w WHERE w.name = workflow_name AND w.dropped_at IS NULL;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'workflow "%" does not exist', workflow_name USING ERRCODE = 'undefined_object', HINT = 'Create it with sas.create_workflow.';
    END IF;
    IF NOT (f.owner = caller OR pg_has_role(caller, f.owner, 'MEMBER')
            OR EXISTS (SELECT FROM pg_roles o WHERE o.oid = f.owner AND o.rolsuper)
            OR sas._has_level(f.owner, 'admin')
            OR EXISTS (SELECT FROM sas.workflow_grant g WHERE g.workflow_id = f.workflow_id AND pg_has_role(caller, g.role, 'MEMBER'))) THEN
        RAISE EXCEPTION 'permission denied for workflow "%"', workflow_name
            USING ERRCODE = 'insufficient_privilege', HINT = format('Its owner can grant it: SELECT sas.grant_workflow(%L, %L).', workflow_name, pg_get_userbyid(caller));
    END IF;
    SELECT * INTO v FROM sas.workflow_version x WHERE x.workflow_id = f.workflow_id AND x.version = f.version;
    IF cardinality(v.functions) > 0 THEN
        FOR p IN SELECT c.* FROM unnest(v.functions) fn CROSS JOIN LATERAL sas._check_function(to_jsonb(fn), '/workflow', caller) c LOOP
            PERFORM sas._raise(p);
        END LOOP;
    END IF;
    RETURN v;
END $$;

-- sas._submit_batch(...): the runs, with what makes them start, in the
-- caller's transaction. A key that is taken gives the run that has it.
CREATE FUNCTION sas._submit_batch(caller oid, workflow text, inputs jsonb[], keys text[], priority int, start_at timestamptz, start_before timestamptz,
                                  deadline interval, after_run bigint, reply_to text, labels jsonb)
RETURNS TABLE (run_id bigint, created boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, sas, pg_temp AS $$
#variable_conflict use_column
DECLARE
    now timestamptz := sas._now();
    v sas.workflow_version := sas._submittable(caller, workflow);
    size int := coalesce(cardinality(inputs), 0);
    ids bigint[] := '{}';
    fresh boolean[];
    later boolean := coalesce($6 > now, false);
    bad int;
    p sas._problem;
    made bigint[];
BEGIN
    IF start_before IS NOT NULL OR after_run IS NOT NULL THEN
        RAISE EXCEPTION 'start_before and after_run are not supported in this release' USING ERRCODE = 'feature_not_supported';
    END IF;
    IF keys IS NOT NULL AND cardinality(keys) <> size THEN
        RAISE EXCEPTION 'there are % inputs and % keys', size, cardinality(keys) USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT u.n INTO bad FROM unnest(inputs) WITH ORDINALITY AS u (input, n) WHERE jsonb_typeof(u.input) IS DISTINCT FROM 'object' LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'the input of a run must be an object, not %', coalesce(jsonb_typeof(inputs[bad]), 'null')
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'The place is "/input".', HINT = 'Pass jsonb such as {"order_id": 7}.';
    END IF;
    IF EXISTS (SELECT FROM unnest(inputs) i WHERE pg_column_size(i) > sas._max_input_size()) THEN
        RAISE EXCEPTION 'the input has more than % bytes', sas._max_input_size()
            USING ERRCODE = 'program_limit_exceeded', DETAIL = 'The place is "/input".', HINT = 'See the setting sas.max_input_size.';
    END IF;
    IF jsonb_typeof(labels) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION 'labels must be an object' USING ERRCODE = 'invalid_parameter_value', DETAIL = 'The place is "/labels".', HINT = 'Pass jsonb such as {"tenant": "a"}.';
    END IF;
    IF $8 <= '0' THEN
        RAISE EXCEPTION 'the deadline must be positive' USING ERRCODE = 'invalid_parameter_value', DETAIL = 'The place is "/deadline".', HINT = 'It is the time that the run may take.';
    END IF;
    IF priority IS NULL OR priority NOT BETWEEN -1000 AND 1000 THEN
        RAISE EXCEPTION 'the priority must be from -1000 to 1000' USING ERRCODE = 'invalid_parameter_value', DETAIL = 'The place is "/priority".';
    END IF;
    IF reply_to IS NOT NULL THEN
        FOR p IN SELECT * FROM sas._check_name(reply_to, '/reply_to') LOOP
            PERFORM sas._raise(p);
        END LOOP;
    END IF;

    SELECT array_agg(nextval('sas.run_run_id_seq')) INTO ids FROM generate_series(1, size);
    fresh := array_fill(true, ARRAY[size]);
    IF keys IS NOT NULL THEN
        SELECT k.ids, k.fresh INTO ids, fresh FROM sas._take_keys(caller, v.workflow_id, keys, inputs, ids) k;
    END IF;

    INSERT INTO sas.run (run_id, version_id, owner, trace, key, state, open_steps, priority, input, reply_to, labels, created_at, start_at, deadline)
    OVERRIDING SYSTEM VALUE
    SELECT ids[u.n], v.version_id, caller, gen_random_uuid(), keys[u.n], CASE WHEN later THEN 'scheduled' ELSE 'pending' END,
           CASE WHEN v.step_count = 0 THEN (v.finalize_no IS NOT NULL)::int
                ELSE (SELECT count(*) FROM sas.workflow_step w
                      WHERE w.version_id = v.version_id AND NOT w.undo AND w.needs = 0 AND w.step_no IS DISTINCT FROM v.finalize_no) END,
           $5 + v.priority, u.input, $10, $11, now, $6, greatest(now, $6) + coalesce($8, v.deadline, sas._run_deadline())
    FROM unnest(inputs) WITH ORDINALITY AS u (input, n)
    WHERE fresh[u.n];

    SELECT array_agg(ids[g]) INTO made FROM generate_series(1, size) g WHERE fresh[g];
    IF made IS NOT NULL THEN
        IF $10 IS NOT NULL THEN
            INSERT INTO sas.reply (queue, owner, event, run_id, workflow, key, created_at)
            SELECT $10, caller, 'accepted', r.run_id, $2, r.key, now FROM sas.run r WHERE r.run_id = ANY (made);
            PERFORM pg_notify('sas_reply', $10);
        END IF;
        INSERT INTO sas.due (actor, due_at, run_id, kind)
        SELECT 'v', r.deadline, r.run_id, 'deadline' FROM sas.run r WHERE r.run_id = ANY (made);
        IF later THEN
            INSERT INTO sas.due (actor, due_at, run_id, kind) SELECT 's', $6, m, 'start' FROM unnest(made) m;
            PERFORM sas._ring('{}', true, false, '{}');
        ELSIF v.step_count = 0 AND v.finalize_no IS NULL THEN
            PERFORM sas._start_runs(made);
            PERFORM sas._end_of_steps(made);
        ELSE
            PERFORM sas._make_roots_ready(made);
        END IF;
    END IF;
    RETURN QUERY SELECT ids[g], fresh[g] FROM generate_series(1, size) g ORDER BY g;
END $$;

-- sas._take_keys(...): gives each key to its new run, or finds the run that has it. Keys in
-- order, so that two sessions cannot wait for each other.
CREATE FUNCTION sas._take_keys(caller oid, for_workflow int, keys text[], inputs jsonb[], INOUT ids bigint[], OUT fresh boolean[])
LANGUAGE plpgsql AS $$
DECLARE
    n int;
    holder bigint;
    held jsonb;
BEGIN
    fresh := array_fill(true, ARRAY[cardinality(ids)]);
    FOR n IN SELECT k.n FROM unnest(keys) WITH ORDINALITY AS k (key, n) WHERE k.key IS NOT NULL ORDER BY k.key, k.n LOOP
        INSERT INTO sas.run_key AS t (owner, workflow_id, key, run_id) VALUES (caller, for_workflow, keys[n], ids[n]) ON CONFLICT DO NOTHING;
        CONTINUE WHEN FOUND;
        SELECT t.run_id INTO STRICT holder FROM sas.run_key t WHERE t.owner = caller AND t.workflow_id = for_workflow AND t.key = keys[n];
        SELECT coalesce((SELECT r.input FROM sas.run r WHERE r.run_id = holder), inputs[array_position(ids, holder)]) INTO held;
        IF held IS DISTINCT FROM inputs[n] THEN
            RAISE EXCEPTION 'key "%" is taken by run % with another input', keys[n], holder
                USING ERRCODE = 'unique_violation', DETAIL = 'The place is "/key".', HINT = 'A key stands for one input; use another key.';
        END IF;
        ids[n] := holder;
        fresh[n] := false;
    END LOOP;
END $$;

CREATE FUNCTION sas._submit(caller oid, workflow text, input jsonb, key text, priority int, start_at timestamptz, start_before timestamptz,
                            deadline interval, after_run bigint, reply_to text, labels jsonb, OUT run_id bigint, OUT created boolean)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, sas, pg_temp AS $$
    SELECT b.run_id, b.created
    FROM sas._submit_batch(caller, workflow, ARRAY[input], CASE WHEN key IS NOT NULL THEN ARRAY[key] END, priority, start_at, start_before, deadline, after_run, reply_to, labels) b
$$;

CREATE FUNCTION sas._read_replies(caller oid, queue text, quantity int)
RETURNS TABLE (event text, run_id bigint, workflow text, key text, result text, output jsonb, error jsonb, created_at timestamptz)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, sas, pg_temp AS $$
    WITH taken AS (
        DELETE FROM sas.reply d
        WHERE d.reply_id = ANY (ARRAY(
            SELECT q.reply_id FROM sas.reply q
            WHERE q.queue = $2 AND q.owner IN (SELECT o.oid FROM pg_roles o WHERE pg_has_role(caller, o.oid, 'MEMBER'))
            ORDER BY q.reply_id LIMIT greatest($3, 0) FOR UPDATE SKIP LOCKED))
        RETURNING d.*)
    SELECT t.event, t.run_id, t.workflow, t.key, t.result, t.output, t.error, t.created_at FROM taken t ORDER BY t.reply_id
$$;

-- Operators -----------------------------------------------------------------------

-- sas._operate(caller, run_ids): locks the runs that an operator names, in order; waits for other sessions, never holds up a worker for long.
CREATE FUNCTION sas._operate(caller oid, run_ids bigint[]) RETURNS TABLE (run_id bigint, state text, fate text, refused text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    PERFORM sas._ring_on_abort();
    PERFORM FROM sas.run r WHERE r.run_id = ANY (run_ids) ORDER BY r.run_id FOR NO KEY UPDATE;
    RETURN QUERY
    SELECT u.id, r.state, r.fate,
           CASE WHEN r.run_id IS NULL OR NOT (pg_has_role(caller, r.owner, 'MEMBER') OR sas._has_level(caller, 'operator') OR sas._has_level(caller, 'admin'))
                THEN format('run %s does not exist, or is not yours', u.id) END
    FROM (SELECT DISTINCT unnest(run_ids) AS id) u LEFT JOIN sas.run r ON r.run_id = u.id ORDER BY u.id;
END $$;

-- sas._record(...): an operator's act, for sas.history.
CREATE FUNCTION sas._record(caller oid, run_ids bigint[], act text, step text, detail jsonb) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO sas.history (run_id, at, role, act, step, detail)
    SELECT u, sas._now(), pg_get_userbyid(caller), act, step, detail FROM unnest(run_ids) u
$$;

CREATE FUNCTION sas._pause(caller oid, run_ids bigint[]) RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, sas, pg_temp AS $$
#variable_conflict use_column
DECLARE
    o record;
BEGIN
    FOR o IN SELECT * FROM sas._operate(caller, run_ids) LOOP
        IF o.refused IS NULL AND o.state IN ('scheduled', 'pending', 'running', 'compensating') THEN
            PERFORM sas._pause(ARRAY[o.run_id], ARRAY['an operator paused it'], pg_get_userbyid(caller)::text);
            PERFORM sas._record(caller, ARRAY[o.run_id], 'pause', NULL, NULL);
            RETURN QUERY SELECT o.run_id, NULL::text, true, r.state, r.result, NULL::text FROM sas.run r WHERE r.run_id = o.run_id;
        ELSE
            RETURN QUERY SELECT o.run_id, NULL::text, false, CASE WHEN o.refused IS NULL THEN o.state END, NULL::text,
                                coalesce(o.refused, format('run %s is %s; only an open run that is not paused can be paused', o.run_id, o.state));
        END IF;
    END LOOP;
END $$;

-- sas._set_going(run_ids): paused runs go on: what is parked goes into the
-- queue, what has failed and was not decided gets another window.
CREATE FUNCTION sas._set_going(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    changes sas._step_change[];
    stopped bigint[];
BEGIN
    PERFORM sas._move_runs(array_agg(ROW(r.run_id, 'paused',
                CASE WHEN r.fate IS NOT NULL THEN 'compensating' WHEN r.paused_state = 'scheduled' THEN 'scheduled'
                     WHEN r.started_at IS NULL AND r.paused_state <> 'running' THEN 'pending' ELSE 'running' END,
                NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)::sas._run_change))
    FROM sas.run r WHERE r.run_id = ANY (run_ids) AND r.state = 'paused';

    SELECT array_agg(ROW(s.run_id, s.step_no, s.element, s.state, CASE s.state WHEN 'failed' THEN 'ready' ELSE s.state END,
                         NULL, CASE WHEN s.parked AND s.state <> 'compensating' THEN NULL ELSE 0 END, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                         NULL, NULL, NULL, NULL, NULL, NULL)::sas._step_change)
    INTO changes
    FROM sas.step s JOIN sas.run r ON r.run_id = s.run_id
    WHERE s.run_id = ANY (run_ids) AND s.request_id IS NULL AND s.waiting_until IS NULL
      AND (s.state = 'ready' AND s.parked OR s.state = 'compensating' OR s.state = 'failed' AND (r.fate IS NULL OR s.in_doubt));
    -- a failure that the supervisor has not looked at yet is decided here
    DELETE FROM sas.due d USING unnest(changes) c
    WHERE d.actor = 'v' AND d.kind = 'failed' AND d.run_id = c.run_id AND d.step_no = c.step_no AND d.element = c.element;
    PERFORM sas._move_steps(changes);
    PERFORM sas._requeue(array_agg(c.run_id), array_agg(c.step_no), array_agg(c.element)) FROM unnest(changes) c;

    INSERT INTO sas.due (actor, due_at, run_id, kind)
    SELECT 'v', sas._now(), r.run_id, 'deadline' FROM sas.run r WHERE r.run_id = ANY (run_ids) AND r.deadline <= sas._now() AND r.fate IS NULL;
    INSERT INTO sas.due (actor, due_at, run_id, kind)
    SELECT 's', greatest(r.start_at, sas._now()), r.run_id, 'start' FROM sas.run r WHERE r.run_id = ANY (run_ids) AND r.state = 'scheduled';
    SELECT array_agg(r.run_id) INTO stopped FROM sas.run r WHERE r.run_id = ANY (run_ids) AND r.fate IS NULL AND r.open_steps = 0;
    PERFORM sas._end_of_steps(stopped) WHERE stopped IS NOT NULL;
    PERFORM sas._hand_to_scheduler(run_ids);
    PERFORM sas._ring('{}', true, true, '{}');
END $$;

CREATE FUNCTION sas._resume(caller oid, run_ids bigint[]) RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, sas, pg_temp AS $$
#variable_conflict use_column
DECLARE
    o record;
BEGIN
    FOR o IN SELECT * FROM sas._operate(caller, run_ids) LOOP
        IF o.refused IS NULL AND o.state = 'paused' THEN
            PERFORM sas._set_going(ARRAY[o.run_id]);
            PERFORM sas._record(caller, ARRAY[o.run_id], 'resume', NULL, NULL);
            RETURN QUERY SELECT o.run_id, NULL::text, true, r.state, r.result, NULL::text FROM sas.run r WHERE r.run_id = o.run_id;
        ELSE
            RETURN QUERY SELECT o.run_id, NULL::text, false, CASE WHEN o.refused IS NULL THEN o.state END, NULL::text,
                                coalesce(o.refused, format('run %s is %s; only a paused run can be resumed', o.run_id, o.state));
        END IF;
    END LOOP;
END $$;

CREATE FUNCTION sas._retry(caller oid, run_ids bigint[], step text, new_key boolean) RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, sas, pg_temp AS $$
#variable_conflict use_column
DECLARE
    o record;
    failed text[];
BEGIN
    IF new_key THEN
        RAISE EXCEPTION 'new_key is not supported in this release' USING ERRCODE = 'feature_not_supported';
    END IF;
    FOR o IN SELECT * FROM sas._operate(caller, run_ids) LOOP
        SELECT array_agg(w.name) INTO failed
        FROM sas.step s JOIN sas.run r ON r.run_id = s.run_id
        JOIN sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = s.step_no AND NOT w.undo
        WHERE s.run_id = o.run_id AND (s.state = 'failed' OR s.state = 'compensating' AND s.request_id IS NULL) AND ($3 IS NULL OR w.name = $3);
        IF o.refused IS NULL AND o.state = 'paused' AND failed IS NOT NULL THEN
            PERFORM sas._set_going(ARRAY[o.run_id]);
            PERFORM sas._record(caller, ARRAY[o.run_id], 'retry', $3, NULL);
            RETURN QUERY SELECT o.run_id, f, true, r.state, r.result, NULL::text FROM sas.run r CROSS JOIN unnest(failed) f WHERE r.run_id = o.run_id;
        ELSE
            RETURN QUERY SELECT o.run_id, $3, false, CASE WHEN o.refused IS NULL THEN o.state END, NULL::text,
                                coalesce(o.refused, format('run %s is %s and %s; only a failed step of a paused run can be retried', o.run_id, o.state,
                                                           CASE WHEN failed IS NULL THEN 'has no such failed step' ELSE 'its failure is being decided' END));
        END IF;
    END LOOP;
END $$;

CREATE FUNCTION sas._cancel(caller oid, run_ids bigint[], reason text) RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, sas, pg_temp AS $$
#variable_conflict use_column
DECLARE
    o record;
BEGIN
    FOR o IN SELECT * FROM sas._operate(caller, run_ids) LOOP
        IF o.refused IS NULL AND o.state <> 'stopped' AND o.fate IS NULL THEN
            PERFORM sas._doom(ARRAY[o.run_id], ARRAY['cancel'],
                              ARRAY[sas._problem_object('cancelled', 'the run was cancelled', reason, NULL, o.run_id, NULL)]);
            PERFORM sas._record(caller, ARRAY[o.run_id], 'cancel', NULL, to_jsonb(reason));
            RETURN QUERY SELECT o.run_id, NULL::text, true, r.state, r.result, NULL::text FROM sas.run r WHERE r.run_id = o.run_id;
        ELSE
            RETURN QUERY SELECT o.run_id, NULL::text, false, CASE WHEN o.refused IS NULL THEN o.state END, NULL::text,
                                coalesce(o.refused, format('run %s is %s%s; only an open run that goes on can be cancelled', o.run_id, o.state,
                                                           CASE WHEN o.state <> 'stopped' THEN ' and cannot go on already' ELSE '' END));
        END IF;
    END LOOP;
END $$;

CREATE FUNCTION sas._acknowledge(caller oid, alert_ids bigint[]) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, sas, pg_temp AS $$
DECLARE
    n int;
BEGIN
    UPDATE sas.alert SET acknowledged_at = sas._now(), acknowledged_by = pg_get_userbyid(caller) WHERE alert_id = ANY (alert_ids) AND acknowledged_at IS NULL;
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN n;
END $$;

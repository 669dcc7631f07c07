-- SPDX-License-Identifier: PostgreSQL
--
-- Submit: new runs, their keys, and the first message of their reply queue.

-- _sas.submit_runs(...): creates runs and what makes them begin, in the transaction of the caller. If a key
-- is taken, the run that has it is returned.
--   parents                   the steps, or elements, whose child runs these are; null: they have no parent.
--                             If the workflow has concurrency keys, all are of one run
--   deadlines                 of child runs; null, or one of them null: what deadline says
--   plans                     what their plan function has returned already
--   schedules, scheduled_ats  the schedule and the instant that each is submitted for
--   version                   null: the newest version that the caller may run
--   for_workflow              the workflow of that name must be this one
--   included                  the definition of the parent includes this version: no right to submit it is
--                             needed
--   child_queue               the queue of the step whose child runs these are
-- Caller: holds the lock of the parent run, if there is one. Writes: run, run_key, run_label,
-- concurrency_slot, and what _sas.begin_submitted writes. Next: workers claim the ready steps; the
-- scheduler begins runs that something keeps. src/store/submit.c does the same for plain runs.
CREATE FUNCTION _sas.submit_runs(caller oid, workflow text, inputs jsonb[], keys text[], priority int,
                                 start_at timestamptz, start_before timestamptz,
                                 deadline interval, after_runs bigint[], reply_to text, labels jsonb,
                                 parents _sas.parent[] DEFAULT NULL, deadlines timestamptz[] DEFAULT NULL,
                                 after_result text[] DEFAULT '{success,warning}', plans jsonb[] DEFAULT NULL,
                                 schedules text[] DEFAULT NULL, scheduled_ats timestamptz[] DEFAULT NULL,
                                 version int DEFAULT NULL, for_workflow int DEFAULT NULL,
                                 included int DEFAULT NULL, child_queue int DEFAULT NULL)
RETURNS TABLE (run_id bigint, created boolean)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    now timestamptz := sas.now();
    v _sas.workflow_version := CASE WHEN included IS NULL THEN _sas.version_to_submit($1, $2, $18, $19)
        ELSE _sas.included_to_submit(caller, for_workflow, included) END;
    is_child boolean := parents IS NOT NULL;
    ids bigint[];
    fresh boolean[];
    versions int[];
    made bigint[];
    roots int := _sas.count_roots(v);
    held boolean := coalesce($6 > now, false) OR $9 IS NOT NULL
        OR (SELECT f.paused_at IS NOT NULL FROM _sas.workflow f WHERE f.workflow_id = v.workflow_id);
BEGIN
    PERFORM _sas.check_start(start_at, start_before, after_result)
    WHERE start_before IS NOT NULL OR after_result IS DISTINCT FROM '{success,warning}';
    IF EXISTS (SELECT FROM _sas.middleware) THEN
        PERFORM _sas.check_middleware($1, $2, is_child);
        -- a child run is submitted by a scheduler, and no function of a user runs there
        IF NOT is_child THEN
            SELECT m.inputs, m.labels INTO inputs, labels FROM _sas.plan_before($1, $2, $3, $4, $11) m;
        END IF;
    END IF;
    PERFORM _sas.check_submit(inputs, keys, priority, start_at, start_before, deadline, reply_to, labels,
                              is_child);
    IF coalesce(cardinality(inputs), 0) = 0 THEN
        RETURN;
    END IF;
    SELECT p.ids, p.fresh, p.versions, p.inputs INTO ids, fresh, versions, inputs
    FROM _sas.prepare_runs(caller, v, keys, inputs, labels, is_child, plans) p;
    PERFORM _sas.open_more_runs($1, u.n, is_child, u.bytes)
    FROM (SELECT count(*)::int AS n, sum(_sas.value_size(i.input))::bigint AS bytes
          FROM unnest(inputs, fresh) AS i (input, fresh) WHERE i.fresh) u WHERE u.n > 0;

    INSERT INTO _sas.run (run_id, version_id, owner, trace, key, state, open_steps, priority, input,
                          reply_to, labels, created_at, start_at, start_before, queue_id, deadline,
                          parent_run_id, parent_step_no, parent_element, own_version, schedule, scheduled_at)
    OVERRIDING SYSTEM VALUE
    SELECT ids[u.n], pv.version_id, caller, gen_random_uuid(), keys[u.n],
           CASE WHEN held OR v.concurrency IS NOT NULL THEN 'scheduled' ELSE 'pending' END,
           CASE WHEN pv.version_id = v.version_id THEN roots ELSE _sas.count_roots(pv) END,
           $5 + pv.priority, u.input, $10, $11, now, $6, $7,
           coalesce(v.queue_id, child_queue),
           coalesce(deadlines[u.n], greatest(now, $6) + coalesce($8, pv.deadline, _sas.run_deadline())),
           u.run_id, u.step_no, u.element, pv.of_version IS NOT NULL, schedules[u.n], scheduled_ats[u.n]
    FROM unnest(inputs, parents) WITH ORDINALITY AS u (input, run_id, step_no, element, n)
    JOIN _sas.workflow_version pv ON pv.version_id = coalesce(versions[u.n], v.version_id)
    WHERE fresh[u.n];

    SELECT array_agg(u.id) INTO made FROM unnest(ids, fresh) AS u (id, fresh) WHERE u.fresh;
    PERFORM _sas.note_labels(caller, made, labels) WHERE made IS NOT NULL AND labels <> '{}';
    PERFORM _sas.begin_submitted(v, made, (parents[1]).run_id, caller, workflow, start_at, start_before,
                                 after_runs, after_result, reply_to, held) WHERE made IS NOT NULL;
    IF NOT is_child AND EXISTS (SELECT FROM _sas.middleware) THEN
        PERFORM _sas.plan_after($1, $2, made);
    END IF;
    RETURN QUERY SELECT u.i, u.f FROM unnest(ids, fresh) WITH ORDINALITY AS u (i, f, n) ORDER BY u.n;
END $$;

-- _sas.count_roots(v): how many steps of a run of this version are open when it begins.
CREATE FUNCTION _sas.count_roots(v _sas.workflow_version) RETURNS int
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF v.step_count = 0 THEN
        RETURN (v.finalize_no IS NOT NULL)::int;
    END IF;
    RETURN (SELECT count(*) FROM _sas.workflow_step w WHERE w.version_id = v.version_id AND NOT w.undo
            AND w.needs = 0 AND w.step_no IS DISTINCT FROM v.finalize_no);
END $$;

-- _sas.version_to_submit(caller, workflow, wanted, for_workflow): the version that new runs get, if the
-- caller may submit them. A version that was made for single runs is locked against the purge until this
-- transaction ends; if it is gone, another one is current. An older version that the caller names is combined
-- with its subscribers at its first submit.
CREATE FUNCTION _sas.version_to_submit(caller oid, workflow text, wanted int DEFAULT NULL,
                                       for_workflow int DEFAULT NULL)
RETURNS _sas.workflow_version
LANGUAGE plpgsql AS $$
DECLARE
    v _sas.workflow_version := _sas.submittable(caller, workflow, wanted);
BEGIN
    IF for_workflow <> v.workflow_id THEN
        RAISE EXCEPTION 'workflow "%" has been dropped', workflow
            USING ERRCODE = 'undefined_object', DETAIL = 'At /workflow.',
                HINT = 'The one that has its name now is another.';
    END IF;
    -- it may have been dropped before this transaction held it
    IF _sas.hold_workflow(v.workflow_id) THEN
        v := _sas.submittable(caller, workflow, wanted);
        IF _sas.hold_workflow(v.workflow_id) THEN
            RAISE EXCEPTION 'could not serialize access due to concurrent update'
                USING ERRCODE = 'serialization_failure', HINT = 'Try the transaction again.',
                    DETAIL = format('Workflow "%s" was dropped and created meanwhile.', workflow);
        END IF;
    END IF;
    IF wanted IS NOT NULL AND v.of_version IS NULL THEN
        PERFORM _sas.compose_version(v.workflow_id, wanted);
        v := _sas.submittable(caller, workflow, wanted);
    END IF;
    WHILE v.of_version IS NOT NULL LOOP
        PERFORM FROM _sas.workflow_version x WHERE x.version_id = v.version_id FOR KEY SHARE;
        EXIT WHEN FOUND;
        v := _sas.submittable(caller, workflow, wanted);
    END LOOP;
    RETURN v;
END $$;

-- _sas.included_to_submit(caller, for_workflow, included): a version that the definition of a run includes,
-- for a child run of it.
CREATE FUNCTION _sas.included_to_submit(caller oid, for_workflow int, included int)
RETURNS _sas.workflow_version
LANGUAGE plpgsql STABLE AS $$
DECLARE
    v _sas.workflow_version;
BEGIN
    SELECT * INTO v FROM _sas.workflow_version x WHERE x.workflow_id = for_workflow
        AND x.version = included;
    PERFORM _sas.check_needs(caller, v);
    RETURN v;
END $$;

-- _sas.nth_place(argument, n, size): the place of the n-th of so many inputs or keys: sas.submit has one
-- "input", sas.submit_batch several "inputs".
CREATE FUNCTION _sas.nth_place(argument text, n bigint, size int) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN size > 1 THEN format('/%ss/%s', argument, n - 1) ELSE '/' || argument END
$$;

-- _sas.check_inputs(inputs, keys, is_child): raises an error if the inputs or keys of a submit are wrong.
CREATE FUNCTION _sas.check_inputs(inputs jsonb[], keys text[], is_child boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    size int := coalesce(cardinality(inputs), 0);
    shown int := CASE WHEN is_child THEN 1 ELSE size END;
    wrong record;
BEGIN
    IF keys IS NOT NULL AND cardinality(keys) <> size THEN
        RAISE EXCEPTION 'the number of inputs (%) differs from the number of keys (%)',
            size, cardinality(keys)
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /keys.',
            HINT = 'Give a key for each input, null where there is none.';
    END IF;
    PERFORM _sas.check_bytes(octet_length(k.key), 2000, _sas.nth_place('key', k.n, shown), 'the key')
    FROM unnest(keys) WITH ORDINALITY AS k (key, n) WHERE octet_length(k.key) > 2000;
    SELECT coalesce(jsonb_typeof(i.input), 'null') AS kind, i.n INTO wrong
    FROM unnest(inputs) WITH ORDINALITY AS i (input, n)
    WHERE jsonb_typeof(i.input) IS DISTINCT FROM 'object' LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'the input of a run must be an object, not %', wrong.kind
            USING ERRCODE = 'invalid_parameter_value',
            DETAIL = _sas.at(_sas.nth_place('input', wrong.n, shown)),
            HINT = 'Pass jsonb such as {"order_id": 7}.';
    END IF;
    PERFORM _sas.check_input_size(i.input, _sas.nth_place('input', i.n, shown), 'the input')
    FROM unnest(inputs) WITH ORDINALITY AS i (input, n)
    WHERE coalesce(_sas.written_size(i.input, _sas.max_input_size()) > _sas.max_input_size(), true);
END $$;

-- _sas.check_submit(...): raises an error if the arguments of a submit are wrong. The deadline of a child
-- run may be longer than ten years, because it is that of its parent.
CREATE FUNCTION _sas.check_submit(inputs jsonb[], keys text[], priority int, start_at timestamptz,
                                  start_before timestamptz, deadline interval, reply_to text, labels jsonb,
                                  is_child boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    latest timestamptz := sas.now() + interval '100 years';
BEGIN
    PERFORM _sas.check_inputs(inputs, keys, is_child);
    IF jsonb_typeof(labels) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION 'labels must be an object'
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /labels.',
            HINT = 'Pass jsonb such as {"tenant": "a"}.';
    END IF;
    IF (SELECT count(*) FROM jsonb_object_keys(labels)) > 64 THEN
        RAISE EXCEPTION 'a run has more than 64 labels'
            USING ERRCODE = 'program_limit_exceeded', DETAIL = 'At /labels.',
            HINT = 'Labels are for finding runs. What a step needs belongs in the input.';
    END IF;
    PERFORM _sas.check_size(labels, 16384, '/labels', 'the set of labels');
    IF deadline <= '0' OR deadline > '10 years' AND NOT is_child THEN
        RAISE EXCEPTION 'the deadline must be positive, and at most ten years'
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /deadline.',
            HINT = 'It is the time that the run may take.';
    END IF;
    -- start_before may be far away, but not infinite
    IF start_at > latest OR NOT isfinite(start_at) OR NOT isfinite(start_before) THEN
        RAISE EXCEPTION 'the run must begin within a hundred years'
            USING ERRCODE = 'invalid_parameter_value',
            DETAIL = _sas.at(CASE WHEN isfinite(start_at) AND start_at <= latest OR start_at IS NULL
                                  THEN '/start_before' ELSE '/start_at' END),
            HINT = 'Omit it for a run that waits for no time.';
    END IF;
    IF priority IS NULL OR priority NOT BETWEEN -1000 AND 1000 THEN
        RAISE EXCEPTION 'the priority must be between -1000 and 1000'
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /priority.',
            HINT = 'The default is 0. A larger priority comes first.';
    END IF;
    IF reply_to IS NOT NULL THEN
        PERFORM _sas.raise(wrong) FROM _sas.check_name(reply_to, '/reply_to') wrong;
    END IF;
END $$;

-- _sas.note_runs(run_ids, new_state): counts new runs, which have this state, and sets the timers of
-- deadlines that are near, or of all while a clock is moved by hand. src/store/submit.c does it for plain
-- runs.
-- Reads: run. Writes: message. Wakes: the supervisor, when it must look.
CREATE FUNCTION _sas.note_runs(run_ids bigint[], new_state text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas.now();
    first timestamptz;
BEGIN
    PERFORM _sas.count_metric('transition', 0, 0, 'run none ' || new_state, cardinality(run_ids));
    WITH timer AS (
        INSERT INTO _sas.message (actor, due_at, run_id, kind)
        SELECT 'v', r.deadline, r.run_id, 'deadline' FROM _sas.run r
        WHERE r.run_id = ANY (run_ids) AND (r.deadline < now + _sas.untimed_from() OR _sas.is_testing())
        RETURNING due_at)
    SELECT min(t.due_at) INTO first FROM timer t;
    PERFORM _sas.due_by(least(first, now + _sas.untimed_check()));
END $$;

-- _sas.label_hash(name, value): the number under which a label is indexed. Different labels may have the
-- same number.
CREATE FUNCTION _sas.label_hash(name text, value jsonb) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT jsonb_hash_extended(jsonb_build_object(name, value), 0)
$$;

-- _sas.note_labels(owner, run_ids, labels): indexes these labels for new runs.
-- Writes: run_label.
CREATE FUNCTION _sas.note_labels(owner oid, run_ids bigint[], labels jsonb) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO _sas.run_label (label, owner, run_id)
    SELECT _sas.label_hash(e.key, e.value), owner, u FROM jsonb_each(labels) e CROSS JOIN unnest(run_ids) u
$$;

-- _sas.prepare_runs(caller, v, keys, inputs, labels, is_child, plans): chooses a run id for each input, and
-- whether that run is to be created: the key may be taken, or an open run may be returned instead. Plans
-- runs that have versions of their own. inputs: a later input may replace the input of a run that is to be
-- created.
-- Writes: run_key, concurrency_slot, and versions.
CREATE FUNCTION _sas.prepare_runs(caller oid, v _sas.workflow_version, keys text[], INOUT inputs jsonb[],
                                  labels jsonb, is_child boolean, plans jsonb[], OUT ids bigint[],
                                  OUT fresh boolean[], OUT versions int[])
LANGUAGE plpgsql AS $$
BEGIN
    -- before the runs get their numbers: see _sas.set_timers
    PERFORM pg_current_xact_id();
    SELECT array_agg(_sas.next_run_id()), array_agg(true) INTO ids, fresh FROM unnest(inputs);
    IF keys IS NOT NULL THEN
        SELECT k.ids, k.fresh INTO ids, fresh FROM _sas.take_keys(caller, v.workflow_id, keys, inputs, ids) k;
    END IF;
    IF NOT is_child AND EXISTS (SELECT FROM unnest(v.concurrency) c WHERE c.overlap <> 'wait') THEN
        SELECT m.inputs, m.ids, m.fresh INTO inputs, ids, fresh
        FROM _sas.meet_runs(caller, v, keys, labels, inputs, ids, fresh) m;
    END IF;
    IF v.planned THEN
        FOR n IN 1 .. cardinality(ids) LOOP
            IF fresh[n] THEN
                PERFORM _sas.check_budget();
                versions[n] := (_sas.plan_run(caller, v, inputs[n], is_child, plans[n])).version_id;
            END IF;
        END LOOP;
    END IF;
END $$;

-- _sas.begin_submitted(...): starts runs of this version after a submit has created them. held: something
-- other than the line under their key keeps them from beginning. parent_run_id: the parent of child runs.
-- Writes: reply; ready, or message, run_dependency and concurrency_slot; what hooks write. Wakes: workers
-- that can claim their first steps, or the scheduler.
CREATE FUNCTION _sas.begin_submitted(v _sas.workflow_version, run_ids bigint[], parent_run_id bigint,
                                     caller oid, workflow text, start_at timestamptz,
                                     start_before timestamptz, after_runs bigint[], after_result text[],
                                     reply_to text, held boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas.now();
    waits boolean := held OR v.concurrency IS NOT NULL;
BEGIN
    PERFORM _sas.note_runs(run_ids, CASE WHEN waits THEN 'scheduled' ELSE 'pending' END);
    IF $10 IS NOT NULL THEN
        INSERT INTO _sas.reply (queue, owner, event, run_id, workflow, key, created_at)
        SELECT $10, $4, 'accepted', r.run_id, $5, r.key, now FROM _sas.run r WHERE r.run_id = ANY (run_ids);
        PERFORM _sas.notify('sas_reply', $10);
    END IF;
    IF _sas.has_pages('_sas.workflow_hook') THEN
        PERFORM _sas.fire_hooks(run_ids);
    END IF;
    IF $7 IS NOT NULL THEN
        INSERT INTO _sas.message (actor, due_at, run_id, kind) SELECT 's', $7, u, 'late'
        FROM unnest(run_ids) u;
        PERFORM _sas.wake(scheduler => true);
    END IF;
    IF waits THEN
        PERFORM _sas.note_start(v, run_ids, $3, after_runs, after_result, NOT held);
        INSERT INTO _sas.message (actor, due_at, run_id, kind)
        SELECT 's', greatest($6, now), u, 'start' FROM unnest(run_ids) u;
        PERFORM _sas.wake(scheduler => true);
    ELSE
        PERFORM _sas.make_roots_ready(run_ids);
        PERFORM _sas.end_of_steps(array_agg(r.run_id)) FROM _sas.run r
        WHERE r.run_id = ANY (run_ids) AND r.open_steps = 0 AND (v.planned OR v.step_count = 0)
        HAVING count(*) > 0;
    END IF;
END $$;

-- _sas.take_keys(...): gives each key to its new run, or finds the run that has it. Keys are taken in
-- order, so that two sessions cannot deadlock.
-- Writes: run_key.
CREATE FUNCTION _sas.take_keys(caller oid, for_workflow int, keys text[], inputs jsonb[], INOUT ids bigint[],
                               OUT fresh boolean[])
LANGUAGE plpgsql AS $$
DECLARE
    n int;
    holder bigint;
    held jsonb;
BEGIN
    fresh := array_fill(true, ARRAY[cardinality(ids)]);
    FOR n IN SELECT k.n FROM unnest(keys) WITH ORDINALITY AS k (key, n) WHERE k.key IS NOT NULL
        ORDER BY k.key, k.n LOOP
        LOOP
            INSERT INTO _sas.run_key AS t (owner, workflow_id, key, run_id)
            VALUES (caller, for_workflow, keys[n], ids[n]) ON CONFLICT DO NOTHING;
            holder := NULL;
            EXIT WHEN FOUND;
            SELECT t.run_id, coalesce((SELECT r.input FROM _sas.run r WHERE r.run_id = t.run_id),
                                      inputs[array_position(ids, t.run_id)]) INTO holder, held
            FROM _sas.run_key t WHERE t.owner = caller AND t.workflow_id = for_workflow AND t.key = keys[n];
            EXIT WHEN FOUND;
            -- the run was purged at this moment: the key is free
        END LOOP;
        CONTINUE WHEN holder IS NULL;
        IF held IS DISTINCT FROM inputs[n] THEN
            RAISE EXCEPTION 'key "%" is already used by run % with another input', keys[n], holder
                USING ERRCODE = 'unique_violation',
                    DETAIL = _sas.at(_sas.nth_place('key', n, cardinality(keys))),
                    HINT = 'A key identifies one input. Use another key.';
        END IF;
        ids[n] := holder;
        fresh[n] := false;
    END LOOP;
END $$;

-- _sas.check_own_keys(keys): raises an error if a key begins with "schedule:"; these keys belong to the
-- runs of schedules.
CREATE FUNCTION _sas.check_own_keys(keys text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    place text := (SELECT _sas.nth_place('key', k.n, cardinality(keys))
                   FROM unnest(keys) WITH ORDINALITY AS k (key, n)
                   WHERE starts_with(k.key, 'schedule:') LIMIT 1);
BEGIN
    IF place IS NOT NULL THEN
        RAISE EXCEPTION 'keys that begin with "schedule:" are reserved' USING ERRCODE = 'reserved_name',
            DETAIL = _sas.at(place), HINT = 'The runs of schedules have them. Use another key.';
    END IF;
END $$;

-- _sas.submit_batch_as(...): the body of sas.submit_batch.
CREATE FUNCTION _sas.submit_batch_as(caller oid, workflow text, inputs jsonb[], keys text[], priority int,
                                     start_at timestamptz, start_before timestamptz, deadline interval,
                                     after_run bigint, after_runs bigint[], reply_to text, labels jsonb,
                                     version int, after_result text[])
RETURNS TABLE (run_id bigint, created boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    -- the session of the caller may have any planner settings; these statements read few rows, by an index
    SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    PERFORM _sas.check_submit_rate(caller, coalesce(cardinality(inputs), 0));
    PERFORM _sas.check_own_keys(keys) WHERE keys IS NOT NULL;
    RETURN QUERY
    SELECT * FROM _sas.submit_runs(caller, workflow, _sas.numbered(inputs), _sas.numbered(keys), priority,
                                   start_at, start_before, deadline,
                                   _sas.earlier_runs(caller, after_run, after_runs), reply_to, labels,
                                   after_result => coalesce(after_result, '{success,warning}'),
                                   version => version);
END $$;

-- _sas.submit_as(...): the body of sas.submit for runs that src/api/submit.c does not write itself.
CREATE FUNCTION _sas.submit_as(caller oid, workflow text, input jsonb, key text, priority int,
                               start_at timestamptz, start_before timestamptz, deadline interval,
                               after_run bigint, after_runs bigint[], reply_to text, labels jsonb,
                               version int, after_result text[], OUT run_id bigint, OUT created boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    SELECT b.run_id, b.created INTO run_id, created
    FROM _sas.submit_batch_as($1, $2, ARRAY[$3], CASE WHEN $4 IS NOT NULL THEN ARRAY[$4] END, $5, $6, $7, $8,
                              $9, $10, $11, $12, $13, $14) b;
END $$;

-- _sas.plain_workflow(caller, workflow): what a session caches of a workflow that the caller may submit and
-- that qualifies for the fast submit path (src/store/submit.c). Nulls if a submit has to do more. Each
-- table that this function reads needs the trigger below; functions, roles and schemas have invalidations
-- of their own.
CREATE FUNCTION _sas.plain_workflow(caller oid, workflow text, OUT workflow_id int, OUT version_id int,
                                    OUT priority int, OUT keys_follow boolean, OUT deadline interval,
                                    OUT root_nos int[], OUT root_lanes int[], OUT root_priorities int[])
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    SELECT x.workflow_id, x.version_id, x.priority, f.keys_follow IS NOT NULL, x.deadline, x.root_nos,
        x.root_lanes, x.root_priorities
    INTO workflow_id, version_id, priority, keys_follow, deadline, root_nos, root_lanes, root_priorities
    FROM _sas.workflow f JOIN _sas.workflow_version x ON x.workflow_id = f.workflow_id
        AND x.version = _sas.runnable_version(caller, f)
    WHERE f.name = $2 AND f.dropped_at IS NULL AND f.paused_at IS NULL AND x.root_nos IS NOT NULL
      AND _sas.may_call(caller, x.functions)
      AND _sas.dropped_agent(x.uses) IS NULL AND _sas.dropped_queue(x) IS NULL
      AND NOT EXISTS (SELECT FROM _sas.check_uses(caller, x.uses))
      AND NOT EXISTS (SELECT FROM _sas.middleware) AND NOT EXISTS (SELECT FROM _sas.subscription);
    PERFORM _sas.check_latest_workflow(workflow_id), _sas.check_latest_rows('middleware', 0)
    WHERE _sas.keeps_snapshot();
END $$;

-- _sas.submit_plain_children(...): submits child runs whose workflow is plain for this owner, one for each
-- input, as _sas.submit_runs would (src/store/submit.c). False, and nothing has happened: it is not, or the
-- limits of the owner have to be read. workflow_id: the workflow of that name must be this one. elements:
-- see _sas.undo_element. deadlines: null, as for any run.
CREATE FUNCTION _sas.submit_plain_children(owner oid, workflow text, workflow_id int, priority int,
                                           labels jsonb, inputs jsonb[], parents bigint[], step_nos int[],
                                           elements int[], deadlines timestamptz[]) RETURNS boolean
LANGUAGE C VOLATILE AS 'MODULE_PATHNAME', 'sas_api_submit_plain_children';

-- _sas.announce_workflows(): makes every session drop what it has cached of workflows: at commit, and in
-- this session at the next command.
CREATE FUNCTION _sas.announce_workflows() RETURNS trigger
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_announce_workflows';

-- no session submits versions that were made for single runs, so they need no announcement
CREATE TRIGGER announce AFTER INSERT OR UPDATE OR DELETE
    OR TRUNCATE ON _sas.workflow FOR EACH STATEMENT EXECUTE FUNCTION _sas.announce_workflows();
CREATE TRIGGER announce AFTER INSERT OR UPDATE OR DELETE
    OR TRUNCATE ON _sas.workflow_grant FOR EACH STATEMENT EXECUTE FUNCTION _sas.announce_workflows();
CREATE TRIGGER announce AFTER INSERT OR UPDATE OR DELETE
    OR TRUNCATE ON _sas.agent_grant FOR EACH STATEMENT EXECUTE FUNCTION _sas.announce_workflows();
-- an agent is dropped together with its grants, if it has any
CREATE TRIGGER announce AFTER UPDATE OF dropped_at ON _sas.agent
    FOR EACH STATEMENT EXECUTE FUNCTION _sas.announce_workflows();
CREATE TRIGGER announce AFTER UPDATE OF dropped_at ON _sas.queue
    FOR EACH STATEMENT EXECUTE FUNCTION _sas.announce_workflows();
CREATE TRIGGER announce AFTER INSERT OR UPDATE OR DELETE
    OR TRUNCATE ON _sas.middleware FOR EACH STATEMENT EXECUTE FUNCTION _sas.announce_workflows();
CREATE TRIGGER announce AFTER INSERT OR UPDATE OR DELETE
    OR TRUNCATE ON _sas.subscription FOR EACH STATEMENT EXECUTE FUNCTION _sas.announce_workflows();
CREATE TRIGGER announce AFTER INSERT ON _sas.workflow_version FOR EACH ROW
    WHEN (NEW.of_version IS NULL) EXECUTE FUNCTION _sas.announce_workflows();
CREATE TRIGGER announce_change AFTER UPDATE OR DELETE ON _sas.workflow_version FOR EACH ROW
    WHEN (OLD.of_version IS NULL) EXECUTE FUNCTION _sas.announce_workflows();

-- also for rows that are restored or replicated
ALTER TABLE _sas.workflow ENABLE ALWAYS TRIGGER announce;
ALTER TABLE _sas.workflow_grant ENABLE ALWAYS TRIGGER announce;
ALTER TABLE _sas.agent_grant ENABLE ALWAYS TRIGGER announce;
ALTER TABLE _sas.agent ENABLE ALWAYS TRIGGER announce;
ALTER TABLE _sas.queue ENABLE ALWAYS TRIGGER announce;
ALTER TABLE _sas.middleware ENABLE ALWAYS TRIGGER announce;
ALTER TABLE _sas.subscription ENABLE ALWAYS TRIGGER announce;
ALTER TABLE _sas.workflow_version ENABLE ALWAYS TRIGGER announce;
ALTER TABLE _sas.workflow_version ENABLE ALWAYS TRIGGER announce_change;

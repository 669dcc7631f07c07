-- SPDX-License-Identifier: PostgreSQL
--
-- Subscribe: the steps of one workflow are planned along with another workflow, in each new run of it,
-- although its definition does not mention them. New runs get a version that is composed of both: the
-- definition as it was written, and beside its steps an include of each subscriber. It is composed again
-- whenever one of them gets a new version; runs keep the version that they have.

-- _sas.composed(v): the composed version that new runs of this version get, or the version itself.
CREATE FUNCTION _sas.composed(v _sas.workflow_version) RETURNS _sas.workflow_version
LANGUAGE plpgsql STABLE AS $$
DECLARE
    c _sas.workflow_version;
BEGIN
    SELECT x.* INTO c FROM _sas.composition m JOIN _sas.workflow_version x USING (version_id)
    WHERE m.workflow_id = v.workflow_id AND m.of_version = v.version AND m.current;
    RETURN CASE WHEN FOUND THEN c ELSE v END;
END $$;

-- _sas.compose(for_workflow): composes the versions that new runs of a workflow get, from it and its
-- subscribers: for the current version and for granted versions. Raises an error if they do not fit
-- together.
-- Writes: composition, idle_version.
CREATE FUNCTION _sas.compose(for_workflow int) RETURNS void
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    PERFORM FROM _sas.workflow w WHERE w.workflow_id = for_workflow FOR NO KEY UPDATE;
    WITH old AS (UPDATE _sas.composition SET current = false WHERE workflow_id = for_workflow AND current
                 RETURNING version_id)
    INSERT INTO _sas.idle_version SELECT o.version_id FROM old o;
    PERFORM _sas.compose_version(for_workflow, u.version)
    FROM (SELECT w.version FROM _sas.workflow w WHERE w.workflow_id = for_workflow
          UNION SELECT g.version FROM _sas.workflow_grant g WHERE g.workflow_id = for_workflow
          ORDER BY 1) u;
END $$;

-- _sas.compose_version(for_workflow, wanted): the same for one version, unless it exists already. It
-- includes the versions that the owner of the workflow may run.
-- Writes: workflow_version, composition.
CREATE FUNCTION _sas.compose_version(for_workflow int, wanted int) RETURNS void
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    f _sas.workflow;
    base _sas.workflow_version;
    whole jsonb;
    name text;
    hidden int;
    p _sas.problem;
BEGIN
    IF NOT EXISTS (SELECT FROM _sas.subscription s WHERE s.to_workflow_id = for_workflow) THEN
        RETURN;
    END IF;
    SELECT * INTO f FROM _sas.workflow w WHERE w.workflow_id = for_workflow FOR NO KEY UPDATE;
    IF EXISTS (SELECT FROM _sas.composition m WHERE m.workflow_id = for_workflow AND m.of_version = wanted
               AND m.current) THEN
        RETURN;
    END IF;
    SELECT * INTO base FROM _sas.workflow_version x WHERE x.workflow_id = for_workflow
        AND x.version = wanted;
    PERFORM _sas.refuse_unbound(base);
    SELECT w.name INTO name FROM _sas.subscription s JOIN _sas.workflow w ON w.workflow_id = s.workflow_id
    WHERE s.to_workflow_id = for_workflow AND base.definition -> 'steps' ? w.name LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'workflow "%" has a step with the name of its subscriber "%"', f.name, name
            USING ERRCODE = 'duplicate_object',
                DETAIL = _sas.at(_sas.pointer('/steps', name)),
                HINT = 'Give the step another name, or call sas.unsubscribe first.';
    END IF;
    SELECT jsonb_set(base.definition, '{steps}', base.definition -> 'steps'
                     || jsonb_object_agg(w.name, jsonb_build_object('include', w.name, 'input', s.input)))
        INTO whole
    FROM _sas.subscription s JOIN _sas.workflow w ON w.workflow_id = s.workflow_id
    WHERE s.to_workflow_id = for_workflow HAVING count(*) > 0;
    -- checks only whether they fit together; the rights of a role are checked when it submits
    FOR p IN SELECT * FROM _sas.check_definition(whole, f.name, f.owner, rights => false) LOOP
        RAISE EXCEPTION 'workflow "%" conflicts with its subscribers: %', f.name, p.problem
            USING ERRCODE = p.code, DETAIL = _sas.at(p.path),
                HINT = coalesce(p.hint || ' ', '') || 'Or call sas.unsubscribe first.';
    END LOOP;
    hidden := _sas.hidden_version();
    PERFORM _sas.store_version(for_workflow, hidden, whole, f.owner);
    UPDATE _sas.workflow_version x SET of_version = base.version WHERE x.workflow_id = for_workflow
        AND (x.version = hidden OR x.of_version = hidden);
    INSERT INTO _sas.composition (version_id, workflow_id, of_version, current)
    SELECT x.version_id, for_workflow, wanted, true FROM _sas.workflow_version x
    WHERE x.workflow_id = for_workflow AND x.version = hidden;
END $$;

-- _sas.compose_again(changed): a workflow has a new version: composes again everything that it is part of.
CREATE FUNCTION _sas.compose_again(changed int) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM _sas.compose(x.id)
    FROM (SELECT DISTINCT s.to_workflow_id AS id FROM _sas.subscription s
          WHERE changed IN (s.to_workflow_id, s.workflow_id) ORDER BY 1) x;
END $$;

-- _sas.end_subscriptions(f): the workflow is being dropped: deletes its subscribers. Raises an error if it
-- subscribes to another workflow.
-- Writes: subscription.
CREATE FUNCTION _sas.end_subscriptions(f _sas.workflow) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    target text;
BEGIN
    SELECT w.name INTO target FROM _sas.subscription s
    JOIN _sas.workflow w ON w.workflow_id = s.to_workflow_id WHERE s.workflow_id = f.workflow_id LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'workflow "%" is subscribed to "%"', f.name, target
            USING ERRCODE = 'dependent_objects_still_exist', DETAIL = 'At /workflow.',
                HINT = format('Call sas.unsubscribe(%L, %L) first.', f.name, target);
    END IF;
    DELETE FROM _sas.subscription s WHERE s.to_workflow_id = f.workflow_id;
END $$;

-- _sas.subscribe_as(caller, workflow, to_workflow, input): the body of sas.subscribe: adds the subscription,
-- or changes its input.
-- Locks: both workflows. Writes: subscription. Next: _sas.compose.
CREATE FUNCTION _sas.subscribe_as(caller oid, workflow text, to_workflow text, input jsonb) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_nestloop = off AS $$
#variable_conflict use_column
DECLARE
    target _sas.workflow := _sas.own_workflow(caller, to_workflow, '/to_workflow');
    f _sas.workflow;
    old jsonb;
BEGIN
    SELECT * INTO f FROM _sas.workflow w WHERE w.name = $2 AND w.dropped_at IS NULL FOR SHARE;
    IF NOT FOUND THEN
        PERFORM _sas.refuse_missing('workflow', $2, '/workflow', 'Create it with sas.create_workflow.',
                                    _sas.submittable_names(caller));
    ELSIF f.workflow_id = target.workflow_id THEN
        RAISE EXCEPTION 'workflow "%" cannot subscribe to itself', $2
            USING ERRCODE = 'invalid_recursion', DETAIL = 'At /to_workflow.',
            HINT = 'Name another workflow.';
    ELSIF NOT _sas.may_submit(caller, f) THEN
        PERFORM _sas.refuse_workflow(caller, f);
    ELSIF NOT _sas.may_submit(target.owner, f) THEN
        PERFORM _sas.refuse_workflow(target.owner, f);
    ELSIF $4 IS NULL THEN
        RAISE EXCEPTION 'the input of a subscriber must be a template, not null'
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /input.',
            HINT = 'Leave it out to share the input of the run.';
    END IF;
    PERFORM _sas.raise(c)
    FROM _sas.workflow_version v CROSS JOIN unnest(v.functions) fn
    CROSS JOIN LATERAL _sas.check_function(to_jsonb(fn), '/workflow', target.owner, true) c
    WHERE v.workflow_id = f.workflow_id AND v.version = _sas.runnable_version(target.owner, f);
    old := (SELECT s.input FROM _sas.subscription s
            WHERE s.to_workflow_id = target.workflow_id AND s.workflow_id = f.workflow_id);
    INSERT INTO _sas.subscription AS s (to_workflow_id, workflow_id, input, created_by, created_at)
    VALUES (target.workflow_id, f.workflow_id, $4, caller, sas.now())
    ON CONFLICT (to_workflow_id, workflow_id) DO UPDATE SET input = EXCLUDED.input;
    PERFORM _sas.compose(target.workflow_id);
    PERFORM _sas.record_change(caller, 'subscribe', jsonb_build_object('workflow', $2, 'to_workflow', $3),
                               CASE WHEN old IS NOT NULL THEN jsonb_build_object('input', old) END,
                               jsonb_build_object('input', $4))
    WHERE old IS DISTINCT FROM $4;
END $$;

-- _sas.unsubscribe_as(caller, workflow, to_workflow): the body of sas.unsubscribe.
-- Locks: to_workflow. Writes: subscription. Next: _sas.compose.
CREATE FUNCTION _sas.unsubscribe_as(caller oid, workflow text, to_workflow text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_nestloop = off AS $$
#variable_conflict use_column
DECLARE
    target _sas.workflow := _sas.own_workflow(caller, to_workflow, '/to_workflow');
    old jsonb;
BEGIN
    DELETE FROM _sas.subscription s USING _sas.workflow w
    WHERE s.to_workflow_id = target.workflow_id AND w.workflow_id = s.workflow_id AND w.name = $2
    RETURNING s.input INTO old;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'workflow "%" is not subscribed to "%"', $2, $3
            USING ERRCODE = 'undefined_object', DETAIL = 'At /workflow.',
            HINT = 'See sas.subscriptions for existing subscriptions.';
    END IF;
    PERFORM _sas.compose(target.workflow_id);
    PERFORM _sas.record_change(caller, 'unsubscribe', jsonb_build_object('workflow', $2, 'to_workflow', $3),
                               jsonb_build_object('input', old));
END $$;

-- SPDX-License-Identifier: PostgreSQL
--
-- Workflows: how roles define, submit, grant and drop them. The first parameter of each verb is the
-- caller's role (see sql/definition/agent.sql).

-- _sas.own_workflow(caller, workflow_name, place): the workflow, locked, if the caller may change it; else
-- raises an error. place: the argument that names it.
CREATE FUNCTION _sas.own_workflow(caller oid, workflow_name text, place text DEFAULT '/workflow')
RETURNS _sas.workflow
LANGUAGE plpgsql AS $$
DECLARE
    f _sas.workflow;
BEGIN
    SELECT * INTO f FROM _sas.workflow w WHERE w.name = workflow_name AND w.dropped_at IS NULL
    FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        PERFORM _sas.refuse_missing('workflow', workflow_name, place,
                                    'See sas.workflows for existing workflows.',
                                    _sas.submittable_names(caller));
    END IF;
    IF NOT _sas.may_change(caller, f.owner) THEN
        RAISE EXCEPTION 'must be owner of workflow "%"', workflow_name
            USING ERRCODE = 'insufficient_privilege', DETAIL = _sas.at(place),
            HINT = 'Its owner, or a role with level admin, can do this; a superuser''s, superusers alone.';
    END IF;
    RETURN f;
END $$;

-- _sas.compiled(of_version_id): everything that is stored of a version, except its number and time, so that
-- it can be compared with another version.
CREATE FUNCTION _sas.compiled(of_version_id int) RETURNS jsonb
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT jsonb_build_array(
                to_jsonb(v) - '{version_id,workflow_id,version,of_version,created_at}'::text[],
                (SELECT jsonb_agg(to_jsonb(w) - 'version_id' ORDER BY w.step_no, w.undo)
                 FROM _sas.workflow_step w WHERE w.version_id = v.version_id),
                (SELECT jsonb_agg(jsonb_build_array(e.from_no, e.to_no) ORDER BY e.from_no, e.to_no)
                 FROM _sas.workflow_edge e WHERE e.version_id = v.version_id),
                (SELECT jsonb_agg(jsonb_build_array(h.events, h.channel, _sas.compiled(h.hook_version_id))
                                  ORDER BY h.hook_no)
                 FROM _sas.workflow_hook h WHERE h.version_id = v.version_id))
            FROM _sas.workflow_version v WHERE v.version_id = of_version_id);
END $$;

-- _sas.is_stored(f, definition, caller): does this definition compile to the current version of the
-- workflow, with the agents, queues and workflows of today? It is stored, compared and rolled back.
CREATE FUNCTION _sas.is_stored(f _sas.workflow, definition jsonb, caller oid) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    same boolean;
BEGIN
    IF NOT EXISTS (SELECT FROM _sas.workflow_version v
                   WHERE v.workflow_id = f.workflow_id AND v.version = f.version AND v.definition = $2
                       AND v.created_by = caller) THEN
        RETURN false;
    END IF;
    BEGIN
        PERFORM _sas.store_version(f.workflow_id, f.version + 1, definition, caller);
        SELECT count(DISTINCT _sas.compiled(v.version_id)) = 1 INTO same
        FROM _sas.workflow_version v
        WHERE v.workflow_id = f.workflow_id AND v.version IN (f.version, f.version + 1);
        RAISE EXCEPTION USING ERRCODE = 'SASRB';
    EXCEPTION WHEN SQLSTATE 'SASRB' THEN
        RETURN same;
    END;
END $$;

-- _sas.create_workflow_as(caller, name, definition): the body of sas.create_workflow: stores the definition
-- as the first or the next version, unless it is that of the current one. Returns the number of the version.
-- Locks: the workflow, and what the definition names. Writes: workflow, and what _sas.store_version writes.
CREATE FUNCTION _sas.create_workflow_as(caller oid, name text, definition jsonb) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    -- it joins arrays of ten thousand steps, whose size the planner does not know
    SET enable_nestloop = off AS $$
#variable_conflict use_column
DECLARE
    f _sas.workflow;
BEGIN
    PERFORM _sas.hold_named($3);
    PERFORM _sas.raise(wrong) FROM _sas.check_name($2, '/name') wrong;
    PERFORM _sas.raise(wrong) FROM _sas.check_definition($3, $2, caller) wrong;
    INSERT INTO _sas.workflow AS w (name, owner, version, created_at) VALUES ($2, caller, 1, sas.now())
    ON CONFLICT (name) WHERE dropped_at IS NULL DO NOTHING
    RETURNING * INTO f;
    IF NOT FOUND THEN
        f := _sas.own_workflow(caller, $2, '/name');
        IF _sas.is_stored(f, definition, caller) THEN
            RETURN f.version;
        END IF;
        f.version := f.version + 1;
        UPDATE _sas.workflow w SET version = f.version WHERE w.workflow_id = f.workflow_id;
    END IF;
    PERFORM _sas.check_definitions(f.owner);
    PERFORM _sas.store_version(f.workflow_id, f.version, definition, caller);
    PERFORM _sas.compose_again(f.workflow_id);
    PERFORM _sas.record_change(caller, 'create_workflow', jsonb_build_object('workflow', f.name),
                               CASE WHEN f.version > 1 THEN jsonb_build_object('version', f.version - 1) END,
                               jsonb_build_object('version', f.version));
    RETURN f.version;
END $$;

-- _sas.validate_workflow_as(caller, definition): the body of sas.validate_workflow.
CREATE FUNCTION _sas.validate_workflow_as(caller oid, definition jsonb)
RETURNS TABLE (path text, problem text, hint text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_nestloop = off AS $$
    SELECT p.path, p.problem, p.hint FROM _sas.check_definition(definition, NULL, caller) p
$$;

-- _sas.drop_workflow_as(caller, name): the body of sas.drop_workflow. Raises an error if it has open runs, or
-- something refers to it.
-- Locks: the workflow; waits for submits of it, and of those that start it as a child. Writes: workflow,
-- subscription.
CREATE FUNCTION _sas.drop_workflow_as(caller oid, name text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    f _sas.workflow := _sas.own_workflow(caller, $2, '/name');
BEGIN
    -- waits for who is naming it in a definition
    PERFORM FROM _sas.workflow x WHERE x.workflow_id = f.workflow_id FOR UPDATE;
    -- a drop that is refused anyway keeps nobody from submitting
    PERFORM _sas.refuse_used(f);
    PERFORM _sas.await_submits(ARRAY(
        SELECT f.workflow_id
        UNION SELECT v.workflow_id FROM _sas.workflow_version v JOIN _sas.workflow_step w USING (version_id)
        WHERE w.bound_id = f.workflow_id ORDER BY 1));
    PERFORM _sas.refuse_used(f);
    PERFORM _sas.check_latest_use('workflow', f.workflow_id::text);
    PERFORM _sas.end_subscriptions(f);
    UPDATE _sas.workflow w SET dropped_at = sas.now() WHERE w.workflow_id = f.workflow_id;
    PERFORM _sas.record_change(caller, 'drop_workflow', jsonb_build_object('workflow', f.name),
                               jsonb_build_object('version', f.version));
END $$;

-- _sas.referring(id): what uses the workflow: versions of other workflows that new runs get, or that an open
-- run has, watchers and schedules.
CREATE FUNCTION _sas.referring(id int) RETURNS text[]
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN ARRAY(
        SELECT o.other
        FROM (SELECT DISTINCT format('workflow "%s"', w.name) AS other
              FROM (SELECT DISTINCT s.version_id FROM _sas.workflow_step s
                    WHERE s.bound_id = id OFFSET 0) named
              JOIN _sas.workflow_version v ON v.version_id = named.version_id
              JOIN _sas.workflow w ON w.workflow_id = v.workflow_id
              WHERE w.workflow_id <> id
                AND (w.dropped_at IS NULL AND v.of_version IS NULL
                         AND (v.version = w.version
                              OR EXISTS (SELECT FROM _sas.workflow_grant g
                                         WHERE g.workflow_id = w.workflow_id
                                           AND (g.version = v.version OR g.future AND g.version < v.version)))
                     OR v.version_id IN (SELECT r.version_id FROM _sas.open_versions() r))
              UNION ALL
              SELECT format('watcher "%s"', d.name) FROM _sas.watcher d
              WHERE d.target_kind = 'workflow'
                AND d.target = (SELECT f.name FROM _sas.workflow f WHERE f.workflow_id = id)
              UNION ALL
              -- that of a role which may not submit it any more cannot run it anyway
              SELECT format('schedule "%s"', s.name) FROM _sas.workflow f
              JOIN _sas.schedule s ON s.workflow = f.name
              WHERE f.workflow_id = id AND _sas.runnable_version(s.owner::oid, f) IS NOT NULL) o
        ORDER BY o.other);
END $$;

-- _sas.refuse_used(f): raises an error if the workflow has open runs, or something refers to it.
CREATE FUNCTION _sas.refuse_used(f _sas.workflow) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    others text[];
BEGIN
    IF EXISTS (SELECT FROM _sas.open_versions() o JOIN _sas.workflow_version v USING (version_id)
               WHERE v.workflow_id = f.workflow_id AND NOT o.is_hook) THEN
        RAISE EXCEPTION 'workflow "%" has open runs', f.name
            USING ERRCODE = 'dependent_objects_still_exist', DETAIL = 'At /name.',
            HINT = 'Let them end, or cancel them with sas.cancel, first.';
    END IF;
    others := _sas.referring(f.workflow_id);
    IF others <> '{}' THEN
        RAISE EXCEPTION 'cannot drop workflow "%" because others refer to it', f.name
            USING ERRCODE = 'dependent_objects_still_exist',
                DETAIL = format('They are: %s.', array_to_string(others[:10], ', ')
                                || CASE WHEN cardinality(others) > 10
                                   THEN format(' and %s more', cardinality(others) - 10) ELSE '' END),
                HINT = 'Give them versions without it, or drop them, first; sas.unschedule() removes a '
                    'schedule.';
    END IF;
END $$;

-- _sas.refuse_unbound(v): raises an error if a workflow that the version includes was dropped. A workflow
-- that has its name now is another one.
CREATE FUNCTION _sas.refuse_unbound(v _sas.workflow_version) RETURNS void
LANGUAGE plpgsql STABLE AS $$
DECLARE
    gone text;
BEGIN
    SELECT f.name INTO gone FROM _sas.workflow_step s JOIN _sas.workflow f ON f.workflow_id = s.bound_id
    WHERE s.version_id = v.version_id AND f.dropped_at IS NOT NULL LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'workflow "%" has been dropped', gone
            USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = 'At /workflow.',
                HINT = 'Write a version that refers to another workflow.';
    END IF;
END $$;

-- _sas.grant_workflow_as(...): the body of sas.grant_workflow. version null: the current one; future: all
-- later versions, too. Granting the same version again replaces the grant.
-- Writes: workflow_grant.
CREATE FUNCTION _sas.grant_workflow_as(caller oid, workflow text, role regrole, version int, future boolean)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_nestloop = off AS $$
#variable_conflict use_column
DECLARE
    f _sas.workflow := _sas.own_workflow(caller, workflow);
    granted int := coalesce($4, f.version);
    made boolean;
    old jsonb := (SELECT jsonb_build_object('from', jsonb_build_object('future', g.future))
                  FROM _sas.workflow_grant g WHERE g.workflow_id = f.workflow_id AND g.role = $3
                  AND g.version = granted AND g.future <> $5);
BEGIN
    PERFORM _sas.check_role(role);
    PERFORM _sas.check_version(f, granted);
    IF $5 IS NULL THEN
        RAISE EXCEPTION 'future must be true or false, not null'
            USING ERRCODE = 'null_value_not_allowed', DETAIL = 'At /future.',
            HINT = 'Leave it out for a grant of one version.';
    END IF;
    INSERT INTO _sas.workflow_grant AS g (workflow_id, role, version, future, granted_by, granted_at)
    VALUES (f.workflow_id, role, granted, $5, pg_get_userbyid(caller), sas.now())
    ON CONFLICT (workflow_id, role, version) DO UPDATE SET future = EXCLUDED.future,
        granted_by = EXCLUDED.granted_by, granted_at = EXCLUDED.granted_at
        WHERE g.future <> EXCLUDED.future;
    made := FOUND;
    PERFORM _sas.compose_version(f.workflow_id, granted);
    PERFORM _sas.tie_role(role);
    PERFORM _sas.record_change(caller, 'grant_workflow', jsonb_build_object(
        'workflow', f.name, 'role', pg_get_userbyid(role), 'version', granted, 'future', $5)
        || coalesce(old, '{}'))
    WHERE made;
END $$;

-- _sas.revoke_workflow_as(...): the body of sas.revoke_workflow: revokes the grant of that version; null:
-- of all versions.
-- Writes: workflow_grant.
CREATE FUNCTION _sas.revoke_workflow_as(caller oid, workflow text, role regrole, version int) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    f _sas.workflow := _sas.own_workflow(caller, workflow);
    old jsonb;
BEGIN
    PERFORM _sas.check_role(role);
    WITH gone AS (DELETE FROM _sas.workflow_grant g WHERE g.workflow_id = f.workflow_id AND g.role = $3
                      AND ($4 IS NULL OR g.version = $4) RETURNING g.version, g.future)
    SELECT jsonb_build_object('versions', jsonb_agg(g.version ORDER BY g.version),
                              'future', jsonb_agg(g.version ORDER BY g.version) FILTER (WHERE g.future))
    INTO old FROM gone g HAVING count(*) > 0;
    IF old IS NOT NULL THEN
        PERFORM _sas.record_change(caller, 'revoke_workflow', jsonb_strip_nulls(jsonb_build_object(
            'workflow', f.name, 'role', pg_get_userbyid(role), 'version', $4, 'from', old)));
    END IF;
END $$;

-- _sas.check_version(f, wanted): raises an error if no user has written that version.
CREATE FUNCTION _sas.check_version(f _sas.workflow, wanted int) RETURNS void
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM _sas.workflow_version v WHERE v.workflow_id = f.workflow_id
                   AND v.version = wanted AND v.of_version IS NULL) THEN
        RAISE EXCEPTION 'version % of workflow "%" does not exist', wanted, f.name
            USING ERRCODE = 'undefined_object', DETAIL = 'At /version.',
            HINT = 'See sas.versions. Leave it out for the newest.';
    END IF;
END $$;

-- _sas.may_submit(caller, f): may the caller submit, or include, any version of this workflow?
CREATE FUNCTION _sas.may_submit(caller oid, f _sas.workflow) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT _sas.runnable_version(caller, f) IS NOT NULL
$$;

-- _sas.submittable_names(caller): the names of the workflows that the caller may submit.
CREATE FUNCTION _sas.submittable_names(caller oid) RETURNS text[]
LANGUAGE sql STABLE AS $$
    SELECT coalesce(array_agg(f.name ORDER BY f.name), '{}') FROM _sas.workflow f
    WHERE f.dropped_at IS NULL AND _sas.may_submit(caller, f)
$$;

-- _sas.runnable_version(caller, f, wanted): the newest version that the caller may submit or include, or
-- the wanted one; null: there is none. A superuser can run only what superusers have written, because
-- everything that it names runs with superuser rights.
CREATE FUNCTION _sas.runnable_version(caller oid, f _sas.workflow, wanted int DEFAULT NULL) RETURNS int
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (
        SELECT max(v.version)
        FROM (SELECT f.owner = caller OR _sas.may_stand_for(caller, f.owner)
                  OR _sas.is_superuser(f.owner)
                  OR _sas.has_level(f.owner, 'admin') AS any_version OFFSET 0) may
        JOIN _sas.workflow_version v ON v.workflow_id = f.workflow_id AND v.of_version IS NULL
            AND v.version = coalesce(wanted, CASE WHEN may.any_version THEN f.version END, v.version)
        WHERE _sas.trusts(caller, f.owner) AND _sas.trusts(caller, v.created_by)
          AND (may.any_version
               OR EXISTS (SELECT FROM _sas.workflow_grants(f.workflow_id) g
                          WHERE (g.version = v.version OR g.future AND g.version < v.version)
                            AND _sas.may_stand_for(caller, g.role))));
END $$;

-- _sas.masks_runs(owner, workflow): do runs of this owner have a mask? False: the workflow does not exist.
CREATE FUNCTION _sas.masks_runs(owner oid, workflow text) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (SELECT FROM _sas.workflow f
                   JOIN _sas.workflow_version v ON v.workflow_id = f.workflow_id
                       AND v.version = coalesce(_sas.runnable_version($1, f), f.version)
                   WHERE f.name = $2 AND f.dropped_at IS NULL AND cardinality(v.mask) > 0);
END $$;

-- _sas.refuse_workflow(caller, f, wanted): raises an error that says why the caller may not submit it.
CREATE FUNCTION _sas.refuse_workflow(caller oid, f _sas.workflow, wanted int DEFAULT NULL) RETURNS void
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF wanted IS NOT NULL THEN
        PERFORM _sas.check_version(f, wanted);
    END IF;
    IF _sas.is_superuser(caller) THEN
        RAISE EXCEPTION 'workflow "%" is not written by a superuser', f.name
            USING ERRCODE = 'insufficient_privilege', DETAIL = 'At /workflow.',
                HINT = format('What it names would run with the rights of a superuser. Submit it as its '
                              'owner: SET ROLE %I.', pg_get_userbyid(f.owner));
    END IF;
    RAISE EXCEPTION 'permission denied for %workflow "%"', coalesce('version ' || wanted || ' of ', ''),
            f.name
        USING ERRCODE = 'insufficient_privilege', DETAIL = 'At /workflow.',
            HINT = format('Its owner can grant it: SELECT sas.grant_workflow(%L, %L).', f.name,
                          caller::regrole);
END $$;

-- _sas.check_needs(caller, v): raises an error unless the agents and queues of this version exist, and the
-- caller may execute its functions, and may ask of agents what it asks.
CREATE FUNCTION _sas.check_needs(caller oid, v _sas.workflow_version) RETURNS void
LANGUAGE plpgsql STABLE AS $$
DECLARE
    p _sas.problem;
    gone text := coalesce('agent "' || _sas.dropped_agent(v.uses) || '"',
                          'queue "' || _sas.dropped_queue(v) || '"');
BEGIN
    IF gone IS NOT NULL THEN
        RAISE EXCEPTION '% has been dropped', gone
            USING ERRCODE = 'undefined_object', DETAIL = 'At /workflow.',
                HINT = 'Submit a version that does not use it. One that has its name now is another.';
    END IF;
    IF cardinality(v.functions) > 0 THEN
        PERFORM _sas.raise(c)
        FROM unnest(v.functions) fn
        CROSS JOIN LATERAL _sas.check_function(to_jsonb(fn), '/workflow', caller, true) c;
    END IF;
    IF cardinality(v.uses) > 0 THEN
        FOR p IN SELECT * FROM _sas.check_uses(caller, v.uses) LOOP
            p.path := '/workflow';
            PERFORM _sas.raise(p);
        END LOOP;
    END IF;
END $$;

-- _sas.submittable(caller, workflow_name, wanted): the newest version of a workflow that the caller may
-- submit, or the wanted one; else raises an error.
CREATE FUNCTION _sas.submittable(caller oid, workflow_name text, wanted int DEFAULT NULL)
RETURNS _sas.workflow_version
LANGUAGE plpgsql STABLE AS $$
DECLARE
    f _sas.workflow;
    v _sas.workflow_version;
    found_version int;
BEGIN
    SELECT * INTO f FROM _sas.workflow w WHERE w.name = workflow_name AND w.dropped_at IS NULL;
    IF NOT FOUND THEN
        PERFORM _sas.refuse_missing('workflow', workflow_name, '/workflow',
                                    'Create it with sas.create_workflow.', _sas.submittable_names(caller));
    END IF;
    PERFORM _sas.check_latest_workflow(f.workflow_id), _sas.check_latest_rows('middleware', 0)
    WHERE _sas.keeps_snapshot();
    found_version := _sas.runnable_version(caller, f, wanted);
    IF found_version IS NULL THEN
        PERFORM _sas.refuse_workflow(caller, f, wanted);
    END IF;
    SELECT * INTO v FROM _sas.workflow_version x WHERE x.workflow_id = f.workflow_id
        AND x.version = found_version;
    v := _sas.composed(v);
    PERFORM _sas.check_needs(caller, v);
    RETURN v;
END $$;

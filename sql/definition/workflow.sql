-- SPDX-License-Identifier: PostgreSQL
--
-- Workflows: who may define, submit, grant and drop them. Each verb has the
-- caller's role as its first parameter (see the head of the agents' piece).

-- sas._own_workflow(caller, name, place): the workflow, locked, if the caller may change it; place is the argument that names it.
CREATE FUNCTION sas._own_workflow(caller oid, workflow_name text, place text DEFAULT '/workflow') RETURNS sas.workflow
LANGUAGE plpgsql AS $$
DECLARE
    f sas.workflow;
BEGIN
    SELECT * INTO f FROM sas.workflow w WHERE w.name = workflow_name AND w.dropped_at IS NULL FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'workflow "%" does not exist', workflow_name
            USING ERRCODE = 'undefined_object', DETAIL = format('The place is "%s".', place), HINT = 'See sas.workflows for those that do.';
    END IF;
    IF NOT pg_has_role(caller, f.owner, 'MEMBER') AND NOT sas._has_level(caller, 'admin') THEN
        RAISE EXCEPTION 'must be owner of workflow "%"', workflow_name USING ERRCODE = 'insufficient_privilege', HINT = 'Its owner, or a role with level admin, can do this.';
    END IF;
    RETURN f;
END $$;

CREATE FUNCTION sas._create_workflow(caller oid, name text, definition jsonb) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, sas, pg_temp SET jit = off
    -- arrays of ten thousand steps are joined, of which the planner knows nothing
    SET enable_nestloop = off
AS $$
#variable_conflict use_column
DECLARE
    f sas.workflow;
    p sas._problem;
BEGIN
    FOR p IN SELECT * FROM sas._check_name($2, '/name') UNION ALL SELECT * FROM sas._check_definition($3, $2, caller) LOOP
        PERFORM sas._raise(p);
    END LOOP;
    INSERT INTO sas.workflow AS w (name, owner, version, created_at) VALUES ($2, caller, 1, sas._now())
    ON CONFLICT (name) WHERE dropped_at IS NULL DO NOTHING
    RETURNING * INTO f;
    IF NOT FOUND THEN
        f := sas._own_workflow(caller, $2, '/name');
        f.version := f.version + 1;
        UPDATE sas.workflow w SET version = f.version WHERE w.workflow_id = f.workflow_id;
    END IF;
    PERFORM sas._store_version(f.workflow_id, f.version, definition, caller);
    PERFORM sas._compose_again(f.workflow_id);
    RETURN f.version;
END $$;

CREATE FUNCTION sas._validate_workflow(caller oid, definition jsonb) RETURNS TABLE (path text, problem text, hint text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, sas, pg_temp SET jit = off SET enable_nestloop = off AS $$
    SELECT p.path, p.problem, p.hint FROM sas._check_definition(definition, NULL, caller) p
$$;

CREATE FUNCTION sas._drop_workflow(caller oid, name text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, sas, pg_temp AS $$
#variable_conflict use_column
DECLARE
    f sas.workflow := sas._own_workflow(caller, $2, '/name');
BEGIN
    IF EXISTS (SELECT FROM sas.run r JOIN sas.workflow_version v USING (version_id) WHERE v.workflow_id = f.workflow_id AND r.state <> 'stopped' AND r.hook_of IS NULL) THEN
        RAISE EXCEPTION 'workflow "%" has open runs', $2 USING ERRCODE = 'dependent_objects_still_exist', HINT = 'Let them end, or cancel them with sas.cancel, first.';
    END IF;
    PERFORM sas._end_subscriptions(f);
    UPDATE sas.workflow w SET dropped_at = sas._now() WHERE w.workflow_id = f.workflow_id;
END $$;

CREATE FUNCTION sas._grant_workflow(caller oid, workflow text, role regrole) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, sas, pg_temp AS $$
#variable_conflict use_column
DECLARE
    f sas.workflow := sas._own_workflow(caller, workflow);
BEGIN
    PERFORM sas._check_role(role);
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

-- sas._may_submit(caller, workflow): may the caller submit, or include, this workflow?
CREATE FUNCTION sas._may_submit(caller oid, f sas.workflow) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT f.owner = caller OR pg_has_role(caller, f.owner, 'MEMBER')
        OR EXISTS (SELECT FROM pg_roles o WHERE o.oid = f.owner AND o.rolsuper)
        OR sas._has_level(f.owner, 'admin')
        OR EXISTS (SELECT FROM sas.workflow_grant g WHERE g.workflow_id = f.workflow_id AND pg_has_role(caller, g.role, 'MEMBER'))
$$;

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
        RAISE EXCEPTION 'workflow "%" does not exist', workflow_name
            USING ERRCODE = 'undefined_object', DETAIL = 'The place is "/workflow".', HINT = 'Create it with sas.create_workflow.';
    END IF;
    IF NOT sas._may_submit(caller, f) THEN
        RAISE EXCEPTION 'permission denied for workflow "%"', workflow_name
            USING ERRCODE = 'insufficient_privilege', HINT = format('Its owner can grant it: SELECT sas.grant_workflow(%L, %L).', workflow_name, pg_get_userbyid(caller));
    END IF;
    SELECT * INTO v FROM sas.workflow_version x WHERE x.workflow_id = f.workflow_id AND x.version = f.version;
    v := sas._composed(v);
    IF cardinality(v.functions) > 0 THEN
        FOR p IN SELECT c.* FROM unnest(v.functions) fn CROSS JOIN LATERAL sas._check_function(to_jsonb(fn), '/workflow', caller) c LOOP
            PERFORM sas._raise(p);
        END LOOP;
    END IF;
    RETURN v;
END $$;

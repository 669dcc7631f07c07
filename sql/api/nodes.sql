-- SPDX-License-Identifier: PostgreSQL
--
-- Nodes: a node of a Citus cluster that lacks definitions gets them. What is defined on the coordinator is
-- read as rows, sent to each node, and applied there where the node differs. Each definition is checked as
-- if its owner had made it.

-- _sas.definitions(): what is defined here, without runs. place: the order in which it was
-- made, within its kind. needed: false for versions that nobody can submit without naming them.
CREATE FUNCTION _sas.definitions()
RETURNS TABLE (kind text, name text, owner text, facts jsonb, place bigint, needed boolean)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET intervalstyle = iso_8601 AS $$
    WITH role AS (SELECT r.oid, r.rolname::text AS name FROM pg_roles r)
    SELECT 'limit', l.name, o.name, jsonb_build_object('value', l.value), 10, true
    FROM _sas.role_limit l LEFT JOIN role o ON o.oid = l.role
    UNION ALL
    SELECT 'level', l.level, o.name, '{}', 20, true FROM _sas.level_grant l JOIN role o ON o.oid = l.role
    UNION ALL
    SELECT 'secret', s.name, NULL, jsonb_build_object('value', s.value, 'file', s.file, 'by_superuser',
                                                     s.by_superuser), 30, true
    FROM _sas.secret s
    UNION ALL
    SELECT 'agent', a.name, NULL, to_jsonb(a) - '{agent_id,name,created_at,dropped_at,secrets}'::text[],
           40, true
    FROM _sas.agent a WHERE a.dropped_at IS NULL
    UNION ALL
    SELECT 'agent_grant', a.name, o.name, jsonb_build_object('methods', g.methods, 'paths', g.paths), 50, true
    FROM _sas.agent_grant g JOIN _sas.agent a USING (agent_id) JOIN role o ON o.oid = g.role
    UNION ALL
    SELECT 'worker_grant', a.name, o.name, '{}', 60, true
    FROM _sas.worker_grant g JOIN _sas.agent a USING (agent_id) JOIN role o ON o.oid = g.role
    UNION ALL
    SELECT 'queue', q.name, NULL,
           jsonb_build_object('max_running', q.max_running, 'key', q.key, 'per_key', q.per_key,
                              'paused', q.paused_at IS NOT NULL), 70, true
    FROM _sas.queue q WHERE q.dropped_at IS NULL
    UNION ALL
    SELECT 'version', w.name, o.name,
           jsonb_build_object('version', v.version, 'definition', v.definition, 'created_by', m.name),
           1000 + v.version_id,
           v.version = w.version OR EXISTS (SELECT FROM _sas.workflow_grant g
                                            WHERE g.workflow_id = w.workflow_id AND g.version = v.version)
    FROM _sas.workflow_version v JOIN _sas.workflow w USING (workflow_id) JOIN role o ON o.oid = w.owner
    JOIN role m ON m.oid = v.created_by WHERE w.dropped_at IS NULL AND v.of_version IS NULL AND v.version > 0
    UNION ALL
    SELECT 'workflow_grant', w.name, o.name, jsonb_build_object('version', g.version, 'future', g.future),
           1000 + v.version_id, true
    FROM _sas.workflow_grant g JOIN _sas.workflow w USING (workflow_id) JOIN role o ON o.oid = g.role
    JOIN _sas.workflow_version v ON v.workflow_id = g.workflow_id AND v.version = g.version
    WHERE w.dropped_at IS NULL
    UNION ALL
    SELECT 'workflow', w.name, o.name,
           jsonb_build_object('version', w.version, 'paused', w.paused_at IS NOT NULL,
                              'keys_follow', w.keys_follow, 'key_separator', w.key_separator), 1e12, true
    FROM _sas.workflow w JOIN role o ON o.oid = w.owner WHERE w.dropped_at IS NULL
    UNION ALL
    SELECT 'subscription', w.name, o.name, jsonb_build_object('to_workflow', t.name, 'input', s.input),
           2e12, true
    FROM _sas.subscription s JOIN _sas.workflow w USING (workflow_id) JOIN role o ON o.oid = s.created_by
    JOIN _sas.workflow t ON t.workflow_id = s.to_workflow_id
    UNION ALL
    SELECT d.* FROM _sas.other_definitions() d
$$;

-- _sas.other_definitions(): middleware, watchers, the alert hook and schedules, for _sas.definitions. What
-- fires on the coordinator is a copy elsewhere.
CREATE FUNCTION _sas.other_definitions()
RETURNS TABLE (kind text, name text, owner text, facts jsonb, place bigint, needed boolean)
LANGUAGE sql STABLE AS $$
    SELECT 'middleware', m.name, o.rolname,
           jsonb_build_object('phase', m.phase) || _sas.middleware_facts(m.name, m.phase),
           3e12 + m.middleware_id, true
    FROM _sas.middleware m JOIN pg_roles o ON o.oid = m.created_by
    UNION ALL
    SELECT 'watcher', d.name, o.rolname, jsonb_build_object('definition', d.definition), 4e12, true
    FROM _sas.watcher d JOIN pg_roles o ON o.oid = d.owner
    UNION ALL
    SELECT 'alert_hook', h.function, o.rolname, '{}', 5e12, true
    FROM _sas.alert_hook h JOIN pg_roles o ON o.oid = h.owner
    UNION ALL
    SELECT 'schedule', s.name, o.rolname,
           _sas.schedule_facts(s) || jsonb_build_object('paused', s.state = 'paused', 'fires_on', CASE
               WHEN s.copy OR _sas.id_base() >> _sas.node_shift() = 0 THEN 'coordinator' ELSE 'here' END),
           6e12, true
    FROM _sas.schedule s JOIN pg_roles o ON o.oid = s.owner
$$;

-- _sas.role_here(name): the role of that name; an error if there is none, null for null.
CREATE FUNCTION _sas.role_here(name text) RETURNS oid
LANGUAGE plpgsql STABLE AS $$
DECLARE
    role oid := (SELECT r.oid FROM pg_roles r WHERE r.rolname = name);
BEGIN
    IF role IS NULL AND name IS NOT NULL THEN
        RAISE EXCEPTION 'role "%" does not exist on this node', name
            USING ERRCODE = 'undefined_object', DETAIL = 'It owns a definition, or has a grant.',
                HINT = 'Create the role on all nodes; CREATE ROLE on the coordinator does that.';
    END IF;
    RETURN role;
END $$;

-- _sas.put_version(name, owner, facts): stores a version of a workflow under its number. It holds on the
-- coordinator, whose release may have accepted a reference that this one refuses, such as a misspelled
-- member: it is the same here as there. Rights, and what must exist, are checked as ever.
-- Writes: workflow.
CREATE FUNCTION _sas.put_version(name text, owner oid, facts jsonb) RETURNS void
LANGUAGE plpgsql SET jit = off SET enable_nestloop = off AS $$
#variable_conflict use_column
DECLARE
    number int := (facts ->> 'version')::int;
    maker oid := _sas.role_here(facts ->> 'created_by');
    f _sas.workflow;
BEGIN
    PERFORM _sas.raise(wrong) FROM _sas.check_definition(facts -> 'definition', $1, maker) wrong
    WHERE wrong.code <> '42P10';
    INSERT INTO _sas.workflow AS w (name, owner, version, created_at) VALUES ($1, $2, number, sas.now())
    ON CONFLICT (name) WHERE dropped_at IS NULL DO UPDATE SET version = greatest(w.version, number)
    RETURNING * INTO f;
    IF f.owner <> $2 OR EXISTS (SELECT FROM _sas.workflow_version v WHERE v.workflow_id = f.workflow_id
                                AND v.version = number) THEN
        RAISE EXCEPTION 'version % of workflow "%" is another one on this node', number, $1
            USING ERRCODE = 'object_not_in_prerequisite_state',
                DETAIL = 'It was made here with sas.this_node_only.',
                HINT = 'Define the workflow again on the coordinator, or drop it here.';
    END IF;
    PERFORM _sas.store_version(f.workflow_id, number, facts -> 'definition', maker);
    PERFORM _sas.compose_again(f.workflow_id);
END $$;

-- _sas.maker(me, facts): as whom a secret or an agent is made: a superuser's is made as the superuser "me",
-- any other as a role that is none, so that it stays one of the others.
CREATE FUNCTION _sas.maker(me oid, facts jsonb) RETURNS oid
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN (facts ->> 'by_superuser')::boolean THEN me ELSE 'pg_database_owner'::regrole::oid END
$$;

-- _sas.apply_agent(me, name, facts): makes an agent as the facts say, as _sas.maker says.
-- Writes: agent.
CREATE FUNCTION _sas.apply_agent(me oid, name text, facts jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    a _sas.agent := jsonb_populate_record(NULL::_sas.agent, facts);
BEGIN
    PERFORM _sas.create_agent_as(_sas.maker(me, facts), name, a.base_url, a.kind, a.headers, a.max_in_flight,
                                 a.rate_limit, a.request_timeout, a.retry, a.breaker, a.options);
    UPDATE _sas.agent x SET by_superuser = a.by_superuser
    WHERE x.name = $2 AND x.dropped_at IS NULL AND x.by_superuser <> a.by_superuser;
    PERFORM _sas.switch_agent(me, name, a.enabled);
END $$;

-- _sas.apply_queue(me, name, facts): makes a queue as the facts say.
CREATE FUNCTION _sas.apply_queue(me oid, name text, facts jsonb) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM _sas.create_queue_as(me, name, (facts ->> 'max_running')::int, facts ->> 'key',
                                 (facts ->> 'per_key')::int);
    PERFORM _sas.switch_queue(me, name, (facts ->> 'paused')::boolean);
END $$;

-- _sas.apply_workflow(me, name, facts): sets the current version of a workflow, the table that its keys
-- follow, and whether it is paused, as the facts say. Raises an error if this node lacks that version.
-- Writes: workflow.
CREATE FUNCTION _sas.apply_workflow(me oid, name text, facts jsonb) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE _sas.workflow w SET version = (facts ->> 'version')::int
    WHERE w.name = $2 AND w.dropped_at IS NULL AND EXISTS (
        SELECT FROM _sas.workflow_version v WHERE v.workflow_id = w.workflow_id
            AND v.version = (facts ->> 'version')::int);
    IF NOT FOUND THEN
        RAISE EXCEPTION 'workflow "%" has no version % here', $2, facts ->> 'version'
            USING ERRCODE = 'undefined_object', DETAIL = 'At /version.',
                HINT = 'Call sas.sync_nodes() again.';
    END IF;
    -- nothing is known of moves before now: the other nodes are asked for keys
    PERFORM _sas.follow_table(w, facts ->> 'keys_follow', facts ->> 'key_separator', '{}')
    FROM _sas.workflow w WHERE w.name = $2 AND w.dropped_at IS NULL
        AND (w.keys_follow, w.key_separator) IS DISTINCT FROM
            (facts ->> 'keys_follow', facts ->> 'key_separator');
    PERFORM _sas.switch_workflow(me, name, (facts ->> 'paused')::boolean);
END $$;

-- _sas.apply_schedule(owner, name, facts): makes a schedule as the facts say; it is a copy, which does not
-- fire here.
-- Writes: schedule.
CREATE FUNCTION _sas.apply_schedule(owner oid, name text, facts jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    s _sas.schedule := jsonb_populate_record(NULL::_sas.schedule, facts);
BEGIN
    s.name := $2; s.owner := $1; s.copy := true;
    PERFORM _sas.put_schedule($1, s);
    UPDATE _sas.schedule x
    SET state = CASE WHEN (facts ->> 'paused')::boolean THEN 'paused' ELSE 'active' END, paused_reason = NULL
    WHERE x.name = $2;
END $$;

-- _sas.apply_definition(kind, name, owner, facts): makes one definition. Next: what waits for it.
CREATE FUNCTION _sas.apply_definition(kind text, name text, owner oid, facts jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    me oid := (SELECT r.oid FROM pg_roles r WHERE r.rolname = current_user);
    list text[];
BEGIN
    CASE kind
        WHEN 'limit' THEN
            PERFORM _sas.set_limit_as(me, owner, name, (facts ->> 'value')::bigint);
        WHEN 'level' THEN
            PERFORM _sas.grant_usage_as(me, owner, name, NULL);
        WHEN 'secret' THEN
            PERFORM _sas.write_secret(_sas.maker(me, facts), 'set_secret', name, facts ->> 'value',
                                      facts ->> 'file');
        WHEN 'agent' THEN
            PERFORM _sas.apply_agent(me, name, facts);
        WHEN 'agent_grant' THEN
            SELECT x.methods INTO list FROM jsonb_to_record(facts) AS x (methods text[]);
            PERFORM _sas.grant_agent_as(me, name, owner, list, x.paths)
            FROM jsonb_to_record(facts) AS x (paths text[]);
        WHEN 'worker_grant' THEN
            PERFORM _sas.grant_usage_as(me, owner, 'worker', name);
        WHEN 'queue' THEN
            PERFORM _sas.apply_queue(me, name, facts);
        WHEN 'version' THEN
            PERFORM _sas.put_version(name, owner, facts);
        WHEN 'workflow_grant' THEN
            PERFORM _sas.grant_workflow_as(me, name, owner, (facts ->> 'version')::int,
                                           (facts ->> 'future')::boolean);
        WHEN 'workflow' THEN
            PERFORM _sas.apply_workflow(me, name, facts);
        WHEN 'subscription' THEN
            PERFORM _sas.subscribe_as(owner, name, facts ->> 'to_workflow', facts -> 'input');
        WHEN 'middleware' THEN
            PERFORM _sas.create_middleware_as(
                owner, name, x.phase, to_regprocedure(x.before || '(pg_catalog.jsonb)'),
                to_regprocedure(x.after || '(pg_catalog.jsonb)'), x.workflow, x.goes_before, x.goes_after,
                x.replaces)
            FROM jsonb_to_record(facts) AS x (phase text, before text, after text, workflow text,
                                              goes_before text[], goes_after text[], replaces text);
        WHEN 'watcher' THEN
            PERFORM _sas.create_watcher_as(owner, name, facts -> 'definition');
        WHEN 'schedule' THEN
            PERFORM _sas.apply_schedule(owner, name, facts);
        WHEN 'alert_hook' THEN
            PERFORM _sas.set_alert_hook_as(owner, to_regprocedure(name || '(pg_catalog.jsonb)'));
    END CASE;
END $$;

-- _sas.apply_definitions(wanted): makes what this node lacks or has otherwise; wanted are the rows of
-- _sas.definitions on the coordinator. One definition may need another, so those that fail are tried again
-- while others succeed. A needed one that fails for good is an error. Returns how many were made, and how
-- many this node has that are not wanted: they stay.
CREATE FUNCTION _sas.apply_definitions(wanted jsonb, OUT applied int, OUT surplus int)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET intervalstyle = iso_8601 AS $$
DECLARE
    before int;
    made jsonb[] := '{}';
    failed text[];
    d record;
BEGIN
    applied := 0;
    LOOP
        before := applied;
        failed := NULL;
        FOR d IN SELECT w.* FROM jsonb_to_recordset(wanted) AS w (kind text, name text, owner text,
                                                                  facts jsonb, place bigint, needed boolean)
                 WHERE NOT EXISTS (SELECT FROM _sas.definitions() h
                                   WHERE (h.kind, h.name, h.facts) = (w.kind, w.name, w.facts)
                                     AND h.owner IS NOT DISTINCT FROM w.owner)
                   AND NOT to_jsonb(w) = ANY (made)
                 ORDER BY w.place, w.kind = 'workflow_grant' LOOP
            BEGIN
                PERFORM _sas.apply_definition(d.kind, d.name, _sas.role_here(d.owner), d.facts);
                applied := applied + 1;
                made := made || to_jsonb(d);
            EXCEPTION WHEN OTHERS THEN
                IF d.needed AND failed IS NULL THEN
                    failed := ARRAY[SQLSTATE, format('%s "%s": %s', replace(d.kind, '_', ' of '), d.name,
                                                     SQLERRM)];
                END IF;
            END;
        END LOOP;
        EXIT WHEN applied = before;
    END LOOP;
    IF failed IS NOT NULL THEN
        RAISE EXCEPTION 'cannot make %', failed[2]
            USING ERRCODE = failed[1], DETAIL = 'The node stays as it was.',
                HINT = 'Roles, functions and files that definitions name must exist on every node.';
    END IF;
    surplus := (SELECT count(*) FROM _sas.definitions() h
                WHERE NOT EXISTS (SELECT FROM jsonb_to_recordset(wanted)
                                      AS w (kind text, name text, owner text, facts jsonb)
                                  WHERE (w.kind, w.name, w.facts) = (h.kind, h.name, h.facts)
                                    AND w.owner IS NOT DISTINCT FROM h.owner));
END $$;

CREATE FUNCTION sas.sync_nodes() RETURNS TABLE (node_id int, applied int, surplus int)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_sync_nodes';
COMMENT ON FUNCTION sas.sync_nodes IS
    'Makes the definitions, schedules, secrets and grants of the coordinator on the other nodes of a Citus '
    'cluster, where they lack them or differ. For superusers, after a node was added. Returns for each node '
    'how many were made, and how many it has besides.';

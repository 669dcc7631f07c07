-- SPDX-License-Identifier: PostgreSQL
--
-- Drops of agents and queues: not while something uses them, and nothing may begin to use them meanwhile. A
-- definition holds what it names, and a run holds its workflow (_sas.hold_workflow); the one who drops waits
-- for both, and looks then.

-- _sas.names_in(definition, key): the names that stand under this key, wherever in the definition.
CREATE FUNCTION _sas.names_in(definition jsonb, key text) RETURNS text[]
LANGUAGE sql IMMUTABLE AS $$
    SELECT ARRAY(SELECT x #>> '{}' FROM jsonb_path_query(definition, ('$.**.' || key)::jsonpath) x
                 WHERE jsonb_typeof(x) = 'string')
$$;

-- _sas.hold_named(definition, waits): no other session drops the agents, queues and workflows that a
-- definition names, until this transaction ends. Comes before the check of that definition, which finds out
-- if one has been dropped. waits: for a session that is dropping one; false, in a scheduler: 55P03 then.
-- Locks: agents, queues and workflows, against being dropped only.
CREATE FUNCTION _sas.hold_named(definition jsonb, waits boolean DEFAULT true) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    agents text[] := _sas.names_in(definition, 'agent');
    queues text[] := _sas.names_in(definition, 'queue');
    workflows text[] := _sas.names_in(definition, 'workflow') || _sas.names_in(definition, 'include');
BEGIN
    IF NOT waits THEN
        PERFORM FROM _sas.agent a WHERE a.dropped_at IS NULL AND a.name = ANY (agents)
        ORDER BY a.agent_id FOR KEY SHARE NOWAIT;
        PERFORM FROM _sas.queue q WHERE q.dropped_at IS NULL AND q.name = ANY (queues)
        ORDER BY q.queue_id FOR KEY SHARE NOWAIT;
        PERFORM FROM _sas.workflow f WHERE f.dropped_at IS NULL AND f.name = ANY (workflows)
        ORDER BY f.workflow_id FOR KEY SHARE NOWAIT;
        RETURN;
    END IF;
    PERFORM FROM _sas.agent a WHERE a.dropped_at IS NULL AND a.name = ANY (agents)
    ORDER BY a.agent_id FOR KEY SHARE;
    PERFORM FROM _sas.queue q WHERE q.dropped_at IS NULL AND q.name = ANY (queues)
    ORDER BY q.queue_id FOR KEY SHARE;
    PERFORM FROM _sas.workflow f WHERE f.dropped_at IS NULL AND f.name = ANY (workflows)
    ORDER BY f.workflow_id FOR KEY SHARE;
END $$;

-- _sas.dropped_agent(uses): an agent among these that was dropped; null: there is none. A version that is not
-- the current one does not keep its agents from being dropped.
CREATE FUNCTION _sas.dropped_agent(uses _sas.agent_use[]) RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT a.name FROM unnest(uses) u JOIN _sas.agent a ON a.agent_id = u.agent_id
            WHERE a.dropped_at IS NOT NULL LIMIT 1);
END $$;

-- _sas.dropped_queue(v): a queue of this version that was dropped; null: there is none. As for agents, a
-- version that is not the current one does not keep its queues. Most databases have never dropped one.
CREATE FUNCTION _sas.dropped_queue(v _sas.workflow_version) RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM _sas.queue q WHERE q.dropped_at IS NOT NULL) THEN
        RETURN NULL;
    END IF;
    RETURN (SELECT q.name
            FROM (SELECT v.queue_id
                  UNION SELECT w.queue_id FROM _sas.workflow_step w WHERE w.version_id = v.version_id) u
            JOIN _sas.queue q ON q.queue_id = u.queue_id
            WHERE q.dropped_at IS NOT NULL LIMIT 1);
END $$;

-- _sas.can_begin(f, v): can a run of this version of the workflow begin?
CREATE FUNCTION _sas.can_begin(f _sas.workflow, v _sas.workflow_version) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT f.dropped_at IS NULL AND coalesce(v.of_version, v.version) = f.version
           AND NOT EXISTS (SELECT FROM _sas.composition c WHERE c.version_id = v.version_id AND NOT c.current)
$$;

-- _sas.user_of_agent(id): what uses the agent, as a sentence; null: nothing.
CREATE FUNCTION _sas.user_of_agent(id int) RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN coalesce(
        (SELECT 'Workflow "' || f.name || '", or an open run of it, uses it.'
         FROM _sas.workflow f
         JOIN _sas.workflow_version v USING (workflow_id)
         JOIN _sas.workflow_step w USING (version_id)
         WHERE w.lane = id AND (_sas.can_begin(f, v)
                                OR v.version_id IN (SELECT o.version_id FROM _sas.open_versions() o))
         ORDER BY f.name COLLATE "C" LIMIT 1),
        (SELECT 'Watcher "' || d.name || '" uses it.' FROM _sas.watcher d WHERE d.lane = id
         ORDER BY d.name COLLATE "C" LIMIT 1));
END $$;

-- _sas.user_of_queue(id): what uses the queue, as a sentence; null: nothing. A child run has the queue of its
-- step.
CREATE FUNCTION _sas.user_of_queue(id int) RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN 'Workflow "' || coalesce(
        (SELECT f.name
         FROM _sas.workflow f
         JOIN _sas.workflow_version v USING (workflow_id)
         WHERE (v.queue_id = id OR EXISTS (SELECT FROM _sas.workflow_step w
                                           WHERE w.version_id = v.version_id AND w.queue_id = id))
           AND (_sas.can_begin(f, v) OR v.version_id IN (SELECT o.version_id FROM _sas.open_versions() o))
         ORDER BY f.name COLLATE "C" LIMIT 1),
        (SELECT f.name
         FROM _sas.open_versions() o
         JOIN _sas.workflow_version v USING (version_id)
         JOIN _sas.workflow f USING (workflow_id)
         WHERE o.queue_id = id LIMIT 1)) || '", or an open run of it, uses it.';
END $$;

-- _sas.user_of_workflow(id): an open run of the workflow, or a current definition that names it, as a
-- sentence; null: there is none. See _sas.refuse_used for the whole list.
CREATE FUNCTION _sas.user_of_workflow(id int) RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN coalesce(
        (SELECT 'It has open runs.'
         FROM _sas.open_versions() o JOIN _sas.workflow_version v USING (version_id)
         WHERE v.workflow_id = id AND NOT o.is_hook LIMIT 1),
        (SELECT r || ' refers to it.' FROM unnest(_sas.referring(id)) r LIMIT 1));
END $$;

-- _sas.user_of(kind, name): what uses this agent, queue, watcher or workflow (by its id) or secret, as a
-- sentence; null: nothing.
CREATE FUNCTION _sas.user_of(kind text, name text) RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN CASE kind
        WHEN 'agent' THEN _sas.user_of_agent(name::int)
        WHEN 'queue' THEN _sas.user_of_queue(name::int)
        WHEN 'workflow' THEN _sas.user_of_workflow(name::int)
        WHEN 'watcher' THEN (SELECT format('Task "%s" is not deleted.', w.key) FROM _sas.watch w
                             WHERE w.watcher_id = name::bigint AND w.state <> 'deleted' LIMIT 1)
        WHEN 'secret' THEN (SELECT format('Agent "%s" refers to it.', a.name) FROM _sas.agent a
                            WHERE a.dropped_at IS NULL AND user_of.name = ANY (a.secrets)
                            ORDER BY a.name COLLATE "C" LIMIT 1) END;
END $$;

-- _sas.check_latest_use(kind, name): raises an error (40001) if something uses it, as is committed now, that
-- the older snapshot of this transaction does not show.
CREATE FUNCTION _sas.check_latest_use(kind text, name text) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_check_latest_use';

-- _sas.drop_queue_as(caller, name): the body of sas.drop_queue. Raises an error if a version that can still
-- begin, or an open run, uses the queue.
-- Locks: the queue; waits for submits of the workflows that name it. Writes: queue, parked_step.
CREATE FUNCTION _sas.drop_queue_as(caller oid, name text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    u _sas.queue := _sas.live_queue(name);
    used text;
BEGIN
    -- waits for who is naming it in a definition: see _sas.hold_named
    PERFORM FROM _sas.queue x WHERE x.queue_id = u.queue_id FOR UPDATE;
    used := _sas.user_of_queue(u.queue_id);
    -- a drop that is refused anyway keeps nobody from submitting
    IF used IS NULL THEN
        PERFORM _sas.await_submits(ARRAY(
            SELECT DISTINCT v.workflow_id FROM _sas.workflow_version v
            WHERE v.queue_id = u.queue_id
               OR EXISTS (SELECT FROM _sas.workflow_step w
                          WHERE w.version_id = v.version_id AND w.queue_id = u.queue_id) ORDER BY 1));
        used := _sas.user_of_queue(u.queue_id);
    END IF;
    IF used IS NOT NULL THEN
        RAISE EXCEPTION 'queue "%" is in use', $2
            USING ERRCODE = 'dependent_objects_still_exist', DETAIL = used,
                HINT = 'Change or drop the workflow first, and let its runs end.';
    END IF;
    PERFORM _sas.check_latest_use('queue', u.queue_id::text);
    UPDATE _sas.queue q SET dropped_at = sas.now() WHERE q.queue_id = u.queue_id;
    DELETE FROM _sas.parked_step k WHERE k.queue_id = u.queue_id;
    PERFORM _sas.record_queue(caller, 'drop_queue', u, NULL);
END $$;

-- _sas.drop_agent_as(caller, name): the body of sas.drop_agent. Raises an error if a version that can still
-- begin, an open run or a watcher uses the agent.
-- Locks: the agent; waits for submits of the workflows that name it. Writes: agent, external_slot,
-- parked_step, worker_grant, agent_grant. Next: workers reload the agents.
CREATE FUNCTION _sas.drop_agent_as(caller oid, name text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    a _sas.agent := _sas.live_agent(name);
    used text;
BEGIN
    -- waits for who is naming it in a definition: see _sas.hold_named
    PERFORM FROM _sas.agent x WHERE x.agent_id = a.agent_id FOR UPDATE;
    used := _sas.user_of_agent(a.agent_id);
    IF used IS NULL THEN
        PERFORM _sas.await_submits(ARRAY(
            SELECT DISTINCT v.workflow_id
            FROM _sas.workflow_version v JOIN _sas.workflow_step w USING (version_id)
            WHERE w.lane = a.agent_id ORDER BY 1));
        used := _sas.user_of_agent(a.agent_id);
    END IF;
    IF used IS NOT NULL THEN
        RAISE EXCEPTION 'agent "%" is in use', name
            USING ERRCODE = 'dependent_objects_still_exist', DETAIL = used,
                HINT = CASE WHEN used LIKE 'Watcher%' THEN 'Drop the watcher first.'
                       ELSE 'Change or drop the workflow first, and let its runs end.' END;
    END IF;
    PERFORM _sas.check_latest_use('agent', a.agent_id::text);
    UPDATE _sas.agent SET dropped_at = sas.now(), enabled = false WHERE agent.agent_id = a.agent_id;
    DELETE FROM _sas.external_slot p WHERE p.agent_id = a.agent_id;
    DELETE FROM _sas.worker_grant g WHERE g.agent_id = a.agent_id;
    DELETE FROM _sas.parked_step k WHERE k.queue_id = -a.agent_id;
    DELETE FROM _sas.agent_grant g WHERE g.agent_id = a.agent_id;
    PERFORM _sas.forget_limits(a.agent_id);
    PERFORM _sas.publish_agent(a.agent_id);
    PERFORM _sas.record_agent(caller, 'drop_agent', a, NULL);
END $$;

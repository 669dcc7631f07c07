-- SPDX-License-Identifier: PostgreSQL
--
-- What is committed now, for a transaction that keeps an older snapshot: grants and limits, which count as
-- they are, and what must not have changed since (src/store/latest.c). In READ COMMITTED, the snapshot of a
-- statement is never older.

-- _sas.rows_of(kind, id): the grants of this agent (kind agent or worker) or workflow, or the limits of this
-- role and those of all roles, as rows. Also what has to be as it was: all middleware, or the owner and the
-- definition of this watcher.
CREATE FUNCTION _sas.rows_of(kind text, id bigint) RETURNS jsonb
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN coalesce(CASE kind
        WHEN 'agent' THEN (SELECT jsonb_agg(g) FROM _sas.agent_grant g WHERE g.agent_id = id)
        WHEN 'worker' THEN (SELECT jsonb_agg(g) FROM _sas.worker_grant g WHERE g.agent_id = id)
        WHEN 'workflow' THEN (SELECT jsonb_agg(g) FROM _sas.workflow_grant g WHERE g.workflow_id = id)
        WHEN 'limit' THEN (SELECT jsonb_agg(l) FROM _sas.role_limit l
                           WHERE l.role = id::oid OR l.role IS NULL)
        WHEN 'middleware' THEN (SELECT jsonb_agg(m ORDER BY m.middleware_id) FROM _sas.middleware m)
        WHEN 'watcher' THEN (SELECT jsonb_build_array(d.owner, d.change) FROM _sas.watcher d
                             WHERE d.watcher_id = id) END, '[]');
END $$;

-- _sas.latest_rows(kind, id): the same, as is committed now.
CREATE FUNCTION _sas.latest_rows(kind text, id bigint) RETURNS jsonb
LANGUAGE C STABLE STRICT AS 'MODULE_PATHNAME', 'sas_api_latest_rows';

-- _sas.check_latest_rows(kind, id): raises an error (40001) if they are others than the older snapshot of
-- this transaction shows.
CREATE FUNCTION _sas.check_latest_rows(kind text, id bigint) RETURNS void
LANGUAGE C STABLE STRICT AS 'MODULE_PATHNAME', 'sas_api_check_latest_rows';

-- _sas.agent_grants(id): the grants that decide which calls a role may make with this agent. They are those
-- of now, as PostgreSQL's own privileges are.
CREATE FUNCTION _sas.agent_grants(id int) RETURNS SETOF _sas.agent_grant
LANGUAGE plpgsql STABLE ROWS 4 AS $$
BEGIN
    IF _sas.keeps_snapshot() THEN
        RETURN QUERY SELECT * FROM jsonb_populate_recordset(NULL::_sas.agent_grant,
                                                            _sas.latest_rows('agent', id));
    ELSE
        RETURN QUERY SELECT * FROM _sas.agent_grant g WHERE g.agent_id = id;
    END IF;
END $$;

-- _sas.worker_grants(id): the same for the roles whose programs may work for this agent.
CREATE FUNCTION _sas.worker_grants(id int) RETURNS SETOF _sas.worker_grant
LANGUAGE plpgsql STABLE ROWS 4 AS $$
BEGIN
    IF _sas.keeps_snapshot() THEN
        RETURN QUERY SELECT * FROM jsonb_populate_recordset(NULL::_sas.worker_grant,
                                                            _sas.latest_rows('worker', id));
    ELSE
        RETURN QUERY SELECT * FROM _sas.worker_grant g WHERE g.agent_id = id;
    END IF;
END $$;

-- _sas.workflow_grants(id): the same for the roles that may submit this workflow.
CREATE FUNCTION _sas.workflow_grants(id int) RETURNS SETOF _sas.workflow_grant
LANGUAGE plpgsql STABLE ROWS 4 AS $$
BEGIN
    IF _sas.keeps_snapshot() THEN
        RETURN QUERY SELECT * FROM jsonb_populate_recordset(NULL::_sas.workflow_grant,
                                                            _sas.latest_rows('workflow', id));
    ELSE
        RETURN QUERY SELECT * FROM _sas.workflow_grant g WHERE g.workflow_id = id;
    END IF;
END $$;

-- _sas.workflow_mark(id): what decides whether this workflow can be submitted, beside grants and versions;
-- null: it does not exist, or was dropped.
CREATE FUNCTION _sas.workflow_mark(id int) RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT format('%s %s %s', f.owner::oid, f.paused_at,
                          (SELECT count(*) FROM _sas.agent a WHERE a.dropped_at IS NOT NULL)
                          + (SELECT count(*) FROM _sas.queue q WHERE q.dropped_at IS NOT NULL))
            FROM _sas.workflow f WHERE f.workflow_id = id AND f.dropped_at IS NULL);
END $$;

-- _sas.secrets_mark(): changes whenever a secret changes.
CREATE FUNCTION _sas.secrets_mark() RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT coalesce(md5(string_agg(s.name || ' ' || s.xmin, ' ' ORDER BY s.name)), '')
            FROM _sas.secret s);
END $$;

-- _sas.check_latest_workflow(id): raises an error (40001) if the mark of the workflow is another one than the
-- older snapshot of this transaction shows.
CREATE FUNCTION _sas.check_latest_workflow(id int) RETURNS void
LANGUAGE C STABLE STRICT AS 'MODULE_PATHNAME', 'sas_api_check_latest_workflow';

-- _sas.check_latest_secrets(): the same for the mark of the secrets.
CREATE FUNCTION _sas.check_latest_secrets() RETURNS void
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_check_latest_secrets';

-- _sas.hold_workflow(id): no other session drops this workflow, or what a version of it names, until this
-- transaction ends. True: it was not held before; it may have been dropped just now. A scheduler does not
-- wait for a session that is dropping it: 55P03.
CREATE FUNCTION _sas.hold_workflow(id int) RETURNS boolean
LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sas_api_hold_workflow';

-- _sas.await_submits(ids): waits for the transactions that have submitted runs of these workflows. From then
-- on, until this transaction ends, nobody submits such runs.
CREATE FUNCTION _sas.await_submits(ids int[]) RETURNS void
LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sas_api_await_submits';

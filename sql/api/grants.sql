-- SPDX-License-Identifier: PostgreSQL
--
-- Grants: nothing to PUBLIC; sas.grant_usage gives levels.

-- sas._granted(): what each level may execute: one function in one line, by its whole signature, since one name may stand for
-- several functions, and a new one of an old name must not be granted by itself.
--   part       verb; builder: a piece of a definition; look: they read views as the role that calls, or ask for its right
--              themselves; view: what views and steps call as the role that looks or owns; level: tells that a role has it
--   signature  without the schema
CREATE FUNCTION sas._granted() RETURNS TABLE (part text, level text, signature text)
LANGUAGE sql IMMUTABLE AS $$
    SELECT g.part, l.level, g.signature
    FROM (VALUES
        ('verb', 'monitor user operator admin', 'health()'),
        ('verb', 'user admin', 'create_workflow(text, jsonb)'),
        ('verb', 'user operator admin', 'validate_workflow(jsonb)'),
        ('verb', 'user admin', 'drop_workflow(text)'),
        ('verb', 'user admin', 'grant_workflow(text, regrole)'),
        ('verb', 'user admin', 'revoke_workflow(text, regrole)'),
        ('verb', 'user admin', 'subscribe(text, text, jsonb)'),
        ('verb', 'user admin', 'unsubscribe(text, text)'),
        ('verb', 'user admin',
         'submit(text, jsonb, text, int, timestamptz, timestamptz, interval, bigint, text, jsonb, '
         'text[])'),
        ('verb', 'user admin', '_submit_plain(text, jsonb)'),
        ('verb', 'user admin',
         'submit_batch(text, jsonb[], text[], int, timestamptz, timestamptz, interval, bigint, '
         'text, jsonb, text[])'),
        ('verb', 'user operator admin', 'signal(bigint, text, jsonb)'),
        ('verb', 'user operator admin', 'signal(text, text, text, jsonb)'),
        ('verb', 'user admin', 'signal_token(text, jsonb)'),
        ('verb', 'user operator admin', 'wait(bigint, interval)'),
        ('verb', 'user admin', 'read_replies(text, int)'),
        ('verb', 'user operator admin', 'pause(bigint)'),
        ('verb', 'user operator admin', 'pause(bigint[])'),
        ('verb', 'user operator admin', 'resume(bigint)'),
        ('verb', 'user operator admin', 'resume(bigint[])'),
        ('verb', 'user operator admin', 'retry(bigint, text, boolean)'),
        ('verb', 'user operator admin', 'retry(bigint[], text, boolean)'),
        ('verb', 'user operator admin', 'skip(bigint, text, jsonb)'),
        ('verb', 'user operator admin', 'skip(bigint[], text, jsonb)'),
        ('verb', 'user operator admin', 'force_complete(bigint, text, jsonb)'),
        ('verb', 'user operator admin', 'force_complete(bigint[], text, jsonb)'),
        ('verb', 'user operator admin', 'set_input(bigint, text, jsonb)'),
        ('verb', 'user operator admin', 'set_input(bigint[], text, jsonb)'),
        ('verb', 'user operator admin', 'cancel(bigint, text)'),
        ('verb', 'user operator admin', 'cancel(bigint[], text)'),
        ('verb', 'user operator admin', 'halt(bigint, text)'),
        ('verb', 'user operator admin', 'halt(bigint[], text)'),
        ('verb', 'user operator admin', 'compensate(bigint, text)'),
        ('verb', 'user operator admin', 'compensate(bigint[], text)'),
        ('verb', 'user operator admin', 'rerun(bigint)'),
        ('verb', 'user operator admin', 'rerun(bigint[])'),
        ('verb', 'user operator admin', 'set_priority(bigint, int)'),
        ('verb', 'user operator admin', 'set_priority(bigint[], int)'),
        ('verb', 'operator admin', 'acknowledge(bigint)'),
        ('verb', 'operator admin', 'acknowledge(bigint[])'),
        ('verb', 'operator admin', 'reset_agent(text)'),
        ('verb', 'user operator admin', 'pause_workflow(text)'),
        ('verb', 'user operator admin', 'resume_workflow(text)'),
        ('verb', 'operator admin', 'pause_queue(text)'),
        ('verb', 'operator admin', 'resume_queue(text)'),
        ('verb', 'admin', 'create_queue(text, int)'),
        ('verb', 'admin', 'alter_queue(text, int)'),
        ('verb', 'admin', 'drop_queue(text)'),
        ('verb', 'admin', 'create_agent(text, text, text, jsonb, int, text, interval, jsonb, jsonb, jsonb)'),
        ('verb', 'admin',
         'alter_agent(text, text, text, jsonb, int, text, interval, jsonb, jsonb, jsonb, boolean, '
         'text[])'),
        ('verb', 'admin', 'drop_agent(text)'),
        ('verb', 'admin', 'set_secret(text, text)'),
        ('verb', 'admin', 'drop_secret(text)'),
        ('verb', 'admin', 'worker_restart()'),
        ('verb', 'admin', 'grant_usage(regrole, text, text)'),
        ('verb', 'admin',
         'create_middleware(text, text, regprocedure, regprocedure, text, text[], text[], text)'),
        ('verb', 'admin', 'drop_middleware(text, text)'),
        ('verb', 'admin worker', 'claim(text, text, int, interval)'),
        ('verb', 'admin worker', 'complete(uuid, jsonb)'),
        ('verb', 'admin worker', 'fail(uuid, text, boolean)'),
        ('verb', 'admin worker', 'heartbeat(uuid, float8, jsonb)'),
        ('verb', 'admin worker', 'hand_back(uuid)'),
        ('verb', 'user admin', 'create_watcher(text, jsonb)'),
        ('verb', 'user admin', 'drop_watcher(text)'),
        ('verb', 'user admin', 'watch(text, text, jsonb, jsonb, boolean)'),
        ('verb', 'user operator admin', 'unwatch(text, text[], boolean)'),
        ('verb', 'user operator admin', 'pause_watch(text, text[])'),
        ('verb', 'user operator admin', 'resume_watch(text, text[])'),
        ('verb', 'operator admin', 'rebalance()'),
        ('verb', 'admin worker', 'register_node(text, int, text[], text, interval, boolean)'),
        ('verb', 'admin worker', 'claim_watchers(bigint, int)'),
        ('verb', 'admin worker', 'heartbeat_node(bigint)'),
        ('verb', 'admin worker', 'append_items(bigint, bigint, jsonb, jsonb)'),
        ('verb', 'admin worker', 'fail_watch(bigint, bigint, text)'),
        ('verb', 'admin worker', 'release_watches(bigint, bigint[])'),
        ('verb', 'admin worker', 'leave_node(bigint)'),
        ('verb', 'user admin', 'set_clock(timestamptz)'),
        ('verb', 'user admin', 'move_clock(interval)'),
        ('verb', 'user admin', 'release_clock()'),
        ('verb', 'user admin', 'stub(text, jsonb, text, text, text, int, int, boolean)'),
        ('verb', 'user admin', 'unstub(text)'),
        ('verb', 'user admin', 'stub_signal(text, jsonb, interval, int)'),
        ('verb', 'user admin', 'run_inline(text, jsonb, text, interval, jsonb, interval)'),
        ('verb', 'user admin', 'continue_inline(bigint, interval)'),
        ('verb', 'user admin', 'stubbed_calls(text)'),
        ('verb', 'monitor operator admin', 'metrics(text[])'),
        ('verb', 'monitor operator admin', 'metrics_text(text)'),
        ('verb', 'operator admin', 'purge(interval, text[], text, int)'),
        ('verb', 'admin', 'set_alert_hook(regprocedure)'),
        ('builder', 'user admin',
         'workflow(jsonb, jsonb, jsonb, text, text, text, jsonb, interval, regproc, int, text, '
         'boolean, text, int, regproc, jsonb, boolean)'),
        ('builder', 'user admin', 'steps(jsonb[])'),
        ('builder', 'user admin',
         'step(text, jsonb, text[], jsonb, text, text[], jsonb, jsonb, interval, jsonb, text, text, '
         'text, boolean, text, text, text, int, int, jsonb, jsonb, jsonb, regproc, text, int, text, '
         'float8)'),
        ('builder', 'user admin', 'call(text, text, text, jsonb, jsonb, jsonb, jsonb, text, interval)'),
        ('builder', 'user admin', 'task(text, jsonb)'),
        ('builder', 'user admin', 'function(regproc, jsonb)'),
        ('builder', 'user admin', 'wait_signal(text, interval)'),
        ('builder', 'user admin', 'wait_until(text)'),
        ('builder', 'user admin', 'sleep(interval)'),
        ('builder', 'user admin', 'child(text, jsonb)'),
        ('builder', 'user admin', 'include(text, jsonb)'),
        ('builder', 'user admin', 'undo(jsonb, text, text[], jsonb, interval, jsonb)'),
        ('builder', 'user admin', 'fallback(jsonb, text[])'),
        ('builder', 'user admin', 'poll(jsonb, text, interval, interval, interval, text)'),
        ('builder', 'user admin', 'repeat(text, int, interval)'),
        ('builder', 'user admin', 'retry_policy(int, interval, interval, text, boolean, text[])'),
        ('builder', 'user admin', 'recovery_policy(int, interval, interval, text, boolean)'),
        ('builder', 'user admin',
         'hook(text, regproc, text, jsonb, text[], jsonb, jsonb, interval, text, text[])'),
        ('builder', 'user admin', 'sequence("any")'),
        ('builder', 'user admin', 'concurrence("any")'),
        ('builder', 'user admin', '_span_text(interval)'),
        ('builder', 'user admin', '_function_text(regproc)'),
        ('builder', 'user admin', '_object(jsonb[])'),
        ('builder', 'user admin', '_on_failure(text, text, text)'),
        ('look', 'monitor user operator admin', 'explain()'),
        ('look', 'monitor user operator admin', 'explain(bigint)'),
        ('look', 'monitor user operator admin', 'timeline(bigint, int)'),
        ('look', 'monitor user operator admin', 'graph(bigint, text)'),
        ('look', 'monitor user operator admin', 'graph(text, text)'),
        ('look', 'monitor user operator admin', 'console(bigint)'),
        ('look', 'monitor user operator admin', '_explain()'),
        ('look', 'monitor user operator admin', '_explain(bigint)'),
        ('look', 'monitor user operator admin', '_explain_run(bigint)'),
        ('look', 'monitor user operator admin', '_explain_steps(bigint)'),
        ('look', 'monitor user operator admin', '_cause(text, text, timestamptz, timestamptz)'),
        ('look', 'monitor user operator admin', '_elements(int[])'),
        ('look', 'monitor user operator admin', '_run_facts(bigint)'),
        ('look', 'monitor user operator admin', '_ahead(bigint)'),
        ('look', 'monitor user operator admin', '_visible_run(bigint)'),
        ('look', 'monitor user operator admin', '_short_span(interval)'),
        ('look', 'monitor user operator admin', '_instant(timestamptz, timestamptz)'),
        ('look', 'monitor user operator admin', '_count(bigint, text, text)'),
        ('look', 'monitor user operator admin', '_title(jsonb)'),
        ('look', 'monitor user operator admin', '_timeline(bigint, int)'),
        ('look', 'monitor user operator admin', '_spans(bigint)'),
        ('look', 'monitor user operator admin', '_graph(bigint, text)'),
        ('look', 'monitor user operator admin', '_graph(text, text)'),
        ('look', 'monitor user operator admin', '_run_graph(bigint)'),
        ('look', 'monitor user operator admin', '_workflow_graph(text)'),
        ('look', 'monitor user operator admin', '_run_nodes(bigint)'),
        ('look', 'monitor user operator admin', '_mermaid_text(text)'),
        ('look', 'monitor user operator admin', '_dot_text(text)'),
        ('look', 'monitor user operator admin', '_state_colours()'),
        ('look', 'monitor user operator admin', '_draw(jsonb, text)'),
        ('look', 'monitor user operator admin', '_check_format(text)'),
        ('look', 'monitor user operator admin', '_html_escape(text)'),
        ('look', 'monitor user operator admin', '_html_badge(text)'),
        ('look', 'monitor user operator admin', '_html_time(timestamptz, timestamptz)'),
        ('look', 'monitor user operator admin', '_html_took(float8)'),
        ('look', 'monitor user operator admin', '_html_row(text[], int[])'),
        ('look', 'monitor user operator admin', '_html_table(text[], text, text)'),
        ('look', 'monitor user operator admin', '_html_section(text, text, text, text)'),
        ('look', 'monitor user operator admin', '_html_json(text, jsonb)'),
        ('look', 'monitor user operator admin', '_html_page(text, text)'),
        ('look', 'monitor user operator admin', '_html_style()'),
        ('look', 'monitor user operator admin', '_cut(text, int)'),
        ('look', 'monitor user operator admin', '_layout(text[], int[], jsonb)'),
        ('look', 'monitor user operator admin', '_svg(bigint)'),
        ('look', 'monitor user operator admin', '_svg_parts(bigint)'),
        ('look', 'monitor user operator admin', '_html_timeline(bigint, timestamptz)'),
        ('look', 'monitor user operator admin', '_newest_run()'),
        ('look', 'monitor user operator admin', '_recent()'),
        ('look', 'monitor user operator admin', '_console(bigint)'),
        ('look', 'monitor user operator admin', '_console_all()'),
        ('look', 'monitor user operator admin', '_console_tiles()'),
        ('look', 'monitor user operator admin', '_console_waiting(timestamptz)'),
        ('look', 'monitor user operator admin', '_console_alerts(timestamptz)'),
        ('look', 'monitor user operator admin', '_console_paused(timestamptz)'),
        ('look', 'monitor user operator admin', '_console_oldest(timestamptz)'),
        ('look', 'monitor user operator admin', '_console_agents(timestamptz)'),
        ('look', 'monitor user operator admin', '_console_errors(timestamptz)'),
        ('look', 'monitor user operator admin', '_console_house(timestamptz)'),
        ('look', 'monitor user operator admin', '_console_run(bigint)'),
        ('look', 'monitor user operator admin', '_console_head(bigint, timestamptz)'),
        ('look', 'monitor user operator admin', '_console_step(sas.steps, timestamptz)'),
        ('look', 'monitor user operator admin', '_console_steps(bigint, timestamptz)'),
        ('view', 'monitor user operator admin', '_sees_all()'),
        ('view', 'monitor user operator admin', '_sees_payload(oid)'),
        ('view', 'monitor user operator admin', '_step_key(uuid, text, int, boolean)'),
        ('view', 'monitor user operator admin', '_step_input(bigint, int, int)'),
        ('view', 'monitor user operator admin', '_starts_after(bigint)'),
        ('view', 'monitor user operator admin', '_suggests(bigint, int, int)'),
        ('view', 'monitor user operator admin', '_through_middleware(jsonb)'),
        ('view', 'monitor user operator admin', '_before_call(jsonb)'),
        ('view', 'monitor user operator admin', '_after_call(jsonb)'),
        ('view', 'monitor user operator admin', '_go_in(jsonb)'),
        ('view', 'monitor user operator admin', '_go_out(jsonb, jsonb, jsonb, int)'),
        ('view', 'monitor user operator admin', '_call_local(text, jsonb)'),
        ('view', 'monitor user operator admin', '_answer_of(text, jsonb, text[])'),
        ('view', 'monitor user operator admin', '_places()'),
        ('view', 'monitor user operator admin', '_doors()'),
        ('view', 'monitor user operator admin', '_complete_in()'),
        ('view', 'monitor user operator admin', '_shown_name(text)'),
        ('view', 'monitor user operator admin', '_workers()'),
        ('view', 'monitor user operator admin', '_now()'),
        ('level', 'monitor', '_level_monitor()'),
        ('level', 'user', '_level_user()'),
        ('level', 'operator', '_level_operator()'),
        ('level', 'admin', '_level_admin()'),
        ('level', 'worker', '_level_worker()')
    ) AS g (part, levels, signature)
    CROSS JOIN LATERAL string_to_table(g.levels, ' ') AS l (level)
$$;

-- sas._grant_usage(caller, role, level, agent): see sas.grant_usage.
CREATE FUNCTION sas._grant_usage(caller oid, role regrole, level text, agent text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, sas, pg_temp AS $$
DECLARE
    looking text := 'sas.transitions, sas.settings, sas.agents, sas.workers, sas.alerts, sas.workflows, sas.runs, sas.steps, sas.attempts, sas.history, sas.hook_runs, sas.middlewares, sas.subscriptions, sas.run_details, sas.queues, sas.watchers, sas.watches, sas.nodes';
    f text;
BEGIN
    IF level IS NULL OR NOT EXISTS (SELECT FROM sas._granted() g WHERE g.level = $3) THEN
        RAISE EXCEPTION '"%" is not a level', level
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'The place is "/level".', HINT = 'The levels are admin, operator, user, monitor and worker.';
    END IF;
    PERFORM sas._check_role(role);
    IF agent IS NOT NULL AND level <> 'worker' THEN
        RAISE EXCEPTION 'level "%" is not given for one agent', level
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'The place is "/agent".', HINT = 'Only level worker can be limited to an agent.';
    ELSIF agent IS NOT NULL THEN
        INSERT INTO sas.agent_grant AS g (agent_id, role)
        SELECT a.agent_id, $2 FROM sas.agent a WHERE a.name = agent AND a.dropped_at IS NULL AND a.kind = 'external'
        ON CONFLICT ON CONSTRAINT agent_grant_pkey DO UPDATE SET role = g.role;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'external agent "%" does not exist', agent
                USING ERRCODE = 'undefined_object', DETAIL = 'The place is "/agent".', HINT = 'Create it with sas.create_agent(..., kind => ''external'').';
        END IF;
    END IF;
    EXECUTE format('GRANT USAGE ON SCHEMA sas TO %s', role);
    -- an outside worker is told what it needs by its claims
    IF level <> 'worker' THEN
        EXECUTE format('GRANT SELECT ON %s TO %s', looking, role);
    END IF;
    -- a signature that is not there is an error. A worker limited to an agent has not got the level itself
    FOR f IN SELECT g.signature FROM sas._granted() g WHERE g.level = $3 AND (agent IS NULL OR g.part <> 'level') LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', ('sas.' || f)::regprocedure, role);
    END LOOP;
END $$;

CREATE FUNCTION sas.grant_usage(role regrole, level text, agent text DEFAULT NULL) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.grant_usage IS 'Gives a role a level in this database: admin, operator, user, monitor or worker. A role may have several. Level worker can be limited to one external agent.';

-- Nobody but the owner has any right now, whatever default privileges say: those of the role that installs would
-- open secrets and internal functions to whom they name. And what stands in the schema is the extension's, or
-- somebody has put it there meanwhile.
SET LOCAL search_path TO pg_catalog, pg_temp;

DO $$
DECLARE
    g record;
BEGIN
    FOR g IN
        SELECT o.kind, o.name, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS grantee
        FROM (SELECT 'SCHEMA' AS kind, 'sas' AS name, n.nspowner AS owner, coalesce(n.nspacl, acldefault('n', n.nspowner)) AS acl
              FROM pg_namespace n WHERE n.nspname = 'sas'
              UNION ALL
              SELECT 'ROUTINE', p.oid::regprocedure::text, p.proowner, coalesce(p.proacl, acldefault('f', p.proowner))
              FROM pg_proc p WHERE p.pronamespace = 'sas'::regnamespace
              UNION ALL
              SELECT CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, c.oid::regclass::text, c.relowner,
                     coalesce(c.relacl, acldefault((CASE c.relkind WHEN 'S' THEN 's' ELSE 'r' END)::"char", c.relowner))
              FROM pg_class c WHERE c.relnamespace = 'sas'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'S')
              UNION ALL
              SELECT 'TYPE', y.oid::regtype::text, y.typowner, coalesce(y.typacl, acldefault('T', y.typowner))
              FROM pg_type y
              WHERE y.typnamespace = 'sas'::regnamespace AND y.typelem = 0
                AND (y.typtype <> 'c' OR y.typrelid IN (SELECT c.oid FROM pg_class c WHERE c.relkind = 'c'))) o,
             aclexplode(o.acl) a
        WHERE a.grantee <> o.owner
        GROUP BY 1, 2, 3
    LOOP
        EXECUTE format('REVOKE ALL ON %s %s FROM %s CASCADE', g.kind, g.name, g.grantee);
    END LOOP;
    FOR g IN
        SELECT pg_describe_object(d.classid, d.objid, d.objsubid) AS name
        FROM pg_depend d
        WHERE d.refclassid = 'pg_namespace'::regclass AND d.refobjid = 'sas'::regnamespace AND d.deptype = 'n'
          AND d.classid <> 'pg_extension'::regclass
          AND NOT EXISTS (SELECT FROM pg_depend e JOIN pg_extension x ON x.oid = e.refobjid AND x.extname = 'sas'
                          WHERE e.classid = d.classid AND e.objid = d.objid
                            AND e.refclassid = 'pg_extension'::regclass AND e.deptype = 'e')
    LOOP
        RAISE EXCEPTION 'somebody else made %s while extension "sas" was created', g.name
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Drop it, and try again.';
    END LOOP;
END $$;
SET LOCAL search_path TO sas, pg_temp;

-- SPDX-License-Identifier: PostgreSQL
--
-- Grants: nothing to PUBLIC; sas.grant_usage gives levels.

-- _sas.granted(): what each level may execute: one function in one line, by its whole signature, since one
-- name may stand for several functions, and a new one of an old name must not be granted by itself.
--   part       verb; builder: a piece of a definition; look: they read views as the role that calls, or ask
--   for its right
--              themselves; view: what views and steps call as the role that looks or owns; level: tells that
--              a role has it
CREATE FUNCTION _sas.granted() RETURNS TABLE (part text, level text, signature text)
LANGUAGE sql IMMUTABLE AS $$
    SELECT g.part, l.level, g.signature
    FROM (VALUES
        ('verb', 'monitor user operator admin', 'sas.health()'),
        ('verb', 'user admin', 'sas.create_workflow(text, jsonb)'),
        ('verb', 'user operator admin', 'sas.validate_workflow(jsonb)'),
        ('verb', 'user admin', 'sas.drop_workflow(text)'),
        ('verb', 'user admin', 'sas.grant_workflow(text, regrole)'),
        ('verb', 'user admin', 'sas.revoke_workflow(text, regrole)'),
        ('verb', 'user admin', 'sas.subscribe(text, text, jsonb)'),
        ('verb', 'user admin', 'sas.unsubscribe(text, text)'),
        ('verb', 'user admin',
         'sas.submit(text, jsonb, text, int, timestamptz, timestamptz, interval, bigint, text, jsonb, '
         'text[])'),
        ('verb', 'user admin', '_sas.submit_plain(text, jsonb)'),
        ('verb', 'user admin',
         'sas.submit_batch(text, jsonb[], text[], int, timestamptz, timestamptz, interval, bigint, '
         'text, jsonb, text[])'),
        ('verb', 'user operator admin', 'sas.signal(bigint, text, jsonb)'),
        ('verb', 'user operator admin', 'sas.signal_key(text, text, text, jsonb)'),
        ('verb', 'user admin', 'sas.signal_token(text, jsonb)'),
        ('verb', 'user operator admin', 'sas.wait(bigint, interval)'),
        ('verb', 'user admin', 'sas.read_replies(text, int)'),
        ('verb', 'user operator admin', 'sas.pause(bigint)'),
        ('verb', 'user operator admin', 'sas.pause_runs(bigint[])'),
        ('verb', 'user operator admin', 'sas.resume(bigint)'),
        ('verb', 'user operator admin', 'sas.resume_runs(bigint[])'),
        ('verb', 'user operator admin', 'sas.retry(bigint, text, boolean)'),
        ('verb', 'user operator admin', 'sas.retry_runs(bigint[], text, boolean)'),
        ('verb', 'user operator admin', 'sas.skip(bigint, text, jsonb)'),
        ('verb', 'user operator admin', 'sas.skip_runs(bigint[], text, jsonb)'),
        ('verb', 'user operator admin', 'sas.force_complete(bigint, text, jsonb)'),
        ('verb', 'user operator admin', 'sas.force_complete_runs(bigint[], text, jsonb)'),
        ('verb', 'user operator admin', 'sas.set_input(bigint, text, jsonb)'),
        ('verb', 'user operator admin', 'sas.set_input_runs(bigint[], text, jsonb)'),
        ('verb', 'user operator admin', 'sas.cancel(bigint, text)'),
        ('verb', 'user operator admin', 'sas.cancel_runs(bigint[], text)'),
        ('verb', 'user operator admin', 'sas.halt(bigint, text)'),
        ('verb', 'user operator admin', 'sas.halt_runs(bigint[], text)'),
        ('verb', 'user operator admin', 'sas.compensate(bigint, text)'),
        ('verb', 'user operator admin', 'sas.compensate_runs(bigint[], text)'),
        ('verb', 'user operator admin', 'sas.rerun(bigint)'),
        ('verb', 'user operator admin', 'sas.rerun_runs(bigint[])'),
        ('verb', 'user operator admin', 'sas.set_priority(bigint, int)'),
        ('verb', 'user operator admin', 'sas.set_priority_runs(bigint[], int)'),
        ('verb', 'operator admin', 'sas.acknowledge(bigint)'),
        ('verb', 'operator admin', 'sas.acknowledge_alerts(bigint[])'),
        ('verb', 'operator admin', 'sas.reset_agent(text)'),
        ('verb', 'user operator admin', 'sas.pause_workflow(text)'),
        ('verb', 'user operator admin', 'sas.resume_workflow(text)'),
        ('verb', 'operator admin', 'sas.pause_queue(text)'),
        ('verb', 'operator admin', 'sas.resume_queue(text)'),
        ('verb', 'admin', 'sas.create_queue(text, int)'),
        ('verb', 'admin', 'sas.alter_queue(text, int)'),
        ('verb', 'admin', 'sas.drop_queue(text)'),
        ('verb', 'admin', 'sas.create_agent(text, text, text, jsonb, int, text, interval, jsonb, jsonb, '
                          'jsonb)'),
        ('verb', 'admin',
         'sas.alter_agent(text, text, text, jsonb, int, text, interval, jsonb, jsonb, jsonb, boolean, '
         'text[])'),
        ('verb', 'admin', 'sas.drop_agent(text)'),
        ('verb', 'admin', 'sas.set_secret(text, text)'),
        ('verb', 'admin', 'sas.drop_secret(text)'),
        ('verb', 'admin', 'sas.worker_restart()'),
        ('verb', 'admin', 'sas.grant_usage(regrole, text, text)'),
        ('verb', 'admin',
         'sas.create_middleware(text, text, regprocedure, regprocedure, text, text[], text[], text)'),
        ('verb', 'admin', 'sas.drop_middleware(text, text)'),
        ('verb', 'admin worker', 'sas.claim(text, text, int, interval)'),
        ('verb', 'admin worker', 'sas.complete(uuid, jsonb)'),
        ('verb', 'admin worker', 'sas.fail(uuid, text, boolean)'),
        ('verb', 'admin worker', 'sas.heartbeat(uuid, float8, jsonb)'),
        ('verb', 'admin worker', 'sas.hand_back(uuid)'),
        ('verb', 'user admin', 'sas.create_watcher(text, jsonb)'),
        ('verb', 'user admin', 'sas.drop_watcher(text)'),
        ('verb', 'user admin', 'sas.watch(text, text, jsonb, jsonb, boolean)'),
        ('verb', 'user operator admin', 'sas.unwatch(text, text[], boolean)'),
        ('verb', 'user operator admin', 'sas.pause_watch(text, text[])'),
        ('verb', 'user operator admin', 'sas.resume_watch(text, text[])'),
        ('verb', 'operator admin', 'sas.rebalance()'),
        ('verb', 'admin worker', 'sas.register_node(text, int, text[], text, interval, boolean)'),
        ('verb', 'admin worker', 'sas.claim_watchers(bigint, int)'),
        ('verb', 'admin worker', 'sas.heartbeat_node(bigint)'),
        ('verb', 'admin worker', 'sas.append_items(bigint, bigint, jsonb, jsonb)'),
        ('verb', 'admin worker', 'sas.fail_watch(bigint, bigint, text)'),
        ('verb', 'admin worker', 'sas.release_watches(bigint, bigint[])'),
        ('verb', 'admin worker', 'sas.leave_node(bigint)'),
        ('verb', 'user admin', 'sas.set_clock(timestamptz)'),
        ('verb', 'user admin', 'sas.move_clock(interval)'),
        ('verb', 'user admin', 'sas.release_clock()'),
        ('verb', 'user admin', 'sas.stub(text, jsonb, text, text, text, int, int, boolean)'),
        ('verb', 'user admin', 'sas.unstub(text)'),
        ('verb', 'user admin', 'sas.stub_signal(text, jsonb, interval, int)'),
        ('verb', 'user admin', 'sas.run_inline(text, jsonb, text, interval, jsonb, interval)'),
        ('verb', 'user admin', 'sas.continue_inline(bigint, interval)'),
        ('verb', 'user admin', 'sas.stubbed_calls(text)'),
        ('verb', 'monitor operator admin', 'sas.metrics(text[])'),
        ('verb', 'monitor operator admin', 'sas.metrics_text(text)'),
        ('verb', 'operator admin', 'sas.purge(interval, text[], text, int)'),
        ('verb', 'admin', 'sas.set_alert_hook(regprocedure)'),
        ('builder', 'user admin',
         'sas.workflow(jsonb, jsonb, jsonb, text, text, text, jsonb, interval, regproc, int, text, '
         'boolean, text, int, regproc, jsonb, boolean)'),
        ('builder', 'user admin', 'sas.steps(jsonb[])'),
        ('builder', 'user admin',
         'sas.step(text, jsonb, text[], jsonb, text, text[], jsonb, jsonb, interval, jsonb, text, text, '
         'text, boolean, text, text, text, int, int, jsonb, jsonb, jsonb, regproc, text, int, text, '
         'float8)'),
        ('builder', 'user admin', 'sas.call(text, text, text, jsonb, jsonb, jsonb, jsonb, text, interval)'),
        ('builder', 'user admin', 'sas.task(text, jsonb)'),
        ('builder', 'user admin', 'sas.function(regproc, jsonb)'),
        ('builder', 'user admin', 'sas.wait_signal(text, interval)'),
        ('builder', 'user admin', 'sas.wait_until(text)'),
        ('builder', 'user admin', 'sas.sleep(interval)'),
        ('builder', 'user admin', 'sas.child(text, jsonb)'),
        ('builder', 'user admin', 'sas.include(text, jsonb)'),
        ('builder', 'user admin', 'sas.undo(jsonb, text, text[], jsonb, interval, jsonb)'),
        ('builder', 'user admin', 'sas.fallback(jsonb, text[])'),
        ('builder', 'user admin', 'sas.poll(jsonb, text, interval, interval, interval, text)'),
        ('builder', 'user admin', 'sas.repeat(text, int, interval)'),
        ('builder', 'user admin', 'sas.retry_policy(int, interval, interval, text, boolean, text[])'),
        ('builder', 'user admin', 'sas.recovery_policy(int, interval, interval, text, boolean)'),
        ('builder', 'user admin',
         'sas.hook(text, regproc, text, jsonb, text[], jsonb, jsonb, interval, text, text[])'),
        ('builder', 'user admin', 'sas.sequence("any")'),
        ('builder', 'user admin', 'sas.concurrence("any")'),
        ('builder', 'user admin', '_sas.span_text(interval)'),
        ('builder', 'user admin', '_sas.function_text(regproc)'),
        ('builder', 'user admin', '_sas.object(jsonb[])'),
        ('builder', 'user admin', '_sas.on_failure(text, text, text)'),
        ('look', 'monitor user operator admin', 'sas.explain()'),
        ('look', 'monitor user operator admin', 'sas.explain(bigint)'),
        ('look', 'monitor user operator admin', 'sas.timeline(bigint, int)'),
        ('look', 'monitor user operator admin', 'sas.graph(bigint, text)'),
        ('look', 'monitor user operator admin', 'sas.graph_workflow(text, text)'),
        ('look', 'monitor user operator admin', 'sas.console(bigint)'),
        ('look', 'monitor user operator admin', '_sas.explain_database()'),
        ('look', 'monitor user operator admin', '_sas.explain_tree(bigint)'),
        ('look', 'monitor user operator admin', '_sas.explain_run(bigint)'),
        ('look', 'monitor user operator admin', '_sas.explain_steps(bigint)'),
        ('look', 'monitor user operator admin', '_sas.cause(text, text, timestamptz, timestamptz)'),
        ('look', 'monitor user operator admin', '_sas.elements(int[])'),
        ('look', 'monitor user operator admin', '_sas.run_facts(bigint)'),
        ('look', 'monitor user operator admin', '_sas.ahead(bigint)'),
        ('look', 'monitor user operator admin', '_sas.visible_run(bigint)'),
        ('look', 'monitor user operator admin', '_sas.short_span(interval)'),
        ('look', 'monitor user operator admin', '_sas.instant(timestamptz, timestamptz)'),
        ('look', 'monitor user operator admin', '_sas.quantity(bigint, text, text)'),
        ('look', 'monitor user operator admin', '_sas.title(jsonb)'),
        ('look', 'monitor user operator admin', '_sas.timeline_of(bigint, int)'),
        ('look', 'monitor user operator admin', '_sas.spans(bigint)'),
        ('look', 'monitor user operator admin', '_sas.draw_run(bigint, text)'),
        ('look', 'monitor user operator admin', '_sas.draw_workflow(text, text)'),
        ('look', 'monitor user operator admin', '_sas.run_graph(bigint)'),
        ('look', 'monitor user operator admin', '_sas.workflow_graph(text)'),
        ('look', 'monitor user operator admin', '_sas.run_nodes(bigint)'),
        ('look', 'monitor user operator admin', '_sas.mermaid_text(text)'),
        ('look', 'monitor user operator admin', '_sas.dot_text(text)'),
        ('look', 'monitor user operator admin', '_sas.state_colours()'),
        ('look', 'monitor user operator admin', '_sas.draw(jsonb, text)'),
        ('look', 'monitor user operator admin', '_sas.check_format(text)'),
        ('look', 'monitor user operator admin', '_sas.html_escape(text)'),
        ('look', 'monitor user operator admin', '_sas.html_badge(text)'),
        ('look', 'monitor user operator admin', '_sas.html_time(timestamptz, timestamptz)'),
        ('look', 'monitor user operator admin', '_sas.html_took(float8)'),
        ('look', 'monitor user operator admin', '_sas.html_row(text[], int[])'),
        ('look', 'monitor user operator admin', '_sas.html_table(text[], text, text)'),
        ('look', 'monitor user operator admin', '_sas.html_section(text, text, text, text)'),
        ('look', 'monitor user operator admin', '_sas.html_json(text, jsonb)'),
        ('look', 'monitor user operator admin', '_sas.html_page(text, text)'),
        ('look', 'monitor user operator admin', '_sas.html_style()'),
        ('look', 'monitor user operator admin', '_sas.cut(text, int)'),
        ('look', 'monitor user operator admin', '_sas.layout(text[], int[], jsonb)'),
        ('look', 'monitor user operator admin', '_sas.svg(bigint)'),
        ('look', 'monitor user operator admin', '_sas.svg_parts(bigint)'),
        ('look', 'monitor user operator admin', '_sas.html_timeline(bigint, timestamptz)'),
        ('look', 'monitor user operator admin', '_sas.newest_run()'),
        ('look', 'monitor user operator admin', '_sas.recent()'),
        ('look', 'monitor user operator admin', '_sas.draw_console(bigint)'),
        ('look', 'monitor user operator admin', '_sas.console_all()'),
        ('look', 'monitor user operator admin', '_sas.console_tiles()'),
        ('look', 'monitor user operator admin', '_sas.console_waiting(timestamptz)'),
        ('look', 'monitor user operator admin', '_sas.console_alerts(timestamptz)'),
        ('look', 'monitor user operator admin', '_sas.console_paused(timestamptz)'),
        ('look', 'monitor user operator admin', '_sas.console_oldest(timestamptz)'),
        ('look', 'monitor user operator admin', '_sas.console_agents(timestamptz)'),
        ('look', 'monitor user operator admin', '_sas.console_errors(timestamptz)'),
        ('look', 'monitor user operator admin', '_sas.console_house(timestamptz)'),
        ('look', 'monitor user operator admin', '_sas.console_run(bigint)'),
        ('look', 'monitor user operator admin', '_sas.console_head(bigint, timestamptz)'),
        ('look', 'monitor user operator admin', '_sas.console_step(sas.steps, timestamptz)'),
        ('look', 'monitor user operator admin', '_sas.console_steps(bigint, timestamptz)'),
        ('view', 'monitor user operator admin', '_sas.sees_all()'),
        ('view', 'monitor user operator admin', '_sas.sees_payload(oid)'),
        ('view', 'monitor user operator admin', '_sas.step_key(uuid, text, int, boolean)'),
        ('view', 'monitor user operator admin', '_sas.step_input(bigint, int, int)'),
        ('view', 'monitor user operator admin', '_sas.starts_after(bigint)'),
        ('view', 'monitor user operator admin', '_sas.suggests(bigint, int, int)'),
        ('view', 'monitor user operator admin', '_sas.places()'),
        ('view', 'monitor user operator admin', '_sas.doors()'),
        ('view', 'monitor user operator admin', '_sas.complete_in()'),
        ('view', 'monitor user operator admin', '_sas.shown_name(text)'),
        ('view', 'monitor user operator admin', '_sas.all_workers()'),
        ('view', 'monitor user operator admin', '_sas.now()'),
        ('level', 'monitor', '_sas.level_monitor()'),
        ('level', 'user', '_sas.level_user()'),
        ('level', 'operator', '_sas.level_operator()'),
        ('level', 'admin', '_sas.level_admin()'),
        ('level', 'worker', '_sas.level_worker()')
    ) AS g (part, levels, signature)
    CROSS JOIN LATERAL string_to_table(g.levels, ' ') AS l (level)
$$;

-- _sas.grant_usage_as(caller, role, level, agent): see sas.grant_usage.
CREATE FUNCTION _sas.grant_usage_as(caller oid, role regrole, level text, agent text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    looking text := 'sas.transitions, sas.settings, sas.agents, sas.workers, sas.alerts, sas.workflows, '
                    'sas.runs, sas.steps, sas.attempts, sas.history, sas.hook_runs, sas.middlewares, '
                    'sas.subscriptions, sas.run_details, sas.queues, sas.watchers, sas.watches, sas.nodes';
    f text;
BEGIN
    IF level IS NULL OR NOT EXISTS (SELECT FROM _sas.granted() g WHERE g.level = $3) THEN
        RAISE EXCEPTION '"%" is not a level', level
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /level.',
                HINT = 'The levels are admin, operator, user, monitor and worker.';
    END IF;
    PERFORM _sas.check_role(role);
    IF agent IS NOT NULL AND level <> 'worker' THEN
        RAISE EXCEPTION 'level "%" is not given for one agent', level
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /agent.',
                HINT = 'Only level worker can be limited to an agent.';
    ELSIF agent IS NOT NULL THEN
        INSERT INTO _sas.agent_grant AS g (agent_id, role)
        SELECT a.agent_id, $2 FROM _sas.agent a WHERE a.name = agent AND a.dropped_at IS NULL
            AND a.kind = 'external'
        ON CONFLICT ON CONSTRAINT agent_grant_pkey DO UPDATE SET role = g.role;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'external agent "%" does not exist', agent
                USING ERRCODE = 'undefined_object', DETAIL = 'At /agent.',
                    HINT = 'Create it with sas.create_agent(..., kind => ''external'').';
        END IF;
    END IF;
    EXECUTE format('GRANT USAGE ON SCHEMA sas, _sas TO %s', role);
    -- an outside worker is told what it needs by its claims
    IF level <> 'worker' THEN
        EXECUTE format('GRANT SELECT ON %s TO %s', looking, role);
    END IF;
    -- a signature that is not there is an error. A worker limited to an agent has not got the level itself
    FOR f IN SELECT g.signature FROM _sas.granted() g WHERE g.level = $3
        AND (agent IS NULL OR g.part <> 'level') LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', f::regprocedure, role);
    END LOOP;
END $$;

CREATE FUNCTION sas.grant_usage(role regrole, level text, agent text DEFAULT NULL) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.grant_usage IS 'Gives a role a level in this database: admin, operator, user, '
                                       'monitor or worker. A role may have several. Level worker can be '
                                       'limited to one external agent.';

-- Nobody but the owner has any right now, whatever default privileges say: those of the role that installs
-- would open secrets and internal functions to whom they name. And what stands in the schema is the
-- extension's, or somebody has put it there meanwhile.
DO $$
DECLARE
    g record;
BEGIN
    FOR g IN
        SELECT o.kind, o.name, CASE a.grantee WHEN 0 THEN 'PUBLIC'
            ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS grantee
        FROM (SELECT 'SCHEMA' AS kind, n.nspname::text AS name, n.nspowner AS owner,
              coalesce(n.nspacl, acldefault('n', n.nspowner)) AS acl
              FROM pg_namespace n WHERE n.nspname IN ('sas', '_sas')
              UNION ALL
              SELECT 'ROUTINE', p.oid::regprocedure::text, p.proowner,
                  coalesce(p.proacl, acldefault('f', p.proowner))
              FROM pg_proc p WHERE p.pronamespace IN ('sas'::regnamespace, '_sas'::regnamespace)
              UNION ALL
              SELECT CASE c.relkind WHEN 'S' THEN 'SEQUENCE'
                  ELSE 'TABLE' END, c.oid::regclass::text, c.relowner,
                     coalesce(c.relacl, acldefault((CASE c.relkind WHEN 'S' THEN 's' ELSE 'r' END)::"char",
                                                   c.relowner))
              FROM pg_class c WHERE c.relnamespace IN ('sas'::regnamespace, '_sas'::regnamespace)
                  AND c.relkind IN ('r', 'p', 'v', 'm', 'S')
              UNION ALL
              SELECT 'TYPE', y.oid::regtype::text, y.typowner, coalesce(y.typacl, acldefault('T', y.typowner))
              FROM pg_type y
              WHERE y.typnamespace IN ('sas'::regnamespace, '_sas'::regnamespace) AND y.typelem = 0
                AND (y.typtype <> 'c' OR y.typrelid IN (SELECT c.oid FROM pg_class c
                                                        WHERE c.relkind = 'c'))) o,
             aclexplode(o.acl) a
        WHERE a.grantee <> o.owner
        GROUP BY 1, 2, 3
    LOOP
        EXECUTE format('REVOKE ALL ON %s %s FROM %s CASCADE', g.kind, g.name, g.grantee);
    END LOOP;
    FOR g IN
        SELECT pg_describe_object(d.classid, d.objid, d.objsubid) AS name
        FROM pg_depend d
        WHERE d.refclassid = 'pg_namespace'::regclass
            AND d.refobjid IN ('sas'::regnamespace, '_sas'::regnamespace) AND d.deptype = 'n'
          AND d.classid <> 'pg_extension'::regclass
          AND NOT EXISTS (SELECT FROM pg_depend e JOIN pg_extension x ON x.oid = e.refobjid
                          AND x.extname = 'sas'
                          WHERE e.classid = d.classid AND e.objid = d.objid
                            AND e.refclassid = 'pg_extension'::regclass AND e.deptype = 'e')
    LOOP
        RAISE EXCEPTION 'somebody else made %s while extension "sas" was created', g.name
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Drop it, and try again.';
    END LOOP;
END $$;

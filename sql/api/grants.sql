-- SPDX-License-Identifier: PostgreSQL
--
-- Grants: nothing is granted to PUBLIC, and only superusers can look up anything in schema _sas;
-- sas.grant_usage gives levels.

-- What each level may execute. Whole signatures, because several functions may have the same name, and a
-- new function must not be granted just because of its name. Functions that these call with the rights of
-- their caller are not listed: see _sas.privileges.
INSERT INTO _sas.privilege (part, level, signature)
SELECT g.part, level, regexp_replace(btrim(signature, E'\n '), '[[:space:]]+', ' ', 'g')
FROM (VALUES
    ('verb', 'monitor user operator admin', '
        sas.health()'),
    ('verb', 'user admin', '
        sas.create_workflow(text, jsonb); sas.drop_workflow(text); 
        sas.grant_workflow(text, regrole, int, boolean); sas.revoke_workflow(text, regrole, int);
        sas.subscribe(text, text, jsonb); sas.unsubscribe(text, text);
        sas.distribute_keys(text, regclass, text);
        sas.submit(text, jsonb, text, int, timestamptz, timestamptz, interval, bigint, bigint[], text,
            jsonb, int, text[]);
        sas.submit_batch(text, jsonb[], text[], int, timestamptz, timestamptz, interval, bigint, bigint[],
            text, jsonb, int, text[]);
        sas.signal_token(text, jsonb); sas.read_replies(text, int); sas.create_watcher(text, jsonb);
        sas.schedule(text, text, text, jsonb, text, text, text, interval, interval, timestamptz, timestamptz,
            int, boolean, int, jsonb);
        sas.drop_watcher(text); sas.watch(text, text, jsonb, jsonb, boolean); sas.set_clock(timestamptz);
        sas.move_clock(interval); sas.release_clock();
        sas.stub(text, jsonb, text, text, text, int, int, boolean); sas.unstub(text);
        sas.stub_signal(text, jsonb, interval, int);
        sas.run_inline(text, jsonb, text, interval, jsonb, interval); sas.continue_inline(bigint, interval);
        sas.stubbed_calls(text)'),
    ('verb', 'monitor user operator admin', '
        sas.next_times(text, text, int, timestamptz); sas.now(); sas.follow();
        sas.chunks(bigint, text, bigint)'),
    ('verb', 'user operator admin', '
        sas.validate_workflow(jsonb); sas.signal(bigint, text, jsonb);
        sas.signal_key(text, text, text, jsonb); sas.wait(bigint, interval); sas.pause(bigint);
        sas.pause_runs(bigint[]); sas.resume(bigint); sas.resume_runs(bigint[]);
        sas.retry(bigint, text, boolean); sas.retry_runs(bigint[], text, boolean);
        sas.skip(bigint, text, jsonb); sas.skip_runs(bigint[], text, jsonb);
        sas.force_complete(bigint, text, jsonb); sas.force_complete_runs(bigint[], text, jsonb);
        sas.set_input(bigint, text, jsonb); sas.set_input_runs(bigint[], text, jsonb);
        sas.cancel(bigint, text); sas.cancel_runs(bigint[], text); sas.halt(bigint, text);
        sas.halt_runs(bigint[], text); sas.compensate(bigint, text); sas.compensate_runs(bigint[], text);
        sas.rerun(bigint); sas.rerun_runs(bigint[]); sas.set_priority(bigint, int);
        sas.set_priority_runs(bigint[], int);
        sas.set_start_at(bigint, timestamptz); sas.set_start_at_runs(bigint[], timestamptz);
        sas.set_version(bigint, int); sas.set_version_runs(bigint[], int);
        sas.pause_workflow(text); sas.resume_workflow(text);
        sas.unschedule(text); sas.pause_schedule(text, text); sas.resume_schedule(text);
        sas.trigger_schedule(text); sas.backfill_schedule(text, timestamptz, timestamptz, text);
        sas.unwatch(text, text[], boolean); sas.pause_watch(text, text[]); sas.resume_watch(text, text[])'),
    ('verb', 'operator admin', '
        sas.acknowledge(bigint); sas.acknowledge_alerts(bigint[]); sas.reset_agent(text);
        sas.pause_agent(text); sas.resume_agent(text);
        sas.pause_queue(text); sas.resume_queue(text); sas.rebalance();
        sas.purge(interval, text[], text, int)'),
    ('verb', 'admin', '
        sas.create_queue(text, int, text, int); sas.alter_queue(text, int); sas.drop_queue(text);
        sas.create_agent(text, text, text, jsonb, int, text, interval, jsonb, jsonb, jsonb);
        sas.alter_agent(text, text, text, jsonb, int, text, interval, jsonb, jsonb, jsonb, boolean, text[]);
        sas.drop_agent(text); sas.grant_agent(text, regrole, text[], text[]); sas.revoke_agent(text, regrole);
        sas.set_secret(text, text); sas.set_secret_file(text, text); sas.drop_secret(text);
        sas.worker_restart(); sas.release();
        sas.grant_usage(regrole, text, text); sas.revoke_usage(regrole, text);
        sas.create_middleware(text, text, regprocedure, regprocedure, text, text[], text[], text);
        sas.drop_middleware(text, text); sas.set_alert_hook(regprocedure);
        sas.set_limit(regrole, text, bigint)'),
    ('verb', 'user admin worker', '
        sas.emit(jsonb, uuid)'),
    ('verb', 'admin worker', '
        sas.claim(text, text, int, interval); sas.complete(uuid, jsonb);
        sas.complete_tasks(uuid[], jsonb[]); sas.fail(uuid, text, boolean);
        sas.heartbeat(uuid, float8, jsonb); sas.hand_back(uuid);
        sas.register_node(text, int, text[], text, interval, boolean); sas.claim_watchers(bigint, int);
        sas.heartbeat_node(bigint); sas.append_items(bigint, bigint, jsonb, jsonb);
        sas.fail_watch(bigint, bigint, text); sas.release_watches(bigint, bigint[]); sas.leave_node(bigint)'),
    ('verb', 'monitor operator admin', '
        sas.metrics(text[]); sas.metrics_text(text)'),
    ('builder', 'user admin', '
        sas.workflow(jsonb, jsonb, jsonb, text, text, text, jsonb, interval, regproc, int, text, jsonb,
            regproc, jsonb, boolean, text[]);
        sas.steps(jsonb[]);
        sas.step(text, jsonb, text[], jsonb, text, text[], jsonb, jsonb, interval, jsonb, text, text, text,
            boolean, text, text, text, int, int, jsonb, jsonb, jsonb, regproc, text, int, text, float8);
        sas.call(text, text, text, jsonb, jsonb, jsonb, jsonb, text, interval); sas.task(text, jsonb);
        sas.function(regproc, jsonb); sas.wait_signal(text, interval, text);
        sas.wait_until(text); sas.sleep(interval); sas.child(text, jsonb); sas.include(text, jsonb);
        sas.undo(jsonb, text, text[], jsonb, interval, jsonb, jsonb); sas.fallback(jsonb, text[]);
        sas.poll(jsonb, text, interval, interval, interval, text); sas.repeat(text, int, interval);
        sas.retry_policy(int, interval, interval, text, boolean, text[], interval[]);
        sas.recovery_policy(int, interval, interval, text, boolean, interval[]);
        sas.hook(text, regproc, text, jsonb, text[], jsonb, jsonb, interval, text, text[]);
        sas.sequence("any"); sas.concurrence("any")'),
    ('look', 'monitor user operator admin', '
        sas.find_runs(jsonb, int, bigint);
        sas.explain(); sas.explain(bigint); sas.timeline(bigint, int); sas.graph(bigint, text);
        sas.graph_workflow(text, text); sas.console(bigint); sas.console_schedules();
        sas.console_page(text, jsonb);
        sas.calendar(timestamptz, timestamptz)'),
    -- the planner adds it to queries of sas.runs
    ('look', 'monitor user operator admin', '
        _sas.open_run_ids()'),
    ('level', 'monitor', '
        _sas.level_monitor()'),
    ('level', 'user', '
        _sas.level_user()'),
    ('level', 'operator', '
        _sas.level_operator()'),
    ('level', 'admin', '
        _sas.level_admin()'),
    ('level', 'worker', '
        _sas.level_worker()')
) AS g (part, levels, signatures)
CROSS JOIN LATERAL string_to_table(g.levels, ' ') AS level
CROSS JOIN LATERAL string_to_table(g.signatures, ';') AS signature;

-- _sas.privileges(level): the functions that a level may execute: those of _sas.privilege, and the
-- functions to which their bodies, and those of views, are bound with the rights of their caller.
CREATE FUNCTION _sas.privileges(level text) RETURNS TABLE (part text, function regprocedure)
LANGUAGE sql STABLE AS $$
    WITH RECURSIVE named AS (
        SELECT p.part, p.signature::regprocedure AS function FROM _sas.privilege p WHERE p.level = $1),
    reached AS (
        SELECT 'pg_proc'::regclass::oid AS classid, n.function::oid AS objid FROM named n
        UNION
        -- a level with part "look" reads every view; an outside worker gets what it needs from its claims
        SELECT 'pg_rewrite'::regclass, r.oid FROM pg_rewrite r JOIN pg_class c ON c.oid = r.ev_class
        WHERE c.relnamespace IN ('sas'::regnamespace, '_sas'::regnamespace)
          AND EXISTS (SELECT FROM named n WHERE n.part = 'look')
        UNION
        SELECT d.refclassid, d.refobjid
        FROM reached JOIN pg_depend d ON d.classid = reached.classid AND d.objid = reached.objid
        WHERE d.refclassid = 'pg_proc'::regclass)
    SELECT n.part, n.function FROM named n
    UNION ALL
    SELECT 'called', p.oid
    FROM reached r JOIN pg_proc p ON p.oid = r.objid AND p.pronamespace = '_sas'::regnamespace
    WHERE r.classid = 'pg_proc'::regclass AND p.prorettype <> 'internal'::regtype
      -- a function that is listed for another level is not granted because a body refers to it, as some
      -- refer to levels
      AND p.oid NOT IN (SELECT x.signature::regprocedure FROM _sas.privilege x)
$$;

-- _sas.invoker_columns(): the columns of tables that views read with the rights of their reader, by table.
CREATE FUNCTION _sas.invoker_columns() RETURNS TABLE (name regclass, columns text)
LANGUAGE sql STABLE AS $$
    SELECT a.attrelid::regclass, string_agg(DISTINCT quote_ident(a.attname), ', ')
    FROM pg_class c
    JOIN pg_rewrite r ON r.ev_class = c.oid
    JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
        AND d.refclassid = 'pg_class'::regclass
    JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid AND a.attnum > 0
    JOIN pg_class t ON t.oid = a.attrelid AND t.relnamespace = '_sas'::regnamespace
    WHERE c.relnamespace = 'sas'::regnamespace AND 'security_invoker=true' = ANY (c.reloptions)
    GROUP BY 1
$$;

-- _sas.looking(): the views that every level except worker may read.
CREATE FUNCTION _sas.looking() RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT 'sas.transitions, sas.settings, sas.agents, sas.workers, sas.alerts, sas.workflows, '
           'sas.versions, sas.runs, sas.steps, sas.attempts, sas.history, sas.hook_runs, sas.middlewares, '
           'sas.subscriptions, sas.run_details, sas.schedules, sas.queues, sas.watchers, '
           'sas.watches, sas.nodes, sas.limits, sas.grants, sas.locks, '
           'sas.cluster_runs, sas.cluster_steps, sas.cluster_alerts, sas.cluster_health'
$$;

-- _sas.check_level(level): raises an error if there is no level of that name.
CREATE FUNCTION _sas.check_level(level text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF level IS NULL OR NOT EXISTS (SELECT FROM _sas.privilege p WHERE p.level = $1) THEN
        RAISE EXCEPTION '% is not a level', coalesce('"' || level || '"', 'null')
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /level.',
                HINT = 'The levels are admin, operator, user, monitor and worker.';
    END IF;
END $$;

-- _sas.grant_usage_as(caller, role, level, agent): the body of sas.grant_usage.
-- Writes: worker_grant, level_grant.
CREATE FUNCTION _sas.grant_usage_as(caller oid, role regrole, level text, agent text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    looking text := _sas.looking();
    held boolean := EXISTS (SELECT FROM _sas.levels_of(role) l WHERE l.level = $3 AND NOT l.limited);
    made boolean;
    f regprocedure;
    t record;
BEGIN
    PERFORM _sas.check_level(level);
    PERFORM _sas.check_role(role);
    IF agent IS NOT NULL AND level <> 'worker' THEN
        RAISE EXCEPTION 'level "%" cannot be limited to an agent', level
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /agent.',
                HINT = 'Only level worker can be limited to an agent.';
    ELSIF agent IS NOT NULL THEN
        INSERT INTO _sas.worker_grant AS g (agent_id, role, granted_by, granted_at)
        SELECT a.agent_id, $2, pg_get_userbyid(caller), sas.now()
        FROM _sas.agent a WHERE a.name = agent AND a.dropped_at IS NULL AND a.kind = 'external'
        ON CONFLICT ON CONSTRAINT worker_grant_pkey DO UPDATE SET role = g.role
        RETURNING g.xmax = 0 INTO made;
        IF NOT FOUND THEN
            PERFORM _sas.refuse_missing('external agent', agent, '/agent',
                                        'Create it with sas.create_agent(..., kind => ''external'').');
        END IF;
    ELSE
        INSERT INTO _sas.level_grant AS g VALUES ($2, $3, pg_get_userbyid(caller), sas.now())
        ON CONFLICT ON CONSTRAINT level_grant_pkey DO UPDATE SET role = g.role
        RETURNING g.xmax = 0 OR NOT held INTO made;
    END IF;
    EXECUTE format('GRANT USAGE ON SCHEMA sas TO %s', role);
    IF level <> 'worker' THEN
        EXECUTE format('GRANT SELECT ON %s TO %s', looking, role);
        FOR t IN SELECT * FROM _sas.invoker_columns() LOOP
            EXECUTE format('GRANT SELECT (%s) ON %s TO %s', t.columns, t.name, role);
        END LOOP;
    END IF;
    -- a signature that does not exist raises an error. A worker limited to an agent does not have the level
    -- itself
    FOR f IN SELECT p.function FROM _sas.privileges(level) p WHERE agent IS NULL OR p.part <> 'level' LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', f, role);
    END LOOP;
    PERFORM _sas.record_change(caller, 'grant_usage', jsonb_strip_nulls(
        jsonb_build_object('role', pg_get_userbyid(role), 'level', level, 'agent', agent)))
    WHERE made;
END $$;

CREATE FUNCTION sas.grant_usage(role regrole, level text, agent text DEFAULT NULL) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.grant_usage IS
    'Gives a role a level in this database: admin, operator, user, monitor or worker. A role may have '
    'several levels. Level worker can be limited to one external agent.';

-- _sas.levels_of(for_role): the levels that were given to the role itself; limited: for single agents.
CREATE FUNCTION _sas.levels_of(for_role oid) RETURNS TABLE (level text, limited boolean)
LANGUAGE sql STABLE AS $$
    SELECT substr(p.proname, 7), false FROM pg_proc p
    WHERE p.pronamespace = '_sas'::regnamespace AND p.proname ~ '^level_'
      AND p.proowner <> for_role AND _sas.holds(p.proacl, for_role)
    UNION ALL
    SELECT 'worker', true WHERE EXISTS (SELECT FROM _sas.worker_grant g WHERE g.role = for_role)
$$;

-- _sas.revoke_rights(role, revoked): revokes the privileges of the level, except those that other levels of
-- the role give. revoked null: all privileges in schemas sas and _sas.
CREATE FUNCTION _sas.revoke_rights(role regrole, revoked text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    f regprocedure;
    v regclass;
    kept regprocedure[] := ARRAY(SELECT p.function FROM _sas.levels_of(role) l
                                 CROSS JOIN LATERAL _sas.privileges(l.level) p
                                 WHERE NOT l.limited OR p.part <> 'level');
    looks boolean := EXISTS (SELECT FROM _sas.levels_of(role) l WHERE l.level <> 'worker');
    columns regclass[] := ARRAY(SELECT i.name FROM _sas.invoker_columns() i);
    given regprocedure[] := ARRAY(SELECT p.function FROM _sas.privileges(revoked) p);
BEGIN
    FOR f IN SELECT p.oid FROM pg_proc p
             WHERE p.pronamespace IN ('sas'::regnamespace, '_sas'::regnamespace)
               AND _sas.holds(p.proacl, role) AND p.proowner <> role AND NOT p.oid = ANY (kept)
               AND (revoked IS NULL OR p.oid = ANY (given)) LOOP
        EXECUTE format('REVOKE ALL ON ROUTINE %s FROM %s CASCADE', f, role);
    END LOOP;
    FOR v IN SELECT c.oid FROM pg_class c
             WHERE c.relnamespace IN ('sas'::regnamespace, '_sas'::regnamespace) AND NOT looks
               AND c.relowner <> role
               AND (_sas.holds(c.relacl, role)
                    OR EXISTS (SELECT FROM pg_attribute t WHERE t.attrelid = c.oid
                               AND _sas.holds(t.attacl, role)))
               AND (revoked IS NULL OR c.relkind = 'v' OR c.oid = ANY (columns)) LOOP
        EXECUTE format('REVOKE ALL ON %s FROM %s CASCADE', v, role);
    END LOOP;
    -- a grant of a workflow or agent needs it, see _sas.tie_role; so does everything that the role owns
    IF NOT EXISTS (SELECT FROM _sas.levels_of(role))
       AND NOT EXISTS (SELECT FROM _sas.workflow_grant g WHERE g.role = $1)
       AND NOT EXISTS (SELECT FROM _sas.agent_grant g WHERE g.role = $1)
       AND _sas.owned_by(role) = ''
       AND EXISTS (SELECT FROM pg_namespace n WHERE n.nspname = 'sas' AND n.nspowner <> $1) THEN
        EXECUTE format('REVOKE ALL ON SCHEMA sas FROM %s CASCADE', role);
    END IF;
END $$;

-- _sas.warn_of_code(role): warns if the role is no admin any more, so that functions which it has put around
-- the work of others are not called any more: middleware, without which their runs do not go on, and the
-- hook of alerts.
CREATE FUNCTION _sas.warn_of_code(role regrole) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    left_over text := (SELECT string_agg(DISTINCT x.what, ', ')
                       FROM (SELECT format('middleware "%s"', m.name) AS what FROM _sas.middleware m
                             WHERE m.created_by = $1
                             UNION ALL SELECT 'the hook of alerts' FROM _sas.alert_hook h
                                       WHERE h.owner = $1) x);
BEGIN
    IF left_over IS NOT NULL AND NOT _sas.has_level(role, 'admin') THEN
        RAISE WARNING 'functions of role "%" are no longer called around the work of others',
                pg_get_userbyid(role)
            USING DETAIL = left_over || '.',
                HINT = 'Runs of others wait for the middleware: drop it, or let an admin create it again.';
    END IF;
END $$;

-- _sas.revoke_usage_as(caller, role, level): the body of sas.revoke_usage.
-- Writes: level_grant, worker_grant.
CREATE FUNCTION _sas.revoke_usage_as(caller oid, role regrole, level text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    had text[];
    l text;
BEGIN
    PERFORM _sas.check_level(level) WHERE level IS NOT NULL;
    PERFORM _sas.check_role(role);
    had := ARRAY(SELECT DISTINCT x.level FROM _sas.levels_of(role) x
                 WHERE x.level = $3 OR $3 IS NULL ORDER BY 1);
    DELETE FROM _sas.level_grant g WHERE g.role = $2 AND (g.level = $3 OR $3 IS NULL);
    DELETE FROM _sas.worker_grant g WHERE g.role = $2 AND ($3 = 'worker' OR $3 IS NULL);
    FOREACH l IN ARRAY had LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION _sas.%I() FROM %s CASCADE', 'level_' || l, role);
    END LOOP;
    PERFORM _sas.revoke_rights(role, level);
    IF had <> '{}' THEN
        PERFORM _sas.record_change(caller, 'revoke_usage', jsonb_build_object(
            'role', pg_get_userbyid(role), 'levels', to_jsonb(had)));
        PERFORM _sas.warn_of_code(role) WHERE 'admin' = ANY (had);
    END IF;
END $$;

CREATE FUNCTION sas.revoke_usage(role regrole, level text DEFAULT NULL) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.revoke_usage IS
    'Revokes a level from a role, or all levels. Rights that another of its levels gives are kept.';

-- _sas.reload_watches(for_agent, changed): the rights of this role on the agent have changed: the hosts of
-- its infinite tasks read their requests again.
-- Writes: watcher.
CREATE FUNCTION _sas.reload_watches(for_agent int, changed regrole) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    ids bigint[] := ARRAY(SELECT w.watch_id FROM _sas.watcher d JOIN _sas.watch w USING (watcher_id)
                          WHERE d.lane = for_agent AND w.state = 'processing'
                            AND _sas.may_stand_for(w.owner, changed));
BEGIN
    UPDATE _sas.watcher d SET change = d.change + 1
    WHERE d.watcher_id IN (SELECT w.watcher_id FROM _sas.watch w WHERE w.watch_id = ANY (ids));
    PERFORM _sas.notify_hosts(ids);
    -- a task that is being claimed just now may have read the old grants
    PERFORM _sas.check_watches(ids, '1 s');
END $$;

-- _sas.granted_agent(id, to_role): what this role was granted of the agent, as "from" of an act; null: it has
-- no grant.
CREATE FUNCTION _sas.granted_agent(id int, to_role regrole) RETURNS jsonb
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT jsonb_build_object('from', jsonb_build_object('methods', g.methods, 'paths', g.paths))
            FROM _sas.agent_grant g WHERE g.agent_id = id AND g.role = to_role);
END $$;

-- _sas.grant_agent_as(caller, agent, role, methods, paths): the body of sas.grant_agent.
-- Writes: agent_grant.
CREATE FUNCTION _sas.grant_agent_as(caller oid, agent text, role regrole, methods text[], paths text[])
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    a _sas.agent := _sas.live_agent(agent, '/agent');
    old jsonb := _sas.granted_agent(a.agent_id, role);
BEGIN
    PERFORM _sas.check_role(role);
    PERFORM _sas.raise(wrong) FROM _sas.check_granted(a, methods, paths) wrong;
    INSERT INTO _sas.agent_grant AS g (agent_id, role, methods, paths, granted_by, granted_at)
    VALUES (a.agent_id, $3, $4, $5, pg_get_userbyid(caller), sas.now())
    ON CONFLICT ON CONSTRAINT agent_grant_pkey DO UPDATE
    SET methods = EXCLUDED.methods, paths = EXCLUDED.paths, granted_by = EXCLUDED.granted_by,
        granted_at = EXCLUDED.granted_at
    WHERE (g.methods, g.paths) IS DISTINCT FROM (EXCLUDED.methods, EXCLUDED.paths);
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM _sas.tie_role(role);
    PERFORM _sas.reload_watches(a.agent_id, role);
    PERFORM _sas.announce_agents();
    PERFORM _sas.record_change(caller, 'grant_agent', jsonb_strip_nulls(
        jsonb_build_object('agent', a.name, 'role', pg_get_userbyid(role), 'methods', methods,
                           'paths', paths)) || coalesce(old, '{}'));
END $$;

CREATE FUNCTION sas.grant_agent(agent text, role regrole, methods text[] DEFAULT NULL,
                                paths text[] DEFAULT NULL) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.grant_agent IS
    'Allows workflows, runs and watchers of a role to use an agent: with these methods, and with paths that '
    'begin with one of these; null: all. Superusers and admins need no grant. Replaces an earlier grant.';

-- _sas.revoke_agent_as(caller, agent, role): the body of sas.revoke_agent.
-- Writes: agent_grant.
CREATE FUNCTION _sas.revoke_agent_as(caller oid, agent text, role regrole) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    a _sas.agent := _sas.live_agent(agent, '/agent');
    old jsonb := _sas.granted_agent(a.agent_id, role);
BEGIN
    PERFORM _sas.check_role(role);
    DELETE FROM _sas.agent_grant g WHERE g.agent_id = a.agent_id AND g.role = $3;
    IF FOUND THEN
        PERFORM _sas.reload_watches(a.agent_id, role);
        PERFORM _sas.announce_agents();
        PERFORM _sas.record_change(caller, 'revoke_agent', jsonb_build_object(
            'agent', a.name, 'role', pg_get_userbyid(role)) || coalesce(old, '{}'));
    END IF;
END $$;

CREATE FUNCTION sas.revoke_agent(agent text, role regrole) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.revoke_agent IS
    'Revokes a grant of sas.grant_agent. Undos, polls and the settling of steps that have begun go on.';

-- _sas.keep_out(): refuses other extensions in the schemas of sas. A role that may create in the database can
-- put a trusted extension into any schema. Its functions would be in the way of those of sas, and it would
-- prevent the next update, and DROP EXTENSION sas.
CREATE FUNCTION _sas.keep_out() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    e record;
BEGIN
    SELECT x.extname, n.nspname INTO e
    FROM pg_event_trigger_ddl_commands() c
    JOIN pg_extension x ON c.classid = 'pg_extension'::regclass AND x.oid = c.objid
    JOIN pg_namespace n ON n.oid = x.extnamespace
    WHERE n.nspname IN ('sas', '_sas');
    IF FOUND THEN
        RAISE EXCEPTION 'extension "%" cannot be in schema "%"', e.extname, e.nspname
            USING ERRCODE = 'reserved_name', DETAIL = 'The schema belongs to extension "sas".',
                HINT = 'Name another schema.';
    END IF;
END $$;

CREATE EVENT TRIGGER sas_keep_out ON ddl_command_end WHEN TAG IN ('CREATE EXTENSION')
EXECUTE FUNCTION _sas.keep_out();
-- whatever session_replication_role is
ALTER EVENT TRIGGER sas_keep_out ENABLE ALWAYS;

-- Only the owner has any privilege now, whatever default privileges say: those of the installing role could
-- open secrets and internal functions to other roles. Everything in the schemas must belong to the
-- extension; another role may have created an object there meanwhile.
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
        RAISE EXCEPTION 'another session created %s while extension "sas" was created', g.name
            USING ERRCODE = 'object_not_in_prerequisite_state',
                DETAIL = 'It is in a schema of the extension, and no member of it.',
                HINT = 'Drop it, and try again.';
    END LOOP;
END $$;

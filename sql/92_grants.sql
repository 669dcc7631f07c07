-- SPDX-License-Identifier: PostgreSQL
--
-- Grants: nothing to PUBLIC; sas.grant_usage gives levels.

CREATE FUNCTION sas._grant_usage(caller oid, role regrole, level text, agent text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, sas, pg_temp AS $$
DECLARE
    looking text := 'sas.transitions, sas.settings, sas.agents, sas.workers, sas.alerts, sas.workflows, sas.runs, sas.steps, sas.attempts, sas.history, sas.hook_runs, sas.middlewares, sas.subscriptions, sas.run_details, sas.queues, sas.watchers, sas.watches, sas.nodes';
    verbs text[];
    f regprocedure;
BEGIN
    verbs := CASE level
        WHEN 'monitor' THEN '{health,metrics,metrics_text}'
        WHEN 'user' THEN '{health,create_workflow,validate_workflow,drop_workflow,grant_workflow,revoke_workflow,subscribe,unsubscribe,submit,_submit_plain,submit_batch,signal,signal_token,wait,read_replies,pause,resume,retry,skip,force_complete,set_input,cancel,halt,compensate,rerun,set_priority,pause_workflow,resume_workflow,create_watcher,drop_watcher,watch,unwatch,pause_watch,resume_watch,set_clock,move_clock,release_clock,stub,unstub,stub_signal,run_inline,continue_inline,stubbed_calls}'
        WHEN 'operator' THEN '{health,validate_workflow,wait,signal,pause,resume,retry,skip,force_complete,set_input,cancel,halt,compensate,rerun,set_priority,acknowledge,reset_agent,pause_workflow,resume_workflow,pause_queue,resume_queue,unwatch,pause_watch,resume_watch,rebalance,metrics,metrics_text,purge}'
        WHEN 'admin' THEN '{health,create_workflow,validate_workflow,drop_workflow,grant_workflow,revoke_workflow,subscribe,unsubscribe,submit,_submit_plain,submit_batch,signal,signal_token,wait,read_replies,pause,resume,retry,skip,force_complete,set_input,cancel,halt,compensate,rerun,set_priority,acknowledge,reset_agent,pause_workflow,resume_workflow,pause_queue,resume_queue,create_queue,alter_queue,drop_queue,create_agent,alter_agent,drop_agent,set_secret,drop_secret,worker_restart,grant_usage,create_middleware,drop_middleware,claim,complete,fail,heartbeat,hand_back,create_watcher,drop_watcher,watch,unwatch,pause_watch,resume_watch,rebalance,register_node,claim_watchers,heartbeat_node,append_items,fail_watch,release_watches,leave_node,set_clock,move_clock,release_clock,stub,unstub,stub_signal,run_inline,continue_inline,stubbed_calls,metrics,metrics_text,purge,set_alert_hook}'
        WHEN 'worker' THEN '{claim,complete,fail,heartbeat,hand_back,register_node,claim_watchers,heartbeat_node,append_items,fail_watch,release_watches,leave_node}'
        END::text[];
    IF verbs IS NULL THEN
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
    -- what the views call is checked as the role that looks
    FOR f IN SELECT p.oid FROM pg_proc p
             WHERE p.pronamespace = 'sas'::regnamespace
               AND (p.proname = ANY (verbs) OR level IN ('user', 'admin') AND p.proname = ANY (sas._builder())
                    OR level <> 'worker' AND p.proname = ANY (sas._looking())
                    OR level <> 'worker' AND p.proname IN ('_sees_all', '_sees_payload', '_step_key', '_step_input', '_starts_after', '_suggests', '_through_middleware', '_before_call', '_after_call', '_go_in', '_go_out', '_call_local', '_answer_of', '_places', '_doors', '_complete_in', '_shown_name', '_workers', '_now', '_level_' || level)
                    OR level = 'worker' AND agent IS NULL AND p.proname = '_level_worker')
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', f, role);
    END LOOP;
END $$;

CREATE FUNCTION sas.grant_usage(role regrole, level text, agent text DEFAULT NULL) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.grant_usage IS 'Gives a role a level in this database: admin, operator, user, monitor or worker. A role may have several. Level worker can be limited to one external agent.';

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA sas FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA sas FROM PUBLIC;
REVOKE ALL ON SCHEMA sas FROM PUBLIC;
DO $$
DECLARE
    t regtype;
BEGIN
    FOR t IN SELECT y.oid FROM pg_type y WHERE y.typnamespace = 'sas'::regnamespace AND y.typtype = 'c' AND y.typrelid IN (SELECT c.oid FROM pg_class c WHERE c.relkind = 'c') LOOP
        EXECUTE format('REVOKE ALL ON TYPE %s FROM PUBLIC', t);
    END LOOP;
END $$;

-- SPDX-License-Identifier: PostgreSQL
--
-- Grants: nothing to PUBLIC; sas.grant_usage gives levels.

CREATE FUNCTION sas._grant_usage(caller oid, role regrole, level text, agent text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, sas, pg_temp AS $$
DECLARE
    looking text := 'sas.transitions, sas.settings, sas.agents, sas.workers, sas.alerts, sas.workflows, sas.runs, sas.steps, sas.attempts, sas.history, sas.run_details, sas.queues';
    verbs text[];
    f regprocedure;
BEGIN
    IF agent IS NOT NULL OR level = 'worker' THEN
        RAISE EXCEPTION 'outside agents are not supported in this release' USING ERRCODE = 'feature_not_supported';
    END IF;
    verbs := CASE level
        WHEN 'monitor' THEN '{health}'
        WHEN 'user' THEN '{health,create_workflow,validate_workflow,drop_workflow,grant_workflow,revoke_workflow,submit,submit_batch,wait,read_replies,pause,resume,retry,cancel,pause_workflow,resume_workflow}'
        WHEN 'operator' THEN '{health,validate_workflow,wait,pause,resume,retry,cancel,acknowledge,reset_agent,pause_workflow,resume_workflow,pause_queue,resume_queue}'
        WHEN 'admin' THEN '{health,create_workflow,validate_workflow,drop_workflow,grant_workflow,revoke_workflow,submit,submit_batch,wait,read_replies,pause,resume,retry,cancel,acknowledge,reset_agent,pause_workflow,resume_workflow,pause_queue,resume_queue,create_queue,alter_queue,drop_queue,create_agent,alter_agent,drop_agent,set_secret,drop_secret,worker_restart,grant_usage}'
        END::text[];
    IF verbs IS NULL THEN
        RAISE EXCEPTION '"%" is not a level', level USING ERRCODE = 'invalid_parameter_value', HINT = 'The levels are admin, operator, user and monitor.';
    END IF;
    EXECUTE format('GRANT USAGE ON SCHEMA sas TO %s', role);
    EXECUTE format('GRANT SELECT ON %s TO %s', looking, role);
    -- what the views call is checked as the role that looks
    FOR f IN SELECT p.oid FROM pg_proc p
             WHERE p.pronamespace = 'sas'::regnamespace
               AND (p.proname = ANY (verbs) OR p.proname IN ('_sees_all', '_sees_payload', '_step_key', '_step_input', '_starts_after', '_places', '_workers', '_now', '_level_' || level))
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', f, role);
    END LOOP;
END $$;

CREATE FUNCTION sas.grant_usage(role regrole, level text, agent text DEFAULT NULL) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.grant_usage IS 'Gives a role a level in this database: admin, operator, user or monitor. A role may have several.';

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

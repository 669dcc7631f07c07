-- SPDX-License-Identifier: PostgreSQL
--
-- Tables: what holds for all of them, and the dump: pg_dump includes the rows of these tables; _sas.secret
-- and _sas.former_secret are left out. The leases in a dump belong to workers that do not exist where it is
-- restored, so their steps are taken back at once; leases of outside programs hold until their time is over.

-- In a cluster with a publication of all tables, rows cannot be deleted from a table without a replica
-- identity. Without a publication this costs nothing.
DO $$
DECLARE
    t regclass;
BEGIN
    FOR t IN SELECT c.oid FROM pg_catalog.pg_class c
             WHERE c.relnamespace = '_sas'::regnamespace AND c.relkind = 'r'
                 AND NOT EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid
                                 AND i.indisprimary) LOOP
        EXECUTE format('ALTER TABLE %s REPLICA IDENTITY FULL', t);
    END LOOP;
END $$;

-- Roles that may read or write all data (pg_read_all_data, pg_write_all_data) have a right on every table,
-- but no policy lets them pass: they would read secrets, and write what runs with the rights of others. The
-- owner and superusers bypass it, and so do definer functions and workers.
DO $$
DECLARE
    t regclass;
BEGIN
    FOR t IN SELECT c.oid FROM pg_catalog.pg_class c
             WHERE c.relnamespace = '_sas'::regnamespace AND c.relkind = 'r' AND NOT c.relrowsecurity LOOP
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', t);
    END LOOP;
END $$;

-- Grants of roles that no longer exist are left out, because their oids may belong to other roles
-- where the dump is restored.
DO $$
DECLARE
    t text;
BEGIN
    FOREACH t IN ARRAY '{agent_grant,level_grant,worker_grant,workflow_grant}'::text[] LOOP
        PERFORM pg_catalog.pg_extension_config_dump(
            ('_sas.' || t)::regclass, 'WHERE role::oid IN (SELECT oid FROM pg_catalog.pg_roles)');
    END LOOP;
END $$;

DO $$
DECLARE
    t text;
BEGIN
    FOREACH t IN ARRAY '{agent,agent_health,external_slot,workflow,'
                       'workflow_version,workflow_step,workflow_edge,workflow_hook,middleware,'
                       'subscription,composition,run,run_key,run_label,run_dependency,concurrency_slot,'
                       'concurrency_key,chunk,deferred_run,queue,queue_slot,queue_user,parked_step,freed_key,'
                       'step,override,ready,lease,answer,'
                       'message,item,map_key,map_list,map_progress,phase,undo_order,abandoned_run,signal,'
                       'token_key,planned,'
                       'attempt,task,operator_action,alert,alert_run,reply,watcher,watch,watch_ended,'
                       'watch_flow,'
                       'watch_done,watch_batch,watch_work,watch_wait,node,watch_held,watch_note,'
                       'watch_check,stub,stub_signal,stubbed_call,stub_flight,finished_run,purged_run,'
                       'alert_hook,idle_version,role_limit,deferred_work,schedule,schedule_plan}'::text[] LOOP
        PERFORM pg_catalog.pg_extension_config_dump(('_sas.' || t)::regclass, '');
    END LOOP;
    FOREACH t IN ARRAY '{agent_agent_id_seq,workflow_workflow_id_seq,workflow_version_version_id_seq,'
                       'middleware_middleware_id_seq,run_run_id_seq,lease_lease_id_seq,alert_alert_id_seq,'
                       'reply_reply_id_seq,signal_signal_id_seq,chunk_chunk_id_seq,completion_seq,'
                       'queue_queue_id_seq,watcher_watcher_id_seq,watch_watch_id_seq,node_node_id_seq,'
                       'watch_batch_seq,stub_stub_id_seq,stub_signal_stub_signal_id_seq,'
                       'stubbed_call_call_no_seq,schedule_schedule_id_seq}'::text[] LOOP
        PERFORM pg_catalog.pg_extension_config_dump(('_sas.' || t)::regclass, '');
    END LOOP;
END $$;

-- A dump includes the place of the data if it has work that continues on its own; restored in another place
-- it is a copy (sql/base/place.sql). A dump of definitions only is at home wherever it is restored.
SELECT pg_catalog.pg_extension_config_dump('_sas.home', $$
    WHERE EXISTS (SELECT FROM _sas.run r WHERE r.state <> 'stopped')
        OR EXISTS (SELECT FROM _sas.watch w WHERE w.state <> 'deleted')
        OR EXISTS (SELECT FROM _sas.schedule s WHERE s.state = 'active' AND NOT s.copy)$$);

-- without workers everything can be defined and submitted, so nothing else would report this
DO LANGUAGE plpgsql $$
BEGIN
    IF NOT (SELECT l.loaded FROM _sas.launcher_state() l) THEN
        RAISE WARNING 'no worker of sas can start: library "sas" is not preloaded'
            USING DETAIL = 'Runs are accepted, and nothing carries them out.',
                HINT = 'Add sas to shared_preload_libraries in postgresql.conf, and restart the server.';
    END IF;
END $$;

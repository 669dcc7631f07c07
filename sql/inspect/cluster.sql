-- SPDX-License-Identifier: PostgreSQL
--
-- Cluster: views over all nodes, beside those of one. Each node shows what the role sees there. Alone, they
-- show this server. A node that does not answer fails a query of them, but not of sas.cluster_health.

-- _sas.cluster_handler(): the handler of the foreign tables that read a view of all nodes
-- (src/api/cluster_scan.c).
CREATE FUNCTION _sas.cluster_handler() RETURNS fdw_handler
LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sas_api_cluster_handler';

-- No role but a superuser may use it: it asks the nodes as the role that reads, whoever owns the table.
CREATE FOREIGN DATA WRAPPER sas_cluster HANDLER _sas.cluster_handler;
CREATE SERVER sas_cluster FOREIGN DATA WRAPPER sas_cluster;

-- the columns of the view of one node, after the node
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY '{runs,steps,alerts}'::text[] LOOP
        EXECUTE (SELECT format('CREATE FOREIGN TABLE _sas.%I (node_id int, %s) SERVER sas_cluster '
                               'OPTIONS (view %L)', 'cluster_' || name,
                               string_agg(format('%I %s', a.attname, format_type(a.atttypid, a.atttypmod)),
                                          ', ' ORDER BY a.attnum), name)
                 FROM pg_attribute a
                 WHERE a.attrelid = format('sas.%I', name)::regclass AND a.attnum > 0
                     AND NOT a.attisdropped);
    END LOOP;
END $$;

CREATE VIEW sas.cluster_runs AS SELECT * FROM _sas.cluster_runs;
COMMENT ON VIEW sas.cluster_runs IS
    'sas.runs of all nodes of a Citus cluster, with the node. A node that does not answer is an error.';

CREATE VIEW sas.cluster_steps AS SELECT * FROM _sas.cluster_steps;
COMMENT ON VIEW sas.cluster_steps IS
    'sas.steps of all nodes of a Citus cluster, with the node. A node that does not answer is an error.';

CREATE VIEW sas.cluster_alerts AS SELECT * FROM _sas.cluster_alerts;
COMMENT ON VIEW sas.cluster_alerts IS
    'sas.alerts of all nodes of a Citus cluster, with the node. A node that does not answer is an error.';

-- _sas.other_health(): sas.health() of the other nodes. If one does not answer, answer says why.
CREATE FUNCTION _sas.other_health() RETURNS TABLE (node_id int, answers boolean, answer text)
LANGUAGE C VOLATILE AS 'MODULE_PATHNAME', 'sas_api_cluster_health';

CREATE VIEW sas.cluster_health AS
SELECT n.node_id, n.answers, n.problem, h.workers_loaded, h.launcher_pid, h.workers, h.slots_missing,
       h.leader_pid, h.held_by, h.runs_open, h.runs_paused, h.steps_ready, h.oldest_ready_at,
       h.breakers_open, h.alerts_open, h.found_late, h.in_recovery, h.quarantined, h.version, h.problems,
       coalesce(h.ok, false) AS ok
FROM (SELECT (_sas.id_base() >> _sas.node_shift())::int AS node_id, true AS answers, NULL::text AS problem,
          to_jsonb(l) AS health FROM sas.health() l
      UNION ALL
      SELECT o.node_id, o.answers, CASE WHEN NOT o.answers THEN o.answer END,
          CASE WHEN o.answers THEN o.answer::jsonb END FROM _sas.other_health() o) n
LEFT JOIN LATERAL jsonb_to_record(n.health)
    AS h (workers_loaded boolean, launcher_pid int, workers int, slots_missing int, leader_pid int,
          held_by text, runs_open bigint, runs_paused bigint, steps_ready bigint, oldest_ready_at timestamptz,
          breakers_open bigint, alerts_open bigint, found_late bigint, in_recovery boolean,
          quarantined boolean, version text, problems text[], ok boolean) ON n.health IS NOT NULL;
COMMENT ON VIEW sas.cluster_health IS
    'sas.health() of all nodes of a Citus cluster. problem says why a node does not answer.';

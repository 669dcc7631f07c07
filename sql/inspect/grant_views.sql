-- SPDX-License-Identifier: PostgreSQL
--
-- The view of grants: levels, as the privileges on the functions _sas.level_<level> give them, and grants
-- of workflows and agents.

CREATE VIEW sas.grants WITH (security_barrier) AS
SELECT pg_get_userbyid(g.role) AS role, g.kind, g.name, g.granted_by, g.granted_at, g.methods, g.paths,
    g.version, g.future
FROM (SELECT x.grantee AS role, 'level' AS kind, substr(p.proname, 7) AS name, l.granted_by, l.granted_at,
          NULL::text[] AS methods, NULL::text[] AS paths, NULL::int AS version, NULL::boolean AS future
      FROM pg_namespace n
      JOIN pg_proc p ON p.pronamespace = n.oid
      CROSS JOIN LATERAL aclexplode(p.proacl) x
      LEFT JOIN _sas.level_grant l ON l.role = x.grantee AND l.level = substr(p.proname, 7)
      WHERE n.nspname = '_sas' AND p.proname ~ '^level_' AND x.grantee <> p.proowner
      UNION ALL
      SELECT w.role, 'worker' AS kind, a.name, w.granted_by, w.granted_at, NULL AS methods, NULL AS paths,
          NULL AS version, NULL AS future
      FROM _sas.worker_grant w JOIN _sas.agent a USING (agent_id) WHERE a.dropped_at IS NULL
      UNION ALL
      SELECT w.role, 'agent' AS kind, a.name, w.granted_by, w.granted_at, w.methods, w.paths,
          NULL AS version, NULL AS future
      FROM _sas.agent_grant w JOIN _sas.agent a USING (agent_id) WHERE a.dropped_at IS NULL
      UNION ALL
      SELECT w.role, 'workflow' AS kind, f.name, w.granted_by, w.granted_at, NULL AS methods, NULL AS paths,
          w.version, w.future
      FROM _sas.workflow_grant w JOIN _sas.workflow f USING (workflow_id) WHERE f.dropped_at IS NULL) g
WHERE EXISTS (SELECT FROM pg_roles r WHERE r.oid = g.role)
  AND ((SELECT _sas.sees_all()) OR _sas.stands_for(g.role));
COMMENT ON VIEW sas.grants IS
    'Which role may do what. kind is level, worker (level worker for one external agent), agent (its runs '
    'may use an agent: these methods and paths, null: all) or workflow (this version; future: and later '
    'ones); name says which. granted_by and granted_at, if they are known.';

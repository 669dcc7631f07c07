-- SPDX-License-Identifier: PostgreSQL
--
-- Views of definitions: workflows, watchers and what belongs to them, settings, legal changes of state.

CREATE VIEW sas.workflows WITH (security_barrier) AS
SELECT w.name AS workflow, w.version, pg_get_userbyid(w.owner) AS owner, v.step_count AS steps, v.definition,
    w.created_at, v.created_at AS version_created_at, w.paused_at, w.keys_follow, w.key_separator
FROM _sas.workflow w JOIN _sas.workflow_version v ON v.workflow_id = w.workflow_id AND v.version = w.version
WHERE w.dropped_at IS NULL
  AND (_sas.stands_for(w.owner) OR (SELECT _sas.sees_all())
       OR EXISTS (SELECT FROM _sas.workflow_grant g WHERE g.workflow_id = w.workflow_id
                  AND _sas.stands_for(g.role)));
COMMENT ON VIEW sas.workflows IS
    'Workflows with their current version: the role''s own workflows and those granted to it; operators see '
    'all.';
COMMENT ON COLUMN sas.workflows.keys_follow IS
    'The distributed table of a Citus cluster that the keys of its runs follow: see sas.distribute_keys()';
COMMENT ON COLUMN sas.workflows.key_separator IS
    'The distribution column has the part of a key before it; null: the whole key';

CREATE VIEW sas.versions WITH (security_barrier) AS
SELECT w.name AS workflow, v.version, v.definition, pg_get_userbyid(v.created_by) AS created_by, v.created_at,
       coalesce(o.runs, 0) AS open_runs
FROM _sas.workflow w
JOIN _sas.workflow_version v USING (workflow_id)
LEFT JOIN (SELECT g.workflow_id, g.version, sum(g.runs)::bigint AS runs FROM _sas.open_groups() g
           GROUP BY 1, 2) o ON o.workflow_id = v.workflow_id AND o.version = v.version
WHERE w.dropped_at IS NULL AND v.of_version IS NULL
  AND (_sas.stands_for(w.owner) OR (SELECT _sas.sees_all())
       OR EXISTS (SELECT FROM _sas.workflow_grant g WHERE g.workflow_id = w.workflow_id
                  AND _sas.stands_for(g.role)));
COMMENT ON VIEW sas.versions IS
    'All versions of the workflows in sas.workflows, with the number of their open runs that the role may '
    'see.';

CREATE VIEW sas.watchers WITH (security_barrier) AS
SELECT d.name AS watcher, d.kind, a.name AS agent, pg_get_userbyid(d.owner) AS owner, d.definition,
       (SELECT count(*) FROM _sas.watch w WHERE w.watcher_id = d.watcher_id
        AND w.state <> 'deleted') AS watches, d.created_at, d.changed_at
FROM _sas.watcher d LEFT JOIN _sas.agent a ON a.agent_id = d.lane
WHERE _sas.stands_for(d.owner) OR (SELECT _sas.sees_all());
COMMENT ON VIEW sas.watchers IS 'Definitions of infinite tasks, and how many tasks of each there are.';

-- WITH: see sas.queues.
CREATE VIEW sas.transitions AS
WITH t AS (SELECT x.* FROM _sas.transition x)
SELECT t.subject, t.from_state, t.to_state, t.comment FROM t;
COMMENT ON VIEW sas.transitions IS
    'Which state may follow which, for runs, steps and infinite tasks, and why.';

CREATE VIEW sas.subscriptions WITH (security_barrier) AS
SELECT w.name AS workflow, t.name AS to_workflow, s.input, pg_get_userbyid(s.created_by) AS created_by,
    s.created_at
FROM _sas.subscription s JOIN _sas.workflow w ON w.workflow_id = s.workflow_id
JOIN _sas.workflow t ON t.workflow_id = s.to_workflow_id
WHERE _sas.stands_for(t.owner) OR (SELECT _sas.sees_all());
COMMENT ON VIEW sas.subscriptions IS 'Which workflow is planned along with which.';

-- The barrier keeps the names of other workflows, which are in the statistics, from operators of the reader.
CREATE VIEW sas.middlewares WITH (security_barrier) AS
SELECT m.phase, m.place, m.name, w.name AS workflow, m.before_function AS before, m.after_function AS after,
    m.goes_before, m.goes_after, m.replaces, pg_get_userbyid(m.created_by) AS created_by, m.created_at
FROM _sas.middleware m LEFT JOIN _sas.workflow w USING (workflow_id);
COMMENT ON VIEW sas.middlewares IS
    'Functions around the phases of runs. place 1 is the outermost of its phase.';

CREATE VIEW sas.settings AS
SELECT s.name, s.setting, s.unit, s.boot_val AS default_setting,
       CASE s.context WHEN 'postmaster' THEN 'at restart' WHEN 'sighup' THEN 'at reload'
       WHEN 'superuser' THEN 'at once, for superusers' WHEN 'internal' THEN 'never' ELSE 'at once' END
           AS takes_effect,
       s.pending_restart, s.short_desc AS description
FROM pg_settings s WHERE s.name LIKE 'sas.%' ORDER BY s.name;
COMMENT ON VIEW sas.settings IS 'The settings of sas by name, as this session sees them.';
COMMENT ON COLUMN sas.settings.default_setting IS 'The value if nothing is set, in the same unit';
COMMENT ON COLUMN sas.settings.takes_effect IS
    'When a change takes effect: at restart or at reload of the server, or at once by SET; never: it is '
    'read-only';
COMMENT ON COLUMN sas.settings.pending_restart IS
    'It was changed in the configuration, and the server was not restarted since';

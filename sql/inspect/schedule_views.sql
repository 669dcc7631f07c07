-- SPDX-License-Identifier: PostgreSQL
--
-- View of schedules, and the calendar. They show each role its own schedules and those of the roles that it
-- is a member of. Operators, admins and monitors see all, monitors without input.

CREATE VIEW sas.schedules WITH (security_barrier) AS
SELECT s.name, s.spec, s.timezone, s.workflow, pg_get_userbyid(s.owner) AS owner, s.state,
    s.due_at AS next_run_at, s.last_run_at, s.last_run_id, l.result AS last_result,
    (SELECT count(*)::int FROM unnest(s.open_run_ids) AS o (id) JOIN _sas.run r ON r.run_id = o.id
     WHERE r.state <> 'stopped') AS open_runs,
    s.runs, s.missed, s.skipped, s.overlap, s.catch_up,
    CASE WHEN p.sees THEN s.paused_reason END AS paused_reason,
    CASE WHEN p.sees AND NOT _sas.hides(m.mask, s.owner) THEN s.error
         ELSE _sas.public_error(s.error) END AS error, s.failures,
    s.catch_up_window, s.jitter, s.start_at, s.end_at, s.max_runs, s.pause_on_failure, s.priority,
    CASE WHEN p.sees AND _sas.hides(m.mask, s.owner) THEN _sas.masked(s.input, m.mask, '{input}')
         WHEN p.sees THEN s.input END AS input, s.labels, s.last_scheduled_at, s.created_at, s.schedule_id,
    CASE WHEN s.copy THEN 'coordinator' ELSE 'here' END AS fires_on
FROM _sas.schedule s
LEFT JOIN _sas.run l ON l.run_id = s.last_run_id
CROSS JOIN LATERAL (SELECT _sas.sees_payload(s.owner) AS sees OFFSET 0) p
-- the masks of the current version and of those that were granted to the owner: its runs have one of these
CROSS JOIN LATERAL (SELECT array_agg(k.path) AS mask
                    FROM _sas.workflow f
                    JOIN _sas.workflow_version v ON v.workflow_id = f.workflow_id AND v.of_version IS NULL
                    CROSS JOIN LATERAL unnest(v.mask) AS k (path)
                    WHERE f.name = s.workflow AND f.dropped_at IS NULL
                      AND (v.version = f.version
                           OR EXISTS (SELECT FROM _sas.workflow_grant g
                                      WHERE g.workflow_id = f.workflow_id
                                        AND (g.version = v.version OR g.future AND g.version < v.version)
                                        AND _sas.may_stand_for(s.owner, g.role))) OFFSET 0) m
WHERE p.sees OR (SELECT _sas.sees_all());
COMMENT ON VIEW sas.schedules IS 'One row per schedule: when it runs next, and how its last runs ended.';
COMMENT ON COLUMN sas.schedules.state IS
    'active, paused, finished (it has no further instant) or failed (ten instants in a row could not be '
    'submitted)';
COMMENT ON COLUMN sas.schedules.next_run_at IS 'Its next instant plus its jitter; null: never, or not now';
COMMENT ON COLUMN sas.schedules.open_runs IS 'Its runs that have not stopped, among its last thousand';
COMMENT ON COLUMN sas.schedules.runs IS 'How many runs its clock has submitted';
COMMENT ON COLUMN sas.schedules.missed IS
    'Instants that were not submitted, because a later one was due or they were too old';
COMMENT ON COLUMN sas.schedules.skipped IS
    'Instants that the overlap rule has skipped, or that the workflow has refused';
COMMENT ON COLUMN sas.schedules.error IS 'Why its last instant could not be submitted';
COMMENT ON COLUMN sas.schedules.fires_on IS
    'here; or coordinator: this is the copy of another node of a Citus cluster. A copy submits no run. Its '
    'state says whether it was paused; all else about its runs is on the coordinator';

CREATE FUNCTION sas.calendar(from_at timestamptz DEFAULT NULL, to_at timestamptz DEFAULT NULL)
RETURNS TABLE (run_at timestamptz, scheduled_at timestamptz, schedule text, workflow text, owner text)
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.calendar IS
    'When the schedules run between from_at (null: now) and to_at (null: in a day), in order; at most 10000 '
    'rows.';

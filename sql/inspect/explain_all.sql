-- SPDX-License-Identifier: PostgreSQL
--
-- Explain all: what the open runs wait for, by cause. It reads the views as the current user. Very many runs
-- wait in few different ways, so of those that wait alike it reads some.

CREATE FUNCTION sas.explain() RETURNS TABLE (waiting_kind text, waiting_on text, runs bigint, steps bigint,
                                             since timestamptz, until timestamptz, text text)
LANGUAGE sql STABLE SET jit = off
BEGIN ATOMIC
    WITH alike AS MATERIALIZED (SELECT a.* FROM _sas.runs_alike() a),
    -- fifty of the runs that wait alike are read, each of which stands for several
    chosen AS MATERIALIZED (SELECT u.run_id, a.runs::float8 / cardinality(a.run_ids) AS stands_for
                            FROM alike a CROSS JOIN LATERAL unnest(a.run_ids) AS u (run_id)),
    large AS MATERIALIZED (SELECT coalesce(array_agg(a.run_ids[1]), '{}') AS run_ids FROM alike a
                           WHERE a.large),
    step AS (
        SELECT s.run_id, s.waiting_kind, s.waiting_on, s.waiting_since, s.waiting_until, 1::float8 AS weight
        FROM sas.steps s
        WHERE s.run_id = ANY (ARRAY(SELECT c.run_id FROM chosen c)) AND s.run_state <> 'stopped'
            AND s.waiting_kind <> 'steps'
            AND (s.element IS NULL OR s.run_id <> ALL ((SELECT l.run_ids FROM large l)::bigint[]))
        UNION ALL
        -- and fifty of many elements that do
        SELECT e.run_id, e.waiting_kind, e.waiting_on, e.waiting_since, e.waiting_until,
               g.n::float8 / cardinality(g.elements)
        FROM large l CROSS JOIN LATERAL _sas.element_groups(l.run_ids) g
        -- OFFSET 0: without it the planner may compare the elements of all runs with each other
        CROSS JOIN LATERAL (
            SELECT s.run_id, s.waiting_kind, s.waiting_on, s.waiting_since, s.waiting_until FROM sas.steps s
            WHERE s.run_id = g.run_id AND s.step = g.step AND s.element = ANY (g.elements)
                AND s.run_state <> 'stopped' AND s.waiting_kind <> 'steps' OFFSET 0) e)
    SELECT g.waiting_kind, g.waiting_on, g.runs, g.steps, g.since, g.until,
           _sas.quantity(g.runs, 'run waits: ', 'runs wait: ')
           || _sas.cause(g.waiting_kind, g.waiting_on, _sas.instant(g.until, n.now)) || n.quarantine
    FROM (SELECT r.waiting_kind, r.waiting_on, round(sum(c.stands_for))::bigint AS runs,
                 round(sum(c.stands_for * r.weight))::bigint AS steps,
                 min(r.since) AS since, min(r.until) AS until
          FROM (SELECT s.run_id, s.waiting_kind, s.waiting_on, sum(s.weight) AS weight,
                       min(s.waiting_since) AS since, min(s.waiting_until) AS until
                FROM step s GROUP BY 1, 2, 3) r
          JOIN chosen c USING (run_id) GROUP BY 1, 2) g
    CROSS JOIN (SELECT sas.now() AS now, coalesce(_sas.quarantine_told(), '') AS quarantine) n
    ORDER BY g.runs DESC, g.waiting_kind, g.waiting_on;
END;
COMMENT ON FUNCTION sas.explain() IS
    'What the open runs wait for: one row per cause, with the number of runs, since when, and a sentence. '
    'Steps that only wait for other steps are left out.';

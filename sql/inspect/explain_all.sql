-- SPDX-License-Identifier: PostgreSQL
--
-- Explain all: what the open runs wait for, by cause. It reads the views as the current user.

-- _sas.open_run_ids(): the runs that have not stopped and that the current user may see. Its condition uses
-- an index, whereas sas.runs WHERE state <> 'stopped' reads all runs that are kept.
CREATE FUNCTION _sas.open_run_ids() RETURNS SETOF bigint
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_verb';

-- _sas.open_run_ids_as(caller): the body of _sas.open_run_ids.
CREATE FUNCTION _sas.open_run_ids_as(caller oid) RETURNS SETOF bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT o.run_id FROM _sas.open_runs_of(_sas.owners_seen_by(caller)) o
$$;

CREATE FUNCTION sas.explain() RETURNS TABLE (waiting_kind text, waiting_on text, runs bigint, steps bigint,
                                             since timestamptz, until timestamptz, text text)
LANGUAGE sql STABLE SET jit = off
BEGIN ATOMIC
    WITH large AS MATERIALIZED (SELECT ARRAY(SELECT _sas.large_runs()) AS run_ids),
    step AS (
        SELECT s.run_id, s.waiting_kind, s.waiting_on, s.waiting_since, s.waiting_until, 1 AS weight
        FROM sas.steps s
        WHERE s.run_id = ANY (ARRAY(SELECT _sas.open_run_ids())) AND s.run_state <> 'stopped'
            AND s.waiting_kind <> 'steps'
            AND (s.element IS NULL OR s.run_id <> ALL ((SELECT l.run_ids FROM large l)::bigint[]))
        UNION ALL
        -- of many elements that wait alike, fifty are read, each of which counts as several
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
    FROM (SELECT s.waiting_kind, s.waiting_on, count(DISTINCT s.run_id) AS runs,
                 round(sum(s.weight))::bigint AS steps,
                 min(s.waiting_since) AS since, min(s.waiting_until) AS until
          FROM step s GROUP BY 1, 2) g
    CROSS JOIN (SELECT sas.now() AS now, coalesce(_sas.quarantine_told(), '') AS quarantine) n
    ORDER BY g.runs DESC, g.waiting_kind, g.waiting_on;
END;
COMMENT ON FUNCTION sas.explain() IS
    'What the open runs wait for: one row per cause, with the number of runs, since when, and a sentence. '
    'Steps that only wait for other steps are left out.';

-- SPDX-License-Identifier: PostgreSQL
--
-- Ends: what is kept of runs in the moment they stop, for the purge and for the metrics.

-- sas._note_ends(run_ids): these runs have just stopped. Called by sas._move_runs only.
CREATE FUNCTION sas._note_ends(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    flows int[];
    results text[];
    waits float8[];
    spans float8[];
BEGIN
    WITH e AS (
        SELECT r.run_id, r.result, r.finished_at, v.workflow_id, r.hook_of IS NULL AS told,
               r.parent_run_id IS NULL AND coalesce(r.hook_of, 0) = 0 AS root, row_number() OVER () / 100 AS part,
               extract(epoch FROM r.started_at - greatest(r.created_at, r.start_at))::float8 AS wait,
               extract(epoch FROM r.finished_at - coalesce(r.started_at, r.finished_at))::float8 AS span
        FROM sas.run r
        CROSS JOIN LATERAL (SELECT x.workflow_id FROM sas.workflow_version x WHERE x.version_id = r.version_id OFFSET 0) v
        WHERE r.run_id = ANY ($1)),
    -- what belongs to another run goes with it; no row is longer than a hundred, so that a purge can take as many as it likes
    kept AS (
        INSERT INTO sas.ended (result, ended_at, run_ids)
        SELECT e.result, max(e.finished_at), array_agg(e.run_id) FROM e WHERE e.root GROUP BY e.part, e.result)
    SELECT array_agg(e.workflow_id), array_agg(e.result), array_agg(e.wait), array_agg(e.span) INTO flows, results, waits, spans FROM e WHERE e.told;
    PERFORM sas._observe('run_wait', flows, NULL, NULL, waits);
    PERFORM sas._observe('run', flows, NULL, results, spans);
END $$;

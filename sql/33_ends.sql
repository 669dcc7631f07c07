-- SPDX-License-Identifier: PostgreSQL
--
-- Ends: what is kept of runs in the moment they stop, for the purge and for the metrics.

-- sas._note_ends(run_ids): these runs have just stopped. Called by sas._move_runs only.
CREATE FUNCTION sas._note_ends(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    -- what belongs to another run goes with it; no row is longer than a hundred, so that a purge can take as many as it likes
    INSERT INTO sas.ended (result, ended_at, run_ids)
    SELECT e.result, e.finished_at, array_agg(e.run_id)
    FROM (SELECT r.run_id, r.result, r.finished_at, (row_number() OVER ()) / 100 AS part
          FROM sas.run r WHERE r.run_id = ANY ($1) AND r.parent_run_id IS NULL AND coalesce(r.hook_of, 0) = 0) e
    GROUP BY e.part, e.result, e.finished_at;
END $$;

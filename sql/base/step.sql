-- SPDX-License-Identifier: PostgreSQL
--
-- Rows of steps by their whole key, and what few steps have beside their row. The planner makes the first
-- functions part of the calling statement; so a column that it does not use is not read.
--
-- OFFSET 0: without it the planner may use only the first column of the key, and walk all steps of the run or
-- of the version.

-- _sas.step_row(for_run, for_no, for_element): a step of a run; no row if it has none yet.
CREATE FUNCTION _sas.step_row(for_run bigint, for_no int, for_element int) RETURNS SETOF _sas.step
LANGUAGE sql STABLE AS $$
    SELECT * FROM _sas.step x
    WHERE x.run_id = for_run AND x.step_no = for_no AND x.element = for_element OFFSET 0
$$;

-- _sas.step_definition(for_version, for_no, of_undo): the definition of a step, or of its undo.
CREATE FUNCTION _sas.step_definition(for_version int, for_no int, of_undo boolean DEFAULT false)
RETURNS SETOF _sas.workflow_step
LANGUAGE sql STABLE AS $$
    SELECT * FROM _sas.workflow_step x
    WHERE x.version_id = for_version AND x.step_no = for_no AND x.undo = of_undo OFFSET 0
$$;

-- _sas.are_staged(run_ids): do steps of these runs have phases, since there is middleware for them?
CREATE FUNCTION _sas.are_staged(run_ids bigint[]) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT _sas.has_pages('_sas.phase') THEN
        RETURN false;
    END IF;
    -- of these runs: dead rows of others may be many
    RETURN EXISTS (SELECT FROM _sas.phase g WHERE g.run_id = ANY (run_ids));
END $$;

-- _sas.are_edited(run_ids): do steps of these runs have another input than their definition says?
CREATE FUNCTION _sas.are_edited(run_ids bigint[]) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT _sas.has_pages('_sas.override') THEN
        RETURN false;
    END IF;
    RETURN EXISTS (SELECT FROM _sas.override d WHERE d.run_id = ANY (run_ids));
END $$;

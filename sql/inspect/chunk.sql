-- SPDX-License-Identifier: PostgreSQL
--
-- Chunks as readers see them: readers must see the run, and may read its outputs only if its mask allows
-- it.

-- _sas.chunks_as(caller, run_id, step, after): the body of sas.chunks: the chunks of a step, or of one
-- element, in the order in which they were emitted.
CREATE FUNCTION _sas.chunks_as(caller oid, run_id bigint, step text, after bigint)
RETURNS TABLE (chunk_id bigint, element int, attempt int, undo boolean, chunk jsonb, emitted_at timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    parts text[] := regexp_match($3, E'^(.*?)(?:\\[([0-9]{1,9})\\])?$');
    r _sas.run;
    no int;
    mask text[];
BEGIN
    SELECT * INTO r FROM _sas.run x WHERE x.run_id = $2 AND x.hook_of IS NULL;
    IF NOT FOUND OR NOT _sas.may_see(caller, r.owner) THEN
        PERFORM _sas.refuse('42704', format('run %s does not exist, or is not yours',
                                            coalesce($2::text, 'null')), 'At /run_id.',
                            'See sas.runs for your runs.');
    END IF;
    SELECT w.step_no, v.mask INTO no, mask
    FROM _sas.workflow_step w JOIN _sas.workflow_version v USING (version_id)
    WHERE w.version_id = r.version_id AND NOT w.undo AND NOT w.hidden AND w.name = parts[1];
    IF NOT FOUND THEN
        PERFORM _sas.refuse_missing('step', $3, '/step', '') WHERE $3 IS NULL;
        PERFORM _sas.refuse('42704', format('run %s has no step "%s"', $2, $3), 'At /step.',
                            'See sas.steps for the steps of the run.');
    END IF;
    RETURN QUERY
    SELECT c.chunk_id, nullif(c.element, 0), c.attempt, c.undo,
           CASE WHEN mask IS NOT NULL AND r.owner <> caller THEN to_jsonb('***'::text)
                WHEN _sas.may_operate(caller, r.owner) THEN c.chunk END, c.emitted_at
    FROM _sas.chunk c
    WHERE c.run_id = r.run_id AND c.step_no = no AND (parts[2] IS NULL OR c.element = parts[2]::int)
      AND c.chunk_id > coalesce($4, 0)
    ORDER BY c.chunk_id;
END $$;

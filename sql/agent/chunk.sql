-- SPDX-License-Identifier: PostgreSQL
--
-- Chunks: what a step emits while it runs.
--
-- A function emits in its own transaction: its chunks become visible together with its result, and are
-- rolled back with it. An outside program emits in the transaction of its session, under its claim; a chunk
-- after the end of the claim is refused.

-- _sas.invoked_step(): the step whose function this session is executing; nulls: none.
CREATE FUNCTION _sas.invoked_step(OUT run_id bigint, OUT step_no int, OUT element int)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_invoked_step';

-- _sas.emit_as(caller, chunk, request_id): the body of sas.emit. Returns false if the claim no longer holds.
--   locks   for an outside claim: the run, or the lease if another session has locked the run
--   writes  chunk
CREATE FUNCTION _sas.emit_as(caller oid, chunk jsonb, request_id uuid) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_variable
DECLARE
    at record;
    c record;
    emitted int;
BEGIN
    PERFORM _sas.check_chunk(chunk);
    IF request_id IS NULL THEN
        SELECT i.* INTO at FROM _sas.invoked_step() i;
        IF at.run_id IS NULL THEN
            RAISE EXCEPTION 'this session carries out no step'
                USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = 'At /request_id.',
                    HINT = 'Call sas.emit in the function of a step, or with the request_id of a claimed '
                           'task.';
        END IF;
    ELSE
        c := _sas.lock_claim(caller, request_id, false);
        IF (c.p).request_id IS NULL OR NOT c.free AND NOT _sas.hold_place(c.p) THEN
            RETURN false;
        END IF;
        at := c.p;
    END IF;
    -- only the holder of the claim emits, so the last chunk gives their number
    SELECT k.ordinal INTO emitted FROM _sas.chunk k
    WHERE k.run_id = at.run_id AND k.step_no = at.step_no AND k.element = at.element
    ORDER BY k.chunk_id DESC LIMIT 1;
    IF emitted >= 10000 THEN
        RAISE EXCEPTION 'a step can emit at most 10000 chunks'
            USING ERRCODE = 'program_limit_exceeded', DETAIL = 'At /chunk.',
                HINT = 'Emit larger chunks, or write to a table of your own.';
    END IF;
    INSERT INTO _sas.chunk (run_id, step_no, element, ordinal, attempt, undo, chunk, emitted_at)
    SELECT at.run_id, at.step_no, at.element, coalesce(emitted, 0) + 1, s.attempt + 1,
           s.state = 'compensating', chunk, sas.now()
    FROM _sas.step s WHERE s.run_id = at.run_id AND s.step_no = at.step_no AND s.element = at.element;
    RETURN true;
END $$;

-- _sas.check_chunk(chunk): raises an error if the chunk is not acceptable.
CREATE FUNCTION _sas.check_chunk(chunk jsonb) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF chunk IS NULL THEN
        RAISE EXCEPTION 'the chunk must not be null'
            USING ERRCODE = 'null_value_not_allowed', DETAIL = 'At /chunk.',
            HINT = 'Pass jsonb, ''null'' for a JSON null.';
    END IF;
    PERFORM _sas.check_size(chunk, 65536, '/chunk', 'the chunk', 'Emit several chunks.');
END $$;

-- _sas.hold_place(p): locks the lease of this claim, because another session has locked its run. False: a
-- tick has just taken the claim back.
CREATE FUNCTION _sas.hold_place(p _sas.external_slot) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM _sas.lease l WHERE l.lease_id = p.lease_id FOR NO KEY UPDATE;
    RETURN EXISTS (SELECT FROM _sas.external_slot h
                   WHERE h.agent_id = p.agent_id AND h.place = p.place AND h.request_id = p.request_id);
END $$;

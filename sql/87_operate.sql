-- SPDX-License-Identifier: PostgreSQL
--
-- Operate: the verbs of operators. An array is applied or refused run by run,
-- and both are reported.

-- sas._operate(caller, run_ids): locks the runs that an operator names, in order; waits for other sessions, never holds up a worker for long.
CREATE FUNCTION sas._operate(caller oid, run_ids bigint[]) RETURNS TABLE (run_id bigint, state text, fate text, refused text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    PERFORM sas._ring_on_abort();
    -- only what the caller may touch is locked
    PERFORM FROM sas.run r
    WHERE r.run_id = ANY (run_ids)
      AND (pg_has_role(caller, r.owner, 'MEMBER') OR sas._has_level(caller, 'operator') OR sas._has_level(caller, 'admin'))
    ORDER BY r.run_id FOR NO KEY UPDATE;
    RETURN QUERY
    SELECT u.id, r.state, r.fate,
           CASE WHEN r.run_id IS NULL OR NOT (pg_has_role(caller, r.owner, 'MEMBER') OR sas._has_level(caller, 'operator') OR sas._has_level(caller, 'admin'))
                THEN format('run %s does not exist, or is not yours', u.id) END
    FROM (SELECT DISTINCT unnest(run_ids) AS id) u LEFT JOIN sas.run r ON r.run_id = u.id WHERE u.id IS NOT NULL ORDER BY u.id;
END $$;

-- sas._record(...): an operator's act, for sas.history.
CREATE FUNCTION sas._record(caller oid, run_ids bigint[], act text, step text, detail jsonb) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO sas.act (run_id, at, role, act, step, detail)
    SELECT u, sas._now(), pg_get_userbyid(caller), act, step, detail FROM unnest(run_ids) u
$$;

CREATE FUNCTION sas._pause(caller oid, run_ids bigint[]) RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, sas, pg_temp AS $$
#variable_conflict use_column
DECLARE
    o record;
BEGIN
    FOR o IN SELECT * FROM sas._operate(caller, run_ids) LOOP
        IF o.refused IS NULL AND o.state IN ('scheduled', 'pending', 'running', 'compensating') THEN
            PERFORM sas._pause(ARRAY[o.run_id], ARRAY['an operator paused it'], pg_get_userbyid(caller)::text, ARRAY[NULL]::jsonb[]);
            PERFORM sas._record(caller, ARRAY[o.run_id], 'pause', NULL, NULL);
            RETURN QUERY SELECT o.run_id, NULL::text, true, r.state, r.result, NULL::text FROM sas.run r WHERE r.run_id = o.run_id;
        ELSE
            RETURN QUERY SELECT o.run_id, NULL::text, false, CASE WHEN o.refused IS NULL THEN o.state END, NULL::text,
                                coalesce(o.refused, format('run %s is %s; only an open run that is not paused can be paused', o.run_id, o.state));
        END IF;
    END LOOP;
END $$;

-- sas._set_going(run_ids): paused runs go on: what is parked goes into the
-- queue, what has failed and was not decided gets another window. A run that
-- was paused for its deadline has that of its workflow anew: it must have an end.
CREATE FUNCTION sas._set_going(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    changes sas._step_change[];
    stopped bigint[];
    next timestamptz;
    overdue bigint[] := ARRAY(SELECT r.run_id FROM sas.run r
                              WHERE r.run_id = ANY (run_ids) AND r.deadline <= sas._now() AND r.paused_for IS DISTINCT FROM 'its deadline has passed');
BEGIN
    WITH longer AS (
        UPDATE sas.run r SET deadline = sas._now() + coalesce((SELECT v.deadline FROM sas.workflow_version v WHERE v.version_id = r.version_id), sas._run_deadline())
        WHERE r.run_id = ANY (run_ids) AND r.state = 'paused' AND r.fate IS NULL AND r.deadline <= sas._now() AND r.paused_for = 'its deadline has passed'
        RETURNING r.run_id, r.deadline),
    timed AS (
        INSERT INTO sas.due (actor, due_at, run_id, kind) SELECT 'v', l.deadline, l.run_id, 'deadline' FROM longer l)
    SELECT min(l.deadline) INTO next FROM longer l;
    PERFORM sas._due_by(next) WHERE next IS NOT NULL;
    PERFORM sas._move_runs(array_agg(ROW(r.run_id, 'paused',
                CASE WHEN r.fate IS NOT NULL THEN 'compensating' WHEN r.paused_state = 'scheduled' THEN 'scheduled'
                     WHEN r.started_at IS NULL AND NOT EXISTS (SELECT FROM sas.step s WHERE s.run_id = r.run_id AND s.started_at IS NOT NULL) THEN 'pending'
                     ELSE 'running' END,
                NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)::sas._run_change))
    FROM sas.run r WHERE r.run_id = ANY (run_ids) AND r.state = 'paused';

    -- what it was paused for is over; what was skipped stays a warning
    UPDATE sas.run r SET error = NULL
    WHERE r.run_id = ANY (run_ids) AND r.fate IS NULL AND r.error IS NOT NULL
      AND NOT EXISTS (SELECT FROM sas.step s WHERE s.run_id = r.run_id AND s.state = 'skipped' AND s.error IS NOT NULL);

    SELECT array_agg(ROW(s.run_id, s.step_no, s.element, s.state, CASE s.state WHEN 'failed' THEN 'ready' ELSE s.state END,
                         NULL, CASE WHEN s.parked AND s.state <> 'compensating' THEN NULL ELSE 0 END, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                         NULL, NULL, NULL, NULL, NULL, NULL)::sas._step_change)
    INTO changes
    FROM sas.step s JOIN sas.run r ON r.run_id = s.run_id
    JOIN sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = s.step_no AND NOT w.undo
    WHERE s.run_id = ANY (run_ids) AND s.request_id IS NULL AND s.waiting_until IS NULL
      AND (s.state = 'ready' AND s.parked OR s.state = 'compensating'
           OR s.state = 'failed' AND r.fate IS NULL AND NOT coalesce(w.shape ? 'stands_in' OR w.shape ? 'fallback' AND sas._fell(s.run_id, s.element, w.shape), false));
    PERFORM sas._move_steps(changes);
    PERFORM sas._ask_anew(run_ids);
    PERFORM sas._resume_fallbacks(run_ids);
    PERFORM sas._requeue(array_agg(c.run_id), array_agg(c.step_no), array_agg(c.element)) FROM unnest(changes) c;

    PERFORM sas._feed_fans(array_agg(f.run_id), array_agg(f.step_no)) FROM sas.fan f WHERE f.run_id = ANY (run_ids) HAVING count(*) > 0;

    INSERT INTO sas.due (actor, due_at, run_id, kind)
    SELECT 'v', sas._now(), r.run_id, 'deadline' FROM sas.run r WHERE r.run_id = ANY (overdue) AND r.fate IS NULL;
    INSERT INTO sas.due (actor, due_at, run_id, kind)
    SELECT 's', greatest(r.start_at, sas._now()), r.run_id, 'start' FROM sas.run r WHERE r.run_id = ANY (run_ids) AND r.state = 'scheduled';
    SELECT array_agg(r.run_id) INTO stopped FROM sas.run r WHERE r.run_id = ANY (run_ids) AND r.fate IS NULL AND r.open_steps = 0;
    PERFORM sas._end_of_steps(stopped) WHERE stopped IS NOT NULL;
    PERFORM sas._hand_to_scheduler(run_ids);
    PERFORM sas._ring('{}', true, true, '{}');
END $$;

CREATE FUNCTION sas._resume(caller oid, run_ids bigint[]) RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, sas, pg_temp AS $$
#variable_conflict use_column
DECLARE
    o record;
BEGIN
    FOR o IN SELECT * FROM sas._operate(caller, run_ids) LOOP
        IF o.refused IS NULL AND o.state = 'paused' THEN
            PERFORM sas._set_going(ARRAY[o.run_id]);
            PERFORM sas._record(caller, ARRAY[o.run_id], 'resume', NULL, NULL);
            RETURN QUERY SELECT o.run_id, NULL::text, true, r.state, r.result, NULL::text FROM sas.run r WHERE r.run_id = o.run_id;
        ELSE
            RETURN QUERY SELECT o.run_id, NULL::text, false, CASE WHEN o.refused IS NULL THEN o.state END, NULL::text,
                                coalesce(o.refused, format('run %s is %s; only a paused run can be resumed', o.run_id, o.state));
        END IF;
    END LOOP;
END $$;

CREATE FUNCTION sas._retry(caller oid, run_ids bigint[], for_step text, new_key boolean) RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, sas, pg_temp AS $$
#variable_conflict use_column
DECLARE
    o record;
    failed text[];
BEGIN
    IF new_key THEN
        RAISE EXCEPTION 'new_key is not supported in this release' USING ERRCODE = 'feature_not_supported';
    END IF;
    FOR o IN SELECT * FROM sas._operate(caller, run_ids) LOOP
        SELECT array_agg(sas._shown_name(w.name)) INTO failed
        FROM sas.step s JOIN sas.run r ON r.run_id = s.run_id
        JOIN sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = s.step_no AND NOT w.undo
        WHERE s.run_id = o.run_id AND (s.state = 'failed' AND (o.fate IS NULL AND NOT coalesce(w.shape ? 'stands_in', false) OR o.fate IS NOT NULL AND s.in_doubt) OR s.state = 'compensating' AND s.request_id IS NULL) AND ($3 IS NULL OR sas._shown_name(w.name) = $3);
        IF o.refused IS NULL AND o.state = 'paused' AND failed IS NOT NULL THEN
            PERFORM sas._set_going(ARRAY[o.run_id]);
            PERFORM sas._record(caller, ARRAY[o.run_id], 'retry', $3, NULL);
            RETURN QUERY SELECT o.run_id, f, true, r.state, r.result, NULL::text FROM sas.run r CROSS JOIN unnest(failed) f WHERE r.run_id = o.run_id;
        ELSE
            RETURN QUERY SELECT o.run_id, $3, false, CASE WHEN o.refused IS NULL THEN o.state END, NULL::text,
                                coalesce(o.refused, format('run %s is %s and %s; only a failed step of a paused run can be retried', o.run_id, o.state,
                                                           CASE WHEN failed IS NULL THEN 'has no such failed step' ELSE 'its failure is being decided' END));
        END IF;
    END LOOP;
END $$;

CREATE FUNCTION sas._cancel(caller oid, run_ids bigint[], reason text) RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, sas, pg_temp AS $$
#variable_conflict use_column
DECLARE
    o record;
BEGIN
    FOR o IN SELECT * FROM sas._operate(caller, run_ids) LOOP
        IF o.refused IS NULL AND o.state <> 'stopped' AND o.fate IS NULL THEN
            PERFORM sas._doom(ARRAY[o.run_id], ARRAY['cancel'],
                              ARRAY[sas._problem_object('cancelled', 'the run was cancelled', reason, NULL, o.run_id, NULL)]);
            PERFORM sas._record(caller, ARRAY[o.run_id], 'cancel', NULL, to_jsonb(reason));
            RETURN QUERY SELECT o.run_id, NULL::text, true, r.state, r.result, NULL::text FROM sas.run r WHERE r.run_id = o.run_id;
        ELSE
            RETURN QUERY SELECT o.run_id, NULL::text, false, CASE WHEN o.refused IS NULL THEN o.state END, NULL::text,
                                coalesce(o.refused, format('run %s is %s%s; only an open run that goes on can be cancelled', o.run_id, o.state,
                                                           CASE WHEN o.state <> 'stopped' THEN ' and cannot go on already' ELSE '' END));
        END IF;
    END LOOP;
END $$;

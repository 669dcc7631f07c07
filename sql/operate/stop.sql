-- SPDX-License-Identifier: PostgreSQL
--
-- Stop: the verbs that end runs, undo them, and start them again.
--   verb         running steps       completed steps    result
--   cancel       stopped at once     undone             cancelled
--   compensate   run to their end    undone             compensated
--   halt         stopped at once     left as they are   error

-- _sas.stop_errors(run_ids, kind, title, reason): the errors of runs that an operator ends.
CREATE FUNCTION _sas.stop_errors(run_ids bigint[], kind text, title text, reason text) RETURNS jsonb[]
LANGUAGE sql IMMUTABLE AS $$
    SELECT array_agg(_sas.problem_object(kind, title, reason, NULL, u.id, NULL) ORDER BY u.n)
    FROM unnest(run_ids) WITH ORDINALITY AS u (id, n)
$$;

-- _sas.cancel_runs_as(caller, run_ids, reason): the body of sas.cancel_runs: open runs that are not ending
-- are undone, and then are cancelled.
-- Locks: these runs. Next: _sas.abandon.
CREATE FUNCTION _sas.cancel_runs_as(caller oid, run_ids bigint[], reason text)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    named _sas.named[] := _sas.operate(caller, run_ids);
    ids bigint[] := ARRAY(SELECT n.run_id FROM unnest(named) n WHERE n.refused IS NULL
                          AND n.state <> 'stopped' AND n.abandon_as IS NULL);
BEGIN
    reason := _sas.check_reason(reason);
    IF ids <> '{}' THEN
        PERFORM _sas.abandon(ids, array_fill('cancel'::text, ARRAY[cardinality(ids)]),
                          _sas.stop_errors(ids, 'cancelled', 'the run was cancelled', reason), true);
        PERFORM _sas.record(caller, ids, 'cancel', NULL, _sas.reason(reason));
    END IF;
    RETURN QUERY SELECT * FROM _sas.report_runs('cancel', named, ids);
END $$;

-- _sas.halt_runs_as(...): the body of sas.halt_runs. It raises an alert for each run, because an operator
-- has to check the effects that remain.
CREATE FUNCTION _sas.halt_runs_as(caller oid, run_ids bigint[], reason text)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    named _sas.named[] := _sas.operate(caller, run_ids);
    ids bigint[] := _sas.open_named(named);
BEGIN
    reason := _sas.check_reason(reason);
    IF ids <> '{}' THEN
        PERFORM _sas.halt_now(ids, _sas.stop_errors(ids, 'halted', 'the run was halted', reason));
        PERFORM _sas.record(caller, ids, 'halt', NULL, _sas.reason(reason));
        PERFORM _sas.raise_alert('halted', 'halted',
                           -- a value of type name would bring its collation along, and the lookup of the
                           -- alert would not use the index
                           format('%s; %s', who, l.standing), NULL, u,
                           private => format('%s%s; %s', who, ': ' || reason, l.standing))
        FROM unnest(ids) u
        CROSS JOIN LATERAL (SELECT format('run %s was halted by %s', u,
                                          pg_get_userbyid(caller)::text COLLATE "default")) AS h (who)
        CROSS JOIN LATERAL (SELECT _sas.left_standing(u) AS standing OFFSET 0) l
        ORDER BY u;
    END IF;
    RETURN QUERY SELECT * FROM _sas.report_runs('halt', named, ids);
END $$;

-- _sas.left_standing(run_id): the effects of a run that are not undone, in words.
CREATE FUNCTION _sas.left_standing(run_id bigint) RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT coalesce(string_agg(format('%s: %s', g.said, g.names), '; ' ORDER BY g.said),
                            'nothing was done')
    FROM (SELECT x.said, string_agg(x.name, ', ' ORDER BY x.step_no, x.element) AS names
    FROM (SELECT s.step_no, s.element, _sas.shown_name(w.name)
          || coalesce('[' || nullif(s.element, 0) || ']', '') AS name,
          CASE WHEN s.state = 'compensating' THEN 'undo not finished'
               WHEN s.completion IS NOT NULL THEN 'done' ELSE 'in doubt' END AS said
          FROM _sas.step s
          JOIN _sas.run r ON r.run_id = s.run_id
          JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = s.step_no AND NOT w.undo
              AND w.kind <> 'join'
          WHERE s.run_id = $1 AND NOT (s.element = 0 AND coalesce(w.shape ?| '{each,repeat}', false))
            AND (s.state IN ('succeeded', 'skipped') AND s.completion IS NOT NULL
                 OR s.state IN ('failed', 'skipped') AND (s.in_doubt OR s.asks IS NOT NULL)
                 -- the undo is claimed: it may be carried out or not
                 OR s.state = 'compensating'
                 -- claimed steps, except functions, which are rolled back
                 OR s.state = 'running' AND s.request_id IS NOT NULL
                 AND (s.in_doubt OR NOT _sas.is_function(s.run_id, s.step_no, s.element, w.lane, false)))
          ORDER BY s.step_no, s.element LIMIT 20) x
    GROUP BY x.said) g);
END $$;

-- _sas.can_undo(run_id): does this stopped run have completed steps that can be undone?
CREATE FUNCTION _sas.can_undo(run_id bigint) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    -- plpgsql keeps the plan
    RETURN EXISTS (SELECT FROM _sas.run r
                   WHERE r.run_id = $1 AND _sas.leaves_something(r.run_id, r.version_id));
END $$;

-- _sas.compensate_runs_as(...): the body of sas.compensate_runs. Open runs are undone as if a rule had
-- decided it. Stopped runs are undone as far as they were not. As long as its parent is open, only the
-- parent undoes a child run.
CREATE FUNCTION _sas.compensate_runs_as(caller oid, run_ids bigint[], reason text)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    named _sas.named[] := _sas.operate(caller, run_ids);
    open bigint[];
    over bigint[];
BEGIN
    reason := _sas.check_reason(reason);
    named := ARRAY(SELECT _sas.refused(n, CASE WHEN n.state = 'stopped' AND p.state <> 'stopped'
                       THEN format('%s; it is a child of run %s, which is open: sas.compensate(%s) undoes '
                                   'both', _sas.describe_state(n), p.run_id, p.run_id) END)
                   FROM unnest(named) n LEFT JOIN _sas.run r ON r.run_id = n.run_id
                   LEFT JOIN _sas.run p ON p.run_id = r.parent_run_id ORDER BY n.run_id);
    open := ARRAY(SELECT n.run_id FROM unnest(named) n WHERE n.refused IS NULL AND n.state <> 'stopped'
                  AND n.abandon_as IS NULL);
    over := ARRAY(SELECT n.run_id FROM unnest(named) n WHERE n.refused IS NULL AND n.state = 'stopped'
                  AND n.result NOT IN ('cancelled', 'compensated') AND _sas.can_undo(n.run_id));
    IF open <> '{}' THEN
        PERFORM _sas.abandon(open, array_fill('compensate'::text, ARRAY[cardinality(open)]),
                          _sas.stop_errors(open, 'compensated', 'an operator compensates the run', reason));
    END IF;
    IF over <> '{}' THEN
        PERFORM _sas.undo_stopped_runs(
            over, _sas.stop_errors(over, 'compensated', 'an operator compensates the run', reason));
    END IF;
    PERFORM _sas.record(caller, open || over, 'compensate', NULL, _sas.reason(reason));
    RETURN QUERY SELECT * FROM _sas.report_runs('compensate', named, open || over);
END $$;

-- _sas.rerun_runs_as(...): the body of sas.rerun_runs: submits a run with the same input, labels, priority
-- and reply queue, of the current version, as the owner of the run. The new run takes over the key. If
-- functions plan it, only the owner or a member may call this: they run with the rights of the owner inside
-- this session.
CREATE FUNCTION _sas.rerun_runs_as(caller oid, run_ids bigint[])
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text,
               new_run_id bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    named _sas.named[] := _sas.operate(caller, run_ids);
    n _sas.named;
    made bigint;
    why text;
BEGIN
    FOREACH n IN ARRAY named LOOP
        made := NULL;
        IF n.refused IS NOT NULL OR n.state <> 'stopped' THEN
            why := _sas.refusal('rerun', n);
        ELSE
            SELECT a.made, a.why INTO made, why FROM _sas.submit_again(caller, n.run_id) a;
        END IF;
        IF made IS NOT NULL THEN
            PERFORM _sas.record(caller, ARRAY[n.run_id], 'rerun', NULL, jsonb_build_object('new_run', made));
            PERFORM _sas.record(caller, ARRAY[made], 'rerun', NULL, jsonb_build_object('of_run', n.run_id));
        END IF;
        RETURN QUERY SELECT n.run_id, NULL::text, made IS NOT NULL, n.state, n.result, CASE
            WHEN made IS NULL THEN why END, made;
    END LOOP;
END $$;

-- _sas.told_refusal(caller, owner, mask, code, message): the message of a refused submit. It may repeat
-- values of the run, so a role that sees *** in their place gets the SQLSTATE only.
CREATE FUNCTION _sas.told_refusal(caller oid, owner regrole, mask text[], code text, message text)
RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN owner::oid <> caller AND cardinality(mask) > 0
                THEN format('an error with SQLSTATE %s; role "%s" itself sees all of it', code,
                            pg_get_userbyid(owner))
                ELSE message END
$$;

-- _sas.submit_again(caller, for_run): submits a run like this one. made is null if that was not possible;
-- then why says the reason.
-- Writes: run_key.
CREATE FUNCTION _sas.submit_again(caller oid, for_run bigint, OUT made bigint, OUT why text)
LANGUAGE plpgsql AS $$
DECLARE
    r record;
    fresh boolean;
    submits boolean := false;
BEGIN
    SELECT x.*, v.workflow_id, v.mask, x.priority - v.priority AS own_priority, w.name AS workflow,
           w.dropped_at, p.state AS parent_state, _sas.calls_plans(x.owner, w.workflow_id)
               OR EXISTS (SELECT FROM _sas.middleware m WHERE m.phase = 'plan') AS planned
    INTO r
    FROM _sas.run x
    JOIN _sas.workflow_version v USING (version_id)
    JOIN _sas.workflow w USING (workflow_id)
    LEFT JOIN _sas.run p ON p.run_id = x.parent_run_id
    WHERE x.run_id = for_run;
    why := CASE WHEN r.dropped_at IS NOT NULL
        THEN format('workflow "%s" of run %s has been dropped; create it again first', r.workflow, for_run)
                WHEN r.parent_run_id IS NOT NULL
                    THEN format('run %s is a child of run %s; sas.rerun(%s), or sas.retry of its step, '
                                'runs it again', for_run, r.parent_run_id, r.parent_run_id)
                WHEN r.planned AND NOT _sas.may_stand_for(caller, r.owner::oid)
                THEN format('run %s is planned by functions, with the rights of %s; only a member of that '
                            'role can run it again', for_run, r.owner) END;
    IF why IS NOT NULL THEN
        RETURN;
    END IF;
    BEGIN
        DELETE FROM _sas.run_key k WHERE k.owner = r.owner AND k.workflow_id = r.workflow_id
            AND k.key = r.key AND k.run_id = for_run;
        IF r.key IS NOT NULL AND NOT FOUND THEN
            why := format('key "%s" of run %s belongs to run %s now; run that one again', r.key, for_run,
                          (SELECT k.run_id FROM _sas.run_key k WHERE k.owner = r.owner
                           AND k.workflow_id = r.workflow_id AND k.key = r.key));
            RETURN;
        END IF;
        -- a plan has a mask of its own
        SELECT _sas.shown_version(caller, x, v) INTO why FROM _sas.run x
        CROSS JOIN LATERAL _sas.version_to_submit(r.owner::oid, r.workflow, NULL, r.workflow_id) v
        WHERE x.run_id = for_run AND NOT v.planned;
        IF why IS NOT NULL THEN
            RAISE EXCEPTION '%', why;
        END IF;
        submits := true;
        SELECT s.run_id, s.created INTO made, fresh
        FROM _sas.submit_runs(r.owner::oid, r.workflow, ARRAY[r.input], CASE
                              WHEN r.key IS NOT NULL THEN ARRAY[r.key] END, r.own_priority, NULL, NULL, NULL,
                              NULL, r.reply_to, r.labels, for_workflow => r.workflow_id) s;
        submits := false;
        IF NOT fresh THEN
            RAISE EXCEPTION 'run % is already open, and workflow "%" runs one at a time', made, r.workflow
                USING ERRCODE = 'object_not_in_prerequisite_state';
        END IF;
    EXCEPTION WHEN OTHERS THEN
        -- the fault of the moment, not of the run: the transaction can be tried again
        IF NOT _sas.is_of_item(SQLSTATE) OR _sas.may_pass(SQLSTATE) THEN
            RAISE;
        END IF;
        made := NULL;
        why := format('run %s cannot be run again: %s', for_run,
                      CASE WHEN submits THEN _sas.told_refusal(caller, r.owner, r.mask, SQLSTATE, SQLERRM)
                           ELSE SQLERRM END);
    END;
END $$;

-- SPDX-License-Identifier: PostgreSQL
--
-- Mend: the verbs of operators about steps. A step is named as sas.steps shows
-- it; "pack" of a map stands for those of its elements to which the verb can
-- be applied, "pack[3]" for one element.

-- _sas.situation(...): what a verb can do to a step, in one word:
--	stopped     its run has stopped            waiting    its turn has not come
--	ended       it has ended                   ready      may be claimed, or is deferred
--	running     a worker holds it              deciding   failed, and the supervisor has not looked
--	failed      for good, undecided            resting    until another window
--	suspended   waits for a signal, a time, the next ask of a poll
--	inner       waits for its elements, its child or its fallback
--	undo        its undo failed or rests; due: may be claimed; undoing: is on its way
--	redo        the same before its fallback; stood_in: failed in the stead of another step
CREATE FUNCTION _sas.situation(r _sas.run, s _sas.step, queued boolean, stands_in boolean) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN r.state = 'stopped' THEN 'stopped'
                WHEN s.state = 'compensating' THEN CASE WHEN s.request_id IS NOT NULL THEN 'undoing'
                    WHEN r.abandon_as IS NULL THEN 'redo' WHEN queued THEN 'due' ELSE 'undo' END
                WHEN s.state = 'failed' THEN CASE WHEN s.waiting_kind = 'supervisor' THEN 'deciding'
                                                  WHEN r.abandon_as IS NULL AND stands_in THEN 'stood_in'
                                                  WHEN r.abandon_as IS NULL OR r.abandon_as <> 'fail'
                                                      AND (s.in_doubt OR s.asks IS NOT NULL) THEN 'failed'
                                                  ELSE 'ended' END
                WHEN s.request_id IS NOT NULL THEN 'running'
                WHEN s.state = 'suspended' THEN CASE
                    WHEN s.waiting_kind IN ('elements', 'child', 'fallback') THEN 'inner'
                                                     WHEN s.waiting_kind IN ('cool_off', 'agent')
                                                         THEN 'resting' ELSE 'suspended' END
                WHEN s.state = 'ready' OR queued THEN 'ready'
                WHEN coalesce(s.state, 'waiting') = 'waiting' AND r.abandon_as IS NULL THEN 'waiting'
                ELSE 'ended' END
$$;

-- _sas.targets(named, step): the steps of these runs that the name stands for; all steps when it is null.
-- Those of a run that has none of that
-- name: none. What may be claimed is locked first, so that no claim changes what is said here.
CREATE FUNCTION _sas.targets(named _sas.named[], step text) RETURNS _sas.target[]
LANGUAGE plpgsql AS $$
DECLARE
    ids bigint[] := ARRAY(SELECT n.run_id FROM unnest(named) n WHERE n.refused IS NULL
                          AND n.state <> 'stopped');
    parts text[] := regexp_match(step, E'^(.*?)(?:\\[([0-9]{1,9})\\])?$');
BEGIN
    PERFORM _sas.index_ready(ids);
    PERFORM FROM _sas.ready q WHERE q.run_id = ANY (ids) AND NOT q.fresh
        ORDER BY q.run_id, q.step_no, q.element FOR UPDATE;
    RETURN ARRAY(
        SELECT ROW(r.run_id, w.step_no, e.element, _sas.shown_name(w.name)
                   || coalesce('[' || nullif(e.element, 0) || ']', ''),
                   _sas.situation(r, s.whole, q.run_id IS NOT NULL, coalesce(w.shape ? 'stands_in', false)),
                       coalesce((s.whole).state, CASE WHEN q.run_id IS NOT NULL THEN 'ready'
                                ELSE 'waiting' END),
                   CASE WHEN (s.whole).request_id IS NOT NULL THEN l.locked_by
                        WHEN (s.whole).waiting_kind = 'child' THEN 'run '
                            || (SELECT c.run_id FROM _sas.last_child(r.run_id, w.step_no, e.element) c)
                        WHEN (s.whole).waiting_kind = 'fallback' THEN 'step "' || w.name || '.fallback"'
                        WHEN (s.whole).waiting_kind = 'elements' THEN 'its elements' END)::_sas.target
        FROM _sas.run r
        JOIN _sas.workflow_step w ON w.version_id = r.version_id AND NOT w.undo
            AND (NOT w.hidden OR w.shape ? 'stands_in' OR w.kind = 'join' AND w.covers IS NOT NULL)
                                AND (parts IS NULL OR _sas.shown_name(w.name) = parts[1])
        CROSS JOIN LATERAL (SELECT 0 AS element WHERE parts[2] IS NULL OR parts[2]::int = 0
                            UNION
                            SELECT i.element
                            FROM (SELECT x.element FROM _sas.step x WHERE x.run_id = r.run_id
                                  AND x.step_no = w.step_no AND x.element > 0
                                  UNION ALL SELECT x.element FROM _sas.ready x WHERE x.run_id = r.run_id
                                      AND x.step_no = w.step_no AND x.element > 0 AND NOT x.fresh) i
                            WHERE parts[2] IS NULL OR i.element = parts[2]::int) e
        LEFT JOIN LATERAL (SELECT x AS whole, x.lease_id FROM _sas.step x WHERE x.run_id = r.run_id
                           AND x.step_no = w.step_no AND x.element = e.element OFFSET 0) s ON true
        LEFT JOIN _sas.ready q ON q.run_id = r.run_id AND q.step_no = w.step_no AND q.element = e.element
            AND NOT q.fresh
        LEFT JOIN _sas.lease l ON l.lease_id = s.lease_id
        WHERE r.run_id = ANY (ids)
        ORDER BY r.run_id, w.step_no, e.element);
END $$;

-- _sas.applicable_steps(verb): to which steps a verb can be applied, as a sentence ends.
CREATE FUNCTION _sas.applicable_steps(verb text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE verb WHEN 'retry' THEN 'only a step that has failed, or rests before another window, can be '
                                       'retried'
                     WHEN 'skip' THEN 'only a step that has failed, rests, is ready or waits for what is to '
                                      'come can be skipped'
                     WHEN 'force_complete' THEN 'only a step that has begun, or is ready, and has not ended '
                                                'can be completed'
                     ELSE 'only a step that has failed, rests or is ready can be given another input' END
$$;

-- _sas.step_refusal(verb, n, step, t): why the verb does not work on that step, and what would.
CREATE FUNCTION _sas.step_refusal(verb text, n _sas.named, step text, t _sas.target) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT coalesce(n.refused, CASE
        WHEN n.state = 'stopped' THEN _sas.describe_state(n) || '; sas.rerun runs it again' || CASE
            WHEN n.result IN ('success', 'warning') THEN ', sas.compensate undoes it' ELSE '' END
        WHEN t.run_id IS NULL AND step IS NULL THEN _sas.describe_state(n) || '; no step of it has failed'
            || CASE n.state WHEN 'paused' THEN ', sas.resume continues it' ELSE '' END
        WHEN t.run_id IS NULL THEN format('run %s has no step "%s"; it has %s', n.run_id, step, coalesce(
             (SELECT string_agg(x.name, ', ' ORDER BY x.name) || CASE WHEN max(x.n) > 10 THEN ', ...'
              ELSE '' END
              FROM (SELECT w.name, count(*) OVER () AS n FROM _sas.run r
                    JOIN _sas.workflow_step w ON w.version_id = r.version_id AND NOT w.undo AND NOT w.hidden
                    WHERE r.run_id = n.run_id ORDER BY w.step_no LIMIT 10) x), 'none'))
        ELSE format('step "%s" of run %s ', t.label, n.run_id) || CASE t.situation
             WHEN 'waiting' THEN 'has not begun; ' || _sas.applicable_steps(verb)
             WHEN 'ended' THEN CASE t.state WHEN 'failed' THEN 'has failed, and its run cannot continue'
                 WHEN 'succeeded' THEN 'has succeeded'
                     ELSE 'is ' || t.state END || '; ' || _sas.applicable_steps(verb)
             WHEN 'ready' THEN 'is ready and has not failed; ' || _sas.applicable_steps(verb)
             WHEN 'running' THEN format('is running, held by %s; wait for its reply, or end it with '
                                        'sas.force_complete or sas.cancel', coalesce(t.note, 'nobody'))
             WHEN 'deciding' THEN 'has just failed, and the supervisor is about to decide; try again'
             WHEN 'inner' THEN format('waits for %s; act on that', t.note)
             WHEN 'suspended' THEN 'has not failed, it waits for what is to come; '
                 || _sas.applicable_steps(verb)
             WHEN 'undo' THEN 'is being undone; its undo can be retried, skipped or completed'
             WHEN 'due' THEN 'is about to be undone; that can be skipped or completed'
             WHEN 'undoing' THEN format('is being undone, by %s; wait for its reply',
                                        coalesce(t.note, 'nobody'))
             WHEN 'redo' THEN 'is undone before its fallback is tried; that can be retried or completed'
             WHEN 'stood_in' THEN format('failed as the fallback of step "%s"; act on that step',
                                         regexp_replace(t.label, E'\\.fallback', ''))
             WHEN 'failed' THEN 'has failed, and its run cannot continue; it can be retried, skipped or '
                                'completed'
             ELSE 'waits for another window; ' || _sas.applicable_steps(verb) END END)
$$;

-- _sas.pick_targets(named, targets, situations): of the targets of each run, those in one of these
-- situations; of a run that has none of them the first target, so that it can be told of. An element counts
-- rather than its step.
CREATE FUNCTION _sas.pick_targets(named _sas.named[], targets _sas.target[], situations text[],
                          OUT fit _sas.target[], OUT unfit _sas.target[])
LANGUAGE plpgsql AS $$
BEGIN
    fit := ARRAY(SELECT ROW(t.*)::_sas.target FROM unnest(targets) t WHERE t.situation = ANY (situations)
                 ORDER BY t.run_id, t.step_no, t.element);
    unfit := ARRAY(SELECT DISTINCT ON (t.run_id) ROW(t.*)::_sas.target FROM unnest(targets) t
                   LEFT JOIN unnest(fit) f ON f.run_id = t.run_id
                   -- the open end of an include is told of when it has failed, else the include as a whole
                   WHERE f.run_id IS NULL ORDER BY t.run_id, t.element, t.step_no DESC);
END $$;

-- _sas.report_steps(verb, named, for_step, done, unfit): what a verb about steps says of each run.
CREATE FUNCTION _sas.report_steps(verb text, named _sas.named[], for_step text, done _sas.target[],
                                unfit _sas.target[])
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE sql STABLE AS $$
    SELECT n.run_id, coalesce(d.label, u.label, $3), d.run_id IS NOT NULL, coalesce(r.state, n.state),
        coalesce(r.result, CASE WHEN r.run_id IS NULL THEN n.result END),
           CASE WHEN d.run_id IS NULL THEN _sas.step_refusal($1, ROW(n.*)::_sas.named, $3,
                                                             ROW(u.*)::_sas.target) END
    FROM unnest($2) n
    LEFT JOIN unnest($4) d ON d.run_id = n.run_id
    LEFT JOIN unnest($5) u ON u.run_id = n.run_id
    LEFT JOIN _sas.run r ON r.run_id = d.run_id
    ORDER BY n.run_id, d.step_no, d.element
$$;

-- _sas.record_steps(caller, done, act, detail): a row of sas.history for each step that was acted on.
CREATE FUNCTION _sas.record_steps(caller oid, done _sas.target[], act text, detail jsonb) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO _sas.operator_action (run_id, at, role, act, step, detail)
    SELECT d.run_id, _sas.now(), pg_get_userbyid(caller), act, d.label, detail FROM unnest(done) d
$$;

-- _sas.must_name(step): verbs that settle a step want to be told which.
CREATE FUNCTION _sas.must_name(step text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF step IS NULL THEN
        RAISE EXCEPTION 'the step must not be null'
            USING ERRCODE = 'null_value_not_allowed', DETAIL = 'At /step.',
            HINT = 'See sas.steps for the steps of a run. An element of a map is written "pack[3]".';
    END IF;
END $$;

-- _sas.retry_runs_as(...): what has failed gets another window, with its failures counted anew; what rests
-- before one has it now. step null: all that has failed. new_key: under another Idempotency-Key. That of a
-- call in doubt is given up only for a step that is named: whoever does so says that it was not carried out.
CREATE FUNCTION _sas.retry_runs_as(caller oid, run_ids bigint[], for_step text, new_key boolean)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
    SET jit = off AS $$
#variable_conflict use_column
DECLARE
    named _sas.named[] := _sas.operate(caller, run_ids);
    targets _sas.target[];
    p record;
    doubtful _sas.target[];
    left_over bigint[];
BEGIN
    targets := _sas.targets(named, $3);
    IF $3 ~ E'\\[' THEN
        RAISE EXCEPTION 'a single element of a map cannot be retried'
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /step.',
            HINT = 'Name the step without the element. Its failed elements are retried.';
    END IF;
    -- the run of a retry by step goes on, others that failed stay; an element counts for its step
    SELECT * INTO p FROM _sas.pick_targets(named, targets, CASE WHEN $3 IS NULL THEN '{failed,undo,redo}'
                                   ELSE '{failed,undo,redo,resting}' END::text[]);
    IF $3 IS NULL THEN
        p.unfit := '{}';
    END IF;
    IF new_key THEN
        doubtful := ARRAY(SELECT ROW(t.*)::_sas.target FROM unnest(p.fit) t
                          JOIN _sas.step s ON s.run_id = t.run_id AND s.step_no = t.step_no
                          AND s.element = t.element
                          WHERE $3 IS NULL AND s.in_doubt);
        p.fit := ARRAY(SELECT ROW(t.*)::_sas.target FROM unnest(p.fit) t
                       WHERE NOT EXISTS (SELECT FROM unnest(doubtful) d WHERE d.run_id = t.run_id)
                       ORDER BY t.run_id, t.step_no, t.element);
        PERFORM _sas.give_new_keys(p.fit);
    END IF;
    PERFORM _sas.try_again(p.fit, $3 IS NOT NULL);
    PERFORM _sas.record_steps(caller, p.fit, 'retry', CASE WHEN new_key THEN '{"new_key": true}'::jsonb END);
    RETURN QUERY
    SELECT t.run_id, t.step, t.changed, t.state, t.result,
           coalesce((SELECT format('step "%s" of run %s is in doubt: what was tried under its key may have '
                                   'been carried out; name the step if you know that it was not, or retry it '
                                   'under that key', d.label, d.run_id)
                     FROM unnest(doubtful) d WHERE d.run_id = t.run_id LIMIT 1), t.refused)
    FROM _sas.report_steps('retry', named, $3, p.fit, p.unfit) t;
END $$;

-- _sas.give_new_keys(targets): what these steps, or their undos, are tried under from now on.
CREATE FUNCTION _sas.give_new_keys(targets _sas.target[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    -- the call of a step that failed with its fallback is that of the fallback
    WITH given AS (
        INSERT INTO _sas.override AS d (run_id, step_no, element, key, undo_key)
        SELECT t.run_id, CASE WHEN t.situation = 'failed' AND w.shape ? 'fallback'
            AND _sas.fell_back(t.run_id, t.element, w.shape) THEN (w.shape #>> '{fallback,no}')::int
            ELSE t.step_no END, t.element,
               CASE WHEN t.state <> 'compensating' THEN gen_random_uuid()::text END, CASE
                   WHEN t.state = 'compensating' THEN gen_random_uuid()::text END
        FROM unnest(targets) t
        JOIN _sas.run r ON r.run_id = t.run_id
        JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = t.step_no AND NOT w.undo
        ON CONFLICT (run_id, step_no, element) DO UPDATE
            SET key = coalesce(EXCLUDED.key, d.key), undo_key = coalesce(EXCLUDED.undo_key, d.undo_key)
        RETURNING d.run_id, d.step_no, d.element)
    UPDATE _sas.step s SET in_doubt = false
    FROM given g WHERE s.run_id = g.run_id AND s.step_no = g.step_no AND s.element = g.element AND s.in_doubt;
END $$;

-- _sas.try_again(targets, by_step): these have another window; their runs go on. by_step: what else has
-- failed there is left as it is.
CREATE FUNCTION _sas.try_again(targets _sas.target[], by_step boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    paused bigint[];
    going _sas.step_change[];
BEGIN
    PERFORM _sas.end_rests(ARRAY(SELECT ROW(t.*)::_sas.target FROM unnest(targets) t));
    paused := ARRAY(SELECT DISTINCT t.run_id FROM unnest(targets) t JOIN _sas.run r ON r.run_id = t.run_id
                    AND r.state = 'paused');
    -- failed steps that were left aside by an earlier retry of another, in runs that go on
    SELECT array_agg(_sas.make_step_change(
               run_id => t.run_id, step_no => t.step_no, element => t.element, from_state => 'failed',
               to_state => 'ready', failure_count => 0))
    INTO going
    FROM unnest(targets) t
    JOIN _sas.run r ON r.run_id = t.run_id AND r.state <> 'paused' AND r.abandon_as IS NULL
    JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = t.step_no AND NOT w.undo
    WHERE t.situation = 'failed' AND NOT coalesce(w.shape ? 'fallback'
                                                  AND _sas.fell_back(t.run_id, t.element, w.shape), false);
    PERFORM _sas.move_steps(going);
    PERFORM _sas.resume_fallbacks(ARRAY(SELECT DISTINCT t.run_id FROM unnest(targets) t
                                        JOIN _sas.run r ON r.run_id = t.run_id AND r.state <> 'paused'),
                                  ARRAY(SELECT t.run_id FROM unnest(targets) t),
                                      ARRAY(SELECT t.step_no FROM unnest(targets) t));
    PERFORM _sas.requeue(array_agg(g.run_id), array_agg(g.step_no), array_agg(g.element))
        FROM unnest(going) g;
    IF paused <> '{}' AND by_step THEN
        PERFORM _sas.continue_runs(paused, ARRAY(SELECT t.run_id FROM unnest(targets) t),
                               ARRAY(SELECT t.step_no FROM unnest(targets) t));
    ELSIF paused <> '{}' THEN
        PERFORM _sas.continue_runs(paused);
    END IF;
END $$;

-- _sas.end_rests(targets): what rests before another window, of a step or an undo, has it now.
CREATE FUNCTION _sas.end_rests(targets _sas.target[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE _sas.message d SET due_at = _sas.now()
    FROM unnest(targets) t JOIN _sas.step s ON s.run_id = t.run_id AND s.step_no = t.step_no
        AND s.element = t.element
    WHERE s.waiting_kind IN ('cool_off', 'agent') AND s.waiting_until > _sas.now()
      AND d.actor = 's' AND d.due_at = s.waiting_until AND d.run_id = s.run_id AND d.kind = 'ready'
          AND d.step_no = s.step_no AND d.element = s.element;
    IF FOUND THEN
        UPDATE _sas.step s SET waiting_until = _sas.now()
        FROM unnest(targets) t
        WHERE s.run_id = t.run_id AND s.step_no = t.step_no AND s.element = t.element
            AND s.waiting_kind IN ('cool_off', 'agent') AND s.waiting_until > _sas.now();
        PERFORM _sas.wake('{}', true, false, '{}');
    END IF;
END $$;

-- _sas.settle_named(caller, verb, run_ids, step, states, completed, output, given): what skip and
-- force_complete have in common. states: those that the verb can be applied to; given: the output as the
-- operator wrote it, for the record.
CREATE FUNCTION _sas.settle_named(caller oid, verb text, run_ids bigint[], for_step text, states text[],
                                  completed boolean, output jsonb, given jsonb)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    named _sas.named[];
    p record;
BEGIN
    PERFORM _sas.must_name($4);
    named := _sas.operate(caller, $3);
    SELECT * INTO p FROM _sas.pick_targets(named, _sas.targets(named, $4), states);
    PERFORM _sas.settle(p.fit, completed, $7);
    PERFORM _sas.record_steps(caller, p.fit, verb, CASE
                              WHEN given IS NOT NULL THEN jsonb_build_object('output', given) END);
    RETURN QUERY SELECT * FROM _sas.report_steps(verb, named, $4, p.fit, p.unfit);
END $$;

CREATE FUNCTION _sas.skip_runs_as(caller oid, run_ids bigint[], for_step text, output jsonb)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
    SET jit = off AS $$
BEGIN
    RETURN QUERY SELECT * FROM _sas.settle_named($1, 'skip', $2, $3,
                                                 '{failed,resting,ready,suspended,undo,due}', false, $4, $4);
END $$;

CREATE FUNCTION _sas.force_complete_runs_as(caller oid, run_ids bigint[], for_step text, output jsonb)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
    SET jit = off AS $$
BEGIN
    RETURN QUERY SELECT * FROM _sas.settle_named($1, 'force_complete', $2, $3,
                                                 '{failed,resting,ready,suspended,running,undo,due,redo}',
                                                 true, coalesce($4, 'null'), $4);
END $$;

-- _sas.settle(targets, completed, output): an operator says what became of these steps, or of their undos:
-- they are completed, or skipped.
--
-- Caller: holds the lock of the runs, and of what is ready of them. Writes: ready, due, step, run.
-- Wakes: agent workers, to stop a call that is decided over. Next: what follows in runs that go on is
-- _sas.settled_forward, in others _sas.close_steps; what a rule paused is resumed.
CREATE FUNCTION _sas.settle(targets _sas.target[], completed boolean, output jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := _sas.now();
    changes _sas.step_change[];
    ids bigint[] := ARRAY(SELECT DISTINCT t.run_id FROM unnest(targets) t ORDER BY 1);
    leases bigint[];
BEGIN
    IF ids = '{}' THEN
        RETURN;
    END IF;
    PERFORM _sas.take_ready_steps(array_agg(t.run_id), array_agg(t.step_no), array_agg(t.element)),
            _sas.forget_timers(array_agg(t.run_id), array_agg(t.step_no), array_agg(t.element))
    FROM unnest(targets) t;
    PERFORM _sas.start_runs(ids);
    SELECT array_agg(_sas.make_step_change(
               run_id => t.run_id, step_no => t.step_no, element => t.element,
               from_state => coalesce(s.state, 'none'),
               to_state => CASE WHEN NOT completed THEN 'skipped'
                                WHEN s.state = 'compensating' THEN 'compensated'
                                ELSE 'succeeded' END,
               in_doubt => CASE WHEN completed THEN false END,
               output => CASE WHEN s.state IS DISTINCT FROM 'compensating' THEN $3 END,
               error => CASE WHEN completed THEN NULL
                             WHEN r.abandon_as IS NOT NULL
                                 THEN _sas.problem_object('left-standing',
                                                          CASE s.state WHEN 'compensating'
                                                              THEN 'an operator skipped its undo'
                                                              ELSE 'an operator skipped it' END,
                                                          CASE WHEN s.error ? 'title'
                                                              THEN _sas.title(s.error) END,
                                                          NULL, t.run_id, w.name)
                             WHEN s.error IS NULL
                                 THEN _sas.problem_object('skipped', 'an operator skipped the step',
                                                          NULL, NULL, t.run_id, w.name) END,
               completion => CASE WHEN completed AND s.state IS DISTINCT FROM 'compensating'
                                 THEN nextval('_sas.completion_seq') END,
               started_at => now, finished_at => now)),
           array_agg(DISTINCT s.lease_id) FILTER (WHERE s.request_id IS NOT NULL)
    INTO changes, leases
    FROM unnest(targets) t
    JOIN _sas.run r ON r.run_id = t.run_id
    JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = t.step_no AND NOT w.undo
    LEFT JOIN LATERAL (SELECT * FROM _sas.step x WHERE x.run_id = t.run_id AND x.step_no = t.step_no
                       AND x.element = t.element OFFSET 0) s ON true;
    PERFORM _sas.move_steps(changes);
    IF leases IS NOT NULL THEN
        PERFORM _sas.expire_leases(leases);
        PERFORM _sas.stop_calls();
    END IF;

    PERFORM _sas.settled_forward(ARRAY(SELECT c FROM unnest(changes) c
                                       JOIN _sas.run r ON r.run_id = c.run_id
                                           AND r.abandon_as IS NULL), completed);
    PERFORM _sas.undone_substitute(changes) WHERE completed;
    -- of a run that cannot go on, what was open is closed; what had failed was not open any more
    PERFORM _sas.close_steps(array_agg(c.run_id)) FROM unnest(changes) c
        JOIN _sas.run r ON r.run_id = c.run_id AND r.abandon_as IS NOT NULL WHERE c.from_state <> 'failed'
        HAVING count(*) > 0;
    PERFORM _sas.free_slots(ids);

    PERFORM _sas.resume_settled(ids);
END $$;

-- _sas.resume_settled(run_ids): those of these runs that a rule paused go on when nothing that failed is left
-- in them.
CREATE FUNCTION _sas.resume_settled(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM _sas.continue_runs(array_agg(r.run_id))
    FROM _sas.run r
    WHERE r.run_id = ANY ($1) AND r.state = 'paused' AND r.paused_by = 'sas supervisor'
      AND r.paused_for IS DISTINCT FROM 'its deadline has passed'
      AND NOT EXISTS (SELECT FROM _sas.step s
                      JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = s.step_no
                          AND NOT w.undo AND NOT coalesce(w.shape ? 'stands_in', false)
                      WHERE s.run_id = r.run_id
                        AND (s.state = 'compensating'
                             OR s.state = 'failed' AND (r.abandon_as IS NULL OR s.in_doubt)))
    HAVING count(*) > 0;
END $$;

-- _sas.settled_forward(changes, completed): what follows in runs that go on.
CREATE FUNCTION _sas.settled_forward(changes _sas.step_change[], completed boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    ok record;
BEGIN
    IF completed THEN
        -- undone by hand: its fallback is next
        PERFORM _sas.fall_back(array_agg(c.run_id), array_agg(c.step_no), array_agg(c.element))
            FROM unnest(changes) c WHERE c.to_state = 'compensated' HAVING count(*) > 0;
        SELECT array_agg(c.run_id) AS run_ids, array_agg(c.step_no) AS step_nos,
            array_agg(c.element) AS elements INTO ok FROM unnest(changes) c WHERE c.to_state = 'succeeded';
        IF ok.run_ids IS NOT NULL THEN
            SELECT i.run_ids, i.step_nos, i.elements INTO ok
            FROM _sas.substituted(ok.run_ids, ok.step_nos, ok.elements) i;
            PERFORM _sas.go_on(ok.run_ids, ok.step_nos, ok.elements);
        END IF;
        RETURN;
    END IF;
    -- the run ends with a warning
    UPDATE _sas.run r SET error = s.error
    FROM unnest(changes) c JOIN _sas.step s ON s.run_id = c.run_id AND s.step_no = c.step_no
        AND s.element = c.element
    WHERE r.run_id = c.run_id;
    PERFORM _sas.after_skip(array_agg(c.run_id), array_agg(c.step_no)) FROM unnest(changes) c
        WHERE c.element = 0 HAVING count(*) > 0;
    PERFORM _sas.count_elements(array_agg(c.run_id), array_agg(c.step_no), 1) FROM unnest(changes) c
        WHERE c.element > 0 HAVING count(*) > 0;
END $$;

-- _sas.set_input_runs_as(...): what the step is given, or sends, when it is tried next: for a call the body,
-- form or text; for a map as a
-- whole, the array. It says nothing of when that is: sas.retry.
CREATE FUNCTION _sas.set_input_runs_as(caller oid, run_ids bigint[], for_step text, input jsonb)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
    SET jit = off AS $$
#variable_conflict use_column
DECLARE
    named _sas.named[];
    targets _sas.target[];
    p record;
    wrong record;
BEGIN
    PERFORM _sas.must_name($3);
    IF $4 IS NULL THEN
        RAISE EXCEPTION 'the input must not be null'
            USING ERRCODE = 'null_value_not_allowed', DETAIL = 'At /input.',
            HINT = 'Pass jsonb, ''null'' for a JSON null.';
    ELSIF pg_column_size($4) > _sas.max_input_size() THEN
        RAISE EXCEPTION 'the input has more than % bytes', _sas.max_input_size()
            USING ERRCODE = 'program_limit_exceeded', DETAIL = 'At /input.',
            HINT = 'See the setting sas.max_input_size.';
    END IF;
    named := _sas.operate(caller, run_ids);
    targets := _sas.targets(named, $3);
    SELECT * INTO p FROM _sas.pick_targets(named, targets, '{failed,deciding,resting,ready}');
    SELECT array_agg(ROW(x.run_id, NULL, NULL, NULL, NULL, x.why)::_sas.named) AS named,
        array_agg(x.run_id) AS ids INTO wrong
    FROM (SELECT DISTINCT ON (t.run_id) t.run_id, CASE
          WHEN t.n > 1 THEN format('step "%s" of run %s has %s elements; name one, such as "%s"', $3,
                                   t.run_id, t.n, t.label)
                                                       ELSE format('step "%s" of run %s ', t.label, t.run_id)
                                                           || _sas.unfit_input(r, w,
                                                                   ROW(t.run_id, t.step_no, t.element,
                                                                       t.label, t.situation, t.state,
                                                                       t.note)::_sas.target, $4) END AS why
          FROM (SELECT f.*, count(*) OVER (PARTITION BY f.run_id) AS n FROM unnest(p.fit) f) t
          JOIN _sas.run r ON r.run_id = t.run_id
          JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = t.step_no AND NOT w.undo
          WHERE t.n > 1 OR _sas.unfit_input(r, w,
                                            ROW(t.run_id, t.step_no, t.element, t.label, t.situation,
                                                t.state, t.note)::_sas.target, $4) IS NOT NULL
              ORDER BY t.run_id, t.element) x;
    p.fit := ARRAY(SELECT ROW(t.*)::_sas.target FROM unnest(p.fit) t
                   WHERE NOT coalesce(t.run_id = ANY (wrong.ids), false)
                   ORDER BY t.run_id, t.step_no, t.element);
    INSERT INTO _sas.override (run_id, step_no, element, input) SELECT t.run_id, t.step_no, t.element, $4
    FROM unnest(p.fit) t
    ON CONFLICT (run_id, step_no, element) DO UPDATE SET input = EXCLUDED.input;
    PERFORM _sas.reopen_phases(p.fit, $4);
    PERFORM _sas.record_steps(caller, p.fit, 'set_input', jsonb_build_object('input', $4));
    RETURN QUERY
    SELECT t.run_id, t.step, t.changed, t.state, t.result,
        coalesce((SELECT x.refused FROM unnest(wrong.named) x WHERE x.run_id = t.run_id), t.refused)
    FROM _sas.report_steps('set_input', named, $3, p.fit, p.unfit) t;
END $$;

-- _sas.reopen_phases(targets, input): what middleware has made of the input before is made anew.
CREATE FUNCTION _sas.reopen_phases(targets _sas.target[], input jsonb) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE _sas.phase g SET stage = CASE WHEN g.stage = 'call' AND g.request IS NOT NULL THEN 'before'
        ELSE g.stage END, request = CASE g.stage WHEN 'plan' THEN $2 END, response = NULL
    FROM unnest(targets) t WHERE g.run_id = t.run_id AND g.step_no = t.step_no AND g.element = t.element
        AND NOT g.undo;
    IF FOUND THEN
        PERFORM _sas.hand_to_functions(array_agg(t.run_id), array_agg(t.step_no), array_agg(t.element))
        FROM unnest(targets) t
        JOIN _sas.phase g ON g.run_id = t.run_id AND g.step_no = t.step_no AND g.element = t.element
            AND NOT g.undo AND g.stage = 'before';
    END IF;
END $$;

-- _sas.unfit_input(r, w, t, input): why this cannot be the input of that step; null when it can.
CREATE FUNCTION _sas.unfit_input(r _sas.run, w _sas.workflow_step, t _sas.target, input jsonb) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN r.abandon_as IS NOT NULL THEN 'belongs to a run that cannot continue'
                WHEN (SELECT s.asks IS NOT NULL FROM _sas.step s WHERE s.run_id = t.run_id
                      AND s.step_no = t.step_no AND s.element = t.element)
                    THEN 'has sent its call already, and only polls'
                WHEN t.element = 0 AND w.shape ? 'each' THEN CASE
                    WHEN jsonb_typeof(input) <> 'array' THEN 'is a map, so its input must be an array'
                                                                  WHEN EXISTS (SELECT FROM _sas.map_progress f
                                                                              WHERE f.run_id = t.run_id
                                                                              AND f.step_no = t.step_no)
                                        THEN 'has begun its elements' END
                WHEN t.element = 0 AND w.shape ? 'repeat'
                    THEN 'repeats, and its input is built for each iteration'
                WHEN r.version_id IS NOT NULL
                    AND w.step_no = (SELECT v.finalize_no FROM _sas.workflow_version v
                                     WHERE v.version_id = r.version_id)
                    THEN 'is given the whole run; what it reads cannot be set'
                WHEN w.kind IN ('wait', 'join') THEN 'has no input'
                WHEN w.kind = 'workflow' AND jsonb_typeof(input) <> 'object'
                    THEN 'begins a run, whose input must be an object'
                WHEN w.kind = 'call' THEN CASE _sas.body_part(w.request)
                    WHEN 'form' THEN CASE WHEN jsonb_typeof(input) <> 'object'
                        THEN 'sends a form, which must be an object' END
                    WHEN 'text' THEN CASE WHEN jsonb_typeof(input) <> 'string'
                        THEN 'sends text, which must be a string' END
                    WHEN 'body' THEN NULL
                    ELSE 'sends no body; its path and query cannot be set, but sas.force_complete '
                         'can store its result' END
           END
$$;

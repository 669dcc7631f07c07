-- SPDX-License-Identifier: PostgreSQL
--
-- Verbs of operators for steps. A step is named as in sas.steps; "pack" of a map means those of its
-- elements to which the verb can be applied, "pack[3]" means one element.

-- _sas.failed_below(run_ids): these runs, and the runs below them that an operator has to decide on after a
-- failure; none below a run that is paused for another reason. root: the given run that this one is, or is
-- below.
CREATE FUNCTION _sas.failed_below(run_ids bigint[]) RETURNS TABLE (root bigint, run_id bigint)
LANGUAGE sql STABLE AS $$
    WITH RECURSIVE below AS (
        SELECT u AS root, u AS run_id FROM unnest($1) u WHERE u IS NOT NULL
        UNION
        SELECT b.root, c.run_id FROM below b
        JOIN _sas.run r ON r.run_id = b.run_id
        CROSS JOIN LATERAL (SELECT x.run_id FROM _sas.run x WHERE x.parent_run_id = b.run_id
                            AND x.state <> 'stopped' OFFSET 0) c
        WHERE r.state <> 'paused' OR (SELECT true FROM _sas.step s WHERE s.run_id = r.run_id
                                      AND s.state = 'failed' LIMIT 1))
    SELECT b.root, b.run_id FROM below b
    LEFT JOIN LATERAL (SELECT x.state, x.paused_state FROM _sas.run x
                       WHERE x.run_id = b.run_id OFFSET 0) r ON true
    WHERE b.run_id = b.root OR r.state = 'paused' OR r.paused_state = 'held'
$$;

-- _sas.retry_runs_as(...): the body of sas.retry_runs. Failed steps get another window, and their failures
-- are counted from zero; steps in a cool-off get their window now; steps that were skipped for a failure, or
-- by an operator, run. step null: all failed steps, also those of the runs below; of these only what is
-- retried is reported, in place of the run above. new_key: under another Idempotency-Key. The key of a call
-- in doubt, or of a poll whose call has begun something, is given up only for a step that is named: by that
-- the operator states that the call was not carried out, or that what it began is gone. A poll then makes its
-- call again.
CREATE FUNCTION _sas.retry_runs_as(caller oid, run_ids bigint[], for_step text, new_key boolean)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    roots bigint[];
    members bigint[];
    named _sas.named[];
    targets _sas.target[];
    p record;
    doubtful _sas.target[];
BEGIN
    SELECT array_agg(f.root), array_agg(f.run_id) INTO roots, members FROM _sas.failed_below($2) f
    WHERE $3 IS NULL;
    named := _sas.operate(caller, $2 || members);
    targets := _sas.targets(named, $3);
    IF $3 ~ E'\\[' THEN
        RAISE EXCEPTION 'a single element of a map cannot be retried'
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /step.',
            HINT = 'Name the step without the element. Its failed elements are retried.';
    END IF;
    -- after a retry by step the run continues, and other failed steps stay failed; an element counts for
    -- its step
    SELECT * INTO p FROM _sas.pick_targets(targets, CASE WHEN $3 IS NULL THEN '{failed,undo,redo}'
                                   WHEN new_key THEN '{failed,undo,redo,resting,skipped,asking,reasking}'
                                   ELSE '{failed,undo,redo,resting,skipped}' END::text[]);
    IF $3 IS NULL THEN
        p.unfit := '{}';
    END IF;
    IF new_key THEN
        doubtful := ARRAY(SELECT ROW(t.run_id, t.step_no, t.element, t.label, t.situation, t.state,
                                     CASE WHEN o.asks IS NOT NULL THEN 'begun' END)::_sas.target
                          FROM unnest(p.fit) t
                          CROSS JOIN LATERAL _sas.step_row(t.run_id, t.step_no, t.element) s
                          LEFT JOIN LATERAL _sas.poll_of(s) o ON true
                          WHERE $3 IS NULL AND (s.in_doubt OR o.asks IS NOT NULL));
        p.fit := ARRAY(SELECT ROW(t.*)::_sas.target FROM unnest(p.fit) t
                       WHERE NOT EXISTS (SELECT FROM unnest(doubtful) d WHERE d.run_id = t.run_id)
                       ORDER BY t.run_id, t.step_no, t.element);
        PERFORM _sas.give_new_keys(p.fit);
    END IF;
    PERFORM _sas.try_again(p.fit, $3 IS NOT NULL);
    PERFORM _sas.close_held(p.fit);
    PERFORM _sas.record_steps(caller, p.fit, 'retry', CASE WHEN new_key THEN '{"new_key": true}'::jsonb END);
    RETURN QUERY
    SELECT t.run_id, t.step, t.changed, t.state, t.result,
           coalesce((SELECT format(CASE WHEN d.note IS NULL
                                   THEN 'step "%s" of run %s is in doubt: what was tried under its key may '
                                        'have been carried out; name the step if you know that it was not, '
                                        'or retry it under that key'
                                   ELSE 'the call of step "%s" of run %s has begun something; name the step '
                                        'if you know that this is gone, or retry it under its key' END,
                                   d.label, d.run_id)
                     FROM unnest(doubtful) d WHERE d.run_id = t.run_id LIMIT 1), t.refused)
    FROM _sas.report_steps('retry', _sas.named_with(named, $2, roots, members,
                                                    ARRAY(SELECT DISTINCT x.run_id
                                                          FROM unnest(p.fit || doubtful) x)),
                           $3, p.fit, p.unfit) t;
END $$;

-- _sas.named_with(named, run_ids, roots, members, found): of runs and those below them (roots, members), the
-- ones that a verb reports: where it has found something, and the given ones that have found nothing below.
CREATE FUNCTION _sas.named_with(named _sas.named[], run_ids bigint[], roots bigint[], members bigint[],
                                found bigint[]) RETURNS _sas.named[]
LANGUAGE sql IMMUTABLE AS $$
    SELECT array_agg(n ORDER BY n.run_id) FROM unnest(named) n
    WHERE n.run_id = ANY (found) OR n.run_id IS NULL
       OR n.run_id = ANY (run_ids)
          AND NOT EXISTS (SELECT FROM unnest(roots, members) AS m (root, run_id)
                          WHERE m.root = n.run_id AND m.run_id = ANY (found))
$$;

-- _sas.give_new_keys(targets): gives these steps, or their undos, new keys for further attempts. What the
-- call of a poll has begun is forgotten. A call that has succeeded, and whose middleware comes next, keeps
-- its key.
-- Writes: phase, override, step.
CREATE FUNCTION _sas.give_new_keys(targets _sas.target[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM _sas.phase g USING unnest(targets) t
    WHERE t.state = 'compensating' AND g.run_id = t.run_id AND g.step_no = t.step_no
      AND g.element = t.element AND g.undo AND g.stage = 'poll';
    -- for a step that failed with its fallback, the call is that of the fallback
    WITH given AS (
        INSERT INTO _sas.override AS d (run_id, step_no, element, key, undo_key)
        SELECT t.run_id, CASE WHEN t.situation = 'failed' AND w.shape ? 'fallback'
            AND _sas.fell_back(t.run_id, t.element, w.shape) THEN (w.shape #>> '{fallback,no}')::int
            ELSE t.step_no END, t.element,
               CASE WHEN t.state <> 'compensating' THEN gen_random_uuid()::text END, CASE
                   WHEN t.state = 'compensating' THEN gen_random_uuid()::text END
        FROM unnest(targets) t
        JOIN _sas.run r ON r.run_id = t.run_id
        CROSS JOIN LATERAL _sas.step_definition(r.version_id, t.step_no) w
        WHERE NOT EXISTS (SELECT FROM _sas.phase g WHERE g.run_id = t.run_id AND g.step_no = t.step_no
                          AND g.element = t.element AND g.stage = 'after' AND NOT g.undo)
        ON CONFLICT (run_id, step_no, element) DO UPDATE
            SET key = coalesce(EXCLUDED.key, d.key), undo_key = coalesce(EXCLUDED.undo_key, d.undo_key)
        RETURNING d.run_id, d.step_no, d.element, d.key)
    UPDATE _sas.step s
    SET in_doubt = false, started = CASE WHEN k.kept THEN s.started END,
        asks = CASE WHEN k.kept THEN s.asks END, ask_until = CASE WHEN k.kept THEN s.ask_until END,
        progress = CASE WHEN k.kept THEN s.progress END
    FROM given g
    CROSS JOIN LATERAL (SELECT g.key IS NULL AS kept) k
    WHERE s.run_id = g.run_id AND s.step_no = g.step_no AND s.element = g.element
        AND (s.in_doubt OR s.asks IS NOT NULL);
END $$;

-- _sas.try_again(targets, by_step): gives these steps another window, or skipped ones their first; their runs
-- continue. by_step: other failed steps stay failed.
CREATE FUNCTION _sas.try_again(targets _sas.target[], by_step boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    paused bigint[];
    going _sas.step_change[];
BEGIN
    PERFORM _sas.end_rests(ARRAY(SELECT ROW(t.*)::_sas.target FROM unnest(targets) t));
    PERFORM _sas.reopen_skipped(targets);
    paused := ARRAY(SELECT DISTINCT t.run_id FROM unnest(targets) t JOIN _sas.run r ON r.run_id = t.run_id
                    AND r.state = 'paused');
    -- failed steps that an earlier retry of another step has left, in runs that continue
    SELECT array_agg(_sas.make_step_change(
               run_id => t.run_id, step_no => t.step_no, element => t.element, from_state => 'failed',
               to_state => 'ready', failure_count => 0))
    INTO going
    FROM unnest(targets) t
    JOIN _sas.run r ON r.run_id = t.run_id AND r.state <> 'paused' AND r.abandon_as IS NULL
    CROSS JOIN LATERAL _sas.step_definition(r.version_id, t.step_no) w
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

-- _sas.end_rests(targets): ends the cool-off of these steps, or undos, and the pause before the next status
-- request of polls, now.
-- Writes: message, step. Wakes: the scheduler.
CREATE FUNCTION _sas.end_rests(targets _sas.target[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas.now();
BEGIN
    UPDATE _sas.message d SET due_at = now, urgent = true
    FROM unnest(targets) t
    CROSS JOIN LATERAL _sas.step_row(t.run_id, t.step_no, t.element) s
    WHERE s.waiting_kind IN ('cool_off', 'agent', 'poll') AND s.waiting_until > now
      AND d.actor = 's' AND d.due_at = s.waiting_until AND d.run_id = s.run_id AND d.kind = 'ready'
          AND d.step_no = s.step_no AND d.element = s.element;
    IF FOUND THEN
        UPDATE _sas.step s SET waiting_until = now
        FROM unnest(targets) t
        WHERE s.run_id = t.run_id AND s.step_no = t.step_no AND s.element = t.element
            AND s.waiting_kind IN ('cool_off', 'agent', 'poll') AND s.waiting_until > now;
        PERFORM _sas.wake(scheduler => true);
    END IF;
END $$;

-- _sas.settle_named(caller, verb, run_ids, for_step, states, completed, output, given): what skip and
-- force_complete have in common. states: the situations to which the verb can be applied. given: the output
-- as the operator wrote it, for the history.
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
    PERFORM _sas.check_size(given, _sas.max_output_size(), '/output', 'the output');
    named := _sas.operate(caller, $3);
    IF given IS NOT NULL THEN
        named := _sas.refuse_data(caller, named, false);
    END IF;
    SELECT * INTO p FROM _sas.pick_targets(_sas.by_element(_sas.targets(named, $4)), states);
    PERFORM _sas.settle(p.fit, completed, $7);
    PERFORM _sas.close_held(p.fit);
    PERFORM _sas.record_steps(caller, p.fit, verb, CASE
                              WHEN given IS NOT NULL THEN jsonb_build_object('output', given) END);
    RETURN QUERY SELECT * FROM _sas.report_steps(verb, named, $4, p.fit, p.unfit);
END $$;

-- _sas.skip_runs_as(caller, run_ids, for_step, output): the body of sas.skip_runs: the step counts as
-- skipped, with that output. Next: _sas.settle_named.
CREATE FUNCTION _sas.skip_runs_as(caller oid, run_ids bigint[], for_step text, output jsonb)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT * FROM _sas.settle_named($1, 'skip', $2, $3,
                                                 '{failed,resting,ready,suspended,asking,undo,due}', false,
                                                 $4, $4);
END $$;

-- _sas.force_complete_runs_as(caller, run_ids, for_step, output): the body of sas.force_complete_runs: the
-- step, or its undo, counts as done; a call in progress is stopped. Next: _sas.settle_named.
CREATE FUNCTION _sas.force_complete_runs_as(caller oid, run_ids bigint[], for_step text, output jsonb)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT * FROM _sas.settle_named($1, 'force_complete', $2, $3,
                                                 '{failed,resting,ready,suspended,asking,running,undo,due,'
                                                 'redo,reasking}', true, coalesce($4, 'null'), $4);
END $$;

-- _sas.settle(targets, completed, output): stores an operator's decision on these steps, or on their undos:
-- they are completed, or skipped.
-- Caller: holds the lock of the runs, and of their ready rows. Writes: ready, message, step, run. Wakes:
-- agent workers, to stop a call that is decided. Next: _sas.settled_forward in runs that continue,
-- _sas.close_steps in others; runs that a rule paused are resumed.
CREATE FUNCTION _sas.settle(targets _sas.target[], completed boolean, output jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas.now();
    changes _sas.step_change[];
    ids bigint[] := ARRAY(SELECT DISTINCT t.run_id FROM unnest(targets) t ORDER BY 1);
    leases bigint[];
    requests uuid[];
BEGIN
    IF ids = '{}' THEN
        RETURN;
    END IF;
    PERFORM _sas.take_ready_steps(array_agg(t.run_id), array_agg(t.step_no), array_agg(t.element)),
            _sas.forget_timers(array_agg(t.run_id), array_agg(t.step_no), array_agg(t.element)),
            _sas.uncount_elements(array_agg(t.run_id), array_agg(t.step_no), array_agg(t.element))
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
                                                          why.title, NULL, t.run_id, w.name)
                             -- an output that was given is told by this from one that was not accepted
                             WHEN s.error IS NULL OR $3 IS NOT NULL
                                 THEN _sas.problem_object('skipped', 'an operator skipped the step',
                                                          why.title, NULL, t.run_id, w.name) END,
               completion => CASE WHEN completed AND s.state IS DISTINCT FROM 'compensating'
                                 THEN nextval('_sas.completion_seq') END,
               started_at => now, finished_at => now)),
           array_agg(DISTINCT s.lease_id) FILTER (WHERE s.request_id IS NOT NULL),
           array_agg(s.request_id) FILTER (WHERE s.request_id IS NOT NULL)
    INTO changes, leases, requests
    FROM unnest(targets) t
    JOIN _sas.run r ON r.run_id = t.run_id
    CROSS JOIN LATERAL _sas.step_definition(r.version_id, t.step_no) w
    LEFT JOIN LATERAL _sas.step_row(t.run_id, t.step_no, t.element) s ON true
    CROSS JOIN LATERAL (SELECT CASE WHEN s.error ? 'title' THEN _sas.title(s.error) END AS title) why;
    PERFORM _sas.move_steps(changes), _sas.end_undo_polls(changes);
    IF leases IS NOT NULL THEN
        PERFORM _sas.expire_leases(leases);
        PERFORM _sas.stop_calls(), _sas.interrupt_functions(requests);
    END IF;
    PERFORM _sas.settled_forward(ARRAY(SELECT c FROM unnest(changes) c JOIN _sas.run r ON r.run_id = c.run_id
                                       WHERE r.abandon_as IS NULL), completed);
    PERFORM _sas.undone_substitute(changes) WHERE completed;
    -- in a run that cannot continue, open steps are closed; failed steps were no longer open
    PERFORM _sas.close_steps(array_agg(c.run_id)) FROM unnest(changes) c
        JOIN _sas.run r ON r.run_id = c.run_id AND r.abandon_as IS NOT NULL WHERE c.from_state <> 'failed'
        HAVING count(*) > 0;
    PERFORM _sas.free_slots(ids), _sas.end_settled_maps(ids), _sas.resume_settled(ids);
END $$;

-- _sas.by_element(targets): a map that has failed because of its elements is settled by them: the step itself
-- is left out, so that the outputs of the others are kept. Its elements no longer wait for its end.
CREATE FUNCTION _sas.by_element(targets _sas.target[]) RETURNS _sas.target[]
LANGUAGE sql STABLE AS $$
    SELECT array_agg(ROW(t.run_id, t.step_no, t.element, t.label, CASE
                         WHEN t.situation = 'aside' AND map.failed THEN 'failed' ELSE t.situation END,
                         t.state, t.note)::_sas.target)
    FROM unnest(targets) t
    LEFT JOIN LATERAL (SELECT x.state = 'failed' AND x.waiting_kind IS DISTINCT FROM 'supervisor'
                           AND x.error ->> 'type' = 'urn:sas:elements' AS failed FROM _sas.step x
                       WHERE x.run_id = t.run_id AND x.step_no = t.step_no AND x.element = 0
                       OFFSET 0) map ON true
    WHERE NOT (t.element = 0 AND t.situation = 'failed' AND coalesce(map.failed, false)
               AND _sas.has_failed_elements(t.run_id, t.step_no))
$$;

-- _sas.has_failed_elements(for_run, for_no): has this map elements that have failed and are not settled?
CREATE FUNCTION _sas.has_failed_elements(for_run bigint, for_no int) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM _sas.step x WHERE x.run_id = for_run AND x.step_no = for_no AND x.element > 0
                   AND x.state = 'failed')
$$;

-- _sas.is_settled_map(s): has this map failed because of elements that are all settled now?
CREATE FUNCTION _sas.is_settled_map(s _sas.step) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT s.element = 0 AND s.state = 'failed' AND s.waiting_kind IS DISTINCT FROM 'supervisor'
        AND coalesce(s.error ->> 'type' = 'urn:sas:elements', false)
        AND NOT _sas.has_failed_elements(s.run_id, s.step_no)
$$;

-- _sas.end_settled_maps(run_ids): ends the maps of these runs whose failed elements are all settled. A paused
-- run ends them when it continues.
-- Next: _sas.begin_maps.
CREATE FUNCTION _sas.end_settled_maps(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    ended _sas.step_change[];
BEGIN
    SELECT array_agg(_sas.make_step_change(
               run_id => s.run_id, step_no => s.step_no, element => 0, from_state => 'failed',
               to_state => 'ready', failure_count => 0))
    INTO ended
    FROM _sas.run r
    CROSS JOIN LATERAL (SELECT * FROM _sas.step x WHERE x.run_id = r.run_id AND x.state = 'failed'
                        AND x.element = 0 AND _sas.is_settled_map(x) OFFSET 0) s
    WHERE r.run_id = ANY (run_ids) AND r.state <> 'paused' AND r.abandon_as IS NULL;
    PERFORM _sas.move_steps(ended);
    PERFORM _sas.requeue(array_agg(e.run_id), array_agg(e.step_no), array_agg(e.element)) FROM unnest(ended) e
    HAVING count(*) > 0;
END $$;

-- _sas.resume_settled(run_ids): continues those of these runs that a rule has paused and in which no failed
-- step is left.
CREATE FUNCTION _sas.resume_settled(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM _sas.continue_runs(array_agg(r.run_id))
    FROM _sas.run r
    WHERE r.run_id = ANY ($1) AND r.state = 'paused' AND r.paused_by = 'sas supervisor'
      AND r.paused_for IS DISTINCT FROM 'its deadline has passed'
      AND NOT EXISTS (SELECT FROM _sas.step s
                      CROSS JOIN LATERAL (SELECT FROM _sas.workflow_step x WHERE x.version_id = r.version_id
                                          AND x.step_no = s.step_no AND NOT x.undo
                                          AND NOT coalesce(x.shape ? 'stands_in', false) OFFSET 0) w
                      WHERE s.run_id = r.run_id
                        AND (s.state = 'compensating'
                             OR s.state = 'failed' AND (r.abandon_as IS NULL OR s.in_doubt))
                        AND NOT _sas.is_settled_map(s))
    HAVING count(*) > 0;
END $$;

-- _sas.settled_forward(changes, completed): does what follows in runs that continue.
-- Writes: run.
CREATE FUNCTION _sas.settled_forward(changes _sas.step_change[], completed boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    ok record;
BEGIN
    IF completed THEN
        -- undone by hand: its fallback begins
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
    FROM unnest(changes) c
    CROSS JOIN LATERAL _sas.step_row(c.run_id, c.step_no, c.element) s
    WHERE r.run_id = c.run_id;
    PERFORM _sas.after_skip(array_agg(c.run_id), array_agg(c.step_no)) FROM unnest(changes) c
        WHERE c.element = 0 HAVING count(*) > 0;
    PERFORM _sas.count_elements(array_agg(c.run_id), array_agg(c.step_no), array_agg(c.element), 1)
        FROM unnest(changes) c
        WHERE c.element > 0 HAVING count(*) > 0;
END $$;

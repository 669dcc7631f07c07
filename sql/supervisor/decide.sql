-- SPDX-License-Identifier: PostgreSQL
--
-- Decide: what follows for steps that have failed, and for runs past their deadline. First each case is
-- decided by itself, then all decisions are carried out together.

-- _sas.decide_due(quantity): decides on failed steps and on runs past their deadline. Returns how many
-- messages were taken. A message that raises an error is decided alone, so that it holds up no other
-- run.
--   locks   the runs of the messages that no other transaction holds; the other messages are deferred
--   reads   message
--   next    _sas.decide_on; then the scheduler
CREATE FUNCTION _sas.decide_due(quantity int) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    taken _sas.message[];
    done record;
BEGIN
    SELECT array_agg(d) INTO taken FROM _sas.take_messages('v', quantity) d;
    IF taken IS NULL THEN
        RETURN 0;
    END IF;
    done := _sas.apart('NULL::bigint[] FROM _sas.decide_on($1)', taken);
    PERFORM _sas.defer_message(taken[f.n], f.why, f.pause)
    FROM unnest(done.failed, done.errors, done.pauses) AS f (n, why, pause);
    RETURN cardinality(taken);
END $$;

-- _sas.auto_rescue(): for workflows that do not say it themselves: is on_failure carried out, or only
-- suggested to an operator?
CREATE FUNCTION _sas.auto_rescue() RETURNS boolean
LANGUAGE sql STABLE AS $$ SELECT coalesce(current_setting('sas.auto_rescue', true), 'on')::boolean $$;

-- _sas.suggestion(policy, run_id, step): what an operator could do, for the text of an alert. step null:
-- about the run.
CREATE FUNCTION _sas.suggestion(policy text, run_id bigint, step text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE policy WHEN 'pause' THEN ''
                       WHEN 'compensate' THEN format('; suggested: sas.compensate(%s)', run_id)
                       WHEN 'skip' THEN CASE WHEN step IS NULL
                           THEN format('; suggested: sas.halt(%s)', run_id)
                           ELSE format('; suggested: sas.skip(%s, %L)', run_id, step) END
                       ELSE format('; suggested: sas.halt(%s)', run_id) END
$$;

-- _sas.cases(taken): the current state of what these messages are about, failed steps first. Several
-- messages about the same step are one case.
CREATE FUNCTION _sas.cases(taken _sas.message[]) RETURNS SETOF _sas.failed_case
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY
    SELECT d.kind, d.run_id, d.step_no, d.element, r.state, r.abandon_as,
           coalesce(v.auto_rescue, _sas.auto_rescue()), v.on_transient, v.on_permanent,
           EXISTS (SELECT FROM _sas.workflow_step pw
                   CROSS JOIN LATERAL (SELECT FROM _sas.step p WHERE p.run_id = d.run_id
                                       AND p.step_no = pw.step_no AND p.state = 'succeeded' OFFSET 0) p
                   WHERE pw.version_id = r.version_id AND pw.pivot AND NOT pw.undo),
           s.state, s.failure_count, s.transient, s.in_doubt,
           (SELECT o.ask_until FROM _sas.poll_of(s) o), s.error, w.name, w.undo, w.lane,
           w.recovery, w.on_transient, w.on_permanent, w.shape
    FROM (SELECT DISTINCT t.kind, t.run_id, t.step_no, t.element FROM unnest(taken) t) d
    JOIN _sas.run r ON r.run_id = d.run_id
    JOIN _sas.workflow_version v ON v.version_id = r.version_id
    LEFT JOIN LATERAL _sas.step_row(d.run_id, d.step_no, d.element) s ON true
    LEFT JOIN LATERAL _sas.step_definition(r.version_id, d.step_no, s.state = 'compensating') w ON true
    WHERE d.kind IN ('deadline', 'reminder') OR s.waiting_kind = 'supervisor'
    ORDER BY d.run_id, d.kind DESC, d.step_no, d.element;
END $$;

-- _sas.decide_on(taken): decides on what these messages are about.
--   holds   the locks of the runs
--   reads   step, run, workflow_step (_sas.cases)
--   writes  timers of untimed runs; runs of the alert hook; what was decided (_sas.act_on)
CREATE FUNCTION _sas.decide_on(taken _sas.message[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    c _sas.failed_case;
    made _sas.decision[] := '{}';
BEGIN
    PERFORM _sas.write_timers(array_agg(DISTINCT d.run_id)) FROM unnest(taken) d WHERE d.kind = 'young'
        HAVING count(*) > 0;
    PERFORM _sas.fire_alert_hook(array_agg(d.alert_id)) FROM unnest(taken) d WHERE d.kind = 'alert_hook'
        HAVING count(*) > 0;
    FOREACH c IN ARRAY ARRAY(SELECT x FROM _sas.cases(taken) x) LOOP
        CONTINUE WHEN c.kind = 'deadline' AND NOT _sas.mark_overdue(c.run_id);
        -- this tick has already decided on the run
        CONTINUE WHEN EXISTS (SELECT FROM unnest(made) m WHERE m.run_id = c.run_id
                              AND (m.what = 'doom' OR m.what = 'pause' AND c.kind = 'deadline'));
        made := made || CASE c.kind WHEN 'deadline' THEN _sas.decide_deadline(c)
            WHEN 'reminder' THEN _sas.remind(c) ELSE _sas.decide_failure(c, made) END;
    END LOOP;
    PERFORM _sas.act_on(made);
END $$;

-- _sas.mark_overdue(id): marks that the passed deadline of this run is handled now. False: that was done
-- before, or the run has another deadline by now, or has ended. A run may have two timers: a deferred one,
-- and one that _sas.set_timers has written meanwhile.
-- Writes: run.
CREATE FUNCTION _sas.mark_overdue(id bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE _sas.run r SET overdue = true WHERE r.run_id = id AND r.overdue IS NULL
        AND r.deadline <= sas.now() AND r.state <> 'stopped';
    RETURN FOUND;
END $$;

-- _sas.late_message(c): the alert about a run that does not continue and whose deadline has passed.
CREATE FUNCTION _sas.late_message(c _sas.failed_case) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE c.run_state
           WHEN 'paused' THEN format('run %s is paused, and its deadline has passed', c.run_id)
           WHEN 'compensating'
           THEN format('run %s is not undone yet, and its deadline has passed', c.run_id) END
$$;

-- _sas.remind(c): an undo that began at the deadline is not finished yet: raises an alert.
CREATE FUNCTION _sas.remind(c _sas.failed_case) RETURNS _sas.decision[]
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM _sas.raise_alert('deadline', 'deadline', _sas.late_message(c), NULL, c.run_id)
    WHERE _sas.late_message(c) IS NOT NULL;
    RETURN '{}';
END $$;

-- _sas.decide_deadline(c): the deadline of a run has passed. A run that is paused, or is being undone
-- already, only gets an alert: only an operator can continue it; a resume sets the timer again.
-- Writes: message.
CREATE FUNCTION _sas.decide_deadline(c _sas.failed_case) RETURNS _sas.decision[]
LANGUAGE plpgsql AS $$
DECLARE
    policy text := CASE WHEN c.past_pivot THEN 'pause' ELSE c.run_on_permanent END;
    error jsonb := _sas.problem_object('deadline', 'the deadline of the run has passed', NULL, NULL,
                                       c.run_id, NULL);
    goes_on boolean := c.run_state IN ('scheduled', 'pending', 'running') AND c.abandon_as IS NULL;
    message text := CASE WHEN NOT goes_on THEN _sas.late_message(c)
                         WHEN policy = 'pause' OR NOT c.auto_rescue
                             THEN format('run %s is paused: its deadline has passed', c.run_id)
                             || _sas.suggestion(policy, c.run_id, NULL) END;
BEGIN
    IF message IS NOT NULL THEN
        PERFORM _sas.raise_alert('deadline', 'deadline', message, NULL, c.run_id);
    END IF;
    IF NOT goes_on THEN
        RETURN '{}';
    END IF;
    IF policy = 'pause' OR NOT c.auto_rescue THEN
        RETURN ARRAY[_sas.make_decision(
            what => 'pause', run_id => c.run_id, why => 'its deadline has passed', error => error)];
    END IF;
    -- the undo that begins here has no deadline. If it has not finished at the time of the reminder, an
    -- operator gets an alert; but not if the supervisor comes so late that this would be at once
    INSERT INTO _sas.message (actor, due_at, run_id, kind)
    SELECT 'v', _sas.remind_at(r.deadline), r.run_id, 'reminder' FROM _sas.run r WHERE r.run_id = c.run_id
        AND _sas.remind_at(r.deadline) > sas.now();
    RETURN ARRAY[_sas.make_decision(
        what => 'doom', run_id => c.run_id, abandon_as => CASE policy WHEN 'skip' THEN 'fail' ELSE policy END,
        error => error)];
END $$;

-- _sas.decide_failure(c, made): decides on a failed step, or undo: another window, its fallback, or what
-- on_failure says. made: what this tick has decided before.
CREATE FUNCTION _sas.decide_failure(c _sas.failed_case, made _sas.decision[]) RETURNS _sas.decision[]
LANGUAGE plpgsql AS $$
DECLARE
    failures int := c.failure_count + 1;
    change _sas.step_change := _sas.make_step_change(
        run_id => c.run_id, step_no => c.step_no, element => c.element, from_state => c.state,
        to_state => c.state, failure_count => failures, deferred => c.state = 'compensating');
    decision _sas.decision := _sas.make_decision(
        what => 'note', run_id => c.run_id, step_no => c.step_no, element => c.element, error => c.error);
    spent boolean := c.shape ? 'fallback' AND _sas.fell_back(c.run_id, c.element, c.shape);
    -- during a pause, the step is neither undone nor replaced by its fallback
    way text := CASE WHEN c.state = 'failed' AND c.abandon_as IS NULL AND c.run_state <> 'paused'
        AND c.error ->> 'type' IS DISTINCT FROM 'urn:sas:elements'
        AND c.shape #> '{fallback,on}' ? 'failed'
        AND NOT spent THEN _sas.way_back(c.run_id, c.step_no, c.element) END;
    -- the undo needs the output of its call
    settles boolean := c.abandon_as IS NOT NULL AND c.in_doubt
        AND _sas.settles(c.run_id, c.step_no, c.element);
    parked boolean := _sas.ended_workers(c) >= 2;
BEGIN
    -- a step in doubt gets as many windows again to learn its outcome before its fallback
    IF parked AND (c.abandon_as IS NULL OR c.undo OR settles) THEN
        decision := _sas.park(c, made);
    ELSIF c.transient
       AND failures < (c.recovery ->> 'max_failures')::int * (CASE way WHEN 'known' THEN 2 ELSE 1 END)
       AND spent IS NOT TRUE AND (c.abandon_as IS NULL OR c.undo OR settles) THEN
        change.to_state := CASE c.state WHEN 'failed' THEN 'suspended' ELSE c.state END;
        change.deferred := false;
        change.waiting_kind := 'cool_off';
        change.waiting_until := least(sas.now() + _sas.cool_off(c.recovery, failures), c.ask_until);
        decision.what := 'again';
    ELSIF way = 'undo' THEN
        change.to_state := 'compensating';
        change.failure_count := 0;
        decision.what := 'settle';
    ELSIF way = 'none' THEN
        decision.what := 'fall';
    ELSIF c.state = 'failed' AND c.abandon_as IS NULL AND c.shape ? 'stands_in' THEN
        PERFORM _sas.fail_substitute(c.run_id, (c.shape ->> 'stands_in')::int, c.element, c.error,
                                     c.transient);
    ELSIF c.abandon_as IS NOT NULL AND NOT c.undo AND NOT settles THEN
        decision.what := 'close';
    ELSE
        decision := _sas.by_policy(c, made);
        change.waiting_kind := CASE decision.what WHEN 'leave' THEN 'map_end' END;
    END IF;
    decision.change := change;
    IF settles AND NOT c.undo AND decision.what <> 'again' THEN
        -- resume asks for the next undo, which is this one again
        RETURN ARRAY[decision, _sas.make_decision(
            what => 'close', run_id => c.run_id, step_no => c.step_no, element => c.element)];
    END IF;
    RETURN ARRAY[decision];
END $$;

-- _sas.ended_workers(c): how often the function of this step has ended its worker since an operator had it
-- tried again, by a crash or by ignoring its cancellation. 0: this failure was of another kind.
CREATE FUNCTION _sas.ended_workers(c _sas.failed_case) RETURNS int
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF c.lane <> 0 OR c.error ->> 'type' IS DISTINCT FROM 'urn:sas:worker-lost' THEN
        RETURN 0;
    END IF;
    RETURN least(c.failure_count + 1,
                 (SELECT count(*) FROM _sas.attempt a
                  WHERE a.run_id = c.run_id AND a.step_no = c.step_no AND a.element = c.element
                    AND a.undo = c.undo AND a.error ->> 'type' = 'urn:sas:worker-lost'));
END $$;

-- _sas.park(c, made): parks a step whose function, or whose undo's function, may end more workers: the run
-- waits for an operator, whatever on_failure says.
CREATE FUNCTION _sas.park(c _sas.failed_case, made _sas.decision[]) RETURNS _sas.decision
LANGUAGE plpgsql AS $$
DECLARE
    paused boolean := c.run_state = 'paused'
        OR EXISTS (SELECT FROM unnest(made) m WHERE m.run_id = c.run_id AND m.what = 'pause');
    why text := format('%s "%s" is parked: its function has ended its worker twice',
                       CASE WHEN c.undo THEN 'the undo of step' ELSE 'step' END, _sas.shown_name(c.name));
BEGIN
    PERFORM _sas.raise_alert('parked', format('step %s', c.name), format('run %s: %s', c.run_id, why), NULL,
                             c.run_id, c.step_no, c.error);
    RETURN _sas.make_decision(
        what => CASE WHEN paused THEN 'note' ELSE 'pause' END, run_id => c.run_id, step_no => c.step_no,
        element => c.element, why => why, error => c.error);
END $$;

-- _sas.by_policy(c, made): a step, or an undo, has failed for good: the run continues without it, waits for
-- an operator, who gets an alert, or cannot continue.
CREATE FUNCTION _sas.by_policy(c _sas.failed_case, made _sas.decision[]) RETURNS _sas.decision
LANGUAGE plpgsql AS $$
DECLARE
    policy text := CASE WHEN c.undo OR c.abandon_as IS NOT NULL THEN 'pause'
                        WHEN c.transient THEN coalesce(c.on_transient, c.run_on_transient)
                            ELSE coalesce(c.on_permanent, c.run_on_permanent) END;
    -- the failed step waits for a resume, which gives it another window
    paused boolean := c.run_state = 'paused'
        OR EXISTS (SELECT FROM unnest(made) m WHERE m.run_id = c.run_id AND m.what = 'pause');
    -- the run continues beside a step that waits for an operator, who also decides on steps that fail
    -- meanwhile
    held boolean := NOT paused AND (
        EXISTS (SELECT FROM unnest(made) m WHERE m.run_id = c.run_id AND m.what = 'hold')
        OR (SELECT true FROM _sas.run r WHERE r.run_id = c.run_id AND r.state = 'running'
            AND r.paused_state = 'held') IS NOT NULL);
    borne boolean := policy <> 'skip' AND policy IS NOT NULL AND c.abandon_as IS NULL AND NOT c.undo
        AND NOT paused AND c.element > 0 AND _sas.tolerates(c, made);
    suggested text := '';
    why text;
BEGIN
    IF borne THEN
        policy := 'skip';
    ELSIF c.undo OR c.abandon_as IS NOT NULL THEN
        NULL;
    ELSIF c.past_pivot AND policy = 'compensate' OR paused
        OR held AND policy NOT IN ('skip', 'pause_at_end')
        OR c.element = 0 AND (policy = 'pause_at_end' OR c.error ->> 'type' = 'urn:sas:elements') THEN
        policy := 'pause';
    ELSIF policy = 'pause_at_end' THEN
        NULL;
    ELSIF NOT c.auto_rescue THEN
        suggested := _sas.suggestion(policy, c.run_id, _sas.shown_name(c.name)
                                     || coalesce('[' || nullif(c.element, 0) || ']', ''));
        policy := 'pause';
    END IF;
    IF policy = 'pause' THEN
        why := format('%s "%s" failed: %s', CASE WHEN c.undo THEN 'the undo of step' ELSE 'step' END,
                      _sas.shown_name(c.name), c.error ->> 'title');
        IF c.in_doubt AND NOT c.undo AND NOT c.transient THEN
            suggested := suggested || _sas.doubt_told(c.run_id, _sas.shown_name(c.name), c.element);
        END IF;
        PERFORM _sas.raise_alert(CASE WHEN c.undo THEN 'undo-failed' ELSE 'step-failed' END,
                                 format('step %s', c.name),
                                 format('run %s: %s', c.run_id, why) || suggested, nullif(c.lane, 0),
                                 c.run_id, c.step_no, c.error);
    END IF;
    RETURN _sas.make_decision(
        what => CASE WHEN policy = 'pause' AND paused THEN 'note'
                     -- what does not depend on it continues, other elements of its map, too
                     WHEN policy = 'pause' AND NOT c.undo AND c.abandon_as IS NULL THEN 'hold'
                     WHEN policy = 'pause_at_end' THEN 'leave'
                     WHEN policy IN ('pause', 'skip') THEN policy
                     ELSE 'doom' END,
        run_id => c.run_id, step_no => c.step_no, element => c.element, abandon_as => policy, why => why,
        error => c.error);
END $$;

-- _sas.tolerates(c, made): does the map tolerate one more failed element?
CREATE FUNCTION _sas.tolerates(c _sas.failed_case, made _sas.decision[]) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN coalesce((c.shape ->> 'max_failed')::int, 0)
           > (SELECT f.failed FROM _sas.map_progress f WHERE f.run_id = c.run_id AND f.step_no = c.step_no)
             + (SELECT count(*) FROM unnest(made) m WHERE m.what = 'skip' AND m.run_id = c.run_id
                AND m.step_no = c.step_no);
END $$;

-- _sas.act_on(made): carries out these decisions: first the states, then what follows from them.
-- Writes: message, run. Wakes: the scheduler.
CREATE FUNCTION _sas.act_on(made _sas.decision[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    doomed bigint[] := ARRAY(SELECT m.run_id FROM unnest(made) m WHERE m.what = 'doom');
    skipped _sas.decision[] := ARRAY(SELECT m FROM unnest(made) m WHERE m.what = 'skip'
                                     AND m.run_id <> ALL (doomed));
BEGIN
    PERFORM _sas.move_steps(array_agg(m.change)) FROM unnest(made) m WHERE (m.change).run_id IS NOT NULL;
    INSERT INTO _sas.message (actor, due_at, run_id, kind, step_no, element)
    SELECT 's', (m.change).waiting_until, m.run_id, 'ready', m.step_no, m.element FROM unnest(made) m
    WHERE m.what = 'again';
    IF FOUND THEN
        PERFORM _sas.wake(scheduler => true);
    END IF;
    PERFORM _sas.requeue(array_agg(m.run_id), array_agg(m.step_no), array_agg(m.element)) FROM unnest(made) m
        WHERE m.what = 'settle' HAVING count(*) > 0;
    PERFORM _sas.fall_back(array_agg(m.run_id), array_agg(m.step_no), array_agg(m.element))
        FROM unnest(made) m WHERE m.what = 'fall' HAVING count(*) > 0;
    UPDATE _sas.run r SET error = e.error
    FROM (SELECT DISTINCT ON (m.run_id) m.run_id, m.error
          FROM unnest(made) WITH ORDINALITY AS m (what, run_id, step_no, element, change, abandon_as, why,
                                                  error, n)
          WHERE m.what = 'skip' ORDER BY m.run_id, m.n DESC) e
    WHERE r.run_id = e.run_id;
    IF skipped <> '{}' THEN
        PERFORM _sas.skip_failed(skipped);
    END IF;
    -- the map runs through
    PERFORM _sas.count_elements(array_agg(m.run_id), array_agg(m.step_no), array_agg(m.element), 1)
    FROM unnest(made) m WHERE m.what = 'leave' AND m.run_id <> ALL (doomed) HAVING count(*) > 0;
    -- a deadline is no failure that could get another window, so a pause cannot take this back
    PERFORM _sas.abandon(array_agg(m.run_id), array_agg(m.abandon_as), array_agg(m.error),
                         by => CASE WHEN m.step_no IS NOT NULL THEN 'rule' END)
    FROM unnest(made) m WHERE m.what = 'doom' GROUP BY m.step_no IS NOT NULL;
    PERFORM _sas.move_to_paused(array_agg(m.run_id), array_agg(m.why), 'sas supervisor', array_agg(m.error))
    FROM unnest(made) m JOIN _sas.run r ON r.run_id = m.run_id AND r.state <> 'stopped'
    WHERE m.what = 'pause' AND m.run_id <> ALL (doomed);
    PERFORM _sas.hold_runs(array_agg(DISTINCT m.run_id)) FROM unnest(made) m
    WHERE m.what = 'hold' AND m.run_id <> ALL (doomed) HAVING count(*) > 0;
    PERFORM _sas.close_steps(array_agg(m.run_id)) FROM unnest(made) m WHERE m.what = 'close'
        HAVING count(*) > 0;
END $$;

-- _sas.skip_failed(skipped): skips these failed steps; what waited for them continues.
CREATE FUNCTION _sas.skip_failed(skipped _sas.decision[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM _sas.move_steps(array_agg(_sas.make_step_change(
        run_id => u.run_id, step_no => u.step_no, element => u.element, from_state => 'failed',
        to_state => 'skipped')))
    FROM unnest(skipped) u;
    PERFORM _sas.after_skip(array_agg(u.run_id), array_agg(u.step_no)) FROM unnest(skipped) u
        WHERE u.element = 0 HAVING count(*) > 0;
    PERFORM _sas.count_elements(array_agg(u.run_id), array_agg(u.step_no), array_agg(u.element), 1)
        FROM unnest(skipped) u
        WHERE u.element > 0 HAVING count(*) > 0;
END $$;

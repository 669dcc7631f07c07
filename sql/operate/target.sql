-- SPDX-License-Identifier: PostgreSQL
--
-- Targets: which steps a verb of an operator names, what can be done to them, and what the verb reports.

-- _sas.situation(...): one word for what a verb can do to a step:
--   stopped     its run has stopped
--   waiting     it waits for other steps
--   ready       it may be claimed, or is deferred
--   running     a worker holds it
--   suspended   it waits for a signal or a time
--   asking      it, or its undo, is a poll that waits for its next status request
--   inner       it waits for its elements, its child run or its fallback
--   deciding    it has failed, and the supervisor has not decided yet
--   resting     it waits for another window
--   failed      it has failed for good, and is undecided
--   aside       it has failed, and its map runs through before anything follows from that
--   skipped     it was skipped for a failure, or by an operator; see _sas.can_run_later
--   ended       it has ended
--   undo        its undo has failed or waits; due: its undo may be claimed; undoing: its undo is in progress
--   redo        the same for an undo before its fallback; reasking: that waits for its next status request
--   stood_in    it is a fallback that has failed
CREATE FUNCTION _sas.situation(r _sas.run, s _sas.step, queued boolean, stands_in boolean) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN r.state = 'stopped' THEN 'stopped'
                WHEN s.state = 'compensating' THEN CASE
                    WHEN s.request_id IS NOT NULL OR s.waiting_kind = 'child' THEN 'undoing'
                    WHEN s.waiting_kind = 'poll'
                        THEN CASE WHEN r.abandon_as IS NULL THEN 'reasking' ELSE 'asking' END
                    WHEN r.abandon_as IS NULL THEN 'redo' WHEN queued THEN 'due' ELSE 'undo' END
                WHEN s.state = 'failed' THEN CASE WHEN s.waiting_kind = 'supervisor' THEN 'deciding'
                                                  WHEN s.waiting_kind = 'map_end' AND r.state <> 'paused'
                                                      AND r.abandon_as IS NULL THEN 'aside'
                                                  WHEN r.abandon_as IS NULL AND stands_in THEN 'stood_in'
                                                  WHEN r.abandon_as IS NULL OR r.abandon_as <> 'fail'
                                                      AND (s.in_doubt OR s.asks IS NOT NULL) THEN 'failed'
                                                  ELSE 'ended' END
                WHEN s.state = 'skipped' THEN CASE
                    WHEN s.element = 0 AND s.error IS NOT NULL AND r.abandon_as IS NULL AND NOT stands_in
                        THEN 'skipped' ELSE 'ended' END
                WHEN s.request_id IS NOT NULL THEN 'running'
                WHEN s.state = 'suspended' THEN CASE
                    WHEN s.waiting_kind IN ('elements', 'child', 'fallback') THEN 'inner'
                    WHEN s.waiting_kind IN ('cool_off', 'agent') THEN 'resting'
                    WHEN s.waiting_kind = 'poll' THEN 'asking' ELSE 'suspended' END
                WHEN s.state = 'ready' OR queued THEN 'ready'
                WHEN coalesce(s.state, 'waiting') = 'waiting' AND r.abandon_as IS NULL THEN 'waiting'
                ELSE 'ended' END
$$;

-- _sas.targets(named, step): the steps of these runs that the name means; null: all steps. None in a run
-- without a step of that name. Ready rows are locked first, so that no claim changes what is reported here.
CREATE FUNCTION _sas.targets(named _sas.named[], step text) RETURNS _sas.target[]
LANGUAGE plpgsql AS $$
DECLARE
    ids bigint[] := _sas.open_named(named);
    parts text[] := regexp_match(step, E'^(.*?)(?:\\[([0-9]{1,9})\\])?$');
BEGIN
    PERFORM FROM _sas.ready q WHERE q.run_id = ANY (ids)
        ORDER BY q.run_id, q.step_no, q.element FOR UPDATE;
    RETURN ARRAY(
        SELECT ROW(r.run_id, w.step_no, e.element, _sas.shown_name(w.name)
                   || coalesce('[' || nullif(e.element, 0) || ']', ''),
                   CASE WHEN u.word = 'skipped' AND NOT _sas.can_run_later(r, w) THEN 'ended'
                       ELSE u.word END,
                       coalesce(s.state, CASE WHEN q.run_id IS NOT NULL THEN 'ready'
                                ELSE 'waiting' END),
                   CASE WHEN s.request_id IS NOT NULL THEN l.locked_by
                        WHEN s.waiting_kind = 'child' THEN 'run '
                            || (SELECT c.run_id
                                FROM _sas.last_child(r.run_id, w.step_no, CASE s.state
                                                     WHEN 'compensating' THEN _sas.undo_element(e.element)
                                                     ELSE e.element END) c)
                        WHEN s.waiting_kind = 'fallback' THEN 'step "' || w.name || '.fallback"'
                        WHEN s.waiting_kind = 'elements' THEN 'its elements' END)::_sas.target
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
                                      AND x.step_no = w.step_no AND x.element > 0) i
                            WHERE parts[2] IS NULL OR i.element = parts[2]::int) e
        LEFT JOIN LATERAL _sas.step_row(r.run_id, w.step_no, e.element) s ON true
        LEFT JOIN _sas.ready q ON q.run_id = r.run_id AND q.step_no = w.step_no AND q.element = e.element
        LEFT JOIN _sas.lease l ON l.lease_id = s.lease_id
        CROSS JOIN LATERAL (SELECT _sas.situation(r, s, q.run_id IS NOT NULL,
                                                  coalesce(w.shape ? 'stands_in', false)) AS word OFFSET 0) u
        WHERE r.run_id = ANY (ids)
        ORDER BY r.run_id, w.step_no, e.element);
END $$;

-- _sas.applicable_steps(verb): the end of a sentence: to which steps a verb can be applied.
CREATE FUNCTION _sas.applicable_steps(verb text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE verb WHEN 'retry' THEN 'only a step that has failed, cools off, or was skipped because it '
                                       'failed or by an operator can be retried'
                     WHEN 'skip' THEN 'only a step that has failed, cools off, is ready, or waits for a '
                                      'signal, a time or a poll can be skipped'
                     WHEN 'force_complete' THEN 'only a step that has begun, or is ready, and has not ended '
                                                'can be completed'
                     ELSE 'only a step that has failed, cools off or is ready can be given another input' END
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
                 WHEN 'skipped' THEN CASE verb WHEN 'retry' THEN 'is skipped, and cannot be run any more'
                     ELSE 'is skipped' END
                     ELSE 'is ' || t.state END || '; ' || _sas.applicable_steps(verb)
             WHEN 'ready' THEN 'is ready and has not failed; ' || _sas.applicable_steps(verb)
             WHEN 'running' THEN format('is running, held by %s; wait for its reply, or end it with '
                                        'sas.force_complete or sas.cancel', coalesce(t.note, 'nobody'))
             WHEN 'deciding' THEN 'has just failed, and the supervisor is about to decide; try again'
             WHEN 'aside' THEN 'has failed; the other elements of its map run to their end first'
             WHEN 'inner' THEN format('waits for %s; act on that', t.note)
             WHEN 'suspended' THEN 'has not failed, it waits for a signal or a time; '
                 || _sas.applicable_steps(verb)
             WHEN 'skipped' THEN 'is skipped; ' || _sas.applicable_steps(verb)
             WHEN 'asking' THEN 'has not failed, it is polled; ' || _sas.applicable_steps(verb)
                 || CASE verb WHEN 'retry' THEN '; with new_key, its job is begun again'
                    ELSE '' END
             WHEN 'undo' THEN 'is being undone; its undo can be retried, skipped or completed'
             WHEN 'due' THEN 'is about to be undone; that can be skipped or completed'
             WHEN 'undoing' THEN format('is being undone, by %s; wait for its reply',
                                        coalesce(t.note, 'nobody'))
             WHEN 'redo' THEN 'is undone before its fallback is tried; that can be retried or completed'
             WHEN 'reasking' THEN 'is undone before its fallback is tried, and is polled; that can be '
                                  'completed'
             WHEN 'stood_in' THEN format('failed as the fallback of step "%s"; act on that step',
                                         regexp_replace(t.label, E'\\.fallback', ''))
             WHEN 'failed' THEN 'has failed, and its run cannot continue; it can be retried, skipped or '
                                'completed'
             ELSE 'cools off; ' || _sas.applicable_steps(verb) END END)
$$;

-- _sas.pick_targets(targets, situations): fit: the targets that are in one of these situations.
-- unfit: for a run without any, its first target, so that it can be reported. An element comes before its
-- step.
CREATE FUNCTION _sas.pick_targets(targets _sas.target[], situations text[],
                                  OUT fit _sas.target[], OUT unfit _sas.target[])
LANGUAGE plpgsql AS $$
BEGIN
    fit := ARRAY(SELECT ROW(t.*)::_sas.target FROM unnest(targets) t WHERE t.situation = ANY (situations)
                 ORDER BY t.run_id, t.step_no, t.element);
    unfit := ARRAY(SELECT DISTINCT ON (t.run_id) ROW(t.*)::_sas.target FROM unnest(targets) t
                   LEFT JOIN unnest(fit) f ON f.run_id = t.run_id
                   -- if the opening step of an include has failed, it is reported; else the include as a
                   -- whole
                   WHERE f.run_id IS NULL ORDER BY t.run_id, t.element, t.step_no DESC);
END $$;

-- _sas.report_steps(verb, named, for_step, done, unfit): what a verb about steps reports for each run.
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

-- _sas.close_held(done): an operator has decided on steps of runs that continue despite a failure: closes
-- their alerts; an alert is raised again if the run is paused for what remains.
CREATE FUNCTION _sas.close_held(done _sas.target[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    held bigint[] := ARRAY(SELECT DISTINCT r.run_id FROM unnest(done) d JOIN _sas.run r ON r.run_id = d.run_id
                           WHERE r.paused_state = 'held' AND r.state = 'running');
BEGIN
    PERFORM _sas.close_alerts_of(held) WHERE held <> '{}';
END $$;

-- _sas.record_steps(caller, done, act, detail): writes a row of sas.history for each of these steps.
-- Writes: operator_action.
CREATE FUNCTION _sas.record_steps(caller oid, done _sas.target[], act text, detail jsonb) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO _sas.operator_action (run_id, at, role, act, step, detail)
    SELECT d.run_id, sas.now(), pg_get_userbyid(caller), act, d.label, detail FROM unnest(done) d
$$;

-- _sas.must_name(step): raises an error without a step: verbs that settle a step need its name.
CREATE FUNCTION _sas.must_name(step text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF step IS NULL THEN
        RAISE EXCEPTION 'the step must not be null'
            USING ERRCODE = 'null_value_not_allowed', DETAIL = 'At /step.',
            HINT = 'See sas.steps for the steps of a run. An element of a map is written "pack[3]".';
    END IF;
END $$;

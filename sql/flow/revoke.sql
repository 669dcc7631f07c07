-- SPDX-License-Identifier: PostgreSQL
--
-- Revoke: a pause takes back the end of a run that a rule has just decided. The state before that end is
-- kept in _sas.abandoned_run until the first undo is over. As long as that undo has not begun, a pause
-- restores the state; failed steps get new windows when the run is resumed. An end that an operator asks
-- for is not kept. The caller of each function holds the lock of the runs.

-- _sas.keep_abandoned(run_ids, gone, of_parent): stores what is open in these runs, which are about to be
-- abandoned. gone: the ready rows that were just deleted; of_parent: the runs end with the run above them.
-- Writes: abandoned_run. Next: _sas.revoke_abandon, if a pause comes in time.
CREATE FUNCTION _sas.keep_abandoned(run_ids bigint[], gone _sas.ready[], of_parent boolean) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    -- grouped, because a join would compare each step with each ready row
    WITH listed AS (
        SELECT k.run_id, k.step_no, k.element, bool_or(k.alone) AS alone
        FROM (SELECT s.run_id, s.step_no, s.element, NULL::boolean AS alone FROM _sas.step s
              WHERE s.run_id = ANY (run_ids)
                AND s.state IN ('waiting', 'ready', 'suspended', 'running', 'compensating')
              UNION ALL SELECT g.run_id, g.step_no, g.element, g.alone FROM unnest(gone) g) k
        GROUP BY 1, 2, 3),
    open AS (
        SELECT s.run_id, ROW(s.step_no, s.element, CASE s.state WHEN 'cancelled' THEN 'none' ELSE s.state END,
                             coalesce(k.alone, s.alone), s.waiting_kind, s.waiting_until,
                             coalesce((SELECT d.kind FROM _sas.message d
                                       WHERE d.actor = 's' AND d.due_at = s.waiting_until
                                         AND d.run_id = s.run_id AND d.step_no = s.step_no
                                         AND d.element = s.element
                                       LIMIT 1),
                                      -- it was due, and has been deferred; a second one is ignored
                                      CASE WHEN s.waiting_until <= sas.now()
                                           THEN CASE WHEN s.waiting_kind IN ('timer', 'signal') THEN 'timer'
                                                     WHEN s.waiting_kind = 'elements' THEN 'iteration'
                                                     ELSE 'ready' END END))::_sas.abandoned_step AS step
        FROM listed k
        CROSS JOIN LATERAL _sas.step_row(k.run_id, k.step_no, k.element) s
        UNION ALL
        -- a message to begin a step, which the scheduler ignores in a run that cannot continue
        SELECT d.run_id, ROW(d.step_no, d.element, 'none', false, NULL, NULL, 'enter')::_sas.abandoned_step
        FROM _sas.message m CROSS JOIN LATERAL _sas.of_each_element(m) d
        WHERE m.run_id = ANY (run_ids) AND m.kind = 'enter'
          AND NOT EXISTS (SELECT FROM _sas.step s WHERE s.run_id = d.run_id AND s.step_no = d.step_no
                          AND s.element = d.element))
    INSERT INTO _sas.abandoned_run (run_id, for_parent, state, open_steps, steps)
    SELECT r.run_id, of_parent, r.state, r.open_steps, coalesce(o.steps, '{}')
    FROM (SELECT k.run_id, array_agg(k.step) FILTER (WHERE k.is_open) AS steps
          FROM (SELECT o.run_id, o.step, true AS is_open FROM open o
                UNION ALL SELECT unnest(run_ids), NULL, false) k GROUP BY 1) o
    CROSS JOIN LATERAL (SELECT x.run_id, x.state, x.open_steps FROM _sas.run x WHERE x.run_id = o.run_id
                        OFFSET 0) r;
END $$;

-- _sas.note_undo(changes): stores the undos that are next in their runs. The second undo of a run deletes
-- its row: then it is too late for a pause.
-- Writes: abandoned_run.
CREATE FUNCTION _sas.note_undo(changes _sas.step_change[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM _sas.abandoned_run a USING unnest(changes) c
    WHERE a.run_id = c.run_id AND (a.undo_no, a.undo_element) <> (c.step_no, c.element);
    UPDATE _sas.abandoned_run a
    SET undo_no = c.step_no, undo_element = c.element, undo_from = c.from_state
    FROM unnest(changes) c WHERE a.run_id = c.run_id;
END $$;

-- _sas.revocable(run_ids, of_parent): the runs among these that a rule, or the end of their parent, has
-- ended, and in which nothing is undone. Messages to undo their child runs are deleted.
-- Caller: has paused the runs, so that no worker can claim an undo of theirs. Writes: message.
CREATE FUNCTION _sas.revocable(run_ids bigint[], of_parent boolean) RETURNS bigint[]
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM _sas.message d
    USING _sas.abandoned_run a CROSS JOIN LATERAL _sas.last_child(a.run_id, a.undo_no, a.undo_element) child
    WHERE a.run_id = ANY (run_ids) AND a.for_parent = of_parent
      AND d.run_id = child.run_id AND d.kind = 'reverse';
    RETURN ARRAY(
        SELECT a.run_id
        FROM _sas.abandoned_run a
        JOIN _sas.run r ON r.run_id = a.run_id AND r.state = 'paused'
        LEFT JOIN _sas.step s ON s.run_id = a.run_id AND s.step_no = a.undo_no AND s.element = a.undo_element
        WHERE a.run_id = ANY (run_ids) AND a.for_parent = of_parent
          AND CASE WHEN s.run_id IS NULL OR s.state = 'ready' THEN true
                   -- its outcome is asked: that is another window of the failed step, not an undo
                   WHEN s.state IN ('running', 'suspended') THEN a.undo_from = 'failed'
                   ELSE s.state = 'compensating' AND s.request_id IS NULL AND s.waiting_kind IS NULL
                       AND s.failure_count = 0 END
          AND NOT EXISTS (SELECT FROM _sas.attempt t WHERE t.run_id = a.run_id AND t.step_no = a.undo_no
                          AND t.element = a.undo_element AND t.undo)
          AND NOT EXISTS (SELECT FROM _sas.last_child(a.run_id, a.undo_no, a.undo_element) child
                          WHERE child.state <> 'stopped' OR child.result NOT IN ('success', 'warning'))
        ORDER BY a.run_id);
END $$;

-- _sas.revoke_abandon(run_ids, of_parent): restores these runs, which are paused, as they were before they
-- were abandoned, if nothing of them is undone. Returns the restored runs.
-- Writes: step, run, message, attempt, abandoned_run, undo_order. Wakes: the scheduler. Next: the caller
-- continues their child runs; _sas.continue_runs, when they are resumed.
CREATE FUNCTION _sas.revoke_abandon(run_ids bigint[], of_parent boolean) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    ids bigint[] := _sas.revocable(run_ids, of_parent);
BEGIN
    IF ids = '{}' THEN
        RETURN ids;
    END IF;
    DELETE FROM _sas.message d USING _sas.run child
    WHERE child.parent_run_id = ANY (ids) AND child.state <> 'stopped'
      AND d.run_id = child.run_id AND d.kind IN ('cancel', 'fail');
    DELETE FROM _sas.undo_order l WHERE l.run_id = ANY (ids);
    DELETE FROM _sas.attempt t USING _sas.abandoned_run a
    WHERE a.run_id = ANY (ids) AND a.undo_from = 'succeeded' AND t.run_id = a.run_id
      AND t.step_no = a.undo_no AND t.element = a.undo_element AND t.attempt = 1 AND t.status = 'succeeded';
    PERFORM _sas.move_steps(array_agg(_sas.make_step_change(
        run_id => s.run_id, step_no => s.step_no, element => s.element, from_state => s.state,
        to_state => a.undo_from)))
    FROM _sas.abandoned_run a
    JOIN _sas.step s ON s.run_id = a.run_id AND s.step_no = a.undo_no AND s.element = a.undo_element
    WHERE a.run_id = ANY (ids)
      AND (s.state = 'compensating' OR s.state = 'ready' AND a.undo_from = 'skipped');
    UPDATE _sas.run r SET abandon_as = NULL, open_steps = a.open_steps, paused_state = a.state
    FROM _sas.abandoned_run a WHERE a.run_id = ANY (ids) AND r.run_id = a.run_id;
    PERFORM _sas.reopen_abandoned(ids);
    PERFORM _sas.follow_abandoned(ids);
    DELETE FROM _sas.abandoned_run a WHERE a.run_id = ANY (ids);
    PERFORM _sas.wake(scheduler => true);
    RETURN ids;
END $$;

-- _sas.reopen_abandoned(run_ids): opens again the steps that were open in these runs and have ended with
-- them.
-- Writes: step, message.
CREATE FUNCTION _sas.reopen_abandoned(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    changes _sas.step_change[];
    kinds text[];
BEGIN
    -- IS TRUE: a list of steps, not a scan of the messages for each of them. Of a message about several
    -- elements, the others have begun, or are reopened as well
    DELETE FROM _sas.message d
    WHERE d.ctid = ANY (ARRAY(
        SELECT m.ctid FROM _sas.message m CROSS JOIN LATERAL _sas.of_each_element(m) e
        WHERE m.run_id = ANY (run_ids) AND m.kind = 'enter'
          AND ((e.run_id, e.step_no, e.element)
               IN (SELECT a.run_id, was.step_no, was.element
                   FROM _sas.abandoned_run a CROSS JOIN LATERAL unnest(a.steps) was
                   WHERE a.run_id = ANY (run_ids) AND was.message_kind = 'enter')) IS TRUE));
    SELECT array_agg(_sas.make_step_change(
               run_id => a.run_id, step_no => was.step_no, element => was.element,
               from_state => coalesce(s.state, 'none'), to_state => x.to_state, alone => was.alone,
               deferred => x.to_state = 'ready',
               waiting_kind => CASE x.to_state WHEN 'suspended' THEN was.waiting_kind END,
               waiting_until => CASE x.to_state WHEN 'suspended' THEN was.waiting_until END)),
           array_agg(CASE WHEN x.to_state = 'suspended'
               THEN CASE was.waiting_kind WHEN 'child' THEN 'child' ELSE was.message_kind END END)
    INTO changes, kinds
    FROM _sas.abandoned_run a
    CROSS JOIN LATERAL unnest(a.steps) was
    LEFT JOIN LATERAL _sas.step_row(a.run_id, was.step_no, was.element) s ON true
    CROSS JOIN LATERAL (SELECT CASE was.from_state WHEN 'none' THEN 'ready' WHEN 'running' THEN 'ready'
                               ELSE was.from_state END AS to_state) x
    WHERE a.run_id = ANY (run_ids) AND was.from_state <> 'compensating'
      -- a step in doubt, or a poll that had not finished, has failed with its run; a step that was running
      -- has failed by itself
      AND (coalesce(s.state, 'none') IN ('none', 'cancelled')
           OR s.state = 'failed' AND was.from_state <> 'running'
              AND was.waiting_kind IS DISTINCT FROM 'child');
    PERFORM _sas.move_steps(changes);
    -- the error of one of its elements, which still has it
    UPDATE _sas.step s SET error = NULL
    FROM unnest(changes) c WHERE s.run_id = c.run_id AND s.step_no = c.step_no AND s.element = c.element
        AND s.waiting_kind = 'elements' AND s.error IS NOT NULL;
    INSERT INTO _sas.message (actor, due_at, run_id, kind, step_no, element)
    SELECT 's', coalesce((u.c).waiting_until, sas.now()), (u.c).run_id, u.kind, (u.c).step_no, (u.c).element
    FROM (SELECT unnest(changes) AS c, unnest(kinds) AS kind) u WHERE u.kind IS NOT NULL;
    INSERT INTO _sas.message (actor, due_at, run_id, kind, step_no, element)
    SELECT 's', sas.now(), l.run_id, 'room', l.step_no, 0 FROM _sas.map_list l
    WHERE l.run_id = ANY (run_ids);
    INSERT INTO _sas.message (actor, due_at, run_id, kind)
    SELECT 's', sas.now(), u, 'signal' FROM unnest(run_ids) u
    WHERE EXISTS (SELECT FROM _sas.signal g WHERE g.run_id = u);
END $$;

-- _sas.follow_abandoned(run_ids): does what follows from steps of these runs that were in progress and have
-- ended meanwhile; in an abandoned run nothing followed from that.
CREATE FUNCTION _sas.follow_abandoned(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    ended record;
BEGIN
    SELECT array_agg(s.run_id) FILTER (WHERE s.state = 'succeeded') AS run_ids,
           array_agg(s.step_no) FILTER (WHERE s.state = 'succeeded') AS step_nos,
           array_agg(s.element) FILTER (WHERE s.state = 'succeeded') AS elements,
           array_agg(s.run_id) FILTER (WHERE s.state = 'compensated') AS undone_runs,
           array_agg(s.step_no) FILTER (WHERE s.state = 'compensated') AS undone_nos,
           array_agg(s.element) FILTER (WHERE s.state = 'compensated') AS undone_elements
    INTO ended
    FROM _sas.abandoned_run a CROSS JOIN LATERAL unnest(a.steps) was
    CROSS JOIN LATERAL _sas.step_row(a.run_id, was.step_no, was.element) s
    WHERE a.run_id = ANY ($1) AND was.from_state IN ('running', 'suspended', 'compensating');
    -- undone for its fallback
    PERFORM _sas.fall_back(ended.undone_runs, ended.undone_nos, ended.undone_elements)
        WHERE ended.undone_runs IS NOT NULL;
    PERFORM _sas.fail_substitute(s.run_id, (w.shape ->> 'stands_in')::int, s.element, s.error, s.transient)
    FROM _sas.abandoned_run a
    JOIN _sas.run r ON r.run_id = a.run_id
    CROSS JOIN LATERAL unnest(a.steps) was
    CROSS JOIN LATERAL (SELECT * FROM _sas.step x WHERE x.run_id = a.run_id AND x.step_no = was.step_no
                        AND x.element = was.element AND x.state = 'failed'
                        AND x.waiting_kind IS NULL OFFSET 0) s
    CROSS JOIN LATERAL (SELECT * FROM _sas.workflow_step x WHERE x.version_id = r.version_id
                        AND x.step_no = s.step_no AND NOT x.undo AND x.shape ? 'stands_in' OFFSET 0) w
    WHERE a.run_id = ANY ($1) AND was.from_state = 'running';
    IF ended.run_ids IS NOT NULL THEN
        SELECT i.run_ids, i.step_nos, i.elements INTO ended.run_ids, ended.step_nos, ended.elements
        FROM _sas.substituted(ended.run_ids, ended.step_nos, ended.elements) i;
        PERFORM _sas.go_on(ended.run_ids, ended.step_nos, ended.elements);
    END IF;
END $$;

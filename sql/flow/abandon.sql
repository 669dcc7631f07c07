-- SPDX-License-Identifier: PostgreSQL
--
-- Abandon: a run cannot continue. What happens to the run, its child runs and its open steps.

-- _sas.cancel_ready(run_ids, undos): deletes the ready rows of these runs. A step that has not begun gets a
-- row in state cancelled. A step that has begun has a row; the caller changes its state. Returns the
-- deleted ready rows.
-- Writes: ready, step.
CREATE FUNCTION _sas.cancel_ready(run_ids bigint[], undos boolean) RETURNS _sas.ready[]
LANGUAGE plpgsql AS $$
DECLARE
    gone _sas.ready[] := _sas.take_ready(run_ids, undos);
BEGIN
    PERFORM _sas.move_steps(array_agg(_sas.make_step_change(
        run_id => g.run_id, step_no => g.step_no, element => g.element, from_state => 'none',
        to_state => 'cancelled', finished_at => sas.now())))
    FROM unnest(gone) g
    WHERE NOT EXISTS (SELECT FROM _sas.step s
                      WHERE s.run_id = g.run_id AND s.step_no = g.step_no AND s.element = g.element);
    RETURN gone;
END $$;

-- _sas.abandon(run_ids, fates, errors, at_once, by): these runs cannot continue. Deletes their ready rows
-- first, cancels steps that have not begun, lets running steps continue, ends the child runs, and hands the
-- runs to the scheduler once nothing is running.
--   fates    compensate, cancel: completed steps are undone; fail: they are left as they are
--   at_once  running steps do not continue: their claims are revoked
--   by       rule, parent: a pause may take it back, see _sas.keep_abandoned; null: it is final
-- Caller: holds the lock of the runs. Writes: ready, step, run, message, abandoned_run. Wakes: the
-- scheduler. Next: _sas.revoke_claims; _sas.undo_next, once nothing is running.
CREATE FUNCTION _sas.abandon(run_ids bigint[], fates text[], errors jsonb[], at_once boolean DEFAULT false,
                             by text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    changes _sas.step_change[];
    gone _sas.ready[] := _sas.cancel_ready(run_ids, false);
BEGIN
    PERFORM _sas.keep_abandoned(run_ids, gone, by = 'parent') WHERE by IS NOT NULL;
    PERFORM _sas.stop_work(run_ids) WHERE at_once;

    -- timers of suspended steps are deleted
    PERFORM _sas.forget_timers(run_ids, NULL, NULL, 'suspended');

    -- a step in doubt, or a poll that has not finished, has failed; it is not cancelled. This also decides
    -- failures that the supervisor has not processed yet
    SELECT array_agg(_sas.make_step_change(
               run_id => s.run_id, step_no => s.step_no, element => s.element, from_state => s.state,
               to_state => CASE WHEN s.state = 'failed' OR s.in_doubt OR s.asks IS NOT NULL
                                    OR broken.error IS NOT NULL THEN 'failed'
                                ELSE 'cancelled' END,
               error => broken.error, finished_at => sas.now()))
    INTO changes
    FROM _sas.step s
    -- a map, or a repeating step, fails if one of its elements has failed for good
    LEFT JOIN LATERAL (SELECT e.error FROM _sas.step e
                       WHERE s.waiting_kind = 'elements' AND s.element = 0 AND e.run_id = s.run_id
                           AND e.step_no = s.step_no AND e.element > 0
                         AND e.state = 'failed' AND e.waiting_kind IS NULL
                       ORDER BY e.finished_at, e.element LIMIT 1) broken ON true
    WHERE s.run_id = ANY (run_ids)
      AND (s.state IN ('waiting', 'ready')
           OR s.state = 'suspended' AND s.waiting_kind IS DISTINCT FROM 'child'
           OR s.state = 'failed' AND s.waiting_kind = 'supervisor');
    PERFORM _sas.move_steps(changes);
    PERFORM _sas.abandon_children(run_ids, CASE WHEN at_once THEN 'abort' END, fates);

    PERFORM _sas.change_runs(array_agg(_sas.make_run_change(
        run_id => r.run_id, from_state => r.state, to_state => 'compensating', abandon_as => f.abandon_as,
        open_steps => (SELECT count(*)::int FROM _sas.step s
                       WHERE s.run_id = r.run_id AND s.state IN ('running', 'suspended', 'compensating')),
        error => f.error)))
    FROM unnest(run_ids, fates, errors) AS f (run_id, abandon_as, error)
    JOIN _sas.run r ON r.run_id = f.run_id;
    -- steps that were to be undone before their fallback, and are deferred by a pause
    PERFORM _sas.requeue(array_agg(s.run_id), array_agg(s.step_no), array_agg(s.element))
    FROM _sas.step s WHERE s.run_id = ANY (run_ids) AND s.state = 'compensating' AND s.deferred
    HAVING count(*) > 0;
    PERFORM _sas.free_slots(run_ids);
    PERFORM _sas.hand_to_scheduler(run_ids);
END $$;

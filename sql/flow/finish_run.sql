-- SPDX-License-Identifier: PostgreSQL
--
-- Changes of a run's state and what follows from them, above all its end: what the purge and the metrics
-- need, and the messages about it. Most runs have no hook, schedule, reply queue or parent; therefore a few
-- checks of the whole batch decide what there is to do.

-- _sas.change_runs(changes): changes the state of these runs, with everything that follows from it.
-- Caller: holds the lock of the runs; the ready rows of runs that stop or pause are deleted already.
-- Writes: run; message, alert and what hooks write; for a run that stops, what _sas.note_ends writes.
-- Wakes: sessions in sas.wait for a run that stops or pauses. Next: the caller makes the steps of a run
-- that continues ready; a run that is paused while it waits for its slot leaves the line with a message to
-- the scheduler.
CREATE FUNCTION _sas.change_runs(changes _sas.run_change[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    ended bigint[];
    paused bigint[];
    resumed bigint[];
    reopened bigint[];
BEGIN
    IF coalesce(cardinality(changes), 0) = 0 THEN
        RETURN;
    END IF;
    PERFORM _sas.move_runs(changes);
    IF _sas.has_pages('_sas.workflow_hook') THEN
        PERFORM _sas.fire_hooks(ARRAY(SELECT c.run_id FROM unnest(changes) c));
    END IF;
    SELECT array_agg(c.run_id) FILTER (WHERE c.to_state = 'stopped'),
           array_agg(c.run_id) FILTER (WHERE c.to_state = 'paused'),
           array_agg(c.run_id) FILTER (WHERE c.from_state = 'paused'
                                       OR c.from_state = 'compensating' AND c.to_state = 'stopped'),
           array_agg(c.run_id) FILTER (WHERE c.from_state = 'stopped')
    INTO ended, paused, resumed, reopened FROM unnest(changes) c;
    IF resumed IS NOT NULL THEN
        PERFORM _sas.close_alerts_of(resumed);
    END IF;
    IF reopened IS NOT NULL THEN
        -- an undo goes ahead whatever the limits of the owner are
        PERFORM _sas.take_quota(r.owner::oid, ARRAY[1, (r.parent_run_id IS NOT NULL)::int,
                                                    _sas.value_size(r.input), 0], NULL, NULL, false)
        FROM _sas.run r WHERE r.run_id = ANY (reopened) AND r.hook_of IS NULL;
    END IF;
    IF ended IS NOT NULL THEN
        PERFORM _sas.note_ends(ended);
    END IF;
    IF paused IS NOT NULL THEN
        PERFORM _sas.make_room(paused);
        PERFORM _sas.reply_to(paused);
        PERFORM _sas.wake(runs => paused);
    END IF;
END $$;

-- _sas.end_runs(run_ids): the plain end of those of these runs that have nothing left to do and no output:
-- what _sas.change_runs does with them. Returns them.
-- Caller: holds the lock of the runs. Writes: run, and what hooks and _sas.note_ends write.
CREATE FUNCTION _sas.end_runs(run_ids bigint[]) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    ended bigint[] := _sas.move_ended(run_ids);
    n int;
BEGIN
    IF ended = '{}' THEN
        RETURN ended;
    END IF;
    IF _sas.has_pages('_sas.workflow_hook') THEN
        PERFORM _sas.fire_hooks(ended);
    END IF;
    n := _sas.note_ends(ended);
    RETURN ended;
END $$;

-- _sas.note_ends(run_ids): these runs have just stopped.
-- Writes: finished_run; message (deletes their deadline timers, and checks the runs that wait for them);
-- reply. Wakes: the scheduler, sessions in sas.wait. Returns how many runs wait for them.
CREATE FUNCTION _sas.note_ends(run_ids bigint[]) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    ends record;
    waiting int;
BEGIN
    WITH e AS (
        SELECT r.run_id, r.result, r.finished_at, r.deadline, v.workflow_id, r.hook_of IS NULL AS told,
               r.owner::oid AS owner, r.input,
               r.parent_run_id IS NULL AND coalesce(r.hook_of, 0) = 0 AS root,
               row_number() OVER () / 100 AS part,
               date_part('epoch', r.started_at - greatest(r.created_at, r.start_at)) AS wait,
               date_part('epoch', r.finished_at - coalesce(r.started_at, r.finished_at)) AS span,
               r.reply_to IS NOT NULL AS replies, r.parent_run_id IS NOT NULL AS is_child,
               r.parent_run_id, r.parent_step_no, r.parent_element,
               r.start_at IS NOT NULL OR r.start_before IS NOT NULL AS timed,
               CASE WHEN r.result NOT IN ('success', 'warning') THEN r.schedule END AS failing
        FROM _sas.run r
        CROSS JOIN LATERAL (SELECT x.workflow_id FROM _sas.workflow_version x
                            WHERE x.version_id = r.version_id OFFSET 0) v
        WHERE r.run_id = ANY ($1)),
    -- child runs and hook runs are purged with the run that they belong to; a row has at most a hundred
    -- runs, so that a purge can take as many as it likes
    kept AS (
        INSERT INTO _sas.finished_run (result, ended_at, run_ids)
        SELECT e.result, max(e.finished_at), array_agg(e.run_id) FROM e WHERE e.root
        GROUP BY e.part, e.result),
    -- runs of one submit have the same deadline: each deadline is looked up once, not once for each run
    timer AS (
        DELETE FROM _sas.message d WHERE d.ctid = ANY (ARRAY(
            SELECT m.ctid FROM (SELECT DISTINCT e.deadline, e.owner FROM e) due
            -- OFFSET: without a due_at the index would be read for all runs; without the owner, PostgreSQL 18
            -- may look into one index once for each owner
            CROSS JOIN LATERAL (SELECT t.ctid FROM _sas.message t
                                WHERE t.actor = 'v' AND t.due_at = due.deadline AND t.run_id = ANY ($1)
                                  AND t.owner = due.owner AND t.kind = 'deadline' OFFSET 0) m)))
    SELECT array_agg(e.workflow_id) FILTER (WHERE e.told) AS flows,
           array_agg(e.result) FILTER (WHERE e.told) AS results,
           array_agg(e.wait) FILTER (WHERE e.told) AS waits,
           array_agg(e.span) FILTER (WHERE e.told) AS spans,
           array_agg(e.run_id) FILTER (WHERE e.replies) AS replies,
           array_agg(ROW(e.parent_run_id, e.parent_step_no, e.parent_element)::_sas.parent)
               FILTER (WHERE e.is_child) AS parents,
           array_agg(e.run_id) FILTER (WHERE e.timed) AS timed,
           array_agg(e.failing) FILTER (WHERE e.failing IS NOT NULL) AS failing,
           count(_sas.give_quota(e.owner, e.is_child, e.input)) FILTER (WHERE e.told) AS given
    INTO ends FROM e;
    PERFORM _sas.observe('run_wait', ends.flows, NULL, NULL, ends.waits),
        _sas.observe('run', ends.flows, NULL, ends.results, ends.spans),
        _sas.wake(scheduler => ends.parents IS NOT NULL, runs => run_ids);
    waiting := _sas.release_waiting(run_ids, ends.timed);
    IF ends.failing IS NOT NULL THEN
        PERFORM _sas.check_schedules(ends.failing);
    END IF;
    IF ends.replies IS NOT NULL THEN
        PERFORM _sas.reply_to(ends.replies);
    END IF;
    IF ends.parents IS NOT NULL THEN
        -- a message for the step that waits for the child run, because another session may have locked its
        -- run now
        INSERT INTO _sas.message (actor, due_at, run_id, kind, step_no, element, together)
        SELECT 's', sas.now(), p.run_id, 'child', p.step_no, min(p.element),
               CASE WHEN count(*) > 1 THEN array_agg(p.element ORDER BY p.element) END
        FROM unnest(ends.parents) WITH ORDINALITY AS p (run_id, step_no, element, n)
        GROUP BY p.run_id, p.step_no, p.n / _sas.most_together();
    END IF;
    RETURN waiting;
END $$;

-- _sas.reply_to(run_ids): writes a message into the reply queue that each of these runs, which have stopped
-- or are paused, has named, and sends one NOTIFY per queue.
-- Writes: reply. Wakes: NOTIFY sas_reply.
CREATE FUNCTION _sas.reply_to(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO _sas.reply (queue, owner, event, run_id, workflow, key, result, output, error, created_at)
    SELECT r.reply_to, r.owner,
           CASE WHEN r.state = 'paused' THEN 'paused' WHEN r.result IN ('success', 'warning') THEN 'completed'
                ELSE 'failed' END,
           r.run_id, w.name, r.key, r.result, r.output, r.error, sas.now()
    FROM _sas.run r
    JOIN _sas.workflow_version v USING (version_id)
    JOIN _sas.workflow w USING (workflow_id)
    WHERE r.run_id = ANY (run_ids) AND r.reply_to IS NOT NULL;
    PERFORM _sas.notify('sas_reply', q.reply_to)
    FROM (SELECT DISTINCT r.reply_to FROM _sas.run r WHERE r.run_id = ANY (run_ids)
          AND r.reply_to IS NOT NULL) q;
END $$;

-- _sas.check_schedules(names): a run of each of these schedules has failed: makes those due that pause on a
-- failure. A schedule that a session has locked is passed by; it pauses before its next run.
-- Writes: schedule. Wakes: the scheduler.
CREATE FUNCTION _sas.check_schedules(names text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE _sas.schedule s SET due_at = sas.now()
    WHERE s.schedule_id IN (SELECT l.schedule_id FROM _sas.schedule l WHERE l.name = ANY (names)
                            AND l.pause_on_failure AND l.state = 'active' AND NOT l.copy
                            FOR NO KEY UPDATE SKIP LOCKED);
    IF FOUND THEN
        PERFORM _sas.wake(scheduler => true);
    END IF;
END $$;

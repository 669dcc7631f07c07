-- SPDX-License-Identifier: PostgreSQL
--
-- Verbs of operators for runs as a whole. Each run of an array is applied or refused separately, and
-- reported: a refusal says which state the run is in, and what would work. Every action is recorded in the
-- history.
--
-- The session of the caller may have any planner settings; these functions set their own, so that
-- statements use an index however small a table was when they were planned.

-- _sas.lock_others(run_ids): locks runs of other roles, free ones first. A session that has locked a run
-- may never end, and would block everything that is locked here; therefore each is waited for two seconds
-- only. Returns the runs that are still locked by others.
CREATE FUNCTION _sas.lock_others(run_ids bigint[]) RETURNS bigint[]
LANGUAGE plpgsql SET lock_timeout = '2s' AS $$
DECLARE
    rest bigint[] := ARRAY(SELECT u FROM unnest(run_ids) u
                           EXCEPT SELECT l FROM unnest(_sas.lock_runs(run_ids)) l ORDER BY 1);
    id bigint;
BEGIN
    FOREACH id IN ARRAY rest LOOP
        PERFORM FROM _sas.run r WHERE r.run_id = id FOR NO KEY UPDATE;
    END LOOP;
    RETURN '{}';
EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    RETURN ARRAY(SELECT u FROM unnest(rest) u EXCEPT SELECT l FROM unnest(_sas.lock_runs(rest)) l);
END $$;

-- _sas.held_refusal(run_id, holder): the text that a session has locked this run, and which; holder is the
-- xmax of its row.
CREATE FUNCTION _sas.held_refusal(run_id bigint, holder xid) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT format('run %s is held by a transaction of another session%s; end it, or try again', run_id,
                  (SELECT format(', process %s', min(l.pid)) FROM pg_locks l
                   WHERE l.locktype = 'transactionid' AND l.transactionid = holder AND l.granted
                   HAVING count(*) > 0))
$$;

-- _sas.operate(caller, run_ids): locks the runs that an operator names, each once and in order. Waits for
-- other sessions; long only for the caller's own runs, so that no worker is held up for long. Only runs
-- that the caller may act on are locked. Replies that have arrived for them count before the verb does.
CREATE FUNCTION _sas.operate(caller oid, run_ids bigint[]) RETURNS _sas.named[]
LANGUAGE plpgsql AS $$
DECLARE
    -- null, the result of a search that found nothing, is refused like a run that does not exist
    ids bigint[] := ARRAY(SELECT DISTINCT u FROM unnest(run_ids) u ORDER BY u);
    owners oid[];
    held bigint[];
BEGIN
    PERFORM _sas.wake_on_abort();
    owners := ARRAY(SELECT x.owner FROM (SELECT DISTINCT r.owner::oid AS owner FROM unnest(ids) u
                                         JOIN _sas.run r ON r.run_id = u) x
                    WHERE _sas.may_operate(caller, x.owner));
    PERFORM FROM _sas.run r WHERE r.run_id = ANY (ids) AND r.owner::oid = ANY (owners)
        AND r.owner::oid = caller ORDER BY r.run_id FOR NO KEY UPDATE;
    held := _sas.lock_others(ARRAY(SELECT r.run_id FROM _sas.run r WHERE r.run_id = ANY (ids)
                                   AND r.owner::oid = ANY (owners) AND r.owner::oid <> caller));
    IF EXISTS (SELECT FROM _sas.answer) THEN
        PERFORM _sas.apply_beside(ARRAY(SELECT r.run_id FROM _sas.run r
                                        WHERE r.run_id = ANY (ids) AND r.owner::oid = ANY (owners)
                                        AND NOT r.run_id = ANY (held)));
    END IF;
    RETURN ARRAY(
        SELECT _sas.make_named(
            run_id => u, state => r.state, result => r.result, abandon_as => r.abandon_as,
            paused_by => r.paused_by,
            refused => CASE WHEN r.run_id IS NULL THEN
                format('run %s does not exist, or is not yours; see sas.runs for your runs',
                       coalesce(u::text, 'null'))
                WHEN u = ANY (held) THEN _sas.held_refusal(u, r.xmax) END)
        FROM unnest(ids) u
        LEFT JOIN _sas.run r ON r.run_id = u AND r.owner::oid = ANY (owners)
        ORDER BY u);
END $$;

-- _sas.open_named(named): the runs that are not refused, and open.
CREATE FUNCTION _sas.open_named(named _sas.named[]) RETURNS bigint[]
LANGUAGE sql IMMUTABLE AS $$
    SELECT ARRAY(SELECT n.run_id FROM unnest(named) n WHERE n.refused IS NULL AND n.state <> 'stopped')
$$;

-- _sas.refused(n, why): the run, refused for this reason, unless it is refused already; null: it is not.
CREATE FUNCTION _sas.refused(n _sas.named, why text) RETURNS _sas.named
LANGUAGE sql IMMUTABLE AS $$
    SELECT _sas.make_named(n.run_id, n.state, n.result, n.abandon_as, n.paused_by, coalesce(n.refused, why))
$$;

-- _sas.refuse_data(caller, named, everybody): refuses runs to which the caller may not give data. Data of a
-- run comes from its owner only, because an operator could otherwise control what functions do with the
-- rights of the owner. everybody: this applies to the runs of all roles, as for the input of a step; else
-- only to runs of superusers, as for the output of a step settled by hand.
CREATE FUNCTION _sas.refuse_data(caller oid, named _sas.named[], everybody boolean) RETURNS _sas.named[]
LANGUAGE sql STABLE AS $$
    SELECT coalesce(array_agg(_sas.refused(n, CASE
        WHEN (_sas.may_stand_for(caller, r.owner::oid)
              OR NOT everybody AND _sas.trusts(r.owner::oid, caller)) IS NOT TRUE
        THEN format('only a member of role %s can give data to run %s', r.owner, n.run_id) END)
        ORDER BY n.run_id), '{}')
    FROM unnest(named) n LEFT JOIN _sas.run r ON r.run_id = n.run_id
$$;

-- _sas.check_reason(reason): the reason, null if it is empty; raises an error if it is too long.
CREATE FUNCTION _sas.check_reason(reason text) RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM _sas.check_bytes(octet_length(reason), 10000, '/reason', 'the reason');
    RETURN nullif(reason, '');
END $$;

-- _sas.reason(reason): the reason as the detail of an action; null: none was given.
CREATE FUNCTION _sas.reason(reason text) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$ SELECT CASE
    WHEN reason IS NOT NULL THEN jsonb_build_object('reason', reason) END $$;

-- _sas.describe_state(n): the beginning of a sentence about the state of a run.
CREATE FUNCTION _sas.describe_state(n _sas.named) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT format('run %s %s', n.run_id,
                  CASE WHEN n.state = 'stopped' THEN 'has stopped, with result ' || n.result
                       WHEN n.state = 'compensating' THEN 'is being undone'
                       WHEN n.state = 'paused' THEN CASE WHEN n.abandon_as IS NULL THEN 'is paused'
                           ELSE 'is paused while it is undone' END
                       ELSE 'is ' || n.state END)
$$;

-- _sas.refusal(verb, n): why the verb does not work on a run in its state, and what would.
CREATE FUNCTION _sas.refusal(verb text, n _sas.named) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(n.refused, _sas.describe_state(n) || '; ' || CASE verb
        WHEN 'pause' THEN CASE n.state WHEN 'paused' THEN 'sas.resume continues it'
            ELSE 'only an open run can be paused; sas.rerun runs it again' END
        WHEN 'resume' THEN CASE n.state WHEN 'stopped'
            THEN 'only a paused run can be resumed; sas.rerun runs it again'
            ELSE 'only a paused run can be resumed' END
        WHEN 'cancel' THEN CASE WHEN n.state <> 'stopped' THEN 'it is ending; sas.halt stops it at once'
                                WHEN n.result IN ('cancelled', 'compensated')
                                    THEN 'there is nothing left to cancel'
                            ELSE 'only an open run can be cancelled; sas.compensate undoes what it did' END
        WHEN 'halt' THEN 'only an open run can be halted'
        WHEN 'compensate' THEN CASE WHEN n.state <> 'stopped'
            THEN 'it is ending; sas.halt stops it at once'
                                    WHEN n.result IN ('cancelled', 'compensated')
                                        THEN 'it has been undone already'
                                    ELSE 'it has done nothing that can be undone' END
        WHEN 'set_priority' THEN 'only an open run can be given another priority; sas.rerun runs it again'
        WHEN 'set_start_at' THEN CASE n.state WHEN 'stopped' THEN 'sas.rerun runs it again'
            ELSE 'only a run that has not begun can begin at another time' END
        WHEN 'set_version' THEN 'only an open run can go on with another version; sas.rerun runs it again'
        WHEN 'rerun' THEN CASE WHEN n.abandon_as IS NULL
            THEN 'only a run that has stopped can be run again; sas.cancel or sas.halt ends it'
            ELSE 'only a run that has stopped can be run again' END
        END)
$$;

-- _sas.report_runs(verb, named, changed): what a verb reports about each run. Runs that it changed are read
-- again.
CREATE FUNCTION _sas.report_runs(verb text, named _sas.named[], changed bigint[])
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE sql STABLE AS $$
    SELECT n.run_id, NULL::text, c.id IS NOT NULL, coalesce(r.state, n.state),
        coalesce(r.result, CASE WHEN r.run_id IS NULL THEN n.result END),
           CASE WHEN c.id IS NULL THEN _sas.refusal($1, ROW(n.*)::_sas.named) END
    FROM unnest($2) n
    LEFT JOIN unnest($3) AS c (id) ON c.id = n.run_id
    LEFT JOIN _sas.run r ON r.run_id = c.id
    ORDER BY n.run_id
$$;

-- _sas.pause_runs_as(caller, run_ids): the body of sas.pause_runs: pauses these runs and the open ones below
-- them.
-- Locks: these runs. Next: _sas.move_to_paused, _sas.revoke_ends.
CREATE FUNCTION _sas.pause_runs_as(caller oid, run_ids bigint[])
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    named _sas.named[] := _sas.operate(caller, run_ids);
    open bigint[] := _sas.open_named(named);
    ids bigint[];
    reached bigint[];
BEGIN
    SELECT array_agg(DISTINCT b.run_id), array_agg(DISTINCT b.root) INTO ids, reached
    FROM _sas.below(open, '{scheduled,pending,running,compensating}') b;
    IF ids IS NOT NULL THEN
        PERFORM _sas.move_to_paused(ids, ARRAY(SELECT CASE WHEN u = ANY (open) THEN 'an operator paused it'
                                                      ELSE 'an operator paused a run above it' END
                                               FROM unnest(ids) WITH ORDINALITY AS x (u, n) ORDER BY n),
                                    pg_get_userbyid(caller)::text,
                                    array_fill(NULL::jsonb, ARRAY[cardinality(ids)]));
        PERFORM _sas.revoke_ends(ids, false, ids);
        PERFORM _sas.record(caller, ids, 'pause', NULL, NULL);
    END IF;
    RETURN QUERY SELECT * FROM _sas.report_runs('pause', named, coalesce(reached, '{}'));
END $$;

-- _sas.revoke_ends(run_ids, of_parent, moved): a pause takes back ends that a rule has decided: those of
-- these paused runs in which nothing is undone continue when they are resumed. So do their child runs that
-- were to end with them, if the same pause has moved them. A child in which something is undone cannot
-- continue: it ends at once, and its parent begins another one.
CREATE FUNCTION _sas.revoke_ends(run_ids bigint[], of_parent boolean, moved bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    revoked bigint[] := _sas.revoke_abandon(run_ids, of_parent);
    children bigint[] := ARRAY(SELECT child.run_id FROM _sas.run child
                               JOIN _sas.abandoned_run a ON a.run_id = child.run_id AND a.for_parent
                               WHERE child.parent_run_id = ANY (revoked) AND child.run_id = ANY (moved));
    undone bigint[];
BEGIN
    IF children = '{}' THEN
        RETURN;
    END IF;
    PERFORM _sas.revoke_ends(children, true, moved);
    undone := ARRAY(SELECT r.run_id FROM _sas.run r
                    WHERE r.run_id = ANY (children) AND r.abandon_as IS NOT NULL);
    PERFORM _sas.continue_runs(ARRAY(SELECT b.run_id FROM _sas.below(undone, '{paused}') b
                                     WHERE b.run_id = ANY (moved))) WHERE undone <> '{}';
END $$;

-- _sas.skip_error(run_id): the error of a run that continues: that of the step that was skipped last; null if
-- none was.
CREATE FUNCTION _sas.skip_error(run_id bigint) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT s.error FROM _sas.step s WHERE s.run_id = $1 AND s.state = 'skipped' AND s.error IS NOT NULL
    ORDER BY s.finished_at DESC LIMIT 1
$$;

-- _sas.continue_runs(run_ids, only_runs, only_nos): continues paused runs. only_runs, only_nos: of the
-- failed steps, only these are tried again; the others stay failed, and the run is paused for them again
-- when nothing else is left to do.
-- Caller: holds the lock of the runs. Writes: run, step, ready, message. Wakes: workers that can claim
-- their steps, the scheduler, the supervisor.
CREATE FUNCTION _sas.continue_runs(run_ids bigint[], only_runs bigint[] DEFAULT NULL,
                                   only_nos int[] DEFAULT NULL) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    -- their deadline passed while they were paused for something else: it is handled now
    late bigint[] := ARRAY(SELECT r.run_id FROM _sas.run r
                           WHERE r.run_id = ANY (run_ids) AND r.deadline <= sas.now()
                             AND r.paused_for IS DISTINCT FROM 'its deadline has passed');
    stopped bigint[];
BEGIN
    PERFORM _sas.extend_deadlines(run_ids);
    PERFORM _sas.change_runs(array_agg(_sas.make_run_change(
        run_id => r.run_id, from_state => 'paused',
        to_state => CASE WHEN r.abandon_as IS NOT NULL THEN 'compensating'
                         WHEN r.paused_state = 'scheduled' THEN 'scheduled'
                         WHEN r.started_at IS NULL
                             AND NOT EXISTS (SELECT FROM _sas.step s
                                             WHERE s.run_id = r.run_id AND s.started_at IS NOT NULL)
                             THEN 'pending'
                         ELSE 'running' END,
        paused_state => CASE WHEN only_runs IS NOT NULL AND r.abandon_as IS NULL
            AND EXISTS (SELECT FROM _sas.step s
                        WHERE s.run_id = r.run_id AND s.state = 'failed'
                          AND NOT EXISTS (SELECT FROM unnest(only_runs, only_nos) AS u (run_id, step_no)
                                          WHERE u.run_id = s.run_id AND u.step_no = s.step_no))
            THEN 'held' END)))
    FROM _sas.run r WHERE r.run_id = ANY (run_ids) AND r.state = 'paused';

    -- the cause of the pause is over; the error of the step that was skipped last stays, as a warning
    UPDATE _sas.run r SET error = _sas.skip_error(r.run_id)
    WHERE r.run_id = ANY (run_ids) AND r.abandon_as IS NULL AND r.error IS NOT NULL;
    PERFORM _sas.reopen_steps(run_ids, only_runs, only_nos);
    PERFORM _sas.release_elements(array_agg(f.run_id), array_agg(f.step_no)) FROM _sas.map_progress f
    WHERE f.run_id = ANY (run_ids) HAVING count(*) > 0;

    WITH again AS (
        UPDATE _sas.run r SET overdue = NULL WHERE r.run_id = ANY (late) AND r.abandon_as IS NULL
        RETURNING r.run_id)
    INSERT INTO _sas.message (actor, due_at, run_id, kind)
    SELECT 'v', sas.now(), a.run_id, 'deadline' FROM again a;
    INSERT INTO _sas.message (actor, due_at, run_id, kind, urgent)
    SELECT 's', greatest(r.start_at, sas.now()), r.run_id, 'start', true FROM _sas.run r
    WHERE r.run_id = ANY (run_ids) AND r.state = 'scheduled';
    SELECT array_agg(r.run_id) INTO stopped FROM _sas.run r
    WHERE r.run_id = ANY (run_ids) AND r.abandon_as IS NULL AND r.open_steps = 0;
    PERFORM _sas.end_of_steps(stopped) WHERE stopped IS NOT NULL;
    PERFORM _sas.hand_to_scheduler(run_ids);
    PERFORM _sas.wake(scheduler => true, supervisor => true);
END $$;

-- _sas.extend_deadlines(run_ids): runs among these that were paused because of their deadline get the
-- deadline of their workflow again, from now on, because a run must have an end.
-- Writes: run, message.
CREATE FUNCTION _sas.extend_deadlines(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    next timestamptz;
BEGIN
    WITH longer AS (
        UPDATE _sas.run r
        SET deadline = sas.now() + coalesce((SELECT v.deadline FROM _sas.workflow_version v
                                              WHERE v.version_id = r.version_id), _sas.run_deadline()),
            overdue = NULL
        WHERE r.run_id = ANY ($1) AND r.state = 'paused' AND r.abandon_as IS NULL AND r.deadline <= sas.now()
          AND r.paused_for = 'its deadline has passed'
        RETURNING r.run_id, r.deadline),
    timed AS (
        INSERT INTO _sas.message (actor, due_at, run_id, kind)
        SELECT 'v', l.deadline, l.run_id, 'deadline' FROM longer l)
    SELECT min(l.deadline) INTO next FROM longer l;
    PERFORM _sas.due_by(next) WHERE next IS NOT NULL;
END $$;

-- _sas.reopen_steps(run_ids, only_runs, only_nos): puts deferred steps of runs that continue into the
-- queue, and gives another window to failed steps that were not decided.
CREATE FUNCTION _sas.reopen_steps(run_ids bigint[], only_runs bigint[], only_nos int[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    changes _sas.step_change[];
BEGIN
    SELECT array_agg(_sas.make_step_change(
               run_id => s.run_id, step_no => s.step_no, element => s.element, from_state => s.state,
               to_state => CASE s.state WHEN 'failed' THEN 'ready' ELSE s.state END,
               failure_count => CASE WHEN s.deferred AND s.state <> 'compensating' THEN NULL ELSE 0 END))
    INTO changes
    FROM _sas.step s JOIN _sas.run r ON r.run_id = s.run_id
    CROSS JOIN LATERAL _sas.step_definition(r.version_id, s.step_no) w
    WHERE s.run_id = ANY (run_ids) AND s.request_id IS NULL AND s.waiting_until IS NULL
      -- an undo that waits for its child run or a signal has begun
      AND (s.state = 'ready' AND s.deferred
           OR s.state = 'compensating' AND s.waiting_kind IS DISTINCT FROM 'child'
              AND s.waiting_kind IS DISTINCT FROM 'signal'
           OR s.state = 'failed' AND s.waiting_kind IS DISTINCT FROM 'map_end'
              AND r.abandon_as IS NULL
              AND (only_runs IS NULL OR (s.run_id, s.step_no) IN (SELECT * FROM unnest(only_runs, only_nos)))
              AND NOT coalesce(w.shape ? 'stands_in' OR w.shape ? 'fallback'
                               AND _sas.fell_back(s.run_id, s.element, w.shape), false));
    PERFORM _sas.move_steps(changes);
    PERFORM _sas.ask_anew(run_ids);
    PERFORM _sas.resume_fallbacks(run_ids, only_runs, only_nos);
    PERFORM _sas.requeue(array_agg(c.run_id), array_agg(c.step_no), array_agg(c.element))
    FROM unnest(changes) c;
END $$;

-- _sas.resume_runs_as(caller, run_ids): the body of sas.resume_runs: continues these runs and the paused ones
-- below them.
-- Locks: these runs. Next: _sas.continue_runs.
CREATE FUNCTION _sas.resume_runs_as(caller oid, run_ids bigint[])
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    named _sas.named[] := _sas.operate(caller, run_ids);
    open bigint[] := _sas.open_named(named);
    ids bigint[];
    reached bigint[];
BEGIN
    SELECT array_agg(DISTINCT b.run_id), array_agg(DISTINCT b.root) INTO ids, reached
    FROM _sas.below(open, '{paused}') b;
    IF ids IS NOT NULL THEN
        PERFORM _sas.continue_runs(ids);
        PERFORM _sas.record(caller, ids, 'resume', NULL, NULL);
    END IF;
    RETURN QUERY SELECT * FROM _sas.report_runs('resume', named, coalesce(reached, '{}'));
END $$;

-- _sas.below(run_ids, states): those of these runs that are in one of these states, and the runs below them
-- that are; locked, in the order in which all verbs lock. root: the given run that this one is, or is
-- below.
CREATE FUNCTION _sas.below(run_ids bigint[], states text[]) RETURNS TABLE (root bigint, run_id bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH RECURSIVE below AS (
        SELECT u AS root, u AS run_id FROM unnest($1) u
        UNION
        SELECT b.root, c.run_id FROM below b
        CROSS JOIN LATERAL (SELECT x.run_id FROM _sas.run x WHERE x.parent_run_id = b.run_id
                            AND x.state <> 'stopped' OFFSET 0) c),
    locked AS MATERIALIZED (
        SELECT r.run_id FROM _sas.run r
        WHERE r.run_id = ANY (ARRAY(SELECT b.run_id FROM below b)) AND r.state = ANY ($2)
        ORDER BY r.run_id FOR NO KEY UPDATE)
    SELECT b.root, b.run_id FROM below b JOIN locked l ON l.run_id = b.run_id;
END $$;

-- _sas.set_priority_runs_as(...): the body of sas.set_priority_runs: as if the run had been submitted with
-- that priority; its open child runs change by the same amount. Waiting steps get a new rank.
-- Writes: run.
CREATE FUNCTION _sas.set_priority_runs_as(caller oid, run_ids bigint[], priority int)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    named _sas.named[];
    ids bigint[];
    deltas int[];
    family bigint[];
BEGIN
    IF $3 IS NULL OR $3 NOT BETWEEN -1000 AND 1000 THEN
        RAISE EXCEPTION 'the priority must be between -1000 and 1000'
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /priority.',
            HINT = 'The default is 0. A larger priority comes first.';
    END IF;
    named := _sas.operate(caller, run_ids);
    ids := _sas.open_named(named);
    IF ids <> '{}' THEN
        -- child runs have larger ids than their parents; so all verbs lock in the same order
        WITH RECURSIVE below AS (
            SELECT r.run_id, $3 + v.priority - r.priority AS delta FROM _sas.run r
            JOIN _sas.workflow_version v USING (version_id) WHERE r.run_id = ANY (ids)
            UNION ALL
            SELECT c.run_id, b.delta FROM below b
            CROSS JOIN LATERAL (SELECT x.run_id FROM _sas.run x WHERE x.parent_run_id = b.run_id
                                AND x.state <> 'stopped' AND x.run_id <> ALL (ids) OFFSET 0) c)
        SELECT array_agg(b.run_id ORDER BY b.run_id), array_agg(b.delta ORDER BY b.run_id) INTO family,
            deltas FROM below b;
        PERFORM FROM _sas.run r WHERE r.run_id = ANY (family) ORDER BY r.run_id FOR NO KEY UPDATE;
        UPDATE _sas.run r SET priority = r.priority + f.delta
        FROM unnest(family, deltas) AS f (run_id, delta) WHERE r.run_id = f.run_id AND f.delta <> 0;
        PERFORM _sas.rank_again(family, deltas);
        PERFORM _sas.record(caller, b.ids, 'set_priority', NULL,
                            jsonb_build_object('from', b.old, 'priority', $3))
        FROM (SELECT array_agg(f.run_id ORDER BY f.run_id) AS ids, $3 - f.delta AS old
              FROM unnest(family, deltas) AS f (run_id, delta) WHERE f.run_id = ANY (ids) GROUP BY 2) b;
    END IF;
    RETURN QUERY SELECT * FROM _sas.report_runs('set_priority', named, ids);
END $$;

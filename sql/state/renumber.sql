-- SPDX-License-Identifier: PostgreSQL
--
-- Renumber: the steps of a run have other numbers in another version of its definition.

-- _sas.renumber_steps(run_ids, old_nos, new_nos): gives these steps their new numbers in all tables. It
-- does so in two rounds, because the old number of one step may be the new number of another. Steps of an
-- abandoned run that are not listed have gone.
-- Caller: holds the lock of the runs; none of their steps is claimed. Writes: every table with steps of
-- runs.
CREATE FUNCTION _sas.renumber_steps(run_ids bigint[], old_nos int[], new_nos int[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    FOR round IN 1..2 LOOP
        UPDATE _sas.step t SET step_no = u.n FROM _sas.round_of(round, $1, $2, $3) u
        WHERE t.run_id = u.run_id AND t.step_no = u.o;
        UPDATE _sas.ready t SET step_no = u.n FROM _sas.round_of(round, $1, $2, $3) u
        WHERE t.run_id = u.run_id AND t.step_no = u.o;
        UPDATE _sas.override t SET step_no = u.n FROM _sas.round_of(round, $1, $2, $3) u
        WHERE t.run_id = u.run_id AND t.step_no = u.o;
        UPDATE _sas.item t SET step_no = u.n FROM _sas.round_of(round, $1, $2, $3) u
        WHERE t.run_id = u.run_id AND t.step_no = u.o;
        UPDATE _sas.map_key t SET step_no = u.n FROM _sas.round_of(round, $1, $2, $3) u
        WHERE t.run_id = u.run_id AND t.step_no = u.o;
        UPDATE _sas.map_list t SET step_no = u.n FROM _sas.round_of(round, $1, $2, $3) u
        WHERE t.run_id = u.run_id AND t.step_no = u.o;
        UPDATE _sas.map_progress t SET step_no = u.n FROM _sas.round_of(round, $1, $2, $3) u
        WHERE t.run_id = u.run_id AND t.step_no = u.o;
        UPDATE _sas.phase t SET step_no = u.n FROM _sas.round_of(round, $1, $2, $3) u
        WHERE t.run_id = u.run_id AND t.step_no = u.o;
        UPDATE _sas.signal t SET step_no = u.n FROM _sas.round_of(round, $1, $2, $3) u
        WHERE t.run_id = u.run_id AND t.step_no = u.o;
        UPDATE _sas.task t SET step_no = u.n FROM _sas.round_of(round, $1, $2, $3) u
        WHERE t.run_id = u.run_id AND t.step_no = u.o;
        UPDATE _sas.queue_slot t SET step_no = u.n FROM _sas.round_of(round, $1, $2, $3) u
        WHERE t.run_id = u.run_id AND t.step_no = u.o;
        UPDATE _sas.parked_step t SET step_no = u.n FROM _sas.round_of(round, $1, $2, $3) u
        WHERE t.run_id = u.run_id AND t.step_no = u.o;
        UPDATE _sas.message t SET step_no = u.n FROM _sas.round_of(round, $1, $2, $3) u
        WHERE t.run_id = u.run_id AND t.step_no = u.o;
        UPDATE _sas.chunk t SET step_no = u.n FROM _sas.round_of(round, $1, $2, $3) u
        WHERE t.run_id = u.run_id AND t.step_no = u.o;
        UPDATE _sas.attempt t SET step_no = u.n FROM _sas.round_of(round, $1, $2, $3) u
        WHERE t.run_id = u.run_id AND t.step_no = u.o;
        UPDATE _sas.alert t SET step_no = u.n FROM _sas.round_of(round, $1, $2, $3) u
        WHERE t.run_id = u.run_id AND t.step_no = u.o;
        UPDATE _sas.run t SET parent_step_no = u.n
        FROM _sas.round_of(round, $1, $2, $3) u
        WHERE t.parent_run_id = u.run_id AND t.parent_step_no = u.o;
        UPDATE _sas.concurrency_slot t SET parent_step_no = u.n
        FROM _sas.round_of(round, $1, $2, $3) u
        WHERE t.parent_run_id = u.run_id AND t.parent_step_no = u.o;
    END LOOP;
    UPDATE _sas.abandoned_run a
    SET undo_no = coalesce((SELECT u.n FROM unnest($1, $2, $3) AS u (run_id, o, n)
                            WHERE u.run_id = a.run_id AND u.o = a.undo_no), a.undo_no),
        steps = ARRAY(SELECT ROW(u.n, x.element, x.from_state, x.alone, x.waiting_kind, x.waiting_until,
                                 x.message_kind)::_sas.abandoned_step
                      FROM unnest(a.steps) x
                      JOIN unnest($1, $2, $3) AS u (run_id, o, n)
                          ON u.run_id = a.run_id AND u.o = x.step_no)
    WHERE a.run_id = ANY ($1);
END $$;

-- _sas.round_of(round, run_ids, old_nos, new_nos): the changes of one round: first to numbers that no step
-- has, then to the new numbers.
CREATE FUNCTION _sas.round_of(round int, run_ids bigint[], old_nos int[], new_nos int[])
RETURNS TABLE (run_id bigint, o int, n int)
LANGUAGE sql IMMUTABLE AS $$
    SELECT u.r, CASE round WHEN 1 THEN u.o ELSE -1 - u.n END, CASE round WHEN 1 THEN -1 - u.n ELSE u.n END
    FROM unnest($2, $3, $4) AS u (r, o, n) WHERE u.o <> u.n
$$;

-- _sas.forget_steps(run_ids, step_nos): deletes the state of these steps, which have not begun: they are as
-- they were before the run came to them.
-- Caller: holds the lock of the runs, and of their ready rows. Writes: step, ready, phase, message.
CREATE FUNCTION _sas.forget_steps(run_ids bigint[], step_nos int[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM _sas.step d USING unnest(run_ids, step_nos) AS u (run_id, step_no)
    WHERE d.run_id = u.run_id AND d.step_no = u.step_no;
    DELETE FROM _sas.ready d USING unnest(run_ids, step_nos) AS u (run_id, step_no)
    WHERE d.run_id = u.run_id AND d.step_no = u.step_no;
    DELETE FROM _sas.phase d USING unnest(run_ids, step_nos) AS u (run_id, step_no)
    WHERE d.run_id = u.run_id AND d.step_no = u.step_no;
    DELETE FROM _sas.message d USING unnest(run_ids, step_nos) AS u (run_id, step_no)
    WHERE d.run_id = u.run_id AND d.step_no = u.step_no;
END $$;

-- _sas.leave_steps(run_ids, step_nos): these steps, which have not begun, no longer exist: deletes
-- inputs and signals that were stored for them, because another step may get their numbers.
-- Writes: override, signal.
CREATE FUNCTION _sas.leave_steps(run_ids bigint[], step_nos int[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM _sas.override d USING unnest(run_ids, step_nos) AS u (run_id, step_no)
    WHERE d.run_id = u.run_id AND d.step_no = u.step_no;
    DELETE FROM _sas.signal d USING unnest(run_ids, step_nos) AS u (run_id, step_no)
    WHERE d.run_id = u.run_id AND d.step_no = u.step_no;
END $$;

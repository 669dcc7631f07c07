-- SPDX-License-Identifier: PostgreSQL
--
-- Another start time for runs that have not begun.

-- _sas.set_start_at_runs_as(...): the body of sas.set_start_at_runs: as if the run had been submitted with
-- this start_at; null: without one. Its deadline moves by the same amount.
-- Writes: run, message. Wakes: the scheduler, the supervisor.
CREATE FUNCTION _sas.set_start_at_runs_as(caller oid, run_ids bigint[], start_at timestamptz)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    named _sas.named[];
    ids bigint[];
BEGIN
    IF $3 > sas.now() + interval '100 years' OR NOT isfinite($3) THEN
        RAISE EXCEPTION 'the run must begin within a hundred years'
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /start_at.',
            HINT = 'Pass null for a run that waits for no time.';
    END IF;
    named := _sas.refuse_start(_sas.operate(caller, run_ids), $3);
    ids := ARRAY(SELECT r.run_id FROM unnest(named) n JOIN _sas.run r ON r.run_id = n.run_id
                 WHERE n.refused IS NULL AND (r.state = 'scheduled'
                     OR r.state = 'paused' AND r.paused_state = 'scheduled' AND r.abandon_as IS NULL));
    IF ids <> '{}' THEN
        PERFORM _sas.record(caller, b.ids, 'set_start_at', NULL,
                            jsonb_build_object('from', b.start_at, 'start_at', $3))
        FROM (SELECT array_agg(r.run_id ORDER BY r.run_id) AS ids, r.start_at FROM _sas.run r
              WHERE r.run_id = ANY (ids) GROUP BY r.start_at) b;
        PERFORM _sas.move_start(ids, $3);
    END IF;
    RETURN QUERY SELECT * FROM _sas.report_runs('set_start_at', named, ids);
END $$;

-- _sas.refuse_start(named, start_at): refuses runs whose start_before is before this start_at.
CREATE FUNCTION _sas.refuse_start(named _sas.named[], start_at timestamptz) RETURNS _sas.named[]
LANGUAGE sql STABLE AS $$
    SELECT coalesce(array_agg(_sas.refused(n, CASE WHEN r.start_before < $2
        THEN format('run %s must begin before %s; name an earlier time', n.run_id,
                    to_char(r.start_before AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS" UTC"')) END)
        ORDER BY n.run_id), '{}')
    FROM unnest(named) n LEFT JOIN _sas.run r ON r.run_id = n.run_id
$$;

-- _sas.move_start(run_ids, start_at): changes the times of these runs, which have not begun, and the
-- messages that check them. A paused run gets its message when it is resumed.
-- Writes: message, run. Wakes: the scheduler, the supervisor.
CREATE FUNCTION _sas.move_start(run_ids bigint[], start_at timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas.now();
    next timestamptz;
BEGIN
    DELETE FROM _sas.message d
    USING _sas.run r CROSS JOIN LATERAL (VALUES ('s'::"char", r.start_at, 'start'),
                                                ('v', r.deadline, 'deadline')) AS old (actor, due_at, kind)
    WHERE r.run_id = ANY ($1)
      AND d.actor = old.actor AND d.due_at = old.due_at AND d.run_id = r.run_id AND d.kind = old.kind;
    WITH moved AS (
        UPDATE _sas.run r
        SET start_at = $2, deadline = greatest($2, now) + (r.deadline - greatest(r.created_at, r.start_at))
        WHERE r.run_id = ANY ($1)
        RETURNING r.run_id, r.deadline),
    timed AS (
        INSERT INTO _sas.message (actor, due_at, run_id, kind)
        SELECT 'v', m.deadline, m.run_id, 'deadline' FROM moved m)
    SELECT min(m.deadline) INTO next FROM moved m;
    INSERT INTO _sas.message (actor, due_at, run_id, kind)
    SELECT 's', greatest($2, now), r.run_id, 'start' FROM _sas.run r
    WHERE r.run_id = ANY ($1) AND r.state = 'scheduled';
    PERFORM _sas.due_by(next);
    PERFORM _sas.wake(scheduler => true, supervisor => true);
END $$;

-- SPDX-License-Identifier: PostgreSQL
--
-- Apart: the frame of every tick. What a tick has taken is carried out as a set. If the set raises an
-- error, its items are carried out one by one, so that a failing item holds up no other. The failing item
-- is deferred, with an alert, and tried again.

-- _sas.apart(work, items): carries out what a tick has taken.
--   work     an expression with the items as $1 that returns a bigint[] or null
--   results  everything that it returned
--   failed   the positions of the items that failed by themselves; beside them are their errors (problem
--            objects), and how long to defer each (_sas.pause_after)
-- A cancel raises an error, and so does a table that is locked: the tick ends, and the next one tries
-- again. So do items whose templates together cost too much (SAS01): the next tick takes fewer.
CREATE FUNCTION _sas.apart(work text, items anyarray, OUT results bigint[], OUT failed int[],
                           OUT errors jsonb[], OUT pauses interval[])
LANGUAGE plpgsql AS $$
DECLARE
    locked int := 0;
    result bigint[];
BEGIN
    PERFORM _sas.shorten_locks(false);
    BEGIN
        EXECUTE 'SELECT ' || work INTO results USING items;
        RETURN;
    EXCEPTION WHEN OTHERS THEN
        IF SQLSTATE = 'SAS01' THEN
            RAISE;
        END IF;
        locked := _sas.count_lock(SQLSTATE);
    END;
    FOR n IN 1 .. cardinality(items) LOOP
        BEGIN
            EXECUTE 'SELECT ' || work INTO result USING items[n : n];
            results := results || result;
        EXCEPTION WHEN OTHERS THEN
            -- a timeout is raised again: a table is locked, not a row, and each item would wait for it
            locked := locked + _sas.count_lock(SQLSTATE);
            IF locked > 2 OR SQLSTATE = 'SAS01' THEN
                RAISE;
            END IF;
            failed := failed || n;
            errors := errors || _sas.problem_object('sqlstate:' || SQLSTATE, SQLERRM);
            pauses := pauses || _sas.pause_after(SQLSTATE);
        END;
    END LOOP;
END $$;

-- _sas.count_lock(state): 1 if this error is a lock timeout, which is counted; else 0. The worker waits less
-- for locks then, for a while.
CREATE FUNCTION _sas.count_lock(state text) RETURNS int
LANGUAGE plpgsql AS $$
BEGIN
    IF state <> '55P03' THEN
        RETURN 0;
    END IF;
    PERFORM _sas.count_metric('lock_timeout', 0, 0, CASE WHEN a.backend_type LIKE 'sas %'
                              THEN substr(a.backend_type, 5) ELSE 'session' END, 1)
    FROM pg_stat_get_activity(pg_backend_pid()) a;
    PERFORM _sas.shorten_locks(true);
    RETURN 1;
END $$;

-- _sas.is_of_item(state): may an error with this SQLSTATE be the fault of one item? A batch whose templates
-- cost too much (SAS01, src/template/budget.c), a locked table, a
-- deadlock or a serialization failure is not.
CREATE FUNCTION _sas.is_of_item(state text) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$ SELECT state NOT IN ('55P03', 'SAS01') AND state NOT LIKE '40%' $$;

-- _sas.may_pass(state): does such an error show that the server lacks memory, disk or the like now?
CREATE FUNCTION _sas.may_pass(state text) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$ SELECT state ~ '^(53[123]|57|58)' $$;

-- _sas.pause_after(state): how long an item that raised an error with this SQLSTATE is deferred. What the
-- server lacks now is not the fault of the item: any role can take all locks of the server for a moment. Nor
-- is a lock that a session holds: its work goes on when that is released.
CREATE FUNCTION _sas.pause_after(state text) RETURNS interval
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN _sas.may_pass(state) OR NOT _sas.is_of_item(state) THEN interval '1 s'
           ELSE interval '1 min' END
$$;

-- _sas.template_fault(state, message): the problem of a step whose templates could not be filled in, because
-- that raised this error.
CREATE FUNCTION _sas.template_fault(state text, message text) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_build_object('path', 'template', 'what', message, 'transient', _sas.may_pass(state))
$$;

-- _sas.defer_apart(of_kind, ids, failed, errors, pauses, runs): raises alerts for those of these items that
-- _sas.apart could not carry out, and defers each for its pause. Scans for work of this kind leave them out
-- until then: see _sas.is_deferred. runs: the run of each item; null: none.
-- Writes: deferred_work.
CREATE FUNCTION _sas.defer_apart(of_kind text, ids bigint[], failed int[], errors jsonb[],
                                 pauses interval[], runs bigint[] DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO _sas.deferred_work AS d (kind, id, until)
    SELECT of_kind, ids[u.n], sas.now() + max(u.pause) FROM unnest(failed, pauses) AS u (n, pause) GROUP BY 2
    ON CONFLICT (kind, id) DO UPDATE SET until = excluded.until;
    PERFORM _sas.raise_failing('stuck', format('%s %s stuck', of_kind, ids[u.n]),
                               format('%s%s %s cannot be carried out', 'run ' || runs[u.n] || ': ', of_kind,
                                      ids[u.n]), u.why, runs[u.n])
    FROM unnest(failed, errors) AS u (n, why);
END $$;

-- _sas.is_deferred(of_kind, of_id): is this item deferred now?
CREATE FUNCTION _sas.is_deferred(of_kind text, of_id bigint) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM _sas.deferred_work d WHERE d.kind = of_kind AND d.id = of_id
                   AND d.until > sas.now())
$$;

-- _sas.next_deferred(of_kind): when the first deferral of this kind is over; null: there is none. A tick that
-- leaves such work out ends its sleep then: nobody wakes it.
CREATE FUNCTION _sas.next_deferred(of_kind text) RETURNS timestamptz
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT min(d.until) FROM _sas.deferred_work d WHERE d.kind = of_kind AND d.until > sas.now());
END $$;

-- _sas.retry_deferred(): deletes deferrals whose time is over. Returns whether there were any.
-- Writes: deferred_work.
CREATE FUNCTION _sas.retry_deferred() RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM _sas.deferred_work d
    WHERE d.ctid = ANY (ARRAY(SELECT x.ctid FROM _sas.deferred_work x WHERE x.until <= sas.now()
                              FOR UPDATE SKIP LOCKED));
    RETURN FOUND;
END $$;

-- _sas.part(what, work): runs one part of a tick, an expression that returns a number or null. If it raises
-- an error, that is an alert, and the result is null, so that it does not hold up the other parts.
CREATE FUNCTION _sas.part(what text, work text) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    done record := _sas.apart(format('ARRAY(SELECT %s)', work), ARRAY[1]);
BEGIN
    PERFORM _sas.raise_failing('stuck', what || ' stuck', format('could not %s', what), done.errors[1])
    WHERE done.failed IS NOT NULL;
    RETURN done.results[1];
END $$;

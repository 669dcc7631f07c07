-- SPDX-License-Identifier: PostgreSQL
--
-- Alerts: what an operator should see. There is one row per cause, with a count; alerts of runs have one
-- row per cause, workflow and owner. A row is closed when its cause has ended: at once if sas sees the end,
-- else by the checks of the supervisor (sql/supervisor/conditions.sql). Some kinds have no detectable end;
-- acknowledging such an alert closes it.

-- _sas.lasts(kind): can sas itself detect the end of such a cause?
CREATE FUNCTION _sas.lasts(kind text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT kind IN ('step-failed', 'undo-failed', 'parked', 'deadline', 'breaker-open', 'worker-slots',
                    'shared-memory', 'crash-loop', 'late', 'stuck', 'purge-failed', 'schedule-failed',
                    'schedule-paused', 'quarantine')
$$;

-- _sas.has_runs(kind): does such an alert last as long as the runs for which it was raised have this cause?
CREATE FUNCTION _sas.has_runs(kind text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT kind IN ('step-failed', 'undo-failed', 'parked', 'deadline', 'stuck')
$$;

-- _sas.raise_alert(kind, cause, message, agent_id, run_id, step_no, error, private): raises an alert, or
-- counts the open alert with the same cause once more. Only new alerts send a NOTIFY and call the hook. If a
-- cause in the server or an agent comes back within five minutes of its end, it is the same alert; so a
-- breaker that opens and closes is reported once. Alerts of runs are grouped: see _sas.raise_run_alert.
--
-- error: belongs to a message that ends in "failed: <title>". The private message has the whole cause in
-- that place, the other message what _sas.public_error leaves of it. private: the private message, if it is
-- a different one.
--   holds   nothing; never waits for a row that another session has locked
--   writes  alert; for a new alert also a message, if a hook is set and the alert is not about the failure of
--           that hook
--   wakes   the supervisor, for that message; not the scheduler, because a late scheduler is one of the
--           alerts
--   next    _sas.fire_alert_hook
CREATE FUNCTION _sas.raise_alert(kind text, cause text, message text, agent_id int DEFAULT NULL,
                                 run_id bigint DEFAULT NULL, step_no int DEFAULT NULL,
                                 error jsonb DEFAULT NULL, private text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    now timestamptz := sas.now();
    taken boolean := EXISTS (SELECT FROM _sas.alert l WHERE l.cause = $2 AND l.closed_at IS NULL);
    whole text := coalesce($8, replace($3, 'failed: ' || ($7 ->> 'title'), 'failed: ' || _sas.title($7)));
    public text := coalesce(replace($3, 'failed: ' || ($7 ->> 'title'),
                                    'failed: ' || (_sas.public_error($7) ->> 'title')), $3);
    known bigint;
    made bigint;
BEGIN
    IF $5 IS NOT NULL THEN
        PERFORM _sas.raise_run_alert($1, $2, public, whole, $4, $5, $6);
        RETURN;
    END IF;
    -- never waits for a session that is acknowledging the alert
    SELECT l.alert_id INTO known FROM _sas.alert l WHERE l.cause = $2
        AND l.closed_at IS NULL FOR UPDATE SKIP LOCKED;
    IF NOT taken AND _sas.lasts($1) THEN
        SELECT l.alert_id INTO known FROM _sas.alert l
        WHERE l.closed_at > now - interval '5 min' AND l.cause = $2 ORDER BY l.closed_at DESC
            LIMIT 1 FOR UPDATE SKIP LOCKED;
    END IF;
    UPDATE _sas.alert a SET occurrences = a.occurrences + 1, last_at = now, message = public,
        private_message = whole, closed_at = NULL
    WHERE a.alert_id = known;
    IF FOUND OR taken AND _sas.lasts($1) THEN
        RETURN;
    END IF;
    -- that session may close an alert whose end cannot be detected; so this occurrence needs an alert of
    -- its own
    INSERT INTO _sas.alert AS a (alert_id, kind, cause, agent_id, message, private_message, created_at,
                                 last_at)
    OVERRIDING SYSTEM VALUE
    VALUES (_sas.next_alert_id(), $1, $2 || CASE WHEN taken THEN ' since ' || now ELSE '' END, $4, public,
            whole, now, now)
    ON CONFLICT (cause) WHERE closed_at IS NULL
    DO UPDATE SET occurrences = a.occurrences + 1, last_at = EXCLUDED.last_at, message = EXCLUDED.message,
        private_message = EXCLUDED.private_message
    RETURNING CASE WHEN a.occurrences = 1 THEN a.alert_id END INTO made;
    PERFORM _sas.announce_alert($1, made) WHERE made IS NOT NULL;
END $$;

-- _sas.raise_failing(kind, cause, what, error, run_id, step_no, more): raises an alert that ends with an
-- error of SQL, as _sas.apart reports it. Such an error may contain anything that a user has written, so
-- roles that may not see payloads get its SQLSTATE only. more: what else the message says.
CREATE FUNCTION _sas.raise_failing(kind text, cause text, what text, error jsonb, run_id bigint DEFAULT NULL,
                                   step_no int DEFAULT NULL, more text DEFAULT '') RETURNS void
LANGUAGE sql AS $$
    SELECT _sas.raise_alert($1, $2, concat($3, ': ', _sas.public_error($4) ->> 'title', $7), NULL, $5, $6,
                            private => concat($3, ': ', $4 ->> 'title', $7))
$$;

-- _sas.announce_alert(kind, alert_id): sends a NOTIFY and a message for the hook: this alert is new.
-- Writes: message. Wakes: NOTIFY sas_alert.
CREATE FUNCTION _sas.announce_alert(kind text, alert_id bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM _sas.count_metric('alert', 0, 0, $1, 1);
    PERFORM _sas.notify('sas_alert', jsonb_build_object(
        'alert_id', $2, 'kind', $1,
        'run_id', (SELECT l.run_id FROM _sas.alert l WHERE l.alert_id = $2))::text);
    INSERT INTO _sas.message (actor, due_at, run_id, kind, alert_id)
    SELECT 'v', _sas.due_by(sas.now()), 0, 'alert_hook', $2
    WHERE $1 <> 'alert-hook-failed' AND EXISTS (SELECT FROM _sas.alert_hook);
END $$;

-- _sas.raise_run_alert(kind, cause, message, whole, agent_id, run_id, step_no): raises an alert of a run.
-- It is counted in the open alert that runs of the same workflow and owner have for this cause, so that
-- many runs make one alert. An acknowledged alert takes no further run, so another run raises a new alert;
-- but what recurs in a run that it already has is counted in it.
--   holds   the lock of the run. Never waits for an alert that another session has locked, or has not
--           committed yet: it uses another row beside it
--   writes  alert, alert_run
CREATE FUNCTION _sas.raise_run_alert(kind text, cause text, message text, whole text, agent_id int,
                                     run_id bigint, step_no int) RETURNS void
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    run record;
    named text;
    beside text;
    into_alert bigint := (SELECT m.alert_id FROM _sas.alert_run m JOIN _sas.alert l USING (alert_id)
                          WHERE m.run_id = $6 AND m.cause = $2 AND l.closed_at IS NULL);
BEGIN
    IF into_alert IS NOT NULL THEN
        PERFORM _sas.count_alert(into_alert, $3, $4, $6, $7);
        RETURN;
    END IF;
    SELECT v.workflow_id, r.owner INTO run FROM _sas.run r JOIN _sas.workflow_version v USING (version_id)
    WHERE r.run_id = $6;
    named := format('%s: %s of workflow %s, owner %s%s', $1, $2, run.workflow_id, run.owner::oid,
                    _sas.test_mark());
    FOR n IN 1 .. 1000 LOOP
        beside := named || CASE WHEN n > 1 THEN ' beside ' || n ELSE '' END;
        SELECT l.alert_id INTO into_alert FROM _sas.alert l WHERE l.cause = beside AND l.closed_at IS NULL
        FOR UPDATE SKIP LOCKED;
        EXIT WHEN FOUND AND _sas.count_alert(into_alert, $3, $4, $6, $7);
        -- the unique index would wait for a session that is just inserting the same cause
        CONTINUE WHEN EXISTS (SELECT FROM _sas.alert l WHERE l.cause = beside AND l.closed_at IS NULL)
            OR NOT _sas.try_lock('alert ' || beside);
        INSERT INTO _sas.alert (alert_id, kind, cause, agent_id, workflow_id, owner, run_id, run_ids, step_no,
                                message, private_message, created_at, last_at)
        OVERRIDING SYSTEM VALUE
        VALUES (_sas.next_alert_id(), $1, beside, $5, run.workflow_id, run.owner, $6, ARRAY[$6], $7, $3, $4,
                sas.now(), sas.now())
        ON CONFLICT DO NOTHING RETURNING alert_id INTO into_alert;
        IF FOUND THEN
            PERFORM _sas.announce_alert($1, into_alert);
            EXIT;
        END IF;
    END LOOP;
    INSERT INTO _sas.alert_run (run_id, cause, alert_id)
    SELECT $6, $2, into_alert WHERE _sas.has_runs($1) AND into_alert IS NOT NULL
    ON CONFLICT (run_id, cause) DO UPDATE SET alert_id = EXCLUDED.alert_id;
END $$;

-- _sas.count_alert(alert_id, message, whole, run_id, step_no): counts this alert once more, for this run.
-- Returns false if another session has it locked; then nothing is counted.
-- Writes: alert.
CREATE FUNCTION _sas.count_alert(alert_id bigint, message text, whole text, run_id bigint, step_no int)
RETURNS boolean
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    free bigint := (SELECT l.alert_id FROM _sas.alert l WHERE l.alert_id = $1 FOR UPDATE SKIP LOCKED);
BEGIN
    UPDATE _sas.alert a SET occurrences = a.occurrences + 1, last_at = sas.now(), message = $2,
        private_message = $3, run_id = $4, step_no = $5,
        run_ids = (array_prepend($4, array_remove(a.run_ids, $4)))[1:10]
    WHERE a.alert_id = free;
    RETURN FOUND;
END $$;

-- _sas.close_alerts(causes): closes the alerts of these causes, which have ended. An alert that a session
-- is just acknowledging is left to the checks of the supervisor.
-- Writes: alert, alert_run.
CREATE FUNCTION _sas.close_alerts(causes text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    WITH closed AS (
        UPDATE _sas.alert a SET closed_at = sas.now()
        WHERE a.alert_id IN (SELECT l.alert_id FROM _sas.alert l WHERE l.cause = ANY (causes)
                             AND l.closed_at IS NULL FOR UPDATE SKIP LOCKED)
        RETURNING a.alert_id)
    DELETE FROM _sas.alert_run m USING closed c WHERE m.alert_id = c.alert_id;
END $$;

-- _sas.close_resolved(alert_ids): closes those of these alerts that have no run left. They are locked first:
-- then no session adds a run to them, and the next statement sees runs that were added before.
-- Writes: alert.
CREATE FUNCTION _sas.close_resolved(alert_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    free bigint[] := ARRAY(SELECT l.alert_id FROM _sas.alert l WHERE l.alert_id = ANY (alert_ids)
                           AND l.closed_at IS NULL ORDER BY l.alert_id FOR UPDATE SKIP LOCKED);
BEGIN
    UPDATE _sas.alert a SET closed_at = sas.now()
    WHERE a.alert_id = ANY (free)
      AND NOT EXISTS (SELECT FROM _sas.alert_run m WHERE m.alert_id = a.alert_id);
END $$;

-- _sas.remind_at(deadline): when the supervisor checks whether the undo that this deadline has begun is
-- over.
CREATE FUNCTION _sas.remind_at(deadline timestamptz) RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE AS $$ SELECT deadline + interval '1 h' $$;

-- _sas.close_alerts_of(run_ids): closes the alerts of these runs, which are no longer paused, or have
-- been undone.
-- Writes: alert_run, message.
CREATE FUNCTION _sas.close_alerts_of(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    resolved bigint[];
BEGIN
    WITH gone AS (
        DELETE FROM _sas.alert_run m USING _sas.alert l
        WHERE m.run_id = ANY ($1) AND l.alert_id = m.alert_id AND l.kind <> 'stuck'
        RETURNING m.alert_id)
    SELECT array_agg(DISTINCT g.alert_id) INTO resolved FROM gone g;
    IF resolved IS NOT NULL THEN
        PERFORM _sas.close_resolved(resolved);
    END IF;
    DELETE FROM _sas.message d USING _sas.run r
    WHERE r.run_id = ANY (run_ids) AND r.state = 'stopped' AND r.deadline <= sas.now()
      AND d.actor = 'v' AND d.due_at = _sas.remind_at(r.deadline) AND d.run_id = r.run_id
          AND d.kind = 'reminder';
END $$;

-- _sas.acknowledge_alerts_as(caller, alert_ids): the body of sas.acknowledge_alerts. Reports for each
-- alert, in the given order, its run and step, and whether it was new or does not exist.
-- Writes: alert, operator_action.
CREATE FUNCTION _sas.acknowledge_alerts_as(caller oid, alert_ids bigint[])
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    seen bigint[];
BEGIN
    WITH seen AS (
        UPDATE _sas.alert a
        SET acknowledged_at = sas.now(), acknowledged_by = pg_get_userbyid(caller),
            closed_at = CASE WHEN _sas.lasts(a.kind) THEN a.closed_at
                ELSE coalesce(a.closed_at, sas.now()) END,
            -- further runs raise another alert
            cause = a.cause || CASE WHEN a.run_id IS NOT NULL AND _sas.has_runs(a.kind)
                THEN format(' seen %s', a.alert_id) ELSE '' END
        WHERE a.alert_id = ANY (alert_ids) AND a.acknowledged_at IS NULL
        RETURNING a.alert_id, a.kind, a.run_id),
    told AS (
        INSERT INTO _sas.operator_action (run_id, at, role, act, detail)
        SELECT s.run_id, sas.now(), pg_get_userbyid(caller), 'acknowledge',
            jsonb_build_object('alert', s.alert_id, 'kind', s.kind) FROM seen s ORDER BY s.alert_id)
    SELECT array_agg(s.alert_id) INTO seen FROM seen s;
    RETURN QUERY
    SELECT a.run_id, _sas.shown_name(w.name), coalesce(a.alert_id = ANY (seen), false), r.state, r.result,
           CASE WHEN a.alert_id IS NULL THEN 'there is no such alert'
               WHEN coalesce(a.alert_id = ANY (seen), false) THEN NULL
               ELSE format('%s has acknowledged alert %s before', a.acknowledged_by, a.alert_id) END
    FROM (SELECT u.alert_id, min(u.n) AS n FROM unnest(alert_ids) WITH ORDINALITY AS u (alert_id, n)
          GROUP BY 1) g
    LEFT JOIN _sas.alert a ON a.alert_id = g.alert_id
    LEFT JOIN _sas.run r ON r.run_id = a.run_id
    LEFT JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = a.step_no AND NOT w.undo
    ORDER BY g.n;
END $$;

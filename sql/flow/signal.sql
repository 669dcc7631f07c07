-- SPDX-License-Identifier: PostgreSQL
--
-- Signals, as sessions send them: to a run, to its child runs, by key, by token. A signal that no step can
-- ever take is refused. sql/flow/wait.sql delivers them.

-- _sas.refuse_signal(r, signal, for_step, for_element): the reason why no step of this run, nor the undo of
-- one, can ever take a signal of that name; null if one can. for_step, for_element: the step that the signal
-- is for.
CREATE FUNCTION _sas.refuse_signal(r _sas.run, signal text, for_step int, for_element int) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN r.state = 'stopped' THEN format('run %s has stopped', r.run_id)
                WHEN can.take THEN NULL
                WHEN r.abandon_as IS NOT NULL
                THEN format('run %s is being undone, and no undo waits for it', r.run_id)
                WHEN can.take IS NULL
                THEN format('no step of run %s waits for a signal "%s"', r.run_id, signal)
                ELSE format('every step of run %s that waited for a signal "%s" has ended', r.run_id,
                            signal) END
    FROM (SELECT bool_or(CASE WHEN w.undo
                         THEN coalesce(s.state, 'waiting') NOT IN ('compensated', 'cancelled')
                         ELSE r.abandon_as IS NULL
                             AND (coalesce(s.state, 'waiting') IN ('waiting', 'ready', 'suspended')
                                  -- not before it is decided that the run waits for an operator: a signal is
                                  -- not accepted for a run that is undone a moment later
                                  OR s.state = 'failed'
                                     AND (s.waiting_kind IS DISTINCT FROM 'supervisor' OR r.state = 'paused'
                                          OR coalesce(w.on_permanent, v.on_permanent) = 'pause')) END) AS take
          FROM _sas.workflow_step w
          JOIN _sas.workflow_version v ON v.version_id = w.version_id
          LEFT JOIN _sas.step s ON s.run_id = r.run_id AND s.step_no = w.step_no
              AND s.element = coalesce(for_element, 0)
          WHERE w.version_id = r.version_id AND w.kind = 'wait'
            AND w.shape #> '{wait,signal}' @> to_jsonb(signal)
            AND (for_step IS NULL OR w.step_no = for_step AND NOT w.undo)) can
$$;

-- _sas.latest_refusal(run_id, signal, for_step, for_element): _sas.refuse_signal of the run as it is
-- committed now, for a transaction whose snapshot is older; null in READ COMMITTED, where no snapshot is.
CREATE FUNCTION _sas.latest_refusal(run_id bigint, signal text, for_step int, for_element int) RETURNS text
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_latest_refusal';

-- _sas.check_takers(r, signal, for_step, for_element): raises an error if no step can ever take the signal.
CREATE FUNCTION _sas.check_takers(r _sas.run, signal text, for_step int, for_element int) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    why text := coalesce(_sas.refuse_signal(r, signal, for_step, for_element),
                         _sas.latest_refusal(r.run_id, signal, for_step, for_element));
BEGIN
    IF why IS NOT NULL THEN
        RAISE EXCEPTION 'signal "%" cannot be delivered: %', signal, why
            USING ERRCODE = 'object_not_in_prerequisite_state',
            DETAIL = _sas.at(CASE WHEN for_step IS NULL THEN '/name' ELSE '/token' END),
            HINT = 'See sas.steps for what the run waits for.';
    END IF;
END $$;

-- _sas.check_signals(r): raises an error if as many signals wait in this run as its owner may have. They are
-- counted only if there can be as many, from the first id to the last.
CREATE FUNCTION _sas.check_signals(r _sas.run) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    most bigint := _sas.limit_of(r.owner, 'signals');
    span bigint := (SELECT max(g.signal_id) - min(g.signal_id) + 1 FROM _sas.signal g
                    WHERE g.run_id = r.run_id);
BEGIN
    IF coalesce(span, 0) >= most THEN
        PERFORM _sas.refuse_rows(r.owner, 'signals',
                                 (SELECT count(*) + 1 FROM _sas.signal g WHERE g.run_id = r.run_id),
                                 format('too many signals wait in run %s', r.run_id), '/run_id',
                                 'Wait until steps have taken some');
    END IF;
END $$;

-- _sas.waits_to_end(ids, signal): those of these runs in which the time of a wait for that signal has come.
CREATE FUNCTION _sas.waits_to_end(ids bigint[], signal text) RETURNS bigint[]
LANGUAGE sql AS $$
    SELECT ARRAY(
        SELECT DISTINCT r.run_id FROM _sas.run r
        JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.kind = 'wait'
            AND w.shape #> '{wait,signal}' @> to_jsonb($2)
        JOIN _sas.step s ON s.run_id = r.run_id AND s.step_no = w.step_no AND s.waiting_kind = 'signal'
        WHERE r.run_id = ANY ($1) AND s.waiting_until <= sas.now())
$$;

-- _sas.await_ends(ids, signal): a signal has been stored for each of these runs. A tick that ends a wait
-- after that sees it and leaves the wait alone (_sas.serve_waits). A tick that may have looked before holds
-- the run: waits for its end, so that the caller can check what is left to take the signal.
CREATE FUNCTION _sas.await_ends(ids bigint[], signal text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    held bigint[] := ARRAY(SELECT u FROM unnest(ids) u WHERE _sas.run_is_held(u));
BEGIN
    IF held <> '{}' THEN
        PERFORM _sas.await_run(u) FROM unnest(_sas.waits_to_end(held, signal)) u;
    END IF;
END $$;

-- _sas.send_signal(...): stores a signal and sends the scheduler a message; raises an error if no step can
-- ever take it. for_step: the step that it is for; null: any step that waits for the name.
-- Writes: signal, message. Wakes: the scheduler. Next: _sas.deliver_signals.
CREATE FUNCTION _sas.send_signal(caller oid, r _sas.run, name text, payload jsonb, for_step int,
                                 for_element int) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF $3 IS NULL THEN
        RAISE EXCEPTION 'the name of a signal must not be null'
            USING ERRCODE = 'null_value_not_allowed', DETAIL = 'At /name.',
            HINT = 'Name the signal that a step waits for; see sas.steps.';
    ELSIF payload IS NULL THEN
        RAISE EXCEPTION 'the payload of a signal must not be null'
            USING ERRCODE = 'null_value_not_allowed', DETAIL = 'At /payload.',
            HINT = 'Pass jsonb such as {"approved": true}.';
    END IF;
    PERFORM _sas.check_input_size(payload, '/payload', 'the payload');
    PERFORM _sas.check_takers(r, $3, for_step, for_element);
    PERFORM _sas.check_signals(r);
    INSERT INTO _sas.signal (run_id, name, step_no, element, payload, sent_by, created_at)
    VALUES (r.run_id, $3, for_step, for_element, $4, caller, sas.now())
    ON CONFLICT (run_id, step_no, element) WHERE step_no IS NOT NULL DO NOTHING;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the token has already been used'
            USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = 'At /token.',
            HINT = 'A token can be used once.';
    END IF;
    -- since the check, an earlier signal by the same token may have been delivered, for whose commit the
    -- INSERT has waited, or the time of the wait may have come
    PERFORM _sas.await_ends(ARRAY[r.run_id], $3);
    PERFORM _sas.check_takers(r, $3, for_step, for_element);
    INSERT INTO _sas.message (actor, due_at, run_id, kind) VALUES ('s', sas.now(), r.run_id, 'signal');
    PERFORM _sas.wake(scheduler => true);
END $$;

-- _sas.waiting_below(run_id, signal): the open runs below this one that are waiting for this signal now.
CREATE FUNCTION _sas.waiting_below(run_id bigint, signal text) RETURNS SETOF _sas.run
LANGUAGE sql AS $$
    WITH RECURSIVE below AS (
        SELECT x.run_id, x.version_id FROM _sas.run x
        WHERE x.parent_run_id = $1 AND x.state <> 'stopped'
        UNION ALL
        SELECT c.run_id, c.version_id
        FROM below b
        CROSS JOIN LATERAL (SELECT x.run_id, x.version_id FROM _sas.run x WHERE x.parent_run_id = b.run_id
                            AND x.state <> 'stopped' OFFSET 0) c)
    SELECT x.* FROM below b JOIN _sas.run x ON x.run_id = b.run_id
    WHERE EXISTS (SELECT FROM _sas.workflow_step w
                  CROSS JOIN LATERAL (SELECT FROM _sas.step x
                                      WHERE x.run_id = b.run_id AND x.step_no = w.step_no
                                          AND x.waiting_kind = 'signal'
                                          AND x.state = CASE WHEN w.undo THEN 'compensating'
                                              ELSE 'suspended' END OFFSET 0) s
                  WHERE w.version_id = b.version_id AND w.kind = 'wait'
                    AND w.shape #> '{wait,signal}' @> to_jsonb($2))
$$;

-- _sas.signal_children(caller, run_id, name, payload): sends the signal to each open run below this one
-- that is waiting for it now. Returns how many.
-- Writes: signal, message.
CREATE FUNCTION _sas.signal_children(caller oid, run_id bigint, name text, payload jsonb) RETURNS bigint
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    ids bigint[];
    sent bigint[];
    ended bigint[];
BEGIN
    WITH waits AS (SELECT x.run_id, _sas.check_signals(x) FROM _sas.waiting_below($2, $3) x),
    stored AS (
        INSERT INTO _sas.signal (run_id, name, payload, sent_by, created_at)
        SELECT w.run_id, $3, $4, $1, sas.now() FROM waits w RETURNING run_id, signal_id)
    SELECT array_agg(s.run_id), array_agg(s.signal_id) INTO ids, sent FROM stored s;
    IF ids IS NULL THEN
        RETURN 0;
    END IF;
    PERFORM _sas.await_ends(ids, $3);
    ended := ARRAY(SELECT unnest(ids) EXCEPT SELECT x.run_id FROM _sas.waiting_below($2, $3) x);
    IF ended <> '{}' THEN
        DELETE FROM _sas.signal g WHERE g.run_id = ANY (ended) AND g.signal_id = ANY (sent);
        ids := ARRAY(SELECT unnest(ids) EXCEPT SELECT unnest(ended));
    END IF;
    INSERT INTO _sas.message (actor, due_at, run_id, kind)
    SELECT 's', sas.now(), u, 'signal' FROM unnest(ids) u;
    RETURN cardinality(ids);
END $$;

-- _sas.check_giver(caller, r, payload): raises an error if the caller may not give this run the payload.
CREATE FUNCTION _sas.check_giver(caller oid, r _sas.run, payload jsonb) RETURNS void
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF payload <> '{}' AND NOT _sas.may_stand_for(caller, r.owner) AND NOT _sas.trusts(r.owner, caller)
        THEN
        RAISE EXCEPTION 'only a member of role "%" can give data to run %', pg_get_userbyid(r.owner),
                r.run_id
            USING ERRCODE = 'insufficient_privilege', DETAIL = 'At /payload.',
                HINT = 'Send the signal without a payload, or as that role.';
    END IF;
END $$;

-- _sas.signal_run(caller, r, name, payload): sends the signal to a run and the runs below it. If the run
-- itself cannot take it, an error is raised unless a run below takes it. A payload is data for the steps
-- that follow; therefore only a superuser can give one to a superuser's run. What another role than the
-- owner does to a run is an act for sas.history; the row of a signal is gone when a step has taken it.
-- Wakes: the scheduler.
CREATE FUNCTION _sas.signal_run(caller oid, r _sas.run, name text, payload jsonb) RETURNS void
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    PERFORM _sas.check_giver(caller, r, $4);
    PERFORM _sas.record(caller, ARRAY[r.run_id], 'signal', NULL, jsonb_build_object('name', $3))
    WHERE caller <> r.owner;
    IF NOT EXISTS (SELECT FROM _sas.run x WHERE x.parent_run_id = r.run_id AND x.state <> 'stopped') THEN
        PERFORM _sas.send_signal(caller, r, $3, $4, NULL, NULL);
        RETURN;
    END IF;
    BEGIN
        PERFORM _sas.send_signal(caller, r, $3, $4, NULL, NULL);
    EXCEPTION WHEN object_not_in_prerequisite_state THEN
        IF _sas.signal_children(caller, r.run_id, $3, $4) = 0 THEN
            RAISE;
        END IF;
        PERFORM _sas.wake(scheduler => true);
        RETURN;
    END;
    PERFORM _sas.signal_children(caller, r.run_id, $3, $4);
END $$;

-- _sas.signal_as(caller, run_id, name, payload): the body of sas.signal. Next: _sas.signal_run.
CREATE FUNCTION _sas.signal_as(caller oid, run_id bigint, name text, payload jsonb) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    r _sas.run;
BEGIN
    SELECT * INTO r FROM _sas.run x WHERE x.run_id = $2
       AND _sas.may_operate(caller, x.owner);
    IF NOT FOUND THEN
        RAISE EXCEPTION 'run % does not exist, or is not yours', coalesce($2::text, 'null')
            USING ERRCODE = 'undefined_object', DETAIL = 'At /run_id.',
            HINT = 'See sas.runs for your runs.';
    END IF;
    PERFORM _sas.signal_run(caller, r, $3, $4);
END $$;

-- _sas.signal_key_as(caller, workflow, key, name, payload): the body of sas.signal_key. The caller's own run
-- goes before those of other owners with that key. Next: _sas.signal_run.
CREATE FUNCTION _sas.signal_key_as(caller oid, workflow text, key text, name text, payload jsonb) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    ids bigint[];
    r _sas.run;
BEGIN
    -- the caller's own run first: runs of different owners may have the same key
    SELECT array_agg(x.run_id ORDER BY (x.owner = caller) DESC) INTO ids
    FROM _sas.workflow f
    CROSS JOIN _sas.run_owners() AS o (owner)
    -- OFFSET 0: by the whole key, for each owner; else all keys may be read
    CROSS JOIN LATERAL (SELECT y.run_id FROM _sas.run_key y
                        WHERE y.owner = o.owner AND y.workflow_id = f.workflow_id AND y.key = $3 OFFSET 0) k
    JOIN _sas.run x ON x.run_id = k.run_id
    WHERE f.name = $2 AND f.dropped_at IS NULL
      AND _sas.may_operate(caller, o.owner);
    IF ids IS NULL THEN
        PERFORM _sas.refuse_missing(a.name, NULL, '/' || a.name, '')
        FROM (VALUES ('workflow', $2), ('key', $3)) AS a (name, value) WHERE a.value IS NULL;
        RAISE EXCEPTION 'workflow "%" has no run of yours with key "%"', $2, $3
            USING ERRCODE = 'undefined_object', DETAIL = 'At /key.',
            HINT = 'See sas.runs for your runs.';
    END IF;
    SELECT * INTO r FROM _sas.run x WHERE x.run_id = ids[1];
    IF cardinality(ids) > 1 AND r.owner <> caller THEN
        RAISE EXCEPTION 'key "%" of workflow "%" is ambiguous: it matches % runs', $3, $2, cardinality(ids)
            USING ERRCODE = 'cardinality_violation', DETAIL = 'At /key.',
            HINT = 'Name the run by its id, with sas.signal.';
    END IF;
    PERFORM _sas.signal_run(caller, r, $4, $5);
END $$;

-- _sas.signal_token_as(...): the token is the authorization: its holder may end that wait, once. Operators
-- and admins can read it in the views; so it gives them no more than sas.signal does.
CREATE FUNCTION _sas.signal_token_as(caller oid, token text, payload jsonb) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    parts text[] := regexp_match($2, '^([0-9]{1,18})-[0-9a-f]{40}$');
    r _sas.run;
    waits _sas.workflow_step;
BEGIN
    SELECT * INTO r FROM _sas.run x WHERE x.run_id = parts[1]::bigint;
    SELECT * INTO waits FROM _sas.workflow_step w
    WHERE w.version_id = r.version_id AND w.kind = 'wait' AND NOT w.undo
      AND _sas.token(r.run_id, r.trace, w.name) = $2;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the token is not valid'
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /token.',
            HINT = 'Pass the value of {{steps.NAME.token}}.';
    END IF;
    PERFORM _sas.check_giver(caller, r, $3)
    WHERE _sas.is_operator(caller);
    PERFORM _sas.send_signal(caller, r, waits.shape #>> '{wait,signal}', $3, waits.step_no, 0);
    PERFORM _sas.record(caller, ARRAY[r.run_id], 'signal', _sas.shown_name(waits.name),
                        jsonb_build_object('name', waits.shape #>> '{wait,signal}'))
    WHERE caller <> r.owner;
END $$;

-- SPDX-License-Identifier: PostgreSQL
--
-- Concurrency keys: which slots new runs need, and what happens to a submit that finds no room.
--
-- A run has one row of _sas.concurrency_slot for each key that it needs, from its submit until it has
-- stopped. If all rules of a run say "wait", the run is created and waits in line (line.sql). If a rule
-- says something else, the submit checks for room before it creates the run. To make the check safe against
-- other submits, it first locks the row of the key in _sas.concurrency_key, and keeps that lock until its
-- transaction ends. Only submits lock these rows.

-- _sas.check_place_key(path, problem, result): raises an error if a concurrency key could not be built.
CREATE FUNCTION _sas.check_place_key(path text, problem jsonb, result jsonb) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    IF problem IS NOT NULL OR jsonb_typeof(result) NOT IN ('string', 'number', 'boolean')
       OR octet_length(result #>> '{}') > 1000 THEN
        RAISE EXCEPTION 'could not build the concurrency key: %',
            CASE WHEN problem IS NOT NULL THEN _sas.problem_text(problem)
                 WHEN jsonb_typeof(result) IN ('string', 'number', 'boolean')
                     THEN 'it has more than 1000 bytes'
                 ELSE 'it is of type ' || jsonb_typeof(result) END
            USING ERRCODE = 'invalid_parameter_value', DETAIL = _sas.at(path || '/key'),
                HINT = 'The input must have what the key refers to: a string, a number or a boolean.';
    END IF;
    RETURN true;
END $$;

-- _sas.start_context(r): what templates can see of a run before it begins.
CREATE FUNCTION _sas.start_context(r _sas.run) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('input', r.input, 'run',
                              jsonb_build_object('id', r.run_id, 'key', r.key, 'labels', r.labels,
                                                 'created_at', r.created_at, 'deadline', r.deadline)
                              || CASE WHEN r.schedule IS NULL THEN '{}'
                                 ELSE jsonb_build_object('schedule', r.schedule,
                                                         'scheduled_at', r.scheduled_at) END)
$$;

-- _sas.places_of(v, runs): the slots that these runs of this version need, ordered by run id. Two rules
-- with the same key become one: the narrower one.
CREATE FUNCTION _sas.places_of(v _sas.workflow_version, runs _sas.run[])
RETURNS SETOF _sas.concurrency_slot
LANGUAGE sql AS $$
    SELECT DISTINCT ON (r.run_id, s.owner, s.workflow_id, k.result #>> '{}')
        r.run_id, c.rule_no, s.owner, s.workflow_id, k.result #>> '{}', c.places, c.shared,
        CASE WHEN r.parent_run_id IS NULL THEN c.overlap ELSE 'wait' END, 'away', r.created_at,
        r.parent_run_id, r.parent_step_no, false
    FROM unnest($2) r
    CROSS JOIN unnest(($1).concurrency) c
    CROSS JOIN LATERAL (SELECT CASE WHEN c.scope = 'all' THEN 0 ELSE r.owner::oid END AS owner,
                               CASE WHEN c.scope = 'workflow' THEN ($1).workflow_id ELSE 0 END
                                   AS workflow_id) s
    CROSS JOIN LATERAL _sas.render(c.key, _sas.start_context(r)) k
    WHERE _sas.check_place_key(c.path, k.problem, k.result)
    ORDER BY r.run_id, s.owner, s.workflow_id, k.result #>> '{}', c.shared, c.places, c.rule_no
$$;

-- _sas.held_above(run_id): the slots that this run and the runs above it hold.
CREATE FUNCTION _sas.held_above(run_id bigint) RETURNS SETOF _sas.concurrency_slot
LANGUAGE sql STABLE AS $$
    WITH RECURSIVE above AS (
        SELECT $1 AS run_id
        UNION ALL
        SELECT a.parent_run_id FROM above u JOIN _sas.run a ON a.run_id = u.run_id
        WHERE a.parent_run_id IS NOT NULL)
    SELECT p.* FROM above u JOIN _sas.concurrency_slot p ON p.run_id = u.run_id WHERE p.state = 'holds'
$$;

-- _sas.note_places(v, run_ids, parent_run_id, waits): stores which slots new runs need. waits: only the
-- line keeps the runs from beginning.
--
-- A child run shares the slots of the runs above it, and must not need any other: it would wait while it
-- holds a slot, perhaps for a run that waits for that slot. If no run above it holds a slot, the child has
-- slots of its own.
-- Caller: a submit that has just created the runs. Writes: concurrency_slot.
CREATE FUNCTION _sas.note_places(v _sas.workflow_version, run_ids bigint[], parent_run_id bigint,
                                 waits boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    needed _sas.concurrency_slot[];
    above _sas.concurrency_slot[];
    p _sas.concurrency_slot;
BEGIN
    IF parent_run_id IS NULL AND EXISTS (SELECT FROM unnest(v.concurrency) c WHERE c.overlap <> 'wait') THEN
        -- the check for room has stored them already
        UPDATE _sas.concurrency_slot s SET state = 'waits' WHERE s.run_id = ANY (run_ids) AND waits;
        RETURN;
    END IF;
    needed := ARRAY(SELECT n FROM _sas.places_of(v, ARRAY(SELECT r FROM _sas.run r
                                                          WHERE r.run_id = ANY (run_ids))) n);
    IF parent_run_id IS NOT NULL THEN
        above := ARRAY(SELECT h FROM _sas.held_above(parent_run_id) h);
    END IF;
    IF cardinality(above) > 0 THEN
        SELECT n.* INTO p FROM unnest(needed) n
        WHERE NOT EXISTS (SELECT FROM unnest(above) h
                          WHERE h.owner = n.owner AND h.workflow_id = n.workflow_id AND h.key = n.key)
        LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'a child run needs the concurrency key "%", which no run above it holds', p.key
                USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = 'At /concurrency.',
                    HINT = 'Name the key, with the same scope, in the workflow of the root run too: all keys '
                           'of a tree of runs are taken together, before it begins.';
        END IF;
        RETURN;
    END IF;
    INSERT INTO _sas.concurrency_slot
    SELECT n.run_id, n.rule_no, n.owner, n.workflow_id, n.key, n.places, n.shared, n.overlap,
        CASE WHEN waits THEN 'waits' ELSE 'away' END, n.since, n.parent_run_id, n.parent_step_no, false
    FROM unnest(needed) n;
END $$;

-- _sas.meet_runs(...): for a workflow with rules other than "wait", decides for each submit, in order:
-- either the run is to be created, and its slots are stored; or an open run is returned instead, which may
-- take over the input. Keys are locked in order, so that two sessions cannot deadlock.
-- Caller: a submit, before it creates its runs. Writes: concurrency_key, concurrency_slot, run_key; a
-- message for each run that is replaced.
CREATE FUNCTION _sas.meet_runs(caller oid, v _sas.workflow_version, keys text[], labels jsonb,
                               INOUT inputs jsonb[], INOUT ids bigint[], INOUT fresh boolean[])
LANGUAGE plpgsql AS $$
DECLARE
    needed _sas.concurrency_slot[];
    own _sas.concurrency_slot[];
    at int := 1;
    met record;
BEGIN
    needed := ARRAY(SELECT n FROM _sas.places_of(v, ARRAY(
        SELECT jsonb_populate_record(
            NULL::_sas.run, jsonb_build_object('run_id', ids[u.n], 'owner', caller, 'input', u.input, 'key',
                                               keys[u.n], 'labels', $4, 'created_at', sas.now()))
        FROM unnest(inputs) WITH ORDINALITY AS u (input, n) WHERE fresh[u.n])) n ORDER BY n.run_id);
    INSERT INTO _sas.concurrency_key AS k (owner, workflow_id, key)
    SELECT DISTINCT n.owner, n.workflow_id, n.key FROM unnest(needed) n WHERE n.overlap <> 'wait'
    ORDER BY 1, 2, 3
    ON CONFLICT (owner, workflow_id, key) DO UPDATE SET submits = k.submits + 1;
    FOR n IN 1 .. cardinality(ids) LOOP
        CONTINUE WHEN NOT fresh[n];
        own := '{}';
        WHILE (needed[at]).run_id = ids[n] LOOP
            own := own || needed[at];
            at := at + 1;
        END LOOP;
        met := _sas.meet_open(caller, v, own);
        IF met.run_id IS NULL THEN
            INSERT INTO _sas.concurrency_slot SELECT * FROM unnest(own);
            CONTINUE;
        END IF;
        DELETE FROM _sas.run_key k WHERE k.owner = caller AND k.workflow_id = v.workflow_id
            AND k.key = keys[n] AND k.run_id = ids[n];
        IF met.follows THEN
            -- the open run may have been created by this same submit
            inputs[coalesce(array_position(ids, met.run_id), n)] := inputs[n];
            PERFORM _sas.renew_follower(caller, met.run_id, inputs[n], own);
        END IF;
        ids[n] := met.run_id;
        fresh[n] := false;
    END LOOP;
    -- removes the rows of keys under which no run was created
    DELETE FROM _sas.concurrency_key k USING unnest(needed) u
    WHERE k.owner = u.owner AND k.workflow_id = u.workflow_id AND k.key = u.key AND false = ANY (fresh)
      AND NOT EXISTS (SELECT FROM _sas.concurrency_slot s WHERE s.owner = k.owner
                      AND s.workflow_id = k.workflow_id AND s.key = k.key AND s.overlap <> 'wait');
END $$;

-- _sas.meet_open(caller, v, needed): the open run that a submit gets instead of the run that needs these
-- slots; null: the run is created. follows: the open run itself waits behind another one, and takes the
-- input of the submit. Rules that refuse come first; after them the first rule without room decides.
-- Writes: message. Wakes: the scheduler.
CREATE FUNCTION _sas.meet_open(caller oid, v _sas.workflow_version, needed _sas.concurrency_slot[],
                               OUT run_id bigint, OUT follows boolean)
LANGUAGE plpgsql AS $$
DECLARE
    p _sas.concurrency_slot;
    open bigint[];
    replaced bigint[] := '{}';
BEGIN
    FOR p IN SELECT n.* FROM unnest(needed) n WHERE n.overlap <> 'wait'
             ORDER BY n.overlap = 'refuse' DESC, n.rule_no LOOP
        open := _sas.in_the_way(p);
        CONTINUE WHEN open = '{}' OR run_id IS NOT NULL;
        IF p.overlap = 'refuse' THEN
            RAISE EXCEPTION 'run % is open under the concurrency key "%"', open[1], p.key
                USING ERRCODE = 'object_in_use', DETAIL = 'At /concurrency.',
                    HINT = 'Submit again when it has stopped. See sas.locks for the runs that hold keys.';
        ELSIF p.overlap = 'return' THEN
            run_id := open[1];
        ELSIF p.overlap = 'once_more' THEN
            run_id := _sas.follower(caller, v.workflow_id, p, open);
            follows := run_id IS NOT NULL;
        ELSE
            replaced := replaced || _sas.replaceable(caller, open[:
                CASE WHEN p.shared THEN cardinality(open) ELSE cardinality(open) - p.places + 1 END]);
        END IF;
    END LOOP;
    IF run_id IS NULL AND replaced <> '{}' THEN
        INSERT INTO _sas.message (actor, due_at, run_id, kind)
        SELECT DISTINCT 's'::"char", sas.now(), o, 'replace' FROM unnest(replaced) o;
        PERFORM _sas.wake(scheduler => true);
    END IF;
END $$;

-- _sas.replaceable(caller, run_ids): the runs among these that a submit may cancel, because the caller may
-- cancel them anyway. The submitted run waits behind the others. Runs that were replaced before, and are
-- still open, are left out: if each of many submits replaced all of them again, the scheduler would have the
-- square of their number to do. Only their own message tells that: a submit that waited for another key may
-- have got its run id long before it is in line, so others with greater ids have not replaced it.
CREATE FUNCTION _sas.replaceable(caller oid, run_ids bigint[]) RETURNS bigint[]
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN ARRAY(SELECT u FROM unnest(run_ids) u LEFT JOIN _sas.run r ON r.run_id = u
                 -- a run without a row is one of this submit
                 WHERE r.abandon_as IS NULL AND (r.run_id IS NULL OR _sas.may_stand_for(caller, r.owner))
                   AND (SELECT true FROM _sas.message m
                        WHERE m.run_id = u AND m.kind = 'replace' LIMIT 1) IS NULL);
END $$;

-- _sas.in_the_way(p): the open runs that leave no room under this key, holders first, then by run id. Empty:
-- there is room. Waits for runs whose transaction is just ending them.
CREATE FUNCTION _sas.in_the_way(p _sas.concurrency_slot) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    awaited bigint[] := '{}';
    open bigint[];
BEGIN
    LOOP
        open := _sas.open_under(p);
        IF open = '{}' OR open = awaited THEN
            RETURN open;
        END IF;
        PERFORM _sas.await_ending(open);
        awaited := open;
    END LOOP;
END $$;

-- _sas.open_under(p): the open runs that leave no room under this key, as the current snapshot sees them.
CREATE FUNCTION _sas.open_under(p _sas.concurrency_slot) RETURNS bigint[]
LANGUAGE sql AS $$
    WITH open AS MATERIALIZED (
        SELECT s.run_id, s.state, s.shared FROM _sas.concurrency_slot s
        WHERE s.owner = ($1).owner AND s.workflow_id = ($1).workflow_id AND s.key = ($1).key
          AND s.overlap <> 'wait' AND s.state <> 'left'
        UNION ALL
        SELECT s.run_id, s.state, s.shared FROM _sas.concurrency_slot s
        WHERE s.owner = ($1).owner AND s.workflow_id = ($1).workflow_id AND s.key = ($1).key
          AND s.overlap = 'wait' AND s.state = 'holds'
        UNION ALL
        (SELECT s.run_id, s.state, s.shared FROM _sas.concurrency_slot s
         WHERE s.owner = ($1).owner AND s.workflow_id = ($1).workflow_id AND s.key = ($1).key
           AND s.overlap = 'wait' AND s.state = 'waits'
         ORDER BY s.run_id LIMIT ($1).places))
    SELECT coalesce(array_agg(o.run_id ORDER BY o.state = 'holds' DESC, o.run_id), '{}')
    FROM open o
    WHERE CASE WHEN ($1).shared THEN NOT o.shared
          ELSE (SELECT count(*) >= ($1).places OR bool_or(x.shared) FROM open x) END
$$;

-- _sas.await_ending(run_ids): waits until the transactions that are stopping any of these runs have ended.
-- The locks are released at once (by a subtransaction that is rolled back), so that these runs continue while
-- the caller's transaction does.
CREATE FUNCTION _sas.await_ending(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    free bigint[];
    ending bigint;
BEGIN
    BEGIN
        free := ARRAY(SELECT s.run_id FROM _sas.concurrency_slot s WHERE s.run_id = ANY ($1)
                      FOR SHARE SKIP LOCKED);
        RAISE SQLSTATE 'SAS00';
    EXCEPTION WHEN SQLSTATE 'SAS00' THEN
        NULL;
    END;
    FOR ending IN SELECT u FROM unnest(run_ids) u WHERE u <> ALL (free) LOOP
        BEGIN
            PERFORM FROM _sas.concurrency_slot s WHERE s.run_id = ending FOR SHARE;
            RAISE SQLSTATE 'SAS00';
        EXCEPTION WHEN SQLSTATE 'SAS00' THEN
            NULL;
        END;
    END LOOP;
END $$;

-- _sas.follower(caller, for_workflow, p, open): the run of the same owner and workflow that waits behind the
-- open ones and has not begun; null: there is none. It is locked, so it cannot begin until this transaction
-- has ended. A run without a row is one of this same submit.
-- Wakes: the scheduler.
CREATE FUNCTION _sas.follower(caller oid, for_workflow int, p _sas.concurrency_slot, open bigint[])
RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    candidate record;
BEGIN
    FOR candidate IN
        SELECT DISTINCT s.run_id, r.run_id IS NOT NULL AS made FROM _sas.concurrency_slot s
        LEFT JOIN _sas.run r ON r.run_id = s.run_id
        LEFT JOIN _sas.workflow_version w ON w.version_id = r.version_id
        WHERE s.owner = p.owner AND s.workflow_id = p.workflow_id AND s.key = p.key
            AND s.overlap = 'once_more' AND s.state IN ('away', 'waits') AND s.shared = p.shared
            AND (p.shared OR s.run_id <> ALL (open[:p.places]))
            AND (r.run_id IS NULL OR r.owner = caller AND w.workflow_id = for_workflow)
        ORDER BY 1 DESC LOOP
        PERFORM _sas.wake_on_abort();
        PERFORM FROM _sas.run r
        WHERE r.run_id = candidate.run_id AND r.state IN ('scheduled', 'paused') AND r.started_at IS NULL
            AND r.abandon_as IS NULL
        FOR NO KEY UPDATE;
        IF FOUND THEN
            PERFORM _sas.wake(scheduler => true);
        END IF;
        IF FOUND OR NOT candidate.made THEN
            RETURN candidate.run_id;
        END IF;
    END LOOP;
    RETURN NULL;
END $$;

-- _sas.renew_follower(caller, for_run, new_input, needed): gives the newest input to the run that waits
-- behind the open one. With the input its slots may be others: those that its own version needs for it.
-- needed: the same of a run that this very submit creates, and which has no row yet.
-- Caller: holds the lock of the run. Writes: run, history, concurrency_key. Next: _sas.renew_places.
CREATE FUNCTION _sas.renew_follower(caller oid, for_run bigint, new_input jsonb,
                                    needed _sas.concurrency_slot[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    r _sas.run;
    old_input jsonb;
BEGIN
    SELECT * INTO r FROM _sas.run x WHERE x.run_id = for_run;
    old_input := r.input;
    IF old_input <> new_input THEN
        UPDATE _sas.run x SET input = new_input WHERE x.run_id = for_run;
        PERFORM _sas.open_more_runs(caller, 1, false, _sas.value_size(new_input));
        PERFORM _sas.give_quota(caller, false, old_input);
        PERFORM _sas.record(caller, ARRAY[for_run], 'submit', NULL, jsonb_build_object('input', new_input));
    END IF;
    IF r.run_id IS NOT NULL THEN
        r.input := new_input;
        needed := ARRAY(SELECT n FROM _sas.workflow_version v CROSS JOIN LATERAL _sas.places_of(v, ARRAY[r]) n
                        WHERE v.version_id = r.version_id);
        INSERT INTO _sas.concurrency_key (owner, workflow_id, key)
        SELECT DISTINCT n.owner, n.workflow_id, n.key FROM unnest(needed) n WHERE n.overlap <> 'wait'
        ORDER BY 1, 2, 3 ON CONFLICT DO NOTHING;
    END IF;
    PERFORM _sas.renew_places(for_run, needed);
END $$;

-- _sas.renew_places(for_run, needed): a run that has not begun needs these slots, and no others. A slot stays
-- as it is only under the same rule: two rules that had one key may have two now, and a newer version other
-- rules. Under a key that it no longer needs, the first run behind it is looked at; that lets out the others.
-- Caller: holds the lock of the run. Writes: concurrency_slot, concurrency_key, message. Wakes: scheduler.
CREATE FUNCTION _sas.renew_places(for_run bigint, needed _sas.concurrency_slot[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    as_it_is text := (SELECT min(s.state) FROM _sas.concurrency_slot s WHERE s.run_id = for_run);
    gone _sas.concurrency_slot[];
BEGIN
    WITH others AS (
        DELETE FROM _sas.concurrency_slot s WHERE s.run_id = for_run AND NOT EXISTS (
            SELECT FROM unnest(needed) n
            WHERE n.rule_no = s.rule_no AND n.owner = s.owner AND n.workflow_id = s.workflow_id
              AND n.key = s.key)
        RETURNING s)
    SELECT array_agg(o.s) INTO gone FROM others o;
    INSERT INTO _sas.concurrency_slot
    SELECT for_run, n.rule_no, n.owner, n.workflow_id, n.key, n.places, n.shared, n.overlap, as_it_is,
        n.since, NULL, NULL, false
    FROM unnest(needed) n
    ON CONFLICT (run_id, rule_no) DO NOTHING;
    IF gone IS NULL THEN
        RETURN;
    END IF;
    -- the run itself, too: what it waits for now may become free before this is committed
    INSERT INTO _sas.message (actor, due_at, run_id, kind)
    SELECT 's', sas.now(), for_run, 'start'
    UNION
    SELECT 's', sas.now(), behind.run_id, 'start' FROM unnest(gone) g
    CROSS JOIN LATERAL (SELECT s.run_id FROM _sas.concurrency_slot s
                        WHERE s.owner = g.owner AND s.workflow_id = g.workflow_id AND s.key = g.key
                          AND s.state = 'waits' AND s.run_id <> for_run
                        ORDER BY s.run_id LIMIT 1) behind;
    PERFORM _sas.wake(scheduler => true);
    PERFORM _sas.forget_keys(ARRAY(
        SELECT k.ctid FROM _sas.concurrency_key k
        JOIN unnest(gone) g ON g.owner = k.owner AND g.workflow_id = k.workflow_id AND g.key = k.key
        FOR UPDATE OF k SKIP LOCKED));
END $$;

-- _sas.forget_keys(places): deletes those of these rows of keys that no run needs.
-- Caller: holds the locks of the rows. Writes: concurrency_key.
CREATE FUNCTION _sas.forget_keys(places tid[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM _sas.concurrency_key k
    WHERE k.ctid = ANY (places)
        AND NOT EXISTS (SELECT FROM _sas.concurrency_slot s
                        WHERE s.owner = k.owner AND s.workflow_id = k.workflow_id AND s.key = k.key
                            AND s.overlap <> 'wait');
END $$;

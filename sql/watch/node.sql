-- SPDX-License-Identifier: PostgreSQL
--
-- Outside nodes: programs in any language host infinite tasks over SQL. A node lives as long as the session
-- that registered it, and as long as it renews its lease. After that its tasks go to other nodes, and its
-- writes are refused.

-- _sas.report_departure(): the end of this session wakes the supervisor.
CREATE FUNCTION _sas.report_departure() RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_report_departure';

-- _sas.check_node(...): the ids of the node's agents; raises an error if its arguments are wrong.
CREATE FUNCTION _sas.check_node(caller oid, name text, capacity int, agents text[], lease interval)
RETURNS int[]
LANGUAGE plpgsql AS $$
DECLARE
    wrong text;
    lanes int[];
BEGIN
    IF coalesce($2, '') = '' OR octet_length($2) > 200 OR $2 ~ E'[\\x01-\\x1f\\x7f]' THEN
        RAISE EXCEPTION 'the name of the node is empty, longer than 200 bytes or contains control characters'
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /name.',
                HINT = 'Name the program and its host, such as "prices on host7".';
    END IF;
    IF capacity IS NULL OR capacity NOT BETWEEN 0 AND 1000000 THEN
        RAISE EXCEPTION 'the capacity must be between 0 and 1000000'
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /capacity.',
            HINT = 'It is the number of tasks that the program can host at once.';
    END IF;
    IF lease IS NULL OR lease < '1 s' OR lease > '1 day' THEN
        RAISE EXCEPTION 'the lease must be between a second and a day'
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /lease.',
            HINT = 'Call sas.heartbeat_node before the lease expires.';
    END IF;
    SELECT x INTO wrong FROM unnest(agents) x
    WHERE NOT EXISTS (SELECT FROM _sas.agent a WHERE a.name = x AND a.dropped_at IS NULL
                      AND a.kind = 'external') LIMIT 1;
    IF FOUND OR coalesce(cardinality(agents), 0) = 0 THEN
        RAISE EXCEPTION '%', CASE WHEN wrong IS NULL
                                  THEN 'a node needs at least one agent, and none may be null'
                                  ELSE format('external agent "%s" does not exist', wrong) END
            USING ERRCODE = CASE WHEN wrong IS NULL THEN 'null_value_not_allowed' ELSE 'undefined_object' END,
                DETAIL = 'At /agents.',
                HINT = 'Name the agents whose watchers the program hosts; create them with '
                       'sas.create_agent(..., kind => ''external'').';
    END IF;
    SELECT array_agg(a.agent_id) INTO lanes FROM _sas.agent a WHERE a.name = ANY (agents)
        AND a.dropped_at IS NULL;
    PERFORM _sas.check_lanes(caller, lanes, '/agents');
    RETURN lanes;
END $$;

-- _sas.check_lanes(caller, lanes, place): raises an error if the caller may not work for one of these agents.
CREATE FUNCTION _sas.check_lanes(caller oid, lanes int[], place text) RETURNS void
LANGUAGE plpgsql STABLE AS $$
DECLARE
    wrong text;
BEGIN
    SELECT a.name INTO wrong FROM _sas.agent a WHERE a.agent_id = ANY (lanes) AND a.dropped_at IS NULL
        AND NOT _sas.may_work(caller, a.agent_id) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'permission denied for agent "%"', wrong
            USING ERRCODE = 'insufficient_privilege', DETAIL = _sas.at(place),
            HINT = format('An admin can grant it: SELECT sas.grant_usage(%L, ''worker'', %L).',
                          caller::regrole, wrong);
    END IF;
END $$;

-- _sas.lanes_left(caller, lanes, place): these agents, without those for which the caller may no longer work.
-- Raises an error if it may work for none of them.
CREATE FUNCTION _sas.lanes_left(caller oid, lanes int[], place text) RETURNS int[]
LANGUAGE plpgsql STABLE AS $$
DECLARE
    lost int[];
BEGIN
    lost := ARRAY(SELECT a.agent_id FROM _sas.agent a WHERE a.agent_id = ANY (lanes)
                  AND a.dropped_at IS NULL AND NOT _sas.may_work(caller, a.agent_id));
    IF lost = '{}' THEN
        RETURN lanes;
    END IF;
    IF NOT EXISTS (SELECT FROM _sas.agent a WHERE a.agent_id = ANY (lanes) AND a.dropped_at IS NULL
                   AND a.agent_id <> ALL (lost)) THEN
        PERFORM _sas.check_lanes(caller, lanes, place);
    END IF;
    RETURN ARRAY(SELECT l FROM unnest(lanes) l WHERE l <> ALL (lost));
END $$;

-- _sas.register_node_as(...): the body of sas.register_node. A node that is registered under that name
-- ends: the program has come back.
-- Writes: node.
CREATE FUNCTION _sas.register_node_as(caller oid, name text, capacity int, agents text[], version text,
                                      lease interval, by_connection boolean) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    lanes int[] := _sas.check_node(caller, name, capacity, agents, lease);
    id bigint;
    o _sas.node;
BEGIN
    PERFORM _sas.check_bytes(octet_length($5), 200, '/version', 'the version');
    PERFORM _sas.commit_durably();
    PERFORM _sas.wake_on_abort();
    PERFORM _sas.lock('node ' || $2);
    FOR o IN SELECT * FROM _sas.node n WHERE n.name = $2 AND n.ended_at IS NULL
        AND n.kind = 'outside' FOR UPDATE LOOP
        IF NOT _sas.may_stand_for(caller, o.role) AND NOT _sas.has_level(caller, 'admin') THEN
            RAISE EXCEPTION 'node name "%" is used by another role', $2
                USING ERRCODE = 'insufficient_privilege', DETAIL = 'At /name.',
                HINT = 'Use another name.';
        END IF;
        PERFORM _sas.end_node(o, 'it came back under its name');
    END LOOP;
    PERFORM _sas.forget_nodes($2, caller);
    INSERT INTO _sas.node AS n (name, kind, version, capacity, lanes, role, pid, backend_start,
                                by_connection, lease, lease_until, created_at, modified_at)
    SELECT $2, 'outside', $5, $3, lanes, caller, pg_backend_pid(), a.backend_start, coalesce($7, true), $6,
        sas.now() + $6, sas.now(), sas.now()
    FROM pg_stat_get_activity(pg_backend_pid()) a
    RETURNING n.node_id INTO id;
    PERFORM _sas.refuse_rows(caller, 'nodes', (SELECT count(*) FROM _sas.node x WHERE x.role = caller
                                               AND x.kind = 'outside' AND x.ended_at IS NULL),
                             format('role "%s" has too many nodes', pg_get_userbyid(caller)), '/name',
                             'End some with sas.leave_node()');
    PERFORM _sas.report_departure();
    PERFORM _sas.due_by(sas.now() + $6);
    RETURN id;
END $$;

-- _sas.end_node(n, why): ends a node; its tasks go to other nodes.
-- Caller: holds the lock of its row. Writes: node, watch_held. Wakes: the supervisor.
CREATE FUNCTION _sas.end_node(n _sas.node, why text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    ids bigint[];
BEGIN
    UPDATE _sas.node x SET ended_at = sas.now(), ended_for = why, modified_at = sas.now()
    WHERE x.node_id = n.node_id;
    WITH held AS (
        SELECT f.watch_id FROM (SELECT h.watch_id FROM _sas.watch_held h WHERE h.node_id = n.node_id
                                ORDER BY 1) h
        CROSS JOIN LATERAL (SELECT x.watch_id FROM _sas.watch_flow x
                            WHERE x.watch_id = h.watch_id FOR NO KEY UPDATE SKIP LOCKED) f),
    freed AS (DELETE FROM _sas.watch_held h USING held x WHERE h.watch_id = x.watch_id RETURNING h.watch_id)
    SELECT array_agg(f.watch_id) INTO ids FROM freed f;
    PERFORM _sas.gone_from_host(n.node_id, ids) WHERE ids IS NOT NULL;
    -- tasks whose row another transaction has locked are left to the supervisor
    PERFORM _sas.wake(supervisor => true);
END $$;

-- _sas.check_latest_node(id): raises an error (40001) if the snapshot of this transaction is too old to show
-- this node.
CREATE FUNCTION _sas.check_latest_node(id bigint) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_check_latest_node';

-- _sas.my_node(caller, id): the node, if it belongs to the caller; ended_at is set if it does not live any
-- more.
CREATE FUNCTION _sas.my_node(caller oid, id bigint) RETURNS _sas.node
LANGUAGE plpgsql AS $$
DECLARE
    n _sas.node;
BEGIN
    SELECT * INTO n FROM _sas.node x WHERE x.node_id = id AND x.kind = 'outside';
    IF NOT FOUND THEN
        PERFORM _sas.check_latest_node(id);
        n.ended_at := '-infinity';
        RETURN n;
    END IF;
    IF NOT _sas.may_stand_for(caller, n.role) AND NOT _sas.has_level(caller, 'admin') THEN
        RAISE EXCEPTION 'node % is not yours', id
            USING ERRCODE = 'insufficient_privilege', DETAIL = 'At /node_id.',
            HINT = 'Register one with sas.register_node.';
    END IF;
    IF n.ended_at IS NULL AND (n.lease_until <= sas.now() OR n.by_connection
                               AND NOT _sas.session_lives(n.pid, n.backend_start)) THEN
        n.ended_at := sas.now();
    END IF;
    RETURN n;
END $$;

-- _sas.claim_watchers_as(caller, node_id, quantity): the body of sas.claim_watchers: gives waiting tasks to
-- this node. Nodes that have not sent a heartbeat in time are ended first, and their tasks wait for another
-- one.
-- Next: _sas.take_watches.
CREATE FUNCTION _sas.claim_watchers_as(caller oid, node_id bigint, quantity int)
RETURNS TABLE (watch_id bigint, epoch bigint, watcher text, key text, input jsonb, request jsonb,
               cursor jsonb)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    n _sas.node := _sas.my_node(caller, $2);
    ids bigint[];
    c record;
    unfit bigint[];
    epochs bigint[];
    problems jsonb[];
BEGIN
    IF quantity IS NULL OR quantity NOT BETWEEN 1 AND 10000 THEN
        RAISE EXCEPTION 'the quantity must be between 1 and 10000'
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /quantity.',
            HINT = 'Claim only what the program can start at once.';
    END IF;
    n.lanes := _sas.lanes_left(caller, n.lanes, '/node_id');
    IF n.ended_at IS NOT NULL OR _sas.quarantined_for() IS NOT NULL THEN
        RETURN;
    END IF;
    -- calls of other programs also find programs that are gone, whether or not a supervisor runs
    IF _sas.end_nodes(NULL, NULL, NULL) > 0 THEN
        PERFORM _sas.commit_durably();
        PERFORM _sas.take_over(1000);
    END IF;
    IF NOT EXISTS (SELECT FROM _sas.watch_wait q WHERE q.lane = ANY (n.lanes)) THEN
        RETURN;
    END IF;
    PERFORM _sas.commit_durably();
    PERFORM _sas.wake_on_abort();
    ids := _sas.take_watches(n, $3);
    FOR c IN SELECT m.*, d.name, w.key AS watch_key, w.input AS watch_input
             FROM _sas.compose_watches(ids) m JOIN _sas.watch w ON w.watch_id = m.watch_id
             JOIN _sas.watcher d USING (watcher_id) LOOP
        IF c.request IS NULL THEN
            unfit := unfit || c.watch_id;
            epochs := epochs || c.epoch;
            problems := problems || c.problem;
        ELSE
            RETURN QUERY SELECT c.watch_id, c.epoch, c.name, c.watch_key, c.watch_input, c.request, c.cursor;
        END IF;
    END LOOP;
    PERFORM _sas.turn_away($2, unfit, epochs, problems) WHERE unfit IS NOT NULL;
END $$;

-- _sas.turn_away(from_node, ids, epochs, problems): the node cannot host these tasks. A problem counts as a
-- failure of the host, and the task is tried again after the pause; without one, its request is not built
-- yet, and it is tried again at once.
CREATE FUNCTION _sas.turn_away(from_node bigint, ids bigint[], epochs bigint[], problems jsonb[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM (SELECT array_agg(u.id) AS ids, array_agg(u.epoch) AS epochs,
                         array_agg(u.problem) AS problems, array_agg(NULL::float8) AS pauses
                  FROM unnest($2, $3, $4) AS u (id, epoch, problem)
                  WHERE u.problem IS NOT NULL HAVING count(*) > 0) f
        CROSS JOIN LATERAL _sas.fail_watches($1, f.ids, f.epochs, f.problems, f.pauses);
    PERFORM _sas.give_back($1, $2);
END $$;

-- _sas.give_back(from_node, ids): the node no longer holds these tasks; failed tasks wait for their
-- pause.
-- Writes: watch_held.
CREATE FUNCTION _sas.give_back(from_node bigint, ids bigint[]) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    freed record;
BEGIN
    PERFORM FROM _sas.watch_flow f WHERE f.watch_id = ANY (ids) ORDER BY f.watch_id FOR NO KEY UPDATE;
    WITH x AS (DELETE FROM _sas.watch_held h WHERE h.watch_id = ANY (ids) AND h.node_id = from_node
               RETURNING h.watch_id)
    SELECT array_agg(x.watch_id) AS ids, array_agg(greatest(interval '0', f.retry_at - sas.now())) AS after
        INTO freed FROM x JOIN _sas.watch_flow f USING (watch_id);
    IF freed.ids IS NULL THEN
        RETURN 0;
    END IF;
    PERFORM _sas.gone_from_host(from_node, freed.ids, freed.after);
    RETURN cardinality(freed.ids);
END $$;

-- _sas.give_back_lanes(from_node, lanes_left): gives back the tasks of other agents than these: the role of
-- the node has lost its right to work for those agents. Returns these tasks.
CREATE FUNCTION _sas.give_back_lanes(from_node bigint, lanes_left int[])
RETURNS TABLE (id bigint, epoch bigint)
LANGUAGE plpgsql AS $$
DECLARE
    lost record;
BEGIN
    SELECT array_agg(h.watch_id ORDER BY h.watch_id) AS ids, array_agg(h.epoch ORDER BY h.watch_id) AS epochs
    INTO lost FROM _sas.watch_held h
    WHERE h.node_id = from_node AND h.lane <> ALL (lanes_left);
    PERFORM _sas.give_back(from_node, lost.ids) WHERE lost.ids IS NOT NULL;
    RETURN QUERY SELECT * FROM unnest(lost.ids, lost.epochs);
END $$;

-- _sas.heartbeat_node_as(caller, node_id): the body of sas.heartbeat_node: extends the lease of the node, and
-- returns the news about its tasks.
-- Writes: node; watch_held. Next: _sas.node_news.
CREATE FUNCTION _sas.heartbeat_node_as(caller oid, node_id bigint)
RETURNS TABLE (watch_id bigint, epoch bigint, news text, request jsonb, cursor jsonb)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    n _sas.node := _sas.my_node(caller, $2);
    lanes_left int[] := _sas.lanes_left(caller, n.lanes, '/node_id');
    told record;
    r record;
    left_out bigint[];
BEGIN
    IF n.ended_at IS NULL THEN
        UPDATE _sas.node x SET lease_until = sas.now() + x.lease, modified_at = sas.now()
        WHERE x.node_id = $2 AND x.ended_at IS NULL;
    END IF;
    IF n.ended_at IS NOT NULL OR NOT FOUND THEN
        RETURN QUERY SELECT NULL::bigint, NULL::bigint, 'lost', NULL::jsonb, NULL::jsonb;
        RETURN;
    END IF;
    PERFORM _sas.commit_durably();
    IF lanes_left <> n.lanes THEN
        RETURN QUERY SELECT g.id, g.epoch, 'lost', NULL::jsonb, NULL::jsonb
                     FROM _sas.give_back_lanes($2, lanes_left) g;
    END IF;
    SELECT array_agg(w.watch_id) AS ids, array_agg(w.epoch) AS epochs, array_agg(w.news) AS news,
           array_agg(w.watch_id) FILTER (WHERE w.news = 'reload') AS changed_ids,
               array_agg(w.epoch) FILTER (WHERE w.news = 'reload') AS changed_epochs
    INTO told FROM _sas.node_news($2) w;
    FOR r IN SELECT u.id, u.epoch, CASE u.news WHEN 'fenced' THEN 'lost' ELSE u.news END AS news,
                    c.request, c.cursor, c.problem,
                    c.watch_id IS NOT NULL AND c.request IS NULL AND c.problem IS NULL AS left_out
             FROM unnest(told.ids, told.epochs, told.news) AS u (id, epoch, news)
             LEFT JOIN _sas.watch_requests($2, told.changed_ids, told.changed_epochs) c ON c.watch_id = u.id
    LOOP
        IF r.left_out THEN
            left_out := left_out || r.id;
        ELSIF r.problem IS NOT NULL THEN
            PERFORM _sas.turn_away($2, ARRAY[r.id], ARRAY[r.epoch], ARRAY[r.problem]);
            RETURN QUERY SELECT r.id, r.epoch, 'lost', NULL::jsonb, NULL::jsonb;
        ELSE
            RETURN QUERY SELECT r.id, r.epoch, r.news, r.request, r.cursor;
        END IF;
    END LOOP;
    -- their requests are not built yet: the next heartbeat tells of the change
    UPDATE _sas.watch_held h SET change = -1 WHERE h.watch_id = ANY (left_out) AND h.node_id = $2;
END $$;

-- _sas.host_of(caller, id, in_epoch): the node that hosts the task in this epoch, if it lives; null: there is
-- none. Raises an error if it is not the caller's, or the caller may not work for its agent.
CREATE FUNCTION _sas.host_of(caller oid, id bigint, in_epoch bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    h _sas.watch_held;
    host _sas.node;
BEGIN
    PERFORM _sas.check_latest_host(id, _sas.hosted_by(id)) WHERE _sas.keeps_snapshot();
    SELECT * INTO h FROM _sas.watch_held x WHERE x.watch_id = id AND x.epoch = in_epoch;
    IF NOT FOUND OR NOT EXISTS (SELECT FROM _sas.node n WHERE n.node_id = h.node_id AND n.kind = 'outside')
        THEN
        RETURN NULL;
    END IF;
    host := _sas.my_node(caller, h.node_id);
    -- only then: the error names the agent
    PERFORM _sas.check_lanes(caller, ARRAY[h.lane], '/watch_id');
    RETURN CASE WHEN host.ended_at IS NULL THEN h.node_id END;
END $$;

-- _sas.append_items_as(caller, watch_id, epoch, items, cursor): the body of sas.append_items. Answers: go,
-- stop, full (nothing was stored), lost. It waits for another transaction that writes for the task.
-- Writes: watch_flow. Next: _sas.append_batches.
CREATE FUNCTION _sas.append_items_as(caller oid, watch_id bigint, epoch bigint, items jsonb, cursor jsonb)
RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    node bigint := _sas.host_of(caller, watch_id, epoch);
    said text;
BEGIN
    IF jsonb_typeof(items) IS DISTINCT FROM 'array' THEN
        RAISE EXCEPTION 'the items must be an array, not %', coalesce(jsonb_typeof(items), 'null')
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /items.',
            HINT = 'Pass them in order, as one JSON array.';
    END IF;
    IF jsonb_array_length(items) > 10000
       OR _sas.written_size(items, 16777216) > 16777216 THEN
        RAISE EXCEPTION 'there are more than 10000 items, or more than 16 MB of them'
            USING ERRCODE = 'program_limit_exceeded', DETAIL = 'At /items.',
            HINT = 'Append them in several calls.';
    END IF;
    PERFORM _sas.check_size(items, 16777216, '/items', 'the array');
    PERFORM _sas.check_size(cursor, _sas.max_input_size(), '/cursor', 'the cursor');
    IF node IS NULL THEN
        RETURN 'lost';
    END IF;
    PERFORM _sas.commit_durably();
    PERFORM _sas.wake_on_abort();
    PERFORM _sas.await_flow(watch_id);
    IF (SELECT _sas.room_of(f, g) = 0 FROM _sas.watch_flow f JOIN _sas.watch_done g USING (watch_id)
        WHERE f.watch_id = $2) AND jsonb_array_length(items) > 0 THEN
        UPDATE _sas.watch_flow f SET closed = true WHERE f.watch_id = $2 AND NOT f.closed;
        RETURN 'full';
    END IF;
    SELECT CASE a.answer WHEN 'ok' THEN 'go' WHEN 'fenced' THEN 'lost' ELSE a.answer END INTO said
    FROM _sas.append_batches(node, ARRAY[$2], ARRAY[$3], ARRAY[items], ARRAY[cursor], ARRAY[NULL]::text[]) a;
    -- else the program would have to know how many of them were stored
    IF said = 'cut' THEN
        RAISE EXCEPTION 'the last item yields no cursor'
            USING ERRCODE = 'invalid_parameter_value',
                  DETAIL = 'At /items. No item was stored.',
                  HINT = 'Pass the cursor, or append them together with the next item that yields one.';
    END IF;
    RETURN said;
END $$;

-- _sas.fail_watch_as(caller, watch_id, epoch, error): the body of sas.fail_watch. It waits for another
-- transaction that writes for the task. Next: _sas.fail_watches.
CREATE FUNCTION _sas.fail_watch_as(caller oid, watch_id bigint, epoch bigint, error text)
RETURNS TABLE (answer text, pause interval)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    node bigint := _sas.host_of(caller, watch_id, epoch);
BEGIN
    IF node IS NULL THEN
        RETURN QUERY SELECT 'lost', NULL::interval;
        RETURN;
    END IF;
    PERFORM _sas.commit_durably();
    PERFORM _sas.wake_on_abort();
    PERFORM _sas.await_flow(watch_id);
    RETURN QUERY
    SELECT CASE f.answer WHEN 'fenced' THEN 'lost' ELSE f.answer END, f.pause_ms * interval '1 ms'
    FROM _sas.fail_watches(node, ARRAY[$2], ARRAY[$3],
                           ARRAY[_sas.problem_object('host', 'the host of the task reported a failure',
                                                     left(error, 2000))], ARRAY[NULL]::float8[]) f;
END $$;

-- _sas.release_watches_as(caller, node_id, watch_ids): the body of sas.release_watches. Returns how many
-- tasks the node gave back. Next: _sas.give_back.
CREATE FUNCTION _sas.release_watches_as(caller oid, node_id bigint, watch_ids bigint[]) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    n _sas.node := _sas.my_node(caller, $2);
BEGIN
    IF n.ended_at IS NOT NULL THEN
        RETURN 0;
    END IF;
    PERFORM _sas.commit_durably();
    PERFORM _sas.wake_on_abort();
    RETURN _sas.give_back($2, watch_ids);
END $$;

-- _sas.leave_node_as(caller, node_id): the body of sas.leave_node. False: the node had ended already.
-- Locks: the node. Next: _sas.end_node.
CREATE FUNCTION _sas.leave_node_as(caller oid, node_id bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    n _sas.node := _sas.my_node(caller, $2);
BEGIN
    PERFORM _sas.wake_on_abort();
    PERFORM FROM _sas.node x WHERE x.node_id = $2 AND x.ended_at IS NULL FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM _sas.commit_durably();
    PERFORM _sas.end_node(n, 'it unregistered');
    RETURN true;
END $$;

-- SPDX-License-Identifier: PostgreSQL
--
-- Hosts: functions that the processes hosting infinite tasks call, in batches: agent workers for streams
-- and polls, function workers for functions, and the verbs of outside programs. The fence is the row in
-- _sas.watch_held: a host may write for a task as long as that row names it, in that epoch. Before the row
-- is deleted, the row in _sas.watch_flow is locked, and every write locks it, too.

-- _sas.register_worker(kind, name, capacity, boot, worker_id): registers a worker of this server as a node,
-- and returns its id. Rows of earlier nodes with that name, and of nodes that ended long ago, are deleted.
-- Writes: node.
CREATE FUNCTION _sas.register_worker(kind text, name text, capacity int, boot bigint, worker_id bigint)
RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    id bigint;
BEGIN
    PERFORM _sas.forget_nodes(name);
    INSERT INTO _sas.node AS n (name, kind, version, capacity, boot, worker_id, pid, by_connection,
                                created_at, modified_at)
    VALUES ($2, $1, (SELECT e.extversion FROM pg_extension e WHERE e.extname = 'sas'), $3, $4, $5,
            pg_backend_pid(), false, sas.now(), sas.now())
    RETURNING n.node_id INTO id;
    RETURN id;
END $$;

-- _sas.forget_nodes(of_name, of_role): deletes the rows of ended nodes: those of that name, those that ended
-- a day ago, and those of that role but the newest thousand. Rows of nodes whose tasks have no other host yet
-- stay.
-- Writes: node.
CREATE FUNCTION _sas.forget_nodes(of_name text, of_role oid DEFAULT NULL) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM _sas.node n
    WHERE n.node_id = ANY (ARRAY(
        SELECT o.node_id FROM _sas.node o
        WHERE o.ended_at IS NOT NULL AND (o.name = of_name OR o.ended_at < sas.now() - interval '1 day')
          AND NOT EXISTS (SELECT FROM _sas.watch_held h WHERE h.node_id = o.node_id)
        FOR UPDATE SKIP LOCKED));
    DELETE FROM _sas.node n
    WHERE n.node_id = ANY (ARRAY(
        SELECT o.node_id FROM _sas.node o
        WHERE o.role = of_role AND o.kind = 'outside' AND o.ended_at IS NOT NULL
          AND o.node_id <= (SELECT x.node_id FROM _sas.node x WHERE x.role = of_role AND x.kind = 'outside'
                            AND x.ended_at IS NOT NULL ORDER BY x.node_id DESC OFFSET 1000 LIMIT 1)
          AND NOT EXISTS (SELECT FROM _sas.watch_held h WHERE h.node_id = o.node_id)
        FOR UPDATE SKIP LOCKED));
END $$;

-- _sas.room_of(f, g): how many more items the inbox of a task may take; 16 MB make it full, too.
CREATE FUNCTION _sas.room_of(f _sas.watch_flow, g _sas.watch_done) RETURNS int
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN f.bytes - g.bytes > 16 * 1024 * 1024 THEN 0
        ELSE greatest(0, _sas.watch_window() - (f.items - g.items))::int END
$$;

-- _sas.watch_context(...): the root of the templates of a watcher.
CREATE FUNCTION _sas.watch_context(watcher text, key text, input jsonb, cursor jsonb) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('watcher', watcher, 'key', key, 'input', input, 'cursor',
                              coalesce(cursor, 'null'))
$$;

-- _sas.compose_watches(ids, looks): what a host needs to know of tasks that it hosts. looks: when each
-- polls next. request is null if its templates cannot be filled in; then problem says why. When requests
-- have cost a tenth of a second to build, both are null for the rest: the host asks for them again. Owners
-- take turns.
CREATE FUNCTION _sas.compose_watches(ids bigint[], looks timestamptz[] DEFAULT NULL)
RETURNS SETOF _sas.watch_order
LANGUAGE plpgsql AS $$
DECLARE
    until_us bigint := _sas.evaluated_cost() + 100000;
BEGIN
    RETURN QUERY
    SELECT t.watch_id, t.epoch, t.lane, d.kind,
           CASE WHEN coalesce(body.problem, path.problem, refused.problem) IS NULL
                THEN body.result || CASE WHEN d.kind IN ('stream', 'poll')
                    THEN jsonb_build_object('path', path.result) ELSE '{}' END END,
           t.cursor, t.digest, t.room, t.wait_ms,
           CASE WHEN coalesce(body.problem, path.problem) IS NOT NULL
                THEN _sas.problem_object('template', 'could not build the request of the watcher',
                                         _sas.problem_text(coalesce(body.problem, path.problem)))
                ELSE refused.problem END,
           looks[t.n], t.owner
    FROM (SELECT w.watch_id, w.watcher_id, w.owner::oid AS owner, w.key, w.input, h.epoch, h.lane, f.cursor,
                 f.digest, _sas.room_of(f, g) AS room, u.n,
                 CASE WHEN f.last_error_at <= w.resumed_at THEN 0
                      ELSE greatest(0, extract(epoch FROM f.retry_at - sas.now())::float8 * 1000) END
                 AS wait_ms,
                 row_number() OVER (PARTITION BY w.owner ORDER BY u.n) AS turn
          FROM unnest(ids) WITH ORDINALITY AS u (id, n)
          JOIN _sas.watch w ON w.watch_id = u.id
          JOIN _sas.watch_held h ON h.watch_id = w.watch_id
          JOIN _sas.watch_flow f ON f.watch_id = w.watch_id
          JOIN _sas.watch_done g ON g.watch_id = w.watch_id
          ORDER BY turn OFFSET 0) t
    JOIN _sas.watcher d USING (watcher_id)
    CROSS JOIN LATERAL (SELECT t.n > 0 AND _sas.evaluated_cost() <= until_us AS goes_on OFFSET 0) c
    -- an input may be large: it is read only if it is used
    CROSS JOIN LATERAL (SELECT CASE WHEN c.goes_on THEN _sas.watch_context(d.name, t.key, t.input, t.cursor)
                               END AS root OFFSET 0) x
    CROSS JOIN LATERAL _sas.render(CASE WHEN NOT c.goes_on THEN NULL
                                   WHEN d.kind IN ('stream', 'poll') THEN d.request - 'path'
                                   ELSE coalesce(d.request, '{}') END, x.root) body
    CROSS JOIN LATERAL _sas.render_path(CASE
                                        WHEN NOT c.goes_on THEN NULL
                                        WHEN d.kind IN ('stream', 'poll')
                                        THEN coalesce(d.request ->> 'path', '') ELSE '' END, x.root) path
    CROSS JOIN LATERAL (SELECT CASE WHEN c.goes_on AND d.lane > 0 AND _sas.agent_right(t.owner, d.lane) <> 'a'
                               THEN (SELECT _sas.problem_object('sqlstate:42501', p.problem, p.hint)
                                     FROM _sas.check_watch_use(
                                         t.owner, d.lane, d.kind,
                                         d.request || jsonb_build_object('path', path.result)) p) END
                        AS problem OFFSET 0) refused
    ORDER BY t.n;
END $$;

-- _sas.claim_watches(node_id, quantity): a worker takes waiting tasks, and gets what it needs to host them.
-- See _sas.take_watches.
CREATE FUNCTION _sas.claim_watches(node_id bigint, quantity int)
RETURNS SETOF _sas.watch_order
LANGUAGE plpgsql AS $$
DECLARE
    n _sas.node;
    ids bigint[];
BEGIN
    IF NOT EXISTS (SELECT FROM _sas.watch_wait) THEN
        RETURN;
    END IF;
    SELECT * INTO n FROM _sas.node x WHERE x.node_id = $1 AND x.ended_at IS NULL;
    IF FOUND THEN
        ids := _sas.take_watches(n, quantity);
        RETURN QUERY SELECT * FROM _sas.compose_watches(ids, _sas.next_looks(ids, NULL));
    END IF;
END $$;

-- _sas.fence(for_node, ids, epochs): for which of these tasks this node may write; locks their rows in
-- _sas.watch_flow, as every transaction does that takes a task away. Never waits. Answers by position:
-- mine; locked (another transaction has locked the row, and the node asks again in a moment); gone.
CREATE FUNCTION _sas.fence(for_node bigint, ids bigint[], epochs bigint[]) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    locked bigint[];
BEGIN
    SELECT coalesce(array_agg(l.watch_id), '{}') INTO locked
    FROM (SELECT f.watch_id FROM _sas.watch_flow f WHERE f.watch_id = ANY (ids)
          ORDER BY f.watch_id FOR NO KEY UPDATE SKIP LOCKED) l;
    -- a statement of its own, because it must see what was committed before
    RETURN (SELECT array_agg(CASE WHEN (SELECT true FROM _sas.watch_held h
                                        WHERE h.watch_id = u.id AND h.node_id = for_node
                                          AND h.epoch = u.epoch LIMIT 1) IS NULL THEN 'gone'
                                  WHEN u.id = ANY (locked) THEN 'mine' ELSE 'locked' END ORDER BY u.n)
            FROM unnest(ids, epochs) WITH ORDINALITY AS u (id, epoch, n));
END $$;

-- _sas.hosted_by(id): which node holds this task, and in which epoch; null: none.
CREATE FUNCTION _sas.hosted_by(id bigint) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT h.node_id || ' ' || h.epoch FROM _sas.watch_held h WHERE h.watch_id = id
$$;

-- _sas.check_latest_host(id, seen): raises an error (40001) if the task is not held, as is committed now, as
-- the older snapshot of this transaction shows: seen is its _sas.hosted_by.
CREATE FUNCTION _sas.check_latest_host(id bigint, seen text) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_check_latest_host';

-- _sas.await_flow(id): for a session that writes for a task: waits for the host that is writing for it now.
CREATE FUNCTION _sas.await_flow(id bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM _sas.watch_flow f WHERE f.watch_id = id FOR NO KEY UPDATE;
    PERFORM _sas.check_latest_host(id, _sas.hosted_by(id)) WHERE _sas.keeps_snapshot();
END $$;

-- _sas.watch_requests(node_id, watch_ids, epochs, looked): what to do now for tasks that the node hosts, with
-- their current cursor and definition. Tasks that it no longer hosts are left out. looked: the tasks that
-- have made their due poll.
-- Writes: watch_held.
CREATE FUNCTION _sas.watch_requests(node_id bigint, watch_ids bigint[], epochs bigint[],
                                    looked boolean[] DEFAULT NULL)
RETURNS SETOF _sas.watch_order
LANGUAGE plpgsql AS $$
DECLARE
    ids bigint[];
    have boolean[];
BEGIN
    UPDATE _sas.watch_held h SET change = d.change
    FROM unnest($2, $3) AS u (id, epoch)
    JOIN _sas.watch w ON w.watch_id = u.id JOIN _sas.watcher d USING (watcher_id)
    WHERE h.watch_id = u.id AND h.node_id = $1 AND h.epoch = u.epoch AND h.change <> d.change;
    SELECT array_agg(u.id ORDER BY u.n), array_agg(u.looked ORDER BY u.n) INTO ids, have
    FROM unnest($2, $3, $4) WITH ORDINALITY AS u (id, epoch, looked, n)
    JOIN _sas.watch_held h ON h.watch_id = u.id AND h.node_id = $1 AND h.epoch = u.epoch;
    RETURN QUERY SELECT * FROM _sas.compose_watches(ids, _sas.next_looks(ids, have));
END $$;

-- _sas.fail_watches(node_id, watch_ids, epochs, errors, at_least_ms): tasks have ended with an error; or,
-- if the error is null, in good order, which counts as a failure only if it was at once and the cursor has
-- not moved since the stream began: a service may tell one page after the other. A quiet time (reset_after)
-- resets earlier failures.
--   answer  retry   after pause_ms
--           failed  given up; the host has nothing more to do
--           stop, fenced
--           locked  not counted; the host must report it again
-- Writes: watch_flow, watch_held.
CREATE FUNCTION _sas.fail_watches(node_id bigint, watch_ids bigint[], epochs bigint[], errors jsonb[],
                                  at_least_ms float8[])
RETURNS TABLE (watch_id bigint, epoch bigint, answer text, pause_ms float8)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    now timestamptz := sas.now();
    fenced text[] := _sas.fence($1, $2, $3);
    gone bigint[];
BEGIN
    WITH told AS (
        SELECT u.id, d.retry, w.resumed_at,
               CASE WHEN u.error IS NULL AND now - begun.at < interval '1 s'
                        AND coalesce(f.moved_at < begun.at, true)
                    THEN _sas.problem_object('ended', 'the stream ended at once')
                        ELSE u.error END AS error,
               make_interval(secs => coalesce(u.at_least, 0) / 1000) AS at_least,
               CASE WHEN f.retry_at IS NULL OR f.last_error_at <= w.resumed_at
                   OR now - f.retry_at >= (d.retry ->> 'reset_after')::interval THEN 0
                   ELSE f.failures END AS before
        FROM unnest($2, $4, $5, fenced) AS u (id, error, at_least, fence)
        JOIN _sas.watch w ON w.watch_id = u.id JOIN _sas.watcher d USING (watcher_id)
            JOIN _sas.watch_flow f ON f.watch_id = u.id
            CROSS JOIN LATERAL (SELECT greatest(f.retry_at, w.since) AS at) begun
        WHERE u.fence = 'mine'),
    counted AS (
        SELECT t.*, t.before + (t.error IS NOT NULL)::int AS failures, t.error IS NOT NULL
            AND t.before + 1 >= (t.retry ->> 'max_failures')::int AS given_up FROM told t)
    UPDATE _sas.watch_flow f
    SET failures = c.failures, retry_at = now + greatest(c.at_least,
                                                         _sas.cool_off(c.retry, greatest(1, c.failures))),
        last_error = coalesce(c.error, f.last_error), last_error_at = CASE
            WHEN c.error IS NULL THEN f.last_error_at ELSE now END,
        given_up_at = CASE WHEN c.given_up THEN now ELSE f.given_up_at END, called_at = NULL
    FROM counted c WHERE f.watch_id = c.id;

    -- the host no longer holds tasks that are given up
    WITH x AS (
        DELETE FROM _sas.watch_held h USING unnest($2, fenced) AS u (id, fence), _sas.watch_flow f
        WHERE u.fence = 'mine' AND h.watch_id = u.id AND f.watch_id = u.id AND f.given_up_at = now
        RETURNING h.watch_id)
    SELECT array_agg(x.watch_id) INTO gone FROM x;
    RETURN QUERY
    SELECT u.id, u.epoch, CASE WHEN u.fence = 'gone' THEN 'fenced' WHEN u.fence = 'locked' THEN 'locked'
        WHEN u.id = ANY (gone) THEN 'failed'
        WHEN w.state <> 'processing' OR w.moving THEN 'stop' ELSE 'retry' END,
           CASE WHEN u.fence = 'mine' THEN greatest(0, extract(epoch FROM f.retry_at - now)::float8 * 1000)
               ELSE 0 END
    FROM unnest($2, $3, fenced) WITH ORDINALITY AS u (id, epoch, fence, n)
    LEFT JOIN _sas.watch w ON w.watch_id = u.id LEFT JOIN _sas.watch_flow f ON f.watch_id = u.id
    ORDER BY u.n;
    PERFORM _sas.gone_from_host($1, gone) WHERE gone IS NOT NULL;
END $$;

-- _sas.gone_from_host(from_node, ids, after): this node no longer holds these tasks: settles them,
-- and wakes nodes that may take tasks now that it has room.
-- Writes: watch_note.
CREATE FUNCTION _sas.gone_from_host(from_node bigint, ids bigint[], after interval[] DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    lanes int[];
BEGIN
    DELETE FROM _sas.watch_note n WHERE n.watch_id = ANY (ids) AND n.node_id = from_node;
    PERFORM _sas.settle_free(ids, after);
    SELECT array_agg(l.lane) INTO lanes
    FROM (SELECT 0 AS lane UNION ALL SELECT a.agent_id FROM _sas.agent a) l
    WHERE EXISTS (SELECT FROM _sas.watch_wait q WHERE q.lane = l.lane AND q.due_at <= (SELECT sas.now()));
    IF lanes IS NOT NULL THEN
        PERFORM _sas.notify_lanes(lanes);
    END IF;
END $$;

-- _sas.node_news(node_id, quantity): news about tasks of this node, about as many as quantity. Each is
-- returned once; a request to stop is repeated until it is answered.
--   stop    end it and give it back
--   reload  the definition has changed
--   room    the inbox has room again
--   fenced  the node no longer holds it
-- Writes: watch_note.
CREATE FUNCTION _sas.node_news(node_id bigint, quantity int DEFAULT 10000)
RETURNS TABLE (watch_id bigint, epoch bigint, news text, room int)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    ids bigint[];
    asked int[];
BEGIN
    WITH read AS (
        DELETE FROM _sas.watch_note n
        WHERE n.ctid = ANY (ARRAY(SELECT x.ctid FROM _sas.watch_note x WHERE x.node_id = $1 AND x.unread
                                  LIMIT quantity FOR UPDATE SKIP LOCKED))
        RETURNING n.watch_id, n.asked)
    SELECT array_agg(r.watch_id), array_agg(r.asked) INTO ids, asked
    FROM (SELECT watch_id, max(asked) AS asked FROM read GROUP BY 1 ORDER BY 1) r;
    IF ids IS NULL THEN
        RETURN;
    END IF;
    RETURN QUERY
    WITH told AS (
        SELECT u.id, u.asked, h.epoch,
               CASE WHEN h.watch_id IS NULL THEN 'fenced' WHEN w.state <> 'processing'
                   OR w.moving THEN 'stop' WHEN h.change <> d.change THEN 'reload' ELSE 'room' END AS news,
               CASE WHEN h.watch_id IS NULL THEN 0 ELSE _sas.room_of(f, g) END AS room
        FROM unnest(ids, asked) AS u (id, asked)
        JOIN _sas.watch w ON w.watch_id = u.id JOIN _sas.watcher d USING (watcher_id)
        JOIN _sas.watch_flow f ON f.watch_id = u.id JOIN _sas.watch_done g ON g.watch_id = u.id
        LEFT JOIN _sas.watch_held h ON h.watch_id = u.id AND h.node_id = $1),
    kept AS (
        INSERT INTO _sas.watch_note (node_id, watch_id, unread, asked, again_at)
        SELECT $1, t.id, false, t.asked,
            sas.now() + least(interval '1 min', interval '5 s' * 2 ^ least(t.asked, 10)) FROM told t
        WHERE t.news = 'stop')
    SELECT t.id, t.epoch, t.news, t.room FROM told t ORDER BY t.id;
END $$;

-- _sas.give_back_watches(node_id, watch_ids, epochs): the node no longer hosts these tasks. What
-- follows depends on the state of each. Returns the tasks that it still hosts, because another transaction
-- has locked their row.
-- Writes: watch_held.
CREATE FUNCTION _sas.give_back_watches(node_id bigint, watch_ids bigint[], epochs bigint[]) RETURNS bigint[]
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    fenced text[] := _sas.fence($1, $2, $3);
    ids bigint[] := ARRAY(SELECT u.id FROM unnest($2, fenced) AS u (id, fence) WHERE u.fence = 'mine');
BEGIN
    IF cardinality(ids) > 0 THEN
        DELETE FROM _sas.watch_held h WHERE h.watch_id = ANY (ids);
        PERFORM _sas.gone_from_host($1, ids);
    END IF;
    RETURN ARRAY(SELECT u.id FROM unnest($2, fenced) AS u (id, fence) WHERE u.fence = 'locked');
END $$;

-- _sas.make_way(node_id, watch_id, busy): the function of this task took long. If another function worker has
-- room, all other tasks of this worker go there, except those whose row another transaction has locked; and
-- for a minute this worker takes only tasks that no other node takes. Returns the tasks that went.
--   busy  workers without time, as the caller knows; null: those that took long lately
-- Writes: node, watch_held.
CREATE FUNCTION _sas.make_way(node_id bigint, watch_id bigint, busy bigint[] DEFAULT NULL) RETURNS bigint[]
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    ids bigint[];
BEGIN
    IF NOT EXISTS (SELECT FROM _sas.node n WHERE n.kind = 'function' AND n.ended_at IS NULL
                   AND n.node_id <> $1
                   AND CASE WHEN busy IS NULL THEN n.busy_until IS NULL OR n.busy_until <= sas.now()
                       ELSE NOT n.worker_id = ANY (busy) END
                   AND n.capacity > (SELECT count(*) FROM _sas.watch_held h WHERE h.node_id = n.node_id)) THEN
        RETURN '{}';
    END IF;
    PERFORM FROM _sas.node n WHERE n.node_id = $1 FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN '{}';
    END IF;
    UPDATE _sas.node n SET busy_until = sas.now() + interval '1 min' WHERE n.node_id = $1;
    SELECT array_agg(l.watch_id) INTO ids
    FROM (SELECT f.watch_id FROM _sas.watch_flow f
          WHERE f.watch_id IN (SELECT h.watch_id FROM _sas.watch_held h
                               WHERE h.node_id = $1 AND h.watch_id <> $2)
          ORDER BY f.watch_id FOR NO KEY UPDATE SKIP LOCKED) l;
    -- tasks that went to another node before they were locked stay there
    WITH freed AS (
        DELETE FROM _sas.watch_held h WHERE h.watch_id = ANY (ids) AND h.node_id = $1 RETURNING h.watch_id)
    SELECT array_agg(f.watch_id) INTO ids FROM freed f;
    PERFORM _sas.gone_from_host($1, ids) WHERE ids IS NOT NULL;
    RETURN coalesce(ids, '{}');
END $$;

-- SPDX-License-Identifier: PostgreSQL
--
-- States of infinite tasks, and the functions that derive them: from whether the task has a host, whether
-- its inbox is empty, and whether it was given up.
--
-- Sessions lock rows of _sas.watch and nothing else that a worker needs. A worker skips locked rows and
-- leaves a message for the supervisor.

INSERT INTO _sas.transition VALUES
    ('watch', 'none', 'created', 'started; it waits for a node'),
    ('watch', 'created', 'processing', 'a node has taken it'),
    ('watch', 'created', 'on_deleting',
     'stopped while it waited; its host has not ended it, or its inbox is not empty'),
    ('watch', 'created', 'deleted', 'stopped before a node had taken it'),
    ('watch', 'created', 'paused', 'an operator paused it'),
    ('watch', 'created', 'failed', 'what it had taken in cannot be brought to its target'),
    ('watch', 'processing', 'created', 'its node is gone or gave it back'),
    ('watch', 'processing', 'on_deleting', 'stopped; its host is asked to end it'),
    ('watch', 'processing', 'paused', 'an operator paused it; its host is asked to end it'),
    ('watch', 'processing', 'failed', 'its retries are used up'),
    ('watch', 'on_deleting', 'deleted', 'its host has ended it, and its inbox is empty'),
    ('watch', 'on_deleting', 'failed', 'what it had taken in cannot be brought to its target'),
    ('watch', 'paused', 'created', 'resumed; it waits for a node'),
    ('watch', 'paused', 'on_deleting',
     'stopped while it was paused; its host has not ended it, or its inbox is not empty'),
    ('watch', 'paused', 'deleted', 'stopped while it was paused'),
    ('watch', 'failed', 'created', 'resumed; earlier failures do not count'),
    ('watch', 'failed', 'on_deleting',
     'stopped after it had failed; its host has not ended it, or its inbox is not empty'),
    ('watch', 'failed', 'deleted', 'stopped after it had failed'),
    ('watch', 'deleted', 'created', 'started again under its key');

-- _sas.move_watches(ids, from_states, to_states): the only writer of the states of infinite tasks. Arrays
-- of equal length. Raises an error if a task is not in its from_state, or if the change is not in
-- _sas.transition; that is a bug in sas.
-- Writes: watch, watch_ended.
CREATE FUNCTION _sas.move_watches(ids bigint[], from_states text[], to_states text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    wanted int := coalesce(cardinality(ids), 0);
    moved int;
BEGIN
    IF wanted = 0 THEN
        RETURN;
    END IF;
    UPDATE _sas.watch w
    SET state = u.to_state,
        epoch = w.epoch + (u.to_state = 'processing')::int,
        since = CASE u.to_state WHEN 'processing' THEN sas.now() WHEN 'on_deleting' THEN w.since END,
        restarts = w.restarts + (u.from_state = 'processing' AND u.to_state = 'created')::int,
        moving = false,
        discard = w.discard AND u.to_state = 'on_deleting',
        changed_at = sas.now()
    FROM unnest(ids, from_states, to_states) AS u (watch_id, from_state, to_state)
    WHERE w.watch_id = u.watch_id AND w.state = u.from_state
      AND EXISTS (SELECT FROM _sas.transition t WHERE t.subject = 'watch' AND t.from_state = u.from_state
                  AND t.to_state = u.to_state);
    GET DIAGNOSTICS moved = ROW_COUNT;
    IF moved <> wanted THEN
        RAISE EXCEPTION 'illegal change of watch state'
            USING ERRCODE = 'internal_error',
                  DETAIL = (SELECT string_agg(format('watch %s: %s to %s', u.id, u.f, u.t), '; ')
                            FROM (SELECT * FROM unnest(ids, from_states, to_states) LIMIT 5) AS u (id, f, t));
    END IF;
    INSERT INTO _sas.watch_ended (watch_id, ended_at) SELECT u.id, sas.now()
    FROM unnest(ids, to_states) AS u (id, t) WHERE u.t = 'deleted';
    IF 'deleted' = ANY (to_states) THEN
        PERFORM _sas.give_watches(o.owner, o.n)
        FROM (SELECT w.owner::oid AS owner, count(*) AS n
              FROM unnest(ids, to_states) AS u (id, t) JOIN _sas.watch w ON w.watch_id = u.id
              WHERE u.t = 'deleted' GROUP BY 1 OFFSET 0) o;
    END IF;
    IF 'deleted' = ANY (from_states) THEN
        DELETE FROM _sas.watch_ended e USING unnest(ids, from_states) AS u (id, f) WHERE u.f = 'deleted'
            AND e.watch_id = u.id;
    END IF;
END $$;

-- _sas.lock_watches(ids): locks those of these tasks that no other transaction has locked, and returns
-- them. Never waits.
CREATE FUNCTION _sas.lock_watches(ids bigint[]) RETURNS bigint[]
LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT coalesce(array_agg(l.watch_id), '{}')
            FROM (SELECT w.watch_id FROM _sas.watch w WHERE w.watch_id = ANY (ids)
                  ORDER BY w.watch_id FOR NO KEY UPDATE SKIP LOCKED) l);
END $$;

-- _sas.check_watches(ids, after): the supervisor checks these tasks, at once or after a while.
-- Writes: watch_check. Next: _sas.check_requested.
CREATE FUNCTION _sas.check_watches(ids bigint[], after interval DEFAULT '0') RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO _sas.watch_check (due_at, watch_id) SELECT sas.now() + after, u FROM unnest(ids) u;
    IF FOUND THEN
        PERFORM _sas.due_by(sas.now() + after);
    END IF;
END $$;

-- _sas.notify_hosts(ids): the hosts of these tasks check their rows for what has changed.
-- Writes: watch_note. Wakes: hosts; NOTIFY for outside nodes.
CREATE FUNCTION _sas.notify_hosts(ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    lanes int[];
BEGIN
    WITH told AS (
        INSERT INTO _sas.watch_note (node_id, watch_id, unread, asked, again_at)
        SELECT h.node_id, h.watch_id, true, 0, sas.now() + interval '5 s' FROM _sas.watch_held h
        WHERE h.watch_id = ANY (ids)
        RETURNING watch_id)
    SELECT array_agg(DISTINCT h.lane) INTO lanes FROM told t JOIN _sas.watch_held h USING (watch_id);
    IF lanes IS NULL THEN
        RETURN;
    END IF;
    PERFORM _sas.notify_lanes(lanes, 'news');
    PERFORM _sas.due_by(sas.now() + interval '5 s');
END $$;

-- _sas.enqueue_watches(ids, after): these created tasks wait for a node from now on, or after a while.
-- Writes: watch_wait.
CREATE FUNCTION _sas.enqueue_watches(ids bigint[], after interval[] DEFAULT NULL) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    lanes int[];
    first timestamptz;
BEGIN
    WITH put AS (
        INSERT INTO _sas.watch_wait (watch_id, lane, due_at, owner)
        SELECT w.watch_id, d.lane, sas.now() + coalesce(u.after, '0'), w.owner
        FROM unnest(ids, after) AS u (watch_id, after)
        JOIN _sas.watch w ON w.watch_id = u.watch_id
        JOIN _sas.watcher d USING (watcher_id)
        RETURNING watch_wait.lane, due_at)
    SELECT array_agg(DISTINCT p.lane), min(p.due_at) INTO lanes, first FROM put p;
    IF lanes IS NOT NULL THEN
        PERFORM _sas.notify_lanes(lanes);
        PERFORM _sas.due_by(greatest(first, sas.now() + interval '2 s'));
    END IF;
END $$;

-- _sas.settle_watches(ids, after): derives the state of these tasks. after: how long tasks that have lost
-- their host wait before another node may take them; null: not at all.
--   processing    given up: failed; without a host: created again
--   on_deleting   without a host and with an empty inbox: deleted
--   created       without a host: waits for one
--   holds   the locks of the tasks
--   writes  watch, watch_wait, watch_work; an alert for what has failed
--   wakes   hosts, and a function worker if the inbox is not empty
CREATE FUNCTION _sas.settle_watches(ids bigint[], after interval[] DEFAULT NULL) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    moved record;
    failed record;
BEGIN
    PERFORM _sas.discard(ids);
    WITH facts AS (
        SELECT w.watch_id, w.state,
               h.watch_id IS NOT NULL AS held,
               greatest(f.given_up_at, g.given_up_at) > coalesce(w.resumed_at, '-infinity') AS given_up,
               -- each batch was counted in its own commit
               f.items > g.items AS pending
        FROM _sas.watch w
        JOIN _sas.watch_flow f USING (watch_id)
        JOIN _sas.watch_done g USING (watch_id)
        LEFT JOIN _sas.watch_held h USING (watch_id)
        WHERE w.watch_id = ANY (ids)),
    change AS (
        SELECT f.*, CASE WHEN f.state IN ('created', 'processing', 'on_deleting') AND f.given_up THEN 'failed'
                         WHEN f.state = 'processing' AND NOT f.held THEN 'created'
                         WHEN f.state = 'on_deleting' AND NOT f.held
                             AND NOT f.pending THEN 'deleted' END AS to_state
        FROM facts f)
    SELECT array_agg(c.watch_id) AS ids, array_agg(c.state) AS froms, array_agg(c.to_state) AS tos INTO moved
    FROM change c WHERE c.to_state IS NOT NULL;
    PERFORM _sas.move_watches(moved.ids, moved.froms, moved.tos);

    FOR failed IN
        SELECT u.id, d.name, w.key,
               -- it may repeat values that the runs of its items mask
               CASE WHEN d.target_kind = 'workflow' AND _sas.masks_runs(w.owner, d.target)
                    THEN _sas.public_error(e.error) ELSE e.error END AS error
        FROM unnest(moved.ids, moved.tos) AS u (id, to_state)
        JOIN _sas.watch w ON w.watch_id = u.id JOIN _sas.watcher d USING (watcher_id)
        JOIN _sas.watch_flow f USING (watch_id) JOIN _sas.watch_done g USING (watch_id)
        CROSS JOIN LATERAL (SELECT CASE WHEN f.given_up_at > coalesce(g.given_up_at, '-infinity')
                                        THEN f.last_error ELSE g.last_error END AS error) e
        WHERE u.to_state = 'failed'
    LOOP
        PERFORM _sas.raise_alert('watch-failed', format('watch %s', failed.id),
                                 format('watch "%s" of watcher "%s" failed: %s', failed.key, failed.name,
                                        failed.error ->> 'title'), error => failed.error);
    END LOOP;
    PERFORM _sas.notify_hosts(array_agg(u.id)) FROM unnest(moved.ids, moved.tos) AS u (id, t)
        WHERE u.t = 'failed' HAVING count(*) > 0;
    DELETE FROM _sas.watch_wait q USING unnest(moved.ids, moved.tos) AS u (id, t) WHERE q.watch_id = u.id
        AND u.t <> 'created';
    PERFORM _sas.enqueue_watches(array_agg(w.watch_id), array_agg(u.after))
    FROM unnest(ids, after) AS u (id, after)
    JOIN _sas.watch w ON w.watch_id = u.id AND w.state = 'created'
    WHERE NOT EXISTS (SELECT FROM _sas.watch_held h WHERE h.watch_id = w.watch_id)
        AND NOT EXISTS (SELECT FROM _sas.watch_wait q WHERE q.watch_id = w.watch_id)
    HAVING count(*) > 0;
    -- for items that were stored while no worker could claim them; a surplus row does no harm
    INSERT INTO _sas.watch_work (due_at, watch_id, owner)
    SELECT sas.now(), w.watch_id, w.owner FROM _sas.watch w
    WHERE w.watch_id = ANY (ids) AND w.state IN ('created', 'processing', 'on_deleting')
      AND EXISTS (SELECT FROM _sas.watch_batch b WHERE b.watch_id = w.watch_id);
    IF FOUND THEN
        PERFORM _sas.wake_items();
    END IF;
END $$;

-- _sas.discard(ids): deletes the inboxes of tasks that are deleted without handling their items. An inbox
-- that a worker has claimed is kept until the claim ends.
-- Writes: watch_batch, watch_done.
CREATE FUNCTION _sas.discard(ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    emptied bigint[];
BEGIN
    SELECT array_agg(g.watch_id) INTO emptied
    FROM (SELECT d.watch_id FROM _sas.watch_done d JOIN _sas.watch w USING (watch_id)
          WHERE w.watch_id = ANY (ids) AND w.discard AND w.state = 'on_deleting'
              AND (d.request_id IS NULL OR d.claimed_until <= sas.now())
          ORDER BY d.watch_id FOR UPDATE OF d SKIP LOCKED) g;
    IF emptied IS NOT NULL THEN
        WITH gone AS (DELETE FROM _sas.watch_batch b WHERE b.watch_id = ANY (emptied)
                      RETURNING b.watch_id, b.quantity, b.bytes)
        UPDATE _sas.watch_done d SET items = d.items + s.items, discarded = d.discarded + s.items,
            bytes = d.bytes + s.bytes, request_id = NULL
        FROM (SELECT g.watch_id, sum(g.quantity) AS items, sum(g.bytes) AS bytes FROM gone g GROUP BY 1) s
        WHERE d.watch_id = s.watch_id;
    END IF;
END $$;

-- _sas.settle_free(ids, after): the same for those of these tasks that no other transaction has locked. The
-- supervisor checks the others, if they still exist: dropping a watcher deletes its tasks.
CREATE FUNCTION _sas.settle_free(ids bigint[], after interval[] DEFAULT NULL) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    locked bigint[] := _sas.lock_watches(ids);
BEGIN
    PERFORM _sas.settle_watches(array_agg(u.id), array_agg(u.after)) FROM unnest(ids, after) AS u (id, after)
        WHERE u.id = ANY (locked) HAVING count(*) > 0;
    IF cardinality(locked) < cardinality(ids) THEN
        PERFORM _sas.check_watches(ARRAY(SELECT w.watch_id FROM _sas.watch w
                                         WHERE w.watch_id = ANY (ids) AND NOT w.watch_id = ANY (locked)),
                                   '250 ms');
    END IF;
END $$;

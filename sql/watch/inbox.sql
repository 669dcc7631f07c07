-- SPDX-License-Identifier: PostgreSQL
--
-- Items: what function workers do for infinite tasks: they bring items to their target, and call the
-- functions of tasks.
--
-- As with steps, a claim is committed before code of a user runs, so that code which crashes the server is
-- known by its claim. Then the writes of that code and the progress of the task are one commit. Only one
-- worker at a time works on the inbox of a task, in the order in which the items came.

-- _sas.items_after(d, w, now): until when no worker may claim the inbox of this task: another worker has it
-- claimed, its pause is not over; 'infinity' if the task is paused, has failed or is deleted. Null: it may
-- be claimed.
CREATE FUNCTION _sas.items_after(d _sas.watch_done, w _sas.watch, now timestamptz) RETURNS timestamptz
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN w.state IN ('paused', 'failed', 'deleted') THEN 'infinity'
                WHEN d.request_id IS NOT NULL AND d.claimed_until > now THEN d.claimed_until
                WHEN d.retry_at > now AND d.last_error_at > coalesce(w.resumed_at, '-infinity')
                    THEN d.retry_at END
$$;

-- _sas.defer_work(now): defers rows that are due but may not be claimed, so that they do not block others.
-- One row of each task stays until it may be claimed; if time alone does not bring that about, settling the
-- task checks it again. A task whose row in _sas.watch_done is locked is skipped: the worker that is ending
-- its claim there does not see items that have arrived since its scan, and a row deferred to the end of that
-- claim would wait for nothing. That worker scans again on its own.
-- Writes: watch_work.
CREATE FUNCTION _sas.defer_work(now timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    locked bigint[];
BEGIN
    SELECT array_agg(x.watch_id) INTO locked
    FROM (SELECT DISTINCT y.watch_id
          FROM (SELECT k.watch_id FROM _sas.watch_work k WHERE k.due_at <= now ORDER BY k.due_at LIMIT 1000) y
          OFFSET 0) due
    CROSS JOIN LATERAL (
        SELECT d.watch_id FROM _sas.watch_done d JOIN _sas.watch w USING (watch_id)
        WHERE d.watch_id = due.watch_id AND _sas.items_after(d, w, now) IS NOT NULL
        FOR UPDATE OF d SKIP LOCKED) x;
    IF locked IS NULL THEN
        RETURN;
    END IF;
    -- a statement of its own, because it must see what was committed before, and the state of a task
    -- together with its rows
    WITH early AS (
        SELECT k.ctid, k.watch_id FROM _sas.watch_work k
        WHERE k.watch_id = ANY (locked) AND k.due_at <= now FOR UPDATE SKIP LOCKED),
    judged AS (
        SELECT e.ctid, _sas.items_after(d, w, now) AS after,
               row_number() OVER (PARTITION BY e.watch_id ORDER BY e.ctid) = 1 AS stays
        FROM early e
        JOIN _sas.watch w ON w.watch_id = e.watch_id
        JOIN _sas.watch_done d ON d.watch_id = e.watch_id),
    gone AS (
        DELETE FROM _sas.watch_work k USING judged j
        WHERE k.ctid = j.ctid AND (j.after = 'infinity' OR j.after IS NOT NULL AND NOT j.stays))
    UPDATE _sas.watch_work k SET due_at = j.after, worker_id = NULL
    FROM judged j WHERE k.ctid = j.ctid AND j.after < 'infinity' AND j.stays;
END $$;

-- _sas.due_tasks(quantity, now): tasks whose inbox is due, in the order in which they are claimed. If more
-- rows than quantity are due, owners take turns.
CREATE FUNCTION _sas.due_tasks(quantity int, now timestamptz) RETURNS TABLE (watch_id bigint, place bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    turns record;
BEGIN
    IF NOT EXISTS (SELECT FROM _sas.watch_work y WHERE y.due_at <= now ORDER BY y.due_at
                   OFFSET quantity LIMIT 1) THEN
        RETURN QUERY
        SELECT y.watch_id, row_number() OVER (ORDER BY min(y.due_at), y.watch_id) FROM _sas.watch_work y
        WHERE y.due_at <= now GROUP BY y.watch_id;
        RETURN;
    END IF;
    -- the first owner goes to the end of the line: another one is first each time, which matters when few
    -- tasks are claimed at once
    PERFORM _sas.share_due(ascii('i'), now, 1);
    turns := _sas.share_due(ascii('i'), now, greatest(1000, quantity));
    RETURN QUERY
    SELECT t.watch_id, row_number() OVER (ORDER BY t.n, t.turn)
    FROM (SELECT k.watch_id, o.turn,
                 row_number() OVER (PARTITION BY o.turn ORDER BY k.due_at, k.watch_id) AS n
          FROM unnest(turns.owners, turns.shares, turns.marks) WITH ORDINALITY AS o (owner, share, mark, turn)
          CROSS JOIN LATERAL (
              SELECT x.watch_id, min(x.due_at) AS due_at
              FROM (SELECT y.watch_id, y.due_at FROM _sas.watch_work y
                    WHERE y.owner = o.owner AND y.due_at >= o.mark AND y.due_at <= now
                    ORDER BY y.due_at LIMIT o.share) x
              GROUP BY x.watch_id) k) t;
END $$;

-- _sas.due_inboxes(quantity, now, but_of): tasks whose inbox is due and free, with their rows locked, at most
-- quantity, except those of the owners but_of. A task that must run alone is returned alone.
CREATE FUNCTION _sas.due_inboxes(quantity int, now timestamptz, but_of oid[]) RETURNS bigint[]
LANGUAGE plpgsql AS $$
BEGIN
    RETURN (
        WITH due AS (
            SELECT g.watch_id, g.alone, row_number() OVER seen AS n,
                count(*) FILTER (WHERE g.alone) OVER seen AS alones
            -- in this order, so that no more than these are locked
            FROM (SELECT x.watch_id, x.alone, k.place
                  FROM (SELECT t.watch_id, t.place FROM _sas.due_tasks(quantity, now) t
                        ORDER BY t.place OFFSET 0) k
                  CROSS JOIN LATERAL (SELECT d.watch_id, d.alone
                                      FROM _sas.watch_done d JOIN _sas.watch w USING (watch_id)
                                      WHERE d.watch_id = k.watch_id AND NOT w.owner::oid = ANY (but_of)
                                        AND _sas.items_after(d, w, now) IS NULL
                                      FOR UPDATE OF d SKIP LOCKED) x
                  LIMIT quantity) g
            WINDOW seen AS (ORDER BY g.place ROWS UNBOUNDED PRECEDING))
        SELECT array_agg(d.watch_id ORDER BY d.n) FROM due d WHERE d.alones = 0 OR d.n = 1);
END $$;

-- _sas.claim_items(quantity, boot, worker_id): claims tasks whose inbox is due, for one worker. Each claim
-- lasts for sas.complete_in. A task that must run alone ends the batch before it. Owners whose functions run
-- on as many workers as they may are left out. If item templates cost much, the rest is left for another
-- claim.
--   items        items of the oldest batches: a thousand, or the first batch; item templates are filled in
--   up_to        the last of these batches
--   target_kind  function: called with the array; table: inserted into; workflow: submitted with these inputs
--                and keys
-- Writes: watch_work, watch_done. Wakes: function workers.
CREATE FUNCTION _sas.claim_items(quantity int, boot bigint, worker_id bigint)
RETURNS SETOF _sas.claimed_inbox
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas.now();
    ids bigint[];
    n int;
    full_owners oid[];
BEGIN
    IF NOT EXISTS (SELECT FROM _sas.watch_work k WHERE k.due_at <= now) THEN
        RETURN;
    END IF;
    full_owners := _sas.unclaimable_owners();
    ids := _sas.due_inboxes(quantity, now, full_owners);
    -- not together with a claim: its locks would stay while the items are read
    IF ids IS NULL THEN
        -- It scans again in any case. A task that became free during the first scan was passed by because
        -- this scan had its row locked, and the worker that made it free was refused by that lock; nothing
        -- else would come to it.
        PERFORM _sas.defer_work(now);
        ids := _sas.due_inboxes(quantity, now, full_owners);
    END IF;
    IF ids IS NULL THEN
        RETURN;
    END IF;
    WITH taken AS (
        DELETE FROM _sas.watch_work k WHERE k.watch_id = ANY (ids) RETURNING k.due_at)
    SELECT count(_sas.found('items', 'items', t.due_at)) INTO n FROM taken t WHERE t.due_at <= now;
    UPDATE _sas.watch_done d SET request_id = gen_random_uuid(), claimed_until = now + _sas.complete_in()
    WHERE d.watch_id = ANY (ids);
    INSERT INTO _sas.watch_work (due_at, watch_id, boot, worker_id, together, owner)
    SELECT now + _sas.complete_in(), w.watch_id, $2, $3, cardinality(ids), w.owner FROM _sas.watch w
    WHERE w.watch_id = ANY (ids);
    PERFORM _sas.due_by(now + _sas.complete_in());
    -- more is due, or a task that must run alone: another worker scans when the locks are gone
    IF cardinality(ids) < quantity AND EXISTS (
        SELECT FROM (SELECT DISTINCT y.watch_id
                     FROM (SELECT k.watch_id FROM _sas.watch_work k WHERE k.due_at <= now ORDER BY k.due_at
                           LIMIT 1000) y
                     OFFSET 0) due
        JOIN _sas.watch w ON w.watch_id = due.watch_id
        JOIN _sas.watch_done d ON d.watch_id = due.watch_id
        WHERE _sas.items_after(d, w, now) IS NULL AND NOT w.owner::oid = ANY (full_owners)) THEN
        PERFORM _sas.wake_items();
    END IF;
    RETURN QUERY SELECT * FROM _sas.inbox(ids);
    GET DIAGNOSTICS n = ROW_COUNT;
    PERFORM _sas.unclaim_items(ids[n + 1 :], now) WHERE n < cardinality(ids);
END $$;

-- _sas.unclaim_items(ids, now): these tasks were claimed in this transaction, and are not after all.
-- Writes: watch_done, watch_work. Wakes: function workers.
CREATE FUNCTION _sas.unclaim_items(ids bigint[], now timestamptz) RETURNS void
LANGUAGE sql AS $$
    UPDATE _sas.watch_done SET request_id = NULL, claimed_until = NULL WHERE watch_id = ANY (ids);
    UPDATE _sas.watch_work SET due_at = now, boot = NULL, worker_id = NULL, together = NULL
    WHERE watch_id = ANY (ids);
    SELECT _sas.wake_items();
$$;

-- _sas.inbox(ids): what there is to do for claimed tasks, in the order of the calls (_sas.relieve_hosts).
-- The first task is always among them. When item templates have taken half a second, the tasks after that,
-- in the order of ids, are left out.
CREATE FUNCTION _sas.inbox(ids bigint[])
RETURNS SETOF _sas.claimed_inbox
LANGUAGE plpgsql AS $$
DECLARE
    until_us bigint := _sas.evaluated_us() + 500000;
BEGIN
    RETURN QUERY
    SELECT t.watch_id, t.request_id, t.owner, (t.d).name, t.key, t.alone,
           extract(epoch FROM _sas.complete_in())::float8 * 1000, (t.d).target_kind, (t.d).target,
           made.items, made.keys, b.up_to, made.problem
    -- in this order, so that the last ones are left out
    FROM (SELECT w.watch_id, g.request_id, w.owner::oid AS owner, w.key, g.alone, w, d, f.cursor
          FROM unnest(ids) WITH ORDINALITY AS u (id, n)
          JOIN _sas.watch w ON w.watch_id = u.id
          JOIN _sas.watcher d USING (watcher_id)
          JOIN _sas.watch_done g ON g.watch_id = w.watch_id
          JOIN _sas.watch_flow f ON f.watch_id = w.watch_id
          ORDER BY u.n OFFSET 0) t
    CROSS JOIN LATERAL (
        SELECT max(q.batch_no) AS up_to, array_agg(q.items ORDER BY q.batch_no) AS batches
        FROM (SELECT x.batch_no, x.items, sum(x.quantity) OVER (ORDER BY x.batch_no) - x.quantity AS before
              FROM (SELECT y.* FROM _sas.watch_batch y WHERE y.watch_id = t.watch_id ORDER BY y.batch_no
                    LIMIT 1000) x) q
        WHERE q.before < 1000 OFFSET 0) b
    CROSS JOIN LATERAL _sas.fill_items(t.d, t.w, t.cursor, b.batches, until_us) made
    WHERE NOT made.left_out
    ORDER BY t.watch_id;
END $$;

-- _sas.fill_items(d, w, cursor, batches, until_us): the items as their target gets them, and the keys of the
-- runs that they become. They are left out if _sas.evaluated_us() has passed until_us. If the templates of
-- one task take longer than two seconds, or make more than 64 MB, that is a problem of the task.
CREATE FUNCTION _sas.fill_items(d _sas.watcher, w _sas.watch, cursor jsonb, batches jsonb[], until_us bigint,
                                OUT items jsonb, OUT keys text[], OUT problem jsonb, OUT left_out boolean)
LANGUAGE plpgsql AS $$
DECLARE
    root jsonb;
    most_us bigint := _sas.evaluated_us() + 2000000;
    most_bytes bigint := _sas.evaluated_bytes() + 64 * 1024 * 1024;
    all_filled boolean;
BEGIN
    left_out := _sas.evaluated_us() > until_us;
    IF left_out THEN
        RETURN;
    END IF;
    IF d.target_item IS NULL AND d.target_key IS NULL AND cardinality(batches) = 1 THEN
        items := batches[1];
        RETURN;
    END IF;
    root := CASE WHEN d.target_item IS NOT NULL OR d.target_key IS NOT NULL
                 THEN _sas.watch_context(d.name, w.key, w.input, cursor) END;
    SELECT coalesce(jsonb_agg(CASE WHEN d.target_item IS NULL THEN e.item ELSE i.result END
                              ORDER BY e.n, e.m), '[]'),
           CASE WHEN d.target_key IS NOT NULL THEN array_agg(k.result #>> '{}' ORDER BY e.n, e.m) END,
           (array_agg(coalesce(i.problem, k.problem) ORDER BY e.n, e.m)
                FILTER (WHERE coalesce(i.problem, k.problem) IS NOT NULL))[1],
           coalesce(bool_and(c.goes_on), true)
    INTO items, keys, problem, all_filled
    FROM (SELECT b.n, x.m, x.item FROM unnest(batches) WITH ORDINALITY AS b (items, n)
          CROSS JOIN LATERAL jsonb_array_elements(b.items) WITH ORDINALITY AS x (item, m)) e
    -- asked for each item: it refers to one
    CROSS JOIN LATERAL (SELECT e.m > 0 AND _sas.evaluated_us() <= most_us
                               AND _sas.evaluated_bytes() <= most_bytes AS goes_on OFFSET 0) c
    CROSS JOIN LATERAL _sas.render(CASE WHEN c.goes_on THEN d.target_item END,
                                   root || jsonb_build_object('item', e.item)) i
    CROSS JOIN LATERAL _sas.render(CASE WHEN c.goes_on THEN d.target_key END,
                                   root || jsonb_build_object('item', e.item)) k;
    IF problem IS NOT NULL THEN
        problem := _sas.problem_object('template', 'could not build an item',
                                       _sas.problem_text(problem));
    ELSIF NOT all_filled THEN
        problem := _sas.problem_object('template', 'could not build the items',
                                       'their templates take more than 2 s, or make more than 64 MB');
    END IF;
END $$;

-- _sas.valid_items(watch_ids, request_ids): which of these claims are valid; asked before the target is
-- written to. Locks nothing; _sas.write_items checks whether a claim is valid to the end.
CREATE FUNCTION _sas.valid_items(watch_ids bigint[], request_ids uuid[]) RETURNS boolean[]
LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT array_agg(coalesce(d.request_id = u.request_id AND d.claimed_until > sas.now(), false)
                             ORDER BY u.n)
            FROM unnest(watch_ids, request_ids) WITH ORDINALITY AS u (id, request_id, n)
            LEFT JOIN _sas.watch_done d ON d.watch_id = u.id);
END $$;

-- _sas.lock_items(watch_ids, request_ids): locks the rows of these claims. Answers by position: held; lost;
-- locked: the scan of another worker for due inboxes has locked a claimed row, until it commits. Never
-- waits.
CREATE FUNCTION _sas.lock_items(watch_ids bigint[], request_ids uuid[]) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    locked bigint[];
BEGIN
    SELECT coalesce(array_agg(l.watch_id), '{}') INTO locked
    FROM (SELECT d.watch_id FROM _sas.watch_done d WHERE d.watch_id = ANY (watch_ids)
          ORDER BY d.watch_id FOR UPDATE SKIP LOCKED) l;
    -- a statement of its own, because it must see the rows as they were locked
    RETURN (SELECT array_agg(CASE WHEN d.request_id IS DISTINCT FROM u.request_id
                                       OR d.claimed_until <= sas.now() THEN 'lost'
                                  WHEN u.id = ANY (locked) THEN 'held' ELSE 'locked' END ORDER BY u.n)
            FROM unnest(watch_ids, request_ids) WITH ORDINALITY AS u (id, request_id, n)
            LEFT JOIN _sas.watch_done d ON d.watch_id = u.id);
END $$;

-- _sas.write_items(watch_ids, request_ids, up_tos, errors, again, worked): writes what was done under these
-- claims, as far as they are valid; for the other arguments see _sas.finish_items. worked: a target was
-- written to, in this transaction. Answers by position, as _sas.lock_items. If a claim that has worked is
-- not held, nothing is written, and the caller rolls back what the targets got.
--   locks   the rows in watch_done that no other transaction holds
--   next    _sas.finish_items
CREATE FUNCTION _sas.write_items(watch_ids bigint[], request_ids uuid[], up_tos bigint[], errors jsonb[],
                                 again boolean[], worked boolean[]) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    claims text[] := _sas.lock_items(watch_ids, request_ids);
BEGIN
    IF NOT EXISTS (SELECT FROM unnest(claims, worked) AS u (claim, worked)
                   WHERE u.worked AND u.claim <> 'held') THEN
        PERFORM _sas.finish_items(array_agg(u.id), array_agg(u.up_to), array_agg(u.error), array_agg(u.again))
        FROM unnest(claims, watch_ids, up_tos, errors, again) AS u (claim, id, up_to, error, again)
        WHERE u.claim = 'held' HAVING count(*) > 0;
    END IF;
    RETURN claims;
END $$;

-- _sas.finish_items(watch_ids, up_tos, errors, again): writes what was done under these claims, which are
-- valid and locked, in the transaction that wrote to the targets. errors: null for success; else the items
-- are tried again after a pause, or given up. again: given back, no failure counts, and the task runs alone
-- from then on.
--   holds   the locks of the rows in watch_done
--   writes  watch_batch, watch_done, watch_work; a request to settle what is given up or was the last batch
--   next    _sas.settle_watches for what is given up, else the next batch
CREATE FUNCTION _sas.finish_items(watch_ids bigint[], up_tos bigint[], errors jsonb[], again boolean[])
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas.now();
    given_up bigint[];
    emptied bigint[];
    opened bigint[];
BEGIN
    DELETE FROM _sas.watch_work k WHERE k.watch_id = ANY (watch_ids);
    WITH gone AS (
        DELETE FROM _sas.watch_batch b
            USING unnest(watch_ids, up_tos, errors, again) AS u (id, up_to, error, again)
        WHERE b.watch_id = u.id AND b.batch_no <= u.up_to AND u.error IS NULL AND NOT u.again
        RETURNING b.watch_id, b.quantity, b.bytes),
    sums AS (SELECT g.watch_id, sum(g.quantity) AS items, sum(g.bytes) AS bytes FROM gone g GROUP BY 1),
    told AS (
        SELECT u.id, u.error, u.again, r.retry, coalesce(s.items, 0) AS items, coalesce(s.bytes, 0) AS bytes,
               CASE WHEN d.retry_at IS NULL OR d.last_error_at <= w.resumed_at
                   OR now - d.retry_at >= (r.retry ->> 'reset_after')::interval THEN 0 ELSE d.failures END
               + (u.error IS NOT NULL)::int AS failures
        FROM unnest(watch_ids, errors, again) AS u (id, error, again)
        JOIN _sas.watch_done d ON d.watch_id = u.id JOIN _sas.watch w ON w.watch_id = u.id
            JOIN _sas.watcher r USING (watcher_id)
        LEFT JOIN sums s ON s.watch_id = u.id)
    UPDATE _sas.watch_done d
    SET items = d.items + t.items, bytes = d.bytes + t.bytes, request_id = NULL, claimed_until = NULL,
        alone = t.again OR t.error IS NOT NULL,
        failures = t.failures,
        retry_at = CASE WHEN t.error IS NULL THEN d.retry_at
            ELSE now + _sas.cool_off(t.retry, t.failures) END,
        last_error = coalesce(t.error, d.last_error), last_error_at = CASE
            WHEN t.error IS NULL THEN d.last_error_at ELSE now END,
        given_up_at = CASE WHEN t.error IS NOT NULL
            AND t.failures >= (t.retry ->> 'max_failures')::int THEN now ELSE d.given_up_at END
    FROM told t WHERE d.watch_id = t.id;

    SELECT array_agg(u.id) FILTER (WHERE d.given_up_at = now AND u.error IS NOT NULL),
           array_agg(u.id) FILTER (WHERE w.state = 'on_deleting'),
           array_agg(u.id) FILTER (WHERE f.closed AND u.error IS NULL
                                   AND f.items - d.items <= _sas.watch_window() / 2
                                   AND f.bytes - d.bytes <= 8 * 1024 * 1024)
    INTO given_up, emptied, opened
    FROM unnest(watch_ids, errors) AS u (id, error) JOIN _sas.watch_done d ON d.watch_id = u.id
    JOIN _sas.watch w ON w.watch_id = u.id JOIN _sas.watch_flow f ON f.watch_id = u.id;
    PERFORM _sas.notify_hosts(opened) WHERE opened IS NOT NULL;
    PERFORM _sas.check_watches(given_up || emptied) WHERE given_up IS NOT NULL OR emptied IS NOT NULL;

    INSERT INTO _sas.watch_work (due_at, watch_id, owner)
    SELECT CASE WHEN u.error IS NULL THEN now ELSE d.retry_at END, u.id, w.owner
    FROM unnest(watch_ids, errors) AS u (id, error) JOIN _sas.watch_done d ON d.watch_id = u.id
    JOIN _sas.watch w ON w.watch_id = u.id
    WHERE NOT coalesce(u.id = ANY (given_up), false)
        AND EXISTS (SELECT FROM _sas.watch_batch b WHERE b.watch_id = u.id);
    PERFORM _sas.due_by(min(d.retry_at)) FROM unnest(watch_ids, errors) AS u (id, error)
        JOIN _sas.watch_done d ON d.watch_id = u.id WHERE u.error IS NOT NULL HAVING count(*) > 0;
END $$;

-- _sas.take_back_items(boot, live, newest, quantity): takes back the claims of workers that are gone. The
-- claim of a single task counts as a failure. For a batch none counts, because the task that caused it is
-- unknown; each of them runs alone the next time. Returns how many.
CREATE FUNCTION _sas.take_back_items(boot bigint, live bigint[], newest bigint, quantity int) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    locked bigint[];
    done record;
BEGIN
    SELECT array_agg(g.watch_id) INTO locked
    FROM (SELECT k.watch_id FROM _sas.watch_work k
          WHERE k.worker_id IS NOT NULL AND _sas.is_gone(k.boot, k.worker_id, $1, live, newest)
              AND NOT _sas.is_deferred('items', k.watch_id)
          LIMIT quantity) q
    CROSS JOIN LATERAL (
        SELECT d.watch_id FROM _sas.watch_done d WHERE d.watch_id = q.watch_id FOR UPDATE SKIP LOCKED) g;
    IF locked IS NULL THEN
        RETURN 0;
    END IF;
    done := _sas.apart(format('ARRAY[_sas.finish_lost_items($1, %s, %L::bigint[], %s)]', boot, live, newest),
                       locked);
    PERFORM _sas.defer_apart('items', locked, done.failed, done.errors, done.pauses);
    RETURN (SELECT coalesce(sum(n), 0) FROM unnest(done.results) n);
END $$;

-- _sas.finish_lost_items(ids, boot, live, newest): ends the claims of these tasks, whose rows are locked,
-- if their worker is gone. Returns how many.
-- Wakes: function workers.
CREATE FUNCTION _sas.finish_lost_items(ids bigint[], boot bigint, live bigint[], newest bigint) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    found record;
    n_found int;
BEGIN
    -- a statement of its own, because another worker may have claimed one of them before it was locked
    SELECT array_agg(k.watch_id) AS ids, array_agg(k.together > 1 AND NOT g.alone) AS crowd INTO found
    FROM _sas.watch_work k JOIN _sas.watch_done g USING (watch_id)
    WHERE k.watch_id = ANY ($1) AND k.worker_id IS NOT NULL
      AND _sas.is_gone(k.boot, k.worker_id, $2, live, newest);
    n_found := coalesce(cardinality(found.ids), 0);
    IF n_found > 0 THEN
        PERFORM _sas.finish_items(found.ids, array_fill(NULL::bigint, ARRAY[n_found]),
                                  (SELECT array_agg(CASE WHEN NOT c
                                                    THEN _sas.problem_object('worker-lost',
                                        'the worker that delivered the items is gone') END
                                            ORDER BY n)
                                   FROM unnest(found.crowd) WITH ORDINALITY AS x (c, n)),
                                  found.crowd);
        PERFORM _sas.wake_items();
    END IF;
    RETURN n_found;
END $$;

-- _sas.begin_invocation(node_id, watch_id, epoch): the input of a function, for the worker that hosts the
-- task; no row: it no longer hosts it. Writes nothing.
--   stop     it must not be called any more, but given back
--   next_at  it has a schedule, and must not be called before that
--   suspect  it may have ended a worker lately, and must be called only after _sas.note_invocation
--   noted    that was done
CREATE FUNCTION _sas.begin_invocation(node_id bigint, watch_id bigint, epoch bigint)
RETURNS TABLE (owner oid, function text, input jsonb, cursor jsonb, every_ms float8, timeout_ms float8,
               stop boolean, suspect boolean, noted boolean, next_at timestamptz)
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY
    SELECT w.owner::oid, d.function, _sas.watch_context(d.name, w.key, w.input, f.cursor), f.cursor,
           extract(epoch FROM d.every)::float8 * 1000, extract(epoch FROM _sas.complete_in())::float8 * 1000,
               w.state <> 'processing' OR w.moving,
           f.called_at IS NULL AND coalesce(f.last_error ->> 'type' = 'urn:sas:worker-lost'
                                            AND f.last_error_at > coalesce(w.resumed_at, '-infinity')
                                            AND sas.now()
                                                - f.retry_at < (d.retry ->> 'reset_after')::interval, false),
           f.called_at IS NOT NULL,
           CASE WHEN _sas.is_next_look(d, w, f) THEN f.next_at
                ELSE _sas.next_look(d, w.key, sas.now()) END
    FROM _sas.watch_held h
    JOIN _sas.watch w ON w.watch_id = h.watch_id
    JOIN _sas.watcher d USING (watcher_id)
    JOIN _sas.watch_flow f ON f.watch_id = w.watch_id
    WHERE h.watch_id = $2 AND h.node_id = $1 AND h.epoch = $3;
END $$;

-- _sas.note_invocation(node_id, watch_id, epoch): stores that the function is called next, if the node
-- hosts the task. Returns the answer of _sas.fence: if that is not mine, nothing is stored, and the
-- function must not be called.
-- Writes: watch_flow.
CREATE FUNCTION _sas.note_invocation(node_id bigint, watch_id bigint, epoch bigint) RETURNS text
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    fence text := (_sas.fence(node_id, ARRAY[watch_id], ARRAY[epoch]))[1];
BEGIN
    IF fence = 'mine' THEN
        UPDATE _sas.watch_flow f SET called_at = sas.now() WHERE f.watch_id = $2;
    END IF;
    RETURN fence;
END $$;

-- _sas.end_invocation(node_id, watch_id, epoch, cursor): stores the cursor that the function has returned;
-- null: unchanged. Returns the answer of _sas.fence: if that is not mine, the writes of the function must
-- be rolled back.
-- Writes: watch_flow.
CREATE FUNCTION _sas.end_invocation(node_id bigint, watch_id bigint, epoch bigint, cursor jsonb) RETURNS text
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    fence text := (_sas.fence(node_id, ARRAY[watch_id], ARRAY[epoch]))[1];
BEGIN
    IF fence = 'mine' THEN
        UPDATE _sas.watch_flow f SET cursor = coalesce($4, f.cursor), called_at = NULL WHERE f.watch_id = $2;
        PERFORM _sas.next_looks(ARRAY[watch_id], ARRAY[true]);
    END IF;
    RETURN fence;
END $$;

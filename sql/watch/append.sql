-- SPDX-License-Identifier: PostgreSQL
--
-- Append: items of a host are stored together with the cursor behind them, or not at all.

-- _sas.cover(d, w, before, items): the cursor of a batch whose host knows none, from the definition. The
-- service repeats items behind the cursor; therefore the batch ends with the last item that yields a
-- cursor. If that takes longer than half a second to find, none does.
--   covered  how many items the cursor covers; 0 if none of them yields a cursor (null yields none)
CREATE FUNCTION _sas.cover(d _sas.watcher, w _sas.watch, before jsonb, items jsonb,
                           OUT covered int, OUT cursor jsonb)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    root jsonb := _sas.watch_context(d.name, w.key, w.input, before);
    until_us bigint := _sas.evaluated_us() + 500000;
BEGIN
    covered := jsonb_array_length(items);
    WHILE covered > 0 LOOP
        IF _sas.evaluated_us() > until_us THEN
            covered := 0;
            EXIT;
        END IF;
        SELECT nullif(r.result, 'null') INTO cursor
        FROM _sas.render(d.cursor_next, root || jsonb_build_object('item', items -> covered - 1)) r;
        EXIT WHEN cursor IS NOT NULL;
        covered := covered - 1;
    END LOOP;
END $$;

-- _sas.take_in(d, w, before, batch, given, until_us): the part of a batch that is stored, and the cursor
-- behind it (null: unchanged). given: the cursor that the host knows. cut: a part of the batch is not stored.
-- left_out: nothing is stored now, since _sas.evaluated_us() has passed until_us.
CREATE FUNCTION _sas.take_in(d _sas.watcher, w _sas.watch, before jsonb, batch jsonb, given jsonb,
                             until_us bigint, OUT items jsonb, OUT cursor jsonb, OUT cut boolean,
                             OUT left_out boolean)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    covered int;
BEGIN
    items := batch;
    cursor := given;
    cut := false;
    left_out := false;
    IF d.cursor_next IS NULL OR given IS NOT NULL OR jsonb_array_length(batch) = 0 THEN
        RETURN;
    END IF;
    left_out := _sas.evaluated_us() > until_us;
    IF left_out THEN
        RETURN;
    END IF;
    SELECT c.covered, c.cursor INTO covered, cursor FROM _sas.cover(d, w, before, batch) c;
    IF covered < jsonb_array_length(batch) THEN
        cut := true;
        SELECT coalesce(jsonb_agg(e.item ORDER BY e.n), '[]') INTO items
        FROM jsonb_array_elements(batch) WITH ORDINALITY AS e (item, n) WHERE e.n <= covered;
    END IF;
END $$;

-- _sas.append_batches(node_id, watch_ids, epochs, items, cursors, digests): stores items together with the
-- cursor: both or none.
--   items    one array of items per task, in order
--   cursors  null: from the definition and the items, or unchanged
--   digests  null: unchanged
--   answer   ok
--            cut     items behind the last one that yields a cursor were not stored: the host must begin
--                    again at the cursor
--            stop    stored, but the host must end the task and give it back
--            fenced  not stored
--            locked  not stored yet: another transaction has locked the task, or the cursors of the batches
--                    before it took a tenth of a second to find
--   room     how many more items may come
--   locks    the rows of these tasks in watch_flow, if the node hosts them (_sas.fence)
--   writes   watch_batch, watch_flow, watch_work
--   wakes    a function worker
--   next     _sas.claim_items
CREATE FUNCTION _sas.append_batches(node_id bigint, watch_ids bigint[], epochs bigint[], items jsonb[],
                                    cursors jsonb[], digests text[])
RETURNS TABLE (watch_id bigint, epoch bigint, answer text, room int)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    fenced text[] := _sas.fence($1, $2, $3);
    until_us bigint := _sas.evaluated_us() + 100000;
    cut_off bigint[];
    left_out bigint[];
    changed bigint;
BEGIN
    WITH taken AS (
        SELECT u.id, w.owner, part.items, part.cursor, part.cut, part.left_out,
               CASE WHEN NOT part.cut THEN u.digest END AS digest,
               jsonb_array_length(part.items) AS quantity, _sas.value_size(part.items) AS bytes
        FROM unnest($2, $4, $5, $6, fenced) AS u (id, items, cursor, digest, fence)
        JOIN _sas.watch w ON w.watch_id = u.id
        JOIN _sas.watcher d USING (watcher_id)
        JOIN _sas.watch_flow old ON old.watch_id = u.id
        CROSS JOIN LATERAL _sas.take_in(d, w, old.cursor, u.items, u.cursor, until_us) part
        WHERE u.fence = 'mine'),
    come AS (SELECT * FROM taken t WHERE NOT t.left_out),
    put AS (
        INSERT INTO _sas.watch_batch (watch_id, batch_no, items, quantity, bytes)
        SELECT c.id, nextval('_sas.watch_batch_seq'), c.items, c.quantity, c.bytes FROM come c
        WHERE c.quantity > 0),
    work AS (
        INSERT INTO _sas.watch_work (due_at, watch_id, owner)
        SELECT sas.now(), c.id, c.owner FROM come c WHERE c.quantity > 0),
    moved AS (
        UPDATE _sas.watch_flow f
        SET items = f.items + c.quantity, bytes = f.bytes + CASE WHEN c.quantity > 0 THEN c.bytes ELSE 0 END,
            last_item_at = CASE WHEN c.quantity > 0 THEN sas.now() ELSE f.last_item_at END,
            moved_at = CASE WHEN c.cursor <> coalesce(f.cursor, 'null') THEN sas.now() ELSE f.moved_at END,
            cursor = coalesce(c.cursor, f.cursor), digest = coalesce(c.digest, f.digest),
            closed = f.items + c.quantity - g.items >= _sas.watch_window()
                     OR f.bytes + c.bytes - g.bytes > 16 * 1024 * 1024
        FROM come c
        JOIN _sas.watch_done g ON g.watch_id = c.id
        WHERE f.watch_id = c.id
        RETURNING c.id, c.cut)
    SELECT count(*), array_agg(m.id) FILTER (WHERE m.cut),
           (SELECT array_agg(t.id) FROM taken t WHERE t.left_out)
    INTO changed, cut_off, left_out FROM moved m;
    IF changed > 0 THEN
        PERFORM _sas.wake_items();
    END IF;
    RETURN QUERY
    SELECT u.id, u.epoch,
           CASE WHEN u.fence = 'gone' THEN 'fenced'
                WHEN u.fence = 'locked' OR u.id = ANY (left_out) THEN 'locked'
                WHEN w.state <> 'processing' OR w.moving THEN 'stop'
                WHEN u.id = ANY (cut_off) THEN 'cut' ELSE 'ok' END,
           CASE WHEN u.fence = 'mine' THEN _sas.room_of(f, g) ELSE 0 END
    FROM unnest($2, $3, fenced) WITH ORDINALITY AS u (id, epoch, fence, n)
    LEFT JOIN _sas.watch w ON w.watch_id = u.id
    LEFT JOIN _sas.watch_flow f ON f.watch_id = u.id
    LEFT JOIN _sas.watch_done g ON g.watch_id = u.id
    ORDER BY u.n;
END $$;

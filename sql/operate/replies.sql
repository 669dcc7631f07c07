-- SPDX-License-Identifier: PostgreSQL
--
-- Reply queues: the messages that applications read.

-- _sas.read_replies_as(caller, queue, quantity): the body of sas.read_replies: deletes and returns the oldest
-- messages of roles that the caller stands for. It reads no more of a long queue than it returns, and those
-- that other sessions are reading.
-- Writes: reply.
CREATE FUNCTION _sas.read_replies_as(caller oid, queue text, quantity int)
RETURNS TABLE (event text, run_id bigint, workflow text, key text, result text, output jsonb, error jsonb,
               created_at timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off
    SET enable_bitmapscan = off SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    owners oid[];
    after_id bigint := 0;
    ids bigint[];
    taken bigint[] := '{}';
    missing int := quantity;
BEGIN
    PERFORM _sas.raise(p) FROM _sas.check_name($2, '/queue') p;
    PERFORM _sas.raise(ROW('/quantity', 'the quantity must not be negative', 'The default is 1.', '22023'))
    WHERE (quantity >= 0) IS NOT TRUE;
    owners := ARRAY(SELECT o.oid FROM pg_roles o WHERE _sas.may_stand_for(caller, o.oid));
    WHILE missing > 0 LOOP
        -- behind those that other sessions have locked, it looks at more at a time
        ids := ARRAY(SELECT x.reply_id
                     FROM unnest(owners) AS u (owner)
                     CROSS JOIN LATERAL (SELECT q.reply_id FROM _sas.reply q
                                         WHERE q.queue = $2 AND q.owner = u.owner
                                           AND q.reply_id + 0 > after_id
                                         ORDER BY q.reply_id + 0
                                         LIMIT CASE after_id WHEN 0 THEN missing
                                               ELSE greatest(missing, 1000) END) x
                     ORDER BY x.reply_id
                     LIMIT CASE after_id WHEN 0 THEN missing ELSE greatest(missing, 1000) END);
        EXIT WHEN ids = '{}';
        taken := taken || ARRAY(SELECT q.reply_id FROM _sas.reply q WHERE q.reply_id = ANY (ids)
                                ORDER BY q.reply_id LIMIT missing FOR UPDATE SKIP LOCKED);
        missing := quantity - cardinality(taken);
        after_id := ids[cardinality(ids)];
    END LOOP;
    RETURN QUERY
    WITH gone AS (DELETE FROM _sas.reply d WHERE d.reply_id = ANY (taken) RETURNING d.*)
    SELECT t.event, t.run_id, t.workflow, t.key, t.result, t.output, t.error, t.created_at FROM gone t
    ORDER BY t.reply_id;
END $$;

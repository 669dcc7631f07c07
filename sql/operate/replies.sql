-- SPDX-License-Identifier: PostgreSQL
--
-- Reply queues: the messages that applications read.

CREATE FUNCTION _sas.read_replies_as(caller oid, queue text, quantity int)
RETURNS TABLE (event text, run_id bigint, workflow text, key text, result text, output jsonb, error jsonb,
               created_at timestamptz)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT _sas.raise(p) FROM _sas.check_name($2, '/queue') p;
    SELECT _sas.raise(ROW('/quantity', 'the quantity must not be negative', 'The default is 1.', '22023'))
    WHERE ($3 >= 0) IS NOT TRUE;
    WITH taken AS (
        DELETE FROM _sas.reply d
        WHERE d.reply_id = ANY (ARRAY(
            SELECT q.reply_id FROM _sas.reply q
            WHERE q.queue = $2 AND q.owner IN (SELECT o.oid FROM pg_roles o
                                               WHERE _sas.may_stand_for(caller, o.oid))
            ORDER BY q.reply_id LIMIT $3 FOR UPDATE SKIP LOCKED))
        RETURNING d.*)
    SELECT t.event, t.run_id, t.workflow, t.key, t.result, t.output, t.error, t.created_at FROM taken t
    ORDER BY t.reply_id
$$;

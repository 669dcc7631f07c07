-- SPDX-License-Identifier: PostgreSQL
--
-- Every row of _sas, column by column, one a line: table.column, key of the row, value. Left out is what is random, or
-- belongs to this server: UUIDs and what is made of them, a process id, the identifier of the database system. Events of
-- one tick come to a reply queue in any order, and so do the runs that ended in one. The number of a completion says
-- only in which order the steps of its run have completed: those of several runs that end in one tick get them in any order.
UPDATE _sas.step s SET completion = c.place
FROM (SELECT ctid, rank() OVER (PARTITION BY run_id ORDER BY completion) AS place FROM _sas.step WHERE completion IS NOT NULL) c
WHERE s.ctid = c.ctid;
CREATE FUNCTION t.plain(value text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT regexp_replace(regexp_replace(value, '[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}', 'uuid', 'g'), '[0-9a-f]{32,}', 'digest', 'g')
$$;
CREATE FUNCTION t.plain_column(name text, value text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN name = ANY ('{home.system_identifier,node.pid,reply.reply_id}') THEN '-'
           WHEN name = 'finished_run.run_ids' THEN (SELECT string_agg(e, ',' ORDER BY e::bigint) FROM jsonb_array_elements_text(value::jsonb) e)
           ELSE t.plain(value) END
$$;
CREATE FUNCTION t.rows(of_table name) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    key text := (SELECT string_agg(format('x.%I::text', a.attname), ', ' ORDER BY k.n)
                 FROM pg_index i CROSS JOIN unnest(i.indkey) WITH ORDINALITY AS k (attnum, n)
                 JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
                 WHERE i.indrelid = ('_sas.' || quote_ident(of_table))::regclass AND i.indisprimary AND of_table <> 'reply');
BEGIN
    RETURN QUERY EXECUTE format(
        $e$SELECT concat_ws(' ', c.name, t.plain(concat_ws(',', %s)), t.plain_column(c.name, c.value))
           FROM _sas.%I x CROSS JOIN LATERAL (SELECT %L || '.' || e.key AS name, e.value FROM jsonb_each_text(to_jsonb(x)) e) c$e$,
        coalesce(key, '''-'''), of_table, of_table);
END $$;
SELECT r FROM pg_class c CROSS JOIN LATERAL t.rows(c.relname) r
WHERE c.relnamespace = '_sas'::regnamespace AND c.relkind = 'r' ORDER BY r COLLATE "C";

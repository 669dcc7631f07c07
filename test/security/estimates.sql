-- SPDX-License-Identifier: PostgreSQL
--
-- Functions and operators of a user's own in conditions on views. While it plans, the server calls the function of an
-- operator with values from its statistics, which are of all rows, if the operator has an estimator such as scalarltsel.
-- While it executes, it may call a cheap function before the condition of the view. The tables have row security, and
-- other views a barrier: neither is told a value of others.
\ir ../lib/login.sql
SELECT no_plan();

CREATE ROLE es_ann LOGIN; CREATE ROLE es_bob LOGIN; CREATE ROLE es_mon LOGIN;
SELECT sas.grant_usage('es_ann', 'user'), sas.grant_usage('es_bob', 'user'), sas.grant_usage('es_mon', 'monitor') \g /dev/null
CREATE SCHEMA es; GRANT USAGE ON SCHEMA es TO PUBLIC; GRANT CREATE ON SCHEMA es TO es_bob;
CREATE TABLE es.seen (who text DEFAULT current_user, what text); GRANT ALL ON es.seen TO PUBLIC;
CREATE FUNCTION pg_temp.does(who text, statement text) RETURNS text LANGUAGE sql AS $$
    SELECT CASE x.code WHEN 'ok' THEN coalesce(x.said, '') ELSE x.code || ' ' || x.message END FROM login.as_role(who, statement) x $$;
-- numbers that nothing else has
SELECT setval('_sas.run_run_id_seq', nextval('_sas.run_run_id_seq') + 1000000) \g /dev/null
SELECT pg_temp.does('es_ann', format('SELECT sas.create_workflow(%L, ''{"steps": {"es_step": {"wait": {"signal": "go"}}}}'')', 'es_w' || n)) FROM generate_series(1, 5) n \g /dev/null
SELECT pg_temp.does('es_ann', format('SELECT run_id FROM sas.submit(%L, ''{"card": "es_input"}'', %L, labels => ''{"es": "es_label"}'')', 'es_w' || n, 'es_key' || n)) FROM generate_series(1, 5) n \g /dev/null
INSERT INTO _sas.attempt (run_id, step_no, element, attempt, undo, worker, status, http_status, error, started_at, finished_at)
SELECT r.run_id, 1, 0, 1, false, 'es_worker', 'failed', 500, '{"title": "es_error"}', now(), now() FROM _sas.run r WHERE r.key LIKE 'es%';
INSERT INTO _sas.step (run_id, step_no, element, state, attempt, failure_count, in_doubt, alone, deferred, output, completion)
SELECT r.run_id, 1, 1, 'succeeded', 1, 0, false, false, false, '{"status": 201}', 1 FROM _sas.run r WHERE r.key LIKE 'es%';
ANALYZE;

-- operators of bob, for each type of the columns
CREATE TEMP TABLE way AS
SELECT t.type, e.sign, e.restrict, t.other
FROM (VALUES ('text', $$'m'$$), ('bigint', '0'), ('jsonb', $$'{}'$$), ('timestamp with time zone', 'now()')) t (type, other),
     (VALUES ('<<<', 'scalarltsel'), ('>>>', 'scalargtsel'), ('===', 'eqsel'), ('@@@', 'contsel')) e (sign, restrict);
SELECT is(pg_temp.does('es_bob', format('CREATE FUNCTION es.tells(a %1$s, b %1$s) RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS $f$ BEGIN INSERT INTO es.seen (what) VALUES (a::text); RETURN true; END $f$', type)), '0', 'a function on ' || type)
FROM (SELECT DISTINCT type FROM way) t;
SELECT is(string_agg(DISTINCT x.said, ' '), '0', 'and operators with estimators')
FROM way w, LATERAL pg_temp.does('es_bob', format('CREATE OPERATOR es.%s (LEFTARG = %s, RIGHTARG = %2$s, FUNCTION = es.tells, RESTRICT = %s)', sign, type, restrict)) x (said);

-- each column of each view
CREATE TEMP TABLE query AS
SELECT c.relname AS view, format('EXPLAIN SELECT FROM sas.%I WHERE %I OPERATOR(es.%s) %s', c.relname, a.attname, w.sign, w.other) AS text
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 JOIN way w ON format_type(a.atttypid, NULL) = w.type
WHERE c.relnamespace = 'sas'::regnamespace AND c.relkind = 'v';
SELECT ok(count(*) > 300, 'many queries') FROM query;
SELECT is(string_agg(DISTINCT x.said, E'\n'), '', who || ' plans queries of sas.' || view)
FROM unnest('{es_bob,es_mon}'::text[]) who, (SELECT q.view, string_agg(q.text, '; ') AS text FROM query q GROUP BY 1) q,
     LATERAL (SELECT CASE WHEN d LIKE '42%' OR d LIKE 'XX%' THEN d ELSE '' END FROM pg_temp.does(who, q.text) d) x (said)
GROUP BY who, view;
SELECT is((SELECT string_agg(DISTINCT s.what, ' ') FROM es.seen s WHERE s.who = 'es_bob' AND s.what ~ 'es_'), NULL, 'no operator of a user is told a value of others');
SELECT is((SELECT string_agg(DISTINCT s.what, ' ') FROM es.seen s WHERE s.who = 'es_mon' AND s.what ~ 'es_(input|error)'), NULL, 'nor one of a monitor what was written in runs');

-- functions in conditions, which cost nothing
SELECT is(pg_temp.does('es_bob', 'CREATE FUNCTION es.told(a anyelement) RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS $f$ BEGIN INSERT INTO es.seen (what) VALUES (a::text); RETURN true; END $f$'), '0', 'a cheap function');
DELETE FROM es.seen;
-- each table is read by itself, with the conditions on it
SELECT pg_temp.does('es_bob', format('SET %s = off', name)) FROM unnest('{enable_nestloop,enable_indexscan,enable_indexonlyscan,enable_bitmapscan}'::text[]) name \g /dev/null
SELECT is((SELECT string_agg(DISTINCT d, E'\n') FROM pg_attribute a, LATERAL pg_temp.does('es_bob', format('SELECT count(*) FROM sas.%I WHERE es.told(%I)', c.relname, a.attname)) d
           WHERE a.attrelid = c.oid AND a.attnum > 0 AND d ~ '^[4X]'), NULL, 'is called in a condition on each column of sas.' || c.relname)
FROM pg_class c WHERE c.relnamespace = 'sas'::regnamespace AND c.relkind = 'v';
SELECT is((SELECT string_agg(DISTINCT s.what, ' ') FROM es.seen s
           WHERE s.what ~ 'es_(w|key|step|input|label|error|ann)' OR s.what IN (SELECT r.run_id::text FROM _sas.run r WHERE r.key LIKE 'es%')), NULL, 'and is told no value of others');
SELECT is(string_agg(c.relname::text, ' '), NULL, 'no view with a barrier is a union itself, of which the planner would forget the barrier')
FROM pg_class c WHERE c.relkind = 'v' AND c.relnamespace IN ('sas'::regnamespace, '_sas'::regnamespace) AND 'security_barrier=true' = ANY (c.reloptions) AND pg_get_viewdef(c.oid) ~ E'\\nUNION';
-- the superuser may read the statistics: so they are there
\o /dev/null
SELECT text FROM query WHERE view = 'runs' \gexec
\o
SELECT is((SELECT string_agg(DISTINCT s.what, ' ' ORDER BY s.what) FROM es.seen s WHERE s.who = current_user AND s.what LIKE 'es%'),
          'es_key1 es_key2 es_key3 es_key4 es_key5 es_w1 es_w2 es_w3 es_w4 es_w5', 'who may read the statistics is told names and keys');
SELECT * FROM finish();

-- SPDX-License-Identifier: PostgreSQL
--
-- Paths: what a function or view of sas means does not depend on the
-- search_path of who calls it. Nobody slips a function, operator, cast or domain of his
-- own into what asks for his rights, and none into what others run.
\set QUIET on
\pset format unaligned
\pset tuples_only on
\pset pager off
SELECT no_plan();

CREATE ROLE ivy;
CREATE ROLE bert;
CREATE ROLE moni;
CREATE ROLE opal;
CREATE ROLE adam;
CREATE ROLE wren;
SELECT sas.grant_usage(r::regrole, l)
FROM (VALUES ('ivy', 'user'), ('bert', 'user'), ('moni', 'monitor'), ('opal', 'operator'), ('adam', 'admin'),
             ('wren', 'worker')) AS x (r, l) \g /dev/null
GRANT USAGE ON SCHEMA public TO PUBLIC;

-- the catalogue -----------------------------------------------------------------------------------

-- reached: functions of sas that run with the rights, and so the search_path, of who is no worker
CREATE TEMP TABLE reached AS
SELECT p.oid AS f, 'may be executed by ' || string_agg(x.who, ', ') AS why
FROM pg_proc p, LATERAL (SELECT r AS who FROM unnest('{ivy,moni,opal,adam,wren,public}'::name[]) r
                         WHERE has_function_privilege(r, p.oid, 'EXECUTE')) x
WHERE p.pronamespace IN ('sas'::regnamespace, '_sas'::regnamespace) GROUP BY p.oid
UNION ALL
-- views; defaults, constraints and indexes of tables; triggers
SELECT DISTINCT d.refobjid, 'called by ' || pg_describe_object(d.classid, d.objid, d.objsubid)
FROM pg_depend d
WHERE d.refclassid = 'pg_proc'::regclass
  AND d.refobjid IN (SELECT p.oid FROM pg_proc p WHERE p.pronamespace IN ('sas'::regnamespace, '_sas'::regnamespace))
  AND d.classid NOT IN ('pg_proc'::regclass, 'pg_extension'::regclass)
UNION ALL
SELECT t.tgfoid, 'trigger of ' || t.tgrelid::regclass
FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
WHERE c.relnamespace = '_sas'::regnamespace AND NOT t.tgisinternal
UNION ALL
SELECT e.evtfoid, 'event trigger ' || e.evtname
FROM pg_event_trigger e JOIN pg_proc p ON p.oid = e.evtfoid WHERE p.pronamespace IN ('sas'::regnamespace, '_sas'::regnamespace)
UNION ALL
-- what the one C function behind the verbs calls
SELECT i.oid, 'called by ' || v.oid::regprocedure
FROM pg_proc v JOIN pg_proc i ON i.pronamespace = '_sas'::regnamespace AND i.proname = v.proname || '_as'
                             AND i.pronargs = v.pronargs + 1 AND i.proargtypes[0] = 'oid'::regtype
WHERE v.pronamespace IN ('sas'::regnamespace, '_sas'::regnamespace) AND v.prosrc = 'sas_api_verb'
UNION ALL
-- some are for superusers alone
SELECT p.oid, 'is public' FROM pg_proc p WHERE p.pronamespace = 'sas'::regnamespace
UNION ALL
SELECT p.oid, 'takes its owner''s rights' FROM pg_proc p
WHERE p.pronamespace IN ('sas'::regnamespace, '_sas'::regnamespace) AND p.prosecdef;

SELECT cmp_ok((SELECT count(DISTINCT f) FROM reached), '>', 250::bigint,
              'many functions are reached by sessions');
SELECT is(ARRAY(SELECT DISTINCT p.oid::regprocedure || ': ' || r.why
                FROM reached r JOIN pg_proc p ON p.oid = r.f JOIN pg_language l ON l.oid = p.prolang
                WHERE l.lanname NOT IN ('c', 'internal') AND p.prosqlbody IS NULL
                  AND NOT EXISTS (SELECT FROM unnest(p.proconfig) s WHERE s LIKE 'search\_path=%')
                ORDER BY 1),
          '{}', 'each has an SQL-standard body, is in C, or sets its search_path');
-- internal objects can be looked up by superusers only: what runs with the rights of its caller is bound by oid
SELECT is(ARRAY(SELECT r.rolname FROM pg_roles r
                WHERE NOT r.rolsuper AND r.rolname !~ '^pg_' AND has_schema_privilege(r.oid, '_sas', 'USAGE')),
          '{}', 'no role but superusers and predefined ones has USAGE on the schema of what is internal');
SELECT is(ARRAY(SELECT DISTINCT p.oid::regprocedure || ': ' || r.why
                FROM reached r JOIN pg_proc p ON p.oid = r.f JOIN pg_language l ON l.oid = p.prolang
                WHERE r.why LIKE 'may be executed by %' AND NOT p.prosecdef AND l.lanname <> 'c'
                  AND p.prosqlbody IS NULL ORDER BY 1),
          '{}', 'what a level may execute with its own rights is in C, or has an SQL-standard body');
-- a schema that a path names: nobody but a superuser creates in it, and temporary objects come last
SELECT is(ARRAY(SELECT DISTINCT p.oid::regprocedure || ': ' || s
                FROM pg_proc p, unnest(p.proconfig) s
                WHERE p.pronamespace IN ('sas'::regnamespace, '_sas'::regnamespace) AND s LIKE 'search\_path=%'
                  AND s !~ '^search_path=pg_catalog, pg_temp$' ORDER BY 1),
          '{}', 'a path has pg_catalog and then pg_temp, and no other schema');
-- a plan type that is off makes plans look dear, and the session would compile them for a quarter of a second;
-- for the bodies of verbs, their one C function pins jit (test 313_session_plans)
SELECT is(ARRAY(SELECT p.oid::regprocedure::text FROM pg_proc p
                WHERE p.pronamespace IN ('sas'::regnamespace, '_sas'::regnamespace) AND p.prosecdef
                  AND p.proconfig::text LIKE '%enable\_%=off%' AND p.proconfig::text NOT LIKE '%jit=off%'
                  AND NOT EXISTS (SELECT FROM pg_proc v
                                  WHERE v.pronamespace IN ('sas'::regnamespace, '_sas'::regnamespace) AND p.proname = v.proname || '_as'
                                    AND v.prosrc IN ('sas_api_verb', 'sas_api_submit_batch'))
                ORDER BY 1),
          '{}', 'what pins plans in the session of a user pins jit, too');
SELECT is(ARRAY(SELECT r.rolname || ' in ' || s FROM pg_roles r, unnest('{sas,_sas}'::text[]) s
                WHERE NOT r.rolsuper AND has_schema_privilege(r.oid, s, 'CREATE')),
          '{}', 'nobody but a superuser creates objects in the schemas of the extension');
SELECT is(ARRAY(SELECT pg_describe_object(d.classid, d.objid, 0) FROM pg_depend d
                WHERE d.refclassid = 'pg_namespace'::regclass AND d.refobjid IN ('sas'::regnamespace, '_sas'::regnamespace) AND d.deptype = 'n'
                  AND d.classid <> 'pg_extension'::regclass
                  AND NOT EXISTS (SELECT FROM pg_depend e
                                  WHERE e.classid = d.classid AND e.objid = d.objid AND e.deptype = 'e')),
          '{}', 'what stands in it is the extension''s');
SELECT is(ARRAY(SELECT p.oid::regprocedure::text FROM pg_proc p
                WHERE p.pronamespace IN ('sas'::regnamespace, '_sas'::regnamespace)
                  AND p.proowner <> (SELECT e.extowner FROM pg_extension e WHERE e.extname = 'sas')
                UNION ALL
                SELECT c.oid::regclass::text FROM pg_class c
                WHERE c.relnamespace IN ('sas'::regnamespace, '_sas'::regnamespace)
                  AND c.relowner <> (SELECT e.extowner FROM pg_extension e WHERE e.extname = 'sas')),
          '{}', 'and belongs to who installed it');

-- what there is to see ------------------------------------------------------------------------------

CREATE SCHEMA shop;
GRANT USAGE ON SCHEMA shop TO PUBLIC;
CREATE FUNCTION shop.book(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT input $$;
SELECT sas.create_agent('packer', kind => 'external') \g /dev/null
SELECT sas.create_agent('payments', 'http://127.0.0.1:1') \g /dev/null
SELECT sas.grant_agent(name, r::regrole) FROM sas.agents, unnest('{ivy,bert}'::text[]) r \g /dev/null
SELECT sas.create_workflow('order', '{"steps": {
    "a": {"agent": "packer", "task": {}, "input": {"pin": "{{input.pin}}"}},
    "b": {"function": "shop.book", "input": {"was": "{{steps.a.output.pin?}}"}, "after": ["a"]},
    "c": {"agent": "payments", "call": {"path": "/c"}, "after": ["b"]},
    "d": {"wait": {"signal": "go"}}}}') \g /dev/null
SELECT sas.create_watcher('prices',
                          '{"agent": "packer", "external": {}, "items": {"workflow": "order"}}') \g /dev/null
SET ROLE ivy;
SELECT count(*)
FROM generate_series(1, 3) n,
     sas.submit('order', jsonb_build_object('pin', 4711), key => 'k' || n) \g /dev/null
RESET ROLE;
SELECT sas.pause(min(run_id)) FROM _sas.run \g /dev/null
SET ROLE bert;
SELECT run_id FROM sas.submit('order', '{"pin": "bert"}', key => 'k') \g /dev/null
RESET ROLE;
SELECT request_id FROM sas.claim('packer', 'p', 2) \g /dev/null
SELECT sas.fail(p.request_id, 'no box', true)
FROM _sas.external_slot p WHERE p.request_id IS NOT NULL LIMIT 1 \g /dev/null
SELECT _sas.raise_alert('stuck', 'a test', 'stands still', run_id => min(run_id)) FROM _sas.run \g /dev/null

-- said(role, path, statement): the first column of its first row, or its error
CREATE FUNCTION pg_temp.said(who text, path text, statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    said text;
    own text := pg_catalog.current_setting('search_path');
BEGIN
    PERFORM pg_catalog.set_config('session_authorization', who, true), pg_catalog.set_config('search_path', path, true);
    BEGIN
        EXECUTE statement INTO said;
    EXCEPTION WHEN OTHERS THEN
        said := pg_catalog.concat('error ', SQLSTATE, ' ', SQLERRM);
    END;
    PERFORM pg_catalog.set_config('search_path', own, true), pg_catalog.set_config('session_authorization', 'postgres', true);
    -- a second may pass between two looks at the same, and work that nobody does here becomes late
    RETURN pg_catalog.regexp_replace(
        pg_catalog.regexp_replace(said, ',?"*the [a-z]+ has left due work lying for [^"]*"*', '', 'g'),
        'for [0-9]+:[0-9:.]+', 'for a while', 'g');
END $$;

CREATE TEMP TABLE look (what text, statement text);
INSERT INTO look
SELECT format('sas.%I', c.relname),
       format($$SELECT pg_catalog.concat(pg_catalog.count(*), pg_catalog.max(v::pg_catalog.text COLLATE "C"),
                                         pg_catalog.min(v::pg_catalog.text COLLATE "C")) FROM sas.%I v$$, c.relname)
FROM pg_class c WHERE c.relnamespace = 'sas'::regnamespace AND c.relkind = 'v' ORDER BY c.relname;
INSERT INTO look SELECT format('sas.%s', call), format('SELECT pg_catalog.count(v) FROM sas.%s v', call)
FROM (SELECT min(run_id) AS id FROM _sas.run) r, unnest(ARRAY[
    'find_runs(''{"state": "paused", "workflow": "order"}'')', 'explain()', format('explain(%s)', id), format('timeline(%s)', id), format('graph(%s)', id),
    format('graph(%s, ''dot'')', id), 'graph_workflow(''order'')',
    'console()', format('console(%s)', id), format('console(%s)', id + 3), 'health()',
    $$workflow(sas.steps(sas.step('a', sas.call('payments', timeout => '10 s'),
                                retry => sas.retry_policy(2, '1 s'))), deadline => '90 min')$$,
    'hook(''success'', ''shop.book'')', format('pause(%s)', id + 3), format('resume(%s)', id + 3),
    format('retry(%s)', id + 3), format('set_priority(%s, 1)', id + 3)]) call;

-- with objects of one's own before those of the system: S2 ------------------------------------------

CREATE SCHEMA berts;
GRANT USAGE ON SCHEMA berts TO PUBLIC;
CREATE FUNCTION berts.has_function_privilege(name, text, text) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION berts.has_function_privilege(name, oid, text) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION berts.has_function_privilege(oid, oid, text) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION berts.pg_has_role(name, oid, text) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION berts.pg_has_role(oid, oid, text) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION berts.pg_has_role(name, name, text) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION berts.bool_or(boolean) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE SCHEMA berts_operators;
GRANT USAGE ON SCHEMA berts_operators TO PUBLIC;
CREATE FUNCTION berts.same(x int8, y int8) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION berts.same(x oid, y oid) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION berts.same(x text, y text) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE OPERATOR berts_operators.= (LEFTARG = int8, RIGHTARG = int8, FUNCTION = berts.same);
CREATE OPERATOR berts_operators.= (LEFTARG = oid, RIGHTARG = oid, FUNCTION = berts.same);
CREATE OPERATOR berts_operators.= (LEFTARG = text, RIGHTARG = text, FUNCTION = berts.same);
SELECT is(pg_temp.said('bert', 'berts, berts_operators, pg_catalog',
                       $$SELECT has_function_privilege(current_user, 'x', 'y')
                                AND pg_has_role(current_user, 0::oid, 'z') AND 1::int8 = 2::int8$$), 'true',
          'bert''s functions and operators come first in his path');

SELECT is(pg_temp.said(who, 'berts, berts_operators, pg_catalog', l.statement),
          pg_temp.said(who, 'pg_catalog', l.statement),
          format('own functions and operators give %s no more: %s', who, l.what))
FROM unnest('{bert,moni}'::text[]) who, look l;
SELECT is(pg_temp.said('bert', path, 'SELECT pg_catalog.count(*) FROM sas.runs'), '1',
          format('bert sees his run under the path %s', path))
FROM unnest('{"pg_catalog","berts, berts_operators, pg_catalog"}'::text[]) path;
SELECT is(pg_temp.said('moni', path, 'SELECT pg_catalog.count(input) FROM sas.runs'), '0',
          format('a monitor sees no input under the path %s', path))
FROM unnest('{"pg_catalog","berts, berts_operators, pg_catalog"}'::text[]) path;
-- sas.wait is for a transaction that has not written
\set wait 'format($$SELECT state FROM sas.wait(%s, \'1 s\')$$, (SELECT min(run_id) FROM _sas.run))'
SELECT matches(pg_temp.said('bert', 'pg_catalog', :wait), '^error 42704',
               'bert does not wait for a run of ivy');
SELECT matches(pg_temp.said('bert', 'berts, pg_catalog', :wait), '^error 42704',
               'nor with functions of his own');
SELECT matches(pg_temp.said('bert', 'berts_operators, pg_catalog', :wait), '^error 42704',
               'nor with operators');

-- with objects of others that fit better than those of the system: S3 -------------------------------

-- Overloads of every function and operator of the system that takes arguments of any type, for the types
-- that sas works with. They stand behind those of the system in the path, as those of the schema public do.
CREATE SCHEMA others;
GRANT USAGE ON SCHEMA others TO PUBLIC;
-- as_type(declared, type): what stands in the place of a type that may be any
CREATE FUNCTION pg_temp.as_type(declared text, type text) RETURNS text LANGUAGE sql AS $$
    SELECT CASE WHEN declared LIKE 'any%array' AND declared NOT LIKE '%nonarray' THEN type || '[]'
                WHEN declared LIKE 'any%' OR declared = '"any"' THEN type ELSE declared END
$$;
CREATE FUNCTION pg_temp.overload(name text, arguments text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE OR REPLACE FUNCTION others.%I(%s) RETURNS text LANGUAGE plpgsql AS %L',
                   name, arguments,
                   format('BEGIN RAISE EXCEPTION %L; END', format('others.%s(%s) was run', name, arguments)));
END $$;
DO $do$
DECLARE
    types text[] := '{'
        'text,name,int,bigint,numeric,float8,boolean,oid,regrole,uuid,jsonb,interval,timestamptz}';
    t text;
    f record;
    l text;
    r text;
BEGIN
    FOR f IN SELECT DISTINCT p.proname, p.proargtypes::regtype[]::text[] AS declared FROM pg_proc p
             WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.provariadic = 0
               AND p.proargtypes::regtype[]::text ~ '\many'
               AND p.proargtypes::regtype[]::text !~ 'internal|anyenum|range' LOOP
        FOREACH t IN ARRAY types LOOP
            PERFORM pg_temp.overload(f.proname, string_agg(pg_temp.as_type(a, t), ', ' ORDER BY n))
            FROM unnest(f.declared) WITH ORDINALITY AS u (a, n);
        END LOOP;
    END LOOP;
    -- of those with any number of arguments: up to four of one type, with a text before them or not
    FOR f IN SELECT DISTINCT p.proname, x.first, n.n
             FROM pg_proc p, unnest('{"","text, "}'::text[]) AS x (first), generate_series(1, 4) AS n (n)
             WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.provariadic = '"any"'::regtype LOOP
        FOREACH t IN ARRAY types || '{text[],int[],bigint[]}'::text[] LOOP
            PERFORM pg_temp.overload(f.proname, f.first || array_to_string(array_fill(t, ARRAY[f.n]), ', '));
        END LOOP;
    END LOOP;
    FOR f IN SELECT DISTINCT o.oprname, o.oprleft::regtype::text AS l, o.oprright::regtype::text AS r
             FROM pg_operator o
             WHERE o.oprnamespace = 'pg_catalog'::regnamespace AND o.oprleft <> 0
               AND concat(o.oprleft::regtype, ' ', o.oprright::regtype) ~ '\many'
               AND concat(o.oprleft::regtype, o.oprright::regtype) !~ 'enum|range' LOOP
        FOREACH t IN ARRAY types LOOP
            l := pg_temp.as_type(f.l, t);
            r := pg_temp.as_type(f.r, t);
            PERFORM pg_temp.overload('operate', concat(l, ', ', r));
            IF to_regoperator(format('others.%s(%s, %s)', f.oprname, l, r)) IS NULL THEN
                EXECUTE format('CREATE OPERATOR others.%s '
                               '(LEFTARG = %s, RIGHTARG = %s, FUNCTION = others.operate)',
                               f.oprname, l, r);
            END IF;
        END LOOP;
    END LOOP;
END $do$;
SELECT is(pg_temp.said('postgres', 'others', statement), format('error P0001 others.%s was run', says),
          format('%s runs what others made', statement))
FROM (VALUES ('SELECT format(''%s'', ''x''::text)', 'format(text, text)'),
             ('SELECT unnest(ARRAY[''x''])', 'unnest(text[])'),
             ('SELECT ''x''::text || 1', 'operate(text, int)'),
             ('SELECT to_jsonb(1)', 'to_jsonb(int)')) AS x (statement, says);
SELECT is(pg_temp.said(who, 'others', l.statement), pg_temp.said(who, 'pg_catalog', l.statement),
          format('%s runs nothing of others: %s', who, l.what))
FROM unnest('{postgres,ivy}'::text[]) who, look l;
SELECT unalike(pg_temp.said('postgres', 'pg_catalog', l.statement), 'error %',
               format('there is no error: %s', l.what))
FROM look l;

-- The same in schema public, in which everybody creates, under the path that sessions have by default. pgTAP is in
-- another schema meanwhile.
ALTER SCHEMA public RENAME TO was_public;
ALTER SCHEMA others RENAME TO public;
GRANT CREATE ON SCHEMA public TO PUBLIC;
SET search_path = was_public;
SELECT is(pg_temp.said('postgres', '"$user", public', $$SELECT format('%s', 'x'::text)$$), 'error P0001 others.format(text, text) was run', 'a superuser runs what stands in a writable schema public');
SELECT is(pg_temp.said(who, '"$user", public', l.statement), pg_temp.said(who, 'pg_catalog', l.statement), format('but %s does not: %s', who, l.what))
FROM unnest('{postgres,moni}'::text[]) who, look l;
ALTER SCHEMA public RENAME TO others;
ALTER SCHEMA was_public RENAME TO public;
RESET search_path;

-- with domains of others in the place of types, and types of others that are cast to those of sas --------------------

CREATE SCHEMA domains;
GRANT USAGE ON SCHEMA domains TO PUBLIC;
CREATE FUNCTION domains.trap(text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'domain % was run', $1; END $$;
SELECT format('CREATE DOMAIN domains.%I AS pg_catalog.%1$I CHECK (domains.trap(%1$L))', t)
FROM unnest('{text,name,bool,int2,int4,int8,numeric,float8,oid,regrole,regclass,regprocedure,regprocedure,regproc,regtype,regnamespace,uuid,json,jsonb,jsonpath,interval,timestamptz,bytea,inet,xml,varchar}'::name[]) t GROUP BY t \gexec
SELECT is(pg_temp.said(who, 'domains, pg_catalog', 'SELECT $$x$$::text'), 'error P0001 domain text was run', who || ' runs the domain of others that stands first')
FROM unnest('{postgres,bert}'::text[]) who;
SELECT is(pg_temp.said(who, 'domains, pg_catalog', l.statement), pg_temp.said(who, 'pg_catalog', l.statement), format('%s meets no domain of others: %s', who, l.what))
FROM unnest('{postgres,bert,moni}'::text[]) who, look l;
-- what writes, too: each once
CREATE TEMP TABLE act AS SELECT who, statement
FROM (VALUES ('ivy', $$SELECT run_id > 0 FROM sas.submit('order', '{"pin": 1}', key => 'd1', priority => 3, deadline => '1 h', labels => '{"a": "b"}')$$),
             ('ivy', $$SELECT count(*) FROM sas.submit_batch('order', ARRAY['{}', '{"pin": 2}']::pg_catalog.jsonb[], ARRAY['d2', 'd3']::pg_catalog.text[])$$),
             ('ivy', $$SELECT sas.create_workflow('of_ivy', '{"steps": {"w": {"wait": {"signal": "go", "timeout": "1 h"}}}, "deadline": "2 h", "concurrency": {"key": "{{input.pin}}", "limit": 2}}') > 0$$),
             ('ivy', $$SELECT sas.schedule('ivy_s', '0 3 * * *', 'of_ivy') IS NOT NULL$$), ('ivy', $$SELECT count(*) FROM sas.backfill_schedule('ivy_s', '2020-01-01', '2020-01-01 01:00')$$),
             ('ivy', $$SELECT sas.watch('prices', 'd') IS NOT NULL$$), ('ivy', $$SELECT sas.signal_key('order', 'k1', 'go', '{"x": 1}') IS NOT NULL$$),
             ('ivy', $$SELECT bool_and(x.changed) FROM sas.runs r, sas.cancel(r.run_id, 'why') x WHERE r.key = 'd2'$$), ('opal', $$SELECT count(*) FROM sas.runs r, sas.set_input(r.run_id, 'a', '{}') x WHERE r.key = 'd3'$$),
             ('adam', $$SELECT sas.create_agent('of_adam', 'http://127.0.0.1:1', rate_limit => '5/min', retry => '{"max_attempts": 2}') IS NOT NULL$$), ('adam', $$SELECT sas.grant_usage('moni', 'operator') IS NOT NULL$$),
             ('adam', $$SELECT sas.revoke_usage('moni', 'operator') IS NOT NULL$$), ('adam', $$SELECT sas.set_secret('adams', 'x') IS NOT NULL$$), ('wren', $$SELECT count(*) FROM sas.claim('packer', 'w', 2, '1 min')$$),
             ('wren', $$SELECT sas.register_node('wren n', 3, '{packer}', lease => '1 h', by_connection => false) > 0$$)) v (who, statement);
SELECT unalike(pg_temp.said(who, 'domains, pg_catalog', statement), 'error%', format('nor does a verb of %s: %s', who, statement)) FROM act;

-- A type of bert's, with implicit casts to the types of parameters: they run as bert, whatever he passes it to.
CREATE SCHEMA casts;
GRANT USAGE, CREATE ON SCHEMA casts TO bert;
CREATE TABLE casts.seen (who text, what text); GRANT ALL ON casts.seen TO PUBLIC;
SET SESSION AUTHORIZATION bert;
CREATE TYPE casts.evil AS (n int);
SELECT format('CREATE FUNCTION casts.to_%s(casts.evil) RETURNS %1$s LANGUAGE plpgsql AS %L', t, format('BEGIN INSERT INTO casts.seen VALUES (concat_ws('' '', session_user, current_user), %L); RETURN %s; END', t, value))
FROM (VALUES ('text', $$'order'$$), ('jsonb', $$'{"pin": 1}'$$), ('json', $$'{"pin": 1}'$$), ('bigint', '1'), ('integer', '1'), ('interval', $$'1 h'$$), ('timestamptz', $$'2030-01-01'$$), ('uuid', $$gen_random_uuid()$$),
             ('regrole', $$'bert'$$), ('boolean', 'true')) v (t, value) \gexec
SELECT format('CREATE CAST (casts.evil AS %s) WITH FUNCTION casts.to_%1$s(casts.evil) AS IMPLICIT', t) FROM unnest('{text,jsonb,json,bigint,integer,interval,timestamptz,uuid,regrole,boolean}'::text[]) t \gexec
RESET SESSION AUTHORIZATION;
-- the rights of the owner are never those in which a value of any type is looked at
SELECT is(ARRAY(SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace IN ('sas'::regnamespace, '_sas'::regnamespace) AND p.prosecdef
                AND EXISTS (SELECT FROM unnest(p.proargtypes) a WHERE a::regtype::text LIKE 'any%' OR a = '"any"'::regtype)), '{}', 'no function takes its owner''s rights and a value of any type');
-- some of them are testing aids: nothing of it may be committed
BEGIN;
CREATE TEMP TABLE passed AS
SELECT f, n, pg_temp.said('bert', 'pg_catalog', f) AS said
FROM (SELECT format('SELECT sas.%I(%s)', p.proname, string_agg(CASE WHEN a.n = x.n THEN CASE WHEN a.t::regtype::text LIKE '%[]' THEN 'ARRAY[ROW(1)::casts.evil]' ELSE 'ROW(1)::casts.evil' END
                                                                    WHEN a.t::regtype::text LIKE 'any%' OR a.t = '"any"'::regtype THEN '''x''::text' ELSE format('NULL::%s', a.t::regtype) END, ', ' ORDER BY a.n)) AS f, x.n
      FROM pg_proc p, generate_series(1, p.pronargs) x (n), unnest(p.proargtypes) WITH ORDINALITY a (t, n)
      WHERE p.pronamespace = 'sas'::regnamespace AND has_function_privilege('bert', p.oid, 'EXECUTE') GROUP BY p.oid, p.proname, x.n) c;
INSERT INTO passed SELECT f, 0, pg_temp.said('bert', 'pg_catalog', f)
FROM unnest(ARRAY['SELECT run_id FROM sas.submit(ROW(1)::casts.evil, ROW(1)::casts.evil, ROW(1)::casts.evil)', 'SELECT sas.create_workflow(''of_bert'', ROW(1)::casts.evil)', 'SELECT sas.sequence(ROW(1)::casts.evil, ROW(1)::casts.evil)',
    'SELECT sas.concurrence(VARIADIC ARRAY[ROW(1)::casts.evil])', 'SELECT count(*) FROM sas.runs r WHERE r.run_id = ROW(1)::casts.evil', 'SELECT count(*) FROM sas.runs r WHERE r.input = ROW(1)::casts.evil::jsonb OR r.key = ROW(1)::casts.evil::text',
    'SELECT sas.step(''a'', sas.function(''shop.book'', ROW(1)::casts.evil))', 'SELECT count(*) FROM sas.find_runs(ROW(1)::casts.evil)']) f;
SELECT cmp_ok((SELECT count(*) FROM passed WHERE said NOT LIKE 'error 42883%'), '>', 40::bigint, 'values of bert''s type are taken for arguments');
SELECT cmp_ok((SELECT count(*) FROM casts.seen), '>', 20::bigint, 'and cast');
SELECT is((SELECT string_agg(DISTINCT who, ', ') FROM casts.seen), 'bert bert', 'by bert, always');
SELECT is((SELECT string_agg(f || ': ' || said, E'\n') FROM passed WHERE said LIKE 'error XX%'), NULL, 'and none meets an internal error');
ROLLBACK;

-- the other way: what sas works with has implicit casts to bert's type, which fail
SET SESSION AUTHORIZATION bert;
SELECT format('CREATE FUNCTION casts.from_type(%s) RETURNS casts.evil LANGUAGE plpgsql AS $f$ BEGIN RAISE EXCEPTION ''a cast of bert was run''; END $f$', t), format('CREATE CAST (%s AS casts.evil) WITH FUNCTION casts.from_type(%1$s) AS IMPLICIT', t)
FROM unnest('{text,name,jsonb,bigint,integer,numeric,float8,interval,timestamptz,uuid,oid,regrole,boolean}'::text[]) t \gexec
RESET SESSION AUTHORIZATION;
SELECT is(pg_temp.said('postgres', 'pg_catalog', 'SELECT (1::int8::casts.evil).n'), 'error P0001 a cast of bert was run', 'they are in scope for all');
SELECT unalike(pg_temp.said('postgres', 'pg_catalog', l.statement), 'error%', 'and disturb nobody: ' || l.what) FROM look l;
SELECT unalike(pg_temp.said('ivy', 'pg_catalog', statement), 'error%', 'nor a verb: ' || statement)
FROM unnest(ARRAY[$$SELECT run_id > 0 FROM sas.submit('order', '{"pin": 1}', key => 'c1', labels => '{"a": "b"}')$$, $$SELECT sas.create_workflow('of_ivy', '{"steps": {"w": {"wait": {"signal": "go", "timeout": "1 h"}}, "c": {"agent": "payments", "call": {"path": "/c/{{input.x}}"}}}}') > 0$$,
    $$SELECT x.changed FROM sas.runs r, sas.cancel(r.run_id, 'why') x WHERE r.key = 'c1'$$, $$SELECT sas.watch('prices', 'c') IS NOT NULL$$]) statement;

-- how texts are compared is the database's to say, not the caller's ---------------------------------

CREATE COLLATION pg_temp.loose (provider = icu, deterministic = false, locale = 'und-u-ks-level1');
SELECT ok('PACKER' = 'packer' COLLATE pg_temp.loose, 'to bert, these are the same');
SELECT matches(pg_temp.said('wren', 'pg_catalog', format($$SELECT request_id FROM sas.claim('PACKER' COLLATE %I.loose, 'w')$$, pg_my_temp_schema()::regnamespace)),
               '"PACKER" does not exist', 'a worker that says so claims from no agent of another name');
SELECT matches(pg_temp.said('ivy', 'pg_catalog', format('SELECT run_id FROM sas.submit(''ORDER'' COLLATE %I.loose)', pg_my_temp_schema()::regnamespace)),
               '"ORDER" does not exist', 'nor does a user submit another workflow');

SELECT * FROM finish();

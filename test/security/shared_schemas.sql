-- SPDX-License-Identifier: PostgreSQL
--
-- Schemas and tables of others: a function is called under the path of its schema, so who may create there has a say
-- in what it does; and so has the owner of a table in an INSERT. A superuser's run takes neither.
\set QUIET on
\pset format unaligned
\pset tuples_only on
\pset pager off
-- no worker sees it
BEGIN;
SELECT no_plan();

CREATE ROLE sh_evil;
SELECT sas.grant_usage('sh_evil', 'user') \g /dev/null
CREATE SCHEMA sh_his AUTHORIZATION sh_evil; CREATE SCHEMA sh_shared; CREATE SCHEMA sh_own;
GRANT CREATE, USAGE ON SCHEMA sh_shared TO sh_evil; GRANT USAGE ON SCHEMA sh_own TO PUBLIC;
-- ok, or the SQLSTATE
CREATE FUNCTION pg_temp.says(statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE statement;
    RETURN 'ok';
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE;
END $$;
CREATE FUNCTION pg_temp.evil() RETURNS boolean LANGUAGE sql AS $$ SELECT rolcreaterole FROM pg_roles WHERE rolname = 'sh_evil' $$;

-- what looks like pg_catalog.format(text, VARIADIC "any"), and fits better
DO $do$
DECLARE
    s text;
BEGIN
    FOREACH s IN ARRAY '{sh_his,sh_shared,sh_own}'::text[] LOOP
        EXECUTE format($f$CREATE FUNCTION %I.act(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $b$ BEGIN RETURN to_jsonb(format('%%s', 'x'::text)); END $b$$f$, s);
        EXECUTE format($f$CREATE FUNCTION %I.plan(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $b$ BEGIN RETURN jsonb_build_object('steps', '{}'::jsonb, 'output', jsonb_build_array(format('%%s', 'x'::text), to_jsonb(1))); END $b$$f$, s);
    END LOOP;
    SET LOCAL SESSION AUTHORIZATION sh_evil;
    FOREACH s IN ARRAY '{sh_his,sh_shared}'::text[] LOOP
        EXECUTE format($f$CREATE FUNCTION %I.format(text, text) RETURNS text LANGUAGE plpgsql AS $b$ BEGIN ALTER ROLE sh_evil CREATEROLE; RETURN 'x'; END $b$$f$, s);
    END LOOP;
    RESET SESSION AUTHORIZATION;
END $do$;
SELECT is(pg_temp.says(format(statement, s)), '42501', format('a superuser has no function of schema %1$s, in which others create: ' || statement, s))
FROM unnest('{sh_his,sh_shared}'::text[]) s,
     unnest(ARRAY['SELECT sas.create_workflow(''sh_w'', ''{"steps": {"a": {"function": "%1$s.act"}}}'')', 'SELECT sas.create_workflow(''sh_w'', ''{"plan": "%1$s.plan"}'')',
                  'SELECT sas.create_workflow(''sh_w'', ''{"steps": {}, "finalize": "%1$s.act"}'')', 'SELECT sas.create_watcher(''sh_watcher'', ''{"function": "%1$s.act", "every": "1 h"}'')',
                  'SELECT sas.create_middleware(''sh_m'', ''plan'', before => ''%1$s.act(jsonb)'')', 'SELECT sas.set_alert_hook(''%1$s.act(jsonb)'')']) statement;
SELECT ok(NOT pg_temp.evil(), 'nothing of it has run');

-- a schema that is opened after the workflow was defined
SAVEPOINT whole;
SELECT sas.create_workflow('sh_w', '{"plan": "sh_own.plan"}') \g /dev/null
SELECT is(pg_temp.says('SELECT sas.submit(''sh_w'')'), 'ok', 'one of a schema in which superusers alone create is called');
GRANT CREATE ON SCHEMA sh_own TO sh_evil;
SELECT is(pg_temp.says('SELECT sas.submit(''sh_w'')'), 'ok', 'also when others may create there');
CREATE FUNCTION sh_own.label(input jsonb) RETURNS text LANGUAGE sql AS $$ SELECT 'x' $$;
SET LOCAL SESSION AUTHORIZATION sh_evil;
CREATE FUNCTION sh_own.other(text, text) RETURNS text LANGUAGE sql AS $$ SELECT 'x' $$;
CREATE FUNCTION sh_own.climb(int) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN ALTER ROLE sh_evil CREATEROLE; RETURN true; END $$;
RESET SESSION AUTHORIZATION;
SELECT is(pg_temp.says('SELECT sas.submit(''sh_w'')'), 'ok', 'and have, under names of their own');
SAVEPOINT opened;
-- nothing but the operator is new: what was remembered of the function does not outlive it
SET LOCAL SESSION AUTHORIZATION sh_evil;
CREATE OPERATOR sh_own.|| (LEFTARG = text, RIGHTARG = text, FUNCTION = sh_own.other);
RESET SESSION AUTHORIZATION;
SELECT is(pg_temp.says('SELECT sas.submit(''sh_w'')'), '42501', 'no more, at once, when they make an operator of what they have');
ROLLBACK TO opened;
SET LOCAL SESSION AUTHORIZATION sh_evil;
CREATE FUNCTION sh_own.format(text, text) RETURNS text LANGUAGE sql AS $$ SELECT 'x' $$;
RESET SESSION AUTHORIZATION;
SELECT is(pg_temp.says('SELECT sas.submit(''sh_w'')'), '42501', 'no more when a function of theirs has the name of one of pg_catalog');
ROLLBACK TO opened;
SET LOCAL SESSION AUTHORIZATION sh_evil;
CREATE FUNCTION sh_own.label(text) RETURNS text LANGUAGE sql AS $$ SELECT 'x' $$;
RESET SESSION AUTHORIZATION;
SELECT is(pg_temp.says('SELECT sas.submit(''sh_w'')'), '42501', 'or that of a superuser''s in this schema');
ROLLBACK TO opened;
SET LOCAL SESSION AUTHORIZATION sh_evil;
CREATE OPERATOR sh_own.|| (LEFTARG = text, RIGHTARG = text, FUNCTION = sh_own.other);
RESET SESSION AUTHORIZATION;
SELECT is(pg_temp.says('SELECT sas.submit(''sh_w'')'), '42501', 'or an operator of theirs has such a name');
-- f(x) is also a cast to a type f, if no function f has just that parameter
ROLLBACK TO opened;
SET LOCAL SESSION AUTHORIZATION sh_evil;
CREATE TABLE sh_own.to_jsonb (n int);
CREATE TYPE sh_own.format AS (n int);
RESET SESSION AUTHORIZATION;
SELECT is(pg_temp.says('SELECT sas.submit(''sh_w'')'), 'ok', 'nothing is cast to the rows of their tables');
ROLLBACK TO opened;
SET LOCAL SESSION AUTHORIZATION sh_evil;
CREATE DOMAIN sh_own.to_jsonb AS int CHECK (sh_own.climb(VALUE));
RESET SESSION AUTHORIZATION;
-- the body is parsed again
ALTER FUNCTION sh_own.plan(jsonb) COST 99;
SELECT is(pg_temp.says('SELECT sas.submit(''sh_w'')'), '42501', 'or a type of theirs has the name of a function');
SELECT ok(NOT pg_temp.evil(), 'whose check has not run');
ROLLBACK TO opened;
SET LOCAL SESSION AUTHORIZATION sh_evil;
CREATE DOMAIN sh_own.shelf AS int;
CREATE DOMAIN sh_own.book AS int;
RESET SESSION AUTHORIZATION;
SELECT is(pg_temp.says('SELECT sas.submit(''sh_w'')'), 'ok', 'but a type of another name');
SET LOCAL SESSION AUTHORIZATION sh_evil;
ALTER DOMAIN sh_own.book RENAME TO to_jsonb;
RESET SESSION AUTHORIZATION;
SELECT is(pg_temp.says('SELECT sas.submit(''sh_w'')'), '42501', 'or a type of theirs has the name of a function, also without any other change');
SELECT pg_temp.says('ALTER DOMAIN sh_own.to_jsonb RENAME TO book') \g /dev/null
SELECT is(pg_temp.says('SELECT sas.submit(''sh_w'')'), 'ok', 'until it has not');
ROLLBACK TO opened;
SET LOCAL SESSION AUTHORIZATION sh_evil;
CREATE FUNCTION sh_own.uuid(text) RETURNS text LANGUAGE sql AS $$ SELECT 'x' $$;
RESET SESSION AUTHORIZATION;
SELECT is(pg_temp.says('SELECT sas.submit(''sh_w'')'), '42501', 'or a function of theirs that of a type');
ROLLBACK TO opened;
SET LOCAL SESSION AUTHORIZATION sh_evil;
CREATE FUNCTION sh_own.format(text, text) RETURNS text LANGUAGE sql AS $$ SELECT 'x' $$;
RESET SESSION AUTHORIZATION;
REVOKE CREATE ON SCHEMA sh_own FROM sh_evil;
SELECT is(pg_temp.says('SELECT sas.submit(''sh_w'')'), '42501', 'also when they create nothing there any more');
ROLLBACK TO whole;
SELECT sas.create_workflow('sh_w', '{"plan": "sh_own.plan"}') \g /dev/null
ALTER SCHEMA sh_own OWNER TO sh_evil;
SELECT is(pg_temp.says('SELECT sas.submit(''sh_w'')'), '42501', 'or given away');
ROLLBACK TO whole;
-- what finds nothing there
ALTER FUNCTION sh_his.plan(jsonb) SET search_path = pg_catalog, pg_temp;
SELECT sas.create_workflow('sh_w', '{"plan": "sh_his.plan"}') \g /dev/null
SELECT is(pg_temp.says('SELECT sas.submit(''sh_w'')'), 'ok', 'a function with a path of its own is called');
SELECT ok(NOT pg_temp.evil(), 'and finds what is meant');
ALTER FUNCTION sh_his.plan(jsonb) SET search_path = pg_catalog, sh_his, pg_temp;
SELECT is(pg_temp.says('SELECT sas.submit(''sh_w'')'), '42501', 'but not if a schema of others is in it');
ALTER FUNCTION sh_his.plan(jsonb) SET search_path = sh_own, "sh_shared";
SELECT is(pg_temp.says('SELECT sas.submit(''sh_w'')'), '42501', 'or one in which they have created such a name');
ROLLBACK TO whole;
-- "$user" in a path is a schema with the name of the role that runs the function: of the superuser itself
SELECT sas.create_workflow('sh_w', '{"plan": "sh_own.plan"}') \g /dev/null
ALTER FUNCTION sh_own.plan(jsonb) SET search_path = "$user", sh_own, pg_temp;
SELECT is(pg_temp.says('SELECT sas.submit(''sh_w'')'), 'ok', 'a path names a schema of the role itself, which there is not');
SELECT format('CREATE SCHEMA %I AUTHORIZATION sh_evil', current_user) \gexec
SELECT is(pg_temp.says('SELECT sas.submit(''sh_w'')'), '42501', 'no more, when others have made it');
SELECT format('ALTER SCHEMA %I OWNER TO %1$I', current_user) \gexec
SELECT is(pg_temp.says('SELECT sas.submit(''sh_w'')'), 'ok', 'again when it is its own');
ALTER FUNCTION sh_own.plan(jsonb) OWNER TO CURRENT_USER;
CREATE ROLE sh_chief SUPERUSER;
CREATE SCHEMA sh_chief AUTHORIZATION sh_evil;
SELECT is(pg_temp.says('SELECT sas.submit(''sh_w'')'), 'ok', 'the schema of another superuser does not count');
ALTER FUNCTION sh_own.plan(jsonb) OWNER TO sh_chief;
ALTER FUNCTION sh_own.plan(jsonb) SECURITY DEFINER;
SELECT is(pg_temp.says('SELECT sas.submit(''sh_w'')'), '42501', 'but that of the owner of a function with SECURITY DEFINER does');
ROLLBACK TO whole;
-- names of one schema in another one of the path
CREATE SCHEMA sh_lib; CREATE SCHEMA sh_more; GRANT USAGE ON SCHEMA sh_lib, sh_more TO PUBLIC; GRANT CREATE ON SCHEMA sh_more TO sh_evil;
CREATE FUNCTION sh_lib.label(n bigint) RETURNS text LANGUAGE sql AS $$ SELECT 'x' $$;
CREATE FUNCTION sh_lib.joined(text, text) RETURNS text LANGUAGE sql AS $$ SELECT 'x' $$;
CREATE OPERATOR sh_lib.<<>> (LEFTARG = text, RIGHTARG = text, FUNCTION = sh_lib.joined);
CREATE DOMAIN sh_lib.code AS text;
CREATE TABLE sh_lib.config (n int); INSERT INTO sh_lib.config VALUES (1);
CREATE FUNCTION sh_own.uses(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM label(1), 'a'::text <<>> 'b'::text, count(n) FROM config GROUP BY 1;
    RETURN jsonb_build_object('steps', '{}'::jsonb, 'output', 'x'::text::code);
END $$;
SELECT sas.create_workflow('sh_w', '{"plan": "sh_own.uses"}') \g /dev/null
ALTER FUNCTION sh_own.uses(jsonb) SET search_path = sh_lib, sh_more;
SET LOCAL SESSION AUTHORIZATION sh_evil;
CREATE FUNCTION sh_more.climb(n int) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN ALTER ROLE sh_evil CREATEROLE; RETURN true; END $$;
CREATE VIEW sh_more.other AS SELECT 1 AS n;
RESET SESSION AUTHORIZATION;
SELECT is(pg_temp.says('SELECT sas.submit(''sh_w'')'), 'ok', 'of two schemas of a path others have created in one, under names of their own');
CREATE FUNCTION pg_temp.made(statement text, path text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    said text;
BEGIN
    EXECUTE format('ALTER FUNCTION sh_own.uses(jsonb) SET search_path = %s', path);
    SET LOCAL SESSION AUTHORIZATION sh_evil;
    EXECUTE statement;
    RESET SESSION AUTHORIZATION;
    said := pg_temp.says('SELECT sas.submit(''sh_w'')') || CASE WHEN pg_temp.evil() THEN ', and it has climbed' ELSE '' END;
    RAISE EXCEPTION '%', said USING ERRCODE = 'ZZ000';
EXCEPTION WHEN SQLSTATE 'ZZ000' THEN
    RETURN said;
END $$;
SELECT is(pg_temp.made(statement, path), CASE WHEN path = 'sh_lib, sh_more' AND statement ~ 'VIEW' THEN 'ok' ELSE '42501' END, format('not when it has, with the path %s: %s', path, statement))
FROM unnest('{"sh_more, sh_lib","sh_lib, sh_more"}'::text[]) path,
     unnest(ARRAY['CREATE FUNCTION sh_more.label(n int) RETURNS text LANGUAGE sql AS $$ SELECT sh_more.climb(1)::text $$',
                  'CREATE FUNCTION sh_more.beside(text, varchar) RETURNS text LANGUAGE sql AS $$ SELECT sh_more.climb(1)::text $$; CREATE OPERATOR sh_more.<<>> (LEFTARG = text, RIGHTARG = varchar, FUNCTION = sh_more.beside)',
                  'CREATE DOMAIN sh_more.code AS text CHECK (sh_more.climb(1))',
                  'CREATE VIEW sh_more.config AS SELECT 1 AS n WHERE sh_more.climb(1)']) statement;
-- before pg_catalog, a relation or a row type takes the place of one there
CREATE OR REPLACE FUNCTION sh_own.uses(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM count(*) FROM pg_authid;
    RETURN jsonb_build_object('steps', '{}'::jsonb, 'output', 'x'::varchar::text);
END $$;
SELECT is(pg_temp.made(statement, path), said, format('with the path %s it is %s: %s', path, said, statement))
FROM (VALUES ('sh_more, pg_catalog', '42501'), ('pg_catalog, sh_more', 'ok'), ('sh_more', 'ok')) p (path, said),
     unnest(ARRAY['CREATE VIEW sh_more.pg_authid AS SELECT 1 AS n WHERE sh_more.climb(1)',
                  'CREATE TYPE sh_more.text AS (n int); CREATE FUNCTION sh_more.taken(varchar) RETURNS sh_more.text LANGUAGE plpgsql AS $$ BEGIN PERFORM sh_more.climb(1); RETURN ROW(1); END $$; CREATE CAST (varchar AS sh_more.text) WITH FUNCTION sh_more.taken(varchar) AS IMPLICIT']) statement;
-- casts of others lead from or to types of theirs, which no name in the body means
CREATE OR REPLACE FUNCTION sh_own.uses(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    n bigint := 1;
    t text := n;
    c sh_lib.code := 'x';
BEGIN
    n := '2'::text;
    t := c || n || CASE WHEN n = 2 THEN 'x'::varchar ELSE c END || coalesce(NULL, n::text, c);
    RETURN jsonb_build_object('steps', '{}'::jsonb, 'output', t);
END $$;
SELECT is(pg_temp.made(format('CREATE DOMAIN sh_more.whole AS int; CREATE TYPE sh_more.pair AS (n int); CREATE FUNCTION sh_more.cast_of(%1$s) RETURNS sh_more.pair LANGUAGE plpgsql AS $b$ BEGIN PERFORM sh_more.climb(1); RETURN ROW(1); END $b$;
                               CREATE FUNCTION sh_more.cast_to(sh_more.pair) RETURNS %1$s LANGUAGE plpgsql AS $b$ BEGIN PERFORM sh_more.climb(1); RETURN NULL; END $b$;
                               CREATE CAST (%1$s AS sh_more.pair) WITH FUNCTION sh_more.cast_of(%1$s) AS IMPLICIT; CREATE CAST (sh_more.pair AS %1$s) WITH FUNCTION sh_more.cast_to(sh_more.pair) AS IMPLICIT', type), 'sh_more, sh_own'), 'ok',
          'implicit casts of others to and from ' || type || ' are used by no operator, CASE or assignment')
FROM unnest('{text,varchar,bigint,sh_lib.code}'::text[]) type;
ROLLBACK TO whole;
CREATE FUNCTION sh_his.bound(input jsonb) RETURNS jsonb LANGUAGE sql BEGIN ATOMIC SELECT jsonb_build_object('steps', '{}'::jsonb, 'output', pg_catalog.format('%s', 'x'::text)); END;
SELECT sas.create_workflow('sh_w', '{"plan": "sh_his.bound"}') \g /dev/null
SELECT is(pg_temp.says('SELECT sas.submit(''sh_w'')'), 'ok', 'and so is one whose body is bound');
-- what a bound body calls may look up names
CREATE FUNCTION sh_own.label() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN format('%s', 'x'::text); END $$;
CREATE FUNCTION sh_own.beside() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN label(); END $$;
CREATE FUNCTION sh_his.bound_over(input jsonb) RETURNS jsonb LANGUAGE sql BEGIN ATOMIC SELECT jsonb_build_object('steps', '{}'::jsonb, 'output', sh_own.label()); END;
CREATE FUNCTION sh_own.bound_over(input jsonb) RETURNS jsonb LANGUAGE sql BEGIN ATOMIC SELECT jsonb_build_object('steps', '{}'::jsonb, 'output', sh_own.beside()); END;
SELECT sas.create_workflow('sh_w', '{"plan": "sh_his.bound_over"}') \g /dev/null
SELECT is(pg_temp.says('SELECT sas.submit(''sh_w'')'), 'ok', 'a bound body of that schema calls other functions');
SELECT ok(NOT pg_temp.evil(), 'and these find nothing of others there');
SELECT sas.create_workflow('sh_w', '{"plan": "sh_own.bound_over"}') \g /dev/null
SELECT is(pg_temp.says('SELECT sas.submit(''sh_w'')'), 'ok', 'in a schema of superusers they find what is there');
ROLLBACK TO whole;
-- others call what they may
GRANT USAGE ON SCHEMA sh_his TO PUBLIC;
CREATE ROLE sh_ann;
SELECT sas.grant_usage('sh_ann', 'user') \g /dev/null
SET LOCAL SESSION AUTHORIZATION sh_ann;
SELECT is(pg_temp.says('SELECT sas.create_workflow(''sh_w'', ''{"steps": {"a": {"function": "sh_his.act"}}}'')'), 'ok', 'who is no superuser trusts whom it likes');
RESET SESSION AUTHORIZATION;
ROLLBACK TO whole;

-- tables that items go to
CREATE TABLE sh_his.t (item jsonb); ALTER TABLE sh_his.t OWNER TO sh_evil;
CREATE TABLE sh_his.mine (item jsonb);
CREATE TABLE sh_own.t (item jsonb);
CREATE TABLE sh_own.given (item jsonb); GRANT TRIGGER ON sh_own.given TO sh_evil;
CREATE TABLE sh_own.gone (item jsonb); ALTER TABLE sh_own.gone OWNER TO sh_evil;
SELECT sas.create_agent('sh_agent', kind => 'external') \g /dev/null
SELECT is(pg_temp.says(format('SELECT sas.create_watcher(''sh_watcher'', ''{"agent": "sh_agent", "external": {}, "items": {"table": "%s"}}'')', t)), CASE t WHEN 'sh_own.t' THEN 'ok' ELSE '42501' END,
          format('items of a superuser''s task go to table %s: %s', t, CASE t WHEN 'sh_own.t' THEN 'a superuser''s' ELSE 'never, others have a say in it' END))
FROM unnest('{sh_his.t,sh_his.mine,sh_own.given,sh_own.gone,sh_own.t}'::text[]) t;
-- nor to one that was given away since
ALTER TABLE sh_own.t OWNER TO sh_evil;
SELECT is(pg_temp.says('SELECT sas.watch(''sh_watcher'', ''k'')'), '42501', 'and no task is started for one that was given away');

ROLLBACK TO whole;

-- what else an INSERT executes: left by a role that has lost its right on the table since, or reached through it
SET LOCAL SESSION AUTHORIZATION sh_evil;
CREATE FUNCTION sh_his.fire() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN ALTER ROLE sh_evil CREATEROLE; RETURN NEW; END $$;
CREATE FUNCTION sh_his.good(value anyelement) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN true; END $$;
CREATE DOMAIN sh_his.d AS int;
CREATE FUNCTION sh_his.same(jsonb, jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$ SELECT true $$;
CREATE OPERATOR sh_his.=== (LEFTARG = jsonb, RIGHTARG = jsonb, FUNCTION = sh_his.same);
RESET SESSION AUTHORIZATION;
CREATE FUNCTION sh_own.fire() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
CREATE DOMAIN sh_own.d AS int CHECK (sh_his.good(VALUE));
CREATE DOMAIN sh_own.on_his AS sh_his.d;
SELECT sas.create_agent('sh_agent', kind => 'external') \g /dev/null
CREATE FUNCTION pg_temp.watcher(t text) RETURNS text LANGUAGE sql AS $$
    SELECT pg_temp.says(format('SELECT sas.create_watcher(''sh_watcher'', ''{"agent": "sh_agent", "external": {}, "items": {"table": "%s"}}'')', t)) $$;
-- made by itself, with a right that it has no more
CREATE TABLE sh_own.trigger (item jsonb);
GRANT TRIGGER ON sh_own.trigger TO sh_evil;
SET LOCAL SESSION AUTHORIZATION sh_evil;
CREATE TRIGGER fire BEFORE INSERT ON sh_own.trigger FOR EACH ROW EXECUTE FUNCTION sh_his.fire();
RESET SESSION AUTHORIZATION;
REVOKE TRIGGER ON sh_own.trigger FROM sh_evil;
-- made when the table was still its own
CREATE TABLE sh_own.check (item jsonb CHECK (sh_his.good(item)));
CREATE TABLE sh_own.operator (item jsonb CHECK (item OPERATOR(sh_his.===) item));
CREATE TABLE sh_own.default (item jsonb, b boolean DEFAULT sh_his.good(1));
CREATE TABLE sh_own.generated (item jsonb, b boolean GENERATED ALWAYS AS (sh_his.good(item)) STORED);
CREATE TABLE sh_own.index (item jsonb); CREATE INDEX ON sh_own.index (sh_his.good(item));
CREATE TABLE sh_own.predicate (item jsonb); CREATE INDEX ON sh_own.predicate (item) WHERE sh_his.good(item);
CREATE TABLE sh_own.exclude (item jsonb, EXCLUDE USING btree ((sh_his.good(item)) WITH =));
CREATE TABLE sh_own.domain (item jsonb, n sh_his.d);
CREATE TABLE sh_own.checked (item jsonb, n sh_own.d);
CREATE TABLE sh_own.domains (item jsonb, n sh_own.on_his);
CREATE TYPE sh_own.pair AS (a int, n sh_his.d);
CREATE TABLE sh_own.composite (item jsonb, p sh_own.pair);
CREATE TABLE sh_own.composites (item jsonb, p sh_own.pair[]);
CREATE TABLE sh_own.row_of (item jsonb, t sh_own.domain);
CREATE TABLE sh_own.array (item jsonb, n sh_own.d[]);
CREATE TABLE sh_own.condition (item jsonb);
CREATE TRIGGER fire BEFORE INSERT ON sh_own.condition FOR EACH ROW WHEN (sh_his.good(NEW.item)) EXECUTE FUNCTION sh_own.fire();
CREATE TABLE sh_own.rule (item jsonb);
CREATE RULE also AS ON INSERT TO sh_own.rule DO ALSO SELECT sh_his.good(NEW.item);
-- leads to a table of it
CREATE TABLE sh_own.parted (item jsonb) PARTITION BY LIST ((item ->> 'x'));
CREATE TABLE sh_own.part PARTITION OF sh_own.parted DEFAULT; ALTER TABLE sh_own.part OWNER TO sh_evil;
CREATE TABLE sh_own.split (item jsonb) PARTITION BY LIST (sh_his.good(item));
CREATE VIEW sh_own.view AS SELECT item FROM sh_own.part;
CREATE TABLE sh_own.instead (item jsonb);
CREATE RULE instead AS ON INSERT TO sh_own.instead DO INSTEAD INSERT INTO sh_own.part VALUES (NEW.item);
SELECT is(pg_temp.watcher('sh_own.' || t), '42501', format('nor to one with code of others: %s', t))
FROM unnest('{trigger,check,operator,default,generated,index,predicate,exclude,domain,checked,domains,composite,composites,row_of,array,condition,rule,parted,split,view,instead}'::text[]) t;
SELECT ok(NOT pg_temp.evil(), 'nothing of it has run');
-- what superusers alone have made
CREATE FUNCTION sh_own.good(value anyelement) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$ SELECT true $$;
CREATE DOMAIN sh_own.positive AS int CHECK (VALUE > 0);
CREATE TYPE sh_own.good_pair AS (a int, n sh_own.positive);
CREATE TABLE sh_own.all (item jsonb CHECK (sh_own.good(item)), p sh_own.good_pair, ps sh_own.good_pair[], id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n sh_own.positive, at timestamptz DEFAULT now(),
                         up bigint REFERENCES sh_own.all, tags text[], EXCLUDE USING btree (id WITH =));
CREATE TRIGGER fire BEFORE INSERT ON sh_own.all FOR EACH ROW EXECUTE FUNCTION sh_own.fire();
CREATE TABLE sh_own.months (item jsonb, at timestamptz DEFAULT now()) PARTITION BY RANGE (at);
CREATE TABLE sh_own.month PARTITION OF sh_own.months DEFAULT;
CREATE VIEW sh_own.seen AS SELECT item FROM sh_own.months;
SELECT is(pg_temp.watcher('sh_own.' || t), 'ok', format('but to one in which all is a superuser''s: %s', t)) FROM unnest('{all,months,seen}'::text[]) t;
-- a trigger that comes later
SELECT is(pg_temp.watcher('sh_own.month'), 'ok', 'as a partition is');
CREATE TRIGGER fire BEFORE INSERT ON sh_own.month FOR EACH ROW EXECUTE FUNCTION sh_his.fire();
SELECT is(pg_temp.says('SELECT sas.watch(''sh_watcher'', ''k'')'), '42501', 'until code of others comes to it');

SELECT * FROM finish();
ROLLBACK;

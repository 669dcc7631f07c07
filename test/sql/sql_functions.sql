-- SPDX-License-Identifier: PostgreSQL
--
-- Functions in SQL: a body that is one expression is evaluated in the place of a call (src/work/sql_function.c).
-- That comes to what a call comes to: each body is also that of a function with a second statement, which is
-- called. Several steps in one transaction, as in a worker.
SELECT t.clean() \g /dev/null
\set SHOW_CONTEXT never
CREATE ROLE sql_owner;
GRANT USAGE ON SCHEMA t TO sql_owner;

CREATE TABLE t.body (n int GENERATED ALWAYS AS IDENTITY, body text);
CREATE TABLE t.written (what jsonb);
GRANT INSERT, SELECT ON t.written TO sql_owner;
CREATE FUNCTION t.write(input jsonb) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO t.written VALUES (input);
    RETURN (SELECT count(*) FROM t.written);
END $$;
CREATE FUNCTION t.reject(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'not %', input USING HINT = 'another';
END $$;
INSERT INTO t.body (body) VALUES
    ('SELECT input'),
    ('SELECT $1 || jsonb_build_object(''twice'', input -> ''n'')'),
    ('SELECT to_jsonb(6 / (input ->> ''n'')::int)'),
    ('SELECT NULL::jsonb'),
    ('SELECT to_jsonb(''now''::timestamptz = transaction_timestamp())'),
    ('SELECT to_jsonb(concat_ws('', '', current_user, current_setting(''search_path'')))'),
    ('SELECT jsonb_build_array(t.write(input), write(input))'),
    ('SELECT CASE WHEN (input ->> ''n'')::int > 1 THEN t.reject(input) ELSE ''"well"'' END'),
    ('SELECT to_jsonb(no_such(input))'),
    ('SELECT CASE WHEN (input ->> ''n'')::int > 5 THEN ''"much"'' ELSE t.one_10(jsonb_build_object(''n'', (input ->> ''n'')::int + 3)) END'),
    -- these have to be called
    ('SELECT to_jsonb(count(*)) FROM t.written'),
    ('SELECT to_jsonb((SELECT count(*) FROM t.written))'),
    ('INSERT INTO t.written VALUES (input) RETURNING what'),
    ('SELECT x FROM jsonb_array_elements(''[1, 2]'') x'),
    ('SELECT input WHERE false'),
    ('SELECT n, n FROM t.body');
SET check_function_bodies = off;
DO $$
DECLARE
    b record;
BEGIN
    FOR b IN SELECT * FROM t.body ORDER BY n LOOP
        EXECUTE format('CREATE FUNCTION t.one_%s(input jsonb) RETURNS jsonb LANGUAGE sql AS %L', b.n, b.body);
        EXECUTE format('CREATE FUNCTION t.two_%s(input jsonb) RETURNS jsonb LANGUAGE sql AS %L', b.n,
                       'SELECT 1; ' || replace(b.body, 'one', 'two'));
    END LOOP;
END $$;
RESET check_function_bodies;
CREATE FUNCTION t.kept(input jsonb) RETURNS jsonb LANGUAGE sql STRICT AS 'SELECT ''[]''::jsonb || input';
CREATE FUNCTION t.mine(input jsonb) RETURNS jsonb LANGUAGE sql SECURITY DEFINER AS 'SELECT to_jsonb(current_user)';
CREATE FUNCTION t.set(input jsonb) RETURNS jsonb LANGUAGE sql SET work_mem = '1MB' AS 'SELECT to_jsonb(current_setting(''work_mem''))';

-- t.invoke(function, input): as a step that calls it; what it comes to
CREATE FUNCTION t.invoke(function text, input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    v record := _sas.stub_invoke('sql_owner'::regrole, 1, 1, 0, 'step', false, 0, function, input, NULL, NULL, false);
BEGIN
    RETURN coalesce(v.why, v.output);
END $$;
-- the same comes of both, for three steps after the other, of which some fail
CREATE TABLE t.came (n int, i int, one jsonb, two jsonb);
DO $$
DECLARE
    b record;
    i int;
    one jsonb;
    two jsonb;
BEGIN
    FOR b IN SELECT * FROM t.body ORDER BY n LOOP
        FOREACH i IN ARRAY ARRAY[1, 0, 2, 3] LOOP
            TRUNCATE t.written;
            one := t.invoke('t.one_' || b.n, jsonb_build_object('n', i));
            TRUNCATE t.written;
            two := t.invoke('t.two_' || b.n, jsonb_build_object('n', i));
            INSERT INTO t.came VALUES (b.n, i, one, two);
        END LOOP;
    END LOOP;
END $$;
-- of an error in the text of a body only the context is another one: "during inlining" in place of "startup"
SELECT b.n, b.body, string_agg(coalesce(c.one ->> 'title', c.one::text), '  ' ORDER BY c.i) AS comes,
       count(*) FILTER (WHERE s.one <> s.two) AS otherwise
FROM t.came c JOIN t.body b USING (n)
CROSS JOIN LATERAL (SELECT replace((CASE n WHEN 9 THEN c.one - 'context' ELSE c.one END)::text, 'one_', 'two_') AS one,
                           replace((CASE n WHEN 9 THEN c.two - 'context' ELSE c.two END)::text, 'statement 2', 'statement 1') AS two) s
GROUP BY b.n, b.body ORDER BY b.n;
-- PostgreSQL 18 says "statement 1" of a result of another type, earlier ones "during startup"
SELECT n, i, replace(one ->> 'context', 'during startup', 'statement 1') AS context FROM t.came WHERE one ? 'context' AND i IN (0, 2) ORDER BY n, i;

-- strict ones, and those with rights or settings of their own
BEGIN;
SELECT t.invoke('t.kept', '1'), t.invoke('t.kept', NULL), t.invoke('t.mine', '1') <> '"sql_owner"' AS mine, t.invoke('t.set', '1');
-- what is replaced, or may not be called any longer, since the last step of the same transaction
SELECT t.invoke('t.one_2', '{"n": 1}');
CREATE OR REPLACE FUNCTION t.one_2(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT ''"another"''::jsonb';
SELECT t.invoke('t.one_2', '{"n": 1}');
CREATE FUNCTION t.write(input json) RETURNS int LANGUAGE sql AS 'SELECT 1';
ALTER FUNCTION t.write(jsonb) RENAME TO wrote;
SELECT t.invoke('t.one_7', '{"n": 1}') ->> 'title' AS renamed;
ALTER FUNCTION t.wrote(jsonb) RENAME TO write;
SELECT t.invoke('t.one_7', '{"n": 1}');
REVOKE EXECUTE ON FUNCTION t.write(jsonb) FROM PUBLIC;
SELECT t.invoke('t.one_7', '{"n": 1}') ->> 'title' AS revoked;
GRANT EXECUTE ON FUNCTION t.write(jsonb) TO sql_owner;
SELECT t.invoke('t.one_7', '{"n": 1}');
REVOKE EXECUTE ON FUNCTION t.one_7(jsonb) FROM PUBLIC;
SELECT t.invoke('t.one_7', '{"n": 1}') ->> 'title' AS revoked;
ROLLBACK;
-- what the same statement of a session has written before
CREATE FUNCTION t.amount() RETURNS bigint LANGUAGE plpgsql STABLE AS 'BEGIN RETURN (SELECT count(*) FROM t.written); END';
CREATE FUNCTION t.plan_evaluated(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT t.reject(to_jsonb(t.amount()))';
CREATE FUNCTION t.plan_called(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT 1; SELECT t.reject(to_jsonb(t.amount()))';
SELECT sas.create_workflow('evaluated', '{"plan": "t.plan_evaluated"}'), sas.create_workflow('called', '{"plan": "t.plan_called"}');
TRUNCATE t.written;
SELECT t.write('1'), t.write('2'), (SELECT run_id FROM sas.submit('evaluated'));
SELECT t.write('1'), t.write('2'), (SELECT run_id FROM sas.submit('called'));
SET check_function_bodies = off;
-- a strict one does nothing with a null, whatever its body would do
CREATE FUNCTION t.kept_writes(input jsonb) RETURNS jsonb LANGUAGE sql STRICT AS 'SELECT t.kept_write() || input';
CREATE FUNCTION t.kept_write() RETURNS jsonb LANGUAGE sql STRICT AS 'INSERT INTO t.written VALUES (''1'') RETURNING what';
TRUNCATE t.written;
SELECT t.invoke('t.kept_writes', NULL), (SELECT count(*) FROM t.written);
-- what a setting, a table or a row policy makes of the text of a body is that of each call
CREATE FUNCTION t.text(input jsonb) RETURNS jsonb LANGUAGE sql AS $$
SELECT jsonb_build_array('2020-01-01 00:00'::timestamptz AT TIME ZONE 'UTC', to_char('02/01/2020'::date, 'YYYY-MM-DD'),
                         'a\\b', NULL = NULL,
                         1.1::float8::text, 'a'::bytea::text, quote_ident('a')) $$;
BEGIN;
SET LOCAL timezone = 'UTC'; SET LOCAL datestyle = 'ISO, MDY'; SET LOCAL standard_conforming_strings = on;
SET LOCAL transform_null_equals = off; SET LOCAL extra_float_digits = 1; SET LOCAL bytea_output = hex; SET LOCAL quote_all_identifiers = off;
SELECT t.invoke('t.text', '{}');
SET LOCAL timezone = 'Asia/Tokyo'; SET LOCAL datestyle = 'ISO, DMY'; SET LOCAL standard_conforming_strings = off;
SET LOCAL escape_string_warning = off; SET LOCAL transform_null_equals = on; SET LOCAL extra_float_digits = -14; SET LOCAL bytea_output = escape;
SELECT t.invoke('t.text', '{}');
SET LOCAL quote_all_identifiers = on;
SELECT t.invoke('t.text', '{}');
CREATE SEQUENCE t.numbers;
GRANT ALL ON SEQUENCE t.numbers TO sql_owner;
CREATE FUNCTION t.number(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT to_jsonb(nextval(''numbers''))';
SELECT t.invoke('t.number', '{}');
ALTER SEQUENCE t.numbers RENAME TO older;
CREATE SEQUENCE t.numbers START 100;
GRANT ALL ON SEQUENCE t.numbers TO sql_owner;
SELECT t.invoke('t.number', '{}');
DROP SEQUENCE t.numbers;
SELECT t.invoke('t.number', '{}') ->> 'title' AS dropped;
ROLLBACK;
CREATE FUNCTION t.rows() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM t.written';
CREATE FUNCTION t.plan_rows(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT t.plan_of(t.rows())';
CREATE FUNCTION t.plan_of(n bigint) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RAISE NOTICE '% rows', n;
    RETURN '{"steps": {"w": {"wait": {"signal": "go"}}}}';
END $$;
SELECT sas.grant_usage('sql_owner', 'user'), sas.create_workflow('rows', '{"plan": "t.plan_rows"}');
SELECT sas.grant_workflow('rows', 'sql_owner');
INSERT INTO t.written VALUES ('1');
BEGIN;
SET LOCAL ROLE sql_owner;
SELECT run_id IS NOT NULL AS submitted FROM sas.submit('rows');
RESET ROLE;
ALTER TABLE t.written ENABLE ROW LEVEL SECURITY;
SET LOCAL ROLE sql_owner;
SELECT run_id IS NOT NULL AS submitted FROM sas.submit('rows');
ROLLBACK;
RESET check_function_bodies;
-- another transaction has its own now
SELECT t.invoke('t.one_5', '{}') AS now, t.invoke('t.one_5', '{}') AS again;
SELECT t.invoke('t.one_5', '{}') AS later;

DROP OWNED BY sql_owner;
DROP ROLE sql_owner;

-- SPDX-License-Identifier: PostgreSQL
--
-- Paths of calls: a grant of paths, and the path of base_url, hold for every server that the service may be. Some
-- leave out parameters of a segment, control characters or a second layer of escapes before they look for dots.
\set QUIET on
\pset format unaligned
\pset tuples_only on
\pset pager off
-- no worker sees it
BEGIN;
SELECT no_plan();

CREATE ROLE kp_ann;
SELECT sas.grant_usage('kp_ann', 'user'), sas.create_agent('kp_shop', 'http://127.0.0.1:1/api'), sas.grant_agent('kp_shop', 'kp_ann', '{GET}', '{/orders}') \g /dev/null
-- ok, or the SQLSTATE
CREATE FUNCTION pg_temp.says(statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE statement;
    RETURN 'ok';
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE;
END $$;
CREATE TABLE pg_temp.bad (path text);
INSERT INTO pg_temp.bad VALUES ('/orders/../admin'), ('/orders/%2e%2e/admin'), ('/orders/..%2fadmin'), ('/orders/..;/admin'), ('/orders/..;x=1/admin'), ('/orders/.;/..;/admin'),
    ('/orders/%2E%2e%3b/admin'), ('/orders/..%3Bx/admin'), ('/orders/%252e%252e/admin'), ('/orders/.%25252e/admin'), ('/orders/..%252fadmin'), ('/orders/..%255cadmin'),
    ('/orders/..%00/admin'), ('/orders/..%09/admin'), ('/orders/%0a../admin'), ('/orders/.%0d./admin'), ('/orders/..%20/admin'), ('/orders/..%7f/admin'), ('/orders/..'), ('/orders/..;'), ('/orders/..;?x'),
    ('/orders/..%3fx'), ('/orders/..%23x'), ('/orders/%25%32%65%25%32%65/admin'), ('/orders/%%32%65%%32%65/admin'), ('/orders/%2%65%2%65/admin'), ('/orders/..%25%32%66admin'), ('/orders/..%25%33b/admin'),
    ('/orders/%c0%ae%c0%ae/admin'), ('/orders/..%25c0%25afadmin');
CREATE TABLE pg_temp.good (path text);
INSERT INTO pg_temp.good VALUES ('/orders'), ('/orders/...'), ('/orders/..a'), ('/orders/a..'), ('/orders/;..'), ('/orders/a;..'), ('/orders/%25'), ('/orders/100%25'), ('/orders/a%20b'), ('/orders/1.2;v=3'), ('/orders?x=/../'), ('/orders/%2525'), ('/orders/why%3f..'), ('/orders/see%23.'), ('/orders/..%'), ('/orders/..%25'), ('/orders/%c3%ae');

GRANT SELECT ON pg_temp.bad, pg_temp.good TO kp_ann;

-- as the text of a definition
SET LOCAL ROLE kp_ann;
SELECT is(pg_temp.says(format($$SELECT sas.create_workflow('kp_w', '{"steps": {"a": {"agent": "kp_shop", "call": {"path": %s}}}}')$$, to_jsonb(path))), '22023', 'no definition has the path ' || path) FROM pg_temp.bad;
SELECT is(pg_temp.says(format($$SELECT sas.create_workflow('kp_w', '{"steps": {"a": {"agent": "kp_shop", "call": {"path": %s}}}}')$$, to_jsonb(path))), 'ok', 'but it may have the path ' || path) FROM pg_temp.good;

-- as a value: nothing is sent
SELECT sas.create_workflow('kp_v', '{"steps": {"a": {"agent": "kp_shop", "call": {"path": "{{input.path}}"}}}, "on_failure": "fail"}') \g /dev/null
SELECT sas.stub('kp_shop', '200') \g /dev/null
SELECT is((SELECT result FROM sas.run_inline('kp_v', jsonb_build_object('path', path))), 'error', 'nor has a run: ' || path) FROM pg_temp.bad;
SELECT is((SELECT result FROM sas.run_inline('kp_v', jsonb_build_object('path', 'http://127.0.0.1:1/api' || path))), 'error', 'nor as a whole address: ' || path) FROM pg_temp.bad;
SELECT is((SELECT result FROM sas.run_inline('kp_v', jsonb_build_object('path', path))), 'error', 'nor one that begins with two slashes: ' || path) FROM unnest('{//orders,//evil/orders,http://127.0.0.1:1/api//orders}'::text[]) path;
SELECT is((SELECT count(*) FROM sas.stubbed_calls()), 0::bigint, 'no call was made');
SELECT is((SELECT result FROM sas.run_inline('kp_v', jsonb_build_object('path', path))), 'success', 'but a run may have the path ' || path) FROM pg_temp.good;
-- as one segment
SELECT sas.create_workflow('kp_s', '{"steps": {"a": {"agent": "kp_shop", "call": {"path": "/orders/{{input.x}}/lines"}}}, "on_failure": "fail"}') \g /dev/null
SELECT is((SELECT result FROM sas.run_inline('kp_s', jsonb_build_object('x', x))), 'error', 'nor does a value become a dot segment: ' || x) FROM unnest('{..;,..;a=b,%2e%2e,%252e.,%25%32%65.,../x,..}'::text[]) x;
SELECT is((SELECT result FROM sas.run_inline('kp_s', jsonb_build_object('x', E'..\t'))), 'error', 'nor one with a control character');
SELECT is((SELECT result FROM sas.run_inline('kp_s', jsonb_build_object('x', x))), 'success', 'but it may be ' || x) FROM unnest('{a;b,100%,...,a/b,a..,why?..,see #.}'::text[]) x;
RESET ROLE;

-- but a base_url may begin so
SELECT sas.create_agent('cp_odd', 'http://127.0.0.1:1//api'), sas.stub('cp_odd', '200') \g /dev/null
SELECT sas.create_workflow('cp_odd', '{"steps": {"a": {"agent": "cp_odd", "call": {"path": "{{input.path}}"}}}, "on_failure": "fail"}') \g /dev/null
SELECT is((SELECT result FROM sas.run_inline('cp_odd', jsonb_build_object('path', path))), 'success', 'what is below a base_url with two slashes is reached: ' || path) FROM unnest('{/x,http://127.0.0.1:1//api/x}'::text[]) path;

-- and in a grant
SELECT is(pg_temp.says(format('SELECT sas.grant_agent(''kp_shop'', ''kp_ann'', paths => ARRAY[%L])', path)), '22023', 'no grant has the path ' || path) FROM pg_temp.bad WHERE path !~ '[?]';

SELECT * FROM finish();
ROLLBACK;

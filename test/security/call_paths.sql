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
    ('/orders/%c0%ae%c0%ae/admin'), ('/orders/..%25c0%25afadmin'),
    -- other overlong UTF-8, also with a last byte that is none; what is not UTF-8 may be left out
    ('/orders/..%c1%9cadmin'), ('/orders/..%e0%80%afadmin'), ('/orders/%e0%80%ae%e0%80%ae/admin'), ('/orders/..%e0%81%9cadmin'), ('/orders/%f0%80%80%ae./admin'), ('/orders/..%c0%2fadmin'),
    ('/orders/..%c1%1cadmin'), ('/orders/..%ff/admin'), ('/orders/.%c3./admin'), ('/orders/..%25e0%2580%25afadmin'),
    -- escapes of Unicode, and characters that it has beside a dot and a slash
    ('/orders/%u002e%u002e/admin'), ('/orders/..%u005cadmin'), ('/orders/..%U002fadmin'), ('/orders/%u002e%2e/admin'), ('/orders/%25u002e./admin'), ('/orders/..%uff0fadmin'), ('/orders/%ef%bc%8e%ef%bc%8e/admin'),
    ('/orders/..%ef%bc%8fadmin'), ('/orders/..%ef%bc%bcadmin'), ('/orders/%e2%80%a5/admin'), ('/orders/%e2%80%a4%e2%80%a4/admin'), ('/orders/..／admin'), ('/orders/．．/admin');
CREATE TABLE pg_temp.good (path text);
INSERT INTO pg_temp.good VALUES ('/orders'), ('/orders/...'), ('/orders/..a'), ('/orders/a..'), ('/orders/;..'), ('/orders/a;..'), ('/orders/%25'), ('/orders/100%25'), ('/orders/a%20b'), ('/orders/1.2;v=3'), ('/orders?x=/../'), ('/orders/%2525'), ('/orders/why%3f..'), ('/orders/see%23.'), ('/orders/..%'), ('/orders/..%25'), ('/orders/%c3%ae'), ('/orders/..%c3%a9'), ('/orders/%e2%82%ac..'), ('/orders/%f0%9f%98%80.'), ('/orders/%u12'), ('/orders/..%ef%bc%8d'), ('/orders/a／b'), ('/orders/..%u00e9');

GRANT SELECT ON pg_temp.bad, pg_temp.good TO kp_ann;

-- as the text of a definition
SET LOCAL SESSION AUTHORIZATION kp_ann;
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
RESET SESSION AUTHORIZATION;

-- where a service takes another method or path from: a grant of methods, or of paths, does not allow it
SELECT sas.create_agent('kp_get', 'http://127.0.0.1:1'), sas.grant_agent('kp_get', 'kp_ann', '{GET,POST}'), sas.create_agent('kp_below', 'http://127.0.0.1:1'), sas.grant_agent('kp_below', 'kp_ann', paths => '{/orders}'),
       sas.create_agent('kp_all', 'http://127.0.0.1:1'), sas.grant_agent('kp_all', 'kp_ann') \g /dev/null
CREATE TABLE pg_temp.other (part text, of_method boolean, of_path boolean);
INSERT INTO pg_temp.other
SELECT format('"headers": {%s: "DELETE"}', to_jsonb(h)), true, false FROM unnest('{X-HTTP-Method-Override,x-http-method,X_Http_Method_Override,X-METHOD-OVERRIDE}'::text[]) h
UNION ALL SELECT format('"headers": {%s: "/admin"}', to_jsonb(h)), false, true FROM unnest('{X-Original-URL,x-rewrite-url,X_Original_URI,X-Forwarded-Uri}'::text[]) h
UNION ALL SELECT format('%s: {%s: "DELETE"}', to_jsonb(k), to_jsonb(p)), true, false FROM unnest('{query,form}'::text[]) k, unnest('{_method,_METHOD,.method,[method,"  _method",_method[x}'::text[]) p
UNION ALL SELECT format('"path": %s', to_jsonb('/orders' || p)), true, false
FROM unnest(string_to_array('?_method=DELETE ?a=b&_method={{input.m}} ?%5fmethod=DELETE ?a;_Method=x ?%5F%6D%65%74%68%6F%64=x ?.method=x ?+_method=x ?%20%2emethod=x', ' ')) p
UNION ALL SELECT o, false, false FROM unnest(ARRAY['"path": "/orders?method=x"', '"path": "/orders/_method"', '"path": "/orders", "query": {"method": "x", "a_method": "x"}', '"path": "/orders", "headers": {"X-Method": "x", "X-Original": "y"}']) o;
GRANT SELECT ON pg_temp.other TO kp_ann;
CREATE FUNCTION pg_temp.defines(agent text, call text) RETURNS text LANGUAGE sql AS $$
    SELECT pg_temp.says(format('SELECT sas.create_workflow(''kp_o'', ''{"steps": {"a": {"agent": "%s", %s}}}'')', agent, call)) $$;
SET LOCAL SESSION AUTHORIZATION kp_ann;
SELECT is(pg_temp.defines(agent, format(form, CASE WHEN part LIKE '"path"%' THEN part ELSE '"path": "/orders", ' || part END)), CASE WHEN refused THEN '42501' ELSE 'ok' END,
          format('%s, who has methods, paths or all of an agent (%s): %s', CASE WHEN refused THEN 'refused' ELSE 'allowed' END, agent, format(form, part)))
FROM pg_temp.other, LATERAL (VALUES ('kp_get', of_method), ('kp_below', of_path), ('kp_all', false)) a (agent, refused),
     unnest(ARRAY['"call": {%s}', '"call": {"path": "/orders"}, "undo": {"call": {%s}}', '"call": {"path": "/orders"}, "poll": {"until": "$.output.status == 200", "call": {%s}}',
                  '"call": {"path": "/orders"}, "fallback": {"call": {%s}}']) form
WHERE NOT (form LIKE '%undo%' AND part LIKE '%{{input.m}}%');
SELECT is(pg_temp.says(format('SELECT sas.create_watcher(''kp_watcher'', ''{"agent": "kp_get", %s, "items": {"workflow": "kp_o"}}'')', look)), '42501', 'nor does a watcher: ' || look)
FROM unnest(ARRAY['"stream": {"format": "sse", "headers": {"X-HTTP-Method-Override": "DELETE"}}', '"poll": {"call": {"query": {"_method": "DELETE"}}, "every": "1 s"}']) look;
SELECT is(pg_temp.defines('kp_get', '"call": {"path": "/orders"}, "undo": {"call": {"path": "{{input.path}}"}}'), '42501', 'nor does an undo by a path that is one whole reference, which nobody looks at later');
-- as a value: nothing is sent
SELECT sas.create_workflow('kp_m', '{"steps": {"a": {"agent": "kp_get", "call": {"path": "{{input.path}}"}}}, "on_failure": "fail"}') \g /dev/null
SELECT sas.stub('kp_get', '200') \g /dev/null
SELECT is((SELECT result FROM sas.run_inline('kp_m', jsonb_build_object('path', path))), CASE WHEN path LIKE '/orders%' THEN 'success' ELSE 'error' END, 'a path that is known at the claim only: ' || path)
FROM unnest('{/orders?a=b,/?_method=DELETE,/x?a=b&%5Fmethod=DELETE,http://127.0.0.1:1/?_method=DELETE}'::text[]) path;
RESET SESSION AUTHORIZATION;

-- but a base_url may begin so
SELECT sas.create_agent('cp_odd', 'http://127.0.0.1:1//api'), sas.stub('cp_odd', '200') \g /dev/null
SELECT sas.create_workflow('cp_odd', '{"steps": {"a": {"agent": "cp_odd", "call": {"path": "{{input.path}}"}}}, "on_failure": "fail"}') \g /dev/null
SELECT is((SELECT result FROM sas.run_inline('cp_odd', jsonb_build_object('path', path))), 'success', 'what is below a base_url with two slashes is reached: ' || path) FROM unnest('{/x,http://127.0.0.1:1//api/x}'::text[]) path;

-- and in a grant
SELECT is(pg_temp.says(format('SELECT sas.grant_agent(''kp_shop'', ''kp_ann'', paths => ARRAY[%L])', path)), '22023', 'no grant has the path ' || path) FROM pg_temp.bad WHERE path !~ '[?]';

SELECT * FROM finish();
ROLLBACK;

-- SPDX-License-Identifier: PostgreSQL
--
-- Concurrency keys of scope all: roles that may submit the same workflow of an admin share its keys. They wait for each
-- other. No submit cancels, changes or shows the run of another role.
\ir ../lib/login.sql
SELECT no_plan();

CREATE ROLE sl_ann LOGIN; CREATE ROLE sl_bob LOGIN; CREATE ROLE sl_adm LOGIN; CREATE ROLE sl_of_ann LOGIN IN ROLE sl_ann;
SELECT sas.grant_usage(r::regrole, CASE r WHEN 'sl_adm' THEN 'admin' ELSE 'user' END) FROM unnest('{sl_ann,sl_bob,sl_adm,sl_of_ann}'::text[]) r \g /dev/null
SELECT sas.create_workflow('sl_' || o, jsonb_build_object('steps', '{"w": {"wait": {"signal": "go"}}}'::jsonb, 'concurrency', jsonb_build_object('key', 'k' || o, 'scope', 'all', 'overlap', o)))
FROM unnest('{replace,once_more,return}'::text[]) o \g /dev/null
CREATE FUNCTION pg_temp.submits(who text, o text, input jsonb DEFAULT '{}', OUT run_id bigint, OUT created boolean) LANGUAGE sql AS $$
    SELECT (regexp_match(x.said, '^\(([0-9]+),'))[1]::bigint, x.said LIKE '%,t)'
    FROM login.as_role(who, format('SELECT s FROM sas.submit(%L, %L) s', 'sl_' || o, input)) x $$;
-- what is to be cancelled
CREATE FUNCTION pg_temp.replaced() RETURNS bigint[] LANGUAGE sql AS $$ SELECT coalesce(array_agg(m.run_id ORDER BY m.run_id), '{}') FROM _sas.message m WHERE m.kind = 'replace' $$;

SELECT is((login.as_role('sl_ann', format($$SELECT sas.create_workflow('sl_anns', '{"steps": {}, "concurrency": {"key": "k", "scope": "%s"}}')$$, s))).code, code, format('a user has a key of scope %s: %s', s, code))
FROM (VALUES ('all', '42501'), ('owner', 'ok')) v (s, code);
SELECT run_id AS ann FROM pg_temp.submits('sl_ann', 'replace') \gset
SELECT run_id AS bob FROM pg_temp.submits('sl_bob', 'replace') \gset
SELECT is(pg_temp.replaced(), '{}', 'a user''s run does not replace that of another user');
SELECT run_id AS adm FROM pg_temp.submits('sl_adm', 'replace') \gset
SELECT is(pg_temp.replaced(), '{}', 'nor does an admin''s');
SELECT run_id AS boss FROM sas.submit('sl_replace') \gset
SELECT is(pg_temp.replaced(), ARRAY[:ann, :bob, :adm]::bigint[], 'a superuser''s does, since a superuser may cancel them');
DELETE FROM _sas.message m WHERE m.kind = 'replace';
SELECT run_id AS bob2 FROM pg_temp.submits('sl_bob', 'replace') \gset
SELECT is(pg_temp.replaced(), ARRAY[:bob]::bigint[], 'a user''s run replaces its own, and not those of a superuser and others that are in the way as well');
DELETE FROM _sas.message m WHERE m.kind = 'replace';
SELECT run_id AS member FROM pg_temp.submits('sl_of_ann', 'replace') \gset
SELECT is(pg_temp.replaced(), ARRAY[:ann]::bigint[], 'and those of roles that it is a member of');

SELECT run_id AS ann FROM pg_temp.submits('sl_ann', 'once_more', '{"n": 1}') \gset
SELECT run_id AS ann2 FROM pg_temp.submits('sl_ann', 'once_more', '{"n": 2}') \gset
SELECT ok(created AND run_id <> :ann2, 'a user''s run is one of its own, though another user''s waits already') FROM pg_temp.submits('sl_bob', 'once_more', '{"n": 3}');
SELECT is((SELECT array_agg(r.input ->> 'n' ORDER BY r.run_id) FROM sas.runs r WHERE r.run_id IN (:ann, :ann2)), '{1,2}', 'and gives no other run an input');

SELECT run_id AS ann FROM pg_temp.submits('sl_ann', 'return', '{"n": 1}') \gset
SELECT is(s::text, format('(%s,f)', :ann), 'where the workflow says so, a submit tells that another run is open') FROM pg_temp.submits('sl_bob', 'return') s;
SELECT is((login.as_role('sl_bob', format('SELECT count(*) FROM sas.runs r WHERE r.run_id = %s', :ann))).said, '0', 'and no more of it');

SELECT * FROM finish();

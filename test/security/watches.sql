-- SPDX-License-Identifier: PostgreSQL
--
-- Infinite tasks and reply queues, by the rights of who starts a task, or reads: a watcher of a superuser, which every
-- user may use, lends nobody its function, its table, its workflow or its agent. Members of a role read its replies.
\ir ../lib/login.sql
SELECT no_plan();

CREATE ROLE wa_ann LOGIN; CREATE ROLE wa_bob LOGIN; CREATE ROLE wa_mate LOGIN IN ROLE wa_ann;
SELECT sas.grant_usage(r, 'user') FROM unnest('{wa_ann,wa_bob,wa_mate}'::regrole[]) r \g /dev/null
SELECT sas.create_agent('wa_away', kind => 'external'), sas.create_agent('wa_feed', 'http://127.0.0.1:1') \g /dev/null
CREATE SCHEMA wa; CREATE SCHEMA wa_open; GRANT USAGE ON SCHEMA wa_open TO PUBLIC;
CREATE FUNCTION wa.act(items jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT items $$;
CREATE FUNCTION wa_open.act(items jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT items $$;
CREATE FUNCTION wa_open.kept(items jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT items $$;
REVOKE EXECUTE ON FUNCTION wa_open.kept(jsonb) FROM PUBLIC;
CREATE TABLE wa_open.item (item jsonb);
SELECT sas.create_workflow('wa_w', '{"steps": {}}') \g /dev/null
SELECT sas.create_watcher('wa_' || n, d) FROM (VALUES
    ('runs', '{"function": "wa.act", "every": "1 h"}'::jsonb), ('kept', '{"function": "wa_open.kept", "every": "1 h"}'), ('passes', '{"agent": "wa_away", "external": {}, "items": {"function": "wa.act"}}'),
    ('fills', '{"agent": "wa_away", "external": {}, "items": {"table": "wa_open.item"}}'), ('submits', '{"agent": "wa_away", "external": {}, "items": {"workflow": "wa_w"}}'),
    ('asks', '{"agent": "wa_feed", "poll": {"call": {"path": "/x"}, "every": "1 h"}, "items": {"function": "wa_open.act"}}'), ('free', '{"function": "wa_open.act", "every": "1 h"}')) v (n, d) \g /dev/null
-- done, or the SQLSTATE and the place
CREATE FUNCTION pg_temp.watches(who text, watcher text) RETURNS text LANGUAGE sql AS $$
    SELECT CASE x.code WHEN 'ok' THEN 'done' ELSE x.code || ' ' || x.place END
    FROM login.as_role(who, format('SELECT watch_id FROM sas.watch(%L, %L)', watcher, who), keep => false) x $$;

SELECT is(pg_temp.watches('wa_bob', 'wa_free'), 'done', 'a user starts a task of a watcher of a superuser');
SELECT is(pg_temp.watches('wa_bob', 'wa_' || w), said, 'but none that uses what it may not: wa_' || w)
FROM (VALUES ('runs', '42501 At /watcher.'), ('kept', '42501 At /watcher.'), ('passes', '42501 At /items/function.'), ('fills', '42501 At /items/table.'),
             ('asks', '42501 At /poll/call.')) v (w, said);
GRANT USAGE ON SCHEMA wa TO wa_bob; GRANT EXECUTE ON FUNCTION wa_open.kept(jsonb) TO wa_bob; GRANT INSERT ON wa_open.item TO wa_bob;
SELECT sas.grant_agent(a, 'wa_bob') FROM unnest('{wa_away,wa_feed}'::text[]) a \g /dev/null
SELECT is(pg_temp.watches('wa_bob', 'wa_' || w), 'done', 'and one when it may: wa_' || w) FROM unnest('{runs,kept,passes,fills,submits,asks}'::text[]) w;

-- a workflow that its owner has not granted
SELECT code FROM login.as_role('wa_ann', $$SELECT sas.create_workflow('wa_anns', '{"steps": {}}')$$) \g /dev/null
UPDATE _sas.watcher SET target = 'wa_anns' WHERE name = 'wa_submits';
SELECT is(pg_temp.watches('wa_bob', 'wa_submits'), '42501 At /items/workflow.', 'nor one whose items become runs of a workflow that it may not submit');
SELECT code FROM login.as_role('wa_ann', $$SELECT sas.grant_workflow('wa_anns', 'wa_bob')$$) \g /dev/null
SELECT is(pg_temp.watches('wa_bob', 'wa_submits'), 'done', 'until it is granted');

-- verbs
SELECT code FROM login.as_role('wa_ann', $$SELECT watch_id FROM sas.watch('wa_free', 'k')$$) \g /dev/null
SELECT is((login.as_role('wa_bob', format('SELECT refused FROM sas.%s(''wa_free'', ''{k}'')', verb))).said, 'task "k" does not exist, or is not yours', 'another user does not ' || verb)
FROM unnest('{pause_watch,resume_watch,unwatch}'::text[]) verb;
SELECT is((login.as_role('wa_mate', 'SELECT changed FROM sas.pause_watch(''wa_free'', ''{k}'')')).said, 'true', 'a member of its owner does');

-- replies
SELECT x.code FROM unnest('{a,b}'::text[]) k, LATERAL login.as_role('wa_ann', format($$SELECT run_id FROM sas.submit('wa_w', reply_to => 'wa_queue', key => %L)$$, k)) x \g /dev/null
SELECT code FROM login.as_role('wa_mate', $$SELECT run_id FROM sas.submit('wa_w', reply_to => 'wa_queue', key => 'mate')$$) \g /dev/null
DO $$ BEGIN FOR n IN 1 .. 4 LOOP PERFORM FROM _sas.scheduler_tick(100); PERFORM FROM _sas.supervisor_tick(1, '{1}', 1, 100); END LOOP; END $$;
SELECT is((login.as_role(who, $$SELECT string_agg(DISTINCT key, ' ') FROM sas.read_replies('wa_queue', 10)$$, keep => false)).said, said, format('%s reads the replies of %s', who, coalesce(said, 'nobody')))
FROM (VALUES ('wa_bob', NULL), ('wa_ann', 'a b'), ('wa_mate', 'a b mate')) v (who, said);

SELECT * FROM finish();

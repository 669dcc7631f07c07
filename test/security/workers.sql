-- SPDX-License-Identifier: PostgreSQL
--
-- Outside programs whose role loses the right to work for an agent: a node that it registered before gives it nothing
-- of this agent any more.
\ir ../lib/login.sql
SELECT no_plan();

CREATE ROLE sw_group LOGIN; CREATE ROLE sw_prog LOGIN IN ROLE sw_group; CREATE ROLE sw_ann LOGIN; CREATE ROLE sw_other LOGIN;
SELECT sas.create_agent('sw_mail', kind => 'external'), sas.create_agent('sw_print', kind => 'external') \g /dev/null
SELECT sas.grant_usage('sw_group', 'worker', 'sw_mail'), sas.grant_usage('sw_prog', 'worker', 'sw_print'), sas.grant_usage('sw_other', 'worker', 'sw_print'), sas.grant_usage('sw_ann', 'user'), sas.grant_agent('sw_mail', 'sw_ann') \g /dev/null
CREATE TABLE public.sw_item (item jsonb); GRANT INSERT ON public.sw_item TO sw_ann;
-- what it gets, or the SQLSTATE
CREATE FUNCTION pg_temp.says(who text, statement text) RETURNS text LANGUAGE sql AS $$
    SELECT CASE WHEN set_config('sw.error', coalesce(x.message, ''), false) IS NOT NULL THEN coalesce(nullif(x.code, 'ok'), x.said) END FROM login.as_role(who, statement) x $$;

SELECT pg_temp.says('sw_ann', $$SELECT sas.create_watcher('sw_watcher', '{"agent": "sw_mail", "external": {}, "items": {"table": "public.sw_item"}}')$$) \g /dev/null
SELECT pg_temp.says('sw_ann', $$SELECT sas.watch('sw_watcher', k, '{"payload": "ann"}') FROM unnest('{a,b}'::text[]) k$$) \g /dev/null
SELECT pg_temp.says('sw_ann', $$SELECT sas.watch('sw_watcher', 'b', '{"payload": "ann"}')$$) \g /dev/null
SELECT pg_temp.says('sw_prog', $$SELECT sas.register_node('sw_node', 10, '{sw_mail,sw_print}', lease => '1 h', by_connection => false)$$) AS node \gset
SELECT is(pg_temp.says('sw_prog', format('SELECT input::text FROM sas.claim_watchers(%s, 1)', :node)), '{"payload": "ann"}', 'a program that works for an agent claims a task with its input');
SELECT is(pg_temp.says('sw_other', format('SELECT sas.append_items(%s, %s, ''[1]'')', watch_id, epoch)), '42501', 'no items are taken from another program') FROM _sas.watch_held WHERE node_id = :node;
SELECT unalike(current_setting('sw.error'), '%sw_mail%', 'nor is it told the agent');
REVOKE sw_group FROM sw_prog;
SELECT watch_id, epoch FROM _sas.watch_held WHERE node_id = :node \gset held_
SELECT is(pg_temp.says('sw_prog', format('SELECT input::text FROM sas.claim_watchers(%s, 1)', :node)), NULL, 'when its role may not any more, it claims none');
SELECT is(pg_temp.says('sw_prog', format('SELECT sas.append_items(%s, %s, ''[1]'')', :held_watch_id, :held_epoch)), '42501', 'nor are items taken from it');
SELECT is(pg_temp.says('sw_prog', format('SELECT (watch_id, news, request)::text FROM sas.heartbeat_node(%s)', :node)), format('(%s,lost,)', :held_watch_id), 'its node goes on for the other agent, without the task');
SELECT is((SELECT count(*) FROM _sas.watch_held WHERE node_id = :node), 0::bigint, 'which waits for another node');
SELECT is(pg_temp.says('sw_prog', format('SELECT sas.append_items(%s, %s, ''[1]'')', :held_watch_id, :held_epoch)), 'lost', 'and whose items are not taken from it');
SELECT is((SELECT count(*) FROM public.sw_item), 0::bigint, 'none has come');
SELECT is(pg_temp.says('sw_prog', $$SELECT sas.register_node('sw_other', 10, '{sw_mail}')$$), '42501', 'nor does it register another one');
SELECT is(pg_temp.says('sw_prog', format('SELECT sas.leave_node(%s)', :node)), 'true', 'it may leave');
SELECT isnt(pg_temp.says('sw_prog', $$SELECT sas.register_node('sw_node', 10, '{sw_print}')$$), '42501', 'and work for the agent that it still may work for');

-- nor does it go on with a task whose owner has lost the right to use the agent
GRANT sw_group TO sw_prog;
SELECT pg_temp.says('sw_prog', $$SELECT sas.register_node('sw_again', 10, '{sw_mail}', lease => '1 h', by_connection => false)$$) AS node \gset
SELECT pg_temp.says('sw_prog', format('SELECT watch_id FROM sas.claim_watchers(%s, 1)', :node)) AS watch \gset
SELECT sas.revoke_agent('sw_mail', 'sw_ann') \g /dev/null
SELECT is(pg_temp.says('sw_prog', format('SELECT (watch_id, news, request)::text FROM sas.heartbeat_node(%s)', :node)), format('(%s,lost,)', :watch), 'a task whose owner may not use the agent any more is taken from it');
SELECT is((SELECT w.last_error ->> 'type' FROM sas.watches w WHERE w.watch_id = :watch), 'urn:sas:sqlstate:42501', 'with the reason');

SELECT * FROM finish();

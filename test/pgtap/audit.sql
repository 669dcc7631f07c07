-- SPDX-License-Identifier: PostgreSQL
--
-- sas.history has a row of each verb that changes something: who, when, from where, from what to what, and no
-- value that is secret.
\set QUIET on
\pset format unaligned
\pset tuples_only on
\pset pager off
SELECT no_plan();

CREATE ROLE au_adm; CREATE ROLE au_mon; CREATE ROLE au_team;
SELECT sas.grant_usage('au_adm', 'admin'), sas.grant_usage('au_mon', 'monitor') \g /dev/null
CREATE FUNCTION public.au_around(context jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT $1';
SET application_name = 'audit test';

-- the rows that a statement of a role leaves, as act and detail; what it did stays
CREATE FUNCTION pg_temp.leaves(statement text, who text DEFAULT 'au_adm') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    told text;
BEGIN
    CREATE TEMP TABLE before AS SELECT h.ctid AS place FROM _sas.operator_action h;
    EXECUTE format('SET LOCAL ROLE %I', who);
    EXECUTE statement;
    RESET ROLE;
    SELECT string_agg(concat_ws(' ', h.act, h.step, h.detail), '; ') INTO told
    FROM _sas.operator_action h WHERE h.ctid NOT IN (SELECT place FROM before) AND h.role = who;
    DROP TABLE before;
    RETURN coalesce(told, 'nothing');
END $$;

-- agents, secrets
SELECT is(pg_temp.leaves($$SELECT sas.set_secret('au_key', 'canary-value')$$), 'set_secret {"secret": "au_key", "changed": false}', 'a secret by its name');
SELECT is(pg_temp.leaves($$SELECT sas.set_secret('au_key', 'canary-other')$$), 'set_secret {"secret": "au_key", "changed": true}', 'and that it was there before');
SELECT is(pg_temp.leaves($$SELECT sas.create_agent('au_pay', 'http://localhost:9', headers => '{"X-Key": "canary-header"}', rate_limit => '5/s')$$),
          'create_agent {"to": {"kind": "http", "retry": {}, "breaker": {}, "enabled": true, "headers": "***", "options": {}, "base_url": "http://localhost:9", "rate_limit": "5/s", "max_in_flight": 100, "request_timeout": "00:00:30"}, "agent": "au_pay"}',
          'a new agent');
SELECT is(pg_temp.leaves($$SELECT sas.create_agent('au_pay', 'http://localhost:10', headers => '{"X-Key": "canary-again"}')$$),
          'create_agent {"to": {"headers": "***", "base_url": "http://localhost:10", "rate_limit": null}, "from": {"headers": "***", "base_url": "http://localhost:9", "rate_limit": "5/s"}, "agent": "au_pay"}',
          'one over an existing one: from what to what');
SELECT is(pg_temp.leaves($$SELECT sas.alter_agent('au_pay', max_in_flight => 7)$$), 'alter_agent {"to": {"max_in_flight": 7}, "from": {"max_in_flight": 100}, "agent": "au_pay"}', 'an altered one');
SELECT is(pg_temp.leaves($$SELECT sas.pause_agent('au_pay')$$), 'pause_agent {"agent": "au_pay"}', 'a paused one');
SELECT is(pg_temp.leaves($$SELECT sas.resume_agent('au_pay')$$), 'resume_agent {"agent": "au_pay"}', 'a resumed one');
SELECT is(pg_temp.leaves($$SELECT sas.reset_agent('au_pay')$$), 'reset_agent {"agent": "au_pay"}', 'a reset one');
SELECT is(pg_temp.leaves($$SELECT sas.grant_agent('au_pay', 'au_team', '{GET}')$$), 'grant_agent {"role": "au_team", "agent": "au_pay", "methods": ["GET"]}', 'a granted one');
SELECT is(pg_temp.leaves($$SELECT sas.grant_agent('au_pay', 'au_team', paths => '{/a}')$$), 'grant_agent {"from": {"paths": null, "methods": ["GET"]}, "role": "au_team", "agent": "au_pay", "paths": ["/a"]}', 'in place of an earlier grant');
SELECT is(pg_temp.leaves($$SELECT sas.revoke_agent('au_pay', 'au_team')$$), 'revoke_agent {"from": {"paths": ["/a"], "methods": null}, "role": "au_team", "agent": "au_pay"}', 'and taken back');

-- workflows, subscriptions, middleware, queues
SELECT is(pg_temp.leaves($$SELECT sas.create_queue('au_line', 3)$$), 'create_queue {"to": {"max_running": 3}, "queue": "au_line"}', 'a queue');
SELECT is(pg_temp.leaves($$SELECT sas.create_queue('au_line', 4)$$), 'create_queue {"to": {"max_running": 4}, "from": {"max_running": 3}, "queue": "au_line"}', 'over an existing one');
SELECT is(pg_temp.leaves($$SELECT sas.alter_queue('au_line', 5)$$), 'alter_queue {"to": {"max_running": 5}, "from": {"max_running": 4}, "queue": "au_line"}', 'an altered one');
SELECT is(pg_temp.leaves($$SELECT sas.pause_queue('au_line')$$), 'pause_queue {"queue": "au_line"}', 'a paused one');
SELECT is(pg_temp.leaves($$SELECT sas.resume_queue('au_line')$$), 'resume_queue {"queue": "au_line"}', 'a resumed one');
SELECT is(pg_temp.leaves($$SELECT sas.create_workflow('au_a', '{"steps": {"x": {"agent": "au_pay", "call": {}}}}')$$), 'create_workflow {"to": {"version": 1}, "workflow": "au_a"}', 'a workflow');
SELECT is(pg_temp.leaves($$SELECT sas.create_workflow('au_a', '{"steps": {"y": {"agent": "au_pay", "call": {}}}}')$$), 'create_workflow {"to": {"version": 2}, "from": {"version": 1}, "workflow": "au_a"}', 'a new version');
SELECT sas.create_workflow('au_b', '{"steps": {"z": {"agent": "au_pay", "call": {}}}}') \g /dev/null
SELECT is(pg_temp.leaves($$SELECT sas.grant_workflow('au_a', 'au_team')$$), 'grant_workflow {"role": "au_team", "future": false, "version": 2, "workflow": "au_a"}', 'a grant');
SELECT is(pg_temp.leaves($$SELECT sas.grant_workflow('au_a', 'au_team', future => true)$$), 'grant_workflow {"from": {"future": false}, "role": "au_team", "future": true, "version": 2, "workflow": "au_a"}', 'in place of an earlier one');
SELECT sas.grant_workflow('au_a', 'au_team', 1) \g /dev/null
SELECT is(pg_temp.leaves($$SELECT sas.revoke_workflow('au_a', 'au_team')$$), 'revoke_workflow {"from": {"future": [2], "versions": [1, 2]}, "role": "au_team", "workflow": "au_a"}', 'taken back');
SELECT is(pg_temp.leaves($$SELECT sas.pause_workflow('au_a')$$), 'pause_workflow {"workflow": "au_a"}', 'paused');
SELECT is(pg_temp.leaves($$SELECT sas.resume_workflow('au_a')$$), 'resume_workflow {"workflow": "au_a"}', 'resumed');
SELECT is(pg_temp.leaves($$SELECT sas.create_workflow('au_c', '{"steps": {"c": {"agent": "au_pay", "call": {}}}}')$$), 'create_workflow {"to": {"version": 1}, "workflow": "au_c"}', 'a third');
SELECT is(pg_temp.leaves($$SELECT sas.subscribe('au_a', 'au_c')$$), 'subscribe {"to": {"input": "{{input}}"}, "workflow": "au_a", "to_workflow": "au_c"}', 'a subscription');
SELECT is(pg_temp.leaves($$SELECT sas.subscribe('au_a', 'au_c', '{"n": 1}')$$), 'subscribe {"to": {"input": {"n": 1}}, "from": {"input": "{{input}}"}, "workflow": "au_a", "to_workflow": "au_c"}', 'with another input');
SELECT is(pg_temp.leaves($$SELECT sas.distribute_keys('au_a', NULL)$$), 'distribute_keys {"workflow": "au_a"}', 'keys that follow no table');
SELECT is(pg_temp.leaves($$SELECT sas.unsubscribe('au_a', 'au_c')$$), 'unsubscribe {"from": {"input": {"n": 1}}, "workflow": "au_a", "to_workflow": "au_c"}', 'ended');
SELECT is(pg_temp.leaves($$SELECT sas.drop_workflow('au_c')$$), 'drop_workflow {"from": {"version": 1}, "workflow": "au_c"}', 'a dropped workflow');
SELECT is(pg_temp.leaves($$SELECT sas.create_middleware('au_m', 'call', before => 'public.au_around(jsonb)')$$),
          'create_middleware {"to": {"before": "public.au_around", "goes_after": [], "goes_before": []}, "phase": "call", "middleware": "au_m"}', 'middleware');
SELECT is(pg_temp.leaves($$SELECT sas.create_middleware('au_m', 'call', after => 'public.au_around(jsonb)')$$),
          'create_middleware {"to": {"after": "public.au_around", "before": null}, "from": {"after": null, "before": "public.au_around"}, "phase": "call", "middleware": "au_m"}', 'over an existing one');
SELECT is(pg_temp.leaves($$SELECT sas.drop_middleware('au_m')$$),
          'drop_middleware {"from": {"after": "public.au_around", "goes_after": [], "goes_before": []}, "phase": "call", "middleware": "au_m"}', 'dropped');

-- runs: what the verb has changed
SET ROLE au_adm;
SELECT run_id AS run FROM sas.submit('au_a', priority => 3, start_at => '2030-01-01 00:00+00') \gset
RESET ROLE;
SELECT is(pg_temp.leaves(format('SELECT sas.set_priority(%s, 7)', :run)), 'set_priority {"from": 3, "priority": 7}', 'a priority');
SELECT is(pg_temp.leaves(format('SELECT sas.set_start_at(%s, ''2030-01-02 00:00+00'')', :run)), 'set_start_at {"from": "2030-01-01T00:00:00+00:00", "start_at": "2030-01-02T00:00:00+00:00"}', 'a start');
SELECT sas.halt(:run) \g /dev/null

-- schedules, infinite tasks
SELECT is(pg_temp.leaves($$SELECT sas.schedule('au_s', '0 4 * * *', 'au_a', '{"card": "canary-input"}')$$) LIKE
          'schedule {"to": {"spec": "0 4 * * *", "input": "***", %, "schedule": "au_s"}', true, 'a schedule, without its input');
SELECT is(pg_temp.leaves($$SELECT sas.schedule('au_s', '0 5 * * *', 'au_a', '{"card": "canary-next"}')$$),
          'schedule {"to": {"spec": "0 5 * * *", "input": "***"}, "from": {"spec": "0 4 * * *", "input": "***"}, "schedule": "au_s"}', 'over an existing one');
SELECT is(pg_temp.leaves($$SELECT sas.pause_schedule('au_s', '')$$), 'pause_schedule {"schedule": "au_s"}', 'an empty reason is none');
SELECT is((SELECT paused_reason FROM sas.schedules WHERE name = 'au_s'), NULL, 'nor does the schedule show it');
SELECT sas.resume_schedule('au_s') \g /dev/null
SELECT is(pg_temp.leaves($$SELECT sas.pause_schedule('au_s', 'because')$$), 'pause_schedule {"reason": "because", "schedule": "au_s"}', 'paused');
SELECT is(pg_temp.leaves($$SELECT sas.resume_schedule('au_s')$$), 'resume_schedule {"schedule": "au_s"}', 'resumed');
SELECT is(pg_temp.leaves($$SELECT sas.unschedule('au_s')$$) LIKE 'unschedule {"from": {"spec": "0 5 * * *", "input": "***", %}, "schedule": "au_s"}', true, 'dropped, with what it was');
SELECT is(pg_temp.leaves($$SELECT sas.create_watcher('au_w', '{"agent": "au_pay", "stream": {"format": "sse", "path": "/x", "headers": {"X": "canary-stream"}}, "items": {"workflow": "au_a"}}')$$) LIKE
          'create_watcher {"to": {%"items": "***", %"stream": "***"}, "watcher": "au_w"}', true, 'a watcher, without its request');
SELECT is(pg_temp.leaves($$SELECT * FROM sas.watch('au_w', 'k1')$$), 'nothing', 'a task is no act of an operator: it is seen in sas.watches');
SELECT is(pg_temp.leaves($$SELECT * FROM sas.pause_watch('au_w', '{k1,none}')$$), 'pause_watch {"keys": ["k1"], "watcher": "au_w"}', 'a paused task');
SELECT is(pg_temp.leaves($$SELECT * FROM sas.resume_watch('au_w', '{k1}')$$), 'resume_watch {"keys": ["k1"], "watcher": "au_w"}', 'a resumed one');
SELECT is(pg_temp.leaves($$SELECT * FROM sas.unwatch('au_w', '{k1}')$$), 'unwatch {"keys": ["k1"], "watcher": "au_w"}', 'a stopped one');
SELECT is(pg_temp.leaves($$SELECT sas.drop_watcher('au_w')$$) LIKE 'drop_watcher {"from": {%"watcher": "au_w"}', true, 'a dropped watcher');
SELECT is(pg_temp.leaves($$SELECT sas.rebalance()$$), 'rebalance {"tasks": 0}', 'a rebalance');

-- levels, limits, the hook of alerts, what is purged
SELECT is(pg_temp.leaves($$SELECT sas.grant_usage('au_team', 'user')$$), 'grant_usage {"role": "au_team", "level": "user"}', 'a level');
SELECT is(pg_temp.leaves($$SELECT sas.revoke_usage('au_team', 'user')$$), 'revoke_usage {"role": "au_team", "levels": ["user"]}', 'taken back');
SELECT is(pg_temp.leaves($$SELECT sas.set_limit('au_team', 'open_runs', 5)$$), 'set_limit {"to": {"value": 5}, "from": {"value": null}, "name": "open_runs", "role": "au_team"}', 'a limit');
SELECT is(pg_temp.leaves($$SELECT sas.set_alert_hook('public.au_around(jsonb)')$$), 'set_alert_hook {"to": {"owner": "au_adm", "function": "public.au_around"}}', 'the hook of alerts');
SELECT is(pg_temp.leaves($$SELECT sas.set_alert_hook(NULL)$$), 'set_alert_hook {"from": {"owner": "au_adm", "function": "public.au_around"}}', 'and none');
SELECT pg_temp.leaves($$SELECT sas.create_workflow('au_c', '{"steps": {}}')$$) \g /dev/null
CREATE TABLE pg_temp.again AS SELECT * FROM unnest(ARRAY[
    $$SELECT sas.grant_agent('au_pay', 'au_team', '{GET}', '{/a}')$$, $$SELECT sas.grant_workflow('au_a', 'au_team')$$, $$SELECT sas.grant_usage('au_team', 'user')$$,
    $$SELECT sas.set_limit('au_team', 'open_runs', 5)$$, $$SELECT sas.create_queue('au_line', 5)$$, $$SELECT sas.alter_queue('au_line', 5)$$, $$SELECT sas.subscribe('au_a', 'au_c')$$, $$SELECT sas.set_alert_hook(NULL)$$]) s;
SELECT pg_temp.leaves(s) FROM pg_temp.again \g /dev/null
SELECT is(pg_temp.leaves(s), 'nothing', 'what changes nothing leaves no row: ' || s) FROM pg_temp.again;
DELETE FROM _sas.level_grant WHERE role = 'au_team'::regrole;
SELECT is(pg_temp.leaves($$SELECT sas.grant_usage('au_team', 'user')$$), 'grant_usage {"role": "au_team", "level": "user"}', 'a level whose row is lacking is granted');
REVOKE EXECUTE ON FUNCTION _sas.level_user() FROM au_team;
SELECT is(pg_temp.leaves($$SELECT sas.grant_usage('au_team', 'user')$$), 'grant_usage {"role": "au_team", "level": "user"}', 'so is one whose privilege is lacking');
SELECT pg_temp.leaves($$SELECT sas.revoke_usage('au_team'), sas.revoke_agent('au_pay', 'au_team'), sas.revoke_workflow('au_a', 'au_team'), sas.set_limit('au_team', 'open_runs', NULL), sas.unsubscribe('au_a', 'au_c')$$) \g /dev/null
SELECT pg_temp.leaves($$SELECT sas.grant_usage('au_team', 'monitor'), sas.grant_agent('au_pay', 'au_team')$$) \g /dev/null
SELECT is(pg_temp.leaves('DROP OWNED BY au_team', 'au_team'), 'drop_owned {"role": "au_team", "agents": ["au_pay"], "levels": ["monitor"]}', 'what a role gives up by DROP OWNED');
SELECT is(pg_temp.leaves('DROP OWNED BY au_team', 'au_team'), 'nothing', 'and nothing a second time');
SELECT is(pg_temp.leaves($$SELECT * FROM sas.purge('100 years')$$), 'purge {"runs": 0, "older_than": "100 years"}', 'a purge');

SELECT is(pg_temp.leaves($$SELECT sas.drop_queue('au_line')$$), 'drop_queue {"from": {"max_running": 5}, "queue": "au_line"}', 'a dropped queue');
SELECT is(pg_temp.leaves($$SELECT sas.drop_secret('au_key')$$), 'drop_secret {"secret": "au_key"}', 'a dropped secret');
SELECT is(pg_temp.leaves($$SELECT sas.create_agent('au_gone', kind => 'external'), sas.drop_agent('au_gone')$$) LIKE '%; drop_agent {"from": {%"agent": "au_gone"}', true, 'a dropped agent');

-- signals: of the owner they are its data; of others they are acts
SELECT sas.create_workflow('au_wait', '{"steps": {"w": {"wait": {"signal": "go"}}, "t": {"function": "public.au_around", "input": "{{steps.w.token}}"}}}') \g /dev/null
CREATE TEMP TABLE waits AS SELECT run_id FROM sas.submit('au_wait', key => 'au_key');
GRANT SELECT ON waits TO au_adm;
SELECT is(pg_temp.leaves(format('SELECT sas.signal(%s, %L)', run_id, 'go')), 'signal {"name": "go"}', 'a signal to a run of another role') FROM waits;
SELECT is(pg_temp.leaves($$SELECT sas.signal_key('au_wait', 'au_key', 'go')$$), 'signal {"name": "go"}', 'by its key, too');
SELECT is(pg_temp.leaves(format('SELECT sas.signal_token(%L)', (SELECT _sas.token(r.run_id, r.trace, 'w') FROM _sas.run r JOIN waits USING (run_id)))),
          'signal w {"name": "go"}', 'and by a token: it names the step');
SELECT is(pg_temp.leaves(format('SELECT sas.signal(%s, %L)', run_id, 'go'), current_user), 'nothing', 'a signal of the owner is its data') FROM waits;
SELECT is((SELECT array_agg(DISTINCT h.role) FROM sas.history h JOIN waits USING (run_id)), '{au_adm}', 'with who sent it');

-- who, and from where
SELECT is((SELECT array_agg(DISTINCT (h.role, h.session_role = session_user, h.client IS NULL, h.application)::text) FROM sas.history h WHERE h.detail ->> 'agent' = 'au_pay'), '{"(au_adm,t,t,\"audit test\")"}', 'role, login, client and application');
SELECT is((SELECT count(*)::int FROM sas.history h WHERE h::text ~ 'canary'), 0, 'no value of a secret, a header, an input or a request is there');

-- a form sends an empty reason where nothing was written
SELECT run_id AS run FROM sas.submit('au_wait') \gset
SET sas.reason = 'the setting';
SELECT sas.halt(:run, '') \g /dev/null
RESET sas.reason;
SELECT is((SELECT h.reason FROM sas.history h WHERE h.run_id = :run AND h.act = 'halt'), 'the setting', 'an empty reason of a verb is none: the setting counts');
SELECT is((SELECT r.error ->> 'detail' FROM sas.runs r WHERE r.run_id = :run), NULL, 'and the error of the run does not show it');

-- A monitor reads what was done, not what was written or given.
SET ROLE au_mon;
SELECT is((SELECT DISTINCT detail::text FROM sas.history h WHERE act = 'pause_schedule' AND detail ->> 'schedule' = 'au_s'), '{"schedule": "au_s"}', 'a monitor does not read reasons');
RESET ROLE;

-- Each verb that writes is tried above, or stands here with why not.
CREATE TEMP TABLE apart AS SELECT x.name, x.why FROM (VALUES
    ('signal signal_key signal_token', 'acts of others, as signal: above'),
    ('submit submit_batch watch read_replies run_inline continue_inline', 'data of its owner: seen as runs, replies and tasks'),
    ('claim complete complete_tasks fail heartbeat emit hand_back register_node claim_watchers heartbeat_node append_items fail_watch release_watches leave_node', 'the work of workers: seen as attempts and nodes'),
    ('set_clock move_clock release_clock stub unstub stub_signal stubbed_calls', 'a test, in its own transaction'),
    ('worker_restart', 'changes no row: seen in the server log'),
    ('release', 'TAP 440: only a copy is released'),
    ('set_version', 'rows of the run: regress set_version'),
    ('set_secret_file', 'TAP 421: it needs a directory'),
    ('wait metrics metrics_text calendar health next_times now chunks', 'reads'),
    ('pause_runs resume_runs retry_runs skip_runs force_complete_runs set_input_runs cancel_runs halt_runs compensate_runs rerun_runs set_priority_runs set_start_at_runs set_version_runs acknowledge_alerts trigger_schedule backfill_schedule', 'rows of runs: regress verbs, alerts and schedule')) AS l (names, why)
    CROSS JOIN LATERAL unnest(string_to_array(l.names, ' ')) AS x0 (name) CROSS JOIN LATERAL (SELECT x0.name, l.why) x;
SELECT is((SELECT array_agg(DISTINCT p.proname::text) FROM pg_proc p
           WHERE p.pronamespace = 'sas'::regnamespace AND p.provolatile = 'v' AND p.prolang = (SELECT l.oid FROM pg_language l WHERE l.lanname = 'c') AND p.prosrc IN ('sas_api_verb', 'sas_api_worker_restart')
             AND EXISTS (SELECT FROM pg_proc i WHERE i.pronamespace = '_sas'::regnamespace AND i.proname = p.proname || '_as' AND i.provolatile = 'v')
             AND p.proname::text NOT IN (SELECT a.name FROM apart a) AND p.proname::text NOT IN (SELECT h.act FROM sas.history h WHERE h.role = 'au_adm')),
          NULL, 'each verb that changes something leaves a row, or is known to need none');
SELECT * FROM finish();

-- SPDX-License-Identifier: PostgreSQL
--
-- The SQL surface: what is there under which names, that it explains itself,
-- and that nobody has it who was not given it.
\set QUIET on
\pset format unaligned
\pset tuples_only on
\pset pager off
SELECT no_plan();

-- functions: arguments with names and defaults, and what they return -----------------

CREATE TEMP TABLE wanted (name text, arguments text, result text);
INSERT INTO wanted VALUES
('create_agent', 'name text, base_url text DEFAULT NULL::text, kind text DEFAULT ''http''::text, headers jsonb DEFAULT ''{}''::jsonb, max_in_flight integer DEFAULT 100, rate_limit text DEFAULT NULL::text, request_timeout interval DEFAULT ''00:00:30''::interval, retry jsonb DEFAULT ''{}''::jsonb, breaker jsonb DEFAULT ''{}''::jsonb, options jsonb DEFAULT ''{}''::jsonb', 'void'),
('alter_agent', 'name text, base_url text DEFAULT NULL::text, kind text DEFAULT NULL::text, headers jsonb DEFAULT NULL::jsonb, max_in_flight integer DEFAULT NULL::integer, rate_limit text DEFAULT NULL::text, request_timeout interval DEFAULT NULL::interval, retry jsonb DEFAULT NULL::jsonb, breaker jsonb DEFAULT NULL::jsonb, options jsonb DEFAULT NULL::jsonb, enabled boolean DEFAULT NULL::boolean, reset text[] DEFAULT ''{}''::text[]', 'void'),
('drop_agent', 'name text', 'void'),
('reset_agent', 'name text', 'void'),
('pause_agent', 'name text', 'boolean'),
('resume_agent', 'name text', 'boolean'),
('set_secret', 'name text, value text', 'void'),
('signal', 'run_id bigint, name text, payload jsonb DEFAULT ''{}''::jsonb', 'void'),
('signal_token', 'token text, payload jsonb DEFAULT ''{}''::jsonb', 'void'),
('signal_key', 'workflow text, key text, name text, payload jsonb DEFAULT ''{}''::jsonb', 'void'),
('set_secret_file', 'name text, file text', 'void'),
('drop_secret', 'name text', 'void'),
('create_workflow', 'name text, definition jsonb', 'integer'),
('validate_workflow', 'definition jsonb', 'TABLE(path text, problem text, hint text)'),
('drop_workflow', 'name text', 'void'),
('grant_workflow', 'workflow text, role regrole, version integer DEFAULT NULL::integer, future boolean DEFAULT false', 'void'),
('revoke_workflow', 'workflow text, role regrole, version integer DEFAULT NULL::integer', 'void'),
('submit', 'workflow text, input jsonb DEFAULT ''{}''::jsonb, key text DEFAULT NULL::text, priority integer DEFAULT 0, start_at timestamp with time zone DEFAULT NULL::timestamp with time zone, start_before timestamp with time zone DEFAULT NULL::timestamp with time zone, deadline interval DEFAULT NULL::interval, after_run bigint DEFAULT NULL::bigint, after_runs bigint[] DEFAULT NULL::bigint[], reply_to text DEFAULT NULL::text, labels jsonb DEFAULT ''{}''::jsonb, version integer DEFAULT NULL::integer, after_result text[] DEFAULT NULL::text[], OUT run_id bigint, OUT created boolean', 'record'),
('submit_batch', 'workflow text, inputs jsonb[], keys text[] DEFAULT NULL::text[], priority integer DEFAULT 0, start_at timestamp with time zone DEFAULT NULL::timestamp with time zone, start_before timestamp with time zone DEFAULT NULL::timestamp with time zone, deadline interval DEFAULT NULL::interval, after_run bigint DEFAULT NULL::bigint, after_runs bigint[] DEFAULT NULL::bigint[], reply_to text DEFAULT NULL::text, labels jsonb DEFAULT ''{}''::jsonb, version integer DEFAULT NULL::integer, after_result text[] DEFAULT NULL::text[]', 'TABLE(run_id bigint, created boolean)'),
('schedule', 'name text, spec text, workflow text, input jsonb DEFAULT ''{}''::jsonb, timezone text DEFAULT NULL::text, overlap text DEFAULT ''skip''::text, catch_up text DEFAULT ''last''::text, catch_up_window interval DEFAULT ''1 day''::interval, jitter interval DEFAULT ''00:00:00''::interval, start_at timestamp with time zone DEFAULT NULL::timestamp with time zone, end_at timestamp with time zone DEFAULT NULL::timestamp with time zone, max_runs integer DEFAULT NULL::integer, pause_on_failure boolean DEFAULT false, priority integer DEFAULT 0, labels jsonb DEFAULT ''{}''::jsonb', 'timestamp with time zone'),
('unschedule', 'name text', 'void'),
('pause_schedule', 'name text, reason text DEFAULT NULL::text', 'boolean'),
('resume_schedule', 'name text', 'boolean'),
('trigger_schedule', 'name text, OUT run_id bigint, OUT created boolean', 'record'),
('backfill_schedule', 'name text, from_at timestamp with time zone, to_at timestamp with time zone, overlap text DEFAULT NULL::text', 'TABLE(scheduled_at timestamp with time zone, run_id bigint, created boolean)'),
('calendar', 'from_at timestamp with time zone DEFAULT NULL::timestamp with time zone, to_at timestamp with time zone DEFAULT NULL::timestamp with time zone', 'TABLE(run_at timestamp with time zone, scheduled_at timestamp with time zone, schedule text, workflow text, owner text)'),
('next_times', 'spec text, timezone text DEFAULT NULL::text, quantity integer DEFAULT 10, after timestamp with time zone DEFAULT NULL::timestamp with time zone', 'SETOF timestamp with time zone'),
('now', '', 'timestamp with time zone'),
('sync_nodes', '', 'TABLE(node_id integer, applied integer, surplus integer)'),
('wait', 'run_id bigint, timeout interval DEFAULT ''00:01:00''::interval', 'TABLE(state text, result text, output jsonb, error jsonb)'),
('read_replies', 'queue text, quantity integer DEFAULT 1', 'TABLE(event text, run_id bigint, workflow text, key text, result text, output jsonb, error jsonb, created_at timestamp with time zone)'),
('acknowledge', 'alert_id bigint', 'TABLE(run_id bigint, step text, changed boolean, state text, result text, refused text)'),
('acknowledge_alerts', 'alert_ids bigint[]', 'TABLE(run_id bigint, step text, changed boolean, state text, result text, refused text)'),
('pause_workflow', 'name text', 'boolean'),
('resume_workflow', 'name text', 'boolean'),
('create_queue', 'name text, max_running integer, key text DEFAULT NULL::text, per_key integer DEFAULT NULL::integer', 'void'),
('alter_queue', 'name text, max_running integer', 'void'),
('drop_queue', 'name text', 'void'),
('pause_queue', 'name text', 'boolean'),
('resume_queue', 'name text', 'boolean'),
('subscribe', 'workflow text, to_workflow text, input jsonb DEFAULT ''"{{input}}"''::jsonb', 'void'),
('unsubscribe', 'workflow text, to_workflow text', 'void'),
('distribute_keys', 'workflow text, follows regclass, separator text DEFAULT NULL::text', 'void'),
('create_middleware', 'name text, phase text, before regprocedure DEFAULT NULL::regprocedure, after regprocedure DEFAULT NULL::regprocedure, workflow text DEFAULT NULL::text, goes_before text[] DEFAULT ''{}''::text[], goes_after text[] DEFAULT ''{}''::text[], replaces text DEFAULT NULL::text', 'void'),
('drop_middleware', 'name text, phase text DEFAULT NULL::text', 'void'),
('worker_restart', '', 'integer'),
('release', '', 'boolean'),
('find_runs', 'search jsonb, quantity integer DEFAULT 50, before bigint DEFAULT NULL::bigint', 'SETOF sas.runs'),
('explain', '', 'TABLE(waiting_kind text, waiting_on text, runs bigint, steps bigint, since timestamp with time zone, until timestamp with time zone, text text)'),
('explain', 'run_id bigint', 'TABLE(run_id bigint, step text, waiting_kind text, waiting_on text, waiting_until timestamp with time zone, text text)'),
('timeline', 'run_id bigint, width integer DEFAULT 60', 'TABLE(step text, element integer, attempt integer, undo boolean, status text, started_at timestamp with time zone, took interval, bar text)'),
('graph', 'run_id bigint, format text DEFAULT ''mermaid''::text', 'text'),
('graph_workflow', 'workflow text, format text DEFAULT ''mermaid''::text', 'text'),
('console', 'run_id bigint DEFAULT NULL::bigint', 'text'),
('console_page', 'path text, args jsonb DEFAULT ''{}''::jsonb', 'text'),
('console_schedules', '', 'text'),
('follow', '', 'void'),
('metrics', 'families text[] DEFAULT NULL::text[]', 'TABLE(name text, type text, labels jsonb, value double precision, help text)'),
('metrics_text', 'format text DEFAULT ''openmetrics''::text', 'text'),
('set_alert_hook', 'function regprocedure', 'void'),
('set_limit', 'role regrole, name text, value bigint', 'void'),
('purge', 'older_than interval, results text[] DEFAULT NULL::text[], workflow text DEFAULT NULL::text, quantity integer DEFAULT 10000', 'TABLE(runs bigint, steps bigint, attempts bigint, more boolean)'),
('set_clock', 'at timestamp with time zone', 'timestamp with time zone'),
('move_clock', 'span interval', 'timestamp with time zone'),
('release_clock', '', 'timestamp with time zone'),
('stub', 'agent text, response jsonb, method text DEFAULT NULL::text, path text DEFAULT NULL::text, step text DEFAULT NULL::text, element integer DEFAULT NULL::integer, attempt integer DEFAULT NULL::integer, undo boolean DEFAULT NULL::boolean', 'void'),
('unstub', 'agent text DEFAULT NULL::text', 'integer'),
('stub_signal', 'name text, payload jsonb DEFAULT ''{}''::jsonb, after interval DEFAULT ''00:00:00''::interval, times integer DEFAULT 1', 'void'),
('run_inline', 'workflow text, input jsonb DEFAULT ''{}''::jsonb, key text DEFAULT NULL::text, deadline interval DEFAULT NULL::interval, labels jsonb DEFAULT ''{}''::jsonb, within interval DEFAULT NULL::interval', 'TABLE(run_id bigint, state text, result text, output jsonb, error jsonb)'),
('continue_inline', 'run_id bigint, within interval DEFAULT NULL::interval', 'TABLE(run_id bigint, state text, result text, output jsonb, error jsonb)'),
('stubbed_calls', 'agent text DEFAULT NULL::text', 'TABLE(call_no integer, agent text, run_id bigint, step text, element integer, undo boolean, attempt integer, idempotency_key text, method text, path text, request jsonb, answer jsonb, at timestamp with time zone)'),
('claim', 'agent text, worker text, quantity integer DEFAULT 1, lease interval DEFAULT ''00:00:30''::interval', 'TABLE(request_id uuid, run_id bigint, step text, undo boolean, idempotency_key text, request jsonb, checkpoint jsonb, lease_until timestamp with time zone)'),
('complete', 'request_id uuid, output jsonb', 'boolean'),
('complete_tasks', 'request_ids uuid[], outputs jsonb[]', 'boolean[]'),
('fail', 'request_id uuid, error text, permanent boolean DEFAULT false', 'boolean'),
('heartbeat', 'request_id uuid, progress double precision DEFAULT NULL::double precision, checkpoint jsonb DEFAULT NULL::jsonb', 'text'),
('hand_back', 'request_id uuid', 'boolean'),
('emit', 'chunk jsonb, request_id uuid DEFAULT NULL::uuid', 'boolean'),
('chunks', 'run_id bigint, step text, after bigint DEFAULT 0', 'TABLE(chunk_id bigint, element integer, attempt integer, undo boolean, chunk jsonb, emitted_at timestamp with time zone)'),
('create_watcher', 'name text, definition jsonb', 'void'),
('drop_watcher', 'name text', 'void'),
('watch', 'watcher text, key text, input jsonb DEFAULT ''{}''::jsonb, cursor jsonb DEFAULT NULL::jsonb, adopt boolean DEFAULT false, OUT watch_id bigint, OUT created boolean', 'record'),
('unwatch', 'watcher text, keys text[], discard boolean DEFAULT false', 'TABLE(key text, changed boolean, state text, refused text)'),
('pause_watch', 'watcher text, keys text[]', 'TABLE(key text, changed boolean, state text, refused text)'),
('resume_watch', 'watcher text, keys text[]', 'TABLE(key text, changed boolean, state text, refused text)'),
('rebalance', '', 'integer'),
('register_node', 'name text, capacity integer, agents text[], version text DEFAULT NULL::text, lease interval DEFAULT ''00:00:30''::interval, by_connection boolean DEFAULT true', 'bigint'),
('claim_watchers', 'node_id bigint, quantity integer', 'TABLE(watch_id bigint, epoch bigint, watcher text, key text, input jsonb, request jsonb, cursor jsonb)'),
('heartbeat_node', 'node_id bigint', 'TABLE(watch_id bigint, epoch bigint, news text, request jsonb, cursor jsonb)'),
('append_items', 'watch_id bigint, epoch bigint, items jsonb, cursor jsonb DEFAULT NULL::jsonb', 'text'),
('fail_watch', 'watch_id bigint, epoch bigint, error text', 'TABLE(answer text, pause interval)'),
('release_watches', 'node_id bigint, watch_ids bigint[]', 'integer'),
('leave_node', 'node_id bigint', 'boolean'),
('grant_agent', 'agent text, role regrole, methods text[] DEFAULT NULL::text[], paths text[] DEFAULT NULL::text[]', 'void'),
('revoke_agent', 'agent text, role regrole', 'void'),
('grant_usage', 'role regrole, level text, agent text DEFAULT NULL::text', 'void'),
('revoke_usage', 'role regrole, level text DEFAULT NULL::text', 'void');
-- every verb on runs takes one id or an array, and answers in the same columns
INSERT INTO wanted
SELECT v.name || s.form, subject || v.more, 'TABLE(run_id bigint, step text, changed boolean, state text, result text, refused text)'
FROM (VALUES ('pause', ''), ('resume', ''), ('retry', ', step text DEFAULT NULL::text, new_key boolean DEFAULT false'), ('cancel', ', reason text DEFAULT NULL::text'),
             ('skip', ', step text, output jsonb DEFAULT NULL::jsonb'), ('force_complete', ', step text, output jsonb DEFAULT NULL::jsonb'), ('set_input', ', step text, input jsonb'),
             ('halt', ', reason text DEFAULT NULL::text'), ('compensate', ', reason text DEFAULT NULL::text'), ('set_priority', ', priority integer'), ('set_start_at', ', start_at timestamp with time zone'), ('set_version', ', version integer DEFAULT NULL::integer')) AS v (name, more),
     (VALUES ('', 'run_id bigint'), ('_runs', 'run_ids bigint[]')) AS s (form, subject);
INSERT INTO wanted
SELECT 'rerun' || s.form, s.subject, 'TABLE(run_id bigint, step text, changed boolean, state text, result text, refused text, new_run_id bigint)'
FROM (VALUES ('', 'run_id bigint'), ('_runs', 'run_ids bigint[]')) AS s (form, subject);

SELECT ok(EXISTS (SELECT FROM pg_proc p
                  WHERE p.pronamespace = 'sas'::regnamespace AND p.proname = w.name
                    AND pg_get_function_arguments(p.oid) = w.arguments AND pg_get_function_result(p.oid) = w.result),
          format('sas.%s(%s) is there, with these names and defaults', w.name, left(w.arguments, 60)))
FROM wanted w;
SELECT is(ARRAY(SELECT DISTINCT p.proname::text FROM pg_proc p WHERE p.pronamespace = 'sas'::regnamespace ORDER BY 1),
          ARRAY(SELECT DISTINCT name FROM wanted UNION SELECT 'health'
                UNION SELECT split_part(substr(g.signature, 5), '(', 1) FROM _sas.privilege g
                      WHERE g.part = 'builder' AND g.signature LIKE 'sas.%' ORDER BY 1),
          'these are all public functions');
SELECT is((SELECT array_agg(a ORDER BY n) FROM pg_proc p, unnest(p.proargnames) WITH ORDINALITY AS x (a, n) WHERE p.oid = 'sas.health()'::regprocedure),
          '{workers_loaded,launcher_pid,workers,slots_missing,leader_pid,held_by,runs_open,runs_paused,steps_ready,oldest_ready_at,breakers_open,alerts_open,found_late,in_recovery,quarantined,version,problems,ok}',
          'sas.health() answers in one row with these columns');
SELECT is((SELECT count(*) FROM sas.health()), 1::bigint, 'sas.health() returns one row');
SELECT is((SELECT ok FROM sas.health()), false, 'sas.health() is not ok where no worker runs');
SELECT is((SELECT version FROM sas.health()), (SELECT extversion FROM pg_extension WHERE extname = 'sas'), 'sas.health() tells the version');

-- what is written by name is exactly what holds ------------------------------------------

SELECT lives_ok($$SELECT sas.create_agent(name => 'a', base_url => 'http://127.0.0.1:1/', kind => 'http', headers => '{"X-A": "b"}', max_in_flight => 5, rate_limit => '500/min',
    request_timeout => '5 s', retry => '{"max_attempts": 3}', breaker => '{"off": true}', options => '{"max_response": "8 MB"}')$$, 'create_agent takes its arguments by name');
SELECT is((SELECT base_url FROM sas.agents WHERE name = 'a'), 'http://127.0.0.1:1', 'a slash at the end of base_url is left out');
SELECT lives_ok($$SELECT sas.alter_agent('a', enabled => false, reset => '{rate_limit,retry}')$$, 'alter_agent changes and resets');
SELECT is((SELECT (enabled, rate_limit, retry) FROM sas.agents WHERE name = 'a'), (false, NULL::text, '{}'::jsonb), 'what was named has its value, what was reset its default');
SELECT is((SELECT (max_in_flight, request_timeout) FROM sas.agents WHERE name = 'a'), (5, '5 s'::interval), 'what was not named stays');
SELECT lives_ok($$SELECT sas.create_agent('a', 'http://127.0.0.1:2')$$, 'create_agent replaces by name');
SELECT is((SELECT (base_url, enabled, max_in_flight, request_timeout) FROM sas.agents WHERE name = 'a'), ('http://127.0.0.1:2'::text, true, 100, '30 s'::interval), 'what is written is exactly what holds');
SELECT is(ARRAY[sas.pause_agent('a'), sas.pause_agent('a')], '{t,f}', 'pause_agent says whether it changed something');
SELECT is((SELECT enabled FROM sas.agents WHERE name = 'a'), false, 'a paused agent is not enabled');
SELECT is(ARRAY[sas.resume_agent('a'), sas.resume_agent('a')], '{t,f}', 'resume_agent does, too');
SELECT is((SELECT enabled FROM sas.agents WHERE name = 'a'), true, 'a resumed agent is enabled');
SELECT is((SELECT array_agg(act ORDER BY act) FROM sas.history WHERE act LIKE '%\_agent' AND detail ->> 'agent' = 'a' AND act !~ '^(create|alter)_agent'), '{pause_agent,resume_agent}', 'both are in the history');
SELECT is(sas.create_workflow('w', '{"steps": {}}'), 1, 'create_workflow returns the first version');
SELECT is(sas.create_workflow('w', '{"steps": {}, "deadline": "1 day"}'), 2, 'create_workflow on an existing name makes a new version');
SELECT is((SELECT (version, definition) FROM sas.workflows WHERE workflow = 'w'), (2, '{"steps": {}, "deadline": "1 day"}'::jsonb), 'sas.workflows shows it as it was written');
SELECT lives_ok('SELECT sas.drop_workflow(''w'')', 'drop_workflow drops');
SELECT is(sas.create_workflow('w', '{"steps": {}}'), 1, 'the name of a dropped workflow can be used again');
SELECT lives_ok('SELECT sas.drop_agent(''a'')', 'drop_agent drops');
SELECT is((SELECT count(*) FROM sas.agents WHERE name = 'a'), 0::bigint, 'then it is not shown');
SELECT lives_ok('SELECT sas.create_agent(''a'', ''http://127.0.0.1:1'')', 'the name of a dropped agent can be used again');

SELECT sas.create_workflow('versions', d) FROM unnest(ARRAY['{"steps": {}}', '{"steps": {}, "deadline": "1 day"}']::jsonb[]) d;
SELECT sas.submit('versions', start_at => now() + interval '1 h');
SELECT is((SELECT array_agg((version, definition, created_by, open_runs)::text ORDER BY version) FROM sas.versions WHERE workflow = 'versions'),
          ARRAY[(1, '{"steps": {}}'::jsonb, current_user, 0)::text, (2, '{"steps": {}, "deadline": "1 day"}'::jsonb, current_user, 1)::text], 'sas.versions shows each version, and its open runs');

-- views: at least these columns -------------------------------------------------------

SELECT ok(EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = ('sas.' || v.name)::regclass AND a.attname = c AND NOT a.attisdropped),
          format('sas.%s has %s', v.name, c))
FROM (VALUES
    ('runs', 'run_id,workflow,version,key,state,result,priority,queue,input,output,error,progress,paused_for,paused_by,paused_at,submitted_by,parent_run_id,labels,created_at,start_at,started_at,finished_at,deadline,schedule,scheduled_at'),
    ('schedules', 'name,spec,timezone,workflow,owner,state,next_run_at,last_run_at,last_run_id,last_result,open_runs,runs,missed,skipped,overlap,catch_up,paused_reason,error'),
    ('steps', 'run_id,step,position,element,kind,agent,state,attempt,failure_count,locked_by,complete_by,waiting_kind,waiting_on,waiting_until,waiting_since,run_state,input,output,error,started_at,finished_at'),
    ('attempts', 'run_id,step,element,attempt,undo,agent,worker,status,http_status,error,started_at,finished_at'),
    ('agents', 'name,kind,base_url,enabled,in_flight,max_in_flight,rate_limit,breaker,open_until,waiting,last_error,stale_replies'),
    ('workers', 'pid,actor,database,leader,in_flight,memory,started_at,last_activity_at,turn_for,calls'),
    ('alerts', 'alert_id,kind,agent,run_id,step,message,occurrences,created_at,last_at,acknowledged_at,acknowledged_by,closed_at'),
    ('workflows', 'workflow,version,owner,definition'),
    ('cluster_runs', 'node_id,run_id,workflow,state,result'), ('cluster_steps', 'node_id,run_id,step,state'),
    ('cluster_alerts', 'node_id,alert_id,kind'), ('cluster_health', 'node_id,answers,problem,ok'),
    ('locks', 'key,scope,workflow,run_id,state,shared,since,position'),
    ('versions', 'workflow,version,definition,created_by,created_at,open_runs'),
    ('history', 'run_id,at,role,act,step,detail,reason'),
    ('limits', 'role,name,value,used'),
    ('grants', 'role,kind,name,granted_by,granted_at,methods,paths,version,future'),
    ('hook_runs', 'run_id,workflow,hook,hook_run_id,target,told_state,told_result,state,result,attempt,failure_count,waiting_until,output,error,created_at,started_at,finished_at'),
    ('watchers', 'watcher,kind,agent,owner,definition,watches'),
    ('watches', 'watch_id,watcher,key,state,node,since,restarts,items,waiting,last_item_at,last_error,failures,cursor,input,owner'),
    ('nodes', 'node_id,name,kind,version,capacity,watches,free,agents,created_at,modified_at,is_deleted'),
    ('transitions', 'subject,from_state,to_state,comment'),
    ('settings', 'name,setting,unit,default_setting,takes_effect,pending_restart,description')) AS v (name, columns), unnest(string_to_array(v.columns, ',')) c;
SELECT is((SELECT array_agg(a.attname::text ORDER BY a.attnum) FROM pg_attribute a WHERE a.attrelid = 'sas.run_details'::regclass AND a.attnum > 0),
          '{jobid,runid,job_pid,database,username,command,status,return_message,start_time,end_time,workflow,jobname}', 'sas.run_details has the columns of cron.job_run_details');
SELECT is(ARRAY(SELECT c.relname::text FROM pg_class c WHERE c.relnamespace = 'sas'::regnamespace AND c.relkind IN ('v', 'm') ORDER BY 1),
          '{agents,alerts,attempts,cluster_alerts,cluster_health,cluster_runs,cluster_steps,grants,history,hook_runs,limits,locks,middlewares,nodes,queues,run_details,runs,schedules,settings,steps,subscriptions,transitions,versions,watchers,watches,workers,workflows}'::text[], 'these are all views');
SELECT is(ARRAY(SELECT c.relname::text FROM pg_class c WHERE c.relnamespace = 'sas'::regnamespace AND c.relkind = 'v'
                  -- the nodes pick the rows of cluster views: they ask sas.runs and its like there, as the reader
                  AND c.relname NOT IN ('transitions', 'settings', 'run_details', 'middlewares') AND c.relname !~ '^cluster_'
                  AND NOT coalesce(c.reloptions && '{security_barrier=true,security_invoker=true}', false) ORDER BY 1),
          '{}', 'every view that picks rows is a security barrier, or reads under row security');

-- settings ----------------------------------------------------------------------------

SELECT is((SELECT boot_val || coalesce(' ' || unit, '') FROM pg_settings WHERE name = s.name), s.value, s.name || ' has this default')
FROM (VALUES ('sas.schedulers', '1'), ('sas.agents', '1'), ('sas.function_workers', '1'), ('sas.supervisors', '1'), ('sas.agent_slots', '1000'), ('sas.allow_networks', ''), ('sas.deny_networks', '169.254.0.0/16, fe80::/10, fd00:ec2::254, fd00:ec2::23, fd20:ce::254, fd00:42::42, fd00:a9fe:a9fe::1, 168.63.129.16, 192.0.0.192, 100.100.100.200'), ('sas.agent_memory', '256 MB'), ('sas.max_agents', '4096'), ('sas.max_low_water_marks', '16384'), ('sas.max_metrics', '8192'), ('sas.max_exclusions', '256'), ('sas.max_owners', '1024'),
             ('sas.supervisor_interval', '60000 ms'), ('sas.complete_in', '60000 ms'), ('sas.run_deadline', '2592000 s'), ('sas.priority_step', '3600 s'),
             ('sas.max_definition_size', '1048576 B'), ('sas.max_input_size', '1048576 B'), ('sas.max_output_size', '8388608 B'), ('sas.max_steps', '10000'), ('sas.watch_slots', '-1'), ('sas.watch_window', '10000'), ('sas.retain_success', '2592000 s'), ('sas.retain_warning', '7776000 s'),
             ('sas.retain_error', '7776000 s'), ('sas.retain_compensated', '7776000 s'), ('sas.retain_cancelled', '2592000 s'), ('sas.auto_rescue', 'on')) AS s (name, value);
SELECT is((SELECT count(*) FROM sas.settings WHERE coalesce(description, '') = ''), 0::bigint, 'every setting says what it is');
SELECT ok((SELECT count(*) FROM sas.settings) >= 13, 'sas.settings shows them');
SELECT is(ARRAY(SELECT name FROM sas.settings), ARRAY(SELECT name FROM sas.settings ORDER BY name), 'by name');
SELECT is((SELECT array_agg(DISTINCT takes_effect ORDER BY takes_effect) FROM sas.settings), '{at once,"at once, for superusers",at reload,at restart,never}', 'with when a change takes effect');
SELECT is(ARRAY(SELECT name FROM pg_settings WHERE name LIKE 'sas.%' AND context = 'user' ORDER BY name), '{sas.reason,sas.this_node_only}', 'the settings that every session sets are these');
SELECT is((SELECT concat_ws(' ', setting, unit, default_setting, takes_effect) FROM sas.settings WHERE name = 'sas.complete_in'), '60000 ms 60000 at reload', 'and its default in its unit');

-- everything explains itself -----------------------------------------------------------

SELECT is(ARRAY(SELECT p.oid::regprocedure::text FROM pg_proc p
                WHERE p.pronamespace = 'sas'::regnamespace AND coalesce(obj_description(p.oid, 'pg_proc'), '') = '' ORDER BY 1),
          '{}', 'every public function has a comment');
SELECT is(ARRAY(SELECT c.oid::regclass::text FROM pg_class c
                WHERE c.relnamespace IN ('sas'::regnamespace, '_sas'::regnamespace) AND c.relkind IN ('r', 'v', 'm', 'p') AND coalesce(obj_description(c.oid, 'pg_class'), '') = '' ORDER BY 1),
          '{}', 'every view and every table has a comment');
SELECT is(ARRAY(SELECT c.relname::text FROM pg_class c WHERE c.relnamespace = '_sas'::regnamespace AND c.relkind = 'r' AND c.relreplident <> 'f'
                  AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary AND c.relreplident = 'd') ORDER BY 1),
          '{}', 'every table says what a row is known by, so that a publication of all tables refuses no change');
SELECT ok(coalesce(obj_description((SELECT oid FROM pg_extension WHERE extname = 'sas'), 'pg_extension'), '') <> '', 'the extension has a comment');
SELECT is(ARRAY(SELECT c.relname::text FROM pg_class c WHERE c.relnamespace = '_sas'::regnamespace AND c.relkind = 'r' AND c.relname ~ 's$' AND c.relname !~ '(ss|us)$' ORDER BY 1),
          '{}', 'tables are private and have names in the singular');

-- one name for one thing ------------------------------------------------------------------

SELECT is(ARRAY(SELECT p.proname::text FROM pg_proc p WHERE p.pronamespace = '_sas'::regnamespace
                GROUP BY p.proname HAVING count(*) > 1), '{}', 'no internal function is overloaded');
SELECT is(ARRAY(SELECT p.oid::regprocedure::text
                FROM pg_proc p
                JOIN pg_type y ON y.typname = p.proname AND y.typnamespace = p.pronamespace
                WHERE p.pronamespace = '_sas'::regnamespace), '{}', 'none has the name of a table or type');
SELECT is(ARRAY(SELECT p.oid::regprocedure::text
                FROM pg_proc p
                JOIN pg_class c ON c.relname = p.proname AND c.relnamespace IN ('sas'::regnamespace, p.pronamespace)
                WHERE p.pronamespace = '_sas'::regnamespace), '{}', 'nor that of a view, an index or a sequence');
SELECT is(ARRAY(SELECT i.oid::regprocedure::text
                FROM pg_proc i JOIN pg_proc p ON p.proname = i.proname AND p.pronamespace = 'sas'::regnamespace
                WHERE i.pronamespace = '_sas'::regnamespace), '{}', 'nor that of a public function');
SELECT is(ARRAY(SELECT c.oid::regclass::text FROM pg_class c
                WHERE c.relnamespace = 'sas'::regnamespace AND c.relkind <> 'v'
                   OR c.relnamespace = '_sas'::regnamespace AND c.relkind IN ('v', 'm')),
          '{_sas.open_run,_sas.run_value}', 'what is public is a view or a function; no view is internal but those of open runs, and of the values which sas.runs shows');
-- a parameter of a prepared statement has no type until the function is known
SELECT is(ARRAY(SELECT a.oid::regprocedure || ' and ' || b.oid::regprocedure
                FROM pg_proc a JOIN pg_proc b ON b.proname = a.proname AND b.pronamespace = a.pronamespace AND b.oid > a.oid
                WHERE a.pronamespace = 'sas'::regnamespace
                  AND greatest(a.pronargs - a.pronargdefaults, b.pronargs - b.pronargdefaults)
                      <= least(a.pronargs, b.pronargs)),
          '{}', 'no call with untyped parameters fits two public functions');

-- the extension ------------------------------------------------------------------------

SELECT is((SELECT (e.extrelocatable, n.nspname, v.superuser, v.trusted) FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
           JOIN pg_available_extension_versions v ON v.name = e.extname AND v.version = e.extversion WHERE e.extname = 'sas'),
          (false, 'pg_catalog'::name, true, false), 'it makes schemas of its own, is not relocatable, and only a superuser creates it');
SELECT is(ARRAY(SELECT c::regclass::text FROM pg_extension e, unnest(e.extconfig) c WHERE e.extname = 'sas' AND c = '_sas.secret'::regclass),
          '{}', 'secrets are left out of dumps');
SELECT is(ARRAY(SELECT c.oid::regclass::text FROM pg_class c
                WHERE c.relnamespace = '_sas'::regnamespace AND c.relkind IN ('r', 'S') AND c.relname NOT IN ('secret', 'former_secret', 'transition', 'privilege', 'lock_row', 'boot', 'deadline_sweep', 'delayed_note', 'delayed_note_note_id_seq')
                  AND NOT c.oid = ANY ((SELECT extconfig FROM pg_extension WHERE extname = 'sas')::oid[]) ORDER BY 1),
          '{}', 'every other table, and every sequence, is dumped');

-- nobody has what he was not given -------------------------------------------------------

SELECT is(ARRAY(SELECT p.oid::regprocedure::text FROM pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
                WHERE p.pronamespace IN ('sas'::regnamespace, '_sas'::regnamespace) AND a.grantee = 0 ORDER BY 1), '{}', 'no function is granted to PUBLIC');
SELECT is(ARRAY(SELECT c.oid::regclass::text FROM pg_class c, aclexplode(c.relacl) a
                WHERE c.relnamespace IN ('sas'::regnamespace, '_sas'::regnamespace) AND a.grantee = 0 ORDER BY 1), '{}', 'no table, view or sequence is granted to PUBLIC');
SELECT is(ARRAY(SELECT c.oid::regclass || '.' || t.attname FROM pg_class c JOIN pg_attribute t ON t.attrelid = c.oid, aclexplode(t.attacl) a
                WHERE c.relnamespace IN ('sas'::regnamespace, '_sas'::regnamespace) AND a.grantee = 0 ORDER BY 1), '{}', 'no column is granted to PUBLIC');
SELECT is(ARRAY(SELECT a.privilege_type FROM pg_namespace n, aclexplode(n.nspacl) a WHERE n.nspname IN ('sas', '_sas') AND a.grantee = 0), '{}', 'the schema is not granted to PUBLIC');
SELECT is(ARRAY(SELECT y.oid::regtype::text FROM pg_type y JOIN pg_class c ON c.oid = y.typrelid AND c.relkind = 'c', aclexplode(coalesce(y.typacl, acldefault('T', y.typowner))) a
                WHERE y.typnamespace IN ('sas'::regnamespace, '_sas'::regnamespace) AND a.grantee = 0 ORDER BY 1), '{}', 'no type is granted to PUBLIC');
SELECT is(ARRAY(SELECT d.defaclobjtype::text FROM pg_default_acl d), '{}', 'no default privileges are left behind');

CREATE ROLE sas_nobody;
SELECT is(ARRAY(SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace IN ('sas'::regnamespace, '_sas'::regnamespace) AND has_function_privilege('sas_nobody', p.oid, 'EXECUTE') ORDER BY 1),
          '{}', 'an ordinary role may execute no function of sas, public or internal');
SELECT is(ARRAY(SELECT c.oid::regclass::text FROM pg_class c WHERE c.relnamespace IN ('sas'::regnamespace, '_sas'::regnamespace) AND c.relkind IN ('r', 'v')
                  AND has_table_privilege('sas_nobody', c.oid, 'SELECT,INSERT,UPDATE,DELETE,TRUNCATE,REFERENCES,TRIGGER') ORDER BY 1),
          '{}', 'an ordinary role has no right on any table or view of sas');
SELECT ok(NOT has_schema_privilege('sas_nobody', 'sas', 'USAGE') AND NOT has_schema_privilege('sas_nobody', 'sas', 'CREATE')
          AND NOT has_schema_privilege('sas_nobody', '_sas', 'USAGE'), 'an ordinary role may not look into the schema');

-- functions that run with the rights of their owner -----------------------------------------

SELECT is(ARRAY(SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace IN ('sas'::regnamespace, '_sas'::regnamespace) AND p.prosecdef
                  AND NOT coalesce('search_path=pg_catalog, pg_temp' = ANY (p.proconfig), false) ORDER BY 1),
          '{}', 'every SECURITY DEFINER function sets search_path, pg_temp last');
SELECT ok((SELECT count(*) FROM pg_proc p WHERE p.pronamespace IN ('sas'::regnamespace, '_sas'::regnamespace) AND p.prosecdef) > 15, 'and there are some');
SELECT is(ARRAY(SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = 'sas'::regnamespace AND p.prosecdef AND p.proname <> 'health' ORDER BY 1),
          '{}', 'public verbs are not SECURITY DEFINER: they tell the internal ones who called');
SELECT is(ARRAY(SELECT p.oid::regprocedure::text FROM pg_proc p
                WHERE p.pronamespace IN ('sas'::regnamespace, '_sas'::regnamespace) AND p.prosrc = 'sas_api_verb'
                  AND NOT EXISTS (SELECT FROM pg_proc i WHERE i.pronamespace = '_sas'::regnamespace AND i.proname = p.proname || '_as' AND i.prosecdef
                                    AND i.proargtypes::oid[] = array_prepend('oid'::regtype::oid, p.proargtypes::oid[]) AND i.prorettype = p.prorettype AND i.proretset = p.proretset) ORDER BY 1),
          '{}', 'every native verb has its internal function, which runs as the owner of sas');
-- called(verb): the SQLSTATE of a call with nulls in a transaction that can only read
CREATE FUNCTION pg_temp.called(verb regprocedure) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    SET LOCAL transaction_read_only = on;
    EXECUTE format('SELECT count(*) FROM sas.%I(%s)', (SELECT p.proname FROM pg_proc p WHERE p.oid = verb),
                   (SELECT string_agg(format('NULL::%s', t::regtype), ', ' ORDER BY n) FROM pg_proc p, unnest(p.proargtypes::oid[]) WITH ORDINALITY AS u (t, n) WHERE p.oid = verb));
    RAISE EXCEPTION USING ERRCODE = 'XX999';
EXCEPTION WHEN OTHERS THEN
    RETURN CASE WHEN SQLSTATE <> '25006' OR SQLERRM LIKE 'cannot execute sas.%' THEN SQLSTATE ELSE SQLERRM END;
END $$;
SELECT is(ARRAY(SELECT DISTINCT p.proname || ' ' || pg_temp.called(p.oid) FROM pg_proc p WHERE p.pronamespace = 'sas'::regnamespace AND p.prosrc = 'sas_api_verb' AND pg_temp.called(p.oid) <> '25006' ORDER BY 1),
          '{"calendar XX999","chunks 42704","metrics XX999","metrics_text 22023","stubbed_calls XX999","validate_workflow XX999"}', 'verbs that write say so in a transaction that can only read, whatever they are asked about');
SELECT is(ARRAY(SELECT p.oid::regprocedure::text FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
                WHERE p.pronamespace = 'sas'::regnamespace AND l.lanname <> 'c' AND NOT p.prosecdef
                  AND coalesce(pg_get_function_sqlbody(p.oid), '') !~ '^BEGIN ATOMIC\s+SELECT [^()]*_?sas\.'
                  AND p.oid NOT IN (SELECT g.signature::regprocedure FROM _sas.privilege g
                                    WHERE g.part IN ('builder', 'look')) ORDER BY 1),
          '{}', 'the other public functions only call a verb, read views, or build a piece of a definition');

SELECT * FROM finish();

-- SPDX-License-Identifier: PostgreSQL
--
-- Masked: no verb and no view brings an operator to what the mask of a workflow hides. t/424_mask has the rest of the
-- views.
\ir ../lib/login.sql
SELECT no_plan();

CREATE ROLE ma_ann LOGIN; CREATE ROLE ma_op LOGIN; CREATE ROLE ma_mate LOGIN IN ROLE ma_ann;
SELECT sas.grant_usage('ma_ann', 'user'), sas.grant_usage('ma_op', 'operator') \g /dev/null
CREATE SCHEMA ma; GRANT ALL ON SCHEMA ma TO PUBLIC;
CREATE FUNCTION ma.act(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT input $$;
-- what a query gives as that role
CREATE FUNCTION pg_temp.reads(who text, query text) RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(nullif(x.code, 'ok'), x.said)
    FROM login.as_role(who, format('SELECT string_agg(regexp_replace(x::text, ''run [0-9]+'', ''run N'', ''g''), '' '') FROM (%s) x', query)) x $$;
CREATE FUNCTION ma.version(mask jsonb) RETURNS int LANGUAGE sql AS $$
    SELECT sas.create_workflow('ma_w', '{"steps": {"a": {"wait": {"signal": "go"}}, "b": {"function": "ma.act", "after": ["a"]}},
                                         "concurrency": {"key": "{{input.card}}", "limit": 2},
                                         "hooks": [{"on": "stopped", "function": "ma.act"}]}'::jsonb || mask) $$;
SELECT pg_temp.reads('ma_ann', format('SELECT ma.version(%L)', mask)) FROM unnest(ARRAY['{}', '{"mask": ["input.card"]}', '{"mask": ["input.card", "output"]}', '{"mask": ["output"]}']) mask \g /dev/null
SELECT said AS run FROM login.as_role('ma_ann', $$SELECT run_id FROM sas.submit('ma_w', '{"card": "4711"}', version => 2)$$) \gset
-- what costs more than its value is large, for all who look at the run
SELECT is((login.as_role('ma_ann', format('SELECT ma.version(%L)', jsonb_build_object('mask', ARRAY[path])), false)).code, '22023', 'no mask has the path ' || path)
FROM unnest(ARRAY['input.**', 'input.a.**.**.**.b', '$.input.**{2 to last}', 'input.a ? (@ like_regex "(a*)*b")', 'input.a.keyvalue()', 'input[0 to 100000]', 'input["a"]', 'item.a']) path;
SELECT is((login.as_role('ma_ann', format('SELECT ma.version(%L)', jsonb_build_object('mask', (SELECT jsonb_agg('input.a' || n) FROM generate_series(1, n) n))), false)).code, code, format('a mask of %s paths: %s', n, code))
FROM (VALUES (100, 'ok'), (101, '54000')) x (n, code);

-- what a step has told, whatever the mask leads to
INSERT INTO _sas.chunk (run_id, step_no, element, ordinal, attempt, undo, chunk, emitted_at) SELECT :run, w.step_no, 0, 1, 1, false, '"4711"', now()
FROM _sas.run r JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.name = 'b' AND NOT w.undo WHERE r.run_id = :run;
SELECT is(pg_temp.reads(who, format('SELECT chunk FROM sas.chunks(%s, ''b'')', :run)), said, format('%s: %s', who, what))
FROM (VALUES ('ma_op', '("""***""")', 'an operator sees no masked chunk'), ('postgres', '("""***""")', 'nor a superuser'), ('ma_ann', '("""4711""")', 'the owner does')) w (who, said, what);

-- an error of SQL in its work, which has told it
DO $$
DECLARE
    id bigint := (SELECT max(run_id) FROM sas.runs WHERE workflow = 'ma_w');
    done record := _sas.apart($w$NULL::bigint[] FROM (SELECT c::int FROM (VALUES ('card 4711')) x (c)) y (n) WHERE n > 0$w$, ARRAY[id]);
BEGIN
    PERFORM _sas.defer_apart('timer', ARRAY[id], done.failed, done.errors, done.pauses, ARRAY[id]);
END $$;
SELECT is(pg_temp.reads('ma_op', $$SELECT message FROM sas.alerts WHERE kind = 'stuck'$$), format('("run N: timer %s cannot be carried out: an error with SQLSTATE 22P02")', :run), 'nor is it in an alert about what is stuck');

-- another version
SELECT is(pg_temp.reads('ma_op', format('SELECT input FROM sas.runs WHERE run_id = %s', :run)), '("{""card"": ""***""}")', 'an operator sees no masked value');
SELECT is(pg_temp.reads(who, format('SELECT changed, refused FROM sas.%s', verb)),
          format('(f,"version %s of the workflow does not mask all that run N masks; role ""ma_ann"" itself can do that")', n),
          format('and %s does not come to it by version %s: %s', who, n, verb))
FROM (VALUES (1), (4)) v (n), unnest('{ma_op,ma_mate,postgres}'::text[]) who,
     unnest(ARRAY[format('set_version(%s, %s)', :run, n), format('set_version_runs(ARRAY[%s::bigint], %s)', :run, n)]) verb
WHERE who <> 'ma_mate' OR has_schema_privilege(who, 'sas', 'USAGE') ORDER BY n, who, verb;
SELECT is(pg_temp.reads('ma_op', format('SELECT changed, refused FROM sas.set_version(%s, 3)', :run)), '(t,)', 'a version that masks more he gives to it');
SELECT is(pg_temp.reads('ma_op', format('SELECT changed FROM sas.set_version(%s, 2)', :run)), '(f)', 'but not the one of before again');
SELECT is(pg_temp.reads('ma_ann', format('SELECT changed FROM sas.set_version(%s, 2)', :run)), '(t)', 'its owner does');

-- keys
SELECT is(pg_temp.reads('ma_op', format('SELECT key FROM sas.locks WHERE run_id = %s', :run)), '()', 'nor by the concurrency key that is made of it');
SELECT is(pg_temp.reads('ma_ann', format('SELECT key FROM sas.locks WHERE run_id = %s', :run)), '(4711)', 'which its owner sees');

-- a run of the same input
SELECT is(pg_temp.reads('ma_op', format('SELECT changed FROM sas.halt(%s)', :run)), '(t)', 'when it is halted');
SELECT is(pg_temp.reads('ma_op', format('SELECT changed, refused FROM sas.rerun(%s)', :run)),
          '(f,"run N cannot be run again: version 4 of the workflow does not mask all that run N masks; role ""ma_ann"" itself can do that")', 'he does not run it again with a version that masks less');
SELECT pg_temp.reads('ma_ann', $$SELECT ma.version('{"mask": ["output", "input.card"]}')$$) \g /dev/null
SELECT is(pg_temp.reads('ma_op', format('SELECT changed FROM sas.rerun(%s)', :run)), '(t)', 'only with one that masks it');
SELECT is(pg_temp.reads('ma_op', $$SELECT input FROM sas.runs WHERE workflow = 'ma_w' ORDER BY run_id DESC LIMIT 1$$), '("{""card"": ""***""}")', 'and sees it no more than before');

-- hooks
SELECT is((SELECT array_agg(v.mask IS NOT NULL ORDER BY b.version) FROM _sas.workflow_hook h JOIN _sas.workflow_version b USING (version_id)
           JOIN _sas.workflow_version v ON v.version_id = h.hook_version_id JOIN _sas.workflow w ON w.workflow_id = b.workflow_id
           WHERE w.name = 'ma_w' AND b.version > 0), '{f,t,t,t,t}', 'what the hooks of a workflow with a mask answer is masked');

-- what a submit says of its input
CREATE FUNCTION ma.planned(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'plan of %', input USING DETAIL = 'of 4711'; END $$;
CREATE FUNCTION ma.defines(agents text) RETURNS int LANGUAGE sql AS $$
    SELECT sas.create_workflow('ma_a', jsonb_build_object('mask', '["input.agent"]'::jsonb, 'concurrency', '{"key": "{{input.agent}}", "overlap": "refuse"}'::jsonb,
        'steps', jsonb_build_object('a', jsonb_build_object('agent', '{{input.agent}}', 'agents', agents, 'task', '{}'::jsonb)))) $$;
SELECT FROM sas.create_agent('ma_4711', kind => 'external'), LATERAL sas.grant_agent('ma_4711', 'ma_ann') \g /dev/null
SELECT pg_temp.reads('ma_ann', s) FROM unnest(ARRAY[$$SELECT ma.defines('ma_*')$$, $$SELECT sas.submit('ma_a', '{"agent": "ma_4711"}')$$,
    $$SELECT sas.create_workflow('ma_p', '{"plan": "ma.planned", "mask": ["input.card"]}')$$]) s \g /dev/null
SELECT is(pg_temp.reads('ma_op', format('SELECT changed FROM sas.halt(%s)', r.run_id)), '(t)', 'a run is halted') FROM sas.runs r WHERE r.workflow = 'ma_a';
SELECT pg_temp.reads('ma_ann', $$SELECT sas.submit('ma_a', '{"agent": "ma_4711"}')$$) \g /dev/null
SELECT min(r.run_id) AS first FROM sas.runs r WHERE r.workflow = 'ma_a' \gset
SELECT is(pg_temp.reads(who, format('SELECT refused FROM sas.rerun(%s)', :first)), format('("run N cannot be run again: %s")', said), format('%s: %s', who, what))
FROM (VALUES ('ma_op', 'an error with SQLSTATE 55006; role ""ma_ann"" itself sees all of it', 'who runs it again does not learn the concurrency key'),
             ('postgres', 'an error with SQLSTATE 55006; role ""ma_ann"" itself sees all of it', 'nor does a superuser'),
             ('ma_ann', 'run N is open under the concurrency key ""ma_4711""', 'the owner does')) w (who, said, what);
SELECT is(pg_temp.reads('ma_op', format('SELECT changed FROM sas.halt(%s)', max(r.run_id))), '(t)', 'the other run is halted, too') FROM sas.runs r WHERE r.workflow = 'ma_a';
SELECT pg_temp.reads('ma_ann', $$SELECT ma.defines('other_*')$$) \g /dev/null
SELECT is(pg_temp.reads('ma_op', format('SELECT refused FROM sas.rerun(%s)', :first)), '("run N cannot be run again: an error with SQLSTATE 22023; role ""ma_ann"" itself sees all of it")', 'nor the agent that it names');


-- schedules: why their runs could not be submitted
SELECT pg_temp.reads('ma_ann', format($$SELECT sas.schedule(%L, '0 3 1 1 *', %L, '{"card": "4711", "agent": "ma_4711"}')$$, 'ma_' || w, w)) FROM unnest('{ma_a,ma_p}'::text[]) w \g /dev/null
CREATE FUNCTION pg_temp.triggers(who text, schedule text) RETURNS text LANGUAGE sql AS $$
    SELECT regexp_replace(concat_ws(' ', x.code, x.message, x.place), ' of 20\S+ \S+ ', ' of T ') FROM login.as_role(who, format('SELECT sas.trigger_schedule(%L)', schedule)) x $$;
SELECT is(pg_temp.triggers('ma_op', 'ma_ma_a'), '55000 the run of T could not be submitted: an error At /name.', 'who triggers a schedule does not learn from its error what is masked');
SELECT is(pg_temp.triggers('ma_ann', 'ma_ma_a'), '55000 the run of T could not be submitted: step "a" has no agent: {{input.agent}} gives "ma_4711", which is not one of "other_*" At /steps/a/agent.', 'the owner does');
-- as a worker stores it
SELECT _sas.note_instants(ARRAY[i], false) FROM _sas.schedule s CROSS JOIN LATERAL (SELECT (s.schedule_id, now(), 0, 'failed', NULL, NULL,
    _sas.problem_object('sqlstate:P0001', 'plan of 4711', 'of 4711'))::_sas.schedule_instant AS i) n WHERE s.name = 'ma_ma_p' \g /dev/null
SELECT is(pg_temp.reads(who, $$SELECT error ->> 'title' FROM sas.schedules WHERE name = 'ma_ma_p'$$), said, format('%s: %s', who, what))
FROM (VALUES ('ma_op', '("an error with SQLSTATE P0001")', 'an operator does not see the error of a plan'), ('postgres', '("an error with SQLSTATE P0001")', 'nor does a superuser'),
             ('ma_ann', '("plan of 4711")', 'the owner does')) w (who, said, what);
SELECT is(pg_temp.reads('ma_op', $$SELECT message LIKE 'schedule "ma_ma_p" could not submit its run of %UTC' FROM sas.alerts WHERE kind = 'schedule-failed'$$), '(t)', 'nor is it in the alert');
-- a version with a mask that was granted, and a newer one without
CREATE ROLE ma_bob LOGIN; SELECT sas.grant_usage('ma_bob', 'user') \g /dev/null
SELECT pg_temp.reads('ma_bob', s) FROM unnest(ARRAY[$$SELECT sas.create_workflow('ma_g', '{"mask": ["input.card"], "steps": {}}')$$, $$SELECT sas.grant_workflow('ma_g', 'ma_ann')$$,
    $$SELECT sas.create_workflow('ma_g', '{"steps": {}}')$$]) s \g /dev/null
SELECT pg_temp.reads('ma_ann', $$SELECT sas.schedule('ma_g', '0 3 1 1 *', 'ma_g', '{"card": "4711"}')$$) \g /dev/null
SELECT is(pg_temp.reads('ma_op', $$SELECT input FROM sas.schedules WHERE name = 'ma_g'$$), '("{""card"": ""***""}")', 'the mask of the version that its runs have hides the input of a schedule');

-- the last error of an agent: what the service said to a call of that run
SELECT FROM sas.create_agent('ma_h', 'http://127.0.0.1:1') \g /dev/null
SELECT pg_temp.reads('ma_ann', $$SELECT sas.create_workflow('ma_open', '{"steps": {"a": {"wait": {"signal": "go"}}}}')$$) \g /dev/null
SELECT said AS open_run FROM login.as_role('ma_ann', $$SELECT run_id FROM sas.submit('ma_open')$$) \gset
CREATE FUNCTION pg_temp.fails(id text) RETURNS void LANGUAGE sql AS $$
    SELECT _sas.write_health(ARRAY[(SELECT a.agent_id FROM _sas.agent a WHERE a.name = 'ma_h')], ARRAY[NULL::text], ARRAY[NULL::float8],
        ARRAY[jsonb_build_object('type', 'urn:sas:http', 'title', 'refused', 'status', 400, 'detail', '4711', 'instance', id)]) $$;
CREATE FUNCTION pg_temp.last(who text) RETURNS text LANGUAGE sql AS $$ SELECT pg_temp.reads(who, 'SELECT last_error ->> ''detail'' FROM sas.agents WHERE name = ''ma_h''') $$;
SELECT pg_temp.fails(format('/runs/%s/steps/a', :run)) \g /dev/null
SELECT is(pg_temp.last('ma_op'), '()', 'an operator does not see the error of a call of a run with a mask');
SELECT is(pg_temp.last('postgres'), '()', 'nor does a superuser');
SELECT pg_temp.fails('/runs/1000000000/steps/a') \g /dev/null
SELECT is(pg_temp.last('ma_op'), '()', 'nor that of a run that is gone');
SELECT pg_temp.fails(format('/runs/%s/steps/a', :open_run)) \g /dev/null
SELECT is(pg_temp.last('ma_op'), '(4711)', 'he sees that of another run');
SELECT pg_temp.fails('/watches/7') \g /dev/null
SELECT is(pg_temp.last('ma_op'), '(4711)', 'and that of an infinite task');

-- infinite tasks whose items become such runs
SELECT pg_temp.reads('ma_ann', s) FROM unnest(ARRAY[$$SELECT sas.create_workflow('ma_i', '{"mask": ["input.card"], "steps": {}}')$$,
    $$SELECT sas.create_watcher('ma_' || k, jsonb_build_object('agent', 'ma_4711', 'external', '{}'::jsonb, 'items', t)) FROM (VALUES ('m', '{"workflow": "ma_i"}'::jsonb), ('o', '{"workflow": "ma_open"}')) w (k, t)$$,
    $$SELECT count(*) FROM unnest('{ma_m,ma_o}'::text[]) w, LATERAL sas.watch(w, 'k')$$]) s \g /dev/null
UPDATE _sas.watch_done SET last_error = _sas.problem_object('sqlstate:22023', 'it gives 4711', 'of 4711'), last_error_at = now(), given_up_at = now();
SELECT _sas.settle_watches(array_agg(watch_id)) FROM _sas.watch \g /dev/null
SELECT is(pg_temp.reads(who, $$SELECT watcher, last_error ->> 'title' FROM sas.watches ORDER BY 1$$), said, format('%s: %s', who, what))
FROM (VALUES ('ma_op', '(ma_m,"an error with SQLSTATE 22023") (ma_o,"it gives 4711")', 'an operator does not see the error of an item that becomes a run with a mask'), ('ma_ann', '(ma_m,"it gives 4711") (ma_o,"it gives 4711")', 'the owner does')) w (who, said, what);
SELECT is(pg_temp.reads('ma_op', $$SELECT message FROM sas.alerts WHERE kind = 'watch-failed' ORDER BY alert_id$$),
          '("watch ""k"" of watcher ""ma_m"" failed: an error with SQLSTATE 22023") ("watch ""k"" of watcher ""ma_o"" failed: it gives 4711: of 4711")', 'nor in the alert');

-- what lists of paths cost, for each element
SELECT is((login.as_role('ma_ann', format('SELECT ma.version(%L)', jsonb_build_object('mask', (SELECT jsonb_agg('input.many[*].a' || n) FROM generate_series(1, 100) n))))).code, 'ok', 'a user has a mask of many paths');
SELECT said AS many FROM login.as_role('ma_ann', $$SELECT run_id FROM sas.submit('ma_w', jsonb_build_object('card', '1', 'many', (SELECT jsonb_agg(NULL::text) FROM generate_series(1, 150000))))$$) \gset
SELECT substring(pg_read_file('/proc/' || pg_backend_pid() || '/status') FROM 'VmHWM:\s+(\d+)')::bigint AS before \gset
SELECT is((SELECT jsonb_array_length(input -> 'many') FROM sas.runs WHERE run_id = :many), 150000, 'a run with a large input has many paths in its mask');
SELECT cmp_ok(substring(pg_read_file('/proc/' || pg_backend_pid() || '/status') FROM 'VmHWM:\s+(\d+)')::bigint - :before, '<', 80000::bigint, 'who looks at it does not need a list of them for each element');

SELECT * FROM finish();

-- SPDX-License-Identifier: PostgreSQL
--
-- Schedules under a frozen clock.
SELECT t.clean() \g /dev/null
SET timezone = 'UTC';
\set SHOW_CONTEXT never
SELECT t.workflow('quick', '{}', '{"output": {"at": "{{run.scheduled_at}}", "by": "{{run.schedule}}"}}') \g /dev/null
SELECT t.workflow('long', '{"a": {"wait": {"signal": "go"}}}') \g /dev/null
SELECT t.workflow('breaks', '{"a": {"wait": {"signal": "go"}, "expect": "$.output == 1"}}') \g /dev/null
-- t.runs(schedule): its runs in short
CREATE FUNCTION t.runs(name text) RETURNS TABLE (run_id bigint, scheduled_at text, state text, result text) LANGUAGE sql AS $$
    SELECT r.run_id, to_char(r.scheduled_at, 'MM-DD HH24:MI:SS'), r.state, r.result FROM sas.runs r WHERE r.schedule = name ORDER BY 1
$$;
CREATE FUNCTION t.plan(name text) RETURNS TABLE (state text, next text, runs bigint, missed bigint, skipped bigint, open int, last bigint) LANGUAGE sql AS $$
    SELECT s.state, to_char(s.next_run_at, 'MM-DD HH24:MI:SS'), s.runs, s.missed, s.skipped, s.open_runs, s.last_run_id FROM sas.schedules s WHERE s.name = plan.name
$$;
-- a run at each instant, with its key, and what it sees of its instant
SELECT sas.schedule('daily', '30 2 * * *', 'quick', timezone => 'Europe/Berlin');
SELECT t.work();
SELECT t.later('1 day') \g /dev/null
SELECT t.work();
SELECT run_id, key, schedule, scheduled_at, state, result, output FROM sas.runs;
SELECT * FROM t.plan('daily');
-- the clock is set back, the run is purged, the schedule is made anew: no instant runs twice
SELECT t.later('-23 h') \g /dev/null
SELECT t.work();
SELECT sas.schedule('daily', '31 2 * * *', 'quick', timezone => 'Europe/Berlin') - sas.now() AS in_a_day;
SELECT sas.schedule('daily', '30 2 * * *', 'quick', timezone => 'Europe/Berlin') - sas.now() AS in_a_day;
SELECT t.later('23 h') \g /dev/null
SELECT t.work();
SELECT * FROM t.runs('daily');
SELECT sas.unschedule('daily');
SELECT t.later('-22 h 40 min') \g /dev/null
SELECT sas.schedule('daily', '30 2 * * *', 'quick', '{"other": 1}', 'Europe/Berlin');
SELECT t.later('1 h') \g /dev/null
SELECT t.work();
SELECT * FROM t.runs('daily');
SELECT * FROM t.plan('daily');
SELECT sas.unschedule('daily');
-- its keys are its own
SELECT * FROM sas.submit('quick', key => 'schedule:daily:2026-01-01T01:30:00Z');
SELECT * FROM sas.submit_batch('quick', '{"{}"}', '{schedule:x}');
-- what is refused
CREATE FUNCTION t.refuses(command text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE place text;
BEGIN
    EXECUTE 'SELECT ' || command;
    RETURN 'accepted';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS place = PG_EXCEPTION_DETAIL;
    RETURN format('%s %s %s', SQLSTATE, SQLERRM, place);
END $$;
SELECT t.refuses(c) FROM unnest(ARRAY[$$sas.schedule('No', '@daily', 'quick')$$, $$sas.schedule('n', '0 0 30 2 *', 'quick')$$, $$sas.schedule('n', '@daily', 'none')$$, $$sas.schedule('n', '@daily', 'quick', '7')$$,
    $$sas.schedule('n', '@daily', 'quick', timezone => 'Nowhere')$$, $$sas.schedule('n', '@daily', 'quick', overlap => 'maybe')$$, $$sas.schedule('n', '@daily', 'quick', overlap => NULL)$$, $$sas.schedule('n', '@daily', 'quick', catch_up => 'some')$$, $$sas.schedule('n', '@daily', 'quick', catch_up_window => '0')$$,
    $$sas.schedule('n', '@daily', 'quick', jitter => '-1 s')$$, $$sas.schedule('n', '@daily', 'quick', max_runs => 0)$$, $$sas.schedule('n', '@daily', 'quick', start_at => '2026-02-02', end_at => '2026-02-01')$$, $$sas.schedule('n', '@daily', 'quick', end_at => '2025-01-01')$$, $$sas.schedule('n', '@daily', 'quick', start_at => 'infinity')$$, $$sas.schedule('n', '@daily', 'quick', end_at => 'infinity')$$,
    $$sas.schedule('n', '@daily', 'quick', priority => 5000)$$, $$sas.schedule('n', '@daily', 'quick', labels => '[]')$$, $$sas.schedule('n', NULL, 'quick')$$, $$sas.schedule(NULL, '@daily', 'quick')$$, $$sas.unschedule('n')$$, $$sas.pause_schedule('n')$$, $$sas.resume_schedule('n')$$, $$sas.trigger_schedule('n')$$,
    $$sas.backfill_schedule('n', now(), now())$$]) c;
SELECT count(*) FROM sas.schedules;
-- overlap: the run of the first instant is open for three
SELECT t.clean() \g /dev/null
SELECT sas.schedule('o_' || o, 'every 1 h', 'long', overlap => o) FROM unnest('{skip,wait,once_more,replace,allow}'::text[]) o;
SELECT t.later('1 h'), t.settle() FROM generate_series(1, 4) \g /dev/null
SELECT o, p.* FROM unnest('{skip,wait,once_more,replace,allow}'::text[]) o, t.plan('o_' || o) p;
SELECT o, r.* FROM unnest('{skip,wait,once_more,replace,allow}'::text[]) o, t.runs('o_' || o) r;
SELECT r.run_id, e.waiting_kind, e.waiting_on, e.text FROM sas.runs r, LATERAL sas.explain(r.run_id) e WHERE schedule = 'o_wait' AND state = 'scheduled' ORDER BY 1;
SELECT sas.signal(run_id, 'go') FROM sas.runs WHERE state = 'running' \g /dev/null
SELECT t.work();
SELECT o, r.* FROM unnest('{skip,wait,once_more,replace,allow}'::text[]) o, t.runs('o_' || o) r WHERE r.state <> 'stopped';
-- catch-up: the clock jumps by seven hours, and by two days
SELECT t.clean() \g /dev/null
SELECT sas.schedule('c_' || c, 'every 1 h', 'quick', catch_up => c, overlap => 'allow', catch_up_window => '3 h') FROM unnest('{none,last,all}'::text[]) c;
SELECT t.later('7 h 30 min'), t.work();
SELECT c, p.* FROM unnest('{none,last,all}'::text[]) c, t.plan('c_' || c) p;
SELECT c, r.* FROM unnest('{none,last,all}'::text[]) c, t.runs('c_' || c) r;
SELECT t.later('2 days'), t.work();
SELECT c, p.* FROM unnest('{none,last,all}'::text[]) c, t.plan('c_' || c) p;
-- an instant that is less than a minute late is on time
SELECT t.later('30 min 59 s'), t.work();
SELECT * FROM t.plan('c_none');
-- more instants are due than one tick submits, or than are counted
SELECT sas.schedule('many', 'every 1 s', 'quick', catch_up => 'all', overlap => 'allow', catch_up_window => '5 min');
SELECT sas.schedule('lots', 'every 1 s', 'quick');
SELECT t.later('4 h'), t.work() \g /dev/null
SELECT n, p.* FROM unnest('{many,lots}'::text[]) n, t.plan(n) p;
SELECT count(*), count(DISTINCT scheduled_at), max(scheduled_at) - min(scheduled_at) AS span FROM sas.runs WHERE schedule = 'many';
-- pause: its instants are gone; resume: the next one
SELECT t.clean() \g /dev/null
SELECT sas.schedule('p', '0 * * * *', 'quick', catch_up => 'all');
SELECT sas.pause_schedule('p', 'stocktaking'), sas.pause_schedule('p');
SELECT t.later('5 h'), t.work();
SELECT state, paused_reason, next_run_at, runs, missed FROM sas.schedules;
-- written again, it stays paused
SELECT sas.schedule('p', '0 * * * *', 'quick', catch_up => 'all');
SELECT state, paused_reason FROM sas.schedules;
SELECT sas.resume_schedule('p'), sas.resume_schedule('p');
SELECT t.work();
SELECT * FROM t.plan('p');
SELECT t.later('1 h'), t.work();
SELECT * FROM t.runs('p');
-- what cannot be submitted: why, an alert, the next instant; after ten in a row it is stopped
SELECT t.workflow('going', '{}') \g /dev/null
SELECT sas.schedule('f', '0 * * * *', 'going');
SELECT sas.drop_workflow('going');
-- the schedule keeps it; so as another way may have left it
UPDATE _sas.workflow SET dropped_at = sas.now() WHERE name = 'going';
SELECT t.later('1 h'), t.settle() \g /dev/null
SELECT state, failures, error ->> 'title' AS error, next_run_at FROM sas.schedules WHERE name = 'f';
SELECT kind, message, occurrences FROM t.alerts();
SELECT t.workflow('going', '{}') \g /dev/null
SELECT t.later('1 h'), t.settle() \g /dev/null
SELECT state, failures, error, runs FROM sas.schedules WHERE name = 'f';
SELECT count(*) FROM t.alerts();
UPDATE _sas.workflow SET dropped_at = sas.now() WHERE name = 'going' AND dropped_at IS NULL;
SELECT t.later('1 h'), t.settle() FROM generate_series(1, 11) \g /dev/null
SELECT state, failures, error ->> 'title' AS error, next_run_at, runs FROM sas.schedules WHERE name = 'f';
SELECT kind, message, occurrences FROM t.alerts();
SELECT sas.trigger_schedule('f');
SELECT t.workflow('going', '{}') \g /dev/null
SELECT sas.resume_schedule('f');
SELECT count(*) FROM t.alerts();
SELECT t.later('1 h'), t.settle() \g /dev/null
SELECT * FROM t.plan('f');
-- pause_on_failure: at once
SELECT sas.schedule('b', '0 * * * *', 'breaks', pause_on_failure => true);
SELECT t.later('1 h'), t.settle() \g /dev/null
SELECT sas.signal(run_id, 'go', '2') FROM sas.runs WHERE schedule = 'b';
SELECT t.work();
SELECT state, paused_reason, next_run_at, last_result, open_runs FROM sas.schedules WHERE name = 'b';
SELECT kind, message FROM t.alerts();
SELECT sas.resume_schedule('b');
SELECT t.later('1 h'), t.settle() \g /dev/null
SELECT sas.signal(run_id, 'go', '1') FROM sas.runs WHERE schedule = 'b' AND state = 'running';
SELECT t.work();
SELECT state, last_result FROM sas.schedules WHERE name = 'b';
SELECT count(*) FROM t.alerts();
-- start_at anchors intervals; end_at, max_runs
SELECT t.clean() \g /dev/null
SELECT sas.schedule('s', 'every 7 min', 'quick', start_at => '2026-01-01 00:03', end_at => '2026-01-01 00:20'), sas.schedule('m', '* * * * *', 'quick', max_runs => 2);
SELECT t.later('1 min'), t.work() FROM generate_series(1, 30) \g /dev/null
SELECT * FROM t.runs('s') UNION ALL SELECT * FROM t.runs('m');
SELECT n, p.* FROM unnest('{s,m}'::text[]) n, t.plan(n) p;
SELECT sas.resume_schedule('m');
SELECT sas.schedule('m', '* * * * *', 'quick', max_runs => 2) IS NULL AS nothing_left;
SELECT sas.schedule('m', '* * * * *', 'quick', max_runs => 3) - sas.now() AS next;
-- jitter: the same for one schedule, spread over all, and not in scheduled_at
SELECT count(sas.schedule('j' || g, '0 1 * * *', 'quick', jitter => '10 min')) FROM generate_series(1, 200) g;
SELECT count(DISTINCT next_run_at), min(next_run_at) >= '2026-01-01 01:00' AS from_then, max(next_run_at) < '2026-01-01 01:10' AS to_then, min(next_run_at) < '2026-01-01 01:01' AND max(next_run_at) > '2026-01-01 01:09' AS spread FROM sas.schedules WHERE name LIKE 'j%';
SELECT t.later('45 min'), t.settle() \g /dev/null
SELECT count(*), count(DISTINCT scheduled_at) FROM sas.runs WHERE schedule LIKE 'j%';
SELECT count(DISTINCT to_char(next_run_at - last_run_at, 'DD')), bool_and(next_run_at::date = '2026-01-02') FROM sas.schedules WHERE name LIKE 'j%';
-- trigger and backfill
SELECT t.clean() \g /dev/null
SELECT sas.schedule('t', '0 * * * *', 'long');
SELECT t.later('2 h 30 min'), t.settle() \g /dev/null
SELECT * FROM sas.trigger_schedule('t');
SELECT sas.signal(run_id, 'go'), t.work() FROM sas.runs WHERE schedule = 't' \g /dev/null
SELECT * FROM sas.trigger_schedule('t');
SELECT * FROM sas.backfill_schedule('t', '2026-01-01 00:00', '2026-01-01 02:00', 'allow');
SELECT * FROM sas.backfill_schedule('t', '2026-01-01 00:00', '2026-01-01 02:00', 'allow');
SELECT * FROM t.runs('t');
SELECT * FROM t.plan('t');
SELECT t.refuses(c) FROM unnest(ARRAY[$$sas.backfill_schedule('t', '2026-01-01', '2027-01-01')$$, $$sas.backfill_schedule('t', '2020-01-01', '2026-01-01')$$, $$sas.backfill_schedule('t', '2026-01-01', '2026-01-01', 'often')$$, $$sas.backfill_schedule('t', NULL, '2026-01-01')$$]) c;
-- the calendar
SELECT sas.schedule('u', '15 */12 * * *', 'quick', jitter => '1 min'), sas.schedule('v', '@daily', 'quick', max_runs => 1);
SELECT scheduled_at, schedule, workflow, owner = current_user AS mine, run_at >= scheduled_at AS not_before FROM sas.calendar('2026-01-01 10:00', '2026-01-02 00:15:59') WHERE schedule <> 't';
SELECT count(*) FROM sas.calendar();
-- many instants: the first ones, whichever schedule has them
SELECT count(sas.schedule('k' || g, format('every %s s', g), 'quick')) FROM generate_series(1, 60) g;
WITH every AS (SELECT n, s.name FROM sas.schedules s, generate_series(1, 20000) k, LATERAL (SELECT to_timestamp((floor(extract(epoch FROM sas.now()) / p) + k) * p) AS n FROM (SELECT substr(s.name, 2)::int AS p) x) i WHERE s.name ~ '^k[0-9]+$' AND k <= 3000),
first AS (SELECT n, name FROM every ORDER BY n, name LIMIT 10000)
SELECT count(*), (SELECT count(*) FROM sas.calendar(to_at => sas.now() + interval '2 h')) AS most, count(*) FILTER (WHERE f.n IS NULL) AS others
FROM sas.calendar(to_at => sas.now() + interval '2 h') c LEFT JOIN first f ON f.name = c.schedule AND f.n = c.scheduled_at WHERE c.schedule ~ '^k';
SELECT count(sas.unschedule('k' || g)) FROM generate_series(1, 60) g;
-- a dashboard of pg_cron
SELECT s.name, d.jobid = s.schedule_id AS its, d.job_pid, d.database = current_database() AS here, d.username = current_user AS mine, d.command, d.status, d.return_message, d.end_time >= d.start_time AS timed, d.jobname FROM sas.run_details d LEFT JOIN sas.schedules s ON s.schedule_id = d.jobid ORDER BY d.runid LIMIT 2;
-- who changed what
SELECT act, detail FROM sas.history WHERE act ~ 'schedule' AND detail ->> 'schedule' !~ '^k[0-9]' ORDER BY at, act, detail;
-- a workflow that a function plans: the scheduler offers the instant, a function worker submits it
SELECT t.clean() \g /dev/null
CREATE FUNCTION t.plan_one(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF input ? 'broken' THEN RAISE EXCEPTION 'no plan for %', input USING ERRCODE = input ->> 'broken'; END IF;
    RETURN jsonb_build_object('steps', jsonb_build_object('a', '{"wait": {"signal": "go"}}'::jsonb));
END $$;
SELECT t.workflow('planned_by_clock', '{}', '{"plan": "t.plan_one"}') \g /dev/null
SELECT sas.schedule('w', '0 * * * *', 'planned_by_clock', catch_up => 'all', overlap => 'once_more'), sas.schedule('x', '0 * * * *', 'quick');
-- t.offered(): what is offered or claimed; t.submit_next(): a function worker
CREATE FUNCTION t.offered() RETURNS TABLE (name text, instant text, offered boolean, worker_id bigint, tries int, due_in interval, next text) LANGUAGE sql AS $$
    SELECT s.name, to_char((p.instant).scheduled_at, 'HH24:MI'), p.offered, p.worker_id, p.tries, p.due_at - sas.now(), to_char(s.due_at, 'HH24:MI') FROM _sas.schedule_plan p JOIN _sas.schedule s USING (schedule_id)
$$;
CREATE FUNCTION t.submit_next(worker_id bigint DEFAULT 1) RETURNS text LANGUAGE plpgsql AS $$
DECLARE c record; done jsonb; error text; state text;
BEGIN
    SELECT * INTO c FROM _sas.claim_plan(1, worker_id);
    IF NOT FOUND THEN RETURN 'nothing'; END IF;
    BEGIN
        done := _sas.submit_planned(c.schedule_id, c.request_id);
    EXCEPTION WHEN OTHERS THEN error := SQLERRM; state := SQLSTATE;
    END;
    PERFORM _sas.end_planned(c.schedule_id, c.request_id, done, state, _sas.problem_object('function', error, NULL, NULL, NULL, NULL));
    RETURN concat_ws(' ', c.name, done - 'open', state, error);
END $$;
SELECT t.later('2 h 10 min'), t.settle() \g /dev/null
SELECT * FROM t.offered();
SELECT * FROM t.plan('w') UNION ALL SELECT * FROM t.plan('x');
SELECT t.schedule(), t.submit_next(), t.submit_next();
SELECT * FROM t.plan('w');
SELECT t.settle() \g /dev/null
SELECT t.submit_next();
SELECT * FROM t.runs('w');
SELECT * FROM t.plan('w');
-- at the next instant one runs and one waits: nothing is offered, it is skipped
SELECT t.later('1 h'), t.settle() \g /dev/null
SELECT * FROM t.offered();
SELECT * FROM t.plan('w');
-- its worker is gone, its claim is over: it is offered again; after five tries it has failed
SELECT sas.schedule('w', '0 * * * *', 'planned_by_clock', catch_up => 'all', overlap => 'allow');
SELECT t.later('1 h'), t.settle() \g /dev/null
SELECT name, window_ms FROM _sas.claim_plan(1, 7);
SELECT * FROM t.offered();
SELECT _sas.offer_plans(1, '{7}', 7) - sas.now() AS live, _sas.claim_plan(1, 8);
SELECT _sas.offer_plans(1, '{8}', 8) - sas.now() AS gone;
SELECT * FROM t.offered();
SELECT name FROM _sas.claim_plan(1, 8);
SELECT t.later('3 min'), _sas.offer_plans(1, '{8}', 8) \g /dev/null
SELECT * FROM t.offered();
SELECT name FROM _sas.claim_plan(1, 8);
SELECT _sas.offer_plans(2, '{8}', 8) - sas.now() AS restarted;
SELECT name FROM _sas.claim_plan(1, 9);
SELECT _sas.offer_plans(1, '{}', 9) \g /dev/null
SELECT name FROM _sas.claim_plan(1, 9);
SELECT _sas.offer_plans(1, '{}', 9) \g /dev/null
SELECT t.submit_next();
SELECT failures, error ->> 'title' AS error, next_run_at FROM sas.schedules WHERE name = 'w';
-- a claim that is over submits nothing; nor does one whose schedule has changed meanwhile
SELECT t.later('1 h'), t.settle() \g /dev/null
SELECT schedule_id AS s, request_id AS r FROM _sas.claim_plan(1, 1) \gset
SELECT _sas.submit_planned(:s, gen_random_uuid()) IS NULL AS fenced;
BEGIN;
SELECT _sas.submit_planned(:s, :'r') - 'open' AS done;
SELECT created FROM sas.trigger_schedule('w');
SELECT _sas.end_planned(:s, :'r', '{"outcome": "run", "run_id": 99, "open": []}', NULL, NULL);
ROLLBACK;
SELECT sas.pause_schedule('w');
SELECT _sas.submit_planned(:s, :'r') IS NULL AS paused;
SELECT _sas.end_planned(:s, :'r', '{"outcome": "run", "run_id": 99, "open": []}', NULL, NULL);
-- what passes is tried again; what does not is a failure of that instant
SELECT sas.resume_schedule('w');
SELECT sas.schedule('w', '0 * * * *', 'planned_by_clock', '{"broken": "40001"}', overlap => 'allow') - sas.now() AS next;
SELECT t.later('1 h'), t.settle() \g /dev/null
SELECT t.submit_next();
SELECT * FROM t.offered();
SELECT t.submit_next(), t.later('1 s'), _sas.offer_plans(1, '{}', 1) - sas.now() AS offered;
SELECT sas.schedule('w', '0 * * * *', 'planned_by_clock', '{"broken": "22023"}', overlap => 'allow') - sas.now() AS next;
SELECT t.settle() \g /dev/null
SELECT t.submit_next();
SELECT failures, error ->> 'title' AS error, next_run_at FROM sas.schedules WHERE name = 'w';
-- by hand: in the session of the owner only
CREATE ROLE t_planner; CREATE ROLE t_operator; SELECT sas.grant_usage('t_planner', 'user'), sas.grant_usage('t_operator', 'operator');
GRANT USAGE ON SCHEMA t TO t_planner; SELECT sas.grant_workflow('planned_by_clock', 't_planner');
SET ROLE t_planner;
SELECT sas.schedule('theirs', '@hourly', 'planned_by_clock') IS NOT NULL AS scheduled;
SELECT created FROM sas.trigger_schedule('theirs');
RESET ROLE;
SELECT sas.trigger_schedule('theirs');
SET ROLE t_operator;
SELECT sas.backfill_schedule('theirs', '2026-01-01', '2026-01-01 02:00');
RESET ROLE;
-- middleware of phase plan is called there, too
CREATE FUNCTION t.around(context jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT CASE WHEN NOT context ? 'response' THEN '{"request": {"labels": {"seen": true}}}'::jsonb END $$;
SELECT sas.create_middleware('around', 'plan', before => 't.around(jsonb)', after => 't.around(jsonb)', workflow => 'quick');
SELECT sas.schedule('x', '0 * * * *', 'quick', labels => '{"mine": 1}') - sas.now() AS next;
SELECT t.later('1 h'), t.settle() \g /dev/null
SELECT t.submit_next(g) FROM generate_series(1, 4) g ORDER BY 1;
SELECT labels FROM sas.runs WHERE schedule = 'x' ORDER BY run_id DESC LIMIT 1;
SELECT sas.drop_middleware('around');
DROP FUNCTION t.around(jsonb), t.submit_next(bigint), t.offered();
SELECT sas.unschedule(n) FROM unnest('{w,x,theirs}'::text[]) n;
SELECT count(*) FROM _sas.schedule_plan;
SELECT sas.revoke_workflow('planned_by_clock', 't_planner'); DROP OWNED BY t_planner, t_operator;
SELECT t.clean() \g /dev/null
SELECT sas.drop_workflow('planned_by_clock');
DROP FUNCTION t.plan_one(jsonb);
DROP ROLE t_planner, t_operator;
DELETE FROM _sas.planned p USING _sas.workflow f WHERE f.workflow_id = p.workflow_id AND f.name = 'planned_by_clock';
-- whose workflow it is: a dropped one that another role creates again, and grants, is not run with the rights of the schedule's owner
CREATE ROLE t_ann; CREATE ROLE t_bob; SELECT sas.grant_usage('t_ann', 'user'), sas.grant_usage('t_bob', 'user') \g /dev/null
SET ROLE t_ann;
SELECT sas.create_workflow('nightly', '{"steps": {}}'), sas.schedule('nightly', '0 * * * *', 'nightly') IS NOT NULL AS scheduled;
RESET ROLE;
SELECT t.later('1 h'), t.settle() \g /dev/null
SELECT state, error, runs FROM sas.schedules WHERE name = 'nightly';
UPDATE _sas.workflow SET dropped_at = sas.now() WHERE name = 'nightly';
SET ROLE t_bob; SELECT sas.create_workflow('nightly', '{"steps": {}}'), sas.grant_workflow('nightly', 't_ann'); RESET ROLE;
SELECT t.later('1 h'), t.settle() \g /dev/null
SELECT state, error ->> 'title' AS error, runs FROM sas.schedules WHERE name = 'nightly';
SET ROLE t_ann; SELECT sas.schedule('nightly', '0 * * * *', 'nightly') IS NOT NULL AS looked_at; RESET ROLE;
SELECT t.later('1 h'), t.settle() \g /dev/null
SELECT state, error, runs FROM sas.schedules WHERE name = 'nightly';
-- nor does a superuser's schedule run the workflow of another role
SELECT sas.schedule('mine', '0 * * * *', 'nightly');
SELECT sas.unschedule('nightly'); SELECT t.clean() \g /dev/null
SELECT sas.drop_workflow('nightly'); DROP OWNED BY t_ann, t_bob; DROP ROLE t_ann, t_bob;
-- owners take turns where more is due than one tick takes
CREATE ROLE t_many; CREATE ROLE t_one; SELECT sas.grant_workflow('quick', r::regrole) FROM unnest('{t_many,t_one}'::text[]) r \g /dev/null
INSERT INTO _sas.schedule (name, owner, spec, timezone, workflow, workflow_owner, input, overlap, catch_up, catch_up_window, jitter, pause_on_failure, priority, labels, state, due_at, last_scheduled_at, created_at)
SELECT 'many_' || g, CASE g WHEN 300 THEN 't_one' ELSE 't_many' END::regrole, 'every 1 h', 'UTC', 'quick', current_user::regrole, '{}', 'allow', 'last', '1 day', '0', false, 0, '{}', 'active', sas.now() + g * interval '1 ms', sas.now() - interval '1 h', sas.now() FROM generate_series(1, 300) g;
SELECT t.later('1 s') \g /dev/null
SELECT worked FROM _sas.fire_schedules(100);
SELECT submitted_by, count(*) FROM sas.runs GROUP BY 1 ORDER BY 1;
SELECT worked FROM _sas.fire_schedules(100);
SELECT submitted_by, count(*) FROM sas.runs GROUP BY 1 ORDER BY 1;
-- and what many schedules have missed is submitted in small parts
UPDATE _sas.schedule SET catch_up = 'all', spec = 'every 1 s', last_scheduled_at = sas.now() - interval '10 min', due_at = sas.now() - interval '10 min';
SELECT worked, (SELECT count(*) FROM _sas.run) <= 200 + 1000 AS at_most FROM _sas.fire_schedules(300);
SELECT count(*) <= 200 + 1000 AS at_most FROM _sas.run;
SELECT t.clean() \g /dev/null
SELECT sas.revoke_workflow('quick', r::regrole) FROM unnest('{t_many,t_one}'::text[]) r \g /dev/null
DROP OWNED BY t_many, t_one; DROP ROLE t_many, t_one;
-- many open runs: the last ones are looked at, whatever the rule
SELECT sas.schedule('a', 'every 1 s', 'long', overlap => 'allow'), sas.schedule('w', 'every 1 s', 'long', overlap => 'wait') \g /dev/null
SELECT t.later('1 s'), t.schedule() FROM generate_series(1, 60) \g /dev/null
SELECT name, runs, open_runs, (SELECT count(*) FROM _sas.run_dependency d JOIN sas.runs r USING (run_id) WHERE r.schedule = s.name) AS follow FROM sas.schedules s ORDER BY 1;
SELECT sas.cancel_runs(ARRAY(SELECT run_id FROM sas.runs WHERE schedule IN ('a', 'w') ORDER BY run_id DESC LIMIT 118)) \g /dev/null
SELECT t.settle(), t.later('1 s'), t.settle() \g /dev/null
SELECT name, runs, open_runs, (SELECT cardinality(open_run_ids) FROM _sas.schedule x WHERE x.name = s.name) AS kept FROM sas.schedules s ORDER BY 1;
SELECT r.schedule, r.state, r.after_run = (SELECT min(run_id) FROM sas.runs f WHERE f.schedule = 'w') AS follows_first FROM sas.runs r WHERE r.schedule IN ('a', 'w') ORDER BY run_id DESC LIMIT 2;
SELECT sas.unschedule(n) FROM unnest('{a,w}'::text[]) n \g /dev/null
SELECT t.clean() \g /dev/null
-- metrics
SELECT sas.schedule('late', 'every 1 h', 'quick') - sas.now() < '1 h' AS ahead;
SELECT t.later('1 h 7 s') \g /dev/null
SELECT name, labels, round(value) AS value FROM sas.metrics() WHERE name IN ('sas_schedules_defined', 'sas_schedules_due', 'sas_schedule_late_seconds') AND value > 0 ORDER BY 1, 2;
SELECT labels ->> 'outcome' AS outcome, value > 0 AS counted FROM sas.metrics() WHERE name = 'sas_schedule_instants_total' ORDER BY 1;
DROP FUNCTION t.runs(text), t.plan(text), t.refuses(text);
SELECT t.clean() \g /dev/null

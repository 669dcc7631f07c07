-- SPDX-License-Identifier: PostgreSQL
--
-- Alerts: one per cause while that lasts, closed when it has ended, told once.
SELECT t.clean() \g /dev/null
\set SHOW_CONTEXT never
CREATE FUNCTION t.all_alerts() RETURNS TABLE (kind text, agent text, run_id bigint, message text, n int, seen boolean, raised interval, closed interval) LANGUAGE sql AS $$
    SELECT a.kind, a.agent, a.run_id, a.message, a.occurrences, a.acknowledged_at IS NOT NULL, t.at(a.created_at), t.at(a.closed_at) FROM sas.alerts a ORDER BY a.alert_id
$$;

-- a run that a rule paused: open until it goes on; when it fails again, a new one
SELECT t.workflow('call', '{"a": {"agent": "inventory", "call": {}, "on_failure": "pause"}}') \g /dev/null
SELECT run_id FROM sas.submit('call');
SELECT t.work('{"a": "permanent 400"}');
SELECT t.later('1 min') \g /dev/null
SELECT changed FROM sas.resume(1);
SELECT t.work('{"a": "permanent 400"}');
SELECT * FROM t.all_alerts();
SELECT alerts_open FROM sas.health();
-- acknowledged it stays open, and counts no more among what an operator should look at
SELECT * FROM sas.acknowledge_alerts(ARRAY(SELECT alert_id FROM sas.alerts WHERE closed_at IS NULL));
SELECT alerts_open FROM sas.health();
SELECT kind, seen, closed FROM t.all_alerts() WHERE closed IS NULL;
-- cancelled, it has ended too
SELECT changed FROM sas.cancel(1);
SELECT count(*) FROM sas.alerts WHERE closed_at IS NULL;

-- an undo that failed for good, and the deadline of a paused run
SELECT t.clean() \g /dev/null
SELECT t.workflow('undo', '{"a": {"agent": "inventory", "call": {}, "undo": {"call": {}, "recovery": {"max_failures": 1}}}, "b": {"agent": "payments", "call": {}, "after": ["a"]}}') \g /dev/null
SELECT run_id FROM sas.submit('undo');
SELECT t.work('{"b": "permanent 400", "undo a": "permanent 500"}');
SELECT run_id FROM sas.submit('undo', deadline => '1 h');
SELECT changed FROM sas.pause(2);
SELECT t.later('1 h'), t.settle() \g /dev/null
SELECT * FROM t.all_alerts();
SELECT changed FROM sas.resume_runs('{1,2}'::bigint[]);
SELECT * FROM t.all_alerts();
SELECT t.work() \g /dev/null
SELECT run_id, state, result FROM sas.runs ORDER BY 1;

-- the breaker of an agent: one alert, however often a probe fails; told once, also when it closes and opens again soon
SELECT t.clean() \g /dev/null
CREATE FUNCTION t.breaker(agent text, stands text) RETURNS void LANGUAGE sql AS $$
    SELECT _sas.write_health(ARRAY[a.agent_id], ARRAY[stands], ARRAY[30000]::float8[], ARRAY[NULL]::jsonb[]) FROM _sas.agent a WHERE a.name = $1
$$;
SELECT t.breaker('payments', 'open');
SELECT t.later('30 s'), t.breaker('payments', 'half-open'), t.breaker('payments', 'open'), _sas.check_conditions() \g /dev/null
SELECT * FROM t.all_alerts();
SELECT t.later('1 min'), t.breaker('payments', 'closed') \g /dev/null
SELECT * FROM t.all_alerts();
SELECT t.later('4 min'), t.breaker('payments', 'open'), _sas.check_conditions() \g /dev/null
SELECT * FROM t.all_alerts();
SELECT t.breaker('payments', 'closed'), t.later('6 min'), t.breaker('payments', 'open') \g /dev/null
SELECT * FROM t.all_alerts();
-- what nobody told of is found by the watch, and closed by it
SELECT t.clean() \g /dev/null
UPDATE _sas.agent_health SET breaker = 'open' WHERE agent_id = (SELECT agent_id FROM _sas.agent WHERE name = 'shipping');
SELECT _sas.check_conditions(), _sas.check_conditions() \g /dev/null
SELECT * FROM t.all_alerts();
UPDATE _sas.agent_health SET breaker = 'half-open';
SELECT _sas.check_conditions() \g /dev/null
SELECT kind, closed FROM t.all_alerts();
UPDATE _sas.agent_health SET breaker = 'closed';
SELECT _sas.check_conditions() \g /dev/null
SELECT kind, closed FROM t.all_alerts();

-- five starts of the server within ten minutes are a crash loop
SELECT t.clean() \g /dev/null
INSERT INTO _sas.boot SELECT n, sas.now() - n * interval '1 min' FROM generate_series(1, 4) n;
SELECT _sas.check_conditions(), _sas.check_conditions() \g /dev/null
SELECT * FROM t.all_alerts();
SELECT t.later('9 min'), _sas.check_conditions() \g /dev/null
SELECT * FROM t.all_alerts();

-- what cannot be carried out is stuck until it goes on
SELECT t.clean() \g /dev/null
SELECT _sas.defer_message(ROW('s', sas.now(), r.run_id, 'start', NULL, NULL, NULL, NULL, NULL, NULL)::_sas.message, '{"title": "no reason"}', '1 min') FROM sas.submit('call') r \g /dev/null
SELECT _sas.defer_message(ROW('s', sas.now(), 1, 'start', NULL, NULL, NULL, NULL, NULL, NULL)::_sas.message, '{"title": "no reason"}', '1 min') \g /dev/null
SELECT t.later('3 min'), _sas.check_conditions() \g /dev/null
SELECT * FROM t.all_alerts();
SELECT t.later('1 s'), _sas.check_conditions() \g /dev/null
SELECT * FROM t.all_alerts();

-- what has no end to be seen is closed by who acknowledges it; then the same cause is a new alert
SELECT t.clean() \g /dev/null
SELECT t.workflow('hooked', '{"a": {"agent": "inventory", "call": {}}}', '{"hooks": [{"on": "success", "agent": "payments", "call": {}}]}') \g /dev/null
SELECT run_id FROM sas.submit('hooked');
SELECT t.work('{"hook": "permanent 404"}');
SELECT run_id FROM sas.submit('hooked');
SELECT t.work('{"hook": "permanent 404"}');
SELECT kind, n, seen, closed FROM t.all_alerts();
SELECT * FROM sas.acknowledge(1);
SELECT * FROM sas.acknowledge_alerts('{2,3,1,2,NULL}'::bigint[]);
SELECT run_id FROM sas.submit('hooked');
SELECT t.work('{"hook": "permanent 404"}');
SELECT kind, n, seen, closed FROM t.all_alerts();

-- the hook: a function that is told of each new alert, once, in a run that nobody sees
SELECT t.clean() \g /dev/null
CREATE FUNCTION t.nothing(input text) RETURNS text LANGUAGE sql AS $$ SELECT input $$;
SELECT sas.set_alert_hook('t.nothing(text)');
SELECT sas.set_alert_hook('t.echo(jsonb)');
SELECT run_id FROM sas.submit('call', labels => '{"tenant": "x"}');
SELECT t.work('{"a": "permanent 400"}');
SELECT t.breaker('payments', 'open'), t.breaker('payments', 'open') \g /dev/null
SELECT t.work();
SELECT run_id, workflow, hook, target, state, result, output - '{alert_id,at}'::text[] AS told FROM sas.hook_runs ORDER BY hook_run_id;
SELECT run_id FROM sas.runs;
-- it is tried again, and that it failed for good is an alert, of which it is not told
SELECT t.clean() \g /dev/null
SELECT t.breaker('payments', 'open');
SELECT t.work('{"hook": "transient"}');
SELECT state, attempt, t.at(waiting_until) BETWEEN '5 s' AND '10 s' AS again_soon FROM sas.hook_runs;
SELECT t.later('10 s') \g /dev/null
SELECT t.work('{"hook": "permanent"}');
SELECT kind, message FROM t.alerts();
SELECT t.work();
SELECT sas.set_alert_hook(NULL);
SELECT t.breaker('inventory', 'open'), t.work();
SELECT count(*) FROM sas.hook_runs;
SELECT t.clean() \g /dev/null

-- folded: a thousand runs halted by their owner are one alert, and the hook is called once; of another role it is another one
SELECT sas.set_alert_hook('t.echo(jsonb)');
CREATE ROLE alice;
CREATE ROLE bob;
SELECT sas.grant_usage(r, 'user'), t.allow(r), sas.grant_workflow('call', r) FROM unnest('{alice,bob}'::regrole[]) r \g /dev/null
SET ROLE alice;
SELECT count(*) FROM sas.submit_batch('call', array_fill('{}'::jsonb, ARRAY[1000]));
SELECT count(*) FILTER (WHERE h.changed) FROM sas.halt_runs(ARRAY(SELECT run_id FROM sas.runs ORDER BY 1)) h;
SET ROLE bob;
SELECT count(*) FROM sas.submit('call') s, sas.halt(s.run_id);
SELECT alert_id, kind, workflow, owner, run_id, occurrences FROM sas.alerts;
RESET ROLE;
SELECT t.settle() \g /dev/null
SELECT alert_id, kind, workflow, owner, run_id, run_ids, message, occurrences FROM sas.alerts ORDER BY 1;
SELECT count(*) AS hooks FROM sas.hook_runs;
-- acknowledged: what comes now is a new alert, with a hook of its own
SELECT changed, run_id FROM sas.acknowledge((SELECT min(alert_id) FROM sas.alerts));
SELECT t.later('1 min') \g /dev/null
SET ROLE alice;
SELECT count(*) FROM sas.submit_batch('call', array_fill('{}'::jsonb, ARRAY[2])) s, sas.halt(s.run_id);
SELECT occurrences, t.at(created_at) AS first, t.at(last_at) AS last, closed_at IS NOT NULL AS closed, run_ids FROM sas.alerts ORDER BY alert_id;
RESET ROLE;
SELECT t.settle() \g /dev/null
SELECT count(*) AS hooks FROM sas.hook_runs;
SELECT sas.set_alert_hook(NULL);
-- three runs of one cause: open until the last of them goes on; acknowledged it takes no further run, and still counts its own
SELECT t.clean() \g /dev/null
SELECT count(*) FROM sas.submit_batch('call', array_fill('{}'::jsonb, ARRAY[3]));
SELECT t.work('{"a": "permanent 400"}');
SELECT t.later('1 min') \g /dev/null
SELECT changed FROM sas.resume_runs('{1,2}'::bigint[]);
SELECT kind, n, closed, run_id FROM t.all_alerts();
SELECT changed FROM sas.acknowledge((SELECT alert_id FROM sas.alerts));
SELECT t.work('{"a": "permanent 400"}');
SELECT a.kind, a.n, a.seen, a.closed, a.run_id FROM t.all_alerts() a;
SELECT changed FROM sas.cancel(3);
SELECT changed FROM sas.resume_runs('{1,2}'::bigint[]);
SELECT a.kind, a.n, a.seen, a.closed, a.run_id FROM t.all_alerts() a;
SELECT count(*) FROM _sas.alert_run;
-- what the supervisor finds of an alert that a session had locked
SELECT t.work('{"a": "permanent 400"}');
DELETE FROM _sas.alert_run;
SELECT _sas.check_conditions();
SELECT a.kind, a.n, a.closed FROM t.all_alerts() a WHERE closed IS NULL;
SELECT t.clean() \g /dev/null
DROP OWNED BY alice, bob;
DROP ROLE alice, bob;

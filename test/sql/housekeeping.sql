-- SPDX-License-Identifier: PostgreSQL
--
-- Housekeeping: runs whose time is over go, with all that belongs to them.
SELECT t.clean() \g /dev/null
-- what the files before this one have left
SELECT _sas.purge_versions(ARRAY(SELECT v.version_id FROM _sas.workflow_version v)) \g /dev/null
\set SHOW_CONTEXT never
CREATE FUNCTION t.keep_house(quantity int DEFAULT 100) RETURNS TABLE (worked int, next_due interval) LANGUAGE sql AS $$ SELECT k.worked, t.at(k.next_due) FROM _sas.purge_tick(quantity) k $$;
-- t.remains(): every table of sas that knows a run, with how many of its rows tell of runs that are not there
CREATE FUNCTION t.remains() RETURNS TABLE (what text, n bigint) LANGUAGE plpgsql AS $$
DECLARE
    a record;
BEGIN
    FOR a IN SELECT c.relname, k.attname FROM pg_class c JOIN pg_attribute k ON k.attrelid = c.oid
             WHERE c.relnamespace = '_sas'::regnamespace AND c.relkind = 'r' AND k.attnum > 0 AND k.attname IN ('run_id', 'parent_run_id', 'hook_of') ORDER BY 1, 2 LOOP
        what := a.relname || '.' || a.attname;
        EXECUTE format('SELECT count(*) FROM _sas.%I x WHERE x.%I > 0 AND NOT EXISTS (SELECT FROM _sas.run r WHERE r.run_id = x.%2$I)', a.relname, a.attname) INTO n;
        IF n > 0 THEN
            RETURN NEXT;
        END IF;
    END LOOP;
    FOR what, n IN SELECT 'workflow_version', count(*) FROM _sas.workflow_version v WHERE v.of_version IS NOT NULL
                   AND NOT EXISTS (SELECT FROM _sas.workflow_hook h WHERE h.hook_version_id = v.version_id) AND NOT EXISTS (SELECT FROM _sas.composition c WHERE c.version_id = v.version_id AND c.current) LOOP
        IF n > 0 THEN
            RETURN NEXT;
        END IF;
    END LOOP;
END $$;

-- HO1 each result for its own time, from the end of the run on
SELECT t.workflow('call', '{"a": {"agent": "inventory", "call": {}, "undo": {"call": {}}, "on_failure": {"permanent": "compensate"}}, "b": {"agent": "payments", "call": {}, "after": ["a"], "on_failure": {"permanent": "compensate", "transient": "skip"}, "recovery": {"max_failures": 1}}}') \g /dev/null
SELECT run_id FROM sas.submit_batch('call', array_fill('{}'::jsonb, ARRAY[5]), ARRAY['success', 'warning', 'error', 'compensated', 'cancelled']);
SELECT (sas.cancel(5)).changed;
SELECT t.claim();
SELECT t.answer('a', CASE n WHEN 3 THEN 'permanent 400' ELSE 'done' END, for_run => n) FROM generate_series(1, 4) n \g /dev/null
SELECT t.settle(), t.claim() \g /dev/null
SELECT t.answer('b', CASE n WHEN 2 THEN 'transient 503' WHEN 4 THEN 'permanent 400' ELSE 'done' END, for_run => n) FROM unnest('{1,2,4}'::int[]) n \g /dev/null
SELECT t.work();
SELECT run_id, key, result FROM sas.runs ORDER BY 1;
-- what is still open is never purged
SELECT run_id FROM sas.submit('call', key => 'open', deadline => '1 year');
SELECT name, setting, unit FROM sas.settings WHERE name LIKE 'sas.retain%' ORDER BY 1;
SELECT * FROM t.keep_house();
SELECT t.later('29 days 23:59:59.999') \g /dev/null
SELECT * FROM t.keep_house();
SELECT t.later('0.001 s') \g /dev/null
SELECT * FROM t.keep_house();
SELECT run_id, key FROM sas.runs ORDER BY 1;
SELECT key FROM _sas.run_key ORDER BY 1;
SELECT t.later('1440 h') \g /dev/null
SELECT * FROM t.keep_house(2);
SELECT * FROM t.keep_house(2);
SELECT * FROM t.keep_house(2);
SELECT run_id, key, state FROM sas.runs ORDER BY 1;
-- the key is free
SELECT run_id, created FROM sas.submit('call', '{"another": "input"}', key => 'success');
SELECT * FROM t.remains();

-- everything goes: attempts, history, elements, signals, tasks, replies, alerts, children and theirs, hooks
SELECT t.clean() \g /dev/null
SELECT sas.create_agent('outside', kind => 'external') \g /dev/null
SELECT t.workflow('leaf', '{"a": {"agent": "inventory", "call": {}}}', '{"hooks": [{"on": "success", "function": "t.echo"}]}') \g /dev/null
SELECT t.workflow('middle', '{"below": {"workflow": "leaf"}}') \g /dev/null
SELECT t.workflow('top', '{"map": {"each": "{{input.list}}", "agent": "inventory", "call": {}}, "below": {"workflow": "middle", "each": "{{input.list}}"}, "task": {"agent": "outside", "task": {}, "on_failure": "skip"}, "sig": {"wait": {"signal": "s"}}}',
                  '{"hooks": [{"on": "stopped", "function": "t.echo"}]}') \g /dev/null
SELECT run_id FROM sas.submit('top', '{"list": [1, 2]}', key => 'k', reply_to => 'replies');
SELECT count(*) FROM sas.submit('call', after_run => 1);
SELECT sas.signal(1, 's'), sas.signal(1, 's') \g /dev/null
SELECT t.settle(), t.claim() \g /dev/null
SELECT sas.heartbeat(request_id, 0.5, '{"at": 1}') FROM sas.claim('outside', 'me') \g /dev/null
UPDATE t.worker SET alive = false;
DELETE FROM t.held;
SELECT t.settle(), t.later('10 s') \g /dev/null
SELECT t.work() <> '' AS worked;
SELECT (sas.pause(1)).changed, (sas.resume(1)).changed;
SELECT sas.fail(request_id, 'broken', permanent => true) FROM _sas.external_slot WHERE request_id IS NOT NULL;
SELECT t.work() <> '' AS worked;
SELECT t.later('1 min'), t.work() <> '' AS worked;
SELECT t.brief(1);
SELECT r.state, r.result, count(*) FROM _sas.run r WHERE r.run_id <> 2 GROUP BY 1, 2 ORDER BY 1, 2;
SELECT count(*) FROM _sas.finished_run;
SELECT (SELECT count(*) > 5 FROM _sas.step WHERE run_id = 1) AS steps, (SELECT count(*) > 0 FROM _sas.attempt WHERE run_id = 1) AS attempts, (SELECT count(*) > 0 FROM _sas.operator_action WHERE run_id = 1) AS acts,
       (SELECT count(*) > 0 FROM _sas.item WHERE run_id = 1) AS items, (SELECT count(*) > 0 FROM _sas.map_progress WHERE run_id = 1) AS fans, (SELECT count(*) > 0 FROM _sas.signal WHERE run_id = 1) AS signals,
       (SELECT count(*) > 0 FROM _sas.task WHERE run_id = 1) AS tasks, (SELECT count(*) > 0 FROM _sas.reply WHERE run_id = 1) AS replies;
SELECT t.later('91 days') \g /dev/null
SELECT * FROM t.keep_house();
SELECT r.run_id FROM _sas.run r ORDER BY 1;
SELECT * FROM t.remains();

-- a run stays while something of its family is open, or while another waits for its end; then it goes
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('leaf');
SELECT t.claim(), t.answer('a') \g /dev/null
SELECT run_id, hook_run_id, state FROM sas.hook_runs;
SELECT runs, more FROM sas.purge('0');
SELECT t.work();
SELECT runs, more FROM sas.purge('0');
SELECT t.later('10 min') \g /dev/null
SELECT runs, more FROM sas.purge('0');
SELECT run_id FROM sas.submit('leaf');
SELECT t.work() \g /dev/null
SELECT run_id FROM sas.submit('call', after_run => (SELECT max(run_id) FROM sas.runs), start_at => sas.now() + interval '1 day');
SELECT runs FROM sas.purge('0');
SELECT t.later('1 day'), t.work() \g /dev/null
SELECT runs FROM sas.purge('1 day');
SELECT runs FROM sas.purge('0');
SELECT * FROM t.remains();

-- HO2 by an operator: older than, of some results, of one workflow, so many per call
SELECT t.clean() \g /dev/null
SELECT count(*) FROM sas.submit_batch('call', array_fill('{}'::jsonb, ARRAY[250]));
SELECT t.work() <> '' AS worked;
SELECT t.later('1 day') \g /dev/null
SELECT run_id FROM sas.submit('leaf');
SELECT run_id FROM sas.submit('call');
SELECT (sas.cancel(252)).changed;
SELECT t.work() \g /dev/null
SELECT * FROM sas.purge('2 days');
SELECT * FROM sas.purge('1 h', '{error,cancelled}');
SELECT * FROM sas.purge('1 h', workflow => 'leaf');
SELECT * FROM sas.purge('1 h', quantity => 100);
SELECT * FROM sas.purge('1 h', quantity => 100);
SELECT * FROM sas.purge('1 h', quantity => 100);
SELECT * FROM sas.purge('1 h', quantity => 100);
SELECT * FROM sas.purge('0', workflow => 'leaf');
SELECT run_id, result FROM sas.runs ORDER BY 1;
SELECT * FROM sas.purge('0');
SELECT * FROM sas.purge('-1 s');
SELECT * FROM sas.purge(NULL);
SELECT * FROM sas.purge('1 h', '{done}');
SELECT * FROM sas.purge('1 h', '{}');
SELECT * FROM sas.purge('1 h', workflow => 'no_such_flow');
SELECT * FROM sas.purge('1 h', quantity => 0);
SELECT * FROM t.remains();

-- one that was taken up again, and has ended once more, is kept from then on
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('leaf');
SELECT t.work(), t.later('1 h') \g /dev/null
UPDATE _sas.run SET finished_at = sas.now() WHERE run_id = 1;
SELECT runs FROM sas.purge('1 h');

-- versions that nobody has written go with the last run that has them
SELECT t.clean() \g /dev/null
CREATE FUNCTION t.plan_one(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT jsonb_build_object('steps', jsonb_build_object('a' || (input ->> 'n'), '{"function": "t.echo"}'::jsonb)) $$;
SELECT sas.create_workflow('planned_one', '{"plan": "t.plan_one", "steps": {}, "hooks": [{"on": "success", "function": "t.echo"}]}') \g /dev/null
SELECT count(*) FROM sas.submit_batch('planned_one', ARRAY['{"n": 1}', '{"n": 1}', '{"n": 2}']::jsonb[]);
SELECT t.work() \g /dev/null
SELECT count(*) FROM _sas.planned p JOIN _sas.workflow w USING (workflow_id) WHERE w.name = 'planned_one';
SELECT runs FROM sas.purge('0', quantity => 1);
SELECT worked FROM t.keep_house();
SELECT count(*) FROM _sas.planned p JOIN _sas.workflow w USING (workflow_id) WHERE w.name = 'planned_one';
SELECT run_id FROM sas.submit('planned_one', '{"n": 2}');
SELECT t.work();
SELECT runs FROM sas.purge('0');
SELECT worked FROM t.keep_house();
SELECT count(*) FROM _sas.planned p JOIN _sas.workflow w USING (workflow_id) WHERE w.name = 'planned_one';
-- what was made of subscribers: the current one stays, an older one goes, also one that no run ever had
SELECT t.workflow('host', '{"a": {"agent": "inventory", "call": {}}}') \g /dev/null
SELECT t.workflow('guest', '{"b": {"function": "t.echo"}}') \g /dev/null
SELECT sas.subscribe('guest', 'host') \g /dev/null
SELECT run_id FROM sas.submit('host');
SELECT t.workflow('guest', '{"b2": {"function": "t.echo"}}') \g /dev/null
SELECT t.workflow('guest', '{"b3": {"function": "t.echo"}}') \g /dev/null
SELECT t.work();
SELECT count(*), count(*) FILTER (WHERE current) AS current FROM _sas.composition JOIN _sas.workflow w USING (workflow_id) WHERE w.name = 'host';
SELECT t.later('30 days') \g /dev/null
SELECT worked FROM t.keep_house();
SELECT count(*), count(*) FILTER (WHERE current) AS current FROM _sas.composition JOIN _sas.workflow w USING (workflow_id) WHERE w.name = 'host';
SELECT run_id FROM sas.submit('host');
SELECT t.work();
-- also when its last run goes
SELECT runs FROM sas.purge('0');
SELECT worked FROM t.keep_house();
SELECT run_id FROM sas.submit('host');
SELECT t.work();
SELECT sas.unsubscribe('guest', 'host') \g /dev/null
SELECT runs FROM sas.purge('0');
SELECT worked FROM t.keep_house();
SELECT count(*) FROM _sas.composition JOIN _sas.workflow w USING (workflow_id) WHERE w.name = 'host';
SELECT sas.drop_workflow('planned_one'), sas.drop_workflow('host'), sas.drop_workflow('top'), sas.drop_workflow('middle'), sas.drop_workflow('leaf') \g /dev/null

-- what cannot be purged is put off, with one alert, and holds up nothing else
SELECT t.clean() \g /dev/null
CREATE FUNCTION t.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not this one'; END $$;
CREATE TRIGGER refuse BEFORE DELETE ON _sas.run FOR EACH ROW WHEN (OLD.key = 'stays') EXECUTE FUNCTION t.refuse();
SELECT run_id FROM sas.submit('call', key => 'stays');
SELECT t.work() \g /dev/null
SELECT t.later('1 min'), run_id FROM sas.submit('call');
SELECT (sas.cancel(2)).changed;
SELECT t.work() \g /dev/null
SELECT t.later('30 days') \g /dev/null
SELECT * FROM t.keep_house();
SELECT * FROM t.keep_house();
SELECT run_id FROM sas.runs;
SELECT kind, message, occurrences FROM t.alerts();
DROP TRIGGER refuse ON _sas.run;
SELECT t.later('1 h') \g /dev/null
SELECT worked FROM t.keep_house();
SELECT count(*) FROM _sas.run;
-- closed alerts that belong to no run go as well
SELECT t.later('3 h 1 s'), _sas.check_conditions() \g /dev/null
SELECT kind, closed_at IS NOT NULL AS closed FROM sas.alerts;
SELECT t.later('2160 h'), t.keep_house() \g /dev/null
SELECT count(*) FROM sas.alerts;
SELECT * FROM t.remains();

-- infinite tasks that were deleted are kept as long as runs that ended with success; then their keys are not known any more
SELECT t.clean() \g /dev/null
SELECT t.watching() \g /dev/null
SELECT sas.create_watcher('camera', '{"agent": "host", "external": {}, "items": {"table": "t.item"}}');
SELECT count(*) FROM unnest('{a,b,c,d}'::text[]) k, sas.watch('camera', k);
SELECT key, state FROM sas.unwatch('camera', '{a,b,c}');
SELECT * FROM t.keep_house();
SELECT t.later('10 days') \g /dev/null
-- one that was begun anew meanwhile stays as long as it runs, and for its time after that
SELECT created FROM sas.watch('camera', 'b');
SELECT t.later('20 days') \g /dev/null
SELECT * FROM t.keep_house();
SELECT key, state FROM sas.watches ORDER BY 1;
SELECT (SELECT count(*) FROM _sas.watch_ended) AS ended, (SELECT count(*) FROM _sas.watch_flow) AS flow, (SELECT count(*) FROM _sas.watch_done) AS done;
SELECT created, watch_id FROM sas.watch('camera', 'a');
SELECT key, state FROM sas.unwatch('camera', '{b}');
SELECT * FROM t.keep_house();
SELECT t.later('30 days') \g /dev/null
CREATE TRIGGER refuse BEFORE DELETE ON _sas.watch FOR EACH ROW WHEN (OLD.key = 'b') EXECUTE FUNCTION t.refuse();
SELECT * FROM t.keep_house();
SELECT kind, message FROM t.alerts();
DROP TRIGGER refuse ON _sas.watch;
SELECT t.later('1 h') \g /dev/null
SELECT * FROM t.keep_house();
SELECT key, state FROM sas.watches ORDER BY 1;
-- in batches, the oldest first
SELECT key, state FROM sas.unwatch('camera', '{a}');
SELECT t.later('1 s'), key, state FROM sas.unwatch('camera', '{d}');
SELECT t.later('720 h') \g /dev/null
SELECT * FROM t.keep_house(1);
SELECT key, state FROM sas.watches ORDER BY 1;
SELECT * FROM t.keep_house(1);
SELECT key, state FROM sas.watches ORDER BY 1;
-- a watcher that is dropped takes its tasks along, and whoever was to look at them finds nothing
SELECT count(*) FROM sas.watch('camera', 'e');
SELECT key, state FROM sas.unwatch('camera', '{e}');
SELECT _sas.check_watches(ARRAY(SELECT w.watch_id FROM _sas.watch w)) \g /dev/null
SELECT sas.drop_watcher('camera');
SELECT _sas.check_requested(10);
SELECT (SELECT count(*) FROM _sas.watch_check) AS look, (SELECT count(*) FROM _sas.watch_ended) AS ended;
SELECT t.clean() \g /dev/null

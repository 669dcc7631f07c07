-- SPDX-License-Identifier: PostgreSQL
--
-- The deadline: then the run cannot go on. Time alone ends every state but
-- paused.
SELECT t.clean() \g /dev/null
SELECT t.workflow('slow', '{"a": {"agent": "inventory", "call": {}, "undo": {"call": {}}}, "b": {"agent": "payments", "call": {}, "after": ["a"], "undo": {"call": {}}}}', '{"deadline": "1 h"}') \g /dev/null

-- before its first claim: stops, nothing was done
SELECT run_id FROM sas.submit('slow');
SELECT t.later('59 min 59 s'), t.settle() \g /dev/null
SELECT t.brief(1);
SELECT t.later('1 s'), t.settle() \g /dev/null
SELECT * FROM t.show(1);
SELECT error FROM sas.runs;
SELECT t.claim();

-- between two steps: what is done is undone, after the deadline
SELECT run_id FROM sas.submit('slow');
SELECT t.claim(), t.answer('a');
SELECT t.later('1 h'), t.settle() \g /dev/null
SELECT t.brief(2);
SELECT t.later('1 day') \g /dev/null
SELECT t.work();
SELECT t.brief(2);

-- one whose undo has not come to its end by then raises an alert, which is closed when it has
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('slow');
SELECT t.claim(), t.answer('a');
SELECT changed FROM sas.cancel(1);
SELECT t.settle(), t.claim('away');
DELETE FROM t.held;
SELECT t.later('1 h'), t.settle() \g /dev/null
SELECT kind, run_id, message FROM t.alerts();
SELECT t.later('1 h') \g /dev/null
SELECT t.work();
SELECT t.brief(1);
SELECT * FROM t.alerts();

-- so does one whose undo was begun by the deadline and is not over an hour later
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('slow');
SELECT t.claim(), t.answer('a');
SELECT t.later('1 h'), t.settle(), t.claim('away') \g /dev/null
DELETE FROM t.held;
SELECT kind FROM t.alerts();
SELECT t.later('1 h'), t.settle() \g /dev/null
SELECT kind, run_id, message FROM t.alerts();
SELECT t.later('1 h') \g /dev/null
SELECT t.work();
SELECT t.brief(1);
SELECT * FROM t.alerts();

-- while a step is on its way: it is waited for, then undone
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('slow', deadline => '30 s');
SELECT deadline - created_at AS deadline FROM sas.runs;
SELECT t.claim();
SELECT t.later('30 s'), t.settle() \g /dev/null
SELECT t.brief(1);
SELECT t.answer('a');
SELECT t.work();
SELECT t.brief(1);

-- while a step cools off, and after time-outs without end
SELECT run_id FROM sas.submit('slow');
SELECT t.work('{"a": "transient 503"}');
SELECT t.later('1 h') \g /dev/null
SELECT t.settle() \g /dev/null
SELECT t.brief(2);

-- while paused: the pause holds, with an alert; when it is resumed the run cannot go on
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('slow');
SELECT t.claim(), t.answer('a');
SELECT changed FROM sas.pause(1);
SELECT t.later('2 h') \g /dev/null
SELECT t.work();
SELECT t.brief(1);
SELECT * FROM t.alerts();
SELECT changed, state FROM sas.resume(1);
SELECT t.work();
SELECT t.brief(1);
-- paused and resumed before it: the deadline holds
SELECT run_id FROM sas.submit('slow');
SELECT t.claim(), t.answer('a');
SELECT changed FROM sas.pause(2);
SELECT changed FROM sas.resume(2);
SELECT t.later('1 h') \g /dev/null
SELECT t.settle() \g /dev/null
SELECT t.work();
SELECT t.brief(2);

-- what the run asks for when it cannot go on: on_failure, permanent
SELECT t.workflow('late_' || p, '{"a": {"agent": "inventory", "call": {}, "undo": {"call": {}}}, "b": {"agent": "payments", "call": {}, "after": ["a"]}}', jsonb_build_object('deadline', '1 h', 'on_failure', p))
FROM unnest('{compensate,pause,skip,fail}'::text[]) p \g /dev/null
SELECT t.clean() \g /dev/null
SELECT p FROM unnest('{compensate,pause,skip,fail}'::text[]) p, sas.submit('late_' || p);
SELECT t.claim();
SELECT t.answer('a', for_run => g) FROM generate_series(1, 4) g \g /dev/null
SELECT t.later('1 h'), t.settle() \g /dev/null
SELECT t.work();
SELECT workflow, t.brief(run_id) FROM sas.runs ORDER BY run_id;
SELECT * FROM t.alerts();

-- a run that has ended before it hears nothing of it
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('slow');
SELECT t.work();
SELECT * FROM t.left_over();
SELECT t.later('1 h') \g /dev/null
SELECT t.work();
SELECT t.brief(1);

-- counted from start_at where there is one; the setting is the default
SELECT run_id FROM sas.submit('slow', start_at => t.start() + interval '10 days');
SELECT t.at(deadline) FROM sas.runs WHERE run_id = 2;
SELECT t.workflow('default', '{"a": {"function": "t.echo"}}') \g /dev/null
SELECT run_id FROM sas.submit('default');
SELECT deadline - created_at AS deadline FROM sas.runs WHERE run_id = 3;

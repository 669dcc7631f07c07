-- SPDX-License-Identifier: PostgreSQL
--
-- Recovery: the supervisor counts failures, lets a step cool off, tries
-- again, and when that is used up or of no use does what on_failure says.
SELECT t.clean() \g /dev/null
SELECT t.workflow('shaky', '{"charge": {"agent": "payments", "call": {}}}', '{"recovery": {"max_failures": 6, "initial": "10 s", "max": "1 min", "jitter": false}}') \g /dev/null

-- A9 each transient failure is counted; the pause doubles up to its maximum; at the threshold the run is paused, with an alert
SELECT run_id FROM sas.submit('shaky');
CREATE FUNCTION t.fail_again(n int) RETURNS TABLE (state text, attempt int, failures int, pause interval, run text) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM t.settle(), t.claim(), t.answer('charge', 'transient 503'), t.settle();
    RETURN QUERY SELECT s.state, s.attempt, s.failure_count, s.waiting_until - sas.now(), r.state FROM sas.steps s JOIN sas.runs r USING (run_id) WHERE s.run_id = 1;
    PERFORM t.later(coalesce((SELECT waiting_until - sas.now() FROM sas.steps WHERE run_id = 1), '0'));
END $$;
SELECT f.* FROM generate_series(1, 6) n CROSS JOIN LATERAL t.fail_again(n) f;
SELECT * FROM t.show(1);
SELECT paused_for, paused_by FROM sas.runs;
SELECT * FROM t.alerts();
-- one alert per cause, with a count
SELECT changed, state FROM sas.resume(1);
SELECT t.work('{"charge": "transient 503"}');
SELECT * FROM t.show(1);
SELECT t.later('1 h'), t.work() \g /dev/null
SELECT t.brief(1);

-- a step that cools off is not claimed before its time
SELECT run_id FROM sas.submit('shaky');
SELECT t.work('{"charge": "transient 503"}');
SELECT t.later('9.999 s') \g /dev/null
SELECT t.work();
SELECT t.later('0.001 s') \g /dev/null
SELECT t.work();
SELECT * FROM t.show(2);
SELECT * FROM t.left_over();

-- linear and constant pauses; jitter takes away at most half
SELECT round(extract(epoch FROM _sas.cool_off('{"max": "15 min", "initial": "10 s", "backoff": "linear", "jitter": false}', n))) AS linear,
       round(extract(epoch FROM _sas.cool_off('{"max": "15 min", "initial": "10 s", "backoff": "constant", "jitter": false}', n))) AS constant,
       round(extract(epoch FROM _sas.cool_off('{"max": "15 min", "initial": "10 s", "backoff": "exponential", "jitter": false}', n))) AS exponential
FROM unnest('{1,2,3,7,8,100,1000000}'::int[]) n;
SELECT count(DISTINCT p) > 50 AS differ, min(p) >= '5 s' AS at_least_half, max(p) <= '10 s' AS at_most_all
FROM (SELECT _sas.cool_off('{"max": "15 min", "initial": "10 s", "backoff": "exponential", "jitter": true}', 1) AS p FROM generate_series(1, 100)) x;

-- what a worker gives back counts no failure and comes again at once, or when it says
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('shaky');
SELECT t.claim();
SELECT t.answer('charge', 'hand_back', tries => 0);
SELECT * FROM t.show(1);
SELECT t.claim();
SELECT t.answer('charge', 'hand_back', again_in => '30 s', tries => 1);
SELECT * FROM t.show(1);
SELECT t.later('29 s') \g /dev/null
SELECT t.work();
SELECT t.later('1 s') \g /dev/null
SELECT t.work();
SELECT * FROM t.show(1);

-- on_failure of the step: each choice, for transient and for permanent failures
SELECT t.clean() \g /dev/null
SELECT t.workflow('step_' || p, jsonb_build_object(
    'before', '{"agent": "inventory", "call": {}, "undo": {"call": {}}}'::jsonb,
    'bad', jsonb_build_object('agent', 'payments', 'call', '{}'::jsonb, 'after', '["before"]'::jsonb, 'on_failure', p, 'recovery', '{"max_failures": 1}'::jsonb),
    'later', '{"agent": "shipping", "call": {}, "after": ["bad"]}'::jsonb))
FROM unnest('{compensate,pause,skip,fail}'::text[]) p \g /dev/null
SELECT p, kind, f.* FROM unnest('{compensate,pause,skip,fail}'::text[]) p, unnest('{transient 503,permanent 400}'::text[]) kind, t.try('step_' || p, jsonb_build_object('bad', kind)) f;
SELECT r.run_id, r.workflow, r.error ->> 'title' AS title, r.error ->> 'instance' AS instance, r.error -> 'status' AS status FROM sas.runs r ORDER BY 1;
SELECT * FROM t.alerts();

-- on_failure of the run: each choice; the step's own goes before it
SELECT t.clean() \g /dev/null
SELECT t.workflow('run_' || p, '{"before": {"agent": "inventory", "call": {}, "undo": {"call": {}}},
    "bad": {"agent": "payments", "call": {}, "after": ["before"], "recovery": {"max_failures": 1}},
    "own": {"agent": "payments", "call": {}, "after": ["bad"], "recovery": {"max_failures": 1}, "on_failure": "skip"}}', jsonb_build_object('on_failure', p))
FROM unnest('{compensate,pause,skip,fail}'::text[]) p \g /dev/null
SELECT p, kind, f.* FROM unnest('{compensate,pause,skip,fail}'::text[]) p, unnest('{transient 503,permanent 400}'::text[]) kind, t.try('run_' || p, jsonb_build_object('bad', kind)) f;
SELECT f.* FROM t.try('run_compensate', '{"own": "permanent 400"}') f;
-- by kind of failure, each from where it is said
SELECT t.workflow('mixed', '{"a": {"agent": "inventory", "call": {}, "undo": {"call": {}}},
    "b": {"agent": "payments", "call": {}, "after": ["a"], "on_failure": {"permanent": "skip"}, "recovery": {"max_failures": 1}}}', '{"on_failure": {"transient": "fail", "permanent": "pause"}}') \g /dev/null
SELECT f.* FROM unnest('{transient 503,permanent 400}'::text[]) kind, t.try('mixed', jsonb_build_object('b', kind)) f;
-- the default: transient pauses, permanent undoes
SELECT t.workflow('plain', '{"a": {"agent": "inventory", "call": {}, "undo": {"call": {}}}, "b": {"agent": "payments", "call": {}, "after": ["a"], "recovery": {"max_failures": 1}}}') \g /dev/null
SELECT f.* FROM unnest('{transient 503,permanent 400}'::text[]) kind, t.try('plain', jsonb_build_object('b', kind)) f;

-- a run that goes on after a skipped step ends with a warning, and what referred to it finds nothing
SELECT t.clean() \g /dev/null
SELECT t.workflow('skipper', '{"a": {"agent": "inventory", "call": {}, "on_failure": "skip"}, "b": {"agent": "payments", "call": {"body": {"id": "{{steps.a.output.body.id?}}"}}}}') \g /dev/null
SELECT run_id FROM sas.submit('skipper');
SELECT t.claim(); SELECT t.answer('a', 'permanent 400');
SELECT t.settle() \g /dev/null
SELECT t.claim();
SELECT asked -> 'body' AS body FROM t.held;
SELECT t.answer('b');
SELECT * FROM t.show(1);

-- two steps of one run that fail in one turn: what gives the run up goes before a pause, a pause before going on; between two that give it up the first holds
SELECT t.clean() \g /dev/null
CREATE TEMP TABLE pair AS SELECT * FROM (VALUES ('skip', 'skip'), ('skip', 'compensate'), ('pause', 'skip'), ('pause', 'pause'), ('pause', 'compensate'), ('fail', 'compensate')) AS x (one, other);
SELECT t.workflow(one || '_and_' || other, jsonb_build_object(
    'a', jsonb_build_object('agent', 'inventory', 'call', '{}'::jsonb, 'on_failure', one),
    'b', jsonb_build_object('agent', 'payments', 'call', '{}'::jsonb, 'on_failure', other),
    'c', '{"agent": "shipping", "call": {}, "after": ["a", "b"]}'::jsonb)) FROM pair \g /dev/null
SELECT one, other, f.* FROM pair, t.try(one || '_and_' || other, '{"a": "permanent 400", "b": "permanent 400"}') f;
-- each one that paused it is an alert
SELECT * FROM t.alerts() WHERE run_id = 4;

-- every failed window is told, and a first try that succeeded
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('plain');
SELECT t.claim(), t.answer('a'), t.claim() \g /dev/null
SELECT t.later('1 h'), t.settle() \g /dev/null
SELECT step, attempt, undo, agent, worker, status, error ->> 'title' AS title, t.at(started_at) AS started, t.at(finished_at) AS finished FROM sas.attempts ORDER BY step, undo, attempt;
DROP FUNCTION t.fail_again;

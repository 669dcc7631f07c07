-- SPDX-License-Identifier: PostgreSQL
--
-- Middleware: functions before and after submits, function steps and finalize;
-- their order, what they may change, and whose rights they have.
SELECT t.clean() \g /dev/null
\set SHOW_CONTEXT never
CREATE FUNCTION t.before(c jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM t.note(format('before %s, %s %s', c ->> 'middleware', c ->> 'step', c -> 'request')); RETURN NULL; END $$;
CREATE FUNCTION t.after(c jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM t.note(format('after %s, %s %s', c ->> 'middleware', c ->> 'step', c -> 'response')); RETURN NULL; END $$;
CREATE FUNCTION t.noting(c jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM t.note('run ' || c::text); RETURN jsonb_build_object('got', c); END $$;

-- MW1 before-a, before-b, the function, after-b, after-a; MW4 they see what goes in and what comes out
SELECT t.workflow('one', '{"s": {"function": "t.noting", "input": {"n": "{{input.n}}"}}}', '{"output": "{{steps.s.output}}"}') \g /dev/null
SELECT sas.create_middleware('a', 'function', 't.before(jsonb)', 't.after(jsonb)') \g /dev/null
SELECT sas.create_middleware('b', 'function', 't.before(jsonb)', 't.after(jsonb)') \g /dev/null
SELECT run_id FROM sas.submit('one', '{"n": 1}');
SELECT claimed, unnest(noted) AS noted FROM t.perform();
SELECT state, result, output FROM sas.runs;
-- the view shows the function's own input
SELECT step, input FROM sas.steps;

-- MW2 that of one workflow stands inside those of all
SELECT sas.create_middleware('own', 'function', 't.before(jsonb)', workflow => 'one') \g /dev/null
SELECT sas.create_middleware('c', 'function', after => 't.after(jsonb)') \g /dev/null
SELECT phase, place, name, workflow, before, after FROM sas.middlewares ORDER BY place;
SELECT t.workflow('two', '{"s": {"function": "t.noting"}}') \g /dev/null
SELECT run_id FROM sas.submit('one', '{"n": 1}');
SELECT noted FROM t.perform();
SELECT run_id FROM sas.submit('two', '{"n": 1}');
SELECT noted FROM t.perform();

-- MW3 order by name: before, after, in the place of another, taken away for one workflow, no circle
SELECT sas.create_middleware('d', 'function', 't.before(jsonb)', goes_before => '{a}') \g /dev/null
SELECT sas.create_middleware('a', 'function', 't.before(jsonb)', goes_after => '{own,b}') \g /dev/null
SELECT sas.create_middleware('e', 'function', 't.before(jsonb)', replaces => 'b') \g /dev/null
SELECT sas.create_middleware('no_d', 'function', workflow => 'one', replaces => 'd') \g /dev/null
SELECT place, name, workflow, goes_before, goes_after, replaces FROM sas.middlewares ORDER BY place, name;
SELECT run_id FROM sas.submit('one', '{"n": 1}');
SELECT noted FROM t.perform();
SELECT run_id FROM sas.submit('two', '{"n": 1}');
SELECT noted FROM t.perform();
SELECT sas.create_middleware('own', 'function', 't.before(jsonb)', workflow => 'one', goes_after => '{a}');
SELECT sas.create_middleware('f', 'function', 't.before(jsonb)', goes_after => '{a}', goes_before => '{e}');
SELECT sas.drop_middleware('b');
SELECT sas.drop_middleware(n) FROM unnest('{e,no_d,d,a,own,b,c}'::text[]) n \g /dev/null
SELECT count(*) FROM sas.middlewares;

-- request and response may be changed; the innermost sees what those outside it made of the request
CREATE FUNCTION t.more(c jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT jsonb_build_object('request', jsonb_set(c -> 'request', '{n}', to_jsonb((c #>> '{request,n}')::int + 1))) $$;
CREATE FUNCTION t.sign(c jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT jsonb_build_object('response', c -> 'response' || jsonb_build_object('by', c -> 'middleware', 'asked', c #> '{request,n}')) $$;
SELECT sas.create_middleware('more', 'function', 't.more(jsonb)', 't.sign(jsonb)') \g /dev/null
SELECT run_id FROM sas.submit('one', '{"n": 1}');
SELECT noted FROM t.perform();
SELECT output FROM sas.runs ORDER BY run_id DESC LIMIT 1;
-- one that answers itself: what is inside is not called, what is outside still is
CREATE FUNCTION t.cached(c jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '{"response": {"cached": true}}'::jsonb $$;
SELECT sas.create_middleware('cache', 'function', 't.cached(jsonb)', 't.after(jsonb)') \g /dev/null
SELECT run_id FROM sas.submit('one', '{"n": 1}');
SELECT noted FROM t.perform();
SELECT output FROM sas.runs ORDER BY run_id DESC LIMIT 1;
SELECT sas.drop_middleware('cache'), sas.drop_middleware('more') \g /dev/null
-- one that returns something else fails the step
CREATE FUNCTION t.odd(c jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '{"reqest": 1}'::jsonb $$;
SELECT sas.create_middleware('odd', 'function', 't.odd(jsonb)') \g /dev/null
SELECT run_id FROM sas.submit('one', '{"n": 1}');
SELECT * FROM t.perform();
SELECT sas.drop_middleware('odd') \g /dev/null
SELECT t.clean() \g /dev/null

-- MW6 what a middleware sets is there in the function, and no longer after it
CREATE FUNCTION t.restore(c jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT set_config('app.who', c #>> '{run,labels,user}', true); SELECT NULL::jsonb $$;
CREATE FUNCTION t.capture(c jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT jsonb_build_object('request', jsonb_build_object('labels', c #> '{request,labels}' || jsonb_build_object('user', current_setting('app.who')))) $$;
CREATE FUNCTION t.whoami(c jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(current_setting('app.who')) $$;
SELECT t.workflow('who', '{"s": {"function": "t.whoami"}}', '{"output": "{{steps.s.output}}"}') \g /dev/null
SELECT sas.create_middleware('user', 'plan', 't.capture(jsonb)') \g /dev/null
SELECT sas.create_middleware('user', 'function', 't.restore(jsonb)') \g /dev/null
SET app.who = 'ann';
SELECT run_id FROM sas.submit('who', labels => '{"tenant": "x"}');
SET app.who = 'worker';
SELECT claimed FROM t.perform();
SELECT labels, output FROM sas.runs;
SELECT sas.drop_middleware('user') \g /dev/null

-- plan: changes input and labels, refuses, is told of the run that was made
CREATE FUNCTION t.fill(c jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF c #> '{request,input}' ? 'bad' THEN
        RAISE EXCEPTION 'not with me' USING ERRCODE = 'check_violation';
    END IF;
    RETURN jsonb_build_object('request', jsonb_build_object('input', c #> '{request,input}' || '{"filled": true}'));
END $$;
CREATE FUNCTION t.made(c jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM t.note(format('made %s %s for %s', c #>> '{response,run_id}', c #>> '{response,state}', c #>> '{run,key}')); RETURN NULL; END $$;
SELECT sas.create_middleware('fill', 'plan', 't.fill(jsonb)', 't.made(jsonb)', workflow => 'who') \g /dev/null
TRUNCATE t.trace;
SELECT run_id FROM sas.submit('who', '{"n": 1}', key => 'k');
SELECT run_id FROM sas.submit_batch('who', ARRAY['{"n": 2}', '{"n": 3}']::jsonb[]);
SELECT run_id, created FROM sas.submit('who', '{"n": 1}', key => 'k');
SELECT run_id FROM sas.submit('who', '{"bad": 1}');
SELECT run_id FROM sas.submit('one', '{"n": 1}');
SELECT run_id, input FROM sas.runs ORDER BY run_id;
SELECT what FROM t.trace ORDER BY n;
SELECT sas.drop_middleware('fill', 'plan') \g /dev/null

-- finalize; functions that undo are wrapped as well
SELECT t.clean() \g /dev/null
SELECT sas.create_middleware('f', 'finalize', 't.before(jsonb)', 't.after(jsonb)') \g /dev/null
CREATE FUNCTION t.quiet(c jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '"quiet"'::jsonb $$;
CREATE FUNCTION t.last(c jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM t.note(format('%s %s sees %s', c ->> 'middleware', c ->> 'phase', (SELECT string_agg(k, ' ') FROM jsonb_object_keys(c -> 'request') k))); RETURN NULL; END $$;
SELECT sas.create_middleware('f', 'finalize', 't.last(jsonb)', 't.after(jsonb)') \g /dev/null
SELECT t.workflow('final', '{"s": {"function": "t.quiet"}}', '{"finalize": "t.quiet"}') \g /dev/null
SELECT run_id FROM sas.submit('final');
SELECT * FROM t.perform();
SELECT * FROM t.perform();
SELECT sas.drop_middleware('f') \g /dev/null
SELECT sas.create_middleware('u', 'function', 't.before(jsonb)') \g /dev/null
SELECT t.workflow('undone', '{"s": {"function": "t.quiet", "undo": {"function": "t.quiet", "input": {"undo": true}}}, "p": {"agent": "payments", "call": {}, "after": ["s"]}}') \g /dev/null
SELECT run_id FROM sas.submit('undone');
SELECT * FROM t.perform();
SELECT t.claim();
SELECT t.answer('p', 'permanent 400'), t.settle();
SELECT * FROM t.perform();
SELECT t.settle() \g /dev/null
SELECT t.brief(2);
SELECT sas.drop_middleware('u') \g /dev/null

-- finalize as a whole is wrapped, however many functions of steps it calls; each gets what goes in, the last says what comes out
SELECT t.clean() \g /dev/null
CREATE FUNCTION t.put(c jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN '{"request": {"n": 1}}'; END $$;
SELECT sas.create_middleware('f', 'finalize', 't.put(jsonb)', 't.after(jsonb)') \g /dev/null
SELECT t.workflow('several', '{"a": {"function": "t.quiet", "finalize": "t.noting"}, "b": {"function": "t.quiet", "finalize": "t.noting", "after": ["a"]}}', '{"finalize": "t.quiet"}') \g /dev/null
SELECT run_id FROM sas.submit('several');
SELECT claimed FROM t.perform();
SELECT claimed FROM t.perform();
SELECT * FROM t.perform();
SELECT t.workflow('nothing', '{"a": {"function": "t.quiet", "when": "$.input.n == 7", "finalize": "t.noting"}}') \g /dev/null
SELECT run_id FROM sas.submit('nothing', '{"n": 1}');
SELECT t.settle() \g /dev/null
SELECT * FROM t.perform();
SELECT run_id, state, result FROM sas.runs ORDER BY run_id;
SELECT sas.drop_middleware('f') \g /dev/null

-- a submit that gets an open run has made no run, and no after is told of it
SELECT t.clean() \g /dev/null
SELECT sas.create_middleware('p', 'plan', 't.before(jsonb)', 't.after(jsonb)') \g /dev/null
SELECT t.workflow('alone', '{"s": {"function": "t.quiet"}}', '{"concurrency": {"key": "one", "overlap": "return"}}') \g /dev/null
TRUNCATE t.trace;
SELECT run_id, created FROM sas.submit('alone', '{"n": 1}');
SELECT run_id, created FROM sas.submit('alone', '{"n": 2}');
SELECT what FROM t.trace ORDER BY n;
SELECT sas.drop_middleware('p') \g /dev/null

-- whose rights: those of who created it; EXECUTE is asked of that role, and at submit again
CREATE FUNCTION t.me(c jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT jsonb_build_object('request', jsonb_build_object('labels', jsonb_build_object('by', current_user))) $$;
CREATE FUNCTION t.guarded(c jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT NULL::jsonb $$;
REVOKE ALL ON FUNCTION t.guarded FROM PUBLIC;
CREATE ROLE sas_test_middle;
SELECT sas.grant_usage('sas_test_middle', 'user') \g /dev/null
SELECT sas.create_middleware('me', 'plan', 't.me(jsonb)') \g /dev/null
SET ROLE sas_test_middle;
SELECT run_id FROM sas.submit('who');
SELECT submitted_by, labels FROM sas.runs ORDER BY run_id DESC LIMIT 1;
SELECT sas.create_middleware('mine', 'plan', 't.me(jsonb)');
RESET ROLE;
SELECT sas.create_middleware('guarded', 'function', 't.guarded(jsonb)') \g /dev/null
SET ROLE sas_test_middle;
SELECT run_id FROM sas.submit('who');
RESET ROLE;
SELECT sas.drop_middleware('me'), sas.drop_middleware('guarded') \g /dev/null

-- refused
SELECT sas.create_middleware('x', 'present', 't.before(jsonb)');
SELECT sas.create_middleware('X', 'plan', 't.before(jsonb)');
SELECT sas.create_middleware('x', 'plan');
SELECT sas.create_middleware('x', 'plan', 't.note(text)');
SELECT sas.create_middleware('x', 'plan', 't.before(jsonb)', workflow => 'nowhere');
SELECT sas.create_middleware('x', 'plan', 't.before(jsonb)', goes_before => '{nobody}');
SELECT sas.create_middleware('x', 'plan', 't.before(jsonb)', replaces => 'x');
SELECT sas.create_middleware('x', 'plan', 't.before(jsonb)', goes_before => '{{a,b}}');
SELECT sas.create_middleware('x', 'plan', 't.before(jsonb)', goes_after => '{NULL}');
SELECT sas.create_middleware('a', 'plan', 't.before(jsonb)'), sas.create_middleware('b', 'plan', replaces => 'a') \g /dev/null
SELECT sas.create_middleware('x', 'plan', 't.before(jsonb)', replaces => 'a', goes_after => '{b}');
SELECT sas.create_middleware('x', 'plan', 't.before(jsonb)', replaces => 'b');
SELECT sas.create_middleware('x', 'plan', 't.before(jsonb)') \g /dev/null
SELECT sas.create_middleware('a', 'plan', 't.before(jsonb)', replaces => 'x');
SELECT sas.drop_middleware('b'), sas.drop_middleware('a'), sas.drop_middleware('x') \g /dev/null
SELECT sas.drop_middleware('x');
SELECT count(*) FROM sas.middlewares;

-- SPDX-License-Identifier: PostgreSQL
--
-- Code of users that a verb calls in the session is planned as the session says, not as the verb is.
\set QUIET on
\pset format unaligned
\pset tuples_only on
\pset pager off
SELECT no_plan();

CREATE FUNCTION pg_temp.plans() RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(s.name || '=' || s.setting, ' ' ORDER BY s.name) FROM pg_settings s
    WHERE s.name ~ '^enable_' OR s.name IN ('jit', 'plan_cache_mode')
$$;
CREATE TABLE public.plans_seen (place text, plans text);
CREATE FUNCTION public.see_plan(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.plans_seen SELECT coalesce(input ->> 'place', 'middleware'), string_agg(s.name || '=' || s.setting, ' ' ORDER BY s.name)
    FROM pg_catalog.pg_settings s WHERE s.name ~ '^enable_' OR s.name IN ('jit', 'plan_cache_mode');
    RETURN '{"steps": {}}';
END $$;
CREATE FUNCTION public.submit_inside(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM sas.submit('planned', '{"place": "inside"}');
    RETURN public.see_plan('{"place": "after"}');
END $$;
CREATE FUNCTION public.fail_plan(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'no plan';
END $$;

SELECT sas.create_workflow('planned', '{"plan": "public.see_plan"}') \g /dev/null
SELECT sas.create_workflow('nested', '{"plan": "public.submit_inside"}') \g /dev/null
SELECT sas.create_workflow('failing', '{"plan": "public.fail_plan"}') \g /dev/null
SELECT sas.create_workflow('works', '{"steps": {"a": {"function": "public.see_plan", "input": {"place": "inline"}}}}') \g /dev/null

SET enable_material = off;
SET enable_hashjoin = off;
SET jit = on;
SET plan_cache_mode = force_custom_plan;
SELECT pg_temp.plans() AS own \gset

SELECT sas.submit('planned', '{"place": "submit"}') \g /dev/null
SELECT sas.submit_batch('planned', '{"{\"place\": \"batch\"}"}') \g /dev/null
SELECT sas.submit('nested') \g /dev/null
SELECT throws_ok($$SELECT sas.submit('failing')$$, 'P0001', 'no plan', 'a plan function that fails');
SELECT is(pg_temp.plans(), :'own', 'leaves the settings of the session as they were');
SELECT sas.submit('planned', '{"place": "then"}') \g /dev/null
SELECT sas.create_middleware('m', 'plan', before => 'public.see_plan(jsonb)', workflow => 'planned') \g /dev/null
SELECT throws_ok($$SELECT sas.submit('planned', '{"place": "behind"}')$$, NULL, NULL, 'middleware whose answer is refused');
BEGIN;
SELECT sas.run_inline('works') \g /dev/null
SELECT is(plans, :'own', 'a function of a tested run') FROM public.plans_seen WHERE place = 'inline';
ROLLBACK;
SELECT is(plans, :'own', 'the plan function of: ' || place) FROM public.plans_seen;
SELECT is(string_agg(place, ' ' ORDER BY place), 'after batch inside submit then', 'all of them were called') FROM public.plans_seen;
SELECT is(pg_temp.plans(), :'own', 'and the session keeps its settings');

SELECT * FROM finish();

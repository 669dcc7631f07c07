-- SPDX-License-Identifier: PostgreSQL
--
-- Maintenance of a user's tables by a superuser: ANALYZE, REINDEX and REFRESH call functions of the user that call sas.
-- It acts for the user there, and what it calls for it stays within the restrictions of such a command.
\set QUIET on
\pset format unaligned
\pset tuples_only on
\pset pager off
-- no worker sees it
BEGIN;
SELECT no_plan();

CREATE ROLE ma_evil; CREATE ROLE ma_ann;
SELECT sas.grant_usage('ma_evil', 'user'), sas.grant_usage('ma_ann', 'user') \g /dev/null
CREATE SCHEMA ma AUTHORIZATION ma_evil;
CREATE TABLE public.ma_seen (what text, who text, said text); GRANT ALL ON public.ma_seen TO ma_evil;
SELECT sas.create_workflow('ma_open', '{"steps": {"w": {"wait": {"signal": "go"}}}}') \g /dev/null
SET LOCAL SESSION AUTHORIZATION ma_ann;
SELECT run_id AS anns FROM sas.submit('ma_open') \gset
SELECT sas.create_workflow('ma_anns', '{"steps": {}}') \g /dev/null
SET LOCAL SESSION AUTHORIZATION ma_evil;
CREATE FUNCTION ma.tries(what text, statements text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    s text;
BEGIN
    FOREACH s IN ARRAY statements LOOP
        BEGIN
            EXECUTE s;
            INSERT INTO public.ma_seen VALUES (s, current_user, 'ok');
        EXCEPTION WHEN OTHERS THEN
            INSERT INTO public.ma_seen VALUES (s, current_user, SQLSTATE);
        END;
    END LOOP;
END $$;
-- what would outlast the command, with the rights of who gave it
CREATE FUNCTION ma.plan(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM ma.tries('plan', '{SET ROLE postgres,RESET ROLE,SET SESSION AUTHORIZATION DEFAULT,CREATE TEMP TABLE ma_t (i int),DECLARE c CURSOR WITH HOLD FOR SELECT 1,PREPARE ma_p AS SELECT 1,LISTEN ma_c,ALTER ROLE ma_evil SUPERUSER}');
    RETURN '{"steps": {}}';
END $$;
SELECT sas.create_workflow('ma_planned', '{"plan": "ma.plan"}') \g /dev/null
CREATE FUNCTION ma.act() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM ma.tries('act', ARRAY['SELECT sas.submit(''ma_planned'')', 'SELECT sas.set_secret(''ma_s'', ''x'')', 'SELECT sas.grant_usage(''ma_evil'', ''admin'')', 'SELECT sas.create_workflow(''ma_anns'', ''{"steps": {}}'')',
                                  'SELECT sas.worker_restart()']);
    PERFORM sas.cancel_runs(ARRAY(SELECT generate_series(1, 1000)));
END $$;
CREATE FUNCTION ma.f(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN PERFORM ma.act(); RETURN i; END $$;
CREATE TABLE ma.t (i int);
CREATE INDEX t_f ON ma.t (ma.f(i));
CREATE MATERIALIZED VIEW ma.m AS SELECT ma.f(1) WITH NO DATA;
INSERT INTO ma.t VALUES (1);
RESET SESSION AUTHORIZATION;
DELETE FROM public.ma_seen;

-- each in its turn
CREATE FUNCTION pg_temp.seen(command text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    runs bigint := (SELECT count(*) FROM sas.runs);
BEGIN
    DELETE FROM public.ma_seen;
    EXECUTE command;
    RETURN QUERY
    SELECT ok((SELECT count(*) FROM sas.runs) > runs AND NOT EXISTS (SELECT FROM sas.runs WHERE workflow = 'ma_planned' AND submitted_by <> 'ma_evil'), command || ': the runs are the user''s')
    UNION ALL SELECT is((SELECT string_agg(DISTINCT who, ' ') FROM public.ma_seen), 'ma_evil', command || ': so is all that is called')
    UNION ALL SELECT is((SELECT string_agg(DISTINCT what, '; ') FROM public.ma_seen WHERE said = 'ok'), 'SELECT sas.submit(''ma_planned'')', command || ': it can do nothing else');
END $$;
SELECT s FROM unnest(ARRAY['ANALYZE ma.t', 'REINDEX TABLE ma.t', 'REFRESH MATERIALIZED VIEW ma.m']) command, pg_temp.seen(command) s;
SELECT is((SELECT state FROM sas.runs WHERE run_id = :anns), 'pending', 'the run of another role is as it was');
SELECT ok(NOT rolsuper, 'and nobody is a superuser') FROM pg_roles WHERE rolname = 'ma_evil';

SELECT * FROM finish();
ROLLBACK;

-- SPDX-License-Identifier: PostgreSQL
--
-- Members of a role: who has its rights, or can take them with SET ROLE, may what the role may. From PostgreSQL 16 on a
-- member may have neither; then it is a stranger to sas as well.
\ir ../lib/login.sql
SELECT no_plan();
SELECT current_setting('server_version_num')::int >= 160000 AS has_options \gset

CREATE ROLE mb_ann LOGIN; CREATE ROLE mb_heir LOGIN; CREATE ROLE mb_can_set LOGIN; CREATE ROLE mb_named LOGIN; CREATE ROLE mb_maker LOGIN CREATEROLE;
SELECT sas.grant_usage(r, 'user') FROM unnest('{mb_ann,mb_heir,mb_can_set,mb_named,mb_maker}'::regrole[]) r \g /dev/null
GRANT mb_ann TO mb_heir;
\if :has_options
    GRANT mb_ann TO mb_can_set WITH INHERIT FALSE, SET TRUE;
    GRANT mb_ann TO mb_named WITH INHERIT FALSE, SET FALSE;
    GRANT mb_ann TO mb_maker WITH INHERIT FALSE, SET FALSE, ADMIN TRUE;
\else
    ALTER ROLE mb_can_set NOINHERIT;
    GRANT mb_ann TO mb_can_set;
\endif
CREATE SCHEMA mb; GRANT ALL ON SCHEMA mb TO PUBLIC;
CREATE FUNCTION mb.act(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT input $$;
CREATE FUNCTION pg_temp.does(who text, statement text) RETURNS text LANGUAGE sql AS $$
    SELECT CASE x.code WHEN 'ok' THEN coalesce(x.said, '') ELSE x.code END FROM login.as_role(who, statement) x $$;
SELECT sas.create_agent('mb_away', kind => 'external'), sas.grant_agent('mb_away', 'mb_ann') \g /dev/null
SELECT pg_temp.does('mb_ann', $$SELECT sas.create_workflow('mb_w', '{"steps": {"a": {"wait": {"signal": "go"}}}}')$$) \g /dev/null
SELECT pg_temp.does('mb_ann', $$SELECT sas.create_workflow('mb_other', '{"steps": {"a": {"wait": {"signal": "go"}}}}')$$) \g /dev/null
SELECT pg_temp.does('mb_ann', $$SELECT sas.create_watcher('mb_t', '{"function": "mb.act", "every": "1 h"}')$$) \g /dev/null
SELECT pg_temp.does('mb_ann', $$SELECT sas.schedule('mb_s', 'every 1 day', 'mb_w', '{"card": "4711"}', start_at => now() + interval '1 day')$$) \g /dev/null
SELECT pg_temp.does('mb_ann', $$SELECT run_id FROM sas.submit('mb_w', '{"card": "4711"}')$$) AS run \gset

-- what a member does with what is the role's, and what it gets
CREATE TEMP TABLE act (n int GENERATED ALWAYS AS IDENTITY, statement text, member text, stranger text);
INSERT INTO act (statement, member, stranger) VALUES
    ('SELECT string_agg(input::text, '' '') FROM sas.runs', '{"card": "4711"}', ''),
    ('SELECT count(*) FROM sas.steps', '1', '0'),
    ('SELECT count(*) FROM sas.workflows WHERE workflow = ''mb_w''', '1', '0'),
    ('SELECT count(*) FROM sas.schedules', '1', '0'),
    ('SELECT count(*) FROM sas.find_runs(''{"workflow": "mb_w"}'')', '1', '0'),
    (format('SELECT sas.signal(%s, ''go'', ''{"v": 1}'')', :run), '', '42704'),
    ('SELECT sas.create_workflow(''mb_other'', ''{"steps": {}}'') > 1', 'true', '42501'),
    ('SELECT run_id > 0 FROM sas.submit(''mb_w'', ''{}'')', 'true', '42501'),
    ('SELECT sas.create_watcher(''mb_t'', ''{"function": "mb.act", "every": "2 h"}'')', '', '42501'),
    (format('SELECT changed FROM sas.set_priority(%s, 5)', :run), 'true', 'false'),
    ('SELECT sas.create_workflow(''mb_'' || current_user, ''{"steps": {"a": {"agent": "mb_away", "task": {}}}}'')', '1', '42501');
SELECT is(pg_temp.does(w.who, a.statement), CASE WHEN w.is_member THEN a.member ELSE a.stranger END, format('%s: %s', w.who, a.statement))
FROM (VALUES (1, 'mb_named', false), (2, 'mb_maker', false), (3, 'mb_can_set', true), (4, 'mb_heir', true)) w (i, who, is_member)
CROSS JOIN act a WHERE w.is_member OR :'has_options' ORDER BY w.i, a.n;

-- a run that follows one of the role is explained to a former member by the id that it knows, and by nothing else
SELECT pg_temp.does('mb_heir', format('SELECT run_id FROM sas.submit(''mb_mb_heir'', after_run => %s)', :run)) AS follows \gset
REVOKE mb_ann FROM mb_heir;
SELECT is(pg_temp.does('mb_heir', format('SELECT count(*) FROM sas.runs WHERE run_id = %s', :run)), '0', 'a former member does not see the run');
SELECT matches(pg_temp.does('mb_heir', format('SELECT string_agg(text, '' '') FROM sas.explain(%s)', :follows)), format('run %s has not stopped yet', :run), 'and is told which run its own one follows');
SELECT doesnt_match(pg_temp.does('mb_heir', format('SELECT string_agg(text, '' '') FROM sas.explain(%s)', :follows)), '4711|mb_w|mb_ann', 'but nothing of that run');
SELECT * FROM finish();

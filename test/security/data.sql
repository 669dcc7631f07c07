-- SPDX-License-Identifier: PostgreSQL
--
-- Data: who says what a run is given. Functions run with the rights of its owner, so an operator or admin does not
-- say it for others; and verbs give nobody more than the owner has.
\ir ../lib/login.sql
SELECT no_plan();

CREATE ROLE da_ann LOGIN; CREATE ROLE da_op LOGIN; CREATE ROLE da_adm LOGIN; CREATE ROLE da_team LOGIN; CREATE ROLE da_mate LOGIN IN ROLE da_ann;
SELECT sas.grant_usage('da_ann', 'user'), sas.grant_usage('da_mate', 'user'), sas.grant_usage('da_op', 'operator'), sas.grant_usage('da_adm', 'admin') \g /dev/null
CREATE SCHEMA da; GRANT ALL ON SCHEMA da TO PUBLIC;
CREATE FUNCTION da.act(input jsonb) RETURNS jsonb LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$ SELECT input $$;
CREATE FUNCTION pg_temp.refusal(who text, statement text) RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(nullif(x.code, 'ok'), x.said)
    FROM login.as_role(who, format('SELECT regexp_replace(coalesce(refused, changed::text), ''[0-9]+'', ''N'', ''g'') FROM %s', statement)) x $$;
SELECT sas.create_workflow('da_w', '{"steps": {"a": {"function": "da.act"}, "b": {"function": "da.act", "after": ["a"]}}}') \g /dev/null
SELECT run_id AS root FROM sas.submit('da_w') \gset
SELECT said AS ann FROM login.as_role('da_ann', $$SELECT run_id FROM sas.submit('da_w')$$) \gset

SELECT is(pg_temp.refusal(who, format(verb, run)), 'only a member of role ' || owner || ' can give data to run N', format('%s does not give a run of %s another input: %s', who, owner, verb))
FROM unnest('{da_op,da_adm}'::text[]) who,
     (VALUES (:root, current_user::text), (:ann, 'da_ann')) AS r (run, owner),
     unnest(ARRAY[$$sas.set_input(%s, 'a', '{"evil": true}')$$, $$sas.set_input_runs(ARRAY[%s], 'a', '{"evil": true}')$$]) verb;
SELECT is(pg_temp.refusal(who, format(verb, :root)), 'only a member of role ' || current_user || ' can give data to run N', format('%s does not say what a step of a superuser''s run gave: %s', who, verb))
FROM unnest('{da_op,da_adm}'::text[]) who,
     unnest(ARRAY[$$sas.force_complete(%s, 'a', '{"evil": true}')$$, $$sas.skip(%s, 'a', '{"evil": true}')$$, $$sas.force_complete_runs(ARRAY[%s], 'a', '{"evil": true}')$$,
                  $$sas.skip_runs(ARRAY[%s], 'a', '{"evil": true}')$$]) verb;
SELECT is((SELECT count(*) FROM _sas.override), 0::bigint, 'nothing is stored of it');
SELECT is((SELECT count(*) FROM sas.history WHERE act IN ('set_input', 'force_complete', 'skip')), 0::bigint, 'nor recorded as done');
SELECT is(pg_temp.refusal('da_mate', format($$sas.set_input(%s, 'a', '{"x": 1}')$$, :ann)), 'true', 'a member of the owner''s role gives it another input');
SELECT is(pg_temp.refusal('da_ann', format($$sas.set_input(%s, 'a', '{"x": 2}')$$, :ann)), 'true', 'so does the owner');
SELECT is(pg_temp.refusal(current_user::text, format($$sas.set_input(%s, 'a', '{"x": 3}')$$, :ann)), 'true', 'and a superuser');
SELECT is(pg_temp.refusal('da_ann', format($$sas.set_input(%s, 'a', '{"x": 2}')$$, :root)), 'run N does not exist, or is not yours; see sas.runs for your runs', 'a user finds no run of others');
SELECT is(pg_temp.refusal('da_op', format($$sas.force_complete(%s, 'a', '{"x": 1}')$$, :ann)), 'true', 'an operator settles a step of a user');
SELECT is(pg_temp.refusal('da_op', format($$sas.skip(%s, 'a')$$, :root)), 'true', 'and skips one of a superuser, without an output');
SELECT is((SELECT string_agg(DISTINCT concat_ws(' ', h.role, h.act, h.step), ', ') FROM sas.history h WHERE h.act IN ('set_input', 'force_complete', 'skip')),
          format('da_ann set_input a, da_mate set_input a, da_op force_complete a, da_op skip a, %s set_input a', current_user), 'each of these is in the history, with who did it');

SELECT * FROM finish();

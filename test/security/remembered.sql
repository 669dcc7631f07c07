-- SPDX-License-Identifier: PostgreSQL
--
-- Remembered: a session remembers what it has found out of the workflows that it submits. What has been taken away
-- since is gone for its next submit, too.
\ir ../lib/login.sql
SELECT no_plan();

CREATE ROLE re_ann LOGIN; CREATE ROLE re_bob; CREATE ROLE re_carl; CREATE ROLE re_boss SUPERUSER; CREATE ROLE re_group; CREATE ROLE re_admins;
SELECT sas.grant_usage(r, 'user') FROM unnest('{re_ann,re_bob,re_carl}'::regrole[]) r \g /dev/null
SELECT sas.grant_usage('re_admins', 'admin') \g /dev/null
CREATE SCHEMA re; GRANT ALL ON SCHEMA re TO re_bob, re_carl, re_group, re_boss;
GRANT re_group TO re_ann; GRANT re_admins TO re_bob;
CREATE FUNCTION re.act(input jsonb) RETURNS jsonb LANGUAGE sql BEGIN ATOMIC SELECT input; END;
CREATE FUNCTION re.other(input jsonb) RETURNS jsonb LANGUAGE sql BEGIN ATOMIC SELECT input; END;
CREATE FUNCTION re.rule(input jsonb) RETURNS jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$ BEGIN RAISE EXCEPTION 'the rule'; END $$;
REVOKE ALL ON FUNCTION re.act, re.other FROM PUBLIC; GRANT EXECUTE ON FUNCTION re.act, re.other TO re_ann, re_bob, re_carl, re_boss;
CREATE FUNCTION pg_temp.writes(who text, name text, function text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    version int;
BEGIN
    EXECUTE format('SET LOCAL ROLE %I', who);
    version := sas.create_workflow(name, jsonb_build_object('steps', jsonb_build_object('a', jsonb_build_object('function', function))));
    RESET ROLE;
    RETURN version;
END $$;
SELECT pg_temp.writes('re_bob', 're_granted', 're.act'), pg_temp.writes('re_carl', 're_given', 're.act') \g /dev/null
SELECT pg_temp.writes('re_boss', 're_bosses', 're.other'), pg_temp.writes('postgres', 're_all', 're.act') \g /dev/null
SELECT sas.grant_workflow('re_given', 're_group') \g /dev/null
-- the second one is by what the first one has left in the session
CREATE FUNCTION pg_temp.submits(workflow text, wanted text, name text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    answer record;
BEGIN
    FOR n IN 1 .. 2 LOOP
        answer := login.as_role('re_ann', format('SELECT created FROM sas.submit(%L)', workflow));
        RETURN NEXT is(concat_ws(' ', answer.code, answer.said, answer.message), wanted, format('%s: %s, %s', name, workflow, n));
    END LOOP;
END $$;

SELECT pg_temp.submits(w, 'ok true', 'ann submits') FROM unnest('{re_granted,re_given,re_bosses,re_all}'::text[]) w;

-- a rule that is made since
SELECT sas.create_middleware('re_rule', 'plan', before => 're.rule(jsonb)') \g /dev/null
SELECT pg_temp.submits('re_all', 'P0001 the rule', 'middleware that was created since');
SELECT sas.drop_middleware('re_rule') \g /dev/null
SELECT pg_temp.submits('re_all', 'ok true', 'without it');

-- what it was by
REVOKE EXECUTE ON FUNCTION re.act FROM re_ann;
SELECT pg_temp.submits('re_all', '42501 permission denied for function re.act(jsonb)', 'a function that she may not call any more');
GRANT EXECUTE ON FUNCTION re.act TO re_ann;
SELECT pg_temp.submits('re_all', 'ok true', 'one that she may call again');
REVOKE ALL ON SCHEMA re FROM re_group;
SELECT pg_temp.submits('re_all', '42501 permission denied for function re.act(jsonb)', 'a schema that she may not use any more');
GRANT USAGE ON SCHEMA re TO PUBLIC;
SELECT pg_temp.submits('re_all', 'ok true', 'one that all may use');
SELECT sas.revoke_workflow('re_given', 're_group') \g /dev/null
SELECT pg_temp.submits('re_given', '42501 permission denied for workflow "re_given"', 'a grant that was revoked');
SELECT sas.grant_workflow('re_given', 're_group') \g /dev/null
SELECT pg_temp.submits('re_given', 'ok true', 'one that was given again');
REVOKE re_group FROM re_ann;
SELECT pg_temp.submits('re_given', '42501 permission denied for workflow "re_given"', 'a grant of a role of which she is no member any more');
SELECT pg_temp.submits('re_granted', 'ok true', 'as an admin has written it, without a grant');
REVOKE re_admins FROM re_bob;
SELECT pg_temp.submits('re_granted', '42501 permission denied for workflow "re_granted"', 'who wrote it is no admin any more');
GRANT re_admins TO re_bob;
SELECT pg_temp.submits('re_granted', 'ok true', 'who wrote it is an admin again');
SELECT sas.revoke_usage('re_admins', 'admin') \g /dev/null
SELECT pg_temp.submits('re_granted', '42501 permission denied for workflow "re_granted"', 'the level was taken away');
SELECT pg_temp.submits('re_bosses', 'ok true', 'as a superuser has written it');
ALTER ROLE re_boss NOSUPERUSER;
SELECT pg_temp.submits('re_bosses', '42501 permission denied for workflow "re_bosses"', 'who wrote it is no superuser any more');
SELECT sas.revoke_usage('re_ann') \g /dev/null
SELECT pg_temp.submits('re_all', '42501 permission denied for function submit', 'her own level was taken away');

SELECT * FROM finish();

-- SPDX-License-Identifier: PostgreSQL
--
-- Identity: what a definition names is the workflow of that name when it was written. One that another role makes
-- under the same name later is not called with the rights of the run's owner; and what others refer to stays.
\ir ../lib/login.sql
SELECT no_plan();

CREATE ROLE id_ann LOGIN; CREATE ROLE id_eve LOGIN;
SELECT sas.grant_usage(r, 'user') FROM unnest('{id_ann,id_eve}'::regrole[]) r \g /dev/null
CREATE SCHEMA id; GRANT ALL ON SCHEMA id TO PUBLIC;
CREATE FUNCTION pg_temp.as_role(who text, statement text) RETURNS text LANGUAGE sql AS $$
    SELECT CASE x.code WHEN 'ok' THEN coalesce(nullif(x.said, ''), 'ok') ELSE x.code || ' ' || x.message || coalesce(' ' || nullif(x.place, ''), '') END
    FROM login.as_role(who, statement) x $$;
CREATE FUNCTION pg_temp.writes(who text, workflow text, definition text DEFAULT '{"steps": {}}') RETURNS text LANGUAGE sql AS
    $$ SELECT pg_temp.as_role(who, format('SELECT sas.create_workflow(%L, %L)', workflow, definition)) $$;
CREATE FUNCTION pg_temp.drops(who text, workflow text) RETURNS text LANGUAGE sql AS
    $$ SELECT pg_temp.as_role(who, format('SELECT sas.drop_workflow(%L)', workflow)) $$;
-- what became of the child of a run
CREATE FUNCTION id.child_of(id bigint) RETURNS text LANGUAGE sql AS $$
    SELECT coalesce((SELECT 'child of ' || c.workflow || ' ' || c.version FROM sas.runs c WHERE c.parent_run_id = id),
                    (SELECT s.state || ' ' || (s.error ->> 'detail') FROM sas.steps s WHERE s.run_id = id AND s.step = 'c'), 'nothing') $$;

CREATE FUNCTION id.submits(workflow text, version int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    id bigint := (SELECT s.run_id FROM sas.submit(workflow, version => version) s);
BEGIN
    PERFORM FROM sas.continue_inline(id);
    RETURN id.child_of(id);
END $$;

SELECT is(pg_temp.writes('id_ann', w), '1', 'ann writes ' || w) FROM unnest('{id_child,id_part,id_free}'::text[]) w;
SELECT is(pg_temp.writes('id_ann', 'id_parent', '{"steps": {"c": {"workflow": "id_child"}}}'), '1', 'and one with a child');
SELECT is(pg_temp.writes('id_ann', 'id_whole', '{"steps": {"c": {"include": "id_part"}}}'), '1', 'and one that includes another');
SELECT is(pg_temp.drops('id_ann', 'id_child'), '2BP01 cannot drop workflow "id_child" because others refer to it They are: workflow "id_parent".', 'what is a child of another is not dropped');
SELECT is(pg_temp.drops('id_ann', 'id_part'), '2BP01 cannot drop workflow "id_part" because others refer to it They are: workflow "id_whole".', 'nor what another includes');
SELECT is(pg_temp.as_role('id_ann', $$SELECT sas.subscribe('id_free', 'id_whole')$$), 'ok', 'a subscriber is there');
SELECT alike(pg_temp.drops('id_ann', 'id_free'), '2BP01 %', 'what is subscribed to another is not dropped, too');
SELECT is(pg_temp.as_role('id_ann', $$SELECT sas.unsubscribe('id_free', 'id_whole')$$), 'ok', 'until that has ended');
SELECT is(pg_temp.drops('id_ann', 'id_free'), 'ok', 'then it is');
-- an older version that is granted refers to it still
SELECT is(pg_temp.as_role('id_ann', $$SELECT sas.grant_workflow('id_parent', 'id_eve')$$), 'ok', 'ann grants the first version');
SELECT is(pg_temp.writes('id_ann', 'id_parent'), '2', 'ann writes a version without a child');
SELECT alike(pg_temp.drops('id_ann', 'id_child'), '2BP01 %', 'the granted version keeps the child');
SELECT is(pg_temp.as_role('id_ann', $$SELECT sas.revoke_workflow('id_parent', 'id_eve')$$), 'ok', 'until it is revoked');
-- and so does an open run
SELECT alike(pg_temp.as_role('id_ann', $$SELECT FROM sas.submit('id_parent', start_at => now() + interval '1 h', version => 1); SELECT sas.drop_workflow('id_child')$$), '2BP01 %', 'which keeps the child, too');
SELECT is(pg_temp.drops('id_ann', 'id_child'), 'ok', 'nobody else refers to it');

-- the name is made again ---------------------------------------------------------------------------------------

SELECT is(pg_temp.writes('id_eve', 'id_child'), '1', 'eve takes the name');
SELECT is(pg_temp.as_role('id_eve', $$SELECT sas.grant_workflow('id_child', 'id_ann', future => true)$$), 'ok', 'and grants it to ann');
SELECT is((login.as_role('id_ann', $$SELECT id.submits('id_parent', 1)$$, false)).said, 'failed workflow "id_child" has been dropped (At /workflow)', 'eve''s workflow is not called as the child of ann''s run');
SELECT is((SELECT count(*) FROM sas.runs WHERE workflow = 'id_child'), 0::bigint, 'it has no run');
SELECT is(pg_temp.writes('id_ann', 'id_parent', '{"steps": {"c": {"workflow": "id_child"}}}'), '3', 'ann names it herself');
SELECT is((login.as_role('id_ann', $$SELECT id.submits('id_parent', 3)$$, false)).said, 'child of id_child 1', 'then it is called');
-- includes are steps of their own
SELECT is(pg_temp.writes('id_ann', 'id_whole', '{"plan": "id.none", "steps": {}}'), '42883 function id.none(jsonb) does not exist At /plan.', 'there is no plan function yet');
CREATE FUNCTION id.none(input jsonb) RETURNS jsonb LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$ SELECT '{}'::jsonb $$;
SELECT is(pg_temp.writes('id_ann', 'id_planned', '{"plan": "id.none", "steps": {"c": {"include": "id_part"}}}'), '1', 'ann has a plan that includes another');
SELECT is(pg_temp.writes('id_ann', 'id_planned'), '2', 'and writes a version without it');
SELECT is(pg_temp.writes('id_ann', 'id_whole'), '2', 'and one of the other that did');
SELECT is(pg_temp.drops('id_ann', 'id_part'), 'ok', 'what was included can be dropped');
SELECT is(pg_temp.writes('id_eve', 'id_part'), '1', 'eve takes that name');
SELECT is(pg_temp.as_role('id_eve', $$SELECT sas.grant_workflow('id_part', 'id_ann', future => true)$$), 'ok', 'and grants it to ann');
SELECT is(pg_temp.as_role('id_ann', $$SELECT run_id FROM sas.submit('id_planned', version => 1)$$), '55000 workflow "id_part" has been dropped At /workflow.', 'a plan does not include eve''s');
-- queues: an older version does not keep them
SELECT FROM unnest('{id_slow,id_late,id_kept}'::text[]) q, LATERAL sas.create_queue(q, 2) \g /dev/null
SELECT is(pg_temp.writes('id_ann', 'id_queued', d), v::text, 'version ' || v) FROM (VALUES (1, '{"steps": {"a": {"function": "id.none", "queue": "id_slow"}}}'),
    (2, '{"queue": "id_late", "steps": {"a": {"function": "id.none"}}}'), (3, '{"steps": {"a": {"function": "id.none", "queue": "id_kept"}}}'), (4, '{"steps": {}}')) w (v, d);
SELECT is(pg_temp.as_role('id_ann', format($$SELECT created FROM sas.submit('id_queued', version => %s)$$, v)), 'true', 'it can be submitted: ' || v) FROM generate_series(1, 3) v;
SELECT is(pg_temp.as_role('id_ann', $$SELECT count(*) FROM sas.runs r, sas.halt(r.run_id) WHERE r.workflow = 'id_queued' AND r.state <> 'stopped'$$), '3', 'the runs end');
SELECT sas.drop_queue('id_slow'), sas.drop_queue('id_late') \g /dev/null
SELECT is(pg_temp.as_role('id_ann', format($$SELECT created FROM sas.submit('id_queued', version => %s)$$, v)), '42704 queue "' || q || '" has been dropped At /workflow.', 'not when its queue was dropped: ' || v) FROM (VALUES (1, 'id_slow'), (2, 'id_late')) w (v, q);
SELECT sas.create_queue('id_slow', 2) \g /dev/null
SELECT alike(pg_temp.as_role('id_ann', $$SELECT created FROM sas.submit('id_queued', version => 1)$$), '42704 queue "id_slow" has been dropped%', 'the one that has its name now is another');
SELECT is(pg_temp.as_role('id_ann', $$SELECT created FROM sas.submit('id_queued', version => 3)$$), 'true', 'one whose queue is there can be submitted');
SELECT is(pg_temp.as_role('id_ann', $$SELECT refused FROM sas.runs r, sas.rerun(r.run_id) WHERE r.workflow = 'id_queued' AND r.version = 1$$), 'ok', 'and run again, with the newest version');
-- a schedule is for one workflow, too
SELECT is(pg_temp.writes('id_ann', 'id_job'), '1', 'ann writes one');
SELECT is(pg_temp.as_role('id_ann', $$SELECT sas.schedule('id_s', '0 3 1 1 *', 'id_job') IS NOT NULL$$), 'true', 'and has it scheduled');
SELECT is(pg_temp.as_role('id_ann', $$SELECT created FROM sas.trigger_schedule('id_s')$$), 'true', 'a run of it is submitted');
SELECT FROM generate_series(1, 5) n, LATERAL _sas.scheduler_tick(100 + 0 * n) \g /dev/null
SELECT is(pg_temp.drops('id_ann', 'id_job'), '2BP01 cannot drop workflow "id_job" because others refer to it They are: schedule "id_s".', 'the schedule keeps the workflow');
SELECT is(pg_temp.as_role('id_ann', $$SELECT sas.pause_schedule('id_s')$$), 'true', 'she pauses it');
SELECT alike(pg_temp.drops('id_ann', 'id_job'), '2BP01 %', 'a paused one does, too');
SELECT is(pg_temp.as_role('id_ann', $$SELECT sas.resume_schedule('id_s')$$), 'true', 'she resumes it');
SELECT is(pg_temp.writes('id_ann', 'id_other'), '1', 'ann writes another one');
SELECT is(pg_temp.drops('id_ann', 'id_other'), 'ok', 'which no schedule keeps');
-- as it may have been restored
UPDATE _sas.workflow SET dropped_at = now() WHERE name = 'id_job';
SELECT is(pg_temp.writes('id_eve', 'id_job'), '1', 'eve takes the name');
SELECT is(pg_temp.as_role('id_eve', $$SELECT sas.grant_workflow('id_job', 'id_ann', future => true)$$), 'ok', 'and grants it to ann');
SELECT matches(pg_temp.as_role('id_ann', $$SELECT created FROM sas.trigger_schedule('id_s')$$), 'workflow "id_job" belongs to another role than when it was scheduled', 'the schedule does not submit eve''s');
SELECT alike(pg_temp.drops('id_eve', 'id_job'), '2BP01 %', 'eve may not drop it while ann may run it');
SELECT is(pg_temp.as_role('id_eve', $$SELECT sas.revoke_workflow('id_job', 'id_ann')$$), 'ok', 'she takes the grant away');
SELECT is(pg_temp.drops('id_eve', 'id_job'), 'ok', 'the schedule of a role that may not run it does not keep the workflow');
-- middleware is for one workflow, not for a name
CREATE FUNCTION id.around(input jsonb) RETURNS jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$ BEGIN RAISE EXCEPTION 'called'; END $$;
SELECT is(pg_temp.writes('id_ann', 'id_mid'), '1', 'ann writes one');
SELECT sas.create_middleware('id_around', 'plan', before => 'id.around(jsonb)', workflow => 'id_mid') \g /dev/null
SELECT alike(pg_temp.as_role('id_ann', $$SELECT run_id FROM sas.submit('id_mid')$$), 'P0001 called%', 'a middleware is around it');
SELECT is(pg_temp.drops('id_ann', 'id_mid'), 'ok', 'she drops it');
SELECT is(pg_temp.writes('id_eve', 'id_mid'), '1', 'eve takes the name');
SELECT unalike(pg_temp.as_role('id_eve', $$SELECT run_id FROM sas.submit('id_mid')$$), '%called%', 'the middleware is not around hers');

SELECT * FROM finish();

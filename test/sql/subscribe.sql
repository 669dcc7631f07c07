-- SPDX-License-Identifier: PostgreSQL
--
-- Subscribe: another workflow's steps are planned along in every new run,
-- without the knowledge of the one that is subscribed to.
SELECT t.clean() \g /dev/null
\set SHOW_CONTEXT never
-- t.go(): all is done that a scheduler does; the ends of an include, where they are left to workers, too
CREATE FUNCTION t.go() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    c record;
BEGIN
    LOOP
        PERFORM t.settle();
        SELECT * INTO c FROM _sas.claim_functions(1, 1, t.worker('j'), 'j');
        EXIT WHEN NOT FOUND;
        PERFORM _sas.write_replies(ARRAY[ROW(c.run_id, c.step_no, c.element, c.request_id, 'done', 1, coalesce(c.input, 'null'), NULL, false, NULL, NULL)::_sas.call_reply], ARRAY[c.lease_id]);
    END LOOP;
END $$;
-- t.whole(workflow, rules): a run of it to its end; how it stands, and what was undone
CREATE FUNCTION t.whole(workflow text, rules jsonb DEFAULT '{}', OUT stands text, OUT undone text) LANGUAGE plpgsql AS $$
DECLARE
    tried record;
BEGIN
    SELECT * INTO tried FROM t.try(workflow, rules);
    stands := tried.stands;
    undone := (SELECT string_agg(x, ', ' ORDER BY n) FROM unnest(string_to_array(tried.carried_out, ', ')) WITH ORDINALITY AS u (x, n) WHERE x LIKE 'undo %');
END $$;
SELECT t.workflow('mailing', '{"send": {"agent": "shipping", "call": {"body": "{{input}}"}}, "log": {"agent": "shipping", "call": {}, "after": ["send"]}}', '{"output": {"mail": "{{steps.send.output.body.id}}"}}') \g /dev/null
SELECT t.workflow('parcel', '{"reserve": {"agent": "inventory", "call": {}}, "charge": {"agent": "payments", "call": {}, "after": ["reserve"]}}', '{"output": {"id": "{{steps.charge.output.body.id}}"}}') \g /dev/null

-- CO3 its steps are planned beside those of the parcel, with the same input
SELECT sas.subscribe('mailing', 'parcel');
SELECT workflow, to_workflow, input FROM sas.subscriptions;
SELECT run_id FROM sas.submit('parcel', '{"n": 1}');
SELECT run_id, workflow, version, state FROM sas.runs;
SELECT step, state FROM sas.steps ORDER BY step;
SELECT t.go() \g /dev/null
SELECT t.claim();
SELECT asked FROM t.held WHERE step = 'mailing.send';
SELECT t.answer('reserve'), t.answer('mailing.send') \g /dev/null
SELECT t.work() <> '' AS worked;
SELECT t.brief(1);
SELECT output FROM sas.runs;
SELECT * FROM t.left_over();
-- the definition knows nothing of it
SELECT version, steps, definition -> 'steps' ? 'mailing' AS knows FROM sas.workflows WHERE workflow = 'parcel';

-- CO4 what its input takes from a step comes after that step; the input says where it comes from
SELECT sas.subscribe('mailing', 'parcel', '{"order": "{{input.n}}", "charge": "{{steps.charge.output.body.id}}", "from_subscription": true}');
SELECT run_id FROM sas.submit('parcel', '{"n": 2}');
SELECT t.go() \g /dev/null
SELECT t.claim();
SELECT t.answer('reserve') \g /dev/null
SELECT t.go() \g /dev/null
SELECT t.claim();
SELECT t.answer('charge') \g /dev/null
SELECT t.go() \g /dev/null
SELECT t.claim();
SELECT asked FROM t.held;
SELECT t.answer('mailing.send') \g /dev/null
SELECT t.work() <> '' AS worked;
SELECT t.brief(2);

-- a failure of it is one of the run: what was done on either side is undone
SELECT t.workflow('points', '{"give": {"agent": "shipping", "call": {}, "undo": {"call": {}}}, "tell": {"agent": "shipping", "call": {}, "after": ["give"]}}') \g /dev/null
SELECT t.workflow('sale', '{"pay": {"agent": "payments", "call": {}, "undo": {"call": {}}}}') \g /dev/null
SELECT sas.subscribe('points', 'sale', '{"pay": "{{steps.pay.output.body.id}}"}');
SELECT f.* FROM t.whole('sale', '{"points.tell": "permanent 400"}') f;

-- CO3 one subscriber has several targets, one target several subscribers
SELECT sas.subscribe('mailing', 'sale');
SELECT workflow, to_workflow FROM sas.subscriptions ORDER BY 2, 1;
SELECT f.* FROM t.whole('sale') f;

-- CO5 a new version of either is there in the next run; runs that have begun keep theirs
SELECT run_id FROM sas.submit('sale');
SELECT t.workflow('mailing', '{"post": {"agent": "shipping", "call": {}}}') \g /dev/null
SELECT f.* FROM t.whole('sale') f;
SELECT t.brief(5);
SELECT t.workflow('sale', '{"pay": {"agent": "payments", "call": {}}, "pack": {"agent": "inventory", "call": {}}}', '{"hooks": [{"on": "success", "function": "t.echo"}]}') AS version;
SELECT f.* FROM t.whole('sale') f;
SELECT run_id, version FROM sas.runs WHERE workflow = 'sale' ORDER BY 1;
SELECT workflow, hook, told_state, state FROM sas.hook_runs;
-- what does not fit any more is refused, nothing is changed
SELECT t.workflow('sale', '{"paid": {"agent": "payments", "call": {}}}');
SELECT t.workflow('sale', '{"pay": {"agent": "payments", "call": {}}, "points": {"agent": "inventory", "call": {}}}');
SELECT t.workflow('mailing', '{"post": {"agent": "shipping", "call": {}}}', '{"plan": "t.echo"}');
SELECT version FROM sas.workflows WHERE workflow = 'sale';
SELECT sas.drop_workflow('points');
-- what the target says of its start holds; the queue of a subscriber's step is kept while new runs use it
SELECT t.clean() \g /dev/null
SELECT sas.create_queue(q, 1) FROM unnest('{subscribe_one,subscribe_two}'::text[]) q \g /dev/null
SELECT t.workflow('points', '{"add": {"agent": "inventory", "call": {}, "queue": "subscribe_two"}}') \g /dev/null
SELECT t.workflow('sale', '{"pay": {"agent": "payments", "call": {}}}', '{"concurrency": [{"key": "one", "overlap": "return"}, {"key": "{{input.n}}"}], "queue": "subscribe_one"}') \g /dev/null
SELECT run_id, created FROM sas.submit('sale', '{"n": 1}');
SELECT run_id, created FROM sas.submit('sale', '{"n": 1}');
SELECT t.go() \g /dev/null
SELECT workflow, queue, state FROM sas.runs;
SELECT name, running, waiting FROM sas.queues WHERE name LIKE 'subscribe%' ORDER BY name;
SELECT t.go() \g /dev/null
SELECT t.work();
SELECT state, result FROM sas.runs;
SELECT sas.drop_queue('subscribe_two');
SELECT t.workflow('points', '{"add": {"agent": "inventory", "call": {}}}') \g /dev/null
SELECT sas.drop_queue('subscribe_two');
SELECT t.workflow('sale', '{"pay": {"agent": "payments", "call": {}}, "pack": {"agent": "inventory", "call": {}}}') \g /dev/null
SELECT sas.drop_queue('subscribe_one');
-- ended, it is gone from new runs
SELECT sas.unsubscribe('points', 'sale');
SELECT f.* FROM t.whole('sale') f;
SELECT sas.unsubscribe('mailing', 'sale');
SELECT f.* FROM t.whole('sale') f;
SELECT sas.drop_workflow('points');

-- refused
SELECT sas.subscribe('mailing', 'nowhere');
SELECT sas.subscribe('nowhere', 'sale');
SELECT sas.subscribe('sale', 'sale');
SELECT sas.subscribe('mailing', 'sale', '{"a": "{{steps.nothing.output}}"}');
SELECT sas.subscribe('mailing', 'sale', '{"a": "{{secret.token}}"}');
SELECT sas.subscribe('mailing', 'sale', NULL);
SELECT sas.unsubscribe('mailing', 'sale');
CREATE ROLE sas_test_subscriber;
SELECT sas.grant_usage('sas_test_subscriber', 'user') \g /dev/null
SET ROLE sas_test_subscriber;
SELECT sas.subscribe('mailing', 'sale');
SELECT sas.unsubscribe('mailing', 'parcel');
SELECT count(*) FROM sas.subscriptions;
RESET ROLE;
-- a target that is dropped has no subscribers any more
SELECT sas.drop_workflow('parcel');
SELECT count(*) FROM sas.subscriptions;
SELECT * FROM t.left_over();

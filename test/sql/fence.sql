-- SPDX-License-Identifier: PostgreSQL
--
-- The fence: a reply counts with the current token and before complete-by.
-- Any other changes nothing and is counted.
SELECT t.clean() \g /dev/null
SELECT t.workflow('call', '{"charge": {"agent": "payments", "call": {}, "complete_in": "20 s", "undo": {"call": {}}}, "ship": {"agent": "shipping", "call": {}, "after": ["charge"]}}') \g /dev/null

-- in the last instant before complete-by: taken
SELECT run_id FROM sas.submit('call');
SELECT t.claim();
SELECT t.later('19.999 s') \g /dev/null
SELECT t.answer('charge');
SELECT t.claim(), t.answer('ship');
SELECT name, stale_replies FROM sas.agents WHERE stale_replies > 0;

-- A7 at complete-by: late; nothing of it is taken, whatever it says
SELECT run_id FROM sas.submit('call');
SELECT t.claim();
SELECT t.later('20 s') \g /dev/null
SELECT t.answer('charge', w, keep => true) FROM unnest('{done,permanent 402,transient,hand_back}'::text[]) w;
SELECT name, stale_replies FROM sas.agents WHERE stale_replies > 0;
SELECT * FROM t.show(2);
-- taken back by the supervisor, another worker has it: the first one's answer is stale, the second one's counts
SELECT t.settle(), t.later('10 s'), t.settle() \g /dev/null
SELECT t.claim('other');
SELECT t.answer('charge', 'done', '{"status": 200, "body": "of the first"}', holder => 'w');
SELECT * FROM t.show(2);
SELECT t.answer('charge', 'done', '{"status": 200, "body": "of the second"}', holder => 'other', keep => true);
SELECT state, output, attempt FROM sas.steps WHERE run_id = 2 AND step = 'charge';
-- twice the same: once
SELECT t.answer('charge', 'done', '{"status": 200, "body": "again"}', holder => 'other');
SELECT state, output, attempt FROM sas.steps WHERE run_id = 2 AND step = 'charge';
SELECT name, stale_replies FROM sas.agents WHERE stale_replies > 0;

-- a token that nobody was given
SELECT t.claim();
UPDATE t.held SET request_id = '00000000-0000-4000-8000-000000000000';
SELECT t.answer('ship');
SELECT name, stale_replies FROM sas.agents WHERE stale_replies > 0 ORDER BY 1;
SELECT * FROM t.show(2);

-- a fresh token in each claim, of the undo as well
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('call');
SELECT t.claim(); SELECT t.answer('charge');
SELECT t.claim(); SELECT t.answer('ship', 'permanent 400');
SELECT t.settle() \g /dev/null
SELECT t.claim();
SELECT t.later('1 min') \g /dev/null
SELECT t.answer('charge', 'done', keep => true);
SELECT state FROM sas.steps WHERE step = 'charge';
SELECT t.settle(), t.later('1 min'), t.settle() \g /dev/null
SELECT t.claim('other');
SELECT count(DISTINCT request_id) FROM t.held;
SELECT t.answer('charge', holder => 'w'), t.answer('charge', holder => 'other');
SELECT t.settle() \g /dev/null
SELECT * FROM t.show(1);
SELECT name, stale_replies FROM sas.agents WHERE stale_replies > 0 ORDER BY 1;

-- what a function worker asks before it calls: held, or lost
SELECT t.clean() \g /dev/null
SELECT t.workflow('local', '{"book": {"function": "t.echo", "complete_in": "5 s"}}') \g /dev/null
SELECT run_id FROM sas.submit('local');
SELECT t.claim();
SELECT _sas.claims_held(ARRAY[run_id], ARRAY[step_no], ARRAY[element], ARRAY[request_id]), _sas.claims_held(ARRAY[run_id], ARRAY[step_no], ARRAY[element], ARRAY[gen_random_uuid()]) FROM t.held;
SELECT t.later('5 s') \g /dev/null
SELECT _sas.claims_held(ARRAY[run_id], ARRAY[step_no], ARRAY[element], ARRAY[request_id]) FROM t.held;
SELECT t.answer('book');
SELECT state FROM sas.steps;

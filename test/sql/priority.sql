-- SPDX-License-Identifier: PostgreSQL
--
-- A17 Urgent work overtakes, and waiting makes urgent: a unit of priority is
-- worth sas.priority_step (an hour) of waiting, fixed when a step is ready.
SELECT t.clean() \g /dev/null
SELECT t.workflow('work', '{"a": {"agent": "inventory", "call": {}}}') \g /dev/null
CREATE FUNCTION t.next(n int) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM t.held;
    PERFORM t.claim('w', 1) FROM generate_series(1, n);
    RETURN (SELECT string_agg((SELECT r.labels ->> 'n' FROM sas.runs r WHERE r.run_id = h.run_id), ', ' ORDER BY h.n) FROM t.held h);
END $$;
-- larger first, then the older one
SELECT n FROM (VALUES (1, 'plain 1', 0), (2, 'urgent', 5), (3, 'low', -1), (4, 'plain 2', 0), (5, 'very urgent', 100)) AS x (o, n, p)
CROSS JOIN LATERAL (SELECT t.later('1 s') OFFSET 0) l
CROSS JOIN LATERAL sas.submit('work', labels => jsonb_build_object('n', n), priority => p) ORDER BY o;
SELECT t.next(5);
-- ageing: an hour of waiting is worth a unit
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('work', labels => '{"n": "waits for 61 min"}');
SELECT t.later('2 min') \g /dev/null
SELECT run_id FROM sas.submit('work', labels => '{"n": "waits for 59 min"}');
SELECT t.later('59 min') \g /dev/null
SELECT run_id FROM sas.submit('work', labels => '{"n": "priority 1"}', priority => 1);
SELECT t.next(3);
-- the priorities of run, workflow and step add up
SELECT t.clean() \g /dev/null
SELECT t.workflow('vip', '{"a": {"agent": "inventory", "call": {}, "priority": 2}}', '{"priority": 3}') \g /dev/null
SELECT run_id FROM sas.submit('work', labels => '{"n": "four"}', priority => 4);
SELECT run_id FROM sas.submit('vip', labels => '{"n": "five"}');
SELECT run_id FROM sas.submit('work', labels => '{"n": "six"}', priority => 6);
SELECT run_id, priority FROM sas.runs ORDER BY 1;
SELECT t.next(3);
-- each lane for itself: urgent work of one agent does not hold up another's
SELECT t.clean() \g /dev/null
SELECT t.workflow('elsewhere', '{"a": {"agent": "payments", "call": {}}}') \g /dev/null
SELECT run_id FROM sas.submit('work', labels => '{"n": "urgent"}', priority => 9);
SELECT run_id FROM sas.submit('elsewhere', labels => '{"n": "plain"}');
SELECT t.next(1);
-- a step that was given back queues up anew
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('work', labels => '{"n": "first"}');
SELECT t.later('1 s') \g /dev/null
SELECT run_id FROM sas.submit('work', labels => '{"n": "second"}');
SELECT t.next(1);
SELECT t.later('1 s') \g /dev/null
SELECT t.answer('a', 'hand_back', tries => 0);
SELECT t.next(2);
DROP FUNCTION t.next;

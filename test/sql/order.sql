-- SPDX-License-Identifier: PostgreSQL
--
-- Order: after and references; what depends on nothing runs at once.
SELECT t.clean() \g /dev/null
-- A4 in the order of the workflow, whatever the names; after a reference, too
SELECT t.workflow('chain', '{
    "z_first":  {"agent": "inventory", "call": {}},
    "m_second": {"agent": "inventory", "call": {"body": {"id": "{{steps.z_first.output.body.id}}"}}},
    "a_third":  {"agent": "payments", "call": {}, "after": ["m_second"]},
    "b_fourth": {"agent": "payments", "call": {"headers": {"X-Key": "{{steps.a_third.key}}"}}}}') \g /dev/null
SELECT run_id FROM sas.submit('chain');
SELECT t.claim();
SELECT * FROM t.show(1);
SELECT t.answer('z_first');
SELECT t.claim();
SELECT asked -> 'body' AS body FROM t.held;
SELECT t.answer('m_second');
SELECT t.claim();
SELECT t.answer('a_third');
SELECT t.claim();
-- a reference to a key gives the key of that step
SELECT asked #>> '{headers,X-Key}' = (SELECT idempotency_key FROM sas.steps WHERE step = 'a_third') AS same FROM t.held;
SELECT t.answer('b_fourth');
SELECT * FROM t.show(1);
SELECT * FROM t.left_over();

-- steps that wait for none are ready at once; a join waits for all of its own, and for no other
SELECT t.clean() \g /dev/null
SELECT t.workflow('net', '{
    "a": {"agent": "inventory", "call": {}}, "b": {"agent": "payments", "call": {}}, "c": {"function": "t.echo"}, "d": {"agent": "shipping", "call": {}},
    "ab": {"agent": "inventory", "call": {}, "after": ["a", "b"]},
    "abc": {"function": "t.echo", "after": ["ab", "c", "a"]},
    "from_a": {"agent": "inventory", "call": {}, "after": ["a", "a"]},
    "end": {"agent": "shipping", "call": {}, "after": ["abc", "from_a", "d"]}}') \g /dev/null
SELECT run_id FROM sas.submit('net');
SELECT t.claim();
SELECT t.answer('a');
SELECT t.claim();
SELECT * FROM t.show(1);
SELECT t.answer('d');
SELECT t.answer('b');
SELECT t.claim();
SELECT t.answer('ab'), t.answer('c'), t.answer('from_a');
SELECT t.claim();
SELECT t.answer('abc');
SELECT t.claim();
SELECT t.answer('end');
SELECT * FROM t.show(1);
SELECT * FROM t.left_over();

-- both last ones of a join in one batch of replies
SELECT t.clean() \g /dev/null
SELECT t.workflow('pair', '{"a": {"agent": "inventory", "call": {}}, "b": {"agent": "inventory", "call": {}}, "c": {"agent": "inventory", "call": {}, "after": ["a", "b"]}}') \g /dev/null
SELECT run_id FROM sas.submit('pair');
SELECT run_id FROM sas.submit('pair');
SELECT t.claim();
SELECT _sas.write_replies(ARRAY(SELECT ROW(h.run_id, h.step_no, 0, h.request_id, 'done', 1, '{"status": 200}', NULL, false, NULL, NULL)::_sas.call_reply FROM t.held h), ARRAY(SELECT lease_id FROM t.held));
DELETE FROM t.held;
SELECT t.claim();
SELECT t.answer('c', for_run => 2), t.answer('c', for_run => 1);
SELECT run_id, state, result FROM sas.runs ORDER BY 1;
SELECT * FROM t.left_over();

-- a hundred at once, then one
SELECT t.clean() \g /dev/null
SELECT t.workflow('fan', (SELECT jsonb_object_agg('s' || g, '{"agent": "inventory", "call": {}}'::jsonb) FROM generate_series(1, 100) g)
                         || jsonb_build_object('last', jsonb_build_object('function', 't.echo', 'after', (SELECT jsonb_agg('s' || g) FROM generate_series(1, 100) g)))) \g /dev/null
SELECT run_id FROM sas.submit('fan');
SELECT t.claim() \g /dev/null
SELECT count(*) FROM t.held;
SELECT t.answer('s' || g) FROM generate_series(1, 99) g \g /dev/null
SELECT t.claim();
SELECT t.answer('s100');
SELECT t.claim();
SELECT t.answer('last');
SELECT state, result, progress FROM sas.runs;
SELECT * FROM t.left_over();

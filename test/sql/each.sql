-- SPDX-License-Identifier: PostgreSQL
--
-- Each: a map over an array: every element is a step with a key, retries and an undo of its own.
SELECT t.clean() \g /dev/null
SELECT t.workflow('pack', '{
    "pack": {"agent": "inventory", "each": "{{input.items}}", "call": {"body": {"sku": "{{item.sku}}", "n": "{{index}}"}},
             "undo": {"call": {"method": "DELETE", "path": "/{{steps.pack.output.body.id}}/{{item.sku}}"}}, "output": {"got": "{{output.body.id}}", "sku": "{{item.sku}}"}},
    "pay": {"agent": "payments", "call": {"body": {"all": "{{steps.pack.output}}"}}}}') \g /dev/null
SELECT run_id FROM sas.submit('pack', '{"items": [{"sku": "x"}, {"sku": "y"}, {"sku": "z"}]}');
SELECT t.settle();
SELECT t.brief(1);
SELECT t.claim();
SELECT element, asked -> 'body' AS body, key = (SELECT idempotency_key FROM sas.steps s WHERE s.step = 'pack' AND s.element = h.element) AS own_key FROM t.held h ORDER BY element;
SELECT count(DISTINCT key) AS keys FROM t.held;
-- answers in any order; the output is in the order of the array
SELECT t.answer('pack', for_element => 3), t.answer('pack', for_element => 1);
SELECT t.brief(1);
SELECT t.answer('pack', for_element => 2);
SELECT t.brief(1);
SELECT output FROM sas.steps WHERE step = 'pack' AND element IS NULL;
SELECT t.work();
SELECT t.brief(1);
SELECT * FROM t.left_over();

-- one that fails for good: the elements that were done are undone, in reverse order of completion
SELECT run_id FROM sas.submit('pack', '{"items": [{"sku": "x"}, {"sku": "y"}, {"sku": "z"}]}');
SELECT t.work('{"pack[2]": "permanent 422"}');
SELECT t.brief(2);
SELECT error ->> 'instance' AS run, (SELECT error ->> 'instance' FROM sas.steps s WHERE s.run_id = 2 AND s.element = 2) AS element FROM sas.runs r WHERE run_id = 2;
SELECT element, output FROM sas.steps WHERE run_id = 2 AND state = 'compensated' ORDER BY 1;
-- the same when a later step fails
SELECT run_id FROM sas.submit('pack', '{"items": [{"sku": "x"}, {"sku": "y"}]}');
SELECT t.work('{"pay": "permanent 402"}');
SELECT t.brief(3);
-- nothing to do: an empty array
SELECT run_id FROM sas.submit('pack', '{"items": []}');
SELECT t.work();
SELECT t.brief(4), (SELECT output FROM sas.steps WHERE run_id = 4 AND step = 'pack');
-- no array: fails with path and kind
SELECT run_id FROM sas.submit('pack', '{"items": {"sku": "x"}}'), t.work();
SELECT t.work();
SELECT t.brief(5);
SELECT error FROM sas.steps WHERE run_id = 5 AND step = 'pack';
SELECT run_id FROM sas.submit('pack', '{}');
SELECT t.work();
SELECT error ->> 'detail' AS detail FROM sas.steps WHERE run_id = 6 AND step = 'pack';

-- a failed element is retried alone
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('pack', '{"items": [{"sku": "x"}, {"sku": "y"}]}');
SELECT t.work('{"pack[1]": "transient 503"}');
SELECT t.brief(1);
SELECT t.later('1 min');
SELECT t.work();
SELECT element, attempt, failure_count FROM sas.steps WHERE step = 'pack' ORDER BY element NULLS FIRST;
SELECT t.brief(1);

-- concurrency: no more than so many on their way at once
SELECT t.clean() \g /dev/null
SELECT t.workflow('narrow', '{"a": {"function": "t.echo", "input": {"i": "{{item}}"}, "each": "{{input.items}}", "concurrency": 2}}') \g /dev/null
SELECT run_id FROM sas.submit('narrow', '{"items": [1, 2, 3, 4, 5]}');
SELECT t.settle();
SELECT t.claim();
SELECT t.claim('w2');
SELECT t.answer('a', output => '"1"');
SELECT t.claim('w2');
-- paused: nothing new begins; what is on its way is counted; resume goes on
SELECT changed FROM sas.pause(1);
SELECT t.answer('a', output => '"2"'), t.answer('a', output => '"3"');
SELECT t.settle(), t.claim();
SELECT changed FROM sas.resume(1);
SELECT t.work();
SELECT t.brief(1), (SELECT output FROM sas.steps WHERE step = 'a' AND element IS NULL);

-- on_failure skip acts per element: null in the array, result warning
SELECT t.workflow('lenient', '{"a": {"function": "t.echo", "input": {"i": "{{item}}"}, "each": "{{input.items}}", "on_failure": "skip"}, "b": {"function": "t.echo", "input": "{{steps.a.output}}"}}') \g /dev/null
SELECT run_id FROM sas.submit('lenient', '{"items": [1, 2, 3]}');
SELECT t.work('{"a[2]": "permanent"}');
SELECT t.brief(2), (SELECT output FROM sas.steps WHERE run_id = 2 AND step = 'b');

-- max_failed: so many may fail; one more and the run cannot go on
SELECT t.workflow('some', '{"a": {"function": "t.echo", "input": {"i": "{{item}}"}, "each": "{{input.items}}", "max_failed": 1}}') \g /dev/null
SELECT run_id FROM sas.submit('some', '{"items": [1, 2, 3]}');
SELECT t.work('{"a[2]": "permanent"}');
SELECT t.brief(3);
SELECT run_id FROM sas.submit('some', '{"items": [1, 2, 3]}');
SELECT t.work('{"a[2]": "permanent", "a[1]": "permanent"}');
SELECT t.brief(4);
-- undone in the middle: what is on its way is left to end
SELECT run_id FROM sas.submit('narrow', '{"items": [1, 2, 3, 4, 5]}');
SELECT t.settle();
SELECT t.claim();
SELECT changed FROM sas.compensate(5);
SELECT t.answer('a'), t.answer('a', 'permanent');
SELECT t.work();
SELECT t.brief(5);
SELECT * FROM t.left_over();

-- waits and children in a map: a signal each
SELECT t.workflow('votes', '{"vote": {"wait": {"signal": "vote"}, "each": "{{input.who}}"}}') \g /dev/null
SELECT run_id FROM sas.submit('votes', '{"who": ["ann", "bob"]}');
SELECT t.settle();
SELECT sas.signal(6, 'vote', '"yes"');
SELECT t.settle();
SELECT t.brief(6);
SELECT sas.signal(6, 'vote', '"no"');
SELECT t.settle();
SELECT t.brief(6), (SELECT output FROM sas.steps WHERE run_id = 6 AND element IS NULL);
SELECT * FROM t.left_over();

-- elements begin in their order, also where a tick takes some of them and their rows lie the other way round: so the
-- signals that came before go to them in order
SELECT t.workflow('votes', '{"vote": {"wait": {"signal": "vote"}, "each": "{{input.who}}"}}') \g /dev/null
SELECT run_id AS run FROM sas.submit('votes', '{"who": [1, 2, 3, 4]}') \gset
SELECT sas.signal(:run, 'vote', to_jsonb(n)) FROM generate_series(1, 4) n \g /dev/null
SELECT t.schedule() \g /dev/null
SELECT count(*) AS elements_to_begin FROM _sas.message WHERE run_id = :run AND kind = 'enter' AND element > 0;
WITH gone AS (DELETE FROM _sas.message WHERE run_id = :run AND kind = 'enter' RETURNING *)
INSERT INTO _sas.message SELECT * FROM gone ORDER BY element DESC;
SELECT worked FROM generate_series(1, 4) n, LATERAL _sas.scheduler_tick(1 + 0 * n);
SELECT t.settle() \g /dev/null
SELECT s.output AS in_order FROM sas.steps s WHERE s.run_id = :run AND s.element IS NULL;

-- many elements begin a thousand at a time, in one tick after the other, also where all of them may run at once; those
-- with keys, when all of them are written
SELECT t.workflow('wide', '{"a": {"wait": {"signal": "go"}, "each": "{{input.items}}", "concurrency": 1000000}, "b": {"wait": {"signal": "go"}, "each": "{{input.items}}", "concurrency": {"limit": 1000000, "key": "{{index}}"}}}') \g /dev/null
SELECT run_id AS run FROM sas.submit('wide', jsonb_build_object('items', (SELECT jsonb_agg(n) FROM generate_series(1, 2500) n))) \gset
CREATE FUNCTION t.begun(run bigint) RETURNS TABLE (worked boolean, begun int[], go_on bigint) LANGUAGE plpgsql AS $$
BEGIN
    worked := (SELECT x.worked > 0 FROM _sas.scheduler_tick(10000) x);
    begun := ARRAY(SELECT f.fed FROM _sas.map_progress f WHERE f.run_id = run ORDER BY f.step_no);
    go_on := (SELECT count(*) FROM _sas.message m WHERE m.run_id = run AND m.kind = 'room');
    RETURN NEXT;
END $$;
SELECT * FROM t.begun(:run);
SELECT * FROM t.begun(:run);
-- paused meanwhile
SELECT changed FROM sas.pause(:run);
SELECT * FROM t.begun(:run);
SELECT * FROM t.begun(:run);
SELECT changed FROM sas.resume(:run);
SELECT * FROM t.begun(:run);
SELECT t.settle();
SELECT step, count(*) FROM sas.steps WHERE run_id = :run AND state = 'suspended' AND element IS NOT NULL GROUP BY 1 ORDER BY 1;
SELECT changed FROM sas.cancel(:run);
-- more than can be
SELECT run_id AS run FROM sas.submit('wide', jsonb_build_object('items', (SELECT jsonb_agg(NULL::text) FROM generate_series(1, 100001) n))) \gset
SELECT t.settle();
SELECT step, state, error ->> 'title' AS title FROM sas.steps WHERE run_id = :run ORDER BY step;
SELECT changed FROM sas.cancel(:run);
SELECT t.settle();
SELECT * FROM t.left_over();

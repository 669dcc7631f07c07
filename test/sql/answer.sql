-- SPDX-License-Identifier: PostgreSQL
--
-- Answers: the reply to a run that somebody holds is a row. It ends the claim, and counts when the run is
-- free, whatever has become of the run until then.
SELECT t.clean() \g /dev/null
SELECT t.workflow('two', '{"f": {"function": "t.echo", "complete_in": "20 s", "undo": {"function": "t.echo"}},
                           "c": {"agent": "payments", "call": {}, "complete_in": "20 s", "undo": {"call": {}}},
                           "g": {"function": "t.echo", "after": ["f", "c"]}}') \g /dev/null

-- t.leave(step, what): the same as t.answer, of a run that somebody holds
CREATE FUNCTION t.leave(step text, what text DEFAULT 'done', for_run bigint DEFAULT NULL) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    h t.held;
    left_over record;
BEGIN
    SELECT * INTO STRICT h FROM t.held WHERE held.step = $1 AND (for_run IS NULL OR held.run_id = for_run) LIMIT 1;
    DELETE FROM t.held WHERE n = h.n;
    left_over := _sas.leave_answers(ARRAY[_sas.make_call_reply(
        h.run_id, h.step_no, h.element, h.request_id, what, output => CASE what WHEN 'done' THEN '{"status": 200}'::jsonb END,
        error => CASE WHEN what <> 'done' THEN '{"title": "no"}'::jsonb END)], sas.now());
    PERFORM _sas.end_leases(ARRAY[h.lease_id], left_over.run_ids, left_over.step_nos, left_over.elements);
    RETURN CASE WHEN left_over.lost = '{}' THEN 'left' ELSE 'lost' END;
END $$;

-- it is not taken back when its time is over, and counts then; the next reply of its run applies it, too
SELECT run_id FROM sas.submit('two');
SELECT t.claim();
SELECT t.later('19 s') \g /dev/null
SELECT t.leave('f');
SELECT step, state, locked_by IS NOT NULL AS held FROM sas.steps WHERE run_id = 1 AND step <> 'g' ORDER BY 1;
SELECT t.answer('c');
SELECT t.brief(1);
SELECT t.work();
SELECT run_id FROM sas.submit('two');
SELECT t.claim();
SELECT t.later('19.9 s') \g /dev/null
SELECT t.leave('c'), t.leave('f', 'transient');
SELECT t.later('1 min'), t.supervise() \g /dev/null
SELECT t.brief(2);
SELECT t.schedule() > 0 AS applied;
SELECT t.brief(2);
SELECT step, attempt, failure_count FROM sas.steps WHERE run_id = 2 AND step = 'f';
SELECT t.settle(), t.later('1 min'), t.work() \g /dev/null
SELECT t.brief(2);

-- one that comes too late, or from a claim that was taken back, is none
SELECT run_id FROM sas.submit('two');
SELECT t.claim();
SELECT t.later('20 s') \g /dev/null
SELECT t.leave('c'), t.leave('f');
SELECT count(*) FROM _sas.answer;
SELECT t.supervise(), t.settle() \g /dev/null
SELECT t.later('1 min'), t.work() \g /dev/null
SELECT t.brief(3);

-- what was done before its claim was revoked is done: cancel undoes it, halt lets it stand
SELECT count(*) FROM sas.submit_batch('two', array_fill('{}'::jsonb, ARRAY[4]));
SELECT t.claim();
SELECT t.answer('c', for_run => r) FROM generate_series(4, 7) r;
SELECT t.leave('f', for_run => 4), t.leave('f', for_run => 5);
SELECT changed FROM sas.cancel_runs('{4,6}') UNION ALL SELECT changed FROM sas.halt_runs('{5,7}');
SELECT t.settle() \g /dev/null
SELECT t.brief(r) FROM generate_series(4, 7) r;
SELECT t.answer('f', for_run => 6), t.answer('f', for_run => 7);
SELECT t.work();
SELECT t.brief(r) FROM generate_series(4, 7) r;

-- a verb finds what has arrived; a function that fails in a run that is halted, or gives its claim back, is revoked
SELECT count(*) FROM sas.submit_batch('two', array_fill('{}'::jsonb, ARRAY[2]));
SELECT t.claim();
SELECT t.leave('c', 'permanent', for_run => 8), t.leave('c', for_run => 9);
SELECT changed FROM sas.halt_runs('{8,9}');
SELECT t.brief(r) FROM generate_series(8, 9) r;
SELECT t.leave('f', 'transient', for_run => 8), t.leave('f', 'hand_back', for_run => 9);
SELECT t.settle() \g /dev/null
SELECT t.brief(r) FROM generate_series(8, 9) r;

-- a halted run is undone after all, while its function is not stopped yet
SELECT run_id FROM sas.submit('two');
SELECT t.claim();
SELECT t.answer('c', for_run => 10);
SELECT changed FROM sas.halt(10);
SELECT changed FROM sas.compensate(10);
SELECT t.brief(10);
SELECT t.answer('f', for_run => 10);
SELECT t.work();
SELECT t.brief(10);

-- in the order in which they came
SELECT run_id FROM sas.submit('two');
SELECT t.claim();
SELECT t.leave('f', for_run => 11);
SELECT t.later('1 s') \g /dev/null
SELECT t.leave('c', for_run => 11);
SELECT t.work('{"g": "permanent"}');
SELECT t.brief(11);
DELETE FROM t.held;
-- the lease of revoked claims goes with its worker, or at its end
SELECT t.work(), t.later('1 min'), t.work() \g /dev/null
SELECT * FROM t.left_over();
DROP FUNCTION t.leave;

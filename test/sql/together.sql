-- SPDX-License-Identifier: PostgreSQL
--
-- A message about several elements: children of a map that begin together, or that have ended together. It
-- counts as so many messages, and is as good as one for each.
\set SHOW_CONTEXT never
SELECT t.clean() \g /dev/null
SELECT t.workflow('child', '{"a": {"agent": "inventory", "call": {}}}') \g /dev/null
SELECT t.workflow('parent', '{"all": {"workflow": "child", "each": "{{input.items}}", "input": {"n": "{{item}}"}}}') \g /dev/null
-- t.waiting(): the messages to the scheduler that are not carried out yet
CREATE FUNCTION t.waiting() RETURNS TABLE (run_id bigint, kind text, element int, together int[]) LANGUAGE sql AS $$
    SELECT d.run_id, d.kind, d.element, d.together FROM _sas.message d WHERE d.actor = 's' ORDER BY 1, 2, 3
$$;
-- t.take(n): what the next tick takes; and what it leaves
CREATE FUNCTION t.take(n int) RETURNS TABLE (owner text, run_id bigint, kind text, elements int[]) LANGUAGE sql AS $$
    SELECT d.owner::text, d.run_id, d.kind, array_agg(d.element) FROM _sas.take_messages('s', $1) d GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
$$;
-- t.children(): the child runs of the run, by the element
CREATE FUNCTION t.children() RETURNS TABLE (element int, state text) LANGUAGE sql AS $$
    SELECT r.parent_element, r.state FROM _sas.run r WHERE r.parent_run_id = 1 ORDER BY 1
$$;

\echo children that begin together have one message
SELECT run_id FROM sas.submit('parent', '{"items": [1, 2, 3, 4, 5]}');
SELECT worked FROM _sas.scheduler_tick(10);
SELECT * FROM t.waiting();
\echo a tick takes no more elements than it may take messages, in their order; the others wait
SELECT worked FROM _sas.scheduler_tick(2);
SELECT * FROM t.waiting();
SELECT * FROM t.children();
SELECT worked FROM _sas.scheduler_tick(1);
SELECT worked FROM _sas.scheduler_tick(2);
SELECT * FROM t.waiting();
SELECT * FROM t.children();

SELECT t.work() \g /dev/null
SELECT t.brief(1);
SELECT * FROM t.left_over();

\echo so do children that have ended together
SELECT t.clean() \g /dev/null
SELECT t.workflow('empty', '{}'), t.workflow('short', '{"all": {"workflow": "empty", "each": "{{input.items}}"}}') \g /dev/null
SELECT run_id FROM sas.submit('short', '{"items": [1, 2, 3, 4, 5]}');
SELECT worked FROM _sas.scheduler_tick(1);
SELECT worked FROM _sas.scheduler_tick(5);
SELECT * FROM t.waiting();
SELECT worked FROM _sas.scheduler_tick(3);
SELECT * FROM t.waiting();
SELECT element, state FROM _sas.step WHERE run_id = 1 ORDER BY 1;
SELECT t.settle() \g /dev/null
SELECT t.brief(1);
SELECT * FROM t.left_over();

\echo two owners have equal shares, whoever has written fewer messages
SELECT t.clean() \g /dev/null
CREATE ROLE sas_test_together;
SELECT run_id FROM sas.submit('parent', '{"items": [1, 2, 3, 4, 5]}');
SELECT worked FROM _sas.scheduler_tick(10);
INSERT INTO _sas.message (actor, due_at, run_id, kind, owner) SELECT 's', sas.now(), 100 + g, 'start', 'sas_test_together' FROM generate_series(1, 4) g;
BEGIN;
SELECT replace(owner, current_user, 'this role') AS owner, count(*), sum(cardinality(elements)), min(elements) FROM t.take(6) GROUP BY 1 ORDER BY 1;
SELECT * FROM t.waiting();
ROLLBACK;
DELETE FROM _sas.message WHERE owner = 'sas_test_together'::regrole;
DROP ROLE sas_test_together;

\echo an element that cannot begin holds up no other
CREATE FUNCTION t.break() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.parent_element = 3 THEN
        RAISE EXCEPTION 'the third is broken' USING ERRCODE = '53400';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER break BEFORE INSERT ON _sas.run FOR EACH ROW EXECUTE FUNCTION t.break();
SELECT t.settle() \g /dev/null
SELECT * FROM t.children();
SELECT * FROM t.waiting();
SELECT kind, message FROM t.alerts();
DROP TRIGGER break ON _sas.run;
SELECT t.later('1 min'), t.settle() \g /dev/null
SELECT * FROM t.children();

\echo a pause that revokes the end of the run before they have begun: each begins once
SELECT t.clean() \g /dev/null
SELECT t.workflow('both', '{"all": {"workflow": "child", "each": "{{input.items}}", "input": {"n": "{{item}}"}}, "bad": {"agent": "payments", "call": {}}}') \g /dev/null
SELECT run_id FROM sas.submit('both', '{"items": [1, 2, 3]}');
SELECT worked FROM _sas.scheduler_tick(1);
SELECT worked FROM _sas.scheduler_tick(1);
SELECT * FROM t.waiting();
SELECT t.claim() \g /dev/null
SELECT t.answer('bad', 'permanent 400'), t.supervise() \g /dev/null
SELECT t.brief(1);
SELECT changed, state FROM sas.pause(1);
SELECT * FROM t.waiting();
SELECT changed, state FROM sas.resume(1);
SELECT t.work() \g /dev/null
SELECT t.brief(1);
SELECT * FROM t.children();
SELECT * FROM t.left_over();

SELECT sas.drop_workflow(w) FROM unnest('{parent,both,short,child,empty}'::text[]) w \g /dev/null
DROP FUNCTION t.waiting, t.take, t.children, t.break;

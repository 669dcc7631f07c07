-- SPDX-License-Identifier: PostgreSQL
--
-- Children: a step of kind workflow is a run of its own.
SELECT t.clean() \g /dev/null
SELECT t.workflow('shipping', '{
    "pick": {"agent": "inventory", "call": {"body": "{{input}}"}, "undo": {"call": {"method": "DELETE"}}},
    "send": {"agent": "shipping", "call": {}, "after": ["pick"], "undo": {"call": {"method": "DELETE"}}}}', '{"output": {"parcel": "{{steps.send.output.body.id}}"}}') \g /dev/null
SELECT t.workflow('order', '{
    "ship": {"workflow": "shipping", "input": {"order": "{{input.n}}"}},
    "pay": {"agent": "payments", "call": {"body": {"parcel": "{{steps.ship.output.parcel}}"}}}}') \g /dev/null
-- SP1 the parent waits, the child knows its parent, its output is the step's
SELECT run_id FROM sas.submit('order', '{"n": 7}', labels => '{"tenant": "a"}');
SELECT t.settle();
SELECT * FROM t.show(1);
SELECT run_id, workflow, parent_run_id, input, labels FROM sas.runs ORDER BY 1;
SELECT t.work();
SELECT t.brief(1), t.brief(2);
SELECT output FROM sas.steps WHERE run_id = 1 AND step = 'ship';
SELECT * FROM t.left_over();
-- SP3 a child that fails is a permanent failure of the step
SELECT run_id FROM sas.submit('order', '{"n": 8}');
SELECT t.work('{"send": "permanent 422"}');
SELECT t.brief(3), t.brief(4);
SELECT error ->> 'title' AS title, error ->> 'detail' AS detail FROM sas.steps WHERE run_id = 3 AND step = 'ship';
-- a parent that cannot go on: what its child did is undone by the child, too
SELECT run_id FROM sas.submit('order', '{"n": 9}');
SELECT t.work('{"pay": "permanent 402"}');
SELECT t.brief(5), t.brief(6);
SELECT result, error ->> 'title' AS title FROM sas.runs WHERE run_id = 6;
SELECT * FROM t.left_over();
-- SP5 cancel reaches the child, and the parent waits for its undo
SELECT run_id FROM sas.submit('order', '{"n": 10}');
SELECT t.settle(), t.claim();
SELECT t.answer('pick');
SELECT changed, state FROM sas.cancel(7);
SELECT t.brief(7), t.brief(8);
SELECT t.work();
SELECT t.brief(7), t.brief(8);
-- SP4 a child that failed, and a parent that is paused for it: resume submits another child
SELECT t.workflow('careful', '{"ship": {"workflow": "shipping", "on_failure": "pause"}}') \g /dev/null
SELECT run_id FROM sas.submit('careful');
SELECT t.work('{"pick": "permanent 422"}');
SELECT t.brief(9), t.brief(10);
SELECT changed FROM sas.resume(9);
SELECT t.work();
SELECT t.brief(9), t.brief(11);
SELECT * FROM t.left_over();

-- a child that has done its work, but is not what was expected: it is undone
SELECT t.clean() \g /dev/null
SELECT t.workflow('strict', '{"ship": {"workflow": "shipping", "input": {"order": 1}, "expect": "$.output.parcel == 0"}}') \g /dev/null
SELECT t.workflow('strict_map', '{"ships": {"workflow": "shipping", "input": {"order": "{{item}}"}, "each": "{{input.ids}}", "expect": "$.output.parcel == 0"}}') \g /dev/null
SELECT run_id FROM sas.submit('strict');
SELECT t.work();
SELECT t.brief(1), t.brief(2);
SELECT run_id FROM sas.submit('strict_map', '{"ids": [1, 2]}');
SELECT t.work();
SELECT t.brief(3), t.brief(4), t.brief(5);
SELECT * FROM t.left_over();
-- its undo reads its output; a fallback begins after it was undone, also where there was nothing to undo
SELECT t.workflow('f1', '{"ship": {"workflow": "shipping", "input": {"order": 1}, "expect": "$.output.parcel == 0", "undo": {"agent": "payments", "call": {"path": "/{{steps.ship.output.parcel}}"}}}}') \g /dev/null
SELECT t.workflow('f2', '{"ship": {"workflow": "shipping", "input": {"order": 1}, "expect": "$.output.parcel == 0", "fallback": {"agent": "payments", "call": {}}}}') \g /dev/null
SELECT t.workflow('bare', '{"send": {"agent": "shipping", "call": {}}}', '{"output": {"parcel": "{{steps.send.output.body.id}}"}}') \g /dev/null
SELECT t.workflow('f3', '{"ship": {"workflow": "bare", "expect": "$.output.parcel == 0", "fallback": {"agent": "payments", "call": {}}}}') \g /dev/null
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('f1');
SELECT t.work();
SELECT t.brief(1), t.brief(2);
SELECT run_id FROM sas.submit('f2');
SELECT t.work();
SELECT t.brief(3), t.brief(4);
SELECT run_id FROM sas.submit('f3');
SELECT t.work();
SELECT t.brief(5), t.brief(6);
SELECT * FROM t.left_over();
-- an operator tries it again: both children are undone
SELECT t.workflow('strict_again', '{"ship": {"workflow": "shipping", "input": {"order": 1}, "expect": "$.output.parcel == 0", "on_failure": "pause"}}') \g /dev/null
SELECT run_id FROM sas.submit('strict_again');
SELECT t.work();
SELECT changed FROM sas.resume(7);
SELECT t.work();
SELECT changed FROM sas.cancel(7);
SELECT t.work();
SELECT t.brief(7), t.brief(8), t.brief(9);
SELECT * FROM t.left_over();
-- cancelled while the second child is at work: it undoes itself, and the first one is undone
SELECT run_id AS run FROM sas.submit('strict_again') \gset
SELECT t.work();
SELECT changed FROM sas.resume(:run);
SELECT t.claim() FROM t.settle();
SELECT changed FROM sas.cancel(:run);
SELECT t.work();
SELECT t.brief(:run), t.brief(:run + 1), t.brief(:run + 2);
SELECT * FROM t.left_over();
SELECT sas.drop_workflow(w) FROM unnest('{strict,strict_map,strict_again,f1,f2,f3,bare}'::text[]) w \g /dev/null

-- SP7 many children, so many at a time, one with a bad input
SELECT t.clean() \g /dev/null
SELECT t.workflow('all', '{"each": {"workflow": "shipping", "input": "{{item}}", "each": "{{input.orders}}", "concurrency": 2, "on_failure": "skip"}}') \g /dev/null
SELECT run_id FROM sas.submit('all', '{"orders": [{"n": 1}, 5, {"n": 3}, {"n": 4}]}');
SELECT t.settle();
SELECT t.brief(1);
SELECT count(*) AS children FROM sas.runs WHERE parent_run_id = 1;
SELECT t.work();
SELECT t.brief(1);
SELECT error ->> 'title' AS title, error ->> 'detail' AS detail FROM sas.steps WHERE run_id = 1 AND element = 2;
SELECT count(*) AS children FROM sas.runs WHERE parent_run_id = 1;
-- a workflow that is gone: it can be dropped once no current version refers to it, and an older one finds it no more, whoever has its name
\set VERBOSITY terse
SELECT sas.drop_workflow('shipping');
\set VERBOSITY default
SELECT t.clean() \g /dev/null
SELECT version AS older FROM sas.workflows WHERE workflow = 'all' \gset
SELECT t.workflow(w, '{}') FROM unnest('{all,careful,order}'::text[]) w \g /dev/null
SELECT sas.drop_workflow('shipping');
SELECT t.workflow('shipping', '{"mine": {"agent": "shipping", "call": {}}}');
SELECT run_id FROM sas.submit('all', '{"orders": [{"n": 1}]}', version => :older);
SELECT t.work();
SELECT error ->> 'detail' AS detail FROM sas.steps WHERE run_id = (SELECT max(run_id) FROM sas.runs) AND element = 1;
SELECT * FROM t.left_over();
SELECT t.clean(), sas.drop_workflow('shipping') \g /dev/null
-- three levels; the deadline of the outermost bounds all
SELECT t.workflow('leaf', '{"a": {"wait": {"signal": "never"}}}') \g /dev/null
SELECT t.workflow('branch', '{"b": {"workflow": "leaf"}}') \g /dev/null
SELECT t.workflow('trunk', '{"c": {"workflow": "branch"}}', '{"deadline": "1 hour"}') \g /dev/null
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('trunk');
SELECT t.settle();
SELECT run_id, parent_run_id, t.at(deadline) FROM sas.runs ORDER BY 1;
SELECT t.later('1 hour');
SELECT t.work();
SELECT t.brief(1), t.brief(2), t.brief(3);
SELECT * FROM t.left_over();
SELECT t.clean(), sas.drop_workflow('trunk'), sas.drop_workflow('branch') \g /dev/null
\echo the run at the top of a tree
SELECT t.clean() \g /dev/null
SELECT t.workflow('leaf', '{"w": {"wait": {"signal": "go"}}}') \g /dev/null
SELECT t.workflow('branch', '{"l": {"workflow": "leaf"}, "m": {"workflow": "leaf"}}') \g /dev/null
SELECT t.workflow('tree', '{"b": {"workflow": "branch"}}') \g /dev/null
SELECT run_id FROM sas.submit('tree') \gset
SELECT t.settle() \g /dev/null
SELECT workflow, run_id, parent_run_id, root_run_id FROM sas.runs ORDER BY run_id;
SELECT FROM sas.cancel(:run_id);
SELECT t.work() \g /dev/null
SELECT t.clean(), sas.drop_workflow('tree'), sas.drop_workflow('branch'), sas.drop_workflow('leaf') \g /dev/null
\echo a child with nothing to undo keeps its result when its parent is undone
SELECT t.clean() \g /dev/null
SELECT t.workflow('kid1', '{"a": {"agent": "inventory", "call": {}}}') \g /dev/null
SELECT t.workflow('kid2', '{"a": {"agent": "inventory", "call": {}, "undo": {"call": {}}}}') \g /dev/null
SELECT t.workflow('par', '{"c": {"workflow": "kid1"}, "d": {"workflow": "kid2"}, "w": {"wait": {"signal": "go"}, "after": ["c", "d"]}}') \g /dev/null
SELECT run_id FROM sas.submit('par') \gset
SELECT t.work();
SELECT state FROM sas.cancel(:run_id);
SELECT t.work();
SELECT workflow, state, result, error ->> 'title' AS why FROM sas.runs ORDER BY run_id;
SELECT step, state FROM sas.steps WHERE run_id = :run_id ORDER BY position;
SELECT * FROM t.left_over();
\echo a resume reaches the children that are paused
SELECT run_id FROM sas.submit('par') \gset
SELECT t.settle() \g /dev/null
SELECT p.state FROM sas.runs r, sas.pause(r.run_id) p WHERE r.workflow = 'kid1' AND r.parent_run_id = :run_id;
SELECT t.work();
SELECT workflow, state, result FROM sas.runs WHERE root_run_id = :run_id ORDER BY run_id;
SELECT changed, state, refused FROM sas.resume(:run_id);
SELECT changed, state, refused FROM sas.resume(:run_id);
SELECT t.work();
SELECT workflow, state, result FROM sas.runs WHERE root_run_id = :run_id ORDER BY run_id;
SELECT sas.signal(:run_id, 'go'); SELECT t.work();
SELECT * FROM t.left_over();
\echo it counts as nothing that was undone: such a parent that fails ends as one that has done nothing else
SELECT t.clean() \g /dev/null
SELECT t.workflow('above', '{"k": {"workflow": "kid1"}}') \g /dev/null
SELECT t.workflow('bare', '{"k": {"workflow": "kid1"}, "m": {"workflow": "above"}, "n": {"workflow": "kid1", "each": "{{input.l}}"}, "z": {"agent": "payments", "call": {}, "after": ["k", "m", "n"]}}') \g /dev/null
SELECT run_id FROM sas.submit('bare', '{"l": [1, 2]}') \gset
SELECT t.work('{"z": "permanent 400"}');
SELECT workflow, state, result FROM sas.runs WHERE root_run_id = :run_id ORDER BY run_id;
SELECT changed, replace(refused, :'run_id', 'N') AS refused FROM sas.compensate(:run_id);
\echo where one child of several is undone, the others keep theirs
SELECT t.workflow('both', '{"k": {"workflow": "above"}, "l": {"workflow": "kid2"}, "z": {"agent": "payments", "call": {}, "after": ["k", "l"]}}') \g /dev/null
SELECT run_id FROM sas.submit('both') \gset
SELECT t.work('{"z": "permanent 400"}');
SELECT workflow, state, result FROM sas.runs WHERE root_run_id = :run_id ORDER BY run_id;
SELECT * FROM t.left_over();
\echo of several that a step had, the last one counts
SELECT t.workflow('again', '{"k": {"workflow": "kid2", "expect": "$.output.n == 2", "on_failure": "pause"}, "z": {"agent": "payments", "call": {}, "after": ["k"]}}') \g /dev/null
SELECT run_id FROM sas.submit('again') \gset
SELECT t.work() \g /dev/null
SELECT changed FROM sas.retry(:run_id);
SELECT t.work() \g /dev/null
SELECT changed FROM sas.force_complete(:run_id, 'k', '{"n": 2}');
SELECT t.work('{"z": "permanent 400"}') \g /dev/null
SELECT workflow, state, result FROM sas.runs WHERE root_run_id = :run_id ORDER BY run_id;
SELECT t.clean(), sas.drop_workflow('again'), sas.drop_workflow('both'), sas.drop_workflow('bare'), sas.drop_workflow('above') \g /dev/null
\echo a retry reaches what has failed in the runs below
SELECT t.workflow('fails', '{"a": {"agent": "inventory", "call": {}, "on_failure": "pause"}, "b": {"agent": "inventory", "call": {}}}') \g /dev/null
SELECT t.workflow('above', '{"k": {"workflow": "fails"}}') \g /dev/null
SELECT t.workflow('top', '{"m": {"workflow": "above"}, "z": {"agent": "payments", "call": {}, "on_failure": "pause"}}') \g /dev/null
SELECT run_id FROM sas.submit('top') \gset
SELECT t.settle() \g /dev/null
SELECT run_id AS deep FROM sas.runs WHERE root_run_id = :run_id AND workflow = 'fails' \gset
SELECT t.claim(), t.answer('a', 'permanent 400', for_run => :deep), t.answer('b', for_run => :deep) \g /dev/null
SELECT t.settle() \g /dev/null
SELECT workflow, state FROM sas.runs WHERE root_run_id = :run_id ORDER BY run_id;
SELECT run_id = :deep AS below, step, changed, state, refused FROM sas.retry_runs(ARRAY[:run_id, :deep]);
SELECT run_id = :run_id AS itself, step, changed, replace(refused, :'run_id', 'N') AS refused FROM sas.retry(:run_id);
SELECT t.work('{"a": "permanent 400", "z": "permanent 400"}') \g /dev/null
SELECT act, step, run_id = :deep AS below, count(*) FROM sas.history WHERE act = 'retry' GROUP BY 1, 2, 3;
\echo with what has failed in the run itself
SELECT workflow, state FROM sas.runs WHERE root_run_id = :run_id ORDER BY run_id;
SELECT run_id = :deep AS below, step, changed, state, refused FROM sas.retry(:run_id);
SELECT t.work() \g /dev/null
SELECT workflow, state, result FROM sas.runs WHERE root_run_id = :run_id ORDER BY run_id;
\echo none below a run that is paused for something else
SELECT run_id FROM sas.submit('top') \gset
SELECT t.settle() \g /dev/null
SELECT t.work('{"a": "permanent 400"}') \g /dev/null
SELECT changed FROM sas.pause(:run_id);
SELECT changed, replace(refused, :'run_id', 'N') AS refused FROM sas.retry(:run_id);
SELECT changed FROM sas.cancel(:run_id);
SELECT t.work() \g /dev/null
SELECT t.clean(), sas.drop_workflow('top'), sas.drop_workflow('above'), sas.drop_workflow('fails') \g /dev/null
SELECT t.clean(), sas.drop_workflow('par'), sas.drop_workflow('kid1'), sas.drop_workflow('kid2') \g /dev/null
\echo a pause reaches the runs below, and resume all that are paused
SELECT t.workflow('leaf', '{"a": {"agent": "inventory", "call": {}, "undo": {"call": {}}}}') \g /dev/null
SELECT t.workflow('branch', '{"l": {"workflow": "leaf"}, "w": {"wait": {"signal": "go"}}}') \g /dev/null
SELECT t.workflow('tree', '{"b": {"workflow": "branch"}, "c": {"workflow": "leaf"}, "d": {"agent": "payments", "call": {}}}') \g /dev/null
SELECT run_id FROM sas.submit('tree') \gset
SELECT t.settle() \g /dev/null
SELECT run_id AS branch_id FROM sas.runs WHERE workflow = 'branch' \gset
SELECT run_id, step, changed, state, refused FROM sas.pause(:run_id);
SELECT workflow, state, paused_for FROM sas.runs WHERE root_run_id = :run_id ORDER BY run_id;
SELECT t.claim(), t.work();
SELECT act, count(*) FROM sas.history WHERE run_id IN (SELECT run_id FROM sas.runs WHERE root_run_id = :run_id) AND act = 'pause' GROUP BY 1;
\echo one below goes on by itself; the next pause of the run above reaches it again
SELECT changed, state FROM sas.resume(:branch_id);
SELECT workflow, state FROM sas.runs WHERE root_run_id = :run_id ORDER BY run_id;
SELECT changed, state, refused FROM sas.pause(:run_id);
SELECT changed, state, refused FROM sas.pause(:run_id);
SELECT workflow, state FROM sas.runs WHERE root_run_id = :run_id ORDER BY run_id;
SELECT changed, state FROM sas.resume(:run_id);
SELECT t.work();
SELECT sas.signal(:run_id, 'go'); SELECT t.work();
SELECT workflow, state, result FROM sas.runs WHERE root_run_id = :run_id ORDER BY run_id;
\echo while it is undone, too
SELECT run_id FROM sas.submit('tree') \gset
SELECT t.work() \g /dev/null
SELECT FROM sas.cancel(:run_id);
SELECT t.settle() \g /dev/null
SELECT changed, state FROM sas.pause(:run_id);
SELECT workflow, state, result FROM sas.runs WHERE root_run_id = :run_id ORDER BY run_id;
SELECT t.work();
SELECT changed, state FROM sas.resume(:run_id);
SELECT t.work();
SELECT workflow, state, result FROM sas.runs WHERE root_run_id = :run_id ORDER BY run_id;
SELECT * FROM t.left_over();
SELECT t.clean(), sas.drop_workflow('tree'), sas.drop_workflow('branch'), sas.drop_workflow('leaf') \g /dev/null

-- children of many parents are submitted together: each with what is its own
SELECT t.clean() \g /dev/null
SELECT t.workflow('leaf', '{"w": {"agent": "inventory", "call": {}}}') \g /dev/null
SELECT t.workflow('above_leaf', '{"a": {"workflow": "leaf", "input": {"n": "{{input.n}}", "x": "{{input.x?}}", "y": "{{input.x?}}"}}, "m": {"workflow": "leaf", "each": "{{input.items?}}", "input": {"m": "{{item}}"}, "after": ["a"], "when": "exists($.input.items)"}}') \g /dev/null
SELECT count(s) FROM generate_series(1, 6) n, sas.submit('above_leaf', jsonb_build_object('n', n), priority => n % 2, labels => CASE n % 3 WHEN 0 THEN '{"a": 1}' ELSE '{"a": 1.0}' END::jsonb) s;
SELECT t.settle() \g /dev/null
SELECT c.parent_run_id, c.input ->> 'n' AS n, c.priority, c.labels, c.deadline = p.deadline AS deadline FROM sas.runs c JOIN sas.runs p ON p.run_id = c.parent_run_id ORDER BY 1;
SELECT t.work() \g /dev/null
-- one that is too large fails, and no other
SELECT t.clean() \g /dev/null
SELECT count(s) FROM generate_series(1, 9) n, sas.submit('above_leaf', jsonb_build_object('n', n) || CASE n WHEN 5 THEN jsonb_build_object('x', repeat('x', 600000)) ELSE '{}' END) s;
SELECT t.settle() \g /dev/null
SELECT p.run_id, p.state, left(p.error ->> 'detail', 60) AS why, count(c.run_id) AS children FROM sas.runs p LEFT JOIN sas.runs c ON c.parent_run_id = p.run_id WHERE p.parent_run_id IS NULL GROUP BY 1, 2, 3 ORDER BY 1;
SELECT t.work() \g /dev/null
SELECT * FROM t.left_over();
-- a key of concurrency that their workflow gets meanwhile holds for each of them
SELECT t.clean() \g /dev/null
SELECT t.workflow('keyed_leaf', '{"charge": {"agent": "payments", "call": {}}}') \g /dev/null
SELECT t.workflow('has_key', '{"z": {"workflow": "leaf"}, "zz": {"workflow": "keyed_leaf", "input": {"account": "{{input.account}}"}}}', '{"concurrency": {"key": "k-{{input.account}}", "scope": "owner"}}') \g /dev/null
SELECT t.workflow('has_none', '{"zz": {"workflow": "keyed_leaf", "input": {"account": "{{input.account}}"}}}') \g /dev/null
CREATE FUNCTION t.meanwhile() RETURNS trigger LANGUAGE plpgsql AS $f$
BEGIN
    IF EXISTS (SELECT FROM _sas.workflow_version v JOIN _sas.workflow w USING (workflow_id) WHERE v.version_id = NEW.version_id AND w.name = 'leaf') THEN
        PERFORM t.workflow('keyed_leaf', '{"charge": {"agent": "payments", "call": {}}}', '{"concurrency": {"key": "k-{{input.account}}", "scope": "owner"}}');
    END IF;
    RETURN NULL;
END $f$;
CREATE TRIGGER meanwhile AFTER INSERT ON _sas.run FOR EACH ROW EXECUTE FUNCTION t.meanwhile();
SELECT run_id FROM sas.submit('has_key', '{"account": 1}') \g /dev/null
SELECT worked FROM _sas.scheduler_tick(100) \g /dev/null
SELECT run_id FROM sas.submit('has_none', '{"account": 1}') \g /dev/null
SELECT run_id FROM sas.submit('has_none', '{"account": 1}') \g /dev/null
SELECT t.settle() \g /dev/null
SELECT c.state, p.workflow, count(*) FROM sas.runs c JOIN sas.runs p ON p.run_id = c.parent_run_id WHERE c.workflow = 'keyed_leaf' GROUP BY 1, 2 ORDER BY 2, 1;
DROP TRIGGER meanwhile ON _sas.run;
DROP FUNCTION t.meanwhile;
SELECT t.work() \g /dev/null
SELECT * FROM t.left_over();
SELECT t.clean() \g /dev/null
SELECT sas.drop_workflow(w) FROM unnest('{has_key,has_none,keyed_leaf,above_leaf,leaf}'::text[]) w \g /dev/null

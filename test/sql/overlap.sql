-- SPDX-License-Identifier: PostgreSQL
--
-- overlap: what a submit meets that finds no room under its concurrency key.
\set SHOW_CONTEXT never
SELECT t.clean() \g /dev/null
SELECT t.workflow('sync', '{"a": {"agent": "inventory", "call": {}}}', '{"concurrency": {"key": "one", "overlap": "return"}}') \g /dev/null
\echo a second submit gets the open run
SELECT * FROM sas.submit('sync');
SELECT * FROM sas.submit('sync', '{"other": 1}');
SELECT * FROM sas.submit_batch('sync', ARRAY['{}', '{}']::jsonb[]);
\echo also while it is paused
SELECT state FROM sas.pause(1);
SELECT created FROM sas.submit('sync');
SELECT state FROM sas.resume(1);
SELECT count(*) FROM sas.runs;
\echo once it has stopped there may be another
SELECT t.work();
SELECT created FROM sas.submit('sync');
SELECT state FROM sas.cancel((SELECT max(run_id) FROM sas.runs));
SELECT created FROM sas.submit('sync');
SELECT t.work();
SELECT * FROM t.left_over();
\echo a batch makes one, and all inputs get it
SELECT array_agg(created), count(DISTINCT run_id) FROM sas.submit_batch('sync', ARRAY['{}', '{}', '{}']::jsonb[]);
SELECT t.work();
\echo with keys: the run that has the key comes first; the key of what was not made is not taken
SELECT t.clean() \g /dev/null
SELECT * FROM sas.submit('sync', key => 'x');
SELECT * FROM sas.submit('sync', key => 'y');
SELECT t.work();
SELECT created FROM sas.submit('sync', key => 'x');
SELECT created FROM sas.submit('sync', key => 'y');
SELECT count(*) FROM sas.runs;
SELECT t.work();
\echo per owner: nobody is told of a run that he may not see
CREATE ROLE sas_ann;
SELECT sas.grant_usage('sas_ann', 'user');
SELECT t.allow('sas_ann') \g /dev/null
SELECT created FROM sas.submit('sync');
SET ROLE sas_ann;
SELECT created FROM sas.submit('sync');
SELECT created FROM sas.submit('sync');
RESET ROLE;
SELECT key, overlap, state FROM _sas.concurrency_slot ORDER BY run_id;
SELECT count(*) FROM _sas.concurrency_key;
SELECT t.work();
SELECT * FROM t.left_over();
\echo what is rolled back was not there
BEGIN;
SELECT created FROM sas.submit('sync');
ROLLBACK;
SELECT created FROM sas.submit('sync');
SELECT t.work();
DROP OWNED BY sas_ann;
DROP ROLE sas_ann;
\echo a child run is not counted: it belongs to its step
SELECT t.workflow('parent', '{"c": {"workflow": "sync"}}') \g /dev/null
SELECT created FROM sas.submit('sync');
SELECT created FROM sas.submit('parent');
SELECT t.settle() \g /dev/null
SELECT workflow, state, count(*) FROM sas.runs WHERE state <> 'stopped' GROUP BY 1, 2 ORDER BY 1;
SELECT t.work();
SELECT * FROM t.left_over();
\echo replace: the open run is cancelled, and followed; one that waits is cancelled too; what was done is undone first
SELECT t.clean() \g /dev/null
SELECT t.workflow('build', '{"a": {"agent": "inventory", "call": {}, "undo": {"call": {}}}, "b": {"agent": "payments", "call": {}, "after": ["a"]}}', '{"concurrency": {"key": "{{input.branch}}", "overlap": "replace"}}') \g /dev/null
CREATE VIEW t.builds AS SELECT run_id, input - 'branch' AS input, state, result, waits_for, error ->> 'title' AS why FROM sas.runs ORDER BY 1;
SELECT * FROM sas.submit('build', '{"branch": "x", "n": 1}');
SELECT t.settle() \g /dev/null
SELECT t.claim();
SELECT t.answer('a');
SELECT t.settle() \g /dev/null
SELECT * FROM sas.submit('build', '{"branch": "x", "n": 2}');
SELECT * FROM sas.submit('build', '{"branch": "x", "n": 3}');
SELECT * FROM sas.submit('build', '{"branch": "y", "n": 4}');
SELECT t.settle() \g /dev/null
SELECT * FROM t.builds;
SELECT t.work();
SELECT * FROM t.builds;
SELECT * FROM t.left_over();
\echo a batch under one key: the last is carried out
SELECT t.clean() \g /dev/null
SELECT * FROM sas.submit_batch('build', ARRAY['{"branch": "x", "n": 1}', '{"branch": "y", "n": 2}', '{"branch": "x", "n": 3}', '{"branch": "x", "n": 4}']::jsonb[]);
SELECT t.work();
SELECT * FROM t.builds;
SELECT * FROM t.left_over();
\echo with a limit of two the oldest goes; a submit that is rolled back cancels nothing
SELECT t.clean() \g /dev/null
SELECT t.workflow('build', '{"a": {"agent": "inventory", "call": {}}}', '{"concurrency": {"key": "all", "limit": 2, "overlap": "replace"}}') \g /dev/null
SELECT created FROM sas.submit_batch('build', ARRAY['{"n": 1}', '{"n": 2}']::jsonb[]);
BEGIN; SELECT created FROM sas.submit('build', '{"n": 3}'); ROLLBACK;
SELECT t.settle() \g /dev/null
SELECT * FROM t.builds;
SELECT created FROM sas.submit('build', '{"n": 4}');
SELECT t.work();
SELECT * FROM t.builds;
\echo once_more: one follows the open run, and takes the newest input; it is returned to who submits further
SELECT t.clean() \g /dev/null
SELECT t.workflow('sync', '{"a": {"agent": "inventory", "call": {}}}', '{"concurrency": {"key": "{{input.branch}}", "overlap": "once_more"}}') \g /dev/null
SELECT sum(used) AS bytes FROM sas.limits WHERE name = 'bytes' \gset
SELECT * FROM sas.submit('sync', '{"branch": "x", "n": 1}');
SELECT * FROM sas.submit('sync', '{"branch": "x", "n": 2}', key => 'two');
SELECT * FROM sas.submit('sync', '{"branch": "x", "n": 3}', key => 'three');
SELECT * FROM sas.submit('sync', '{"branch": "y", "n": 4}');
SELECT * FROM sas.submit_batch('sync', ARRAY['{"branch": "x", "n": 5}', '{"branch": "x", "n": 6}']::jsonb[]);
SELECT t.settle() \g /dev/null
SELECT * FROM t.builds;
SELECT run_id, act, detail FROM sas.history WHERE run_id = 2 ORDER BY at, detail;
\echo the key of what was not made is not taken; while it has begun, another may follow
SELECT count(*) FROM _sas.run_key;
SELECT t.claim();
SELECT t.answer('a', for_run => 1);
SELECT t.settle() \g /dev/null
SELECT * FROM sas.submit('sync', '{"branch": "x", "n": 7}');
SELECT * FROM sas.submit('sync', '{"branch": "x", "n": 8}');
SELECT t.work();
SELECT * FROM t.builds;
SELECT sum(used) = :bytes AS given_back FROM sas.limits WHERE name = 'bytes';
SELECT * FROM t.left_over();
\echo a whole batch with nothing open: the first begins, the last follows it
SELECT t.clean() \g /dev/null
SELECT * FROM sas.submit_batch('sync', ARRAY['{"branch": "x", "n": 1}', '{"branch": "x", "n": 2}', '{"branch": "x", "n": 3}']::jsonb[]);
SELECT t.work();
SELECT * FROM t.builds;
\echo one that is paused before it begins still follows
SELECT created FROM sas.submit_batch('sync', ARRAY['{"branch": "x", "n": 1}', '{"branch": "x", "n": 2}']::jsonb[]);
SELECT t.settle() \g /dev/null
SELECT max(run_id) AS last FROM sas.runs \gset
SELECT state FROM sas.pause(:last);
SELECT created FROM sas.submit('sync', '{"branch": "x", "n": 3}');
SELECT state FROM sas.resume(:last);
SELECT t.work();
SELECT input, result FROM t.builds WHERE run_id > 2;
SELECT * FROM t.left_over();
\echo several keys: all are taken together, in the order of the submits under each
SELECT t.clean() \g /dev/null
SELECT t.workflow('move', '{"a": {"agent": "inventory", "call": {}}}', '{"concurrency": [{"key": "{{input.from}}"}, {"key": "{{input.to}}"}]}') \g /dev/null
CREATE VIEW t.moves AS SELECT run_id, input ->> 'from' AS "from", input ->> 'to' AS "to", state, waits_for FROM sas.runs WHERE state <> 'stopped' ORDER BY 1;
SELECT created FROM sas.submit_batch('move', ARRAY['{"from": "a", "to": "b"}', '{"from": "b", "to": "c"}', '{"from": "c", "to": "d"}', '{"from": "e", "to": "f"}', '{"from": "d", "to": "d"}']::jsonb[]);
SELECT t.settle() \g /dev/null
SELECT * FROM t.moves;
SELECT key, run_id, state, position FROM sas.locks ORDER BY run_id, key;
SELECT t.claim();
SELECT t.answer('a', for_run => 1);
SELECT t.settle() \g /dev/null
SELECT * FROM t.moves;
SELECT t.work();
SELECT * FROM t.moves;
SELECT * FROM t.left_over();
\echo the same, backwards: none holds what another waits for
SELECT created FROM sas.submit_batch('move', ARRAY['{"from": "a", "to": "b"}', '{"from": "b", "to": "a"}', '{"from": "a", "to": "b"}']::jsonb[]);
SELECT t.work();
SELECT * FROM t.left_over();
\echo rules of their own: one that is refused goes before one that returns
SELECT t.clean() \g /dev/null
SELECT t.workflow('both', '{"a": {"agent": "inventory", "call": {}}}', '{"concurrency": [{"key": "{{input.k}}", "overlap": "return"}, {"key": "{{input.l}}", "overlap": "refuse", "scope": "owner"}]}') \g /dev/null
SELECT * FROM sas.submit('both', '{"k": 1, "l": 2}');
SELECT * FROM sas.submit('both', '{"k": 1, "l": 3}');
SELECT * FROM sas.submit('both', '{"k": 4, "l": 2}');
SELECT * FROM sas.submit('both', '{"k": 1, "l": 2}');
SELECT t.work();
SELECT * FROM t.left_over();
\echo readers and a writer: a reader finds room among readers
SELECT t.workflow('read', '{"a": {"agent": "inventory", "call": {}}}', '{"concurrency": {"key": "book", "scope": "owner", "shared": true, "overlap": "refuse"}}') \g /dev/null
SELECT t.workflow('write', '{"a": {"agent": "inventory", "call": {}}}', '{"concurrency": {"key": "book", "scope": "owner", "overlap": "refuse"}}') \g /dev/null
SELECT created FROM sas.submit('read');
SELECT created FROM sas.submit('read');
SELECT created FROM sas.submit('write');
SELECT t.work();
SELECT created FROM sas.submit('write');
SELECT created FROM sas.submit('read');
SELECT t.work();
SELECT * FROM t.left_over();
\echo a child shares what the runs above it hold; another key fails its step; where none is held above, it waits
SELECT t.clean() \g /dev/null
SELECT t.workflow('part', '{"a": {"agent": "inventory", "call": {}}}', '{"concurrency": [{"key": "{{input.k}}", "scope": "owner", "overlap": "refuse"}]}') \g /dev/null
SELECT t.workflow('whole', '{"c": {"workflow": "part", "input": {"k": "{{input.child}}"}}}', '{"concurrency": {"key": "{{input.k}}", "scope": "owner"}, "on_failure": "fail"}') \g /dev/null
SELECT t.workflow('free', '{"c": {"workflow": "part", "input": {"k": "{{input.child}}"}}}') \g /dev/null
SELECT created FROM sas.submit('whole', '{"k": "x", "child": "x"}');
SELECT created FROM sas.submit('whole', '{"k": "y", "child": "z"}');
SELECT created FROM sas.submit('free', '{"child": "x"}');
SELECT t.settle() \g /dev/null
SELECT workflow, run_id, state, result, waits_for, error ->> 'title' AS why FROM sas.runs ORDER BY run_id;
SELECT t.work();
SELECT workflow, run_id, result FROM sas.runs ORDER BY run_id;
SELECT * FROM t.left_over();

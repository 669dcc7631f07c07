-- SPDX-License-Identifier: PostgreSQL
--
-- watch_items: what a task takes in is brought to its target once, in order;
-- failures of hosts and targets, pauses, limits.
\set SHOW_CONTEXT never
SELECT t.clean(), t.watching() \g /dev/null
SELECT sas.create_watcher('feed', '{"agent": "feed", "stream": {"format": "sse"}, "items": {"table": "t.item"}, "retry": {"max_failures": 3, "initial": "1 s", "jitter": false, "reset_after": "1 min"}}');
SELECT t.node('n', 100);
SELECT count(*) FROM unnest('{a,b}'::text[]) k, sas.watch('feed', k);
SELECT t.claim_watches('n');

\echo in the order in which they came, batch after batch
SELECT t.append('n', 'a', '[1, 2]'), t.append('n', 'b', '["x"]');
SELECT t.append('n', 'a', '[3]');
SELECT t.deliver();
SELECT t.deliver();
\echo one worker at a time is at the inbox of a task
SELECT t.append('n', 'a', '[4]');
SELECT watch_id, items FROM _sas.claim_items(10, 1, t.worker('f'));
SELECT t.append('n', 'a', '[5]');
SELECT watch_id, items FROM _sas.claim_items(10, 1, t.worker('g'));
\echo whatever comes in meanwhile, the others are not held up
SELECT count(t.append('n', 'a', '[7]')) FROM generate_series(1, 1500);
SELECT t.append('n', 'b', '["late"]');
SELECT t.deliver(worker => 'g'), t.deliver(worker => 'g');
SELECT count(*) FROM _sas.watch_work;
\echo its worker dies: a failure, and another comes to it after a pause, by itself
UPDATE t.worker SET alive = false WHERE name = 'f';
SELECT t.supervise() > 0 AS found;
SELECT t.deliver(worker => 'g');
SELECT * FROM t.watches();
SELECT next_due - sas.now() AS looked_at_in FROM _sas.supervise_watches(1, '{1,3}', 3);
SELECT t.later('1 s') \g /dev/null
SELECT length(t.deliver(worker => 'g')); SELECT length(t.deliver(worker => 'g'));
SELECT * FROM t.watches();
\echo one that died with several: none is counted, and each goes alone
SELECT t.later('1 h') \g /dev/null
SELECT t.append('n', 'a', '[6]'), t.append('n', 'b', '["y"]');
SELECT watch_id, alone FROM _sas.claim_items(10, 1, t.worker('h'));
UPDATE t.worker SET alive = false WHERE name = 'h';
SELECT t.supervise() > 0 AS found;
SELECT watch_id, alone FROM _sas.claim_items(10, 1, t.worker('i'));
SELECT watch_id, alone FROM _sas.claim_items(10, 1, t.worker('j'));
\echo a claim whose time is over goes to another worker, and what the first one says counts no more
SELECT t.later('60 s') \g /dev/null
SELECT request_id AS late FROM _sas.watch_done WHERE watch_id = 1 \gset
SELECT t.deliver(worker => 'g'), t.deliver(worker => 'g');
SELECT _sas.lock_items('{1}', ARRAY[:'late']::uuid[]);
SELECT * FROM t.watches();

\echo a target that fails: growing pauses, nothing lost, then given up with an alert
SELECT t.clean() \g /dev/null
SELECT t.node('n', 100);
SELECT count(*) FROM unnest('{a,b}'::text[]) k, sas.watch('feed', k);
SELECT t.claim_watches('n');
SELECT t.append('n', 'a', '[1]'), t.append('n', 'b', '["x"]');
SELECT t.deliver('{a}');
SELECT t.append('n', 'a', '[2]');
SELECT t.deliver('{a}');
SELECT t.later('1 s') \g /dev/null
SELECT t.deliver('{a}');
SELECT * FROM t.watches();
SELECT t.later('1 s') \g /dev/null
SELECT t.deliver('{a}');
SELECT t.later('1 s') \g /dev/null
SELECT t.deliver('{a}');
SELECT t.settle() \g /dev/null
SELECT * FROM t.watches();
SELECT kind, message, occurrences FROM t.alerts();
SELECT t.news('n');
SELECT t.release('n', '{a}');
SELECT t.later('1 h') \g /dev/null
SELECT t.settle() \g /dev/null
SELECT t.deliver(), t.claim_watches('n');
\echo resumed: its failures are forgotten, its items are there
SELECT * FROM sas.resume_watch('feed', '{a,b}');
SELECT t.settle() \g /dev/null
SELECT t.claim_watches('n');
SELECT t.deliver();
SELECT * FROM t.watches();
\echo stopped with a target that fails: it waits for it, or what is in the inbox is thrown away by flag
SELECT t.append('n', 'a', '[3]');
SELECT t.deliver('{a}');
SELECT * FROM sas.unwatch('feed', '{a}');
SELECT t.release('n', '{a}');
SELECT t.settle() \g /dev/null
SELECT * FROM t.watches() WHERE key = 'a';
SELECT * FROM sas.unwatch('feed', '{a}', discard => true);
SELECT t.settle() \g /dev/null
SELECT * FROM t.watches() WHERE key = 'a';
SELECT t.deliver();
\echo stopped, and its target fails for good: failed, with what is in its inbox; stopped again, it waits for that, too
SELECT t.append('n', 'b', '["z"]');
SELECT key, state FROM sas.unwatch('feed', '{b}');
SELECT t.release('n', '{b}');
SELECT t.deliver('{b}') FROM t.later('1 h'); SELECT t.deliver('{b}') FROM t.later('10 s'); SELECT t.deliver('{b}') FROM t.later('20 s');
SELECT t.settle() \g /dev/null
SELECT * FROM t.watches() WHERE key = 'b';
SELECT key, state FROM sas.unwatch('feed', '{b}', true);
SELECT t.settle() \g /dev/null
SELECT * FROM t.watches() WHERE key = 'b';
\echo its target fails while no node has it
SELECT key, state FROM sas.unwatch('feed', '{a}'); SELECT created FROM sas.watch('feed', 'c');
SELECT t.claim_watches('n');
SELECT t.append('n', 'c', '[1]');
SELECT t.deliver('{c}'); SELECT t.deliver('{c}') FROM t.later('1 s');
UPDATE t.worker SET alive = false WHERE name = 'n';
SELECT t.settle() \g /dev/null
SELECT state FROM t.watches() WHERE key = 'c';
SELECT t.deliver('{c}') FROM t.later('2 s');
SELECT t.settle() \g /dev/null
SELECT state, node FROM t.watches() WHERE key = 'c';
SELECT key, state FROM sas.resume_watch('feed', '{c}'); SELECT key, state FROM sas.unwatch('feed', '{c}');
SELECT t.settle() \g /dev/null
SELECT t.deliver();
SELECT t.settle() \g /dev/null
SELECT state FROM t.watches() WHERE key = 'c';
SELECT t.deliver();
SELECT * FROM _sas.watch_work;

\echo the window: full, the host is told that there is no room, and when there is again
ALTER SYSTEM SET sas.watch_window = 4; SELECT pg_reload_conf() \g /dev/null
SELECT t.clean() \g /dev/null
DO $$ BEGIN FOR i IN 1 .. 1000 LOOP EXIT WHEN _sas.watch_window() = 4; PERFORM pg_sleep(0.01); END LOOP; END $$;
SELECT t.node('n', 100);
SELECT created FROM sas.watch('feed', 'a');
SELECT t.claim_watches('n');
SELECT t.append('n', 'a', '[1, 2, 3]');
SELECT t.append('n', 'a', '[4, 5]');
SELECT t.news('n');
SELECT t.deliver();
SELECT t.news('n');
SELECT t.append('n', 'a', '[6]');
SELECT t.deliver(), t.news('n');
SELECT sas.create_watcher('camera', '{"agent": "host", "external": {}, "items": {"table": "t.item"}}');
SELECT watch_id AS w FROM sas.watch('camera', 'c') \gset
SELECT sas.register_node('p', 5, '{host}') AS p \gset
SELECT key FROM sas.claim_watchers(:p, 5);
SELECT sas.append_items(:w, 1, '[1, 2, 3, 4]'), sas.append_items(:w, 1, '[5]');
SELECT t.deliver();
SELECT watch_id = :w AS it, news FROM sas.heartbeat_node(:p);
SELECT sas.append_items(:w, 1, '[5]');
ALTER SYSTEM RESET sas.watch_window; SELECT pg_reload_conf() \g /dev/null
DO $$ BEGIN FOR i IN 1 .. 1000 LOOP EXIT WHEN _sas.watch_window() <> 4; PERFORM pg_sleep(0.01); END LOOP; END $$;

\echo items in the shape of their target, and the keys of the runs that they become
SELECT t.clean() \g /dev/null
SELECT t.workflow('one', '{}') \g /dev/null
SELECT sas.create_watcher('shaped', '{"agent": "feed", "stream": {"format": "sse"}, "items": {"workflow": "one", "key": "{{item.id}}", "item": {"of": "{{key}}", "value": "{{item.value}}", "at": "{{input.place?}}"}}, "retry": {"jitter": false}}');
SELECT t.node('n', 100);
SELECT created FROM sas.watch('shaped', 'a', '{"place": 7}');
SELECT t.claim_watches('n');
SELECT t.append('n', 'a', '[{"id": "i1", "value": [1]}, {"id": 2, "value": null}]');
SELECT target_kind, target, items, keys, problem FROM _sas.claim_items(10, 1, t.worker('f'));
SELECT _sas.finish_items('{1}', ARRAY[(SELECT max(batch_no) FROM _sas.watch_batch)], '{NULL}', '{f}');
SELECT t.append('n', 'a', '[{"id": "i3"}]');
SELECT t.deliver();
SELECT * FROM t.watches();

\echo a batch is taken in with its cursor or not at all: it ends with the last item that yields one
SELECT t.clean() \g /dev/null
SELECT t.node('n', 100);
SELECT sas.create_watcher('lines', '{"agent": "feed", "stream": {"format": "ndjson"}, "cursor": {"start": 0, "next": "{{item.n?}}"},
                                     "items": {"table": "t.item"}}');
SELECT created FROM sas.watch('lines', 'a');
SELECT t.claim_watches('n');
SELECT t.append('n', 'a', '[{"n": 1}, {"x": 1}, {"n": 2}, {"x": 2}, {"n": null}]');
SELECT t.deliver();
SELECT items, waiting, cursor FROM t.watches();
\echo none yields one: nothing is taken in, and nothing waits
SELECT t.append('n', 'a', '[{"x": 3}, 4, "n", [[5]]]'), t.append('n', 'a', '[]');
SELECT t.deliver();
SELECT items, waiting, cursor FROM t.watches();
SELECT count(*) FROM _sas.watch_work;
\echo one that the definition cannot be applied to is covered by those behind it
SELECT t.append('n', 'a', '[4, {"n": "0"}]');
SELECT t.deliver();
SELECT items, waiting, cursor FROM t.watches();
\echo the host may know the cursor itself
SELECT t.append('n', 'a', '[{"x": 5}]', '"7"');
SELECT t.deliver();
SELECT items, waiting, cursor FROM t.watches();
\echo asked to stop: taken in likewise
SELECT key, state FROM sas.unwatch('lines', '{a}');
SELECT t.append('n', 'a', '[{"n": 8}, {"x": 6}]');
SELECT t.deliver();
SELECT items, waiting, cursor FROM t.watches();
\echo a poll that yields none keeps its digest
SELECT sas.create_watcher('state', '{"agent": "feed", "poll": {"call": {}, "every": "1 s"}, "cursor": {"next": "{{item.n}}"}, "items": {"table": "t.item"}}');
SELECT created FROM sas.watch('state', 's');
SELECT t.claim_watches('n');
SELECT a.answer, f.digest, f.cursor
FROM _sas.watch w, _sas.append_batches(t.node_id('n'), ARRAY[w.watch_id], ARRAY[w.epoch], '{"[7]"}'::jsonb[], '{NULL}'::jsonb[], '{d1}') a, _sas.watch_flow f
WHERE w.key = 's' AND f.watch_id = w.watch_id;
SELECT f.digest, f.cursor FROM _sas.watch w JOIN _sas.watch_flow f USING (watch_id) WHERE w.key = 's';
SELECT a.answer FROM _sas.watch w, _sas.append_batches(t.node_id('n'), ARRAY[w.watch_id], ARRAY[w.epoch], ARRAY['[{"n": 7}]'::jsonb], '{NULL}'::jsonb[], '{d2}') a
WHERE w.key = 's';
SELECT f.digest, f.cursor FROM _sas.watch w JOIN _sas.watch_flow f USING (watch_id) WHERE w.key = 's';
\echo an outside program hears of it as an error, and nothing is taken in
SELECT sas.create_watcher('camera', '{"agent": "host", "external": {}, "cursor": {"next": "{{item.n}}"}, "items": {"table": "t.item"}}');
SELECT watch_id AS w FROM sas.watch('camera', 'c') \gset
SELECT sas.register_node('p', 5, '{host}') AS p \gset
SELECT key FROM sas.claim_watchers(:p, 5);
SELECT sas.append_items(:w, 1, '[{"n": 1}, {"x": 1}]');
\echo :LAST_ERROR_SQLSTATE
SELECT sas.append_items(:w, 1, '[{"x": 1}, {"n": 2}]'), sas.append_items(:w, 1, '[{"x": 2}]', '2.5'), sas.append_items(:w, 1, '[]', '3');
SELECT items, waiting, cursor FROM t.watches() WHERE key = 'c';

\echo a host that fails: growing pauses, forgotten after a quiet time
SELECT t.clean() \g /dev/null
SELECT t.node('n', 100);
SELECT count(*) FROM unnest('{a,b,c}'::text[]) k, sas.watch('feed', k);
SELECT t.claim_watches('n');
SELECT t.lose('n', 'a'), t.lose('n', 'b', at_least => 30000);
SELECT t.later('1 s') \g /dev/null
SELECT t.lose('n', 'a');
SELECT * FROM t.watches();
SELECT t.later('62 s') \g /dev/null
SELECT t.lose('n', 'a');
\echo an end in good order is no failure, unless it comes at once
SELECT t.lose('n', 'c', NULL);
SELECT t.lose('n', 'c', NULL);
SELECT t.later('1 min') \g /dev/null
SELECT t.lose('n', 'c', NULL);
SELECT * FROM t.watches();
\echo used up: failed with an alert, hosted no more; resumed it waits for a node
SELECT t.lose('n', 'a'); SELECT t.lose('n', 'a');
SELECT * FROM t.watches() WHERE key = 'a';
SELECT kind, message, occurrences FROM t.alerts();
SELECT t.append('n', 'a', '[1]');
SELECT key, state FROM sas.resume_watch('feed', '{a}');
SELECT t.settle() \g /dev/null
SELECT t.claim_watches('n');
SELECT t.later('1 s') \g /dev/null
SELECT t.lose('n', 'a');
\echo stopped when it has failed
SELECT t.lose('n', 'a'); SELECT t.lose('n', 'a');
SELECT key, state FROM sas.unwatch('feed', '{a}');
SELECT * FROM t.watches() WHERE key = 'a';
\echo stopped with an inbox that is thrown away, and started again: nothing is left of its life before
SELECT t.clean() \g /dev/null
SELECT t.node('n', 100);
SELECT created FROM sas.watch('feed', 'a');
SELECT t.claim_watches('n');
SELECT t.append('n', 'a', '[1, 2, 3]'), t.deliver(), t.append('n', 'a', '[4, 5]');
SELECT t.lose('n', 'a');
SELECT key, state FROM sas.unwatch('feed', '{a}', true);
SELECT t.settle(), t.release('n', '{a}'), t.settle() \g /dev/null
SELECT state, items, waiting FROM t.watches();
UPDATE _sas.watch_flow SET closed = true, next_at = sas.now(), next_by = '@daily';
SELECT key, created FROM unnest('{a,b}'::text[]) key, sas.watch('feed', key);
WITH stored AS (
    SELECT w.key AS task, e.key AS name, e.value FROM _sas.watch w JOIN _sas.watch_flow f USING (watch_id) JOIN _sas.watch_done g USING (watch_id)
    CROSS JOIN LATERAL (VALUES ('watch', to_jsonb(w)), ('watch_flow', to_jsonb(f)), ('watch_done', to_jsonb(g))) v (name, row)
    CROSS JOIN LATERAL (SELECT v.name || '.' || x.key AS key, x.value FROM jsonb_each(v.row - '{watch_id,key,epoch}'::text[]) x) e)
SELECT again.name, again.value, new.value AS of_a_new_one FROM stored again JOIN stored new USING (name)
WHERE again.task = 'a' AND new.task = 'b' AND again.value <> new.value;

-- SPDX-License-Identifier: PostgreSQL
--
-- watch: the states of infinite tasks, by watcher and key.
\set SHOW_CONTEXT never
SELECT t.clean(), t.watching() \g /dev/null
SELECT sas.create_watcher('prices', '{"agent": "feed", "stream": {"format": "ndjson", "path": "/{{input.symbol}}", "query": {"since": "{{cursor}}"}}, "items": {"table": "t.item"}, "cursor": {"start": "{{input.first?}}", "next": "{{item.seq}}"}, "retry": {"jitter": false}}');
CREATE FUNCTION t.requests(node text) RETURNS TABLE (key text, epoch bigint, request jsonb, cursor jsonb) LANGUAGE sql AS $$
    SELECT w.key, r.epoch, r.request, r.cursor FROM _sas.watch w JOIN _sas.watch_held h USING (watch_id),
           _sas.watch_requests(t.node_id(node), ARRAY[w.watch_id], ARRAY[h.epoch]) r WHERE w.state <> 'deleted' ORDER BY 1
$$;

\echo a task is asked for by a key of its own; one that is there is refused, or adopted by flag
SELECT * FROM sas.watch('prices', 'a', '{"symbol": "A"}');
SELECT * FROM sas.watch('prices', 'b', '{"symbol": "B", "first": 17}');
SELECT * FROM sas.watch('prices', 'a', '{"symbol": "A"}');
SELECT * FROM sas.watch('prices', 'a', '{"symbol": "A"}', adopt => true);
SELECT * FROM sas.watch('prices', 'a', '{"symbol": "Z"}', adopt => true);
SELECT * FROM sas.watch('nothing', 'a');
SELECT * FROM sas.watch('prices', '');
SELECT * FROM sas.watch('prices', 'c', '[1]');
SELECT * FROM sas.watch('prices', 'c', '{"symbol": "C"}', cursor => '99');
SELECT * FROM t.watches();

\echo it rolls back with the transaction of its caller
BEGIN;
SELECT * FROM sas.watch('prices', 'd', '{"symbol": "D"}');
ROLLBACK;
SELECT count(*) FROM _sas.watch;

\echo a node takes them, with what to do and since where
SELECT t.node('n', 10);
SELECT w.key, c.epoch, c.kind, c.request, c.cursor, c.room, c.problem FROM _sas.claim_watches(1, 10) c JOIN _sas.watch w USING (watch_id);
SELECT * FROM t.watches();
SELECT key, since - t.start() AS since FROM sas.watches ORDER BY 1;
SELECT t.claim_watches('n');

\echo items and cursor are taken in together
SELECT t.later('1 s') \g /dev/null
SELECT t.append('n', 'a', '[{"seq": 1}, {"seq": 2}]');
SELECT t.append('n', 'b', '[{"seq": 18}]', '"given"');
SELECT t.append('n', 'c', '[]');
SELECT * FROM t.watches();
SELECT t.deliver();
SELECT * FROM t.watches();

\echo a stop is asked of the host, which ends the task and gives it back; whoever is asked already says so
SELECT * FROM sas.unwatch('prices', '{a,zzz}');
SELECT * FROM sas.unwatch('prices', '{a}');
SELECT t.news('n');
SELECT t.append('n', 'a', '[{"seq": 3}]');
SELECT t.release('n', '{a}');
SELECT t.supervise() > 0 AS looked;
SELECT * FROM t.watches() WHERE key = 'a';
SELECT t.deliver();
SELECT t.supervise() > 0 AS looked;
SELECT * FROM t.watches() WHERE key = 'a';
SELECT * FROM sas.unwatch('prices', '{a}');

\echo its key begins anew, with another epoch
SELECT * FROM sas.watch('prices', 'a', '{"symbol": "A2"}');
SELECT * FROM t.watches() WHERE key = 'a';
SELECT t.claim_watches('n');
SELECT * FROM t.requests('n');

\echo paused: the host ends it, what it has taken in waits; resumed: it goes on where it was
SELECT * FROM sas.pause_watch('prices', '{b}');
SELECT t.news('n');
SELECT t.append('n', 'b', '[{"seq": 20}]');
SELECT t.release('n', '{b}');
SELECT t.settle() \g /dev/null
SELECT t.deliver();
SELECT t.claim_watches('n');
SELECT * FROM t.watches() WHERE key = 'b';
SELECT * FROM sas.pause_watch('prices', '{b}');
SELECT * FROM sas.resume_watch('prices', '{b}');
SELECT t.settle() \g /dev/null
SELECT t.deliver();
SELECT t.claim_watches('n');
SELECT * FROM t.watches() WHERE key = 'b';

\echo paused and resumed before the host has answered: it gives the task back all the same, and takes it anew
SELECT * FROM sas.pause_watch('prices', '{b}');
SELECT * FROM sas.resume_watch('prices', '{b}');
SELECT t.settle() \g /dev/null
SELECT t.claim_watches('n');
SELECT t.news('n');
SELECT t.release('n', '{b}');
SELECT t.claim_watches('n');
SELECT * FROM t.requests('n') WHERE key = 'b';

\echo one that waits is stopped or paused at once
SELECT * FROM sas.watch('prices', 'e', '{"symbol": "E"}');
SELECT * FROM sas.pause_watch('prices', '{e}');
SELECT * FROM sas.unwatch('prices', '{e}');
SELECT * FROM sas.watch('prices', 'e', '{"symbol": "E"}');
SELECT * FROM sas.unwatch('prices', '{e}');
SELECT t.claim_watches('n');
\echo stopped while the host is still to answer a pause
SELECT * FROM sas.pause_watch('prices', '{c}');
SELECT * FROM sas.unwatch('prices', '{c}');
SELECT t.settle() \g /dev/null
SELECT t.release('n', '{c}');
SELECT * FROM t.watches() WHERE key IN ('c', 'e');

\echo a definition that is written anew reaches all its tasks: their hosts are told, and find their cursors
SELECT sas.create_watcher('prices', '{"agent": "feed", "stream": {"format": "ndjson", "path": "/v2/{{input.symbol}}", "query": {"after": "{{cursor}}"}}, "items": {"table": "t.item"}, "retry": {"jitter": false}}');
SELECT t.news('n');
SELECT * FROM t.requests('n');
SELECT t.news('n');
SELECT sas.create_watcher('prices', '{"agent": "inventory", "stream": {"format": "ndjson"}, "items": {"table": "t.item"}}');

\echo a request that cannot be made is a failure of the task
SELECT * FROM sas.watch('prices', 'f');
SELECT w.key, c.request, c.problem FROM _sas.claim_watches(1, 10) c JOIN _sas.watch w USING (watch_id);
SELECT t.lose('n', 'f', 'could not build the request');
SELECT * FROM sas.unwatch('prices', '{a,b,f}');
SELECT t.release('n', '{a,b,f}');
SELECT t.settle() \g /dev/null

\echo nothing is left but a row for each key
SELECT * FROM t.watches();
SELECT t.later('1 s'), t.settle() \g /dev/null
SELECT (SELECT count(*) FROM _sas.watch_wait) AS wait, (SELECT count(*) FROM _sas.watch_held) AS held, (SELECT count(*) FROM _sas.watch_note) AS news,
       (SELECT count(*) FROM _sas.watch_batch) AS batch, (SELECT count(*) FROM _sas.watch_work) AS work, (SELECT count(*) FROM _sas.watch_check) AS look;

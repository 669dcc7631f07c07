-- SPDX-License-Identifier: PostgreSQL
--
-- watch_nodes: who hosts infinite tasks: shares, deaths, moves, fences.
\set SHOW_CONTEXT never
SELECT t.clean(), t.watching() \g /dev/null
SELECT sas.create_watcher('feed', '{"agent": "feed", "stream": {"format": "sse"}, "items": {"table": "t.item"}, "retry": {"jitter": false}}');
SELECT sas.create_watcher('sweep', '{"function": "t.echo", "every": "1 h", "retry": {"jitter": false}}');
SELECT sas.create_watcher('camera', '{"agent": "host", "external": {"of": "{{key}}", "name": "{{input.name}}"}, "items": {"table": "t.item"}, "retry": {"jitter": false}}');
CREATE VIEW t.nodes AS SELECT node_id, name, kind, capacity, watches, free, agents, is_deleted, ended_for FROM sas.nodes;
CREATE FUNCTION t.ask(n int, watcher text DEFAULT 'feed') RETURNS bigint LANGUAGE sql AS $$
    SELECT count(w.watch_id) FROM generate_series(1, n) g, sas.watch(watcher, g::text, '{"name": "x"}', adopt => true) w $$;

\echo each takes its share by capacity, whoever comes first; the overflow waits as created
SELECT t.node('a', 3), t.node('b', 6);
SELECT t.ask(6);
SELECT t.claim_watches('a');
SELECT t.claim_watches('a');
SELECT t.claim_watches('b');
SELECT * FROM t.nodes;
SELECT t.ask(18);
SELECT t.claim_watches('b'), t.claim_watches('a'), t.claim_watches('b');
SELECT state, node, count(*) FROM sas.watches GROUP BY 1, 2 ORDER BY 1, 2;
\echo and starts when a place frees
SELECT key, state FROM sas.unwatch('feed', '{1}');
SELECT t.news('a');
SELECT t.release('a', '{1}');
SELECT t.claim_watches('b'), t.claim_watches('a');
SELECT state, node, count(*) FROM sas.watches GROUP BY 1, 2 ORDER BY 1, 2;

\echo a worker that dies gives its tasks back at once; what the dead one still says is refused
SELECT t.later('1 s') \g /dev/null
UPDATE t.worker SET alive = false WHERE name = 'b';
SELECT t.supervise() > 0 AS found;
SELECT * FROM t.nodes;
SELECT t.append('b', '3', '[1]');
SELECT t.lose('b', '3');
SELECT state, node, count(*) FROM sas.watches GROUP BY 1, 2 ORDER BY 1, 2;
SELECT t.claim_watches('b');
\echo a node of another life takes them, in another epoch; what was said in the one before is refused
SELECT t.node('c', 100);
SELECT t.claim_watches('c') <> 'nothing' AS taken;
SELECT t.append('c', '3', '[1]', in_epoch => 1);
SELECT t.append('c', '3', '[1]');
SELECT restarts, count(*) FROM sas.watches GROUP BY 1 ORDER BY 1;
\echo the share of one that does not come for it goes to anybody after two seconds
SELECT t.clean() \g /dev/null
SELECT t.node('a', 10), t.node('b', 10);
SELECT t.ask(4);
SELECT t.claim_watches('a');
SELECT t.claim_watches('a');
SELECT next_due - sas.now() AS looked_at_in FROM _sas.supervise_watches(1, '{1,2}', 2);
SELECT t.later('2 s') \g /dev/null
SELECT t.claim_watches('a');
\echo a server that was restarted: all nodes are gone, and all tasks wait
UPDATE t.worker SET boot = 0;
UPDATE _sas.node SET boot = 0;
SELECT t.supervise() > 0 AS found;
SELECT state, node, restarts, count(*) FROM sas.watches GROUP BY 1, 2, 3;
SELECT * FROM t.nodes;
\echo rows of nodes that have ended go with their name, or after a day
UPDATE t.worker SET boot = 1;
SELECT t.node('a', 10);
SELECT * FROM t.nodes;
SELECT t.later('25 h') \g /dev/null
SELECT t.node('z', 10);
SELECT * FROM t.nodes;

\echo max_streams of an agent, over all nodes
SELECT t.clean() \g /dev/null
SELECT sas.alter_agent('feed', options => '{"max_streams": 3}');
SELECT t.node('a', 10), t.node('b', 10);
SELECT t.ask(6);
SELECT t.claim_watches('a'), t.claim_watches('b'), t.claim_watches('a');
SELECT sas.alter_agent('feed', options => '{"max_streams": -1}');
SELECT sas.alter_agent('feed', reset => '{options}');
SELECT t.later('2 s') \g /dev/null
SELECT t.claim_watches('a');
\echo a disabled agent: none is taken
SELECT sas.alter_agent('feed', enabled => false);
SELECT t.ask(8);
SELECT t.claim_watches('b');
SELECT sas.alter_agent('feed', enabled => true);

\echo sas.rebalance: who has more than its share is asked to give back
SELECT t.clean() \g /dev/null
SELECT t.node('a', 10);
SELECT t.ask(6);
SELECT t.claim_watches('a');
SELECT sas.rebalance();
SELECT t.node('b', 20);
SELECT sas.rebalance();
SELECT sas.rebalance();
SELECT t.news('a');
\echo a stop that meets a move is not lost
SELECT key, state FROM sas.unwatch('feed', '{6,1}');
SELECT t.news('a');
SELECT t.release('a', '{6,5,4,3}');
SELECT t.settle() \g /dev/null
SELECT t.claim_watches('b');
SELECT key, state, node, restarts FROM sas.watches ORDER BY 1;
\echo a stop that is not answered is told again, at growing pauses
SELECT t.news('a');
SELECT t.later('10 s') \g /dev/null
SELECT t.supervise() > 0 AS told;
SELECT t.news('a');
SELECT t.later('10 s') \g /dev/null
SELECT t.supervise() > 0 AS told; SELECT t.news('a');
SELECT t.later('30 s') \g /dev/null
SELECT t.supervise() > 0 AS told; SELECT t.news('a');
\echo its host dies instead: that ends it, too
UPDATE t.worker SET alive = false WHERE name = 'a';
SELECT t.settle() \g /dev/null
SELECT key, state, node FROM sas.watches ORDER BY 1;
SELECT * FROM _sas.watch_note;

\echo functions: workers of their own host them
SELECT t.clean() \g /dev/null
SELECT t.node('a', 10), t.node('f', 10, 'function');
SELECT t.ask(2, 'sweep');
SELECT t.claim_watches('a');
SELECT t.claim_watches('f');
SELECT owner = 'postgres'::regrole::oid AS owned, function, input, cursor, every_ms, stop FROM _sas.begin_invocation(2, 1, 1);
SELECT _sas.end_invocation(2, 1, 1, '{"at": 5}');
SELECT input FROM _sas.begin_invocation(2, 1, 1);
SELECT _sas.end_invocation(1, 1, 1, '6');
SELECT count(*) FROM _sas.begin_invocation(2, 1, 7);
\echo one that ends its worker goes on at once the first time, and then after pauses
UPDATE t.worker SET alive = false WHERE name = 'f';
SELECT t.supervise() > 0 AS found;
SELECT t.node('g', 10, 'function');
SELECT t.claim_watches('g');
UPDATE t.worker SET alive = false WHERE name = 'g';
SELECT t.supervise() > 0 AS found;
SELECT t.node('h', 10, 'function');
SELECT t.claim_watches('h');
SELECT next_due - sas.now() AS looked_at_in FROM _sas.supervise_watches(1, ARRAY(SELECT id FROM t.worker WHERE alive), (SELECT max(id) FROM t.worker));
SELECT t.later('1 s') \g /dev/null
SELECT t.claim_watches('h');
SELECT * FROM t.watches();
\echo after that it is noted before it is called: whoever was called when the worker ended is known, the others are not blamed
SELECT sas.create_watcher('sweep', '{"function": "t.echo", "every": "1 h", "retry": {"jitter": false, "max_failures": 4}}');
SELECT n, stop, suspect, noted FROM unnest('{1,2}'::int[]) n, _sas.begin_invocation(4, n, 3);
SELECT _sas.note_invocation(4, 1, 3), _sas.note_invocation(3, 2, 3), _sas.note_invocation(4, 2, 3), _sas.end_invocation(4, 1, 3, NULL);
SELECT n, stop, suspect, noted FROM unnest('{1,2}'::int[]) n, _sas.begin_invocation(4, n, 3);
UPDATE t.worker SET alive = false WHERE name = 'h';
SELECT t.supervise() > 0 AS found;
SELECT * FROM t.watches();
SELECT t.node('i', 10, 'function'), t.claim_watches('i');
SELECT t.later('2 s') \g /dev/null
SELECT t.claim_watches('i');
\echo which is a failure: with a limit it has failed when that is reached
SELECT _sas.note_invocation(5, 2, 4);
UPDATE t.worker SET alive = false WHERE name = 'i';
SELECT t.supervise() > 0 AS found;
SELECT * FROM t.watches();
SELECT kind, message FROM t.alerts();
\echo and after a quiet time nobody is suspected any more
SELECT t.node('j', 10, 'function'), t.claim_watches('j');
SELECT suspect FROM _sas.begin_invocation(6, 1, 5);
SELECT t.later('61 s') \g /dev/null
SELECT suspect FROM _sas.begin_invocation(6, 1, 5);

\echo nor is one that could not be taken over together with that one
SELECT t.clean() \g /dev/null
SELECT t.node('k', 10, 'function') \g /dev/null
SELECT t.ask(3, 'sweep');
SELECT t.claim_watches('k');
SELECT _sas.note_invocation(1, 2, 1);
CREATE FUNCTION t.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'it is broken'; END $$;
CREATE TRIGGER break BEFORE DELETE ON _sas.watch_held FOR EACH ROW WHEN (OLD.watch_id = 1) EXECUTE FUNCTION t.refuse();
UPDATE t.worker SET alive = false WHERE name = 'k';
SELECT t.supervise() > 0 AS found;
SELECT * FROM t.watches();
SELECT name, ended_for FROM sas.nodes;
DROP TRIGGER break ON _sas.watch_held;
SELECT t.later('1 min') \g /dev/null
SELECT t.supervise() > 0 AS found;
SELECT * FROM t.watches();
DROP FUNCTION t.refuse();

\echo outside programs
SELECT t.clean() \g /dev/null
SELECT t.ask(3, 'camera');
SELECT sas.register_node('', 5, '{host}');
SELECT sas.register_node('p', -1, '{host}');
SELECT sas.register_node('p', 5, '{feed}');
SELECT sas.register_node('p', 5, '{}');
SELECT sas.register_node('p', 5, '{host}', lease => '0 s');
SELECT sas.register_node('p', 2, '{host}', '1.0', '10 s');
SELECT * FROM sas.claim_watchers(1, 0);
SELECT watch_id, epoch, watcher, key, request, cursor FROM sas.claim_watchers(1, 5);
SELECT * FROM sas.heartbeat_node(1);
SELECT sas.append_items(1, 1, '[{"n": 1}]', '"x"');
SELECT sas.append_items(1, 2, '[{"n": 1}]');
SELECT sas.append_items(3, 1, '[{"n": 1}]');
SELECT sas.append_items(1, 1, '{"n": 1}');
SELECT * FROM sas.fail_watch(2, 1, 'the device is off');
SELECT * FROM sas.fail_watch(2, 9, 'the device is off');
SELECT * FROM t.watches();
\echo its news
SELECT key, state FROM sas.unwatch('camera', '{2}');
SELECT sas.create_watcher('camera', '{"agent": "host", "external": {"new": "{{key}}"}, "items": {"table": "t.item"}, "retry": {"jitter": false}}');
SELECT * FROM sas.heartbeat_node(1);
SELECT * FROM sas.heartbeat_node(1);
SELECT sas.release_watches(1, '{2,3}');
SELECT * FROM t.watches();
SELECT key FROM sas.claim_watchers(1, 5);
\echo silent for longer than its lease: its writes are refused before anybody has found it
SELECT t.later('10 s') \g /dev/null
SELECT sas.append_items(1, 1, '[{"n": 2}]');
SELECT * FROM sas.heartbeat_node(1);
SELECT * FROM sas.claim_watchers(1, 5);
SELECT t.supervise() > 0 AS found;
SELECT * FROM t.nodes;
SELECT state, node, restarts, count(*) FROM sas.watches GROUP BY 1, 2, 3 ORDER BY 1;
SELECT sas.leave_node(1);
\echo it comes back under its name, and again without having said good-bye: what the life before held waits
SELECT sas.register_node('p', 5, '{host}');
SELECT key, epoch FROM sas.claim_watchers(2, 5);
SELECT sas.register_node('p', 5, '{host}');
SELECT * FROM t.nodes;
SELECT key, epoch FROM sas.claim_watchers(3, 5);
SELECT sas.append_items(1, 2, '[]'), sas.append_items(1, 3, '[]');
\echo good-bye
SELECT sas.leave_node(3), sas.leave_node(3);
SELECT * FROM sas.heartbeat_node(3);
SELECT * FROM sas.heartbeat_node(77);
SELECT state, node, restarts, count(*) FROM sas.watches GROUP BY 1, 2, 3 ORDER BY 1;
\echo one whose request cannot be made is not given to a program
SELECT sas.create_watcher('camera', '{"agent": "host", "external": {"must": "{{input.must}}"}, "items": {"table": "t.item"}, "retry": {"jitter": false}}');
SELECT sas.register_node('q', 5, '{host}');
SELECT key FROM sas.claim_watchers(4, 5);
SELECT * FROM t.watches();
\echo the two seconds of a node that has ended meanwhile were its, too: nothing was found late then
SELECT t.clean() \g /dev/null
SELECT t.node('a', 10), t.node('b', 10);
SELECT t.later('1 s') \g /dev/null
UPDATE t.worker SET alive = false WHERE name = 'b';
SELECT t.supervise() > 0 AS found;
SELECT ago, _sas.free_from(n, sas.now() - ago) - (sas.now() - ago) AS others_have FROM _sas.node n, unnest('{1 s, 0 s}'::interval[]) ago WHERE n.name = 'a';

\echo a node of several agents goes on for the others when its role loses one of them
SELECT t.clean() \g /dev/null
SELECT sas.create_agent('other', kind => 'external'), sas.create_agent('third', kind => 'external'), sas.create_watcher('other', '{"agent": "other", "external": {}, "items": {"table": "t.item"}}'), sas.create_watcher('camera', '{"agent": "host", "external": {}, "items": {"table": "t.item"}}') \g /dev/null
CREATE ROLE sas_test_host;
SELECT sas.grant_usage('sas_test_host', 'worker', a) FROM unnest('{host,other}'::text[]) a \g /dev/null
SELECT t.ask(2, 'camera'), t.ask(2, 'other');
SET ROLE sas_test_host;
SELECT node_id AS several FROM sas.register_node('several', 10, '{host,other}') AS node_id \gset
SELECT watcher, key FROM sas.claim_watchers(:several, 10) ORDER BY 1, 2;
RESET ROLE;
SELECT sas.revoke_usage('sas_test_host') \g /dev/null
SELECT sas.grant_usage('sas_test_host', 'worker', 'host') \g /dev/null
SET ROLE sas_test_host;
SELECT * FROM sas.heartbeat_node(:several);
SELECT watcher, key FROM sas.claim_watchers(:several, 10) ORDER BY 1, 2;
RESET ROLE;
SELECT t.ask(3, 'camera') \g /dev/null
SELECT t.later('3 s') \g /dev/null
SET ROLE sas_test_host;
SELECT watcher, key FROM sas.claim_watchers(:several, 10) ORDER BY 1, 2;
SELECT * FROM sas.heartbeat_node(:several);
RESET ROLE;
SELECT watcher, state, node, count(*) FROM sas.watches GROUP BY 1, 2, 3 ORDER BY 1, 2;
\echo and stops when it has lost them all
SELECT sas.revoke_usage('sas_test_host') \g /dev/null
SELECT sas.grant_usage('sas_test_host', 'worker', 'third') \g /dev/null
SET ROLE sas_test_host;
SELECT * FROM sas.claim_watchers(:several, 10);
SELECT * FROM sas.heartbeat_node(:several);
RESET ROLE;
SELECT sas.revoke_usage('sas_test_host') \g /dev/null
DROP ROLE sas_test_host;

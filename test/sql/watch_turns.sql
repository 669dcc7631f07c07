-- SPDX-License-Identifier: PostgreSQL
--
-- Streams of an agent: owners take turns for each place that gets free, and leave places to other owners that use the agent, too.
\set SHOW_CONTEXT never
SELECT t.clean(), t.watching() \g /dev/null
SELECT sas.alter_agent('feed', options => '{"max_streams": 8}') \g /dev/null
CREATE ROLE sas_test_stream_a;
CREATE ROLE sas_test_stream_b;
CREATE ROLE sas_test_stream_c;
SELECT sas.grant_usage(r::regrole, 'user') FROM unnest('{sas_test_stream_a,sas_test_stream_b,sas_test_stream_c}'::text[]) r \g /dev/null
CREATE FUNCTION t.share() RETURNS void LANGUAGE sql AS $$
    SELECT t.allow(r::regrole) FROM unnest('{sas_test_stream_a,sas_test_stream_b,sas_test_stream_c}'::text[]) r $$;
GRANT USAGE ON SCHEMA t TO sas_test_stream_a, sas_test_stream_b, sas_test_stream_c;
GRANT INSERT ON t.item TO sas_test_stream_a, sas_test_stream_b, sas_test_stream_c;
-- t.ask(owner, n): that role wants so many streams more
CREATE FUNCTION t.ask(owner text, n int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    made bigint;
BEGIN
    PERFORM set_config('role', 'sas_test_stream_' || owner, true);
    IF NOT EXISTS (SELECT FROM sas.watchers w WHERE w.watcher = 'feed_' || $1) THEN
        PERFORM sas.create_watcher('feed_' || owner, '{"agent": "feed", "stream": {"format": "sse"}, "items": {"table": "t.item"}}');
    END IF;
    SELECT count(w.watch_id) INTO made FROM generate_series(1, n) g, sas.watch('feed_' || owner, owner || g, adopt => true) w;
    PERFORM set_config('role', 'none', true);
    RETURN made;
END $$;
-- t.streams(): how many each owner has, once all that can be given are given
CREATE FUNCTION t.streams(quantity int DEFAULT 100) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM t.later('3 s'), t.claim_watches('n', quantity);
    RETURN (SELECT string_agg(right(x.owner, 1) || ' ' || x.n, ', ' ORDER BY x.owner)
            FROM (SELECT w.owner::text, count(*) AS n FROM _sas.watch_held JOIN _sas.watch w USING (watch_id) GROUP BY 1) x);
END $$;
-- t.ended(owner, quantity): so many streams of that owner end
CREATE FUNCTION t.ended(owner text, quantity int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM sas.unwatch('feed_' || $1, ARRAY(SELECT w.key FROM _sas.watch_held JOIN _sas.watch w USING (watch_id)
                                              WHERE w.owner::text = 'sas_test_stream_' || $1 ORDER BY w.watch_id LIMIT quantity));
    PERFORM t.release('n', ARRAY(SELECT w.key FROM _sas.watch_held JOIN _sas.watch w USING (watch_id) WHERE w.state = 'on_deleting'));
END $$;
SELECT t.node('n', 100);

\echo a role with the only grant has all streams
SELECT sas.grant_agent('feed', 'sas_test_stream_a') \g /dev/null
SELECT t.ask('a', 20);
SELECT t.streams();
\echo with several grants it leaves some to the others, even before one comes
SELECT t.ended('a', 8) \g /dev/null
SELECT t.share() \g /dev/null
SELECT t.streams();
\echo the last one is only for an owner that has none
SELECT t.ask('b', 20);
SELECT t.streams(), t.streams();
SELECT t.ended('a', 1) \g /dev/null
SELECT t.streams();
SELECT t.ask('c', 20);
\echo a place that gets free is for the owner with the fewest
SELECT t.ended('a', 1) \g /dev/null
SELECT t.streams();
SELECT t.ended('a', 3) \g /dev/null
SELECT t.streams();
\echo a role that was alone keeps all; the first place that gets free is for the one that comes later
SELECT t.clean() \g /dev/null
SELECT sas.revoke_agent('feed', r::regrole) FROM unnest('{sas_test_stream_b,sas_test_stream_c}'::text[]) r \g /dev/null
SELECT t.node('n', 100);
SELECT t.ask('a', 20);
SELECT t.streams();
SELECT t.share() \g /dev/null
SELECT t.ask('b', 20);
SELECT t.streams();
SELECT sas.pause_watch('feed_a', '{a1}') \g /dev/null
SELECT t.release('n', '{a1}') \g /dev/null
SELECT t.streams();
\echo who has waited for long is not served alone, not even by a node with few places
SELECT t.clean() \g /dev/null
SELECT sas.alter_agent('feed', reset => '{options}') \g /dev/null
SELECT t.node('n', 6);
SELECT t.ask('a', 20);
SELECT t.later('1 min') \g /dev/null
SELECT t.ask('b', 20), t.ask('c', 1);
SELECT t.streams(2);
SELECT t.streams(2);
SELECT t.streams(2);

\echo beside very many of an owner, no more than a thousand are counted where nothing is limited
SELECT t.clean() \g /dev/null
SELECT t.node('n', 10) \g /dev/null
SELECT agent_id AS lane FROM _sas.agent WHERE name = 'host' \gset
INSERT INTO _sas.watch_held SELECT g, t.node_id('n'), :lane, 1, 1, 'sas_test_stream_a' FROM generate_series(1, 5000) g;
INSERT INTO _sas.watch_held SELECT g, t.node_id('n'), :lane, 1, 1, 'sas_test_stream_b' FROM generate_series(5001, 5010) g;
INSERT INTO _sas.watch_wait (watch_id, lane, owner, due_at) SELECT 5010 + g, :lane, (CASE WHEN g < 4 THEN 'sas_test_stream_a' ELSE 'sas_test_stream_b' END)::regrole, sas.now() FROM generate_series(1, 6) g;
BEGIN;
SELECT idx_tup_fetch AS before FROM pg_stat_xact_user_tables WHERE relid = '_sas.watch_held'::regclass \gset
SELECT s.owner::regrole, s.share FROM _sas.watch_shares(ARRAY[:lane], ARRAY[NULL]::bigint[], ARRAY[NULL]::int[], 2) s;
SELECT idx_tup_fetch - :before BETWEEN 1000 AND 1100 AS few FROM pg_stat_xact_user_tables WHERE relid = '_sas.watch_held'::regclass;
COMMIT;

SELECT t.clean() \g /dev/null
DELETE FROM _sas.watcher WHERE name ~ '^feed_';
DROP FUNCTION t.ask(text, int), t.streams(int), t.ended(text, int), t.share();
SELECT sas.revoke_agent(a.name, r::regrole) FROM sas.agents a, unnest('{sas_test_stream_a,sas_test_stream_b,sas_test_stream_c}'::text[]) r \g /dev/null
DROP OWNED BY sas_test_stream_a, sas_test_stream_b, sas_test_stream_c;
DROP ROLE sas_test_stream_a, sas_test_stream_b, sas_test_stream_c;

-- SPDX-License-Identifier: PostgreSQL
--
-- watch_define: what a watcher may say; what is wrong is refused with its
-- place and a hint, and nothing is stored.
\set SHOW_CONTEXT never
SELECT t.clean(), t.watching() \g /dev/null
\echo all four kinds
SELECT sas.create_watcher('prices', '{"agent": "feed", "stream": {"format": "sse", "path": "/prices/{{key}}", "query": {"since": "{{cursor}}"}, "idle_timeout": "1 min"}, "items": {"table": "t.item"}}');
SELECT sas.create_watcher('stock', '{"agent": "feed", "poll": {"call": {"path": "/stock", "timeout": "5 s"}, "every": "10 s"}, "items": {"function": "t.take_items"}}');
SELECT sas.create_watcher('sweep', '{"function": "t.echo", "every": "1 h"}');
SELECT sas.create_watcher('camera', '{"agent": "host", "external": {"device": "{{input.device}}"}, "items": {"function": "t.take_items", "item": {"of": "{{key}}", "is": "{{item}}"}}, "cursor": {"start": 0, "next": "{{item.seq}}"}, "retry": {"max_failures": 3, "initial": "1 s", "max": "1 min", "backoff": "linear", "jitter": false, "reset_after": "10 s"}}');
SELECT watcher, kind, agent, watches FROM sas.watchers ORDER BY 1;
SELECT request FROM _sas.watcher ORDER BY name;

\echo what is refused, where, and what to do
CREATE FUNCTION t.refused(definition jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    detail text;
    hint text;
BEGIN
    PERFORM sas.create_watcher('wrong', definition);
    RETURN 'taken';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN concat_ws(' | ', SQLSTATE, SQLERRM, detail, hint);
END $$;
SELECT t.refused('7');
SELECT t.refused('{}');
SELECT t.refused('{"function": "t.echo", "every": "1 s", "speed": 1}');
SELECT t.refused('{"function": "t.echo", "every": "1 s", "external": {}}');
SELECT t.refused('{"function": "t.echo"}');
SELECT t.refused('{"function": "t.echo", "every": "soon"}');
SELECT t.refused('{"function": "t.nothing", "every": "1 s"}');
SELECT t.refused('{"function": "t.echo", "every": "1 s", "agent": "feed"}');
SELECT t.refused('{"function": "t.echo", "every": "1 s", "items": {"table": "t.item"}}');
SELECT t.refused('{"function": "t.echo", "every": "1 s", "cursor": {"next": "{{item}}"}}');
SELECT t.refused('{"stream": {"format": "sse"}, "items": {"table": "t.item"}}');
SELECT t.refused('{"agent": "nobody", "stream": {"format": "sse"}, "items": {"table": "t.item"}}');
SELECT t.refused('{"agent": "host", "stream": {"format": "sse"}, "items": {"table": "t.item"}}');
SELECT t.refused('{"agent": "feed", "external": {}, "items": {"table": "t.item"}}');
SELECT t.refused('{"agent": "feed", "stream": {"format": "xml"}, "items": {"table": "t.item"}}');
SELECT t.refused('{"agent": "feed", "stream": {}, "items": {"table": "t.item"}}');
SELECT t.refused('{"agent": "feed", "stream": {"format": "sse", "path": "http://elsewhere/"}, "items": {"table": "t.item"}}');
SELECT t.refused('{"agent": "feed", "stream": {"format": "sse", "path": "/{{steps.a.output}}"}, "items": {"table": "t.item"}}');
SELECT t.refused('{"agent": "feed", "stream": {"format": "sse", "retry": 1}, "items": {"table": "t.item"}}');
SELECT t.refused('{"agent": "feed", "stream": {"format": "sse", "idle_timeout": "0 s"}, "items": {"table": "t.item"}}');
SELECT t.refused('{"agent": "feed", "stream": {"format": "sse"}, "every": "1 s", "items": {"table": "t.item"}}');
SELECT t.refused('{"agent": "feed", "poll": {"call": {}}, "items": {"table": "t.item"}}');
SELECT t.refused('{"agent": "feed", "poll": {"call": {"method": "FETCH"}, "every": "1 s"}, "items": {"table": "t.item"}}');
SELECT t.refused('{"agent": "feed", "poll": {"every": "1 s"}, "items": {"table": "t.item"}}');
SELECT t.refused('{"agent": "host", "external": {}}');
SELECT t.refused('{"agent": "host", "external": {}, "items": {}}');
SELECT t.refused('{"agent": "host", "external": {}, "items": {"table": "t.item", "function": "t.take_items"}}');
SELECT t.refused('{"agent": "host", "external": {}, "items": {"table": "t.nothing"}}');
SELECT t.refused('{"agent": "host", "external": {}, "items": {"table": "item"}}');
SELECT t.refused('{"agent": "host", "external": {}, "items": {"table": "t.worker"}}');
SELECT t.refused('{"agent": "host", "external": {}, "items": {"workflow": "nowhere"}}');
SELECT t.refused('{"agent": "host", "external": {}, "items": {"table": "t.item", "key": "{{item}}"}}');
SELECT t.refused('{"agent": "host", "external": {}, "items": {"table": "t.item", "item": "{{items}}"}}');
SELECT t.refused('{"agent": "host", "external": "{{output}}", "items": {"table": "t.item"}}');
SELECT t.refused('{"agent": "host", "external": {}, "items": {"table": "t.item"}, "cursor": 7}');
SELECT t.refused('{"agent": "host", "external": {}, "items": {"table": "t.item"}, "cursor": {"start": "{{cursor}}"}}');
SELECT t.refused('{"agent": "host", "external": {}, "items": {"table": "t.item"}, "retry": {"max_attempts": 3}}');
SELECT t.refused('{"agent": "host", "external": {}, "items": {"table": "t.item"}, "retry": {"reset_after": 3}}');
SELECT t.refused('{"agent": "host", "external": {}, "items": {"table": "t.item"}, "retry": {"max_failures": 0}}');
SELECT sas.create_watcher('Wrong', '{"function": "t.echo", "every": "1 s"}');
SELECT count(*) FROM sas.watchers WHERE watcher ILIKE 'wrong';

\echo an agent is in use as long as a watcher names it
SELECT sas.drop_agent('host');
\echo a watcher is dropped once its tasks are deleted
SELECT created FROM sas.watch('sweep', 'all');
SELECT sas.drop_watcher('sweep');
SELECT key, changed, state FROM sas.unwatch('sweep', '{all}');
SELECT sas.drop_watcher('sweep');
SELECT sas.drop_watcher('sweep');
SELECT * FROM sas.watch('sweep', 'all');
SELECT count(*) FROM _sas.watch_flow;

-- SPDX-License-Identifier: PostgreSQL
--
-- sas.node_id: ids of runs and alerts carry the node that gave them out; one machine keeps small ids, and a server
-- whose number changes, up or down, loses and repeats nothing.
SELECT t.clean() \g /dev/null
\set SHOW_CONTEXT never
SELECT t.workflow('noded', '{"a": {"agent": "inventory", "call": {}}}', '{"hooks": [{"on": "stopped", "function": "t.echo"}]}') \g /dev/null
SELECT t.workflow('plain_noded', '{"a": {"agent": "inventory", "call": {}}}') \g /dev/null
-- t.ids(run_ids): node and number
CREATE FUNCTION t.ids(run_ids bigint[]) RETURNS text LANGUAGE sql AS $$
    SELECT string_agg((u >> 41) || ':' || (u & ((1::bigint << 41) - 1)), ' ' ORDER BY n) FROM unnest(run_ids) WITH ORDINALITY AS u (u, n)
$$;

\echo alone it is node 0
SHOW sas.node_id;
SELECT run_id FROM sas.submit('plain_noded');
\echo every way of a submit, hooks and alerts; JSON keeps the id
SET sas.node_id = 3;
SELECT t.ids(ARRAY[run_id]) FROM sas.submit('plain_noded');
SELECT t.ids(array_agg(run_id)) FROM sas.submit_batch('plain_noded', '{"{}", "{}"}');
SELECT t.ids(ARRAY[run_id]) FROM sas.submit('plain_noded', start_at => t.start() + interval '1 day');
SELECT t.ids(ARRAY[run_id]) FROM sas.submit('plain_noded', key => 'k');
SELECT t.ids(ARRAY[run_id]), created FROM sas.submit('plain_noded', key => 'k');
SELECT run_id FROM sas.submit('noded') \gset
SELECT count(*) FROM sas.halt(:run_id);
SELECT t.ids(array_agg(run_id ORDER BY run_id)) FROM _sas.run WHERE hook_of = :run_id;
SELECT t.ids(ARRAY[alert_id]) FROM sas.alerts;
SELECT to_jsonb(:run_id::bigint)::text = :'run_id' AS json, :run_id::float8::bigint = :run_id AS exact;
\echo the largest node, the last number
SET sas.node_id = 4095;
SELECT setval('_sas.run_run_id_seq', 2199023255550) \g /dev/null
SELECT run_id, run_id = 2::bigint ^ 53 - 1 AS is_last FROM sas.submit('plain_noded');
SELECT run_id FROM sas.submit('plain_noded');
SET sas.node_id = 4096;
RESET sas.node_id;

\echo down and up again: what was submitted when is found
SELECT t.clean() \g /dev/null
CREATE FUNCTION t.submit_on(node int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    made bigint;
BEGIN
    PERFORM set_config('sas.node_id', node::text, true), t.later('1 hour');
    SELECT run_id INTO made FROM sas.submit('plain_noded');
    RETURN made;
END $$;
SELECT t.ids(ARRAY[t.submit_on(n)]) FROM unnest('{5,5,2,2,9,0,2}'::int[]) n;
SELECT since, t.ids(ARRAY(SELECT run_id FROM sas.find_runs(jsonb_build_object('created_after', t.start() + since * interval '1 h')))) AS after,
       t.ids(ARRAY(SELECT run_id FROM sas.find_runs(jsonb_build_object('created_before', t.start() + since * interval '1 h')))) AS before
FROM unnest('{0,2.5,4.5,6.5,9}'::float8[]) since;

SELECT t.clean() \g /dev/null
SELECT sas.drop_workflow(w) FROM unnest('{noded,plain_noded}'::text[]) w \g /dev/null

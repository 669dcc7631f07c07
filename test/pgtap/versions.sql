-- SPDX-License-Identifier: PostgreSQL
--
-- Versions: a definition makes one when it comes to something else than the current version is.
\set QUIET on
\pset format unaligned
\pset tuples_only on
\pset pager off
BEGIN;
SELECT plan(18);
CREATE SCHEMA versions;
CREATE FUNCTION versions.echo(jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT $1';
CREATE FUNCTION versions.other(jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT $1';
CREATE ROLE versions_other SUPERUSER;
SELECT sas.create_agent('versions_a', 'http://127.0.0.1:1'), sas.create_agent('versions_b', 'http://127.0.0.1:1'), sas.create_queue('versions_q', 1);

SELECT is(sas.create_workflow('inner_one', '{"steps": {"a": {"function": "versions.echo"}}}'), 1, 'the first version');
SELECT is(sas.create_workflow('inner_one', '{"steps": {"a":   {"function": "versions.echo"}}}'), 1, 'the same again makes none');
SELECT is(sas.create_workflow('inner_one', '{"steps": {"a": {"function": "versions.other"}}}'), 2, 'another one does');
SELECT is(sas.create_workflow('inner_one', '{"steps": {"a": {"function": "versions.echo"}}}'), 3, 'so does one that was current before');
SELECT is((SELECT string_agg(version::text, ' ' ORDER BY version) FROM sas.versions WHERE workflow = 'inner_one'), '1 2 3', 'there are no others');

CREATE FUNCTION versions.outer_one() RETURNS int LANGUAGE sql AS $$
    SELECT sas.create_workflow('outer_one', '{"steps": {
        "i": {"include": "inner_one"},
        "c": {"agent": "versions_a", "call": {"path": "/a"}, "undo": {"function": "versions.echo"}, "queue": "versions_q"},
        "w": {"workflow": "inner_one", "after": ["c"]}},
        "hooks": [{"on": "success", "agent": "versions_b", "call": {"path": "/b"}}], "finalize": "versions.echo", "mask": ["input.x"],
        "concurrency": {"key": "{{input.k?}}"}}')
$$;
SELECT is(versions.outer_one(), 1, 'one with an include, a child, a hook and more');
SELECT is(versions.outer_one(), 1, 'the same again makes none');
SELECT sas.create_workflow('inner_one', '{"steps": {"a": {"function": "versions.other"}}}');
SELECT is(versions.outer_one(), 2, 'what it includes has changed: it comes to something else');
SELECT is(versions.outer_one(), 2, 'once');
SELECT sas.create_workflow('without', '{"steps": {"c": {"agent": "versions_a", "call": {"path": "/a"}}}}');
SELECT sas.create_agent('versions_c', 'http://127.0.0.1:1');
SELECT is(sas.create_workflow('without', '{"steps": {"c": {"agent": "versions_a", "call": {"path": "/a"}}}}'), 1, 'the same agent');
SELECT is((SELECT count(*) FROM sas.history WHERE act = 'create_workflow' AND detail::text LIKE '%without%'), 1::bigint, 'what changes nothing leaves no row in the history');
SET SESSION AUTHORIZATION versions_other;
SELECT is(sas.create_workflow('without', '{"steps": {"c": {"agent": "versions_a", "call": {"path": "/a"}}}}'), 2, 'the same text by another role is another version: it is trusted as that role is');
SELECT is(sas.create_workflow('without', '{"steps": {"c": {"agent": "versions_a", "call": {"path": "/a"}}}}'), 2, 'once');
RESET SESSION AUTHORIZATION;
-- a new node gets what the coordinator has, also a reference that this release refuses; what it may not use it does not get
CREATE FUNCTION versions.applies(step text, n int) RETURNS text LANGUAGE sql AS $$
    SELECT applied::text FROM _sas.apply_definitions(jsonb_build_array(jsonb_build_object('kind', 'version', 'name', 'carried', 'owner', current_user, 'place', 1, 'needed', true,
        'facts', jsonb_build_object('version', n, 'created_by', current_user, 'definition', format('{"steps": {"a": {"function": "versions.echo"}, "b": %s}}', step)::jsonb)))) $$;
SELECT throws_ok($$ SELECT sas.create_workflow('carried', '{"steps": {"a": {"function": "versions.echo"}, "b": {"function": "versions.echo", "input": {"x": "{{steps.a.outptu?}}"}}}}') $$, '42P10', NULL, 'a misspelled member is refused where it is defined');
SELECT is(versions.applies('{"function": "versions.echo", "input": {"x": "{{steps.a.outptu?}}"}}', 1), '1', 'a new node takes it from the coordinator');
SELECT throws_ok($$ SELECT versions.applies('{"function": "versions.none", "input": {"x": "{{steps.a.outptu?}}"}}', 2) $$, '42883', NULL, 'but none whose function is lacking');
SELECT is((SELECT string_agg(version::text, ' ') FROM sas.versions WHERE workflow = 'carried'), '1', 'one version is there');
SELECT throws_ok($$ SELECT sas.create_workflow('without', '{"steps": {"c": {"agent": "nobody", "call": {}}}}') $$, '42704', NULL, 'a wrong one is refused as ever');
SELECT * FROM finish();
ROLLBACK;

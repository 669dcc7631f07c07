-- SPDX-License-Identifier: PostgreSQL
--
-- sas.find_runs: the newest runs that fit, page by page, each role its own; what was found by an index is what
-- a comparison with every run finds.
SELECT t.clean() \g /dev/null
\set SHOW_CONTEXT never
CREATE ROLE seeker; CREATE ROLE few; CREATE ROLE guard;
SELECT sas.grant_usage('seeker', 'user'), sas.grant_usage('few', 'user'), sas.grant_usage('guard', 'monitor') \g /dev/null
SELECT t.workflow(w, '{"a": {"agent": "inventory", "call": {}}}'), sas.grant_workflow(w, 'seeker'), sas.grant_workflow(w, 'few') FROM unnest('{one,two}'::text[]) w \g /dev/null
SELECT sas.grant_agent('inventory', r) FROM unnest('{seeker,few}'::regrole[]) r \g /dev/null
SET ROLE few;
\echo a search is checked also for a role that sees no run
SELECT run_id FROM sas.find_runs('{"stat": "paused"}');
SELECT count(*) FROM sas.find_runs('{}', 0);
SELECT run_id FROM sas.submit('one', '{"card": 4711}', key => 'k', labels => '{"tenant": "a", "n": 1}');
SELECT run_id FROM sas.submit_batch('two', '{"{}","{}"}', labels => '{"tenant": "b", "list": [1, {"x": 2}]}');
SET ROLE seeker;
SELECT run_id FROM sas.submit('one', '{"card": 12}', key => 'k', labels => '{"tenant": "a", "n": 2}');
SELECT run_id FROM sas.submit('two', '{}', start_at => t.start() + interval '1 day', labels => '{"tenant": "a"}');
SELECT run_id FROM sas.submit('two', '{}');
RESET ROLE;
\echo labels are rows, by both ways of a submit
SELECT l.run_id, l.owner, count(*), bool_and(EXISTS (SELECT FROM jsonb_each(r.labels) e WHERE _sas.label_hash(e.key, e.value) = l.label)) AS right
FROM _sas.run_label l JOIN _sas.run r USING (run_id) GROUP BY 1, 2 ORDER BY 1;
CREATE TABLE t.searches (n int GENERATED ALWAYS AS IDENTITY, search jsonb);
GRANT SELECT ON t.searches TO seeker, few, guard; GRANT USAGE ON SCHEMA t TO seeker, few, guard;
INSERT INTO t.searches (search) VALUES ('{}'), ('{"run_id": 1}'), ('{"key": "k"}'), ('{"key": "k", "workflow": "two"}'), ('{"workflow": "two"}'),
    ('{"workflow": "none"}'), ('{"labels": {}}'), ('{"labels": {"tenant": "a"}}'), ('{"labels": {"tenant": "a", "n": 1.0}}'), ('{"labels": {"list": [1, {"x": 2}]}}'),
    ('{"labels": {"list": [1]}}'), ('{"labels": {"tenant": "b"}, "workflow": "one"}'), ('{"state": "scheduled"}'), ('{"state": ["pending", "running"]}'),
    ('{"state": "stopped"}'), ('{"result": "error"}'), ('{"submitted_by": "few"}'), ('{"submitted_by": "nobody_is_it"}'), ('{"text": "4711"}'), ('{"text": "TENANT"}'),
    ('{"created_after": "2000-01-01"}'), ('{"created_before": "2000-01-01"}'), ('{"finished_after": "2000-01-01"}'), ('{"run_id": 99}');
\echo what each role finds
CREATE FUNCTION t.found(who text, search jsonb) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    ids bigint[];
BEGIN
    EXECUTE format('SET LOCAL ROLE %I', who);
    ids := ARRAY(SELECT run_id FROM sas.find_runs(search));
    RESET ROLE;
    RETURN ids;
END $$;
SELECT s.search, t.found('postgres', s.search) AS postgres, t.found('seeker', s.search) AS seeker, t.found('few', s.search) AS few, t.found('guard', s.search) AS guard
FROM t.searches s ORDER BY s.n;
\echo a search that no index helps ends after so many runs, and says where
SELECT run_id FROM sas.find_runs('{"text": "no run has it", "compare": 2}', 1);
SELECT run_id FROM sas.find_runs('{"text": "no run has it", "compare": null}', 1);
SELECT run_id FROM sas.find_runs('{"compare": 0}');
\echo page by page
SELECT run_id FROM sas.find_runs('{}', 2);
SELECT run_id FROM sas.find_runs('{}', 2, 5);
SELECT run_id FROM sas.find_runs('{"labels": {"tenant": "a"}}', 1, 4);
\echo among many runs: few and many of everything, the same as a comparison with each
DO $$
DECLARE
    columns text := (SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
                     WHERE attrelid = '_sas.run'::regclass AND attnum > 0 AND attname NOT IN ('run_id', 'owner', 'key', 'version_id', 'labels', 'created_at', 'state', 'result'));
BEGIN
    EXECUTE format($q$INSERT INTO _sas.run (run_id, owner, key, version_id, labels, created_at, state, result, %1$s) OVERRIDING SYSTEM VALUE
        SELECT 1000 + g, CASE WHEN g %% 2 = 0 THEN 'seeker' WHEN g %% 5000 = 1 THEN 'few' ELSE 'postgres' END::regrole, 'k' || g %% 20000,
               (SELECT max(version_id) FROM _sas.workflow_version JOIN _sas.workflow f USING (workflow_id) WHERE f.dropped_at IS NULL AND f.name = CASE WHEN g %% 3000 < 2 THEN 'two' ELSE 'one' END),
               jsonb_build_object('tenant', CASE WHEN g %% 7 = 0 THEN 'a' ELSE 'c' END, 'n', g %% 9000), timestamptz '2030-01-01 00:00+00' + g * interval '1 min',
               'stopped', CASE WHEN g %% 4000 = 5 THEN 'error' ELSE 'success' END, %1$s
        FROM _sas.run, generate_series(1, 30000) g WHERE run_id = 1 ORDER BY g$q$, columns);
    INSERT INTO _sas.run_label SELECT _sas.label_hash(e.key, e.value), r.owner, r.run_id FROM _sas.run r, jsonb_each(r.labels) e WHERE r.run_id > 1000;
END $$;
INSERT INTO t.searches (search) VALUES ('{"labels": {"n": 4000}}'), ('{"labels": {"tenant": "c", "n": 8000}}'), ('{"workflow": "two", "state": "stopped"}'), ('{"result": "error"}'),
    ('{"created_after": "2030-01-03 10:00+00", "created_before": "2030-01-03 12:30+00"}'), ('{"created_before": "2030-01-01 00:05+00"}'),
    ('{"created_after": "2030-01-05 00:00+00", "created_before": "2030-01-09 00:00+00", "labels": {"tenant": "a"}}'), ('{"created_after": "2030-01-05 00:00+00", "workflow": "two"}'),
    ('{"created_after": "-infinity", "created_before": "infinity", "submitted_by": "few"}'), ('{"key": "k4000"}'), ('{"text": "4711", "workflow": "two"}'), ('{"state": ["stopped", "scheduled"]}');
-- what sas.runs shows each of them, compared with everything
CREATE TABLE t.shown (who text, run_id bigint, key text, workflow text, state text, result text, submitted_by text, labels jsonb, created_at timestamptz, finished_at timestamptz, told text);
GRANT INSERT ON t.shown TO seeker, few, guard;
DO $$
DECLARE
    who text;
BEGIN
    FOREACH who IN ARRAY '{postgres,seeker,few,guard}'::text[] LOOP
        EXECUTE format('SET LOCAL ROLE %I', who);
        INSERT INTO t.shown SELECT who, run_id, key, workflow, state, result, submitted_by, labels, created_at, finished_at, concat_ws(' ', key, labels, input, output, error) FROM sas.runs;
    END LOOP;
END $$;
CREATE FUNCTION t.compared(who text, s jsonb, size int, below bigint) RETURNS bigint[] LANGUAGE sql AS $$
    SELECT ARRAY(SELECT r.run_id FROM t.shown r WHERE r.who = $1 AND (s -> 'run_id' IS NULL OR r.run_id = (s ->> 'run_id')::bigint) AND (s -> 'key' IS NULL OR r.key = s ->> 'key')
        AND (s -> 'workflow' IS NULL OR r.workflow = s ->> 'workflow') AND (s -> 'state' IS NULL OR r.state = s ->> 'state' OR s -> 'state' ? r.state)
        AND (s -> 'result' IS NULL OR r.result = s ->> 'result') AND (s -> 'submitted_by' IS NULL OR r.submitted_by = s ->> 'submitted_by')
        AND (s -> 'labels' IS NULL OR NOT EXISTS (SELECT FROM jsonb_each(s -> 'labels') e WHERE r.labels -> e.key IS DISTINCT FROM e.value))
        AND (s -> 'created_after' IS NULL OR r.created_at >= (s ->> 'created_after')::timestamptz) AND (s -> 'created_before' IS NULL OR r.created_at < (s ->> 'created_before')::timestamptz)
        AND (s -> 'finished_after' IS NULL OR r.finished_at >= (s ->> 'finished_after')::timestamptz)
        AND (s -> 'text' IS NULL OR told ~* (s ->> 'text')) AND r.run_id < coalesce(below, 1000000) ORDER BY 1 DESC LIMIT size)
$$;
CREATE FUNCTION t.found_page(who text, search jsonb, size int, below bigint) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    ids bigint[];
BEGIN
    EXECUTE format('SET LOCAL ROLE %I', who);
    ids := ARRAY(SELECT run_id FROM sas.find_runs(search, size, below));
    RESET ROLE;
    RETURN ids;
END $$;
SELECT count(*) AS differ_none_of, array_agg(s.search) FILTER (WHERE f.ids IS DISTINCT FROM c.ids) AS differ, count(*) FILTER (WHERE f.ids <> '{}') AS found_something
FROM t.searches s, unnest('{postgres,seeker,few,guard}'::text[]) who, (VALUES (3, NULL), (60, 29000), (7, 1004)) p (size, below),
     LATERAL (SELECT t.found_page(who, s.search, p.size, p.below) AS ids OFFSET 0) f, LATERAL (SELECT t.compared(who, s.search, p.size, p.below) AS ids OFFSET 0) c;
\echo what there is not is refused
SELECT * FROM sas.find_runs('{"colour": "red"}');
SELECT * FROM sas.find_runs('{"state": "asleep"}');
SELECT * FROM sas.find_runs('{"state": ["running", "asleep"], "result": ["error"]}');
SELECT * FROM sas.find_runs('{"result": ["error", "success", 5]}');
SELECT * FROM sas.find_runs('{"labels": "a"}');
SELECT * FROM sas.find_runs('{"workflow": 1}');
SELECT * FROM sas.find_runs('{"created_after": "soon"}');
SELECT * FROM sas.find_runs('{"run_id": "1"}');
SELECT * FROM sas.find_runs('{}', 0);
SELECT * FROM sas.find_runs(NULL);
SELECT run_id FROM sas.submit('one', '{}', labels => (SELECT jsonb_object_agg('l' || g, g) FROM generate_series(1, 65) g));
\echo labels go with their run
DELETE FROM _sas.run_label WHERE run_id > 1000;
DELETE FROM _sas.run WHERE run_id > 1000;
SELECT changed FROM sas.halt_runs(ARRAY[1, 4]);
SELECT runs FROM _sas.purge_runs(ARRAY[1, 4]::bigint[], true);
SELECT run_id, count(*) FROM _sas.run_label GROUP BY 1 ORDER BY 1;
DROP FUNCTION t.found, t.found_page, t.compared;
DROP TABLE t.searches, t.shown;
REVOKE USAGE ON SCHEMA t FROM seeker, few, guard;
DROP OWNED BY seeker, few, guard;
SELECT t.clean() \g /dev/null
DROP ROLE seeker; DROP ROLE few; DROP ROLE guard;

-- SPDX-License-Identifier: PostgreSQL
--
-- What a person looks at: the newest runs, one by its id or key. A LIMIT, a key and an id reach the indexes of
-- _sas.run, whoever looks; and nobody sees a run of others, whatever the condition is made of.
SELECT t.clean() \g /dev/null
\set SHOW_CONTEXT never
CREATE ROLE looker; CREATE ROLE few; CREATE ROLE guard;
SELECT sas.grant_usage('looker', 'user'), t.allow('looker'), sas.grant_usage('few', 'user'), t.allow('few'), sas.grant_usage('guard', 'monitor') \g /dev/null
SELECT t.workflow('hers_only', '{"a": {"agent": "inventory", "call": {}}}') \g /dev/null
SELECT t.workflow('seen', '{"a": {"agent": "inventory", "call": {}}}'), sas.grant_workflow('seen', 'looker'), sas.grant_workflow('seen', 'few') \g /dev/null
SET ROLE few;
SELECT run_id FROM sas.submit('seen', '{"card": 4711}', key => 'hers');
RESET ROLE;
SELECT run_id FROM sas.submit('seen', '{"n": 1}', key => 'k') \gset model_
-- copies of that run, every hundredth of them the looker's
DO $$
DECLARE
    columns text := (SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
                     WHERE attrelid = '_sas.run'::regclass AND attnum > 0 AND attname NOT IN ('run_id', 'owner', 'key'));
BEGIN
    EXECUTE format('INSERT INTO _sas.run (run_id, owner, key, %1$s) OVERRIDING SYSTEM VALUE
        SELECT 1000 + g, CASE WHEN g %% 100 = 0 THEN ''looker'' ELSE ''postgres'' END::regrole, ''k'' || g, %1$s
        FROM _sas.run, generate_series(1, 30000) g WHERE key = ''k'' ORDER BY g', columns);
END $$;
ANALYZE _sas.run, _sas.workflow;
-- t.look_plan(query, role): how it finds the runs, and whether a LIMIT stands above
CREATE FUNCTION t.look_plan(query text, role text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    line text;
BEGIN
    EXECUTE format('SET LOCAL ROLE %I', role);
    FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
        IF line ~ '(Limit|Sort|on run r|Index Cond: \((run_id|.*owner)|run_pkey|run_by_key)' AND line !~ E'run_id = (r\\.run_id|\\$\\d)'
            -- aggregates in subplans, which newer servers sort before
            AND line !~ '^ *(->  )?Sort( Key: f_\d|$)' OR line ~ '^Sort' THEN
            -- servers name what a subquery gives differently
            RETURN NEXT regexp_replace(regexp_replace(line, '^[ >-]+', ''), 'ANY \(.*', 'ANY (...))');
        END IF;
    END LOOP;
    RESET ROLE;
END $$;
\echo the newest: backwards, until there are enough
SELECT r AS role, p AS plan FROM unnest('{postgres,looker,guard}'::text[]) r, t.look_plan('SELECT * FROM sas.runs ORDER BY run_id DESC LIMIT 20', r) p;
\echo open ones, the newest first
SELECT r AS role, p AS plan FROM unnest('{postgres,looker,guard}'::text[]) r, t.look_plan($$SELECT * FROM sas.runs WHERE state <> 'stopped' ORDER BY run_id DESC LIMIT 20$$, r) p;
\echo by id
SELECT r AS role, p AS plan FROM unnest('{postgres,looker,few,guard}'::text[]) r, t.look_plan('SELECT * FROM sas.runs WHERE run_id = 1200', r) p;
\echo by key
SELECT r AS role, p AS plan FROM unnest('{postgres,looker,few,guard}'::text[]) r, t.look_plan($$SELECT * FROM sas.runs WHERE workflow = 'seen' AND key = 'k200'$$, r) p;
\echo what a statement reads does not depend on what others have: a key of others is like one that nobody has
CREATE FUNCTION t.look_reads(key text, role text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    line text;
    lines text := '';
BEGIN
    EXECUTE format('SET LOCAL ROLE %I', role);
    FOR line IN EXECUTE format('EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT run_id FROM sas.runs WHERE key = %L', key) LOOP
        lines := lines || replace(line, key, '') || E'\n';
    END LOOP;
    RESET ROLE;
    RETURN lines;
END $$;
SELECT k AS key, r AS role, t.look_reads(k, r) = t.look_reads('none', r) AS like_none FROM unnest('{hers,k200,k201}'::text[]) k, unnest('{few,looker}'::text[]) r;
\echo each sees its own
SET ROLE looker;
SELECT count(*), min(run_id), max(run_id) FROM sas.runs;
SELECT run_id, workflow, version, submitted_by, input FROM sas.runs WHERE key IN ('k200', 'k201', 'hers');
SET ROLE few;
SELECT run_id, workflow, version, submitted_by, input, progress FROM sas.runs;
\echo a monitor sees all, without payload
SET ROLE guard;
SELECT count(*), count(input) FROM sas.runs;
\echo a condition that tells what it is asked of is asked of nothing else, however cheap it says that it is
RESET ROLE;
CREATE SCHEMA leak; GRANT ALL ON SCHEMA leak TO looker;
SET ROLE looker;
CREATE FUNCTION leak.tell(anyelement) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS $$
BEGIN
    IF $1::text ~ '4711|hers' THEN
        RAISE NOTICE 'leaked: %', $1;
    END IF;
    RETURN true;
END $$;
SELECT count(*) FROM sas.runs WHERE leak.tell(input) AND leak.tell(key) AND leak.tell(labels);
SELECT count(*) FROM sas.runs WHERE leak.tell(workflow) AND run_id = (SELECT min(run_id) FROM sas.runs);
SELECT count(*) FROM sas.run_details WHERE leak.tell(command) AND leak.tell(username);
SELECT count(*) FROM pg_stats WHERE schemaname = '_sas';
\echo nor can it name the table
SELECT key FROM _sas.run;
RESET ROLE;
\echo a view over it, also that of a superuser, shows who asks its own runs; without a level none
CREATE ROLE stranger; GRANT USAGE ON SCHEMA leak TO few, guard, stranger;
CREATE VIEW leak.of_superuser AS SELECT * FROM sas.runs;
SET ROLE looker;
CREATE VIEW leak.of_looker AS SELECT * FROM sas.runs;
RESET ROLE;
GRANT SELECT ON leak.of_superuser, leak.of_looker TO looker, few, guard, stranger;
SET ROLE few;
SELECT (SELECT array_agg(DISTINCT submitted_by) FROM leak.of_superuser) AS of_superuser, (SELECT array_agg(DISTINCT submitted_by) FROM leak.of_looker) AS of_looker;
SET ROLE stranger;
SELECT count(*) FROM leak.of_superuser;
SELECT count(*) FROM leak.of_looker;
RESET ROLE;
\echo a plan that one role made shows another role its own
SET plan_cache_mode = force_generic_plan;
PREPARE look AS SELECT count(*), count(input) AS inputs, count(DISTINCT submitted_by) AS roles FROM sas.runs;
SET ROLE guard;
EXECUTE look;
SET ROLE few;
EXECUTE look;
SET ROLE stranger;
EXECUTE look;
RESET ROLE;
DEALLOCATE look;
RESET plan_cache_mode;
SET client_min_messages = warning;
DROP SCHEMA leak CASCADE;
DROP OWNED BY stranger; DROP ROLE stranger;
RESET client_min_messages;
DROP FUNCTION t.look_reads;
DROP OWNED BY looker, few, guard;
DELETE FROM _sas.run WHERE run_id > 1000;
\echo open ones are found without a walk, also long after their submit: with a timer, past their deadline, paused, undone after their end
SELECT t.clean() \g /dev/null
SELECT t.workflow('kid', '{"c": {"agent": "inventory", "call": {}, "undo": {"call": {}}}, "k": {"wait": {"signal": "never"}, "after": ["c"]}}') \g /dev/null
SELECT t.workflow('above', '{"p": {"workflow": "kid"}}', '{"deadline": "1 h"}') \g /dev/null
SELECT t.workflow('short', '{"c": {"agent": "inventory", "call": {}, "undo": {"call": {}}}}', '{"deadline": "1 h"}') \g /dev/null
SELECT workflow, run_id FROM unnest('{above,short,short}'::text[]) workflow, sas.submit(workflow);
SELECT t.work();
SELECT t.later('10 min') \g /dev/null
SELECT workflow, run_id FROM unnest('{kid,short,short}'::text[]) workflow, sas.submit(workflow);
SELECT changed FROM sas.pause_runs((SELECT array_agg(run_id) FROM (SELECT run_id FROM sas.runs WHERE workflow = 'short' ORDER BY run_id DESC LIMIT 2) r));
SELECT t.work();
SELECT t.later('55 min'), t.settle() \g /dev/null
SELECT changed FROM sas.compensate(2);
SELECT t.later('1 h'), t.settle() \g /dev/null
INSERT INTO _sas.deadline_sweep (upto, next_upto) SELECT max(run_id) + 1, max(run_id) + 1 FROM _sas.run;
SELECT run_id, workflow, state FROM sas.runs WHERE state <> 'stopped' ORDER BY run_id;
SELECT array_agg(run_id ORDER BY run_id) FROM sas.runs WHERE state || '' <> 'stopped';
SELECT array_agg(run_id ORDER BY run_id) FROM sas.find_runs('{"state": ["scheduled", "pending", "running", "paused", "compensating"]}');
\echo every way to ask for them
CREATE FUNCTION pg_temp.by_id(condition text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    line text;
BEGIN
    FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) SELECT run_id FROM sas.runs WHERE ' || condition LOOP
        IF line LIKE '%run_id = ANY%' THEN
            RETURN true;
        END IF;
    END LOOP;
    RETURN false;
END $$;
SELECT c AS condition, pg_temp.by_id(c) AS by_id
FROM unnest(ARRAY['state <> ''stopped''', 'NOT state = ''stopped''', 'state IN (''running'', ''paused'')', 'state = ''paused'' AND workflow = ''short''', 'state = ''paused'' OR state = ''pending''',
                  'state = ''stopped''', 'state IN (''running'', ''stopped'')', 'state = ''paused'' OR run_id = 1', 'state IS NOT NULL']) c;
\echo ids that a query names are not combined with those of all open runs
CREATE FUNCTION pg_temp.by_ids(condition text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    line text;
    n bigint := 0;
BEGIN
    FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) SELECT run_id FROM sas.runs WHERE state <> ''stopped'' AND ' || condition LOOP
        n := n + (SELECT count(*) FROM regexp_matches(line, 'run_id = ', 'g'));
    END LOOP;
    RETURN n;
END $$;
SELECT c AS condition, pg_temp.by_ids(c) AS by_ids
FROM unnest(ARRAY['run_id = 1', 'run_id = ANY (''{1,2,3}''::bigint[])', 'run_id = ANY (ARRAY(SELECT g::bigint FROM generate_series(1, 3) g))',
                  'run_id BETWEEN 1 AND 1000', '(run_id = 1 OR key = ''k'')']) c;
DROP FUNCTION t.look_plan;
SELECT t.clean() \g /dev/null
DROP ROLE looker; DROP ROLE few; DROP ROLE guard;

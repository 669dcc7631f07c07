-- SPDX-License-Identifier: PostgreSQL
--
-- Targets of in_server.c: fuzz.NAME(input) returns what became of it, which begins with ok if it was accepted, and
-- raises FAULT where a promise is broken. Each input is rolled back. A seed is an input of test/fuzz/seeds/NAME.
CREATE SCHEMA fuzz;
CREATE FUNCTION fuzz.run(statement text, arguments text[]) RETURNS void LANGUAGE c STRICT AS 'in_server', 'fuzz_run';
CREATE FUNCTION fuzz.echo(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input';
CREATE FUNCTION fuzz.plan(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '{"steps": {}}'::jsonb $$;
CREATE TABLE fuzz.item (item jsonb, key text);
SELECT sas.create_agent('remote', 'http://127.0.0.1:1/v1'), sas.create_agent('away', kind => 'external'), sas.create_queue('queue', 3), sas.set_secret('t', 'hunter2-hunter2');
SELECT sas.create_workflow('child', '{"steps": {"x": {"function": "fuzz.echo"}}}');
-- what an attacker would be: no superuser, with all of one agent and some of another
CREATE ROLE fuzz_user;
GRANT ALL ON SCHEMA fuzz TO fuzz_user;
GRANT ALL ON fuzz.item TO fuzz_user;
SELECT sas.grant_usage('fuzz_user', 'user'), sas.grant_agent('remote', 'fuzz_user', '{GET,POST}', '{/a,/b/}'), sas.grant_agent('away', 'fuzz_user'), sas.grant_workflow('child', 'fuzz_user');

-- fuzz.json(given): null if it is none
CREATE FUNCTION fuzz.json(given text) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RETURN given::jsonb;
EXCEPTION WHEN data_exception OR program_limit_exceeded OR statement_too_complex THEN
    RETURN NULL;
END $$;

-- fuzz.says(statement): ok, or the SQLSTATE and the place of a refusal. A refusal says of what kind it is, and where; the errors of
-- PostgreSQL that an input can reach are those of values.
CREATE FUNCTION fuzz.says(statement text, given jsonb, places boolean DEFAULT true) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    place text;
    hint text;
    context text;
BEGIN
    EXECUTE statement USING given;
    RETURN 'ok';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS place = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT, context = PG_EXCEPTION_CONTEXT;
    IF SQLSTATE ~ '^(XX|58|F0|P0|23(502|514))' OR (places AND place !~ '^At /?.*\.$' AND SQLSTATE NOT IN ('54001', '57014')) OR (places AND hint = '' AND SQLSTATE NOT IN ('54001', '57014')) THEN
        RAISE 'FAULT %: % %, hint "%" in % of %', SQLSTATE, SQLERRM, place, hint, context, given;
    END IF;
    RETURN SQLSTATE || ' ' || place;
END $$;

-- what validate_workflow finds create_workflow refuses, and no more; what is accepted is submitted, shown and explained
CREATE FUNCTION fuzz.definition(given text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    d jsonb := fuzz.json(given);
    problem text;
    created text;
    statement text;
BEGIN
    IF d IS NULL THEN
        RETURN 'no JSON';
    END IF;
    SET LOCAL SESSION AUTHORIZATION fuzz_user;
    problem := (SELECT string_agg(concat(p.path, ': ', p.problem), ', ') FROM sas.validate_workflow(d) p);
    IF EXISTS (SELECT FROM sas.validate_workflow(d) p WHERE p.path IS NULL OR p.problem IS NULL OR p.problem = '') THEN
        RAISE 'FAULT a problem without a place or text: % of %', problem, d;
    END IF;
    created := fuzz.says('SELECT sas.create_workflow(''fuzzed'', $1)', d);
    IF (created = 'ok') <> (problem IS NULL) THEN
        RAISE 'FAULT validate says "%", create says "%": %', problem, created, d;
    END IF;
    IF created = 'ok' THEN
        FOREACH statement IN ARRAY ARRAY['SELECT count(s.run_id) FROM sas.submit(''fuzzed'', ''{"n": 1, "s": "1 s", "a": [1, 2], "x": {"y": null}}'', labels => ''{"a": 1}'') s OFFSET 0',
                                         'SELECT count(s.run_id) FROM sas.submit(''fuzzed'', key => ''k'') s OFFSET 0', 'SELECT sas.graph_workflow(''fuzzed'', f) FROM unnest(''{mermaid,dot,svg}''::text[]) f',
                                         'SELECT string_agg(s::text, '''') FROM sas.steps s', 'SELECT string_agg(s::text, '''') FROM sas.runs s', 'SELECT count(x.text) FROM sas.runs r, sas.explain(r.run_id) x',
                                         'SELECT count(x) FROM sas.runs r, sas.timeline(r.run_id) x', 'SELECT sas.graph(r.run_id) FROM sas.runs r'] LOOP
            created := concat(created, ' ', fuzz.says(statement, d, false));
        END LOOP;
    END IF;
    -- which problems there are, without what the input says
    RETURN left(concat(created, regexp_replace(problem, '"[^"]*"|[0-9]+|/[^:]*:', '', 'g')), 1000);
END $$;

CREATE FUNCTION fuzz.watcher(given text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    d jsonb := fuzz.json(given);
    created text;
BEGIN
    IF d IS NULL THEN
        RETURN 'no JSON';
    END IF;
    SET LOCAL SESSION AUTHORIZATION fuzz_user;
    created := fuzz.says('SELECT sas.create_watcher(''fuzzed'', $1)', d);
    IF created = 'ok' THEN
        created := concat_ws(' ', created, fuzz.says('SELECT sas.watch(''fuzzed'', ''k'', ''{"n": 1}'')', d, false), fuzz.says('SELECT string_agg(w::text, '''') FROM sas.watches w', d, false),
                             fuzz.says('SELECT string_agg(w::text, '''') FROM sas.watchers w', d, false));
    END IF;
    RETURN created;
END $$;

-- the arguments of create_agent, as an object
CREATE FUNCTION fuzz.agent(given text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    d jsonb := fuzz.json(given);
    created text := 'no JSON';
BEGIN
    IF jsonb_typeof(d) = 'object' THEN
        created := fuzz.says('SELECT sas.create_agent(''fuzzed'', $1 ->> ''base_url'', headers => $1 -> ''headers'', retry => $1 -> ''retry'', breaker => $1 -> ''breaker'', options => $1 -> ''options'', rate_limit => $1 ->> ''rate_limit'')', d);
        PERFORM fuzz.says('SELECT string_agg(a::text, '''') FROM sas.agents a', d, false), fuzz.says('SELECT count(*) FROM _sas.agents_for_workers(''{}'', ''{}'')', d, false);
    END IF;
    RETURN created;
END $$;

-- what is a span is one whatever the session's styles are, and within its limits
CREATE FUNCTION fuzz.span(given text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    style text;
    span interval := _sas.span(to_jsonb(given));
    refused boolean := EXISTS (SELECT FROM _sas.check_span(to_jsonb(given), '/x'));
BEGIN
    IF NOT refused AND NOT (span > '0' AND span <= '10 years' AND extract(epoch FROM span) > 0) THEN
        RAISE 'FAULT accepted: % is %', given, span;
    END IF;
    FOREACH style IN ARRAY '{postgres,postgres_verbose,sql_standard,iso_8601}'::text[] LOOP
        PERFORM set_config('intervalstyle', style, true), set_config('datestyle', CASE style WHEN 'iso_8601' THEN 'SQL, DMY' ELSE 'ISO, MDY' END, true);
        IF _sas.span(to_jsonb(given)) IS DISTINCT FROM span THEN
            RAISE 'FAULT under % % is %, not %', style, given, _sas.span(to_jsonb(given)), span;
        END IF;
    END LOOP;
    IF NOT refused THEN
        PERFORM fuzz.says('SELECT sas.create_workflow(''fuzzed'', jsonb_build_object(''deadline'', $1, ''steps'', jsonb_build_object(''a'', jsonb_build_object(''function'', ''fuzz.echo'', ''complete_in'', $1, ''retry'', jsonb_build_object(''initial'', $1)))))', to_jsonb(given));
        PERFORM fuzz.says('SELECT count(s.run_id) FROM sas.submit(''fuzzed'') s', to_jsonb(given), false);
    END IF;
    -- which parts it has
    RETURN CASE WHEN refused THEN 'refused ' ELSE 'ok ' END
        || (SELECT string_agg(sign(date_part(part, span))::text, ' ') FROM unnest('{year,month,day,hour,minute,microsecond}'::text[]) part);
END $$;

-- Templates, their references, and paths made of them. What has no problem has a result, and it is the same again.
CREATE FUNCTION fuzz.template(given text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    d jsonb := fuzz.json(given);
    root constant jsonb := '{"input": {"n": 1, "s": "a/b c", "a": [1, "x", null, {"y": [true]}], "at": "2030-01-31T12:00:00Z", "deep": {"a": {"b": {"c": "d"}}}, "dots": ".."}, "steps": {"a": {"output": {"status": 200, "body": {"id": 7}}}}, "run": {"id": 1, "key": "k"}, "key": "x"}';
    first record;
    again record;
BEGIN
    SELECT * INTO first FROM _sas.render_path(given, root);
    IF (first.result IS NULL) = (first.problem IS NULL) THEN
        RAISE 'FAULT path "%" is "%": %', given, first.result, first.problem;
    END IF;
    -- what a definition may say; a whole reference may give a whole address, which is checked when it is sent
    IF given NOT LIKE '{{%' AND NOT EXISTS (SELECT FROM _sas.check_call(jsonb_build_object('path', given), '/x'))
       AND (first.result ~ E'[\x01-\x20\x7f]' OR _sas.path_has_dot_segment(first.result) OR first.result LIKE '//%') THEN
        RAISE 'FAULT path "%" leads elsewhere: "%"', given, first.result;
    END IF;
    IF d IS NULL THEN
        RETURN concat('path ', first.problem ->> 'what');
    END IF;
    SELECT * INTO first FROM _sas.render(d, root);
    SELECT * INTO again FROM _sas.render(d, root);
    IF first IS DISTINCT FROM again OR (first.result IS NULL) = (first.problem IS NULL) OR first.problem ->> 'what' = '' THEN
        RAISE 'FAULT % is %, then %', d, first, again;
    END IF;
    PERFORM count(*) FROM _sas.references(d) r;
    RETURN fuzz.says('SELECT sas.create_workflow(''fuzzed'', jsonb_build_object(''steps'', jsonb_build_object(''a'', jsonb_build_object(''function'', ''fuzz.echo'', ''input'', jsonb_build_object(''x'', $1)))))', d);
END $$;

-- predicates: accepted or refused, and then evaluated by a run
CREATE FUNCTION fuzz.predicate(given text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    bad record;
BEGIN
    SELECT * INTO bad FROM _sas.predicate_problem(given);
    IF bad.problem = '' OR bad.problem IS NULL AND bad.hint IS NOT NULL THEN
        RAISE 'FAULT % of %', bad, given;
    END IF;
    IF bad.problem IS NULL THEN
        PERFORM count(*) FROM _sas.predicate_references(given) r;
    END IF;
    IF fuzz.says('SELECT sas.create_workflow(''fuzzed'', jsonb_build_object(''steps'', jsonb_build_object(''a'', jsonb_build_object(''function'', ''fuzz.echo'', ''when'', $1))))', to_jsonb(given)) = 'ok' THEN
        IF bad.problem IS NOT NULL THEN
            RAISE 'FAULT % is accepted: %', given, bad;
        END IF;
        RETURN 'ok ' || fuzz.says('SELECT sas.run_inline(''fuzzed'', ''{"n": 1, "s": "a", "a": [1, "x", null], "at": "2030-01-31"}'')', NULL, false);
    END IF;
    RETURN coalesce(bad.problem, 'refused');
END $$;

-- SPDX-License-Identifier: PostgreSQL
--
-- Settings: what sas does for a role does not depend on how the session of
-- that role reads and writes strings, arrays, dates and intervals.
\set QUIET on
\pset format unaligned
\pset tuples_only on
\pset pager off

CREATE ROLE set_user;
CREATE ROLE set_admin;
SELECT sas.grant_usage('set_user', 'user'), sas.grant_usage('set_admin', 'admin') \g /dev/null
CREATE SCHEMA shop;
GRANT USAGE ON SCHEMA shop TO PUBLIC;
CREATE FUNCTION shop.book(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT input $$;
CREATE FUNCTION shop.around(call jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT NULL::jsonb $$;
CREATE TABLE shop.item (item jsonb);
GRANT INSERT ON shop.item TO PUBLIC;

-- who does what, one after the other; @ stands for how the session is set. Several statements together are
-- rolled back.
CREATE TABLE public.script (n int GENERATED ALWAYS AS IDENTITY, who text, what text[]);
CREATE TABLE public.said (tag text, n int, said text);

INSERT INTO public.script (who, what) VALUES
('set_admin', ARRAY[$s$SELECT sas.create_agent('@pub_a', kind => 'external')$s$]),
('set_admin', ARRAY[$s$SELECT sas.create_agent('@pubxb', kind => 'external')$s$]),
('set_admin', ARRAY[$s$SELECT sas.create_agent('@web', 'http://127.0.0.1:1', rate_limit => ' 500 / min ',
                              retry => '{"initial": "1 min 30 s"}', breaker => '{"window": "1 h"}')$s$]),
('set_admin', ARRAY[$s$SELECT sas.create_agent('@bad', 'http://127.0.0.1:1', rate_limit => '500 of min')$s$]),
('set_admin', ARRAY[$s$SELECT sas.create_agent('@bad', 'http://127.0.0.1:1',
                              headers => jsonb_build_object('X', chr(7)))$s$]),
('set_admin', ARRAY[$s$SELECT sas.set_secret('@token', chr(7))$s$]),
('set_admin', ARRAY[$s$SELECT sas.alter_agent('@web', enabled => false)$s$]),
('set_admin', ARRAY[$s$SELECT sas.alter_agent('@web', enabled => true)$s$]),
('set_admin', ARRAY[$s$SELECT sas.reset_agent('@web')$s$]),
('set_admin', ARRAY[$s$SELECT sas.create_queue('@q', 2)$s$]),
('set_admin', ARRAY[$s$SELECT sas.pause_queue('@q')$s$]),
('set_admin', ARRAY[$s$SELECT sas.resume_queue('@q')$s$]),
('set_admin', ARRAY[$s$SELECT string_agg(sas.grant_agent(a, 'set_user')::text, '')
                      FROM unnest('{@pub_a,@pubxb,@web}'::text[]) a$s$]),
-- definitions
('set_user', ARRAY[$s$SELECT sas.create_workflow('@all', $j${"deadline": "3 days", "queue": "@q", "steps": {
    "call": {"agent": "@web", "call": {"path": "/a/{{input.x}}?b=1", "headers": {"X": "{{input.x?}}"},
             "body": {"b": "{{input}}"}, "timeout": "1 min 10 s"}, "retry": {"initial": "2 s"},
             "expect": "$.output.status == 200", "complete_in": "2 min", "undo": {"call": {"path": "/u"}}},
    "poll": {"agent": "@web", "call": {"path": "/p"}, "poll": {"call": {"path": "/p/{{started.body.id}}"},
             "until": "$.output.body.state == \"done\"", "every": "1 min", "timeout": "2 h",
             "progress": "{{output.body.p}}"}},
    "book": {"function": "shop.book", "input": {"a": null, "b": [null, "x\\y"]}, "after": ["call"]},
    "go": {"wait": {"signal": "go", "timeout": "1 day 2 h"}},
    "nap": {"wait": {"for": "{{input.nap}}"}},
    "date": {"wait": {"until": "2030-02-01 08:00+00"}},
    "each": {"agent": "@pub_a", "task": {}, "each": "{{input.list}}"},
    "hidden": {"include": "@none"}}}$j$)$s$]),
('set_user', ARRAY[$s$SELECT sas.create_workflow('@all', $j${"deadline": "3 days", "queue": "@q", "steps": {
    "call": {"agent": "@web", "call": {"path": "/a/{{input.x}}?b=1", "headers": {"X": "{{input.x?}}"},
             "body": {"b": "{{input}}"}, "timeout": "1 min 10 s"}, "retry": {"initial": "2 s"},
             "expect": "$.output.status == 200", "complete_in": "2 min", "undo": {"call": {"path": "/u"}}},
    "poll": {"agent": "@web", "call": {"path": "/p"}, "poll": {"call": {"path": "/p/{{started.body.id}}"},
             "until": "$.output.body.state == \"done\"", "every": "1 min", "timeout": "2 h"}},
    "book": {"function": "shop.book", "input": {"a": null, "b": [null, "x\\y"]}, "after": ["call"]},
    "go": {"wait": {"signal": "go", "timeout": "1 day 2 h"}},
    "nap": {"wait": {"for": "{{input.nap}}"}},
    "date": {"wait": {"until": "2030-02-01 08:00+00"}},
    "each": {"agent": "@pub_a", "task": {}, "each": "{{input.list}}"}}}$j$)$s$]),
('set_user', ARRAY[$s$SELECT sas.create_workflow('@planned', '{"steps": {
    "a": {"agent": "{{input.agent}}", "agents": "@pub_*", "task": {}}}}')$s$]),
('set_user', ARRAY[$s$SELECT sas.create_workflow('@dates', '{"steps": {
    "date": {"wait": {"until": "{{input.date}}"}}, "span": {"wait": {"for": "{{input.span}}"}}}}')$s$]),
('set_user', ARRAY[$s$SELECT sas.create_workflow('@calls', '{"steps": {
    "a": {"agent": "@web", "call": {"path": "/a_b/1", "body": "{{input}}"},
          "undo": {"call": {"path": "/undo"}}},
    "b": {"agent": "@web", "call": {"path": "/axb/1"}, "after": ["a"],
          "retry": {"initial": "1 s", "max_attempts": 2}},
    "m": {"function": "shop.book", "each": "{{input.list}}", "input": {"e": "{{item}}"}, "after": ["b"]},
    "w": {"wait": {"signal": "go", "timeout": "1 h"}, "after": ["m"]}}}')$s$]),
('set_user', ARRAY[$s$SELECT string_agg(v::text, ' ' ORDER BY v::text)
    FROM sas.validate_workflow($j${"steps": {
    "a": {"agent": "{{input.a}}", "call": {"path": "/a b"}},
    "b": {"agent": "{{x}}", "agents": "*", "call": {}},
    "c": {"agent": "@web", "call": {"path": "/\\"}}, "d": {"wait": {"until": "soon"}},
    "e": {"wait": {"for": "-1 day 25 h"}}, "f": {"agent": "@web", "call": {"path": "x"}},
    "g": {"function": "book"},
    "h": {"function": "shop.book", "each": "list"},
    "i": {"agent": "@web", "call": {}, "poll": {"call": {}, "every": "1 h"}},
    "j": {"wait": {"until": "01/02/2030 08:00+00"}},
    "k": {"agent": "@web", "call": {"headers": {"X": "a\u0001b"}}},
    "l": {"wait": {"for": "1 2:03:04"}}}}$j$) v$s$]),
('set_user', ARRAY[$s$SELECT sas.create_watcher('@w', '{"agent": "@pub_a", "external": {"a": null},
                         "retry": {"reset_after": "1 day"}, "items": {"table": "shop.item"}}')$s$]),
('set_user', ARRAY[$s$SELECT sas.create_watcher('@x', '{"agent": "@pub_a", "external": {},
                         "items": {"table": "item"}}')$s$]),
('set_user', ARRAY[$s$SELECT sas.create_workflow('@built', sas.workflow(sas.steps(sas.step('a',
                         sas.function('shop.book'), finalize => 'shop.book', complete_in => '1 day 2 h')),
                         hooks => jsonb_build_array(sas.hook(function => 'shop.book'))))$s$]),
('set_user', ARRAY[$s$SELECT v.definition FROM sas.versions v WHERE v.workflow = '@built'$s$]),
('set_admin', ARRAY[$s$SELECT sas.create_middleware('@m', 'call', 'shop.around(jsonb)', workflow => '@all')$s$]),
-- runs
('set_user', ARRAY[$s$SELECT created
                     FROM sas.submit('@all', $j${"x": "x\\y", "nap": "1 h", "list": [1, null]}$j$,
                         key => '@k', labels => $j${"l": "a\\b"}$j$, start_at => '2030-02-01 08:00+00',
                         deadline => '1 day 2 h')$s$]),
('set_user', ARRAY[$s$SELECT count(*) FROM sas.submit_batch('@all', ARRAY['{"n": 1}', '{"n": 2}']::jsonb[],
                                                               keys => ARRAY['@1', NULL])$s$]),
('set_user', ARRAY[$s$SELECT created FROM sas.submit('@planned', '{"agent": "@pub_a"}')$s$]),
('set_user', ARRAY[$s$SELECT created FROM sas.submit('@planned', '{"agent": "@pubxb"}')$s$]),
('set_user', ARRAY[$s$SELECT sas.pause_workflow('@all')$s$]),
('set_user', ARRAY[$s$SELECT sas.resume_workflow('@all')$s$]),
('set_user', ARRAY[$s$SELECT string_agg(changed::text, ' ') FROM sas.runs r, sas.pause(r.run_id)
                     WHERE r.workflow = '@all'$s$]),
('set_user', ARRAY[$s$SELECT string_agg(concat(v.step, changed, regexp_replace(refused, '[0-9]+', '')), ' ')
                     FROM sas.runs r, sas.skip(r.run_id, 'each[3]', '{}') v
                     WHERE r.workflow = '@all'$s$]),
('set_user', ARRAY[$s$SELECT string_agg(v.changed::text, ' ') FROM sas.runs r, sas.resume(r.run_id) v
                     WHERE r.workflow = '@all'$s$]),
('set_admin', ARRAY[$s$SELECT step FROM sas.claim('@pub_a', 'w' || chr(7))$s$]),
('set_admin', ARRAY[$s$SELECT sas.register_node('n' || chr(7), 1, '{@pub_a}')$s$]),
('set_admin', ARRAY[$s$SELECT c.step || sas.complete(c.request_id, $j${"done": "x\\y"}$j$)
                      FROM sas.claim('@pub_a', '@', lease => '2 min') c$s$]),
('set_user', ARRAY[$s$SELECT count(*) FROM sas.watch('@w', '@k', '{"a": null}') w$s$]),
-- looks
('set_user', ARRAY[$s$SELECT sas.graph_workflow('@all', 'dot')$s$]),
('set_user', ARRAY[$s$SELECT sas.graph_workflow('@all')$s$]),
('set_user', ARRAY[$s$SELECT string_agg(concat_ws(' ', s.step, s.kind, s.state, s.waiting_kind, s.waiting_on,
                                                 s.input, s.output), chr(10) ORDER BY s.step, r.key)
                     FROM sas.steps s JOIN sas.runs r USING (run_id) WHERE r.workflow LIKE '@%'$s$]),
('set_admin', ARRAY[$s$SELECT count(*) FILTER (WHERE l LIKE '# TYPE %seconds %')
                             - count(*) FILTER (WHERE l LIKE '# UNIT%')
                      FROM string_to_table(sas.metrics_text('openmetrics'), chr(10)) l$s$]),
-- runs carried out in the session
('set_user', ARRAY[$s$SELECT sas.stub('@web', '{"status": 404}')$s$,
                   $s$SELECT sas.stub('@web', '{"status": 200, "body": {"a": "b"}}', path => '/a_b/*')$s$,
                   $s$SELECT sas.stub_signal('go', '{}', after => '10 min')$s$,
                   $s$SELECT concat(state, result, output, error - 'instance')
                      FROM sas.run_inline('@calls', $j${"list": [1, "x\\y", null], "x": "\\"}$j$)$s$]),
('set_user', ARRAY[$s$SELECT sas.set_clock('2030-01-01 00:00+00')$s$,
                   $s$SELECT sas.stub('@web', '{"status": 200, "body": {"a": "b"}}')$s$,
                   $s$SELECT sas.stub_signal('go', '{}', after => '10 min')$s$,
                   $s$SELECT result FROM sas.run_inline('@calls', $j${"list": [1, "x\\y", null], "x": "\\"}$j$)$s$,
                   $s$SELECT string_agg((to_jsonb(s) - '{run_id,idempotency_key}'::text[])::text, chr(10)
                                        ORDER BY s.step, s.element)
                      FROM sas.steps s JOIN sas.runs r USING (run_id) WHERE r.workflow = '@calls'$s$]),
('set_user', ARRAY[$s$SELECT sas.set_clock('2030-01-01 00:00+00')$s$,
                   $s$SELECT concat(state, result, output, error - 'instance')
                      FROM sas.run_inline('@dates', '{"date": "01/02/2030 08:00+00",
                                                      "span": "-1 day 25:00"}')$s$,
                   $s$SELECT string_agg((to_jsonb(s) - '{run_id,idempotency_key}'::text[])::text, chr(10)
                                        ORDER BY s.step, s.element)
                      FROM sas.steps s JOIN sas.runs r USING (run_id) WHERE r.workflow = '@dates'$s$]);

CREATE FUNCTION public.carry_out(tag text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    s record;
    statement text;
    said text;
    detail text;
BEGIN
    FOR s IN SELECT * FROM public.script x ORDER BY x.n LOOP
        PERFORM set_config('role', s.who, true);
        BEGIN
            FOREACH statement IN ARRAY s.what LOOP
                EXECUTE replace(statement, '@', tag) INTO said;
            END LOOP;
            IF cardinality(s.what) > 1 THEN
                RAISE EXCEPTION USING ERRCODE = 'ZZ001', MESSAGE = coalesce(said, 'null');
            END IF;
        EXCEPTION WHEN OTHERS THEN
            GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
            said := concat_ws(' ', nullif(SQLSTATE, 'ZZ001'), SQLERRM, detail);
        END;
        PERFORM set_config('role', 'none', true);
        INSERT INTO public.said VALUES (tag, s.n, replace(said, tag, '@'));
    END LOOP;
END $$;

-- What was written, without what differs from one run of the script to the next: ids, and when it was.
CREATE FUNCTION public.kept(tag text) RETURNS TABLE (place text, line text) LANGUAGE plpgsql AS $$
BEGIN
    FOREACH place IN ARRAY ARRAY['agent', 'queue', 'workflow', 'workflow_version', 'workflow_step', 'run',
                                 'run_key', 'step', 'operator_action', 'watcher', 'watch', 'middleware'] LOOP
        RETURN QUERY EXECUTE format($sql$
            SELECT %1$L, (SELECT replace(string_agg(e.key || '=' || e.value, ' ' ORDER BY e.key), $1, '@')
                          FROM jsonb_each_text(to_jsonb(t)) e
                          WHERE e.key !~ '_id$|_ids$|^trace$|lane|digest|token|rank|^at$|^place$|^uses$'
                            AND e.value !~ '^-[0-9]+$'
                            AND (e.value ~ '^2030' OR e.key !~ '_at$|deadline|changed|_by$|since$')) AS line
            FROM _sas.%1$I t WHERE to_jsonb(t)::text LIKE '%%' || $1 || '%%' ORDER BY 2$sql$, place) USING tag;
    END LOOP;
END $$;

\c -
SET standard_conforming_strings = off;
SET escape_string_warning = on;
SET backslash_quote = off;
SET array_nulls = off;
SET transform_null_equals = on;
SET datestyle = 'German, DMY';
SET intervalstyle = sql_standard;
SET extra_float_digits = -5;
SET bytea_output = escape;
SET quote_all_identifiers = on;
SELECT public.carry_out('odd') \g /dev/null
\c -
SELECT public.carry_out('std') \g /dev/null
SELECT no_plan();
SELECT is(o.said, s.said, format('as %s: %s', x.who, left(x.what[cardinality(x.what)], 70)))
FROM public.script x JOIN public.said o USING (n) JOIN public.said s USING (n)
WHERE o.tag = 'odd' AND s.tag = 'std' ORDER BY n;
SELECT matches(s.said, '"@pubxb", which is not one of "@pub_', 'a pattern with "_" fits that character alone')
FROM public.said s WHERE s.tag = 'odd' AND s.said ~ 'pubxb';
SELECT is((SELECT string_agg(k.line, E'\n') FROM public.kept('odd') k WHERE k.place = p),
          (SELECT string_agg(k.line, E'\n') FROM public.kept('std') k WHERE k.place = p),
          format('the rows of _sas.%s are the same', p))
FROM (SELECT DISTINCT place FROM public.kept('std')) AS x (p);
SELECT is(string_agg(format('%s %s', s.n, left(s.said, 5)), ', ' ORDER BY s.n),
          '4 22023, 5 22023, 6 22023, 14 42704, 21 42602, 28 22023, 34 22023, 35 22023', 'what is refused, and nothing else')
FROM public.said s WHERE s.tag = 'std' AND s.said ~ '^[0-9A-Z]{5} ';
SELECT is(string_agg(DISTINCT place, ' ' ORDER BY place),
          'agent middleware operator_action queue run run_key watch watcher workflow workflow_version',
          'there are such rows') FROM public.kept('std');
SET extra_float_digits = -14;
SELECT is(sas.step('a', sas.call('pay'), weight => 0.123456) #>> '{a,weight}', '0.123456', 'a number is built as it is');
SELECT * FROM finish();

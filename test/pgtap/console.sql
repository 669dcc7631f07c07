-- SPDX-License-Identifier: PostgreSQL
--
-- Pages, graphs and sentences: nothing that stands in a run becomes markup,
-- and each role is told what its views tell it, no more.
\set QUIET on
\pset format unaligned
\pset tuples_only on
\pset pager off
SELECT no_plan();

-- escaping: piece by piece ----------------------------------------------------------

SELECT is(_sas.html_escape('<a href="x" onclick=''y''>&amp;'), '&lt;a href=&quot;x&quot; onclick=&#39;y&#39;&gt;&amp;amp;', 'the five characters are escaped, & first');
SELECT is(_sas.html_escape(NULL), '', 'null is nothing');
SELECT is(_sas.html_escape(E'a\nb\tc'), E'a\nb\tc', 'lines and tabs stay');
SELECT is(_sas.html_escape(E'a\x01\x1b\x7fb'), 'ab', 'other control characters go');
SELECT is(_sas.html_badge('"><script>'), '<span class="b s-script">&quot;&gt;&lt;script&gt;</span>', 'a class is made of letters only');
SELECT is(_sas.html_badge(NULL) || _sas.html_time(NULL, now()) || _sas.html_json('x', NULL), '', 'what is not there is not shown');
SELECT is(substring(_sas.html_table('{a,b,#c}', ARRAY[['a', NULL, 'c'], ['d', 'e', 'f']], '') FROM '<tbody>(.*)</tbody>'),
    E'\n<tr><td data-l="a">a</td><td data-l="b"></td><td class="n" data-l="c">c</td></tr>\n<tr><td data-l="a">d</td><td data-l="b">e</td><td class="n" data-l="c">f</td></tr>\n', 'a row has all its cells, each with its head');
SELECT is(_sas.url_text('a b&c=d/ü%"'), 'a%20b%26c%3Dd%2F%C3%BC%25%22', 'a value in a link is percent-encoded');
SELECT is(_sas.html_table('{a}', NULL, 'None & <none>.'), '<p class="none">None &amp; &lt;none&gt;.</p>', 'a table without rows says so');
SELECT ok(length(_sas.html_json('x', to_jsonb(repeat('<', 1000000)))) < 100000, 'a large value is cut');
SELECT ok(length(_sas.html_json('x', (repeat('[', 5000) || repeat(']', 5000))::jsonb)) < 11000, 'a very deep one has no space for each of its levels');
SELECT is(_sas.html_json('x', jsonb_build_array(repeat('y', 120))), E'<div class="json"><h4>x</h4><pre>[\n    &quot;' || repeat('y', 120) || E'&quot;\n]</pre></div>', 'any other is indented');
SELECT is(_sas.mermaid_text('"];x["'), '#quot;];x[#quot;', 'a label of mermaid cannot be left');
SELECT is(_sas.dot_text('\" -> x'), '\\\" -> x', 'nor one of dot');

-- whole pages of a run whose every text is hostile ------------------------------------

CREATE FUNCTION pg_temp.evil() RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT '"''></pre></script></style></svg><script>alert(1)</script><img src=x onerror=alert(1)>]]>--> &lt; %s {{x}} \' || E'\n\r\t' $$;
-- what markup is in a page: names of elements, and of attributes, values taken out
CREATE FUNCTION pg_temp.elements(page text) RETURNS text[] LANGUAGE sql AS $$
    SELECT ARRAY(SELECT DISTINCT lower(m[1]) FROM regexp_matches(regexp_replace(page, '"[^"<>]*"', '""', 'g'), '<([a-zA-Z][a-zA-Z0-9]*)', 'g') m ORDER BY 1)
$$;
CREATE ROLE con_ann; CREATE ROLE con_bob; CREATE ROLE con_mon; CREATE ROLE con_op; CREATE ROLE con_wrk;
SELECT sas.grant_usage(r::regrole, l) FROM (VALUES ('con_ann', 'user'), ('con_bob', 'user'), ('con_mon', 'monitor'), ('con_op', 'operator'), ('con_wrk', 'worker')) AS x (r, l) \g /dev/null
SELECT sas.set_secret('token', 'open-sesame') \g /dev/null
SELECT sas.create_agent('payments', 'http://127.0.0.1:1', headers => '{"Authorization": "Bearer {{secret.token}}"}') \g /dev/null
SELECT sas.grant_agent('payments', r::regrole) FROM unnest('{con_ann,con_bob}'::text[]) r \g /dev/null
CREATE SCHEMA "<b>x</b>"; GRANT USAGE ON SCHEMA "<b>x</b>" TO con_ann;
CREATE FUNCTION "<b>x</b>"."f<i>"(jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT $1';
CREATE FUNCTION pg_temp.hold(id bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    n int := (SELECT agent_id FROM _sas.agent WHERE name = 'payments');
    c record;
BEGIN
    SELECT * INTO c FROM _sas.claim_calls(ARRAY[n], '{1}', 1, 1, pg_temp.evil()) x;
    PERFORM _sas.write_attempts(ARRAY[c.run_id], ARRAY[c.step_no], '{0}', '{1}', '{false}', ARRAY[n], pg_temp.evil(), '{failed}', '{500}', ARRAY[jsonb_build_object('title', pg_temp.evil(), 'detail', pg_temp.evil())], ARRAY[now()], ARRAY[now()]);
    PERFORM _sas.write_replies(ARRAY[ROW(c.run_id, c.step_no, c.element, c.request_id, 'permanent', 1, NULL, jsonb_build_object('title', pg_temp.evil(), 'detail', pg_temp.evil()), false, '0', NULL)::_sas.call_reply], ARRAY[c.lease_id]);
    PERFORM _sas.write_health(ARRAY[n], ARRAY[NULL]::text[], ARRAY[0], ARRAY[jsonb_build_object('title', pg_temp.evil())]);
    PERFORM FROM _sas.supervisor_tick(1, '{1}', 1, 100);
END $$;
SET ROLE con_ann;
SELECT sas.create_workflow('evil', '{"steps": {"one": {"agent": "payments", "call": {"body": "{{input.x}}"}, "on_failure": "pause"}, "two": {"wait": {"signal": "yes"}, "after": ["one"]}}}') \g /dev/null
SELECT run_id AS id FROM sas.submit('evil', jsonb_build_object('x', pg_temp.evil(), pg_temp.evil(), 1), key => pg_temp.evil(), labels => jsonb_build_object(pg_temp.evil(), pg_temp.evil())) \gset
RESET ROLE;
SELECT pg_temp.hold(:id) \g /dev/null
SELECT changed FROM sas.retry(:id) \g /dev/null
SELECT pg_temp.hold(:id) \g /dev/null
SELECT is((SELECT state FROM sas.runs), 'paused', 'there is a paused run');
SELECT is(pg_temp.elements(sas.console()), '{b,body,div,h1,h2,head,header,html,i,meta,p,section,small,span,style,table,tbody,td,th,thead,time,title,tr}', 'the overview is made of these elements only');
SELECT is(pg_temp.elements(sas.console(:id)), '{b,body,dd,defs,details,div,dl,dt,g,h1,h2,h4,head,header,html,li,marker,meta,path,pre,rect,section,small,span,style,summary,svg,table,tbody,td,text,th,thead,time,title,tr,ul}', 'the page of a run of these');
SELECT ok(xmlparse(DOCUMENT regexp_replace(regexp_replace(p, '<!DOCTYPE html>', ''), '(<meta [^>]*)>', '\1/>', 'g')) IS NOT NULL, 'and as every tag is closed, it is well-formed: ' || n)
FROM (VALUES ('overview', sas.console()), ('run', sas.console(:id))) AS x (n, p);
SELECT ok(strpos(sas.console(:id), '&lt;img src=x onerror=alert(1)&gt;') > 0, 'the hostile text is there, escaped');
SELECT is((SELECT count(*) FROM string_to_table(sas.graph(:id, f), E'\n') l WHERE l LIKE '%<img%' OR l LIKE '%"''>%'), 0::bigint, 'no label of a graph has it as it is: ' || f) FROM unnest('{mermaid}'::text[]) f;
SELECT is(cardinality(string_to_array(sas.graph(:id, f), E'\n')), n, 'a graph has as many lines as it should: ' || f) FROM (VALUES ('mermaid', 7), ('dot', 8)) AS x (f, n);
SELECT ok((SELECT count(*) FROM sas.explain(:id)) = 2 AND (SELECT bool_and(text LIKE '%onerror%') FROM sas.explain(:id) WHERE step IS NULL), 'sas.explain tells it as it is');

-- schedules: a spec and a name are checked, the rest is what somebody wrote
SET ROLE con_ann;
SELECT sas.create_workflow('con_quick', '{"steps": {}}') \g /dev/null
SELECT sas.schedule('con_hourly', '0 * * * *', 'con_quick', timezone => 'Europe/London'), sas.schedule('con_late', '@daily', 'con_quick'), sas.pause_schedule('con_late', pg_temp.evil()) \g /dev/null
RESET ROLE;
UPDATE _sas.schedule SET error = jsonb_build_object('title', pg_temp.evil()), state = 'failed' WHERE name = 'con_hourly';
SELECT is(pg_temp.elements(sas.console_schedules()), '{b,body,div,h1,h2,head,header,html,meta,p,section,small,span,style,table,tbody,td,th,thead,time,title,tr}', 'the page of schedules is made of these elements only');
SELECT ok(xmlparse(DOCUMENT regexp_replace(regexp_replace(sas.console_schedules(), '<!DOCTYPE html>', ''), '(<meta [^>]*)>', '\1/>', 'g')) IS NOT NULL, 'and well-formed');
SELECT is((SELECT count(*) FROM regexp_matches(p, '&lt;img src=x onerror=alert\(1\)&gt;', 'g')), 2::bigint, 'why one failed and why one is paused are on ' || n) FROM (VALUES ('the page of schedules', sas.console_schedules()), ('the overview', substring(sas.console() FROM '<section id="schedules">.*?</section>'))) AS x (n, p);
UPDATE _sas.schedule SET error = NULL, state = 'active' WHERE name = 'con_hourly';
SELECT is((SELECT count(*) FROM regexp_matches(substring(sas.console_schedules() FROM '<section id="calendar">.*</section>'), '<b>con_hourly</b>', 'g')), 24::bigint, 'the calendar has the runs of a day');

-- secrets -------------------------------------------------------------------------------

SELECT is(strpos(p, 'open-sesame'), 0, 'no secret is in ' || n) FROM (VALUES ('the overview', sas.console()), ('the page of a run', sas.console(:id)), ('a graph', sas.graph(:id)), ('the page of schedules', sas.console_schedules())) AS x (n, p);

-- rights ----------------------------------------------------------------------------------

CREATE FUNCTION pg_temp.as_role(who text, query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    answer text;
BEGIN
    EXECUTE format('SET LOCAL ROLE %I', who);
    EXECUTE query INTO answer;
    RESET ROLE;
    RETURN answer;
EXCEPTION WHEN OTHERS THEN
    RESET ROLE;
    RETURN SQLSTATE;
END $$;
SELECT is(pg_temp.as_role(who, format(call, :id)), '42704', format('for con_bob there is no such run: %s', split_part(call, '(', 1)))
FROM unnest('{con_bob}'::text[]) who, unnest(ARRAY['SELECT text FROM sas.explain(%s)', 'SELECT bar FROM sas.timeline(%s)', 'SELECT sas.graph(%s)', 'SELECT sas.console(%s)']) call;
SELECT is(pg_temp.as_role('con_bob', 'SELECT sas.graph_workflow(''evil'')'), '42704', 'nor such a workflow');
SELECT is(pg_temp.as_role(who, format('SELECT count(*) FROM _sas.%s', call)), '42501', format('nor can %s call what they are made of: %s', who, call))
FROM unnest('{con_bob,con_op}'::text[]) who,
     unnest(ARRAY[format('run_facts(%s)', :id), format('run_graph(%s)', :id), 'workflow_graph(''evil'')', format('sentences(%s)', :id),
                  format('spans(%s)', :id), format('sees_run(%s)', :id), format('console_run(%s)', :id), format('run_nodes(%s)', :id), 'doors()']) call;
SELECT is(pg_temp.as_role('con_bob', 'SELECT count(*) FROM sas.explain()'), '0', 'what waits in the database is nothing of his');
-- the title of an agent's last error is for everybody, as in sas.agents
SELECT is(regexp_replace(pg_temp.as_role('con_bob', 'SELECT sas.console()'), '<section id="agents">.*?</section>', '') LIKE '%onerror%', false, 'the overview of con_bob does not know of it');
SELECT is(pg_temp.as_role(who, format('SELECT sas.console(%s)', :id)) LIKE '%<div class="json"><h4>input</h4>%', sees, format('%s: %s', who, CASE WHEN sees THEN 'sees inputs' ELSE 'sees the run, without inputs' END))
FROM (VALUES ('con_ann', true), ('con_op', true), ('con_mon', false)) AS x (who, sees);
SELECT is((SELECT count(*) FROM regexp_matches(pg_temp.as_role(who, 'SELECT sas.console_schedules()'), '<b>con_hourly</b>', 'g')), n, format('%s sees %s of the schedule of con_ann', who, CASE n WHEN 0 THEN 'nothing' ELSE 'it and its runs' END))
FROM (VALUES ('con_ann', 25::bigint), ('con_op', 25), ('con_mon', 25), ('con_bob', 0)) AS x (who, n);
SELECT is(pg_temp.as_role('con_wrk', call), '42501', 'a worker looks at nothing: ' || call) FROM unnest(ARRAY['SELECT sas.console_schedules()', 'SELECT sas.console()', format('SELECT sas.graph(%s)', :id), 'SELECT runs FROM sas.explain()']) call;
SELECT is(pg_temp.as_role(who, 'SELECT sas.graph_workflow(''evil'')') LIKE 'flowchart LR%', true, who || ' sees the workflow') FROM unnest('{con_ann,con_op,con_mon}'::text[]) who;
SELECT sas.grant_workflow('evil', 'con_bob') \g /dev/null
SELECT is(pg_temp.as_role('con_bob', 'SELECT sas.graph_workflow(''evil'')') LIKE 'flowchart LR%', true, 'and so does one to whom it was granted');

-- the key of a run that others must not read
SET ROLE con_ann;
SELECT sas.create_workflow('keyed', '{"steps": {"one": {"wait": {"signal": "x"}}}, "concurrency": {"key": "{{input.account}}"}}') \g /dev/null
SELECT sas.submit('keyed', '{"account": "acct-4711"}') FROM generate_series(1, 2) \g /dev/null
RESET ROLE;
SELECT is(pg_temp.as_role(who, 'SELECT count(*) FROM sas.steps WHERE waiting_kind = ''place'' AND waiting_on = ''acct-4711'''), n, format('the key that a run waits under comes from its input: %s of %s', n, who))
FROM (VALUES ('con_ann', '2'), ('con_op', '2'), ('con_mon', '0'), ('con_bob', '0')) AS x (who, n);

-- the order of steps --------------------------------------------------------------------

CREATE FUNCTION pg_temp.found(text text, pattern text) RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(m[1], ' ' ORDER BY n) FROM regexp_matches(text, pattern, 'g') WITH ORDINALITY AS u (m, n)
$$;
CREATE SCHEMA con; GRANT USAGE ON SCHEMA con TO PUBLIC;
CREATE FUNCTION con.f(jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT $1';
SELECT sas.create_workflow('con_inner', '{"steps": {"aa": {"function": "con.f", "after": ["zz"]}, "zz": {"function": "con.f"}}}') \g /dev/null
SELECT sas.create_workflow('con_order', '{"steps": {
    "a": {"function": "con.f", "after": ["third"]}, "b": {"function": "con.f"}, "y": {"function": "con.f"}, "z": {"function": "con.f"}, "third": {"function": "con.f"},
    "inc": {"include": "con_inner", "after": ["y"]}, "n": {"function": "con.f", "each": "{{input.l}}", "after": ["b"], "fallback": {"function": "con.f"}}},
    "flow": {"sequence": [{"concurrence": ["z", "b"]}, "y"]}, "finalize": "con.f"}') \g /dev/null
SELECT run_id AS id FROM sas.submit('con_order', '{"l": [1, 2, 3]}') \gset
SELECT 'z b third y a n inc.zz inc.aa inc finalize' AS wanted \gset
SELECT is((SELECT string_agg(step, ' ' ORDER BY position) FROM sas.steps WHERE run_id = :id), :'wanted', 'sas.steps.position: by how many come before, then by the flow, then by name; finalize is the last');
SELECT is((SELECT array_agg(position ORDER BY position) FROM sas.steps WHERE run_id = :id), ARRAY(SELECT generate_series(1, 10)), 'it counts the steps that are shown');
SELECT is((SELECT string_agg(step, ' ' ORDER BY n) FROM sas.explain(:id) WITH ORDINALITY AS e (run_id, step, kind, waits_on, until, text, n)), :'wanted', 'sas.explain keeps to it');
SELECT is(pg_temp.found(sas.graph(:id), '\["([a-z.]+)<br'), :'wanted', 'so does sas.graph: mermaid');
SELECT is(pg_temp.found(sas.graph(:id, 'dot'), 'label="([a-z.]+)'), :'wanted', 'dot');
SELECT is(pg_temp.found(sas.graph_workflow('con_order'), '\["([a-z.]+)<br'), :'wanted', 'and of a workflow');
SELECT is(pg_temp.found(sas.console(:id), '<summary><b>([^<]+)</b>'), :'wanted', 'and sas.console');
SELECT _sas.write_replies(array_agg(ROW(c.run_id, c.step_no, c.element, c.request_id, 'done', 1, '{}', NULL, false, '0', NULL)::_sas.call_reply), array_agg(c.lease_id))
FROM _sas.claim_functions(10, 1, 1, 'w') c \g /dev/null
SELECT _sas.scheduler_tick(100) \g /dev/null
SELECT count(*) FROM _sas.claim_functions(2, 1, 1, 'w') \g /dev/null
SELECT is((SELECT string_agg(concat(step, '[' || element || ']'), ' ' ORDER BY position, element NULLS FIRST) FROM sas.steps WHERE run_id = :id), replace(:'wanted', ' n ', ' n n[1] n[2] n[3] '), 'elements of a map stand behind it, in order');
SELECT is(pg_temp.found(sas.console(:id), '<summary><b>(n, element [^<]+)</b>'), (SELECT string_agg('n, element ' || element, ' ' ORDER BY state = 'running' DESC, element) FROM sas.steps WHERE run_id = :id AND element > 0), 'those that run first on the page of the run');
-- all of it happened in one moment
UPDATE _sas.step s SET started_at = now(), finished_at = CASE WHEN finished_at IS NOT NULL THEN now() + interval '1 s' END WHERE s.run_id = :id;
SELECT is((SELECT string_agg(step, ' ' ORDER BY n) FROM sas.timeline(:id) WITH ORDINALITY AS t (step, element, attempt, undo, status, started_at, took, bar, n) WHERE status = 'succeeded'), 'z b third', 'and so does sas.timeline where things begin at once');
SELECT is((SELECT string_agg(a.step, ' ' ORDER BY a.position) FROM sas.attempts a WHERE run_id = :id AND a.status = 'succeeded'), 'z b third', 'sas.attempts has it');

-- what it costs ------------------------------------------------------------------------

SELECT sas.create_workflow('wide', jsonb_build_object('steps', (SELECT jsonb_object_agg('s' || n, '{"agent": "payments", "call": {"path": "/"}}'::jsonb) FROM generate_series(1, 300) n))) \g /dev/null
SELECT run_id AS wide FROM sas.submit('wide') \gset
BEGIN;
SET LOCAL track_functions = 'all';
SELECT is(count(*), 301::bigint, 'each of 300 steps is explained') FROM sas.explain(:wide);
SELECT is(pg_stat_get_xact_function_calls('_sas.cause'::regproc), 1::bigint, 'what they wait for is found out once');
COMMIT;

SELECT * FROM finish();

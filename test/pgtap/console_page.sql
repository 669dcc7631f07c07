-- SPDX-License-Identifier: PostgreSQL
--
-- sas.console_page: each page by its path, within the rights of who looks;
-- searches, pages, links and forms; nothing of a run becomes markup.
\set QUIET on
\pset format unaligned
\pset tuples_only on
\pset pager off
SELECT no_plan();

CREATE FUNCTION pg_temp.evil() RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT '"''></pre></script></style><script>alert(1)</script><img src=x onerror=alert(1)>&lt; %s {{x}} \' || E'\n' $$;
CREATE FUNCTION pg_temp.elements(page text) RETURNS text[] LANGUAGE sql AS $$
    SELECT ARRAY(SELECT DISTINCT lower(m[1]) FROM regexp_matches(regexp_replace(page, '"[^"<>]*"', '""', 'g'), '<([a-zA-Z][a-zA-Z0-9]*)', 'g') m ORDER BY 1)
$$;
CREATE FUNCTION pg_temp.found(text text, pattern text) RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(m[1], ' ' ORDER BY n) FROM regexp_matches(text, pattern, 'g') WITH ORDINALITY AS u (m, n)
$$;
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
-- the runs that are listed on a page
CREATE FUNCTION pg_temp.runs(args jsonb) RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(pg_temp.found(sas.console_page('/runs', args), '<td class="n" data-l="run"><a href="/runs/([0-9]+)">'), '')
$$;

CREATE ROLE cp_ann; CREATE ROLE cp_bob; CREATE ROLE cp_mon; CREATE ROLE cp_op; CREATE ROLE cp_wrk;
SELECT sas.grant_usage(r::regrole, l) FROM (VALUES ('cp_ann', 'user'), ('cp_bob', 'user'), ('cp_mon', 'monitor'), ('cp_op', 'operator'), ('cp_wrk', 'worker')) AS x (r, l) \g /dev/null
SELECT sas.set_secret('token', 'open-sesame') \g /dev/null
SELECT sas.create_agent('payments', 'http://127.0.0.1:1', headers => '{"Authorization": "Bearer {{secret.token}}"}') \g /dev/null
SELECT sas.create_queue('narrow', 2) \g /dev/null
SELECT sas.grant_agent('payments', 'cp_ann') \g /dev/null
SET ROLE cp_ann;
SELECT sas.create_workflow('evil', '{"steps": {"a_step_whose_name_is_longer_than_the_box_used_to_be_one": {"wait": {"signal": "yes"}}, "two": {"agent": "payments", "call": {"body": "{{input.x}}"}, "after": ["a_step_whose_name_is_longer_than_the_box_used_to_be_one"]}}}') \g /dev/null
SELECT sas.create_workflow('plain', '{"steps": {}}') \g /dev/null
SELECT run_id AS evil FROM sas.submit('evil', jsonb_build_object('x', pg_temp.evil()), key => pg_temp.evil(), labels => jsonb_build_object('tenant', 'a', pg_temp.evil(), pg_temp.evil())) \gset
SELECT run_id AS plain FROM sas.submit('plain', key => 'k1', labels => '{"tenant": "b"}') \gset
SELECT sas.schedule('nightly', '@daily', 'plain') \g /dev/null
RESET ROLE;
SELECT _sas.raise_alert('step-failed', 'x', pg_temp.evil(), NULL, :evil, 1) \g /dev/null

-- a step of each state
CREATE TEMP TABLE act AS
SELECT st, w, l, pg_temp.found(_sas.console_step_acts(ROW(sas.now(), '', 't0k', NULL, NULL)::_sas.look, jsonb_populate_record(NULL::sas.steps, jsonb_build_object('run_id', 1, 'step', 's', 'state', st, 'waiting_kind', w, 'locked_by', l))), 'action="/do/([a-z_]+)"') AS verbs
FROM (VALUES ('waiting', 'step', NULL), ('ready', 'agent', NULL), ('ready', 'cool_off', NULL), ('running', NULL, 'w'), ('suspended', 'signal', NULL), ('failed', 'resume', NULL), ('succeeded', NULL, NULL), ('compensating', 'resume', NULL), ('compensating', NULL, 'w')) AS x (st, w, l);
SELECT is(verbs, e, format('a step that is %s offers: %s', concat_ws(', ', st, w, l), coalesce(e, 'nothing')))
FROM act JOIN (VALUES ('waiting', NULL, NULL), ('ready', 'agent', 'skip force_complete set_input'), ('ready', 'cool_off', 'retry skip force_complete set_input'), ('running', NULL, 'force_complete'), ('suspended', 'signal', 'skip force_complete'), ('failed', 'resume', 'retry skip force_complete set_input'), ('succeeded', NULL, NULL), ('compensating', 'resume', 'retry skip force_complete'), ('compensating', NULL, NULL)) AS y (s, k, e)
    ON st = s AND (w = k OR k IS NULL AND (w IS NULL OR st = 'waiting'));

-- every page ------------------------------------------------------------------------

CREATE TEMP TABLE page AS
SELECT path, sas.console_page(path, args || '{"token": "t0k"}') AS html
FROM (VALUES ('/', '{}'::jsonb), ('/runs', '{}'), ('/runs/' || :evil, '{}'), ('/runs/' || :plain, '{}'), ('/workflows', '{}'), ('/agents', '{}'), ('/queues', '{}'), ('/schedules', '{}'),
             ('/watches', '{}'), ('/alerts', '{}'), ('/workers', '{}'), ('/error', jsonb_build_object('message', pg_temp.evil(), 'hint', pg_temp.evil())),
             ('/runs', jsonb_build_object('text', pg_temp.evil(), 'notice', pg_temp.evil()))) AS x (path, args);
SELECT is(pg_temp.elements(html), (SELECT array_agg(e ORDER BY e) FROM unnest(pg_temp.elements(html)) e WHERE e = ANY ('{a,b,body,button,dd,defs,details,div,dl,dt,form,g,h1,h2,h4,head,header,html,i,input,label,li,marker,meta,nav,option,p,path,pre,rect,script,section,select,small,span,style,summary,svg,table,tbody,td,text,textarea,th,thead,time,title,tr,ul}')), path || ' is made of these elements only') FROM page;
SELECT is(pg_temp.found(html, '<script([^>]*)>'), ' src="/console.js" defer=""', path || ' has one script, that of its server') FROM page;
SELECT ok(xmlparse(DOCUMENT regexp_replace(regexp_replace(html, '<!DOCTYPE html>', ''), '(<meta [^>]*)>', '\1/>', 'g')) IS NOT NULL, path || ' is well-formed') FROM page;
SELECT ok(strpos(html, '<img src=x') = 0 AND strpos(html, 'open-sesame') = 0, path || ' has no markup of a run, and no secret') FROM page;
SELECT ok((SELECT count(*) FROM regexp_matches(html, 'href="([^"]*)"', 'g') m WHERE m[1] <> '#top' AND m[1] !~ '^/([a-z]+(/[0-9]+)?)?(\?[A-Za-z0-9_.~%=&-]*)?$') = 0, path || ' links to pages only') FROM page;
SELECT is(pg_temp.found(html, '<a href="([^"]*)" accesskey'), '/ /runs /workflows /agents /queues /schedules /watches /alerts /workers', path || ' leads to every page') FROM page;
SELECT alike(html, '%content="default-src ''none''; style-src ''unsafe-inline''; script-src ''self''; connect-src ''self''; form-action ''self''; base-uri ''none''"%', path || ' may run and call only its server') FROM page;
SELECT is(pg_temp.found(p, '<title>(sas: [^<]*)</title>'), 'sas: run ' || :evil || ' of evil', 'a run is found by its path or by run_id') FROM unnest(ARRAY[sas.console_page('runs/' || :evil), sas.console_page('/run', jsonb_build_object('run_id', :evil))]) p;
SELECT ok(strpos(sas.console_page('/agents', '{"root": "/sas"}'), 'href="/sas/runs"') > 0, 'links begin with root');
SELECT is(pg_temp.found(sas.console_page('/'), '<form (method="post")'), NULL, 'without a token no page has a form that does something');
SELECT is(pg_temp.found(sas.console(:evil) || sas.console(), '(href=|<form|<script)'), NULL, 'a page that stands alone has no link, no form, no script');
SELECT throws_ok(format('SELECT sas.console_page(%L, %L)', p, a), s, m, 'refused: ' || p || a) FROM (VALUES
    ('/nope', '{}', '22023', 'there is no page "/nope"'), ('/runs/x', '{}', '22023', 'there is no page "/runs/x"'), ('/run', '{}', '22023', 'run_id is missing'),
    ('/runs', '{"colour": "red"}', '22023', 'unknown key "colour"'), ('/agents', '{"text": "x"}', '22023', 'unknown key "text"'), ('/runs', '{"before": "x"}', '22023', 'before is no run_id'),
    ('/runs', '{"root": "javascript:x"}', '22023', 'root is no path'), ('/runs', '{"root": "//evil.example"}', '22023', 'root is no path'), ('/runs/999999', '{}', '42704', 'run 999999 does not exist, or is not yours'),
    ('/runs', '{"state": "gone"}', '22023', NULL)) AS x (p, a, s, m);

-- what they say -----------------------------------------------------------------------

SELECT ok(html LIKE '%<title>sas: overview of %' AND html LIKE '%<h1>Overview</h1>%', 'the title says what the page is') FROM page WHERE path = '/';
SELECT ok(pg_temp.found(substring(sas.console() FROM '<section id="recent">.*?</section>'), '<td class="n" data-l="run">([0-9]+)') = :plain || ' ' || :evil, 'the overview lists the recent runs');
SELECT ok(pg_temp.found(substring(sas.console() FROM '<section id="workflows">.*?</section>'), '<td data-l="workflow"><b>([a-z]+)') = 'plain evil', 'and the workflows, the last used first');
SELECT alike(substring(sas.console() FROM '<section id="agents">.*?</section>'), '%<span class="b s-ok">ok</span> <span class="dim">breaker closed %', 'a closed breaker reads as one that lets calls through');
SELECT alike(sas.console(:evil), '%<text class="name" %>a_step_whose_name_is_longer_than_the_box_used_to_be_one</text>%', 'no name in the graph is cut');
SELECT ok((SELECT bool_and(w::int > 7 * length(t)) FROM regexp_matches(sas.console(:evil), '<rect x="\d+" y="\d+" width="(\d+)"[^>]*/><text class="name"[^>]*>([^<]*)<', 'g') m, LATERAL (SELECT m[1], m[2]) x (w, t)), 'a box is as wide as its name');
SELECT is(pg_temp.found(html, '<b>(narrow)</b>'), 'narrow', 'the queue is on its page') FROM page WHERE path = '/queues';
SELECT is(pg_temp.found(html, '<b>(nightly)</b>'), 'nightly nightly', 'the schedule and its next run') FROM page WHERE path = '/schedules';
SELECT is(pg_temp.found(html, '<span class="b s-[a-z]+">(step-failed)</span>'), 'step-failed', 'the alert') FROM page WHERE path = '/alerts';

-- one do, one undo: not two attempts
SELECT is(_sas.attempts_of(:plain, 'x', NULL, 'compensated', n), says, format('%s attempts of which none undid: %s', n, says)) FROM (VALUES (1, NULL), (2, '2 attempts')) AS x (n, says);
SELECT is(_sas.attempts_of(:plain, 'x', NULL, 'succeeded', 2), '2 attempts', 'two tries are two attempts');

-- search, page by page -------------------------------------------------------------------

SELECT is(pg_temp.runs('{}'), :plain || ' ' || :evil, 'without a search: the newest');
SELECT is(pg_temp.runs(a::jsonb), CASE r WHEN 'evil' THEN :'evil' WHEN 'plain' THEN :'plain' ELSE '' END, 'found by ' || a) FROM (VALUES
    (format('{"run_id": "%s"}', :evil), 'evil'), (format('{"run_id": %s}', :plain), 'plain'), ('{"key": "k1"}', 'plain'), ('{"labels": "tenant=a"}', 'evil'), ('{"labels": " tenant = b , "}', 'plain'), ('{"labels": {"tenant": "b"}}', 'plain'),
    ('{"labels": "{\"tenant\": \"b\"}"}', 'plain'), ('{"workflow": "plain"}', 'plain'), ('{"workflow": "nope"}', ''), ('{"state": "stopped"}', 'plain'), ('{"state": ["running", "pending"]}', 'evil'), ('{"result": "success"}', 'plain'), ('{"result": "error"}', ''),
    ('{"text": "onerror"}', 'evil'), ('{"submitted_by": "cp_ann", "key": "k1"}', 'plain'), ('{"submitted_by": "cp_bob"}', ''), ('{"created_after": "2000-01-01", "state": "stopped"}', 'plain'), ('{"created_before": "2000-01-01"}', ''),
    ('{"finished_after": "2000-01-01"}', 'plain'), ('{"text": "", "key": "", "labels": "", "state": "", "run_id": " ", "workflow": "plain"}', 'plain')) AS x (a, r);
SET ROLE cp_ann; SELECT sas.submit_batch('plain', array_fill('{}'::jsonb, '{120}')) \g /dev/null
RESET ROLE;
SELECT is(cardinality(string_to_array(pg_temp.runs('{"workflow": "plain"}'), ' ')), 50, 'a page has 50 runs');
SELECT alike(sas.console_page('/runs', '{"workflow": "plain"}'), '%<h2>Runs that fit<small>50 of 121</small>%', 'and says how many fit');
SELECT is(pg_temp.found(sas.console_page('/runs', '{"workflow": "plain"}'), '<a href="/runs(\?before=[^"]*)">older'), format('?before=%s&amp;workflow=plain', :plain + 71), 'and leads to the next one');
SELECT is(pg_temp.runs(jsonb_build_object('workflow', 'plain', 'before', (:plain + 22)::text)), (SELECT string_agg(g::text, ' ' ORDER BY g DESC) FROM generate_series(:plain + 1, :plain + 21) g) || ' ' || :plain, 'the last page has the rest');
SELECT is(pg_temp.found(sas.console_page('/runs', jsonb_build_object('workflow', 'plain', 'before', :plain + 22)), '>(older|newest)</a>'), 'newest', 'and leads back');

-- rights: what the views show; a form is for who may call the verb ------------------------

SELECT is(pg_temp.as_role('cp_bob', format('SELECT sas.console_page(%L)', '/runs/' || :evil)), '42704', 'the run of another is no run');
SELECT unalike(pg_temp.as_role('cp_bob', format('SELECT sas.console_page(%L)', p)), '%onerror%', 'nothing of it is on his page ' || p) FROM unnest('{/,/runs,/alerts,/workflows,/schedules}'::text[]) p;
SELECT is(pg_temp.as_role('cp_bob', 'SELECT sas.console_page(''/runs'', ''{"text": "onerror"}'')') LIKE '%None.%', true, 'nor found');
SELECT is(pg_temp.as_role(who, format('SELECT sas.console_page(%L)', '/runs/' || :evil)) LIKE '%<h4>input</h4>%', sees, format('%s sees inputs: %s', who, sees)) FROM (VALUES ('cp_ann', true), ('cp_op', true), ('cp_mon', false)) AS x (who, sees);
SELECT is(pg_temp.as_role('cp_wrk', 'SELECT sas.console_page(''/'')'), '42501', 'a worker looks at nothing');
SELECT is(pg_temp.found(pg_temp.as_role(who, format('SELECT sas.console_page(%L, %L)', p, '{"token": "t0k"}')), 'action="/do/([a-z_]+)"'), forms, format('%s may do on %s: %s', who, p, coalesce(forms, 'nothing')))
FROM (VALUES ('cp_ann', '/runs/' || :evil, 'pause retry cancel compensate halt set_priority signal set_version'), ('cp_mon', '/runs/' || :evil, NULL), ('cp_op', '/runs/' || :plain, 'rerun'),
             ('cp_ann', '/agents', NULL), ('cp_op', '/agents', 'reset_agent pause_agent'), ('cp_op', '/queues', 'pause_queue'), ('cp_ann', '/queues', NULL), ('cp_op', '/workflows', 'pause_workflow pause_workflow'), ('cp_mon', '/workflows', NULL), ('cp_op', '/alerts', 'acknowledge'), ('cp_ann', '/alerts', NULL),
             ('cp_ann', '/schedules', 'trigger_schedule pause_schedule'), ('cp_mon', '/schedules', NULL), ('cp_op', '/runs', NULL)) AS x (who, p, forms);
SELECT is(pg_temp.found(pg_temp.as_role(who, $$SELECT sas.console_page('/runs', '{"token": "t0k", "workflow": "plain"}')$$), '<option>([a-z_]+)</option>'), verbs, format('%s may do with all that a search finds: %s', who, coalesce(verbs, 'nothing')))
FROM (VALUES ('cp_ann', 'scheduled pending running paused compensating stopped success warning error compensated cancelled pause resume retry cancel compensate halt rerun'), ('cp_mon', 'scheduled pending running paused compensating stopped success warning error compensated cancelled')) AS x (who, verbs);
SELECT is((SELECT count(*) FROM regexp_matches(html, '<form method="post"', 'g')), (SELECT count(*) FROM regexp_matches(html, '<form method="post"[^>]*>(<input type="hidden"[^>]*/>)*<input type="hidden" name="token" value="t0k"/>', 'g')), 'every form of ' || path || ' carries the token') FROM page;
SELECT is((SELECT count(*) FROM regexp_matches(html, 'action="/do/', 'g')), (SELECT count(*) FROM regexp_matches(html, 'name="reason" required=""[^>]*/></label><label class="yes"><input type="checkbox" name="confirm" value="yes" required=""', 'g')), 'and asks for a reason and a confirmation: ' || path) FROM page;

SELECT * FROM finish();

-- SPDX-License-Identifier: PostgreSQL
--
-- A run may have 100,000 elements. What a page or a sentence about it reads does not grow with the elements that
-- have ended, but for one pass over them; and all of them can be looked at, page by page. The tests count blocks
-- that are read. An element that is looked at costs eight or more, and each part of a page looked at all of them.
\set SHOW_CONTEXT never
SELECT t.clean() \g /dev/null
SELECT t.workflow('mapped', '{"a": {"agent": "inventory", "call": {}, "each": "{{input.l}}", "undo": {"call": {}}}, "b": {"wait": {"signal": "x"}, "after": ["a"]}}') \g /dev/null
SELECT run_id AS run FROM sas.submit('mapped', jsonb_build_object('l', (SELECT jsonb_agg(n) FROM generate_series(1, 6000) n))) \gset
SELECT count(t.schedule()) FROM generate_series(1, 3);

\echo as after 5,900 replies: 40 failed, 60 are in progress
DELETE FROM _sas.ready WHERE run_id = :run;
DELETE FROM _sas.step WHERE run_id = :run AND element > 0;
INSERT INTO _sas.step (run_id, step_no, element, state, attempt, failure_count, in_doubt, alone, deferred, completion, request_id, complete_by, started_at, finished_at, output, error)
SELECT :run, 1, n, s.state, 1, 0, false, false, false, CASE WHEN n <= 5900 THEN n END, CASE WHEN n > 5940 THEN gen_random_uuid() END,
       CASE WHEN n > 5940 THEN sas.now() + '1 min' END, sas.now(), CASE WHEN n <= 5940 THEN sas.now() END, '{"status": 200}', CASE s.state WHEN 'failed' THEN '{"title": "no"}'::jsonb END
FROM generate_series(1, 6000) n CROSS JOIN LATERAL (SELECT CASE WHEN n <= 5900 THEN 'succeeded' WHEN n <= 5940 THEN 'failed' ELSE 'running' END AS state) s;
ANALYZE _sas.step;
SELECT step, state, count(*) FROM sas.steps WHERE run_id = :run GROUP BY 1, 2 ORDER BY 1, 2;

\echo one element is found by its number
SELECT t.blocks(format('SELECT FROM sas.steps WHERE run_id = %s AND element = 77', :run)) < 200 AS few;

\echo pages and sentences read less than four blocks for each element
CREATE TEMP TABLE page AS SELECT format('SELECT * FROM %s', call) AS query, call FROM unnest(ARRAY[
    format('sas.console(%s)', :run), format('sas.explain(%s)', :run), 'sas.explain()',
    format($$sas.console_page('/runs/%s', '{"step": "a", "state": "failed"}')$$, :run)]) call;
SELECT call, t.blocks(query) < 4 * 6000 AS few FROM page;

\echo the sentences say how many there are
SELECT step, waiting_kind, text FROM sas.explain(:run);
SELECT waiting_kind, waiting_on, runs, steps FROM sas.explain();
\echo all elements can be looked at, by state
CREATE FUNCTION t.page(args jsonb) RETURNS text LANGUAGE sql AS $$
    SELECT substring(sas.console_page('/runs/' || (SELECT max(run_id) FROM _sas.run), args) FROM '<section id="elements">.*?</section>')
$$;
CREATE FUNCTION t.shown(page text) RETURNS text LANGUAGE sql AS $$
    SELECT format('%s: %s to %s', count(*), min(m[1]::int), max(m[1]::int)) FROM regexp_matches(page, '<summary><b>a, element ([0-9]+)', 'g') m
$$;
SELECT unnest(regexp_match(t.page('{}'), '<p class="pages">(.*?)</p>'));
SELECT a AS args, t.shown(t.page(a::jsonb)), (regexp_match(t.page(a::jsonb), '<a href="([^"]*)">next</a>'))[1] AS next
FROM unnest(ARRAY['{}', '{"step": "a"}', '{"step": "a", "state": "failed"}', '{"step": "a", "state": "running", "after": "5990"}', '{"step": "a", "after": "5990"}', '{"step": "b"}']) a;
SELECT sas.console_page('/runs/' || :run, '{"after": "x"}');
\echo the more steps, the less of each value; what is large is not shown in a list
SELECT length(sas.console(:run)) < 200000 AS small;
UPDATE _sas.step SET output = to_jsonb((SELECT string_agg(md5(n::text), '') FROM generate_series(1, 30000) n)) WHERE run_id = :run AND element BETWEEN 1 AND 10;
SELECT length(p) < 100000 AS small, p LIKE '%too large for this page%' AS told FROM t.page('{"step": "a"}') p;
\echo the sentences and pages are as short while it is undone
UPDATE _sas.run SET state = 'compensating', abandon_as = 'compensate' WHERE run_id = :run;
SELECT step, waiting_kind, text FROM sas.explain(:run);
SELECT waiting_kind, waiting_on, runs, steps FROM sas.explain();
SELECT call, t.blocks(query) < 4 * 6000 AS few FROM page;
SELECT t.clean() \g /dev/null
\echo one run with many steps does not hide the failures and times of smaller ones before it from the overview
SELECT t.workflow('small', '{"a": {"agent": "inventory", "call": {}}}') \g /dev/null
SELECT sas.submit('small') FROM generate_series(1, 3);
SELECT t.schedule(), t.claim(), t.answer('a', 'permanent'), t.answer('a'), t.answer('a');
INSERT INTO _sas.attempt (run_id, step_no, element, attempt, undo, agent_id, worker, status, http_status, error, started_at, finished_at)
SELECT 1, 1, 0, 1, false, agent_id, 'w', 'failed', 404, '{"title": "no"}', sas.now(), sas.now() FROM _sas.agent WHERE name = 'inventory';
CREATE FUNCTION t.overview(OUT failed text, OUT counted text) LANGUAGE sql AS $$
    SELECT (regexp_match(substring(page FROM '<section id="errors">.*?</section>'), '<td data-l="workflow">([a-z]*)</td>'))[1],
           -- other files of this database have made other agents
           (SELECT string_agg(m[1] || ' ' || m[2], ', ') FILTER (WHERE m[1] IN ('inventory', 'payments', 'shipping')) FROM regexp_matches(page, '<tr><td data-l="agent"><b>([a-z]*?)</b></td>.*?<td class="n" data-l="attempts \*">([0-9]*?)</td>', 'g') m)
    FROM sas.console() page
$$;
SELECT * FROM t.overview();
CREATE FUNCTION t.large() RETURNS void LANGUAGE sql AS $$
    WITH r AS (SELECT run_id FROM sas.submit('mapped', '{"l": []}'))
    INSERT INTO _sas.step (run_id, step_no, element, state, attempt, failure_count, in_doubt, alone, deferred, completion, started_at, finished_at, output)
    SELECT run_id, 1, n, 'succeeded', 1, 0, false, false, false, n, sas.now(), sas.now(), '{"status": 200}' FROM r, generate_series(1, 21000) n
$$;
SELECT t.large();
SELECT * FROM t.overview();
SELECT t.large();
SELECT * FROM t.overview();
SELECT t.clean() \g /dev/null
\echo what all runs wait for: many runs with many elements cost the sum of what each costs
SELECT t.workflow('mapped', '{"a": {"agent": "inventory", "call": {}, "each": "{{input.l}}"}}') \g /dev/null
CREATE FUNCTION t.maps(quantity int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM sas.submit_batch('mapped', array_fill((SELECT jsonb_build_object('l', jsonb_agg(n)) FROM generate_series(1, 1000) n), ARRAY[quantity]));
    PERFORM t.schedule() FROM generate_series(1, 20);
    -- each of them waits for other elements
    DELETE FROM _sas.ready WHERE element BETWEEN 1 AND 60 * run_id OR element > 60 * run_id + 60;
    ANALYZE _sas.step, _sas.ready, _sas.run, _sas.map_progress;
END $$;
SELECT t.maps(4), t.blocks('SELECT FROM sas.explain()') AS few \gset
SELECT waiting_kind, waiting_on, runs, steps FROM sas.explain();
SELECT t.maps(8), t.blocks('SELECT FROM sas.explain()') AS many \gset
SELECT waiting_kind, waiting_on, runs, steps FROM sas.explain();
SELECT :many < 5 * :few AS sum;
SELECT t.clean() \g /dev/null

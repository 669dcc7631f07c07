-- SPDX-License-Identifier: PostgreSQL
--
-- Console: lists of runs: the newest, those of each workflow, and search results, page by page.

-- _sas.console_tiles(look): how many runs are in each state, and how the recent ones ended.
CREATE FUNCTION _sas.console_tiles(look _sas.look) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    -- MATERIALIZED: once, not for each tile
    WITH open AS MATERIALIZED (
        SELECT g.state AS word, sum(g.runs)::bigint AS n FROM unnest(look.open) g GROUP BY 1),
    ended AS MATERIALIZED (
        SELECT r.result AS word, count(*) AS n FROM sas.runs r
        WHERE r.run_id BETWEEN (SELECT _sas.oldest_recent()) AND 9223372036854775807
          AND r.state = 'stopped' GROUP BY 1)
    SELECT '<div class="tiles">' || string_agg(_sas.html_link($1,
               format('/runs?%s=%s', CASE WHEN k > 5 THEN 'result' ELSE 'state' END, w), format(
               '<div class="tile s-%s%s" id="runs-%s"><b>%s</b><span>%s</span></div>', w,
               CASE WHEN x.n = 0 THEN ' zero' END, w, x.n, w || CASE WHEN k > 5 THEN '*' ELSE '' END)),
               '' ORDER BY k) || E'</div>\n'
    FROM unnest('{scheduled,pending,running,compensating,paused,success,warning,error,compensated,'
                'cancelled}'::text[]) WITH ORDINALITY AS u (w, k)
    CROSS JOIN LATERAL (SELECT coalesce((SELECT o.n FROM open o WHERE o.word = w),
                                        (SELECT e.n FROM ended e WHERE e.word = w), 0) AS n) x;
END;

-- _sas.read_page_search(args): the search for sas.find_runs. The values of a form are strings, empty
-- without a condition; labels may be written "name=value, name=value".
CREATE FUNCTION _sas.read_page_search(args jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT coalesce(jsonb_object_agg(e.key, CASE
               WHEN e.key = 'run_id' AND e.value #>> '{}' ~ '^ *[0-9]{1,18} *$'
               THEN to_jsonb((e.value #>> '{}')::bigint)
               WHEN e.key = 'labels' AND jsonb_typeof(e.value) = 'string'
               THEN CASE WHEN starts_with(ltrim(e.value #>> '{}'), '{') THEN (e.value #>> '{}')::jsonb
                    ELSE (SELECT jsonb_object_agg(btrim(split_part(l, '=', 1)),
                                                  btrim(substr(l, strpos(l || '=', '=') + 1)))
                          FROM string_to_table(e.value #>> '{}', ',') l WHERE btrim(l) <> '') END
               ELSE e.value END), '{}')
    FROM jsonb_each(args - '{before}'::text[]) e
    WHERE btrim(e.value #>> '{}') <> '' AND e.value <> '[]' AND e.value <> '{}';
END;

-- _sas.console_search_form(look, search): the form with the search of the page.
CREATE FUNCTION _sas.console_search_form(look _sas.look, search jsonb) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT CASE WHEN look.root IS NULL THEN '' ELSE _sas.html_section('search', 'Search', format(
        '<form method="get" action="%s/runs" role="search">', _sas.html_escape(look.root))
        || (SELECT string_agg(format('<label>%s<input name="%s" value="%s" size="%s"%s/></label>', f.title,
                                     f.name, _sas.html_escape(search ->> f.name), f.size,
                                     CASE f.name WHEN 'text' THEN ' accesskey="/"' ELSE '' END), ''
                              ORDER BY f.n)
            FROM (VALUES (1, 'text', 'text', 18), (2, 'run_id', 'run', 8), (3, 'key', 'key', 14),
                         (4, 'labels', 'labels (name=value)', 18), (5, 'workflow', 'workflow', 14),
                         (6, 'submitted_by', 'submitted by', 12), (7, 'created_after', 'submitted after', 17),
                         (8, 'created_before', 'submitted before', 17),
                         (9, 'finished_after', 'ended after', 17),
                         (10, 'finished_before', 'ended before', 17)) AS f (n, name, title, size))
        || (SELECT string_agg(format('<label>%1$s<select name="%1$s"><option value="">any</option>%2$s'
                                     '</select></label>', s.name, (
                SELECT string_agg(format('<option%s>%s</option>', CASE WHEN search ->> s.name = w
                                         THEN ' selected=""' END, w), '' ORDER BY n)
                FROM unnest(s.words) WITH ORDINALITY AS u (w, n))), '' ORDER BY s.name DESC)
            FROM (VALUES ('state', '{scheduled,pending,running,paused,compensating,stopped}'::text[]),
                         ('result', '{success,warning,error,compensated,cancelled}')) AS s (name, words))
        || '<button>Search</button></form>', 'in runs that this role may see') END;
END;

-- _sas.console_run_rows(look, run_ids, otherwise): these runs as a table.
CREATE FUNCTION _sas.console_run_rows(look _sas.look, run_ids bigint[], otherwise text) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT _sas.html_table('{#run,workflow,key,state,result,by,submitted,took,labels,error}', array_agg(ARRAY[
               _sas.console_run_link(look, r.run_id),
               _sas.html_link(look, '/runs?workflow=' || _sas.url_text(r.workflow),
                              _sas.html_escape(r.workflow)),
               _sas.html_escape(r.key), _sas.html_badge(r.state), _sas.html_badge(r.result),
               _sas.html_escape(r.submitted_by::text), _sas.html_time(r.created_at, look.now),
               _sas.html_took(1000 * extract(epoch FROM coalesce(r.finished_at, look.now)
                                                        - r.started_at)::float8),
               CASE WHEN r.labels <> '{}' THEN _sas.html_escape(r.labels::text) END,
               _sas.html_escape(coalesce(r.error ->> 'title', r.paused_for))]
               ORDER BY r.run_id DESC), otherwise)
    FROM sas.runs r WHERE r.run_id = ANY ($2);
END;

-- _sas.console_recent(look): the newest runs.
CREATE FUNCTION _sas.console_recent(look _sas.look) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT _sas.html_section('recent', 'Recent runs', _sas.console_run_rows(
        look, (_sas.find_run_page('{}', 20, NULL, NULL)).run_ids, 'There are none.'),
        'the newest 20; sas.find_runs(search) finds others');
END;

-- _sas.console_workflows(look): for each workflow, how many runs are open, and how its recent runs ended.
CREATE FUNCTION _sas.console_workflows(look _sas.look) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    WITH open AS (SELECT g.workflow, sum(g.runs)::bigint AS n,
                         sum(g.runs) FILTER (WHERE g.state = 'paused')::bigint AS paused
                  FROM unnest(look.open) g GROUP BY 1),
    ended AS (SELECT r.workflow, max(r.run_id) AS last,
                     count(*) FILTER (WHERE r.result = 'success') AS success,
                     count(*) FILTER (WHERE r.result = 'warning') AS warning,
                     count(*) FILTER (WHERE r.result = 'error') AS error,
                     count(*) FILTER (WHERE r.result = 'compensated') AS compensated,
                     count(*) FILTER (WHERE r.result = 'cancelled') AS cancelled
              FROM sas.runs r
              WHERE r.run_id BETWEEN (SELECT _sas.oldest_recent()) AND 9223372036854775807 GROUP BY 1),
    name AS (SELECT w.workflow, w.owner::text AS owner, w.version, w.paused_at FROM sas.workflows w
             UNION ALL
             SELECT o.workflow, NULL, NULL, NULL
             FROM (SELECT workflow FROM open UNION SELECT workflow FROM ended) o
             WHERE o.workflow NOT IN (SELECT workflow FROM sas.workflows))
    SELECT _sas.html_section('workflows', 'Workflows',
        _sas.html_table('{workflow,#version,owner,#open,#paused,#success *,#warning *,#error *,'
                        '#compensated *,#cancelled *,#last run}', array_agg(ARRAY[
            '<b>' || _sas.html_link(look, '/runs?workflow=' || _sas.url_text(n.workflow),
                                    _sas.html_escape(n.workflow)) || '</b>'
            || CASE WHEN n.paused_at IS NOT NULL THEN ' ' || _sas.html_badge('paused') ELSE '' END
            || CASE WHEN n.version IS NULL THEN ''
               ELSE _sas.console_act(look, v.verb || '_workflow', initcap(v.verb),
                                     jsonb_build_object('name', n.workflow)) END,
            n.version::text, _sas.html_escape(n.owner), coalesce(n.open, 0)::text,
            coalesce(n.paused, 0)::text,
            n.success::text, n.warning::text,
            CASE WHEN n.error > 0 THEN format('<span class="bad">%s</span>', n.error) ELSE n.error::text END,
            n.compensated::text, n.cancelled::text, _sas.console_run_link(look, n.last)]
            ORDER BY n.last DESC NULLS LAST, n.workflow), 'There are none.')
        || _sas.html_more(max(n.total), 100, 'sas.workflows'),
        format('* of the newest %s runs', _sas.recent()))
    FROM (SELECT *, count(*) OVER () AS total
          FROM name LEFT JOIN open o USING (workflow) LEFT JOIN ended e USING (workflow)
          ORDER BY e.last DESC NULLS LAST, workflow LIMIT 100)
         AS n (workflow, owner, version, paused_at, open, paused, last, success, warning, error, compensated,
               cancelled, total)
    CROSS JOIN LATERAL (SELECT CASE WHEN n.paused_at IS NULL THEN 'pause' ELSE 'resume' END AS verb) v;
END;

-- _sas.console_bulk(look, search, found): a verb for all runs that the search finds.
CREATE FUNCTION _sas.console_bulk(look _sas.look, search jsonb, found text) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT CASE WHEN look.root IS NULL OR look.token IS NULL OR count(*) = 0 THEN ''
           ELSE _sas.console_acts(_sas.console_form(look, '/do/bulk', format('All %s runs that fit', found),
                    jsonb_build_object('search', search),
                    '<label>verb<select name="verb">' || string_agg(format('<option>%s</option>', v.verb), ''
                                                                    ORDER BY v.n) || '</select></label>')) END
    FROM unnest('{pause,resume,retry,cancel,compensate,halt,rerun}'::text[]) WITH ORDINALITY AS v (verb, n)
    WHERE _sas.may_do(v.verb || '_runs');
END;

-- _sas.console_runs(look, args): the page of runs: a search, 50 of its results, and how many there are.
CREATE FUNCTION _sas.console_runs(look _sas.look, args jsonb) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    WITH asked AS MATERIALIZED (
        SELECT _sas.read_page_search(args) AS search, nullif(args ->> 'before', '')::bigint AS before),
    found AS MATERIALIZED (
        SELECT a.*, coalesce(f.run_ids, '{}') AS run_ids, cardinality(f.run_ids) AS n, f.below
        FROM asked a CROSS JOIN LATERAL _sas.find_run_page(a.search, 1001, a.before, 20000) f),
    said AS (
        SELECT f.*, CASE WHEN f.n > 1000 THEN 'more than 1000'
                    WHEN f.below IS NOT NULL THEN 'at least ' || f.n ELSE f.n::text END AS quantity,
               CASE WHEN f.n > 50 THEN f.run_ids[50]
                    WHEN f.below IS NOT NULL AND f.n <= 1000 THEN f.below END AS next
        FROM found f)
    SELECT _sas.html_page(look, 'sas: runs of ' || current_database(),
        _sas.console_top(look, CASE WHEN s.search = '{}' AND s.before IS NULL THEN '/runs' ELSE '' END,
                         '<h1>Runs</h1>')
        || _sas.console_tiles(look) || _sas.console_search_form(look, args)
        || _sas.html_section('runs', CASE WHEN s.search = '{}' THEN 'Runs' ELSE 'Runs that fit' END,
            _sas.console_run_rows(look, s.run_ids[:50], 'None.')
            || '<p class="pages">'
            || CASE WHEN s.before IS NOT NULL
               THEN _sas.html_link(look, '/runs' || _sas.url_query(args - 'before'), 'newest') || ' '
               ELSE '' END
            || CASE WHEN s.next IS NULL THEN ''
               ELSE _sas.html_link(look, '/runs' || _sas.url_query(args
                                                                   || jsonb_build_object('before', s.next)),
                                   CASE WHEN s.n > 50 THEN 'older' ELSE 'search older runs' END) END || '</p>'
            || CASE WHEN s.search = '{}' THEN '' ELSE _sas.console_bulk(look, s.search, s.quantity) END,
            concat(least(s.n, 50), ' of ', s.quantity,
                   CASE WHEN s.before IS NOT NULL THEN ' before run ' || s.before END,
                   CASE WHEN s.below IS NOT NULL AND s.n <= 1000
                   THEN '; searched down to run ' || s.below END)))
    FROM said s;
END;

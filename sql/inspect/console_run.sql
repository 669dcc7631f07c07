-- SPDX-License-Identifier: PostgreSQL
--
-- Console of one run: the graph with its states, the timeline, inputs, outputs and errors, as one HTML
-- page.

-- _sas.layout(ids, columns, befores): the place of each node of a graph in a drawing: its column, and its
-- row, in the order of the nodes before it. It goes column by column; k is the number of nodes that have
-- their places.
CREATE FUNCTION _sas.layout(ids text[], columns int[], befores jsonb) RETURNS TABLE (id text, x int, y float8)
LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    WITH RECURSIVE node AS MATERIALIZED (
        SELECT u.id, u.x, u.n, count(*) OVER (PARTITION BY u.x) AS size, dense_rank() OVER (ORDER BY u.x) AS k
        FROM unnest($1, $2) WITH ORDINALITY AS u (id, x, n)),
    placed AS (
        SELECT 0::bigint AS k, '{}'::jsonb AS place
        UNION ALL
        SELECT p.k + 1, p.place || next.place
        FROM placed p CROSS JOIN LATERAL (
            SELECT jsonb_object_agg(m.id, m.rank - 1
                                    + ((SELECT max(node.size) FROM node) - m.size) / 2.0) AS place
            FROM (SELECT node.id, node.size,
                         row_number() OVER (ORDER BY before.y NULLS LAST, node.n) AS rank
                  FROM node CROSS JOIN LATERAL (SELECT avg((p.place ->> b)::float8) AS y
                                                FROM jsonb_array_elements_text($3 -> node.id) b) before
                  WHERE node.k = p.k + 1) m
            HAVING count(*) > 0) next)
    SELECT node.id, node.x, (last.place ->> node.id)::float8
    FROM node CROSS JOIN (SELECT p.place FROM placed p ORDER BY p.k DESC LIMIT 1) last;
END;

-- _sas.cut_text(value, size): the text, cut to that length.
CREATE FUNCTION _sas.cut_text(value text, size int) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE WHEN length(value) > size THEN left(value, size - 2) || '..' ELSE value END;
END;

-- _sas.svg_width(step, what, note): the width of a box, by the letters in it. Names of steps and of what
-- they call are never cut, because names may differ at their ends only; a note is cut at its end.
CREATE FUNCTION _sas.svg_width(step text, what text, note text) RETURNS int
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT 20 + greatest(150, coalesce(length(step), 0) * 8, coalesce(length(what), 0) * 13 / 2,
                         least(length(note), 40) * 13 / 2)::int;
END;

-- _sas.svg_node(...): a step as a box with three lines, or a point that only joins others.
CREATE FUNCTION _sas.svg_node(x int, y int, width int, step text, what text, state text, note text)
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE WHEN step IS NULL
           THEN format(E'<circle cx="%s" cy="%s" r="5"/>\n', x + width / 2, y + 30)
           ELSE format('<g class="node s-%s"><title>%s</title>'
                       '<rect x="%s" y="%s" width="%s" height="60" rx="8"/>',
                       state, _sas.html_escape(concat_ws(E'\n', step, what, state, nullif(note, ''))), x, y,
                       width)
                || format('<text class="name" x="%s" y="%s">%s</text>', x + 10, y + 20,
                          _sas.html_escape(step))
                || format('<text class="sub" x="%s" y="%s">%s</text>', x + 10, y + 36, _sas.html_escape(what))
                || format(E'<text class="sub" x="%s" y="%s">%s</text></g>\n', x + 10, y + 51,
                          _sas.html_escape(_sas.cut_text(concat_ws(': ', state, nullif(note, '')),
                                                         (width - 20) * 2 / 13))) END;
END;

-- _sas.svg_parts(run_id): the parts of the drawing of a run, in the order of painting: edges, then nodes.
-- An edge that passes columns has a place in each of them (via), so that it does not run behind their
-- steps.
CREATE FUNCTION _sas.svg_parts(run_id bigint)
RETURNS TABLE (rank int, no int, right_end int, bottom int, svg text)
LANGUAGE sql STABLE
BEGIN ATOMIC
    WITH n AS MATERIALIZED (
        SELECT g.*, dense_rank() OVER (ORDER BY g.level)::int - 1 AS col,
               concat_ws(' ', g.kind, g.target) AS what
        FROM _sas.run_nodes($1) g),
    col AS MATERIALIZED (
        SELECT c.col, c.w, (sum(c.w + 44) OVER (ORDER BY c.col) - c.w - 36)::int AS x
        FROM (SELECT n.col, max(_sas.svg_width(n.step, n.what, concat_ws(': ', n.state, n.note))) AS w
              FROM n GROUP BY 1) c),
    e AS MATERIALIZED (
        SELECT row_number() OVER (ORDER BY t.no, f.no)::int AS e, f.no AS f, t.no AS t, f.col AS c1,
               t.col AS c2, t.stands_in, f.step IS NULL AS from_point, t.step IS NULL AS to_point
        FROM n t CROSS JOIN LATERAL unnest(t.after) a JOIN n f ON f.no = a),
    via AS MATERIALIZED (
        SELECT e.e, c, format('%s.%s', e.e, c) AS id,
               CASE WHEN c = e.c1 + 1 THEN e.f::text ELSE format('%s.%s', e.e, c - 1) END AS before
        FROM e CROSS JOIN LATERAL generate_series(e.c1 + 1, e.c2 - 1) c
        WHERE (SELECT sum(o.c2 - o.c1 - 1) FROM e o) <= 600),
    node AS (
        SELECT n.no::text AS id, n.col, n.no, (
                   SELECT jsonb_agg(coalesce(v.id, e.f::text))
                   FROM e LEFT JOIN via v ON v.e = e.e AND v.c = e.c2 - 1 WHERE e.t = n.no) AS befores
        FROM n
        UNION ALL
        SELECT v.id, v.c, 1000000, jsonb_build_array(v.before) FROM via v),
    at AS MATERIALIZED (
        SELECT l.id, c.x, c.w, (l.y * 74)::int + 8 AS y
        FROM (SELECT array_agg(o.id ORDER BY o.no, o.id) AS ids, array_agg(o.col ORDER BY o.no, o.id) AS cols,
                     jsonb_object_agg(o.id, coalesce(o.befores, '[]')) AS befores FROM node o) g
        CROSS JOIN LATERAL _sas.layout(g.ids, g.cols, g.befores) l JOIN col c ON c.col = l.x),
    point AS (
        SELECT e.e, e.c1 AS c, x.x AS x1, x.x AS x2, f.y + 30 AS y
        FROM e JOIN at f ON f.id = e.f::text
        CROSS JOIN LATERAL (SELECT f.x + CASE WHEN e.from_point THEN f.w / 2 + 6 ELSE f.w END AS x) x
        UNION ALL
        SELECT v.e, v.c, p.x, p.x + p.w, p.y + 30 FROM via v JOIN at p ON p.id = v.id
        UNION ALL
        SELECT e.e, e.c2, t.x + CASE WHEN e.to_point THEN t.w / 2 - 6 ELSE 0 END, 0, t.y + 30
        FROM e JOIN at t ON t.id = e.t::text),
    line AS (
        SELECT p.*, lag(p.x2) OVER w AS px, lag(p.y) OVER w AS py, lead(p.e) OVER w IS NULL AS last
        FROM point p WINDOW w AS (PARTITION BY p.e ORDER BY p.c))
    SELECT 1, e.e, NULL, NULL, format(E'<path%s d="%s" marker-end="url(#tip)"/>\n',
               CASE WHEN e.stands_in THEN ' class="stand"' END, string_agg(
               CASE WHEN l.px IS NULL THEN format('M%s %s', l.x1, l.y)
                    ELSE format('C%s %s %s %s %s %s', l.px + 22, l.py, l.x1 - 22, l.y, l.x1, l.y)
                         || CASE WHEN l.last THEN '' ELSE 'H' || l.x2 END END, '' ORDER BY l.c))
    FROM line l JOIN e ON e.e = l.e
    GROUP BY e.e, e.stands_in
    UNION ALL
    SELECT 2, n.no, p.x + p.w, p.y, _sas.svg_node(p.x, p.y, p.w, n.step, n.what, n.state, n.note)
    FROM n JOIN at p ON p.id = n.no::text;
END;

-- _sas.svg(run_id): the graph of a run as inline SVG; for more than 300 nodes only a sentence.
CREATE FUNCTION _sas.svg(run_id bigint) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT CASE WHEN g.n = 0 THEN '<p class="none">It has no steps.</p>'
                WHEN g.n > 300 THEN format(
                    '<p class="none">%s steps are too many to draw here; see sas.graph(%s).</p>', g.n, $1)
                ELSE (SELECT format('<div class="scroll"><svg xmlns="http://www.w3.org/2000/svg" width="%s" '
                                    'height="%s" role="img" aria-label="steps of the run">',
                                    max(p.right_end) + 10, max(p.bottom) + 70)
                             || '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
                             || E'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z"/></marker></defs>\n'
                             || string_agg(p.svg, '' ORDER BY p.rank, p.no) || '</svg></div>'
                      FROM _sas.svg_parts($1) p) END
    FROM (SELECT count(*) AS n FROM _sas.run_graph($1)) g;
END;

-- _sas.element_label(step, element): the label of an element. Elements count from 1; in brackets they would
-- read as an index, which counts from 0.
CREATE FUNCTION _sas.element_label(step text, element int) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC SELECT step || coalesce(', element ' || element, ''); END;

-- _sas.html_timeline(run_id, now): bars over an axis: of the whole steps, and of the first 400 elements of
-- each map, the first 400.
CREATE FUNCTION _sas.html_timeline(run_id bigint, now timestamptz) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    WITH span AS MATERIALIZED (SELECT * FROM _sas.spans($1, 400) s ORDER BY s.started_at LIMIT 401),
    axis AS (
        SELECT x.first, x.last, greatest(extract(epoch FROM x.last - x.first)::float8, 0.001) AS long
        FROM (SELECT least(r.created_at, (SELECT min(s.started_at) FROM span s)) AS first,
                     greatest(coalesce(r.finished_at, $2), (SELECT max(s.finished_at) FROM span s)) AS last
              FROM sas.runs r WHERE r.run_id = $1) x),
    bar AS (
        SELECT row_number() OVER (ORDER BY s.started_at, s.step_position, s.step, s.element NULLS FIRST,
                                  s.attempt) AS n,
               _sas.html_escape(concat(CASE WHEN s.undo THEN 'undo ' END,
                                       _sas.element_label(s.step, s.element),
                                       CASE WHEN s.attempt > 1 THEN ' #' || s.attempt END)) AS label,
               concat(CASE WHEN s.undo AND s.status = 'succeeded' THEN 'compensated'
                      ELSE replace(s.status, '_', '') END,
                      CASE WHEN s.status IN ('waiting', 'waited') THEN ' thin' END,
                      CASE WHEN s.finished_at IS NULL THEN ' goes' END) AS class,
               round((100 * x.begins / a.long)::numeric, 2) AS lft,
               round((100 * x.took / a.long)::numeric, 2) AS width,
               _sas.html_escape(concat_ws(E'\n', s.status, s.started_at::text, s.error ->> 'title')) AS title,
               _sas.html_took(x.took * 1000) AS took
        FROM span s CROSS JOIN axis a
        CROSS JOIN LATERAL (
            SELECT extract(epoch FROM s.started_at - a.first)::float8 AS begins,
                   extract(epoch FROM coalesce(s.finished_at, a.last) - s.started_at)::float8 AS took) x
        ORDER BY 1 LIMIT 400),
    mark AS (
        SELECT k, format('<span style="%s">%s</span>',
                         CASE k WHEN 4 THEN 'right: 0' ELSE format('left: %s%%', k * 25) END,
                         CASE k WHEN 0 THEN _sas.html_escape(to_char(a.first, 'HH24:MI:SS'))
                         ELSE '+' || _sas.html_took(a.long * 250 * k) END) AS html
        FROM axis a CROSS JOIN generate_series(0, 4) k)
    SELECT CASE WHEN total.n = 0 THEN '<p class="none">Nothing has been tried yet.</p>'
           ELSE '<div class="tl"><span></span><div class="axis">'
                || (SELECT string_agg(m.html, '' ORDER BY m.k) FROM mark m) || E'</div><span></span>\n'
                || (SELECT string_agg(format(
                        '<div class="l" title="%1$s">%1$s</div><div class="track">'
                        || '<div class="bar s-%2$s" style="left: %3$s%%; width: %4$s%%" title="%5$s">'
                        || E'</div></div><div class="r">%6$s</div>\n',
                        b.label, b.class, least(b.lft, 99.8), least(b.width, 100 - least(b.lft, 99.8)),
                        b.title, b.took), '' ORDER BY b.n) FROM bar b)
                || '</div>'
                || CASE WHEN total.n > 400 OR total.elements > 400
                   THEN format('<p class="dim">and more: see sas.timeline(%s)</p>', $1) ELSE '' END END
    FROM (SELECT (SELECT count(*) FROM span) AS n,
                 (SELECT max(f.total) FROM _sas.run_facts($1) f) AS elements) total;
END;

-- _sas.html_facts(names, html): names with their values; null or empty values are left out.
CREATE FUNCTION _sas.html_facts(names text[], html text[]) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT '<dl>' || string_agg(format('<div><dt>%s</dt><dd>%s</dd></div>', k, v), '' ORDER BY o) || '</dl>'
    FROM unnest(names, html) WITH ORDINALITY AS u (k, v, o) WHERE v <> '';
END;

-- _sas.console_head(look, run_id): what the run is, and why it is in its state.
CREATE FUNCTION _sas.console_head(look _sas.look, run_id bigint) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT _sas.console_top(look, '', format(
                  '<h1>Run %s</h1>%s %s<span>%s <span class="dim">version %s</span></span>', r.run_id,
                  _sas.html_badge(r.state), _sas.html_badge(r.result),
                  _sas.html_link(look, '/runs?workflow=' || _sas.url_text(r.workflow),
                                 _sas.html_escape(r.workflow)), r.version))
           || _sas.html_section('run', 'Run', _sas.html_facts(
                  '{key,submitted by,submitted,set start,began,ended,took,deadline,progress,priority,queue,'
                  'child of run,after run,trace,labels}', ARRAY[
                  _sas.html_escape(r.key), _sas.html_escape(r.submitted_by::text),
                  _sas.html_time(r.created_at, look.now), _sas.html_time(r.start_at, look.now),
                  _sas.html_time(r.started_at, look.now), _sas.html_time(r.finished_at, look.now),
                  _sas.html_took(1000 * extract(epoch FROM coalesce(r.finished_at, look.now)
                                                           - r.started_at)::float8),
                  CASE WHEN r.state <> 'stopped' THEN _sas.html_time(r.deadline, look.now) END,
                  round(100 * r.progress::numeric) || ' %', nullif(r.priority, 0)::text,
                  _sas.html_escape(r.queue), _sas.console_run_link(look, r.parent_run_id),
                  (SELECT string_agg(_sas.console_run_link(look, e), ', ' ORDER BY e)
                   FROM unnest(r.after_runs) e),
                  _sas.html_escape(replace(r.trace_id::text, '-', '')),
                  CASE WHEN r.labels <> '{}' THEN _sas.html_escape(r.labels::text) END])
                  || _sas.console_run_acts(look, r.run_id, r.state))
           || _sas.html_section('why', 'Why', '<ul class="why">' || (
                  SELECT string_agg(format('<li class="%s">%s</li>',
                             CASE WHEN e.step IS NULL THEN 'run'
                             ELSE 's-' || regexp_replace(e.waiting_kind, '[^a-z]', '', 'g') END,
                             _sas.html_escape(CASE WHEN e.run_id <> $2 AND e.step IS NOT NULL
                                              THEN 'run ' || e.run_id || ': ' ELSE '' END || e.text)),
                             '' ORDER BY e.n)
                  FROM (SELECT x.*, row_number() OVER () AS n FROM sas.explain($2) x LIMIT 100) e) || '</ul>',
                  format('SELECT * FROM sas.explain(%s)', $2))
    FROM sas.runs r WHERE r.run_id = $2;
END;

-- _sas.console_step(look, s, most): one step, which the reader can open: its input, output or error, of each
-- that many characters.
CREATE FUNCTION _sas.console_step(look _sas.look, s sas.steps, most int) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT format('<details%s><summary><b>%s</b>%s<span class="dim">%s</span></summary>',
                  CASE WHEN s.state IN ('failed', 'compensating') AND s.element IS NULL THEN ' open=""' END,
                  _sas.html_escape(_sas.element_label(s.step, s.element)), _sas.html_badge(s.state),
                  _sas.html_escape(concat_ws(
                      ', ', concat_ws(' ', s.kind, s.agent),
                      _sas.attempts_of(s.run_id, s.step, s.element, s.state, s.attempt),
                      CASE WHEN s.in_doubt THEN 'in doubt' END,
                      CASE WHEN s.state = 'failed' THEN s.error ->> 'title' END)))
           || '<div class="in">' || _sas.html_facts(
                  '{began,ended,took,attempts,windows that failed,held by,complete by,waits for,until,'
                  'idempotency key}', ARRAY[
                  _sas.html_time(s.started_at, look.now), _sas.html_time(s.finished_at, look.now),
                  CASE WHEN s.state IN ('succeeded', 'failed')
                  THEN _sas.html_took(1000 * extract(epoch FROM s.finished_at - s.started_at)::float8) END,
                  -- attempts of an undo continue the count of the step's attempts; the summary separates
                  -- them
                  CASE WHEN s.state NOT IN ('compensating', 'compensated') THEN s.attempt::text END,
                  nullif(s.failure_count, 0)::text,
                  _sas.html_escape(s.locked_by), _sas.html_time(s.complete_by, look.now),
                  _sas.html_escape(concat_ws(' ', replace(s.waiting_kind, '_', ' '), s.waiting_on)),
                  _sas.html_time(s.waiting_until, look.now), _sas.html_escape(s.idempotency_key)])
           || _sas.html_json('input', nullif(s.input, 'null'), $3) || _sas.html_json('started', s.started, $3)
           || _sas.html_json('output', s.output, $3) || _sas.html_json('error', s.error, $3)
           || CASE WHEN s.element IS NULL AND s.run_state <> 'stopped'
              THEN _sas.console_step_acts(look, s) ELSE '' END
           || E'</div></details>\n';
END;

-- _sas.console_steps(look, run_id): the first 300 steps. The more there are, the less of each value is shown.
CREATE FUNCTION _sas.console_steps(look _sas.look, run_id bigint) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    WITH whole AS MATERIALIZED (
        SELECT array_agg(x.step) AS steps, max(x.total) AS total,
               greatest(1000, least(20000, 300000 / greatest(count(*), 1)))::int AS most
        FROM (SELECT s.step, count(*) OVER () AS total FROM sas.steps s
              WHERE s.run_id = $2 AND s.element IS NULL ORDER BY s.position, s.step LIMIT 300) x)
    SELECT _sas.html_section('steps', 'Steps',
               CASE WHEN whole.total IS NULL THEN '<p class="none">It has no steps.</p>' ELSE (
                   SELECT string_agg(_sas.console_step(look, s, whole.most), '' ORDER BY s.position, s.step)
                   FROM sas.steps s
                   WHERE s.run_id = $2 AND s.step = ANY (whole.steps) AND s.element IS NULL) END
               || _sas.html_more(whole.total, 300, 'sas.steps'),
               'open one for its input, output and error')
    FROM whole;
END;

-- _sas.console_element_counts(look, run_id, args): how many elements of each map are in each state, each with
-- a link to them.
CREATE FUNCTION _sas.console_element_counts(look _sas.look, run_id bigint, args jsonb) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT string_agg(format(E'<p class="pages">%s: %s</p>\n', m.link, m.states), ''
                      ORDER BY m.position, m.step)
    FROM (SELECT g.step, g.position,
                 _sas.html_link(look, format('/runs/%s', $2)
                                      || _sas.url_query(jsonb_build_object('step', g.step)),
                                format('%s of %s', _sas.quantity(sum(g.n)::bigint, 'element'),
                                       _sas.html_escape(g.step))) AS link,
                 string_agg(CASE WHEN args ->> 'step' = g.step AND args ->> 'state' = g.state
                            THEN format('<b>%s %s</b>', g.n, g.state)
                            ELSE _sas.html_link(look, format('/runs/%s', $2) || _sas.url_query(
                                     jsonb_build_object('step', g.step, 'state', g.state)),
                                 format('%s %s', g.n, g.state)) END,
                            ', ' ORDER BY g.n DESC, g.state) AS states
          FROM (SELECT a.step, a.position, a.state, sum(a.n) AS n FROM _sas.element_groups(ARRAY[$2]) a
                GROUP BY 1, 2, 3) g
          GROUP BY 1, 2) m;
END;

-- _sas.console_elements(look, run_id, args): 50 elements of maps: failed ones first, then open ones; or of
-- args.step, and args.state, those after element args.after. Empty without elements. The selection comes
-- first, so that inputs are built for the selected elements only.
CREATE FUNCTION _sas.console_elements(look _sas.look, run_id bigint, args jsonb) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    WITH counts AS MATERIALIZED (SELECT _sas.console_element_counts($1, $2, $3) AS html),
    part AS MATERIALIZED (
        SELECT coalesce(array_agg(p.step ORDER BY p.n), '{}') AS steps,
               coalesce(array_agg(p.element ORDER BY p.n), '{}') AS elements
        FROM _sas.element_page($2, nullif($3 ->> 'step', ''), nullif($3 ->> 'state', ''),
                               nullif($3 ->> 'after', '')::int, 51) WITH ORDINALITY AS p (step, element, n))
    SELECT CASE WHEN counts.html IS NULL THEN '' ELSE _sas.html_section('elements', 'Elements',
               counts.html || coalesce((
                   SELECT string_agg(_sas.console_step($1, s, 2000), ''
                                     ORDER BY s.position, s.step, s.element)
                   FROM sas.steps s
                   JOIN unnest(part.steps[:50], part.elements[:50]) AS u (step, element)
                       ON u.step = s.step AND u.element = s.element
                   WHERE s.run_id = $2 AND s.step = ANY (part.steps) AND s.element = ANY (part.elements)),
                   '<p class="none">None.</p>')
               || CASE WHEN cardinality(part.elements) <= 50 THEN ''
                       WHEN nullif($3 ->> 'step', '') IS NULL
                       THEN '<p class="dim">and more: see sas.steps</p>'
                       ELSE '<p class="pages">' || _sas.html_link(
                               $1, '/runs/' || $2 || _sas.url_query(
                                   $3 - 'run_id' || jsonb_build_object('after', part.elements[50])),
                               'next') || '</p>' END,
               CASE WHEN nullif($3 ->> 'step', '') IS NULL THEN 'those that failed or are open first' END) END
    FROM counts CROSS JOIN part;
END;

-- _sas.console_attempts(look, run_id): the last 200 attempts that did not succeed.
CREATE FUNCTION _sas.console_attempts(look _sas.look, run_id bigint) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT _sas.html_table('{step,#attempt,status,#http,worker,began,error}', array_agg(ARRAY[
                   _sas.html_escape(concat(CASE WHEN a.undo THEN 'undo of ' END,
                                           _sas.element_label(a.step, a.element))),
                   a.attempt::text, _sas.html_badge(a.status), a.http_status::text,
                   _sas.html_escape(a.worker), _sas.html_time(a.started_at, look.now),
                   _sas.html_escape(concat_ws(': ', a.error ->> 'title', left(a.error ->> 'detail', 300)))]
               ORDER BY a.started_at, a.step, a.attempt), 'None.')
    FROM (SELECT * FROM sas.attempts x WHERE x.run_id = $2 AND x.status <> 'succeeded'
          ORDER BY x.started_at DESC LIMIT 200) a;
END;

-- _sas.console_history(look, run_id): the last 200 things that operators did to the run.
CREATE FUNCTION _sas.console_history(look _sas.look, run_id bigint) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT _sas.html_table('{when,who,act,step,reason,detail}', array_agg(ARRAY[
                   _sas.html_time(h.at, look.now), _sas.html_escape(h.role), _sas.html_escape(h.act),
                   _sas.html_escape(h.step), _sas.html_escape(h.reason),
                   _sas.html_escape(left((h.detail - 'reason')::text, 2000))] ORDER BY h.at), 'Nothing.')
           || _sas.html_more(max(h.total), 200, 'sas.history')
    FROM (SELECT x.*, count(*) OVER () AS total FROM sas.history x WHERE x.run_id = $2
          ORDER BY x.at DESC LIMIT 200) h;
END;

-- _sas.console_run(look, run_id, args): the page of one run that the current user may see. args: of
-- _sas.console_elements.
CREATE FUNCTION _sas.console_run(look _sas.look, run_id bigint, args jsonb) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT _sas.html_page(look, format('sas: run %s of %s', r.run_id, r.workflow),
        _sas.console_head(look, $2)
        || _sas.html_section('graph', 'Steps and states', _sas.svg($2))
        || _sas.html_section('timeline', 'Timeline', _sas.html_timeline($2, look.now))
        || _sas.html_section('payload', 'Input, output, error', coalesce(nullif(
               _sas.html_json('input', r.input) || _sas.html_json('output', r.output)
               || _sas.html_json('error', r.error), ''), '<p class="none">Not for this role to see.</p>'))
        || _sas.console_steps(look, $2) || _sas.console_elements(look, $2, args)
        || _sas.html_section('attempts', 'Attempts that did not succeed', _sas.console_attempts(look, $2))
        || _sas.html_section('history', 'What operators did', _sas.console_history(look, $2)))
    FROM sas.runs r WHERE r.run_id = $2;
END;

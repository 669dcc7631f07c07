-- SPDX-License-Identifier: PostgreSQL
--
-- Console of one run: the graph with its states, the timeline, inputs,
-- outputs and errors, as one HTML page.

-- _sas.layout(ids, columns, befores): where each node of a graph is drawn: in its column, there in the order
-- of what comes before it.
CREATE FUNCTION _sas.layout(ids text[], columns int[], befores jsonb) RETURNS TABLE (id text, x int, y float8)
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    most int := (SELECT max(n) FROM (SELECT count(*) AS n FROM unnest(columns) c GROUP BY c) m);
    place jsonb := '{}';
    col record;
BEGIN
    FOR col IN SELECT u.c, array_agg(u.i ORDER BY u.n) AS members
        FROM unnest(ids, columns) WITH ORDINALITY AS u (i, c, n) GROUP BY 1 ORDER BY 1 LOOP
        SELECT place || jsonb_object_agg(p.i, p.k - 1 + (most - cardinality(col.members)) / 2.0) INTO place
        FROM (SELECT m.i, row_number() OVER (
                                             ORDER BY (SELECT avg((place ->> b)::float8)
                                                       FROM jsonb_array_elements_text(
                                befores -> m.i) b) NULLS LAST, m.n) AS k
              FROM unnest(col.members) WITH ORDINALITY AS m (i, n)) p;
    END LOOP;
    RETURN QUERY SELECT u.i, u.c, (place ->> u.i)::float8 FROM unnest(ids, columns) AS u (i, c);
END $$;

-- _sas.svg_parts(run_id): what a drawing of a run is made of, in the order of painting: edges, then nodes.
--   An edge that passes by columns has a place in each of them, so that it does not run behind the steps
--   there.
CREATE FUNCTION _sas.svg_parts(run_id bigint) RETURNS TABLE (rank int, no int, x int, y int, svg text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH n AS MATERIALIZED (SELECT g.*, dense_rank() OVER (ORDER BY g.level)::int - 1 AS col
                            FROM _sas.run_nodes($1) g),
    e AS MATERIALIZED (
        SELECT row_number() OVER (ORDER BY t.no, f.no) AS e, f.no AS f, t.no AS t, f.col AS c1, t.col AS c2,
            t.stands_in, f.step IS NULL AS from_point, t.step IS NULL AS to_point
        FROM n t CROSS JOIN LATERAL unnest(t.after) a JOIN n f ON f.no = a),
    via AS MATERIALIZED (
        SELECT e.e, c, format('%s.%s', e.e, c) AS id, CASE WHEN c = e.c1 + 1 THEN e.f::text
            ELSE format('%s.%s', e.e, c - 1) END AS before
        FROM e CROSS JOIN LATERAL generate_series(e.c1 + 1, e.c2 - 1) c
        WHERE (SELECT sum(o.c2 - o.c1 - 1) FROM e o) <= 600),
    node AS (
        SELECT n.no::text AS id, n.col, n.no,
            (SELECT jsonb_agg(coalesce((SELECT v.id FROM via v WHERE v.e = e.e AND v.c = e.c2 - 1),
                                       e.f::text)) FROM e WHERE e.t = n.no) AS befores FROM n
        UNION ALL SELECT v.id, v.c, 1000000, jsonb_build_array(v.before) FROM via v),
    at AS MATERIALIZED (
        SELECT l.id, l.x * 214 + 8 AS x, (l.y * 74)::int + 8 AS y
        FROM (SELECT array_agg(o.id ORDER BY o.no, o.id) AS ids,
              array_agg(o.col ORDER BY o.no, o.id) AS cols,
              jsonb_object_agg(o.id, coalesce(o.befores, '[]')) AS befores FROM node o) g
        CROSS JOIN LATERAL _sas.layout(g.ids, g.cols, g.befores) l),
    point AS (
        SELECT e.e, e.c1 AS c, f.x + CASE WHEN e.from_point THEN 92 ELSE 170 END AS x1, f.x + CASE
            WHEN e.from_point THEN 92 ELSE 170 END AS x2, f.y + 30 AS y FROM e JOIN at f ON f.id = e.f::text
        UNION ALL SELECT v.e, v.c, p.x, p.x + 170, p.y + 30 FROM via v JOIN at p ON p.id = v.id
        UNION ALL SELECT e.e, e.c2, t.x + CASE WHEN e.to_point THEN 80 ELSE 0 END, 0, t.y + 30 FROM e
            JOIN at t ON t.id = e.t::text),
    line AS (SELECT p.*, lag(p.x2) OVER w AS px, lag(p.y) OVER w AS py, lead(p.e) OVER w IS NULL AS last
             FROM point p WINDOW w AS (PARTITION BY p.e ORDER BY p.c))
    SELECT 1, NULL, NULL, NULL, format(E'<path%s d="%s" marker-end="url(#tip)"/>\n', CASE
                                       WHEN bool_or(e.stands_in) THEN ' class="stand"' ELSE '' END,
               string_agg(CASE WHEN l.px IS NULL THEN format('M%s %s', l.x1, l.y)
                               ELSE format('C%s %s %s %s %s %s', l.px + greatest(20, (l.x1 - l.px) / 2),
                                           l.py, l.x1 - greatest(20, (l.x1 - l.px) / 2), l.y, l.x1, l.y)
                                   || CASE WHEN l.last THEN '' ELSE 'H' || l.x2 END END, '' ORDER BY l.c))
    FROM line l JOIN e ON e.e = l.e GROUP BY l.e
    UNION ALL
    SELECT 2, n.no, p.x, p.y, CASE WHEN n.step IS NULL
        THEN format(E'<circle cx="%s" cy="%s" r="5"/>\n', p.x + 86, p.y + 30)
               ELSE format(
                '<g class="node s-%s"><title>%s</title><rect x="%s" y="%s" width="170" height="60" rx="8"/>'
                                || '<text class="name" x="%s" y="%s">%s</text>'
                                || '<text class="sub" x="%s" y="%s">%s</text>'
                                || E'<text class="sub" x="%s" y="%s">%s</text></g>\n',
                   n.state, _sas.html_escape(concat_ws(E'\n', n.step, concat_ws(' ', n.kind, n.target),
                                                       n.state, nullif(n.note, ''))), p.x, p.y,
                   p.x + 10, p.y + 20, _sas.html_escape(_sas.cut(n.step, 21)), p.x + 10, p.y + 36,
                       _sas.html_escape(_sas.cut(concat_ws(' ', n.kind, n.target), 26)),
                   p.x + 10, p.y + 51, _sas.html_escape(_sas.cut(concat_ws(': ', n.state,
                                       nullif(n.note, '')), 28))) END
    FROM n JOIN at p ON p.id = n.no::text
$$;

-- _sas.svg(run_id): the graph of a run as inline SVG; of one with over 300 nodes only a word.
CREATE FUNCTION _sas.svg(run_id bigint) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    n bigint := (SELECT count(*) FROM _sas.run_graph($1));
BEGIN
    IF n = 0 THEN
        RETURN '<p class="none">It has no steps.</p>';
    ELSIF n > 300 THEN
        RETURN format('<p class="none">%s steps are too many to draw here; see sas.graph(%s).</p>', n, $1);
    END IF;
    RETURN (SELECT format(
                        '<div class="scroll"><svg xmlns="http://www.w3.org/2000/svg" width="%s" height="%s" '
                           'role="img" aria-label="steps of the run">', max(p.x) + 180, max(p.y) + 70)
                   || '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
                    || E'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z"/></marker></defs>\n'
                   || string_agg(p.svg, '' ORDER BY p.rank, p.no) || '</svg></div>'
            FROM _sas.svg_parts($1) p);
END $$;

-- _sas.cut(value, size): not longer than that.
CREATE FUNCTION _sas.cut(value text, size int) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE WHEN length(value) > size THEN left(value, size - 2) || '..' ELSE value END;
END;

-- _sas.html_timeline(run_id, now): bars over an axis, the first 400.
CREATE FUNCTION _sas.html_timeline(run_id bigint, now timestamptz) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH s AS MATERIALIZED (SELECT * FROM _sas.spans($1)),
    axis AS (
        SELECT x.first, greatest(extract(epoch FROM x.last - x.first)::float8, 0.001) AS long, x.last
        FROM (SELECT least(r.created_at, (SELECT min(s.started_at) FROM s)) AS first,
              greatest(coalesce(r.finished_at, now), (SELECT max(s.finished_at) FROM s)) AS last
              FROM sas.runs r WHERE r.run_id = $1) x),
    bars AS (
        SELECT s.*, coalesce(s.finished_at, a.last) AS ends,
            round((100 * extract(epoch FROM s.started_at - a.first)::float8 / a.long)::numeric, 2) AS lft,
               round((100 * extract(epoch FROM coalesce(s.finished_at,
                                                        a.last) - s.started_at)::float8 / a.long)::numeric,
                     2) AS width, a.first
        FROM s CROSS JOIN axis a ORDER BY s.started_at, s.step, s.element NULLS FIRST, s.attempt LIMIT 400)
    SELECT CASE WHEN NOT EXISTS (SELECT FROM s) THEN '<p class="none">Nothing has been tried yet.</p>'
                ELSE '<div class="tl"><span></span><div class="axis">'
                     || (SELECT string_agg(format('<span style="%s">%s</span>', CASE
                                                  WHEN k = 4 THEN 'right: 0'
                                                  ELSE format('left: %s%%', k * 25) END, CASE k
                                                  WHEN 0 THEN _sas.html_escape(to_char(a.first,
                                                 'HH24:MI:SS')) ELSE '+'
                                                  || _sas.html_took(a.long * 250 * k) END), '' ORDER BY k)
                         FROM axis a, generate_series(0, 4) k)
                     || E'</div><span></span>\n'
                     || (SELECT string_agg(format(
                             '<div class="l" title="%1$s">%1$s</div><div class="track">'
                            || '<div class="bar s-%2$s%3$s" style="left: %4$s%%; width: %5$s%%" title="%6$s">'
                              || E'</div></div><div class="r">%7$s</div>\n',
                             _sas.html_escape(CASE WHEN b.undo THEN 'undo '
                                              ELSE '' END || b.step || coalesce('[' || b.element || ']', '')
                                              || CASE WHEN b.attempt > 1 THEN ' #' || b.attempt ELSE '' END),
                             CASE WHEN b.undo AND b.status = 'succeeded' THEN 'compensated'
                                 ELSE replace(b.status, '_', '') END, CASE
                                 WHEN b.status IN ('waiting', 'waited') THEN ' thin' ELSE '' END || CASE
                                 WHEN b.finished_at IS NULL THEN ' goes' ELSE '' END,
                             least(b.lft, 99.8), least(b.width, 100 - least(b.lft, 99.8)),
                                 _sas.html_escape(concat_ws(E'\n', b.status, b.started_at::text,
                                                            b.error ->> 'title')),
                             _sas.html_took(extract(epoch FROM b.ends - b.started_at)::float8 * 1000)), ''
                                 ORDER BY b.started_at, b.step, b.element NULLS FIRST, b.attempt) FROM bars b)
                     || '</div>' || (SELECT CASE WHEN count(*) > 400
                                     THEN format('<p class="dim">and %s more: see sas.timeline(%s)</p>',
                                                 count(*) - 400, $1) ELSE '' END FROM s) END
$$;

-- _sas.console_head(run_id, now): what the run is, and why it is where it is.
CREATE FUNCTION _sas.console_head(run_id bigint, now timestamptz) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format(
                  '<header><h1>Run %s</h1>%s %s<span>%s <span class="dim">version %s</span></span>'
                   || E'<span class="dim">%s, as %s</span></header>\n',
                   r.run_id, _sas.html_badge(r.state), _sas.html_badge(r.result),
                  _sas.html_escape(r.workflow), r.version, to_char(now, 'YYYY-MM-DD HH24:MI:SS TZ'),
                      _sas.html_escape(current_user::text))
        || _sas.html_section('run', 'Run', '<dl>' || (
            SELECT string_agg(format('<div><dt>%s</dt><dd>%s</dd></div>', k, v), '' ORDER BY o)
            FROM (VALUES (1, 'key', _sas.html_escape(r.key)),
                  (2, 'submitted by', _sas.html_escape(r.submitted_by::text)),
                  (3, 'submitted', _sas.html_time(r.created_at, now)),
                  (4, 'set start', _sas.html_time(r.start_at, now)),
                         (5, 'began', _sas.html_time(r.started_at, now)),
                             (6, 'ended', _sas.html_time(r.finished_at, now)),
                             (7, 'took', _sas.html_took(extract(epoch
                                             FROM coalesce(r.finished_at,
                                                           now) - r.started_at)::float8 * 1000)),
                         (8, 'deadline', CASE WHEN r.state <> 'stopped'
                          THEN _sas.html_time(r.deadline, now) END),
                             (9, 'progress', round(100 * r.progress::numeric) || ' %'),
                             (10, 'priority', CASE WHEN r.priority <> 0 THEN r.priority::text END),
                         (11, 'queue', _sas.html_escape(r.queue)),
                             (12, 'child of run', r.parent_run_id::text),
                             (13, 'after run', r.after_run::text),
                             (14, 'trace', _sas.html_escape(replace(r.trace_id::text, '-', ''))),
                         (15, 'labels', CASE WHEN r.labels <> '{}'
                          THEN _sas.html_escape(r.labels::text) END)) AS f (o, k, v)
                             WHERE v <> '') || '</dl>')
        || _sas.html_section('why', 'Why', '<ul class="why">' || (
            SELECT string_agg(format('<li class="%s">%s</li>', CASE WHEN e.step IS NULL THEN 'run'
                                     ELSE 's-' || regexp_replace(e.waiting_kind, '[^a-z]', '', 'g') END,
                                     _sas.html_escape(CASE WHEN e.run_id <> $1
                                                      AND e.step IS NOT NULL THEN 'run ' || e.run_id || ': '
                                                      ELSE '' END || e.text)), '' ORDER BY e.n)
            FROM (SELECT x.*, row_number() OVER () AS n FROM _sas.explain_tree($1) x LIMIT 100) e)
                || '</ul>', format('SELECT * FROM sas.explain(%s)', $1))
    FROM sas.runs r WHERE r.run_id = $1
$$;

-- _sas.console_step(s, now): one step, to be opened: what it was given, returned or failed with.
CREATE FUNCTION _sas.console_step(s sas.steps, now timestamptz) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format(
                  '<details%s><summary><b>%s</b>%s<span class="dim">%s</span></summary>'
                   || E'<div class="in"><dl>%s</dl>%s</div></details>\n',
               CASE WHEN s.state IN ('failed', 'compensating') AND s.element IS NULL THEN ' open=""'
                   ELSE '' END, _sas.html_escape(s.step || coalesce('[' || s.element || ']', '')),
                   _sas.html_badge(s.state),
               _sas.html_escape(concat_ws(', ', concat_ws(' ', s.kind, s.agent), CASE
                                          WHEN s.attempt > 1 THEN _sas.quantity(s.attempt, 'attempt') END,
                                          CASE WHEN s.in_doubt THEN 'in doubt' END, CASE
                                          WHEN s.state = 'failed' THEN s.error ->> 'title' END)),
               (SELECT string_agg(format('<div><dt>%s</dt><dd>%s</dd></div>', k, v), '' ORDER BY o)
                FROM (VALUES (1, 'began', _sas.html_time(s.started_at, now)),
                      (2, 'ended', _sas.html_time(s.finished_at, now)),
                      (3, 'took', CASE WHEN s.state IN ('succeeded', 'failed')
                       THEN _sas.html_took(extract(epoch
                                                   FROM s.finished_at - s.started_at)::float8 * 1000) END),
                             (4, 'attempts', s.attempt::text),
                                 (5, 'windows that failed', nullif(s.failure_count, 0)::text),
                                 (6, 'held by', _sas.html_escape(s.locked_by)),
                                 (7, 'complete by', _sas.html_time(s.complete_by, now)),
                             (8, 'waits for', _sas.html_escape(concat_ws(' ',
                                                 replace(s.waiting_kind, '_', ' '), s.waiting_on))),
                                 (9, 'until', _sas.html_time(s.waiting_until, now)),
                                 (10, 'idempotency key', _sas.html_escape(s.idempotency_key))) AS f (o, k, v)
                                 WHERE v <> ''),
               _sas.html_json('input', nullif(s.input, 'null')) || _sas.html_json('started', s.started)
                   || _sas.html_json('output', s.output) || _sas.html_json('error', s.error))
$$;

-- _sas.console_steps(run_id, now): the first 300 steps; of their elements 50: those that failed, then those
-- that are open.
--   Which ones are shown is found out first, so that inputs are made for those only.
CREATE FUNCTION _sas.console_steps(run_id bigint, now timestamptz) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    names text[];
    parts text[];
    elements int[];
    total bigint;
    total_elements bigint;
    html text;
    more text;
BEGIN
    SELECT array_agg(g.step ORDER BY g.level, g.no) INTO names
    FROM (SELECT o.step, o.level, o.no FROM _sas.run_graph($1) o WHERE o.step IS NOT NULL
          ORDER BY o.level, o.no LIMIT 300) g;
    SELECT count(*) INTO total FROM _sas.run_nodes($1) n WHERE n.step IS NOT NULL;
    SELECT string_agg(_sas.console_step(s, now), '' ORDER BY array_position(names, s.step)) INTO html
    FROM sas.steps s WHERE s.run_id = $1 AND s.step = ANY (names) AND s.element IS NULL;
    SELECT array_agg(f.step), array_agg(f.element), max(f.total) INTO parts, elements, total_elements
    FROM (SELECT s.step, s.element, count(*) OVER () AS total FROM sas.steps s WHERE s.run_id = $1
          AND s.element IS NOT NULL
          ORDER BY s.state = 'failed' DESC, s.state IN ('running', 'suspended', 'compensating') DESC, s.step,
              s.element LIMIT 50) f;
    SELECT string_agg(_sas.console_step(s, now), '' ORDER BY s.step, s.element) INTO more
    FROM sas.steps s JOIN unnest(parts, elements) AS u (step, element) ON u.step = s.step
        AND u.element = s.element
    WHERE s.run_id = $1 AND s.step = ANY (parts) AND s.element = ANY (elements);
    RETURN _sas.html_section('steps', 'Steps', coalesce(html, '<p class="none">It has no steps.</p>')
               || CASE WHEN total > 300 THEN format('<p class="dim">and %s more: see sas.steps</p>',
                                                    total - 300) ELSE '' END,
                   'open one for its input, output and error')
           || CASE WHEN more IS NOT NULL
               THEN _sas.html_section('elements', 'Elements', more || CASE
                                      WHEN total_elements > 50
                                      THEN format('<p class="dim">and %s more: see sas.steps</p>',
                                                  total_elements - 50) ELSE '' END,
                                                                'those that failed or are open first')
                                                                    ELSE '' END;
END $$;

-- _sas.console_run(id): the page of one run.
-- Errors: 42704 no such run, or not visible.
CREATE FUNCTION _sas.console_run(id bigint) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET jit = off AS $$
DECLARE
    now timestamptz := _sas.now();
    r record;
BEGIN
    PERFORM _sas.visible_run(id);
    SELECT x.workflow, x.input, x.output, x.error INTO r FROM sas.runs x WHERE x.run_id = id;
    RETURN _sas.html_page(format('sas: run %s of %s', id, r.workflow),
        _sas.console_head(id, now) || _sas.html_section('graph', 'Steps and states', _sas.svg(id))
            || _sas.html_section('timeline', 'Timeline', _sas.html_timeline(id, now))
        || _sas.html_section('payload', 'Input, output, error',
                             coalesce(nullif(_sas.html_json('input', r.input)
                                             || _sas.html_json('output', r.output)
                                             || _sas.html_json('error', r.error), ''),
                                      '<p class="none">Not for this role to see.</p>'))
        || _sas.console_steps(id, now)
        || _sas.html_section('attempts', 'Attempts that did not succeed', (
            SELECT _sas.html_table('{step,#attempt,status,#http,worker,began,error}',
                string_agg(_sas.html_row(ARRAY[_sas.html_escape(CASE WHEN a.undo THEN 'undo of '
                                        ELSE '' END || a.step || coalesce('[' || a.element || ']', '')),
                                               a.attempt::text, _sas.html_badge(a.status),
                                               a.http_status::text, _sas.html_escape(a.worker),
                                               _sas.html_time(a.started_at, now),
                                                   _sas.html_escape(concat_ws(': ', a.error ->> 'title',
                                                               left(a.error ->> 'detail', 300)))], '{2,4}'),
                                                   '' ORDER BY a.started_at, a.step, a.attempt), 'None.')
            FROM (SELECT * FROM sas.attempts x WHERE x.run_id = id AND x.status <> 'succeeded'
                  ORDER BY x.started_at DESC LIMIT 200) a))
        || _sas.html_section('history', 'What operators did', (
            SELECT _sas.html_table('{when,who,act,step,detail}',
                                   string_agg(_sas.html_row(ARRAY[_sas.html_time(h.at, now),
                                    _sas.html_escape(h.role), _sas.html_escape(h.act),
                                    _sas.html_escape(h.step), _sas.html_escape(h.detail::text)]), ''
                                              ORDER BY h.at), 'Nothing.')
            FROM sas.history h WHERE h.run_id = id)));
END $$;

CREATE FUNCTION _sas.draw_console(run_id bigint) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC SELECT CASE WHEN $1 IS NULL THEN _sas.console_all() ELSE _sas.console_run($1) END; END;

CREATE FUNCTION sas.console(run_id bigint DEFAULT NULL) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC SELECT _sas.draw_console($1); END;
COMMENT ON FUNCTION sas.console IS 'One HTML page that needs nothing else: of all runs, agents and workers, '
                                   'or with run_id of that run. It shows what the calling role may see.';

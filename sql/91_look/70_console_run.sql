-- SPDX-License-Identifier: PostgreSQL
--
-- Console of one run: the graph with its states, the timeline, inputs,
-- outputs and errors, as one HTML page.

-- sas._layout(nos, levels, afters): where each node of a graph is drawn: columns by level, and in a column in the order of what comes before.
CREATE FUNCTION sas._layout(nos int[], levels int[], afters jsonb) RETURNS TABLE (no int, x int, y float8)
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    most int := (SELECT max(n) FROM (SELECT count(*) AS n FROM unnest(levels) l GROUP BY l) c);
    place jsonb := '{}';
    col record;
BEGIN
    FOR col IN SELECT l AS level, array_agg(n ORDER BY n) AS members FROM unnest(nos, levels) AS u (n, l) GROUP BY 1 ORDER BY 1 LOOP
        SELECT place || jsonb_object_agg(p.n, (p.k - 1 + (most - cardinality(col.members)) / 2.0)) INTO place
        FROM (SELECT m.n, row_number() OVER (ORDER BY (SELECT avg((place ->> a)::float8) FROM jsonb_array_elements_text(afters -> m.n::text) a) NULLS LAST, m.n) AS k
              FROM unnest(col.members) AS m (n)) p;
    END LOOP;
    RETURN QUERY SELECT u.n, dense_rank() OVER (ORDER BY u.l)::int - 1, (place ->> u.n::text)::float8 FROM unnest(nos, levels) AS u (n, l);
END $$;

-- sas._svg(run_id): the graph of a run as inline SVG; of one with over 300 nodes only a word.
CREATE FUNCTION sas._svg(run_id bigint) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH n AS MATERIALIZED (SELECT * FROM sas._run_nodes($1)),
    l AS MATERIALIZED (
        SELECT p.no, p.x * 214 + 8 AS x, (p.y * 76 + 8)::int AS y
        FROM (SELECT array_agg(n.no ORDER BY n.no) AS nos, array_agg(n.level ORDER BY n.no) AS levels, jsonb_object_agg(n.no, to_jsonb(n.after)) AS afters FROM n HAVING count(*) BETWEEN 1 AND 300) g
        CROSS JOIN LATERAL sas._layout(g.nos, g.levels, g.afters) p),
    e AS (
        SELECT b.stands_in, CASE WHEN f.step IS NULL THEN fl.x + 92 ELSE fl.x + 170 END AS x1, fl.y + 30 AS y1, CASE WHEN b.step IS NULL THEN tl.x + 80 ELSE tl.x END AS x2, tl.y + 30 AS y2
        FROM n b CROSS JOIN LATERAL unnest(b.after) a JOIN n f ON f.no = a JOIN l fl ON fl.no = f.no JOIN l tl ON tl.no = b.no)
    SELECT CASE WHEN NOT EXISTS (SELECT FROM n) THEN '<p class="none">It has no steps.</p>'
                WHEN NOT EXISTS (SELECT FROM l) THEN format('<p class="none">%s steps are too many to draw here; see sas.graph(%s).</p>', (SELECT count(*) FROM n), $1)
                ELSE format(E'<div class="scroll"><svg xmlns="http://www.w3.org/2000/svg" width="%s" height="%s" role="img" aria-label="steps of the run">', (SELECT max(l.x) + 186 FROM l), (SELECT max(l.y) + 72 FROM l))
                     || E'<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z"/></marker></defs>\n'
                     || coalesce((SELECT string_agg(format(E'<path%s d="M%s %sC%s %s %s %s %s %s" marker-end="url(#tip)"/>\n', CASE WHEN e.stands_in THEN ' class="stand"' ELSE '' END,
                                                           e.x1, e.y1, e.x1 + greatest(22, (e.x2 - e.x1) / 2), e.y1, e.x2 - greatest(22, (e.x2 - e.x1) / 2), e.y2, e.x2, e.y2), '') FROM e), '')
                     || (SELECT string_agg(CASE WHEN n.step IS NULL THEN format(E'<circle cx="%s" cy="%s" r="5"/>\n', l.x + 86, l.y + 30)
                             ELSE format(E'<g class="node s-%s"><title>%s</title><rect x="%s" y="%s" width="170" height="60" rx="8"/><text class="name" x="%s" y="%s">%s</text><text class="sub" x="%s" y="%s">%s</text><text class="sub" x="%s" y="%s">%s</text></g>\n',
                                 n.state, sas._html_escape(concat_ws(E'\n', n.step, concat_ws(' ', n.kind, n.target), n.state, nullif(n.note, ''))), l.x, l.y,
                                 l.x + 10, l.y + 20, sas._html_escape(sas._cut(n.step, 21)), l.x + 10, l.y + 36, sas._html_escape(sas._cut(concat_ws(' ', n.kind, n.target), 25)),
                                 l.x + 10, l.y + 51, sas._html_escape(sas._cut(concat_ws(': ', n.state, nullif(n.note, '')), 27))) END, '' ORDER BY n.no)
                         FROM n JOIN l ON l.no = n.no)
                     || '</svg></div>' END
$$;

-- sas._cut(value, size): not longer than that.
CREATE FUNCTION sas._cut(value text, size int) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN length(value) > size THEN left(value, size - 2) || '..' ELSE value END
$$;

-- sas._html_timeline(run_id, now): bars over an axis, the first 400.
CREATE FUNCTION sas._html_timeline(run_id bigint, now timestamptz) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH s AS MATERIALIZED (SELECT * FROM sas._spans($1)),
    axis AS (
        SELECT x.first, greatest(extract(epoch FROM x.last - x.first)::float8, 0.001) AS long, x.last
        FROM (SELECT least(r.created_at, (SELECT min(s.started_at) FROM s)) AS first, greatest(coalesce(r.finished_at, now), (SELECT max(s.finished_at) FROM s)) AS last FROM sas.runs r WHERE r.run_id = $1) x),
    bars AS (
        SELECT s.*, coalesce(s.finished_at, a.last) AS ends, round((100 * extract(epoch FROM s.started_at - a.first)::float8 / a.long)::numeric, 2) AS lft,
               round((100 * extract(epoch FROM coalesce(s.finished_at, a.last) - s.started_at)::float8 / a.long)::numeric, 2) AS width, a.first
        FROM s CROSS JOIN axis a ORDER BY s.started_at, s.step, s.element NULLS FIRST, s.attempt LIMIT 400)
    SELECT CASE WHEN NOT EXISTS (SELECT FROM s) THEN '<p class="none">Nothing has been tried yet.</p>'
                ELSE '<div class="tl"><span></span><div class="axis">'
                     || (SELECT string_agg(format('<span style="%s">%s</span>', CASE WHEN k = 4 THEN 'right: 0' ELSE format('left: %s%%', k * 25) END, CASE k WHEN 0 THEN sas._html_escape(to_char(a.first, 'HH24:MI:SS')) ELSE '+' || sas._html_took(a.long * 250 * k) END), '' ORDER BY k) FROM axis a, generate_series(0, 4) k)
                     || E'</div><span></span>\n'
                     || (SELECT string_agg(format(E'<div class="l" title="%1$s">%1$s</div><div class="track"><div class="bar s-%2$s%3$s" style="left: %4$s%%; width: %5$s%%" title="%6$s"></div></div><div class="r">%7$s</div>\n',
                             sas._html_escape(CASE WHEN b.undo THEN 'undo ' ELSE '' END || b.step || coalesce('[' || b.element || ']', '') || CASE WHEN b.attempt > 1 THEN ' #' || b.attempt ELSE '' END),
                             CASE WHEN b.undo AND b.status = 'succeeded' THEN 'compensated' ELSE replace(b.status, '_', '') END, CASE WHEN b.status IN ('waiting', 'waited') THEN ' thin' ELSE '' END || CASE WHEN b.finished_at IS NULL THEN ' goes' ELSE '' END,
                             least(b.lft, 99.8), least(b.width, 100 - least(b.lft, 99.8)), sas._html_escape(concat_ws(E'\n', b.status, b.started_at::text, b.error ->> 'title')),
                             sas._html_took(extract(epoch FROM b.ends - b.started_at)::float8 * 1000)), '' ORDER BY b.started_at, b.step, b.element NULLS FIRST, b.attempt) FROM bars b)
                     || '</div>' || (SELECT CASE WHEN count(*) > 400 THEN format('<p class="dim">and %s more: see sas.timeline(%s)</p>', count(*) - 400, $1) ELSE '' END FROM s) END
$$;

-- sas._console_head(run_id, now): what the run is, and why it is where it is.
CREATE FUNCTION sas._console_head(run_id bigint, now timestamptz) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format(E'<header><h1>Run %s</h1>%s %s<span>%s <span class="dim">version %s</span></span><span class="dim">%s, as %s</span></header>\n', r.run_id, sas._html_badge(r.state), sas._html_badge(r.result),
                  sas._html_escape(r.workflow), r.version, to_char(now, 'YYYY-MM-DD HH24:MI:SS TZ'), sas._html_escape(current_user::text))
        || sas._html_section('run', 'Run', '<dl>' || (
            SELECT string_agg(format('<div><dt>%s</dt><dd>%s</dd></div>', k, v), '' ORDER BY o)
            FROM (VALUES (1, 'key', sas._html_escape(r.key)), (2, 'submitted by', sas._html_escape(r.submitted_by::text)), (3, 'submitted', sas._html_time(r.created_at, now)), (4, 'set start', sas._html_time(r.start_at, now)),
                         (5, 'began', sas._html_time(r.started_at, now)), (6, 'ended', sas._html_time(r.finished_at, now)), (7, 'took', sas._html_took(extract(epoch FROM coalesce(r.finished_at, now) - r.started_at)::float8 * 1000)),
                         (8, 'deadline', CASE WHEN r.state <> 'stopped' THEN sas._html_time(r.deadline, now) END), (9, 'progress', round(100 * r.progress::numeric) || ' %'), (10, 'priority', CASE WHEN r.priority <> 0 THEN r.priority::text END),
                         (11, 'queue', sas._html_escape(r.queue)), (12, 'child of run', r.parent_run_id::text), (13, 'after run', r.after_run::text), (14, 'trace', sas._html_escape(replace(r.trace_id::text, '-', ''))),
                         (15, 'labels', CASE WHEN r.labels <> '{}' THEN sas._html_escape(r.labels::text) END)) AS f (o, k, v) WHERE v <> '') || '</dl>')
        || sas._html_section('why', 'Why', '<ul class="why">' || (
            SELECT string_agg(format('<li class="%s">%s</li>', CASE WHEN e.step IS NULL THEN 'run' ELSE 's-' || regexp_replace(e.waiting_kind, '[^a-z]', '', 'g') END,
                                     sas._html_escape(CASE WHEN e.run_id <> $1 AND e.step IS NOT NULL THEN 'run ' || e.run_id || ': ' ELSE '' END || e.text)), '' ORDER BY e.n)
            FROM (SELECT x.*, row_number() OVER () AS n FROM sas._explain($1) x LIMIT 100) e) || '</ul>', format('SELECT * FROM sas.explain(%s)', $1))
    FROM sas.runs r WHERE r.run_id = $1
$$;

-- sas._console_steps(run_id, now): each step with what it was given, returned or failed with; elements after their step, the first 500.
CREATE FUNCTION sas._console_steps(run_id bigint, now timestamptz) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT sas._html_section('steps', 'Steps', coalesce(string_agg(
        format(E'<details%s><summary><b>%s</b>%s<span class="dim">%s</span></summary><div class="in"><dl>%s</dl>%s</div></details>\n',
               CASE WHEN s.state IN ('failed', 'compensating') THEN ' open' ELSE '' END, sas._html_escape(s.step || coalesce('[' || s.element || ']', '')), sas._html_badge(s.state),
               sas._html_escape(concat_ws(', ', concat_ws(' ', s.kind, s.agent), CASE WHEN s.attempt > 1 THEN sas._count(s.attempt, 'attempt') END, CASE WHEN s.in_doubt THEN 'in doubt' END, CASE WHEN s.state = 'failed' THEN s.error ->> 'title' END)),
               (SELECT string_agg(format('<div><dt>%s</dt><dd>%s</dd></div>', k, v), '' ORDER BY o)
                FROM (VALUES (1, 'began', sas._html_time(s.started_at, now)), (2, 'ended', sas._html_time(s.finished_at, now)), (3, 'took', CASE WHEN s.state IN ('succeeded', 'failed') THEN sas._html_took(extract(epoch FROM s.finished_at - s.started_at)::float8 * 1000) END),
                             (4, 'attempts', s.attempt::text), (5, 'windows that failed', nullif(s.failure_count, 0)::text), (6, 'held by', sas._html_escape(s.locked_by)), (7, 'complete by', sas._html_time(s.complete_by, now)),
                             (8, 'waits for', sas._html_escape(concat_ws(' ', replace(s.waiting_kind, '_', ' '), s.waiting_on))), (9, 'until', sas._html_time(s.waiting_until, now)), (10, 'idempotency key', sas._html_escape(s.idempotency_key))) AS f (o, k, v) WHERE v <> ''),
               sas._html_json('input', nullif(s.input, 'null')) || sas._html_json('started', s.started) || sas._html_json('output', s.output) || sas._html_json('error', s.error)), '' ORDER BY s.level, s.no, s.element NULLS FIRST), '<p class="none">It has no steps.</p>')
        || CASE WHEN max(s.total) > 500 THEN format('<p class="dim">and %s more: see sas.steps</p>', max(s.total) - 500) ELSE '' END, 'open one for its input, output and error')
    FROM (SELECT x.*, coalesce(g.level, 0) AS level, coalesce(g.no, 0) AS no, count(*) OVER () AS total
          FROM sas.steps x LEFT JOIN sas._run_graph($1) g ON g.step = x.step WHERE x.run_id = $1 ORDER BY x.element IS NOT NULL, 2, g.level, g.no, x.element LIMIT 500) s
$$;

-- sas._console_run(id): the page of one run.
-- Errors: 42704 no such run, or not visible.
CREATE FUNCTION sas._console_run(id bigint) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET jit = off AS $$
DECLARE
    now timestamptz := sas._now();
    r record;
BEGIN
    PERFORM sas._visible_run(id);
    SELECT x.workflow, x.input, x.output, x.error INTO r FROM sas.runs x WHERE x.run_id = id;
    RETURN sas._html_page(format('sas: run %s of %s', id, r.workflow),
        sas._console_head(id, now) || sas._html_section('graph', 'Steps and states', sas._svg(id)) || sas._html_section('timeline', 'Timeline', sas._html_timeline(id, now))
        || sas._html_section('payload', 'Input, output, error', coalesce(nullif(sas._html_json('input', r.input) || sas._html_json('output', r.output) || sas._html_json('error', r.error), ''), '<p class="none">Not for this role to see.</p>'))
        || sas._console_steps(id, now)
        || sas._html_section('attempts', 'Attempts that did not succeed', (
            SELECT sas._html_table('{step,#attempt,status,#http,worker,began,error}',
                string_agg(sas._html_row(ARRAY[sas._html_escape(CASE WHEN a.undo THEN 'undo of ' ELSE '' END || a.step || coalesce('[' || a.element || ']', '')), a.attempt::text, sas._html_badge(a.status), a.http_status::text, sas._html_escape(a.worker),
                                               sas._html_time(a.started_at, now), sas._html_escape(concat_ws(': ', a.error ->> 'title', left(a.error ->> 'detail', 300)))], '{2,4}'), '' ORDER BY a.started_at, a.step, a.attempt), 'None.')
            FROM (SELECT * FROM sas.attempts x WHERE x.run_id = id AND x.status <> 'succeeded' ORDER BY x.started_at DESC LIMIT 200) a))
        || sas._html_section('history', 'What operators did', (
            SELECT sas._html_table('{when,who,act,step,detail}', string_agg(sas._html_row(ARRAY[sas._html_time(h.at, now), sas._html_escape(h.role), sas._html_escape(h.act), sas._html_escape(h.step), sas._html_escape(h.detail::text)]), '' ORDER BY h.at), 'Nothing.')
            FROM sas.history h WHERE h.run_id = id)));
END $$;

CREATE FUNCTION sas.console(run_id bigint DEFAULT NULL) RETURNS text
LANGUAGE sql STABLE AS $$ SELECT CASE WHEN $1 IS NULL THEN sas._console() ELSE sas._console_run($1) END $$;
COMMENT ON FUNCTION sas.console IS 'One HTML page that needs nothing else: of all runs, agents and workers, or with run_id of that run. It shows what the role that calls it may see.';

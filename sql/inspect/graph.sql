-- SPDX-License-Identifier: PostgreSQL
--
-- Graph: the steps of a run or a workflow and what leads where, with the
-- states of the run, for tools that draw: mermaid, dot.

-- _sas.version_graph(version_id): the compiled steps of a version. step is null for points that only join
-- others;
-- level: how many come before it at most; after: from which steps an edge leads to it.
CREATE FUNCTION _sas.version_graph(version_id int)
RETURNS TABLE (no int, step text, kind text, target text, stands_in boolean, level int, after int[])
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
DECLARE
    from_nos int[];
    to_nos int[];
    most int := (SELECT max(w.step_no) FROM _sas.workflow_step w WHERE w.version_id = $1);
    last int := (SELECT v.finalize_no FROM _sas.workflow_version v WHERE v.version_id = $1
                 AND v.step_count > 0);
BEGIN
    SELECT array_agg(x.from_no ORDER BY x.from_no, x.to_no), array_agg(x.to_no ORDER BY x.from_no, x.to_no)
        INTO from_nos, to_nos
    FROM (SELECT e.from_no, e.to_no FROM _sas.workflow_edge e WHERE e.version_id = $1
          UNION ALL
          SELECT (w.shape ->> 'stands_in')::int, w.step_no FROM _sas.workflow_step w WHERE w.version_id = $1
              AND NOT w.undo AND w.shape ? 'stands_in'
          UNION ALL
          -- finalize comes after all: after those that nothing follows
          SELECT w.step_no, last FROM _sas.workflow_step w
          WHERE last IS NOT NULL AND w.version_id = $1 AND NOT w.undo AND w.step_no <> last
              AND NOT coalesce(w.shape ? 'stands_in', false)
            AND NOT EXISTS (SELECT FROM _sas.workflow_edge e WHERE e.version_id = $1
                            AND e.from_no = w.step_no)) x;
    RETURN QUERY
    SELECT w.step_no, CASE WHEN NOT w.hidden OR w.shape ? 'stands_in' THEN w.name END, CASE w.kind
        WHEN 'join' THEN 'include' ELSE w.kind END,
           coalesce(a.name, w.function, w.shape ->> 'workflow', w.shape #>> '{wait,signal}'),
               coalesce(w.shape ? 'stands_in', false),
           coalesce(l.level, 0), coalesce(b.after, '{}')
    FROM _sas.workflow_step w
    LEFT JOIN _sas.agent a ON a.agent_id = w.lane
    LEFT JOIN (SELECT u.level, u.no
               FROM unnest(_sas.levels(from_nos, to_nos, most)) WITH ORDINALITY AS u (level, no)) l
        ON l.no = w.step_no
    LEFT JOIN (SELECT u.to_no, array_agg(u.from_no ORDER BY u.from_no) AS after
               FROM unnest(from_nos, to_nos) AS u (from_no, to_no) GROUP BY 1) b ON b.to_no = w.step_no
    WHERE w.version_id = $1 AND NOT w.undo
    ORDER BY w.step_no;
END $$;

-- _sas.run_graph(run_id), _sas.workflow_graph(workflow): of what the caller may see; no rows otherwise.
CREATE FUNCTION _sas.run_graph(run_id bigint)
RETURNS TABLE (no int, step text, kind text, target text, stands_in boolean, level int, after int[])
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_verb';

CREATE FUNCTION _sas.run_graph_as(caller oid, run_id bigint)
RETURNS TABLE (no int, step text, kind text, target text, stands_in boolean, level int, after int[])
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT g.* FROM _sas.run r CROSS JOIN LATERAL _sas.version_graph(r.version_id) g WHERE r.run_id = $2
        AND _sas.may_see($1, r.owner)
$$;

CREATE FUNCTION _sas.workflow_graph(workflow text)
RETURNS TABLE (no int, step text, kind text, target text, stands_in boolean, level int, after int[])
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_verb';

CREATE FUNCTION _sas.workflow_graph_as(caller oid, workflow text)
RETURNS TABLE (no int, step text, kind text, target text, stands_in boolean, level int, after int[])
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT g.*
    FROM _sas.workflow f JOIN _sas.workflow_version v ON v.workflow_id = f.workflow_id
        AND v.version = f.version
    CROSS JOIN LATERAL _sas.version_graph(v.version_id) g
    WHERE f.name = $2 AND f.dropped_at IS NULL
      AND (_sas.may_see($1, f.owner) OR EXISTS (SELECT FROM _sas.workflow_grant x
                                                WHERE x.workflow_id = f.workflow_id
                                                AND pg_has_role($1, x.role, 'MEMBER')))
$$;

-- _sas.run_nodes(run_id): the same with how the steps of the run stand. note: what is to be said about it in
-- a few words.
CREATE FUNCTION _sas.run_nodes(run_id bigint)
RETURNS TABLE (no int, step text, kind text, target text, stands_in boolean, level int, after int[],
               state text, note text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT g.*, s.state,
           concat_ws(', ', CASE WHEN f.total > 0
                     THEN format('%s of %s ended', f.total - f.remaining, f.total) END,
                     CASE WHEN s.attempt > 1 THEN _sas.quantity(s.attempt, 'attempt') END,
                     CASE WHEN s.waiting_kind NOT IN ('steps', 'undo', 'elements')
                         AND s.run_state <> 'scheduled'
                          THEN replace(s.waiting_kind, '_', ' ') || CASE
                              WHEN s.waiting_kind IN ('child', 'place', 'resume', 'reply', 'worker') THEN ''
                              ELSE coalesce(' ' || s.waiting_on, '') END END,
                     CASE WHEN s.state = 'failed' THEN _sas.title(s.error) END)
    FROM _sas.run_graph($1) g
    LEFT JOIN sas.steps s ON s.run_id = $1 AND s.step = g.step AND s.element IS NULL
    LEFT JOIN _sas.run_facts($1) f ON f.step = g.step
    -- a fallback that was not needed is left out
    WHERE NOT g.stands_in OR s.state IS NOT NULL
$$;

-- _sas.mermaid_text(value), _sas.dot_text(value): inside of a quoted label. Mermaid knows entities by # and a
-- name or number.
CREATE FUNCTION _sas.mermaid_text(value text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    SELECT replace(replace(replace(replace(replace(replace(translate(value, E'\r\n\t', '   '), '#', '#35;'),
                   '&', '#amp;'), '"', '#quot;'), '<', '#lt;'), '>', '#gt;'), '`', '#96;');
END;

CREATE FUNCTION _sas.dot_text(value text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    SELECT replace(replace(translate(value, E'\r\n\t', '   '), E'\\', E'\\\\'), '"', E'\\"');
END;

-- _sas.state_colours(): fill, border and text of each state, as in the console.
CREATE FUNCTION _sas.state_colours() RETURNS TABLE (state text, fill text, border text, ink text)
LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    VALUES ('waiting', '#f4f4f5', '#a1a1aa', '#52525b'), ('ready', '#e0f2fe', '#38bdf8', '#075985'),
        ('running', '#dbeafe', '#2563eb', '#1e3a8a'),
           ('suspended', '#ede9fe', '#8b5cf6', '#4c1d95'), ('succeeded', '#dcfce7', '#16a34a', '#14532d'),
               ('failed', '#fee2e2', '#dc2626', '#7f1d1d'),
           ('skipped', '#fafafa', '#d4d4d8', '#71717a'), ('cancelled', '#f4f4f5', '#71717a', '#3f3f46'),
           ('compensating', '#ffedd5', '#f97316', '#7c2d12'),
               ('compensated', '#fef3c7', '#d97706', '#78350f');
END;

-- _sas.draw(nodes, format): the text of a graph. nodes: an object per row of _sas.run_nodes or
-- _sas.workflow_graph, by number.
CREATE FUNCTION _sas.draw(nodes jsonb, format text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH n AS (
        SELECT x.no, x.step, x.after, x.state, x.stands_in,
               concat_ws(E'\n', x.step, CASE WHEN x.target IS NOT NULL THEN x.kind || ' ' || x.target
                         ELSE x.kind END, nullif(concat_ws(': ', x.state, nullif(x.note, '')), '')) AS label
        FROM jsonb_to_recordset(nodes) AS x (no int, step text, kind text, target text, stands_in boolean,
                                             level int, after int[], state text, note text)),
    e AS (SELECT a AS from_no, n.no AS to_no, n.stands_in FROM n, unnest(n.after) a
          WHERE EXISTS (SELECT FROM n f WHERE f.no = a))
    SELECT CASE format
        WHEN 'mermaid' THEN
            E'flowchart LR\n'
            || coalesce((SELECT string_agg(CASE WHEN n.step IS NULL THEN format('  s%s(( ))', n.no)
                                                ELSE format('  s%s["%s"]%s', n.no,
                                                            (SELECT string_agg(_sas.mermaid_text(l), '<br/>'
                                                                    ORDER BY o) FROM string_to_table(n.label,
                                                                    E'\n') WITH ORDINALITY AS u (l, o)),
                                                            coalesce(':::' || n.state, '')) END || E'\n', ''
                                                    ORDER BY n.no) FROM n), '')
            || coalesce((SELECT string_agg(format(E'  s%s %s s%s\n', e.from_no, CASE
                                                  WHEN e.stands_in THEN '-.->' ELSE '-->' END, e.to_no), ''
                                           ORDER BY e.from_no, e.to_no) FROM e), '')
            || coalesce((SELECT string_agg(format(E'  classDef %s fill:%s,stroke:%s,color:%s\n', c.state,
                                                  c.fill, c.border, c.ink), '' ORDER BY c.state)
                         FROM _sas.state_colours() c WHERE c.state IN (SELECT n.state FROM n)), '')
        ELSE
            E'digraph sas {\n  rankdir=LR;\n'
             || E'  node [shape=box, style="rounded,filled", fontname="sans-serif", fillcolor="#f4f4f5"];\n'
            || coalesce((SELECT string_agg(CASE WHEN n.step IS NULL THEN format('  s%s [shape=point];', n.no)
                                                ELSE format('  s%s [label=%s%s];', n.no, (
                        SELECT '"' || string_agg(_sas.dot_text(l), E'\\n' ORDER BY o) || '"'
                        FROM string_to_table(n.label, E'\n') WITH ORDINALITY AS u (l, o)),
                                                            coalesce(format(
                                                                            ', fillcolor="%s", color="%s", '
                                                                            'fontcolor="%s"', c.fill,
                                                                            c.border, c.ink), '')) END
                                                                || E'\n', '' ORDER BY n.no)
                         FROM n LEFT JOIN _sas.state_colours() c ON c.state = n.state), '')
            || coalesce((SELECT string_agg(format(E'  s%s -> s%s%s;\n', e.from_no, e.to_no, CASE
                                                  WHEN e.stands_in THEN ' [style=dashed]' ELSE '' END), ''
                                           ORDER BY e.from_no, e.to_no) FROM e), '')
            || E'}\n' END
$$;

-- _sas.check_format(format)
CREATE FUNCTION _sas.check_format(format text) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF format IS NULL OR NOT format IN ('mermaid', 'dot') THEN
        RAISE EXCEPTION 'format "%" is not known', coalesce(format, 'null')
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /format.',
            HINT = 'The formats are mermaid and dot.';
    END IF;
END $$;

-- _sas.draw_run(run_id, format), _sas.draw_workflow(workflow, format). Errors: 22023 the format; 42704 no
-- such run or workflow, or not visible.
CREATE FUNCTION _sas.draw_run(run_id bigint, format text) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET jit = off AS $$
BEGIN
    PERFORM _sas.check_format($2);
    PERFORM _sas.visible_run($1);
    RETURN _sas.draw((SELECT jsonb_agg(to_jsonb(n) ORDER BY n.no) FROM _sas.run_nodes($1) n), $2);
END $$;

CREATE FUNCTION sas.graph(run_id bigint, format text DEFAULT 'mermaid') RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC SELECT _sas.draw_run($1, $2); END;
COMMENT ON FUNCTION sas.graph(bigint,
                              text) IS 'The steps of a run with their states, as text for a tool that draws: '
                                       'mermaid or dot.';

CREATE FUNCTION _sas.draw_workflow(workflow text, format text) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET jit = off AS $$
DECLARE
    nodes jsonb := (SELECT jsonb_agg(to_jsonb(n) ORDER BY n.no) FROM _sas.workflow_graph($1) n
                    WHERE NOT n.stands_in);
BEGIN
    PERFORM _sas.check_format($2);
    IF NOT EXISTS (SELECT FROM sas.workflows w WHERE w.workflow = $1) THEN
        RAISE EXCEPTION 'workflow "%" does not exist, or is not yours', $1
            USING ERRCODE = 'undefined_object', HINT = 'See sas.workflows for those that are.';
    END IF;
    RETURN _sas.draw(nodes, $2);
END $$;

CREATE FUNCTION sas.graph_workflow(workflow text, format text DEFAULT 'mermaid') RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC SELECT _sas.draw_workflow($1, $2); END;
COMMENT ON FUNCTION sas.graph_workflow(text,
                                       text) IS 'The steps of a workflow as it is now, as text for a tool '
                                                'that draws: mermaid or dot.';

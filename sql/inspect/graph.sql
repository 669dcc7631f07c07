-- SPDX-License-Identifier: PostgreSQL
--
-- Graph: the steps of a run or a workflow, their order, and the states of the run, as text for tools that
-- draw: mermaid, dot.

-- _sas.version_graph(version_id): the compiled steps of a version, numbered by level (the length of the
-- longest path to them), then by sas.steps.position. step is null for points that only join others. after:
-- the numbers from which an edge leads here. It is plpgsql because that keeps the plan, and planning takes
-- longer than the query.
CREATE FUNCTION _sas.version_graph(version_id int)
RETURNS TABLE (no int, step text, kind text, target text, stands_in boolean, level int, after int[])
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH step AS MATERIALIZED (
        SELECT w.step_no, w.position,
               CASE WHEN NOT w.hidden OR w.shape ? 'stands_in' THEN w.name END AS name,
               CASE w.kind WHEN 'join' THEN 'include' ELSE w.kind END AS kind,
               coalesce(a.name, w.function, w.shape ->> 'workflow',
                        btrim(replace(w.shape #>> '{wait,signal}', '", "', ' or '), '["]')) AS target,
               (w.shape ->> 'stands_in')::int AS stands_in_for
        FROM _sas.workflow_step w LEFT JOIN _sas.agent a ON a.agent_id = w.lane
        WHERE w.version_id = $1 AND NOT w.undo),
    edge AS MATERIALIZED (
        SELECT e.from_no, e.to_no FROM _sas.workflow_edge e WHERE e.version_id = $1
        UNION ALL
        SELECT s.stands_in_for, s.step_no FROM step s WHERE s.stands_in_for IS NOT NULL
        UNION ALL
        -- finalize comes last: after all steps that nothing follows
        SELECT s.step_no, v.finalize_no
        FROM step s JOIN _sas.workflow_version v ON v.version_id = $1 AND v.step_count > 0
            AND v.finalize_no <> s.step_no
        WHERE s.stands_in_for IS NULL
          AND NOT EXISTS (SELECT FROM _sas.workflow_edge e
                          WHERE e.version_id = $1 AND e.from_no = s.step_no)),
    level AS (
        SELECT l.level, l.no
        FROM (SELECT array_agg(e.from_no) AS from_nos, array_agg(e.to_no) AS to_nos FROM edge e) x
        CROSS JOIN LATERAL unnest(_sas.levels(x.from_nos, x.to_nos, (SELECT max(s.step_no) FROM step s)))
            WITH ORDINALITY AS l (level, no)),
    node AS MATERIALIZED (
        SELECT s.*, coalesce(l.level, 0) AS level,
               row_number() OVER (ORDER BY coalesce(l.level, 0), s.position, s.step_no)::int AS no
        FROM step s LEFT JOIN level l ON l.no = s.step_no),
    before AS (SELECT e.to_no, array_agg(f.no ORDER BY f.no) AS nos
               FROM edge e JOIN node f ON f.step_no = e.from_no GROUP BY 1)
    SELECT n.no, n.name, n.kind, n.target, n.stands_in_for IS NOT NULL, n.level, coalesce(b.nos, '{}')
    FROM node n LEFT JOIN before b ON b.to_no = n.step_no
    ORDER BY n.no;
END $$;

-- _sas.run_graph(run_id): the graph of a run, if the caller may see it; else no rows.
CREATE FUNCTION _sas.run_graph(run_id bigint)
RETURNS TABLE (no int, step text, kind text, target text, stands_in boolean, level int, after int[])
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_verb';

-- _sas.run_graph_as(caller, run_id): the body of _sas.run_graph.
CREATE FUNCTION _sas.run_graph_as(caller oid, run_id bigint)
RETURNS TABLE (no int, step text, kind text, target text, stands_in boolean, level int, after int[])
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT g.* FROM _sas.run r CROSS JOIN LATERAL _sas.version_graph(r.version_id) g WHERE r.run_id = $2
        AND _sas.may_see($1, r.owner)
$$;

-- _sas.workflow_graph(workflow): the graph of the current version, if the caller may see it; else no rows.
CREATE FUNCTION _sas.workflow_graph(workflow text)
RETURNS TABLE (no int, step text, kind text, target text, stands_in boolean, level int, after int[])
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_verb';

-- _sas.workflow_graph_as(caller, workflow): the body of _sas.workflow_graph.
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
                                                AND _sas.may_stand_for($1, x.role)))
$$;

-- _sas.attempts_of(run_id, step, element, state, attempt): how often a step was tried; null for once. The
-- attempts of a step continue their count in its undo; here they are two counts.
CREATE FUNCTION _sas.attempts_of(run_id bigint, step text, element int, state text, attempt int) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT CASE WHEN $5 <= 1 OR $5 IS NULL THEN NULL
           WHEN $4 NOT IN ('compensating', 'compensated') THEN _sas.quantity($5, 'attempt')
           ELSE (SELECT nullif(concat_ws(', ',
                            CASE WHEN $5 - n.undos > 1 THEN _sas.quantity($5 - n.undos, 'attempt') END,
                            CASE WHEN n.undos > 1 THEN n.undos || ' attempts to undo it' END), '')
                 FROM (SELECT count(*) AS undos FROM sas.attempts a WHERE a.run_id = $1 AND a.step = $2
                           AND a.element IS NOT DISTINCT FROM $3 AND a.undo) n)
           END;
END;

-- _sas.run_nodes(run_id): the same with the states of the run's steps. note: a remark of a few words.
CREATE FUNCTION _sas.run_nodes(run_id bigint)
RETURNS TABLE (no int, step text, kind text, target text, stands_in boolean, level int, after int[],
               state text, note text)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT g.*, s.state,
           concat_ws(', ',
               CASE WHEN f.total > 0 THEN format('%s of %s ended', f.total - f.remaining, f.total) END,
               _sas.attempts_of(s.run_id, s.step, s.element, s.state, s.attempt),
               CASE WHEN s.waiting_kind NOT IN ('steps', 'undo', 'elements') AND s.run_state <> 'scheduled'
                    THEN concat_ws(' ', replace(s.waiting_kind, '_', ' '), CASE
                         WHEN s.waiting_kind NOT IN ('child', 'place', 'resume', 'reply', 'worker')
                         THEN s.waiting_on END) END,
               CASE WHEN s.state = 'failed' THEN left(s.error ->> 'title', 200) END)
    FROM _sas.run_graph($1) g
    LEFT JOIN sas.steps s ON s.run_id = $1 AND s.step = g.step AND s.element IS NULL
    LEFT JOIN _sas.run_facts($1) f ON f.step = g.step
    -- leaves out a fallback that was not needed
    WHERE NOT g.stands_in OR s.state IS NOT NULL;
END;

-- _sas.mermaid_text(value), _sas.dot_text(value): the value inside a quoted label. Mermaid writes entities
-- as # and a name or number.
CREATE FUNCTION _sas.mermaid_text(value text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    SELECT replace(replace(replace(replace(replace(replace(translate(value, E'\r\n\t', '   '), '#', '#35;'),
                   '&', '#amp;'), '"', '#quot;'), '<', '#lt;'), '>', '#gt;'), '`', '#96;');
END;

-- _sas.dot_text(value): the text within double quotes of the language DOT.
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

-- _sas.draw(nodes, format): the text of a graph; null for another format. nodes: one object per row of
-- _sas.run_nodes or _sas.workflow_graph, by number.
CREATE FUNCTION _sas.draw(nodes jsonb, format text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    WITH node AS (
        SELECT x.no, x.step, x.after, x.state, x.stands_in,
               concat_ws(E'\n', x.step, concat_ws(' ', x.kind, x.target),
                         nullif(concat_ws(': ', x.state, nullif(x.note, '')), '')) AS label
        FROM jsonb_to_recordset($1) AS x (no int, step text, kind text, target text, stands_in boolean,
                                          level int, after int[], state text, note text)),
    edge AS (
        SELECT f.no AS from_no, n.no AS to_no, n.stands_in
        FROM node n CROSS JOIN LATERAL unnest(n.after) a JOIN node f ON f.no = a),
    mermaid AS (
        SELECT 1 AS part, n.no, NULL::int AS to_no,
               CASE WHEN n.step IS NULL THEN format('  s%s(( ))', n.no)
                    ELSE format('  s%s["%s"]%s', n.no, (
                             SELECT string_agg(_sas.mermaid_text(l), '<br/>' ORDER BY o)
                             FROM string_to_table(n.label, E'\n') WITH ORDINALITY AS u (l, o)),
                         ':::' || n.state) END AS line
        FROM node n
        UNION ALL
        SELECT 2, e.from_no, e.to_no,
               format('  s%s %s s%s', e.from_no, CASE WHEN e.stands_in THEN '-.->' ELSE '-->' END, e.to_no)
        FROM edge e
        UNION ALL
        SELECT 3, row_number() OVER (ORDER BY c.state), NULL,
               format('  classDef %s fill:%s,stroke:%s,color:%s', c.state, c.fill, c.border, c.ink)
        FROM _sas.state_colours() c WHERE c.state IN (SELECT n.state FROM node n)),
    dot AS (
        SELECT 1 AS part, n.no, NULL::int AS to_no,
               CASE WHEN n.step IS NULL THEN format('  s%s [shape=point];', n.no)
                    ELSE format('  s%s [label="%s"%s];', n.no, (
                             SELECT string_agg(_sas.dot_text(l), E'\\n' ORDER BY o)
                             FROM string_to_table(n.label, E'\n') WITH ORDINALITY AS u (l, o)),
                         format(', fillcolor="%s", color="%s", fontcolor="%s"', c.fill, c.border, c.ink))
               END AS line
        FROM node n LEFT JOIN _sas.state_colours() c ON c.state = n.state
        UNION ALL
        SELECT 2, e.from_no, e.to_no,
               format('  s%s -> s%s%s;', e.from_no, e.to_no,
                      CASE WHEN e.stands_in THEN ' [style=dashed]' END)
        FROM edge e)
    SELECT CASE $2
        WHEN 'mermaid' THEN
            E'flowchart LR\n'
            || coalesce((SELECT string_agg(m.line || E'\n', '' ORDER BY m.part, m.no, m.to_no)
                         FROM mermaid m), '')
        WHEN 'dot' THEN
            E'digraph sas {\n  rankdir=LR;\n'
            || E'  node [shape=box, style="rounded,filled", fontname="sans-serif", fillcolor="#f4f4f5"];\n'
            || coalesce((SELECT string_agg(d.line || E'\n', '' ORDER BY d.part, d.no, d.to_no)
                         FROM dot d), '')
            || E'}\n' END;
END;

-- _sas.check_format(format): raises an error for an unknown format.
CREATE FUNCTION _sas.check_format(format text) RETURNS void
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT _sas.refuse('22023', coalesce('unknown format "' || $1 || '"', 'the format must not be null'),
                       'At /format.', 'The formats are mermaid and dot.')
    WHERE $1 IS NULL OR $1 NOT IN ('mermaid', 'dot');
END;

CREATE FUNCTION sas.graph(run_id bigint, format text DEFAULT 'mermaid') RETURNS text
LANGUAGE sql STABLE SET jit = off
BEGIN ATOMIC
    SELECT _sas.check_format($2);
    SELECT _sas.visible_run($1);
    SELECT _sas.draw((SELECT jsonb_agg(to_jsonb(n) ORDER BY n.no) FROM _sas.run_nodes($1) n), $2);
END;
COMMENT ON FUNCTION sas.graph(bigint, text) IS
    'The steps of a run with their states, as text for a tool that draws: mermaid or dot.';

CREATE FUNCTION sas.graph_workflow(workflow text, format text DEFAULT 'mermaid') RETURNS text
LANGUAGE sql STABLE SET jit = off
BEGIN ATOMIC
    SELECT _sas.check_format($2);
    SELECT _sas.refuse_missing('workflow', $1, '/workflow', 'See sas.workflows for your workflows.',
                               doubt => ', or is not yours')
    WHERE NOT EXISTS (SELECT FROM sas.workflows w WHERE w.workflow = $1);
    SELECT _sas.draw((SELECT jsonb_agg(to_jsonb(n) ORDER BY n.no) FROM _sas.workflow_graph($1) n
                      WHERE NOT n.stands_in), $2);
END;
COMMENT ON FUNCTION sas.graph_workflow(text, text) IS
    'The steps of a workflow as it is now, as text for a tool that draws: mermaid or dot.';

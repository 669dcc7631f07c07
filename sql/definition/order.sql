-- SPDX-License-Identifier: PostgreSQL
--
-- Order: which step must end before which other step.

-- _sas.compile(definition, name, caller, included): compiles a definition into steps and edges.
--   included  see _sas.scopes
--   problems  only errors of what it includes; edges with unknown names are left out
CREATE FUNCTION _sas.compile(definition jsonb, name text, caller oid, included jsonb,
                             OUT scopes _sas.scope[], OUT nodes _sas.flow_node[],
                             OUT refs _sas.flow_reference[],
                             OUT from_nos int[], OUT to_nos int[], OUT problems _sas.problem[])
LANGUAGE plpgsql STABLE AS $$
DECLARE
    flow record;
    more record;
BEGIN
    SELECT s.scopes, s.problems INTO scopes, problems FROM _sas.scopes(definition, name, caller, included) s;
    nodes := _sas.number_steps(scopes);
    refs := _sas.node_references(scopes, nodes);
    SELECT * INTO flow FROM _sas.add_flow(scopes, nodes);
    nodes := flow.nodes;
    SELECT array_agg(x.from_no), array_agg(x.to_no) INTO from_nos, to_nos
    FROM (SELECT u.from_no, u.to_no FROM unnest(flow.from_nos, flow.to_nos) AS u (from_no, to_no)
          UNION
          SELECT f.no, n.no
          FROM unnest(nodes) n
          CROSS JOIN LATERAL jsonb_array_elements(CASE jsonb_typeof(n.body -> 'after')
                                                  WHEN 'array' THEN n.body -> 'after' ELSE '[]' END) a
          JOIN unnest(nodes) f ON f.scope = n.scope AND f.local = a #>> '{}'
          UNION
          SELECT f.no, r.node
          FROM unnest(refs) r JOIN unnest(nodes) f ON f.scope = r.scope AND f.local = r.member
          WHERE r.root = 'steps' AND NOT r.undo AND r.node > 0 AND f.entry <> r.node
            -- a step that hands out a token comes before the step that waits for it
            AND r.third IS DISTINCT FROM 'token') x;
    SELECT array_agg(e.from_no) AS from_nos, array_agg(e.to_no) AS to_nos INTO more
    FROM _sas.include_edges(nodes, from_nos, to_nos) e;
    from_nos := coalesce(from_nos, '{}') || coalesce(more.from_nos, '{}');
    to_nos := coalesce(to_nos, '{}') || coalesce(more.to_nos, '{}');
END $$;

-- _sas.include_edges(nodes, from_nos, to_nos): edges of includes: the opening step comes before inner steps
-- that wait for no other inner step, and the closing step after inner steps for which no other inner step
-- waits.
CREATE FUNCTION _sas.include_edges(nodes _sas.flow_node[], from_nos int[], to_nos int[])
RETURNS TABLE (from_no int, to_no int)
LANGUAGE sql STABLE AS $$
    WITH node AS MATERIALIZED (SELECT n.no, n.kind, n.scope, n.sees, n.entry FROM unnest(nodes) n),
    inclusion AS MATERIALIZED (SELECT c.entry AS open_no, c.no AS close_no, c.sees AS scope FROM node c
                               WHERE c.kind = 'close')
    SELECT i.open_no, m.no
    FROM inclusion i JOIN node m ON m.scope = i.scope AND m.kind <> 'close'
    LEFT JOIN unnest(to_nos) AS e (to_no) ON e.to_no = m.no
    WHERE e.to_no IS NULL
    UNION ALL
    SELECT m.no, i.close_no
    FROM inclusion i JOIN node m ON m.scope = i.scope AND m.kind <> 'open'
    LEFT JOIN unnest(from_nos) AS e (from_no) ON e.from_no = m.no
    WHERE e.from_no IS NULL
    UNION ALL
    SELECT i.open_no, i.close_no FROM inclusion i LEFT JOIN node m ON m.scope = i.scope WHERE m.no IS NULL
$$;

-- _sas.cycles(nodes, from_nos, to_nos): each cycle that shares no step with a cycle before it, as the names
-- of its steps in order; at most twenty. Steps without a name are left out.
CREATE FUNCTION _sas.cycles(nodes _sas.flow_node[], from_nos int[], to_nos int[])
RETURNS TABLE (path text, names text[])
LANGUAGE plpgsql STABLE AS $$
DECLARE
    cycle int[];
BEGIN
    FOR n IN 1..20 LOOP
        cycle := _sas.find_cycle(from_nos, to_nos, cardinality(nodes) + 1);
        EXIT WHEN cardinality(cycle) = 0;
        SELECT (array_agg(d.path ORDER BY c.n))[1], array_agg(d.name ORDER BY c.n) INTO path, names
        FROM unnest(cycle) WITH ORDINALITY AS c (no, n) JOIN unnest(nodes) d ON d.no = c.no
            AND d.local IS NOT NULL;
        RETURN NEXT;
        SELECT coalesce(array_agg(e.from_no), '{}'), coalesce(array_agg(e.to_no), '{}') INTO from_nos, to_nos
        FROM unnest(from_nos, to_nos) AS e (from_no, to_no)
        WHERE NOT EXISTS (SELECT FROM unnest(cycle) c WHERE c = e.from_no)
            AND NOT EXISTS (SELECT FROM unnest(cycle) c WHERE c = e.to_no);
    END LOOP;
END $$;

-- _sas.check_order(...): errors for cycles; if there are none, errors for undos that refer to steps which
-- are not before them.
CREATE FUNCTION _sas.check_order(nodes _sas.flow_node[], refs _sas.flow_reference[], from_nos int[],
                                 to_nos int[]) RETURNS SETOF _sas.problem
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY
    SELECT c.path,
           format('the steps form a cycle: %s',
                  array_to_string(CASE WHEN cardinality(c.names) > 20
                                       THEN c.names[:10] || '...'::text || c.names[cardinality(c.names) - 8:]
                                       ELSE c.names END || c.names[1], ' -> ')),
           'Remove one of the steps, or the reference to it, from the cycle.', '42P17'
    FROM _sas.cycles(nodes, from_nos, to_nos) c;
    IF FOUND THEN
        RETURN;
    END IF;
    RETURN QUERY
    WITH wanted AS (
        SELECT r.pointer, r.member, n.local, m.no AS first, n.no AS second, row_number() OVER () AS i
        FROM unnest(refs) r
        JOIN unnest(nodes) n ON n.no = r.node
        JOIN unnest(nodes) m ON m.scope = r.scope AND m.local = r.member AND m.no <> n.no
        WHERE r.undo AND r.root = 'steps' AND r.scope = 1)
    SELECT w.pointer, format('step "%s" is not before step "%s"', w.member, w.local),
        'An undo can refer to its own step and to those before it.', '42P10'
    FROM (SELECT array_agg(x.first ORDER BY x.i) AS firsts, array_agg(x.second ORDER BY x.i) AS seconds
          FROM wanted x) a
    CROSS JOIN LATERAL unnest(_sas.is_before(from_nos, to_nos, cardinality(nodes) + 1, a.firsts,
                                             a.seconds)) WITH ORDINALITY AS b (before, i)
    JOIN wanted w ON w.i = b.i
    WHERE NOT b.before;
END $$;

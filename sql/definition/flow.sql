-- SPDX-License-Identifier: PostgreSQL
--
-- Flow: order written as a nested shape, {"sequence": [...]} and {"concurrence": [...]}.

-- _sas.check_flow(flow, steps): errors of a flow.
CREATE FUNCTION _sas.check_flow(flow jsonb, steps jsonb) RETURNS SETOF _sas.problem
LANGUAGE sql STABLE AS $$
    WITH RECURSIVE part AS (
        SELECT flow AS value, '/flow' AS path WHERE flow IS NOT NULL
        UNION ALL
        SELECT c.value, p.path || '/' || k.key || '/' || c.n - 1
        FROM part p
        CROSS JOIN LATERAL jsonb_each(CASE jsonb_typeof(p.value) WHEN 'object' THEN p.value ELSE '{}' END) k
        CROSS JOIN LATERAL jsonb_array_elements(CASE jsonb_typeof(k.value) WHEN 'array' THEN k.value
                                                ELSE '[]' END) WITH ORDINALITY AS c (value, n)
        WHERE k.key IN ('sequence', 'concurrence')),
    leaf AS (
        SELECT p.path, p.value #>> '{}' AS name,
            row_number() OVER (PARTITION BY p.value ORDER BY p.path) AS n FROM part p
        WHERE jsonb_typeof(p.value) = 'string')
    SELECT p.path, 'a part of a flow is the name of a step, or an object with one of sequence and '
                   'concurrence that contains an array of parts',
           'Write it as {"sequence": ["a", {"concurrence": ["b", "c"]}]}.', '22023'
    FROM part p
    WHERE CASE jsonb_typeof(p.value) WHEN 'string' THEN p.path = '/flow'
               WHEN 'object' THEN (SELECT count(*) <> 1
                                   OR bool_or(k.key NOT IN ('sequence', 'concurrence')
                                              OR jsonb_typeof(k.value) <> 'array' OR k.value = '[]')
                                   FROM jsonb_each(p.value) k)
               ELSE true END
    UNION ALL
    SELECT l.path, format('step "%s" does not exist', l.name),
           _sas.meant(l.name, ARRAY(SELECT jsonb_object_keys(steps))) || 'Name steps of this definition.',
           '42P10'
    FROM leaf l LEFT JOIN jsonb_object_keys(steps) AS k (name) ON k.name = l.name WHERE k.name IS NULL
    UNION ALL
    SELECT l.path, format('step "%s" appears twice in the flow', l.name),
        'A step appears in it once. Use "after" for further order.', '22023'
    FROM leaf l WHERE l.n > 1
$$;

-- _sas.flow_gates(scopes): the gates before and after each step of a flow.
--
-- A gate is between two neighbours in a sequence. From the top down, each part gets its two gates: a
-- concurrence passes them on to all its parts; a sequence passes the first gate to its first part and the
-- last gate to its last part, and adds new gates in between. So each step has at most one gate on either
-- side.
CREATE FUNCTION _sas.flow_gates(scopes _sas.scope[])
RETURNS TABLE (scope int, local text, gate_in text, gate_out text)
LANGUAGE sql STABLE AS $$
    WITH RECURSIVE part AS (
        SELECT s.no AS scope, s.definition -> 'flow' AS value, NULL::text AS gate_in, NULL::text AS gate_out,
            s.no::text AS path
        FROM unnest(scopes) s WHERE s.definition ? 'flow'
        UNION ALL
        SELECT p.scope, c.value,
               CASE WHEN k.key = 'sequence' AND c.n > 1 THEN p.path || '/' || c.n - 1 ELSE p.gate_in END,
               CASE WHEN k.key = 'sequence' AND c.n < jsonb_array_length(k.value) THEN p.path || '/' || c.n
                   ELSE p.gate_out END,
               p.path || '/' || c.n
        FROM part p
        CROSS JOIN LATERAL jsonb_each(CASE jsonb_typeof(p.value) WHEN 'object' THEN p.value ELSE '{}' END) k
        CROSS JOIN LATERAL jsonb_array_elements(CASE jsonb_typeof(k.value) WHEN 'array' THEN k.value
                                                ELSE '[]' END) WITH ORDINALITY AS c (value, n)
        WHERE k.key IN ('sequence', 'concurrence'))
    SELECT p.scope, p.value #>> '{}', p.gate_in, p.gate_out FROM part p WHERE jsonb_typeof(p.value) = 'string'
$$;

-- _sas.add_flow(scopes, nodes): the edges of the flows. A gate between n and m steps becomes a hidden step
-- if that takes fewer edges.
CREATE FUNCTION _sas.add_flow(scopes _sas.scope[], INOUT nodes _sas.flow_node[], OUT from_nos int[],
                              OUT to_nos int[])
LANGUAGE plpgsql STABLE AS $$
DECLARE
    joins _sas.flow_node[];
BEGIN
    IF NOT EXISTS (SELECT FROM unnest(scopes) s WHERE s.definition ? 'flow') THEN
        RETURN;
    END IF;
    WITH leaf AS MATERIALIZED (
        SELECT g.scope, g.gate_in, g.gate_out, n.no, n.entry FROM _sas.flow_gates(scopes) g
        JOIN unnest(nodes) n ON n.scope = g.scope AND n.local = g.local),
    gate AS MATERIALIZED (
        SELECT o.scope, o.gate, CASE WHEN o.n::bigint * i.n > o.n + i.n
            THEN cardinality(nodes) + 1 + row_number() OVER (PARTITION BY o.n::bigint * i.n > o.n + i.n
                                                             ORDER BY o.scope, o.gate)::int END AS no
        FROM (SELECT l.scope, l.gate_out AS gate, count(*)::int AS n FROM leaf l GROUP BY 1, 2) o
        JOIN (SELECT l.gate_in AS gate, count(*)::int AS n FROM leaf l GROUP BY 1) i USING (gate)),
    edge AS (
        SELECT o.no AS from_no, i.entry AS to_no FROM gate g JOIN leaf o ON o.gate_out = g.gate
        JOIN leaf i ON i.gate_in = g.gate WHERE g.no IS NULL
        UNION ALL SELECT o.no, g.no FROM gate g JOIN leaf o ON o.gate_out = g.gate WHERE g.no IS NOT NULL
        UNION ALL SELECT g.no, i.entry FROM gate g JOIN leaf i ON i.gate_in = g.gate WHERE g.no IS NOT NULL)
    SELECT (SELECT array_agg(ROW(g.no, 'join', g.scope, g.scope, s.prefix || '(join ' || g.gate || ')', NULL,
                                 g.no, s.key || 0, s.path, '{}')::_sas.flow_node ORDER BY g.no)
            FROM gate g JOIN unnest(scopes) s ON s.no = g.scope WHERE g.no IS NOT NULL),
           (SELECT array_agg(e.from_no) FROM edge e), (SELECT array_agg(e.to_no) FROM edge e)
    INTO joins, from_nos, to_nos;
    nodes := nodes || coalesce(joins, '{}');
END $$;

-- SPDX-License-Identifier: PostgreSQL
--
-- Order: which step comes before which.

-- sas._edges(definition): which step comes before which.
CREATE FUNCTION sas._edges(definition jsonb) RETURNS TABLE (from_name text, to_name text)
LANGUAGE sql STABLE AS $$
    SELECT a, s.key
    FROM jsonb_each(definition -> 'steps') s
    CROSS JOIN LATERAL jsonb_array_elements_text(CASE jsonb_typeof(s.value -> 'after') WHEN 'array' THEN s.value -> 'after' ELSE '[]' END) a
    UNION
    SELECT r.member, s.key
    FROM jsonb_each(definition -> 'steps') s
    CROSS JOIN LATERAL sas._body_references(s.value, '') r
    WHERE r.root = 'steps' AND r.member IS NOT NULL
$$;

-- sas._check_order(definition): cycles, and undos that refer to what is not before them.
CREATE FUNCTION sas._check_order(definition jsonb) RETURNS SETOF sas._problem
LANGUAGE plpgsql STABLE AS $$
DECLARE
    names text[] := ARRAY(SELECT jsonb_object_keys(definition -> 'steps'));
    from_nos int[];
    to_nos int[];
    cycle int[];
BEGIN
    SELECT array_agg(f.n), array_agg(t.n) INTO from_nos, to_nos
    FROM sas._edges(definition) e
    JOIN unnest(names) WITH ORDINALITY AS f (name, n) ON f.name = e.from_name
    JOIN unnest(names) WITH ORDINALITY AS t (name, n) ON t.name = e.to_name;
    cycle := sas._find_cycle(coalesce(from_nos, '{}'), coalesce(to_nos, '{}'), cardinality(names));
    IF cardinality(cycle) > 0 THEN
        RETURN NEXT ROW(sas._pointer('/steps', names[cycle[1]]),
                        format('the steps wait for each other: %s', (SELECT string_agg(names[c], ' -> ' ORDER BY n) FROM unnest(cycle || cycle[1]) WITH ORDINALITY AS x (c, n))),
                        'Take one of the steps, or the reference to it, out of the cycle.', '42P17')::sas._problem;
        RETURN;
    END IF;
    RETURN QUERY
    WITH RECURSIVE wanted AS (
        SELECT s.key AS name, r.member, r.pointer
        FROM jsonb_each(definition -> 'steps') s
        CROSS JOIN LATERAL sas._body_references(s.value -> 'undo', sas._pointer('/steps', s.key) || '/undo') r
        WHERE r.root = 'steps' AND r.member <> s.key),
    edge AS (SELECT * FROM sas._edges(definition) WHERE EXISTS (SELECT FROM wanted)),
    before AS (
        SELECT DISTINCT w.name, e.from_name FROM wanted w JOIN edge e ON e.to_name = w.name
        UNION
        SELECT b.name, e.from_name FROM before b JOIN edge e ON e.to_name = b.from_name)
    SELECT w.pointer, format('step "%s" is not before step "%s"', w.member, w.name), 'An undo can refer to its own step and to those before it.', '42P10'
    FROM wanted w WHERE NOT EXISTS (SELECT FROM before b WHERE b.name = w.name AND b.from_name = w.member);
END $$;

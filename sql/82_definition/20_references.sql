-- SPDX-License-Identifier: PostgreSQL
--
-- References: what the templates of a definition look at.

-- sas._body_references(body): the references in the templates of a step's or undo's body.
CREATE FUNCTION sas._body_references(body jsonb, path text) RETURNS TABLE (pointer text, reference text, root text, member text, third text, problem text)
LANGUAGE sql STABLE AS $$
    SELECT $2 || '/' || part.key || r.pointer, r.path, r.root, r.member, r.third, r.problem
    FROM (SELECT e.key, e.value FROM jsonb_each(CASE jsonb_typeof(body) WHEN 'object' THEN body ELSE '{}' END) e WHERE e.key IN ('call', 'input', 'output', 'each', 'wait')) part
    CROSS JOIN LATERAL sas._references(part.value) r
    UNION ALL
    SELECT $2 || p.place, r.path, r.root, r.member, r.third, NULL
    FROM (VALUES ('/expect', body -> 'expect'), ('/when', body -> 'when'), ('/repeat/while', CASE jsonb_typeof(body -> 'repeat') WHEN 'object' THEN body #> '{repeat,while}' END)) AS p (place, predicate)
    CROSS JOIN LATERAL sas._predicate_references(CASE jsonb_typeof(p.predicate) WHEN 'string' THEN p.predicate #>> '{}' END) r
    WHERE r.problem IS NULL AND r.root IN ('steps', 'input')
$$;

-- sas._check_references(steps, path): references that name nothing, or what may not be named.
CREATE FUNCTION sas._check_references(definition jsonb) RETURNS SETOF sas._problem
LANGUAGE sql STABLE AS $$
    WITH body AS (
        SELECT s.key AS name, false AS undo, s.value AS body, sas._pointer('/steps', s.key) AS path FROM jsonb_each(definition -> 'steps') s
        UNION ALL
        SELECT s.key, true, s.value -> 'undo', sas._pointer('/steps', s.key) || '/undo' FROM jsonb_each(definition -> 'steps') s
        WHERE jsonb_typeof(s.value) = 'object' AND s.value ? 'undo'
        UNION ALL
        SELECT NULL, false, jsonb_build_object('output', definition -> 'output'), '' WHERE definition ? 'output'),
    reference AS (SELECT b.name, b.undo, r.* FROM body b CROSS JOIN LATERAL sas._body_references(b.body, b.path) r)
    SELECT r.pointer, format('malformed reference: %s', r.problem), 'A reference is {{ path }}, an SQL/JSON path without its leading "$.".', '42601'
    FROM reference r WHERE r.problem IS NOT NULL
    UNION ALL
    SELECT r.pointer, format('reference to secret in a workflow: "%s"', r.reference), 'Secrets stand in the headers, query and options of agents only.', '42501'
    FROM reference r WHERE r.problem IS NULL AND r.root = 'secret'
    UNION ALL
    SELECT r.pointer, format('"%s" refers to nothing that can be seen from here', r.reference), 'A reference begins with input, steps, run or key; in the output of a step also with output, in a map with item or index, in a step that repeats with last or index.', '42P10'
    FROM reference r
    WHERE r.problem IS NULL AND r.root IS DISTINCT FROM 'secret'
      AND (r.root IS NULL OR r.pointer ~ '^/steps/[^/]*/each$' AND r.root IN ('item', 'index') OR NOT (r.root IN ('input', 'steps', 'run', 'key', 'output')
                                  OR r.root IN ('item', 'index') AND definition #> ARRAY['steps', r.name] ? 'each' OR r.root IN ('last', 'index') AND definition #> ARRAY['steps', r.name] ? 'repeat')
           OR r.root = 'output' AND (r.name IS NULL OR r.pointer ~ '^/steps/[^/]*/(undo/)?(call|input)(/|$)'))
    UNION ALL
    SELECT r.pointer, format('step "%s" does not exist', coalesce(r.member, '')), 'A reference to a step is {{steps.NAME.output}}, with more path behind it if need be.', '42P10'
    FROM reference r WHERE r.problem IS NULL AND r.root = 'steps' AND (r.member IS NULL OR NOT definition -> 'steps' ? r.member)
    UNION ALL
    SELECT r.pointer, format('step "%s" refers to its own result', r.name), 'Only its undo can refer to what a step has returned.', '42P10'
    FROM reference r WHERE r.problem IS NULL AND r.root = 'steps' AND r.member = r.name AND NOT r.undo
    UNION ALL
    SELECT sas._pointer('/steps', s.key) || '/after', format('step "%s" does not exist', a), 'Name steps of this definition.', '42P10'
    FROM jsonb_each(definition -> 'steps') s
    CROSS JOIN LATERAL jsonb_array_elements_text(CASE WHEN jsonb_typeof(s.value) = 'object' AND jsonb_typeof(s.value -> 'after') = 'array' THEN s.value -> 'after' ELSE '[]' END) a
    WHERE NOT definition -> 'steps' ? a
$$;

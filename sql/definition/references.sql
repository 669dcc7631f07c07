-- SPDX-License-Identifier: PostgreSQL
--
-- References: what the templates of a definition refer to.

-- _sas.body_references(body, path): the references in the templates of a step, or of an undo.
CREATE FUNCTION _sas.body_references(body jsonb, path text)
RETURNS TABLE (pointer text, reference text, root text, member text, third text, problem text, hint text,
               fourth text)
LANGUAGE sql STABLE AS $$
    SELECT $2 || '/' || part.key || r.pointer, r.path, r.root, r.member, r.third, r.problem, r.hint,
           r.fourth
    FROM (SELECT e.key, e.value
          FROM jsonb_each(CASE jsonb_typeof(body) WHEN 'object' THEN body ELSE '{}' END) e
          WHERE e.key IN ('call', 'input', 'output', 'each', 'wait', 'poll')) part
    CROSS JOIN LATERAL _sas.references(part.value) r
    UNION ALL
    SELECT $2 || p.place, r.path, r.root, r.member, r.third, NULL, NULL, r.fourth
    FROM (VALUES ('/expect', body -> 'expect'), ('/when', body -> 'when'),
          ('/repeat/while', CASE jsonb_typeof(body -> 'repeat')
                            WHEN 'object' THEN body #> '{repeat,while}' END),
          ('/poll/until', CASE jsonb_typeof(body -> 'poll')
                          WHEN 'object' THEN body #> '{poll,until}' END)) AS p (place, predicate)
    CROSS JOIN LATERAL _sas.predicate_references(CASE jsonb_typeof(p.predicate)
                                                 WHEN 'string' THEN p.predicate #>> '{}' END) r
    WHERE r.problem IS NULL AND r.root IN ('steps', 'input', 'run')
$$;

-- _sas.polls_at(body, pointer, within): does this step poll, or its fallback, if the pointer leads into
-- that? within: or its undo, if it leads into that.
CREATE FUNCTION _sas.polls_at(body jsonb, pointer text, within boolean) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(CASE WHEN within AND pointer ~ '^/steps/[^/]*/(fallback/)?undo/' THEN b.body -> 'undo'
                    ELSE b.body END ? 'poll', false)
    FROM (SELECT CASE WHEN pointer ~ '^/steps/[^/]*/fallback/' THEN body -> 'fallback' ELSE body
          END AS body) b
$$;

-- _sas.check_references(nodes, refs): errors of references that name nothing, or something that they must
-- not name. Included workflows were checked when they were created.
CREATE FUNCTION _sas.check_references(nodes _sas.flow_node[], refs _sas.flow_reference[])
RETURNS SETOF _sas.problem
LANGUAGE sql STABLE AS $$
    WITH reference AS (
        SELECT r.*, n.local AS name, own.local IS NOT NULL AS known,
               coalesce(n.body ? 'each', false) AS maps, coalesce(n.body ? 'repeat', false) AS repeats,
               _sas.polls_at(n.body, r.pointer, true)
                   AND r.pointer ~ '^/steps/[^/]*/(fallback/)?(undo/)?(poll|output)(/|$)' AS polls,
               -- in its undo, a fallback has the name of its step
               _sas.polls_at(own.body, CASE own.no WHEN n.no THEN r.pointer END, false) AS polled
        FROM unnest(refs) r
        LEFT JOIN unnest(nodes) n ON n.entry = r.node AND n.local IS NOT NULL
        LEFT JOIN unnest(nodes) own ON own.scope = 1 AND own.local = r.member WHERE r.scope = 1)
    SELECT r.pointer, r.problem,
        coalesce(r.hint, 'A reference is {{ path }}, an SQL/JSON path without its leading "$.".'),
        CASE WHEN r.hint IS NULL THEN '42601' ELSE '0A000' END
    FROM reference r WHERE r.problem IS NOT NULL
    UNION ALL
    SELECT r.pointer, format('a workflow cannot refer to a secret: "%s"', r.reference),
        'Only the headers, query and options of agents can refer to secrets.', '42501'
    FROM reference r WHERE r.problem IS NULL AND r.root = 'secret'
    UNION ALL
    SELECT r.pointer, format('"%s" cannot be referenced here', r.reference),
        'A reference begins with input, steps, run or key; in the output of a step also with output, in a '
        'map with item or index, in a step that repeats with last or index, in a poll and its output with '
        'started.', '42P10'
    FROM reference r WHERE r.problem IS NULL AND r.root IS DISTINCT FROM 'secret'
      AND (r.root IS NULL OR r.pointer ~ '^/steps/[^/]*/each$' AND r.root IN ('item', 'index')
           OR NOT (r.root IN ('input', 'steps', 'run', 'key', 'output') OR r.root IN ('item', 'index')
                   AND r.maps OR r.root IN ('last', 'index') AND r.repeats OR r.root = 'started' AND r.polls)
           OR r.root = 'output' AND (r.node = 0 OR r.pointer
                                     ~ '^/steps/[^/]*/(fallback/)?(undo/)?(poll/)?(call|input|wait)(/|$)'))
    UNION ALL
    SELECT r.pointer, format('step "%s" does not exist', coalesce(r.member, '')),
        _sas.meant(r.member, ARRAY(SELECT n.local FROM unnest(nodes) n WHERE n.scope = 1))
        || 'A reference to a step is {{steps.NAME.output}}, with an optional path after it.', '42P10'
    FROM reference r WHERE r.problem IS NULL AND r.root = 'steps' AND NOT r.known
    UNION ALL
    SELECT r.pointer, format('step "%s" does not poll', r.member),
        'Only a step with "poll" has "started"; any other has "output".', '42P10'
    FROM reference r WHERE r.problem IS NULL AND r.root = 'steps' AND r.known AND r.third = 'started'
        AND NOT r.polled
    UNION ALL
    SELECT r.pointer, format('step "%s" refers to its own result', r.name),
        'Only the undo of a step can refer to its result.', '42P10'
    FROM reference r WHERE r.problem IS NULL AND r.root = 'steps' AND r.member = r.name AND NOT r.undo
        AND r.third IS DISTINCT FROM 'token'
    UNION ALL
    SELECT r.pointer, format('step "%s" has no token', r.member),
        'Only a step that waits for one signal, once, has a token.', '42P10'
    FROM reference r LEFT JOIN unnest(nodes) n ON n.scope = 1 AND n.local = r.member
    WHERE r.problem IS NULL AND r.root = 'steps' AND r.third = 'token' AND r.known
        AND (jsonb_typeof(n.body #> '{wait,signal}') IS DISTINCT FROM 'string' OR n.body ?| '{each,repeat}')
    UNION ALL
    SELECT format('%s/after/%s', n.path, a.n - 1), format('step "%s" does not exist', a.name),
        _sas.meant(a.name, ARRAY(SELECT o.local FROM unnest(nodes) o WHERE o.scope = 1))
        || 'Name steps of this definition.', '42P10'
    FROM unnest(nodes) n
    CROSS JOIN LATERAL (SELECT e.value #>> '{}' AS name, e.n
                        FROM jsonb_array_elements(CASE jsonb_typeof(n.body -> 'after') WHEN 'array'
                            THEN n.body -> 'after' ELSE '[]' END) WITH ORDINALITY AS e (value, n)
                        WHERE jsonb_typeof(e.value) = 'string') a
    LEFT JOIN unnest(nodes) own ON own.scope = 1 AND own.local = a.name
    WHERE n.scope = 1 AND own.local IS NULL
$$;

-- _sas.check_predicate_roots(nodes): errors of predicates over what is not there. Nothing is found of it, so
-- such a predicate would be false for ever, and no run would say why.
CREATE FUNCTION _sas.check_predicate_roots(nodes _sas.flow_node[]) RETURNS SETOF _sas.problem
LANGUAGE sql STABLE AS $$
    WITH step AS (
        SELECT n.path, n.body,
               '{output}' || CASE WHEN n.body ? 'each' THEN '{item,index}' WHEN n.body ? 'repeat'
                                  THEN '{last,index}' ELSE '{}' END::text[] AS answer
        FROM unnest(nodes) n WHERE n.scope = 1 AND (n.local IS NOT NULL OR n.kind = 'open')),
    predicate AS (
        SELECT s.path || p.place AS pointer, p.value #>> '{}' AS path,
               '{input,steps,run,key}' || p.roots AS roots
        FROM step s
        CROSS JOIN LATERAL (
            SELECT '/when', s.body -> 'when', '{}'::text[]
            UNION ALL SELECT '/repeat/while', s.body #> '{repeat,while}', '{last,output,index}'
            UNION ALL SELECT b.place || e.place, b.body #> e.at,
                s.answer || CASE WHEN b.body ? 'poll' THEN '{started}' ELSE '{}' END::text[]
            FROM (VALUES ('', s.body), ('/undo', s.body -> 'undo'), ('/fallback', s.body -> 'fallback'),
                         ('/fallback/undo', s.body #> '{fallback,undo}')) AS b (place, body),
                 (VALUES ('/expect', '{expect}'::text[]), ('/poll/until', '{poll,until}')) AS e (place, at)
            ) AS p (place, value, roots)
        WHERE jsonb_typeof(p.value) = 'string')
    SELECT p.pointer, format('"$.%s" cannot be referenced here', r.root),
        'This predicate can refer to ' || array_to_string(p.roots, ', ') || '.', '42P10'
    FROM predicate p CROSS JOIN LATERAL _sas.predicate_references(p.path) r
    WHERE r.problem IS NULL AND r.root <> ALL (p.roots)
$$;

-- _sas.check_members(refs): errors of references to members that a run, or each step, does not have.
CREATE FUNCTION _sas.check_members(refs _sas.flow_reference[]) RETURNS SETOF _sas.problem
LANGUAGE sql STABLE AS $$
    SELECT r.pointer, format('a run has no "%s" in templates', r.member),
        'Refer to id, key, labels, created_at, deadline or now; in a run of a schedule also to schedule or '
        'scheduled_at.', '42P10'
    FROM unnest(refs) r WHERE r.scope = 1 AND r.problem IS NULL AND r.root = 'run'
        AND r.member <> ALL ('{id,key,labels,created_at,deadline,now,schedule,scheduled_at}')
    UNION ALL
    SELECT r.pointer, format('a step has no "%s" in templates', r.third),
        _sas.meant(r.third, '{output,key,state,failed,started,token}')
        || 'Refer to output, key, state or failed, of a poll also to started, of a wait to token.', '42P10'
    FROM unnest(refs) r WHERE r.scope = 1 AND r.problem IS NULL AND r.root = 'steps'
        AND r.third <> ALL ('{output,key,state,failed,started,token}')
$$;

-- _sas.check_call_outputs(nodes, refs): errors of references to members that no output of a call has. The
-- form of that output is known, unless the step builds another one (output), a fallback of another kind may
-- replace it, or middleware of calls may answer in its own way. lax paths also look into the array of a
-- map.
CREATE FUNCTION _sas.check_call_outputs(nodes _sas.flow_node[], refs _sas.flow_reference[])
RETURNS SETOF _sas.problem
LANGUAGE sql STABLE AS $$
    WITH step AS (
        SELECT n.local AS name, n.path, n.body,
               NOT n.body ? 'output' AND (NOT n.body ? 'fallback' OR n.body #> '{fallback,call}' IS NOT NULL
                                          AND n.body #> '{fallback,output}' IS NULL) AS plain
        FROM unnest(nodes) n
        WHERE n.scope = 1 AND n.local IS NOT NULL AND n.body ? 'call'
          AND NOT EXISTS (SELECT FROM _sas.middleware m WHERE m.phase = 'call')),
    read AS (
        SELECT r.pointer, r.third AS part, r.fourth AS member,
               format('the %s of step "%s"', CASE r.third WHEN 'started' THEN 'first reply' ELSE 'output' END,
                      s.name) AS what
        FROM unnest(refs) r JOIN step s ON s.name = r.member
        WHERE r.scope = 1 AND r.problem IS NULL AND r.root = 'steps'
          AND (r.third = 'output' AND s.plain OR r.third = 'started' AND s.body ? 'poll')
        UNION ALL
        -- "expect" and "output" see the answer itself
        SELECT r.pointer, r.root, r.member, 'the answer'
        FROM unnest(refs) r
        JOIN step s ON starts_with(r.pointer || '/', s.path || '/output/') AND r.root = 'output'
            OR starts_with(r.pointer, s.path || '/') AND r.root = 'started'
                AND CASE WHEN starts_with(r.pointer, s.path || '/undo/') THEN s.body -> 'undo' ELSE s.body END
                    ?& '{call,poll}'
        WHERE r.scope = 1 AND r.problem IS NULL
        UNION ALL
        SELECT s.path || e.place, r.root, r.member, 'the answer'
        FROM step s
        CROSS JOIN LATERAL (VALUES ('/expect', s.body -> 'expect'), ('/poll/until', s.body #> '{poll,until}'),
                            ('/undo/poll/until', s.body #> '{undo,poll,until}'),
                            ('/undo/expect', CASE WHEN s.body #> '{undo,call}' IS NOT NULL
                             THEN s.body #> '{undo,expect}' END)) AS e (place, predicate)
        CROSS JOIN LATERAL _sas.predicate_references(CASE jsonb_typeof(e.predicate)
                                                     WHEN 'string' THEN e.predicate #>> '{}' END) r
        WHERE r.problem IS NULL AND r.root = 'output')
    SELECT DISTINCT r.pointer, format('%s has no "%s"', r.what, r.member),
        format('A call returns status, headers and body: did you mean %s.body.%s?', r.part, r.member), '42P10'
    FROM read r WHERE r.member <> ALL ('{status,headers,body}')
    ORDER BY 1, 2
$$;

-- SPDX-License-Identifier: PostgreSQL
--
-- Store: compiles a checked definition into rows of steps and edges.

-- _sas.read_retry(value): retry or recovery in the form that the engine reads: retry has milliseconds,
-- recovery keeps its intervals as text.
CREATE FUNCTION _sas.read_retry(value jsonb) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_strip_nulls(jsonb_build_object(
               'max_attempts', p.policy -> 'max_attempts',
               'pauses', (SELECT jsonb_agg(extract(epoch FROM _sas.span(e.pause)) * 1000 ORDER BY e.n)
                          FROM jsonb_array_elements(p.policy -> 'pauses') WITH ORDINALITY AS e (pause, n)),
               'initial_ms', extract(epoch FROM _sas.span(p.policy -> 'initial')) * 1000,
               'max_ms', extract(epoch FROM _sas.span(p.policy -> 'max')) * 1000,
               'backoff', p.policy -> 'backoff', 'jitter', p.policy -> 'jitter', 'on', p.policy -> 'on'))
    FROM (SELECT _sas.count_pauses(value, 'max_attempts') AS policy) p WHERE value IS NOT NULL
$$;

-- _sas.named_functions(scopes, nodes): the functions that a definition names, except those of hooks.
CREATE FUNCTION _sas.named_functions(scopes _sas.scope[], nodes _sas.flow_node[]) RETURNS text[]
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN ARRAY(
        SELECT DISTINCT x.f
        FROM (SELECT n.body #>> p.path::text[] AS f
              FROM unnest(nodes) n
              CROSS JOIN (VALUES ('{function}'), ('{undo,function}'), ('{fallback,function}'),
                          ('{fallback,undo,function}'), ('{finalize}')) AS p (path)
              UNION ALL SELECT s.definition ->> 'finalize' FROM unnest(scopes) s WHERE s.no = 1
              UNION ALL SELECT s.definition ->> 'plan' FROM unnest(scopes) s) x
        WHERE x.f IS NOT NULL);
END $$;

-- _sas.finalize_rule(rule): on_failure of the step finalize, for a rule of the run. All other steps have
-- succeeded or were skipped: they are not undone because finalize fails.
CREATE FUNCTION _sas.finalize_rule(rule text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$ SELECT CASE WHEN rule IN ('skip', 'fail') THEN rule ELSE 'pause' END $$;

-- _sas.store_version(for_workflow, new_version, definition, caller, included): stores a checked definition
-- as a version of a workflow. included: see _sas.scopes.
--   writes  workflow_version, workflow_step, workflow_edge, token_key, workflow_hook; a version for each hook
CREATE FUNCTION _sas.store_version(for_workflow int, new_version int, definition jsonb, caller oid,
                                   included jsonb DEFAULT '{}') RETURNS void
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    id int;
    c record;
    visible int;
    finalizes boolean;
    levels int[];
BEGIN
    definition := CASE WHEN definition ? 'plan' THEN '{"steps": {}}' ELSE '{}' END::jsonb || definition;
    SELECT * INTO c FROM _sas.compile(definition, NULL, caller, included);
    visible := (SELECT count(*) FROM unnest(c.nodes) n WHERE n.local IS NOT NULL);
    finalizes := definition ? 'finalize' OR EXISTS (SELECT FROM unnest(c.nodes) n WHERE n.body ? 'finalize');
    INSERT INTO _sas.workflow_version (
        workflow_id, version, definition, step_count, finalize_no, functions, uses, output, output_reads,
        on_transient, on_permanent, deadline, priority, created_by, created_at, planned, auto_rescue,
        mask)
    SELECT for_workflow, new_version, definition, visible, CASE WHEN finalizes THEN visible + 1 END,
           _sas.named_functions(c.scopes, c.nodes),
           ARRAY(SELECT u FROM _sas.agent_uses(definition, c.nodes) u), definition -> 'output',
           ARRAY(SELECT DISTINCT n.no FROM unnest(c.refs) r JOIN unnest(c.nodes) n ON n.scope = 1
                 AND n.local = r.member WHERE r.node = 0 AND r.root = 'steps'),
           s.policy ->> 'transient', s.policy ->> 'permanent', _sas.span(definition -> 'deadline'),
           coalesce((definition ->> 'priority')::int, 0), caller, sas.now(),
           EXISTS (SELECT FROM unnest(c.scopes) planned WHERE _sas.is_planned(planned.definition)),
           (definition ->> 'auto_rescue')::boolean, _sas.read_mask(c.scopes)
    FROM unnest(c.scopes) s WHERE s.no = 1
    RETURNING version_id INTO id;

    INSERT INTO _sas.workflow_edge (version_id, from_no, to_no)
    SELECT id, e.from_no, e.to_no FROM unnest(c.from_nos, c.to_nos) AS e (from_no, to_no);

    levels := _sas.levels(c.from_nos, c.to_nos, cardinality(c.nodes) + 1);
    PERFORM _sas.store_steps(id, c.scopes, c.nodes, c.refs, c.to_nos, levels);
    PERFORM _sas.bind_steps(id);
    IF finalizes THEN
        UPDATE _sas.workflow_step w SET finalize_rank = l.level
        FROM unnest(levels) WITH ORDINALITY AS l (level, no)
        WHERE w.version_id = id AND w.step_no = l.no AND w.finalizer IS NOT NULL;
        INSERT INTO _sas.workflow_step (version_id, step_no, undo, name, local_name, hidden, kind, lane,
                                        function, recovery, on_transient, on_permanent, pivot, priority,
                                        needs, reads, reads_own_output, position)
        SELECT id, visible + 1, false, 'finalize', 'finalize', false, 'function', 0,
            definition ->> 'finalize', s.recovery, _sas.finalize_rule(s.policy ->> 'transient'),
            _sas.finalize_rule(s.policy ->> 'permanent'), false, 0, 0, '{}', false, visible + 1
        FROM unnest(c.scopes) s WHERE s.no = 1;
    END IF;
    INSERT INTO _sas.token_key (value) SELECT gen_random_uuid()
    WHERE EXISTS (SELECT FROM unnest(c.refs) r WHERE r.root = 'steps' AND r.third = 'token')
        ON CONFLICT DO NOTHING;
    PERFORM _sas.store_starting(id, definition);
    PERFORM _sas.store_hooks(id);
    PERFORM _sas.store_roots(id);
END $$;

-- _sas.bind_steps(for_version): stores the ids of the workflows that its steps name. An undo, or a fallback,
-- that includes a workflow is bound to the version that whoever defines it would include now. Then a run of
-- this version needs what a run of that one needs, too.
-- Writes: workflow_step, workflow_version.
CREATE FUNCTION _sas.bind_steps(for_version int) RETURNS void
LANGUAGE sql AS $$
    UPDATE _sas.workflow_step w
    SET bound_id = f.workflow_id,
        request = CASE WHEN w.shape ? 'pinned'
                       THEN jsonb_build_object('workflow', f.name, 'version', coalesce(
                                _sas.runnable_version(v.created_by::oid, f), f.version))
                       ELSE w.request END
    FROM _sas.workflow f, _sas.workflow_version v
    WHERE w.version_id = for_version AND v.version_id = for_version AND f.dropped_at IS NULL
      AND f.name = CASE w.kind WHEN 'workflow' THEN w.shape ->> 'workflow'
                               WHEN 'join' THEN w.request ->> 'workflow' END;
    WITH needed AS MATERIALIZED (
        SELECT x.functions, x.uses FROM _sas.workflow_step w
        JOIN _sas.workflow_version x ON x.workflow_id = w.bound_id
            AND x.version = (w.request ->> 'version')::int
        WHERE w.version_id = for_version AND w.shape ? 'pinned')
    UPDATE _sas.workflow_version v
    SET functions = ARRAY(SELECT unnest(v.functions) UNION SELECT unnest(n.functions) FROM needed n
                          ORDER BY 1),
        uses = ARRAY(SELECT DISTINCT ON (u.agent_id, u.method, u.path, u.more, u.late) u
                     FROM unnest(v.uses || ARRAY(SELECT o FROM needed n CROSS JOIN unnest(n.uses) o)) u
                     ORDER BY u.agent_id, u.method, u.path, u.more, u.late, u.place)
    WHERE v.version_id = for_version AND EXISTS (SELECT FROM needed)
$$;

-- _sas.store_roots(for_version): stores the root steps in the version, if its runs qualify for the fast
-- submit path. Comes last, because it depends on everything else that is stored of the version.
-- Writes: workflow_version.
CREATE FUNCTION _sas.store_roots(for_version int) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE _sas.workflow_version v SET root_nos = k.nos, root_lanes = k.lanes, root_priorities = k.priorities
    FROM (SELECT array_agg(w.step_no ORDER BY w.step_no) AS nos,
                 array_agg(w.lane ORDER BY w.step_no) AS lanes,
                 array_agg(w.priority ORDER BY w.step_no) AS priorities
          FROM _sas.workflow_step w JOIN _sas.workflow_version v ON v.version_id = w.version_id
          WHERE w.version_id = for_version AND NOT w.undo AND w.needs = 0 AND w.step_no <> v.step_count + 1
          HAVING bool_and(NOT w.enters AND w.queue_id IS NULL AND w.kind IN ('call', 'function'))) k
    WHERE v.version_id = for_version AND NOT v.planned AND v.concurrency IS NULL
        AND v.queue_id IS NULL AND cardinality(k.nos) <= 100
        AND NOT EXISTS (SELECT FROM _sas.workflow_hook h WHERE h.version_id = for_version);
END $$;

-- _sas.step_bodies(nodes): one row for each step and each undo, with its part of the definition.
--   of_no   for a fallback: the step that it substitutes. Fallbacks are steps of their own, the last of all
--   beside  what its shape says about the other step: {"stands_in": no}, {"fallback": {no, on}}
CREATE FUNCTION _sas.step_bodies(nodes _sas.flow_node[])
RETURNS TABLE (no int, undo boolean, kind text, sees int, name text, local text, body jsonb, part jsonb,
               of_no int, beside jsonb)
LANGUAGE sql STABLE AS $$
    WITH node AS MATERIALIZED (
        SELECT n.*, n.body -> 'fallback' AS fallback,
               CASE WHEN n.falls THEN (cardinality(nodes) + 1
                    + count(*) FILTER (WHERE n.falls) OVER (ORDER BY n.no))::int END AS fallback_no
        FROM (SELECT u.*, u.kind = 'step' AND u.body ? 'fallback' AS falls FROM unnest(nodes) u) n),
    own AS (
        SELECT n.no, false AS undo, n.body AS part FROM node n
        UNION ALL
        -- in a map, or a repeating step, each element has an undo
        SELECT n.no, true,
               jsonb_strip_nulls(jsonb_build_object('agent', CASE WHEN n.body -> 'undo' ?| '{call,task}'
                                                             THEN n.body -> 'agent' END,
                                                    'each', n.body -> 'each', 'repeat', n.body -> 'repeat'))
               || (n.body -> 'undo')
        FROM node n WHERE n.body ? 'undo'
        UNION ALL
        -- the undos of a child run undo it
        SELECT n.no, true, n.body - '{when,else,undo,input,output,expect}'::text[] || '{"reverses": true}'
        FROM node n
        WHERE n.body ? 'workflow' AND NOT n.body ? 'undo')
    SELECT n.no, o.undo, n.kind, n.sees, n.name, n.local, n.body, o.part, NULL,
           CASE WHEN n.falls
                THEN jsonb_build_object('fallback', jsonb_build_object(
                         'no', n.fallback_no, 'on', coalesce(n.fallback -> 'on', '["failed"]'))) END
    FROM own o JOIN node n ON n.no = o.no
    UNION ALL
    SELECT n.fallback_no, f.undo, n.kind, n.sees, n.name || '.fallback', n.local,
           n.body - '{weight,finalize}'::text[],
           CASE WHEN f.part ?| '{call,task}' THEN step.common ELSE step.common - 'agent' END
           || CASE WHEN f.undo AND n.fallback ? 'agent' AND f.part ?| '{call,task}'
                   THEN jsonb_build_object('agent', n.fallback -> 'agent') ELSE '{}' END
           || f.part, n.no, jsonb_build_object('stands_in', n.no)
    FROM node n
    CROSS JOIN LATERAL (SELECT jsonb_strip_nulls(jsonb_build_object(
                            'agent', n.body -> 'agent', 'each', n.body -> 'each',
                            'repeat', n.body -> 'repeat', 'priority', n.body -> 'priority')) AS common) step
    CROSS JOIN LATERAL (SELECT false AS undo, n.fallback - '{on,undo}'::text[] AS part
                        UNION ALL SELECT true, n.fallback -> 'undo' WHERE n.fallback ? 'undo'
                        UNION ALL
                        SELECT true, n.fallback - '{on,input,output,expect}'::text[] || '{"reverses": true}'
                        WHERE n.fallback ? 'workflow' AND NOT n.fallback ? 'undo') f
    WHERE n.falls
$$;

-- _sas.step_reads(nodes, refs): the steps whose outputs a step or an undo reads: nos, each time; once_nos,
-- only when it begins. own: it reads its own output.
CREATE FUNCTION _sas.step_reads(nodes _sas.flow_node[], refs _sas.flow_reference[])
RETURNS TABLE (no int, undo boolean, nos int[], own boolean, once_nos int[])
LANGUAGE sql STABLE AS $$
    SELECT r.node, r.undo, coalesce(array_agg(DISTINCT m.no) FILTER (WHERE NOT x.once), '{}'),
           bool_or(m.no = r.node AND r.third IS DISTINCT FROM 'key'),
           coalesce(array_agg(DISTINCT m.no) FILTER (WHERE x.once), '{}')
    FROM unnest(refs) r
    JOIN unnest(nodes) m ON m.scope = r.scope AND m.local = r.member
    JOIN unnest(nodes) n ON n.no = r.node
    CROSS JOIN LATERAL (SELECT NOT r.undo AND n.kind = 'step'
                               AND r.pointer IN (n.path || '/each', n.path || '/when') AS once) x
    WHERE r.root = 'steps' AND NOT (r.undo AND r.pointer ~ '^/steps/[^/]*/fallback/')
    GROUP BY 1, 2
    UNION ALL
    -- a fallback sees itself under the name of its step
    SELECT b.no, b.undo, array_agg(DISTINCT CASE m.no WHEN b.of_no THEN b.no ELSE m.no END),
           bool_or(m.no = b.of_no AND r.third IS DISTINCT FROM 'key'), '{}'
    FROM _sas.step_bodies(nodes) b
    CROSS JOIN LATERAL _sas.body_references(b.part, '') r
    JOIN unnest(nodes) m ON m.scope = b.sees AND m.local = r.member
    WHERE EXISTS (SELECT FROM unnest(nodes) f WHERE f.body ? 'fallback') AND b.of_no IS NOT NULL
      AND r.root = 'steps'
    GROUP BY 1, 2
$$;

-- _sas.step_positions(scopes, nodes, levels): the order in which views show the steps: by level, then as
-- the flow lists them, then by name.
CREATE FUNCTION _sas.step_positions(scopes _sas.scope[], nodes _sas.flow_node[], levels int[])
RETURNS TABLE (no int, "position" int)
LANGUAGE sql STABLE AS $$
    -- strict: a lax path would find parts of the flow twice
    WITH listed AS MATERIALIZED (
        SELECT s.no AS scope, f.step #>> '{}' AS local, f.n
        FROM unnest(scopes) s
        CROSS JOIN LATERAL jsonb_path_query(s.definition -> 'flow', 'strict $.** ? (@.type() == "string")')
            WITH ORDINALITY AS f (step, n))
    SELECT n.no, row_number() OVER (ORDER BY l.level, n.scope, f.n NULLS LAST, n.name)::int
    FROM unnest(nodes) n
    JOIN unnest(levels) WITH ORDINALITY AS l (level, no) ON l.no = n.no
    LEFT JOIN listed f ON f.scope = n.scope AND f.local = n.local
    WHERE n.local IS NOT NULL
$$;

-- _sas.store_steps(...): stores a row for each step and each undo. What each needs and reads is computed
-- once.
-- Writes: workflow_step.
CREATE FUNCTION _sas.store_steps(for_version int, scopes _sas.scope[], nodes _sas.flow_node[],
                                 refs _sas.flow_reference[], to_nos int[], levels int[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    WITH need AS MATERIALIZED (SELECT e AS no, count(*)::int AS n FROM unnest(to_nos) e GROUP BY 1),
    read AS MATERIALIZED (SELECT * FROM _sas.step_reads(nodes, refs)),
    -- the nodes inside each opening step: its key is a prefix of theirs, with 0 appended; the closing step
    -- is last
    cover AS MATERIALIZED (
        SELECT o.no, array_agg(n.no ORDER BY n.entry = o.no, n.no) AS nos
        FROM unnest(nodes) n CROSS JOIN LATERAL generate_series(1, cardinality(n.key) - 1) AS k (depth)
        JOIN unnest(nodes) o ON o.kind = 'open' AND o.key = n.key[:k.depth] || 0 AND o.no <> n.no
        GROUP BY 1)
    INSERT INTO _sas.workflow_step (
        version_id, step_no, undo, name, local_name, scope_no, hidden, covers, kind, lane, function, request,
        input, output, expect, complete_in, retry, recovery, on_transient, on_permanent, pivot, priority,
        needs, reads, enter_reads, reads_own_output, input_reads, shape, enters, elements_enter, queue_id,
        weight, finalizer, "position")
    SELECT for_version, b.no, b.undo, b.name, coalesce(b.local, b.name), included.entry,
           b.local IS NULL OR b.of_no IS NOT NULL, cover.nos,
           CASE WHEN b.kind <> 'step' THEN 'join'
                ELSE (SELECT k FROM unnest('{call,function,task,wait,workflow}'::text[]) k
                      WHERE b.part ? k) END, coalesce(a.agent_id, 0), b.part ->> 'function',
           CASE WHEN b.part ? 'call'
                THEN jsonb_build_object('method', CASE WHEN b.part -> 'call' ?| '{body,form,text}' THEN 'POST'
                                                  ELSE 'GET' END) || (b.part -> 'call')
                WHEN b.kind = 'close'
                THEN jsonb_build_object('workflow', s.workflow, 'version', s.version) END,
           -- the result of a join is its input, filled in
           CASE WHEN b.kind = 'close' THEN b.part -> 'output'
                ELSE coalesce(b.part -> 'input',
                              CASE WHEN s.no > 1 AND b.part ?| '{function,task,workflow}'
                                   THEN '"{{input}}"'::jsonb END) END,
           CASE WHEN b.kind = 'step' THEN b.part -> 'output' END,
           coalesce(b.part -> 'expect',
                    CASE WHEN b.undo AND b.part ? 'call' THEN '["2xx", "404", "410"]'::jsonb END),
           _sas.span(b.part -> 'complete_in'), _sas.read_retry(b.part -> 'retry'),
           _sas.merge_pauses(s.recovery, _sas.count_pauses(b.part -> 'recovery', 'max_failures')),
           p.policy ->> 'transient', p.policy ->> 'permanent', coalesce((b.part ->> 'pivot')::boolean, false),
           coalesce((b.part ->> 'priority')::int, 0),
           CASE WHEN b.of_no IS NULL THEN coalesce(need.n, 0) ELSE 1 END,
           coalesce(read.nos, '{}'), coalesce(read.once_nos, '{}'), coalesce(read.own, false),
           CASE WHEN s.no = 1 OR b.part ? 'input' OR NOT b.part ?| '{function,task,workflow}'
                THEN _sas.input_reads(b.part) END,
           CASE WHEN b.beside IS NULL THEN _sas.step_shape(b.part)
                ELSE coalesce(_sas.step_shape(b.part), '{}') || b.beside END,
           b.kind <> 'step'
           OR CASE WHEN b.of_no IS NOT NULL OR b.undo THEN b.part ?| '{wait,workflow}'
                   ELSE b.part ?| '{when,each,repeat,wait,workflow}'
                       OR coalesce(b.beside #> '{fallback,on}' ? 'breaker_open', false) END,
           b.part ?| '{wait,workflow}'
               OR b.of_no IS NULL
                  AND (NOT b.undo AND coalesce(b.beside #> '{fallback,on}' ? 'breaker_open', false)),
           CASE WHEN b.body ? 'queue' THEN _sas.queue_id(b.body -> 'queue') END,
           coalesce((b.body ->> 'weight')::float8, 1), CASE WHEN NOT b.undo THEN b.body ->> 'finalize' END,
           placed.position
    FROM _sas.step_bodies(nodes) b
    JOIN unnest(scopes) s ON s.no = b.sees
    CROSS JOIN LATERAL (SELECT _sas.policy(b.part -> 'on_failure', s.policy) AS policy OFFSET 0) p
    LEFT JOIN unnest(nodes) included ON included.kind = 'close' AND included.sees = b.sees
    LEFT JOIN need ON need.no = b.no
    LEFT JOIN cover ON cover.no = b.no
    LEFT JOIN read ON read.no = b.no AND read.undo = b.undo
    -- a fallback has the position of its step
    LEFT JOIN _sas.step_positions(scopes, nodes, levels) placed ON placed.no = coalesce(b.of_no, b.no)
    LEFT JOIN _sas.agent a ON a.name = b.part ->> 'agent' AND a.dropped_at IS NULL;
END $$;

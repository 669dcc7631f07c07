-- SPDX-License-Identifier: PostgreSQL
--
-- Store: a checked definition becomes steps and edges.

-- sas._pauses(value): retry or recovery with its spans in a form that the
-- machine reads without thinking: recovery keeps spans, retry has milliseconds.
CREATE FUNCTION sas._retry_policy(value jsonb) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN value IS NOT NULL THEN
        jsonb_strip_nulls(jsonb_build_object(
            'max_attempts', value -> 'max_attempts',
            'initial_ms', extract(epoch FROM sas._span(value -> 'initial')) * 1000,
            'max_ms', extract(epoch FROM sas._span(value -> 'max')) * 1000,
            'backoff', value -> 'backoff', 'jitter', value -> 'jitter', 'on', value -> 'on')) END
$$;

-- sas._store_version(...): writes a checked definition as a version of a workflow.
CREATE FUNCTION sas._store_version(for_workflow int, new_version int, definition jsonb, caller oid) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    id int;
    names text[] := ARRAY(SELECT jsonb_object_keys(definition -> 'steps'));
    policy jsonb := '{"transient": "pause", "permanent": "compensate"}'::jsonb
                    || CASE jsonb_typeof(definition -> 'on_failure') WHEN 'object' THEN definition -> 'on_failure'
                            WHEN 'string' THEN jsonb_build_object('transient', definition -> 'on_failure', 'permanent', definition -> 'on_failure')
                            ELSE '{}' END;
    recovery jsonb := '{"max_failures": 10, "initial": "10 s", "max": "15 min", "backoff": "exponential", "jitter": true}'::jsonb
                      || coalesce(definition -> 'recovery', '{}');
BEGIN
    INSERT INTO sas.workflow_version (workflow_id, version, definition, step_count, finalize_no, functions, output, output_reads,
                                      on_transient, on_permanent, deadline, priority, created_by, created_at)
    SELECT for_workflow, new_version, definition, cardinality(names),
           CASE WHEN definition ? 'finalize' THEN cardinality(names) + 1 END,
           ARRAY(SELECT DISTINCT f FROM (SELECT s.value ->> 'function' AS f FROM jsonb_each(definition -> 'steps') s
                                         UNION ALL SELECT s.value #>> '{undo,function}' FROM jsonb_each(definition -> 'steps') s
                                         UNION ALL SELECT definition ->> 'finalize') x WHERE f IS NOT NULL),
           definition -> 'output',
           ARRAY(SELECT DISTINCT n.n::int FROM sas._body_references(jsonb_build_object('output', definition -> 'output'), '') r
                 JOIN unnest(names) WITH ORDINALITY AS n (name, n) ON r.root = 'steps' AND n.name = r.member),
           policy ->> 'transient', policy ->> 'permanent', sas._span(definition -> 'deadline'),
           coalesce((definition ->> 'priority')::int, 0), caller, sas._now()
    RETURNING version_id INTO id;

    INSERT INTO sas.workflow_edge (version_id, from_no, to_no)
    SELECT id, f.n, t.n
    FROM sas._edges(definition) e
    JOIN unnest(names) WITH ORDINALITY AS f (name, n) ON f.name = e.from_name
    JOIN unnest(names) WITH ORDINALITY AS t (name, n) ON t.name = e.to_name;

    INSERT INTO sas.workflow_step (version_id, step_no, undo, name, kind, lane, function, request, input, output, expect, complete_in, retry, recovery,
                                   on_transient, on_permanent, pivot, priority, needs, reads, reads_own_output, input_reads, shape, enters, elements_enter)
    SELECT id, n.n, b.undo, n.name, (SELECT k FROM unnest('{call,function,task,wait,workflow}'::text[]) k WHERE b.body ? k), coalesce(a.agent_id, 0),
           b.body ->> 'function',
           CASE WHEN b.body ? 'call'
                THEN jsonb_build_object('method', CASE WHEN b.body -> 'call' ?| '{body,form,text}' THEN 'POST' ELSE 'GET' END) || (b.body -> 'call') END,
           b.body -> 'input', b.body -> 'output',
           coalesce(b.body -> 'expect', CASE WHEN b.undo AND b.body ? 'call' THEN '["2xx", "404", "410"]'::jsonb END),
           sas._span(b.body -> 'complete_in'), sas._retry_policy(b.body -> 'retry'), recovery || coalesce(b.body -> 'recovery', '{}'),
           coalesce(CASE jsonb_typeof(b.body -> 'on_failure') WHEN 'object' THEN b.body #>> '{on_failure,transient}' WHEN 'string' THEN b.body ->> 'on_failure' END, policy ->> 'transient'),
           coalesce(CASE jsonb_typeof(b.body -> 'on_failure') WHEN 'object' THEN b.body #>> '{on_failure,permanent}' WHEN 'string' THEN b.body ->> 'on_failure' END, policy ->> 'permanent'),
           coalesce((b.body ->> 'pivot')::boolean, false), coalesce((b.body ->> 'priority')::int, 0),
           (SELECT count(*) FROM sas.workflow_edge e WHERE e.version_id = id AND e.to_no = n.n),
           ARRAY(SELECT DISTINCT m.n::int FROM sas._body_references(b.body, '') r
                 JOIN unnest(names) WITH ORDINALITY AS m (name, n) ON r.root = 'steps' AND m.name = r.member),
           EXISTS (SELECT FROM sas._body_references(b.body, '') r WHERE r.root = 'steps' AND r.member = n.name AND r.third IS DISTINCT FROM 'key'),
           sas._input_reads(b.body), sas._step_shape(b.body),
           CASE WHEN b.undo THEN b.body ? 'workflow' ELSE b.body ?| '{when,each,repeat,wait,workflow}' END, b.body ?| '{wait,workflow}'
    FROM unnest(names) WITH ORDINALITY AS n (name, n)
    CROSS JOIN LATERAL (SELECT definition -> 'steps' -> n.name AS step OFFSET 0) d
    CROSS JOIN LATERAL (
        SELECT false AS undo, d.step AS body
        UNION ALL
        -- of a map, or a step that repeats, each element has an undo
        SELECT true, jsonb_strip_nulls(jsonb_build_object('agent', CASE WHEN d.step #> '{undo}' ?| '{call,task}' THEN d.step -> 'agent' END, 'each', d.step -> 'each', 'repeat', d.step -> 'repeat')) || (d.step -> 'undo')
        WHERE d.step ? 'undo'
        UNION ALL
        -- a child run is undone by its own undos
        SELECT true, d.step - '{when,else,undo,input,output,expect}'::text[] WHERE d.step ? 'workflow' AND NOT d.step ? 'undo') b
    LEFT JOIN sas.agent a ON a.name = b.body ->> 'agent' AND a.dropped_at IS NULL;

    IF definition ? 'finalize' THEN
        INSERT INTO sas.workflow_step (version_id, step_no, undo, name, kind, lane, function, recovery, on_transient, on_permanent, pivot, priority, needs, reads, reads_own_output)
        VALUES (id, cardinality(names) + 1, false, 'finalize', 'function', 0, definition ->> 'finalize', recovery, 'pause', 'pause', false, 0, 0, '{}', false);
    END IF;
    PERFORM sas._store_starting(id, definition);
END $$;

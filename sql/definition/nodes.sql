-- SPDX-License-Identifier: PostgreSQL
--
-- Nodes: a definition with everything that it includes, as a list of steps.
--
-- A step {"include": "workflow"} becomes two steps of kind join with the steps of that workflow between
-- them: an opening step, whose result is the input that the inner steps see, and a closing step, which has
-- the name of the step and the output of that workflow as its result.

-- _sas.include_problem(f, workflow, caller, chain): why it cannot be included here; null if it can.
CREATE FUNCTION _sas.include_problem(f _sas.workflow, workflow text, caller oid, chain text[])
RETURNS _sas.problem
LANGUAGE sql STABLE AS $$
    SELECT CASE
        WHEN workflow = ANY (chain)
        THEN ROW(NULL, format('workflow "%s" includes itself: %s', workflow,
                              array_to_string(chain || workflow, ' -> ')),
                 'Start it as a run of its own with "workflow" instead.', '42P19')::_sas.problem
        WHEN f.workflow_id IS NULL
        THEN ROW(NULL, format('workflow "%s" does not exist', workflow),
                 _sas.meant(workflow, _sas.submittable_names(caller))
                 || 'Create it with sas.create_workflow.', '42704')::_sas.problem
        WHEN NOT _sas.may_submit(caller, f)
        THEN ROW(NULL, format('permission denied for workflow "%s"', workflow),
                 format('Its owner can grant it: SELECT sas.grant_workflow(%L, %L).', workflow,
                        caller::regrole), '42501')::_sas.problem
    END
$$;

-- _sas.policy(on_failure, above): the on_failure of a step: its own, else that of the level above.
CREATE FUNCTION _sas.policy(on_failure jsonb, above jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT above
           || CASE jsonb_typeof(on_failure)
              WHEN 'object' THEN on_failure
              WHEN 'string' THEN jsonb_build_object('transient', on_failure, 'permanent', on_failure)
              ELSE '{}' END
$$;

-- _sas.recovery_of(definition, above): the recovery of steps that have none of their own. While a
-- definition is being checked, the key may have a wrong type.
CREATE FUNCTION _sas.recovery_of(definition jsonb, above jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN jsonb_typeof(r -> 'pauses') = 'array' OR jsonb_typeof(r) = 'object' AND NOT r ? 'pauses'
           THEN _sas.merge_pauses(above, _sas.count_pauses(r, 'max_failures')) ELSE above END
    FROM (SELECT definition -> 'recovery' AS r) d
$$;

-- _sas.scopes(definition, name, caller, included): the definition, then everything that it includes,
-- directly or through others. included: by their prefixes, the definitions that planning has built for
-- includes that are planned at submit.
CREATE FUNCTION _sas.scopes(definition jsonb, name text, caller oid, included jsonb, OUT scopes _sas.scope[],
                            OUT problems _sas.problem[])
LANGUAGE plpgsql STABLE AS $$
DECLARE
    at int := 1;
    total int := (SELECT count(*) FROM jsonb_object_keys(definition -> 'steps'));
    s _sas.scope;
    f _sas.workflow;
    v _sas.workflow_version;
    e record;
    p _sas.problem;
    place text;
BEGIN
    scopes := ARRAY[ROW(1, NULL, '{}', '', '', name, NULL, CASE WHEN name IS NULL THEN '{}'
                        ELSE ARRAY[name] END, definition,
                        _sas.policy(definition -> 'on_failure',
                                    '{"transient": "pause", "permanent": "compensate"}'),
                        _sas.recovery_of(definition,
                                         '{"max_failures": 10, "initial": "10 s", "max": "15 min", '
                                         '"backoff": "exponential", "jitter": true}'))::_sas.scope];
    problems := '{}';
    WHILE at <= cardinality(scopes) LOOP
        s := scopes[at];
        at := at + 1;
        FOR e IN SELECT j.key, j.value ->> 'include' AS workflow, j.n::int
                 FROM jsonb_each(s.definition -> 'steps') WITH ORDINALITY AS j (key, value, n)
                 WHERE CASE jsonb_typeof(j.value)
                     WHEN 'object' THEN jsonb_typeof(j.value -> 'include') = 'string' END LOOP
            SELECT * INTO f FROM _sas.workflow w WHERE w.name = e.workflow AND w.dropped_at IS NULL;
            SELECT * INTO v FROM _sas.workflow_version x WHERE x.workflow_id = f.workflow_id
                AND x.version = coalesce(_sas.runnable_version(caller, f), f.version);
            -- with a plan function all steps may come from that function
            v.definition := coalesce(included -> (s.prefix || e.key || '.'), '{"steps": {}}' || v.definition);
            p := _sas.include_problem(f, e.workflow, caller, s.chain);
            place := CASE s.no WHEN 1 THEN _sas.pointer('/steps', e.key) ELSE s.path END;
            IF p.problem IS NOT NULL THEN
                p.path := place || '/include';
                problems := problems || p;
                CONTINUE;
            END IF;
            total := total + (SELECT count(*) FROM jsonb_object_keys(v.definition -> 'steps'));
            IF total > _sas.max_steps() THEN
                problems := problems || ROW(place || '/include',
                                            format('there are more than %s steps, included ones counted',
                                                   _sas.max_steps()), 'See the setting sas.max_steps.',
                                            '54000')::_sas.problem;
                RETURN;
            END IF;
            scopes := scopes || ROW(cardinality(scopes) + 1, s.no, s.key || e.n, s.prefix || e.key || '.',
                                    place, e.workflow, v.version, s.chain || e.workflow,
                                    v.definition, _sas.policy(v.definition -> 'on_failure', s.policy),
                                        _sas.recovery_of(v.definition, s.recovery))::_sas.scope;
        END LOOP;
    END LOOP;
END $$;

-- _sas.run_of_include(part): an undo, or a fallback, that includes a workflow is a run of that workflow, in
-- the version that is current when this definition is stored (_sas.bind_steps).
CREATE FUNCTION _sas.run_of_include(part jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN jsonb_typeof(part) = 'object' AND part ? 'include'
           THEN part - 'include' || jsonb_build_object('workflow', part -> 'include', 'pinned', true)
           ELSE part END
$$;

-- _sas.with_runs(body): the body of a step, with runs in place of the includes of its undo and its fallback.
CREATE FUNCTION _sas.with_runs(body jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT body || (SELECT jsonb_object_agg(p.key, CASE WHEN p.key = 'fallback' AND p.part ? 'undo'
                        THEN p.part || jsonb_build_object('undo', _sas.run_of_include(p.part -> 'undo'))
                        ELSE p.part END)
                    FROM (SELECT e.key, _sas.run_of_include(e.value) AS part FROM jsonb_each(body) e
                          WHERE e.key IN ('undo', 'fallback') AND jsonb_typeof(e.value) = 'object') p)
$$;

-- _sas.number_steps(scopes): the steps, numbered from 1 in the order of planning: included steps come
-- before the step that includes them. The next number is left for finalize; opening steps get the last
-- ones.
CREATE FUNCTION _sas.number_steps(scopes _sas.scope[]) RETURNS _sas.flow_node[]
LANGUAGE sql STABLE AS $$
    WITH scope AS (SELECT * FROM unnest(scopes)),
    step AS (
        SELECT s.no AS scope, i.no AS inner_scope, s.prefix || e.key AS name, e.key AS local,
               s.key || e.n::int || CASE WHEN i.no IS NULL THEN '{}' ELSE '{2147483647}'::int[] END AS key,
               CASE WHEN s.no = 1 THEN _sas.pointer('/steps', e.key) ELSE s.path END AS path,
               e.value AS body, (SELECT coalesce(jsonb_object_agg(d.key, d.value), '{}')
                                 FROM jsonb_each(i.definition) d
                                 WHERE d.key IN ('output', 'finalize')) AS inner_body
        FROM scope s
        CROSS JOIN LATERAL jsonb_each(s.definition -> 'steps') WITH ORDINALITY AS e (key, value, n)
        LEFT JOIN scope i ON i.parent = s.no AND i.prefix = s.prefix || e.key || '.'),
    numbered AS (
        SELECT t.*, row_number() OVER (ORDER BY t.key)::int AS no, (count(*) OVER ())::int AS n,
               CASE WHEN t.inner_scope IS NOT NULL
                   THEN row_number() OVER (PARTITION BY t.inner_scope IS NULL
                                           ORDER BY t.key)::int END AS open_no
        FROM step t)
    SELECT coalesce(array_agg(ROW(x.no, x.kind, x.scope, x.sees, x.name, x.local, x.entry, x.key, x.path,
                                  x.body)::_sas.flow_node ORDER BY x.no), '{}')
    FROM (SELECT t.no, CASE WHEN t.inner_scope IS NULL THEN 'step' ELSE 'close' END AS kind, t.scope,
                 coalesce(t.inner_scope, t.scope) AS sees, t.name, t.local,
                 CASE WHEN t.inner_scope IS NULL THEN t.no ELSE t.n + 1 + t.open_no END AS entry, t.key,
                 t.path,
                 CASE WHEN t.inner_scope IS NOT NULL THEN t.inner_body
                      WHEN jsonb_typeof(t.body) = 'object' AND t.body ?| '{undo,fallback}'
                      THEN coalesce(_sas.with_runs(t.body), t.body) ELSE t.body END AS body
          FROM numbered t
          UNION ALL
          SELECT t.n + 1 + t.open_no, 'open', t.scope, t.scope, t.name || '.(input)', NULL,
              t.n + 1 + t.open_no, t.key[:cardinality(t.key) - 1] || 0, t.path,
                 '{"input": "{{input}}"}'::jsonb || (t.body - 'include')
          FROM numbered t WHERE t.inner_scope IS NOT NULL) x
$$;

-- _sas.node_references(scopes, nodes): all references, also those in included workflows and in the output
-- of the run.
CREATE FUNCTION _sas.node_references(scopes _sas.scope[], nodes _sas.flow_node[])
RETURNS _sas.flow_reference[]
LANGUAGE sql STABLE AS $$
    SELECT coalesce(array_agg(ROW(b.node, b.undo, b.scope, r.pointer, r.reference, r.root, r.member, r.third,
                                  r.problem, r.hint, r.fourth)::_sas.flow_reference), '{}')
    FROM (SELECT n.no AS node, false AS undo, n.sees AS scope, n.body, n.path FROM unnest(nodes) n
          UNION ALL
          SELECT n.no, true, n.sees, n.body -> 'undo', n.path || '/undo' FROM unnest(nodes) n
          WHERE jsonb_typeof(n.body) = 'object' AND n.body ? 'undo'
          UNION ALL
          SELECT n.no, f.undo, n.sees, f.body, n.path || f.path
          FROM unnest(nodes) n
          CROSS JOIN LATERAL (VALUES (false, '/fallback', n.body -> 'fallback'),
                              (true, '/fallback/undo', n.body #> '{fallback,undo}')) AS f (undo, path, body)
          WHERE jsonb_typeof(n.body -> 'fallback') = 'object'
          UNION ALL
          SELECT 0, false, 1, jsonb_build_object('output', s.definition -> 'output'), ''
          FROM unnest(scopes) s WHERE s.no = 1 AND s.definition ? 'output') b
    CROSS JOIN LATERAL _sas.body_references(b.body, b.path) r
$$;

-- SPDX-License-Identifier: PostgreSQL
--
-- Elements of maps, for readers: how many are in which state, and some of them. A run may have a hundred
-- thousand; sas.steps is asked for the chosen ones only. These functions check the caller's right
-- themselves: no rows if the caller may not see the run.

-- _sas.element_rows(run_id): the elements of a run, with their states as in sas.steps. at: what they wait for
-- is due then; answered: has the call in progress been answered, null: there is none; lane: in which line it
-- is ready. Elements of one step that are alike in state, kind, answered, doubt and lane wait for the same
-- thing.
CREATE FUNCTION _sas.element_rows(run_id bigint)
RETURNS TABLE (step_no int, element int, state text, at timestamptz, kind text, answered boolean,
               doubt boolean, lane int)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT s.step_no, s.element, s.state,
           coalesce(s.waiting_until, s.complete_by, CASE WHEN s.finished_at IS NULL THEN s.started_at END),
           s.waiting_kind,
           CASE WHEN s.request_id IS NOT NULL
           THEN EXISTS (SELECT FROM _sas.answer h WHERE h.run_id = s.run_id AND h.step_no = s.step_no
                        AND h.element = s.element AND h.request_id = s.request_id) END, s.in_doubt,
           CASE WHEN s.state IN ('ready', 'compensating')
                THEN (SELECT q.lane FROM _sas.ready q WHERE q.run_id = s.run_id AND q.step_no = s.step_no
                      AND q.element = s.element) END
    FROM _sas.step s WHERE s.run_id = $1 AND s.element > 0
    UNION ALL
    SELECT q.step_no, q.element, 'ready', q.ready_at, NULL, NULL, false, q.lane
    FROM _sas.ready q
    WHERE q.run_id = $1 AND q.element > 0
      AND NOT EXISTS (SELECT FROM _sas.step s WHERE s.run_id = q.run_id AND s.step_no = q.step_no
                      AND s.element = q.element);
END;

-- _sas.element_groups(run_ids): how many elements of each step of these runs are in each state. elements: of
-- those that may wait for something, the fifty that are due first.
CREATE FUNCTION _sas.element_groups(run_ids bigint[])
RETURNS TABLE (run_id bigint, step text, "position" int, state text, n bigint, elements int[])
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_verb';

-- _sas.element_groups_as(caller, run_ids): the body of _sas.element_groups.
CREATE FUNCTION _sas.element_groups_as(caller oid, run_ids bigint[])
RETURNS TABLE (run_id bigint, step text, "position" int, state text, n bigint, elements int[])
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT r.run_id, w.name, w.position, g.state, g.n, g.elements
    FROM _sas.run r
    CROSS JOIN LATERAL (
        SELECT e.step_no, e.state, count(*) AS n,
               (array_agg(e.element ORDER BY e.at, e.element) FILTER (
                   WHERE r.abandon_as IS NOT NULL
                      OR e.state <> ALL ('{succeeded,skipped,cancelled,compensated}'))
               )[:50] AS elements
        FROM _sas.element_rows(r.run_id) e
        GROUP BY e.step_no, e.state, e.kind, e.answered, e.doubt, e.lane) g
    JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = g.step_no AND NOT w.undo
    WHERE r.run_id = ANY ($2) AND r.hook_of IS NULL AND _sas.may_see($1, r.owner)
$$;

-- _sas.element_page(run_id, step, state, after, most): elements of this step, and state, that follow element
-- "after"; without a step, those of all, whatever "after" is: failed ones first, then open ones.
CREATE FUNCTION _sas.element_page(run_id bigint, step text, state text, after int, most int)
RETURNS TABLE (step text, element int)
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_verb';

-- _sas.element_page_as(caller, run_id, step, state, after, most): the body of _sas.element_page.
CREATE FUNCTION _sas.element_page_as(caller oid, run_id bigint, step text, state text, after int, most int)
RETURNS TABLE (step text, element int)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT w.name, e.element
    FROM _sas.run r
    CROSS JOIN LATERAL _sas.element_rows(r.run_id) e
    JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = e.step_no AND NOT w.undo
    WHERE r.run_id = $2 AND r.hook_of IS NULL AND _sas.may_see($1, r.owner)
      AND ($3 IS NULL OR w.name = $3) AND ($4 IS NULL OR e.state = $4)
      AND ($3 IS NULL OR $5 IS NULL OR e.element > $5)
    ORDER BY $3 IS NULL AND e.state = 'failed' DESC,
             $3 IS NULL AND e.state = ANY ('{running,suspended,compensating}') DESC,
             w.position, w.name, e.element
    LIMIT $6
$$;

-- _sas.elements(ns, n): n elements of a step as text: "[1], [2], [3] and 997 more".
CREATE FUNCTION _sas.elements(ns int[], n bigint) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE WHEN ns = '{}' THEN ''
        ELSE (SELECT string_agg('[' || e || ']', ', ' ORDER BY e) FROM unnest(ns[:3]) e)
             || CASE WHEN $2 > least(3, cardinality(ns))
                     THEN format(' and %s more', $2 - least(3, cardinality(ns))) ELSE '' END END;
END;

-- SPDX-License-Identifier: PostgreSQL
--
-- Open runs, as far as the current user sees them.

-- _sas.open_run_ids(): the runs that have not stopped and that the current user may see. Its condition uses
-- an index, whereas sas.runs WHERE state <> 'stopped' reads all runs that are kept.
CREATE FUNCTION _sas.open_run_ids() RETURNS SETOF bigint
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_verb';

-- _sas.open_run_ids_as(caller): the body of _sas.open_run_ids.
CREATE FUNCTION _sas.open_run_ids_as(caller oid) RETURNS SETOF bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT o.run_id FROM _sas.open_runs_of(_sas.owners_seen_by(caller)) o
$$;

-- _sas.open_groups(): the open runs that the current user may see, by version and state.
CREATE FUNCTION _sas.open_groups() RETURNS SETOF _sas.open_group
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_verb';

-- _sas.open_groups_as(caller): the body of _sas.open_groups.
CREATE FUNCTION _sas.open_groups_as(caller oid) RETURNS SETOF _sas.open_group
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT f.workflow_id, f.name, v.version, o.state, count(*),
           (array_agg(o.run_id ORDER BY o.state <> 'paused' AND o.deadline > n.now,
                      CASE o.state WHEN 'paused' THEN n.now - o.paused_at ELSE o.created_at - n.now END)
           )[:25]
    FROM _sas.open_runs_of(_sas.owners_seen_by(caller)) o
    JOIN (SELECT x.version_id, x.workflow_id, coalesce(x.of_version, x.version) AS version
          FROM _sas.workflow_version x) v USING (version_id)
    JOIN _sas.workflow f USING (workflow_id)
    CROSS JOIN (SELECT sas.now() AS now) n
    GROUP BY 1, 2, 3, 4
$$;

-- _sas.start_digest(run_id, later): a number that is the same for scheduled runs that wait for the same:
-- earlier runs, start_at (later), a paused workflow, concurrency keys.
CREATE FUNCTION _sas.start_digest(run_id bigint, later boolean) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT hash_record_extended(ROW(
        later, EXISTS (SELECT FROM _sas.deferred_run h WHERE h.run_id = $1),
        (SELECT string_agg(f.after_run::text, ',' ORDER BY f.after_run) FROM _sas.run_dependency f
         JOIN _sas.run o ON o.run_id = f.after_run WHERE f.run_id = $1 AND o.state <> 'stopped'),
        (SELECT string_agg(format('%s %s %s', f.state, f.told, f.key), ',' ORDER BY f.rule_no)
         FROM _sas.concurrency_slot f WHERE f.run_id = $1)), 0)
$$;

-- _sas.runs_alike(): the open runs that the current user may see, in groups whose steps wait for the same
-- things. run_ids: of each group fifty, those that are due first, then the oldest; runs: how many there are.
-- large: a run with a map of more than 200 elements, which is a group by itself.
CREATE FUNCTION _sas.runs_alike() RETURNS TABLE (run_ids bigint[], runs bigint, large boolean)
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_verb';

-- _sas.runs_alike_as(caller): the body of _sas.runs_alike. Runs are alike if all of which sas.steps makes a
-- reason is the same.
CREATE FUNCTION _sas.runs_alike_as(caller oid) RETURNS TABLE (run_ids bigint[], runs bigint, large boolean)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT (array_agg(x.run_id ORDER BY x.at, x.run_id))[:50], count(*), x.large
    FROM (SELECT o.run_id, m.large, CASE WHEN m.large THEN o.run_id END AS itself, r.version_id, r.owner,
                 r.state, r.abandon_as, r.paused_by, s.at, s.digest AS steps, q.digest AS ready,
                 CASE WHEN r.state = 'scheduled'
                 THEN _sas.start_digest(o.run_id, r.start_at > n.now) END AS starts
          FROM _sas.open_runs_of(_sas.owners_seen_by(caller)) o
          CROSS JOIN (SELECT sas.now() AS now OFFSET 0) n
          -- each by its key: OFFSET 0, or an aggregate
          CROSS JOIN LATERAL (SELECT x.* FROM _sas.run x WHERE x.run_id = o.run_id OFFSET 0) r
          CROSS JOIN LATERAL (SELECT count(*) > 0 AS large FROM _sas.map_progress f
                              WHERE f.run_id = o.run_id AND f.total > 200) m
          CROSS JOIN LATERAL (
              SELECT min(coalesce(t.waiting_until, t.complete_by)) AS at,
                     bit_xor(hash_record_extended(
                         ROW(t.step_no, t.element, t.state, t.waiting_kind, t.request_id IS NULL, t.in_doubt,
                             t.asks IS NULL, t.completion IS NULL,
                             t.state = 'skipped' AND t.error ->> 'type' = 'urn:sas:left-standing'),
                         0)) AS digest
              FROM _sas.step t WHERE t.run_id = o.run_id AND NOT m.large) s
          CROSS JOIN LATERAL (
              SELECT bit_xor(hash_record_extended(ROW(t.step_no, t.element, t.lane), 0)) AS digest
              FROM _sas.ready t WHERE t.run_id = o.run_id AND NOT m.large) q) x
    GROUP BY x.large, x.itself, x.version_id, x.owner, x.state, x.abandon_as, x.paused_by, x.steps, x.ready,
             x.starts
$$;

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
                      CASE o.state WHEN 'paused' THEN n.now - o.paused_at ELSE o.created_at - n.now END,
                      CASE o.state WHEN 'paused' THEN -o.run_id ELSE o.run_id END))[:25]
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
        (SELECT bit_xor(hashint8extended(f.after_run, 0)) FROM _sas.run_dependency f
         JOIN _sas.run o ON o.run_id = f.after_run WHERE f.run_id = $1 AND o.state <> 'stopped'),
        (SELECT bit_xor(hash_record_extended(ROW(f.rule_no, f.state, f.told, f.key), 0))
         FROM _sas.concurrency_slot f WHERE f.run_id = $1)), 0)
$$;

-- _sas.step_digest(run_id): a number that is the same for runs of one version whose steps wait for the same:
-- whatever sas.steps makes a reason of; and, for each row of a step, when it is due. One row, and yet a set:
-- only of such a function the planner puts the query into that of its caller.
CREATE FUNCTION _sas.step_digest(run_id bigint) RETURNS TABLE (digest bigint, due timestamptz[])
LANGUAGE sql STABLE AS $$
    SELECT hash_record_extended(ROW(s.digest, q.digest), 0), s.due || q.until
    FROM (SELECT bit_xor(hash_record_extended(ROW(
                     t.step_no, t.element, t.state, t.waiting_kind, t.request_id IS NULL, t.in_doubt,
                     t.asks IS NULL, t.completion IS NULL,
                     t.state = 'skipped' AND t.error ->> 'type' = 'urn:sas:left-standing',
                     t.request_id IS NOT NULL
                     AND EXISTS (SELECT FROM _sas.answer h
                                 WHERE h.run_id = t.run_id AND h.step_no = t.step_no
                                   AND h.element = t.element AND h.request_id = t.request_id)), 0))
                     AS digest,
                 array_agg(coalesce(t.waiting_until, t.complete_by)) AS due
          -- here, not in the aggregate: its index has this order
          FROM (SELECT x.* FROM _sas.step x WHERE x.run_id = $1 ORDER BY x.step_no, x.element) t) s
    CROSS JOIN (SELECT bit_xor(hash_record_extended(ROW(t.step_no, t.element, t.lane, k.until IS NULL), 0))
                           AS digest, min(k.until) AS until
                FROM _sas.ready t
                CROSS JOIN LATERAL (SELECT CASE WHEN t.lane < 0
                                           THEN (SELECT w.until FROM _sas.deferred_work w
                                                 WHERE w.id = t.run_id
                                                   AND w.kind = CASE t.lane WHEN _sas.late_lane() THEN 'claim'
                                                                ELSE 'queue' END) END AS until) k
                WHERE t.run_id = $1) q
$$;

-- _sas.runs_alike(): the open runs that the current user may see, in groups whose steps wait for the same
-- things. run_ids: of each group the fifty oldest, and for each of its steps the run where it is due first;
-- runs: how many there are. large: a run with a map of more than 200 elements, which is a group by itself.
CREATE FUNCTION _sas.runs_alike() RETURNS TABLE (run_ids bigint[], runs bigint, large boolean)
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_verb';

-- _sas.runs_alike_as(caller): the body of _sas.runs_alike.
CREATE FUNCTION _sas.runs_alike_as(caller oid) RETURNS TABLE (run_ids bigint[], runs bigint, large boolean)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    WITH run AS MATERIALIZED (
        SELECT o.run_id, m.large, d.due || CASE WHEN o.state = 'scheduled' THEN o.start_at END AS due,
               hash_record_extended(ROW(
                   CASE WHEN m.large THEN o.run_id END, o.version_id, o.owner, o.state, o.abandon_as,
                   o.paused_by, d.digest,
                   CASE WHEN o.state = 'scheduled'
                   THEN _sas.start_digest(o.run_id, o.start_at > n.now) END), 0) AS alike
        FROM _sas.open_runs_of(_sas.owners_seen_by(caller)) o
        CROSS JOIN (SELECT sas.now() AS now OFFSET 0) n
        CROSS JOIN LATERAL (SELECT EXISTS (SELECT FROM _sas.map_progress f
                                           WHERE f.run_id = o.run_id AND f.total > 200) AS large OFFSET 0) m
        -- null: the elements of a large run are not read here
        CROSS JOIN LATERAL _sas.step_digest(CASE WHEN NOT m.large THEN o.run_id END) d),
    first AS (SELECT r.alike, (array_agg(r.run_id ORDER BY r.run_id))[:50] AS run_ids, count(*) AS runs,
                     r.large
              FROM run r GROUP BY r.alike, r.large),
    due AS (SELECT DISTINCT ON (f.alike, u.n) f.alike, r.run_id
            FROM first f JOIN run r ON r.alike = f.alike
            CROSS JOIN LATERAL unnest(r.due) WITH ORDINALITY AS u (at, n)
            WHERE f.runs > 50 AND u.at IS NOT NULL
            ORDER BY f.alike, u.n, u.at, r.run_id)
    SELECT f.run_ids || d.run_ids, f.runs, f.large
    FROM first f
    LEFT JOIN (SELECT x.alike, array_agg(DISTINCT x.run_id) AS run_ids
               FROM due x JOIN first o ON o.alike = x.alike AND x.run_id <> ALL (o.run_ids) GROUP BY 1) d
        ON d.alike = f.alike
$$;

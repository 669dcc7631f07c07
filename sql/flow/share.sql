-- SPDX-License-Identifier: PostgreSQL
--
-- Shares of owners: submits and ends of runs count what each role has open; these functions count it again
-- from the tables.

-- _sas.open_runs(): the runs that have not ended. Each of them is too young for the sweep of deadlines, or
-- has a timer, or its deadline has passed and was handled, or it is stuck, which an alert says.
CREATE FUNCTION _sas.open_runs() RETURNS TABLE (run_id bigint, state text)
LANGUAGE sql STABLE AS $$
    SELECT r.run_id, r.state
    FROM (SELECT d.run_id FROM _sas.message d WHERE d.actor = 'v' AND d.kind IN ('deadline', 'young')
          UNION SELECT o.run_id FROM _sas.run o WHERE o.overdue
          UNION SELECT a.run_id FROM _sas.alert_run a
          -- the upper bound tells the planner that the range is small
          UNION SELECT y.run_id FROM _sas.run y
          WHERE y.run_id BETWEEN (SELECT coalesce(max(t.upto), 0)
                                  FROM _sas.deadline_sweep t) AND 9223372036854775807
              AND y.state <> 'stopped') x
    CROSS JOIN LATERAL (SELECT o.run_id, o.state, o.hook_of FROM _sas.run o
                        WHERE o.run_id = x.run_id OFFSET 0) r
    WHERE r.state <> 'stopped' AND r.hook_of IS NULL
$$;

-- _sas.many_are_open(): are so many runs open that a scan of all runs takes less time than a look-up of each
-- open one by its key? After a start the shares are not counted yet; then timers are counted.
CREATE FUNCTION _sas.many_are_open() RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    kept float8 := (SELECT greatest(c.reltuples, 0) FROM pg_class c WHERE c.oid = '_sas.run'::regclass);
    least_open float8 := greatest(20000, kept / 10);
BEGIN
    RETURN (SELECT coalesce(sum(s.open_runs), 0) FROM _sas.shares() s) > least_open
        OR kept > 0 AND _sas.shares_counted_ago() IS NULL AND least_open < (
            SELECT count(*) FROM (SELECT FROM _sas.message d
                                  WHERE d.actor = 'v' AND d.kind IN ('deadline', 'young')
                                  LIMIT least_open + 1) m);
END $$;

-- _sas.count_open_runs(): how many runs each role has open, how many of these are paused and how many are
-- child runs, and the bytes of their inputs.
CREATE FUNCTION _sas.count_open_runs(OUT owner oid, OUT runs bigint, OUT paused bigint, OUT children bigint,
                                     OUT bytes bigint) RETURNS SETOF record
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
    IF _sas.many_are_open() THEN
        RETURN QUERY
        SELECT r.owner::oid, count(*), count(*) FILTER (WHERE r.state = 'paused'), count(r.parent_run_id),
            sum(_sas.share_size(r.input))::bigint
        FROM _sas.run r WHERE r.state <> 'stopped' AND r.hook_of IS NULL GROUP BY 1;
    ELSE
        RETURN QUERY
        SELECT r.owner::oid, count(*), count(*) FILTER (WHERE o.state = 'paused'), count(r.parent_run_id),
            sum(_sas.share_size(r.input))::bigint
        FROM _sas.open_runs() o
        -- OFFSET 0: by the key. A join may walk all runs that are kept, once for each open one
        CROSS JOIN LATERAL (SELECT x.owner, x.parent_run_id, x.input FROM _sas.run x
                            WHERE x.run_id = o.run_id OFFSET 0) r
        GROUP BY 1;
    END IF;
END $$;

-- _sas.count_shares(): owner, runs, children, bytes and infinite tasks of each role that has something open,
-- one after the other. Stable, so that all of it is counted with one snapshot (_sas.recount_shares).
CREATE FUNCTION _sas.count_shares() RETURNS bigint[]
LANGUAGE sql STABLE AS $$
    SELECT coalesce(array_agg(ARRAY[coalesce(a.owner, b.owner)::bigint, coalesce(a.runs, 0),
                                    coalesce(a.children, 0), coalesce(a.bytes, 0), coalesce(b.watches, 0)]),
                    '{}')
    FROM _sas.count_open_runs() a
    FULL JOIN (SELECT w.owner::oid AS owner, count(*) AS watches FROM _sas.watch w
               WHERE w.state <> 'deleted' GROUP BY 1) b ON b.owner = a.owner
$$;

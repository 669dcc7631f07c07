-- SPDX-License-Identifier: PostgreSQL
--
-- Quotas: submits and ends of runs count what each role has open; these functions count it again
-- from the tables.

-- _sas.count_open_runs(): how many runs each role has open, how many of these are paused and how many are
-- child runs, and the bytes of their inputs.
CREATE FUNCTION _sas.count_open_runs(OUT owner oid, OUT runs bigint, OUT paused bigint, OUT children bigint,
                                     OUT bytes bigint) RETURNS SETOF record
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
    IF _sas.many_are_open(NULL) THEN
        RETURN QUERY
        SELECT r.owner::oid, count(*), count(*) FILTER (WHERE r.state = 'paused'), count(r.parent_run_id),
            sum(_sas.value_size(r.input))::bigint
        FROM _sas.run r WHERE r.state <> 'stopped' AND r.hook_of IS NULL GROUP BY 1;
    ELSE
        RETURN QUERY
        SELECT r.owner::oid, count(*), count(*) FILTER (WHERE o.state = 'paused'), count(r.parent_run_id),
            sum(_sas.value_size(r.input))::bigint
        FROM _sas.open_runs_of(NULL) o
        -- OFFSET 0: by the key. A join may walk all runs that are kept, once for each open one
        CROSS JOIN LATERAL (SELECT x.owner, x.parent_run_id, x.input FROM _sas.run x
                            WHERE x.run_id = o.run_id OFFSET 0) r
        GROUP BY 1;
    END IF;
END $$;

-- _sas.count_quotas(): owner, runs, children, bytes and infinite tasks of each role that has something open,
-- one after the other. Stable, so that all of it is counted with one snapshot (_sas.recount_quotas).
CREATE FUNCTION _sas.count_quotas() RETURNS bigint[]
LANGUAGE sql STABLE AS $$
    SELECT coalesce(array_agg(ARRAY[coalesce(a.owner, b.owner)::bigint, coalesce(a.runs, 0),
                                    coalesce(a.children, 0), coalesce(a.bytes, 0), coalesce(b.watches, 0)]),
                    '{}')
    FROM _sas.count_open_runs() a
    FULL JOIN (SELECT w.owner::oid AS owner, count(*) AS watches FROM _sas.watch w
               WHERE w.state <> 'deleted' GROUP BY 1) b ON b.owner = a.owner
$$;

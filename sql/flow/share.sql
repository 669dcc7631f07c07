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

-- _sas.part_of_recount(): so many runs that are kept, whether they are open or not, are in one part of a
-- recount: it takes about 30 ms.
CREATE FUNCTION _sas.part_of_recount() RETURNS int LANGUAGE sql IMMUTABLE AS $$ SELECT 20000 $$;

-- _sas.few_are_open(): are so few runs open, and so few without a timer yet, that one part can look up each?
CREATE FUNCTION _sas.few_are_open() RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    settled bigint := (SELECT coalesce(max(t.upto), 0) FROM _sas.deadline_sweep t);
BEGIN
    RETURN (SELECT coalesce(sum(s.open_runs), 0) <= 10000 FROM _sas.shares() s)
        AND NOT EXISTS (SELECT FROM _sas.message d WHERE d.actor = 'v' AND d.kind IN ('deadline', 'young')
                        OFFSET 10000)
        AND NOT EXISTS (SELECT FROM _sas.run r WHERE r.run_id BETWEEN settled AND 9223372036854775807
                        OFFSET _sas.part_of_recount());
END $$;

-- _sas.count_part(begun, first, before, is_first, few): how much each role has open of the runs from "first"
-- to "before", and, in the first part, of infinite tasks; nothing as long as the part has not begun.
-- Stable, so that all of it is counted with the snapshot of the query, as the part was begun.
CREATE FUNCTION _sas.count_part(begun boolean, first bigint, before bigint, is_first boolean, few boolean,
                                OUT owner oid, OUT counted bigint[]) RETURNS SETOF record
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF begun AND is_first THEN
        RETURN QUERY SELECT w.owner::oid, ARRAY[0, 0, 0, count(*)] FROM _sas.watch w
                     WHERE w.state <> 'deleted' GROUP BY 1;
    END IF;
    IF begun AND few THEN
        RETURN QUERY SELECT c.owner, ARRAY[c.runs, c.children, c.bytes, 0] FROM _sas.count_open_runs() c;
    ELSIF begun THEN
        RETURN QUERY
        SELECT r.owner::oid, ARRAY[count(*), count(r.parent_run_id), sum(_sas.share_size(r.input))::bigint, 0]
        FROM _sas.run r
        WHERE r.run_id >= $2 AND r.run_id < $3 AND r.state <> 'stopped' AND r.hook_of IS NULL GROUP BY 1;
    END IF;
END $$;

-- _sas.recount_part(): counts a part of what each role has open, and infinite tasks with the first part.
-- Returns whether there is more; null: there is no room in shared memory for a recount. Nobody waits for a
-- count of all, because it goes on with the next call. It begins after a start, because shared memory begins
-- empty, and from time to time, because neither the end of a prepared transaction nor a restored dump changes
-- the counts.
-- Caller: READ COMMITTED, so that the count has a later snapshot than its begin. Reads: run, watch.
CREATE FUNCTION _sas.recount_part() RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    counted_from bigint := _sas.recounted_from();
    before bigint := coalesce(counted_from, 9223372036854775807);
    few boolean := counted_from IS NULL AND _sas.few_are_open();
    first bigint;
    settled bigint;
    part record;
BEGIN
    first := _sas.first_behind(CASE WHEN NOT few THEN (
        SELECT r.run_id FROM _sas.run r WHERE r.run_id < before
        ORDER BY r.run_id DESC OFFSET _sas.part_of_recount() LIMIT 1) END);
    FOR n IN 1 .. 20 LOOP
        -- where a transaction commits at each moment, it is begun anyway, and may be wrong by a few
        settled := CASE WHEN n < 20 THEN _sas.settled_shares() END;
        SELECT b.begun, count(_sas.add_share(c.owner, c.counted)) AS owners INTO part
        FROM (SELECT _sas.begin_part(counted_from IS NULL, first, settled) AS begun OFFSET 0) b
        LEFT JOIN LATERAL _sas.count_part(b.begun, coalesce(first, 0), before, counted_from IS NULL, few) c
        ON true GROUP BY 1;
        EXIT WHEN part.begun;
    END LOOP;
    RETURN CASE WHEN _sas.end_part(first IS NULL) THEN first IS NOT NULL END;
END $$;

-- _sas.recount_shares(): all parts, from the first one on. Returns how many roles have something open.
CREATE FUNCTION _sas.recount_shares() RETURNS bigint
LANGUAGE plpgsql AS $$
BEGIN
    -- what is left of another recount is dropped
    PERFORM _sas.begin_part(true, NULL, NULL);
    WHILE _sas.recount_part() LOOP
        NULL;
    END LOOP;
    RETURN (SELECT count(*) FROM _sas.shares() s WHERE s.open_runs > 0 OR s.watches > 0);
END $$;

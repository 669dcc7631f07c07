-- SPDX-License-Identifier: PostgreSQL
--
-- Open runs: which runs have not ended. No index holds them, because their state changes, and most runs that
-- are kept have ended.

-- _sas.many_are_open(owners): have these roles, null: all, so many open runs that a scan of all runs takes
-- less time than a look-up of each open one by its key? After a start the quotas are not counted yet; then
-- timers are counted.
CREATE FUNCTION _sas.many_are_open(owners oid[]) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    kept float8 := (SELECT greatest(c.reltuples, 0) FROM pg_class c WHERE c.oid = '_sas.run'::regclass);
    least_open float8 := greatest(20000, kept / 10);
BEGIN
    RETURN (SELECT coalesce(sum(s.open_runs), 0) FROM _sas.quotas() s
            WHERE owners IS NULL OR s.owner = ANY (owners)) > least_open
        OR kept > 0 AND _sas.quotas_counted_ago() IS NULL AND least_open < (
            SELECT count(*) FROM (SELECT FROM _sas.message d
                                  WHERE d.actor = 'v' AND d.kind IN ('deadline', 'young')
                                      AND (owners IS NULL OR d.owner = ANY (owners))
                                  LIMIT least_open + 1) m);
END $$;

-- What the functions below return of a run, hook runs included.
CREATE VIEW _sas.open_run AS
SELECT r.run_id, r.state, r.version_id, r.queue_id, r.hook_of, r.owner::oid AS owner, r.created_at,
       r.start_at, r.deadline, r.paused_at, r.paused_by, r.abandon_as
FROM _sas.run r WHERE r.state <> 'stopped';
COMMENT ON VIEW _sas.open_run IS 'Runs that have not ended';

-- _sas.not_ended(): the runs that have not ended. Each of them is too young for the sweep of deadlines, or
-- has a timer, or its deadline has passed and was handled, or it is stuck, which an alert says.
CREATE FUNCTION _sas.not_ended() RETURNS SETOF _sas.open_run
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF _sas.many_are_open(NULL) THEN
        RETURN QUERY SELECT r.* FROM _sas.open_run r;
        RETURN;
    END IF;
    RETURN QUERY
    SELECT r.*
    FROM (SELECT d.run_id FROM _sas.message d WHERE d.actor = 'v' AND d.kind IN ('deadline', 'young')
          UNION SELECT o.run_id FROM _sas.run o WHERE o.overdue
          UNION SELECT a.run_id FROM _sas.alert_run a
          -- the upper bound tells the planner that the range is small
          UNION SELECT y.run_id FROM _sas.run y
          WHERE y.run_id BETWEEN (SELECT coalesce(max(t.upto), 0)
                                  FROM _sas.deadline_sweep t) AND 9223372036854775807
              AND y.state <> 'stopped') x
    CROSS JOIN LATERAL (SELECT o.* FROM _sas.open_run o WHERE o.run_id = x.run_id OFFSET 0) r;
END $$;

-- _sas.open_runs_of(owners): those of these roles, without hook runs; null: of all. Whoever sees only some
-- of the runs does not wait for what others have open: their messages are not read, and of their runs only
-- the newest and those whose deadline has passed. The planner has to know the roles: without them it expects
-- that most messages are theirs, and reads all.
CREATE FUNCTION _sas.open_runs_of(owners oid[]) RETURNS SETOF _sas.open_run
LANGUAGE plpgsql STABLE SET plan_cache_mode = force_custom_plan AS $$
BEGIN
    IF owners IS NULL THEN
        RETURN QUERY SELECT n.* FROM _sas.not_ended() n WHERE n.hook_of IS NULL;
        RETURN;
    END IF;
    IF _sas.many_are_open(owners) THEN
        RETURN QUERY SELECT r.* FROM _sas.open_run r WHERE r.hook_of IS NULL AND r.owner = ANY (owners);
        RETURN;
    END IF;
    RETURN QUERY
    SELECT r.*
    FROM (SELECT d.run_id FROM _sas.message d
          WHERE d.actor = 'v' AND d.owner = ANY (owners) AND d.kind IN ('deadline', 'young')
          UNION SELECT o.run_id FROM _sas.run o WHERE o.overdue AND o.owner = ANY (owners)
          UNION SELECT a.run_id FROM _sas.alert l
          CROSS JOIN LATERAL (SELECT x.run_id FROM _sas.alert_run x WHERE x.alert_id = l.alert_id OFFSET 0) a
          WHERE l.closed_at IS NULL AND (l.owner IS NULL OR l.owner = ANY (owners))
          UNION SELECT y.run_id FROM _sas.run y
          WHERE y.run_id BETWEEN (SELECT coalesce(max(t.upto), 0)
                                  FROM _sas.deadline_sweep t) AND 9223372036854775807
              AND y.owner = ANY (owners) AND y.state <> 'stopped') x
    CROSS JOIN LATERAL (SELECT o.* FROM _sas.open_run o WHERE o.run_id = x.run_id OFFSET 0) r
    WHERE r.hook_of IS NULL AND r.owner = ANY (owners);
END $$;

-- _sas.open_versions(): the versions of runs that have not ended, with the queues of these runs.
CREATE FUNCTION _sas.open_versions() RETURNS TABLE (version_id int, queue_id int, is_hook boolean)
LANGUAGE sql STABLE AS $$
    SELECT DISTINCT n.version_id, n.queue_id, n.hook_of IS NOT NULL FROM _sas.not_ended() n
$$;

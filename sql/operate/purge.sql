-- SPDX-License-Identifier: PostgreSQL
--
-- Housekeeping: runs whose time is over go, with all that belongs to them, and
-- their keys are free. sas.ended says what is to go next: nothing that has not
-- come to its time is looked at, and sas.run needs no index for it. Infinite
-- tasks that were deleted go in the same way: sas.watch_ended.

-- sas._families(run_ids): these runs with their children, and theirs, and the hooks of all of them.
CREATE FUNCTION sas._families(run_ids bigint[]) RETURNS TABLE (root bigint, run_id bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH RECURSIVE f AS (
        SELECT u AS root, u AS run_id FROM unnest($1) u
        UNION ALL
        SELECT f.root, b.run_id
        FROM f CROSS JOIN LATERAL (SELECT c.run_id FROM sas.run c WHERE c.parent_run_id = f.run_id
                                   UNION ALL SELECT h.run_id FROM sas.run h WHERE h.hook_of = f.run_id OFFSET 0) b)
    SELECT f.root, f.run_id FROM f;
END $$;

-- sas._purge_runs(run_ids): takes away these runs, which have stopped, with their families. Those of which something is
-- open, is held by a session, or is waited for by a run that has not begun, stay. Their versions are looked at later.
CREATE FUNCTION sas._purge_runs(run_ids bigint[], OUT runs bigint, OUT steps bigint, OUT attempts bigint, OUT stays bigint[])
LANGUAGE plpgsql AS $$
DECLARE
    roots bigint[];
    members bigint[];
    locked bigint[];
    ids bigint[];
BEGIN
    SELECT array_agg(f.root), array_agg(f.run_id) INTO roots, members FROM sas._families($1) f;
    locked := ARRAY(SELECT l.run_id FROM (SELECT r.run_id FROM sas.run r WHERE r.run_id = ANY (members) AND r.state = 'stopped'
                                          ORDER BY r.run_id FOR UPDATE SKIP LOCKED) l);
    SELECT coalesce(array_agg(DISTINCT u.root), '{}') INTO stays
    FROM unnest(roots, members) AS u (root, run_id)
    -- unnest: an array that is a parameter is searched from its beginning for each row
    WHERE u.run_id NOT IN (SELECT unnest(locked))
       OR (SELECT true FROM sas.run_after a JOIN sas.run w ON w.run_id = a.run_id WHERE a.after_run = u.run_id AND w.started_at IS NULL AND w.state <> 'stopped' LIMIT 1);
    ids := ARRAY(SELECT u.run_id FROM unnest(roots, members) AS u (root, run_id) WHERE u.root NOT IN (SELECT unnest(stays)));
    runs := cardinality(ids);

    DELETE FROM sas.run_key k USING sas.run r, sas.workflow_version v
    WHERE r.run_id = ANY (ids) AND r.key IS NOT NULL AND v.version_id = r.version_id
      AND k.owner = r.owner AND k.workflow_id = v.workflow_id AND k.key = r.key AND k.run_id = r.run_id;
    DELETE FROM sas.attempt d WHERE d.run_id = ANY (ids);
    GET DIAGNOSTICS attempts = ROW_COUNT;
    DELETE FROM sas.step d WHERE d.run_id = ANY (ids);
    GET DIAGNOSTICS steps = ROW_COUNT;
    DELETE FROM sas.item d WHERE d.run_id = ANY (ids);
    DELETE FROM sas.fan d WHERE d.run_id = ANY (ids);
    DELETE FROM sas.signal d WHERE d.run_id = ANY (ids);
    DELETE FROM sas.stage d WHERE d.run_id = ANY (ids);
    DELETE FROM sas.edit d WHERE d.run_id = ANY (ids);
    DELETE FROM sas.undo_line d WHERE d.run_id = ANY (ids);
    DELETE FROM sas.task d WHERE d.run_id = ANY (ids);
    DELETE FROM sas.act d WHERE d.run_id = ANY (ids);
    DELETE FROM sas.alert d WHERE d.run_id = ANY (ids);
    DELETE FROM sas.reply d WHERE d.run_id = ANY (ids);
    DELETE FROM sas.run_after d WHERE d.run_id = ANY (ids);
    DELETE FROM sas.held_run d WHERE d.run_id = ANY (ids);
    WITH gone AS (DELETE FROM sas.run d WHERE d.run_id = ANY (ids) RETURNING d.version_id, d.own_version)
    INSERT INTO sas.idle_version SELECT DISTINCT g.version_id FROM gone g WHERE g.own_version;
    PERFORM sas._count('purged', 0, 0, '', runs);
END $$;

-- sas._purge_versions(version_ids): of these versions that nobody has written, those that no run has and no submit will
-- get go, with those of their hooks. Who submits holds its version, see sas._submit_runs; not for a session.
CREATE FUNCTION sas._purge_versions(version_ids int[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    locked int[] := ARRAY(SELECT l.version_id FROM (SELECT v.version_id FROM sas.workflow_version v
                                                    WHERE v.version_id = ANY ($1) AND v.of_version IS NOT NULL FOR UPDATE SKIP LOCKED) l);
    gone int[];
BEGIN
    gone := ARRAY(SELECT u FROM unnest(locked) u
                  WHERE NOT EXISTS (SELECT FROM sas.run r WHERE r.own_version AND r.version_id = u)
                    AND NOT EXISTS (SELECT FROM sas.composition c WHERE c.version_id = u AND c.current)
                    AND NOT EXISTS (SELECT FROM sas.workflow_hook h WHERE h.hook_version_id = u));
    DELETE FROM sas.workflow_version v USING sas.workflow_hook h WHERE h.version_id = ANY (gone) AND v.version_id = h.hook_version_id;
    DELETE FROM sas.workflow_version v WHERE v.version_id = ANY (gone);
END $$;

-- sas._purge_ended(result, before, quantity, for_workflow): purges about so many runs that ended with this result until
-- before, the oldest first; of one workflow only, or of all. Those that stay are tried again ten minutes later.
CREATE FUNCTION sas._purge_ended(of_result text, before timestamptz, quantity int, for_workflow int,
                                 OUT runs bigint, OUT steps bigint, OUT attempts bigint)
LANGUAGE plpgsql AS $$
DECLARE
    rows tid[];
    taken bigint[];
    ripe bigint[];
    done record;
BEGIN
    runs := 0;
    steps := 0;
    attempts := 0;
    WITH found AS (
        SELECT e.ctid AS at, e.ended_at, e.run_ids FROM sas.ended e
        WHERE e.result = of_result AND e.ended_at <= before
          AND (for_workflow IS NULL OR EXISTS (SELECT FROM unnest(e.run_ids) u JOIN sas.run r ON r.run_id = u JOIN sas.workflow_version v USING (version_id)
                                               WHERE v.workflow_id = for_workflow))
        ORDER BY e.ended_at LIMIT quantity FOR UPDATE SKIP LOCKED)
    SELECT array_agg(f.at) INTO rows
    FROM (SELECT x.at, sum(cardinality(x.run_ids)) OVER (ORDER BY x.ended_at, x.at) - cardinality(x.run_ids) AS n FROM found x) f WHERE f.n < quantity;
    IF rows IS NULL THEN
        RETURN;
    END IF;
    WITH gone AS (DELETE FROM sas.ended e WHERE e.ctid = ANY (rows) RETURNING e.run_ids)
    SELECT array_agg(u) INTO taken FROM gone g CROSS JOIN LATERAL unnest(g.run_ids) u;
    -- one that was taken up again since, and has ended once more, has another row
    ripe := ARRAY(SELECT r.run_id FROM sas.run r JOIN sas.workflow_version v USING (version_id)
                  WHERE r.run_id = ANY (taken) AND r.state = 'stopped' AND r.finished_at <= before AND (for_workflow IS NULL OR v.workflow_id = for_workflow));
    done := sas._purge_runs(ripe);
    runs := done.runs;
    steps := done.steps;
    attempts := done.attempts;
    INSERT INTO sas.ended (result, ended_at, run_ids)
    SELECT of_result, before + interval '10 min', done.stays WHERE cardinality(done.stays) > 0;
    -- those of other workflows keep their time
    INSERT INTO sas.ended (result, ended_at, run_ids)
    SELECT of_result, r.finished_at, array_agg(r.run_id)
    FROM sas.run r WHERE for_workflow IS NOT NULL AND r.run_id = ANY (taken) AND r.run_id NOT IN (SELECT unnest(ripe)) AND r.state = 'stopped'
    GROUP BY r.finished_at;
END $$;

-- sas._keep_house(quantity): for the leading supervisor: purges one batch of what is over the time of its setting.
-- Returns how much there was, and when the next will be due; null: never. What cannot be purged is
-- put off by an hour, with an alert.
CREATE FUNCTION sas._keep_house(quantity int, OUT worked int, OUT next_due timestamptz)
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas._now();
    of_result text;
    keep interval;
    n int;
    versions int[];
BEGIN
    worked := 0;
    FOREACH of_result IN ARRAY '{success,warning,error,compensated,cancelled}'::text[] LOOP
        keep := sas._retain(of_result);
        CONTINUE WHEN keep IS NULL OR worked >= quantity;
        CONTINUE WHEN NOT EXISTS (SELECT FROM sas.ended e WHERE e.result = of_result AND e.ended_at <= now - keep);
        BEGIN
            n := (sas._purge_ended(of_result, now - keep, quantity - worked, NULL)).runs;
            worked := worked + greatest(n, 1);
        EXCEPTION WHEN OTHERS THEN
            UPDATE sas.ended e SET ended_at = now - keep + interval '1 h'
            WHERE e.ctid = ANY (ARRAY(SELECT x.ctid FROM sas.ended x WHERE x.result = of_result AND x.ended_at <= now - keep
                                      ORDER BY x.ended_at LIMIT quantity FOR UPDATE SKIP LOCKED));
            PERFORM sas._alert('purge-failed', 'purge', format('old runs cannot be purged: %s', SQLERRM));
        END;
    END LOOP;
    WITH idle AS (
        DELETE FROM sas.idle_version d
        WHERE d.ctid = ANY (ARRAY(SELECT i.ctid FROM sas.idle_version i LIMIT quantity FOR UPDATE SKIP LOCKED)) RETURNING d.version_id)
    SELECT array_agg(DISTINCT i.version_id) INTO versions FROM idle i;
    PERFORM sas._purge_versions(versions) WHERE versions IS NOT NULL;
    DELETE FROM sas.alert l
    WHERE l.alert_id = ANY (ARRAY(SELECT x.alert_id FROM sas.alert x WHERE x.closed_at <= now - sas._retain('error') AND x.run_id IS NULL
                                  ORDER BY x.closed_at LIMIT quantity FOR UPDATE SKIP LOCKED));
    SELECT p.worked + _keep_house.worked, least(p.next_due, sas._next_purge()) INTO worked, next_due FROM sas._purge_watches(quantity) p;
END $$;

-- sas._next_purge(): when the next run's time is over; null: never.
CREATE FUNCTION sas._next_purge() RETURNS timestamptz
LANGUAGE sql STABLE AS $$
    SELECT min(e.ended_at + sas._retain(k.result))
    FROM unnest('{success,warning,error,compensated,cancelled}'::text[]) AS k (result)
    CROSS JOIN LATERAL (SELECT x.ended_at FROM sas.ended x WHERE x.result = k.result ORDER BY x.ended_at LIMIT 1) e
$$;

-- sas._purge(caller, older_than, results, workflow, quantity): what an operator wants gone before its time.
CREATE FUNCTION sas._purge(caller oid, older_than interval, results text[], workflow text, quantity int)
RETURNS TABLE (runs bigint, steps bigint, attempts bigint, more boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, sas, pg_temp
    SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
#variable_conflict use_variable
DECLARE
    all_results text[] := '{success,warning,error,compensated,cancelled}';
    before timestamptz := sas._now() - older_than;
    flow int;
    of_result text;
    done record;
BEGIN
    IF older_than IS NULL OR older_than < '0' THEN
        RAISE EXCEPTION 'older_than must not be negative' USING ERRCODE = 'invalid_parameter_value', DETAIL = 'The place is "/older_than".', HINT = 'It is how long ago a run ended, such as ''30 days''.';
    ELSIF NOT coalesce(results <@ all_results AND cardinality(results) > 0, results IS NULL) THEN
        RAISE EXCEPTION 'results must name results' USING ERRCODE = 'invalid_parameter_value', DETAIL = 'The place is "/results".', HINT = 'Name some of success, warning, error, compensated and cancelled, or leave it out for all.';
    ELSIF quantity IS NULL OR quantity NOT BETWEEN 1 AND 100000 THEN
        RAISE EXCEPTION 'the quantity must be from 1 to 100000' USING ERRCODE = 'invalid_parameter_value', DETAIL = 'The place is "/quantity".', HINT = 'Call it again while it says that there are more.';
    END IF;
    IF workflow IS NOT NULL THEN
        -- a dropped one has runs, too
        SELECT w.workflow_id INTO flow FROM sas.workflow w WHERE w.name = workflow ORDER BY w.dropped_at DESC NULLS FIRST LIMIT 1;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'workflow "%" does not exist', workflow USING ERRCODE = 'undefined_object', DETAIL = 'The place is "/workflow".', HINT = 'Leave it out for all workflows.';
        END IF;
    END IF;
    runs := 0;
    steps := 0;
    attempts := 0;
    FOREACH of_result IN ARRAY coalesce(results, all_results) LOOP
        CONTINUE WHEN runs >= quantity;
        done := sas._purge_ended(of_result, before, (quantity - runs)::int, flow);
        runs := runs + done.runs;
        steps := steps + done.steps;
        attempts := attempts + done.attempts;
    END LOOP;
    more := runs >= quantity;
    RETURN NEXT;
END $$;

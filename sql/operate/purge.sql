-- SPDX-License-Identifier: PostgreSQL
--
-- Purge: deletes runs whose retention time is over, with everything that belongs to them; their keys are
-- free again. _sas.finished_run gives the order, so only runs that are due are read, and _sas.run needs no
-- index for that. Infinite tasks that were deleted are purged in the same way: _sas.watch_ended.

-- _sas.purge_runs(run_ids, by_hand): deletes these stopped runs with their families. A run stays if something
-- in its family is open, or locked by a session, or if a run that has not begun waits for it. Their versions
-- are checked later. by_hand: what other roles than the owner have done to a run stays in the history, so
-- that nobody hides an act by a purge; and all rows are deleted at once, not by the workers some at a time.
-- Writes: all tables of runs; idle_version.
CREATE FUNCTION _sas.purge_runs(run_ids bigint[], by_hand boolean, OUT runs bigint, OUT steps bigint,
                                OUT attempts bigint, OUT stays bigint[])
LANGUAGE plpgsql AS $$
DECLARE
    roots bigint[];
    members bigint[];
    locked bigint[];
    ids bigint[];
BEGIN
    SELECT array_agg(f.root), array_agg(f.run_id) INTO roots, members FROM _sas.families($1) f;
    locked := ARRAY(SELECT l.run_id FROM (SELECT r.run_id FROM _sas.run r
                                          WHERE r.run_id = ANY (members) AND r.state = 'stopped'
                                          ORDER BY r.run_id FOR UPDATE SKIP LOCKED) l);
    SELECT coalesce(array_agg(DISTINCT u.root), '{}') INTO stays
    FROM unnest(roots, members) AS u (root, run_id)
    -- unnest: an array parameter would be searched from its beginning for each row
    WHERE u.run_id NOT IN (SELECT unnest(locked)) OR EXISTS (SELECT FROM _sas.awaiting(u.run_id));
    ids := ARRAY(SELECT u.run_id FROM unnest(roots, members) AS u (root, run_id)
                 WHERE u.root NOT IN (SELECT unnest(stays)));
    runs := cardinality(ids);
    SELECT d.steps, d.attempts INTO steps, attempts FROM _sas.delete_runs(ids, by_hand) d;
END $$;

-- _sas.purge_large(id): begins to delete this stopped run, whose family is so large that its child runs are
-- left to _sas.purge_rest. It stays in the same cases as in _sas.purge_runs, but only the first 100,000 of
-- its family are checked, and they are not locked: one that is open, or locked, when its turn comes, is
-- deleted later. Returns as _sas.purge_runs.
-- Writes: as _sas.delete_runs; purged_run.
CREATE FUNCTION _sas.purge_large(id bigint, OUT runs bigint, OUT steps bigint, OUT attempts bigint)
LANGUAGE plpgsql AS $$
DECLARE
    stopped boolean := (SELECT r.state = 'stopped' FROM _sas.run r
                        WHERE r.run_id = id FOR UPDATE SKIP LOCKED);
BEGIN
    runs := 0;
    steps := 0;
    attempts := 0;
    IF stopped AND NOT EXISTS (SELECT FROM _sas.families(ARRAY[id], 20 * _sas.purged_family()) f
                               CROSS JOIN LATERAL (SELECT x.state FROM _sas.run x
                                                   WHERE x.run_id = f.run_id OFFSET 0) r
                               WHERE r.state <> 'stopped'
                                  OR EXISTS (SELECT FROM _sas.awaiting(f.run_id))) THEN
        PERFORM _sas.leave_children(ARRAY[id]);
        runs := 1;
        SELECT d.steps, d.attempts INTO steps, attempts FROM _sas.delete_runs(ARRAY[id], false) d;
    END IF;
END $$;

-- _sas.delete_runs(ids, by_hand): deletes these stopped runs with everything that belongs to them.
-- by_hand: as for _sas.purge_runs.
--   holds   the locks of the runs
--   writes  all tables of runs; idle_version
CREATE FUNCTION _sas.delete_runs(ids bigint[], by_hand boolean, OUT steps bigint, OUT attempts bigint)
LANGUAGE plpgsql AS $$
BEGIN
    -- OFFSET 0: the whole key of a row is known before the row is looked up
    DELETE FROM _sas.run_key k
    USING (SELECT r.owner, v.workflow_id, r.key, r.run_id
           FROM _sas.run r JOIN _sas.workflow_version v ON v.version_id = r.version_id
           WHERE r.run_id = ANY (ids) AND r.key IS NOT NULL OFFSET 0) r
    WHERE k.owner = r.owner AND k.workflow_id = r.workflow_id AND k.key = r.key AND k.run_id = r.run_id;
    DELETE FROM _sas.run_label d
    USING (SELECT _sas.label_hash(e.key, e.value) AS label, r.owner, r.run_id
           FROM _sas.run r CROSS JOIN jsonb_each(r.labels) e WHERE r.run_id = ANY (ids) OFFSET 0) l
    WHERE d.label = l.label AND d.owner = l.owner AND d.run_id = l.run_id;
    SELECT p.steps, p.attempts INTO steps, attempts
    FROM _sas.purge_steps(CASE WHEN by_hand THEN ids ELSE _sas.purge_later(ids) END) p;
    DELETE FROM _sas.map_list d WHERE d.run_id = ANY (ids);
    DELETE FROM _sas.map_progress d WHERE d.run_id = ANY (ids);
    DELETE FROM _sas.signal d WHERE d.run_id = ANY (ids);
    DELETE FROM _sas.phase d WHERE d.run_id = ANY (ids);
    DELETE FROM _sas.answer d WHERE d.run_id = ANY (ids);
    DELETE FROM _sas.override d WHERE d.run_id = ANY (ids);
    DELETE FROM _sas.undo_order d WHERE d.run_id = ANY (ids);
    DELETE FROM _sas.abandoned_run d WHERE d.run_id = ANY (ids);
    DELETE FROM _sas.task d WHERE d.run_id = ANY (ids);
    UPDATE _sas.operator_action d
    SET run_id = NULL,
        detail = coalesce(d.detail, '{}') - '{input,output}'::text[] || jsonb_build_object('run_id', d.run_id)
    FROM _sas.run r
    WHERE by_hand AND d.run_id = ANY (ids) AND r.run_id = d.run_id AND d.role <> pg_get_userbyid(r.owner);
    DELETE FROM _sas.operator_action d WHERE d.run_id = ANY (ids);
    DELETE FROM _sas.alert_run d WHERE d.run_id = ANY (ids);
    DELETE FROM _sas.alert d
    WHERE d.alert_id = ANY (ARRAY(SELECT x.alert_id FROM _sas.alert x WHERE x.run_id = ANY (ids)
                                  AND x.closed_at IS NOT NULL FOR UPDATE SKIP LOCKED));
    DELETE FROM _sas.reply d WHERE d.run_id = ANY (ids);
    DELETE FROM _sas.run_dependency d WHERE d.run_id = ANY (ids);
    DELETE FROM _sas.deferred_run d WHERE d.run_id = ANY (ids);
    WITH gone AS (DELETE FROM _sas.run d WHERE d.run_id = ANY (ids) RETURNING d.version_id, d.own_version)
    INSERT INTO _sas.idle_version SELECT DISTINCT g.version_id FROM gone g WHERE g.own_version;
    PERFORM _sas.count_metric('purged', 0, 0, '', cardinality(ids));
END $$;

-- _sas.purge_versions(version_ids): deletes those of these generated versions that no run has and no submit
-- will get, with those of their hooks. A submit locks its version, see _sas.submit_runs. Only the
-- supervisor may call this.
-- Writes: workflow_version.
CREATE FUNCTION _sas.purge_versions(version_ids int[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    locked int[] := ARRAY(SELECT l.version_id FROM (SELECT v.version_id FROM _sas.workflow_version v
                                                    WHERE v.version_id = ANY ($1)
                                        AND v.of_version IS NOT NULL FOR UPDATE SKIP LOCKED) l);
    gone int[];
BEGIN
    gone := ARRAY(SELECT u FROM unnest(locked) u
                  WHERE NOT EXISTS (SELECT FROM _sas.run r WHERE r.own_version AND r.version_id = u)
                    AND NOT EXISTS (SELECT FROM _sas.composition c WHERE c.version_id = u AND c.current)
                    AND NOT EXISTS (SELECT FROM _sas.workflow_hook h WHERE h.hook_version_id = u));
    DELETE FROM _sas.workflow_version v USING _sas.workflow_hook h WHERE h.version_id = ANY (gone)
        AND v.version_id = h.hook_version_id;
    DELETE FROM _sas.workflow_version v WHERE v.version_id = ANY (gone);
END $$;

-- _sas.keep_runs(of_result, run_ids): these runs, which ended with this result, keep their retention time.
-- Writes: finished_run.
CREATE FUNCTION _sas.keep_runs(of_result text, run_ids bigint[]) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO _sas.finished_run (result, ended_at, run_ids)
    SELECT of_result, r.finished_at, array_agg(r.run_id)
    FROM _sas.run r WHERE r.run_id = ANY (run_ids) AND r.state = 'stopped'
    GROUP BY r.finished_at
$$;

-- _sas.purge_ended(of_result, before, quantity, for_workflow, by_hand): purges about quantity runs that
-- ended with this result until "before", the oldest first; of one workflow, or of all. Runs that stay are
-- tried again ten minutes later, runs that cannot be purged after an hour, with an alert. A worker purges no
-- more runs at once than _sas.fit_families says.
-- Writes: finished_run.
CREATE FUNCTION _sas.purge_ended(of_result text, before timestamptz, quantity int, for_workflow int,
                                 by_hand boolean, OUT runs bigint, OUT steps bigint, OUT attempts bigint)
LANGUAGE plpgsql AS $$
DECLARE
    rows tid[];
    taken bigint[];
    ripe bigint[];
    part record;
    large boolean := false;
    done record;
BEGIN
    runs := 0;
    steps := 0;
    attempts := 0;
    WITH found AS (
        SELECT e.ctid AS at, e.ended_at, e.run_ids FROM _sas.finished_run e
        WHERE e.result = of_result AND e.ended_at <= before
          AND (for_workflow IS NULL OR EXISTS (SELECT FROM unnest(e.run_ids) u
                                               JOIN _sas.run r ON r.run_id = u JOIN _sas.workflow_version v
                                               USING (version_id)
                                               WHERE v.workflow_id = for_workflow))
        ORDER BY e.ended_at LIMIT quantity FOR UPDATE SKIP LOCKED)
    SELECT array_agg(f.at) INTO rows
    FROM (SELECT x.at, sum(cardinality(x.run_ids)) OVER (
                                                         ORDER BY x.ended_at,
                                                         x.at) - cardinality(x.run_ids) AS n FROM found x) f
    WHERE f.n < quantity;
    IF rows IS NULL THEN
        RETURN;
    END IF;
    WITH gone AS (DELETE FROM _sas.finished_run e WHERE e.ctid = ANY (rows) RETURNING e.run_ids)
    SELECT array_agg(u) INTO taken FROM gone g CROSS JOIN LATERAL unnest(g.run_ids) u;
    -- a run that was continued since, and has ended again, has another row
    ripe := ARRAY(SELECT r.run_id FROM _sas.run r JOIN _sas.workflow_version v USING (version_id)
                  WHERE r.run_id = ANY (taken) AND r.state = 'stopped' AND r.finished_at <= before
                      AND (for_workflow IS NULL OR v.workflow_id = for_workflow)
                  ORDER BY r.finished_at, r.run_id);
    -- runs of other workflows
    PERFORM _sas.keep_runs(of_result, ARRAY(SELECT unnest(taken) EXCEPT SELECT unnest(ripe)))
    WHERE for_workflow IS NOT NULL;
    IF NOT by_hand THEN
        part := _sas.fit_families(ripe);
        PERFORM _sas.keep_runs(of_result, part.later);
        ripe := CASE WHEN part.large IS NULL THEN part.fit ELSE ARRAY[part.large] END;
        large := part.large IS NOT NULL;
    END IF;
    done := _sas.apart('ARRAY[p.runs, p.steps, p.attempts] FROM ' || CASE WHEN large
        THEN '_sas.purge_large($1[1]) p' ELSE format('_sas.purge_runs($1, %L) p', by_hand) END, ripe);
    SELECT coalesce(sum(u.n) FILTER (WHERE u.at % 3 = 1), 0),
           coalesce(sum(u.n) FILTER (WHERE u.at % 3 = 2), 0),
           coalesce(sum(u.n) FILTER (WHERE u.at % 3 = 0), 0)
    INTO runs, steps, attempts FROM unnest(done.results) WITH ORDINALITY AS u (n, at);
    PERFORM _sas.raise_failing('purge-failed', 'purge', format('could not purge old runs: run %s',
                                                               ripe[done.failed[1]]), done.errors[1])
    WHERE done.failed IS NOT NULL;
    INSERT INTO _sas.finished_run (result, ended_at, run_ids)
    SELECT of_result, before + CASE WHEN u.n = ANY (done.failed) THEN interval '1 h' ELSE '10 min' END,
           array_agg(u.run_id)
    FROM unnest(ripe) WITH ORDINALITY AS u (run_id, n) JOIN _sas.run r ON r.run_id = u.run_id
    GROUP BY u.n = ANY (done.failed);
END $$;

-- _sas.forget_secrets(): deletes former values of secrets when no run is open that began before the change,
-- after a day at the earliest. Returns when to check again; null: there are none.
-- Writes: former_secret.
CREATE FUNCTION _sas.forget_secrets() RETURNS timestamptz
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas.now();
    due timestamptz;
BEGIN
    due := (SELECT min(f.changed_at) + interval '1 day' FROM _sas.former_secret f);
    IF due <= now THEN
        DELETE FROM _sas.former_secret f
        WHERE f.changed_at < least(now - interval '1 day',
                                   (SELECT min(o.created_at) FROM _sas.open_runs_of(NULL) o));
        due := (SELECT greatest(min(f.changed_at) + interval '1 day', now + interval '1 hour')
                FROM _sas.former_secret f);
    END IF;
    RETURN due;
END $$;

-- _sas.purge_tick(quantity): the purge of the leading supervisor: deletes one batch of what is past the
-- retention time of its setting. Returns how much there was, and when the next will be due; null: never.
-- Writes: idle_version, alert.
CREATE FUNCTION _sas.purge_tick(quantity int, OUT worked int, OUT next_due timestamptz)
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas.now();
    of_result text;
    keep interval;
    n int;
    versions int[];
BEGIN
    -- what is left of the last runs comes before further ones
    worked := coalesce(_sas.part('delete what old runs have left',
                                 format('_sas.purge_rest(%s)', _sas.purged_rows() / 2)), 0);
    FOREACH of_result IN ARRAY '{success,warning,error,compensated,cancelled}'::text[] LOOP
        keep := _sas.retain(of_result);
        CONTINUE WHEN keep IS NULL OR worked >= quantity;
        CONTINUE WHEN NOT EXISTS (SELECT FROM _sas.finished_run e WHERE e.result = of_result
                                  AND e.ended_at <= now - keep);
        n := _sas.part('purge old runs', format('(_sas.purge_ended(%L, %L, %s, NULL, false)).runs', of_result,
                                                now - keep, quantity - worked));
        worked := worked + greatest(n, 1);
    END LOOP;
    WITH idle AS (
        DELETE FROM _sas.idle_version d
        WHERE d.ctid = ANY (ARRAY(SELECT i.ctid FROM _sas.idle_version i
                                  LIMIT quantity FOR UPDATE SKIP LOCKED)) RETURNING d.version_id)
    SELECT array_agg(DISTINCT i.version_id) INTO versions FROM idle i;
    PERFORM _sas.part('purge versions', format('NULL::int FROM _sas.purge_versions(%L::int[])', versions))
    WHERE versions IS NOT NULL;
    DELETE FROM _sas.alert l
    WHERE l.alert_id = ANY (ARRAY(SELECT x.alert_id FROM _sas.alert x
                                  WHERE x.closed_at <= now - _sas.retain('error')
                                  ORDER BY x.closed_at LIMIT quantity FOR UPDATE SKIP LOCKED));
    SELECT p.worked + purge_tick.worked,
        least(p.next_due, _sas.next_purge(), _sas.forget_secrets(),
              (SELECT greatest(d.due_at, now) FROM _sas.purged_run d ORDER BY d.due_at LIMIT 1))
    INTO worked, next_due
    FROM _sas.purge_watches(quantity) p;
END $$;

-- _sas.next_purge(): when the retention time of the next run is over; null: never.
CREATE FUNCTION _sas.next_purge() RETURNS timestamptz
LANGUAGE sql STABLE AS $$
    SELECT min(e.ended_at + _sas.retain(k.result))
    FROM unnest('{success,warning,error,compensated,cancelled}'::text[]) AS k (result)
    CROSS JOIN LATERAL (SELECT x.ended_at FROM _sas.finished_run x WHERE x.result = k.result
                        ORDER BY x.ended_at
                        LIMIT 1) e
$$;

-- _sas.purge_as(caller, older_than, results, workflow, quantity): the body of sas.purge: purges runs before
-- their retention time is over.
CREATE FUNCTION _sas.purge_as(caller oid, older_than interval, results text[], workflow text, quantity int)
RETURNS TABLE (runs bigint, steps bigint, attempts bigint, more boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off
    SET intervalstyle = 'postgres' AS $$
#variable_conflict use_variable
DECLARE
    all_results text[] := '{success,warning,error,compensated,cancelled}';
    before timestamptz := sas.now() - older_than;
    flow int;
    of_result text;
    done record;
BEGIN
    IF older_than IS NULL OR older_than < '0' THEN
        RAISE EXCEPTION 'older_than must not be negative'
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /older_than.',
            HINT = 'Pass the time since the end of a run, such as ''30 days''.';
    ELSIF NOT coalesce(results <@ all_results AND cardinality(results) > 0, results IS NULL) THEN
        RAISE EXCEPTION 'results must name results'
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /results.',
            HINT
            = 'Name some of success, warning, error, compensated and cancelled, or leave it out for all.';
    ELSIF quantity IS NULL OR quantity NOT BETWEEN 1 AND 100000 THEN
        RAISE EXCEPTION 'the quantity must be between 1 and 100000'
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /quantity.',
            HINT = 'Call it again while there are more.';
    END IF;
    IF workflow IS NOT NULL THEN
        -- a dropped workflow has runs, too
        SELECT w.workflow_id INTO flow FROM _sas.workflow w WHERE w.name = workflow
        ORDER BY w.dropped_at DESC NULLS FIRST LIMIT 1;
        IF NOT FOUND THEN
            PERFORM _sas.refuse_missing('workflow', workflow, '/workflow', 'Leave it out for all workflows.');
        END IF;
    END IF;
    runs := 0;
    steps := 0;
    attempts := 0;
    FOREACH of_result IN ARRAY coalesce(results, all_results) LOOP
        CONTINUE WHEN runs >= quantity;
        done := _sas.purge_ended(of_result, before, (quantity - runs)::int, flow, true);
        runs := runs + done.runs;
        steps := steps + done.steps;
        attempts := attempts + done.attempts;
    END LOOP;
    more := runs >= quantity;
    PERFORM _sas.record_change(caller, 'purge', jsonb_strip_nulls(jsonb_build_object(
        'older_than', older_than, 'results', results, 'workflow', workflow, 'runs', runs)));
    RETURN NEXT;
END $$;

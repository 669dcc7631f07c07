-- SPDX-License-Identifier: PostgreSQL
--
-- The view of runs, and who sees which. Each role sees its own runs and those of the roles that it is a
-- member of. Operators, admins and monitors see all runs, monitors without payload.

-- _sas.sees_all(): may the current user see runs of other roles? The levels are constants that are bound by
-- oid, because the current user may look up nothing in schema _sas.
CREATE FUNCTION _sas.sees_all() RETURNS boolean
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT has_function_privilege(current_user, '_sas.level_admin()'::regprocedure, 'EXECUTE')
        OR has_function_privilege(current_user, '_sas.level_operator()'::regprocedure, 'EXECUTE')
        OR has_function_privilege(current_user, '_sas.level_monitor()'::regprocedure, 'EXECUTE');
END;

-- _sas.sees_payload(owner): may the current user read inputs and outputs of this owner's runs?
CREATE FUNCTION _sas.sees_payload(owner oid) RETURNS boolean
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT _sas.stands_for(owner)
        OR has_function_privilege(current_user, '_sas.level_admin()'::regprocedure, 'EXECUTE')
        OR has_function_privilege(current_user, '_sas.level_operator()'::regprocedure, 'EXECUTE');
END;

-- _sas.masked_context(root, mask, w): the root of a step's templates, with *** where the mask leads. The item
-- of a map and the last output of a repeat are parts of masked values.
CREATE FUNCTION _sas.masked_context(root jsonb, mask text[], w _sas.workflow_step) RETURNS jsonb
LANGUAGE plpgsql STABLE AS $$
DECLARE
    masked jsonb := _sas.masked(root, mask, '{}', true);
    items jsonb;
BEGIN
    IF w.shape ? 'each' AND root ? 'item' THEN
        items := (SELECT e.result FROM _sas.render(w.shape -> 'each', masked) e);
        masked := masked || jsonb_build_object('item', CASE jsonb_typeof(items) WHEN 'array'
                                               THEN coalesce(items -> (root ->> 'index')::int, '"***"')
                                               ELSE '"***"' END);
    END IF;
    IF root ? 'last' THEN
        masked := masked || jsonb_build_object('last', _sas.masked(root -> 'last', mask,
                                                                   ARRAY['steps', w.name, 'output'], true));
    END IF;
    RETURN masked;
END $$;

-- _sas.step_input(run_id, step_no, element): the input of a step, or what it sends, as far as it is known
-- now; null for a user who may not see it. What it calls is planned once for all rows of the view: to plan
-- _sas.context takes twenty times as long as to execute it.
CREATE FUNCTION _sas.step_input(run_id bigint, step_no int, element int) RETURNS jsonb
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_verb';

-- _sas.step_input_as(caller, run_id, step_no, element): the body of _sas.step_input.
CREATE FUNCTION _sas.step_input_as(caller oid, run_id bigint, step_no int, element int) RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET plan_cache_mode = force_generic_plan AS $$
    SELECT CASE WHEN m.hides AND (d.input IS NOT NULL OR w.scope_no IS NOT NULL) THEN to_jsonb('***'::text)
                WHEN d.input IS NOT NULL THEN d.input
                WHEN w.kind IN ('function', 'task', 'workflow') AND w.input IS NULL
                THEN CASE WHEN m.hides THEN _sas.masked(_sas.masked(r.input, m.mask, '{input}'), m.mask,
                                                        ARRAY['steps', w.name, 'input']) ELSE r.input END
                ELSE (SELECT CASE WHEN m.hides
                             THEN _sas.masked(i.result, m.mask, ARRAY['steps', w.name, 'input'])
                             ELSE i.result END
                      FROM _sas.render(CASE w.kind WHEN 'call'
                                       THEN coalesce(w.request -> 'body', w.request -> 'form',
                                                     w.request -> 'text', 'null') ELSE w.input END,
                                       CASE WHEN m.hides
                                       THEN _sas.masked_context(_sas.context(r, w, $4), m.mask, w)
                                       ELSE _sas.context(r, w, $4) END) i) END
    FROM _sas.run r
    CROSS JOIN LATERAL (SELECT v.mask, v.mask IS NOT NULL AND r.owner::oid <> $1 AS hides
                        FROM _sas.workflow_version v WHERE v.version_id = r.version_id OFFSET 0) m
    JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = $3 AND NOT w.undo
    LEFT JOIN _sas.override d ON d.run_id = r.run_id AND d.step_no = $3 AND d.element = $4
    WHERE r.run_id = $2
      AND _sas.may_operate(caller, r.owner)
$$;

-- _sas.starts_after(run_id): what keeps a scheduled run from beginning.
CREATE FUNCTION _sas.starts_after(run_id bigint) RETURNS text
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_verb';

-- _sas.starts_after_as(caller, run_id): the body of _sas.starts_after: run (an earlier one), start_at,
-- workflow (paused), place (of its concurrency key), or scheduler.
CREATE FUNCTION _sas.starts_after_as(caller oid, run_id bigint) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN EXISTS (SELECT FROM _sas.run_dependency a JOIN _sas.run e ON e.run_id = a.after_run
                             WHERE a.run_id = r.run_id AND e.state <> 'stopped') THEN 'run'
                WHEN r.start_at > sas.now() THEN 'start_at'
                WHEN EXISTS (SELECT FROM _sas.deferred_run h JOIN _sas.workflow f USING (workflow_id)
                             WHERE h.run_id = r.run_id AND f.paused_at IS NOT NULL) THEN 'workflow'
                WHEN EXISTS (SELECT FROM _sas.concurrency_slot p WHERE p.run_id = r.run_id
                             AND (p.state = 'waits' OR p.told))
                    THEN 'place'
                ELSE 'scheduler' END
    FROM _sas.run r
    WHERE r.run_id = $2
      AND _sas.may_see(caller, r.owner)
$$;

-- _sas.suggests(run_id, step_no, element): what on_failure says about this failed step of a paused run;
-- null for a user who may not see it, and for a fallback.
CREATE FUNCTION _sas.suggests(run_id bigint, step_no int, element int) RETURNS text
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_verb';

-- _sas.suggests_as(caller, run_id, step_no, element): the body of _sas.suggests. After a pivot has succeeded,
-- "compensate" means "pause".
CREATE FUNCTION _sas.suggests_as(caller oid, run_id bigint, step_no int, element int) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN p.policy = 'compensate'
                     AND EXISTS (SELECT FROM _sas.step x
                                 JOIN _sas.workflow_step xw ON xw.version_id = r.version_id
                                 AND xw.step_no = x.step_no AND xw.pivot WHERE x.run_id = r.run_id
                                 AND x.state = 'succeeded')
                THEN 'pause' ELSE p.policy END
    FROM _sas.run r
    JOIN _sas.workflow_version v USING (version_id)
    JOIN _sas.step s ON s.run_id = r.run_id AND s.step_no = $3 AND s.element = $4
    JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = $3 AND NOT w.undo
        AND NOT coalesce(w.shape ? 'stands_in', false)
    CROSS JOIN LATERAL (SELECT CASE WHEN s.transient THEN coalesce(w.on_transient, v.on_transient)
                        ELSE coalesce(w.on_permanent, v.on_permanent) END AS policy) p
    WHERE r.run_id = $2
      AND _sas.may_see(caller, r.owner)
$$;

-- _sas.run_progress(run_id): how much of an open run is done, from 0 to 1, by the weights of its steps. A
-- step in progress counts with the progress that it has reported, or half. Null for a user who may not see
-- it.
CREATE FUNCTION _sas.run_progress(run_id bigint) RETURNS float8
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_verb';

-- _sas.run_progress_as(caller, run_id): the body of _sas.run_progress.
CREATE FUNCTION _sas.run_progress_as(caller oid, run_id bigint) RETURNS float8
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(sum(w.weight * CASE
                        WHEN s.state IN ('succeeded', 'skipped', 'compensating', 'compensated') THEN 1
                        WHEN s.state IN ('running', 'suspended', 'failed')
                        THEN coalesce((SELECT (f.total - f.remaining)::float8 / f.total
                                       FROM _sas.map_progress f
                                       WHERE f.run_id = s.run_id AND f.step_no = s.step_no
                                           AND w.shape ? 'each' AND f.total > 0),
                                      (SELECT k.progress FROM _sas.task k
                                       WHERE k.run_id = s.run_id AND k.step_no = s.step_no AND k.element = 0),
                                      s.progress, CASE s.state WHEN 'running' THEN 0.5 ELSE 0 END)
                        ELSE 0 END) / nullif(sum(w.weight), 0), 0)
    FROM _sas.run r
    JOIN _sas.workflow_version v USING (version_id)
    JOIN _sas.workflow_step w ON w.version_id = r.version_id AND NOT w.undo AND w.step_no <= v.step_count
    LEFT JOIN _sas.step s ON s.run_id = r.run_id AND s.step_no = w.step_no AND s.element = 0
    WHERE r.run_id = $2 AND _sas.may_see($1, r.owner)
$$;

-- _sas.run_suggests(run_id): what on_failure says about all failed steps of a paused run; null: it has
-- none, or the user may not see it.
CREATE FUNCTION _sas.run_suggests(run_id bigint) RETURNS text
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_verb';

-- _sas.run_suggests_as(caller, run_id): the body of _sas.run_suggests.
CREATE FUNCTION _sas.run_suggests_as(caller oid, run_id bigint) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE count(DISTINCT x.says) WHEN 0 THEN NULL WHEN 1 THEN min(x.says) ELSE 'pause' END
    FROM (SELECT _sas.suggests_as($1, s.run_id, s.step_no, s.element) AS says FROM _sas.step s
          WHERE s.run_id = $2 AND s.state = 'failed') x
$$;

-- _sas.seen_owners(): the roles whose runs the current user may see.
CREATE FUNCTION _sas.seen_owners() RETURNS SETOF oid
LANGUAGE C STABLE ROWS 10 AS 'MODULE_PATHNAME', 'sas_api_verb';

-- _sas.seen_owners_as(caller): the body of _sas.seen_owners.
CREATE FUNCTION _sas.seen_owners_as(caller oid) RETURNS SETOF oid
LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 10 SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    owners oid[] := _sas.owners_seen_by(caller);
BEGIN
    IF owners IS NULL THEN
        RETURN QUERY SELECT _sas.run_owners();
    ELSE
        RETURN QUERY SELECT unnest(owners);
    END IF;
END $$;

-- The values of runs, as the current user sees them. sas.runs reads them here, with the rights of the
-- extension's owner: a role with a level has no right on these columns of _sas.run itself, because it reaches
-- that table through any view with the rights of its reader, whoever has made it.
CREATE VIEW _sas.run_value WITH (security_barrier) AS
SELECT r.run_id,
       CASE WHEN p.hides THEN _sas.masked(r.input, v.mask, '{input}') WHEN p.sees THEN r.input END AS input,
       CASE WHEN p.hides THEN _sas.masked(r.output, v.mask, '{output}')
           WHEN p.sees THEN r.output END AS output,
       CASE WHEN p.sees AND NOT p.hides THEN r.error ELSE _sas.public_error(r.error) END AS error,
       -- for a failed step, its name and its error
       CASE WHEN p.sees AND NOT p.hides THEN r.paused_for
           ELSE regexp_replace(r.paused_for, ' failed: .*', ' failed') END AS paused_for
FROM _sas.run r
LEFT JOIN _sas.workflow_version v ON v.version_id = r.version_id
CROSS JOIN LATERAL (SELECT x.sees, x.sees AND _sas.hides(v.mask, r.owner) AS hides
                    FROM (SELECT _sas.sees_payload(r.owner) AS sees OFFSET 0) x OFFSET 0) p
WHERE r.hook_of IS NULL AND (p.sees OR (SELECT _sas.sees_all()));
COMMENT ON VIEW _sas.run_value IS 'Values of runs, as the current user sees them';

-- Row level security, and a view with the rights of its reader: so a LIMIT, a key or a run_id reaches the
-- indexes of _sas.run, which a security barrier would prevent. The roles that the reader is a member of are
-- looked up once in a query. The view names them again: with that condition the index of keys finds runs of
-- these roles only, so a plan does not count those of others ("Rows Removed by Filter"). A role with a
-- level may read the other columns, and sees no more in them than in the view. It cannot name a table of
-- schema _sas, but a view that another role has made over it. Values from other tables come from subqueries
-- of their own, so that a condition of the reader is never evaluated on a row whose run it may not see.
ALTER TABLE _sas.run ENABLE ROW LEVEL SECURITY;
CREATE POLICY visible ON _sas.run FOR SELECT
    USING ((SELECT _sas.sees_all())
           OR owner = ANY (ARRAY(SELECT o.oid FROM pg_roles o
                                 WHERE _sas.stands_for(o.oid))));
-- These roles can name the table, or make a view over it for others, and so read whole rows. Of the runs of
-- others they reach those in which the reader's level hides nothing.
CREATE POLICY whole ON _sas.run AS RESTRICTIVE FOR SELECT TO pg_read_all_data, pg_write_all_data
    USING ((SELECT _sas.sees_payload(10::oid))
           AND version_id <> ALL (ARRAY(SELECT v.version_id FROM _sas.workflow_version v
                                        WHERE v.mask IS NOT NULL))
           OR owner = ANY (ARRAY(SELECT o.oid FROM pg_roles o
                                 WHERE _sas.stands_for(o.oid))));
-- A view reads those rows of these tables to which its runs refer. Row level security keeps their values
-- out of pg_stats.
ALTER TABLE _sas.workflow ENABLE ROW LEVEL SECURITY;
CREATE POLICY referred_to ON _sas.workflow FOR SELECT USING (true);
ALTER TABLE _sas.workflow_version ENABLE ROW LEVEL SECURITY;
CREATE POLICY referred_to ON _sas.workflow_version FOR SELECT USING (true);
ALTER TABLE _sas.queue ENABLE ROW LEVEL SECURITY;
CREATE POLICY referred_to ON _sas.queue FOR SELECT USING (true);
ALTER TABLE _sas.run_dependency ENABLE ROW LEVEL SECURITY;
CREATE POLICY referred_to ON _sas.run_dependency FOR SELECT USING (true);

-- _sas.root_run(run_id): the run at the top of its tree.
CREATE FUNCTION _sas.root_run(run_id bigint) RETURNS bigint
LANGUAGE sql STABLE
BEGIN ATOMIC
    WITH RECURSIVE above AS (
        SELECT r.run_id, r.parent_run_id FROM _sas.run r WHERE r.run_id = $1
        UNION ALL
        SELECT p.run_id, p.parent_run_id FROM above a JOIN _sas.run p ON p.run_id = a.parent_run_id)
    SELECT a.run_id FROM above a WHERE a.parent_run_id IS NULL;
END;

CREATE VIEW sas.runs WITH (security_invoker) AS
SELECT r.run_id, w.name AS workflow, w.version, r.key, r.state, r.result, r.priority,
       (SELECT q.name FROM _sas.queue q WHERE q.queue_id = r.queue_id) AS queue,
       (d.seen).input, (d.seen).output, (d.seen).error,
       CASE WHEN r.state = 'stopped' THEN 1.0 WHEN w.step_count = 0 THEN 0.0
            ELSE _sas.run_progress(r.run_id) END AS progress,
       (d.seen).paused_for,
       r.paused_by, r.paused_at, pg_get_userbyid(r.owner) AS submitted_by, r.parent_run_id,
       r.labels, r.created_at, r.start_at, r.started_at, r.finished_at, r.deadline, r.trace AS trace_id,
       r.start_before,
       (SELECT (array_agg(f.after_run ORDER BY f.after_run))[1] FROM _sas.run_dependency f
        WHERE f.run_id = r.run_id) AS after_run,
       CASE WHEN r.state = 'scheduled' THEN _sas.starts_after(r.run_id) END AS waits_for,
       CASE WHEN r.state = 'paused' AND r.abandon_as IS NULL
           THEN _sas.run_suggests(r.run_id) END AS suggested,
       r.schedule, r.scheduled_at,
       (SELECT array_agg(f.after_run ORDER BY f.after_run) FROM _sas.run_dependency f
        WHERE f.run_id = r.run_id) AS after_runs,
       CASE WHEN r.parent_run_id IS NULL THEN r.run_id ELSE _sas.root_run(r.run_id) END AS root_run_id
FROM _sas.run r
LEFT JOIN LATERAL (SELECT f.name, coalesce(v.of_version, v.version) AS version, v.step_count
                   FROM _sas.workflow_version v JOIN _sas.workflow f USING (workflow_id)
                   WHERE v.version_id = r.version_id OFFSET 0) w ON true
-- once for all values of a run that a query reads, and never for one that reads none (OFFSET 0)
CROSS JOIN LATERAL (SELECT (SELECT x FROM _sas.run_value x WHERE x.run_id = r.run_id) AS seen OFFSET 0) d
WHERE r.hook_of IS NULL AND r.owner = ANY (ARRAY(SELECT _sas.seen_owners()));
COMMENT ON COLUMN sas.runs.scheduled_at IS 'The instant of its schedule for which it was submitted';
COMMENT ON COLUMN sas.runs.root_run_id IS
    'The run at the top of its tree; the run itself if it has no parent';
COMMENT ON COLUMN sas.runs.after_runs IS 'The runs after which it begins; after_run is the first of them';
COMMENT ON VIEW sas.runs IS 'One row per run. state says where it is, result how it ended.';
COMMENT ON COLUMN sas.runs.state IS 'scheduled, pending, running, paused, compensating or stopped';
COMMENT ON COLUMN sas.runs.result IS
    'null until stopped; then success, warning, error, compensated or cancelled';
COMMENT ON COLUMN sas.runs.waits_for IS
    'What keeps a scheduled run from beginning: run (after_run), start_at, workflow (it is paused), place '
    '(a concurrency key), or scheduler (it is next)';
COMMENT ON COLUMN sas.runs.suggested IS
    'For a run paused with failed steps: what on_failure says about all of them; pause if it differs '
    'between them';
COMMENT ON COLUMN sas.runs.error IS
    'Why the run cannot go on: a problem object of RFC 9457; instance says where';

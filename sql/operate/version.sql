-- SPDX-License-Identifier: PostgreSQL
--
-- Version: open runs continue with another version of their workflow, usually a repaired one.

-- _sas.set_version_runs_as(caller, run_ids, version): the body of sas.set_version_runs. version null: the
-- version that a new run of its owner would get.
CREATE FUNCTION _sas.set_version_runs_as(caller oid, run_ids bigint[], version int)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    named _sas.named[] := _sas.operate(caller, run_ids);
    r _sas.run;
    v _sas.workflow_version;
    why text;
    ids bigint[] := '{}';
    versions int[] := '{}';
BEGIN
    -- locks the ready rows, so that no claim changes what is found below
    PERFORM FROM _sas.ready q WHERE q.run_id = ANY (ARRAY(SELECT n.run_id FROM unnest(named) n
                                                          WHERE n.refused IS NULL))
        ORDER BY q.run_id, q.step_no, q.element FOR UPDATE;
    FOR i IN 1 .. cardinality(named) LOOP
        CONTINUE WHEN (named[i]).refused IS NOT NULL OR (named[i]).state = 'stopped';
        SELECT * INTO r FROM _sas.run x WHERE x.run_id = (named[i]).run_id;
        v := _sas.version_for(r, version);
        why := coalesce(_sas.chosen_version(caller, r, version), _sas.shown_version(caller, r, v),
                        _sas.unfit_version(r, v));
        IF why IS NULL THEN
            ids := ids || r.run_id;
            versions := versions || v.version_id;
            PERFORM _sas.record(caller, ARRAY[r.run_id], 'set_version', NULL,
                                (SELECT jsonb_build_object('from', _sas.written_version(r.version_id), 'to',
                                                           _sas.written_version(v.version_id))));
        ELSE
            named[i].refused := why;
        END IF;
    END LOOP;
    IF ids <> '{}' THEN
        PERFORM _sas.move_to_versions(ids, versions);
    END IF;
    RETURN QUERY SELECT * FROM _sas.report_runs('set_version', named, ids);
END $$;

-- _sas.set_version_as(caller, for_run, version): the same for one run; raises an error while a step of it
-- is claimed.
CREATE FUNCTION _sas.set_version_as(caller oid, for_run bigint, version int)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    said record;
BEGIN
    SELECT s.* INTO said FROM _sas.set_version_runs_as(caller, ARRAY[$2], $3) s;
    IF NOT said.changed AND said.state <> 'stopped' AND _sas.is_claimed($2) THEN
        RAISE EXCEPTION '%', said.refused
            USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = 'At /run_id.',
            HINT = 'See sas.steps for what holds it.';
    END IF;
    RETURN QUERY SELECT said.run_id, said.step, said.changed, said.state, said.result, said.refused;
END $$;

-- _sas.is_claimed(run_id): is a step of this run claimed, or does a reply to it wait for the run?
CREATE FUNCTION _sas.is_claimed(run_id bigint) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM _sas.step s WHERE s.run_id = $1 AND s.request_id IS NOT NULL)
        OR EXISTS (SELECT FROM _sas.answer a WHERE a.run_id = $1)
$$;

-- _sas.version_for(r, wanted): the version of this workflow that a new run of its owner would get.
CREATE FUNCTION _sas.version_for(r _sas.run, wanted int) RETURNS _sas.workflow_version
LANGUAGE plpgsql AS $$
DECLARE
    f _sas.workflow;
BEGIN
    SELECT w.* INTO f FROM _sas.workflow w JOIN _sas.workflow_version v USING (workflow_id)
    WHERE v.version_id = r.version_id;
    RETURN _sas.version_to_submit(r.owner, f.name, wanted, f.workflow_id);
END $$;

-- _sas.chosen_version(caller, r, wanted): why the caller may not choose this version; null: it may. Only
-- superusers choose what a superuser's run does: an older version may do what was corrected since.
CREATE FUNCTION _sas.chosen_version(caller oid, r _sas.run, wanted int) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT format('role "%s" is a superuser, and you are not: its runs continue with the current version '
                  'only', pg_get_userbyid(r.owner))
    FROM _sas.workflow_version v JOIN _sas.workflow f USING (workflow_id)
    WHERE v.version_id = r.version_id AND wanted <> f.version
      AND _sas.is_superuser(r.owner::oid) AND NOT _sas.is_superuser(caller)
$$;

-- _sas.shown_version(caller, r, v): why only its owner may continue, or repeat, this run with that version;
-- null: the caller is the owner, or the version masks everything that is masked now.
CREATE FUNCTION _sas.shown_version(caller oid, r _sas.run, v _sas.workflow_version) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT format('version %s of the workflow does not mask all that run %s masks; role "%s" itself can do '
                  'that', coalesce(v.of_version, v.version), r.run_id, pg_get_userbyid(r.owner))
    FROM _sas.workflow_version o
    WHERE o.version_id = r.version_id AND r.owner::oid <> caller
      AND NOT coalesce(o.mask, '{}') <@ coalesce(v.mask, '{}')
$$;

-- _sas.written_version(id): the number of the version that a user has written.
CREATE FUNCTION _sas.written_version(id int) RETURNS int
LANGUAGE sql STABLE AS $$
    SELECT coalesce(v.of_version, v.version) FROM _sas.workflow_version v WHERE v.version_id = id
$$;

-- _sas.begun_steps(run_id): the steps of a run that have begun; steps that only wait for others have not.
CREATE FUNCTION _sas.begun_steps(run_id bigint) RETURNS int[]
LANGUAGE sql STABLE AS $$
    SELECT ARRAY(SELECT s.step_no FROM _sas.step s
                 WHERE s.run_id = $1
                   AND NOT (s.element = 0 AND s.state IN ('waiting', 'ready', 'cancelled')
                            AND s.started_at IS NULL AND s.attempt = 0 AND s.failure_count = 0)
                 UNION
                 SELECT q.step_no FROM _sas.queue_slot q WHERE q.run_id = $1)
$$;

-- _sas.unfit_version(r, v): why this run cannot continue with that version; null: it can.
-- Caller: holds the lock of the run, and of its ready rows.
CREATE FUNCTION _sas.unfit_version(r _sas.run, v _sas.workflow_version) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    begun int[] := _sas.begun_steps(r.run_id);
    name text;
    what text;
BEGIN
    IF v.version_id = r.version_id THEN
        RETURN format('run %s has version %s', r.run_id, _sas.written_version(v.version_id));
    END IF;
    SELECT w.name INTO name FROM _sas.step s
    JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = s.step_no AND NOT w.undo
    WHERE s.run_id = r.run_id AND s.request_id IS NOT NULL LIMIT 1;
    IF FOUND THEN
        RETURN format('step "%s" of run %s is claimed; pause the run, and wait for what is on its way', name,
                      r.run_id);
    ELSIF EXISTS (SELECT FROM _sas.answer a WHERE a.run_id = r.run_id) THEN
        RETURN format('an answer to run %s is about to be applied; try again', r.run_id);
    ELSIF v.planned OR EXISTS (SELECT FROM _sas.workflow_version o JOIN _sas.workflow_version b
                               ON b.workflow_id = o.workflow_id
                                   AND b.version = coalesce(o.of_version, o.version)
                               WHERE o.version_id = r.version_id AND b.planned) THEN
        RETURN format('a function plans the steps of run %s; sas.rerun runs it again', r.run_id);
    END IF;
    SELECT o.name, d.what INTO name, what
    FROM _sas.workflow_step o
    LEFT JOIN _sas.workflow_step n ON n.version_id = v.version_id AND n.name = o.name AND NOT n.undo
    CROSS JOIN LATERAL (SELECT _sas.step_difference(r, o, n) AS what OFFSET 0) d
    WHERE o.version_id = r.version_id AND NOT o.undo AND o.step_no = ANY (begun) AND d.what IS NOT NULL
    ORDER BY o.step_no LIMIT 1;
    IF FOUND THEN
        RETURN format('step "%s" of run %s has begun, and version %s has %s', name, r.run_id,
                      _sas.written_version(v.version_id), what);
    END IF;
    RETURN NULL;
END $$;

-- _sas.step_difference(r, o, n): how a step that has begun differs in another version, as the end of the
-- sentence above; null: in nothing that matters for what it has done.
CREATE FUNCTION _sas.step_difference(r _sas.run, o _sas.workflow_step, n _sas.workflow_step) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT CASE
        WHEN n.step_no IS NULL THEN 'no such step'
        WHEN n.kind <> o.kind THEN 'another kind of step there'
        WHEN n.lane <> o.lane AND o.kind IN ('call', 'task') THEN 'another agent there'
        WHEN o.kind = 'call' AND n.request IS DISTINCT FROM o.request THEN 'another call there'
        WHEN n.bound_id IS DISTINCT FROM o.bound_id THEN 'another workflow there'
        WHEN k.key IS NOT NULL THEN format('another "%s" there', k.key)
        WHEN _sas.names_before(n) IS DISTINCT FROM _sas.names_before(o) THEN 'other steps before it'
        WHEN EXISTS (SELECT FROM _sas.step s
                     WHERE s.run_id = r.run_id AND s.step_no = o.step_no AND s.state = 'compensating')
             AND NOT EXISTS (SELECT FROM _sas.workflow_step u
                             JOIN _sas.workflow_step m ON m.version_id = o.version_id
                                 AND m.step_no = o.step_no AND m.undo AND m.kind = u.kind
                                 AND coalesce(m.shape ? 'poll', false) = coalesce(u.shape ? 'poll', false)
                             WHERE u.version_id = n.version_id AND u.step_no = n.step_no AND u.undo)
            THEN 'no such undo, which has begun' END
    FROM (SELECT min(e) AS key FROM unnest('{when,each,repeat,wait,workflow,poll}'::text[]) e
          WHERE n.shape -> e IS DISTINCT FROM o.shape -> e) k
$$;

-- _sas.names_before(w): the steps that come directly before this one.
CREATE FUNCTION _sas.names_before(w _sas.workflow_step) RETURNS text[]
LANGUAGE sql STABLE AS $$
    SELECT array_agg(p.name ORDER BY p.name) FROM _sas.workflow_edge e
    JOIN _sas.workflow_step p ON p.version_id = e.version_id AND p.step_no = e.from_no AND NOT p.undo
    WHERE e.version_id = w.version_id AND e.to_no = w.step_no
$$;

-- _sas.move_to_versions(run_ids, version_ids): continues these runs with these versions. Steps that have
-- begun keep their state, under their new number. The state of the others is derived again from the steps
-- that have ended.
-- Caller: holds the locks of the runs, and of their ready rows. Writes: run, and all tables with steps.
-- Next: _sas.make_ready for what can begin; _sas.end_of_steps if nothing is left to do.
CREATE FUNCTION _sas.move_to_versions(run_ids bigint[], version_ids int[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    gone record;
BEGIN
    WITH old AS (
        SELECT m.run_id, o.step_no, n.step_no AS new_no, 
               NOT (o.step_no = ANY (b.nos)) AND (r.abandon_as IS NULL OR n.step_no IS NULL) AS forgotten
        FROM unnest(run_ids, version_ids) AS m (run_id, version_id)
        JOIN _sas.run r ON r.run_id = m.run_id
        CROSS JOIN LATERAL (SELECT _sas.begun_steps(m.run_id) AS nos OFFSET 0) b
        JOIN _sas.workflow_step o ON o.version_id = r.version_id AND NOT o.undo
        LEFT JOIN _sas.workflow_step n ON n.version_id = m.version_id AND n.name = o.name AND NOT n.undo)
    SELECT array_agg(x.run_id) FILTER (WHERE x.forgotten) AS run_ids,
           array_agg(x.step_no) FILTER (WHERE x.forgotten) AS step_nos,
           array_agg(x.run_id) FILTER (WHERE x.new_no IS NULL) AS left_ids,
           array_agg(x.step_no) FILTER (WHERE x.new_no IS NULL) AS left_nos,
           array_agg(x.run_id) FILTER (WHERE x.new_no IS NOT NULL) AS kept_ids,
           array_agg(x.step_no) FILTER (WHERE x.new_no IS NOT NULL) AS kept_nos,
           array_agg(x.new_no) FILTER (WHERE x.new_no IS NOT NULL) AS new_nos
    INTO gone FROM old x;
    PERFORM _sas.close_forgotten(gone.run_ids, gone.step_nos);
    PERFORM _sas.forget_steps(gone.run_ids, gone.step_nos);
    PERFORM _sas.leave_steps(gone.left_ids, gone.left_nos);
    PERFORM _sas.renumber_steps(gone.kept_ids, gone.kept_nos, gone.new_nos);
    DELETE FROM _sas.undo_order l WHERE l.run_id = ANY (move_to_versions.run_ids);
    INSERT INTO _sas.idle_version SELECT DISTINCT r.version_id FROM _sas.run r
    WHERE r.run_id = ANY (move_to_versions.run_ids) AND r.own_version;
    UPDATE _sas.run r SET version_id = v.version_id, own_version = v.of_version IS NOT NULL,
        open_steps = CASE WHEN 'scheduled' IN (r.state, coalesce(r.paused_state, ''))
            THEN _sas.count_roots(v) ELSE r.open_steps END
    FROM unnest(run_ids, version_ids) AS m (run_id, version_id)
    JOIN _sas.workflow_version v ON v.version_id = m.version_id
    WHERE r.run_id = m.run_id;
    PERFORM _sas.find_ready(run_ids);
END $$;

-- _sas.close_forgotten(run_ids, step_nos): these steps have not begun; those that were ready no longer count
-- as open.
-- Writes: run.
CREATE FUNCTION _sas.close_forgotten(run_ids bigint[], step_nos int[]) RETURNS void
LANGUAGE sql AS $$
    UPDATE _sas.run r SET open_steps = r.open_steps - x.n
    FROM (SELECT o.run_id, count(*)::int AS n
          FROM (SELECT s.run_id, s.step_no FROM unnest($1, $2) AS u (run_id, step_no)
                JOIN _sas.step s ON s.run_id = u.run_id AND s.step_no = u.step_no AND s.element = 0
                WHERE s.state = 'ready'
                UNION
                SELECT q.run_id, q.step_no FROM unnest($1, $2) AS u (run_id, step_no)
                JOIN _sas.ready q ON q.run_id = u.run_id AND q.step_no = u.step_no AND q.element = 0
                UNION
                SELECT d.run_id, d.step_no FROM unnest($1, $2) AS u (run_id, step_no)
                JOIN _sas.message d ON d.run_id = u.run_id AND d.step_no = u.step_no AND d.element = 0
                    AND d.kind = 'enter') o
          GROUP BY 1) x
    WHERE r.run_id = x.run_id
$$;

-- _sas.find_ready(run_ids): for runs whose steps have other predecessors now: makes ready what can begin,
-- stores how many steps each waiting step still waits for, and ends runs that have nothing left to do.
-- Writes: run.
CREATE FUNCTION _sas.find_ready(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    found_steps record;
    ended bigint[];
BEGIN
    WITH missing AS (
        SELECT r.run_id, w.step_no, r.state = 'paused' AS paused, w.needs - x.n AS needs_left, x.n
        FROM _sas.run r
        JOIN _sas.workflow_version v USING (version_id)
        JOIN _sas.workflow_step w ON w.version_id = r.version_id AND NOT w.undo
            AND (w.step_no IS DISTINCT FROM v.finalize_no OR v.step_count = 0)
        CROSS JOIN LATERAL (SELECT count(*)::int AS n FROM _sas.workflow_edge e
                            JOIN _sas.step s ON s.run_id = r.run_id AND s.step_no = e.from_no
                                AND s.element = 0 AND s.state IN ('succeeded', 'skipped')
                            WHERE e.version_id = r.version_id AND e.to_no = w.step_no) x
        WHERE r.run_id = ANY (find_ready.run_ids) AND r.abandon_as IS NULL
          AND 'scheduled' NOT IN (r.state, coalesce(r.paused_state, ''))
          AND NOT EXISTS (SELECT FROM _sas.step s WHERE s.run_id = r.run_id AND s.step_no = w.step_no)
          AND NOT EXISTS (SELECT FROM _sas.ready q WHERE q.run_id = r.run_id AND q.step_no = w.step_no))
    SELECT array_agg(_sas.make_step_change(
               run_id => m.run_id, step_no => m.step_no, element => 0, from_state => 'none',
               to_state => CASE m.needs_left WHEN 0 THEN 'ready' ELSE 'waiting' END,
               needs_left => m.needs_left, deferred => m.needs_left = 0))
               FILTER (WHERE m.needs_left = 0 AND m.paused OR m.needs_left > 0 AND m.n > 0) AS changes,
           array_agg(m.run_id) FILTER (WHERE m.needs_left = 0) AS opened,
           array_agg(m.run_id) FILTER (WHERE m.needs_left = 0 AND NOT m.paused) AS ready_ids,
           array_agg(m.step_no) FILTER (WHERE m.needs_left = 0 AND NOT m.paused) AS ready_nos
    INTO found_steps FROM missing m;
    PERFORM _sas.move_steps(found_steps.changes);
    UPDATE _sas.run r SET open_steps = r.open_steps + x.n
    FROM (SELECT o, count(*)::int AS n FROM unnest(found_steps.opened) o GROUP BY 1) x WHERE r.run_id = x.o;
    PERFORM _sas.make_ready(found_steps.ready_ids, found_steps.ready_nos);
    SELECT array_agg(r.run_id) INTO ended FROM _sas.run r
    WHERE r.run_id = ANY (find_ready.run_ids) AND r.abandon_as IS NULL AND r.open_steps = 0
        AND r.state IN ('pending', 'running');
    PERFORM _sas.end_of_steps(ended) WHERE ended IS NOT NULL;
END $$;

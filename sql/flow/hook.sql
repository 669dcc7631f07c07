-- SPDX-License-Identifier: PostgreSQL
--
-- Hooks: who is told when the state of a run changes. A NOTIFY goes out with
-- the commit; a function or call is a run of its own, made in the transaction
-- of the change, so that windows, retries, doors and rights are those of every
-- step. What becomes of it never touches the run that it tells of.

-- _sas.fire_alert_hook(alert_ids): tells the hook of these new alerts, in runs of its own. Without a hook
-- nothing happens.
--   reads   alert_hook, alert, and what the alert tells of
--   writes  run, due (its deadline), ready
--   wakes   the function workers
CREATE FUNCTION _sas.fire_alert_hook(alert_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas.now();
    made bigint[];
BEGIN
    WITH queued AS (
        INSERT INTO _sas.run (version_id, owner, trace, state, open_steps, priority, input, labels,
                              created_at, deadline, hook_of)
        SELECT h.version_id, h.owner, gen_random_uuid(), 'pending', 1, 0,
               jsonb_build_object('alert_id', l.alert_id, 'kind', l.kind,
                                  'message', coalesce(l.private_message, l.message), 'agent', a.name,
                                  'run_id', l.run_id, 'workflow', f.name,
                                  'step', _sas.shown_name(w.name), 'at', l.created_at),
               '{}', now, now + _sas.run_deadline(), 0
        FROM _sas.alert_hook h
        JOIN _sas.alert l ON l.alert_id = ANY (alert_ids)
        LEFT JOIN _sas.agent a ON a.agent_id = l.agent_id
        LEFT JOIN _sas.run r ON r.run_id = l.run_id
        LEFT JOIN _sas.workflow f ON f.workflow_id = l.workflow_id
        LEFT JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = l.step_no AND NOT w.undo
        ORDER BY l.alert_id
        RETURNING run_id)
    SELECT array_agg(q.run_id ORDER BY q.run_id) INTO made FROM queued q;
    IF made IS NOT NULL THEN
        PERFORM _sas.note_runs(made, 'pending');
        PERFORM _sas.make_roots_ready(made);
    END IF;
END $$;

-- _sas.fire_hooks(run_ids): these runs have just come to the state that they are in, and what has a hook for
-- it is told. Most runs have none: one check all, so that the others pay little for the hooks of one
-- workflow.
--
-- Caller: holds the lock of the runs, or has just made them. Reads: run, workflow_hook.
-- Writes: run, due and ready (hook runs), alert. Wakes: function and agent workers; NOTIFY at commit.
CREATE FUNCTION _sas.fire_hooks(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    told bigint[];
BEGIN
    SELECT array_agg(r.run_id) INTO told FROM _sas.run r
    WHERE r.run_id = ANY ($1)
      AND (r.hook_of IS NOT NULL
           OR EXISTS (SELECT FROM _sas.workflow_hook h WHERE h.version_id = r.version_id));
    IF told IS NOT NULL THEN
        PERFORM _sas.notify_hooks(told);
        PERFORM _sas.begin_hook_runs(told);
        PERFORM _sas.alert_failed_hooks(told);
    END IF;
END $$;

-- _sas.notify_hooks(run_ids): the hooks that are channels.
CREATE FUNCTION _sas.notify_hooks(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    -- nothing longer than a notification may be; only a key can make it so
    PERFORM _sas.notify(h.channel, CASE WHEN octet_length(e.event::text) < 8000 THEN e.event
                                     ELSE e.event - 'key' END::text)
    FROM _sas.run r
    JOIN _sas.workflow_hook h ON h.version_id = r.version_id
        AND (r.state = ANY (h.events) OR r.state = 'stopped' AND r.result = ANY (h.events))
    JOIN _sas.workflow_version v ON v.version_id = r.version_id
    JOIN _sas.workflow w ON w.workflow_id = v.workflow_id
    CROSS JOIN LATERAL (SELECT jsonb_build_object('run_id', r.run_id, 'workflow', w.name, 'key', r.key,
                                                  'state', r.state, 'result', r.result) AS event OFFSET 0) e
    WHERE r.run_id = ANY ($1) AND h.channel IS NOT NULL;
END $$;

-- _sas.begin_hook_runs(run_ids): the hooks that are functions or calls: a run for each.
CREATE FUNCTION _sas.begin_hook_runs(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas.now();
    made bigint[];
BEGIN
    WITH queued AS (
        INSERT INTO _sas.run (version_id, owner, trace, state, open_steps, priority, input, labels,
                              created_at, deadline, hook_of)
        SELECT h.hook_version_id, r.owner, gen_random_uuid(), 'pending', 1, r.priority,
               jsonb_build_object('run_id', r.run_id, 'workflow', w.name, 'version',
                                  coalesce(v.of_version, v.version), 'key', r.key, 'state', r.state,
                                  'result', r.result, 'parent_run_id', r.parent_run_id,
                                  'paused_for', r.paused_for, 'labels', r.labels, 'input', r.input,
                                  'output', r.output, 'error', r.error, 'at', now),
               r.labels, now, now + _sas.run_deadline(), r.run_id
        FROM _sas.run r
        JOIN _sas.workflow_hook h ON h.version_id = r.version_id
            AND (r.state = ANY (h.events) OR r.state = 'stopped' AND r.result = ANY (h.events))
        JOIN _sas.workflow_version v ON v.version_id = r.version_id
        JOIN _sas.workflow w ON w.workflow_id = v.workflow_id
        WHERE r.run_id = ANY ($1) AND h.hook_version_id IS NOT NULL
        ORDER BY r.run_id, h.hook_no
        RETURNING run_id)
    SELECT array_agg(q.run_id ORDER BY q.run_id) INTO made FROM queued q;
    IF made IS NOT NULL THEN
        PERFORM _sas.note_runs(made, 'pending');
        PERFORM _sas.make_roots_ready(made);
    END IF;
END $$;

-- _sas.alert_failed_hooks(run_ids): those of them that are runs of hooks and have failed for good. One alert
-- for each hook, whatever the number of its runs.
CREATE FUNCTION _sas.alert_failed_hooks(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM _sas.raise_alert(
        CASE r.hook_of WHEN 0 THEN 'alert-hook-failed' ELSE 'hook-failed' END,
        format('hook %s of version %s%s', h.hook_no, h.version_id, _sas.test_mark()),
        CASE r.hook_of
            WHEN 0 THEN format('the alert hook for alert %s (%s) failed: %s',
                               r.input ->> 'alert_id', r.input ->> 'kind',
                               coalesce(r.error ->> 'title', r.result))
            ELSE format('hook %s of workflow "%s" for run %s (%s) failed: %s', h.hook_no, w.name,
                        r.hook_of, coalesce(r.input ->> 'result', r.input ->> 'state'),
                        coalesce(r.error ->> 'title', r.result)) END,
        NULL, nullif(r.hook_of, 0), NULL, r.error)
    FROM _sas.run r
    JOIN _sas.workflow_hook h ON h.hook_version_id = r.version_id
    JOIN _sas.workflow_version v ON v.version_id = r.version_id
    JOIN _sas.workflow w ON w.workflow_id = v.workflow_id
    WHERE r.run_id = ANY ($1) AND r.hook_of IS NOT NULL AND r.state = 'stopped'
      AND r.result NOT IN ('success', 'cancelled');
END $$;

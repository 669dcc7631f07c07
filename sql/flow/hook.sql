-- SPDX-License-Identifier: PostgreSQL
--
-- Hooks: what a change of a run's state triggers. A NOTIFY is sent at commit. A function or call is a run
-- of its own, created in the transaction of the change, so that it has windows, retries, limits and rights
-- like every step. Its outcome never changes the run that triggered it.

-- _sas.fire_alert_hook(alert_ids): calls the alert hook for these new alerts, each in a run of its own.
-- Without an alert hook nothing happens, nor with one of a former admin: alerts contain data of others.
-- Reads: alert_hook, alert, and what the alert is about. Writes: run, message (its deadline), ready. Wakes:
-- function workers.
CREATE FUNCTION _sas.fire_alert_hook(alert_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas.now();
    made bigint[];
BEGIN
    WITH queued AS (
        INSERT INTO _sas.run (run_id, version_id, owner, trace, state, open_steps, priority, input, labels,
                              created_at, deadline, hook_of)
        OVERRIDING SYSTEM VALUE
        SELECT _sas.next_run_id(), h.version_id, h.owner, gen_random_uuid(), 'pending', 1, 0,
               jsonb_build_object('alert_id', l.alert_id, 'kind', l.kind,
                                  'message', coalesce(l.private_message, l.message), 'agent', a.name,
                                  'run_id', l.run_id, 'workflow', f.name,
                                  'step', _sas.shown_name(w.name), 'at', l.created_at),
               '{}', now, now + _sas.run_deadline(), 0
        FROM _sas.alert_hook h
        JOIN _sas.alert l ON l.alert_id = ANY (alert_ids) AND _sas.has_level(h.owner, 'admin')
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

-- _sas.fire_hooks(run_ids): triggers the hooks of these runs, which have just entered their state. Most
-- runs have no hook; therefore one check for all of them comes first, and hooks of one workflow cost the
-- others little.
-- Caller: holds the lock of the runs, or has just created them. Reads: run, workflow_hook. Writes: run,
-- message and ready (hook runs), alert. Wakes: function and agent workers; NOTIFY at commit.
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

-- _sas.notify_hooks(run_ids): sends the NOTIFY of the hooks that are channels. Any role can listen, so the
-- payload has no text that a user or service made.
-- Wakes: programs that LISTEN to the channels.
CREATE FUNCTION _sas.notify_hooks(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM _sas.notify(h.channel, jsonb_build_object('run_id', r.run_id, 'workflow', w.name,
                                                      'state', r.state, 'result', r.result)::text)
    FROM _sas.run r
    JOIN _sas.workflow_hook h ON h.version_id = r.version_id
        AND (r.state = ANY (h.events) OR r.state = 'stopped' AND r.result = ANY (h.events))
    JOIN _sas.workflow_version v ON v.version_id = r.version_id
    JOIN _sas.workflow w ON w.workflow_id = v.workflow_id
    WHERE r.run_id = ANY ($1) AND h.channel IS NOT NULL;
END $$;

-- _sas.begin_hook_runs(run_ids): creates a run for each hook that is a function or a call.
-- Writes: run.
CREATE FUNCTION _sas.begin_hook_runs(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas.now();
    made bigint[];
BEGIN
    WITH queued AS (
        INSERT INTO _sas.run (run_id, version_id, owner, trace, state, open_steps, priority, input, labels,
                              created_at, deadline, hook_of)
        OVERRIDING SYSTEM VALUE
        SELECT _sas.next_run_id(), h.hook_version_id, r.owner, gen_random_uuid(), 'pending', 1, r.priority,
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

-- _sas.alert_failed_hooks(run_ids): raises an alert for those of these runs that are runs of hooks and have
-- failed for good: one alert for each hook, however many of its runs fail.
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

-- SPDX-License-Identifier: PostgreSQL
--
-- Hooks: who is told when the state of a run changes. A NOTIFY goes out with
-- the commit; a function or call is a run of its own, made in the transaction
-- of the change, so that windows, retries, doors and rights are those of every
-- step. What becomes of it never touches the run that it tells of.

-- _sas.fire_alert_hook(alert_id): tells the hook of a new alert, with the commit; never of its own failure.
CREATE FUNCTION _sas.fire_alert_hook(alert bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := _sas.now();
    made bigint;
BEGIN
    IF NOT EXISTS (SELECT FROM _sas.alert_hook) THEN
        RETURN;
    END IF;
    INSERT INTO _sas.run (version_id, owner, trace, state, open_steps, priority, input, labels, created_at,
                          deadline, hook_of)
    SELECT h.version_id, h.owner, gen_random_uuid(), 'pending', 1, 0,
           jsonb_build_object('alert_id', l.alert_id, 'kind', l.kind, 'message', l.message, 'agent', a.name,
                              'run_id', l.run_id, 'workflow', f.name,
                              'step', _sas.shown_name(w.name), 'at', l.created_at),
           '{}', now, now + _sas.run_deadline(), 0
    FROM _sas.alert_hook h
    JOIN _sas.alert l ON l.alert_id = alert
    LEFT JOIN _sas.agent a ON a.agent_id = l.agent_id
    LEFT JOIN _sas.run r ON r.run_id = l.run_id
    LEFT JOIN _sas.workflow_version v ON v.version_id = r.version_id
    LEFT JOIN _sas.workflow f ON f.workflow_id = v.workflow_id
    LEFT JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = l.step_no AND NOT w.undo
    WHERE l.kind <> 'alert-hook-failed'
    RETURNING run_id INTO made;
    IF made IS NULL THEN
        RETURN;
    END IF;
    PERFORM _sas.count_metric('transition', 0, 0, 'run none pending', 1);
    INSERT INTO _sas.due (actor, due_at, run_id, kind)
    VALUES ('v', now + _sas.run_deadline(), made, 'deadline');
    PERFORM _sas.due_by(now + _sas.run_deadline());
    PERFORM _sas.make_roots_ready(ARRAY[made]);
END $$;

-- _sas.fire_hooks(run_ids): these runs have just come to the state that they are in. Tells the hooks that
-- want to know, and raises an alert for hooks that have failed for good: one per hook, whatever the number of
-- runs.
CREATE FUNCTION _sas.fire_hooks(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := _sas.now();
    told bigint[];
    made bigint[];
BEGIN
    -- one look at all, so that the others pay little for the hooks of one workflow
    SELECT array_agg(r.run_id) INTO told FROM _sas.run r
    WHERE r.run_id = ANY ($1) AND (r.hook_of IS NOT NULL
                                   OR EXISTS (SELECT FROM _sas.workflow_hook h
                                              WHERE h.version_id = r.version_id));
    IF told IS NULL THEN
        RETURN;
    END IF;
    -- nothing longer than a notification may be; only a key can make it so
    PERFORM pg_notify(h.channel, CASE WHEN octet_length(e.event::text) < 8000 THEN e.event
                      ELSE e.event - 'key' END::text)
    FROM _sas.run r
    JOIN _sas.workflow_hook h ON h.version_id = r.version_id
        AND (r.state = ANY (h.events) OR r.state = 'stopped' AND r.result = ANY (h.events))
    JOIN _sas.workflow_version v ON v.version_id = r.version_id
    JOIN _sas.workflow w ON w.workflow_id = v.workflow_id
    CROSS JOIN LATERAL (SELECT jsonb_build_object('run_id', r.run_id, 'workflow', w.name, 'key', r.key,
                                                  'state', r.state, 'result', r.result) AS event OFFSET 0) e
    WHERE r.run_id = ANY (told) AND h.channel IS NOT NULL;

    WITH queued AS (
        INSERT INTO _sas.run (version_id, owner, trace, state, open_steps, priority, input, labels,
                              created_at, deadline, hook_of)
        SELECT h.hook_version_id, r.owner, gen_random_uuid(), 'pending', 1, r.priority,
               jsonb_build_object('run_id', r.run_id, 'workflow', w.name, 'version',
                                  coalesce(v.of_version, v.version), 'key', r.key, 'state', r.state,
                                  'result', r.result,
                                  'parent_run_id', r.parent_run_id, 'paused_for', r.paused_for, 'labels',
                                      r.labels, 'input', r.input, 'output', r.output,
                                  'error', r.error, 'at', now),
               r.labels, now, now + _sas.run_deadline(), r.run_id
        FROM _sas.run r
        JOIN _sas.workflow_hook h ON h.version_id = r.version_id
            AND (r.state = ANY (h.events) OR r.state = 'stopped' AND r.result = ANY (h.events))
        JOIN _sas.workflow_version v ON v.version_id = r.version_id
        JOIN _sas.workflow w ON w.workflow_id = v.workflow_id
        WHERE r.run_id = ANY (told) AND h.hook_version_id IS NOT NULL
        ORDER BY r.run_id, h.hook_no
        RETURNING run_id, deadline),
    timed AS (
        INSERT INTO _sas.due (actor, due_at, run_id, kind) SELECT 'v', t.deadline, t.run_id, 'deadline'
        FROM queued t)
    SELECT array_agg(t.run_id ORDER BY t.run_id) INTO made FROM queued t;
    IF made IS NOT NULL THEN
        PERFORM _sas.count_metric('transition', 0, 0, 'run none pending', cardinality(made));
        PERFORM _sas.due_by(now + _sas.run_deadline());
        PERFORM _sas.make_roots_ready(made);
    END IF;

    PERFORM _sas.raise_alert(CASE r.hook_of WHEN 0 THEN 'alert-hook-failed'
                             ELSE 'hook-failed' END, format('hook %s of version %s%s', h.hook_no,
                                                            h.version_id, _sas.test_mark()),
                       CASE r.hook_of WHEN 0 THEN format('the alert hook failed, which tells of alert %s '
                                                         '(%s): %s', r.input ->> 'alert_id',
                                                         r.input ->> 'kind',
                                                         coalesce(r.error ->> 'title', r.result))
                       ELSE format('hook %s of workflow "%s" failed, which tells of run %s (%s): %s',
                                   h.hook_no, w.name, r.hook_of,
                                   coalesce(r.input ->> 'result', r.input ->> 'state'),
                                       coalesce(r.error ->> 'title', r.result)) END, NULL,
                                       nullif(r.hook_of, 0))
    FROM _sas.run r
    JOIN _sas.workflow_hook h ON h.hook_version_id = r.version_id
    JOIN _sas.workflow_version v ON v.version_id = r.version_id
    JOIN _sas.workflow w ON w.workflow_id = v.workflow_id
    WHERE r.run_id = ANY (told) AND r.hook_of IS NOT NULL AND r.state = 'stopped'
        AND r.result NOT IN ('success', 'cancelled');
END $$;

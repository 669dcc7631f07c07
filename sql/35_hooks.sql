-- SPDX-License-Identifier: PostgreSQL
--
-- Hooks: who is told when the state of a run changes. A NOTIFY goes out with
-- the commit; a function or call is a run of its own, made in the transaction
-- of the change, so that windows, retries, doors and rights are those of every
-- step. What becomes of it never touches the run that it tells of.

-- What a version wants to be told. hook_version_id: a hidden version with one
-- step, beside a channel null, and the other way round.
CREATE TABLE sas.workflow_hook (
    version_id int NOT NULL REFERENCES sas.workflow_version ON DELETE CASCADE,
    hook_no int NOT NULL,
    events text[] NOT NULL,
    channel text,
    hook_version_id int,
    PRIMARY KEY (version_id, hook_no)
);
CREATE INDEX workflow_hook_version ON sas.workflow_hook (hook_version_id);
COMMENT ON TABLE sas.workflow_hook IS 'Hooks of a version: the states and results that they are told of, and how.';

-- sas._hook_events(value): the states and results that "on" stands for; without it every state.
CREATE FUNCTION sas._hook_events(value jsonb) RETURNS text[]
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN value IS NULL THEN '{scheduled,pending,running,paused,compensating,stopped}'::text[]
                ELSE ARRAY(SELECT DISTINCT x FROM jsonb_array_elements_text(CASE jsonb_typeof(value) WHEN 'array' THEN value ELSE jsonb_build_array(value) END) e
                           CROSS JOIN LATERAL unnest(CASE e WHEN 'failure' THEN '{error,compensated,cancelled}' ELSE ARRAY[e] END) x ORDER BY x) END
$$;

-- sas._check_hooks(value, caller): what is wrong with the hooks of a definition.
CREATE FUNCTION sas._check_hooks(value jsonb, caller oid) RETURNS SETOF sas._problem
LANGUAGE plpgsql STABLE AS $$
DECLARE
    keys text[] := '{on,function,notify,agent,call,retry,recovery,complete_in,expect}';
    choices text[] := '{scheduled,pending,running,paused,compensating,stopped,success,warning,error,compensated,cancelled,failure}';
    hook jsonb;
    path text;
    n int;
BEGIN
    IF value IS NULL THEN
        RETURN;
    ELSIF jsonb_typeof(value) <> 'array' THEN
        RETURN NEXT ROW('/hooks', format('hooks must be an array, not %s', jsonb_typeof(value)), 'Write it as [{"on": "success", "notify": "channel"}].', '22023')::sas._problem;
        RETURN;
    ELSIF jsonb_array_length(value) > 100 THEN
        RETURN NEXT ROW('/hooks', 'there are more than 100 hooks', 'One hook may be told of several states.', '54000')::sas._problem;
        RETURN;
    END IF;
    FOR n IN 0 .. jsonb_array_length(value) - 1 LOOP
        hook := value -> n;
        path := '/hooks/' || n;
        RETURN QUERY SELECT * FROM sas._check_keys(hook, path, keys);
        CONTINUE WHEN jsonb_typeof(hook) <> 'object';
        CASE coalesce(jsonb_typeof(hook -> 'on'), 'none')
        WHEN 'none' THEN
            NULL;
        WHEN 'array' THEN
            IF jsonb_array_length(hook -> 'on') = 0 THEN
                RETURN NEXT ROW(path || '/on', 'a hook on nothing', 'Name states or results, or leave "on" out to be told of every state.', '22023')::sas._problem;
            END IF;
            RETURN QUERY SELECT p.* FROM jsonb_array_elements(hook -> 'on') WITH ORDINALITY AS e (value, n)
                         CROSS JOIN LATERAL sas._check_choice(e.value, path || '/on/' || e.n - 1, choices) p;
        ELSE
            RETURN QUERY SELECT * FROM sas._check_choice(hook -> 'on', path || '/on', choices);
        END CASE;
        IF (hook ? 'function')::int + (hook ? 'notify')::int + (hook ? 'call')::int <> 1 THEN
            RETURN NEXT ROW(path, 'a hook needs one of function, notify and call', 'Write exactly one of them, and with call an agent.', '22023')::sas._problem;
        ELSIF hook ? 'notify' THEN
            IF jsonb_typeof(hook -> 'notify') <> 'string' THEN
                RETURN NEXT ROW(path || '/notify', 'the channel must be a name', 'Write the name of a channel as a string.', '22023')::sas._problem;
            ELSE
                RETURN QUERY SELECT * FROM sas._check_name(hook ->> 'notify', path || '/notify');
            END IF;
            IF hook ?| '{agent,retry,recovery,complete_in,expect}' THEN
                RETURN NEXT ROW(path, 'a notification is sent with the commit and has only "on" beside it', 'Leave out agent, retry, recovery, complete_in and expect.', '22023')::sas._problem;
            END IF;
        ELSIF hook ? 'agent' AND jsonb_typeof(hook -> 'agent') <> 'string' THEN
            RETURN NEXT ROW(path || '/agent', 'the agent must be a name', 'Write the name of an agent as a string.', '22023')::sas._problem;
        ELSE
            RETURN QUERY SELECT * FROM sas._check_body(hook - 'on', path, caller, hook ->> 'agent');
            RETURN QUERY
            SELECT r.pointer, coalesce(r.problem, format('"%s" refers to nothing that can be seen from here', r.reference)),
                   'A hook refers to the event as {{input.run_id}}, {{input.workflow}}, {{input.output.NAME}} and so on; besides, there is key.',
                   CASE WHEN r.problem IS NOT NULL THEN '42601' WHEN r.root = 'secret' THEN '42501' ELSE '42P10' END
            FROM sas._body_references(hook, path) r
            WHERE r.problem IS NOT NULL OR r.root IS NULL OR NOT r.root IN ('input', 'key');
        END IF;
    END LOOP;
END $$;

-- sas._store_hooks(version_id): writes the hooks of a version that has just been stored. A hook that is a function or call gets a
-- version of its own: of the same workflow, with a negative number, seen nowhere.
CREATE FUNCTION sas._store_hooks(for_version int) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v sas.workflow_version;
    hook jsonb;
    n int := 0;
    hidden int;
    hidden_id int;
BEGIN
    SELECT * INTO v FROM sas.workflow_version x WHERE x.version_id = for_version;
    FOR hook IN SELECT h FROM jsonb_array_elements(v.definition -> 'hooks') h LOOP
        n := n + 1;
        hidden_id := NULL;
        IF NOT hook ? 'notify' THEN
            hidden := sas._hidden_version();
            PERFORM sas._store_version(v.workflow_id, hidden, jsonb_build_object('steps', jsonb_build_object('hook', hook - 'on'), 'on_failure', 'fail', 'auto_rescue', true), v.created_by);
            UPDATE sas.workflow_version x SET of_version = coalesce(v.of_version, v.version) WHERE x.workflow_id = v.workflow_id AND x.version = hidden
            RETURNING x.version_id INTO hidden_id;
        END IF;
        INSERT INTO sas.workflow_hook VALUES (v.version_id, n, sas._hook_events(hook -> 'on'), hook ->> 'notify', hidden_id);
    END LOOP;
    -- who submits must be allowed to call them, as the functions of steps
    UPDATE sas.workflow_version x SET functions = ARRAY(SELECT DISTINCT f FROM unnest(x.functions || ARRAY(SELECT h ->> 'function' FROM jsonb_array_elements(v.definition -> 'hooks') h WHERE h ? 'function')) f)
    WHERE x.version_id = for_version AND n > 0;
END $$;

-- sas._fire_hooks(run_ids): these runs have just come to the state that they are in. Tells the hooks that want to know, and raises an
-- alert for hooks that have failed for good: one per hook, whatever the number of runs.
CREATE FUNCTION sas._fire_hooks(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas._now();
    told bigint[];
    made bigint[];
BEGIN
    -- one look at all, so that the others pay little for the hooks of one workflow
    SELECT array_agg(r.run_id) INTO told FROM sas.run r
    WHERE r.run_id = ANY ($1) AND (r.hook_of IS NOT NULL OR EXISTS (SELECT FROM sas.workflow_hook h WHERE h.version_id = r.version_id));
    IF told IS NULL THEN
        RETURN;
    END IF;
    -- nothing longer than a notification may be; only a key can make it so
    PERFORM pg_notify(h.channel, CASE WHEN octet_length(e.event::text) < 8000 THEN e.event ELSE e.event - 'key' END::text)
    FROM sas.run r
    JOIN sas.workflow_hook h ON h.version_id = r.version_id AND (r.state = ANY (h.events) OR r.state = 'stopped' AND r.result = ANY (h.events))
    JOIN sas.workflow_version v ON v.version_id = r.version_id
    JOIN sas.workflow w ON w.workflow_id = v.workflow_id
    CROSS JOIN LATERAL (SELECT jsonb_build_object('run_id', r.run_id, 'workflow', w.name, 'key', r.key, 'state', r.state, 'result', r.result) AS event OFFSET 0) e
    WHERE r.run_id = ANY (told) AND h.channel IS NOT NULL;

    WITH queued AS (
        INSERT INTO sas.run (version_id, owner, trace, state, open_steps, priority, input, labels, created_at, deadline, hook_of)
        SELECT h.hook_version_id, r.owner, gen_random_uuid(), 'pending', 1, r.priority,
               jsonb_build_object('run_id', r.run_id, 'workflow', w.name, 'version', coalesce(v.of_version, v.version), 'key', r.key, 'state', r.state, 'result', r.result,
                                  'parent_run_id', r.parent_run_id, 'paused_for', r.paused_for, 'labels', r.labels, 'input', r.input, 'output', r.output,
                                  'error', r.error, 'at', now),
               r.labels, now, now + sas._run_deadline(), r.run_id
        FROM sas.run r
        JOIN sas.workflow_hook h ON h.version_id = r.version_id AND (r.state = ANY (h.events) OR r.state = 'stopped' AND r.result = ANY (h.events))
        JOIN sas.workflow_version v ON v.version_id = r.version_id
        JOIN sas.workflow w ON w.workflow_id = v.workflow_id
        WHERE r.run_id = ANY (told) AND h.hook_version_id IS NOT NULL
        ORDER BY r.run_id, h.hook_no
        RETURNING run_id, deadline),
    timed AS (
        INSERT INTO sas.due (actor, due_at, run_id, kind) SELECT 'v', t.deadline, t.run_id, 'deadline' FROM queued t)
    SELECT array_agg(t.run_id ORDER BY t.run_id) INTO made FROM queued t;
    IF made IS NOT NULL THEN
        PERFORM sas._count('transition', 0, 0, 'run none pending', cardinality(made));
        PERFORM sas._due_by(now + sas._run_deadline());
        PERFORM sas._make_roots_ready(made);
    END IF;

    PERFORM sas._alert(CASE r.hook_of WHEN 0 THEN 'alert-hook-failed' ELSE 'hook-failed' END, format('hook %s of version %s%s', h.hook_no, h.version_id, sas._test_mark()),
                       CASE r.hook_of WHEN 0 THEN format('the alert hook failed, which tells of alert %s (%s): %s', r.input ->> 'alert_id', r.input ->> 'kind', coalesce(r.error ->> 'title', r.result))
                       ELSE format('hook %s of workflow "%s" failed, which tells of run %s (%s): %s', h.hook_no, w.name, r.hook_of,
                                   coalesce(r.input ->> 'result', r.input ->> 'state'), coalesce(r.error ->> 'title', r.result)) END, NULL, nullif(r.hook_of, 0))
    FROM sas.run r
    JOIN sas.workflow_hook h ON h.hook_version_id = r.version_id
    JOIN sas.workflow_version v ON v.version_id = r.version_id
    JOIN sas.workflow w ON w.workflow_id = v.workflow_id
    WHERE r.run_id = ANY (told) AND r.hook_of IS NOT NULL AND r.state = 'stopped' AND r.result NOT IN ('success', 'cancelled');
END $$;

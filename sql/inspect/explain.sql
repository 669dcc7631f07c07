-- SPDX-License-Identifier: PostgreSQL
--
-- Explain: what one run, or all runs, wait for, in words. It reads the views as the current user, so it
-- shows nothing that the views do not show. What no view has (how steps depend on each other, the progress
-- of a map, child runs) comes from internal functions that check the caller's right themselves.

-- _sas.run_facts(run_id): progress of the steps of a run that have elements or child runs. children: the
-- first twenty open child runs; open_children: how many there are. No rows if the caller may not see the
-- run.
CREATE FUNCTION _sas.run_facts(run_id bigint)
RETURNS TABLE (step text, total int, begun int, remaining int, failed int, children bigint[],
               open_children bigint)
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_verb';

-- _sas.run_facts_as(caller, run_id): the body of _sas.run_facts.
CREATE FUNCTION _sas.run_facts_as(caller oid, run_id bigint)
RETURNS TABLE (step text, total int, begun int, remaining int, failed int, children bigint[],
               open_children bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT w.name, f.total, coalesce(f.total - f.remaining + f.open, f.fed), f.remaining, f.failed, c.first,
           coalesce(c.n, 0)
    FROM _sas.run r
    JOIN _sas.workflow_step w ON w.version_id = r.version_id AND NOT w.undo
        AND (w.kind = 'workflow' OR w.shape ?| '{each,repeat}')
    LEFT JOIN _sas.map_progress f ON f.run_id = r.run_id AND f.step_no = w.step_no
    LEFT JOIN LATERAL (SELECT (array_agg(o.run_id ORDER BY o.run_id))[:20] AS first, count(*) AS n
                       FROM _sas.run o
                       WHERE o.parent_run_id = r.run_id AND o.parent_step_no = w.step_no
                           AND o.state <> 'stopped') c ON true
    WHERE r.run_id = $2 AND _sas.may_see($1, r.owner)
$$;

-- _sas.ahead(run_id): for a run that waits for a slot under its concurrency key: the runs that hold the
-- slots, the first twenty.
CREATE FUNCTION _sas.ahead(run_id bigint) RETURNS bigint[]
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_verb';

-- _sas.ahead_as(caller, run_id): the body of _sas.ahead.
CREATE FUNCTION _sas.ahead_as(caller oid, run_id bigint) RETURNS bigint[]
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT (array_agg(DISTINCT h.run_id ORDER BY h.run_id))[:20]
    FROM _sas.run r
    JOIN _sas.concurrency_slot p ON p.run_id = r.run_id
    JOIN _sas.concurrency_slot h ON h.owner = p.owner AND h.workflow_id = p.workflow_id AND h.key = p.key
        AND h.state = 'holds'
    JOIN _sas.run o ON o.run_id = h.run_id
    WHERE r.run_id = $2 AND _sas.may_see($1, r.owner) AND _sas.may_see($1, o.owner)
$$;

-- _sas.sees_run(run_id): does sas.runs show it to the current user? This is faster than a query on that
-- view, which takes long to plan.
CREATE FUNCTION _sas.sees_run(run_id bigint) RETURNS boolean
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_verb';

-- _sas.sees_run_as(caller, run_id): the body of _sas.sees_run.
CREATE FUNCTION _sas.sees_run_as(caller oid, run_id bigint) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT FROM _sas.run r
                   WHERE r.run_id = $2 AND r.hook_of IS NULL AND _sas.may_see($1, r.owner))
$$;

-- _sas.visible_run(run_id): raises an error unless the current user may see that run.
CREATE FUNCTION _sas.visible_run(run_id bigint) RETURNS void
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT _sas.refuse('42704', format('run %s does not exist, or is not yours', coalesce($1::text, 'null')),
                       'At /run_id.', 'See sas.runs for your runs.')
    WHERE NOT _sas.sees_run($1);
END;

-- _sas.short_span(span): a span of time for a reader: the two largest units, nothing below a second.
CREATE FUNCTION _sas.short_span(span interval) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE WHEN s.n < 1 THEN 'less than 1 s'
                WHEN s.n < 60 THEN floor(s.n) || ' s'
                WHEN s.n < 3600 THEN floor(s.n / 60) || ' min' || CASE WHEN floor(s.n)::bigint % 60 > 0
                    AND s.n < 600 THEN ' ' || floor(s.n)::bigint % 60 || ' s' ELSE '' END
                WHEN s.n < 86400 THEN floor(s.n / 3600) || ' h' || CASE
                    WHEN floor(s.n / 60)::bigint % 60 > 0 THEN ' ' || floor(s.n / 60)::bigint % 60 || ' min'
                    ELSE '' END
                ELSE floor(s.n / 86400) || CASE WHEN s.n < 172800 THEN ' day' ELSE ' days' END || CASE
                    WHEN floor(s.n / 3600)::bigint % 24 > 0 THEN ' ' || floor(s.n / 3600)::bigint % 24
                    || ' h' ELSE '' END END
    FROM (SELECT abs(extract(epoch FROM span)) AS n) s;
END;

-- _sas.instant(at, now): an instant for a reader: the time of day, and how far away it is; null if at is.
-- Not STRICT, so that it is inlined: a function that is called inside another one is planned at each call of
-- that one.
CREATE FUNCTION _sas.instant(at timestamptz, now timestamptz) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT to_char(at, CASE WHEN at::date = now::date THEN 'HH24:MI:SS' ELSE 'YYYY-MM-DD HH24:MI:SS' END)
           || CASE WHEN at > now THEN ' (in ' || _sas.short_span(at - now) || ')'
                   ELSE ' (' || _sas.short_span(now - at) || ' ago)' END;
END;

-- _sas.quantity(n, one, many): "1 run", "3000 runs".
CREATE FUNCTION _sas.quantity(n bigint, one text, many text DEFAULT NULL) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT n || ' ' || CASE WHEN n = 1 THEN one ELSE coalesce(many, one || 's') END;
END;

-- _sas.times(n): "once", "twice", "3 times".
CREATE FUNCTION _sas.times(n bigint) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE n WHEN 1 THEN 'once' WHEN 2 THEN 'twice' ELSE n || ' times' END;
END;

-- _sas.full_memory(agent): the clause for calls that wait until answers are stored; null: there is memory.
-- One owner can hold at most half of the memory of a worker at one agent. Only the worker knows whose calls
-- hold how much of it, so the clause names no role.
CREATE FUNCTION _sas.full_memory(agent text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT format('the agent workers hold %s of requests and answers (setting sas.agent_memory, %s each); '
                  'a role with much of that calls agent "%s" again when there is room, other roles call it '
                  'meanwhile',
                  string_agg(pg_size_pretty(w.memory), ', '), current_setting('sas.agent_memory'), $1)
    FROM sas.workers w WHERE w.actor = 'agent'
    HAVING min(w.memory) > pg_size_bytes(current_setting('sas.agent_memory')) / 2 - 1000000;
END;

-- _sas.not_called(agent, until): the clause that this agent is not called until then, and which of its
-- breakers for single paths are open, since that may be the reason.
CREATE FUNCTION _sas.not_called(agent text, until text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT format('"%s" is not called again until %s%s', $1, $2, (
        SELECT format('; its breaker for %s is open; sas.reset_agent(%L) lets a call through now',
                      string_agg(format('"%s"', p.path), ', ' ORDER BY p.path), $1)
        FROM sas.agents a CROSS JOIN LATERAL jsonb_each_text(a.path_breakers) AS p (path, breaker)
        WHERE a.name = $1 AND p.breaker = 'open' HAVING count(*) > 0));
END;

-- _sas.all_taken(kind, what): the clause that a limit is reached: how many there may be, and are.
CREATE FUNCTION _sas.all_taken(kind text, what text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT CASE kind
        WHEN 'slot' THEN format('all places of agent "%s" are taken: %s', what, (
            SELECT a.in_flight || ' of ' || a.max_in_flight FROM sas.agents a WHERE a.name = what))
        WHEN 'role_slots' THEN format(
            'agent "%s" keeps free places for other roles that use it, too: %s are taken', what, (
            SELECT a.in_flight || ' of ' || a.max_in_flight FROM sas.agents a WHERE a.name = what))
        WHEN 'queue' THEN (
            SELECT format(CASE WHEN q.running < q.max_running
                          THEN 'queue "%s" keeps free places for other roles that use it, too: %s are taken'
                          ELSE 'all places of queue "%s" are taken: %s' END,
                          what, q.running || ' of ' || q.max_running)
            FROM sas.queues q WHERE q.name = what)
        WHEN 'agent_key' THEN (
            SELECT format('agent "%s" makes at most %s calls with the same key (%s) at once', what,
                          coalesce(a.concurrency ->> 'per_key', '1'), a.concurrency ->> 'key')
            FROM sas.agents a WHERE a.name = what)
        WHEN 'queue_key' THEN (
            SELECT format('queue "%s" runs at most %s of its steps with the same key (%s) at once', what,
                          q.per_key, q.key)
            FROM sas.queues q WHERE q.name = what)
        WHEN 'map_slot' THEN 'other elements of the map have all slots of its "concurrency"'
        ELSE format('functions of role "%s" run on as many workers as may: %s (limit function_workers)',
                    what, (SELECT l.used || ' of ' || l.value FROM sas.limits l
                           WHERE l.role = what AND l.name = 'function_workers')) END;
END;

-- _sas.quarantine_told(): for any role, the clause that says why this is a copy in quarantine and what ends
-- that; null: it is none.
CREATE FUNCTION _sas.quarantine_told() RETURNS text
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_verb';

-- _sas.quarantine_told_as(caller): the body of _sas.quarantine_told.
CREATE FUNCTION _sas.quarantine_told_as(caller oid) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('; this is a copy in quarantine (%s): no worker runs until an admin calls sas.release()',
                  q.reason)
    FROM _sas.quarantined_for() q (reason) WHERE q.reason IS NOT NULL
$$;

-- _sas.no_worker(what, setting): why no such worker runs, as sas.health() knows it.
CREATE FUNCTION _sas.no_worker(what text, setting text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT CASE
        WHEN pg_is_in_recovery() THEN 'the server is a standby, on which no worker runs'
        WHEN NOT l.loaded THEN 'no worker can start: library "sas" is not preloaded (setting '
                               'shared_preload_libraries)'
        WHEN l.launcher_pid IS NULL THEN 'no worker can start: the launcher of sas does not run'
        WHEN l.excluded_by IS NOT NULL
        THEN format('process %s keeps all workers away: it restores a dump, or changes the extension',
                    l.excluded_by)
        WHEN _sas.quarantine_told() IS NOT NULL THEN what
        WHEN l.slots_missing > 0 THEN format(
            '%s in this database, and %s without a slot (setting max_worker_processes)', what,
            _sas.quantity(l.slots_missing, 'worker is', 'workers are'))
        ELSE format('%s in this database (setting %s)', what, setting) END
    FROM _sas.launcher_state() l;
END;

-- _sas.cause(kind, what, until): the clause that says what steps with that waiting_kind wait for, and what an
-- operator can do. until: as _sas.instant tells it. The SET keeps the planner from parsing a body that it
-- cannot inline.
CREATE FUNCTION _sas.cause(kind text, what text, until text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT CASE WHEN kind = ANY ('{slot,role_slots,function_workers,queue,queue_key,agent_key,map_slot}')
        THEN _sas.all_taken(kind, what) ELSE CASE kind
        WHEN 'breaker' THEN format(
            'the breaker of agent "%s" is %s; sas.reset_agent(%L) lets a call through now', what,
            coalesce('open until ' || until,
                     'half-open, until the next call has shown whether the service is back'), what)
        WHEN 'rate' THEN format('the rate limit of agent "%s" (%s) lets none through just now', what, (
            SELECT a.rate_limit FROM sas.agents a WHERE a.name = what))
        WHEN 'agent_disabled' THEN format(
            'agent "%s" is disabled; sas.resume_agent(%L) releases its calls', what, what)
        WHEN 'secret' THEN format('agent "%s" refers to a secret that is not set; see sas.set_secret', what)
        WHEN 'agent' THEN CASE
            WHEN EXISTS (SELECT FROM sas.agents a WHERE a.name = what AND a.kind = 'external')
            THEN format('no outside program has claimed the task from agent "%s" yet', what)
            WHEN EXISTS (SELECT FROM sas.workers w WHERE w.actor = 'agent') THEN coalesce(
                _sas.full_memory(what), 'a worker takes what is ready for agent "' || what || '" next')
            ELSE _sas.no_worker('no agent worker runs', 'sas.agents') END
        WHEN 'worker' THEN CASE
            WHEN EXISTS (SELECT FROM sas.workers w WHERE w.actor = 'function')
            THEN 'function workers take what is ready as soon as they are free'
            ELSE _sas.no_worker('no function worker runs', 'sas.function_workers') END
        WHEN 'queue_paused' THEN format(
            'queue "%s" is paused; sas.resume_queue(%L) releases its steps', what, what)
        WHEN 'workflow_paused' THEN format(
            'workflow "%s" is paused; sas.resume_workflow(%L) releases its runs', what, what)
        WHEN 'place' THEN format('the limit of open runs with %s is reached',
                                 coalesce('key "' || left(what, 200) || '"', 'its key'))
        WHEN 'run' THEN format(CASE WHEN what LIKE '%,%' THEN 'runs %s have' ELSE 'run %s has' END
                               || ' not stopped yet', what)
        WHEN 'start_at' THEN 'the set start is at ' || until
        WHEN 'reply' THEN concat('a worker is running it', ', with "' || what || '"',
                                 '; a reply counts until ' || until)
        WHEN 'answered' THEN concat('the reply', ' of "' || what || '"', ' has arrived',
                                    ', and is applied when nobody holds the run')
        WHEN 'cool_off' THEN coalesce('"' || what || '"', 'a step')
            || ' failed, and is tried again at ' || until
        WHEN 'aside' THEN 'it could not be claimed (alert "stuck" in sas.alerts says why), and is tried '
            'again at ' || until
        WHEN 'retry' THEN _sas.not_called(what, until)
        WHEN 'supervisor' THEN CASE
            WHEN EXISTS (SELECT FROM sas.workers w WHERE w.actor = 'supervisor' AND w.leader)
            THEN 'a step failed, and the supervisor decides next'
            ELSE 'a step failed, and ' || _sas.no_worker('no supervisor leads', 'sas.supervisors') END
        WHEN 'scheduler' THEN CASE
            WHEN EXISTS (SELECT FROM sas.workers w WHERE w.actor = 'scheduler')
            THEN 'the scheduler handles it next'
            ELSE _sas.no_worker('no scheduler runs', 'sas.schedulers') END
        WHEN 'signal' THEN format('signal "%s" has not arrived yet', replace(what, ' or ', '" or "'))
            || coalesce('; it is waited for until ' || until, '')
        WHEN 'timer' THEN 'a set time comes at ' || until
        WHEN 'turn' THEN 'the next iteration is at ' || until
        WHEN 'poll' THEN format('"%s" has not finished yet, and is polled again at ', what)
            || until
        WHEN 'elements' THEN 'not all elements have ended'
        WHEN 'map_end' THEN 'an element of a map failed; the map runs through before it is retried'
        WHEN 'child' THEN format('a child run of workflow "%s" has not stopped yet', what)
        WHEN 'fallback' THEN format('fallback "%s" runs instead of the step', what)
        WHEN 'undo' THEN 'others are undone before it'
        WHEN 'resume' THEN format('it was paused by %s; see sas.runs.paused_for, then sas.resume', what)
        ELSE kind END END;
END;

-- _sas.explain_run(run_id, steps, ended, undone, to_undo): the sentence about the run as a whole. The
-- numbers count its steps; undone and to_undo count elements, too, while it is undone.
CREATE FUNCTION _sas.explain_run(run_id bigint, steps bigint, ended bigint, undone bigint, to_undo bigint)
RETURNS TABLE (waiting_kind text, waiting_on text, waiting_until timestamptz, text text)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT w.kind, w.what, w.until,
           format('run %s of workflow "%s" ', run.run_id, run.workflow)
           || CASE run.state
              WHEN 'stopped' THEN format('ended at %s with result %s', _sas.instant(run.finished_at, n.now),
                                         run.result)
                  || CASE WHEN run.error ? 'title' THEN ': ' || _sas.title(run.error) ELSE '' END
              WHEN 'scheduled' THEN 'has not begun: '
                  || _sas.cause(w.kind, CASE WHEN w.kind <> 'place' THEN coalesce(w.what, run.workflow) END,
                                _sas.instant(w.until, n.now))
                  || CASE WHEN w.kind = 'run' AND run.schedule IS NOT NULL
                     THEN format('; schedule "%s" runs one after the other', run.schedule) ELSE '' END
                  || coalesce((SELECT format(' (%s)', string_agg('run ' || u, ', '))
                               FROM unnest(_sas.ahead(run.run_id)) u
                               WHERE w.kind = 'place' HAVING count(*) > 0), '')
              WHEN 'paused' THEN format(
                  'is paused by %s since %s: %s; sas.resume(%s) continues it, sas.%s(%s) %s it',
                  coalesce(run.paused_by, 'nobody'), _sas.instant(run.paused_at, n.now),
                  coalesce(run.paused_for, 'no reason is stored')
                  || CASE WHEN run.error ? 'undo_error'
                     THEN format('; it is being undone because of: %s', _sas.title(run.error)) ELSE '' END,
                  -- a run that is being undone refuses sas.cancel
                  run.run_id, CASE WHEN $5 > 0 THEN 'halt' ELSE 'cancel' END, run.run_id,
                  CASE WHEN $5 > 0 THEN 'stops' ELSE 'ends' END)
              WHEN 'compensating' THEN format('%s (%s) and is being undone: %s of %s undone',
                                              CASE WHEN run.error ->> 'type' IN ('urn:sas:cancelled',
                                                                                 'urn:sas:replaced',
                                                                                 'urn:sas:compensated')
                                                   THEN 'was stopped' ELSE 'failed' END,
                                              _sas.title(run.error), $4,
                                              _sas.quantity($4 + $5, 'step is', 'steps are'))
              ELSE format('%s: %s of %s ended',
                          coalesce('began at ' || _sas.instant(run.started_at, n.now),
                                   'was submitted at ' || _sas.instant(run.created_at, n.now)),
                          $3, _sas.quantity($2, 'step has', 'steps have')) END
           || CASE WHEN run.state = 'stopped' THEN ''
                   WHEN run.deadline <= n.now
                   THEN '; its deadline passed at ' || _sas.instant(run.deadline, n.now)
                   WHEN run.deadline < n.now + interval '1 day'
                   THEN '; its deadline is ' || _sas.instant(run.deadline, n.now) ELSE '' END
           || CASE WHEN run.state <> 'stopped' THEN coalesce(_sas.quarantine_told(), '') ELSE '' END
    FROM sas.runs run
    CROSS JOIN (SELECT sas.now() AS now) n
    CROSS JOIN LATERAL (
        SELECT k.kind, CASE k.kind
                       -- the caller may see none of them
                       WHEN 'run' THEN coalesce((SELECT string_agg(o.run_id::text, ', ' ORDER BY o.run_id)
                                                 FROM sas.runs o WHERE o.run_id = ANY (run.after_runs)
                                                 AND o.state <> 'stopped'),
                                                array_to_string(run.after_runs, ', '))
                       WHEN 'resume' THEN run.paused_by
                       WHEN 'workflow_paused' THEN run.workflow END AS what,
               CASE k.kind WHEN 'start_at' THEN run.start_at END AS until
        FROM (SELECT CASE run.state WHEN 'paused' THEN 'resume'
                     WHEN 'scheduled' THEN CASE run.waits_for WHEN 'workflow' THEN 'workflow_paused'
                                           ELSE run.waits_for END END AS kind) k OFFSET 0) w
    WHERE run.run_id = $1;
END;

-- _sas.waits(n, span): the verb of the sentence about a step, or about n elements of it, that
-- waits. span: for how long; null: it is not told.
CREATE FUNCTION _sas.waits(n bigint, span text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE WHEN $1 > 1 THEN coalesce(' have waited for ' || $2, ' wait')
                ELSE coalesce(' has waited for ' || $2, ' waits') END;
END;

-- _sas.told_failure(kind, elements, failures, error, until, doubt, cause): how a failed step, or these
-- elements of it, go on; error: of the first of them; null: they do not wait for that.
CREATE FUNCTION _sas.told_failure(kind text, elements int[], failures int, error jsonb, until text,
                                  doubt text, cause text) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT CASE WHEN cardinality(elements) > 1 THEN format('each failed ([%s]: ', elements[1])
           ELSE format('it failed%s (', CASE kind WHEN 'cool_off' THEN ' ' || _sas.times(failures) END) END
        || _sas.title(error) || ')' || CASE kind
        WHEN 'cool_off' THEN concat(', and is tried again', CASE WHEN cardinality(elements) > 1
                                                            THEN ', the first' END, ' at ', until)
        WHEN 'supervisor' THEN '; ' || split_part(cause, ', and ', 2)
        WHEN 'resume' THEN concat(', and is retried when the run is resumed', doubt)
        WHEN 'map_end' THEN ', and is retried with the others when the map has run through and the run is '
                            'resumed' END;
END;

-- _sas.elements_told(total, remaining, failed): how far a map, or a repeat, is.
CREATE FUNCTION _sas.elements_told(total bigint, remaining bigint, failed bigint) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT format('%s of its %s ended', $1 - $2, _sas.quantity($1, 'element has', 'elements have'))
           || CASE WHEN $3 > 0 THEN format(', %s of them failed', $3) ELSE '' END;
END;

-- _sas.children_told(n, workflow, run_ids): which child runs of this workflow are open; null: n is 0.
CREATE FUNCTION _sas.children_told(n bigint, workflow text, run_ids bigint[]) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT format('%s of workflow "%s" %s not stopped yet: %s%s',
                  _sas.quantity($1, 'child run', 'child runs'), $2, CASE $1 WHEN 1 THEN 'has' ELSE 'have' END,
                  array_to_string($3, ', '), CASE WHEN $1 > 20 THEN ' ...' END) WHERE $1 > 0;
END;

-- _sas.told_steps(run_id): the steps of a run that sentences tell of, and which of its elements wait. It
-- reads sas.steps once, because the plan of that view takes longest; of many elements that wait alike it
-- reads fifty, each of which counts as several (weight).
CREATE FUNCTION _sas.told_steps(run_id bigint)
RETURNS TABLE (step text, "position" int, element int, state text, run_state text, waiting_kind text,
               waiting_on text, waiting_until timestamptz, waiting_since timestamptz, locked_by text,
               failure_count int, asks int, error jsonb, in_doubt boolean, weight float8)
LANGUAGE sql STABLE
BEGIN ATOMIC
    WITH alike AS MATERIALIZED (
        SELECT g.step, e AS element, g.n::float8 / cardinality(g.elements) AS weight
        FROM _sas.element_groups(ARRAY[$1]) g CROSS JOIN LATERAL unnest(g.elements) e)
    SELECT s.step, s.position, s.element, s.state, s.run_state, s.waiting_kind, s.waiting_on,
           s.waiting_until, s.waiting_since, s.locked_by, s.failure_count, s.asks, s.error, s.in_doubt,
           coalesce(a.weight, 1)
    FROM sas.steps s LEFT JOIN alike a ON a.step = s.step AND a.element = s.element
    WHERE s.run_id = $1
      AND (s.element IS NULL OR s.element = ANY (ARRAY(SELECT x.element FROM alike x)))
      AND (s.element IS NULL OR a.element IS NOT NULL);
END;

-- _sas.sentences(run_id): one sentence about the run, then one for each step, or group of its elements,
-- that waits for the same thing; ordered by n: steps that wait for other steps come last.
CREATE FUNCTION _sas.sentences(run_id bigint)
RETURNS TABLE (n bigint, step text, waiting_kind text, waiting_on text, waiting_until timestamptz, text text)
LANGUAGE sql STABLE
BEGIN ATOMIC
    WITH step AS MATERIALIZED (SELECT * FROM _sas.told_steps($1)),
    part AS (
        SELECT s.step, s.waiting_kind, s.waiting_on, s.state = 'compensating' AS undo,
               min(s.position) AS position, min(s.waiting_until) AS until, min(s.waiting_since) AS since,
               array_remove(array_agg(s.element ORDER BY s.element), NULL) AS elements,
               round(sum(s.weight)) AS quantity,
               min(s.locked_by) AS locked_by, max(s.failure_count) AS failures, max(s.asks) AS asks,
               min(CASE WHEN s.in_doubt THEN _sas.doubt_told($1, s.step, s.element) END) AS doubt,
               (array_agg(s.error ORDER BY s.element) FILTER (WHERE s.error IS NOT NULL))[1] AS error
        FROM step s
        WHERE s.waiting_kind IS NOT NULL
          -- the sentence about the run has it already
          AND NOT (s.waiting_kind IN ('run', 'start_at', 'workflow_paused', 'place')
                   OR s.run_state = 'scheduled'
                   OR s.waiting_kind = 'resume' AND s.state NOT IN ('failed', 'compensating'))
        GROUP BY 1, 2, 3, 4),
    -- thousands of steps may have a few causes; to tell one takes the plans of several views
    cause AS MATERIALIZED (
        SELECT d.*, _sas.cause(d.waiting_kind, d.waiting_on, _sas.instant(d.until, sas.now())) AS told
        FROM (SELECT DISTINCT p.waiting_kind, p.waiting_on, p.until FROM part p
              WHERE p.waiting_kind <> 'steps') d)
    SELECT 0, NULL, run.*
    FROM (SELECT count(*) AS n, count(*) FILTER (WHERE s.state = 'compensated')
                 + CASE WHEN bool_or(s.run_state = 'compensating')
                   THEN (SELECT coalesce(sum(g.n), 0) FROM _sas.element_groups(ARRAY[$1]) g
                         WHERE g.state = 'compensated')::bigint ELSE 0 END AS undone,
                 (SELECT coalesce(round(sum(t.weight)), 0) FROM step t
                  WHERE t.state = 'compensating' OR t.waiting_kind = 'undo')::bigint AS to_undo,
                 count(*) FILTER (WHERE s.waiting_kind IS NULL AND s.state IN (
                     'succeeded', 'failed', 'skipped', 'cancelled', 'compensated')) AS ended
          FROM step s WHERE s.element IS NULL) c
    CROSS JOIN LATERAL _sas.explain_run($1, c.n, c.ended, c.undone, c.to_undo) run
    UNION ALL
    SELECT row_number() OVER (ORDER BY p.waiting_kind = 'steps', p.waiting_kind = 'undo', p.position, p.step,
                              p.elements, p.waiting_kind, p.waiting_on),
           p.step, p.waiting_kind, p.waiting_on, p.until,
           CASE WHEN p.undo THEN 'the undo of ' ELSE '' END || 'step "' || p.step || '"'
           || _sas.elements(p.elements, p.quantity::bigint)
           || _sas.waits(p.quantity::bigint, CASE WHEN p.waiting_kind NOT IN ('undo', 'elements', 'fallback')
                                                  AND p.since < n.now
                                             THEN _sas.short_span(n.now - p.since) END) || ': '
           || CASE p.waiting_kind
              WHEN 'steps' THEN coalesce('other steps come before it: ' || p.waiting_on,
                                         'all other steps come before it')
              WHEN 'reply' THEN CASE WHEN p.quantity > 1 THEN 'workers have them'
                  ELSE coalesce('worker "' || p.locked_by || '"', 'a worker') || ' has it' END
                  || coalesce(', with "' || p.waiting_on || '"', '')
                  || coalesce('; a reply counts until ' || _sas.instant(p.until, n.now), '')
              WHEN 'elements' THEN _sas.elements_told(f.total, f.remaining, f.failed)
              WHEN 'poll' THEN c.told
                  || CASE WHEN p.asks > 0 AND NOT cardinality(p.elements) > 1
                     THEN '; it was polled ' || _sas.times(p.asks) ELSE '' END
              WHEN 'child' THEN coalesce(
                  _sas.children_told(f.open_children, p.waiting_on, f.children), c.told)
              ELSE coalesce(_sas.told_failure(p.waiting_kind, p.elements, p.failures, p.error,
                                              _sas.instant(p.until, n.now), p.doubt, c.told), c.told) END
    FROM part p
    CROSS JOIN (SELECT sas.now() AS now) n
    LEFT JOIN cause c ON c.waiting_kind = p.waiting_kind
        AND coalesce(c.waiting_on, '') = coalesce(p.waiting_on, '')
        AND coalesce(c.until, 'infinity') = coalesce(p.until, 'infinity')
    LEFT JOIN _sas.run_facts($1) f ON f.step = p.step;
END;

CREATE FUNCTION sas.explain(run_id bigint)
RETURNS TABLE (run_id bigint, step text, waiting_kind text, waiting_on text, waiting_until timestamptz,
               text text)
LANGUAGE sql STABLE SET jit = off
BEGIN ATOMIC
    SELECT _sas.visible_run($1);
    WITH RECURSIVE tree AS (
        SELECT $1 AS id, '{}'::bigint[] AS path
        UNION ALL
        SELECT c.id, t.path || c.id
        FROM tree t CROSS JOIN LATERAL (
            SELECT u AS id FROM _sas.run_facts(t.id) f, unnest(f.children) u
            WHERE _sas.sees_run(u) ORDER BY u LIMIT 20) c)
    SELECT t.id, s.step, s.waiting_kind, s.waiting_on, s.waiting_until, s.text
    FROM tree t CROSS JOIN LATERAL _sas.sentences(t.id) s
    ORDER BY t.path, s.n;
END;
COMMENT ON FUNCTION sas.explain(bigint) IS
    'Why a run is in its state, in words: one row per sentence, about the run, each step that waits, and '
    'its open child runs.';

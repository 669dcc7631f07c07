-- SPDX-License-Identifier: PostgreSQL
--
-- Why: what one run, or all of them, wait for, in words. What is told comes
-- from the views, as the role that asks, so nobody learns here what the views
-- do not show. What no view has (how the steps hang together, how far a map
-- is, which child runs there are) comes from internal functions that ask for
-- the caller's right themselves.

-- _sas.may_see(caller, owner): may this role look at runs of that owner?
CREATE FUNCTION _sas.may_see(caller oid, owner oid) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT pg_has_role($1, $2, 'MEMBER') OR _sas.has_level($1, 'admin') OR _sas.has_level($1, 'operator')
        OR _sas.has_level($1, 'monitor')
$$;

-- _sas.run_facts(run_id): of the steps of a run that go over elements or have child runs: how far they are.
--   children: the first twenty child runs that are open; open_children: how many there are. No rows for who
--   may not see the run.
CREATE FUNCTION _sas.run_facts(run_id bigint)
RETURNS TABLE (step text, total int, begun int, remaining int, failed int, children bigint[],
               open_children bigint)
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_verb';

CREATE FUNCTION _sas.run_facts_as(caller oid, run_id bigint)
RETURNS TABLE (step text, total int, begun int, remaining int, failed int, children bigint[],
               open_children bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT w.name, f.total, f.fed, f.remaining, f.failed, c.first, coalesce(c.n, 0)
    FROM _sas.run r
    JOIN _sas.workflow_step w ON w.version_id = r.version_id AND NOT w.undo
        AND (w.kind = 'workflow' OR w.shape ?| '{each,repeat}')
    LEFT JOIN _sas.fan f ON f.run_id = r.run_id AND f.step_no = w.step_no
    LEFT JOIN LATERAL (SELECT (array_agg(o.run_id ORDER BY o.run_id))[:20] AS first, count(*) AS n
                       FROM _sas.run o
                       WHERE o.parent_run_id = r.run_id AND o.parent_step_no = w.step_no
                           AND o.state <> 'stopped') c ON true
    WHERE r.run_id = $2 AND _sas.may_see($1, r.owner)
$$;

-- _sas.ahead(run_id): of a run that waits for a place under its key: which runs hold the places, the first
-- twenty.
CREATE FUNCTION _sas.ahead(run_id bigint) RETURNS bigint[]
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_verb';

CREATE FUNCTION _sas.ahead_as(caller oid, run_id bigint) RETURNS bigint[]
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT (array_agg(h.run_id ORDER BY h.run_id))[:20]
    FROM _sas.run r
    JOIN _sas.run_place p ON p.run_id = r.run_id
    JOIN _sas.run_place h ON h.workflow_id = p.workflow_id AND h.key = p.key AND h.state = 'holds'
    JOIN _sas.run o ON o.run_id = h.run_id
    WHERE r.run_id = $2 AND _sas.may_see($1, r.owner) AND _sas.may_see($1, o.owner)
$$;

-- _sas.visible_run(run_id): raises unless the current user sees that run.
CREATE FUNCTION _sas.visible_run(run_id bigint) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM sas.runs r WHERE r.run_id = $1) THEN
        RAISE EXCEPTION 'run % does not exist, or is not yours', coalesce($1::text, 'null')
            USING ERRCODE = 'undefined_object', HINT = 'See sas.runs for those that are.';
    END IF;
END $$;

-- _sas.short_span(span): for a person: the two largest units, nothing below a second.
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

-- _sas.instant(at, now): for a person: the time of day, and how far away it is.
CREATE FUNCTION _sas.instant(at timestamptz, now timestamptz) RETURNS text
LANGUAGE sql STABLE STRICT PARALLEL SAFE
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

-- _sas.title(error): what an error is about, in a few words.
CREATE FUNCTION _sas.title(error jsonb) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT coalesce(left(error ->> 'title', 200), 'no error is told');
END;

-- _sas.cause(kind, what, until, now): a clause that says what steps of that waiting_kind wait for, and what
-- an operator can do about it.
CREATE FUNCTION _sas.cause(kind text, what text, until timestamptz, now timestamptz) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE kind
        WHEN 'steps' THEN CASE WHEN what IS NULL THEN 'all other steps come before it'
            ELSE 'other steps come before it: ' || what END
        WHEN 'breaker' THEN format('the breaker of agent "%s" is %s; sas.reset_agent(%L) lets a call through '
                                   'now', what,
                                   CASE WHEN until IS NULL
                                       THEN 'half-open, until the next call has shown whether the service is '
                                            'back' ELSE 'open until ' || _sas.instant(until, now) END, what)
        WHEN 'slot' THEN format('all places of agent "%s" are taken: %s', what,
                                (SELECT a.in_flight || ' of ' || a.max_in_flight FROM sas.agents a
                                 WHERE a.name = what))
        WHEN 'rate' THEN format('the rate limit of agent "%s" (%s) lets none through just now', what,
                                (SELECT a.rate_limit FROM sas.agents a WHERE a.name = what))
        WHEN 'agent_disabled' THEN format('agent "%s" is disabled; sas.alter_agent(%L, enabled => true) lets '
                                          'its calls go', what, what)
        WHEN 'secret' THEN format('agent "%s" refers to a secret that is not set; see sas.set_secret', what)
        WHEN 'agent' THEN CASE WHEN EXISTS (SELECT FROM sas.agents a WHERE a.name = what
                                            AND a.kind = 'external')
            THEN format('no outside program has claimed the task from agent "%s" yet', what)
                               WHEN EXISTS (SELECT FROM sas.workers w WHERE w.actor = 'agent')
                                   THEN format('a worker takes what is ready for agent "%s" next', what)
                               ELSE 'no agent worker runs in this database (setting sas.agents)' END
        WHEN 'worker' THEN CASE WHEN EXISTS (SELECT FROM sas.workers w WHERE w.actor = 'function')
            THEN 'function workers take what is ready as soon as they are free'
                            ELSE 'no function worker runs in this database (setting sas.function_workers)' END
        WHEN 'queue' THEN format('all places of queue "%s" are taken: %s', what,
                                 (SELECT q.running || ' of ' || q.max_running FROM sas.queues q
                                  WHERE q.name = what))
        WHEN 'queue_paused' THEN format('queue "%s" is paused; sas.resume_queue(%L) lets its steps go', what,
                                        what)
        WHEN 'workflow_paused' THEN format('workflow "%s" is paused; sas.resume_workflow(%L) lets its runs '
                                           'begin', what, what)
        WHEN 'place' THEN CASE WHEN what IS NULL THEN 'as many runs with its key are open as may be'
            ELSE format('as many runs with key "%s" are open as may be', left(what, 200)) END
        WHEN 'run' THEN format('run %s has not stopped yet', what)
        WHEN 'start_at' THEN 'the set start is at ' || _sas.instant(until, now)
        WHEN 'reply' THEN CASE WHEN what IS NULL THEN 'a worker is at it'
            ELSE format('a worker is at it, with "%s"', what) END
            || coalesce('; a reply counts until ' || _sas.instant(until, now), '')
        WHEN 'cool_off' THEN CASE WHEN what IS NULL THEN 'a step'
            ELSE format('"%s"', what) END || ' failed, and is tried again at ' || _sas.instant(until, now)
        WHEN 'retry' THEN format('"%s" is to be left alone until ', what) || _sas.instant(until, now)
        WHEN 'supervisor' THEN CASE WHEN EXISTS (SELECT FROM sas.workers w WHERE w.actor = 'supervisor'
                                                 AND w.leader) THEN 'a step failed, and the supervisor '
                                                                    'decides next'
                                    ELSE 'a step failed, and no supervisor leads in this database (setting '
                                         'sas.supervisors)' END
        WHEN 'scheduler' THEN CASE WHEN EXISTS (SELECT FROM sas.workers w WHERE w.actor = 'scheduler')
            THEN 'the scheduler looks at it next'
                                   ELSE 'no scheduler runs in this database (setting sas.schedulers)' END
        WHEN 'signal' THEN format('signal "%s" has not come yet', what)
            || coalesce('; it is waited for until ' || _sas.instant(until, now), '')
        WHEN 'timer' THEN 'a set time comes at ' || _sas.instant(until, now)
        WHEN 'turn' THEN 'the next turn is at ' || _sas.instant(until, now)
        WHEN 'poll' THEN format('"%s" is not over yet, and is asked again at ', what)
            || _sas.instant(until, now)
        WHEN 'elements' THEN 'not all elements have ended'
        WHEN 'child' THEN format('a child run of workflow "%s" has not stopped yet', what)
        WHEN 'fallback' THEN format('fallback "%s" works in the stead of the step', what)
        WHEN 'undo' THEN 'others are undone before it'
        WHEN 'resume' THEN format('the run was paused by %s', what)
        ELSE kind END
$$;

-- _sas.explain_database(): what all open runs wait for, largest groups first.
CREATE FUNCTION _sas.explain_database()
RETURNS TABLE (waiting_kind text, waiting_on text, runs bigint, steps bigint, since timestamptz,
               until timestamptz, text text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET jit = off AS $$
    SELECT g.waiting_kind, g.waiting_on, g.runs, g.steps, g.since, g.until,
           _sas.quantity(g.runs, 'run waits: ', 'runs wait: ')
               || _sas.cause(g.waiting_kind, g.waiting_on, g.until, n.now)
    FROM (SELECT s.waiting_kind, s.waiting_on, count(DISTINCT s.run_id) AS runs, count(*) AS steps,
          min(s.waiting_since) AS since, min(s.waiting_until) AS until
          FROM sas.steps s WHERE s.run_state <> 'stopped' AND s.waiting_kind <> 'steps' GROUP BY 1, 2) g
    CROSS JOIN (SELECT _sas.now() AS now) n
    ORDER BY g.runs DESC, g.waiting_kind, g.waiting_on
$$;

CREATE FUNCTION sas.explain() RETURNS TABLE (waiting_kind text, waiting_on text, runs bigint, steps bigint,
                                             since timestamptz, until timestamptz, text text)
LANGUAGE sql STABLE
BEGIN ATOMIC SELECT * FROM _sas.explain_database(); END;
COMMENT ON FUNCTION sas.explain() IS 'What the open runs wait for: a row per cause, with how many runs, '
                                     'since when, and a sentence. Steps that wait for other steps only are '
                                     'left out.';

-- _sas.explain_run(run_id): the first sentence, about the run as a whole.
CREATE FUNCTION _sas.explain_run(run_id bigint)
RETURNS TABLE (waiting_kind text, waiting_on text, waiting_until timestamptz, text text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT w.kind, CASE w.kind WHEN 'run' THEN r.after_run::text WHEN 'workflow_paused' THEN r.workflow
        WHEN 'resume' THEN r.paused_by END, w.until,
           format('run %s of workflow "%s" ', r.run_id, r.workflow)
           || CASE r.state
              WHEN 'stopped' THEN format('ended at %s with result %s', _sas.instant(r.finished_at, n.now),
                                         r.result) || coalesce(': ' || (r.error ->> 'title'), '')
              WHEN 'scheduled' THEN 'has not begun: ' || CASE
                  WHEN w.kind = 'place' THEN _sas.cause('place', NULL, NULL, n.now)
                  || coalesce(' (' || (SELECT string_agg('run ' || u, ', ')
                                       FROM unnest(_sas.ahead(r.run_id)) u) || ')', '')
                                                             ELSE _sas.cause(w.kind, CASE w.kind
                                                                         WHEN 'run' THEN r.after_run::text
                                                                         ELSE r.workflow END, w.until,
                                                                         n.now) END
              WHEN 'paused' THEN format('is paused by %s since %s: %s; sas.resume(%s) lets it go on, '
                                        'sas.cancel(%s) ends it', coalesce(r.paused_by, 'nobody'),
                                        _sas.instant(r.paused_at, n.now),
                                        coalesce(r.paused_for, 'nothing is told'), r.run_id, r.run_id)
              WHEN 'compensating' THEN format('cannot go on (%s) and is being undone: %s of %s undone',
                                              _sas.title(r.error), s.undone,
                                              _sas.quantity(s.undone + s.to_undo, 'step is', 'steps are'))
              ELSE format('%s: %s of %s ended', CASE
                          WHEN r.started_at IS NULL THEN 'was submitted at '
                          || _sas.instant(r.created_at, n.now)
                          ELSE 'began at ' || _sas.instant(r.started_at, n.now) END,
                          s.ended, _sas.quantity(s.n, 'step has', 'steps have')) END
           || CASE WHEN r.state <> 'stopped' AND r.deadline <= n.now THEN '; its deadline passed at '
               || _sas.instant(r.deadline, n.now)
                   WHEN r.state <> 'stopped' AND r.deadline < n.now + interval '1 day'
                       THEN '; its deadline is ' || _sas.instant(r.deadline, n.now) ELSE '' END
    FROM sas.runs r
    CROSS JOIN (SELECT _sas.now() AS now) n
    CROSS JOIN LATERAL (SELECT CASE r.state WHEN 'paused' THEN 'resume'
                        WHEN 'scheduled' THEN CASE r.waits_for WHEN 'workflow' THEN 'workflow_paused'
                        ELSE r.waits_for END END AS kind,
                               CASE WHEN r.state = 'scheduled'
                                   AND r.waits_for = 'start_at' THEN r.start_at END AS until) w
    CROSS JOIN LATERAL (SELECT count(*) AS n,
                        count(*) FILTER (WHERE x.state IN ('succeeded', 'failed', 'skipped', 'cancelled',
                                                           'compensated')
                                         AND x.waiting_kind IS NULL) AS ended,
                               count(*) FILTER (WHERE x.state = 'compensated') AS undone,
                                   count(*) FILTER (WHERE x.state = 'compensating'
                                                    OR x.waiting_kind = 'undo') AS to_undo
                        FROM sas.steps x WHERE x.run_id = r.run_id
                            AND (x.element IS NULL OR r.state = 'compensating')) s
    WHERE r.run_id = $1
$$;

-- _sas.elements(ns): which elements of a step: "[1], [2], [3] and 997 more".
CREATE FUNCTION _sas.elements(ns int[]) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE WHEN ns = '{}' THEN ''
        ELSE (SELECT string_agg('[' || n || ']', ', ' ORDER BY n) FROM unnest(ns[:3]) n)
                                            || CASE WHEN cardinality(ns) > 3
                                                    THEN format(' and %s more', cardinality(ns) - 3)
                                                        ELSE '' END END;
END;

-- _sas.explain_steps(run_id): a sentence for each step, or group of its elements, that waits for the same.
CREATE FUNCTION _sas.explain_steps(run_id bigint)
RETURNS TABLE (step text, waiting_kind text, waiting_on text, waiting_until timestamptz, text text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH g AS (
        SELECT s.step, s.waiting_kind, s.waiting_on, s.state = 'compensating' AS undo,
            min(s.waiting_until) AS until, min(s.waiting_since) AS since,
               coalesce(array_agg(s.element ORDER BY s.element) FILTER (WHERE s.element IS NOT NULL),
                        '{}') AS elements,
               min(s.locked_by) AS locked_by, max(s.failure_count) AS failures, max(s.asks) AS asks,
                   (array_agg(s.error ORDER BY s.element) FILTER (WHERE s.error IS NOT NULL))[1] AS error
        FROM sas.steps s
        WHERE s.run_id = $1 AND s.waiting_kind IS NOT NULL
          -- the sentence about the run says it already
          AND NOT (s.waiting_kind IN ('run', 'start_at', 'workflow_paused', 'place')
                   OR s.run_state = 'scheduled' OR s.waiting_kind = 'resume'
                   AND s.state NOT IN ('failed', 'compensating'))
        GROUP BY 1, 2, 3, 4)
    SELECT g.step, g.waiting_kind, g.waiting_on, g.until,
           CASE WHEN g.undo THEN 'the undo of '
               ELSE '' END || 'step "' || g.step || '"' || _sas.elements(g.elements) || ' waits'
           || CASE WHEN g.since < n.now AND g.waiting_kind NOT IN ('undo', 'elements', 'fallback')
               THEN ' since ' || _sas.short_span(n.now - g.since) ELSE '' END || ': '
           || CASE g.waiting_kind
              WHEN 'reply' THEN coalesce(format('worker "%s"', g.locked_by), 'a worker') || ' has it'
                  || coalesce(format(', with "%s"', g.waiting_on), '')
                  || coalesce('; a reply counts until ' || _sas.instant(g.until, n.now), '')
              WHEN 'cool_off' THEN format('it failed %s (%s), and is tried again at %s', CASE g.failures
                                          WHEN 1 THEN 'once' WHEN 2 THEN 'twice'
                                          ELSE g.failures || ' times' END, _sas.title(g.error),
                                          _sas.instant(g.until, n.now))
              WHEN 'supervisor' THEN format('it failed (%s); %s', _sas.title(g.error),
                                            split_part(_sas.cause('supervisor', NULL, NULL, n.now), ', and ',
                                                       2))
              WHEN 'resume' THEN format('it failed (%s), and is tried again when the run is resumed',
                                        _sas.title(g.error))
              WHEN 'elements' THEN format('%s of its %s ended', f.total - f.remaining,
                                          _sas.quantity(f.total, 'element has', 'elements have')) || CASE
                  WHEN f.failed > 0 THEN format(', %s of them failed', f.failed) ELSE '' END
              WHEN 'poll' THEN _sas.cause('poll', g.waiting_on, g.until, n.now) || CASE
                  WHEN g.asks > 0 THEN format('; it was asked %s', CASE g.asks WHEN 1 THEN 'once'
                                              WHEN 2 THEN 'twice' ELSE g.asks || ' times' END) ELSE '' END
              WHEN 'child' THEN CASE WHEN f.open_children > 0
                  THEN _sas.quantity(f.open_children, 'child run', 'child runs')
                  || format(' of workflow "%s" %s not stopped yet: ', g.waiting_on, CASE f.open_children
                            WHEN 1 THEN 'has' ELSE 'have' END)
                                          || array_to_string(f.children, ', ') || CASE
                                              WHEN f.open_children > 20 THEN ' ...' ELSE '' END
                                     ELSE _sas.cause('child', g.waiting_on, NULL, n.now) END
              ELSE _sas.cause(g.waiting_kind, g.waiting_on, g.until, n.now) END
    FROM g
    CROSS JOIN (SELECT _sas.now() AS now) n
    LEFT JOIN _sas.run_facts($1) f ON f.step = g.step
    ORDER BY g.waiting_kind = 'steps', g.waiting_kind = 'undo', g.step, g.elements
$$;

-- _sas.explain_tree(id): one sentence about the run, one per step that waits, then the same of its open child
-- runs.
-- Errors: 42704 no such run, or not visible.
CREATE FUNCTION _sas.explain_tree(id bigint)
RETURNS TABLE (run_id bigint, step text, waiting_kind text, waiting_on text, waiting_until timestamptz,
               text text)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET jit = off AS $$
#variable_conflict use_column
DECLARE
    child bigint;
BEGIN
    PERFORM _sas.visible_run(id);
    RETURN QUERY SELECT id, NULL::text, e.* FROM _sas.explain_run(id) e;
    RETURN QUERY SELECT id, e.* FROM _sas.explain_steps(id) e;
    FOR child IN SELECT u FROM _sas.run_facts(id) f, unnest(f.children) u
        WHERE EXISTS (SELECT FROM sas.runs c WHERE c.run_id = u) ORDER BY u LIMIT 20 LOOP
        RETURN QUERY SELECT * FROM _sas.explain_tree(child);
    END LOOP;
END $$;

CREATE FUNCTION sas.explain(run_id bigint)
RETURNS TABLE (run_id bigint, step text, waiting_kind text, waiting_on text, waiting_until timestamptz,
               text text)
LANGUAGE sql STABLE
BEGIN ATOMIC SELECT * FROM _sas.explain_tree($1); END;
COMMENT ON FUNCTION sas.explain(bigint) IS 'Why a run is where it is, in words: a row per sentence, about '
                                           'the run, each step that waits, and its open child runs.';

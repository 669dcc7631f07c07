-- SPDX-License-Identifier: PostgreSQL
--
-- Console: everything at a glance, as one HTML page. Each function is a part of the page, read from the
-- views as the current user.

-- _sas.console_waiting(look): sas.explain() as a table.
CREATE FUNCTION _sas.console_waiting(look _sas.look) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT _sas.html_section('waiting', 'What open runs wait for',
        _sas.html_table('{waiting_kind,waiting_on,#runs,#steps,since,why}', array_agg(ARRAY[
                _sas.html_badge(e.waiting_kind), _sas.html_escape(e.waiting_on), e.runs::text, e.steps::text,
                _sas.html_time(e.since, look.now),
                _sas.html_escape(substr(e.text, strpos(e.text, ': ') + 2))]
            ORDER BY e.runs DESC, e.waiting_kind, e.waiting_on), 'Nothing waits.')
        || CASE WHEN max(e.total) > 50
           THEN format('<p class="dim">and %s causes more: see sas.explain()</p>', max(e.total) - 50)
           ELSE '' END, 'SELECT * FROM sas.explain()')
    FROM (SELECT x.*, count(*) OVER () AS total FROM sas.explain() x LIMIT 50) e;
END;

-- _sas.console_alerts(look, seen, most): alerts that are neither acknowledged nor closed; seen: all that
-- are kept.
CREATE FUNCTION _sas.console_alerts(look _sas.look, seen boolean, most int) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT _sas.html_section('alerts', CASE WHEN seen THEN 'Alerts' ELSE 'Open alerts' END,
        _sas.html_table('{#alert,kind,run,message,#times,first,last,state}', array_agg(ARRAY[
            a.alert_id::text, _sas.html_badge(a.kind), _sas.console_run_link($1, a.run_id),
            _sas.html_escape(a.message), a.occurrences::text, _sas.html_time(a.created_at, $1.now),
            _sas.html_time(a.last_at, $1.now),
            CASE WHEN a.closed_at IS NOT NULL THEN 'over' WHEN a.acknowledged_at IS NOT NULL THEN 'seen'
            ELSE 'new' END || CASE WHEN a.acknowledged_by IS NULL THEN ''
                           ELSE format(' <span class="dim">by %s</span>',
                                       _sas.html_escape(a.acknowledged_by)) END
            || CASE WHEN a.acknowledged_at IS NULL AND a.closed_at IS NULL
               THEN _sas.console_act($1, 'acknowledge', 'Acknowledge',
                                     jsonb_build_object('alert_id', a.alert_id)) ELSE '' END]
            ORDER BY a.open DESC, a.last_at DESC, a.alert_id DESC), 'None.')
        || _sas.html_more(max(a.total), $3, 'sas.alerts'),
        'sas.acknowledge(alert_id) says that somebody has seen one')
    FROM (SELECT x.*, x.acknowledged_at IS NULL AND x.closed_at IS NULL AS open, count(*) OVER () AS total
          FROM sas.alerts x
          WHERE $2 OR x.acknowledged_at IS NULL AND x.closed_at IS NULL
          ORDER BY x.acknowledged_at IS NULL AND x.closed_at IS NULL DESC, x.last_at DESC, x.alert_id DESC
          LIMIT $3) a;
END;

-- _sas.console_paused(look): runs that wait for an operator.
CREATE FUNCTION _sas.console_paused(look _sas.look) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT _sas.html_section('paused', 'Paused runs',
        _sas.html_table('{#run,workflow,key,by,paused,why}', array_agg(ARRAY[
                _sas.console_run_link(look, p.run_id), _sas.html_escape(p.workflow),
                _sas.html_escape(p.key), _sas.html_escape(p.paused_by), _sas.html_time(p.paused_at, look.now),
                _sas.html_escape(p.paused_for)]
            ORDER BY p.paused_at DESC, p.run_id DESC), 'None.'),
        CASE WHEN max(n.paused) > 25 THEN format('the last 25 of %s; ', max(n.paused)) ELSE '' END
        || 'sas.resume(run_id) continues one, sas.cancel(run_id) ends it; '
        || 'if it is being undone, sas.halt(run_id) stops it')
    FROM (SELECT sum(g.runs) AS paused FROM unnest(look.open) g WHERE g.state = 'paused') n
    CROSS JOIN (SELECT r.run_id, r.workflow, r.key, r.paused_by, r.paused_at, r.paused_for
                FROM sas.runs r
                WHERE r.run_id = ANY (ARRAY(SELECT unnest(g.first) FROM unnest(look.open) g
                                            WHERE g.state = 'paused')) AND r.state = 'paused'
                ORDER BY r.paused_at DESC, r.run_id DESC LIMIT 25) p;
END;

-- _sas.console_oldest(look): runs past their deadline, then those that have been open the longest.
CREATE FUNCTION _sas.console_oldest(look _sas.look) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT _sas.html_section('oldest', 'Open for longest',
        _sas.html_table('{#run,workflow,key,state,submitted,deadline,by,error}', array_agg(ARRAY[
                _sas.console_run_link(look, p.run_id), _sas.html_escape(p.workflow),
                _sas.html_escape(p.key), _sas.html_badge(p.state), _sas.html_time(p.created_at, look.now),
                CASE WHEN p.deadline <= look.now
                THEN '<span class="bad">' || _sas.html_time(p.deadline, look.now) || '</span>'
                ELSE _sas.html_time(p.deadline, look.now) END,
                _sas.html_escape(p.submitted_by::text), _sas.html_escape(p.title)]
            ORDER BY p.deadline > look.now, p.created_at, p.run_id),
            'No run is open but those that are paused.'),
        'past their deadline first; sas.explain(run_id) says why, sas.console(run_id) shows one')
    FROM (SELECT r.run_id, r.workflow, r.key, r.state, r.created_at, r.deadline, r.submitted_by,
                 r.error ->> 'title' AS title
          FROM sas.runs r
          WHERE r.run_id = ANY (ARRAY(SELECT unnest(g.first) FROM unnest(look.open) g
                                      WHERE g.state <> 'paused')) AND r.state NOT IN ('stopped', 'paused')
          ORDER BY r.deadline > look.now, r.created_at, r.run_id LIMIT 12) p;
END;

-- _sas.console_agents(look): each agent, its state and how its recent calls ended; failing and slow ones
-- first.
CREATE FUNCTION _sas.console_agents(look _sas.look) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    WITH tried AS (
        SELECT t.agent, count(*) AS n, count(*) FILTER (WHERE t.status <> 'succeeded') AS failed,
               percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (
                   ORDER BY extract(epoch FROM t.finished_at - t.started_at)::float8 * 1000) AS ms
        FROM sas.attempts t
        WHERE t.run_id = ANY (ARRAY(SELECT _sas.tried_runs()))
            AND (t.element <= 20000) IS NOT FALSE AND t.agent IS NOT NULL GROUP BY 1)
    SELECT _sas.html_section('agents', 'Agents',
        _sas.html_table('{agent,state,in flight,rate limit,#waiting,#attempts *,#failed *,#median *,#95 % *,'
                        'last error,address}', array_agg(ARRAY[
                '<b>' || _sas.html_escape(a.name) || '</b>'
                || CASE a.kind WHEN 'external' THEN ' <span class="dim">external</span>' ELSE '' END,
                -- "closed" alone would read as a closed agent, although a closed breaker lets calls through
                _sas.html_badge(CASE WHEN NOT a.enabled THEN 'disabled'
                                WHEN coalesce(a.breaker, 'closed') = 'closed' THEN 'ok' ELSE a.breaker END)
                || concat(' <span class="dim">', 'breaker ' || a.breaker, ' ',
                          _sas.html_time(a.open_until, look.now), '</span>'),
                _sas.html_meter(a.in_flight, a.max_in_flight), _sas.html_escape(a.rate_limit),
                a.waiting::text, coalesce(t.n, 0)::text,
                CASE WHEN t.failed > 0
                THEN format('<span class="bad">%s (%s %%)</span>', t.failed, round(100.0 * t.failed / t.n, 1))
                ELSE coalesce(t.failed::text, '') END,
                _sas.html_took(t.ms[1]), _sas.html_took(t.ms[2]),
                _sas.html_escape(a.last_error ->> 'title') || ' <span class="dim">'
                || CASE WHEN a.last_error ? 'title' THEN _sas.html_time(a.last_error_at, look.now) ELSE '' END
                || '</span>',
                _sas.html_escape(a.base_url) || _sas.console_agent_acts(look, a.name, a.enabled)]
            ORDER BY NOT a.enabled DESC, coalesce(a.breaker, 'closed') <> 'closed' DESC,
                     coalesce(t.failed::float8 / t.n, 0) DESC, t.ms[2] DESC NULLS LAST, a.name),
            'There are none.'),
        format('* of the newest runs, %s at most', _sas.recent()))
    FROM sas.agents a LEFT JOIN tried t ON t.agent = a.name;
END;

-- _sas.console_errors(look): the errors of recent attempts, the most frequent first.
CREATE FUNCTION _sas.console_errors(look _sas.look) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT _sas.html_section('errors', 'What failed',
        _sas.html_table('{workflow,step,agent,status,#times,#runs,last,error}', array_agg(ARRAY[
                _sas.html_escape(e.workflow),
                _sas.html_escape(CASE WHEN e.undo THEN 'undo of ' ELSE '' END || e.step),
                _sas.html_escape(e.agent), _sas.html_badge(e.status), e.n::text, e.runs::text,
                _sas.html_time(e.last, look.now), _sas.html_escape(e.title)]
            ORDER BY e.n DESC, e.last DESC), 'Nothing.'),
        format('failed attempts of the newest runs, %s at most', _sas.recent()))
    FROM (SELECT r.workflow, t.step, t.undo, t.agent, t.status, t.error ->> 'title' AS title, count(*) AS n,
                 count(DISTINCT t.run_id) AS runs, max(t.finished_at) AS last
          FROM sas.attempts t
          -- OFFSET 0: without it the planner may compare all attempts with all runs
          CROSS JOIN LATERAL (SELECT v.workflow FROM sas.runs v WHERE v.run_id = t.run_id OFFSET 0) r
          WHERE t.run_id = ANY (ARRAY(SELECT _sas.tried_runs()))
            AND (t.element <= 20000) IS NOT FALSE AND t.status <> 'succeeded'
          GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY count(*) DESC, max(t.finished_at) DESC LIMIT 20) e;
END;

-- _sas.console_queues(look): the queues; null: there are none.
CREATE FUNCTION _sas.console_queues(look _sas.look) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT _sas.html_section('queues', 'Queues',
        _sas.html_table('{queue,state,running,#waiting}', array_agg(ARRAY[
            '<b>' || _sas.html_escape(q.name) || '</b>',
            CASE WHEN q.paused_at IS NULL THEN _sas.html_badge('ok')
            ELSE _sas.html_badge('paused') || ' <span class="dim">'
                 || _sas.html_time(q.paused_at, look.now) || '</span>' END
            || _sas.console_act(look, v.verb || '_queue', initcap(v.verb),
                                jsonb_build_object('name', q.name)),
            _sas.html_meter(q.running, q.max_running), q.waiting::text] ORDER BY q.name), ''))
    FROM sas.queues q
    CROSS JOIN LATERAL (SELECT CASE WHEN q.paused_at IS NULL THEN 'pause' ELSE 'resume' END AS verb) v
    HAVING count(*) > 0;
END;

-- _sas.console_workers(look): the workers.
CREATE FUNCTION _sas.console_workers(look _sas.look) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT _sas.html_section('workers', 'Workers',
        _sas.html_table('{#pid,actor,leads,#in flight,#memory,started,last active,calls}', array_agg(ARRAY[
            w.pid::text, _sas.html_escape(w.actor), CASE WHEN w.leader THEN 'yes' END, w.in_flight::text,
            CASE WHEN w.memory > 0 THEN pg_size_pretty(w.memory) END, _sas.html_time(w.started_at, look.now),
            _sas.html_time(w.last_activity_at, look.now), _sas.html_escape(w.calls)]
            ORDER BY w.actor, w.pid), 'No worker runs in this database.'))
    FROM sas.workers w;
END;

-- _sas.console_health(): in words, what an operator should check.
CREATE FUNCTION _sas.console_health() RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT CASE WHEN h.ok THEN _sas.html_badge('ok')
           ELSE _sas.html_badge('not ok') || ' <span>' || _sas.html_escape(concat_ws(', ',
               CASE WHEN h.in_recovery THEN 'a standby'
                    WHEN NOT h.workers_loaded THEN 'the library is not loaded'
                    WHEN h.launcher_pid IS NULL THEN 'no launcher' END,
               CASE WHEN h.workers = 0 AND NOT h.in_recovery THEN 'no workers' END,
               CASE WHEN h.slots_missing > 0
                    THEN _sas.quantity(h.slots_missing, 'worker') || ' without a slot' END,
               h.held_by,
               CASE WHEN h.breakers_open > 0
                    THEN _sas.quantity(h.breakers_open, 'breaker') || ' not closed' END,
               CASE WHEN h.alerts_open > 0
                    THEN _sas.quantity(h.alerts_open, 'open alert') END)) || '</span>' END
    FROM sas.health() h;
END;

-- _sas.console_all(look): the start page, of the whole database.
CREATE FUNCTION _sas.console_all(look _sas.look) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT _sas.html_page(look, 'sas: overview of ' || current_database(),
        _sas.console_top(look, '/', '<h1>Overview</h1>' || _sas.console_health())
        || _sas.console_tiles(look) || _sas.console_waiting(look) || _sas.console_alerts(look, false, 30)
        || _sas.console_paused(look) || _sas.console_workflows(look) || _sas.console_recent(look)
        || _sas.console_agents(look) || _sas.console_errors(look) || _sas.console_oldest(look)
        || _sas.console_timetable(look, 12) || coalesce(_sas.console_queues(look), '')
        || _sas.console_workers(look));
END;

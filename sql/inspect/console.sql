-- SPDX-License-Identifier: PostgreSQL
--
-- Console: everything at a glance, as one HTML page. Each function is a part
-- of the page, read from the views as the role that asks.

-- _sas.newest_run(): the largest run id, so that parts which check recent runs need not check all.
CREATE FUNCTION _sas.newest_run() RETURNS bigint
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_verb';

CREATE FUNCTION _sas.newest_run_as(caller oid) RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(max(r.run_id), 0) FROM _sas.run r
$$;

-- How many of the newest runs are counted where ended runs are.
CREATE FUNCTION _sas.recent() RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC SELECT 5000; END;

-- _sas.oldest_recent(): the least run id of those. Say BETWEEN this AND the largest bigint: so the planner
-- knows that these are few.
CREATE FUNCTION _sas.oldest_recent() RETURNS bigint LANGUAGE sql STABLE
BEGIN ATOMIC SELECT _sas.newest_run() - _sas.recent() + 1; END;

-- _sas.console_tiles(): how many runs there are in each state, and how the recent ones ended.
CREATE FUNCTION _sas.console_tiles() RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    WITH open AS (SELECT r.state AS word, count(*) AS n FROM sas.runs r
                  WHERE r.run_id = ANY (ARRAY(SELECT _sas.open_run_ids()))
                      AND r.state <> 'stopped' GROUP BY 1),
    ended AS (SELECT r.result AS word, count(*) AS n FROM sas.runs r
              WHERE r.run_id BETWEEN (SELECT _sas.oldest_recent()) AND 9223372036854775807
                  AND r.state = 'stopped' GROUP BY 1)
    SELECT '<div class="tiles">' || string_agg(format(
               '<div class="tile s-%s%s" id="runs-%s"><b>%s</b><span>%s</span></div>', w,
               CASE WHEN x.n = 0 THEN ' zero' END, w, x.n, w || CASE WHEN k > 5 THEN '*' ELSE '' END),
               '' ORDER BY k) || E'</div>\n'
    FROM unnest('{scheduled,pending,running,compensating,paused,success,warning,error,compensated,'
                'cancelled}'::text[]) WITH ORDINALITY AS u (w, k)
    CROSS JOIN LATERAL (SELECT coalesce((SELECT o.n FROM open o WHERE o.word = w),
                                        (SELECT e.n FROM ended e WHERE e.word = w), 0) AS n) x;
END;

-- _sas.console_waiting(now): sas.explain() as a table.
CREATE FUNCTION _sas.console_waiting(now timestamptz) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT _sas.html_section('waiting', 'What open runs wait for',
        _sas.html_table('{waiting_kind,waiting_on,#runs,#steps,since,why}', string_agg(
            _sas.html_row(ARRAY[
                _sas.html_badge(e.waiting_kind), _sas.html_escape(e.waiting_on), e.runs::text, e.steps::text,
                _sas.html_time(e.since, now), _sas.html_escape(substr(e.text, strpos(e.text, ': ') + 2))],
                '{3,4}'), '' ORDER BY e.runs DESC, e.waiting_kind, e.waiting_on), 'Nothing waits.')
        || CASE WHEN max(e.total) > 50
           THEN format('<p class="dim">and %s causes more: see sas.explain()</p>', max(e.total) - 50)
           ELSE '' END, 'SELECT * FROM sas.explain()')
    FROM (SELECT x.*, count(*) OVER () AS total FROM sas.explain() x LIMIT 50) e;
END;

-- _sas.console_alerts(now): what is not acknowledged.
CREATE FUNCTION _sas.console_alerts(now timestamptz) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT _sas.html_section('alerts', 'Open alerts',
        _sas.html_table('{#alert,kind,run,message,#times,first,last}', string_agg(
            _sas.html_row(ARRAY[
                a.alert_id::text, _sas.html_badge(a.kind), a.run_id::text, _sas.html_escape(a.message),
                a.occurrences::text, _sas.html_time(a.created_at, now), _sas.html_time(a.last_at, now)],
                '{1,5}'), '' ORDER BY a.last_at DESC, a.alert_id DESC), 'None.')
        || CASE WHEN max(a.total) > 30
           THEN format('<p class="dim">and %s more: see sas.alerts</p>', max(a.total) - 30) ELSE '' END,
        'sas.acknowledge(alert_id) says that somebody has seen one')
    FROM (SELECT x.*, count(*) OVER () AS total FROM sas.alerts x
          WHERE x.acknowledged_at IS NULL AND x.closed_at IS NULL
          ORDER BY x.last_at DESC, x.alert_id DESC LIMIT 30) a;
END;

-- _sas.console_paused(now): runs that wait for a person.
CREATE FUNCTION _sas.console_paused(now timestamptz) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT _sas.html_section('paused', 'Paused runs',
        _sas.html_table('{#run,workflow,key,by,paused,why}', string_agg(
            _sas.html_row(ARRAY[
                p.run_id::text, _sas.html_escape(p.workflow), _sas.html_escape(p.key),
                _sas.html_escape(p.paused_by), _sas.html_time(p.paused_at, now),
                _sas.html_escape(p.paused_for)],
                '{1}'), '' ORDER BY p.paused_at DESC, p.run_id DESC), 'None.'),
        CASE WHEN max(p.total) > 25 THEN format('the last 25 of %s; ', max(p.total)) ELSE '' END
        || 'sas.resume(run_id) continues one, sas.cancel(run_id) ends it')
    FROM (SELECT r.run_id, r.workflow, r.key, r.paused_by, r.paused_at, r.paused_for,
                 count(*) OVER () AS total
          FROM sas.runs r
          WHERE r.run_id = ANY (ARRAY(SELECT _sas.open_run_ids())) AND r.state = 'paused'
          ORDER BY r.paused_at DESC, r.run_id DESC LIMIT 25) p;
END;

-- _sas.console_oldest(now): runs that are past their deadline, then those that are open for longest.
CREATE FUNCTION _sas.console_oldest(now timestamptz) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT _sas.html_section('oldest', 'Open for longest',
        _sas.html_table('{#run,workflow,key,state,submitted,deadline,by,error}', string_agg(
            _sas.html_row(ARRAY[
                p.run_id::text, _sas.html_escape(p.workflow), _sas.html_escape(p.key),
                _sas.html_badge(p.state), _sas.html_time(p.created_at, now),
                CASE WHEN p.deadline <= now
                THEN '<span class="bad">' || _sas.html_time(p.deadline, now) || '</span>'
                ELSE _sas.html_time(p.deadline, now) END,
                _sas.html_escape(p.submitted_by::text), _sas.html_escape(p.title)],
                '{1}'), '' ORDER BY p.deadline > now, p.created_at, p.run_id),
            'No run is open but those that are paused.'),
        'past their deadline first; sas.explain(run_id) says why, sas.console(run_id) shows one')
    FROM (SELECT r.run_id, r.workflow, r.key, r.state, r.created_at, r.deadline, r.submitted_by,
                 r.error ->> 'title' AS title
          FROM sas.runs r
          WHERE r.run_id = ANY (ARRAY(SELECT _sas.open_run_ids())) AND r.state NOT IN ('stopped', 'paused')
          ORDER BY r.deadline > now, r.created_at, r.run_id LIMIT 12) p;
END;

-- _sas.html_meter(used, places): how many of how many, with a bar.
CREATE FUNCTION _sas.html_meter(used bigint, places bigint) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT format('<span class="meter"><i style="width: %s%%"></i></span>%s of %s',
                  least(100, 100 * used / greatest(places, 1)), used, places);
END;

-- _sas.console_agents(now): each agent, its state and how its recent calls went; failing and slow ones
-- first.
CREATE FUNCTION _sas.console_agents(now timestamptz) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    WITH tried AS (
        SELECT t.agent, count(*) AS n, count(*) FILTER (WHERE t.status <> 'succeeded') AS failed,
               percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (
                   ORDER BY extract(epoch FROM t.finished_at - t.started_at)::float8 * 1000) AS ms
        FROM sas.attempts t
        WHERE t.run_id BETWEEN (SELECT _sas.oldest_recent()) AND 9223372036854775807
            AND t.agent IS NOT NULL GROUP BY 1)
    SELECT _sas.html_section('agents', 'Agents',
        _sas.html_table('{agent,state,in flight,rate limit,#waiting,#attempts *,#failed *,#median *,#95 % *,'
                        'last error}', string_agg(
            _sas.html_row(ARRAY[
                '<b>' || _sas.html_escape(a.name) || '</b>'
                || CASE a.kind WHEN 'external' THEN ' <span class="dim">external</span>' ELSE '' END,
                _sas.html_badge(CASE WHEN a.enabled THEN coalesce(a.breaker, 'ok') ELSE 'disabled' END)
                || ' <span class="dim">' || _sas.html_time(a.open_until, now) || '</span>',
                _sas.html_meter(a.in_flight, a.max_in_flight), _sas.html_escape(a.rate_limit),
                a.waiting::text, coalesce(t.n, 0)::text,
                CASE WHEN t.failed > 0
                THEN format('<span class="bad">%s (%s %%)</span>', t.failed, round(100.0 * t.failed / t.n, 1))
                ELSE coalesce(t.failed::text, '') END,
                _sas.html_took(t.ms[1]), _sas.html_took(t.ms[2]),
                _sas.html_escape(a.last_error ->> 'title') || ' <span class="dim">'
                || CASE WHEN a.last_error ? 'title' THEN _sas.html_time(a.last_error_at, now) ELSE '' END
                || '</span>'],
                '{5,6,7,8,9}'), ''
            ORDER BY a.breaker IS DISTINCT FROM 'closed' DESC, coalesce(t.failed::float8 / t.n, 0) DESC,
                     t.ms[2] DESC NULLS LAST, a.name), 'There are none.'),
        format('* of the newest %s runs', _sas.recent()))
    FROM sas.agents a LEFT JOIN tried t ON t.agent = a.name;
END;

-- _sas.console_errors(now): what recent attempts failed with, most frequent first.
CREATE FUNCTION _sas.console_errors(now timestamptz) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT _sas.html_section('errors', 'What failed',
        _sas.html_table('{workflow,step,agent,status,#times,#runs,last,error}', string_agg(
            _sas.html_row(ARRAY[
                _sas.html_escape(e.workflow),
                _sas.html_escape(CASE WHEN e.undo THEN 'undo of ' ELSE '' END || e.step),
                _sas.html_escape(e.agent), _sas.html_badge(e.status), e.n::text, e.runs::text,
                _sas.html_time(e.last, now), _sas.html_escape(e.title)],
                '{5,6}'), '' ORDER BY e.n DESC, e.last DESC), 'Nothing.'),
        format('failed attempts of the newest %s runs', _sas.recent()))
    FROM (SELECT r.workflow, t.step, t.undo, t.agent, t.status, t.error ->> 'title' AS title, count(*) AS n,
                 count(DISTINCT t.run_id) AS runs, max(t.finished_at) AS last
          FROM sas.attempts t JOIN sas.runs r ON r.run_id = t.run_id
          -- of both: the views keep conditions on each other out
          WHERE t.run_id BETWEEN (SELECT _sas.oldest_recent()) AND 9223372036854775807
            AND r.run_id BETWEEN (SELECT _sas.oldest_recent()) AND 9223372036854775807
            AND t.status <> 'succeeded'
          GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY count(*) DESC, max(t.finished_at) DESC LIMIT 20) e;
END;

-- _sas.console_house(now): queues and workers.
CREATE FUNCTION _sas.console_house(now timestamptz) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT coalesce((
        SELECT _sas.html_section('queues', 'Queues',
            _sas.html_table('{queue,state,running,#waiting}', string_agg(
                _sas.html_row(ARRAY[
                    '<b>' || _sas.html_escape(q.name) || '</b>',
                    CASE WHEN q.paused_at IS NULL THEN _sas.html_badge('ok')
                    ELSE _sas.html_badge('paused') || ' <span class="dim">'
                         || _sas.html_time(q.paused_at, now) || '</span>' END,
                    _sas.html_meter(q.running, q.max_running), q.waiting::text],
                    '{4}'), '' ORDER BY q.name), ''))
        FROM sas.queues q HAVING count(*) > 0), '') || (
        SELECT _sas.html_section('workers', 'Workers',
            _sas.html_table('{#pid,actor,leads,#in flight,started,last active}', string_agg(
                _sas.html_row(ARRAY[
                    w.pid::text, _sas.html_escape(w.actor), CASE WHEN w.leader THEN 'yes' END,
                    w.in_flight::text, _sas.html_time(w.started_at, now),
                    _sas.html_time(w.last_activity_at, now)],
                    '{1,4}'), '' ORDER BY w.actor, w.pid), 'No worker runs in this database.'))
        FROM sas.workers w);
END;

-- _sas.console_all(): the page of the whole database.
CREATE FUNCTION _sas.console_all() RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT _sas.html_page('sas: ' || current_database(),
        format(E'<header><h1>%s</h1>%s<span class="dim">%s, as %s</span></header>\n',
               _sas.html_escape(current_database()), (
                   SELECT CASE WHEN h.ok THEN _sas.html_badge('ok')
                          ELSE _sas.html_badge('look') || ' <span>' || _sas.html_escape(concat_ws(', ',
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
                   FROM sas.health() h),
               to_char(n.now, 'YYYY-MM-DD HH24:MI:SS TZ'), _sas.html_escape(current_user::text))
        || _sas.console_tiles() || _sas.console_waiting(n.now) || _sas.console_alerts(n.now)
        || _sas.console_paused(n.now) || _sas.console_agents(n.now) || _sas.console_errors(n.now)
        || _sas.console_oldest(n.now) || _sas.console_timetable(n.now, 12) || _sas.console_house(n.now))
    FROM (SELECT sas.now() AS now) n;
END;

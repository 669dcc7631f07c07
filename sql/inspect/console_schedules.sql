-- SPDX-License-Identifier: PostgreSQL
--
-- Console: schedules and what they submit next, on a page of their own and, in short, on that of all.

-- _sas.console_timetable(now, most): those that are stopped or failing first, then by when they run next.
CREATE FUNCTION _sas.console_timetable(now timestamptz, most int) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT _sas.html_section('schedules', 'Schedules',
        _sas.html_table('{schedule,state,spec,time zone,workflow,owner,next run,last run,#open,#runs,#missed,'
                        '#skipped,error}', string_agg(
            _sas.html_row(ARRAY[
                '<b>' || _sas.html_escape(s.name) || '</b>', _sas.html_badge(s.state),
                _sas.html_escape(s.spec), _sas.html_escape(s.timezone), _sas.html_escape(s.workflow),
                _sas.html_escape(s.owner::text), _sas.html_time(s.next_run_at, now),
                _sas.html_time(s.last_run_at, now) || ' ' || _sas.html_badge(s.last_result),
                s.open_runs::text, s.runs::text, s.missed::text, s.skipped::text,
                _sas.html_escape(coalesce(s.error ->> 'title', s.paused_reason))],
                '{9,10,11,12}'), '' ORDER BY s.place), 'There are none.')
        || CASE WHEN max(s.total) > $2
           THEN format('<p class="dim">and %s more: see sas.schedules</p>', max(s.total) - $2) ELSE '' END,
        'sas.pause_schedule(name) stops one, sas.trigger_schedule(name) runs one now')
    FROM (SELECT x.*, count(*) OVER () AS total, row_number() OVER (
              ORDER BY x.state = 'failed' DESC, x.failures > 0 DESC, x.state = 'paused' DESC,
                       x.next_run_at, x.name) AS place
          FROM sas.schedules x ORDER BY place LIMIT $2) s;
END;

-- _sas.console_calendar(now, most): the next runs of all schedules within a day.
CREATE FUNCTION _sas.console_calendar(now timestamptz, most int) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT _sas.html_section('calendar', 'Next runs',
        _sas.html_table('{runs,local time,time zone,schedule,workflow,owner}', string_agg(
            _sas.html_row(ARRAY[
                _sas.html_time(c.run_at, now),
                _sas.html_escape(to_char(c.scheduled_at AT TIME ZONE c.timezone, 'Dy YYYY-MM-DD HH24:MI:SS')),
                _sas.html_escape(c.timezone), '<b>' || _sas.html_escape(c.schedule) || '</b>',
                _sas.html_escape(c.workflow), _sas.html_escape(c.owner)]),
            '' ORDER BY c.run_at, c.schedule), 'No schedule runs within a day.')
        || CASE WHEN max(c.total) > $2
           THEN '<p class="dim">and more: see sas.calendar()</p>' ELSE '' END,
        'within a day; sas.calendar(from_at, to_at) shows other spans')
    FROM (SELECT x.*, s.timezone, count(*) OVER () AS total
          FROM sas.calendar($1, $1 + interval '1 day') x JOIN sas.schedules s ON s.name = x.schedule
          ORDER BY x.run_at, x.schedule LIMIT $2) c;
END;

CREATE FUNCTION sas.console_schedules() RETURNS text
LANGUAGE sql STABLE SET jit = off
BEGIN ATOMIC
    SELECT _sas.html_page(format('sas: schedules of %s', current_database()),
        format(E'<header><h1>Schedules</h1><span class="dim">%s, %s, as %s</span></header>\n',
               _sas.html_escape(current_database()), to_char(n.now, 'YYYY-MM-DD HH24:MI:SS TZ'),
               _sas.html_escape(current_user::text))
        || _sas.console_timetable(n.now, 500) || _sas.console_calendar(n.now, 200))
    FROM (SELECT sas.now() AS now) n;
END;
COMMENT ON FUNCTION sas.console_schedules IS 'One HTML page of the schedules that the calling role may see, '
                                             'and of what they run within a day.';

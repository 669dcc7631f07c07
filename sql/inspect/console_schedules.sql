-- SPDX-License-Identifier: PostgreSQL
--
-- Console: schedules and what they submit next, on a page of their own and, in short, on the start page.

-- _sas.console_schedule_acts(look, schedule, state): the verbs for a schedule in this state.
CREATE FUNCTION _sas.console_schedule_acts(look _sas.look, schedule text, state text) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT _sas.console_acts(string_agg(_sas.console_act(look, v.verb || '_schedule', initcap(v.verb),
                                                         jsonb_build_object('name', $2)), '' ORDER BY v.n))
    FROM (VALUES (1, 'trigger', true), (2, 'pause', $3 = 'active'), (3, 'resume', $3 IN ('paused', 'failed')))
        AS v (n, verb, fits)
    WHERE v.fits;
END;

-- _sas.console_timetable(look, most): the schedules: stopped or failing ones first, then by their next run.
CREATE FUNCTION _sas.console_timetable(look _sas.look, most int) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT _sas.html_section('schedules', 'Schedules',
        _sas.html_table('{schedule,state,spec,time zone,workflow,owner,next run,last run,#open,#runs,#missed,'
                        '#skipped,error}', array_agg(ARRAY[
                '<b>' || _sas.html_escape(s.name) || '</b>',
                _sas.html_badge(s.state) || CASE s.fires_on
                    WHEN 'here' THEN _sas.console_schedule_acts(look, s.name, s.state) ELSE '' END,
                _sas.html_escape(s.spec), _sas.html_escape(s.timezone), _sas.html_escape(s.workflow),
                _sas.html_escape(s.owner::text), CASE s.fires_on
                    WHEN 'here' THEN _sas.html_time(s.next_run_at, look.now) ELSE 'on the coordinator' END,
                _sas.html_time(s.last_run_at, look.now) || ' ' || _sas.html_badge(s.last_result),
                s.open_runs::text, s.runs::text, s.missed::text, s.skipped::text,
                _sas.html_escape(coalesce(s.error ->> 'title', s.paused_reason))]
            ORDER BY s.place), 'There are none.')
        || _sas.html_more(max(s.total), $2, 'sas.schedules'),
        'sas.pause_schedule(name) stops one, sas.trigger_schedule(name) runs one now')
    FROM (SELECT x.*, count(*) OVER () AS total, row_number() OVER (
              ORDER BY x.state = 'failed' DESC, x.failures > 0 DESC, x.state = 'paused' DESC,
                       x.next_run_at, x.name) AS place
          FROM sas.schedules x ORDER BY place LIMIT $2) s;
END;

-- _sas.console_calendar(look, most): the next runs of all schedules within a day.
CREATE FUNCTION _sas.console_calendar(look _sas.look, most int) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT _sas.html_section('calendar', 'Next runs',
        _sas.html_table('{runs,local time,time zone,schedule,workflow,owner}', array_agg(ARRAY[
                _sas.html_time(c.run_at, look.now),
                _sas.html_escape(to_char(c.scheduled_at AT TIME ZONE c.timezone, 'Dy YYYY-MM-DD HH24:MI:SS')),
                _sas.html_escape(c.timezone), '<b>' || _sas.html_escape(c.schedule) || '</b>',
                _sas.html_escape(c.workflow), _sas.html_escape(c.owner)]
            ORDER BY c.run_at, c.schedule), 'No schedule runs within a day.')
        || CASE WHEN max(c.total) > $2
           THEN '<p class="dim">and more: see sas.calendar()</p>' ELSE '' END,
        'within a day; sas.calendar(from_at, to_at) shows other spans')
    FROM (SELECT x.*, s.timezone, count(*) OVER () AS total
          FROM sas.calendar(look.now, look.now + interval '1 day') x
          JOIN sas.schedules s ON s.name = x.schedule
          ORDER BY x.run_at, x.schedule LIMIT $2) c;
END;

-- _sas.console_schedules_page(look): the page of schedules.
CREATE FUNCTION _sas.console_schedules_page(look _sas.look) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT _sas.html_page(look, format('sas: schedules of %s', current_database()),
        _sas.console_top(look, '/schedules', '<h1>Schedules</h1>')
        || _sas.console_timetable(look, 500) || _sas.console_calendar(look, 200));
END;

-- SPDX-License-Identifier: PostgreSQL
--
-- Schedules: runs that begin by the clock.

CREATE FUNCTION sas.next_times(spec text, timezone text DEFAULT NULL, quantity int DEFAULT 10,
                               after timestamptz DEFAULT NULL) RETURNS SETOF timestamptz
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_next_times';
COMMENT ON FUNCTION sas.next_times IS
    'The next instants of a cron pattern or of "every ..." in a time zone (null: that of the session), '
    'after "after" (null: now).';

CREATE FUNCTION sas.schedule(name text, spec text, workflow text, input jsonb DEFAULT '{}',
                             timezone text DEFAULT NULL, overlap text DEFAULT 'skip',
                             catch_up text DEFAULT 'last', catch_up_window interval DEFAULT '1 day',
                             jitter interval DEFAULT '0', start_at timestamptz DEFAULT NULL,
                             end_at timestamptz DEFAULT NULL, max_runs int DEFAULT NULL,
                             pause_on_failure boolean DEFAULT false, priority int DEFAULT 0,
                             labels jsonb DEFAULT '{}') RETURNS timestamptz
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.schedule IS
    'Submits a run of a workflow at each instant of a cron pattern or of "every ...". Replaces the schedule '
    'of that name; its open runs go on. Returns when it runs next.';

CREATE FUNCTION sas.unschedule(name text) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.unschedule IS 'Removes a schedule. Its runs are kept; open runs go on.';

CREATE FUNCTION sas.pause_schedule(name text, reason text DEFAULT NULL) RETURNS boolean
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.pause_schedule IS
    'Pauses a schedule until it is resumed; its runs go on. False: it was not active.';

CREATE FUNCTION sas.resume_schedule(name text) RETURNS boolean
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.resume_schedule IS
    'Continues a schedule that is paused or has failed with its next instant. False: it was neither.';

CREATE FUNCTION sas.trigger_schedule(name text, OUT run_id bigint, OUT created boolean)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.trigger_schedule IS
    'Submits a run of a schedule now, under its overlap rule. created = false: the rule has skipped it, and '
    'run_id is the open run.';

CREATE FUNCTION sas.backfill_schedule(name text, from_at timestamptz, to_at timestamptz,
                                      overlap text DEFAULT NULL)
RETURNS TABLE (scheduled_at timestamptz, run_id bigint, created boolean)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.backfill_schedule IS
    'Submits the runs of a past span of time, in order, under an overlap rule (null: that of the schedule). '
    'An instant that has its run gets no second one.';

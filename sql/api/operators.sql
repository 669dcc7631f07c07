-- SPDX-License-Identifier: PostgreSQL
--
-- Operators: the verbs for existing runs and steps, for alerts and for the purge.

CREATE FUNCTION sas.pause_runs(run_ids bigint[])
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.pause_runs(bigint[]) IS
    'Pauses runs and the runs below them: calls in progress are finished, nothing new begins. Returns each '
    'run with what was done, or why not.';

CREATE FUNCTION sas.pause(run_id bigint)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE sql BEGIN ATOMIC SELECT * FROM sas.pause_runs(ARRAY[$1]); END;
COMMENT ON FUNCTION sas.pause(bigint) IS 'Pauses one run, and the runs below it.';

CREATE FUNCTION sas.resume_runs(run_ids bigint[])
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.resume_runs(bigint[]) IS
    'Continues paused runs and the paused runs below them; their failed steps and undos get new windows. '
    'Returns each run with what was done, or why not.';

CREATE FUNCTION sas.resume(run_id bigint)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE sql BEGIN ATOMIC SELECT * FROM sas.resume_runs(ARRAY[$1]); END;
COMMENT ON FUNCTION sas.resume(bigint) IS
    'Continues one paused run, and the paused runs below it.';

CREATE FUNCTION sas.retry_runs(run_ids bigint[], step text DEFAULT NULL, new_key boolean DEFAULT false)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.retry_runs(bigint[], text, boolean) IS
    'Tries failed steps again: all of them, or one step, which may also be in a cool-off. new_key: under '
    'another Idempotency-Key.';

CREATE FUNCTION sas.retry(run_id bigint, step text DEFAULT NULL, new_key boolean DEFAULT false)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE sql BEGIN ATOMIC SELECT * FROM sas.retry_runs(ARRAY[$1], $2, $3); END;
COMMENT ON FUNCTION sas.retry(bigint, text, boolean) IS 'Tries failed steps of one run again.';

CREATE FUNCTION sas.skip_runs(run_ids bigint[], step text, output jsonb DEFAULT NULL)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.skip_runs(bigint[], text, jsonb) IS
    'Skips a step that has failed, waits or is ready, so that the run goes on without it; or skips an undo, '
    'so that the effect of the step remains. output replaces that of the step; without one, steps that need '
    'its output are skipped as well.';

CREATE FUNCTION sas.skip(run_id bigint, step text, output jsonb DEFAULT NULL)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE sql BEGIN ATOMIC SELECT * FROM sas.skip_runs(ARRAY[$1], $2, $3); END;
COMMENT ON FUNCTION sas.skip(bigint, text, jsonb) IS 'Skips a step of one run.';

CREATE FUNCTION sas.force_complete_runs(run_ids bigint[], step text, output jsonb DEFAULT NULL)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.force_complete_runs(bigint[], text, jsonb) IS
    'Marks a step, or its undo, as completed with the given output. Stops the call if one is in progress.';

CREATE FUNCTION sas.force_complete(run_id bigint, step text, output jsonb DEFAULT NULL)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE sql BEGIN ATOMIC SELECT * FROM sas.force_complete_runs(ARRAY[$1], $2, $3); END;
COMMENT ON FUNCTION sas.force_complete(bigint, text, jsonb) IS
    'Marks a step of one run, or its undo, as completed with the given output.';

CREATE FUNCTION sas.set_input_runs(run_ids bigint[], step text, input jsonb)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.set_input_runs(bigint[], text, jsonb) IS
    'Replaces the input of a failed step; it is used when the step is tried next.';

CREATE FUNCTION sas.set_input(run_id bigint, step text, input jsonb)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE sql BEGIN ATOMIC SELECT * FROM sas.set_input_runs(ARRAY[$1], $2, $3); END;
COMMENT ON FUNCTION sas.set_input(bigint, text, jsonb) IS 'Replaces the input of a failed step of one run.';

CREATE FUNCTION sas.cancel_runs(run_ids bigint[], reason text DEFAULT NULL)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.cancel_runs(bigint[], text) IS
    'Cancels runs: calls in progress are stopped, steps that have not begun never begin, completed steps '
    'and steps in doubt are undone. The result is cancelled.';

CREATE FUNCTION sas.cancel(run_id bigint, reason text DEFAULT NULL)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE sql BEGIN ATOMIC SELECT * FROM sas.cancel_runs(ARRAY[$1], $2); END;
COMMENT ON FUNCTION sas.cancel(bigint, text) IS 'Cancels one run and undoes what it has done.';

CREATE FUNCTION sas.halt_runs(run_ids bigint[], reason text DEFAULT NULL)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.halt_runs(bigint[], text) IS
    'Stops runs now: calls in progress are stopped, nothing is undone, and the effects of completed steps '
    'and steps in doubt remain. Raises an alert. The result is error.';

CREATE FUNCTION sas.halt(run_id bigint, reason text DEFAULT NULL)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE sql BEGIN ATOMIC SELECT * FROM sas.halt_runs(ARRAY[$1], $2); END;
COMMENT ON FUNCTION sas.halt(bigint, text) IS 'Stops one run now and undoes nothing.';

CREATE FUNCTION sas.compensate_runs(run_ids bigint[], reason text DEFAULT NULL)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.compensate_runs(bigint[], text) IS
    'Undoes runs: open runs as if they had failed for good, and stopped runs. The result is compensated.';

CREATE FUNCTION sas.compensate(run_id bigint, reason text DEFAULT NULL)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE sql BEGIN ATOMIC SELECT * FROM sas.compensate_runs(ARRAY[$1], $2); END;
COMMENT ON FUNCTION sas.compensate(bigint, text) IS 'Undoes one run.';

CREATE FUNCTION sas.rerun_runs(run_ids bigint[])
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text,
               new_run_id bigint)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.rerun_runs(bigint[]) IS
    'Submits stopped runs again: same input, current version, new Idempotency-Keys. The new run takes over '
    'the key.';

CREATE FUNCTION sas.rerun(run_id bigint)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text,
               new_run_id bigint)
LANGUAGE sql BEGIN ATOMIC SELECT * FROM sas.rerun_runs(ARRAY[$1]); END;
COMMENT ON FUNCTION sas.rerun(bigint) IS 'Submits one stopped run again.';

CREATE FUNCTION sas.set_version_runs(run_ids bigint[], version int DEFAULT NULL)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.set_version_runs(bigint[], int) IS
    'Continues open runs with another version of their workflow (null: the current one), if no step of them '
    'is claimed. Steps that have begun must be the same in it.';

CREATE FUNCTION sas.set_version(run_id bigint, version int DEFAULT NULL)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.set_version(bigint, int) IS
    'Continues one open run with another version of its workflow. Raises an error while a step of it is '
    'claimed.';

CREATE FUNCTION sas.set_priority_runs(run_ids bigint[], priority int)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.set_priority_runs(bigint[], int) IS
    'Changes the priority of open runs and of their open child runs; waiting steps get a new rank.';

CREATE FUNCTION sas.set_priority(run_id bigint, priority int)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE sql BEGIN ATOMIC SELECT * FROM sas.set_priority_runs(ARRAY[$1], $2); END;
COMMENT ON FUNCTION sas.set_priority(bigint, int) IS 'Changes the priority of one open run.';

CREATE FUNCTION sas.set_start_at_runs(run_ids bigint[], start_at timestamptz)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.set_start_at_runs(bigint[], timestamptz) IS
    'Changes start_at of runs that have not begun; null: they wait for no time. Their deadlines move by the '
    'same amount.';

CREATE FUNCTION sas.set_start_at(run_id bigint, start_at timestamptz)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE sql BEGIN ATOMIC SELECT * FROM sas.set_start_at_runs(ARRAY[$1], $2); END;
COMMENT ON FUNCTION sas.set_start_at(bigint, timestamptz) IS
    'Changes start_at of one run that has not begun.';

CREATE FUNCTION sas.acknowledge_alerts(alert_ids bigint[])
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.acknowledge_alerts(bigint[]) IS
    'Acknowledges alerts. Returns for each whether it was new.';

CREATE FUNCTION sas.acknowledge(alert_id bigint)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE sql BEGIN ATOMIC SELECT * FROM sas.acknowledge_alerts(ARRAY[$1]); END;
COMMENT ON FUNCTION sas.acknowledge(bigint) IS 'Acknowledges one alert.';

CREATE FUNCTION sas.set_limit(role regrole, name text, value bigint) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.set_limit IS
    'Limits how much a role may have open: open_runs, children, depth, bytes, watches, submits_per_s, '
    'function_workers, schedules, signals. role null: each role that has no limit of its own. value null: '
    'removes the limit.';

CREATE FUNCTION sas.set_alert_hook(function regprocedure) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.set_alert_hook IS
    'Sets the function (alert jsonb) returns jsonb that is called for each new alert: after its commit, as '
    'the role that has set it, with retries. Null: none.';

CREATE FUNCTION sas.purge(older_than interval, results text[] DEFAULT NULL, workflow text DEFAULT NULL,
                          quantity int DEFAULT 10000)
RETURNS TABLE (runs bigint, steps bigint, attempts bigint, more boolean)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.purge IS
    'Deletes runs that ended longer ago, the oldest first, with everything that belongs to them; their keys '
    'are free again. About quantity runs per call; returns what was deleted, and whether there may be more.';

CREATE FUNCTION sas.release() RETURNS boolean
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.release IS
    'Ends the quarantine of a restored copy: its workers start, and work that was open when it was copied '
    'goes on. False: it was in no quarantine.';

CREATE FUNCTION sas.worker_restart() RETURNS int
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_worker_restart';
COMMENT ON FUNCTION sas.worker_restart IS
    'Ends all workers of this database; the launcher starts them again. Returns how many.';

-- SPDX-License-Identifier: PostgreSQL
--
-- Operators: the verbs for runs and steps that exist, for alerts and for what is old.

CREATE FUNCTION sas.pause_runs(run_ids bigint[])
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.pause_runs(
                                   bigint[]) IS 'Pauses runs and those below: calls on their way are '
                                                'finished, nothing new begins. Returns each run with what '
                                                'was done, or why not.';

CREATE FUNCTION sas.pause(run_id bigint)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE sql BEGIN ATOMIC SELECT * FROM sas.pause_runs(ARRAY[$1]); END;
COMMENT ON FUNCTION sas.pause(bigint) IS 'Pauses one run, and those below.';

CREATE FUNCTION sas.resume_runs(run_ids bigint[])
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.resume_runs(
                                    bigint[]) IS 'Lets paused runs go on; their failed steps and undos get '
                                                 'new windows. Returns each run with what was done, or why '
                                                 'not.';

CREATE FUNCTION sas.resume(run_id bigint)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE sql BEGIN ATOMIC SELECT * FROM sas.resume_runs(ARRAY[$1]); END;
COMMENT ON FUNCTION sas.resume(bigint) IS 'Lets one paused run go on.';

CREATE FUNCTION sas.retry_runs(run_ids bigint[], step text DEFAULT NULL, new_key boolean DEFAULT false)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.retry_runs(bigint[], text,
                                   boolean) IS 'Tries again what has failed: all of it, or one step, which '
                                               'may also rest before another window. new_key: under another '
                                               'Idempotency-Key.';

CREATE FUNCTION sas.retry(run_id bigint, step text DEFAULT NULL, new_key boolean DEFAULT false)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE sql BEGIN ATOMIC SELECT * FROM sas.retry_runs(ARRAY[$1], $2, $3); END;
COMMENT ON FUNCTION sas.retry(bigint, text, boolean) IS 'Tries again what has failed in one run.';

CREATE FUNCTION sas.skip_runs(run_ids bigint[], step text, output jsonb DEFAULT NULL)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.skip_runs(bigint[], text,
                                  jsonb) IS 'Goes on without a step that has failed, rests, waits or is '
                                            'ready, or leaves standing what an undo could not take back. '
                                            'output stands in for its own; without one, what needs its '
                                            'output is skipped with it.';

CREATE FUNCTION sas.skip(run_id bigint, step text, output jsonb DEFAULT NULL)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE sql BEGIN ATOMIC SELECT * FROM sas.skip_runs(ARRAY[$1], $2, $3); END;
COMMENT ON FUNCTION sas.skip(bigint, text, jsonb) IS 'Goes on without a step of one run.';

CREATE FUNCTION sas.force_complete_runs(run_ids bigint[], step text, output jsonb DEFAULT NULL)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.force_complete_runs(bigint[], text,
                                            jsonb) IS 'Says that a step, or its undo, was done by other '
                                                      'means, and what came of it. A call on its way is '
                                                      'stopped.';

CREATE FUNCTION sas.force_complete(run_id bigint, step text, output jsonb DEFAULT NULL)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE sql BEGIN ATOMIC SELECT * FROM sas.force_complete_runs(ARRAY[$1], $2, $3); END;
COMMENT ON FUNCTION sas.force_complete(bigint, text,
                                       jsonb) IS 'Says that a step of one run was done by other means.';

CREATE FUNCTION sas.set_input_runs(run_ids bigint[], step text, input jsonb)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.set_input_runs(bigint[], text,
                                       jsonb) IS 'Puts another input in the place of what a failed step was '
                                                 'given; it holds when the step is tried next.';

CREATE FUNCTION sas.set_input(run_id bigint, step text, input jsonb)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE sql BEGIN ATOMIC SELECT * FROM sas.set_input_runs(ARRAY[$1], $2, $3); END;
COMMENT ON FUNCTION sas.set_input(bigint, text,
                                  jsonb) IS 'Puts another input in the place of what a failed step of one '
                                            'run was given.';

CREATE FUNCTION sas.cancel_runs(run_ids bigint[], reason text DEFAULT NULL)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.cancel_runs(bigint[],
                                    text) IS 'Ends runs: calls on their way are stopped, what has not begun '
                                             'never does, what is done or in doubt is undone, the result is '
                                             'cancelled.';

CREATE FUNCTION sas.cancel(run_id bigint, reason text DEFAULT NULL)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE sql BEGIN ATOMIC SELECT * FROM sas.cancel_runs(ARRAY[$1], $2); END;
COMMENT ON FUNCTION sas.cancel(bigint, text) IS 'Ends one run and undoes what it has done.';

CREATE FUNCTION sas.halt_runs(run_ids bigint[], reason text DEFAULT NULL)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.halt_runs(bigint[],
                                  text) IS 'Stops runs now: calls are stopped, nothing is undone, what is '
                                           'done or in doubt is left standing. Raises an alert; the result '
                                           'is error.';

CREATE FUNCTION sas.halt(run_id bigint, reason text DEFAULT NULL)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE sql BEGIN ATOMIC SELECT * FROM sas.halt_runs(ARRAY[$1], $2); END;
COMMENT ON FUNCTION sas.halt(bigint, text) IS 'Stops one run now and leaves everything standing.';

CREATE FUNCTION sas.compensate_runs(run_ids bigint[], reason text DEFAULT NULL)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.compensate_runs(bigint[],
                                        text) IS 'Has runs undone: open ones as if they had failed for good, '
                                                 'stopped ones taken back. The result is compensated.';

CREATE FUNCTION sas.compensate(run_id bigint, reason text DEFAULT NULL)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE sql BEGIN ATOMIC SELECT * FROM sas.compensate_runs(ARRAY[$1], $2); END;
COMMENT ON FUNCTION sas.compensate(bigint, text) IS 'Has one run undone.';

CREATE FUNCTION sas.rerun_runs(run_ids bigint[])
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text,
               new_run_id bigint)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.rerun_runs(
                                   bigint[]) IS 'Submits stopped runs again: same input, current version, '
                                                'fresh keys. The new run takes over the key.';

CREATE FUNCTION sas.rerun(run_id bigint)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text,
               new_run_id bigint)
LANGUAGE sql BEGIN ATOMIC SELECT * FROM sas.rerun_runs(ARRAY[$1]); END;
COMMENT ON FUNCTION sas.rerun(bigint) IS 'Submits one stopped run again.';

CREATE FUNCTION sas.set_version_runs(run_ids bigint[], version int DEFAULT NULL)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.set_version_runs(bigint[], int) IS 'Lets open runs go on with another version of '
    'their workflow (null: the current one), while no step of them is claimed. What has begun must be the '
    'same in it.';

CREATE FUNCTION sas.set_version(run_id bigint, version int DEFAULT NULL)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.set_version(bigint, int) IS 'Lets one open run go on with another version of its '
    'workflow. An error while a step of it is claimed.';

CREATE FUNCTION sas.set_priority_runs(run_ids bigint[], priority int)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.set_priority_runs(bigint[],
                                          int) IS 'Gives open runs, and their open children, another '
                                                  'priority; what waits already is ranked anew.';

CREATE FUNCTION sas.set_priority(run_id bigint, priority int)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE sql BEGIN ATOMIC SELECT * FROM sas.set_priority_runs(ARRAY[$1], $2); END;
COMMENT ON FUNCTION sas.set_priority(bigint, int) IS 'Gives one open run another priority.';

CREATE FUNCTION sas.set_start_at_runs(run_ids bigint[], start_at timestamptz)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.set_start_at_runs(bigint[],
                                          timestamptz) IS 'Gives runs that have not begun another start_at; '
                                                          'null: they wait for no time. Their deadlines move '
                                                          'by as much.';

CREATE FUNCTION sas.set_start_at(run_id bigint, start_at timestamptz)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE sql BEGIN ATOMIC SELECT * FROM sas.set_start_at_runs(ARRAY[$1], $2); END;
COMMENT ON FUNCTION sas.set_start_at(bigint,
                                     timestamptz) IS 'Gives one run that has not begun another start_at.';

CREATE FUNCTION sas.acknowledge_alerts(alert_ids bigint[])
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.acknowledge_alerts(
                                           bigint[]) IS 'Says that somebody has seen these alerts; of each, '
                                                        'whether nobody had seen it before.';

CREATE FUNCTION sas.acknowledge(alert_id bigint)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE sql BEGIN ATOMIC SELECT * FROM sas.acknowledge_alerts(ARRAY[$1]); END;
COMMENT ON FUNCTION sas.acknowledge(bigint) IS 'Says that somebody has seen this alert.';

CREATE FUNCTION sas.set_limit(role regrole, name text, value bigint) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.set_limit IS 'How much a role may have open: open_runs, children, depth, bytes, '
                                     'submits_per_s. Role null: each role without a limit of its own. Value '
                                     'null: no limit of its own.';

CREATE FUNCTION sas.set_alert_hook(function regprocedure) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.set_alert_hook IS 'A function (alert jsonb) returns jsonb that is called for each '
                                          'new alert, after its commit and as who sets it, with retries. '
                                          'Null: none.';

CREATE FUNCTION sas.purge(older_than interval, results text[] DEFAULT NULL, workflow text DEFAULT NULL,
                          quantity int DEFAULT 10000)
RETURNS TABLE (runs bigint, steps bigint, attempts bigint, more boolean)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.purge IS 'Takes away runs that ended longer ago, the oldest first, with all that '
                                 'belongs to them; their keys are free. About quantity runs per call; '
                                 'returns what went, and whether there may be more.';

CREATE FUNCTION sas.release() RETURNS boolean
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.release IS 'Ends the quarantine of a restored copy: its workers start, and what was '
                                   'open when it was copied goes on. Returns false if it was in none.';

CREATE FUNCTION sas.worker_restart() RETURNS int
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_worker_restart';
COMMENT ON FUNCTION sas.worker_restart IS 'Ends all workers of this database; the launcher starts them anew. '
                                          'Returns how many.';

-- SPDX-License-Identifier: PostgreSQL
--
-- Verbs: the public functions. Each is the same native function, which finds
-- the caller's role and calls the internal function with the underscore.

-- agents
CREATE FUNCTION sas.create_agent(name text, base_url text DEFAULT NULL, kind text DEFAULT 'http',
                                 headers jsonb DEFAULT '{}', max_in_flight int DEFAULT 100,
                                 rate_limit text DEFAULT NULL, request_timeout interval DEFAULT '30 s',
                                     retry jsonb DEFAULT '{}', breaker jsonb DEFAULT '{}',
                                 options jsonb DEFAULT '{}') RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.create_agent IS 'Creates an agent, or replaces the one of that name: a guarded way '
                                        'to reach one remote service. What is written is exactly what holds.';

CREATE FUNCTION sas.alter_agent(name text, base_url text DEFAULT NULL, kind text DEFAULT NULL,
                                headers jsonb DEFAULT NULL, max_in_flight int DEFAULT NULL,
                                rate_limit text DEFAULT NULL, request_timeout interval DEFAULT NULL,
                                    retry jsonb DEFAULT NULL, breaker jsonb DEFAULT NULL,
                                options jsonb DEFAULT NULL, enabled boolean DEFAULT NULL,
                                    reset text[] DEFAULT '{}') RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.alter_agent IS 'Changes an agent: null leaves a value, reset names those to set to '
                                       'their default. Workers take it up at once.';

CREATE FUNCTION sas.drop_agent(name text) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.drop_agent IS 'Drops an agent that no current workflow and no open run uses.';

CREATE FUNCTION sas.reset_agent(name text) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.reset_agent IS 'Says that a service is mended: its breaker lets a probe through and '
                                       'its cool-offs are due now, released at the rate of the agent.';

CREATE FUNCTION sas.set_secret(name text, value text) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.set_secret IS 'Sets a value for {{secret.NAME}} in headers, query and options of '
                                      'agents.';

CREATE FUNCTION sas.drop_secret(name text) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.drop_secret IS 'Takes away a secret that no agent refers to.';

-- workflows
CREATE FUNCTION sas.create_workflow(name text, definition jsonb) RETURNS int
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.create_workflow IS 'Creates a workflow, or a new version of the one of that name, '
                                           'and returns the version. Runs keep the version they were '
                                           'submitted with.';

CREATE FUNCTION sas.validate_workflow(definition jsonb) RETURNS TABLE (path text, problem text, hint text)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.validate_workflow IS 'Says what is wrong with a definition: place as a JSON pointer, '
                                             'problem, and what to do. No rows: nothing is wrong.';

CREATE FUNCTION sas.drop_workflow(name text) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.drop_workflow IS 'Drops a workflow that has no open runs. Its ended runs stay to be '
                                         'looked at.';

CREATE FUNCTION sas.grant_workflow(workflow text, role regrole) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.grant_workflow IS 'Lets a role submit a workflow.';

CREATE FUNCTION sas.revoke_workflow(workflow text, role regrole) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.revoke_workflow IS 'Takes back what sas.grant_workflow gave.';

CREATE FUNCTION sas.pause_workflow(name text) RETURNS boolean
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.pause_workflow IS 'New runs of a workflow wait, as scheduled, until it is resumed; '
                                          'those that have begun go on. False: it was paused already.';

CREATE FUNCTION sas.resume_workflow(name text) RETURNS boolean
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.resume_workflow IS 'Runs of a paused workflow may begin again. False: it was not '
                                           'paused.';

CREATE FUNCTION sas.subscribe(workflow text, to_workflow text, input jsonb DEFAULT '"{{input}}"') RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.subscribe IS 'From now on the steps of workflow are planned along in every new run '
                                     'of to_workflow. input is a template over that run; it may refer to its '
                                     'steps.';

CREATE FUNCTION sas.unsubscribe(workflow text, to_workflow text) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.unsubscribe IS 'Ends what sas.subscribe began, for new runs.';

-- middleware
CREATE FUNCTION sas.create_middleware(name text, phase text, before regprocedure DEFAULT NULL,
                                      after regprocedure DEFAULT NULL, workflow text DEFAULT NULL,
                                      goes_before text[] DEFAULT '{}', goes_after text[] DEFAULT '{}',
                                          replaces text DEFAULT NULL) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.create_middleware IS 'Puts functions before and after a phase of runs: plan, call, '
                                             'function or finalize; of all workflows or one. Replaces the '
                                             'one of that name and phase.';

CREATE FUNCTION sas.drop_middleware(name text, phase text DEFAULT NULL) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.drop_middleware IS 'Takes away a middleware, of one phase or of all. It no longer '
                                           'holds for what is claimed or submitted from then on.';

-- queues
CREATE FUNCTION sas.create_queue(name text, max_running int) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.create_queue IS 'Creates a queue, or sets the limit of the one of that name: how '
                                        'many steps of it may be claimed at once, over all workers.';

CREATE FUNCTION sas.alter_queue(name text, max_running int) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.alter_queue IS 'Sets the limit of a queue. A lower one holds as soon as what is '
                                       'running has ended.';

CREATE FUNCTION sas.drop_queue(name text) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.drop_queue IS 'Drops a queue that no current workflow and no open run uses.';

CREATE FUNCTION sas.pause_queue(name text) RETURNS boolean
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.pause_queue IS 'No further step of a queue is claimed until it is resumed; those '
                                       'that are running go on. False: it was paused already.';

CREATE FUNCTION sas.resume_queue(name text) RETURNS boolean
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.resume_queue IS 'Steps of a paused queue may be claimed again. False: it was not '
                                        'paused.';

CREATE FUNCTION _sas.submit_plain(workflow text, input jsonb) RETURNS _sas.submitted
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_submit_plain';

CREATE FUNCTION _sas.submit_support(request internal) RETURNS internal
LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sas_api_submit_support';

CREATE FUNCTION sas.submit(workflow text, input jsonb DEFAULT '{}', key text DEFAULT NULL,
                           priority int DEFAULT 0, start_at timestamptz DEFAULT NULL,
                           start_before timestamptz DEFAULT NULL, deadline interval DEFAULT NULL,
                               after_run bigint DEFAULT NULL, reply_to text DEFAULT NULL,
                           labels jsonb DEFAULT '{}', after_result text[] DEFAULT '{success,warning}',
                               OUT run_id bigint, OUT created boolean)
LANGUAGE C SUPPORT _sas.submit_support AS 'MODULE_PATHNAME', 'sas_api_submit';
COMMENT ON FUNCTION sas.submit IS 'Submits a run in the transaction of the caller. A key that is taken by '
    'the same input gives the run that has it, created = false. Use it in FROM.';

CREATE FUNCTION sas.submit_batch(workflow text, inputs jsonb[], keys text[] DEFAULT NULL,
                                 priority int DEFAULT 0, start_at timestamptz DEFAULT NULL,
                                 start_before timestamptz DEFAULT NULL, deadline interval DEFAULT NULL,
                                     after_run bigint DEFAULT NULL,
                                 reply_to text DEFAULT NULL, labels jsonb DEFAULT '{}',
                                     after_result text[] DEFAULT '{success,warning}')
                                 RETURNS TABLE (run_id bigint, created boolean)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_submit_batch';
COMMENT ON FUNCTION sas.submit_batch IS 'Submits a run for each input, in order, with the keys given beside '
                                        'them.';

CREATE FUNCTION sas.wait(run_id bigint, timeout interval DEFAULT '1 min')
RETURNS TABLE (state text, result text, output jsonb, error jsonb)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_wait';
COMMENT ON FUNCTION sas.wait IS 'Waits until the run has stopped or is paused, at most timeout, and returns '
                                'how it stands. Refused in a transaction that wrote or is above READ '
                                'COMMITTED.';

CREATE FUNCTION sas.signal(run_id bigint, name text, payload jsonb DEFAULT '{}') RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.signal(bigint, text,
                               jsonb) IS 'Sends a named message to a run, in the transaction of the caller. '
                                         'It is kept until a step takes it, and refused when none ever can.';

CREATE FUNCTION sas.signal_key(workflow text, key text, name text, payload jsonb DEFAULT '{}') RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.signal_key(text, text, text,
                                   jsonb) IS 'Sends a named message to the run of that workflow that has the '
                                             'key.';

CREATE FUNCTION sas.signal_token(token text, payload jsonb DEFAULT '{}') RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.signal_token IS 'Ends the wait whose one-time token this is: {{steps.NAME.token}}, '
                                        'as a step has handed it to somebody outside.';

CREATE FUNCTION sas.read_replies(queue text, quantity int DEFAULT 1)
RETURNS TABLE (event text, run_id bigint, workflow text, key text, result text, output jsonb, error jsonb,
               created_at timestamptz)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.read_replies IS 'Takes messages from a reply queue, oldest first: accepted, '
                                        'completed or failed, with run and key. LISTEN sas_reply tells when '
                                        'there are some.';

-- operators
CREATE FUNCTION sas.pause_runs(run_ids bigint[])
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.pause_runs(
                                   bigint[]) IS 'Pauses runs: calls on their way are finished, nothing new '
                                                'begins. Returns each run with what was done, or why not.';

CREATE FUNCTION sas.pause(run_id bigint)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE sql BEGIN ATOMIC SELECT * FROM sas.pause_runs(ARRAY[$1]); END;
COMMENT ON FUNCTION sas.pause(bigint) IS 'Pauses one run.';

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

CREATE FUNCTION sas.worker_restart() RETURNS int
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_worker_restart';
COMMENT ON FUNCTION sas.worker_restart IS 'Ends all workers of this database; the launcher starts them anew. '
                                          'Returns how many.';

-- testing
CREATE FUNCTION sas.set_clock(at timestamptz) RETURNS timestamptz
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.set_clock IS 'For tests: sas takes that instant for now, until the end of the '
                                     'transaction, which can then only be rolled back.';

CREATE FUNCTION sas.move_clock(span interval) RETURNS timestamptz
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.move_clock IS 'For tests: the clock of sas stands still, that much later; returns '
                                      'what it says. It goes on only by this, sas.set_clock and '
                                      'sas.run_inline.';

CREATE FUNCTION sas.release_clock() RETURNS timestamptz
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.release_clock IS 'For tests: the clock of sas goes with that of the machine again.';

CREATE FUNCTION sas.stub(agent text, response jsonb, method text DEFAULT NULL, path text DEFAULT NULL,
                         step text DEFAULT NULL, element int DEFAULT NULL,
                         attempt int DEFAULT NULL, undo boolean DEFAULT NULL) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.stub IS 'For tests: answers in place of an agent in sas.run_inline, until the end of '
                                'the transaction: for ever, or those of an array one after the other. Where '
                                'several fit the last one answers.';

CREATE FUNCTION sas.unstub(agent text DEFAULT NULL) RETURNS int
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.unstub IS 'For tests: forgets the stubs of an agent, or all; returns how many.';

CREATE FUNCTION sas.stub_signal(name text, payload jsonb DEFAULT '{}', after interval DEFAULT '0',
                                times int DEFAULT 1) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.stub_signal IS 'For tests: sends a signal to a run in sas.run_inline when one of its '
                                       'steps waits for it, so long after that began.';

CREATE FUNCTION sas.run_inline(workflow text, input jsonb DEFAULT '{}', key text DEFAULT NULL,
                               deadline interval DEFAULT NULL, labels jsonb DEFAULT '{}',
                               within interval DEFAULT NULL)
RETURNS TABLE (run_id bigint, state text, result text, output jsonb, error jsonb)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.run_inline IS 'For tests: submits a run and carries it to its end in this session '
                                      'and transaction, with stubs for its agents; the clock jumps to '
                                      'whatever is due next. The transaction can then only be rolled back.';

CREATE FUNCTION sas.continue_inline(run_id bigint, within interval DEFAULT NULL)
RETURNS TABLE (run_id bigint, state text, result text, output jsonb, error jsonb)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.continue_inline IS 'For tests: carries on a run that was submitted in this '
                                           'transaction.';

CREATE FUNCTION sas.stubbed_calls(agent text DEFAULT NULL)
RETURNS TABLE (call_no int, agent text, run_id bigint, step text, element int, undo boolean, attempt int,
               idempotency_key text, method text, path text, request jsonb, answer jsonb, at timestamptz)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.stubbed_calls IS 'For tests: what stubbed agents were asked in this transaction, in '
                                         'order, and what they answered.';

-- outside agents
CREATE FUNCTION sas.claim(agent text, worker text, quantity int DEFAULT 1, lease interval DEFAULT '30 s')
RETURNS TABLE (request_id uuid, run_id bigint, step text, undo boolean, idempotency_key text, request jsonb,
               checkpoint jsonb, lease_until timestamptz)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.claim IS 'Takes tasks of an external agent to work on, in order of their rank. They '
                                 'are held until lease_until; commit before beginning. LISTEN '
                                 'sas_agent_<name> tells when there are some.';

CREATE FUNCTION sas.complete(request_id uuid, output jsonb) RETURNS boolean
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.complete IS 'Says that a claimed task is done, in the transaction of the caller. '
                                    'False: it is held no more, and nothing was changed.';

CREATE FUNCTION sas.fail(request_id uuid, error text, permanent boolean DEFAULT false) RETURNS boolean
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.fail IS 'Says that a claimed task failed: it is offered again after a pause, or if '
                                'permanent not tried again. False: it is held no more.';

CREATE FUNCTION sas.heartbeat(request_id uuid, progress float8 DEFAULT NULL, checkpoint jsonb DEFAULT NULL)
RETURNS text
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.heartbeat IS 'Extends the lease of a claimed task and keeps progress and checkpoint. '
    'Returns go, cancel (stop: its run cannot go on) or lost (held no more).';

CREATE FUNCTION sas.hand_back(request_id uuid) RETURNS boolean
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.hand_back IS 'Gives a claimed task back for others, without counting a failure; its '
                                     'checkpoint stays. False: it is held no more.';

-- infinite tasks
CREATE FUNCTION sas.create_watcher(name text, definition jsonb) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.create_watcher IS 'Creates a watcher, the definition of infinite tasks, or replaces '
                                          'the one of that name: what is written holds for all its tasks, '
                                          'which keep their cursors.';

CREATE FUNCTION sas.drop_watcher(name text) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.drop_watcher IS 'Drops a watcher whose tasks are all deleted.';

CREATE FUNCTION sas.watch(watcher text, key text, input jsonb DEFAULT '{}', cursor jsonb DEFAULT NULL,
                          adopt boolean DEFAULT false, OUT watch_id bigint, OUT created boolean)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.watch IS 'Starts one infinite task of a watcher, in the transaction of the caller; '
                                 'it runs until it is told to stop. cursor: since where, in place of what '
                                 'the watcher says. adopt: a task that has the key already is taken for it. '
                                 'Use it in FROM.';

CREATE FUNCTION sas.unwatch(watcher text, keys text[], discard boolean DEFAULT false)
RETURNS TABLE (key text, changed boolean, state text, refused text)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.unwatch IS 'Asks tasks to stop: their host ends them, what they have taken in is '
                                   'brought to its target, then they are deleted. discard: it is thrown '
                                   'away. Returns each key with what was done, or why not.';

CREATE FUNCTION sas.pause_watch(watcher text, keys text[])
RETURNS TABLE (key text, changed boolean, state text, refused text)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.pause_watch IS 'Pauses tasks: their host ends them, and nothing more is brought to '
                                       'their targets until they are resumed, at the same cursor.';

CREATE FUNCTION sas.resume_watch(watcher text, keys text[])
RETURNS TABLE (key text, changed boolean, state text, refused text)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.resume_watch IS 'Lets tasks that are paused or have failed go on; their failures are '
                                        'forgotten.';

CREATE FUNCTION sas.rebalance() RETURNS int
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.rebalance IS 'Asks nodes that host more than their share of infinite tasks to give '
                                     'some back, for nodes that host less. Returns how many tasks are to '
                                     'move.';

-- outside nodes
CREATE FUNCTION sas.register_node(name text, capacity int, agents text[], version text DEFAULT NULL,
                                  lease interval DEFAULT '30 s', by_connection boolean DEFAULT true)
RETURNS bigint
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.register_node IS 'Makes the calling program a node that hosts tasks of external '
                                         'agents, and returns its id; commit before going on. It has ended '
                                         'when this session ends (unless by_connection is false), when it is '
                                        'silent for longer than lease, and when its name is registered anew.';

CREATE FUNCTION sas.claim_watchers(node_id bigint, quantity int)
RETURNS TABLE (watch_id bigint, epoch bigint, watcher text, key text, input jsonb, request jsonb,
               cursor jsonb)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.claim_watchers IS 'Takes infinite tasks to host, at most quantity and the node''s '
                                          'share; commit before beginning. LISTEN sas_watch_<agent> tells '
                                          'when there are some, and when heartbeat_node has news.';

CREATE FUNCTION sas.heartbeat_node(node_id bigint)
RETURNS TABLE (watch_id bigint, epoch bigint, news text, request jsonb, cursor jsonb)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.heartbeat_node IS 'Extends the lease of a node, and tells what is new: stop (end the '
                                          'task and release it), reload (it has another request now), room '
                                          '(append again), lost (end it, it is held no more; without a '
                                          'watch_id: the node has ended, end all).';

CREATE FUNCTION sas.append_items(watch_id bigint, epoch bigint, items jsonb, cursor jsonb DEFAULT NULL)
RETURNS text
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.append_items IS 'Takes in items of a hosted task, an array in order, together with '
                                        'the cursor behind them. go; stop: taken, end the task and release '
                                        'it; full: not taken, try again when there is room; lost: not taken, '
                                        'end the task.';

CREATE FUNCTION sas.fail_watch(watch_id bigint, epoch bigint, error text)
RETURNS TABLE (answer text, pause interval)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.fail_watch IS 'Says that a hosted task has failed. retry: begin it anew after the '
                                      'pause; failed: its retries are used up, it is hosted no more; stop: '
                                      'release it; lost: it is held no more.';

CREATE FUNCTION sas.release_watches(node_id bigint, watch_ids bigint[]) RETURNS int
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.release_watches IS 'Says that the node has ended these tasks: those that were to '
                                           'stop are deleted, others wait for a node again. Returns how many '
                                           'it still held.';

CREATE FUNCTION sas.leave_node(node_id bigint) RETURNS boolean
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.leave_node IS 'Says good-bye: the node has ended all its tasks, and others may have '
                                      'them. False: it had ended already.';

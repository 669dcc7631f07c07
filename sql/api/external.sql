-- SPDX-License-Identifier: PostgreSQL
--
-- Outside programs: tasks of external agents, and nodes that host infinite tasks.

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

CREATE FUNCTION sas.emit(chunk jsonb, request_id uuid DEFAULT NULL) RETURNS boolean
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.emit IS 'Tells a part of the output of a step while it is carried out: in its '
                                'function, or with the request_id of a claimed task. False: it is held no '
                                'more. sas.chunks reads it.';

CREATE FUNCTION sas.chunks(run_id bigint, step text, after bigint DEFAULT 0)
RETURNS TABLE (chunk_id bigint, element int, attempt int, undo boolean, chunk jsonb, emitted_at timestamptz)
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.chunks IS 'What a step, or one element of a map ("pack[3]"), has told with '
                                  'sas.emit, in order; after: a chunk_id.';

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

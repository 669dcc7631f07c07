-- SPDX-License-Identifier: PostgreSQL
--
-- Outside programs: tasks of external agents, and nodes that host infinite tasks.

-- outside agents
CREATE FUNCTION sas.claim(agent text, worker text, quantity int DEFAULT 1, lease interval DEFAULT '30 s')
RETURNS TABLE (request_id uuid, run_id bigint, step text, undo boolean, idempotency_key text, request jsonb,
               checkpoint jsonb, lease_until timestamptz)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.claim IS
    'Claims tasks of an external agent, in the order of their rank. They are held until lease_until; commit '
    'before you begin to work on them. New tasks send NOTIFY sas_agent_<name>.';

CREATE FUNCTION sas.complete(request_id uuid, output jsonb) RETURNS boolean
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.complete IS
    'Completes a claimed task, in the transaction of the caller. False: the claim does not hold any more, '
    'and nothing was changed.';

CREATE FUNCTION sas.complete_tasks(request_ids uuid[], outputs jsonb[]) RETURNS boolean[]
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.complete_tasks IS
    'Completes claimed tasks together, in the transaction of the caller, for a fraction of what sas.complete '
    'costs for each. Returns for each in turn what sas.complete would return.';

CREATE FUNCTION sas.fail(request_id uuid, error text, permanent boolean DEFAULT false) RETURNS boolean
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.fail IS
    'Reports that a claimed task failed. It is offered again after a pause; if permanent, it is not. False: '
    'the claim does not hold any more.';

CREATE FUNCTION sas.heartbeat(request_id uuid, progress float8 DEFAULT NULL, checkpoint jsonb DEFAULT NULL)
RETURNS text
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.heartbeat IS
    'Extends the lease of a claimed task and stores progress and checkpoint. Returns go, cancel (stop: its '
    'run cannot go on) or lost (the claim does not hold any more).';

CREATE FUNCTION sas.hand_back(request_id uuid) RETURNS boolean
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.hand_back IS
    'Gives a claimed task back for other programs, without counting a failure; its checkpoint is kept. '
    'False: the claim does not hold any more.';

CREATE FUNCTION sas.emit(chunk jsonb, request_id uuid DEFAULT NULL) RETURNS boolean
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.emit IS
    'Stores a part of the output of a step while it runs: in its function, or with the request_id of a '
    'claimed task. False: the claim does not hold any more. sas.chunks reads it.';

CREATE FUNCTION sas.chunks(run_id bigint, step text, after bigint DEFAULT 0)
RETURNS TABLE (chunk_id bigint, element int, attempt int, undo boolean, chunk jsonb, emitted_at timestamptz)
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.chunks IS
    'The parts that a step, or one element of a map ("pack[3]"), has stored with sas.emit, in order. after: '
    'a chunk_id.';

-- outside nodes
CREATE FUNCTION sas.register_node(name text, capacity int, agents text[], version text DEFAULT NULL,
                                  lease interval DEFAULT '30 s', by_connection boolean DEFAULT true)
RETURNS bigint
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.register_node IS
    'Registers the calling program as a node that hosts infinite tasks of external agents, and returns its '
    'id; commit before you go on. The node ends with this session (unless by_connection is false), when its '
    'lease expires, and when its name is registered again.';

CREATE FUNCTION sas.claim_watchers(node_id bigint, quantity int)
RETURNS TABLE (watch_id bigint, epoch bigint, watcher text, key text, input jsonb, request jsonb,
               cursor jsonb)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.claim_watchers IS
    'Claims infinite tasks to host, at most quantity and the share of the node; commit before you begin. '
    'NOTIFY sas_watch_<agent> is sent when tasks wait, and when sas.heartbeat_node has news.';

CREATE FUNCTION sas.heartbeat_node(node_id bigint)
RETURNS TABLE (watch_id bigint, epoch bigint, news text, request jsonb, cursor jsonb)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.heartbeat_node IS
    'Extends the lease of a node, and returns news: stop (end the task and release it), reload (its request '
    'has changed), room (append again), lost (end it, the node does not hold it any more; without a '
    'watch_id: the node has ended, end all).';

CREATE FUNCTION sas.append_items(watch_id bigint, epoch bigint, items jsonb, cursor jsonb DEFAULT NULL)
RETURNS text
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.append_items IS
    'Stores items of a hosted task, an array in order, together with the cursor behind them. go; stop: '
    'stored, end the task and release it; full: not stored, try again when there is room; lost: not stored, '
    'end the task.';

CREATE FUNCTION sas.fail_watch(watch_id bigint, epoch bigint, error text)
RETURNS TABLE (answer text, pause interval)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.fail_watch IS
    'Reports that a hosted task has failed. retry: begin it again after the pause; failed: its retries are '
    'used up, it is not hosted any more; stop: release it; lost: the node does not hold it any more.';

CREATE FUNCTION sas.release_watches(node_id bigint, watch_ids bigint[]) RETURNS int
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.release_watches IS
    'Reports that the node has ended these tasks: tasks that were to stop are deleted, others wait for a '
    'node again. Returns how many the node still held.';

CREATE FUNCTION sas.leave_node(node_id bigint) RETURNS boolean
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.leave_node IS
    'Ends a node that has ended all its tasks; other nodes may take them. False: the node had ended '
    'already.';

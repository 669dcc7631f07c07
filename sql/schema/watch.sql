-- SPDX-License-Identifier: PostgreSQL
--
-- Tables of infinite tasks. Nothing here grows while a task runs: it has one row each in _sas.watch,
-- watch_flow and watch_done, and its inbox, which is bounded.
--
-- Each table has writers of its own, so that no worker waits for a session:
--   _sas.watch       sessions (verbs); workers that move states, which skip locked rows
--   _sas.watch_flow  the host of the task
--   _sas.watch_done  the worker that brings items to their target

CREATE TABLE _sas.watcher (
    watcher_id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE,
    owner regrole NOT NULL,
    definition jsonb NOT NULL,
    change int NOT NULL,
    kind text NOT NULL CHECK (kind IN ('stream', 'poll', 'function', 'external')),
    lane int NOT NULL,
    request jsonb,
    function text,
    every interval,
    spec text,
    timezone text,
    jitter interval,
    target_kind text CHECK (target_kind IN ('function', 'table', 'workflow')),
    target text,
    target_item jsonb,
    target_key jsonb,
    cursor_start jsonb,
    cursor_next jsonb,
    retry jsonb NOT NULL,
    created_at timestamptz NOT NULL,
    changed_at timestamptz NOT NULL
);
COMMENT ON TABLE _sas.watcher IS
    'Definitions of infinite tasks, as written and compiled. change counts how often the definition was '
    'written; hosts then reload it.';
COMMENT ON COLUMN _sas.watcher.spec IS
    'The schedule of its polls or calls, instead of every; with timezone and jitter.';
COMMENT ON COLUMN _sas.watcher.lane IS
    'Which workers may host its tasks: the agent, or 0 for function workers.';

CREATE TABLE _sas.watch (
    watch_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    watcher_id int NOT NULL REFERENCES _sas.watcher,
    key text NOT NULL,
    owner regrole NOT NULL,
    input jsonb NOT NULL,
    state text NOT NULL,
    epoch bigint NOT NULL,
    moving boolean NOT NULL DEFAULT false,
    discard boolean NOT NULL DEFAULT false,
    restarts bigint NOT NULL DEFAULT 0,
    since timestamptz,
    resumed_at timestamptz,
    created_at timestamptz NOT NULL,
    changed_at timestamptz NOT NULL,
    UNIQUE (watcher_id, key)
) WITH (fillfactor = 50);
COMMENT ON TABLE _sas.watch IS
    'Infinite tasks by key. epoch counts claims by nodes. moving asks the host to give the task back. '
    'discard: the items in the inbox are thrown away.';
COMMENT ON COLUMN _sas.watch.resumed_at IS 'Failures before this instant do not count.';

-- Deleted tasks, for the purge. So the purge reads only rows that may be due, and _sas.watch needs no index
-- for it.
CREATE TABLE _sas.watch_ended (
    watch_id bigint PRIMARY KEY REFERENCES _sas.watch ON DELETE CASCADE,
    ended_at timestamptz NOT NULL
);
CREATE INDEX watch_ended_next ON _sas.watch_ended (ended_at);
COMMENT ON TABLE _sas.watch_ended IS
    'Infinite tasks that were deleted. Their rows are kept until their retention time is over.';

CREATE TABLE _sas.watch_flow (
    watch_id bigint PRIMARY KEY REFERENCES _sas.watch ON DELETE CASCADE,
    cursor jsonb,
    digest text,
    items bigint NOT NULL DEFAULT 0,
    bytes bigint NOT NULL DEFAULT 0,
    last_item_at timestamptz,
    moved_at timestamptz,
    closed boolean NOT NULL DEFAULT false,
    failures int NOT NULL DEFAULT 0,
    retry_at timestamptz,
    last_error jsonb,
    last_error_at timestamptz,
    given_up_at timestamptz,
    called_at timestamptz,
    next_at timestamptz,
    next_by text
) WITH (fillfactor = 50);
COMMENT ON COLUMN _sas.watch_flow.moved_at IS
    'When the cursor last got another value: a stream that has moved it since it began makes progress.';
COMMENT ON COLUMN _sas.watch_flow.next_at IS
    'When a task with a schedule polls next. It is stored, so that a poll that was missed is made once.';
COMMENT ON COLUMN _sas.watch_flow.next_by IS 'The schedule from which next_at was computed.';
COMMENT ON COLUMN _sas.watch_flow.called_at IS
    'Start time of the current call, for functions suspected of crashing their worker. It is committed '
    'before the call. If the worker dies, this function is blamed.';
COMMENT ON TABLE _sas.watch_flow IS
    'How far an infinite task has come: the cursor, what was taken in, and the failures of its host. '
    'closed: its host was told to stop because the inbox is full.';

CREATE TABLE _sas.watch_done (
    watch_id bigint PRIMARY KEY REFERENCES _sas.watch ON DELETE CASCADE,
    items bigint NOT NULL DEFAULT 0,
    discarded bigint NOT NULL DEFAULT 0,
    bytes bigint NOT NULL DEFAULT 0,
    failures int NOT NULL DEFAULT 0,
    alone boolean NOT NULL DEFAULT false,
    retry_at timestamptz,
    last_error jsonb,
    last_error_at timestamptz,
    given_up_at timestamptz,
    request_id uuid,
    claimed_until timestamptz
) WITH (fillfactor = 50);
COMMENT ON TABLE _sas.watch_done IS
    'How much was brought to the target, the failures of that, and the claim of the worker that does it '
    'now.';
COMMENT ON COLUMN _sas.watch_done.items IS 'How many items have left the inbox, the discarded ones included.';

-- The inbox: items, stored together with the cursor, until they are brought to their target.
CREATE TABLE _sas.watch_batch (
    watch_id bigint NOT NULL,
    batch_no bigint NOT NULL,
    items jsonb NOT NULL,
    quantity int NOT NULL,
    bytes int NOT NULL,
    PRIMARY KEY (watch_id, batch_no)
);

CREATE SEQUENCE _sas.watch_batch_seq;
COMMENT ON TABLE _sas.watch_batch IS
    'Items that were taken in and not yet brought to their target, in order.';

-- Each new batch inserts a row. A worker that deletes rows checks the inbox afterwards, so that no batch is
-- forgotten. A row with a worker is the lease of that worker.
CREATE TABLE _sas.watch_work (
    due_at timestamptz NOT NULL,
    watch_id bigint NOT NULL,
    boot bigint,
    worker_id bigint,
    together int,
    owner regrole NOT NULL
);
CREATE INDEX watch_work_due ON _sas.watch_work (due_at);
CREATE INDEX watch_work_turn ON _sas.watch_work (owner, due_at);
CREATE INDEX watch_work_watch ON _sas.watch_work (watch_id);
CREATE INDEX watch_work_worker ON _sas.watch_work (worker_id) WHERE worker_id IS NOT NULL;
COMMENT ON TABLE _sas.watch_work IS
    'Tasks whose inbox has to be checked, and leases of the workers that bring items to their target.';

CREATE TABLE _sas.watch_wait (
    watch_id bigint PRIMARY KEY,
    lane int NOT NULL,
    due_at timestamptz NOT NULL,
    owner regrole NOT NULL
);
CREATE INDEX watch_wait_due ON _sas.watch_wait (lane, due_at);
CREATE INDEX watch_wait_turn ON _sas.watch_wait (lane, owner, due_at);
-- no statistics, as for the actor of a message
ALTER TABLE _sas.watch_wait ALTER COLUMN lane SET STATISTICS 0;
COMMENT ON TABLE _sas.watch_wait IS
    'Tasks that wait for a node. due_at: since when, or until when they rest after a failure.';

CREATE TABLE _sas.node (
    node_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    kind text NOT NULL CHECK (kind IN ('agent', 'function', 'outside')),
    version text,
    capacity int NOT NULL,
    busy_until timestamptz,
    lanes int[],
    role regrole,
    boot bigint,
    worker_id bigint,
    pid int,
    backend_start timestamptz,
    by_connection boolean NOT NULL,
    lease interval,
    lease_until timestamptz,
    created_at timestamptz NOT NULL,
    modified_at timestamptz NOT NULL,
    ended_at timestamptz,
    ended_for text
) WITH (fillfactor = 50);
CREATE INDEX node_name ON _sas.node (name);

-- When a dump is restored, workers register as nodes before the rows of the dump are loaded. Ids therefore
-- begin with the current time, so that they differ from those in the dump.
DO $$ BEGIN PERFORM setval('_sas.node_node_id_seq',
                           (extract(epoch FROM clock_timestamp()) * 1000)::bigint); END $$;
COMMENT ON TABLE _sas.node IS
    'Processes that host infinite tasks. Each start of a process gets a new id. lanes: the agents whose '
    'tasks an outside program hosts. busy_until: a function takes long, so other nodes take the waiting '
    'tasks.';

-- The fence: a host may write for a task as long as this row exists.
CREATE TABLE _sas.watch_held (
    watch_id bigint PRIMARY KEY,
    node_id bigint NOT NULL,
    lane int NOT NULL,
    epoch bigint NOT NULL,
    change int NOT NULL,
    owner regrole NOT NULL
);
CREATE INDEX watch_held_node ON _sas.watch_held (node_id);
CREATE INDEX watch_held_lane ON _sas.watch_held (lane, owner);
COMMENT ON TABLE _sas.watch_held IS
    'Which node hosts which task, in which epoch, and which change of the definition it uses.';

-- A node checks the tasks that are named here; their own rows say what has changed. Several rows may name
-- the same task.
CREATE TABLE _sas.watch_note (
    node_id bigint NOT NULL,
    watch_id bigint NOT NULL,
    unread boolean NOT NULL,
    asked int NOT NULL,
    again_at timestamptz NOT NULL
);
CREATE INDEX watch_note_unread ON _sas.watch_note (node_id) WHERE unread;
CREATE INDEX watch_note_watch ON _sas.watch_note (watch_id);
CREATE INDEX watch_note_again ON _sas.watch_note (again_at);
COMMENT ON TABLE _sas.watch_note IS
    'Notes to hosts. A request to stop is repeated at again_at until the host answers it.';

-- Messages to the supervisor. Several rows may name the same task.
CREATE TABLE _sas.watch_check (
    due_at timestamptz NOT NULL,
    watch_id bigint NOT NULL
);
CREATE INDEX watch_check_due ON _sas.watch_check (due_at);
COMMENT ON TABLE _sas.watch_check IS 'Tasks whose state the supervisor has to derive again.';

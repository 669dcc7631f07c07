-- SPDX-License-Identifier: PostgreSQL
--
-- Tables of infinite tasks. Nothing here grows while a task runs: one row in
-- _sas.watch, watch_flow and watch_done each, and what waits in the inbox,
-- which is bounded.
--
-- Who writes what, so that nobody waits for a session:
--   _sas.watch       sessions (verbs) and, passing by what is locked, whoever moves states
--   _sas.watch_flow  the host of the task
--   _sas.watch_done  whoever brings items to their target

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
COMMENT ON TABLE _sas.watcher IS 'Definitions of infinite tasks, as written and compiled. change counts the '
                                 'times it was written: hosts take it up.';
COMMENT ON COLUMN _sas.watcher.spec IS 'When its tasks look, in place of every; with timezone and jitter.';
COMMENT ON COLUMN _sas.watcher.lane IS 'Who may host it: the agent, or 0 for function workers.';

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
COMMENT ON TABLE _sas.watch IS 'Infinite tasks by key. epoch counts claims by nodes, moving asks its host to '
                               'give it back, discard throws away what is in its inbox.';
COMMENT ON COLUMN _sas.watch.resumed_at IS 'Failures before that are forgotten.';

-- What the purge checks: nothing that has time left, and _sas.watch needs no index for it.
CREATE TABLE _sas.watch_ended (
    watch_id bigint PRIMARY KEY REFERENCES _sas.watch ON DELETE CASCADE,
    ended_at timestamptz NOT NULL
);
CREATE INDEX watch_ended_next ON _sas.watch_ended (ended_at);
COMMENT ON TABLE _sas.watch_ended IS 'Infinite tasks that were deleted, and whose rows are kept until their '
                                     'time is over.';

CREATE TABLE _sas.watch_flow (
    watch_id bigint PRIMARY KEY REFERENCES _sas.watch ON DELETE CASCADE,
    cursor jsonb,
    digest text,
    items bigint NOT NULL DEFAULT 0,
    bytes bigint NOT NULL DEFAULT 0,
    last_item_at timestamptz,
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
COMMENT ON COLUMN _sas.watch_flow.next_at IS 'When a task with a schedule looks next. Stored, so that a look '
                                             'that was missed is made once.';
COMMENT ON COLUMN _sas.watch_flow.next_by IS 'The schedule that next_at was found by.';
COMMENT ON COLUMN _sas.watch_flow.called_at IS 'Its function, which may have ended a worker lately, is being '
                                               'called since then: noted durably before, so that the next '
                                               'worker that it ends is known to be its doing.';
COMMENT ON TABLE _sas.watch_flow IS 'How far an infinite task has come: what was taken in so far, and the '
                                    'failures of its host. closed: its host was told that there is no room.';

CREATE TABLE _sas.watch_done (
    watch_id bigint PRIMARY KEY REFERENCES _sas.watch ON DELETE CASCADE,
    items bigint NOT NULL DEFAULT 0,
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
COMMENT ON TABLE _sas.watch_done IS 'What was brought to its target so far, the failures of that, and the '
                                    'claim of the worker that does it now.';

-- The inbox: what was taken in with the cursor, until it is brought to its target.
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
    'Items that were taken in and not brought to their target yet, in order.';

-- Each batch brings a row along: whoever takes rows away checks the inbox
-- afterwards, so that none is forgotten. One with a worker is its lease.
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
COMMENT ON TABLE _sas.watch_work IS 'Tasks whose inbox is to be looked at, and leases of the workers that '
                                    'bring items to their target.';

CREATE TABLE _sas.watch_wait (
    watch_id bigint PRIMARY KEY,
    lane int NOT NULL,
    due_at timestamptz NOT NULL
);
CREATE INDEX watch_wait_due ON _sas.watch_wait (lane, due_at);
COMMENT ON TABLE _sas.watch_wait IS 'Tasks that wait for a node, since when or until when.';

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

-- Where a dump is restored, workers are born as nodes before its rows come: their ids are from another time.
DO $$ BEGIN PERFORM setval('_sas.node_node_id_seq',
                           (extract(epoch FROM clock_timestamp()) * 1000)::bigint); END $$;
COMMENT ON TABLE _sas.node IS 'Processes that host infinite tasks; a new id at each birth. lanes: the agents '
                              'whose tasks an outside program hosts. busy_until: a function takes it long, '
                              'others take what waits.';

-- The fence: a host may write for a task as long as this row stands.
CREATE TABLE _sas.watch_held (
    watch_id bigint PRIMARY KEY,
    node_id bigint NOT NULL,
    lane int NOT NULL,
    epoch bigint NOT NULL,
    change int NOT NULL
);
CREATE INDEX watch_held_node ON _sas.watch_held (node_id);
CREATE INDEX watch_held_lane ON _sas.watch_held (lane);
COMMENT ON TABLE _sas.watch_held IS 'Which node hosts which task, in which epoch, as the definition was at '
                                    'which change.';

-- A node checks the tasks named here; what it learns is in their rows.
-- Several rows may be about the same task.
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
COMMENT ON TABLE _sas.watch_note IS 'What hosts are told. A request to stop stays, and is told again at '
                                    'again_at, until it is answered.';

-- Messages to the supervisor: several may be about the same task.
CREATE TABLE _sas.watch_check (
    due_at timestamptz NOT NULL,
    watch_id bigint NOT NULL
);
CREATE INDEX watch_check_due ON _sas.watch_check (due_at);
COMMENT ON TABLE _sas.watch_check IS 'Tasks whose state the supervisor is to bring in line with what is so.';

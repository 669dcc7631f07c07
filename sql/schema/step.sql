-- SPDX-License-Identifier: PostgreSQL
--
-- Tables of steps: their state, the ready queue, leases, messages, maps, undo, signals, attempts, tasks,
-- phases.

-- A step has no row until it is claimed or deferred, or until the first of several steps that it waits for
-- has ended.
CREATE TABLE _sas.step (
    run_id bigint NOT NULL,
    step_no int NOT NULL,
    element int NOT NULL,
    state text NOT NULL,
    attempt int NOT NULL,
    failure_count int NOT NULL,
    in_doubt boolean NOT NULL,
    transient boolean,
    alone boolean NOT NULL,
    deferred boolean NOT NULL,
    needs_left int,
    lease_id bigint,
    request_id uuid,
    complete_by timestamptz,
    waiting_kind text,
    waiting_until timestamptz,
    completion bigint,
    started_at timestamptz,
    finished_at timestamptz,
    output jsonb,
    error jsonb,
    started jsonb,
    asks int,
    ask_until timestamptz,
    progress float8,
    PRIMARY KEY (run_id, step_no, element)
) WITH (fillfactor = 50);
COMMENT ON COLUMN _sas.step.asks IS
    'For a poll: how often the service has answered "not finished yet". Null until the initial call '
    'succeeds. Not null means that the step has to be undone.';
COMMENT ON COLUMN _sas.step.ask_until IS 'For a poll with a timeout: when it fails if it has not finished.';
COMMENT ON TABLE _sas.step IS
    'Steps that were claimed or deferred, or that wait for several others. completion gives the order of '
    'the undo.';

-- Values that operators have set for a step, used instead of its own. Each claim reads this table, which is
-- mostly empty.
CREATE TABLE _sas.override (
    run_id bigint NOT NULL,
    step_no int NOT NULL,
    element int NOT NULL,
    key text,
    undo_key text,
    input jsonb,
    PRIMARY KEY (run_id, step_no, element)
);
COMMENT ON TABLE _sas.override IS
    'What an operator has set for a step: another Idempotency-Key, another one for its undo, another input. '
    'Null: the step keeps its own.';

-- chunk_id grows from chunk to chunk, across attempts as well. ordinal numbers the chunks of one step.
CREATE TABLE _sas.chunk (
    run_id bigint NOT NULL,
    step_no int NOT NULL,
    element int NOT NULL,
    chunk_id bigint GENERATED ALWAYS AS IDENTITY,
    ordinal int NOT NULL,
    attempt int NOT NULL,
    undo boolean NOT NULL,
    chunk jsonb NOT NULL,
    emitted_at timestamptz NOT NULL,
    PRIMARY KEY (run_id, step_no, element, chunk_id)
);
COMMENT ON TABLE _sas.chunk IS 'What steps have emitted while they ran: sas.emit.';

CREATE SEQUENCE _sas.completion_seq;

-- The hot queue. A transaction that pauses or ends a run first deletes the run's rows here, under the lock
-- of the run; therefore a claim needs no lock on the run.
CREATE TABLE _sas.ready (
    run_id bigint NOT NULL,
    step_no int NOT NULL,
    element int NOT NULL,
    lane int NOT NULL,
    owner regrole NOT NULL,
    rank timestamptz NOT NULL,
    ready_at timestamptz NOT NULL,
    undo boolean NOT NULL,
    alone boolean NOT NULL,
    PRIMARY KEY (run_id, step_no, element)
);
CREATE INDEX ready_claim ON _sas.ready (lane, owner, rank, run_id);
-- no statistics, as for the actor of a message
ALTER TABLE _sas.ready ALTER COLUMN lane SET STATISTICS 0;
COMMENT ON TABLE _sas.ready IS
    'Steps that may be claimed now, by lane, owner and rank. Steps in a negative lane wait in a queue.';

-- One row per claimed batch. The worker deletes it with its last reply. The supervisor deletes it when the
-- worker is gone or the time is over.
CREATE TABLE _sas.lease (
    lease_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    boot bigint NOT NULL,
    worker_id bigint NOT NULL,
    locked_by text NOT NULL,
    next_by timestamptz NOT NULL,
    run_ids bigint[] NOT NULL,
    step_nos int[] NOT NULL,
    elements int[] NOT NULL
);
CREATE INDEX lease_next ON _sas.lease (next_by);
COMMENT ON TABLE _sas.lease IS
    'Which worker holds which steps, and when the supervisor must check them next.';

-- The reply to a claimed step whose run another session had locked. It ends the claim: afterwards nothing
-- takes the step back or revokes the claim. The reply is applied when the run is free (sql/agent/answer.sql).
-- Columns as in _sas.call_reply.
CREATE TABLE _sas.answer (
    run_id bigint NOT NULL,
    step_no int NOT NULL,
    element int NOT NULL,
    request_id uuid NOT NULL,
    verdict text NOT NULL,
    attempt int NOT NULL,
    output jsonb,
    error jsonb,
    in_doubt boolean NOT NULL,
    again_in interval,
    arrived_at timestamptz NOT NULL,
    PRIMARY KEY (run_id, step_no, element, request_id)
);
COMMENT ON TABLE _sas.answer IS
    'Replies that arrived while a session held the lock of their run. They are applied when the run is '
    'free.';

-- What has to be done, and when.
--   actor s, the scheduler: start, leave, ended, late, ready, undo, enter, timer, iteration, room, signal,
--   child, cancel, abort, fail, halt, reverse, replace, held and revoke (sql/scheduler/tick.sql)
--   actor a, the scheduler: answer (sql/agent/answer.sql)
--   actor v, the supervisor: failed, deadline, reminder, young and alert_hook (sql/supervisor/decide.sql);
--   alert_hook is about an alert, the others are about a run
CREATE TABLE _sas.message (
    actor "char" NOT NULL,
    due_at timestamptz NOT NULL,
    run_id bigint NOT NULL,
    kind text NOT NULL,
    step_no int,
    element int,
    alert_id bigint,
    owner regrole NOT NULL,
    urgent boolean,
    together int[]
);
CREATE INDEX message_next ON _sas.message (actor, due_at, run_id);
CREATE INDEX message_turn ON _sas.message (actor, owner, due_at, run_id, step_no, element);
CREATE INDEX message_urgent ON _sas.message (actor, owner, due_at) WHERE urgent;
-- what is looked up by its run: its due_at is not known, because a message about a locked run is deferred
CREATE INDEX message_of_run ON _sas.message (run_id)
    WHERE kind IN ('enter', 'child', 'room', 'reverse', 'cancel', 'fail', 'replace');
-- Without statistics the planner never takes an actor for one with next to no messages. Where it did, it read
-- all messages of the actor, by message_turn, to find one by its key: for each of 100,000 deadlines that came
-- after a minute without any.
ALTER TABLE _sas.message ALTER COLUMN actor SET STATISTICS 0;
COMMENT ON TABLE _sas.message IS 'Timers and messages to the scheduler (s, a) and the supervisor (v).';
COMMENT ON COLUMN _sas.message.owner IS
    'The owner of the run. A trigger fills it in; an INSERT leaves it out.';
COMMENT ON COLUMN _sas.message.urgent IS
    'True: something waits for this message, so it comes before the other messages of its owner. Null: it '
    'does not. A trigger sets it for kinds that are always urgent.';
COMMENT ON COLUMN _sas.message.together IS
    'The elements of a message about several of them; element is the first. Null: it is about one, or none. '
    'Only "enter" and "child" have such messages; _sas.take_messages makes a message of each element.';

-- Work that raised an error in a tick. Ticks leave it out until then. See sql/base/apart.sql.
CREATE TABLE _sas.deferred_work (
    kind text NOT NULL,
    id bigint NOT NULL,
    until timestamptz NOT NULL,
    PRIMARY KEY (kind, id)
);
COMMENT ON TABLE _sas.deferred_work IS
    'Work that raised an error in a tick and is tried again later: a lease; a claim, a step of a queue or a '
    'fallback, by its run; the items of an infinite task.';

-- How far the sweep that sets deadline timers has come. This row survives a crash. See _sas.set_timers.
CREATE TABLE _sas.deadline_sweep (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    upto bigint NOT NULL,
    next_upto bigint NOT NULL,
    until_xid xid8
);
COMMENT ON TABLE _sas.deadline_sweep IS
    'Every open run with run_id < upto has a deadline timer. upto may advance to next_upto once all '
    'transactions up to until_xid have ended, because every run before next_upto is visible then.';

-- The elements of a map. They are stored once, when the step begins.
CREATE TABLE _sas.item (
    run_id bigint NOT NULL,
    step_no int NOT NULL,
    element int NOT NULL,
    item jsonb NOT NULL,
    key_no int,
    nth int,
    PRIMARY KEY (run_id, step_no, element)
);
CREATE INDEX item_key ON _sas.item (run_id, step_no, key_no, nth) WHERE key_no IS NOT NULL;
COMMENT ON TABLE _sas.item IS
    'The array entries that the elements of a map work on. key_no: the number of the element''s key. nth: '
    'the element''s position among the elements of that key.';

-- Keys of maps that have a limit per key. An element may begin when nth <= ended + per_key; the elements
-- with nth <= begun have begun. So the key row alone says which element is next.
CREATE TABLE _sas.map_key (
    run_id bigint NOT NULL,
    step_no int NOT NULL,
    key_no int NOT NULL,
    key jsonb NOT NULL,
    first int NOT NULL,
    n int NOT NULL,
    begun int NOT NULL,
    ended int NOT NULL,
    PRIMARY KEY (run_id, step_no, key_no)
) WITH (fillfactor = 50);
-- without columns of the primary key, which the planner would read instead while the map is new
CREATE INDEX map_key_by_key ON _sas.map_key (jsonb_hash_extended(key, run_id));
COMMENT ON TABLE _sas.map_key IS
    'Keys of maps that limit how many elements of one key are in progress: the first element, how many there '
    'are, have begun, and have ended.';

-- Progress of a map, or of a step that repeats. Elements 1 to fed were made ready. remaining counts the
-- elements that have not ended, begun or not. open is null in a map whose elements begin in order.
-- Otherwise (the elements have keys, or only failed elements are tried again) open counts the elements in
-- progress, and fed is how far the scan for elements has come. loading: none begins yet, because there is
-- a row in map_list; else null.
CREATE TABLE _sas.map_progress (
    run_id bigint NOT NULL,
    step_no int NOT NULL,
    total int NOT NULL,
    fed int NOT NULL,
    remaining int NOT NULL,
    failed int NOT NULL,
    open int,
    loading boolean,
    PRIMARY KEY (run_id, step_no)
) WITH (fillfactor = 50);
COMMENT ON TABLE _sas.map_progress IS
    'Maps and repeating steps that have begun: how many elements there are, have begun, remain, and have '
    'failed.';

-- Maps with many elements, or with keys, before their elements begin: a tick writes some of the elements, and
-- the next one continues.
CREATE TABLE _sas.map_list (
    run_id bigint NOT NULL,
    step_no int NOT NULL,
    list jsonb,
    loaded int NOT NULL DEFAULT 0,
    keys int NOT NULL DEFAULT 0,
    spent_us bigint NOT NULL DEFAULT 0,
    spent_bytes bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (run_id, step_no)
);
-- each tick reads a part of it
ALTER TABLE _sas.map_list ALTER list SET STORAGE EXTERNAL;
COMMENT ON TABLE _sas.map_list IS
    'Maps whose elements are being written. list: the array; null: the failed elements are tried again. '
    'loaded: the last element that was written. keys: the last number of a key. spent: what the evaluation '
    'of keys has cost.';

-- What remains to be undone in runs with many steps or elements, the next one first.
CREATE TABLE _sas.undo_order (
    run_id bigint NOT NULL,
    place bigint NOT NULL,
    step_no int NOT NULL,
    element int NOT NULL,
    PRIMARY KEY (run_id, place)
);
COMMENT ON TABLE _sas.undo_order IS
    'The order in which a run with many steps is undone. It saves a scan of all its steps for each undo.';

-- Runs that a rule has abandoned, as they were before that. A pause that comes before the first undo begins
-- restores them from here. undo_no, undo_element: the step that is undone first. undo_from: the state that
-- it had. They are null until the scheduler has chosen it.
CREATE TABLE _sas.abandoned_run (
    run_id bigint PRIMARY KEY,
    for_parent boolean NOT NULL,
    state text NOT NULL,
    open_steps int NOT NULL,
    steps _sas.abandoned_step[] NOT NULL,
    undo_no int,
    undo_element int,
    undo_from text
);
COMMENT ON TABLE _sas.abandoned_run IS
    'Runs that a rule, or the end of their parent, has abandoned, and in which nothing is undone yet: what '
    'was open in them.';

-- Signals that no step has taken. step_no: only this step may take it. No index begins with signal_id: the
-- planner could walk along it, over the signals of all other runs. For the same reason signal_name has an
-- expression: only this index gives the first signals of a name, whatever the planner assumes about names.
CREATE TABLE _sas.signal (
    signal_id bigint GENERATED ALWAYS AS IDENTITY,
    run_id bigint NOT NULL,
    name text NOT NULL,
    step_no int,
    element int,
    payload jsonb NOT NULL,
    sent_by regrole NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (run_id, signal_id)
);
CREATE INDEX signal_name ON _sas.signal (run_id, name, (signal_id + 0)) WHERE step_no IS NULL;
CREATE UNIQUE INDEX signal_token ON _sas.signal (run_id, step_no, element) WHERE step_no IS NOT NULL;
COMMENT ON TABLE _sas.signal IS
    'Messages to runs that no step has taken yet, in the order in which they were sent.';

-- The secret that tokens are made with. It is generated when the first workflow with a token is stored.
CREATE TABLE _sas.token_key (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    value uuid NOT NULL
);
ALTER TABLE _sas.token_key ALTER COLUMN value SET STATISTICS 0;
COMMENT ON TABLE _sas.token_key IS 'The secret behind the tokens with which an outside party ends a wait.';

CREATE TABLE _sas.attempt (
    run_id bigint NOT NULL,
    step_no int NOT NULL,
    element int NOT NULL,
    attempt int NOT NULL,
    undo boolean NOT NULL,
    agent_id int,
    worker text,
    status text NOT NULL,
    http_status int,
    error jsonb,
    started_at timestamptz,
    finished_at timestamptz
);
CREATE INDEX attempt_run ON _sas.attempt (run_id, step_no, element);
COMMENT ON TABLE _sas.attempt IS
    'One row per failed or further attempt. A first attempt that succeeded is only in the row of its step, '
    'until the step is to be undone.';

-- What outside programs leave about a task for the next program that claims it.
CREATE TABLE _sas.task (
    run_id bigint NOT NULL,
    step_no int NOT NULL,
    element int NOT NULL,
    undo boolean NOT NULL,
    tries int NOT NULL DEFAULT 0,
    progress float8,
    checkpoint jsonb,
    lapsed uuid,
    PRIMARY KEY (run_id, step_no, element, undo)
);
CREATE INDEX task_lapsed ON _sas.task (lapsed) WHERE lapsed IS NOT NULL;
COMMENT ON TABLE _sas.task IS
    'Checkpoint and progress of tasks that have not succeeded, the attempts of the current series, and the '
    'request_id of the last claim that expired.';

CREATE TABLE _sas.phase (
    run_id bigint NOT NULL,
    step_no int NOT NULL,
    element int NOT NULL,
    undo boolean NOT NULL,
    stage text NOT NULL,
    request jsonb,
    response jsonb,
    asks int,
    ask_until timestamptz,
    PRIMARY KEY (run_id, step_no, element, undo)
);
COMMENT ON TABLE _sas.phase IS
    'Current phase of each step that is wrapped by middleware or planned by a function, or whose undo polls. '
    'The row is deleted when the step ends.';

-- SPDX-License-Identifier: PostgreSQL
--
-- Tables of steps: their rows, what is ready, leases, messages, maps, undo, signals, attempts, tasks, phases.

-- A step has no row until it is claimed, deferred or waits for one of several.
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
) WITH (fillfactor = 60);
COMMENT ON COLUMN _sas.step.asks IS 'Of a poll: how often it was answered that it is not over; not null '
                                    'since its call has succeeded: then it counts as done for the undo.';
COMMENT ON COLUMN _sas.step.ask_until IS 'Of a poll with a timeout: when it has failed if it is not over.';
COMMENT ON TABLE _sas.step IS 'Steps that were claimed, deferred or are waiting for several. completion '
                              'orders '
                              'the undo.';

-- What operators have put in the place of a step's own. Mostly empty: whoever
-- claims a step looks here, too.
CREATE TABLE _sas.override (
    run_id bigint NOT NULL,
    step_no int NOT NULL,
    element int NOT NULL,
    key text,
    undo_key text,
    input jsonb,
    PRIMARY KEY (run_id, step_no, element)
);
COMMENT ON TABLE _sas.override IS 'What an operator has given a step: another Idempotency-Key, another one '
                                  'for '
                              'its undo, another input; null: its own.';

-- chunk_id grows from chunk to chunk, also over attempts; ordinal counts the chunks of a step.
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
COMMENT ON TABLE _sas.chunk IS 'What steps have told while they were carried out: sas.emit.';

CREATE SEQUENCE _sas.completion_seq;

-- The hot queue. Whoever takes a run off its way takes its rows here first,
-- under the lock of the run: so a claim needs no lock on the run.
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
COMMENT ON TABLE _sas.ready IS 'Steps that may be claimed now, by lane, owner and rank; those of a '
                              'negative lane wait in a queue.';

-- One row per claimed batch, deleted by the worker with its last reply, or by
-- the supervisor when its worker is gone or its time is over.
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
COMMENT ON TABLE _sas.lease IS 'Who holds which steps, and when the supervisor looks at them next.';

-- What came back for a claimed step whose run somebody held. The claim is over with it: nobody takes the step
-- back or revokes it, and it is applied when the run is free (sql/agent/answer.sql). Columns as in
-- _sas.call_reply.
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
COMMENT ON TABLE _sas.answer IS 'Replies that arrived while somebody held their run, and are applied when '
                                'it is free.';

-- What is to be checked when: for the scheduler (actor s) start, leave, ended,
-- late, ready, undo, enter, timer, turn, room, signal, child, cancel, abort, fail, halt, reverse, held and
-- revoke, and (actor a) answer; for the supervisor (actor v) failed, deadline, reminder, young and
-- alert_hook, which is about an alert, and no run.
CREATE TABLE _sas.message (
    actor "char" NOT NULL,
    due_at timestamptz NOT NULL,
    run_id bigint NOT NULL,
    kind text NOT NULL,
    step_no int,
    element int,
    alert_id bigint,
    owner regrole NOT NULL,
    urgent boolean
);
CREATE INDEX message_next ON _sas.message (actor, due_at, run_id);
CREATE INDEX message_turn ON _sas.message (actor, owner, due_at, run_id, step_no, element);
CREATE INDEX message_urgent ON _sas.message (actor, owner, due_at) WHERE urgent;
COMMENT ON TABLE _sas.message IS 'Timers and messages to the scheduler (s) and the supervisor (v).';
COMMENT ON COLUMN _sas.message.owner IS 'Of the run. Whoever writes a message leaves it out: a trigger knows '
                                        'it.';
COMMENT ON COLUMN _sas.message.urgent IS 'Somebody waits for it: it comes before the other messages of its '
                                         'owner. Null: no. A trigger sets it for the kinds that always are.';

-- What a tick could not carry out, and leaves out until then: see sql/base/apart.sql.
CREATE TABLE _sas.deferred_work (
    kind text NOT NULL,
    id bigint NOT NULL,
    until timestamptz NOT NULL,
    PRIMARY KEY (kind, id)
);
COMMENT ON TABLE _sas.deferred_work IS 'What raised in a tick, and is tried again later: a lease, a step of '
                                       'a queue or a fallback by its run, the items of an infinite task.';

-- How far the timers of deadlines have been set, as it holds after a crash: see _sas.set_timers.
CREATE TABLE _sas.deadline_sweep (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    upto bigint NOT NULL,
    next_upto bigint NOT NULL,
    until_xid xid8
);
COMMENT ON TABLE _sas.deadline_sweep IS 'Every open run before upto has the timer of its deadline. Once '
                                        'until_xid and '
                               'what is older is over, all runs before next_upto can be seen.';

-- Elements of a map: what the step goes over, taken once, when it begins.
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
COMMENT ON TABLE _sas.item IS 'What the elements of a map are about. Under a key: the number of the key, and '
                              'which of its elements this is.';

-- Maps with a limit per key. An element may begin when its nth is at most ended + per_key; those up to begun
-- have. So whose turn is next is known by the key alone.
CREATE TABLE _sas.map_key (
    run_id bigint NOT NULL,
    step_no int NOT NULL,
    key_no int NOT NULL,
    begun int NOT NULL,
    ended int NOT NULL,
    PRIMARY KEY (run_id, step_no, key_no)
) WITH (fillfactor = 50);
COMMENT ON TABLE _sas.map_key IS 'Keys of maps that limit how many elements of a key are on their way: how '
                                 'many have begun, and ended.';

-- How far a map, or a step that repeats, is. Elements 1 to fed have been made
-- ready; remaining counts those that have not ended, or have not been fed. open is not null in a map whose
-- elements begin in another order, since they have keys or only some of them are tried again: so many are on
-- their way, and fed is how far it was looked for others.
CREATE TABLE _sas.map_progress (
    run_id bigint NOT NULL,
    step_no int NOT NULL,
    total int NOT NULL,
    fed int NOT NULL,
    remaining int NOT NULL,
    failed int NOT NULL,
    open int,
    PRIMARY KEY (run_id, step_no)
) WITH (fillfactor = 50);
COMMENT ON TABLE _sas.map_progress IS 'Maps and repeating steps that have begun: how many elements there '
                                      'are, were '
                             'begun, remain, and failed.';

-- What is still to be undone of runs with many steps or elements, the next one first.
CREATE TABLE _sas.undo_order (
    run_id bigint NOT NULL,
    place bigint NOT NULL,
    step_no int NOT NULL,
    element int NOT NULL,
    PRIMARY KEY (run_id, place)
);
COMMENT ON TABLE _sas.undo_order IS 'The order in which a run with many steps is undone, without looking '
                                   'through them all each time.';

-- What a rule has ended, as it was before: a pause that comes before anything is undone takes that back.
-- undo_no to undo_from: the step whose undo is next, and what it was; null: the scheduler has not come to it.
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
COMMENT ON TABLE _sas.abandoned_run IS 'Runs that a rule has ended, or the end of their parent, and of which '
                                       'nothing is undone yet: what was open in them.';

-- Signals that nobody has taken yet. step_no: for that step only.
CREATE TABLE _sas.signal (
    signal_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id bigint NOT NULL,
    name text NOT NULL,
    step_no int,
    element int,
    payload jsonb NOT NULL,
    sent_by regrole NOT NULL,
    created_at timestamptz NOT NULL
);
CREATE INDEX signal_run ON _sas.signal (run_id, signal_id);
CREATE UNIQUE INDEX signal_token ON _sas.signal (run_id, step_no, element) WHERE step_no IS NOT NULL;
COMMENT ON TABLE _sas.signal IS 'Messages to runs that no step has taken yet, in the order of their sending.';

-- What tokens are made with; made itself when the first definition hands one out.
CREATE TABLE _sas.token_key (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    value uuid NOT NULL
);
COMMENT ON TABLE _sas.token_key IS 'The secret in the tokens that let somebody end a wait from outside.';

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
CREATE INDEX attempt_run ON _sas.attempt (run_id);
COMMENT ON TABLE _sas.attempt IS 'A row per failed or further attempt; a first attempt that succeeded is '
                                 'told by its step, until that is to be undone.';

-- What outside programs leave about a task for the next one that claims it.
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
COMMENT ON TABLE _sas.task IS 'Checkpoint and progress of tasks that have not succeeded, attempts of this '
                              'series, and the request_id of the last claim that lapsed.';

CREATE TABLE _sas.phase (
    run_id bigint NOT NULL,
    step_no int NOT NULL,
    element int NOT NULL,
    undo boolean NOT NULL,
    stage text NOT NULL,
    request jsonb,
    response jsonb,
    PRIMARY KEY (run_id, step_no, element, undo)
);
COMMENT ON TABLE _sas.phase IS 'Where steps stand that go through functions before or after what they are; '
                               'gone when they are over.';

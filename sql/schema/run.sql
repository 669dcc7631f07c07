-- SPDX-License-Identifier: PostgreSQL
--
-- Tables of runs, and of what runs leave behind. All of them are private. Run data begins with run_id; what
-- relates runs to each other (keys) is in tables of its own. No column that changes with the state of a
-- step or run is in an index, so that those updates stay HOT.

-- runs --------------------------------------------------------------------------
CREATE TABLE _sas.run (
    run_id bigint GENERATED ALWAYS AS IDENTITY (MAXVALUE 2199023255551) PRIMARY KEY,
    version_id int NOT NULL,
    owner regrole NOT NULL,
    trace uuid NOT NULL,
    key text,
    state text NOT NULL,
    result text,
    abandon_as text,
    open_steps int NOT NULL,
    priority int NOT NULL,
    input jsonb NOT NULL,
    output jsonb,
    error jsonb,
    reply_to text,
    hook_of bigint,
    labels jsonb NOT NULL,
    created_at timestamptz NOT NULL,
    start_at timestamptz,
    start_before timestamptz,
    queue_id int,
    started_at timestamptz,
    finished_at timestamptz,
    deadline timestamptz NOT NULL,
    overdue boolean,
    paused_for text,
    paused_by text,
    paused_at timestamptz,
    paused_state text,
    parent_run_id bigint,
    parent_step_no int,
    parent_element int,
    own_version boolean NOT NULL DEFAULT false,
    schedule text,
    scheduled_at timestamptz
) WITH (fillfactor = 70);
CREATE INDEX run_child ON _sas.run (parent_run_id, parent_step_no, parent_element)
    WHERE parent_run_id IS NOT NULL;
-- The owner comes first: a search by key reads no entry of a role whose runs it must not show, so neither its
-- plan nor its time reveals the keys of others.
CREATE INDEX run_by_key ON _sas.run (owner, key) WHERE key IS NOT NULL;
-- Finds the runs of an owner, or of a workflow. The version of a run never changes, and its owner only by
-- REASSIGN OWNED.
CREATE INDEX run_by_owner ON _sas.run (owner, version_id, run_id);
CREATE INDEX run_hook ON _sas.run (hook_of) WHERE hook_of IS NOT NULL;
-- The open runs whose deadline has passed have no timer any more: see _sas.not_ended.
CREATE INDEX run_overdue ON _sas.run (run_id) WHERE overdue;
CREATE INDEX run_own_version ON _sas.run (version_id) WHERE own_version;
COMMENT ON TABLE _sas.run IS
    'Runs. abandon_as is set when a run cannot go on: compensate, cancel or fail. open_steps counts the '
    'steps that are ready, running or suspended, or have failed and wait for a decision.';
COMMENT ON COLUMN _sas.run.parent_element IS
    'The element of the parent''s step that this run works on. -1 - n: this run undoes element n.';
COMMENT ON COLUMN _sas.run.hook_of IS
    'For a run of a hook: the run that triggered it. 0: an alert triggered it.';
COMMENT ON COLUMN _sas.run.overdue IS
    'True once the passed deadline was handled. Null before that, and again after a resume or the end.';
COMMENT ON COLUMN _sas.run.own_version IS
    'Its version was made for runs like this one; it is purged with the last of them.';
COMMENT ON COLUMN _sas.run.schedule IS
    'The name of the schedule that submitted it. That schedule may have been dropped.';
COMMENT ON COLUMN _sas.run.trace IS 'A random number, from which idempotency keys and the trace id are made.';

-- Runs that have ended, in the order of their end, for the purge; so _sas.run needs no index on a column
-- that changes. One row per commit and result. Child runs and hook runs are purged with the run that they
-- belong to.
CREATE TABLE _sas.finished_run (
    result text NOT NULL,
    ended_at timestamptz NOT NULL,
    run_ids bigint[] NOT NULL
);
CREATE INDEX finished_run_next ON _sas.finished_run (result, ended_at);
COMMENT ON TABLE _sas.finished_run IS 'Runs that have ended and are kept until their retention time is over.';

-- due_at: not before; child runs that could not be purged with it are tried again then
CREATE TABLE _sas.purged_run (
    run_id bigint PRIMARY KEY,
    due_at timestamptz NOT NULL DEFAULT '-infinity'
);
CREATE INDEX purged_run_due ON _sas.purged_run (due_at);
COMMENT ON TABLE _sas.purged_run IS
    'Runs that are purged, but had so many steps or child runs that the rows of these are deleted some '
    'thousands at a time.';

-- One row per label of a run, so that a search by label finds the newest runs first. The label is stored as
-- a hash of name and value, because labels may be long.
CREATE TABLE _sas.run_label (
    label bigint NOT NULL,
    owner regrole NOT NULL,
    run_id bigint NOT NULL,
    PRIMARY KEY (label, owner, run_id)
);
COMMENT ON TABLE _sas.run_label IS 'The labels of runs. label is _sas.label_hash(name, value).';

-- what a run waits for before it begins ------------------------------------------
CREATE TABLE _sas.run_dependency (
    run_id bigint NOT NULL,
    after_run bigint NOT NULL,
    results text[] NOT NULL,
    PRIMARY KEY (run_id, after_run)
);
CREATE INDEX run_dependency_earlier ON _sas.run_dependency (after_run);
COMMENT ON TABLE _sas.run_dependency IS
    'Runs that begin only after other runs have stopped, and the results that those must have.';

CREATE TABLE _sas.concurrency_slot (
    run_id bigint NOT NULL,
    rule_no int NOT NULL,
    owner oid NOT NULL,
    workflow_id int NOT NULL,
    key text NOT NULL,
    places int NOT NULL,
    shared boolean NOT NULL,
    overlap text NOT NULL,
    state text NOT NULL CHECK (state IN ('away', 'waits', 'holds', 'left')),
    since timestamptz NOT NULL,
    parent_run_id bigint,
    parent_step_no int,
    told boolean NOT NULL,
    PRIMARY KEY (run_id, rule_no)
);
CREATE INDEX concurrency_slot_waits ON _sas.concurrency_slot (owner, workflow_id, key, run_id)
    WHERE state = 'waits';
CREATE INDEX concurrency_slot_told ON _sas.concurrency_slot (parent_run_id, parent_step_no) WHERE told;
CREATE INDEX concurrency_slot_parked ON _sas.concurrency_slot (owner, workflow_id, key)
    WHERE state = 'away' AND told;
CREATE INDEX concurrency_slot_holds ON _sas.concurrency_slot (owner, workflow_id, key) WHERE state = 'holds';
CREATE INDEX concurrency_slot_met ON _sas.concurrency_slot (owner, workflow_id, key) WHERE overlap <> 'wait';
COMMENT ON TABLE _sas.concurrency_slot IS
    'Slots under concurrency keys, one row for each key that a run needs. state: away (something else keeps '
    'the run from waiting in line), waits (in line, by run_id), holds (it has the slot), left (it has '
    'stopped).';
COMMENT ON COLUMN _sas.concurrency_slot.owner IS
    'The role whose runs share the key. 0: the runs of all roles share it.';
COMMENT ON COLUMN _sas.concurrency_slot.workflow_id IS
    'The workflow whose runs share the key. 0: the runs of all workflows share it.';
COMMENT ON COLUMN _sas.concurrency_slot.places IS 'The limit of the key in the version of this run.';
COMMENT ON COLUMN _sas.concurrency_slot.since IS 'Since when the run holds the slot or waits for it.';
COMMENT ON COLUMN _sas.concurrency_slot.told IS
    'True while a child run waits and its parent knows that. Such a child does not count against the limit '
    'of its map. With state away, its key was free, but the map had no room: it waits for that.';

CREATE TABLE _sas.concurrency_key (
    owner oid NOT NULL,
    workflow_id int NOT NULL,
    key text NOT NULL,
    submits bigint NOT NULL DEFAULT 1,
    PRIMARY KEY (owner, workflow_id, key)
) WITH (fillfactor = 50);
COMMENT ON TABLE _sas.concurrency_key IS
    'Concurrency keys under which a submit checks for room. The submit locks the row, so that submits check '
    'one after another.';

CREATE TABLE _sas.deferred_run (
    run_id bigint PRIMARY KEY,
    workflow_id int NOT NULL
);
CREATE INDEX deferred_run_workflow ON _sas.deferred_run (workflow_id);
COMMENT ON TABLE _sas.deferred_run IS 'Runs that begin when their workflow is resumed.';

-- queues --------------------------------------------------------------------------
CREATE TABLE _sas.queue (
    queue_id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    max_running int NOT NULL,
    key text,
    per_key int,
    paused_at timestamptz,
    created_at timestamptz NOT NULL,
    dropped_at timestamptz
);
CREATE UNIQUE INDEX queue_name ON _sas.queue (name) WHERE dropped_at IS NULL;
COMMENT ON TABLE _sas.queue IS
    'Named queues. Steps that wait in a queue are in _sas.ready with the lane -queue_id. key: a template; '
    'per_key: how many steps with the same key may have a slot.';

CREATE TABLE _sas.queue_slot (
    run_id bigint NOT NULL,
    step_no int NOT NULL,
    element int NOT NULL,
    queue_id int NOT NULL,
    key text,
    PRIMARY KEY (run_id, step_no, element, queue_id)
);
CREATE INDEX queue_slot_queue ON _sas.queue_slot (queue_id, key);
COMMENT ON TABLE _sas.queue_slot IS
    'Steps that were let out of their queue and have not ended. key: what the key of the queue gave. '
    'queue_id: the queue; or -agent_id, for calls in progress of an agent with a key.';

CREATE TABLE _sas.queue_user (
    queue_id int NOT NULL,
    role regrole NOT NULL,
    used_at timestamptz NOT NULL,
    PRIMARY KEY (queue_id, role)
);
COMMENT ON TABLE _sas.queue_user IS
    'Owners whose steps have asked for a slot of a queue within the last hour: not all, but some of them. '
    'Only schedulers with the mutex "queues" write it. What a role has used stays so when another role gets '
    'what it owns.';

-- A row whose step is not in the key lane of the queue means nothing, and is deleted when it is found.
CREATE TABLE _sas.parked_step (
    run_id bigint NOT NULL,
    step_no int NOT NULL,
    element int NOT NULL,
    queue_id int NOT NULL,
    key text NOT NULL,
    rank timestamptz NOT NULL,
    PRIMARY KEY (run_id, step_no, element)
);
CREATE INDEX parked_step_key ON _sas.parked_step (queue_id, key, rank);
COMMENT ON TABLE _sas.parked_step IS
    'Steps of a queue, or of an agent (queue_id is -agent_id), that wait until one with the same key has '
    'ended. They are in _sas.ready with the lane _sas.key_lane(queue_id).';

CREATE TABLE _sas.freed_key (
    queue_id int NOT NULL,
    key text
);
COMMENT ON TABLE _sas.freed_key IS
    'Keys of queues, and of agents (queue_id is -agent_id), under which a slot has become free since the '
    'scheduler last gave out slots. key null: the key of the queue has changed.';

-- Only schedulers lock these rows, each for one short transaction. What is counted under the lock cannot
-- change meanwhile.
CREATE TABLE _sas.lock_row (
    what text PRIMARY KEY
);
INSERT INTO _sas.lock_row VALUES ('places'), ('queues'), ('agent keys');
COMMENT ON TABLE _sas.lock_row IS
    'Mutexes: only one scheduler at a time gives out slots of concurrency keys (places) or of queues '
    '(queues).';

CREATE TABLE _sas.run_key (
    owner regrole NOT NULL,
    workflow_id int NOT NULL,
    key text NOT NULL,
    run_id bigint NOT NULL,
    PRIMARY KEY (owner, workflow_id, key)
);
COMMENT ON TABLE _sas.run_key IS 'The key of a run, unique per owner and workflow until the run is purged.';

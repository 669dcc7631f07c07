-- SPDX-License-Identifier: PostgreSQL
--
-- Tables of the testing aids. Their rows exist only within a transaction that is rolled back.

CREATE TABLE _sas.stub (
    stub_id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    agent_id int NOT NULL,
    method text,
    path text,
    step text,
    element int,
    attempt int,
    undo boolean,
    answers jsonb NOT NULL,
    for_ever boolean NOT NULL,
    used int NOT NULL DEFAULT 0
);
COMMENT ON TABLE _sas.stub IS
    'Answers in place of agents, in the transaction of a test. Null matches anything. The last stub that '
    'matches and is not used up answers.';

CREATE TABLE _sas.stub_signal (
    stub_signal_id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    payload jsonb NOT NULL,
    after interval NOT NULL,
    times int NOT NULL,
    used int NOT NULL DEFAULT 0
);
COMMENT ON TABLE _sas.stub_signal IS 'Signals that are sent when a step of a run in a test waits for them.';

CREATE TABLE _sas.stubbed_call (
    call_no int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id bigint NOT NULL,
    step_no int NOT NULL,
    element int NOT NULL,
    step text NOT NULL,
    undo boolean NOT NULL,
    attempt int NOT NULL,
    agent_id int NOT NULL,
    at timestamptz NOT NULL,
    idempotency_key text,
    request jsonb NOT NULL,
    answer jsonb NOT NULL
);
COMMENT ON TABLE _sas.stubbed_call IS
    'Calls to stubbed agents, with their answers, in the transaction of a test.';

-- A call or task in progress, or waiting between two attempts (answer null).
CREATE TABLE _sas.stub_flight (
    run_id bigint NOT NULL,
    step_no int NOT NULL,
    element int NOT NULL,
    step text NOT NULL,
    undo boolean NOT NULL,
    is_task boolean NOT NULL,
    settles boolean NOT NULL,
    agent_id int NOT NULL,
    lease_id bigint NOT NULL,
    request_id uuid NOT NULL,
    trace uuid,
    key text,
    attempt int NOT NULL,
    tries int NOT NULL DEFAULT 0,
    in_doubt boolean NOT NULL DEFAULT false,
    request jsonb,
    policy jsonb,
    problem jsonb,
    last_by timestamptz NOT NULL,
    at timestamptz NOT NULL,
    started_at timestamptz,
    answer jsonb,
    PRIMARY KEY (run_id, step_no, element)
);
COMMENT ON TABLE _sas.stub_flight IS
    'Claimed calls and tasks of a run in a test. at: when each has to be processed next.';

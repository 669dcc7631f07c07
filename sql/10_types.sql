-- SPDX-License-Identifier: PostgreSQL
--
-- Types: the messages that the functions of the machine hand to each other.

-- A change of one step, for sas._move_steps. from_state 'none' inserts the
-- row. Columns from "lease_id" to "waiting_until" are written as given; the
-- others leave the stored value when they are null.
CREATE TYPE sas._step_change AS (
    run_id bigint,
    step_no int,
    element int,
    from_state text,
    to_state text,
    attempt int,
    failure_count int,
    in_doubt boolean,
    transient boolean,
    alone boolean,
    needs_left int,
    output jsonb,
    error jsonb,
    completion bigint,
    started_at timestamptz,
    finished_at timestamptz,
    lease_id bigint,
    request_id uuid,
    complete_by timestamptz,
    parked boolean,
    waiting_kind text,
    waiting_until timestamptz
);

-- A change of one run, for sas._move_runs. Null leaves the stored value,
-- except the three columns of a pause, which are written as given.
CREATE TYPE sas._run_change AS (
    run_id bigint,
    from_state text,
    to_state text,
    result text,
    fate text,
    open_steps int,
    output jsonb,
    error jsonb,
    paused_for text,
    paused_by text,
    paused_state text
);

-- One step out of a claim.
CREATE TYPE sas._claimed AS (
    run_id bigint,
    step_no int,
    element int,
    undo boolean,
    alone boolean,
    version_id int,
    lane int,
    from_state text,
    attempt int,
    complete_in interval,
    request_id uuid
);

-- A reply of a worker to one claimed step.
--   verdict  done       the remote or local work succeeded (expect is still to be asked)
--            transient  it failed and may be tried again
--            permanent  it failed for good
--            hand_back  the claim is given back and no failure counted; again_in says when it may be claimed again
CREATE TYPE sas._reply AS (
    run_id bigint,
    step_no int,
    element int,
    request_id uuid,
    verdict text,
    attempt int,
    output jsonb,
    error jsonb,
    in_doubt boolean,
    again_in interval
);

-- One thing that is wrong with a definition.
CREATE TYPE sas._problem AS (
    path text,
    problem text,
    hint text,
    code text
);

-- SPDX-License-Identifier: PostgreSQL
--
-- Tables of schedules: one row per schedule, none per instant. An instant leaves only its run behind.

CREATE TABLE _sas.schedule (
    schedule_id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE,
    owner regrole NOT NULL,
    spec text NOT NULL,
    timezone text NOT NULL,
    workflow text NOT NULL,
    workflow_owner regrole NOT NULL,
    input jsonb NOT NULL,
    overlap text NOT NULL,
    catch_up text NOT NULL,
    catch_up_window interval NOT NULL,
    jitter interval NOT NULL,
    start_at timestamptz,
    end_at timestamptz,
    max_runs int,
    pause_on_failure boolean NOT NULL,
    priority int NOT NULL,
    labels jsonb NOT NULL,
    state text NOT NULL CHECK (state IN ('active', 'paused', 'finished', 'failed')),
    paused_reason text,
    error jsonb,
    due_at timestamptz,
    last_scheduled_at timestamptz NOT NULL,
    last_run_at timestamptz,
    last_run_id bigint,
    open_run_ids bigint[] NOT NULL DEFAULT '{}',
    runs bigint NOT NULL DEFAULT 0,
    missed bigint NOT NULL DEFAULT 0,
    skipped bigint NOT NULL DEFAULT 0,
    failures int NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL,
    copy boolean NOT NULL DEFAULT false,
    CHECK (NOT copy OR due_at IS NULL)
) WITH (fillfactor = 70);
CREATE INDEX schedule_by_due ON _sas.schedule (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX schedule_owner ON _sas.schedule (owner);
CREATE INDEX schedule_owner_due ON _sas.schedule (owner, due_at) WHERE due_at IS NOT NULL;
COMMENT ON COLUMN _sas.schedule.workflow_owner IS
    'The owner of the workflow when the schedule was created. A workflow of the same name that belongs to '
    'another role is not submitted.';
COMMENT ON TABLE _sas.schedule IS 'Rules that submit a run at each of their instants.';
COMMENT ON COLUMN _sas.schedule.due_at IS
    'When the scheduler has to process it next: its next instant plus jitter. Null: never.';
COMMENT ON COLUMN _sas.schedule.last_scheduled_at IS
    'Every instant up to this one is decided and never fires again. It advances in the commit that submits '
    'the run.';
COMMENT ON COLUMN _sas.schedule.open_run_ids IS
    'Its last runs that had not stopped when it fired last, at most a thousand, in the order of their '
    'instants.';
COMMENT ON COLUMN _sas.schedule.copy IS
    'It fires on the coordinator of a cluster, and here never: it stays a copy if this node leaves the '
    'cluster or is restored elsewhere. sas.schedule() called here makes it one that fires here.';
COMMENT ON COLUMN _sas.schedule.failures IS 'How many instants in a row could not be submitted.';

-- One instant of a schedule: first what is to be submitted, then what happened.
CREATE TYPE _sas.schedule_instant AS (
    schedule_id int,
    scheduled_at timestamptz,
    missed bigint,                  -- instants before it that nobody submits
    outcome text,                   -- null: not decided; run, skipped, failed; later: it is tried again;
                                    -- planned: a function worker submits it
    run_id bigint,
    after_run bigint,
    error jsonb
);

-- A row of the calendar.
CREATE TYPE _sas.calendar_entry AS (schedule_id int, name text, run_at timestamptz, scheduled_at timestamptz);

-- _sas.make_instant(...): builds an instant of a schedule from named columns.
CREATE FUNCTION _sas.make_instant(schedule_id int, scheduled_at timestamptz, missed bigint DEFAULT 0,
                                  outcome text DEFAULT NULL) RETURNS _sas.schedule_instant
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ROW($1, $2, $3, $4, NULL, NULL, NULL)::_sas.schedule_instant
$$;

CREATE TABLE _sas.schedule_plan (
    schedule_id int PRIMARY KEY REFERENCES _sas.schedule ON DELETE CASCADE,
    instant _sas.schedule_instant NOT NULL,
    owner regrole NOT NULL,
    offered boolean NOT NULL,
    due_at timestamptz NOT NULL,
    request_id uuid,
    boot bigint,
    worker_id bigint,
    tries int NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
CREATE INDEX schedule_plan_turn ON _sas.schedule_plan (owner, due_at) WHERE offered AND worker_id IS NULL;
COMMENT ON TABLE _sas.schedule_plan IS
    'Instants whose runs are planned by functions of users, so that function workers submit them. '
    'request_id: the claim of a worker that works on it.';
COMMENT ON COLUMN _sas.schedule_plan.due_at IS
    'When the scheduler offers it again if no worker has submitted it.';

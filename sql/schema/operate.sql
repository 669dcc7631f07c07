-- SPDX-License-Identifier: PostgreSQL
--
-- Tables for operators: their actions, alerts, replies, and what conditions are compared with.

-- The extension decides what a level may do; sql/api/grants.sql fills this table.
CREATE TABLE _sas.privilege (
    level text NOT NULL,
    signature text NOT NULL,
    part text NOT NULL CHECK (part IN ('verb', 'builder', 'look', 'level')),
    PRIMARY KEY (level, signature)
);
COMMENT ON TABLE _sas.privilege IS
    'What each level may execute. part: verb; builder, a function that builds a piece of a definition; '
    'look, read access to views; level, the function that marks a role as having the level.';

CREATE TABLE _sas.operator_action (
    run_id bigint,
    at timestamptz NOT NULL,
    role text NOT NULL,
    act text NOT NULL,
    step text,
    detail jsonb,
    session_role text NOT NULL DEFAULT session_user,
    client text DEFAULT host(inet_client_addr()),
    application text DEFAULT nullif(current_setting('application_name'), ''),
    reason text DEFAULT nullif(left(current_setting('sas.reason', true), 1000), '')
);
CREATE INDEX operator_action_run ON _sas.operator_action (run_id);
COMMENT ON TABLE _sas.operator_action IS
    'One row per action of an operator. run_id is null if the action was not about a run.';

CREATE TABLE _sas.role_limit (
    role regrole,
    name text NOT NULL,
    value bigint NOT NULL
);
CREATE UNIQUE INDEX role_limit_role ON _sas.role_limit (role, name) WHERE role IS NOT NULL;
CREATE UNIQUE INDEX role_limit_default ON _sas.role_limit (name) WHERE role IS NULL;
COMMENT ON TABLE _sas.role_limit IS
    'How much a role may have open. role null: the limit of each role that has none of its own.';

CREATE TABLE _sas.alert (
    alert_id bigint GENERATED ALWAYS AS IDENTITY (MAXVALUE 2199023255551) PRIMARY KEY,
    kind text NOT NULL,
    cause text NOT NULL,
    agent_id int,
    workflow_id int,
    owner regrole,
    run_id bigint,
    run_ids bigint[],
    step_no int,
    message text NOT NULL,
    private_message text,
    occurrences int NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL,
    last_at timestamptz NOT NULL,
    acknowledged_at timestamptz,
    acknowledged_by text,
    closed_at timestamptz
);
CREATE UNIQUE INDEX alert_cause ON _sas.alert (cause) WHERE closed_at IS NULL;
CREATE INDEX alert_latest ON _sas.alert (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX alert_closed ON _sas.alert (closed_at) WHERE closed_at IS NOT NULL;
COMMENT ON COLUMN _sas.alert.run_ids IS
    'The latest ten runs, the newest occurrence first. run_id is the first of them, and step_no a step of '
    'that run.';
COMMENT ON COLUMN _sas.alert.private_message IS
    'The message with the whole cause, for roles that may see payloads. Null: message has the whole cause.';
COMMENT ON TABLE _sas.alert IS
    'What an operator should see: one row per cause. It is closed when the cause has ended or, if the end '
    'of the cause cannot be detected, when it is acknowledged.';

CREATE TABLE _sas.alert_run (
    run_id bigint NOT NULL,
    cause text NOT NULL,
    alert_id bigint NOT NULL,
    PRIMARY KEY (run_id, cause)
);
CREATE INDEX alert_run_alert ON _sas.alert_run (alert_id);
COMMENT ON TABLE _sas.alert_run IS
    'Runs for which an alert is open. The alert is closed with the last of them.';

CREATE TABLE _sas.reply (
    reply_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue text NOT NULL,
    owner regrole NOT NULL,
    event text NOT NULL,
    run_id bigint NOT NULL,
    workflow text NOT NULL,
    key text,
    result text,
    output jsonb,
    error jsonb,
    created_at timestamptz NOT NULL
);
-- reply_id + 0: or the order of the primary key would be as good, but that has the messages of all queues
CREATE INDEX reply_queue ON _sas.reply (queue, owner, (reply_id + 0));
CREATE INDEX reply_run ON _sas.reply (run_id);
COMMENT ON TABLE _sas.reply IS
    'Messages for the applications that submitted runs with reply_to, until they are read.';

CREATE TABLE _sas.delayed_note (
    note_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    channel text NOT NULL,
    payload text NOT NULL
);
COMMENT ON TABLE _sas.delayed_note IS
    'Notifications of transactions that other nodes of a Citus cluster commit in two phases.';

-- the hook ------------------------------------------------------------------------
CREATE TABLE _sas.alert_hook (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    version_id int NOT NULL,
    function text NOT NULL,
    owner regrole NOT NULL
);
COMMENT ON TABLE _sas.alert_hook IS
    'The function that is called for new alerts. The call is a run of its own, like the hooks of runs, of a '
    'version that no view shows.';

-- Versions whose runs a session has purged. Only the supervisor purges versions: the lock on a version
-- would block every session that plans another run with it, the scheduler included.
CREATE TABLE _sas.idle_version (
    version_id int NOT NULL
);
COMMENT ON TABLE _sas.idle_version IS
    'Generated versions that may have no run any more, for the supervisor to check.';

-- Starts of the server that the supervisor has noticed.
CREATE TABLE _sas.boot (
    boot bigint PRIMARY KEY,
    at timestamptz NOT NULL
);
COMMENT ON TABLE _sas.boot IS
    'When shared memory was created, for as long as that matters: many starts in a short time are a crash '
    'loop.';

-- The place where the data was in use: see sql/base/place.sql. There is no key, because a dump may restore
-- a row that already exists.
CREATE TABLE _sas.home (
    system_identifier bigint NOT NULL,
    database oid NOT NULL,
    timeline bigint NOT NULL,
    backup text NOT NULL,
    quarantined_for text
);
COMMENT ON TABLE _sas.home IS
    'The place where the data was in use. If a row names another place than this one, the data is a copy, '
    'and calls nothing until an admin releases it.';
COMMENT ON COLUMN _sas.home.backup IS 'The base backup that the server was started from. Empty: none.';
COMMENT ON COLUMN _sas.home.quarantined_for IS
    'Why the data was found to be a copy. Null: it was not found to be one.';

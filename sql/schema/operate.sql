-- SPDX-License-Identifier: PostgreSQL
--
-- Tables for operators: what they did, alerts, replies, and what conditions are compared with.

-- Filled by sql/api/grants.sql, as what a level may do is the extension's to say.
CREATE TABLE _sas.privilege (
    level text NOT NULL,
    signature text NOT NULL,
    part text NOT NULL CHECK (part IN ('verb', 'builder', 'look', 'level')),
    PRIMARY KEY (level, signature)
);
COMMENT ON TABLE _sas.privilege IS 'What each level may execute. builder: a piece of a definition; look: '
                                   'reads views; level: tells that a role has the level.';

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
COMMENT ON TABLE _sas.operator_action IS 'A row per act of an operator; run_id is null when it was about '
                                         'something else.';

CREATE TABLE _sas.role_limit (
    role regrole,
    name text NOT NULL,
    value bigint NOT NULL
);
CREATE UNIQUE INDEX role_limit_role ON _sas.role_limit (role, name) WHERE role IS NOT NULL;
CREATE UNIQUE INDEX role_limit_default ON _sas.role_limit (name) WHERE role IS NULL;
COMMENT ON TABLE _sas.role_limit IS 'What a role may have open; role null: each role without a limit of its '
                                    'own.';

CREATE TABLE _sas.alert (
    alert_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
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
COMMENT ON COLUMN _sas.alert.run_ids IS 'The latest ten runs, the newest occurrence first; run_id is the '
                                       'first of them, and step_no a step of that run.';
COMMENT ON COLUMN _sas.alert.private_message IS 'The message with the whole cause, for roles that may see '
                                               'payloads; null: the same';
COMMENT ON TABLE _sas.alert IS 'What an operator should see; one row per cause until that has ended or, '
                               'where nobody can see its end, until it is acknowledged.';

CREATE TABLE _sas.alert_run (
    run_id bigint NOT NULL,
    cause text NOT NULL,
    alert_id bigint NOT NULL,
    PRIMARY KEY (run_id, cause)
);
CREATE INDEX alert_run_alert ON _sas.alert_run (alert_id);
COMMENT ON TABLE _sas.alert_run IS 'Runs for which an alert is open; it closes with the last of them.';

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
CREATE INDEX reply_queue ON _sas.reply (queue, owner, reply_id);
CREATE INDEX reply_run ON _sas.reply (run_id);
COMMENT ON TABLE _sas.reply IS 'Messages for the applications that submitted runs with reply_to, until they '
                               'are read.';

-- the hook ------------------------------------------------------------------------
CREATE TABLE _sas.alert_hook (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    version_id int NOT NULL,
    function text NOT NULL,
    owner regrole NOT NULL
);
COMMENT ON TABLE _sas.alert_hook IS 'The function that is told of new alerts. It is a run of its own, as the '
                                    'hooks of runs are, of a version that nobody sees.';

-- What a session has purged the runs of. Only the supervisor purges versions: the lock on one would be waited
-- for by whoever plans another run with it, the scheduler included.
CREATE TABLE _sas.idle_version (
    version_id int NOT NULL
);
COMMENT ON TABLE _sas.idle_version IS 'Versions that nobody has written and that may have no run any more, '
                                      'for the supervisor to look at.';

-- Starts of the server, as the supervisor has seen them.
CREATE TABLE _sas.boot (
    boot bigint PRIMARY KEY,
    at timestamptz NOT NULL
);
COMMENT ON TABLE _sas.boot IS 'When shared memory began anew, for as long as that matters: many starts in a '
                              'short time are a crash loop.';

-- Where the data was alive: see sql/base/place.sql. No key: a dump may bring a row that is there already.
CREATE TABLE _sas.home (
    system_identifier bigint NOT NULL,
    database oid NOT NULL,
    timeline bigint NOT NULL,
    backup text NOT NULL,
    quarantined_for text
);
COMMENT ON TABLE _sas.home IS 'Where the data was alive. A row of another place: it is a copy, and calls '
                              'nobody until an admin releases it.';
COMMENT ON COLUMN _sas.home.backup IS 'The base backup that the server was started from; empty: none';
COMMENT ON COLUMN _sas.home.quarantined_for IS 'Found to be a copy, and why; null: not found yet, or at home';

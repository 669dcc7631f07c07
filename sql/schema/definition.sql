-- SPDX-License-Identifier: PostgreSQL
--
-- Tables of what users define: agents and workflows. All of them are private.

-- agents ------------------------------------------------------------------------
CREATE TABLE _sas.agent (
    agent_id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    kind text NOT NULL,
    base_url text,
    headers jsonb NOT NULL,
    max_in_flight int NOT NULL,
    rate_limit text,
    rate_per_s float8,
    request_timeout interval NOT NULL,
    retry jsonb NOT NULL,
    breaker jsonb NOT NULL,
    options jsonb NOT NULL,
    enabled boolean NOT NULL DEFAULT true,
    created_at timestamptz NOT NULL,
    dropped_at timestamptz,
    secrets text[] NOT NULL,
    by_superuser boolean NOT NULL DEFAULT false
);
CREATE UNIQUE INDEX agent_name ON _sas.agent (name) WHERE dropped_at IS NULL;
CREATE INDEX agent_keyed ON _sas.agent (agent_id) WHERE options ? 'concurrency';
COMMENT ON TABLE _sas.agent IS
    'Guarded ways to reach remote services. agent_id is also the agent''s lane in the ready queue. secrets '
    'lists the secrets that headers and options refer to. by_superuser: a superuser has said where it sends '
    'what (base_url, headers and options).';

-- What workers have found out about an agent. The breaker lives in shared memory; this row survives a
-- restart.
CREATE TABLE _sas.agent_health (
    agent_id int PRIMARY KEY REFERENCES _sas.agent ON DELETE CASCADE,
    breaker text NOT NULL DEFAULT 'closed' CHECK (breaker IN ('closed', 'open', 'half-open')),
    open_until timestamptz,
    last_error jsonb,
    last_error_at timestamptz,
    stale_replies bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
COMMENT ON TABLE _sas.agent_health IS
    'Breaker state and last error of each agent, as a worker last wrote them.';

-- The slots of external agents: one for each task that may be held at the same time. A claim by an outside
-- program fills a slot; request_id finds it.
CREATE TABLE _sas.external_slot (
    agent_id int NOT NULL REFERENCES _sas.agent ON DELETE CASCADE,
    place int NOT NULL,
    request_id uuid,
    lease_id bigint,
    run_id bigint,
    step_no int,
    element int,
    undo boolean,
    settles boolean,
    worker text,
    lease interval,
    claimed_at timestamptz,
    last_by timestamptz,
    extended_by timestamptz,
    PRIMARY KEY (agent_id, place)
) WITH (fillfactor = 50);
CREATE INDEX external_slot_request ON _sas.external_slot (request_id);
COMMENT ON TABLE _sas.external_slot IS
    'What outside programs hold. request_id is null while the slot is free. last_by is the latest instant '
    'to which heartbeats may extend the lease. extended_by is the instant to which a heartbeat has extended '
    'it while a session held the lock of the run. settles is true for a claim that repeats a task in doubt '
    'to learn its outcome.';

-- The end of a claim by an outside program. verdict: that of its reply, or again: the task is offered again,
-- after an attempt that failed. ok: the attempt has succeeded. state, attempt: of its step now.
CREATE TYPE _sas.claim_end AS (
    slot _sas.external_slot,
    verdict text,
    error jsonb,
    arrived_at timestamptz,
    workflow_id int,
    state text,
    attempt int,
    ok boolean
);

CREATE TABLE _sas.worker_grant (
    agent_id int NOT NULL REFERENCES _sas.agent ON DELETE CASCADE,
    role regrole NOT NULL,
    granted_by text NOT NULL,
    granted_at timestamptz NOT NULL,
    PRIMARY KEY (agent_id, role)
);
COMMENT ON TABLE _sas.worker_grant IS 'Roles that have the level worker for one external agent only.';

CREATE TABLE _sas.agent_grant (
    agent_id int NOT NULL REFERENCES _sas.agent ON DELETE CASCADE,
    role regrole NOT NULL,
    methods text[],
    paths text[],
    granted_by text NOT NULL,
    granted_at timestamptz NOT NULL,
    PRIMARY KEY (agent_id, role)
);
COMMENT ON TABLE _sas.agent_grant IS
    'Roles whose runs may use an agent: with these methods, and with paths that begin with one of these. '
    'Null allows all. Superusers and admins need no grant.';

CREATE TABLE _sas.secret (
    name text PRIMARY KEY,
    value text,
    file text,
    changed_at timestamptz NOT NULL,
    by_superuser boolean NOT NULL,
    CHECK (num_nonnulls(value, file) = 1)
);
-- no sample of the values in the statistics, which a dump of PostgreSQL 18 may include
ALTER TABLE _sas.secret ALTER COLUMN value SET STATISTICS 0;
COMMENT ON TABLE _sas.secret IS
    'Values for {{secret.NAME}} in agents, or the names of the files below sas.secret_directory from which '
    'workers read them. Only superusers can read this table, and dumps leave it out. by_superuser: a '
    'superuser has set it. Then only an agent that a superuser has defined sends it.';

CREATE TABLE _sas.former_secret (
    name text NOT NULL REFERENCES _sas.secret ON DELETE CASCADE,
    value text NOT NULL,
    changed_at timestamptz NOT NULL,
    PRIMARY KEY (name, value)
);
ALTER TABLE _sas.former_secret ALTER COLUMN value SET STATISTICS 0;
COMMENT ON TABLE _sas.former_secret IS
    'Earlier values of secrets. They are masked as long as a run is open that began before the change. Only '
    'superusers can read this table, and dumps leave it out.';

-- workflows -----------------------------------------------------------------------
CREATE TABLE _sas.workflow (
    workflow_id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    owner regrole NOT NULL,
    version int NOT NULL,
    created_at timestamptz NOT NULL,
    paused_at timestamptz,
    dropped_at timestamptz,
    keys_follow text,
    key_separator text,
    key_shards jsonb
);
CREATE UNIQUE INDEX workflow_name ON _sas.workflow (name) WHERE dropped_at IS NULL;
COMMENT ON COLUMN _sas.workflow.keys_follow IS
    'The distributed table that the keys of its runs follow, as every node of a cluster names it. '
    'key_shards: by shard of that table, which transaction had last written its placement on this node when '
    'all keys were on the nodes of their shards.';
COMMENT ON TABLE _sas.workflow IS 'Workflows by name. version is the version that new runs get.';

CREATE TABLE _sas.workflow_grant (
    workflow_id int NOT NULL REFERENCES _sas.workflow ON DELETE CASCADE,
    role regrole NOT NULL,
    version int NOT NULL,
    future boolean NOT NULL,
    granted_by text NOT NULL,
    granted_at timestamptz NOT NULL,
    PRIMARY KEY (workflow_id, role, version)
);
COMMENT ON TABLE _sas.workflow_grant IS
    'Roles that may submit a version of another role''s workflow. future: they may submit all later '
    'versions, too.';

CREATE TABLE _sas.level_grant (
    role regrole NOT NULL,
    level text NOT NULL,
    granted_by text NOT NULL,
    granted_at timestamptz NOT NULL,
    PRIMARY KEY (role, level)
);
COMMENT ON TABLE _sas.level_grant IS
    'Who gave a role a level, and when. Whether a role has a level is decided by the privileges on the '
    'functions _sas.level_<level>, not by this table.';

-- The concurrency rules of a version, one each. path: where the rule is in the definition.
CREATE TYPE _sas.concurrency_rule AS (
    rule_no int,
    path text,
    key jsonb,
    places int,
    shared boolean,
    scope text,
    overlap text
);

CREATE TABLE _sas.workflow_version (
    version_id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    workflow_id int NOT NULL REFERENCES _sas.workflow ON DELETE CASCADE,
    version int NOT NULL,
    of_version int,
    planned boolean NOT NULL DEFAULT false,
    definition jsonb NOT NULL,
    step_count int NOT NULL,
    finalize_no int,
    functions text[] NOT NULL,
    uses _sas.agent_use[] NOT NULL DEFAULT '{}',
    output jsonb,
    output_reads int[] NOT NULL,
    on_transient text NOT NULL,
    on_permanent text NOT NULL,
    deadline interval,
    priority int NOT NULL,
    queue_id int,
    concurrency _sas.concurrency_rule[],
    root_nos int[],
    root_lanes int[],
    root_priorities int[],
    auto_rescue boolean,
    mask text[],
    created_by regrole NOT NULL,
    created_at timestamptz NOT NULL,
    UNIQUE (workflow_id, version)
);
COMMENT ON TABLE _sas.workflow_version IS
    'Definitions as they were written, and what applies to the run as a whole.';
COMMENT ON COLUMN _sas.workflow_version.uses IS
    'What its runs ask of agents; their owner needs a grant for each. See _sas.agent_uses.';
COMMENT ON COLUMN _sas.workflow_version.mask IS
    'Paths to values that only the owner of the run sees; others see ***. See _sas.masked.';
COMMENT ON COLUMN _sas.workflow_version.root_nos IS
    'Root steps, if runs of this version qualify for the fast submit path: their root steps can be claimed '
    'at once, and a submit writes nothing else. Null otherwise. root_lanes and root_priorities are parallel '
    'arrays.';
COMMENT ON COLUMN _sas.workflow_version.planned IS
    'The steps of a run depend on its input; they are planned at submit. See _sas.planned.';
COMMENT ON COLUMN _sas.workflow_version.of_version IS
    'Null for a version that a user wrote. A version that sas made names here the version that it was made '
    'from; its own number is negative, and views leave it out.';

-- A compiled step of a version. The undo of a step is a row of its own with the same number and undo =
-- true.
CREATE TABLE _sas.workflow_step (
    version_id int NOT NULL REFERENCES _sas.workflow_version ON DELETE CASCADE,
    step_no int NOT NULL,
    undo boolean NOT NULL,
    name text NOT NULL,
    local_name text NOT NULL,
    scope_no int,
    hidden boolean NOT NULL,
    covers int[],
    kind text NOT NULL,
    lane int NOT NULL,
    function text,
    request jsonb,
    input jsonb,
    output jsonb,
    expect jsonb,
    complete_in interval,
    retry jsonb,
    recovery jsonb NOT NULL,
    on_transient text NOT NULL,
    on_permanent text NOT NULL,
    pivot boolean NOT NULL,
    priority int NOT NULL,
    queue_id int,
    needs int NOT NULL,
    reads int[] NOT NULL,
    enter_reads int[] NOT NULL DEFAULT '{}',
    reads_own_output boolean NOT NULL,
    input_reads text[],
    shape jsonb,
    enters boolean NOT NULL DEFAULT false,
    elements_enter boolean NOT NULL DEFAULT false,
    weight float8 NOT NULL DEFAULT 1,
    finalizer text,
    finalize_rank int,
    position int,
    bound_id int,
    PRIMARY KEY (version_id, step_no, undo)
);
CREATE INDEX workflow_step_bound ON _sas.workflow_step (bound_id) WHERE bound_id IS NOT NULL;
COMMENT ON COLUMN _sas.workflow_step.bound_id IS
    'The workflow of its child runs, or the workflow that was included. A workflow that is created later '
    'under the same name is another one.';
COMMENT ON COLUMN _sas.workflow_step.enter_reads IS
    'Further steps whose results are read when the step begins, by "each" and "when".';
COMMENT ON COLUMN _sas.workflow_step.input_reads IS
    'The members of the run''s input that the templates of the step use. Null: the whole input.';
COMMENT ON COLUMN _sas.workflow_step.shape IS
    'What makes a step more than one call: when, each, repeat, wait, workflow, poll.';
COMMENT ON COLUMN _sas.workflow_step.finalizer IS
    'The function that the last step of the run calls for this step. finalize_rank keeps the order of the '
    'steps.';
COMMENT ON COLUMN _sas.workflow_step.enters IS
    'The scheduler begins this step: it evaluates conditions and starts maps, waits and child runs.';
COMMENT ON TABLE _sas.workflow_step IS
    'Compiled steps. lane is 0 for a function, else the agent. reads lists the steps whose results its '
    'templates use.';
COMMENT ON COLUMN _sas.workflow_step.local_name IS
    'The name inside its scope: "a" for step "x.a" of an included workflow.';
COMMENT ON COLUMN _sas.workflow_step.position IS
    'The position among the steps that views show. See sas.steps.';
COMMENT ON COLUMN _sas.workflow_step.scope_no IS
    'The step whose output its templates see as the input: the opening step of an include. Null: the '
    'templates see the input of the run.';
COMMENT ON COLUMN _sas.workflow_step.hidden IS
    'Generated by sas; definitions cannot refer to it. Its step_no is greater than finalize_no.';
COMMENT ON COLUMN _sas.workflow_step.covers IS
    'For the opening step of an include: all steps inside it. The closing step is the last one.';

CREATE TABLE _sas.workflow_edge (
    version_id int NOT NULL REFERENCES _sas.workflow_version ON DELETE CASCADE,
    from_no int NOT NULL,
    to_no int NOT NULL,
    PRIMARY KEY (version_id, from_no, to_no)
);
CREATE INDEX workflow_edge_to ON _sas.workflow_edge (version_id, to_no, from_no);
COMMENT ON TABLE _sas.workflow_edge IS
    'Which step must end before which. Edges come from after, flow, references, and the opening and closing '
    'steps of includes.';

-- The hooks of a version. Either channel or hook_version_id is set: hook_version_id is a hidden version
-- with one step.
CREATE TABLE _sas.workflow_hook (
    version_id int NOT NULL REFERENCES _sas.workflow_version ON DELETE CASCADE,
    hook_no int NOT NULL,
    events text[] NOT NULL,
    channel text,
    hook_version_id int,
    PRIMARY KEY (version_id, hook_no)
);
CREATE INDEX workflow_hook_version ON _sas.workflow_hook (hook_version_id);
COMMENT ON TABLE _sas.workflow_hook IS
    'Hooks of a version: which states and results trigger them, and what they do.';

CREATE TABLE _sas.middleware (
    middleware_id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    phase text NOT NULL,
    workflow_id int REFERENCES _sas.workflow ON DELETE CASCADE,
    before_function text,
    after_function text,
    goes_before text[] NOT NULL,
    goes_after text[] NOT NULL,
    replaces text,
    place int,
    created_by regrole NOT NULL,
    created_at timestamptz NOT NULL,
    UNIQUE (phase, name)
);
COMMENT ON TABLE _sas.middleware IS
    'Functions around the phases of runs. place: the outermost middleware of a phase has 1. A middleware '
    'that replaces another one takes its place.';

CREATE TABLE _sas.subscription (
    to_workflow_id int NOT NULL REFERENCES _sas.workflow ON DELETE CASCADE,
    workflow_id int NOT NULL REFERENCES _sas.workflow ON DELETE CASCADE,
    input jsonb NOT NULL,
    created_by regrole NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (to_workflow_id, workflow_id)
);
COMMENT ON TABLE _sas.subscription IS
    'Which workflow is planned along with which other workflow, and the template of its input.';

CREATE TABLE _sas.composition (
    version_id int PRIMARY KEY REFERENCES _sas.workflow_version ON DELETE CASCADE,
    workflow_id int NOT NULL,
    of_version int NOT NULL,
    current boolean NOT NULL
);
CREATE UNIQUE INDEX composition_current ON _sas.composition (workflow_id, of_version) WHERE current;
COMMENT ON TABLE _sas.composition IS
    'Versions that combine a version of a workflow with its subscribers. New runs get the current one.';

CREATE TABLE _sas.planned (
    workflow_id int NOT NULL,
    version int NOT NULL,
    digest text NOT NULL,
    version_id int NOT NULL REFERENCES _sas.workflow_version ON DELETE CASCADE,
    PRIMARY KEY (workflow_id, version, digest)
);
CREATE INDEX planned_version ON _sas.planned (version_id);
COMMENT ON TABLE _sas.planned IS
    'Versions that planning has produced, by a digest of their definition. Runs with the same plan share '
    'one.';

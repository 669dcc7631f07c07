-- SPDX-License-Identifier: PostgreSQL
--
-- Tables of what is defined, agents and workflows: all private.

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
    secrets text[] NOT NULL
);
CREATE UNIQUE INDEX agent_name ON _sas.agent (name) WHERE dropped_at IS NULL;
COMMENT ON TABLE _sas.agent IS 'Guarded ways to reach remote services. agent_id is also the lane of the '
                               'ready queue, secrets the names of those that headers and options refer to.';

-- What the workers found out about an agent. The breaker lives in shared
-- memory; this row is what survives a restart.
CREATE TABLE _sas.agent_health (
    agent_id int PRIMARY KEY REFERENCES _sas.agent ON DELETE CASCADE,
    breaker text NOT NULL DEFAULT 'closed' CHECK (breaker IN ('closed', 'open', 'half-open')),
    open_until timestamptz,
    last_error jsonb,
    last_error_at timestamptz,
    stale_replies bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
COMMENT ON TABLE _sas.agent_health IS 'Breaker state and last error of each agent, as last written by a '
                                      'worker.';

-- The places of external agents: one for each task that may be held at once.
-- A claim by an outside program fills one; it is found by its request_id.
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
COMMENT ON TABLE _sas.external_slot IS 'What outside programs hold: request_id is null when the place is '
                                       'free, last_by is how far heartbeats may extend the lease, '
                                       'extended_by how far one has while somebody held the run, settles a '
                                       'claim made to learn the outcome of one in doubt.';

CREATE TABLE _sas.worker_grant (
    agent_id int NOT NULL REFERENCES _sas.agent ON DELETE CASCADE,
    role regrole NOT NULL,
    granted_by text NOT NULL,
    granted_at timestamptz NOT NULL,
    PRIMARY KEY (agent_id, role)
);
COMMENT ON TABLE _sas.worker_grant IS 'Roles that have level worker for one external agent only.';

CREATE TABLE _sas.agent_grant (
    agent_id int NOT NULL REFERENCES _sas.agent ON DELETE CASCADE,
    role regrole NOT NULL,
    methods text[],
    paths text[],
    granted_by text NOT NULL,
    granted_at timestamptz NOT NULL,
    PRIMARY KEY (agent_id, role)
);
COMMENT ON TABLE _sas.agent_grant IS 'Roles whose runs may use an agent: these methods, and paths from these '
                                     'on; null: all. Superusers and admins need none.';

CREATE TABLE _sas.secret (
    name text PRIMARY KEY,
    value text,
    file text,
    changed_at timestamptz NOT NULL,
    CHECK (num_nonnulls(value, file) = 1)
);
COMMENT ON TABLE _sas.secret IS 'Values for {{secret.NAME}} in agents, or the files below '
                                'sas.secret_directory that workers read them from. Only superusers can read '
                                'it; it is left out of dumps.';

CREATE TABLE _sas.former_secret (
    name text NOT NULL REFERENCES _sas.secret ON DELETE CASCADE,
    value text NOT NULL,
    changed_at timestamptz NOT NULL,
    PRIMARY KEY (name, value)
);
COMMENT ON TABLE _sas.former_secret IS 'Values that secrets had: they are masked as long as a run that had '
                                       'begun before the change is open. Only superusers can read it; it is '
                                       'left out of dumps.';

-- workflows -----------------------------------------------------------------------
CREATE TABLE _sas.workflow (
    workflow_id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    owner regrole NOT NULL,
    version int NOT NULL,
    created_at timestamptz NOT NULL,
    paused_at timestamptz,
    dropped_at timestamptz
);
CREATE UNIQUE INDEX workflow_name ON _sas.workflow (name) WHERE dropped_at IS NULL;
COMMENT ON TABLE _sas.workflow IS 'Workflows by name; version is the one that new runs get.';

CREATE TABLE _sas.workflow_grant (
    workflow_id int NOT NULL REFERENCES _sas.workflow ON DELETE CASCADE,
    role regrole NOT NULL,
    version int NOT NULL,
    future boolean NOT NULL,
    granted_by text NOT NULL,
    granted_at timestamptz NOT NULL,
    PRIMARY KEY (workflow_id, role, version)
);
COMMENT ON TABLE _sas.workflow_grant IS 'Roles that may submit a version of a workflow of somebody else; '
                                        'future: and all later ones.';

CREATE TABLE _sas.level_grant (
    role regrole NOT NULL,
    level text NOT NULL,
    granted_by text NOT NULL,
    granted_at timestamptz NOT NULL,
    PRIMARY KEY (role, level)
);
COMMENT ON TABLE _sas.level_grant IS 'Who gave a role a level, and when. What the role has is said by the '
                                     'rights on the functions _sas.level_<level> alone.';

-- what a version says of its concurrency, rule by rule; path: where, in its definition
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
COMMENT ON TABLE _sas.workflow_version IS 'Definitions as they were written, and what holds for the run as a '
                                          'whole.';
COMMENT ON COLUMN _sas.workflow_version.uses IS 'What its runs ask of agents, for which their owner needs a '
                                                'grant: see _sas.agent_uses.';
COMMENT ON COLUMN _sas.workflow_version.mask IS 'Paths to values that are shown as *** to all but the owner '
                                                'of the run: see _sas.masked.';
COMMENT ON COLUMN _sas.workflow_version.root_nos IS 'Of a version whose runs can begin with the claim of '
                                                    'these steps and need nothing else at submit; else null. '
                                                    'root_lanes, root_priorities: theirs.';
COMMENT ON COLUMN _sas.workflow_version.planned IS 'What is run is known with the input of the run only: see '
                                                   '_sas.planned.';
COMMENT ON COLUMN _sas.workflow_version.of_version IS 'Null for what was written. Else it was made for that '
                                                      'version, its own number is negative, and the views '
                                                      'leave it out.';

-- A step of a version, compiled. Its undo, if any, is a row of its own with
-- the same number and undo = true.
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
COMMENT ON COLUMN _sas.workflow_step.bound_id IS 'The workflow of its child runs, or that was included: it '
                                                 'is this one, and no later one of its name.';
COMMENT ON COLUMN _sas.workflow_step.enter_reads IS 'Further steps whose results are looked at once, as it '
                                                    'begins: by "each" and "when".';
COMMENT ON COLUMN _sas.workflow_step.input_reads IS 'The members of the input of the run that its templates '
                                                    'use; null: the input as a whole.';
COMMENT ON COLUMN _sas.workflow_step.shape IS 'What makes a step more than one call: when, each, repeat, '
                                              'wait, workflow, poll.';
COMMENT ON COLUMN _sas.workflow_step.finalizer IS 'The function that the last step of the run calls for this '
                                                  'step; finalize_rank keeps to the order of the steps.';
COMMENT ON COLUMN _sas.workflow_step.enters IS 'The scheduler looks at this step before it begins.';
COMMENT ON TABLE _sas.workflow_step IS 'Compiled steps: lane 0 is a function, any other the agent; reads '
                                       'names the steps whose results its templates use.';
COMMENT ON COLUMN _sas.workflow_step.local_name IS 'Its name inside its scope: of "x.a" in an included '
                                                   'workflow, "a".';
COMMENT ON COLUMN _sas.workflow_step.position IS 'Its place among the steps that views show; see sas.steps.';
COMMENT ON COLUMN _sas.workflow_step.scope_no IS 'The step whose result is the input that its templates see: '
                                                 'the open end of an include; null: the run''s.';
COMMENT ON COLUMN _sas.workflow_step.hidden IS 'Made by sas, and bears no name that can be referred to; its '
                                               'number is behind that of finalize.';
COMMENT ON COLUMN _sas.workflow_step.covers IS 'Of the open end of an include: all that is inside, the close '
                                               'end last.';

CREATE TABLE _sas.workflow_edge (
    version_id int NOT NULL REFERENCES _sas.workflow_version ON DELETE CASCADE,
    from_no int NOT NULL,
    to_no int NOT NULL,
    PRIMARY KEY (version_id, from_no, to_no)
);
CREATE INDEX workflow_edge_to ON _sas.workflow_edge (version_id, to_no, from_no);
COMMENT ON TABLE _sas.workflow_edge IS 'Which step comes before which, from after, flow, references and the '
                                       'ends of an include.';

-- What a version wants to be told. hook_version_id: a hidden version with one
-- step, beside a channel null, and the other way round.
CREATE TABLE _sas.workflow_hook (
    version_id int NOT NULL REFERENCES _sas.workflow_version ON DELETE CASCADE,
    hook_no int NOT NULL,
    events text[] NOT NULL,
    channel text,
    hook_version_id int,
    PRIMARY KEY (version_id, hook_no)
);
CREATE INDEX workflow_hook_version ON _sas.workflow_hook (hook_version_id);
COMMENT ON TABLE _sas.workflow_hook IS 'Hooks of a version: the states and results that they are told of, '
                                       'and how.';

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
COMMENT ON TABLE _sas.middleware IS 'Functions around the phases of runs. place: the outermost of a phase is '
                                    '1; one that replaces another has its place.';

CREATE TABLE _sas.subscription (
    to_workflow_id int NOT NULL REFERENCES _sas.workflow ON DELETE CASCADE,
    workflow_id int NOT NULL REFERENCES _sas.workflow ON DELETE CASCADE,
    input jsonb NOT NULL,
    created_by regrole NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (to_workflow_id, workflow_id)
);
COMMENT ON TABLE _sas.subscription IS 'Which workflow is planned along with which, and the template of its '
                                      'input.';

CREATE TABLE _sas.composition (
    version_id int PRIMARY KEY REFERENCES _sas.workflow_version ON DELETE CASCADE,
    workflow_id int NOT NULL,
    of_version int NOT NULL,
    current boolean NOT NULL
);
CREATE UNIQUE INDEX composition_current ON _sas.composition (workflow_id, of_version) WHERE current;
COMMENT ON TABLE _sas.composition IS 'Versions that were made of a version of a workflow and its '
                                     'subscribers; new runs get the current one.';

CREATE TABLE _sas.planned (
    workflow_id int NOT NULL,
    version int NOT NULL,
    digest text NOT NULL,
    version_id int NOT NULL REFERENCES _sas.workflow_version ON DELETE CASCADE,
    PRIMARY KEY (workflow_id, version, digest)
);
CREATE INDEX planned_version ON _sas.planned (version_id);
COMMENT ON TABLE _sas.planned IS 'Versions that came out of planning, by a digest of what they say.';

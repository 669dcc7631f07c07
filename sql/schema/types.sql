-- SPDX-License-Identifier: PostgreSQL
--
-- Types: the rows that functions of different rooms hand to each other, and the functions that build them
-- by column name.

-- A change of one step, for _sas.move_steps. from_state 'none' inserts the row. The columns from "lease_id"
-- to "waiting_until" are written as given. In the other columns, null keeps the stored value.
CREATE TYPE _sas.step_change AS (
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
    deferred boolean,
    waiting_kind text,
    waiting_until timestamptz
);

-- _sas.at_element(error, element): the error of a step as that of one of its elements: its instance names the
-- element, too. Element 0 is the step as a whole.
CREATE FUNCTION _sas.at_element(error jsonb, element int) RETURNS jsonb
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE WHEN $2 > 0 AND $1 ->> 'instance' ~ '/steps/[^/]*$'
           THEN $1 || jsonb_build_object('instance', format('%s/elements/%s', $1 ->> 'instance', $2))
           ELSE $1 END
$$;

-- _sas.make_step_change(...): builds the change of one step from named columns; a column that is left out
-- is null. Nothing else builds such a row. The planner inlines it.
CREATE FUNCTION _sas.make_step_change(run_id bigint, step_no int, element int, from_state text, to_state text,
    attempt int DEFAULT NULL, failure_count int DEFAULT NULL, in_doubt boolean DEFAULT NULL,
    transient boolean DEFAULT NULL, alone boolean DEFAULT NULL, needs_left int DEFAULT NULL,
    output jsonb DEFAULT NULL, error jsonb DEFAULT NULL, completion bigint DEFAULT NULL,
    started_at timestamptz DEFAULT NULL, finished_at timestamptz DEFAULT NULL, lease_id bigint DEFAULT NULL,
    request_id uuid DEFAULT NULL, complete_by timestamptz DEFAULT NULL, deferred boolean DEFAULT NULL,
    waiting_kind text DEFAULT NULL, waiting_until timestamptz DEFAULT NULL)
RETURNS _sas.step_change
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ROW($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, _sas.at_element($13, $3), $14, $15, $16,
               $17, $18, $19, $20, $21, $22)::_sas.step_change
$$;

-- A change of one run, for _sas.move_runs. Null keeps the stored value, except in the three columns of a
-- pause, which are written as given.
CREATE TYPE _sas.run_change AS (
    run_id bigint,
    from_state text,
    to_state text,
    result text,
    abandon_as text,
    open_steps int,
    output jsonb,
    error jsonb,
    paused_for text,
    paused_by text,
    paused_state text
);

-- _sas.make_run_change(...): builds the change of one run from named columns.
CREATE FUNCTION _sas.make_run_change(run_id bigint, from_state text, to_state text, result text DEFAULT NULL,
    abandon_as text DEFAULT NULL, open_steps int DEFAULT NULL, output jsonb DEFAULT NULL,
    error jsonb DEFAULT NULL, paused_for text DEFAULT NULL, paused_by text DEFAULT NULL,
    paused_state text DEFAULT NULL)
RETURNS _sas.run_change
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ROW($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)::_sas.run_change
$$;

-- A step that was open when its run was abandoned, as it was then. from_state none: it was ready and had no
-- row. message_kind: the kind of the message that it waited for.
CREATE TYPE _sas.abandoned_step AS (
    step_no int,
    element int,
    from_state text,
    alone boolean,
    waiting_kind text,
    waiting_until timestamptz,
    message_kind text
);

-- One step of a claim.
CREATE TYPE _sas.claimed AS (
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
    request_id uuid,
    rank timestamptz,
    ready_at timestamptz
);

-- What a worker gets for a claimed step: a call to make, a function to call.
CREATE TYPE _sas.wanted_call AS (
    lease_id bigint,
    agent_id int,
    run_id bigint,
    step_no int,
    element int,
    step text,
    undo boolean,
    attempt int,
    request_id uuid,
    window_ms float8,
    trace uuid,
    idempotency_key text,
    request jsonb,
    policy jsonb,
    problem jsonb,
    workflow_id int,
    owner oid
);

CREATE TYPE _sas.wanted_function AS (
    lease_id bigint,
    owner oid,
    run_id bigint,
    step_no int,
    element int,
    step text,
    undo boolean,
    attempt int,
    alone boolean,
    request_id uuid,
    window_ms float8,
    function text,
    input jsonb,
    problem jsonb,
    retry jsonb,
    judges boolean,
    workflow_id int
);

-- The reply of a worker to one claimed step.
--   verdict     done       the call or the function succeeded; expect is evaluated later
--               transient  it failed and may be tried again
--               permanent  it failed for good
--               stopped    the worker has stopped the call, because its run was cancelled
--               hand_back  the worker gives the claim back, and no failure counts; again_in says when the
--                          step may be claimed again; error: the breaker of the path refuses its call
--   arrived_at  when the worker received it. The reply counts if that is before complete_by, however late it
--               is written
CREATE TYPE _sas.call_reply AS (
    run_id bigint,
    step_no int,
    element int,
    request_id uuid,
    verdict text,
    attempt int,
    output jsonb,
    error jsonb,
    in_doubt boolean,
    again_in interval,
    arrived_at timestamptz
);

-- _sas.make_call_reply(...): builds a reply from named columns. arrived_at null: it arrives now.
CREATE FUNCTION _sas.make_call_reply(run_id bigint, step_no int, element int, request_id uuid, verdict text,
    attempt int DEFAULT 1, output jsonb DEFAULT NULL, error jsonb DEFAULT NULL,
    in_doubt boolean DEFAULT false, again_in interval DEFAULT NULL, arrived_at timestamptz DEFAULT NULL)
RETURNS _sas.call_reply
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ROW($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)::_sas.call_reply
$$;

-- The step, or element, that a child run belongs to: parent_run_id and its neighbours in _sas.run.
CREATE TYPE _sas.parent AS (
    run_id bigint,
    step_no int,
    element int
);

-- What a reply to a poll means. asks: it answers a status request, not the call. verdict: started, asked (not
-- finished yet), done, permanent, or that of the worker. next_at: the next status request.
CREATE TYPE _sas.asked AS (
    asks boolean,
    verdict text,
    output jsonb,
    error jsonb,
    next_at timestamptz
);

-- The current state of a run that an operator has named. refused: why the operator can do nothing to it,
-- whatever its state: the run is unknown, or belongs to another role.
CREATE TYPE _sas.named AS (
    run_id bigint,
    state text,
    result text,
    abandon_as text,
    paused_by text,
    refused text
);

-- _sas.make_named(...): builds a named run from named columns.
CREATE FUNCTION _sas.make_named(run_id bigint, state text DEFAULT NULL, result text DEFAULT NULL,
    abandon_as text DEFAULT NULL, paused_by text DEFAULT NULL, refused text DEFAULT NULL)
RETURNS _sas.named
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ROW($1, $2, $3, $4, $5, $6)::_sas.named
$$;

-- A step, or an element of a step, that an operator has named.
--   label      as it is shown: "pack", "pack[3]"
--   situation  one word for what can be done to it: see _sas.situation
CREATE TYPE _sas.target AS (
    run_id bigint,
    step_no int,
    element int,
    label text,
    situation text,
    state text,
    note text
);

-- The conditions of a search for runs; null: no condition.
--   owners            the roles whose runs are asked for and the caller may see
--   payload           the caller may read the inputs of all of them
--   own               the roles whose inputs the caller may read
--   first_id, last_id the range of run ids that the search for times has found
CREATE TYPE _sas.run_search AS (
    run_id bigint,
    workflows int[],
    key text,
    labels jsonb,
    states text[],
    results text[],
    created_after timestamptz,
    created_before timestamptz,
    finished_after timestamptz,
    finished_before timestamptz,
    words text,
    owners oid[],
    payload boolean,
    own oid[],
    caller oid,
    first_id bigint,
    last_id bigint
);

-- The open runs of a version that are in one state, as far as the current user sees them.
--   runs   how many
--   first  the ids of 25: of paused ones the last that were paused; of others those past their deadline, then
--          the oldest
CREATE TYPE _sas.open_group AS (
    workflow_id int,
    workflow text,
    version int,
    state text,
    runs bigint,
    first bigint[]
);

-- How a page of the console is requested.
--   now     when it is made
--   root    the beginning of its links; null: the page stands alone and has no links
--   token   the token in its forms; null: it has no forms
--   notice  a line at the top of the page
--   open    the open runs, for the pages that count them
CREATE TYPE _sas.look AS (
    now timestamptz,
    root text,
    token text,
    notice text,
    open _sas.open_group[]
);

-- One error in a definition.
CREATE TYPE _sas.problem AS (
    path text,
    problem text,
    hint text,
    code text
);

-- A definition, or a definition that is included in it, while it is compiled.
--   key     the position of the step that includes it: its ordinal in each scope from the root; empty at the
--           root
--   prefix  the prefix of its step names: "" at the root, "x." inside step x
--   path    JSON pointer to the step that includes it; "" at the root
--   chain   the names of the workflows from the root to here
--   policy  the on_failure of steps that have none of their own
CREATE TYPE _sas.scope AS (
    no int,
    parent int,
    key int[],
    prefix text,
    path text,
    workflow text,
    version int,
    chain text[],
    definition jsonb,
    policy jsonb,
    recovery jsonb
);

-- A step while it is compiled.
--   kind   step; open and close: the two ends of an include; join: a point in a flow
--   name   the name from the root on; local: the name inside its scope, null for a node that has no name
--   sees   the scope in which its templates look for steps and input
--   entry  the node to which the edges of its predecessors lead: itself, or the opening node of an include
CREATE TYPE _sas.flow_node AS (
    no int,
    kind text,
    scope int,
    sees int,
    name text,
    local text,
    entry int,
    key int[],
    path text,
    body jsonb
);

-- One use of an agent by a step, undo, poll, fallback or hook.
--   method  null for a task
--   path    the path as it is written, up to the first reference
--   more    a reference follows
--   late    the whole path is checked again when the step is claimed
--   other_method, other_path  the part by which some services take another method or path than those of the
--                             request; null: none
CREATE TYPE _sas.agent_use AS (
    place text,
    agent_id int,
    agent text,
    method text,
    path text,
    more boolean,
    late boolean,
    other_method text,
    other_path text
);

-- A reference in a template of a node. node 0 is the output of the run.
CREATE TYPE _sas.flow_reference AS (
    node int,
    undo boolean,
    scope int,
    pointer text,
    reference text,
    root text,
    member text,
    third text,
    problem text,
    hint text,
    fourth text
);

-- What the supervisor has to decide on: a failed step, or the deadline of a run.
CREATE TYPE _sas.failed_case AS (
    kind text,
    run_id bigint,
    step_no int,
    element int,
    run_state text,
    abandon_as text,
    auto_rescue boolean,
    run_on_transient text,
    run_on_permanent text,
    past_pivot boolean,
    state text,
    failure_count int,
    transient boolean,
    in_doubt boolean,
    ask_until timestamptz,
    error jsonb,
    name text,
    undo boolean,
    lane int,
    recovery jsonb,
    on_transient text,
    on_permanent text,
    shape jsonb
);

-- What the supervisor has decided.
--   what    again   the step gets another window after a cool-off
--           settle  the step is undone before its fallback begins
--           fall    the fallback takes over
--           skip    the run continues without the step
--           pause   the run waits for an operator
--           doom    the run cannot continue; abandon_as as in _sas.abandon
--           close   the step is closed, in a run that cannot continue
--           note    the state of the step is written, and nothing follows
--   change  the change of the step; null: none
CREATE TYPE _sas.decision AS (
    what text,
    run_id bigint,
    step_no int,
    element int,
    change _sas.step_change,
    abandon_as text,
    why text,
    error jsonb
);

-- _sas.make_decision(...): builds a decision from named columns.
CREATE FUNCTION _sas.make_decision(what text, run_id bigint, step_no int DEFAULT NULL,
    element int DEFAULT NULL, change _sas.step_change DEFAULT NULL, abandon_as text DEFAULT NULL,
    why text DEFAULT NULL, error jsonb DEFAULT NULL)
RETURNS _sas.decision
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ROW($1, $2, $3, $4, $5, $6, $7, $8)::_sas.decision
$$;

-- An agent as a worker needs it, with its secrets filled in. Workers read the columns by position.
CREATE TYPE _sas.worker_agent AS (
    agent_id int,
    name text,
    base_url text,
    enabled boolean,
    max_in_flight int,
    rate_per_s float8,
    request_timeout_ms float8,
    headers jsonb,
    query jsonb,
    options jsonb,
    retry jsonb,
    breaker_failures int,
    breaker_window_ms float8,
    breaker_open_ms float8,
    breaker text,
    open_for_ms float8,
    max_response bigint,
    connect_timeout_ms float8,
    secrets text[],
    breaker_paths text[],
    version text,
    current_secrets text[],
    secret_files text[],
    secret_stamps text[],
    problem text,
    shared boolean
);

-- What a host does next for an infinite task that it hosts: _sas.compose_watches.
CREATE TYPE _sas.watch_order AS (
    watch_id bigint, epoch bigint, agent_id int, kind text, request jsonb, cursor jsonb, digest text,
    room int, wait_ms float8, problem jsonb, next_at timestamptz, owner oid);

-- What a function worker brings to the target of an infinite task: _sas.claim_items.
CREATE TYPE _sas.claimed_inbox AS (
    watch_id bigint, request_id uuid, owner oid, watcher text, key text, alone boolean, window_ms float8,
    target_kind text, target text, items jsonb, keys text[], up_to bigint, problem jsonb);

-- A signal and the step that it goes to: _sas.match_signals. several: that waits for one of several names.
CREATE TYPE _sas.signal_match AS (
    run_id bigint, step_no int, element int, started_at timestamptz, several boolean, signal_id bigint);

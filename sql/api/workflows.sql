-- SPDX-License-Identifier: PostgreSQL
--
-- Workflows, the middleware around them and the queues of their steps.

-- workflows
CREATE FUNCTION sas.create_workflow(name text, definition jsonb) RETURNS int
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.create_workflow IS
    'Creates a workflow, or a new version of the workflow of that name, and returns the version. Runs keep '
    'the version with which they were submitted.';

CREATE FUNCTION sas.validate_workflow(definition jsonb) RETURNS TABLE (path text, problem text, hint text)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.validate_workflow IS
    'Checks a definition. One row per error: its place as a JSON pointer, the problem, and what to do. No '
    'rows: it has no errors.';

CREATE FUNCTION sas.drop_workflow(name text) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.drop_workflow IS
    'Drops a workflow that has no open runs and to which no other workflow or watcher refers. Its ended '
    'runs remain visible.';

CREATE FUNCTION sas.grant_workflow(workflow text, role regrole, version int DEFAULT NULL,
                                   future boolean DEFAULT false) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.grant_workflow IS
    'Allows a role to submit one version of a workflow, null: the current one; with future also all later '
    'ones.';

CREATE FUNCTION sas.revoke_workflow(workflow text, role regrole, version int DEFAULT NULL) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.revoke_workflow IS
    'Revokes a grant of sas.grant_workflow, for one version; null: for all versions.';

CREATE FUNCTION sas.distribute_keys(workflow text, follows regclass, separator text DEFAULT NULL) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.distribute_keys IS
    'In a Citus cluster: a run with a key is made on the node whose shard of that table has the key, or the '
    'part of it before the separator, as its distribution column; so a key is unique in the cluster. Null: '
    'keys follow no table, and are unique on a node.';

CREATE FUNCTION sas.pause_workflow(name text) RETURNS boolean
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.pause_workflow IS
    'Keeps new runs of a workflow scheduled until it is resumed; runs that have begun go on. False: it was '
    'paused already.';

CREATE FUNCTION sas.resume_workflow(name text) RETURNS boolean
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.resume_workflow IS
    'Lets runs of a paused workflow begin again. False: it was not paused.';

CREATE FUNCTION sas.subscribe(workflow text, to_workflow text, input jsonb DEFAULT '"{{input}}"') RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.subscribe IS
    'Plans the steps of workflow along with every new run of to_workflow. input is a template over that '
    'run; it may refer to its steps.';

CREATE FUNCTION sas.unsubscribe(workflow text, to_workflow text) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.unsubscribe IS 'Ends a subscription of sas.subscribe, for new runs.';

-- middleware
CREATE FUNCTION sas.create_middleware(name text, phase text, before regprocedure DEFAULT NULL,
                                      after regprocedure DEFAULT NULL, workflow text DEFAULT NULL,
                                      goes_before text[] DEFAULT '{}', goes_after text[] DEFAULT '{}',
                                      replaces text DEFAULT NULL) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.create_middleware IS
    'Puts functions before and after a phase of runs: plan, call, function or finalize; for all workflows '
    'or one. Replaces the middleware of that name and phase.';

CREATE FUNCTION sas.drop_middleware(name text, phase text DEFAULT NULL) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.drop_middleware IS
    'Drops a middleware, of one phase or of all. It does not apply to steps that are claimed, or runs that '
    'are submitted, from then on.';

-- queues
CREATE FUNCTION sas.create_queue(name text, max_running int, key text DEFAULT NULL,
                                 per_key int DEFAULT NULL) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.create_queue IS
    'Creates a queue, or sets the limit of the queue of that name: how many of its steps may be claimed at '
    'the same time, over all workers. key: a template, such as "{{run.owner}}"; per_key: how many of its '
    'steps with the same key.';

CREATE FUNCTION sas.alter_queue(name text, max_running int) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.alter_queue IS
    'Sets the limit of a queue. A lower limit applies as running steps end.';

CREATE FUNCTION sas.drop_queue(name text) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.drop_queue IS 'Drops a queue that no current workflow and no open run uses.';

CREATE FUNCTION sas.pause_queue(name text) RETURNS boolean
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.pause_queue IS
    'Stops claims of steps of a queue until it is resumed; running steps go on. False: it was paused '
    'already.';

CREATE FUNCTION sas.resume_queue(name text) RETURNS boolean
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.resume_queue IS
    'Allows claims of steps of a paused queue again. False: it was not paused.';

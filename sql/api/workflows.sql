-- SPDX-License-Identifier: PostgreSQL
--
-- Workflows, the middleware around them and the queues of their steps.

-- workflows
CREATE FUNCTION sas.create_workflow(name text, definition jsonb) RETURNS int
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.create_workflow IS 'Creates a workflow, or a new version of the one of that name, '
                                           'and returns the version. Runs keep the version they were '
                                           'submitted with.';

CREATE FUNCTION sas.validate_workflow(definition jsonb) RETURNS TABLE (path text, problem text, hint text)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.validate_workflow IS 'Says what is wrong with a definition: place as a JSON pointer, '
                                             'problem, and what to do. No rows: nothing is wrong.';

CREATE FUNCTION sas.drop_workflow(name text) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.drop_workflow IS 'Drops a workflow that has no open runs and that no other refers '
                                         'to. Its ended runs stay to be looked at.';

CREATE FUNCTION sas.grant_workflow(workflow text, role regrole, version int DEFAULT NULL,
                                   future boolean DEFAULT false) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.grant_workflow IS 'Lets a role submit one version of a workflow, null: the current '
                                          'one; with future also all later ones.';

CREATE FUNCTION sas.revoke_workflow(workflow text, role regrole, version int DEFAULT NULL) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.revoke_workflow IS 'Takes back what sas.grant_workflow gave, for one version; null: '
                                           'for all.';

CREATE FUNCTION sas.pause_workflow(name text) RETURNS boolean
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.pause_workflow IS 'New runs of a workflow wait, as scheduled, until it is resumed; '
                                          'those that have begun go on. False: it was paused already.';

CREATE FUNCTION sas.resume_workflow(name text) RETURNS boolean
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.resume_workflow IS 'Runs of a paused workflow may begin again. False: it was not '
                                           'paused.';

CREATE FUNCTION sas.subscribe(workflow text, to_workflow text, input jsonb DEFAULT '"{{input}}"') RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.subscribe IS 'From now on the steps of workflow are planned along in every new run '
                                     'of to_workflow. input is a template over that run; it may refer to its '
                                     'steps.';

CREATE FUNCTION sas.unsubscribe(workflow text, to_workflow text) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.unsubscribe IS 'Ends what sas.subscribe began, for new runs.';

-- middleware
CREATE FUNCTION sas.create_middleware(name text, phase text, before regprocedure DEFAULT NULL,
                                      after regprocedure DEFAULT NULL, workflow text DEFAULT NULL,
                                      goes_before text[] DEFAULT '{}', goes_after text[] DEFAULT '{}',
                                          replaces text DEFAULT NULL) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.create_middleware IS 'Puts functions before and after a phase of runs: plan, call, '
                                             'function or finalize; of all workflows or one. Replaces the '
                                             'one of that name and phase.';

CREATE FUNCTION sas.drop_middleware(name text, phase text DEFAULT NULL) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.drop_middleware IS 'Takes away a middleware, of one phase or of all. It no longer '
                                           'holds for what is claimed or submitted from then on.';

-- queues
CREATE FUNCTION sas.create_queue(name text, max_running int) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.create_queue IS 'Creates a queue, or sets the limit of the one of that name: how '
                                        'many steps of it may be claimed at once, over all workers.';

CREATE FUNCTION sas.alter_queue(name text, max_running int) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.alter_queue IS 'Sets the limit of a queue. A lower one holds as soon as what is '
                                       'running has ended.';

CREATE FUNCTION sas.drop_queue(name text) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.drop_queue IS 'Drops a queue that no current workflow and no open run uses.';

CREATE FUNCTION sas.pause_queue(name text) RETURNS boolean
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.pause_queue IS 'No further step of a queue is claimed until it is resumed; those '
                                       'that are running go on. False: it was paused already.';

CREATE FUNCTION sas.resume_queue(name text) RETURNS boolean
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.resume_queue IS 'Steps of a paused queue may be claimed again. False: it was not '
                                        'paused.';

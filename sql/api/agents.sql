-- SPDX-License-Identifier: PostgreSQL
--
-- Agents: remote services, and the secrets for them.
--
-- A verb is one C function: it finds the caller's role and calls _sas.<verb>_as(caller, ...).

CREATE FUNCTION sas.create_agent(name text, base_url text DEFAULT NULL, kind text DEFAULT 'http',
                                 headers jsonb DEFAULT '{}', max_in_flight int DEFAULT 100,
                                 rate_limit text DEFAULT NULL, request_timeout interval DEFAULT '30 s',
                                 retry jsonb DEFAULT '{}', breaker jsonb DEFAULT '{}',
                                 options jsonb DEFAULT '{}') RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.create_agent IS
    'Creates an agent, a guarded way to reach one remote service, or replaces the agent of that name. '
    'Omitted arguments get their defaults, also in an existing agent.';

CREATE FUNCTION sas.alter_agent(name text, base_url text DEFAULT NULL, kind text DEFAULT NULL,
                                headers jsonb DEFAULT NULL, max_in_flight int DEFAULT NULL,
                                rate_limit text DEFAULT NULL, request_timeout interval DEFAULT NULL,
                                retry jsonb DEFAULT NULL, breaker jsonb DEFAULT NULL,
                                options jsonb DEFAULT NULL, enabled boolean DEFAULT NULL,
                                reset text[] DEFAULT '{}') RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.alter_agent IS
    'Changes an agent. Null keeps a value; reset names the values to set to their default. Workers use the '
    'new values at once.';

CREATE FUNCTION sas.drop_agent(name text) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.drop_agent IS 'Drops an agent that no current workflow and no open run uses.';

CREATE FUNCTION sas.pause_agent(name text) RETURNS boolean
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.pause_agent IS
    'Stops claims of steps of an agent until it is resumed; calls in progress go on. False: it was paused '
    'already.';

CREATE FUNCTION sas.resume_agent(name text) RETURNS boolean
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.resume_agent IS
    'Allows claims of steps of a paused agent again. False: it was not paused.';

CREATE FUNCTION sas.reset_agent(name text) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.reset_agent IS
    'Half-opens the agent''s circuit breaker and ends its cool-offs; waiting calls are released at the '
    'agent''s rate limit. Call it when the service is repaired.';

CREATE FUNCTION sas.set_secret(name text, value text) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.set_secret IS
    'Sets the value of {{secret.NAME}} in headers, query and options of agents.';

CREATE FUNCTION sas.set_secret_file(name text, file text) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.set_secret_file IS
    'Names a file below sas.secret_directory that has the value of a secret. Workers read it when they need '
    'it, and again when it has changed.';

CREATE FUNCTION sas.drop_secret(name text) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.drop_secret IS 'Drops a secret that no agent refers to.';

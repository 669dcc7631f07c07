-- SPDX-License-Identifier: PostgreSQL
--
-- Agents: who may be called, and with which secrets.
--
-- A verb is one native function: it finds the caller's role and calls _sas.<verb>_as(caller, ...).

CREATE FUNCTION sas.create_agent(name text, base_url text DEFAULT NULL, kind text DEFAULT 'http',
                                 headers jsonb DEFAULT '{}', max_in_flight int DEFAULT 100,
                                 rate_limit text DEFAULT NULL, request_timeout interval DEFAULT '30 s',
                                     retry jsonb DEFAULT '{}', breaker jsonb DEFAULT '{}',
                                 options jsonb DEFAULT '{}') RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.create_agent IS 'Creates an agent, or replaces the one of that name: a guarded way '
                                        'to reach one remote service. What is written is exactly what holds.';

CREATE FUNCTION sas.alter_agent(name text, base_url text DEFAULT NULL, kind text DEFAULT NULL,
                                headers jsonb DEFAULT NULL, max_in_flight int DEFAULT NULL,
                                rate_limit text DEFAULT NULL, request_timeout interval DEFAULT NULL,
                                    retry jsonb DEFAULT NULL, breaker jsonb DEFAULT NULL,
                                options jsonb DEFAULT NULL, enabled boolean DEFAULT NULL,
                                    reset text[] DEFAULT '{}') RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.alter_agent IS 'Changes an agent: null leaves a value, reset names those to set to '
                                       'their default. Workers take it up at once.';

CREATE FUNCTION sas.drop_agent(name text) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.drop_agent IS 'Drops an agent that no current workflow and no open run uses.';

CREATE FUNCTION sas.pause_agent(name text) RETURNS boolean
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.pause_agent IS 'No further step of an agent is claimed until it is resumed; calls '
                                       'that are in flight go on. False: it was paused already.';

CREATE FUNCTION sas.resume_agent(name text) RETURNS boolean
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.resume_agent IS 'Steps of a paused agent may be claimed again. False: it was not '
                                        'paused.';

CREATE FUNCTION sas.reset_agent(name text) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.reset_agent IS 'Says that a service is mended: its breaker lets a probe through and '
                                       'its cool-offs are due now, released at the rate of the agent.';

CREATE FUNCTION sas.set_secret(name text, value text) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.set_secret IS 'Sets a value for {{secret.NAME}} in headers, query and options of '
                                      'agents.';

CREATE FUNCTION sas.set_secret_file(name text, file text) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.set_secret_file IS 'Says that the value of a secret is in a file below '
                                           'sas.secret_directory: workers read it when they need it, and '
                                           'again when it changed.';

CREATE FUNCTION sas.drop_secret(name text) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.drop_secret IS 'Takes away a secret that no agent refers to.';

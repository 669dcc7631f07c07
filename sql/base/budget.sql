-- SPDX-License-Identifier: PostgreSQL
--
-- What a tick of a worker has cost so far, and what it may cost (src/template/budget.h).

-- _sas.evaluated_us(): how long evaluations of templates and paths took in this process, in microseconds of
-- processor time. Only the difference within one statement means something. A statement that evaluates much
-- can see from it when to stop.
CREATE FUNCTION _sas.evaluated_us() RETURNS bigint
LANGUAGE C VOLATILE AS 'MODULE_PATHNAME', 'sas_api_template_evaluated_us';

-- _sas.evaluated_bytes(): how many bytes templates have returned in this process; else as _sas.evaluated_us.
CREATE FUNCTION _sas.evaluated_bytes() RETURNS bigint
LANGUAGE C VOLATILE AS 'MODULE_PATHNAME', 'sas_api_template_evaluated_bytes';

-- _sas.evaluated_cost(): both as a time: 16 MB count as a tenth of a second, since plain copies take next to
-- none. In steps of 64 kB, so that small ones cost nothing.
CREATE FUNCTION _sas.evaluated_cost() RETURNS bigint
LANGUAGE sql VOLATILE AS $$ SELECT _sas.evaluated_us() + _sas.evaluated_bytes() / 65536 * 400 $$;

-- _sas.processor_us(): the processor time of this process, in microseconds.
CREATE FUNCTION _sas.processor_us() RETURNS bigint
LANGUAGE C VOLATILE AS 'MODULE_PATHNAME', 'sas_api_processor_us';

-- _sas.check_budget(): raises SAS01 if the messages that a scheduler has taken together have cost too
-- much. What costs much asks it before.
CREATE FUNCTION _sas.check_budget() RETURNS void
LANGUAGE C VOLATILE AS 'MODULE_PATHNAME', 'sas_api_check_budget';

-- _sas.check_steps(n): raises SAS01 if a tick of a worker that is about to change n steps more, or runs,
-- would change too many together; else returns true. Only the ticks of schedulers, supervisors and agent
-- workers have a limit, and not with one or two messages or replies.
CREATE FUNCTION _sas.check_steps(n bigint) RETURNS boolean
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_check_steps';

-- _sas.add_steps(n): as _sas.check_steps, and counts these n.
CREATE FUNCTION _sas.add_steps(n bigint) RETURNS boolean
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_add_steps';

-- _sas.budget_is_spent(): has this tick changed so many steps, or taken so long, that the rest is left?
CREATE FUNCTION _sas.budget_is_spent() RETURNS boolean
LANGUAGE C VOLATILE AS 'MODULE_PATHNAME', 'sas_api_budget_is_spent';

-- SPDX-License-Identifier: PostgreSQL
--
-- Testing aids: a clock, stubs, and runs carried through in one session.

CREATE FUNCTION sas.set_clock(at timestamptz) RETURNS timestamptz
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.set_clock IS
    'For tests: sets the clock of sas to that instant until the end of the transaction, which can then only '
    'be rolled back.';

CREATE FUNCTION sas.move_clock(span interval) RETURNS timestamptz
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.move_clock IS
    'For tests: stops the clock of sas and moves it forward by this span; returns the new time. Only this '
    'function, sas.set_clock and sas.run_inline move it further.';

CREATE FUNCTION sas.release_clock() RETURNS timestamptz
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.release_clock IS
    'For tests: the clock of sas follows the clock of the machine again.';

CREATE FUNCTION sas.stub(agent text, response jsonb, method text DEFAULT NULL, path text DEFAULT NULL,
                         step text DEFAULT NULL, element int DEFAULT NULL,
                         attempt int DEFAULT NULL, undo boolean DEFAULT NULL) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.stub IS
    'For tests: answers instead of an agent in sas.run_inline, until the end of the transaction. An array '
    'is used up one answer after the other; anything else answers forever. If several stubs match, the last '
    'one answers.';

CREATE FUNCTION sas.unstub(agent text DEFAULT NULL) RETURNS int
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.unstub IS 'For tests: deletes the stubs of an agent, or all; returns how many.';

CREATE FUNCTION sas.stub_signal(name text, payload jsonb DEFAULT '{}', after interval DEFAULT '0',
                                times int DEFAULT 1) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.stub_signal IS
    'For tests: sends a signal to a run in sas.run_inline when one of its steps waits for it, this long '
    'after the wait has begun.';

CREATE FUNCTION sas.run_inline(workflow text, input jsonb DEFAULT '{}', key text DEFAULT NULL,
                               deadline interval DEFAULT NULL, labels jsonb DEFAULT '{}',
                               within interval DEFAULT NULL)
RETURNS TABLE (run_id bigint, state text, result text, output jsonb, error jsonb)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.run_inline IS
    'For tests: submits a run and carries it to its end in this session and transaction, with stubs for its '
    'agents. The clock jumps to whatever is due next. The transaction can then only be rolled back.';

CREATE FUNCTION sas.continue_inline(run_id bigint, within interval DEFAULT NULL)
RETURNS TABLE (run_id bigint, state text, result text, output jsonb, error jsonb)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.continue_inline IS
    'For tests: continues a run that was submitted in this transaction.';

CREATE FUNCTION sas.stubbed_calls(agent text DEFAULT NULL)
RETURNS TABLE (call_no int, agent text, run_id bigint, step text, element int, undo boolean, attempt int,
               idempotency_key text, method text, path text, request jsonb, answer jsonb, at timestamptz)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.stubbed_calls IS
    'For tests: the calls to stubbed agents in this transaction, in order, with their answers.';

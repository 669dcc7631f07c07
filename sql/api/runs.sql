-- SPDX-License-Identifier: PostgreSQL
--
-- Runs: submit, wait, signals, replies.

CREATE FUNCTION sas.submit(workflow text, input jsonb DEFAULT '{}', key text DEFAULT NULL,
                           priority int DEFAULT 0, start_at timestamptz DEFAULT NULL,
                           start_before timestamptz DEFAULT NULL, deadline interval DEFAULT NULL,
                           after_run bigint DEFAULT NULL, after_runs bigint[] DEFAULT NULL,
                           reply_to text DEFAULT NULL, labels jsonb DEFAULT '{}',
                           version int DEFAULT NULL, after_result text[] DEFAULT NULL, OUT run_id bigint,
                           OUT created boolean)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_submit';
COMMENT ON FUNCTION sas.submit IS
    'Submits a run in the transaction of the caller. If the key is taken by a run with the same input, that '
    'run is returned, with created = false. version null: the newest that the caller may run. Use it in '
    'FROM.';

CREATE FUNCTION sas.submit_batch(workflow text, inputs jsonb[], keys text[] DEFAULT NULL,
                                 priority int DEFAULT 0, start_at timestamptz DEFAULT NULL,
                                 start_before timestamptz DEFAULT NULL, deadline interval DEFAULT NULL,
                                 after_run bigint DEFAULT NULL, after_runs bigint[] DEFAULT NULL,
                                 reply_to text DEFAULT NULL, labels jsonb DEFAULT '{}',
                                 version int DEFAULT NULL, after_result text[] DEFAULT NULL)
RETURNS TABLE (run_id bigint, created boolean)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_submit_batch';
COMMENT ON FUNCTION sas.submit_batch IS
    'Submits a run for each input, in order, with the key given beside it.';

CREATE FUNCTION sas.wait(run_id bigint, timeout interval DEFAULT '1 min')
RETURNS TABLE (state text, result text, output jsonb, error jsonb)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_wait';
COMMENT ON FUNCTION sas.wait IS
    'Waits until the run has stopped or is paused, at most timeout, and returns its state. Refused in a '
    'transaction that has written or is above READ COMMITTED.';

CREATE FUNCTION sas.follow() RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_follow';
COMMENT ON FUNCTION sas.follow IS
    'Makes changes send NOTIFY sas_change for the next 30 s, at most twice a second.';

CREATE FUNCTION sas.signal(run_id bigint, name text, payload jsonb DEFAULT '{}') RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.signal(bigint, text, jsonb) IS
    'Sends a named message to a run, in the transaction of the caller. It is kept until a step takes it, '
    'and refused if none ever can.';

CREATE FUNCTION sas.signal_key(workflow text, key text, name text, payload jsonb DEFAULT '{}') RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.signal_key(text, text, text, jsonb) IS
    'Sends a named message to the run of that workflow that has the key.';

CREATE FUNCTION sas.signal_token(token text, payload jsonb DEFAULT '{}') RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.signal_token IS
    'Ends the wait of a step by its one-time token, {{steps.NAME.token}}, which an earlier step has passed '
    'to someone outside.';

CREATE FUNCTION sas.read_replies(queue text, quantity int DEFAULT 1)
RETURNS TABLE (event text, run_id bigint, workflow text, key text, result text, output jsonb, error jsonb,
               created_at timestamptz)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.read_replies IS
    'Takes messages from a reply queue, oldest first: accepted, paused, completed or failed, with run and '
    'key. New messages send NOTIFY sas_reply.';

-- SPDX-License-Identifier: PostgreSQL
--
-- History: what operators and admins did.

-- _sas.record(caller, run_ids, act, step, detail): an operator's act, for sas.history. One that is about no
-- run: run_ids '{null}'.
CREATE FUNCTION _sas.record(caller oid, run_ids bigint[], act text, step text, detail jsonb) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO _sas.operator_action (run_id, at, role, act, step, detail)
    SELECT u, _sas.now(), pg_get_userbyid(caller), act, step, detail FROM unnest(run_ids) u
$$;

-- SPDX-License-Identifier: PostgreSQL
--
-- History: what operators and admins did.  From where is what the table says by default, as the session is:
-- neither a role that is set nor a function with the rights of another changes that.

-- _sas.record(caller, run_ids, act, step, detail): an operator's act, for sas.history. One that is about no
-- run: run_ids '{null}'.
CREATE FUNCTION _sas.record(caller oid, run_ids bigint[], act text, step text, detail jsonb) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO _sas.operator_action (run_id, at, role, act, step, detail)
    SELECT u, sas.now(), pg_get_userbyid(caller), act, step, detail FROM unnest(run_ids) u
$$;

-- _sas.record_change(caller, act, what, old, new, hidden): an act that changed a definition. what names it,
-- old and new are its values before and after (null: there was none, or is none). The values that differ are
-- written; those of hidden keys as ***.
CREATE FUNCTION _sas.record_change(caller oid, act text, what jsonb, old jsonb DEFAULT NULL,
                                   new jsonb DEFAULT NULL, hidden text[] DEFAULT '{}') RETURNS void
LANGUAGE sql AS $$
    SELECT _sas.record(caller, ARRAY[NULL::bigint], act, NULL,
                       what || coalesce((SELECT jsonb_object_agg(x.side, x.facts) FROM (
        SELECT s.side, jsonb_object_agg(e.key, CASE WHEN e.key = ANY (hidden) AND e.value <> '{}'
                                        THEN '"***"' ELSE e.value END) AS facts
        FROM (VALUES ('from', old, new), ('to', new, old)) AS s (side, facts, other)
        CROSS JOIN LATERAL jsonb_each(s.facts) e
        WHERE e.value IS DISTINCT FROM s.other -> e.key AND (s.other IS NOT NULL OR e.value <> 'null')
        GROUP BY s.side) x), '{}'))
$$;

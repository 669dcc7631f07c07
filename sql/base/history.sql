-- SPDX-License-Identifier: PostgreSQL
--
-- History: what operators and admins have done. Defaults of the table's columns record where the session
-- comes from; neither SET ROLE nor a SECURITY DEFINER function changes that.

-- _sas.record(caller, run_ids, act, step, detail): records an operator's action, for sas.history. run_ids
-- '{null}': it is not about a run.
-- Writes: operator_action.
CREATE FUNCTION _sas.record(caller oid, run_ids bigint[], act text, step text, detail jsonb) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO _sas.operator_action (run_id, at, role, act, step, detail)
    SELECT u, sas.now(), pg_get_userbyid(caller), act, step, detail FROM unnest(run_ids) u
$$;

-- _sas.record_change(caller, act, what, old, new, hidden): records an action that is not about runs.
-- what: names the object; old, new: its values before and after (null: it did not, or does not, exist).
-- Only values that differ are stored; values of hidden keys are stored as ***.
CREATE FUNCTION _sas.record_change(caller oid, act text, what jsonb, old jsonb DEFAULT NULL,
                                   new jsonb DEFAULT NULL, hidden text[] DEFAULT '{}') RETURNS void
LANGUAGE sql AS $$
    SELECT _sas.record(
        caller, ARRAY[NULL::bigint], act, NULL,
        what || coalesce((
            SELECT jsonb_object_agg(x.side, x.facts)
            FROM (SELECT s.side,
                         jsonb_object_agg(e.key, CASE WHEN e.key = ANY (hidden) AND e.value <> '{}'
                                                      THEN '"***"' ELSE e.value END) AS facts
                  FROM (VALUES ('from', old, new), ('to', new, old)) AS s (side, facts, other)
                  CROSS JOIN LATERAL jsonb_each(s.facts) e
                  WHERE e.value IS DISTINCT FROM s.other -> e.key
                      AND (s.other IS NOT NULL OR e.value <> 'null')
                  GROUP BY s.side) x), '{}'))
$$;

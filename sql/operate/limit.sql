-- SPDX-License-Identifier: PostgreSQL
--
-- Limits of roles.

-- _sas.set_limit_as(caller, role, name, value): the body of sas.set_limit.
-- Writes: role_limit. Wakes: function workers.
CREATE FUNCTION _sas.set_limit_as(caller oid, role regrole, name text, value bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    old bigint;
BEGIN
    IF NOT EXISTS (SELECT FROM _sas.limit_names() l WHERE l.name = $3) OR $3 IS NULL THEN
        RAISE EXCEPTION '% is not a limit', coalesce('"' || $3 || '"', 'null')
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /name.',
                HINT = (SELECT 'The limits are ' || string_agg(l.name, ', ') || '.'
                        FROM _sas.limit_names() l);
    ELSIF value < 0 THEN
        RAISE EXCEPTION 'a limit is not negative'
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /value.',
                HINT = 'Null takes the limit away: then the one of all roles holds.';
    ELSIF value = 0 AND $3 = 'function_workers' THEN
        RAISE EXCEPTION 'functions of a role need a worker'
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /value.',
                HINT = 'Pause the workflows of the role instead: sas.pause_workflow().';
    END IF;
    IF role IS NOT NULL THEN
        PERFORM _sas.check_role(role);
    END IF;
    LOCK TABLE _sas.role_limit IN SHARE ROW EXCLUSIVE MODE;
    DELETE FROM _sas.role_limit l WHERE l.role IS NOT DISTINCT FROM $2 AND l.name = $3
    RETURNING l.value INTO old;
    INSERT INTO _sas.role_limit (role, name, value) SELECT $2, $3, $4 WHERE $4 IS NOT NULL;
    -- function workers may take further steps
    PERFORM _sas.wake('{0}') WHERE $3 = 'function_workers';
    PERFORM _sas.record_change(caller, 'set_limit',
                               jsonb_build_object('role', pg_get_userbyid(role), 'name', $3),
                               jsonb_build_object('value', old), jsonb_build_object('value', $4))
    WHERE old IS DISTINCT FROM $4;
END $$;

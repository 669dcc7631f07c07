-- SPDX-License-Identifier: PostgreSQL
--
-- Roles: which level one has, whether an outside program may work for an agent; commits that are durable
-- whatever the session says.

-- sas._commit_durably(): this transaction waits for its WAL, whatever the session is set to; a stronger setting stays.
CREATE FUNCTION sas._commit_durably() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END $$;

-- sas._may_work(role, agent_id): has it level worker for that agent, or for all?
CREATE FUNCTION sas._may_work(role oid, for_agent int) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT sas._has_level(role, 'worker') OR sas._has_level(role, 'admin')
        OR EXISTS (SELECT FROM sas.agent_grant g WHERE g.agent_id = for_agent AND pg_has_role($1, g.role, 'MEMBER'))
$$;

-- sas._check_role(role): raises when nobody is it: null, or a number that no role has (regrole takes any).
CREATE FUNCTION sas._check_role(role regrole) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF role IS NULL OR NOT EXISTS (SELECT FROM pg_roles r WHERE r.oid = role) THEN
        RAISE EXCEPTION 'role "%" does not exist', coalesce(role::text, 'null')
            USING ERRCODE = 'undefined_object', DETAIL = 'The place is "/role".', HINT = 'Name a role, such as ''shop_app''.';
    END IF;
END $$;

-- sas._level(level): called by nobody; who may execute it has that level. One function per level.
CREATE FUNCTION sas._level_admin() RETURNS void LANGUAGE sql BEGIN ATOMIC END;

CREATE FUNCTION sas._level_operator() RETURNS void LANGUAGE sql BEGIN ATOMIC END;

CREATE FUNCTION sas._level_user() RETURNS void LANGUAGE sql BEGIN ATOMIC END;

CREATE FUNCTION sas._level_monitor() RETURNS void LANGUAGE sql BEGIN ATOMIC END;

CREATE FUNCTION sas._level_worker() RETURNS void LANGUAGE sql BEGIN ATOMIC END;

CREATE FUNCTION sas._has_level(role oid, level text) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT has_function_privilege(role, format('sas._level_%s()', level)::regprocedure, 'EXECUTE')
$$;

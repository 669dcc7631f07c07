-- SPDX-License-Identifier: PostgreSQL
--
-- Roles: their levels, whether an outside program may work for an agent, who may change what; and durable
-- commits whatever the session has set.

-- _sas.commit_durably(): this transaction waits until its WAL is flushed, whatever the session has set; a
-- stronger setting is kept.
CREATE FUNCTION _sas.commit_durably() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END $$;

-- _sas.may_work(role, for_agent): does the role have the level worker for that agent, or for all agents?
-- In PL/pgSQL, because every claim and reply of an outside program asks this, and a session plans it once.
CREATE FUNCTION _sas.may_work(role oid, for_agent int) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF _sas.has_level(role, 'worker') OR _sas.has_level(role, 'admin') THEN
        RETURN true;
    END IF;
    RETURN EXISTS (SELECT FROM _sas.worker_grants(for_agent) g WHERE _sas.may_stand_for($1, g.role));
END $$;

-- _sas.is_superuser(role): false if there is no such role.
CREATE FUNCTION _sas.is_superuser(role oid) RETURNS boolean
LANGUAGE C STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'sas_api_is_superuser';

-- _sas.trusts(role, owner): may code that the owner can change run with the rights of the role? A superuser
-- trusts superusers only.
CREATE FUNCTION _sas.trusts(role oid, owner oid) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT NOT _sas.is_superuser($1) OR _sas.is_superuser($2)
$$;

-- _sas.may_change(role, owner): may the role change what belongs to the owner? Members of the owner and
-- admins may; only superusers may change what belongs to a superuser.
CREATE FUNCTION _sas.may_change(role oid, owner oid) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT (_sas.may_stand_for($1, $2) OR _sas.has_level($1, 'admin'))
        AND _sas.trusts($2, $1)
$$;

-- _sas.check_role(role): raises an error if the role does not exist: null, or a number that no role has
-- (regrole accepts any).
CREATE FUNCTION _sas.check_role(role regrole) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF role IS NULL OR NOT EXISTS (SELECT FROM pg_roles r WHERE r.oid = role) THEN
        PERFORM _sas.refuse_missing('role', role::text, '/role', 'Name a role, such as ''shop_app''.');
    END IF;
END $$;

-- _sas.next_run_owner(after): the next role that owns runs, by oid; null: there is none. It reads one entry
-- of an index, and no row (src/store/next_key.h): the runs may all be those of an open transaction.
CREATE FUNCTION _sas.next_run_owner(after oid) RETURNS oid
LANGUAGE C STABLE STRICT AS 'MODULE_PATHNAME', 'sas_api_next_run_owner';

-- _sas.run_owners(most): the roles that own runs; at most this number. The cost does not depend on how many
-- runs each owner has.
CREATE FUNCTION _sas.run_owners(most int DEFAULT 2147483647) RETURNS SETOF oid
LANGUAGE plpgsql STABLE AS $$
DECLARE
    o oid := 0;
BEGIN
    FOR n IN 1 .. most LOOP
        o := _sas.next_run_owner(o);
        EXIT WHEN o IS NULL;
        RETURN NEXT o;
    END LOOP;
END $$;

-- _sas.level_admin(): a role that may execute this function has level admin. Nothing calls it. There is one
-- such function for each level.
CREATE FUNCTION _sas.level_admin() RETURNS void LANGUAGE sql BEGIN ATOMIC END;

-- _sas.level_operator(): the same for level operator.
CREATE FUNCTION _sas.level_operator() RETURNS void LANGUAGE sql BEGIN ATOMIC END;

-- _sas.level_user(): the same for level user.
CREATE FUNCTION _sas.level_user() RETURNS void LANGUAGE sql BEGIN ATOMIC END;

-- _sas.level_monitor(): the same for level monitor.
CREATE FUNCTION _sas.level_monitor() RETURNS void LANGUAGE sql BEGIN ATOMIC END;

-- _sas.level_worker(): the same for level worker.
CREATE FUNCTION _sas.level_worker() RETURNS void LANGUAGE sql BEGIN ATOMIC END;

-- _sas.has_level(role, level): does this role have that level, by a grant to it or to a role that it is a
-- member of?
CREATE FUNCTION _sas.has_level(role oid, level text) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT has_function_privilege(role, format('_sas.level_%s()', level)::regprocedure, 'EXECUTE')
$$;

-- _sas.is_operator(role): may the role act on runs of all roles?
CREATE FUNCTION _sas.is_operator(role oid) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT _sas.has_level(role, 'operator') OR _sas.has_level(role, 'admin')
$$;

-- _sas.may_operate(role, owner): may the role act on what belongs to this owner, such as runs?
CREATE FUNCTION _sas.may_operate(role oid, owner oid) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT _sas.may_stand_for(role, owner) OR _sas.is_operator(role)
$$;

-- _sas.may_see(role, owner): may the role see what belongs to this owner?
CREATE FUNCTION _sas.may_see(role oid, owner oid) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT _sas.may_operate(role, owner) OR _sas.has_level(role, 'monitor')
$$;

-- _sas.owners_seen_by(role): the roles whose runs it may see; null: all.
CREATE FUNCTION _sas.owners_seen_by(role oid) RETURNS oid[]
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN NOT _sas.is_operator(role) AND NOT _sas.has_level(role, 'monitor')
            AND NOT EXISTS (SELECT FROM pg_roles o WHERE o.oid = role AND o.rolbypassrls)
        THEN ARRAY(SELECT o.oid FROM pg_roles o WHERE _sas.may_stand_for(role, o.oid)) END
$$;

-- _sas.holds(acl, role): does this list have a privilege that is granted to the role itself?
CREATE FUNCTION _sas.holds(acl aclitem[], role oid) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT EXISTS (SELECT FROM aclexplode(acl) x WHERE x.grantee = role)
$$;

-- _sas.tie_role(role): ties the role to schema sas, as a privilege does, because its grant is only a row of
-- a table: DROP ROLE is refused while the grant exists, and DROP OWNED removes it (see _sas.forget_grants).
CREATE FUNCTION _sas.tie_role(role regrole) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_namespace n WHERE n.nspname = 'sas' AND _sas.holds(n.nspacl, role)) THEN
        EXECUTE format('GRANT USAGE ON SCHEMA sas TO %s', role);
    END IF;
END $$;

-- SPDX-License-Identifier: PostgreSQL
--
-- Roles that go: DROP OWNED takes what a role was granted, and DROP ROLE then finds nothing in its way.

-- _sas.drop_rights(caller, role): DROP OWNED is about to drop the role's privileges, see _sas.drop_owned.
-- Writes: level_grant, worker_grant, workflow_grant, agent_grant.
CREATE FUNCTION _sas.drop_rights(caller regrole, role regrole) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    had jsonb := _sas.granted_to(role);
    l text;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_namespace n WHERE n.nspname = 'sas' AND n.nspowner <> role
                   AND _sas.holds(n.nspacl, role)) THEN
        RETURN;
    END IF;
    FOR l IN SELECT DISTINCT x.level FROM _sas.levels_of(role) x WHERE NOT x.limited LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION _sas.%I() FROM %s CASCADE', 'level_' || l, role);
    END LOOP;
    DELETE FROM _sas.level_grant g WHERE g.role = $2;
    DELETE FROM _sas.worker_grant g WHERE g.role = $2;
    DELETE FROM _sas.workflow_grant g WHERE g.role = $2;
    DELETE FROM _sas.agent_grant g WHERE g.role = $2;
    PERFORM _sas.revoke_rights(role, NULL);
    PERFORM _sas.record_change(caller, 'drop_owned', jsonb_build_object('role', pg_get_userbyid(role)) || had)
    WHERE had <> '{}';
END $$;

-- _sas.granted_to(role): the levels of the role, and the agents and workflows that it was granted, for the
-- history.
CREATE FUNCTION _sas.granted_to(role regrole) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_strip_nulls(jsonb_build_object(
        'levels', (SELECT jsonb_agg(DISTINCT l.level) FROM _sas.levels_of($1) l),
        'agents', (SELECT jsonb_agg(a.name ORDER BY a.name) FROM _sas.agent_grant g
                   JOIN _sas.agent a USING (agent_id) WHERE g.role = $1),
        'workflows', (SELECT jsonb_agg(DISTINCT f.name) FROM _sas.workflow_grant g
                      JOIN _sas.workflow f USING (workflow_id) WHERE g.role = $1)))
$$;

-- _sas.drop_owned(): before DROP OWNED, calls _sas.drop_rights for each of its roles for which the current
-- user may act; after it, _sas.tie_owner.
CREATE FUNCTION _sas.drop_owned() RETURNS event_trigger
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_drop_owned';

CREATE EVENT TRIGGER sas_drop_owned ON ddl_command_start WHEN TAG IN ('DROP OWNED')
EXECUTE FUNCTION _sas.drop_owned();
-- whatever session_replication_role is
ALTER EVENT TRIGGER sas_drop_owned ENABLE ALWAYS;

-- _sas.forget_grants(): after DROP OWNED, deletes the grants of roles that have no privilege left in schema
-- sas: the privileges of their levels are gone, and the rows must go with them. It is one statement, so
-- that a role which is granted something meanwhile has both the privilege and the row, or neither.
-- Writes: level_grant, worker_grant, agent_grant, workflow_grant.
CREATE FUNCTION _sas.forget_grants() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    WITH tied AS MATERIALIZED (
        SELECT x.grantee FROM pg_namespace n
        CROSS JOIN LATERAL aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) x
        WHERE n.nspname = 'sas'),
    levels AS (
        DELETE FROM _sas.level_grant g WHERE g.role::oid NOT IN (SELECT t.grantee FROM tied t)),
    workers AS (
        DELETE FROM _sas.worker_grant g WHERE g.role::oid NOT IN (SELECT t.grantee FROM tied t)),
    agents AS (
        DELETE FROM _sas.agent_grant g WHERE g.role::oid NOT IN (SELECT t.grantee FROM tied t))
    DELETE FROM _sas.workflow_grant g WHERE g.role::oid NOT IN (SELECT t.grantee FROM tied t);
END $$;

CREATE EVENT TRIGGER sas_forget_grants ON ddl_command_end WHEN TAG IN ('DROP OWNED')
EXECUTE FUNCTION _sas.forget_grants();
ALTER EVENT TRIGGER sas_forget_grants ENABLE ALWAYS;

-- _sas.untie_owner(role): DROP ROLE has found that the role no longer owns anything: revokes what ties it to
-- schema sas, unless that is a level or a grant.
CREATE FUNCTION _sas.untie_owner(role regrole) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM _sas.levels_of(role))
       AND NOT EXISTS (SELECT FROM _sas.workflow_grant g WHERE g.role = $1)
       AND NOT EXISTS (SELECT FROM _sas.agent_grant g WHERE g.role = $1)
       AND EXISTS (SELECT FROM pg_namespace n WHERE n.nspname = 'sas' AND n.nspowner <> $1
                   AND _sas.holds(n.nspacl, role)) THEN
        EXECUTE format('REVOKE ALL ON SCHEMA sas FROM %s CASCADE', role);
    END IF;
END $$;

-- event triggers of the same event run in the order of their names: after the grants are deleted
CREATE EVENT TRIGGER sas_tie_owner ON ddl_command_end WHEN TAG IN ('DROP OWNED')
EXECUTE FUNCTION _sas.drop_owned();
ALTER EVENT TRIGGER sas_tie_owner ENABLE ALWAYS;

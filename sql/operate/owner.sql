-- SPDX-License-Identifier: PostgreSQL
--
-- Owner: what a role owns in sas, and how it goes to another role. These are rows, not objects whose owner
-- PostgreSQL knows; so REASSIGN OWNED, DROP OWNED and DROP ROLE call these functions (src/api/owned.c).

-- _sas.owned_by(role): one line for each thing that keeps the role from being dropped, in the form of DROP
-- ROLE's own lines; '': nothing. Runs that have stopped do not; they keep the oid of the role.
CREATE FUNCTION _sas.owned_by(role regrole) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    lines text[];
BEGIN
    SELECT coalesce(array_agg(format('owner of %s', x.what) ORDER BY x.kind, x.what COLLATE "C"), '{}')
    INTO lines
    FROM (SELECT 1 AS kind,
                 format('%s open %s', count(*), CASE count(*) WHEN 1 THEN 'run' ELSE 'runs' END) AS what
          FROM _sas.run r WHERE r.owner = $1 AND r.state <> 'stopped' HAVING count(*) > 0
          UNION ALL SELECT 2, format('schedule "%s"', s.name) FROM _sas.schedule s WHERE s.owner = $1
          UNION ALL SELECT 3, format('infinite task "%s" of watcher "%s"', w.key, d.name)
          FROM _sas.watch w JOIN _sas.watcher d USING (watcher_id) WHERE w.owner = $1 AND w.state <> 'deleted'
          UNION ALL SELECT 4, format('watcher "%s"', d.name) FROM _sas.watcher d WHERE d.owner = $1
          UNION ALL SELECT 5, format('middleware "%s" of phase %s', m.name, m.phase)
          FROM _sas.middleware m WHERE m.created_by = $1
          UNION ALL SELECT 6, format('workflow "%s"', f.name) FROM _sas.workflow f
          WHERE f.owner = $1 AND f.dropped_at IS NULL
          UNION ALL SELECT 7, 'the hook of alerts' FROM _sas.alert_hook h WHERE h.owner = $1) x;
    RETURN array_to_string(lines[:100], E'\n')
        || CASE WHEN cardinality(lines) > 100
           THEN format(E'\nand of %s other objects', cardinality(lines) - 100) ELSE '' END;
END $$;

-- _sas.kept_grants(from_role, to_role): one line for each grant of an agent or workflow that the first role
-- has and the second has not. Grants are rights: only an admin gives them, not a member of both roles.
CREATE FUNCTION _sas.kept_grants(from_role oid, to_role oid) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT string_agg(x.what, E'\n' ORDER BY x.kind, x.what COLLATE "C")
    FROM (SELECT 1 AS kind, format('agent "%s"', a.name) AS what
          FROM _sas.agent_grant g JOIN _sas.agent a USING (agent_id)
          WHERE g.role = from_role AND a.dropped_at IS NULL
            AND NOT EXISTS (SELECT FROM _sas.agent_grant o
                            WHERE o.agent_id = g.agent_id AND _sas.may_stand_for(to_role, o.role)
                              AND (o.methods IS NULL OR g.methods <@ o.methods)
                              AND (o.paths IS NULL OR g.paths <@ o.paths))
          UNION ALL
          SELECT 2, format('version %s of workflow "%s"', g.version, f.name)
          FROM _sas.workflow_grant g JOIN _sas.workflow f USING (workflow_id)
          WHERE g.role = from_role AND f.dropped_at IS NULL AND f.owner <> to_role
            AND NOT EXISTS (SELECT FROM _sas.workflow_grant o
                            WHERE o.workflow_id = g.workflow_id AND _sas.may_stand_for(to_role, o.role)
                              AND (o.version = g.version AND o.future >= g.future
                                   OR o.future AND o.version <= g.version))) x
    WHERE EXISTS (SELECT FROM pg_roles r WHERE r.oid = to_role)
      AND NOT _sas.has_level(to_role, 'admin')
$$;

-- _sas.reassign_owned(caller, from_role, to_role): gives everything that one role owns to another role, in
-- every table of sas with an owner, including stopped runs and their keys. Runs come first, because a
-- trigger looks up the owners of their messages there. Claimed work ends with the rights with which it was
-- claimed.
--   holds   the locks of the runs, until the end of the transaction; ticks pass them by
--   writes  the owner in all tables that have one, and nothing else: state is written only by its own
--           writers; the change of a watcher, so that its hosts read it again
--   wakes   all workers, also on abort
CREATE FUNCTION _sas.reassign_owned(caller regrole, from_role regrole, to_role regrole) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    place record;
    why text;
    moved bigint := 0;
    n bigint;
    kept text := _sas.kept_grants(from_role, to_role);
BEGIN
    IF from_role = to_role THEN
        RETURN;
    END IF;
    -- workers pass by what this session holds until it ends
    PERFORM _sas.wake_on_abort();
    FOR place IN
        SELECT c.oid::regclass AS relation, a.attname AS name
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND NOT a.attisdropped
        WHERE c.relnamespace = '_sas'::regnamespace AND c.relkind = 'r'
            AND a.attname IN ('owner', 'workflow_owner', 'created_by')
            AND a.atttypid IN ('regrole'::regtype, 'oid'::regtype)
        ORDER BY c.relname <> 'run', c.relname, a.attname
    LOOP
        EXECUTE format('UPDATE %1$s SET %2$I = $2 WHERE %2$I = $1', place.relation, place.name)
        USING from_role::oid, to_role::oid;
        GET DIAGNOSTICS n = ROW_COUNT;
        moved := moved + n;
    END LOOP;
    IF moved > 0 THEN
        PERFORM _sas.doubt_quotas();
        UPDATE _sas.watcher d SET change = d.change + 1 WHERE d.owner = to_role;
        PERFORM _sas.record_change(caller, 'reassign_owned', jsonb_build_object(
            'from', pg_get_userbyid(from_role), 'to', pg_get_userbyid(to_role)));
    END IF;
    IF moved > 0 AND kept IS NOT NULL THEN
        RAISE WARNING 'role "%" does not get the grants of role "%"', pg_get_userbyid(to_role),
                pg_get_userbyid(from_role)
            USING ERRCODE = '01007', DETAIL = kept,
                HINT = 'Runs that need them fail. An admin can grant them: see sas.grant_agent and '
                       'sas.grant_workflow.';
    END IF;
EXCEPTION WHEN unique_violation THEN
    GET STACKED DIAGNOSTICS why = PG_EXCEPTION_DETAIL;
    RAISE EXCEPTION 'role "%" has a run with the key of a run of role "%"', pg_get_userbyid(to_role),
            pg_get_userbyid(from_role)
        USING ERRCODE = 'unique_violation', DETAIL = why,
            HINT = 'Purge one of them, or name another role.';
END $$;

-- _sas.tie_owner(role): DROP OWNED has dropped the role's privileges: ties it again while it owns
-- something, so that it cannot be dropped from any database of the cluster. See _sas.untie_owner.
CREATE FUNCTION _sas.tie_owner(role regrole) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF _sas.owned_by(role) <> '' THEN
        PERFORM _sas.tie_role(role);
    END IF;
END $$;

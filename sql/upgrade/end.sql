-- SPDX-License-Identifier: PostgreSQL

-- What is new is nobody's but the owner's, whatever default privileges say.
DO LANGUAGE plpgsql $$
DECLARE
    known oid[] := string_to_array(current_setting('sasupdate.known'), ' ');
    g record;
BEGIN
    FOR g IN
        SELECT o.kind, o.name, CASE a.grantee WHEN 0 THEN 'PUBLIC'
            ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS grantee
        FROM (SELECT 'ROUTINE' AS kind, p.oid, p.oid::regprocedure::text AS name, p.proowner AS owner,
                  coalesce(p.proacl, acldefault('f', p.proowner)) AS acl
              FROM pg_proc p WHERE p.pronamespace IN ('sas'::regnamespace, '_sas'::regnamespace)
              UNION ALL
              SELECT CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, c.oid, c.oid::regclass::text,
                  c.relowner,
                  coalesce(c.relacl, acldefault((CASE c.relkind WHEN 'S' THEN 's' ELSE 'r' END)::"char",
                                                c.relowner))
              FROM pg_class c WHERE c.relnamespace IN ('sas'::regnamespace, '_sas'::regnamespace)
                  AND c.relkind IN ('r', 'p', 'v', 'm', 'S')) o,
             aclexplode(o.acl) a
        WHERE o.oid <> ALL (known) AND a.grantee <> o.owner
        GROUP BY 1, 2, 3
    LOOP
        EXECUTE format('REVOKE ALL ON %s %s FROM %s CASCADE', g.kind, g.name, g.grantee);
    END LOOP;
END $$;

-- Every role has what its level gives in this version.
DO LANGUAGE plpgsql $$
DECLARE
    g record;
BEGIN
    FOR g IN
        SELECT DISTINCT a.grantee::regrole AS role, l.level, NULL AS agent
        FROM pg_namespace n, aclexplode(n.nspacl) a, _sas.levels_of(a.grantee) l
        WHERE n.nspname = 'sas' AND a.grantee NOT IN (0, n.nspowner) AND NOT l.limited
        UNION ALL
        SELECT w.role, 'worker', a.name
        FROM _sas.worker_grant w JOIN _sas.agent a ON a.agent_id = w.agent_id
        WHERE a.dropped_at IS NULL AND w.role::oid IN (SELECT r.oid FROM pg_roles r)
        ORDER BY 1, 2
    LOOP
        PERFORM _sas.grant_usage_as(current_user::regrole, g.role, g.level, g.agent);
    END LOOP;
END $$;

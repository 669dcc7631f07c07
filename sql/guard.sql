-- SPDX-License-Identifier: PostgreSQL
--
-- sas: a set of remote actions behaves as one operation.
--
-- This script is put together from the pieces in sql/, in reading order:
-- guard, types, native functions, tables, machine, scheduler, agent,
-- function, supervisor, definition, api, views, grants, dump.

\echo Use "CREATE EXTENSION sas" to load this file. \quit

-- The rest of the script finds names in schema sas. Whoever may put something there before it, or while it runs,
-- would have it run as the superuser who installs: an operator or a better fitting overload is enough. So the schema
-- is one that CREATE EXTENSION has made, or one that is as good as that. Until this is known, nothing is looked up in
-- it: SET looks up nothing, and the rest is parsed under the path that it sets.
-- What another transaction has made and not committed cannot be seen. So where this transaction has not made the
-- schema itself, no other one of this database that writes may be open.
SET LOCAL search_path TO pg_catalog, pg_temp;

DO LANGUAGE plpgsql $$
DECLARE
    own oid;
    owner oid;
    problem text;
BEGIN
    SELECT n.oid, n.nspowner INTO STRICT own, owner FROM pg_namespace n WHERE n.nspname = 'sas';
    IF owner <> (SELECT r.oid FROM pg_roles r WHERE r.rolname = current_user) THEN
        problem := format('It belongs to role "%s".', pg_get_userbyid(owner));
    ELSE
        -- whatever stands in a schema depends on it
        SELECT format('It holds %s.', pg_describe_object(d.classid, d.objid, d.objsubid)) INTO problem
        FROM pg_depend d
        WHERE d.refclassid = 'pg_namespace'::regclass AND d.refobjid = own
          AND NOT (d.classid = 'pg_extension'::regclass
                   AND d.objid = (SELECT e.oid FROM pg_extension e WHERE e.extname = 'sas'))
        ORDER BY d.classid, d.objid LIMIT 1;
        IF NOT FOUND THEN
            SELECT format('%s may create objects in it.',
                          CASE a.grantee WHEN 0 THEN 'Everybody' ELSE format('Role "%s"', pg_get_userbyid(a.grantee)) END)
            INTO problem
            FROM pg_namespace n, aclexplode(n.nspacl) a
            WHERE n.oid = own AND a.privilege_type = 'CREATE' AND a.grantee <> owner
            ORDER BY a.grantee LIMIT 1;
        END IF;
        IF problem IS NULL AND (SELECT n.xmin <> pg_current_xact_id()::xid FROM pg_namespace n WHERE n.oid = own) THEN
            PERFORM pg_stat_clear_snapshot();
            SELECT format('Process %s has a transaction open that may have made objects in it.', a.pid) INTO problem
            FROM pg_stat_activity a
            WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.backend_xid IS NOT NULL
            ORDER BY a.pid LIMIT 1;
            IF problem IS NULL THEN
                SELECT format('The prepared transaction "%s" may have made objects in it.', p.gid) INTO problem
                FROM pg_prepared_xacts p WHERE p.database = current_database() ORDER BY p.gid LIMIT 1;
            END IF;
        END IF;
    END IF;
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION 'extension "sas" cannot be created in the schema "sas" that is there'
            USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = problem,
                  HINT = 'Drop or rename the schema, or end that transaction, and revoke default privileges that let '
                         'others create in new schemas; then CREATE EXTENSION makes a schema of its own.';
    END IF;
END $$;
SET LOCAL search_path TO sas, pg_temp;

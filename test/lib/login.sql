-- SPDX-License-Identifier: PostgreSQL
--
-- Logins of attackers, for test/security: \ir ../lib/login.sql
--
-- login.as_role() executes a statement in a session into which that role has logged in, over a socket, as the role
-- would. There is no superuser below it: session_user, the authenticated user and is_superuser are the role's, RESET
-- ROLE and RESET SESSION AUTHORIZATION lead back to the role, and settings of the role are in force. The session stays
-- open, so what one statement leaves there the next one meets. What is set up for it has to be committed.
--
-- psql prints what pgTAP's harness reads from here on.
\set QUIET on
\pset format unaligned
\pset tuples_only on
\pset pager off
CREATE SCHEMA login;
GRANT USAGE ON SCHEMA login TO PUBLIC;
CREATE EXTENSION dblink SCHEMA login;

-- login.first(statement): the first value of its first row, or how many rows it has changed; in the role's session.
CREATE FUNCTION login.first(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    first_value text;
    n bigint;
BEGIN
    -- whatever the settings of the role
    IF statement OPERATOR(pg_catalog.~*) E'^\\s*(SELECT|WITH|VALUES|TABLE|SHOW)\\M' THEN
        EXECUTE statement INTO first_value;
        RETURN first_value;
    END IF;
    EXECUTE statement;
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN n;
END $$;

-- login.as_role(who, statement, keep): said, or the error; code is 'ok' or the SQLSTATE. keep false: it is rolled back.
CREATE FUNCTION login.as_role(who text, statement text, keep boolean DEFAULT true, OUT said text, OUT code text, OUT message text, OUT place text)
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT who = ANY (coalesce(login.dblink_get_connections(), '{}')) THEN
        PERFORM login.dblink_connect(who, format('host=''%s'' port=%s dbname=%s user=%s', split_part(current_setting('unix_socket_directories'), ',', 1),
                                                 current_setting('port'), current_database(), who));
    END IF;
    IF NOT keep THEN
        PERFORM login.dblink_exec(who, 'BEGIN');
    END IF;
    code := 'ok';
    place := '';
    BEGIN
        said := (SELECT x.first_value FROM login.dblink(who, format('SELECT login.first(%L)', statement)) x (first_value text));
    EXCEPTION WHEN OTHERS THEN
        GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, place = PG_EXCEPTION_DETAIL, code = RETURNED_SQLSTATE;
    END;
    IF NOT keep THEN
        PERFORM login.dblink_exec(who, 'ROLLBACK');
    END IF;
END $$;

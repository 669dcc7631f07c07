-- SPDX-License-Identifier: PostgreSQL
--
-- sas: from @FROM@ to @TO@. Made by tools/update.

\echo Use "ALTER EXTENSION sas UPDATE TO '@TO@'" to load this file. \quit

SET LOCAL search_path TO pg_catalog, pg_temp;

-- The server may still run the library of before: then everything here would be of no use to it, and the
-- workers would stop. What is in the schema now is remembered: what is new belongs to nobody else.
DO LANGUAGE plpgsql $$
BEGIN
    PERFORM _sas.launcher_state();
    IF NOT '@TO@' = ANY (string_to_array(current_setting('sas.known_versions'), ' ')) THEN
        RAISE EXCEPTION 'the loaded library "sas" does not support version "@TO@" of the extension'
            USING ERRCODE = 'object_not_in_prerequisite_state',
                DETAIL = format('It supports the versions %s.', current_setting('sas.known_versions')),
                HINT = 'Install the package of that version, restart the server, and try again.';
    END IF;
    PERFORM set_config('sasupdate.known', (
        SELECT string_agg(o.oid::text, ' ')
        FROM (SELECT p.oid FROM pg_proc p WHERE p.pronamespace IN ('sas'::regnamespace, '_sas'::regnamespace)
              UNION ALL
              SELECT c.oid FROM pg_class c
              WHERE c.relnamespace IN ('sas'::regnamespace, '_sas'::regnamespace)) o), true);
END $$;

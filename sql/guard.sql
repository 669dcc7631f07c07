-- SPDX-License-Identifier: PostgreSQL
--
-- sas: a set of remote actions behaves as one operation.
--
-- This script is concatenated from the pieces in sql/, in the order of sql/order.

\echo Use "CREATE EXTENSION sas" to load this file. \quit

-- The script finds names in pg_catalog and by schema only. It creates both schemas here, in the transaction
-- of CREATE EXTENSION, so that no other role can have put an operator or a better matching overload there;
-- the extension owns both.
SET LOCAL search_path TO pg_catalog, pg_temp;

DO LANGUAGE plpgsql $$
DECLARE
    existing name := (SELECT n.nspname FROM pg_namespace n WHERE n.nspname IN ('sas', '_sas') ORDER BY 1 DESC
                      LIMIT 1);
BEGIN
    IF existing IS NOT NULL THEN
        RAISE EXCEPTION 'schema "%" already exists', existing
            USING ERRCODE = 'duplicate_schema',
                DETAIL = 'Extension "sas" creates the schemas "sas" and "_sas".',
                  HINT = 'Drop or rename the schema that exists.';
    END IF;
END $$;

CREATE SCHEMA sas;
COMMENT ON SCHEMA sas IS 'Functions and views of the workflow engine sas.';
CREATE SCHEMA _sas;
COMMENT ON SCHEMA _sas IS 'Internals of extension sas: for its own functions only.';

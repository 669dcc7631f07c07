-- SPDX-License-Identifier: PostgreSQL

-- _sas.at_home_next(): what the library of this version asks in place of _sas.at_home().
CREATE FUNCTION _sas.at_home_next() RETURNS boolean LANGUAGE sql AS $$ SELECT _sas.at_home() $$;

CREATE FUNCTION _sas.next_of_library() RETURNS text
LANGUAGE C STABLE STRICT AS 'MODULE_PATHNAME', 'sas_api_next';

CREATE FUNCTION sas.noted(run_id bigint) RETURNS text LANGUAGE sql STABLE
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(r.note, 'none') FROM _sas.run r WHERE r.run_id = $1
$$;
COMMENT ON FUNCTION sas.noted IS 'The note of a run.';

CREATE VIEW sas.noted_runs WITH (security_invoker) AS SELECT r.run_id, r.note FROM _sas.run r;
COMMENT ON VIEW sas.noted_runs IS 'Runs and their notes.';

-- SPDX-License-Identifier: PostgreSQL
--
-- What testing aids need below them: the mark of a test's transaction, doors of stubbed agents.

-- _sas.test_mark(): what tells the causes of alerts in a test from those that runs share outside it, so that
-- no supervisor meets a row that is not committed; empty outside.
CREATE FUNCTION _sas.test_mark() RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN CASE WHEN _sas.is_testing() THEN format(' in test %s', pg_current_xact_id()) ELSE '' END;
END $$;

-- stubs -------------------------------------------------------------------------------

-- _sas.matches_pattern(pattern, text): does the text match the pattern, in which * stands for any characters?
CREATE FUNCTION _sas.matches_pattern(pattern text, subject text) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT subject LIKE replace(regexp_replace(pattern, E'([\\\\%_])', E'\\\\\\1', 'g'), '*', '%')
$$;

-- _sas.stubbed_limits(): agents whose last stub for all calls says that their breaker is open.
CREATE FUNCTION _sas.stubbed_limits() RETURNS SETOF int
LANGUAGE sql STABLE AS $$
    SELECT d.agent_id
    FROM (SELECT DISTINCT ON (s.agent_id) s.agent_id, s.answers FROM _sas.stub s
          WHERE num_nonnulls(s.method, s.path, s.step, s.element, s.attempt, s.undo) = 0 AND s.for_ever
              ORDER BY s.agent_id, s.stub_id DESC) d
    WHERE d.answers #>> '{0,error}' = 'breaker open'
$$;

-- SPDX-License-Identifier: PostgreSQL
--
-- What lower floors need for the testing aids: a mark for alerts of a test, and the breakers of stubbed
-- agents.

-- _sas.test_mark(): a suffix for the causes of alerts in a testing transaction, so that no supervisor waits
-- for a row that is not committed; empty in other transactions.
CREATE FUNCTION _sas.test_mark() RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN CASE WHEN _sas.is_testing() THEN format(' in test %s', pg_current_xact_id()) ELSE '' END;
END $$;

-- stubs -------------------------------------------------------------------------------

-- _sas.stubbed_limits(): the agents whose last stub for all calls declares their breaker open.
CREATE FUNCTION _sas.stubbed_limits() RETURNS SETOF int
LANGUAGE sql STABLE AS $$
    SELECT d.agent_id
    FROM (SELECT DISTINCT ON (s.agent_id) s.agent_id, s.answers FROM _sas.stub s
          WHERE num_nonnulls(s.method, s.path, s.step, s.element, s.attempt, s.undo) = 0 AND s.for_ever
              ORDER BY s.agent_id, s.stub_id DESC) d
    WHERE d.answers #>> '{0,error}' = 'breaker open'
$$;

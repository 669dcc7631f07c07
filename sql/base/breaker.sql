-- SPDX-License-Identifier: PostgreSQL
--
-- Breakers of agents. They live in shared memory (src/limits); _sas.agent_health keeps them over a restart,
-- and has those of agents that found no room there.

-- _sas.breakers(): the breakers that are not closed; those of paths are in _sas.path_breakers(). refuses: no
-- call may begin now. Neither side is joined to the other: plans of workers have no hash joins, so a join
-- would compare all agents with all.
CREATE FUNCTION _sas.breakers() RETURNS TABLE (agent_id int, breaker text, refuses boolean)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT p.agent_id, p.breaker, p.breaker = 'open' AND p.open_for_ms > 0
    FROM _sas.limit_entries() p WHERE p.breaker <> 'closed'
    UNION ALL
    SELECT h.agent_id, h.breaker, h.breaker = 'open' AND h.open_until > sas.now()
    FROM _sas.agent_health h
    WHERE h.breaker <> 'closed' AND h.agent_id NOT IN (SELECT p.agent_id FROM _sas.limit_entries() p);
END $$;

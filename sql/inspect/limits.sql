-- SPDX-License-Identifier: PostgreSQL
--
-- Limits: what keeps ready steps from being claimed. It is the same for all steps of an agent or queue; so
-- it is computed once per agent, not once per step, and a hundred thousand waiting steps cost one join.

-- _sas.lane_limits(): one row per agent and queue, and one for the steps of each whose key has no slot.
--   lane    as in _sas.ready: the agent, or the negative id of the queue, or its key lane
--   kind    agent_disabled, secret (a secret that it refers to is not set), breaker, slot (max_in_flight
--           calls are in progress), rate; agent: nothing keeps its steps; queue_paused; queue: all its slots
--           are taken; queue_key, agent_key: all its slots under one key are taken
--   until   when that ends by itself, if it is known
-- Views call it as the current user; it shows nothing that sas.agents and sas.queues do not.
CREATE FUNCTION _sas.lane_limits() RETURNS TABLE (lane int, kind text, name text, until timestamptz)
LANGUAGE C STABLE ROWS 20 AS 'MODULE_PATHNAME', 'sas_api_verb';

-- _sas.lane_limits_as(caller): the body of _sas.lane_limits.
CREATE FUNCTION _sas.lane_limits_as(caller oid)
RETURNS TABLE (lane int, kind text, name text, until timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT a.agent_id, k.kind, a.name,
           CASE k.kind WHEN 'breaker' THEN k.open_until
               WHEN 'rate' THEN sas.now() + p.rate_for_ms * interval '1 ms' END
    FROM _sas.agent a
    LEFT JOIN _sas.agent_health h USING (agent_id)
    LEFT JOIN _sas.limit_entries() p ON p.agent_id = a.agent_id
    CROSS JOIN LATERAL (
        SELECT CASE WHEN NOT a.enabled THEN 'agent_disabled'
                    WHEN EXISTS (SELECT FROM _sas.references(jsonb_build_array(a.headers, a.options)) r
                                 WHERE r.root = 'secret'
                                     AND NOT EXISTS (SELECT FROM _sas.secret s WHERE s.name = r.member
                                                     AND (a.by_superuser OR NOT s.by_superuser)))
                                     THEN 'secret'
                    WHEN a.kind = 'external'
                    THEN CASE WHEN a.max_in_flight <= (SELECT count(*) FROM _sas.external_slot f
                                                       WHERE f.agent_id = a.agent_id
                                                       AND f.request_id IS NOT NULL) THEN 'slot'
                        WHEN p.rate_for_ms > 0 AND a.rate_per_s > 0 THEN 'rate'
                        ELSE 'agent' END
                    WHEN coalesce(p.breaker, h.breaker) <> 'closed'
                        AND NOT coalesce((a.breaker ->> 'off')::boolean, false) THEN 'breaker'
                    WHEN p.in_flight >= a.max_in_flight THEN 'slot'
                    WHEN p.rate_for_ms > 0 AND a.rate_per_s > 0 THEN 'rate'
                    ELSE 'agent' END AS kind,
               -- half-open, or its time is over: the next call, or the one in progress, is the probe
               CASE WHEN coalesce(p.breaker, h.breaker) = 'open' AND coalesce(p.open_for_ms > 0, true)
                   AND h.open_until > sas.now() THEN h.open_until END AS open_until) k
    WHERE a.dropped_at IS NULL
    UNION ALL
    SELECT -u.queue_id, CASE WHEN u.paused_at IS NOT NULL THEN 'queue_paused' ELSE 'queue' END, u.name, NULL
    FROM _sas.queue u WHERE u.dropped_at IS NULL
    UNION ALL
    SELECT _sas.key_lane(u.queue_id),
        CASE WHEN u.paused_at IS NOT NULL THEN 'queue_paused' ELSE 'queue_key' END, u.name, NULL
    FROM _sas.queue u WHERE u.dropped_at IS NULL AND u.key IS NOT NULL
    UNION ALL
    SELECT _sas.key_lane(-a.agent_id), CASE WHEN a.enabled THEN 'agent_key' ELSE 'agent_disabled' END, a.name,
        NULL
    FROM _sas.agent a WHERE a.dropped_at IS NULL AND a.options ? 'concurrency'
$$;

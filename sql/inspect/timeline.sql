-- SPDX-License-Identifier: PostgreSQL
--
-- Timeline: when each attempt of a run took place, on one axis.

-- _sas.spans(run_id): what took time in a run: attempts, those on their way, and steps that wait by
-- themselves.
--   status  as in sas.attempts; running: on its way; waiting: for a signal, a time, elements, a child run or
--   another try; waited: did so
CREATE FUNCTION _sas.spans(run_id bigint)
RETURNS TABLE (step text, element int, attempt int, undo boolean, status text, started_at timestamptz,
               finished_at timestamptz, error jsonb)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT a.step, a.element, a.attempt, a.undo, a.status, a.started_at, a.finished_at, a.error
    FROM sas.attempts a WHERE a.run_id = $1 AND a.started_at IS NOT NULL
    UNION ALL
    SELECT s.step, s.element, s.attempt + 1, s.state = 'compensating', 'running', s.waiting_since, NULL, NULL
    FROM sas.steps s WHERE s.run_id = $1 AND s.waiting_kind = 'reply'
    UNION ALL
    -- between two windows, or for something outside: until now, or until it came
    SELECT s.step, s.element, NULL, false, 'waiting', s.waiting_since, NULL, NULL
    FROM sas.steps s WHERE s.run_id = $1
        AND s.waiting_kind IN ('signal', 'timer', 'elements', 'turn', 'child', 'cool_off', 'poll',
                               'fallback') AND s.waiting_since IS NOT NULL
    UNION ALL
    SELECT s.step, s.element, NULL, false, 'waited', s.started_at, s.finished_at, s.error
    FROM sas.steps s
    WHERE s.run_id = $1 AND s.waiting_kind IS NULL AND s.started_at IS NOT NULL
        AND s.finished_at > s.started_at
      AND (s.kind IN ('wait', 'workflow') OR s.element IS NULL
           AND EXISTS (SELECT FROM _sas.run_facts($1) f WHERE f.step = s.step AND f.total IS NOT NULL))
$$;

-- _sas.timeline_of(id, width): see sas.timeline. Each bar is at least one character long.
CREATE FUNCTION _sas.timeline_of(id bigint, width int)
RETURNS TABLE (step text, element int, attempt int, undo boolean, status text, started_at timestamptz,
               took interval, bar text)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET jit = off AS $$
#variable_conflict use_column
DECLARE
    first timestamptz;
    last timestamptz;
    per float8;
BEGIN
    PERFORM _sas.visible_run(id);
    IF width IS NULL OR width NOT BETWEEN 10 AND 1000 THEN
        RAISE EXCEPTION 'width must be from 10 to 1000'
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /width.',
            HINT = 'It is how many characters the longest bar has.';
    END IF;
    SELECT r.created_at, coalesce(r.finished_at, _sas.now()) INTO first, last FROM sas.runs r
    WHERE r.run_id = id;
    SELECT least(first, min(s.started_at)), greatest(last, max(s.finished_at)) INTO first, last
    FROM _sas.spans(id) s;
    per := greatest(extract(epoch FROM last - first)::float8, 1e-6) / width;
    RETURN QUERY
    SELECT NULL::text, NULL::int, NULL::int, false, r.state || coalesce('/' || r.result, ''), first,
        last - first, repeat('-', width)
    FROM sas.runs r WHERE r.run_id = id;
    RETURN QUERY
    SELECT s.step, s.element, s.attempt, s.undo, s.status, s.started_at,
        coalesce(s.finished_at, last) - s.started_at,
           repeat(' ', c.at) || repeat(CASE WHEN s.undo THEN '<'
                                       WHEN s.status IN ('waiting', 'waited') THEN '.'
                                       ELSE '=' END, c.long - 1)
           || CASE WHEN s.status IN ('failed', 'timed_out', 'lost') THEN 'x'
               WHEN s.finished_at IS NULL THEN '>' WHEN s.undo THEN '<' WHEN s.status = 'waited' THEN '.'
               ELSE '=' END
    FROM _sas.spans(id) s
    CROSS JOIN LATERAL (SELECT least(width - 1,
                                     floor(extract(epoch FROM s.started_at - first)::float8
                                           / per)::int) AS at) a
    CROSS JOIN LATERAL (SELECT a.at,
                        greatest(1, least(width, ceil(extract(epoch
                                                              FROM coalesce(s.finished_at,
                                    last) - first)::float8 / per)::int) - a.at) AS long) c
    ORDER BY s.started_at, s.step, s.element NULLS FIRST, s.attempt;
END $$;

CREATE FUNCTION sas.timeline(run_id bigint, width int DEFAULT 60)
RETURNS TABLE (step text, element int, attempt int, undo boolean, status text, started_at timestamptz,
               took interval, bar text)
LANGUAGE sql STABLE BEGIN ATOMIC SELECT * FROM _sas.timeline_of($1, $2); END;
COMMENT ON FUNCTION sas.timeline IS 'The attempts of a run as bars over one axis, which is the first row: = '
                                    'work, < undo, . waiting; x at the end: failed, >: goes on.';

-- SPDX-License-Identifier: PostgreSQL
--
-- Timeline: when each attempt of a run took place, on one axis.

-- _sas.spans(run_id, most): what took time in a run: attempts, also those in progress, and steps that waited
-- by themselves. most: of a map, only that many first elements; null: all. IS NOT FALSE can be evaluated
-- inside of the views.
--   status  as in sas.attempts; running: in progress; waiting: for a signal, a time, elements, a child run or
--           another attempt; waited: it did so
CREATE FUNCTION _sas.spans(run_id bigint, most int)
RETURNS TABLE (step_position int, step text, element int, attempt int, undo boolean, status text,
               started_at timestamptz, finished_at timestamptz, error jsonb)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT a.position, a.step, a.element, a.attempt, a.undo, a.status, a.started_at, a.finished_at, a.error
    FROM sas.attempts a
    WHERE a.run_id = $1 AND a.started_at IS NOT NULL AND (a.element <= $2) IS NOT FALSE
    UNION ALL
    SELECT s.position, s.step, s.element, CASE x.status WHEN 'running' THEN s.attempt + 1 END,
           x.status = 'running' AND s.state = 'compensating', x.status,
           CASE x.status WHEN 'waited' THEN s.started_at ELSE s.waiting_since END,
           CASE x.status WHEN 'waited' THEN s.finished_at END, CASE x.status WHEN 'waited' THEN s.error END
    FROM sas.steps s
    CROSS JOIN LATERAL (
        SELECT CASE WHEN s.waiting_kind = 'reply' THEN 'running'
                    -- between two windows, or for something outside: until now, or until it arrived
                    WHEN s.waiting_since IS NOT NULL AND s.waiting_kind IN (
                        'signal', 'timer', 'elements', 'turn', 'child', 'cool_off', 'poll', 'fallback')
                    THEN 'waiting'
                    WHEN s.waiting_kind IS NULL AND s.finished_at > s.started_at
                        AND (s.kind IN ('wait', 'workflow') OR s.element IS NULL
                             AND EXISTS (SELECT FROM _sas.run_facts($1) f
                                         WHERE f.step = s.step AND f.total IS NOT NULL))
                    THEN 'waited' END AS status OFFSET 0) x
    WHERE s.run_id = $1 AND (s.element <= $2) IS NOT FALSE AND x.status IS NOT NULL;
END;

-- Each bar is at least one character long.
CREATE FUNCTION sas.timeline(run_id bigint, width int DEFAULT 60)
RETURNS TABLE (step text, element int, attempt int, undo boolean, status text, started_at timestamptz,
               took interval, bar text)
LANGUAGE sql STABLE SET jit = off
BEGIN ATOMIC
    SELECT _sas.visible_run($1);
    SELECT _sas.refuse('22023', 'width must be between 10 and 1000', 'At /width.',
                       'It is the length of the longest bar in characters.')
    WHERE $2 IS NULL OR $2 NOT BETWEEN 10 AND 1000;
    WITH span AS MATERIALIZED (SELECT * FROM _sas.spans($1, NULL)),
    axis AS MATERIALIZED (
        SELECT r.state || coalesce('/' || r.result, '') AS status, x.first, x.last,
               greatest(extract(epoch FROM x.last - x.first)::float8, 1e-6) / $2 AS per
        FROM sas.runs r
        CROSS JOIN LATERAL (
            SELECT least(r.created_at, min(s.started_at)) AS first,
                   greatest(coalesce(r.finished_at, sas.now()), max(s.finished_at)) AS last FROM span s) x
        WHERE r.run_id = $1),
    bar AS (
        SELECT s.*, coalesce(s.finished_at, a.last) - s.started_at AS took, b.at,
               greatest(1, least($2, ceil(b.until / a.per)::int) - b.at) AS long
        FROM span s CROSS JOIN axis a
        CROSS JOIN LATERAL (
            SELECT extract(epoch FROM coalesce(s.finished_at, a.last) - a.first)::float8 AS until,
                   least($2 - 1, floor(extract(epoch FROM s.started_at - a.first)::float8 / a.per)::int) AS at
            ) b)
    SELECT x.step, x.element, x.attempt, x.undo, x.status, x.started_at, x.took, x.bar
    FROM (SELECT 1 AS part, 0 AS step_position, NULL AS step, NULL::int AS element, NULL::int AS attempt,
                 false AS undo, a.status, a.first AS started_at, a.last - a.first AS took,
                 repeat('-', $2) AS bar
          FROM axis a
          UNION ALL
          SELECT 2, b.step_position, b.step, b.element, b.attempt, b.undo, b.status, b.started_at, b.took,
                 repeat(' ', b.at)
                 || repeat(CASE WHEN b.undo THEN '<' WHEN b.status IN ('waiting', 'waited') THEN '.'
                           ELSE '=' END, b.long - 1)
                 || CASE WHEN b.status IN ('failed', 'timed_out', 'lost') THEN 'x'
                         WHEN b.finished_at IS NULL THEN '>' WHEN b.undo THEN '<'
                         WHEN b.status = 'waited' THEN '.' ELSE '=' END
          FROM bar b) x
    ORDER BY x.part, x.started_at, x.step_position, x.step, x.element NULLS FIRST, x.attempt;
END;
COMMENT ON FUNCTION sas.timeline IS
    'The attempts of a run as bars over one axis, which is the first row: = work, < undo, . waiting; x at '
    'the end: failed, >: in progress.';

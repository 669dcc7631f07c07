-- SPDX-License-Identifier: PostgreSQL
--
-- What a person looks at after the orders: how they ended, one that was undone
-- and one that was retried, step by step, and the figures of agents and workers.
--
--   psql -f report.sql

\set QUIET on
\pset null -
\pset footer off
\pset linestyle ascii
\pset border 1

\echo
\echo '== How the orders ended'
SELECT r.state, r.result, r.submitted_by, count(*) AS orders,
       round(extract(epoch FROM min(r.finished_at - r.created_at))::numeric, 2) AS "fastest s",
       round((percentile_cont(0.5) WITHIN GROUP
             (ORDER BY extract(epoch FROM r.finished_at - r.created_at)))::numeric, 2) AS "median s",
       round(extract(epoch FROM max(r.finished_at - r.created_at))::numeric, 2) AS "slowest s"
FROM sas.runs r WHERE r.workflow = 'order'
GROUP BY r.state, r.result, r.submitted_by ORDER BY orders DESC;

\echo '== Why the others were undone'
SELECT r.result, r.error->>'title' AS error, r.error->>'status' AS status, r.error->>'instance' AS "where",
       count(*) AS orders
FROM (SELECT result, error || jsonb_build_object('instance',
             regexp_replace(error->>'instance', '[0-9]+', 'N')) AS error
      FROM sas.runs WHERE workflow = 'order' AND error IS NOT NULL) r
GROUP BY 1, 2, 3, 4 ORDER BY orders DESC;

-- The undone order with the most to tell.
SELECT r.run_id AS undone_run, o.order_id AS undone_order, o.customer AS undone_customer, o.sku AS undone_sku,
       o.card AS undone_card
FROM sas.runs r JOIN shop.orders o ON o.order_id::text = r.key
WHERE r.workflow = 'order' AND r.result = 'compensated'
ORDER BY (SELECT count(*) FROM sas.steps s WHERE s.run_id = r.run_id AND s.state = 'compensated') DESC,
         (SELECT count(*) FROM sas.attempts a WHERE a.run_id = r.run_id) DESC, r.run_id
LIMIT 1 \gset

\if :{?undone_run}
\echo '== One order that was undone: order' :undone_order 'by' :undone_customer '(':undone_sku', card' :undone_card')'
SELECT s.step, s.kind, s.agent, s.state, s.failure_count AS failures, s.error->>'title' AS error,
       round(1000 * extract(epoch FROM s.started_at - r.created_at)) AS "from ms",
       round(1000 * extract(epoch FROM s.finished_at - r.created_at)) AS "to ms"
FROM sas.runs r JOIN sas.steps s USING (run_id)
WHERE r.run_id = :undone_run ORDER BY s.started_at NULLS LAST, s.finished_at;
\echo '   every attempt, in the order of time'
SELECT round(1000 * extract(epoch FROM a.started_at - r.created_at)) AS "at ms",
       round(1000 * extract(epoch FROM a.finished_at - a.started_at)) AS "took ms",
       CASE WHEN a.undo THEN 'undo ' ELSE '' END || a.step AS step, a.attempt, a.status, a.http_status AS http,
       left(coalesce(a.error->>'detail', a.error->>'title'), 60) AS error
FROM sas.runs r JOIN sas.attempts a USING (run_id)
WHERE r.run_id = :undone_run ORDER BY a.started_at, a.attempt;
\else
\echo '== No order was undone'
\endif

SELECT r.run_id AS retried_run, o.order_id AS retried_order, o.customer AS retried_customer,
       o.sku AS retried_sku
FROM sas.runs r JOIN shop.orders o ON o.order_id::text = r.key
WHERE r.workflow = 'order' AND r.result = 'success'
ORDER BY (SELECT count(*) FROM sas.attempts a WHERE a.run_id = r.run_id) DESC, r.run_id
LIMIT 1 \gset

\if :{?retried_run}
\echo '== One order that needed patience: order' :retried_order 'by' :retried_customer '(':retried_sku')'
SELECT round(1000 * extract(epoch FROM a.started_at - r.created_at)) AS "at ms",
       round(1000 * extract(epoch FROM a.finished_at - a.started_at)) AS "took ms",
       CASE WHEN a.undo THEN 'undo ' ELSE '' END || a.step AS step, a.attempt, a.status, a.http_status AS http,
       left(coalesce(a.error->>'detail', a.error->>'title'), 60) AS error
FROM sas.runs r JOIN sas.attempts a USING (run_id)
WHERE r.run_id = :retried_run ORDER BY a.started_at, a.attempt;
\else
\echo '== No order succeeded'
\endif

\echo '== Agents'
SELECT a.name, a.base_url, a.enabled, a.in_flight || '/' || a.max_in_flight AS "in flight", a.rate_limit AS rate,
       a.breaker, a.waiting, t.attempts, t.failed, t."median ms",
       left(coalesce(a.last_error->>'detail', a.last_error->>'title'), 50) AS "last error"
FROM sas.agents a
LEFT JOIN (SELECT agent, count(*) AS attempts, count(*) FILTER (WHERE error IS NOT NULL) AS failed,
                  round((1000 * percentile_cont(0.5) WITHIN GROUP
                        (ORDER BY extract(epoch FROM finished_at - started_at)))::numeric, 1) AS "median ms"
           FROM sas.attempts GROUP BY agent) t ON t.agent = a.name
ORDER BY a.name;

\echo '== Workers'
SELECT actor, pid, leader, in_flight AS "in flight", started_at::time(0) AS "up since",
       last_activity_at::time(3) AS "last active"
FROM sas.workers ORDER BY actor, pid;

\echo '== Alerts'
SELECT kind, agent, run_id, step, left(message, 70) AS message, occurrences AS times, last_at::time(0) AS "last"
FROM sas.alerts ORDER BY last_at;

\echo '== Health'
\x on
SELECT * FROM sas.health();
\x off

-- SPDX-License-Identifier: PostgreSQL
--
-- Statistics of messages are old at once: what an actor did not have when the table was analyzed, it may have by the
-- hundred thousand a minute later, all due at one instant. What a look-up by key reads does not depend on that.
\set SHOW_CONTEXT never
SELECT t.clean() \g /dev/null
SELECT t.workflow('timed', '{"a": {"agent": "inventory", "call": {}}}'),
       t.workflow('slept', '{"a": {"wait": {"for": "10 days"}}}') \g /dev/null

\echo the table is analyzed while it has timers of steps; then come deadlines
SELECT count(*) FROM sas.submit_batch('slept', ARRAY(SELECT '{}'::jsonb FROM generate_series(1, 3000)));
SELECT count(t.schedule()) FROM generate_series(1, 35);
SELECT actor, kind, count(*), count(DISTINCT due_at) FROM _sas.message GROUP BY 1, 2 ORDER BY 1, 2;
ANALYZE _sas.message;
SELECT t.later('1 min');
SELECT more, at FROM _sas.set_timers(NULL, NULL, NULL);
SELECT more, at FROM _sas.set_timers(2001, NULL, NULL);
SELECT actor, kind, count(*), count(DISTINCT due_at) FROM _sas.message GROUP BY 1, 2 ORDER BY 1, 2;
SELECT t.blocks('SELECT _sas.lack_timer(ARRAY(SELECT run_id FROM _sas.run))') / 3000 < 9 AS by_key;
SELECT t.clean() \g /dev/null

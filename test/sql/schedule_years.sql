-- SPDX-License-Identifier: PostgreSQL
--
-- Long. Two years of a weekly schedule, on the nights on which clocks change, in each rule of overlap and catch-up,
-- while the clock jumps on and back, and runs end when they like. Every instant is accounted for: it has one run, was missed,
-- or was skipped.
SELECT t.clean() \g /dev/null
SET timezone = 'UTC';
SELECT t.workflow('long', '{"a": {"wait": {"signal": "go"}}}') \g /dev/null
SELECT count(sas.schedule(format('%s_%s', o, c), '30 2 * * SUN', 'long', timezone => 'America/New_York', overlap => o, catch_up => c, catch_up_window => '21 days'))
FROM unnest('{skip,wait,once_more,replace,allow}'::text[]) o, unnest('{none,last,all}'::text[]) c;
SELECT setseed(0.2026) \g /dev/null
CREATE TABLE t.seen_run (run_id bigint PRIMARY KEY, schedule text, scheduled_at timestamptz, made_at timestamptz);
CREATE TABLE t.broken (what text, at timestamptz, name text);
-- t.look(): what must hold at any time
CREATE FUNCTION t.look() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO t.seen_run SELECT r.run_id, r.schedule, r.scheduled_at, r.created_at FROM _sas.run r ON CONFLICT DO NOTHING;
    INSERT INTO t.broken
    SELECT 'too many are open', sas.now(), s.name
    FROM _sas.schedule s CROSS JOIN LATERAL (SELECT count(*) AS n, count(*) FILTER (WHERE r.state <> 'scheduled') AS begun FROM _sas.run r WHERE r.schedule = s.name AND r.state <> 'stopped') o
    WHERE o.n > CASE s.overlap WHEN 'skip' THEN 1 WHEN 'once_more' THEN 2 WHEN 'replace' THEN 1 ELSE 100000 END OR s.overlap <> 'allow' AND o.begun > 1
    UNION ALL
    SELECT 'an instant is not accounted for', sas.now(), s.name
    FROM _sas.schedule s
    WHERE s.runs + s.missed + s.skipped <> (SELECT count(*) FROM _sas.instants(s.spec, s.timezone, NULL, t.start(), s.last_scheduled_at, 10000))
    UNION ALL
    SELECT 'runs are not counted', sas.now(), s.name FROM _sas.schedule s WHERE s.runs <> (SELECT count(*) FROM t.seen_run r WHERE r.schedule = s.name)
    UNION ALL
    SELECT 'it is due and nobody looks', sas.now(), s.name FROM _sas.schedule s WHERE s.due_at <= sas.now();
END $$;
DO $$
DECLARE
    latest timestamptz := sas.now();
    dice float8;
BEGIN
    WHILE latest < t.start() + interval '2 years' LOOP
        dice := random();
        PERFORM CASE WHEN dice < 0.75 THEN t.set_clock(greatest((SELECT min(due_at) FROM _sas.schedule), sas.now()) + random() * interval '50 s')
                     WHEN dice < 0.85 THEN t.later(random() * interval '70 h')
                     WHEN dice < 0.95 THEN t.later(random() * interval '56 days')
                     ELSE t.later(random() * interval '-28 days') END;
        latest := greatest(latest, sas.now());
        PERFORM t.settle();
        -- most of those that are open end, and then those that followed them
        FOR n IN 1..2 LOOP
            PERFORM sas.signal(r.run_id, 'go') FROM _sas.run r WHERE r.state = 'running' AND random() < 0.7;
            PERFORM t.settle();
        END LOOP;
        PERFORM t.look();
        -- what has ended is purged, now and then
        DELETE FROM _sas.run r WHERE r.state = 'stopped' AND random() < 0.02 AND NOT EXISTS (SELECT FROM _sas.run_dependency a WHERE a.after_run = r.run_id);
    END LOOP;
END $$;
SELECT what, count(*), min(at) AS first, min(name) AS name FROM t.broken GROUP BY what;
-- no instant has two runs, and every run is of an instant
SELECT count(*) - count(DISTINCT (schedule, scheduled_at)) AS twice, count(*) > 400 AS many FROM t.seen_run;
SELECT count(*) FROM t.seen_run r WHERE r.scheduled_at NOT IN (SELECT i FROM _sas.instants('30 2 * * SUN', 'America/New_York', NULL, t.start(), t.start() + interval '3 years', 2000) i);
-- each rule of catch-up holds for every run
SELECT c, count(*) FILTER (WHERE CASE c WHEN 'none' THEN late > interval '1 min' WHEN 'all' THEN late > interval '21 days' ELSE late > interval '21 days' OR later <= r.made_at END) AS wrong
FROM (SELECT r.*, split_part(reverse(schedule), '_', 1) AS reversed, made_at - scheduled_at AS late FROM t.seen_run r) r
CROSS JOIN LATERAL (SELECT reverse(reversed) AS c) x
CROSS JOIN LATERAL (SELECT _sas.next_instant('30 2 * * SUN', 'America/New_York', NULL, r.scheduled_at) AS later) y
GROUP BY c ORDER BY c;
-- what never misses or skips: allow and wait, with all that is not too old
SELECT overlap, catch_up, skipped = 0 AS none_skipped, missed > 0 AS some_missed, runs > 20 AS many FROM sas.schedules WHERE overlap IN ('allow', 'wait') ORDER BY 1, 2;
DROP TABLE t.seen_run, t.broken;
DROP FUNCTION t.look();
SELECT t.clean() \g /dev/null

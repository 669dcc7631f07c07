-- SPDX-License-Identifier: PostgreSQL
--
-- Replies: most say done of a step that asks nothing more of them, and are
-- written at once, as is the plain end of a run; whatever is not is judged. The same story is told twice, the
-- second time with all replies judged: row by row it leaves the same behind.
SELECT t.clean() \g /dev/null
-- as a worker plans: replies are judged in their order
SET plan_cache_mode = force_generic_plan;
SET enable_seqscan = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET jit = off;

-- t.told(): what stands in the tables; without what is random. completion: in which order within its run
CREATE FUNCTION t.told() RETURNS TABLE (what text, n bigint) LANGUAGE sql AS $$
    SELECT x.what, count(*)
    FROM (SELECT 'run ' || (to_jsonb(r) - 'trace')::text AS what FROM _sas.run r
          UNION ALL
          SELECT 'step ' || (to_jsonb(s) - '{request_id,completion}'::text[] || jsonb_build_object('held', s.request_id IS NOT NULL, 'completion', CASE WHEN s.completion IS NOT NULL THEN rank() OVER (PARTITION BY s.run_id ORDER BY s.completion) END))::text FROM _sas.step s
          UNION ALL SELECT 'ready ' || to_jsonb(q)::text FROM _sas.ready q
          UNION ALL SELECT 'due ' || to_jsonb(d)::text FROM _sas.message d
          UNION ALL SELECT 'lease ' || to_jsonb(l)::text FROM _sas.lease l
          UNION ALL SELECT 'ended ' || e.result || ' ' || u || ' ' || e.ended_at FROM _sas.finished_run e CROSS JOIN LATERAL unnest(e.run_ids) u
          UNION ALL SELECT 'attempt ' || to_jsonb(a)::text FROM _sas.attempt a
          UNION ALL SELECT 'alert ' || (to_jsonb(a) - 'alert_id')::text FROM _sas.alert a
          UNION ALL SELECT 'reply ' || (to_jsonb(a) - 'reply_id')::text FROM _sas.reply a
          UNION ALL SELECT 'fan ' || to_jsonb(f)::text FROM _sas.map_progress f
          UNION ALL SELECT 'place ' || to_jsonb(p)::text FROM _sas.queue_slot p
          UNION ALL SELECT 'line ' || to_jsonb(p)::text FROM _sas.concurrency_slot p
          UNION ALL SELECT 'health ' || (to_jsonb(h) - '{open_until,last_error_at}'::text[])::text FROM _sas.agent_health h) x
    GROUP BY x.what
$$;

-- t.counted(): the changes of state that the metrics have counted
CREATE FUNCTION t.counted() RETURNS TABLE (label text, n bigint) LANGUAGE sql AS $$
    SELECT s.label, s.n FROM _sas.series() s WHERE s.metric = 'transition'
$$;

-- t.answer_all(rules): a reply to everything that is held, in one batch. rules: by run and step, or by step; else done. A function returns its input.
CREATE FUNCTION t.answer_all(rules jsonb) RETURNS int[] LANGUAGE plpgsql AS $$
DECLARE
    replies _sas.call_reply[];
    leases bigint[];
BEGIN
    SELECT array_agg(ROW(h.run_id, h.step_no, h.element, CASE what WHEN 'stale' THEN gen_random_uuid() ELSE h.request_id END, CASE what WHEN 'stale' THEN 'done' WHEN 'doubt' THEN 'transient' ELSE what END, 1,
                         CASE WHEN what IN ('done', 'stale') THEN coalesce(h.asked, '7') END, CASE WHEN what IN ('transient', 'doubt', 'permanent') THEN '{"title": "no"}'::jsonb END, what = 'doubt', '0', NULL)::_sas.call_reply ORDER BY h.n),
           array_agg(DISTINCT h.lease_id)
    INTO replies, leases
    FROM t.held h
    CROSS JOIN LATERAL (SELECT coalesce(rules ->> (h.run_id || ' ' || CASE WHEN h.undo THEN 'undo ' ELSE '' END || h.step), rules ->> h.step, 'done') AS what) w;
    DELETE FROM t.held;
    -- the short way ends the leases as a function worker does; the other one looks at each step under them
    RETURN _sas.write_replies(replies, leases, CASE WHEN to_regproc('_sas.look_really') IS NULL THEN leases ELSE '{}' END);
END $$;

SELECT sas.create_queue('narrow', 2) \g /dev/null
SELECT t.workflow('many', '{"a": {"priority": 9, "function": "t.echo", "input": 1, "undo": {"function": "t.echo"}},
                            "b": {"priority": 8, "function": "t.echo", "input": 2, "expect": "$.output == 2", "undo": {"function": "t.echo"}},
                            "c": {"priority": 7, "function": "t.echo", "input": 3, "output": "{{output}}", "undo": {"function": "t.echo"}},
                            "m": {"priority": 6, "function": "t.echo", "each": "{{input.list}}", "input": "{{item}}", "undo": {"function": "t.echo"}},
                            "f": {"priority": 5, "function": "t.echo", "input": 4, "fallback": {"function": "t.echo", "input": 5}},
                            "p": {"priority": 4, "agent": "payments", "call": {}, "undo": {"call": {}}},
                            "q": {"priority": 3, "function": "t.echo", "input": 6, "queue": "narrow"},
                            "d": {"function": "t.echo", "after": ["a", "b", "c"], "input": "{{steps.a.output}}", "undo": {"function": "t.echo"}},
                            "e": {"function": "t.echo", "after": ["d"], "input": "{{steps.d.output}}"}}', '{"output": {"d": "{{steps.d.output?}}"}}') \g /dev/null
SELECT t.workflow('plain', '{"a": {"function": "t.echo", "input": 1}}') \g /dev/null
SELECT t.workflow('parent', '{"c": {"workflow": "plain"}, "a": {"function": "t.echo", "after": ["c"]}}') \g /dev/null
SELECT t.workflow('told', '{"a": {"function": "t.echo", "input": 1}}', '{"hooks": [{"on": "success", "function": "t.echo"}, {"on": "running", "notify": "told"}]}') \g /dev/null
SELECT t.workflow('line', '{"a": {"function": "t.echo", "input": 1}}', '{"concurrency": {"key": "k"}}') \g /dev/null

-- t.story(): runs that go well, that are paused, cancelled and fail while their steps are held, replies that come too late
CREATE TABLE t.telling (way text, moment int, what text, n bigint);
CREATE FUNCTION t.story(way text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    -- no two of them have the same rank
    PERFORM sas.submit('many', '{"list": [1, 2, 3]}', priority => 100 - 20 * g) FROM generate_series(1, 6) g;
    PERFORM sas.submit('plain', reply_to => 'mine');
    PERFORM sas.submit('plain', after_run => 7);
    PERFORM sas.submit_batch('line', array_fill('{}'::jsonb, ARRAY[3]));
    PERFORM sas.submit('plain', start_before => sas.now() + interval '1 h');
    PERFORM sas.submit('parent'), sas.submit('told', deadline => '1 h');
    PERFORM t.settle(), t.claim();
    PERFORM sas.pause(2), sas.cancel(3);
    PERFORM t.schedule();
    -- one begins without anybody having said so
    PERFORM set_config('session_replication_role', 'replica', true);
    UPDATE _sas.run SET state = 'pending', started_at = NULL WHERE run_id IN (4, 7);
    PERFORM set_config('session_replication_role', 'origin', true);
    PERFORM t.answer_all('{"4 a": "permanent", "5 a": "stale", "6 b": "transient", "1 f": "transient", "1 p": "doubt", "2 p": "stale"}');
    FOR moment IN 1..40 LOOP
        INSERT INTO t.telling SELECT $1, moment, x.* FROM t.told() x;
        PERFORM t.settle(), t.later('20 s');
        PERFORM t.settle(), t.claim();
        PERFORM t.answer_all(CASE moment WHEN 3 THEN '{"6 d": "permanent"}' ELSE '{}' END::jsonb);
        PERFORM sas.resume(2) WHERE moment = 5;
    END LOOP;
END $$;

-- t.judge_all(yes): every reply is judged, and no run has a plain end; t.way: which would not have been
CREATE TABLE t.way (plain int, replies int, last boolean);
CREATE FUNCTION t.judge_all(yes boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF yes THEN
        ALTER FUNCTION _sas.lock_replied_runs RENAME TO look_really;
        CREATE FUNCTION _sas.lock_replied_runs(replies _sas.call_reply[], OUT free int[], OUT run_ids bigint[], OUT plain int[], OUT pending boolean, OUT queued boolean, OUT last boolean)
        LANGUAGE plpgsql AS 'BEGIN
            SELECT l.* INTO free, run_ids, plain, pending, queued, last FROM _sas.look_really(replies) l;
            INSERT INTO t.way VALUES (cardinality(plain), cardinality(replies), last);
            plain := NULL;
        END';
        ALTER FUNCTION _sas.move_ended RENAME TO end_really;
        CREATE FUNCTION _sas.move_ended(run_ids bigint[]) RETURNS bigint[] LANGUAGE sql AS $f$ SELECT '{}'::bigint[] $f$;
    ELSE
        DROP FUNCTION _sas.lock_replied_runs;
        ALTER FUNCTION _sas.look_really RENAME TO lock_replied_runs;
        DROP FUNCTION _sas.move_ended;
        ALTER FUNCTION _sas.end_really RENAME TO move_ended;
    END IF;
END $$;

CREATE TABLE t.count_0 AS SELECT * FROM t.counted();
SELECT t.story('short') \g /dev/null
CREATE TABLE t.count_1 AS SELECT * FROM t.counted();
SELECT t.clean(), t.judge_all(true) \g /dev/null
SELECT t.story('judged') \g /dev/null
CREATE TABLE t.count_2 AS SELECT * FROM t.counted();
SELECT sum(plain) > 30 AS plain, sum(replies - plain) > 20 AS others, bool_or(plain < replies) AND bool_or(plain = replies) AS both_ways, bool_or(last) AS ends, bool_or(NOT last) AS goes_on FROM t.way;
SELECT string_agg(DISTINCT split_part(what, ' ', 1), ', ') AS compared FROM t.telling WHERE way = 'short';
SELECT string_agg(DISTINCT result, ', ') AS results FROM _sas.run;
SELECT string_agg(DISTINCT state, ', ') AS steps FROM _sas.step;
SELECT moment, what, n FROM t.telling WHERE way = 'short' EXCEPT SELECT moment, what, n FROM t.telling WHERE way = 'judged' ORDER BY 1, 2;
SELECT moment, what, n FROM t.telling WHERE way = 'judged' EXCEPT SELECT moment, what, n FROM t.telling WHERE way = 'short' ORDER BY 1, 2;
-- and every change of state was counted as often
SELECT count(*) > 10 AS counted FROM t.count_2;
SELECT label, a.n - coalesce(z.n, 0) AS short, b.n - a.n AS judged
FROM t.count_2 b LEFT JOIN t.count_1 a USING (label) LEFT JOIN t.count_0 z USING (label)
WHERE b.n - coalesce(a.n, 0) IS DISTINCT FROM a.n - coalesce(z.n, 0);
SELECT t.judge_all(false) \g /dev/null
SELECT t.clean() \g /dev/null

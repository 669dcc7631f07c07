-- SPDX-License-Identifier: PostgreSQL
--
-- Keys of queues and of agents: at most per_key steps of a queue with the same key have a slot. A step whose
-- key has no free slot is parked: its row in _sas.ready moves to the key lane of the queue, so that no scan
-- finds it until a slot under that key is free. Then it returns to the queue, with its rank. Calls of an
-- agent with a key get their slot when they are claimed; for them queue_id is -agent_id.

-- _sas.key_of_step(key, run_id, step_no, element, undo): the key of a step under the template of a queue;
-- null if the value is null, an array or an object, or is missing: the step has no key.
CREATE FUNCTION _sas.key_of_step(key text, run_id bigint, step_no int, element int, undo boolean) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    r _sas.run;
    w _sas.workflow_step;
    root jsonb;
    value jsonb;
BEGIN
    SELECT * INTO r FROM _sas.run x WHERE x.run_id = $2;
    SELECT * INTO w FROM _sas.workflow_step x
    WHERE x.version_id = r.version_id AND x.step_no = $3 AND x.undo = $5;
    -- of the input what the key reads, not what the step reads; and no results of steps
    w.input_reads := (SELECT CASE WHEN count(*) FILTER (WHERE f.member IS NULL) = 0
                             THEN coalesce(array_agg(f.member), '{}') END
                      FROM _sas.references(to_jsonb(key)) f WHERE f.root = 'input');
    w.reads := '{}';
    w.enter_reads := '{}';
    root := _sas.context(r, w, element);
    root := jsonb_set(root, '{run,owner}', to_jsonb(pg_get_userbyid(r.owner)));
    value := (SELECT o.result FROM _sas.render(to_jsonb(key), root) o);
    RETURN CASE WHEN jsonb_typeof(value) IN ('string', 'number', 'boolean') THEN
        CASE WHEN length(value::text) > 200
             THEN sha256(convert_to(value::text, getdatabaseencoding()))::text ELSE value::text END END;
END $$;

-- _sas.under_keys(free): these steps of queues, with the lanes that they are let out to and their keys.
-- parks: all slots under the key are taken, or are given to others of these steps. Left out: those for which
-- the queue has no slot, and what comes after them under their key, because no slot under it would wake it.
CREATE FUNCTION _sas.under_keys(free _sas.ready[])
RETURNS TABLE (run_id bigint, step_no int, element int, undo boolean, lane int, queue_id int, key text,
               parks boolean)
LANGUAGE sql STABLE AS $$
    WITH asked AS (
        SELECT o.run_id, o.step_no, o.element, o.undo, o.rank, -o.lane AS queue_id, k.key, u.per_key,
               u.max_running, w.lane
        FROM unnest(free) o
        JOIN _sas.run r ON r.run_id = o.run_id
        CROSS JOIN LATERAL _sas.step_definition(r.version_id, o.step_no, o.undo) w
        JOIN _sas.queue u ON u.queue_id = -o.lane
        CROSS JOIN LATERAL (SELECT CASE WHEN u.key IS NOT NULL
                            THEN _sas.key_of_step(u.key, o.run_id, o.step_no, o.element, o.undo) END AS key
                            OFFSET 0) k),
    taken AS (
        SELECT p.queue_id, count(*) AS n FROM _sas.queue_slot p
        WHERE p.queue_id IN (SELECT a.queue_id FROM asked a) GROUP BY 1),
    turn AS (
        SELECT a.*, a.key IS NOT NULL AND a.per_key < row_number() OVER (
                   PARTITION BY a.queue_id, a.key ORDER BY a.rank, a.run_id, a.step_no, a.element)
               + (SELECT count(*) FROM _sas.queue_slot p
                  WHERE p.queue_id = a.queue_id AND p.key = a.key) AS parks
        FROM asked a),
    placed AS (
        SELECT t.*, NOT t.parks AND t.max_running < count(*) FILTER (WHERE NOT t.parks) OVER (
                     PARTITION BY t.queue_id ORDER BY t.rank, t.run_id, t.step_no, t.element
                     ROWS UNBOUNDED PRECEDING)
                 + coalesce((SELECT k.n FROM taken k WHERE k.queue_id = t.queue_id), 0) AS stays
        FROM turn t)
    SELECT x.run_id, x.step_no, x.element, x.undo, x.lane, x.queue_id, x.key, x.parks
    FROM (SELECT p.*, bool_or(p.stays) OVER (PARTITION BY p.queue_id, p.key) AS behind FROM placed p) x
    WHERE CASE WHEN x.parks THEN NOT x.behind ELSE NOT x.stays END
$$;

-- _sas.return_parked(quantity): under keys with a free slot, returns the first parked steps to their queue,
-- or all of a queue whose key has changed. Returns how many.
--
-- Skips rows that a session has locked: the next tick checks their key again. Caller: a scheduler with the
-- mutex "queues". Writes: ready, parked_step, freed_key. Wakes: the scheduler.
CREATE FUNCTION _sas.return_parked(quantity int) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    freed record;
    f _sas.freed_key;
    done record;
    back_now int := 0;
BEGIN
    WITH gone AS (
        DELETE FROM _sas.freed_key x
        WHERE x.ctid = ANY (ARRAY(SELECT y.ctid FROM _sas.freed_key y LIMIT quantity FOR UPDATE SKIP LOCKED))
        RETURNING x.queue_id, x.key)
    SELECT count(*) AS n, array_agg(DISTINCT ROW(g.queue_id, g.key)::_sas.freed_key) AS keys INTO freed
    FROM gone g;
    FOREACH f IN ARRAY coalesce(freed.keys, '{}') LOOP
        IF f.key IS NULL THEN
            back_now := back_now + _sas.empty_key_lane(f.queue_id, quantity);
            INSERT INTO _sas.freed_key (queue_id)
            SELECT f.queue_id
            WHERE EXISTS (SELECT FROM _sas.ready q WHERE q.lane = _sas.key_lane(f.queue_id));
        ELSE
            done := _sas.return_under_key(f);
            back_now := back_now + done.back_now;
            INSERT INTO _sas.freed_key (queue_id, key) SELECT f.queue_id, f.key WHERE done.held;
        END IF;
    END LOOP;
    PERFORM _sas.wake(array_agg(-k.queue_id))
    FROM unnest(freed.keys) k WHERE k.queue_id < 0 HAVING back_now > 0 AND count(*) > 0;
    -- there may be more
    PERFORM _sas.wake(scheduler => true) WHERE freed.n = quantity;
    RETURN back_now;
END $$;

-- _sas.return_under_key(f): returns as many steps parked under this key to their queue as the key has free
-- slots. back_now: how many; held: a session has locked the row of the next one.
-- Writes: parked_step.
CREATE FUNCTION _sas.return_under_key(f _sas.freed_key, OUT back_now int, OUT held boolean)
LANGUAGE plpgsql AS $$
DECLARE
    p record;
    room int := _sas.slots_per_key(f.queue_id)
        - (SELECT count(*) FROM _sas.queue_slot s WHERE s.queue_id = f.queue_id AND s.key = f.key);
BEGIN
    back_now := 0;
    held := false;
    WHILE back_now < room LOOP
        SELECT k.run_id, k.step_no, k.element, q.run_id IS NOT NULL AS stands, q.free INTO p
        FROM _sas.parked_step k
        LEFT JOIN LATERAL (
            SELECT x.run_id, y.run_id IS NOT NULL AS free FROM _sas.ready x
            LEFT JOIN LATERAL (SELECT z.run_id FROM _sas.ready z WHERE z.run_id = x.run_id
                               AND z.step_no = x.step_no AND z.element = x.element
                               FOR UPDATE SKIP LOCKED) y ON true
            WHERE x.run_id = k.run_id AND x.step_no = k.step_no AND x.element = k.element
              AND x.lane = _sas.key_lane(k.queue_id)) q ON true
        WHERE k.queue_id = f.queue_id AND k.key = f.key ORDER BY k.rank LIMIT 1;
        EXIT WHEN NOT FOUND;
        held := p.stands AND NOT p.free;
        EXIT WHEN held;
        DELETE FROM _sas.parked_step k
        WHERE k.run_id = p.run_id AND k.step_no = p.step_no AND k.element = p.element;
        IF p.stands THEN
            PERFORM _sas.leave_key_lane(p.run_id, p.step_no, p.element, f.queue_id);
            back_now := back_now + 1;
        END IF;
    END LOOP;
END $$;

-- _sas.slots_per_key(queue_id): how many steps of the queue, or of agent -queue_id, with the same key may
-- have a slot.
CREATE FUNCTION _sas.slots_per_key(queue_id int) RETURNS int
LANGUAGE sql STABLE AS $$
    SELECT coalesce(u.per_key, u.max_running) FROM _sas.queue u WHERE u.queue_id = $1
    UNION ALL
    SELECT coalesce((a.options #>> '{concurrency,per_key}')::int,
                    CASE WHEN a.options ? 'concurrency' THEN 1 ELSE a.max_in_flight END)
    FROM _sas.agent a WHERE a.agent_id = -$1
$$;

-- _sas.keep_to_keys(claimed, keyed): parks those of these claimed calls of the agents keyed for whose key
-- there is no room, stores the slots of the others, and returns all that remain claimed; null: none.
--
-- A call has no room either while an earlier one is parked under its key: they begin in their order. A slot
-- may become free while this transaction parks; so the scheduler checks the keys once it has committed.
-- Caller: holds the mutex "agent keys". Writes: queue_slot, ready, parked_step, freed_key. Wakes: the
-- scheduler, and workers of these lanes, because there may be more in them than was claimed.
CREATE FUNCTION _sas.keep_to_keys(claimed _sas.claimed[], keyed int[]) RETURNS _sas.claimed[]
LANGUAGE plpgsql AS $$
DECLARE
    parked _sas.claimed[];
    keys text[];
    kept _sas.claimed[];
BEGIN
    WITH asked AS (
        SELECT c.n, claimed[c.n::int] AS call, c.run_id, c.step_no, c.element, c.lane, c.rank, k.key
        FROM unnest(claimed) WITH ORDINALITY AS c (run_id, step_no, element, undo, alone, version_id, lane,
                                                   from_state, attempt, complete_in, request_id, rank,
                                                   ready_at, n)
        LEFT JOIN _sas.agent a ON a.agent_id = c.lane AND c.lane = ANY (keyed)
        CROSS JOIN LATERAL (SELECT CASE WHEN a.agent_id IS NOT NULL
                            THEN _sas.key_of_step(a.options #>> '{concurrency,key}', c.run_id, c.step_no,
                                                  c.element, c.undo) END AS key OFFSET 0) k),
    turn AS (
        SELECT a.*, a.key IS NOT NULL
               AND (_sas.is_one_parked(-a.lane, a.key, a.rank)
                    OR _sas.slots_per_key(-a.lane)
                       < row_number() OVER (PARTITION BY a.lane, a.key ORDER BY a.n)
                         + (SELECT count(*) FROM _sas.queue_slot p
                            WHERE p.queue_id = -a.lane AND p.key = a.key)) AS parks
        FROM asked a),
    placed AS (
        INSERT INTO _sas.queue_slot AS p (run_id, step_no, element, queue_id, key)
        SELECT t.run_id, t.step_no, t.element, -t.lane, t.key FROM turn t
        WHERE t.key IS NOT NULL AND NOT t.parks
        ON CONFLICT (run_id, step_no, element, queue_id) DO UPDATE SET key = EXCLUDED.key),
    told AS (
        INSERT INTO _sas.freed_key (queue_id, key) SELECT DISTINCT -t.lane, t.key FROM turn t WHERE t.parks)
    SELECT array_agg(t.call ORDER BY t.n) FILTER (WHERE t.parks),
           array_agg(t.key ORDER BY t.n) FILTER (WHERE t.parks),
           array_agg(t.call ORDER BY t.n) FILTER (WHERE NOT t.parks)
    INTO parked, keys, kept FROM turn t;
    IF parked IS NOT NULL THEN
        PERFORM _sas.park_calls(parked, keys);
        PERFORM _sas.wake(array_agg(DISTINCT c.lane), true) FROM unnest(parked) c;
    END IF;
    RETURN kept;
END $$;

-- _sas.is_one_parked(queue_id, key, rank): is a step parked under this key that comes before this rank?
CREATE FUNCTION _sas.is_one_parked(queue_id int, key text, rank timestamptz) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM _sas.parked_step k
                   JOIN _sas.ready q ON q.run_id = k.run_id AND q.step_no = k.step_no
                       AND q.element = k.element AND q.lane = _sas.key_lane($1)
                   WHERE k.queue_id = $1 AND k.key = $2 AND k.rank < $3)
$$;

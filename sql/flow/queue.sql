-- SPDX-License-Identifier: PostgreSQL
--
-- Queues: a step of a named queue is in _sas.ready with the lane of its queue (the negative queue id), from
-- which no worker claims. The scheduler moves as many steps to the lane of their agent as the queue has
-- slots, by rank; from then on they are ready steps like any other. The slot is a row, which is deleted
-- when the claim ends, in whatever way.

-- _sas.free_external_slots(slots): frees these slots of external agents, because their claims have ended.
-- Programs that wait for a slot of an agent are notified if all of them were taken.
-- Writes: external_slot. Wakes: NOTIFY for outside programs.
CREATE FUNCTION _sas.free_external_slots(slots _sas.external_slot[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    full_up int[];
BEGIN
    full_up := ARRAY(
        SELECT u.agent_id FROM (SELECT DISTINCT p.agent_id FROM unnest(slots) p) u
        WHERE NOT EXISTS (SELECT FROM _sas.external_slot f
                          WHERE f.agent_id = u.agent_id AND f.request_id IS NULL));
    UPDATE _sas.external_slot f SET request_id = NULL, lease_id = NULL, run_id = NULL, step_no = NULL,
        element = NULL, worker = NULL, extended_by = NULL
    FROM unnest(slots) p
    WHERE f.agent_id = p.agent_id AND f.place = p.place AND f.request_id = p.request_id;
    IF full_up <> '{}' THEN
        PERFORM _sas.notify_outside(ARRAY(SELECT a FROM unnest(full_up) a
                                          WHERE _sas.some_ready(a, a, 1) > 0));
    END IF;
END $$;

-- _sas.expire_leases(lease_ids): frees the slots of outside programs under these leases whose claims no
-- longer hold: the supervisor has taken the step back, or an operator has decided its outcome. The request_id
-- is stored, so that a late reply is recognized. Writes: task, external_slot.
CREATE FUNCTION _sas.expire_leases(lease_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    slots _sas.external_slot[];
BEGIN
    slots := ARRAY(
        SELECT h FROM _sas.external_slot h
        WHERE h.lease_id = ANY (lease_ids)
          AND NOT EXISTS (SELECT FROM _sas.step s
                          WHERE s.run_id = h.run_id AND s.step_no = h.step_no AND s.element = h.element
                              AND s.request_id = h.request_id)
        FOR UPDATE SKIP LOCKED);
    IF slots <> '{}' THEN
        INSERT INTO _sas.task AS t (run_id, step_no, element, undo, lapsed)
        SELECT p.run_id, p.step_no, p.element, p.undo, p.request_id FROM unnest(slots) p
        ON CONFLICT (run_id, step_no, element, undo) DO UPDATE SET lapsed = EXCLUDED.lapsed, tries = 0;
        PERFORM _sas.free_external_slots(slots);
    END IF;
END $$;

-- _sas.are_keys_taken(): has any step a slot under a key of an agent?
CREATE FUNCTION _sas.are_keys_taken() RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT _sas.has_pages('_sas.queue_slot') THEN
        RETURN false;
    END IF;
    RETURN EXISTS (SELECT FROM _sas.queue_slot p WHERE p.queue_id < 0);
END $$;

-- _sas.free_slots(run_ids): deletes the queue slots of those steps of these runs that are no longer let out
-- or claimed, and the slots under keys of agents of those that are no longer claimed. Caller: after it has
-- moved the steps. Writes: queue_slot, freed_key. Wakes: the scheduler.
CREATE FUNCTION _sas.free_slots(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    freed int;
BEGIN
    WITH gone AS (
        DELETE FROM _sas.queue_slot p
        WHERE p.run_id = ANY (run_ids)
          -- not EXISTS: PostgreSQL 18 may read all of the queue for it
          AND (p.queue_id < 0
               OR (SELECT true FROM _sas.ready q WHERE q.run_id = p.run_id AND q.step_no = p.step_no
                   AND q.element = p.element AND _sas.lane_let_out(q.lane) IS NOT NULL LIMIT 1) IS NULL)
          AND NOT EXISTS (SELECT FROM _sas.step s WHERE s.run_id = p.run_id AND s.step_no = p.step_no
                          AND s.element = p.element AND s.request_id IS NOT NULL)
        RETURNING p.queue_id, p.key),
    told AS (
        INSERT INTO _sas.freed_key (queue_id, key)
        SELECT DISTINCT g.queue_id, g.key FROM gone g WHERE g.key IS NOT NULL)
    SELECT count(*) INTO freed FROM gone;
    IF freed > 0 THEN
        PERFORM _sas.wake(scheduler => true);
    END IF;
END $$;

-- _sas.take_back_slots(): steps of paused queues that no worker has claimed give their slots back and wait in
-- their queue again. Returns how many.
-- Writes: ready, queue_slot, freed_key.
CREATE FUNCTION _sas.take_back_slots() RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    back_now int;
BEGIN
    WITH back AS (
        SELECT q.run_id, q.step_no, q.element, p.queue_id
        -- OFFSET 0: without it the planner may lock the steps of all queues first; a claim at that moment
        -- passes them by, and nobody announces them again
        FROM (SELECT p.* FROM _sas.queue u JOIN _sas.queue_slot p USING (queue_id)
              WHERE u.paused_at IS NOT NULL OFFSET 0) p
        CROSS JOIN LATERAL (SELECT x.run_id, x.step_no, x.element FROM _sas.ready x
                            WHERE x.run_id = p.run_id AND x.step_no = p.step_no AND x.element = p.element
                                AND x.lane >= 0 FOR UPDATE SKIP LOCKED) q),
    moved AS (
        UPDATE _sas.ready q SET lane = -b.queue_id FROM back b
        WHERE q.run_id = b.run_id AND q.step_no = b.step_no AND q.element = b.element),
    gone AS (
        DELETE FROM _sas.queue_slot p USING back b WHERE p.run_id = b.run_id AND p.step_no = b.step_no
            AND p.element = b.element AND p.queue_id = b.queue_id
        RETURNING p.queue_id, p.key),
    told AS (
        INSERT INTO _sas.freed_key (queue_id, key)
        SELECT DISTINCT g.queue_id, g.key FROM gone g WHERE g.key IS NOT NULL)
    SELECT count(*) INTO back_now FROM gone;
    RETURN back_now;
END $$;

-- _sas.are_queues_used(): _sas.has_queued, for a tick of a scheduler: it looks only if a step may have come.
-- A step gets its slot when it has waited, so that slots need no mark.
CREATE FUNCTION _sas.are_queues_used() RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    mark timestamptz := (_sas.begin_low_water('d', ARRAY[ascii('q')]))[1];
    used boolean;
BEGIN
    IF mark = 'infinity' THEN
        RETURN false;
    END IF;
    used := _sas.has_queued();
    PERFORM _sas.raise_low_water('d', ascii('q'), 0, CASE WHEN used THEN mark END);
    RETURN used;
END $$;

-- _sas.give_queue_slots(quantity): lets steps out of queues that have free slots, at most quantity of each
-- queue; takes back steps of paused queues that no worker has claimed. Returns how many steps were moved;
-- null: another scheduler holds the mutex.
-- Caller: a scheduler; takes the mutex "queues". Writes: ready, queue_slot. Wakes: workers that can claim
-- the steps.
CREATE FUNCTION _sas.give_queue_slots(quantity int) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    turns record;
    further boolean := false;
    lanes int[];
    rooms int[];
    back_now int;
    free _sas.ready[];
    deferred bigint[] := ARRAY(SELECT d.id FROM _sas.deferred_work d WHERE d.kind = 'queue'
                               AND d.until > sas.now());
    done record;
BEGIN
    IF NOT _sas.take_mutex('queues') THEN
        RETURN NULL;
    END IF;

    back_now := _sas.take_back_slots() + _sas.return_parked($1);
    SELECT coalesce(array_agg(-u.queue_id), '{}'),
        -- of a queue with a key, what has no room under it is passed by; but while several owners use the
        -- queue, more owners than slots would always come in the same order
        coalesce(array_agg(CASE WHEN u.key IS NULL OR _sas.queue_has_other_users(u.queue_id, 0)
                           THEN least($1, u.max_running - taken.n) ELSE $1 END), '{}')
    INTO lanes, rooms
    FROM _sas.queue u
    CROSS JOIN LATERAL (SELECT count(*)::int AS n FROM _sas.queue_slot p
                        WHERE p.queue_id = u.queue_id) taken
    WHERE u.paused_at IS NULL AND u.dropped_at IS NULL AND u.max_running > taken.n;
    LOOP
        turns := _sas.share_lanes(lanes, rooms, further => further);
        turns.shares := _sas.leave_queue_slots(turns.in_lanes, turns.owners, turns.shares);
        IF turns.shares IS NOT NULL THEN
            -- a row that a session has locked is passed by; the end of that session wakes the scheduler
            SELECT array_agg(q) INTO free FROM _sas.ready q
            WHERE q.ctid = ANY ((SELECT _sas.lock_ready(turns.in_lanes, turns.owners, turns.shares,
                                                        turns.marks, deferred))::tid[]);
        END IF;
        EXIT WHEN free IS NOT NULL OR turns.shares IS NULL OR NOT turns.remaining;
        further := true;
    END LOOP;
    IF free IS NULL THEN
        RETURN back_now;
    END IF;
    done := _sas.apart('ARRAY[_sas.let_out($1)]', free);
    PERFORM _sas.defer_apart('queue', array_agg(f.run_id), done.failed, done.errors, done.pauses,
                             array_agg(f.run_id)) FROM unnest(free) f;
    -- the part of its share that an owner does not use is given out by the next call
    PERFORM _sas.wake(scheduler => true) WHERE turns.shared IS NOT NULL;
    RETURN back_now + (SELECT coalesce(sum(n), 0) FROM unnest(done.results) n);
END $$;

-- _sas.let_out(free): moves these steps of queues to the lane of their agent, or of functions, and stores
-- their slots; those for whose key there is no room wait in the key lane of their queue. Returns how many it
-- moved.
-- Caller: holds the locks of these rows. Writes: ready, queue_slot, parked_step. Wakes: workers that can
-- claim the steps.
CREATE FUNCTION _sas.let_out(free _sas.ready[]) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    lanes int[];
    out_now int;
BEGIN
    WITH moved AS (
        UPDATE _sas.ready q
        SET lane = CASE WHEN o.parks THEN _sas.key_lane(o.queue_id)
                        ELSE _sas.lane_now(o.run_id, o.step_no, o.element, o.undo, o.lane) END
        FROM _sas.under_keys(free) o
        WHERE q.run_id = o.run_id AND q.step_no = o.step_no AND q.element = o.element
          AND q.lane = -o.queue_id
        RETURNING q.lane, q.run_id, q.step_no, q.element, q.rank, o.queue_id, o.key, o.parks),
    placed AS (
        INSERT INTO _sas.queue_slot (run_id, step_no, element, queue_id, key)
        SELECT m.run_id, m.step_no, m.element, m.queue_id, m.key FROM moved m WHERE NOT m.parks),
    parked AS (
        INSERT INTO _sas.parked_step AS p (run_id, step_no, element, queue_id, key, rank)
        SELECT m.run_id, m.step_no, m.element, m.queue_id, m.key, m.rank FROM moved m WHERE m.parks
        ON CONFLICT (run_id, step_no, element) DO UPDATE
            SET queue_id = EXCLUDED.queue_id, key = EXCLUDED.key, rank = EXCLUDED.rank)
    SELECT array_agg(DISTINCT m.lane) FILTER (WHERE NOT m.parks), count(*) INTO lanes, out_now FROM moved m;
    PERFORM _sas.wake(_sas.notify_outside(lanes)) WHERE lanes IS NOT NULL;
    RETURN out_now;
END $$;

-- SPDX-License-Identifier: PostgreSQL
--
-- Owners share the slots of a queue as they share those of an agent (src/limits/owners.h): while several of
-- them use it, none can have all slots. Whoever has asked for a slot within the last hour uses the queue. A
-- queue whose key names the owner has no such rule: its key says how many each may have.

-- _sas.queue_has_other_users(queue_id, of_owner): does another owner use the queue? of_owner 0: do several?
CREATE FUNCTION _sas.queue_has_other_users(queue_id int, of_owner oid) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT count(*) > CASE WHEN of_owner = 0 THEN 1 ELSE 0 END
    FROM _sas.queue_user u
    WHERE u.queue_id = $1 AND u.role <> of_owner
      AND u.used_at BETWEEN sas.now() - interval '1 h' AND sas.now() + interval '1 h'
$$;

-- _sas.note_queue_users(queue_id, owners): these owners use the queue. Two are enough, and are written again
-- after ten minutes at the earliest, so that many owners cost no more than one.
-- Caller: a scheduler with the mutex "queues". Writes: queue_user.
CREATE FUNCTION _sas.note_queue_users(queue_id int, owners oid[]) RETURNS void
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    now timestamptz := sas.now();
    recent oid[] := ARRAY(SELECT u.role::oid FROM _sas.queue_user u
                          WHERE u.queue_id = $1 AND u.used_at BETWEEN now - interval '10 min' AND now);
    noted oid[] := ARRAY(SELECT DISTINCT o FROM unnest(owners) o WHERE o <> ALL (recent)
                         LIMIT greatest(0, 2 - cardinality(recent)));
BEGIN
    IF noted = '{}' THEN
        RETURN;
    END IF;
    DELETE FROM _sas.queue_user u
    WHERE u.queue_id = $1 AND u.used_at NOT BETWEEN now - interval '1 h' AND now + interval '1 h';
    INSERT INTO _sas.queue_user (queue_id, role, used_at)
    SELECT $1, o, now FROM unnest(noted) o
    ON CONFLICT (queue_id, role) DO UPDATE SET used_at = EXCLUDED.used_at;
END $$;

-- _sas.leave_queue_slots(in_lanes, owners, shares): the shares that these owners get of the free slots of
-- queues; they leave slots to other owners of whom it is known that they use the queue.
-- Caller: a scheduler with the mutex "queues". Writes: queue_user.
CREATE FUNCTION _sas.leave_queue_slots(in_lanes int[], owners oid[], shares int[]) RETURNS int[]
LANGUAGE plpgsql AS $$
DECLARE
    queue record;
    holders oid[];
    held int[];
    taken int;
    j int;
BEGIN
    FOR queue IN
        SELECT u.queue_id, u.max_running, s.at, s.owners,
               EXISTS (SELECT FROM _sas.references(to_jsonb(u.key)) k
                       WHERE k.root = 'run' AND k.member = 'owner') AS by_key
        FROM (SELECT x.lane, array_agg(x.n ORDER BY x.n) AS at, array_agg(x.owner ORDER BY x.n) AS owners
              FROM unnest(in_lanes, owners) WITH ORDINALITY AS x (lane, owner, n) GROUP BY 1) s
        JOIN _sas.queue u ON u.queue_id = -s.lane
    LOOP
        PERFORM _sas.note_queue_users(queue.queue_id, queue.owners);
        -- while one owner is alone, nothing is counted
        CONTINUE WHEN NOT _sas.queue_has_other_users(queue.queue_id, queue.owners[1]);
        SELECT array_agg(h.owner), array_agg(h.n), coalesce(sum(h.n), 0) INTO holders, held, taken
        FROM (SELECT r.owner::oid, count(*)::int AS n
              FROM _sas.queue_slot p JOIN _sas.run r USING (run_id)
              WHERE p.queue_id = queue.queue_id GROUP BY 1) h;
        FOREACH j IN ARRAY queue.at LOOP
            shares[j] := greatest(0, least(
                shares[j], queue.max_running - taken,
                CASE WHEN NOT queue.by_key
                THEN _sas.owner_room(queue.max_running, taken,
                                     coalesce(held[array_position(holders, owners[j])], 0)) END));
            taken := taken + shares[j];
        END LOOP;
    END LOOP;
    RETURN shares;
END $$;

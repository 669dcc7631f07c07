-- SPDX-License-Identifier: PostgreSQL
--
-- Shares: how many waiting tasks a node takes, so that all nodes of its kind have an equal load; and whose,
-- because owners take turns and leave places of an agent to each other.

-- _sas.watch_share(n, among, places): how many more tasks this node, which has so many places, should take so
-- that all nodes of its kind have an equal load: held and waiting tasks, divided by capacity. A node whose
-- function takes long is left out.
CREATE FUNCTION _sas.watch_share(n _sas.node, among int[], places bigint) RETURNS int
LANGUAGE plpgsql STABLE AS $$
DECLARE
    mine bigint := (SELECT count(*) FROM _sas.watch_held h WHERE h.node_id = n.node_id);
    capacities bigint;
    held bigint;
    waiting bigint;
BEGIN
    IF NOT EXISTS (SELECT FROM _sas.node p WHERE p.kind = n.kind AND p.ended_at IS NULL
                   AND p.node_id <> n.node_id AND (n.lanes IS NULL OR p.lanes && n.lanes)) THEN
        RETURN CASE WHEN n.busy_until > sas.now() THEN 0 ELSE places END;
    END IF;
    SELECT sum(p.capacity) FILTER (WHERE p.busy_until IS NULL OR p.busy_until <= sas.now()), sum(x.held)
        INTO capacities, held
    FROM _sas.node p
    CROSS JOIN LATERAL (SELECT count(*) AS held FROM _sas.watch_held h WHERE h.node_id = p.node_id) x
    WHERE p.kind = n.kind AND p.ended_at IS NULL AND (n.lanes IS NULL OR p.lanes && n.lanes);
    -- no more than give it all its places
    SELECT count(*) INTO waiting
    FROM (SELECT FROM _sas.watch_wait q WHERE q.lane = ANY (among) AND q.due_at <= (SELECT sas.now())
          LIMIT greatest(0, ceil((places + mine)::numeric * capacities / nullif(n.capacity, 0)) - held)) w;
    RETURN CASE WHEN n.busy_until > sas.now() THEN 0
        ELSE greatest(0, ceil((held + waiting)::numeric * n.capacity / nullif(capacities, 0)) - mine) END;
END $$;

-- _sas.free_from(n, due_at): from when on this node may take a task that is due since due_at: if there were
-- other nodes of its kind then, the first two seconds may have been theirs.
CREATE FUNCTION _sas.free_from(n _sas.node, due_at timestamptz) RETURNS timestamptz
LANGUAGE sql STABLE AS $$
    SELECT due_at + CASE WHEN EXISTS (
        SELECT FROM _sas.node p
        WHERE p.kind = n.kind AND p.node_id <> n.node_id AND (p.ended_at IS NULL OR p.ended_at > due_at))
        THEN interval '2 s' ELSE '0' END
$$;

-- _sas.lanes_of(n): the lanes from which this node may take tasks now, how many of each, and how many tasks
-- all nodes together may host of it; null: any number.
CREATE FUNCTION _sas.lanes_of(n _sas.node) RETURNS TABLE (lane int, room bigint, slots int)
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF n.kind = 'function' THEN
        RETURN QUERY SELECT 0, NULL::bigint, NULL::int;
    ELSE
        RETURN QUERY
        SELECT a.agent_id,
               CASE WHEN a.kind = 'http'
                    THEN greatest(0, x.slots - (SELECT count(*) FROM _sas.watch_held h
                                                WHERE h.lane = a.agent_id)) END,
               x.slots
        FROM _sas.agent a
        CROSS JOIN LATERAL (SELECT CASE WHEN a.kind = 'http' THEN _sas.max_streams(a.options) END) x (slots)
        WHERE a.enabled AND a.dropped_at IS NULL
          AND CASE n.kind WHEN 'agent' THEN a.kind = 'http' ELSE a.agent_id = ANY (n.lanes) END
          AND EXISTS (SELECT FROM _sas.watch_wait q WHERE q.lane = a.agent_id);
    END IF;
END $$;

-- _sas.max_streams(options): how many streams and polls of an agent all nodes together may host.
CREATE FUNCTION _sas.max_streams(options jsonb) RETURNS int
LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce((options ->> 'max_streams')::int, 10000)
$$;

-- _sas.watch_line(of_lane, limited): the owners with tasks that wait in this lane and are due, and how many
-- tasks of each have a host; shared: whether other owners use the lane, too, and it is limited. Only there
-- the exact number matters; else owners with a thousand are equal, and no more are counted.
CREATE FUNCTION _sas.watch_line(of_lane int, limited boolean)
RETURNS TABLE (owner oid, held bigint, shared boolean)
LANGUAGE sql STABLE AS $$
    WITH RECURSIVE skip AS (
        SELECT 0::oid AS owner, NULL::timestamptz AS due_at
        UNION ALL
        SELECT f.owner, f.due_at FROM skip s
        CROSS JOIN LATERAL (SELECT q.owner::oid, q.due_at FROM _sas.watch_wait q
                            WHERE q.lane = of_lane AND q.owner > s.owner
                            ORDER BY q.owner, q.due_at LIMIT 1) f)
    SELECT s.owner, x.held, l.shared
    FROM (SELECT o.owner FROM skip o WHERE o.due_at <= (SELECT sas.now()) OFFSET 0) s
    CROSS JOIN LATERAL (SELECT limited AND _sas.watch_shared(of_lane, s.owner) AS shared OFFSET 0) l
    CROSS JOIN LATERAL (SELECT count(*) AS held
                        FROM (SELECT FROM _sas.watch_held h WHERE h.lane = of_lane AND h.owner = s.owner
                              LIMIT CASE WHEN l.shared THEN NULL ELSE 1000 END) k) x
$$;

-- _sas.watch_shared(of_lane, of_owner): do several owners use this agent: by grants, or because another one
-- has a stream, or waits for one? Streams do not end by themselves, so the place of an owner with a grant is
-- left free before it comes.
CREATE FUNCTION _sas.watch_shared(of_lane int, of_owner oid) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT of_lane = ANY (_sas.shared_agents())
        OR EXISTS (SELECT FROM _sas.watch_wait q WHERE q.lane = of_lane AND q.owner < of_owner)
        OR EXISTS (SELECT FROM _sas.watch_wait q WHERE q.lane = of_lane AND q.owner > of_owner)
        OR EXISTS (SELECT FROM _sas.watch_held h WHERE h.lane = of_lane AND h.owner < of_owner)
        OR EXISTS (SELECT FROM _sas.watch_held h WHERE h.lane = of_lane AND h.owner > of_owner)
$$;

-- _sas.watch_shares(lanes, rooms, slots, places): how many tasks of which owners a node with so many places
-- takes from these lanes. A place goes to the owner with the fewest tasks that have a host; while several
-- owners use an agent, none of them gets all its slots (src/limits/owners.h). Changes nothing.
CREATE FUNCTION _sas.watch_shares(lanes int[], rooms bigint[], slots int[], places int)
RETURNS TABLE (lane int, owner oid, share bigint)
LANGUAGE sql STABLE AS $$
    WITH line AS (
        SELECT l.lane, l.room, l.slots, o.owner, o.held, o.shared,
               sum(o.held) OVER (PARTITION BY o.owner) AS has
        FROM unnest(lanes, rooms, slots) AS l (lane, room, slots)
        -- it takes from no more owners than there are places
        CROSS JOIN LATERAL (SELECT * FROM _sas.watch_line(l.lane, l.slots IS NOT NULL) w
                            ORDER BY w.held LIMIT places) o),
    first AS (
        SELECT l.*, q.due_at, q.nth,
               row_number() OVER (PARTITION BY l.lane ORDER BY l.held + q.nth, q.due_at, l.owner) AS before
        FROM line l
        CROSS JOIN LATERAL (SELECT x.due_at, row_number() OVER (ORDER BY x.due_at) AS nth
                            FROM (SELECT w.due_at FROM _sas.watch_wait w
                                  WHERE w.lane = l.lane AND w.owner = l.owner
                                    AND w.due_at <= (SELECT sas.now())
                                  ORDER BY w.due_at LIMIT least(l.room, places)) x) q),
    allowed AS (
        SELECT f.lane, f.owner, f.due_at,
               f.has + row_number() OVER (PARTITION BY f.owner ORDER BY f.due_at, f.lane) AS turn
        FROM first f
        WHERE f.room IS NULL OR f.before <= f.room
          AND CASE WHEN f.shared
              THEN _sas.owner_room(f.slots, (f.slots - f.room + f.before - 1)::int,
                                   (f.held + f.nth - 1)::int) > 0
              ELSE true END)
    SELECT a.lane, a.owner, count(*)
    FROM (SELECT x.lane, x.owner FROM allowed x ORDER BY x.turn, x.due_at, x.lane LIMIT places) a
    GROUP BY 1, 2
$$;

-- _sas.take_watches(n, quantity): gives waiting tasks to this node: at most quantity, as far as it has free
-- slots, and its share. Tasks that no other node has taken for two seconds do not count against its share.
-- Owners take turns. Never waits for a lock. Returns the tasks.
-- Writes: watch_wait, watch_held.
CREATE FUNCTION _sas.take_watches(n _sas.node, quantity int) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas.now();
    lanes int[];
    rooms bigint[];
    slots int[];
    line record;
    places int;
    share int;
    nobodys bigint;
    ids bigint[];
    left_over boolean;
    found int;
BEGIN
    SELECT array_agg(l.lane), array_agg(l.room), array_agg(l.slots) INTO lanes, rooms, slots
    FROM _sas.lanes_of(n) l WHERE l.room IS NULL OR l.room > 0;
    IF lanes IS NULL OR NOT EXISTS (SELECT FROM unnest(lanes) l
                                    WHERE EXISTS (SELECT FROM _sas.watch_wait q WHERE q.lane = l
                                                  AND q.due_at <= now)) THEN
        RETURN '{}';
    END IF;
    places := greatest(0, least(quantity,
                                n.capacity - (SELECT count(*) FROM _sas.watch_held h
                                              WHERE h.node_id = n.node_id)));
    share := _sas.watch_share(n, lanes, places);
    SELECT count(*) INTO nobodys
    FROM (SELECT FROM unnest(lanes) AS l (lane),
          LATERAL (SELECT FROM _sas.watch_wait x WHERE x.lane = l.lane AND x.due_at <= now - interval '2 s'
                   LIMIT places) q) y;
    -- locks no more than it may take
    places := least(places, greatest(share, nobodys));

    SELECT array_agg(s.lane) AS lanes, array_agg(s.owner) AS owners, array_agg(s.share) AS shares INTO line
    FROM _sas.watch_shares(lanes, rooms, slots, places) s;
    -- who waits has all that it may have; the end of a stream wakes
    IF places > 0 AND line.lanes IS NULL THEN
        RETURN '{}';
    END IF;
    SELECT coalesce(array_agg(q.watch_id), '{}') INTO ids
    FROM unnest(line.lanes, line.owners, line.shares) AS l (lane, owner, share),
         LATERAL (SELECT x.watch_id FROM _sas.watch_wait x
                  WHERE x.lane = l.lane AND x.owner = l.owner AND x.due_at <= now ORDER BY x.due_at
                  LIMIT l.share FOR UPDATE SKIP LOCKED) q;
    ids := _sas.lock_watches(ids);
    PERFORM _sas.passed_by('watch', cardinality(ids) < (SELECT sum(s) FROM unnest(line.shares) s));
    IF cardinality(ids) > 0 THEN
        WITH taken AS (
            DELETE FROM _sas.watch_wait q WHERE q.watch_id = ANY (ids) RETURNING q.due_at)
        SELECT count(_sas.found('watch', 'watch', _sas.free_from(n, t.due_at))) INTO found FROM taken t;
        PERFORM _sas.move_watches(ids, array_fill('created'::text, ARRAY[cardinality(ids)]),
                                  array_fill('processing'::text, ARRAY[cardinality(ids)]));
        INSERT INTO _sas.watch_held (watch_id, node_id, lane, epoch, change, owner)
        SELECT w.watch_id, n.node_id, d.lane, w.epoch, d.change, w.owner FROM _sas.watch w JOIN _sas.watcher d
            USING (watcher_id) WHERE w.watch_id = ANY (ids);
    END IF;
    SELECT EXISTS (SELECT FROM unnest(lanes) l
                   WHERE EXISTS (SELECT FROM _sas.watch_wait q WHERE q.lane = l AND q.due_at <= now
                                 AND NOT q.watch_id = ANY (ids))) INTO left_over;
    IF left_over AND cardinality(ids) < quantity THEN
        PERFORM _sas.due_by(now + interval '2 s');
    END IF;
    RETURN ids;
END $$;

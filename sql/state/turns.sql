-- SPDX-License-Identifier: PostgreSQL
--
-- Turns: owners with ready steps take turns within a lane. Priority and time order the steps of one owner.

-- _sas.lane_owners(lane): the owners that this session has seen in the lane, by oid, with the next one and a
-- number that grows each time an owner is served; and one row for oid 0.
CREATE FUNCTION _sas.lane_owners(lane int, OUT owner oid, OUT next oid, OUT served bigint)
RETURNS SETOF record
LANGUAGE C VOLATILE STRICT ROWS 2 AS 'MODULE_PATHNAME', 'sas_api_lane_owners';

-- _sas.serve_owner(lane, owner, turn): the owner has this turn in the lane now; of those served together, the
-- last one is the first one next time. turn 0: it is seen, and not served. Returns the owner.
CREATE FUNCTION _sas.serve_owner(lane int, owner oid, turn int) RETURNS oid
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_serve_owner';

-- _sas.ready_owners(lane, mark): the owners with ready steps in the lane at mark or above, with the first
-- rank of each. added: this session has not seen the owner there before; of several such owners between two
-- that it has seen, the first one is found.
CREATE FUNCTION _sas.ready_owners(lane int, mark timestamptz)
RETURNS TABLE (owner oid, rank timestamptz, served bigint, added boolean)
LANGUAGE sql STABLE AS $$
    SELECT f.owner, f.rank, CASE WHEN f.added THEN 0 ELSE k.served END, f.added
    FROM _sas.lane_owners($1) k
    -- two look-ups instead of a range: each begins at the mark, behind what is dead
    CROSS JOIN LATERAL (
        (SELECT q.owner::oid, q.rank, false AS added FROM _sas.ready q
         WHERE q.lane = $1 AND q.owner = k.owner AND q.rank >= $2 ORDER BY q.rank LIMIT 1)
        UNION ALL
        (SELECT q.owner::oid, q.rank, true FROM _sas.ready q
         WHERE q.lane = $1 AND q.owner > k.owner AND q.owner < k.next AND q.rank >= $2
         ORDER BY q.owner, q.rank LIMIT 1)) f
$$;

-- _sas.see_owners(lanes, marks): this session sees all owners with ready steps in these lanes from now on. It
-- walks over all that is dead at the beginning of an owner, so it is called only for an owner that is new to
-- the session.
CREATE FUNCTION _sas.see_owners(lanes int[], marks timestamptz[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM _sas.serve_owner(l.lane, found.owner, 0)
    FROM unnest(lanes, marks) AS l (lane, mark)
    CROSS JOIN LATERAL (
        WITH RECURSIVE skip AS (
            SELECT 0::oid AS owner
            UNION ALL
            SELECT (SELECT q.owner::oid FROM _sas.ready q
                    WHERE q.lane = l.lane AND q.owner > s.owner AND q.rank >= l.mark
                    ORDER BY q.owner, q.rank LIMIT 1)
            FROM skip s WHERE s.owner IS NOT NULL)
        SELECT s.owner FROM skip s WHERE s.owner > 0) found;
END $$;

-- _sas.share_lanes(...): shares out quantities[i] steps of lanes[i] among the owners with ready steps there,
-- beginning with the one that was served the longest ago: up to shares[j] steps of owners[j] in in_lanes[j],
-- from marks[j] on. urgent: see _sas.urgent_shares. shared: the lanes with several owners: they may hold more
-- than is shared out. Null when nothing is ready. Owners whose functions run on as many workers as may get
-- no share of them.
--
-- Begins the low-water marks of the lanes before the snapshot of its statement, and raises them; while there
-- may be an owner that it has not found, it leaves a mark as it is.
-- Caller: nothing. Next: takes the rows, in a statement of its own.
CREATE FUNCTION _sas.share_lanes(lanes int[], quantities int[], urgent boolean DEFAULT false,
                                 OUT in_lanes int[], OUT owners oid[], OUT shares int[],
                                 OUT marks timestamptz[], OUT shared int[])
LANGUAGE plpgsql AS $$
DECLARE
    begun timestamptz[] := _sas.begin_low_water('r', lanes);
    left_out oid[] := CASE WHEN lanes = '{0}' THEN _sas.unclaimable_owners() ELSE '{}' END;
    added int[];
BEGIN
    FOR attempt IN 1 .. 2 LOOP
        -- FILTER, not WHERE: that would go below the raise, which concerns empty lanes, too
        SELECT array_agg(t.lane) FILTER (WHERE t.share > 0),
               array_agg(_sas.serve_owner(t.lane, t.owner, t.turn::int)) FILTER (WHERE t.share > 0),
               array_agg(t.share) FILTER (WHERE t.share > 0),
               array_agg(t.mark) FILTER (WHERE t.share > 0),
               array_agg(t.lane) FILTER (WHERE t.turn = 1 AND t.several),
               array_agg(t.raised) FILTER (WHERE t.turn = 1 AND t.added)
        INTO in_lanes, owners, shares, marks, shared, added
        FROM (SELECT o.lane, o.owner, o.mark, o.turn, o.owners > 1 AS several, o.added,
                     CASE WHEN o.owners > 0 AND NOT o.is_left_out
                          THEN o.quantity / o.owners + (o.turn <= o.quantity % o.owners)::int END AS share,
                     CASE WHEN o.turn = 1
                          THEN _sas.raise_low_water('r', o.lane, CASE WHEN o.added THEN o.mark
                                                                 ELSE o.first END) END AS raised
              FROM (SELECT l.lane, l.quantity, l.mark, f.owner, x.is_left_out,
                           count(f.owner) FILTER (WHERE NOT x.is_left_out) OVER w AS owners,
                           row_number() OVER (PARTITION BY l.lane
                                              ORDER BY x.is_left_out, f.served, f.owner) AS turn,
                           min(f.rank) OVER w AS first, bool_or(f.added) OVER w AS added
                    FROM unnest($1, $2, begun) AS l (lane, quantity, mark)
                    LEFT JOIN LATERAL _sas.ready_owners(l.lane, l.mark) f ON true
                    CROSS JOIN LATERAL (SELECT coalesce(f.owner = ANY (left_out), false) AS is_left_out) x
                    WINDOW w AS (PARTITION BY l.lane)) o) t;
        EXIT WHEN added IS NULL OR attempt = 2;
        PERFORM _sas.see_owners(lanes, begun);
    END LOOP;
    IF urgent AND shares IS NOT NULL THEN
        shares := _sas.urgent_shares(in_lanes, owners, shares, marks);
    END IF;
END $$;

-- _sas.urgent_shares(...): the shares of owners whose first steps have a higher priority than the steps
-- behind them, cut to these. That is seen among the first 20, so priorities that alternate make no batch
-- smaller.
CREATE FUNCTION _sas.urgent_shares(in_lanes int[], owners oid[], shares int[], marks timestamptz[])
RETURNS int[]
LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT array_agg(coalesce(f.drop_at - 1, s.share)::int ORDER BY s.n)
            FROM unnest($1, $2, $3, $4) WITH ORDINALITY AS s (lane, owner, share, mark, n)
            CROSS JOIN LATERAL (
                SELECT max(x.n) FILTER (WHERE x.drops) AS drop_at
                FROM (SELECT row_number() OVER front AS n, lag(c.lead) OVER front > c.lead AS drops
                      -- the rank is the time minus the priority
                      FROM (SELECT q.ready_at - q.rank AS lead FROM _sas.ready q
                            WHERE q.lane = s.lane AND q.owner = s.owner AND q.rank >= s.mark ORDER BY q.rank
                            LIMIT CASE WHEN s.share > 20 THEN 21 ELSE 0 END) c
                      WINDOW front AS (ROWS UNBOUNDED PRECEDING)) x) f);
END $$;

-- _sas.look_again(shared, lanes, quantities, claimed): scans again, at commit, those of the shared lanes from
-- which a claim took some steps, but fewer than it might have: a share that was too large for its owner is
-- left for another one.
CREATE FUNCTION _sas.look_again(shared int[], lanes int[], quantities int[], claimed _sas.claimed[])
RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM _sas.wake(array_agg(l.lane), false, false, '{}')
    FROM unnest(lanes, quantities) AS l (lane, quantity)
    CROSS JOIN LATERAL (SELECT count(*) AS n FROM unnest(claimed) c WHERE c.lane = l.lane) got
    WHERE l.lane = ANY (shared) AND got.n BETWEEN 1 AND l.quantity - 1
    HAVING count(*) > 0;
END $$;

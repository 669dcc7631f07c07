-- SPDX-License-Identifier: PostgreSQL
--
-- Turns: owners take turns, with ready steps in each lane, and with messages, schedules and items that are
-- due. Priority and time order the rows of one owner. Lines are named like low-water marks: kind r and a
-- lane, or kind d and whom messages are for (sql/base/low_water.sql).

-- _sas.unknown_lines(kind, ns): those of these lines where an owner with rows may not be in line: before the
-- statement that finds all of them, whose snapshot must be the younger one.
CREATE FUNCTION _sas.unknown_lines(kind "char", ns int[]) RETURNS int[]
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_unknown_lines';

-- _sas.add_owner(kind, n, owner, first): this owner has rows there, the first one at that rank or time.
CREATE FUNCTION _sas.add_owner(kind "char", n int, owner oid, first timestamptz) RETURNS void
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_add_owner';

-- _sas.found_owners(kind, ns): all owners with rows there have been added.
CREATE FUNCTION _sas.found_owners(kind "char", ns int[]) RETURNS void
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_found_owners';

-- _sas.next_owners(kind, ns, quantities, until, further): the owners who are next in each of these lines, as
-- many as rows are wanted there, with their low-water marks; they go to the end of the line. Before the
-- statement that looks for their rows. Owners who have nothing up to until are passed by. further: go on
-- along the lines of the last call, where more are wanted.
--   lines      the line of owners[j]
--   remaining  the lines where owners have not had their turn yet
CREATE FUNCTION _sas.next_owners(kind "char", ns int[], quantities int[], until timestamptz, further boolean,
                                 OUT lines int[], OUT owners oid[], OUT marks timestamptz[],
                                 OUT remaining int[])
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_next_owners';

-- _sas.share_out(ns, quantities, lines): quantities[i] rows are wanted from line ns[i]; how many of them each
-- owner gets, whose line is lines[j]: all the same, but for one more for the first ones.
--   shared  the lines with several owners; null: none
CREATE FUNCTION _sas.share_out(ns int[], quantities int[], lines int[], OUT shares int[], OUT shared int[])
LANGUAGE C IMMUTABLE STRICT AS 'MODULE_PATHNAME', 'sas_api_share_out';

-- _sas.lines(lanes): the owners who are in line in these lanes, with their marks. Nothing is begun.
CREATE FUNCTION _sas.lines(lanes int[]) RETURNS TABLE (lane int, owner oid, mark timestamptz)
LANGUAGE sql VOLATILE AS $$
    SELECT m.n, m.owner, m.mark FROM _sas.low_water_marks() m
    WHERE m.kind = 'r' AND m.owner > 0 AND m.mark < 'infinity' AND m.n = ANY ($1)
$$;

-- _sas.owners_of(lanes): all owners with steps in these lanes, each with the rank of the first one. It walks
-- over all that is dead there, so it is called only when a line does not know.
CREATE FUNCTION _sas.owners_of(lanes int[]) RETURNS TABLE (lane int, owner oid, first timestamptz)
LANGUAGE sql VOLATILE AS $$
    SELECT l.lane, found.owner, found.rank
    FROM unnest($1) AS l (lane)
    CROSS JOIN LATERAL (
        WITH RECURSIVE skip AS (
            SELECT 0::oid AS owner, NULL::timestamptz AS rank
            UNION ALL
            SELECT f.owner, f.rank FROM skip s
            CROSS JOIN LATERAL (SELECT q.owner::oid, q.rank FROM _sas.ready q
                                WHERE q.lane = l.lane AND q.owner > s.owner
                                ORDER BY q.owner, q.rank LIMIT 1) f)
        SELECT s.owner, s.rank FROM skip s WHERE s.owner > 0) found
$$;

-- _sas.find_owners(lanes): brings all owners with steps in these lanes into line: when the server has
-- started, or a line had no room.
CREATE FUNCTION _sas.find_owners(lanes int[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM _sas.add_owner('r', o.lane, o.owner, o.first) FROM _sas.owners_of(lanes) o;
    PERFORM _sas.found_owners('r', lanes);
END $$;

-- _sas.find_unknown(lanes): those of these lanes where an owner may not have been in line; all are now, if
-- there is room. Before the statement that asks for the lines.
CREATE FUNCTION _sas.find_unknown(lanes int[]) RETURNS int[]
LANGUAGE plpgsql AS $$
DECLARE
    unknown int[] := _sas.unknown_lines('r', lanes);
BEGIN
    IF cardinality(unknown) > 0 THEN
        PERFORM _sas.find_owners(unknown);
    END IF;
    RETURN unknown;
END $$;

-- _sas.next_ready_owners(lanes, quantities, further, left_out): those of _sas.next_owners who have steps, but
-- for those who are left out. Their marks are raised.
--   remaining  the lanes where owners have not had their turn
CREATE FUNCTION _sas.next_ready_owners(lanes int[], quantities int[], further boolean, left_out oid[],
                                       OUT in_lanes int[], OUT owners oid[], OUT marks timestamptz[],
                                       OUT remaining int[])
LANGUAGE plpgsql AS $$
DECLARE
    line record := _sas.next_owners('r', lanes, quantities, 'infinity', further);
BEGIN
    remaining := line.remaining;
    IF line.owners = '{}' THEN
        RETURN;
    END IF;
    -- A statement of its own: its snapshot is younger than the marks. FILTER, not WHERE: that would go below
    -- the raise, which concerns owners without a step, too.
    SELECT array_agg(x.lane) FILTER (WHERE x.may_claim), array_agg(x.owner) FILTER (WHERE x.may_claim),
           array_agg(x.mark) FILTER (WHERE x.may_claim)
    INTO in_lanes, owners, marks
    FROM (SELECT u.lane, u.owner, u.mark, f.rank IS NOT NULL AND NOT u.owner = ANY (left_out) AS may_claim,
                 _sas.raise_low_water('r', u.lane, u.owner, f.rank) AS raised
          FROM unnest(line.lines, line.owners, line.marks) AS u (lane, owner, mark)
          LEFT JOIN LATERAL (SELECT q.rank FROM _sas.ready q
                             WHERE q.lane = u.lane AND q.owner = u.owner AND q.rank >= u.mark
                             ORDER BY q.rank LIMIT 1) f ON true) x;
END $$;

-- _sas.share_lanes(...): shares out quantities[i] steps of lanes[i] among the owners with ready steps there,
-- beginning with the one that was served the longest ago: up to shares[j] steps of owners[j] in in_lanes[j],
-- from marks[j] on. urgent: see _sas.urgent_shares. further: what was shared out was in somebody's hands; the
-- owners who come next in the lines of the last call.
--   shared     the lanes with several owners: they may hold more than is shared out
--   remaining  are there owners who have not had their turn?
-- Null when nothing is ready. Owners whose functions run on as many workers as may get no share of them.
-- Begins the low-water marks of the owners before the snapshot of the statement
-- that looks for their first steps, and raises them.
-- Caller: nothing. Next: takes the rows, in a statement of its own.
CREATE FUNCTION _sas.share_lanes(lanes int[], quantities int[], urgent boolean DEFAULT false,
                                 further boolean DEFAULT false,
                                 OUT in_lanes int[], OUT owners oid[], OUT shares int[],
                                 OUT marks timestamptz[], OUT shared int[], OUT remaining boolean)
LANGUAGE plpgsql AS $$
DECLARE
    left_out oid[] := CASE WHEN lanes = '{0}' THEN _sas.unclaimable_owners() ELSE '{}' END;
    ready record;
    turns record;
    wanted int[] := quantities;
BEGIN
    in_lanes := '{}';
    owners := '{}';
    marks := '{}';
    IF NOT further THEN
        PERFORM _sas.find_unknown(lanes);
    END IF;
    -- some of those in line may have no step any more: as many as have one are to have their turn
    LOOP
        ready := _sas.next_ready_owners(lanes, wanted, further, left_out);
        in_lanes := in_lanes || ready.in_lanes;
        owners := owners || ready.owners;
        marks := marks || ready.marks;
        remaining := ready.remaining <> '{}';
        EXIT WHEN NOT remaining;
        wanted := ARRAY(SELECT quantities[i] - cardinality(array_positions(in_lanes, lanes[i]))
                        FROM generate_subscripts(quantities, 1) i);
        EXIT WHEN NOT EXISTS (SELECT FROM unnest(lanes, wanted) AS w (lane, n)
                              WHERE w.n > 0 AND w.lane = ANY (ready.remaining));
        further := true;
    END LOOP;
    IF owners = '{}' THEN
        RETURN;
    END IF;
    turns := _sas.share_out(lanes, quantities, in_lanes);
    shares := turns.shares;
    shared := turns.shared;
    IF urgent THEN
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
                FROM (SELECT row_number() OVER front AS n,
                             lag(c.lead) OVER front > c.lead + interval '0.5 s' AS drops
                      -- the rank is the time minus the priority, of a second at least, and a moment
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

-- _sas.find_due_owners(n): brings all owners with such rows into line.
CREATE FUNCTION _sas.find_due_owners(n int) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    of_owner oid := 0;
BEGIN
    LOOP
        of_owner := CASE
            WHEN n = ascii('c') THEN (SELECT s.owner::oid FROM _sas.schedule s
                                      WHERE s.owner > of_owner AND s.due_at IS NOT NULL
                                      ORDER BY s.owner, s.due_at LIMIT 1)
            WHEN n = ascii('p') THEN (SELECT p.owner::oid FROM _sas.schedule_plan p
                                      WHERE p.owner > of_owner AND p.offered AND p.worker_id IS NULL
                                      ORDER BY p.owner, p.due_at LIMIT 1)
            WHEN n = ascii('i') THEN (SELECT k.owner::oid FROM _sas.watch_work k WHERE k.owner > of_owner
                                      ORDER BY k.owner, k.due_at LIMIT 1)
            WHEN chr(n) = upper(chr(n))
            THEN (SELECT d.owner::oid FROM _sas.message d
                  WHERE d.actor = lower(chr(n))::"char" AND d.owner > of_owner AND d.urgent
                  ORDER BY d.owner, d.due_at LIMIT 1)
            ELSE (SELECT d.owner::oid FROM _sas.message d
                  WHERE d.actor = chr(n)::"char" AND d.owner > of_owner
                  ORDER BY d.owner, d.due_at LIMIT 1) END;
        EXIT WHEN of_owner IS NULL;
        PERFORM _sas.add_owner('d', n, of_owner, coalesce(_sas.first_due(n, of_owner, '-infinity'),
                                                          'infinity'));
    END LOOP;
    PERFORM _sas.found_owners('d', ARRAY[n]);
END $$;

-- _sas.share_due(n, now, quantity): shares out so many rows that are due among their owners, beginning with
-- the one that was served the longest ago: up to shares[j] of owners[j], from marks[j] on. Raises the marks
-- of the owners. The mark of all owners is no help: what the caller read of it may be older than a row below
-- it, past which the mark of its owner would be raised.
-- Caller: nothing. Next: takes the rows, in a statement of its own.
CREATE FUNCTION _sas.share_due(n int, now timestamptz, quantity int, OUT owners oid[], OUT shares int[],
                               OUT marks timestamptz[])
LANGUAGE plpgsql AS $$
DECLARE
    line record;
    due record;
    turns record;
    further boolean := false;
BEGIN
    owners := '{}';
    marks := '{}';
    IF _sas.unknown_lines('d', ARRAY[n]) <> '{}' THEN
        PERFORM _sas.find_due_owners(n);
    END IF;
    -- some of those in line may have nothing that is due: as many as have are to have their turn
    LOOP
        line := _sas.next_owners('d', ARRAY[n], ARRAY[quantity - cardinality(owners)], now, further);
        EXIT WHEN line.owners = '{}';
        -- a statement of its own: its snapshot is younger than the marks
        SELECT array_agg(x.owner) FILTER (WHERE x.first <= now) AS owners,
               array_agg(x.mark) FILTER (WHERE x.first <= now) AS marks
        INTO due
        FROM (SELECT f.*, _sas.raise_low_water('d', n, f.owner, f.first) AS raised
              FROM (SELECT u.owner, u.mark, _sas.first_due(n, u.owner, u.mark) AS first
                    FROM unnest(line.owners, line.marks) AS u (owner, mark) OFFSET 0) f OFFSET 0) x;
        owners := owners || due.owners;
        marks := marks || due.marks;
        EXIT WHEN line.remaining = '{}' OR cardinality(owners) >= quantity;
        further := true;
    END LOOP;
    turns := _sas.share_out(ARRAY[n], ARRAY[quantity], array_fill(n, ARRAY[cardinality(owners)]));
    shares := turns.shares;
END $$;

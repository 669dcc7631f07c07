-- SPDX-License-Identifier: PostgreSQL
--
-- Turns: owners take turns, with ready steps in each lane, and with messages, schedules and items that are
-- due. Priority and time order the rows of one owner. A line is the queue of owners who have such rows; it
-- is named like a low-water mark: kind r and a lane, or kind d and the receiver of the messages
-- (sql/base/low_water.sql).

-- _sas.unknown_lines(kind, ns): those of these lines that may lack an owner with rows. Call it before the
-- statement that finds all owners, whose snapshot must be the younger one.
CREATE FUNCTION _sas.unknown_lines(kind "char", ns int[]) RETURNS int[]
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_unknown_lines';

-- _sas.add_owner(kind, n, owner, first): puts an owner into a line; its first row has that rank or time.
CREATE FUNCTION _sas.add_owner(kind "char", n int, owner oid, first timestamptz) RETURNS void
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_add_owner';

-- _sas.found_owners(kind, ns): marks these lines as complete: all owners with rows there have been added.
CREATE FUNCTION _sas.found_owners(kind "char", ns int[]) RETURNS void
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_found_owners';

-- _sas.next_owners(kind, ns, quantities, until, further): the owners who are next in each of these lines,
-- as many as rows are wanted there, with their low-water marks; they move to the end of the line. Owners
-- whose low-water mark is later than "until" are passed by. further: continue in the lines of the last
-- call, where more rows are wanted. Call it before the statement that reads their rows.
--   lines      the line of owners[j]
--   remaining  the lines in which owners have not had their turn yet
CREATE FUNCTION _sas.next_owners(kind "char", ns int[], quantities int[], until timestamptz, further boolean,
                                 OUT lines int[], OUT owners oid[], OUT marks timestamptz[],
                                 OUT remaining int[])
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_next_owners';

-- _sas.share_out(ns, quantities, lines): quantities[i] rows are wanted from line ns[i]: how many each owner
-- gets, whose line is lines[j]. All get the same number, the first ones one more.
--   shared  the lines with several owners; null: none
CREATE FUNCTION _sas.share_out(ns int[], quantities int[], lines int[], OUT shares int[], OUT shared int[])
LANGUAGE C IMMUTABLE STRICT AS 'MODULE_PATHNAME', 'sas_api_share_out';

-- _sas.take_shares(lanes, owners, shares): the shares that owners get of agents, where no owner can have all
-- slots while others use the agent, too (src/limits/owners.h). Only agent workers count; in all other
-- processes, and in all other lanes, the shares stay as they are.
CREATE FUNCTION _sas.take_shares(lanes int[], owners oid[], shares int[]) RETURNS int[]
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_take_shares';

-- _sas.owner_room(slots, taken, of_owner): of so many slots so many are taken, of_owner of them by an owner.
-- How many more may it have while others use them, too? (src/limits/owners.h)
CREATE FUNCTION _sas.owner_room(slots int, taken int, of_owner int) RETURNS int
LANGUAGE C IMMUTABLE STRICT AS 'MODULE_PATHNAME', 'sas_api_owner_room';

-- _sas.lacks_slots(agent_id, owner): has the agent free slots, but none for this owner?
CREATE FUNCTION _sas.lacks_slots(agent_id int, owner oid) RETURNS boolean
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_lacks_slots';

-- _sas.lines(lanes): the owners who are in line in these lanes, with their marks. Changes nothing.
CREATE FUNCTION _sas.lines(lanes int[]) RETURNS TABLE (lane int, owner oid, mark timestamptz)
LANGUAGE sql VOLATILE AS $$
    SELECT m.n, m.owner, m.mark FROM _sas.low_water_marks() m
    WHERE m.kind = 'r' AND m.owner > 0 AND m.mark < 'infinity' AND m.n = ANY ($1)
$$;

-- _sas.owners_of(lanes): all owners with steps in these lanes, each with the rank of its first step. It
-- walks over all dead entries of the index; therefore it is called only when a line is not complete.
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

-- _sas.find_owners(lanes): puts all owners with steps in these lanes into line: after a start of the
-- server, or when a line had no room.
CREATE FUNCTION _sas.find_owners(lanes int[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM _sas.add_owner('r', o.lane, o.owner, o.first) FROM _sas.owners_of(lanes) o;
    PERFORM _sas.found_owners('r', lanes);
END $$;

-- _sas.find_unknown(lanes): completes those of these lanes that may lack an owner, and returns them. There
-- may be no room for an owner even so. Call it before the statement that reads the lines.
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

-- _sas.lock_ready(lanes, owners, shares, marks, left_out, locks_runs): locks up to shares[i] rows of
-- _sas.ready of owners[i] in lanes[i], from marks[i] on, and returns their places. A function that must run
-- alone is the only one. left_out: runs whose rows are passed. locks_runs: locks the run of each row first,
-- FOR SHARE. It passes a few thousand rows that others have locked, at most; the next call goes on there.
CREATE FUNCTION _sas.lock_ready(lanes int[], owners oid[], shares int[], marks timestamptz[],
                                left_out bigint[] DEFAULT '{}', locks_runs boolean DEFAULT false)
RETURNS tid[]
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_lock_ready';

-- _sas.claim_rows(lanes, owners, shares, marks): the same for a worker that claims: deletes these rows, and
-- returns them.
-- Writes: ready.
CREATE FUNCTION _sas.claim_rows(lanes int[], owners oid[], shares int[], marks timestamptz[])
RETURNS SETOF _sas.ready
LANGUAGE C VOLATILE STRICT ROWS 100 AS 'MODULE_PATHNAME', 'sas_api_claim_rows';

-- _sas.begin_taking(first): before a session locks such rows; first: for the first time in this claim.
CREATE FUNCTION _sas.begin_taking(first boolean) RETURNS void
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_begin_taking';

-- _sas.taking_was_cut(lane): after the session has locked such rows: is there more than was passed? Then the
-- next look goes on there.
CREATE FUNCTION _sas.taking_was_cut(lane int) RETURNS boolean
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_taking_was_cut';

-- _sas.begin_walks(): a tick begins that looks at the steps of lanes, a part of them at a time
-- (src/store/ready_walk.h).
CREATE FUNCTION _sas.begin_walks() RETURNS void
LANGUAGE C VOLATILE AS 'MODULE_PATHNAME', 'sas_api_begin_walks';

-- _sas.walk_from(lane, owner): the tick goes on behind this step; before the first one if it begins.
CREATE FUNCTION _sas.walk_from(lane int, owner oid, OUT rank timestamptz, OUT run_id bigint)
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_walk_from';

-- _sas.walk_to(lane, owner, rank, run_id, ended): the tick has come that far; ended: to the last step.
CREATE FUNCTION _sas.walk_to(lane int, owner oid, rank timestamptz, run_id bigint, ended boolean) RETURNS void
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_walk_to';

-- _sas.walk_is_open(): is there more to look at?
CREATE FUNCTION _sas.walk_is_open() RETURNS boolean
LANGUAGE C VOLATILE AS 'MODULE_PATHNAME', 'sas_api_walk_is_open';

-- _sas.first_steps(lanes, owners, marks, left_out): those of these owners who have steps in their lane, with
-- the ranks of the first ones, from their marks on; not those in left_out. Raises the marks of all of them.
CREATE FUNCTION _sas.first_steps(lanes int[], owners oid[], marks timestamptz[], left_out oid[],
                                 OUT in_lanes int[], OUT of_owners oid[], OUT ranks timestamptz[])
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_first_steps';

-- _sas.next_ready_owners(lanes, quantities, further, left_out): those of _sas.next_owners who have steps,
-- except the owners in left_out. Raises their marks. marks: the ranks of their first steps.
--   remaining  the lanes in which owners have not had their turn
CREATE FUNCTION _sas.next_ready_owners(lanes int[], quantities int[], further boolean, left_out oid[],
                                       OUT in_lanes int[], OUT owners oid[], OUT marks timestamptz[],
                                       OUT remaining int[])
LANGUAGE plpgsql AS $$
DECLARE
    line record := _sas.next_owners('r', lanes, quantities, 'infinity', further);
    first record;
BEGIN
    remaining := line.remaining;
    IF line.owners = '{}' THEN
        RETURN;
    END IF;
    -- by itself, because its snapshot must be younger than the marks
    first := _sas.first_steps(line.lines, line.owners, line.marks, left_out);
    in_lanes := first.in_lanes;
    owners := first.of_owners;
    marks := first.ranks;
END $$;

-- _sas.share_lanes(...): divides quantities[i] steps of lanes[i] among the owners with ready steps there;
-- the owner who was served the longest ago comes first. The result is up to shares[j] steps of owners[j] in
-- in_lanes[j], from marks[j] on. urgent: see _sas.urgent_shares. further: other transactions had locked all
-- steps of the last call; continue with the next owners in line.
--   shared     the lanes with several owners: they may have more steps than were shared out
--   remaining  some owners have not had their turn
-- Null if nothing is ready. Owners whose functions already run on as many workers as their limit allows get
-- no share of functions. The marks of the owners are read before the snapshot of the statement that looks
-- for their first steps, and raised by it.
-- Caller: needs no lock. Next: the caller takes the rows, in a statement of its own.
CREATE FUNCTION _sas.share_lanes(lanes int[], quantities int[], urgent boolean DEFAULT false,
                                 further boolean DEFAULT false,
                                 OUT in_lanes int[], OUT owners oid[], OUT shares int[],
                                 OUT marks timestamptz[], OUT shared int[], OUT remaining boolean)
LANGUAGE plpgsql AS $$
DECLARE
    left_out oid[] := CASE WHEN lanes = '{0}' THEN _sas.unclaimable_owners() ELSE '{}' END;
    ready record;
    turns record;
    unknown int[];
    wanted int[] := quantities;
BEGIN
    in_lanes := '{}';
    owners := '{}';
    marks := '{}';
    IF NOT further THEN
        unknown := _sas.find_unknown(lanes);
    END IF;
    -- some owners in line may have no step left; continue until as many owners as possible have a share
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
    shares := _sas.take_shares(in_lanes, owners, turns.shares);
    shared := turns.shared;
    -- it compares the first 20 steps of an owner who may have more
    IF urgent AND 20 < ANY (shares) THEN
        shares := _sas.urgent_shares(in_lanes, owners, shares, marks);
    END IF;
END $$;

-- _sas.urgent_shares(lanes, owners, shares, marks): if the first steps of an owner have a higher priority
-- than the steps behind them, its share is cut to those first steps. Only the first 20 steps are compared, so
-- that alternating priorities make no batch smaller.
CREATE FUNCTION _sas.urgent_shares(lanes int[], owners oid[], shares int[], marks timestamptz[])
RETURNS int[]
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_urgent_shares';

-- _sas.look_again(shared, lanes, quantities, claimed): makes workers scan, at commit, those of the shared
-- lanes from which a claim took some steps, but fewer than it asked for: the part of a share that one owner
-- did not use is left for another one.
-- Wakes: workers of these lanes.
CREATE FUNCTION _sas.look_again(shared int[], lanes int[], quantities int[], claimed _sas.claimed[])
RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM _sas.wake(array_agg(l.lane))
    FROM unnest(lanes, quantities) AS l (lane, quantity)
    CROSS JOIN LATERAL (SELECT count(*) AS n FROM unnest(claimed) c WHERE c.lane = l.lane) got
    WHERE l.lane = ANY (shared) AND got.n BETWEEN 1 AND l.quantity - 1
    HAVING count(*) > 0;
END $$;

-- _sas.find_due_owners(n): puts all owners with rows of this kind into line. n: as in a mark of kind d.
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

-- _sas.share_due(n, now, quantity): divides this number of due rows among their owners; the owner whose last
-- turn is longest ago comes first. The result is up to shares[j] rows of owners[j], from marks[j] on. Raises
-- the marks of the owners. The mark of all owners together does not help: the value that the caller has read
-- may be older than a row below it, and raising the owner's mark from there would skip that row. Caller:
-- needs no lock. Next: the caller takes the rows, in a statement of its own.
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
    -- some owners in line may have nothing due; continue until as many owners as possible have a share
    LOOP
        line := _sas.next_owners('d', ARRAY[n], ARRAY[quantity - cardinality(owners)], now, further);
        EXIT WHEN line.owners = '{}';
        -- a statement of its own, because its snapshot must be younger than the marks
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

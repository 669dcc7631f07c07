-- SPDX-License-Identifier: PostgreSQL
--
-- Low-water marks: where the rows of an owner in a lane, and rows that are due, begin. Rows leave the low
-- end of these indexes all the time. While any transaction keeps its snapshot, their index entries stay,
-- dead; the marks keep scans from walking over them twice. src/wake/low_water.h explains how the marks are
-- kept, and why none is ever too high.
--   kind  r  an owner's rows in lane n of _sas.ready, by rank; owner 0 is the lane itself
--         d  rows for actor n in _sas.message, by due_at: of one owner, or of all (owner 0). n in upper case:
--            the urgent messages. n = 'c': rows of _sas.schedule; 'i': of _sas.watch_work; 'p': of
--            _sas.schedule_plan that are offered; 'l': of _sas.lease, by next_by, of all owners; 'q': steps
--            in queues, due at once, of all owners
--         y  runs that the sweep for deadline timers has not seen, by run_id (sql/supervisor/deadline.sql)

-- _sas.note_low_water(): notes the key of the row that is written; its mark is lowered at commit.
CREATE FUNCTION _sas.note_low_water() RETURNS trigger
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_note_low_water';

-- _sas.note_message(): the same for a message. A message that is written without its owner gets the owner
-- of its run; one that is about no run gets the bootstrap superuser. Some kinds become urgent
-- (src/api/message_api.c).
CREATE FUNCTION _sas.note_message() RETURNS trigger
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_note_message';

CREATE TRIGGER front BEFORE INSERT OR UPDATE
    ON _sas.ready FOR EACH ROW EXECUTE FUNCTION _sas.note_low_water('r');
CREATE TRIGGER front BEFORE INSERT OR UPDATE
    ON _sas.message FOR EACH ROW EXECUTE FUNCTION _sas.note_message();
CREATE TRIGGER front BEFORE INSERT OR UPDATE
    ON _sas.schedule FOR EACH ROW EXECUTE FUNCTION _sas.note_low_water('c');
CREATE TRIGGER front BEFORE INSERT OR UPDATE
    ON _sas.watch_work FOR EACH ROW EXECUTE FUNCTION _sas.note_low_water('i');
CREATE TRIGGER front BEFORE INSERT OR UPDATE
    ON _sas.schedule_plan FOR EACH ROW EXECUTE FUNCTION _sas.note_low_water('p');
CREATE TRIGGER front BEFORE INSERT OR UPDATE
    ON _sas.lease FOR EACH ROW EXECUTE FUNCTION _sas.note_low_water('l');
CREATE TRIGGER front BEFORE INSERT ON _sas.run FOR EACH ROW EXECUTE FUNCTION _sas.note_low_water('y');

-- also for rows that are restored or replicated
ALTER TABLE _sas.ready ENABLE ALWAYS TRIGGER front;
ALTER TABLE _sas.message ENABLE ALWAYS TRIGGER front;
ALTER TABLE _sas.schedule ENABLE ALWAYS TRIGGER front;
ALTER TABLE _sas.watch_work ENABLE ALWAYS TRIGGER front;
ALTER TABLE _sas.schedule_plan ENABLE ALWAYS TRIGGER front;
ALTER TABLE _sas.lease ENABLE ALWAYS TRIGGER front;
ALTER TABLE _sas.run ENABLE ALWAYS TRIGGER front;

-- _sas.begin_low_water(kind, ns): the marks from which scans may start. Call it before the statement that
-- scans, because its snapshot must be the younger one.
CREATE FUNCTION _sas.begin_low_water(kind "char", ns int[]) RETURNS timestamptz[]
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_begin_low_water';

-- _sas.raise_low_water(kind, n, owner, first): reports the first row that a scan has seen from its mark on,
-- whether or not another transaction has locked it; null: there was none. owner: whose rows; 0: those of
-- all owners that are due. Returns n.
CREATE FUNCTION _sas.raise_low_water(kind "char", n int, owner oid, first timestamptz) RETURNS int
LANGUAGE C VOLATILE AS 'MODULE_PATHNAME', 'sas_api_raise_low_water';

-- _sas.lease_mark(): no lease has a lower next_by. Call it before the statement that reads leases: behind
-- the mark, that statement walks over none that were deleted.
CREATE FUNCTION _sas.lease_mark() RETURNS timestamptz
LANGUAGE sql AS $$ SELECT (_sas.begin_low_water('d', ARRAY[ascii('l')]))[1] $$;

-- _sas.first_lease(): when the first lease has to be checked; null: there is none.
CREATE FUNCTION _sas.first_lease() RETURNS timestamptz
LANGUAGE plpgsql AS $$
DECLARE
    mark timestamptz := _sas.lease_mark();
    first timestamptz;
BEGIN
    SELECT l.next_by INTO first FROM _sas.lease l WHERE l.next_by >= mark ORDER BY l.next_by LIMIT 1;
    PERFORM _sas.raise_low_water('d', ascii('l'), 0, first);
    RETURN first;
END $$;

-- _sas.lower_low_water(kind, n, owner, first): lowers a mark now, because there is a row.
CREATE FUNCTION _sas.lower_low_water(kind "char", n int, owner oid, first timestamptz) RETURNS void
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_lower_low_water';

-- _sas.low_water_marks(unchecked): the marks of this database. unchecked: only those that this function has
-- not returned so for five minutes.
CREATE FUNCTION _sas.low_water_marks(unchecked boolean DEFAULT false, OUT kind "char", OUT n int,
                                     OUT owner oid, OUT mark timestamptz) RETURNS SETOF record
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_low_water_marks';

-- _sas.first_due(n, of_owner, mark): when the first of these rows of this owner is due, from the mark on,
-- as the caller's snapshot sees it. n: as in a mark of kind d.
CREATE FUNCTION _sas.first_due(n int, of_owner oid, mark timestamptz) RETURNS timestamptz
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF n = ascii('c') THEN
        RETURN (SELECT s.due_at FROM _sas.schedule s WHERE s.owner = of_owner AND s.due_at >= mark
                ORDER BY s.due_at LIMIT 1);
    ELSIF n = ascii('p') THEN
        RETURN (SELECT p.due_at FROM _sas.schedule_plan p
                WHERE p.owner = of_owner AND p.due_at >= mark AND p.offered AND p.worker_id IS NULL
                ORDER BY p.due_at LIMIT 1);
    ELSIF n = ascii('i') THEN
        RETURN (SELECT k.due_at FROM _sas.watch_work k WHERE k.owner = of_owner AND k.due_at >= mark
                ORDER BY k.due_at LIMIT 1);
    ELSIF chr(n) = upper(chr(n)) THEN
        RETURN (SELECT d.due_at FROM _sas.message d
                WHERE d.actor = lower(chr(n))::"char" AND d.owner = of_owner AND d.due_at >= mark AND d.urgent
                ORDER BY d.due_at LIMIT 1);
    END IF;
    RETURN (SELECT d.due_at FROM _sas.message d
            WHERE d.actor = chr(n)::"char" AND d.owner = of_owner AND d.due_at >= mark
            ORDER BY d.due_at LIMIT 1);
END $$;

-- _sas.first_ready(lane, owner, mark): the rank of the first step of an owner in a lane, from the mark on;
-- null: there is none. If another transaction is inserting many steps there, it is where this function has
-- stopped: no step is below it (src/store/ready_scan.h).
CREATE FUNCTION _sas.first_ready(lane int, owner oid, mark timestamptz) RETURNS timestamptz
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_first_ready';

-- _sas.some_ready(first, last, most): how many steps are ready in these lanes, most at most. While another
-- transaction is inserting thousands there, it is most: there may be as many (src/store/ready_scan.h).
CREATE FUNCTION _sas.some_ready(first int, last int, most int) RETURNS int
LANGUAGE C STABLE STRICT AS 'MODULE_PATHNAME', 'sas_api_some_ready';

-- _sas.has_queued(): does a step wait in a queue, or has one a slot?
CREATE FUNCTION _sas.has_queued() RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (SELECT FROM _sas.queue_slot) OR _sas.some_ready(-2147483648, -1, 1) > 0;
END $$;

-- _sas.check_low_water(): checks marks from the very beginning of their index, a part of them at a time. No
-- row should be below a mark, and no owner out of line; this function finds them if there are any. Returns
-- the lanes in which it found rows.
CREATE FUNCTION _sas.check_low_water() RETURNS int[]
LANGUAGE plpgsql AS $$
DECLARE
    f record;
    first timestamptz;
    lanes int[] := '{}';
BEGIN
    FOR f IN SELECT * FROM _sas.low_water_marks(true) x
             WHERE x.kind <> 'y' AND (x.mark > '-infinity' OR x.owner = 0) LOOP
        IF f.owner = 0 THEN
            PERFORM _sas.forget_owners(f.kind, f.n);
        END IF;
        CONTINUE WHEN f.owner = 0 AND (f.kind = 'r' OR f.mark = '-infinity');
        IF f.kind = 'r' THEN
            SELECT min(q.rank) INTO first FROM _sas.ready q
            WHERE q.lane = f.n AND q.owner = f.owner AND q.rank < f.mark;
        ELSIF f.owner > 0 THEN
            first := _sas.first_due(f.n, f.owner, '-infinity');
        ELSIF f.n = ascii('c') THEN
            SELECT min(s.due_at) INTO first FROM _sas.schedule s;
        ELSIF f.n = ascii('p') THEN
            SELECT min(p.due_at) INTO first FROM _sas.schedule_plan p;
        ELSIF f.n = ascii('i') THEN
            SELECT min(k.due_at) INTO first FROM _sas.watch_work k;
        ELSIF f.n = ascii('l') THEN
            SELECT min(l.next_by) INTO first FROM _sas.lease l;
        ELSIF f.n = ascii('q') THEN
            first := CASE WHEN _sas.has_queued() THEN '-infinity'::timestamptz END;
        ELSE
            SELECT d.due_at INTO first FROM _sas.message d WHERE d.actor = chr(f.n)::"char" ORDER BY d.due_at
            LIMIT 1;
        END IF;
        IF first < f.mark THEN
            PERFORM _sas.lower_low_water(f.kind, f.n, f.owner, first);
            lanes := lanes || CASE WHEN f.kind = 'r' THEN f.n END;
        END IF;
    END LOOP;
    RETURN lanes;
END $$;

-- _sas.forget_owners(kind, n): marks the line as incomplete: the next scan of it finds all owners with rows
-- again.
CREATE FUNCTION _sas.forget_owners(kind "char", n int) RETURNS void
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_forget_owners';

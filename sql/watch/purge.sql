-- SPDX-License-Identifier: PostgreSQL
--
-- Purge of infinite tasks that were deleted.

-- _sas.forget_watches(ids): deletes the rows of these deleted tasks, with everything that belongs to them.
-- Writes: watch_work, watch_note, watch.
CREATE FUNCTION _sas.forget_watches(ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM _sas.watch_work k WHERE k.watch_id = ANY (ids);
    DELETE FROM _sas.watch_note n WHERE n.watch_id = ANY (ids);
    DELETE FROM _sas.watch w WHERE w.watch_id = ANY (ids);
END $$;

-- _sas.purge_watches(quantity): purges tasks that were deleted as long ago as a successful run is kept, the
-- oldest first. Tasks that a session has locked, which may start them again, stay. Returns how many were
-- purged, and when the next will be due; null: never. A task that cannot be purged is deferred for an hour,
-- with an alert.
-- Writes: watch_ended.
CREATE FUNCTION _sas.purge_watches(quantity int, OUT worked int, OUT next_due timestamptz)
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas.now();
    keep interval := _sas.retain('success');
    ids bigint[];
    done record;
BEGIN
    worked := 0;
    IF keep IS NULL OR NOT EXISTS (SELECT FROM _sas.watch_ended) THEN
        RETURN;
    END IF;
    ids := ARRAY(SELECT w.watch_id
                 FROM (SELECT e.watch_id FROM _sas.watch_ended e WHERE e.ended_at <= now - keep
                       ORDER BY e.ended_at LIMIT quantity) o
                 CROSS JOIN LATERAL (SELECT x.watch_id FROM _sas.watch x WHERE x.watch_id = o.watch_id
                                     AND x.state = 'deleted' FOR UPDATE SKIP LOCKED) w);
    done := _sas.apart('NULL::bigint[] FROM _sas.forget_watches($1)', ids);
    worked := cardinality(ids) - coalesce(cardinality(done.failed), 0);
    IF done.failed IS NOT NULL THEN
        UPDATE _sas.watch_ended e SET ended_at = now - keep + interval '1 h'
        WHERE e.watch_id = ANY (ARRAY(SELECT ids[n] FROM unnest(done.failed) n));
        PERFORM _sas.raise_failing('purge-failed', 'purge watches',
                                   format('could not purge deleted tasks: task %s', ids[done.failed[1]]),
                                   done.errors[1]);
    END IF;
    SELECT greatest(e.ended_at + keep, CASE worked WHEN 0 THEN now + interval '10 s' END) INTO next_due
    FROM _sas.watch_ended e ORDER BY e.ended_at LIMIT 1;
END $$;

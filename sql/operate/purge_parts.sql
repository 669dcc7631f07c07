-- SPDX-License-Identifier: PostgreSQL
--
-- Families of runs, and what is left of purged ones: no purge of a worker deletes so much that others wait
-- for it. What it leaves is noted in _sas.purged_run.

-- _sas.families(run_ids, most): these runs with their child runs, and theirs, and the hook runs of all of
-- them; no more than "most".
CREATE FUNCTION _sas.families(run_ids bigint[], most bigint DEFAULT NULL)
RETURNS TABLE (root bigint, run_id bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH RECURSIVE f AS (
        SELECT u AS root, u AS run_id FROM unnest($1) u
        UNION ALL
        SELECT f.root, b.run_id
        FROM f CROSS JOIN LATERAL (SELECT c.run_id FROM _sas.run c WHERE c.parent_run_id = f.run_id
                                   UNION ALL SELECT h.run_id FROM _sas.run h
                                       WHERE h.hook_of = f.run_id OFFSET 0) b)
    SELECT f.root, f.run_id FROM f LIMIT $2;
END $$;

-- _sas.purged_family(): how many runs one purge of a worker deletes.
CREATE FUNCTION _sas.purged_family() RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT 5000 $$;

-- _sas.fit_families(run_ids): which of these runs one purge of a worker deletes with their families.
--   fit    so many that all families together are small enough
--   large  or the first one, whose family is too large; null: none is
--   later  the others
CREATE FUNCTION _sas.fit_families(run_ids bigint[], OUT fit bigint[], OUT large bigint, OUT later bigint[])
LANGUAGE plpgsql AS $$
DECLARE
    room int := _sas.purged_family();
    n int;
BEGIN
    fit := run_ids;
    IF cardinality(run_ids) = 0 OR (SELECT count(*) FROM _sas.families(run_ids, room + 1)) <= room THEN
        RETURN;
    END IF;
    FOR i IN 1 .. cardinality(run_ids) LOOP
        n := (SELECT count(*) FROM _sas.families(run_ids[i : i], room + 1));
        fit := run_ids[: i - 1];
        later := run_ids[i :];
        EXIT WHEN n > room;
        room := room - n;
    END LOOP;
    IF fit = '{}' THEN
        large := later[1];
        later := later[2 :];
    END IF;
END $$;

-- _sas.purged_rows(): how many steps, and elements of maps, one purge of a worker deletes with their runs.
CREATE FUNCTION _sas.purged_rows() RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT 10000 $$;

-- _sas.purge_later(run_ids): leaves the rows of steps of those of these runs that have too many for one tick
-- to _sas.purge_rest: first of the runs with most. Returns the other runs.
-- Writes: purged_run.
CREATE FUNCTION _sas.purge_later(run_ids bigint[]) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    now_ids bigint[];
BEGIN
    WITH weighed AS MATERIALIZED (
        SELECT r.run_id, sum(v.step_count + coalesce(m.n, 0)) OVER (
                   ORDER BY v.step_count + coalesce(m.n, 0), r.run_id) AS rows
        FROM _sas.run r
        JOIN _sas.workflow_version v ON v.version_id = r.version_id
        CROSS JOIN LATERAL (SELECT sum(f.total) AS n FROM _sas.map_progress f WHERE f.run_id = r.run_id
                            OFFSET 0) m
        WHERE r.run_id = ANY (run_ids)),
    later AS (
        INSERT INTO _sas.purged_run (run_id)
        SELECT w.run_id FROM weighed w WHERE w.rows > _sas.purged_rows() ON CONFLICT DO NOTHING)
    SELECT array_agg(w.run_id) INTO now_ids FROM weighed w WHERE w.rows <= _sas.purged_rows();
    RETURN coalesce(now_ids, '{}');
END $$;

-- _sas.purge_steps(run_ids): deletes the rows of which these runs may have very many.
-- Writes: chunk, attempt, step, item, map_key.
CREATE FUNCTION _sas.purge_steps(run_ids bigint[], OUT steps bigint, OUT attempts bigint)
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM _sas.chunk d WHERE d.run_id = ANY (run_ids);
    DELETE FROM _sas.attempt d WHERE d.run_id = ANY (run_ids);
    GET DIAGNOSTICS attempts = ROW_COUNT;
    DELETE FROM _sas.step d WHERE d.run_id = ANY (run_ids);
    GET DIAGNOSTICS steps = ROW_COUNT;
    DELETE FROM _sas.item d WHERE d.run_id = ANY (run_ids);
    DELETE FROM _sas.map_key d WHERE d.run_id = ANY (run_ids);
END $$;

-- _sas.awaiting(id): a run that waits for it, and has not begun.
CREATE FUNCTION _sas.awaiting(id bigint) RETURNS SETOF bigint
LANGUAGE sql STABLE AS $$
    SELECT w.run_id FROM _sas.run_dependency a JOIN _sas.run w ON w.run_id = a.run_id
    WHERE a.after_run = id AND w.started_at IS NULL AND w.state <> 'stopped' LIMIT 1
$$;

-- _sas.children_left(run_ids): the child runs, and hook runs, that these purged runs have left.
CREATE FUNCTION _sas.children_left(run_ids bigint[]) RETURNS TABLE (parent bigint, run_id bigint)
LANGUAGE sql STABLE AS $$
    SELECT u, b.run_id
    FROM unnest(run_ids) u
    CROSS JOIN LATERAL (SELECT c.run_id FROM _sas.run c WHERE c.parent_run_id = u
                        UNION ALL SELECT h.run_id FROM _sas.run h WHERE h.hook_of = u OFFSET 0) b
$$;

-- _sas.purge_children(run_ids, quantity): purges up to so many child runs that these purged runs have left;
-- their own child runs follow. Returns how many.
-- Writes: as _sas.delete_runs; purged_run.
CREATE FUNCTION _sas.purge_children(run_ids bigint[], quantity int) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    ids bigint[];
BEGIN
    ids := ARRAY(SELECT r.run_id
                 FROM _sas.children_left(run_ids) c
                 CROSS JOIN LATERAL (SELECT x.run_id FROM _sas.run x
                                     WHERE x.run_id = c.run_id AND x.state = 'stopped'
                                       AND NOT EXISTS (SELECT FROM _sas.awaiting(x.run_id))
                                     FOR UPDATE SKIP LOCKED) r
                 LIMIT quantity);
    IF ids <> '{}' THEN
        PERFORM _sas.leave_children(ids);
        PERFORM _sas.delete_runs(ids, false);
    END IF;
    RETURN cardinality(ids);
END $$;

-- _sas.leave_children(run_ids): leaves the child runs of these runs to _sas.purge_rest.
-- Writes: purged_run.
CREATE FUNCTION _sas.leave_children(run_ids bigint[]) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO _sas.purged_run (run_id)
    SELECT u FROM unnest(run_ids) u
    WHERE EXISTS (SELECT FROM _sas.run c WHERE c.parent_run_id = u)
       OR EXISTS (SELECT FROM _sas.run h WHERE h.hook_of = u)
    ON CONFLICT DO NOTHING
$$;

-- _sas.forget_rests(run_ids): these purged runs have no rows left, but perhaps child runs, which are open
-- again, or locked: they are tried again later.
-- Writes: purged_run.
CREATE FUNCTION _sas.forget_rests(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    kept bigint[] := ARRAY(SELECT DISTINCT c.parent FROM _sas.children_left(run_ids) c);
BEGIN
    UPDATE _sas.purged_run p SET due_at = sas.now() + interval '10 min' WHERE p.run_id = ANY (kept);
    DELETE FROM _sas.purged_run p WHERE p.run_id = ANY (run_ids) AND NOT p.run_id = ANY (kept);
END $$;

-- _sas.purge_rest(quantity): deletes so many rows, and child runs, that purged runs have left. Returns how
-- many. Runs are taken together: a family may have very many with few steps each.
-- Writes: chunk, attempt, step, item, map_key; and what _sas.purge_children and _sas.forget_rests write.
CREATE FUNCTION _sas.purge_rest(quantity int) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    ids bigint[];
    t text;
    n int;
    done int := 0;
BEGIN
    WHILE done < quantity LOOP
        ids := ARRAY(SELECT p.run_id FROM _sas.purged_run p WHERE p.due_at <= (SELECT sas.now())
                     ORDER BY p.due_at LIMIT 1000);
        EXIT WHEN ids = '{}';
        FOREACH t IN ARRAY '{chunk,attempt,step,item,map_key}'::text[] LOOP
            -- OFFSET 0: each run is looked up by its id
            EXECUTE format('DELETE FROM _sas.%I d WHERE d.ctid = ANY (ARRAY('
                           'SELECT x.place FROM unnest($1) u CROSS JOIN LATERAL (SELECT o.ctid AS place '
                           'FROM _sas.%1$I o WHERE o.run_id = u OFFSET 0) x LIMIT $2))', t)
                USING ids, quantity - done;
            GET DIAGNOSTICS n = ROW_COUNT;
            done := done + n;
        END LOOP;
        CONTINUE WHEN done >= quantity;
        n := _sas.purge_children(ids, quantity - done);
        done := done + n;
        IF n = 0 THEN
            PERFORM _sas.forget_rests(ids);
            done := done + cardinality(ids);
        END IF;
    END LOOP;
    RETURN done;
END $$;

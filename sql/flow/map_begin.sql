-- SPDX-License-Identifier: PostgreSQL
--
-- The begin of maps: their elements are written some thousands at a time, with the numbers of their keys.
-- None begins before all are written. The caller of each function holds the lock of the runs.

-- _sas.most_loaded(slow): how many elements of a map are written in one tick: it takes about 50 ms. slow:
-- they have keys, or were tried before.
CREATE FUNCTION _sas.most_loaded(slow boolean DEFAULT false) RETURNS int
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT CASE WHEN slow THEN 1000 ELSE 2500 END $$;

-- _sas.begin_maps(run_ids, step_nos, lists, from_states): begins these steps with an element for each entry
-- of their list. list null: a repeating step begins its first iteration, or a map that has failed continues
-- where it was.
-- Writes: item, map_list, map_progress, step. Next: _sas.load_elements, _sas.release_elements.
CREATE FUNCTION _sas.begin_maps(run_ids bigint[], step_nos int[], lists jsonb[], from_states text[])
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    most int := _sas.most_loaded();
    few boolean := _sas.add_steps((SELECT sum(jsonb_array_length(l))::bigint FROM unnest(lists) l
                                   WHERE jsonb_array_length(l) <= most));
BEGIN
    WITH begun AS MATERIALIZED (
        SELECT u.run_id, u.step_no, u.list, coalesce(jsonb_array_length(u.list), 0) AS n,
               u.list IS NOT NULL AND w.shape #> '{concurrency,key}' IS NOT NULL AS keyed
        FROM unnest(run_ids, step_nos, lists) AS u (run_id, step_no, list)
        JOIN _sas.run r ON r.run_id = u.run_id
        CROSS JOIN LATERAL _sas.step_definition(r.version_id, u.step_no) w),
    progress AS (
        INSERT INTO _sas.map_progress (run_id, step_no, total, fed, remaining, failed, open, loading)
        SELECT b.run_id, b.step_no, b.n, 0, b.n, 0, CASE WHEN b.keyed THEN 0 END,
               CASE WHEN b.keyed OR b.n > most THEN true END
        FROM begun b ON CONFLICT DO NOTHING),
    listed AS (
        INSERT INTO _sas.map_list (run_id, step_no, list)
        SELECT b.run_id, b.step_no, b.list FROM begun b WHERE b.keyed OR b.n > most)
    INSERT INTO _sas.item (run_id, step_no, element, item)
    SELECT b.run_id, b.step_no, i.n, i.value
    FROM begun b CROSS JOIN LATERAL jsonb_array_elements(b.list) WITH ORDINALITY AS i (value, n)
    WHERE NOT b.keyed AND b.n <= most;
    PERFORM _sas.move_steps(array_agg(_sas.make_step_change(
        run_id => u.run_id, step_no => u.step_no, element => 0, from_state => u.from_state,
        to_state => 'suspended', started_at => sas.now(), waiting_kind => 'elements')))
    FROM unnest(run_ids, step_nos, from_states) AS u (run_id, step_no, from_state);
    PERFORM _sas.begin_again(u.run_id, u.step_no)
    FROM unnest(run_ids, step_nos, lists) AS u (run_id, step_no, list)
    JOIN _sas.run r ON r.run_id = u.run_id
    JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = u.step_no AND NOT w.undo
    WHERE u.list IS NULL AND w.shape ? 'each';
    PERFORM _sas.load_elements(run_ids, step_nos);
    PERFORM _sas.release_elements(run_ids, step_nos);
END $$;

-- _sas.begin_again(for_run, for_no): prepares a map that has run through with failed elements for another
-- attempt: these elements wait again and begin under the same limits. Their keys get other numbers, because
-- elements that have ended keep theirs.
-- Writes: map_key, map_list, map_progress. Next: _sas.load_elements.
CREATE FUNCTION _sas.begin_again(for_run bigint, for_no int) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO _sas.map_list (run_id, step_no, keys)
    SELECT f.run_id, f.step_no, (SELECT coalesce(max(i.key_no), 0) FROM _sas.item i
                                 WHERE i.run_id = f.run_id AND i.step_no = f.step_no AND i.key_no IS NOT NULL)
    FROM _sas.map_progress f
    WHERE f.run_id = for_run AND f.step_no = for_no AND f.remaining = 0
        AND EXISTS (SELECT FROM _sas.step s WHERE s.run_id = for_run AND s.step_no = for_no AND s.element > 0
                    AND s.state = 'failed' AND s.waiting_kind = 'map_end');
    IF FOUND THEN
        DELETE FROM _sas.map_key k WHERE k.run_id = for_run AND k.step_no = for_no;
        UPDATE _sas.map_progress f SET fed = 0, open = 0, loading = true
        WHERE f.run_id = for_run AND f.step_no = for_no;
    END IF;
END $$;

-- _sas.load_elements(run_ids, step_nos): writes the next elements of those of these maps that are not
-- complete. If there are more, a message to the scheduler continues. If the key of an element cannot be
-- built, the map fails. A map that has ended meanwhile needs no more.
-- Next, if a pause has taken back the end of its run: _sas.reopen_abandoned sends such a message again.
-- Writes: item, map_key, map_list, map_progress, message. Wakes: the scheduler.
CREATE FUNCTION _sas.load_elements(run_ids bigint[], step_nos int[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    m record;
    done record;
BEGIN
    FOR m IN SELECT l.run_id, l.step_no, l.loaded, l.list IS NULL AS again, w.name,
                    w.shape #> '{concurrency,key}' AS template,
                    r.abandon_as IS NULL AND coalesce(s.state = 'suspended', false) AS goes_on
             FROM (SELECT DISTINCT * FROM unnest(run_ids, step_nos) AS u (run_id, step_no)) u
             JOIN _sas.map_list l ON l.run_id = u.run_id AND l.step_no = u.step_no
             JOIN _sas.run r ON r.run_id = u.run_id
             CROSS JOIN LATERAL _sas.step_definition(r.version_id, u.step_no) w
             LEFT JOIN LATERAL _sas.step_row(u.run_id, u.step_no, 0) s ON true
             ORDER BY 1, 2 LOOP
        IF NOT m.goes_on THEN
            DELETE FROM _sas.map_list l
            WHERE l.run_id = m.run_id AND l.step_no = m.step_no
              -- a pause may take back the end of its run
              AND NOT EXISTS (SELECT FROM _sas.abandoned_run a WHERE a.run_id = m.run_id);
            CONTINUE;
        END IF;
        done := _sas.load_part(m.run_id, m.step_no, m.loaded, m.again, m.template);
        IF done.problem IS NOT NULL THEN
            PERFORM _sas.fail_keys(m.run_id, m.step_no, m.name, done.problem);
        ELSIF done.more THEN
            INSERT INTO _sas.message (actor, due_at, run_id, kind, step_no, element)
            VALUES ('s', sas.now(), m.run_id, 'room', m.step_no, 0);
            PERFORM _sas.wake('{}', true, false, '{}');
        ELSE
            DELETE FROM _sas.map_list l WHERE l.run_id = m.run_id AND l.step_no = m.step_no;
            UPDATE _sas.map_progress f SET loading = NULL
            WHERE f.run_id = m.run_id AND f.step_no = m.step_no;
        END IF;
    END LOOP;
END $$;

-- _sas.load_part(for_run, for_no, loaded, again, template): writes the elements behind the last one that was
-- loaded, or lets the failed ones wait again. problem: the key of one cannot be built.
-- Writes: item, map_list; again: step, map_progress. Next: _sas.key_elements if the map has keys.
CREATE FUNCTION _sas.load_part(for_run bigint, for_no int, loaded int, again boolean, template jsonb,
                               OUT problem text, OUT more boolean)
LANGUAGE plpgsql AS $$
DECLARE
    most int := _sas.most_loaded(again OR template IS NOT NULL);
    -- _sas.move_steps counts those that are tried again
    few boolean := _sas.add_steps((SELECT least(most, f.total - load_part.loaded) FROM _sas.map_progress f
                                   WHERE f.run_id = for_run AND f.step_no = for_no AND NOT again));
    those int[];
    items jsonb[];
BEGIN
    IF again THEN
        SELECT array_agg(x.element ORDER BY x.element), array_agg(x.item ORDER BY x.element) INTO those, items
        FROM (SELECT s.element, i.item FROM _sas.step s
              CROSS JOIN LATERAL (SELECT o.item FROM _sas.item o WHERE o.run_id = for_run
                                  AND o.step_no = for_no AND o.element = s.element OFFSET 0) i
              WHERE s.run_id = for_run AND s.step_no = for_no AND s.element > load_part.loaded
                  AND s.state = 'failed' AND s.waiting_kind = 'map_end' ORDER BY s.element LIMIT most) x;
        PERFORM _sas.move_steps(array_agg(_sas.make_step_change(
            run_id => for_run, step_no => for_no, element => e, from_state => 'failed',
            to_state => 'waiting', failure_count => 0))) FROM unnest(those) e HAVING count(*) > 0;
        UPDATE _sas.map_progress f
        SET remaining = f.remaining + cardinality(those), failed = f.failed - cardinality(those)
        WHERE f.run_id = for_run AND f.step_no = for_no AND those IS NOT NULL;
    ELSE
        SELECT array_agg(load_part.loaded + i.n ORDER BY i.n), array_agg(i.value ORDER BY i.n)
        INTO those, items
        FROM _sas.map_list l
        CROSS JOIN LATERAL jsonb_array_elements(jsonb_path_query_array(
            l.list, '$[$first to $last]',
            jsonb_build_object('first', load_part.loaded, 'last', load_part.loaded + most - 1)))
            WITH ORDINALITY AS i (value, n)
        WHERE l.run_id = for_run AND l.step_no = for_no;
        INSERT INTO _sas.item (run_id, step_no, element, item)
        SELECT for_run, for_no, u.element, u.item FROM unnest(those, items) AS u (element, item)
        WHERE template IS NULL;
    END IF;
    IF template IS NOT NULL THEN
        problem := _sas.key_elements(for_run, for_no, those, items, template);
    END IF;
    more := coalesce(cardinality(those) = most, false);
    UPDATE _sas.map_list l SET loaded = those[most]
    WHERE more AND l.run_id = for_run AND l.step_no = for_no;
END $$;

-- _sas.key_elements(for_run, for_no, elements, items, template): writes these elements of a map, with the
-- number of their key, and their position among the elements of that key. An element whose key is null has
-- none. Returns what is wrong with the first key that cannot be built. All keys of a map together have a
-- budget, too.
-- Writes: item, map_key, map_list.
CREATE FUNCTION _sas.key_elements(for_run bigint, for_no int, elements int[], items jsonb[], template jsonb)
RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    began_us bigint;
    began_bytes bigint;
    made record;
BEGIN
    SELECT _sas.evaluated_us() - l.spent_us, _sas.evaluated_bytes() - l.spent_bytes
    INTO began_us, began_bytes FROM _sas.map_list l WHERE l.run_id = for_run AND l.step_no = for_no;
    SELECT array_agg(x.key ORDER BY x.element) AS keys,
        (array_agg(format('element %s: %s', x.element, x.problem) ORDER BY x.element)
             FILTER (WHERE x.problem IS NOT NULL))[1] AS problem
    INTO made
    FROM (SELECT u.element, nullif(k.result, 'null') AS key,
                 coalesce(t.spent, CASE WHEN k.problem IS NOT NULL
                                   THEN format('%s: %s', k.problem ->> 'path', k.problem ->> 'what') END)
                     AS problem
          FROM unnest(elements, items) AS u (element, item)
          CROSS JOIN LATERAL (
              -- u.element: it is asked again for each of them
              SELECT CASE WHEN u.element IS NULL THEN NULL
                          WHEN _sas.evaluated_us() - began_us > 1000000
                          THEN 'the keys of all elements take more than 1 s to evaluate'
                          WHEN _sas.evaluated_bytes() - began_bytes > 16777216
                          THEN 'the keys of all elements have more than 16 MB' END AS spent OFFSET 0) t
          LEFT JOIN LATERAL _sas.render(CASE WHEN t.spent IS NULL THEN template END,
                                        jsonb_build_object('item', u.item, 'index', u.element - 1)) k
              ON true) x;
    IF made.problem IS NOT NULL THEN
        RETURN made.problem;
    END IF;
    PERFORM _sas.number_elements(for_run, for_no, elements, items, made.keys);
    UPDATE _sas.map_list l
    SET spent_us = _sas.evaluated_us() - began_us, spent_bytes = _sas.evaluated_bytes() - began_bytes
    WHERE l.run_id = for_run AND l.step_no = for_no;
    RETURN NULL;
END $$;

-- _sas.number_elements(for_run, for_no, elements, items, keys): writes these elements and their keys. The row
-- of a key is looked up once, for the first element that has it.
-- Writes: item, map_key, map_list.
CREATE FUNCTION _sas.number_elements(for_run bigint, for_no int, elements int[], items jsonb[], keys jsonb[])
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    last_no int := (SELECT l.keys FROM _sas.map_list l WHERE l.run_id = for_run AND l.step_no = for_no);
BEGIN
    WITH ranked AS MATERIALIZED (
        SELECT u.element, u.item, u.key, last_no + dense_rank() OVER (ORDER BY u.key)::int AS new_no,
               row_number() OVER (PARTITION BY u.key ORDER BY u.element)::int AS nth,
               count(*) OVER (PARTITION BY u.key)::int AS n
        FROM unnest(elements, items, number_elements.keys) AS u (element, item, key)),
    found AS MATERIALIZED (
        SELECT r.*, k.place, max(k.key_no) OVER (PARTITION BY r.new_no) AS key_no,
               coalesce(max(k.n) OVER (PARTITION BY r.new_no), 0) AS before
        FROM ranked r
        LEFT JOIN LATERAL (
            SELECT x.key_no, x.n, x.ctid AS place FROM _sas.map_key x
            WHERE jsonb_hash_extended(x.key, x.run_id) = jsonb_hash_extended(r.key, for_run)
              AND x.run_id + 0 = for_run AND x.step_no + 0 = for_no AND x.key = r.key
              AND r.nth = 1 OFFSET 0) k ON true),
    new AS (
        INSERT INTO _sas.map_key (run_id, step_no, key_no, key, first, n, begun, ended)
        SELECT for_run, for_no, f.new_no, f.key, f.element, f.n, 0, 0 FROM found f
        WHERE f.nth = 1 AND f.key_no IS NULL AND f.key IS NOT NULL),
    old AS (
        UPDATE _sas.map_key k SET n = k.n + f.n FROM found f WHERE k.ctid = f.place),
    written AS (
        INSERT INTO _sas.item (run_id, step_no, element, item, key_no, nth)
        SELECT for_run, for_no, f.element, f.item,
               CASE WHEN f.key IS NOT NULL THEN coalesce(f.key_no, f.new_no) END,
               CASE WHEN f.key IS NOT NULL THEN f.before + f.nth END FROM found f
        ON CONFLICT (run_id, step_no, element) DO UPDATE SET key_no = excluded.key_no, nth = excluded.nth)
    UPDATE _sas.map_list l SET keys = (SELECT coalesce(max(f.new_no), last_no) FROM found f)
    WHERE l.run_id = for_run AND l.step_no = for_no;
END $$;

-- _sas.fail_keys(for_run, for_no, name, problem): this map fails, because the key of an element cannot be
-- built. Without its rows, a further attempt begins from its array again.
-- Writes: item, map_key, map_list, map_progress.
CREATE FUNCTION _sas.fail_keys(for_run bigint, for_no int, name text, problem text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM _sas.item i WHERE i.run_id = for_run AND i.step_no = for_no;
    DELETE FROM _sas.map_key k WHERE k.run_id = for_run AND k.step_no = for_no;
    DELETE FROM _sas.map_list l WHERE l.run_id = for_run AND l.step_no = for_no;
    DELETE FROM _sas.map_progress f WHERE f.run_id = for_run AND f.step_no = for_no;
    PERFORM _sas.fail_steps(ARRAY[for_run], ARRAY[for_no], ARRAY[0], ARRAY[_sas.problem_object(
        'concurrency', 'could not build the key of an element', problem, NULL, for_run, name)]);
END $$;

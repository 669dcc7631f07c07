-- SPDX-License-Identifier: PostgreSQL
--
-- Find: the newest runs that match a search. It uses the index that leaves the fewest candidates.
-- Candidates come in batches, the newest first, and each batch is compared with the whole search; so no
-- plan depends on statistics, and no condition of the caller is evaluated on other runs.

-- _sas.few_runs(): if fewer runs than this match a condition, all of them are taken; more are walked, the
-- newest first.
CREATE FUNCTION _sas.few_runs() RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC SELECT 500; END;

-- _sas.first_run_between(low, high, instant): the least id from low on that was given out at this instant or
-- later; high: there is none below. Ids of one node follow the clock.
CREATE FUNCTION _sas.first_run_between(low bigint, high bigint, instant timestamptz) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
DECLARE
    middle bigint;
    found_at timestamptz;
    found_id bigint;
BEGIN
    WHILE low < high LOOP
        middle := (low + high) / 2;
        SELECT r.run_id, r.created_at INTO found_id, found_at FROM _sas.run r
        WHERE r.run_id BETWEEN middle AND high ORDER BY r.run_id LIMIT 1;
        IF found_at < instant THEN
            low := found_id + 1;
        ELSE
            high := middle;
        END IF;
    END LOOP;
    RETURN low;
END $$;

-- _sas.runs_since(instant): no run of this instant or a later one has an id below first, and no earlier one
-- has beyond or more. The ids of each node that this server has been follow the clock by themselves. A run
-- gets its id a little after its created_at: the caller adds a span.
CREATE FUNCTION _sas.runs_since(instant timestamptz, OUT first bigint, OUT beyond bigint)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    least_id bigint := (SELECT min(r.run_id) FROM _sas.run r);
    last_id bigint;
    since bigint;
BEGIN
    beyond := 0;
    WHILE least_id IS NOT NULL LOOP
        last_id := (SELECT max(r.run_id) FROM _sas.run r
                    WHERE r.run_id < ((least_id >> _sas.node_shift()) + 1) << _sas.node_shift());
        since := _sas.first_run_between(least_id, last_id + 1, instant);
        first := CASE WHEN since <= last_id THEN coalesce(first, since) ELSE first END;
        beyond := CASE WHEN since > least_id THEN since ELSE beyond END;
        least_id := (SELECT min(r.run_id) FROM _sas.run r WHERE r.run_id > last_id);
    END LOOP;
    first := coalesce(first, last_id + 1, 0);
END $$;

-- _sas.check_search(search, quantity): raises an error if the search is not valid.
CREATE FUNCTION _sas.check_search(search jsonb, quantity int) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    p _sas.problem;
BEGIN
    FOR p IN
        SELECT * FROM _sas.check_keys(search, '',
            '{run_id,workflow,key,labels,state,result,submitted_by,text,compare,'
            'created_after,created_before,finished_after,finished_before}')
        UNION ALL
        SELECT * FROM _sas.check_number(search -> 'run_id', '/run_id', 0, 9223372036854775807)
        UNION ALL
        SELECT * FROM _sas.check_number(nullif(search -> 'compare', 'null'), '/compare', 1, 2147483647)
        UNION ALL
        SELECT '/' || e.key,
               CASE WHEN e.key ~ '_(after|before)$' THEN format('%s is no instant', left(e.value::text, 80))
               ELSE format('expected a string, not %s', jsonb_typeof(e.value)) END,
               CASE WHEN e.key ~ '_(after|before)$'
                    THEN 'Write an instant, such as "2030-01-31 09:00:00+00".'
                    ELSE 'Write it in quotes.' END, '22023'
        FROM jsonb_each(CASE jsonb_typeof(search) WHEN 'object' THEN search ELSE '{}' END) e
        WHERE CASE WHEN e.key IN ('workflow', 'key', 'submitted_by', 'text')
                   THEN jsonb_typeof(e.value) <> 'string'
                   WHEN e.key ~ '_(after|before)$' THEN _sas.moment(e.value) IS NULL ELSE false END
        UNION ALL
        SELECT '/labels', format('expected an object, not %s', jsonb_typeof(search -> 'labels')),
               'Write labels with their values, such as {"tenant": "a"}.', '22023'
        WHERE jsonb_typeof(search -> 'labels') <> 'object'
        UNION ALL
        SELECT c.* FROM _sas.words_of(search -> 'state') WITH ORDINALITY AS s (word, n)
        CROSS JOIN LATERAL _sas.check_choice(
            s.word, '/state' || CASE jsonb_typeof(search -> 'state') WHEN 'array' THEN '/' || s.n - 1
                                  ELSE '' END,
            '{scheduled,pending,running,paused,compensating,stopped}') c
        UNION ALL
        SELECT c.* FROM _sas.words_of(search -> 'result') WITH ORDINALITY AS s (word, n)
        CROSS JOIN LATERAL _sas.check_choice(
            s.word, '/result' || CASE jsonb_typeof(search -> 'result') WHEN 'array' THEN '/' || s.n - 1
                                  ELSE '' END,
            '{success,warning,error,compensated,cancelled}') c
        UNION ALL
        SELECT '/quantity', 'quantity must be between 1 and 10000', 'The default is 50.', '22023'
        WHERE quantity IS NULL OR quantity NOT BETWEEN 1 AND 10000 LOOP
        PERFORM _sas.raise(p);
    END LOOP;
END $$;

-- _sas.words_of(value): one word, or the words of an array.
CREATE FUNCTION _sas.words_of(value jsonb) RETURNS SETOF jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT jsonb_array_elements(CASE jsonb_typeof(value) WHEN 'array' THEN value
                                ELSE jsonb_build_array(value) END) WHERE value IS NOT NULL
$$;

-- _sas.read_search(caller, search): the search as the caller may make it.
CREATE FUNCTION _sas.read_search(caller oid, search jsonb) RETURNS _sas.run_search
LANGUAGE plpgsql STABLE AS $$
DECLARE
    -- longer than a submit takes between created_at and the ids of its runs
    span interval := '1 min';
    s _sas.run_search;
BEGIN
    s.caller := caller;
    s.run_id := (search ->> 'run_id')::bigint;
    s.key := search ->> 'key';
    s.labels := nullif(search -> 'labels', '{}');
    s.words := lower(search ->> 'text');
    s.created_after := _sas.moment(search -> 'created_after');
    s.created_before := _sas.moment(search -> 'created_before');
    s.finished_after := _sas.moment(search -> 'finished_after');
    s.finished_before := _sas.moment(search -> 'finished_before');
    IF search ? 'state' THEN
        s.states := ARRAY(SELECT w #>> '{}' FROM _sas.words_of(search -> 'state') w);
    END IF;
    IF search ? 'result' THEN
        s.results := ARRAY(SELECT w #>> '{}' FROM _sas.words_of(search -> 'result') w);
    END IF;
    IF search ? 'workflow' THEN
        s.workflows := ARRAY(SELECT f.workflow_id FROM _sas.workflow f WHERE f.name = search ->> 'workflow');
    END IF;
    s.payload := _sas.is_operator(caller);
    IF NOT s.payload OR search ? 'submitted_by' THEN
        s.own := ARRAY(SELECT o.oid FROM pg_roles o WHERE _sas.may_stand_for(caller, o.oid));
        IF NOT s.payload AND NOT _sas.has_level(caller, 'monitor') THEN
            s.owners := s.own;
        END IF;
    END IF;
    IF search ? 'submitted_by' THEN
        s.owners := ARRAY(SELECT o.oid FROM pg_roles o WHERE o.rolname = search ->> 'submitted_by'
                          AND (s.owners IS NULL OR o.oid = ANY (s.owners)));
    END IF;
    s.first_id := CASE WHEN isfinite(s.created_after)
        THEN (_sas.runs_since(s.created_after - span)).first END;
    s.last_id := CASE WHEN isfinite(s.created_before)
        THEN (_sas.runs_since(s.created_before + span)).beyond END;
    RETURN s;
END $$;

-- _sas.matching_runs(s, ids): those of these runs that match, the newest first.
CREATE FUNCTION _sas.matching_runs(s _sas.run_search, ids bigint[]) RETURNS bigint[]
LANGUAGE sql STABLE AS $$
    SELECT array_agg(u.id ORDER BY u.id DESC)
    FROM unnest(ids) AS u (id)
    CROSS JOIN LATERAL (SELECT x.* FROM _sas.run x WHERE x.run_id = u.id OFFSET 0) r
    WHERE r.hook_of IS NULL
      AND (s.run_id IS NULL OR r.run_id = s.run_id)
      AND (s.owners IS NULL OR r.owner = ANY (s.owners))
      AND (s.states IS NULL OR r.state = ANY (s.states))
      AND (s.results IS NULL OR r.result = ANY (s.results))
      AND (s.key IS NULL OR r.key = s.key)
      AND (s.created_after IS NULL OR r.created_at >= s.created_after)
      AND (s.created_before IS NULL OR r.created_at < s.created_before)
      AND (s.finished_after IS NULL OR r.finished_at >= s.finished_after)
      AND (s.finished_before IS NULL OR r.finished_at < s.finished_before)
      AND (s.labels IS NULL OR r.labels || s.labels = r.labels)
      AND (s.workflows IS NULL
           OR EXISTS (SELECT FROM _sas.workflow_version v
                      WHERE v.version_id = r.version_id AND v.workflow_id = ANY (s.workflows)))
      AND (s.words IS NULL
           OR strpos(lower(concat_ws(E'\n', r.key, r.labels, _sas.public_error(r.error) ->> 'title')),
                     s.words) > 0
           OR (s.payload OR r.owner = ANY (s.own))
              -- masked values are not found
              AND (r.owner = s.caller OR NOT EXISTS (SELECT FROM _sas.workflow_version v
                                                     WHERE v.version_id = r.version_id
                                                         AND v.mask IS NOT NULL))
              AND strpos(lower(concat_ws(E'\n', r.input, r.output, r.error)), s.words) > 0)
$$;

-- _sas.rarest_label(labels, most): the label that the fewest runs have, if they are at most "most".
-- quantity: how many, or one more than "most".
CREATE FUNCTION _sas.rarest_label(labels jsonb, most int, OUT label bigint, OUT quantity bigint)
LANGUAGE sql STABLE AS $$
    SELECT h.label, n.n
    FROM (SELECT _sas.label_hash(e.key, e.value) AS label FROM jsonb_each(labels) e OFFSET 0) h
    CROSS JOIN LATERAL (SELECT count(*) AS n FROM (SELECT FROM _sas.run_label l WHERE l.label = h.label
                                                   LIMIT most + 1) x) n
    ORDER BY n.n LIMIT 1
$$;

-- _sas.next_label_owner(label, after): the next owner of runs with this label, by oid, as in
-- _sas.next_run_owner.
CREATE FUNCTION _sas.next_label_owner(label bigint, after oid) RETURNS oid
LANGUAGE C STABLE STRICT AS 'MODULE_PATHNAME', 'sas_api_next_label_owner';

-- _sas.next_run_version(owner, after): the next version of which this role has runs, as in
-- _sas.next_run_owner.
CREATE FUNCTION _sas.next_run_version(owner oid, after int) RETURNS int
LANGUAGE C STABLE STRICT AS 'MODULE_PATHNAME', 'sas_api_next_run_version';

-- _sas.label_owners(label, most): the owners of runs with this label; at most this number. Here and below,
-- as in _sas.run_owners, the cost does not depend on how many runs each owner has.
CREATE FUNCTION _sas.label_owners(label bigint, most int) RETURNS SETOF oid
LANGUAGE plpgsql STABLE AS $$
DECLARE
    o oid := 0;
BEGIN
    FOR n IN 1 .. most LOOP
        o := _sas.next_label_owner(label, o);
        EXIT WHEN o IS NULL;
        RETURN NEXT o;
    END LOOP;
END $$;

-- _sas.owned_versions(owners, workflows, most): pairs of these owners and the versions of these workflows
-- (null: all) that have runs; about this number of pairs.
CREATE FUNCTION _sas.owned_versions(owners oid[], workflows int[], most int)
RETURNS TABLE (owner oid, version_id int)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
DECLARE
    pairs int := 0;
BEGIN
    IF workflows IS NOT NULL THEN
        RETURN QUERY
        SELECT w, v.version_id FROM unnest(owners) w
        CROSS JOIN (SELECT x.version_id FROM _sas.workflow_version x WHERE x.workflow_id = ANY (workflows)
                    LIMIT most) v
        WHERE _sas.next_run_version(w, v.version_id - 1) = v.version_id
        LIMIT most;
        RETURN;
    END IF;
    FOREACH owner IN ARRAY owners LOOP
        version_id := -1;
        WHILE pairs < most LOOP
            version_id := _sas.next_run_version(owner, version_id);
            EXIT WHEN version_id IS NULL;
            RETURN NEXT;
            pairs := pairs + 1;
        END LOOP;
    END LOOP;
END $$;

-- _sas.next_candidates(s, ids, label, owners, versions, below, quantity): the ids below "below" of the
-- newest runs: among these ids; or of these owners with this label; or of these pairs of owner and version;
-- or of all.
CREATE FUNCTION _sas.next_candidates(s _sas.run_search, ids bigint[], label bigint, owners oid[],
                                     versions int[], below bigint, quantity int) RETURNS bigint[]
LANGUAGE plpgsql STABLE AS $$
DECLARE
    first_id bigint := coalesce(s.first_id, 0);
BEGIN
    IF ids IS NOT NULL THEN
        RETURN ARRAY(SELECT u FROM unnest(ids) u WHERE u >= first_id AND u < below
                     ORDER BY u DESC LIMIT quantity);
    ELSIF label IS NOT NULL THEN
        RETURN ARRAY(SELECT x.run_id FROM unnest(owners) o
                     CROSS JOIN LATERAL (SELECT l.run_id FROM _sas.run_label l
                                         WHERE l.label = $3 AND l.owner = o
                                             AND l.run_id >= first_id AND l.run_id < below
                                         ORDER BY l.run_id DESC LIMIT quantity) x
                     ORDER BY x.run_id DESC LIMIT quantity);
    ELSIF owners IS NOT NULL THEN
        RETURN ARRAY(SELECT x.run_id FROM unnest(owners, versions) AS p (owner, version_id)
                     CROSS JOIN LATERAL (SELECT r.run_id FROM _sas.run r
                                         WHERE r.owner = p.owner AND r.version_id = p.version_id
                                             AND r.run_id >= first_id AND r.run_id < below
                                         ORDER BY r.run_id DESC LIMIT quantity) x
                     ORDER BY x.run_id DESC LIMIT quantity);
    END IF;
    RETURN ARRAY(SELECT r.run_id FROM _sas.run r WHERE r.run_id >= first_id AND r.run_id < below
                 ORDER BY r.run_id DESC LIMIT quantity);
END $$;

-- _sas.walk_runs(...): walks on from the id below until enough runs match, or "most" candidates were
-- compared (null: all). below: how far it came; null: to the end.
CREATE FUNCTION _sas.walk_runs(s _sas.run_search, ids bigint[], label bigint, owners oid[], versions int[],
                               quantity int, most int, INOUT below bigint, INOUT fitting bigint[])
LANGUAGE plpgsql STABLE AS $$
DECLARE
    size int := quantity;
    compared int := 0;
    batch bigint[];
BEGIN
    WHILE below IS NOT NULL AND cardinality(fitting) < quantity AND (most IS NULL OR compared < most) LOOP
        batch := _sas.next_candidates(s, ids, label, owners, versions, below, size);
        fitting := fitting || _sas.matching_runs(s, batch);
        below := CASE WHEN cardinality(batch) = size THEN batch[size] END;
        compared := compared + size;
        size := least(size * 4, 20000);
    END LOOP;
END $$;

-- _sas.candidates(s): the only runs that can match, if the search names them or roles that have few runs;
-- else null.
CREATE FUNCTION _sas.candidates(s _sas.run_search) RETURNS bigint[]
LANGUAGE plpgsql STABLE AS $$
DECLARE
    ids bigint[];
BEGIN
    IF s.run_id IS NOT NULL THEN
        RETURN ARRAY[s.run_id];
    ELSIF s.key IS NOT NULL THEN
        RETURN ARRAY(SELECT r.run_id FROM _sas.run r
                     WHERE r.owner = ANY (coalesce(s.owners, ARRAY(SELECT _sas.run_owners())))
                       AND r.key = s.key);
    ELSIF s.owners IS NOT NULL THEN
        ids := ARRAY(SELECT r.run_id FROM _sas.run r WHERE r.owner = ANY (s.owners)
                     LIMIT _sas.few_runs() + 1);
    END IF;
    RETURN CASE WHEN cardinality(ids) <= _sas.few_runs() THEN ids END;
END $$;

-- _sas.search_runs(s, quantity, before, most): the newest runs that match. It ends once "most" candidates
-- were compared (null: all); below: how far it came, null: to the end.
CREATE FUNCTION _sas.search_runs(s _sas.run_search, quantity int, before bigint, most int,
                                 OUT fitting bigint[], OUT below bigint)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    label bigint := (SELECT l.label FROM _sas.rarest_label(s.labels, 10 * _sas.few_runs()) l);
    ids bigint[] := _sas.candidates(s);
    owners oid[];
    versions int[];
    only_open boolean := NOT coalesce('stopped' = ANY (s.states), true);
    -- with more parts it is cheaper to scan all runs
    few constant int := 500;
BEGIN
    below := least(before, s.last_id, 9223372036854775807);
    fitting := '{}';
    IF ids IS NULL AND (label IS NOT NULL OR s.owners IS NOT NULL OR s.workflows IS NOT NULL) THEN
        owners := coalesce(s.owners, CASE WHEN label IS NULL THEN ARRAY(SELECT _sas.run_owners(few + 1))
                                     ELSE ARRAY(SELECT _sas.label_owners(label, few + 1)) END);
        IF cardinality(owners) > few THEN
            label := NULL;
            owners := NULL;
        ELSIF label IS NULL THEN
            SELECT coalesce(array_agg(p.owner), '{}'), array_agg(p.version_id) INTO owners, versions
            FROM _sas.owned_versions(owners, s.workflows, few + 1) p HAVING count(*) <= few;
        END IF;
    END IF;
    SELECT w.below, w.fitting INTO below, fitting
    FROM _sas.walk_runs(s, ids, label, owners, versions, quantity,
                        CASE WHEN ids IS NULL AND only_open THEN 200 ELSE most END, below, fitting) w;
    IF below IS NOT NULL AND cardinality(fitting) < quantity AND only_open THEN
        SELECT w.below, w.fitting INTO below, fitting
        FROM _sas.walk_runs(s, ARRAY(SELECT o.run_id FROM _sas.open_runs_of(s.owners) o), NULL, NULL, NULL,
                            quantity, NULL, below, fitting) w;
    END IF;
    below := CASE WHEN cardinality(fitting) > quantity THEN fitting[quantity] ELSE below END;
    fitting := fitting[: quantity];
END $$;

-- _sas.find_run_page(search, quantity, before, most): the ids of the runs that match, the newest first. It
-- ends once "most" candidates were compared, however rare the runs are; null: as many as search.compare says,
-- and a notice says how far it came. below: it has searched the runs from there on; null: all.
CREATE FUNCTION _sas.find_run_page(search jsonb, quantity int, before bigint, most int,
                                   OUT run_ids bigint[], OUT below bigint)
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_verb';

-- _sas.find_run_page_as(caller, search, quantity, before, most): the body of _sas.find_run_page.
CREATE FUNCTION _sas.find_run_page_as(caller oid, search jsonb, quantity int, before bigint, most int,
                                      OUT run_ids bigint[], OUT below bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    -- the session of the caller may have any planner settings; these statements read few rows, by an index
    SET plan_cache_mode = force_generic_plan SET enable_bitmapscan = off SET enable_hashjoin = off
    SET enable_mergejoin = off AS $$
BEGIN
    PERFORM _sas.check_search(search, quantity);
    SELECT f.fitting, f.below INTO run_ids, below
    FROM _sas.search_runs(_sas.read_search(caller, search), quantity, before,
                          CASE WHEN most IS NULL AND search ? 'compare' THEN (search ->> 'compare')::int
                               ELSE coalesce(most, 50000) END) f;
    IF most IS NULL AND below IS NOT NULL AND cardinality(run_ids) < quantity THEN
        RAISE NOTICE 'the search has ended at run %, before all runs were compared', below
        USING HINT = format('Call again with before => %s, add a key that uses an index, or set "compare".',
                            below);
    END IF;
END $$;

CREATE FUNCTION sas.find_runs(search jsonb, quantity int DEFAULT 50, before bigint DEFAULT NULL)
RETURNS SETOF sas.runs
LANGUAGE sql STABLE SET jit = off
BEGIN ATOMIC
    -- LATERAL: the search is checked also if the caller sees no run
    SELECT r.* FROM _sas.find_run_page(search, quantity, before, NULL) f
    CROSS JOIN LATERAL (SELECT * FROM sas.runs r WHERE r.run_id = ANY (f.run_ids) OFFSET 0) r
    ORDER BY r.run_id DESC;
END;
COMMENT ON FUNCTION sas.find_runs IS
    'The newest runs by run_id, workflow, key, labels, state, result, submitted_by, created_after, '
    'created_before, finished_after, finished_before and text. before: the last run_id of the previous '
    'page. compare: how many runs are compared at most if no index finds them, 50,000 by default.';

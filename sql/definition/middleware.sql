-- SPDX-License-Identifier: PostgreSQL
--
-- Middleware: functions of an admin around the phases of runs: plan (a submit), call, function (a step or
-- undo of that kind) and finalize. Each wraps what is inside it: the "before" functions run from the
-- outermost to the innermost, then the work itself, then the "after" functions in reverse order.
--
-- They are called as the role that created them, in the transaction of what they wrap. So a middleware
-- gives no role a right, and its writes commit or roll back with the rest. A run of a superuser uses only
-- middleware of superusers and leaves out the rest.

-- _sas.place_middleware(for_phase): gives each middleware its place: by the given order first, then those
-- of all workflows outside those of one workflow, then by creation. Raises an error if they form a cycle.
-- Writes: middleware.
CREATE FUNCTION _sas.place_middleware(for_phase text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    ids int[] := ARRAY(SELECT m.middleware_id FROM _sas.middleware m WHERE m.phase = for_phase
                       AND m.replaces IS NULL ORDER BY m.workflow_id IS NOT NULL, m.middleware_id);
    from_nos int[];
    to_nos int[];
    cycle int[];
    placed int[] := '{}';
    next int;
BEGIN
    -- a middleware that replaces another one takes its place
    WITH m AS (SELECT x.*, array_position(ids, coalesce(y.middleware_id, x.middleware_id)) AS no
               FROM _sas.middleware x LEFT JOIN _sas.middleware y ON y.phase = for_phase
                   AND y.name = x.replaces WHERE x.phase = for_phase)
    SELECT array_agg(e.a), array_agg(e.b) INTO from_nos, to_nos
    FROM (SELECT a.no AS a, b.no AS b FROM m a JOIN m b ON b.name = ANY (a.goes_before)
          UNION SELECT b.no, a.no FROM m a JOIN m b ON b.name = ANY (a.goes_after)) e;
    cycle := _sas.find_cycle(coalesce(from_nos, '{}'), coalesce(to_nos, '{}'), cardinality(ids));
    IF cardinality(cycle) > 0 THEN
        RAISE EXCEPTION 'the middleware of phase % forms a cycle: %', for_phase,
                (SELECT string_agg(m.name, ' -> ' ORDER BY c.n)
                 FROM unnest(cycle || cycle[1]) WITH ORDINALITY AS c (no, n)
                 JOIN _sas.middleware m ON m.middleware_id = ids[c.no])
            USING ERRCODE = 'invalid_object_definition', DETAIL = 'At /goes_before.',
                HINT = 'Change goes_before or goes_after of one of them.';
    END IF;
    WHILE cardinality(placed) < cardinality(ids) LOOP
        SELECT g INTO STRICT next FROM generate_series(1, cardinality(ids)) g
        WHERE NOT g = ANY (placed)
          AND NOT EXISTS (SELECT FROM unnest(from_nos, to_nos) AS e (a, b) WHERE e.b = g
                          AND NOT e.a = ANY (placed))
        ORDER BY g LIMIT 1;
        placed := placed || next;
    END LOOP;
    UPDATE _sas.middleware m
    SET place = array_position(placed, array_position(ids, coalesce(o.middleware_id, m.middleware_id)))
    FROM _sas.middleware x LEFT JOIN _sas.middleware o ON o.phase = for_phase AND o.name = x.replaces
    WHERE x.middleware_id = m.middleware_id AND m.phase = for_phase;
END $$;

-- _sas.middleware_function(caller, f, path): the name under which a function (jsonb) returns jsonb is
-- stored.
CREATE FUNCTION _sas.middleware_function(caller oid, f regprocedure, path text) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    name text := _sas.function_text(f);
BEGIN
    IF f IS NULL THEN
        RETURN NULL;
    END IF;
    IF name IS NULL THEN
        RAISE EXCEPTION 'the function does not exist'
            USING ERRCODE = 'undefined_function', DETAIL = _sas.at(path),
            HINT = 'It takes one jsonb and returns jsonb.';
    ELSIF to_regprocedure(name || '(pg_catalog.jsonb)') IS DISTINCT FROM f THEN
        RAISE EXCEPTION 'function % does not take one jsonb', f
            USING ERRCODE = 'invalid_function_definition', DETAIL = _sas.at(path),
                HINT = 'It must be a plain function (context jsonb) that returns jsonb.';
    END IF;
    PERFORM _sas.raise(wrong) FROM _sas.check_function(to_jsonb(name), path, caller) wrong;
    RETURN name;
END $$;

-- _sas.middleware_facts(name, phase): the definition of a middleware, for the history; null: it does not
-- exist.
CREATE FUNCTION _sas.middleware_facts(name text, phase text) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('before', m.before_function, 'after', m.after_function, 'workflow', f.name,
                              'goes_before', m.goes_before, 'goes_after', m.goes_after,
                              'replaces', m.replaces)
    FROM _sas.middleware m LEFT JOIN _sas.workflow f USING (workflow_id)
    WHERE m.name = $1 AND m.phase = $2
$$;

-- _sas.record_middleware(caller, act, name, phase, old): records a change of a middleware in a phase. old:
-- its definition before.
CREATE FUNCTION _sas.record_middleware(caller oid, act text, name text, phase text, old jsonb) RETURNS void
LANGUAGE sql AS $$
    SELECT _sas.record_change(caller, act, jsonb_build_object('middleware', name, 'phase', phase), old,
                              _sas.middleware_facts(name, phase))
$$;

-- _sas.check_middleware_owner(caller, middleware_name, of_phase): raises an error if the middleware belongs
-- to a superuser and the caller is not one.
CREATE FUNCTION _sas.check_middleware_owner(caller oid, middleware_name text, of_phase text) RETURNS void
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF EXISTS (SELECT FROM _sas.middleware m
               WHERE m.name = middleware_name AND (of_phase IS NULL OR m.phase = of_phase)
                 AND NOT _sas.trusts(m.created_by, caller)) THEN
        RAISE EXCEPTION 'must be superuser to change middleware "%" of a superuser', middleware_name
            USING ERRCODE = 'insufficient_privilege', DETAIL = 'At /name.',
            HINT = 'Give yours another name. It cannot replace this one, either.';
    END IF;
END $$;

-- _sas.middleware_workflow(workflow): its id. It is not dropped until this transaction ends.
CREATE FUNCTION _sas.middleware_workflow(workflow text) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    id int;
BEGIN
    SELECT w.workflow_id INTO id FROM _sas.workflow w WHERE w.name = workflow AND w.dropped_at IS NULL
    FOR KEY SHARE;
    IF NOT FOUND THEN
        PERFORM _sas.refuse_missing('workflow', workflow, '/workflow', 'Leave it out for all workflows.');
    END IF;
    RETURN id;
END $$;

-- _sas.check_middleware_order(middleware_name, of_phase, goes_before, goes_after, replaces): may this
-- middleware stand at this place among the others of its phase? A replacement takes the place of the
-- original, and is not replaced itself. The caller holds the lock of the table.
CREATE FUNCTION _sas.check_middleware_order(middleware_name text, of_phase text, goes_before text[],
                                            goes_after text[], replaces text) RETURNS void
LANGUAGE plpgsql STABLE AS $$
DECLARE
    other text;
    place text;
BEGIN
    SELECT n.place INTO place FROM (VALUES ('/goes_before', $3), ('/goes_after', $4)) AS n (place, names)
    WHERE array_ndims(n.names) > 1 OR array_position(n.names, NULL) IS NOT NULL;
    IF FOUND THEN
        RAISE EXCEPTION '% is not a list of names', ltrim(place, '/')
            USING ERRCODE = 'invalid_parameter_value', DETAIL = _sas.at(place),
                HINT = 'Write it as {a,b}, without nulls and inner arrays.';
    END IF;
    SELECT u.name, u.place INTO other, place
    FROM (SELECT unnest($3), '/goes_before' UNION ALL SELECT unnest($4), '/goes_after'
          UNION ALL SELECT $5, '/replaces') AS u (name, place)
    WHERE u.name = $1
        OR NOT EXISTS (SELECT FROM _sas.middleware m WHERE m.phase = $2 AND m.name = u.name)
            AND u.name IS NOT NULL LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'there is no other middleware "%" in phase %', other, $2
            USING ERRCODE = 'undefined_object', DETAIL = _sas.at(place),
                HINT = 'See sas.middlewares for existing middlewares.';
    END IF;
    IF $5 IS NOT NULL AND cardinality($3 || $4) > 0 THEN
        RAISE EXCEPTION 'middleware "%" has the place of the one that it replaces', $1
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /replaces.',
                HINT = 'Omit goes_before and goes_after.';
    END IF;
    SELECT CASE WHEN m.name = $5 THEN m.name ELSE $1 END INTO other FROM _sas.middleware m
    WHERE $5 IS NOT NULL AND m.phase = $2 AND (m.name = $5 AND m.replaces IS NOT NULL OR m.replaces = $1);
    IF FOUND THEN
        RAISE EXCEPTION 'middleware "%" cannot both replace another and be replaced', other
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /replaces.',
                HINT = 'Name the original middleware.';
    END IF;
END $$;

-- _sas.create_middleware_as(caller, name, phase, ...): the body of sas.create_middleware: creates a
-- middleware, or replaces the one of that name and phase.
-- Locks: middleware, against other writers. Writes: middleware.
CREATE FUNCTION _sas.create_middleware_as(caller oid, name text, phase text, before regprocedure,
                                          after regprocedure, workflow text, goes_before text[],
                                          goes_after text[], replaces text)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    f int;
    old jsonb;
BEGIN
    PERFORM _sas.raise(wrong) FROM _sas.check_name($2, '/name') wrong;
    PERFORM _sas.raise(wrong)
    FROM _sas.check_choice(to_jsonb(coalesce($3, '')), '/phase', '{plan,call,function,finalize}') wrong;
    IF $4 IS NULL AND $5 IS NULL AND $9 IS NULL THEN
        RAISE EXCEPTION 'a middleware needs a function before or after'
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /before.',
            HINT = 'Only a middleware that replaces another may do nothing. It removes the other one.';
    END IF;
    IF $6 IS NOT NULL THEN
        f := _sas.middleware_workflow($6);
    END IF;
    LOCK TABLE _sas.middleware IN SHARE ROW EXCLUSIVE MODE;
    old := _sas.middleware_facts($2, $3);
    PERFORM _sas.check_middleware_order($2, $3, $7, $8, $9);
    PERFORM _sas.check_middleware_owner(caller, $2, $3);
    PERFORM _sas.check_middleware_owner(caller, $9, $3);
    INSERT INTO _sas.middleware AS m (name, phase, workflow_id, before_function, after_function, goes_before,
                                      goes_after, replaces, created_by, created_at)
    VALUES ($2, $3, f, _sas.middleware_function(caller, $4, '/before'),
            _sas.middleware_function(caller, $5, '/after'), coalesce($7, '{}'), coalesce($8, '{}'), $9,
            caller, sas.now())
    ON CONFLICT (phase, name) DO UPDATE
    SET workflow_id = EXCLUDED.workflow_id, before_function = EXCLUDED.before_function,
        after_function = EXCLUDED.after_function, goes_before = EXCLUDED.goes_before,
        goes_after = EXCLUDED.goes_after, replaces = EXCLUDED.replaces,
        created_by = EXCLUDED.created_by;
    PERFORM _sas.place_middleware($3);
    PERFORM _sas.record_middleware(caller, 'create_middleware', $2, $3, old);
END $$;

-- _sas.drop_middleware_as(caller, name, phase): the body of sas.drop_middleware. phase null: in all phases.
-- Raises an error if another middleware names it.
-- Locks: middleware, against other writers. Writes: middleware.
CREATE FUNCTION _sas.drop_middleware_as(caller oid, name text, phase text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    other text;
    old jsonb;
BEGIN
    LOCK TABLE _sas.middleware IN SHARE ROW EXCLUSIVE MODE;
    SELECT m.name INTO other FROM _sas.middleware m
    WHERE ($3 IS NULL OR m.phase = $3) AND m.name <> $2
        AND $2 = ANY (m.goes_before || m.goes_after || m.replaces)
      AND EXISTS (SELECT FROM _sas.middleware x WHERE x.phase = m.phase AND x.name = $2) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'middleware "%" is in use', $2
            USING ERRCODE = 'dependent_objects_still_exist',
                DETAIL = format('Middleware "%s" names it.', other), HINT = 'Change or drop that one first.';
    END IF;
    PERFORM _sas.check_middleware_owner(caller, $2, $3);
    SELECT jsonb_object_agg(m.phase, _sas.middleware_facts(m.name, m.phase)) INTO old
    FROM _sas.middleware m WHERE m.name = $2 AND ($3 IS NULL OR m.phase = $3);
    DELETE FROM _sas.middleware m WHERE m.name = $2 AND ($3 IS NULL OR m.phase = $3);
    IF NOT FOUND THEN
        PERFORM _sas.refuse_missing('middleware', $2, '/name',
                                    'See sas.middlewares for existing middlewares.');
    END IF;
    PERFORM _sas.place_middleware(x) FROM unnest('{plan,call,function,finalize}'::text[]) x WHERE $3 IS NULL
        OR x = $3;
    PERFORM _sas.record_middleware(caller, 'drop_middleware', $2, e.key, e.value) FROM jsonb_each(old) e;
END $$;

-- _sas.check_middleware(caller, workflow, is_child): raises an error if a middleware applies to runs of the
-- caller, and the role that created it may no longer call its functions, or no longer for others. A child run
-- waits for the latter, as open runs do: its parent is not undone for that.
CREATE FUNCTION _sas.check_middleware(caller oid, workflow text, is_child boolean) RETURNS void
LANGUAGE plpgsql STABLE AS $$
DECLARE
    m record;
BEGIN
    FOR m IN
        SELECT x.e ->> 'name' AS name, (x.e ->> 'owner')::oid AS owner, x.e -> 'before' AS before,
            x.e -> 'after' AS after, (x.e -> 'former')::boolean AS former
        FROM _sas.workflow f
        CROSS JOIN unnest('{plan,call,function,finalize}'::text[]) AS phase
        CROSS JOIN LATERAL jsonb_array_elements(_sas.middleware_chain(phase, f.workflow_id, caller)) AS x (e)
        WHERE f.name = workflow AND f.dropped_at IS NULL
    LOOP
        IF NOT EXISTS (SELECT FROM pg_roles r WHERE r.oid = m.owner) THEN
            RAISE EXCEPTION 'the role that created middleware "%" no longer exists', m.name
                USING ERRCODE = 'undefined_object', DETAIL = 'At /workflow.',
                    HINT = 'An admin can create it again, or drop it.';
        ELSIF m.former AND NOT is_child THEN
            RAISE EXCEPTION 'the role that created middleware "%" is no admin any more', m.name
                USING ERRCODE = 'insufficient_privilege', DETAIL = 'At /workflow.',
                    HINT = 'An admin can create it again, or drop it.';
        END IF;
        PERFORM _sas.raise(c)
        FROM unnest(ARRAY[m.before, m.after]) AS function
        CROSS JOIN LATERAL _sas.check_function(function, '/workflow', m.owner, true) c
        WHERE function <> 'null';
    END LOOP;
END $$;

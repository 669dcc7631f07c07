-- SPDX-License-Identifier: PostgreSQL
--
-- Check: small functions that find errors in a piece of a definition or an agent. Each returns problems:
-- the place as a JSON pointer, what is wrong, what to do, and the SQLSTATE.

-- _sas.moment(value): the instant that a rendered "until" means; null if it is none. A worker reads it as
-- the session that defined it would.
CREATE FUNCTION _sas.moment(value jsonb) RETURNS timestamptz
LANGUAGE plpgsql STABLE SET datestyle = iso, mdy AS $$
BEGIN
    RETURN CASE jsonb_typeof(value) WHEN 'string' THEN (value #>> '{}')::timestamptz END;
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END $$;

-- _sas.pointer(path, name): the JSON pointer one level deeper (RFC 6901).
CREATE FUNCTION _sas.pointer(path text, name text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT path || '/' || replace(replace(name, '~', '~0'), '/', '~1')
$$;

-- _sas.at(pointer): the DETAIL of an error: the place that a JSON pointer names.
CREATE FUNCTION _sas.at(pointer text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT format('At %s.', coalesce(nullif(pointer, ''), 'the top level'));
END;

-- _sas.numbered(given): the array with its elements numbered from 1, whatever dimensions and bounds it has.
CREATE FUNCTION _sas.numbered(given anyarray) RETURNS anyarray
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN array_ndims(given) = 1 AND array_lower(given, 1) = 1 OR given IS NULL THEN given
                ELSE ARRAY(SELECT u.e FROM unnest(given) WITH ORDINALITY AS u (e, n) ORDER BY u.n) END
$$;

-- _sas.matches_pattern(pattern, subject): does the subject match the pattern, in which * matches any
-- characters?
CREATE FUNCTION _sas.matches_pattern(pattern text, subject text) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT subject LIKE replace(regexp_replace(pattern, E'([\\\\%_])', E'\\\\\\1', 'g'), '*', '%')
$$;

-- _sas.check_bytes(bytes, most, pointer, what): raises an error if a value that is stored has more bytes
-- than "most". A value that belongs to many runs is stored once for each of them.
CREATE FUNCTION _sas.check_bytes(bytes bigint, most int, pointer text, what text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF bytes > most THEN
        RAISE EXCEPTION '% has more than % bytes', what, most
            USING ERRCODE = 'program_limit_exceeded', DETAIL = _sas.at(pointer),
            HINT = 'Store it in a table of yours, and name it here.';
    END IF;
END $$;

-- _sas.check_size(value, most, pointer, what, hint): the same for a value, which may not be too deep, either.
CREATE FUNCTION _sas.check_size(value jsonb, most int, pointer text, what text, hint text DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    size bigint := _sas.written_size(value, most);
BEGIN
    IF size > most THEN
        RAISE EXCEPTION '% has more than % bytes', what, most
            USING ERRCODE = 'program_limit_exceeded', DETAIL = _sas.at(pointer),
            HINT = coalesce(hint, 'Store it in a table of yours, and name it here.');
    ELSIF size IS NULL AND value IS NOT NULL THEN
        RAISE EXCEPTION '% has more than 5000 levels', what
            USING ERRCODE = 'program_limit_exceeded', DETAIL = _sas.at(pointer),
            HINT = 'Not every session could read the text of such a value.';
    END IF;
END $$;

-- _sas.check_input_size(input, pointer, what): raises an error if the input is larger than
-- sas.max_input_size.
CREATE FUNCTION _sas.check_input_size(input jsonb, pointer text, what text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM _sas.check_size(input, _sas.max_input_size(), pointer, what,
                            'See the setting sas.max_input_size.');
END $$;

-- _sas.check_definition_size(definition): a definition may have so many bytes as text, and as many levels
-- as other values.
CREATE FUNCTION _sas.check_definition_size(definition jsonb) RETURNS SETOF _sas.problem
LANGUAGE sql STABLE AS $$
    -- a value takes less than eight times as many bytes as its text, which is not made if that tells enough
    WITH w AS MATERIALIZED (SELECT _sas.written_size(definition, 2147483647) AS size)
    SELECT '', format('the definition has more than %s bytes', _sas.max_definition_size()),
           'See the setting sas.max_definition_size.', '54000'
    FROM w WHERE CASE WHEN w.size > 8::bigint * _sas.max_definition_size() THEN true
                      WHEN w.size > 0 THEN octet_length(definition::text) > _sas.max_definition_size() END
    UNION ALL
    SELECT '', 'the definition has more than 5000 levels', 'Not every session could read its text.', '54000'
    FROM w WHERE definition IS NOT NULL AND w.size IS NULL
$$;

-- _sas.check_name(name, path): names of agents, workflows, steps and queues must be plain.
CREATE FUNCTION _sas.check_name(name text, path text) RETURNS SETOF _sas.problem
LANGUAGE sql STABLE AS $$
    SELECT path, coalesce('"' || left(name, 80) || '" is not a valid name', 'the name must not be null'),
           'A name begins with a lower-case letter, continues with lower-case letters, digits and '
           'underscores, and has at most 63 bytes.', CASE WHEN name IS NULL THEN '22004' ELSE '42602' END
    WHERE name IS NULL OR name !~ '^[a-z][a-z0-9_]*$' OR octet_length(name) > 63
$$;

-- _sas.check_keys(value, path, keys): the value must be an object with these keys and no others.
CREATE FUNCTION _sas.check_keys(value jsonb, path text, keys text[]) RETURNS SETOF _sas.problem
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF jsonb_typeof(value) IS DISTINCT FROM 'object' THEN
        RETURN NEXT ROW(path,
                        format('expected an object, not %s', coalesce(jsonb_typeof(value), 'nothing')),
                        'Allowed keys: ' || array_to_string(keys, ', ') || '.', '22023')::_sas.problem;
        RETURN;
    END IF;
    RETURN QUERY
    SELECT _sas.pointer(path, k), format('unknown key "%s"', k),
           _sas.meant(k, keys) || 'Allowed keys: ' || array_to_string(keys, ', ') || '.', '22023'
    FROM jsonb_object_keys(value) k WHERE NOT k = ANY (keys);
END $$;

-- _sas.meant(word, names): the beginning of a hint, Did you mean "x"?, if one of the names is near to this
-- word; else an empty text.
CREATE FUNCTION _sas.meant(word text, names text[]) RETURNS text
LANGUAGE C STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'sas_api_meant';

-- _sas.refuse_missing(kind, name, place, hint, known, doubt): raises the error that no agent, queue ...
-- (kind) has this name, or that the name is null. place: the argument. known: names that may be meant.
-- doubt: what else may be the cause.
CREATE FUNCTION _sas.refuse_missing(kind text, name text, place text, hint text, known text[] DEFAULT '{}',
                                    doubt text DEFAULT '') RETURNS void
LANGUAGE sql
BEGIN ATOMIC
    SELECT CASE WHEN name IS NULL
           THEN _sas.refuse('22004', format('the %s must not be null', kind), _sas.at(place),
                            format('Name an existing %s.', kind))
           ELSE _sas.refuse('42704', format('%s "%s" does not exist%s', kind, name, doubt), _sas.at(place),
                            _sas.meant(name, known) || hint) END;
END;

-- _sas.span(value): the interval that a definition means; null if it is none. A worker reads it as the
-- session that defined it would.
CREATE FUNCTION _sas.span(value jsonb) RETURNS interval
LANGUAGE plpgsql STABLE SET intervalstyle = postgres AS $$
BEGIN
    IF jsonb_typeof(value) <> 'string' OR (value #>> '{}') !~ '[a-zA-Z]' THEN
        RETURN NULL;
    END IF;
    RETURN (value #>> '{}')::interval;
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END $$;

-- _sas.check_span(value, path, zero): the problem of a value that is no span of time of at most ten years;
-- zero: it may be 0. No row: a valid one, or a missing key.
CREATE FUNCTION _sas.check_span(value jsonb, path text, zero boolean DEFAULT false) RETURNS SETOF _sas.problem
LANGUAGE sql STABLE AS $$
    SELECT path, format('%s is not a valid span of time', left(value::text, 80)),
           'Write a positive number with a unit, such as "10 s" or "3 days", of at most ten years.', '22007'
    WHERE value IS NOT NULL AND (_sas.span(value) IS NULL OR _sas.span(value) < '0'
                                 OR _sas.span(value) > '10 years' OR NOT zero AND _sas.span(value) = '0')
$$;

-- _sas.check_number(value, path, low, high): the problem of a value that is no whole number from low to high.
-- No row: a valid one, or a missing key.
CREATE FUNCTION _sas.check_number(value jsonb, path text, low bigint, high bigint) RETURNS SETOF _sas.problem
LANGUAGE sql STABLE AS $$
    SELECT path, format('%s is not a whole number between %s and %s', left(value::text, 80), low, high),
        'Write a number without quotes and without a fraction.', '22023'
    WHERE value IS NOT NULL
      AND NOT CASE WHEN jsonb_typeof(value) = 'number' THEN scale(value::numeric) = 0
          AND value::numeric BETWEEN low AND high ELSE false END
$$;

-- _sas.check_choice(value, path, choices): the problem of a value that is none of these strings. No row: a
-- valid one, or a missing key.
CREATE FUNCTION _sas.check_choice(value jsonb, path text, choices text[]) RETURNS SETOF _sas.problem
LANGUAGE sql STABLE AS $$
    SELECT path, format('%s is not one of the choices', left(value::text, 80)),
        _sas.meant(value #>> '{}', choices) || 'Choose one of: ' || array_to_string(choices, ', ') || '.',
        '22023'
    WHERE value IS NOT NULL AND (jsonb_typeof(value) <> 'string' OR NOT (value #>> '{}') = ANY (choices))
$$;

-- _sas.check_boolean(value, path): the problem of a value that is neither true nor false. No row: a valid
-- one, or a missing key.
CREATE FUNCTION _sas.check_boolean(value jsonb, path text) RETURNS SETOF _sas.problem
LANGUAGE sql STABLE AS $$
    SELECT path, format('%s is neither true nor false', left(value::text, 80)),
        'Write true or false, without quotes.', '22023'
    WHERE value IS NOT NULL AND jsonb_typeof(value) <> 'boolean'
$$;

-- _sas.check_pauses(value, path, counter): checks retry (counter max_attempts) or recovery (counter
-- max_failures).
CREATE FUNCTION _sas.check_pauses(value jsonb, path text, counter text) RETURNS SETOF _sas.problem
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF value IS NULL THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT * FROM _sas.check_keys(value, path,
                                               ARRAY[counter, 'pauses', 'initial', 'max', 'backoff', 'jitter']
                                               || CASE counter WHEN 'max_attempts' THEN ARRAY['on']
                                                   ELSE '{}' END);
    IF jsonb_typeof(value) = 'object' THEN
        RETURN QUERY
        SELECT * FROM _sas.check_number(value -> counter, _sas.pointer(path, counter), 1, 1000000)
        UNION ALL SELECT * FROM _sas.check_pause_list(value, path || '/pauses')
        UNION ALL SELECT * FROM _sas.check_span(value -> 'initial', path || '/initial')
        UNION ALL SELECT * FROM _sas.check_span(value -> 'max', path || '/max')
        UNION ALL SELECT * FROM _sas.check_choice(value -> 'backoff', path || '/backoff',
                                                  '{exponential,linear,constant}')
        UNION ALL SELECT * FROM _sas.check_boolean(value -> 'jitter', path || '/jitter')
        UNION ALL
        SELECT w.place, coalesce(w.item || ' is neither a status nor an SQLSTATE',
                                 'expected an array of statuses or SQLSTATEs'),
            'Write them as numbers or strings, such as 409, "5xx" or "40001".', '22023'
        FROM _sas.wrong_items(value -> 'on', '^([1-5]([0-9][0-9]|xx)|[0-9A-Z]{5})$', path || '/on') w
        WHERE value -> 'on' <> '[]';
    END IF;
END $$;

-- _sas.wrong_items(value, pattern, path): the place of each element of the array whose text does not match;
-- of a value that is no array, or of an empty one, its own place, and no item.
CREATE FUNCTION _sas.wrong_items(value jsonb, pattern text, path text)
RETURNS TABLE (place text, item text)
LANGUAGE sql IMMUTABLE AS $$
    SELECT path, NULL WHERE value IS NOT NULL AND (jsonb_typeof(value) <> 'array' OR value = '[]')
    UNION ALL
    (SELECT path || '/' || e.n - 1, left(e.value::text, 80)
     FROM jsonb_array_elements(CASE jsonb_typeof(value) WHEN 'array' THEN value ELSE '[]' END)
         WITH ORDINALITY AS e (value, n)
     WHERE (e.value #>> '{}' ~ pattern) IS NOT TRUE ORDER BY e.n)
$$;

-- _sas.check_pause_list(value, path): checks "pauses" of retry or recovery: a list of pauses, instead of
-- initial, max and backoff.
CREATE FUNCTION _sas.check_pause_list(value jsonb, path text) RETURNS SETOF _sas.problem
LANGUAGE sql STABLE AS $$
    SELECT path, 'expected an array of 1 to 100 spans of time',
        'Write the pauses in their order, such as ["1 s", "10 s", "1 min"].', '22023'
    WHERE value ? 'pauses' AND CASE jsonb_typeof(value -> 'pauses')
          WHEN 'array' THEN jsonb_array_length(value -> 'pauses') NOT BETWEEN 1 AND 100 ELSE true END
    UNION ALL
    SELECT c.*
    FROM jsonb_array_elements(CASE jsonb_typeof(value -> 'pauses') WHEN 'array' THEN value -> 'pauses'
                              ELSE '[]' END) WITH ORDINALITY AS e (pause, n)
    CROSS JOIN LATERAL _sas.check_span(e.pause, path || '/' || e.n - 1, true) c
    UNION ALL
    SELECT path, format('"pauses" and "%s" exclude each other', k),
        'Write the pauses one by one, or how they are computed.', '22023'
    FROM unnest('{initial,max,backoff}'::text[]) k WHERE value ? 'pauses' AND value ? k
$$;

-- _sas.check_task(value, path): a task has no keys of its own; its description is its input.
CREATE FUNCTION _sas.check_task(value jsonb, path text) RETURNS SETOF _sas.problem
LANGUAGE sql STABLE AS $$
    SELECT c.path, c.problem, 'Write "task": {} and put the input of the worker under "input".', c.code
    FROM _sas.check_keys(value, path, '{}') c
$$;

-- _sas.check_task_retry(value, path): attempts of outside programs have no statuses to retry on.
CREATE FUNCTION _sas.check_task_retry(value jsonb, path text) RETURNS SETOF _sas.problem
LANGUAGE sql STABLE AS $$
    SELECT path || '/on', 'a task cannot retry on statuses',
        'Leave it out. The argument "permanent" of sas.fail decides whether to try again.', '22023'
    WHERE jsonb_typeof(value) = 'object' AND value ? 'on'
$$;

-- _sas.check_on_failure(value, path, maps): checks "on_failure". maps: it belongs to a map, which may run
-- through first.
CREATE FUNCTION _sas.check_on_failure(value jsonb, path text, maps boolean DEFAULT false)
RETURNS SETOF _sas.problem
LANGUAGE plpgsql STABLE AS $$
DECLARE
    choices text[] := CASE WHEN maps THEN '{compensate,pause,pause_at_end,skip,fail}'
                      ELSE '{compensate,pause,skip,fail}' END;
BEGIN
    IF jsonb_typeof(value) = 'object' THEN
        RETURN QUERY
        SELECT * FROM _sas.check_keys(value, path, '{transient,permanent}')
        UNION ALL SELECT * FROM _sas.check_choice(value -> 'transient', path || '/transient', choices)
        UNION ALL SELECT * FROM _sas.check_choice(value -> 'permanent', path || '/permanent', choices);
    ELSE
        RETURN QUERY SELECT * FROM _sas.check_choice(value, path, choices);
    END IF;
END $$;

-- _sas.is_qualified(name): it is a schema and a name in it, as SQL writes them. A quote inside a quoted
-- name is doubled.
CREATE FUNCTION _sas.is_qualified(name text) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT name ~ E'^("([^"]|"")+"|[[:alpha:]_][\\w$]*)\\.("([^"]|"")+"|[[:alpha:]_][\\w$]*)$'
$$;

-- _sas.check_function(value, path, caller, void_too): the value must name a function(jsonb) that the caller
-- may call. It must return jsonb, or, with void_too, void: nobody needs its result.
CREATE FUNCTION _sas.check_function(value jsonb, path text, caller oid, void_too boolean DEFAULT false)
RETURNS SETOF _sas.problem
LANGUAGE plpgsql STABLE AS $$
DECLARE
    found oid;
BEGIN
    IF jsonb_typeof(value) <> 'string' OR NOT _sas.is_qualified(value #>> '{}') THEN
        RETURN NEXT ROW(path, format('%s is not the name of a function', left(value::text, 80)),
                        'Write it with its schema and without arguments, such as "shop.book_order".',
                        '42602')::_sas.problem;
        RETURN;
    END IF;
    found := to_regprocedure((value #>> '{}') || '(pg_catalog.jsonb)');
    -- users cannot name functions that replace others, such as _sas.through_middleware
    IF found IS NULL OR EXISTS (SELECT FROM pg_proc p WHERE p.oid = found
                                AND p.pronamespace = '_sas'::regnamespace) THEN
        RETURN NEXT ROW(path, format('function %s(jsonb) does not exist', value #>> '{}'),
                        'Create it before the workflow: it takes one jsonb and returns jsonb.',
                        '42883')::_sas.problem;
    ELSIF EXISTS (SELECT FROM pg_proc p WHERE p.oid = found
                  AND (p.proretset OR p.prokind <> 'f'
                       OR p.prorettype <> 'jsonb'::regtype
                          AND NOT (void_too AND p.prorettype = 'void'::regtype))) THEN
        RETURN NEXT ROW(path, format('function %s(jsonb) does not return jsonb', value #>> '{}'),
                        CASE WHEN void_too THEN 'It must be a plain function that returns jsonb or void.'
                        ELSE 'It must be a plain function that returns jsonb.' END, '42P13')::_sas.problem;
    ELSIF NOT has_function_privilege(caller, found, 'EXECUTE')
          OR NOT has_schema_privilege(caller, (SELECT p.pronamespace FROM pg_proc p WHERE p.oid = found),
                                      'USAGE') THEN
        RETURN NEXT ROW(path, format('permission denied for function %s(jsonb)', value #>> '{}'),
                        format('Grant EXECUTE on it, and USAGE on its schema, to role "%s".',
                               pg_get_userbyid(caller)), '42501')::_sas.problem;
    ELSIF _sas.is_superuser(caller) AND _sas.function_distrust(found, caller) IS NOT NULL THEN
        RETURN NEXT ROW(path, format('function %s(jsonb) %s', value #>> '{}',
                                     _sas.function_distrust(found, caller)),
                        format('It would run with the rights of superuser "%s". Change its owner, its schema '
                               'or its search_path, or do this as another role.', pg_get_userbyid(caller)),
                        '42501')::_sas.problem;
    END IF;
END $$;

-- _sas.check_headers(value, path): checks the headers of a call. Many servers take _ in a name for -. Few
-- take more than a hundred headers; a worker compares each with those before it (src/work/request.c).
CREATE FUNCTION _sas.check_headers(value jsonb, path text) RETURNS SETOF _sas.problem
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF value IS NULL THEN
        RETURN;
    END IF;
    IF jsonb_typeof(value) <> 'object' THEN
        RETURN NEXT ROW(path, 'expected an object of header names and values',
                        'Write it as {"X-Name": "value"}.', '22023')::_sas.problem;
        RETURN;
    ELSIF (SELECT count(*) > 1000 FROM jsonb_object_keys(value)) THEN
        RETURN NEXT ROW(path, 'there are more than 1000 headers', 'Send in the body what is much.',
                        '54000')::_sas.problem;
        RETURN;
    END IF;
    RETURN QUERY
    SELECT _sas.pointer(path, h.key),
           CASE WHEN jsonb_typeof(h.value) <> 'string' THEN 'the value of a header must be a string'
                WHEN h.key !~ '^[!#$%&''*+.^_`|~0-9A-Za-z-]+$' THEN 'invalid name of a header'
                WHEN n.name IN ('host', 'content-length', 'transfer-encoding', 'connection', 'expect',
                                'idempotency-key', 'traceparent')
                    THEN 'this header is set by sas'
                WHEN n.name IN ('keep-alive', 'proxy-connection', 'upgrade', 'http2-settings', 'trailer',
                                'proxy-authorization')
                    THEN 'this header is about the connection, which sas makes'
                WHEN n.name IN ('accept-encoding', 'te', 'a-im')
                    THEN 'an answer must not be encoded: secrets in it could not be masked'
                ELSE 'the value of a header must not contain control characters' END,
           'See RFC 9110, section 5, for what a header may look like.', '22023'
    FROM jsonb_each(value) h
    CROSS JOIN LATERAL (SELECT replace(lower(h.key), '_', '-') AS name) n
    WHERE jsonb_typeof(h.value) <> 'string'
       OR h.key !~ '^[!#$%&''*+.^_`|~0-9A-Za-z-]+$'
       OR n.name IN ('host', 'content-length', 'transfer-encoding', 'connection', 'expect',
                     'idempotency-key', 'traceparent', 'keep-alive', 'proxy-connection', 'upgrade',
                     'http2-settings', 'trailer', 'proxy-authorization')
       OR n.name IN ('accept-encoding', 'te', 'a-im') AND h.value #>> '{}' <> 'identity'
       OR (h.value #>> '{}') ~ E'[\\x01-\\x08\\x0a-\\x1f\\x7f]';
END $$;

-- _sas.check_path(predicate, path, name, example): reports a predicate that is malformed, or refused
-- because of its possible cost.
CREATE FUNCTION _sas.check_path(predicate text, path text, name text, example text)
RETURNS SETOF _sas.problem
LANGUAGE sql STABLE AS $$
    SELECT $2, format(CASE WHEN bad.hint IS NULL THEN '%s is not a predicate: %s' ELSE '%s: %s' END, $3,
                      bad.problem),
        coalesce(bad.hint, format('Write an SQL/JSON path predicate, such as "%s".', $4)),
        CASE WHEN bad.hint IS NULL THEN '42601' ELSE '0A000' END
    FROM _sas.predicate_problem($1) bad
    WHERE bad.problem IS NOT NULL
$$;

-- _sas.check_expect(value, path, kind): checks "expect" of a step.
CREATE FUNCTION _sas.check_expect(value jsonb, path text, kind text) RETURNS SETOF _sas.problem
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF value IS NULL THEN
        RETURN;
    ELSIF jsonb_typeof(value) = 'string' THEN
        RETURN QUERY SELECT * FROM _sas.check_path(value #>> '{}', path, 'expect',
                                                   '$.output.body.ok == true');
        RETURN;
    END IF;
    RETURN QUERY
    SELECT w.place, coalesce(w.item || ' is not a status',
                             'expect must be a predicate, or for a call an array of statuses'),
        'Write statuses as numbers or strings, such as 200, "2xx" or "404".', '22023'
    FROM _sas.wrong_items(CASE kind WHEN 'call' THEN value ELSE '{}' END, '^[1-5]([0-9][0-9]|xx)$', path) w;
END $$;

-- _sas.check_call(value, path): checks "call" of a step.
CREATE FUNCTION _sas.check_call(value jsonb, path text) RETURNS SETOF _sas.problem
LANGUAGE plpgsql STABLE AS $$
DECLARE
    target text := value ->> 'path';
BEGIN
    RETURN QUERY SELECT * FROM _sas.check_keys(value, path,
                                               '{method,path,query,headers,body,form,text,timeout}');
    IF jsonb_typeof(value) IS DISTINCT FROM 'object' THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT * FROM _sas.check_choice(value -> 'method', path || '/method',
                                                 '{GET,HEAD,POST,PUT,PATCH,DELETE,OPTIONS}');
    RETURN QUERY SELECT * FROM _sas.check_headers(value -> 'headers', path || '/headers');
    RETURN QUERY SELECT * FROM _sas.check_span(value -> 'timeout', path || '/timeout');
    IF value ? 'path' AND jsonb_typeof(value -> 'path') <> 'string' THEN
        RETURN NEXT ROW(path || '/path', 'the path must be a string',
                        'A path is empty, begins with / or ?, or is one whole reference.',
                        '22023')::_sas.problem;
    ELSIF target <> '' AND target !~ '^[/?]' AND target !~ E'^\\{\\{[^{}]*\\}\\}$' THEN
        RETURN NEXT ROW(path || '/path', 'the path would leave the origin of the agent',
                        'A path is empty, begins with / or ?, or is one whole reference.',
                        '22023')::_sas.problem;
    ELSIF target ~ '^//' OR _sas.path_has_dot_segment(target)
          OR target ~ E'[\\x01-\\x20\\x7f\\\\#]'
             AND regexp_replace(target, E'\\{\\{.*?\\}\\}', '', 'g') ~ E'[\\x01-\\x20\\x7f\\\\#]' THEN
        RETURN NEXT ROW(path || '/path', 'the path would leave the origin of the agent, or is not a path',
                        'Leave out dot segments, double slashes at the start, spaces, backslashes and '
                        'fragments.', '22023')::_sas.problem;
    END IF;
    IF value ? 'query' AND jsonb_typeof(value -> 'query') <> 'object' THEN
        RETURN NEXT ROW(path || '/query', 'expected an object of parameters',
                        'Write it as {"name": "value"}.', '22023')::_sas.problem;
    END IF;
    IF (value ? 'body')::int + (value ? 'form')::int + (value ? 'text')::int > 1 THEN
        RETURN NEXT ROW(path, 'a call has at most one of body, form and text', 'Leave out all but one.',
                        '22023')::_sas.problem;
    END IF;
    RETURN QUERY
    SELECT path || '/' || k.key, format('%s must be %s', k.key, k.kind),
           'For anything else use body, which is sent as JSON.', '22023'
    FROM (VALUES ('form', 'an object', 'object'), ('text', 'a string', 'string')) AS k (key, kind, type)
    WHERE jsonb_typeof(value -> k.key) <> k.type;
END $$;

-- _sas.raise(p): raises this problem as an error.
CREATE FUNCTION _sas.raise(p _sas.problem) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%', p.problem
        USING ERRCODE = p.code, DETAIL = _sas.at(p.path), HINT = coalesce(p.hint, '');
END $$;

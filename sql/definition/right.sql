-- SPDX-License-Identifier: PostgreSQL
--
-- Rights on agents: which role may ask what of which agent. A run asks as its owner.
--
-- The right is checked when a workflow or watcher is defined, when a run is submitted, and when a step is
-- claimed. What follows from a step that has begun is never refused at its claim: undos, status requests of
-- polls, and a call that is repeated because its outcome is in doubt. Therefore the definition must say
-- completely what an undo or poll asks.

-- _sas.agent_uses(definition, nodes): what the steps and hooks of a definition ask of agents, each use
-- once. Malformed steps are left out. Agents that the input names are checked when the run is planned.
CREATE FUNCTION _sas.agent_uses(definition jsonb, nodes _sas.flow_node[]) RETURNS SETOF _sas.agent_use
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY
    WITH fit AS MATERIALIZED (
        SELECT ARRAY(SELECT n FROM unnest(nodes) n
                     WHERE n.kind = 'step' AND jsonb_typeof(n.body) = 'object'
                       AND coalesce(jsonb_typeof(n.body -> 'undo'), 'object') = 'object'
                       AND coalesce(jsonb_typeof(n.body -> 'fallback'), 'object') = 'object'
                       AND coalesce(jsonb_typeof(n.body #> '{fallback,undo}'), 'object') = 'object')
               AS nodes),
    asked AS (
        SELECT n.path || CASE WHEN n.scope = 1
                THEN concat(CASE WHEN b.of_no IS NOT NULL THEN '/fallback' END,
                            CASE WHEN b.undo THEN '/undo' END, c.place) ELSE '' END AS place,
            b.part ->> 'agent' AS agent, c.call, NOT b.undo AND c.place <> '/poll/call' AS late
        FROM fit
        CROSS JOIN LATERAL _sas.step_bodies(fit.nodes) b
        JOIN unnest(fit.nodes) n ON n.no = coalesce(b.of_no, b.no)
        CROSS JOIN LATERAL (VALUES ('/call', b.part -> 'call'),
                            ('/task', CASE WHEN b.part ? 'task' THEN 'null'::jsonb END),
                            ('/poll/call', b.part #> '{poll,call}')) AS c (place, call)
        WHERE c.call IS NOT NULL
        UNION ALL
        SELECT '/hooks/' || h.n - 1 || '/call', h.hook ->> 'agent', h.hook -> 'call', true
        FROM jsonb_array_elements(CASE jsonb_typeof(definition -> 'hooks')
                                  WHEN 'array' THEN definition -> 'hooks' END)
            WITH ORDINALITY AS h (hook, n)
        WHERE jsonb_typeof(h.hook) = 'object' AND h.hook ? 'call')
    SELECT DISTINCT ON (u.agent_id, u.method, u.path, u.more, u.late, u.other_method, u.other_path) u.*
    FROM asked a
    JOIN _sas.agent g ON g.name = a.agent AND g.dropped_at IS NULL
    CROSS JOIN LATERAL _sas.make_use(a.place, g.agent_id, g.name, a.call, a.late) u
    ORDER BY u.agent_id, u.method, u.path, u.more, u.late, u.other_method, u.other_path, u.place;
END $$;

-- _sas.other_method(call): by what a service may take another method than that of the request: a header, or a
-- parameter; null: by nothing. PHP takes some characters in the name of a parameter for _.
CREATE FUNCTION _sas.other_method(call jsonb) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT min(format('%s "%s"', n.part, n.name))
    FROM (SELECT 'header' AS part, h AS name
          FROM jsonb_object_keys(CASE jsonb_typeof(call -> 'headers') WHEN 'object' THEN call -> 'headers'
                                 ELSE '{}' END) h
          WHERE replace(lower(h), '_', '-') IN ('x-http-method', 'x-http-method-override',
                                                'x-method-override')
          UNION ALL
          SELECT 'parameter', p
          FROM unnest(ARRAY[call -> 'query', call -> 'form']) o
          CROSS JOIN LATERAL jsonb_object_keys(CASE jsonb_typeof(o) WHEN 'object' THEN o ELSE '{}' END) p
          WHERE regexp_replace(ltrim(lower(p)), '[ .[]', '_', 'g') LIKE E'\\_method%'
          UNION ALL
          SELECT 'parameter', '_method'
          WHERE call ->> 'path' ~* (E'[?&;](%20|\\+)*(_|%5f|[.+[]|%2e|%20|%5b)(m|%6d|%4d)(e|%65|%45)'
                                    '(t|%74|%54)(h|%68|%48)(o|%6f|%4f)(d|%64|%44)')) n
$$;

-- _sas.other_path(call): the same for a path: the header.
CREATE FUNCTION _sas.other_path(call jsonb) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT min(format('header "%s"', h))
    FROM jsonb_object_keys(CASE jsonb_typeof(call -> 'headers') WHEN 'object' THEN call -> 'headers'
                           ELSE '{}' END) h
    WHERE replace(lower(h), '_', '-') IN ('x-original-url', 'x-original-uri', 'x-rewrite-url',
                                          'x-forwarded-uri')
$$;

-- _sas.make_use(place, agent_id, agent, call, late): what a call asks of that agent; call 'null': a task. The
-- path of an undo or poll that is one whole reference may have any parameter.
CREATE FUNCTION _sas.make_use(place text, agent_id int, agent text, call jsonb, late boolean)
RETURNS _sas.agent_use
LANGUAGE sql IMMUTABLE AS $$
    SELECT ROW(place, agent_id, agent,
               CASE WHEN call <> 'null'
                   THEN coalesce(call ->> 'method', CASE WHEN call ?| '{body,form,text}' THEN 'POST'
                                                    ELSE 'GET' END) END,
               CASE WHEN call <> 'null' THEN split_part(coalesce(call ->> 'path', ''), '{{', 1) END,
               coalesce(strpos(call ->> 'path', '{{') > 0, false), late,
               coalesce(_sas.other_method(call), CASE WHEN NOT late AND call ->> 'path' LIKE '{{%'
                                                 THEN 'path "{{...}}"' END),
               _sas.other_path(call))::_sas.agent_use
$$;

-- _sas.is_below(path, granted, more): is the path the granted one, or below it by whole segments? more: a
-- value is appended to the path. No value can form a segment of dots.
CREATE FUNCTION _sas.is_below(path text, granted text, more boolean) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT starts_with(path, granted)
        AND (granted LIKE '%/' OR length(path) = length(granted) AND NOT more
             OR substr(path, length(granted) + 1, 1) IN ('/', '?'))
$$;

-- _sas.covers(methods, paths, u): does such a grant allow this use?
CREATE FUNCTION _sas.covers(methods text[], paths text[], u _sas.agent_use) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT (methods IS NULL OR u.other_method IS NULL AND coalesce(u.method = ANY (methods), true))
        AND (paths IS NULL OR u.path IS NULL
             OR u.other_path IS NULL
                AND EXISTS (SELECT FROM unnest(paths) p WHERE _sas.is_below(u.path, p, u.more)
                            OR u.late AND u.more AND starts_with(p, u.path)))
$$;

-- _sas.uncovered_use(u, method, whole): the error of a use that no grant of the role covers; method: one
-- covers its method; whole: one would cover it, if the service did not look elsewhere.
CREATE FUNCTION _sas.uncovered_use(u _sas.agent_use, method boolean, whole boolean) RETURNS _sas.problem
LANGUAGE sql IMMUTABLE AS $$
    SELECT ROW(
        u.place,
        format('permission denied for %s of agent "%s"',
               CASE WHEN whole THEN coalesce(u.other_method, u.other_path)
                    WHEN method THEN format('path "%s"', left(u.path, 200)
                                                         || CASE WHEN u.more THEN '{{...}}' ELSE '' END)
                    ELSE format('method %s', u.method) END, u.agent),
        CASE WHEN u.more AND NOT u.late AND (whole OR method)
             THEN 'What an undo or poll asks is not checked later: write a granted path, and a slash, before '
                  'the first reference.'
             WHEN whole THEN 'A service may take another method or path from it. See sas.grants for what is '
                             'granted.'
             ELSE 'See sas.grants for what is granted.' END, '42501')::_sas.problem
$$;

-- _sas.check_uses(caller, uses): errors for those of these uses that this role may not make.
CREATE FUNCTION _sas.check_uses(caller oid, uses _sas.agent_use[]) RETURNS SETOF _sas.problem
LANGUAGE plpgsql STABLE AS $$
DECLARE
    u _sas.agent_use;
    plain _sas.agent_use;
    granted record;
BEGIN
    IF cardinality(uses) = 0 OR _sas.has_level(caller, 'admin') THEN
        RETURN;
    END IF;
    FOREACH u IN ARRAY uses LOOP
        plain := u;
        plain.other_method := NULL;
        plain.other_path := NULL;
        SELECT count(*) AS n, bool_or(_sas.covers(g.methods, g.paths, u)) AS covers,
            bool_or(_sas.covers(g.methods, NULL, plain)) AS method,
            bool_or(_sas.covers(g.methods, g.paths, plain)) AS whole INTO granted
        FROM _sas.agent_grants(u.agent_id) g WHERE _sas.may_stand_for(caller, g.role);
        CONTINUE WHEN granted.covers;
        IF granted.n = 0 THEN
            RETURN NEXT ROW(u.place, format('permission denied for agent "%s"', u.agent),
                            format('An admin can grant it: SELECT sas.grant_agent(%L, %L).', u.agent,
                                   caller::regrole), '42501')::_sas.problem;
        ELSE
            RETURN NEXT _sas.uncovered_use(u, granted.method, granted.whole);
        END IF;
    END LOOP;
END $$;

-- _sas.read_agent_right(for_role, for_agent): what _sas.agent_right caches. It is volatile, so that it sees
-- what was committed before the invalidation arrived.
CREATE FUNCTION _sas.read_agent_right(for_role oid, for_agent int) RETURNS "char"
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (SELECT CASE WHEN _sas.has_level(for_role, 'admin')
                       OR bool_or(g.methods IS NULL AND g.paths IS NULL) THEN 'a'
                   WHEN count(*) > 0 THEN 's' ELSE 'n' END
            FROM _sas.agent_grants(for_agent) g WHERE _sas.may_stand_for(for_role, g.role));
END $$;

-- _sas.refused_call(role, c, for_agent, step, request): the error of the step if this call, or with a null
-- request this task, must not be made. Null if the role may make it, or if it settles a call in doubt.
-- for_agent: given, because a test claims it in another lane.
CREATE FUNCTION _sas.refused_call(role oid, c _sas.claimed, for_agent int, step text, request jsonb)
RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    a _sas.agent;
    p _sas.problem;
BEGIN
    IF c.from_state <> 'none' AND EXISTS (SELECT FROM _sas.step s WHERE s.run_id = c.run_id
                                          AND s.step_no = c.step_no AND s.element = c.element
                                          AND (s.in_doubt OR s.asks IS NOT NULL)) THEN
        RETURN NULL;
    END IF;
    SELECT * INTO a FROM _sas.agent x WHERE x.agent_id = for_agent;
    p := _sas.refused_request(role, a, request);
    IF p.problem IS NULL THEN
        RETURN NULL;
    END IF;
    RETURN jsonb_build_object('path', 'agent', 'what', p.problem, 'error',
                              _sas.problem_object('sqlstate:42501', p.problem, NULL, NULL, c.run_id, step)
                              || jsonb_build_object('hint', p.hint));
END $$;

-- _sas.call_problem(problem, role, c, for_agent, step, request, asks): why a claimed call cannot be made:
-- its own problem, else what the role may not do. asks: it is the status request of a poll. The planner
-- inlines it.
CREATE FUNCTION _sas.call_problem(problem jsonb, role oid, c _sas.claimed, for_agent int, step text,
                                  request jsonb, asks boolean) RETURNS jsonb
LANGUAGE sql AS $$
    SELECT CASE WHEN problem IS NOT NULL OR c.undo OR asks OR _sas.agent_right(role, for_agent) = 'a'
           THEN problem
           ELSE _sas.refused_call(role, c, for_agent, step, request) END
$$;

-- _sas.refused_request(role, a, request): why the role must not send this request. Of a full URL, the part
-- after the base_url is compared.
CREATE FUNCTION _sas.refused_request(role oid, a _sas.agent, request jsonb) RETURNS _sas.problem
LANGUAGE sql STABLE AS $$
    SELECT p FROM _sas.check_uses(role, ARRAY[
        ROW('', a.agent_id, a.name, request ->> 'method',
            CASE WHEN request IS NOT NULL
                THEN CASE WHEN starts_with(request ->> 'path', a.base_url)
                        THEN substr(request ->> 'path', length(a.base_url) + 1)
                        ELSE coalesce(request ->> 'path', '') END END,
            false, true, _sas.other_method(request), _sas.other_path(request))::_sas.agent_use]) p LIMIT 1
$$;

-- _sas.check_watch_use(caller, for_agent, watcher_kind, request): errors if this role may not ask of its
-- agent what a watcher asks. The whole path is checked when its tasks are hosted.
CREATE FUNCTION _sas.check_watch_use(caller oid, for_agent int, watcher_kind text, request jsonb)
RETURNS SETOF _sas.problem
LANGUAGE sql STABLE AS $$
    SELECT p.*
    FROM _sas.agent a
    CROSS JOIN LATERAL _sas.check_uses(caller, ARRAY[_sas.make_use(
        CASE watcher_kind WHEN 'poll' THEN '/poll/call' ELSE '/' || watcher_kind END, a.agent_id, a.name,
        CASE WHEN watcher_kind IN ('stream', 'poll') AND jsonb_typeof(request) = 'object' THEN request
        ELSE 'null' END,
        true)]) p
    WHERE a.agent_id = for_agent
$$;

-- _sas.check_granted(a, methods, paths): errors of such a grant.
CREATE FUNCTION _sas.check_granted(a _sas.agent, methods text[], paths text[]) RETURNS SETOF _sas.problem
LANGUAGE sql STABLE AS $$
    SELECT '/' || g.name, format('an external agent has no %s', g.name), 'Leave it out.', '22023'
    FROM (VALUES ('methods', methods IS NOT NULL), ('paths', paths IS NOT NULL)) AS g (name, given)
    WHERE g.given AND a.kind = 'external'
    UNION ALL
    SELECT w.place, coalesce(w.item || ' is not a method in capital letters',
                             'methods must be an array of methods in capital letters'),
        'Write such as {GET,POST}. Leave it out for all methods.', '22023'
    FROM _sas.wrong_items(to_jsonb(methods), '^(GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS)$', '/methods') w
    UNION ALL
    SELECT '/paths', 'paths must be an array of paths that begin with /',
        'A path stands for itself and all below it, such as "/orders". Leave it out for all paths.', '22023'
    WHERE cardinality(paths) = 0 OR array_ndims(paths) > 1
    UNION ALL
    -- a grant of "/orders/*", where * stands for nothing, would allow no call
    SELECT '/paths/' || e.n - 1,
        CASE WHEN e.p ~ '/[*]+(/|$)' THEN format('path "%s" has a wildcard', e.p)
             ELSE format('%s is not a path such as "/orders"', coalesce(to_json(left(e.p, 80)), 'null')) END,
        CASE WHEN e.p ~ '/[*]+(/|$)'
             THEN 'A path stands for itself and all below it: write "/orders", not "/orders/*".'
             ELSE 'A path stands for itself and all below it, such as "/orders". '
                  'Leave it out for all paths.' END, '22023'
    FROM unnest(paths) WITH ORDINALITY AS e (p, n)
    WHERE array_ndims(paths) = 1
      AND (e.p IS NULL OR e.p !~ E'^/[^{}?#\\\\ \\x01-\\x1f\\x7f]*$' OR e.p LIKE '//%'
           OR _sas.path_has_dot_segment(e.p) OR e.p ~ '/[*]+(/|$)')
$$;

-- SPDX-License-Identifier: PostgreSQL
--
-- Options of an agent: what they may contain.

-- _sas.size_bytes(size): the bytes of a size such as '8 MB'; null if it is malformed.
CREATE FUNCTION _sas.size_bytes(size text) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN CASE WHEN pg_size_bytes(size) BETWEEN 1 AND 1073741824 THEN pg_size_bytes(size) END;
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END $$;

-- _sas.check_agent_options(options): errors of the options of an agent.
CREATE FUNCTION _sas.check_agent_options(options jsonb) RETURNS SETOF _sas.problem
LANGUAGE sql STABLE AS $$
    SELECT * FROM _sas.check_keys(options, '/options',
            '{follow_redirects,http_version,max_response,max_streams,connect_timeout,ca_file,cert,proxy,'
            'query,sign,oauth2,keep,concurrency}')
    UNION ALL SELECT * FROM _sas.check_boolean(options -> 'follow_redirects', '/options/follow_redirects')
    UNION ALL SELECT * FROM _sas.check_choice(options -> 'http_version', '/options/http_version', '{1.1,2}')
    UNION ALL SELECT * FROM _sas.check_span(options -> 'connect_timeout', '/options/connect_timeout')
    UNION ALL SELECT * FROM _sas.check_number(options -> 'max_streams', '/options/max_streams', 0, 1000000)
    UNION ALL SELECT '/options/max_response', 'max_response must be a size',
        'Write a size with a unit, such as "8 MB".', '22023'
    WHERE options ? 'max_response' AND _sas.size_bytes(options ->> 'max_response') IS NULL
    UNION ALL SELECT '/options/' || k, format('%s must be a string', k), 'Write it as a string.', '22023'
    FROM unnest('{ca_file,cert,proxy}'::text[]) k
    WHERE options ? k AND jsonb_typeof(options -> k) <> 'string'
    UNION ALL SELECT '/options/proxy', 'the proxy is not usable',
        'Write it as "http://host:port"; https, socks4, socks4a, socks5 and socks5h are possible, too.',
        '22023'
    WHERE jsonb_typeof(options -> 'proxy') = 'string'
      AND regexp_replace(options ->> 'proxy', E'\\{\\{[^{}]*\\}\\}', 'x', 'g')
          !~* E'^((https?|socks4a?|socks5h?)://)?[^\\x01-\\x20\\x7f/?#\\\\]+/?$'
    UNION ALL SELECT '/options/query', 'expected an object of parameters',
        'Write it as {"name": "value"}.', '22023'
    WHERE options ? 'query' AND jsonb_typeof(options -> 'query') <> 'object'
    UNION ALL SELECT p.* FROM _sas.check_sign(options -> 'sign') p WHERE options ? 'sign'
    UNION ALL SELECT p.* FROM _sas.check_oauth2(options -> 'oauth2') p WHERE options ? 'oauth2'
    UNION ALL SELECT p.* FROM _sas.check_keep(options -> 'keep') p WHERE options ? 'keep'
    UNION ALL SELECT p.* FROM _sas.check_agent_key(options -> 'concurrency') p WHERE options ? 'concurrency'
$$;

-- _sas.check_agent_key(given): errors of the option "concurrency", which limits calls with the same key.
CREATE FUNCTION _sas.check_agent_key(given jsonb) RETURNS SETOF _sas.problem
LANGUAGE sql STABLE AS $$
    SELECT * FROM _sas.check_keys(given, '/options/concurrency', '{key,per_key}')
    UNION ALL SELECT '/options/concurrency/key', 'the key must be a string',
        'Write a template, such as "{{run.owner}}".', '22023'
    WHERE jsonb_typeof(given) = 'object' AND jsonb_typeof(given -> 'key') IS DISTINCT FROM 'string'
    UNION ALL SELECT p.* FROM _sas.check_step_key(given ->> 'key', '/options/concurrency/key') p
    WHERE jsonb_typeof(given -> 'key') = 'string'
    UNION ALL SELECT * FROM _sas.check_number(given -> 'per_key', '/options/concurrency/per_key', 1, 1000000)
$$;

-- _sas.check_agent_files(caller, old, options): raises an error if this role names a file of the server
-- that it may not read, because workers read it as the server's user. Every admin may name files below
-- sas.secret_directory.
CREATE FUNCTION _sas.check_agent_files(caller oid, old jsonb, options jsonb) RETURNS void
LANGUAGE plpgsql STABLE AS $$
DECLARE
    folder text := rtrim(current_setting('sas.secret_directory'), '/') || '/';
    k text;
BEGIN
    FOREACH k IN ARRAY '{ca_file,cert}'::text[] LOOP
        CONTINUE WHEN options ->> k IS NULL OR options ->> k = old ->> k
            OR _sas.may_stand_for(caller, 'pg_read_server_files'::regrole)
            OR folder <> '/' AND starts_with(options ->> k, folder) AND options ->> k !~ E'(^|/)\\.\\.(/|$)';
        RAISE EXCEPTION 'permission denied to name file "%" of the server', left(options ->> k, 200)
            USING ERRCODE = 'insufficient_privilege', DETAIL = _sas.at('/options/' || k),
                HINT = 'Name a file below sas.secret_directory, or ask a superuser, or a member of '
                       'pg_read_server_files.';
    END LOOP;
END $$;

-- _sas.check_keep(keep): errors of the option "keep", which selects the parts of answers that are stored.
CREATE FUNCTION _sas.check_keep(keep jsonb) RETURNS SETOF _sas.problem
LANGUAGE sql IMMUTABLE AS $$
    SELECT '/options/keep', 'keep must be an array of at most 100 paths',
        'Write it as ["headers.etag", "body.id"]; the status is always kept.', '22023'
    WHERE CASE jsonb_typeof(keep) WHEN 'array' THEN jsonb_array_length(keep) > 100 ELSE true END
    UNION ALL
    SELECT '/options/keep/' || e.n - 1, format('%s is not the path to a part of an answer', e.value),
        'A path is "status", or begins with "headers" or "body": names with dots between them.', '22023'
    FROM jsonb_array_elements(CASE jsonb_typeof(keep) WHEN 'array' THEN keep ELSE '[]' END)
        WITH ORDINALITY AS e (value, n)
    WHERE jsonb_typeof(e.value) <> 'string' OR octet_length(e.value #>> '{}') > 500
       OR e.value #>> '{}' !~ E'^(status|headers(\\.[a-z0-9_]+)?|body(\\.[^.]+)*)$'
$$;

-- _sas.check_sign(sign): errors of the option "sign", which signs calls.
CREATE FUNCTION _sas.check_sign(sign jsonb) RETURNS SETOF _sas.problem
LANGUAGE plpgsql STABLE AS $$
DECLARE
    webhooks boolean := sign ->> 'scheme' = 'standard-webhooks';
BEGIN
    RETURN QUERY SELECT * FROM _sas.check_keys(
        sign, '/options/sign',
        '{scheme,secret}'::text[]
            || CASE WHEN webhooks THEN '{}' ELSE '{header,prefix,encoding,timestamp_header}'::text[] END);
    IF jsonb_typeof(sign) <> 'object' THEN
        RETURN;
    END IF;
    IF NOT sign ? 'scheme' THEN
        RETURN NEXT ROW('/options/sign/scheme', 'the scheme is missing',
                        'Use "standard-webhooks" or "hmac-sha256".', '22023')::_sas.problem;
    END IF;
    RETURN QUERY
    SELECT * FROM _sas.check_choice(sign -> 'scheme', '/options/sign/scheme',
                                    '{standard-webhooks,hmac-sha256}')
    UNION ALL SELECT * FROM _sas.check_choice(sign -> 'encoding', '/options/sign/encoding', '{hex,base64}')
    UNION ALL SELECT * FROM _sas.check_own_secret(sign -> 'secret', '/options/sign/secret', webhooks)
    UNION ALL SELECT '/options/sign/' || k, format('%s is not the name of a header', k),
        'Use letters, digits and -.', '22023'
    FROM unnest('{header,timestamp_header}'::text[]) k
    WHERE sign ? k AND (jsonb_typeof(sign -> k) <> 'string' OR sign ->> k !~ '^[A-Za-z0-9_-]{1,100}$')
    UNION ALL SELECT '/options/sign/' || k, p.problem, p.hint, p.code
    FROM unnest('{header,timestamp_header}'::text[]) k
    CROSS JOIN LATERAL _sas.check_headers(jsonb_build_object(sign ->> k, 'x'), '') p
    WHERE sign ->> k ~ '^[A-Za-z0-9_-]{1,100}$'
    UNION ALL SELECT '/options/sign/prefix', 'prefix must be a string of at most 100 printable characters',
        'Write it as "sha256=".', '22023'
    WHERE sign ? 'prefix' AND (jsonb_typeof(sign -> 'prefix') <> 'string'
                               OR sign ->> 'prefix' !~ '^[[:graph:] ]{0,100}$');
END $$;

-- _sas.check_own_secret(secret, place, several): the value must be a reference to a secret, because options
-- are shown in sas.agents and in dumps. several: it may be an array, for messages with several signatures.
CREATE FUNCTION _sas.check_own_secret(secret jsonb, place text, several boolean) RETURNS SETOF _sas.problem
LANGUAGE sql STABLE AS $$
    SELECT place, 'expected a reference to a secret'
               || CASE WHEN several THEN ', or an array of at most 8' ELSE '' END,
        'Write it as "{{secret.NAME}}".', '22023'
    WHERE secret IS NULL
       OR CASE WHEN several AND jsonb_typeof(secret) = 'array'
               THEN jsonb_array_length(secret) NOT BETWEEN 1 AND 8
               ELSE jsonb_typeof(secret) <> 'string' END
    UNION ALL
    -- the value is not told: it may be the secret itself
    SELECT place || CASE jsonb_typeof(secret) WHEN 'array' THEN '/' || s.n - 1 ELSE '' END,
        'expected a reference to a secret', 'Write it as "{{secret.NAME}}".', '22023'
    FROM jsonb_array_elements(CASE WHEN jsonb_typeof(secret) = 'string' THEN jsonb_build_array(secret)
                              WHEN several AND jsonb_typeof(secret) = 'array' THEN secret END)
        WITH ORDINALITY AS s (value, n)
    WHERE (s.value #>> '{}' ~ '^[{]{2} *secret[.][a-z][a-z0-9_]* *[}]{2}$') IS NOT TRUE
$$;

-- _sas.check_oauth2(oauth2): errors of the option "oauth2", by which calls carry an access token.
CREATE FUNCTION _sas.check_oauth2(oauth2 jsonb) RETURNS SETOF _sas.problem
LANGUAGE plpgsql STABLE AS $$
DECLARE
    why text := CASE WHEN jsonb_typeof(oauth2 -> 'token_url') IS DISTINCT FROM 'string' THEN 'it is missing'
                ELSE _sas.url_problem(oauth2 ->> 'token_url') END;
    params jsonb := CASE jsonb_typeof(oauth2 -> 'params') WHEN 'object' THEN oauth2 -> 'params' END;
BEGIN
    RETURN QUERY SELECT * FROM _sas.check_keys(oauth2, '/options/oauth2',
                                               '{token_url,client_id,client_secret,scope,auth,params}');
    IF jsonb_typeof(oauth2) <> 'object' THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT '/options/oauth2/token_url', format('token_url is not usable: %s', why),
        'Write an absolute http or https URL without user, query and fragment.', '22023' WHERE why IS NOT NULL
    UNION ALL SELECT '/options/oauth2/client_id', 'client_id must be a string that is not empty',
        'It is the name under which the token service knows this client.', '22023'
    WHERE jsonb_typeof(oauth2 -> 'client_id') IS DISTINCT FROM 'string' OR oauth2 ->> 'client_id' = ''
    UNION ALL SELECT * FROM _sas.check_own_secret(oauth2 -> 'client_secret', '/options/oauth2/client_secret',
                                                  false)
    UNION ALL SELECT '/options/oauth2/scope', 'scope must be a string', 'Write it as "read write".', '22023'
    WHERE oauth2 ? 'scope' AND jsonb_typeof(oauth2 -> 'scope') <> 'string'
    UNION ALL SELECT * FROM _sas.check_choice(oauth2 -> 'auth', '/options/oauth2/auth', '{basic,body}')
    UNION ALL SELECT '/options/oauth2/params', 'expected an object of strings',
        'Write it as {"audience": "https://api.example.com"}.', '22023'
    WHERE oauth2 ? 'params'
      AND (params IS NULL
           OR EXISTS (SELECT FROM jsonb_each(params) p WHERE jsonb_typeof(p.value) <> 'string'))
    UNION ALL SELECT '/options/oauth2/params/' || k, format('%s is set by the client itself', k),
        'Leave it out.', '22023'
    FROM unnest('{grant_type,scope,client_id,client_secret}'::text[]) k WHERE params ? k;
END $$;

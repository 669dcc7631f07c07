-- SPDX-License-Identifier: PostgreSQL
--
-- Mask: values of a run that only its owner sees; all others see ***, operators, admins and superusers
-- included. The stored values are not changed: the engine and the owner work with them.

-- _sas.masked(value, mask, at, leaves): the value with *** wherever a path of the mask leads. at: where the
-- value is, such as {input} or {steps,charge,output}. leaves: objects and arrays keep their form, so that
-- templates find what is in them.
CREATE FUNCTION _sas.masked(value jsonb, mask text[], at text[], leaves boolean DEFAULT false) RETURNS jsonb
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sas_api_masked';

-- _sas.mask_words(path): the words of a path in the form that _sas.masked reads; null if it is not a valid
-- path.
CREATE FUNCTION _sas.mask_words(path text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT string_agg(CASE WHEN t[1] IS NOT NULL THEN '.' || t[1]
                           WHEN t[2] IS NOT NULL THEN '.' || t[2]
                           WHEN t[3] IS NOT NULL THEN '[' || t[3] ELSE '*' END, chr(31) ORDER BY n)
    FROM regexp_matches('.' || regexp_replace(path, E'^\\$\\.', ''),
                        E'\\.([[:alpha:]_]\\w*)|\\."([^"\\\\]*)"|\\[(\\*|\\d{1,6})\\]|\\.\\*', 'g')
         WITH ORDINALITY AS m (t, n)
    WHERE path ~ (E'^(\\$\\.)?(input|output|steps)'
                  || E'(\\.([[:alpha:]_]\\w*|"[^"\\\\[:cntrl:]]+"|\\*)|\\[(\\*|\\d{1,6})\\])*$')
$$;

-- _sas.read_mask(scopes): the masks of a compiled definition, as they are stored; null: there is none. A
-- path to the output of an included workflow becomes a path to the output of its step; other paths of an
-- included workflow are not needed, because everything inside an include is hidden.
CREATE FUNCTION _sas.read_mask(scopes _sas.scope[]) RETURNS text[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT coalesce(array_agg(CASE WHEN s.no = 1 THEN w.words
                                   ELSE concat_ws(chr(31), '.steps', '.' || rtrim(s.prefix, '.'), w.words)
                                   END)
                    FILTER (WHERE s.no = 1 OR w.words ~ '^[.]output'), '{}')
    FROM unnest(scopes) s
    CROSS JOIN LATERAL jsonb_array_elements_text(s.definition -> 'mask') p
    CROSS JOIN LATERAL (SELECT _sas.mask_words(p) AS words) w
    HAVING count(*) > 0
$$;

-- _sas.masked_part(value, mask, step, part, inside): the input, output or "started" of a step as roles
-- other than the owner see it. inside: the step belongs to an included workflow; its names mean other
-- things than in the mask, so all of it is hidden.
CREATE FUNCTION _sas.masked_part(value jsonb, mask text[], step text, part text, inside boolean)
RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE WHEN value IS NULL THEN NULL WHEN inside THEN '"***"'::jsonb
                ELSE _sas.masked(value, mask, ARRAY['steps', step, part]) END;
END;

-- _sas.check_mask(mask, path, steps, planned): errors of a mask: its paths must lead to input, output, or a
-- step of the definition. If a plan function adds steps, names of steps are not checked.
CREATE FUNCTION _sas.check_mask(mask jsonb, path text, steps jsonb, planned boolean)
RETURNS SETOF _sas.problem
LANGUAGE sql STABLE AS $$
    SELECT path, format('mask must be an array of paths, not %s', jsonb_typeof(mask)),
           'Write it as ["input.card", "steps.charge.output.body.token"].', '22023'
    WHERE jsonb_typeof(mask) <> 'array'
    UNION ALL
    SELECT path, 'mask has more than 100 paths', 'A path to an object masks all of it.', '54000'
    WHERE jsonb_typeof(mask) = 'array' AND jsonb_array_length(mask) > 100
    UNION ALL
    SELECT format('%s/%s', path, e.n - 1),
           CASE WHEN words IS NULL THEN format('%s is not a path of a mask', left(e.v::text, 80))
                ELSE format('there is no step "%s"', left(step, 80)) END,
           CASE WHEN words IS NULL
                THEN 'Write input, output or steps.NAME, then members as .name, ."any name" or .*, and '
                     'elements as [0] or [*], without filters and methods.'
                ELSE _sas.meant(step, ARRAY(SELECT jsonb_object_keys(
                         CASE jsonb_typeof(steps) WHEN 'object' THEN steps ELSE '{}' END)))
                     || 'Name a step of this workflow.' END,
           CASE WHEN words IS NULL THEN '22023' ELSE '42P10' END
    FROM jsonb_array_elements(CASE jsonb_typeof(mask) WHEN 'array' THEN mask ELSE '[]' END)
         WITH ORDINALITY AS e (v, n)
    CROSS JOIN LATERAL (SELECT CASE WHEN jsonb_typeof(e.v) = 'string' AND length(e.v #>> '{}') <= 1000
                                    THEN _sas.mask_words(e.v #>> '{}') END) w (words)
    CROSS JOIN LATERAL (SELECT CASE WHEN split_part(words, chr(31), 1) = '.steps'
                                    THEN substr(split_part(words, chr(31), 2), 2) END) s (step)
    WHERE words IS NULL
       OR NOT planned AND step <> '' AND NOT steps ? step
          AND NOT (step = 'finalize' AND split_part(words, chr(31), 2) <> '*')
$$;

-- _sas.hides(mask, owner): does the current user see values of this owner's run as ***?
CREATE FUNCTION _sas.hides(mask text[], owner oid) RETURNS boolean
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT mask IS NOT NULL AND pg_get_userbyid(owner) <> current_user;
END;

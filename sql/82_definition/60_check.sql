-- SPDX-License-Identifier: PostgreSQL
--
-- Check: everything that is wrong with a definition.

-- sas._check_definition(definition, caller): everything that is wrong with it, in reading order of importance.
CREATE FUNCTION sas._check_definition(definition jsonb, caller oid) RETURNS SETOF sas._problem
LANGUAGE plpgsql STABLE AS $$
DECLARE
    later text[] := '{flow,plan,hooks}';
    steps jsonb;
    sound boolean;
BEGIN
    IF octet_length(definition::text) > sas._max_definition_size() THEN
        RETURN NEXT ROW('', format('the definition has more than %s bytes', sas._max_definition_size()), 'See the setting sas.max_definition_size.', '54000')::sas._problem;
        RETURN;
    END IF;
    RETURN QUERY SELECT * FROM sas._check_keys(definition, '', '{steps,output,on_failure,recovery,deadline,finalize,priority,concurrency,singleton,queue}', later);
    IF jsonb_typeof(definition) IS DISTINCT FROM 'object' THEN
        RETURN;
    END IF;
    steps := definition -> 'steps';
    IF jsonb_typeof(steps) IS DISTINCT FROM 'object' THEN
        RETURN NEXT ROW('/steps', 'the steps must be an object: a body by name', 'It may be empty.', '22023')::sas._problem;
        RETURN;
    END IF;
    IF (SELECT count(*) FROM jsonb_object_keys(steps)) > sas._max_steps() THEN
        RETURN NEXT ROW('/steps', format('there are more than %s steps', sas._max_steps()), 'See the setting sas.max_steps.', '54000')::sas._problem;
        RETURN;
    END IF;
    RETURN QUERY
    SELECT * FROM sas._check_on_failure(definition -> 'on_failure', '/on_failure')
    UNION ALL SELECT * FROM sas._check_pauses(definition -> 'recovery', '/recovery', 'max_failures')
    UNION ALL SELECT * FROM sas._check_span(definition -> 'deadline', '/deadline')
    UNION ALL SELECT * FROM sas._check_number(definition -> 'priority', '/priority', -1000, 1000)
    UNION ALL SELECT * FROM sas._check_starting(definition);
    IF definition ? 'finalize' THEN
        RETURN QUERY SELECT * FROM sas._check_function(definition -> 'finalize', '/finalize', caller);
    END IF;
    RETURN QUERY SELECT p.* FROM jsonb_each(steps) s CROSS JOIN LATERAL sas._check_step(s.key, s.value, sas._pointer('/steps', s.key), caller) p;

    SELECT coalesce(bool_and(jsonb_typeof(s.value) = 'object'), true) INTO sound FROM jsonb_each(steps) s;
    IF NOT sound THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT * FROM sas._check_references(definition);
    IF NOT EXISTS (SELECT FROM sas._check_references(definition)) THEN
        RETURN QUERY SELECT * FROM sas._check_order(definition);
    END IF;
END $$;

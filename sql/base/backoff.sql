-- SPDX-License-Identifier: PostgreSQL
--
-- Back-off: how long to rest before the next window, from the number of failures.

-- _sas.cool_off(recovery, failures): the pause before the next window.
-- recovery is complete: max_failures, initial, max, backoff, jitter.
CREATE FUNCTION _sas.cool_off(recovery jsonb, failures int) RETURNS interval
LANGUAGE sql VOLATILE AS $$
    SELECT least(extract(epoch FROM (recovery ->> 'max')::interval),
                 extract(epoch FROM (recovery ->> 'initial')::interval)
                 * CASE recovery ->> 'backoff' WHEN 'exponential' THEN 2 ^ least(failures - 1, 30)
                     WHEN 'linear' THEN failures ELSE 1 END)::float8
           * interval '1 s' * CASE WHEN (recovery ->> 'jitter')::boolean
               AND NOT _sas.is_testing() THEN 0.5 + random() / 2 ELSE 1 END
$$;

-- SPDX-License-Identifier: PostgreSQL
--
-- Pauses: how long to rest before the next window, from the number of failures; by how much an instant is
-- late, from a name.

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

-- _sas.schedule_offset(name, jitter): by how much all instants of a schedule are late: spread by its name
-- over its jitter, and always the same.
CREATE FUNCTION _sas.schedule_offset(name text, jitter interval) RETURNS interval
LANGUAGE sql IMMUTABLE AS $$
    SELECT make_interval(secs => round((('x' || left(md5(name), 12))::bit(48)::bigint / 281474976710656.0
                                        * extract(epoch FROM jitter))::numeric, 3)::float8)
$$;

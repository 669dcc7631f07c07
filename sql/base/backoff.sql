-- SPDX-License-Identifier: PostgreSQL
--
-- Pauses: how long a step waits before its next window, from the number of failures; and the offset of a
-- schedule, from its name.

-- _sas.cool_off(recovery, failures): the pause before the next window. recovery is complete: max_failures,
-- jitter, and either pauses, or initial, max and backoff.
CREATE FUNCTION _sas.cool_off(recovery jsonb, failures int) RETURNS interval
LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN recovery ? 'pauses'
           THEN extract(epoch FROM (
                    recovery -> 'pauses' ->> least(failures, jsonb_array_length(recovery -> 'pauses')) - 1
                )::interval)
           ELSE least(extract(epoch FROM (recovery ->> 'max')::interval),
                      extract(epoch FROM (recovery ->> 'initial')::interval)
                      * CASE recovery ->> 'backoff' WHEN 'exponential' THEN 2 ^ least(failures - 1, 30)
                                                    WHEN 'linear' THEN failures ELSE 1 END) END::float8
           * interval '1 s'
           * CASE WHEN (recovery ->> 'jitter')::boolean AND NOT _sas.is_testing() THEN 0.5 + random() / 2
                  ELSE 1 END
$$;

-- _sas.merge_pauses(above, own): retry or recovery of a step, merged over that of its agent or run. A list
-- of pauses replaces initial, max and backoff, and the other way round.
CREATE FUNCTION _sas.merge_pauses(above jsonb, own jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN own ? 'pauses' THEN above - '{initial,max,backoff,initial_ms,max_ms}'::text[]
                WHEN own ?| '{initial,max,backoff,initial_ms,max_ms}' THEN above - 'pauses'
                ELSE above END || coalesce(own, '{}')
$$;

-- _sas.count_pauses(policy, counter): fills in a policy with a list of pauses: the length of the list gives
-- the number of attempts or failures, and the pauses have no jitter, unless the policy says otherwise.
CREATE FUNCTION _sas.count_pauses(policy jsonb, counter text) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN policy ? 'pauses'
           THEN jsonb_build_object(counter, jsonb_array_length(policy -> 'pauses') + 1, 'jitter', false)
                || policy
           ELSE policy END
$$;

-- _sas.schedule_offset(name, jitter): the offset by which all instants of a schedule are delayed: its name
-- spreads it over the jitter, and it is always the same.
CREATE FUNCTION _sas.schedule_offset(name text, jitter interval) RETURNS interval
LANGUAGE sql IMMUTABLE AS $$
    SELECT make_interval(secs => round((('x' || left(md5(name), 12))::bit(48)::bigint / 281474976710656.0
                                        * extract(epoch FROM jitter))::numeric, 3)::float8)
$$;

-- SPDX-License-Identifier: PostgreSQL
--
-- Schedules: runs that begin by the clock.

CREATE FUNCTION sas.next_times(spec text, timezone text DEFAULT NULL, quantity int DEFAULT 10,
                               after timestamptz DEFAULT NULL) RETURNS SETOF timestamptz
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_next_times';
COMMENT ON FUNCTION sas.next_times IS 'The next instants of a cron pattern or of "every ..." in a time zone '
                                      '(null: that of the session), later than after (null: now).';

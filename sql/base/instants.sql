-- SPDX-License-Identifier: PostgreSQL
--
-- Instants of schedules (src/schedule, src/api/schedule_api.c). anchor: the start of "every ..."; null: the
-- epoch. All of them raise an error if spec or timezone is invalid.

-- _sas.check_spec(spec, timezone): raises an error if they are invalid, or if the spec never occurs;
-- returns the name of the time zone.
CREATE FUNCTION _sas.check_spec(spec text, timezone text) RETURNS text
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_check_spec';

-- _sas.next_instant(spec, timezone, anchor, after): the first instant after "after"; null: there is none.
CREATE FUNCTION _sas.next_instant(spec text, timezone text, anchor timestamptz, after timestamptz)
RETURNS timestamptz
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_next_instant';

-- _sas.newest_instant(spec, timezone, anchor, after, until, most): the last instant after "after" and not
-- after "until", and how many there are, counted up to "most".
CREATE FUNCTION _sas.newest_instant(spec text, timezone text, anchor timestamptz, after timestamptz,
                                    until timestamptz, most int, OUT newest timestamptz, OUT passed int)
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_newest_instant';

-- _sas.instants(spec, timezone, anchor, after, until, most): the first instants after "after" and not after
-- "until", at most "most".
CREATE FUNCTION _sas.instants(spec text, timezone text, anchor timestamptz, after timestamptz,
                              until timestamptz, most int) RETURNS SETOF timestamptz
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_instants';

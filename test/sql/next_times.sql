-- SPDX-License-Identifier: PostgreSQL
--
-- next_times: when a schedule runs. test/t/150_next_times.pl compares with another library.
SELECT t.clean() \g /dev/null
\pset format unaligned
\pset tuples_only on
CREATE FUNCTION t.times(spec text, zone text, after text, quantity int DEFAULT 3) RETURNS text LANGUAGE sql SET timezone = 'UTC' AS $$
    SELECT string_agg(to_char(n AT TIME ZONE zone, 'Dy YYYY-MM-DD HH24:MI:SS') || ' ' || to_char(n, 'HH24:MI') || 'Z', E'\n') FROM sas.next_times(spec, zone, quantity, after::timestamptz) n
$$;
-- a time that does not exist: once, at the first instant after the gap; several in one gap are one
SELECT t.times('30 2 * * *', 'America/New_York', '2026-03-07 08:00');
SELECT t.times('*/10 2 * * *', 'America/New_York', '2026-03-08 06:59:59', 2);
SELECT t.times('0,30 2,3 * * *', 'America/New_York', '2026-03-08 06:59:59');
-- a time that comes twice: the first of the two
SELECT t.times('30 1 * * *', 'America/New_York', '2026-10-31 06:00');
SELECT t.times('30 1 * * *', 'America/New_York', '2026-11-01 05:30', 1);
-- hours that begin with "*": every hour that passes
SELECT t.times('30 * * * *', 'America/New_York', '2026-03-08 06:00', 3);
SELECT t.times('30 * * * *', 'America/New_York', '2026-11-01 05:00', 3);
SELECT t.times('30 */2 * * *', 'America/New_York', '2026-11-01 03:00', 3);
-- a change by half an hour, and one by a whole day
SELECT t.times('15 2 * * *', 'Australia/Lord_Howe', '2026-10-03 00:00', 2);
SELECT t.times('45 1 * * *', 'Australia/Lord_Howe', '2026-04-04 00:00', 2);
SELECT t.times('0 12 * * *', 'Pacific/Apia', '2011-12-29 00:00', 3);
-- summer time that pauses for Ramadan
SELECT t.times('30 2 * * *', 'Africa/Casablanca', '2026-02-14 00:00', 3);
SELECT t.times('30 2 * * *', 'Africa/Casablanca', '2026-03-21 00:00', 3);
-- days: either kind, or both with "+"
SELECT t.times('0 12 1 * MON', 'UTC', '2026-01-01');
SELECT t.times('0 12 1 * +MON', 'UTC', '2026-01-01');
SELECT t.times('0 0 ? * 7', 'UTC', '2026-01-01', 2);
SELECT t.times('0 0 * * FRI-SUN', 'UTC', '2026-01-01', 4);
-- L, W, LW, #
SELECT t.times('0 0 L * *', 'UTC', '2028-01-31', 2);
SELECT t.times('0 0 15W * *', 'UTC', '2026-01-31', 3);
SELECT t.times('0 0 1W 8 *', 'UTC', '2026-01-31', 1);
SELECT t.times('0 0 31W * *', 'UTC', '2026-01-01', 3);
SELECT t.times('0 0 LW * *', 'UTC', '2026-01-01', 3);
SELECT t.times('0 0 * * FRI#L', 'UTC', '2026-01-01', 2);
SELECT t.times('0 0 * * 5L', 'UTC', '2026-01-01', 1);
SELECT t.times('0 0 * * MON-TUE#2', 'UTC', '2026-01-01', 3);
SELECT t.times('0 0 * * sun#5', 'UTC', '2026-01-01', 2);
-- seconds, names, nicknames
SELECT t.times('*/20 0 0 * JAN,jul *', 'UTC', '2026-01-01 00:00:20', 3);
SELECT n, t.times(n, 'Europe/London', '2026-01-01', 1) FROM unnest('{@hourly,@daily,@midnight,@weekly,@monthly,@yearly,@annually}'::text[]) n;
-- the next may be far
SELECT t.times('0 0 29 2 *', 'UTC', '2096-03-01', 1);
SELECT t.times('0 0 29 2 +MON', 'UTC', '2080-01-01', 2);
SELECT t.times('@yearly', 'UTC', '294275-01-01', 1) IS NULL, t.times('@yearly', 'UTC', 'infinity', 1) IS NULL, t.times('@yearly', 'UTC', '-infinity', 1);
-- OCPS: blanks are spaces and tabs, several are one, around all they are nothing; names in any case, also in ranges and steps; 0 and 7
SELECT s, t.times(s, 'UTC', '2026-01-01', 2) FROM unnest(ARRAY[E'  30\t 2  * *   * ', '0 0 * * sun', '0 0 * * 0', '0 0 * * 7', '0 0 * * SUN-TUE', '0 0 * * 5-7', '0 0 * * fri-SUN', '0 0 * * MON-Fri/2', '0 0 1 jan-DEC/6 *', '0 0 1 JaN,7 *']) s;
-- lists are the union of their elements; a step goes over the range before it; one as large as the field gives its first value
SELECT s, t.times(s, 'UTC', '2026-01-01', 4) FROM unnest(ARRAY['5-59/15 0 * * *', '0,30-32,31,50-59/5 0 * * *', '*/60 * * * *', '0 */24 * * *', '0 0 */31 * *', '0 0 1 */12 *', '0 0 31,L * *']) s;
-- a day of either kind where both are given; only one of them counts where the other is "*" or "?"
SELECT s, t.times(s, 'UTC', '2026-02-01', 3) FROM unnest(ARRAY['0 0 13 * FRI', '0 0 13 * +FRI', '0 0 13 * ?', '0 0 ? * FRI', '0 0 */2 * FRI', '0 0 L * +SUN', '0 0 * * +FRI', '0 0 1W * +MON']) s;
-- the nth of a month, the last one, the weekday nearest to a day, never across the end of the month
SELECT s, t.times(s, 'UTC', '2026-01-01', 3) FROM unnest(ARRAY['0 0 * * 2#3', '0 0 * * MON#1', '0 0 * * MON#5', '0 0 * * 5#L', '0 0 * * 7L', '0 0 * * MON#1,FRI#L', '0 0 1W * *', '0 0 15W * *', '0 0 31W 1,5 *', '0 0 30W * *']) s;
-- years
SELECT s, t.times(s, 'UTC', '2026-01-01', 3) FROM unnest(ARRAY['0 0 12 1 1 * 2028', '0 0 0 29 2 * 2026-2040', '0 0 0 1 1 * */100', '0 0 0 1 1 * 1971-2199/2', '0 0 0 1 1 * 2025,2027', '0 0 0 1 1 * *', '0 0 0 1 1 * 2025']) s;
-- every
SELECT t.times('every 90 s', 'UTC', '2026-01-01', 2);
SELECT t.times('every 2 h offset 15 min', 'Asia/Kolkata', '2026-01-01', 2);
SELECT t.times('EVERY 1 day 12 hours', 'UTC', '2026-01-01', 2);
SELECT * FROM _sas.instants('every 7 min', 'UTC', '2026-01-01 00:01:30.5+00', '2026-01-01 00:00+00', '2026-01-01 00:09+00', 10);
-- the newest of many, which are counted up to a limit
SELECT * FROM _sas.newest_instant('* * * * *', 'UTC', NULL, '2025-01-01 00:00+00', '2025-01-01 00:10:30+00', 100);
SELECT * FROM _sas.newest_instant('* * * * *', 'UTC', NULL, '2025-01-01 00:00+00', '2026-01-01 00:10:30+00', 100);
SELECT * FROM _sas.newest_instant('0 0 1 * *', 'UTC', NULL, '2025-01-01 00:00+00', '2026-01-01 00:10:30+00', 3);
SELECT * FROM _sas.newest_instant('0 0 1 * *', 'UTC', NULL, '2025-01-01 00:00+00', '2025-01-10 00:00+00', 3);
-- defaults: the zone of the session, now, ten
SET timezone = 'Asia/Tokyo';
SELECT count(*), min(n) FROM sas.next_times('0 9 * * *') n;
RESET timezone;
-- also if that is an offset, as drivers set it: it gets one name, under which a schedule keeps it
CREATE FUNCTION t.of_session(zone text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('timezone', zone, true);
    RETURN format('%s: %s', _sas.check_spec('0 9 * * *', NULL), (SELECT n AT TIME ZONE 'UTC' FROM sas.next_times('0 9 * * *', quantity => 1, after => '2026-07-01 00:00+00') n));
EXCEPTION WHEN OTHERS THEN
    RETURN SQLERRM;
END $$;
SELECT z, t.of_session(z) FROM unnest('{3,-5.5,GMT-03:00,<+0545>-5:45,Etc/GMT-3,FOO3BAR}'::text[]) z;
SELECT t.times('0 9 * * *', z, '2026-07-01 00:00') FROM unnest('{<+03>-03,<-05:30>+05:30,<+05:45>-05:45}'::text[]) z;
DROP FUNCTION t.of_session(text);
-- what is refused, and where
CREATE FUNCTION t.refused(spec text, zone text DEFAULT 'UTC') RETURNS text LANGUAGE plpgsql AS $$
DECLARE place text; hint text;
BEGIN
    PERFORM sas.next_times(spec, zone);
    RETURN 'accepted';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS place = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN format(E'%s: %s\n  %s\n  %s', SQLSTATE, SQLERRM, place, hint);
END $$;
SELECT t.refused(s) FROM unnest(ARRAY['', '* * * *', '* * * * * * * *', '60 * * * *', '* * 32 * *', '/30 * * * *', '10/10 * * * *', '*/61 * * * *', '*-5 * * * *', '1-2-3 * * * *', '1/2/3 * * * *', '+1 * * * *', '* * +1 * *', '* * * * 1,+2', '* * * ? *', '* ? * * *', '?/2 * * * *', '* * * * 1?', '* * l * *', '* * 15w * *', '* * * * 5l', '* * * * 1#0', '* * W * *', '* * LW,1 * *', '@DAILY', '@daily 0', '@reboot', '0 0 0 1 1 * 1969', '0 0 0 1 1 * 2200', '0 0 0 29 2 * 2027', E'0\n0 * * *', E'* * * * *\n', 'a * * * *', '* * * * MOND', '* * * JANU *', '1.5 * * * *', '-1 * * * *', '* 24 * * *', '* * 0 * *', '* * * 13 *', '* * * * 8', '* * * FOO *', '* 22-6 * * *', '5/15 * * * *', '*/0 * * * *', '*/99 * * * *', '1,,2 * * * *',
    '1- * * * *', '1x * * * *', '* * 1,15W * *', '* * 1-15W * *', '* * 32W * *', '* * * * *#1', '* * * * FRI#6', '* * * * L', '* L * * *', '? * * * *', '0 0 30 2 *', '0 0 31W 2 *', '0 0 8 * +MON#1', '@reboot', '99999999999 * * * *', 'every', 'every 0 s', 'every 500 ms',
    'every 5', 'every 1.5 h', 'every -1 h', 'every 1 month', 'every 1 h offset 1 h', 'every 1 h offset', 'every 20 y', repeat('1,', 300) || '1 * * * *']) s;
SELECT t.refused(NULL);
SELECT t.refused('@daily', z) FROM unnest('{Mars/Olympus,FOO3BAR,"<+03>",<+03>-03<+04>,<+03>+03,<FOO>-03,Foo/Bar-2,GMT-03:00,""}'::text[]) z;
SELECT z, t.refused('@daily', z) FROM unnest('{europe/london,Etc/GMT+5,EST5EDT,GMT0}'::text[]) z;
SELECT sas.next_times('@daily', quantity => 10001);
DROP FUNCTION t.times(text, text, text, int), t.refused(text, text);
\pset format aligned
\pset tuples_only off

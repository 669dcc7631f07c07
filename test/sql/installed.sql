-- SPDX-License-Identifier: PostgreSQL
--
-- make installcheck: what is installed works on a server that runs, with its workers.
-- It needs sas in shared_preload_libraries, and a place for four workers; nothing else of the server
-- is changed. No service is called: steps are functions, waits and children.

-- the server has the library loaded; otherwise nothing below can pass
SELECT current_setting('sas.known_versions') <> '' AS loaded;

SET client_min_messages = warning;
CREATE EXTENSION sas;
RESET client_min_messages;

SELECT extversion = split_part(current_setting('sas.known_versions'), ' ', 1) AS of_this_library
FROM pg_extension WHERE extname = 'sas';

CREATE TABLE public.booked (n int PRIMARY KEY);
CREATE FUNCTION public.book(input jsonb) RETURNS jsonb LANGUAGE sql
    AS $$ INSERT INTO public.booked VALUES ((input->>'n')::int) RETURNING jsonb_build_object('booked', n) $$;
CREATE FUNCTION public.unbook(input jsonb) RETURNS jsonb LANGUAGE sql
    AS $$ DELETE FROM public.booked WHERE n = (input->>'n')::int RETURNING '{}'::jsonb $$;
CREATE FUNCTION public.fail(input jsonb) RETURNS jsonb LANGUAGE plpgsql
    AS $$ BEGIN RAISE EXCEPTION 'no room' USING ERRCODE = '22023'; END $$;

SELECT sas.create_workflow('booking', '{"steps": {
    "book":  {"function": "public.book"},
    "agree": {"wait": {"signal": "agreed", "timeout": "1 hour"}, "after": ["book"]}},
    "output": {"n": "{{steps.book.output.booked}}", "by": "{{steps.agree.output.by}}"}}');
SELECT sas.create_workflow('single', '{"steps": {"book": {"function": "public.book"}}, "output": {"n": "{{steps.book.output.booked}}"}}');
SELECT sas.create_workflow('trip', '{"steps": {"child": {"workflow": "single"}}, "output": "{{steps.child.output}}"}');
SELECT sas.create_workflow('refused', '{"steps": {
    "book": {"function": "public.book", "undo": {"function": "public.unbook", "input": "{{input}}"}},
    "fail": {"function": "public.fail", "after": ["book"]}}}');

-- a run goes to its end, past a signal; the same key is the same run
SELECT run_id AS run FROM sas.submit('booking', '{"n": 1}', key => 'one') \gset
SELECT created FROM sas.submit('booking', '{"n": 1}', key => 'one');
SELECT sas.signal(:run, 'agreed', '{"by": "anna"}') IS NOT NULL AS sent;
SELECT state, result, output FROM sas.wait(:run, '1 min');

-- so does a child, and its parent has its output
SELECT run_id AS run FROM sas.submit('trip', '{"n": 2}') \gset
SELECT state, result, output FROM sas.wait(:run, '1 min');

-- what was done is undone
SELECT run_id AS run FROM sas.submit('refused', '{"n": 3}') \gset
SELECT state, result FROM sas.wait(:run, '1 min');
SELECT n FROM public.booked ORDER BY n;

-- and the workers go with the extension
DROP EXTENSION sas;
SELECT count(*) FROM pg_namespace WHERE nspname IN ('sas', '_sas');
DO $$
BEGIN
    FOR i IN 1 .. 600 LOOP
        PERFORM pg_stat_clear_snapshot();
        IF NOT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND backend_type LIKE 'sas %') THEN
            RETURN;
        END IF;
        PERFORM pg_sleep(0.1);
    END LOOP;
    RAISE EXCEPTION 'a worker is left';
END $$;

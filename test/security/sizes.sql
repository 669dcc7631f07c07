-- SPDX-License-Identifier: PostgreSQL
--
-- Sizes: what a role gives along with a call, and what is stored with each run that the call is about, has a limit. So
-- no statement fills the disk by itself, and no view of others is slow by it.
\ir ../lib/login.sql
SELECT no_plan();

CREATE ROLE si_ann LOGIN; CREATE ROLE si_wren LOGIN;
SELECT sas.create_agent('si_away', kind => 'external') \g /dev/null
SELECT sas.grant_usage('si_ann', 'user'), sas.grant_usage('si_wren', 'worker', 'si_away'), sas.grant_agent('si_away', 'si_ann') \g /dev/null
CREATE FUNCTION pg_temp.refusal(who text, statement text) RETURNS text LANGUAGE sql AS $$
    SELECT CASE x.code WHEN 'ok' THEN 'done' ELSE x.code || ' ' || x.place END
    FROM login.as_role(who, replace(replace(statement, 'JSON', 'to_jsonb(repeat(''x'', 2000000))'), 'TEXT', 'repeat(''x'', 2000000)')) x $$;
-- it comes out of a table with a hundredth of its size
CREATE TABLE public.si_packed AS SELECT to_jsonb(repeat('x', 12000000)) AS v, jsonb_build_object('a', repeat('x', 12000000)) AS o; GRANT SELECT ON public.si_packed TO PUBLIC;
CREATE FUNCTION public.si_large(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(repeat('x', (input ->> 'n')::int)) $$;
SELECT is(x.code, 'ok', 'a user does: ' || s)
FROM unnest(ARRAY[$$SELECT sas.create_workflow('si_one', '{"steps": {"f": {"function": "public.si_large"}}}')$$,
                  $$SELECT sas.create_workflow('si_w', '{"steps": {"t": {"agent": "si_away", "task": {}}}}')$$, $$SELECT sas.schedule('si_s', 'every 1 h', 'si_w')$$,
                  $$SELECT sas.create_watcher('si_f', '{"agent": "si_away", "external": {}, "items": {"workflow": "si_w"}}')$$]) s, LATERAL login.as_role('si_ann', s) x;
SELECT said AS run FROM login.as_role('si_ann', $$SELECT run_id FROM sas.submit('si_w')$$) \gset
SELECT FROM login.as_role('si_ann', $$SELECT sas.watch('si_f', 'k')$$) \g /dev/null
SELECT is(pg_temp.refusal('si_ann', s), '54000 At ' || place || '.', 'a user does not: ' || s)
FROM (VALUES ($$SELECT sas.submit('si_w', labels => jsonb_build_object('a', JSON))$$, '/labels'),
             ($$SELECT sas.submit('si_w', labels => jsonb_build_object(TEXT, 1), key => 'x')$$, '/labels'),
             ($$SELECT sas.submit_batch('si_w', '{"{}","{}"}', labels => jsonb_build_object('a', JSON))$$, '/labels'),
             ($$SELECT sas.schedule('si_s2', 'every 1 h', 'si_w', labels => jsonb_build_object('a', JSON))$$, '/labels'),
             ($$SELECT sas.schedule('si_s2', 'every 1 h', 'si_w', input => jsonb_build_object('a', JSON))$$, '/input'),
             ($$SELECT sas.submit('si_w', jsonb_build_object('a', JSON))$$, '/input'),
             ($$SELECT sas.submit('si_w', key => repeat('x', 2001))$$, '/key'),
             ($$SELECT sas.submit('si_one', key => repeat('x', 2001))$$, '/key'),
             ($$SELECT sas.submit_batch('si_w', '{"{}"}', ARRAY[TEXT])$$, '/key'),
             ($$SELECT sas.watch('si_f', 'k2', jsonb_build_object('a', JSON))$$, '/input'),
             ($$SELECT sas.pause_schedule('si_s', TEXT)$$, '/reason'),
             (format($$SELECT sas.cancel(%s, TEXT)$$, :run), '/reason'),
             (format($$SELECT sas.cancel_runs(ARRAY[%s], TEXT)$$, :run), '/reason'),
             (format($$SELECT sas.halt(%s, TEXT)$$, :run), '/reason'),
             (format($$SELECT sas.compensate(%s, TEXT)$$, :run), '/reason'),
             (format($$SELECT sas.set_input(%s, 't', JSON)$$, :run), '/input'),
             (format($$SELECT sas.set_input(%s, 't', (SELECT v FROM public.si_packed))$$, :run), '/input'),
             (format($$SELECT sas.skip(%s, 't', (SELECT v FROM public.si_packed))$$, :run), '/output'),
             (format($$SELECT sas.force_complete(%s, 't', (SELECT v FROM public.si_packed))$$, :run), '/output'),
             (format($$SELECT sas.force_complete_runs('{%s}', 't', to_jsonb(repeat('x', 12000000)))$$, :run), '/output'),
             ($$SELECT s.* FROM public.si_packed, LATERAL sas.submit('si_w', o) s$$, '/input'),
             ($$SELECT s.* FROM public.si_packed, LATERAL sas.submit_batch('si_w', ARRAY[o]) s$$, '/input'),
             ($$SELECT s.* FROM public.si_packed, LATERAL sas.submit('si_one', o) s$$, '/input'),
             ($$SELECT s.* FROM public.si_packed, LATERAL sas.submit('si_one', labels => o) s$$, '/labels'),
             ($$SELECT s.* FROM public.si_packed, LATERAL sas.watch('si_f', 'k2', o) s$$, '/input')) v (s, place);
SELECT is(pg_temp.refusal('si_ann', $$SELECT sas.submit('si_w', labels => jsonb_build_object('a', repeat('x', 16000)))$$), 'done', 'labels of 16 kB are taken');
-- a number counts with the text that everybody reads: a few bytes of numbers may have gigabytes of it, and then nobody can read or dump the table
CREATE FUNCTION pg_temp.bomb(statement text) RETURNS text LANGUAGE sql AS $$
    SELECT replace(statement, 'BOMB', '(SELECT jsonb_object_agg(n, 1e131071::numeric) FROM generate_series(1, 70) n)') $$;
SELECT is(pg_temp.refusal('si_ann', pg_temp.bomb(s)), coalesce('54000 At ' || place || '.', '54000 At the top level.'), 'a user does not: ' || s)
FROM (VALUES ($$SELECT sas.submit('si_w', BOMB)$$, '/input'),
             ($$SELECT sas.submit('si_one', BOMB)$$, '/input'),
             ($$SELECT sas.submit_batch('si_w', ARRAY['{}', BOMB])$$, '/inputs/1'),
             ($$SELECT sas.submit('si_one', (SELECT jsonb_object_agg(n, 1e-16383::numeric) FROM generate_series(1, 700) n))$$, '/input'),
             ($$SELECT sas.submit('si_one', labels => '{"a": 1e131071}')$$, '/labels'),
             ($$SELECT sas.submit('si_w', labels => '{"a": 1e131071}')$$, '/labels'),
             ($$SELECT sas.schedule('si_s2', 'every 1 h', 'si_w', input => BOMB)$$, '/input'),
             ($$SELECT sas.watch('si_f', 'k2', BOMB)$$, '/input'),
             (format($$SELECT sas.signal(%s, 's', BOMB)$$, :run), '/payload'),
             (format($$SELECT sas.set_input(%s, 't', BOMB)$$, :run), '/input'),
             (format($$SELECT sas.skip(%s, 't', (SELECT jsonb_agg(b) FROM (SELECT BOMB) b (b), generate_series(1, 8)))$$, :run), '/output'),
             ($$SELECT sas.create_workflow('si_two', jsonb_build_object('steps', jsonb_build_object('f', jsonb_build_object('function', 'public.si_large', 'input', BOMB))))$$, NULL)) v (s, place);
SELECT is(pg_temp.refusal('si_ann', $$SELECT sas.submit('si_w', '{"a": 1e131071, "b": 1e-16383, "c": [1.5, -12345678901234567890, 0]}')$$), 'done', 'some long numbers are taken');
SELECT is(pg_temp.refusal('si_ann', $$SELECT sas.submit('si_w', (SELECT jsonb_build_object('t', jsonb_agg(1700000000000 + g)) FROM generate_series(1, 50000) g))$$), 'done', 'as are many numbers of a common length');
-- jsonb can be built with more levels than its text can be read with: the dump of one such value could not be restored
CREATE FUNCTION public.si_deep(n int) RETURNS jsonb LANGUAGE sql AS $$ SELECT (repeat('{"a":', n - 1) || '{}' || repeat('}', n - 1))::jsonb $$;
SELECT is(pg_temp.refusal('si_ann', replace(s, 'DEEP', 'public.si_deep(5001)')), coalesce('54000 At ' || place || '.', '54000 At the top level.'), 'a user does not: ' || s)
FROM (VALUES ($$SELECT sas.submit('si_w', DEEP)$$, '/input'),
             ($$SELECT sas.submit('si_one', DEEP)$$, '/input'),
             ($$SELECT sas.submit_batch('si_w', ARRAY['{}', DEEP])$$, '/inputs/1'),
             ($$SELECT sas.schedule('si_s2', 'every 1 h', 'si_w', input => DEEP)$$, '/input'),
             ($$SELECT sas.watch('si_f', 'k2', DEEP)$$, '/input'),
             (format($$SELECT sas.signal(%s, 's', DEEP)$$, :run), '/payload'),
             (format($$SELECT sas.set_input(%s, 't', DEEP)$$, :run), '/input'),
             (format($$SELECT sas.skip(%s, 't', DEEP)$$, :run), '/output'),
             ($$SELECT sas.create_workflow('si_two', jsonb_build_object('steps', jsonb_build_object('f', jsonb_build_object('function', 'public.si_large', 'input', DEEP))))$$, NULL),
             ($$SELECT sas.create_watcher('si_g', jsonb_build_object('agent', 'si_away', 'external', jsonb_build_object(), 'items', DEEP))$$, NULL)) v (s, place);
SELECT is(pg_temp.refusal('si_ann', $$SELECT sas.submit('si_w', public.si_deep(5000))$$), 'done', 'many levels are taken');
-- the shape of an array is the caller's, too
SELECT is((login.as_role('si_ann', format('SELECT array_agg(b.created) FROM sas.submit_batch(''si_w'', %L::jsonb[], %L::text[]) b', inputs, keys))).said, fresh::text, 'a batch of ' || inputs::text || ' with keys ' || keys::text)
FROM (VALUES (1, '[5:6]={"{}","{}"}'::jsonb[], '[9:10]={a,b}'::text[], '{t,t}'::boolean[]), (2, '{{"{}"},{"{}"}}', '{{b,c}}', '{f,t}'), (3, '{"{}","{}"}', '[0:1]={c,d}', '{f,t}')) v (n, inputs, keys, fresh) ORDER BY n;
SELECT said AS request FROM login.as_role('si_wren', $$SELECT request_id FROM sas.claim('si_away', 'w')$$) \gset
SELECT said AS node FROM login.as_role('si_wren', $$SELECT sas.register_node('si n', 10, '{si_away}', lease => '1 h', by_connection => false)$$) \gset
SELECT split_part(said, ' ', 1) AS watch, split_part(said, ' ', 2) AS epoch FROM login.as_role('si_wren', format('SELECT watch_id || '' '' || epoch FROM sas.claim_watchers(%s, 1)', :node)) \gset
SELECT is(pg_temp.refusal('si_wren', s), '54000 At ' || place || '.', 'an outside worker does not: ' || s)
FROM (VALUES (format($$SELECT sas.heartbeat(%L, 0.5, JSON)$$, :'request'), '/checkpoint'),
             (format($$SELECT sas.heartbeat(%L, 0.5, (SELECT v FROM public.si_packed))$$, :'request'), '/checkpoint'),
             (format($$SELECT sas.emit((SELECT v FROM public.si_packed), %L)$$, :'request'), '/chunk'),
             (format($$SELECT sas.complete(%L, (SELECT v FROM public.si_packed))$$, :'request'), '/output'),
             (format($$SELECT sas.complete(%L, to_jsonb(repeat('x', 12000000)))$$, :'request'), '/output'),
             (format($$SELECT sas.append_items(%s, %s, '[]', JSON)$$, :watch, :epoch), '/cursor'),
             (format($$SELECT sas.append_items(%s, %s, '[]', public.si_deep(5001))$$, :watch, :epoch), '/cursor'),
             (format($$SELECT sas.append_items(%s, %s, jsonb_build_array(public.si_deep(5000)))$$, :watch, :epoch), '/items'),
             (format($$SELECT sas.heartbeat(%L, 0.5, public.si_deep(5001))$$, :'request'), '/checkpoint'),
             (format($$SELECT sas.emit(public.si_deep(5001), %L)$$, :'request'), '/chunk'),
             (format($$SELECT sas.complete(%L, public.si_deep(5001))$$, :'request'), '/output'),
             (pg_temp.bomb(format($$SELECT sas.append_items(%s, %s, '[]', BOMB)$$, :watch, :epoch)), '/cursor'),
             (pg_temp.bomb(format($$SELECT sas.append_items(%s, %s, (SELECT jsonb_agg(b) FROM (SELECT BOMB) b (b), generate_series(1, 8)))$$, :watch, :epoch)), '/items'),
             (pg_temp.bomb(format($$SELECT sas.heartbeat(%L, 0.5, BOMB)$$, :'request')), '/checkpoint'),
             (pg_temp.bomb(format($$SELECT sas.emit(BOMB, %L)$$, :'request')), '/chunk'),
             (pg_temp.bomb(format($$SELECT sas.complete(%L, (SELECT jsonb_agg(b) FROM (SELECT BOMB) b (b), generate_series(1, 8)))$$, :'request')), '/output'),
             ($$SELECT sas.register_node('si m', 10, '{si_away}', TEXT)$$, '/version')) v (s, place);
SELECT is(pg_temp.refusal('si_wren', format($$SELECT sas.heartbeat(%L, 0.5, to_jsonb(repeat('x', 100000)))$$, :'request')), 'done', 'a checkpoint of 100 kB is taken');
SELECT is(pg_temp.refusal('si_wren', format($$SELECT sas.complete(%L, JSON)$$, :'request')), 'done', 'an output of 2 MB is taken');
-- functions, as a worker calls them
CREATE FUNCTION public.si_ends(n int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    ended text := (SELECT r.result FROM sas.run_inline('si_one', jsonb_build_object('n', n)) r);
BEGIN
    RETURN concat_ws(': ', ended, (SELECT concat(s.error ->> 'type', ' ', s.error ->> 'title') FROM sas.steps s WHERE s.state = 'failed'));
END $$;
SELECT is((login.as_role('si_ann', format('SELECT public.si_ends(%s)', n), false)).said,
          CASE n WHEN 12000000 THEN 'error: urn:sas:sqlstate:54000 the output has more than 8388608 bytes' ELSE 'success' END, format('a function returns %s bytes', n))
FROM unnest('{12000000,2000000}'::int[]) n;

-- a definition is measured by its text, which is not made of long numbers; many short ones do not hide its levels
SELECT is(pg_temp.refusal('si_ann', format($$SELECT sas.create_workflow('si_both', jsonb_build_object('steps', jsonb_build_object('a', jsonb_build_object('function', 'public.si_deepens', 'input', %s))))$$, d)),
          '54000 At the top level.', 'a user does not: a definition of ' || what)
FROM (VALUES ($$jsonb_build_object('d', public.si_deep(10000), 'n', (SELECT jsonb_agg(1) FROM generate_series(1, 100000)))$$, 'many levels and many numbers'),
             ($$(SELECT jsonb_agg('1e131071'::jsonb) FROM generate_series(1, 10000))$$, 'long numbers')) v (d, what);

-- what refers to a number, or computes one, makes no more of it than of other values
CREATE FUNCTION public.si_number(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT jsonb_agg(1e131071::numeric) FROM generate_series(1, (input ->> 'n')::int) $$;
CREATE FUNCTION public.si_deepens(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT public.si_deep((input ->> 'n')::int) $$;
SELECT is((login.as_role('si_ann', format('SELECT sas.create_workflow(%L, %L)', 'si_' || n, d))).code, 'ok', 'a user does: si_' || n)
FROM (VALUES ('f', jsonb_build_object('steps', jsonb_build_object('f', jsonb_build_object('function', 'public.si_number')))),
             ('deep', '{"steps": {"f": {"function": "public.si_deepens"}}}'),
             ('list', jsonb_build_object('steps', '{}'::jsonb, 'output', (SELECT jsonb_agg('{{input.list}}'::text) FROM generate_series(1, 20)))),
             ('map', '{"steps": {"f": {"function": "public.si_number", "each": "{{input.list}}", "input": {"n": "{{item}}"}}}}')) v (n, d);
CREATE FUNCTION public.si_says(workflow text, input jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    ended text := (SELECT concat_ws(' ', r.result, length(r.output::text)) FROM sas.run_inline(workflow, input) r);
BEGIN
    RETURN concat_ws(' ', ended, (SELECT s.error ->> 'title' FROM sas.steps s WHERE s.state = 'failed'), (SELECT r.error ->> 'detail' FROM sas.runs r WHERE r.workflow = si_says.workflow AND r.result = 'warning'));
END $$;
SELECT is(x.said, wanted, format('%s of %s', w, left(i::text, 30)))
FROM (VALUES ('si_f', '{"n": 70}'::jsonb, 'error the output has more than 8388608 bytes'), ('si_f', '{"n": 60}', 'success'), ('si_deep', '{"n": 5001}', 'error the output has more than 5000 levels'), ('si_map', '{"list": [1, 2]}', 'success'),
             ('si_map', jsonb_build_object('list', array_fill(60, '{22}')), 'error the outputs of the elements are too large for one array'),
             ('si_list', jsonb_build_object('list', (SELECT jsonb_agg(1e131071::numeric) FROM generate_series(1, 7))), 'warning'),
             ('si_list', jsonb_build_object('list', (SELECT jsonb_agg(1e131071::numeric) FROM generate_series(1, 6))), 'success 15728920')) v (w, i, wanted),
     LATERAL login.as_role('si_ann', format('SELECT public.si_says(%L, %L)', w, i), false) x;

SELECT * FROM finish();

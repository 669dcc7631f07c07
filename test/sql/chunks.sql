-- SPDX-License-Identifier: PostgreSQL
--
-- chunks: what steps tell while they are carried out.
\set SHOW_CONTEXT never
SELECT t.clean() \g /dev/null
CREATE FUNCTION t.tell(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM sas.emit(jsonb_build_object('part', n, 'of', input -> 'k')) FROM generate_series(1, 3) n;
    IF (input ->> 'fails')::boolean THEN
        RAISE EXCEPTION 'no';
    END IF;
    RETURN '{"done": true}';
END $$;
\echo a function tells with its result; one that fails has told nothing; the next is told of after one of them
SELECT t.workflow('tell', '{"f": {"function": "t.tell"}, "g": {"function": "t.tell", "input": {"fails": true}, "after": ["f"]}}', '{"on_failure": "fail"}') \g /dev/null
BEGIN;
SELECT run_id, result FROM sas.run_inline('tell', '{"k": "a"}') \gset
SELECT element, attempt, undo, chunk FROM sas.chunks(:run_id, 'f');
SELECT chunk FROM sas.chunks(:run_id, 'f', (SELECT min(chunk_id) FROM sas.chunks(:run_id, 'f')));
SELECT count(*) FROM sas.chunks(:run_id, 'g');
SELECT sas.emit('1');
ROLLBACK;
\echo elements of a map, each by its name
SELECT t.workflow('tells', '{"m": {"function": "t.tell", "each": "{{input.items}}", "input": {"k": "{{item}}"}}}') \g /dev/null
BEGIN;
SELECT run_id, result FROM sas.run_inline('tells', '{"items": ["x", "y"]}') \gset
SELECT element, chunk FROM sas.chunks(:run_id, 'm') ORDER BY element, chunk_id;
SELECT element, chunk FROM sas.chunks(:run_id, 'm[2]');
ROLLBACK;
\echo an unknown run, an unknown step
SELECT run_id FROM sas.submit('tell', '{"k": "a"}') \gset
SELECT * FROM sas.chunks(:run_id, 'f');
SELECT * FROM sas.chunks(99, 'f');
SELECT * FROM sas.chunks(:run_id, 'nope');
SELECT * FROM sas.chunks(NULL, NULL);
SELECT t.work();
\echo outside of a step, of nothing, too much
SELECT sas.emit('1');
SELECT sas.emit(NULL);
SELECT sas.emit(to_jsonb(repeat(md5('a'), 3000)));
SELECT sas.emit(to_jsonb((SELECT string_agg(md5(n::text), '') FROM generate_series(1, 3000) n)));
\echo an outside program tells under its claim, and not after it
SELECT FROM sas.create_agent('chunker', kind => 'external');
SELECT t.workflow('pack', '{"p": {"task": {}, "agent": "chunker", "undo": {"task": {}}}, "b": {"agent": "inventory", "call": {}, "after": ["p"]}}') \g /dev/null
SELECT run_id FROM sas.submit('pack') \gset
SELECT t.settle() \g /dev/null
SELECT request_id FROM sas.claim('chunker', 'w') \gset
SELECT sas.emit('"one"', :'request_id');
SELECT sas.emit('"two"', :'request_id');
SELECT chunk FROM sas.chunks(:run_id, 'p');
SELECT sas.fail(:'request_id', 'no');
SELECT sas.emit('"late"', :'request_id');
SELECT t.later('1 min') \g /dev/null
SELECT t.settle() \g /dev/null
SELECT request_id FROM sas.claim('chunker', 'w') \gset
SELECT sas.emit('"three"', :'request_id');
SELECT sas.complete(:'request_id', '{}');
SELECT t.settle() \g /dev/null
SELECT t.claim();
SELECT t.answer('b', 'permanent 400');
SELECT t.settle() \g /dev/null
SELECT request_id, undo FROM sas.claim('chunker', 'w') \gset
SELECT sas.emit('"undone"', :'request_id');
SELECT sas.complete(:'request_id', '{}');
SELECT t.work() \g /dev/null
SELECT element, attempt, undo, chunk FROM sas.chunks(:run_id, 'p');
\echo so many and no more
SELECT run_id FROM sas.submit('pack') \gset
SELECT t.settle() \g /dev/null
SELECT request_id FROM sas.claim('chunker', 'w') \gset
SELECT sas.emit('"one"', :'request_id');
INSERT INTO _sas.chunk (run_id, step_no, element, ordinal, attempt, undo, chunk, emitted_at) SELECT c.run_id, c.step_no, c.element, c.ordinal + n, 1, false, to_jsonb(n), c.emitted_at FROM _sas.chunk c CROSS JOIN generate_series(1, 9999) n WHERE c.run_id = :run_id;
SELECT sas.emit('"more"', :'request_id');
SELECT sas.complete(:'request_id', '{}');
SELECT t.work() \g /dev/null
SELECT sas.emit('1', '00000000-0000-0000-0000-000000000000');
\echo who sees them: the owner and operators, a monitor without content, nobody else
CREATE ROLE sas_ann; CREATE ROLE sas_mon; CREATE ROLE sas_ops;
SELECT FROM sas.grant_usage('sas_ann', 'user'); SELECT FROM sas.grant_usage('sas_mon', 'monitor'); SELECT FROM sas.grant_usage('sas_ops', 'operator');
SELECT max(run_id) AS run_id FROM sas.runs \gset
SET ROLE sas_ann;
SELECT count(*) FROM sas.chunks(:run_id, 'p');
SET ROLE sas_mon;
SELECT attempt, chunk FROM sas.chunks(:run_id, 'p') LIMIT 1;
SET ROLE sas_ops;
SELECT attempt, chunk FROM sas.chunks(:run_id, 'p') LIMIT 1;
RESET ROLE;
\echo where the workflow has a mask, only the owner reads them
SELECT t.workflow('hidden', '{"f": {"function": "t.tell"}}', '{"mask": ["input.k"]}') \g /dev/null
BEGIN;
SELECT run_id, result FROM sas.run_inline('hidden', '{"k": "a"}') \gset
SELECT chunk FROM sas.chunks(:run_id, 'f') LIMIT 1;
SET LOCAL ROLE sas_ops;
SELECT chunk FROM sas.chunks(:run_id, 'f') LIMIT 1;
ROLLBACK;
\echo they go with their run
SELECT runs FROM sas.purge('0 s');
SELECT count(*) FROM _sas.chunk;
DROP OWNED BY sas_ann, sas_mon, sas_ops;
DROP ROLE sas_ann, sas_mon, sas_ops;
SELECT sas.drop_workflow('pack');
SELECT sas.drop_agent('chunker');

-- SPDX-License-Identifier: PostgreSQL
--
-- Tokens: a step hands out what ends another step's wait, once; and progress by weight.
\set SHOW_CONTEXT never
SELECT t.clean() \g /dev/null
SELECT t.workflow('callback', '{
    "ask":  {"agent": "inventory", "call": {"body": {"done_with": "{{steps.done.token}}"}}, "weight": 1},
    "done": {"wait": {"signal": "done", "timeout": "1 day"}, "after": ["ask"], "expect": "$.output.ok == true", "weight": 2},
    "end":  {"function": "t.echo", "input": "{{steps.done.output}}", "weight": 1}}') \g /dev/null
SELECT run_id FROM sas.submit('callback');
SELECT run_id FROM sas.submit('callback');
-- whoever hands it out comes before the wait, not behind
SELECT t.claim(), progress FROM sas.runs WHERE run_id = 1;
CREATE TABLE t.token AS SELECT run_id, asked #>> '{body,done_with}' AS token FROM t.held;
SELECT count(DISTINCT token) AS tokens, bool_and(token ~ '^[0-9]+-[0-9a-f]{40}$') AS looks_so FROM t.token;
SELECT t.answer('ask', for_run => 1), t.answer('ask', for_run => 2);
SELECT t.settle();
SELECT run_id, progress FROM sas.runs ORDER BY 1;
-- one that was made up, or belongs to another run, ends nothing
SELECT sas.signal_token('nonsense');
SELECT sas.signal_token(overlay(token placing '0000' from length(token) - 3)) FROM t.token WHERE run_id = 1;
SELECT sas.signal_token('2' || substr(token, 2)) FROM t.token WHERE run_id = 1;
-- the right one, once
SELECT sas.signal_token(token, '{"ok": true}') FROM t.token WHERE run_id = 1;
SELECT sas.signal_token(token, '{"ok": false}') FROM t.token WHERE run_id = 1;
SELECT t.work();
SELECT t.brief(1), t.brief(2);
SELECT run_id, progress FROM sas.runs ORDER BY 1;
SELECT output FROM sas.steps WHERE run_id = 1 AND step = 'end';
SELECT sas.signal_token(token, '{"ok": true}') FROM t.token WHERE run_id = 1;
-- one that comes before the wait begins is kept
SELECT run_id FROM sas.submit('callback');
SELECT t.claim();
SELECT sas.signal_token(asked #>> '{body,done_with}', '{"ok": true}') FROM t.held;
SELECT t.answer('ask');
SELECT t.work();
SELECT t.brief(3);
SELECT changed FROM sas.cancel(2);
SELECT t.work();
SELECT * FROM t.left_over();
DROP TABLE t.token;

-- finalize of steps: one last step, in the order of the steps, those that were skipped left out
CREATE TABLE t.said (n int GENERATED ALWAYS AS IDENTITY, what text);
CREATE FUNCTION t.final_a(context jsonb) RETURNS jsonb LANGUAGE sql AS $$ INSERT INTO t.said (what) VALUES ('a') RETURNING to_jsonb(what) $$;
CREATE FUNCTION t.final_b(context jsonb) RETURNS jsonb LANGUAGE sql AS $$ INSERT INTO t.said (what) VALUES ('b') RETURNING to_jsonb(what) $$;
CREATE FUNCTION t.final_run(context jsonb) RETURNS jsonb LANGUAGE sql AS $$ INSERT INTO t.said (what) VALUES ('run') RETURNING to_jsonb(what) $$;
SELECT t.workflow('last', '{
    "a": {"function": "t.echo", "after": ["z"], "finalize": "t.final_a"},
    "b": {"function": "t.echo", "when": "$.input.b == true", "finalize": "t.final_b"},
    "z": {"function": "t.echo", "finalize": "t.final_b"}}', '{"finalize": "t.final_run"}') \g /dev/null
SELECT t.workflow('last_steps_only', '{"b": {"function": "t.echo", "when": "$.input.b == true", "finalize": "t.final_b"}}') \g /dev/null
SELECT run_id FROM sas.submit('last', '{"b": true}');
SELECT t.settle(), t.claim();
SELECT t.answer('b'), t.answer('z'), t.claim(), t.answer('a');
SELECT replace(function, E'\n', ' ') AS functions, input -> 'steps' -> 'a' -> 'state' AS a FROM _sas.claim_functions(1, 1, t.worker('f'), 'f');
SELECT run_id FROM sas.submit('last', '{"b": false}');
SELECT t.settle(), t.claim();
SELECT t.answer('z'), t.claim(), t.answer('a');
SELECT replace(function, E'\n', ' ') AS functions FROM _sas.claim_functions(1, 1, t.worker('f'), 'f');
SELECT run_id FROM sas.submit('last_steps_only', '{"b": false}');
SELECT t.settle();
SELECT function AS functions FROM _sas.claim_functions(1, 1, t.worker('f'), 'f');
-- of what is included too, its own after those of its steps, with what is around it in order
SELECT t.workflow('inside', '{"i": {"function": "t.echo", "finalize": "t.final_a"}}', '{"finalize": "t.final_b"}') \g /dev/null
SELECT t.workflow('around', '{"z": {"function": "t.echo", "finalize": "t.final_b"}, "x": {"include": "inside", "after": ["z"]}, "y": {"include": "inside", "after": ["x"], "when": "$.input.b == true"}}', '{"finalize": "t.final_run"}') \g /dev/null
SELECT run_id FROM sas.submit('around', '{"b": false}');
SELECT t.settle(), t.claim(), t.answer('z'), t.settle(), t.claim(), t.answer('x.i'), t.settle();
SELECT replace(function, E'\n', ' ') AS functions FROM _sas.claim_functions(1, 1, t.worker('f'), 'f');
DROP TABLE t.said;
SELECT t.clean() \g /dev/null

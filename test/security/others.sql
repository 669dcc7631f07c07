-- SPDX-License-Identifier: PostgreSQL
--
-- What others see: a role has something of each kind, with a value of its own in every place that can hold one.
-- Another user finds none of it, by whatever view or function; a monitor finds that it is there, and no value.
\ir ../lib/login.sql
SELECT no_plan();

CREATE ROLE ot_ann LOGIN; CREATE ROLE ot_bob LOGIN; CREATE ROLE ot_mon LOGIN; CREATE ROLE ot_op LOGIN; CREATE ROLE ot_wren LOGIN;
SELECT sas.create_agent('ot_away', kind => 'external') \g /dev/null
SELECT sas.grant_usage('ot_ann', 'user'), sas.grant_usage('ot_bob', 'user'), sas.grant_usage('ot_mon', 'monitor'), sas.grant_usage('ot_op', 'operator'), sas.grant_usage('ot_wren', 'worker', 'ot_away'),
       sas.grant_agent('ot_away', 'ot_ann'), sas.set_limit('ot_ann', 'open_runs', 77) \g /dev/null
CREATE SCHEMA ot; GRANT USAGE ON SCHEMA ot TO PUBLIC;
CREATE FUNCTION ot.act(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT input $$;
CREATE TABLE ot.item (item jsonb); GRANT INSERT ON ot.item TO ot_ann;
-- all values of its first column, or the SQLSTATE
CREATE FUNCTION pg_temp.reads(who text, query text) RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(nullif(x.code, 'ok'), x.said, '') FROM login.as_role(who, format('SELECT string_agg(x::text, E''\n'') FROM (%s) x', query)) x $$;
CREATE FUNCTION pg_temp.does(who text, statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    x record := login.as_role(who, statement);
BEGIN
    IF x.code <> 'ok' THEN
        RAISE EXCEPTION '% cannot: % (% %)', who, statement, x.code, x.message;
    END IF;
    RETURN x.said;
END $$;
-- the names of what is ann's in a text; agents are there for all
CREATE FUNCTION pg_temp.names(said text) RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(DISTINCT m[1], ' ') FROM regexp_matches(said, E'(ot_(?:ann|done|open|stops|more|most|s|each|feed|key|held|stuck|good|bad|label)\\M|canary)', 'g') m $$;
CREATE FUNCTION pg_temp.tick() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    FOR n IN 1 .. 6 LOOP
        PERFORM FROM _sas.answer_tick(100);
        PERFORM FROM _sas.scheduler_tick(100);
        PERFORM FROM _sas.supervisor_tick(1, '{1}', 1, 100);
        PERFORM FROM _sas.fire_schedules(100);
    END LOOP;
END $$;

-- each kind of thing ------------------------------------------------------------------------------

SELECT pg_temp.does('ot_ann', s) FROM unnest(ARRAY[
    $$SELECT sas.create_workflow('ot_done', '{"steps": {"t": {"agent": "ot_away", "task": {}}}, "output": "{{steps.t.output}}", "on_failure": "fail"}')$$,
    $$SELECT sas.create_workflow('ot_open', '{"steps": {"t": {"agent": "ot_away", "task": {}, "input": {"card": "{{input.card}}"}}, "w": {"wait": {"signal": "go"}}}, "on_failure": "pause",
        "concurrency": {"key": "{{input.card}}", "limit": 2}, "hooks": [{"on": "paused", "function": "ot.act"}]}')$$,
    $$SELECT sas.create_workflow('ot_stops', '{"steps": {"t": {"agent": "ot_away", "task": {}}}, "on_failure": "pause"}')$$,
    $$SELECT sas.create_workflow('ot_more', '{"steps": {"m": {"function": "ot.act"}}}')$$, $$SELECT sas.create_workflow('ot_most', '{"steps": {"n": {"function": "ot.act"}}}')$$, $$SELECT sas.subscribe('ot_more', 'ot_most')$$]) s \g /dev/null
SELECT pg_temp.does('ot_ann', format('SELECT run_id FROM sas.submit(%L, ''{"card": "canary"}'', %L, labels => ''{"ot_label": 1}'', reply_to => ''ot_replies'')', w, k)) AS id
FROM (VALUES ('ot_done', 'ot_good'), ('ot_done', 'ot_bad'), ('ot_open', 'ot_held'), ('ot_stops', 'ot_stuck')) v (w, k) \g /dev/null
SELECT run_id AS good FROM sas.runs WHERE key = 'ot_good' \gset
SELECT run_id AS bad FROM sas.runs WHERE key = 'ot_bad' \gset
SELECT run_id AS held FROM sas.runs WHERE key = 'ot_held' \gset
SELECT pg_temp.tick() \g /dev/null
SELECT pg_temp.does('ot_wren', $$SELECT count(*) FROM sas.claim('ot_away', 'w', 10)$$) \g /dev/null
SELECT pg_temp.does('ot_wren', format('SELECT ' || call, request_id)) FROM _sas.external_slot s,
    LATERAL unnest(ARRAY[$$sas.emit('"canary"', %L)$$, CASE s.run_id WHEN :good THEN $$sas.complete(%L, '{"card": "canary"}')$$ ELSE $$sas.fail(%L, 'canary', true)$$ END]) WITH ORDINALITY AS c (call, n)
WHERE s.request_id IS NOT NULL ORDER BY n \g /dev/null
SELECT pg_temp.tick() \g /dev/null
SET sas.reason = 'canary';
SELECT FROM sas.pause(:held) \g /dev/null
SELECT FROM sas.set_priority(:held, 3) \g /dev/null
RESET sas.reason;
SELECT pg_temp.does('ot_ann', s) FROM unnest(ARRAY[format($$SELECT changed FROM sas.set_input(%s, 't', '{"card": "canary"}')$$, :held),
    $$SELECT sas.schedule('ot_s', '0 3 1 1 *', 'ot_done', input => '{"card": "canary"}')$$, $$SELECT sas.pause_schedule('ot_s', 'canary')$$, $$SELECT sas.schedule('ot_each', '0 3 * * *', 'ot_done', input => '{"card": "canary"}')$$,
    $$SELECT sas.create_watcher('ot_feed', '{"agent": "ot_away", "external": {"card": "{{input.card}}"}, "items": {"table": "ot.item"}}')$$, $$SELECT sas.watch('ot_feed', 'ot_key', '{"card": "canary"}')$$]) s \g /dev/null
SELECT _sas.settle_watches(array_agg(watch_id)) FROM sas.watches \g /dev/null
SELECT pg_temp.does('ot_wren', $$SELECT sas.register_node('ot_node', 10, '{ot_away}', lease => '1 h', by_connection => false)$$) AS node \gset
SELECT pg_temp.does('ot_wren', format('SELECT watch_id || '' '' || epoch FROM sas.claim_watchers(%s, 1)', :node)) AS hosted \gset
SELECT split_part(:'hosted', ' ', 1) AS watch, split_part(:'hosted', ' ', 2) AS epoch \gset
SELECT pg_temp.does('ot_wren', s) FROM unnest(ARRAY[format($$SELECT sas.append_items(%s, %s, '[]', '"canary"')$$, :watch, :epoch), format($$SELECT sas.fail_watch(%s, %s, 'canary')$$, :watch, :epoch)]) s \g /dev/null
-- as a function worker does
INSERT INTO _sas.step (run_id, step_no, element, state, attempt, failure_count, in_doubt, alone, deferred, output)
SELECT r.run_id, 1, 0, 'succeeded', 1, 0, false, false, false, '{"card": "canary"}' FROM _sas.run r WHERE r.hook_of = :held;
-- as when a function has raised it: its message is the title
UPDATE _sas.run r SET paused_for = replace(r.paused_for, 'the task failed', 'canary') WHERE r.key = 'ot_stuck';
UPDATE _sas.agent_health h SET last_error = '{"type": "urn:sas:http", "title": "the service answered 402", "detail": "canary", "status": 402}' FROM _sas.agent a WHERE a.agent_id = h.agent_id AND a.name = 'ot_away';

-- views --------------------------------------------------------------------------------------------

-- those in which something of it is, and those in which something of it is a value
CREATE TEMP TABLE look AS
SELECT c.relname AS name, format('SELECT * FROM sas.%I', c.relname) AS query,
       c.relname = ANY ('{runs,steps,attempts,alerts,history,limits,locks,hook_runs,watches,watchers,subscriptions,schedules,workflows,versions,grants,run_details,cluster_runs,cluster_steps,cluster_alerts}'::text[]) AS shows,
       c.relname = ANY ('{runs,steps,attempts,alerts,history,locks,hook_runs,watches,schedules,cluster_runs,cluster_steps,cluster_alerts}'::text[]) AS has_values
FROM pg_class c WHERE c.relnamespace = 'sas'::regnamespace AND c.relkind = 'v';
SELECT alike(pg_temp.reads('ot_ann', l.query), '%ot\_%', format('who has something sees it in sas.%s', l.name)) FROM look l WHERE l.shows;
SELECT alike(pg_temp.reads('ot_ann', l.query), '%canary%', format('and its values in sas.%s', l.name)) FROM look l WHERE l.has_values;
SELECT alike(pg_temp.reads('ot_op', l.query), '%canary%', format('an operator sees them in sas.%s', l.name)) FROM look l WHERE l.has_values;
SELECT is(pg_temp.names(pg_temp.reads('ot_bob', l.query)), NULL, format('another user sees nothing of it in sas.%s', l.name)) FROM look l ORDER BY l.name;
SELECT is(pg_temp.reads('ot_bob', format('SELECT count(run_id) FROM sas.%I', v)), '(0)', format('nor a run of it in sas.%s', v))
FROM unnest('{runs,steps,attempts,alerts,history,locks,hook_runs,cluster_runs,cluster_steps,cluster_alerts}'::text[]) v;
SELECT is(pg_temp.reads('ot_bob', $$SELECT role, kind FROM sas.grants$$), '(ot_bob,level)', 'and in sas.grants what it was granted itself');
SELECT alike(pg_temp.reads('ot_mon', l.query), '%ot\_%', format('a monitor sees it in sas.%s', l.name)) FROM look l WHERE l.shows AND l.name <> 'locks';
SELECT unalike(pg_temp.reads('ot_mon', l.query), '%canary%', format('and no value in sas.%s', l.name)) FROM look l ORDER BY l.name;
-- columns one by one, where a value of a run stands in several
SELECT is(pg_temp.reads('ot_mon', format('SELECT count(%I) FROM sas.%I', split_part(c, '.', 2), split_part(c, '.', 1))), '(0)', format('a monitor sees no sas.%s', c))
FROM unnest('{runs.input,runs.output,steps.input,steps.output,watches.input,watches.cursor,schedules.input,schedules.paused_reason,hook_runs.output,locks.key,history.reason}'::text[]) c;
SELECT alike(pg_temp.reads(who, $$SELECT paused_for FROM sas.runs WHERE key = 'ot_stuck'$$), said, format('why a run is paused, %s reads as %s', who, said)) FROM (VALUES ('ot_ann', '%failed: %canary%'), ('ot_op', '%failed: %canary%'), ('ot_mon', '%failed")')) v (who, said);
SELECT is(pg_temp.reads('ot_mon', format('SELECT count(*) FROM sas.%I x WHERE to_jsonb(x) -> ''error'' ? ''detail''', v)), '(0)', format('nor the detail of an error in sas.%s', v)) FROM unnest('{runs,steps,attempts}'::text[]) v;

-- Views over its tables with the rights of their reader, made for all by who may read all data: they reach each column
-- on which the reader has a right.
CREATE ROLE ot_reads LOGIN IN ROLE pg_read_all_data;
CREATE SCHEMA ot_seen; GRANT USAGE ON SCHEMA ot_seen TO PUBLIC; GRANT CREATE ON SCHEMA ot_seen TO ot_reads;
CREATE TEMP TABLE seen AS
SELECT c.relname AS name, string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) AS columns
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relnamespace = '_sas'::regnamespace AND c.relkind IN ('r', 'v', 'p') AND has_column_privilege('ot_mon', c.oid, a.attnum, 'SELECT') GROUP BY 1;
SELECT ok(count(*) > 2, 'a reader of views has rights on some tables') FROM seen;
SELECT pg_temp.does('ot_reads', format('CREATE VIEW ot_seen.%I WITH (security_invoker) AS SELECT %s FROM _sas.%1$I; GRANT SELECT ON ot_seen.%1$I TO PUBLIC', name, columns)) FROM seen \g /dev/null
SELECT unalike(pg_temp.reads('ot_mon', format('SELECT * FROM ot_seen.%I', name)), '%canary%', format('a monitor finds no value through a view of others over _sas.%s', name)) FROM seen ORDER BY 1;
SELECT is(pg_temp.reads('ot_bob', format('SELECT count(run_id) FROM ot_seen.%I', name)), '(0)', format('nor another user a run: _sas.%s', name)) FROM seen WHERE name IN ('run', 'run_value') ORDER BY 1;
SELECT isnt(pg_temp.reads('ot_ann', format('SELECT count(run_id) FROM ot_seen.%I', name)), '(0)', format('who has it does: _sas.%s', name)) FROM seen WHERE name IN ('run', 'run_value') ORDER BY 1;
-- Internal functions that a level may execute: such a role can name them. Those in C read with other rights than the
-- caller's, so each of them asks by itself whose run it is.
CREATE ROLE ot_snoop LOGIN IN ROLE pg_read_all_data;
SELECT sas.grant_usage('ot_snoop', 'user') \g /dev/null
CREATE TEMP TABLE internal AS
SELECT f.name, replace(f.query, 'RUN', run) AS query, replace(f.query, 'RUN', '999999999') AS of_none
FROM (SELECT p.oid::regprocedure AS name, format('SELECT * FROM _sas.%I(%s)', p.proname, (
          SELECT string_agg(CASE t WHEN 'bigint'::regtype THEN 'RUN' WHEN 'integer'::regtype THEN '1' WHEN 'oid'::regtype THEN 'ot_ann'::regrole::oid::text
                            WHEN 'text'::regtype THEN quote_literal(thing) WHEN 'jsonb'::regtype THEN quote_literal('{}') WHEN 'bigint[]'::regtype THEN quote_literal('{RUN}') ELSE 'NULL' END || '::' || t::regtype, ', ' ORDER BY n)
          FROM unnest(p.proargtypes) WITH ORDINALITY a (t, n))) AS query
      FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang, unnest('{ot_open,ot_s}'::text[]) thing
      WHERE p.pronamespace = '_sas'::regnamespace AND l.lanname = 'c' AND has_function_privilege('ot_snoop', p.oid, 'EXECUTE')) f, unnest(ARRAY[:'good', :'bad', :'held']) run;
SELECT ok(count(DISTINCT name) > 10, 'a level has a right on internal functions') FROM internal;
SELECT is(pg_temp.reads('ot_snoop', $$SELECT * FROM _sas.workflow_graph('ot_open')$$), '', 'who can name them gets no steps of a workflow of another user');
SELECT is(string_agg(DISTINCT format('%s: %s', query, said), E'\n'), NULL, 'who can name internal functions learns by none of them what another user has')
FROM internal, LATERAL (SELECT pg_temp.names(pg_temp.reads('ot_snoop', query))) x (said) WHERE said IS NOT NULL;
SELECT is(string_agg(DISTINCT format('%s: %s, not %s', i.query, x.said, x.of_none), E'\n'), NULL, 'nor more of a run of others than of one that does not exist')
FROM internal i, LATERAL (SELECT pg_temp.reads('ot_snoop', i.query), pg_temp.reads('ot_snoop', i.of_none)) x (said, of_none) WHERE i.query <> i.of_none AND x.said <> x.of_none;
SELECT is(pg_temp.reads('ot_snoop', 'SELECT count(*) FROM _sas.open_run_ids()'), '(0)', 'nor which runs of others are open');
SELECT is(pg_temp.reads('ot_snoop', 'SELECT count(*) FROM _sas.open_groups()'), '(0)', 'nor how many runs of others are open');
SELECT is(pg_temp.reads('ot_snoop', 'SELECT count(*) FROM _sas.runs_alike()'), '(0)', 'nor what they wait for');
SELECT pg_temp.does('ot_ann', $$SELECT sas.create_workflow('ot_map', '{"steps": {"m": {"each": "{{input.list}}", "agent": "ot_away", "task": {}}}}')$$) \g /dev/null
SELECT pg_temp.does('ot_ann', $$SELECT run_id FROM sas.submit('ot_map', '{"list": [1]}')$$) AS mapped \gset
SELECT is(pg_temp.reads(who, format('SELECT count(*) FROM _sas.run_facts(%s)', :mapped)), said, format('of elements %s is told: %s', who, said)) FROM (VALUES ('ot_snoop', '(0)'), (current_user::text, '(1)')) v (who, said);

-- functions ------------------------------------------------------------------------------------------

CREATE TEMP TABLE call AS
SELECT replace(call, 'RUN', run.id::text) AS query, run.what
FROM (VALUES (:good::bigint, 'that has ended'), (:bad::bigint, 'that has failed'), (:held::bigint, 'that is paused')) run (id, what),
     unnest('{sas.explain(RUN),sas.timeline(RUN),sas.graph(RUN),"sas.chunks(RUN, ''t'')",sas.console(RUN)}'::text[]) call;
SELECT unalike(pg_temp.reads('ot_ann', 'SELECT * FROM ' || query), '42%', format('who has a run %s asks for %s', what, regexp_replace(query, '[0-9]+', 'ID'))) FROM call;
SELECT is(pg_temp.names(pg_temp.reads('ot_bob', 'SELECT * FROM ' || query)), NULL, format('another user is told nothing of a run %s by %s', what, regexp_replace(query, '[0-9]+', 'ID'))) FROM call;
SELECT is(pg_temp.reads('ot_bob', 'SELECT * FROM ' || query), '42704', format('a run %s is not there for it, says %s', what, regexp_replace(query, '[0-9]+', 'ID'))) FROM call WHERE query !~ 'console';
SELECT unalike(pg_temp.reads('ot_mon', 'SELECT * FROM ' || query), '%canary%', format('a monitor reads no value of a run %s by %s', what, regexp_replace(query, '[0-9]+', 'ID'))) FROM call;
SELECT is(pg_temp.reads(who, format('SELECT chunk FROM sas.chunks(%s, ''t'')', :good)), said, format('%s reads of a chunk: %s', who, said)) FROM (VALUES ('ot_ann', '("""canary""")'), ('ot_op', '("""canary""")'), ('ot_mon', '()')) v (who, said);
SELECT is(pg_temp.reads(who, format('SELECT count(*) FROM sas.find_runs(%L)', search)), said, format('%s finds %s runs by %s', who, said, search))
FROM (VALUES ('ot_ann', '{"text": "canary"}', '(4)'), ('ot_op', '{"text": "canary"}', '(4)'), ('ot_mon', '{"text": "canary"}', '(0)'), ('ot_bob', '{"text": "canary"}', '(0)'), ('ot_mon', '{"key": "ot_good"}', '(1)'), ('ot_bob', '{"key": "ot_good"}', '(0)'),
             ('ot_bob', '{"labels": {"ot_label": 1}}', '(0)'), ('ot_bob', '{}', '(0)'), ('ot_bob', '{"workflow": "ot_done"}', '(0)'), ('ot_bob', '{"submitted_by": "ot_ann"}', '(0)')) v (who, search, said);
SELECT is(pg_temp.reads(who, $$SELECT count(*) > 0 FROM sas.calendar()$$), said, format('%s sees instants of a schedule in the calendar: %s', who, said)) FROM (VALUES ('ot_ann', '(t)'), ('ot_mon', '(t)'), ('ot_bob', '(f)')) v (who, said);
SELECT unalike(pg_temp.reads('ot_bob', $$SELECT sas.graph_workflow('ot_open')$$), '%ot\_away%', 'another user gets no picture of a workflow');
SELECT alike(pg_temp.reads('ot_mon', $$SELECT sas.graph_workflow('ot_open')$$), '%ot\_away%', 'a monitor does');
SELECT is(pg_temp.names(pg_temp.reads('ot_bob', 'SELECT ' || q)), NULL, 'nor is it told of any by ' || q) FROM unnest(ARRAY['sas.console()', 'sas.console_schedules()', 'sas.explain()', $$sas.console_page('/', '{}')$$, $$sas.console_page('/runs', '{}')$$]) q;
SELECT unalike(pg_temp.reads('ot_mon', 'SELECT ' || q), '%canary%', 'nor a monitor of a value by ' || q) FROM unnest(ARRAY['sas.console()', 'sas.console_schedules()', 'sas.explain()', $$sas.console_page('/', '{}')$$, $$sas.console_page('/runs', '{}')$$, 'sas.metrics()', 'sas.health()']) q;

-- what cannot be carried out because of an error of SQL, which has told a value
DO $$
DECLARE
    id bigint := (SELECT run_id FROM sas.runs WHERE key = 'ot_held');
    done record := _sas.apart($w$NULL::bigint[] FROM (SELECT ('canary of run ' || ($1)[1])::int) x (n) WHERE n > 0$w$, ARRAY[id]);
BEGIN
    PERFORM _sas.defer_apart('timer', ARRAY[id], done.failed, done.errors, done.pauses, ARRAY[id]);
    PERFORM _sas.part('look at canaries', $w$(SELECT c::int FROM (VALUES ('canary of all')) x (c))$w$);
END $$;
SELECT is(pg_temp.reads(who, $$SELECT regexp_replace(message, '[0-9]+', 'N', 'g') FROM sas.alerts WHERE kind = 'stuck' ORDER BY alert_id$$), said, format('what is stuck, as %s sees it', who))
FROM (VALUES ('ot_mon', E'("run N: timer N cannot be carried out: an error with SQLSTATE NPN")\n("could not look at canaries: an error with SQLSTATE NPN")'),
             ('ot_op', E'("run N: timer N cannot be carried out: invalid input syntax for type integer: ""canary of run N""")\n("could not look at canaries: invalid input syntax for type integer: ""canary of all""")'),
             ('ot_ann', E'("run N: timer N cannot be carried out: invalid input syntax for type integer: ""canary of run N""")'), ('ot_bob', '')) v (who, said);

-- what is for the owner to take, and for the owner and operators to do
SELECT is(pg_temp.reads('ot_bob', $$SELECT count(*) FROM sas.read_replies('ot_replies', 10)$$), '(0)', 'replies are for who submitted: another user takes none');
SELECT isnt(pg_temp.reads('ot_ann', $$SELECT count(*) FROM sas.read_replies('ot_replies', 10)$$), '(0)', 'they are there for who did');
SELECT is(pg_temp.reads('ot_bob', q), '42704', 'another user finds nothing to act on: ' || regexp_replace(q, '[0-9]+', 'ID'))
FROM unnest(ARRAY[format('SELECT sas.signal(%s, ''go'')', :held), $$SELECT sas.signal_key('ot_open', 'ot_held', 'go')$$, format('SELECT * FROM sas.wait(%s)', :good), $$SELECT sas.pause_workflow('ot_open')$$]) q;
SELECT is(pg_temp.reads('ot_bob', q), '42501', 'nor does it change what is another''s: ' || q)
FROM unnest(ARRAY[$$SELECT sas.pause_schedule('ot_s')$$, $$SELECT sas.unschedule('ot_s')$$, $$SELECT * FROM sas.trigger_schedule('ot_s')$$, $$SELECT sas.drop_watcher('ot_feed')$$, $$SELECT sas.drop_workflow('ot_done')$$]) q;
SELECT pg_temp.does('ot_ann', $$SELECT sas.create_watcher('ot_own', '{"function": "ot.act", "every": "1 h"}')$$) \g /dev/null
SELECT sas.create_watcher('ot_for_all', '{"function": "ot.act", "every": "1 h"}') \g /dev/null
SELECT is(pg_temp.reads('ot_bob', $$SELECT watch_id FROM sas.watch('ot_own', 'k')$$), '42501', 'nor does it use its watcher');
SELECT isnt(pg_temp.reads('ot_bob', $$SELECT watch_id FROM sas.watch('ot_for_all', 'k')$$), '42501', 'one of a superuser it does');
SELECT pg_temp.does('ot_ann', $$SELECT sas.watch('ot_for_all', 'ot_key')$$) \g /dev/null
SELECT is(pg_temp.reads('ot_bob', $$SELECT watch_id FROM sas.watch('ot_for_all', 'ot_key', adopt => true)$$), '42501', 'but takes over no task of another user there');
SELECT is(pg_temp.reads('ot_bob', $$SELECT refused FROM sas.unwatch('ot_feed', '{ot_key}')$$), '("task ""ot_key"" does not exist, or is not yours")', 'nor does it stop its task');
SELECT is(pg_temp.does('ot_bob', $$SELECT sas.create_workflow('bobs', '{"steps": {"m": {"function": "ot.act"}}}')$$), '1', 'it has a workflow of its own');
SELECT is(pg_temp.reads('ot_bob', 'SELECT created FROM sas.submit(''bobs'')'), '(t)', 'and a run of it');
SELECT is(pg_temp.reads('ot_bob', format('SELECT run_id FROM sas.submit(''bobs'', after_run => %s)', :held)), '42704', 'nor does a run of its own wait for it');

-- a search ends when it has found enough of its own
SELECT pg_temp.does('ot_ann', $$SELECT run_id FROM sas.submit('ot_done', key => 'ot_more')$$) \g /dev/null
SELECT is(pg_temp.reads('ot_bob', $$SELECT count(*) FROM sas.find_runs('{}', 1)$$), '(1)', 'newer runs of another user are none of those that it searches for');

SELECT * FROM finish();

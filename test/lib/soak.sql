-- SPDX-License-Identifier: PostgreSQL
--
-- Single operations at rest, for test/t/238_soak.pl: each by itself, in a transaction of its own, after the one
-- before has had its effect. How long each took, by kind, is in soak.taken.

CREATE SCHEMA soak;
CREATE TABLE soak.taken (kind text NOT NULL, n int NOT NULL, ms float8 NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE TABLE soak.got (item jsonb NOT NULL);
CREATE INDEX ON soak.got (item);
CREATE TABLE soak.called (key text NOT NULL);
CREATE INDEX ON soak.called (key);
CREATE FUNCTION soak.echo(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input';
CREATE FUNCTION soak.dwell(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT input FROM pg_sleep(0.03 * random())';
CREATE FUNCTION soak.note(input jsonb) RETURNS jsonb LANGUAGE sql AS $$
	INSERT INTO soak.called VALUES (input ->> 'key') RETURNING NULL::jsonb $$;

SELECT sas.create_workflow('local', '{"steps": {"it": {"function": "soak.echo"}}}');
SELECT sas.create_workflow('dwells', '{"steps": {"it": {"function": "soak.dwell"}}}');
SELECT sas.create_workflow('call', '{"steps": {"it": {"agent": "{{input.agent}}", "agents": "agent_*", "call": {"method": "POST", "path": "/soak"}}}}');
SELECT sas.create_workflow('calls_one', '{"steps": {"it": {"agent": "agent_1", "call": {"method": "POST", "path": "/soak"}}}}');
SELECT sas.create_workflow('waits', '{"steps": {"it": {"wait": {"signal": "go"}}}}');
SELECT sas.create_workflow('goes_on', '{"steps": {"it": {"wait": {"signal": "go"}}, "then": {"function": "soak.echo", "after": ["it"]}}}');
SELECT sas.create_workflow('sleeps', '{"steps": {"it": {"wait": {"for": "50 ms"}}}}');
SELECT sas.create_workflow('parent', '{"steps": {"it": {"workflow": "local"}}}');
SELECT sas.create_workflow('keyed', '{"steps": {"it": {"function": "soak.echo"}}, "concurrency": {"key": "all"}}');
SELECT sas.create_queue('narrow', max_running => 1);
SELECT sas.create_workflow('queued', '{"steps": {"it": {"function": "soak.echo", "queue": "narrow"}}}');
SELECT sas.create_workflow('switched', '{"steps": {"it": {"agent": "agent_2", "call": {"method": "POST", "path": "/soak"}}}}');
SELECT sas.create_agent('outside', kind => 'external');
SELECT sas.create_workflow('tasked', '{"steps": {"it": {"agent": "outside", "task": {}}, "then": {"function": "soak.echo", "after": ["it"]}}}');
SELECT sas.create_watcher('feed', '{"agent": "outside", "external": {}, "items": {"table": "soak.got"}}');
SELECT sas.create_watcher('repeats', '{"function": "soak.note", "every": "1 h"}');

-- soak.wait(run_id): until the run has stopped; how it ended.
CREATE FUNCTION soak.wait(run_id bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	ended text := (SELECT result FROM sas.wait($1, '2 min'));
BEGIN
	IF ended IS DISTINCT FROM 'success' THEN
		RAISE EXCEPTION 'run % ended with %: %', $1, coalesce(ended, 'nothing'), (SELECT error FROM sas.runs r WHERE r.run_id = $1);
	END IF;
END $$;

-- soak.until(query, argument): until the query finds a row.
CREATE FUNCTION soak.until(query text, argument text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	there boolean := false;
	ends timestamptz := clock_timestamp() + interval '2 min';
BEGIN
	LOOP
		EXECUTE format('SELECT EXISTS (%s)', query) INTO there USING argument;
		EXIT WHEN there;
		ASSERT clock_timestamp() < ends, query;
		PERFORM pg_sleep(0.001);
	END LOOP;
END $$;

CREATE FUNCTION soak.submit(workflow text, input jsonb DEFAULT '{}', after_run bigint DEFAULT NULL) RETURNS bigint LANGUAGE sql AS $$
	SELECT run_id FROM sas.submit($1, $2, after_run => $3)
$$;

CREATE FUNCTION soak.random_agent() RETURNS jsonb LANGUAGE sql VOLATILE AS $$
	SELECT jsonb_build_object('agent', 'agent_' || 1 + floor(random() * current_setting('soak.agents')::int))
$$;

-- soak.operations(kind, quantity): so many, one after the other. The time of each counts from its commit to what it was to
-- bring about.
CREATE PROCEDURE soak.operations(kind text, quantity int) LANGUAGE plpgsql AS $$
DECLARE
	run bigint;
	before bigint;
	request uuid;
	began timestamptz;
	less float8;
	watch text;
BEGIN
	FOR n IN 1 .. quantity LOOP
		less := 0;
		before := NULL;
		request := NULL;
		-- what is to be there before
		CASE kind
		WHEN 'signal' THEN
			run := soak.submit('waits');
			COMMIT;
			PERFORM soak.until('SELECT FROM _sas.step WHERE run_id = $1::bigint AND state = ''suspended''', run::text);
			COMMIT;
			PERFORM FROM sas.signal(run, 'go');
		WHEN 'submit' THEN
			run := soak.submit('local');
		WHEN 'call' THEN
			run := soak.submit('call', soak.random_agent());
		WHEN 'call_one' THEN
			run := soak.submit('calls_one');
		WHEN 'timer' THEN
			run := soak.submit('sleeps');
			less := 50;
		WHEN 'child' THEN
			run := soak.submit('parent');
		WHEN 'after_run' THEN
			before := soak.submit(CASE WHEN random() < 0.5 THEN 'local' ELSE 'dwells' END);
			run := soak.submit('local', after_run => before);
		WHEN 'key' THEN
			before := soak.submit('keyed');
			run := soak.submit('keyed');
		WHEN 'queue' THEN
			before := soak.submit('queued');
			run := soak.submit('queued');
		WHEN 'alter_agent' THEN
			PERFORM sas.alter_agent('agent_2', enabled => false);
			run := soak.submit('switched');
			COMMIT;
			PERFORM pg_sleep(random() * 0.01);
			PERFORM sas.alter_agent('agent_2', enabled => true);
		WHEN 'resume' THEN
			run := soak.submit('goes_on');
			COMMIT;
			PERFORM soak.until('SELECT FROM _sas.step WHERE run_id = $1::bigint AND state = ''suspended''', run::text);
			PERFORM FROM sas.pause(run);
			COMMIT;
			PERFORM FROM sas.signal(run, 'go');
			COMMIT;
			PERFORM pg_sleep(random() * 0.01);
			PERFORM FROM sas.resume(run);
		WHEN 'item' THEN
			ASSERT sas.append_items(current_setting('soak.watch_id')::bigint, current_setting('soak.epoch')::bigint, to_jsonb(ARRAY[n])) = 'go';
		WHEN 'watch' THEN
			watch := gen_random_uuid()::text;
			PERFORM FROM sas.watch('repeats', watch);
		WHEN 'claim' THEN
			run := soak.submit('tasked');
			COMMIT;
			WHILE request IS NULL LOOP
				SELECT c.request_id INTO request FROM sas.claim('outside', 'soak') c;
				COMMIT;
			END LOOP;
			ASSERT sas.complete(request, '{}');
		WHEN 'subtransaction' THEN
			BEGIN
				PERFORM soak.submit('local');
				RAISE EXCEPTION 'no';
			EXCEPTION WHEN raise_exception THEN
				NULL;
			END;
			BEGIN
				run := soak.submit('local');
			EXCEPTION WHEN division_by_zero THEN
				NULL;
			END;
		END CASE;
		COMMIT;
		began := clock_timestamp();
		IF kind = 'item' THEN
			PERFORM soak.until('SELECT FROM soak.got WHERE item = to_jsonb($1::int)', n::text);
		ELSIF kind = 'watch' THEN
			PERFORM soak.until('SELECT FROM soak.called WHERE key = $1', watch);
		ELSE
			PERFORM soak.wait(run);
		END IF;
		INSERT INTO soak.taken SELECT kind, n, extract(epoch FROM clock_timestamp() - began) * 1000 - less;
		IF kind = 'watch' THEN
			COMMIT;
			PERFORM FROM sas.unwatch('repeats', ARRAY[watch]);
		END IF;
		-- a worker may be anywhere between its last look and its sleep
		PERFORM pg_sleep(random() * 0.004) WHERE random() < 0.5;
	END LOOP;
END $$;

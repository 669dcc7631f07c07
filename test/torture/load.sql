-- SPDX-License-Identifier: PostgreSQL
--
-- What the load of test/torture leaves in the database by itself: the application's rows, the effects of its functions, and
-- a log of each change of state, by triggers of the test's own.

CREATE SCHEMA torture;
CREATE ROLE torture_guest LOGIN;

-- The time that services see. By how many seconds the clock of this server is ahead of it is in a file, where it jumps
-- (test/modules/strikes.c).
CREATE FUNCTION torture.ahead() RETURNS float8 LANGUAGE sql AS 'SELECT 0::float8';
CREATE FUNCTION torture.real_now() RETURNS timestamptz LANGUAGE sql AS $$
	SELECT clock_timestamp() - make_interval(secs => torture.ahead()) $$;
CREATE TABLE torture.business (id text PRIMARY KEY, workflow text NOT NULL, input jsonb NOT NULL, at timestamptz NOT NULL DEFAULT torture.real_now());
CREATE TABLE torture.effect (id text, step text, n text, undo boolean NOT NULL, at timestamptz NOT NULL DEFAULT torture.real_now());
CREATE TABLE torture.turn (key text, n bigint);
CREATE TABLE torture.moved (seq bigserial, subject text, run_id bigint, step_no int, from_state text, to_state text, at timestamptz NOT NULL DEFAULT torture.real_now());

-- torture.effect(input): {id, step, n, undo}; fails now and then in a way that another attempt mends, or dawdles
CREATE FUNCTION torture.effect(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO torture.effect (id, step, n, undo)
	VALUES (input ->> 'id', input ->> 'step', input ->> 'n', coalesce((input ->> 'undo')::boolean, false));
	IF random() < 0.05 THEN
		RAISE EXCEPTION 'again' USING ERRCODE = 'serialization_failure';
	ELSIF random() < 0.1 THEN
		PERFORM pg_sleep(random() * 0.2);
	END IF;
	RETURN jsonb_build_object('id', input ->> 'id');
END $$;

-- torture.finish(context): finalize
CREATE FUNCTION torture.finish(context jsonb) RETURNS jsonb LANGUAGE sql AS $$
	INSERT INTO torture.effect (id, step, undo) VALUES (context -> 'input' ->> 'id', 'finalize', false) RETURNING 'null'::jsonb $$;

-- torture.turn(turn): each turn of an infinite task is the next number of its key
CREATE FUNCTION torture.turn(turn jsonb) RETURNS jsonb LANGUAGE sql AS $$
	INSERT INTO torture.turn VALUES (turn ->> 'key', coalesce((turn ->> 'cursor')::bigint, 0) + 1) RETURNING to_jsonb(n) $$;

CREATE FUNCTION torture.moved() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO torture.moved (subject, run_id, step_no, from_state, to_state)
	VALUES (TG_ARGV[0], NEW.run_id, (to_jsonb(NEW) ->> 'step_no')::int, OLD.state, NEW.state);
	RETURN NULL;
END $$;
CREATE TRIGGER torture AFTER UPDATE ON _sas.run FOR EACH ROW WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION torture.moved('run');
CREATE TRIGGER torture AFTER UPDATE ON _sas.step FOR EACH ROW WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION torture.moved('step');

-- Which process held which step, and which one ended that: by the machine's own clock, which does not jump.
CREATE FUNCTION torture.uptime() RETURNS float8 LANGUAGE sql AS $$ SELECT split_part(pg_read_file('/proc/uptime'), ' ', 1)::float8 $$;
CREATE TABLE torture.held (
	request_id uuid, run_id bigint, step_no int, element int, undo boolean, holder int NOT NULL DEFAULT pg_backend_pid(),
	since float8 NOT NULL DEFAULT torture.uptime(), until float8, ended_by int);
CREATE INDEX ON torture.held (request_id);
CREATE INDEX ON torture.held (run_id);
CREATE FUNCTION torture.held() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF TG_OP = 'UPDATE' AND OLD.request_id IS NOT NULL THEN
		UPDATE torture.held h SET until = torture.uptime(), ended_by = pg_backend_pid() WHERE h.request_id = OLD.request_id AND h.until IS NULL;
	END IF;
	IF NEW.request_id IS NOT NULL THEN
		INSERT INTO torture.held (request_id, run_id, step_no, element, undo)
		VALUES (NEW.request_id, NEW.run_id, NEW.step_no, NEW.element, NEW.state = 'compensating');
	END IF;
	RETURN NULL;
END $$;
CREATE TRIGGER held AFTER UPDATE ON _sas.step FOR EACH ROW WHEN (OLD.request_id IS DISTINCT FROM NEW.request_id) EXECUTE FUNCTION torture.held();
CREATE TRIGGER held_first AFTER INSERT ON _sas.step FOR EACH ROW WHEN (NEW.request_id IS NOT NULL) EXECUTE FUNCTION torture.held();

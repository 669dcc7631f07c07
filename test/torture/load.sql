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

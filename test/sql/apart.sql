-- SPDX-License-Identifier: PostgreSQL
--
-- One frame for all ticks: a row that raises is deferred by itself, with an
-- alert, and tried again; it holds up no other.
\set SHOW_CONTEXT never
SELECT t.clean() \g /dev/null
-- t.broken: runs of which a table takes no row, or lets none go
CREATE TABLE t.broken (what text, id bigint);
CREATE FUNCTION t.break() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM t.broken b WHERE b.what = TG_TABLE_NAME AND b.id = CASE TG_OP WHEN 'DELETE' THEN OLD.run_id ELSE NEW.run_id END) THEN
        RAISE EXCEPTION '% is broken', TG_TABLE_NAME;
    END IF;
    RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
END $$;
CREATE TRIGGER break BEFORE UPDATE ON _sas.step FOR EACH ROW EXECUTE FUNCTION t.break();
CREATE TRIGGER break BEFORE INSERT ON _sas.queue_slot FOR EACH ROW EXECUTE FUNCTION t.break();
CREATE TRIGGER break BEFORE DELETE ON _sas.attempt FOR EACH ROW EXECUTE FUNCTION t.break();
CREATE FUNCTION t.mend() RETURNS void LANGUAGE sql AS 'DELETE FROM t.broken';
CREATE FUNCTION t.break_run(what text, id bigint) RETURNS void LANGUAGE sql AS 'INSERT INTO t.broken VALUES (what, id)';

-- what a dead worker held: all of it but one step is taken back, whatever is in the same batch
SELECT t.workflow('one', '{"a": {"agent": "inventory", "call": {}}}') \g /dev/null
SELECT count(*) FROM sas.submit_batch('one', array_fill('{}'::jsonb, '{3}'));
SELECT t.claim('first', 2), t.claim('second');
DELETE FROM t.held;
SELECT t.break_run('step', 1) \g /dev/null
UPDATE t.worker SET alive = false;
SELECT t.settle();
SELECT run_id, t.brief(run_id) FROM sas.runs ORDER BY 1;
SELECT * FROM t.alerts();
-- nobody tries again at once
SELECT t.settle();
SELECT * FROM t.alerts();
SELECT t.later('1 min') \g /dev/null
SELECT t.settle();
SELECT run_id, message, occurrences FROM t.alerts();
SELECT t.mend(), t.later('1 min') \g /dev/null
SELECT t.work();
SELECT t.later('1 min') \g /dev/null
SELECT t.work();
SELECT run_id, t.brief(run_id) FROM sas.runs ORDER BY 1;
SELECT _sas.check_conditions() \g /dev/null
SELECT * FROM _sas.deferred_work;
SELECT * FROM t.left_over();

-- places of a queue
SELECT t.clean() \g /dev/null
SELECT sas.create_queue('narrow', 2) \g /dev/null
SELECT t.workflow('queued', '{"a": {"agent": "inventory", "call": {}, "queue": "narrow"}}') \g /dev/null
SELECT t.break_run('queue_slot', 1) \g /dev/null
SELECT count(*) FROM sas.submit_batch('queued', array_fill('{}'::jsonb, '{5}'));
SELECT t.work();
SELECT run_id, t.brief(run_id) FROM sas.runs ORDER BY 1;
SELECT * FROM t.alerts();
-- the scheduler tries it again by itself
SELECT worked, next_due - sas.now() AS next FROM _sas.scheduler_tick(10);
SELECT t.mend(), t.later('1 min') \g /dev/null
SELECT t.work();
SELECT * FROM t.left_over();

SELECT sas.drop_workflow('queued'), sas.drop_queue('narrow') \g /dev/null

-- messages, and a fallback that leaves a closed door; other parts of the tick go on
SELECT t.clean() \g /dev/null
SELECT t.workflow('other', '{"a": {"agent": "inventory", "call": {}, "fallback": {"agent": "payments", "on": ["breaker_open"], "call": {}}}}') \g /dev/null
SELECT count(*) FROM sas.submit_batch('other', array_fill('{}'::jsonb, '{3}'));
SELECT t.schedule();
SELECT count(*) FROM _sas.ready;
UPDATE _sas.agent_health h SET breaker = 'open', open_until = sas.now() + interval '1 h' FROM _sas.agent a WHERE a.agent_id = h.agent_id AND a.name = 'inventory';
CREATE TRIGGER break_insert BEFORE INSERT ON _sas.step FOR EACH ROW EXECUTE FUNCTION t.break();
SELECT t.break_run('step', 2) \g /dev/null
SELECT t.supervise();
SELECT run_id, t.brief(run_id) FROM sas.runs ORDER BY 1;
SELECT * FROM t.alerts();
-- the supervisor tries it again by itself
SELECT next_due - sas.now() AS next FROM _sas.supervisor_tick(1, '{}', 0, 10);
SELECT t.mend(), t.later('1 min') \g /dev/null
SELECT t.work();
SELECT run_id, t.brief(run_id) FROM sas.runs ORDER BY 1;
UPDATE _sas.agent_health SET breaker = 'closed', open_until = NULL;
DROP TRIGGER break_insert ON _sas.step;

-- the purge: those that can go do
SELECT t.clean() \g /dev/null
SELECT count(*) FROM sas.submit_batch('one', array_fill('{}'::jsonb, '{3}'));
SELECT t.claim() \g /dev/null
SELECT t.answer('a', 'permanent 400', for_run => n) FROM generate_series(1, 3) n \g /dev/null
SELECT t.settle();
INSERT INTO _sas.attempt (run_id, step_no, element, attempt, undo, status) SELECT n, 1, 0, 1, false, 'failed' FROM generate_series(1, 3) n;
SELECT t.break_run('attempt', 2), t.later('100 days') \g /dev/null
SELECT worked FROM _sas.purge_tick(100);
SELECT run_id FROM sas.runs;
SELECT * FROM t.alerts();
SELECT t.mend(), t.later('1 h') \g /dev/null
SELECT worked FROM _sas.purge_tick(100);
SELECT run_id FROM sas.runs;

-- timers of deadlines
SELECT t.clean() \g /dev/null
SELECT count(*) FROM sas.submit_batch('one', array_fill('{}'::jsonb, '{3}'));
CREATE TRIGGER break BEFORE INSERT ON _sas.message FOR EACH ROW EXECUTE FUNCTION t.break();
SELECT t.break_run('message', 2), t.later('1 min') \g /dev/null
SELECT more FROM _sas.set_timers(NULL, NULL, NULL);
SELECT run_id FROM _sas.message WHERE kind = 'deadline' ORDER BY 1;
SELECT * FROM t.alerts();
SELECT t.mend() \g /dev/null
SELECT more FROM _sas.set_timers(NULL, NULL, NULL);
SELECT run_id FROM _sas.message WHERE kind = 'deadline' ORDER BY 1;
DROP TRIGGER break ON _sas.message;

-- schedules: the machine no longer knows a time zone
SELECT t.clean() \g /dev/null
SELECT t.workflow('timed', '{"a": {"agent": "inventory", "call": {}}}') \g /dev/null
SELECT sas.schedule(name, '* * * * *', 'timed') FROM unnest('{here,nowhere}'::text[]) name \g /dev/null
UPDATE _sas.schedule SET timezone = 'Nowhere/Land' WHERE name = 'nowhere';
SELECT t.later('1 min') \g /dev/null
SELECT worked FROM _sas.fire_schedules(10);
SELECT name, runs, due_at > sas.now() AS later FROM _sas.schedule ORDER BY 1;
SELECT kind, message FROM t.alerts();
UPDATE _sas.schedule SET timezone = 'UTC' WHERE name = 'nowhere';
SELECT t.later('1 min') \g /dev/null
SELECT worked FROM _sas.fire_schedules(10);
SELECT name, runs > 0 AS fired, due_at > sas.now() AS later FROM _sas.schedule ORDER BY 1;
SELECT kind, message FROM t.alerts();
SELECT sas.unschedule(name) FROM unnest('{here,nowhere}'::text[]) name \g /dev/null

-- what the supervisor checks now and then: a part that raises holds up no other
SELECT t.clean() \g /dev/null
CREATE FUNCTION t.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION '% is broken', TG_TABLE_NAME; END $$;
CREATE TRIGGER break BEFORE DELETE ON _sas.deferred_work FOR EACH ROW EXECUTE FUNCTION t.refuse();
INSERT INTO _sas.deferred_work VALUES ('queue', 1, sas.now() - interval '1 s');
UPDATE _sas.agent_health h SET breaker = 'open', open_until = sas.now() + interval '1 h' FROM _sas.agent a WHERE a.agent_id = h.agent_id AND a.name = 'inventory';
SELECT _sas.check_conditions();
SELECT kind, message FROM t.alerts() ORDER BY kind;
UPDATE _sas.agent_health SET breaker = 'closed', open_until = NULL;
SELECT _sas.check_conditions();
SELECT kind, message FROM t.alerts() ORDER BY kind;
DROP TRIGGER break ON _sas.deferred_work;
DROP FUNCTION t.refuse();
SELECT _sas.check_conditions() \g /dev/null
SELECT * FROM _sas.deferred_work;
DROP TRIGGER break ON _sas.step;
DROP TRIGGER break ON _sas.queue_slot;
DROP TRIGGER break ON _sas.attempt;
DROP TABLE t.broken;
DROP FUNCTION t.break, t.break_run, t.mend;

# SPDX-License-Identifier: PostgreSQL
"""Figures of turns: what one role has due for the scheduler and the supervisor, and what another role asks of
them meanwhile.

These rows have bounds: when one is not kept, the row is WRONG.
"""

import time

from house import LIMIT, Wrong, percentile

# seconds from the request of the other role to its end, the slowest one
TURN = 1.0

PREPARE = """
CREATE ROLE bench_due;
CREATE ROLE bench_beside;
GRANT USAGE ON SCHEMA bench TO bench_due, bench_beside;
CREATE FUNCTION bench.fail(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE 'not today'; END $$;
SELECT sas.grant_usage(r, level) FROM unnest('{bench_due,bench_beside}'::regrole[]) r, unnest('{user,operator}'::text[]) level;
SELECT sas.create_workflow('turn_wait', '{"steps": {"a": {"wait": {"until": "{{input.at}}"}}}}');
SELECT sas.create_workflow('turn_timer', '{"steps": {"a": {"wait": {"for": "1 ms"}}}}');
SELECT sas.create_workflow('turn_signal', '{"steps": {"a": {"wait": {"signal": "go"}}}}');
SELECT sas.create_workflow('turn_child', '{"steps": {}}');
SELECT sas.create_workflow('turn_parent', '{"steps": {"a": {"workflow": "turn_child"}}}');
SELECT sas.create_workflow('turn_halted', '{"steps": {"a": {"workflow": "turn_signal"}}}');
SELECT sas.create_workflow('turn_failed', '{"steps": {"a": {"function": "bench.fail"}}}');
SELECT sas.grant_workflow(w, r) FROM unnest('{turn_wait,turn_timer,turn_signal,turn_child,turn_parent,turn_halted,turn_failed}'::text[]) w,
    unnest('{bench_due,bench_beside}'::regrole[]) r;
"""

# all at once, in one commit
DUE = """
UPDATE _sas.message SET due_at = now() WHERE kind = '{kind}' AND owner = 'bench_due'::regrole;
UPDATE _sas.step SET waiting_until = now() WHERE waiting_until > now() + interval '1 min';
UPDATE _sas.run SET deadline = now() WHERE owner = 'bench_due'::regrole AND state <> 'stopped' AND '{kind}' = 'deadline';
SELECT _sas.wake('{{}}', true, true, '{{}}')
"""


class Turns:
    """Rows of bench/run."""

    def turns(self):
        self.db.query(PREPARE)
        self.turns_session = self.connect("postgres")
        self.turns_session.query("SET ROLE bench_beside")
        for name in ("timers", "deadlines", "children", "schedules"):
            self.turns_beside(name, self.size(f"turns_{name}"))
        self.turns_session.close()

    def turns_beside(self, name, n):
        waiting = [self.one_turn("turn_signal") for _ in range(100)]
        halted = [self.one_turn("turn_halted") for _ in range(20)]
        open_runs = "SELECT count(*) FROM _sas.run WHERE owner = 'bench_due'::regrole AND state <> 'stopped'"
        self.wait_until(lambda: int(self.db.value("SELECT count(*) FROM _sas.step WHERE state = 'suspended' AND waiting_kind IN ('signal', 'child')")) >= 140, "the waits")
        getattr(self, f"turns_of_{name}")(n)
        begun = time.monotonic()
        took = {}
        while int(self.db.value(open_runs)) > 0 or self.turns_scheduled(name, n):
            if time.monotonic() > begun + LIMIT:
                raise Wrong(f"{name}: not all ended within {LIMIT} s")
            for what in ("signal", "timer", "child", "failure", "halt"):
                if what == "signal" and waiting:
                    run = waiting.pop()
                    ask = f"SELECT FROM sas.signal({run}, 'go')"
                elif what == "halt" and halted:
                    run = halted.pop()
                    ask = f"SELECT FROM sas.halt({run})"
                    run = self.db.value(f"SELECT run_id FROM _sas.run WHERE parent_run_id = {run}")
                elif what in ("signal", "halt"):
                    continue
                else:
                    run, ask = None, f"SELECT run_id FROM sas.submit('turn_{dict(timer='timer', child='parent', failure='failed')[what]}')"
                asked = time.monotonic()
                answer = self.turns_session.query(ask)
                self.turns_session.query(f"SELECT FROM sas.wait({run or answer[0][0]}, '{LIMIT} s')")
                took.setdefault(what, []).append(time.monotonic() - asked)
        seconds = time.monotonic() - begun
        for run in waiting + halted:
            self.turns_session.query(f"SELECT FROM sas.halt({run})")
        if not took:
            raise Wrong(f"{name}: all were over before anything could be asked")
        self.row(f"{n:,} {name} of one role", f"{n / seconds:,.0f}/s", "", "", f"{seconds:.1f} s")
        for what, times in took.items():
            self.bound(f"  a {what} of another role meanwhile, the slowest", max(times), TURN, "s", f"median {percentile(times, 0.5) * 1000:.0f} ms of {len(times)}")

    def one_turn(self, workflow):
        return self.turns_session.query(f"SELECT run_id FROM sas.submit('{workflow}')")[0][0]

    def turns_batch(self, workflow, n, value="{}", deadline="1 day"):
        self.db.query(f"SET ROLE bench_due; SELECT count(*) FROM sas.submit_batch('{workflow}', ARRAY(SELECT '{value}'::jsonb FROM generate_series(1, {n})), deadline => '{deadline}'); RESET ROLE")

    def turns_of_timers(self, n):
        at = self.db.value("SELECT now() + interval '1 hour'")
        self.turns_batch("turn_wait", n, f'{{"at": "{at}"}}')
        self.wait_until(lambda: int(self.db.value("SELECT count(*) FROM _sas.message WHERE kind = 'timer' AND owner = 'bench_due'::regrole")) == n, "the timers", 300)
        self.db.query(DUE.format(kind="timer"))

    def turns_of_deadlines(self, n):
        self.turns_batch("turn_signal", n, deadline="4 min")
        self.wait_until(lambda: int(self.db.value("SELECT count(*) FROM _sas.step s JOIN _sas.run r USING (run_id) WHERE s.state = 'suspended' AND r.owner = 'bench_due'::regrole")) == n, "the waits", 200)
        self.db.query(DUE.format(kind="deadline"))

    def turns_of_children(self, n):
        self.turns_batch("turn_parent", n)

    def turns_of_schedules(self, n):
        at = self.db.value(f"SELECT date_trunc('second', now() + interval '{5 + n // 250} s')")
        self.db.query(f"SET ROLE bench_due; SELECT count(sas.schedule('turn_' || g, 'every 1 day', 'turn_child', start_at => '{at}', max_runs => 1)) FROM generate_series(1, {n}) g; RESET ROLE")
        self.db.query(f"SELECT pg_sleep(extract(epoch FROM '{at}'::timestamptz - clock_timestamp()))")

    def turns_scheduled(self, name, n):
        return name == "schedules" and int(self.db.value("SELECT count(*) FROM _sas.run WHERE schedule LIKE 'turn%'")) < n

# SPDX-License-Identifier: PostgreSQL
"""Figures of schedules: what many cost at rest, how late a run is that is due, and how long many take that are
due in the same second.

These rows have bounds: when one is not kept, the row is WRONG.
"""

import time

from house import LIMIT, Wrong, percentile

# bytes of WAL: what the server itself notes now and then
WRITTEN = 200
# from its instant to the submit of the run: seconds, the slowest of a hundred
LATE = 0.1
# the last one of all that are due in one second
DUE_TOGETHER = 5.0
# wake-ups a minute of any worker but the supervisor: clocks may jump
WOKEN = 2


class Schedules:
    """Rows of bench/run."""

    def schedules(self):
        n, due, seconds = self.size("schedules"), self.size("schedules_due"), self.size("schedules_rest")
        self.db.query("""SELECT sas.create_workflow('clock', '{"steps": {}}')""")
        self.db.query("SELECT sas.set_limit(NULL, 'schedules', 1000000)")
        self.db.query("CREATE ROLE bench_clock; SELECT sas.grant_usage('bench_clock', 'user'), sas.grant_workflow('clock', 'bench_clock')")
        self.idle_schedules(n, self.size("idle"))
        self.schedules_at_rest(seconds)
        self.schedules_due_together(due)
        self.db.query("SELECT count(sas.unschedule(name)) FROM sas.schedules WHERE name LIKE 'due%'")
        self.db.query("DELETE FROM _sas.schedule")
        self.db.query("SELECT sas.set_limit(NULL, 'schedules', NULL)")

    def idle_schedules(self, n, seconds):
        """Many that are due once a year; the first one is defined as by anybody, the others are copies of its row."""
        self.db.query("SELECT sas.schedule('far_0', '0 0 1 1 *', 'clock', timezone => 'America/New_York', jitter => '1 h')")
        columns = self.db.value("""SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = '_sas.schedule'::regclass
            AND attnum > 0 AND NOT attisdropped AND attname NOT IN ('schedule_id', 'name')""")
        self.db.query(f"INSERT INTO _sas.schedule (name, {columns}) SELECT 'far_' || g, {columns} FROM _sas.schedule, generate_series(1, {n - 1}) g WHERE name = 'far_0'")
        self.db.query("VACUUM ANALYZE _sas.schedule")
        written, woken = self.quiet_for(seconds)
        self.bound(f"{n:,} schedules idle for {seconds} s: WAL", written, WRITTEN, "bytes", f"wake-ups a minute: {woken}")
        if seconds >= 60:
            self.bound("  wake-ups a minute, beside the supervisor", max(int(w.split()[-1]) for w in woken.split(", ") if "supervisor" not in w), WOKEN, "")

    def schedules_at_rest(self, seconds):
        """One that is due each second, beside all that are not."""
        self.db.query("SELECT sas.schedule('tick', 'every 1 s', 'clock', overlap => 'allow')")
        time.sleep(seconds + 1.5)
        self.db.query("SELECT sas.unschedule('tick')")
        late = [float(row[0]) for row in self.db.query("SELECT extract(epoch FROM created_at - scheduled_at) FROM _sas.run WHERE schedule = 'tick'")]
        if len(late) < seconds:
            raise Wrong(f"{len(late)} runs in {seconds} s")
        self.bound("  one due at rest: its instant -> its submit, p99", percentile(late, 0.99) * 1000, LATE * 1000, "ms",
                   f"p50 {percentile(late, 0.5) * 1000:.1f} ms of {len(late)}")

    def schedules_due_together(self, n):
        begun = time.monotonic()
        ahead = 10 + n // 250
        at = self.db.value(f"SELECT date_trunc('second', now() + interval '{ahead} s')")
        # of another role: each new one counts those that its owner has
        self.db.query(f"SET ROLE bench_clock; SELECT count(sas.schedule('due_' || g, 'every 1 day', 'clock', start_at => '{at}', max_runs => 1)) FROM generate_series(1, {n}) g; RESET ROLE")
        made = time.monotonic() - begun
        if made > ahead:
            raise Wrong(f"it took {made:.0f} s to define {n} schedules")
        while int(self.db.value("SELECT count(*) FROM _sas.run WHERE schedule LIKE 'due%'")) < n:
            if time.monotonic() > begun + ahead + LIMIT:
                raise Wrong(f"not all were submitted within {LIMIT} s")
            time.sleep(0.2)
        last = float(self.db.value(f"SELECT extract(epoch FROM max(created_at) - '{at}') FROM _sas.run WHERE schedule LIKE 'due%'"))
        right = int(self.db.value("SELECT count(DISTINCT schedule) FROM _sas.run WHERE schedule LIKE 'due%' AND scheduled_at IS NOT NULL"))
        if right != n:
            raise Wrong(f"{right} of {n} schedules have a run")
        self.bound(f"  {n:,} due in the same second: the last submit", last, DUE_TOGETHER, "s", f"defined in {made:.1f} s")

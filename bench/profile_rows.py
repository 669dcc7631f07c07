# SPDX-License-Identifier: PostgreSQL
"""Where the time goes: what a step writes and commits, which process spends
how much CPU on it, and in which function of sas.

Only when asked for by name (BENCH=profile), since counting what functions
take costs a little itself.  docs/explanation/performance.md is written from this.
"""

import time

from house import Wrong, per


class Profile:
    """A row of bench/run, which prints tables of its own."""

    WORKLOADS = (("runs of three function steps", "functions", 3), ("runs of one function step", "single", 1), ("runs of one HTTP call", "call", 1))

    def profile(self):
        self.setting(track_functions="all")
        try:
            for what, workflow, steps in self.WORKLOADS:
                self.profile_work(what, workflow, steps)
            self.profile_submit()
        finally:
            self.setting(track_functions=None)

    def counted(self):
        """All counters, while no worker is there: with their end they tell all that they did."""
        cpu, lsn = self.processes(), self.wal()
        self.no_workers()
        time.sleep(1.2)
        self.db.query("SELECT pg_stat_clear_snapshot()")
        return {
            "lsn": lsn, "cpu": cpu,
            "records": int(self.db.value("SELECT wal_records FROM pg_stat_wal")),
            "commits": int(self.db.value("SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()")),
            "rows": {r[0]: [int(v) for v in r[1:]] for r in self.db.query("SELECT relname, n_tup_ins, n_tup_upd, n_tup_hot_upd, n_tup_del FROM pg_stat_user_tables WHERE schemaname IN ('sas', '_sas')")},
            "functions": {r[0]: [float(v) for v in r[1:]] for r in self.db.query("SELECT funcname, sum(calls), sum(total_time) * 1000, sum(self_time) * 1000 FROM pg_stat_user_functions WHERE schemaname IN ('sas', '_sas') GROUP BY 1")},
        }

    def profile_work(self, what, workflow, steps):
        """Submitted while there is no worker; what workers do from then on."""
        n = self.size("profile")
        self.no_workers()
        try:
            first, last = self.submit(workflow, n)
            before = self.counted()
            called = self.all_workers()
            self.wait_for_runs(first, last)
            after = self.counted()
        finally:
            self.all_workers()
        seconds = self.seconds_until_end(first, last, called)
        self.tell(f"{n:,} {what}: {per(n, seconds):,.0f} runs/s, {per(n * steps, seconds):,.0f} steps/s", "step", n * steps, before, after)
        made = self.db.value(f"SELECT count(*) FROM _sas.step WHERE run_id BETWEEN {first} AND {last} AND state = 'succeeded' AND attempt = 1")
        if made != str(n * steps):
            raise Wrong(f"{what}: {made} steps instead of {n * steps}")
        self.row(f"profile: {what}", "see above", "", f"{made} of {n * steps} steps")

    def profile_submit(self):
        """One client, one submit a transaction."""
        n = self.size("profile") // 5
        self.no_workers()
        try:
            top = int(self.db.value("SELECT max(run_id) FROM _sas.run"))
            before, begun = self.counted(), time.monotonic()
            for _ in range(n):
                self.db.query("SELECT run_id FROM sas.submit('single', '{\"n\": 1}')")
            seconds = time.monotonic() - begun
            self.tell(f"{n:,} submits, one a transaction, one client: {per(n, seconds):,.0f}/s", "submit", n, before, self.counted())
        finally:
            self.all_workers()
        self.wait_for_runs(top + 1, top + n)
        self.row("profile: submits", "see above", "", f"{n} of {n} runs")

    def tell(self, title, unit, n, before, after):
        wal = float(self.db.value(f"SELECT pg_wal_lsn_diff('{after['lsn']}', '{before['lsn']}')"))
        print(f"\n  {title}\n    per {unit}: {wal / n:,.0f} B of WAL in {(after['records'] - before['records']) / n:.1f} records, {(after['commits'] - before['commits']) / n:.4f} commits")
        for table in sorted(after["rows"]):
            ins, upd, hot, dele = (a - b for a, b in zip(after["rows"][table], before["rows"].get(table, [0] * 4)))
            if ins or upd or dele:
                print(f"      {table:10} {ins / n:6.3f} inserted  {upd / n:6.3f} updated ({100 * hot / upd if upd else 0:3.0f} % HOT)  {dele / n:6.3f} deleted")
        print(f"    microseconds of CPU per {unit}, by process:")
        for pid, (name, seconds) in sorted(after["cpu"].items(), key=lambda p: -p[1][1]):
            used = (seconds - before["cpu"].get(pid, (name, 0))[1]) / n * 1e6
            if used >= 1:
                print(f"      {used:8.1f}  {name}")
        print(f"    microseconds per {unit}, by function: own, with what it calls, calls")
        each = {name: [a - b for a, b in zip(v, before["functions"].get(name, [0] * 3))] for name, v in after["functions"].items()}
        for name, (calls, total, own) in sorted(each.items(), key=lambda f: -f[1][2])[:24]:
            if own / n >= 0.5:
                print(f"      {own / n:8.1f} {total / n:8.1f} {calls / n:8.4f}  {name}")

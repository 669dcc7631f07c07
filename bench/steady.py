# SPDX-License-Identifier: PostgreSQL
"""Figures of steady work: how long a run takes while runs come at a share of the
most that is possible; whether it costs at the end of an hour what it cost at
the start; and what little work costs.

These rows have bounds: when one is not kept, the row is WRONG.
"""

import os
import statistics
import time

from house import Wrong, cpu_of, per, percentile, spread
from trickle import SUBMIT

# open loop: milliseconds from the submit to the end of a run, 99 of 100, by the share of the most
OPEN = {0.25: 250, 0.5: 500, 0.75: 1000}

# soak: runs a second; how long each transaction is held open, and how many begin meanwhile; the last fifth against the first
SOAK_RATE = 200
HELD, OVERLAP = 120, 2
FLAT = 1.3

# CPU of a small map, and of few children, against that of as many single runs
SMALL = 2.0


class Steady:
    """Rows of bench/run."""

    def ended_in(self, first, last):
        """Milliseconds from the submit to the end, of each of these runs."""
        return [float(ms) for ms, in self.db.query(f"SELECT extract(epoch FROM finished_at - created_at) * 1000 FROM _sas.run WHERE run_id BETWEEN {first} AND {last}")]

    def submit_steadily(self, seconds, *rate):
        """Single runs, one a transaction, from 8 sessions; when all have ended, the first and the last id."""
        top = int(self.db.value("SELECT coalesce(max(run_id), 0) FROM _sas.run"))
        _, done = self.pgbench("postgres", SUBMIT.format(workflow="single"), 8, *rate, "-T", str(seconds))
        self.wait_for_runs(top + 1, top + done)
        return top + 1, top + done

    def open_loop(self):
        """Runs come whether or not those before them have ended."""
        seconds, most = self.size("trickle"), []
        for _ in range(self.repeats):
            first, last = self.submit_steadily(seconds)
            most.append(per(last - first + 1, self.seconds_until_end(first, last, float(self.db.value(f"SELECT extract(epoch FROM created_at) FROM _sas.run WHERE run_id = {first}")))))
        rate = statistics.median(most)
        self.row("runs of one function, submitted one by one as fast as may be", spread(most) + " runs/s")
        for share, bound in OPEN.items():
            took = self.ended_in(*self.submit_steadily(seconds, "-R", str(max(1, int(rate * share)))))
            self.bound(f"  {share:g} of that come, {rate * share:,.0f} a second: submit -> end, 99 of 100", percentile(took, 0.99), bound, "ms",
                       f"median {percentile(took, 0.5):.1f}, longest {max(took):.1f}; {len(took):,} runs")

    def soak(self):
        """MINUTES of steady work, beside transactions that overlap: in each minute, what a run costs and how long it takes."""
        minutes = float(os.environ.get("MINUTES", "60"))
        self.setting(sas__retain_success="5 min")
        holders = []
        end = time.monotonic() + 60 * minutes
        cost, took, kept = [], [], []
        try:
            while time.monotonic() < end:
                used = self.cluster_cpu()
                top = int(self.db.value("SELECT coalesce(max(run_id), 0) FROM _sas.run"))
                until = min(end, time.monotonic() + HELD / OVERLAP)
                submitter = self.start_pgbench("postgres", SUBMIT.format(workflow="single"), 8, "-R", str(SOAK_RATE), "-T", str(max(1, int(until - time.monotonic()))))
                holders.append((time.monotonic() + HELD, self.connect("postgres")))
                holders[-1][1].query("BEGIN ISOLATION LEVEL REPEATABLE READ")
                holders[-1][1].query("SELECT pg_current_xact_id()")
                _, done = self.end_pgbench(submitter)
                self.wait_for_runs(top + 1, top + done)
                cost.append(per((self.cluster_cpu() - used) * 1000, done))
                took.append(percentile(self.ended_in(top + 1, top + done), 0.99))
                kept.append(self.disk_bytes() / 1e6)
                for over, holder in [h for h in holders if h[0] <= time.monotonic()]:
                    holder.query("ROLLBACK")
                    holder.close()
                    holders.remove((over, holder))
                print(f"    {len(cost)}: {done:,} runs, {cost[-1]:.2f} ms of CPU each, 99 of 100 within {took[-1]:.0f} ms, tables {kept[-1]:,.0f} MB", flush=True)
        finally:
            for _, holder in holders:
                holder.close()
            self.setting(sas__retain_success=None)
        part = max(1, len(cost) // 5)
        if len(cost) < 3:
            raise Wrong(f"MINUTES={minutes:g} is too short to compare its end with its start")
        early, late = statistics.median(cost[:part]), statistics.median(cost[-part:])
        self.bound(f"{minutes:g} min at {SOAK_RATE} runs a second, beside transactions of {HELD} s: CPU of a run, end against start", per(late, early), FLAT, "x", f"{late:.2f} ms against {early:.2f}")
        self.row("  99 of 100 within", f"{spread(took)} ms", "", "", f"at the end {statistics.median(took[-part:]):.0f}")
        # the first runs are purged after five minutes
        self.row("  tables and indexes", f"{spread(kept)} MB", "", "", f"at the end {kept[-1]:,.0f}")

    def cpu_exactly(self):
        """Seconds of CPU of the processes of the cluster that are alive."""
        return sum(cpu_of(pid) for pid in self.processes())

    def small(self):
        """A map of 200 elements and a parent of 200 children, against 200 single runs; by CPU, since that is what a little work takes."""
        n, rounds = 200, 5 * self.repeats
        used = {"single": [], "map": [], "parent": []}
        for _ in range(rounds):
            for workflow, inputs, steps in (("single", self.numbers(n), n), ("map", self.items(n), n + 1), ("parent", self.items(n), 2 * n + 1)):
                before = self.cpu_exactly()
                self.seconds(workflow, inputs, steps)
                used[workflow].append((self.cpu_exactly() - before) * 1000)
        plain = statistics.median(used["single"])
        for workflow, what in (("map", "a map of 200 function elements"), ("parent", "a parent of 200 children")):
            self.bound(f"{what}: CPU, of that of 200 single runs", per(statistics.median(used[workflow]), plain), SMALL, "x",
                       f"{spread(used[workflow])} ms, {spread(used['single'])} ms of single runs")

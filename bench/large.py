# SPDX-License-Identifier: PostgreSQL
"""Figures of sas when there is much of something: runs that wait, runs that
have ended, dead rows that cannot be removed, bulk beside what is urgent.
"""

import statistics
import time

from house import Wrong, per, percentile, spread

# what is asked of runs that are submitted beside very many others: the median
BESIDE_MS = 1000


class Large:
    """Rows of bench/run."""

    def pace(self, first, last, share=(0.05, 0.95)):
        """Runs per second between these shares of the runs that ended: start and end of the workers' work are left out."""
        low, high = share
        runs, seconds = self.db.query(f"""SELECT {high - low} * count(*), extract(epoch FROM percentile_disc({high}) WITHIN GROUP (ORDER BY finished_at)
            - percentile_disc({low}) WITHIN GROUP (ORDER BY finished_at)) FROM _sas.run WHERE run_id BETWEEN {first} AND {last}""")[0]
        # one commit may have ended them all
        return per(float(runs), float(seconds))

    def drain(self, n):
        """Single-step runs that wait when the work begins: the first and the last id, all ended and right, and microseconds of CPU of each."""
        self.no_workers()
        try:
            first, last = self.submit("single", n, 10000)
            used = self.cpu()
        finally:
            self.all_workers()
        self.wait_for_runs(first, last, pause=0.5)
        used = self.cpu() - used
        self.check_books_of_large(first, last)
        return first, last, used / n * 1e6

    def check_books_of_large(self, first, last):
        """Inputs begin anew with each transaction of a submit, so each output is compared with its run's input."""
        n = last - first + 1
        right = int(self.db.value(f"""SELECT count(*) FROM _sas.run r JOIN _sas.step s USING (run_id)
            WHERE r.run_id BETWEEN {first} AND {last} AND s.state = 'succeeded' AND s.attempt = 1 AND s.output -> 'n' = r.input -> 'n'"""))
        if right != n:
            raise Wrong(f"{right} of {n} runs made their step once and rightly")

    def backlog(self):
        few, many = self.size("backlog_few"), self.size("backlog")
        rates, used = [], []

        def some():
            for _ in range(3):
                first, last, cpu = self.drain(few)
                rates.append(self.pace(first, last))
                used.append(cpu)

        some()
        first, last, cpu = self.drain(many)
        whole = self.pace(first, last)
        parts = [self.pace(first, last, (low, low + 0.1)) for low in (0.05, 0.45, 0.85)]
        some()
        self.ratio(f"a backlog of {many:,} runs against {few:,}", [whole], [statistics.median(rates)], "0.9 x; 1.0 x", f"{many:,} of {many:,}",
                   f"{whole:,.0f} runs/s, near its begin {parts[0]:,.0f}, middle {parts[1]:,.0f}, end {parts[2]:,.0f}, {cpu:,.0f} us of CPU each; of {few:,}: {spread(rates)}, {spread(used)} us")

    # every table that knows the run gets a copy of what the run left there, for each of the new ids
    COPIES = """
DO $$
DECLARE
    t record;
BEGIN
    FOR t IN SELECT c.relname, string_agg(format('s.%I', a.attname), ', ' ORDER BY a.attnum) FILTER (WHERE a.attname <> 'run_id') AS others,
                    string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) FILTER (WHERE a.attname <> 'run_id') AS names
             FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
             WHERE c.relnamespace = '_sas'::regnamespace AND c.relkind = 'r'
             GROUP BY c.relname HAVING bool_or(a.attname = 'run_id') LOOP
        EXECUTE format('INSERT INTO _sas.%1$I (run_id, %2$s) OVERRIDING SYSTEM VALUE SELECT g, %3$s FROM _sas.%1$I s CROSS JOIN generate_series({first}, {last}) g WHERE s.run_id = {model} ORDER BY g',
                       t.relname, t.names, t.others);
    END LOOP;
    PERFORM setval(pg_get_serial_sequence('_sas.run', 'run_id'), {last});
END $$"""

    def fill(self, many):
        """So many ended runs, copies of one that was really made; set by set, in the database that is used now."""
        first, model = self.submit("single", 1)
        self.wait_for_runs(first, model)
        for begin in range(model + 1, model + many, 500000):
            self.db.query(self.COPIES.format(model=model, first=begin, last=min(begin + 499999, model + many - 1)))
        self.db.query("VACUUM (ANALYZE, FREEZE)")
        ended = self.db.value(f"SELECT count(*) FROM _sas.run r JOIN _sas.step s USING (run_id) WHERE r.run_id >= {model} AND r.state = 'stopped' AND s.state = 'succeeded'")
        if int(ended) != many:
            raise Wrong(f"{ended} ended runs instead of {many}")
        return self.db.value("SELECT pg_size_pretty(sum(pg_total_relation_size(oid))) FROM pg_class WHERE relnamespace = '_sas'::regnamespace AND relkind = 'r'")

    def finished(self):
        """Two databases in turn: one has nothing but what is measured, the other has much that ended long ago."""
        n, many = self.size("finished_runs"), self.size("finished")
        home = self.db
        try:
            for name in ("without", "with_many"):
                self.db = self.new_database(name)
                self.prepare()
            size = self.fill(many)
            full, self.db = self.db, home
            bare = self.connect("without")
            rates = {id(bare): [], id(full): []}
            used = {id(bare): [], id(full): []}
            for _ in range(3 * self.repeats):
                for db in (bare, full):
                    self.db = db
                    first, last, cpu = self.drain(n)
                    rates[id(db)].append(self.pace(first, last))
                    used[id(db)].append(cpu)
        finally:
            self.db = home
            for name in ("without", "with_many"):
                self.db.query(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        self.ratio(f"{many:,} ended runs in the tables against none", rates[id(full)], rates[id(bare)], "0.9 x; 1.0 x", f"{n:,} of {n:,} each",
                   f"{spread(rates[id(full)])} runs/s, {statistics.median(used[id(full)]):,.0f} us of CPU each with them ({size}), "
                   f"{spread(rates[id(bare)])}, {statistics.median(used[id(bare)]):,.0f} us without; {n:,} runs at a time")

    def pinned(self):
        """Rounds of submits and runs, one after the other, beside a transaction that neither ends nor does anything."""
        n, seconds = self.size("pinned_runs"), self.size("pinned")

        def round_of_runs():
            cpu = self.cpu()
            first, last = self.submit("single", n, n)
            self.wait_for_runs(first, last)
            used.append((self.cpu() - cpu) / n * 1e6)
            self.check_books_of_large(first, last)
            rates.append(per(n, self.seconds_until_end(first, last, float(self.db.value(f"SELECT extract(epoch FROM created_at) FROM _sas.run WHERE run_id = {first}")))))

        rates, used = [], []
        for _ in range(5):
            round_of_runs()
        before = rates[:]
        holder = self.connect("postgres")
        holder.query("BEGIN ISOLATION LEVEL REPEATABLE READ")
        holder.query("SELECT pg_current_xact_id()")
        del rates[:], used[:]
        end = time.monotonic() + seconds
        while time.monotonic() < end or len(rates) < 10:
            round_of_runs()
        held, dead = len(rates), self.db.value("SELECT string_agg(relname || ' ' || n_dead_tup, ', ' ORDER BY n_dead_tup DESC) FROM (SELECT * FROM pg_stat_user_tables WHERE schemaname = '_sas' ORDER BY n_dead_tup DESC LIMIT 4) t")
        start, late, cpu = rates[:5], rates[-5:], (statistics.median(used[-5:]), statistics.median(used[:5]))
        holder.query("ROLLBACK")
        del rates[:]
        for _ in range(3):
            round_of_runs()
        self.ratio(f"a transaction held open for {seconds:,} s: at its end against its start", [statistics.median(late)], [statistics.median(start)], "0.7 x; 0.95 x", f"{held * n:,} of {held * n:,}",
                   f"{spread(late)} runs/s against {spread(start)}, {cpu[0]:,.0f} us of CPU each against {cpu[1]:,.0f}; before it {spread(before)}, after it {spread(rates)}; dead rows: {dead}")

    def one_beside(self, bulk, rest, role, send):
        """The time of runs that are submitted one by one while so many of a role wait and are worked off; in milliseconds."""
        self.no_workers()
        try:
            self.db.query(f"SET ROLE {role}")
            first, last = self.submit("single", bulk, 10000)
        finally:
            self.db.query("RESET ROLE")
            self.all_workers()
        self.wait_until(lambda: self.db.value(f"SELECT EXISTS (SELECT FROM _sas.run WHERE run_id BETWEEN {first} AND {first + 1000} AND state = 'stopped')") == "t", "the work to begin")
        sent = {}
        while len(sent) < rest:
            waits = self.db.value(f"SELECT state FROM _sas.run WHERE run_id = {last}") == "pending"
            if not waits:
                break
            at = time.time()
            sent[int(self.db.value(send))] = at
            time.sleep(0.01)
        self.wait_for_runs(first, last)
        self.check_books_of_large(first, last)
        if len(sent) < 10:
            raise Wrong(f"the bulk ended before more than {len(sent)} runs were sent beside it")
        took = []
        for run_id, result, at in self.db.query(f"SELECT run_id, result, extract(epoch FROM finished_at) FROM _sas.run WHERE run_id > {last} ORDER BY run_id"):
            if result != "success":
                raise Wrong(f"run {run_id} beside the bulk: {result}")
            took.append((float(at) - sent[int(run_id)]) * 1000)
        return took, f"{len(took)} of {len(sent)}, {bulk:,} of {bulk:,}", f"longest {max(took):.1f} ms; bulk at {self.pace(first, last):,.0f} runs/s"

    def mixed(self):
        """Runs of high priority, one by one, while bulk waits and is worked off."""
        bulk = self.size("mixed")
        took, right, note = self.one_beside(bulk, self.size("urgent"), "postgres", "SELECT run_id FROM sas.submit('single', '{\"n\": 1}', priority => 100)")
        self.row(f"an urgent run while {bulk:,} wait: submit sent -> ended", f"p50 {percentile(took, 0.5):.1f}, p99 {percentile(took, 0.99):.1f} ms", "50; 10 ms (p99)", right, note)
        self.bound("  half of them within", percentile(took, 0.5), BESIDE_MS, "ms")

    def flood(self):
        """Runs of one role, one by one, while very many of another role wait: they come first by turns alone."""
        bulk = self.size("flood")
        self.db.query("""DO $$ BEGIN
            IF to_regrole('bench_flood') IS NULL THEN
                CREATE ROLE bench_flood SUPERUSER;
            END IF;
        END $$""")
        took, right, note = self.one_beside(bulk, self.size("urgent"), "bench_flood", "SELECT run_id FROM sas.submit('single', '{\"n\": 1}')")
        self.row(f"a run beside {bulk:,} of another role: submit sent -> ended", f"p50 {percentile(took, 0.5):.1f}, p99 {percentile(took, 0.99):.1f} ms", "100; 50 ms (p99)", right, note)
        self.bound("  half of them within", percentile(took, 0.5), BESIDE_MS, "ms")

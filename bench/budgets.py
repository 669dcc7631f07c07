# SPDX-License-Identifier: PostgreSQL
"""Figures of what must not keep others waiting: large answers on one agent
worker, a change of one agent of thousands, a long function beside short ones.

These rows have bounds: when one is not kept, the row is WRONG.
"""

import json
import time

from house import LIMIT, Wrong, cpu_of, percentile, status_of

# what is asked of a worker that takes in a hundred answers of 8 MB
MEMORY = 512                    # MiB, resident
ANSWERED = 1.0                  # seconds until a call of another agent is answered, meanwhile

# what is asked with thousands of agents: seconds, the median and the slowest
ALTERED = 0.1                   # from the submit behind an alter_agent to the end of its run
ALTERED_MOST = 2.0

# beside a function that takes long, in the same run
BESIDE = 10.0                   # seconds until all others have ended


def large_answer(size):
    """JSON of about so many bytes, as a service would send it."""
    record = json.dumps({"id": 100000, "name": "customer number 100000", "email": "someone@example.com", "amount": 1250.75, "tags": ["a", "b", "c"]})
    return "[" + ", ".join([record] * (size // (len(record) + 2))) + "]"


class Budgets:
    """Rows of bench/run."""

    def big(self):
        """Large answers for one agent, all at once, and small calls of another one beside them."""
        n, size = self.size("big"), 8 * 1024 * 1024 - 4096
        with open(f"{self.work}/nginx/big", "w") as f:
            f.write(large_answer(size))
        self.db.query(f"SELECT sas.create_agent('greedy', base_url => 'http://127.0.0.1:{self.nginx_port}', max_in_flight => 1000, request_timeout => '30 min')")
        self.db.query("""SELECT sas.create_workflow('big', '{"steps": {"get": {"agent": "greedy", "complete_in": "30 min",
            "call": {"path": "/big"}, "output": {"n": "{{input.n}}"}}}}')""")
        pid = self.agent_pid()
        peak, waits, used = 0, [], cpu_of(pid)
        first, last = self.submit("big", n)
        begun = time.monotonic()
        while int(self.db.value(f"SELECT count(*) FROM _sas.run WHERE run_id BETWEEN {first} AND {last} AND state <> 'stopped'")) > 0:
            if time.monotonic() > begun + LIMIT:
                raise Wrong(f"the answers were not taken in within {LIMIT} s")
            asked = time.monotonic()
            self.wait_for_runs(*self.submit("stamp", 1), pause=0.01)  # by a service that is not busy with the answers
            waits.append(time.monotonic() - asked)
            # shared buffers are resident, too, but are nobody's own
            status = status_of(pid)
            peak = max(peak, status["RssAnon"], status["VmHWM"] - status["RssShmem"])
        seconds = time.monotonic() - begun
        right = int(self.db.value(f"SELECT count(*) FROM _sas.run WHERE run_id BETWEEN {first} AND {last} AND result = 'success'"))
        attempts = int(self.db.value(f"SELECT count(*) FROM _sas.attempt WHERE run_id BETWEEN {first} AND {last}"))
        if self.agent_pid() != pid or right != n or attempts > 0:
            raise Wrong(f"{right} of {n} runs succeeded, {attempts} attempts were made again")
        self.row(f"{n} answers of 8 MB, one agent worker", f"{seconds / n:.2f} s each", "", f"{n} of {n}", f"{(cpu_of(pid) - used) / n:.2f} s of CPU each")
        self.bound("  memory of the worker", peak / 1024, MEMORY, "MiB")
        self.bound("  a call of another agent meanwhile, the slowest", max(waits), ANSWERED, "s", f"median {percentile(waits, 0.5):.2f} s of {len(waits)}")

    def agents(self):
        """One of thousands of agents is altered, again and again, and called at once."""
        n, turns, called = self.size("agents"), self.size("agents_turns"), 20
        url = f"http://127.0.0.1:{self.nginx_port}"
        begun = time.monotonic()
        self.db.query(f"""SELECT count(sas.create_agent('one_' || g, '{url}', breaker => '{{"off": true}}')) FROM generate_series(1, {n}) g""")
        for i in range(called):
            self.db.query(f"""SELECT sas.create_workflow('one_{i}', '{{"steps": {{"call": {{"agent": "one_{n - i}", "call": {{"path": "/ok"}}}}}}}}')""")
        self.wait_for_runs(*self.submit("one_0", 1), pause=0.01)
        made = time.monotonic() - begun
        alone, altered, altering = [], [], []
        for turn in range(turns):
            i = turn % called
            asked = time.monotonic()
            self.wait_for_runs(*self.submit(f"one_{i}", 1), pause=0.002)
            alone.append(time.monotonic() - asked)
            asked = time.monotonic()
            self.db.query(f"SELECT sas.alter_agent('one_{n - i}', max_in_flight => {100 + turn})")
            altering.append(time.monotonic() - asked)
            asked = time.monotonic()
            self.wait_for_runs(*self.submit(f"one_{i}", 1), pause=0.002)
            altered.append(time.monotonic() - asked)
        right = int(self.db.value("SELECT count(*) FROM sas.runs WHERE workflow LIKE 'one\\_%' AND result = 'success'"))
        if right != 2 * turns + 1:
            raise Wrong(f"{right} of {2 * turns + 1} runs succeeded")
        self.row(f"{n:,} agents: a call of one of them", f"p50 {percentile(alone, 0.5) * 1000:.1f}, p99 {percentile(alone, 0.99) * 1000:.1f} ms", "", f"{right} of {right}",
                 f"all agents made in {made:.1f} s")
        self.bound("  submit -> end, right after it was altered, the median", percentile(altered, 0.5), ALTERED, "s", f"alter_agent itself {percentile(altering, 0.5) * 1000:.1f} ms")
        self.bound("  the slowest", max(altered), ALTERED_MOST, "s")

    def beside(self):
        """A function that takes long, and many short ones of the same run."""
        n, seconds = self.size("beside"), self.size("beside_seconds")
        self.db.query("CREATE OR REPLACE FUNCTION bench.long(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(true) FROM pg_sleep((input ->> 'seconds')::float8) $$")
        self.db.query("""SELECT sas.create_workflow('beside', '{"steps": {
            "long": {"function": "bench.long", "input": {"seconds": "{{input.seconds}}"}, "complete_in": "10 min"},
            "all": {"function": "bench.echo", "input": {"n": "{{item}}"}, "each": "{{input.items}}"}}}')""")
        asked = time.monotonic()
        run_id = self.db.value(f"""SELECT run_id FROM sas.submit('beside', (SELECT jsonb_build_object('seconds', {seconds}, 'items', jsonb_agg(g)) FROM generate_series(1, {n}) g))""")
        done = f"SELECT count(*) FROM sas.steps WHERE run_id = {run_id} AND step = 'all' AND state = 'succeeded'"
        self.wait_until(lambda: int(self.db.value(done)) == n + 1, "the short functions", 600)
        took = time.monotonic() - asked
        long_state = self.db.value(f"SELECT state FROM sas.steps WHERE run_id = {run_id} AND step = 'long'")
        self.wait_for_runs(int(run_id), int(run_id))
        whole = time.monotonic() - asked
        result = self.db.value(f"SELECT result FROM sas.runs WHERE run_id = {run_id}")
        if result != "success" or long_state != "running":
            raise Wrong(f"the run ended as {result}; the long function was {long_state} when the others had ended")
        self.row(f"a function of {seconds} s beside {n:,} of its run", f"{whole:.1f} s", "", f"{n:,} of {n:,}")
        self.bound("  the others have ended after", took, BESIDE, "s")

# SPDX-License-Identifier: PostgreSQL
"""Figures of what must not keep others waiting: large answers on one agent worker.

These rows have bounds: when one is not kept, the row is WRONG.
"""

import json
import time

from house import LIMIT, Wrong, percentile, status_of

# what is asked of a worker that takes in a hundred answers of 8 MB
MEMORY = 512                    # MiB, resident
ANSWERED = 1.0                  # seconds until a call of another agent is answered, meanwhile


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
        peak, waits = 0, []
        first, last = self.submit("big", n)
        begun = time.monotonic()
        while int(self.db.value(f"SELECT count(*) FROM _sas.run WHERE run_id BETWEEN {first} AND {last} AND state <> 'stopped'")) > 0:
            if time.monotonic() > begun + LIMIT:
                raise Wrong(f"the answers were not taken in within {LIMIT} s")
            asked = time.monotonic()
            self.wait_for_runs(*self.submit("call", 1), pause=0.01)
            waits.append(time.monotonic() - asked)
            # shared buffers are resident, too, but are nobody's own
            status = status_of(pid)
            peak = max(peak, status["RssAnon"], status["VmHWM"] - status["RssShmem"])
        seconds = time.monotonic() - begun
        right = int(self.db.value(f"SELECT count(*) FROM _sas.run WHERE run_id BETWEEN {first} AND {last} AND result = 'success'"))
        attempts = int(self.db.value(f"SELECT count(*) FROM _sas.attempt WHERE run_id BETWEEN {first} AND {last}"))
        if self.agent_pid() != pid or right != n or attempts > 0:
            raise Wrong(f"{right} of {n} runs succeeded, {attempts} attempts were made again")
        self.row(f"{n} answers of 8 MB, one agent worker", f"{seconds / n:.2f} s each", "", f"{n} of {n}")
        self.bound("  memory of the worker", peak / 1024, MEMORY, "MiB")
        self.bound("  a call of another agent meanwhile, the slowest", max(waits), ANSWERED, "s", f"median {percentile(waits, 0.5):.2f} s of {len(waits)}")

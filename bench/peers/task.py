# SPDX-License-Identifier: PostgreSQL
"""What task.mjs does, with the worker library of sas for Python: task.py workers|latency N"""
import json
import random
import sys
import threading
import time

import psycopg
import sas_worker

mode, n = sys.argv[1], int(sys.argv[2])
started, sent = {}, {}


def handle(task):
    started[task.request["n"]] = time.monotonic()
    if len(started) == n:
        worker.stop()
    return {"n": task.request["n"]}


worker = sas_worker.Worker("", "tasks", handle, concurrency=24)
begun = time.monotonic()
thread = threading.Thread(target=worker.run)
thread.start()
if mode == "latency":
    with psycopg.connect(autocommit=True) as conn:
        time.sleep(0.5)
        for i in range(1, n + 1):
            sent[i] = time.monotonic()
            sas_worker.submit(conn, "task", {"n": i})
            time.sleep(random.uniform(0.015, 0.035))
thread.join()                   # what is done is written
print(json.dumps({"done": len(started), "sum": sum(started), "seconds": time.monotonic() - begun,
                  "ms": [(started[i] - sent[i]) * 1000 for i in sent]}))

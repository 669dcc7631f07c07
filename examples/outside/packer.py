#!/usr/bin/env python3
# SPDX-License-Identifier: PostgreSQL
"""packer.py NAME SECONDS: packs orders, a page after another; the task of packer.sh with the library sas_worker.

    SELECT sas.create_agent('packer', kind => 'external');
    CREATE TABLE packed (order_id bigint PRIMARY KEY, worker text, pages int);
    SELECT sas.create_workflow('pack', '{"steps": {"pack": {"agent": "packer", "task": {}}}}');
    SELECT * FROM sas.submit('pack', '{"order": 1, "pages": 3}');

It needs sas_worker (pip install clients/python), and finds the database by PGHOST, PGDATABASE ... If those lead to a
pooler in transaction mode, LISTEN is a connection string that leads past it.
"""
import os
import sys
import time

import psycopg
import sas_worker

name, page_takes = sys.argv[1], float(sys.argv[2])


def pack(task: sas_worker.Task) -> None:
    order, pages = task.request["order"], task.request["pages"]
    first = (task.checkpoint or {"page": 0})["page"] + 1
    print(f"{name}: order {order} from page {first}", flush=True)
    for page in range(first, pages + 1):
        if task.stopping.is_set() or task.cancelled.is_set():
            raise sas_worker.HandBack()         # pages leave nothing behind
        time.sleep(page_takes)
        print(f"{name}: order {order} page {page}", flush=True)
        task.save({"page": page}, progress=page / pages)
    with psycopg.connect() as conn:             # commits at its end
        conn.execute("INSERT INTO packed (order_id, worker, pages) VALUES (%s, %s, %s)", [order, name, pages])
        task.complete(conn, {"box": order})


sas_worker.Worker("", "packer", pack, concurrency=4, lease=float(os.environ.get("LEASE", 3)), grace=5, name=name,
                  listen_conninfo=os.environ.get("LISTEN")).run()
print(f"{name}: good-bye", flush=True)

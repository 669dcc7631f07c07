# SPDX-License-Identifier: PostgreSQL
"""What the library for Python does on connections of the caller; for t/504_client_calls.pl. Prints what it saw."""
import asyncio

import psycopg
import sas_worker


def runs(conn):
    return conn.execute("SELECT count(*) FROM sas.runs").fetchone()[0]


with psycopg.connect("") as conn, psycopg.connect("", autocommit=True) as look:
    before = runs(look)
    sas_worker.submit(conn, "asks", {"n": 1})
    conn.rollback()
    print("rolled back:", runs(look) - before)
    run = sas_worker.submit(conn, "asks", {"n": 2}, key="python", labels={"from": "python"}, priority=5)
    print("before commit:", runs(look) - before, run.created)
    conn.commit()
    again = sas_worker.submit(conn, "asks", {"n": 2}, key="python")
    conn.commit()
    print("again:", again.run_id == run.run_id, again.created)
    print("waits:", sas_worker.wait(look, run.run_id, timeout=0.2).state != "stopped")
    sas_worker.signal(conn, run.run_id, "go", {"answer": 42})
    conn.commit()
    print("ended:", *sas_worker.wait(look, run.run_id))
    first, second = sas_worker.submit_batch(conn, "asks", [{"n": 4}, {"n": 5}], ["batch", None], labels={"from": "batch"})
    print("batch before commit:", runs(look) - before, first.created, second.created)
    conn.commit()
    again = sas_worker.submit_batch(conn, "asks", [{"n": 4}], ["batch"])
    print("batch again:", again == [(first.run_id, False)], sas_worker.submit_batch(conn, "asks", []), sas_worker.submit_batch(conn, "asks", (), ()))
    sas_worker.signal_key(conn, "asks", "batch", "go", {"answer": 43})
    conn.commit()
    print("by key:", *sas_worker.wait(look, first.run_id))


async def main():
    async with await psycopg.AsyncConnection.connect(autocommit=True) as conn:
        run = await sas_worker.submit(conn, "asks", {"n": 3})
        await sas_worker.signal(conn, run.run_id, "go", [1, None])
        print("async:", *await sas_worker.wait(conn, run.run_id))
        run, = await sas_worker.submit_batch(conn, "asks", [{"n": 6}], ["async"])
        await sas_worker.signal_key(conn, "asks", "async", "go")
        print("async by key:", *await sas_worker.wait(conn, run.run_id))

asyncio.run(main())

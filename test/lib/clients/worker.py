#!/usr/bin/env python3
# SPDX-License-Identifier: PostgreSQL
"""worker.py NAME CONCURRENCY LEASE GRACE FOLDER: works on tasks of agent "work" for t/500_client_python.pl.

Each task says what to do. What happens is printed, a line each; a gate is a file in the folder.
"""
import asyncio
import logging
import os
import sys
import threading
import time

import psycopg
import sas_worker

name, concurrency, lease, grace, folder = sys.argv[1], int(sys.argv[2]), *map(float, sys.argv[3:5]), sys.argv[5]
logging.basicConfig(level=logging.INFO, format="log: %(message)s")


def say(*words):
    print(" ".join(map(str, (name, *words))) + "\n", end="", flush=True)


def gate(n):
    return os.path.exists(f"{folder}/gate{n}")


def book(conn, task):
    conn.execute("INSERT INTO book (n, worker) VALUES (%s, %s)", [task.request["n"], name])


class Mute(Exception):
    def __str__(self):
        raise RuntimeError


def handle(task):
    do, n = task.request["do"], task.request["n"]
    say(do, n, "begins", (task.checkpoint or {}).get("page", 0), "undo" if task.undo else "")
    if do == "book":            # its result and the books in one transaction
        time.sleep(task.request.get("takes", 0))
        while (shut := task.request.get("gate")) and not gate(shut):
            time.sleep(0.05)
        with psycopg.connect() as conn:
            book(conn, task)
            task.complete(conn, {"n": n})
    elif do == "pages":
        for page in range((task.checkpoint or {"page": 0})["page"] + 1, 6):
            if page == 4 and not gate(n):
                say(do, n, "waits")
                threading.Event().wait()
            task.save({"page": page}, progress=page / 5)
            say(do, n, "page", page)
    elif do == "gate":          # goes on until somebody opens the gate
        while not gate(n):
            time.sleep(0.05)
        with psycopg.connect() as conn:
            book(conn, task)
    elif do == "cancel":
        task.cancelled.wait()
        say(do, n, task.reason)
        raise sas_worker.HandBack
    elif do == "hang":          # hears nothing
        while not gate(n):
            time.sleep(0.05)
    elif do == "lost":          # goes on with what it has lost
        while not gate(n):
            time.sleep(0.05)
        try:
            task.save({"page": 99})
            say(do, n, "saved")
        except sas_worker.Lost:
            say(do, n, "lost", task.cancelled.is_set(), task.reason)
        task.emit({"page": 99})
        say(do, n, "emitted")
    elif do == "emit":
        for page in 1, 2:
            task.emit({"page": page})
        task.emit(None)
        try:
            task.emit("x" * 100000)
        except psycopg.Error as error:
            say(do, n, "refused", error.sqlstate)
    elif do == "nan":
        return float("nan")
    elif do == "zero":
        return {"text": "a\0b"}
    elif do == "fail":
        raise sas_worker.Permanent("no\0 way")
    elif do == "broken":        # what a service sent that is no UTF-8, as os.fsdecode and others tell it
        raise ValueError("no \udc80 way")
    elif do == "mute":
        raise Mute
    return {"n": n, "key": task.idempotency_key}


async def handle_async(task):
    if task.request["do"] == "sleep":
        say("sleep", task.request["n"], "begins")
        try:
            await asyncio.sleep(100000)
        except asyncio.CancelledError:
            say("sleep", task.request["n"], "interrupted")
            raise
    await task.save_async({"page": 1})
    async with await psycopg.AsyncConnection.connect() as conn:
        await conn.execute("INSERT INTO book (n, worker) VALUES (%s, %s)", [task.request["n"], name])
        await task.complete_async(conn, {"n": task.request["n"]})


handler = handle_async if os.environ.get("ASYNC") else handle
worker = sas_worker.Worker("", "work", handler, concurrency=concurrency, lease=lease, grace=grace, name=name,
                           listen_conninfo=os.environ.get("LISTEN"))
worker.run()
say("ends")

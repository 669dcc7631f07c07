#!/usr/bin/env python3
# SPDX-License-Identifier: PostgreSQL
"""feeder.py TASKS RATE FILES FOLDER: an application that submits so many orders, ten in a transaction, RATE a second, and
writes a line to one file after the other as often. What did not come through is submitted again, under its keys. Prints
how many orders are in; file "enough" of the folder ends it.
"""
import os
import sys
import time

import psycopg

tasks, rate, files, folder = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
conn, begun, lines, tries = None, time.monotonic(), [0] * (files + 1), 0


def submit(first):
    global conn
    if conn is None or conn.closed:
        conn = psycopg.connect("", connect_timeout=10, prepare_threshold=None, tcp_user_timeout=10000)
    with conn.transaction():
        conn.execute("INSERT INTO orders SELECT generate_series(%s::int, %s::int) ON CONFLICT DO NOTHING", [first, first + 9])
        conn.execute("""
            SELECT count(s.run_id) FROM generate_series(%s::int, %s::int) n,
                 sas.submit('pack', jsonb_build_object('order', n, 'pages', 1 + n %% 2), key => n::text) s""", [first, first + 9])


for first in range(1, tasks + 1, 10):
    while True:
        try:
            submit(first)
            break
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            tries += 1
            if conn:
                conn.close()
            print("again", first, str(error).strip().splitlines()[:1], flush=True)
            time.sleep(0.2)
    for n in range(first, first + 10):
        file = 1 + n % files
        lines[file] += 1
        with open(f"{folder}/{file}.txt", "a") as out:
            out.write(f"line {lines[file]} of {file}\n")
    print(first + 9, flush=True)
    time.sleep(max(0, begun + (first + 9) / rate - time.monotonic()))
print("submitted", tasks, "again", tries, flush=True)

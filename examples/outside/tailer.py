#!/usr/bin/env python3
# SPDX-License-Identifier: PostgreSQL
"""tailer.py NAME CAPACITY: hosts infinite tasks of agent "tailer", each of which watches a file.

Every line that is added to the file becomes an item; the cursor is how many
bytes have been read. Any number of these programs may run, on any machine that
sees the files; any may be killed at any time: the task goes to another one and
goes on behind the last line that was taken in.

    SELECT sas.create_agent('tailer', kind => 'external');
    CREATE TABLE line (id bigint GENERATED ALWAYS AS IDENTITY, key text, item jsonb NOT NULL);
    SELECT sas.create_watcher('files', '{"agent": "tailer", "external": {"path": "{{input.path}}"},
                                         "items": {"table": "public.line"}}');
    SELECT * FROM sas.watch('files', 'syslog', '{"path": "/var/log/syslog"}');

It needs python3-psycopg2, and finds the database by PGHOST, PGDATABASE ... If those lead to a pooler in transaction
mode, LISTEN is a connection string that leads past it; then the node lives as long as its lease.
"""
import json
import os
import select
import signal
import sys
import time

import psycopg2

AGENT = "tailer"
LEASE = 10          # seconds
LOOK_EVERY = 0.2    # seconds, at the files
LINES = 500         # at most so many items in one call


class Task:
    """One file. cursor: what was taken in by the server; nothing else is remembered."""

    def __init__(self, epoch, request, cursor):
        self.epoch = epoch
        self.path = request["path"]
        self.cursor = cursor or 0
        self.not_before = 0

    def read(self):
        """Whole lines behind the cursor, and the cursor behind them."""
        with open(self.path, "rb") as file:
            file.seek(self.cursor)
            lines = file.readlines(1 << 16)[:LINES]
        if lines and not lines[-1].endswith(b"\n"):
            lines.pop()
        return [line.decode("utf-8", "replace").rstrip("\n") for line in lines], self.cursor + sum(map(len, lines))


def connect(conninfo):
    """Each call is a transaction of its own. A server that has gone silent is noticed in half a minute."""
    connection = psycopg2.connect(conninfo, connect_timeout=10, keepalives_idle=15, keepalives_interval=5, keepalives_count=3,
                                  tcp_user_timeout=30000)
    connection.autocommit = True
    return connection


class Host:
    def __init__(self, name, capacity):
        self.name, self.capacity = name, capacity
        self.tasks = {}     # watch_id: Task
        self.stopping = False

    def call(self, sql, *values):
        with self.connection.cursor() as cursor:
            cursor.execute(sql, values)
            return cursor.fetchall() if cursor.description else []

    def live(self):
        """One life: from the birth of the node until its connection is lost, or it is told that it has ended."""
        self.tasks.clear()
        apart = os.environ.get("LISTEN")
        self.connection = connect("")
        self.news = connect(apart) if apart else self.connection
        self.news.cursor().execute(f"LISTEN sas_watch_{AGENT}")     # before looking: nothing falls between
        [(self.node,)] = self.call("""
            SELECT sas.register_node(%s, %s, %s, version => '1', lease => make_interval(secs => %s), by_connection => %s)""",
                                   self.name, self.capacity, [AGENT], LEASE, not apart)
        print(f"{self.name} is node {self.node}", flush=True)
        beat = claim = 0
        while not self.stopping:
            now = time.monotonic()
            if now >= beat:                     # in good time, and whenever something is heard
                beat = now + LEASE / 3
                if not self.heartbeat():
                    return
            if now >= claim:
                claim = now + LEASE / 3
                self.claim()
            for watch_id, task in list(self.tasks.items()):
                if now >= task.not_before:
                    self.serve(watch_id, task)
            select.select([self.news], [], [], LOOK_EVERY)
            self.news.poll()
            if self.news.notifies:
                self.news.notifies.clear()
                beat = claim = 0
        self.call("SELECT sas.leave_node(%s)", self.node)
        print(f"{self.name} says good-bye", flush=True)

    def claim(self):
        if len(self.tasks) < self.capacity:
            for watch_id, epoch, request, cursor in self.call(
                    "SELECT watch_id, epoch, request, cursor FROM sas.claim_watchers(%s, %s)", self.node, self.capacity - len(self.tasks)):
                self.tasks[watch_id] = Task(epoch, request, cursor)

    def heartbeat(self):
        """False: the node has ended, and hosts nothing any more."""
        for watch_id, epoch, news, request, cursor in self.call("SELECT watch_id, epoch, news, request, cursor FROM sas.heartbeat_node(%s)", self.node):
            if watch_id is None:
                return False
            task = self.tasks.get(watch_id)
            if news == "stop":
                if task:
                    self.serve(watch_id, task)  # what is there by now
                self.release(watch_id)
            elif news == "reload" and task:
                self.tasks[watch_id] = Task(epoch, request, cursor)
            elif news == "room" and task:
                task.not_before = 0
            elif news == "lost" and task and task.epoch == epoch:
                del self.tasks[watch_id]
        return True

    def release(self, watch_id):
        self.tasks.pop(watch_id, None)
        self.call("SELECT sas.release_watches(%s, %s)", self.node, [watch_id])

    def serve(self, watch_id, task):
        try:
            lines, cursor = task.read()
        except OSError as error:
            self.failed(watch_id, task, error)
            return
        if not lines:
            return
        [(answer,)] = self.call("SELECT sas.append_items(%s, %s, %s, %s)", watch_id, task.epoch, json.dumps(lines), json.dumps(cursor))
        if answer in ("go", "stop"):
            task.cursor = cursor                # it is the server's now, together with the lines
        if answer == "full":
            task.not_before = time.monotonic() + 1
        elif answer == "lost":
            self.tasks.pop(watch_id, None)
        elif answer == "stop":
            self.release(watch_id)

    def failed(self, watch_id, task, error):
        [(answer, pause)] = self.call("SELECT answer, pause FROM sas.fail_watch(%s, %s, %s)", watch_id, task.epoch, str(error))
        if answer == "retry":
            task.not_before = time.monotonic() + pause.total_seconds()
        elif answer == "stop":
            self.release(watch_id)
        else:
            self.tasks.pop(watch_id, None)

    def stop(self, *_):
        self.stopping = True


def main():
    host = Host(sys.argv[1], int(sys.argv[2]))
    signal.signal(signal.SIGTERM, host.stop)
    while not host.stopping:
        try:
            host.live()
        except (psycopg2.OperationalError, psycopg2.InterfaceError) as error:
            # with the connection the node has ended: nothing is hosted until it is born again
            print(f"{host.name} has lost the server: {error}", flush=True)
            time.sleep(0.5)


if __name__ == "__main__":
    main()

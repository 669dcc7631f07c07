# SPDX-License-Identifier: PostgreSQL
"""The books of the demo shop."""

import collections
import json
import os
import time

from wire import to_json


class Books:
    """Entries and remembered answers, in memory and, if a file is named, in the file."""

    def __init__(self, path):
        self.path = path
        self.file = None
        self.clear()
        if path:
            self.load()
            self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def clear(self):
        self.entries = {}                   # id -> entry, in the order they were made
        self.answers = {}                   # key -> (fingerprint, status, body)
        self.last_id = collections.Counter()
        if self.file is not None:
            os.ftruncate(self.file, 0)

    def load(self):
        try:
            with open(self.path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            os.truncate(self.path, whole)
        for line in data[:whole].splitlines():
            change = json.loads(line)
            for entry in change["entries"]:
                self.put(entry)
            if change.get("key") is not None:
                self.answers[change["key"]] = (change["print"], change["status"], to_json(change["body"]))

    def put(self, entry):
        self.entries[entry["id"]] = entry
        kind, number = entry["id"].rsplit("-", 1)
        self.last_id[kind] = max(self.last_id[kind], int(number))

    def next_id(self, kind):
        return f"{kind}-{self.last_id[kind] + 1}"

    def record(self, entries, key, fingerprint, status, body):
        """One change: the entries as they are now and the answer, written before anyone hears of it."""
        if self.file is not None and (entries or key is not None):
            line = {"at": time.time(), "entries": entries, "status": status, "body": body}
            if key is not None:
                line.update(key=key, print=fingerprint)
            data = to_json(line) + b"\n"
            written = os.write(self.file, data)
            while written < len(data):
                written += os.write(self.file, data[written:])
        for entry in entries:
            self.put(entry)
        if key is not None:
            self.answers[key] = (fingerprint, status, to_json(body))

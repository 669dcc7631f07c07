# SPDX-License-Identifier: PostgreSQL
"""A connection to PostgreSQL, over its unix socket, with trust.

As much of the protocol as the benchmarks need (simple queries, texts), in a
few lines and without a library, because they want to know the moment at which
COMMIT left and its answer came.
"""

import socket
import struct
import time


class ServerError(Exception):
    pass


class Connection:
    def __init__(self, folder, port, user, database):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(f"{folder}/.s.PGSQL.{port}")
        self.buffer = b""
        self.notified = False
        words = ("user", user, "database", database, "application_name", "bench", "")
        start = struct.pack("!i", 196608) + b"\0".join(w.encode() for w in words) + b"\0"
        self.socket.sendall(struct.pack("!i", len(start) + 4) + start)
        self.answer()

    def message(self):
        while True:
            if len(self.buffer) >= 5:
                length = struct.unpack("!i", self.buffer[1:5])[0] + 1
                if len(self.buffer) >= length:
                    kind, body = self.buffer[:1], self.buffer[5:length]
                    self.buffer = self.buffer[length:]
                    return kind, body
            more = self.socket.recv(1 << 16)
            if not more:
                raise ServerError("the server closed the connection")
            self.buffer += more

    def answer(self):
        """Rows of texts, until the server is ready for the next query."""
        rows, error = [], None
        while True:
            kind, body = self.message()
            if kind == b"D":
                at, row = 2, []
                for _ in range(struct.unpack("!h", body[:2])[0]):
                    length = struct.unpack("!i", body[at:at + 4])[0]
                    at += 4
                    row.append(None if length < 0 else body[at:at + length].decode())
                    at += max(length, 0)
                rows.append(row)
            elif kind == b"E":
                fields = dict((f[:1], f[1:].decode()) for f in body.split(b"\0") if f)
                error = fields.get(b"M", "?") + " " + fields.get(b"D", "")
            elif kind == b"A":
                self.notified = True
            elif kind == b"R" and struct.unpack("!i", body[:4])[0] != 0:
                raise ServerError("the server asks for a password")
            elif kind == b"Z":
                if error:
                    raise ServerError(error)
                return rows

    def listen(self, seconds):
        """Waits for a notification, so long at most."""
        self.socket.settimeout(seconds)
        try:
            while not self.notified:
                self.notified = self.message()[0] == b"A"
        except TimeoutError:
            pass
        self.socket.settimeout(None)
        self.notified = False

    def close(self):
        """As when the process is killed: without a word."""
        self.socket.close()

    def query(self, text):
        body = text.encode() + b"\0"
        self.socket.sendall(b"Q" + struct.pack("!i", len(body) + 4) + body)
        return self.answer()

    def value(self, text):
        return self.query(text)[0][0]

    def timed(self, text):
        """Microseconds since the epoch just before the query left and just after its answer came."""
        before = time.time_ns() // 1000
        self.query(text)
        return before, time.time_ns() // 1000

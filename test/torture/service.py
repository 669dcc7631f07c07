#!/usr/bin/env python3
# SPDX-License-Identifier: PostgreSQL
"""A service that misbehaves at random, and keeps books of what it did: see test/torture/README.md.

    service.py --port N --seed N

Work, with an Idempotency-Key and the body {id, step, ...}:
    POST /do/...    an effect; its answer says n: how many of this id and step there are
    POST /undo/...  takes the effect of {id, step} back; "of" is the key of its call
    POST /fail/...  402, no effect
    POST /down/...  503, no effect
    GET  /jobs/ID   working twice, then done
    GET  /feed?after=N   up to five numbers after N, there is always more; a line each, then it breaks off
Control:
    POST /mood {"wild": true}    from now on it misbehaves, or not
    GET  /books                  {effects: [...], requests: N, again: [...], overtaken: [...]}

The first answer to a key is remembered and given again; the effect is not repeated. An effect knows when the whole
answer to its key had left on a connection that the worker still held open, and when its requests came; a request for
the key after that answer is written into "again".
A request whose undo came first is refused, as docs/explanation/guarantees.md advises, and written into "overtaken".
"""
import argparse
import http.server
import json
import random
import socket
import struct
import threading
import time


class Books:
    def __init__(self, seed):
        self.lock = threading.Lock()
        self.random = random.Random(seed)
        self.wild = False
        self.effects = {}
        self.again = []
        self.overtaken = []
        self.undone = {}
        self.times = {}
        self.asked = {}
        self.requests = 0
        self.given = {}

    def choose(self):
        """How the next answer is given."""
        with self.lock:
            self.requests += 1
            if not self.wild:
                return "well"
            return self.random.choices(
                ["well", "slow", "busy", "later", "drop_before", "drop_after", "error_after", "garbage", "half", "hang"],
                [70, 6, 5, 1, 3, 5, 3, 3, 3, 1])[0]

    def note_time(self, key):
        with self.lock:
            self.times.setdefault(key, []).append(round(time.time(), 3))

    def apply(self, key, path, body):
        """The answer to this key; the effect is made once. None: it was undone before."""
        with self.lock:
            known = self.effects.get(key)
            if known is not None:
                known["asked"] += 1
                if known["answered"]:
                    self.again.append({"key": key, "answered": known["answered"], "at": time.time(), "id": known["id"],
                                       "step": known["step"], "kind": known["kind"], "item": known["item"]})
                return known["answer"]
            kind = path.split("/")[1]
            if kind == "do" and key in self.undone:
                self.overtaken.append({"key": key, "undone": self.undone[key], "at": time.time(), "id": body.get("id"),
                                       "step": body.get("step")})
                return None
            if kind == "undo" and body.get("of"):
                self.undone.setdefault(body["of"], time.time())
            name = (body.get("id"), body.get("step"))
            n = self.given[name] = self.given.get(name, 0) + (kind == "do")
            answer = {"key": key, "n": n, "id": body.get("id")}
            self.effects[key] = {"key": key, "kind": kind, "id": body.get("id"), "step": body.get("step"),
                                 "item": body.get("item"), "seq": len(self.effects), "at": time.time(), "asked": 1,
                                 "answered": None, "answer": answer}
            return answer

    def answered(self, key):
        with self.lock:
            effect = self.effects.get(key)
            if effect is not None and not effect["answered"]:
                effect["answered"] = time.time()

    def ask(self, path):
        with self.lock:
            n = self.asked[path] = self.asked.get(path, 0) + 1
            return {"state": "done" if n > 2 else "working"}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    books = None

    def give(self, status, value, headers=()):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, text in headers:
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()

    def hang_up(self):
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def misbehave_before(self, how):
        """True: that was the answer, and nothing was done."""
        if how == "busy":
            self.give(503, {"title": "busy"})
        elif how == "later":
            self.give(429, {"title": "later"}, [("Retry-After", "1")])
        elif how == "drop_before":
            self.hang_up()
        else:
            return False
        return True

    def answer(self, how, value):
        """True: the whole answer has left."""
        if how == "slow":
            time.sleep(self.books.random.uniform(0.1, 0.8))
        elif how == "hang":
            time.sleep(6)
        if how in ("drop_after", "hang"):
            self.hang_up()
        elif how == "error_after":
            self.give(500, {"title": "lost my mind"})
        elif how == "garbage":
            self.connection.sendall(b"\x80\x81\x82 nonsense\r\n\r\n")
            self.hang_up()
        elif how == "half":
            self.connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{")
            self.hang_up()
        elif self.is_held():
            self.give(200, value)
            return self.connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
        return False

    def is_held(self):
        """Does the other side still wait for the answer?"""
        try:
            return self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    def feed(self, after):
        """Numbers, some of them in pieces; the connection breaks off anywhere."""
        if self.books.choose() == "busy":
            self.give(503, {"title": "busy"})
            return
        self.close_connection = True
        self.connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\n\r\n")
        for n in range(after + 1, after + self.books.random.randint(2, 30)):
            line = json.dumps({"n": n}).encode() + b"\n"
            cut = self.books.random.randint(0, len(line))
            self.connection.sendall(line[:cut])
            time.sleep(0.02)
            self.connection.sendall(line[cut:])
        if self.books.wild:
            self.connection.sendall(b'{"n": ')

    def do_GET(self):
        if self.path == "/books":
            with self.books.lock:
                value = {"effects": [{**e, "times": self.books.times.get(e["key"], [])}
                                     for e in self.books.effects.values()],
                         "again": list(self.books.again), "overtaken": list(self.books.overtaken),
                         "requests": self.books.requests}
            self.give(200, value)
            return
        if self.path.startswith("/feed"):
            self.feed(int(self.path.partition("=")[2] or 0))
            return
        how = self.books.choose()
        if not self.misbehave_before(how):
            self.answer(how, self.books.ask(self.path))

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        if self.path == "/mood":
            self.books.wild = body["wild"]
            self.give(200, {})
            return
        key = self.headers.get("Idempotency-Key", "")
        self.books.note_time(key)
        how = self.books.choose()
        if self.misbehave_before(how):
            return
        if self.path.startswith("/fail/"):
            self.give(402, {"title": "no money"})
            return
        if self.path.startswith("/down/"):
            self.give(503, {"title": "down"})
            return
        value = self.books.apply(key, self.path, body)
        if value is None:
            self.give(409, {"title": "it was undone before"})
        elif self.answer(how, value):
            self.books.answered(key)

    def handle(self):
        try:
            super().handle()
        except OSError:
            pass

    def log_message(self, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def handle_error(self, request, client_address):
        pass


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    Handler.books = Books(options.seed)
    server = Server(("127.0.0.1", options.port), Handler)
    print(f"listening on {options.port}", flush=True)
    server.serve_forever()


main()

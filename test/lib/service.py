#!/usr/bin/env python3
# SPDX-License-Identifier: PostgreSQL
"""A service that answers as a test tells it to, and remembers what it was asked.

    service.py --port N --control N [--address A] [--cert FILE --key FILE [--ca FILE]] [--scripts JSON]

On the first port it speaks HTTP/1.1, or TLS with a certificate.  The first segment of a path names a script,
a list of answers given one after the other, the last one for ever; without a script a request is answered
200 with what was asked as JSON.  An answer is an object:

    status, headers ([[name, value], ...]), body (text), base64 (bytes), json: a plain answer
    delay: seconds before it; gate: true waits for a release first
    echo: true puts what was asked into the body
    how: nothing, reset, half, garbage, headers (a megabyte of them), endless; stuck (2 MB, the last
         quarter when the gate opens); pieces (500 kB, in chunks of one byte); silent never answers; watch neither,
         and notes in the request ("hung_up") when the client has closed the connection

The control port: POST /scripts {name: [answer, ...]}, POST /release, GET /requests, GET /figures.  Requests
are numbered as they come; each bears its connection, its header lines and when it came and was answered; with --ca
also "client", the name in the certificate of who asked.
"""

import base64
import http.server
import json
import socket
import ssl
import struct
import threading
import time
import urllib.parse

from control import options


LONGEST_WAIT = 600      # seconds for a release
PIECES = b"1\r\nx\r\n" * 500000


class Hangup(Exception):
    """The client is gone, or is to be left alone."""


class Service:
    def __init__(self):
        self.lock = threading.Condition()
        self.scripts = {}
        self.given = {}                     # how many answers of a script
        self.requests = []
        self.connections = 0
        self.active = {}                    # by script: now, at most
        self.releases = 0

    def figures(self):
        with self.lock:
            return {"connections": self.connections, "requests": len(self.requests),
                    "active": {name: now for name, (now, _) in self.active.items()},
                    "most": {name: most for name, (_, most) in self.active.items()}}

    def set_scripts(self, scripts):
        with self.lock:
            for name, script in scripts.items():
                self.scripts[name] = script
                self.given[name] = 0
                self.active[name] = (self.active.get(name, (0, 0))[0],) * 2

    def release(self):
        with self.lock:
            self.releases += 1
            self.lock.notify_all()

    def begin(self, asked):
        """Notes a request; its answer."""
        name = asked["script"]
        with self.lock:
            asked["seq"] = len(self.requests) + 1
            asked["at"] = time.monotonic()
            asked["releases"] = self.releases
            self.requests.append(asked)
            now, most = self.active.get(name, (0, 0))
            self.active[name] = (now + 1, max(most, now + 1))
            script = self.scripts.get(name)
            if not script:
                return {"echo": True}
            n = self.given[name]
            self.given[name] = n + 1
            return script[min(n, len(script) - 1)]

    def end(self, asked):
        with self.lock:
            asked["ended"] = time.monotonic()
            now, most = self.active[asked["script"]]
            self.active[asked["script"]] = (now - 1, most)

    def wait_at_gate(self, asked):
        """Until a release after the request came: also one that came while the first part of an answer was being sent."""
        with self.lock:
            self.lock.wait_for(lambda: self.releases > asked["releases"], LONGEST_WAIT)


def read_head(connection, buffer):
    while b"\r\n\r\n" not in buffer:
        data = connection.recv(65536)
        if not data:
            raise Hangup
        buffer += data
    head, _, rest = bytes(buffer).partition(b"\r\n\r\n")
    return head.decode("utf-8", "replace").split("\r\n"), bytearray(rest)


def script_of(target):
    """A target is a path, or behind a proxy the whole address."""
    path = urllib.parse.urlsplit(target).path
    return path.split("/")[1] if path.startswith("/") else ""


def read_request(connection, buffer):
    """What was asked, and the bytes behind it."""
    lines, buffer = read_head(connection, buffer)
    method, target, _ = lines[0].split(" ", 2)
    headers = [[part.strip() for part in line.split(":", 1)] for line in lines[1:]]
    length = next((int(value) for name, value in headers if name.lower() == "content-length"), 0)
    while len(buffer) < length:
        data = connection.recv(65536)
        if not data:
            raise Hangup
        buffer += data
    asked = {"method": method, "target": target, "headers": headers,
             "body": bytes(buffer[:length]).decode("utf-8", "replace"),
             "script": script_of(target)}
    return asked, buffer[length:]


def plain_answer(asked, answer):
    if answer.get("echo"):
        body = json.dumps({name: asked[name] for name in ("method", "target", "headers", "body")}).encode()
    elif "base64" in answer:
        body = base64.b64decode(answer["base64"])
    elif "json" in answer:
        if "made" not in answer:
            answer["made"] = json.dumps(answer["json"]).encode()
        body = answer["made"]
    else:
        body = answer.get("body", "").encode()
    status = answer.get("status", 200)
    headers = list(answer.get("headers", []))
    if not any(name.lower() == "content-type" for name, _ in headers) and ("json" in answer or answer.get("echo")):
        headers.append(["Content-Type", "application/json"])
    if status != 204:
        headers.append(["Content-Length", str(len(body))])
    head = f"HTTP/1.1 {status} {answer.get('reason', 'Told')}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in headers) + "\r\n"
    return head.encode("latin-1") + (b"" if asked["method"] == "HEAD" or status == 204 else body)


def misbehave(connection, how):
    if how == "garbage":
        connection.sendall(bytes(range(128, 256)) * 8 + b"\r\n\r\n")
    elif how == "half":
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"id\": 1")
    elif how == "headers":
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        for n in range(1024):
            connection.sendall(b"X-%d: " % n + b"x" * 1024 + b"\r\n")
        connection.sendall(b"Content-Length: 0\r\n\r\n")
    elif how == "endless":
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            connection.sendall(b"8000\r\n" + b"e" * 0x8000 + b"\r\n")
    elif how == "pieces":
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n" + PIECES + b"0\r\n\r\n")
    elif how == "reset":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    raise Hangup


def watch(service, connection, asked):
    """Until the client is gone."""
    try:
        while connection.recv(65536):
            pass
    except OSError:
        pass
    with service.lock:
        asked["hung_up"] = time.monotonic()
    raise Hangup


def answer_one(service, connection, asked):
    answer = service.begin(asked)
    try:
        if answer.get("gate"):
            service.wait_at_gate(asked)
        time.sleep(answer.get("delay", 0))
        how = answer.get("how")
        if how == "silent":
            service.wait_at_gate(asked)
            raise Hangup
        if how == "watch":
            watch(service, connection, asked)
        if how == "stuck":
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2000000\r\n\r\n" + b"x" * 1500000)
            service.wait_at_gate(asked)
            connection.sendall(b"x" * 500000)
            return
        data = plain_answer(asked, answer) if how is None else None
    finally:
        # before the answer goes out, or the client's next request would find this one still active
        service.end(asked)
    if how is not None:
        misbehave(connection, how)
    connection.sendall(data)


def serve(service, connection, number, context):
    buffer = bytearray()
    try:
        if context is not None:
            connection = context.wrap_socket(connection, server_side=True)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            asked, buffer = read_request(connection, buffer)
            asked["connection"] = number
            if context is not None:
                asked["client"] = dict(part[0] for part in (connection.getpeercert() or {}).get("subject", ())).get("commonName")
            answer_one(service, connection, asked)
    except (Hangup, OSError, ValueError):
        pass
    finally:
        connection.close()


class Control(http.server.BaseHTTPRequestHandler):
    service = None

    def reply(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path == "/requests":
            with self.service.lock:
                rows = [dict(row) for row in self.service.requests]
            self.reply({"requests": rows})
        else:
            self.reply(self.service.figures())

    def do_POST(self):
        value = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        if self.path == "/scripts":
            self.service.set_scripts(value)
        elif self.path == "/release":
            self.service.release()
        self.reply({})

    def log_message(self, *args):
        pass


def main():
    said = options(("--address", {"default": "127.0.0.1"}), ("--scripts", {"type": json.loads, "default": {}}), ("--ca", {}))
    if said.ca:
        said.tls.load_verify_locations(said.ca)
        said.tls.verify_mode = ssl.CERT_OPTIONAL
    service = Service()
    service.set_scripts(said.scripts)
    Control.service = service
    control = http.server.ThreadingHTTPServer(("127.0.0.1", said.control), Control)
    threading.Thread(target=control.serve_forever, daemon=True).start()
    listener = socket.create_server((said.address, said.port), backlog=512)
    print(f"listening on {said.port}", flush=True)
    while True:
        connection, _ = listener.accept()
        with service.lock:
            service.connections += 1
            number = service.connections
        threading.Thread(target=serve, args=(service, connection, number, said.tls), daemon=True).start()


main()

#!/usr/bin/env python3
# SPDX-License-Identifier: PostgreSQL
"""A service that takes signed messages only: Standard Webhooks, as its specification asks a consumer to check them.

    webhook_service.py --port N

POST /control  {"secrets": [base64, ...], "ahead": seconds of its clock before that of the machine}
GET  /books    [{path, headers, body, verdict}]: all messages, as they came
any other path is refused unless one of the signatures is that of a secret (401), the timestamp is at most 300 s from
now (400) and this very message has not come before (409). /busy answers 503 to the first good one.
"""
import argparse
import base64
import hashlib
import hmac
import http.server
import json
import threading
import time

lock = threading.Lock()
settings = {"secrets": [], "ahead": 0}
books = []


def verdict(headers, body):
    """The status, and why."""
    name, stamp, signatures = (headers.get("webhook-" + part, "") for part in ("id", "timestamp", "signature"))
    if not name or not stamp.isdigit():
        return 401, "not signed"
    signed = f"{name}.{stamp}.".encode() + body
    good = ["v1," + base64.b64encode(hmac.new(base64.b64decode(secret), signed, hashlib.sha256).digest()).decode() for secret in settings["secrets"]]
    if not any(hmac.compare_digest(one, other) for one in signatures.split(" ") for other in good):
        return 401, "another signature"
    if abs(time.time() + settings["ahead"] - int(stamp)) > 300:
        return 400, "an old timestamp"
    if any(b["verdict"] == "good" and (b["headers"]["webhook-id"], b["headers"]["webhook-timestamp"]) == (name, stamp) for b in books):
        return 409, "a replay"
    return 200, "good"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def give(self, status, value, *headers):
        data = json.dumps(value).encode()
        self.send_response(status)
        for name, text in (("Content-Type", "application/json"), ("Content-Length", str(len(data))), *headers):
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.give(200, books)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/control":
            settings.update(json.loads(body))
            return self.give(200, {})
        headers = {name.lower(): value for name, value in self.headers.items()}
        with lock:
            status, why = verdict(headers, body)
            first = status == 200 and not any(b["path"] == self.path for b in books)
            books.append({"path": self.path, "headers": headers, "body": body.decode(), "verdict": why})
        if self.path == "/busy" and first:
            return self.give(503, {"title": "busy"}, ("Retry-After", "2"))
        self.give(status, {"title": why})

    def log_message(self, *args):
        pass


parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, required=True)
port = parser.parse_args().port
server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
print(f"listening on {port}", flush=True)
server.serve_forever()

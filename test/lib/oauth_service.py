#!/usr/bin/env python3
# SPDX-License-Identifier: PostgreSQL
"""A service that wants an access token (RFC 6749, client credentials; RFC 6750), and the service that gives it.

    oauth_service.py --port N

POST /token    gives a token for client "shop" with the secret "p&ss w:rd"
POST /control  {"life": seconds, "down": status or null, "in_body": bool, "revoke": true, "slow": seconds,
                "stillborn": how many tokens from now on are never good}
GET  /books    {"tokens": [request bodies and how they were authenticated], "calls": [{path, token, status}]}
any other path wants a token that is good, and answers 401 otherwise; it tells the header Authorization in its answer
"""
import argparse
import base64
import http.server
import json
import threading
import time
import urllib.parse


class State:
    lock = threading.Lock()
    settings = {"life": 3600, "down": None, "in_body": False, "slow": 0, "refuse_all": False, "stillborn": 0}
    good = {}
    tokens = []
    calls = []


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def give(self, status, value):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def client(self, form):
        """Who asks, by header or body."""
        header = self.headers.get("Authorization", "")
        if State.settings["in_body"]:
            return None if header else (form.get("client_id"), form.get("client_secret"))
        if not header.startswith("Basic ") or "client_secret" in form:
            return None
        pair = base64.b64decode(header[6:]).decode().split(":")
        return tuple(urllib.parse.unquote_plus(part) for part in pair)

    def give_token(self, body):
        form = dict(urllib.parse.parse_qsl(body, strict_parsing=True))
        with State.lock:
            State.tokens.append({"form": {k: v for k, v in form.items() if k != "client_secret"}, "at": time.time()})
            n = len(State.tokens)
            settings = dict(State.settings)
            State.settings["stillborn"] = max(0, settings["stillborn"] - 1)
        time.sleep(settings["slow"])
        if settings["down"]:
            self.give(settings["down"], {"error": "temporarily_unavailable", "error_description": "p&ss w:rd"})
        elif self.client(form) != ("shop", "p&ss w:rd") or form.get("grant_type") != "client_credentials":
            self.give(401, {"error": "invalid_client"})
        else:
            token = "token-%d-of.the~service" % n
            with State.lock:
                State.good[token] = 0 if settings["stillborn"] else time.time() + settings["life"]
            self.give(200, {"access_token": token, "token_type": "bearer", "expires_in": settings["life"]})

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        if self.path == "/token":
            self.give_token(body)
        elif self.path == "/control":
            with State.lock:
                wanted = json.loads(body)
                if wanted.pop("revoke", False):
                    State.good.clear()
                State.settings.update(wanted)
            self.give(200, {})
        else:
            self.answer()

    def do_GET(self):
        if self.path == "/books":
            with State.lock:
                self.give(200, {"tokens": State.tokens, "calls": State.calls})
        else:
            self.answer()

    def answer(self):
        header = self.headers.get("Authorization", "")
        token = header[7:] if header.startswith("Bearer ") else None
        with State.lock:
            good = State.good.get(token, 0) > time.time() and not State.settings["refuse_all"]
            State.calls.append({"path": self.path, "token": token, "status": 200 if good else 401})
        if not good:
            self.give(401, {"title": "no good token", "was": header})
        elif self.path.startswith("/lines"):
            self.send_response(200)
            self.send_header("Content-Type", "application/x-ndjson")
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            self.wfile.write(b'{"n": 1}\n{"was": "' + header.encode() + b'"}\n')
        else:
            self.give(200, {"ok": True, "was": header})

    def log_message(self, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def handle_error(self, request, client_address):
        pass


parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, required=True)
port = parser.parse_args().port
server = Server(("127.0.0.1", port), Handler)
print(f"listening on {port}", flush=True)
server.serve_forever()

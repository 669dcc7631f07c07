#!/usr/bin/env python3
# SPDX-License-Identifier: PostgreSQL
"""The demo shop: three small HTTP services with books, idempotency and faults.

    shop.py --service inventory|payments|shipping --port N [--books FILE] [--seed S]

One process is one service on 127.0.0.1; it prints "listening on N" when it is ready. Standard library
only, one thread, one event loop; wire.py is its HTTP, books.py what it remembers, faults.py how it fails.

Work
    inventory  POST /reservations {sku, order}           DELETE /reservations/ID
    payments   POST /charges {order, amount, card}       POST /refunds {charge}
    shipping   POST /slots {order}                       DELETE /slots/ID
               POST /shipments {order, sku}              DELETE /shipments/ID
    What no retry can mend: an sku that begins with "gone-" is not in the catalogue (404), the card
    "declined" has no money (402), an sku that begins with "bulky-" fits into no van (403).

Idempotency-Key
    The first final answer to a key (any 2xx or 4xx) is remembered and given again without doing anything;
    the same key with another method, path or body is answered 422. Requests without a key are carried out
    and counted.

Looking
    GET /books      every entry with order, state and keys, and the counters
    GET /requests   the last 100,000 work requests; ?after=SEQ for those that came later
    GET /healthz

Control
    POST /faults    shares of requests that meet a fault, see Faults; what is written is all that holds
    GET  /faults
    POST /hold      from now on no work request is answered; {"work": "now"} does the work at once and
                    withholds only the answer, {"work": "release"} (the default) does it on release, even
                    when the caller has gone by then
    POST /release   everything held is carried out and answered
    POST /reset     as new: empty books, no faults, nothing held

What survives a kill: with --books each change of the books, and each remembered answer, is one line of
JSON, handed to the kernel before the answer leaves. A torn last line is dropped when the file is read
again; its answer never left. Counters, faults and the list of requests start anew.
"""

import argparse
import asyncio
import collections
import gc
import hashlib
import resource
import signal
import socket
import sys
import time
from urllib.parse import unquote

sys.dont_write_bytecode = True
from books import Books
from faults import Faults
from wire import Connection, Refused, problem

MAX_REQUESTS_KEPT = 100_000

# a row of GET /requests
SEQ, MONO, EPOCH, METHOD, PATH, KEY, TRACE, ANSWERED, FAULT, OUTCOME = range(10)
ROW_NAMES = ("seq", "monotonic", "at", "method", "path", "key", "traceparent", "status", "fault", "outcome")


def text_of(body, name):
    """A field that names something: a text or a number that is not empty."""
    value = body.get(name)
    if isinstance(value, bool) or not isinstance(value, (str, int, float)) or value == "":
        raise Refused(400, f"{name} is missing")
    return value


class Service:
    """What the three have in common. do() is theirs: it gives (status, body, changed entries)."""

    name = ""
    work_paths = ()

    def __init__(self, books, seed):
        self.books = books
        self.seed = seed
        self.connections = set()
        self.control = {
            ("GET", "/healthz"): lambda r: {"service": self.name, "ok": True},
            ("GET", "/books"): self.show_books,
            ("GET", "/requests"): self.show_requests,
            ("GET", "/faults"): lambda r: self.faults.show(),
            ("POST", "/faults"): self.set_faults,
            ("POST", "/hold"): self.hold,
            ("POST", "/release"): self.release,
            ("POST", "/reset"): self.reset,
        }
        self.start_anew()

    def start_anew(self):
        self.faults = Faults(self.seed)
        self.requests = collections.deque(maxlen=MAX_REQUESTS_KEPT)
        self.sequence = 0
        self.counts = collections.Counter()
        self.fault_counts = collections.Counter()
        self.answer_counts = collections.Counter()
        self.unavailable_given = 0
        self.holding = None
        self.held = []

    # -- requests in

    def handle(self, connection, request):
        control = self.control.get((request.method, request.path))
        if control is not None:
            try:
                connection.answer(200, control(request))
            except Refused as refused:
                connection.answer(*refused.answer)
            return
        if not request.path.startswith(self.work_paths):
            connection.answer(*problem(404, "there is nothing at this path"))
            return
        headers = request.headers
        self.sequence += 1
        request.row = [self.sequence, request.mono, request.epoch, request.method, request.path,
                       headers.get("idempotency-key"), headers.get("traceparent"), None, None, None]
        self.requests.append(request.row)
        if self.holding is None:
            self.serve(connection, request)
        else:
            done = self.work(request) if self.holding == "now" else None
            self.held.append((connection, request, done))

    def serve(self, connection, request):
        """Work and answer, or what the fault says instead."""
        kind, coin = self.faults.draw(request)
        if kind is None:
            self.give(connection, request, self.work(request))
            return
        self.fault_counts[kind] += 1
        request.row[FAULT] = kind
        getattr(self, "fault_" + kind)(connection, request, coin)

    def give(self, connection, request, done):
        status, body, headers = done
        if not connection.closed:
            self.answer_counts[status] += 1
            connection.answer(status, body, headers)

    def note_answer(self, request, status):
        if request.row is not None:
            request.row[ANSWERED] = status

    # -- work

    def work(self, request):
        """Carry the request out once per key; (status, body, headers)."""
        key = request.row[KEY]
        fingerprint = None
        if key is None:
            self.counts["without_key"] += 1
        else:
            fingerprint = hashlib.blake2b(
                f"{request.method} {request.path}\n".encode() + request.body, digest_size=16).hexdigest()
            known = self.books.answers.get(key)
            if known is not None:
                if known[0] != fingerprint:
                    self.counts["key_conflicts"] += 1
                    request.row[OUTCOME] = "conflict"
                    return *problem(422, "this Idempotency-Key came with another request before"), ()
                self.counts["duplicates"] += 1
                request.row[OUTCOME] = "repeated"
                return known[1], known[2], (("Idempotency-Replayed", "true"),)
        try:
            status, body, entries = self.do(request, request.json(), key)
            request.row[OUTCOME] = "done"
            self.counts["done"] += 1
        except Refused as refused:
            (status, body), entries = refused.answer, []
            request.row[OUTCOME] = "refused"
            self.counts["refused"] += 1
        self.books.record(entries, key, fingerprint, status, body)
        return status, body, ()

    def do(self, request, body, key):
        raise NotImplementedError

    def make(self, kind, key, **fields):
        return {"id": self.books.next_id(kind), "kind": kind, **fields, "key": key, "undo_key": None,
                "made_at": time.time(), "undone_at": None}

    def find(self, path, kind):
        """The entry named by the last part of the path."""
        entry = self.books.entries.get(unquote(path.rsplit("/", 1)[1]))
        if entry is None or entry["kind"] != kind:
            raise Refused(404, f"no such {kind}")
        return entry

    def take_back(self, entry, state, key):
        return {**entry, "state": state, "undo_key": key, "undone_at": time.time()}

    def make_and_take_back(self, request, body, key, kind, collection, undone, **fields):
        """POST /collection and DELETE /collection/ID."""
        if request.method == "POST" and request.path == collection:
            entry = self.make(kind, key, order=text_of(body, "order"), state="active", **fields)
            return 201, {"id": entry["id"], "order": entry["order"]}, [entry]
        if request.method == "DELETE" and request.path.startswith(collection + "/"):
            entry = self.find(request.path, kind)
            if entry["state"] != "active":
                raise Refused(404, f"the {kind} is {entry['state']} already")
            return 200, {"id": entry["id"], "state": undone}, [self.take_back(entry, undone, key)]
        raise Refused(405, "this cannot be done here")

    # -- faults

    def later(self, seconds, what, *args):
        asyncio.get_running_loop().call_later(seconds, what, *args)

    def fault_unavailable(self, connection, request, coin):
        self.unavailable_given += 1
        headers = (("Retry-After", self.faults.options["retry_after"]),) if self.unavailable_given % 2 else ()
        self.give(connection, request, (*problem(503, "come again later"), headers))

    def fault_error(self, connection, request, coin):
        self.give(connection, request, (*problem(500, "something broke"), ()))

    def fault_timeout(self, connection, request, coin):
        if coin:
            self.work(request)
        self.later(self.faults.options["timeout_s"], connection.drop, False)

    def fault_drop(self, connection, request, coin):
        connection.drop(coin)

    def fault_drop_after(self, connection, request, coin):
        self.work(request)
        connection.drop(coin)

    def fault_slow(self, connection, request, coin):
        self.later(self.faults.options["slow_s"], self.give, connection, request, self.work(request))

    def fault_garbage(self, connection, request, coin):
        if coin:
            self.work(request)
        connection.send_raw(b"\x00\xff this is no HTTP \r\n\r\n{[" + bytes(range(256)))

    def fault_half(self, connection, request, coin):
        if coin:
            self.work(request)
        connection.send_raw(b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\n"
                            b"Content-Length: 4096\r\n\r\n{\"id\": \"")

    def fault_flood(self, connection, request, coin):
        if coin:
            self.work(request)
        connection.send_raw(b"HTTP/1.1 201 Created\r\n"
                            + b"".join(b"X-Flood-%d: %s\r\n" % (n, b"x" * 1000) for n in range(1100))
                            + b"Content-Length: 2\r\n\r\n{}")

    def fault_endless(self, connection, request, coin):
        if coin:
            self.work(request)
        connection.send_raw(b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\n"
                            b"Transfer-Encoding: chunked\r\n\r\n", close=False)
        self.endless(connection)

    def endless(self, connection):
        if not connection.closed:
            if connection.transport.get_write_buffer_size() < 1 << 20:
                connection.send_raw(b"10000\r\n" + b"x" * 65536 + b"\r\n", close=False)
            self.later(0.002, self.endless, connection)

    # -- control

    def show_books(self, request):
        return {
            "service": self.name,
            "entries": list(self.books.entries.values()),
            "counters": {
                "requests": self.sequence,
                "done": self.counts["done"],
                "refused": self.counts["refused"],
                "without_key": self.counts["without_key"],
                "duplicates": self.counts["duplicates"],
                "key_conflicts": self.counts["key_conflicts"],
                "answers": {str(s): n for s, n in sorted(self.answer_counts.items())},
                "faults": dict(self.fault_counts),
            },
        }

    def show_requests(self, request):
        after = 0
        for part in request.query.split("&"):
            if part.startswith("after=") and part[6:].isdigit():
                after = int(part[6:])
        return {"requests": [dict(zip(ROW_NAMES, row)) for row in self.requests if row[SEQ] > after]}

    def set_faults(self, request):
        self.faults.set(request.json())
        return self.faults.show()

    def hold(self, request):
        how = request.json().get("work", "release")
        if how not in ("now", "release"):
            raise Refused(400, "work is neither now nor release")
        self.holding = how
        return {"holding": how}

    def release(self, request):
        held, self.held, self.holding = self.held, [], None
        for connection, held_request, done in held:
            if done is None:
                self.serve(connection, held_request)
            else:
                self.give(connection, held_request, done)
        return {"released": len(held)}

    def reset(self, request):
        for connection, _, _ in self.held:
            connection.drop(True)
        self.books.clear()
        self.start_anew()
        return {"service": self.name, "ok": True}


class Inventory(Service):
    name = "inventory"
    work_paths = ("/reservations",)

    def do(self, request, body, key):
        fields = {}
        if request.method == "POST":
            fields["sku"] = text_of(body, "sku")
            if str(fields["sku"]).startswith("gone-"):
                raise Refused(404, f"sku {fields['sku']} is not in the catalogue")
        return self.make_and_take_back(request, body, key, "reservation", "/reservations", "released", **fields)


class Payments(Service):
    name = "payments"
    work_paths = ("/charges", "/refunds")

    def do(self, request, body, key):
        if request.method == "POST" and request.path == "/charges":
            amount = body.get("amount")
            if isinstance(amount, bool) or not isinstance(amount, (int, float)) or not 0 < amount < 1e9:
                raise Refused(400, "amount is not a number above 0 and below a billion")
            if body.get("card") == "declined":
                raise Refused(402, "the card was declined")
            entry = self.make("charge", key, order=text_of(body, "order"), amount=amount, state="captured")
            return 201, {"id": entry["id"], "order": entry["order"], "amount": amount}, [entry]
        if request.method == "POST" and request.path == "/refunds":
            charge = self.find("/" + str(text_of(body, "charge")), "charge")
            if charge["state"] != "captured":
                raise Refused(409, "the charge is refunded already")
            refund = self.make("refund", key, order=charge["order"], charge=charge["id"],
                               amount=charge["amount"], state="paid")
            return (201, {"id": refund["id"], "charge": charge["id"]},
                    [refund, self.take_back(charge, "refunded", key)])
        raise Refused(405, "this cannot be done here")


class Shipping(Service):
    name = "shipping"
    work_paths = ("/slots", "/shipments")

    def do(self, request, body, key):
        if request.path.startswith("/slots"):
            return self.make_and_take_back(request, body, key, "slot", "/slots", "cancelled")
        if str(body.get("sku", "")).startswith("bulky-"):
            raise Refused(403, f"sku {body['sku']} fits into no van")
        return self.make_and_take_back(request, body, key, "shipment", "/shipments", "cancelled")


SERVICES = {service.name: service for service in (Inventory, Payments, Shipping)}


def parse_arguments():
    parser = argparse.ArgumentParser(description="One service of the demo shop.")
    parser.add_argument("--service", required=True, choices=sorted(SERVICES))
    parser.add_argument("--port", required=True, type=int,
                        help="1 .. 32767, below the ports that outgoing connections use")
    parser.add_argument("--books", metavar="FILE", help="keep the books in this file too")
    parser.add_argument("--seed", type=int, default=1, help="of the sequence of faults")
    arguments = parser.parse_args()
    if not 1 <= arguments.port <= 32767:
        parser.error("--port is not between 1 and 32767")
    return arguments


async def main(arguments):
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    service = SERVICES[arguments.service](Books(arguments.books), arguments.seed)
    server = await loop.create_server(lambda: Connection(service), "127.0.0.1", arguments.port,
                                      family=socket.AF_INET, backlog=4096)
    print(f"listening on {arguments.port}", flush=True)
    await stop.wait()
    server.close()
    for connection in list(service.connections):
        connection.transport.abort()


if __name__ == "__main__":
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    gc.set_threshold(100_000, 20, 100)
    try:
        asyncio.run(main(parse_arguments()))
    except OSError as error:
        sys.exit(f"shop.py: {error}")

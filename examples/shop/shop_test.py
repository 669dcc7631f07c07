#!/usr/bin/env python3
# SPDX-License-Identifier: PostgreSQL
"""Tests of the demo shop, over real sockets: python3 shop_test.py"""

import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

SHOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "shop.py")


class Shop:
    """One running service."""

    def __init__(self, service, *arguments):
        for _ in range(20):
            self.port = random.randrange(20000, 32000)
            self.process = subprocess.Popen(
                [sys.executable, SHOP, "--service", service, "--port", str(self.port), *arguments],
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            if self.process.stdout.readline() == f"listening on {self.port}\n":
                return
            self.kill()
        raise RuntimeError("no port is free")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()

    def ask(self, method, path, body=None, key=None, timeout=10):
        """(status, headers, body) of one request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            headers = {"Content-Type": "application/json"}
            if key is not None:
                headers["Idempotency-Key"] = key
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), json.loads(response.read())
        finally:
            connection.close()

    def raw(self, data, timeout=2):
        """All bytes that come back until the service hangs up or nothing comes for the time-out."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as connection:
            connection.sendall(data)
            received = b""
            try:
                while len(received) < 4 << 20:
                    part = connection.recv(1 << 16)
                    if not part:
                        return received, "end"
                    received += part
                return received, "enough"
            except TimeoutError:
                return received, "silence"
            except ConnectionResetError:
                return received, "reset"

    def post_raw(self, path, body, key, timeout=2):
        data = json.dumps(body).encode()
        return self.raw(b"POST %s HTTP/1.1\r\nHost: x\r\nIdempotency-Key: %s\r\nContent-Length: %d\r\n\r\n%s"
                        % (path.encode(), key.encode(), len(data), data), timeout)

    def books(self):
        return self.ask("GET", "/books")[2]


class ShopTest(unittest.TestCase):
    service = "inventory"

    def setUp(self):
        self.shop = Shop(self.service)

    def tearDown(self):
        self.shop.kill()

    def entries(self):
        return [(e["kind"], e["order"], e["state"]) for e in self.shop.books()["entries"]]


class Inventory(ShopTest):
    def test_a_reservation_is_made_and_released_once(self):
        status, _, body = self.shop.ask("POST", "/reservations", {"sku": "lamp", "order": 7}, "a")
        self.assertEqual((status, body["order"]), (201, 7))
        path = "/reservations/" + body["id"]
        self.assertEqual(self.shop.ask("DELETE", path, key="b")[0], 200)
        self.assertEqual(self.shop.ask("DELETE", path, key="b")[0], 200)
        self.assertEqual(self.shop.ask("DELETE", path, key="c")[0], 404)
        self.assertEqual(self.shop.ask("DELETE", "/reservations/none", key="d")[0], 404)
        self.assertEqual(self.entries(), [("reservation", 7, "released")])

    def test_an_article_that_is_gone_is_not_found_and_stays_so(self):
        for _ in range(2):
            self.assertEqual(self.shop.ask("POST", "/reservations", {"sku": "gone-x", "order": 1}, "a")[0], 404)
        self.assertEqual(self.shop.books()["counters"]["duplicates"], 1)

    def test_the_same_key_gives_the_same_answer_and_does_nothing_twice(self):
        answers = [self.shop.ask("POST", "/reservations", {"sku": "lamp", "order": 1}, "a") for _ in range(3)]
        self.assertEqual({(a[0], a[2]["id"]) for a in answers}, {(201, "reservation-1")})
        self.assertEqual(self.shop.ask("POST", "/reservations", {"sku": "lamp", "order": 2}, "a")[0], 422)
        counters = self.shop.books()["counters"]
        self.assertEqual((counters["duplicates"], counters["key_conflicts"], counters["without_key"]), (2, 1, 0))
        self.assertEqual(len(self.entries()), 1)

    def test_without_a_key_everything_is_done_and_counted(self):
        for _ in range(2):
            self.shop.ask("POST", "/reservations", {"sku": "lamp", "order": 1})
        self.assertEqual(self.shop.books()["counters"]["without_key"], 2)
        self.assertEqual(len(self.entries()), 2)

    def test_bad_requests_are_refused(self):
        self.assertEqual(self.shop.ask("POST", "/reservations", {"sku": "lamp"}, "a")[0], 400)
        self.assertEqual(self.shop.ask("POST", "/reservations", ["sku"], "b")[0], 400)
        self.assertEqual(self.shop.ask("PUT", "/reservations", {}, "c")[0], 405)
        self.assertEqual(self.shop.ask("GET", "/nothing")[0], 404)
        self.assertEqual(self.shop.ask("POST", "/faults", {"no_such": 1})[0], 400)
        self.assertEqual(self.shop.ask("POST", "/faults", {"drop": 0.6, "slow": 0.6})[0], 400)
        for junk in (b"\x00\x01\x02\r\n\r\n", b"GET /books\r\n\r\n", b"GET /books HTTP/1.1\r\nbad\r\n\r\n",
                     b"POST /faults HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"A" * 100_000,
                     b"POST /faults HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
                     b"POST /faults HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"):
            self.assertRegex(self.shop.raw(junk)[0], rb"^HTTP/1.1 4\d\d ")
        self.assertEqual(self.shop.ask("GET", "/healthz")[0], 200)

    def test_a_connection_is_kept_and_requests_may_come_in_pieces_or_together(self):
        with socket.create_connection(("127.0.0.1", self.shop.port), timeout=5) as connection:
            request = (b'POST /reservations HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n'
                       b'10\r\n{"sku": "lamp", \r\nb\r\n"order": 1}\r\n0\r\n\r\n')
            for at in range(len(request)):
                connection.sendall(request[at:at + 1])
            connection.sendall(request + request + b"GET /healthz HTTP/1.0\r\n\r\n")
            received = b""
            while part := connection.recv(65536):
                received += part
        self.assertEqual((received.count(b"HTTP/1.1 201"), received.count(b"HTTP/1.1 200")), (3, 1))
        self.assertEqual(len(self.entries()), 3)

    def test_expect_continue_is_answered(self):
        with socket.create_connection(("127.0.0.1", self.shop.port), timeout=5) as connection:
            connection.sendall(b"POST /faults HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
            self.assertEqual(connection.recv(100), b"HTTP/1.1 100 Continue\r\n\r\n")
            connection.sendall(b"{}")
            self.assertTrue(connection.recv(1000).startswith(b"HTTP/1.1 200"))


class Payments(ShopTest):
    service = "payments"

    def charge(self, key, **more):
        return self.shop.ask("POST", "/charges", {"order": 1, "amount": 12.5, "card": "visa-1", **more}, key)

    def test_a_charge_is_refunded_once(self):
        charge = self.charge("a")[2]["id"]
        self.assertEqual(self.shop.ask("POST", "/refunds", {"charge": charge}, "b")[0], 201)
        self.assertEqual(self.shop.ask("POST", "/refunds", {"charge": charge}, "b")[0], 201)
        self.assertEqual(self.shop.ask("POST", "/refunds", {"charge": charge}, "c")[0], 409)
        self.assertEqual(self.shop.ask("POST", "/refunds", {"charge": "none"}, "d")[0], 404)
        self.assertEqual(self.entries(), [("charge", 1, "refunded"), ("refund", 1, "paid")])

    def test_a_declined_card_stays_declined(self):
        self.assertEqual([self.charge("a", card="declined")[0] for _ in range(2)], [402, 402])
        self.assertEqual(self.charge("b", amount=0)[0], 400)
        self.assertEqual(self.charge("c", amount="7")[0], 400)
        self.assertEqual(self.entries(), [])


class Shipping(ShopTest):
    service = "shipping"

    def test_slots_and_shipments_are_apart(self):
        slot = self.shop.ask("POST", "/slots", {"order": 1}, "a")[2]["id"]
        shipment = self.shop.ask("POST", "/shipments", {"order": 1}, "b")[2]["id"]
        self.assertEqual(self.shop.ask("DELETE", "/shipments/" + slot, key="c")[0], 404)
        self.assertEqual(self.shop.ask("DELETE", "/shipments/" + shipment, key="d")[0], 200)
        self.assertEqual(self.entries(), [("slot", 1, "active"), ("shipment", 1, "cancelled")])

    def test_what_is_bulky_is_not_shipped(self):
        self.assertEqual(self.shop.ask("POST", "/shipments", {"order": 1, "sku": "bulky-x"}, "a")[0], 403)
        self.assertEqual(self.entries(), [])


class Faults(ShopTest):
    body = {"sku": "lamp", "order": 1}

    def fault(self, **settings):
        self.assertEqual(self.shop.ask("POST", "/faults", settings)[0], 200)

    def ask_once(self, key="a"):
        return self.shop.post_raw("/reservations", self.body, key)

    def work_done(self, tries=20):
        """How many of so many requests did their work."""
        for n in range(tries):
            self.ask_once(f"k{n}")
        return len(self.entries())

    def test_unavailable_is_503_with_and_without_retry_after_and_does_nothing(self):
        self.fault(unavailable=1)
        answers = [self.shop.ask("POST", "/reservations", self.body, "a") for _ in range(4)]
        self.assertEqual([(a[0], a[1].get("Retry-After")) for a in answers],
                         [(503, "1"), (503, None)] * 2)
        self.assertEqual(self.entries(), [])
        self.fault()
        self.assertEqual(self.shop.ask("POST", "/reservations", self.body, "a")[0], 201)

    def test_error_is_500_and_does_nothing(self):
        self.fault(error=1)
        self.assertEqual(self.shop.ask("POST", "/reservations", self.body, "a")[0], 500)
        self.assertEqual(self.entries(), [])

    def test_timeout_is_silent_and_did_the_work_half_of_the_time(self):
        self.fault(timeout=1, timeout_s=0.1, seed=5)
        started = time.monotonic()
        self.assertEqual(self.ask_once(), (b"", "end"))
        self.assertGreaterEqual(time.monotonic() - started, 0.1)
        self.assertTrue(4 <= self.work_done() <= 16)

    def test_drop_hangs_up_before_the_work(self):
        self.fault(drop=1)
        self.assertEqual({self.ask_once(str(n)) for n in range(20)}, {(b"", "end"), (b"", "reset")})
        self.assertEqual(self.entries(), [])

    def test_drop_after_hangs_up_after_the_work_and_the_key_finds_it(self):
        self.fault(drop_after=1, limit=1)
        self.assertEqual(self.ask_once()[0], b"")
        self.assertEqual(len(self.entries()), 1)
        status, headers, body = self.shop.ask("POST", "/reservations", self.body, "a")
        self.assertEqual((status, body["id"], headers["Idempotency-Replayed"]), (201, "reservation-1", "true"))
        self.assertEqual(len(self.entries()), 1)

    def test_slow_answers_later(self):
        self.fault(slow=1, slow_s=0.2)
        started = time.monotonic()
        self.assertEqual(self.shop.ask("POST", "/reservations", self.body, "a")[0], 201)
        self.assertGreaterEqual(time.monotonic() - started, 0.2)

    def test_garbage_is_not_http(self):
        self.fault(garbage=1)
        self.assertNotIn(b"HTTP/1.1", self.ask_once()[0])
        self.assertTrue(4 <= self.work_done() <= 16)

    def test_half_an_answer_ends_early(self):
        self.fault(half=1)
        received, how = self.ask_once()
        self.assertTrue(received.startswith(b"HTTP/1.1 201") and len(received) < 200 and how == "end")

    def test_flood_is_a_megabyte_of_headers(self):
        self.fault(flood=1)
        self.assertGreater(len(self.ask_once()[0]), 1 << 20)

    def test_endless_does_not_end(self):
        self.fault(endless=1)
        self.assertEqual(self.ask_once()[1], "enough")
        self.assertEqual(self.shop.ask("GET", "/healthz")[0], 200)

    def test_shares_limit_only_and_seed_hold(self):
        def run():
            self.fault(unavailable=0.2, seed=42)
            return [self.shop.ask("POST", "/reservations", self.body, "a")[0] for _ in range(200)]
        first, second = run(), run()
        self.assertEqual(first, second)
        self.assertTrue(20 <= first.count(503) <= 60)
        self.fault(unavailable=1, limit=3)
        self.assertEqual([self.shop.ask("POST", "/reservations", self.body, "a")[0] for _ in range(5)],
                         [503] * 3 + [201] * 2)
        self.fault(unavailable=1, only=["DELETE"])
        self.assertEqual(self.shop.ask("POST", "/reservations", self.body, "a")[0], 201)
        self.assertEqual(self.shop.ask("DELETE", "/reservations/reservation-1", key="b")[0], 503)
        self.assertEqual(self.shop.books()["counters"]["faults"]["unavailable"], first.count(503) * 2 + 4)

    def test_hold_withholds_until_release(self):
        for how, before in (("release", 0), ("now", 1)):
            self.shop.ask("POST", "/reset")
            self.shop.ask("POST", "/hold", {"work": how})
            data = json.dumps(self.body).encode()
            with socket.create_connection(("127.0.0.1", self.shop.port), timeout=0.3) as connection:
                connection.sendall(b"POST /reservations HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s"
                                   % (len(data), data))
                with self.assertRaises(TimeoutError):
                    connection.recv(100)
                self.assertEqual(len(self.entries()), before)
                self.assertEqual(self.shop.ask("POST", "/release")[2], {"released": 1})
                connection.settimeout(5)
                self.assertTrue(connection.recv(1000).startswith(b"HTTP/1.1 201"))
            self.shop.ask("POST", "/hold", {"work": how})
            self.shop.post_raw("/reservations", self.body, "gone", 0.1)
            self.shop.ask("POST", "/release")
            self.assertEqual(len(self.entries()), 2)

    def test_requests_tell_when_what_and_how_it_ended(self):
        self.fault(drop=1, limit=1)
        before = time.monotonic(), time.time()
        self.ask_once("a")
        self.ask_once("b")
        rows = self.shop.ask("GET", "/requests")[2]["requests"]
        self.assertEqual([(r["seq"], r["method"], r["path"], r["key"], r["status"], r["fault"], r["outcome"])
                          for r in rows],
                         [(1, "POST", "/reservations", "a", None, "drop", None),
                          (2, "POST", "/reservations", "b", 201, None, "done")])
        self.assertTrue(before[0] <= rows[0]["monotonic"] <= time.monotonic())
        self.assertTrue(before[1] - 1 <= rows[0]["at"] <= time.time() + 1)
        self.assertEqual(len(self.shop.ask("GET", "/requests?after=1")[2]["requests"]), 1)


class Survival(unittest.TestCase):
    def test_books_and_answers_survive_a_kill_and_a_torn_last_line(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "books")
            shop = Shop("payments", "--books", path)
            first = shop.ask("POST", "/charges", {"order": 1, "amount": 5}, "a")[2]
            shop.ask("POST", "/charges", {"order": 2, "amount": 6, "card": "declined"}, "b")
            shop.ask("POST", "/refunds", {"charge": first["id"]}, "c")
            entries = shop.books()["entries"]
            shop.kill()
            with open(path, "a") as file:
                file.write('{"at": 1, "entr')
            shop = Shop("payments", "--books", path)
            self.assertEqual(shop.books()["entries"], entries)
            self.assertEqual(shop.ask("POST", "/charges", {"order": 1, "amount": 5}, "a")[2], first)
            self.assertEqual(shop.ask("POST", "/charges", {"order": 2, "amount": 6, "card": "declined"}, "b")[0],
                             402)
            self.assertEqual(shop.ask("POST", "/charges", {"order": 3, "amount": 7}, "d")[2]["id"], "charge-2")
            shop.kill()
            shop = Shop("payments", "--books", path)
            self.assertEqual(len(shop.books()["entries"]), 3)
            shop.ask("POST", "/reset")
            shop.kill()
            shop = Shop("payments", "--books", path)
            self.assertEqual(shop.books()["entries"], [])
            shop.kill()

    def test_a_port_out_of_range_or_in_use_is_refused(self):
        for port in ("0", "32768"):
            self.assertEqual(subprocess.run([sys.executable, SHOP, "--service", "shipping", "--port", port],
                                            stderr=subprocess.DEVNULL).returncode, 2)
        shop = Shop("shipping")
        self.assertEqual(subprocess.run([sys.executable, SHOP, "--service", "shipping", "--port", str(shop.port)],
                                        stderr=subprocess.DEVNULL).returncode, 1)
        shop.kill()


if __name__ == "__main__":
    unittest.main()

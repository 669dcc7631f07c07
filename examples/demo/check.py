#!/usr/bin/env python3
# SPDX-License-Identifier: PostgreSQL
"""Do the services' own books agree with the database?

    check.py [--inventory URL] [--payments URL] [--shipping URL] [--workflow order]

The database is the one that psql finds by its environment (PGHOST, PGPORT, PGDATABASE, PGUSER). One line
for each claim, with counts and the first orders that break it; exit 1 when any is broken.
"""

import argparse
import collections
import decimal
import json
import subprocess
import sys
import urllib.request

RUNS = """
SELECT coalesce(json_agg(json_build_object(
           'order', o.order_id::text, 'state', r.state, 'result', r.result, 'output', r.output,
           'amount', o.amount::text, 'sku', o.sku, 'done', o.done,
           'ledger', (SELECT json_agg(json_build_object('charge', l.charge, 'amount', l.amount::text))
                      FROM shop.ledger l WHERE l.order_id = o.order_id))), '[]')
FROM shop.orders o LEFT JOIN sas.runs r ON r.key = o.order_id::text AND r.workflow = :'workflow'
"""


def fetch_runs(workflow):
    answer = subprocess.run(
        ["psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-v", "workflow=" + workflow, "-f", "-"],
        input=RUNS, stdout=subprocess.PIPE, text=True, check=True).stdout
    return json.loads(answer)


def fetch_books(url):
    with urllib.request.urlopen(url + "/books", timeout=10) as response:
        return json.loads(response.read(), parse_float=decimal.Decimal, parse_int=decimal.Decimal)


class Check:
    def __init__(self):
        self.broken = 0

    def claim(self, text, bad, count):
        """bad: the orders (or whatever) that break the claim; count: how many were looked at."""
        bad = sorted(set(bad), key=str)
        shown = f"{count} looked at" if not bad else "broken by " + ", ".join(map(str, bad[:10]))
        if len(bad) > 10:
            shown += f" and {len(bad) - 10} more"
        print(f"  {'ok    ' if not bad else 'NOT OK'}  {text} ({shown})")
        self.broken += bool(bad)


def by_order(entries, kind, *states):
    found = collections.defaultdict(list)
    for entry in entries:
        if entry["kind"] == kind and entry["state"] in states:
            found[str(entry["order"])].append(entry)
    return found


def compare(runs, books):
    check = Check()
    entries = {name: book["entries"] for name, book in books.items()}
    reserved = by_order(entries["inventory"], "reservation", "active")
    charged = by_order(entries["payments"], "charge", "captured")
    shipped = by_order(entries["shipping"], "shipment", "active")
    slots = by_order(entries["shipping"], "slot", "active")
    standing = (("reservation", reserved), ("charge", charged), ("slot", slots), ("shipment", shipped))

    done = [r for r in runs if r["result"] in ("success", "warning")]
    undone = [r for r in runs if r["result"] in ("compensated", "error", "cancelled")]

    check.claim("every order has a run that ended",
                [r["order"] for r in runs if r["state"] != "stopped"], len(runs))
    check.claim("every order is either done or undone",
                [r["order"] for r in runs if r not in done and r not in undone], len(runs))

    for kind, found in standing:
        check.claim(f"an order that is done has exactly one {kind}",
                    [r["order"] for r in done if len(found[r["order"]]) != 1], len(done))
    check.claim("an order that is done has its one ledger row, with the charge and the amount",
                [r["order"] for r in done if not ledger_fits(r, charged)], len(done))
    check.claim("an order that is done was charged what it cost, and says so",
                [r["order"] for r in done if not charge_fits(r, charged)], len(done))
    check.claim("an order that is done is marked done, no other is",
                [r["order"] for r in runs if r["done"] != (r in done)], len(runs))

    for kind, found in standing:
        check.claim(f"an order that is undone has no {kind} standing",
                    [r["order"] for r in undone if found[r["order"]]], len(undone))
    check.claim("an order that is undone has no ledger row",
                [r["order"] for r in undone if r["ledger"]], len(undone))

    known = {r["order"] for r in runs}
    check.claim("nothing stands in the services for an order that nobody knows",
                [o for _, found in standing for o, e in found.items() if e and o not in known],
                sum(len(e) for _, found in standing for e in found.values()))
    check.claim("no charge was refunded twice", double_refunds(entries["payments"]),
                sum(e["kind"] == "refund" for e in entries["payments"]))
    check.claim("every charge that was given back has its refund", unpaid_refunds(entries["payments"]),
                sum(e["state"] == "refunded" for e in entries["payments"]))
    check.claim("no two entries were made under one key", doubled_keys(entries),
                sum(map(len, entries.values())))
    for name, book in books.items():
        counters = book["counters"]
        check.claim(f"no request reached {name} without an idempotency key, or with another's",
                    [f"{int(counters[c])} {c}" for c in ("without_key", "key_conflicts") if counters[c]],
                    int(counters["requests"]))
    return check.broken


def ledger_fits(run, charged):
    rows, charges = run["ledger"] or [], charged[run["order"]]
    return (len(rows) == 1 and len(charges) == 1 and rows[0]["charge"] == charges[0]["id"]
            and decimal.Decimal(rows[0]["amount"]) == decimal.Decimal(run["amount"]))


def charge_fits(run, charged):
    charges = charged[run["order"]]
    return (len(charges) == 1 and charges[0]["amount"] == decimal.Decimal(run["amount"])
            and (run["output"] or {}).get("charge") == charges[0]["id"])


def double_refunds(entries):
    refunds = collections.Counter(e["charge"] for e in entries if e["kind"] == "refund")
    return [charge for charge, count in refunds.items() if count > 1]


def unpaid_refunds(entries):
    refunds = {e["charge"] for e in entries if e["kind"] == "refund"}
    return [e["id"] for e in entries if e["kind"] == "charge" and (e["state"] == "refunded") != (e["id"] in refunds)]


def doubled_keys(entries):
    keys = collections.Counter((name, e["key"]) for name, book in entries.items() for e in book)
    return [f"{name} {key}" for (name, key), count in keys.items() if count > 1]


def show_traffic(books):
    print(f"  {'service':<10} {'requests':>8} {'done':>6} {'refused':>8} {'repeats met':>12}  faults given")
    for name, book in books.items():
        counters = book["counters"]
        faults = ", ".join(f"{int(n)} {kind}" for kind, n in sorted(counters["faults"].items()))
        print(f"  {name:<10} {counters['requests']:>8} {counters['done']:>6} {counters['refused']:>8} "
              f"{counters['duplicates']:>12}  {faults or 'none'}")


def main():
    parser = argparse.ArgumentParser(description="Compare the services' books with the database.")
    for name in ("inventory", "payments", "shipping"):
        parser.add_argument("--" + name, required=True, metavar="URL")
    parser.add_argument("--workflow", default="order")
    arguments = parser.parse_args()
    runs = fetch_runs(arguments.workflow)
    books = {name: fetch_books(getattr(arguments, name).rstrip("/"))
             for name in ("inventory", "payments", "shipping")}
    show_traffic(books)
    print()
    broken = compare(runs, books)
    print(f"\n  {'the books agree' if not broken else f'{broken} claims are broken'}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())

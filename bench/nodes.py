# SPDX-License-Identifier: PostgreSQL
"""Figures of Citus clusters of one, two and three nodes, all on this machine: so what counts is the CPU of an
order, not the time.

Each cluster gets as many orders a second for each of its nodes, through all of its nodes. An order is a row, a
run, an HTTP call and an update of the account, by a distributed function.
"""

import os
import re
import shutil
import statistics
import subprocess
import time

import wire
from house import CONFIGURATION, Wrong, free_port, give_up, per, spread

CLUSTERS = (1, 2, 3)
TENANTS = 600
RATE = 100                      # orders a second and node
MOST = 1.3                      # times the CPU of an order on one node

SETTINGS = """
shared_preload_libraries = 'citus,sas'
max_prepared_transactions = 200
wal_level = logical
shared_buffers = 128MB
sas.function_workers = 1
sas.agent_slots = 1000
sas.watch_slots = 1000
citus.local_hostname = '{sockets}'
"""

SHOP = """
CREATE SCHEMA shop
;;
CREATE TABLE shop.account (tenant int PRIMARY KEY, booked bigint NOT NULL DEFAULT 0)
;;
CREATE TABLE shop.orders (tenant int, order_id bigint, PRIMARY KEY (tenant, order_id))
;;
SELECT create_distributed_table('shop.account', 'tenant', shard_count => 12)
;;
SELECT create_distributed_table('shop.orders', 'tenant', colocate_with => 'shop.account')
;;
INSERT INTO shop.account SELECT generate_series(1, {tenants})
;;
CREATE FUNCTION shop.book(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    UPDATE shop.account SET booked = booked + 1 WHERE tenant = (input ->> 'tenant')::int;
    RETURN '{{}}';
END $$
;;
CREATE FUNCTION shop.place(tenant int, order_id bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO shop.orders VALUES (tenant, order_id);
    PERFORM FROM sas.submit('order', jsonb_build_object('tenant', tenant, 'order', order_id));
END $$
;;
SELECT create_distributed_function('shop.place(int, bigint)', 'tenant', colocate_with => 'shop.account')
;;
SELECT sas.create_agent('nginx', base_url => 'http://127.0.0.1:{nginx}', max_in_flight => 200)
;;
SELECT sas.create_workflow('book', '{{"steps": {{"book": {{"function": "shop.book"}}}}}}')
;;
SELECT sas.create_workflow('order', '{{"steps": {{
    "charge": {{"agent": "nginx", "call": {{"method": "POST", "path": "/ok", "body": {{"order": "{{{{input.order}}}}"}}}}}},
    "book":   {{"function": "shop.book", "input": {{"tenant": "{{{{input.tenant}}}}"}}, "after": ["charge"]}}}}}}')
"""

PLACE = f"""
\\set tenant random(1, {TENANTS})
\\set order random(1, 1000000000000000)
SELECT shop.place(:tenant, :order);
"""

OPEN = "SELECT count(*) FROM _sas.run WHERE state <> 'stopped'"
ENDED = "SELECT count(*) FILTER (WHERE result = 'success'), count(*) FROM _sas.run"


class Node:
    """A server with Citus."""

    def __init__(self, bench, name):
        self.bench, self.data, self.port = bench, f"{bench.work}/{name}", free_port()
        log = f"{bench.work}/server.log"
        os.mkdir(self.data, 0o700)
        if bench.as_server:
            shutil.chown(self.data, "postgres")
        made = bench.tool("initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "-N")
        if made.returncode:
            give_up(f"initdb failed\n{made.stdout}{made.stderr}")
        with open(f"{self.data}/postgresql.conf", "a") as f:
            f.write((CONFIGURATION + SETTINGS).format(sockets=bench.sockets, port=self.port))
        if bench.tool("pg_ctl", "start", "-D", self.data, "-l", log, "-w", "-t", "60", "-s").returncode:
            raise Wrong(f"a node did not start; its log is that of the server: {log}")
        with open(f"{self.data}/postmaster.pid") as f:
            self.postmaster = int(f.readline())
        self.db = wire.Connection(bench.sockets, self.port, "postgres", "postgres")
        self.db.query("SET client_min_messages = warning")
        self.db.query("CREATE EXTENSION citus")

    def stop(self):
        self.db.close()
        self.bench.tool("pg_ctl", "stop", "-D", self.data, "-m", "immediate", "-s")


class Cluster:
    """Its nodes, of which the first is the coordinator; all of them have shards."""

    def __init__(self, bench, size):
        self.bench, self.size = bench, size
        self.nodes = []
        try:
            for i in range(size):
                self.nodes.append(Node(bench, f"cluster{size}_{i}"))
            self.db = self.nodes[0].db
            self.db.query(f"SELECT citus_set_coordinator_host('{bench.sockets}', {self.nodes[0].port})")
            self.db.query(f"SELECT citus_set_node_property('{bench.sockets}', {self.nodes[0].port}, 'shouldhaveshards', true)")
            for node in self.nodes[1:]:
                self.db.query(f"SELECT citus_add_node('{bench.sockets}', {node.port})")
            self.db.query("CREATE EXTENSION sas")
            for statement in SHOP.format(nginx=bench.nginx_port, tenants=TENANTS).split("\n;;\n"):
                self.db.query(statement)
        except BaseException:
            self.stop()
            raise

    def stop(self):
        for node in self.nodes:
            node.stop()

    def cpu(self):
        return sum(seconds for node in self.nodes for _, seconds in self.bench.processes_of(node.postmaster).values())

    def rest(self):
        for node in self.nodes:
            self.bench.wait_until(lambda: node.db.value(OPEN) == "0", "the runs of a node to stop", 300)

    def booked(self):
        """Orders that were placed, what was booked for them, and their runs that ended in success, of so many."""
        orders, booked = (int(self.db.value(q)) for q in ("SELECT count(*) FROM shop.orders", "SELECT sum(booked) FROM shop.account"))
        runs = [node.db.query(ENDED)[0] for node in self.nodes]
        return orders, booked, sum(int(good) for good, _ in runs), sum(int(n) for _, n in runs)


class Nodes:
    """Rows of bench/run."""

    def start_clients(self, node, script, *options):
        """Started; it is waited for by clients_done."""
        path = f"{self.work}/{len(os.listdir(self.work))}.sql"
        with open(path, "w") as f:
            f.write(script)
        os.chmod(path, 0o644)
        return subprocess.Popen([f"{self.bindir}/pgbench", "-n", "-h", self.sockets, "-p", str(node.port), "-U", "postgres", "-f", path, *options, "postgres"],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    @staticmethod
    def clients_done(process):
        """Transactions that were made."""
        out, err = process.communicate(timeout=600)
        made = re.search(r"actually processed: (\d+)", out)
        if process.returncode or not made:
            raise Wrong(f"pgbench failed: {' '.join(err.split())[-300:]}")
        return int(made[1])

    def orders_cost(self, cluster, seconds):
        """Microseconds of CPU of an order, and orders a second."""
        before, used = cluster.booked(), cluster.cpu()
        clients = [self.start_clients(node, PLACE, "-c", "4", "-j", "1", "-T", str(seconds), "-R", str(RATE)) for node in cluster.nodes]
        placed = sum(self.clients_done(client) for client in clients)
        cluster.rest()
        used = cluster.cpu() - used
        made = [after - old for after, old in zip(cluster.booked(), before)]
        if made != [placed] * 4:
            raise Wrong(f"{placed} orders were placed: {made[0]} rows, {made[1]} booked, {made[2]} of {made[3]} runs in success")
        return per(used * 1e6, placed), per(placed, seconds)

    def updates_cost(self, cluster, n):
        """Microseconds of CPU and updates a second, of n updates by a session of a node, and by as many runs there."""
        node = cluster.nodes[-1]
        here = node.db.query(f"""SELECT t FROM generate_series(1, {TENANTS}) t, citus_shards s WHERE s.nodeport = {node.port}
            AND s.shardid = get_shard_id_for_distribution_column('shop.account', t)""")
        used, begun = cluster.cpu(), time.monotonic()
        for i in range(n):
            node.db.query(f"UPDATE shop.account SET booked = booked + 1 WHERE tenant = {here[i % len(here)][0]}")
        by_client = per((cluster.cpu() - used) * 1e6, n), per(n, time.monotonic() - begun)
        tenants = ", ".join(t for t, in here)
        self.crew_of(node, 0)
        node.db.query(f"SELECT count(*) FROM sas.submit_batch('book', ARRAY(SELECT jsonb_build_object('tenant', (ARRAY[{tenants}])[1 + g % {len(here)}])"
                      f" FROM generate_series(1, {n}) g))")
        before, used = int(node.db.value("SELECT sum(booked) FROM shop.account")), cluster.cpu()
        self.crew_of(node, None)
        cluster.rest()
        used = cluster.cpu() - used
        if int(node.db.value("SELECT sum(booked) FROM shop.account")) - before != n:
            raise Wrong(f"{n} runs have not booked {n} times")
        took = node.db.value(f"SELECT extract(epoch FROM max(finished_at) - min(s.started_at)) FROM _sas.run r JOIN (SELECT run_id, started_at FROM _sas.step"
                             f" ORDER BY run_id DESC LIMIT {n}) s USING (run_id)")
        return by_client, (per(used * 1e6, n), per(n, float(took)))

    def crew_of(self, node, number):
        for name in ("sas.schedulers", "sas.agents", "sas.function_workers", "sas.supervisors"):
            node.db.query(f"ALTER SYSTEM RESET {name}" if number is None else f"ALTER SYSTEM SET {name} = {number}")
        node.db.query("SELECT pg_reload_conf()")
        wanted = "0" if number == 0 else "4"
        self.wait_until(lambda: node.db.value("SELECT count(DISTINCT actor) FROM sas.workers") == wanted, "the workers", 60)

    def nodes(self):
        if not os.path.exists(subprocess.run([os.environ.get("PG_CONFIG", "pg_config"), "--pkglibdir"], check=True, capture_output=True, text=True).stdout.strip() + "/citus.so"):
            give_up("row nodes needs a Citus: CITUS=folder of an installed or built one")
        seconds, n = self.size("nodes"), self.size("nodes_updates")
        clusters = []
        try:
            for size in CLUSTERS:
                clusters.append(Cluster(self, size))
            for cluster in clusters:
                self.orders_cost(cluster, 2)    # nothing is cold
            costs = {size: [] for size in CLUSTERS}
            rates = {size: [] for size in CLUSTERS}
            client, runs = [], []
            for _ in range(self.repeats):
                for cluster in clusters:
                    cost, rate = self.orders_cost(cluster, seconds)
                    costs[cluster.size].append(cost)
                    rates[cluster.size].append(rate)
                one, other = self.updates_cost(clusters[-1], n)
                client.append(one)
                runs.append(other)
            self.print_nodes(costs, rates, client, runs, n)
        finally:
            for cluster in clusters:
                cluster.stop()

    def print_nodes(self, costs, rates, client, runs, n):
        for size in CLUSTERS:
            self.row(f"orders on {size} node{'s' if size > 1 else ''}", spread(costs[size]) + " us of CPU each", "", "all booked once",
                     f"{statistics.median(rates[size]):,.0f} orders/s")
            if size > 1:
                self.bound(f"  against one node, CPU of an order on {size}", statistics.median(per(o, t) for o, t in zip(costs[size], costs[1])), MOST, "x")
        self.row(f"{n:,} updates by a session on the node of their shards", spread([rate for _, rate in client]) + " updates/s", "", "",
                 f"{statistics.median(cpu for cpu, _ in client):,.0f} us of CPU each")
        self.row("  by runs of one function step there", spread([rate for _, rate in runs]) + " updates/s", "", f"{n:,} of {n:,}",
                 f"{statistics.median(cpu for cpu, _ in runs):,.0f} us of CPU each")
        self.ratio("  a session against runs, updates a second", [rate for _, rate in client], [rate for _, rate in runs], "; 1.5 x at most")

# SPDX-License-Identifier: PostgreSQL
"""What the benchmarks are measured in: a throw-away cluster with a database
for sas and one for each of its peers, a local nginx, a small service, and the
rows that are printed.

Everything shares one cluster and its settings.  Whatever is compared is
measured alternately, and a ratio is that of two neighbours: the median of
these is told, with the smallest and the largest.
"""

import contextlib
import math
import os
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

import wire

HERE = os.path.dirname(os.path.realpath(__file__))
LIMIT = 1800                    # seconds for the runs of one figure to end
CORES = os.cpu_count()

CONFIGURATION = f"""
listen_addresses = ''
unix_socket_directories = '{{sockets}}'
port = {{port}}
shared_preload_libraries = 'sas'
max_worker_processes = 48
max_connections = 200
shared_buffers = 1GB
max_wal_size = 8GB
checkpoint_timeout = 15min
synchronous_commit = on
fsync = on
sas.agent_slots = 12000
sas.watch_slots = 12000
sas.function_workers = {CORES}
log_line_prefix = '%m %b[%p] '
"""

NGINX = """
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
worker_rlimit_nofile 4096;
events {{ worker_connections 2048; }}
http {{
    access_log off;
    send_timeout 30m;
    keepalive_requests 1000000000;
    keepalive_timeout 300s;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    default_type application/json;
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location /ok {{ return 200 '{{"ok": true}}'; }}
        location = /big {{ root {folder}; }}
    }}
}}
"""


class Wrong(Exception):
    """The work was not done, or not done right."""


def give_up(why):
    print(f"bench: {why}", file=sys.stderr)
    sys.exit(1)


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def per(amount, count):
    """The amount of each, or the rate; not a number where a small size leaves nothing to divide by."""
    return amount / count if count else math.nan


def spread(values, form="{:,.0f}"):
    """The median, and the smallest and the largest when there are several."""
    middle = form.format(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} ({form.format(min(values))} to {form.format(max(values))})"


def free_port():
    """Below 32768, where outgoing connections have their ports."""
    for _ in range(100):
        port = random.randint(20000, 32000)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass
    give_up("no free port")


def cpu_of(pid):
    """Seconds of processor time."""
    with open(f"/proc/{pid}/schedstat") as f:
        return int(f.read().split()[0]) / 1e9


def status_of(pid):
    """Numbers of /proc/PID/status by name."""
    with open(f"/proc/{pid}/status") as f:
        return {m[1]: int(m[2]) for m in re.finditer(r"^(\w+):\s+(\d+)", f.read(), re.M)}


class House:
    """The cluster and what stands beside it; rows and their checks."""

    def __init__(self, sizes, quick, only):
        self.sizes, self.quick, self.only = sizes, quick, only
        self.repeats = 1 if quick else 3
        self.rows = []
        self.wrong = 0
        self.started = []
        # a server does not run as root
        self.as_server = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
        self.work = tempfile.mkdtemp(prefix="bench.", dir=os.environ.get("SAS_STAGE"))
        os.chmod(self.work, 0o755)
        self.data, self.sockets = f"{self.work}/data", f"{self.work}/sockets"
        config = os.environ.get("PG_CONFIG", "pg_config")
        self.bindir = subprocess.run([config, "--bindir"], check=True, capture_output=True, text=True).stdout.strip()

    # -- what is started, and its end ---------------------------------------

    def compile(self, name, *libraries):
        made = subprocess.run(["cc", "-O2", "-o", f"{self.work}/{name}", f"{HERE}/{name}.c", *libraries])
        if made.returncode:
            give_up(f"{name}.c does not compile")

    def tool(self, name, *args):
        return subprocess.run([f"{self.bindir}/{name}", *args], cwd=self.work, capture_output=True, text=True, **self.as_server)

    def start_server(self):
        for folder in (self.data, self.sockets):
            os.mkdir(folder, 0o700)
            if self.as_server:
                shutil.chown(folder, "postgres")
        log = f"{self.work}/server.log"
        open(log, "w").close()
        os.chmod(log, 0o666)
        made = self.tool("initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "-N")
        if made.returncode:
            give_up(f"initdb failed\n{made.stdout}{made.stderr}")
        self.port = random.randint(20000, 30000)
        with open(f"{self.data}/postgresql.conf", "a") as f:
            f.write(CONFIGURATION.format(sockets=self.sockets, port=self.port))
        if self.tool("pg_ctl", "start", "-D", self.data, "-l", log, "-w", "-t", "60", "-s").returncode:
            give_up("the server did not start\n" + open(log).read()[-4000:])
        with open(f"{self.data}/postmaster.pid") as f:
            self.postmaster = int(f.readline())
        self.db = self.connect("postgres")

    def connect(self, database):
        connection = wire.Connection(self.sockets, self.port, "postgres", database)
        connection.query("SET client_min_messages = warning")
        return connection

    def new_database(self, name):
        """An empty one of that name; what was there before is gone."""
        self.db.query(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        self.db.query(f"CREATE DATABASE {name} TEMPLATE template0")
        return self.connect(name)

    def start(self, *command, **options):
        process = subprocess.Popen(command, **options)
        self.started.append(process)
        return process

    def start_services(self):
        nginx = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin")
        if nginx is None:
            give_up('there is no nginx: "make bench" as root installs it')
        folder = f"{self.work}/nginx"
        os.mkdir(folder)
        self.nginx_port = free_port()
        with open(f"{folder}/nginx.conf", "w") as f:
            f.write(NGINX.format(folder=folder, port=self.nginx_port))
        if self.as_server:
            shutil.chown(folder, "postgres")
        self.start(nginx, "-c", f"{folder}/nginx.conf", "-e", f"{folder}/error.log", "-p", folder, **self.as_server)
        service = self.start(f"{self.work}/service", stdout=subprocess.PIPE, text=True)
        self.service_port = int(service.stdout.readline())
        self.url = f"http://127.0.0.1:{self.nginx_port}/ok"
        self.service = f"http://127.0.0.1:{self.service_port}"
        self.wait_until(lambda: self.answers(self.url), "nginx to answer", 30)

    @staticmethod
    def answers(url):
        try:
            return bool(get(url))
        except OSError:
            return False

    def clean_up(self):
        if os.path.exists(f"{self.data}/postmaster.pid"):
            self.tool("pg_ctl", "stop", "-D", self.data, "-m", "immediate", "-s")
        for process in self.started:
            process.terminate()
        for process in self.started:
            process.wait()
        keep = os.environ.get("BENCH_KEEP")
        if keep and os.path.exists(f"{self.work}/server.log"):
            os.makedirs(keep, exist_ok=True)
            shutil.copy(f"{self.work}/server.log", keep)
        shutil.rmtree(self.work, ignore_errors=True)

    @staticmethod
    def wait_until(true, what, limit=LIMIT, pause=0.05):
        end = time.monotonic() + limit
        while not true():
            if time.monotonic() > end:
                raise Wrong(f"waited {limit} s for {what}")
            time.sleep(pause)

    def setting(self, **settings):
        """Sets, or resets with None, for the whole cluster."""
        for name, value in settings.items():
            name = name.replace("__", ".")
            self.db.query(f"ALTER SYSTEM RESET {name}" if value is None else f"ALTER SYSTEM SET {name} = '{value}'")
        self.db.query("SELECT pg_reload_conf()")

    # -- the workers of sas ---------------------------------------------------

    CREW = ("sas__schedulers", "sas__agents", "sas__function_workers", "sas__supervisors")

    def workers(self):
        return self.db.query("SELECT pid, actor FROM _sas.all_workers() WHERE database = current_database() ORDER BY actor")

    def no_workers(self):
        """None in any database: what is submitted waits, and a peer has the machine for itself."""
        self.setting(**{name: 0 for name in self.CREW})
        self.wait_until(lambda: self.db.value("SELECT count(*) FROM _sas.all_workers()") == "0", "the workers to leave", 60)

    def all_workers(self):
        """They come; returns the moment at which they were called, in seconds since the epoch."""
        called = time.time()
        self.setting(**{name: None for name in self.CREW})
        return called

    @contextlib.contextmanager
    def nothing_else(self):
        self.no_workers()
        try:
            yield
        finally:
            self.all_workers()
            self.wait_until(lambda: len({actor for _, actor in self.workers()}) == 4, "the workers to come", 60)

    def agent_pid(self):
        pids = [pid for pid, actor in self.workers() if actor == "agent"]
        if len(pids) != 1:
            raise Wrong(f"{len(pids)} agent workers instead of one")
        return int(pids[0])

    # -- what is used up ----------------------------------------------------

    def processes(self):
        return self.processes_of(self.postmaster)

    @staticmethod
    def processes_of(postmaster):
        """Seconds of CPU of each process of a server, by pid, with its title; the postmaster has those of the dead."""
        found = {}
        for pid in (p for p in os.listdir("/proc") if p.isdigit()):
            try:
                with open(f"/proc/{pid}/stat") as f:
                    fields = f.read().rsplit(")", 1)[1].split()
                if int(pid) == postmaster:
                    found[pid] = ("postmaster", sum(int(x) for x in fields[11:15]) / os.sysconf("SC_CLK_TCK"))
                elif int(fields[1]) == postmaster:
                    with open(f"/proc/{pid}/cmdline") as f:
                        found[pid] = (f.read().replace("\0", " ").strip(), sum(int(x) for x in fields[11:13]) / os.sysconf("SC_CLK_TCK"))
            except (FileNotFoundError, ProcessLookupError):
                pass
        return found

    def cpu(self):
        """Seconds of CPU of the cluster and of the programs that ended meanwhile."""
        times = os.times()
        return sum(seconds for _, seconds in self.processes().values()) + times.children_user + times.children_system

    def wal(self):
        return self.db.value("SELECT pg_current_wal_insert_lsn()")

    def wal_bytes(self, since):
        return int(self.db.value(f"SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '{since}')"))

    # -- rows ---------------------------------------------------------------

    def row(self, what, figure, goal="", right="", note=""):
        self.rows.append((what, figure, goal, right, note))
        print("  " + "  ".join(x for x in (what + ":", figure, goal and f"[{goal}]", right, note) if x), flush=True)

    def ratio(self, what, ours, theirs, goal="", right="", note=""):
        """How many times theirs ours are: of each pair of neighbours."""
        self.row(what, spread([per(o, t) for o, t in zip(ours, theirs)], "{:.2f}") + " x", goal, right, note)

    def bound(self, what, figure, most, unit, note=""):
        """A figure that must not be larger."""
        kept = figure <= most
        self.wrong += not kept
        self.row(what, f"{figure:,.2f} {unit}", f"at most {most:g} {unit}", "" if kept else "WRONG", note)

    def measure(self, name, figure):
        """One figure; what goes wrong in it is told in its row."""
        if self.only and name not in self.only:
            return
        begun = time.monotonic()
        try:
            figure()
        except (Wrong, wire.ServerError, OSError) as problem:
            self.wrong += 1
            self.row(name, "-", "", "WRONG", str(problem))
        except (ArithmeticError, LookupError, TypeError, ValueError) as problem:
            # a fault of the benchmark is no reason to lose the other figures
            self.wrong += 1
            self.row(name, "-", "", "WRONG", f"{type(problem).__name__}: {problem}")
        print(f"    ({name}: {time.monotonic() - begun:.0f} s)", flush=True)

    def check_wake_ups(self):
        """No wake-up was lost, in any row (sas_found_late_total): workers log each case."""
        with open(f"{self.work}/server.log") as log:
            late = [line for line in log if "found work that was not announced" in line]
        self.wrong += bool(late)
        self.row("work found late", str(len(late)), "0", "WRONG" if late else "right", late[0].strip() if late else "")

    def print_table(self):
        head = ("figure", "measured", "floor; aim", "right?", "")
        rows = [head] + self.rows
        widths = [max(len(r[i]) for r in rows) for i in range(4)]
        print()
        for i, r in enumerate(rows):
            print("  ".join(r[k].ljust(widths[k]) for k in range(4)) + "  " + r[4])
            if i == 0:
                print("  ".join("-" * w for w in widths))

    # -- the work -----------------------------------------------------------

    def submit(self, workflow, n, size=1000):
        """n runs in transactions of size; returns the first and the last id."""
        first = last = None
        for begin in range(1, n + 1, size):
            end = min(n, begin + size - 1)
            ids = self.db.query(f"""SELECT min(run_id), max(run_id) FROM sas.submit_batch('{workflow}',
                ARRAY(SELECT jsonb_build_object('n', g) FROM generate_series({begin}, {end}) g))""")[0]
            first, last = first or int(ids[0]), int(ids[1])
        if last - first + 1 != n:
            raise Wrong(f"{n} runs were submitted and have ids from {first} to {last}")
        return first, last

    def wait_for_runs(self, first, last, pause=0.1):
        """Until all have stopped. Asks for the highest run that is open: a short look from the end."""
        def ended():
            return self.db.value(f"""SELECT NOT EXISTS (SELECT FROM (SELECT state FROM _sas.run
                WHERE run_id BETWEEN {first} AND {last} ORDER BY run_id DESC) r WHERE state <> 'stopped')""") == "t"
        self.wait_until(ended, f"runs {first} to {last} to stop", pause=pause)
        bad = self.db.value(f"SELECT count(*) FROM _sas.run WHERE run_id BETWEEN {first} AND {last} AND result IS DISTINCT FROM 'success'")
        if bad != "0":
            raise Wrong(f"{bad} of {last - first + 1} runs did not end in success")

    def seconds_until_end(self, first, last, since):
        return float(self.db.value(f"SELECT extract(epoch FROM max(finished_at)) - {since:.6f} FROM _sas.run WHERE run_id BETWEEN {first} AND {last}"))

    def check_books(self, first, last, steps):
        """Each step of these runs was made once, and has the number that its run was given for output."""
        n = last - first + 1
        made, outputs, further = (int(v) for v in self.db.query(f"""SELECT count(*), coalesce(sum((output ->> 'n')::bigint), 0),
            count(*) FILTER (WHERE attempt <> 1 OR state <> 'succeeded') FROM _sas.step WHERE run_id BETWEEN {first} AND {last}""")[0])
        if made != n * steps or further != 0 or outputs != steps * n * (n + 1) // 2:
            raise Wrong(f"{n} runs of {steps} steps: {made} steps, {further} of them not at the first attempt, their outputs sum up to {outputs}")
        left = self.db.value(f"SELECT count(*) FROM _sas.ready WHERE run_id BETWEEN {first} AND {last}")
        if left != "0":
            raise Wrong(f"{left} steps are still in the queue")

    def ours(self, workflow, n, steps):
        """Runs of function steps that were all submitted before a worker was there: runs/s, and seconds of CPU."""
        self.no_workers()
        try:
            first, last = self.submit(workflow, n)
            used = self.cpu()
        finally:
            called = self.all_workers()
        self.wait_for_runs(first, last)
        used = self.cpu() - used
        self.check_books(first, last, steps)
        return per(n, self.seconds_until_end(first, last, called)), used

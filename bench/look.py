# SPDX-License-Identifier: PostgreSQL
"""Figures of looking: how long a person waits for an answer among very many runs.

These rows have bounds: when one is not kept, the row is WRONG.
"""

import time

from house import Wrong, cpu_of, percentile

# milliseconds, the quickest of ten: what it takes, not what else runs on the machine
FOUND = 10
HEALTH = 100
CONSOLE = 1000

# bench_half owns every second run, bench_few five of them, bench_one every hundredth
PREPARE = """
CREATE ROLE bench_half;
CREATE ROLE bench_few;
CREATE ROLE bench_one;
SELECT sas.grant_usage(r, 'user') FROM unnest('{bench_half,bench_few,bench_one}'::regrole[]) r;
SELECT sas.create_workflow('look_' || g, '{"steps": {"one": {"function": "bench.echo"}}}') FROM generate_series(1, 50) g;
"""

# copies of one run that was really made, with its step; a second between two
COPIES = """
DO $$
DECLARE
    first_version int := (SELECT min(version_id) FROM _sas.workflow_version JOIN _sas.workflow f USING (workflow_id) WHERE f.name = 'look_1');
    other text := (SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = '_sas.run'::regclass AND attnum > 0
                   AND attname NOT IN ('run_id', 'owner', 'version_id', 'key', 'labels', 'created_at'));
    of_step text := (SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = '_sas.step'::regclass AND attnum > 0 AND attname <> 'run_id');
BEGIN
    EXECUTE format('INSERT INTO _sas.run (run_id, owner, version_id, key, labels, created_at, %1$s) OVERRIDING SYSTEM VALUE
        SELECT g, CASE WHEN g %% 2 = 0 THEN ''bench_half'' WHEN g %% ({many} / 5) = 7 THEN ''bench_few'' WHEN g %% 100 = 1 THEN ''bench_one'' ELSE ''postgres'' END::regrole,
               %2$s + g %% 50, ''k'' || g, jsonb_build_object(''all'', ''a'', ''customer'', g / 2 %% 1000), now() - ({many} - g) * interval ''1 s'', %1$s
        FROM _sas.run, generate_series({first}, {last}) g WHERE run_id = {model} ORDER BY g', other, first_version);
    EXECUTE format('INSERT INTO _sas.step (run_id, %1$s) SELECT g, %1$s FROM _sas.step, generate_series({first}, {last}) g WHERE run_id = {model} ORDER BY g', of_step);
    INSERT INTO _sas.run_label (label, owner, run_id)
    SELECT _sas.label_hash(e.key, e.value), r.owner, r.run_id FROM _sas.run r CROSS JOIN jsonb_each(r.labels) e WHERE r.run_id BETWEEN {first} AND {last};
    PERFORM setval(pg_get_serial_sequence('_sas.run', 'run_id'), {last});
END $$"""

FIND = {
    "the newest": "{}", "an id": '{"run_id": %(middle)s}', "a key": '{"key": "k%(middle)s"}', "a label of one in a thousand": '{"labels": {"customer": 17}}',
    "a label of all": '{"labels": {"all": "a"}}', "open ones": '{"state": ["scheduled", "pending", "running", "paused", "compensating"]}', "ended ones": '{"state": "stopped"}',
    "a workflow": '{"workflow": "look_8"}', "a workflow and a label": '{"workflow": "look_35", "labels": {"customer": 17}}',
    "a time": '{"created_after": "%(from)s", "created_before": "%(to)s"}',
}
VIEW = {
    "the newest 20": "SELECT * FROM sas.runs ORDER BY run_id DESC LIMIT 20", "an id": "SELECT * FROM sas.runs WHERE run_id = %(middle)s",
    "a key": "SELECT * FROM sas.runs WHERE key = 'k%(middle)s'",
}
PAGES = {
    "/": "{}", "/runs": "{}", "/runs/%(middle)s": "{}", "/workflows": "{}", "/agents": "{}", "/alerts": "{}", "/workers": "{}",
    "/runs, a text that nothing has": '{"text": "no run has this"}', "/runs, a result that nothing has": '{"result": "error"}', "/runs, both, of a workflow": '{"workflow": "look_8", "result": "error"}',
    "/runs, a label of all": '{"labels": "all=a"}', "/runs, half way": '{"before": "%(middle)s"}', "/runs, open ones": '{"state": "running"}',
}
ROLES = {"postgres": "a superuser", "bench_half": "who owns half", "bench_one": "who owns one in a hundred", "bench_few": "who owns five"}


class Look:
    """Rows of bench/run."""

    def look(self):
        many, home = self.size("look"), self.db
        try:
            self.db = self.new_database("look")
            self.prepare()
            self.look_fill(many)
            where = dict(zip(("middle", "from", "to"), self.db.query(f"SELECT run_id, created_at, created_at + interval '20 min' FROM _sas.run WHERE run_id >= {many // 2} ORDER BY run_id LIMIT 1")[0]))
            for role, who in ROLES.items():
                self.db.query(f"SET ROLE {role}")
                for what, search in FIND.items():
                    self.look_bound(f"sas.find_runs, {who}, {what}", f"SELECT * FROM sas.find_runs('{search % where}')", FOUND)
                # who owns few of many walks over the others' runs
                for what, query in VIEW.items() if role != "bench_few" else ():
                    self.look_bound(f"views, {who}, {what}", query % where, FOUND)
                self.look_bound(f"views, {who}, open ones", "SELECT * FROM sas.runs WHERE state <> 'stopped' ORDER BY run_id DESC LIMIT 20", FOUND)
                self.db.query("RESET ROLE")
            self.look_bound("sas.health()", "SELECT * FROM sas.health()", HEALTH)
            self.look_bound("sas.console()", "SELECT length(sas.console())", CONSOLE)
            for role in ("postgres", "bench_one"):
                self.db.query(f"SET ROLE {role}")
                for what, args in PAGES.items():
                    middle = int(where["middle"])
                    path = what.partition(",")[0] % {"middle": middle | 1 if role == "postgres" else middle // 100 * 100 + 1}
                    self.look_bound(f"sas.console_page, {ROLES[role]}, {what % where}", f"SELECT length(sas.console_page('{path}', '{args % where}'))", CONSOLE)
                self.db.query("RESET ROLE")
        finally:
            self.db = home
            home.query("DROP DATABASE IF EXISTS look WITH (FORCE)")
            home.query("DROP ROLE IF EXISTS bench_half, bench_few, bench_one")

    def look_fill(self, many):
        self.db.query(PREPARE)
        first, model = self.submit("single", 1)
        self.wait_for_runs(first, model)
        begun = time.monotonic()
        for begin in range(model + 1, model + many, 500000):
            self.db.query(COPIES.format(model=model, many=many, first=begin, last=min(begin + 499999, model + many - 1)))
        self.db.query("VACUUM (ANALYZE, FREEZE)")
        # the copies are ended runs of the last months: the supervisor has gone past them long ago
        self.db.query("DELETE FROM _sas.deadline_sweep; INSERT INTO _sas.deadline_sweep (upto, next_upto) SELECT max(run_id), max(run_id) FROM _sas.run; ANALYZE _sas.deadline_sweep")
        few = int(self.db.value("SELECT count(*) FROM _sas.run WHERE owner = 'bench_few'::regrole"))
        if few not in (4, 5):
            raise Wrong(f"bench_few owns {few} runs")
        self.row(f"looking among {many:,} runs", "", "", "", f"made in {time.monotonic() - begun:.0f} s")

    def look_times(self, query):
        took, spent = [], []
        session = int(self.db.value("SELECT pg_backend_pid()"))
        for _ in range(12):
            begun, used = time.monotonic(), cpu_of(session)
            self.db.query(query)
            spent.append((cpu_of(session) - used) * 1000)
            took.append((time.monotonic() - begun) * 1000)
        # at first nothing of it is in memory
        return min(took[2:]), f"median {percentile(took[2:], 0.5):.1f}, the first {took[0]:.1f}; CPU {percentile(spent[2:], 0.5):.1f}"

    def look_bound(self, what, query, most):
        quickest, note = self.look_times(query)
        self.bound("  " + what, quickest, most, "ms", note)

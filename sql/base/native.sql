-- SPDX-License-Identifier: PostgreSQL
--
-- Native: the functions of the library that SQL calls. Internal but for the verbs.

-- _sas.refuse(sqlstate, message, detail, hint): raises that error, for bodies that are bound by oid. Were it
-- not VOLATILE, the planner could raise it for a row that does not come.
CREATE FUNCTION _sas.refuse(sqlstate text, message text, detail text, hint text) RETURNS void
LANGUAGE C VOLATILE PARALLEL SAFE AS 'MODULE_PATHNAME', 'sas_api_refuse';

-- _sas.notify(channel, payload): as pg_notify; but nothing while the queue of notifications is almost full.
-- Any role can fill it, by listening in a transaction that it leaves open; and the commit of who notifies
-- then would fail. Who listens for sas looks from time to time, too.
CREATE FUNCTION _sas.notify(channel text, payload text) RETURNS void
LANGUAGE sql AS $$
    SELECT pg_notify(channel, payload) WHERE pg_notification_queue_usage() < 0.9
$$;

-- _sas.lock(name), _sas.try_lock(name): a lock of that name to the end of the transaction. No function of
-- PostgreSQL can hold it, as any role could an advisory lock.
CREATE FUNCTION _sas.lock(name text) RETURNS void
LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sas_api_lock';

CREATE FUNCTION _sas.try_lock(name text) RETURNS boolean
LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sas_api_try_lock';

-- _sas.find_cycle(from_nos, to_nos, n): nodes 1..n; the nodes of one cycle in order, empty when there is
-- none.
CREATE FUNCTION _sas.find_cycle(from_nos int[], to_nos int[], n int) RETURNS int[]
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sas_api_find_cycle';

-- _sas.is_before(from_nos, to_nos, n, firsts, seconds): for each pair, whether a way leads from the
-- first to the second; the edges are without a cycle.
CREATE FUNCTION _sas.is_before(from_nos int[], to_nos int[], n int, firsts int[], seconds int[])
RETURNS boolean[]
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sas_api_is_before';

-- _sas.levels(from_nos, to_nos, n): for each of nodes 1..n how long the longest path to it is.
CREATE FUNCTION _sas.levels(from_nos int[], to_nos int[], n int) RETURNS int[]
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sas_api_levels';

-- _sas.url_problem(url): why it cannot be the base of an agent; null when it can.
CREATE FUNCTION _sas.url_problem(url text) RETURNS text
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sas_api_url_problem';

-- _sas.path_has_dot_segment(path): "." or ".." as a segment, also percent-encoded.
CREATE FUNCTION _sas.path_has_dot_segment(path text) RETURNS boolean
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sas_api_path_has_dot_segment';

-- _sas.may_call(role, functions): may the role call all of these functions(jsonb)? What keeps it from that,
-- _sas.check_function says.
CREATE FUNCTION _sas.may_call(role oid, functions text[]) RETURNS boolean
LANGUAGE C STABLE STRICT AS 'MODULE_PATHNAME', 'sas_api_may_call';

-- _sas.agent_right(role, agent_id): what runs of the role may ask of an agent: a all, s some, n nothing.
-- Cached until a grant, a role or a function changes; see _sas.read_agent_right.
CREATE FUNCTION _sas.agent_right(role oid, agent_id int) RETURNS "char"
LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sas_api_agent_right';

-- _sas.call_as(caller, role, function, input): calls a function(jsonb) as that role, in this transaction of
-- the caller; for another role it is a security-restricted operation.
CREATE FUNCTION _sas.call_as(caller oid, role oid, function text, input jsonb) RETURNS jsonb
LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sas_api_call_as';

-- _sas.announce_agents(): at commit, every worker of this database reads the agents again.
CREATE FUNCTION _sas.announce_agents() RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_announce_agents';

-- _sas.limit_entries(): per agent what the workers share: places in use, the breaker, and how long there is
-- no token of its rate.
-- An agent that rests is not in it: nothing on its way, breaker closed. Nor is an agent that found no room
-- (sas.max_agents): _sas.agent_health stores its breaker, and one call at most is on its way.
CREATE FUNCTION _sas.limit_entries(OUT agent_id int, OUT in_flight int, OUT breaker text,
                                   OUT open_for_ms float8,
                            OUT rate_for_ms float8) RETURNS SETOF record
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_limits';

-- _sas.path_breakers(): the breakers of paths of agents that are not closed: path_no counts the paths of the
-- agent from 1 on.
CREATE FUNCTION _sas.path_breakers(OUT agent_id int, OUT path_no int, OUT breaker text,
                                   OUT open_for_ms float8) RETURNS SETOF record
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_path_breakers';

-- _sas.spend_tokens(agent_id, rate_per_s, want): takes so many tokens of the rate of this agent, or as many
-- as there are, and returns how many. What a transaction has taken stays taken when it aborts.
CREATE FUNCTION _sas.spend_tokens(agent_id int, rate_per_s float8, want int) RETURNS int
LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sas_api_spend_tokens';

-- _sas.forget_limits(agent_id): it is dropped: at commit, or when its last call has ended, it makes room.
CREATE FUNCTION _sas.forget_limits(agent_id int) RETURNS void
LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sas_api_forget_limits';

-- _sas.shared_tables(): a row for each table in shared memory, which all databases share.
--   setting: its capacity; taken: entries that cannot make room (while half of the table is free, all
--   entries); refused: how often an entry found no room since the server started, and how long ago it did
--   last (null: never).
--   Reads shared memory only; no rows when the library is not preloaded.
CREATE FUNCTION _sas.shared_tables(OUT name text, OUT setting text, OUT capacity int, OUT taken int,
                                   OUT refused bigint, OUT refused_ms_ago float8) RETURNS SETOF record
LANGUAGE C VOLATILE AS 'MODULE_PATHNAME', 'sas_api_shared_tables';

-- _sas.stop_calls(): at commit, the agent workers of this database stop the calls of claims that hold no
-- more.
CREATE FUNCTION _sas.stop_calls() RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_stop_calls';

-- _sas.interrupt_functions(request_ids): at commit, the function workers that call functions for these
-- claims, which hold no more, are interrupted; one that does not listen is ended after a while.
CREATE FUNCTION _sas.interrupt_functions(request_ids uuid[]) RETURNS void
LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sas_api_interrupt_functions';

-- _sas.is_executed(request_id): does a worker call the function of this claim now?
CREATE FUNCTION _sas.is_executed(request_id uuid) RETURNS boolean
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_is_executed';

-- _sas.writing_workers(): the workers of this database that have replies which they have not written yet.
CREATE FUNCTION _sas.writing_workers() RETURNS bigint[]
LANGUAGE C VOLATILE AS 'MODULE_PATHNAME', 'sas_api_writing_workers';

-- _sas.half_open(agent_id): its service is mended: a breaker that is not closed lets a new probe through.
CREATE FUNCTION _sas.half_open(agent_id int) RETURNS void
LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sas_api_half_open';

-- Templates and predicates (src/template, src/api/template_api.c).  Internal: nothing is granted.
-- All strict: a null argument gives null (or no rows).  STABLE, not IMMUTABLE: .datetime()
-- comparisons depend on TimeZone.

-- _sas.render(template, root): the template with its {{ references }} filled in from the root.
-- Exactly one of result and problem is null (both are, when an argument is null).  Evaluation is bounded in
-- processor time and memory (src/template/budget.h); a spent budget is a problem.
-- problem: {"pointer", "what"} and, where known, {"path", "hint"}.  Never raises because of data.
-- Call it in FROM (LATERAL); "(f()).*" in a select list evaluates it twice.
CREATE FUNCTION _sas.render(template jsonb, root jsonb, OUT result jsonb, OUT problem jsonb)
LANGUAGE C STABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'sas_api_template_render';

-- _sas.render_path(template, root): the path of a URL; each reference becomes one percent-encoded
-- segment, dot segments are refused; a template that is one whole reference gives its string as it
-- is (a full URL or a path): the caller checks the origin.
CREATE FUNCTION _sas.render_path(template text, root jsonb, OUT result text, OUT problem jsonb)
LANGUAGE C STABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'sas_api_template_render_path';

-- _sas.render_request(request, root): the request of a call with its templates filled in: its path as by
-- _sas.render_path, all else as by _sas.render; there is always a path. What is wrong with the rest is told
-- before what is wrong with the path.
CREATE FUNCTION _sas.render_request(request jsonb, root jsonb, OUT result jsonb, OUT problem jsonb)
LANGUAGE C STABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'sas_api_template_render_request';

-- _sas.root(...): what the paths of a step or a run start from: {input, key, run: {...}, steps}. reads: the
-- members of the input that are checked; null: all. An input that is no object is there as a whole.
CREATE FUNCTION _sas.root(input jsonb, reads text[], key text, run_id bigint, run_key text, labels jsonb,
                          created_at timestamptz, deadline timestamptz, steps jsonb,
                          schedule text DEFAULT NULL, scheduled_at timestamptz DEFAULT NULL) RETURNS jsonb
LANGUAGE C STABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'sas_api_template_root';

-- _sas.with_member(object, name, member): object || jsonb_build_object(name, member), without taking the
-- values apart: a reply may be large. Null when one of them is.
CREATE FUNCTION _sas.with_member(object jsonb, name text, member jsonb) RETURNS jsonb
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'sas_api_template_with_member';

-- _sas.references(template): one row per place in the root that the template checks, also inside
-- filters and subscripts, in the order of the template.  root, member, third, fourth: the first four member
-- names, as far as they are plain ("steps.*" has no member).
-- problem: why the reference is not accepted (then root, member and third are null), else null.
-- hint: the way round, of one that is well-formed and refused (.**, like_regex); else null.
CREATE FUNCTION _sas.references(template jsonb)
RETURNS TABLE (pointer text, path text, root text, member text, third text, optional boolean, problem text,
               hint text, fourth text)
LANGUAGE C STABLE STRICT PARALLEL SAFE ROWS 10
AS 'MODULE_PATHNAME', 'sas_api_template_references';

-- _sas.predicate(path, root): met is true, false, or null for neither; then reason says why, where it is
-- known: a budget is spent.  "$.output.ok == true"; the "$." may be left out before a first member name.
-- Raises syntax_error for one that is malformed.
CREATE FUNCTION _sas.predicate(path text, root jsonb, OUT met boolean, OUT reason text)
LANGUAGE C STABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'sas_api_template_predicate';

-- _sas.predicate_problem(path): why the predicate is not accepted, null when it is.
-- hint: the way round, of one that is well-formed and refused (.**, like_regex); else null.
CREATE FUNCTION _sas.predicate_problem(path text, OUT problem text, OUT hint text)
LANGUAGE C STABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'sas_api_template_predicate_problem';

-- _sas.predicate_references(path): as _sas.references, for a predicate; pointer is ''.
CREATE FUNCTION _sas.predicate_references(path text)
RETURNS TABLE (pointer text, path text, root text, member text, third text, optional boolean, problem text,
               hint text, fourth text)
LANGUAGE C STABLE STRICT PARALLEL SAFE ROWS 3
AS 'MODULE_PATHNAME', 'sas_api_template_predicate_references';

-- _sas.all_workers(): the workers that run now, in all databases of this server (the view filters).
--   Returns a row per worker: actor is scheduler, agent, function or supervisor; worker_id counts from 1
--   since _sas.current_boot(). turn_for: how long it has been in its turn, or since code of users returned in
--   it; calls: whose code it waits for; stalled: for ten seconds, and for nobody's code.
--   Reads shared memory only; no rows when the library is not preloaded.
CREATE FUNCTION _sas.all_workers(
    OUT pid int, OUT actor text, OUT database text, OUT leader boolean, OUT in_flight int,
    OUT started_at timestamptz, OUT last_activity_at timestamptz, OUT worker_id bigint,
    OUT turn_for interval, OUT calls text, OUT stalled boolean, OUT memory bigint)
RETURNS SETOF record
LANGUAGE c VOLATILE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'sas_api_workers';

-- _sas.launcher_state(): how the launcher is, for sas.health().
--   loaded: the library is in shared_preload_libraries; launcher_pid: null when none runs (a standby);
--   slots_missing: workers that found no free process slot, since missing_since; probed_at: the last answer
--   of a probe; excluded_by: the session that keeps workers away, to restore a dump or to drop the extension.
CREATE FUNCTION _sas.launcher_state(
    OUT loaded boolean, OUT launcher_pid int, OUT slots_missing int, OUT missing_since timestamptz,
    OUT probed_at timestamptz, OUT excluded_by int)
RETURNS record
LANGUAGE c VOLATILE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'sas_api_launcher_state';

-- _sas.wake(lanes, scheduler, supervisor, runs): marks the bell; it is rung when this transaction commits.
--   lanes: agent ids, 0 for functions; runs: whose waiters (sas.wait) wake up.  Nulls are nothing.
CREATE FUNCTION _sas.wake(lanes int[], scheduler boolean, supervisor boolean, runs bigint[]) RETURNS void
LANGUAGE c VOLATILE
AS 'MODULE_PATHNAME', 'sas_api_wake';

-- _sas.ending(run_ids): those of these runs that are stopped by a transaction which has not committed. Locks
-- nothing, waits for nothing.
CREATE FUNCTION _sas.ending(run_ids bigint[]) RETURNS bigint[]
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_ending';

-- _sas.nudge(lanes, scheduler, items, watches): at commit, workers that take steps of these lanes, messages
-- to the scheduler, items or tasks look for them. Nothing is announced: what they find was found late
-- (src/work/late.h). Nulls are nothing.
CREATE FUNCTION _sas.nudge(lanes int[] DEFAULT NULL, scheduler boolean DEFAULT false,
                           items boolean DEFAULT false, watches boolean DEFAULT false) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_nudge';

-- _sas.found(kind, label, since): a look of this worker has found such work, which was there since then, or
-- became visible later. Counts it if nobody announced it (src/work/late.h).
CREATE FUNCTION _sas.found(kind text, label text, since timestamptz) RETURNS boolean
LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sas_api_found';

-- _sas.last_tick(): when the last tick of this worker began that ended without an error; -infinity: none did.
CREATE FUNCTION _sas.last_tick() RETURNS timestamptz
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_last_tick';

-- _sas.wake_on_abort(): rings everything of this database when this transaction ends, by commit or by abort.
--   For a session that locks rows which the workers then set aside.
CREATE FUNCTION _sas.wake_on_abort() RETURNS void
LANGUAGE c VOLATILE STRICT
AS 'MODULE_PATHNAME', 'sas_api_wake_on_abort';

-- sas.now(): the one clock: clock_timestamp(), or the instant of sas.clock. It is public, so that the
--   functions of steps go by it, too.
CREATE FUNCTION sas.now() RETURNS timestamptz
LANGUAGE c VOLATILE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'sas_api_now';
COMMENT ON FUNCTION sas.now IS 'The clock that sas goes by: the time of the machine at this call, or '
                               'what sas.set_clock says.';

-- _sas.current_boot(): a random number of this start of shared memory; 0 when the library is not preloaded.
--   Worker ids count from one with each: only the pair names a worker forever.
CREATE FUNCTION _sas.current_boot() RETURNS bigint
LANGUAGE c STABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'sas_api_boot';

-- Settings as values, whatever unit they are written in.
CREATE FUNCTION _sas.complete_in() RETURNS interval
LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sas_api_complete_in';

CREATE FUNCTION _sas.run_deadline() RETURNS interval
LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sas_api_run_deadline';

CREATE FUNCTION _sas.priority_step() RETURNS interval
LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sas_api_priority_step';

CREATE FUNCTION _sas.max_definition_size() RETURNS int
LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sas_api_max_definition_size';

CREATE FUNCTION _sas.max_input_size() RETURNS int
LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sas_api_max_input_size';

CREATE FUNCTION _sas.max_steps() RETURNS int
LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sas_api_max_steps';

-- _sas.due_by(at): something is due for the supervisor then; it is woken at commit when it means to sleep
-- longer. Returns at.
CREATE FUNCTION _sas.due_by(at timestamptz) RETURNS timestamptz
LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sas_api_due_by';

-- Counters and histograms in shared memory; what a transaction counts is added when it has committed.
-- _sas.count_metric(metric, id1, id2, label, n): n more; returns n.
CREATE FUNCTION _sas.count_metric(metric text, id1 int, id2 int, label text, n bigint) RETURNS bigint
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_count';

-- _sas.observe(metric, ids1, ids2, labels, seconds): one observation per element; ids2 and labels may be
-- null.
CREATE FUNCTION _sas.observe(metric text, ids1 int[], ids2 int[], labels text[], seconds float8[])
RETURNS void
LANGUAGE C VOLATILE AS 'MODULE_PATHNAME', 'sas_api_observe';

-- _sas.waited(lane, ready_at): a step of that lane was ready since then, and is claimed now. Returns how long
-- it was, in seconds.
CREATE FUNCTION _sas.waited(lane int, ready_at timestamptz) RETURNS float8
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_waited';

-- _sas.count_moves(subject, changes): the changes of state in an array of _sas.step_change or
-- _sas.run_change. Returns which there are, each as "from to"; one may be named more than once.
CREATE FUNCTION _sas.count_moves(subject text, changes anyarray) RETURNS text[]
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_count_moves';

-- _sas.series(): what was counted in this database since the server began; buckets count those up to
-- _sas.metric_bounds().
CREATE FUNCTION _sas.series(OUT metric text, OUT id1 int, OUT id2 int, OUT label text, OUT n bigint,
                            OUT sum float8, OUT buckets bigint[]) RETURNS SETOF record
LANGUAGE C VOLATILE STRICT ROWS 200 AS 'MODULE_PATHNAME', 'sas_api_series';

CREATE FUNCTION _sas.metric_bounds() RETURNS float8[]
LANGUAGE C IMMUTABLE STRICT AS 'MODULE_PATHNAME', 'sas_api_metric_bounds';

-- _sas.begin_testing(): from now on this transaction cannot be committed: see sql/testing/stub.sql.
CREATE FUNCTION _sas.begin_testing() RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_testing_begin';

-- _sas.is_testing(): is this such a transaction? Then pauses are made without jitter.
CREATE FUNCTION _sas.is_testing() RETURNS boolean
LANGUAGE C STABLE PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'sas_api_testing_begun';

-- _sas.submitted_here(run_id): was it submitted in this transaction?
CREATE FUNCTION _sas.submitted_here(run_id bigint) RETURNS boolean
LANGUAGE C STABLE STRICT PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'sas_api_submitted_here';

-- _sas.retain(result): how long runs with this result are kept; null: forever.
CREATE FUNCTION _sas.retain(result text) RETURNS interval
LANGUAGE C STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sas_api_retain';

-- _sas.wake_watches(): at commit, every host of this database checks what concerns it.
CREATE FUNCTION _sas.wake_watches() RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_wake_watches';

-- _sas.wake_items(): at commit, a function worker looks for items that are to be brought to their target.
CREATE FUNCTION _sas.wake_items() RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_wake_items';

CREATE FUNCTION _sas.watch_window() RETURNS int
LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sas_api_watch_window';

-- Instants of schedules (src/schedule, src/api/schedule_api.c). anchor: what "every ..." counts from, null
-- for the epoch. Each refuses a spec or a zone that is invalid.

-- _sas.check_spec(spec, timezone): refuses them, also a spec that never happens; returns the name of the
-- zone.
CREATE FUNCTION _sas.check_spec(spec text, timezone text) RETURNS text
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_check_spec';

-- _sas.next_instant(spec, timezone, anchor, after): the first later than after; null: there is none.
CREATE FUNCTION _sas.next_instant(spec text, timezone text, anchor timestamptz, after timestamptz)
RETURNS timestamptz
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_next_instant';

-- _sas.newest_instant(spec, timezone, anchor, after, until, most): the last one later than after and not
-- later than until, and how many there are, counted up to most.
CREATE FUNCTION _sas.newest_instant(spec text, timezone text, anchor timestamptz, after timestamptz,
                                    until timestamptz, most int, OUT newest timestamptz, OUT passed int)
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_newest_instant';

-- _sas.instants(spec, timezone, anchor, after, until, most): the first ones later than after and not later
-- than until.
CREATE FUNCTION _sas.instants(spec text, timezone text, anchor timestamptz, after timestamptz,
                              until timestamptz, most int) RETURNS SETOF timestamptz
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_instants';

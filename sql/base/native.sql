-- SPDX-License-Identifier: PostgreSQL
--
-- Native: functions in C that SQL calls. All are internal, except sas.now(). The C functions of verbs are
-- declared in sql/api.

-- _sas.refuse(sqlstate, message, detail, hint): raises that error; for function bodies that are bound when
-- they are created. It is VOLATILE, because the planner may otherwise raise the error for a row that is
-- never read.
CREATE FUNCTION _sas.refuse(sqlstate text, message text, detail text, hint text) RETURNS void
LANGUAGE C VOLATILE PARALLEL SAFE AS 'MODULE_PATHNAME', 'sas_api_refuse';

-- _sas.may_stand_for(member, role): has this role the rights of the other one, by membership, or can it take
-- them with SET ROLE? A member that has neither (WITH INHERIT FALSE, SET FALSE) has none in sas either.
CREATE FUNCTION _sas.may_stand_for(member oid, role oid) RETURNS boolean
LANGUAGE C STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sas_api_may_stand_for';

-- _sas.stands_for(role): the same for the current user.
CREATE FUNCTION _sas.stands_for(role oid) RETURNS boolean
LANGUAGE C STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sas_api_stands_for';

-- _sas.delays_notes(): does the transaction belong to a session of another node, and perhaps commit in two
-- phases? Then a notification is a row until it has committed, because NOTIFY cannot be prepared.
CREATE FUNCTION _sas.delays_notes() RETURNS boolean
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_delays_notes';

-- _sas.delay_note(channel, payload): stores a notification, which _sas.send_notes sends later.
-- Writes: delayed_note.
CREATE FUNCTION _sas.delay_note(channel text, payload text) RETURNS void
LANGUAGE sql AS $$ INSERT INTO _sas.delayed_note (channel, payload) VALUES ($1, $2) $$;

-- _sas.notify(channel, payload): as pg_notify, but does nothing while the queue of notifications is almost
-- full. Any role can fill that queue by listening in a transaction that it leaves open, and then a commit
-- with a notification would fail. Programs that listen for sas also poll from time to time.
-- Wakes: programs that LISTEN to the channel.
CREATE FUNCTION _sas.notify(channel text, payload text) RETURNS void
LANGUAGE sql AS $$
    SELECT CASE WHEN _sas.delays_notes() THEN _sas.delay_note(channel, payload)
           ELSE pg_notify(channel, payload) END
    WHERE pg_notification_queue_usage() < 0.9
$$;

-- _sas.send_notes(): sends what was delayed, and returns how many; src/api/notes_api.c calls it when a
-- transaction commits.
-- Writes: delayed_note. Wakes: programs that LISTEN to the channels.
CREATE FUNCTION _sas.send_notes() RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    WITH sent AS (
        DELETE FROM _sas.delayed_note n
        WHERE n.note_id = ANY (ARRAY(SELECT f.note_id FROM _sas.delayed_note f FOR UPDATE SKIP LOCKED))
        RETURNING n.channel, n.payload)
    SELECT count(pg_notify(s.channel, s.payload)) FROM sent s WHERE pg_notification_queue_usage() < 0.9
$$;

-- _sas.lock(name): takes a lock of that name until the transaction ends. No function of PostgreSQL can take
-- this lock; any role could take an advisory lock.
CREATE FUNCTION _sas.lock(name text) RETURNS void
LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sas_api_lock';

-- _sas.try_lock(name): the same, if no other transaction has it; else returns false at once.
CREATE FUNCTION _sas.try_lock(name text) RETURNS boolean
LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sas_api_try_lock';

-- _sas.id_base(): the part of an id that names this node: ids of runs and alerts are
-- _sas.id_base() + nextval(...). No two nodes give out the same one (src/store/node.h).
CREATE FUNCTION _sas.id_base() RETURNS bigint
LANGUAGE C STABLE PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'sas_api_id_base';

-- _sas.node_shift(): an id shifted right by this number of bits is the node that assigned it.
CREATE FUNCTION _sas.node_shift() RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC SELECT 41; END;

-- _sas.next_run_id(): the id of one more run.
CREATE FUNCTION _sas.next_run_id() RETURNS bigint
LANGUAGE sql AS $$ SELECT _sas.id_base() + nextval('_sas.run_run_id_seq') $$;

-- _sas.next_alert_id(): the id of one more alert.
CREATE FUNCTION _sas.next_alert_id() RETURNS bigint
LANGUAGE sql AS $$ SELECT _sas.id_base() + nextval('_sas.alert_alert_id_seq') $$;

-- _sas.find_cycle(from_nos, to_nos, n): the nodes of one cycle in order; empty if there is none. Nodes are
-- 1..n.
CREATE FUNCTION _sas.find_cycle(from_nos int[], to_nos int[], n int) RETURNS int[]
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sas_api_find_cycle';

-- _sas.is_before(from_nos, to_nos, n, firsts, seconds): for each pair, whether a path leads from the first
-- node to the second. The edges have no cycle.
CREATE FUNCTION _sas.is_before(from_nos int[], to_nos int[], n int, firsts int[], seconds int[])
RETURNS boolean[]
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sas_api_is_before';

-- _sas.levels(from_nos, to_nos, n): for each of the nodes 1..n, the length of the longest path that ends
-- there.
CREATE FUNCTION _sas.levels(from_nos int[], to_nos int[], n int) RETURNS int[]
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sas_api_levels';

-- _sas.url_problem(url): why it cannot be the base URL of an agent; null if it can.
CREATE FUNCTION _sas.url_problem(url text) RETURNS text
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sas_api_url_problem';

-- _sas.path_has_dot_segment(path): does the path have "." or ".." as a segment, also percent-encoded?
CREATE FUNCTION _sas.path_has_dot_segment(path text) RETURNS boolean
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sas_api_path_has_dot_segment';

-- _sas.may_call(role, functions): may the role call all of these functions(jsonb)? _sas.check_function says
-- what prevents it.
CREATE FUNCTION _sas.may_call(role oid, functions text[]) RETURNS boolean
LANGUAGE C STABLE STRICT AS 'MODULE_PATHNAME', 'sas_api_may_call';

-- _sas.function_distrust(function, role): why this superuser is not to call it, as the end of a sentence
-- about it; null: no other role has a say in it. What its body names, and finds in the schemas of its path,
-- must not be of others, either.
CREATE FUNCTION _sas.function_distrust(function oid, role oid) RETURNS text
LANGUAGE C STABLE STRICT AS 'MODULE_PATHNAME', 'sas_api_function_distrust';

-- _sas.table_distrust(relation): the same for inserting into a table.
CREATE FUNCTION _sas.table_distrust(relation oid) RETURNS text
LANGUAGE C STABLE STRICT AS 'MODULE_PATHNAME', 'sas_api_table_distrust';

-- _sas.agent_right(role, agent_id): what runs of the role may ask of an agent: a (all), s (some), n
-- (nothing). Cached until a grant, a role or a function changes; see _sas.read_agent_right.
CREATE FUNCTION _sas.agent_right(role oid, agent_id int) RETURNS "char"
LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sas_api_agent_right';

-- _sas.call_as(caller, role, function, input): calls a function(jsonb) as that role, in the caller's
-- transaction. For another role than the caller it is a security-restricted operation.
CREATE FUNCTION _sas.call_as(caller oid, role oid, function text, input jsonb) RETURNS jsonb
LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sas_api_call_as';

-- _sas.announce_agents(): at commit, every worker of this database reloads the agents.
CREATE FUNCTION _sas.announce_agents() RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_announce_agents';

-- _sas.limit_entries(): the shared limits of each agent: calls in progress, the breaker, and how long its
-- rate has no token. Idle agents are missing: no call in progress, breaker closed. So are agents that found
-- no room in shared memory (sas.max_agents): their breaker is in _sas.agent_health, and they have at most
-- one call in progress.
CREATE FUNCTION _sas.limit_entries(OUT agent_id int, OUT in_flight int, OUT breaker text,
                                   OUT open_for_ms float8, OUT rate_for_ms float8) RETURNS SETOF record
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_limits';

-- _sas.path_breakers(): the breakers of agents' paths that are not closed. path_no counts the paths of the
-- agent from 1.
CREATE FUNCTION _sas.path_breakers(OUT agent_id int, OUT path_no int, OUT breaker text,
                                   OUT open_for_ms float8) RETURNS SETOF record
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_path_breakers';

-- _sas.spend_tokens(agent_id, rate_per_s, want): takes "want" tokens of this agent's rate, or as many as
-- there are, and returns how many. They are not given back if the transaction aborts.
CREATE FUNCTION _sas.spend_tokens(agent_id int, rate_per_s float8, want int) RETURNS int
LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sas_api_spend_tokens';

-- _sas.forget_limits(agent_id): frees the room of a dropped agent, at commit or when its last call has
-- ended.
CREATE FUNCTION _sas.forget_limits(agent_id int) RETURNS void
LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sas_api_forget_limits';

-- _sas.shared_tables(): one row for each table in shared memory, which all databases share.
--   setting   the setting that gives its capacity
--   taken     entries that cannot make room (while half of the table is free: all entries)
--   refused   how often an entry found no room since the server started, and how long ago that was last
--             (null: never)
-- Reads shared memory only; no rows if the library is not preloaded.
CREATE FUNCTION _sas.shared_tables(OUT name text, OUT setting text, OUT capacity int, OUT taken int,
                                   OUT refused bigint, OUT refused_ms_ago float8) RETURNS SETOF record
LANGUAGE C VOLATILE AS 'MODULE_PATHNAME', 'sas_api_shared_tables';

-- _sas.stop_calls(): at commit, the agent workers of this database look up which of their claims do not hold
-- any more, and which of their runs were cancelled. They stop these calls.
CREATE FUNCTION _sas.stop_calls() RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_stop_calls';

-- _sas.interrupt_functions(request_ids): at commit, interrupts the function workers that call functions for
-- these claims, which no longer hold. A function that ignores this is ended after a while, with its
-- worker.
CREATE FUNCTION _sas.interrupt_functions(request_ids uuid[]) RETURNS void
LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sas_api_interrupt_functions';

-- _sas.is_executed(request_id): is a worker calling the function of this claim now?
CREATE FUNCTION _sas.is_executed(request_id uuid) RETURNS boolean
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_is_executed';

-- _sas.live_workers(): the workers of this database that live now.
CREATE FUNCTION _sas.live_workers() RETURNS bigint[]
LANGUAGE C VOLATILE AS 'MODULE_PATHNAME', 'sas_api_live_workers';

-- _sas.writing_workers(): the workers of this database that have replies which they have not written yet.
CREATE FUNCTION _sas.writing_workers() RETURNS bigint[]
LANGUAGE C VOLATILE AS 'MODULE_PATHNAME', 'sas_api_writing_workers';

-- _sas.holding_workers(): the workers of this database with calls that may have time left although the clock
-- says otherwise, because it has jumped ahead since they were claimed.
CREATE FUNCTION _sas.holding_workers() RETURNS bigint[]
LANGUAGE C VOLATILE AS 'MODULE_PATHNAME', 'sas_api_holding_workers';

-- _sas.half_open(agent_id): at commit, a breaker of this agent that is not closed lets a new probe through,
-- because its service is repaired.
CREATE FUNCTION _sas.half_open(agent_id int) RETURNS void
LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sas_api_half_open';

-- Templates and predicates (src/template, src/api/template_api.c).
--
-- All functions are strict: a null argument gives null, or no rows. They are STABLE, not IMMUTABLE, because
-- comparisons of .datetime() depend on TimeZone.

-- _sas.render(template, root): fills in the {{ references }} of a template from the root. Exactly one of
-- result and problem is null (both are if an argument is null). Evaluation is bounded in processor time and
-- memory (src/template/budget.h); if the budget is spent, that is a problem. problem: {"pointer", "what"}
-- and, if known, {"path", "hint"}. Data never raises an error here. Call it in FROM (LATERAL); "(f()).*" in
-- a select list evaluates it twice.
CREATE FUNCTION _sas.render(template jsonb, root jsonb, OUT result jsonb, OUT problem jsonb)
LANGUAGE C STABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'sas_api_template_render';

-- _sas.render_path(template, root): fills in the path of a URL. Each reference becomes one percent-encoded
-- segment, and dot segments are refused. A template that is a single reference yields its string unchanged
-- (a full URL or a path); the caller checks the origin.
CREATE FUNCTION _sas.render_path(template text, root jsonb, OUT result text, OUT problem jsonb)
LANGUAGE C STABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'sas_api_template_render_path';

-- _sas.render_request(request, root): fills in the request of a call: its path as by _sas.render_path,
-- everything else as by _sas.render. The result always has a path. A problem in the rest is reported before
-- a problem in the path.
CREATE FUNCTION _sas.render_request(request jsonb, root jsonb, OUT result jsonb, OUT problem jsonb)
LANGUAGE C STABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'sas_api_template_render_request';

-- _sas.root(...): the root of the paths of a step or a run: {input, key, run: {...}, steps}. reads: the
-- members of the input that are needed; null: all. An input that is no object is included as a whole.
-- index: of an element, whose root also has index, item and last.
CREATE FUNCTION _sas.root(input jsonb, reads text[], key text, run_id bigint, run_key text, labels jsonb,
                          created_at timestamptz, deadline timestamptz, steps jsonb,
                          schedule text DEFAULT NULL, scheduled_at timestamptz DEFAULT NULL,
                          index int DEFAULT NULL, item jsonb DEFAULT NULL, last jsonb DEFAULT NULL)
RETURNS jsonb
LANGUAGE C STABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'sas_api_template_root';

-- _sas.with_member(object, name, member): object || jsonb_build_object(name, member), without decoding the
-- values, because a reply may be large. Null if an argument is null.
CREATE FUNCTION _sas.with_member(object jsonb, name text, member jsonb) RETURNS jsonb
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'sas_api_template_with_member';

-- _sas.references(template): one row for each place in the root that the template reads, also inside
-- filters and subscripts, in the order of the template. root, member, third, fourth: the first four member
-- names, as far as they are plain ("steps.*" has no member); subscripts and filters may precede the fourth.
-- problem: why the reference is not accepted (then root, member and third are null), else null. hint: what
-- to write instead, if it is well-formed and refused (.**, like_regex), else null.
CREATE FUNCTION _sas.references(template jsonb)
RETURNS TABLE (pointer text, path text, root text, member text, third text, optional boolean, problem text,
               hint text, fourth text)
LANGUAGE C STABLE STRICT PARALLEL SAFE ROWS 10
AS 'MODULE_PATHNAME', 'sas_api_template_references';

-- _sas.predicate(path, root): met is true, false, or null for neither; then reason says why, if that is
-- known: the budget is spent. Example: "$.output.ok == true"; "$." may be omitted before the first member
-- name. A malformed predicate raises syntax_error.
CREATE FUNCTION _sas.predicate(path text, root jsonb, OUT met boolean, OUT reason text)
LANGUAGE C STABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'sas_api_template_predicate';

-- _sas.predicate_problem(path): why the predicate is not accepted; null if it is. hint: what to write
-- instead, if it is well-formed and refused (.**, like_regex), else null.
CREATE FUNCTION _sas.predicate_problem(path text, OUT problem text, OUT hint text)
LANGUAGE C STABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'sas_api_template_predicate_problem';

-- _sas.predicate_references(path): as _sas.references, for a predicate; pointer is ''.
CREATE FUNCTION _sas.predicate_references(path text)
RETURNS TABLE (pointer text, path text, root text, member text, third text, optional boolean, problem text,
               hint text, fourth text)
LANGUAGE C STABLE STRICT PARALLEL SAFE ROWS 3
AS 'MODULE_PATHNAME', 'sas_api_template_predicate_references';

-- _sas.all_workers(): one row for each worker that is running, in all databases of this server (the view
-- filters them).
--   actor      scheduler, agent, function or supervisor
--   worker_id  counts from 1 since _sas.current_boot()
--   turn_for   how long its tick has been running, or how long ago code of a user returned in it
--   calls      whose code it waits for
--   woken_for  how long ago it was woken, if it has not begun a tick since; else null
--   failed_ticks  how many ticks have failed in a row; has_worked: one has ended well
-- Reads shared memory only; no rows if the library is not preloaded.
CREATE FUNCTION _sas.all_workers(
    OUT pid int, OUT actor text, OUT database text, OUT leader boolean, OUT in_flight int,
    OUT started_at timestamptz, OUT last_activity_at timestamptz, OUT worker_id bigint,
    OUT turn_for interval, OUT calls text, OUT memory bigint, OUT woken_for interval,
    OUT failed_ticks int, OUT has_worked boolean)
RETURNS SETOF record
LANGUAGE c VOLATILE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'sas_api_workers';

-- _sas.launcher_state(): the state of the launcher, for sas.health().
--   loaded         the library is in shared_preload_libraries
--   launcher_pid   null if none runs (on a standby)
--   slots_missing  workers that found no free process slot, since missing_since
--   probed_at      the last answer of a probe
--   excluded_by    the session that keeps workers away, to restore a dump or to drop the extension
CREATE FUNCTION _sas.launcher_state(
    OUT loaded boolean, OUT launcher_pid int, OUT slots_missing int, OUT missing_since timestamptz,
    OUT probed_at timestamptz, OUT excluded_by int)
RETURNS record
LANGUAGE c VOLATILE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'sas_api_launcher_state';

-- _sas.wake(lanes, scheduler, supervisor, runs): wakes workers when this transaction commits. lanes: agent
-- ids, 0 for functions; runs: sessions that wait for them (sas.wait) wake up. Nulls are ignored.
CREATE FUNCTION _sas.wake(lanes int[] DEFAULT NULL, scheduler boolean DEFAULT false,
                          supervisor boolean DEFAULT false, runs bigint[] DEFAULT NULL) RETURNS void
LANGUAGE c VOLATILE
AS 'MODULE_PATHNAME', 'sas_api_wake';

-- _sas.ending(run_ids): those of these runs that an uncommitted transaction is stopping. Locks nothing,
-- waits for nothing.
CREATE FUNCTION _sas.ending(run_ids bigint[]) RETURNS bigint[]
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_ending';

-- _sas.nudge(lanes, scheduler, items, watches): at commit, the workers that take steps of these lanes,
-- messages to the scheduler, items or tasks scan for work. Nothing is announced: what they find counts as
-- found late (src/work/late.h). Nulls are ignored.
CREATE FUNCTION _sas.nudge(lanes int[] DEFAULT NULL, scheduler boolean DEFAULT false,
                           items boolean DEFAULT false, watches boolean DEFAULT false) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_nudge';

-- _sas.found(kind, label, since): a scan of this worker has found such work, which has been there since
-- then, or became visible later. Counts it as found late if nothing announced it (src/work/late.h).
CREATE FUNCTION _sas.found(kind text, label text, since timestamptz) RETURNS boolean
LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sas_api_found';

-- _sas.passed_by(kind, passed): whether a scan of this worker for such work has passed by rows that another
-- transaction had locked. What the next scan finds does not count as found late then.
CREATE FUNCTION _sas.passed_by(kind text, passed boolean) RETURNS void
LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sas_api_passed_by';

-- _sas.keeps_snapshot(): whether this transaction keeps one snapshot (REPEATABLE READ, SERIALIZABLE), so that
-- it does not see what others have committed since.
CREATE FUNCTION _sas.keeps_snapshot() RETURNS boolean
LANGUAGE C STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'sas_api_keeps_snapshot';

-- _sas.has_pages(of_table): false: its file is empty, so no snapshot sees a row in it. For tables that most
-- systems never use: this costs a tenth of the statement that asks for rows.
CREATE FUNCTION _sas.has_pages(of_table regclass) RETURNS boolean
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_has_pages';

-- _sas.next_numbers(sequence, n): the next n numbers of a sequence.
CREATE FUNCTION _sas.next_numbers(sequence regclass, n int) RETURNS bigint[]
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_next_numbers';

-- _sas.last_tick(): when this worker began its last tick that ended without an error; -infinity: none has.
CREATE FUNCTION _sas.last_tick() RETURNS timestamptz
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_last_tick';

-- _sas.wake_on_abort(): wakes all workers of this database when this transaction ends, by commit or by
-- abort. For a session that locks rows which workers then skip.
CREATE FUNCTION _sas.wake_on_abort() RETURNS void
LANGUAGE c VOLATILE STRICT
AS 'MODULE_PATHNAME', 'sas_api_wake_on_abort';

-- sas.now(): the only clock: clock_timestamp(), which does not go back within a transaction, or the instant
-- of sas.clock. It is public, so that functions of steps can use it, too.
-- It is volatile: a condition due_at <= sas.now() reaches no index, but due_at <= (SELECT sas.now()) does.
CREATE FUNCTION sas.now() RETURNS timestamptz
LANGUAGE c VOLATILE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'sas_api_now';
COMMENT ON FUNCTION sas.now IS
    'The clock of sas: the time of the machine at this call, or the time that sas.set_clock has set.';

-- _sas.current_boot(): a random number of this start of shared memory; 0 if the library is not preloaded.
-- Worker ids begin with 1 at each start; only the pair identifies a worker for ever.
CREATE FUNCTION _sas.current_boot() RETURNS bigint
LANGUAGE c STABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'sas_api_boot';

-- _sas.is_gone(of_boot, worker_id, boot, live, newest): has this worker ended? live: those that run now, none
-- of which is newer than newest.
CREATE FUNCTION _sas.is_gone(of_boot bigint, worker_id bigint, boot bigint, live bigint[], newest bigint)
RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT of_boot <> boot OR worker_id <= newest AND NOT worker_id = ANY (live)
$$;

-- Settings as values, independent of the unit in which they are written.

-- _sas.complete_in(): the setting sas.complete_in.
CREATE FUNCTION _sas.complete_in() RETURNS interval
LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sas_api_complete_in';

-- _sas.run_deadline(): the setting sas.run_deadline.
CREATE FUNCTION _sas.run_deadline() RETURNS interval
LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sas_api_run_deadline';

-- _sas.priority_step(): the setting sas.priority_step.
CREATE FUNCTION _sas.priority_step() RETURNS interval
LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sas_api_priority_step';

-- _sas.max_definition_size(): the setting sas.max_definition_size, in bytes.
CREATE FUNCTION _sas.max_definition_size() RETURNS int
LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sas_api_max_definition_size';

-- _sas.max_input_size(): the setting sas.max_input_size, in bytes.
CREATE FUNCTION _sas.max_input_size() RETURNS int
LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sas_api_max_input_size';

-- _sas.max_output_size(): the setting sas.max_output_size, in bytes.
CREATE FUNCTION _sas.max_output_size() RETURNS int
LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sas_api_max_output_size';

-- _sas.max_steps(): the setting sas.max_steps.
CREATE FUNCTION _sas.max_steps() RETURNS int
LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sas_api_max_steps';

-- _sas.untimed_from(): a run with a deadline at least this far away gets its timer later
-- (sql/supervisor/deadline.sql).
CREATE FUNCTION _sas.untimed_from() RETURNS interval
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sas_api_untimed_from';

-- _sas.untimed_check(): within this time the supervisor must look for new runs without a timer.
CREATE FUNCTION _sas.untimed_check() RETURNS interval
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sas_api_untimed_check';

-- _sas.shorten_locks(gave_up): this transaction of a worker waits at most 100 ms for a lock, if the worker
-- gave one up in the last ten seconds, or has now.
CREATE FUNCTION _sas.shorten_locks(gave_up boolean) RETURNS void
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_shorten_locks';

-- _sas.due_by(at): the supervisor has something to do at that time: it is woken at commit if it would sleep
-- longer. Returns at.
-- Wakes: the supervisor.
CREATE FUNCTION _sas.due_by(at timestamptz) RETURNS timestamptz
LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sas_api_due_by';

-- Counters and histograms in shared memory. What a transaction counts is added when it has committed.

-- _sas.count_metric(metric, id1, id2, label, n): counts n more; returns n.
CREATE FUNCTION _sas.count_metric(metric text, id1 int, id2 int, label text, n bigint) RETURNS bigint
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_count';

-- _sas.observe(metric, ids1, ids2, labels, seconds): one observation per element; ids2 and labels may be
-- null.
CREATE FUNCTION _sas.observe(metric text, ids1 int[], ids2 int[], labels text[], seconds float8[])
RETURNS void
LANGUAGE C VOLATILE AS 'MODULE_PATHNAME', 'sas_api_observe';

-- _sas.waited(lane, ready_at): counts how long a step of that lane, which is claimed now, has waited since
-- ready_at. Returns the seconds.
CREATE FUNCTION _sas.waited(lane int, ready_at timestamptz) RETURNS float8
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_waited';

-- _sas.count_moves(subject, changes): counts the changes of state in an array of _sas.step_change or
-- _sas.run_change. Returns them, each as "from to"; a change may be listed more than once.
CREATE FUNCTION _sas.count_moves(subject text, changes anyarray) RETURNS text[]
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_count_moves';

-- _sas.series(): what was counted in this database since the server started. Each bucket counts the values
-- up to its bound in _sas.metric_bounds().
CREATE FUNCTION _sas.series(OUT metric text, OUT id1 int, OUT id2 int, OUT label text, OUT n bigint,
                            OUT sum float8, OUT buckets bigint[]) RETURNS SETOF record
LANGUAGE C VOLATILE STRICT ROWS 200 AS 'MODULE_PATHNAME', 'sas_api_series';

-- _sas.metric_bounds(): the upper bounds of the buckets of all histograms, in seconds.
CREATE FUNCTION _sas.metric_bounds() RETURNS float8[]
LANGUAGE C IMMUTABLE STRICT AS 'MODULE_PATHNAME', 'sas_api_metric_bounds';

-- _sas.begin_testing(): from now on this transaction cannot be committed, see sql/testing/stub.sql.
CREATE FUNCTION _sas.begin_testing() RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_testing_begin';

-- _sas.is_testing(): is this a testing transaction? Pauses have no jitter in one.
CREATE FUNCTION _sas.is_testing() RETURNS boolean
LANGUAGE C STABLE PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'sas_api_testing_begun';

-- _sas.submitted_here(run_id): was the run submitted in this transaction?
CREATE FUNCTION _sas.submitted_here(run_id bigint) RETURNS boolean
LANGUAGE C STABLE STRICT PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'sas_api_submitted_here';

-- _sas.retain(result): how long runs with this result are kept; null: forever.
CREATE FUNCTION _sas.retain(result text) RETURNS interval
LANGUAGE C STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sas_api_retain';

-- _sas.wake_watches(): at commit, every host of this database checks its tasks and what waits for a host.
CREATE FUNCTION _sas.wake_watches() RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_wake_watches';

-- _sas.wake_items(): at commit, a function worker checks for items to bring to their target.
CREATE FUNCTION _sas.wake_items() RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_wake_items';

-- _sas.watch_window(): the setting sas.watch_window: how many items the inbox of a watch may hold.
CREATE FUNCTION _sas.watch_window() RETURNS int
LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sas_api_watch_window';

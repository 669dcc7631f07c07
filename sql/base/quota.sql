-- SPDX-License-Identifier: PostgreSQL
--
-- Quotas: how much each role has open, in shared memory (src/limits/quotas.h), and how much it may have.

-- _sas.take_quota(owner, more, most, generation, checks): the owner opens this much more in this
-- transaction: runs, children, bytes, watches. most: its limits from _sas.limits_of(), and the generation
-- for which they were read; null: the limits in memory. over: null if it was taken; "unknown" if the limits
-- must be passed; else the limit that is exceeded, and used is what the owner has.
CREATE FUNCTION _sas.take_quota(owner oid, more bigint[], most bigint[], generation bigint, checks boolean,
                                OUT over text, OUT used bigint)
LANGUAGE C VOLATILE AS 'MODULE_PATHNAME', 'sas_api_take_quota';

-- _sas.give_quota(owner, is_child, input): a run with that input has stopped, if this transaction commits.
CREATE FUNCTION _sas.give_quota(owner oid, is_child boolean, input jsonb) RETURNS bigint
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_give_quota';

-- _sas.give_watches(owner, n): n infinite tasks of the owner are deleted, if this transaction commits.
CREATE FUNCTION _sas.give_watches(owner oid, n bigint) RETURNS bigint
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_give_watches';

-- _sas.value_size(input): the bytes of the input: the same number wherever and however it is stored.
CREATE FUNCTION _sas.value_size(input jsonb) RETURNS bigint
LANGUAGE C IMMUTABLE STRICT AS 'MODULE_PATHNAME', 'sas_api_value_size';

-- _sas.written_size(value, most): the bytes of a value as limits count them: like value_size, and with the
-- text of each number that is longer than the number: that of 1e131071 has 131072 bytes. Without these if
-- the value cannot have more than "most". Null: it has more than 5000 levels, so its text may be one that
-- cannot be read again.
CREATE FUNCTION _sas.written_size(value jsonb, most bigint) RETURNS bigint
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sas_api_written_size';

-- _sas.spend_submits(owner, n, per_s): counts n submits from within a run; false: too many at this moment.
CREATE FUNCTION _sas.spend_submits(owner oid, n bigint, per_s bigint) RETURNS boolean
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_spend_submits';

-- _sas.is_in_run(): is this a worker that is executing a function of a user?
CREATE FUNCTION _sas.is_in_run() RETURNS boolean
LANGUAGE C VOLATILE AS 'MODULE_PATHNAME', 'sas_api_is_in_run';

-- _sas.quota_generation(): the generation of the limits; call it before they are read.
CREATE FUNCTION _sas.quota_generation() RETURNS bigint
LANGUAGE C VOLATILE AS 'MODULE_PATHNAME', 'sas_api_quota_generation';

-- _sas.forget_quotas(): all sessions read the limits again once this transaction has ended.
CREATE FUNCTION _sas.forget_quotas() RETURNS trigger
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_forget_quotas';

CREATE TRIGGER forget AFTER INSERT OR UPDATE OR DELETE
    OR TRUNCATE ON _sas.role_limit FOR EACH STATEMENT EXECUTE FUNCTION _sas.forget_quotas();
ALTER TABLE _sas.role_limit ENABLE ALWAYS TRIGGER forget;

-- _sas.recount_quotas(): counts what each role has open (_sas.count_quotas), and returns how many have
-- something; null: there is no room in shared memory to note a count.
CREATE FUNCTION _sas.recount_quotas() RETURNS bigint
LANGUAGE C VOLATILE AS 'MODULE_PATHNAME', 'sas_api_recount_quotas';

-- _sas.doubt_quotas(): this transaction changes what roles have open, and does not say how much: it is
-- counted again soon.
CREATE FUNCTION _sas.doubt_quotas() RETURNS void
LANGUAGE C VOLATILE AS 'MODULE_PATHNAME', 'sas_api_doubt_quotas';

-- _sas.note_prepared(): there are prepared transactions that have opened or ended runs: it is counted again
-- soon after one is committed or rolled back.
CREATE FUNCTION _sas.note_prepared() RETURNS void
LANGUAGE C VOLATILE AS 'MODULE_PATHNAME', 'sas_api_note_prepared';

-- _sas.quotas_counted_ago(): seconds since the last recount; null: there was none since the server started.
CREATE FUNCTION _sas.quotas_counted_ago() RETURNS float8
LANGUAGE C VOLATILE AS 'MODULE_PATHNAME', 'sas_api_quotas_counted_ago';

-- _sas.quotas(): how much the roles of this database have open, including open transactions.
CREATE FUNCTION _sas.quotas(OUT owner oid, OUT open_runs bigint, OUT children bigint, OUT bytes bigint,
                            OUT watches bigint) RETURNS SETOF record
LANGUAGE C VOLATILE STRICT ROWS 20 AS 'MODULE_PATHNAME', 'sas_api_quotas';

-- _sas.most_function_workers(): the default of limit function_workers: all but one of the workers that there
-- may be, so that the long functions of one role leave a worker to the others. Where long functions get no
-- further workers, a role may use all.
CREATE FUNCTION _sas.most_function_workers() RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    SELECT CASE WHEN current_setting('sas.function_workers_max')::int
                     > greatest(current_setting('sas.function_workers')::int, 1)
           THEN current_setting('sas.function_workers_max')::bigint - 1 ELSE 64 END;
END;

-- _sas.limit_names(): the limits and their default values; first those of _sas.limits_of(), in its order.
CREATE FUNCTION _sas.limit_names(OUT name text, OUT value bigint) RETURNS SETOF record
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    SELECT l.name, l.value
    FROM (VALUES ('open_runs', 2000000::bigint), ('children', 20000::bigint), ('bytes', 10737418240::bigint),
                 ('watches', 100000::bigint), ('submits_per_s', 100::bigint), ('depth', 100::bigint),
                 ('function_workers', _sas.most_function_workers()), ('schedules', 10000::bigint),
                 ('signals', 10000::bigint), ('definitions', 100000::bigint),
                 ('nodes', 1000::bigint)) AS l (name, value);
END;

-- _sas.limit_of(role, name): the limit of the role; else the limit of all roles; else the default. It is that
-- of now also for a transaction with an older snapshot, because it is kept for all sessions (_sas.open_more).
CREATE FUNCTION _sas.limit_of(role oid, name text) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF _sas.keeps_snapshot() THEN
        RETURN coalesce((SELECT l.value FROM jsonb_populate_recordset(
                             NULL::_sas.role_limit, _sas.latest_rows('limit', $1::bigint)) l
                         WHERE l.name = $2 ORDER BY l.role IS NULL LIMIT 1),
                        (SELECT l.value FROM _sas.limit_names() l WHERE l.name = $2));
    END IF;
    RETURN coalesce((SELECT l.value FROM _sas.role_limit l WHERE l.role = $1 AND l.name = $2),
                    (SELECT l.value FROM _sas.role_limit l WHERE l.role IS NULL AND l.name = $2),
                    (SELECT l.value FROM _sas.limit_names() l WHERE l.name = $2));
END $$;

-- _sas.limits_of(role): the limits open_runs, children, bytes, watches and submits_per_s.
CREATE FUNCTION _sas.limits_of(role oid) RETURNS bigint[]
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN ARRAY[_sas.limit_of(role, 'open_runs'), _sas.limit_of(role, 'children'),
                 _sas.limit_of(role, 'bytes'), _sas.limit_of(role, 'watches'),
                 _sas.limit_of(role, 'submits_per_s')];
END $$;

-- _sas.function_owners(): the owners whose functions the other workers of this database call now, one row
-- for each worker.
CREATE FUNCTION _sas.function_owners() RETURNS SETOF oid
LANGUAGE C VOLATILE STRICT ROWS 4 AS 'MODULE_PATHNAME', 'sas_api_function_owners';

-- _sas.wait_for_owners(waits): true: this worker leaves steps of owners whose functions run on as many
-- workers as their limit allows, and is woken when one of these functions ends; false: it leaves none any
-- more.
CREATE FUNCTION _sas.wait_for_owners(waits boolean) RETURNS void
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_wait_for_owners';

-- _sas.leave_last(begins): the owner whose functions this worker leaves to the others, because it is the last
-- one that no long call of this owner has; null: there is none. begins: ends an earlier
-- _sas.wait_for_owners.
CREATE FUNCTION _sas.leave_last(begins boolean) RETURNS oid
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_leave_last';

-- _sas.left_last(): that owner has functions to be called: the launcher starts one more worker.
CREATE FUNCTION _sas.left_last() RETURNS void
LANGUAGE C VOLATILE AS 'MODULE_PATHNAME', 'sas_api_left_last';

-- _sas.owners_in_wait(): the owners who let others go first in this function worker or scheduler now
-- (src/work/turns.h).
CREATE FUNCTION _sas.owners_in_wait() RETURNS oid[]
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_owners_in_wait';

-- _sas.charge_owner(owner, spent_us, messages): so many messages of the owner took so long together: if they
-- were slow, others go first.
CREATE FUNCTION _sas.charge_owner(owner oid, spent_us bigint, messages int) RETURNS void
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_charge_owner';

-- _sas.busy_functions(): how many other workers of this database call functions now.
CREATE FUNCTION _sas.busy_functions() RETURNS int
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_busy_functions';

-- _sas.may_be_full(): may a role have as many function workers as its limit allows? Each claim
-- asks this: see _sas.unclaimable_owners.
CREATE FUNCTION _sas.may_be_full() RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    IF _sas.busy_functions() >= _sas.most_function_workers() THEN
        RETURN true;
    ELSIF NOT _sas.has_pages('_sas.role_limit') THEN
        RETURN false;
    END IF;
    RETURN EXISTS (SELECT FROM _sas.role_limit l WHERE l.name = 'function_workers');
END $$;

-- _sas.full_owners(): the owners whose functions run on as many other workers as their limit allows, and the
-- one who would take the last worker.
CREATE FUNCTION _sas.full_owners() RETURNS SETOF oid
LANGUAGE C VOLATILE ROWS 1 AS 'MODULE_PATHNAME', 'sas_api_verb';

-- _sas.full_owners_as(caller): the body of _sas.full_owners.
CREATE FUNCTION _sas.full_owners_as(caller oid) RETURNS SETOF oid
LANGUAGE plpgsql SECURITY DEFINER ROWS 1 SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF _sas.may_be_full() THEN
        RETURN QUERY SELECT o FROM _sas.function_owners() o GROUP BY o
                     HAVING count(*) >= _sas.limit_of(o, 'function_workers');
    END IF;
    -- an admin may let it have all
    RETURN QUERY SELECT o FROM _sas.leave_last(false) o
                 WHERE o IS NOT NULL
                   AND _sas.limit_of(o, 'function_workers')
                       < current_setting('sas.function_workers_max')::int;
END $$;

-- _sas.unclaimable_owners(): the same for a worker that claims: the owners whose steps it must leave, with
-- those who let others go first. It is woken when one of the former may be served. The list is read again
-- after the worker has registered its wait, because a function that ended before that did not wake it.
CREATE FUNCTION _sas.unclaimable_owners() RETURNS oid[]
LANGUAGE plpgsql AS $$
DECLARE
    last oid := _sas.leave_last(true);
    full_owners oid[];
BEGIN
    IF last IS NULL AND NOT _sas.may_be_full() THEN
        RETURN _sas.owners_in_wait();
    END IF;
    PERFORM _sas.left_last()
    WHERE _sas.first_ready(0, last, '-infinity') IS NOT NULL
       OR EXISTS (SELECT FROM _sas.watch_work k WHERE k.owner = last AND k.due_at <= (SELECT sas.now()))
       OR EXISTS (SELECT FROM _sas.schedule_plan p WHERE p.owner = last AND p.offered
                  AND p.worker_id IS NULL);
    full_owners := ARRAY(SELECT _sas.full_owners_as(0));
    PERFORM _sas.wait_for_owners(full_owners <> '{}');
    RETURN _sas.owners_in_wait()
        || CASE WHEN full_owners = '{}' THEN full_owners ELSE ARRAY(SELECT _sas.full_owners_as(0)) END;
END $$;

-- _sas.open_more(owner, more): the owner opens this much more in this transaction: runs, children, bytes,
-- watches. Raises an error if that exceeds a limit.
CREATE FUNCTION _sas.open_more(owner oid, more bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    generation bigint;
    answer record;
BEGIN
    answer := _sas.take_quota(owner, more, NULL, NULL, true);
    FOR n IN 1 .. 3 LOOP
        EXIT WHEN answer.over IS DISTINCT FROM 'unknown';
        generation := _sas.quota_generation();
        answer := _sas.take_quota(owner, more, _sas.limits_of(owner), generation, true);
    END LOOP;
    IF answer.over IN ('open_runs', 'children', 'bytes', 'watches') THEN
        RAISE EXCEPTION 'role "%" has too % open', pg_get_userbyid(owner),
            CASE answer.over WHEN 'open_runs' THEN 'many runs' WHEN 'children' THEN 'many child runs'
            WHEN 'watches' THEN 'many infinite tasks' ELSE 'many bytes of input in runs that are' END
            USING ERRCODE = 'configuration_limit_exceeded',
                DETAIL = format('Limit %s is %s. %s %s used, and this needs %s more.', answer.over,
                                _sas.limit_of(owner, answer.over), answer.used,
                                CASE answer.used WHEN 1 THEN 'is' ELSE 'are' END,
                                more[array_position('{open_runs,children,bytes,watches}', answer.over)]),
                HINT = CASE answer.over WHEN 'watches' THEN 'End tasks with sas.unwatch()'
                       ELSE 'Wait until runs have stopped' END
                       || ', or ask an admin for sas.set_limit(). See sas.limits.';
    END IF;
END $$;

-- _sas.open_more_runs(owner, runs, is_child, bytes): the same for runs, with these bytes of input.
CREATE FUNCTION _sas.open_more_runs(owner oid, runs int, is_child boolean, bytes bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM _sas.open_more(owner, ARRAY[runs, CASE WHEN is_child THEN runs ELSE 0 END, bytes, 0]);
END $$;

-- _sas.refuse_rows(owner, name, used, message, place, hint): raises an error if the owner has more rows
-- than its limit of that name says.
CREATE FUNCTION _sas.refuse_rows(owner oid, name text, used bigint, message text, place text, hint text)
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    most bigint := _sas.limit_of(owner, name);
BEGIN
    IF used > most THEN
        RAISE EXCEPTION '%', message
            USING ERRCODE = 'configuration_limit_exceeded',
                DETAIL = format('At %s. Limit %s is %s.', place, name, most),
                HINT = hint || ', or ask an admin for sas.set_limit(). See sas.limits.';
    END IF;
END $$;

-- _sas.check_definitions(owner): raises an error if the owner has more definitions than its limit says: all
-- versions of its workflows, which are kept, and its watchers.
CREATE FUNCTION _sas.check_definitions(owner oid) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM _sas.refuse_rows(owner, 'definitions',
                             (SELECT coalesce(sum(f.version), 0) FROM _sas.workflow f WHERE f.owner = $1)
                             + (SELECT count(*) FROM _sas.watcher d WHERE d.owner = $1),
                             format('role "%s" has too many definitions', pg_get_userbyid(owner)), '/name',
                             'Each version of a workflow counts; submit one with other input instead');
END $$;

-- _sas.check_submit_rate(owner, n): raises an error if a running function submits faster than its owner
-- may.
CREATE FUNCTION _sas.check_submit_rate(owner oid, n int) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    per_s bigint;
BEGIN
    IF NOT _sas.is_in_run() THEN
        RETURN;
    END IF;
    per_s := _sas.limit_of(owner, 'submits_per_s');
    IF NOT _sas.spend_submits(owner, n, per_s) THEN
        RAISE EXCEPTION 'functions of role "%" submit too fast', pg_get_userbyid(owner)
            USING ERRCODE = 'configuration_limit_exceeded',
                DETAIL = format('Limit submits_per_s is %s.', per_s),
                HINT = 'The step is tried again. An admin may raise the limit with sas.set_limit().';
    END IF;
END $$;

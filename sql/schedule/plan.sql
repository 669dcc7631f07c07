-- SPDX-License-Identifier: PostgreSQL
--
-- Schedules whose runs are planned by a function of a user or by their input, or whose submits are wrapped by
-- middleware. Schedulers call no function of a user, and to plan a run may take long. So a function worker
-- submits these runs, as the owner of the schedule:
--   the scheduler    decides an instant, and offers it: a row in _sas.schedule_plan, one for each schedule
--   function worker  claims the row durably; then, in one transaction, submits the run (which calls the
--                    functions, with the rights of the owner and within sas.complete_in), locks the schedule,
--                    and stores the outcome of the instant
--   the scheduler    offers a row again when its worker is gone, or after a pause
--
-- Nothing is locked while the functions run. The fence is the request_id: if the row is gone, or was
-- claimed again, the writes of the functions are rolled back together with the run.

-- _sas.plan_tries(): how often an instant is tried whose worker was lost, or whose transaction was rolled
-- back.
CREATE FUNCTION _sas.plan_tries() RETURNS int LANGUAGE sql IMMUTABLE AS $$ SELECT 5 $$;

-- _sas.plans_by_function(owner, workflow): does a submit of this workflow by that role call functions of
-- users?
CREATE FUNCTION _sas.plans_by_function(owner oid, workflow text) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT _sas.calls_plans($1, (SELECT f.workflow_id FROM _sas.workflow f WHERE f.name = $2
                                 AND f.dropped_at IS NULL))
        OR _sas.plan_chain($1, $2) IS NOT NULL
$$;

-- _sas.plans_elsewhere(owner, workflow): does a function worker submit the scheduled runs of this workflow?
CREATE FUNCTION _sas.plans_elsewhere(owner oid, workflow text) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM _sas.workflow f CROSS JOIN LATERAL _sas.planned_by($1, f.workflow_id, NULL)
                   WHERE f.name = $2 AND f.dropped_at IS NULL)
        OR _sas.plan_chain($1, $2) IS NOT NULL
$$;

-- _sas.offer_instants(instants): offers those of these instants, at most one for each schedule, that a
-- function worker has to submit; their outcome is "planned". Returns all instants.
-- Caller: holds the locks of the schedules. Writes: schedule_plan. Wakes: a function worker. Next:
-- _sas.claim_plan.
CREATE FUNCTION _sas.offer_instants(instants _sas.schedule_instant[]) RETURNS _sas.schedule_instant[]
LANGUAGE plpgsql AS $$
DECLARE
    answer _sas.schedule_instant[];
    offered int[];
BEGIN
    -- checked once for each owner and workflow
    WITH asked AS MATERIALIZED (
        SELECT DISTINCT s.owner, s.workflow FROM unnest(instants) i
        JOIN _sas.schedule s USING (schedule_id) WHERE i.outcome IS NULL),
    planned AS MATERIALIZED (
        SELECT a.owner, a.workflow FROM asked a WHERE _sas.plans_elsewhere(a.owner, a.workflow))
    SELECT array_agg(s.schedule_id) INTO offered
    FROM unnest(instants) i
    JOIN _sas.schedule s USING (schedule_id)
    JOIN planned p ON p.owner = s.owner AND p.workflow = s.workflow
    WHERE i.outcome IS NULL;
    IF offered IS NULL THEN
        RETURN instants;
    END IF;
    INSERT INTO _sas.schedule_plan (schedule_id, instant, owner, offered, due_at)
    SELECT s.schedule_id, i, s.owner, true, sas.now() + interval '1 min'
    FROM unnest(instants) i JOIN _sas.schedule s ON s.schedule_id = i.schedule_id
    WHERE s.schedule_id = ANY (offered)
    ON CONFLICT (schedule_id) DO NOTHING;
    PERFORM _sas.wake_items();
    SELECT array_agg(CASE WHEN i.schedule_id = ANY (offered)
                          THEN ROW(i.schedule_id, i.scheduled_at, i.missed, 'planned', NULL, i.after_run,
                                   NULL)::_sas.schedule_instant
                          ELSE i END) INTO answer
    FROM unnest(instants) i;
    RETURN answer;
END $$;

-- _sas.drop_plan(of_schedule): the schedule has changed or stopped: withdraws the instant that is being
-- planned. A worker that is submitting it rolls back.
-- Writes: schedule_plan.
CREATE FUNCTION _sas.drop_plan(of_schedule int) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM _sas.schedule_plan p WHERE p.schedule_id = of_schedule;
END $$;

-- _sas.offer_plans(boot, live, newest): offers rows again whose worker is gone, whose claim or pause is
-- over, or that no worker has taken for a minute. Returns when the next row may be.
-- Writes: schedule_plan. Wakes: function workers.
CREATE FUNCTION _sas.offer_plans(boot bigint, live bigint[], newest bigint) RETURNS timestamptz
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    mark timestamptz := (_sas.begin_low_water('d', ARRAY[ascii('p')]))[1];
    again int[];
BEGIN
    IF mark = 'infinity' THEN
        RETURN NULL;
    ELSIF NOT EXISTS (SELECT FROM _sas.schedule_plan) THEN
        PERFORM _sas.raise_low_water('d', ascii('p'), 0, NULL);
        RETURN NULL;
    END IF;
    WITH found AS (
        SELECT p.schedule_id FROM _sas.schedule_plan p
        WHERE p.due_at <= (SELECT sas.now())
           OR p.worker_id IS NOT NULL AND _sas.is_gone(p.boot, p.worker_id, $1, live, newest)
        FOR NO KEY UPDATE SKIP LOCKED),
    offered AS (
        UPDATE _sas.schedule_plan p
        SET offered = true, request_id = NULL, boot = NULL, worker_id = NULL,
            due_at = sas.now() + interval '1 min'
        FROM found f WHERE p.schedule_id = f.schedule_id RETURNING p.schedule_id)
    SELECT array_agg(o.schedule_id) INTO again FROM offered o;
    PERFORM _sas.wake_items() WHERE again IS NOT NULL;
    RETURN (SELECT min(p.due_at) FROM _sas.schedule_plan p);
END $$;

-- _sas.claim_plan(boot, worker_id): an instant for a function worker to submit; no row: there is none.
-- Owners served by few workers come first, then those who were served the longest ago. Owners whose
-- functions run on as many workers as they may are left out.
-- Writes: schedule_plan. Next: _sas.submit_planned.
CREATE FUNCTION _sas.claim_plan(boot bigint, worker_id bigint)
RETURNS TABLE (schedule_id int, name text, request_id uuid, owner oid, window_ms float8)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    turns record;
    turn record;
    chosen int;
    full_owners oid[];
BEGIN
    IF NOT EXISTS (SELECT FROM _sas.schedule_plan p WHERE p.offered AND p.worker_id IS NULL) THEN
        RETURN;
    END IF;
    full_owners := _sas.unclaimable_owners();
    turns := _sas.share_due(ascii('p'), 'infinity', 16);
    FOR turn IN
        SELECT o.owner, o.mark
        FROM unnest(turns.owners, turns.marks) WITH ORDINALITY AS o (owner, mark, place)
        WHERE NOT o.owner = ANY (full_owners)
        ORDER BY (SELECT count(*) FROM _sas.schedule_plan x
                  WHERE x.owner = o.owner AND x.worker_id IS NOT NULL), o.place LOOP
        SELECT p.schedule_id INTO chosen FROM _sas.schedule_plan p
        WHERE p.owner = turn.owner AND p.due_at >= turn.mark AND p.offered AND p.worker_id IS NULL
        ORDER BY p.due_at, p.schedule_id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED;
        EXIT WHEN FOUND;
    END LOOP;
    RETURN QUERY
    UPDATE _sas.schedule_plan p
    SET boot = $1, worker_id = $2, request_id = gen_random_uuid(), tries = p.tries + 1,
        due_at = sas.now() + _sas.complete_in() + interval '1 min'
    FROM _sas.schedule s
    WHERE p.schedule_id = chosen AND s.schedule_id = chosen
    RETURNING p.schedule_id, s.name, p.request_id, p.owner::oid,
        extract(epoch FROM _sas.complete_in())::float8 * 1000;
END $$;

-- _sas.is_plan_claimed(of_schedule, request_id): is this claim valid? Nothing is locked.
CREATE FUNCTION _sas.is_plan_claimed(of_schedule int, request_id uuid) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (SELECT FROM _sas.schedule_plan p WHERE p.schedule_id = of_schedule AND p.request_id = $2);
END $$;

-- _sas.submit_planned(of_schedule, request_id): submits the run of a claimed instant, in a function worker;
-- functions of users are called as the owner of the schedule, within a subtransaction and a time limit.
-- Returns the outcome; null: the claim no longer holds.
CREATE FUNCTION _sas.submit_planned(of_schedule int, request_id uuid) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    p _sas.schedule_plan;
    s _sas.schedule;
    i _sas.schedule_instant;
BEGIN
    SELECT x.* INTO p FROM _sas.schedule_plan x
    WHERE x.schedule_id = of_schedule AND x.request_id = $2;
    SELECT x.* INTO s FROM _sas.schedule x WHERE x.schedule_id = p.schedule_id;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF p.tries > _sas.plan_tries() THEN
        RAISE EXCEPTION 'the run could not be planned in % tries', _sas.plan_tries()
            USING ERRCODE = 'object_not_in_prerequisite_state',
                DETAIL = 'Its function ends its worker, or its transaction is rolled back.',
                HINT = 'See the log of the server.';
    END IF;
    PERFORM _sas.check_schedulable(s.owner, s.workflow, s.workflow_owner);
    i := (_sas.apply_overlap(ARRAY[p.instant], NULL))[1];
    IF i.outcome IS NULL THEN
        SELECT b.run_id, CASE WHEN b.created THEN 'run' ELSE 'skipped' END INTO i.run_id, i.outcome
        FROM _sas.submit_runs(s.owner, s.workflow, ARRAY[s.input],
                              ARRAY[_sas.instant_key(s.name, i.scheduled_at)], s.priority, NULL, NULL, NULL,
                              CASE WHEN i.after_run IS NOT NULL THEN ARRAY[i.after_run] END, NULL, s.labels,
                              after_result => '{success,warning,error,compensated,cancelled}',
                              schedules => ARRAY[s.name], scheduled_ats => ARRAY[i.scheduled_at]) b;
    END IF;
    RETURN jsonb_build_object('outcome', i.outcome, 'run_id', i.run_id, 'open', to_jsonb(s.open_run_ids));
END $$;

-- _sas.end_planned(of_schedule, request_id, done, sqlstate, error): stores the outcome of the instant, in
-- the transaction of its submit. done: the result of _sas.submit_planned; else sqlstate and error, and the
-- submit is rolled back already. False: the claim no longer holds, or another session holds the
-- schedule or has submitted runs of it meanwhile: nothing is written, and the caller rolls the run back.
-- Locks: schedule_plan and schedule, without waiting. Writes: schedule_plan, schedule, alert. Wakes: the
-- scheduler.
CREATE FUNCTION _sas.end_planned(of_schedule int, request_id uuid, done jsonb, sqlstate text, error jsonb)
RETURNS boolean
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    p _sas.schedule_plan;
    s _sas.schedule;
    i _sas.schedule_instant;
BEGIN
    SELECT x.* INTO s FROM _sas.schedule x WHERE x.schedule_id = of_schedule FOR NO KEY UPDATE SKIP LOCKED;
    SELECT x.* INTO p FROM _sas.schedule_plan x WHERE x.schedule_id = s.schedule_id
        AND x.request_id = end_planned.request_id FOR UPDATE SKIP LOCKED;
    IF p.schedule_id IS NULL OR done -> 'open' <> to_jsonb(s.open_run_ids) THEN
        RETURN false;
    END IF;
    i := p.instant;
    i.outcome := CASE WHEN done IS NOT NULL THEN done ->> 'outcome' WHEN sqlstate = '23505' THEN 'skipped'
        WHEN left(sqlstate, 2) = '40' OR sqlstate = '55P03' THEN 'later' ELSE 'failed' END;
    IF i.outcome = 'later' THEN
        PERFORM _sas.put_back_plan(of_schedule, request_id);
        RETURN true;
    END IF;
    i.run_id := (done ->> 'run_id')::bigint;
    i.error := error;
    DELETE FROM _sas.schedule_plan x WHERE x.schedule_id = of_schedule;
    PERFORM _sas.note_instants(ARRAY[i], false);
    PERFORM _sas.count_instants(ARRAY[i]);
    PERFORM _sas.set_due(ARRAY[of_schedule], '{}');
    PERFORM _sas.wake(scheduler => true);
    RETURN true;
END $$;

-- _sas.put_back_plan(of_schedule, request_id): the instant is offered again after a growing pause.
-- Writes: schedule_plan. Wakes: the scheduler.
CREATE FUNCTION _sas.put_back_plan(of_schedule int, request_id uuid) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE _sas.schedule_plan p
    SET offered = false, request_id = NULL, boot = NULL, worker_id = NULL,
        due_at = sas.now() + interval '500 ms' * 2 ^ least(p.tries, 6)
    WHERE p.schedule_id = of_schedule AND p.request_id = $2;
    PERFORM _sas.wake(scheduler => true);
END $$;

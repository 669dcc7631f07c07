-- SPDX-License-Identifier: PostgreSQL
--
-- Builder: functions with named arguments that return the pieces of a definition, as the JSON that one
-- would write. Null arguments leave no key; intervals become text with units. The functions check types
-- only; sas.create_workflow checks the rest.

-- _sas.span_text(span): an interval as text: "10 s", "3 days", "1 min 30 s".
CREATE FUNCTION _sas.span_text(span interval) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    SELECT coalesce(nullif(concat_ws(' ',
        CASE WHEN p.years <> 0 THEN p.years || CASE p.years WHEN 1 THEN ' year' ELSE ' years' END END,
        CASE WHEN p.months <> 0 THEN p.months || CASE p.months WHEN 1 THEN ' month' ELSE ' months' END END,
        CASE WHEN p.days <> 0 THEN p.days || CASE p.days WHEN 1 THEN ' day' ELSE ' days' END END,
        CASE WHEN p.hours <> 0 THEN p.hours || CASE p.hours WHEN 1 THEN ' hour' ELSE ' hours' END END,
        CASE WHEN p.minutes <> 0 THEN p.minutes || ' min' END,
        CASE WHEN p.ms <> 0 AND abs(p.ms) < 1000 THEN trim_scale(p.ms) || ' ms'
            WHEN p.ms <> 0 THEN trim_scale(p.ms / 1000) || ' s' END), ''), '0 s')
    FROM (SELECT extract(year FROM span)::int AS years, extract(month FROM span)::int AS months,
          extract(day FROM span)::int AS days,
                 extract(hour FROM span)::int AS hours, extract(minute FROM span)::int AS minutes,
                 extract(milliseconds FROM span)::numeric AS ms) p;
END;

-- _sas.span_texts(spans): an array of intervals as texts; null for null.
CREATE FUNCTION _sas.span_texts(spans interval[]) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE WHEN spans IS NOT NULL THEN coalesce(jsonb_agg(_sas.span_text(s.span) ORDER BY s.n), '[]') END
    FROM unnest(spans) WITH ORDINALITY AS s (span, n);
END;

-- _sas.function_text(f): the name of a function as a definition has it: quoted where it must be, whatever
-- the session's quote_all_identifiers. Another text would be another version of the workflow.
CREATE FUNCTION _sas.function_text(f regproc) RETURNS text
LANGUAGE sql STABLE STRICT PARALLEL SAFE SET quote_all_identifiers = off
BEGIN ATOMIC
    SELECT format('%I.%I', n.nspname, p.proname)
    FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace WHERE p.oid = f;
END;

-- _sas.object(pairs): {"key": value ...} from those pairs whose value is not null.
CREATE FUNCTION _sas.object(VARIADIC pairs jsonb[]) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT coalesce(jsonb_object_agg(pairs[n] #>> '{}', pairs[n + 1]), '{}')
    FROM generate_series(1, cardinality(pairs), 2) n WHERE pairs[n + 1] IS NOT NULL;
END;

-- _sas.on_failure(either, transient, permanent): the value of the key on_failure.
CREATE FUNCTION _sas.on_failure(either text, transient text, permanent text) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE WHEN transient IS NULL AND permanent IS NULL THEN to_jsonb(either)
                ELSE _sas.object('"transient"', to_jsonb(coalesce(transient, either)),
                                 '"permanent"', to_jsonb(coalesce(permanent, either))) END;
END;

-- _sas.either(name, value, other_name, other): the value of a key that has an argument for each of its types;
-- raises an error if both are given.
CREATE FUNCTION _sas.either(name text, value jsonb, other_name text, other jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT _sas.refuse('22023', format('%s and %s exclude each other', name, other_name),
                       format('At /%s.', other_name), 'They are the same key: give one of them.')
    WHERE value IS NOT NULL AND other IS NOT NULL;
    SELECT coalesce(value, other);
END;

-- the whole
CREATE FUNCTION sas.workflow(steps jsonb, flow jsonb DEFAULT NULL, output jsonb DEFAULT NULL,
                             on_failure text DEFAULT NULL, on_transient text DEFAULT NULL,
                             on_permanent text DEFAULT NULL, recovery jsonb DEFAULT NULL,
                             deadline interval DEFAULT NULL, finalize regproc DEFAULT NULL,
                             priority int DEFAULT NULL, queue text DEFAULT NULL,
                             concurrency jsonb DEFAULT NULL, plan regproc DEFAULT NULL,
                             hooks jsonb DEFAULT NULL, auto_rescue boolean DEFAULT NULL,
                             mask text[] DEFAULT NULL) RETURNS jsonb
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT _sas.object('"steps"', steps, '"flow"', flow, '"output"', output,
                       '"on_failure"', _sas.on_failure(on_failure, on_transient, on_permanent),
                       '"recovery"', recovery, '"deadline"', to_jsonb(_sas.span_text(deadline)),
                       '"finalize"', to_jsonb(_sas.function_text(finalize)),
                       '"priority"', to_jsonb(priority), '"queue"', to_jsonb(queue),
                       '"concurrency"', concurrency, '"plan"', to_jsonb(_sas.function_text(plan)),
                       '"hooks"', hooks, '"auto_rescue"', to_jsonb(auto_rescue),
                       '"mask"', to_jsonb(mask));
END;
COMMENT ON FUNCTION sas.workflow IS
    'A definition for sas.create_workflow: steps from sas.steps, flow from sas.sequence and '
    'sas.concurrence.';

CREATE FUNCTION sas.steps(VARIADIC steps jsonb[] DEFAULT '{}') RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT _sas.refuse('42710', format('step "%s" appears twice', e.key), 'At /steps.',
                       'Give each step its own name.')
    FROM unnest(steps) s CROSS JOIN LATERAL jsonb_object_keys(s) AS e (key)
    GROUP BY e.key HAVING count(*) > 1 LIMIT 1;
    SELECT coalesce(jsonb_object_agg(e.key, e.value), '{}')
    FROM unnest(steps) s CROSS JOIN LATERAL jsonb_each(s) e;
END;
COMMENT ON FUNCTION sas.steps(jsonb[]) IS 'The steps of a definition, from sas.step.';

CREATE FUNCTION sas.step(name text, body jsonb, after text[] DEFAULT NULL, undo jsonb DEFAULT NULL,
                         expect text DEFAULT NULL, expect_status text[] DEFAULT NULL,
                         output jsonb DEFAULT NULL, retry jsonb DEFAULT NULL,
                         complete_in interval DEFAULT NULL, recovery jsonb DEFAULT NULL,
                         on_failure text DEFAULT NULL, on_transient text DEFAULT NULL,
                         on_permanent text DEFAULT NULL, pivot boolean DEFAULT NULL,
                         only_when text DEFAULT NULL, otherwise text DEFAULT NULL, each text DEFAULT NULL,
                         concurrency int DEFAULT NULL, max_failed int DEFAULT NULL, repeat jsonb DEFAULT NULL,
                         poll jsonb DEFAULT NULL, fallback jsonb DEFAULT NULL, finalize regproc DEFAULT NULL,
                         agents text DEFAULT NULL, priority int DEFAULT NULL, queue text DEFAULT NULL,
                         weight float8 DEFAULT NULL)
RETURNS jsonb
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT _sas.refuse('22004', 'the name of a step must not be null', 'At /name.',
                       'Other steps and sas.steps know the step by it.') WHERE name IS NULL;
    SELECT jsonb_build_object(name, body || _sas.object(
        '"after"', to_jsonb(after), '"undo"', undo,
        '"expect"', _sas.either('expect', to_jsonb(expect), 'expect_status', to_jsonb(expect_status)),
        '"output"', output,
        '"retry"', retry, '"complete_in"', to_jsonb(_sas.span_text(complete_in)), '"recovery"', recovery,
        '"on_failure"', _sas.on_failure(on_failure, on_transient, on_permanent),
        '"pivot"', to_jsonb(pivot), '"when"', to_jsonb(only_when), '"else"', to_jsonb(otherwise),
        '"each"', to_jsonb(each), '"concurrency"', to_jsonb(concurrency),
        '"max_failed"', to_jsonb(max_failed), '"repeat"', repeat, '"poll"', poll, '"fallback"', fallback,
        '"finalize"', to_jsonb(_sas.function_text(finalize)),
        '"agents"', to_jsonb(agents), '"priority"', to_jsonb(priority), '"queue"', to_jsonb(queue),
        '"weight"', to_jsonb(weight::numeric)));
END;
COMMENT ON FUNCTION sas.step IS
    'A step by name. body comes from sas.call, sas.task, sas.function, sas.wait_signal, sas.wait_until, '
    'sas.sleep, sas.child or sas.include. only_when and otherwise are the keys when and else.';

-- what a step does
CREATE FUNCTION sas.call(agent text DEFAULT NULL, method text DEFAULT NULL, path text DEFAULT NULL,
                         query jsonb DEFAULT NULL, headers jsonb DEFAULT NULL, body jsonb DEFAULT NULL,
                         form jsonb DEFAULT NULL, text text DEFAULT NULL, timeout interval DEFAULT NULL)
RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT _sas.object('"agent"', to_jsonb(agent),
                       '"call"', _sas.object('"method"', to_jsonb(method), '"path"', to_jsonb(path),
                                             '"query"', query, '"headers"', headers, '"body"', body,
                                             '"form"', form,
                                             '"text"', to_jsonb(text),
                                             '"timeout"', to_jsonb(_sas.span_text(timeout))));
END;
COMMENT ON FUNCTION sas.call IS
    'A call through an agent. In an undo, poll or fallback the agent may be omitted: it is the agent of the '
    'step.';

CREATE FUNCTION sas.task(agent text, input jsonb DEFAULT NULL) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT _sas.object('"agent"', to_jsonb(agent), '"task"', '{}', '"input"', input);
END;
COMMENT ON FUNCTION sas.task IS 'A task that an outside agent claims.';

CREATE FUNCTION sas.function(name regproc, input jsonb DEFAULT NULL) RETURNS jsonb
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT _sas.object('"function"', to_jsonb(_sas.function_text(name)), '"input"', input);
END;
COMMENT ON FUNCTION sas.function IS
    'A call of a function (jsonb) RETURNS jsonb of this database. The function must exist already.';

CREATE FUNCTION sas.wait_signal(signal text, timeout interval DEFAULT NULL, on_timeout text DEFAULT NULL)
RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT _sas.object('"wait"', _sas.object('"signal"', to_jsonb(signal),
                                             '"timeout"', to_jsonb(_sas.span_text(timeout)),
                                             '"on_timeout"', to_jsonb(on_timeout)));
END;
COMMENT ON FUNCTION sas.wait_signal IS 'Waits for a signal; the output is its payload.';

CREATE FUNCTION sas.wait_until(instant text) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT _sas.object('"wait"', _sas.object('"until"', to_jsonb(instant)));
END;
COMMENT ON FUNCTION sas.wait_until IS
    'Waits until an instant, usually a reference: sas.wait_until(''{{input.departure}}'').';

CREATE FUNCTION sas.sleep(span interval) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT _sas.object('"wait"', _sas.object('"for"', to_jsonb(_sas.span_text(span))));
END;
COMMENT ON FUNCTION sas.sleep IS 'Waits for a span of time.';

CREATE FUNCTION sas.child(workflow text, input jsonb DEFAULT NULL) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT _sas.object('"workflow"', to_jsonb(workflow), '"input"', input);
END;
COMMENT ON FUNCTION sas.child IS 'A run of another workflow, as a child of this one.';

CREATE FUNCTION sas.include(workflow text, input jsonb DEFAULT NULL) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT _sas.object('"include"', to_jsonb(workflow), '"input"', input);
END;
COMMENT ON FUNCTION sas.include IS
    'The steps of another workflow, inlined under the name of this step; as an undo or a fallback a run of '
    'its own.';

-- parts beside the body of a step
CREATE FUNCTION sas.undo(body jsonb, expect text DEFAULT NULL, expect_status text[] DEFAULT NULL,
                         retry jsonb DEFAULT NULL, complete_in interval DEFAULT NULL,
                         recovery jsonb DEFAULT NULL, poll jsonb DEFAULT NULL) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT body || _sas.object('"poll"', poll,
                               '"expect"', _sas.either('expect', to_jsonb(expect), 'expect_status',
                                                       to_jsonb(expect_status)),
                               '"retry"', retry, '"complete_in"', to_jsonb(_sas.span_text(complete_in)),
                               '"recovery"', recovery);
END;
COMMENT ON FUNCTION sas.undo IS
    'An undo with options. An undo without options is the body itself: sas.step(..., undo => '
    'sas.call(...)).';

CREATE FUNCTION sas.fallback(body jsonb, conditions text[] DEFAULT NULL) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT body || _sas.object('"on"', to_jsonb(conditions));
END;
COMMENT ON FUNCTION sas.fallback IS
    'A body that is tried instead of the body of the step. conditions is the key on: breaker_open, failed.';

CREATE FUNCTION sas.poll(ask jsonb, until text, every interval DEFAULT NULL, max_every interval DEFAULT NULL,
                         timeout interval DEFAULT NULL, progress text DEFAULT NULL) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    -- what a poll does not have, such as an agent, is refused with the definition
    SELECT coalesce(ask, '{}') || _sas.object('"every"', to_jsonb(_sas.span_text(every)),
                       '"max_every"', to_jsonb(_sas.span_text(max_every)),
                       '"until"', to_jsonb(until), '"timeout"', to_jsonb(_sas.span_text(timeout)),
                       '"progress"', to_jsonb(progress));
END;
COMMENT ON FUNCTION sas.poll IS 'How the outcome of a call is polled. ask is a sas.call without agent.';

CREATE FUNCTION sas.repeat(while text, max int DEFAULT NULL, every interval DEFAULT NULL) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT _sas.object('"while"', to_jsonb(while), '"max"', to_jsonb(max),
                       '"every"', to_jsonb(_sas.span_text(every)));
END;
COMMENT ON FUNCTION sas.repeat IS 'Repeats a step, one iteration after the other, while a predicate is true.';

CREATE FUNCTION sas.retry_policy(max_attempts int DEFAULT NULL, initial interval DEFAULT NULL,
                                 max interval DEFAULT NULL, backoff text DEFAULT NULL,
                                 jitter boolean DEFAULT NULL,
                                 codes text[] DEFAULT NULL, pauses interval[] DEFAULT NULL) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT _sas.object('"max_attempts"', to_jsonb(max_attempts),
                       '"initial"', to_jsonb(_sas.span_text(initial)), '"max"', to_jsonb(_sas.span_text(max)),
                       '"backoff"', to_jsonb(backoff), '"jitter"', to_jsonb(jitter), '"on"', to_jsonb(codes),
                       '"pauses"', _sas.span_texts(pauses));
END;
COMMENT ON FUNCTION sas.retry_policy IS
    'The key retry of a step or agent: attempts inside one window. codes is the key on: statuses or '
    'SQLSTATEs.';

CREATE FUNCTION sas.recovery_policy(max_failures int DEFAULT NULL, initial interval DEFAULT NULL,
                                    max interval DEFAULT NULL, backoff text DEFAULT NULL,
                                    jitter boolean DEFAULT NULL,
                                    pauses interval[] DEFAULT NULL) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT _sas.object('"max_failures"', to_jsonb(max_failures),
                       '"initial"', to_jsonb(_sas.span_text(initial)), '"max"', to_jsonb(_sas.span_text(max)),
                       '"backoff"', to_jsonb(backoff), '"jitter"', to_jsonb(jitter),
                       '"pauses"', _sas.span_texts(pauses));
END;
COMMENT ON FUNCTION sas.recovery_policy IS
    'The key recovery of a step or run: further windows after windows that failed.';

CREATE FUNCTION sas.hook(event text DEFAULT NULL, function regproc DEFAULT NULL, notify text DEFAULT NULL,
                         call jsonb DEFAULT NULL, events text[] DEFAULT NULL, retry jsonb DEFAULT NULL,
                         recovery jsonb DEFAULT NULL, complete_in interval DEFAULT NULL,
                         expect text DEFAULT NULL, expect_status text[] DEFAULT NULL) RETURNS jsonb
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT _sas.object('"on"', _sas.either('event', to_jsonb(event), 'events', to_jsonb(events)),
                       '"function"', to_jsonb(_sas.function_text(function)), '"notify"', to_jsonb(notify),
                       '"retry"', retry, '"recovery"', recovery,
                       '"complete_in"', to_jsonb(_sas.span_text(complete_in)),
                       '"expect"', _sas.either('expect', to_jsonb(expect), 'expect_status',
                                               to_jsonb(expect_status)))
           || coalesce(call, '{}');
END;
COMMENT ON FUNCTION sas.hook IS
    'One entry of hooks. event or events is the key on: states or results of the run (omitted: every '
    'state). call comes from sas.call. Combine hooks with jsonb_build_array.';

-- flow
CREATE FUNCTION sas.sequence(VARIADIC parts "any") RETURNS jsonb
LANGUAGE C STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'sas_api_sequence';
COMMENT ON FUNCTION sas.sequence IS
    'A part of a flow whose parts run one after the other. Parts are names of steps, sas.sequence and '
    'sas.concurrence.';

CREATE FUNCTION sas.concurrence(VARIADIC parts "any") RETURNS jsonb
LANGUAGE C STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'sas_api_concurrence';
COMMENT ON FUNCTION sas.concurrence IS
    'A part of a flow whose parts run side by side. Parts are names of steps, sas.sequence and '
    'sas.concurrence.';

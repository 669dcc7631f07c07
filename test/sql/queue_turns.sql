-- SPDX-License-Identifier: PostgreSQL
--
-- Slots of a queue: owners take turns for each slot that gets free, and leave slots to other owners that use the queue, too.
\set SHOW_CONTEXT never
SELECT t.clean() \g /dev/null
SELECT sas.create_queue('shared', 8), sas.create_queue('turned', 1, key => '{{input.n?}}', per_key => 1) \g /dev/null
SELECT t.workflow('slow', '{"a": {"agent": "inventory", "call": {}, "queue": "shared"}}'), t.workflow('under_key', '{"a": {"agent": "inventory", "call": {}, "queue": "turned"}}') \g /dev/null
CREATE ROLE sas_test_queue_a;
CREATE ROLE sas_test_queue_b;
CREATE ROLE sas_test_queue_c;
SELECT sas.grant_usage(r::regrole, 'user'), t.allow(r::regrole) FROM unnest('{sas_test_queue_a,sas_test_queue_b,sas_test_queue_c}'::text[]) r \g /dev/null
GRANT USAGE ON SCHEMA t TO sas_test_queue_a, sas_test_queue_b, sas_test_queue_c;
-- t.runs_of(owner, workflow, inputs): that role submits them; how many
CREATE FUNCTION t.runs_of(owner text, workflow text, inputs jsonb[]) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    made bigint;
BEGIN
    PERFORM set_config('role', 'sas_test_queue_' || owner, true);
    SELECT count(*) INTO made FROM sas.submit_batch(workflow, inputs);
    PERFORM set_config('role', 'none', true);
    RETURN made;
END $$;
-- t.slots(queue): how many slots each owner has, once all that can be given are given
CREATE FUNCTION t.slots(queue text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM t.settle();
    RETURN (SELECT string_agg(right(x.owner, 1) || ' ' || x.n, ', ' ORDER BY x.owner)
            FROM (SELECT r.owner::text, count(*) AS n FROM _sas.queue_slot p JOIN _sas.queue q USING (queue_id) JOIN _sas.run r USING (run_id) WHERE q.name = $1 GROUP BY 1) x);
END $$;
-- t.done(owner, n): the first steps of an owner that have a slot end
CREATE FUNCTION t.done(owner text, quantity int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM t.claim();
    PERFORM t.answer('a', for_run => x.run_id)
    FROM (SELECT h.run_id FROM t.held h JOIN _sas.run r USING (run_id) WHERE r.owner::text = 'sas_test_queue_' || $1 ORDER BY 1 LIMIT $2) x;
END $$;

\echo a role that uses a queue alone has all slots
SELECT t.runs_of('a', 'slow', array_fill('{}'::jsonb, '{30}'));
SELECT t.slots('shared');
\echo once another one has asked for a slot, each leaves some: the next slots that get free are for others
SELECT t.runs_of('b', 'slow', array_fill('{}'::jsonb, '{1}'));
SELECT t.slots('shared');
SELECT t.done('a', 1);
SELECT t.slots('shared');
SELECT t.done('b', 1);
SELECT t.slots('shared');
SELECT text FROM sas.explain() WHERE waiting_kind = 'queue';
SELECT t.runs_of('b', 'slow', array_fill('{}'::jsonb, '{1}'));
SELECT t.slots('shared');
SELECT t.done('b', 1);
\echo as many of one as there are left for others, seven times
SELECT t.done('a', 3);
SELECT t.slots('shared');
SELECT t.runs_of('b', 'slow', array_fill('{}'::jsonb, '{30}'));
SELECT t.slots('shared');
SELECT t.done('a', 3);
SELECT t.slots('shared');
\echo the last slot is for one that has none
SELECT t.done('a', 100), t.done('b', 2);
SELECT t.slots('shared');
SELECT t.runs_of('c', 'slow', array_fill('{}'::jsonb, '{1}'));
SELECT t.slots('shared');
SELECT count(*) BETWEEN 2 AND 3 AS known FROM _sas.queue_user;
\echo what a role owns goes to another one that uses the queue, too
BEGIN;
REASSIGN OWNED BY sas_test_queue_a TO sas_test_queue_b;
REASSIGN OWNED BY sas_test_queue_c TO sas_test_queue_b;
SELECT owner, count(*) FROM _sas.run GROUP BY 1;
ROLLBACK;
\echo an hour later, one that is alone has all again
SELECT t.later('61 min');
SELECT t.clean() \g /dev/null
SELECT t.runs_of('a', 'slow', array_fill('{}'::jsonb, '{3}')), t.runs_of('b', 'slow', array_fill('{}'::jsonb, '{3}'));
SELECT t.slots('shared');
SELECT t.done('a', 3), t.done('b', 3);
SELECT t.later('61 min');
SELECT t.runs_of('a', 'slow', array_fill('{}'::jsonb, '{30}'));
SELECT t.slots('shared');
\echo a queue with one slot, and a key: owners take turns, whoever came first
SELECT t.clean() \g /dev/null
SELECT t.runs_of('a', 'under_key', ARRAY(SELECT jsonb_build_object('n', n) FROM generate_series(1, 20) n));
SELECT t.later('1 h');
SELECT t.runs_of('b', 'under_key', ARRAY['{"n": 100}', '{"n": 101}', '{}']::jsonb[]);
CREATE FUNCTION t.turns(rounds int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    took text := '';
    of_now text;
BEGIN
    FOR i IN 1 .. rounds LOOP
        of_now := left(t.slots('turned'), 1);
        took := took || of_now;
        PERFORM t.done(of_now, 1);
    END LOOP;
    RETURN took;
END $$;
SELECT t.turns(8) ~ '^a?(ba|ab){3}a*$' AS by_turns;
\echo what has no room under its key takes no turn of the others
SELECT t.clean() \g /dev/null
SELECT sas.create_queue('turned', 2, key => '{{input.n?}}', per_key => 1);
SELECT t.runs_of('a', 'under_key', array_fill('{"n": 1}'::jsonb, '{30}')), t.runs_of('b', 'under_key', array_fill('{"n": 2}'::jsonb, '{30}'));
SELECT t.slots('turned');
SELECT t.turns(10) ~ '^[ab]{10}$' AS goes_on;
SELECT t.slots('turned');

SELECT t.clean() \g /dev/null
DROP FUNCTION t.runs_of, t.slots, t.done, t.turns;
SELECT sas.drop_workflow(w) FROM unnest('{slow,under_key}'::text[]) w \g /dev/null
SELECT sas.drop_queue(q) FROM unnest('{shared,turned}'::text[]) q \g /dev/null
DROP OWNED BY sas_test_queue_a, sas_test_queue_b, sas_test_queue_c;
DROP ROLE sas_test_queue_a, sas_test_queue_b, sas_test_queue_c;

-- SPDX-License-Identifier: PostgreSQL
--
-- Builder: what the functions build is the JSON that one would write.
\set QUIET on
\pset format unaligned
\pset tuples_only on
\pset pager off
SELECT no_plan();

CREATE SCHEMA shop;
CREATE FUNCTION shop.book_order(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT input $$;
CREATE FUNCTION shop.unbook_order(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT input $$;
CREATE FUNCTION shop.order_done(context jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT context $$;
CREATE FUNCTION shop."Odd name"(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT input $$;
GRANT USAGE ON SCHEMA shop TO PUBLIC;
SELECT sas.create_agent(n, 'http://127.0.0.1:1/' || n) FROM unnest('{inventory,payments,shipping}'::text[]) n \g /dev/null

CREATE ROLE builder_user;
SELECT sas.grant_usage('builder_user', 'user'), sas.grant_agent(name, 'builder_user') FROM sas.agents \g /dev/null
SET ROLE builder_user;

-- the order workflow of the demo, as in examples/demo/shop.sql ---------------------------------------

SELECT is(sas.workflow(
    sas.steps(
        sas.step('reserve', sas.call('inventory', 'POST', '/reservations', body => '{"order": "{{input.order_id}}", "sku": "{{input.sku}}"}'),
                 undo => sas.call(method => 'DELETE', path => '/reservations/{{steps.reserve.output.body.id}}'), complete_in => '10 s'),
        sas.step('slot', sas.call('shipping', 'POST', '/slots', body => '{"order": "{{input.order_id}}"}'),
                 undo => sas.call(method => 'DELETE', path => '/slots/{{steps.slot.output.body.id}}'), complete_in => '10 s'),
        sas.step('charge', sas.call('payments', 'POST', '/charges', body => '{"order": "{{input.order_id}}", "amount": "{{input.amount}}", "card": "{{input.card}}"}'), after => '{reserve}',
                 undo => sas.call(method => 'POST', path => '/refunds', body => '{"charge": "{{steps.charge.output.body.id}}"}'), complete_in => '10 s'),
        sas.step('book', sas.function('shop.book_order', '{"order_id": "{{input.order_id}}", "amount": "{{input.amount}}", "charge": "{{steps.charge.output.body.id}}"}'),
                 undo => sas.function('shop.unbook_order')),
        sas.step('ship', sas.call('shipping', 'POST', '/shipments', body => '{"order": "{{input.order_id}}", "sku": "{{input.sku}}"}'), after => '{book,slot}',
                 undo => sas.call(method => 'DELETE', path => '/shipments/{{steps.ship.output.body.id}}'), complete_in => '10 s', priority => 1)),
    output => '{"charge": "{{steps.charge.output.body.id}}", "shipment": "{{steps.ship.output.body.id}}"}',
    recovery => sas.recovery_policy(max_failures => 8, initial => '500 ms', max => '5 s'),
    on_failure => 'compensate', deadline => '10 min', finalize => 'shop.order_done'),
$$
{
  "steps": {
    "reserve": { "agent": "inventory",
                 "call": { "method": "POST", "path": "/reservations",
                           "body": { "order": "{{input.order_id}}", "sku": "{{input.sku}}" } },
                 "undo": { "call": { "method": "DELETE",
                                     "path": "/reservations/{{steps.reserve.output.body.id}}" } },
                 "complete_in": "10 s" },

    "slot":    { "agent": "shipping",
                 "call": { "method": "POST", "path": "/slots",
                           "body": { "order": "{{input.order_id}}" } },
                 "undo": { "call": { "method": "DELETE",
                                     "path": "/slots/{{steps.slot.output.body.id}}" } },
                 "complete_in": "10 s" },

    "charge":  { "agent": "payments", "after": ["reserve"],
                 "call": { "method": "POST", "path": "/charges",
                           "body": { "order": "{{input.order_id}}", "amount": "{{input.amount}}",
                                     "card": "{{input.card}}" } },
                 "undo": { "call": { "method": "POST", "path": "/refunds",
                                     "body": { "charge": "{{steps.charge.output.body.id}}" } } },
                 "complete_in": "10 s" },

    "book":    { "function": "shop.book_order",
                 "input": { "order_id": "{{input.order_id}}", "amount": "{{input.amount}}",
                            "charge": "{{steps.charge.output.body.id}}" },
                 "undo": { "function": "shop.unbook_order" } },

    "ship":    { "agent": "shipping", "after": ["book", "slot"],
                 "call": { "method": "POST", "path": "/shipments",
                           "body": { "order": "{{input.order_id}}", "sku": "{{input.sku}}" } },
                 "undo": { "call": { "method": "DELETE",
                                     "path": "/shipments/{{steps.ship.output.body.id}}" } },
                 "complete_in": "10 s", "priority": 1 }
  },
  "output": { "charge": "{{steps.charge.output.body.id}}", "shipment": "{{steps.ship.output.body.id}}" },
  "recovery": { "max_failures": 8, "initial": "500 ms", "max": "5 s" },
  "on_failure": "compensate",
  "deadline": "10 min",
  "finalize": "shop.order_done"
}
$$::jsonb, 'the order workflow of the demo, built, is the order workflow as it is written');

-- keys -------------------------------------------------------------------------------------------

SELECT is(sas.workflow(sas.steps()), '{"steps": {}}', 'what is not said leaves no key');
SELECT is(sas.workflow('{}', sas.sequence('a', sas.concurrence('b', 'c'), 'd'), '1', 'pause', NULL, 'skip', sas.recovery_policy(1, '1 s', '1 min', 'linear', false), '2 days', 'shop.order_done', 3, 'slow',
                       '{"key": "{{input.k}}", "limit": 2}', 'shop.book_order', jsonb_build_array(sas.hook('success', 'shop.order_done'), sas.hook('error', notify => 'failed'), sas.hook(notify => 'all_of_it'), sas.hook('paused', call => sas.call('ops', path => '/x')),
                                                           sas.hook(events => '{failure,paused}', call => sas.call('ops'), retry => sas.retry_policy(2), recovery => sas.recovery_policy(3), complete_in => '20 s', expect_status => '{2xx}'))),
    '{"steps": {}, "flow": {"sequence": ["a", {"concurrence": ["b", "c"]}, "d"]}, "output": 1, "on_failure": {"transient": "pause", "permanent": "skip"},
      "recovery": {"max_failures": 1, "initial": "1 s", "max": "1 min", "backoff": "linear", "jitter": false}, "deadline": "2 days", "finalize": "shop.order_done", "priority": 3, "queue": "slow",
      "concurrency": {"key": "{{input.k}}", "limit": 2}, "plan": "shop.book_order",
      "hooks": [{"on": "success", "function": "shop.order_done"}, {"on": "error", "notify": "failed"}, {"notify": "all_of_it"}, {"on": "paused", "agent": "ops", "call": {"path": "/x"}},
                {"on": ["failure", "paused"], "agent": "ops", "call": {}, "retry": {"max_attempts": 2}, "recovery": {"max_failures": 3}, "complete_in": "20 s", "expect": ["2xx"]}]}', 'every key of a run');
SELECT is(sas.step('s', sas.call('a', 'PUT', '/p', '{"q": null}', '{"X-A": "b"}', form => '{"f": 1}', timeout => '1.5 s'), '{x,y}', sas.undo(sas.call(path => '/u'), expect_status => '{2xx,404}', complete_in => '5 s',
                            retry => sas.retry_policy(2), recovery => sas.recovery_policy(3), poll => sas.poll(sas.call(path => '/gone'), '$.output.status == 404')), '$.output.ok == true', NULL, '{"k": "{{output.x}}"}', sas.retry_policy(3, '100 ms', '1 s', 'constant', true, '{409,5xx}'),
                            '20 s', sas.recovery_policy(4), on_transient => 'skip', pivot => true, only_when => '$.input.go == true', otherwise => 'skip_cascade', each => '{{input.items}}', concurrency => 5, max_failed => 1,
                            repeat => sas.repeat('$.last.more == true', 10, '1 s'), poll => sas.poll(sas.call(path => '/jobs'), '$.output.done == true', '1 s', '1 min', '1 hour'),
                            fallback => sas.fallback(sas.function('shop.book_order'), '{failed}'), finalize => 'shop.order_done', agents => 'a*', priority => -1, queue => 'q', weight => 2),
    '{"s": {"agent": "a", "call": {"method": "PUT", "path": "/p", "query": {"q": null}, "headers": {"X-A": "b"}, "form": {"f": 1}, "timeout": "1.5 s"}, "after": ["x", "y"],
            "undo": {"call": {"path": "/u"}, "expect": ["2xx", "404"], "complete_in": "5 s", "retry": {"max_attempts": 2}, "recovery": {"max_failures": 3}, "poll": {"call": {"path": "/gone"}, "until": "$.output.status == 404"}}, "expect": "$.output.ok == true",
            "output": {"k": "{{output.x}}"}, "retry": {"max_attempts": 3, "initial": "100 ms", "max": "1 s", "backoff": "constant", "jitter": true, "on": ["409", "5xx"]}, "complete_in": "20 s",
            "recovery": {"max_failures": 4}, "on_failure": {"transient": "skip"}, "pivot": true, "when": "$.input.go == true", "else": "skip_cascade", "each": "{{input.items}}", "concurrency": 5, "max_failed": 1,
            "repeat": {"while": "$.last.more == true", "max": 10, "every": "1 s"}, "poll": {"call": {"path": "/jobs"}, "every": "1 s", "max_every": "1 min", "until": "$.output.done == true", "timeout": "1 hour"},
            "fallback": {"function": "shop.book_order", "on": ["failed"]}, "finalize": "shop.order_done", "agents": "a*", "priority": -1, "queue": "q", "weight": 2}}', 'every key of a step');
SELECT is(sas.steps(sas.step('a', sas.task('w', '{"x": 1}')), sas.step('b', sas.wait_signal('go', '2 days')), sas.step('c', sas.wait_until('{{input.at}}')), sas.step('d', sas.sleep('1 min 30 s')),
                    sas.step('e', sas.child('shipping', '{"o": "{{input.o}}"}')), sas.step('f', sas.include('billing')), sas.step('g', sas.function('shop."Odd name"'))),
    '{"a": {"agent": "w", "task": {}, "input": {"x": 1}}, "b": {"wait": {"signal": "go", "timeout": "2 days"}}, "c": {"wait": {"until": "{{input.at}}"}}, "d": {"wait": {"for": "1 min 30 s"}},
      "e": {"workflow": "shipping", "input": {"o": "{{input.o}}"}}, "f": {"include": "billing"}, "g": {"function": "shop.\"Odd name\""}}', 'every kind of step');
SELECT is(jsonb_build_array(sas.retry_policy(pauses => '{1 s,90 s}'), sas.recovery_policy(9, pauses => '{1 hour}')), '[{"pauses": ["1 s", "1 min 30 s"]}, {"pauses": ["1 hour"], "max_failures": 9}]', 'pauses one by one');
RESET ROLE;
SELECT is(_sas.span_text(s), t, format('a span %s is written as %s', s, t))
FROM (VALUES ('0'::interval, '0 s'), ('1 ms', '1 ms'), ('1500 ms', '1.5 s'), ('59.25 s', '59.25 s'), ('90 s', '1 min 30 s'), ('36 hours', '36 hours'), ('1 hour', '1 hour'), ('1 day 2 hours', '1 day 2 hours'),
             ('1 year 2 mons 3 days 04:05:06.007', '1 year 2 months 3 days 4 hours 5 min 6.007 s'), ('250 us', '0.25 ms')) x (s, t);
SELECT is(_sas.span_text(s)::interval, s, format('and %s means that', _sas.span_text(s))) FROM unnest('{0,1 ms,1.5 s,90 s,36 hours,1 year 2 mons 3 days 04:05:06.007,250 us}'::interval[]) s;
SET ROLE builder_user;

-- what is refused, and what is good to run ---------------------------------------------------------

SELECT throws_ok($$SELECT sas.steps(sas.step('a', sas.sleep('1 s')), sas.step('a', sas.sleep('1 s')))$$, '42710', 'step "a" appears twice', 'two steps of one name are refused');
SELECT throws_ok($$SELECT sas.function('shop.nope')$$, '42883', NULL, 'a function that is not there is refused as it is written');
SELECT throws_ok($$SELECT sas.sleep('soon')$$, '22007', NULL, 'and so is a span');
-- one key, two arguments: neither is dropped in silence
SELECT throws_ok(format('SELECT sas.%s', c), '22023', NULL, format('sas.%s is refused', c))
FROM unnest(ARRAY[$$step('a', sas.call('inventory'), expect => '$.output.status == 201', expect_status => '{200}')$$, $$undo(sas.call(path => '/u'), '$.output.status == 201', '{200}')$$,
                  $$hook('success', events => '{paused}', notify => 'n')$$, $$hook('success', notify => 'n', expect => '$.output == 1', expect_status => '{200}')$$,
                  $$create_workflow('p', sas.workflow(sas.steps(sas.step('a', sas.call('inventory', 'POST'), poll => sas.poll(sas.call('payments', path => '/x'), '$.output.status == 200')))))$$]) c;
SELECT is(sas.retry_policy(pauses => '{}'), '{"pauses": []}', 'no pause is no list that is left out');
SELECT lives_ok($$SELECT sas.create_workflow('built', sas.workflow(sas.steps(sas.step('a', sas.call('inventory')), sas.step('b', sas.function('shop.book_order')), sas.step('c', sas.function('shop.book_order'))),
                  sas.sequence('a', sas.concurrence('b', 'c')), deadline => '1 hour',
                  hooks => jsonb_build_array(sas.hook('success', 'shop.order_done'), sas.hook(events => '{paused,failure}', call => sas.call('inventory'), retry => sas.retry_policy(2)))))$$, 'what was built is taken');
-- parts as an array, and nulls
SELECT is(sas.sequence(VARIADIC '{a,b}'::text[]), '{"sequence": ["a", "b"]}', 'parts may come as an array');
SELECT is(sas.concurrence(VARIADIC ARRAY['"a"', sas.sequence('b', 'c')]::jsonb[]),
          '{"concurrence": ["a", {"sequence": ["b", "c"]}]}', 'of jsonb, too');
SELECT is(sas.sequence(VARIADIC '{}'::text[]), '{"sequence": []}', 'which may be empty');
SELECT is(sas.sequence(NULL), '{"sequence": [null]}', 'a part that is null is a JSON null');
SELECT is(sas.concurrence('a', NULL::jsonb), '{"concurrence": ["a", null]}', 'beside others, too');
SELECT throws_ok('SELECT sas.sequence(VARIADIC NULL::int[])', '22004', 'the parts of a sequence must not be null',
                 'an array of parts that is null is refused');
SELECT throws_ok('SELECT sas.concurrence(VARIADIC NULL::text[])', '22004', 'the parts of a concurrence must not be null',
                 'by sas.concurrence, too');
SELECT throws_ok($$SELECT sas.create_workflow('nulls', sas.workflow(sas.steps(sas.step('a', sas.function('shop.book_order'))),
                                                                  sas.sequence('a', NULL)))$$,
                 '22023', NULL, 'and a part that is null is refused with the definition');
RESET ROLE;
CREATE TEMP VIEW builder AS
SELECT DISTINCT g.signature::regprocedure AS f FROM _sas.privilege g WHERE g.part = 'builder';
SELECT is(ARRAY(SELECT b.f::text FROM builder b JOIN pg_proc p ON p.oid = b.f
                WHERE p.pronamespace = 'sas'::regnamespace AND obj_description(p.oid, 'pg_proc') IS NULL), '{}', 'each has a comment');
SELECT is(ARRAY(SELECT b.f::text FROM builder b JOIN pg_proc p ON p.oid = b.f WHERE p.provolatile = 'v'), '{}',
          'and none is volatile');

SELECT is(sas.workflow(sas.steps(), mask => '{input.card,output.receipt}') -> 'mask', '["input.card", "output.receipt"]', 'a mask');
SELECT is(sas.wait_signal('go', '1 h', on_timeout => 'go_on'), '{"wait": {"signal": "go", "timeout": "1 hour", "on_timeout": "go_on"}}', 'a wait that goes on when its time is over');

SELECT * FROM finish();

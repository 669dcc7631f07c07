-- SPDX-License-Identifier: PostgreSQL
--
-- How the demo shop tests its workflow "order" (examples/demo/shop.sql): with
-- pgTAP, without a worker and without a network. docs/how-to/testing.md explains it.
--
--   psql -d shop -c 'CREATE EXTENSION pgtap'
--   pg_prove -d shop examples/testing/order_test.sql
--
-- Everything happens in one transaction that is rolled back. Beside it the
-- shop may be at work.
\set QUIET on
\pset format unaligned
\pset tuples_only on
\pset pager off
BEGIN;
SELECT plan(22);

INSERT INTO shop.orders VALUES (1000001, 'ann', 'book', 9.50, '4111');
SELECT sas.set_clock('2030-01-01 09:00+00') \g /dev/null

-- What the three services say when all is well. A later stub that fits goes before these.
SELECT sas.stub('inventory', '{"status": 201, "body": {"id": "reservation-{{request.body.order}}"}}', method => 'POST'),
       sas.stub('inventory', '{"status": 204}', method => 'DELETE'),
       sas.stub('shipping', '{"status": 201, "body": {"id": "slot-1"}}', path => '/slots'),
       sas.stub('shipping', '{"status": 201, "body": {"id": "shipment-1"}}', path => '/shipments'),
       sas.stub('shipping', '{"status": 204}', method => 'DELETE'),
       sas.stub('payments', '{"status": 201, "body": {"id": "charge-{{request.body.order}}"}}', path => '/charges'),
       sas.stub('payments', '{"status": 201, "body": {"id": "refund-1"}}', path => '/refunds') \g /dev/null

\set order '{"order_id": 1000001, "sku": "book", "amount": 9.50, "card": "4111"}'

-- all is well ------------------------------------------------------------------------------
SAVEPOINT well;
SELECT results_eq(format('SELECT state, result, output FROM sas.run_inline(''order'', %L)', :'order'),
                  $$VALUES ('stopped', 'success', '{"charge": "charge-1000001", "shipment": "shipment-1"}'::jsonb)$$, 'an order goes through');
SELECT is((SELECT done FROM shop.orders WHERE order_id = 1000001), true, 'it is marked as done');
SELECT is((SELECT (charge, amount) FROM shop.ledger WHERE order_id = 1000001), ('charge-1000001'::text, 9.50::numeric(10,2)), 'and stands in the ledger');
SELECT is((SELECT request -> 'body' FROM sas.stubbed_calls('payments')), '{"order": 1000001, "amount": 9.50, "card": "4111"}', 'the card was charged once, with what is due');
SELECT is((SELECT array_agg(step ORDER BY call_no) FILTER (WHERE step IN ('charge', 'ship')) FROM sas.stubbed_calls()), '{charge,ship}', 'nothing was shipped before it was paid');
SELECT is((SELECT count(*) FROM sas.stubbed_calls() WHERE idempotency_key IS NULL), 0::bigint, 'every call has an Idempotency-Key');
ROLLBACK TO well;

-- the card is declined -------------------------------------------------------------------------
SAVEPOINT declined;
SELECT sas.stub('payments', '{"status": 402, "body": {"why": "declined"}}', path => '/charges') \g /dev/null
SELECT is((SELECT (result, error ->> 'status') FROM sas.run_inline('order', :'order')), ('compensated'::text, '402'::text), 'a declined card undoes the order');
SELECT is((SELECT array_agg(method || ' ' || path ORDER BY path) FROM sas.stubbed_calls() WHERE undo), '{"DELETE /reservations/reservation-1000001","DELETE /slots/slot-1"}',
          'goods and slot are given back');
SELECT is((SELECT count(*) FROM sas.stubbed_calls('payments')), 1::bigint, 'a refusal is not tried again');
SELECT is((SELECT count(*) FROM shop.ledger WHERE order_id = 1000001), 0::bigint, 'nothing stands in the ledger');
ROLLBACK TO declined;

-- a service that is slow to come back --------------------------------------------------------------
SAVEPOINT slow;
SELECT sas.stub('payments', '[503, {"error": "no connection"}, 503]') \g /dev/null
SELECT is((SELECT result FROM sas.run_inline('order', :'order')), 'success', 'three failures of payments cost time only');
SELECT is((SELECT (attempt, failure_count) FROM sas.steps WHERE step = 'charge'), (4, 0), 'they are four attempts in one window');
SELECT is((SELECT count(DISTINCT idempotency_key) FROM sas.stubbed_calls('payments')), 1::bigint, 'all under one key');
SELECT is((SELECT finished_at FROM sas.steps WHERE step = 'charge'), '2030-01-01 09:00:00.7+00', 'after 100, 200 and 400 ms: the clock has jumped, nobody waited');
ROLLBACK TO slow;

-- nobody knows whether the card was charged ----------------------------------------------------------
SAVEPOINT doubt;
SELECT sas.stub('payments', '[{"error": "timeout"}, {"error": "timeout"}, {"error": "timeout"}, {"error": "timeout"}]', path => '/charges') \g /dev/null
SELECT is((SELECT result FROM sas.run_inline('order', :'order')), 'success', 'a window full of time-outs is followed by another');
SELECT is((SELECT failure_count FROM sas.steps WHERE step = 'charge'), 1, 'it counts as one failure');
SELECT ok((SELECT finished_at - started_at FROM sas.steps WHERE step = 'charge') > '8 s', 'four time-outs of 2 s have passed on the clock');
SELECT is((SELECT count(*) FROM shop.ledger WHERE order_id = 1000001), 1::bigint, 'and the order is booked once');
ROLLBACK TO doubt;

-- the last step fails for good: everything before it is undone ---------------------------------------------
SAVEPOINT unshipped;
SELECT sas.stub('shipping', '409', path => '/shipments') \g /dev/null
SELECT is((SELECT result FROM sas.run_inline('order', :'order')), 'compensated', 'what cannot be shipped is undone');
SELECT is((SELECT request #>> '{body,charge}' FROM sas.stubbed_calls('payments') WHERE path = '/refunds'), 'charge-1000001', 'the charge is refunded');
SELECT is((SELECT count(*) FROM shop.ledger WHERE order_id = 1000001), 0::bigint, 'and taken out of the ledger');
ROLLBACK TO unshipped;

-- the booking itself fails: an order that does not exist -----------------------------------------------------
SELECT is((SELECT error ->> 'type' FROM sas.run_inline('order', '{"order_id": 1000002, "sku": "book", "amount": 1, "card": "4111"}')), 'urn:sas:sqlstate:23503',
          'an order that is not in the shop is not booked');

SELECT * FROM finish();
ROLLBACK;

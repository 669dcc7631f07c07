-- SPDX-License-Identifier: PostgreSQL
--
-- The shop's side of the demo: its tables, its two functions, three agents and
-- the workflow "order".
--
--   psql -v inventory_port=N -v payments_port=N -v shipping_port=N -f shop.sql

CREATE SCHEMA shop;

CREATE TABLE shop.orders (
    order_id int PRIMARY KEY,
    customer text NOT NULL,
    sku text NOT NULL,
    amount numeric(10,2) NOT NULL,
    card text NOT NULL,
    done boolean NOT NULL DEFAULT false
);
COMMENT ON TABLE shop.orders IS 'What customers ordered. done is set by the last step of a run that succeeded.';

CREATE TABLE shop.ledger (
    order_id int PRIMARY KEY REFERENCES shop.orders,
    charge text NOT NULL,
    amount numeric(10,2) NOT NULL,
    booked_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE shop.ledger IS 'One row for each order that was paid.';

-- A function step: what it writes and the end of the step are one commit.
CREATE FUNCTION shop.book_order(input jsonb) RETURNS jsonb
LANGUAGE sql AS $$
    INSERT INTO shop.ledger (order_id, charge, amount)
    VALUES ((input->>'order_id')::int, input->>'charge', (input->>'amount')::numeric)
    RETURNING to_jsonb(ledger)
$$;

-- Its undo.
CREATE FUNCTION shop.unbook_order(input jsonb) RETURNS jsonb
LANGUAGE sql AS $$
    WITH gone AS (
        DELETE FROM shop.ledger WHERE order_id = (input->>'order_id')::int RETURNING 1
    )
    SELECT jsonb_build_object('removed', count(*)) FROM gone
$$;

-- The last step of a run, once all others succeeded.
CREATE FUNCTION shop.order_done(context jsonb) RETURNS jsonb
LANGUAGE sql AS $$
    UPDATE shop.orders SET done = true
    WHERE order_id = (context->'input'->>'order_id')::int
    RETURNING jsonb_build_object('order_id', order_id)
$$;

-- Three guarded ways out. A breaker that opens for two seconds is short; it
-- lets the demo show one that opens and closes.
SELECT sas.create_agent('inventory',
    base_url => 'http://127.0.0.1:' || :'inventory_port',
    max_in_flight => 20,
    request_timeout => '2 s',
    retry => '{"max_attempts": 4, "initial": "100 ms", "max": "1 s"}',
    breaker => '{"failures": 15, "window": "5 s", "open_for": "2 s"}');

SELECT sas.create_agent('payments',
    base_url => 'http://127.0.0.1:' || :'payments_port',
    max_in_flight => 10,
    rate_limit => '60/s',
    request_timeout => '2 s',
    retry => '{"max_attempts": 4, "initial": "100 ms", "max": "1 s"}',
    breaker => '{"failures": 15, "window": "5 s", "open_for": "2 s"}');

SELECT sas.create_agent('shipping',
    base_url => 'http://127.0.0.1:' || :'shipping_port',
    max_in_flight => 20,
    request_timeout => '2 s',
    retry => '{"max_attempts": 4, "initial": "100 ms", "max": "1 s"}',
    breaker => '{"failures": 15, "window": "5 s", "open_for": "2 s"}');

-- "reserve" and "slot" depend on nothing and run at the same time; "charge"
-- waits for the goods, "book" for the charge it refers to, "ship" for all. An
-- order that is nearly done goes before one that has just begun: priority.
SELECT sas.create_workflow('order', $$
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
$$);

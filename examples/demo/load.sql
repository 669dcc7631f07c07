-- SPDX-License-Identifier: PostgreSQL
--
-- The orders and their runs come into being in one transaction: all of them,
-- or, should any be refused, none.
--
--   psql -f load.sql < orders.csv

BEGIN;

\copy shop.orders (order_id, customer, sku, amount, card) FROM pstdin WITH (FORMAT csv, HEADER true)

SELECT count(*) AS orders, count(*) FILTER (WHERE s.created) AS runs
FROM shop.orders o, LATERAL sas.submit('order', to_jsonb(o), key => o.order_id::text) s;

COMMIT;

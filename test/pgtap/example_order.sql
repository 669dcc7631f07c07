-- SPDX-License-Identifier: PostgreSQL
--
-- The example of how a user tests a workflow holds what it says, without any worker.
\set QUIET on
\set inventory_port 1
\set payments_port 1
\set shipping_port 1
\o /dev/null
\ir ../../examples/demo/shop.sql
\o
\ir ../../examples/testing/order_test.sql

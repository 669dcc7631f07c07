-- SPDX-License-Identifier: PostgreSQL
--
-- What the shop's application may do. It logs in as a role of its own, with
-- level user: it submits orders and sees their runs. Their functions and calls
-- have its rights, not those of who wrote the workflow. So it needs rights on
-- the shop's tables, and a grant of each agent, for no more than the methods
-- and paths of the workflow.
--
--   psql -f application.sql

CREATE ROLE shop_app LOGIN;

GRANT USAGE ON SCHEMA shop TO shop_app;
GRANT SELECT, INSERT, UPDATE ON shop.orders TO shop_app;
GRANT SELECT, INSERT, DELETE ON shop.ledger TO shop_app;

SELECT sas.grant_usage('shop_app', 'user');
SELECT sas.grant_agent('inventory', 'shop_app', '{POST,DELETE}', '{/reservations}'),
       sas.grant_agent('payments', 'shop_app', '{POST}', '{/charges,/refunds}'),
       sas.grant_agent('shipping', 'shop_app', '{POST,DELETE}', '{/slots,/shipments}');

-- SPDX-License-Identifier: PostgreSQL
--
-- For tests only: a version that no library knows. The locks are those of an
-- upgrade that changes tables.
LOCK TABLE sas.run, sas.step, sas.ready, sas.lease, sas.due IN ACCESS EXCLUSIVE MODE;

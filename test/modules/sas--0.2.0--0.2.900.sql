-- SPDX-License-Identifier: PostgreSQL
--
-- For tests only: a version that no library knows. The locks are those of an
-- upgrade that changes tables.
LOCK TABLE _sas.run, _sas.step, _sas.ready, _sas.lease, _sas.message IN ACCESS EXCLUSIVE MODE;

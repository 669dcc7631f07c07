-- SPDX-License-Identifier: PostgreSQL
ALTER TABLE _sas.run ADD COLUMN note text;

-- SPDX-License-Identifier: PostgreSQL
--
-- sas: a set of remote actions behaves as one operation.
--
-- This script is put together from the pieces in sql/, in reading order:
-- guard, types, native functions, tables, machine, scheduler, agent,
-- function, supervisor, definition, api, views, grants, dump.

\echo Use "CREATE EXTENSION sas" to load this file. \quit


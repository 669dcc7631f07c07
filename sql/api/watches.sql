-- SPDX-License-Identifier: PostgreSQL
--
-- Infinite tasks: watchers and their tasks.

CREATE FUNCTION sas.create_watcher(name text, definition jsonb) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.create_watcher IS
    'Creates a watcher, the definition of infinite tasks, or replaces the watcher of that name. A new '
    'definition applies to all its tasks, which keep their cursors.';

CREATE FUNCTION sas.drop_watcher(name text) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.drop_watcher IS 'Drops a watcher whose tasks are all deleted.';

CREATE FUNCTION sas.watch(watcher text, key text, input jsonb DEFAULT '{}', cursor jsonb DEFAULT NULL,
                          adopt boolean DEFAULT false, OUT watch_id bigint, OUT created boolean)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.watch IS
    'Starts one infinite task of a watcher, in the transaction of the caller; it runs until it is stopped. '
    'cursor: where it begins, instead of where the watcher says. adopt: an existing task with this key is '
    'used. Use it in FROM.';

CREATE FUNCTION sas.unwatch(watcher text, keys text[], discard boolean DEFAULT false)
RETURNS TABLE (key text, changed boolean, state text, refused text)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.unwatch IS
    'Stops tasks: their host ends them, items that they have taken in are brought to their target, then '
    'they are deleted. discard: these items are thrown away. Returns each key with what was done, or why '
    'not.';

CREATE FUNCTION sas.pause_watch(watcher text, keys text[])
RETURNS TABLE (key text, changed boolean, state text, refused text)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.pause_watch IS
    'Pauses tasks: their host ends them, and no further item is brought to their targets. They resume at '
    'the same cursor.';

CREATE FUNCTION sas.resume_watch(watcher text, keys text[])
RETURNS TABLE (key text, changed boolean, state text, refused text)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.resume_watch IS
    'Continues tasks that are paused or have failed; earlier failures do not count.';

CREATE FUNCTION sas.rebalance() RETURNS int
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.rebalance IS
    'Asks nodes that host more than their share of infinite tasks to give some back, for nodes that host '
    'less. Returns how many tasks will move.';

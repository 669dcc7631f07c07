-- SPDX-License-Identifier: PostgreSQL
--
-- Infinite tasks: watchers and their tasks.

CREATE FUNCTION sas.create_watcher(name text, definition jsonb) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.create_watcher IS 'Creates a watcher, the definition of infinite tasks, or replaces '
                                          'the one of that name: what is written holds for all its tasks, '
                                          'which keep their cursors.';

CREATE FUNCTION sas.drop_watcher(name text) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.drop_watcher IS 'Drops a watcher whose tasks are all deleted.';

CREATE FUNCTION sas.watch(watcher text, key text, input jsonb DEFAULT '{}', cursor jsonb DEFAULT NULL,
                          adopt boolean DEFAULT false, OUT watch_id bigint, OUT created boolean)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.watch IS 'Starts one infinite task of a watcher, in the transaction of the caller; '
                                 'it runs until it is told to stop. cursor: since where, in place of what '
                                 'the watcher says. adopt: a task that has the key already is taken for it. '
                                 'Use it in FROM.';

CREATE FUNCTION sas.unwatch(watcher text, keys text[], discard boolean DEFAULT false)
RETURNS TABLE (key text, changed boolean, state text, refused text)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.unwatch IS 'Asks tasks to stop: their host ends them, what they have taken in is '
                                   'brought to its target, then they are deleted. discard: it is thrown '
                                   'away. Returns each key with what was done, or why not.';

CREATE FUNCTION sas.pause_watch(watcher text, keys text[])
RETURNS TABLE (key text, changed boolean, state text, refused text)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.pause_watch IS 'Pauses tasks: their host ends them, and nothing more is brought to '
                                       'their targets until they are resumed, at the same cursor.';

CREATE FUNCTION sas.resume_watch(watcher text, keys text[])
RETURNS TABLE (key text, changed boolean, state text, refused text)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.resume_watch IS 'Lets tasks that are paused or have failed go on; their failures are '
                                        'forgotten.';

CREATE FUNCTION sas.rebalance() RETURNS int
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.rebalance IS 'Asks nodes that host more than their share of infinite tasks to give '
                                     'some back, for nodes that host less. Returns how many tasks are to '
                                     'move.';

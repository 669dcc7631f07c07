-- SPDX-License-Identifier: PostgreSQL
--
-- Place: where the data is in use: system identifier, database oid, timeline, and the base backup that the
-- server was started from. A row of _sas.home names such a place. If a row names another place than this
-- one, the data is a copy, and its original may still be in use; no worker runs until sas.release().
--
-- A promoted standby continues in the place of its primary; the next probe stores its timeline. A dump
-- contains the rows only if it has work that continues on its own (sql/api/dump.sql).

-- _sas.place(): this place. continues: the server was started as a standby, or is one.
CREATE FUNCTION _sas.place(OUT system_identifier bigint, OUT database oid, OUT timeline bigint,
                           OUT backup text, OUT continues boolean) RETURNS record
LANGUAGE C STABLE STRICT AS 'MODULE_PATHNAME', 'sas_api_place';

-- _sas.probe(): at commit, the launcher checks whether workers may run in this database.
CREATE FUNCTION _sas.probe() RETURNS void
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_probe';

-- _sas.quarantined_for(): why the data is a copy that must not call anything; null: it is at home. A copy
-- without workflows and watchers, such as one of a template database, is at home.
CREATE FUNCTION _sas.quarantined_for() RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    reason text;
BEGIN
    SELECT coalesce(h.quarantined_for,
                    CASE WHEN h.system_identifier <> p.system_identifier
                        THEN 'the data is from another server'
                    WHEN h.database <> p.database THEN 'the data is from another database'
                    WHEN p.continues THEN NULL
                    WHEN h.timeline <> p.timeline THEN 'the server was restored to a point in time'
                    WHEN h.backup <> p.backup THEN 'the server was started from a base backup' END) AS why
        INTO reason
    FROM _sas.home h, _sas.place() p ORDER BY why LIMIT 1;
    IF reason IS NULL OR NOT EXISTS (SELECT FROM _sas.workflow) AND NOT EXISTS (SELECT FROM _sas.watcher) THEN
        RETURN NULL;
    END IF;
    RETURN reason;
END $$;

-- _sas.note_home(): stores that this place is the home of the data.
-- Writes: home.
CREATE FUNCTION _sas.note_home() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM _sas.home;
    INSERT INTO _sas.home (system_identifier, database, timeline, backup)
    SELECT p.system_identifier, p.database, p.timeline, p.backup FROM _sas.place() p;
END $$;

-- _sas.at_home(): may workers run? The launcher's probe calls it before the first of them starts. Its
-- answer is stored, so that neither a crash nor a promotion changes it. Its transaction need not reach a
-- standby, because a standby gets the same answer. It does not wait for a session that is just
-- releasing the data: at the commit of that session the launcher checks again.
-- Writes: home, alert.
CREATE FUNCTION _sas.at_home() RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    reason text := _sas.quarantined_for();
BEGIN
    SET LOCAL synchronous_commit = local;
    IF reason IS NOT NULL THEN
        PERFORM FROM _sas.home FOR NO KEY UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            RETURN false;
        END IF;
        -- the data may have been released before the row was locked
        reason := _sas.quarantined_for();
    END IF;
    IF reason IS NULL THEN
        PERFORM _sas.note_home()
        WHERE NOT EXISTS (SELECT FROM _sas.home)
            OR EXISTS (SELECT FROM _sas.home h, _sas.place() p
                       WHERE (h.system_identifier, h.database, h.timeline, h.backup, h.quarantined_for)
                           IS DISTINCT FROM (p.system_identifier, p.database, p.timeline, p.backup, NULL));
        RETURN true;
    END IF;
    UPDATE _sas.home SET quarantined_for = reason WHERE quarantined_for IS NULL;
    PERFORM _sas.raise_alert('quarantine', 'quarantine',
                             format('%s: no worker runs until an admin calls sas.release()', reason))
    WHERE NOT EXISTS (SELECT FROM _sas.alert l WHERE l.cause = 'quarantine' AND l.closed_at IS NULL);
    RETURN false;
END $$;

-- SPDX-License-Identifier: PostgreSQL
--
-- Release: a restored copy may make calls from now on.

-- _sas.release_as(caller): the body of sas.release.
CREATE FUNCTION _sas.release_as(caller oid) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    reason text := _sas.quarantined_for();
BEGIN
    IF reason IS NULL THEN
        RETURN false;
    END IF;
    PERFORM _sas.note_home();
    PERFORM _sas.close_alerts('{quarantine}');
    PERFORM _sas.record_change(caller, 'release', jsonb_build_object('quarantined_for', reason));
    PERFORM _sas.probe();
    RETURN true;
END $$;

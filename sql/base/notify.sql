-- SPDX-License-Identifier: PostgreSQL
--
-- Notifications for programs outside the server: a task of an external agent is ready, an infinite task
-- waits for a host.

-- _sas.notify_outside(lanes): sends NOTIFY sas_agent_<name> for the lanes that are external agents. Returns
-- the other lanes.
-- Wakes: programs of external agents.
CREATE FUNCTION _sas.notify_outside(lanes int[]) RETURNS int[]
LANGUAGE plpgsql AS $$
DECLARE
    told int[];
BEGIN
    SELECT array_agg(a.agent_id) INTO told
    FROM (SELECT o.agent_id, _sas.notify('sas_agent_' || o.name, '')
          FROM _sas.agent o WHERE o.agent_id = ANY (lanes) AND o.kind = 'external' AND o.enabled) a;
    IF told IS NULL THEN
        RETURN lanes;
    END IF;
    RETURN ARRAY(SELECT l FROM unnest(lanes) l WHERE NOT l = ANY (told));
END $$;

-- _sas.notify_lanes(lanes, what): hosts should check for tasks to take (start), or what is new of theirs
-- (news): sends NOTIFY sas_watch_<agent> for outside programs, and wakes all other hosts.
-- Wakes: the hosts of the lanes.
CREATE FUNCTION _sas.notify_lanes(lanes int[], what text DEFAULT 'start') RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM _sas.notify('sas_watch_' || a.name, what) FROM _sas.agent a
    WHERE a.agent_id = ANY (lanes) AND a.kind = 'external';
    PERFORM _sas.wake_watches();
END $$;

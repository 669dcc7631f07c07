-- SPDX-License-Identifier: PostgreSQL
--
-- Keys that follow a table of a Citus cluster: a key, or the part of it before a separator, is a value of the
-- table's distribution column, and belongs to the node of its shard. New runs with the key are made there
-- (src/api/forward.c), so a key is unique in the cluster.
--
-- A shard that moves leaves its runs where they are. Citus keeps no history of moves, but a move writes the
-- row of the placement on every node. So workflow.key_shards has the xmin of these rows, from a time when
-- all keys were on the nodes of their shards. Only if a row has been written since, other nodes may have runs
-- with keys of the shard. It may have been written for another reason, or the rows may be restored ones:
-- then other nodes are asked in vain.

-- _sas.key_shard(follows, separator, key): the shard that the key belongs to; an error if it cannot belong to
-- any.
CREATE FUNCTION _sas.key_shard(follows text, separator text, key text) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    shard bigint;
BEGIN
    EXECUTE 'SELECT pg_catalog.get_shard_id_for_distribution_column($1, $2)' INTO shard
    USING to_regclass(follows), CASE WHEN separator IS NULL THEN key ELSE split_part(key, separator, 1) END;
    RETURN shard;
EXCEPTION
    WHEN data_exception THEN
        RAISE EXCEPTION 'key "%" is no value of the distribution column of table "%"', key, follows
            USING ERRCODE = SQLSTATE, DETAIL = 'At /key.',
                HINT = 'The keys of the workflow follow the table: see sas.workflows.';
    WHEN null_value_not_allowed OR invalid_table_definition THEN
        RAISE EXCEPTION 'table "%", which the keys of the workflow follow, is not distributed', follows
            USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = 'At /key.',
                HINT = 'Call sas.distribute_keys with another table, or with null.';
END $$;

-- _sas.key_place(workflow, key, hold): the node that the key belongs to, and whether runs with it may be on
-- other nodes, since its shard has moved. Nulls: the keys of the workflow follow no table. hold: the shard
-- does not move before this transaction ends, as if it had written there.
CREATE FUNCTION _sas.key_place(workflow text, key text, hold boolean, OUT node int, OUT moved boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    f _sas.workflow;
    shard bigint;
    before bigint;
BEGIN
    SELECT * INTO f FROM _sas.workflow w WHERE w.name = $1 AND w.dropped_at IS NULL;
    IF f.keys_follow IS NULL OR starts_with(key, 'schedule:') THEN
        RETURN;
    END IF;
    LOOP
        shard := _sas.key_shard(f.keys_follow, f.key_separator, key);
        -- a split gives the key another shard, while this waits for the lock
        EXIT WHEN shard = before OR NOT hold;
        -- 5: ShareLock
        EXECUTE 'SELECT pg_catalog.lock_shard_metadata(5, ARRAY[$1])' USING shard;
        before := shard;
    END LOOP;
    EXECUTE 'SELECT p.groupid, (p.xmin::text = $2) IS NOT TRUE FROM pg_catalog.pg_dist_placement p
             WHERE p.shardid = $1 ORDER BY p.groupid LIMIT 1'
    INTO node, moved USING shard, f.key_shards ->> shard::text;
    IF node IS NULL THEN
        RAISE EXCEPTION 'key "%" belongs to no shard of table "%"', key, f.keys_follow
            USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = 'At /key.',
                HINT = 'Call sas.distribute_keys with another table, or with null.';
    END IF;
END $$;

-- _sas.follow_table(id, follows, separator, shards): from now on, the keys of that workflow follow the table.
-- If this node has a run whose key belongs to another node, that is an error: it would not be found.
-- Locks: run_key, until runs with keys that are just being submitted are there.
CREATE FUNCTION _sas.follow_table(id int, follows text, separator text, shards jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    stray record;
BEGIN
    IF follows IS NOT NULL THEN
        LOCK TABLE _sas.run_key IN SHARE MODE;
    END IF;
    UPDATE _sas.workflow w SET keys_follow = follows, key_separator = separator, key_shards = shards
    WHERE w.workflow_id = id;
    FOR stray IN SELECT k.run_id, k.key, p.node
                 FROM _sas.run_key k JOIN _sas.workflow w USING (workflow_id)
                 CROSS JOIN LATERAL _sas.key_place(w.name, k.key, false) p
                 WHERE follows IS NOT NULL AND w.workflow_id = id
                   AND p.node <> _sas.id_base() >> _sas.node_shift() LIMIT 1 LOOP
        RAISE EXCEPTION 'run % has key "%", which belongs to node %', stray.run_id, stray.key, stray.node
            USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = 'At /follows.',
                HINT = 'Let the run end and purge it, with sas.purge; then try again.';
    END LOOP;
END $$;

-- _sas.placements(caller, follows): which transaction has written the placement of each shard of this table;
-- an error if keys cannot follow it.
CREATE FUNCTION _sas.placements(caller oid, follows regclass) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    written jsonb;
BEGIN
    IF to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL THEN
        EXECUTE 'SELECT jsonb_object_agg(p.shardid, p.xmin::text) FROM pg_catalog.pg_dist_partition t
                 JOIN pg_catalog.pg_dist_shard s USING (logicalrelid)
                 JOIN pg_catalog.pg_dist_placement p USING (shardid)
                 WHERE t.logicalrelid = $1 AND t.partmethod = ''h'''
        INTO written USING follows;
    END IF;
    IF written IS NULL THEN
        RAISE EXCEPTION 'table "%" is not distributed by a column', follows
            USING ERRCODE = 'wrong_object_type', DETAIL = 'At /follows.',
                HINT = 'In a Citus cluster, create_distributed_table() does that. On one server, keys are '
                    'unique without it.';
    ELSIF NOT has_table_privilege(caller, follows, 'SELECT') THEN
        RAISE EXCEPTION 'permission denied for table "%"', follows
            USING ERRCODE = 'insufficient_privilege', DETAIL = 'At /follows.',
                HINT = 'Keys follow a table that you may read.';
    END IF;
    RETURN written;
END $$;

CREATE FUNCTION _sas.distribute_keys_as(caller oid, workflow text, follows regclass, separator text)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    f _sas.workflow := _sas.own_workflow(caller, $2);
BEGIN
    IF separator = '' OR octet_length(separator) > 100 THEN
        RAISE EXCEPTION 'the separator must have 1 to 100 bytes'
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /separator.',
                HINT = 'Omit it if the whole key is the value of the distribution column.';
    END IF;
    IF follows IS NULL THEN
        separator := NULL;
    END IF;
    PERFORM _sas.follow_table(f.workflow_id, follows::text, separator,
                              CASE WHEN follows IS NOT NULL THEN _sas.placements(caller, follows) END);
    PERFORM _sas.record_change(caller, 'distribute_keys', jsonb_build_object('workflow', f.name),
                               jsonb_build_object('follows', f.keys_follow, 'separator', f.key_separator),
                               jsonb_build_object('follows', follows::text, 'separator', separator));
END $$;

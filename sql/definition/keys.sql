-- SPDX-License-Identifier: PostgreSQL
--
-- Keys that follow a table of a Citus cluster: a key, or the part of it before a separator, is a value of the
-- table's distribution column, and belongs to the node of its shard. New runs with the key are made there
-- (src/api/key_nodes.c), so a key is unique in the cluster.
--
-- A shard that moves leaves its runs where they are. Citus keeps no history of moves, but a move writes the
-- row of the placement on every node. So workflow.key_shards has the xmin of these rows, from a time when
-- all keys were on the nodes of their shards. Only if a row has been written since, other nodes may have runs
-- with keys of the shard. It may have been written for another reason, or the rows may be restored ones:
-- then other nodes are asked in vain.

-- _sas.key_place(workflow, key): the node that the key belongs to, and whether runs with it may be on other
-- nodes, since its shard has moved. Nulls: the keys of the workflow follow no table.
CREATE FUNCTION _sas.key_place(workflow text, key text, OUT node int, OUT moved boolean)
LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sas_api_key_place';

-- _sas.placements(follows): which transaction has written the placement of each shard of this table here;
-- null: keys cannot follow it.
CREATE FUNCTION _sas.placements(follows regclass) RETURNS jsonb
LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sas_api_placements';

-- _sas.follow_table(f, follows, separator, shards): from now on, the keys of that workflow follow the table.
-- If this node has a run whose key belongs to another node, that is an error: it would not be found.
-- Locks: submits of runs with keys, of this workflow. Writes: workflow.
CREATE FUNCTION _sas.follow_table(f _sas.workflow, follows text, separator text, shards jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    stray record;
BEGIN
    UPDATE _sas.workflow w SET keys_follow = follows, key_separator = separator, key_shards = shards
    WHERE w.workflow_id = f.workflow_id;
    IF follows IS NULL THEN
        RETURN;
    END IF;
    -- they are done, or have not begun
    PERFORM _sas.lock('keys ' || f.name);
    SELECT k.run_id, k.key, p.node INTO stray
    FROM _sas.run_key k CROSS JOIN LATERAL _sas.key_place(f.name, k.key) p
    WHERE k.workflow_id = f.workflow_id AND p.node <> _sas.id_base() >> _sas.node_shift() LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'run % has key "%", which belongs to node %', stray.run_id, stray.key, stray.node
            USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = 'At /follows.',
                HINT = 'Let the run end and purge it, with sas.purge; then try again.';
    END IF;
END $$;

-- _sas.distribute_keys_as(caller, workflow, follows, separator): the body of sas.distribute_keys. follows
-- null: keys follow no table any more. Next: _sas.follow_table.
CREATE FUNCTION _sas.distribute_keys_as(caller oid, workflow text, follows regclass, separator text)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    f _sas.workflow := _sas.own_workflow(caller, $2);
    shards jsonb := _sas.placements(follows);
BEGIN
    IF separator = '' OR octet_length(separator) > 100 THEN
        RAISE EXCEPTION 'the separator must have 1 to 100 bytes'
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /separator.',
                HINT = 'Omit it if the whole key is the value of the distribution column.';
    ELSIF follows IS NOT NULL AND shards IS NULL THEN
        RAISE EXCEPTION 'table "%" is not distributed by a column of a plain type', follows
            USING ERRCODE = 'wrong_object_type', DETAIL = 'At /follows.',
                HINT = 'In a Citus cluster, create_distributed_table() does that. On one server, keys are '
                    'unique without it.';
    ELSIF NOT has_table_privilege(caller, follows, 'SELECT') THEN
        RAISE EXCEPTION 'permission denied for table "%"', follows
            USING ERRCODE = 'insufficient_privilege', DETAIL = 'At /follows.',
                HINT = 'Keys follow a table that you may read.';
    END IF;
    IF follows IS NULL THEN
        separator := NULL;
    END IF;
    PERFORM _sas.follow_table(f, follows::text, separator, shards);
    PERFORM _sas.record_change(caller, 'distribute_keys', jsonb_build_object('workflow', f.name),
                               jsonb_build_object('follows', f.keys_follow, 'separator', f.key_separator),
                               jsonb_build_object('follows', follows::text, 'separator', separator));
END $$;

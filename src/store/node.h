/* SPDX-License-Identifier: PostgreSQL */
/*
 * node.h: the number of this server among the nodes of a cluster.
 *
 * Ids that are shown (of runs and alerts) are node * 2^SAS_NODE_SHIFT + n, so
 * that no two nodes give out the same one. The largest is 2^53 - 1, which JSON
 * keeps. A server by itself is node 0, and its ids are small.
 */
#ifndef SAS_STORE_NODE_H
#define SAS_STORE_NODE_H

#define SAS_NODE_SHIFT 41
#define SAS_NODES 4096

/* sas.node_id; else the number that Citus knows the server by, else 0. */
extern int	sas_store_node_id(void);

/* The number that Citus knows the server by; 0 without it, and of the coordinator. */
extern int	sas_store_group_id(void);

/* Is there Citus in this database? */
extern bool sas_store_in_cluster(void);

/* What an id of this node has besides its own number. */
#define sas_store_id_base() ((int64) sas_store_node_id() << SAS_NODE_SHIFT)

/* The node that gave out this id. */
#define sas_store_node_of(id) ((int) ((id) >> SAS_NODE_SHIFT))

#endif							/* SAS_STORE_NODE_H */

/* SPDX-License-Identifier: PostgreSQL */
/*
 * cluster.h: the other nodes of a cluster, and statements there.
 *
 * A statement on another node runs as the current user, who has there the
 * rights that this node gives the role. It is part of this transaction: what
 * it writes is committed on all nodes or on none, and later statements see it.
 *
 * Without Citus there is no other node.
 */
#ifndef SAS_STORE_CLUSTER_H
#define SAS_STORE_CLUSTER_H

#include "nodes/pg_list.h"
#include "utils/jsonb.h"

typedef struct SasNode
{
	int			id;
	char	   *host;
	int			port;
} SasNode;

/* Columns as texts; NULL: null. */
typedef struct SasNodeRows
{
	int			n_rows;
	int			n_columns;
	char	 ***values;
} SasNodeRows;

/* Is this the node on which definitions are made for all? Alone it is. */
extern bool sas_store_is_coordinator(void);

/* Nodes that can be asked, without this one: a list of SasNode, by id. */
extern List *sas_store_other_nodes(void);

/* That node, if it is another one that can be asked; else NULL. */
extern SasNode *sas_store_other_node(int id);

/* Runs the statement there; values are texts, NULL for null. writes: it may change something. */
extern SasNodeRows *sas_store_run_on_node(const SasNode *node, bool writes, const char *statement,
										  int n, const Oid *types, const char *const *values);

/* From here on to the end of the transaction, values that this node returns are texts that every session reads alike. */
extern void sas_store_pin_text_on_node(const SasNode *node);

/* What a statement there grants stays there: Citus must not carry it out again on all nodes. Else: it may again. */
extern void sas_store_pin_ddl_on_node(const SasNode *node, bool pinned);

/* The same for this session, until sas_store_unpin_path(). */
extern int	sas_store_pin_ddl(void);

/* Runs a statement here, as the current user. */
extern SasNodeRows *sas_store_run_here(const char *statement);

/* Closes a cursor here. Unlike a CLOSE, it needs no statement around it: the one that has read it may have ended. */
extern void sas_store_close_here(const char *cursor);

/*
 * A query for one value on every other node, each in a transaction of its own,
 * as the current user. No node's fault is an error: three columns, the node,
 * whether it answered, and the value or what went wrong.
 */
extern SasNodeRows *sas_store_ask_all_nodes(const char *query);

/* Is there a row with that id in this table of schema _sas? Nobody's rights are checked. */
extern bool sas_store_has_id(const char *table, const char *column, const char *index, int64 id);

/* Where the keys of a workflow belong, if they follow a distributed table. */
typedef struct SasKeyPlace
{
	bool		follows;		/* else nothing below holds */
	int			node;			/* that has the key's shard */
	bool		moved;			/* the shard has been on another node: so may runs with its keys */
} SasKeyPlace;

/* hold: the shard does not move before the end of this transaction. */
extern SasKeyPlace sas_store_key_place(const char *workflow, const char *key, bool hold);

/* Who has written the placement of each shard of that table here; NULL: keys cannot follow it. */
extern Jsonb *sas_store_placements(Oid table);

/* Of the runs with a key, one that the current user owns; one that he sees; and of these one that has not stopped. */
typedef enum SasKeyRun
{
	SAS_OWN_RUN,
	SAS_ANY_RUN,
	SAS_OPEN_RUN
} SasKeyRun;

/* Is there such a run on that node (NULL: here)? */
extern bool sas_store_has_run(const SasNode *node, SasKeyRun which, const char *workflow, const char *key);

#endif							/* SAS_STORE_CLUSTER_H */

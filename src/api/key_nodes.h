/* SPDX-License-Identifier: PostgreSQL */
/*
 * key_nodes.h: the node of a run with a key, in a cluster.
 */
#ifndef SAS_API_KEY_NODES_H
#define SAS_API_KEY_NODES_H

#include "postgres.h"

#include "store/cluster.h"

/*
 * The node that a signal is for, NULL: this one. left: that is not the node
 * of the key, which would look for the run again.
 */
extern SasNode *sas_api_node_of_key(const char *workflow, const char *key, bool *left);

/*
 * The node that makes a new run with this key, or has it; NULL: this one. Its
 * shard does not move before the end of this transaction. left: as above.
 */
extern SasNode *sas_api_node_to_submit(const char *workflow, const char *key, bool *left);

/* A batch is not split: a key that belongs to another node is an error. keys: text[]. */
extern void sas_api_check_batch(const char *workflow, Datum keys);

#endif							/* SAS_API_KEY_NODES_H */

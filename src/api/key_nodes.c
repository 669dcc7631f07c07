/* SPDX-License-Identifier: PostgreSQL */
/*
 * key_nodes.c: the node of a run with a key; see key_nodes.h.
 *
 * The keys of a workflow may follow a distributed table
 * (sas.distribute_keys). Then a new run with a key is made on the node that
 * has the key's shard. That node finds the key among its own. Only if the
 * shard has moved there since, runs with its keys may be on other nodes, so
 * these are asked.
 */
#include "postgres.h"

#include "base/array.h"
#include "catalog/pg_type.h"
#include "utils/array.h"
#include "utils/builtins.h"

#include "api/forward.h"
#include "api/key_nodes.h"
#include "store/cluster.h"
#include "store/node.h"

/* The keys of this workflow follow no table: the node that has a run with this key, unless it is this one, or none. */
static SasNode *
key_nodes_of_free(const char *workflow, const char *key)
{
	SasNode    *found = NULL;
	ListCell   *lc;

	if (sas_store_has_run(NULL, SAS_ANY_RUN, workflow, key))
		return NULL;
	foreach(lc, sas_store_other_nodes())
	{
		SasNode    *node = lfirst(lc);

		if (!sas_store_has_run(node, SAS_ANY_RUN, workflow, key))
			continue;
		if (found != NULL)
			ereport(ERROR,
					(errcode(ERRCODE_CARDINALITY_VIOLATION),
					 errmsg("nodes %d and %d both have a run of workflow \"%s\" with that key", found->id, node->id, workflow),
					 errdetail("At /key."),
					 errhint("Name the run by its id, with sas.signal.")));
		found = node;
	}
	return found;
}

/* The node of the key's shard, NULL: this one. It has to be one that can be asked. */
static SasNode *
key_nodes_of_place(const SasKeyPlace *place, const char *key)
{
	SasNode    *node;

	if (place->node == sas_store_group_id())
		return NULL;
	node = sas_store_other_node(place->node);
	if (node == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_CONNECTION_FAILURE),
				 errmsg("node %d, to which key \"%s\" belongs, is not active", place->node, key),
				 errdetail("At /key."),
				 errhint("See pg_dist_node.")));
	return node;
}

/* A node besides this one and that one (NULL: none) that has such a run; else NULL. */
static SasNode *
key_nodes_find_other(const SasNode *asked, SasKeyRun which, const char *workflow, const char *key)
{
	ListCell   *lc;

	foreach(lc, sas_store_other_nodes())
	{
		SasNode    *node = lfirst(lc);

		if ((asked == NULL || node->id != asked->id) && sas_store_has_run(node, which, workflow, key))
			return node;
	}
	return NULL;
}

SasNode *
sas_api_node_of_key(const char *workflow, const char *key, bool *left)
{
	SasKeyPlace place = sas_store_key_place(workflow, key, false);
	SasNode    *node;
	SasNode    *other;

	if (!place.follows)
		return key_nodes_of_free(workflow, key);
	node = key_nodes_of_place(&place, key);
	if (!place.moved || sas_store_has_run(node, SAS_OPEN_RUN, workflow, key))
		return node;
	if (node != NULL && sas_store_has_run(NULL, SAS_OPEN_RUN, workflow, key))
		return NULL;
	other = key_nodes_find_other(node, SAS_OPEN_RUN, workflow, key);
	*left = other != NULL;
	return *left ? other : node;
}

SasNode *
sas_api_node_to_submit(const char *workflow, const char *key, bool *left)
{
	SasKeyPlace place;
	SasNode    *node;

	sas_api_hold_keys(workflow);
	place = sas_store_key_place(workflow, key, true);
	node = place.follows ? key_nodes_of_place(&place, key) : NULL;

	/* the node of the key asks the others */
	if (node != NULL || !place.moved || sas_store_has_run(NULL, SAS_OWN_RUN, workflow, key))
		return node;
	node = key_nodes_find_other(NULL, SAS_OWN_RUN, workflow, key);
	*left = node != NULL;
	return node;
}

void
sas_api_check_batch(const char *workflow, Datum array)
{
	Datum	   *keys;
	bool	   *nulls;
	int			n;

	sas_base_elements(DatumGetArrayTypeP(array), &keys, &nulls, &n);
	for (int i = 0; i < n; i++)
	{
		bool		left = false;
		char	   *key = nulls[i] ? NULL : text_to_cstring(DatumGetTextPP(keys[i]));
		SasNode    *node = nulls[i] ? NULL : sas_api_node_to_submit(workflow, key, &left);

		if (node != NULL)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg(left ? "key \"%s\" has a run on node %d already" : "key \"%s\" belongs to node %d", key, node->id),
					 errdetail("At /keys/%d. The node is %s:%d.", i, node->host, node->port),
					 errhint("Submit it there, or with sas.submit, which goes there.")));
	}
}

/* SPDX-License-Identifier: PostgreSQL */
/*
 * rights.c: what runs of a role may ask of an agent.
 *
 * Each claim asks that for each of its calls, and the answer changes with a
 * grant only. So it is cached, and all of the cache goes when a grant, a
 * role, a membership or a function changes: levels are rights on functions.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "store/plan.h"
#include "store/rights.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

/* The most entries of the cache. */
#define MAX_CACHED_RIGHTS 10000

typedef struct CachedRight
{
	struct
	{
		Oid			role;
		int			agent_id;
	}			key;
	char		right;
} CachedRight;

static HTAB *rights_cache = NULL;
static bool rights_stale = true;
static Oid	rights_token = InvalidOid;	/* sas.workflows: announces grants, too */
static Oid	rights_function = InvalidOid;

static void
rights_relation_changed(Datum arg, Oid relid)
{
	if (relid == InvalidOid || relid == rights_token)
		rights_stale = true;
}

static void
rights_catalog_changed(Datum arg, int cache, uint32 hash)
{
	rights_stale = true;
}

static void
rights_reset(void)
{
	HASHCTL		control = {.keysize = sizeof(((CachedRight *) NULL)->key), .entrysize = sizeof(CachedRight), .hcxt = CacheMemoryContext};
	Oid			types[2] = {OIDOID, INT4OID};
	HTAB	   *old = rights_cache;

	if (old == NULL)
	{
		CacheRegisterRelcacheCallback(rights_relation_changed, (Datum) 0);
		CacheRegisterSyscacheCallback(PROCOID, rights_catalog_changed, (Datum) 0);
		CacheRegisterSyscacheCallback(AUTHOID, rights_catalog_changed, (Datum) 0);
		CacheRegisterSyscacheCallback(AUTHMEMROLEMEM, rights_catalog_changed, (Datum) 0);
	}
	rights_cache = hash_create("sas rights", 64, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	if (old != NULL)
		hash_destroy(old);
	/* what comes in meanwhile makes it stale again */
	rights_stale = false;
	rights_token = get_relname_relid("workflows", get_namespace_oid("sas", false));
	rights_function = GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid, CStringGetDatum("read_agent_right"),
									  PointerGetDatum(buildoidvector(types, 2)), ObjectIdGetDatum(get_namespace_oid("_sas", false)));
}

char
sas_store_agent_right(Oid role, int agent_id)
{
	CachedRight wanted = {0};
	CachedRight *found;

	AcceptInvalidationMessages();
	if (rights_stale || hash_get_num_entries(rights_cache) >= MAX_CACHED_RIGHTS)
		rights_reset();
	wanted.key.role = role;
	wanted.key.agent_id = agent_id;
	found = hash_search(rights_cache, &wanted.key, HASH_FIND, NULL);
	if (found != NULL)
		return found->right;
	wanted.right = DatumGetChar(OidFunctionCall2(rights_function, ObjectIdGetDatum(role), Int32GetDatum(agent_id)));
	/* not kept when it may be older than the last change that was noticed */
	if (!rights_stale && !IsolationUsesXactSnapshot())
	{
		found = hash_search(rights_cache, &wanted.key, HASH_ENTER, NULL);
		found->right = wanted.right;
	}
	return wanted.right;
}

/* How often memberships, roles or levels may have changed, and up to where the hosts of infinite tasks asked. */
static uint64 rights_changes = 1;
static uint64 rights_checked = 0;

/* Of the function whose list of rights is level admin; 0: not known. Other functions change nothing. */
static uint32 rights_admin_hash = 0;

static void
rights_of_watches_changed(Datum arg, int cache, uint32 hash)
{
	if (cache != PROCOID || hash == 0 || rights_admin_hash == 0 || hash == rights_admin_hash)
		rights_changes++;
}

void
sas_store_check_watch_rights(void)
{
	static SasPlan plan = {"SELECT coalesce(_sas.part('check the rights of infinite tasks', '_sas.check_watch_rights()'), 1)", 0};
	static bool listens = false;
	uint64		changes = rights_changes;
	Oid			admin;

	if (!listens)
	{
		CacheRegisterSyscacheCallback(PROCOID, rights_of_watches_changed, (Datum) 0);
		CacheRegisterSyscacheCallback(AUTHOID, rights_of_watches_changed, (Datum) 0);
		CacheRegisterSyscacheCallback(AUTHMEMROLEMEM, rights_of_watches_changed, (Datum) 0);
		listens = true;
	}
	if (rights_checked == changes)
		return;
	admin = GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid, CStringGetDatum("level_admin"),
							PointerGetDatum(buildoidvector(NULL, 0)), ObjectIdGetDatum(get_namespace_oid("_sas", false)));
	rights_admin_hash = OidIsValid(admin) ? GetSysCacheHashValue1(PROCOID, ObjectIdGetDatum(admin)) : 0;
	sas_store_plan_run(&plan, NULL, NULL);
	/* what was locked, and what an error has kept from being read, is checked again at the next tick */
	if (sas_store_cell_int(0, 1) == 0)
		rights_checked = changes;
}

/* SPDX-License-Identifier: PostgreSQL */
/* dear.c: owners whose replies cost much to write; see dear.h. */
#include "postgres.h"

#include "agent/dear.h"
#include "base/clock.h"
#include "nodes/pg_list.h"
#include "utils/memutils.h"

/* An owner stays apart for so long after the last turn that took longer. */
#define DEAR_APART_US (10 * INT64CONST(1000000))
#define DEAR_BATCH 500

typedef struct DearOwner
{
	Oid			owner;
	int			batch;
	int64		last_us;		/* the end of its last turn */
	int64		apart_until_us;	/* 0: it is only under suspicion */
} DearOwner;

static List *dear_owners = NIL;

static DearOwner *
dear_find(Oid owner)
{
	ListCell   *lc;

	foreach(lc, dear_owners)
		if (((DearOwner *) lfirst(lc))->owner == owner)
			return lfirst(lc);
	return NULL;
}

bool
sas_agent_dear_suspect(Oid owner)
{
	MemoryContext old;
	DearOwner  *d;

	if (dear_find(owner) != NULL)
		return false;
	old = MemoryContextSwitchTo(TopMemoryContext);
	d = palloc0(sizeof(DearOwner));
	d->owner = owner;
	d->batch = 1;
	dear_owners = lappend(dear_owners, d);
	MemoryContextSwitchTo(old);
	return true;
}

bool
sas_agent_dear_is_long(int64 spent_us)
{
	return spent_us > SAS_AGENT_DEAR_US;
}

bool
sas_agent_dear_is(Oid owner)
{
	return dear_find(owner) != NULL;
}

int64
sas_agent_dear_last_us(Oid owner)
{
	DearOwner  *d = dear_find(owner);

	return d != NULL ? d->last_us : 0;
}

int
sas_agent_dear_batch(Oid owner)
{
	DearOwner  *d = dear_find(owner);

	return d != NULL ? d->batch : 1;
}

bool
sas_agent_dear_wrote(Oid owner, int n, int64 spent_us)
{
	DearOwner  *d = dear_find(owner);

	if (d == NULL)
		return false;
	d->last_us = sas_base_clock_monotonic_us();
	if (n == 0)
		d->batch = 1;
	else
		d->batch = Max(1, Min(Min(DEAR_BATCH, d->batch * 2), SAS_AGENT_DEAR_US * n / Max(1, spent_us)));
	if (n == 0 || sas_agent_dear_is_long(spent_us))
		d->apart_until_us = d->last_us + DEAR_APART_US;
	if (d->apart_until_us > d->last_us)
		return false;
	dear_owners = list_delete_ptr(dear_owners, d);
	pfree(d);
	return true;
}

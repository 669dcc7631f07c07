/* SPDX-License-Identifier: PostgreSQL */
/*
 * transitions.c: see transitions.h.
 *
 * A trigger of the table makes all processes forget what they keep.  What is
 * kept is read with a snapshot of that moment, not that of the transaction,
 * which may be older than a change that was announced before.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/namespace.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "base/compat.h"
#include "store/transitions.h"

typedef struct Transition
{
	char		subject[8];
	char		from[16];
	char		to[16];
	bool		legal;
} Transition;

static Transition transitions_kept[16];
static int	transitions_n = 0;
static Oid	transitions_table = InvalidOid;
static uint64 transitions_changes = 0;

static void
transitions_forget(Datum arg, Oid relation)
{
	if (relation != transitions_table && OidIsValid(relation))
		return;
	transitions_n = 0;
	transitions_changes++;
}

static Oid
transitions_find_table(void)
{
	return get_relname_relid("transition", get_namespace_oid("_sas", false));
}

static bool
transitions_look_up(const char *subject, const char *from, const char *to)
{
	Relation	table = table_open(transitions_table, AccessShareLock);
	Relation	index = index_open(sas_compat_primary_key_index(table), AccessShareLock);
	const char *const values[] = {subject, from, to};
	TupleTableSlot *slot = table_slot_create(table, NULL);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	ScanKeyData keys[lengthof(values)];
	IndexScanDesc scan;
	bool		found;

	for (int i = 0; i < lengthof(values); i++)
	{
		ScanKeyInit(&keys[i], i + 1, BTEqualStrategyNumber, F_TEXTEQ, CStringGetTextDatum(values[i]));
		keys[i].sk_collation = index->rd_indcollation[i];
	}
	scan = sas_compat_index_beginscan(table, index, snapshot, lengthof(values));
	index_rescan(scan, keys, lengthof(values), NULL, 0);
	found = index_getnext_slot(scan, ForwardScanDirection, slot);
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	UnregisterSnapshot(snapshot);
	index_close(index, AccessShareLock);
	table_close(table, AccessShareLock);
	return found;
}

bool
sas_store_is_legal(const char *subject, const char *from, const char *to)
{
	static bool listens = false;
	Oid			table;
	uint64		changes;
	bool		legal;

	for (int i = 0; i < transitions_n; i++)
		if (strcmp(transitions_kept[i].to, to) == 0 && strcmp(transitions_kept[i].from, from) == 0 &&
			strcmp(transitions_kept[i].subject, subject) == 0)
			return transitions_kept[i].legal;
	if (!listens)
		CacheRegisterRelcacheCallback(transitions_forget, (Datum) 0);
	listens = true;
	table = transitions_find_table();
	if (table != transitions_table)
		transitions_n = 0;
	transitions_table = table;
	changes = transitions_changes;
	legal = transitions_look_up(subject, from, to);
	if (changes != transitions_changes || transitions_n == lengthof(transitions_kept) || strlen(subject) >= sizeof(transitions_kept->subject) ||
		strlen(from) >= sizeof(transitions_kept->from) || strlen(to) >= sizeof(transitions_kept->to))
		return legal;
	strlcpy(transitions_kept[transitions_n].subject, subject, sizeof(transitions_kept->subject));
	strlcpy(transitions_kept[transitions_n].from, from, sizeof(transitions_kept->from));
	strlcpy(transitions_kept[transitions_n].to, to, sizeof(transitions_kept->to));
	transitions_kept[transitions_n++].legal = legal;
	return legal;
}

void
sas_store_announce_transitions(void)
{
	Oid			table = transitions_find_table();

	if (OidIsValid(table))
		CacheInvalidateRelcacheByRelid(table);
}

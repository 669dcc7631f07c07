/* SPDX-License-Identifier: PostgreSQL */
/*
 * extension.c: looks the extension up in pg_extension.
 *
 * Each transaction of a worker asks this before it touches a table, because
 * DROP EXTENSION does not wait for workers.  A library that finds tables of
 * a version it does not know does not touch them.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/indexing.h"
#include "catalog/pg_extension.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "base/clock.h"
#include "base/version.h"
#include "store/extension.h"

/* pg_extension itself is looked at so often */
#define EXTENSION_LOOK_US 1000000

static bool extension_was_known = false;
static uint64 extension_changes = 0;

char *
sas_store_extension_version(void)
{
	Relation	relation;
	SysScanDesc scan;
	ScanKeyData key[1];
	HeapTuple	tuple;
	char	   *version = NULL;

	relation = table_open(ExtensionRelationId, AccessShareLock);
	ScanKeyInit(&key[0], Anum_pg_extension_extname, BTEqualStrategyNumber, F_NAMEEQ,
				CStringGetDatum("sas"));
	scan = systable_beginscan(relation, ExtensionNameIndexId, true, NULL, 1, key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		bool		isnull;
		Datum		datum = heap_getattr(tuple, Anum_pg_extension_extversion,
										 RelationGetDescr(relation), &isnull);

		version = isnull ? pstrdup("") : TextDatumGetCString(datum);
	}
	systable_endscan(scan);
	table_close(relation, AccessShareLock);
	return version;
}

/* Is it among those that this library runs? */
static bool
extension_is_known(const char *version)
{
	size_t		length = strlen(version);

	for (const char *known = SAS_SCHEMAS; *known != '\0'; known += strspn(known, " "))
	{
		size_t		n = strcspn(known, " ");

		if (n == length && strncmp(known, version, n) == 0)
			return true;
		known += n;
	}
	return false;
}

int
sas_store_compare_versions(const char *a, const char *b)
{
	while (*a != '\0' || *b != '\0')
	{
		char	   *next_a;
		char	   *next_b;
		unsigned long x = strtoul(a, &next_a, 10);
		unsigned long y = strtoul(b, &next_b, 10);

		if (x != y)
			return x < y ? -1 : 1;
		a = next_a + (*next_a != '\0');
		b = next_b + (*next_b != '\0');
	}
	return 0;
}

bool
sas_store_schema_is_older(void)
{
	char	   *version = sas_store_extension_version();
	bool		older = version != NULL && sas_store_compare_versions(version, SAS_VERSION) < 0;

	if (version != NULL)
		pfree(version);
	return older;
}

static void
extension_forget(Datum arg, int cache, uint32 hash)
{
	extension_was_known = false;
	extension_changes++;
}

/* Was it found a moment ago, and has no function been changed since?  Whatever drops, makes or updates it does that. */
static bool
extension_is_still_known(void)
{
	static bool listens = false;
	static int64 looked_us = 0;
	int64		now_us = sas_base_clock_monotonic_us();

	if (!listens)
		CacheRegisterSyscacheCallback(PROCOID, extension_forget, (Datum) 0);
	listens = true;
	if (extension_was_known && now_us - looked_us < EXTENSION_LOOK_US)
		return true;
	/* unknown until it is found, also if that raises an error */
	extension_was_known = false;
	looked_us = now_us;
	return false;
}

bool
sas_store_installed(void)
{
	static bool said = false;
	char	   *version;
	bool		known;
	uint64		changes;

	if (extension_is_still_known())
		return true;
	changes = extension_changes;
	version = sas_store_extension_version();
	known = version != NULL && extension_is_known(version);
	extension_was_known = known && changes == extension_changes;
	if (known)
		said = false;
	else if (version != NULL && !said)
	{
		ereport(LOG,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("extension \"sas\" has version \"%s\", which the loaded library does not support", version),
				 errdetail("The library runs the versions %s. No worker runs in this database.", SAS_SCHEMAS),
				 sas_store_compare_versions(version, SAS_VERSION) < 0 ?
				 errhint("Run ALTER EXTENSION sas UPDATE.") :
				 errhint("Install the library of that version, and restart the server.")));
		said = true;
	}
	if (version != NULL)
		pfree(version);
	return known;
}

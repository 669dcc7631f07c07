/* SPDX-License-Identifier: PostgreSQL */
/*
 * extension.c: looks the extension up in pg_extension.
 *
 * Each transaction of a worker calls it before it touches a table, because
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
#include "utils/rel.h"

#include "store/extension.h"

/* The schema versions that this library works with. */
static const char *const extension_versions[] = {"0.1"};

/* The extension's version, palloc'd, or NULL when it is not there. */
static char *
extension_version(void)
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

bool
sas_store_installed(void)
{
	static bool said = false;
	char	   *version = extension_version();

	if (version == NULL)
		return false;
	for (int i = 0; i < lengthof(extension_versions); i++)
		if (strcmp(version, extension_versions[i]) == 0)
		{
			pfree(version);
			said = false;
			return true;
		}
	if (!said)
		ereport(LOG,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("extension \"sas\" has version \"%s\", which the loaded library does not support", version),
				 errdetail("No worker runs in this database."),
				 errhint("Run ALTER EXTENSION sas UPDATE, or restart the server with the library of that version.")));
	said = true;
	pfree(version);
	return false;
}

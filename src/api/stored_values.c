/* SPDX-License-Identifier: PostgreSQL */
/*
 * stored_values.c: no role reads values of sas where row security does not reach.
 *
 * The tables of sas have row security, so a member of pg_read_all_data reads
 * no row of them.  But that role has SELECT on every relation, and PostgreSQL
 * keeps values in two more places, where there can be no policy: long ones in
 * the TOAST table of a table, samples in pg_statistic.  So who may read these
 * only because he may read all data is refused here.  Who was granted one of
 * them by name, or columns of it, reads these, and pg_stats shows the
 * statistics of all tables that the reader may read.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/sysattr.h"
#include "access/table.h"
#include "catalog/dependency.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_statistic.h"
#include "commands/extension.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "utils/acl.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "api/stored_values.h"
#include "base/compat.h"

static ExecutorCheckPerms_hook_type stored_values_previous_hook = NULL;

/* The table whose long values this one keeps; InvalidOid: none. */
static Oid
stored_values_table_of(Oid toast)
{
	Relation	depend = table_open(DependRelationId, AccessShareLock);
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;
	Oid			found = InvalidOid;

	ScanKeyInit(&keys[0], Anum_pg_depend_classid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(RelationRelationId));
	ScanKeyInit(&keys[1], Anum_pg_depend_objid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(toast));
	scan = systable_beginscan(depend, DependDependerIndexId, true, NULL, 2, keys);
	while (!OidIsValid(found) && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_depend row = (Form_pg_depend) GETSTRUCT(tuple);

		if (row->refclassid == RelationRelationId && row->deptype == DEPENDENCY_INTERNAL)
			found = row->refobjid;
	}
	systable_endscan(scan);
	table_close(depend, AccessShareLock);
	return found;
}

/* Does it keep values of tables of sas? */
static bool
stored_values_of_sas(Oid relation)
{
	Oid			internal = get_namespace_oid("_sas", true);
	Oid			table;

	if (!OidIsValid(internal) || !OidIsValid(get_extension_oid("sas", true)))
		return false;
	if (relation == StatisticRelationId)
		return true;
	table = stored_values_table_of(relation);
	return OidIsValid(table) && get_rel_namespace(table) == internal;
}

/* Has the role been granted SELECT on this relation, or the role that it is a member of? */
static bool
stored_values_granted(Oid relation, Oid role)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
	Datum		list;
	bool		none;
	Oid			owner;
	bool		granted;

	if (!HeapTupleIsValid(tuple))
		return true;
	owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
	list = SysCacheGetAttr(RELOID, tuple, Anum_pg_class_relacl, &none);
	granted = has_privs_of_role(role, owner) || (!none && (aclmask(DatumGetAclP(list), role, owner, ACL_SELECT, ACLMASK_ANY) & ACL_SELECT) != 0);
	ReleaseSysCache(tuple);
	return granted;
}

/* Or on each of these columns?  The rights to columns are none that reading all data gives. */
static bool
stored_values_columns_granted(Oid relation, Bitmapset *columns, Oid role)
{
	int			column = -1;

	if (bms_is_empty(columns))
		return false;
	while ((column = bms_next_member(columns, column)) >= 0)
	{
		AttrNumber	number = column + FirstLowInvalidHeapAttributeNumber;

		if (number == InvalidAttrNumber || pg_attribute_aclcheck(relation, number, role, ACL_SELECT) != ACLCHECK_OK)
			return false;
	}
	return true;
}

static bool
stored_values_check(SAS_COMPAT_CHECKED_TABLES, bool complain)
{
	ListCell   *cell;

	foreach(cell, tables)
	{
		RangeTblEntry *entry = lfirst_node(RangeTblEntry, cell);
		Oid			role;

		if (entry->rtekind != RTE_RELATION || (entry->relkind != RELKIND_TOASTVALUE && entry->relid != StatisticRelationId))
			continue;
		role = sas_compat_checked_role(entry);
		if (!OidIsValid(role) || superuser_arg(role) || !stored_values_of_sas(entry->relid) || stored_values_granted(entry->relid, role))
			continue;
		if (stored_values_columns_granted(entry->relid, sas_compat_checked_columns(entry), role))
			continue;
		if (complain)
			aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_TABLE, get_rel_name(entry->relid));
		return false;
	}
	return stored_values_previous_hook == NULL || stored_values_previous_hook(SAS_COMPAT_CHECKED, complain);
}

void
sas_api_stored_values_install(void)
{
	stored_values_previous_hook = ExecutorCheckPerms_hook;
	ExecutorCheckPerms_hook = stored_values_check;
}

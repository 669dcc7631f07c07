/* SPDX-License-Identifier: PostgreSQL */
/*
 * compat.h: every place where PostgreSQL 15, 17 and 18 differ.
 *
 * The rest of the code calls the names below and knows no version number. To
 * support a further major version, change this file and no other.
 */
#ifndef SAS_BASE_COMPAT_H
#define SAS_BASE_COMPAT_H

#include <sys/stat.h>

#include "access/genam.h"
#include "catalog/pg_database.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_proc.h"
#include "commands/extension.h"
#include "common/base64.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "optimizer/pathnode.h"
#include "parser/parse_relation.h"
#include "storage/latch.h"
#include "utils/acl.h"
#include "utils/datetime.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"
#include "utils/memutils.h"

#if PG_VERSION_NUM >= 170000
#include "commands/event_trigger.h"
#endif

#if PG_VERSION_NUM >= 180000
#include "commands/explain_format.h"
#include "commands/explain_state.h"
#include "storage/waiteventset.h"
#endif

#if PG_VERSION_NUM < 150000
#error "sas needs PostgreSQL 15 or later"
#endif

/*
 * What a session waits for: its client at this place, its latch, the
 * postmaster.  NULL in a worker.  libpq/libpq.h declares both, but wants the
 * headers of whatever the server was built with, GSSAPI for example, which the
 * build of an extension need not have.
 */
extern PGDLLIMPORT WaitEventSet *FeBeWaitSet;
#define SAS_COMPAT_CLIENT_POS 0

/* A WaitEventSet that lives as long as the process. */
static inline WaitEventSet *
sas_compat_wait_event_set(int nevents)
{
#if PG_VERSION_NUM >= 170000
	return CreateWaitEventSet(NULL, nevents);
#else
	return CreateWaitEventSet(TopMemoryContext, nevents);
#endif
}

static inline IndexScanDesc
sas_compat_index_beginscan(Relation table, Relation index, Snapshot snapshot, int nkeys)
{
#if PG_VERSION_NUM >= 180000
	return index_beginscan(table, index, snapshot, NULL, nkeys, 0);
#else
	return index_beginscan(table, index, snapshot, nkeys, 0);
#endif
}

static inline bool
sas_compat_owns_database(Oid dboid, Oid role)
{
#if PG_VERSION_NUM >= 160000
	return object_ownercheck(DatabaseRelationId, dboid, role);
#else
	return pg_database_ownercheck(dboid, role);
#endif
}

static inline bool
sas_compat_owns_extension(Oid extoid, Oid role)
{
#if PG_VERSION_NUM >= 160000
	return object_ownercheck(ExtensionRelationId, extoid, role);
#else
	return pg_extension_ownercheck(extoid, role);
#endif
}

static inline bool
sas_compat_may_execute(Oid function, Oid role)
{
#if PG_VERSION_NUM >= 160000
	return object_aclcheck(ProcedureRelationId, function, role, ACL_EXECUTE) == ACLCHECK_OK;
#else
	return pg_proc_aclcheck(function, role, ACL_EXECUTE) == ACLCHECK_OK;
#endif
}

/* The index of the primary key, which is not deferrable. */
static inline Oid
sas_compat_primary_key_index(Relation table)
{
#if PG_VERSION_NUM >= 180000
	return RelationGetPrimaryKeyIndex(table, false);
#else
	return RelationGetPrimaryKeyIndex(table);
#endif
}

/* Memory that a check hook hands over as a setting's extra; NULL when there is none. */
static inline void *
sas_compat_guc_malloc(Size size)
{
#if PG_VERSION_NUM >= 160000
	return guc_malloc(LOG, size);
#else
	return malloc(size);
#endif
}

static inline void
sas_compat_guc_free(void *ptr)
{
#if PG_VERSION_NUM >= 160000
	guc_free(ptr);
#else
	free(ptr);
#endif
}

/* DecodeDateTime(), answering whether the fields are a date and time. */
static inline bool
sas_compat_decode_timestamp(char **field, int *ftype, int nf, int *dtype,
							struct pg_tm *tm, fsec_t *fsec, int *tz)
{
#if PG_VERSION_NUM >= 160000
	DateTimeErrorExtra extra;

	return DecodeDateTime(field, ftype, nf, dtype, tm, fsec, tz, &extra) == 0;
#else
	return DecodeDateTime(field, ftype, nf, dtype, tm, fsec, tz) == 0;
#endif
}

/* From 18 on base64 is made of bytes. */
static inline int
sas_compat_base64(const char *src, int len, char *dst, int dstlen)
{
#if PG_VERSION_NUM >= 180000
	return pg_b64_encode((const uint8 *) src, len, dst, dstlen);
#else
	return pg_b64_encode(src, len, dst, dstlen);
#endif
}

static inline int
sas_compat_base64_decode(const char *src, int len, char *dst, int dstlen)
{
#if PG_VERSION_NUM >= 180000
	return pg_b64_decode(src, len, (uint8 *) dst, dstlen);
#else
	return pg_b64_decode(src, len, dst, dstlen);
#endif
}

/* The record of a setting in this process; NULL: this server does not have it. */
static inline struct config_generic *
sas_compat_setting(const char *name)
{
#if PG_VERSION_NUM >= 160000
	return find_option(name, false, true, 0);
#else
	struct config_generic **all = get_guc_variables();

	for (int i = 0; i < GetNumConfigOptions(); i++)
		if (pg_strcasecmp(all[i]->name, name) == 0)
			return all[i];
	return NULL;
#endif
}

/* Entries for a row that was just inserted, in all indexes of its table; 16 brought a further argument. */
static inline void
sas_compat_insert_index_tuples(ResultRelInfo *target, TupleTableSlot *row, EState *estate)
{
#if PG_VERSION_NUM >= 160000
	list_free(ExecInsertIndexTuples(target, row, estate, false, false, NULL, NIL, false));
#else
	list_free(ExecInsertIndexTuples(target, row, estate, false, false, NULL, NIL));
#endif
}

/* A path of a foreign table, in no order; 17 and 18 brought an argument each. */
static inline ForeignPath *
sas_compat_foreign_path(PlannerInfo *root, RelOptInfo *rel, double rows, double startup, double total)
{
#if PG_VERSION_NUM >= 180000
	return create_foreignscan_path(root, rel, NULL, rows, 0, startup, total, NIL, rel->lateral_relids, NULL, NIL, NIL);
#elif PG_VERSION_NUM >= 170000
	return create_foreignscan_path(root, rel, NULL, rows, startup, total, NIL, rel->lateral_relids, NULL, NIL, NIL);
#else
	return create_foreignscan_path(root, rel, NULL, rows, startup, total, NIL, rel->lateral_relids, NULL, NIL);
#endif
}

/* Databases that a DROP DATABASE left half done; no session can connect to them. */
#ifdef DATCONNLIMIT_INVALID_DB
#define SAS_COMPAT_DATABASE_VALID(form) ((form)->datconnlimit != DATCONNLIMIT_INVALID_DB)
#else
#define SAS_COMPAT_DATABASE_VALID(form) true
#endif

/* Each member of a role could take its rights with SET ROLE before memberships WITH INHERIT FALSE, SET FALSE. */
static inline bool
sas_compat_may_stand_for(Oid member, Oid role)
{
#if PG_VERSION_NUM >= 160000
	return has_privs_of_role(member, role) || member_can_set_role(member, role);
#else
	return is_member_of_role(member, role);
#endif
}

/* Before PostgreSQL 16, who may create roles may also drop all that are no superusers. */
static inline bool
sas_compat_administers(Oid user, Oid role)
{
#if PG_VERSION_NUM >= 160000
	return is_admin_of_role(user, role);
#else
	return true;
#endif
}

/* The arguments of ExecutorCheckPerms_hook before the last: from 16 on the checks stand in a list of their own. */
#if PG_VERSION_NUM >= 160000
#define SAS_COMPAT_CHECKED_TABLES List *tables, List *permissions
#define SAS_COMPAT_CHECKED tables, permissions
#else
#define SAS_COMPAT_CHECKED_TABLES List *tables
#define SAS_COMPAT_CHECKED tables
#endif

/* The role that needs the right to this table; InvalidOid: nobody does. */
#if PG_VERSION_NUM >= 160000
#define sas_compat_checked_role(entry) sas_compat_role_of(entry, permissions)
static inline Oid
sas_compat_role_of(RangeTblEntry *entry, List *permissions)
{
	RTEPermissionInfo *checked = entry->perminfoindex == 0 ? NULL : getRTEPermissionInfo(permissions, entry);
#else
#define sas_compat_checked_role(entry) sas_compat_role_of(entry)
static inline Oid
sas_compat_role_of(RangeTblEntry *checked)
{
#endif
	if (checked == NULL || checked->requiredPerms == 0)
		return InvalidOid;
	return OidIsValid(checked->checkAsUser) ? checked->checkAsUser : GetUserId();
}

/* The columns of the table to which it needs the right, as pg_attribute numbers them from FirstLowInvalidHeapAttributeNumber on. */
#if PG_VERSION_NUM >= 160000
#define sas_compat_checked_columns(entry) (getRTEPermissionInfo(permissions, entry)->selectedCols)
#else
#define sas_compat_checked_columns(entry) ((entry)->selectedCols)
#endif

/* A session can turn event triggers off from 17 on. */
static inline bool
sas_compat_event_triggers_on(void)
{
#if PG_VERSION_NUM >= 170000
	return event_triggers;
#else
	return true;
#endif
}

#endif							/* SAS_BASE_COMPAT_H */

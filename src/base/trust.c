/* SPDX-License-Identifier: PostgreSQL */
/*
 * trust.c: tables that only superusers have a say in. See trust_path.c for functions.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "base/trust.h"
#include "catalog/dependency.h"
#include "catalog/objectaddress.h"
#include "catalog/pg_attrdef.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_database.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_rewrite.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

/* Is it a superuser, or the role that stands for the owner of the database, who is one? */
static bool
trust_is_superuser(Oid role)
{
	HeapTuple	tuple;
	bool		is = superuser_arg(role);

	if (role == ROLE_PG_DATABASE_OWNER && HeapTupleIsValid(tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(MyDatabaseId))))
	{
		is = superuser_arg(((Form_pg_database) GETSTRUCT(tuple))->datdba);
		ReleaseSysCache(tuple);
	}
	return is;
}

/* Does this attribute of the tuple, a list of rights, give that right to others than superusers? */
static bool
trust_gives(int cache, HeapTuple tuple, AttrNumber attribute, AclMode right)
{
	bool		isnull;
	Datum		datum = SysCacheGetAttr(cache, tuple, attribute, &isnull);
	Acl		   *acl;

	if (isnull)
		return false;
	acl = DatumGetAclP(datum);
	for (int i = 0; i < ACL_NUM(acl); i++)
		if ((ACLITEM_GET_PRIVS(ACL_DAT(acl)[i]) & right) != 0 && !trust_is_superuser(ACL_DAT(acl)[i].ai_grantee))
			return true;
	return false;
}

bool
sas_base_schema_is_foreign(Oid schema)
{
	HeapTuple	tuple = SearchSysCache1(NAMESPACEOID, ObjectIdGetDatum(schema));
	bool		foreign = true;

	if (HeapTupleIsValid(tuple))
	{
		foreign = !trust_is_superuser(((Form_pg_namespace) GETSTRUCT(tuple))->nspowner);
		ReleaseSysCache(tuple);
	}
	return foreign;
}

SysScanDesc
sas_base_scan_depend(Relation depend, ScanKeyData keys[2], bool on_others, Oid class, Oid object)
{
	ScanKeyInit(&keys[0], on_others ? Anum_pg_depend_classid : Anum_pg_depend_refclassid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(class));
	ScanKeyInit(&keys[1], on_others ? Anum_pg_depend_objid : Anum_pg_depend_refobjid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(object));
	return systable_beginscan(depend, on_others ? DependDependerIndexId : DependReferenceIndexId, true, NULL, 2, keys);
}

/* Where a search for what an INSERT executes has arrived. */
typedef struct TrustSearch
{
	int			depth;
	const char *distrust;		/* what was found; NULL: nothing */
} TrustSearch;

static void trust_search_table(TrustSearch *search, Oid table);
static void trust_search_uses(TrustSearch *search, Oid class, Oid object, Oid of_table);
static void trust_search_parts(TrustSearch *search, Oid class, Oid object);

/* An object that an INSERT uses, and its owner. */
static void
trust_note_owner(TrustSearch *search, Oid class, Oid object, Oid owner)
{
	ObjectAddress address = {class, object, 0};

	if (search->distrust == NULL && !superuser_arg(owner))
		search->distrust = psprintf("uses %s, which is not owned by a superuser", getObjectDescription(&address, false));
}

static void
trust_search_function(TrustSearch *search, Oid function)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));

	if (HeapTupleIsValid(tuple))
	{
		trust_note_owner(search, ProcedureRelationId, function, ((Form_pg_proc) GETSTRUCT(tuple))->proowner);
		ReleaseSysCache(tuple);
	}
}

/* A domain has checks, and those of the domain that it is made of; a row has types of its own. */
static void
trust_search_type(TrustSearch *search, Oid type)
{
	HeapTuple	tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(type));

	check_stack_depth();
	if (HeapTupleIsValid(tuple))
	{
		Oid			row = ((Form_pg_type) GETSTRUCT(tuple))->typrelid;

		trust_note_owner(search, TypeRelationId, type, ((Form_pg_type) GETSTRUCT(tuple))->typowner);
		ReleaseSysCache(tuple);
		trust_search_uses(search, TypeRelationId, type, InvalidOid);
		trust_search_parts(search, TypeRelationId, type);
		if (OidIsValid(row))
			trust_search_uses(search, RelationRelationId, row, InvalidOid);
	}
}

/* What the expressions of this object name. of_table: a rule of this table also leads to other tables. */
static void
trust_search_uses(TrustSearch *search, Oid class, Oid object, Oid of_table)
{
	Relation	depend = table_open(DependRelationId, AccessShareLock);
	ScanKeyData keys[2];
	SysScanDesc scan = sas_base_scan_depend(depend, keys, true, class, object);
	HeapTuple	tuple;

	while (search->distrust == NULL && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_depend form = (Form_pg_depend) GETSTRUCT(tuple);

		if (form->refclassid == ProcedureRelationId)
			trust_search_function(search, form->refobjid);
		else if (form->refclassid == OperatorRelationId)
			trust_search_function(search, get_opcode(form->refobjid));
		else if (form->refclassid == TypeRelationId && !(class == ConstraintRelationId && form->deptype == DEPENDENCY_AUTO) &&
				 !(class == RelationRelationId && form->deptype == DEPENDENCY_INTERNAL))
			trust_search_type(search, form->refobjid);
		else if (form->refclassid == RelationRelationId && class == RewriteRelationId && form->refobjid != of_table)
			trust_search_table(search, form->refobjid);
	}
	systable_endscan(scan);
	table_close(depend, AccessShareLock);
}

/*
 * What belongs to a table or a domain, and is executed with an INSERT: triggers, rules, defaults,
 * checks, expressions of indexes.
 */
static void
trust_search_parts(TrustSearch *search, Oid class, Oid object)
{
	Relation	depend = table_open(DependRelationId, AccessShareLock);
	ScanKeyData keys[2];
	SysScanDesc scan = sas_base_scan_depend(depend, keys, false, class, object);
	HeapTuple	tuple;

	while (search->distrust == NULL && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_depend form = (Form_pg_depend) GETSTRUCT(tuple);

		if (form->deptype != DEPENDENCY_AUTO && form->deptype != DEPENDENCY_INTERNAL)
			continue;
		if (form->classid == TriggerRelationId || form->classid == AttrDefaultRelationId ||
			form->classid == ConstraintRelationId || form->classid == RewriteRelationId ||
			(form->classid == RelationRelationId && get_rel_relkind(form->objid) == RELKIND_INDEX))
			trust_search_uses(search, form->classid, form->objid, object);
		/* the index of a constraint belongs to that */
		if (form->classid == ConstraintRelationId)
			trust_search_parts(search, ConstraintRelationId, form->objid);
	}
	systable_endscan(scan);
	table_close(depend, AccessShareLock);
}

/* Who may change this table itself? */
static const char *
trust_table_itself(Oid table)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(table));
	Form_pg_class form;
	const char *distrust = NULL;

	if (!HeapTupleIsValid(tuple))
		return "does not exist";
	form = (Form_pg_class) GETSTRUCT(tuple);
	if (!superuser_arg(form->relowner))
		distrust = "is not owned by a superuser";
	else if (trust_gives(RELOID, tuple, Anum_pg_class_relacl, ACL_TRIGGER))
		distrust = "has a right TRIGGER for others than superusers";
	else if (sas_base_schema_is_foreign(form->relnamespace))
		distrust = psprintf("is in schema \"%s\", which is not owned by a superuser", get_namespace_name(form->relnamespace));
	ReleaseSysCache(tuple);
	return distrust;
}

/*
 * The table, what belongs to it, and the tables to which it leads: partitions, the tables of a view
 * or rule. What was made by a role that has lost its right on the table since is found, too.
 */
static void
trust_search_table(TrustSearch *search, Oid table)
{
	List	   *tables = get_rel_relkind(table) == RELKIND_PARTITIONED_TABLE ? find_all_inheritors(table, NoLock, NULL) : list_make1_oid(table);
	ListCell   *lc;

	check_stack_depth();
	if (search->depth++ > 100)
		search->distrust = "leads from rule to rule without end";
	foreach(lc, tables)
	{
		Oid			one = lfirst_oid(lc);

		if (search->distrust != NULL)
			break;
		/* no lock is waited for here, so a partition may be gone */
		if (one != table && get_rel_relkind(one) == '\0')
			continue;
		search->distrust = trust_table_itself(one);
		if (search->distrust == NULL)
			trust_search_uses(search, RelationRelationId, one, InvalidOid);
		if (search->distrust == NULL)
			trust_search_parts(search, RelationRelationId, one);
		if (search->distrust != NULL && (one != table || search->depth > 1))
			search->distrust = psprintf("leads to \"%s\", which %s", get_rel_name(one), search->distrust);
	}
	search->depth--;
}

const char *
sas_base_table_distrust(Oid table)
{
	TrustSearch search = {0, NULL};

	trust_search_table(&search, table);
	return search.distrust;
}

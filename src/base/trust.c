/* SPDX-License-Identifier: PostgreSQL */
/*
 * trust.c: functions and tables that only superusers can change.
 *
 * A function is called under the path of its schema. So a name without a schema in its body may
 * find an object that another role has created there: format(text, text) is preferred to
 * pg_catalog.format(text, VARIADIC "any"), whatever their order in the path.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "base/trust.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "catalog/pg_database.h"
#include "catalog/pg_language.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/catcache.h"
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

/* Is the schema owned by others than superusers, who may drop and replace its objects? */
static bool
trust_schema_is_foreign(Oid schema)
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

/*
 * Does this list of functions or operators of one name contain one of pg_catalog, or of a superuser
 * in the schema?
 */
static bool
trust_name_is_taken(CatCList *list, bool operators, Oid schema)
{
	bool		taken = false;

	for (int i = 0; i < list->n_members && !taken; i++)
	{
		void	   *form = GETSTRUCT(&list->members[i]->tuple);
		Oid			namespace = operators ? ((Form_pg_operator) form)->oprnamespace : ((Form_pg_proc) form)->pronamespace;
		Oid			owner = operators ? ((Form_pg_operator) form)->oprowner : ((Form_pg_proc) form)->proowner;

		taken = namespace == PG_CATALOG_NAMESPACE || (namespace == schema && superuser_arg(owner));
	}
	ReleaseCatCacheList(list);
	return taken;
}

/*
 * Have others created a function or an operator in the schema with the name of one of pg_catalog,
 * or of a superuser's in the same schema? It would be called instead if its parameters match
 * better.
 */
static bool
trust_schema_is_shadowed(Oid schema, bool operators)
{
	Relation	catalog = table_open(operators ? OperatorRelationId : ProcedureRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		shadowed = false;

	ScanKeyInit(&key, operators ? Anum_pg_operator_oprnamespace : Anum_pg_proc_pronamespace,
				BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(schema));
	scan = systable_beginscan(catalog, InvalidOid, false, NULL, 1, &key);
	while (!shadowed && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		void	   *form = GETSTRUCT(tuple);
		Oid			owner = operators ? ((Form_pg_operator) form)->oprowner : ((Form_pg_proc) form)->proowner;
		NameData	name = operators ? ((Form_pg_operator) form)->oprname : ((Form_pg_proc) form)->proname;

		if (!superuser_arg(owner))
			shadowed = trust_name_is_taken(SearchSysCacheList1(operators ? OPERNAMENSP : PROCNAMEARGSNSP, NameGetDatum(&name)),
										   operators, schema);
	}
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	return shadowed;
}

/*
 * Would a function that looks up names in this schema find objects that others have created there?
 */
static bool
trust_schema_misleads(Oid schema)
{
	HeapTuple	tuple = SearchSysCache1(NAMESPACEOID, ObjectIdGetDatum(schema));
	bool		shared = true;

	if (HeapTupleIsValid(tuple))
	{
		shared = trust_gives(NAMESPACEOID, tuple, Anum_pg_namespace_nspacl, ACL_CREATE);
		ReleaseSysCache(tuple);
	}
	return shared && (trust_schema_is_shadowed(schema, false) || trust_schema_is_shadowed(schema, true));
}

/* Does the function look up names in the path that it is called under? */
static bool
trust_uses_path(HeapTuple function)
{
	Oid			language = ((Form_pg_proc) GETSTRUCT(function))->prolang;
	bool		isnull;
	Datum		settings;
	Datum	   *setting;
	int			n = 0;

	(void) SysCacheGetAttr(PROCOID, function, Anum_pg_proc_prosqlbody, &isnull);
	if (!isnull || language == INTERNALlanguageId || language == ClanguageId)
		return false;
	settings = SysCacheGetAttr(PROCOID, function, Anum_pg_proc_proconfig, &isnull);
	if (!isnull)
		deconstruct_array(DatumGetArrayTypeP(settings), TEXTOID, -1, false, TYPALIGN_INT, &setting, NULL, &n);
	for (int i = 0; i < n; i++)
		if (strncmp(TextDatumGetCString(setting[i]), "search_path=", strlen("search_path=")) == 0)
			return false;
	return true;
}

const char *
sas_base_function_distrust(Oid function)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Form_pg_proc form;
	const char *distrust = NULL;

	if (!HeapTupleIsValid(tuple))
		return "does not exist";
	form = (Form_pg_proc) GETSTRUCT(tuple);
	if (!superuser_arg(form->proowner))
		distrust = "is not owned by a superuser";
	else if (trust_uses_path(tuple) && trust_schema_is_foreign(form->pronamespace))
		distrust = psprintf("finds what others than superusers may create in schema \"%s\"", get_namespace_name(form->pronamespace));
	else if (trust_uses_path(tuple) && trust_schema_misleads(form->pronamespace))
		distrust = psprintf("finds what others than superusers have created in schema \"%s\"", get_namespace_name(form->pronamespace));
	ReleaseSysCache(tuple);
	return distrust;
}

const char *
sas_base_table_distrust(Oid table)
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
	else if (trust_schema_is_foreign(form->relnamespace))
		distrust = psprintf("is in schema \"%s\", which is not owned by a superuser", get_namespace_name(form->relnamespace));
	ReleaseSysCache(tuple);
	return distrust;
}

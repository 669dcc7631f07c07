/* SPDX-License-Identifier: PostgreSQL */
/*
 * trust.c: what no role but superusers has a say in.
 *
 * A function is called under the path of its schema, so what its body names
 * without a schema may be what somebody has put there: format(text, text)
 * beats pg_catalog.format(text, VARIADIC "any"), wherever it stands in the
 * path.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "base/trust.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "catalog/pg_database.h"
#include "catalog/pg_language.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
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

/* Does this attribute of the tuple, a list of rights, give that right to others? */
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

/* May others create in that schema, or drop what is there? */
static bool
trust_schema_is_open(Oid schema)
{
	HeapTuple	tuple = SearchSysCache1(NAMESPACEOID, ObjectIdGetDatum(schema));
	bool		open = true;

	if (HeapTupleIsValid(tuple))
	{
		open = !trust_is_superuser(((Form_pg_namespace) GETSTRUCT(tuple))->nspowner) ||
			trust_gives(NAMESPACEOID, tuple, Anum_pg_namespace_nspacl, ACL_CREATE);
		ReleaseSysCache(tuple);
	}
	return open;
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
	else if (trust_schema_is_open(form->pronamespace) && trust_uses_path(tuple))
		distrust = psprintf("finds what others than superusers may create in schema \"%s\"", get_namespace_name(form->pronamespace));
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
	else if (trust_schema_is_open(form->relnamespace))
		distrust = psprintf("is in schema \"%s\", in which others than superusers may create", get_namespace_name(form->relnamespace));
	ReleaseSysCache(tuple);
	return distrust;
}

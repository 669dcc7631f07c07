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
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/objectaddress.h"
#include "catalog/pg_attrdef.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_database.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_language.h"
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
#include "utils/catcache.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/varlena.h"

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

/* The rows of pg_depend about an object: as the one that depends, or the one that others depend on. */
static SysScanDesc
trust_begin_scan(Relation depend, ScanKeyData keys[2], bool on_others, Oid class, Oid object)
{
	ScanKeyInit(&keys[0], on_others ? Anum_pg_depend_classid : Anum_pg_depend_refclassid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(class));
	ScanKeyInit(&keys[1], on_others ? Anum_pg_depend_objid : Anum_pg_depend_refobjid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(object));
	return systable_beginscan(depend, on_others ? DependDependerIndexId : DependReferenceIndexId, true, NULL, 2, keys);
}

/* What is looked up by a name in a path. f(x) may be a cast to a type f, too. */
typedef struct TrustKind
{
	Oid			catalog;
	AttrNumber	name;
	AttrNumber	namespace;
	AttrNumber	owner;
	int			by_oid;			/* the caches */
	int			by_name;
} TrustKind;

static const TrustKind trust_functions = {ProcedureRelationId, Anum_pg_proc_proname, Anum_pg_proc_pronamespace, Anum_pg_proc_proowner, PROCOID, PROCNAMEARGSNSP};
static const TrustKind trust_types = {TypeRelationId, Anum_pg_type_typname, Anum_pg_type_typnamespace, Anum_pg_type_typowner, TYPEOID, TYPENAMENSP};
static const TrustKind trust_operators = {OperatorRelationId, Anum_pg_operator_oprname, Anum_pg_operator_oprnamespace, Anum_pg_operator_oprowner, OPEROID, OPERNAMENSP};

static Oid
trust_oid_of(const TrustKind *kind, HeapTuple tuple, AttrNumber attribute)
{
	bool		isnull;

	return DatumGetObjectId(SysCacheGetAttr(kind->by_oid, tuple, attribute, &isnull));
}

/* Nothing is cast to the type of a table's rows by f(x). */
static bool
trust_is_row_type(const TrustKind *kind, HeapTuple tuple)
{
	return kind == &trust_types && OidIsValid(((Form_pg_type) GETSTRUCT(tuple))->typrelid);
}

/* Does pg_catalog have an object of this kind and name, or a superuser in the schema? */
static bool
trust_is_named(const TrustKind *kind, Datum name, Oid schema)
{
	CatCList   *list = SearchSysCacheList1(kind->by_name, name);
	bool		found = false;

	for (int i = 0; i < list->n_members && !found; i++)
	{
		HeapTuple	tuple = &list->members[i]->tuple;
		Oid			namespace = trust_oid_of(kind, tuple, kind->namespace);

		found = !trust_is_row_type(kind, tuple) &&
			(namespace == PG_CATALOG_NAMESPACE || (namespace == schema && superuser_arg(trust_oid_of(kind, tuple, kind->owner))));
	}
	ReleaseCatCacheList(list);
	return found;
}

/* Is this object of others, and has it the name of one that a function of this schema may mean? */
static bool
trust_is_misleading(const TrustKind *kind, Oid object, Oid schema)
{
	HeapTuple	tuple = SearchSysCache1(kind->by_oid, ObjectIdGetDatum(object));
	bool		misleading = false;
	bool		isnull;

	if (!HeapTupleIsValid(tuple))
		return false;
	if (!superuser_arg(trust_oid_of(kind, tuple, kind->owner)) && !trust_is_row_type(kind, tuple))
	{
		Datum		name = SysCacheGetAttr(kind->by_oid, tuple, kind->name, &isnull);

		misleading = kind == &trust_operators ? trust_is_named(kind, name, schema) :
			trust_is_named(&trust_functions, name, schema) || trust_is_named(&trust_types, name, schema);
	}
	ReleaseSysCache(tuple);
	return misleading;
}

/*
 * Have others created a function, type or operator in the schema with the name of one of
 * pg_catalog, or of a superuser's in the same schema? It would be used instead if its parameters
 * match better, also by who has lost the right to create there since.
 */
static bool
trust_schema_misleads(Oid schema)
{
	Relation	depend = table_open(DependRelationId, AccessShareLock);
	ScanKeyData keys[2];
	SysScanDesc scan = trust_begin_scan(depend, keys, false, NamespaceRelationId, schema);
	HeapTuple	tuple;
	bool		misleads = false;

	while (!misleads && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_depend form = (Form_pg_depend) GETSTRUCT(tuple);
		const TrustKind *kind = form->classid == ProcedureRelationId ? &trust_functions :
			form->classid == TypeRelationId ? &trust_types : form->classid == OperatorRelationId ? &trust_operators : NULL;

		misleads = kind != NULL && trust_is_misleading(kind, form->objid, schema);
	}
	systable_endscan(scan);
	table_close(depend, AccessShareLock);
	return misleads;
}

/* The schemas of a path, as a setting has it. pg_temp has no functions, and pg_catalog is of superusers. */
static List *
trust_schemas_of(char *path)
{
	List	   *names;
	List	   *schemas = NIL;
	ListCell   *lc;

	if (!SplitIdentifierString(path, ',', &names))
		return NIL;
	foreach(lc, names)
	{
		Oid			schema = strcmp(lfirst(lc), "pg_temp") == 0 ? InvalidOid : get_namespace_oid(lfirst(lc), true);

		if (OidIsValid(schema) && schema != PG_CATALOG_NAMESPACE)
			schemas = lappend_oid(schemas, schema);
	}
	return schemas;
}

/* The schemas in which the function looks up names: of its own path, or of that which it is called under. */
static List *
trust_path(HeapTuple function)
{
	Form_pg_proc form = (Form_pg_proc) GETSTRUCT(function);
	bool		isnull;
	Datum		settings;
	Datum	   *setting;
	int			n = 0;

	(void) SysCacheGetAttr(PROCOID, function, Anum_pg_proc_prosqlbody, &isnull);
	if (!isnull || form->prolang == INTERNALlanguageId || form->prolang == ClanguageId)
		return NIL;
	settings = SysCacheGetAttr(PROCOID, function, Anum_pg_proc_proconfig, &isnull);
	if (!isnull)
		deconstruct_array(DatumGetArrayTypeP(settings), TEXTOID, -1, false, TYPALIGN_INT, &setting, NULL, &n);
	for (int i = 0; i < n; i++)
	{
		char	   *named = TextDatumGetCString(setting[i]);

		if (strncmp(named, "search_path=", strlen("search_path=")) == 0)
			return trust_schemas_of(named + strlen("search_path="));
	}
	return list_make1_oid(form->pronamespace);
}

/* What is wrong with the schemas in which the function looks up names; NULL: nothing. */
static const char *
trust_path_distrust(HeapTuple function)
{
	ListCell   *lc;

	foreach(lc, trust_path(function))
	{
		Oid			schema = lfirst_oid(lc);

		if (trust_schema_is_foreign(schema))
			return psprintf("finds what others than superusers may create in schema \"%s\"", get_namespace_name(schema));
		if (trust_schema_misleads(schema))
			return psprintf("finds what others than superusers have created in schema \"%s\"", get_namespace_name(schema));
	}
	return NULL;
}

const char *
sas_base_function_distrust(Oid function)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Form_pg_proc form;
	const char *distrust;

	if (!HeapTupleIsValid(tuple))
		return "does not exist";
	form = (Form_pg_proc) GETSTRUCT(tuple);
	if (!superuser_arg(form->proowner))
		distrust = "is not owned by a superuser";
	else
		distrust = trust_path_distrust(tuple);
	ReleaseSysCache(tuple);
	return distrust;
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
	SysScanDesc scan = trust_begin_scan(depend, keys, true, class, object);
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
	SysScanDesc scan = trust_begin_scan(depend, keys, false, class, object);
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
	else if (trust_schema_is_foreign(form->relnamespace))
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

/* SPDX-License-Identifier: PostgreSQL */
/*
 * trust_path.c: functions that only superusers have a say in.
 *
 * A function is called under the path of its schema, or sets one itself.  So a name without a
 * schema in its body may find an object that another role has created there: format(text, text)
 * is preferred to pg_catalog.format(text, VARIADIC "any"), whatever their order in the path.
 *
 * To look at all objects of a schema takes long where it has many, so an answer is remembered.
 * What would change it is known by its name and schema, and forgets it: with all names that count
 * in the path, the hashes are noted under which the server tells of a new type or relation.
 * Temporary tables have other schemas, and cost nothing here.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "base/array.h"
#include "base/trust.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_language.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/catcache.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/varlena.h"

/* -- what is remembered ------------------------------------------------------------------------ */

/* Where a function looks up names; pg_temp has no functions, and pg_catalog is of superusers. */
typedef struct TrustPath
{
	int			n;
	Oid			schemas[16];	/* without pg_catalog */
	int			before;			/* so many of them come before it */
	bool		too_long;
} TrustPath;

/* Paths in which nothing misleads. */
static TrustPath trust_path_answers[16];
static int	trust_path_answers_n;

/* The hashes of names that would change an answer. */
static uint32 *trust_path_watched;
static int	trust_path_watched_n;
static int	trust_path_watched_size;
static bool trust_path_watched_sorted;

/* How often the server has told of a change: an answer that was looked for meanwhile is not remembered. */
static uint64 trust_path_changes;

static void
trust_path_forget(Datum arg, int cache, uint32 hash)
{
	trust_path_changes++;
	trust_path_watched_n = 0;
	trust_path_answers_n = 0;
}

static int
trust_path_compare(const void *a, const void *b)
{
	uint32		left = *(const uint32 *) a;
	uint32		right = *(const uint32 *) b;

	return left < right ? -1 : left > right ? 1 : 0;
}

/* A type or relation has come, changed or gone. hash 0: any may have. */
static void
trust_path_forget_named(Datum arg, int cache, uint32 hash)
{
	trust_path_changes++;
	if (trust_path_watched_n == 0)
		return;
	if (!trust_path_watched_sorted)
		qsort(trust_path_watched, trust_path_watched_n, sizeof(uint32), trust_path_compare);
	trust_path_watched_sorted = true;
	if (hash == 0 || bsearch(&hash, trust_path_watched, trust_path_watched_n, sizeof(uint32), trust_path_compare) != NULL)
		trust_path_forget(arg, cache, hash);
}

static void
trust_path_listen(void)
{
	static bool listens = false;
	static const int whole[] = {PROCOID, OPEROID, NAMESPACEOID, AUTHOID, DATABASEOID};

	if (listens)
		return;
	for (int i = 0; i < lengthof(whole); i++)
		CacheRegisterSyscacheCallback(whole[i], trust_path_forget, (Datum) 0);
	CacheRegisterSyscacheCallback(TYPENAMENSP, trust_path_forget_named, (Datum) 0);
	CacheRegisterSyscacheCallback(RELNAMENSP, trust_path_forget_named, (Datum) 0);
	listens = true;
}

/* A type or relation of this name in this schema changes what was found. */
static void
trust_path_watch_in(const char *name, Oid schema)
{
	if (trust_path_watched_n + 2 > trust_path_watched_size)
	{
		trust_path_watched_size = Max(4096, 2 * trust_path_watched_size);
		trust_path_watched = trust_path_watched == NULL ?
			MemoryContextAlloc(TopMemoryContext, trust_path_watched_size * sizeof(uint32)) :
			repalloc(trust_path_watched, trust_path_watched_size * sizeof(uint32));
	}
	trust_path_watched[trust_path_watched_n++] = GetSysCacheHashValue2(TYPENAMENSP, CStringGetDatum(name), ObjectIdGetDatum(schema));
	trust_path_watched[trust_path_watched_n++] = GetSysCacheHashValue2(RELNAMENSP, CStringGetDatum(name), ObjectIdGetDatum(schema));
	trust_path_watched_sorted = false;
}

/* -- paths ------------------------------------------------------------------------------------- */

/* As a setting has them. "$user" is the schema with the name of the role as which the function runs. */
static void
trust_path_read(TrustPath *path, char *setting, Oid role)
{
	List	   *names;
	ListCell   *lc;

	if (!SplitIdentifierString(setting, ',', &names))
		return;
	foreach(lc, names)
	{
		const char *name = strcmp(lfirst(lc), "$user") == 0 ? GetUserNameFromId(role, true) : lfirst(lc);
		Oid			schema = name == NULL || strcmp(name, "pg_temp") == 0 ? InvalidOid : get_namespace_oid(name, true);

		if (schema == PG_CATALOG_NAMESPACE)
			path->before = path->n;
		else if (OidIsValid(schema) && path->n < lengthof(path->schemas))
			path->schemas[path->n++] = schema;
		else if (OidIsValid(schema))
			path->too_long = true;
	}
}

/* The path of the function itself, or that which it is called under. */
static TrustPath
trust_path_of(HeapTuple function, Oid role)
{
	Form_pg_proc form = (Form_pg_proc) GETSTRUCT(function);
	TrustPath	path = {0};
	bool		isnull;
	Datum		settings;
	Datum	   *setting;
	int			n = 0;

	(void) SysCacheGetAttr(PROCOID, function, Anum_pg_proc_prosqlbody, &isnull);
	if (!isnull || form->prolang == INTERNALlanguageId || form->prolang == ClanguageId)
		return path;
	settings = SysCacheGetAttr(PROCOID, function, Anum_pg_proc_proconfig, &isnull);
	if (!isnull)
		sas_base_elements(DatumGetArrayTypeP(settings), &setting, NULL, &n);
	for (int i = 0; i < n; i++)
	{
		char	   *named = TextDatumGetCString(setting[i]);

		if (strncmp(named, "search_path=", strlen("search_path=")) == 0)
		{
			trust_path_read(&path, named + strlen("search_path="), form->prosecdef ? form->proowner : role);
			return path;
		}
	}
	path.schemas[path.n++] = form->pronamespace;
	return path;
}

/* -- names ------------------------------------------------------------------------------------- */

/* What is looked up by a name in a path. f(x) may be a cast to a type f, too. */
typedef struct TrustPathKind
{
	Oid			catalog;
	AttrNumber	name;
	AttrNumber	namespace;
	AttrNumber	owner;
	int			by_oid;			/* the caches */
	int			by_name;
} TrustPathKind;

static const TrustPathKind trust_path_functions = {ProcedureRelationId, Anum_pg_proc_proname, Anum_pg_proc_pronamespace, Anum_pg_proc_proowner, PROCOID, PROCNAMEARGSNSP};
static const TrustPathKind trust_path_types = {TypeRelationId, Anum_pg_type_typname, Anum_pg_type_typnamespace, Anum_pg_type_typowner, TYPEOID, TYPENAMENSP};
static const TrustPathKind trust_path_operators = {OperatorRelationId, Anum_pg_operator_oprname, Anum_pg_operator_oprnamespace, Anum_pg_operator_oprowner, OPEROID, OPERNAMENSP};
static const TrustPathKind trust_path_relations = {RelationRelationId, Anum_pg_class_relname, Anum_pg_class_relnamespace, Anum_pg_class_relowner, RELOID, RELNAMENSP};

static const TrustPathKind *
trust_path_kind(Oid catalog)
{
	return catalog == ProcedureRelationId ? &trust_path_functions :
		catalog == TypeRelationId ? &trust_path_types :
		catalog == OperatorRelationId ? &trust_path_operators :
		catalog == RelationRelationId ? &trust_path_relations : NULL;
}

static Oid
trust_path_attribute(const TrustPathKind *kind, HeapTuple tuple, AttrNumber attribute)
{
	bool		isnull;

	return DatumGetObjectId(SysCacheGetAttr(kind->by_oid, tuple, attribute, &isnull));
}

/* Nothing is cast to the type of a table's rows by f(x). */
static bool
trust_path_is_row_type(const TrustPathKind *kind, HeapTuple tuple)
{
	return kind == &trust_path_types && OidIsValid(((Form_pg_type) GETSTRUCT(tuple))->typrelid);
}

static bool
trust_path_has(const TrustPath *path, Oid schema)
{
	for (int i = 0; i < path->n; i++)
		if (path->schemas[i] == schema)
			return true;
	return false;
}

/* Does pg_catalog have an object of this kind and name, or a superuser in a schema of the path? */
static bool
trust_path_is_named(const TrustPathKind *kind, Datum name, const TrustPath *path)
{
	CatCList   *list = SearchSysCacheList1(kind->by_name, name);
	bool		found = false;

	for (int i = 0; i < list->n_members && !found; i++)
	{
		HeapTuple	tuple = &list->members[i]->tuple;
		Oid			namespace = trust_path_attribute(kind, tuple, kind->namespace);

		found = !trust_path_is_row_type(kind, tuple) &&
			(namespace == PG_CATALOG_NAMESPACE ||
			 (trust_path_has(path, namespace) && superuser_arg(trust_path_attribute(kind, tuple, kind->owner))));
	}
	ReleaseCatCacheList(list);
	return found;
}

/* Is it an object of this schema that a superuser owns? */
static bool
trust_path_superuser_has(const TrustPathKind *kind, Datum name, Oid schema)
{
	HeapTuple	tuple = SearchSysCache2(kind->by_name, name, ObjectIdGetDatum(schema));
	bool		has = false;

	if (HeapTupleIsValid(tuple))
	{
		has = superuser_arg(trust_path_attribute(kind, tuple, kind->owner));
		ReleaseSysCache(tuple);
	}
	return has;
}

/*
 * Does a relation or type of this name, in the schema at that place of the path, take the place of
 * one of pg_catalog or of a superuser? Of these the first in the path is taken.
 */
static bool
trust_path_hides(Datum name, const TrustPath *path, int place)
{
	bool		hides = place < path->before &&
		(trust_path_superuser_has(&trust_path_relations, name, PG_CATALOG_NAMESPACE) ||
		 trust_path_superuser_has(&trust_path_types, name, PG_CATALOG_NAMESPACE));

	for (int later = place + 1; later < path->n && !hides; later++)
		hides = trust_path_superuser_has(&trust_path_relations, name, path->schemas[later]) ||
			trust_path_superuser_has(&trust_path_types, name, path->schemas[later]);
	return hides;
}

/* Is this object of others, and has it the name of one that a function with this path may mean? */
static bool
trust_path_object_misleads(const TrustPathKind *kind, Oid object, const TrustPath *path, int place)
{
	HeapTuple	tuple = SearchSysCache1(kind->by_oid, ObjectIdGetDatum(object));
	bool		misleads = false;
	bool		isnull;
	Datum		name;

	if (!HeapTupleIsValid(tuple))
		return false;
	name = SysCacheGetAttr(kind->by_oid, tuple, kind->name, &isnull);
	if (kind != &trust_path_operators)
		trust_path_watch_in(NameStr(*DatumGetName(name)), PG_CATALOG_NAMESPACE);
	for (int i = 0; i < path->n && kind != &trust_path_operators; i++)
		trust_path_watch_in(NameStr(*DatumGetName(name)), path->schemas[i]);
	if (!superuser_arg(trust_path_attribute(kind, tuple, kind->owner)))
	{
		if (kind == &trust_path_operators)
			misleads = trust_path_is_named(&trust_path_operators, name, path);
		else if (kind != &trust_path_relations && !trust_path_is_row_type(kind, tuple))
			misleads = trust_path_is_named(&trust_path_functions, name, path) || trust_path_is_named(&trust_path_types, name, path);
		if (kind == &trust_path_relations || kind == &trust_path_types)
			misleads |= trust_path_hides(name, path, place);
	}
	ReleaseSysCache(tuple);
	return misleads;
}

/*
 * Have others created something in this schema of the path with the name of something of
 * pg_catalog, or of a superuser's in the path? It would be used instead if its parameters match
 * better, or it comes first; also by who has lost the right to create there since.
 */
static bool
trust_path_misleads(const TrustPath *path, int place)
{
	Relation	depend = table_open(DependRelationId, AccessShareLock);
	ScanKeyData keys[2];
	SysScanDesc scan = sas_base_scan_depend(depend, keys, false, NamespaceRelationId, path->schemas[place]);
	HeapTuple	tuple;
	bool		misleads = false;

	while (!misleads && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_depend form = (Form_pg_depend) GETSTRUCT(tuple);
		const TrustPathKind *kind = trust_path_kind(form->classid);

		misleads = kind != NULL && trust_path_object_misleads(kind, form->objid, path, place);
	}
	systable_endscan(scan);
	table_close(depend, AccessShareLock);
	return misleads;
}

/* Watches the names of this catalog's objects in pg_catalog: others may give them to a type. */
static void
trust_path_watch_catalog(const TrustPath *path, const TrustPathKind *kind)
{
	Relation	catalog = table_open(kind->catalog, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, kind->namespace, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(PG_CATALOG_NAMESPACE));
	scan = systable_beginscan(catalog, InvalidOid, false, NULL, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		bool		isnull;
		Datum		name = heap_getattr(tuple, kind->name, RelationGetDescr(catalog), &isnull);

		for (int i = 0; i < path->n; i++)
			trust_path_watch_in(NameStr(*DatumGetName(name)), path->schemas[i]);
	}
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
}

static bool
trust_path_is_known(const TrustPath *path)
{
	for (int i = 0; i < trust_path_answers_n; i++)
		if (trust_path_answers[i].n == path->n && trust_path_answers[i].before == path->before &&
			memcmp(trust_path_answers[i].schemas, path->schemas, path->n * sizeof(Oid)) == 0)
			return true;
	return false;
}

/* Nothing of it misleads. changes: how often anything had changed before that was looked at. */
static void
trust_path_remember(const TrustPath *path, uint64 changes)
{
	/* they get no fewer by themselves */
	if (trust_path_answers_n == lengthof(trust_path_answers))
		trust_path_forget((Datum) 0, 0, 0);
	else if (changes == trust_path_changes)
		trust_path_answers[trust_path_answers_n++] = *path;
}

/* What is wrong with the schemas in which the function looks up names; NULL: nothing. */
static const char *
trust_path_distrust(const TrustPath *path)
{
	uint64		changes;

	if (path->too_long)
		return psprintf("has a search_path of more than %d schemas", (int) lengthof(path->schemas));
	if (path->n == 0 || trust_path_is_known(path))
		return NULL;
	/* also of paths that mislead */
	if (trust_path_watched_n > 1000000)
		trust_path_forget((Datum) 0, 0, 0);
	changes = trust_path_changes;
	for (int place = 0; place < path->n; place++)
	{
		Oid			schema = path->schemas[place];

		if (sas_base_schema_is_foreign(schema))
			return psprintf("finds what others than superusers may create in schema \"%s\"", get_namespace_name(schema));
		if (trust_path_misleads(path, place))
			return psprintf("finds what others than superusers have created in schema \"%s\"", get_namespace_name(schema));
	}
	trust_path_watch_catalog(path, &trust_path_functions);
	trust_path_watch_catalog(path, &trust_path_types);
	trust_path_remember(path, changes);
	return NULL;
}

bool
sas_base_schema_misleads(Oid schema)
{
	TrustPath	path = {.n = 1,.schemas = {schema}};

	if (schema == PG_CATALOG_NAMESPACE)
		return false;
	trust_path_listen();
	AcceptInvalidationMessages();
	return trust_path_distrust(&path) != NULL;
}

const char *
sas_base_function_distrust(Oid function, Oid role)
{
	HeapTuple	tuple;
	TrustPath	path;
	const char *distrust;

	trust_path_listen();
	AcceptInvalidationMessages();
	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	if (!HeapTupleIsValid(tuple))
		return "does not exist";
	path = trust_path_of(tuple, role);
	if (!superuser_arg(((Form_pg_proc) GETSTRUCT(tuple))->proowner))
		distrust = "is not owned by a superuser";
	else
		distrust = trust_path_distrust(&path);
	ReleaseSysCache(tuple);
	return distrust;
}

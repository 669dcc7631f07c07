/* SPDX-License-Identifier: PostgreSQL */
/*
 * connections.c: closes the connections that dblink and postgres_fdw keep open
 * in a session, before code of another role runs in it.
 *
 * A connection of dblink has a name, or is the unnamed one.  Any code that
 * uses the name acts with the rights that the connection was opened with.
 *
 * The functions that close connections are looked up by name and library,
 * since only superusers create functions in C.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "base/array.h"
#include "catalog/pg_language.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/catcache.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/syscache.h"
#include "work/connections.h"

/* The function in C of that name and number of arguments, out of that library; InvalidOid: there is none here. */
static Oid
connections_function(const char *name, int n_arguments, const char *library)
{
	CatCList   *found = SearchSysCacheList1(PROCNAMEARGSNSP, CStringGetDatum(name));
	Oid			function = InvalidOid;

	for (int i = 0; i < found->n_members; i++)
	{
		HeapTuple	tuple = &found->members[i]->tuple;
		Form_pg_proc row = (Form_pg_proc) GETSTRUCT(tuple);
		bool		isnull;
		Datum		file = SysCacheGetAttr(PROCOID, tuple, Anum_pg_proc_probin, &isnull);
		char	   *path;
		size_t		length;

		if (isnull || row->prolang != ClanguageId || row->pronargs != n_arguments)
			continue;
		path = TextDatumGetCString(file);
		length = strlen(path);
		if (length >= strlen(library) && strcmp(path + length - strlen(library), library) == 0)
			function = row->oid;
	}
	ReleaseSysCacheList(found);
	return function;
}

/* In a subtransaction: what cannot be closed, as there is no such connection, is closed. */
static void
connections_try(Oid function, const char *name)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		if (name != NULL)
			(void) OidFunctionCall1(function, CStringGetTextDatum(name));
		else
			(void) OidFunctionCall0(function);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
}

/* The names of connections; NIL: there are none. */
static List *
connections_names(Oid function)
{
	LOCAL_FCINFO(fcinfo, 0);
	FmgrInfo	flinfo;
	Datum		array;
	Datum	   *values;
	bool	   *nulls;
	int			n;
	List	   *names = NIL;

	fmgr_info(function, &flinfo);
	InitFunctionCallInfoData(*fcinfo, &flinfo, 0, InvalidOid, NULL, NULL);
	array = FunctionCallInvoke(fcinfo);
	if (fcinfo->isnull)
		return NIL;
	sas_base_elements(DatumGetArrayTypeP(array), &values, &nulls, &n);
	for (int i = 0; i < n; i++)
		if (!nulls[i])
			names = lappend(names, TextDatumGetCString(values[i]));
	return names;
}

void
sas_work_close_dblink(void)
{
	Oid			names = connections_function("dblink_get_connections", 0, "dblink");
	Oid			named = connections_function("dblink_disconnect", 1, "dblink");
	Oid			unnamed = connections_function("dblink_disconnect", 0, "dblink");
	ListCell   *cell;

	if (!OidIsValid(names) || !OidIsValid(named) || !OidIsValid(unnamed))
		return;
	foreach(cell, connections_names(names))
		connections_try(named, lfirst(cell));
	connections_try(unnamed, NULL);
}

void
sas_work_close_connections(void)
{
	Oid			foreign = connections_function("postgres_fdw_disconnect_all", 0, "postgres_fdw");

	sas_work_close_dblink();
	if (OidIsValid(foreign))
		connections_try(foreign, NULL);
}

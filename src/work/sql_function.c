/* SPDX-License-Identifier: PostgreSQL */
/*
 * sql_function.c: functions of users in SQL whose body is one expression.
 *
 * Until PostgreSQL 18 each call of a function in SQL parses and plans its body
 * again, if what it was planned in has ended; and each call of a step is a
 * subtransaction.  So the planner puts the body of such a function in the place
 * of its call, as it does in a statement, and what comes of that is kept to the
 * end of the transaction.  Not for longer: in a body, 'now' and 'today' are
 * constants of the transaction in which it is parsed.  Nor under other settings:
 * they say what the text of a constant means.  What the functions in it keep for
 * themselves, plans with row policies among them, ends with each evaluation.
 *
 * Whatever body the planner leaves to a call is called.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_language.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parse_expr.h"
#include "parser/parser.h"
#include "pgtime.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/bytea.h"
#include "utils/float.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/xml.h"
#include "work/sql_function.h"

/* What a text means as a constant, and a constant as a text, depends on these. Compared as bytes: it has no padding. */
typedef struct SqlSettings
{
	int			dates[2];
	int			intervals;
	int			backslashes;
	int			xml;
	int			bytes;
	int			digits;
	bool		conforming;
	bool		null_equals;
	bool		array_nulls;
	bool		quotes;
	pg_tz	   *timezone;
	char		abbreviations[NAMEDATALEN];
	char		money[NAMEDATALEN];
} SqlSettings;

typedef struct SqlFunction
{
	Oid			function;		/* InvalidOid: the entry is empty */
	Oid			role;			/* whose rights were looked at when it was made */
	uint64		generation;
	MemoryContext context;
	char	   *name;
	bool		changes;		/* it is volatile: it sees all that was written before */
	Expr	   *body;
	SqlSettings settings;		/* under which it was parsed */
	SubTransactionId used_in;	/* evaluated in this one, if that is still going on; if not, it failed there */
} SqlFunction;

static SqlFunction sql_function_kept[32];	/* of this transaction */
static MemoryContext sql_function_context = NULL;	/* ends with it */
static uint64 sql_function_generation = 1;	/* of all that bodies are made of */

/* functions that have to be called, as far as this generation tells */
static struct
{
	Oid			function;
	uint64		generation;
}			sql_function_called[64];

static void
sql_function_forget(Datum arg, int cache, uint32 hash)
{
	sql_function_generation++;
}

/* It may have become another table or sequence of that name, or have other columns. */
static void
sql_function_forget_tables(Datum arg, Oid relation)
{
	sql_function_generation++;
}

static void
sql_function_end(void *arg)
{
	memset(sql_function_kept, 0, sizeof(sql_function_kept));
	sql_function_context = NULL;
}

static void
sql_function_prepare(void)
{
	static const int caches[] = {PROCOID, NAMESPACEOID, TYPEOID, OPEROID, AUTHOID, AUTHMEMROLEMEM, DATABASEOID,
	CASTSOURCETARGET, COLLOID, TSCONFIGOID, TSDICTOID};
	static bool listens = false;
	MemoryContextCallback *callback;

	for (int i = 0; !listens && i < lengthof(caches); i++)
		CacheRegisterSyscacheCallback(caches[i], sql_function_forget, (Datum) 0);
	if (!listens)
		CacheRegisterRelcacheCallback(sql_function_forget_tables, (Datum) 0);
	listens = true;
	if (sql_function_context != NULL)
		return;
	sql_function_context = AllocSetContextCreate(TopTransactionContext, "sas functions in SQL", ALLOCSET_SMALL_SIZES);
	callback = MemoryContextAllocZero(sql_function_context, sizeof(MemoryContextCallback));
	callback->func = sql_function_end;
	MemoryContextRegisterResetCallback(sql_function_context, callback);
}

static void
sql_function_get_settings(SqlSettings *settings)
{
	const char *abbreviations = GetConfigOption("timezone_abbreviations", false, false);
	const char *money = GetConfigOption("lc_monetary", false, false);

	memset(settings, 0, sizeof(*settings));
	settings->dates[0] = DateStyle;
	settings->dates[1] = DateOrder;
	settings->intervals = IntervalStyle;
	settings->backslashes = backslash_quote;
	settings->xml = xmloption;
	settings->bytes = bytea_output;
	settings->digits = extra_float_digits;
	settings->conforming = standard_conforming_strings;
	settings->null_equals = Transform_null_equals;
	settings->array_nulls = Array_nulls;
	settings->quotes = quote_all_identifiers;
	settings->timezone = session_timezone;
	strlcpy(settings->abbreviations, abbreviations, sizeof(settings->abbreviations));
	strlcpy(settings->money, money, sizeof(settings->money));
}

/* May the body be one expression, which is evaluated with the rights of the caller? */
static bool
sql_function_is_candidate(Oid function, char **name, bool *changes)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Form_pg_proc proc;
	bool		is;

	if (!HeapTupleIsValid(tuple))
		return false;
	proc = (Form_pg_proc) GETSTRUCT(tuple);
	is = proc->prolang == SQLlanguageId && proc->prokind == PROKIND_FUNCTION && proc->prorettype == JSONBOID &&
		proc->pronargs == 1 && proc->proargtypes.values[0] == JSONBOID && !proc->proretset && !proc->prosecdef &&
		heap_attisnull(tuple, Anum_pg_proc_proconfig, NULL);
	*name = pstrdup(NameStr(proc->proname));
	*changes = proc->provolatile == PROVOLATILE_VOLATILE;
	ReleaseSysCache(tuple);
	return is;
}

/* NULL: it has to be called. */
static Expr *
sql_function_body(Oid function)
{
	Param	   *input = makeNode(Param);
	Expr	   *body;

	input->paramkind = PARAM_EXTERN;
	input->paramid = 1;
	input->paramtype = JSONBOID;
	input->paramtypmod = -1;
	input->paramcollid = InvalidOid;
	input->location = -1;
	body = expression_planner((Expr *) makeFuncExpr(function, JSONBOID, list_make1(input), InvalidOid, InvalidOid, COERCE_EXPLICIT_CALL));
	if (IsA(body, FuncExpr) && ((FuncExpr *) body)->funcid == function)
		return NULL;
	return body;
}

/* Fills the entry; false: the function has to be called. */
static bool
sql_function_make(SqlFunction *f, Oid function, const SqlSettings *settings)
{
	uint64		generation = sql_function_generation;
	/* an error frees it with the subtransaction */
	MemoryContext context = AllocSetContextCreate(CurTransactionContext, "sas function in SQL", ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	char	   *name;
	bool		changes;
	Expr	   *body = sql_function_is_candidate(function, &name, &changes) ? sql_function_body(function) : NULL;

	MemoryContextSwitchTo(old);
	if (f->context != NULL)
		MemoryContextDelete(f->context);
	memset(f, 0, sizeof(*f));
	if (body == NULL)
	{
		MemoryContextDelete(context);
		return false;
	}
	MemoryContextSetParent(context, sql_function_context);
	*f = (SqlFunction) {function, GetUserId(), generation, context, name, changes, body};
	f->settings = *settings;
	return true;
}

static SqlFunction *
sql_function_find(Oid function)
{
	SqlFunction *f = &sql_function_kept[function % lengthof(sql_function_kept)];
	int			called = function % lengthof(sql_function_called);
	SqlSettings settings;

	if (sql_function_called[called].function == function && sql_function_called[called].generation == sql_function_generation)
		return NULL;
	sql_function_prepare();
	if (f->used_in != InvalidSubTransactionId && SubTransactionIsActive(f->used_in))
		return NULL;			/* the function calls itself, or another one that has its place */
	sql_function_get_settings(&settings);
	if (f->function == function && f->role == GetUserId() && f->generation == sql_function_generation && f->used_in == InvalidSubTransactionId &&
		memcmp(&f->settings, &settings, sizeof(settings)) == 0)
		return f;
	if (sql_function_make(f, function, &settings))
		return f;
	sql_function_called[called].function = function;
	sql_function_called[called].generation = sql_function_generation;
	return NULL;
}

/* As in a call of the function. */
static void
sql_function_error_context(void *arg)
{
	errcontext("SQL function \"%s\" statement 1", (const char *) arg);
}

bool
sas_work_sql_evaluate(Oid function, Jsonb *input, Datum *result, bool *isnull)
{
	SqlFunction *f = sql_function_find(function);
	ErrorContextCallback where = {.callback = sql_function_error_context};
	ParamListInfo params;
	ExprContext *econtext;
	ExprState  *state;
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext context;

	if (f == NULL)
		return false;
	where.arg = f->name;
	where.previous = error_context_stack;
	error_context_stack = &where;
	f->used_in = GetCurrentSubTransactionId();
	params = makeParamList(1);
	params->params[0] = (ParamExternData) {JsonbPGetDatum(input), input == NULL, PARAM_FLAG_CONST, JSONBOID};
	if (f->changes)
	{
		CommandCounterIncrement();
		PushActiveSnapshot(GetTransactionSnapshot());
	}
	/* an abort frees it with the subtransaction */
	context = AllocSetContextCreate(CurTransactionContext, "sas evaluation of a function in SQL", ALLOCSET_SMALL_SIZES);
	MemoryContextSwitchTo(context);
	state = ExecInitExpr(f->body, NULL);
	econtext = CreateStandaloneExprContext();
	econtext->ecxt_param_list_info = params;
	*result = ExecEvalExprSwitchContext(state, econtext, isnull);
	MemoryContextSwitchTo(caller);
	if (!*isnull)
		*result = PointerGetDatum(PG_DETOAST_DATUM_COPY(*result));
	if (f->changes)
		PopActiveSnapshot();
	FreeExprContext(econtext, true);
	MemoryContextDelete(context);
	f->used_in = InvalidSubTransactionId;
	error_context_stack = where.previous;
	return true;
}

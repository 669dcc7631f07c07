/* SPDX-License-Identifier: PostgreSQL */
/*
 * path.c
 *		Compiles paths, keeps them, and finds what they point to.
 *
 * A path is compiled once per backend.  The cache holds a bounded number of bounded texts and is
 * emptied when full; it depends on nothing in the database, so it needs no invalidation.
 *
 * Most paths are members and plain subscripts: those are walked here, without the executor of
 * PostgreSQL.  Where its lax mode would do more than follow a member (unwrap an array, wrap a
 * scalar), the executor does it.  The variant with time zone is called: the other one raises, even
 * when silent, where a comparison of dates needs one.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#include "template/path.h"

#define CACHE_ENTRIES 1000
#define CACHE_TEXT 8192			/* longer paths are compiled each time */

typedef struct CacheEntry
{
	uint64		hash;			/* key: of text and kind */
	char	   *text;
	int			len;
	SasPathKind kind;
	SasPath    *path;
} CacheEntry;

typedef enum Walked
{
	WALKED_FOUND,
	WALKED_NOTHING,
	WALKED_UNSURE				/* ask the executor */
} Walked;

static MemoryContext path_cache_context = NULL;
static HTAB *path_cache = NULL;

char *
sas_template_caught(MemoryContext caller)
{
	ErrorData  *error;
	char	   *message;

	switch (ERRCODE_TO_CATEGORY(geterrcode()))
	{
		case ERRCODE_DATA_EXCEPTION:
		case ERRCODE_SYNTAX_ERROR_OR_ACCESS_RULE_VIOLATION:
		case ERRCODE_FEATURE_NOT_SUPPORTED:
		case ERRCODE_PROGRAM_LIMIT_EXCEEDED:
			break;
		default:
			PG_RE_THROW();
	}

	MemoryContextSwitchTo(caller);
	error = CopyErrorData();
	FlushErrorState();
	message = pstrdup(error->message);
	FreeErrorData(error);
	return message;
}

static void
path_empty_cache(void)
{
	HASHCTL		control;

	path_cache = NULL;
	if (path_cache_context != NULL)
		MemoryContextReset(path_cache_context);
	else
		path_cache_context = AllocSetContextCreate(TopMemoryContext, "sas template paths",
												   ALLOCSET_DEFAULT_SIZES);

	memset(&control, 0, sizeof(control));
	control.keysize = sizeof(uint64);
	control.entrysize = sizeof(CacheEntry);
	control.hcxt = path_cache_context;
	path_cache = hash_create("sas template paths", 128, &control,
							 HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

/* Does a predicate begin with something that needs no "$." before it? */
static bool
path_needs_no_root(const char *text)
{
	static const char *const words[] = {"strict", "lax", "exists", "true", "false", "null"};

	text += strspn(text, " \t\n\r\f");
	if (*text == '\0' || strchr("$(!@\"+-.0123456789", *text) != NULL)
		return true;
	for (int i = 0; i < lengthof(words); i++)
	{
		size_t		len = strlen(words[i]);

		if (pg_strncasecmp(text, words[i], len) == 0 &&
			(text[len] == '\0' || strchr(" \t\n\r\f$(=!<>&|", text[len]) != NULL))
			return true;
	}
	return false;
}

/* Parses and checks. All memory goes to the current context. */
static JsonPath *
path_parse(char *text, char **reason)
{
	MemoryContext caller = CurrentMemoryContext;
	JsonPath   *volatile jsonpath = NULL;
	char	   *volatile variable = NULL;

	PG_TRY();
	{
		char	   *name;

		jsonpath = DatumGetJsonPathP(DirectFunctionCall1(jsonpath_in, CStringGetDatum(text)));
		sas_template_path_roots(jsonpath, &name);
		variable = name;
	}
	PG_CATCH();
	{
		jsonpath = NULL;
		*reason = sas_template_caught(caller);
	}
	PG_END_TRY();

	if (variable != NULL)
	{
		*reason = psprintf("variable \"$%s\" does not exist", variable);
		return NULL;
	}
	return jsonpath;
}

/* Parse in a context of its own, so that only the jsonpath is left behind, if that. */
static JsonPath *
path_compile(const char *text, int len, SasPathKind kind, char **reason)
{
	MemoryContext target = CurrentMemoryContext;
	MemoryContext scratch = AllocSetContextCreate(target, "sas template parse",
												  ALLOCSET_SMALL_SIZES);
	JsonPath   *jsonpath;
	char	   *full;

	MemoryContextSwitchTo(scratch);
	full = pnstrdup(text, len);
	if (kind == SAS_PATH_REFERENCE || !path_needs_no_root(full))
		full = psprintf("$.%s", full);
	jsonpath = path_parse(full, reason);
	MemoryContextSwitchTo(target);

	if (jsonpath == NULL)
		*reason = pstrdup(*reason);
	else
		jsonpath = memcpy(palloc(VARSIZE(jsonpath)), jsonpath, VARSIZE(jsonpath));
	MemoryContextDelete(scratch);
	return jsonpath;
}

static SasPath *
path_build(JsonPath *jsonpath)
{
	SasPath    *path = palloc0(sizeof(SasPath));

	path->jsonpath = memcpy(palloc(VARSIZE(jsonpath)), jsonpath, VARSIZE(jsonpath));
	sas_template_path_steps(path);
	return path;
}

const SasPath *
sas_template_path(const char *text, int len, SasPathKind kind, char **reason)
{
	MemoryContext caller = CurrentMemoryContext;
	uint64		hash = hash_bytes_extended((const unsigned char *) text, len, kind);
	CacheEntry *entry;
	CacheEntry	fresh;
	JsonPath   *jsonpath;

	if (path_cache == NULL)
		path_empty_cache();

	entry = hash_search(path_cache, &hash, HASH_FIND, NULL);
	if (entry != NULL && entry->len == len && entry->kind == kind &&
		memcmp(entry->text, text, len) == 0)
		return entry->path;

	jsonpath = path_compile(text, len, kind, reason);
	if (jsonpath == NULL)
		return NULL;
	if (entry != NULL || len > CACHE_TEXT)
		return path_build(jsonpath);
	if (hash_get_num_entries(path_cache) >= CACHE_ENTRIES)
		path_empty_cache();

	/* What can fail for want of memory comes before the entry exists. */
	MemoryContextSwitchTo(path_cache_context);
	fresh.hash = hash;
	fresh.text = pnstrdup(text, len);
	fresh.len = len;
	fresh.kind = kind;
	fresh.path = path_build(jsonpath);
	MemoryContextSwitchTo(caller);

	entry = hash_search(path_cache, &hash, HASH_ENTER, NULL);
	*entry = fresh;
	return entry->path;
}

const char *
sas_template_kind(const JsonbValue *value)
{
	switch (value->type)
	{
		case jbvNull:
			return "null";
		case jbvString:
			return "a string";
		case jbvNumeric:
			return "a number";
		case jbvBool:
			return "a boolean";
		case jbvBinary:
			return JsonContainerIsArray(value->val.binary.data) ? "an array" : "an object";
		default:
			return "a value";
	}
}

/* Why the walk ended at this step; value is what the steps before it found. */
static char *
path_explain(const SasPath *path, int stop, const JsonbValue *value)
{
	StringInfoData before;
	const SasPathStep *step = &path->steps[stop];

	initStringInfo(&before);
	for (int i = 0; i < stop; i++)
	{
		if (path->steps[i].key != NULL)
			appendStringInfo(&before, "%s%s", i > 0 ? "." : "", path->steps[i].key);
		else if (path->steps[i].index < 0)
			appendStringInfoString(&before, "[last]");
		else
			appendStringInfo(&before, "[%d]", path->steps[i].index);
	}

	if (stop == 0)
		return psprintf("There is no \"%s\" here.", step->key != NULL ? step->key : "");
	if (step->key == NULL)
		return psprintf("\"%s\" is an array of length %d.", before.data,
						(int) JsonContainerSize(value->val.binary.data));
	if (value->type != jbvBinary)
		return psprintf("\"%s\" is %s.", before.data, sas_template_kind(value));
	return psprintf("\"%s\" has no member \"%s\".", before.data, step->key);
}

static Walked
path_walk(const SasPath *path, Jsonb *root, JsonbValue *value, char **hint)
{
	JsonbValue	at;

	at.type = jbvBinary;
	at.val.binary.data = &root->root;
	at.val.binary.len = VARSIZE(root) - VARHDRSZ;
	if (JB_ROOT_IS_SCALAR(root))
		return WALKED_UNSURE;

	for (int i = 0; i < path->nsteps; i++)
	{
		const SasPathStep *step = &path->steps[i];
		bool		object = at.type == jbvBinary && JsonContainerIsObject(at.val.binary.data);
		bool		array = at.type == jbvBinary && JsonContainerIsArray(at.val.binary.data);
		JsonbValue *next = NULL;

		if (step->key == NULL ? !array : array)
			return WALKED_UNSURE;
		if (step->key == NULL)
		{
			int			count = JsonContainerSize(at.val.binary.data);
			int			index = step->index < 0 ? count - 1 : step->index;

			if (index >= 0 && index < count)
				next = getIthJsonbValueFromContainer(at.val.binary.data, index);
		}
		else if (object)
			next = getKeyJsonValueFromContainer(at.val.binary.data, step->key, step->key_len, NULL);
		if (next == NULL)
		{
			*hint = path_explain(path, i, &at);
			return WALKED_NOTHING;
		}
		at = *next;
	}
	*value = at;
	return WALKED_FOUND;
}

static Jsonb *
path_no_variables(void)
{
	static Jsonb *empty = NULL;

	if (empty == NULL)
	{
		empty = MemoryContextAllocZero(TopMemoryContext, VARHDRSZ + sizeof(uint32));
		SET_VARSIZE(empty, VARHDRSZ + sizeof(uint32));
		empty->root.header = JB_FOBJECT;
	}
	return empty;
}

/* All values found, as an array; NULL with *hint set when that cannot be told. */
static Jsonb *
path_query(const SasPath *path, Jsonb *root, char **hint)
{
	MemoryContext caller = CurrentMemoryContext;
	Jsonb	   *volatile found = NULL;

	PG_TRY();
	{
		found = DatumGetJsonbP(DirectFunctionCall4(jsonb_path_query_array_tz,
												   JsonbPGetDatum(root),
												   PointerGetDatum(path->jsonpath),
												   JsonbPGetDatum(path_no_variables()),
												   BoolGetDatum(true)));
	}
	PG_CATCH();
	{
		found = NULL;
		*hint = sas_template_caught(caller);
	}
	PG_END_TRY();
	return found;
}

bool
sas_template_find(const SasPath *path, Jsonb *root, bool optional, JsonbValue *value,
				  SasTemplateProblem *problem)
{
	char	   *hint = NULL;
	Walked		walked = path_walk(path, root, value, &hint);
	Jsonb	   *found;

	if (walked == WALKED_FOUND && path->plain)
		return true;

	if (walked != WALKED_NOTHING)
	{
		found = path_query(path, root, &hint);
		if (found == NULL)
		{
			problem->what = SAS_TEMPLATE_NOT_EVALUATED;
			problem->hint = hint;
			return false;
		}
		if (path->many)
		{
			value->type = jbvBinary;
			value->val.binary.data = &found->root;
			value->val.binary.len = VARSIZE(found) - VARHDRSZ;
			return true;
		}
		if (JB_ROOT_COUNT(found) == 1)
		{
			*value = *getIthJsonbValueFromContainer(&found->root, 0);
			return true;
		}
		if (JB_ROOT_COUNT(found) > 1)
		{
			problem->what = SAS_TEMPLATE_SEVERAL_FOUND;
			problem->hint = pstrdup("Write [*] to get an array, or a subscript to get one element.");
			return false;
		}
	}

	value->type = jbvNull;
	if (optional)
		return true;
	problem->what = SAS_TEMPLATE_NOTHING_FOUND;
	problem->hint = hint;
	return false;
}

int
sas_template_match(const SasPath *path, Jsonb *root)
{
	MemoryContext caller = CurrentMemoryContext;
	volatile int answer = -1;

	PG_TRY();
	{
		LOCAL_FCINFO(fcinfo, 4);
		Datum		matched;

		InitFunctionCallInfoData(*fcinfo, NULL, 4, InvalidOid, NULL, NULL);
		fcinfo->args[0].value = JsonbPGetDatum(root);
		fcinfo->args[1].value = PointerGetDatum(path->jsonpath);
		fcinfo->args[2].value = JsonbPGetDatum(path_no_variables());
		fcinfo->args[3].value = BoolGetDatum(true);
		for (int i = 0; i < 4; i++)
			fcinfo->args[i].isnull = false;

		matched = jsonb_path_match_tz(fcinfo);
		if (!fcinfo->isnull)
			answer = DatumGetBool(matched) ? 1 : 0;
	}
	PG_CATCH();
	{
		answer = -1;
		pfree(sas_template_caught(caller));
	}
	PG_END_TRY();
	return answer;
}

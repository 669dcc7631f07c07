/* SPDX-License-Identifier: PostgreSQL */
/*
 * path.c
 *		Compiles paths and caches them.
 *
 * A path is compiled once per backend.  The cache has a limited number of entries of limited size
 * and is emptied when full; it depends on nothing in the database, so it needs no invalidation.
 *
 * PostgreSQL accepts, but sas refuses: .** and like_regex, whose cost has no limit that an
 * interrupt could enforce, and products of long numbers, which cannot be interrupted either.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#include "template/path.h"

#define CACHE_ENTRIES 1000

typedef struct CacheEntry
{
	uint64		hash;			/* key: of text and kind */
	char	   *text;
	int			len;
	SasPathKind kind;
	SasPath    *path;
} CacheEntry;

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

/* Does a predicate begin with something that needs no "$." in front? */
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

/* Refuses paths that are well-formed but not supported. */
static bool
path_refused(const SasPathVisit *seen, SasPathProblem *problem)
{
	if (seen->any_depth)
	{
		problem->reason = "\".**\" is not allowed";
		problem->hint = "Name the members on the way, such as a.b.c; \".*\" stands for any one of them.";
	}
	else if (seen->regex)
	{
		problem->reason = "\"like_regex\" is not allowed";
		problem->hint = "Compare with == or \"starts with\", or let a function step look at the text.";
	}
	else if (seen->products > SAS_PATH_MAX_PRODUCTS || (seen->products > 0 && seen->long_number))
	{
		problem->reason = seen->products > SAS_PATH_MAX_PRODUCTS ?
			psprintf("more than %d of *, / and %% in one path are not allowed", SAS_PATH_MAX_PRODUCTS) :
			"a number is too long for *, / and %";
		problem->hint = "Let a function step compute it.";
	}
	return problem->hint != NULL;
}

/* Parses and checks. All memory goes to the current context. */
static JsonPath *
path_parse(char *text, SasPathProblem *problem)
{
	MemoryContext caller = CurrentMemoryContext;
	JsonPath   *volatile jsonpath = NULL;
	SasPathVisit seen;

	problem->hint = NULL;
	PG_TRY();
	{
		jsonpath = DatumGetJsonPathP(DirectFunctionCall1(jsonpath_in, CStringGetDatum(text)));
		sas_template_path_visit(jsonpath, &seen);
	}
	PG_CATCH();
	{
		jsonpath = NULL;
		problem->reason = sas_template_caught(caller);
	}
	PG_END_TRY();

	if (jsonpath == NULL)
		return NULL;
	if (seen.variable != NULL)
	{
		problem->reason = psprintf("variable \"$%s\" does not exist", seen.variable);
		return NULL;
	}
	return path_refused(&seen, problem) ? NULL : jsonpath;
}

/* Parse in a separate context, so that at most the jsonpath stays allocated. */
static JsonPath *
path_compile(const char *text, int len, SasPathKind kind, SasPathProblem *problem)
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
	jsonpath = path_parse(full, problem);
	MemoryContextSwitchTo(target);

	if (jsonpath == NULL)
		problem->reason = pstrdup(problem->reason);
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
sas_template_path(const char *text, int len, SasPathKind kind, SasPathProblem *problem)
{
	MemoryContext caller = CurrentMemoryContext;
	uint64		hash = hash_bytes_extended((const unsigned char *) text, len, kind);
	CacheEntry *entry;
	CacheEntry	fresh;
	JsonPath   *jsonpath;

	if (len > SAS_PATH_MAX_LENGTH)
	{
		problem->reason = psprintf("a path of more than %d bytes is not allowed", SAS_PATH_MAX_LENGTH);
		problem->hint = "Let a function step find the value.";
		return NULL;
	}
	if (path_cache == NULL)
		path_empty_cache();

	entry = hash_search(path_cache, &hash, HASH_FIND, NULL);
	if (entry != NULL && entry->len == len && entry->kind == kind &&
		memcmp(entry->text, text, len) == 0)
		return entry->path;

	jsonpath = path_compile(text, len, kind, problem);
	if (jsonpath == NULL)
		return NULL;
	if (entry != NULL)
		return path_build(jsonpath);
	if (hash_get_num_entries(path_cache) >= CACHE_ENTRIES)
		path_empty_cache();

	/* Everything that can run out of memory happens before the entry exists. */
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

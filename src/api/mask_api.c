/* SPDX-License-Identifier: PostgreSQL */
/*
 * mask_api.c: shows *** where the paths of a workflow's mask lead.
 * Internal: see sql/base/mask.sql.
 *
 * A path is a list of words with U+001F between them: "." and the name of a
 * member, "*" for all members, "[" and a number or "*" for elements.  As in a
 * path of PostgreSQL (lax), a member of an array is that of its elements, and
 * an element of what is no array is the value itself.  One walk over the
 * value, with the paths that lead on: its cost is its size times the number
 * of paths, which is limited.
 *
 * With leaves, what a path leads to keeps its members and elements, and only
 * its numbers, strings and the like become ***: templates still find them.
 */
#include "postgres.h"

#include "base/array.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"

#define SEPARATOR '\x1f'

PG_FUNCTION_INFO_V1(sas_api_masked);

/* What follows the first word of a path; NULL: nothing. */
static const char *
mask_api_rest(const char *path)
{
	const char *end = strchr(path, SEPARATOR);

	return end != NULL ? end + 1 : "";
}

/* Is the first word of the path this member? */
static bool
mask_api_is_member(const char *path, const char *name, int len)
{
	size_t		word = strcspn(path, "\x1f");

	if (path[0] == '*')
		return true;
	return path[0] == '.' && word == len + 1 && memcmp(path + 1, name, len) == 0;
}

static bool
mask_api_is_element(const char *path, int n)
{
	return path[0] == '[' && (path[1] == '*' || atoi(path + 1) == n);
}

/* Does one of the paths end here? */
static bool
mask_api_ends(const List *paths)
{
	ListCell   *lc;

	foreach(lc, paths)
		if (((const char *) lfirst(lc))[0] == '\0')
			return true;
	return false;
}

static void mask_api_push(JsonbParseState **state, JsonbIteratorToken as, JsonbValue *value, List *paths, List *bare, bool leaves);

static void
mask_api_push_object(JsonbParseState **state, JsonbContainer *object, List *paths, bool leaves)
{
	JsonbIterator *it = JsonbIteratorInit(object);
	JsonbValue	v;
	JsonbIteratorToken token;
	List	   *on = NIL;

	while ((token = JsonbIteratorNext(&it, &v, true)) != WJB_DONE)
	{
		ListCell   *lc;

		if (token == WJB_KEY)
		{
			on = NIL;
			foreach(lc, paths)
				if (((const char *) lfirst(lc))[0] == '\0')
					on = lappend(on, lfirst(lc));
				else if (mask_api_is_member(lfirst(lc), v.val.string.val, v.val.string.len))
					on = lappend(on, (void *) mask_api_rest(lfirst(lc)));
			pushJsonbValue(state, WJB_KEY, &v);
		}
		else if (token == WJB_VALUE)
		{
			mask_api_push(state, WJB_VALUE, &v, on, NIL, leaves);
			list_free(on);
		}
		else
			pushJsonbValue(state, token, NULL);
	}
}

/* The paths for a value that is no array: whatever the number, it may be one element of a map. */
static List *
mask_api_bare(const List *paths)
{
	List	   *bare = NIL;
	ListCell   *lc;

	foreach(lc, paths)
	{
		const char *path = lfirst(lc);

		while (path[0] == '[')
			path = mask_api_rest(path);
		bare = lappend(bare, (void *) path);
	}
	return bare;
}

/* Is what leads on from one element another than from the next one? */
static bool
mask_api_names_elements(const List *paths)
{
	ListCell   *lc;

	foreach(lc, paths)
		if (((const char *) lfirst(lc))[0] == '[' && ((const char *) lfirst(lc))[1] != '*')
			return true;
	return false;
}

static void
mask_api_push_array(JsonbParseState **state, JsonbContainer *array, List *paths, bool leaves)
{
	JsonbIterator *it = JsonbIteratorInit(array);
	JsonbValue	v;
	JsonbIteratorToken token;
	bool		each = mask_api_names_elements(paths);
	List	   *on = NIL;
	List	   *bare = NIL;

	for (int n = 0; (token = JsonbIteratorNext(&it, &v, true)) != WJB_DONE;)
	{
		ListCell   *lc;

		if (token != WJB_ELEM)
		{
			pushJsonbValue(state, token, NULL);
			continue;
		}
		foreach(lc, each || n == 0 ? paths : NIL)
		{
			const char *path = lfirst(lc);

			if (path[0] != '[')
				on = lappend(on, (void *) path);
			else if (mask_api_is_element(path, n))
				on = lappend(on, (void *) mask_api_rest(path));
		}
		if (!each && n == 0)
			bare = mask_api_bare(on);
		n++;
		mask_api_push(state, WJB_ELEM, &v, on, bare, leaves);
		if (each)
		{
			list_free(on);
			on = NIL;
		}
	}
	list_free(on);
	list_free(bare);
}

/* A value inside another one, with the paths that lead to it or into it. bare: these for a value that is no array; NIL: not made yet. */
static void
mask_api_push(JsonbParseState **state, JsonbIteratorToken as, JsonbValue *value, List *paths, List *bare, bool leaves)
{
	bool		is_array = value->type == jbvBinary && JsonContainerIsArray(value->val.binary.data);
	List	   *made = is_array || bare != NIL ? NIL : mask_api_bare(paths);

	check_stack_depth();
	CHECK_FOR_INTERRUPTS();
	if (!is_array)
		paths = bare != NIL ? bare : made;
	if (mask_api_ends(paths) && !(leaves && value->type == jbvBinary))
	{
		JsonbValue	stars = {.type = jbvString, .val.string = {.val = "***", .len = 3}};

		pushJsonbValue(state, as, &stars);
	}
	else if (value->type != jbvBinary || paths == NIL)
		pushJsonbValue(state, as, value);
	else if (is_array)
		mask_api_push_array(state, value->val.binary.data, paths, leaves);
	else
		mask_api_push_object(state, value->val.binary.data, paths, leaves);
	list_free(made);
}

/* The paths that lead on from the place at which a value is found. */
static List *
mask_api_from(ArrayType *mask, ArrayType *at)
{
	Datum	   *paths;
	Datum	   *names;
	int			n_paths;
	int			n_names;
	List	   *from = NIL;

	sas_base_elements(mask, &paths, NULL, &n_paths);
	sas_base_elements(at, &names, NULL, &n_names);
	for (int i = 0; i < n_paths; i++)
	{
		const char *path = TextDatumGetCString(paths[i]);
		int			n = 0;

		for (; n < n_names && path[0] != '\0'; n++)
		{
			char	   *name = TextDatumGetCString(names[n]);

			if (!mask_api_is_member(path, name, strlen(name)))
				break;
			path = mask_api_rest(path);
		}
		if (n == n_names || path[0] == '\0')
			from = lappend(from, (void *) path);
	}
	return from;
}

/* (value jsonb, mask text[], at text[], leaves boolean) */
Datum
sas_api_masked(PG_FUNCTION_ARGS)
{
	Jsonb	   *value = PG_GETARG_JSONB_P(0);
	List	   *paths = mask_api_from(PG_GETARG_ARRAYTYPE_P(1), PG_GETARG_ARRAYTYPE_P(2));
	JsonbParseState *state = NULL;
	JsonbValue	v;
	JsonbValue *whole = NULL;
	JsonbIterator *it;

	if (paths == NIL)
		PG_RETURN_JSONB_P(value);
	/* within an array of one element, so that a scalar is no case of its own */
	pushJsonbValue(&state, WJB_BEGIN_ARRAY, NULL);
	if (JB_ROOT_IS_SCALAR(value))
		(void) JsonbExtractScalar(&value->root, &v);
	else
	{
		v.type = jbvBinary;
		v.val.binary.data = &value->root;
		v.val.binary.len = VARSIZE(value) - VARHDRSZ;
	}
	mask_api_push(&state, WJB_ELEM, &v, paths, NIL, PG_GETARG_BOOL(3));
	whole = pushJsonbValue(&state, WJB_END_ARRAY, NULL);
	it = JsonbIteratorInit(&JsonbValueToJsonb(whole)->root);
	(void) JsonbIteratorNext(&it, &v, true);
	(void) JsonbIteratorNext(&it, &v, true);
	PG_RETURN_JSONB_P(JsonbValueToJsonb(&v));
}

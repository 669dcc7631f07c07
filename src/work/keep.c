/* SPDX-License-Identifier: PostgreSQL */
/*
 * keep.c: stores only parts of an answer when the agent says so
 * (options.keep).
 *
 * A path is names with dots between them: "status", "headers.etag", "body",
 * "body.items.id".  For an array, a name means that member of each of its
 * elements.  A part that no path names never leaves the worker: neither
 * "expect" nor an error sees it.  The status is always kept.  One walk over
 * the value follows all paths at once: its cost is its size times the number
 * of paths, which is limited (sql/definition/agent.sql).
 */
#include "postgres.h"

#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "work/json.h"
#include "work/keep.h"

static void keep_push(JsonbParseState **state, JsonbIteratorToken as, JsonbValue *value, const List *paths);

/* The paths that lead on through this member. */
static List *
keep_through(const List *paths, const char *name, int len)
{
	List	   *on = NIL;
	ListCell   *lc;

	foreach(lc, paths)
	{
		const char *path = lfirst(lc);
		size_t		word = strcspn(path, ".");

		if (word == len && memcmp(path, name, len) == 0)
			on = lappend(on, (void *) (path[word] == '.' ? path + word + 1 : path + word));
	}
	return on;
}

static bool
keep_all(const List *paths)
{
	ListCell   *lc;

	foreach(lc, paths)
		if (((const char *) lfirst(lc))[0] == '\0')
			return true;
	return false;
}

static void
keep_push_members(JsonbParseState **state, JsonbContainer *container, const List *paths)
{
	JsonbIterator *it = JsonbIteratorInit(container);
	JsonbValue	v;
	JsonbValue	key;
	JsonbIteratorToken token;
	List	   *on = NIL;

	while ((token = JsonbIteratorNext(&it, &v, true)) != WJB_DONE)
	{
		if (token == WJB_KEY)
		{
			key = v;
			on = keep_through(paths, v.val.string.val, v.val.string.len);
		}
		else if (token == WJB_VALUE)
		{
			if (on == NIL)
				continue;
			pushJsonbValue(state, WJB_KEY, &key);
			keep_push(state, WJB_VALUE, &v, on);
		}
		else if (token == WJB_ELEM)
			keep_push(state, WJB_ELEM, &v, paths);
		else
			pushJsonbValue(state, token, NULL);
	}
}

/* A scalar that a path would lead into has nothing there: null. */
static void
keep_push(JsonbParseState **state, JsonbIteratorToken as, JsonbValue *value, const List *paths)
{
	JsonbValue	null = {.type = jbvNull};

	check_stack_depth();
	CHECK_FOR_INTERRUPTS();
	if (keep_all(paths))
		pushJsonbValue(state, as, value);
	else if (value->type == jbvBinary)
		keep_push_members(state, value->val.binary.data, paths);
	else
		pushJsonbValue(state, as, &null);
}

/* Does the agent say what is stored? Then paths are what it names. */
static bool
keep_paths(const SasStoredAgent *agent, List **paths)
{
	JsonbValue	said;
	JsonbIterator *it;
	JsonbValue	v;
	JsonbIteratorToken token;

	if (!sas_work_json_member(agent->options, "keep", &said) || said.type != jbvBinary)
		return false;
	*paths = list_make1("status");
	it = JsonbIteratorInit(said.val.binary.data);
	while ((token = JsonbIteratorNext(&it, &v, true)) != WJB_DONE)
		if (token == WJB_ELEM && v.type == jbvString)
			*paths = lappend(*paths, pnstrdup(v.val.string.val, v.val.string.len));
	return true;
}

Jsonb *
sas_work_keep(const SasStoredAgent *agent, Jsonb *output)
{
	JsonbValue	whole = {.type = jbvBinary};
	JsonbParseState *state = NULL;
	JsonbValue	kept;
	JsonbIterator *it;
	List	   *paths;

	if (!keep_paths(agent, &paths))
		return output;
	whole.val.binary.data = &output->root;
	whole.val.binary.len = VARSIZE(output) - VARHDRSZ;
	/* within an array of one element, since a value is pushed into something */
	pushJsonbValue(&state, WJB_BEGIN_ARRAY, NULL);
	keep_push(&state, WJB_ELEM, &whole, paths);
	it = JsonbIteratorInit(&JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_ARRAY, NULL))->root);
	(void) JsonbIteratorNext(&it, &kept, true);
	(void) JsonbIteratorNext(&it, &kept, true);
	return JsonbValueToJsonb(&kept);
}

bool
sas_work_keeps_parts(const SasStoredAgent *agent)
{
	List	   *paths;

	return keep_paths(agent, &paths);
}

char *
sas_work_kept_text(Jsonb *output)
{
	JsonbValue	body;

	return sas_work_json_member(output, "body", &body) ? sas_work_json_text(&body) : NULL;
}

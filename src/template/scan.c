/* SPDX-License-Identifier: PostgreSQL */
/*
 * scan.c
 *		Reads the tree of a compiled jsonpath: which members of the root it looks at, whether it gives
 *		one value or many, and the plain steps it begins with.
 *
 *		input.lines[*] ? (@.sku == $.steps.pick.output.sku)
 *
 * looks at "input.lines" and "steps.pick.output", gives many, and begins with two plain steps.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/numeric.h"

#include "template/path.h"

typedef struct Visit
{
	List	   *roots;
	char	   *variable;
} Visit;

static SasPathRoot *
scan_read_root(JsonPathItem *item)
{
	SasPathRoot *root = palloc0(sizeof(SasPathRoot));
	JsonPathItem at = *item;
	JsonPathItem next;

	for (int i = 0; i < lengthof(root->names); i++)
	{
		int32		len;
		char	   *name;

		if (!jspGetNext(&at, &next) || next.type != jpiKey)
			break;
		name = jspGetString(&next, &len);
		root->names[i] = pnstrdup(name, len);
		at = next;
	}
	return root;
}

static void scan_visit(JsonPathItem *start, Visit *seen);

static void
scan_visit_subscripts(JsonPathItem *item, Visit *seen)
{
	for (int i = 0; i < item->content.array.nelems; i++)
	{
		JsonPathItem from;
		JsonPathItem to;

		if (jspGetArraySubscript(item, &from, &to, i))
			scan_visit(&to, seen);
		scan_visit(&from, seen);
	}
}

static void
scan_visit(JsonPathItem *start, Visit *seen)
{
	JsonPathItem item = *start;
	JsonPathItem next;
	JsonPathItem arg;
	int32		len;
	char	   *name;

	check_stack_depth();

	for (;;)
	{
		switch (item.type)
		{
			case jpiRoot:
				seen->roots = lappend(seen->roots, scan_read_root(&item));
				break;
			case jpiVariable:
				name = jspGetString(&item, &len);
				seen->variable = pnstrdup(name, len);
				break;
			case jpiAnd:
			case jpiOr:
			case jpiEqual:
			case jpiNotEqual:
			case jpiLess:
			case jpiGreater:
			case jpiLessOrEqual:
			case jpiGreaterOrEqual:
			case jpiAdd:
			case jpiSub:
			case jpiMul:
			case jpiDiv:
			case jpiMod:
			case jpiStartsWith:
				jspGetLeftArg(&item, &arg);
				scan_visit(&arg, seen);
				jspGetRightArg(&item, &arg);
				scan_visit(&arg, seen);
				break;
			case jpiNot:
			case jpiIsUnknown:
			case jpiExists:
			case jpiPlus:
			case jpiMinus:
			case jpiFilter:
				jspGetArg(&item, &arg);
				scan_visit(&arg, seen);
				break;
			case jpiLikeRegex:
				jspInitByBuffer(&arg, item.base, item.content.like_regex.expr);
				scan_visit(&arg, seen);
				break;
			case jpiIndexArray:
				scan_visit_subscripts(&item, seen);
				break;
			default:			/* literals, and methods whose arguments are literals */
				break;
		}
		if (!jspGetNext(&item, &next))
			return;
		item = next;
	}
}

List *
sas_template_path_roots(JsonPath *jsonpath, char **variable)
{
	Visit		seen = {NIL, NULL};
	JsonPathItem start;

	jspInit(&start, jsonpath);
	scan_visit(&start, &seen);
	*variable = seen.variable;
	return seen.roots;
}

/* Is this [7] or [last]?  Anything else is left to the executor of PostgreSQL. */
static bool
scan_plain_subscript(JsonPathItem *item, int *index)
{
	JsonPathItem from;
	JsonPathItem to;
	char	   *digits;

	if (item->content.array.nelems != 1 || jspGetArraySubscript(item, &from, &to, 0) ||
		jspHasNext(&from))
		return false;
	if (from.type == jpiLast)
	{
		*index = -1;
		return true;
	}
	if (from.type != jpiNumeric)
		return false;

	digits = DatumGetCString(DirectFunctionCall1(numeric_out,
												 NumericGetDatum(jspGetNumeric(&from))));
	if (strlen(digits) > 9 || strspn(digits, "0123456789") != strlen(digits))
		return false;
	*index = atoi(digits);
	return true;
}

static bool
scan_gives_many(JsonPathItem *item)
{
	JsonPathItem from;
	JsonPathItem to;

	switch (item->type)
	{
		case jpiAnyArray:
		case jpiAnyKey:
		case jpiAny:
		case jpiFilter:
		case jpiKeyValue:
			return true;
		case jpiIndexArray:
			return item->content.array.nelems != 1 || jspGetArraySubscript(item, &from, &to, 0);
		default:
			return false;
	}
}

void
sas_template_path_steps(SasPath *path)
{
	JsonPathItem item;
	JsonPathItem next;
	int			room = 4;

	path->steps = palloc(sizeof(SasPathStep) * room);
	path->nsteps = 0;
	path->many = false;

	jspInit(&item, path->jsonpath);
	path->plain = (path->jsonpath->header & JSONPATH_LAX) != 0 && item.type == jpiRoot;

	while (jspGetNext(&item, &next))
	{
		SasPathStep step = {NULL, 0, 0};

		item = next;
		if (scan_gives_many(&item))
			path->many = true;
		if (item.type == jpiKey)
		{
			int32		len;
			char	   *key = jspGetString(&item, &len);

			step.key = pnstrdup(key, len);
			step.key_len = len;
		}
		else if (item.type != jpiIndexArray || !scan_plain_subscript(&item, &step.index))
			path->plain = false;
		if (!path->plain)
			continue;
		if (path->nsteps == room)
		{
			room *= 2;
			path->steps = repalloc(path->steps, sizeof(SasPathStep) * room);
		}
		path->steps[path->nsteps++] = step;
	}
}

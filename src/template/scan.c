/* SPDX-License-Identifier: PostgreSQL */
/*
 * scan.c
 *		Reads the tree of a compiled jsonpath: which members of the root it reads, whether
 *		it returns one value or many, and the plain steps it begins with.
 *
 *		input.lines[*] ? (@.sku == $.steps.pick.output.sku)
 *
 * looks at "input.lines" and "steps.pick.output", gives many, and begins with two plain steps.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/numeric.h"

#include "template/path.h"

/* Numbers with more digits before or after the point are not multiplied or divided. */
#define SCAN_MAX_DIGITS 300

/* Does this choose among the elements of a list, whose members are meant by what follows? */
static bool
scan_chooses(JsonPathItem *item)
{
	return item->type == jpiAnyArray || item->type == jpiIndexArray || item->type == jpiFilter;
}

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
		bool		more = jspGetNext(&at, &next);

		while (more && i == 3 && scan_chooses(&next))
		{
			at = next;
			more = jspGetNext(&at, &next);
		}
		if (!more || next.type != jpiKey)
			break;
		name = jspGetString(&next, &len);
		root->names[i] = pnstrdup(name, len);
		at = next;
	}
	return root;
}

static void scan_visit(JsonPathItem *start, SasPathVisit *seen);

static void
scan_visit_subscripts(JsonPathItem *item, SasPathVisit *seen)
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
scan_visit(JsonPathItem *start, SasPathVisit *seen)
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
				if (item.type == jpiMul || item.type == jpiDiv || item.type == jpiMod)
					seen->products++;
				jspGetLeftArg(&item, &arg);
				scan_visit(&arg, seen);
				jspGetRightArg(&item, &arg);
				scan_visit(&arg, seen);
				break;
			case jpiAny:
				seen->any_depth = true;
				break;
			case jpiNumeric:
				seen->long_number |= sas_template_number_is_long(jspGetNumeric(&item));
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
				seen->regex = true;
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

void
sas_template_path_visit(JsonPath *jsonpath, SasPathVisit *seen)
{
	JsonPathItem start;

	memset(seen, 0, sizeof(SasPathVisit));
	jspInit(&start, jsonpath);
	scan_visit(&start, seen);
}

static Datum
scan_power_of_ten(int power)
{
	return DirectFunctionCall3(numeric_in, CStringGetDatum(psprintf("%s1e%d", power < 0 ? "-" : "", abs(power))),
							   ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1));
}

bool
sas_template_number_is_long(Numeric number)
{
	static Datum largest = 0;
	static Datum smallest;
	Datum		value = NumericGetDatum(number);

	if (largest == 0)
	{
		MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
		Datum		power = scan_power_of_ten(SCAN_MAX_DIGITS);

		smallest = scan_power_of_ten(-SCAN_MAX_DIGITS);
		largest = power;
		MemoryContextSwitchTo(old);
	}
	return DatumGetBool(DirectFunctionCall2(numeric_gt, value, largest)) ||
		DatumGetBool(DirectFunctionCall2(numeric_lt, value, smallest)) ||
		DatumGetInt32(DirectFunctionCall1(numeric_scale, value)) > SCAN_MAX_DIGITS;
}

/* Is this [7] or [last]? The executor of PostgreSQL handles all others. */
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
	SasPathVisit seen;
	int			room = 4;

	path->steps = palloc(sizeof(SasPathStep) * room);
	path->nsteps = 0;
	path->many = false;
	path->repeats = false;
	sas_template_path_visit(path->jsonpath, &seen);
	path->multiplies = seen.products > 0;

	jspInit(&item, path->jsonpath);
	path->plain = (path->jsonpath->header & JSONPATH_LAX) != 0 && item.type == jpiRoot;

	while (jspGetNext(&item, &next))
	{
		SasPathStep step = {NULL, 0, 0};

		item = next;
		if (scan_gives_many(&item))
			path->many = true;
		if (item.type == jpiIndexArray && item.content.array.nelems > 1)
			path->repeats = true;
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

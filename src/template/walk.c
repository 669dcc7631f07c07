/* SPDX-License-Identifier: PostgreSQL */
/*
 * walk.c
 *		Walks a template from its first to its last value, without recursion.
 *
 * The pointer is built only when it is needed: for a problem, or for each
 * reference at define time.
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "miscadmin.h"

#include "template/walk.h"

void
sas_template_walk(SasWalk *walk, Jsonb *template)
{
	walk->iterator = JsonbIteratorInit(&template->root);
	walk->depth = 0;
	walk->room = 16;
	walk->frames = palloc(sizeof(SasWalkFrame) * walk->room);
}

static void
walk_enter(SasWalk *walk, bool object, bool scalar)
{
	SasWalkFrame *frame;

	if (walk->depth == walk->room)
	{
		walk->room *= 2;
		walk->frames = repalloc(walk->frames, sizeof(SasWalkFrame) * walk->room);
	}
	frame = &walk->frames[walk->depth++];
	frame->object = object;
	frame->scalar = scalar;
	frame->key = NULL;
	frame->key_len = 0;
	frame->index = -1;
}

JsonbIteratorToken
sas_template_walk_next(SasWalk *walk, JsonbValue *value)
{
	JsonbIteratorToken token = JsonbIteratorNext(&walk->iterator, value, false);
	SasWalkFrame *top = walk->depth > 0 ? &walk->frames[walk->depth - 1] : NULL;

	CHECK_FOR_INTERRUPTS();

	switch (token)
	{
		case WJB_KEY:
			top->key = value->val.string.val;
			top->key_len = value->val.string.len;
			break;
		case WJB_ELEM:
			top->index++;
			break;
		case WJB_BEGIN_ARRAY:
		case WJB_BEGIN_OBJECT:
			if (top != NULL && !top->object)
				top->index++;
			walk_enter(walk, token == WJB_BEGIN_OBJECT,
					   token == WJB_BEGIN_ARRAY && value->val.array.rawScalar);
			break;
		case WJB_END_ARRAY:
		case WJB_END_OBJECT:
			walk->depth--;
			break;
		default:
			break;
	}
	return token;
}

char *
sas_template_walk_pointer(const SasWalk *walk)
{
	StringInfoData pointer;

	initStringInfo(&pointer);
	for (int i = 0; i < walk->depth; i++)
	{
		const SasWalkFrame *frame = &walk->frames[i];

		if (frame->scalar || (frame->object ? frame->key == NULL : frame->index < 0))
			continue;
		appendStringInfoChar(&pointer, '/');
		if (!frame->object)
		{
			appendStringInfo(&pointer, "%d", frame->index);
			continue;
		}
		for (int k = 0; k < frame->key_len; k++)
		{
			if (frame->key[k] == '~')
				appendStringInfoString(&pointer, "~0");
			else if (frame->key[k] == '/')
				appendStringInfoString(&pointer, "~1");
			else
				appendStringInfoChar(&pointer, frame->key[k]);
		}
	}
	return pointer.data;
}

/* SPDX-License-Identifier: PostgreSQL */
/*
 * object.c
 *		Builds an object from values that are copied unchanged.
 *
 * The functions of jsonb decompose and rebuild every value, which costs ten times the memory of a
 * large one.  This file copies a container in one piece.
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "utils/numeric.h"

#include "template/template.h"

static int
object_compare(const void *a, const void *b)
{
	const JsonbPair *x = a;
	const JsonbPair *y = b;
	int			difference = x->key.val.string.len - y->key.val.string.len;

	/* the order of members in jsonb: the length first */
	return difference != 0 ? difference : memcmp(x->key.val.string.val, y->key.val.string.val, x->key.val.string.len);
}

static void
object_align(StringInfo out)
{
	while (out->len % sizeof(uint32) != 0)
		appendStringInfoCharMacro(out, '\0');
}

/* Appends the data of a value; returns its type. */
static uint32
object_append(StringInfo out, const JsonbValue *value)
{
	switch (value->type)
	{
		case jbvNull:
			return JENTRY_ISNULL;
		case jbvBool:
			return value->val.boolean ? JENTRY_ISBOOL_TRUE : JENTRY_ISBOOL_FALSE;
		case jbvString:
			appendBinaryStringInfo(out, value->val.string.val, value->val.string.len);
			return JENTRY_ISSTRING;
		case jbvNumeric:
			object_align(out);
			appendBinaryStringInfo(out, (char *) value->val.numeric, VARSIZE_ANY(value->val.numeric));
			return JENTRY_ISNUMERIC;
		case jbvBinary:
			object_align(out);
			appendBinaryStringInfo(out, (char *) value->val.binary.data, value->val.binary.len);
			return JENTRY_ISCONTAINER;
		default:
			elog(ERROR, "unexpected jsonb type %d in an object", (int) value->type);
	}
}

Jsonb *
sas_template_object(JsonbPair *pairs, int n)
{
	StringInfoData out;
	Size		entries = VARHDRSZ + sizeof(uint32);
	Size		data = entries + sizeof(JEntry) * 2 * n;
	Jsonb	   *object;

	qsort(pairs, n, sizeof(JsonbPair), object_compare);
	initStringInfo(&out);
	enlargeStringInfo(&out, data);
	memset(out.data, 0, data);
	out.len = data;
	for (int i = 0; i < 2 * n; i++)
	{
		Size		before = out.len;
		uint32		type = object_append(&out, i < n ? &pairs[i].key : &pairs[i - n].value);
		Size		offset = out.len - data;
		JEntry		entry = type | (i % JB_OFFSET_STRIDE == 0 ? offset | JENTRY_HAS_OFF : out.len - before);

		if (offset > JENTRY_OFFLENMASK)
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("the members of an object are larger than %d bytes together", JENTRY_OFFLENMASK)));
		memcpy(out.data + entries + i * sizeof(JEntry), &entry, sizeof(JEntry));
	}
	object = (Jsonb *) out.data;
	SET_VARSIZE(object, out.len);
	object->root.header = n | JB_FOBJECT;
	return object;
}

void
sas_template_object_value(JsonbValue *value, Jsonb *jsonb)
{
	if (JsonbExtractScalar(&jsonb->root, value))
		return;
	value->type = jbvBinary;
	value->val.binary.data = &jsonb->root;
	value->val.binary.len = VARSIZE(jsonb) - VARHDRSZ;
}

Jsonb *
sas_template_with_member(Jsonb *object, char *name, int len, Jsonb *member)
{
	JsonbPair  *pairs = palloc(sizeof(JsonbPair) * (JB_ROOT_COUNT(object) + 1));
	JsonbIterator *iterator = JsonbIteratorInit(&object->root);
	JsonbIteratorToken token;
	JsonbValue	value;
	int			n = 0;

	if (!JB_ROOT_IS_OBJECT(object))
		elog(ERROR, "a member is to be added to what is no object");
	while ((token = JsonbIteratorNext(&iterator, &value, true)) != WJB_DONE)
	{
		if (token == WJB_KEY)
			pairs[n].key = value;
		/* replaces a member of that name */
		else if (token == WJB_VALUE &&
				 (pairs[n].key.val.string.len != len || memcmp(pairs[n].key.val.string.val, name, len) != 0))
			pairs[n++].value = value;
	}
	pairs[n].key.type = jbvString;
	pairs[n].key.val.string.val = name;
	pairs[n].key.val.string.len = len;
	sas_template_object_value(&pairs[n++].value, member);
	return sas_template_object(pairs, n);
}

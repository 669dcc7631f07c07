/* SPDX-License-Identifier: PostgreSQL */
/*
 * meant_api.c: which name a misspelled one was meant to be.
 */
#include "postgres.h"

#include "base/array.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/varlena.h"

#define MEANT_LENGTH 64			/* of longer names, nobody would guess */

PG_FUNCTION_INFO_V1(sas_api_meant);

/* How many letters of a word of this length may be wrong. */
static int
meant_api_slips(int length)
{
	return Min((length + 1) / 3, 3);
}

/* _sas.meant(word, names): the beginning of a hint: the first of the names that are nearest to this word. */
Datum
sas_api_meant(PG_FUNCTION_ARGS)
{
	text	   *word;
	int			length;
	int			nearest;
	char	   *found = NULL;
	Datum	   *names;
	bool	   *nulls;
	int			n;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		PG_RETURN_TEXT_P(cstring_to_text(""));
	word = PG_GETARG_TEXT_PP(0);
	length = VARSIZE_ANY_EXHDR(word);
	nearest = meant_api_slips(length) + 1;
	if (length > MEANT_LENGTH)
		PG_RETURN_TEXT_P(cstring_to_text(""));
	sas_base_elements(PG_GETARG_ARRAYTYPE_P(1), &names, &nulls, &n);
	for (int i = 0; i < n; i++)
	{
		char	   *name = nulls[i] ? NULL : TextDatumGetCString(names[i]);
		int			slips;

		if (name == NULL || strlen(name) > MEANT_LENGTH)
			continue;
		slips = varstr_levenshtein_less_equal(VARDATA_ANY(word), length, name, strlen(name), 1, 1, 1, nearest, true);
		if (slips < nearest)
		{
			nearest = slips;
			found = name;
		}
	}
	PG_RETURN_TEXT_P(cstring_to_text(found == NULL ? "" : psprintf("Did you mean \"%s\"? ", found)));
}

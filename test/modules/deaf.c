/* SPDX-License-Identifier: PostgreSQL */
/*
 * deaf.c: a function of a user that nothing in the database can end, for
 * t/167_parked.  It comes back when the file that its input names is there.
 */
#include "postgres.h"

#include <unistd.h>

#include "fmgr.h"
#include "utils/builtins.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(deaf);

Datum
deaf(PG_FUNCTION_ARGS)
{
	char	   *path = text_to_cstring(PG_GETARG_TEXT_PP(0));

	while (access(path, F_OK) != 0)
		usleep(10000);
	PG_RETURN_VOID();
}

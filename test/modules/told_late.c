/* SPDX-License-Identifier: PostgreSQL */
/*
 * told_late.c: keeps a session, for t/564_told_late, between the end of its
 * transaction for others and what it does then, until a file is there.
 */
#include "postgres.h"

#include <unistd.h>

#include "access/xact.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

PG_MODULE_MAGIC;

/* nobody may have made the file */
#define TOLD_LATE_LOOKS 60000

PG_FUNCTION_INFO_V1(told_late);

static char *told_late_path = NULL;

/* The callback that was registered last comes first. */
static void
told_late_on_end(XactEvent event, void *arg)
{
	if (told_late_path == NULL || (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT))
		return;
	for (int i = 0; access(told_late_path, F_OK) != 0 && i < TOLD_LATE_LOOKS; i++)
		usleep(10000);
	told_late_path = NULL;
}

Datum
told_late(PG_FUNCTION_ARGS)
{
	static bool registered = false;

	if (!registered)
		RegisterXactCallback(told_late_on_end, NULL);
	registered = true;
	told_late_path = MemoryContextStrdup(TopMemoryContext, text_to_cstring(PG_GETARG_TEXT_PP(0)));
	PG_RETURN_VOID();
}

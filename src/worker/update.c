/* SPDX-License-Identifier: PostgreSQL */
/*
 * update.c: ALTER EXTENSION sas UPDATE that leads to an older version.
 *
 * No script leads back: what a newer version stored, an older one does not
 * know.  PostgreSQL refuses it, since it finds no path from one version to
 * the other, but cannot say what to do.  The hint is added while its error is
 * made.
 */
#include "postgres.h"

#include "nodes/parsenodes.h"
#include "commands/defrem.h"

#include "base/version.h"
#include "store/extension.h"
#include "worker/update.h"

static void
update_add_hint(void *arg)
{
	SasUpdate  *update = arg;
	const char *to = update->to != NULL ? update->to : SAS_VERSION;

	if (geterrcode() == ERRCODE_INVALID_PARAMETER_VALUE && sas_store_compare_versions(to, update->from) < 0)
		errhint("The tables of %s cannot be brought back. Install the library of %s again and restart the server, "
				"or restore a backup of before the update.", update->from, update->from);
}

void
sas_worker_update_begin(SasUpdate *update, Node *statement)
{
	ListCell   *cell;

	update->from = IsA(statement, AlterExtensionStmt) ? sas_store_extension_version() : NULL;
	update->to = NULL;
	if (update->from == NULL)
		return;
	foreach(cell, ((AlterExtensionStmt *) statement)->options)
	{
		DefElem    *option = lfirst(cell);

		if (strcmp(option->defname, "new_version") == 0)
			update->to = defGetString(option);
	}
	update->callback.callback = update_add_hint;
	update->callback.arg = update;
	update->callback.previous = error_context_stack;
	error_context_stack = &update->callback;
}

void
sas_worker_update_end(SasUpdate *update)
{
	if (update->from != NULL)
		error_context_stack = update->callback.previous;
}

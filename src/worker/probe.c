/* SPDX-License-Identifier: PostgreSQL */
/*
 * probe.c: checks once whether a database has the extension, and exits.
 *
 * pg_extension can only be read from inside the database, so the launcher
 * starts this process. The answer is the reason of its exit in the registry.
 */
#include "postgres.h"

#include "access/xact.h"
#include "storage/ipc.h"

#include "store/extension.h"
#include "worker/loop.h"
#include "worker/registry.h"
#include "worker/session.h"

void
sas_worker_probe_main(Datum arg)
{
	bool		installed;

	(void) sas_worker_session_open(DatumGetInt32(arg));
	sas_worker_session_configure("sas probe");
	sas_worker_session_interruptible = true;
	StartTransactionCommand();
	installed = sas_store_installed();
	CommitTransactionCommand();
	sas_worker_registry_set_exit(installed ? SAS_EXIT_PRESENT : SAS_EXIT_ABSENT);
	proc_exit(0);
}

/* SPDX-License-Identifier: PostgreSQL */
/*
 * probe.c: checks once whether workers may run in a database, and exits.
 *
 * They may if it has the extension, and is no copy in quarantine.
 * pg_extension can only be read from inside the database, so the launcher
 * starts this process. The answer is the reason of its exit in the registry.
 */
#include "postgres.h"

#include "storage/ipc.h"

#include "store/store.h"
#include "worker/loop.h"
#include "worker/registry.h"
#include "worker/session.h"

void
sas_worker_probe_main(Datum arg)
{
	bool		may;

	(void) sas_worker_session_open(DatumGetInt32(arg));
	sas_worker_session_configure("sas probe");
	sas_worker_session_interruptible = true;
	may = sas_store_at_home();
	sas_worker_registry_set_exit(may ? SAS_EXIT_PRESENT : SAS_EXIT_ABSENT);
	proc_exit(0);
}

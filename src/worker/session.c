/* SPDX-License-Identifier: PostgreSQL */
/*
 * session.c: a worker's signals, connection and settings.
 *
 * SIGTERM between two ticks ends the process quietly with code 0. Inside a
 * tick it works as in a backend: a long statement or a wait for a lock ends
 * at once, and its transaction is rolled back.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"

#include "store/pins.h"
#include "worker/registry.h"
#include "worker/session.h"

volatile sig_atomic_t sas_worker_session_stop = false;
volatile sig_atomic_t sas_worker_session_interruptible = false;

StaticAssertDecl(sizeof(SasOrders) <= BGW_EXTRALEN, "orders must fit into bgw_extra");

static void
session_on_sigterm(SIGNAL_ARGS)
{
	int			saved_errno = errno;

	sas_worker_session_stop = true;
	if (sas_worker_session_interruptible)
		die(postgres_signal_arg);
	SetLatch(MyLatch);
	errno = saved_errno;
}

void
sas_worker_session_signals(void)
{
	pqsignal(SIGTERM, session_on_sigterm);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();
}

SasOrders
sas_worker_session_open(int slot)
{
	SasOrders	orders;

	memcpy(&orders, MyBgworkerEntry->bgw_extra, sizeof(orders));
	sas_worker_session_signals();
	if (!sas_worker_registry_attach(slot, orders.worker_id))
		proc_exit(0);
	sas_worker_session_interruptible = true;
	if (!sas_worker_session_stop)
		BackgroundWorkerInitializeConnectionByOid(orders.dboid, InvalidOid, 0);
	if (sas_worker_session_stop)
		proc_exit(0);
	sas_worker_session_interruptible = false;
	return orders;
}

static void
session_set(const char *name, const char *value)
{
	SetConfigOption(name, value, PGC_SUSET, PGC_S_SESSION);
}

/*
 * Claims and replies are durable whatever the configuration says; settings
 * stronger than "on" stay. All other settings of the session are pinned.
 */
void
sas_worker_session_reload(void)
{
	if (synchronous_commit < SYNCHRONOUS_COMMIT_REMOTE_FLUSH)
		session_set("synchronous_commit", "on");
	sas_store_reload_pins();
}

/*
 * A worker is a superuser's session, also where the database or a role sets
 * another role for each session: the bootstrap superuser's, which cannot be
 * dropped.
 */
static void
session_be_superuser(void)
{
	if (GetSessionUserId() == BOOTSTRAP_SUPERUSERID && GetUserId() == BOOTSTRAP_SUPERUSERID)
		return;
	StartTransactionCommand();
	session_set("session_authorization", GetUserNameFromId(BOOTSTRAP_SUPERUSERID, false));
	session_set("role", "none");
	CommitTransactionCommand();
}

void
sas_worker_session_configure(const char *application_name)
{
	session_be_superuser();
	sas_store_pin_settings();
	sas_store_install_sizes();
	session_set("application_name", application_name);
	sas_worker_session_reload();
}

/* SPDX-License-Identifier: PostgreSQL */
/*
 * session.c: a worker's signals, connection and settings.
 *
 * SIGTERM between two ticks ends the process quietly with code 0. Inside a
 * tick it works as in a backend: a long statement or a wait for a lock ends
 * at once, and its transaction is rolled back.
 *
 * A worker that gives work back (agent, function) has a moment for that: the
 * first SIGTERM cancels code of users, and its ticks give back what they hold.
 * A timer sends another one, which works as in a backend: no function, lock or
 * service holds up a shutdown. So does one that the supervisor or a function
 * of this worker sent, since that is not a planned stop. The postmaster sends
 * each signal twice, to the process and to its group.
 */
#include "postgres.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

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
#include "worker/shmem.h"

volatile sig_atomic_t sas_worker_session_interruptible = false;

#if defined(_POSIX_TIMERS) && _POSIX_TIMERS > 0
/* after the first SIGTERM: its work is written by then, or never */
#define SESSION_END_MS (2 * SAS_STOP_GRACE_MS)

static timer_t session_timer;
#endif
static volatile sig_atomic_t session_grace = false;

StaticAssertDecl(sizeof(SasOrders) <= BGW_EXTRALEN, "orders must fit into bgw_extra");

static bool
session_is_planned(const siginfo_t *info)
{
	return session_grace && info->si_code != SI_TIMER && info->si_pid != MyProcPid &&
		!(sas_worker_my_slot != NULL && sas_worker_my_slot->end_now);
}

/* Cancels code of users only: a tick that is cancelled elsewhere gives nothing back. */
static void
session_begin_grace(void)
{
#if defined(_POSIX_TIMERS) && _POSIX_TIMERS > 0
	struct itimerspec in = {.it_value = {SESSION_END_MS / 1000, SESSION_END_MS % 1000 * 1000000L}};

	if (!sas_base_stopping)
		(void) timer_settime(session_timer, 0, &in, NULL);
#endif
	if (sas_base_in_user_code)
		InterruptPending = QueryCancelPending = true;
}

static void
session_on_sigterm(int signo, siginfo_t *info, void *context)
{
	int			saved_errno = errno;
	bool		planned = session_is_planned(info);

	if (planned)
		session_begin_grace();
	sas_base_stopping = true;
	if (!planned && sas_worker_session_interruptible)
		die(signo);
	SetLatch(MyLatch);
	errno = saved_errno;
}

void
sas_worker_session_allow_grace(void)
{
#if defined(_POSIX_TIMERS) && _POSIX_TIMERS > 0
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL,.sigev_signo = SIGTERM};

	session_grace = timer_create(CLOCK_MONOTONIC, &event, &session_timer) == 0;
#endif
}

/* pqsignal() does not tell who sent a signal. */
void
sas_worker_session_signals(void)
{
	struct sigaction action = {.sa_flags = SA_SIGINFO | SA_RESTART};

	action.sa_sigaction = session_on_sigterm;
	sigemptyset(&action.sa_mask);
	sigaction(SIGTERM, &action, NULL);
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
	if (!sas_base_stopping)
		BackgroundWorkerInitializeConnectionByOid(orders.dboid, InvalidOid, 0);
	if (sas_base_stopping)
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
 * dropped.  The setting needs a value in any case: functions run under the
 * session authorization of their owner, and that is rolled back to it.
 */
static void
session_be_superuser(void)
{
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
	(void) sas_store_assume_sizes(true);
	session_set("application_name", application_name);
	sas_worker_session_reload();
}

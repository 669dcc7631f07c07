/* SPDX-License-Identifier: PostgreSQL */
/*
 * session.h: how a worker enters its database, and the settings it works under.
 */
#ifndef SAS_WORKER_SESSION_H
#define SAS_WORKER_SESSION_H

#include <signal.h>

/* What the launcher passes to a worker, in bgw_extra. */
typedef struct SasOrders
{
	int64		worker_id;
	Oid			dboid;
	int			actor;
	int			index;
} SasOrders;

/* Sets the handlers of SIGTERM and SIGHUP and unblocks signals. */
extern void sas_worker_session_signals(void);

/*
 * Reads the orders, attaches to the registry, connects. Ends the process
 * when it is not wanted any longer.
 */
extern SasOrders sas_worker_session_open(int slot);

/* The settings of a worker's session, and again what a reload may have changed. */
extern void sas_worker_session_configure(const char *application_name);
extern void sas_worker_session_reload(void);

/*
 * SIGTERM sets sas_base_stopping and the latch. While interruptible is set it
 * also acts as in any backend, at the next CHECK_FOR_INTERRUPTS().
 */
extern volatile sig_atomic_t sas_worker_session_interruptible;

/*
 * From here on the first SIGTERM leaves the process time to give back what it
 * holds: it cancels code of users, and nothing else.
 */
extern void sas_worker_session_allow_grace(void);

/* The time in which work that is under way may end; then the worker leaves. */
#define SAS_STOP_GRACE_MS 1000

#endif							/* SAS_WORKER_SESSION_H */

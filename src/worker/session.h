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
 * SIGTERM was received. Between ticks it only sets this flag and the latch;
 * while interruptible is set it acts as in any backend, at the next
 * CHECK_FOR_INTERRUPTS().
 */
extern volatile sig_atomic_t sas_worker_session_stop;
extern volatile sig_atomic_t sas_worker_session_interruptible;

#endif							/* SAS_WORKER_SESSION_H */

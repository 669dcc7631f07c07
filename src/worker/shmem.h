/* SPDX-License-Identifier: PostgreSQL */
/*
 * shmem.h: the shared memory of worker/, private to this folder.
 *
 * One lock guards everything but the numbers that a running worker publishes
 * in its own slot. Nothing here survives the end of the server, or the crash
 * of any process, which restarts the server.
 *
 * The life of a slot:
 *
 *	FREE -> STARTING	launcher: reserved, the postmaster is asked for a process
 *	STARTING -> RUNNING	worker: attached
 *	STARTING -> FREE	launcher: the process died before it attached; or an
 *						exclusion: the process finds itself not wanted and leaves
 *	RUNNING -> STOPPING	launcher or exclusion: SIGTERM is sent
 *	... -> EXITED		worker: its exit callback, after its transaction is over
 *	EXITED -> FREE		launcher: reason noted, the process is gone
 */
#ifndef SAS_WORKER_SHMEM_H
#define SAS_WORKER_SHMEM_H

#include "storage/latch.h"
#include "storage/lwlock.h"

#include "base/peers.h"
#include "worker/registry.h"

#define SAS_MAX_REQUESTS 64
#define SAS_MAX_TROUBLES 128

/* a worker that has lived so long does not fail at its start */
#define SAS_LONG_LIFE_US INT64CONST(60000000)

typedef struct SasWorkerShmem
{
	LWLock		lock;
	int			tranche;
	int64		boot;
	int64		last_worker_id;

	/* the launcher, and what it is asked for */
	SasLauncherState launcher;
	Latch	   *launcher_latch;
	bool		rescan;			/* read pg_database again */
	bool		probe_all;		/* more requests than fit below */
	int			nprobes;
	Oid			probes[SAS_MAX_REQUESTS];

	SasTrouble	troubles[SAS_MAX_TROUBLES];

	int			capacity;
	SasSlot		slots[FLEXIBLE_ARRAY_MEMBER];
} SasWorkerShmem;

/* NULL when the library is not preloaded. */
extern SasWorkerShmem *sas_worker_shmem;

/* The slot of this process; NULL: it is no worker, or about to exit. */
extern SasSlot *sas_worker_my_slot;

/* With the lock held: the slot of that worker; NULL: it has none. Is it a worker of that database, and not gone? */
extern SasSlot *sas_worker_registry_find(int64 worker_id);
extern bool sas_worker_registry_is_alive(const SasSlot *slot, Oid dboid);

/* Lent to base/peers.h. */
extern const SasPeersMethods sas_worker_peers;

#endif							/* SAS_WORKER_SHMEM_H */

/* SPDX-License-Identifier: PostgreSQL */
/*
 * databases.h: what the launcher knows of each database, in its own memory.
 */
#ifndef SAS_WORKER_DATABASES_H
#define SAS_WORKER_DATABASES_H

#include "postmaster/bgworker.h"

#include "base/settings.h"
#include "worker/registry.h"

typedef enum SasPresence
{
	SAS_PRESENCE_UNKNOWN,
	SAS_PRESENCE_ABSENT,
	SAS_PRESENCE_PRESENT
} SasPresence;

/* One worker's slot in the launcher's memory: its process, and when it may be started again. */
typedef struct SasWorkerSlot
{
	BackgroundWorkerHandle *handle; /* of the process we asked for; NULL: none, or not ours */
	SasSlot    *registered;		/* in the snapshot of this tick */
	int64		born_us;		/* monotonic; when the process was asked for */
	int64		not_before_us;
	int			pause_ms;
	int			failures;		/* in a row, each soon after its start */
	int64		stalled_tick_us;	/* begin of the tick whose stall was logged last */
	bool		long_call;		/* the supervisors know of its long call */
	int64		surplus_us;		/* monotonic; since when it is not wanted any longer; 0: it is wanted */
} SasWorkerSlot;

typedef struct SasDatabase
{
	Oid			oid;			/* hash key */
	NameData	name;
	bool		listed;			/* there, and may be connected to */
	bool		probe;			/* a probe is wanted */
	bool		excluded;		/* at the start of this tick: see reconcile.c */
	SasPresence presence;
	SasWorkerSlot prober;
	SasWorkerSlot *slots;		/* [SAS_ACTORS][SAS_MAX_WORKERS], NULL until needed */
} SasDatabase;

/* Once in the launcher: the table lives in that context. */
extern void sas_worker_databases_init(MemoryContext context);
extern void sas_worker_databases_scan(void); /* reads pg_database, in a transaction of its own */
extern SasDatabase *sas_worker_databases_get(Oid oid); /* made when it is not there */
extern SasWorkerSlot *sas_worker_databases_slot(SasDatabase *database, int actor, int index);
extern void sas_worker_databases_probe(Oid oid);
extern void sas_worker_databases_probe_all(void);

/* All of them, in palloc'd memory. */
extern int	sas_worker_databases_list(SasDatabase ***databases);
extern void sas_worker_databases_remove(SasDatabase *database);

#endif							/* SAS_WORKER_DATABASES_H */

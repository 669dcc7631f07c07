/* SPDX-License-Identifier: PostgreSQL */
/*
 * wakeup_shmem.h: the shared memory of wake-ups; private to src/wake.
 *
 *	  wakeup.c			listeners and counts; wakes now
 *	  hand_over.c		function steps that one worker is woken for
 *	  wakeup_commit.c	what a transaction wakes when it has committed
 *	  wakeup_wait.c		sessions that wait for a run
 *	  holders.c			transactions that hold what ticks wait for
 *	  follow.c			sessions that follow by LISTEN
 *
 * One lock guards the entries: shared to wake, exclusive to enter and leave.
 */
#ifndef SAS_WAKE_WAKEUP_SHMEM_H
#define SAS_WAKE_WAKEUP_SHMEM_H

#include "port/atomics.h"
#include "storage/latch.h"
#include "storage/lwlock.h"

#include "wake/holders.h"
#include "wake/wakeup.h"

#define SAS_WAKE_WAITERS 1024
#define SAS_WAKE_FOLLOWED 64
#define SAS_WAKE_LANE_WORDS (SAS_WAKE_LANES / 32)
#define SAS_WAKE_ALL_ACTORS ((1 << SAS_ACTORS) - 1)

/* What a function worker does, for who has a step for one of them. */
typedef enum SasWakeupRest
{
	SAS_WAKE_AWAKE,				/* for who knows how long */
	SAS_WAKE_QUICK,				/* its tick will be over in a moment */
	SAS_WAKE_SLEEPS,
	SAS_WAKE_HANDED				/* one was handed over to it, for which it has not begun to look */
} SasWakeupRest;

typedef struct SasWakeupListener
{
	Oid			dboid;			/* InvalidOid: free */
	SasActor	actor;
	pg_atomic_uint32 wakeups;	/* counts; the latch alone is not enough: see sas_wake_latch_count() */
	pg_atomic_uint32 nudges;	/* likewise: see sas_wake_latch_count() */
	pg_atomic_uint64 woken_us;	/* monotonic: the first wake-up since its tick began; 0: there was none */
	pg_atomic_uint32 handed;	/* likewise: steps for it alone */
	pg_atomic_uint32 rest;		/* a SasWakeupRest */
	pg_atomic_uint32 guards;	/* 0: it sleeps, and does not look after the others (hand_over.c) */
	pg_atomic_uint64 begun_us;	/* monotonic: its tick */
	Latch	   *latch;
} SasWakeupListener;

/* A database with at least one listener. */
typedef struct SasWakeupDatabase
{
	Oid			dboid;			/* InvalidOid: free */
	int			listeners;
	pg_atomic_uint64 supervisor_sleeps_until;	/* a TimestampTz */
	pg_atomic_uint32 everything;	/* counts for all lanes, and for items */
	pg_atomic_uint32 items;
	pg_atomic_uint32 settled;	/* up to this count of lane 0 all was found: a claim that had read it left nothing behind */
	pg_atomic_uint64 waited_us; /* monotonic: a session began to wait for a run */
	pg_atomic_uint32 lanes[SAS_WAKE_LANES];
	pg_atomic_uint32 nudged_items;
	pg_atomic_uint32 nudged_lanes[SAS_WAKE_LANES];
	pg_atomic_uint32 versions[SAS_WAKE_VERSIONS];
} SasWakeupDatabase;

typedef struct SasWakeupWaiter
{
	int64		run_id;
	Oid			dboid;			/* InvalidOid: free */
	pg_atomic_uint32 told;		/* counts; the latch alone is not enough: see sas_wake_wait_told() */
	Latch	   *latch;
} SasWakeupWaiter;

typedef struct SasWakeHolder
{
	SasWakeHeld held;
	Oid			dboid;
	int			pid;			/* of the worker that waits */
	TransactionId top;
	TransactionId holder;		/* top, or one in it */
	bool		ended;			/* its session has said so */
	int			taken_level;	/* of the open transaction of its worker; 0: it is not taken */
	int64		untold_us;		/* monotonic: taken then, at its due time, and not ended yet; 0: it was not */
} SasWakeHolder;

/* A database that somebody follows. */
typedef struct SasWakeFollowed
{
	Oid			dboid;			/* InvalidOid: free */
	TimestampTz until;
	TimestampTz told;			/* the last time */
} SasWakeFollowed;

typedef struct SasWakeupShmem
{
	LWLock		lock;
	int			tranche;
	pg_atomic_uint32 departures;	/* in all databases */
	int			capacity;		/* of listeners, and of databases */
	int			waiters_end;	/* entries from here on are free */
	SasWakeupWaiter waiters[SAS_WAKE_WAITERS];
	pg_atomic_uint32 any_holders;	/* how many there are, read without the lock */
	int			n_holders;
	SasWakeHolder holders[SAS_WAKE_HOLDERS];
	pg_atomic_uint32 any_followed;	/* read without the lock */
	SasWakeFollowed followed[SAS_WAKE_FOLLOWED];
	SasWakeupListener listeners[FLEXIBLE_ARRAY_MEMBER];
	/* followed by capacity databases */
} SasWakeupShmem;

/* NULL when the library is not preloaded. */
extern SasWakeupShmem *sas_wake_shmem;

/* The counts that go up before the latches are set. */
typedef struct SasWakeupCounts
{
	bool		nudge;			/* the counts of nudges, in place of those of wake-ups */
	bool		everything;		/* all lanes, and items */
	bool		items;
	const uint32 *lanes;		/* a set of bits, by lane modulo SAS_WAKE_LANES; NULL: none */
	int			versions;		/* a set of bits, by SasWakeVersion */
} SasWakeupCounts;

/* Counts, then wakes these actors (a set of bits) in that database; but_me: not this worker. */
extern void sas_wake_listeners(Oid dboid, int actors, SasWakeupCounts counts, bool but_me);

/* With the lock held; NULL: no worker is there. */
extern SasWakeupDatabase *sas_wake_find_database(Oid dboid);

/* Counts a function step, and wakes one worker for it, if the others guard it; else all. */
extern void sas_wake_hand_over(Oid dboid);

/* A session waits for a run: function workers do not let steps gather. With the lock held. */
extern void sas_wake_hurry(Oid dboid);

/* This worker begins to look. */
extern void sas_wake_get_up(void);

/* This worker's entries; NULL: it is none. */
extern SasWakeupListener *sas_wake_my_listener;
extern SasWakeupDatabase *sas_wake_my_database;

/* In _PG_init: callbacks of transactions. */
extern void sas_wake_holders_install(void);

/* Before the commit; wakes: this transaction wakes somebody. */
extern void sas_wake_tell_followers(bool wakes);

/* Wakes the supervisor of this database if it means to sleep beyond that instant. */
extern void sas_wake_supervisor_by(TimestampTz at);

/* Wakes the sessions that wait for one of these runs; sorts run_ids. */
extern void sas_wake_waiters(int64 *run_ids, int n);

#endif							/* SAS_WAKE_WAKEUP_SHMEM_H */

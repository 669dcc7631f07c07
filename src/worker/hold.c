/* SPDX-License-Identifier: PostgreSQL */
/*
 * hold.c: a session has a database free of workers, for a while.
 *
 * Holds are entries in shared memory.  They are set first and looked at by a
 * worker when it attaches (its slot is taken away) and by the launcher before
 * it starts one, so that nobody slips in after the look.  A session that dies
 * frees its holds in its exit callback; a crash frees everything.
 *
 * A worker that is this session itself (a function step that drops the
 * extension) is left alone.
 */
#include "postgres.h"

#include <signal.h>

#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/procarray.h"
#include "utils/wait_event.h"

#include "base/clock.h"
#include "worker/board.h"
#include "worker/hold.h"
#include "worker/request.h"

#define PATIENCE_MS 10000

/* Entries of this process. */
static int	my_holds = 0;

/* The database whose entry stays when a transaction ends. */
static Oid	kept = InvalidOid;

bool
sas_hold_mine(void)
{
	return my_holds > 0;
}

bool
sas_board_held(Oid dboid)
{
	for (int i = 0; i < SAS_MAX_HOLDS; i++)
		if (sas_board->holds[i].pid != 0 && sas_board->holds[i].dboid == dboid)
			return true;
	return false;
}

bool
sas_hold_active(Oid dboid)
{
	bool		held;

	LWLockAcquire(&sas_board->lock, LW_SHARED);
	held = sas_board_held(dboid);
	LWLockRelease(&sas_board->lock);
	return held;
}

static void
sas_hold_exit(int code, Datum arg)
{
	sas_hold_end_all();
}

/* With the lock held: enters the hold, false when there is no room. */
static bool
sas_hold_enter(Oid dboid)
{
	SasHold    *free_entry = NULL;

	for (int i = 0; i < SAS_MAX_HOLDS; i++)
	{
		SasHold    *hold = &sas_board->holds[i];

		if (hold->pid == MyProcPid && hold->dboid == dboid)
			return true;
		if (hold->pid == 0 && free_entry == NULL)
			free_entry = hold;
	}
	if (free_entry == NULL)
		return false;
	free_entry->dboid = dboid;
	free_entry->pid = MyProcPid;
	my_holds++;
	return true;
}

/*
 * With the lock held: tells the workers and the probe of that database to
 * leave, writes their pids, and returns how many there are.
 */
static int
sas_hold_stop(Oid dboid, int *pids)
{
	int			n = 0;

	for (int i = 0; i < sas_board->capacity; i++)
	{
		SasSlot    *slot = &sas_board->slots[i];

		if (slot->state == SAS_SLOT_FREE || slot->dboid != dboid || slot->pid == MyProcPid)
			continue;
		if (slot->state == SAS_SLOT_STARTING)
		{
			slot->state = SAS_SLOT_FREE;
			continue;
		}
		if (slot->state != SAS_SLOT_EXITED)
		{
			slot->state = SAS_SLOT_STOPPING;
			kill(slot->pid, SIGTERM);
		}
		pids[n++] = slot->pid;
	}
	return n;
}

/* Whether one of these processes is still counted as a user of a database. */
static bool
sas_hold_anybody(const int *pids, int n)
{
	for (int i = 0; i < n; i++)
		if (BackendPidGetProc(pids[i]) != NULL)
			return true;
	return false;
}

static void
sas_hold_wait(Oid dboid, const int *pids, int n)
{
	int64		until = sas_clock_monotonic_us() + PATIENCE_MS * INT64CONST(1000);
	long		pause_ms = 1;

	while (sas_hold_anybody(pids, n))
	{
		CHECK_FOR_INTERRUPTS();
		if (sas_clock_monotonic_us() > until)
		{
			char	   *name = get_database_name(dboid);

			ereport(WARNING,
					(errcode(ERRCODE_OBJECT_IN_USE),
					 errmsg("workers of sas in database \"%s\" did not stop within %d s",
							name ? name : "?", PATIENCE_MS / 1000)));
			return;
		}
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, pause_ms,
						 PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		pause_ms = Min(pause_ms * 2, 20);
	}
}

void
sas_hold_begin(Oid dboid)
{
	static bool registered = false;
	int		   *pids;
	int			n = 0;

	if (sas_board == NULL)
		return;
	if (!registered)
		before_shmem_exit(sas_hold_exit, (Datum) 0);
	registered = true;
	pids = palloc(sas_board->capacity * sizeof(int));
	LWLockAcquire(&sas_board->lock, LW_EXCLUSIVE);
	if (sas_hold_enter(dboid))
		n = sas_hold_stop(dboid, pids);
	LWLockRelease(&sas_board->lock);
	sas_hold_wait(dboid, pids, n);
	pfree(pids);
}

void
sas_hold_keep(void)
{
	kept = MyDatabaseId;
	sas_hold_begin(MyDatabaseId);
}

void
sas_hold_end_transaction(void)
{
	int			ended = 0;

	if (my_holds == 0)
		return;
	LWLockAcquire(&sas_board->lock, LW_EXCLUSIVE);
	for (int i = 0; i < SAS_MAX_HOLDS; i++)
		if (sas_board->holds[i].pid == MyProcPid && sas_board->holds[i].dboid != kept)
		{
			sas_board->holds[i].pid = 0;
			ended++;
		}
	LWLockRelease(&sas_board->lock);
	my_holds -= ended;
	if (ended > 0)
		sas_request_wake();
}

void
sas_hold_end_all(void)
{
	kept = InvalidOid;
	sas_hold_end_transaction();
}

/* SPDX-License-Identifier: PostgreSQL */
/*
 * turn.c: timers over one turn of a worker's loop, which is a tick.
 *
 * A tick takes milliseconds.  A tick of ten seconds is a fault that an
 * operator must know of: a timer of the worker itself wakes the launcher,
 * which wakes the supervisors.  A process that was stopped (SIGSTOP) wakes
 * nobody; the leading supervisor finds it when it checks the conditions of the
 * server.
 *
 * Code of users has a limit of its own, and may take long.  A second timer
 * tells the launcher of a call that takes more than a second, and the launcher
 * starts another function worker for the short calls.
 *
 * The slot is written without the lock: only this process writes these fields,
 * and readers can use an old value.
 */
#include "postgres.h"

#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "base/actor.h"
#include "base/clock.h"
#include "worker/shmem.h"
#include "worker/turn.h"

#define STALL_MS 10000
#define LONG_CALL_MS 1000

static TimeoutId turn_stall;
static TimeoutId turn_long_call;

/* In a signal handler. */
static void
turn_wake_launcher(void)
{
	Latch	   *launcher = sas_worker_shmem->launcher_latch;

	if (launcher != NULL)
		SetLatch(launcher);
}

static void
turn_long_call_handler(void)
{
	if (sas_worker_my_slot == NULL)
		return;
	sas_worker_my_slot->long_call = true;
	turn_wake_launcher();
}

void
sas_worker_turn_open(void)
{
	turn_stall = RegisterTimeout(USER_TIMEOUT, turn_wake_launcher);
	turn_long_call = RegisterTimeout(USER_TIMEOUT, turn_long_call_handler);
}

void
sas_worker_turn_begin(void)
{
	if (sas_worker_my_slot == NULL)
		return;
	sas_base_leaving = sas_worker_my_slot->dismissed || sas_base_stopping;
	sas_worker_my_slot->turn_since_us = sas_base_clock_monotonic_us();
	enable_timeout_every(turn_stall, GetCurrentTimestamp() + STALL_MS * INT64CONST(1000), STALL_MS);
}

void
sas_worker_turn_end(bool well, int in_flight, int64 memory)
{
	disable_timeout(turn_stall, false);
	if (sas_worker_my_slot == NULL)
		return;
	sas_worker_my_slot->failed_ticks = well ? 0 : sas_worker_my_slot->failed_ticks + 1;
	sas_worker_my_slot->has_worked |= well;
	sas_worker_my_slot->turn_ended_us = sas_base_clock_monotonic_us();
	sas_worker_my_slot->turn_since_us = 0;
	sas_worker_my_slot->in_flight = in_flight;
	sas_worker_my_slot->memory = memory;
	sas_worker_my_slot->last_activity_at = GetCurrentTimestamp();
}

void
sas_worker_turn_user_code(const char *what)
{
	SasSlot    *slot = sas_worker_my_slot;

	if (slot == NULL)
		return;
	if (what != NULL)
	{
		strlcpy(slot->user_code, what, sizeof(slot->user_code));
		enable_timeout_after(turn_long_call, LONG_CALL_MS);
		return;
	}
	disable_timeout(turn_long_call, false);
	/* the time of the tick is counted from here */
	slot->turn_since_us = sas_base_clock_monotonic_us();
	slot->user_code[0] = '\0';
	if (slot->long_call)
	{
		slot->long_call = false;
		turn_wake_launcher();
	}
}

bool
sas_worker_turn_stalled(const SasSlot *slot, int64 now_us)
{
	int64		since_us = slot->turn_since_us;

	return slot->state == SAS_SLOT_RUNNING && since_us != 0 && slot->user_code[0] == '\0' &&
		now_us - since_us >= STALL_MS * INT64CONST(1000);
}

/* SPDX-License-Identifier: PostgreSQL */
/*
 * tick.c: timers over one tick of a worker.
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
#include "worker/tick.h"

#define STALL_MS 10000
#define LONG_CALL_MS 1000

static TimeoutId tick_stall;
static TimeoutId tick_long_call;

/* In a signal handler. */
static void
tick_wake_launcher(void)
{
	Latch	   *launcher = sas_worker_shmem->launcher_latch;

	if (launcher != NULL)
		SetLatch(launcher);
}

static void
tick_long_call_handler(void)
{
	if (sas_worker_my_slot == NULL)
		return;
	sas_worker_my_slot->long_call = true;
	tick_wake_launcher();
}

void
sas_worker_tick_open(void)
{
	tick_stall = RegisterTimeout(USER_TIMEOUT, tick_wake_launcher);
	tick_long_call = RegisterTimeout(USER_TIMEOUT, tick_long_call_handler);
}

void
sas_worker_tick_begin(void)
{
	if (sas_worker_my_slot == NULL)
		return;
	sas_base_leaving = sas_worker_my_slot->dismissed || sas_base_stopping;
	sas_worker_my_slot->tick_since_us = sas_base_clock_monotonic_us();
	enable_timeout_every(tick_stall, GetCurrentTimestamp() + STALL_MS * INT64CONST(1000), STALL_MS);
}

void
sas_worker_tick_end(bool well, int in_flight, int64 memory)
{
	disable_timeout(tick_stall, false);
	if (sas_worker_my_slot == NULL)
		return;
	sas_worker_my_slot->failed_ticks = well ? 0 : sas_worker_my_slot->failed_ticks + 1;
	sas_worker_my_slot->has_worked |= well;
	sas_worker_my_slot->tick_ended_us = sas_base_clock_monotonic_us();
	sas_worker_my_slot->tick_since_us = 0;
	sas_worker_my_slot->in_flight = in_flight;
	sas_worker_my_slot->memory = memory;
	sas_worker_my_slot->last_activity_at = GetCurrentTimestamp();
}

void
sas_worker_tick_user_code(const char *what)
{
	SasSlot    *slot = sas_worker_my_slot;

	if (slot == NULL)
		return;
	if (what != NULL)
	{
		strlcpy(slot->user_code, what, sizeof(slot->user_code));
		enable_timeout_after(tick_long_call, LONG_CALL_MS);
		return;
	}
	disable_timeout(tick_long_call, false);
	/* the time of the tick is counted from here */
	slot->tick_since_us = sas_base_clock_monotonic_us();
	slot->user_code[0] = '\0';
	if (slot->long_call)
	{
		slot->long_call = false;
		tick_wake_launcher();
	}
}

bool
sas_worker_tick_stalled(const SasSlot *slot, int64 now_us)
{
	int64		since_us = slot->tick_since_us;

	return slot->state == SAS_SLOT_RUNNING && since_us != 0 && slot->user_code[0] == '\0' &&
		now_us - since_us >= STALL_MS * INT64CONST(1000);
}

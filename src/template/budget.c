/* SPDX-License-Identifier: PostgreSQL */
/*
 * budget.c
 *		Stops an evaluation that takes too long or allocates too much.
 *
 * The executor of SQL/JSON paths has no limit, but it checks for interrupts.  While a budget is
 * armed, a timer that counts processor time ticks every few milliseconds; the handler compares the
 * time of the thread and the size of the context, and cancels the evaluation as a user would
 * cancel a statement.  SIGINT is blocked meanwhile: a cancel inside is ours, and that of a user is
 * delivered when the evaluation has ended.  A statement_timeout arrives as a SIGINT, too.  The
 * executor builds the array of the found values without a check: that costs a small multiple of
 * what it read.
 *
 *		run -> evaluate -> [arm -> ... -> cancel] -> disarm -> NULL or a reason
 *
 * Evaluations do not nest: they call no function of a user.
 */
#include "postgres.h"

#include <signal.h>
#include <sys/time.h>
#include <time.h>

#include "libpq/pqsignal.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "template/budget.h"

#define BUDGET_TICK_US 4000
#define BUDGET_MOST_US 250000
/* a claim that it ends is no fault of its steps: _sas.claim_calls, _sas.claim_functions, _sas.is_of_item */
#define BUDGET_OVERRAN MAKE_SQLSTATE('S', 'A', 'S', '0', '1')
#define BUDGET_MOST_BYTES (64 * 1024 * 1024)

static MemoryContext budget_context = NULL;
static MemoryContext budget_caller;
static bool budget_has_handler = false;
static sigset_t budget_signals; /* the mask before */
static volatile sig_atomic_t budget_armed = false;
static int64 budget_began_us;
static Size budget_copied;
static bool budget_is_limited = false;
static bool budget_overran = false; /* the last time */
static int64 budget_spent_us;
static int64 budget_work_began_us;
static Size budget_spent_bytes;
static bool budget_limits_steps = false;
static int64 budget_spent_steps;
static const char *volatile budget_spent; /* NULL: nothing; else the pending cancel is ours */

int64
sas_template_processor_us(void)
{
	struct timespec at;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
	return (int64) at.tv_sec * 1000000 + at.tv_nsec / 1000;
}

static void
budget_set_timer(int us)
{
	struct itimerval every = {{0, us}, {0, us}};

	setitimer(ITIMER_PROF, &every, NULL);
}

/* A function that returns a set keeps its rows in the first child of the context. */
static Size
budget_allocated(void)
{
	MemoryContext child = budget_context->firstchild;

	return budget_context->mem_allocated + (child != NULL ? child->mem_allocated : 0);
}

static void
budget_on_tick(SIGNAL_ARGS)
{
	int			save_errno = errno;

	if (budget_armed && budget_spent == NULL && !QueryCancelPending)
	{
		if (budget_allocated() > SAS_BUDGET_BYTES + budget_copied)
			budget_spent = SAS_BUDGET_TOO_MUCH;
		else if (sas_template_processor_us() - budget_began_us > SAS_BUDGET_MS * 1000)
			budget_spent = SAS_BUDGET_TOO_SLOW;
		if (budget_spent != NULL)
		{
			QueryCancelPending = true;
			InterruptPending = true;
		}
	}
	errno = save_errno;
}

void
sas_template_budget_arm(Size copied)
{
	sigset_t	cancel;

	budget_copied = Max(budget_copied, copied);
	if (budget_armed)
		return;
	if (!budget_has_handler)
	{
		pqsignal(SIGPROF, budget_on_tick);
		budget_has_handler = true;
	}
	sigemptyset(&cancel);
	sigaddset(&cancel, SIGINT);
	sigprocmask(SIG_BLOCK, &cancel, &budget_signals);
	budget_began_us = sas_template_processor_us();
	budget_armed = true;
	budget_set_timer(BUDGET_TICK_US);
}

static void
budget_disarm(void)
{
	if (!budget_armed)
		return;
	budget_set_timer(0);
	budget_armed = false;
	budget_spent_us += sas_template_processor_us() - budget_began_us;
	/* it ended just before the cancel took effect */
	if (budget_spent != NULL)
		QueryCancelPending = false;
	sigprocmask(SIG_SETMASK, &budget_signals, NULL);
}

/* The user has also asked for a cancel: that one counts, and is delivered here. */
static bool
budget_user_cancels(void)
{
	sigset_t	pending;
	int			signal;

	if (!budget_armed || sigpending(&pending) != 0 || !sigismember(&pending, SIGINT))
		return false;
	sigemptyset(&pending);
	sigaddset(&pending, SIGINT);
	return sigwait(&pending, &signal) == 0;
}

MemoryContext
sas_template_budget_caller(void)
{
	return budget_caller;
}

void
sas_template_budget_release(void)
{
	MemoryContextReset(budget_context);
}

void
sas_template_budget_begin(bool single)
{
	budget_is_limited = !single;
	budget_overran = false;
	budget_spent_us = 0;
	budget_spent_bytes = 0;
	budget_limits_steps = false;
	budget_spent_steps = 0;
	budget_work_began_us = sas_template_processor_us();
}

void
sas_template_budget_end(void)
{
	budget_is_limited = false;
}

int64
sas_template_budget_us(void)
{
	return budget_spent_us;
}

Size
sas_template_budget_bytes(void)
{
	return budget_spent_bytes;
}

bool
sas_template_budget_overran(void)
{
	return budget_overran;
}

void
sas_template_budget_add(Size bytes)
{
	budget_spent_bytes += bytes;
}

static void
budget_raise(void)
{
	budget_overran = true;
	ereport(ERROR,
			(errcode(BUDGET_OVERRAN),
			 errmsg("one batch of steps costs too much"),
			 errdetail("The worker tries again with fewer steps at once.")));
}

static void
budget_check_spent(void)
{
	if (budget_is_limited && (budget_spent_us > BUDGET_MOST_US || budget_spent_bytes > BUDGET_MOST_BYTES))
		budget_raise();
}

int64
sas_template_budget_processor_us(void)
{
	return sas_template_processor_us() - budget_work_began_us;
}

void
sas_template_budget_check(void)
{
	if (budget_is_limited && sas_template_budget_processor_us() > BUDGET_MOST_US)
		budget_raise();
}

void
sas_template_budget_limit_steps(void)
{
	budget_limits_steps = true;
}

void
sas_template_budget_check_steps(int64 n)
{
	if (budget_is_limited && budget_limits_steps && budget_spent_steps + n > SAS_BUDGET_STEPS)
		budget_raise();
}

void
sas_template_budget_add_steps(int64 n)
{
	sas_template_budget_check_steps(n);
	budget_spent_steps += n;
}

bool
sas_template_budget_is_spent(void)
{
	return budget_limits_steps && (budget_spent_steps > SAS_BUDGET_STEPS || sas_template_budget_processor_us() > SAS_BUDGET_FAIR_US);
}

int64
sas_template_budget_steps(void)
{
	return budget_spent_steps;
}

int64
sas_template_budget_fitting(int n)
{
	const int64 fair = SAS_BUDGET_STEPS / 2;

	/* one that has changed few says nothing about the next ones: a map begins, and then its elements do */
	return budget_spent_steps <= fair ? PG_INT64_MAX : fair * n / budget_spent_steps;
}

const char *
sas_template_budget_run(void (*evaluate) (void *), void *arg)
{
	MemoryContext caller = CurrentMemoryContext;
	const char *volatile spent = NULL;

	if (budget_context == NULL)
		budget_context = AllocSetContextCreate(TopMemoryContext, "sas evaluation", ALLOCSET_DEFAULT_SIZES);
	MemoryContextReset(budget_context);
	budget_caller = caller;
	budget_spent = NULL;
	budget_copied = 0;
	MemoryContextSwitchTo(budget_context);
	PG_TRY();
	{
		evaluate(arg);
		budget_disarm();
	}
	PG_CATCH();
	{
		bool		ours = budget_spent != NULL && geterrcode() == ERRCODE_QUERY_CANCELED && !budget_user_cancels();

		budget_disarm();
		MemoryContextSwitchTo(caller);
		if (!ours)
			PG_RE_THROW();
		FlushErrorState();
		spent = budget_spent;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(caller);
	budget_check_spent();
	return spent;
}

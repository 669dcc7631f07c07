/* SPDX-License-Identifier: PostgreSQL */
/*
 * batch_size.c: how many steps a function worker claims at a time, and which
 * functions run alone.
 *
 * Of this process only: another worker finds out for itself.
 */
#include "postgres.h"

#include "function/batch_size.h"
#include "common/hashfn.h"

/* A batch grows as long as its transaction takes no longer than this: what is urgent waits for one that is on its way, and for the next. */
#define SAS_BATCH_US 12000
/* but, of short steps, never less than this where there is more to do: small batches cost most where time is short */
#define SAS_FAIR_BATCH 100
#define SAS_FAIR_US 50000
#define SAS_FIRST_BATCH 20
/* what is urgent is claimed without the bulk behind it: so often in a row when it is this few, else once */
#define SAS_CUTS 4
#define SAS_FEW 5
#define SAS_SLOW_MS 50

static int	quantity = SAS_FIRST_BATCH;
static int	cuts = 0;			/* claims in a row that got less than they asked for */

/* functions that were slow when they ran last, by hash */
static bool slow[1024];

int
sas_pace_quantity(void)
{
	return quantity;
}

bool
sas_pace_cuts(void)
{
	return cuts < SAS_CUTS;
}

void
sas_pace_claimed(int n)
{
	if (n >= quantity || cuts >= SAS_CUTS)
		cuts = 0;
	else
		cuts = n > SAS_FEW ? SAS_CUTS : cuts + 1;
}

/* One that fills a batch by itself leaves the others to other workers. */
void
sas_pace_done(int64 spent_us, int n, bool was_slow)
{
	int64		each_us = Max(1, spent_us / n);
	int64		fitting = Max(1, SAS_BATCH_US / each_us);
	int64		fair = fitting > 1 ? Min(SAS_FAIR_BATCH, SAS_FAIR_US / each_us) : 1;

	if (was_slow)
		quantity = 1;
	/* a few tell nothing about many */
	else if (n * 2 >= quantity || spent_us >= SAS_BATCH_US)
		quantity = Min(Min(SAS_FUNCTION_BATCH, quantity * 2), Max(fair, fitting));
}

bool
sas_pace_is_slow(int64 spent_us)
{
	return spent_us > SAS_SLOW_MS * 1000;
}

static bool *
slow_flag(const char *function)
{
	return &slow[hash_bytes((const unsigned char *) function, strlen(function)) % lengthof(slow)];
}

void
sas_pace_remember(const char *function, int64 spent_us)
{
	*slow_flag(function) = sas_pace_is_slow(spent_us);
}

bool
sas_pace_was_slow(const char *function)
{
	return *slow_flag(function);
}

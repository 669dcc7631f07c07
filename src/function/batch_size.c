/* SPDX-License-Identifier: PostgreSQL */
/*
 * batch_size.c: how many steps a function worker claims at a time, which
 * functions run alone, and how many workers an owner may have.
 *
 * A process learns this for itself, and for those that come after it: a new
 * one, as one that comes for another owner, begins with what the others know.
 * What is known of a function may be wrong at any time: then its batch ends
 * after it, and what was claimed beside it is given back.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "base/settings.h"
#include "function/batch_size.h"
#include "limits/quotas.h"
#include "store/store.h"
#include "storage/ipc.h"
#include "storage/shmem.h"

/* A batch grows as long as its transaction takes no longer than this: what is urgent waits for one that is on its way, and for the next. */
#define SAS_BATCH_US 12000
/* but, of short steps, never less than this where there is more to do: small batches cost most where time is short */
#define SAS_FAIR_BATCH 100
#define SAS_FAIR_US 50000
/* what the inputs of the steps of a batch may take together */
#define SAS_FAIR_BYTES (INT64CONST(4) * 1024 * 1024)
/* no function is known at first: all that is claimed beside one would be given back */
#define SAS_FIRST_BATCH 1
/* a batch is at most so many times as large as the one before */
#define SAS_BATCH_GROWS 4
/* urgent steps are claimed without the bulk behind them: this often in a row when they are few, else once */
#define SAS_SHORT_CLAIMS 4
#define SAS_FEW 5
#define SAS_SLOW_MS 50

/*
 * Of all workers of this server, read and written without a lock: each is one
 * value of its own.
 */
typedef struct BatchSizeKnown
{
	int			next[64];		/* of the worker that wrote last, by database; 0: none has yet */
	bool		fast[4096];		/* functions that were fast when they ran last, by hash; the others were slow, or have not run */
} BatchSizeKnown;

static BatchSizeKnown *batch_size_known;
static bool *batch_size_calls = NULL;	/* the flag of the function that this process calls now */

static int	batch_size_next = 0; /* 0: this process has not claimed yet */
static int	batch_size_most = SAS_FUNCTION_BATCH;	/* as far as the evaluations of the last claim tell */
static int	batch_size_n_short = 0; /* claims in a row that got less than they asked for */
static int64 batch_size_claim_us = 0;	/* of the claim of steps that are not done yet */

Size
sas_function_batch_shmem_size(void)
{
	return sizeof(BatchSizeKnown);
}

void
sas_function_batch_shmem_init(void)
{
	bool		found;

	batch_size_known = ShmemInitStruct("sas function batches", sizeof(BatchSizeKnown), &found);
	if (!found)
		memset(batch_size_known, 0, sizeof(BatchSizeKnown));
}

static int *
batch_size_known_next(void)
{
	return &batch_size_known->next[MyDatabaseId % lengthof(batch_size_known->next)];
}

int
sas_function_batch_size(void)
{
	if (batch_size_next == 0)
		batch_size_next = Max(SAS_FIRST_BATCH, *batch_size_known_next());
	return batch_size_next;
}

bool
sas_function_batch_is_short(void)
{
	return batch_size_n_short < SAS_SHORT_CLAIMS;
}

void
sas_function_batch_claimed(int n, int64 spent_us)
{
	batch_size_claim_us = n > 0 ? spent_us : 0;
	if (n >= batch_size_next || batch_size_n_short >= SAS_SHORT_CLAIMS)
		batch_size_n_short = 0;
	else
		batch_size_n_short = n > SAS_FEW ? SAS_SHORT_CLAIMS : batch_size_n_short + 1;
}

void
sas_function_batch_evaluated(int n, int64 spent_us, int64 bytes, bool overran)
{
	batch_size_most = bytes > SAS_FAIR_BYTES ? Max(1, SAS_FAIR_BYTES * n / bytes) : SAS_FUNCTION_BATCH;
	if (spent_us > SAS_FAIR_US)
		batch_size_most = Max(1, Min(batch_size_most, SAS_FAIR_US * n / spent_us));
	/* one is claimed whatever it costs */
	if (overran)
		batch_size_most = 1;
	batch_size_next = Min(batch_size_next, batch_size_most);
}

/*
 * What each step of a batch takes, without what a transaction takes by itself.
 * On a busy machine that is more than a batch may take, and a batch of one
 * step would never grow.
 */
static int64
batch_size_each_us(int64 spent_us, int64 called_us, int n)
{
	static int64 own_us = 0;	/* of the last transaction with one step */

	if (n == 1)
		own_us = spent_us - called_us;
	return Max(1, Max(called_us, spent_us - Min(own_us, n == 1 ? spent_us : spent_us / 2)) / n);
}

/* A function that fills a batch by itself leaves the other steps to other workers. */
void
sas_function_batch_done(int64 spent_us, int64 called_us, int n, bool was_slow)
{
	int64		all_us = spent_us + batch_size_claim_us;
	int64		each_us = batch_size_each_us(all_us, called_us, n);
	int64		fitting = Max(1, SAS_BATCH_US / each_us);
	int64		fair = fitting > 1 ? Min(SAS_FAIR_BATCH, SAS_FAIR_US / each_us) : 1;
	bool		is_first = *batch_size_known_next() == 0;
	int			asked = batch_size_next;

	if (was_slow)
		batch_size_next = 1;
	/* a few steps tell nothing about many */
	else if (n * 2 >= batch_size_next || all_us >= SAS_BATCH_US)
		batch_size_next = Min(Min(batch_size_most, is_first ? SAS_FAIR_BATCH : batch_size_next * SAS_BATCH_GROWS), Max(fair, fitting));
	/* nor do they tell others */
	if (n * 2 >= asked)
		*batch_size_known_next() = batch_size_next;
	batch_size_claim_us = 0;
}

bool
sas_function_is_slow(int64 spent_us)
{
	return spent_us > SAS_SLOW_MS * 1000;
}

static bool *
batch_size_fast_flag(const char *function)
{
	uint32		hash = hash_combine(hash_bytes((const unsigned char *) function, strlen(function)), MyDatabaseId);

	return &batch_size_known->fast[hash % lengthof(batch_size_known->fast)];
}

/* A worker that is ended leaves what it called as slow: the next one calls it alone. */
static void
batch_size_at_exit(int code, Datum arg)
{
	if (batch_size_calls != NULL)
		*batch_size_calls = false;
}

void
sas_function_note_begin(const char *function)
{
	static bool is_prepared = false;

	if (!is_prepared)
		before_shmem_exit(batch_size_at_exit, 0);
	is_prepared = true;
	batch_size_calls = batch_size_fast_flag(function);
}

void
sas_function_note_time(const char *function, int64 spent_us)
{
	*batch_size_fast_flag(function) = !sas_function_is_slow(spent_us);
	batch_size_calls = NULL;
}

bool
sas_function_was_fast(const char *function)
{
	return *batch_size_fast_flag(function);
}

int64
sas_function_workers_of(Oid owner)
{
	static struct
	{
		Oid			owner;
		int64		generation;
		int			workers;	/* the settings of which the default is made */
		int			workers_max;
		int64		most;
	}			known[16];
	int64		generation = sas_limits_quota_generation();
	int			i = owner % lengthof(known);

	if (known[i].owner != owner || known[i].generation != generation ||
		known[i].workers != sas_base_function_workers || known[i].workers_max != sas_base_function_workers_max)
	{
		known[i].most = sas_store_function_workers(owner);
		known[i].owner = owner;
		known[i].generation = generation;
		known[i].workers = sas_base_function_workers;
		known[i].workers_max = sas_base_function_workers_max;
	}
	return known[i].most;
}

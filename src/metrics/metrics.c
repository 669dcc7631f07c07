/* SPDX-License-Identifier: PostgreSQL */
/*
 * metrics.c: a hash of series in shared memory, and what a transaction will
 * add to it.
 *
 * A series is made under the lock and never removed; its numbers are
 * atomics.  What belongs to a transaction is collected in a list and added
 * when it has committed; a subtransaction that is rolled back removes its
 * part of the list.  Nothing can fail at commit: the series are looked up
 * before.
 *
 * Without shared memory (library not preloaded) nothing is counted.
 */
#include "postgres.h"

#include "access/xact.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/memutils.h"

#include "metrics/metrics.h"

#define SAS_SERIES 8192

typedef struct SasSeries
{
	Oid			dboid;			/* InvalidOid: free */
	int			metric;
	int			id1;
	int			id2;
	char		label[SAS_METRICS_LABEL];
	pg_atomic_uint64 n;
	pg_atomic_uint64 sum_us;
	pg_atomic_uint64 buckets[SAS_METRICS_BUCKETS];
} SasSeries;

typedef struct SasMetrics
{
	LWLock		lock;			/* for finding and making series */
	int			used;
	pg_atomic_uint64 dropped;
	SasSeries	series[SAS_SERIES];
} SasMetricsArea;

typedef struct Pending
{
	SasSeries  *series;
	uint64		n;
	double		seconds;
} Pending;

const double sas_metrics_bounds[SAS_METRICS_BUCKETS] =
{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200, 86400};

static const char *const metrics_names[SAS_METRICS] =
{"call", "step_wait", "step", "run_wait", "run", "transition", "alert", "purged", "found_late"};

static SasMetricsArea *metrics_shmem = NULL;

/* of this transaction */
static Pending *metrics_pending = NULL;
static int	metrics_n_pending = 0;
static int	metrics_pending_room = 0;

/* how long the list was when each open subtransaction began */
static int *metrics_starts = NULL;
static int	metrics_n_starts = 0;
static int	metrics_starts_room = 0;

const char *
sas_metrics_name(SasMetric metric)
{
	return metrics_names[metric];
}

int
sas_metrics_by_name(const char *name)
{
	for (int i = 0; i < SAS_METRICS; i++)
		if (strcmp(metrics_names[i], name) == 0)
			return i;
	return -1;
}

Size
sas_metrics_shmem_size(void)
{
	return sizeof(SasMetricsArea);
}

/* With AddinShmemInitLock held. */
void
sas_metrics_shmem_init(void)
{
	bool		found;

	metrics_shmem = ShmemInitStruct("sas metrics", sizeof(SasMetricsArea), &found);
	if (!found)
	{
		memset(metrics_shmem, 0, sizeof(SasMetricsArea));
		LWLockInitialize(&metrics_shmem->lock, LWLockNewTrancheId());
		pg_atomic_init_u64(&metrics_shmem->dropped, 0);
	}
	LWLockRegisterTranche(metrics_shmem->lock.tranche, "sas_metrics");
}

/* -------------------------------------------------------------------- series */

/* The series of that name, or the free entry where it belongs; NULL when there is neither. Lock held. */
static SasSeries *
metrics_look_up(int metric, int id1, int id2, const char *label)
{
	uint32		hash = hash_bytes((const unsigned char *) label, strlen(label));

	hash = hash_combine(hash, murmurhash32(metric * 31 + MyDatabaseId));
	hash = hash_combine(hash, murmurhash32(id1));
	hash = hash_combine(hash, murmurhash32(id2));
	for (uint32 i = 0; i < SAS_SERIES; i++)
	{
		SasSeries  *s = &metrics_shmem->series[(hash + i) % SAS_SERIES];

		if (s->dboid == InvalidOid ||
			(s->dboid == MyDatabaseId && s->metric == metric && s->id1 == id1 && s->id2 == id2 && strcmp(s->label, label) == 0))
			return s;
	}
	return NULL;
}

static SasSeries *
metrics_find(SasMetric metric, int id1, int id2, const char *given)
{
	SasSeries  *s;
	char		label[SAS_METRICS_LABEL];

	if (metrics_shmem == NULL)
		return NULL;
	strlcpy(label, given, sizeof(label));
	LWLockAcquire(&metrics_shmem->lock, LW_SHARED);
	s = metrics_look_up(metric, id1, id2, label);
	if (s != NULL && s->dboid == InvalidOid)
		s = NULL;
	LWLockRelease(&metrics_shmem->lock);
	if (s != NULL)
		return s;

	LWLockAcquire(&metrics_shmem->lock, LW_EXCLUSIVE);
	s = metrics_look_up(metric, id1, id2, label);
	/* some entries stay free, or each search for a new series would go through all */
	if (s != NULL && s->dboid == InvalidOid && metrics_shmem->used > SAS_SERIES / 8 * 7)
		s = NULL;
	if (s != NULL && s->dboid == InvalidOid)
	{
		s->metric = metric;
		s->id1 = id1;
		s->id2 = id2;
		strlcpy(s->label, label, sizeof(s->label));
		pg_atomic_init_u64(&s->n, 0);
		pg_atomic_init_u64(&s->sum_us, 0);
		for (int i = 0; i < SAS_METRICS_BUCKETS; i++)
			pg_atomic_init_u64(&s->buckets[i], 0);
		s->dboid = MyDatabaseId;
		metrics_shmem->used++;
	}
	LWLockRelease(&metrics_shmem->lock);
	if (s == NULL)
		pg_atomic_fetch_add_u64(&metrics_shmem->dropped, 1);
	return s;
}

static void
metrics_add(SasSeries *s, uint64 n, double seconds)
{
	pg_atomic_fetch_add_u64(&s->n, n);
	if (seconds < 0)
		return;
	pg_atomic_fetch_add_u64(&s->sum_us, (uint64) (Min(seconds, 1e9) * 1e6) * n);
	for (int i = 0; i < SAS_METRICS_BUCKETS; i++)
		if (seconds <= sas_metrics_bounds[i])
		{
			pg_atomic_fetch_add_u64(&s->buckets[i], n);
			return;
		}
}

void
sas_metrics_add(SasMetric metric, int id1, int id2, const char *label, uint64 n, double seconds)
{
	SasSeries  *s = metrics_find(metric, id1, id2, label);

	if (s != NULL)
		metrics_add(s, n, seconds);
}

/* -------------------------------------------------------------- transactions */

void
sas_metrics_add_at_commit(SasMetric metric, int id1, int id2, const char *label, uint64 n, double seconds)
{
	SasSeries  *s = metrics_find(metric, id1, id2, label);

	if (s == NULL)
		return;
	if (metrics_n_pending == metrics_pending_room)
	{
		int			more = Max(256, metrics_pending_room * 2);

		if (metrics_pending == NULL)
			metrics_pending = MemoryContextAlloc(TopMemoryContext, sizeof(Pending) * more);
		else
			metrics_pending = repalloc_huge(metrics_pending, sizeof(Pending) * more);
		metrics_pending_room = more;
	}
	metrics_pending[metrics_n_pending].series = s;
	metrics_pending[metrics_n_pending].n = n;
	metrics_pending[metrics_n_pending++].seconds = seconds;
}

static void
metrics_xact_callback(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_PREPARE:	/* it will be committed, most likely, by another session */
			for (int i = 0; i < metrics_n_pending; i++)
				metrics_add(metrics_pending[i].series, metrics_pending[i].n, metrics_pending[i].seconds);
			break;
		case XACT_EVENT_ABORT:
			break;
		default:
			return;
	}
	metrics_n_pending = 0;
	metrics_n_starts = 0;
	/* one large transaction leaves no large list behind */
	if (metrics_pending_room > 65536)
	{
		pfree(metrics_pending);
		metrics_pending = NULL;
		metrics_pending_room = 0;
	}
}

static void
metrics_subxact_callback(SubXactEvent event, SubTransactionId mine, SubTransactionId parent, void *arg)
{
	switch (event)
	{
		case SUBXACT_EVENT_START_SUB:
			if (metrics_n_starts == metrics_starts_room)
			{
				int			more = Max(16, metrics_starts_room * 2);

				if (metrics_starts == NULL)
					metrics_starts = MemoryContextAlloc(TopMemoryContext, sizeof(int) * more);
				else
					metrics_starts = repalloc(metrics_starts, sizeof(int) * more);
				metrics_starts_room = more;
			}
			metrics_starts[metrics_n_starts++] = metrics_n_pending;
			break;
		case SUBXACT_EVENT_ABORT_SUB:
			if (metrics_n_starts > 0)
				metrics_n_pending = metrics_starts[--metrics_n_starts];
			break;
		case SUBXACT_EVENT_COMMIT_SUB:
			if (metrics_n_starts > 0)
				metrics_n_starts--;
			break;
		default:
			break;
	}
}

void
sas_metrics_install(void)
{
	RegisterXactCallback(metrics_xact_callback, NULL);
	RegisterSubXactCallback(metrics_subxact_callback, NULL);
}

/* --------------------------------------------------------------------- look */

int
sas_metrics_view(SasSeriesView **views)
{
	int			n = 0;

	*views = NULL;
	if (metrics_shmem == NULL)
		return 0;
	LWLockAcquire(&metrics_shmem->lock, LW_SHARED);
	*views = palloc(sizeof(SasSeriesView) * Max(metrics_shmem->used, 1));
	for (int i = 0; i < SAS_SERIES; i++)
	{
		SasSeries  *s = &metrics_shmem->series[i];
		SasSeriesView *v;
		uint64		below = 0;

		if (s->dboid != MyDatabaseId)
			continue;
		v = &(*views)[n++];
		v->metric = s->metric;
		v->id1 = s->id1;
		v->id2 = s->id2;
		strlcpy(v->label, s->label, sizeof(v->label));
		/* the buckets first: none may count more than the total */
		for (int k = 0; k < SAS_METRICS_BUCKETS; k++)
			v->buckets[k] = below += pg_atomic_read_u64(&s->buckets[k]);
		pg_read_barrier();
		v->sum = pg_atomic_read_u64(&s->sum_us) / 1e6;
		v->n = Max(pg_atomic_read_u64(&s->n), below);
	}
	LWLockRelease(&metrics_shmem->lock);
	return n;
}

uint64
sas_metrics_dropped(void)
{
	return metrics_shmem == NULL ? 0 : pg_atomic_read_u64(&metrics_shmem->dropped);
}

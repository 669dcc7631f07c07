/* SPDX-License-Identifier: PostgreSQL */
/*
 * metrics.c: a hash of series in shared memory, and what a transaction will add to it.
 *
 * A series is made under the lock and never goes; its numbers are atomics.
 * What belongs to a transaction is collected in a list and added when it has
 * committed; a subtransaction that is rolled back takes its part of the list
 * along.  Nothing can fail at commit: the series are looked up before.
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

static const char *const names[SAS_METRICS] =
{"call", "step_wait", "step", "run_wait", "run", "transition", "alert", "purged"};

static SasMetricsArea *area = NULL;

/* of this transaction */
static Pending *pending = NULL;
static int	n_pending = 0;
static int	room = 0;

/* how long the list was when each open subtransaction began */
static int *marks = NULL;
static int	n_marks = 0;
static int	room_marks = 0;

const char *
sas_metrics_name(SasMetric metric)
{
	return names[metric];
}

int
sas_metrics_by_name(const char *name)
{
	for (int i = 0; i < SAS_METRICS; i++)
		if (strcmp(names[i], name) == 0)
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

	area = ShmemInitStruct("sas metrics", sizeof(SasMetricsArea), &found);
	if (!found)
	{
		memset(area, 0, sizeof(SasMetricsArea));
		LWLockInitialize(&area->lock, LWLockNewTrancheId());
		pg_atomic_init_u64(&area->dropped, 0);
	}
	LWLockRegisterTranche(area->lock.tranche, "sas_metrics");
}

/* -------------------------------------------------------------------- series */

/* The one of that name, or the free place where it belongs; NULL when there is neither. Lock held. */
static SasSeries *
look_up(int metric, int id1, int id2, const char *label)
{
	uint32		hash = hash_bytes((const unsigned char *) label, strlen(label));

	hash = hash_combine(hash, murmurhash32(metric * 31 + MyDatabaseId));
	hash = hash_combine(hash, murmurhash32(id1));
	hash = hash_combine(hash, murmurhash32(id2));
	for (uint32 i = 0; i < SAS_SERIES; i++)
	{
		SasSeries  *s = &area->series[(hash + i) % SAS_SERIES];

		if (s->dboid == InvalidOid ||
			(s->dboid == MyDatabaseId && s->metric == metric && s->id1 == id1 && s->id2 == id2 && strcmp(s->label, label) == 0))
			return s;
	}
	return NULL;
}

static SasSeries *
find(SasMetric metric, int id1, int id2, const char *given)
{
	SasSeries  *s;
	char		label[SAS_METRICS_LABEL];

	if (area == NULL)
		return NULL;
	strlcpy(label, given, sizeof(label));
	LWLockAcquire(&area->lock, LW_SHARED);
	s = look_up(metric, id1, id2, label);
	if (s != NULL && s->dboid == InvalidOid)
		s = NULL;
	LWLockRelease(&area->lock);
	if (s != NULL)
		return s;

	LWLockAcquire(&area->lock, LW_EXCLUSIVE);
	s = look_up(metric, id1, id2, label);
	/* some places stay free, or each look for a new one would go through all */
	if (s != NULL && s->dboid == InvalidOid && area->used > SAS_SERIES / 8 * 7)
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
		area->used++;
	}
	LWLockRelease(&area->lock);
	if (s == NULL)
		pg_atomic_fetch_add_u64(&area->dropped, 1);
	return s;
}

static void
add(SasSeries *s, uint64 n, double seconds)
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
	SasSeries  *s = find(metric, id1, id2, label);

	if (s != NULL)
		add(s, n, seconds);
}

/* -------------------------------------------------------------- transactions */

void
sas_metrics_add_at_commit(SasMetric metric, int id1, int id2, const char *label, uint64 n, double seconds)
{
	SasSeries  *s = find(metric, id1, id2, label);

	if (s == NULL)
		return;
	if (n_pending == room)
	{
		int			more = Max(256, room * 2);

		if (pending == NULL)
			pending = MemoryContextAlloc(TopMemoryContext, sizeof(Pending) * more);
		else
			pending = repalloc_huge(pending, sizeof(Pending) * more);
		room = more;
	}
	pending[n_pending].series = s;
	pending[n_pending].n = n;
	pending[n_pending++].seconds = seconds;
}

static void
at_end(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_PREPARE:	/* it will be committed, most likely, by another session */
			for (int i = 0; i < n_pending; i++)
				add(pending[i].series, pending[i].n, pending[i].seconds);
			break;
		case XACT_EVENT_ABORT:
			break;
		default:
			return;
	}
	n_pending = 0;
	n_marks = 0;
	/* one large transaction leaves no large list behind */
	if (room > 65536)
	{
		pfree(pending);
		pending = NULL;
		room = 0;
	}
}

static void
at_subtransaction(SubXactEvent event, SubTransactionId mine, SubTransactionId parent, void *arg)
{
	switch (event)
	{
		case SUBXACT_EVENT_START_SUB:
			if (n_marks == room_marks)
			{
				int			more = Max(16, room_marks * 2);

				if (marks == NULL)
					marks = MemoryContextAlloc(TopMemoryContext, sizeof(int) * more);
				else
					marks = repalloc(marks, sizeof(int) * more);
				room_marks = more;
			}
			marks[n_marks++] = n_pending;
			break;
		case SUBXACT_EVENT_ABORT_SUB:
			if (n_marks > 0)
				n_pending = marks[--n_marks];
			break;
		case SUBXACT_EVENT_COMMIT_SUB:
			if (n_marks > 0)
				n_marks--;
			break;
		default:
			break;
	}
}

void
sas_metrics_install(void)
{
	RegisterXactCallback(at_end, NULL);
	RegisterSubXactCallback(at_subtransaction, NULL);
}

/* --------------------------------------------------------------------- look */

int
sas_metrics_view(SasSeriesView **views)
{
	int			n = 0;

	*views = NULL;
	if (area == NULL)
		return 0;
	LWLockAcquire(&area->lock, LW_SHARED);
	*views = palloc(sizeof(SasSeriesView) * Max(area->used, 1));
	for (int i = 0; i < SAS_SERIES; i++)
	{
		SasSeries  *s = &area->series[i];
		SasSeriesView *v;
		uint64		below = 0;

		if (s->dboid != MyDatabaseId)
			continue;
		v = &(*views)[n++];
		v->metric = s->metric;
		v->id1 = s->id1;
		v->id2 = s->id2;
		strlcpy(v->label, s->label, sizeof(v->label));
		/* the buckets first: none may hold more than all */
		for (int k = 0; k < SAS_METRICS_BUCKETS; k++)
			v->buckets[k] = below += pg_atomic_read_u64(&s->buckets[k]);
		pg_read_barrier();
		v->sum = pg_atomic_read_u64(&s->sum_us) / 1e6;
		v->n = Max(pg_atomic_read_u64(&s->n), below);
	}
	LWLockRelease(&area->lock);
	return n;
}

uint64
sas_metrics_dropped(void)
{
	return area == NULL ? 0 : pg_atomic_read_u64(&area->dropped);
}

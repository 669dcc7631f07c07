/* SPDX-License-Identifier: PostgreSQL */
/*
 * metrics.c: a hash of series in shared memory, and what a transaction will
 * add to it.
 *
 * A series is made under the lock; its numbers are atomics.  What belongs to
 * a transaction is collected in a list and added when it has committed; a
 * subtransaction that is rolled back removes its part of the list.  Nothing
 * can fail at commit.
 *
 * Without room for a series, those that nothing was added to for an hour are
 * added up in the series "_other" of their metric and removed.  When there is
 * none, the new one is counted there.  So the sum over all series of a metric
 * never loses anything.
 *
 * Without shared memory (library not preloaded) nothing is counted.
 */
#include "postgres.h"

#include "access/xact.h"
#include "base/grow.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "utils/memutils.h"

#include "base/clock.h"
#include "base/settings.h"
#include "base/shared_table.h"
#include "metrics/metrics.h"

#define SAS_METRICS_OTHER "_other"
#define SAS_METRICS_IDLE_US (3600 * INT64CONST(1000000))

typedef struct SasSeriesKey
{
	Oid			dboid;
	int			metric;
	int			id1;
	int			id2;
	char		label[SAS_METRICS_LABEL];	/* zeros behind its end */
} SasSeriesKey;

typedef struct SasSeries
{
	SasSeriesKey key;
	TimestampTz added_at;		/* the last time; 0: never */
	pg_atomic_uint64 n;
	pg_atomic_uint64 sum_us;
	pg_atomic_uint64 buckets[SAS_METRICS_BUCKETS];
} SasSeries;

typedef struct Pending
{
	SasSeriesKey key;
	uint64		n;
	double		seconds;
} Pending;

static bool metrics_is_idle(const void *entry, int64 now_us);
static void metrics_sum_up(void *entry);

static SasSharedTable metrics_table = {
	.name = "metrics",.setting = "sas.max_metrics",.capacity = &sas_base_max_metrics,
	.key_size = sizeof(SasSeriesKey),.entry_size = sizeof(SasSeries),
	.extra_size = sizeof(uint64),	/* counts that found no room */
	.idle = metrics_is_idle,.removing = metrics_sum_up
};

const double sas_metrics_bounds[SAS_METRICS_BUCKETS] =
{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200, 86400};

static const char *const metrics_names[SAS_METRICS] =
{"call", "step_wait", "step", "run_wait", "run", "transition", "alert", "purged", "found_late", "lock_timeout", "schedule"};

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

/* -------------------------------------------------------------------- series */

static SasSeriesKey
metrics_key(Oid dboid, int metric, int id1, int id2, const char *label)
{
	SasSeriesKey key = {dboid, metric, id1, id2};

	strlcpy(key.label, label, sizeof(key.label));
	return key;
}

static SasSeriesKey
metrics_other_key(const SasSeriesKey *key)
{
	return metrics_key(key->dboid, key->metric, 0, 0, SAS_METRICS_OTHER);
}

static bool
metrics_is_other(const SasSeries *s)
{
	return strcmp(s->key.label, SAS_METRICS_OTHER) == 0;
}

/* By the one clock: an hour is tested by setting it. */
static bool
metrics_is_idle(const void *entry, int64 now_us)
{
	const SasSeries *s = entry;

	return !metrics_is_other(s) && sas_base_clock_now() - s->added_at > SAS_METRICS_IDLE_US;
}

/* A series is removed because the table is full: its counts are added to the series of the others. */
static void
metrics_sum_up(void *entry)
{
	SasSeries  *s = entry;
	SasSeriesKey key = metrics_other_key(&s->key);
	SasSeries  *other = sas_base_table_find(&metrics_table, &key);

	pg_atomic_fetch_add_u64(&other->n, pg_atomic_read_u64(&s->n));
	pg_atomic_fetch_add_u64(&other->sum_us, pg_atomic_read_u64(&s->sum_us));
	for (int i = 0; i < SAS_METRICS_BUCKETS; i++)
		pg_atomic_fetch_add_u64(&other->buckets[i], pg_atomic_read_u64(&s->buckets[i]));
}

/* With the lock held exclusively. */
static SasSeries *
metrics_enter(const SasSeriesKey *key)
{
	SasSeries  *s = sas_base_table_enter(&metrics_table, key);

	if (s == NULL || s->added_at != 0)
		return s;
	s->added_at = sas_base_clock_now();
	pg_atomic_init_u64(&s->n, 0);
	pg_atomic_init_u64(&s->sum_us, 0);
	for (int i = 0; i < SAS_METRICS_BUCKETS; i++)
		pg_atomic_init_u64(&s->buckets[i], 0);
	return s;
}

static void
metrics_sum_up_all(void)
{
	HASH_SEQ_STATUS scan;
	SasSeries  *s;

	hash_seq_init(&scan, metrics_table.entries);
	while ((s = hash_seq_search(&scan)) != NULL)
		if (!metrics_is_other(s))
		{
			metrics_sum_up(s);
			sas_base_table_remove(&metrics_table, s);
		}
}

/* The same.  The others are made first, so that no series is without; NULL: not even they have room. */
static SasSeries *
metrics_make(const SasSeriesKey *key)
{
	SasSeriesKey other_key = metrics_other_key(key);
	SasSeries  *other = metrics_enter(&other_key);
	SasSeries  *s;

	if (other == NULL)
	{
		/* once for each metric of a database at most */
		metrics_sum_up_all();
		other = metrics_enter(&other_key);
	}
	s = other != NULL ? metrics_enter(key) : NULL;
	return s != NULL ? s : other;
}

static void
metrics_add(SasSeries *s, uint64 n, double seconds)
{
	s->added_at = sas_base_clock_now();
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

/* Nothing here raises an error. */
static void
metrics_add_all(const Pending *pending, int n)
{
	bool		may_make = false;

	if (n == 0 || !sas_base_table_lock(&metrics_table, LW_SHARED))
		return;
	for (int i = 0; i < n; i++)
	{
		SasSeries  *s = sas_base_table_find(&metrics_table, &pending[i].key);

		if (s == NULL && !may_make)
		{
			sas_base_table_unlock(&metrics_table);
			sas_base_table_lock(&metrics_table, LW_EXCLUSIVE);
			may_make = true;
		}
		if (s == NULL)
			s = metrics_make(&pending[i].key);
		if (s != NULL)
			metrics_add(s, pending[i].n, pending[i].seconds);
		else
			++*(uint64 *) metrics_table.extra;
	}
	sas_base_table_unlock(&metrics_table);
}

void
sas_metrics_add(SasMetric metric, int id1, int id2, const char *label, uint64 n, double seconds)
{
	Pending		at_once = {metrics_key(MyDatabaseId, metric, id1, id2, label), n, seconds};

	metrics_add_all(&at_once, 1);
}

/* -------------------------------------------------------------- transactions */

void
sas_metrics_add_at_commit(SasMetric metric, int id1, int id2, const char *label, uint64 n, double seconds)
{
	if (metrics_table.state == NULL)
		return;
	metrics_pending = sas_base_grow(TopMemoryContext, metrics_pending, metrics_n_pending, &metrics_pending_room, sizeof(Pending));
	metrics_pending[metrics_n_pending++] = (Pending) {metrics_key(MyDatabaseId, metric, id1, id2, label), n, seconds};
}

static void
metrics_xact_callback(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_PREPARE:	/* it will be committed, most likely, by another session */
			metrics_add_all(metrics_pending, metrics_n_pending);
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
			metrics_starts = sas_base_grow(TopMemoryContext, metrics_starts, metrics_n_starts, &metrics_starts_room, sizeof(int));
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
	sas_base_table_register(&metrics_table);
	RegisterXactCallback(metrics_xact_callback, NULL);
	RegisterSubXactCallback(metrics_subxact_callback, NULL);
}

/* --------------------------------------------------------------------- look */

int
sas_metrics_view(SasSeriesView **views)
{
	HASH_SEQ_STATUS scan;
	SasSeries  *s;
	int			n = 0;

	*views = NULL;
	if (metrics_table.state == NULL)
		return 0;
	*views = palloc(sizeof(SasSeriesView) * sas_base_max_metrics);
	sas_base_table_lock(&metrics_table, LW_SHARED);
	hash_seq_init(&scan, metrics_table.entries);
	while ((s = hash_seq_search(&scan)) != NULL)
	{
		SasSeriesView *v = &(*views)[n];
		uint64		below = 0;

		if (s->key.dboid != MyDatabaseId || pg_atomic_read_u64(&s->n) == 0)
			continue;
		v->metric = s->key.metric;
		v->id1 = s->key.id1;
		v->id2 = s->key.id2;
		strlcpy(v->label, s->key.label, sizeof(v->label));
		/* the buckets first: none may count more than the total */
		for (int k = 0; k < SAS_METRICS_BUCKETS; k++)
			v->buckets[k] = below += pg_atomic_read_u64(&s->buckets[k]);
		pg_read_barrier();
		v->sum = pg_atomic_read_u64(&s->sum_us) / 1e6;
		v->n = Max(pg_atomic_read_u64(&s->n), below);
		n++;
	}
	sas_base_table_unlock(&metrics_table);
	return n;
}

uint64
sas_metrics_dropped(void)
{
	return metrics_table.state == NULL ? 0 : *(uint64 *) metrics_table.extra;
}

/* SPDX-License-Identifier: PostgreSQL */
/*
 * metrics.h: counters and histograms that all processes share.
 *
 * A series is named by a metric, two ids and a label.  Each has a count, and
 * where spans are observed their sum and a count per bucket.  All of it is
 * in shared memory, so that counting writes no WAL and locks no row.  It
 * starts from zero with the server, as the counters of Prometheus may.
 * There is room for sas.max_metrics series; the others are one for each
 * metric, with the label "_other".
 */
#ifndef SAS_METRICS_METRICS_H
#define SAS_METRICS_METRICS_H

#define SAS_METRICS_LABEL 48
#define SAS_METRICS_BUCKETS 17

typedef enum SasMetric
{
	SAS_METRIC_CALL,			/* attempts: agent (0: functions), workflow, outcome */
	SAS_METRIC_STEP_WAIT,		/* from ready to claimed: agent */
	SAS_METRIC_STEP,			/* from claimed to succeeded: agent */
	SAS_METRIC_RUN_WAIT,		/* from submit or start_at to the first claim: workflow */
	SAS_METRIC_RUN,				/* from the first claim to the end: workflow, result */
	SAS_METRIC_TRANSITION,		/* subject and states */
	SAS_METRIC_ALERT,			/* kind */
	SAS_METRIC_PURGED,			/* runs that were purged */
	SAS_METRIC_FOUND_LATE,		/* actor and kind */
	SAS_METRIC_LOCK_TIMEOUT,	/* actor */
	SAS_METRIC_SCHEDULE			/* instants of schedules: what became of them */
} SasMetric;

#define SAS_METRICS (SAS_METRIC_SCHEDULE + 1)

/* Upper bounds of the buckets in seconds; what is above the last is in none. */
extern const double sas_metrics_bounds[SAS_METRICS_BUCKETS];

/* In _PG_init: shared memory, and callbacks of transactions. */
extern void sas_metrics_install(void);

/* "call", "step_wait", ...; by_name: -1 when there is none of that name. */
extern const char *sas_metrics_name(SasMetric metric);
extern int	sas_metrics_by_name(const char *name);

/*
 * Counts n, and unless seconds is negative observes a span that long each
 * time.  add: at once.  add_at_commit: when this transaction has committed.
 */
extern void sas_metrics_add(SasMetric metric, int id1, int id2, const char *label, uint64 n, double seconds);
extern void sas_metrics_add_at_commit(SasMetric metric, int id1, int id2, const char *label, uint64 n, double seconds);

typedef struct SasSeriesView
{
	SasMetric	metric;
	int			id1;
	int			id2;
	char		label[SAS_METRICS_LABEL];
	uint64		n;
	double		sum;
	uint64		buckets[SAS_METRICS_BUCKETS];	/* each with those below it */
} SasSeriesView;

/* The series of this database, palloc'd; returns how many. */
extern int	sas_metrics_view(SasSeriesView **views);

/* Counts that found no room for their series. */
extern uint64 sas_metrics_dropped(void);

#endif							/* SAS_METRICS_METRICS_H */

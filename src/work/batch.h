/* SPDX-License-Identifier: PostgreSQL */
/*
 * batch.h: how much a tick takes at a time.
 *
 * A new piece of work waits for the tick that is running, and for one more,
 * however much work there is.  So a tick takes as much as it can do within
 * SAS_BATCH_MS, judged by how long the last ticks took.
 */
#ifndef SAS_WORK_BATCH_H
#define SAS_WORK_BATCH_H

#define SAS_BATCH_MS 100
/* to begin with, and at least */
#define SAS_BATCH_FIRST 200
#define SAS_BATCH_LEAST 10

typedef struct SasBatch
{
	int			most;
	int			size;			/* 0: no tick yet */
	int64		begun_us;
} SasBatch;

/* A tick begins; returns how much it may take. */
extern int	sas_work_batch_begin(SasBatch *batch);

/* It has taken n, and committed; true: it took all that it might. */
extern bool sas_work_batch_end(SasBatch *batch, int n);

#endif							/* SAS_WORK_BATCH_H */

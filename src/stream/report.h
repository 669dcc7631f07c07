/* SPDX-License-Identifier: PostgreSQL */
/*
 * report.h: what one transaction says of watches, and hears.
 */
#ifndef SAS_STREAM_REPORT_H
#define SAS_STREAM_REPORT_H

#include "store/watches.h"

typedef struct SasStreamReport
{
	SasWatchBatch *batches;
	int			n_batches;
	SasWatchFailure *failures;
	int			n_failures;
	SasWatchId *released;
	int			n_released;
	SasWatchId *asked;
	int			n_asked;
	int			quantity;		/* to be claimed */

	List	   *taken;			/* SasWatchVerdict */
	List	   *pauses;			/* SasWatchVerdict */
	List	   *news;			/* SasWatchNews */
	List	   *requests;		/* SasWatchRequest */
	List	   *claimed;		/* SasWatchRequest */
} SasStreamReport;

/* After the commit: all that were said leave the line, then the answers count. */
extern void sas_stream_apply(SasStreamReport *report);

#endif							/* SAS_STREAM_REPORT_H */

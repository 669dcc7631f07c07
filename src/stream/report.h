/* SPDX-License-Identifier: PostgreSQL */
/*
 * report.h: the reports of one transaction on watches, and the answers.
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
	List	   *kept;			/* SasWatchId *, of those that could not be released yet */
	SasWatchAsk *asked;
	int			n_asked;
	int			quantity;		/* to be claimed */

	List	   *taken;			/* SasWatchVerdict */
	List	   *pauses;			/* SasWatchVerdict */
	List	   *news;			/* SasWatchNews */
	List	   *requests;		/* SasWatchRequest */
	List	   *claimed;		/* SasWatchRequest */
} SasStreamReport;

/* After the commit: all that have reported leave the line, then the answers are applied. */
extern void sas_stream_apply(SasStreamReport *report);

#endif							/* SAS_STREAM_REPORT_H */

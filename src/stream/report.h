/* SPDX-License-Identifier: PostgreSQL */
/*
 * report.h: what one transaction says of watches, and hears.
 */
#ifndef SAS_STREAM_REPORT_H
#define SAS_STREAM_REPORT_H

#include "store/watches.h"

typedef struct SasTalk
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
	List	   *rests;			/* SasWatchVerdict */
	List	   *news;			/* SasWatchNews */
	List	   *requests;		/* SasWatchRequest */
	List	   *claimed;		/* SasWatchRequest */
} SasTalk;

/* After the commit: all that were said leave the line, then the answers count. */
extern void sas_talk_hear(SasTalk *talk);

#endif							/* SAS_STREAM_REPORT_H */

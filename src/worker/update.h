/* SPDX-License-Identifier: PostgreSQL */
/*
 * update.h: ALTER EXTENSION sas UPDATE that leads to an older version.
 */
#ifndef SAS_WORKER_UPDATE_H
#define SAS_WORKER_UPDATE_H

#include "nodes/nodes.h"
#include "utils/elog.h"

typedef struct SasUpdate
{
	char	   *from;			/* NULL: the statement is not such an update */
	const char *to;				/* NULL: the version in the control file */
	ErrorContextCallback callback;
} SasUpdate;

/* Between these two the statement runs.  An error in between ends it, too. */
extern void sas_worker_update_begin(SasUpdate *update, Node *statement);
extern void sas_worker_update_end(SasUpdate *update);

#endif							/* SAS_WORKER_UPDATE_H */

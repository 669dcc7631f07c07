/* SPDX-License-Identifier: PostgreSQL */
/*
 * submit.h: runs that begin with the claim of their first steps, submitted
 * without the interpreter.
 */
#ifndef SAS_STORE_SUBMIT_H
#define SAS_STORE_SUBMIT_H

#include "postgres.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

/* What is kept of a workflow, as one role may submit it. */
typedef struct SasPlainWorkflow
{
	int			workflow_id;
	int			version_id;
	int			priority;
	Interval   *deadline;		/* NULL: the setting sas.run_deadline */
	int			n_roots;
	int		   *root_nos;
	int		   *root_lanes;
	int		   *root_priorities;
} SasPlainWorkflow;

/*
 * The current version of that workflow, if the role may submit it and its
 * runs need no more at submit than their rows; else NULL.  Good until the next
 * command.
 */
extern const SasPlainWorkflow *sas_store_plain_workflow(Oid caller, const text *name);

/* Every session, this one with its next command, others when this has committed, forgets what it has kept of workflows. */
extern void sas_store_announce_workflows(void);

/* What is the same for all runs of a submit. */
typedef struct SasSubmission
{
	Oid			owner;
	int			priority;
	Interval   *deadline;		/* NULL: that of the workflow */
	Datum		labels;
	text	   *key;			/* of a single run; NULL: none */
} SasSubmission;

/*
 * Writes the runs, one per input, in the caller's transaction: what
 * sas._submit_runs() would write.  False, and nothing is written, when that has
 * to do it: the key is taken, or a table is not as this knows it.  run_ids, deadline: theirs; ranks: of their first steps, in
 * the order of the workflow's.  The caller notes where rows stand now (wake/front.h): no trigger does.
 */
extern bool sas_store_submit_plain(const SasPlainWorkflow *workflow, const SasSubmission *submission, const Datum *inputs, int n, int64 *run_ids,
								   TimestampTz *deadline, TimestampTz *ranks);

#endif							/* SAS_STORE_SUBMIT_H */

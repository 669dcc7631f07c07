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

/* What is to be noted of runs that were submitted: where their rows stand now (wake/low_water.h; no trigger does it), and who is to look. */
typedef struct SasSubmitted
{
	int64	   *run_ids;		/* room for them, in ascending order */
	TimestampTz *ranks;			/* room for those of their first steps, in the order of the workflow's */
	TimestampTz timer;			/* of their deadline; DT_NOEND: they have none yet */
	TimestampTz check_by;		/* by then the supervisor must look */
} SasSubmitted;

/*
 * Writes the runs, one per input, in the caller's transaction: what
 * _sas.submit_runs() would write, but for timers: who has long until its
 * deadline gets its own later (sql/supervisor/deadline.sql).  False, and nothing is
 * written, when that has to do it: the key is taken, or a table is not as this
 * knows it.
 */
extern bool sas_store_submit_plain(const SasPlainWorkflow *workflow, const SasSubmission *submission, const Datum *inputs, int n, SasSubmitted *submitted);

/* A row of _sas.run is made by this transaction. */
extern void sas_store_note_submitted(int64 run_id);

/* Was it? */
extern bool sas_store_submitted_here(int64 run_id);

#endif							/* SAS_STORE_SUBMIT_H */

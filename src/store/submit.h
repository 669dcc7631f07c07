/* SPDX-License-Identifier: PostgreSQL */
/*
 * submit.h: submits runs that begin with the claim of their first steps,
 * without the interpreter.
 */
#ifndef SAS_STORE_SUBMIT_H
#define SAS_STORE_SUBMIT_H

#include "postgres.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

/* What is cached of a workflow, as one role may submit it. */
typedef struct SasPlainWorkflow
{
	int			workflow_id;
	int			version_id;
	int			priority;
	bool		keys_follow;	/* a distributed table: a key may belong to another node */
	Interval   *deadline;		/* NULL: the setting sas.run_deadline */
	int			n_roots;
	int		   *root_nos;
	int		   *root_lanes;
	int		   *root_priorities;
} SasPlainWorkflow;

/*
 * The current version of that workflow, if the role may submit it and its
 * runs need nothing at submit but their rows; else NULL. Valid until the
 * next command.
 */
extern const SasPlainWorkflow *sas_store_plain_workflow(Oid caller, const text *name);

/* Empties the cache of workflows: of this session with its next command, of all others when this transaction has committed. */
extern void sas_store_announce_workflows(void);

/* Child runs: the step, or element, that waits for each, and the deadlines of the runs above them. */
typedef struct SasParents
{
	const Datum *run_ids;
	const Datum *step_nos;
	const Datum *elements;
	const Datum *deadlines;		/* NULL: as for any run */
} SasParents;

/* What is the same for all runs of a submit. */
typedef struct SasSubmission
{
	Oid			owner;
	int			priority;
	bool		keys_follow;	/* a distributed table: a key may belong to another node */
	Interval   *deadline;		/* NULL: the workflow's */
	Datum		labels;
	text	   *key;			/* of a single run; NULL: none */
	const SasParents *parents;	/* NULL: they are no child runs */
} SasSubmission;

/*
 * A run with at least the first span until its deadline has no timer at
 * first. The supervisor looks for such runs within the second span, which is
 * twice _sas.timer_age().
 */
#define SAS_UNTIMED_FROM_MS (5 * 60 * 1000)
#define SAS_UNTIMED_CHECK_MS (2 * 60 * 1000)

/* What the caller has to note of submitted runs: the keys of their rows (wake/low_water.h; no trigger does it), and when the supervisor must check. */
typedef struct SasSubmitted
{
	int64	   *run_ids;		/* room for them, in ascending order */
	TimestampTz *ranks;			/* room for the ranks of the first run's first steps, in workflow order */
	TimestampTz timer;			/* of the first deadline; DT_NOEND: they have none yet */
	TimestampTz check_by;		/* by then the supervisor must check */
} SasSubmitted;

/*
 * Writes the runs, one per input, in the caller's transaction: what
 * _sas.submit_runs() would write: a run that is far from its deadline gets
 * its timer later (sql/supervisor/deadline.sql).  False, and
 * nothing is written, when SQL has to write them: the key is taken, or a
 * table is not as this code expects.
 */
extern bool sas_store_submit_plain(const SasPlainWorkflow *workflow, const SasSubmission *submission, const Datum *inputs, int n, SasSubmitted *submitted);

/* A row of _sas.run is made by this transaction. */
extern void sas_store_note_submitted(int64 run_id);

/* Was it? */
extern bool sas_store_submitted_here(int64 run_id);

#endif							/* SAS_STORE_SUBMIT_H */

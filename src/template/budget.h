/* SPDX-License-Identifier: PostgreSQL */
/*
 * budget.h
 *		What the evaluation of a user's path, predicate or template may cost.
 */
#ifndef SAS_TEMPLATE_BUDGET_H
#define SAS_TEMPLATE_BUDGET_H

#include "utils/palloc.h"

/* Processor time of the thread, so that a busy machine fails no evaluation. */
#define SAS_BUDGET_MS 100
/* Limits all temporary memory; the result is limited by the bytes that references insert. */
#define SAS_BUDGET_BYTES (16 * 1024 * 1024)

#define SAS_BUDGET_TOO_SLOW "takes more than 100 ms to evaluate"
#define SAS_BUDGET_TOO_MUCH "needs more than 16 MB to evaluate"

/*
 * Runs evaluate(arg) in its own memory context.  Returns NULL, or which budget was spent; then
 * evaluate did not return.  The context lives until sas_template_budget_release().
 */
extern const char *sas_template_budget_run(void (*evaluate) (void *), void *arg);
extern void sas_template_budget_release(void);

/*
 * Inside evaluate: from here on the budget counts.  Cheap evaluations never call it.  Copied:
 * bytes for a copy of existing data; they do not count.
 */
extern void sas_template_budget_arm(Size copied);

/* Inside evaluate: the memory context of the result. */
extern MemoryContext sas_template_budget_caller(void);

/*
 * A worker evaluates many steps in one transaction.  Between begin and end, all evaluations
 * together may take a quarter of a second and return 64 MB; beyond that an ERROR ends the claim or the
 * transaction, and the worker tries again with fewer steps.  Single: it is one step, or one or two
 * messages, which have no such limit.
 */
extern void sas_template_budget_begin(bool single);
extern void sas_template_budget_end(void);

/*
 * Since begin, or in a session since its start: how long evaluations took, in microseconds, and how
 * many bytes they returned.  Was that too much?
 */
extern int64 sas_template_budget_us(void);
extern Size sas_template_budget_bytes(void);
extern bool sas_template_budget_overran(void);

/*
 * All else counts, too, where it may cost much: called between parts of the work, raises that ERROR when
 * it has taken a quarter of a second of processor time.
 */
extern void sas_template_budget_check(void);

/*
 * The steps that are changed count, too, after limit_steps: what one end of a step changes is all
 * that waits for it.  add: so many more are changed; raises that ERROR when they are too many.  check: would they be?
 * is_spent: are they too many, where there is no such limit, or has the work taken so long that what can be left is left?
 */
#define SAS_BUDGET_FAIR_US 100000
#define SAS_BUDGET_STEPS 5000
/* limit, add, check, is_spent: see above; then, how many were added. */
extern void sas_template_budget_limit_steps(void);
extern void sas_template_budget_add_steps(int64 n);
extern void sas_template_budget_check_steps(int64 n);
extern bool sas_template_budget_is_spent(void);
extern int64 sas_template_budget_steps(void);

/* It has carried out n items: how many may the next one take?  Any number if they have changed few; else half of as many as would change that many steps, since others may change more. */
extern int64 sas_template_budget_fitting(int n);

/* Since begin: the processor time of all of it. */
extern int64 sas_template_budget_processor_us(void);
extern int64 sas_template_processor_us(void);

/* Inside evaluate: the size of its result. */
extern void sas_template_budget_add(Size bytes);

#endif							/* SAS_TEMPLATE_BUDGET_H */

/* SPDX-License-Identifier: PostgreSQL */
/*
 * finish.c: writes what the functions of a group have come to, in the
 * transaction in which they ran.
 */
#include "postgres.h"

#include "base/clock.h"
#include "function/work.h"
#include "work/failure.h"

/* The leases of which nothing is left after this group, also when its claims were lost; returns how many. */
static int
finish_leases(SasFunctionWork **group, int n_group, int64 *leases)
{
	int			n = 0;

	for (int i = 0; i < n_group; i++)
	{
		SasFunctionBatch *batch = group[i]->batch;
		int			left = batch->left;

		for (int k = 0; k < n_group; k++)
			left -= group[k]->batch == batch && (group[k]->verdict != NULL || group[k]->lost);
		if (left == 0 && (n == 0 || leases[n - 1] != batch->lease_id))
			leases[n++] = batch->lease_id;
	}
	return n;
}

static void
finish_log_failures(SasFunctionWork **group, int n_group)
{
	for (int i = 0; i < n_group; i++)
	{
		SasFunctionWork *w = group[i];

		if (w->verdict != NULL && w->started_at != 0 && sas_work_failure_is_final(w->verdict))
			sas_work_failure_log_step(&w->step->id, w->step->step, w->step->undo, w->step->attempt + 1, w->invoked.error);
	}
}

static void
finish_reply(const SasFunctionWork *w, SasStoredReply *r)
{
	r->id = w->step->id;
	r->verdict = w->verdict;
	r->attempts = w->started_at != 0 ? 1 : 0;
	r->output = w->invoked.ok ? w->invoked.output : NULL;
	r->error = w->invoked.ok ? NULL : w->invoked.error;
	r->again_in_ms = w->again_in_ms;
	r->arrived_at = w->started_at != 0 ? w->arrived_at : sas_base_clock_now();
}

/* The attempts that have a row of their own; not those of claims that were lost meanwhile. */
static void
finish_write_attempts(SasFunctionWork **group, int n_group)
{
	SasStoredAttempt *attempts = palloc0(sizeof(SasStoredAttempt) * n_group);
	int			n = 0;

	for (int i = 0; i < n_group; i++)
	{
		SasFunctionWork *w = group[i];
		SasStoredAttempt *a;

		if (w->verdict == NULL || w->started_at == 0 || w->attempt_status == NULL)
			continue;
		a = &attempts[n++];
		a->id = w->step->id;
		a->attempt = w->step->attempt + 1;
		a->undo = w->step->undo;
		a->status = w->attempt_status;
		a->error = w->invoked.ok ? NULL : w->invoked.error;
		a->started_at = w->started_at;
		a->finished_at = w->arrived_at;
	}
	sas_store_write_attempts(attempts, n);
}

void
sas_function_write_group(SasFunctionWork **group, int n_group)
{
	SasStoredReply *replies = palloc0(sizeof(SasStoredReply) * n_group);
	int64	   *leases = palloc(sizeof(int64) * n_group);
	bool	   *lost = palloc0(n_group);
	SasFunctionWork **replied = palloc(sizeof(SasFunctionWork *) * n_group);
	int			n_leases = finish_leases(group, n_group, leases);
	int			n = 0;

	for (int i = 0; i < n_group; i++)
		if (group[i]->verdict != NULL)
		{
			replied[n] = group[i];
			finish_reply(group[i], &replies[n++]);
		}
	if (n == 0 && n_leases == 0)
		return;
	/* strict: what a function wrote must not be committed when its reply does not count */
	sas_store_write_replies(replies, n, leases, n_leases, true, lost);
	for (int i = 0; i < n; i++)
		if (lost[i])
		{
			replied[i]->lost = true;
			replied[i]->verdict = NULL;
		}
	finish_write_attempts(group, n_group);
	finish_log_failures(group, n_group);
}

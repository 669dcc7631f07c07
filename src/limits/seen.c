/* SPDX-License-Identifier: PostgreSQL */
/*
 * seen.c: which transactions a count has seen.
 */
#include "postgres.h"

#include "access/xact.h"

#include "limits/seen.h"

/* The snapshot of now, or of a moment ago. */
void
sas_limits_seen_note(SasLimitsSeen *seen, const SnapshotData *snapshot)
{
	uint64		next = U64FromFullTransactionId(ReadNextFullTransactionId());

	/* as a number that does not come back */
	seen->next = next - (uint32) ((uint32) next - snapshot->xmax);
	seen->xmin = snapshot->xmin;
	seen->n_running = snapshot->xcnt <= SAS_SEEN_RUNNING ? (int) snapshot->xcnt : -1;
	for (int i = 0; i < seen->n_running; i++)
		seen->running[i] = snapshot->xip[i];
}

bool
sas_limits_seen_own(const SasLimitsSeen *seen)
{
	FullTransactionId own = GetTopFullTransactionIdIfAny();
	TransactionId xid = XidFromFullTransactionId(own);

	if (!FullTransactionIdIsValid(own) || U64FromFullTransactionId(own) >= seen->next)
		return false;
	if (TransactionIdPrecedes(xid, seen->xmin))
		return true;
	for (int i = 0; i < seen->n_running; i++)
		if (seen->running[i] == xid)
			return false;
	return seen->n_running >= 0;
}

/* SPDX-License-Identifier: PostgreSQL */
/*
 * seen.c: which transactions the last count of a database has seen.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"

#include "limits/seen.h"

/* That of this database; else the oldest one. */
static int
seen_place(const SasLimitsSeen *seen)
{
	int			oldest = 0;

	for (int i = 0; i < SAS_SEEN_DATABASES; i++)
	{
		if (seen->notes[i].dboid == MyDatabaseId)
			return i;
		if (seen->notes[i].next < seen->notes[oldest].next)
			oldest = i;
	}
	return oldest;
}

bool
sas_limits_seen_note(SasLimitsSeen *seen, const SnapshotData *snapshot)
{
	SasLimitsSeenNote *note = &seen->notes[seen_place(seen)];
	uint64		next = U64FromFullTransactionId(ReadNextFullTransactionId());

	if (snapshot->xcnt > SAS_SEEN_RUNNING)
		return false;
	note->dboid = MyDatabaseId;
	note->xmin = snapshot->xmin;
	/* as a number that does not come back */
	note->next = next - (uint32) ((uint32) next - snapshot->xmax);
	note->n_running = (int) snapshot->xcnt;
	memcpy(note->running, snapshot->xip, sizeof(TransactionId) * snapshot->xcnt);
	/* a snapshot leaves out its own transaction, which counts when it ends */
	note->running[note->n_running++] = GetTopTransactionIdIfAny();
	return true;
}

bool
sas_limits_seen_own(const SasLimitsSeen *seen)
{
	const SasLimitsSeenNote *note = &seen->notes[seen_place(seen)];
	FullTransactionId own = GetTopFullTransactionIdIfAny();
	TransactionId xid = XidFromFullTransactionId(own);

	if (note->dboid != MyDatabaseId || !FullTransactionIdIsValid(own) || U64FromFullTransactionId(own) >= note->next)
		return false;
	if (TransactionIdPrecedes(xid, note->xmin))
		return true;
	for (int i = 0; i < note->n_running; i++)
		if (note->running[i] == xid)
			return false;
	return true;
}

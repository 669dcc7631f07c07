/* SPDX-License-Identifier: PostgreSQL */
/*
 * users.c: which owners have used an agent, and whose calls have failed.
 */
#include "postgres.h"

#include "limits/table.h"

void
sas_limits_note_failures(SasLimitsEntry *e, Oid owner, int n)
{
	for (int i = 0; i < lengthof(e->failing) && n > 0; i++)
		if (e->failing[i].n == 0 || e->failing[i].owner == owner)
		{
			e->failing[i].owner = owner;
			e->failing[i].n += n;
			return;
		}
}

void
sas_limits_note_user(SasLimitsUser pair[2], Oid owner, int64 now)
{
	if (pair[0].owner != owner)
	{
		/* the other one, or the one that used it longer ago */
		pair[1] = pair[0];
		pair[0].owner = owner;
	}
	pair[0].used_us = now;
}

bool
sas_limits_has_other_user(const SasLimitsUser pair[2], Oid owner, int64 since)
{
	for (int i = 0; i < 2; i++)
		if (OidIsValid(pair[i].owner) && pair[i].owner != owner && pair[i].used_us >= since)
			return true;
	return false;
}

/* SPDX-License-Identifier: PostgreSQL */
/* batch.c: how much a tick takes at a time; see batch.h. */
#include "postgres.h"

#include "base/clock.h"
#include "work/batch.h"

int
sas_work_batch_begin(SasBatch *batch)
{
	if (batch->size == 0)
		batch->size = Min(SAS_BATCH_FIRST, batch->most);
	batch->begun_us = sas_base_clock_monotonic_us();
	return batch->size;
}

bool
sas_work_batch_end(SasBatch *batch, int n)
{
	int64		spent_us = sas_base_clock_monotonic_us() - batch->begun_us;
	bool		full = n >= batch->size;

	if (n * 4 >= batch->size || spent_us >= SAS_BATCH_MS * INT64CONST(1000))
	{
		int64		fitting = Max(SAS_BATCH_LEAST, SAS_BATCH_MS * INT64CONST(1000) * n / Max(1, spent_us));

		batch->size = Min(Min(batch->most, batch->size * 2), fitting);
	}
	/* what is much next time may be of another kind, and take longer */
	else
		batch->size = Min(batch->size, SAS_BATCH_FIRST);
	return full;
}

/* SPDX-License-Identifier: PostgreSQL */
/* wanted.c: which workers of a database are wanted; see wanted.h. */
#include "postgres.h"

#include "base/settings.h"
#include "worker/shmem.h"
#include "worker/wanted.h"

int
sas_worker_n_wanted(const SasDatabase *database, int actor)
{
	if (!database->listed || database->presence != SAS_PRESENCE_PRESENT)
		return 0;
	return sas_base_settings_workers(actor);
}

bool
sas_worker_is_wanted(SasDatabase *database, int actor, int index)
{
	int			wanted = sas_worker_n_wanted(database, actor);
	int			free_ones = 0;
	bool		lacks = false;
	bool		leaves_last = false;
	bool		any_long = false;

	if (index < wanted || wanted == 0 || actor != SAS_FUNCTION || index >= sas_base_function_workers_max)
		return index < wanted;
	for (int i = 0; i < sas_base_function_workers_max; i++)
	{
		const SasSlot *worker = sas_worker_databases_slot(database, actor, i)->registered;
		/* a worker that has ended no longer occupies a place */
		bool		running = worker != NULL && worker->state == SAS_SLOT_RUNNING;

		if (i == index && running && worker->long_call)
			return true;
		free_ones += i < index && !(running && worker->long_call);
		lacks |= running && worker->lacks;
		leaves_last |= running && worker->leaves_last;
		any_long |= running && worker->long_call;
	}
	return free_ones < wanted + (lacks || (leaves_last && any_long));
}

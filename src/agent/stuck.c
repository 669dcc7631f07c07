/* SPDX-License-Identifier: PostgreSQL */
/*
 * stuck.c: alerts about what could not be stored.
 *
 * An alert that cannot be raised either is dropped: the log has its warning.
 */
#include "postgres.h"

#include "agent/stuck.h"
#include "base/actor.h"
#include "nodes/pg_list.h"
#include "store/store.h"
#include "utils/memutils.h"

static List *stuck_notes = NIL; /* of SasStuck */
static int	stuck_sent = 0;		/* of them in the transaction that is open or was aborted */
static bool stuck_writing = false;

void
sas_agent_stuck_note(const char *what, int64 run_id, const char *message, const char *detail)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	SasStuck   *note = palloc(sizeof(SasStuck));

	note->what = pstrdup(what);
	note->run_id = run_id;
	note->message = run_id == 0 ? pstrdup(message) : psprintf("run " INT64_FORMAT ": %s", run_id, message);
	note->sqlstate = sas_base_tick_error.sqlstate;
	note->error = pstrdup(sas_base_tick_error.message);
	note->detail = pstrdup(detail);
	ereport(WARNING, (errmsg("%s: %s", note->message, note->error), errdetail("%s", detail)));
	stuck_notes = lappend(stuck_notes, note);
	MemoryContextSwitchTo(old);
}

bool
sas_agent_stuck_due(void)
{
	return stuck_notes != NIL;
}

bool
sas_agent_stuck_write(void)
{
	ListCell   *lc;

	stuck_writing = true;
	foreach(lc, stuck_notes)
		sas_store_raise_stuck(lfirst(lc));
	stuck_writing = false;
	stuck_sent = list_length(stuck_notes);
	return stuck_sent > 0;
}

static void
stuck_forget(int n)
{
	for (int i = 0; i < n; i++)
	{
		SasStuck   *note = linitial(stuck_notes);

		pfree(note->what);
		pfree(note->message);
		pfree(note->error);
		pfree(note->detail);
		pfree(note);
		stuck_notes = list_delete_first(stuck_notes);
	}
	stuck_sent = 0;
}

void
sas_agent_stuck_written(void)
{
	stuck_forget(stuck_sent);
}

void
sas_agent_stuck_failed(bool alone)
{
	if (stuck_writing || (alone && stuck_sent > 0))
		stuck_forget(list_length(stuck_notes));
	stuck_sent = 0;
	stuck_writing = false;
}

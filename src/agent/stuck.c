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

typedef struct StuckNote
{
	char	   *what;
	int64		run_id;
	char	   *message;
} StuckNote;

static List *stuck_notes = NIL; /* of StuckNote */
static int	stuck_sent = 0;		/* of them in the transaction that is open or was aborted */
static bool stuck_writing = false;

void
sas_agent_stuck_note(const char *what, int64 run_id, const char *message, const char *detail)
{
	char	   *whole = psprintf("%s%s: %s", run_id == 0 ? "" : psprintf("run " INT64_FORMAT ": ", run_id), message, sas_base_tick_error.message);
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	StuckNote  *note = palloc(sizeof(StuckNote));

	ereport(WARNING, (errmsg("%s", whole), errdetail("%s", detail)));
	note->what = pstrdup(what);
	note->run_id = run_id;
	note->message = psprintf("%s. %s", whole, detail);
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
	{
		StuckNote  *note = lfirst(lc);

		sas_store_raise_stuck(note->what, note->run_id, note->message);
	}
	stuck_writing = false;
	stuck_sent = list_length(stuck_notes);
	return stuck_sent > 0;
}

static void
stuck_forget(int n)
{
	for (int i = 0; i < n; i++)
	{
		StuckNote  *note = linitial(stuck_notes);

		pfree(note->what);
		pfree(note->message);
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

/* SPDX-License-Identifier: PostgreSQL */
/*
 * late.c: judges whether work that a tick found had been announced; see
 * late.h.
 *
 * The looks of a tick, and what they found, stay in this process until the
 * tick ends.  When the count has changed by then, a look is not blamed: its
 * commit was visible a moment before it was announced.
 */
#include "postgres.h"

#include "base/actor.h"
#include "base/clock.h"
#include "metrics/metrics.h"
#include "work/late.h"

#define SAS_LATE_US 1000000
/* the most unprompted looks of one tick that are judged */
#define SAS_LATE_LOOKS 512

typedef struct SasLateLook
{
	SasLateKind kind;
	int			n;
	uint32		(*count) (int n);
	uint32		seen;
	TimestampTz known_from;
	int			found;
	TimestampTz oldest;
	char		label[NAMEDATALEN];
} SasLateLook;

static const char *const late_names[SAS_LATE_KINDS] = {"step", "message", "lease", "node", "items", "watch"};

static SasLateLook late_looks[SAS_LATE_LOOKS];
static int	late_n_looks = 0;
static bool late_excused = false;	/* the last tick failed: it may have used up a wake-up */
static bool late_passed[SAS_LATE_KINDS];	/* the last look passed by rows that were locked */

int
sas_work_late_by_name(const char *name)
{
	for (int i = 0; i < SAS_LATE_KINDS; i++)
		if (strcmp(late_names[i], name) == 0)
			return i;
	return -1;
}

void
sas_work_late_look(SasLateKind kind, int n, uint32 (*count) (int n), uint32 seen, TimestampTz known_from)
{
	/* the first tick has no earlier look to compare with */
	if (sas_base_last_tick == 0 || late_excused || late_passed[kind] || late_n_looks == SAS_LATE_LOOKS)
		return;
	late_looks[late_n_looks++] = (SasLateLook) {kind, n, count, seen, known_from, 0, DT_NOEND, ""};
}

TimestampTz
sas_work_late_known_from(TimestampTz next_due)
{
	if (TIMESTAMP_IS_NOEND(next_due))
		return DT_NOEND;
	return next_due <= sas_base_clock_now() ? DT_NOBEGIN : next_due - SAS_LATE_US;
}

void
sas_work_late_found(SasLateKind kind, int n, const char *label, TimestampTz since)
{
	TimestampTz now;

	if (late_n_looks == 0)
		return;
	now = sas_base_clock_now();
	if (sas_base_clock_shown_twice(since))
		return;
	for (int i = 0; i < late_n_looks; i++)
	{
		SasLateLook *l = &late_looks[i];

		if (l->kind != kind || l->n != n || since >= l->known_from || since > now - SAS_LATE_US)
			continue;
		l->found++;
		l->oldest = Min(l->oldest, since);
		strlcpy(l->label, label != NULL ? label : late_names[kind], sizeof(l->label));
		return;
	}
}

void
sas_work_late_pass(SasLateKind kind, bool passed)
{
	late_passed[kind] = passed;
}

void
sas_work_late_counted(SasLateKind kind)
{
	for (int i = 0; i < late_n_looks; i++)
		if (late_looks[i].kind == kind)
			late_looks[i].seen++;
}

void
sas_work_late_end(bool done)
{
	for (int i = 0; done && i < late_n_looks; i++)
	{
		SasLateLook *l = &late_looks[i];
		const char *actor = sas_base_actor_name(sas_base_self.actor);

		if (l->found == 0 || l->count(l->n) != l->seen)
			continue;
		sas_metrics_add(SAS_METRIC_FOUND_LATE, 0, 0, psprintf("%s %s", actor, l->label), l->found, -1);
		ereport(LOG,
				(errmsg("sas %s found work that was not announced: %d of kind \"%s\" (%s %d)", actor, l->found, l->label,
						late_names[l->kind], l->n),
				 errdetail("The oldest may have waited for %.1f s.", (sas_base_clock_now() - l->oldest) / 1e6)));
	}
	late_n_looks = 0;
	late_excused = !done;
}

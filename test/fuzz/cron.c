/* SPDX-License-Identifier: PostgreSQL */
/*
 * cron.c: patterns of schedules and "every ...", with their spans. What is
 * accepted has values in their ranges; what is refused says why.
 *
 * Sources: src/schedule/spec.c -lpgport -lpgcommon
 */
#include "postgres.h"

#include "schedule/spec.h"

#undef malloc
#undef free

int			LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char	   *text = malloc(size + 1);
	SasScheduleSpec spec;
	SasScheduleProblem problem;

	memcpy(text, data, size);
	text[size] = '\0';
	memset(&spec, 0xa5, sizeof(spec));
	memset(&problem, 0, sizeof(problem));
	if (!sas_schedule_parse(text, &spec, &problem))
	{
		if (problem.what[0] == '\0' || strlen(problem.what) >= sizeof(problem.what) || problem.field < 0 || problem.field > 7)
			abort();
	}
	else if (spec.period_s != 0)
	{
		if (spec.period_s < 0 || spec.offset_s < 0 || spec.offset_s >= spec.period_s)
			abort();
	}
	else if (spec.seconds == 0 || spec.seconds >> 60 != 0 || spec.minutes == 0 || spec.minutes >> 60 != 0 ||
			 spec.hours == 0 || spec.hours >> 24 != 0 || spec.months & 1 || spec.months >> 13 != 0 ||
			 spec.nearest_weekday < 0 || spec.nearest_weekday > SAS_SCHEDULE_LAST_WEEKDAY)
		abort();
	free(text);
	return 0;
}

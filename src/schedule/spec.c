/* SPDX-License-Identifier: PostgreSQL */
/*
 * spec.c: reads a cron pattern, or "every ...".
 *
 * Patterns are those of the Open Cron Pattern Specification 1.4: five fields,
 * six with seconds before them, seven with years behind; names, lists, ranges,
 * steps; "L", "W" and "#"; "+" before the weekdays, where both kinds of day must
 * fit; "?" is "*" in the two fields of days. "LW" is ours.
 *
 * A spec is read in less than a microsecond, so nothing of it is cached.
 */
#include "postgres.h"

#include <ctype.h>
#include <limits.h>

#include "schedule/spec.h"

#define MAX_FIELDS 7
#define SPEC_BLANKS " \t"
#define MAX_SPEC 500
#define LONGEST_SPAN_S (INT64CONST(3660) * 86400)

typedef struct CronField
{
	const char *name;
	int			low;
	int			high;
	const char *const *names;	/* of its values, from low on; NULL: it has none */
	const char *range;			/* for a hint */
} CronField;

static const char *const spec_months[] = {"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec", NULL};
static const char *const spec_weekdays[] = {"sun", "mon", "tue", "wed", "thu", "fri", "sat", NULL};

enum
{
	SECOND, MINUTE, HOUR, DAY, MONTH, WEEKDAY, YEAR
};

static const CronField spec_fields[MAX_FIELDS] = {
	{"second", 0, 59, NULL, "Write values from 0 to 59, such as 0, */10 or 5-20."},
	{"minute", 0, 59, NULL, "Write values from 0 to 59, such as 30, */5 or 0-30/10."},
	{"hour", 0, 23, NULL, "Write values from 0 to 23, such as 2, */6 or 9-17."},
	{"day of month", 1, 31, NULL, "Write values from 1 to 31, such as 1,15; L for the last day, or 15W for the weekday next to the 15th."},
	{"month", 1, 12, spec_months, "Write values from 1 to 12 or JAN to DEC, such as 6, 1-3 or JAN,JUL."},
	{"day of week", 0, 7, spec_weekdays, "Write values from 0 to 7 (0 and 7 are Sunday) or SUN to SAT, such as MON-FRI, FRI#L or TUE#2."},
	{"year", SAS_SCHEDULE_FIRST_YEAR, SAS_SCHEDULE_LAST_YEAR, NULL, "Write values from 1970 to 2199, such as 2030 or 2030-2035."}};

static const struct
{
	const char *name;
	const char *pattern;
}			spec_nicknames[] = {
	{"@yearly", "0 0 1 1 *"}, {"@annually", "0 0 1 1 *"}, {"@monthly", "0 0 1 * *"}, {"@weekly", "0 0 * * 0"},
	{"@daily", "0 0 * * *"}, {"@midnight", "0 0 * * *"}, {"@hourly", "0 * * * *"}};

/* What is being read, for what may be wrong with it. */
typedef struct SpecReader
{
	SasScheduleSpec *spec;
	SasScheduleProblem *problem;
	const CronField *field;
	int			number;			/* of the field, as written */
} SpecReader;

static bool pg_attribute_printf(3, 4)
spec_refuse(SpecReader *r, const char *hint, const char *format,...)
{
	va_list		args;

	va_start(args, format);
	vsnprintf(r->problem->what, sizeof(r->problem->what), format, args);
	va_end(args);
	r->problem->field = r->number;
	r->problem->field_name = r->field ? r->field->name : NULL;
	r->problem->hint = hint ? hint : r->field->range;
	return false;
}

/* ------------------------------------------------------------------- fields */

/* A number or a name; -1: it is neither. */
static int
spec_value(const CronField *field, const char **text)
{
	int			value = 0;
	const char *at = *text;

	if (isdigit((unsigned char) *at))
	{
		while (isdigit((unsigned char) *at) && at - *text < 6)
			value = value * 10 + (*at++ - '0');
		*text = at;
		return value;
	}
	for (int i = 0; field->names && field->names[i]; i++)
		if (pg_strncasecmp(at, field->names[i], 3) == 0)
		{
			*text = at + 3;
			return field->low + i;
		}
	return -1;
}

/* low-high, from where the text stands behind low */
static bool
spec_range(SpecReader *r, const char **text, int low, int *high)
{
	bool		is_name;

	if (**text != '-')
		return true;
	++*text;
	is_name = !isdigit((unsigned char) **text);
	*high = spec_value(r->field, text);
	if (*high < 0)
		return spec_refuse(r, NULL, "a range has no end");
	/* FRI-SUN ends with the week */
	if (r->field == &spec_fields[WEEKDAY] && is_name && *high == 0)
		*high = 7;
	if (*high < low)
		return spec_refuse(r, "Write two ranges, such as 22-23,0-6.", "the range begins after its end");
	return true;
}

static bool
spec_step(SpecReader *r, const char **text, bool is_range, int *step)
{
	if (**text != '/')
		return true;
	if (!is_range)
		return spec_refuse(r, "Write a range before the step, such as 5-59/15 or */15.", "a step follows a single value");
	++*text;
	*step = isdigit((unsigned char) **text) ? spec_value(r->field, text) : 0;
	if (*step < 1 || *step > r->field->high - r->field->low + 1)
		return spec_refuse(r, "A step is a whole number from 1 on, and no larger than the number of the field's values.", "invalid step");
	return true;
}

/* "#2", "#L", or "L" behind a weekday: which of the month */
static bool
spec_nth(SpecReader *r, const char **text, bool is_wildcard, uint8 *nth)
{
	bool		hash = **text == '#';

	if (!hash && **text != 'L')
		return true;
	if (is_wildcard)
		return spec_refuse(r, "Name the weekday, such as FRI#L.", "\"#\" and \"L\" need a weekday");
	if (hash)
		++*text;
	if (**text == 'L')
		*nth = SAS_SCHEDULE_LAST_OF_MONTH;
	else if (**text >= '1' && **text <= '5')
		*nth = 1 << (**text - '1');
	else
		return spec_refuse(r, "Write 1 to 5, or L for the last one: TUE#2, FRI#L.", "\"#\" needs a number from 1 to 5, or L");
	++*text;
	return true;
}

static void
spec_set(SpecReader *r, int value, uint8 nth)
{
	SasScheduleSpec *s = r->spec;

	switch (r->field - spec_fields)
	{
		case SECOND:
			s->seconds |= UINT64CONST(1) << value;
			break;
		case MINUTE:
			s->minutes |= UINT64CONST(1) << value;
			break;
		case HOUR:
			s->hours |= 1U << value;
			break;
		case DAY:
			s->days |= 1U << value;
			break;
		case MONTH:
			s->months |= 1U << value;
			break;
		case WEEKDAY:
			s->weekdays[value % 7] |= nth;
			break;
		default:
			value -= SAS_SCHEDULE_FIRST_YEAR;
			s->years[value / 64] |= UINT64CONST(1) << (value % 64);
	}
}

/* "L", "LW" or "15W"; *done: it was one of them. */
static bool
spec_special_day(SpecReader *r, const char **text, bool is_list, bool *done)
{
	const char *at = *text;
	bool		last = *at == 'L';
	int			value = last ? (at++, SAS_SCHEDULE_LAST_WEEKDAY) : spec_value(r->field, &at);

	*done = false;
	if (*at == 'W' && value >= 0)
	{
		if (is_list)
			return spec_refuse(r, "Use a schedule for each of these days.", "\"W\" cannot be in a list");
		if (!last && (value < 1 || value > 31))
			return spec_refuse(r, NULL, "value %d is out of range", value);
		r->spec->nearest_weekday = value;
		at++;
	}
	else if (last)
		r->spec->last_day = true;
	else
		return true;
	*done = true;
	*text = at;
	return true;
}

/* One element of a list. */
static bool
spec_element(SpecReader *r, const char **text, bool is_list)
{
	const CronField *field = r->field;
	bool		is_wildcard = **text == '*';
	bool		is_range = is_wildcard;
	int			low = field->low;
	int			high = field == &spec_fields[WEEKDAY] ? 6 : field->high;
	int			step = 1;
	uint8		nth = SAS_SCHEDULE_ANY_OF_MONTH;

	if (field == &spec_fields[DAY])
	{
		bool		done;

		if (!spec_special_day(r, text, is_list, &done))
			return false;
		if (done)
			return true;
	}
	if (is_wildcard)
		++*text;
	else
	{
		low = high = spec_value(field, text);
		if (low < 0)
			return **text == '\0' || **text == ',' ? spec_refuse(r, NULL, "a value is missing") : spec_refuse(r, NULL, "invalid value");
		is_range = **text == '-';
		if (!spec_range(r, text, low, &high))
			return false;
	}
	if (low < field->low || high > field->high)
		return spec_refuse(r, NULL, "value %d is out of range", low < field->low ? low : high);
	if (!spec_step(r, text, is_range, &step) ||
		(field == &spec_fields[WEEKDAY] && !spec_nth(r, text, is_wildcard, &nth)))
		return false;
	for (int value = low; value <= high; value += step)
		spec_set(r, value, nth);
	return true;
}

static bool
spec_field(SpecReader *r, const char *text)
{
	bool		is_day = r->field == &spec_fields[DAY];
	bool		is_weekday = r->field == &spec_fields[WEEKDAY];
	bool		is_list = strchr(text, ',') != NULL;

	if (r->field == &spec_fields[HOUR])
		r->spec->every_hour = *text == '*';
	if (is_weekday && *text == '+')
	{
		r->spec->both_days = true;
		text++;
	}
	if ((is_day || is_weekday) && strcmp(text, "?") == 0)
		text = "*";
	if (is_day)
		r->spec->any_day = strcmp(text, "*") == 0;
	if (is_weekday)
		r->spec->any_weekday = strcmp(text, "*") == 0;
	for (;;)
	{
		if (!spec_element(r, &text, is_list))
			return false;
		if (*text == '\0')
			return true;
		if (*text != ',')
			return spec_refuse(r, NULL, "unexpected characters after a value");
		text++;
	}
}

static bool
spec_cron(SpecReader *r, char *text)
{
	char	   *fields[MAX_FIELDS + 1];
	int			n = 0;
	int			first;
	char	   *rest = NULL;

	for (char *field = strtok_r(text, SPEC_BLANKS, &rest); field; field = strtok_r(NULL, SPEC_BLANKS, &rest))
	{
		if (n == MAX_FIELDS)
			return spec_refuse(r, "Write minute, hour, day of month, month and day of week; seconds before them, and then also years behind them.",
							   "a cron pattern has at most seven fields");
		fields[n++] = field;
	}
	if (n < 5)
		return spec_refuse(r, "Write a cron pattern of five fields such as \"30 2 * * MON-FRI\", six with seconds before them, a nickname such as "
						   "@daily, or \"every 15 min\".", n == 0 ? "it is empty" : "a cron pattern has at least five fields");
	first = n == 5 ? MINUTE : SECOND;
	if (n == 5)
		r->spec->seconds = 1;
	r->spec->any_year = n < MAX_FIELDS || strcmp(fields[YEAR], "*") == 0;
	for (int i = 0; i < n; i++)
	{
		r->number = i + 1;
		r->field = &spec_fields[i + first];
		if (!spec_field(r, fields[i]))
			return false;
	}
	return true;
}

/* ---------------------------------------------------------------- every ... */

static const struct
{
	const char *name;
	int			seconds;
}			spec_units[] = {
	{"s", 1}, {"sec", 1}, {"secs", 1}, {"second", 1}, {"seconds", 1},
	{"min", 60}, {"mins", 60}, {"minute", 60}, {"minutes", 60},
	{"h", 3600}, {"hour", 3600}, {"hours", 3600},
	{"d", 86400}, {"day", 86400}, {"days", 86400},
	{"w", 604800}, {"week", 604800}, {"weeks", 604800}};

static const char *const spec_every_hint = "Write whole numbers with s, min, h, d or w, such as \"every 90 s\" or \"every 2 h offset 15 min\". "
	"Months and years need a cron pattern.";

/* "1 h 30 min", until the text or the word "offset" */
static bool
spec_span(SpecReader *r, char **rest, int64 *span)
{
	char	   *word = *rest;
	bool		any = false;

	*span = 0;
	while (*(word += strspn(word, SPEC_BLANKS)) != '\0' && pg_strncasecmp(word, "offset", 6) != 0)
	{
		char	   *end;
		long		number = strtol(word, &end, 10);
		size_t		length;
		int			unit = 0;

		if (!isdigit((unsigned char) *word) || number > LONGEST_SPAN_S)
			return spec_refuse(r, spec_every_hint, "it is not a span of time");
		word = end + strspn(end, SPEC_BLANKS);
		length = strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
		for (int i = 0; i < lengthof(spec_units); i++)
			if (strlen(spec_units[i].name) == length && pg_strncasecmp(word, spec_units[i].name, length) == 0)
				unit = spec_units[i].seconds;
		if (length == 2 && pg_strncasecmp(word, "ms", 2) == 0)
			return spec_refuse(r, "The shortest is \"every 1 s\".", "it is shorter than a second");
		if (unit == 0)
			return spec_refuse(r, spec_every_hint, length == 0 ? "a number has no unit" : "\"%.*s\" is not a unit of time",
							   (int) Min(length, 40), word);
		*span += number * unit;
		if (*span > LONGEST_SPAN_S)
			return spec_refuse(r, spec_every_hint, "it is longer than ten years");
		word += length;
		any = true;
	}
	*rest = word;
	return any || spec_refuse(r, spec_every_hint, "it is not a span of time");
}

static bool
spec_every(SpecReader *r, char *text)
{
	if (!spec_span(r, &text, &r->spec->period_s))
		return false;
	if (r->spec->period_s < 1)
		return spec_refuse(r, "The shortest is \"every 1 s\".", "it is shorter than a second");
	if (*text == '\0')
		return true;
	text += strlen("offset");
	if (!spec_span(r, &text, &r->spec->offset_s))
		return false;
	if (*text != '\0')
		return spec_refuse(r, spec_every_hint, "there is more than one offset");
	if (r->spec->offset_s >= r->spec->period_s)
		return spec_refuse(r, "Write an offset that is shorter.", "the offset is not shorter than the span");
	return true;
}

bool
sas_schedule_parse(const char *text, SasScheduleSpec *spec, SasScheduleProblem *problem)
{
	SpecReader	r = {.spec = spec,.problem = problem};
	char		copy[MAX_SPEC + 1];
	char	   *begin = copy;

	memset(spec, 0, sizeof(*spec));
	memset(problem, 0, sizeof(*problem));
	if (strlcpy(copy, text, sizeof(copy)) >= sizeof(copy))
		return spec_refuse(&r, "Use several schedules.", "it has more than %d bytes", MAX_SPEC);
	begin += strspn(begin, SPEC_BLANKS);
	for (char *end = begin + strlen(begin); end > begin && strchr(SPEC_BLANKS, end[-1]);)
		*--end = '\0';
	if (pg_strncasecmp(begin, "every", 5) == 0 && (begin[5] == ' ' || begin[5] == '\t' || begin[5] == '\0'))
		return spec_every(&r, begin + 5);
	if (*begin == '@')
	{
		for (int i = 0; i < lengthof(spec_nicknames); i++)
			if (strcmp(begin, spec_nicknames[i].name) == 0)
			{
				strlcpy(copy, spec_nicknames[i].pattern, sizeof(copy));
				return spec_cron(&r, copy);
			}
		problem->unsupported = strcmp(begin, "@reboot") == 0;
		if (problem->unsupported)
			return spec_refuse(&r, "Submit the run in a transaction of its own when the server has started.", "@reboot is not supported, since it is no time");
		return spec_refuse(&r, "There are @hourly, @daily, @midnight, @weekly, @monthly, @yearly and @annually, in lower case.", "unknown nickname");
	}
	return spec_cron(&r, begin);
}

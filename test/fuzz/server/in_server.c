/* SPDX-License-Identifier: PostgreSQL */
/*
 * in_server.c: libFuzzer inside a server, for what the server parses: definitions, spans of time,
 * templates, predicates, agents. They are parsed in SQL and in C that needs a whole server, so a
 * program of its own (../NAME.c) cannot reach them.
 *
 * fuzz_run(statement, arguments) runs libFuzzer in this process; statement takes an input as a
 * text, and gives a text: what became of it. Coverage is that of the C of sas which was compiled for
 * it, of the statements of all functions in PL/pgSQL, and of what became of inputs. One may be refused. It fails if it ends in an error of the kind
 * "internal", of a constraint of a table of sas, or one that begins with FAULT (targets.sql).
 *
 * Inputs are JSON, or a text: the mutator keeps JSON whole.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "plpgsql.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

PG_MODULE_MAGIC;
PG_FUNCTION_INFO_V1(fuzz_run);
void		_PG_init(void);

int			LLVMFuzzerRunDriver(int *argc, char ***argv, int (*callback) (const uint8_t *data, size_t size));
size_t		LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);
size_t		LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned int seed);
size_t		LLVMFuzzerCustomCrossOver(const uint8_t *one, size_t one_size, const uint8_t *two, size_t two_size, uint8_t *out, size_t max,
									  unsigned int seed);

static SPIPlanPtr run_plan;
static long run_accepted;

/* statements of PL/pgSQL that were executed, and texts: libFuzzer reads them as it reads counters of C */
static uint8_t run_statements[1 << 14] __attribute__((section("__libfuzzer_extra_counters"), used));

static void
run_statement(PLpgSQL_execstate *estate, PLpgSQL_stmt *statement)
{
	uint8_t    *counter = &run_statements[hash_combine(murmurhash32(estate->func->fn_oid), statement->lineno) % sizeof(run_statements)];

	if (*counter < 255)
		(*counter)++;
}

void
_PG_init(void)
{
	static PLpgSQL_plugin plugin = {.stmt_beg = run_statement};

	*(PLpgSQL_plugin **) find_rendezvous_variable("PLpgSQL_plugin") = &plugin;
}

static bool
run_is_fault(const ErrorData *error)
{
	return ERRCODE_TO_CATEGORY(error->sqlerrcode) == ERRCODE_INTERNAL_ERROR || error->sqlerrcode == ERRCODE_NOT_NULL_VIOLATION ||
		error->sqlerrcode == ERRCODE_CHECK_VIOLATION || strncmp(error->message, "FAULT", 5) == 0;
}

static int
run_one(const uint8_t *data, size_t size)
{
	MemoryContext outer = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	MemoryContext mine;
	Datum		input;

	if (memchr(data, '\0', size) != NULL || !pg_verify_mbstr(PG_UTF8, (const char *) data, (int) size, true))
		return 0;
	mine = AllocSetContextCreate(outer, "one input", ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(mine);
	input = PointerGetDatum(cstring_to_text_with_len((const char *) data, (int) size));
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(mine);
	PG_TRY();
	{
		char	   *text;

		SPI_execute_plan(run_plan, &input, NULL, false, 0);
		text = SPI_processed == 1 ? SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1) : NULL;
		if (text != NULL)
		{
			run_statements[hash_bytes((unsigned char *) text, strlen(text)) % sizeof(run_statements)]++;
			run_accepted += strncmp(text, "ok", 2) == 0;
		}
		SPI_freetuptable(SPI_tuptable);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(mine);
		error = CopyErrorData();
		FlushErrorState();
		if (run_is_fault(error))
		{
			fprintf(stderr, "%s: %s\n%s\n%s\n", unpack_sql_state(error->sqlerrcode), error->message,
					error->detail ? error->detail : "", error->context ? error->context : "");
			abort();
		}
	}
	PG_END_TRY();
	RollbackAndReleaseCurrentSubTransaction();
	MemoryContextSwitchTo(outer);
	CurrentResourceOwner = owner;
	MemoryContextDelete(mine);
	return 0;
}

/* Some releases of libFuzzer end the process, others return. */
static void
run_tell(void)
{
	fprintf(stderr, "accepted: %ld\n", run_accepted);
}

Datum
fuzz_run(PG_FUNCTION_ARGS)
{
	Oid			type = TEXTOID;
	Datum	   *elements;
	int			n;
	char	  **arguments;

	deconstruct_array(PG_GETARG_ARRAYTYPE_P(1), TEXTOID, -1, false, TYPALIGN_INT, &elements, NULL, &n);
	arguments = palloc0(sizeof(char *) * (n + 2));
	arguments[0] = "fuzz_run";
	for (int i = 0; i < n; i++)
		arguments[i + 1] = TextDatumGetCString(elements[i]);
	n++;
	SPI_connect();
	run_plan = SPI_prepare(text_to_cstring(PG_GETARG_TEXT_PP(0)), 1, &type);
	if (run_plan == NULL)
		elog(ERROR, "the statement cannot be prepared");
	atexit(run_tell);
	LLVMFuzzerRunDriver(&n, &arguments, run_one);
	PG_RETURN_VOID();
}

/* -- JSON that stays whole -------------------------------------------------------------------- */

#define MAX_VALUES 2000

typedef struct Span
{
	size_t		from;
	size_t		to;
	bool		key;			/* of a member */
} Span;

static Span values[MAX_VALUES];
static int	n_values;

/* Behind the value that begins at p; 0: it is none. Each value within is noted. */
static size_t
values_read(const char *s, size_t p, size_t end, int depth, bool key)
{
	size_t		from;
	bool		object;

	p += strspn(s + p, " \t\r\n");
	from = p;
	if (p >= end || depth > 200)
		return 0;
	object = s[p] == '{';
	if (s[p] == '"')
	{
		for (p++; p < end && s[p] != '"'; p++)
			if (s[p] == '\\')
				p++;
		if (p++ >= end)
			return 0;
	}
	else if (object || s[p] == '[')
	{
		for (p++;;)
		{
			p += strspn(s + p, " \t\r\n,:");
			if (p >= end)
				return 0;
			if (s[p] == (object ? '}' : ']'))
				break;
			if (object && ((p = values_read(s, p, end, depth + 1, true)) == 0 || (p += strspn(s + p, " \t\r\n")) >= end || s[p] != ':'))
				return 0;
			p += object;
			if ((p = values_read(s, p, end, depth + 1, false)) == 0)
				return 0;
		}
		p++;
	}
	else
	{
		p += strcspn(s + p, " \t\r\n,:]}[{\"");
		if (p == from)
			return 0;
	}
	if (n_values < MAX_VALUES)
		values[n_values++] = (Span) {from, p, key};
	return p;
}

static size_t
replace(char *s, size_t size, size_t max, Span at, const char *by, size_t len)
{
	if (size - (at.to - at.from) + len > max)
		return size;
	memmove(s + at.from + len, s + at.to, size - at.to);
	memcpy(s + at.from, by, len);
	return size - (at.to - at.from) + len;
}

size_t
LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned int seed)
{
	static const char *const others[] = {"null", "true", "0", "-1", "1e300", "9223372036854775808", "\"\"", "[]", "{}", "[[[]]]", "\"{{input}}\"", "\"{{steps.a.output}}\"", "\"-1 s\"", "\"1 h\"", "\"a\"", "{\"a\": 1}"};
	char	   *s = (char *) data;
	char	   *copy = malloc(max + 1);
	Span		at;
	Span		from;

	memcpy(copy, s, size);
	copy[size] = '\0';
	n_values = 0;
	if (size == 0 || strchr("{[\"", copy[strspn(copy, " \t\r\n")]) == NULL || values_read(copy, 0, size, 0, false) == 0 || seed % 64 == 0)
	{
		free(copy);
		return LLVMFuzzerMutate(data, size, max);
	}
	at = values[seed / 64 % n_values];
	from = values[seed / 64 / n_values % n_values];
	/* rather one of its kind, so that more inputs are accepted */
	for (int i = 0; i < n_values && seed % 5 != 0 && (from.key != at.key || copy[from.from] != copy[at.from]); i++)
		from = values[(seed / 64 / n_values + i) % n_values];
	if (at.key || (copy[at.from] == '"' && seed % 3 == 0))
	{
		/* what a string has in it: as it is there, quotes and all that would end it left out */
		size_t		len = at.to - at.from - 2;
		uint8_t    *inside = malloc(len + 65);
		size_t		kept = 1;

		memcpy(inside + 1, copy + at.from + 1, len);
		len = at.key && seed % 3 != 0 && from.key ? len : LLVMFuzzerMutate(inside + 1, len, len + 60);
		inside[0] = '"';
		for (size_t i = 1; i <= len; i++)
			if (inside[i] >= ' ' && inside[i] != '"' && inside[i] != '\\')
				inside[kept++] = inside[i];
		inside[kept++] = '"';
		if (at.key && seed % 3 != 0 && from.key)
			size = replace(s, size, max, at, copy + from.from, from.to - from.from);
		else
			size = replace(s, size, max, at, (char *) inside, kept);
		free(inside);
	}
	else if (seed % 4 != 0 && !from.key)
		size = replace(s, size, max, at, copy + from.from, from.to - from.from);
	else
	{
		const char *other = others[seed / 7 % lengthof(others)];

		size = replace(s, size, max, at, other, strlen(other));
	}
	free(copy);
	return size;
}

/* A value of one in the place of a value of the other. */
size_t
LLVMFuzzerCustomCrossOver(const uint8_t *one, size_t one_size, const uint8_t *two, size_t two_size, uint8_t *out, size_t max, unsigned int seed)
{
	char	   *copy = malloc(one_size + two_size + 1);
	Span		from;
	size_t		size = 0;

	memcpy(copy, two, two_size);
	copy[two_size] = '\0';
	n_values = 0;
	if (two_size > 0 && one_size > 0 && one_size <= max && values_read(copy, 0, two_size, 0, false) != 0)
	{
		from = values[seed % n_values];
		memcpy(copy + two_size, one, one_size);
		copy[two_size + one_size] = '\0';
		n_values = 0;
		if (values_read(copy + two_size, 0, one_size, 0, false) != 0)
		{
			Span		at = values[seed / 64 % n_values];

			memcpy(out, one, one_size);
			size = replace((char *) out, one_size, max, at, copy + from.from, at.key == from.key ? from.to - from.from : 0);
			if (at.key != from.key)
				size = 0;
		}
	}
	free(copy);
	return size;
}

/* SPDX-License-Identifier: PostgreSQL */
/*
 * path.h
 *		Compiled paths, cached per backend, and what they find under a root.
 */
#ifndef SAS_TEMPLATE_PATH_H
#define SAS_TEMPLATE_PATH_H

#include "nodes/pg_list.h"
#include "utils/jsonb.h"
#include "utils/jsonpath.h"
#include "utils/numeric.h"

#include "template/template.h"

typedef enum SasPathKind
{
	SAS_PATH_REFERENCE,			/* "$." is left out */
	SAS_PATH_PREDICATE			/* "$." is left out only if the text begins with a member name */
} SasPathKind;

typedef struct SasPathStep
{
	char	   *key;			/* member name, or NULL for a subscript */
	int			key_len;
	int			index;			/* subscript from 0; -1 is the last element */
} SasPathStep;

typedef struct SasPath
{
	JsonPath   *jsonpath;
	bool		plain;			/* the steps below are the whole path */
	bool		many;			/* it gives an array */
	bool		repeats;		/* it may give a value several times */
	bool		multiplies;		/* it has *, / or %, whose cost grows with the square of the digits */
	int			nsteps;			/* its leading members and subscripts */
	SasPathStep *steps;
} SasPath;

/* Longer paths are refused: every process that evaluates a path compiles and caches it. */
#define SAS_PATH_MAX_LENGTH 8192

/*
 * The cost of a product grows with the digits of both factors: few products are allowed, and no
 * long number.
 */
#define SAS_PATH_MAX_PRODUCTS 16

/* Why a path is not accepted. */
typedef struct SasPathProblem
{
	const char *reason;			/* malformed, or refused */
	const char *hint;			/* refused: what to write instead; else NULL */
} SasPathProblem;

/*
 * The compiled form of a path, from the cache if possible; valid until the next call.  NULL:
 * *problem is filled.
 */
extern const SasPath *sas_template_path(const char *text, int len, SasPathKind kind, SasPathProblem *problem);

/*
 * Look up a reference, within a budget (budget.h).  False: problem->what and problem->hint are
 * set.  If it finds nothing and the reference is optional, *value is null.
 */
extern bool sas_template_find(const SasPath *path, Jsonb *root, bool optional,
							  JsonbValue *value, SasTemplateProblem *problem);

/* 1 true, 0 false, -1 neither; *reason is set if the reason is known */
extern int	sas_template_match(const SasPath *path, Jsonb *root, const char **reason);

/* "a string", "an object" ... */
extern const char *sas_template_kind(const JsonbValue *value);

/*
 * For use in PG_CATCH only: the message of an error that data or a path can cause; others are thrown
 * on.  Nothing but memory may have been acquired inside PG_TRY.
 */
extern char *sas_template_caught(MemoryContext caller);

/* scan.c: what a jsonpath reads */
typedef struct SasPathRoot
{
	/* plain member names after "$", NULL from the first that is not plain; the last may follow subscripts */
	char	   *names[4];
} SasPathRoot;

typedef struct SasPathVisit
{
	List	   *roots;			/* of SasPathRoot, one per "$" */
	char	   *variable;		/* name of a $variable, or NULL */
	bool		any_depth;		/* .** */
	bool		regex;			/* like_regex */
	int			products;		/* how many *, / and % */
	bool		long_number;	/* a literal that sas_template_number_is_long() */
} SasPathVisit;

/* What the path contains. */
extern void sas_template_path_visit(JsonPath *jsonpath, SasPathVisit *seen);

/* Does the number have so many digits that a product of such numbers would take long? */
extern bool sas_template_number_is_long(Numeric number);

/* Fill all but jsonpath, from it. */
extern void sas_template_path_steps(SasPath *path);

#endif							/* SAS_TEMPLATE_PATH_H */

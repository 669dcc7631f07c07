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

#include "template/template.h"

typedef enum SasPathKind
{
	SAS_PATH_REFERENCE,			/* "$." is left out */
	SAS_PATH_PREDICATE			/* "$." is left out only where the text begins with a member name */
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
	int			nsteps;			/* members and subscripts it begins with */
	SasPathStep *steps;
} SasPath;

/*
 * The compiled form of a path, from the cache if it is there; valid until the next call.  NULL:
 * *reason says why it is malformed.
 */
extern const SasPath *sas_template_path(const char *text, int len, SasPathKind kind, char **reason);

/*
 * Look up a reference.  False: problem->what and problem->hint are set.  When there
 * is nothing and it is optional, *value is null.
 */
extern bool sas_template_find(const SasPath *path, Jsonb *root, bool optional,
							  JsonbValue *value, SasTemplateProblem *problem);

/* 1 true, 0 false, -1 neither */
extern int	sas_template_match(const SasPath *path, Jsonb *root);

/* "a string", "an object" ... */
extern const char *sas_template_kind(const JsonbValue *value);

/*
 * For use in PG_CATCH only: the message of an error that data or a path can cause; others are thrown
 * on.  Nothing but memory may have been acquired inside PG_TRY.
 */
extern char *sas_template_caught(MemoryContext caller);

/* scan.c: what a jsonpath looks at */
typedef struct SasPathRoot
{
	char	   *names[3];		/* plain member names after "$", NULL from the first that is not plain */
} SasPathRoot;

/* List of SasPathRoot, one per "$"; *variable is set to the name of a $variable or to NULL. */
extern List *sas_template_path_roots(JsonPath *jsonpath, char **variable);

/* Fill plain, many, nsteps and steps from jsonpath. */
extern void sas_template_path_steps(SasPath *path);

#endif							/* SAS_TEMPLATE_PATH_H */

/* SPDX-License-Identifier: PostgreSQL */
/*
 * template.h
 *		Templates: any jsonb value whose strings may contain {{ path }} references.
 *
 * A path is an SQL/JSON path without the leading "$.", over one root object.  Results of a string:
 *
 *		"{{input.n}}"			the value itself, with its type
 *		"no {{input.n}}"		text: strings raw, numbers and booleans as text, null as nothing, the
 *								rest as JSON
 *		"{{input.n?}}"			null when nothing is found (an error without the question mark)
 *		"{{input.list[*]}}"		an array: [*], .*, [a to b], a filter, keyvalue() give many
 *		"\{{"					the two braces themselves
 *
 * Values from the root are never expanded again, nor are object keys.
 *
 * These functions raise no error because of a template or of data: they return a problem instead,
 * so that one bad row does not spoil a set of good ones.  Too much time or memory is a problem,
 * too (budget.h).  Results live in the current memory context; a result may be the argument
 * itself.
 */
#ifndef SAS_TEMPLATE_TEMPLATE_H
#define SAS_TEMPLATE_TEMPLATE_H

#include "nodes/pg_list.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

/* Values of SasTemplateProblem.what */
#define SAS_TEMPLATE_NOTHING_FOUND "nothing found"
#define SAS_TEMPLATE_SEVERAL_FOUND "more than one value found"
#define SAS_TEMPLATE_MALFORMED "malformed reference"
#define SAS_TEMPLATE_REFUSED "refused reference"
#define SAS_TEMPLATE_NOT_EVALUATED "path cannot be evaluated"
#define SAS_TEMPLATE_NOT_TEXT "value cannot stand in a path"
#define SAS_TEMPLATE_NOT_SEGMENT "value cannot be one segment of a path"
#define SAS_TEMPLATE_NOT_URL "value is not a URL"
#define SAS_TEMPLATE_DOT_SEGMENT "path has a dot segment"
#define SAS_TEMPLATE_TOO_LARGE "result is too large"
#define SAS_TEMPLATE_TOO_DEEP "result is nested too deeply"

/* Limits of a result, far below those of jsonb, StringInfo and the stack. */
#define SAS_TEMPLATE_MAX_RESULT (16 * 1024 * 1024)
#define SAS_TEMPLATE_MAX_DEPTH 1000

typedef struct SasTemplateProblem
{
	char	   *pointer;		/* JSON pointer to the string in the template, "" for the whole */
	char	   *path;			/* the reference without braces, or NULL */
	const char *what;			/* one of the above, or a spent budget (budget.h) */
	char	   *hint;			/* a sentence without values from the root, or NULL */
} SasTemplateProblem;

/*
 * One value that a template reads.  A path that names the root again inside
 * a filter or a subscript gives one entry for each; the path is the same in
 * all.
 */
typedef struct SasTemplateReference
{
	char	   *pointer;
	char	   *path;			/* without braces and question mark */
	bool		optional;
	char	   *root;			/* first member name, NULL if it is not a plain one */
	char	   *member;			/* second member name, likewise */
	char	   *third;			/* third member name, likewise */
	char	   *fourth;			/* fourth member name, likewise */
	char	   *problem;		/* NULL, or why it is not accepted (then only pointer and path are set) */
	const char *hint;			/* the way round, of one that is well-formed and refused */
} SasTemplateReference;

/* False: *problem is filled. */
extern bool sas_template_render(Jsonb *template, Jsonb *root, Jsonb **result,
								SasTemplateProblem *problem);

/*
 * Render the path of a URL.  Every reference becomes one percent-encoded segment; a text that is one
 * whole reference gives its string unchanged, for the caller to check its origin.
 */
extern bool sas_template_render_path(text *template, Jsonb *root, text **result,
									 SasTemplateProblem *problem);

/*
 * Render the request of a call: its path as the path of a URL (there is
 * always one), all else as a template.  A problem of the rest is reported
 * before one of the path.
 */
extern bool sas_template_render_request(Jsonb *request, Jsonb *root, Jsonb **result,
										SasTemplateProblem *problem);

/* The root of the paths of a step or of a run. */
typedef struct SasTemplateRoot
{
	Jsonb	   *input;			/* NULL: null */
	int			reads;			/* number of its members to use, if it is an object; -1: all */
	text	  **members;
	text	   *key;
	int64		run_id;
	text	   *run_key;		/* NULL: null */
	Jsonb	   *labels;
	TimestampTz created_at;
	TimestampTz deadline;
	Jsonb	   *steps;
	text	   *schedule;		/* NULL: no schedule has submitted the run */
	TimestampTz scheduled_at;
	int			index;			/* of an element of a map, or an iteration; -1: it is neither */
	Jsonb	   *item;			/* NULL: null */
	Jsonb	   *last;			/* NULL: null */
} SasTemplateRoot;

/*
 * {input, key, run: {id, key, labels, created_at, deadline}, steps}; of a schedule's run, also run.schedule
 * and run.scheduled_at; of an element, also index, item and last
 */
extern Jsonb *sas_template_root(const SasTemplateRoot *of);

/*
 * An object of these members, which it sorts; no two have the same name.  A value of type jbvBinary
 * is copied in one piece.  value: of a jsonb, for such a pair; it points into it.
 */
extern Jsonb *sas_template_object(JsonbPair *pairs, int n);
extern void sas_template_object_value(JsonbValue *value, Jsonb *jsonb);

/* The object with this member added or replaced. */
extern Jsonb *sas_template_with_member(Jsonb *object, char *name, int len, Jsonb *member);

/* The Idempotency-Key of a step, or of its undo; trace: that of its run. */
extern char *sas_template_step_key(const pg_uuid_t *trace, const char *step, int element, bool undo);

/* List of SasTemplateReference, malformed ones included. */
extern List *sas_template_references(Jsonb *template);

/*
 * A predicate is an SQL/JSON path as PostgreSQL writes it ("$.output.ok == true"); one that begins
 * with a member name gets its "$." here.  1 true, 0 false, -1 neither; then *reason says why, or is
 * NULL.  A malformed one raises.
 */
extern int	sas_template_predicate(text *predicate, Jsonb *root, const char **reason);

/*
 * NULL if the predicate is accepted; *hint: what to write instead, if it is well-formed but
 * refused.
 */
extern char *sas_template_predicate_problem(text *predicate, const char **hint);

/* List of SasTemplateReference with pointer "". */
extern List *sas_template_predicate_references(text *predicate);

#endif							/* SAS_TEMPLATE_TEMPLATE_H */

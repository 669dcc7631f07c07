/* SPDX-License-Identifier: PostgreSQL */
/*
 * reference.c
 *		Lists what a template or a predicate refers to, and checks whether it is
 *		well-formed, at define time.
 *
 * The order of steps follows from this list, so a "$" inside a filter or a subscript counts, too:
 *
 *		"{{input.lines[$.steps.pick.output.n]}}"
 *
 * gives input.lines and steps.pick.output.
 */
#include "postgres.h"

#include "utils/builtins.h"

#include "template/budget.h"
#include "template/path.h"
#include "template/template.h"
#include "template/token.h"
#include "template/walk.h"

static List *
reference_add_malformed(List *list, char *pointer, const SasToken *token, const SasPathProblem *why)
{
	SasTemplateReference *reference = palloc0(sizeof(SasTemplateReference));

	reference->pointer = pointer;
	reference->path = pnstrdup(token->start, token->len);
	reference->optional = token->optional;
	reference->problem = psprintf("%s: %s", why->hint == NULL ? SAS_TEMPLATE_MALFORMED : SAS_TEMPLATE_REFUSED,
								  why->reason);
	reference->hint = why->hint;
	return lappend(list, reference);
}

static List *
reference_add_token(List *list, char *pointer, const SasToken *token, SasPathKind kind)
{
	const SasPath *path;
	SasPathProblem problem = {token->reason, NULL};
	SasPathVisit seen;
	ListCell   *cell;

	if (token->kind == SAS_TOKEN_MALFORMED)
		return reference_add_malformed(list, pointer, token, &problem);
	path = sas_template_path(token->start, token->len, kind, &problem);
	if (path == NULL)
		return reference_add_malformed(list, pointer, token, &problem);

	sas_template_path_visit(path->jsonpath, &seen);
	foreach(cell, seen.roots)
	{
		SasPathRoot *root = lfirst(cell);
		SasTemplateReference *reference = palloc0(sizeof(SasTemplateReference));

		reference->pointer = pointer;
		reference->path = pnstrdup(token->start, token->len);
		reference->optional = token->optional;
		reference->root = root->names[0];
		reference->member = root->names[1];
		reference->third = root->names[2];
		reference->fourth = root->names[3];
		list = lappend(list, reference);
	}
	return list;
}

List *
sas_template_references(Jsonb *template)
{
	List	   *list = NIL;
	JsonbIteratorToken type;
	JsonbValue	value;
	SasWalk		walk;

	if (sas_template_braces(VARDATA(template), VARSIZE(template) - VARHDRSZ) == NULL)
		return NIL;

	sas_template_walk(&walk, template);
	while ((type = sas_template_walk_next(&walk, &value)) != WJB_DONE)
	{
		char	   *pointer = NULL;
		SasTokenScan scan;
		SasToken	token;

		if ((type != WJB_VALUE && type != WJB_ELEM) || value.type != jbvString)
			continue;
		sas_template_scan(&scan, value.val.string.val, value.val.string.len);
		while (sas_template_next_token(&scan, &token) != SAS_TOKEN_END)
		{
			if (token.kind == SAS_TOKEN_TEXT)
				continue;
			if (pointer == NULL)
				pointer = sas_template_walk_pointer(&walk);
			list = reference_add_token(list, pointer, &token, SAS_PATH_REFERENCE);
		}
	}
	return list;
}

/* Treats a predicate like a reference between braces. */
static void
reference_predicate_token(text *predicate, SasToken *token)
{
	memset(token, 0, sizeof(SasToken));
	token->kind = SAS_TOKEN_REFERENCE;
	token->start = VARDATA_ANY(predicate);
	token->len = VARSIZE_ANY_EXHDR(predicate);
}

List *
sas_template_predicate_references(text *predicate)
{
	SasToken	token;

	reference_predicate_token(predicate, &token);
	return reference_add_token(NIL, pstrdup(""), &token, SAS_PATH_PREDICATE);
}

char *
sas_template_predicate_problem(text *predicate, const char **hint)
{
	SasPathProblem problem;

	*hint = NULL;
	if (sas_template_path(VARDATA_ANY(predicate), VARSIZE_ANY_EXHDR(predicate),
						  SAS_PATH_PREDICATE, &problem) != NULL)
		return NULL;
	*hint = problem.hint;
	return pstrdup(problem.reason);
}

typedef struct Predicate
{
	text	   *text;
	Jsonb	   *root;
	int			answer;
	const char *reason;
} Predicate;

static void
reference_evaluate_predicate(void *arg)
{
	Predicate  *predicate = arg;
	SasPathProblem problem;
	const SasPath *path = sas_template_path(VARDATA_ANY(predicate->text), VARSIZE_ANY_EXHDR(predicate->text),
											SAS_PATH_PREDICATE, &problem);

	if (path == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("malformed predicate \"%s\"", text_to_cstring(predicate->text)),
				 errdetail_internal("%s", problem.reason)));
	predicate->answer = sas_template_match(path, predicate->root, &predicate->reason);
}

int
sas_template_predicate(text *predicate, Jsonb *root, const char **reason)
{
	Predicate	of = {predicate, root, -1, NULL};
	const char *spent = sas_template_budget_run(reference_evaluate_predicate, &of);

	sas_template_budget_release();
	*reason = spent != NULL ? spent : of.reason;
	return spent != NULL ? -1 : of.answer;
}

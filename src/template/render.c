/* SPDX-License-Identifier: PostgreSQL */
/*
 * render.c
 *		Puts values from a root into a template.
 *
 * The template is copied value by value; only its strings are scanned.  A string that is one
 * reference is replaced by the value found, any other by text.  Inserted values are copied, not
 * scanned, so data that contains "{{" stays data.  Size and depth of the result are limited here,
 * because jsonb itself would raise an error.  Temporary data live in the context of the budget
 * (budget.h), only the result in that of the caller.
 */
#include "postgres.h"

#include "fmgr.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/numeric.h"

#include "base/written.h"
#include "template/budget.h"
#include "template/path.h"
#include "template/template.h"
#include "template/token.h"
#include "template/url.h"
#include "template/walk.h"

/* A rendering of fewer bytes is too small to be timed. */
#define RENDER_SMALL (64 * 1024)

typedef struct Render
{
	bool		(*method) (struct Render *);
	Jsonb	   *template;
	text	   *path;			/* the path of a URL, instead of a template */
	Jsonb	   *root;
	Size		put_in;			/* bytes that came from references so far */
	SasToken	token;			/* the last reference that was looked up */
	StringInfoData text;		/* buffer for strings */
	JsonbParseState *state;
	JsonbValue *tree;			/* the complete string, after the last token */
	SasTemplateProblem *problem;
	bool		good;
	Datum		result;			/* if the rendering succeeds */
} Render;

static bool
render_refuse(Render *render, const char *what, char *hint)
{
	render->problem->what = what;
	render->problem->hint = hint;
	return false;
}

static bool
render_account(Render *render, Size bytes)
{
	render->put_in += bytes;
	if (render->put_in > RENDER_SMALL)
		sas_template_budget_arm(0);
	if (render->put_in > SAS_TEMPLATE_MAX_RESULT)
		return render_refuse(render, SAS_TEMPLATE_TOO_LARGE,
							 psprintf("References may put in %d MB at most.",
									  SAS_TEMPLATE_MAX_RESULT / (1024 * 1024)));
	return true;
}

/* Look up one reference. */
static bool
render_look_up(Render *render, const SasToken *token, JsonbValue *value)
{
	const SasPath *path = NULL;
	SasPathProblem problem = {token->reason, NULL};

	CHECK_FOR_INTERRUPTS();
	render->token = *token;
	render->problem->path = NULL;
	if (token->kind != SAS_TOKEN_MALFORMED)
		path = sas_template_path(token->start, token->len, SAS_PATH_REFERENCE, &problem);
	if (path == NULL)
	{
		render->problem->path = pnstrdup(token->start, token->len);
		if (problem.hint != NULL)
			return render_refuse(render, SAS_TEMPLATE_REFUSED,
								 psprintf("%s.  %s", problem.reason, problem.hint));
		return render_refuse(render, SAS_TEMPLATE_MALFORMED,
							 psprintf("It cannot be read: %s.", problem.reason));
	}
	if (!sas_template_find(path, render->root, token->optional, value, render->problem))
	{
		render->problem->path = pnstrdup(token->start, token->len);
		return false;
	}
	return true;
}

static void
render_append_text(StringInfo out, const JsonbValue *value)
{
	switch (value->type)
	{
		case jbvNull:
			break;
		case jbvString:
			appendBinaryStringInfo(out, value->val.string.val, value->val.string.len);
			break;
		case jbvNumeric:
			appendStringInfoString(out,
								   DatumGetCString(DirectFunctionCall1(numeric_out,
																	   NumericGetDatum(value->val.numeric))));
			break;
		case jbvBool:
			appendStringInfoString(out, value->val.boolean ? "true" : "false");
			break;
		case jbvBinary:
			(void) JsonbToCString(out, value->val.binary.data, value->val.binary.len);
			break;
		default:
			elog(ERROR, "unexpected jsonb type %d in a template", (int) value->type);
	}
}

/* Replaces a string by its value. */
static bool
render_expand(Render *render, JsonbValue *value)
{
	const char *string = value->val.string.val;
	int			len = value->val.string.len;
	SasTokenScan scan;
	SasToken	token;
	StringInfo	out = &render->text;

	if (sas_template_braces(string, len) == NULL)
		return true;

	sas_template_scan(&scan, string, len);
	sas_template_next_token(&scan, &token);
	if (token.whole && token.kind == SAS_TOKEN_REFERENCE)
		return render_look_up(render, &token, value) && render_account(render, sas_base_written_value(value));

	if (out->data == NULL)
		initStringInfo(out);
	resetStringInfo(out);
	for (; token.kind != SAS_TOKEN_END; sas_template_next_token(&scan, &token))
	{
		JsonbValue	found;
		int			before = out->len;

		if (token.kind == SAS_TOKEN_TEXT)
		{
			appendBinaryStringInfo(out, token.start, token.len);
			continue;
		}
		if (!render_look_up(render, &token, &found))
			return false;
		/*
		 * The size of a container is checked before its JSON is written, and again afterwards,
		 * because escapes make it longer.
		 */
		if (render->put_in + sas_base_written_value(&found) > SAS_TEMPLATE_MAX_RESULT)
			return render_account(render, sas_base_written_value(&found));
		render_append_text(out, &found);
		if (!render_account(render, out->len - before))
			return false;
	}
	value->type = jbvString;
	value->val.string.val = pnstrdup(out->data, out->len);
	value->val.string.len = out->len;
	return true;
}

/* Copy a value to the result, below "depth" levels of the template. */
static bool
render_put(Render *render, JsonbIteratorToken token, JsonbValue *value, int depth)
{
	JsonbIterator *iterator;
	JsonbIteratorToken inner;
	JsonbValue	part;

	if (value->type != jbvBinary)
	{
		render->tree = pushJsonbValue(&render->state, token, value);
		return true;
	}

	iterator = JsonbIteratorInit(value->val.binary.data);
	while ((inner = JsonbIteratorNext(&iterator, &part, false)) != WJB_DONE)
	{
		CHECK_FOR_INTERRUPTS();
		if (inner == WJB_BEGIN_ARRAY || inner == WJB_BEGIN_OBJECT)
		{
			if (++depth > SAS_TEMPLATE_MAX_DEPTH)
				return render_refuse(render, SAS_TEMPLATE_TOO_DEEP, NULL);
		}
		else if (inner == WJB_END_ARRAY || inner == WJB_END_OBJECT)
			depth--;
		render->tree = pushJsonbValue(&render->state, inner,
									  inner < WJB_BEGIN_ARRAY ? &part : NULL);
	}
	return true;
}

/* The result is allocated in the context of the caller: it does not count against the budget. */
static void
render_finish(Render *render, JsonbValue *value)
{
	MemoryContext old = MemoryContextSwitchTo(sas_template_budget_caller());

	render->result = JsonbPGetDatum(JsonbValueToJsonb(value));
	sas_template_budget_add(VARSIZE(DatumGetPointer(render->result)));
	MemoryContextSwitchTo(old);
}

/* A template that is one string: its value is copied as a whole, at any depth. */
static bool
render_scalar(Render *render)
{
	JsonbValue	value;

	if (JsonbExtractScalar(&render->template->root, &value) && value.type == jbvString &&
		!render_expand(render, &value))
	{
		render->problem->pointer = pstrdup("");
		return false;
	}
	render_finish(render, &value);
	return true;
}

/* Fills in the next token of the template and appends it to the result. */
static bool
render_take(Render *render, SasWalk *walk, JsonbIteratorToken token, JsonbValue *value)
{
	bool		good = true;

	if (token == WJB_VALUE || token == WJB_ELEM)
		good = (value->type != jbvString || render_expand(render, value)) &&
			render_put(render, token, value, walk->depth);
	else if (walk->depth > SAS_TEMPLATE_MAX_DEPTH)
		good = render_refuse(render, SAS_TEMPLATE_TOO_DEEP, NULL);
	else
		render->tree = pushJsonbValue(&render->state, token,
									  token == WJB_KEY ? value : NULL);
	if (!good)
		render->problem->pointer = sas_template_walk_pointer(walk);
	return good;
}

static bool
render_template(Render *render)
{
	JsonbIteratorToken token;
	JsonbValue	value;
	SasWalk		walk;

	if (JB_ROOT_IS_SCALAR(render->template))
		return render_scalar(render);
	sas_template_walk(&walk, render->template);
	while ((token = sas_template_walk_next(&walk, &value)) != WJB_DONE)
	{
		if (!render_take(render, &walk, token, &value))
			return false;
	}
	render_finish(render, render->tree);
	return true;
}

/* One reference among other text in the path of a URL. */
static bool
render_append_segment(Render *render, StringInfo out, const SasToken *token)
{
	JsonbValue	value;
	StringInfoData plain;
	int			before = out->len;

	if (!render_look_up(render, token, &value))
		return false;
	render->problem->path = pnstrdup(token->start, token->len);
	if (value.type == jbvNull || value.type == jbvBinary)
		return render_refuse(render, SAS_TEMPLATE_NOT_TEXT,
							 psprintf("It is %s; a string, a number or a boolean is needed.",
									  sas_template_kind(&value)));

	if (render->put_in + sas_base_written_value(&value) > SAS_TEMPLATE_MAX_RESULT)
		return render_account(render, sas_base_written_value(&value));
	initStringInfo(&plain);
	render_append_text(&plain, &value);
	if (plain.len == 0 || strcmp(plain.data, ".") == 0 || strcmp(plain.data, "..") == 0)
		return render_refuse(render, SAS_TEMPLATE_NOT_SEGMENT,
							 pstrdup("It is empty, \".\" or \"..\"."));
	sas_template_encode(out, plain.data, plain.len);
	render->problem->path = NULL;
	return render_account(render, out->len - before);
}

/* The whole path is one reference: its string is the path, or a full URL. */
static bool
render_whole_path(Render *render, StringInfo out, const SasToken *token)
{
	JsonbValue	value;

	if (!render_look_up(render, token, &value))
		return false;
	render->problem->path = pnstrdup(token->start, token->len);
	if (value.type != jbvString)
		return render_refuse(render, SAS_TEMPLATE_NOT_TEXT,
							 psprintf("It is %s; a string is needed.", sas_template_kind(&value)));
	for (int i = 0; i < value.val.string.len; i++)
	{
		unsigned char c = value.val.string.val[i];

		if (c <= 0x20 || c == 0x7f)
			return render_refuse(render, SAS_TEMPLATE_NOT_URL,
								 pstrdup("It holds a space or a control character."));
	}
	if (!render_account(render, sas_base_written_value(&value)))
		return false;
	render_append_text(out, &value);
	return true;
}

static bool
render_append_path(Render *render, text *template, StringInfo out)
{
	SasTokenScan scan;
	SasToken	token;
	bool		good = true;

	render->problem->pointer = pstrdup("");
	sas_template_scan(&scan, VARDATA_ANY(template), VARSIZE_ANY_EXHDR(template));

	while (good && sas_template_next_token(&scan, &token) != SAS_TOKEN_END)
	{
		if (token.kind == SAS_TOKEN_TEXT)
			appendBinaryStringInfo(out, token.start, token.len);
		else if (token.kind == SAS_TOKEN_REFERENCE && token.whole)
			good = render_whole_path(render, out, &token);
		else
			good = render_append_segment(render, out, &token);
	}
	if (good && sas_template_has_dot_segment(out->data, out->len))
		good = render_refuse(render, SAS_TEMPLATE_DOT_SEGMENT, NULL);
	return good;
}

static bool
render_path(Render *render)
{
	MemoryContext old;
	StringInfoData out;

	initStringInfo(&out);
	if (!render_append_path(render, render->path, &out))
		return false;
	old = MemoryContextSwitchTo(sas_template_budget_caller());
	render->result = PointerGetDatum(cstring_to_text_with_len(out.data, out.len));
	MemoryContextSwitchTo(old);
	return true;
}

/* Adds the path of a request to its other members. */
static bool
render_put_path(Render *render, text *template)
{
	JsonbValue	member;
	StringInfoData path;

	initStringInfo(&path);
	if (!render_append_path(render, template, &path))
		return false;
	member.type = jbvString;
	member.val.string.val = "path";
	member.val.string.len = strlen("path");
	pushJsonbValue(&render->state, WJB_KEY, &member);
	member.val.string.val = path.data;
	member.val.string.len = path.len;
	pushJsonbValue(&render->state, WJB_VALUE, &member);
	return true;
}

static bool
render_request(Render *render)
{
	text	   *path = cstring_to_text("");
	JsonbIteratorToken token;
	JsonbValue	value;
	SasWalk		walk;

	sas_template_walk(&walk, render->template);
	while ((token = sas_template_walk_next(&walk, &value)) != WJB_DONE)
	{
		if (token == WJB_KEY && walk.depth == 1 && value.val.string.len == 4 && memcmp(value.val.string.val, "path", 4) == 0)
		{
			/* at the end: problems of the rest are reported first */
			if (sas_template_walk_next(&walk, &value) != WJB_VALUE || value.type != jbvString)
				elog(ERROR, "the path of a request is not a string");
			path = cstring_to_text_with_len(value.val.string.val, value.val.string.len);
			continue;
		}
		if (token == WJB_END_OBJECT && walk.depth == 0 && !render_put_path(render, path))
			return false;
		if (!render_take(render, &walk, token, &value))
			return false;
	}
	render_finish(render, render->tree);
	return true;
}

static void
render_evaluate(void *arg)
{
	Render	   *render = arg;

	render->good = render->method(render);
}

/* Runs within a budget. The texts of a problem are copied out of its context. */
static bool
render_run(Render *render)
{
	SasTemplateProblem *problem = render->problem;
	const char *spent;

	memset(problem, 0, sizeof(SasTemplateProblem));
	spent = sas_template_budget_run(render_evaluate, render);
	if (spent != NULL)
	{
		render->good = false;
		problem->path = pnstrdup(render->token.start, render->token.len);
		problem->what = spent;
		problem->hint = "Let a function step make the value.";
	}
	if (!render->good)
	{
		problem->pointer = problem->pointer != NULL ? pstrdup(problem->pointer) : pstrdup("");
		problem->path = problem->path != NULL ? pstrdup(problem->path) : NULL;
		problem->hint = problem->hint != NULL ? pstrdup(problem->hint) : NULL;
	}
	sas_template_budget_release();
	return render->good;
}

bool
sas_template_render(Jsonb *template, Jsonb *root, Jsonb **result, SasTemplateProblem *problem)
{
	Render		render = {.method = render_template, .template = template, .root = root, .problem = problem};

	*result = NULL;
	if (sas_template_braces(VARDATA(template), VARSIZE(template) - VARHDRSZ) == NULL)
	{
		*result = template;
		return true;
	}
	if (render_run(&render))
		*result = DatumGetJsonbP(render.result);
	return render.good;
}

bool
sas_template_render_path(text *template, Jsonb *root, text **result, SasTemplateProblem *problem)
{
	Render		render = {.method = render_path, .path = template, .root = root, .problem = problem};

	*result = NULL;
	if (render_run(&render))
		*result = DatumGetTextPP(render.result);
	return render.good;
}

bool
sas_template_render_request(Jsonb *request, Jsonb *root, Jsonb **result, SasTemplateProblem *problem)
{
	Render		render = {.method = render_request, .template = request, .root = root, .problem = problem};

	*result = NULL;
	if (!JB_ROOT_IS_OBJECT(request))
		elog(ERROR, "a request is not an object");
	if (render_run(&render))
		*result = DatumGetJsonbP(render.result);
	return render.good;
}

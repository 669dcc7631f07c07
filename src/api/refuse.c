/* SPDX-License-Identifier: PostgreSQL */
/*
 * refuse.c: an error that SQL raises where its body is bound by oid.
 *
 * What runs with the caller's rights has an SQL-standard body, since the caller
 * may look up nothing in schema _sas; such a body has no RAISE.
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(sas_api_refuse);

/* NULL: the argument is. */
static char *
refuse_text_argument(FunctionCallInfo fcinfo, int n)
{
	return PG_ARGISNULL(n) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(n));
}

/* _sas.refuse(sqlstate, message, detail, hint): raises that. */
Datum
sas_api_refuse(PG_FUNCTION_ARGS)
{
	char	   *code = refuse_text_argument(fcinfo, 0);
	char	   *message = refuse_text_argument(fcinfo, 1);
	char	   *detail = refuse_text_argument(fcinfo, 2);
	char	   *hint = refuse_text_argument(fcinfo, 3);
	bool		sound = code != NULL && strlen(code) == 5 && strspn(code, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") == 5;

	ereport(ERROR,
			(errcode(sound ? MAKE_SQLSTATE(code[0], code[1], code[2], code[3], code[4]) : ERRCODE_RAISE_EXCEPTION),
			 errmsg_internal("%s", message ? message : "refused"),
			 detail ? errdetail_internal("%s", detail) : 0,
			 hint ? errhint("%s", hint) : 0));
	PG_RETURN_VOID();
}

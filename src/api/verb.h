/* SPDX-License-Identifier: PostgreSQL */
/*
 * verb.h: the one C function behind every public verb, for those that have a
 * shorter way of their own besides.
 */
#ifndef SAS_API_VERB_H
#define SAS_API_VERB_H

#include "fmgr.h"
#include "postgres.h"

/* The body of every public verb: calls its internal function with the role of the caller. */
extern PGDLLEXPORT Datum sas_api_verb(PG_FUNCTION_ARGS);

/* verb_error.c: calls the internal function of a verb; an error leaves out through which functions it came */
extern Datum sas_api_verb_invoke(FunctionCallInfo call);

#endif							/* SAS_API_VERB_H */

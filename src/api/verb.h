/* SPDX-License-Identifier: PostgreSQL */
/*
 * verb.h: the one C function behind every public verb, for those that have a
 * shorter way of their own besides.
 */
#ifndef SAS_API_VERB_H
#define SAS_API_VERB_H

#include "fmgr.h"
#include "postgres.h"

extern PGDLLEXPORT Datum sas_api_verb(PG_FUNCTION_ARGS);

#endif							/* SAS_API_VERB_H */

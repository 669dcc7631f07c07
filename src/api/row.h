/* SPDX-License-Identifier: PostgreSQL */
/*
 * row.h: a row as the result of a function.
 */
#ifndef SAS_API_ROW_H
#define SAS_API_ROW_H

#include "fmgr.h"

/* A row of the function's type, which is looked up once per call site: it is kept in fn_extra. */
extern Datum sas_api_row(FunctionCallInfo fcinfo, Datum *values, bool *nulls);

#endif							/* SAS_API_ROW_H */

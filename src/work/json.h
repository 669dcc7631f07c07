/* SPDX-License-Identifier: PostgreSQL */
/*
 * json.h: reading small jsonb objects, and making them, in an agent worker.
 */
#ifndef SAS_WORK_JSON_H
#define SAS_WORK_JSON_H

#include "utils/jsonb.h"

/* The member of an object; false when object is NULL, is none, or has no such member. */
extern bool sas_work_json_member(Jsonb *object, const char *name, JsonbValue *value);

/* Strings as they are, other scalars as JSON, containers as JSON text; NULL for null. palloc'd. */
extern char *sas_work_json_text(const JsonbValue *value);

extern char *sas_work_json_string(Jsonb *object, const char *name); /* NULL: not there */
extern double sas_work_json_number(Jsonb *object, const char *name, double otherwise);
extern bool sas_work_json_bool(Jsonb *object, const char *name, bool otherwise);

/* A problem object (RFC 9457) about a step of a run; detail may be NULL, status 0. */
extern Jsonb *sas_work_json_problem(const char *kind, const char *title, const char *detail, int status, int64 run_id, const char *step);

/* The same about something else; instance is an absolute path. */
extern Jsonb *sas_work_json_problem_at(const char *kind, const char *title, const char *detail, int status, const char *instance);

/* Pushes "name": text. */
extern void sas_work_json_push(JsonbParseState **state, const char *name, const char *value);

#endif							/* SAS_WORK_JSON_H */

/* SPDX-License-Identifier: PostgreSQL */
/*
 * json.h: reading small jsonb objects, and making them, in an agent worker.
 */
#ifndef SAS_WORK_JSON_H
#define SAS_WORK_JSON_H

#include "store/store.h"
#include "utils/jsonb.h"

/* The member of an object; false when object is NULL, is none, or has no such member. */
extern bool sas_work_json_member(Jsonb *object, const char *name, JsonbValue *value);

/* Strings as they are, other scalars as JSON, containers as JSON text; NULL for null. palloc'd. */
extern char *sas_work_json_text(const JsonbValue *value);

extern char *sas_work_json_string(Jsonb *object, const char *name); /* NULL: not there */
/* The member of an object; otherwise: it is not there, or of another type. */
extern double sas_work_json_number(Jsonb *object, const char *name, double otherwise);
extern bool sas_work_json_bool(Jsonb *object, const char *name, bool otherwise);

/* In that context; NULL for NULL. */
extern Jsonb *sas_work_json_copy(MemoryContext context, const Jsonb *jsonb);

/* A problem object (RFC 9457); detail may be NULL, status 0; instance is an absolute path. */
extern Jsonb *sas_work_json_problem(const char *kind, const char *title, const char *detail, int status, const char *instance);

/* The instance of a problem about a step of a run, or about one of its elements. palloc'd. */
extern char *sas_work_json_instance(const SasStepId *id, const char *step);

/* Pushes "name": text. */
extern void sas_work_json_push(JsonbParseState **state, const char *name, const char *value);

#endif							/* SAS_WORK_JSON_H */

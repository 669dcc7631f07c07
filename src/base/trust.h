/* SPDX-License-Identifier: PostgreSQL */
/*
 * trust.h: may that which a superuser's run calls, or writes into, do what
 * another role wants?  See _sas.trusts.
 */
#ifndef SAS_BASE_TRUST_H
#define SAS_BASE_TRUST_H

#include "access/genam.h"
#include "utils/relcache.h"

/*
 * Why this superuser is not to call the function, as the end of a sentence about
 * it; NULL: no other role has a say in it.  In a transaction.  It may be asked
 * for each call.
 */
extern const char *sas_base_function_distrust(Oid function, Oid role);

/*
 * Would a superuser's function find objects of others in this schema?  A bound
 * body looks up no name, but calls functions that may.
 */
extern bool sas_base_schema_misleads(Oid schema);

/* Why this superuser is not to insert into a table, whose triggers, defaults and checks run with its rights; NULL: no other role has a say. */
extern const char *sas_base_table_distrust(Oid table);

/* Is the schema owned by others than superusers, who may drop and replace its objects? */
extern bool sas_base_schema_is_foreign(Oid schema);

/* The rows of pg_depend about an object: as the one that depends, or the one that others depend on. */
extern SysScanDesc sas_base_scan_depend(Relation depend, ScanKeyData keys[2], bool on_others, Oid class, Oid object);

#endif							/* SAS_BASE_TRUST_H */

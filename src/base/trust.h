/* SPDX-License-Identifier: PostgreSQL */
/*
 * trust.h: may that which a superuser's run calls, or writes into, do what
 * another role wants?  See _sas.trusts.
 */
#ifndef SAS_BASE_TRUST_H
#define SAS_BASE_TRUST_H

/*
 * Why a superuser is not to call this function, as the end of a sentence about
 * it; NULL: no other role has a say in it.  In a transaction.
 */
extern const char *sas_base_function_distrust(Oid function);

/* The same for inserting into a table, whose triggers, defaults and checks run with the rights of who inserts. */
extern const char *sas_base_table_distrust(Oid table);

#endif							/* SAS_BASE_TRUST_H */

/* SPDX-License-Identifier: PostgreSQL */
/*
 * deferred.h: what a session has deferred, while code of another role runs in it.
 */
#ifndef SAS_API_DEFERRED_H
#define SAS_API_DEFERRED_H

/* While the library is loaded. */
extern void sas_api_deferred_install(void);

#endif							/* SAS_API_DEFERRED_H */

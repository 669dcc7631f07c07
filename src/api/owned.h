/* SPDX-License-Identifier: PostgreSQL */
/*
 * owned.h: REASSIGN OWNED and DROP ROLE know what roles own of sas.
 */
#ifndef SAS_API_OWNED_H
#define SAS_API_OWNED_H

/* While the library is preloaded. */
extern void sas_api_owned_install(void);

#endif							/* SAS_API_OWNED_H */

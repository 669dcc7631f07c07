/* SPDX-License-Identifier: PostgreSQL */
/*
 * stored_values.h: no role reads values of sas where row security does not reach.
 */
#ifndef SAS_API_STORED_VALUES_H
#define SAS_API_STORED_VALUES_H

/* While the library is preloaded. */
extern void sas_api_stored_values_install(void);

#endif							/* SAS_API_STORED_VALUES_H */

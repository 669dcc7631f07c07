/* SPDX-License-Identifier: PostgreSQL */
/*
 * notes.h: notifications of a transaction that commits together with one of another node.
 */
#ifndef SAS_API_NOTES_H
#define SAS_API_NOTES_H

/* While the library is preloaded. */
extern void sas_api_notes_install(void);

#endif							/* SAS_API_NOTES_H */

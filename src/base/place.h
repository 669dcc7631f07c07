/* SPDX-License-Identifier: PostgreSQL */
/*
 * place.h: where the data of this server is, and whether it was copied.
 */
#ifndef SAS_BASE_PLACE_H
#define SAS_BASE_PLACE_H

#include "access/xlogdefs.h"

/* While shared_preload_libraries are loaded. */
extern void sas_base_place_note(void);

/* In the launcher, before it looks at a database: a promoted standby stays one, whatever becomes of the server. */
extern void sas_base_place_write(void);

/* The base backup from which this data directory was started; empty: none, or not known. */
extern const char *sas_base_place_backup(void);

/* This server was a standby, and goes on where its primary ended. Where the library is not preloaded nobody knows: true. */
extern bool sas_base_place_continues(void);

extern TimeLineID sas_base_place_timeline(void);

#endif							/* SAS_BASE_PLACE_H */

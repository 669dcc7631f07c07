/* SPDX-License-Identifier: PostgreSQL */
/*
 * place.h: where the data of this server is, and whether it was copied.
 */
#ifndef SAS_BASE_PLACE_H
#define SAS_BASE_PLACE_H

#include "access/xlogdefs.h"

/* While shared_preload_libraries are loaded. */
extern void sas_base_place_note(void);

/*
 * Called by the launcher before it looks at a database, so that a promoted
 * standby is known as one even if the server ends soon.
 */
extern void sas_base_place_write(void);

/* The base backup from which this data directory was started; empty: none, or not known. */
extern const char *sas_base_place_backup(void);

/*
 * Was this server a standby, which continues where its primary ended? True as
 * well where the library is not preloaded, since then it cannot be known.
 */
extern bool sas_base_place_continues(void);

/* The timeline of this server; of a standby, the one that it replays. */
extern TimeLineID sas_base_place_timeline(void);

#endif							/* SAS_BASE_PLACE_H */

/* SPDX-License-Identifier: PostgreSQL */
/*
 * open_runs.h: queries of sas.runs for open runs find them by their keys.
 */
#ifndef SAS_API_OPEN_RUNS_H
#define SAS_API_OPEN_RUNS_H

/* While the library is preloaded. */
extern void sas_api_open_runs_install(void);

#endif							/* SAS_API_OPEN_RUNS_H */

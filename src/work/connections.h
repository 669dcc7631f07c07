/* SPDX-License-Identifier: PostgreSQL */
/*
 * connections.h: connections that extensions keep open for a session.
 */
#ifndef SAS_WORK_CONNECTIONS_H
#define SAS_WORK_CONNECTIONS_H

/* Closes those of dblink, named or not. In a transaction. */
extern void sas_work_close_dblink(void);

/* Closes these, and those of postgres_fdw. In a transaction that has used none of these. */
extern void sas_work_close_connections(void);

#endif							/* SAS_WORK_CONNECTIONS_H */

/* SPDX-License-Identifier: PostgreSQL */
/*
 * connections.h: connections that extensions keep open for a session.
 */
#ifndef SAS_WORK_CONNECTIONS_H
#define SAS_WORK_CONNECTIONS_H

/* Closes the connections of dblink, named or not. Called in a transaction. */
extern void sas_work_close_dblink(void);

/*
 * Closes the connections of dblink and of postgres_fdw. Called in a
 * transaction that has used none of them.
 */
extern void sas_work_close_connections(void);

#endif							/* SAS_WORK_CONNECTIONS_H */

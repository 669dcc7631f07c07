/* SPDX-License-Identifier: PostgreSQL */
/*
 * sockets.h: the sockets of this process, accounted with the server.
 *
 * A process opens no socket that it has not reserved. So its files can always
 * be opened, and a worker that starts finds descriptors for its own.
 */
#ifndef SAS_BASE_SOCKETS_H
#define SAS_BASE_SOCKETS_H

/*
 * Reserves this many sockets for the process, in place of those it has
 * reserved so far.  Returns how many it got: as many as the kernel's hard
 * limit leaves beside the server's own files; failing that, the part of those
 * files that the server lends.
 */
extern int	sas_base_sockets_reserve(int wanted);

#endif							/* SAS_BASE_SOCKETS_H */

/* SPDX-License-Identifier: PostgreSQL */
/*
 * sockets.c: the sockets of this process, accounted with the server.
 *
 * The server lends a third of its descriptors (max_safe_fds, by
 * max_files_per_process) to code that opens its own, and raises an error where
 * it needs one itself and they are used up.  Sockets come on top of the
 * server's files as far as the kernel allows; then max_safe_fds is raised in
 * this process, so that they are a third of it.
 */
#include "postgres.h"

#include <sys/resource.h>

#include "storage/fd.h"

#include "base/sockets.h"

/* Descriptors that the server does not count, or has open in spite of its limit. */
#define SAS_UNCOUNTED 64

/* What the server may borrow itself: it waits for descriptors with one more. */
#define SAS_LEFT_TO_SERVER 16

int
sas_base_sockets_reserve(int wanted)
{
	static int	files = 0;		/* the server's own, as it was started */
	static int	reserved = 0;
	struct rlimit limit;
	int			beside = 0;

	if (files == 0)
		files = max_safe_fds;
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_max > files + SAS_UNCOUNTED)
		beside = (int) Min(limit.rlim_max - files - SAS_UNCOUNTED, (rlim_t) wanted);
	if (beside > files / 3 - SAS_LEFT_TO_SERVER)
	{
		rlim_t		needed = (rlim_t) files + SAS_UNCOUNTED + beside;

		wanted = beside;
		limit.rlim_cur = Max(limit.rlim_cur, needed);
		if (setrlimit(RLIMIT_NOFILE, &limit) == 0)
			max_safe_fds = Max(files, 3 * (beside + SAS_LEFT_TO_SERVER));
	}
	wanted = Min(wanted, max_safe_fds / 3 - SAS_LEFT_TO_SERVER);
	for (; reserved < wanted && AcquireExternalFD(); reserved++);
	for (; reserved > wanted && reserved > 0; reserved--)
		ReleaseExternalFD();
	return reserved;
}

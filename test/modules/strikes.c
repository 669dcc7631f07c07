/* SPDX-License-Identifier: PostgreSQL */
/*
 * strikes.c: a disk that is full, a clock that jumps, and a log of changes
 * whose last write is torn, for test/torture and t/497_crash_points.  Loaded by
 * LD_PRELOAD into the server, since none can be had without root.
 *
 * The file that SAS_STRIKES names holds four numbers: by how many seconds
 * gettimeofday(), which is the server's clock, is ahead; whether the disk is
 * full: then no file of the server grows; at which write to pg_wal from now
 * the process that makes it writes the first half and dies, 0: at none; and by
 * how many seconds the clock has gone back at every other look of a process.
 * The file is mapped, so that a change acts at once.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

typedef struct Strikes
{
	int64_t		ahead;
	int64_t		full;
	int64_t		wal_writes;
	int64_t		back;
} Strikes;

static Strikes *strikes = NULL;

__attribute__((constructor)) static void
open_strikes(void)
{
	const char *path = getenv("SAS_STRIKES");
	int			fd = path != NULL && strncmp(program_invocation_short_name, "postgres", 8) == 0 ? open(path, O_RDWR) : -1;
	void	   *map = fd >= 0 ? mmap(NULL, sizeof(Strikes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;

	if (map != MAP_FAILED)
		strikes = map;
	if (fd >= 0)
		close(fd);
}

#define REAL(name) static __typeof__(name) *real = NULL; if (real == NULL) real = (__typeof__(name) *) dlsym(RTLD_NEXT, #name)

/* Would this grow a file? The log of the server may. */
static int
is_full(int fd, off_t end)
{
	struct stat st;

	if (strikes == NULL || !strikes->full || fd <= STDERR_FILENO || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || end <= st.st_size)
		return 0;
	errno = ENOSPC;
	return 1;
}

static int
is_wal(int fd)
{
	char		link[32];
	char		path[1024];
	ssize_t		n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	path[n > 0 ? n : 0] = '\0';
	return strstr(path, "/pg_wal/") != NULL;
}

int
gettimeofday(struct timeval *restrict tv, void *restrict tz)
{
	REAL(gettimeofday);
	static unsigned looks = 0;
	int			result = real(tv, tz);

	if (strikes != NULL)
		tv->tv_sec += strikes->ahead - (looks++ % 2) * strikes->back;
	return result;
}

ssize_t
write(int fd, const void *data, size_t len)
{
	REAL(write);
	off_t		at = strikes != NULL && strikes->full ? lseek(fd, 0, SEEK_CUR) : 0;

	return at >= 0 && is_full(fd, at + len) ? -1 : real(fd, data, len);
}

ssize_t
pwrite(int fd, const void *data, size_t len, off_t offset)
{
	REAL(pwrite);
	if (strikes != NULL && __atomic_load_n(&strikes->wal_writes, __ATOMIC_RELAXED) > 0 && is_wal(fd) &&
		__atomic_sub_fetch(&strikes->wal_writes, 1, __ATOMIC_SEQ_CST) == 0)
	{
		(void) !real(fd, data, len / 2, offset);
		kill(getpid(), SIGKILL);
	}
	return is_full(fd, offset + len) ? -1 : real(fd, data, len, offset);
}

ssize_t
pwritev(int fd, const struct iovec *data, int n, off_t offset)
{
	REAL(pwritev);
	off_t		end = offset;

	for (int i = 0; i < n; i++)
		end += data[i].iov_len;
	return is_full(fd, end) ? -1 : real(fd, data, n, offset);
}

int
posix_fallocate(int fd, off_t offset, off_t len)
{
	REAL(posix_fallocate);
	return is_full(fd, offset + len) ? ENOSPC : real(fd, offset, len);
}

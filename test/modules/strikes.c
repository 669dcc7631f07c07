/* SPDX-License-Identifier: PostgreSQL */
/*
 * strikes.c: a disk that is full, a clock that jumps, and a log of changes
 * whose last write is torn, for test/torture and t/497_crash_points.  Loaded by
 * LD_PRELOAD into the server, since none can be had without root.
 *
 * The file that SAS_STRIKES names is the struct below.  It is mapped, so that a
 * change acts at once.
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
	int64_t		ahead;			/* seconds, of gettimeofday(), which is the server's clock */
	int64_t		full;			/* no file of the server grows */
	int64_t		wal_writes;		/* at which write to pg_wal the process that makes it writes half of it and dies; 0: none */
	int64_t		back;			/* seconds by which the clock has gone back at every other look of a process */

	/*
	 * At which kind of record in pg_wal the process that writes it dies: RECORD_WATCHED with the resource manager << 8 and
	 * the upper four bits of xl_info; RECORD_NOTED: kinds are only noted; 0: nothing.
	 */
	int64_t		record;
	int64_t		torn;			/* only the first half of that record is written; or else all of it */
	uint64_t	from;			/* the place in the log from which on records count */
	uint64_t	next;			/* where the next record begins; 0: not known yet */
	uint64_t	prev;			/* where the one before began */
	uint8_t		seen[4096];		/* kinds: manager * 16 + info / 16 */
} Strikes;

#define RECORD_NOTED (1 << 17)
#define RECORD_WATCHED (1 << 16)

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

/* -- records of the log: xlog_internal.h, xlogrecord.h ----------------------------------------------------------------- */

#define PAGE 8192
#define HEADER 24				/* of a page, and of a record */
#define LONG_HEADER 40			/* of the first page of a segment */
#define CONTINUES 1				/* xlp_info: a record goes on at the begin of the page */
#define SWITCH 0x40				/* of manager 0: the rest of the segment is empty */

typedef struct Written
{
	const uint8_t *data;
	uint64_t	begin;			/* where in the log */
	uint64_t	end;
	uint64_t	segment;		/* size */
} Written;

static uint64_t
number(const uint8_t *at, int bytes)
{
	uint64_t	value = 0;

	memcpy(&value, at, bytes);
	return value;
}

/* The first place on or behind this one that is not in the header of a page. */
static uint64_t
behind_header(const Written *w, uint64_t at)
{
	return at % PAGE != 0 ? at : at + (at % w->segment == 0 ? LONG_HEADER : HEADER);
}

/* The place n bytes of records behind this one. */
static uint64_t
behind(const Written *w, uint64_t at, uint64_t n)
{
	while (n >= PAGE - at % PAGE)
	{
		n -= PAGE - at % PAGE;
		at = behind_header(w, at + PAGE - at % PAGE);
	}
	return at + n;
}

/* Copies n bytes of records; false: they are not among what is written. */
static int
fetch(const Written *w, uint64_t at, uint8_t *to, int n)
{
	for (int i = 0; i < n; i++)
	{
		uint64_t	place = behind(w, at, i);

		if (place >= w->end)
			return 0;
		to[i] = w->data[place - w->begin];
	}
	return 1;
}

/*
 * Notes the records of a write, which one process at a time makes.  Returns where in it to cut it and die; 0: nowhere.
 * What another process is still copying into the last page ends the look, until the next write of that page.
 */
static uint64_t
find_record(const Written *w)
{
	uint8_t		head[HEADER];

	if (strikes->next < w->begin || strikes->next >= w->end)
	{
		int			size = w->begin % w->segment == 0 ? LONG_HEADER : HEADER;
		uint64_t	rest = number(w->data + 2, 2) & CONTINUES ? number(w->data + 16, 4) : 0;

		if (strikes->next >= w->end)
			return 0;
		strikes->prev = 0;
		strikes->next = behind_header(w, (behind(w, w->begin + size, rest) + 7) & ~7ULL);
	}
	while (fetch(w, strikes->next, head, HEADER))
	{
		uint64_t	length = number(head, 4);
		uint64_t	at = strikes->next;
		int			kind = head[17] << 8 | (head[16] & 0xF0);

		if (length < HEADER || (strikes->prev != 0 && number(head + 8, 8) != strikes->prev) || number(head + 8, 8) >= at)
			return 0;
		strikes->prev = at;
		strikes->next = behind_header(w, (behind(w, at, length) + 7) & ~7ULL);
		if (kind == SWITCH)
			strikes->next = behind_header(w, at - at % w->segment + w->segment);
		if (at < strikes->from)
			continue;
		strikes->seen[kind >> 4] = 1;
		if (strikes->record == (RECORD_WATCHED | kind))
			return strikes->torn ? behind(w, at, length / 2) - w->begin : w->end - w->begin;
	}
	return 0;
}

/* Where in this write to pg_wal to cut it and die; 0: nowhere. */
static uint64_t
cut_at(int fd, const void *data, size_t len, off_t offset)
{
	Written		w = {data, 0, 0, 0};
	struct stat st;

	if (__atomic_load_n(&strikes->wal_writes, __ATOMIC_RELAXED) > 0 && is_wal(fd) &&
		__atomic_sub_fetch(&strikes->wal_writes, 1, __ATOMIC_SEQ_CST) == 0)
		return len / 2;
	if (strikes->record == 0 || len < PAGE || len % PAGE != 0 || offset % PAGE != 0 || !is_wal(fd) || fstat(fd, &st) != 0)
		return 0;
	w.begin = number(w.data + 8, 8);
	w.end = w.begin + len;
	w.segment = st.st_size;
	/* a new segment is filled with zeros first */
	return w.begin % w.segment == (uint64_t) offset && number(w.data, 2) != 0 ? find_record(&w) : 0;
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
	uint64_t	cut = strikes != NULL ? cut_at(fd, data, len, offset) : 0;

	if (cut > 0)
	{
		(void) !real(fd, data, cut < len ? cut : len, offset);
		strikes->record = 0;
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

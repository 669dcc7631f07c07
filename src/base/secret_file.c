/* SPDX-License-Identifier: PostgreSQL */
/*
 * secret_file.c: finds a file below sas.secret_directory, and reads it.
 *
 * The name is checked as it is written, then as the file system resolves it.
 * The resolved name is opened without following a link, so a link that is
 * put in its place meanwhile is refused.
 */
#include "postgres.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/secret_file.h"
#include "base/utf8.h"

char	   *sas_base_secret_directory = NULL;

/* Plain segments with / between them? */
static bool
secret_file_is_relative(const char *file)
{
	const char *segment = file;

	for (;;)
	{
		size_t		len = strcspn(segment, "/");

		if (len == 0 || (len == 1 && segment[0] == '.') || (len == 2 && segment[0] == '.' && segment[1] == '.'))
			return false;
		for (size_t i = 0; i < len; i++)
			if ((unsigned char) segment[i] < 0x20 || segment[i] == 0x7f)
				return false;
		if (segment[len] == '\0')
			return true;
		segment += len + 1;
	}
}

/* The error of a call about the file. */
static int
secret_file_failed(const char **problem, int *sqlerrcode)
{
	bool		missing = errno == ENOENT || errno == ENOTDIR;

	*problem = missing ? "does not exist" : errno == ELOOP ? "is a symbolic link that leads nowhere" : "cannot be read by the server";
	*sqlerrcode = missing ? ERRCODE_UNDEFINED_FILE : ERRCODE_INSUFFICIENT_PRIVILEGE;
	return -1;
}

/* Opens what the file resolves to. -1: see *problem. */
static int
secret_file_open(const char *file, struct stat *st, const char **problem, int *sqlerrcode)
{
	const char *directory = sas_base_secret_directory;
	char		path[MAXPGPATH];
	char		root[PATH_MAX];
	char		resolved[PATH_MAX];
	size_t		len;
	int			fd;

	*sqlerrcode = ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
	*problem = "has no directory: sas.secret_directory is not set";
	if (directory == NULL || directory[0] == '\0')
		return -1;
	*problem = "has no directory: sas.secret_directory cannot be read by the server";
	if (realpath(directory, root) == NULL)
		return -1;
	*sqlerrcode = ERRCODE_INVALID_PARAMETER_VALUE;
	*problem = "is not a path below sas.secret_directory";
	if (!secret_file_is_relative(file) || snprintf(path, sizeof(path), "%s/%s", root, file) >= sizeof(path))
		return -1;
	if (realpath(path, resolved) == NULL)
		return secret_file_failed(problem, sqlerrcode);
	len = strcmp(root, "/") == 0 ? 0 : strlen(root);
	if (strncmp(resolved, root, len) != 0 || resolved[len] != '/')
	{
		*sqlerrcode = ERRCODE_INSUFFICIENT_PRIVILEGE;
		*problem = "is a symbolic link that leads out of sas.secret_directory";
		return -1;
	}
	/* without O_NONBLOCK a pipe would hold the worker */
	fd = open(resolved, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return secret_file_failed(problem, sqlerrcode);
	*problem = NULL;
	if (fstat(fd, st) != 0 || !S_ISREG(st->st_mode))
		*problem = "is not a plain file";
	else if (st->st_size > SAS_SECRET_FILE_BYTES)
		*problem = "is larger than 64 kB";
	if (*problem == NULL)
		return fd;
	close(fd);
	return -1;
}

/* What is wrong with the value; NULL: nothing. */
static const char *
secret_file_value_problem(const char *bytes, size_t len)
{
	if (len == 0)
		return "is empty";
	for (size_t i = 0; i < len; i++)
		if ((unsigned char) bytes[i] < 0x20 || bytes[i] == 0x7f)
			return "contains control characters";
	return NULL;
}

char *
sas_base_secret_file_read(const char *file, const char **problem, int *sqlerrcode)
{
	struct stat st;
	int			fd = secret_file_open(file, &st, problem, sqlerrcode);
	char	   *bytes;
	char	   *value = NULL;
	size_t		len = 0;
	ssize_t		n = 0;

	if (fd < 0)
		return NULL;
	bytes = palloc_extended(SAS_SECRET_FILE_BYTES + 1, MCXT_ALLOC_NO_OOM);
	while (bytes != NULL && len <= SAS_SECRET_FILE_BYTES &&
		   ((n = read(fd, bytes + len, SAS_SECRET_FILE_BYTES + 1 - len)) > 0 || (n < 0 && errno == EINTR)))
		len += Max(n, 0);
	close(fd);
	*sqlerrcode = ERRCODE_INVALID_PARAMETER_VALUE;
	if (bytes == NULL || n < 0)
	{
		*problem = "cannot be read by the server";
		return NULL;
	}
	if (len > 0 && len <= SAS_SECRET_FILE_BYTES && bytes[len - 1] == '\n')
		len -= len > 1 && bytes[len - 2] == '\r' ? 2 : 1;
	*problem = len > SAS_SECRET_FILE_BYTES ? "is larger than 64 kB" : secret_file_value_problem(bytes, len);
	if (*problem == NULL && (value = sas_base_utf8_text(bytes, len)) == NULL)
		*problem = "is not text in the encoding of the database";
	explicit_bzero(bytes, SAS_SECRET_FILE_BYTES + 1);
	pfree(bytes);
	return value;
}

void
sas_base_secret_file_stamp(const char *file, char *stamp)
{
	struct stat st;
	const char *problem;
	int			sqlerrcode;
	int			fd = secret_file_open(file, &st, &problem, &sqlerrcode);

	if (fd < 0)
	{
		strlcpy(stamp, problem, SAS_SECRET_STAMP_LEN);
		return;
	}
	close(fd);
	snprintf(stamp, SAS_SECRET_STAMP_LEN, "%llu.%llu.%lld.%lld.%ld.%lld.%ld", (unsigned long long) st.st_dev, (unsigned long long) st.st_ino,
			 (long long) st.st_size, (long long) st.st_mtim.tv_sec, st.st_mtim.tv_nsec, (long long) st.st_ctim.tv_sec, st.st_ctim.tv_nsec);
}

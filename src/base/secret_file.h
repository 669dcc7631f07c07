/* SPDX-License-Identifier: PostgreSQL */
/*
 * secret_file.h: values of secrets that the platform mounts as files, below
 * sas.secret_directory.
 *
 * Everybody who may write into that directory is trusted.  A symbolic link may
 * lead only from file to file within the directory, which is how platforms
 * change several files at once.  No message about a file holds its content.
 */
#ifndef SAS_BASE_SECRET_FILE_H
#define SAS_BASE_SECRET_FILE_H

#include <stddef.h>

/* The largest file. */
#define SAS_SECRET_FILE_BYTES (64 * 1024)

/* Room for a stamp. */
#define SAS_SECRET_STAMP_LEN 128

/* The setting; empty: no secret is a file. */
extern char *sas_base_secret_directory;

/*
 * The value in the file, without the line break at its end; in the current
 * context.  NULL: *problem says why there is none, as in "does not exist", and
 * *sqlerrcode is the matching error code.
 */
extern char *sas_base_secret_file_read(const char *file, const char **problem, int *sqlerrcode);

/* Another stamp: the file may have another value, or cannot be read for another reason. */
extern void sas_base_secret_file_stamp(const char *file, char *stamp);

#endif							/* SAS_BASE_SECRET_FILE_H */

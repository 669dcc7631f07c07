/* SPDX-License-Identifier: PostgreSQL */
/*
 * secret_file.h: values of secrets that the platform mounts as files, below
 * sas.secret_directory.
 *
 * Who may write into that directory is trusted.  A symbolic link may lead
 * from file to file within it, which is how platforms change several files at
 * once, and nowhere else.  What is said about a file never has its content.
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
 * context.  NULL: *problem is what the file is not, as "does not exist", and
 * *sqlerrcode says its kind.
 */
extern char *sas_base_secret_file_read(const char *file, const char **problem, int *sqlerrcode);

/* Another stamp: the file may have another value, or cannot be read for another reason. */
extern void sas_base_secret_file_stamp(const char *file, char *stamp);

#endif							/* SAS_BASE_SECRET_FILE_H */

/* SPDX-License-Identifier: PostgreSQL */
/*
 * extension.h: whether this database has an extension that this library knows.
 */
#ifndef SAS_STORE_EXTENSION_H
#define SAS_STORE_EXTENSION_H

/*
 * In a transaction of the caller: the extension is there, and its version is
 * one that this library knows.  An unknown version is logged once per
 * process.
 */
extern bool sas_store_installed(void);

/* Its version, palloc'd, or NULL when it is not there. In a transaction. */
extern char *sas_store_extension_version(void);

/* Its schema is that of the release before: the library goes on as that one did. In a transaction. */
extern bool sas_store_schema_is_older(void);

/* As strcmp, number by number. */
extern int	sas_store_compare_versions(const char *a, const char *b);

#endif							/* SAS_STORE_EXTENSION_H */

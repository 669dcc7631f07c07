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

#endif							/* SAS_STORE_EXTENSION_H */

/* SPDX-License-Identifier: PostgreSQL */
/*
 * version.h: the version of this library, and the schemas that it runs.
 *
 * A release works with its own schema and, unchanged, with that of the
 * release before: a server is restarted with the new library, or a standby
 * that has it is promoted, and ALTER EXTENSION sas UPDATE follows when it
 * pleases.  See docs/operating/upgrade.md; docs/explanation/upgrades.md says what
 * this asks of a change.  tools/check_versions compares the places that name
 * the version.
 */
#ifndef SAS_BASE_VERSION_H
#define SAS_BASE_VERSION_H

#define SAS_VERSION "0.2.0"

/* The newest first: its own, then that of the release before. */
#define SAS_SCHEMAS SAS_VERSION

#endif							/* SAS_BASE_VERSION_H */

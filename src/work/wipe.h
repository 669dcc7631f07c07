/* SPDX-License-Identifier: PostgreSQL */
/*
 * wipe.h: removes what functions left in the session.
 */
#ifndef SAS_WORK_WIPE_H
#define SAS_WORK_WIPE_H

/*
 * Does what DISCARD ALL does, except for settings (they are rolled back) and
 * plans (they are ours), in transactions of its own.  After an error the rest
 * is done at the next try; after several errors in a row the worker ends, and
 * another one has a new session.
 */
extern void sas_work_wipe_session(void);

/*
 * Drops the temporary objects only, in transactions of its own: a function
 * that creates a temporary table would fail at its next call in this worker,
 * and not in another one.
 */
extern void sas_work_wipe_temporary(void);

#endif							/* SAS_WORK_WIPE_H */

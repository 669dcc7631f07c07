/* SPDX-License-Identifier: PostgreSQL */
/*
 * wipe.h: removes what the functions of one owner left in the session.
 */
#ifndef SAS_WORK_WIPE_H
#define SAS_WORK_WIPE_H

/*
 * What DISCARD ALL does, but for settings (rolled back) and plans (ours), in
 * transactions of its own.  An error leaves the rest for the next try; after
 * some errors in a row the worker ends, and another one has a new session.
 */
extern void sas_work_wipe_session(void);

#endif							/* SAS_WORK_WIPE_H */

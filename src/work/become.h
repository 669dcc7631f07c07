/* SPDX-License-Identifier: PostgreSQL */
/*
 * become.h: code of users runs with the rights of its role and no others.
 */
#ifndef SAS_WORK_BECOME_H
#define SAS_WORK_BECOME_H

/* The session user is that role too. Only in a worker. */
#define SAS_BECOME_SESSION		1
/* In a transaction of another role: nothing may be left in its session that runs there later. */
#define SAS_BECOME_RESTRICTED	2
/* The end of that, inside of it. */
#define SAS_BECOME_UNRESTRICTED	4

/* The rights to go back to. */
typedef struct SasRights
{
	Oid			user;
	int			security;
	int			nest_level;		/* of settings */
} SasRights;

/* From here on code runs with the rights of that role. An error goes back with its subtransaction. */
extern void sas_work_become(SasRights *before, Oid role, int flags);

/* Settings since then are rolled back. */
extern void sas_work_go_back(const SasRights *before);

/* In a worker, with the rights of a role whose code has ended: what it deferred happens now. */
extern void sas_work_fire_deferred(void);

/*
 * In a worker, with the rights of a role whose code has ended, within the
 * transaction: what it left there is fired, closed and removed, so that code
 * of another role does not run it.
 */
extern void sas_work_clean_up(void);

#endif							/* SAS_WORK_BECOME_H */

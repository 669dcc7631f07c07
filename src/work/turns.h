/* SPDX-License-Identifier: PostgreSQL */
/*
 * turns.h: which owners let the others go first.
 */
#ifndef SAS_WORK_TURNS_H
#define SAS_WORK_TURNS_H

/*
 * This worker has worked so long for that owner, whose call or message was slow; or it was not, and the owners before it
 * have waited. InvalidOid: for several.
 */
extern void sas_work_turns_charge(Oid owner, int64 spent_us, bool was_slow);

/* A message that takes so long is slow. */
#define SAS_WORK_TURNS_SLOW_US 30000

/* Does an owner owe the others time? */
extern bool sas_work_turns_owed(void);

/*
 * begin: do owners let the others go first now? Then only the others are
 * served until end, which is told whether one of them was.
 */
extern bool sas_work_turns_begin(void);
extern void sas_work_turns_end(bool served);

/* Between both: is that one of these owners? And all of them, at most max. */
extern bool sas_work_turns_waits(Oid owner);
extern int	sas_work_turns_owners(Oid *owners, int max);

/* Does it let others go first also with what is claimed? Only as long as it owes, since the time of a claim is short. */
extern bool sas_work_turns_owes(Oid owner);

/* Is this between both? What is looked for in vain then may be there even so. */
extern bool sas_work_turns_open(void);

#endif							/* SAS_WORK_TURNS_H */

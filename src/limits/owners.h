/* SPDX-License-Identifier: PostgreSQL */
/*
 * owners.h: which owners have the slots of an agent, for calls and for
 * requests of watches.
 *
 * Owners take turns for each slot that gets free.  That is not enough where
 * calls take long: those of one owner would fill all slots, and the others
 * would wait until one of them ends.  So while several owners use an agent,
 * one owner may have at most seven times as many calls in flight as there are
 * slots beside the last one, and the last slot goes only to an owner that has
 * none: of 100 slots one owner has 87, of 2 it has 1.
 *
 * An agent is used by several owners if another one has claimed calls within
 * the last hour. For the first hour after a start of the server, when this is
 * not known yet, it is if several roles have a grant. An owner that is alone
 * has all slots.
 *
 * Only agent workers count. What a worker has taken is given back when it
 * exits. An owner that finds no room in the table is not limited.
 */
#ifndef SAS_LIMITS_OWNERS_H
#define SAS_LIMITS_OWNERS_H

#include "limits/limits.h"

/* In _PG_init: shared memory. */
extern void sas_limits_owners_install(void);

/* The rule: of so many slots so many are taken, of_owner of them by an owner that is not alone. How many more may it have? */
extern int	sas_limits_owner_room(int slots, int taken, int of_owner);

/* This process counts, from here on.  has_room: may more calls of an owner begin here, whatever the limits of the agent say? */
typedef bool (*SasOwnersRoom) (int agent_id, Oid owner);

/* Once in a worker; its calls are given back when it exits. */
extern void sas_limits_owners_open(SasOwnersRoom has_room);

/* A claim wants so many calls of that owner, for slots that were granted. Returns how many it may have. */
extern int	sas_limits_owner_take(int agent_id, Oid owner, int want);

/*
 * After the claim: begin, for each call that was claimed; then settle gives
 * back the rest of what was taken, and calls told for each agent.
 * again: another worker was refused meanwhile what was given back, so only the caller can claim it.
 * refused: an owner got less than it wanted.  crowded: it got none, because there was no room for it here.
 */
typedef void (*SasOwnersTold) (int agent_id, bool again, bool refused, bool crowded);

/* Both do nothing in a process that does not count. */
extern void sas_limits_owner_begin(int agent_id, Oid owner);
extern void sas_limits_owners_settle(SasOwnersTold told);

/* A call that has rested between two attempts wants a slot again, before steps of its owner that have not begun. */
extern bool sas_limits_owner_again(int agent_id, Oid owner);

/* A watch wants a slot for its request; it asks again later if it may not. */
extern bool sas_limits_owner_poll(int agent_id, Oid owner);

/* A call is over, or rests, or the request of a watch is over. */
extern void sas_limits_owner_end(int agent_id, Oid owner);

/* May this owner have no more calls?  If so, the end of any call of the agent wakes. */
extern bool sas_limits_owner_is_full(int agent_id, Oid owner);

/* The same for any process: has the agent free slots, and this owner may have none of them? */
extern bool sas_limits_owner_lacks_slots(int agent_id, Oid owner);

#endif							/* SAS_LIMITS_OWNERS_H */

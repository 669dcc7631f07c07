/* SPDX-License-Identifier: PostgreSQL */
/*
 * holders.h: which transactions hold runs that a tick needs, and must wake the
 * tick when they end.
 *
 * A tick skips a run that another transaction has locked, and postpones its
 * message.  It notes the transaction here.  When that transaction commits or
 * aborts, its session wakes the actor, which takes the message up again
 * (sql/state/message.sql), or the lease (sql/supervisor/tick.sql). Each
 * session has the callback, whatever it calls, since the library is preloaded;
 * while nothing is noted it costs one read.
 *
 * A prepared transaction ends without the callback: COMMIT PREPARED and
 * ROLLBACK PREPARED note what has ended, and wake all.
 * Nothing here survives a crash, and neither does a holder.  The message
 * becomes due by itself a second later; that is needed only when the table was
 * full.
 */
#ifndef SAS_WAKE_HOLDERS_H
#define SAS_WAKE_HOLDERS_H

#include "datatype/timestamp.h"

#define SAS_WAKE_HOLDERS 1024

/* in place of an actor: leases, which the supervisor takes back */
#define SAS_WAKE_HELD_LEASE 'l'

/* What this worker has postponed until then: a message to that actor, or a lease. */
typedef struct SasWakeHeld
{
	char		actor;			/* as in _sas.message */
	int64		run_id;
	TimestampTz due_at;
} SasWakeHeld;

typedef enum SasWakeAwait
{
	SAS_WAKE_AWAIT_NO_ROOM,
	SAS_WAKE_AWAIT_ENDED,		/* it has ended meanwhile: nothing is noted */
	SAS_WAKE_AWAIT_NOTED
} SasWakeAwait;

/* Notes that it waits for the end of that transaction, or of one in it. */
extern SasWakeAwait sas_wake_holders_await(const SasWakeHeld *held, TransactionId holder);

/*
 * Takes out what this worker has noted for that actor, and whose holder has
 * ended; at most max.  If the transaction of the worker is rolled back, it is
 * there again.
 *
 * *missed: how many were found at their due time only, and their holders have
 * not said within ten seconds after that that they have ended.  A holder ends
 * for others a moment before it says so.
 */
extern int	sas_wake_holders_take(char actor, SasWakeHeld *held, int max, int *missed);

/* Has this worker noted anything for that actor that may be taken out, or is missed? */
extern bool sas_wake_holders_awaits(char actor);

/* A prepared transaction of this database has ended; wakes nobody. */
extern void sas_wake_holders_prepared_ended(void);

#endif							/* SAS_WAKE_HOLDERS_H */

/* SPDX-License-Identifier: PostgreSQL */
/*
 * replies.h: replies that are not written yet, for the outbox, which writes
 * them, and for those who ask whether there are any.
 */
#ifndef SAS_AGENT_REPLIES_H
#define SAS_AGENT_REPLIES_H

#include "work/request.h"

/* The transaction that a reply is written in. */
typedef enum SasReplyWay
{
	SAS_REPLY_TOGETHER,
	SAS_REPLY_LARGE,			/* one at a time */
	SAS_REPLY_DEAR				/* with others of its owner, see dear.h */
} SasReplyWay;

typedef struct SasUnwrittenReply
{
	SasStoredReply reply;
	Oid			owner;
	SasReplyWay way;
	SasLeaseEntry *lease;
	SasTransportShare *memory;	/* of its owner at its agent */
	Size		size;			/* of output and error */
	int			tries;			/* transactions that wrote nothing else and failed */
	bool		chosen;			/* for the transaction that is open */
} SasUnwrittenReply;

/* Replies live in that context; transport accounts for them. */
extern void sas_agent_replies_open(MemoryContext context, SasTransport *transport);

/* The flight has ended with that verdict. */
extern void sas_agent_replies_add(const SasFlight *flight, const char *verdict, const Jsonb *output, const Jsonb *error, double again_in_ms);

/* How many are kept; are there any that are written in that way? */
extern int	sas_agent_replies_count(void);
extern bool sas_agent_replies_has(SasReplyWay way);

/*
 * Reports whether this worker has replies that are not written; after what may have been the last one.
 * What has arrived is one, before it is evaluated too.
 */
extern void sas_agent_replies_note_unwritten(void);

/*
 * From now on this worker does not read its sockets, where an answer may arrive in time: for as long
 * as a transaction takes.  Until it has read them: sas_agent_replies_note_read().
 */
extern void sas_agent_replies_leave_unread(void);
extern void sas_agent_replies_note_read(void);
extern bool sas_agent_replies_are_unread(void);

/* Finds the way of each again: other owners are dear than before, or the worker is asked to end, and then none is. */
extern void sas_agent_replies_part(void);

/* The owner of dear replies whose last turn is longest ago. */
extern Oid	sas_agent_replies_next_owner(void);

/*
 * The replies to write now: of this way, and of that owner if it is dear, at most so many, the oldest
 * first, as far as they fit.  Returns how many.
 */
extern int	sas_agent_replies_choose(SasUnwrittenReply **chosen, SasReplyWay way, Oid owner, int most);

/* The evaluations of those that were chosen took too long: whose they were is not known. */
extern void sas_agent_replies_suspect_chosen(void);

/* Those that were chosen are written. */
extern void sas_agent_replies_forget_chosen(void);

/* The transaction that wrote the one that was chosen, and nothing else, has failed; after so many tries it is given up. */
extern void sas_agent_replies_fail_chosen(int tries);

#endif							/* SAS_AGENT_REPLIES_H */

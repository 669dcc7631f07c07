/* SPDX-License-Identifier: PostgreSQL */
/*
 * finished.c
 *	  Finished calls: their replies wait here for their owners.
 */
#include "transport/request.h"

#include <signal.h>
#include <stddef.h>

/*
 * The call has ended; code is libcurl's result.  Large answers have their own list: their owner
 * needs long for them, and others must not wait.
 */
void
sas_transport_finish(SasTransport *t, SasRequest *r, CURLcode code)
{
	sas_transport_request_finish(r, code);
	sas_transport_list_remove(&t->active, r);
	r->finished = true;
	r->waits_in = r->reply->body_len - r->read > SAS_TRANSPORT_LARGE ? &t->large : &t->finished;
	sas_transport_list_add(r->waits_in, r);
}

bool
sas_transport_has_small(const SasTransport *t)
{
	return t->finished.head != NULL;
}

bool
sas_transport_has_large(const SasTransport *t)
{
	return t->large.head != NULL;
}

bool
sas_transport_is_finished(const void *handle)
{
	return ((const SasRequest *) handle)->finished;
}

static SasReply *
finished_give(SasTransport *t, SasRequestList *list, SasRequest *r)
{
	SasReply   *reply;
	sigset_t	before;

	if (r == NULL)
		return NULL;
	sas_transport_request_drop_read(r);
	reply = r->reply;
	r->reply = NULL;
	sas_transport_block_signals(&before);
	sas_transport_list_remove(list, r);
	sas_transport_give_back(t, r);
	sas_transport_restore_signals(&before);
	return reply;
}

static uint64_t
finished_last_turn(const SasRequest *r)
{
	return r->share != NULL && r->share->all != NULL ? r->share->all->turn : 0;
}

/* Shares take turns, since each large answer takes its owner long. */
static SasRequest *
finished_next_large(SasTransport *t)
{
	SasRequest *next = t->large.head;

	for (SasRequest *r = next; r != NULL; r = r->next)
		if (finished_last_turn(r) < finished_last_turn(next))
			next = r;
	return next;
}

SasReply *
sas_transport_next_small(SasTransport *t)
{
	return finished_give(t, &t->finished, t->finished.head);
}

SasReply *
sas_transport_next_large(SasTransport *t)
{
	SasRequest *r = finished_next_large(t);

	if (r != NULL && r->share != NULL && r->share->all != NULL)
		r->share->all->turn = ++t->turns;
	return finished_give(t, &t->large, r);
}

SasReply *
sas_transport_next(SasTransport *t)
{
	SasReply   *reply = sas_transport_next_small(t);

	return reply != NULL ? reply : sas_transport_next_large(t);
}

void *
sas_transport_next_news(SasTransport *t)
{
	SasRequest *r = t->news.head;

	if (r == NULL)
		return NULL;
	sas_transport_request_forget_news(r);
	return r->reply->owner;
}

/* SPDX-License-Identifier: PostgreSQL */
/*
 * peers.c: passes an actor's questions to the registry.
 *
 * Without a registry (library not preloaded) there are no workers and no
 * leader: a session can tick by hand.
 */
#include "postgres.h"

#include "access/xact.h"
#include "base/grow.h"
#include "base/peers.h"
#include "miscadmin.h"
#include "utils/memutils.h"

static const SasPeersMethods *peers_methods = NULL;

/* Of this transaction, in TopTransactionContext. */
static int64 *peers_interrupts = NULL;
static int	peers_n_interrupts = 0;
static int	peers_room = 0;

void
sas_base_peers_set_methods(const SasPeersMethods *methods)
{
	peers_methods = methods;
}

int
sas_base_peers_live(int64 *ids, int max, int64 *newest)
{
	*newest = 0;
	return peers_methods ? peers_methods->live(ids, max, newest) : 0;
}

void
sas_base_peers_terminate(int64 worker_id)
{
	if (peers_methods)
		peers_methods->terminate(worker_id);
}

bool
sas_base_peers_lead(SasActor actor)
{
	return peers_methods ? peers_methods->lead(actor) : true;
}

void
sas_base_peers_begin_invocation(int64 task, int64 until_us)
{
	if (peers_methods)
		peers_methods->invocation(task, until_us);
}

void
sas_base_peers_end_invocation(void)
{
	if (peers_methods)
		peers_methods->invocation(0, 0);
}

int64
sas_base_peers_step(const unsigned char request_id[16])
{
	int64		task;

	memcpy(&task, request_id, sizeof(task));
	return -1 - (task & (PG_INT64_MAX >> 1));
}

static void
peers_xact_callback(XactEvent event, void *arg)
{
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE)
		return;
	if (event == XACT_EVENT_COMMIT && peers_methods)
		for (int i = 0; i < peers_n_interrupts; i++)
			peers_methods->interrupt(peers_interrupts[i]);
	peers_interrupts = NULL;
	peers_n_interrupts = peers_room = 0;
}

void
sas_base_peers_interrupt_at_commit(int64 task)
{
	static bool registered = false;

	if (!registered)
		RegisterXactCallback(peers_xact_callback, NULL);
	registered = true;
	peers_interrupts = sas_base_grow(TopTransactionContext, peers_interrupts, peers_n_interrupts, &peers_room, sizeof(int64));
	peers_interrupts[peers_n_interrupts++] = task;
}

bool
sas_base_peers_works_for(int64 task)
{
	return peers_methods ? peers_methods->works_for(task) : false;
}

SasInterrupted
sas_base_peers_interrupted(int64 task)
{
	return peers_methods ? peers_methods->interrupted(task) : SAS_INTERRUPTED_NOT;
}

bool
sas_base_peers_enter_owner(Oid owner, int64 most)
{
	return peers_methods ? peers_methods->enter_owner(owner, most) : true;
}

void
sas_base_peers_leave_owner(void)
{
	if (peers_methods)
		peers_methods->leave_owner();
}

Oid
sas_base_peers_leave_last(bool begins)
{
	return peers_methods ? peers_methods->leave_last(begins) : InvalidOid;
}

void
sas_base_peers_left_last(void)
{
	if (peers_methods)
		peers_methods->left_last();
}

void
sas_base_peers_wait_for_owner(bool waits)
{
	if (peers_methods)
		peers_methods->wait_for_owner(waits);
}

bool
sas_base_peers_waits_for_owner(void)
{
	return peers_methods ? peers_methods->waits_for_owner() : false;
}

int
sas_base_peers_other_owners(Oid *owners, int max)
{
	return peers_methods ? peers_methods->other_owners(owners, max) : 0;
}

void
sas_base_peers_set_unwritten(bool unwritten)
{
	if (peers_methods)
		peers_methods->set_unwritten(unwritten);
}

int
sas_base_peers_unwritten(int64 *ids, int max)
{
	return peers_methods ? peers_methods->unwritten(ids, max) : 0;
}

void
sas_base_peers_hold_calls(int64 until_us, int64 ahead_us)
{
	if (peers_methods)
		peers_methods->hold_calls(until_us, ahead_us);
}

int
sas_base_peers_holding(int64 *ids, int max)
{
	return peers_methods ? peers_methods->holding(ids, max) : 0;
}

int
sas_base_peers_overdue(SasPeerInvocation *invocations, int max, int64 *next_us)
{
	*next_us = 0;
	return peers_methods ? peers_methods->overdue(invocations, max, next_us) : 0;
}

void
sas_base_peers_begin_user_code(const char *what)
{
	if (peers_methods)
		peers_methods->user_code(what);
	sas_base_in_user_code = true;
	/*
	 * a request to end that comes from here on cancels the code; one that came
	 * before is honoured here
	 */
	if (sas_base_stopping)
		InterruptPending = QueryCancelPending = true;
}

void
sas_base_peers_end_user_code(void)
{
	sas_base_in_user_code = false;
	if (peers_methods)
		peers_methods->user_code(NULL);
}

int
sas_base_peers_long_calls(SasPeerCall *calls, int max)
{
	return peers_methods ? peers_methods->long_calls(calls, max) : 0;
}

bool
sas_base_peers_only_free(void)
{
	return peers_methods ? peers_methods->only_free() : false;
}

void
sas_base_peers_lack(bool lacks)
{
	if (peers_methods)
		peers_methods->lack(lacks);
}

int
sas_base_peers_stalled(void)
{
	return peers_methods ? peers_methods->stalled() : 0;
}

/* SPDX-License-Identifier: PostgreSQL */
/*
 * peers.c: passes an actor's questions to the registry.
 *
 * Without a registry (library not preloaded) there are no workers and no
 * leader: a session can tick by hand.
 */
#include "postgres.h"

#include "base/peers.h"

static const SasPeersMethods *peers_methods = NULL;

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
}

void
sas_base_peers_end_user_code(void)
{
	if (peers_methods)
		peers_methods->user_code(NULL);
}

int
sas_base_peers_stalled(void)
{
	return peers_methods ? peers_methods->stalled() : 0;
}

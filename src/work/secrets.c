/* SPDX-License-Identifier: PostgreSQL */
/*
 * secrets.c: lists of values, the longest first: one may be the beginning of
 * another, and is masked after it.
 */
#include "postgres.h"

#include "base/secret_file.h"
#include "utils/memutils.h"
#include "work/secrets.h"

static bool
secrets_have(const List *secrets, const char *value)
{
	ListCell   *lc;

	foreach(lc, secrets)
		if (strcmp(lfirst(lc), value) == 0)
			return true;
	return false;
}

static int
secrets_longest_first(const ListCell *a, const ListCell *b)
{
	size_t		len_a = strlen(lfirst(a));
	size_t		len_b = strlen(lfirst(b));

	return len_a > len_b ? -1 : len_a < len_b;
}

/*
 * Adds to the first list copies of those values of the second that it does not
 * have, up to that length.
 */
static List *
secrets_add(List *secrets, const List *more, int at_most)
{
	ListCell   *lc;

	foreach(lc, more)
		if (list_length(secrets) < at_most && !secrets_have(secrets, lfirst(lc)))
			secrets = lappend(secrets, pstrdup(lfirst(lc)));
	return secrets;
}

void
sas_work_secrets_carry(SasStoredAgent *agent, const SasStoredAgent *before)
{
	MemoryContext old = MemoryContextSwitchTo(agent->context);
	List	   *was = secrets_add(secrets_add(NIL, before->current, PG_INT32_MAX), before->former, PG_INT32_MAX);
	ListCell   *lc;

	/* and what the store knew as former values of secrets to which the agent may refer no longer */
	was = secrets_add(was, before->secrets, PG_INT32_MAX);
	/* the newest first, so that the oldest go when there are too many */
	foreach(lc, was)
		if (list_length(agent->former) < SAS_FORMER_SECRETS && !secrets_have(agent->secrets, lfirst(lc)) && !secrets_have(before->tokens, lfirst(lc)))
			agent->former = lappend(agent->former, lfirst(lc));
	/* a value that is also that of a secret stays as long as this one */
	foreach(lc, before->tokens)
		if (!secrets_have(agent->secrets, lfirst(lc)))
			agent->tokens = lappend(agent->tokens, pstrdup(lfirst(lc)));
	agent->secrets = secrets_add(agent->secrets, agent->former, PG_INT32_MAX);
	agent->secrets = secrets_add(agent->secrets, agent->tokens, PG_INT32_MAX);
	list_sort(agent->secrets, secrets_longest_first);
	MemoryContextSwitchTo(old);
}

/* Frees the value in this list, if it is there. */
static List *
secrets_remove(List *secrets, const char *value)
{
	ListCell   *lc;

	foreach(lc, secrets)
	{
		char	   *found = lfirst(lc);

		if (found == value || strcmp(found, value) != 0)
			continue;
		secrets = foreach_delete_current(secrets, lc);
		explicit_bzero(found, strlen(found));
		pfree(found);
	}
	return secrets;
}

void
sas_work_secrets_learn(SasStoredAgent *agent, const char *value)
{
	bool		known = secrets_have(agent->secrets, value);
	MemoryContext old;
	char	   *oldest;

	if (known && !secrets_have(agent->tokens, value))
		return;
	old = MemoryContextSwitchTo(agent->context);
	/* one that is given again is the newest */
	agent->tokens = lcons(pstrdup(value), secrets_remove(agent->tokens, value));
	if (!known)
		agent->secrets = lappend(agent->secrets, pstrdup(value));
	list_sort(agent->secrets, secrets_longest_first);
	MemoryContextSwitchTo(old);
	if (list_length(agent->tokens) <= SAS_FORMER_SECRETS)
		return;
	oldest = llast(agent->tokens);
	agent->tokens = list_delete_last(agent->tokens);
	agent->secrets = secrets_remove(agent->secrets, oldest);
	explicit_bzero(oldest, strlen(oldest));
	pfree(oldest);
}

List *
sas_work_secrets_sent(const SasStoredAgent *agent, MemoryContext context)
{
	MemoryContext old = MemoryContextSwitchTo(context);
	List	   *sent = secrets_add(NIL, agent->current, PG_INT32_MAX);

	MemoryContextSwitchTo(old);
	return sent;
}

const SasStoredAgent *
sas_work_secrets_masking(const SasStoredAgent *agent, List *sent)
{
	SasStoredAgent *masking;
	ListCell   *lc;
	bool		known = true;

	foreach(lc, sent)
		known = known && secrets_have(agent->secrets, lfirst(lc));
	if (known)
		return agent;
	masking = palloc(sizeof(SasStoredAgent));
	*masking = *agent;
	masking->secrets = secrets_add(list_copy(agent->secrets), sent, PG_INT32_MAX);
	list_sort(masking->secrets, secrets_longest_first);
	return masking;
}

bool
sas_work_secrets_stale(const SasStoredAgent *agent)
{
	ListCell   *file;
	ListCell   *read;

	forboth(file, agent->secret_files, read, agent->secret_stamps)
	{
		char		stamp[SAS_SECRET_STAMP_LEN];

		sas_base_secret_file_stamp(lfirst(file), stamp);
		if (strcmp(stamp, lfirst(read)) != 0)
			return true;
	}
	return false;
}

/* SPDX-License-Identifier: PostgreSQL */
/*
 * turns.c: which owners let the others go first.
 *
 * Owners take turns with what they have ready (sql/state/turns.sql), but one
 * call may take a second, and another one a millisecond.  So owners take turns
 * with the time of a worker, too: an owner whose call was slow owes the others
 * that time, and is served again when they have had as much, or need no more.
 *
 * The other reason: a call of more than a second is replaced by another
 * worker.  If that one took the next call of the same owner, the others would
 * wait for one worker after the other, until the owner has as many as it may.
 * So the last worker that is free serves the others first.  If they have much
 * to do, it says that a worker is lacking.  There may be no more workers than
 * there are, so that it serves all every now and then, and what it has claimed.
 *
 * A scheduler does the same with messages, whose templates and paths may cost much.
 *
 * Each process knows only what it has done itself.  A tick that begins with the
 * others and finds nothing has paid all debts.
 */
#include "postgres.h"

#include "base/clock.h"
#include "base/peers.h"
#include "work/turns.h"

/* an owner that owes less is served with the others; none owes more than the second number */
#define TURNS_OWED_US 50000
#define TURNS_OWED_MAX_US 1000000
/* after a look that found nothing, for so long, none lets others go first for what other workers do */
#define TURNS_VAIN_US 50000
/* the others are served so long without an end: a worker is lacking */
#define TURNS_LACK_US 500000
/* and so long while there is none: then all are served for the second time */
#define TURNS_PATIENCE_US 1000000
#define TURNS_ALL_US 50000

#define TURNS_MAX 64

typedef struct Turn
{
	Oid			owner;
	int64		owed_us;
} Turn;

static Turn turns_owed[TURNS_MAX];
static int	turns_n_owed = 0;
static Oid	turns_waiting[2 * TURNS_MAX];
static int	turns_n_waiting = 0;	/* 0: none lets others go first now */
static int	turns_n_owing = 0;	/* the first of these: those that owe */
static bool turns_is_last;		/* as all others are in long calls */
static int64 turns_vain_us = 0; /* when a look found nothing; 0: not lately */
static int64 turns_serves_us = 0;	/* since when the others are served beside long calls; 0: they are not */
static int64 turns_patient_us;	/* since when, or from when on, they are without all being served */

static void
turns_owe(Oid owner, int64 spent_us)
{
	int			place = 0;

	while (place < turns_n_owed && turns_owed[place].owner != owner)
		place++;
	if (place == turns_n_owed && turns_n_owed < TURNS_MAX)
		turns_owed[turns_n_owed++] = (Turn) {owner, 0};
	/* of so many, one is forgiven */
	else if (place == turns_n_owed)
		turns_owed[place = owner % TURNS_MAX] = (Turn) {owner, 0};
	turns_owed[place].owed_us = Min(turns_owed[place].owed_us + spent_us, TURNS_OWED_MAX_US);
}

void
sas_work_turns_charge(Oid owner, int64 spent_us, bool was_slow)
{
	int			left = 0;

	for (int i = 0; i < turns_n_owed; i++)
	{
		Turn		turn = turns_owed[i];

		if (turn.owner != owner)
			turn.owed_us -= spent_us;
		if (turn.owed_us > 0)
			turns_owed[left++] = turn;
	}
	turns_n_owed = left;
	if (was_slow && OidIsValid(owner))
		turns_owe(owner, spent_us);
}

bool
sas_work_turns_owed(void)
{
	return turns_n_owed > 0;
}

static void
turns_add(Oid owner)
{
	for (int i = 0; i < turns_n_waiting; i++)
		if (turns_waiting[i] == owner)
			return;
	if (OidIsValid(owner) && turns_n_waiting < lengthof(turns_waiting))
		turns_waiting[turns_n_waiting++] = owner;
}

/* Have the others been served so long that all are to be served now? */
static bool
turns_all(int64 now)
{
	if (turns_serves_us == 0)
		return false;
	if (now - turns_patient_us > TURNS_PATIENCE_US)
		turns_patient_us = now + TURNS_ALL_US;
	return now < turns_patient_us;
}

bool
sas_work_turns_begin(void)
{
	SasPeerCall calls[TURNS_MAX];
	int64		now = sas_base_clock_monotonic_us();
	bool		all;
	int			n;

	turns_n_waiting = 0;
	for (int i = 0; i < turns_n_owed; i++)
		if (turns_owed[i].owed_us > TURNS_OWED_US)
			turns_add(turns_owed[i].owner);
	turns_n_owing = turns_n_waiting;
	turns_is_last = sas_base_peers_only_free();
	all = turns_is_last && turns_all(now);
	if (turns_is_last && !all && now - turns_vain_us > TURNS_VAIN_US)
	{
		n = Min(sas_base_peers_long_calls(calls, TURNS_MAX), TURNS_MAX);
		for (int i = 0; i < n; i++)
			turns_add(calls[i].owner);
	}
	if (turns_n_waiting == 0 && !all)
	{
		turns_serves_us = 0;
		sas_base_peers_lack(false);
	}
	return turns_n_waiting > 0 || all;
}

void
sas_work_turns_end(bool served)
{
	int64		now = sas_base_clock_monotonic_us();

	turns_n_waiting = 0;
	if (!served)
	{
		turns_n_owed = 0;
		turns_vain_us = now;
	}
	if (!served || !turns_is_last)
		turns_serves_us = 0;
	else if (turns_serves_us == 0)
		turns_serves_us = turns_patient_us = now;
	sas_base_peers_lack(turns_serves_us != 0 && now - turns_serves_us > TURNS_LACK_US);
}

bool
sas_work_turns_open(void)
{
	return turns_n_waiting > 0;
}

bool
sas_work_turns_waits(Oid owner)
{
	for (int i = 0; i < turns_n_waiting; i++)
		if (turns_waiting[i] == owner)
			return true;
	return false;
}

bool
sas_work_turns_owes(Oid owner)
{
	for (int i = 0; i < Min(turns_n_owing, turns_n_waiting); i++)
		if (turns_waiting[i] == owner)
			return true;
	return false;
}

int
sas_work_turns_owners(Oid *owners, int max)
{
	int			n = Min(turns_n_waiting, max);

	memcpy(owners, turns_waiting, sizeof(Oid) * n);
	return n;
}

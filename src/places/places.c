/* SPDX-License-Identifier: PostgreSQL */
/*
 * places.c: in flight, rate and breaker of each agent, in shared memory.
 *
 * Without shared memory (library not preloaded) everything is granted: there
 * are no workers then that could ask.
 */
#include "postgres.h"

#include "base/clock.h"
#include "miscadmin.h"
#include "places/places.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

#define SAS_PLACES 4096

/* a second's worth of tokens times this may be used at once */
#define SAS_BURST_S 0.1

/* a call that has rested asks again well within this */
#define SAS_RESTED_US 100000

typedef struct SasPlace
{
	Oid			dboid;			/* InvalidOid: free */
	int			agent_id;
	int			in_flight;
	bool		refused;		/* somebody waits for a place */
	bool		turned_away;	/* somebody got none at all since one was granted the last time */
	int64		rested_until_us;	/* the next free place is for a call that has rested */
	bool		told;			/* the stored breaker state was loaded */
	double		tokens;
	int64		filled_us;
	int64		rate_until_us;	/* there is no token before that */
	SasBreaker	breaker;
	int			failures;
	int64		first_failure_us;
	int64		open_until_us;
	int			probe_pid;		/* half-open: who has the probe; 0: nobody */
	int64		mended_us;		/* when somebody said so */
} SasPlace;

typedef struct SasPlaces
{
	LWLock		lock;
	SasPlace	place[SAS_PLACES];
} SasPlaces;

static SasPlaces *places = NULL;

/* what this process holds, by index into the shared array */
static int	held[SAS_PLACES];
static bool exit_registered = false;

Size
sas_places_shmem_size(void)
{
	return sizeof(SasPlaces);
}

/* With AddinShmemInitLock held. */
void
sas_places_shmem_init(void)
{
	bool		found;

	places = ShmemInitStruct("sas places", sizeof(SasPlaces), &found);
	if (!found)
	{
		memset(places, 0, sizeof(SasPlaces));
		LWLockInitialize(&places->lock, LWLockNewTrancheId());
	}
	LWLockRegisterTranche(places->lock.tranche, "sas_places");
}

static void
release_all(int code, Datum arg)
{
	LWLockAcquire(&places->lock, LW_EXCLUSIVE);
	for (int i = 0; i < SAS_PLACES; i++)
	{
		places->place[i].in_flight -= held[i];
		held[i] = 0;
		if (places->place[i].probe_pid == MyProcPid)
			places->place[i].probe_pid = 0;
	}
	LWLockRelease(&places->lock);
}

/* The entry of an agent of this database, made when there is none; NULL when the array is full. Lock held. */
static SasPlace *
find(int agent_id)
{
	unsigned	at = (MyDatabaseId * 31u + (unsigned) agent_id) % SAS_PLACES;

	for (int i = 0; i < SAS_PLACES; i++)
	{
		SasPlace   *p = &places->place[(at + i) % SAS_PLACES];

		if (p->dboid == MyDatabaseId && p->agent_id == agent_id)
			return p;
		if (p->dboid == InvalidOid)
		{
			memset(p, 0, sizeof(*p));
			p->dboid = MyDatabaseId;
			p->agent_id = agent_id;
			return p;
		}
	}
	return NULL;
}

static SasPlace *
lock_and_find(int agent_id)
{
	SasPlace   *p;

	if (places == NULL)
		return NULL;
	if (!exit_registered)
	{
		before_shmem_exit(release_all, (Datum) 0);
		exit_registered = true;
	}
	LWLockAcquire(&places->lock, LW_EXCLUSIVE);
	p = find(agent_id);
	if (p == NULL)
		LWLockRelease(&places->lock);
	return p;
}

void
sas_places_load(int agent_id, SasBreaker breaker, int64 open_for_us)
{
	SasPlace   *p = lock_and_find(agent_id);

	if (p == NULL)
		return;
	if (!p->told)
	{
		p->told = true;
		p->breaker = breaker;
		p->open_until_us = sas_clock_monotonic_us() + open_for_us;
	}
	LWLockRelease(&places->lock);
}

static double
burst(const SasLimits *limits)
{
	return Max(1.0, limits->rate_per_s * SAS_BURST_S);
}

static void
fill(SasPlace *p, const SasLimits *limits, int64 now)
{
	if (p->filled_us == 0)
		p->tokens = burst(limits);
	else
		p->tokens = Min(burst(limits), p->tokens + (now - p->filled_us) * limits->rate_per_s / 1e6);
	p->filled_us = now;
}

int
sas_places_ask(int agent_id, const SasLimits *limits, int want, bool rested, int64 *retry_us)
{
	int64		now = sas_clock_monotonic_us();
	SasPlace   *p = lock_and_find(agent_id);
	int			granted = want;
	int			room;

	*retry_us = 0;
	if (p == NULL)
		return places == NULL ? want : 0;

	if (p->breaker == SAS_BREAKER_OPEN && limits->breaker_failures > 0)
	{
		if (now < p->open_until_us)
		{
			*retry_us = p->open_until_us;
			granted = 0;
		}
		else
		{
			p->breaker = SAS_BREAKER_HALF_OPEN;
			p->probe_pid = 0;
		}
	}
	if (p->breaker == SAS_BREAKER_HALF_OPEN && granted > 0 && limits->breaker_failures > 0)
		granted = p->probe_pid == 0 ? 1 : 0;

	room = Max(0, limits->max_in_flight - p->in_flight);
	if (rested)
		p->rested_until_us = room > 0 ? 0 : now + SAS_RESTED_US;
	else if (room > 0 && now < p->rested_until_us)
	{
		room--;
		*retry_us = Max(*retry_us, p->rested_until_us);
	}
	if (granted > room)
	{
		granted = room;
		p->refused = true;
	}
	if (granted > 0 && limits->rate_per_s > 0)
	{
		fill(p, limits, now);
		if (granted > (int) p->tokens)
		{
			granted = (int) p->tokens;
			p->rate_until_us = now + (int64) ((1.0 + granted - p->tokens) * 1e6 / limits->rate_per_s) + 1;
			*retry_us = p->rate_until_us;
		}
		p->tokens -= granted;
	}
	if (granted > 0)
	{
		if (p->breaker == SAS_BREAKER_HALF_OPEN)
			p->probe_pid = MyProcPid;
		p->in_flight += granted;
		held[p - places->place] += granted;
	}
	/* who is granted a place looks afterwards, and finds what others came for */
	if (!rested && (granted > 0 || *retry_us == 0))
		p->turned_away = granted == 0;
	LWLockRelease(&places->lock);
	return granted;
}

bool
sas_places_return(int agent_id, const SasLimits *limits, int n)
{
	SasPlace   *p;
	bool		turned_away;

	if (n <= 0 || (p = lock_and_find(agent_id)) == NULL)
		return false;
	p->in_flight -= n;
	held[p - places->place] -= n;
	if (limits->rate_per_s > 0)
	{
		p->tokens = Min(burst(limits), p->tokens + n);
		p->rate_until_us = 0;
	}
	/* half-open grants one place, so what comes back unused is the probe */
	if (p->probe_pid == MyProcPid)
		p->probe_pid = 0;
	turned_away = p->turned_away;
	p->turned_away = false;
	LWLockRelease(&places->lock);
	return turned_away;
}

bool
sas_places_spend(int agent_id, const SasLimits *limits, int64 *retry_us)
{
	int64		now = sas_clock_monotonic_us();
	SasPlace   *p;
	bool		spent = true;

	if (limits->rate_per_s <= 0 || (p = lock_and_find(agent_id)) == NULL)
		return true;
	fill(p, limits, now);
	if (p->tokens >= 1)
		p->tokens -= 1;
	else
	{
		spent = false;
		*retry_us = now + (int64) ((1.0 - p->tokens) * 1e6 / limits->rate_per_s) + 1;
	}
	LWLockRelease(&places->lock);
	return spent;
}

bool
sas_places_free(int agent_id)
{
	SasPlace   *p = lock_and_find(agent_id);
	bool		refused;

	if (p == NULL)
		return false;
	p->in_flight--;
	held[p - places->place]--;
	if (p->probe_pid == MyProcPid && held[p - places->place] == 0)
		p->probe_pid = 0;
	refused = p->refused;
	p->refused = false;
	LWLockRelease(&places->lock);
	return refused;
}

SasBreaker
sas_places_breaker(int agent_id)
{
	SasPlace   *p = lock_and_find(agent_id);
	SasBreaker	breaker;

	if (p == NULL)
		return SAS_BREAKER_CLOSED;
	breaker = p->breaker;
	LWLockRelease(&places->lock);
	return breaker;
}

bool
sas_places_report(int agent_id, const SasLimits *limits, bool success, int64 begun_us, SasBreaker *now_is)
{
	int64		now = sas_clock_monotonic_us();
	SasPlace   *p;
	SasBreaker	before;

	if (limits->breaker_failures == 0 || (p = lock_and_find(agent_id)) == NULL)
		return false;
	before = p->breaker;
	if (!success && begun_us < p->mended_us)
		;
	else if (success)
	{
		p->failures = 0;
		/* an answer to a call from before the breaker opened says nothing new */
		if (p->breaker == SAS_BREAKER_HALF_OPEN)
		{
			p->breaker = SAS_BREAKER_CLOSED;
			p->probe_pid = 0;
		}
	}
	else if (p->breaker == SAS_BREAKER_HALF_OPEN)
	{
		p->breaker = SAS_BREAKER_OPEN;
		p->open_until_us = now + limits->breaker_open_us;
		p->probe_pid = 0;
	}
	else if (p->breaker == SAS_BREAKER_CLOSED)
	{
		if (p->failures == 0 || now - p->first_failure_us > limits->breaker_window_us)
		{
			p->failures = 0;
			p->first_failure_us = now;
		}
		if (++p->failures >= limits->breaker_failures)
		{
			p->breaker = SAS_BREAKER_OPEN;
			p->open_until_us = now + limits->breaker_open_us;
			p->failures = 0;
		}
	}
	*now_is = p->breaker;
	LWLockRelease(&places->lock);
	return before != *now_is;
}

void
sas_places_half_open(int agent_id)
{
	SasPlace   *p = lock_and_find(agent_id);

	if (p == NULL)
		return;
	p->mended_us = sas_clock_monotonic_us();
	p->failures = 0;
	/* a probe that is on its way may hang for long in what has been mended */
	if (p->breaker != SAS_BREAKER_CLOSED)
	{
		p->breaker = SAS_BREAKER_HALF_OPEN;
		p->probe_pid = 0;
	}
	LWLockRelease(&places->lock);
}

int
sas_places_view(SasPlaceView **views)
{
	int			n = 0;
	int64		now = sas_clock_monotonic_us();

	*views = palloc(sizeof(SasPlaceView) * SAS_PLACES);
	if (places == NULL)
		return 0;
	LWLockAcquire(&places->lock, LW_SHARED);
	for (int i = 0; i < SAS_PLACES; i++)
	{
		SasPlace   *p = &places->place[i];

		if (p->dboid != MyDatabaseId || !p->told)
			continue;
		(*views)[n].agent_id = p->agent_id;
		(*views)[n].in_flight = p->in_flight;
		(*views)[n].breaker = p->breaker;
		(*views)[n].open_for_us = p->breaker == SAS_BREAKER_OPEN ? Max(0, p->open_until_us - now) : 0;
		(*views)[n].rate_for_us = Max(0, p->rate_until_us - now);
		n++;
	}
	LWLockRelease(&places->lock);
	return n;
}

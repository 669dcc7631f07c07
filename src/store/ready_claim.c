/* SPDX-License-Identifier: PostgreSQL */
/*
 * ready_claim.c: takes the first rows of owners in lanes of _sas.ready, and
 * passes a bounded number of others.
 *
 * A claim looks at the first rows of an owner, so that an urgent one is found
 * at once.  When it has passed too many there, it walks on from where the
 * claim before it has stopped, as far again.  That place belongs to this
 * process: of several workers each passes all rows once.
 *
 * What becomes free among the rows that were passed is announced by the end of
 * the transaction that held it.  If this process was woken since, a second
 * walk goes over them, in turn with the first one.  When all walks have ended,
 * nothing is passed again before the next wake-up.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/relscan.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "miscadmin.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/array.h"
#include "base/compat.h"
#include "store/ready_claim.h"
#include "store/ready_index.h"

/* Of SAS_READY_PASS, this many of each owner at least. */
#define READY_CLAIM_PASS_LEAST 100

/* Where the walks over an owner's rows in a lane have stopped. */
typedef struct ReadyClaimStop
{
	int			lane;
	Oid			owner;
	uint32		woken;			/* when the last walk began that goes over all rows */
	SasReadyPlace far;			/* all rows before it were passed once */
	bool		has_ended;		/* there are none behind it */
	SasReadyPlace again;		/* those before it were passed a second time */
	bool		goes_again;
	bool		was_far;		/* the last claim went on with the first walk */
} ReadyClaimStop;

#define READY_CLAIM_STOPS 256

static ReadyClaimStop ready_claim_stops[READY_CLAIM_STOPS];
static int	ready_claim_n_stops = 0;
static uint32 ready_claim_woken = 0; /* when this claim began */
static SubTransactionId ready_claim_within = InvalidSubTransactionId;	/* that of the last claim, while it is open */

/* Lanes in which a scan for this claim was cut. */
static int	ready_claim_cut[READY_CLAIM_STOPS];
static int	ready_claim_n_cut = 0;

/* Of how many owners the scans for this claim have come to the end; -1: not of all that it scanned. */
static int	ready_claim_n_emptied = 0;

/* ------------------------------------------------------------------ stops */

static ReadyClaimStop *
ready_claim_stop(int lane, Oid owner)
{
	for (int i = 0; i < ready_claim_n_stops; i++)
		if (ready_claim_stops[i].lane == lane && ready_claim_stops[i].owner == owner)
			return &ready_claim_stops[i];
	return NULL;
}

static void
ready_claim_note_cut(int lane)
{
	if (!sas_store_ready_was_cut(lane) && ready_claim_n_cut < READY_CLAIM_STOPS)
		ready_claim_cut[ready_claim_n_cut++] = lane;
}

/* A first walk, from that place on.  NULL: there is no room, and it ends here; the next wake-up looks again. */
static ReadyClaimStop *
ready_claim_new_stop(int lane, Oid owner, const SasReadyPlace *place)
{
	ReadyClaimStop *stop = NULL;

	if (ready_claim_n_stops < READY_CLAIM_STOPS)
		stop = &ready_claim_stops[ready_claim_n_stops++];
	/* one that would walk again if its owner has as many rows still */
	for (int i = 0; stop == NULL && i < READY_CLAIM_STOPS; i++)
		if (ready_claim_stops[i].woken != ready_claim_woken)
			stop = &ready_claim_stops[i];
	if (stop == NULL)
		return NULL;
	memset(stop, 0, sizeof(ReadyClaimStop));
	stop->lane = lane;
	stop->owner = owner;
	stop->woken = ready_claim_woken;
	stop->far = *place;
	return stop;
}

static void
ready_claim_forget_stop(int lane, Oid owner)
{
	ReadyClaimStop *stop = ready_claim_stop(lane, owner);

	if (stop != NULL)
		*stop = ready_claim_stops[--ready_claim_n_stops];
}

void
sas_store_ready_begin(uint32 woken)
{
	ready_claim_woken = woken;
	ready_claim_n_cut = 0;
	ready_claim_n_emptied = 0;
}

/* What a walk has taken, and an abort gives back, lies before the place where it has stopped. */
static void
ready_claim_on_subxact(SubXactEvent event, SubTransactionId id, SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB && ready_claim_within >= id)
		ready_claim_n_stops = 0;
}

static void
ready_claim_on_xact(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_ABORT && ready_claim_within != InvalidSubTransactionId)
		ready_claim_n_stops = 0;
	if (event == XACT_EVENT_ABORT || event == XACT_EVENT_COMMIT || event == XACT_EVENT_PREPARE)
		ready_claim_within = InvalidSubTransactionId;
}

static void
ready_claim_note_transaction(void)
{
	static bool registered = false;

	if (!registered)
	{
		RegisterXactCallback(ready_claim_on_xact, NULL);
		RegisterSubXactCallback(ready_claim_on_subxact, NULL);
		registered = true;
	}
	ready_claim_within = GetCurrentSubTransactionId();
}

bool
sas_store_ready_any_cut(void)
{
	return ready_claim_n_cut > 0;
}

bool
sas_store_ready_was_cut(int lane)
{
	for (int i = 0; i < ready_claim_n_cut; i++)
		if (ready_claim_cut[i] == lane)
			return true;
	return false;
}

bool
sas_store_ready_was_emptied(int quantity)
{
	return ready_claim_n_emptied >= 0 && ready_claim_n_emptied < quantity;
}

/* ------------------------------------------------------------------ locks */

/* What a claim locks, and leaves. */
typedef struct ReadyClaim
{
	SasReadyScan scan;
	const SasReadyRules *rules;
	Relation	runs;			/* NULL: they are not locked */
	Relation	run_keys;
	TupleTableSlot *run;
	TupleTableSlot *locked_run;
} ReadyClaim;

static void
ready_claim_open(ReadyClaim *c, const SasReadyRules *rules)
{
	Oid			schema = get_namespace_oid("_sas", false);

	memset(c, 0, sizeof(ReadyClaim));
	c->rules = rules;
	sas_store_ready_open(&c->scan, rules->rows != NULL ? RowExclusiveLock : RowShareLock);
	if (!rules->locks_runs)
		return;
	c->runs = table_open(get_relname_relid("run", schema), RowShareLock);
	c->run_keys = index_open(get_relname_relid("run_pkey", schema), AccessShareLock);
	c->run = table_slot_create(c->runs, NULL);
	c->locked_run = table_slot_create(c->runs, NULL);
}

static void
ready_claim_close(ReadyClaim *c)
{
	if (c->runs != NULL)
	{
		ExecDropSingleTupleTableSlot(c->run);
		ExecDropSingleTupleTableSlot(c->locked_run);
		index_close(c->run_keys, NoLock);
		table_close(c->runs, NoLock);
	}
	sas_store_ready_close(&c->scan);
}

/* Locks the run, so that ticks leave it alone; false: another transaction has locked it. */
static bool
ready_claim_lock_run(ReadyClaim *c, int64 run_id)
{
	int			flags = IsolationUsesXactSnapshot() ? 0 : TUPLE_LOCK_FLAG_FIND_LAST_VERSION;
	TM_Result	result = TM_Deleted;
	TM_FailureData failure;
	ScanKeyData key;
	IndexScanDesc scan;

	ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(run_id));
	scan = sas_compat_index_beginscan(c->runs, c->run_keys, GetActiveSnapshot(), 1);
	index_rescan(scan, &key, 1, NULL, 0);
	if (index_getnext_slot(scan, ForwardScanDirection, c->run))
	{
		ItemPointerData place = c->run->tts_tid;

		result = table_tuple_lock(c->runs, &place, GetActiveSnapshot(), c->locked_run, GetCurrentCommandId(true), LockTupleShare,
								  LockWaitSkip, flags, &failure);
	}
	index_endscan(scan);
	ExecClearTuple(c->run);
	ExecClearTuple(c->locked_run);
	return result == TM_Ok;
}

static bool
ready_claim_is_left_out(const SasReadyRules *rules, int64 run_id)
{
	return rules->n_left_out > 0 && bsearch(&run_id, rules->left_out, rules->n_left_out, sizeof(int64), sas_base_compare_int64) != NULL;
}

/* False: another transaction has locked or changed the row. */
static bool
ready_claim_lock(SasReadyScan *s)
{
	ItemPointerData place = s->slot->tts_tid;
	TM_FailureData failure;
	TM_Result	result = table_tuple_lock(s->table, &place, GetActiveSnapshot(), s->locked, GetCurrentCommandId(true), LockTupleExclusive,
										  LockWaitSkip, 0, &failure);

	ExecClearTuple(s->locked);
	if (result == TM_Invisible)
		elog(ERROR, "a row of _sas.ready that a scan has seen is not visible");
	return result == TM_Ok;
}

static TM_Result
ready_claim_try_delete(SasReadyScan *s, bool is_locked)
{
	ItemPointerData place = s->slot->tts_tid;
	TM_FailureData failure;

	return table_tuple_delete(s->table, &place, GetCurrentCommandId(true), GetActiveSnapshot(), InvalidSnapshot, is_locked, &failure,
							  false);
}

/* The same for a row that is deleted at once. */
static bool
ready_claim_delete(SasReadyScan *s)
{
	TM_Result	result = ready_claim_try_delete(s, false);

	/* this transaction itself may have locked it */
	if (result == TM_BeingModified && ready_claim_lock(s))
		result = ready_claim_try_delete(s, true);
	if (result == TM_Invisible)
		elog(ERROR, "a row of _sas.ready that a scan has seen is not visible");
	return result == TM_Ok;
}

static bool
ready_claim_is_alone(SasReadyScan *s)
{
	bool		isnull;

	return DatumGetBool(slot_getattr(s->slot, s->alone, &isnull));
}

/* What a claim has locked. */
typedef struct ReadyTaken
{
	ItemPointerData *places;
	int			n;
	int			most;			/* there is room for so many */
	bool		over;			/* nothing may come after the last one */
} ReadyTaken;

static void
ready_claim_take(const ReadyClaim *c, ReadyTaken *taken, bool alone)
{
	TupleTableSlot *slot = c->scan.slot;

	if (taken->n == taken->most)
	{
		taken->most *= 2;
		taken->places = repalloc(taken->places, sizeof(ItemPointerData) * taken->most);
	}
	taken->places[taken->n++] = slot->tts_tid;
	taken->over = alone;
	if (c->rules->rows != NULL)
		tuplestore_puttupleslot(c->rules->rows, slot);
}

typedef enum ReadyClaimEnd
{
	READY_CLAIM_DONE,			/* the share is full, or nothing more may be taken */
	READY_CLAIM_NO_MORE,			/* there are no further rows */
	READY_CLAIM_CUT				/* it has passed too many: s->at has not been looked at */
} ReadyClaimEnd;

/* May it be taken, and is it locked, or deleted, now? */
static bool
ready_claim_get(ReadyClaim *c)
{
	int64		run_id = c->scan.at.run_id;

	if (ready_claim_is_left_out(c->rules, run_id) || (c->runs != NULL && !ready_claim_lock_run(c, run_id)))
		return false;
	return c->rules->rows != NULL ? ready_claim_delete(&c->scan) : ready_claim_lock(&c->scan);
}

/* Takes rows from that place on, until there are so many. */
static ReadyClaimEnd
ready_claim_part(ReadyClaim *c, const SasReadyShare *share, const SasReadyPlace *from, int pass, int until, ReadyTaken *taken)
{
	SasReadyScan *s = &c->scan;
	int			passed = 0;
	SasReadyPlace last = {DT_NOBEGIN, PG_INT64_MIN};

	sas_store_ready_from(s, share->lane, share->owner, from);
	while (!taken->over && taken->n < until)
	{
		bool		alone;

		CHECK_FOR_INTERRUPTS();
		if (!sas_store_ready_next(s))
			return READY_CLAIM_NO_MORE;
		if (passed > pass && share->lane < SAS_READY_INLINE_LANE && (s->at.rank != last.rank || s->at.run_id != last.run_id))
			return READY_CLAIM_CUT;
		last = s->at;
		if (!index_fetch_heap(s->scan, s->slot))
		{
			passed++;
			continue;
		}
		alone = share->lane == 0 && ready_claim_is_alone(s);
		if (alone && taken->n > 0)
			taken->over = true;
		else if (ready_claim_get(c))
			ready_claim_take(c, taken, alone);
		else
			passed++;
	}
	return READY_CLAIM_DONE;
}

static bool
ready_claim_is_behind(const SasReadyPlace *a, const SasReadyPlace *b)
{
	return a->rank > b->rank || (a->rank == b->rank && a->run_id > b->run_id);
}

/* Goes on with one of the walks; first: the place behind the first rows, which every claim looks at. */
static void
ready_claim_walk(ReadyClaim *c, const SasReadyShare *share, ReadyClaimStop *stop, const SasReadyPlace *first, int pass, int until,
				ReadyTaken *taken)
{
	SasReadyPlace from;
	ReadyClaimEnd end;
	bool		far;

	if (!stop->goes_again && stop->woken != ready_claim_woken)
	{
		stop->goes_again = true;
		stop->again = *first;
		stop->woken = ready_claim_woken;
	}
	if (stop->has_ended && !stop->goes_again)
		return;
	far = !stop->has_ended && !(stop->goes_again && stop->was_far);
	stop->was_far = far;
	from = far ? stop->far : stop->again;
	if (ready_claim_is_behind(first, &from))
		from = *first;
	end = ready_claim_part(c, share, &from, pass, until, taken);
	if (far)
	{
		stop->has_ended = end == READY_CLAIM_NO_MORE;
		if (end == READY_CLAIM_CUT)
			stop->far = c->scan.at;
	}
	else
	{
		if (end == READY_CLAIM_CUT)
			stop->again = c->scan.at;
		stop->has_ended |= end == READY_CLAIM_NO_MORE;
		stop->goes_again = end == READY_CLAIM_DONE || (end == READY_CLAIM_CUT && (stop->has_ended || ready_claim_is_behind(&stop->far, &c->scan.at)));
	}
	if (!stop->has_ended || stop->goes_again || stop->woken != ready_claim_woken)
		ready_claim_note_cut(share->lane);
}

static void
ready_claim_share(ReadyClaim *c, const SasReadyShare *share, int pass, ReadyTaken *taken)
{
	SasReadyPlace from = {share->mark, PG_INT64_MIN};
	int			until = taken->n + share->share;
	ReadyClaimEnd end = ready_claim_part(c, share, &from, pass, until, taken);

	if (end != READY_CLAIM_NO_MORE)
		ready_claim_n_emptied = -1;
	else if (ready_claim_n_emptied >= 0)
		ready_claim_n_emptied++;
	if (end == READY_CLAIM_NO_MORE)
		ready_claim_forget_stop(share->lane, share->owner);
	if (end == READY_CLAIM_CUT)
	{
		SasReadyPlace first = c->scan.at;
		ReadyClaimStop *stop = ready_claim_stop(share->lane, share->owner);

		if (stop == NULL)
			stop = ready_claim_new_stop(share->lane, share->owner, &first);
		sas_store_ready_end(&c->scan);
		if (stop != NULL)
			ready_claim_walk(c, share, stop, &first, pass, until, taken);
	}
	sas_store_ready_end(&c->scan);
}

int
sas_store_lock_ready(const SasReadyShare *shares, int n, const SasReadyRules *rules, ItemPointerData **places)
{
	ReadyClaim	c;
	ReadyTaken	taken = {NULL, 0, 128, false};

	taken.places = palloc(sizeof(ItemPointerData) * taken.most);
	ready_claim_note_transaction();
	ready_claim_open(&c, rules);
	for (int i = 0; i < n; i++)
		if (!taken.over && shares[i].share > 0)
			ready_claim_share(&c, &shares[i], Max(READY_CLAIM_PASS_LEAST, SAS_READY_PASS / n), &taken);
		else
			ready_claim_n_emptied = -1;
	ready_claim_close(&c);
	*places = taken.places;
	return taken.n;
}

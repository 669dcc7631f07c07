/* SPDX-License-Identifier: PostgreSQL */
/*
 * ready_scan.c: scans of the index ready_claim that pass a bounded number of
 * rows.
 *
 * A statement cannot do that: an index scan of the executor goes on until it
 * has a visible row, and SKIP LOCKED until it has one that is free.
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
#include "executor/tuptable.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/compat.h"
#include "store/ready_scan.h"

/* So many rows are passed in a scan, shared by its owners, but this many of each at least. */
#define READY_SCAN_PASS 4000
#define READY_SCAN_PASS_LEAST 100

/* Lanes of tests in a transaction (sql/testing/inline.sql): they have only the rows of that transaction, and no next claim. */
#define READY_SCAN_INLINE_LANE 1000000000

/* So many of the first rows of an owner are compared. */
#define READY_SCAN_URGENT 20
#define READY_SCAN_PASS_URGENT 1000

/* The order of the rows of an owner. */
typedef struct ReadyScanPlace
{
	TimestampTz rank;
	int64		run_id;
} ReadyScanPlace;

/* Where the walks over an owner's rows in a lane have stopped. */
typedef struct ReadyScanStop
{
	int			lane;
	Oid			owner;
	uint32		woken;			/* when the last walk began that goes over all rows */
	ReadyScanPlace far;			/* all rows before it were passed once */
	bool		has_ended;		/* there are none behind it */
	ReadyScanPlace again;		/* those before it were passed a second time */
	bool		goes_again;
	bool		was_far;		/* the last claim went on with the first walk */
} ReadyScanStop;

#define READY_SCAN_STOPS 256

static ReadyScanStop ready_scan_stops[READY_SCAN_STOPS];
static int	ready_scan_n_stops = 0;
static uint32 ready_scan_woken = 0; /* when this claim began */

/* Lanes in which a scan for this claim was cut. */
static int	ready_scan_cut[READY_SCAN_STOPS];
static int	ready_scan_n_cut = 0;

/* An open scan. Its rows come from two ranges of the index: the rest of the rank where it begins, and all higher ranks. */
typedef struct ReadyScan
{
	Relation	table;
	Relation	index;
	AttrNumber	alone;
	AttrNumber	ready_at;
	TupleTableSlot *slot;
	TupleTableSlot *locked;
	IndexScanDesc scan;
	ScanKeyData keys[4];
	bool		higher;			/* in the second range */
	ReadyScanPlace at;			/* of the last entry, visible or not */
} ReadyScan;

static void
ready_scan_open(ReadyScan *s, LOCKMODE mode)
{
	Oid			schema = get_namespace_oid("_sas", false);

	memset(s, 0, sizeof(ReadyScan));
	s->table = table_open(get_relname_relid("ready", schema), mode);
	s->index = index_open(get_relname_relid("ready_claim", schema), AccessShareLock);
	s->alone = get_attnum(RelationGetRelid(s->table), "alone");
	s->ready_at = get_attnum(RelationGetRelid(s->table), "ready_at");
	if (s->alone == InvalidAttrNumber || s->ready_at == InvalidAttrNumber)
		elog(ERROR, "a column of _sas.ready is missing");
	s->slot = table_slot_create(s->table, NULL);
	s->locked = table_slot_create(s->table, NULL);
}

static void
ready_scan_end(ReadyScan *s)
{
	if (s->scan != NULL)
		index_endscan(s->scan);
	s->scan = NULL;
	ExecClearTuple(s->slot);
	ExecClearTuple(s->locked);
}

static void
ready_scan_close(ReadyScan *s)
{
	ExecDropSingleTupleTableSlot(s->slot);
	ExecDropSingleTupleTableSlot(s->locked);
	index_close(s->index, NoLock);
	table_close(s->table, NoLock);
}

/* n keys: lane and owner, then either the rank, or the rank and the run. */
static void
ready_scan_range(ReadyScan *s, int n)
{
	if (s->scan != NULL)
		index_endscan(s->scan);
	s->scan = sas_compat_index_beginscan(s->table, s->index, GetActiveSnapshot(), n);
	s->scan->xs_want_itup = true;
	index_rescan(s->scan, s->keys, n, NULL, 0);
}

/* All rows of that owner in that lane, from that place on. */
static void
ready_scan_begin(ReadyScan *s, int lane, Oid owner, const ReadyScanPlace *from)
{
	ScanKeyInit(&s->keys[0], 1, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(lane));
	ScanKeyInit(&s->keys[1], 2, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(owner));
	s->higher = from->run_id == PG_INT64_MIN;
	if (s->higher)
	{
		ScanKeyInit(&s->keys[2], 3, BTGreaterEqualStrategyNumber, F_TIMESTAMPTZ_GE, TimestampTzGetDatum(from->rank));
		ready_scan_range(s, 3);
		return;
	}
	ScanKeyInit(&s->keys[2], 3, BTEqualStrategyNumber, F_TIMESTAMPTZ_EQ, TimestampTzGetDatum(from->rank));
	ScanKeyInit(&s->keys[3], 4, BTGreaterEqualStrategyNumber, F_INT8GE, Int64GetDatum(from->run_id));
	ready_scan_range(s, 4);
}

/* The next entry of the index; false: there is none. */
static bool
ready_scan_next(ReadyScan *s)
{
	bool		isnull;

	if (index_getnext_tid(s->scan, ForwardScanDirection) == NULL)
	{
		if (s->higher)
			return false;
		s->higher = true;
		ScanKeyInit(&s->keys[2], 3, BTGreaterStrategyNumber, F_TIMESTAMPTZ_GT, s->keys[2].sk_argument);
		ready_scan_range(s, 3);
		if (index_getnext_tid(s->scan, ForwardScanDirection) == NULL)
			return false;
	}
	s->at.rank = DatumGetTimestampTz(index_getattr(s->scan->xs_itup, 3, s->scan->xs_itupdesc, &isnull));
	s->at.run_id = DatumGetInt64(index_getattr(s->scan->xs_itup, 4, s->scan->xs_itupdesc, &isnull));
	return true;
}

TimestampTz
sas_store_first_ready(int lane, Oid owner, TimestampTz mark)
{
	ReadyScan	s;
	ReadyScanPlace from = {mark, PG_INT64_MIN};
	TimestampTz first = DT_NOEND;
	TimestampTz last = DT_NOBEGIN;
	int			passed = 0;

	ready_scan_open(&s, AccessShareLock);
	ready_scan_begin(&s, lane, owner, &from);
	while (ready_scan_next(&s))
	{
		/* a mark is a rank: it must pass all rows of one */
		if (index_fetch_heap(s.scan, s.slot) || (passed++ >= READY_SCAN_PASS && s.at.rank != last && lane < READY_SCAN_INLINE_LANE))
		{
			first = s.at.rank;
			break;
		}
		last = s.at.rank;
		CHECK_FOR_INTERRUPTS();
	}
	ready_scan_end(&s);
	ready_scan_close(&s);
	return first;
}

/*
 * The rank is the time minus the priority (a second each, at least) plus some
 * microseconds, so that a step's lead says its priority.  Only a few are
 * compared, so that alternating priorities make no batch smaller.
 */
int
sas_store_urgent_share(int lane, Oid owner, int share, TimestampTz mark)
{
	ReadyScan	s;
	ReadyScanPlace from = {mark, PG_INT64_MIN};
	int64		lead = 0;
	int			passed = 0;
	int			urgent = share;

	if (share <= READY_SCAN_URGENT)
		return share;
	ready_scan_open(&s, AccessShareLock);
	ready_scan_begin(&s, lane, owner, &from);
	for (int n = 0; n <= READY_SCAN_URGENT && passed < READY_SCAN_PASS_URGENT && ready_scan_next(&s);)
	{
		int64		last = lead;
		bool		isnull;

		if (!index_fetch_heap(s.scan, s.slot))
		{
			passed++;
			continue;
		}
		lead = DatumGetTimestampTz(slot_getattr(s.slot, s.ready_at, &isnull)) - s.at.rank;
		if (n > 0 && last > lead + USECS_PER_SEC / 2)
			urgent = n;
		n++;
	}
	ready_scan_end(&s);
	ready_scan_close(&s);
	return urgent;
}

/* ------------------------------------------------------------------ stops */

static ReadyScanStop *
ready_scan_stop(int lane, Oid owner)
{
	for (int i = 0; i < ready_scan_n_stops; i++)
		if (ready_scan_stops[i].lane == lane && ready_scan_stops[i].owner == owner)
			return &ready_scan_stops[i];
	return NULL;
}

static void
ready_scan_note_cut(int lane)
{
	if (!sas_store_ready_was_cut(lane) && ready_scan_n_cut < READY_SCAN_STOPS)
		ready_scan_cut[ready_scan_n_cut++] = lane;
}

/* A first walk, from that place on.  NULL: there is no room, and it ends here; the next wake-up looks again. */
static ReadyScanStop *
ready_scan_new_stop(int lane, Oid owner, const ReadyScanPlace *place)
{
	ReadyScanStop *stop = NULL;

	if (ready_scan_n_stops < READY_SCAN_STOPS)
		stop = &ready_scan_stops[ready_scan_n_stops++];
	/* one that would walk again if its owner has as many rows still */
	for (int i = 0; stop == NULL && i < READY_SCAN_STOPS; i++)
		if (ready_scan_stops[i].woken != ready_scan_woken)
			stop = &ready_scan_stops[i];
	if (stop == NULL)
		return NULL;
	memset(stop, 0, sizeof(ReadyScanStop));
	stop->lane = lane;
	stop->owner = owner;
	stop->woken = ready_scan_woken;
	stop->far = *place;
	return stop;
}

static void
ready_scan_forget_stop(int lane, Oid owner)
{
	ReadyScanStop *stop = ready_scan_stop(lane, owner);

	if (stop != NULL)
		*stop = ready_scan_stops[--ready_scan_n_stops];
}

void
sas_store_ready_begin(uint32 woken, bool anew)
{
	if (anew)
		ready_scan_n_stops = 0;
	ready_scan_woken = woken;
	ready_scan_n_cut = 0;
}

bool
sas_store_ready_was_cut(int lane)
{
	for (int i = 0; i < ready_scan_n_cut; i++)
		if (ready_scan_cut[i] == lane)
			return true;
	return false;
}

/* ------------------------------------------------------------------ locks */

/* False: another transaction has locked or changed the row. */
static bool
ready_scan_lock(ReadyScan *s)
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

static bool
ready_scan_is_alone(ReadyScan *s)
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
ready_scan_take(ReadyScan *s, ReadyTaken *taken, bool alone)
{
	if (taken->n == taken->most)
	{
		taken->most *= 2;
		taken->places = repalloc(taken->places, sizeof(ItemPointerData) * taken->most);
	}
	taken->places[taken->n++] = s->slot->tts_tid;
	taken->over = alone;
}

typedef enum ReadyScanEnd
{
	READY_SCAN_DONE,			/* the share is full, or nothing more may be taken */
	READY_SCAN_NO_MORE,			/* there are no further rows */
	READY_SCAN_CUT				/* it has passed too many: s->at has not been looked at */
} ReadyScanEnd;

/* Takes rows from that place on, until there are so many. */
static ReadyScanEnd
ready_scan_part(ReadyScan *s, const SasReadyShare *share, const ReadyScanPlace *from, int pass, int until, ReadyTaken *taken)
{
	int			passed = 0;
	ReadyScanPlace last = {DT_NOBEGIN, PG_INT64_MIN};

	ready_scan_begin(s, share->lane, share->owner, from);
	while (!taken->over && taken->n < until)
	{
		bool		alone;

		CHECK_FOR_INTERRUPTS();
		if (!ready_scan_next(s))
			return READY_SCAN_NO_MORE;
		if (passed > pass && share->lane < READY_SCAN_INLINE_LANE && (s->at.rank != last.rank || s->at.run_id != last.run_id))
			return READY_SCAN_CUT;
		last = s->at;
		if (!index_fetch_heap(s->scan, s->slot))
		{
			passed++;
			continue;
		}
		alone = share->lane <= 0 && ready_scan_is_alone(s);
		if (alone && taken->n > 0)
			taken->over = true;
		else if (ready_scan_lock(s))
			ready_scan_take(s, taken, alone);
		else
			passed++;
	}
	return READY_SCAN_DONE;
}

static bool
ready_scan_is_behind(const ReadyScanPlace *a, const ReadyScanPlace *b)
{
	return a->rank > b->rank || (a->rank == b->rank && a->run_id > b->run_id);
}

/* Goes on with one of the walks; first: the place behind the first rows, which every claim looks at. */
static void
ready_scan_walk(ReadyScan *s, const SasReadyShare *share, ReadyScanStop *stop, const ReadyScanPlace *first, int pass, int until,
				ReadyTaken *taken)
{
	ReadyScanPlace from;
	ReadyScanEnd end;
	bool		far;

	if (!stop->goes_again && stop->woken != ready_scan_woken)
	{
		stop->goes_again = true;
		stop->again = *first;
		stop->woken = ready_scan_woken;
	}
	if (stop->has_ended && !stop->goes_again)
		return;
	far = !stop->has_ended && !(stop->goes_again && stop->was_far);
	stop->was_far = far;
	from = far ? stop->far : stop->again;
	if (ready_scan_is_behind(first, &from))
		from = *first;
	end = ready_scan_part(s, share, &from, pass, until, taken);
	if (far)
	{
		stop->has_ended = end == READY_SCAN_NO_MORE;
		if (end == READY_SCAN_CUT)
			stop->far = s->at;
	}
	else
	{
		if (end == READY_SCAN_CUT)
			stop->again = s->at;
		stop->has_ended |= end == READY_SCAN_NO_MORE;
		stop->goes_again = end == READY_SCAN_DONE || (end == READY_SCAN_CUT && (stop->has_ended || ready_scan_is_behind(&stop->far, &s->at)));
	}
	if (!stop->has_ended || stop->goes_again || stop->woken != ready_scan_woken)
		ready_scan_note_cut(share->lane);
}

static void
ready_scan_share(ReadyScan *s, const SasReadyShare *share, int pass, ReadyTaken *taken)
{
	ReadyScanPlace from = {share->mark, PG_INT64_MIN};
	int			until = taken->n + share->share;
	ReadyScanEnd end = ready_scan_part(s, share, &from, pass, until, taken);

	if (end == READY_SCAN_NO_MORE)
		ready_scan_forget_stop(share->lane, share->owner);
	if (end == READY_SCAN_CUT)
	{
		ReadyScanPlace first = s->at;
		ReadyScanStop *stop = ready_scan_stop(share->lane, share->owner);

		if (stop == NULL)
			stop = ready_scan_new_stop(share->lane, share->owner, &first);
		ready_scan_end(s);
		if (stop != NULL)
			ready_scan_walk(s, share, stop, &first, pass, until, taken);
	}
	ready_scan_end(s);
}

int
sas_store_lock_ready(const SasReadyShare *shares, int n, ItemPointerData **places)
{
	ReadyScan	s;
	ReadyTaken	taken = {NULL, 0, 128, false};

	taken.places = palloc(sizeof(ItemPointerData) * taken.most);
	ready_scan_open(&s, RowShareLock);
	for (int i = 0; i < n && !taken.over; i++)
		if (shares[i].share > 0)
			ready_scan_share(&s, &shares[i], Max(READY_SCAN_PASS_LEAST, READY_SCAN_PASS / n), &taken);
	ready_scan_close(&s);
	*places = taken.places;
	return taken.n;
}

/* SPDX-License-Identifier: PostgreSQL */
/*
 * wake.pml: nobody sleeps while there is work. The counts and latches of src/wake, the loop of src/worker/loop.c, and
 * the five ways of waiting:
 *
 *	PART 0	steps of a lane: sessions commit them, two workers claim them
 *	PART 1	the supervisor, which tells until when it means to sleep
 *	PART 2	a run that a session holds: its message is set aside, the end of the session wakes
 *	PART 3	a session in sas.wait()
 *	PART 4	function steps, each handed over to one worker, which may freeze, or call something that never ends
 *
 * In PART 0 with LEAVES one worker may have its transaction rolled back, or leave, and with CRASHES the server may crash
 * once: then shared memory is new, and workers look at everything when they start. Nothing here is due by time, and no
 * supervisor looks for what was forgotten: those nets are not needed.
 *
 * With one of these a rule is broken, and a claim must fail:
 *	COUNT_AFTER		PART 0: a worker reads the count after its scan
 *	NO_COUNT		PART 0: only the latch is set, no count of wake-ups is kept beside it
 *	WAKE_FIRST		PART 0: a session wakes before its rows are visible
 *	LEAVE_SILENTLY	PART 0: a worker that leaves wakes no other
 *	KEEP_SEEN		PART 0: a worker whose claim was rolled back does not look again
 *	NO_NOEND		PART 1: the supervisor does not say that it is scanning
 *	NO_ASK_AGAIN	PART 2: whether the holder has ended is not asked again when it has been noted
 *	LOOK_FIRST		PART 3: a session looks at its run before it has entered itself
 *	TRUST			PART 4: a step is handed over, whether or not the others guard it
 *	SLEEP_WELL		PART 4: a worker takes no nap when something is not settled
 *	SETTLE_LATE		PART 4: a worker says that it has left nothing of a count that it has read after its look
 */
#ifndef PART
#define PART 0
#endif
#ifndef LEAVES
#define LEAVES 1
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#define WORKERS 2
#define SESSIONS 2

/* a row */
#define ABSENT 0
#define VISIBLE 1
#define TAKEN 2			/* and w more: locked by worker w */
#define GONE 9

byte row[SESSIONS];
byte count;							/* of the lane */
byte wakeups[WORKERS];
bit latch[WORKERS], listens[WORKERS];
byte epoch;							/* of shared memory */
bit held, noted, ended, message, has_ended, waits, due, sleeps_long;
hidden byte i_;

/* wakeup_set_latches */
inline wake(but)
{
	for (i_ : 0 .. WORKERS - 1)
	{
		if
		:: listens[i_] && i_ != but ->
#ifndef NO_COUNT
			wakeups[i_]++;
#endif
			latch[i_] = 1
		:: else
		fi
	}
}

#if PART == 0
proctype session(byte n)
{
#ifdef WAKE_FIRST
	atomic { count++; wake(WORKERS) };
	row[n] = VISIBLE
#else
	byte begun;
	atomic { row[n] = VISIBLE; begun = epoch };
	/* a crash after the commit takes the session away before it wakes; the workers start again then */
	if
	:: atomic { begun == epoch -> count++ }
	:: begun != epoch -> goto out
	fi;
	atomic {
		if
		:: begun == epoch -> wake(WORKERS)
		:: else
		fi }
out:
#endif
	skip
}

proctype worker(byte w)
{
	byte seen, was, now_, mine, begun;
	bit all, again, left;
start:
	atomic {
		/* sas_wake_attach: it scans everything in its first tick */
		begun = epoch;
		listens[w] = 1;
		wakeups[w] = 0;
		latch[w] = 0;
		all = 1;
		seen = 0 }
	do
	:: begun != epoch -> goto start
	:: else ->
		latch[w] = 0;
		was = wakeups[w];
		again = 0;
#ifdef COUNT_AFTER
		now_ = count;
		if
		:: all || now_ != seen -> goto scan
		:: else -> goto rest
		fi;
#else
		atomic {
			now_ = count;
			if
			:: all || now_ != seen -> all = 1
			:: else -> goto rest
			fi;
			seen = now_
		};
#endif
scan:
		/* FOR UPDATE SKIP LOCKED, one row at a time */
		atomic {
			mine = SESSIONS;
			if
			:: begun == epoch && row[0] == VISIBLE -> row[0] = TAKEN + w; mine = 0
			:: begun == epoch && row[0] != VISIBLE && row[1] == VISIBLE -> row[1] = TAKEN + w; mine = 1
			:: else
			fi;
			all = 0 };
#ifdef COUNT_AFTER
		seen = count;
#endif
		/* the transaction waits for something of its own, and resets the latch */
		if
		:: latch[w] = 0
		:: true
		fi;
		atomic {
			if
			:: begun == epoch && mine < SESSIONS ->
				if
				:: true -> row[mine] = GONE; again = 1; all = 1
				/* rolled back, and it looks again */
				:: LEAVES && !left && w == 0 -> row[mine] = VISIBLE; left = 1;
#ifndef KEEP_SEEN
					again = 1; all = 1
#endif
				/* it leaves, and its transaction is rolled back; another process in its place looks at everything */
				:: LEAVES && !left && w == 0 ->
					row[mine] = VISIBLE;
					left = 1;
					listens[w] = 0;
#ifndef LEAVE_SILENTLY
					count++;
					wake(w);
#endif
					goto gone
				fi
			:: else
			fi };
rest:
		if
		:: again
		:: !again && begun == epoch ->
			if
			:: wakeups[w] != was
			:: else ->
end:			/* the latch ends a sleep, or a crash does */
				if
				:: latch[w] -> skip
				:: begun != epoch -> skip
				fi
			fi
		:: !again && begun != epoch
		fi
	od;
gone:
	skip
}

/* The server crashes: what was not committed is gone, and with it counts and latches. */
proctype crash()
{
	atomic {
		if
		:: CRASHES ->
			epoch = 1;
			count = 0;
			for (i_ : 0 .. SESSIONS - 1)
			{
				if
				:: row[i_] != ABSENT && row[i_] != GONE -> row[i_] = VISIBLE
				:: else
				fi
			};
			for (i_ : 0 .. WORKERS - 1) { latch[i_] = 0; listens[i_] = 0 }
		:: true
		fi }
}

proctype judge()
{
	atomic { timeout -> assert(row[0] == GONE && row[1] == GONE) }
}

init
{
	atomic { run worker(0); run worker(1); run session(0); run session(1); run crash(); run judge() }
}
#endif

#if PART == 4
#define AWAKE 0
#define QUICK 1
#define SLEEPS 2
#define HANDED 3
#ifndef QUANTITY
#define QUANTITY 1
#endif
#ifndef STEPS
#define STEPS 2
#endif

byte steps[STEPS], rest[WORKERS], seen[WORKERS], napped[WORKERS], settled, lost;
bit guards[WORKERS], mine[WORKERS];
byte readers;						/* of the lock */

/* It is never scheduled again: frozen, or its call never ends. One worker is left. */
inline may_freeze()
{
	if
	:: true
	:: atomic { !owes && lost < WORKERS - 1 -> lost++; goto gone }
	fi
}

/* sas_wake_hand_over */
proctype session(byte n)
{
	byte unguarded, other, to, was;
	steps[n] = VISIBLE;
	atomic { readers++; count++ };
	/* to one whom all others guard; as long as the lock is held, no other one ceases to */
	atomic {
		for (to : 0 .. WORKERS - 1)
		{
			if
			:: guards[to] == 0 -> unguarded++; other = to
			:: else
			fi
		};
		if
		:: to = 0
		:: to = 1
		fi;
		was = rest[to] };
	if
#ifndef TRUST
	:: unguarded > 1 || (unguarded == 1 && other != to) || was == AWAKE -> goto all
#else
	:: was == AWAKE -> goto all
#endif
	:: else
	fi;
	if
	:: was == HANDED
	:: atomic { was != HANDED && rest[to] == was -> rest[to] = HANDED; wakeups[to]++ };
		if
		:: was == SLEEPS -> latch[to] = 1
		:: else
		fi
	:: was != HANDED && rest[to] != was -> goto all
	fi;
	readers--;
	goto out;
all:
	readers--;
	atomic { wake(WORKERS) };
out:
	skip
}

inline pass_on(w)
{
	if
	:: mine[w] -> mine[w] = 0; atomic { count++; wake(w) }
	:: else
	fi
}

/* hand_over_sleep_well: with the lock, if nothing is open; else it takes a nap */
inline nap(w)
{
	if
#ifndef SLEEP_WELL
	:: atomic { readers == 0 && (count == seen[w] || count <= settled) -> guards[w] = 0 }
#else
	:: guards[w] = 0
#endif
	:: napped[w] = count
	fi
}

proctype worker(byte w)
{
	byte was, now_, n;
	bit again, left, owes;			/* owes: what it has rolled back; others may have passed it by */
	do
	:: true ->
		latch[w] = 0;
		atomic {
			if
			:: rest[w] == HANDED -> mine[w] = 1
			:: else
			fi;
			if
			:: rest[w] = AWAKE
			:: rest[w] = QUICK
			fi };
		atomic { guards[w] = 1; seen[w] = count; was = wakeups[w]; again = 0 };
		may_freeze();
		now_ = count;
		/* the claim */
		d_step {
			n = 0;
			for (i_ : 0 .. STEPS - 1)
			{
				if
				:: n < QUANTITY && steps[i_] == VISIBLE -> steps[i_] = TAKEN + w; n++
				:: else
				fi
			} };
#ifdef SETTLE_LATE
		now_ = count;
#endif
		if
		:: true
		/* rolled back, and it looks again after a pause */
		:: LEAVES && !left && w == 0 ->
			left = 1;
			owes = 1;
			atomic { for (i_ : 0 .. STEPS - 1) { if :: steps[i_] == TAKEN + w -> steps[i_] = VISIBLE :: else fi } };
			pass_on(w);
			again = 1;
			goto over
		/* it leaves */
		:: atomic { LEAVES && !left && w == 0 && lost < WORKERS - 1 -> lost++ };
			atomic { for (i_ : 0 .. STEPS - 1) { if :: steps[i_] == TAKEN + w -> steps[i_] = VISIBLE :: else fi } };
			rest[w] = AWAKE;
			atomic { count++; wake(w) };
			atomic { readers == 0 -> listens[w] = 0; guards[w] = 1 };
			goto gone
		fi;
		/* committed */
		owes = 0;
		may_freeze();
		if
		:: atomic { n < QUANTITY -> mine[w] = 0; if :: now_ > settled -> settled = now_ :: else fi }
		:: n == QUANTITY -> pass_on(w)
		fi;
		if
		:: n > 0 ->
			if
			/* what may be slow */
			:: atomic { if :: rest[w] == HANDED -> mine[w] = 1 :: else fi; rest[w] = AWAKE };
				pass_on(w)
			:: true
			fi;
			may_freeze();
			atomic { for (i_ : 0 .. STEPS - 1) { if :: steps[i_] == TAKEN + w -> steps[i_] = GONE :: else fi } };
			again = n == QUANTITY || (now_ != count && count > settled)
		:: else
		fi;
over:
		pass_on(w);
		if
		:: again
		:: !again && wakeups[w] != was
		:: else ->
			if
			:: rest[w] == HANDED
			:: atomic { rest[w] != HANDED -> rest[w] = SLEEPS };
				nap(w);
end:			do
				:: latch[w] -> break
				/* the nap is over */
				:: guards[w] && napped[w] != seen[w] && napped[w] > settled -> break
				:: guards[w] && (napped[w] == seen[w] || napped[w] <= settled) && (napped[w] != count || count == seen[w] || count <= settled) -> nap(w)
				od
			fi
		fi
	od;
gone:
	skip
}

proctype judge()
{
	byte n;
	atomic { timeout -> for (n : 0 .. STEPS - 1) { assert(steps[n] != VISIBLE) } }
}

init
{
	byte n;
	atomic {
		for (n : 0 .. WORKERS - 1) { listens[n] = 1; guards[n] = 1 };
		run worker(0); run worker(1); for (n : 0 .. STEPS - 1) { run session(n) }; run judge() }
}
#endif

#if PART == 1
/* sas_wake_due_at_commit: what is due is visible first */
proctype session()
{
	due = 1;
	atomic {
		if
		:: sleeps_long -> wake(WORKERS)
		:: else
		fi }
}

/* src/supervisor */
proctype supervisor()
{
	byte was;
	atomic { listens[0] = 1; sleeps_long = 0 }
	do
	:: true ->
		latch[0] = 0;
		was = wakeups[0];
#ifndef NO_NOEND
		sleeps_long = 1;
#endif
		/* the scan */
		atomic {
			if
			:: due -> due = 0; has_ended = 1
			:: else
			fi };
		/* sas_wake_supervisor_sleeps_until: longer than the row that may come */
		sleeps_long = 1;
		if
		:: wakeups[0] != was
		:: else ->
end:		latch[0]
		fi;
#ifdef NO_NOEND
		sleeps_long = 0
#endif
	od
}

proctype judge() { atomic { timeout -> assert(has_ended) } }
init { atomic { run supervisor(); run session(); run judge() } }
#endif

#if PART == 2
/* a session that holds the run: its locks are gone before its callback runs (src/wake/holders.c) */
proctype session()
{
	held = 0;
	atomic {
		if
		:: noted -> ended = 1; wake(WORKERS)
		:: else
		fi }
}

/* the scheduler: _sas.take_messages */
proctype scheduler()
{
	byte was;
	bit soon;
	listens[0] = 1;
	do
	:: message ->
		latch[0] = 0;
		was = wakeups[0];
		soon = 0;
		/* _sas.freed_runs, then the messages that are due, then the locks of their runs */
		atomic {
			if
			:: noted && !ended && held -> goto rest
			:: else -> noted = 0; ended = 0
			fi };
		if
		:: atomic { !held -> message = 0; break }
		:: held ->
			/* sas_wake_holders_await */
			noted = 1;
#ifndef NO_ASK_AGAIN
			if
			:: held
			:: !held -> soon = 1		/* due in a moment */
			fi
#endif
		fi;
rest:
		if
		:: soon || wakeups[0] != was
		:: else -> latch[0]
		fi
	od;
end:
	false
}

proctype judge() { atomic { timeout -> assert(!message) } }
init { atomic { message = 1; held = 1; run scheduler(); run session(); run judge() } }
#endif

#if PART == 3
/* the worker that stops the run */
proctype stopper()
{
	has_ended = 1;
	atomic {
		if
		:: waits -> latch[0] = 1
		:: else
		fi }
}

/* sas.wait() */
proctype waiter()
{
#ifdef LOOK_FIRST
	if
	:: has_ended -> goto over
	:: else
	fi;
	waits = 1;
#else
	waits = 1;
#endif
	do
	:: true ->
#ifndef LOOK_FIRST
		latch[0] = 0;
		if
		:: has_ended -> break
		:: else
		fi;
#endif
		latch[0];
#ifdef LOOK_FIRST
		latch[0] = 0;
		if
		:: has_ended -> break
		:: else
		fi
#endif
	od;
over:
	waits = 0;
	message = 1
}

proctype judge() { atomic { timeout -> assert(message) } }
init { atomic { run stopper(); run waiter(); run judge() } }
#endif

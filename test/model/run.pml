/* SPDX-License-Identifier: PostgreSQL */
/*
 * run.pml: one run of two steps, as the rows of sas carry it: claims, the fence, complete-by, answers, the
 * supervisor, undo, cancel.
 *
 * Each atomic block is what one transaction reads or writes at one moment: it locks, it reads with a fresh snapshot,
 * it commits. Between them anybody may act, and a worker or the server may die. Locks that a transaction waits for are
 * guards. Locks that it passes by (SKIP LOCKED) are choices. Wake-ups are perfect here: wake.pml is about them.
 *
 *	SHAPE	0: the second step follows the first; 1: they run beside each other
 *	KINDS	bit s: step s is a call; else a function. Their undos are of the same kind
 *	READS	1: an undo needs the output of its call, so a call in doubt is asked again first
 *	CRASHES, LOCKS, CANCELS		how often that happens
 *	WINDOWS						windows of a step before its failure is final
 *
 * With one of these a rule is broken, and a claim below must fail:
 *	NO_FENCE			a reply counts whatever claim it is of
 *	NO_ARRIVED			a reply counts by when it is written, not by when it arrived
 *	NO_COMPLETE_BY		no window ever ends
 *	NO_UNWRITTEN		take-back does not ask whether the worker has a reply that is not written yet
 *	LATE_UNWRITTEN		a worker says that it has a reply only when it has evaluated it
 *	NO_LEASE_LOCK		a function commits without the lock of its lease
 *	NO_ANSWER_CHECK		take-back and revoke do not pass by what is answered
 *	NO_DOUBT			a call without a usable reply counts as not done
 *	NO_OPEN_COUNT		the undo begins while a step is running
 *	NO_UNDO_ORDER		the undo goes in the order of the steps
 *	NO_STOP_WAIT		a cancel revokes the call of a worker that lives
 *
 * Left out: what sas.transitions allows and no line "move" of this model reaches; test/t/495_models.pl has the list,
 * with reasons.
 */
#ifndef SHAPE
#define SHAPE 0
#endif
#ifndef KINDS
#define KINDS 1
#endif
#ifndef READS
#define READS 0
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef LOCKS
#define LOCKS 1
#endif
#ifndef CANCELS
#define CANCELS 1
#endif
#ifndef WINDOWS
#define WINDOWS 2
#endif
#define WORKERS 2

#define IS_CALL(s) ((KINDS >> (s)) & 1)

/* states of a step; the names are in c_decl below */
#define NONE 0
#define READY 1
#define RUNNING 2
#define SUSPENDED 3
#define SUCCEEDED 4
#define FAILED 5
#define CANCELLED 6
#define COMPENSATING 7
#define COMPENSATED 8

/* states of the run */
#define PENDING 1
#define GOES_ON 2	/* running */
#define PAUSED 3
#define UNDOING 4	/* compensating */
#define STOPPED 5

/* abandon_as */
#define COMPENSATE 1
#define CANCEL 2

/* verdicts of a reply; 0: there is none */
#define DONE 1
#define TRANSIENT 2
#define PERMANENT 3
#define SILENCE 4
#define HUNG_UP 5	/* the worker has stopped the call */

/* who holds a lock; 0: nobody. A worker w is w + 1 */
#define SUPERVISOR 10
#define SCHEDULER 11
#define SESSION 12
#define OPERATOR 13
#define DEAD 14		/* a lease whose worker is gone */

c_decl {
	static const char *const step_names[] = {"none", "ready", "running", "suspended", "succeeded", "failed", "cancelled", "compensating", "compensated"};
	static const char *const run_names[] = {"none", "pending", "running", "paused", "compensating", "stopped"};
	static char step_seen[16][16], run_seen[16][16];
	/* Each change of state that is reached, once: test/t/495_models.pl compares them with sas.transitions. */
	static void step_note(int from, int to)
	{
		if (!step_seen[from][to])
			printf("move step %s %s\n", step_names[from], step_names[to]);
		step_seen[from][to] = 1;
	}
	static void run_note(int from, int to)
	{
		if (!run_seen[from][to])
			printf("move run %s %s\n", run_names[from], run_names[to]);
		run_seen[from][to] = 1;
	}
}

/* ---------------------------------------------------------------- what is stored */

byte run_state, abandon_as, open_steps;
byte step_state[2], request_id[2], failure_count[2], completion[2];	/* 0: null */
bit in_doubt[2], transient[2];
bit decides[2];						/* waiting_kind is supervisor */
bit ready[2];						/* has a row in _sas.ready */
byte lease[2], lease_claim[2];		/* the last lease of a step: who holds it, 0: it is gone; of which claim */
byte answer[2], answered[2];		/* a row in _sas.answer: its verdict, and of which claim */
bit answer_doubt[2];
byte told[2];						/* the claim whose worker is to stop its call */
bit overdue[2];						/* complete_by of the present claim has passed */
bit message_failed[2];				/* to the supervisor */
bit message_ready[2], message_undo, message_revoke, message_answer;		/* to the scheduler */
byte next_request = 1, next_completion = 1;

/* ---------------------------------------------------------------- what a crash takes away */

byte run_lock, ready_lock[2], lease_lock[2];

/* what a worker is at */
#define IDLE 0
#define CLAIMING 1			/* it has deleted the row of _sas.ready, and not committed */
#define CLAIMED 2
#define SENT 3				/* the call is made, or the function runs */
#define ARRIVED 4			/* the reply is there */
#define TOLD 5				/* LATE_UNWRITTEN only: and the worker has said so */
#define FENCED 6			/* of a function: it has locked the lease */
#define WRITING 7			/* it has locked the run */
#define ANSWERING 8			/* somebody else holds the run: the reply becomes a row of _sas.answer */
byte phase[WORKERS], at[WORKERS], token[WORKERS], verdict[WORKERS];
bit doubt[WORKERS], in_time[WORKERS], unwritten[WORKERS];
bit past[WORKERS];					/* its window is over */

/* what a tick, or an operator, is at */
#define JUDGING 1			/* has locked the lease */
#define TAKING_BACK 2		/* and the run */
#define DECIDING 3
#define REVOKING 4
byte supervisor_phase, supervisor_at, supervisor_claim, scheduler_phase, operator_phase;

/* ---------------------------------------------------------------- what is to be proved */

byte effect[2], undo_effect[2];		/* a service counts one for each key, a function each commit */
byte counted[2];					/* the last claim whose reply has counted */
byte revoked[2];					/* the last claim that a cancel has revoked */
byte crashes_left = CRASHES, locks_left = LOCKS, cancels_left = CANCELS;

hidden byte from_state, to_state;
byte i_, o_;

inline move(s, to)
{
	from_state = step_state[s];
	to_state = to;
	c_code { step_note(from_state, to_state); };
	step_state[s] = to
}

inline move_run(to)
{
	from_state = run_state;
	to_state = to;
	c_code { run_note(from_state, to_state); };
	run_state = to
}

/* ---------------------------------------------------------------- sql/flow */

/* _sas.hand_to_scheduler */
inline hand_to_scheduler()
{
	if
#ifdef NO_OPEN_COUNT
	:: run_state == UNDOING -> message_undo = 1
#else
	:: run_state == UNDOING && open_steps == 0 -> message_undo = 1
#endif
	:: else
	fi
}

/* _sas.close_steps */
inline close_step()
{
	open_steps--;
	hand_to_scheduler()
}

/* _sas.advance, _sas.end_of_steps */
inline advance(s)
{
	if
	:: SHAPE == 0 && s == 0 ->
		if
		:: run_state == PAUSED -> move(1, READY)	/* deferred */
		:: else -> ready[1] = 1
		fi
	:: else ->
		open_steps--;
		if
		:: open_steps == 0 && run_state == GOES_ON -> move_run(STOPPED)
		:: else
		fi
	fi
}

/* _sas.start_runs */
inline start_run()
{
	if
	:: run_state == PENDING -> move_run(GOES_ON)
	:: else
	fi
}

/* _sas.notify_supervisor */
inline tell_supervisor(s)
{
	decides[s] = 1;
	message_failed[s] = 1
}

/* _sas.write_replies of a reply that counts; the run is locked */
inline write_reply(s, claim, result, doubtful)
{
	assert(counted[s] != claim);		/* no reply counts twice */
	counted[s] = claim;
	request_id[s] = 0;
	overdue[s] = 0;
	start_run();
	if
	:: step_state[s] == COMPENSATING ->
		if
		:: result == DONE -> move(s, COMPENSATED); close_step()
		:: else -> move(s, COMPENSATING); transient[s] = (result == TRANSIENT); tell_supervisor(s)
		fi
	/* _sas.write_stopped */
	:: step_state[s] != COMPENSATING && result == HUNG_UP ->
		in_doubt[s] = in_doubt[s] || doubtful;
		if
		:: in_doubt[s] -> move(s, FAILED)
		:: else -> move(s, CANCELLED)
		fi;
		close_step()
	:: else ->
		if
		:: result == DONE ->
			in_doubt[s] = 0;
			completion[s] = next_completion;
			next_completion++;
			move(s, SUCCEEDED);
			if
			:: abandon_as == 0 -> advance(s)
			:: else -> close_step()
			fi
		:: else ->
			if
			:: result == PERMANENT -> in_doubt[s] = 0
#ifndef NO_DOUBT
			:: result == TRANSIENT && doubtful -> in_doubt[s] = 1
#endif
			:: else
			fi;
			transient[s] = (result == TRANSIENT);
			move(s, FAILED);
			tell_supervisor(s)
		fi
	fi
}

/* _sas.apply_answers; the run is locked */
inline apply_answer(s)
{
	if
	:: answer[s] != 0 ->
		assert(answered[s] == request_id[s]);	/* what is answered is done, whatever is decided of its run */
		write_reply(s, answered[s], answer[s], answer_doubt[s]);
		answer[s] = 0;
		answered[s] = 0;
		answer_doubt[s] = 0
	:: else
	fi
}

inline apply_answers()
{
	apply_answer(0);
	apply_answer(1);
	message_answer = 0
}

/* of _sas.abandon: what becomes of a step that is open; the run is locked */
inline abandon_step(s)
{
	if
	:: ready[s] && step_state[s] == NONE -> ready[s] = 0; move(s, CANCELLED)
	:: step_state[s] == READY || step_state[s] == SUSPENDED ->
		ready[s] = 0;
		message_ready[s] = 0;
		if
		:: in_doubt[s] -> move(s, FAILED)
		:: else -> move(s, CANCELLED)
		fi
	:: step_state[s] == FAILED && decides[s] -> decides[s] = 0; move(s, FAILED)
	:: else
	fi
}

/* _sas.abandon; the run is locked */
inline abandon(fate, at_once)
{
	if
	:: at_once && (request_id[0] != 0 || request_id[1] != 0) -> message_revoke = 1
	:: else
	fi;
	abandon_step(0);
	abandon_step(1);
	abandon_as = fate;
	open_steps = (step_state[0] == RUNNING) + (step_state[1] == RUNNING);
	move_run(UNDOING);
	hand_to_scheduler()
}

/* of _sas.move_to_paused: ready steps are deferred in rows of their own */
inline defer_step(s)
{
	if
	:: ready[s] ->
		ready[s] = 0;
		if
		:: step_state[s] == COMPENSATING -> move(s, COMPENSATING)
		:: else -> move(s, READY)
		fi
	:: else
	fi
}

inline pause()
{
	defer_step(0);
	defer_step(1);
	move_run(PAUSED)
}

/* _sas.requeue; the run is locked */
inline requeue(s)
{
	if
	:: run_state == PAUSED -> move(s, step_state[s])
	:: run_state != PAUSED && abandon_as != 0 && step_state[s] == READY && !in_doubt[s] -> move(s, CANCELLED); close_step()
	:: else -> ready[s] = 1
	fi
}

/* ---------------------------------------------------------------- workers */

inline rest(w)
{
	phase[w] = IDLE;
	at[w] = 0;
	token[w] = 0;
	verdict[w] = 0;
	doubt[w] = 0;
	in_time[w] = 0;
	past[w] = 0;
	unwritten[w] = 0
}

inline unlock(w)
{
	if
	:: run_lock == w + 1 -> run_lock = 0
	:: else
	fi;
	for (i_ : 0 .. 1)
	{
		if
		:: lease_lock[i_] == w + 1 -> lease_lock[i_] = 0
		:: else
		fi;
		if
		:: ready_lock[i_] == w + 1 -> ready_lock[i_] = 0
		:: else
		fi
	};
	i_ = 0
}

inline die(w)
{
	unlock(w);
	rest(w);
	for (i_ : 0 .. 1)
	{
		if
		:: lease[i_] == w + 1 -> lease[i_] = DEAD
		:: else
		fi
	};
	i_ = 0
}

/* one step after the other, the last that was done first; what is in doubt before */
inline check_undo(s)
{
	o_ = 1 - s;
	assert(request_id[o_] == 0 && step_state[o_] != RUNNING);
	assert(!(step_state[o_] == SUCCEEDED && completion[s] != 0 && completion[o_] > completion[s]));
	o_ = 0
}

/* no call is under way any more when its undo is sent, unless its worker did not stop it by the end of the window */
inline check_hung_up(w, s)
{
	assert(!(phase[1 - w] == SENT && at[1 - w] == s && !past[1 - w]))
}

/* What a call comes to. A service that has done it answers the same again under its key. */
inline make_call(w, s)
{
	if
	:: step_state[s] == COMPENSATING ->
		check_hung_up(w, s);
		if
		:: undo_effect[s] = 1; verdict[w] = DONE
		:: undo_effect[s] = 1; verdict[w] = TRANSIENT; doubt[w] = 1
		:: verdict[w] = PERMANENT
		fi
	:: else ->
		if
		:: effect[s] = 1; verdict[w] = DONE
		:: effect[s] = 1; verdict[w] = TRANSIENT; doubt[w] = 1
		:: verdict[w] = TRANSIENT					/* no connection was made */
		:: verdict[w] = SILENCE
		:: effect[s] == 0 -> verdict[w] = PERMANENT
		fi
	fi
}

/* what the function wrote is committed */
inline commit_function(s)
{
	if
	:: step_state[s] == COMPENSATING -> undo_effect[s]++; assert(undo_effect[s] == 1 && effect[s] == 1)
	:: else -> effect[s]++; assert(effect[s] == 1)
	fi
}

/* An answer in time is never asked for again, but where an operator has ended it. */
inline forget_reply(w)
{
	assert(!in_time[w] || revoked[at[w]] == token[w]);
	unlock(w);
	rest(w)
}

/* of _sas.end_leases */
inline end_lease(w)
{
	if
	:: lease[at[w]] == w + 1 && (lease_lock[at[w]] == 0 || lease_lock[at[w]] == w + 1) -> lease[at[w]] = 0
	:: else
	fi
}

#ifdef NO_FENCE
#define CLAIM_HOLDS(w) (request_id[at[w]] != 0)
#else
#define CLAIM_HOLDS(w) (request_id[at[w]] == token[w])
#endif
#ifdef NO_ARRIVED
#define IN_TIME(w) (!overdue[at[w]])
#else
#define IN_TIME(w) (in_time[w])
#endif
#ifdef LATE_UNWRITTEN
#define REPLIES(w) (phase[w] == TOLD)
#else
#define REPLIES(w) (phase[w] == ARRIVED)
#endif

/* src/agent and src/function: a claim, the work, a reply */
proctype worker(byte w)
{
	byte s;
end:
	do
	:: atomic { phase[w] == IDLE && ready[0] && ready_lock[0] == 0 -> ready_lock[0] = w + 1; at[w] = 0; phase[w] = CLAIMING }
	:: atomic { phase[w] == IDLE && ready[1] && ready_lock[1] == 0 -> ready_lock[1] = w + 1; at[w] = 1; phase[w] = CLAIMING }
	/* _sas.claim_ready commits */
	:: atomic { phase[w] == CLAIMING ->
		s = at[w];
		ready[s] = 0;
		ready_lock[s] = 0;
		request_id[s] = next_request;
		next_request++;
		token[w] = request_id[s];
		overdue[s] = 0;
		/* a lease of its own: one of which nothing is held any more is gone with this, and who has locked that */
		lease[s] = w + 1;
		lease_claim[s] = request_id[s];
		lease_lock[s] = 0;
		if
		:: step_state[s] == COMPENSATING -> check_undo(s); move(s, COMPENSATING)
		:: else -> move(s, RUNNING)
		fi;
		if
		:: run_lock == 0 -> start_run()
		:: else
		fi;
		phase[w] = CLAIMED;
		s = 0 }
	/* the window is measured from the claim on: past it nothing is sent */
	:: atomic { phase[w] == CLAIMED && IS_CALL(at[w]) ->
		if
		:: request_id[at[w]] == token[w] && !overdue[at[w]] -> make_call(w, at[w]); phase[w] = SENT
		:: else -> rest(w)
		fi }
	/* _sas.claims_of_calls: it closes the connection */
	:: atomic { phase[w] == SENT && IS_CALL(at[w]) && told[at[w]] == token[w] && request_id[at[w]] == token[w] && !overdue[at[w]] ->
#ifndef LATE_UNWRITTEN
		unwritten[w] = 1;
#endif
		in_time[w] = 1;
		verdict[w] = HUNG_UP;
		doubt[w] = 1;
		phase[w] = ARRIVED }
	/* _sas.claims_held; of a claim that is a moment old it is not asked */
	:: atomic { phase[w] == CLAIMED && !IS_CALL(at[w]) ->
		if
		:: phase[w] = SENT
		:: request_id[at[w]] != token[w] || overdue[at[w]] -> rest(w)
		fi }
	/* The worker says first that it may have a reply, then notes when it arrived. */
	:: atomic { phase[w] == SENT && (verdict[w] != SILENCE || request_id[at[w]] != token[w] || overdue[at[w]]) ->
#ifndef LATE_UNWRITTEN
		unwritten[w] = 1;
#endif
		in_time[w] = (CLAIM_HOLDS(w) && !overdue[at[w]]);
		if
		/* it stops the call and says nothing */
		:: verdict[w] == SILENCE || request_id[at[w]] == token[w] && overdue[at[w]] -> rest(w)
		:: else ->
			if
			:: !IS_CALL(at[w]) ->
				if
				:: verdict[w] = DONE
				:: verdict[w] = TRANSIENT
				:: verdict[w] = PERMANENT
				fi
			:: else
			fi;
			phase[w] = ARRIVED
		fi }
#ifdef LATE_UNWRITTEN
	:: atomic { phase[w] == ARRIVED -> unwritten[w] = 1; phase[w] = TOLD }
#endif
	/* _sas.write_replies of a call: the run is locked, or the reply is left to whoever locks it next */
	:: atomic { REPLIES(w) && IS_CALL(at[w]) && run_lock == 0 -> run_lock = w + 1; phase[w] = WRITING }
	:: atomic { REPLIES(w) && IS_CALL(at[w]) && run_lock != 0 && (!CLAIM_HOLDS(w) || lease_lock[at[w]] == 0) ->
		if
		:: CLAIM_HOLDS(w) -> lease_lock[at[w]] = w + 1
		:: else
		fi;
		phase[w] = ANSWERING }
	/* of a function, strict: the lease first */
	:: atomic { REPLIES(w) && !IS_CALL(at[w]) && !CLAIM_HOLDS(w) -> forget_reply(w) }
#ifdef NO_LEASE_LOCK
	:: atomic { REPLIES(w) && !IS_CALL(at[w]) && CLAIM_HOLDS(w) -> phase[w] = FENCED }
#else
	:: atomic { REPLIES(w) && !IS_CALL(at[w]) && CLAIM_HOLDS(w) && lease_lock[at[w]] == 0 -> lease_lock[at[w]] = w + 1; phase[w] = FENCED }
#endif
	:: atomic { phase[w] == FENCED && run_lock == 0 -> run_lock = w + 1; phase[w] = WRITING }
	:: atomic { phase[w] == FENCED && run_lock != 0 -> phase[w] = ANSWERING }
	/* commits */
	:: atomic { phase[w] == WRITING ->
		apply_answers();
		if
		:: CLAIM_HOLDS(w) && IN_TIME(w) ->
			if
			:: !IS_CALL(at[w]) && verdict[w] == DONE -> commit_function(at[w])
			:: else
			fi;
			write_reply(at[w], token[w], verdict[w], doubt[w]);
			end_lease(w);
			unlock(w);
			rest(w)
		:: else -> forget_reply(w)
		fi }
#ifdef NO_LEASE_LOCK
	/* what it saw of its claim is what it goes by */
	:: atomic { phase[w] == ANSWERING && !IS_CALL(at[w]) ->
		if
		:: verdict[w] == DONE -> commit_function(at[w])
		:: else
		fi;
		answer[at[w]] = verdict[w];
		answered[at[w]] = token[w];
		message_answer = 1;
		end_lease(w);
		unlock(w);
		rest(w) }
	:: atomic { phase[w] == ANSWERING && IS_CALL(at[w]) ->
#else
	:: atomic { phase[w] == ANSWERING ->
#endif
		if
		:: CLAIM_HOLDS(w) && IN_TIME(w) && answer[at[w]] == 0 ->
			if
			:: !IS_CALL(at[w]) && verdict[w] == DONE -> commit_function(at[w])
			:: else
			fi;
			answer[at[w]] = verdict[w];
			answered[at[w]] = token[w];
			answer_doubt[at[w]] = doubt[w];
			message_answer = 1;
			end_lease(w);
			unlock(w);
			rest(w)
		:: else -> forget_reply(w)
		fi }
	od
}

/* ---------------------------------------------------------------- supervisor */

#define WORKER_OF(s) (lease[s] - 1)
#define IS_ALIVE(s) (lease[s] != 0 && lease[s] <= WORKERS)
#ifdef NO_UNWRITTEN
#define PASSES_BY(s) (false)
#else
#define PASSES_BY(s) (IS_ALIVE(s) && unwritten[WORKER_OF(s)])
#endif
#define EXECUTES(s) (IS_ALIVE(s) && !IS_CALL(s) && phase[WORKER_OF(s)] == SENT && at[WORKER_OF(s)] == s && token[WORKER_OF(s)] == request_id[s])
#ifdef NO_ANSWER_CHECK
#define IS_HELD(s) (request_id[s] != 0)
#else
#define IS_HELD(s) (request_id[s] != 0 && answer[s] == 0)
#endif
#define IS_JUDGED(s) (lease[s] != 0 && (lease[s] == DEAD || overdue[s] || !IS_HELD(s)))

/* _sas.take_back_leases of what is held; the run is locked */
inline take_back(s)
{
	request_id[s] = 0;
	overdue[s] = 0;
#ifndef NO_DOUBT
	in_doubt[s] = in_doubt[s] || IS_CALL(s);
#endif
	transient[s] = 1;
	if
	:: step_state[s] == COMPENSATING -> move(s, COMPENSATING)
	:: else -> move(s, FAILED)
	fi;
	tell_supervisor(s)
}

#define SETTLES(s) (READS && IS_CALL(s) && abandon_as != 0 && in_doubt[s])
#define UNDOES(s) (step_state[s] == COMPENSATING)

/* _sas.decide_failure; the run is locked, and nobody is claiming */
inline decide(s)
{
	message_failed[s] = 0;
	if
	:: !decides[s]
	:: decides[s] && transient[s] && failure_count[s] + 1 < WINDOWS && (abandon_as == 0 || UNDOES(s) || SETTLES(s)) ->
		failure_count[s]++;
		decides[s] = 0;
		if
		:: UNDOES(s) -> move(s, COMPENSATING)
		:: else -> move(s, SUSPENDED)
		fi;
		message_ready[s] = 1
	:: decides[s] && abandon_as != 0 && !UNDOES(s) && !SETTLES(s) ->
		decides[s] = 0;
		move(s, FAILED);
		close_step()
	:: else ->
		failure_count[s] = WINDOWS;
		decides[s] = 0;
		if
		:: UNDOES(s) -> move(s, COMPENSATING)
		:: else -> move(s, FAILED)
		fi;
		if
		:: run_state == PAUSED
		:: run_state != PAUSED && abandon_as != 0 ->
			pause();
			if
			:: !UNDOES(s) -> close_step()
			:: else
			fi
		:: run_state != PAUSED && abandon_as == 0 && transient[s] ->
			if
			:: true -> pause()
			:: true -> abandon(COMPENSATE, false)
			fi
		:: else -> abandon(COMPENSATE, false)
		fi
	fi
}

inline end_tick()
{
	if
	:: lease_lock[supervisor_at] == SUPERVISOR -> lease_lock[supervisor_at] = 0
	:: else
	fi;
	supervisor_phase = IDLE;
	supervisor_claim = 0;
	supervisor_at = 0
}

proctype supervisor()
{
end:
	do
	/* _sas.take_back: a lease that nobody has locked, then the run if nobody has locked it */
	:: atomic { supervisor_phase == IDLE && IS_JUDGED(0) && lease_lock[0] == 0 && run_lock == 0 && !PASSES_BY(0) && !EXECUTES(0) ->
		lease_lock[0] = SUPERVISOR; supervisor_at = 0; supervisor_claim = lease_claim[0]; supervisor_phase = JUDGING }
	:: atomic { supervisor_phase == IDLE && IS_JUDGED(1) && lease_lock[1] == 0 && run_lock == 0 && !PASSES_BY(1) && !EXECUTES(1) ->
		lease_lock[1] = SUPERVISOR; supervisor_at = 1; supervisor_claim = lease_claim[1]; supervisor_phase = JUDGING }
	:: atomic { supervisor_phase == JUDGING ->
		if
		:: run_lock == 0 && !PASSES_BY(supervisor_at) -> run_lock = SUPERVISOR; supervisor_phase = TAKING_BACK
		:: else -> end_tick()
		fi }
	:: atomic { supervisor_phase == TAKING_BACK ->
		if
		:: supervisor_claim != lease_claim[supervisor_at]
		:: supervisor_claim == lease_claim[supervisor_at] && IS_HELD(supervisor_at) && (lease[supervisor_at] == DEAD || overdue[supervisor_at] && !EXECUTES(supervisor_at)) ->
			take_back(supervisor_at);
			lease[supervisor_at] = 0
		:: supervisor_claim == lease_claim[supervisor_at] && !IS_HELD(supervisor_at) -> lease[supervisor_at] = 0
		:: else
		fi;
		run_lock = 0;
		end_tick() }
	/* A function that goes on past complete-by is cancelled, and its worker ended. */
	:: atomic { overdue[0] && lease[0] != 0 && EXECUTES(0) -> die(WORKER_OF(0)) }
	:: atomic { overdue[1] && lease[1] != 0 && EXECUTES(1) -> die(WORKER_OF(1)) }
	/* _sas.decide_due; it waits for a claim that has a row of _sas.ready at this moment */
	:: atomic { supervisor_phase == IDLE && (message_failed[0] || message_failed[1]) && run_lock == 0 ->
		run_lock = SUPERVISOR; supervisor_phase = DECIDING }
	:: atomic { supervisor_phase == DECIDING && ready_lock[0] == 0 && ready_lock[1] == 0 ->
		if
		:: message_failed[0] -> decide(0)
		:: !message_failed[0] && message_failed[1] -> decide(1)
		fi;
		run_lock = 0;
		supervisor_phase = IDLE }
	od
}

/* ---------------------------------------------------------------- scheduler */

#define IS_UNDONE_NEXT(s) (step_state[s] == SUCCEEDED || step_state[s] == FAILED && in_doubt[s])

/* _sas.undo_next of this step; the run is locked */
inline undo_step(s)
{
	failure_count[s] = 0;
	open_steps = 1;
	if
	:: step_state[s] == FAILED && READS && IS_CALL(s) -> move(s, READY)
	:: else -> move(s, COMPENSATING)
	fi;
	ready[s] = 1
}

inline undo_next()
{
	message_undo = 0;
	if
#ifdef NO_OPEN_COUNT
	:: run_state == UNDOING ->
#else
	:: run_state == UNDOING && open_steps == 0 ->
#endif
		if
		:: !IS_UNDONE_NEXT(0) && !IS_UNDONE_NEXT(1) -> move_run(STOPPED)
		:: IS_UNDONE_NEXT(0) && !IS_UNDONE_NEXT(1) -> undo_step(0)
		:: !IS_UNDONE_NEXT(0) && IS_UNDONE_NEXT(1) -> undo_step(1)
		:: IS_UNDONE_NEXT(0) && IS_UNDONE_NEXT(1) ->
			if
#ifdef NO_UNDO_ORDER
			:: true -> undo_step(0)
#else
			/* completion DESC NULLS FIRST, step_no DESC */
			:: completion[1] == 0 || completion[0] != 0 && completion[1] > completion[0] -> undo_step(1)
			:: else -> undo_step(0)
#endif
			fi
		fi
	:: else
	fi
}

#ifdef NO_STOP_WAIT
#define STOPS_ITSELF(s) (false)
#else
#define STOPS_ITSELF(s) (IS_CALL(s) && IS_ALIVE(s))
#endif
#define IS_CANCELLED(s) (abandon_as == CANCEL && step_state[s] == RUNNING && IS_HELD(s))
#define IS_REVOCABLE(s) (IS_CANCELLED(s) && !STOPS_ITSELF(s))

inline lock_revocable(s)
{
	if
	:: IS_REVOCABLE(s) && lease[s] != 0 && lease_lock[s] == 0 -> lease_lock[s] = SCHEDULER
	:: else
	fi
}

/* of _sas.revoke_claims */
inline revoke(s)
{
	if
	:: IS_CANCELLED(s) && STOPS_ITSELF(s) -> told[s] = request_id[s]
	:: else
	fi;
	if
	:: IS_REVOCABLE(s) && (lease_lock[s] == SCHEDULER || lease[s] == 0) ->
		revoked[s] = request_id[s];
		request_id[s] = 0;
		overdue[s] = 0;
		if
		:: IS_CALL(s) ->
#ifndef NO_DOUBT
			in_doubt[s] = 1;
#endif
			move(s, FAILED)
		:: else -> move(s, CANCELLED)
		fi;
		close_step()
	/* somebody is about to answer: asked for again in a moment */
	:: IS_REVOCABLE(s) && lease_lock[s] != SCHEDULER && lease[s] != 0 -> message_revoke = 1
	:: else
	fi;
	if
	:: lease_lock[s] == SCHEDULER -> lease_lock[s] = 0
	:: else
	fi
}

/* the pause of a step is over: _sas.wake_steps */
inline wake_step(s)
{
	message_ready[s] = 0;
	if
	:: step_state[s] == SUSPENDED -> move(s, READY); requeue(s)
	:: step_state[s] == COMPENSATING -> move(s, COMPENSATING); requeue(s)
	:: else
	fi
}

proctype scheduler()
{
end:
	do
	:: atomic { scheduler_phase == IDLE && message_ready[0] && run_lock == 0 -> wake_step(0) }
	:: atomic { scheduler_phase == IDLE && message_ready[1] && run_lock == 0 -> wake_step(1) }
	:: atomic { scheduler_phase == IDLE && message_undo && run_lock == 0 -> undo_next() }
	:: atomic { scheduler_phase == IDLE && message_answer && run_lock == 0 -> apply_answers() }
	/* _sas.revoke_claims: what it saw before it had the leases is looked at again */
	:: atomic { scheduler_phase == IDLE && message_revoke && run_lock == 0 && !(IS_REVOCABLE(0) && lease_lock[0] != 0) && !(IS_REVOCABLE(1) && lease_lock[1] != 0) ->
		message_revoke = 0;
		run_lock = SCHEDULER;
		scheduler_phase = REVOKING;
		lock_revocable(0);
		lock_revocable(1) }
	:: atomic { scheduler_phase == REVOKING ->
		revoke(0);
		revoke(1);
		run_lock = 0;
		scheduler_phase = IDLE }
	od
}

/* ---------------------------------------------------------------- the others */

/* sas.cancel: it waits for the run, and for a claim that has one of its rows at this moment */
proctype operator()
{
end:
	do
	:: atomic { operator_phase == IDLE && cancels_left > 0 && run_lock == 0 && run_state != STOPPED && abandon_as == 0 ->
		run_lock = OPERATOR; operator_phase = 1 }
	:: atomic { operator_phase == 1 && ready_lock[0] == 0 && ready_lock[1] == 0 ->
		cancels_left--;
		abandon(CANCEL, true);
		run_lock = 0;
		operator_phase = IDLE }
	:: atomic { operator_phase == IDLE && cancels_left > 0 -> cancels_left = 0 }
	od
}

/* a session that keeps the run for a while */
proctype session()
{
end:
	do
	:: atomic { locks_left > 0 && run_lock == 0 -> locks_left--; run_lock = SESSION }
	:: atomic { run_lock == SESSION -> run_lock = 0 }
	od
}

inline end_window(s)
{
	overdue[s] = 1;
	for (i_ : 0 .. 1)
	{
		if
		:: at[i_] == s && token[i_] == request_id[s] -> past[i_] = 1
		:: else
		fi
	};
	i_ = 0
}

/* windows end */
proctype clock()
{
end:
	do
#ifndef NO_COMPLETE_BY
	:: atomic { request_id[0] != 0 && !overdue[0] && answer[0] == 0 -> end_window(0) }
	:: atomic { request_id[1] != 0 && !overdue[1] && answer[1] == 0 -> end_window(1) }
#endif
	:: false
	od
}

/* a worker, or the whole server */
proctype crash()
{
end:
	do
	:: atomic { crashes_left > 0 ->
		crashes_left--;
		if
		:: true -> die(0)
		:: true -> die(1)
		:: true ->
			die(0);
			die(1);
			run_lock = 0;
			lease_lock[0] = 0;
			lease_lock[1] = 0;
			supervisor_phase = IDLE;
			supervisor_at = 0;
			supervisor_claim = 0;
			scheduler_phase = IDLE;
			operator_phase = IDLE
		:: skip
		fi }
	od
}

inline check_step(s)
{
	assert(lease[s] == 0 && answer[s] == 0 && !ready[s] && request_id[s] == 0);
	assert(!message_failed[s] && !message_ready[s] && ready_lock[s] == 0 && lease_lock[s] == 0);
	assert(step_state[s] != RUNNING);
	if
	:: run_state == STOPPED && abandon_as == 0 -> assert(step_state[s] == SUCCEEDED && effect[s] == 1 && undo_effect[s] == 0)
	:: run_state == STOPPED && abandon_as != 0 ->
		/* all or undone */
		assert(effect[s] == 0 || undo_effect[s] == 1);
		assert(step_state[s] != SUCCEEDED && step_state[s] != READY && step_state[s] != SUSPENDED && step_state[s] != COMPENSATING)
	:: else
	fi
}

/* When nobody can do anything any more, the run has ended, or is paused with an alert, and nothing is left of it. */
proctype judge()
{
	atomic { timeout ->
		assert(run_state == STOPPED || run_state == PAUSED);
		assert(run_lock == 0 && !message_undo && !message_answer);
		check_step(0);
		check_step(1) }
}

init
{
	atomic {
		move_run(PENDING);
		ready[0] = 1;
		open_steps = 1;
		if
		:: SHAPE == 1 -> ready[1] = 1; open_steps = 2
		:: else
		fi;
		run worker(0);
		run worker(1);
		run supervisor();
		run scheduler();
		run operator();
		run session();
		run clock();
		run crash();
		run judge() }
}

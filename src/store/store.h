/* SPDX-License-Identifier: PostgreSQL */
/*
 * store.h: the state store, as named calls.
 *
 * No other folder runs SQL. A tick of an actor is
 *
 *	  if (!sas_store_begin())
 *		  return leave;			the extension is gone
 *	  ... named calls ...
 *	  sas_store_commit();
 *
 * The result of a call is allocated in the context that was current at
 * begin, and outlives the commit.  An ERROR in between aborts everything;
 * the loop of the worker cleans up.
 */
#ifndef SAS_STORE_STORE_H
#define SAS_STORE_STORE_H

#include "base/peers.h"
#include "nodes/pg_list.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

/* Opens a transaction; false (and sas_base_retire set, nothing open) when the extension is gone. */
extern bool sas_store_begin(void);
extern void sas_store_commit(void);

/* Instead of the commit: nothing of it counts. */
extern void sas_store_rollback(void);

/* In a transaction of its own: the extension is there, and this is no copy in quarantine. Says in the database what it found. */
extern bool sas_store_at_home(void);

/* The context that was current at sas_store_begin: results go there. */
extern MemoryContext sas_store_results;

/* A step of a run, in all calls. */
typedef struct SasStepId
{
	int64		run_id;
	int			step_no;
	int			element;
	pg_uuid_t	request_id;
} SasStepId;

/* An agent, secrets filled in. */
typedef struct SasStoredAgent
{
	int			agent_id;
	char	   *name;
	char	   *base_url;
	bool		enabled;
	int			max_in_flight;
	bool		shared;			/* several roles have a grant */
	double		rate_per_s;
	double		request_timeout_ms;
	Jsonb	   *headers;		/* NULL: none */
	Jsonb	   *query;			/* NULL: none */
	Jsonb	   *options;
	Jsonb	   *retry;
	int			breaker_failures;
	double		breaker_window_ms;
	double		breaker_open_ms;
	char	   *breaker;
	double		open_for_ms;
	int64		max_response;
	double		connect_timeout_ms;
	List	   *secrets;		/* of char *: the values to mask, the longest first */
	List	   *current;		/* those of secrets that are in use now */
	List	   *former;			/* those that this worker knows from earlier versions, the newest first */
	List	   *tokens;			/* those that are access tokens, the newest first */
	List	   *secret_files;	/* of char *, and their stamps when they were read */
	List	   *secret_stamps;
	char	   *problem;		/* why nothing can be sent, or NULL: a file of a secret cannot be read */
	List	   *breaker_paths;	/* of char *: calls below them have a breaker of their own */
	char	   *version;		/* NULL: it is gone, and only agent_id is set */
	MemoryContext context;		/* of its own */
} SasStoredAgent;

/*
 * Agents that have changed or are new, compared with the n known ones, and
 * entries for known ones that are gone; each in a context of its own, below
 * the current one.
 */
extern List *sas_store_agents(SasStoredAgent *const *known, int n);

/*
 * Between these two, names mean what they mean in a worker, whatever the
 * search_path of the session is.  They enclose statements that run with the
 * rights of a session's user, or of the owner of sas.  A plan that was made
 * under another path is made again. pin returns what unpin needs; an error
 * undoes it.
 */
extern int	sas_store_pin_path(void);

/* The same, and values become texts that every session reads alike. */
extern int	sas_store_pin_text(void);
extern void sas_store_unpin_path(int level);

/*
 * Between these two, a SQL function in any session may make the calls below,
 * in the open transaction and under a pinned search_path.  Their results are
 * allocated in the context that was current at enter. enter returns what
 * leave needs.
 */
extern int	sas_store_enter(void);
extern void sas_store_leave(int level);

/* One agent as a stubbed call sees it: with the names of secrets for their values. NULL: there is none. */
extern SasStoredAgent *sas_store_stubbed_agent(int agent_id);

/* A claimed call. */
typedef struct SasClaimedCall
{
	SasStepId	id;
	int64		lease_id;
	int			agent_id;
	char	   *step;
	bool		undo;
	int			attempt;		/* made before this claim */
	double		window_ms;
	pg_uuid_t	trace;
	char	   *idempotency_key;
	Jsonb	   *request;		/* NULL: see problem */
	Jsonb	   *policy;
	Jsonb	   *problem;
	int			workflow_id;
	Oid			owner;			/* of the run */
} SasClaimedCall;

/* Claims that many calls of each lane: a list of SasClaimedCall. apart: the last claim has failed; see _sas.claim_ready. */
extern List *sas_store_claim_calls(const int *lanes, const int *quantities, int n, bool apart);

/* A claimed function step. */
typedef struct SasClaimedFunction
{
	SasStepId	id;
	int64		lease_id;
	Oid			owner;
	char	   *step;
	bool		undo;
	int			attempt;
	bool		isolated;
	double		window_ms;
	char	   *function;
	Jsonb	   *input;
	Jsonb	   *problem;
	Jsonb	   *retry;			/* the step's own policy, or NULL */
	int			workflow_id;
	bool		evaluates;		/* it has an expect or an output to be asked */
} SasClaimedFunction;

/* The limit function_workers of that role. */
extern int64 sas_store_function_workers(Oid owner);

/* Allocated in that context. urgent: where the first ones have a higher priority than those behind them, these only. */
extern List *sas_store_claim_functions(MemoryContext context, int quantity, bool urgent, bool apart);

/* Executes the statements of claims and replies for no step, so that they are planned; to be rolled back. */
extern void sas_store_rehearse_functions(void);

/* Which are valid; nothing is locked. */
extern bool *sas_store_valid_claims(const SasStepId *ids, int n);

/* The claim of a call. */
typedef enum SasClaimState
{
	SAS_CLAIM_HELD,
	SAS_CLAIM_STOP,				/* its run was cancelled: its call is to be stopped */
	SAS_CLAIM_LOST				/* it does not hold any longer */
} SasClaimState;

/* Finds the states of these claims; nothing is locked. */
extern void sas_store_claims_of_calls(const SasStepId *ids, int n, SasClaimState *states);

/* What became of a claimed step: see the type _sas.call_reply. */
typedef struct SasStoredReply
{
	SasStepId	id;
	const char *verdict;
	int			attempts;		/* made under this claim */
	Jsonb	   *output;
	Jsonb	   *error;
	bool		in_doubt;
	double		again_in_ms;	/* hand_back: 0 at once */
	TimestampTz arrived_at;		/* it counts when that is before complete-by */
} SasStoredReply;

/*
 * Writes replies.  A reply to a run that another transaction holds is stored,
 * too, and applied later.  Sets lost[i] for replies that do not count.
 * local: the replies are of functions; where one that does not count says done,
 * the caller rolls back what its function wrote.
 */
extern void sas_store_write_replies(const SasStoredReply *replies, int n, const int64 *done_leases, int n_done, const int64 *under_leases, int n_under, bool *lost);

/* What the step has against this output of its function (expect, output): a problem object, or NULL. */
extern Jsonb *sas_store_evaluate_output(const SasClaimedFunction *step, Jsonb *output);

/* A row of _sas.attempt. */
typedef struct SasStoredAttempt
{
	SasStepId	id;
	int			attempt;
	bool		undo;
	int			agent_id;
	const char *status;
	int			http_status;
	Jsonb	   *error;
	TimestampTz started_at;
	TimestampTz finished_at;
} SasStoredAttempt;

/* Stores failed and further attempts. */
extern void sas_store_write_attempts(const SasStoredAttempt *attempts, int n);

/* breaker NULL: unchanged; error NULL: none. False: the row is locked, and nothing was written. */
extern bool sas_store_write_health(int agent_id, const char *breaker, double open_ms, Jsonb *error);

/* What cannot be carried out, because of which error; run_id 0: of no run. */
typedef struct SasStuck
{
	char	   *what;
	int64		run_id;
	char	   *message;		/* "<message>: <error>. <detail>": not every reader of alerts sees the error */
	int			sqlstate;
	char	   *error;
	char	   *detail;
} SasStuck;

/* Raises an alert "stuck", or counts it once more. */
extern void sas_store_raise_stuck(const SasStuck *stuck);

/* Progress of a sweep that sets the timers of deadlines: see _sas.set_timers(). Below 0: not known. */
typedef struct SasTimerSweep
{
	int64		at;
	int64		again;
	int64		settles;
} SasTimerSweep;

/* One step of the sweep; it is done when the transaction has committed. False: the sweep is at its end. *next_due as below. */
extern bool sas_store_set_timers(SasTimerSweep *sweep, TimestampTz *next_due);

/* worked, and the next due time in *next_due (DT_NOEND: none) */
extern int	sas_store_scheduler_tick(int quantity, bool by_owner, TimestampTz *next_due);

/* The same for replies to runs that were held when they arrived. */
extern int	sas_store_answer_tick(int quantity, TimestampTz *next_due);

/* is anything open that may need another check soon? */
extern bool sas_store_check_conditions(void);

/* Counts what roles have open. */
extern void sas_store_count_open(void);
extern int	sas_store_purge(int quantity, TimestampTz *next_due);

/* Functions of infinite tasks that do not return: their tasks go to other workers. */
extern void sas_store_give_up_invocations(const SasPeerInvocation *invocations, int n);

/* What the workers of these calls hold beside them goes to others. True: something waits for a worker that has time. */
extern bool sas_store_relieve(const SasPeerCall *calls, int n);

/*
 * The two ticks of the supervisor: of runs, and of infinite tasks.  live, newest:
 * the workers that live, as sas_base_peers_live() returns them.
 */
extern int	sas_store_supervisor_tick(const int64 *live, int n_live, int64 newest, int quantity, TimestampTz *next_due);
extern int	sas_store_supervise_watches(const int64 *live, int n_live, int64 newest, TimestampTz *next_due);

/*
 * The run as its caller may see it, for sas.wait; in the caller's
 * transaction.  False: there is none.  values as in the view sas.runs:
 * state, result, output, error.
 */
extern bool sas_store_run_state(int64 run_id, Datum values[4], bool nulls[4]);

/* SET CONSTRAINTS ALL IMMEDIATE, as the current user: what was deferred happens now. */
extern void sas_store_constraints_immediate(void);

#endif							/* SAS_STORE_STORE_H */

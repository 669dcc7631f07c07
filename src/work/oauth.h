/* SPDX-License-Identifier: PostgreSQL */
/*
 * oauth.h: access tokens of agents, by their option "oauth2": client
 * credentials of OAuth 2.0 (RFC 6749, section 4.4), used as RFC 6750 says.
 *
 * A worker asks for a token once, whatever waits for it.  It is kept in the
 * memory of this process only, and renewed before it expires: while it is
 * still good, nothing waits for the new one.
 */
#ifndef SAS_WORK_OAUTH_H
#define SAS_WORK_OAUTH_H

#include "store/store.h"
#include "transport/transport.h"

typedef enum SasTokenState
{
	SAS_TOKEN_NONE,				/* the agent needs none */
	SAS_TOKEN_READY,
	SAS_TOKEN_COMES,			/* requested; next_news reports when it has come or has failed */
	SAS_TOKEN_FAILED			/* there is none for now */
} SasTokenState;

/* calls: the transport whose descriptor the owner waits for. */
extern void sas_work_tokens_open(SasTransport *calls);
extern void sas_work_tokens_close(void);

/* what: the token, or why there is none (a fragment without secrets); good until the next call of this file. */
extern SasTokenState sas_work_token_ask(const SasStoredAgent *agent, const char **what);

/* Adds it to a call, in the current context. */
extern void sas_work_token_add(SasCall *call, const char *token);

/* The service did not take this token: another one is asked for, at most once a second. */
extern void sas_work_token_refused(int agent_id, const char *token);

/* The agent is gone. */
extern void sas_work_token_forget(int agent_id);

/* Moves what was asked for; then next_news returns each agent once for which something came, and 0 at the end. */
extern void sas_work_tokens_move(void);
extern int	sas_work_tokens_next_news(void);

/* When sas_work_tokens_move must be called at the latest; -1: when the descriptor is readable. */
extern int64 sas_work_tokens_wake_in_ms(void);

#endif							/* SAS_WORK_OAUTH_H */

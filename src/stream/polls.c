/* SPDX-License-Identifier: PostgreSQL */
/*
 * polls.c: evaluates the answer to a poll.
 */
#include "postgres.h"

#include "base/clock.h"
#include "common/cryptohash.h"
#include "common/sha2.h"
#include "stream/watch.h"
#include "utils/resowner.h"
#include "utils/timestamp.h"

/* A long poll that gets an empty answer at once is repeated after this time. */
#define SAS_EMPTY_US 1000000

/* SHA-256 of the body, in hex. No transaction is open, but the server wants a resource owner for the computation. */
static char *
polls_digest(const SasReply *reply)
{
	static ResourceOwner owner = NULL;
	pg_cryptohash_ctx *hash;
	uint8		sum[PG_SHA256_DIGEST_LENGTH];
	char	   *hex = palloc(2 * PG_SHA256_DIGEST_LENGTH + 1);

	if (owner == NULL)
		owner = ResourceOwnerCreate(NULL, "sas digest");
	CurrentResourceOwner = owner;
	hash = pg_cryptohash_create(PG_SHA256);
	if (hash == NULL || pg_cryptohash_init(hash) < 0 ||
		pg_cryptohash_update(hash, (const uint8 *) (reply->body ? reply->body : ""), reply->body_len) < 0 ||
		pg_cryptohash_final(hash, sum, sizeof(sum)) < 0)
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not compute a digest")));
	pg_cryptohash_free(hash);
	CurrentResourceOwner = NULL;
	for (int i = 0; i < PG_SHA256_DIGEST_LENGTH; i++)
		snprintf(hex + 2 * i, 3, "%02x", sum[i]);
	return hex;
}

/* An etag that no header can have would make all further polls fail. */
static void
polls_remember_etag(SasWatch *w, const SasReply *reply)
{
	const char *etag = sas_transport_reply_header(reply, "etag");

	if (w->etag != NULL)
		pfree(w->etag);
	w->etag = NULL;
	if (etag != NULL && strlen(etag) < 1024 && sas_transport_is_header_value(etag))
		w->etag = MemoryContextStrdup(sas_stream_context, etag);
}

void
sas_stream_poll_finish(SasWatch *w, SasReply *reply, const SasStoredAgent *agent)
{
	char	   *digest;

	w->looked = w->next_at != DT_NOEND;
	if (reply->status != 304)
	{
		digest = polls_digest(reply);
		polls_remember_etag(w, reply);
		if (w->digest == NULL || strcmp(digest, w->digest) != 0)
		{
			sas_stream_items_answer(w, reply, agent);
			w->new_digest = MemoryContextStrdup(w->batch, digest);
			w->ask = true;
			sas_stream_watch_set_line(w, SAS_LINE_DUE);
			return;
		}
	}
	if (!w->looked)
	{
		sas_stream_watch_again(w, w->begun_us + (int64) (w->every_ms * 1000));
		return;
	}
	/* the store records the poll, and returns when the next one is due */
	w->ask = true;
	sas_stream_watch_set_line(w, SAS_LINE_DUE);
}

void
sas_stream_long_poll_finish(SasWatch *w, SasReply *reply, const SasStoredAgent *agent)
{
	int64		now = sas_base_clock_monotonic_us();

	if (reply->body_len > 0 && reply->status != 304)
		sas_stream_items_answer(w, reply, agent);
	if (w->n_items > 0)
	{
		w->ask = true;
		sas_stream_watch_set_line(w, SAS_LINE_DUE);
	}
	else
		sas_stream_watch_again(w, now - w->begun_us < SAS_EMPTY_US ? now + SAS_EMPTY_US : now);
}

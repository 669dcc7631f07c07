/* SPDX-License-Identifier: PostgreSQL */
/*
 * polls.c: evaluates the answer to a poll.
 */
#include "postgres.h"

#include "base/clock.h"
#include "base/digest.h"
#include "stream/hosted.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* A long poll that gets an empty answer at once is repeated after this time. */
#define SAS_EMPTY_US 1000000

/* SHA-256 of the body, in hex. */
static char *
polls_digest(const SasReply *reply)
{
	uint8		sum[PG_SHA256_DIGEST_LENGTH];

	sas_base_digest(PG_SHA256, reply->body ? reply->body : "", reply->body_len, sum, sizeof(sum));
	return sas_base_hex(sum, sizeof(sum));
}

/* A body that has changed becomes an item.  Then the etag is noted: after an error the service sends the body again. */
static void
polls_take(SasWatch *w, SasReply *reply, const SasStoredAgent *agent)
{
	const char *etag = sas_transport_reply_header(reply, "etag");
	char	   *digest = polls_digest(reply);

	if (w->digest == NULL || strcmp(digest, w->digest) != 0)
	{
		sas_stream_items_answer(w, reply, agent);
		w->new_digest = MemoryContextStrdup(w->batch, digest);
		w->ask = true;
	}
	/* one that no header can have would make all further polls fail */
	sas_stream_hosted_replace(&w->etag, etag != NULL && strlen(etag) < 1024 && sas_transport_is_header_value(etag) ? etag : NULL);
}

void
sas_stream_poll_finish(SasWatch *w, SasReply *reply, const SasStoredAgent *agent)
{
	/* the store records the poll, and returns when the next one is due */
	w->ask = w->looked = w->next_at != DT_NOEND;
	if (reply->status != 304)
		polls_take(w, reply, agent);
	if (w->ask)
		sas_stream_watch_set_line(w, SAS_LINE_DUE);
	else
		sas_stream_watch_set_timer(w, w->begun_us + (int64) (w->every_ms * 1000));
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
		sas_stream_watch_set_timer(w, now - w->begun_us < SAS_EMPTY_US ? now + SAS_EMPTY_US : now);
}

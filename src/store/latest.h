/* SPDX-License-Identifier: PostgreSQL */
/*
 * latest.h: what is committed now, for a transaction with an older snapshot.
 */
#ifndef SAS_STORE_LATEST_H
#define SAS_STORE_LATEST_H

#include "datatype/timestamp.h"
#include "utils/snapshot.h"
#include "utils/uuid.h"

/* Does this transaction keep one snapshot (REPEATABLE READ, SERIALIZABLE)? */
extern bool sas_store_keeps_snapshot(void);

/* _sas.refuse_signal() of this run as it is committed now; NULL: a step can take the signal. */
extern text *sas_store_latest_refusal(int64 run_id, text *signal, const int32 *for_step, const int32 *for_element);

/* _sas.claimed_until() of this claim as it is committed now; DT_NOBEGIN: there is no such claim. */
extern TimestampTz sas_store_latest_claim(const pg_uuid_t *request_id);

/* _sas.hosted_by() of this infinite task as it is committed now; NULL: no node holds it. */
extern text *sas_store_latest_host(int64 watch_id);

/* Is there, as is committed now, a node of this id? */
extern bool sas_store_latest_node(int64 node_id);

/* Does anything use this object, as is committed now?  See _sas.user_of(). */
extern bool sas_store_latest_use(text *kind, text *name);

/* _sas.rows_of() as is committed now: jsonb. */
extern Datum sas_store_latest_rows(text *kind, int64 id);

/* Are these rows others than this transaction sees? */
extern bool sas_store_rows_changed(text *kind, int64 id);

/* Has the workflow been dropped, paused or given away, or have agents or queues been dropped, since this transaction took its snapshot? */
extern bool sas_store_workflow_changed(int workflow_id);

/* Has a secret changed since then? */
extern bool sas_store_secrets_changed(void);

/* _sas.count_quotas() by that snapshot: bigint[]. */
extern Datum sas_store_count_quotas(Snapshot snapshot);

#endif							/* SAS_STORE_LATEST_H */

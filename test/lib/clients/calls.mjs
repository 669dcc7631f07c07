// SPDX-License-Identifier: PostgreSQL
//
// What the library for TypeScript does on clients of the caller; for t/504_client_calls.pl. Prints what it saw.

import pg from "pg";
import { signal, signalKey, submit, submitBatch, wait } from "sas-worker";

const client = new pg.Client();
const look = new pg.Client();
await Promise.all([client.connect(), look.connect()]);
const runs = async () => Number((await look.query("SELECT count(*) FROM sas.runs")).rows[0].count);

const before = await runs();
await client.query("BEGIN");
await submit(client, "asks", { n: 1 });
await client.query("ROLLBACK");
console.log("rolled back:", (await runs()) - before);
await client.query("BEGIN");
const run = await submit(client, "asks", { n: 2 }, { key: "js", labels: { from: "js" }, priority: 5, deadline: 600, startBefore: new Date(Date.now() + 6e5) });
console.log("before commit:", (await runs()) - before, run.created);
await client.query("COMMIT");
const again = await submit(client, "asks", { n: 2 }, { key: "js" });
console.log("again:", again.runId === run.runId, again.created);
console.log("waits:", (await wait(look, run.runId, 0.2)).state !== "stopped");
await signal(client, run.runId, "go", { answer: 42 });
const { state, result, output } = await wait(look, run.runId);
console.log("ended:", state, result, output.answer);
await client.query("BEGIN");
const [first, second] = await submitBatch(client, "asks", [{ n: 4 }, { n: 5 }], ["batch", null], { labels: { from: "batch" } });
console.log("batch before commit:", (await runs()) - before, first.created, second.created);
await client.query("COMMIT");
const [same] = await submitBatch(client, "asks", [{ n: 4 }], ["batch"]);
console.log("batch again:", same.runId === first.runId, same.created, (await submitBatch(client, "asks", [])).length);
const plain = { key: null, priority: null, startAt: null, startBefore: null, deadline: null, afterRuns: null, afterResult: null, replyTo: null, labels: null, version: null };
console.log("null:", (await submit(client, "asks", { n: 6 }, plain)).created, (await submitBatch(client, "asks", [{ n: 7 }], null, { ...plain, key: undefined }))[0].created);
await signalKey(client, "asks", "batch", "go", { answer: 43 });
console.log("by key:", (await wait(look, first.runId)).output.answer);
await Promise.all([client.end(), look.end()]);

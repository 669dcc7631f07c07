// SPDX-License-Identifier: PostgreSQL
//
// pg-boss:
//
//   boss.mjs batches N    two workers that take 1,000 at a time, without a pause while batches are full

import { PgBoss } from "pg-boss";
import { connection, quiet, seconds, tally, tell } from "./peer.mjs";

const n = Number(process.argv[3]);
const boss = new PgBoss({ ...connection, max: 10, supervise: false, schedule: false });
boss.on("error", quiet.error);
await boss.start();
await boss.createQueue("echo");
for (let from = 1; from <= n; from += 1000)
  await boss.insert("echo", Array.from({ length: Math.min(1000, n - from + 1) }, (_, i) => ({ data: { n: from + i } })));

const done = tally(n);
const begun = seconds();
await boss.work("echo", { batchSize: 1000, localConcurrency: 2, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5 }, async (jobs) => {
  for (const job of jobs) done.add(job.data.n);
});
await done.all;
await boss.stop({ graceful: true }); // what is done is written
tell({ done: done.done, sum: done.sum, seconds: seconds() - begun });

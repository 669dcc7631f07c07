// SPDX-License-Identifier: PostgreSQL
//
// graphile-worker:
//
//   graphile.mjs workers N    24 jobs at once, a connection each
//   graphile.mjs local N      the same with a local queue and completion in batches
//   graphile.mjs burst N      N jobs that come in one transaction, to workers (as local) that are idle
//   graphile.mjs latency N    N jobs, one by one: add_job begun, and committed -> task started
//   graphile.mjs trickle      jobs that others add, until its input ends

import { Logger, makeWorkerUtils, run } from "graphile-worker";
import { pool, quiet, seconds, tally, tell } from "./peer.mjs";

const [mode, count] = process.argv.slice(2);
const n = Number(count);
const pgPool = pool(30);
const logger = new Logger(() => (level, message) => (level === "error" ? quiet.error(message) : undefined));
const utils = await makeWorkerUtils({ pgPool, logger });
await utils.migrate();

const worker = { concurrentJobs: 24, maxPoolSize: 30, logger };
if (mode === "local" || mode === "burst") Object.assign(worker, { localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 });

const started = new Map();
const done = tally(n);
const taskList = {
  echo(payload) {
    started.set(payload.n, performance.now());
    done.add(payload.n);
  },
};
const begin = () => run({ pgPool, taskList, noHandleSignals: true, parsedCronItems: [], preset: { worker } });

if (mode === "latency") {
  const runner = await begin();
  await new Promise((r) => setTimeout(r, 500));
  const sent = [], added = [];
  for (let i = 1; i <= n; i++) {
    sent[i] = performance.now();
    await pgPool.query("SELECT graphile_worker.add_job('echo', json_build_object('n', $1::int))", [i]);
    added[i] = performance.now();
    await new Promise((r) => setTimeout(r, 15 + Math.random() * 20));
  }
  await done.all;
  await runner.stop();
  tell({ done: done.done, sum: done.sum, ms: sent.map((t, i) => started.get(i) - t).slice(1) });
} else if (mode === "trickle") {
  const runner = await begin();
  tell({ ready: true });
  process.stdin.resume();
  await new Promise((r) => process.stdin.on("end", r));
  await runner.stop();
  tell({ done: done.done });
} else {
  const specs = "SELECT array_agg(('echo', json_build_object('n', g), NULL, NULL, NULL, NULL, NULL, NULL)::graphile_worker.job_spec) FROM generate_series($1::int, $2::int) g";
  const runner = mode === "burst" && (await begin());
  const client = await pgPool.connect();
  if (runner) await new Promise((r) => setTimeout(r, 500));
  if (runner) await client.query("BEGIN");
  for (let from = 1; from <= n; from += 1000) await client.query(`SELECT count(*) FROM graphile_worker.add_jobs((${specs}))`, [from, Math.min(n, from + 999)]);
  if (runner) await client.query("COMMIT");
  const begun = seconds();
  client.release();
  const running = runner || (await begin());
  await done.all;
  await running.stop(); // what is done is written
  tell({ done: done.done, sum: done.sum, seconds: seconds() - begun });
}
await utils.release();
await pgPool.end();

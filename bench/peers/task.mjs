// SPDX-License-Identifier: PostgreSQL
//
// The worker library of sas for TypeScript:
//
//   task.mjs workers N    N tasks that wait, 24 at once
//   task.mjs latency N    N runs, one by one: submit begun -> handler begins

import { Worker, submit } from "./sas-worker.mjs";
import { connection, pool, quiet, seconds, tally, tell } from "./peer.mjs";

const [mode, count] = process.argv.slice(2);
const n = Number(count);
const started = new Map();
const done = tally(n);
const handler = (task) => {
  started.set(task.request.n, performance.now());
  done.add(task.request.n);
  return { n: task.request.n };
};
const worker = new Worker({ connection, agent: "tasks", handler, concurrency: 24, log: quiet.error });

const begun = seconds();
const ended = worker.run();
const sent = [];
if (mode === "latency") {
  const clients = pool(1);
  await new Promise((r) => setTimeout(r, 500));
  for (let i = 1; i <= n; i++) {
    sent[i] = performance.now();
    await submit(clients, "task", { n: i });
    await new Promise((r) => setTimeout(r, 15 + Math.random() * 20));
  }
  await clients.end();
}
await done.all;
worker.stop();
await ended; // what is done is written
tell({ done: done.done, sum: done.sum, seconds: seconds() - begun, ms: sent.map((t, i) => started.get(i) - t).slice(1) });

// SPDX-License-Identifier: PostgreSQL
//
// DBOS, workflows of three steps, or one:
//
//   dbos.mjs direct N    started by this program, 50 at once
//   dbos.mjs queue N     put into a queue before this program begins to work on it, 50 at once
//   dbos.mjs tasks N     the same of workflows of one step, 24 at once

import { DBOS, DBOSClient } from "@dbos-inc/dbos-sdk";
import { connection, pool, quiet, seconds, tally, tell } from "./peer.mjs";

const [mode, count] = process.argv.slice(2);
const n = Number(count);
const { host, port, user, database } = connection;
const systemDatabaseUrl = `postgresql://${user}@localhost:${port}/${database}?host=${encodeURIComponent(host)}`;

const done = tally(n);
const echo = async (input) => input;
const finish = (output) => (done.add(output.n), output);
const workflow = DBOS.registerWorkflow(
  async (input) => {
    const one = await DBOS.runStep(() => echo(input), { name: "one" });
    if (mode === "tasks") return finish(one);
    const two = await DBOS.runStep(() => echo(one), { name: "two" });
    const three = await DBOS.runStep(() => echo(two), { name: "three" });
    return finish(three);
  },
  { name: "steps" },
);

DBOS.setConfig({ name: "bench", systemDatabaseUrl, systemDatabasePoolSize: 50, logger: quiet, applicationVersion: "1" });
if (mode !== "direct") {
  // its tables are there once it was launched
  await DBOS.launch();
  await DBOS.shutdown();
  const client = await DBOSClient.create({ systemDatabaseUrl });
  let next = 1;
  await Promise.all(
    Array.from({ length: 16 }, async () => {
      while (next <= n) await client.enqueue({ queueName: "steps", workflowName: "steps", appVersion: "1" }, { n: next++ });
    }),
  );
  await client.destroy();
}
const begun = seconds();
await DBOS.launch();
if (mode !== "direct") await DBOS.registerQueue("steps", { workerConcurrency: mode === "tasks" ? 24 : 50, minPollingIntervalMs: 10 });
else {
  let next = 1;
  await Promise.all(
    Array.from({ length: 50 }, async () => {
      while (next <= n) await (await DBOS.startWorkflow(workflow)({ n: next++ })).getResult();
    }),
  );
}
await done.all;
// a workflow has ended when that is written, which the function itself does not see
const look = pool(1);
const open = "SELECT EXISTS (SELECT FROM dbos.workflow_status WHERE status NOT IN ('SUCCESS', 'ERROR'))";
while ((await look.query(open)).rows[0].exists) await new Promise((r) => setTimeout(r, 5));
const took = seconds() - begun;
await look.end();
await DBOS.shutdown();
tell({ done: done.done, sum: done.sum, seconds: took });

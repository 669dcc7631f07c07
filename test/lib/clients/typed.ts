// SPDX-License-Identifier: PostgreSQL
// What a compiler knows of the library for TypeScript: read by tsc (tools/check_lint), run by nobody.
import { Queryable, Task, Worker, signal, signalKey, submit, submitBatch, wait } from "../../../clients/typescript/index.js";

export async function calls(client: Queryable) {
  const one: { runId: number; created: boolean } = await submit(client, "order", { n: 1 }, { key: "k", priority: 2 });
  const all: { runId: number }[] = await submitBatch(client, "order", [{ n: 1 }], ["k"]);
  const ended: { state: string; output: { n: number } | null } = await wait<{ n: number }>(client, one.runId, 1.5);
  await signal(client, one.runId, "paid");
  await signalKey(client, "order", "k", "paid", { amount: 20 });
  // @ts-expect-error there is no such option
  await submit(client, "order", {}, { kye: "k" });
  // @ts-expect-error the key of a batch is an array of its own
  await submitBatch(client, "order", [{}], null, { key: "k" });
  // @ts-expect-error a run has a number
  await signal(client, "order", "paid");
  return [all, ended];
}

const handler = async (task: Task<{ n: number }, { done: number }>) => {
  await task.save({ done: (task.checkpoint?.done ?? 0) + task.request.n }, 0.5);
  await task.emit("a chunk");
  // @ts-expect-error this checkpoint has no such member
  await task.save({ gone: 1 });
  return { ended: !task.signal.aborted };
};
new Worker({ agent: "tasks", handler, concurrency: 4, connection: "dbname=shop" }).run();
// @ts-expect-error a worker has an agent
new Worker({ handler });

// SPDX-License-Identifier: PostgreSQL
//
// packer.mjs NAME SECONDS: packs orders, a page after another; the task of packer.sh with the library sas-worker
// (npm install clients/typescript pg). It finds the database by PGHOST, PGDATABASE ... If those lead to a pooler in
// transaction mode, LISTEN is a connection string that leads past it.

import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { HandBack, Worker } from "sas-worker";

const [name, pageTakes] = process.argv.slice(2);
const pool = new pg.Pool({ max: 4 });
pool.on("error", (error) => console.error(error.message));

async function handler(task) {
  const { order, pages } = task.request;
  for (let page = (task.checkpoint?.page ?? 0) + 1; page <= pages; page++) {
    if (task.stopping.aborted || task.signal.aborted) throw new HandBack(); // pages leave nothing behind
    await sleep(pageTakes * 1000);
    console.log(`${name}: order ${order} page ${page}`);
    await task.save({ page }, page / pages);
  }
  const client = await pool.connect();
  try {
    await client.query("BEGIN");
    await client.query("INSERT INTO packed (order_id, worker, pages) VALUES ($1, $2, $3)", [order, name, pages]);
    await task.complete(client, { box: order });
    await client.query("COMMIT");
  } finally {
    client.release(true); // rolls back what was not committed
  }
}

const listenConnection = process.env.LISTEN;
const lease = Number(process.env.LEASE ?? 3);
await new Worker({ agent: "packer", handler, concurrency: 4, lease, grace: 5, name, listenConnection }).run();
console.log(`${name}: good-bye`);
process.exit();

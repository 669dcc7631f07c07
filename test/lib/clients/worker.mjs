// SPDX-License-Identifier: PostgreSQL
//
// worker.mjs NAME CONCURRENCY LEASE GRACE FOLDER: what worker.py does, for t/501_client_typescript.pl.

import { existsSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { HandBack, Lost, Permanent, Worker } from "sas-worker";

const [name, concurrency, lease, grace, folder] = process.argv.slice(2);
const say = (...words) => console.log(name, ...words);
const open = (n) => existsSync(`${folder}/gate${n}`);
const gate = async (n) => {
  while (!open(n)) await sleep(50);
};
const pool = new pg.Pool({ max: Number(concurrency), application_name: "books" });
pool.on("error", () => {});

async function transaction(work) {
  const client = await pool.connect();
  client.on("error", () => {});
  try {
    await client.query("BEGIN");
    await work(client);
    await client.query("COMMIT");
    client.release();
  } catch (error) {
    client.release(true);
    throw error;
  }
}
const book = (client, n) => client.query("INSERT INTO book (n, worker) VALUES ($1, $2)", [n, name]);

async function handler(task) {
  const { do: what, n, takes, gate: shut } = task.request;
  say(what, n, "begins", task.checkpoint?.page ?? 0, task.undo ? "undo" : "");
  if (what === "book") {
    await sleep((takes ?? 0) * 1000);
    if (shut) await gate(shut);
    await transaction(async (client) => {
      await book(client, n);
      await task.complete(client, { n });
    });
  } else if (what === "pages") {
    for (let page = (task.checkpoint?.page ?? 0) + 1; page < 6; page++) {
      if (page === 4 && !open(n)) {
        say(what, n, "waits");
        await new Promise(() => {});
      }
      await task.save({ page }, page / 5);
      say(what, n, "page", page);
    }
  } else if (what === "gate") {
    await gate(n);
    await transaction((client) => book(client, n));
  } else if (what === "cancel") {
    await new Promise((resolve) => task.signal.addEventListener("abort", resolve));
    say(what, n, task.signal.reason);
    throw new HandBack();
  } else if (what === "hang") {
    await gate(n);
  } else if (what === "lost") {
    await gate(n);
    try {
      await task.save({ page: 99 });
      say(what, n, "saved");
    } catch (error) {
      say(what, n, error instanceof Lost ? "lost" : error, task.signal.aborted, task.signal.reason);
    }
    await task.emit({ page: 99 });
    say(what, n, "emitted");
  } else if (what === "emit") {
    for (const page of [1, 2]) await task.emit({ page });
    await task.emit(null);
    await task.emit("x".repeat(100000)).catch((error) => say(what, n, "refused", error.code));
  } else if (what === "nan") {
    return { n: 1n };
  } else if (what === "zero") {
    return { text: "a\0b" };
  } else if (what === "fail") {
    throw new Permanent("no\0 way");
  } else if (what === "broken") {
    throw new Error("no \udc80 way");
  } else if (what === "careless") {
    task.save({ text: "a\0b" }); // it is refused, and nobody waits for it
    task.emit(1n); // nor does anybody for what is no JSON
  } else if (what === "mute") {
    throw Object.create(null);
  }
  return { n, key: task.idempotencyKey };
}

const options = { agent: "work", handler, name, concurrency: Number(concurrency), lease: Number(lease), grace: Number(grace) };
if (process.env.LISTEN) options.listenConnection = process.env.LISTEN;
await new Worker(options).run();
say("ends");
process.exit();

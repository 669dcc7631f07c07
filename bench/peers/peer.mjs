// SPDX-License-Identifier: PostgreSQL
//
// What the programs of all peers need: the database of the environment
// (PGHOST is the folder of the socket), a tally of what was done, and one
// line of JSON at the end, which bench/peers.py reads.

import pg from "pg";

export const connection = {
  host: process.env.PGHOST,
  port: Number(process.env.PGPORT),
  user: process.env.PGUSER,
  database: process.env.PGDATABASE,
};

export const quiet = { debug() {}, info() {}, warn: console.error, error: console.error };

export function pool(max) {
  const p = new pg.Pool({ ...connection, max });
  p.on("error", console.error);
  return p;
}

/** Counts what is done and adds up its numbers; `all` resolves when n are done. */
export function tally(n) {
  const t = { done: 0, sum: 0 };
  t.all = new Promise((resolve) => {
    t.add = (number) => {
      t.sum += number;
      if (++t.done === n) resolve();
    };
  });
  return t;
}

export const seconds = () => performance.now() / 1000;

export function tell(answer) {
  process.stdout.write(JSON.stringify(answer) + "\n");
}

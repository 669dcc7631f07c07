// SPDX-License-Identifier: PostgreSQL
//
// Prepares the calls on the input, a JSON array of [sql, [type, ...]], as node-postgres does: without a type for any
// parameter. Prints what is refused.

import { readFileSync } from "node:fs";
import pg from "pg";

const client = new pg.Client();
await client.connect();
for (const [i, [sql, types]] of JSON.parse(readFileSync(0)).entries())
  try {
    await client.query({ name: `call ${i}`, text: `EXPLAIN ${sql}`, values: types.map(() => null) });
  } catch (error) {
    if (["42883", "42725", "42P18", "42P08", "42804", "42846", "42601"].includes(error.code)) console.log(sql, error.message);
  }
console.log("done");
await client.end();

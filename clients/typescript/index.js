// SPDX-License-Identifier: PostgreSQL
//
// Runs of sas from Node.js: submit, wait and signal on a client of the caller, and a worker for steps of kind task.
// index.d.ts says what each does.
//
// One connection claims, reports and extends leases, for all tasks at once. It is made again when it is lost, while
// the handlers go on. A claimed task is in #held until the server has answered to its last report, or it is given
// up; what is to be said is in #reports until then.

import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";

export class HandBack extends Error {}
export class InDoubt extends Error {}
export class Permanent extends Error {}
export class Lost extends Error {
  constructor() {
    super("the claim is not valid any more");
  }
}
class NoServer extends Error {}

const seconds = (span) => (span == null ? undefined : `${span} seconds`);

/** The further arguments of submit and submit_batch, from $n on. */
function named(options, n) {
  const all = {
    key: options.key, priority: options.priority, start_at: options.startAt, start_before: options.startBefore,
    deadline: seconds(options.deadline), after_runs: options.afterRuns, after_result: options.afterResult,
    reply_to: options.replyTo, labels: options.labels && JSON.stringify(options.labels), version: options.version,
  };
  const given = Object.entries(all).filter(([, value]) => value != null);
  return [given.map(([name], i) => `, ${name} => $${n + i}`).join(""), given.map(([, value]) => value)];
}
const submitted = (row) => ({ runId: Number(row.run_id), created: row.created });

export async function submit(client, workflow, input = {}, options = {}) {
  const [places, values] = named(options, 3);
  const { rows } = await client.query(`SELECT * FROM sas.submit($1, $2${places})`, [workflow, JSON.stringify(input), ...values]);
  return submitted(rows[0]);
}

export async function submitBatch(client, workflow, inputs, keys = null, options = {}) {
  const [places, values] = named(options, 4);
  const given = [workflow, inputs.map((input) => JSON.stringify(input)), keys, ...values];
  return (await client.query(`SELECT * FROM sas.submit_batch($1, $2, $3${places})`, given)).rows.map(submitted);
}

export async function wait(client, runId, timeout = 60) {
  return (await client.query("SELECT * FROM sas.wait($1, $2)", [runId, seconds(timeout)])).rows[0];
}

export async function signal(client, runId, name, payload = {}) {
  await client.query("SELECT sas.signal($1, $2, $3)", [runId, name, JSON.stringify(payload)]);
}

export async function signalKey(client, workflow, key, name, payload = {}) {
  await client.query("SELECT sas.signal_key($1, $2, $3, $4)", [workflow, key, name, JSON.stringify(payload)]);
}

const CLAIM = "SELECT c.*, extract(epoch FROM c.lease_until - now())::float8 AS holds FROM sas.claim($1, $2, $3, $4) AS c";
// Locks are waited for for a moment only: a handler's transaction may hold them.
const SAY = `
  SELECT CASE verb WHEN 'heartbeat' THEN sas.heartbeat(id, progress, value)
                   WHEN 'emit' THEN CASE WHEN sas.emit(value, id) THEN 'stored' ELSE 'lost' END
                   WHEN 'fail' THEN sas.fail(id, error)::text
                   WHEN 'give up' THEN sas.fail(id, error, true)::text
                   ELSE sas.hand_back(id)::text END AS answer
  FROM set_config('lock_timeout', '2s', true), unnest($1::uuid[], $2::text[], $3::jsonb[], $4::text[], $5::float8[])
       WITH ORDINALITY AS report (id, verb, value, error, progress, n) ORDER BY n`;
const COMPLETE = "SELECT unnest(sas.complete_tasks($1::uuid[], $2::jsonb[]))::text AS answer FROM set_config('lock_timeout', '2s', true)";

// seconds to say the last things after the grace period; until a statement, or an attempt to connect, has failed
const [TELL, ANSWER] = [5, 10];
const refused = (error) => /^(0A|22|23|42|54)/.test(error.code); // the same statement would get it again
const meanwhile = ({ verb }) => verb === "heartbeat" || verb === "emit"; // does not end its task
const now = () => performance.now() / 1000;

/** What was thrown, as text that the server takes. Anything can be thrown, also what is no text. */
function told(error) {
  let text = "an error that cannot be shown";
  try {
    text = String(error);
  } catch {
    // its own toString has failed
  }
  return text.replaceAll("\0", " ").slice(0, 2000);
}

class Task {
  #send;
  #stop = new AbortController();

  constructor(row, stopping, until, send) {
    Object.assign(this, {
      requestId: row.request_id, runId: Number(row.run_id), step: row.step, undo: row.undo, request: row.request,
      idempotencyKey: row.idempotency_key, checkpoint: row.checkpoint, stopping, signal: this.#stop.signal,
    });
    this.#send = send;
    this._until = until; // the claim holds at least until then
    this._leftAt = Infinity; // its handler is not waited for after that
    this._reason = null;
    this._gone = this._settled = this._left = false; // said by the server; completed by the handler; not waited for
  }

  save(checkpoint = null, progress = null) {
    return this.#send(this, "heartbeat", checkpoint, progress);
  }

  emit(chunk) {
    return this.#send(this, "emit", chunk);
  }

  async complete(client, output = null) {
    this._settled = true;
    const { rows } = await client.query("SELECT sas.complete($1, $2) AS done", [this.requestId, JSON.stringify(output)]);
    if (!rows[0].done) throw new Lost();
  }

  _tell(reason) {
    this._reason = reason;
    this.#stop.abort(reason);
  }
}

export class Worker {
  #options;
  #listens;
  #held = new Map();
  #reports = [];
  #left = 0; // handlers that were given up and still run
  #batch = 1000; // reports in one statement; one after an error
  #more = true; // there may be tasks to claim
  #pause = 0.1; // seconds between claims that find nothing; grows
  #claimAt = 0; #beatAt = 0;
  #againAt = Infinity; // what failed for a moment is said again
  #known = false; // the agent was found
  #graceEnd = Infinity;
  #stopping = new AbortController();
  #over = new AbortController();
  #awake = false;
  #rouse = () => {};

  constructor(options) {
    const name = `${hostname()}:${process.pid}`;
    const log = (message, error) => console.error(`sas: ${message}`, ...(error ? [error] : []));
    this.#options = { concurrency: 10, lease: 30, grace: 20, poll: 60, name, log, ...options };
    this.#listens = `LISTEN "sas_agent_${String(this.#options.agent).replaceAll('"', '""')}"`;
  }

  async run() {
    const stop = () => this.stop();
    for (const name of ["SIGTERM", "SIGINT"]) process.on(name, stop);
    try {
      // #work ends when all is said, and #watch when the time for that is over, whatever the server does
      const { connection, listenConnection } = this.#options;
      const jobs = [this.#watch(), this.#through(connection, (client) => this.#work(client))];
      if (listenConnection !== undefined) jobs.push(this.#through(listenConnection, (client) => this.#listen(client)));
      await Promise.race(jobs);
      if (this.#held.size) this.#log(`ends and holds ${this.#held.size} tasks: their leases will end`);
    } finally {
      this.#over.abort();
      this.#wake();
      for (const name of ["SIGTERM", "SIGINT"]) process.off(name, stop);
    }
  }

  stop() {
    this.#graceEnd = now() + (this.#graceEnd === Infinity ? this.#options.grace : 0);
    this.#stopping.abort();
    this.#wake();
  }

  #log(message, error) {
    this.#options.log(`${this.#options.name} ${message}`, error);
  }

  #wake() {
    this.#awake = true;
    this.#rouse();
  }

  // -- handlers -----------------------------------------------------------------------------------------------

  async #handle(task) {
    let report = null;
    try {
      const output = await this.#options.handler(task);
      if (!task._settled) report = { task, verb: "complete", value: JSON.stringify(output ?? null) };
    } catch (error) {
      report = this.#failure(task, error);
    }
    if (task._left) this.#left--;
    else if (report === null || task._gone) this.#held.delete(task.requestId);
    else this.#reports.push(report);
    this.#wake();
  }

  /** After a cancel, an error leaves open what was done: nothing is reported. */
  #failure(task, error) {
    if (error instanceof HandBack) return { task, verb: "hand back" };
    if (error instanceof InDoubt || error instanceof Lost || task._reason) return null;
    this.#log(`step ${task.step} of run ${task.runId} failed`, error);
    return { task, verb: error instanceof Permanent ? "give up" : "fail", error: told(error) };
  }

  #send(task, verb, value, progress = null) {
    const sent = new Promise((resolve, reject) => {
      if (value !== null || verb === "emit") value = JSON.stringify(value ?? null); // what it throws rejects
      if (!this.#held.has(task.requestId) || task._reason === "lost" || task._settled) reject(new Lost());
      else this.#reports.push({ task, verb, value, progress, resolve, reject });
      this.#wake();
    });
    sent.catch(() => {}); // a handler that does not wait for it must not end the process, and the tasks of others with it
    return sent;
  }

  // -- time ---------------------------------------------------------------------------------------------------

  /** What only time tells, with or without a connection. */
  async #watch() {
    while (now() < this.#graceEnd + TELL) {
      await sleep(Math.min(this.#options.lease / 10, 0.5) * 1000, null, { signal: this.#over.signal });
      const ending = new Set(this.#reports.filter((r) => !meanwhile(r)).map((r) => r.task));
      for (const task of [...this.#held.values()]) {
        if (now() > task._until && !task._settled) this.#lose(task);
        if (now() > Math.min(this.#graceEnd, task._leftAt) && !ending.has(task)) this.#leave(task);
      }
      if (this.#left >= this.#options.concurrency && !this.#stopping.signal.aborted) {
        this.#log(`stops: ${this.#left} handlers do not end`);
        this.stop();
      }
    }
  }

  #lose(task) {
    if (task._reason !== "lost") {
      task._leftAt = now() + this.#options.grace;
      task._tell("lost");
    }
    const lost = (report) => report.task === task && meanwhile(report);
    this.#reports.filter(lost).forEach((report) => report.reject?.(new Lost()));
    this.#reports = this.#reports.filter((report) => !lost(report));
  }

  /** Its handler has had its time. Its place is for another. */
  #leave(task) {
    this.#log(`leaves step ${task.step} of run ${task.runId} alone, which does not end`);
    task._left = true;
    this.#left++;
    if (task._reason === null && !task._settled) this.#reports.push({ task, verb: "hand back" });
    else this.#held.delete(task.requestId);
    this.#wake();
  }

  // -- the connection -----------------------------------------------------------------------------------------

  async #connect(connection = {}) {
    const given = typeof connection === "string" ? { connectionString: connection } : connection;
    const client = new pg.Client({
      application_name: this.#options.name, keepAlive: true, connectionTimeoutMillis: ANSWER * 1000, ...given,
    });
    client.gone = new Promise((_, reject) => {
      client.on("error", (error) => reject(new NoServer(error.message)));
      client.on("end", () => reject(new NoServer("the connection has ended")));
    });
    client.gone.catch(() => this.#wake());
    client.on("notification", () => this.#heard());
    try {
      await client.connect();
    } catch (error) {
      throw new NoServer(error.message || error.code);
    }
    return client;
  }

  async #query(client, text, values) {
    const late = new AbortController();
    const timeout = sleep(ANSWER * 1000, null, { signal: late.signal });
    try {
      const answered = client.query(text, values);
      const result = await Promise.race([answered, client.gone, timeout]);
      if (!result) throw new NoServer(`no answer in ${ANSWER} s`);
      return result.rows;
    } catch (error) {
      throw error.severity === "ERROR" ? error : new NoServer(error.message); // an answer leaves the connection as it is
    } finally {
      timeout.catch(() => {});
      late.abort();
    }
  }

  /** Through as many connections as it takes. */
  async #through(connection, live) {
    for (let pause = 0.1; !this.#stopping.signal.aborted || this.#held.size; pause = Math.min(2 * pause, 5)) {
      let client;
      try {
        client = await this.#connect(connection);
        pause = 0.1;
        return await live(client);
      } catch (error) {
        if (!(error instanceof NoServer)) throw error;
        this.#log(`has no server: ${error.message}`);
      } finally {
        const ended = client?.end().catch(() => {});
        if (client) await Promise.race([ended, sleep(1000, null, { ref: false })]).then(() => client.connection.stream.destroy());
      }
      await sleep(pause * (500 + 500 * Math.random()), null, { signal: this.#over.signal });
    }
  }

  async #listen(client) {
    await this.#query(client, this.#listens, []);
    this.#heard();
    await client.gone;
  }

  #heard() {
    this.#more = true;
    this.#pause = 0.1;
    this.#wake();
  }

  async #work(client) {
    if (this.#options.listenConnection === undefined) await this.#query(client, this.#listens, []);
    this.#heard();
    while (!this.#over.signal.aborted) {
      this.#awake = false;
      await this.#say(client);
      await this.#claim(client);
      if (this.#stopping.signal.aborted && !this.#held.size) return;
      await Promise.race([this.#rest(), client.gone]);
    }
  }

  /** Until there is something to do or to hear. */
  async #rest() {
    const { concurrency } = this.#options;
    const claims = this.#held.size < concurrency && !this.#stopping.signal.aborted;
    const until = Math.min(this.#againAt, this.#held.size ? this.#beatAt : Infinity, claims ? this.#claimAt : Infinity);
    if (this.#awake) return;
    let timer;
    await new Promise((resolve) => {
      this.#rouse = resolve;
      timer = setTimeout(resolve, Math.min(Math.max(until - now(), 0), 3600) * 1000);
    });
    clearTimeout(timer);
  }

  async #claim(client) {
    const { agent, name, lease, concurrency, poll } = this.#options;
    const free = Math.min(concurrency - this.#held.size, 1000);
    const sent = now();
    if (this.#stopping.signal.aborted || free <= 0 || !(this.#more || sent >= this.#claimAt)) return;
    this.#more = false;
    let rows = [];
    try {
      rows = await this.#query(client, CLAIM, [agent, name, free, seconds(lease)]);
      this.#known = true;
    } catch (error) {
      if (error instanceof NoServer || (!this.#known && refused(error))) throw error;
      this.#log("could not claim", error);
    }
    this.#more ||= rows.length === free;
    this.#pause = rows.length ? 0.1 : Math.min(2 * this.#pause, poll);
    this.#claimAt = now() + this.#pause * (0.75 + Math.random() / 4);
    if (!this.#held.size) this.#beatAt = sent + lease / 3;
    for (const row of rows) {
      const until = sent + (row.holds > 0 ? Math.min(row.holds, lease) : lease);
      const task = new Task(row, this.#stopping.signal, until, this.#send.bind(this));
      this.#held.set(task.requestId, task);
      if (!this.#stopping.signal.aborted) this.#handle(task);
      else this.#reports.push({ task, verb: "hand back" });
    }
    if (this.#stopping.signal.aborted) this.#wake();
  }

  /** All reports, then the outputs together, in the order of their runs. After an error each goes alone. */
  async #say(client) {
    if (now() >= this.#againAt) this.#againAt = Infinity;
    if (now() >= this.#beatAt) {
      this.#beatAt = now() + this.#options.lease / 3;
      this.#reports = this.#reports.filter((report) => report.verb !== "heartbeat" || report.resolve);
      for (const task of this.#held.values())
        if (task._reason !== "lost" && !task._settled) this.#reports.push({ task, verb: "heartbeat" });
    }
    const ends = ({ verb }) => verb === "complete";
    let waiting = [...this.#reports].sort((a, b) => ends(a) - ends(b) || a.task.runId - b.task.runId);
    while (waiting.length) {
      const statement = ends(waiting[0]) ? COMPLETE : SAY;
      const part = waiting.slice(0, this.#batch).filter((report) => statement === COMPLETE || !ends(report));
      waiting = waiting.slice(part.length);
      const sent = now();
      let answers;
      try {
        const names = statement === COMPLETE ? ["value"] : ["verb", "value", "error", "progress"];
        const columns = names.map((name) => part.map((report) => report[name] ?? null));
        const rows = await this.#query(client, statement, [part.map((report) => report.task.requestId), ...columns]);
        answers = rows.map((row) => row.answer);
        this.#batch = Math.min(2 * this.#batch, 1000);
      } catch (error) {
        if (error instanceof NoServer) throw error;
        if (part.length > 1) {
          this.#batch = 1;
          waiting = [...part, ...waiting];
          continue;
        }
        answers = [error];
      }
      const done = new Set(part.filter((report, i) => this.#said(report, answers[i], sent)));
      this.#reports = this.#reports.filter((report) => !done.has(report));
    }
  }

  /** What the server answered to a report; false: it is to be said again. */
  #said(report, answer, sent) {
    const { task, verb } = report;
    if (answer instanceof Error) {
      this.#log(`could not report on step ${task.step} of run ${task.runId}: ${verb}`, answer);
      this.#againAt = now() + 0.5;
      if (!refused(answer)) return false;
      report.reject?.(answer);
      if (verb === "complete") {
        Object.assign(report, { verb: "fail", value: null, error: String(answer).slice(0, 2000) }); // it cannot be stored
        return false;
      }
    } else if (answer === "go" || answer === "cancel") {
      task._until = Math.max(task._until, sent + this.#options.lease);
      if (report.value != null) task.checkpoint = JSON.parse(report.value);
      if (answer === "cancel" && task._reason === null) task._tell("cancel");
      report.resolve?.();
    } else if (answer === "stored") {
      report.resolve();
    } else if (answer === "lost") {
      task._gone = true;
      this.#lose(task);
      report.reject?.(new Lost());
    } else if (answer === "false") {
      this.#log(`step ${task.step} of run ${task.runId}: ${verb} was too late, or came twice`);
    }
    if (!meanwhile(report)) this.#held.delete(task.requestId);
    return true;
  }
}

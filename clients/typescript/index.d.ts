// SPDX-License-Identifier: PostgreSQL
// Spans are in seconds. JSON is any value that JSON.stringify takes.

/** A pg.Client, or a client of a pg.Pool. A pool itself will do where no transaction is needed. */
export interface Queryable {
  query(text: string, values: unknown[]): Promise<{ rows: any[] }>;
}

/** null, too, leaves the default. */
export interface SubmitOptions {
  key?: string | null;
  priority?: number | null;
  startAt?: Date | null;
  startBefore?: Date | null;
  deadline?: number | null;
  afterRuns?: number[] | null;
  afterResult?: string[] | null;
  replyTo?: string | null;
  labels?: Record<string, unknown> | null;
  version?: number | null;
}

/** Submits a run for each input, in one call and in order. keys has one for each, or null. */
export function submitBatch(client: Queryable, workflow: string, inputs: Record<string, unknown>[],
  keys?: (string | null)[] | null, options?: Omit<SubmitOptions, "key">): Promise<{ runId: number; created: boolean }[]>;

/** Submits a run in the transaction of the client. created is false if the key was submitted before. */
export function submit(client: Queryable, workflow: string, input?: Record<string, unknown>, options?: SubmitOptions):
  Promise<{ runId: number; created: boolean }>;

/** Waits until the run has stopped or is paused, at most timeout seconds. Not in a transaction that wrote. */
export function wait<Output = any>(client: Queryable, runId: number, timeout?: number):
  Promise<{ state: string; result: string | null; output: Output | null; error: any }>;

/** Sends a named message to a run, in the transaction of the client. */
export function signal(client: Queryable, runId: number, name: string, payload?: unknown): Promise<void>;

/** Sends a named message to the run of that workflow that has the key, in the transaction of the client. */
export function signalKey(client: Queryable, workflow: string, key: string, name: string, payload?: unknown): Promise<void>;

/** Thrown by a handler: nothing was done; another worker may have the task. Counts nothing. */
export class HandBack extends Error {}
/** Thrown by a handler: it cannot know what was done. Nothing is reported; the end of the lease says so. */
export class InDoubt extends Error {}
/** Thrown by a handler: it failed, and another attempt would, too. */
export class Permanent extends Error {}
/** The claim is not valid any more, and nothing was stored. Roll back and stop. */
export class Lost extends Error {}

export interface Task<Request = any, Checkpoint = any> {
  readonly requestId: string;
  readonly runId: number;
  readonly step: string;
  /** Undo the step. */
  readonly undo: boolean;
  /** The same in every attempt: send it to every service that is called. */
  readonly idempotencyKey: string;
  /** The input of the step. */
  readonly request: Request;
  /** What was saved last, by the holder before this one, too. */
  readonly checkpoint: Checkpoint | null;
  /** Aborted when the handler is to stop; its reason is "cancel" (the run cannot go on) or "lost" (the claim is over). */
  readonly signal: AbortSignal;
  /** Aborted when the worker is being stopped: end soon, or throw HandBack. */
  readonly stopping: AbortSignal;
  /** Stores what the next holder goes on from, and how much is done (0 to 1). Rejects with Lost if it was not stored. */
  save(checkpoint?: Checkpoint | null, progress?: number): Promise<void>;
  /** Adds a chunk to those of the step, for whoever reads sas.chunks. Rejects with Lost if it was not stored. */
  emit(chunk: unknown): Promise<void>;
  /** Completes the task together with what the transaction of the client writes: commit it. Lost: roll back. */
  complete(client: Queryable, output?: unknown): Promise<void>;
}

export interface WorkerOptions<Request = any, Checkpoint = any> {
  /** As pg.Client takes it: a connection string or an object. By default from the environment. */
  connection?: string | object;
  /** For a connection of its own for LISTEN, past the pooler that connection leads to. */
  listenConnection?: string | object;
  agent: string;
  /** What it returns is the output of the step. */
  handler: (task: Task<Request, Checkpoint>) => unknown;
  /** Handlers at once, and tasks held at once: 10. */
  concurrency?: number;
  /** 30; extended every third of it. */
  lease?: number;
  /** For handlers to end after stop(); then their tasks are handed back: 20. */
  grace?: number;
  /** Asks for tasks at the latest then, if none were announced: 60. */
  poll?: number;
  /** By default host:pid. */
  name?: string;
  log?: (message: string, error?: unknown) => void;
}

export class Worker<Request = any, Checkpoint = any> {
  constructor(options: WorkerOptions<Request, Checkpoint>);
  /** Works until stop(), SIGTERM or SIGINT. Resolves when all is reported, at the latest grace + 5 s after that. */
  run(): Promise<void>;
  /** Claims no more. A second time: without a grace period. */
  stop(): void;
}

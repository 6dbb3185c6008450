/** One task as its handler sees it: its input, its signal, and its reports. */

import type { CmdDispatchPayload, FeedbackPayload, MiddlewareNextResponsePayload } from "../generated/frames.js";
import { LanewayError } from "../errors.js";
import type { Message } from "./frame.js";
import type { TaskKey } from "./outbox.js";
import type { Artifact } from "./outcome.js";
import type { ArtifactInput, ResourceBody } from "./resources.js";
import type { StopReason } from "./tasks.js";

/** Longest message of a progress report, in characters. */
const MESSAGE_LEN_MAX = 1_024;
/** Longest name of a metric, in characters. */
const NAME_LEN_MAX = 1_024;
/** Longest text of one chunk, in UTF-16 units; longer ones are sent in pieces. */
const CHUNK_LEN_MAX = 16 << 10;
/** Longest data of one chunk, in bytes. */
const CHUNK_BYTES_MAX = 64 << 10;

/** A channel of the job's log. */
export type Channel = NonNullable<FeedbackPayload["chunks"]>[number]["channel"];

/** The reason of an aborted signal of a task. */
export class TaskStoppedError extends LanewayError {
  override name = "TaskStoppedError";
  /** `canceled`: on request. `lease`, `drain`: the task may run elsewhere. `stale`: it does. `timeout`: its time is over. */
  readonly why: StopReason | "timeout";

  constructor(why: StopReason | "timeout") {
    super(`the task was stopped: ${why}`);
    this.why = why;
  }
}

/** The rest of a middleware chain failed, or there is none. */
export class NextError extends LanewayError {
  override name = "NextError";
  /** The error of the server: `code` and `message`. */
  readonly error: Record<string, unknown> | undefined;

  constructor(message: string, error?: Record<string, unknown>) {
    super(message);
    this.error = error;
  }
}

/** What a task needs of its worker. */
export interface TaskPort {
  send(message: Message): void;
  /** Resolves when the connection can take more feedback. */
  writable(): Promise<void>;
  keep(input: ArtifactInput): Promise<Artifact>;
  resource(id: string): ResourceBody | undefined;
  next(requestId: string): Promise<MiddlewareNextResponsePayload>;
}

/** One task, as its handler sees it. */
export class Task<Payload = Record<string, unknown>> {
  /** The task's id: the id of the job. */
  readonly id: string;
  /** The number of the attempt. With the id it is a fence that other systems can compare. */
  readonly seq: number;
  /** The workflow run; the id of the job if it belongs to none. */
  readonly runId: string;
  /** The kind of the job. */
  readonly kind: string;
  /** The payload of the job. A payload that is not an object is `{ value }`; merged jobs are `{ payloads }`. */
  readonly payload: Payload;
  /** The whole dispatch. */
  readonly dispatch: CmdDispatchPayload;
  /**
   * Aborted when the handler must stop; the reason is a `TaskStoppedError`. JavaScript cannot end a function from outside: a
   * handler that does not observe the signal goes on, and its result is discarded.
   */
  readonly signal: AbortSignal;
  readonly #port: TaskPort;
  readonly #deadlineMs: number | undefined;
  readonly #artifacts: Artifact[] = [];
  readonly #indexes = new Map<Channel, number>();
  #calls = 0;

  constructor(key: TaskKey, dispatch: CmdDispatchPayload, signal: AbortSignal, port: TaskPort) {
    this.id = key.taskId;
    this.seq = key.seq;
    this.runId = dispatch.run_id;
    this.kind = dispatch.node_type;
    this.payload = dispatch.parameters as Payload;
    this.dispatch = dispatch;
    this.signal = signal;
    this.#port = port;
    const limitMs = dispatch.constraints.timeout_ms;
    this.#deadlineMs = limitMs === undefined ? undefined : performance.now() + limitMs;
  }

  /** The place of this attempt in its trace, as a `traceparent` (W3C Trace Context) for calls that the handler makes. */
  get traceparent(): string | undefined {
    return this.dispatch.traceparent;
  }

  /** The `tracestate` that belongs to `traceparent`. */
  get tracestate(): string | undefined {
    return this.dispatch.tracestate;
  }

  /** The time left before the timeout of the attempt, if it has one. */
  get timeLeftMs(): number | undefined {
    return this.#deadlineMs === undefined ? undefined : Math.max(0, this.#deadlineMs - performance.now());
  }

  /** The artifacts that the result names. */
  get artifacts(): readonly Artifact[] {
    return this.#artifacts;
  }

  /** Reports progress: `fraction` from 0 to 1. A report may be lost; newer progress follows soon. */
  progress(fraction: number, message = ""): void {
    const progress = Number.isFinite(fraction) ? Math.min(Math.max(fraction, 0), 1) : 0;
    this.#feedback({ progress, message: [...message.toWellFormed()].slice(0, MESSAGE_LEN_MAX).join("") });
  }

  /** Reports metrics of the handler. They are stored in the job's log, stream `reports`. */
  metrics(values: Record<string, number>): void {
    const finite = Object.entries(values).filter(([name, value]) => name !== "" && name.length <= NAME_LEN_MAX && Number.isFinite(value));
    if (finite.length > 0) this.#feedback({ metrics: Object.fromEntries(finite.slice(0, 256)) });
  }

  /** Writes lines to the job's log. */
  log(text: string): Promise<void> {
    return this.write("log", text.endsWith("\n") ? text : `${text}\n`);
  }

  /** Writes text or bytes to a channel. Wait for it when you write much: it resolves when the connection can take more. */
  async write(channel: Channel, data: string | Uint8Array): Promise<void> {
    if (typeof data === "string") {
      for (const text of pieces(data.toWellFormed())) this.#chunk(channel, { text });
    } else {
      for (let at = 0; at < data.byteLength; at += CHUNK_BYTES_MAX) {
        this.#chunk(channel, { data_base64: Buffer.from(data.subarray(at, at + CHUNK_BYTES_MAX)).toString("base64") });
      }
    }
    await this.#port.writable();
  }

  /**
   * Keeps an artifact and adds it to the result. Clients that may see the job download it through the server while this
   * worker is connected. It is dropped when the attempt does not succeed, at its expiry, and when the worker ends.
   */
  async addArtifact(input: ArtifactInput): Promise<Artifact> {
    const artifact = await this.#port.keep(input);
    this.#artifacts.push(artifact);
    return artifact;
  }

  /** A resource of this worker that the job refers to. */
  resource(id: string): ResourceBody | undefined {
    return this.#port.resource(id);
  }

  /** For middlewares: runs the rest of the chain with these parameters, and returns its result. */
  async next(payload: Record<string, unknown> = {}, timeoutMs?: number): Promise<Record<string, unknown>> {
    const { host_node_id: host, chain_index: index, node_id: node } = this.dispatch;
    if (host === undefined || index === undefined || index === null) throw new NextError("the task is not a middleware of a chain");
    const requestId = `${this.seq.toString(16)}-${this.id.slice(0, 128)}-${this.#calls++}`;
    const limit = timeoutMs === undefined ? {} : { timeoutMs: Math.round(timeoutMs) };
    const answer = this.#port.next(requestId);
    const request = { requestId, runId: this.runId, nodeId: host, middlewareId: node, chainIndex: index, payload, ...limit };
    this.#port.send({ type: "middleware.next_request", payload: request });
    const { result, error } = await within(answer, this.signal, timeoutMs);
    if (error !== undefined) throw new NextError("the rest of the chain failed", error);
    return result ?? {};
  }

  #chunk(channel: Channel, data: { text: string } | { data_base64: string }): void {
    const index = this.#indexes.get(channel) ?? 0;
    this.#indexes.set(channel, index + 1);
    this.#feedback({ chunks: [{ channel, index, ...data }] });
  }

  #feedback(part: Partial<FeedbackPayload>): void {
    this.#port.send({ type: "feedback", payload: { run_id: this.runId, task_id: this.id, stage: "running", ...part } });
  }
}

/** The text in pieces that do not split a character. */
function* pieces(text: string): Generator<string, void> {
  for (let at = 0; at < text.length; ) {
    let end = Math.min(at + CHUNK_LEN_MAX, text.length);
    const isHigh = end < text.length && (text.charCodeAt(end - 1) & 0xfc00) === 0xd800;
    if (isHigh) end -= 1;
    yield text.slice(at, end);
    at = end;
  }
}

/** The value of a promise, unless the signal is aborted or the time is over first. */
function within<Value>(promise: Promise<Value>, signal: AbortSignal, limitMs: number | undefined): Promise<Value> {
  return new Promise((resolve, reject) => {
    const finish = (settle: () => void): void => {
      clearTimeout(timer);
      signal.removeEventListener("abort", aborted);
      settle();
    };
    const aborted = (): void => finish(() => reject(signal.reason as Error));
    const expired = (): void => finish(() => reject(new NextError("no answer came in time")));
    const timer = limitMs === undefined ? undefined : setTimeout(expired, limitMs);
    signal.addEventListener("abort", aborted, { once: true });
    if (signal.aborted) aborted();
    promise.then((value) => finish(() => resolve(value)), (error: unknown) => finish(() => reject(error as Error)));
  });
}

/** How an attempt ends, and the message that reports it. Pure. */

import type { ResultPayload } from "../generated/frames.js";
import { Failure, PermanentFailure, RetryableFailure } from "./failure.js";
import { errorPayload, FRAME_LEN_MAX, type Message } from "./frame.js";
import type { TaskKey } from "./outbox.js";
import type { StopReason } from "./tasks.js";

/** Most characters of an error message in a result. */
const MESSAGE_LEN_MAX = 16 << 10;
/** Bytes of a frame that are reserved for its envelope: four names of the largest size, escaped. */
const ENVELOPE_LEN_MAX = 64 << 10;
/** Most artifacts of a result. */
const ARTIFACTS_MAX = 256;

/** An artifact, as a result names it. */
export type Artifact = NonNullable<ResultPayload["artifacts"]>[number];

/** The value of a handler with more than a result. Any other value is the result. */
export class Outcome {
  /** The result: an object. Any other value is stored under `value`. */
  readonly result: unknown;
  /** Stored in the job's log, stream `reports`. */
  readonly metadata: Record<string, unknown> | undefined;
  /** True when there was nothing to do. Nodes that depend on the task continue. */
  readonly skipped: boolean;

  constructor(options: { result?: unknown; metadata?: Record<string, unknown>; skipped?: boolean } = {}) {
    this.result = options.result;
    this.metadata = options.metadata;
    this.skipped = options.skipped ?? false;
  }

  /** There was nothing to do. */
  static skipped(): Outcome {
    return new Outcome({ skipped: true });
  }
}

/** How an attempt ended. */
export type Ended =
  | { readonly as: "done"; readonly result: Record<string, unknown>; readonly metadata: Record<string, unknown> | undefined; readonly skipped: boolean; readonly artifacts: readonly Artifact[] }
  | { readonly as: "failed"; readonly failure: Failure }
  | { readonly as: "timed_out" }
  /** It was stopped, or given up. */
  | { readonly as: "stopped" };

/** How a handler ended that returned `value`. A value that is not JSON is a failure. */
export function endedWith(value: unknown, artifacts: readonly Artifact[]): Ended {
  const outcome = value instanceof Outcome ? value : new Outcome({ result: value });
  try {
    const result = jsonCopy(outcome.result) ?? {};
    const metadata = jsonCopy(outcome.metadata);
    const object = isObject(result) ? result : { value: result };
    return { as: "done", result: object, metadata: isObject(metadata) ? metadata : undefined, skipped: outcome.skipped, artifacts };
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    return { as: "failed", failure: new PermanentFailure("bad_result", `the result is not valid JSON: ${why}`) };
  }
}

/** A copy of a value as JSON, so that later changes of the value have no effect. */
function jsonCopy(value: unknown): unknown {
  const text = JSON.stringify(value, (_, inner: unknown) => {
    // The server stores UTF-8, which has no lone surrogates.
    if (typeof inner === "string" && !inner.isWellFormed()) throw new Error("a text has a lone surrogate");
    return inner;
  });
  return text === undefined ? undefined : JSON.parse(text);
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** What an attempt was. */
export interface EndedTask {
  readonly key: TaskKey;
  readonly runId: string;
  readonly nodeId: string;
  readonly tookMs: number | undefined;
  /** Why it was stopped, if it was. */
  readonly why: StopReason | undefined;
}

/** The message for an end; none if the attempt no longer belongs to this worker. */
export function outcomeMessage(task: EndedTask, ended: Ended): Message | undefined {
  if (task.why === "stale") return undefined;
  // The attempt was stopped, whatever its handler threw.
  const end: Ended = task.why !== undefined && ended.as !== "done" ? { as: "stopped" } : ended;
  if (end.as === "stopped" && task.why !== "canceled") {
    // Not the fault of the task: the server runs a task with this code again.
    const message = task.why === "drain" ? "the worker stopped before the task ended" : "the lease expired: the server did not answer";
    const details = { run_id: task.runId, task_id: task.key.taskId, node_id: task.nodeId };
    return { type: "error", payload: errorPayload({ code: "E.RUNNER.CANCELLED", where: "worker.runner", message }, details) };
  }
  return bounded(task, { type: "result", payload: resultOf(task, end) });
}

function resultOf(task: EndedTask, ended: Ended): ResultPayload {
  switch (ended.as) {
    case "done": {
      if (ended.artifacts.length > ARTIFACTS_MAX) {
        return failed(task, new PermanentFailure("too_many_artifacts", `the handler made ${ended.artifacts.length} artifacts; at most ${ARTIFACTS_MAX} are possible`));
      }
      return {
        ...blank(task),
        status: ended.skipped ? "SKIPPED" : "SUCCEEDED",
        result: ended.result,
        ...(ended.metadata === undefined ? {} : { metadata: ended.metadata }),
        ...(ended.artifacts.length === 0 ? {} : { artifacts: [...ended.artifacts] }),
      };
    }
    case "failed":
      return failed(task, ended.failure);
    case "timed_out":
      return failed(task, new RetryableFailure("E.TIMEOUT", "the task took longer than timeout_ms"));
    case "stopped": {
      const message = "the task was stopped at the request of the scheduler";
      return { ...blank(task), status: "CANCELLED", error: { code: "E.RUNNER.CANCELLED", message } };
    }
  }
}

function blank({ runId, key, tookMs }: EndedTask): ResultPayload {
  const duration = tookMs === undefined ? {} : { duration_ms: Math.max(0, Math.round(tookMs)) };
  return { run_id: runId, task_id: key.taskId, status: "SUCCEEDED", result: {}, ...duration };
}

function failed(task: EndedTask, failure: Failure): ResultPayload {
  const message = [...failure.message.toWellFormed()].slice(0, MESSAGE_LEN_MAX).join("");
  const remediation = failure.remediation === undefined ? {} : { remediation: failure.remediation.toWellFormed() };
  return {
    ...blank(task),
    status: "FAILED",
    metadata: { retryable: failure.retryable },
    error: { code: failure.code, message, ...remediation },
  };
}

/** A result that does not fit in a frame could never arrive, and each try to send it would cost a connection. */
function bounded(task: EndedTask, message: Message & { type: "result" }): Message {
  const length = Buffer.byteLength(JSON.stringify(message.payload));
  if (length <= FRAME_LEN_MAX - ENVELOPE_LEN_MAX) return message;
  const failure = new PermanentFailure("result_too_long", `the result has ${length} bytes as JSON; return large data as an artifact`);
  return { type: "result", payload: failed(task, failure) };
}

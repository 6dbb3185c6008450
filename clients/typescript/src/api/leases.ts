/**
 * Leases: work for pull workers, over plain HTTP. A push worker, which is sent its tasks, is in `worker/`.
 *
 * `work` runs one job and renews its lease. The signal of the handler is aborted when the job is canceled, and when the lease
 * ends without an answer from the server, because another worker may get the job then.
 */

import { isTransient, LanewayError, NotFoundError } from "../errors.js";
import type {
  Capacity, Lease, LeaseAlive, LeaseAnswer, LeaseRelease, LeaseReport, LeaseRequest, LeaseRevoke, Operations,
} from "../generated/api.js";
import type { CallOptions, Transport } from "../http.js";
import { backoffMs, follow, pause } from "../waiting.js";
import { failureOf } from "../worker/failure.js";

/** How many heartbeats are sent within one lease. */
const BEATS_PER_LEASE = 4;
/** How long a lease lives if the server does not name a time. */
const TTL_DEFAULT_MS = 60_000;

/** A job that a pull worker has leased. */
export interface LeasedJob {
  /** The lease. */
  readonly lease: Lease;
  /** The payload of the job. */
  readonly payload: unknown;
  /** The place of the attempt in its trace, as a `traceparent` (W3C Trace Context) for calls that the handler makes. */
  readonly traceparent: string | undefined;
  /** The `tracestate` that belongs to `traceparent`. */
  readonly tracestate: string | undefined;
  /** Aborted when the handler must stop: the job was canceled, or the lease was lost. */
  readonly signal: AbortSignal;
  /** Reports progress, from 0 to 1. */
  report(progress: number, message?: string): Promise<void>;
}

/** What became of one request for work. */
export type Worked =
  | { granted: false; reason: string; message: string; retryAfterMs: number }
  | { granted: true; job: string; outcome: "succeeded" | "failed" | "canceled" | "lost" };

/** The calls about leases. */
export class Leases {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Requests work. It is not sent twice: a second lease could be granted, and the first one would wait for its end. */
  request(request: LeaseRequest, options: CallOptions = {}): Promise<LeaseAnswer> {
    return this.#transport.call("request_lease", { ...options, body: request, repeatable: false });
  }

  /** A lease. */
  get(id: string, options: CallOptions = {}): Promise<Lease> {
    return this.#transport.call("get_lease", { ...options, path: { id } });
  }

  /** Leases and reserved jobs. */
  async list(query: Operations["list_leases"]["query"] = {}, options: CallOptions = {}): Promise<Lease[]> {
    return (await this.#transport.call("list_leases", { ...options, query })).leases;
  }

  /** Renews a lease. With `stop` in the answer, the worker must end the attempt. */
  beat(id: string, worker: string, options: CallOptions = {}): Promise<LeaseAlive> {
    return this.#transport.call("beat_lease", { ...options, path: { id }, body: { worker }, repeatable: true });
  }

  /** Reports the progress of the attempt. It does not renew the lease. */
  async report(id: string, report: LeaseReport, options: CallOptions = {}): Promise<void> {
    await this.#transport.call("report_lease", { ...options, path: { id }, body: report, repeatable: true });
  }

  /** Reports the end of the attempt. */
  async release(id: string, release: LeaseRelease, options: CallOptions = {}): Promise<void> {
    await this.#transport.call("release_lease", { ...options, path: { id }, body: release, repeatable: true });
  }

  /** Revokes a lease. Its job fails. */
  async revoke(id: string, request: LeaseRevoke = {}, options: CallOptions = {}): Promise<void> {
    await this.#transport.call("revoke_lease", { ...options, path: { id }, body: request, repeatable: true });
  }

  /** The capacity of the machine, and which agents hold it. */
  capacity(options: CallOptions = {}): Promise<Capacity> {
    return this.#transport.call("get_capacity", options);
  }

  /**
   * Requests work once and runs it. The value of the handler is the result of the job; an error fails it, and may be retried
   * unless it is a `PermanentFailure`.
   */
  async work(request: LeaseRequest, handler: (job: LeasedJob) => unknown, options: CallOptions = {}): Promise<Worked> {
    const askedAt = performance.now();
    const answer = await this.request(request, options);
    if (!answer.granted || !answer.lease) {
      const { reason, message, retry_after_ms: retryAfterMs } = answer;
      return { granted: false, reason: reason ?? "unknown", message: message ?? "", retryAfterMs: retryAfterMs ?? 1_000 };
    }
    const { lease, payload } = answer;
    const trace = { traceparent: answer.traceparent ?? undefined, tracestate: answer.tracestate ?? undefined };
    const { controller, release: unfollow } = follow(options.signal);
    const renewal = new Renewal(this, lease.id, request.worker, controller, askedAt, answer.ttl_ms ?? TTL_DEFAULT_MS);
    const report = (progress: number, message?: string): Promise<void> =>
      this.report(lease.id, { worker: request.worker, progress, ...(message === undefined ? {} : { message }) });
    let end: LeaseRelease;
    try {
      const result: unknown = await handler({ lease, payload, ...trace, signal: controller.signal, report });
      end = { worker: request.worker, outcome: "succeeded", ...(result === undefined ? {} : { result }) };
    } catch (error) {
      const { code, message, retryable } = failureOf(error);
      end = { worker: request.worker, outcome: "failed", error: { code, message, retryable } };
    }
    unfollow();
    if (renewal.stopped && end.outcome === "failed") end = { worker: request.worker, outcome: "canceled" };
    if (options.signal?.aborted && end.outcome === "failed") end = { worker: request.worker, outcome: "handed_back" };
    return { granted: true, job: lease.job, outcome: await this.#end(lease.id, end, renewal) };
  }

  /** Reports the end, again and again while the lease may be alive. The lease is renewed meanwhile. */
  async #end(id: string, end: LeaseRelease, renewal: Renewal): Promise<"succeeded" | "failed" | "canceled" | "lost"> {
    try {
      for (let failures = 0; !renewal.lost; failures++) {
        try {
          await this.release(id, end);
          return end.outcome === "handed_back" ? "canceled" : end.outcome;
        } catch (error) {
          // The server also answers so when it has released the lease of a job that was canceled.
          if (error instanceof NotFoundError) return renewal.stopped ? "canceled" : "lost";
          if (!isTransient(error)) throw error;
        }
        await pause(backoffMs({ baseMs: 200, maxMs: 5_000, jitterPct: 50 }, failures, Math.random()));
      }
      return "lost";
    } finally {
      renewal.end();
    }
  }
}

/** Keeps one lease alive until it is ended. */
class Renewal {
  /** The lease has ended: the outcome does not count. */
  lost = false;
  /** The server asked to stop the attempt. */
  stopped = false;
  readonly #ended = new AbortController();

  constructor(leases: Leases, id: string, worker: string, handler: AbortController, askedAt: number, ttlMs: number) {
    void this.#renew(leases, id, worker, handler, askedAt + ttlMs, ttlMs);
  }

  end(): void {
    this.#ended.abort();
  }

  /** `until` counts from before the request, because the server counts from after it. */
  async #renew(leases: Leases, id: string, worker: string, handler: AbortController, until: number, ttlMs: number): Promise<void> {
    const signal = this.#ended.signal;
    let waitMs = ttlMs / BEATS_PER_LEASE;
    while (!signal.aborted && !this.lost) {
      const leftMs = until - performance.now();
      if (leftMs <= 0) return this.#lose(handler, new LanewayError("the lease expired: the server did not answer"));
      await pause(Math.min(waitMs, leftMs), signal).catch(() => {});
      if (signal.aborted || performance.now() >= until) continue;
      const askedAt = performance.now();
      try {
        const alive = await leases.beat(id, worker, { signal, timeoutMs: until - askedAt });
        ttlMs = alive.ttl_ms ?? ttlMs;
        until = askedAt + ttlMs;
        waitMs = ttlMs / BEATS_PER_LEASE;
        if (alive.stop && !this.stopped) {
          this.stopped = true;
          handler.abort(new LanewayError("the job was canceled"));
        }
      } catch (error) {
        if (!signal.aborted && !isTransient(error)) this.#lose(handler, error);
        waitMs = Math.min(200, ttlMs / BEATS_PER_LEASE);
      }
    }
  }

  #lose(handler: AbortController, reason: unknown): void {
    this.lost = true;
    handler.abort(reason);
  }
}

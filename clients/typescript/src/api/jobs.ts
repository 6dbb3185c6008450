/** Jobs: submit, read, wait, change, cancel, retry, delete, explain. */

import { randomUUID } from "node:crypto";

import { ConflictError, JobNotSucceededError, TimeoutError } from "../errors.js";
import type {
  Attempt, BatchRequest, BatchResponse, Event, Explanation, Job, JobArtifact, JobList, JobPatchRequest, JobRequest, LogLine, LogList,
  Operations,
} from "../generated/api.js";
import type { CallOptions, Transport } from "../http.js";
import { reasonOf } from "../waiting.js";
import { Patience } from "./patience.js";

/** The states that a job does not leave. */
const ENDED: ReadonlySet<string> = new Set(["succeeded", "failed", "canceled", "rejected"]);
/** The longest wait of one call, in milliseconds. The server accepts up to 60 s. */
const WAIT_MAX_MS = 30_000;

/** Options of a wait. */
export interface WaitOptions {
  /** How long to wait in total. Defaults to no limit. */
  timeoutMs?: number | undefined;
  /** Ends the wait. The job goes on. */
  signal?: AbortSignal | undefined;
}

/** True when the job has ended. */
export function hasEnded(job: Job): boolean {
  return ENDED.has(job.state);
}

/** The calls about jobs. */
export class Jobs {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Submits a job. Without an `idempotency_key`, a random one is added, so that the request can be sent again when its
   * answer is lost.
   */
  submit(job: JobRequest, options: CallOptions = {}): Promise<Job> {
    return this.#transport.call("submit_job", { ...options, body: this.#withKey(job), repeatable: true });
  }

  /** Submits up to 10,000 jobs. With `atomic`, all of them or none. Jobs without an `idempotency_key` get a random one. */
  submitBatch(batch: BatchRequest, options: CallOptions = {}): Promise<BatchResponse> {
    const jobs = batch.jobs.map((job) => this.#withKey(job));
    return this.#transport.call("submit_batch", { ...options, body: { ...batch, jobs }, repeatable: this.#transport.retries > 0 });
  }

  /** Submits a job and waits until it has ended. Throws `JobNotSucceededError` unless it succeeded. */
  async run(job: JobRequest, options: WaitOptions = {}): Promise<Job> {
    const submitted = await this.submit(job, { signal: options.signal });
    return this.result(submitted.id, options);
  }

  /** A job. */
  get(id: string, options: CallOptions = {}): Promise<Job> {
    return this.#transport.call("get_job", { ...options, path: { id } });
  }

  /** A page of jobs, newest first. */
  list(query: Operations["list_jobs"]["query"] = {}, options: CallOptions = {}): Promise<JobList> {
    return this.#transport.call("list_jobs", { ...options, query });
  }

  /** All jobs that match, newest first, page by page. */
  async *iterate(query: Operations["list_jobs"]["query"] = {}, options: CallOptions = {}): AsyncGenerator<Job, void> {
    for (let cursor = query.cursor; ; ) {
      const page = await this.list(cursor === undefined ? query : { ...query, cursor }, options);
      yield* page.jobs;
      if (page.next === undefined || page.next === null) return;
      cursor = page.next;
    }
  }

  /**
   * Waits until the job has ended, and returns it however it ended. Throws `TimeoutError` after `timeoutMs`. A restart of the
   * server does not end the wait.
   */
  async wait(id: string, options: WaitOptions = {}): Promise<Job> {
    const until = options.timeoutMs === undefined ? Number.POSITIVE_INFINITY : performance.now() + options.timeoutMs;
    const patience = new Patience(this.#transport.retries > 0, until);
    for (;;) {
      const leftMs = Math.max(0, Math.min(WAIT_MAX_MS, Math.round(until - performance.now())));
      let job: Job;
      try {
        job = await this.#transport.call("get_job", {
          path: { id }, query: { wait: `${leftMs}ms` }, signal: options.signal, timeoutMs: leftMs + WAIT_MAX_MS,
        });
        patience.answered();
      } catch (error) {
        await patience.outlast(error, options.signal);
        continue;
      }
      if (hasEnded(job)) return job;
      if (options.signal?.aborted) throw reasonOf(options.signal);
      if (performance.now() >= until) {
        throw new TimeoutError(`the job ${id} is ${job.state} after ${options.timeoutMs} ms; explain() says why it does not run`);
      }
    }
  }

  /** Waits until the job has ended. Throws `JobNotSucceededError` unless it succeeded. */
  async result(id: string, options: WaitOptions = {}): Promise<Job> {
    const job = await this.wait(id, options);
    if (job.state !== "succeeded") throw new JobNotSucceededError(job);
    return job;
  }

  /** The payload of a job, parsed. */
  payload(id: string, options: CallOptions = {}): Promise<unknown> {
    return this.#transport.call("get_job_payload", { ...options, path: { id } });
  }

  /** Cancels a job. A running attempt receives an order to stop. */
  async cancel(id: string, options: CallOptions = {}): Promise<Job> {
    let tries = 0;
    try {
      return await this.#transport.call("cancel_job", {
        ...options, path: { id }, repeatable: true, onTry: () => (tries += 1),
      });
    } catch (error) {
      // The first try may have canceled it, and its answer was lost.
      if (tries > 1 && error instanceof ConflictError && error.code === "already_ended") {
        const job = await this.get(id, options);
        if (job.state === "canceled") return job;
      }
      throw error;
    }
  }

  /** Creates a new job from an ended one. It is never sent twice, because each call creates a job. */
  retry(id: string, options: CallOptions = {}): Promise<Job> {
    return this.#transport.call("retry_job", { ...options, path: { id }, repeatable: false });
  }

  /** Changes the priority or the start of a waiting job: all fields of the patch, or none. */
  update(id: string, patch: JobPatchRequest, options: CallOptions = {}): Promise<Job> {
    return this.#transport.call("update_job", { ...options, path: { id }, body: patch, repeatable: true });
  }

  /** Deletes an ended job. */
  async delete(id: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.call("delete_job", { ...options, path: { id }, repeatable: true });
  }

  /** Why the job does not run. */
  explain(id: string, options: CallOptions = {}): Promise<Explanation> {
    return this.#transport.call("explain_job", { ...options, path: { id } });
  }

  /** A page of the log of its attempts. */
  logs(id: string, query: Operations["list_job_logs"]["query"] = {}, options: CallOptions = {}): Promise<LogList> {
    return this.#transport.call("list_job_logs", { ...options, path: { id }, query });
  }

  /** The lines of its log so far, from the line after `after` on. */
  async *iterateLogs(id: string, after = 0, options: CallOptions = {}): AsyncGenerator<LogLine, void> {
    for (let from = after; ; ) {
      const page = await this.logs(id, { after: from }, options);
      yield* page.lines;
      if (page.next === undefined || page.next === null) return;
      from = page.next;
    }
  }

  /** Its latest events, oldest first. */
  async events(id: string, query: Operations["list_job_events"]["query"] = {}, options: CallOptions = {}): Promise<Event[]> {
    return (await this.#transport.call("list_job_events", { ...options, path: { id }, query })).events;
  }

  /** Its attempts. */
  async attempts(id: string, options: CallOptions = {}): Promise<Attempt[]> {
    return (await this.#transport.call("list_attempts", { ...options, path: { id } })).attempts;
  }

  /** The artifacts of its attempts. `artifacts.bytes` reads one. */
  async artifacts(id: string, options: CallOptions = {}): Promise<JobArtifact[]> {
    return (await this.#transport.call("list_job_artifacts", { ...options, path: { id } })).artifacts;
  }

  #withKey(job: JobRequest): JobRequest {
    if (this.#transport.retries === 0 || (job.idempotency_key ?? null) !== null) return job;
    return { ...job, idempotency_key: `auto-${randomUUID()}` };
  }
}

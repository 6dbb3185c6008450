/** Runs: jobs that depend on one another. */

import { randomUUID } from "node:crypto";

import { TimeoutError } from "../errors.js";
import type { Operations, Run, RunList, RunRequest } from "../generated/api.js";
import type { CallOptions, Transport } from "../http.js";
import { pause } from "../waiting.js";
import type { WaitOptions } from "./jobs.js";
import { Patience } from "./patience.js";

const ENDED: ReadonlySet<string> = new Set(["succeeded", "failed", "canceled"]);
/** The first and the longest pause between two looks at a run, in milliseconds. */
const LOOK_FIRST_MS = 50;
const LOOK_MAX_MS = 2_000;

/** The calls about runs. */
export class Runs {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Submits a run. Without an `idempotency_key`, a random one is added. */
  submit(run: RunRequest, options: CallOptions = {}): Promise<Run> {
    const hasKey = this.#transport.retries === 0 || (run.idempotency_key ?? null) !== null;
    const body = hasKey ? run : { ...run, idempotency_key: `auto-${randomUUID()}` };
    return this.#transport.call("submit_run", { ...options, body, repeatable: true });
  }

  /** A run with its nodes, their results and errors. */
  get(id: string, options: CallOptions = {}): Promise<Run> {
    return this.#transport.call("get_run", { ...options, path: { id } });
  }

  /** A page of runs, newest first, without their nodes. */
  list(query: Operations["list_runs"]["query"] = {}, options: CallOptions = {}): Promise<RunList> {
    return this.#transport.call("list_runs", { ...options, query });
  }

  /**
   * Waits until the run has ended, and returns it however it ended. Throws `TimeoutError` after `timeoutMs`. A restart of the
   * server does not end the wait.
   */
  async wait(id: string, options: WaitOptions = {}): Promise<Run> {
    const until = options.timeoutMs === undefined ? Number.POSITIVE_INFINITY : performance.now() + options.timeoutMs;
    const patience = new Patience(this.#transport.retries > 0, until);
    for (let lookMs = LOOK_FIRST_MS; ; lookMs = Math.min(lookMs * 1.5, LOOK_MAX_MS)) {
      let run: Run;
      try {
        run = await this.get(id, { signal: options.signal });
        patience.answered();
      } catch (error) {
        await patience.outlast(error, options.signal);
        continue;
      }
      if (ENDED.has(run.state)) return run;
      const leftMs = until - performance.now();
      if (leftMs <= 0) throw new TimeoutError(`the run ${id} is ${run.state} after ${options.timeoutMs} ms`);
      await pause(Math.min(lookMs, leftMs), options.signal);
    }
  }

  /** Cancels a run with its jobs. */
  cancel(id: string, options: CallOptions = {}): Promise<Run> {
    return this.#transport.call("cancel_run", { ...options, path: { id }, repeatable: true });
  }
}

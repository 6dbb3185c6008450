/** Supervises one handler until it ends, times out, or ignores a request to stop. */

import { failureOf } from "./failure.js";
import { endedWith, type Ended } from "./outcome.js";
import { type Task, TaskStoppedError } from "./task.js";

/** Runs the tasks of one kind. Its value is the result of the job. */
export type Handler = (task: Task) => unknown;

/** The longest time that a timer of the platform supports, in milliseconds: about 24 days. */
const TIMER_MAX_MS = 2 ** 31 - 1;

/** A handler that runs. After its signal is aborted it has `graceMs` to end; then the attempt ends without it. */
export class Supervised {
  /** How the attempt ended. It never rejects. */
  readonly ended: Promise<Ended>;
  /** Resolves when the handler itself has ended, which may be later. */
  readonly settled: Promise<void>;
  /** True when the handler itself has ended. */
  isSettled = false;

  constructor(handler: Handler, task: Task, controller: AbortController, limitMs: number | undefined, graceMs: number) {
    // The frames of this moment are sent before the handler has the processor.
    const result = Promise.resolve().then(() => this.#run(handler, task));
    this.settled = result.then(() => undefined);
    this.ended = new Promise<Ended>((resolve) => {
      let isTimedOut = false;
      const timers: NodeJS.Timeout[] = [];
      const finish = (end: Ended): void => {
        timers.forEach(clearTimeout);
        resolve(isTimedOut ? { as: "timed_out" } : end);
      };
      const stop = (): void => void timers.push(setTimeout(() => finish({ as: "stopped" }), graceMs));
      const expire = (): void => {
        isTimedOut = true;
        controller.abort(new TaskStoppedError("timeout"));
      };
      controller.signal.addEventListener("abort", stop, { once: true });
      // The server enforces longer limits by itself.
      if (limitMs !== undefined && limitMs <= TIMER_MAX_MS) timers.push(setTimeout(expire, limitMs));
      void result.then(finish);
    });
  }

  async #run(handler: Handler, task: Task): Promise<Ended> {
    try {
      return endedWith(await handler(task), task.artifacts);
    } catch (error) {
      return { as: "failed", failure: failureOf(error) };
    } finally {
      this.isSettled = true;
    }
  }
}

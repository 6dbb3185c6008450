/** Lets a wait go on while the server does not answer, because it may be restarting. */

import { isTransient } from "../errors.js";
import { pause } from "../waiting.js";

/** How long a wait goes on without an answer, and how often it asks. */
const ABSENCE_MAX_MS = 60_000;
const ABSENCE_LOOK_MS = 500;

/** The patience of one wait. */
export class Patience {
  readonly #isPatient: boolean;
  readonly #until: number;
  #failingSince: number | undefined;

  /** `until` is the end of the wait, on the clock of `performance.now`. */
  constructor(isPatient: boolean, until: number) {
    this.#isPatient = isPatient;
    this.#until = until;
  }

  /** The server answered. */
  answered(): void {
    this.#failingSince = undefined;
  }

  /** Pauses after an error that may pass. Throws any other, and one that has lasted too long. */
  async outlast(error: unknown, signal: AbortSignal | undefined): Promise<void> {
    const nowMs = performance.now();
    this.#failingSince ??= nowMs;
    const isOver = nowMs >= this.#until || nowMs - this.#failingSince >= ABSENCE_MAX_MS;
    if (!this.#isPatient || isOver || !isTransient(error)) throw error;
    await pause(ABSENCE_LOOK_MS, signal);
  }
}

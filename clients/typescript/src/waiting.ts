/** Waits, signals and growing pauses. Nothing here knows about the server. */

/** A wait that doubles from `baseMs` to `maxMs`; jitter shortens it by up to `jitterPct` percent. */
export interface Backoff {
  readonly baseMs: number;
  readonly maxMs: number;
  readonly jitterPct: number;
}

/** The wait after `failures` failures in a row, from 0. `random` is between 0 and 1. */
export function backoffMs(backoff: Backoff, failures: number, random: number): number {
  const full = Math.min(backoff.baseMs * 2 ** Math.min(failures, 30), backoff.maxMs);
  return full * (1 - (backoff.jitterPct / 100) * Math.min(Math.max(random, 0), 1));
}

/** Resolves after `ms`, and rejects with the reason of `signal` when that is aborted first. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) {
      reject(reasonOf(signal));
      return;
    }
    const aborted = (): void => {
      clearTimeout(timer);
      reject(signal === undefined ? new Error("aborted") : reasonOf(signal));
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", aborted);
      resolve();
    }, ms);
    signal?.addEventListener("abort", aborted, { once: true });
  });
}

/** A controller that is aborted with `signal`. `release` ends the connection between the two. */
export function follow(signal: AbortSignal | undefined): { controller: AbortController; release: () => void } {
  const controller = new AbortController();
  if (signal === undefined) return { controller, release: () => {} };
  const aborted = (): void => controller.abort(signal.reason);
  if (signal.aborted) aborted();
  else signal.addEventListener("abort", aborted, { once: true });
  return { controller, release: () => signal.removeEventListener("abort", aborted) };
}

/** The reason of an aborted signal, as an error. */
export function reasonOf(signal: AbortSignal): Error {
  return signal.reason instanceof Error ? signal.reason : new Error(String(signal.reason));
}

/** Heartbeats and the lease: how long a worker may run tasks without an answer of the server. Pure. */

/** How many heartbeats without an answer make a lease, unless the server names a time. */
export const HEARTBEATS_PER_LEASE = 3;
/** Most unanswered heartbeats that are remembered. */
const BEATS_MAX = 16;

/** The time limits of a session, in milliseconds. */
export interface Timing {
  /** Least time between two heartbeats. */
  readonly heartbeatMs: number;
  /** Most jitter that is added. */
  readonly heartbeatJitterMs: number;
  /** How long an attempt has to end after it was asked to stop. */
  readonly stopGraceMs: number;
  /** How long running tasks may take when the worker drains. */
  readonly drainLimitMs: number;
}

/** The heartbeats of the connection, and the lease of the process. */
export class Pulse {
  readonly #timing: Timing;
  #leaseMs: number;
  /** When the lease ends. */
  #untilMs = Number.POSITIVE_INFINITY;
  #beats: Array<{ id: string; sentMs: number }> = [];
  /** When the next heartbeat is due, while the session is up. */
  #nextMs: number | undefined;
  /** How long the last acknowledged heartbeat took. */
  latencyMs: number | undefined;

  constructor(timing: Timing) {
    this.#timing = timing;
    this.#leaseMs = (timing.heartbeatMs + timing.heartbeatJitterMs) * HEARTBEATS_PER_LEASE;
  }

  /** When the lease ends. */
  get leaseUntilMs(): number {
    return this.#untilMs;
  }

  /** When attempts are asked to stop, so that they have ended when the lease ends. */
  get warningMs(): number {
    return this.#untilMs - Math.min(this.#timing.stopGraceMs, this.#leaseMs / 3);
  }

  /** When the next heartbeat is due. */
  get nextBeatMs(): number | undefined {
    return this.#nextMs;
  }

  /** The server named the length of the lease. */
  setLength(leaseMs: number): void {
    this.#leaseMs = leaseMs;
  }

  /** Renews the lease from when the acknowledged frame was sent: the server cannot count from later. */
  renew(sentMs: number): void {
    this.#untilMs = sentMs + this.#leaseMs;
  }

  /** The session is up, or the server must learn of a change soon: the next heartbeat is due now. */
  beatNow(nowMs: number): void {
    this.#nextMs = nowMs;
  }

  /** A heartbeat was sent. */
  sent(nowMs: number, id: string, random: number): void {
    this.#beats.push({ id, sentMs: nowMs });
    if (this.#beats.length > BEATS_MAX) this.#beats.shift();
    this.#nextMs = nowMs + this.#timing.heartbeatMs + this.#timing.heartbeatJitterMs * random;
  }

  /** A frame was acknowledged. True if it is a heartbeat, which also covers the older ones. */
  acknowledged(nowMs: number, id: string): boolean {
    const at = this.#beats.findIndex((beat) => beat.id === id);
    const beat = this.#beats[at];
    if (beat === undefined) return false;
    this.#beats = this.#beats.slice(at + 1);
    this.latencyMs = Math.max(0, Math.round(nowMs - beat.sentMs));
    this.renew(beat.sentMs);
    return true;
  }

  /** The connection was closed. The lease goes on. */
  forgetSession(): void {
    this.#beats = [];
    this.#nextMs = undefined;
  }
}

/**
 * Frames that are kept until they are acknowledged, and when each is sent again. Outcomes of tasks survive a broken
 * connection; a greeting is dropped with its connection. Pure: it takes the time and returns frames.
 */

import { backoffMs, type Backoff } from "../waiting.js";
import type { Frame } from "./frame.js";

/** Most frames without an acknowledgement. At this limit the worker takes no new tasks. */
export const OUTBOX_LEN_MAX = 4_096;
/** Most bytes without an acknowledgement. At this limit the worker takes no new tasks. */
export const OUTBOX_BYTES_MAX = 64 << 20;
/** How often a frame is sent again before the connection counts as broken. */
export const RESENDS_MAX = 6;
/** The waits before a frame is sent again: 200 ms, 400 ms, … 5 s. */
export const FRAME_BACKOFF: Backoff = { baseMs: 200, maxMs: 5_000, jitterPct: 25 };

/** One attempt at a task. */
export interface TaskKey {
  readonly taskId: string;
  /** The number of the attempt. */
  readonly seq: number;
}

/** The key as a text, for maps. */
export function keyText(key: TaskKey): string {
  return `${key.seq} ${key.taskId}`;
}

/** The type of a kept frame. It decides what happens when no acknowledgement comes. */
export type Keep =
  /** The outcome of a task: kept until it is acknowledged or rejected, across connections. */
  | { readonly as: "outcome"; readonly key: TaskKey; readonly runId: string }
  /** A report that is not the end of a task: kept as long. */
  | { readonly as: "report" }
  /** Handshake and registration: sent before the session is up, and dropped with their connection. */
  | { readonly as: "greeting" };

interface Entry {
  readonly frame: Frame;
  readonly bytes: number;
  readonly keep: Keep;
  resends: number;
  dueMs: number;
}

/** The frames that wait for an acknowledgement. */
export class Outbox {
  /** By id, in the order of insertion. */
  readonly #entries = new Map<string, Entry>();
  #bytes = 0;

  /** How many outcomes and reports wait. */
  get outcomes(): number {
    return this.#count((keep) => keep.as !== "greeting");
  }

  /** True when no more tasks should be accepted. Running tasks need space for their outcomes. */
  isFull(running: number): boolean {
    return this.#entries.size + running >= OUTBOX_LEN_MAX || this.#bytes >= OUTBOX_BYTES_MAX;
  }

  /** Keeps a frame that was just sent, or that is sent as soon as there is a connection. */
  put(nowMs: number, frame: Frame, keep: Keep, random: number): void {
    const bytes = Buffer.byteLength(JSON.stringify(frame));
    this.#bytes += bytes;
    this.#entries.set(frame.id, { frame, bytes, keep, resends: 0, dueMs: nowMs + backoffMs(FRAME_BACKOFF, 0, random) });
  }

  /** Removes a frame that was acknowledged or rejected. */
  remove(id: string): Keep | undefined {
    const entry = this.#entries.get(id);
    if (entry === undefined) return undefined;
    this.#entries.delete(id);
    this.#bytes -= entry.bytes;
    return entry.keep;
  }

  /** Removes the outcome of an attempt; without `seq`, every outcome of the task. */
  removeTask(taskId: string, seq: number | undefined): void {
    this.#removeWhere((keep) => keep.as === "outcome" && keep.key.taskId === taskId && (seq === undefined || keep.key.seq === seq));
  }

  /** Removes the frames that belong to a closed connection. */
  forgetSession(): void {
    this.#removeWhere((keep) => keep.as === "greeting");
  }

  /** Every attempt whose outcome waits. */
  *attempts(): Generator<TaskKey, void> {
    for (const { keep } of this.#entries.values()) if (keep.as === "outcome") yield keep.key;
  }

  /** True when the outcome of this attempt waits. */
  has(key: TaskKey): boolean {
    for (const kept of this.attempts()) if (kept.taskId === key.taskId && kept.seq === key.seq) return true;
    return false;
  }

  /** Makes the frames that `which` selects due at once, and counts their resends from 0. */
  rewind(nowMs: number, which: (keep: Keep) => boolean): void {
    for (const entry of this.#entries.values()) {
      if (!which(entry.keep)) continue;
      entry.resends = 0;
      entry.dueMs = nowMs;
    }
  }

  /** The workflow run of a waiting outcome, by task or by the id of its frame. */
  runOf(corr: string): string | undefined {
    for (const { frame, keep } of this.#entries.values()) {
      if (keep.as === "outcome" && (keep.key.taskId === corr || frame.id === corr)) return keep.runId;
    }
    return undefined;
  }

  /** When the next frame is due. Only greetings are sent unless the session is up. */
  nextDueMs(isUp: boolean): number | undefined {
    let next: number | undefined;
    for (const { keep, dueMs } of this.#entries.values()) {
      if ((isUp || keep.as === "greeting") && (next === undefined || dueMs < next)) next = dueMs;
    }
    return next;
  }

  /** The frames to send now, by `seq`; and whether one was sent as often as allowed, so that the connection must end. */
  takeDue(nowMs: number, isUp: boolean, random: () => number): { frames: Frame[]; isExhausted: boolean } {
    const frames: Frame[] = [];
    let isExhausted = false;
    for (const entry of this.#entries.values()) {
      if (entry.dueMs > nowMs || !(isUp || entry.keep.as === "greeting")) continue;
      if (entry.resends >= RESENDS_MAX) {
        isExhausted = true;
        continue;
      }
      entry.resends += 1;
      entry.dueMs = nowMs + backoffMs(FRAME_BACKOFF, entry.resends, random());
      frames.push(entry.frame);
    }
    frames.sort((a, b) => (a.seq ?? -1) - (b.seq ?? -1));
    return { frames, isExhausted };
  }

  #count(which: (keep: Keep) => boolean): number {
    let count = 0;
    for (const { keep } of this.#entries.values()) if (which(keep)) count += 1;
    return count;
  }

  #removeWhere(which: (keep: Keep) => boolean): void {
    for (const [id, { keep }] of this.#entries) if (which(keep)) this.remove(id);
  }
}

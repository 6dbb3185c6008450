/**
 * The running and remembered tasks, and the decision about a new dispatch: start it, recognize it, or reject it. Two attempts
 * at one task, or with one `concurrency_key`, are never open at the same time. Pure.
 */

import type { CmdDispatchPayload } from "../generated/frames.js";
import type { Rejection } from "./frame.js";
import { keyText, type Outbox, type TaskKey } from "./outbox.js";

/** How many tasks are remembered after their end, to recognize dispatches that come twice. */
export const REMEMBERED_MAX = 10_000;
/** How many frames of a connection are remembered by `(id, corr)`. */
export const SEEN_MAX = 10_000;

/** A task to run. */
export interface Order {
  readonly key: TaskKey;
  readonly dispatch: CmdDispatchPayload;
}

/** Why an attempt is stopped: on request, at the end of the lease, by a drain, or because it belongs to another worker. */
export type StopReason = "canceled" | "lease" | "drain" | "stale";

/** The decision about a dispatch. */
export type Intake =
  | { readonly then: "start" }
  /** An older attempt still runs: stop it. This one starts when that has ended. */
  | { readonly then: "wait"; readonly stop: TaskKey }
  /** It came before: acknowledge it again. */
  | { readonly then: "again" }
  /** A newer attempt came before: acknowledge it and ignore it. */
  | { readonly then: "stale" }
  | { readonly then: "reject"; readonly rejection: Rejection };

/** A running task. */
export interface OpenTask {
  readonly key: TaskKey;
  readonly dispatch: CmdDispatchPayload;
  readonly startedMs: number;
  /** Unanswered calls of the rest of its chain. A task that waits for one takes no slot. */
  readonly calls: Set<string>;
  stopping: StopReason | undefined;
}

/** The limits on running tasks. */
export interface Capacity {
  readonly maxParallel: number;
  /** Most tasks of each kind at once. */
  readonly perKind: ReadonlyMap<string, number>;
}

/** The tasks of a worker. */
export class Tasks {
  readonly #capacity: Capacity;
  readonly #open = new Map<string, OpenTask>();
  /** Newer attempts at tasks that still run an older one, by task. */
  readonly #waiting = new Map<string, Order>();
  /** The newest accepted attempt by task, in the order in which tasks arrived. */
  readonly #taken = new Map<string, number>();
  readonly #seen = new Set<string>();

  constructor(capacity: Capacity) {
    this.#capacity = capacity;
  }

  /** The number of tasks that run, or wait for an older attempt to end. */
  get size(): number {
    return this.#open.size + this.#waiting.size;
  }

  /** The running tasks. */
  open(): OpenTask[] {
    return [...this.#open.values()];
  }

  /** Every attempt that runs, or waits for an older one to end. */
  keys(): TaskKey[] {
    return [...this.#open.values(), ...this.#waiting.values()].map(({ key }) => key);
  }

  /** Decides about a dispatch. `unfit` says why there is no handler, or what the task refers to and is missing. */
  take(nowMs: number, order: Order, outbox: Outbox, isDraining: boolean, unfit: Rejection | undefined): Intake {
    const { key } = order;
    const waiting = this.#waiting.get(key.taskId);
    if (this.#open.has(keyText(key)) || (waiting !== undefined && waiting.key.seq >= key.seq) || outbox.has(key)) return { then: "again" };
    const newest = this.#taken.get(key.taskId);
    if (newest === key.seq) return { then: "again" };
    if (newest !== undefined && newest > key.seq) return { then: "stale" };
    if (unfit !== undefined) return { then: "reject", rejection: unfit };
    const older = this.open().find((open) => open.key.taskId === key.taskId);
    const rejection = this.#overCapacity(order, older, outbox, isDraining);
    if (rejection !== undefined) return { then: "reject", rejection };
    this.#remember(key);
    if (older !== undefined) {
      this.#waiting.set(key.taskId, order);
      return { then: "wait", stop: older.key };
    }
    this.#begin(nowMs, order);
    return { then: "start" };
  }

  #overCapacity(order: Order, older: OpenTask | undefined, outbox: Outbox, isDraining: boolean): Rejection | undefined {
    const reject = (message: string): Rejection => ({ code: "E.CMD.CONCURRENCY_VIOLATION", where: "worker.concurrency", message });
    if (isDraining) return reject("the worker is draining and takes no more tasks");
    if (outbox.isFull(this.size)) return reject("too many results wait for an acknowledgement");
    const others = this.open().filter((open) => open !== older);
    const wanted = order.dispatch.concurrency_key;
    if (wanted !== undefined && others.some((open) => open.dispatch.concurrency_key === wanted)) {
      return reject(`a task with the concurrency_key ${JSON.stringify(wanted)} runs already`);
    }
    const { maxParallel, perKind } = this.#capacity;
    const chain = chainOf(order.dispatch);
    if (!hasSlot(others, chain, maxParallel, this.#waiting.size)) return reject(`max_parallel of ${maxParallel} tasks run already`);
    const kind = order.dispatch.node_type;
    const limit = perKind.get(kind);
    if (limit !== undefined && !hasSlot(others.filter((open) => open.dispatch.node_type === kind), chain, limit, 0)) {
      return reject(`${limit} tasks of kind ${JSON.stringify(kind)} run already, the limit of the kind`);
    }
    return undefined;
  }

  #begin(nowMs: number, { key, dispatch }: Order): void {
    this.#open.set(keyText(key), { key, dispatch, startedMs: nowMs, calls: new Set(), stopping: undefined });
  }

  #remember(key: TaskKey): void {
    this.#taken.set(key.taskId, key.seq);
    if (this.#taken.size <= REMEMBERED_MAX) return;
    // A running task must not be forgotten: a second dispatch would start it again.
    const running = new Set(this.keys().map(({ taskId }) => taskId));
    for (const taskId of this.#taken.keys()) {
      if (taskId === key.taskId || running.has(taskId)) continue;
      this.#taken.delete(taskId);
      return;
    }
  }

  /** An attempt calls the rest of its chain and waits for the answer. */
  call(key: TaskKey, request: string): void {
    this.#open.get(keyText(key))?.calls.add(request);
  }

  /** A call was answered. */
  answered(request: string): void {
    for (const open of this.#open.values()) open.calls.delete(request);
  }

  /** Marks an attempt as stopping. False when it does not run, or is stopping already. */
  stop(key: TaskKey, why: StopReason): boolean {
    const open = this.#open.get(keyText(key));
    if (open === undefined) return false;
    const isFirst = open.stopping === undefined;
    // A stale attempt stays stale, and a canceled one may still become stale.
    if (isFirst || why === "stale") open.stopping = why;
    return isFirst;
  }

  /** The attempts at a task that a command refers to: one, or all. */
  attempts(taskId: string, seq: number | undefined): TaskKey[] {
    return this.open().map(({ key }) => key).filter((key) => key.taskId === taskId && (seq === undefined || key.seq === seq));
  }

  /** Removes an attempt that waits for an older one to end. */
  removeWaiting(taskId: string, seq: number | undefined): Order | undefined {
    const waiting = this.#waiting.get(taskId);
    if (waiting === undefined || (seq !== undefined && seq !== waiting.key.seq)) return undefined;
    this.#waiting.delete(taskId);
    return waiting;
  }

  /** An attempt has ended. Returns the attempt, and the newer one that may start now. */
  end(nowMs: number, key: TaskKey): { open: OpenTask; next: Order | undefined } | undefined {
    const open = this.#open.get(keyText(key));
    if (open === undefined) return undefined;
    this.#open.delete(keyText(key));
    const next = this.#waiting.get(key.taskId);
    this.#waiting.delete(key.taskId);
    if (next !== undefined) this.#begin(nowMs, next);
    return { open, next };
  }

  /** Records a frame of this connection. False for one that came before. */
  isNewFrame(id: string, corr: string | null | undefined): boolean {
    const sight = JSON.stringify([id, corr ?? null]);
    if (this.#seen.has(sight)) return false;
    this.#seen.add(sight);
    if (this.#seen.size > SEEN_MAX) for (const oldest of this.#seen) return this.#seen.delete(oldest);
    return true;
  }

  /** The connection was closed: forgets the ids of its frames. */
  forgetSession(): void {
    this.#seen.clear();
  }
}

/** Whether one more task fits. The running part of a chain takes one slot, because its callers wait. */
function hasSlot(taken: OpenTask[], chain: string | undefined, limit: number, more: number): boolean {
  const chains = new Set<string>();
  let [alone, working] = [more, more];
  for (const open of taken) {
    if (open.calls.size === 0) working += 1;
    const of = chainOf(open.dispatch);
    if (of === undefined) alone += 1;
    else chains.add(of);
  }
  // A middleware may wait for nodes of no chain or of another chain: those of a container.
  return (chain !== undefined && chains.has(chain)) || alone + chains.size < limit || working < limit;
}

/** The middleware chain of a task, by workflow run and host. */
function chainOf(dispatch: CmdDispatchPayload): string | undefined {
  return dispatch.host_node_id === undefined ? undefined : JSON.stringify([dispatch.run_id, dispatch.host_node_id]);
}

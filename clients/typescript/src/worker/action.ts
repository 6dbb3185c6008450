/** What goes into the state machine of `protocol.ts` beside frames, and the actions that come out. Types only. */

import type {
  HandshakePayload, MiddlewareNextResponsePayload, PkgInstallPayload, PkgUninstallPayload, ResourceReadPayload,
} from "../generated/frames.js";
import type { Frame, Rejection } from "./frame.js";
import type { TaskKey } from "./outbox.js";
import type { Timing } from "./pulse.js";
import type { Capacity, Order, StopReason } from "./tasks.js";

/** The time of both clocks: one for waits, one for timestamps. */
export interface Now {
  /** Milliseconds of a clock that never goes back. */
  readonly monoMs: number;
  readonly wall: Date;
}

/** Why the worker closes a connection: to connect again, because it has drained, or because another one has its name. */
export type CloseReason = "retry" | "done" | "superseded";

/** An action for the driver. */
export type Action =
  | { readonly do: "send"; readonly frame: Frame }
  | { readonly do: "start"; readonly order: Order }
  /** Ask this attempt to stop. */
  | { readonly do: "stop"; readonly key: TaskKey; readonly why: StopReason }
  /** Give this attempt up at once. */
  | { readonly do: "abandon"; readonly key: TaskKey }
  | { readonly do: "install"; readonly asked: string; readonly request: PkgInstallPayload }
  | { readonly do: "uninstall"; readonly asked: string; readonly request: PkgUninstallPayload }
  | { readonly do: "read"; readonly asked: string; readonly request: ResourceReadPayload }
  /** The answer to a middleware's `next`. */
  | { readonly do: "next"; readonly response: MiddlewareNextResponsePayload }
  /** The session is up. */
  | { readonly do: "registered" }
  /** The server rejected something; `code` is its reason. */
  | { readonly do: "denied"; readonly code: string; readonly message: string }
  | { readonly do: "close"; readonly why: CloseReason };

/** The load of the machine, in percent. */
export interface Vitals {
  readonly cpu_pct?: number;
  readonly mem_pct?: number;
  readonly disk_pct?: number;
  readonly resource_handles?: number;
  readonly resource_bytes?: number;
}

/** What the state machine asks the worker. */
export interface Environment {
  /** Why there is no handler for the task, or what else it requires and is missing. */
  unfit(order: Order, now: Now): Rejection | undefined;
  vitals(): Vitals;
}

/** The identity and configuration of the worker. */
export interface Profile {
  readonly tenant: string;
  readonly worker: HandshakePayload["worker"];
  readonly timing: Timing;
  readonly capacity: Capacity;
  /** The load at which the worker requests no more tasks, in percent. */
  readonly thresholds: { readonly memPct: number; readonly diskPct: number };
  /** Distinguishes the frames of this process from those of an earlier one with the same name. */
  readonly instance: string;
  /** Identifies this process to the server. It is unique. */
  readonly bootId: string;
}

/** Counters since the start. */
export interface Tally {
  heartbeats: number;
  resent: number;
  duplicates: number;
  rejected: number;
  /** Outcomes that the server rejected. */
  stale: number;
  feedbackDropped: number;
}

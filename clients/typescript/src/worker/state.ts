/** The states of a worker's session, and the transitions between them. */

/** The state of a session, see docs/worker-protocol.md. */
export type WorkerState = "NEW" | "HANDSHAKING" | "REGISTERED" | "HEARTBEATING" | "DRAINING" | "CLOSED" | "BACKOFF";

/** The states that may follow each state. */
export const NEXT: Readonly<Record<WorkerState, readonly WorkerState[]>> = {
  NEW: ["HANDSHAKING"],
  HANDSHAKING: ["REGISTERED", "BACKOFF"],
  REGISTERED: ["HEARTBEATING", "BACKOFF", "CLOSED"],
  HEARTBEATING: ["DRAINING", "CLOSED", "BACKOFF"],
  DRAINING: ["CLOSED", "BACKOFF"],
  CLOSED: ["NEW", "BACKOFF"],
  BACKOFF: ["NEW"],
};

/** True while tasks may run under this session. */
export function isUp(state: WorkerState): boolean {
  return state === "HEARTBEATING" || state === "DRAINING";
}

/** True while there is a connection. */
export function isConnected(state: WorkerState): boolean {
  return state !== "NEW" && state !== "BACKOFF" && state !== "CLOSED";
}

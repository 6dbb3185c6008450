/** The frames of the worker protocol: their types, how they are parsed, and how they are encoded. See docs/worker-protocol.md. */

import type {
  AckPayload, CmdCancelPayload, CmdDispatchPayload, CmdDrainPayload, Envelope, ErrorPayload, FeedbackPayload, HandshakePayload,
  HeartbeatPayload, MiddlewareNextRequestPayload, MiddlewareNextResponsePayload, PkgEventPayload, PkgInstallPayload,
  PkgUninstallPayload, RegisterPayload, ResourceDataPayload, ResourceReadPayload, ResultPayload,
} from "../generated/frames.js";
import { RECEIVED } from "../generated/frames.js";
import { check } from "./schema.js";

/** Most bytes of a frame. */
export const FRAME_LEN_MAX = 4 << 20;

/** What a worker sends, before it has an envelope. */
export type Message =
  | { type: "handshake"; payload: HandshakePayload }
  | { type: "register"; payload: RegisterPayload }
  | { type: "heartbeat"; payload: HeartbeatPayload }
  | { type: "ack"; payload: AckPayload }
  | { type: "error"; payload: ErrorPayload }
  | { type: "feedback"; payload: FeedbackPayload }
  | { type: "result"; payload: ResultPayload }
  | { type: "pkg.event"; payload: PkgEventPayload }
  | { type: "middleware.next_request"; payload: MiddlewareNextRequestPayload }
  | { type: "resource.data"; payload: ResourceDataPayload };

/** A frame that a worker sends. */
export type Frame = Omit<Envelope, "type" | "payload"> & Message;

type Head = Omit<Envelope, "type" | "payload">;

/** A frame that a worker receives. */
export type ReceivedFrame = Head &
  (
    | { type: "ack"; payload: AckPayload }
    | { type: "error"; payload: ErrorPayload }
    | { type: "cmd.dispatch"; payload: CmdDispatchPayload }
    | { type: "cmd.cancel"; payload: CmdCancelPayload }
    | { type: "cmd.drain"; payload: CmdDrainPayload }
    | { type: "pkg.install"; payload: PkgInstallPayload }
    | { type: "pkg.uninstall"; payload: PkgUninstallPayload }
    | { type: "middleware.next_response"; payload: MiddlewareNextResponsePayload }
    | { type: "resource.read"; payload: ResourceReadPayload }
  );

/** A code of the worker protocol. */
export type FrameCode =
  | "E.AUTH.INVALID_TOKEN"
  | "E.AUTH.MTLS_REQUIRED"
  | "E.SESSION.STALE_BINDING"
  | "E.SESSION.DENIED"
  | "E.CMD.UNKNOWN"
  | "E.CMD.CONCURRENCY_VIOLATION"
  | "E.RESULT.DUPLICATE"
  | "E.RESULT.SEQ_GAP"
  | "E.PKG.INVALID"
  | "E.PKG.PERMISSION"
  | "E.INTERNAL"
  | "E.TIMEOUT"
  | "E.DISPATCH.INVALID_METADATA"
  | "E.RESOURCE.MISSING"
  | "E.RUNNER.FAILURE"
  | "E.RUNNER.CANCELLED";

/** Why a dispatch, a read or a frame is rejected. */
export interface Rejection {
  readonly code: FrameCode;
  /** The part of the worker or of the frame that rejected it. */
  readonly where: string;
  /** What is wrong, for people. */
  readonly message: string;
}

/** A frame that cannot be parsed. */
export interface BadFrame extends Rejection {
  /** The id of the frame, if it could be read. */
  readonly id: string | undefined;
  /** The type of the frame, if it could be read. */
  readonly type: string | undefined;
  /** The field that is wrong. */
  readonly field: string | undefined;
}

/** The types that only a worker sends. */
const SENT_BY_WORKERS: ReadonlySet<string> = new Set([
  "handshake", "register", "heartbeat", "feedback", "result", "pkg.event", "middleware.next_request", "resource.data",
]);

/** Parses a frame: the envelope first, then the payload that its type selects. */
export function parseFrame(text: string): { frame: ReceivedFrame } | { bad: BadFrame } {
  const length = Buffer.byteLength(text);
  if (length > FRAME_LEN_MAX) return bad("frame.size", `the frame has ${length} bytes; send at most ${FRAME_LEN_MAX}`);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return bad("frame.json", "the frame is not JSON");
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) return bad("frame.json", "the frame is not a JSON object");
  const { id, type } = value as Record<string, unknown>;
  const about = { id: shortText(id), type: shortText(type) };
  const inEnvelope = check(RECEIVED["envelope"], value);
  if (inEnvelope !== undefined) return bad("envelope", inEnvelope.message, { ...about, field: inEnvelope.field });
  const envelope = value as Envelope;
  if (SENT_BY_WORKERS.has(envelope.type)) {
    return bad("worker.session", `a worker does not take frames of type \`${envelope.type}\``, about);
  }
  if (envelope.type === "envelope" || !Object.hasOwn(RECEIVED, envelope.type)) {
    const message = `the type ${JSON.stringify(envelope.type)} is unknown; docs/worker-protocol.md lists the types`;
    return bad("envelope.type", message, { ...about, field: "type" });
  }
  const payload = envelope.type === "ack" ? fullAck(envelope) : envelope.payload;
  const inPayload = check(RECEIVED[envelope.type], payload);
  if (inPayload !== undefined) return bad("payload", inPayload.message, { ...about, field: inPayload.field });
  const frame = { ...envelope, payload } as ReceivedFrame;
  const inChain = frame.type === "cmd.dispatch" ? chainProblem(frame.payload) : undefined;
  if (inChain !== undefined) return bad("payload", inChain, about, "E.DISPATCH.INVALID_METADATA");
  return { frame };
}

function bad(where: string, message: string, about: Partial<BadFrame> = {}, code: FrameCode = "E.CMD.UNKNOWN"): { bad: BadFrame } {
  return { bad: { code, where, message, id: about.id, type: about.type, field: about.field } };
}

function shortText(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" && value.length <= 1_024 ? value : undefined;
}

/** The payload of an acknowledgement. `for` may be in the envelope only. */
function fullAck(envelope: Envelope): Record<string, unknown> {
  const fromEnvelope = envelope.ack?.for;
  return fromEnvelope && !Object.hasOwn(envelope.payload, "for") ? { ...envelope.payload, for: fromEnvelope } : envelope.payload;
}

/** What is wrong with the middleware fields of a dispatch, if they contradict one another. */
function chainProblem(dispatch: CmdDispatchPayload): string | undefined {
  const { host_node_id: host, middleware_chain: chain, chain_index: index, node_id: node } = dispatch;
  const hasIndex = index !== undefined && index !== null;
  if (chain === undefined || chain.length === 0) return hasIndex ? "`chain_index` is set without a `middleware_chain`" : undefined;
  if (host === undefined) return "`host_node_id` is missing; a `middleware_chain` requires it";
  if (node === host) return hasIndex ? "the host of a chain has no `chain_index`" : undefined;
  if (!hasIndex) return "a middleware needs `chain_index`";
  return chain[index] === node ? undefined : "`chain_index` does not point to the node in `middleware_chain`";
}

/** The `error` payload of a rejection. */
export function errorPayload(rejection: Rejection, details: Record<string, unknown> = {}): ErrorPayload {
  return { code: rejection.code, message: rejection.message, context: { where: rejection.where, details } };
}

/** A number of `name=value` pairs in the `info` of an acknowledgement. */
export function infoNumber(ack: AckPayload, name: string): number | undefined {
  for (const pair of (ack.info ?? "").split(/\s+/)) {
    const [key, value] = pair.split("=");
    if (key === name && value !== undefined && /^\d+$/.test(value)) return Number(value);
  }
  return undefined;
}

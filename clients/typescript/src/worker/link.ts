/** One connection of a worker: a WebSocket from its opening to its end. It is used once. */

import { LanewayError } from "../errors.js";
import type { Frame } from "./frame.js";
import { FRAME_LEN_MAX } from "./frame.js";

/** How long opening a connection may take. */
const OPEN_LIMIT_MS = 10_000;
/** How long the last frames and the closing of a connection may take. */
const FINISH_LIMIT_MS = 2_000;
/** Most bytes that wait to be sent. Beyond it the server does not read, and the connection is given up. */
const BUFFERED_MAX = 16 << 20;

/** The part of a WebSocket that a worker uses. The platform's and the one of the package `ws` both have it. */
export interface WebSocketLike {
  binaryType: string;
  readonly bufferedAmount: number;
  onopen: ((event: never) => void) | null;
  onmessage: ((event: never) => void) | null;
  onerror: ((event: never) => void) | null;
  onclose: ((event: never) => void) | null;
  send(text: string): void;
  close(code?: number, reason?: string): void;
  /** Ends the connection at once, where the WebSocket can. */
  terminate?(): void;
}

/** Opens a WebSocket with these headers. */
export type WebSocketFactory = (url: string, headers: Record<string, string>) => WebSocketLike | Promise<WebSocketLike>;

/** What a connection reports. Nothing is reported after `closed`. */
export interface LinkEvents {
  opened(): void;
  text(text: string): void;
  closed(reason: string): void;
}

/** A connection. */
export class Link {
  #socket: WebSocketLike | undefined;
  #events: LinkEvents | undefined;
  #isOpen = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(opening: Promise<WebSocketLike>, events: LinkEvents) {
    this.#events = events;
    this.#timer = setTimeout(() => this.#end(`it did not open within ${OPEN_LIMIT_MS} ms`), OPEN_LIMIT_MS);
    opening.then(
      (socket) => this.#listen(socket),
      (error: unknown) => this.#end(error instanceof Error ? error.message : String(error)),
    );
  }

  /** How many bytes wait to be sent. */
  get bufferedAmount(): number {
    return this.#socket?.bufferedAmount ?? 0;
  }

  /** Sends a frame, if the connection is open. */
  send(frame: Frame): void {
    if (!this.#isOpen || this.#socket === undefined) return;
    try {
      this.#socket.send(JSON.stringify(frame));
    } catch (error) {
      this.#endSoon(error instanceof Error ? error.message : String(error));
      return;
    }
    if (this.#socket.bufferedAmount > BUFFERED_MAX) this.#endSoon("the server does not read");
  }

  /** Gives the connection up. Nothing more is reported. */
  drop(): void {
    this.#events = undefined;
    this.#isOpen = false;
    clearTimeout(this.#timer);
    discard(this.#socket);
  }

  /** Sends the last frames and closes the connection. */
  async finish(): Promise<void> {
    const socket = this.#socket;
    this.#events = undefined;
    clearTimeout(this.#timer);
    if (!this.#isOpen || socket === undefined) {
      this.drop();
      return;
    }
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, FINISH_LIMIT_MS);
      socket.onclose = () => {
        clearTimeout(timer);
        resolve();
      };
      socket.close(1000, "the worker has ended");
    });
    discard(socket);
  }

  #listen(socket: WebSocketLike): void {
    if (this.#events === undefined) {
      discard(socket);
      return;
    }
    this.#socket = socket;
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
      clearTimeout(this.#timer);
      this.#isOpen = true;
      this.#events?.opened();
    };
    socket.onmessage = (event: { data: unknown }) => this.#events?.text(textOf(event.data));
    socket.onerror = (event: { message?: unknown; error?: unknown }) => {
      const why = event.error instanceof Error && event.error.message !== "" ? event.error.message : event.message;
      this.#end(typeof why === "string" && why !== "" ? why : "the connection failed");
    };
    socket.onclose = (event: { code?: number; reason?: string }) => {
      this.#end(`it was closed with ${event.code ?? "no code"}${event.reason ? `: ${event.reason}` : ""}`);
    };
  }

  /** Ends the connection when the present work is done: the caller may be in the middle of a list of actions. */
  #endSoon(reason: string): void {
    this.#isOpen = false;
    setImmediate(() => this.#end(reason));
  }

  #end(reason: string): void {
    const events = this.#events;
    this.drop();
    events?.closed(reason);
  }
}

/** Ends a socket without waiting for the other side. */
function discard(socket: WebSocketLike | undefined): void {
  if (socket === undefined) return;
  // Without a handler, the package `ws` would throw a late error.
  socket.onopen = socket.onmessage = socket.onclose = null;
  socket.onerror = () => {};
  try {
    if (socket.terminate !== undefined) socket.terminate();
    else socket.close();
  } catch {
    // It is closed already.
  }
}

/** Binary messages are handled like text: they are invalid frames unless they have JSON. */
function textOf(data: unknown): string {
  if (typeof data === "string") return data;
  return data instanceof ArrayBuffer ? Buffer.from(data).toString("utf8") : "";
}

/** Opens the platform's WebSocket, or the one of the package `ws` where the platform has none (Node before 22). */
export async function openWebSocket(url: string, headers: Record<string, string>): Promise<WebSocketLike> {
  const Platform: unknown = (globalThis as { WebSocket?: unknown }).WebSocket;
  if (typeof Platform === "function") {
    return new (Platform as new (url: string, options: object) => WebSocketLike)(url, { headers });
  }
  const ws = await import("ws").catch((cause: unknown) => {
    throw new LanewayError("this platform has no WebSocket; use Node 22 or newer, or install the package ws", { cause });
  });
  // One frame more than allowed is read, so that it can be answered.
  const options = { headers, perMessageDeflate: false, maxPayload: FRAME_LEN_MAX + (64 << 10) };
  return new ws.WebSocket(url, options) as unknown as WebSocketLike;
}

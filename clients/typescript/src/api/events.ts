/**
 * The stream of events, with resume: after a broken connection it goes on after the last event, in order and once.
 */

import { isTransient, LanewayError } from "../errors.js";
import type { Event, Gap, JobProgress } from "../generated/api.js";
import { partsOf, type Transport } from "../http.js";
import { SseParser, type SseMessage } from "../sse.js";
import { backoffMs, follow, pause } from "../waiting.js";

/** A number beyond every event. The server answers it with the number of its newest event, and then sends new events. */
const BEYOND = Number.MAX_SAFE_INTEGER;
/** How long to wait for data. The server sends a comment after 15 s. */
const SILENCE_MAX_MS = 45_000;

/** Options of a stream. */
export interface StreamOptions {
  /** Begin after the event of this number; 0: with the oldest that is kept. Defaults to new events only. */
  after?: number;
  /** Only events of this job. */
  job?: string;
  /** Ends the stream: the loop over it ends without an error. */
  signal?: AbortSignal;
}

/** One item of the stream. */
export type StreamItem =
  | { readonly type: "event"; readonly event: Event }
  /** Progress has no number and may be left out under load. */
  | { readonly type: "progress"; readonly progress: JobProgress }
  /** Events are missing: read the jobs again. */
  | { readonly type: "gap"; readonly gap: Gap };

/** An open stream of events. Loop over it once with `for await`. */
export class EventStream implements AsyncIterable<StreamItem> {
  /** Resolves when the server sends events: an event after this moment is in the stream. */
  readonly opened: Promise<void>;
  readonly #items: AsyncGenerator<StreamItem, void>;
  readonly #transport: Transport;
  readonly #job: string | undefined;
  readonly #controller: AbortController;
  /** The number of the last event. */
  #position: number | undefined;
  /** Connections that failed in a row. */
  #failures = 0;

  constructor(transport: Transport, options: StreamOptions) {
    this.#transport = transport;
    this.#job = options.job;
    this.#controller = follow(options.signal).controller;
    this.#position = options.after;
    const first = this.#connect();
    this.opened = first.then(() => undefined);
    // A caller that does not wait for it gets the error from the loop.
    this.opened.catch(() => {});
    this.#items = this.#read(first);
  }

  /** The number of the last event, for `after` of a later stream. */
  get position(): number | undefined {
    return this.#position;
  }

  /** Ends the stream. */
  close(): void {
    this.#controller.abort(new LanewayError("the stream was closed"));
  }

  [Symbol.asyncIterator](): AsyncIterator<StreamItem> {
    return this.#items;
  }

  async *#read(first: Promise<AsyncGenerator<SseMessage, void>>): AsyncGenerator<StreamItem, void> {
    try {
      for (let connection = first; ; connection = this.#connect()) {
        for await (const message of this.#untilBroken(await connection)) {
          const item = this.#take(message);
          if (item !== undefined) yield item;
        }
      }
    } catch (error) {
      if (!this.#controller.signal.aborted) throw error;
    } finally {
      this.close();
    }
  }

  /** The messages of a connection. Its end is not an error: the stream connects again. */
  async *#untilBroken(messages: AsyncGenerator<SseMessage, void>): AsyncGenerator<SseMessage, void> {
    try {
      for await (const message of messages) {
        this.#failures = 0;
        yield message;
      }
    } catch (error) {
      if (!isTransient(error)) throw error;
    }
  }

  /** Connects, again and again, until the server sends events and the position is known. */
  async #connect(): Promise<AsyncGenerator<SseMessage, void>> {
    const signal = this.#controller.signal;
    for (;;) {
      signal.throwIfAborted();
      if (this.#failures > 0) await pause(backoffMs({ baseMs: 100, maxMs: 5_000, jitterPct: 50 }, this.#failures - 1, Math.random()), signal);
      this.#failures += 1;
      try {
        const messages = messagesOf(await this.#request(signal), signal);
        if (this.#position !== undefined) return messages;
        const { value } = await messages.next();
        if (value !== undefined) this.#take(value);
        if (this.#position !== undefined) return messages;
      } catch (error) {
        if (!isTransient(error)) throw error;
      }
    }
  }

  #request(signal: AbortSignal): Promise<Response> {
    return this.#transport.respond("stream_events", {
      query: this.#job === undefined ? {} : { job: this.#job },
      headers: { accept: "text/event-stream", "last-event-id": String(this.#position ?? BEYOND) },
      signal,
    });
  }

  /** The item of a message, unless it only moves the position. */
  #take(message: SseMessage): StreamItem | undefined {
    const data: unknown = JSON.parse(message.data);
    const number = message.id === undefined ? undefined : Number(message.id);
    if (number !== undefined && Number.isSafeInteger(number)) this.#position = number;
    if (message.event === "job.progress") return { type: "progress", progress: data as JobProgress };
    if (message.event !== "gap") return { type: "event", event: data as Event };
    const gap = data as Gap;
    // The first is the answer to `BEYOND`. After the second, no event is missing: the stream goes on after `after`.
    if (gap.after === BEYOND) return undefined;
    if (gap.reason === "slow_reader") {
      this.#position = gap.after;
      return undefined;
    }
    return { type: "gap", gap };
  }
}

/** The calls about events. */
export class Events {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Opens a stream. It reconnects by itself; it ends when its signal is aborted or when the caller loses its right. */
  stream(options: StreamOptions = {}): EventStream {
    return new EventStream(this.#transport, options);
  }
}

async function* messagesOf(response: Response, signal: AbortSignal): AsyncGenerator<SseMessage, void> {
  const parser = new SseParser();
  const decoder = new TextDecoder();
  for await (const part of partsOf(response, SILENCE_MAX_MS, signal)) yield* parser.push(decoder.decode(part, { stream: true }));
}

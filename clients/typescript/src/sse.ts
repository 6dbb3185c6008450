/** Parses a stream of server-sent events. Pure: text goes in, messages come out. */

/** One message of the stream. */
export interface SseMessage {
  /** The type, `message` without one. */
  readonly event: string;
  /** The lines of data, joined. */
  readonly data: string;
  /** The id of this message, if it has one. */
  readonly id: string | undefined;
}

/** Most characters of one message. The largest event of the server is far smaller. */
const MESSAGE_LEN_MAX = 8 << 20;

/** Collects text until messages are complete. */
export class SseParser {
  #rest = "";
  #event = "";
  #data: string[] = [];
  #id: string | undefined;
  #len = 0;

  /** Adds text and returns the messages that it completes. */
  push(text: string): SseMessage[] {
    const messages: SseMessage[] = [];
    const lines = (this.#rest + text).split("\n");
    this.#rest = lines.pop() ?? "";
    for (const line of lines) {
      const message = this.#line(line.endsWith("\r") ? line.slice(0, -1) : line);
      if (message !== undefined) messages.push(message);
    }
    if (this.#rest.length + this.#len > MESSAGE_LEN_MAX) throw new Error(`an event has more than ${MESSAGE_LEN_MAX} characters`);
    return messages;
  }

  #line(line: string): SseMessage | undefined {
    if (line === "") return this.#end();
    const colon = line.indexOf(":");
    // A comment keeps the connection alive.
    if (colon === 0) return undefined;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    this.#len += line.length;
    if (field === "event") this.#event = value;
    else if (field === "data") this.#data.push(value);
    else if (field === "id" && !value.includes("\0")) this.#id = value;
    return undefined;
  }

  #end(): SseMessage | undefined {
    const message = { event: this.#event || "message", data: this.#data.join("\n"), id: this.#id };
    const isEmpty = this.#data.length === 0;
    this.#event = "";
    this.#data = [];
    this.#id = undefined;
    this.#len = 0;
    return isEmpty ? undefined : message;
  }
}

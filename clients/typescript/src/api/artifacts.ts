/** Artifacts: data that a job made, read from its worker or from the server. */

import { open } from "node:fs/promises";

import { ConnectionError, LanewayError } from "../errors.js";
import { partsOf, type CallOptions, type Transport } from "../http.js";
import { backoffMs, pause } from "../waiting.js";

/** How often a download that breaks is resumed without new data in between. */
const RESUMES_MAX = 5;
/** How long to wait for the next part. The worker has 15 s for each. */
const SILENCE_MAX_MS = 30_000;

/** Options of a download. */
export interface DownloadOptions extends CallOptions {
  /** The first byte to read. Defaults to 0. */
  offset?: number;
}

/** The calls about artifacts. */
export class Artifacts {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** The response to one download, with the length, the type and the name in its headers. */
  get(id: string, options: DownloadOptions = {}): Promise<Response> {
    const offset = options.offset ?? 0;
    const headers: Record<string, string> = offset > 0 ? { range: `bytes=${offset}-` } : {};
    return this.#transport.respond("get_artifact", { ...options, path: { id }, headers });
  }

  /** The data in parts. A connection that breaks is resumed where it broke. */
  async *stream(id: string, options: DownloadOptions = {}): AsyncGenerator<Uint8Array, void> {
    let offset = options.offset ?? 0;
    for (let failures = 0; ; failures++) {
      const response = await this.get(id, { ...options, offset });
      if (offset > 0 && response.status !== 206) throw new LanewayError(`the server did not resume the artifact ${id} at byte ${offset}`);
      try {
        for await (const part of partsOf(response, SILENCE_MAX_MS, options.signal)) {
          offset += part.byteLength;
          failures = 0;
          yield part;
        }
        return;
      } catch (error) {
        // An error of the reader of this stream does not come here: it ends the generator.
        if (!(error instanceof ConnectionError) || failures >= RESUMES_MAX) throw error;
      }
      await pause(backoffMs({ baseMs: 100, maxMs: 5_000, jitterPct: 50 }, failures, Math.random()), options.signal);
    }
  }

  /** The whole data, in memory. */
  async bytes(id: string, options: DownloadOptions = {}): Promise<Uint8Array> {
    const parts: Uint8Array[] = [];
    for await (const part of this.stream(id, options)) parts.push(part);
    return Buffer.concat(parts);
  }

  /** Writes the data to a new file and returns its length. A file that exists is an error. */
  async save(id: string, path: string, options: CallOptions = {}): Promise<number> {
    const file = await open(path, "wx");
    try {
      let length = 0;
      for await (const part of this.stream(id, options)) {
        await file.writeFile(part);
        length += part.byteLength;
      }
      return length;
    } finally {
      await file.close();
    }
  }
}

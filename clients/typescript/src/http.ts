/**
 * One call of the HTTP API: its URL, its headers, its time limit, its errors, and when it is sent again.
 *
 * A call is sent again only where that is safe. An answer with an error stored nothing, so `too_many`, `draining` and the
 * like may always be followed by another try. If no answer came, or `unavailable`, the outcome is unknown: then only calls
 * that have the same effect twice are sent again.
 */

import { ApiError, apiErrorOf, ConnectionError, LanewayError, TimeoutError } from "./errors.js";
import { OPERATIONS, type Operations } from "./generated/api.js";
import { tokenReader, type TokenSource } from "./token.js";
import { backoffMs, follow, pause } from "./waiting.js";

/** The options of a client. */
export interface ClientOptions {
  /** The URL of the server. Defaults to `LANEWAY_URL`, then `http://127.0.0.1:7717`. */
  url?: string;
  /** The token, or a function that returns it. Defaults to the file `LANEWAY_TOKEN_FILE`, then `LANEWAY_TOKEN`, then none. */
  token?: TokenSource;
  /** The tenant to act for, with a server-wide token. Defaults to the tenant of the token. */
  tenant?: string;
  /** How long one try of a call may take. Defaults to 30,000 ms. */
  timeoutMs?: number;
  /** How often a call is sent again where that is safe. Defaults to 4. With 0, no idempotency keys are made. */
  retries?: number;
  /** The longest wait between two tries. A longer `Retry-After` is not waited for. Defaults to 10,000 ms. */
  retryWaitMaxMs?: number;
  /** The function that sends requests, for proxies and client certificates. Defaults to the platform's `fetch`. */
  fetch?: typeof fetch;
}

/** The options that every call has. */
export interface CallOptions {
  /** Ends the call. */
  signal?: AbortSignal | undefined;
  /** How long one try may take, in place of the client's `timeoutMs`. */
  timeoutMs?: number | undefined;
}

type Given<Name extends string, Type> = [Type] extends [undefined]
  ? { [Key in Name]?: undefined }
  : object extends Type
    ? { [Key in Name]?: Type | undefined }
    : { [Key in Name]: Type };

/** The arguments of an operation: `path`, `query` and `body`, where it has them. */
export type CallArguments<Id extends keyof Operations> = CallOptions &
  Given<"path", Operations[Id]["path"]> &
  Given<"query", Operations[Id]["query"]> &
  Given<"body", Operations[Id]["body"]> & {
    /** Further headers. */
    headers?: Record<string, string> | undefined;
    /** True when the call has the same effect twice. Defaults to true for `GET`, `PUT` and `DELETE`. */
    repeatable?: boolean | undefined;
    /** Is called before each try. */
    onTry?: (() => void) | undefined;
  };

interface Prepared {
  method: string;
  url: string;
  headers: Record<string, string>;
  body: string | undefined;
  repeatable: boolean;
  timeoutMs: number;
  signal: AbortSignal | undefined;
}

/** Errors of the network that come before a request is sent. */
const NOT_SENT = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "UND_ERR_CONNECT_TIMEOUT"]);
/** Codes after which the same call may succeed a little later. Nothing was stored. */
const TRANSIENT = new Set<string>(["too_many", "queue_full", "session_full", "draining", "worker_away", "worker_timeout"]);

/** Sends calls to one server. */
export class Transport {
  readonly url: string;
  readonly retries: number;
  readonly #token: () => Promise<string | undefined>;
  readonly #tenant: string | undefined;
  readonly #timeoutMs: number;
  readonly #waitMaxMs: number;
  readonly #fetch: typeof fetch;

  constructor(options: ClientOptions = {}) {
    this.url = (options.url ?? process.env["LANEWAY_URL"] ?? "http://127.0.0.1:7717").replace(/\/+$/, "");
    if (!/^https?:\/\/[^/]/.test(this.url)) {
      throw new LanewayError(`the URL ${JSON.stringify(this.url)} is invalid: write http://host:port or https://host:port`);
    }
    this.#token = tokenReader(options.token);
    this.#tenant = options.tenant;
    this.#timeoutMs = options.timeoutMs ?? 30_000;
    this.retries = options.retries ?? 4;
    this.#waitMaxMs = options.retryWaitMaxMs ?? 10_000;
    this.#fetch = options.fetch ?? fetch;
  }

  /** Calls an operation and returns its answer. */
  call<Id extends keyof Operations>(id: Id, call: CallArguments<Id>): Promise<Operations[Id]["answer"]> {
    return this.#repeat(id, call, async (response) => {
      if (response.status === 204) return undefined as Operations[Id]["answer"];
      if (!(response.headers.get("content-type") ?? "").includes("json")) return response as Operations[Id]["answer"];
      return JSON.parse(await response.text()) as Operations[Id]["answer"];
    });
  }

  /** Calls an operation and returns the response. Its status is below 400, and its body is not read yet. */
  respond<Id extends keyof Operations>(id: Id, call: CallArguments<Id>): Promise<Response> {
    return this.#repeat(id, call, (response) => Promise.resolve(response));
  }

  async #repeat<Id extends keyof Operations, Answer>(id: Id, call: CallArguments<Id>, read: (response: Response) => Promise<Answer>): Promise<Answer> {
    const prepared = this.#prepare(id, call);
    for (let failures = 0; ; failures++) {
      call.onTry?.();
      let error: unknown;
      try {
        return await this.#send(prepared, read);
      } catch (thrown) {
        error = thrown;
      }
      const waitMs = this.#waitBeforeRetry(error, prepared.repeatable, failures);
      if (waitMs === undefined) throw error;
      await pause(waitMs, prepared.signal);
    }
  }

  /** The headers that identify the caller. */
  async callerHeaders(): Promise<Record<string, string>> {
    const headers: Record<string, string> = {};
    const token = await this.#token();
    if (token) headers["authorization"] = `Bearer ${token}`;
    if (this.#tenant !== undefined) headers["laneway-tenant"] = this.#tenant;
    return headers;
  }

  #prepare<Id extends keyof Operations>(id: Id, call: CallArguments<Id>): Prepared {
    const [method, template] = OPERATIONS[id];
    const path = template.replace(/\{(\w+)\}/g, (_, name: string) => {
      const value: unknown = (call.path as Record<string, unknown> | undefined)?.[name];
      if (typeof value !== "string" || value === "") {
        throw new LanewayError(`${id} needs ${name}: a text that is not empty, not ${JSON.stringify(value)}`);
      }
      return encodeSegment(value);
    });
    const body = call.body === undefined ? undefined : JSON.stringify(call.body);
    return {
      method,
      url: `${this.url}${path}${queryText(call.query)}`,
      headers: { ...(body === undefined ? {} : { "content-type": "application/json" }), ...call.headers },
      body,
      repeatable: call.repeatable ?? method !== "POST",
      timeoutMs: call.timeoutMs ?? this.#timeoutMs,
      signal: call.signal,
    };
  }

  async #send<Answer>(call: Prepared, read: (response: Response) => Promise<Answer>): Promise<Answer> {
    const { controller, release } = follow(call.signal);
    const tooLate = new TimeoutError(`${call.method} ${call.url} got no answer within ${call.timeoutMs} ms`);
    const timer = setTimeout(() => controller.abort(tooLate), call.timeoutMs);
    try {
      const headers = { accept: "application/json", ...(await this.callerHeaders()), ...call.headers };
      const init: RequestInit = { method: call.method, headers, signal: controller.signal };
      if (call.body !== undefined) init.body = call.body;
      const response = await this.#fetch(call.url, init);
      if (response.status < 400) return await read(response);
      throw apiErrorOf(response.status, await jsonOf(response), response.headers);
    } catch (error) {
      if (error instanceof LanewayError) throw error;
      call.signal?.throwIfAborted();
      const code = networkCode(error);
      const outcome = NOT_SENT.has(code) ? "not_sent" : "unknown";
      throw new ConnectionError(`${call.method} ${call.url} failed: ${code}`, outcome, error);
    } finally {
      clearTimeout(timer);
      release();
    }
  }

  /** How long to wait before the next try, or `undefined` if there is none. */
  #waitBeforeRetry(error: unknown, repeatable: boolean, failures: number): number | undefined {
    if (failures >= this.retries || !mayRepeat(error, repeatable)) return undefined;
    const ownMs = backoffMs({ baseMs: 100, maxMs: this.#waitMaxMs, jitterPct: 50 }, failures, Math.random());
    const givenMs = error instanceof ApiError ? (error.retryAfterMs ?? 0) : 0;
    return givenMs > this.#waitMaxMs ? undefined : Math.max(ownMs, givenMs);
  }
}

/** Whether the same call may be sent again after this error. */
function mayRepeat(error: unknown, repeatable: boolean): boolean {
  if (error instanceof ConnectionError) return repeatable || error.outcome === "not_sent";
  if (error instanceof TimeoutError) return repeatable;
  if (error instanceof ApiError) return TRANSIENT.has(error.code) || (error.code === "unavailable" && repeatable);
  return false;
}

/** A name as a part of a path. */
function encodeSegment(name: string): string {
  // Parsers of URLs remove these segments, also when they are encoded: another route would be called.
  if (name === "." || name === "..") throw new LanewayError(`the name ${JSON.stringify(name)} cannot be part of a URL`);
  // A session may have the name of a route: the server decodes the letter.
  return name === "reset" ? "%72eset" : encodeURIComponent(name);
}

function queryText(query: object | undefined): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    for (const one of [value].flat()) if (one !== undefined && one !== null) parameters.append(name, String(one));
  }
  const text = parameters.toString();
  return text === "" ? "" : `?${text}`;
}

/** The body of a response in parts. It ends when `signal` is aborted, and breaks after `silenceMs` without data. */
export async function* partsOf(response: Response, silenceMs: number, signal?: AbortSignal): AsyncGenerator<Uint8Array, void> {
  if (response.body === null) return;
  const reader = (response.body as ReadableStream<Uint8Array>).getReader();
  let isSilent = false;
  const cancel = (): void => void reader.cancel().catch(() => {});
  signal?.addEventListener("abort", cancel, { once: true });
  let timer: NodeJS.Timeout | undefined;
  try {
    for (;;) {
      signal?.throwIfAborted();
      timer = setTimeout(() => {
        isSilent = true;
        cancel();
      }, silenceMs);
      const { done, value } = await reader.read();
      clearTimeout(timer);
      signal?.throwIfAborted();
      if (isSilent) throw new Error(`no data came for ${silenceMs} ms`);
      if (done) return;
      yield value;
    }
  } catch (error) {
    signal?.throwIfAborted();
    throw new ConnectionError(`the body of the answer broke: ${networkCode(error)}`, "unknown", error);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", cancel);
    cancel();
  }
}

async function jsonOf(response: Response): Promise<unknown> {
  try {
    return await response.json();
  } catch {
    return undefined;
  }
}

/** The code of a network error, which `fetch` wraps. */
export function networkCode(error: unknown): string {
  for (let at: unknown = error, depth = 0; at instanceof Error && depth < 5; at = at.cause, depth++) {
    if ("code" in at && typeof at.code === "string") return at.code;
    // Both addresses of a host name failed.
    if (at instanceof AggregateError && at.errors.length > 0) return networkCode(at.errors[0]);
  }
  return error instanceof Error ? error.message : String(error);
}

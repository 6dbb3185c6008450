/** A push worker: it connects to the server, receives tasks, and runs them with handlers. */

import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { hostname } from "node:os";

import { LanewayError } from "../errors.js";
import { tokenReader, type TokenSource } from "../token.js";
import type { Tally, Vitals } from "./action.js";
import { Driver, type Log } from "./driver.js";
import { openWebSocket, type WebSocketFactory } from "./link.js";
import type { WorkerState } from "./state.js";
import type { Handler } from "./supervise.js";
import type { Task } from "./task.js";
import { Probe } from "./vitals.js";

/** The path of the endpoint, and of the one for workers that send heartbeats every 30 s. */
const PATH = "/v1/workers/connect";
const COMPAT_PATH = "/ws/worker";
/** Most names in a registration. */
const NAMES_MAX = 256;

/** The options of a worker. */
export interface WorkerOptions {
  /** The worker's name: unique among workers, and the same after a restart. */
  name: string;
  /** The URL of the server. Defaults to `LANEWAY_URL`, then `http://127.0.0.1:7717`. */
  url?: string;
  /** The token, or a function that returns it; it is read at every connect. Defaults as in a client. */
  token?: TokenSource;
  /** The tenant whose jobs to run. Defaults to `default`. */
  tenant?: string;
  /** Most tasks that run at once. Defaults to 1. */
  maxParallel?: number;
  /** The lanes whose jobs the worker gets. Defaults to all. */
  lanes?: readonly string[];
  /** Labels that jobs can require. */
  labels?: Readonly<Record<string, string>>;
  /** Further features that jobs can require. */
  features?: readonly string[];
  /** The version to register. Defaults to the version of this package. */
  version?: string;
  /** How long a handler has to end after its signal was aborted. Defaults to 10,000 ms. */
  stopGraceMs?: number;
  /** How long running tasks may take when the worker drains. Defaults to 30,000 ms. */
  drainLimitMs?: number;
  /** The time between two heartbeats. Defaults to 5,000 ms. */
  heartbeatMs?: number;
  /** The use of memory and disk, in percent, from which on the worker requests no more tasks. Defaults to 90 and 95. */
  thresholds?: { memPct?: number; diskPct?: number };
  /** Returns the load to report, such as that of a container. Defaults to the load of the machine and of its root disk. */
  vitals?: () => Vitals;
  /** Opens WebSockets, for proxies and client certificates. Defaults to the platform's WebSocket, then the package `ws`. */
  webSocket?: WebSocketFactory;
  /** True when `webSocket` shows a client certificate and no token is sent. Defaults to false. */
  clientCertificate?: boolean;
  /** Takes log lines. Defaults to warnings and errors as JSON on standard error. */
  log?: Log;
  /** Is called each time the server has registered the worker. */
  onRegistered?: () => void;
  /** Is called when the state of the session changes. */
  onState?: (state: WorkerState) => void;
}

/** Options of a handler. */
export interface HandlerOptions {
  /** Most tasks of the kind that run at once. Defaults to the worker's `maxParallel`. */
  concurrency?: number;
}

/** Options of a run. */
export interface RunOptions {
  /** Drain on SIGTERM and SIGINT; a second signal stops the running tasks. Defaults to true. */
  signals?: boolean;
  /** Drains the worker when it is aborted. */
  signal?: AbortSignal;
}

/** A worker. Add handlers, then call `run`. */
export class Worker {
  readonly #options: WorkerOptions;
  readonly #handlers = new Map<string, Handler>();
  readonly #limits = new Map<string, number>();
  #driver: Driver | undefined;

  constructor(options: WorkerOptions) {
    mustBeName("name", options.name);
    mustBePositive("maxParallel", options.maxParallel ?? 1);
    mustBePositive("heartbeatMs", options.heartbeatMs ?? 1);
    this.#options = options;
  }

  /** Runs tasks of this kind. The value of the handler is the result; an error fails the attempt, see `Failure`. */
  handle<Payload = Record<string, unknown>>(kind: string, handler: (task: Task<Payload>) => unknown, options: HandlerOptions = {}): this {
    mustBeName("kind", kind);
    if (this.#driver !== undefined) throw new LanewayError("add handlers before run: kinds are registered with the connection");
    if (this.#handlers.has(kind)) throw new LanewayError(`the kind ${JSON.stringify(kind)} has a handler already`);
    if (options.concurrency !== undefined) {
      mustBePositive("concurrency", options.concurrency);
      this.#limits.set(kind, options.concurrency);
    }
    this.#handlers.set(kind, handler as Handler);
    return this;
  }

  /** The state of the session. */
  get state(): WorkerState {
    return this.#driver?.protocol.state ?? "NEW";
  }

  /** Counters since the start. */
  get counts(): Readonly<Tally> & { inflight: number; resultsWaiting: number } {
    const protocol = this.#driver?.protocol;
    const none: Tally = { heartbeats: 0, resent: 0, duplicates: 0, rejected: 0, stale: 0, feedbackDropped: 0 };
    return { ...(protocol?.tally ?? none), inflight: protocol?.inflight ?? 0, resultsWaiting: protocol?.outcomesWaiting ?? 0 };
  }

  /**
   * Connects, runs tasks, and reconnects until the worker is drained. Rejects with `WorkerSupersededError` when another
   * process connected with the same name.
   */
  async run(options: RunOptions = {}): Promise<void> {
    if (this.#driver !== undefined) throw new LanewayError("a worker runs once; create another one");
    if (this.#handlers.size === 0) throw new LanewayError("there is no handler; add one with handle(kind, handler)");
    const driver = this.#build();
    this.#driver = driver;
    let asked = 0;
    const drain = (): void => driver.drain(asked++ === 0 ? undefined : 0);
    const signals = options.signals === false ? [] : (["SIGTERM", "SIGINT"] as const);
    for (const signal of signals) process.on(signal, drain);
    options.signal?.addEventListener("abort", drain, { once: true });
    if (options.signal?.aborted) drain();
    try {
      await driver.run();
    } finally {
      for (const signal of signals) process.off(signal, drain);
      options.signal?.removeEventListener("abort", drain);
    }
  }

  /** Takes no more tasks, finishes the running ones within `limitMs`, delivers their results, and ends `run`. */
  drain(limitMs?: number): void {
    this.#driver?.drain(limitMs);
  }

  #build(): Driver {
    const options = this.#options;
    const url = socketUrl(options.url ?? process.env["LANEWAY_URL"] ?? "http://127.0.0.1:7717");
    const isCompat = new URL(url).pathname.endsWith(COMPAT_PATH);
    const maxParallel = options.maxParallel ?? 1;
    const probe = new Probe("/");
    const heartbeatMs = options.heartbeatMs ?? (isCompat ? 30_000 : 5_000);
    return new Driver({
      url,
      token: tokenReader(options.token),
      showsCertificate: options.clientCertificate ?? false,
      profile: {
        tenant: options.tenant ?? "default",
        worker: { id: options.name, version: options.version ?? packageVersion(), hostname: hostname() || "localhost" },
        timing: {
          heartbeatMs,
          heartbeatJitterMs: heartbeatMs / (isCompat ? 6 : 10),
          stopGraceMs: options.stopGraceMs ?? 10_000,
          drainLimitMs: options.drainLimitMs ?? 30_000,
        },
        capacity: { maxParallel, perKind: this.#limits },
        thresholds: { memPct: options.thresholds?.memPct ?? 90, diskPct: options.thresholds?.diskPct ?? 95 },
        instance: randomBytes(4).toString("hex"),
        bootId: randomBytes(16).toString("hex"),
      },
      register: {
        capabilities: {
          concurrency: { max_parallel: maxParallel, per_node_limits: Object.fromEntries(this.#limits) },
          runtimes: ["node"],
          features: this.#features(),
        },
        packages: [],
        channels: [...(options.lanes ?? [])],
        manifests: [],
      },
      handlers: this.#handlers,
      vitals: options.vitals ?? (() => probe.read()),
      webSocket: options.webSocket ?? openWebSocket,
      log: guarded(options.log ?? logWarnings),
      onRegistered: guarded(options.onRegistered ?? (() => {})),
      onState: guarded(options.onState ?? (() => {})),
    });
  }

  #features(): string[] {
    const labels = Object.entries(this.#options.labels ?? {}).map(([key, value]) => `label:${key}=${value}`);
    const kinds = [...this.#handlers.keys()].map((kind) => `kind:${kind}`);
    const features = [...(this.#options.features ?? []), ...labels, ...kinds];
    if (features.length > NAMES_MAX) throw new LanewayError(`a worker has at most ${NAMES_MAX} kinds, labels and features together`);
    return features;
  }
}

/** The URL of the WebSocket for the URL of a server. */
export function socketUrl(url: string): string {
  const match = /^(http|ws)(s?):\/\/([^/?#]+)(\/[^?#]*)?$/.exec(url);
  if (match === null) throw new LanewayError(`the URL ${JSON.stringify(url)} is invalid: write http://host:port or https://host:port`);
  const [, , secure, host, path] = match;
  return `ws${secure}://${host}${path === undefined || path === "/" ? PATH : path}`;
}

function mustBeName(field: string, value: string): void {
  if (typeof value !== "string" || value === "" || value.length > 1_024) {
    throw new LanewayError(`${field} must be a text of 1 to 1,024 characters, not ${JSON.stringify(value)}`);
  }
}

function mustBePositive(field: string, value: number): void {
  if (!Number.isInteger(value) || value < 1) throw new LanewayError(`${field} must be a whole number of at least 1, not ${value}`);
}

/** The function without its errors: an error of a callback must not end the worker. */
function guarded<Arguments extends unknown[]>(callback: (...args: Arguments) => void): (...args: Arguments) => void {
  return (...args) => {
    try {
      callback(...args);
    } catch (error) {
      console.error(JSON.stringify({ level: "error", message: "a callback of the worker failed", reason: String(error) }));
    }
  };
}

function logWarnings(...[level, message, fields]: Parameters<Log>): void {
  if (level === "warn" || level === "error") console.error(JSON.stringify({ level, message, ...fields }));
}

function packageVersion(): string {
  const manifest: unknown = JSON.parse(readFileSync(new URL("../../../package.json", import.meta.url), "utf8"));
  return typeof manifest === "object" && manifest !== null && "version" in manifest ? String(manifest.version) : "0";
}

/** Executes the actions of the protocol: connections, handlers, resources, clocks. */

import type { HandshakePayload, MiddlewareNextResponsePayload, RegisterPayload, ResourceReadPayload } from "../generated/frames.js";
import { LanewayError } from "../errors.js";
import type { Action, Now, Profile, Vitals } from "./action.js";
import { parseFrame, type Message, type Rejection } from "./frame.js";
import { Link, type WebSocketFactory, type WebSocketLike } from "./link.js";
import { keyText, type TaskKey } from "./outbox.js";
import type { Ended } from "./outcome.js";
import { Protocol } from "./protocol.js";
import { Resources } from "./resources.js";
import type { WorkerState } from "./state.js";
import { Supervised, type Handler } from "./supervise.js";
import { NextError, Task, TaskStoppedError, type TaskPort } from "./task.js";
import type { Order } from "./tasks.js";

/** Most parts of resources that are read at a time. The server requests the parts of one resource one after the other. */
const READS_MAX = 16;
/** Most `next` requests that wait for an answer. */
const NEXTS_MAX = 1_024;
/** How often expired resources are removed. */
const COLLECT_EVERY_MS = 60_000;
/** The longest sleep of the loop, below the limit of the platform's timers. */
const SLEEP_MAX_MS = 60_000;
/** From how many waiting bytes on, handlers wait before they write more, and feedback is dropped. */
const WRITABLE_MAX = 1 << 20;
const FEEDBACK_BUFFERED_MAX = 4 << 20;
/** How often a handler looks whether it may write again. */
const WRITABLE_LOOK_MS = 10;

/** The level of a log line. */
export type LogLevel = "debug" | "info" | "warn" | "error";

/** Takes log lines. Tokens, parameters and results are never logged. */
export type Log = (level: LogLevel, message: string, fields: Record<string, unknown>) => void;

/** Another process connected with the worker's name. Give each worker a name of its own. */
export class WorkerSupersededError extends LanewayError {
  override name = "WorkerSupersededError";
  readonly code = "E.SESSION.STALE_BINDING";
}

/** What a driver needs. */
export interface DriverOptions {
  readonly url: string;
  readonly token: () => Promise<string | undefined>;
  readonly showsCertificate: boolean;
  readonly profile: Profile;
  readonly register: RegisterPayload;
  readonly handlers: ReadonlyMap<string, Handler>;
  readonly vitals: () => Vitals;
  readonly webSocket: WebSocketFactory;
  readonly log: Log;
  readonly onRegistered: () => void;
  readonly onState: (state: WorkerState) => void;
}

interface Run {
  readonly controller: AbortController;
  readonly order: Order;
  handler: Supervised | undefined;
}

/** The loop of one worker. */
export class Driver {
  readonly protocol: Protocol;
  readonly #options: DriverOptions;
  readonly #resources: Resources;
  readonly #runs = new Map<string, Run>();
  /** Handlers that go on although their attempts have ended: they ignored their signals. */
  readonly #abandoned = new Set<Run>();
  readonly #nexts = new Map<string, { run: Run; answer: (response: MiddlewareNextResponsePayload) => void }>();
  readonly #done: Promise<void>;
  #finish: (error?: Error) => void = () => {};
  #link: Link | undefined;
  #token: string | undefined;
  #timer: NodeJS.Timeout | undefined;
  #collectAtMs = performance.now() + COLLECT_EVERY_MS;
  #shownState: WorkerState = "NEW";
  #reads = 0;
  #isPumping = false;
  #hasEnded = false;

  constructor(options: DriverOptions) {
    this.#options = options;
    this.#resources = new Resources(options.profile.worker.id);
    const environment = { unfit: (order: Order, now: Now) => this.#unfit(order, now), vitals: () => this.#vitals() };
    this.protocol = new Protocol(options.profile, environment);
    this.#done = new Promise((resolve, reject) => {
      this.#finish = (error) => (error === undefined ? resolve() : reject(error));
    });
  }

  /** Connects, runs tasks, and reconnects until the worker has drained. */
  async run(): Promise<void> {
    this.#pump();
    try {
      await this.#done;
    } finally {
      this.#hasEnded = true;
      clearTimeout(this.#timer);
      for (const { controller } of this.#runs.values()) controller.abort(new TaskStoppedError("drain"));
      await this.#link?.finish();
      await this.#resources.close();
    }
  }

  /** Takes no more tasks; running ones have `limitMs`. */
  drain(limitMs: number | undefined): void {
    this.protocol.drain(this.#now(), limitMs);
    this.#pump();
  }

  #now(): Now {
    return { monoMs: performance.now(), wall: new Date() };
  }

  /** Handles what is due, executes all actions, and sleeps until something is due. */
  #pump(): void {
    // An action may cause an input, such as a report of a handler: the loop below sees what it adds.
    if (this.#isPumping || this.#hasEnded) return;
    this.#isPumping = true;
    try {
      this.protocol.handleTick(this.#now());
      for (let actions = this.protocol.takeActions(); actions.length > 0 && !this.#hasEnded; actions = this.protocol.takeActions()) {
        for (const action of actions) this.#execute(action);
      }
      this.#collectIfDue();
      this.#dialIfDue();
    } finally {
      this.#isPumping = false;
    }
    this.#showState();
    this.#sleep();
  }

  #sleep(): void {
    clearTimeout(this.#timer);
    if (this.#hasEnded) return;
    const redialMs = this.#link === undefined ? this.protocol.retryAtMs : Number.POSITIVE_INFINITY;
    const wakeMs = Math.min(redialMs, this.#collectAtMs, this.protocol.nextWakeupMs() ?? Number.POSITIVE_INFINITY);
    // Timers may fire up to a millisecond early.
    const waitMs = Math.min(Math.max(0, Math.ceil(wakeMs - performance.now())), SLEEP_MAX_MS);
    this.#timer = setTimeout(() => this.#pump(), waitMs);
  }

  #showState(): void {
    const { state } = this.protocol;
    if (state === this.#shownState) return;
    this.#shownState = state;
    this.#options.onState(state);
  }

  #collectIfDue(): void {
    const nowMs = performance.now();
    if (nowMs < this.#collectAtMs) return;
    this.#collectAtMs = nowMs + COLLECT_EVERY_MS;
    this.#resources.collect(Date.now());
  }

  #dialIfDue(): void {
    if (this.#link !== undefined || this.#hasEnded || performance.now() < this.protocol.retryAtMs) return;
    this.protocol.dial();
    const { url, log } = this.#options;
    const link: Link = new Link(this.#open(), {
      opened: () => {
        log("info", "connected", { url });
        this.protocol.connected(this.#now(), this.#auth(), this.#options.register);
        this.#pump();
      },
      text: (text) => this.#receive(text),
      closed: (reason) => {
        log("warn", "the connection ended; connecting again", { url, reason });
        this.#link = undefined;
        this.protocol.disconnected(this.#now());
        this.#pump();
      },
    });
    this.#link = link;
  }

  async #open(): Promise<WebSocketLike> {
    // It is read at every connect: the token may have changed.
    this.#token = await this.#options.token();
    return this.#options.webSocket(this.#options.url, this.#token ? { authorization: `Bearer ${this.#token}` } : {});
  }

  #auth(): HandshakePayload["auth"] {
    if (this.#token) return { mode: "token", token: this.#token };
    return { mode: this.#options.showsCertificate ? "mtls" : "token" };
  }

  #receive(text: string): void {
    const parsed = parseFrame(text);
    if ("bad" in parsed) {
      const { code, message, id } = parsed.bad;
      this.#options.log("warn", "a frame cannot be read", { code, reason: message, id });
      this.protocol.handleBadFrame(this.#now(), parsed.bad);
    } else {
      const { type, id, corr, seq } = parsed.frame;
      this.#options.log("debug", "received", { type, id, corr, seq });
      this.protocol.handleFrame(this.#now(), parsed.frame);
    }
    this.#pump();
  }

  #execute(action: Action): void {
    const { log } = this.#options;
    switch (action.do) {
      case "send":
        this.#send(action.frame);
        break;
      case "start":
        this.#start(action.order);
        break;
      case "stop":
        log("info", "a task is asked to stop", { corr: action.key.taskId, seq: action.key.seq, why: action.why });
        this.#runs.get(keyText(action.key))?.controller.abort(new TaskStoppedError(action.why));
        break;
      case "abandon":
        this.#end(action.key, { as: "stopped" });
        break;
      case "install":
      case "uninstall":
        this.#rejectPackage(action.do, action.asked, action.request.name, action.request.version ?? "*");
        break;
      case "read":
        void this.#read(action.asked, action.request);
        break;
      case "next":
        this.#nexts.get(action.response.requestId)?.answer(action.response);
        this.#nexts.delete(action.response.requestId);
        break;
      case "registered":
        log("info", "registered; tasks may come", {});
        this.#options.onRegistered();
        break;
      case "denied":
        log("error", "the server rejected a frame or the connection", { code: action.code, reason: action.message });
        break;
      case "close":
        this.#close(action.why);
        break;
    }
  }

  #send(frame: Parameters<Link["send"]>[0]): void {
    if (frame.type === "feedback" && (this.#link?.bufferedAmount ?? 0) > FEEDBACK_BUFFERED_MAX) {
      this.protocol.tally.feedbackDropped += 1;
      return;
    }
    this.#options.log("debug", "sent", { type: frame.type, id: frame.id, corr: frame.corr, seq: frame.seq });
    this.#link?.send(frame);
  }

  #close(why: "retry" | "done" | "superseded"): void {
    if (why === "retry") {
      this.#link?.drop();
      this.#link = undefined;
      this.protocol.disconnected(this.#now());
      return;
    }
    this.#hasEnded = true;
    this.#finish(why === "superseded" ? new WorkerSupersededError("another process connected with the worker's name; give each worker a name of its own") : undefined);
  }

  #start(order: Order): void {
    const { key, dispatch } = order;
    const run: Run = { controller: new AbortController(), order, handler: undefined };
    this.#options.log("info", "task started", { corr: key.taskId, seq: key.seq, kind: dispatch.node_type });
    this.#runs.set(keyText(key), run);
    this.#resources.hold(dispatch, key);
    const handler = this.#options.handlers.get(dispatch.node_type) ?? (() => Promise.reject(new Error("there is no handler")));
    const task = new Task(key, dispatch, run.controller.signal, this.#portOf(run));
    const { stopGraceMs } = this.#options.profile.timing;
    run.handler = new Supervised(handler, task, run.controller, dispatch.constraints.timeout_ms, stopGraceMs);
    void run.handler.settled.then(() => this.#abandoned.delete(run));
    void run.handler.ended.then((end) => {
      if (this.#runs.get(keyText(key)) === run) this.#end(key, end);
      this.#pump();
    });
  }

  /** An attempt has ended, or is given up. */
  #end(key: TaskKey, ended: Ended): void {
    const run = this.#runs.get(keyText(key));
    if (run === undefined) return;
    this.#runs.delete(keyText(key));
    if (run.handler?.isSettled !== true) {
      // A handler that is given up must learn of it.
      this.#abandoned.add(run);
      run.controller.abort(new TaskStoppedError("lease"));
    }
    for (const [id, { run: caller }] of this.#nexts) if (caller === run) this.#nexts.delete(id);
    const outcome = this.protocol.ended(this.#now(), key, ended);
    this.#resources.release(key, outcome?.givesResult ?? false);
    this.#options.log("info", "task ended", { corr: key.taskId, seq: key.seq, kind: run.order.dispatch.node_type, code: outcome?.code });
  }

  #portOf(run: Run): TaskPort {
    const { key } = run.order;
    const isOpen = (): boolean => this.#runs.get(keyText(key)) === run;
    return {
      send: (message: Message) => {
        // Messages of an attempt that has ended are ignored.
        if (!isOpen()) return;
        this.protocol.sendForTask(this.#now(), key, message);
        this.#pump();
      },
      writable: async () => {
        while (isOpen() && (this.#link?.bufferedAmount ?? 0) > WRITABLE_MAX) await new Promise((wake) => setTimeout(wake, WRITABLE_LOOK_MS));
      },
      keep: async (input) => {
        const artifact = await this.#resources.keep(key, input);
        if (!isOpen()) this.#resources.release(key, false);
        return artifact;
      },
      resource: (id) => this.#resources.body(id),
      next: (requestId) => {
        if (this.#nexts.size >= NEXTS_MAX) return Promise.reject(new NextError(`${NEXTS_MAX} calls wait for an answer already`));
        return new Promise((answer) => this.#nexts.set(requestId, { run, answer }));
      },
    };
  }

  async #read(asked: string, request: ResourceReadPayload): Promise<void> {
    if (this.#reads >= READS_MAX) {
      const message = `${READS_MAX} parts of resources are being read already; try again later`;
      this.protocol.partRead(this.#now(), asked, { rejection: { code: "E.CMD.CONCURRENCY_VIOLATION", where: "worker.resources", message } });
      return;
    }
    this.#reads += 1;
    const answer = await this.#resources.read(request);
    this.#reads -= 1;
    this.protocol.partRead(this.#now(), asked, answer);
    this.#pump();
  }

  /** Workers of this package have no folder for packages. */
  #rejectPackage(operation: "install" | "uninstall", asked: string, name: string, version: string): void {
    const details = { operation, code: "E.PKG.PERMISSION", message: "this worker has no folder for packages" };
    this.protocol.report(this.#now(), asked, { type: "pkg.event", payload: { name, version, status: "failed", details } });
  }

  #unfit({ key, dispatch }: Order, now: Now): Rejection | undefined {
    if (!this.#options.handlers.has(dispatch.node_type)) {
      const message = `there is no handler for the kind ${JSON.stringify(dispatch.node_type)}`;
      return { code: "E.CMD.UNKNOWN", where: "worker.handlers", message };
    }
    const blocks = (run: Run): boolean =>
      run.order.key.taskId === key.taskId ||
      (dispatch.concurrency_key !== undefined && run.order.dispatch.concurrency_key === dispatch.concurrency_key);
    if ([...this.#abandoned].some(blocks) || this.#abandoned.size >= this.#options.profile.capacity.maxParallel) {
      const message = "handlers of ended attempts still run: they do not observe their signals";
      return { code: "E.CMD.CONCURRENCY_VIOLATION", where: "worker.concurrency", message };
    }
    return this.#resources.missing(dispatch, now.wall.getTime());
  }

  #vitals(): Vitals {
    const { handles, bytes } = this.#resources.usage();
    return { ...this.#options.vitals(), resource_handles: handles, resource_bytes: bytes };
  }
}

/**
 * The worker's side of the protocol as a state machine without sockets and clocks: frames, ends of attempts and time go in,
 * actions come out. `driver.ts` executes the actions. Nothing here waits, so every dialogue can be tested step by step.
 */

import type { HandshakePayload, RegisterPayload, ResourceDataPayload } from "../generated/frames.js";
import { backoffMs, type Backoff } from "../waiting.js";
import type { Action, CloseReason, Environment, Now, Profile, Tally } from "./action.js";
import { errorPayload, infoNumber, type BadFrame, type Frame, type Message, type ReceivedFrame, type Rejection } from "./frame.js";
import { Outbox, type Keep, type TaskKey } from "./outbox.js";
import { outcomeMessage, type Ended, type EndedTask } from "./outcome.js";
import { Pulse } from "./pulse.js";
import { isConnected, isUp, NEXT, type WorkerState } from "./state.js";
import { Tasks, type Order, type StopReason } from "./tasks.js";

/** The version of the protocol. */
export const PROTOCOL_VERSION = 1;
/** How long handshake and registration may take together. */
export const HANDSHAKE_LIMIT_MS = 15_000;
/** Most feedback frames that wait for a connection. Beyond it, the oldest are dropped. */
export const FEEDBACK_WAITING_MAX = 1_024;
/** How many invalid frames in a row end a connection. */
export const BAD_FRAMES_MAX = 32;
/** Most tasks that a registration lists. */
const TASKS_MAX = 16_384;
/** How long a draining worker waits for acknowledgements after its last attempt was stopped. */
const FLUSH_LIMIT_MS = 10_000;
/** The wait before the next connection. Half of it is random, so that many workers do not come back at once. */
const CONNECTION_BACKOFF: Backoff = { baseMs: 500, maxMs: 30_000, jitterPct: 50 };

/** The state machine. */
export class Protocol {
  readonly tally: Tally = { heartbeats: 0, resent: 0, duplicates: 0, rejected: 0, stale: 0, feedbackDropped: 0 };
  readonly #profile: Profile;
  readonly #environment: Environment;
  readonly #random: () => number;
  readonly #tasks: Tasks;
  readonly #outbox = new Outbox();
  readonly #pulse: Pulse;
  #state: WorkerState = "NEW";
  #feedback: Frame[] = [];
  #nextId = 0;
  /** The id of the handshake, and the registration that follows it. */
  #handshake: { id: string; register: RegisterPayload } | undefined;
  #registration: { id: string; sentMs: number } | undefined;
  #handshakeLimitMs: number | undefined;
  #drainUntilMs: number | undefined;
  #failures = 0;
  #retryAtMs = 0;
  #badFrames = 0;
  #isClosed = false;
  #out: Action[] = [];

  constructor(profile: Profile, environment: Environment, random: () => number = Math.random) {
    this.#profile = profile;
    this.#environment = environment;
    this.#random = random;
    this.#tasks = new Tasks(profile.capacity);
    this.#pulse = new Pulse(profile.timing);
  }

  /** The state of the session. */
  get state(): WorkerState {
    return this.#state;
  }

  /** How many tasks run or wait for an older attempt to end. */
  get inflight(): number {
    return this.#tasks.size;
  }

  /** How many outcomes wait for an acknowledgement. */
  get outcomesWaiting(): number {
    return this.#outbox.outcomes;
  }

  /** When the next connection may be tried. */
  get retryAtMs(): number {
    return this.#retryAtMs;
  }

  /** The actions since the last call, in order. */
  takeActions(): Action[] {
    const actions = this.#out;
    this.#out = [];
    return actions;
  }

  /** A connection is being opened. */
  dial(): void {
    if (this.#state === "BACKOFF") this.#go("NEW");
  }

  /** A connection is open: sends the handshake. `register` follows when the handshake is acknowledged. */
  connected(now: Now, auth: HandshakePayload["auth"], register: RegisterPayload): void {
    this.#go("HANDSHAKING");
    this.#badFrames = 0;
    this.#handshakeLimitMs = now.monoMs + HANDSHAKE_LIMIT_MS;
    const payload: HandshakePayload = { protocol: PROTOCOL_VERSION, auth, worker: this.#profile.worker };
    const frame = this.#frame(now, { type: "handshake", payload }, { ack: { request: true } });
    this.#handshake = { id: frame.id, register };
    this.#sendKept(now, frame, { as: "greeting" });
  }

  /** The connection was closed, or could not be opened. */
  disconnected(now: Now): void {
    if (this.#state === "CLOSED" || this.#state === "BACKOFF") return;
    this.#outbox.forgetSession();
    this.#tasks.forgetSession();
    this.#pulse.forgetSession();
    this.#handshake = undefined;
    this.#registration = undefined;
    this.#handshakeLimitMs = undefined;
    // A connection that never opened counts as a failed handshake.
    if (this.#state === "NEW") this.#go("HANDSHAKING");
    this.#go("BACKOFF");
    this.#retryAtMs = now.monoMs + backoffMs(CONNECTION_BACKOFF, this.#failures, this.#random());
    this.#failures += 1;
  }

  /** Drains the worker: it takes no more tasks, and running ones have `limitMs` or the limit of the profile. */
  drain(now: Now, limitMs: number | undefined): void {
    const untilMs = now.monoMs + (limitMs ?? this.#profile.timing.drainLimitMs);
    this.#drainUntilMs = Math.min(this.#drainUntilMs ?? untilMs, untilMs);
    if (this.#state === "HEARTBEATING") {
      this.#go("DRAINING");
      this.#pulse.beatNow(now.monoMs);
    }
    this.#closeIfDrained();
  }

  /** An attempt has ended: its outcome is sent, and kept until it is acknowledged. Returns whether its result counts. */
  ended(now: Now, key: TaskKey, ended: Ended): { givesResult: boolean; code: string | undefined } | undefined {
    const found = this.#tasks.end(now.monoMs, key);
    if (found === undefined) return undefined;
    const { open, next } = found;
    const { run_id: runId, node_id: nodeId } = open.dispatch;
    const message = outcomeMessage({ key, runId, nodeId, tookMs: now.monoMs - open.startedMs, why: open.stopping }, ended);
    if (message !== undefined) this.#sendOutcome(now, key, runId, message);
    if (next !== undefined) this.#out.push({ do: "start", order: next });
    this.#closeIfDrained();
    const code = message?.type === "error" ? message.payload.code : message?.type === "result" ? message.payload.error?.code : undefined;
    return { givesResult: message !== undefined && code === undefined, code };
  }

  /** Sends a message of a running task, or keeps it for the next connection. */
  sendForTask(now: Now, key: TaskKey, message: Message): void {
    const about = { corr: key.taskId, seq: key.seq };
    if (message.type === "middleware.next_request") {
      this.#tasks.call(key, message.payload.requestId);
      this.#sendReport(now, this.#frame(now, message, { ...about, ack: { request: true } }));
      return;
    }
    const frame = this.#frame(now, message, about);
    if (isUp(this.#state)) {
      this.#send(frame);
      return;
    }
    if (this.#feedback.length >= FEEDBACK_WAITING_MAX) {
      this.#feedback.shift();
      this.tally.feedbackDropped += 1;
    }
    this.#feedback.push(frame);
  }

  /** Sends a message about this worker and keeps it until it is acknowledged. */
  report(now: Now, corr: string, message: Message): void {
    this.#sendReport(now, this.#frame(now, message, { corr, ack: { request: true } }));
  }

  /** A part of a resource was read, or could not be. It is not kept: the reader repeats its request. */
  partRead(now: Now, asked: string, answer: ResourceDataPayload | { rejection: Rejection }): void {
    if (!isUp(this.#state)) return;
    if ("rejection" in answer) this.#sendError(now, asked, answer.rejection);
    else this.#send(this.#frame(now, { type: "resource.data", payload: answer }, { corr: asked }));
  }

  /** A frame could not be parsed. It gets an error; only many such frames in a row end the connection. */
  handleBadFrame(now: Now, bad: BadFrame): void {
    this.#badFrames += 1;
    // An error about an invalid error would cause an endless exchange.
    if (bad.type !== "ack" && bad.type !== "error") {
      this.#sendError(now, bad.id, bad, bad.field === undefined ? {} : { field: bad.field });
    }
    if (this.#badFrames >= BAD_FRAMES_MAX) this.#close("retry");
  }

  /** Handles a frame of the server. */
  handleFrame(now: Now, frame: ReceivedFrame): void {
    this.#badFrames = 0;
    const foreign = this.#foreign(frame);
    if (foreign !== undefined) {
      this.#sendError(now, frame.id, foreign, { tenant: frame.tenant, sender: frame.sender.id });
      return;
    }
    const isAnswered = frame.type !== "ack" && frame.type !== "cmd.dispatch" && frame.type !== "resource.read";
    if (isAnswered && frame.ack?.request === true) this.#ack(now, frame);
    switch (frame.type) {
      case "ack":
        this.#acknowledged(now, frame.ack?.for ?? frame.payload.for, frame.payload);
        break;
      case "error":
        this.#errorReceived(now, frame);
        break;
      case "cmd.dispatch":
        this.#dispatched(now, frame);
        break;
      case "cmd.cancel":
        this.#canceled(now, frame.payload.task_id, frame.seq ?? undefined);
        break;
      case "cmd.drain":
        this.drain(now, frame.payload.limit_ms);
        break;
      case "pkg.install":
        if (this.#tasks.isNewFrame(frame.id, frame.corr)) this.#out.push({ do: "install", asked: frame.id, request: frame.payload });
        break;
      case "pkg.uninstall":
        if (this.#tasks.isNewFrame(frame.id, frame.corr)) this.#out.push({ do: "uninstall", asked: frame.id, request: frame.payload });
        break;
      case "resource.read":
        this.#mustBeRegistered(now);
        this.#out.push({ do: "read", asked: frame.id, request: frame.payload });
        break;
      case "middleware.next_response":
        this.#tasks.answered(frame.payload.requestId);
        this.#out.push({ do: "next", response: frame.payload });
        break;
    }
  }

  /** When `handleTick` has something to do next. */
  nextWakeupMs(): number | undefined {
    const open = this.#tasks.open();
    const hasUnstopped = open.some(({ stopping }) => stopping === undefined);
    const isUpAndOpen = isUp(this.#state) && !this.#isClosed;
    const times = [
      isConnected(this.#state) ? this.#outbox.nextDueMs(isUp(this.#state)) : undefined,
      this.#pulse.nextBeatMs,
      this.#handshakeLimitMs,
      hasUnstopped ? this.#pulse.warningMs : undefined,
      open.length > 0 || isUpAndOpen ? this.#pulse.leaseUntilMs : undefined,
      hasUnstopped ? this.#drainUntilMs : undefined,
      this.#isClosed || this.#drainUntilMs === undefined ? undefined : this.#drainUntilMs + this.#flushAfterMs,
    ].filter((at): at is number => at !== undefined && Number.isFinite(at));
    return times.length === 0 ? undefined : Math.min(...times);
  }

  /** Handles everything that is due. */
  handleTick(now: Now): void {
    if (this.#handshakeLimitMs !== undefined && now.monoMs >= this.#handshakeLimitMs) {
      this.#handshakeLimitMs = undefined;
      this.#close("retry");
      return;
    }
    this.#checkLease(now);
    this.#checkDrain(now);
    if (this.#isClosed) return;
    if (isUp(this.#state) && now.monoMs >= this.#pulse.leaseUntilMs) {
      // No answer for the length of a lease: the connection is half open, or the server hangs.
      this.#close("retry");
      return;
    }
    const beatMs = this.#pulse.nextBeatMs;
    if (beatMs !== undefined && now.monoMs >= beatMs && isUp(this.#state)) this.#beat(now);
    if (isConnected(this.#state)) this.#resend(now);
  }

  #foreign(frame: ReceivedFrame): Rejection | undefined {
    const reject = (message: string): Rejection => ({ code: "E.SESSION.DENIED", where: "worker.session", message });
    if (frame.tenant !== this.#profile.tenant) return reject("the frame belongs to another tenant than the connection");
    if (frame.sender.role !== "scheduler") return reject("the sender of the frame is not a scheduler");
    return undefined;
  }

  /** A frame of this worker was acknowledged. */
  #acknowledged(now: Now, id: string, ack: { ok?: boolean; for: string; info?: string }): void {
    const isOk = ack.ok !== false;
    const leaseMs = infoNumber(ack, "lease_ms");
    if (leaseMs !== undefined && leaseMs > 0) this.#pulse.setLength(leaseMs);
    if (this.#pulse.acknowledged(now.monoMs, id)) return;
    const kept = this.#outbox.remove(id);
    if (this.#handshake?.id === id) this.#greeted(now, isOk);
    else if (this.#registration?.id === id) this.#registered(now, isOk);
    else if (kept !== undefined) {
      if (!isOk) this.tally.stale += 1;
      this.#closeIfDrained();
    }
  }

  /** The handshake is acknowledged: sends the registration. */
  #greeted(now: Now, isOk: boolean): void {
    const register = this.#handshake?.register;
    this.#handshake = undefined;
    if (register === undefined) return;
    if (!isOk) {
      this.#close("retry");
      return;
    }
    this.#go("REGISTERED");
    const frame = this.#frame(now, { type: "register", payload: this.#asProcess(register) }, { ack: { request: true } });
    this.#registration = { id: frame.id, sentMs: now.monoMs };
    this.#sendKept(now, frame, { as: "greeting" });
  }

  /** The registration of this process with its open tasks, and with those whose outcomes are not acknowledged. */
  #asProcess(register: RegisterPayload): RegisterPayload {
    const tasks = new Map<string, { task_id: string; seq: number }>();
    for (const { taskId, seq } of [...this.#tasks.keys(), ...this.#outbox.attempts()]) {
      if (tasks.size < TASKS_MAX) tasks.set(`${seq} ${taskId}`, { task_id: taskId, seq });
    }
    return { ...register, boot_id: this.#profile.bootId, tasks: [...tasks.values()] };
  }

  /** The registration is acknowledged: the session is up, and kept frames are sent. */
  #registered(now: Now, isOk: boolean): void {
    const registration = this.#registration;
    this.#registration = undefined;
    if (registration === undefined) return;
    this.#outbox.remove(registration.id);
    if (!isOk) {
      this.#close("retry");
      return;
    }
    this.#go("HEARTBEATING");
    this.#failures = 0;
    this.#handshakeLimitMs = undefined;
    this.#pulse.renew(registration.sentMs);
    this.#pulse.beatNow(now.monoMs);
    this.#outbox.rewind(now.monoMs, (keep) => keep.as !== "greeting");
    this.#out.push({ do: "registered" });
    for (const frame of this.#feedback.splice(0)) this.#send(frame);
    if (this.#drainUntilMs !== undefined) {
      this.#go("DRAINING");
      this.#closeIfDrained();
    }
  }

  /** The server sends tasks and reads only to registered workers: the acknowledgement was lost, or comes later. */
  #mustBeRegistered(now: Now): void {
    if (this.#state === "REGISTERED") this.#registered(now, true);
  }

  /** A task to run. */
  #dispatched(now: Now, frame: ReceivedFrame & { type: "cmd.dispatch" }): void {
    const dispatch = frame.payload;
    const details = { run_id: dispatch.run_id, task_id: dispatch.task_id, node_id: dispatch.node_id };
    this.#mustBeRegistered(now);
    if (!isUp(this.#state)) {
      const rejection: Rejection = { code: "E.SESSION.DENIED", where: "worker.session", message: "the session is not registered yet" };
      this.#sendError(now, frame.id, rejection, details);
      return;
    }
    const key: TaskKey = { taskId: dispatch.task_id, seq: frame.seq ?? 0 };
    const order: Order = { key, dispatch };
    const isNew = this.#tasks.isNewFrame(frame.id, frame.corr);
    const draining = this.#drainUntilMs !== undefined;
    const intake = isNew
      ? this.#tasks.take(now.monoMs, order, this.#outbox, draining, this.#environment.unfit(order, now))
      : ({ then: "again" } as const);
    if (intake.then === "again" || intake.then === "stale") this.tally.duplicates += 1;
    this.#ack(now, frame, intake.then === "stale" ? "E.SESSION.STALE_BINDING" : undefined);
    if (intake.then === "start") this.#out.push({ do: "start", order });
    else if (intake.then === "wait") this.#stop(intake.stop, "stale");
    // An outcome that waits is sent at once.
    else if (intake.then === "again") this.#outbox.rewind(now.monoMs, (keep) => keep.as === "outcome" && isSame(keep.key, key));
    else if (intake.then === "reject") this.#reject(now, order, intake.rejection, details);
  }

  #reject(now: Now, { key, dispatch }: Order, rejection: Rejection, details: Record<string, unknown>): void {
    this.tally.rejected += 1;
    const message: Message = { type: "error", payload: errorPayload(rejection, details) };
    if (this.#outbox.isFull(this.#tasks.size)) {
      // A server that sends more than can be rejected gets each rejection once.
      this.#send(this.#frame(now, message, { corr: key.taskId, seq: key.seq }));
      return;
    }
    this.#sendOutcome(now, key, dispatch.run_id, message);
  }

  #canceled(now: Now, taskId: string, seq: number | undefined): void {
    const waiting = this.#tasks.removeWaiting(taskId, seq);
    if (waiting !== undefined) {
      const { run_id: runId, node_id: nodeId } = waiting.dispatch;
      const task: EndedTask = { key: waiting.key, runId, nodeId, tookMs: undefined, why: "canceled" };
      const message = outcomeMessage(task, { as: "stopped" });
      if (message !== undefined) this.#sendOutcome(now, waiting.key, runId, message);
    }
    for (const key of this.#tasks.attempts(taskId, seq)) this.#stop(key, "canceled");
  }

  #stop(key: TaskKey, why: StopReason): void {
    if (this.#tasks.stop(key, why)) this.#out.push({ do: "stop", key, why });
  }

  /** The server sent an error. */
  #errorReceived(now: Now, frame: ReceivedFrame & { type: "error" }): void {
    const { code, message } = frame.payload;
    const corr = frame.corr ?? undefined;
    const seq = frame.seq ?? undefined;
    switch (code) {
      case "E.RESULT.SEQ_GAP":
        this.#resendRun(now, corr);
        break;
      case "E.RESULT.DUPLICATE":
        if (corr !== undefined) this.#forgetOutcome(corr, seq);
        break;
      case "E.SESSION.STALE_BINDING":
        this.#stale(corr, seq, message);
        break;
      case "E.AUTH.INVALID_TOKEN":
      case "E.AUTH.MTLS_REQUIRED":
        this.#out.push({ do: "denied", code, message });
        this.#close("retry");
        break;
      case "E.SESSION.DENIED":
      case "E.CMD.UNKNOWN":
        if (code === "E.SESSION.DENIED" && !isUp(this.#state)) {
          this.#out.push({ do: "denied", code, message });
          this.#close("retry");
        } else if (corr !== undefined && this.#outbox.remove(corr) !== undefined) {
          // A frame that the server cannot parse fails again.
          this.tally.stale += 1;
          this.#out.push({ do: "denied", code, message });
        }
        break;
    }
    this.#closeIfDrained();
  }

  /** The server misses a result: sends the unacknowledged results of the workflow run again. */
  #resendRun(now: Now, corr: string | undefined): void {
    const run = corr === undefined ? undefined : (this.#outbox.runOf(corr) ?? corr);
    this.#outbox.rewind(now.monoMs, (keep) => keep.as === "outcome" && (run === undefined || keep.runId === run));
  }

  /** The attempt no longer belongs to this worker; without an attempt, the whole session is stale. */
  #stale(corr: string | undefined, seq: number | undefined, message: string): void {
    if (corr === undefined) {
      this.#out.push({ do: "denied", code: "E.SESSION.STALE_BINDING", message });
      this.#close("superseded");
      return;
    }
    this.tally.stale += 1;
    const { taskId, of } = this.#forgetOutcome(corr, seq);
    this.#tasks.removeWaiting(taskId, of);
    for (const key of this.#tasks.attempts(taskId, of)) this.#stop(key, "stale");
  }

  /** Removes an outcome by the id of its frame, or by its task. Returns the attempt that is meant. */
  #forgetOutcome(corr: string, seq: number | undefined): { taskId: string; of: number | undefined } {
    const kept = this.#outbox.remove(corr);
    if (kept?.as === "outcome") return { taskId: kept.key.taskId, of: kept.key.seq };
    this.#outbox.removeTask(corr, seq);
    return { taskId: corr, of: seq };
  }

  #resend(now: Now): void {
    const { frames, isExhausted } = this.#outbox.takeDue(now.monoMs, isUp(this.#state), this.#random);
    this.tally.resent += frames.length;
    for (const frame of frames) this.#send(frame);
    if (!isExhausted) return;
    // Outcomes are kept, and are sent again on the next connection.
    this.#outbox.rewind(now.monoMs, () => true);
    this.#close("retry");
  }

  #beat(now: Now): void {
    const vitals = this.#environment.vitals();
    const { memPct, diskPct } = this.#profile.thresholds;
    const isDraining = this.#drainUntilMs !== undefined;
    const isFull = (vitals.mem_pct ?? 0) >= memPct || (vitals.disk_pct ?? 0) >= diskPct;
    const metrics = {
      ...vitals,
      inflight: this.#tasks.size,
      ...(this.#pulse.latencyMs === undefined ? {} : { latency_ms: this.#pulse.latencyMs }),
      ...(isDraining ? { draining: true } : {}),
    };
    const payload = { healthy: !isDraining && !isFull, metrics };
    const frame = this.#frame(now, { type: "heartbeat", payload }, { ack: { request: true } });
    this.tally.heartbeats += 1;
    this.#pulse.sent(now.monoMs, frame.id, this.#random());
    this.#send(frame);
  }

  /** No attempt runs beyond the lease: the server may give it to another worker then. */
  #checkLease(now: Now): void {
    if (now.monoMs < this.#pulse.warningMs) return;
    for (const { key } of this.#tasks.open()) {
      this.#stop(key, "lease");
      if (now.monoMs >= this.#pulse.leaseUntilMs) this.#out.push({ do: "abandon", key });
    }
  }

  #checkDrain(now: Now): void {
    const untilMs = this.#drainUntilMs;
    if (untilMs === undefined || now.monoMs < untilMs) return;
    for (const { key } of this.#tasks.open()) this.#stop(key, "drain");
    if (now.monoMs >= untilMs + this.#flushAfterMs && !this.#isClosed) this.#close("done");
  }

  get #flushAfterMs(): number {
    return this.#profile.timing.stopGraceMs + FLUSH_LIMIT_MS;
  }

  #closeIfDrained(): void {
    const isDone = this.#drainUntilMs !== undefined && this.#tasks.size === 0 && this.#outbox.outcomes === 0;
    if (isDone && !this.#isClosed) this.#close("done");
  }

  #close(why: CloseReason): void {
    if (why !== "retry") {
      this.#isClosed = true;
      if (NEXT[this.#state].includes("CLOSED")) this.#go("CLOSED");
    }
    this.#out.push({ do: "close", why });
  }

  #go(to: WorkerState): void {
    if (!NEXT[this.#state].includes(to)) throw new Error(`a session goes only where the table allows: ${this.#state} -> ${to}`);
    this.#state = to;
  }

  #sendOutcome(now: Now, key: TaskKey, runId: string, message: Message): void {
    const frame = this.#frame(now, message, { corr: key.taskId, seq: key.seq, ack: { request: true } });
    this.#sendKept(now, frame, { as: "outcome", key, runId });
  }

  /** Sends a frame if there is a session, and keeps it until it is acknowledged. */
  #sendKept(now: Now, frame: Frame, keep: Keep): void {
    this.#outbox.put(now.monoMs, frame, keep, this.#random());
    if (isUp(this.#state) || keep.as === "greeting") this.#send(frame);
  }

  /** Sends a report, and keeps it unless the outbox is full: the space for outcomes is reserved. */
  #sendReport(now: Now, frame: Frame): void {
    if (!this.#outbox.isFull(this.#tasks.size)) this.#sendKept(now, frame, { as: "report" });
    else if (isUp(this.#state)) this.#send(frame);
  }

  #ack(now: Now, frame: ReceivedFrame, info?: string): void {
    const payload = { ok: true, for: frame.id, ...(info === undefined ? {} : { info }) };
    const corr = frame.corr ?? undefined;
    const seq = frame.seq ?? undefined;
    const about = { ...(corr === undefined ? {} : { corr }), ...(seq === undefined ? {} : { seq }), ack: { for: frame.id } };
    this.#send(this.#frame(now, { type: "ack", payload }, about));
  }

  /** Sends an error about a frame. It is not kept: the sender repeats frames that matter to it. */
  #sendError(now: Now, corr: string | undefined, rejection: Rejection, details: Record<string, unknown> = {}): void {
    const about = corr === undefined ? {} : { corr };
    this.#send(this.#frame(now, { type: "error", payload: errorPayload(rejection, details) }, about));
  }

  #send(frame: Frame): void {
    this.#out.push({ do: "send", frame });
  }

  #frame(now: Now, message: Message, about: { corr?: string; seq?: number; ack?: { request?: boolean; for?: string } }): Frame {
    const id = `${message.type}-${this.#profile.instance}-${this.#nextId++}`;
    const sender = { role: "worker" as const, id: this.#profile.worker.id };
    return { ...message, id, ts: now.wall.toISOString(), tenant: this.#profile.tenant, sender, ...about };
  }
}

function isSame(a: TaskKey, b: TaskKey): boolean {
  return a.taskId === b.taskId && a.seq === b.seq;
}

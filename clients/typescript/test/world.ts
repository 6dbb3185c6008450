/** A worker's state machine with a clock that the test moves. Every frame that it sends is checked against its schema. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

import type { Action, Environment, Now, Profile } from "../src/worker/action.js";
import { parseFrame, type Frame, type Message } from "../src/worker/frame.js";
import type { Ended } from "../src/worker/outcome.js";
import { Protocol } from "../src/worker/protocol.js";
import { check } from "../src/worker/schema.js";

const SCHEMAS = fileURLToPath(new URL("../../../../docs/schema/ws", import.meta.url));

function schema(name: string): unknown {
  return JSON.parse(readFileSync(`${SCHEMAS}/ws.${name}.schema.json`, "utf8"));
}

export const DONE: Ended = { as: "done", result: { ok: true }, metadata: undefined, skipped: false, artifacts: [] };

/** A state machine and what it did. */
export class World {
  readonly protocol: Protocol;
  nowMs = 1_000;
  vitals = {};
  #sentFrames: Frame[] = [];
  #actions: string[] = [];
  #frames = 0;

  constructor(profile: Partial<Profile> = {}, environment: Partial<Environment> = {}) {
    const whole: Profile = {
      tenant: "acme",
      worker: { id: "w-1", version: "1", hostname: "here" },
      timing: { heartbeatMs: 5_000, heartbeatJitterMs: 0, stopGraceMs: 2_000, drainLimitMs: 30_000 },
      capacity: { maxParallel: 4, perKind: new Map([["rare", 1]]) },
      thresholds: { memPct: 90, diskPct: 95 },
      instance: "1b2c",
      bootId: "boot-1",
      ...profile,
    };
    const unfit: Environment["unfit"] = ({ dispatch }) =>
      dispatch.node_type === "unknown" ? { code: "E.CMD.UNKNOWN", where: "worker.handlers", message: "no handler" } : undefined;
    this.protocol = new Protocol(whole, { unfit, vitals: () => this.vitals, ...environment }, () => 0);
  }

  /** A world whose session is up. */
  static up(profile: Partial<Profile> = {}): World {
    const world = new World(profile);
    world.connect();
    world.takeFrames();
    world.takeActions();
    return world;
  }

  get now(): Now {
    return { monoMs: this.nowMs, wall: new Date(Date.UTC(2030, 0, 1) + this.nowMs) };
  }

  /** Opens a connection. */
  open(): void {
    this.protocol.dial();
    const capabilities = { concurrency: { max_parallel: 4 }, runtimes: ["node"], features: ["kind:work"] };
    this.protocol.connected(this.now, { mode: "token", token: "s3cret" }, { capabilities, packages: [] });
    this.collect();
  }

  /** Opens a connection and registers. */
  connect(): void {
    this.open();
    this.ack(this.last("handshake").id);
    this.ack(this.last("register").id, { info: "lease_ms=30000" });
  }

  /** Takes the actions of the state machine. */
  collect(): void {
    for (const action of this.protocol.takeActions()) {
      if (action.do !== "send") {
        this.#actions.push(describe(action));
        continue;
      }
      const { payload, ...envelope } = action.frame;
      assert.equal(check(schema("envelope"), { ...envelope, payload: {} }), undefined);
      assert.equal(check(schema(action.frame.type), payload), undefined, JSON.stringify(action.frame));
      this.#sentFrames.push(action.frame);
    }
  }

  /** The last frame of a type that was sent. */
  last<Type extends Message["type"]>(type: Type): Frame & { type: Type } {
    const found = this.#sentFrames.findLast((frame) => frame.type === type);
    assert.ok(found, `no ${type} was sent`);
    return found as Frame & { type: Type };
  }

  /** The frames since the last call. */
  takeFrames(): Frame[] {
    return this.#sentFrames.splice(0);
  }

  /** The types of the frames since the last call, with their tasks. */
  takeSent(): string[] {
    return this.takeFrames().map((frame) => (frame.seq === undefined ? frame.type : `${frame.type} ${frame.corr} ${frame.seq}`));
  }

  /** The other actions since the last call. */
  takeActions(): string[] {
    return this.#actions.splice(0);
  }

  /** The server sends a frame. Returns its id. */
  receive(type: string, payload: object, more: object = {}): string {
    const id = `s-${this.#frames++}`;
    this.receiveFrame({ type, id, ts: "2030-01-01T08:00:00Z", tenant: "acme", sender: { role: "scheduler", id: "scheduler" }, payload, ...more });
    return id;
  }

  receiveFrame(frame: object): void {
    const parsed = parseFrame(JSON.stringify(frame));
    if ("bad" in parsed) this.protocol.handleBadFrame(this.now, parsed.bad);
    else this.protocol.handleFrame(this.now, parsed.frame);
    this.tick();
  }

  ack(id: string, more: object = {}): void {
    this.receive("ack", { ok: true, for: id, ...more }, { ack: { for: id } });
  }

  error(code: string, more: object = {}): void {
    this.receive("error", { code, message: "as it is" }, more);
  }

  dispatch(task: string, seq = 1, kind = "work", more: object = {}): object {
    const payload = {
      run_id: `run-${task}`, task_id: task, node_id: task, node_type: kind, package_name: "builtin", package_version: "0",
      parameters: {}, constraints: {}, ...more,
    };
    const frame = {
      type: "cmd.dispatch", id: `d-${this.#frames++}`, ts: "2030-01-01T08:00:00Z", tenant: "acme", corr: task, seq,
      sender: { role: "scheduler", id: "scheduler" }, ack: { request: true }, payload,
    };
    this.receiveFrame(frame);
    return frame;
  }

  end(task: string, seq = 1, ended: Ended = DONE): void {
    this.protocol.ended(this.now, { taskId: task, seq }, ended);
    this.tick();
  }

  tick(): void {
    this.protocol.handleTick(this.now);
    this.collect();
  }

  /** Lets time pass, and wakes the state machine when it wants to be woken. */
  pass(ms: number): void {
    const endMs = this.nowMs + ms;
    for (let steps = 0; ; steps++) {
      assert.ok(steps < 10_000, "the state machine wakes up without an end");
      const nextMs = this.protocol.nextWakeupMs();
      if (nextMs === undefined || nextMs > endMs) break;
      this.nowMs = Math.max(this.nowMs, nextMs);
      this.tick();
      if (this.protocol.state === "BACKOFF") break;
      // What closes the connection is not executed here: the test decides.
      if (this.#actions.at(-1)?.startsWith("close")) break;
    }
    this.nowMs = endMs;
  }

  /** The connection breaks. */
  cut(): void {
    this.protocol.disconnected(this.now);
    this.collect();
  }

  /** Connects again after the backoff. */
  reconnect(): void {
    this.nowMs = Math.max(this.nowMs, this.protocol.retryAtMs);
    this.connect();
  }
}

function describe(action: Exclude<Action, { do: "send" }>): string {
  switch (action.do) {
    case "start":
      return `start ${action.order.key.taskId} ${action.order.key.seq}`;
    case "stop":
      return `stop ${action.key.taskId} ${action.key.seq} ${action.why}`;
    case "abandon":
      return `abandon ${action.key.taskId} ${action.key.seq}`;
    case "close":
      return `close ${action.why}`;
    case "denied":
      return `denied ${action.code}`;
    case "read":
      return `read ${action.request.resource_id}`;
    default:
      return action.do;
  }
}

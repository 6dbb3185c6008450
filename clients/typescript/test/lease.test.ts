/** The lease of a worker: against a real server, and against a scripted one that names a short lease. */

import assert from "node:assert/strict";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { test, type TestContext } from "node:test";

import { WebSocketServer, type WebSocket } from "ws";

import { Client, TaskStoppedError, Worker, WorkerSupersededError, type Task } from "../src/index.js";
import { Proxy } from "./proxy.js";
import { QUIET, TestServer } from "./server.js";

interface Sent {
  readonly type: string;
  readonly id: string;
  readonly corr?: string;
  readonly payload: Record<string, unknown>;
}

/** The server's side of the protocol, frame by frame. */
class Scripted {
  readonly #server: WebSocketServer;
  readonly #frames: Sent[] = [];
  #socket: WebSocket | undefined;
  #arrived: () => void = () => {};
  /** Whether heartbeats are acknowledged. */
  answersHeartbeats = true;

  private constructor(server: WebSocketServer) {
    this.#server = server;
    server.on("connection", (socket) => {
      this.#socket = socket;
      socket.on("message", (data) => this.#receive(JSON.parse(String(data)) as Sent));
    });
  }

  static async start(context: TestContext): Promise<Scripted> {
    const server = new WebSocketServer({ port: 0, host: "127.0.0.1" });
    await once(server, "listening");
    context.after(() => {
      for (const socket of server.clients) socket.terminate();
      server.close();
    });
    return new Scripted(server);
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  send(type: string, payload: object, more: object = {}): void {
    const frame = { type, id: `s-${Math.random()}`, ts: new Date().toISOString(), tenant: "default", sender: { role: "scheduler", id: "s" }, payload, ...more };
    this.#socket?.send(JSON.stringify(frame));
  }

  dispatch(task: string, kind: string): void {
    const payload = { run_id: task, task_id: task, node_id: task, node_type: kind, package_name: "builtin", package_version: "0", parameters: {}, constraints: {} };
    this.send("cmd.dispatch", payload, { corr: task, seq: 1, ack: { request: true } });
  }

  ack(id: string, info?: string): void {
    this.send("ack", { ok: true, for: id, ...(info === undefined ? {} : { info }) }, { ack: { for: id } });
  }

  /** The next frame of a type. */
  async next(type: string): Promise<Sent> {
    for (;;) {
      const at = this.#frames.findIndex((frame) => frame.type === type);
      const [found] = at < 0 ? [] : this.#frames.splice(at, 1);
      if (found !== undefined) return found;
      await new Promise<void>((arrived) => (this.#arrived = arrived));
    }
  }

  #receive(frame: Sent): void {
    if (frame.type === "handshake") this.ack(frame.id);
    if (frame.type === "register") this.ack(frame.id, "lease_ms=600");
    if (frame.type === "heartbeat" && this.answersHeartbeats) this.ack(frame.id);
    this.#frames.push(frame);
    this.#arrived();
  }
}

function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason as Error)));
}

/** A server with a short lease, and a proxy in front of it. */
async function serverWithLease(context: TestContext): Promise<{ server: TestServer; proxy: Proxy }> {
  const server = await TestServer.start(["limits.lease=2s"]);
  const proxy = await Proxy.start(server.url);
  context.after(async () => {
    await proxy.stop();
    await server.stop();
  });
  return { server, proxy };
}

test("without acknowledged heartbeats, the task is stopped before the lease ends and reported on the next connection", async (context) => {
  const server = await Scripted.start(context);
  const worker = new Worker({ name: "w", url: server.url, heartbeatMs: 100, stopGraceMs: 100, ...QUIET });
  let stopped: unknown;
  worker.handle("wait", ({ signal }: Task) => aborted(signal).catch((reason: unknown) => {
    stopped = reason;
    throw reason;
  }));
  const running = worker.run({ signals: false });
  await server.next("register");
  server.dispatch("t-1", "wait");
  await server.next("ack");
  server.answersHeartbeats = false;
  const register = await server.next("register");
  assert.ok(stopped instanceof TaskStoppedError && stopped.why === "lease");
  server.answersHeartbeats = true;
  assert.deepEqual(register.payload["tasks"], [{ task_id: "t-1", seq: 1 }], "its outcome is not acknowledged yet");
  const error = await server.next("error");
  assert.deepEqual([error.corr, error.payload["code"]], ["t-1", "E.RUNNER.CANCELLED"]);
  server.ack(error.id);
  worker.drain();
  await running;
});

test("a newer connection with the worker's name ends the worker, and its tasks are stopped", async (context) => {
  const server = await Scripted.start(context);
  const worker = new Worker({ name: "w", url: server.url, ...QUIET });
  let stopped = false;
  worker.handle("wait", ({ signal }: Task) => aborted(signal).finally(() => (stopped = true)));
  const running = worker.run({ signals: false });
  await server.next("register");
  server.dispatch("t-1", "wait");
  await server.next("ack");
  server.send("error", { code: "E.SESSION.STALE_BINDING", message: "a newer connection uses the name" });
  await assert.rejects(running, (error) => error instanceof WorkerSupersededError && error.code === "E.SESSION.STALE_BINDING");
  assert.ok(stopped);
});

test("a worker that the server does not reach stops its task, which runs elsewhere", async (context) => {
  const { server, proxy } = await serverWithLease(context);
  const events: string[] = [];
  const near = new Worker({ name: "near", url: proxy.url, heartbeatMs: 300, stopGraceMs: 100, ...QUIET });
  near.handle("leased", ({ signal }: Task) => aborted(signal).finally(() => events.push("stopped")));
  const nearRuns = near.run({ signals: false });
  const { id } = await server.client().jobs.submit({ kind: "leased" });
  // The server must know that the attempt runs: one whose acknowledgement is missing is sent to another worker sooner.
  for await (const item of server.client().events.stream({ job: id, after: 0 })) {
    if (item.type === "event" && item.event.type === "job.started") break;
  }
  proxy.hold();
  const far = new Worker({ name: "far", url: server.url, heartbeatMs: 300, ...QUIET });
  far.handle("leased", () => {
    events.push("started elsewhere");
    return { elsewhere: true };
  });
  const farRuns = far.run({ signals: false });
  assert.deepEqual((await server.client().jobs.result(id, { timeoutMs: 60_000 })).result, { elsewhere: true });
  assert.deepEqual(events, ["stopped", "started elsewhere"]);
  proxy.release();
  near.drain();
  far.drain();
  await Promise.all([nearRuns, farRuns]);
});

test("a pull worker: its lease is renewed, and a cancel aborts the signal of its handler", async (context) => {
  const { server } = await serverWithLease(context);
  const client = server.client();
  await client.lanes.put("pull", { dispatch: "claim" });
  const job = await client.jobs.submit({ kind: "k", lane: "pull" });
  const beginning = performance.now();
  const worked = await client.leases.work({ worker: "p", lane: "pull" }, async ({ signal, lease }) => {
    // Longer than the lease: without a renewal it would be gone.
    while (performance.now() - beginning < 2_500) await client.leases.get(lease.id);
    await client.jobs.cancel(job.id);
    return aborted(signal);
  });
  assert.deepEqual(worked, { granted: true, job: job.id, outcome: "canceled" });
  assert.equal((await client.jobs.get(job.id)).state, "canceled");
});

test("a pull worker: its handler is stopped when the lease ends without an answer, and the job runs elsewhere", async (context) => {
  const { server, proxy } = await serverWithLease(context);
  const client = server.client();
  await client.lanes.put("pull", { dispatch: "claim" });
  const job = await client.jobs.submit({ kind: "k", lane: "pull" });
  const far = new Client({ url: proxy.url });
  let stopped: unknown;
  const worked = await far.leases.work({ worker: "far", lane: "pull" }, async ({ signal }) => {
    proxy.hold();
    await aborted(signal).catch((reason: unknown) => (stopped = reason));
    return { late: true };
  });
  assert.deepEqual(worked, { granted: true, job: job.id, outcome: "lost" });
  assert.match(String(stopped), /the lease expired/);
  for await (const item of client.events.stream({ job: job.id, after: 0 })) {
    if (item.type === "event" && item.event.type === "job.queued" && item.event.number > 2) break;
  }
  const again = await client.leases.work({ worker: "near", lane: "pull" }, () => ({ here: true }));
  assert.ok(again.granted && again.outcome === "succeeded");
  assert.deepEqual((await client.jobs.get(job.id)).result, { here: true });
});

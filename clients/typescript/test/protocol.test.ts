/** The state machine of the worker, dialogue by dialogue. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { PermanentFailure } from "../src/worker/failure.js";
import { endedWith } from "../src/worker/outcome.js";
import { BAD_FRAMES_MAX, FEEDBACK_WAITING_MAX } from "../src/worker/protocol.js";
import { NEXT } from "../src/worker/state.js";
import { DONE, World } from "./world.js";

test("the example exchange of the protocol", () => {
  const world = new World();
  world.open();
  assert.deepEqual(world.takeSent(), ["handshake"]);
  world.open = () => assert.fail("opened twice");
  world.ack("handshake-1b2c-0");
  const register = world.last("register");
  assert.equal(register.payload.boot_id, "boot-1");
  assert.deepEqual(register.payload.tasks, []);
  world.ack(register.id, { info: "lease_ms=30000" });
  assert.equal(world.protocol.state, "HEARTBEATING");
  assert.deepEqual(world.takeSent(), ["register", "heartbeat"]);
  world.dispatch("t-1");
  assert.deepEqual(world.takeSent(), ["ack t-1 1"]);
  world.protocol.sendForTask(world.now, { taskId: "t-1", seq: 1 }, { type: "feedback", payload: { run_id: "r", task_id: "t-1", progress: 0.5 } });
  world.end("t-1");
  assert.deepEqual(world.takeSent(), ["feedback t-1 1", "result t-1 1"]);
  assert.equal(world.protocol.outcomesWaiting, 1);
  world.ack(`result-1b2c-5`);
  assert.equal(world.protocol.outcomesWaiting, 0);
  assert.deepEqual(world.takeActions(), ["registered", "start t-1 1"]);
});

test("nothing but the greeting is sent before the session is up, and no task runs", () => {
  const world = new World();
  world.open();
  world.takeFrames();
  world.dispatch("t-1");
  assert.equal(world.last("error").payload.code, "E.SESSION.DENIED");
  assert.deepEqual(world.takeActions(), []);
});

test("a task shows that the registration arrived although its acknowledgement is lost", () => {
  const world = new World();
  world.open();
  world.ack(world.last("handshake").id);
  world.dispatch("t-1");
  assert.equal(world.protocol.state, "HEARTBEATING");
  assert.deepEqual(world.takeActions(), ["registered", "start t-1 1"]);
});

test("a dispatch that comes twice runs once and is acknowledged twice", () => {
  const world = World.up();
  const frame = world.dispatch("t-1");
  world.receiveFrame(frame);
  world.dispatch("t-1");
  assert.deepEqual(world.takeSent(), ["ack t-1 1", "ack t-1 1", "ack t-1 1"]);
  assert.deepEqual(world.takeActions(), ["start t-1 1"]);
  assert.equal(world.protocol.tally.duplicates, 2);
  world.cut();
  world.reconnect();
  world.receiveFrame(frame);
  assert.ok(!world.takeActions().includes("start t-1 1"));
});

test("a dispatch of a task that has ended does not start it again", () => {
  const world = World.up();
  world.dispatch("t-1");
  world.end("t-1");
  world.ack(world.last("result").id);
  world.takeActions();
  world.dispatch("t-1");
  assert.deepEqual(world.takeActions(), []);
});

test("a dispatch that was rejected does not start when the same frame comes again", () => {
  const world = World.up();
  world.dispatch("t-1", 1, "rare");
  const rejected = world.dispatch("t-2", 1, "rare");
  world.ack(world.last("error").id);
  world.end("t-1");
  world.takeActions();
  world.receiveFrame(rejected);
  assert.deepEqual(world.takeActions(), []);
  world.dispatch("t-2", 1, "rare");
  assert.deepEqual(world.takeActions(), ["start t-2 1"], "another frame is another dispatch");
});

test("a new connection sends a waiting result at once, whenever it was due", () => {
  const world = World.up();
  world.dispatch("t-1");
  world.end("t-1");
  world.pass(6_300);
  world.cut();
  world.takeFrames();
  world.reconnect();
  assert.ok(world.takeSent().includes("result t-1 1"));
});

test("a dispatch of a task whose result waits sends the result again", () => {
  const world = World.up();
  world.dispatch("t-1");
  world.end("t-1");
  world.takeFrames();
  world.dispatch("t-1");
  assert.deepEqual(world.takeSent(), ["ack t-1 1", "result t-1 1"]);
});

test("a result is sent again after 200 ms, 400 ms, … six times, and then the connection is given up", () => {
  const world = World.up();
  world.dispatch("t-1");
  world.end("t-1");
  const first = world.last("result");
  world.takeFrames();
  const times: number[] = [];
  for (let step = 0; step < 400 && world.protocol.state === "HEARTBEATING"; step++) {
    world.pass(50);
    for (const frame of world.takeFrames()) {
      if (frame.type === "heartbeat") world.ack(frame.id);
      if (frame.type !== "result") continue;
      assert.equal(frame.id, first.id);
      times.push(world.nowMs);
    }
    if (world.takeActions().includes("close retry")) break;
  }
  assert.deepEqual(times.map((at) => at - 1_000), [200, 600, 1_400, 3_000, 6_200, 11_200]);
  world.cut();
  world.reconnect();
  assert.deepEqual(world.last("register").payload.tasks, [{ task_id: "t-1", seq: 1 }]);
  assert.equal(world.last("result").id, first.id);
});

test("results outlive connections, and the registration lists running and unacknowledged tasks", () => {
  const world = World.up();
  world.dispatch("t-1");
  world.dispatch("t-2");
  world.cut();
  world.end("t-1");
  assert.deepEqual(world.takeSent().filter((sent) => sent.startsWith("result")), []);
  world.reconnect();
  assert.deepEqual(world.last("register").payload.tasks, [{ task_id: "t-2", seq: 1 }, { task_id: "t-1", seq: 1 }]);
  assert.equal(world.last("result").corr, "t-1");
  world.ack(world.last("result").id, { info: "E.RESULT.DUPLICATE" });
  assert.equal(world.protocol.outcomesWaiting, 0);
});

test("after a gap the results of the run are sent again, by seq", () => {
  const world = World.up();
  for (const [task, seq] of [["t-2", 2], ["t-1", 1]] as const) {
    world.dispatch(task, seq, "work", { run_id: "r-1" });
    world.end(task, seq);
  }
  world.dispatch("t-3", 3, "work", { run_id: "r-2" });
  world.end("t-3", 3);
  world.takeFrames();
  world.error("E.RESULT.SEQ_GAP", { corr: "t-2", seq: 2 });
  assert.deepEqual(world.takeSent(), ["result t-1 1", "result t-2 2"]);
});

test("limits are kept: slots, kinds, concurrency keys, drains, unknown kinds", () => {
  const world = World.up();
  world.dispatch("t-1", 1, "rare");
  world.dispatch("t-2", 1, "rare");
  assert.match(world.last("error").payload.message, /1 tasks of kind "rare"/);
  world.dispatch("t-3", 1, "work", { concurrency_key: "k" });
  world.dispatch("t-4", 1, "work", { concurrency_key: "k" });
  assert.match(world.last("error").payload.message, /concurrency_key "k"/);
  world.dispatch("t-5");
  world.dispatch("t-6");
  world.dispatch("t-7");
  assert.match(world.last("error").payload.message, /max_parallel of 4/);
  world.dispatch("t-8", 1, "unknown");
  assert.equal(world.last("error").payload.code, "E.CMD.UNKNOWN");
  assert.deepEqual(world.takeActions(), ["start t-1 1", "start t-3 1", "start t-5 1", "start t-6 1"]);
  assert.equal(world.protocol.outcomesWaiting, 4, "rejections are kept until they are acknowledged");
});

test("a canceled attempt is reported, and a cancel of another attempt stops nothing", () => {
  const world = World.up();
  world.dispatch("t-1", 2);
  world.takeActions();
  world.receive("cmd.cancel", { run_id: "r", task_id: "t-1" }, { corr: "t-1", seq: 1, ack: { request: true } });
  assert.deepEqual(world.takeActions(), []);
  world.receive("cmd.cancel", { run_id: "r", task_id: "t-1" }, { corr: "t-1", seq: 2, ack: { request: true } });
  assert.deepEqual(world.takeActions(), ["stop t-1 2 canceled"]);
  world.end("t-1", 2, { as: "failed", failure: new PermanentFailure("aborted", "it saw its signal") });
  const { payload } = world.last("result");
  assert.deepEqual([payload.status, payload.error?.code], ["CANCELLED", "E.RUNNER.CANCELLED"]);
});

test("a task that finished before it saw its cancellation succeeded", () => {
  const world = World.up();
  world.dispatch("t-1");
  world.receive("cmd.cancel", { run_id: "r", task_id: "t-1" }, { corr: "t-1", seq: 1 });
  world.end("t-1");
  assert.equal(world.last("result").payload.status, "SUCCEEDED");
});

test("a newer attempt stops the older one and starts when that has ended", () => {
  const world = World.up();
  world.dispatch("t-1", 1);
  world.dispatch("t-1", 2);
  assert.deepEqual(world.takeActions(), ["start t-1 1", "stop t-1 1 stale"]);
  world.takeFrames();
  world.end("t-1", 1);
  assert.deepEqual(world.takeActions(), ["start t-1 2"]);
  assert.deepEqual(world.takeSent(), [], "the outcome of the older attempt is discarded");
  world.dispatch("t-1", 1);
  assert.equal(world.last("ack").payload.info, "E.SESSION.STALE_BINDING");
});

test("the lease counts from the sending; attempts stop before its end and are given up at its end", () => {
  const world = World.up();
  world.dispatch("t-1");
  world.takeActions();
  // No heartbeat is acknowledged. The registration was sent at 1,000; its lease is 30 s, and the grace is 2 s.
  world.pass(27_900);
  assert.deepEqual(world.takeActions(), []);
  world.pass(200);
  assert.deepEqual(world.takeActions(), ["stop t-1 1 lease"]);
  world.pass(2_000);
  assert.deepEqual(world.takeActions(), ["abandon t-1 1", "close retry"]);
  world.end("t-1", 1, { as: "stopped" });
  world.cut();
  world.reconnect();
  assert.equal(world.last("error").payload.code, "E.RUNNER.CANCELLED");
});

test("the lease ends while there is no connection, too", () => {
  const world = World.up();
  world.dispatch("t-1");
  world.takeActions();
  world.cut();
  assert.equal(world.protocol.nextWakeupMs(), 29_000);
  world.nowMs = 31_000;
  world.tick();
  assert.deepEqual(world.takeActions(), ["stop t-1 1 lease", "abandon t-1 1"]);
});

test("acknowledged heartbeats renew the lease", () => {
  const world = World.up();
  world.dispatch("t-1");
  world.takeActions();
  for (let beat = 0; beat < 10; beat++) {
    world.pass(5_000);
    world.ack(world.last("heartbeat").id);
  }
  assert.deepEqual(world.takeActions(), []);
});

test("a handshake without an answer ends the connection after 15 s, and waits between connections grow", () => {
  const world = new World();
  const waits: number[] = [];
  for (let time = 0; time < 8; time++) {
    world.open();
    world.pass(20_000);
    // The greeting was sent as often as allowed, or the 15 s are over.
    assert.ok(world.takeActions().includes("close retry"));
    world.cut();
    waits.push(world.protocol.retryAtMs - world.nowMs);
    world.nowMs = world.protocol.retryAtMs;
  }
  assert.deepEqual(waits, [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
});

test("a drain takes no tasks, finishes the running ones, delivers their results, and closes", () => {
  const world = World.up();
  world.dispatch("t-1");
  world.takeActions();
  world.receive("cmd.drain", { limit_ms: 60_000 }, { ack: { request: true } });
  assert.equal(world.protocol.state, "DRAINING");
  assert.equal(world.last("heartbeat").payload.healthy, false);
  world.dispatch("t-2");
  assert.match(world.last("error").payload.message, /draining/);
  world.ack(world.last("error").id);
  world.end("t-1");
  assert.deepEqual(world.takeActions(), []);
  world.cut();
  world.reconnect();
  assert.equal(world.protocol.state, "DRAINING");
  world.ack(world.last("result").id);
  assert.deepEqual(world.takeActions(), ["registered", "close done"]);
  assert.equal(world.protocol.state, "CLOSED");
});

test("a drain ends in any case", () => {
  const world = World.up();
  world.dispatch("t-1");
  world.takeActions();
  world.protocol.drain(world.now, 1_000);
  world.pass(1_000);
  assert.deepEqual(world.takeActions(), ["stop t-1 1 drain"]);
  world.pass(12_000);
  assert.deepEqual(world.takeActions(), ["close done"]);
});

test("a worker without a connection and without tasks drains at once", () => {
  const world = new World();
  world.protocol.drain(world.now, undefined);
  world.collect();
  assert.deepEqual(world.takeActions(), ["close done"]);
});

test("a stale attempt is stopped and its outcome discarded; a stale session ends the worker", () => {
  const world = World.up();
  world.dispatch("t-1");
  world.dispatch("t-2");
  world.end("t-2");
  world.takeActions();
  world.error("E.SESSION.STALE_BINDING", { corr: "t-2", seq: 1 });
  assert.equal(world.protocol.outcomesWaiting, 0);
  world.error("E.SESSION.STALE_BINDING", { corr: "t-1", seq: 1 });
  assert.deepEqual(world.takeActions(), ["stop t-1 1 stale"]);
  world.error("E.SESSION.STALE_BINDING");
  assert.deepEqual(world.takeActions(), ["denied E.SESSION.STALE_BINDING", "close superseded"]);
});

test("a denied token or name leads to another connection", () => {
  for (const code of ["E.AUTH.INVALID_TOKEN", "E.AUTH.MTLS_REQUIRED", "E.SESSION.DENIED"]) {
    const world = new World();
    world.open();
    world.error(code);
    assert.deepEqual(world.takeActions(), [`denied ${code}`, "close retry"]);
  }
});

test("frames of another tenant or of no scheduler have no effect", () => {
  const world = World.up();
  for (const more of [{ tenant: "other" }, { sender: { role: "worker", id: "x" } }]) {
    world.receive("cmd.drain", {}, more);
    assert.equal(world.last("error").payload.code, "E.SESSION.DENIED");
  }
  assert.equal(world.protocol.state, "HEARTBEATING");
});

test("an invalid frame gets an error, invalid answers get none, and many in a row end the connection", () => {
  const world = World.up();
  world.receiveFrame({ hello: 1 });
  assert.equal(world.last("error").payload.context?.where, "envelope");
  world.receive("ack", { unknown: true });
  world.receive("error", {});
  assert.deepEqual(world.takeSent(), ["error"]);
  for (let count = 3; count < BAD_FRAMES_MAX; count++) world.receiveFrame({ hello: 1 });
  assert.deepEqual(world.takeActions(), ["close retry"]);
});

test("a full machine requests no more tasks", () => {
  for (const [vitals, healthy] of [[{ mem_pct: 89.9, disk_pct: 94.9 }, true], [{ mem_pct: 90 }, false], [{ disk_pct: 95 }, false]] as const) {
    const world = new World();
    world.vitals = vitals;
    world.connect();
    assert.equal(world.last("heartbeat").payload.healthy, healthy, JSON.stringify(vitals));
  }
});

test("feedback waits for a connection, and the newest is kept", () => {
  const world = World.up();
  world.dispatch("t-1");
  world.cut();
  world.takeFrames();
  for (let index = 0; index <= FEEDBACK_WAITING_MAX; index++) {
    const payload = { run_id: "r", task_id: "t-1", message: `m-${index}` };
    world.protocol.sendForTask(world.now, { taskId: "t-1", seq: 1 }, { type: "feedback", payload });
  }
  world.reconnect();
  const sent = world.takeFrames().filter((frame) => frame.type === "feedback");
  assert.equal(sent.length, FEEDBACK_WAITING_MAX);
  assert.deepEqual([sent[0]?.payload.message, world.protocol.tally.feedbackDropped], ["m-1", 1]);
});

test("a failure says whether a retry helps, and a result that no frame can hold is a failure", () => {
  const world = World.up();
  world.dispatch("t-1");
  world.end("t-1", 1, { as: "failed", failure: new PermanentFailure("bad_input", "no", { remediation: "send more" }) });
  const { payload } = world.last("result");
  assert.deepEqual([payload.status, payload.metadata, payload.error], ["FAILED", { retryable: false }, { code: "bad_input", message: "no", remediation: "send more" }]);
  world.dispatch("t-2");
  world.end("t-2", 1, { ...DONE, result: { text: "x".repeat(5 << 20) } } as typeof DONE);
  assert.equal(world.last("result").payload.error?.code, "result_too_long");
  world.dispatch("t-3");
  world.end("t-3", 1, { as: "timed_out" });
  assert.deepEqual([world.last("result").payload.error?.code, world.last("result").payload.metadata], ["E.TIMEOUT", { retryable: true }]);
});

test("values of handlers become results", () => {
  const result = (value: unknown): unknown => {
    const ended = endedWith(value, []);
    return ended.as === "done" ? ended.result : ended.as === "failed" ? ended.failure.code : ended.as;
  };
  const circular: Record<string, unknown> = {};
  circular["self"] = circular;
  assert.deepEqual([undefined, { a: 1 }, 7, [1], null].map(result), [{}, { a: 1 }, { value: 7 }, { value: [1] }, {}]);
  assert.deepEqual([circular, 1n, "\ud800"].map(result), ["bad_result", "bad_result", "bad_result"]);
});

test("a flood of dispatches is bounded", () => {
  const world = World.up();
  for (let task = 0; task < 6_000; task++) world.dispatch(`t-${task}`);
  assert.ok(world.protocol.outcomesWaiting <= 4_096);
});

test("a read of a resource is answered once, and not after the connection", () => {
  const world = World.up();
  const asked = world.receive("resource.read", { resource_id: "res-1", offset: 0, limit: 10 });
  assert.deepEqual(world.takeActions(), ["read res-1"]);
  world.protocol.partRead(world.now, asked, { resource_id: "res-1", offset: 0, size_bytes: 2, data_base64: "AAE=" });
  world.collect();
  assert.equal(world.last("resource.data").corr, asked);
  world.cut();
  world.takeFrames();
  world.protocol.partRead(world.now, asked, { rejection: { code: "E.RESOURCE.MISSING", where: "worker.resources", message: "gone" } });
  world.collect();
  assert.deepEqual(world.takeSent(), []);
});

test("the parts of a middleware chain share one slot, and a caller that waits uses none", () => {
  const world = World.up({ capacity: { maxParallel: 1, perKind: new Map() } });
  const chain = { run_id: "r", host_node_id: "host", middleware_chain: ["m-1"] };
  world.dispatch("t-m", 1, "work", { ...chain, node_id: "m-1", chain_index: 0 });
  const payload = { requestId: "q-1", runId: "r", nodeId: "host", middlewareId: "m-1", chainIndex: 0, payload: {} };
  world.protocol.sendForTask(world.now, { taskId: "t-m", seq: 1 }, { type: "middleware.next_request", payload });
  world.dispatch("t-inside");
  assert.deepEqual(world.takeActions(), ["start t-m 1", "start t-inside 1"]);
  world.end("t-inside");
  world.dispatch("t-host", 1, "work", { ...chain, node_id: "host" });
  assert.deepEqual(world.takeActions(), ["start t-host 1"]);
  world.receive("middleware.next_response", { requestId: "q-1", runId: "r", nodeId: "host", middlewareId: "m-1", result: {} }, { corr: "q-1" });
  assert.deepEqual(world.takeActions(), ["next"]);
  world.dispatch("t-other", 1);
  assert.match(world.last("error").payload.message, /max_parallel of 1/);
});

test("the transitions are those of docs/worker-protocol.md", async () => {
  const { readFile } = await import("node:fs/promises");
  const page = await readFile(new URL("../../../../docs/worker-protocol.md", import.meta.url), "utf8");
  const rows = [...page.matchAll(/^\| ([A-Z]+) \| .* \| ([A-Z, ]+) \|$/gm)].map(([, from, to]) => [from, (to ?? "").split(", ").sort()]);
  assert.deepEqual(Object.fromEntries(rows), Object.fromEntries(Object.entries(NEXT).map(([from, to]) => [from, [...to].sort()])));
});

/** Frames: what is parsed, and what is rejected with which reason. */

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";

import { FRAME_LEN_MAX, infoNumber, parseFrame } from "../src/worker/frame.js";

const DISPATCH = {
  run_id: "r", task_id: "t", node_id: "m-2", node_type: "k", package_name: "builtin", package_version: "0", parameters: {},
  constraints: {}, host_node_id: "host", middleware_chain: ["m-1", "m-2"], chain_index: 1,
};

function frame(type: string, payload: object, more: object = {}): string {
  return JSON.stringify({ type, id: "f-1", ts: "2030-01-01T08:00:00Z", tenant: "acme", sender: { role: "scheduler", id: "s" }, payload, ...more });
}

function problem(text: string): [code: string, where: string, field: string | undefined] | undefined {
  const parsed = parseFrame(text);
  return "bad" in parsed ? [parsed.bad.code, parsed.bad.where, parsed.bad.field] : undefined;
}

test("every frame of the scheduler in docs/worker-protocol.md is parsed", async () => {
  const page = await readFile(new URL("../../../../docs/worker-protocol.md", import.meta.url), "utf8");
  const blocks = [...page.matchAll(/^```json\n([\s\S]*?)^```$/gm)].map(([, text]) => text ?? "").filter((text) => text.includes('"role": "scheduler"'));
  assert.ok(blocks.length >= 8, `only ${blocks.length} examples were found`);
  for (const text of blocks) assert.equal(problem(text), undefined, text);
});

test("the envelope is checked before the payload", () => {
  assert.deepEqual(problem("{"), ["E.CMD.UNKNOWN", "frame.json", undefined]);
  assert.deepEqual(problem("[]"), ["E.CMD.UNKNOWN", "frame.json", undefined]);
  assert.deepEqual(problem(`"${"x".repeat(FRAME_LEN_MAX)}"`), ["E.CMD.UNKNOWN", "frame.size", undefined]);
  assert.deepEqual(problem(frame("cmd.drain", {}, { more: 1 })), ["E.CMD.UNKNOWN", "envelope", "more"]);
  assert.deepEqual(problem(frame("cmd.drain", {}, { ts: "yesterday" })), ["E.CMD.UNKNOWN", "envelope", "ts"]);
  assert.deepEqual(problem(frame("cmd.drain", {}, { ts: "2030-13-01T08:00:00Z" })), ["E.CMD.UNKNOWN", "envelope", "ts"]);
  assert.deepEqual(problem(frame("cmd.drain", {}, { id: "" })), ["E.CMD.UNKNOWN", "envelope", "id"]);
  assert.deepEqual(problem(frame("cmd.drain", {}, { id: "x".repeat(1_025) })), ["E.CMD.UNKNOWN", "envelope", "id"]);
  assert.deepEqual(problem(frame("cmd.drain", {}, { seq: 1.5 })), ["E.CMD.UNKNOWN", "envelope", "seq"]);
  assert.deepEqual(problem(frame("cmd.drain", {}, { sender: { role: "admin", id: "s" } })), ["E.CMD.UNKNOWN", "envelope", "sender.role"]);
  assert.deepEqual(problem(frame("cmd.dance", {})), ["E.CMD.UNKNOWN", "envelope.type", "type"]);
  assert.deepEqual(problem(frame("toString", {})), ["E.CMD.UNKNOWN", "envelope.type", "type"]);
  assert.deepEqual(problem(frame("cmd.drain", { limit_ms: 0 })), ["E.CMD.UNKNOWN", "payload", "limit_ms"]);
  assert.deepEqual(problem(frame("cmd.drain", { limit: 1 })), ["E.CMD.UNKNOWN", "payload", "limit"]);
  assert.deepEqual(problem(frame("cmd.cancel", { run_id: "r" })), ["E.CMD.UNKNOWN", "payload", "task_id"]);
  assert.equal(problem(frame("cmd.drain", {}, { seq: null, corr: null })), undefined);
});

test("an acknowledgement may name its frame in the envelope only", () => {
  assert.equal(problem(frame("ack", { ok: true }, { ack: { for: "f-0" } })), undefined);
  assert.deepEqual(problem(frame("ack", { ok: true })), ["E.CMD.UNKNOWN", "payload", "for"]);
});

test("middleware fields must fit together", () => {
  const with_ = (change: object): string => frame("cmd.dispatch", { ...DISPATCH, ...change });
  const right = [{}, { node_id: "m-1", chain_index: 0 }, { node_id: "host", chain_index: null }];
  for (const change of right) assert.equal(problem(with_(change)), undefined, JSON.stringify(change));
  const wrong = [
    { chain_index: 2 }, { chain_index: 0 }, { node_id: "host" }, { chain_index: null }, { host_node_id: undefined }, { middleware_chain: undefined },
  ];
  for (const change of wrong) assert.equal(problem(with_(change))?.[0], "E.DISPATCH.INVALID_METADATA", JSON.stringify(change));
});

test("acknowledgements carry pairs for programs", () => {
  assert.equal(infoNumber({ for: "x", info: "lease_ms=30000 heartbeat_ms=5000" }, "heartbeat_ms"), 5_000);
  assert.equal(infoNumber({ for: "x", info: "E.RESULT.DUPLICATE" }, "lease_ms"), undefined);
  assert.equal(infoNumber({ for: "x", info: "lease_ms=soon" }, "lease_ms"), undefined);
});

/** The parser of server-sent events. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { SseParser } from "../src/sse.js";

const STREAM = ': keep-alive\n\nid: 7\nevent: job.queued\ndata: {"a":\ndata: 1}\n\nevent: job.progress\r\ndata:{}\r\n\r\ndata\n\nevent: empty\n\n';

const EXPECTED = [
  { event: "job.queued", data: '{"a":\n1}', id: "7" },
  { event: "job.progress", data: "{}", id: undefined },
  { event: "message", data: "", id: undefined },
];

test("messages are the same however the text is split", () => {
  for (let size = 1; size <= STREAM.length; size++) {
    const parser = new SseParser();
    const messages = [];
    for (let at = 0; at < STREAM.length; at += size) messages.push(...parser.push(STREAM.slice(at, at + size)));
    assert.deepEqual(messages, EXPECTED, `in pieces of ${size}`);
  }
});

test("a message has a limit", () => {
  const parser = new SseParser();
  const piece = `data: ${"x".repeat(1 << 20)}\n`;
  assert.throws(() => {
    for (let count = 0; count < 20; count++) parser.push(piece);
  }, /more than/);
});

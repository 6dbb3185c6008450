/** Resources of a worker, and the pieces in which a task writes. */

import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import type { CmdDispatchPayload, FeedbackPayload } from "../src/generated/frames.js";
import type { Message } from "../src/worker/frame.js";
import { RESOURCE_BYTES_MAX, Resources } from "../src/worker/resources.js";
import { Task, type TaskPort } from "../src/worker/task.js";

const KEY = { taskId: "t-1", seq: 1 };

function dispatch(refs: CmdDispatchPayload["resource_refs"] = []): CmdDispatchPayload {
  return {
    run_id: "r", task_id: "t-1", node_id: "n", node_type: "k", package_name: "builtin", package_version: "0", parameters: {},
    constraints: {}, resource_refs: refs,
  };
}

const read = (resources: Resources, id: string, offset = 0, limit = 1_000) => resources.read({ resource_id: id, offset, limit });

test("what an attempt without a result made is dropped, and what a result names is kept", async () => {
  const resources = new Resources("w");
  const first = await resources.keep(KEY, { data: "one" });
  resources.release(KEY, true);
  assert.ok("data_base64" in (await read(resources, first.resource_id)));
  const other = { taskId: "t-2", seq: 1 };
  const second = await resources.keep(other, { data: "two" });
  resources.release(other, false);
  const answer = await read(resources, second.resource_id);
  assert.ok("rejection" in answer && answer.rejection.code === "E.RESOURCE.MISSING");
  assert.deepEqual(resources.usage(), { handles: 1, bytes: 3 });
});

test("a resource in use stays beyond its expiry, until its user has ended", async () => {
  const resources = new Resources("w");
  const { resource_id: id, worker_id: worker, type } = await resources.keep(KEY, { data: "x", ttlMs: 60_000 });
  const user = { taskId: "t-2", seq: 1 };
  const wanted = dispatch([{ resource_id: id, worker_id: worker, type }]);
  assert.equal(resources.missing(wanted, Date.now()), undefined);
  resources.hold(wanted, user);
  resources.collect(Date.now() + 120_000);
  assert.equal(resources.usage().handles, 1);
  resources.release(user, true);
  resources.collect(Date.now() + 120_000);
  assert.equal(resources.usage().handles, 0);
});

test("a task that refers to something else is rejected with the reason", async () => {
  const resources = new Resources("w");
  const { resource_id: id } = await resources.keep(KEY, { data: "x", type: "model", ttlMs: 60_000 });
  const reason = (ref: object, nowMs = Date.now()): string | undefined =>
    resources.missing(dispatch([{ resource_id: id, worker_id: "w", type: "model", ...ref }]), nowMs)?.message;
  assert.equal(reason({}), undefined);
  assert.match(reason({ worker_id: "v" }) ?? "", /is on the worker "v"/);
  assert.match(reason({ resource_id: "res-0" }) ?? "", /there is no resource "res-0"/);
  assert.match(reason({ type: "file" }) ?? "", /is of type "model"/);
  assert.match(reason({}, Date.now() + 60_001) ?? "", /has expired/);
  assert.match(reason({ expires_at: "2020-01-01T00:00:00Z" }) ?? "", /has expired/);
});

test("files are read in parts, and a file that is gone is reported", async (context) => {
  const folder = await mkdtemp(join(tmpdir(), "laneway-ts-"));
  context.after(() => rm(folder, { recursive: true }));
  const path = join(folder, "data");
  await writeFile(path, "0123456789");
  const resources = new Resources("w");
  const { resource_id: id, size_bytes: size } = await resources.keep(KEY, { path });
  assert.equal(size, 10);
  const part = await read(resources, id, 8, 5);
  assert.deepEqual(part, { resource_id: id, offset: 8, size_bytes: 10, data_base64: Buffer.from("89").toString("base64") });
  await truncate(path, 0);
  await rm(path);
  const gone = await read(resources, id);
  assert.ok("rejection" in gone && gone.rejection.code === "E.RESOURCE.MISSING");
  await resources.close();
});

test("a file of the caller stays, and one that was handed over is removed", async (context) => {
  const folder = await mkdtemp(join(tmpdir(), "laneway-ts-"));
  context.after(() => rm(folder, { recursive: true }));
  const [kept, given] = [join(folder, "kept"), join(folder, "given")];
  await Promise.all([writeFile(kept, "k"), writeFile(given, "g")]);
  const resources = new Resources("w");
  await resources.keep(KEY, { path: kept });
  await resources.keep(KEY, { path: given, removeFile: true });
  await resources.close();
  assert.equal(await readFile(kept, "utf8"), "k");
  await assert.rejects(readFile(given), /ENOENT/);
});

test("memory has a limit, and invalid artifacts are rejected", async () => {
  const resources = new Resources("w");
  const half = Buffer.alloc(RESOURCE_BYTES_MAX / 2);
  await resources.keep(KEY, { data: half });
  await resources.keep(KEY, { data: half });
  await assert.rejects(resources.keep(KEY, { data: "x" }), (error) => (error as { code?: string }).code === "resources_full");
  await assert.rejects(resources.keep(KEY, {}), /either data or path/);
  await assert.rejects(resources.keep(KEY, { data: "x", path: "/y" }), /either data or path/);
  await assert.rejects(resources.keep(KEY, { path: tmpdir() }), /is not a file/);
  for (const type of ["", "x".repeat(1_025), "\ud800"]) await assert.rejects(new Resources("w").keep(KEY, { data: "x", type }), /the type of an artifact/);
  const { expires_at: expiry } = await new Resources("w").keep(KEY, { data: "x", ttlMs: Number.MAX_SAFE_INTEGER });
  assert.equal(expiry, "9999-01-01T00:00:00.000Z");
});

test("long texts and bytes are written in pieces that split no character, and are numbered", async () => {
  const sent: Message[] = [];
  const port: TaskPort = {
    send: (message) => void sent.push(message),
    writable: () => Promise.resolve(),
    keep: () => assert.fail(),
    resource: () => undefined,
    next: () => assert.fail(),
  };
  const task = new Task(KEY, dispatch(), new AbortController().signal, port);
  const text = `x${"😀".repeat(20_000)}`;
  await task.write("stdout", text);
  await task.write("custom", Buffer.alloc(100_000, 7));
  await task.log("a lone \ud800 surrogate");
  const chunks = sent.map(({ payload }) => (payload as FeedbackPayload).chunks?.[0]);
  const texts = chunks.filter((chunk) => chunk?.channel === "stdout");
  assert.equal(texts.map((chunk) => chunk?.text).join(""), text);
  assert.deepEqual(texts.map((chunk) => chunk?.index), [0, 1, 2]);
  assert.ok(texts.every((chunk) => chunk?.text?.isWellFormed()));
  const bytes = chunks.filter((chunk) => chunk?.channel === "custom").map((chunk) => Buffer.from(chunk?.data_base64 ?? "", "base64").length);
  assert.deepEqual(bytes, [65_536, 34_464]);
  assert.equal(chunks.at(-1)?.text, "a lone \ufffd surrogate\n");
});

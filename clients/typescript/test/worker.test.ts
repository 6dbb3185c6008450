/** The worker against a real server. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

import {
  LanewayError, Outcome, PermanentFailure, RetryableFailure, TaskStoppedError, Worker, WorkerSupersededError, type Client, type Task,
  type WorkerOptions,
} from "../src/index.js";
import { Proxy } from "./proxy.js";
import { idleMachine, QUIET, TestServer } from "./server.js";

const LIMIT = { timeoutMs: 30_000 };

let server: TestServer;
let client: Client;
before(async () => {
  server = await TestServer.start();
  client = server.client();
});
after(() => server.stop());

let names = 0;

/** Runs a worker with these handlers while `act` runs, and drains it. Each worker has its own name, and tests have their own kinds. */
async function withWorker(handlers: Record<string, (task: Task) => unknown>, options: Partial<WorkerOptions>, act: (worker: Worker) => Promise<void>): Promise<void> {
  const worker = new Worker({ name: `w-${names++}`, url: server.url, maxParallel: 4, ...QUIET, ...options });
  for (const [kind, handler] of Object.entries(handlers)) worker.handle(kind, handler);
  const running = worker.run({ signals: false });
  try {
    await act(worker);
  } finally {
    worker.drain(0);
    await running;
  }
}

/** A promise that a test resolves. */
function gate<Value = void>(): { opened: Promise<Value>; open: (value: Value) => void } {
  let open: (value: Value) => void = () => {};
  const opened = new Promise<Value>((resolve) => (open = resolve));
  return { opened, open };
}

/** Rejects when the signal is aborted. */
function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason as Error)));
}

test("a result, the progress, metrics and the log arrive", async () => {
  const reported = gate();
  const handler = async (task: Task): Promise<unknown> => {
    task.progress(0.5, "half");
    task.metrics({ rows: 12 });
    await task.log("one\ntwo");
    await task.write("stderr", `${"ü".repeat(20_000)}\n`);
    await reported.opened;
    return { sum: (task.payload["a"] as number) + 1, kind: task.kind, seq: task.seq };
  };
  await withWorker({ add: handler }, {}, async () => {
    const job = await client.jobs.submit({ kind: "add", payload: { a: 1 } });
    for await (const item of client.events.stream({ job: job.id, after: 0 })) {
      if (item.type !== "progress") continue;
      assert.deepEqual([item.progress.progress.fraction, item.progress.progress.message], [0.5, "half"]);
      break;
    }
    reported.open();
    assert.deepEqual((await client.jobs.result(job.id, LIMIT)).result, { sum: 2, kind: "add", seq: 1 });
    const lines: string[] = [];
    for await (const { stream, text } of client.jobs.iterateLogs(job.id)) lines.push(`${stream} ${text.slice(0, 40)}`);
    assert.deepEqual(lines.slice(0, 3), ['reports {"metrics":{"rows":12.0}}', "log one", "log two"]);
    assert.ok(lines.some((line) => line.startsWith("stderr üü")));
  });
});

test("a task has the trace of its caller", async () => {
  const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  const handler = (task: Task): unknown => ({ traceparent: task.traceparent, tracestate: task.tracestate });
  await withWorker({ traced: handler }, {}, async () => {
    const job = await client.jobs.submit({ kind: "traced", traceparent, tracestate: "vendor=1" });
    assert.equal(job.traceparent, traceparent);
    assert.deepEqual((await client.jobs.result(job.id, LIMIT)).result, { traceparent, tracestate: "vendor=1" });
  });
});

test("failures: retryable ones are retried, permanent ones are not, skipped tasks succeed", async () => {
  let tries = 0;
  const flaky = (): unknown => {
    if (++tries < 2) throw new RetryableFailure("busy", "try again");
    return { tries };
  };
  const broken = (): unknown => {
    throw new PermanentFailure("bad_input", "the width is missing", { remediation: "send a width" });
  };
  const circular = (): unknown => {
    const object: Record<string, unknown> = {};
    return Object.assign(object, { self: object });
  };
  await withWorker({ flaky, broken, circular, idle: () => Outcome.skipped() }, {}, async () => {
    const retry = { retries_max: 2, backoff: { base: "10ms", factor: 1, max: "10ms" } };
    const first = await client.jobs.run({ kind: "flaky", retry }, LIMIT);
    assert.deepEqual([first.result, first.failures], [{ tries: 2 }, 1]);
    const second = await client.jobs.wait((await client.jobs.submit({ kind: "broken", retry })).id, LIMIT);
    assert.deepEqual([second.state, second.attempt, second.error?.code], ["failed", 1, "bad_input"]);
    assert.match(JSON.stringify(second.error), /send a width/);
    assert.equal((await client.jobs.run({ kind: "idle" }, LIMIT)).state, "succeeded");
    const third = await client.jobs.wait((await client.jobs.submit({ kind: "circular", retry })).id, LIMIT);
    assert.equal(third.error?.code, "bad_result");
  });
});

test("payloads that are no objects, and results that are none", async () => {
  await withWorker({ mirror: (task) => task.payload["value"] }, {}, async () => {
    assert.deepEqual((await client.jobs.run({ kind: "mirror", payload: [1, "ü\u2028"] }, LIMIT)).result, { value: [1, "ü\u2028"] });
  });
});

test("a cancel aborts the signal of the handler", async () => {
  const started = gate();
  const seen = gate<unknown>();
  const handler = async ({ signal }: Task): Promise<unknown> => {
    started.open();
    return aborted(signal).catch((reason: unknown) => {
      seen.open(reason);
      throw reason;
    });
  };
  await withWorker({ endless: handler }, {}, async () => {
    const job = await client.jobs.submit({ kind: "endless" });
    await started.opened;
    await client.jobs.cancel(job.id);
    const reason = await seen.opened;
    assert.ok(reason instanceof TaskStoppedError && reason.why === "canceled");
    assert.equal((await client.jobs.wait(job.id, LIMIT)).state, "canceled");
  });
});

test("an attempt that takes too long is stopped and fails", async () => {
  await withWorker({ slow: ({ signal }) => aborted(signal) }, {}, async () => {
    const job = await client.jobs.submit({ kind: "slow", timeout: "300ms", retry: { retries_max: 0 } });
    const ended = await client.jobs.wait(job.id, LIMIT);
    assert.equal(ended.state, "failed");
    assert.match(JSON.stringify(ended.error), /timeout/i);
  });
});

test("concurrency by kind and in total", async () => {
  let [running, most] = [0, 0];
  const worker = new Worker({ name: `w-${names++}`, url: server.url, maxParallel: 3, ...QUIET });
  worker.handle("narrow", async () => {
    most = Math.max(most, ++running);
    await new Promise((wake) => setImmediate(wake));
    running -= 1;
  }, { concurrency: 2 });
  const done = worker.run({ signals: false });
  const { items } = await client.jobs.submitBatch({ jobs: Array.from({ length: 30 }, () => ({ kind: "narrow" })) });
  for (const { job } of items) assert.equal((await client.jobs.wait(job?.id ?? "", LIMIT)).state, "succeeded");
  assert.ok(most <= 2, `${most} ran at once`);
  worker.drain();
  await done;
});

test("artifacts: bytes and files are downloaded through the server, in ranges and over broken connections", async (context) => {
  const folder = await mkdtemp(join(tmpdir(), "laneway-ts-"));
  context.after(() => rm(folder, { recursive: true }));
  const data = Buffer.alloc(1_200_000, "0123456789");
  const file = join(folder, "report.bin");
  await writeFile(file, data);
  const make = async (task: Task): Promise<unknown> => {
    await task.addArtifact({ data: "hello", name: "hello.txt", mimeType: "text/plain" });
    await task.addArtifact({ path: file, name: "report.bin", removeFile: true });
    await assert.rejects(task.addArtifact({ path: join(folder, "missing") }), /is not a file/);
    return {};
  };
  await withWorker({ make }, {}, async () => {
    const job = await client.jobs.run({ kind: "make" }, LIMIT);
    const [text, large] = await client.jobs.artifacts(job.id);
    assert.ok(text && large);
    const response = await client.artifacts.get(text.id ?? "");
    assert.deepEqual([response.headers.get("content-type"), await response.text()], ["text/plain", "hello"]);
    assert.deepEqual(Buffer.from(await client.artifacts.bytes(large.id ?? "")), data);
    assert.deepEqual(Buffer.from(await client.artifacts.bytes(large.id ?? "", { offset: 1_199_995 })), data.subarray(-5));
    const proxy = await Proxy.start(server.url);
    context.after(() => proxy.stop());
    const parts: Uint8Array[] = [];
    for await (const part of new (await import("../src/index.js")).Client({ url: proxy.url }).artifacts.stream(large.id ?? "")) {
      if (parts.length === 0) proxy.cut();
      parts.push(part);
    }
    assert.deepEqual(Buffer.concat(parts), data);
    assert.ok(proxy.opened >= 2, "the download was resumed");
    assert.equal(await client.artifacts.save(text.id ?? "", join(folder, "copy.txt")), 5);
    assert.ok(existsSync(file));
  });
  assert.ok(!existsSync(file), "the worker removes the file when it ends");
});

test("a failed attempt leaves no artifact, and later tasks use resources of this worker", async () => {
  let kept: { id: string; worker: string; type: string } | undefined;
  const fail = async (task: Task): Promise<unknown> => {
    await task.addArtifact({ data: "x" });
    throw new PermanentFailure("no", "no");
  };
  const keep = async (task: Task): Promise<unknown> => {
    const artifact = await task.addArtifact({ data: "model", type: "model" });
    kept = { id: artifact.resource_id, worker: artifact.worker_id, type: "model" };
    return {};
  };
  const use = (task: Task): unknown => {
    const body = task.resource(kept?.id ?? "");
    return { text: body !== undefined && "data" in body ? Buffer.from(body.data).toString() : undefined };
  };
  await withWorker({ "art-fail": fail, "art-keep": keep, "art-use": use }, {}, async () => {
    const failed = await client.jobs.wait((await client.jobs.submit({ kind: "art-fail" })).id, LIMIT);
    assert.deepEqual(await client.jobs.artifacts(failed.id), []);
    await client.jobs.run({ kind: "art-keep" }, LIMIT);
    assert.ok(kept);
    const used = await client.jobs.run({ kind: "art-use", worker: { resources: [kept] } }, LIMIT);
    assert.deepEqual(used.result, { text: "model" });
  });
});

test("results arrive over broken connections, each once", async (context) => {
  const proxy = await Proxy.start(server.url);
  context.after(() => proxy.stop());
  const runs = new Map<string, number>();
  const handler = (task: Task): unknown => {
    runs.set(task.id, (runs.get(task.id) ?? 0) + 1);
    if (runs.size % 3 === 0) proxy.cut();
    return { id: task.id };
  };
  await withWorker({ shaky: handler }, { url: proxy.url }, async (worker) => {
    const { items } = await client.jobs.submitBatch({ jobs: Array.from({ length: 20 }, () => ({ kind: "shaky" })) });
    for (const { job } of items) {
      const ended = await client.jobs.result(job?.id ?? "", { timeoutMs: 60_000 });
      assert.deepEqual([ended.result, ended.attempt, runs.get(ended.id)], [{ id: ended.id }, 1, 1]);
    }
    assert.ok(proxy.opened > 3);
    assert.equal(worker.counts.inflight, 0);
  });
});

test("a task that runs while the server is killed goes on, and its result arrives at the restarted server", async (context) => {
  let own = await TestServer.start();
  const { dataDir } = own;
  const proxy = await Proxy.start(own.url);
  context.after(async () => {
    await proxy.stop();
    await own.stop();
  });
  const [started, released] = [gate(), gate()];
  let runs = 0;
  const handler = async (): Promise<unknown> => {
    runs += 1;
    started.open();
    await released.opened;
    return { runs };
  };
  await withWorker({ survives: handler }, { url: proxy.url }, async () => {
    const { id } = await own.client().jobs.submit({ kind: "survives" });
    await started.opened;
    await own.end("SIGKILL");
    released.open();
    own = await TestServer.start([], { dataDir });
    proxy.target = own.url;
    const job = await own.client().jobs.result(id, LIMIT);
    assert.deepEqual([job.result, job.attempt], [{ runs: 1 }, 1]);
  });
});

test("a handler that ignores its signal is given up, and keeps its task from running twice here", async () => {
  const [started, released] = [gate(), gate()];
  let runs = 0;
  const handler = async (): Promise<unknown> => {
    runs += 1;
    started.open();
    await released.opened;
    return { runs };
  };
  await withWorker({ deaf: handler }, { stopGraceMs: 50, maxParallel: 1 }, async (worker) => {
    const job = await client.jobs.submit({ kind: "deaf" });
    await started.opened;
    await client.jobs.cancel(job.id);
    assert.equal((await client.jobs.wait(job.id, LIMIT)).state, "canceled");
    const next = await client.jobs.submit({ kind: "deaf" });
    for await (const item of client.events.stream({ job: next.id, after: 0 })) {
      if (item.type === "event" && worker.counts.rejected > 0) break;
    }
    assert.equal(runs, 1);
    released.open();
    assert.equal((await client.jobs.wait(next.id, LIMIT)).state, "succeeded");
  });
});

test("a callback that fails does not end the worker", async (context) => {
  const errors = context.mock.method(console, "error", () => {});
  const fail = (): void => {
    throw new Error("as it is");
  };
  await withWorker({ guarded: () => ({}) }, { onRegistered: fail, onState: fail, log: fail }, async () => {
    assert.equal((await client.jobs.run({ kind: "guarded" }, LIMIT)).state, "succeeded");
  });
  assert.ok(errors.mock.callCount() > 0);
});

test("a drain finishes running tasks, and takes no new ones", async () => {
  const [started, released] = [gate(), gate()];
  const handler = async (): Promise<unknown> => {
    started.open();
    await released.opened;
    return { finished: true };
  };
  const worker = new Worker({ name: `w-${names++}`, url: server.url, ...QUIET });
  worker.handle("drained", handler);
  const running = worker.run({ signals: false });
  const first = await client.jobs.submit({ kind: "drained" });
  await started.opened;
  worker.drain();
  assert.equal(worker.state, "DRAINING");
  const second = await client.jobs.submit({ kind: "drained" });
  released.open();
  await running;
  assert.equal(worker.state, "CLOSED");
  assert.deepEqual((await client.jobs.get(first.id)).result, { finished: true });
  assert.equal((await client.jobs.get(second.id)).attempt, 0);
  await client.jobs.cancel(second.id);
});

test("SIGTERM drains a process: its running task ends, its result arrives, and it exits with 0", async (context) => {
  const folder = await mkdtemp(join(tmpdir(), "laneway-ts-"));
  context.after(() => rm(folder, { recursive: true }));
  const own = await TestServer.start();
  context.after(() => own.stop());
  const adapter = fileURLToPath(new URL("../../conformance/adapter.mjs", import.meta.url));
  const child = spawn(process.execPath, [adapter], { env: { ...idleMachine(own.url), LANEWAY_WORKER: "adapter" }, stdio: ["ignore", "pipe", "inherit"] });
  context.after(() => child.kill("SIGKILL"));
  const lines = (await import("node:readline")).createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const line = async (): Promise<string> => String((await lines.next()).value);
  assert.equal(await line(), "ready");
  const { id } = await own.client().jobs.submit({ kind: "wait", payload: { release: join(folder, "go") } });
  assert.equal(await line(), `run ${id} wait`);
  const exited = new Promise((resolve) => child.once("exit", resolve));
  child.kill("SIGTERM");
  await writeFile(join(folder, "go"), "");
  assert.equal(await line(), `end ${id}`);
  assert.equal(await exited, 0);
  assert.deepEqual((await own.client().jobs.get(id)).result, { released: true });
});

test("a second process with the name of a worker is denied while the first one answers", async () => {
  const registered = gate();
  const name = `w-${names++}`;
  await withWorker({ named: () => ({ by: 1 }) }, { name, onRegistered: () => registered.open() }, async () => {
    await registered.opened;
    const denied = gate<unknown>();
    const log: WorkerOptions["log"] = (level, _, fields) => level === "error" && denied.open(fields["code"]);
    await withWorker({ named: () => ({ by: 2 }) }, { name, log }, async () => {
      assert.equal(await denied.opened, "E.SESSION.DENIED");
      assert.deepEqual((await client.jobs.run({ kind: "named" }, LIMIT)).result, { by: 1 });
    });
  });
});

test("a worker is shown, rebound and drained by the server", async () => {
  const registered = gate();
  const worker = new Worker({ name: "w-shown", url: server.url, labels: { zone: "eu" }, lanes: ["main"], ...QUIET, onRegistered: () => registered.open() });
  worker.handle("shown", () => ({}));
  const running = worker.run({ signals: false });
  await registered.opened;
  const shown = await client.workers.get("w-shown");
  assert.equal(shown.id, "w-shown");
  assert.ok((await client.workers.list()).some(({ id }) => id === "w-shown"));
  assert.equal((await client.jobs.run({ kind: "shown", worker: { labels: { zone: "eu" } } }, LIMIT)).state, "succeeded");
  await client.workers.rebind("w-shown", { lanes: [] });
  await client.workers.drain("w-shown");
  await running;
});

test("packages are rejected: the outcome is in the audit list", async () => {
  const registered = gate();
  await withWorker({ packaged: () => ({}) }, { name: "w-pkg", onRegistered: () => registered.open() }, async () => {
    await registered.opened;
    const events = client.events.stream();
    await events.opened;
    const url = "https://packages.example/img.zip";
    await client.workers.changePackages("w-pkg", { operation: "install", name: "img", version: "1.0.0", url, sha256: "0".repeat(64) });
    for await (const item of events) {
      if (item.type === "event" && JSON.stringify(item.event).includes("E.PKG.PERMISSION")) break;
    }
  });
});

test("a middleware runs the rest of its chain with next", async () => {
  const outer = async (task: Task): Promise<unknown> => {
    const inner = await task.next({ added: true }, 20_000);
    return { wrapped: inner };
  };
  await withWorker({ "mw-outer": outer, "mw-host": (task) => ({ got: task.payload["added"] }) }, {}, async () => {
    const run = await client.runs.submit({
      nodes: [
        { node: "page", job: { kind: "mw-host", payload: {} }, middleware: { host: "page", chain: ["wrap"] } },
        { node: "wrap", job: { kind: "mw-outer", payload: {} }, middleware: { host: "page", chain: ["wrap"], index: 0 } },
      ],
    });
    const ended = await client.runs.wait(run.id, LIMIT);
    assert.equal(ended.state, "succeeded", JSON.stringify(ended));
    assert.match(JSON.stringify(ended), /"wrapped":\{"got":true\}/);
  });
});

test("a worker is checked before it runs", async () => {
  assert.throws(() => new Worker({ name: "" }), LanewayError);
  assert.throws(() => new Worker({ name: "w", maxParallel: 0 }), /maxParallel must be/);
  const worker = new Worker({ name: "w", url: "ftp://x" });
  await assert.rejects(worker.run(), /there is no handler/);
  worker.handle("k", () => {});
  assert.throws(() => worker.handle("k", () => {}), /has a handler already/);
  await assert.rejects(worker.run(), /the URL "ftp:\/\/x" is invalid/);
  assert.equal(new WorkerSupersededError("x").code, "E.SESSION.STALE_BINDING");
});

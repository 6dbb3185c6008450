/** The stream of events against a real server: live, from the past, over broken connections and over a restart. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { UnauthorizedError, type EventStream, type StreamItem } from "../src/index.js";
import { Proxy } from "./proxy.js";
import { TestServer } from "./server.js";

/** Reads items until one fits, and returns all of them. */
async function until(stream: AsyncIterator<StreamItem>, fits: (item: StreamItem) => boolean): Promise<StreamItem[]> {
  const items: StreamItem[] = [];
  for (;;) {
    const { done, value } = await stream.next();
    assert.ok(!done, `the stream ended after ${JSON.stringify(items)}`);
    items.push(value);
    if (fits(value)) return items;
  }
}

const isEnd = (job: string) => (item: StreamItem): boolean =>
  item.type === "event" && item.event.job?.id === job && item.event.type === "job.succeeded";

const numbers = (items: StreamItem[]): number[] => items.flatMap((item) => (item.type === "event" ? [item.event.number] : []));

function assertInOrderAndOnce(items: StreamItem[]): void {
  const found = numbers(items);
  assert.deepEqual(found, [...new Set(found)].sort((a, b) => a - b));
}

test("events come live, of one job, and from the past; a loop that ends closes the stream", async (context) => {
  const server = await TestServer.start();
  context.after(() => server.stop());
  const client = server.client();
  const live = client.events.stream();
  await live.opened;
  const job = await client.jobs.run({ kind: "echo" }, { timeoutMs: 20_000 });
  const seen = await until(live[Symbol.asyncIterator](), isEnd(job.id));
  assert.deepEqual(seen.map((item) => item.type === "event" && item.event.type).slice(0, 2), ["job.submitted", "job.started"]);
  live.close();
  const other = await client.jobs.run({ kind: "echo" }, { timeoutMs: 20_000 });
  for await (const item of client.events.stream({ job: job.id, after: 0 })) {
    assert.ok(item.type === "event" && item.event.job?.id === job.id);
    if (isEnd(job.id)(item)) break;
  }
  const past = await until(client.events.stream({ after: live.position ?? 0 })[Symbol.asyncIterator](), isEnd(other.id));
  assert.ok(numbers(past).every((number) => number > (live.position ?? 0)));
});

test("a stream goes on after broken connections and after a restart: in order, once, without a gap", async (context) => {
  const first = await TestServer.start();
  const proxy = await Proxy.start(first.url);
  let server = first;
  context.after(async () => {
    await proxy.stop();
    await server.stop();
  });
  const stream: EventStream = new (await import("../src/index.js")).Client({ url: proxy.url }).events.stream();
  await stream.opened;
  // Nothing was read yet: the position is known from the beginning.
  proxy.cut();
  const items = stream[Symbol.asyncIterator]();
  const all: StreamItem[] = [];
  for (let round = 0; round < 5; round++) {
    const job = await server.client().jobs.run({ kind: "echo" }, { timeoutMs: 20_000 });
    all.push(...(await until(items, isEnd(job.id))));
    if (round === 2) {
      await server.end("SIGKILL");
      server = await TestServer.start([], { dataDir: first.dataDir });
      proxy.target = server.url;
    }
    proxy.cut();
  }
  assertInOrderAndOnce(all);
  assert.ok(all.every((item) => item.type !== "gap"));
  const succeeded = all.filter((item) => item.type === "event" && item.event.type === "job.succeeded");
  assert.equal(succeeded.length, 5);
  assert.ok(proxy.opened >= 5);
  stream.close();
  assert.equal((await items.next()).done, true);
});

test("a number of another store is a gap, and the stream goes on with new events", async (context) => {
  const server = await TestServer.start();
  context.after(() => server.stop());
  const stream = server.client().events.stream({ after: 1_000_000 });
  const items = stream[Symbol.asyncIterator]();
  const { value } = await items.next();
  assert.ok(value?.type === "gap" && value.gap.after === 1_000_000);
  const job = await server.client().jobs.submit({ kind: "echo" });
  await until(items, isEnd(job.id));
  stream.close();
});

test("a signal ends the loop without an error, and a caller without rights gets one", async (context) => {
  const server = await TestServer.start();
  context.after(() => server.stop());
  const controller = new AbortController();
  const stream = server.client().events.stream({ signal: controller.signal });
  await stream.opened;
  const read = (async () => {
    for await (const item of stream) assert.ok(item);
  })();
  controller.abort();
  await read;
  await server.client().server.createToken({ role: "admin", tenant: "*" });
  const denied = server.client().events.stream();
  await assert.rejects(denied.opened, UnauthorizedError);
  await assert.rejects(denied[Symbol.asyncIterator]().next(), UnauthorizedError);
});

/** When a call is sent again, and which error it throws. The server side is scripted: it loses answers and rejects calls. */

import assert from "node:assert/strict";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { test, type TestContext } from "node:test";

import {
  ApiError, Client, ConflictError, ConnectionError, hasCode, LanewayError, LimitError, NotFoundError, TimeoutError, UnavailableError,
  type ClientOptions,
} from "../src/index.js";

interface Call {
  readonly method: string;
  readonly url: string;
  readonly headers: IncomingMessage["headers"];
  readonly body: unknown;
}

type Answer = (response: ServerResponse) => void;

const JOB = { id: "j-1", kind: "k", state: "queued" };

const json = (status: number, body: object, headers: Record<string, string> = {}): Answer => (response) => {
  response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(body));
};
const problem = (status: number, code: string, more: object = {}): Answer =>
  json(status, { type: "urn:x", title: "t", status, code, detail: "as it is", ...more });
/** The connection ends after the request was read: the outcome is unknown. */
const lost: Answer = (response) => void response.socket?.destroy();
/** The answer is cut off in its middle. */
const cut: Answer = (response) => {
  response.writeHead(200, { "content-type": "application/json", "content-length": "1000" });
  response.write('{"id":', () => response.socket?.destroy());
};
const never: Answer = () => {};

/** A server that answers calls in this order. */
async function script(context: TestContext, answers: Answer[], options: ClientOptions = {}): Promise<{ client: Client; calls: Call[] }> {
  const calls: Call[] = [];
  const server: Server = createServer((request, response) => {
    let text = "";
    request.on("data", (part: Buffer) => (text += part.toString()));
    request.on("end", () => {
      calls.push({ method: request.method ?? "", url: request.url ?? "", headers: request.headers, body: text === "" ? undefined : JSON.parse(text) });
      (answers.shift() ?? problem(500, "internal"))(response);
    });
  });
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  context.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  return { client: new Client({ url: `http://127.0.0.1:${port}`, retryWaitMaxMs: 50, ...options }), calls };
}

const key = (call: Call | undefined): unknown => (call?.body as { idempotency_key?: string }).idempotency_key;

test("a submit whose answer is lost is sent again with the same key", async (context) => {
  const { client, calls } = await script(context, [lost, cut, problem(503, "unavailable"), json(201, JOB)]);
  assert.equal((await client.jobs.submit({ kind: "k" })).id, "j-1");
  assert.equal(calls.length, 4);
  assert.match(String(key(calls[0])), /^auto-/);
  assert.equal(new Set(calls.map(key)).size, 1);
});

test("two submits have two keys, and a given key is kept", async (context) => {
  const { client, calls } = await script(context, [json(201, JOB), json(201, JOB), json(201, JOB)]);
  await client.jobs.submit({ kind: "k" });
  await client.jobs.submit({ kind: "k" });
  await client.jobs.submit({ kind: "k", idempotency_key: "order-1" });
  assert.notEqual(key(calls[0]), key(calls[1]));
  assert.equal(key(calls[2]), "order-1");
});

test("jobs of a batch get keys, and the batch is sent again", async (context) => {
  const { client, calls } = await script(context, [lost, json(200, { accepted: 2, rejected: 0, items: [] })]);
  await client.jobs.submitBatch({ jobs: [{ kind: "a" }, { kind: "b", idempotency_key: "mine" }] });
  const keys = calls.map(({ body }) => (body as { jobs: Array<{ idempotency_key: string }> }).jobs.map((job) => job.idempotency_key));
  assert.deepEqual(keys[0], keys[1]);
  assert.match(keys[0]?.[0] ?? "", /^auto-/);
  assert.equal(keys[0]?.[1], "mine");
});

test("without retries there are no keys, and nothing is sent again", async (context) => {
  const { client, calls } = await script(context, [lost], { retries: 0 });
  await assert.rejects(client.jobs.submit({ kind: "k" }), (error) => error instanceof ConnectionError && error.outcome === "unknown");
  assert.deepEqual(calls.map(key), [undefined]);
});

test("a retry of a job, a lease request and a manual firing are never sent twice when their outcome is unknown", async (context) => {
  for (const call of [
    (client: Client) => client.jobs.retry("j-1"),
    (client: Client) => client.leases.request({ worker: "w", lane: "l" }),
    (client: Client) => client.schedules.fire("sch_1"),
    (client: Client) => client.sessions.stop("s"),
  ]) {
    for (const [answer, kind] of [[lost, ConnectionError], [problem(503, "unavailable"), UnavailableError]] as const) {
      const { client, calls } = await script(context, [answer, json(201, JOB)]);
      await assert.rejects(call(client), kind);
      assert.equal(calls.length, 1);
    }
  }
});

test("a rejection that stored nothing is followed by another try, for every call", async (context) => {
  const limited = problem(429, "too_many", { retry_after_ms: 1 });
  const { client, calls } = await script(context, [limited, problem(503, "draining"), json(201, JOB)]);
  assert.equal((await client.jobs.retry("j-1")).id, "j-1");
  assert.equal(calls.length, 3);
});

test("a Retry-After beyond the longest wait is left to the caller", async (context) => {
  const { client, calls } = await script(context, [problem(429, "queue_full", { retry_after_ms: 60_000 })]);
  await assert.rejects(client.jobs.submit({ kind: "k" }), (error) => error instanceof LimitError && error.retryAfterMs === 60_000);
  assert.equal(calls.length, 1);
});

test("the header Retry-After counts, and tries have an end", async (context) => {
  const busy: Answer = json(429, { type: "t", title: "t", status: 429, code: "too_many", detail: "d" }, { "retry-after": "0" });
  const { client, calls } = await script(context, [busy, busy, busy, busy, busy, busy]);
  await assert.rejects(client.jobs.get("j-1"), (error) => hasCode(error, "too_many") && error.retryAfterMs === 0);
  assert.equal(calls.length, 5);
});

test("errors that stay are thrown at once, with their class, code, field and request id", async (context) => {
  const { client, calls } = await script(context, [problem(404, "not_found", { request_id: "r-1", field: "id" })]);
  const error = await client.jobs.get("j-1").then(() => assert.fail("no error"), (thrown: unknown) => thrown);
  assert.ok(error instanceof NotFoundError && error instanceof ApiError && error instanceof LanewayError);
  assert.deepEqual([error.code, error.status, error.field, error.requestId], ["not_found", 404, "id", "r-1"]);
  assert.equal(calls.length, 1);
});

test("an answer of something else than Laneway is an error that says so", async (context) => {
  const { client } = await script(context, [(response) => response.writeHead(502, { "content-type": "text/html" }).end("<h1>Bad Gateway</h1>")]);
  await assert.rejects(client.jobs.get("j-1"), (error) => error instanceof ApiError && error.status === 502 && /is the URL right/.test(error.detail));
});

test("a cancel that is sent again and finds the job canceled has succeeded", async (context) => {
  const ended = problem(409, "already_ended");
  const { client, calls } = await script(context, [lost, ended, json(200, { ...JOB, state: "canceled" })]);
  assert.equal((await client.jobs.cancel("j-1")).state, "canceled");
  assert.deepEqual(calls.map(({ method }) => method), ["POST", "POST", "GET"]);
  const again = await script(context, [ended]);
  await assert.rejects(again.client.jobs.cancel("j-1"), ConflictError);
});

test("a call without an answer ends at its time limit, and at its signal", async (context) => {
  const { client } = await script(context, [never, never], { retries: 0 });
  await assert.rejects(client.jobs.get("j-1", { timeoutMs: 20 }), TimeoutError);
  const controller = new AbortController();
  const waiting = client.jobs.get("j-1", { signal: controller.signal });
  controller.abort(new Error("not needed any more"));
  await assert.rejects(waiting, /not needed any more/);
});

test("a server that is not there: the call was not sent, and every call may be repeated", async () => {
  const server = createServer();
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  const { port } = server.address() as AddressInfo;
  await new Promise((closed) => server.close(closed));
  const client = new Client({ url: `http://127.0.0.1:${port}`, retryWaitMaxMs: 1 });
  await assert.rejects(client.jobs.retry("j-1"), (error) => error instanceof ConnectionError && error.outcome === "not_sent");
});

test("the token is read for every call, and names are encoded", async (context) => {
  const tokens = ["one", "two"];
  const { client, calls } = await script(context, [json(200, {}), json(200, {}), json(200, {})], { token: () => tokens.shift(), tenant: "acme" });
  await client.sessions.get("agent:a7/chat?");
  await client.sessions.get("reset");
  await client.jobs.list({ state: ["queued", "running"], limit: 5 });
  assert.deepEqual(calls.map(({ headers }) => headers.authorization), ["Bearer one", "Bearer two", undefined]);
  assert.deepEqual(calls.map(({ url }) => url), ["/v1/sessions/agent%3Aa7%2Fchat%3F", "/v1/sessions/%72eset", "/v1/jobs?state=queued&state=running&limit=5"]);
  assert.equal(calls[0]?.headers["laneway-tenant"], "acme");
});

test("names that would call another route are rejected", async (context) => {
  const { client, calls } = await script(context, []);
  for (const name of ["", ".", ".."]) await assert.rejects(async () => client.lanes.delete(name), LanewayError);
  assert.equal(calls.length, 0);
  assert.throws(() => new Client({ url: "localhost:7717" }), /write http:\/\/host:port/);
});

test("every code of the server has a class", async () => {
  const { PROBLEM_CODES } = await import("../src/generated/api.js");
  const { apiError } = await import("../src/errors.js");
  for (const code of PROBLEM_CODES) {
    const error = apiError({ type: "t", title: "t", status: 400, code, detail: "d" });
    assert.notEqual(error.constructor, ApiError, code);
  }
});

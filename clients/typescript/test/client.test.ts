/** The client against a real server. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import {
  Client, ConflictError, InvalidRequestError, JobNotSucceededError, NotFoundError, PermanentFailure, TimeoutError, UnauthorizedError, Worker,
  type Job,
} from "../src/index.js";
import { Proxy } from "./proxy.js";
import { QUIET, TestServer } from "./server.js";

const LIMIT = { timeoutMs: 30_000 };

let server: TestServer;
let client: Client;
before(async () => {
  server = await TestServer.start();
  client = server.client();
});
after(() => server.stop());

test("submit, wait, read", async () => {
  const job = await client.jobs.run({ kind: "echo", payload: { text: "hé" }, tags: ["first"] }, LIMIT);
  assert.deepEqual([job.state, job.result], ["succeeded", { text: "hé" }]);
  assert.deepEqual(await client.jobs.payload(job.id), { text: "hé" });
  assert.equal((await client.jobs.get(job.id)).id, job.id);
  assert.equal((await client.jobs.attempts(job.id)).length, 1);
  assert.deepEqual(await client.jobs.artifacts(job.id), []);
  const types = (await client.jobs.events(job.id)).map(({ type }) => type);
  assert.deepEqual([types[0], types.at(-1)], ["job.submitted", "job.succeeded"]);
});

test("an idempotent submit creates one job, and another request with its key is rejected", async () => {
  const request = { kind: "echo", payload: 1, idempotency_key: "order-1" };
  const [first, second] = await Promise.all([client.jobs.submit(request), client.jobs.submit(request)]);
  assert.equal(first.id, second.id);
  await assert.rejects(client.jobs.submit({ ...request, payload: 2 }), (error) => error instanceof ConflictError && error.code === "idempotency_mismatch");
});

test("a batch, item by item and all or none", async () => {
  const mixed = await client.jobs.submitBatch({ jobs: [{ kind: "echo" }, { kind: "echo", lane: "nowhere" }] });
  assert.deepEqual([mixed.accepted, mixed.rejected, mixed.items[1]?.problem?.code], [1, 1, "unknown_lane"]);
  const error = await client.jobs.submitBatch({ atomic: true, jobs: [{ kind: "echo" }, { kind: "echo", lane: "nowhere" }] }).catch((thrown: unknown) => thrown);
  assert.ok(error instanceof InvalidRequestError && error.field === "jobs[1].lane", String(error));
});

test("lists go on page by page", async () => {
  const jobs = Array.from({ length: 7 }, () => ({ kind: "echo", tags: ["paged"] }));
  await client.jobs.submitBatch({ jobs });
  const found: string[] = [];
  for await (const job of client.jobs.iterate({ tag: "paged", limit: 2 })) found.push(job.id);
  assert.equal(new Set(found).size, 7);
});

test("a job that fails is an error of run, and a permanent one is not retried", async () => {
  const error = await client.jobs.run({ kind: "fail", payload: { times: 99, permanent: true } }, LIMIT).catch((thrown: unknown) => thrown);
  assert.ok(error instanceof JobNotSucceededError);
  assert.deepEqual([error.job.state, error.job.attempt], ["failed", 1]);
  const again = await client.jobs.retry(error.job.id);
  assert.equal((await client.jobs.wait(again.id, LIMIT)).retry_of, error.job.id);
});

test("wait has an end, explain has a reason, cancel ends the job", async () => {
  await client.lanes.put("shut", { paused: true });
  const job = await client.jobs.submit({ kind: "echo", lane: "shut" });
  await assert.rejects(client.jobs.wait(job.id, { timeoutMs: 50 }), TimeoutError);
  const explanation = await client.jobs.explain(job.id);
  assert.deepEqual(explanation.blocked_by.map(({ code }) => code), ["lane_paused"]);
  const controller = new AbortController();
  const waiting = client.jobs.wait(job.id, { signal: controller.signal });
  controller.abort(new Error("enough"));
  await assert.rejects(waiting, /enough/);
  assert.equal((await client.jobs.cancel(job.id)).state, "canceled");
  await assert.rejects(client.jobs.cancel(job.id), (error) => error instanceof ConflictError && error.code === "already_ended");
});

test("a wait goes on while the server restarts", async (context) => {
  const first = await TestServer.start();
  const proxy = await Proxy.start(first.url);
  let own = first;
  context.after(async () => {
    await proxy.stop();
    await own.stop();
  });
  const far = new Client({ url: proxy.url, retries: 1 });
  const job = await far.jobs.submit({ kind: "later" });
  const run = await far.runs.submit({ nodes: [{ node: "a", job: { kind: "later" } }] });
  const waiting = Promise.all([far.jobs.wait(job.id, LIMIT), far.runs.wait(run.id, LIMIT)]);
  await own.end("SIGKILL");
  const worker = new Worker({ name: "w-later", url: proxy.url, ...QUIET });
  worker.handle("later", () => ({ ok: true }));
  const running = worker.run({ signals: false });
  own = await TestServer.start([], { dataDir: first.dataDir });
  proxy.target = own.url;
  const [endedJob, endedRun] = await waiting;
  assert.deepEqual([endedJob.result, endedRun.state], [{ ok: true }, "succeeded"]);
  worker.drain();
  await running;
});

test("lanes", async () => {
  const lane = await client.lanes.put("fast", { running_max: 3 });
  assert.deepEqual([lane.name, lane.running_max], ["fast", 3]);
  assert.equal((await client.lanes.pause("fast")).paused, true);
  assert.equal((await client.lanes.resume("fast")).paused, false);
  assert.ok((await client.lanes.list()).lanes.some(({ name }) => name === "fast"));
  await client.lanes.delete("fast");
  await assert.rejects(client.lanes.get("fast"), NotFoundError);
});

test("sessions run in order and can be stopped", async () => {
  const session = "agent:a7/chat 1";
  const first = await client.jobs.submit({ kind: "sleep", payload: { ms: 60_000 }, session });
  const second = await client.jobs.submit({ kind: "echo", session });
  assert.equal((await client.sessions.get(session)).key, session);
  const keys: string[] = [];
  for await (const one of client.sessions.iterate()) keys.push(one.key);
  assert.ok(keys.includes(session));
  await client.sessions.reportUsage(session, { tokens: 90_000, window: 128_000 });
  await client.sessions.stopAll(session);
  for (const { id } of [first, second]) assert.equal((await client.jobs.wait(id, LIMIT)).state, "canceled");
  await client.sessions.reset(session);
});

test("schedules", async () => {
  const schedule = await client.schedules.create({ name: "hourly", every: "1h", job: { kind: "echo", payload: 1 } });
  await assert.rejects(client.schedules.create({ name: "hourly", every: "1h", job: { kind: "echo" } }), (error) => error instanceof ConflictError && error.code === "already_exists");
  assert.equal((await client.schedules.update(schedule.id, { every: "2h" })).every, "2h");
  const fired = await client.schedules.fire(schedule.id);
  assert.ok(fired.fired && fired.job_id);
  assert.equal((await client.jobs.wait(fired.job_id, LIMIT)).state, "succeeded");
  assert.equal((await client.schedules.firings(schedule.id)).firings.length, 1);
  assert.equal((await client.schedules.pause(schedule.id)).enabled, false);
  assert.equal((await client.schedules.resume(schedule.id)).enabled, true);
  assert.equal((await client.schedules.preview({ cron: "0 9 * * 1-5", zone: "Europe/Berlin", count: 3 })).firings.length, 3);
  const ids: string[] = [];
  for await (const one of client.schedules.iterate()) ids.push(one.id);
  assert.deepEqual(ids, [schedule.id]);
  await client.schedules.delete(schedule.id);
  await assert.rejects(client.schedules.get(schedule.id), NotFoundError);
});

test("runs pass results from node to node", async () => {
  const run = await client.runs.submit({
    name: "two-steps",
    nodes: [
      { node: "a", job: { kind: "echo", payload: { n: 1 } } },
      { node: "b", job: { kind: "echo", payload: {} }, depends_on: ["a"] },
    ],
  });
  const ended = await client.runs.wait(run.id, LIMIT);
  assert.equal(ended.state, "succeeded");
  assert.deepEqual(ended.nodes?.map(({ node }) => node).sort(), ["a", "b"]);
  assert.ok((await client.runs.list()).runs.some(({ id }) => id === run.id));
  await client.lanes.put("halted", { paused: true });
  const stuck = await client.runs.submit({ lane: "halted", nodes: [{ node: "a", job: { kind: "echo" } }] });
  await client.runs.cancel(stuck.id);
  assert.equal((await client.runs.wait(stuck.id, LIMIT)).state, "canceled");
});

test("the server itself, and any call by its operation id", async () => {
  assert.equal((await client.server.health()).status, "ok");
  assert.equal((await client.server.caller()).role, "admin");
  assert.match(await client.server.metrics(), /laneway_jobs_total/);
  assert.equal((await client.server.statsHistory({ range: "1d" })).points.length, 96);
  assert.ok((await client.server.stats()).lanes.some(({ counts }) => counts !== undefined && counts.submitted > 0));
  assert.ok((await client.server.audit()).entries.length > 0);
  const instance = await client.call("put_instance", { path: { id: "desk" }, body: { port: 9_868, token: "secret" } });
  assert.ok(instance?.has_token);
  assert.equal((await client.server.drain()).draining, true);
  assert.equal((await client.server.drain(false)).draining, false);
});

test("pull workers: a lease is kept, renewed and released", async () => {
  await client.lanes.put("pull", { dispatch: "claim" });
  const request = { worker: "puller", lane: "pull" };
  const none = await client.leases.work(request, () => assert.fail("there is no job"));
  assert.deepEqual([none.granted, none.granted ? "" : none.reason], [false, "nothing_eligible"]);
  const job = await client.jobs.submit({ kind: "anything", lane: "pull", payload: { n: 4 } });
  const worked = await client.leases.work(request, async (leased) => {
    assert.equal((await client.leases.get(leased.lease.id)).worker, "puller");
    assert.equal((await client.leases.list()).length, 1);
    await leased.report(0.5, "half");
    assert.equal((await client.jobs.get(job.id)).progress?.message, "half");
    return { twice: (leased.payload as { n: number }).n * 2 };
  });
  assert.deepEqual(worked, { granted: true, job: job.id, outcome: "succeeded" });
  assert.deepEqual((await client.jobs.get(job.id)).result, { twice: 8 });
  assert.ok((await client.leases.capacity()).total > 0);
});

test("pull workers: failures, cancellation and lost leases", async () => {
  await client.lanes.put("pull", { dispatch: "claim" });
  const request = { worker: "puller", lane: "pull" };
  const work = async (handler: Parameters<Client["leases"]["work"]>[1]): Promise<[string, Job]> => {
    const job = await client.jobs.submit({ kind: "anything", lane: "pull" });
    const worked = await client.leases.work(request, handler);
    return [worked.granted ? worked.outcome : worked.reason, await client.jobs.get(job.id)];
  };
  const [outcome, failed] = await work(() => {
    throw new PermanentFailure("bad_input", "no");
  });
  assert.deepEqual([outcome, failed.state, failed.error?.code], ["failed", "failed", "bad_input"]);
  const [lost, revoked] = await work(async (leased) => client.leases.revoke(leased.lease.id));
  assert.deepEqual([lost, revoked.state], ["lost", "failed"]);
});

test("a token that the server does not know is denied", async () => {
  const closed = await TestServer.start();
  try {
    const admin = await closed.client().server.createToken({ role: "admin", tenant: "*" });
    await assert.rejects(closed.client({ token: "lw_0_wrong" }).jobs.list(), UnauthorizedError);
    const owner = closed.client({ token: admin.secret ?? "" });
    const { secret } = await owner.server.createToken({ role: "submitter", tenant: "acme" });
    assert.equal((await closed.client({ token: secret ?? "" }).server.caller()).tenant, "acme");
    assert.equal((await closed.client({ token: admin.secret ?? "", tenant: "acme" }).jobs.submit({ kind: "echo" })).tenant, "acme");
    assert.equal((await owner.server.tokens()).length, 2);
  } finally {
    await closed.stop();
  }
});

/**
 * The adapter of the conformance suite, see clients/conformance: a worker with a few kinds that prints what it does. The
 * environment names the server (`LANEWAY_URL`, `LANEWAY_TOKEN`) and the worker (`LANEWAY_WORKER`).
 */

import { existsSync } from "node:fs";

import { PermanentFailure, RetryableFailure, Worker, WorkerSupersededError, type Task } from "@laneway/client";

/** How often `wait` looks for its file. */
const LOOK_MS = 20;

const print = (line: string): void => void process.stdout.write(`${line}\n`);

/** Prints the beginning and the end of a handler, and whether it saw its cancellation. */
function printed<Payload>(handler: (task: Task<Payload>) => unknown): (task: Task<Payload>) => Promise<unknown> {
  return async (task) => {
    print(`run ${task.id} ${task.kind}`);
    task.signal.addEventListener("abort", () => print(`canceled ${task.id}`), { once: true });
    try {
      return await handler(task);
    } finally {
      print(`end ${task.id}`);
    }
  };
}

/** Resolves when the file exists, and rejects when the signal is aborted. */
function released(file: string | undefined, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const look = setInterval(() => {
      if (file === undefined || !existsSync(file)) return;
      clearInterval(look);
      resolve();
    }, LOOK_MS);
    signal.addEventListener("abort", () => {
      clearInterval(look);
      reject(signal.reason as Error);
    });
  });
}

const worker = new Worker({
  name: process.env["LANEWAY_WORKER"] ?? "conformance",
  maxParallel: 4,
  onRegistered: () => print("ready"),
});

worker.handle("echo", printed((task) => task.payload));
worker.handle("fail", printed<{ message?: string }>(({ payload }) => {
  throw new RetryableFailure("fail", payload.message ?? "failed");
}));
worker.handle("fatal", printed<{ message?: string }>(({ payload }) => {
  throw new PermanentFailure("fatal", payload.message ?? "failed for good");
}));
worker.handle("wait", printed<{ release?: string }>(async ({ payload, signal }) => {
  await released(payload.release, signal);
  return { released: true };
}));
worker.handle("progress", printed<{ steps: number }>((task) => {
  for (let step = 1; step <= task.payload.steps; step++) task.progress(step / task.payload.steps, `${step} of ${task.payload.steps}`);
  return task.payload;
}));
worker.handle("log", printed<{ lines: string[] }>(async (task) => {
  for (const line of task.payload.lines) await task.log(line);
  return {};
}));

try {
  await worker.run();
  process.exit(0);
} catch (error) {
  if (!(error instanceof WorkerSupersededError)) throw error;
  print(`denied ${error.code}`);
  process.exit(3);
}

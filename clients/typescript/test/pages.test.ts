/**
 * Every program of docs/guides/typescript.md and of the README is compiled and run as it is printed. A block `ts NAME` is the
 * file NAME. What it prints must be what its comments `// → …` show. A file whose name begins with `worker` runs until the page
 * ends, and must then end with 0 on SIGTERM.
 */

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { idleMachine, TestServer } from "./server.js";

const run = promisify(execFile);
const PACKAGE = fileURLToPath(new URL("../..", import.meta.url));

interface Program {
  readonly name: string;
  readonly text: string;
  readonly prints: string[];
}

async function programsOf(page: string): Promise<Program[]> {
  const text = await readFile(join(PACKAGE, page), "utf8");
  return [...text.matchAll(/^```ts ?(\S*)\n([\s\S]*?)^```$/gm)].map(([, name, program = ""], index) => ({
    name: name || `block-${index}.ts`,
    text: program,
    prints: [...program.matchAll(/\/\/ → (.*)$/gm)].map(([, line = ""]) => line),
  }));
}

/** Compiles programs in a folder of the package, so that they import it by its name. Returns the folder of the results. */
async function compile(programs: readonly Program[], folder: string): Promise<string> {
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder, { recursive: true });
  await Promise.all(programs.map(({ name, text }) => writeFile(join(folder, name), text)));
  const tsc = join(PACKAGE, "node_modules/typescript/bin/tsc");
  const flags = ["--strict", "--module", "nodenext", "--target", "es2022", "--types", "node", "--skipLibCheck", "--rootDir", folder, "--outDir", join(folder, "out")];
  await run(process.execPath, [tsc, ...flags, ...programs.map(({ name }) => join(folder, name))]).catch((error: { stdout?: string }) => {
    assert.fail(`the programs of the page do not compile:\n${error.stdout}`);
  });
  return join(folder, "out");
}

for (const page of ["../../docs/guides/typescript.md", "README.md"]) {
  test(`the programs of ${basename(page)} print what is shown`, { timeout: 80_000 }, async (context) => {
    const programs = await programsOf(page);
    assert.ok(programs.length > 0);
    assert.equal(new Set(programs.map(({ name }) => name)).size, programs.length, "two programs have one name");
    const folder = await compile(programs, join(PACKAGE, "dist/pages", basename(page, ".md")));
    const server = await TestServer.start();
    context.after(() => server.stop());
    const env = idleMachine(server.url);
    const ends: Array<() => Promise<unknown>> = [];
    for (const { name, prints } of programs) {
      const file = join(folder, name.replace(/ts$/, "js"));
      if (name.startsWith("worker")) {
        const child = spawn(process.execPath, [file], { env, stdio: ["ignore", "inherit", "inherit"] });
        const ended = new Promise((resolve) => child.once("exit", resolve));
        context.after(() => child.kill("SIGKILL"));
        ends.push(() => {
          child.kill("SIGTERM");
          return ended;
        });
        continue;
      }
      const { stdout } = await run(process.execPath, [file], { env, timeout: 40_000 });
      assert.deepEqual(stdout.trimEnd().split("\n"), prints, `${page}, ${name}`);
    }
    for (const end of ends) assert.equal(await end(), 0);
  });
}

test("the package can be packed, installed into an empty project and used", { timeout: 80_000 }, async (context) => {
  const folder = await mkdtemp(join(tmpdir(), "laneway-ts-"));
  const server = await TestServer.start();
  context.after(async () => {
    await server.stop();
    await rm(folder, { recursive: true });
  });
  const { stdout } = await run("npm", ["pack", "--silent", "--pack-destination", folder], { cwd: PACKAGE });
  await writeFile(join(folder, "package.json"), JSON.stringify({ name: "app", type: "module", private: true }));
  await run("npm", ["install", "--silent", "--offline", "--omit=peer", "--no-audit", "--no-fund", `./${stdout.trim()}`], { cwd: folder });
  const program = `
    import { Client, Worker } from "@laneway/client";
    console.log((await new Client().jobs.run({ kind: "echo", payload: { n: 1 } })).result.n);
    const worker = new Worker({ name: "w", log: (level, message, { reason }) => { if (level === "warn") { console.log(reason); worker.drain(); } } });
    worker.handle("k", () => {});
    await worker.run();
  `;
  await writeFile(join(folder, "app.js"), program);
  const printed = await run(process.execPath, [join(folder, "app.js")], { env: { ...process.env, LANEWAY_URL: server.url, NODE_PATH: "" } });
  const [first, second] = printed.stdout.trimEnd().split("\n");
  assert.equal(first, "1");
  // Without `ws` and without a WebSocket of the platform, a worker says what to do.
  if (!("WebSocket" in globalThis)) assert.match(second ?? "", /use Node 22 or newer, or install the package ws/);
});

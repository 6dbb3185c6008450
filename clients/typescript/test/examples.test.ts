/** The examples, run as a user would run them. */

import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { TestServer } from "./server.js";

/** The names under which distributions install Chromium. */
const BROWSERS = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"];

function hasChromium(): boolean {
  return BROWSERS.some((name) => {
    try {
      execFileSync("sh", ["-c", `command -v ${name}`], { stdio: "ignore" });
      return true;
    } catch {
      return false;
    }
  });
}

const skip = hasChromium() ? false : "there is no Chromium on this machine; install it (Debian and Ubuntu: apt-get install chromium)";

test("examples/browser-fleet.ts visits its pages and closes its browsers", { skip, timeout: 180_000 }, async (context) => {
  const server = await TestServer.start();
  const folder = await mkdtemp(join(tmpdir(), "laneway-ts-"));
  context.after(async () => {
    // By SIGTERM, so that the server closes browsers that an example left open.
    await server.end("SIGTERM");
    await server.stop();
    await rm(folder, { recursive: true });
  });
  const example = fileURLToPath(new URL("../examples/browser-fleet.js", import.meta.url));
  const { stdout } = await promisify(execFile)(process.execPath, [example, folder], { env: { ...process.env, LANEWAY_URL: server.url } });
  const lines = stdout.trimEnd().split("\n");
  assert.deepEqual([lines[0], lines.at(-1)], ["2 browsers are open", "all browsers are closed"]);
  for (const name of ["apples", "pears", "plums", "figs"]) {
    assert.ok(lines.some((line) => line.startsWith(`All about ${name}: ${name}.png, `)), stdout);
    const png = await readFile(join(folder, `${name}.png`));
    assert.equal(png.subarray(1, 4).toString(), "PNG");
  }
  assert.deepEqual((await server.client().browsers.list()).browsers, []);
  assert.deepEqual((await server.client().profiles.list()).profiles, []);
});

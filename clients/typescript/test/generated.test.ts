/** The generated types are those of the schemas in docs/schema. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { OPERATIONS } from "../src/generated/api.js";

test("the generated files are up to date", () => {
  const script = fileURLToPath(new URL("../../scripts/generate.mjs", import.meta.url));
  const { status, stderr } = spawnSync(process.execPath, [script, "--check"], { encoding: "utf8" });
  assert.equal(status, 0, stderr);
});

test("every route of docs/http-api.md is an operation", async () => {
  const { readFile } = await import("node:fs/promises");
  const page = await readFile(new URL("../../../../docs/http-api.md", import.meta.url), "utf8");
  const routes = [...page.matchAll(/^\| `([A-Z]+) (\/[^`]*)` \| `(\w+)` \|/gm)].map(([, method, path, id]) => [id, method, path]);
  assert.ok(routes.length > 70, `only ${routes.length} routes were found`);
  const known = Object.entries(OPERATIONS).map(([id, [method, path]]) => `${id} ${method} ${path}`);
  for (const [id, method, path] of routes) assert.ok(known.includes(`${id} ${method} ${path}`), `${id} ${method} ${path}`);
});

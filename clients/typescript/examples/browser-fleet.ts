/**
 * A fleet of browsers: profiles are created, their browsers are started, pages are visited by scripts, screenshots are
 * downloaded, and everything is closed and removed.
 *
 *   node dist/examples/browser-fleet.js [FOLDER]
 *
 * The server is the one of `LANEWAY_URL`. Its machine needs Chromium. FOLDER receives the screenshots; it is the current one by
 * default. Scripts need the role operator.
 */

import { join } from "node:path";

import { Client, hasCode, type Job, type JobRequest } from "@laneway/client";

/** How many browsers are open at once. */
const SIZE = 2;
/** How long a start, a visit or a stop may take, in milliseconds. */
const LIMIT = { timeoutMs: 120_000 };

/** Pages to visit: any addresses of the web. These need no server. */
const PAGES = ["apples", "pears", "plums", "figs"].map((name) => ({
  name,
  url: `data:text/html,<title>${name}</title><h1>All about ${name}</h1>`,
}));

interface Visit {
  results: { heading: string };
}

/** A job that reads the heading of a page and takes a screenshot. */
function visit(profileId: string, page: (typeof PAGES)[number]): JobRequest {
  const steps = [
    { kind: "navigate", url: page.url },
    { kind: "extract", selector: "h1", name: "heading" },
    { kind: "screenshot", name: page.name },
  ];
  return { kind: "script_run", payload: { profileId, script: { steps } }, tags: ["fleet"] };
}

/** Creates a profile, or uses the one that an earlier run left behind. */
async function profile(client: Client, id: string): Promise<string> {
  try {
    await client.profiles.create({ id, window: { width: 800, height: 600 } });
  } catch (error) {
    if (!hasCode(error, "already_exists")) throw error;
  }
  return id;
}

/** Visits all pages, spread over the open browsers. The server runs as many visits at once as its limits allow. */
async function visitAll(client: Client, profiles: readonly string[], folder: string): Promise<void> {
  const jobs = PAGES.map((page, index) => visit(profiles[index % profiles.length] ?? "", page));
  const { items } = await client.jobs.submitBatch({ jobs, atomic: true });
  for (const { job } of items) {
    if (!job) continue;
    const ended: Job = await client.jobs.result(job.id, LIMIT);
    const [screenshot] = await client.jobs.artifacts(ended.id);
    const name = (screenshot?.metadata as { name?: string } | undefined)?.name ?? "page.png";
    const length = await client.artifacts.save(screenshot?.id ?? "", join(folder, name));
    console.log(`${(ended.result as Visit).results.heading}: ${name}, ${length} bytes`);
  }
}

const client = new Client();
const folder = process.argv[2] ?? ".";
const ids = Array.from({ length: SIZE }, (_, index) => `fleet-${index + 1}`);
const profiles = await Promise.all(ids.map((id) => profile(client, id)));
try {
  const starts = await Promise.all(profiles.map((id) => client.browsers.start(id)));
  await Promise.all(starts.map(({ id }) => client.jobs.result(id, LIMIT)));
  console.log(`${(await client.browsers.list()).browsers.length} browsers are open`);
  await visitAll(client, profiles, folder);
} finally {
  for (const id of profiles) {
    const { open } = await client.profiles.get(id);
    if (open) await client.jobs.result((await client.browsers.stop(id)).id, LIMIT);
    await client.profiles.delete(id, { force: true });
  }
  console.log("all browsers are closed");
}

/** Starts the server binary for tests, on a port that the system chooses and with a data directory of its own. */

import { spawn, type ChildProcess } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { Client, type ClientOptions } from "../src/index.js";

/** Options of workers in tests: no log, and no load, because a worker on a full disk accepts no tasks. */
export const QUIET = { log: () => {}, vitals: () => ({}) };

/** The environment of programs with workers: the machine looks idle to them. */
export function idleMachine(url: string): NodeJS.ProcessEnv {
  return { ...process.env, LANEWAY_URL: url, NODE_OPTIONS: `--import=${new URL("idle-machine.js", import.meta.url).href}` };
}

/** How long a server may take to start. Only one that hangs takes so long. */
const START_LIMIT_MS = 60_000;

/** The servers of this process. They must not outlive it, also when a test runner ends it early. */
const children = new Set<ChildProcess>();
process.once("exit", () => {
  for (const child of children) child.kill("SIGKILL");
});
process.once("SIGTERM", () => process.exit(143));

/** A running server. */
export class TestServer {
  readonly url: string;
  readonly dataDir: string;
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess, url: string, dataDir: string) {
    this.#child = child;
    this.url = url;
    this.dataDir = dataDir;
  }

  /** Starts a server. `settings` are keys of the configuration, such as `workers.lease=2s`. */
  static async start(settings: readonly string[] = [], options: { dataDir?: string; listen?: string } = {}): Promise<TestServer> {
    const binary = process.env["LANEWAY_BIN"];
    if (binary === undefined || !existsSync(binary)) throw new Error(`LANEWAY_BIN must name the program laneway, not ${binary}`);
    const dataDir = options.dataDir ?? (await mkdtemp(join(tmpdir(), "laneway-ts-")));
    const args = ["serve", "--listen", options.listen ?? "127.0.0.1:0", "--data-dir", dataDir, ...settings.flatMap((one) => ["--set", one])];
    const child = spawn(binary, args, { stdio: ["ignore", "pipe", "pipe"] });
    children.add(child);
    child.once("exit", () => children.delete(child));
    const url = await bannerUrl(child);
    return new TestServer(child, url, dataDir);
  }

  /** A client of this server. */
  client(options: ClientOptions = {}): Client {
    return new Client({ url: this.url, ...options });
  }

  /** Ends the process with a signal and waits for its end. The data stay. */
  async end(signal: NodeJS.Signals = "SIGTERM"): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const ended = new Promise((resolve) => this.#child.once("exit", resolve));
    this.#child.kill(signal);
    await ended;
  }

  /** Ends the process and removes its data. */
  async stop(): Promise<void> {
    await this.end("SIGKILL");
    await rm(this.dataDir, { recursive: true, force: true });
  }
}

/** The address that the banner names. */
function bannerUrl(child: ChildProcess): Promise<string> {
  return new Promise((resolve, reject) => {
    let text = "";
    const timer = setTimeout(() => reject(new Error(`the server did not start:\n${text}`)), START_LIMIT_MS);
    const read = (data: Buffer): void => {
      text += data.toString();
      const found = /^\s+api\s+(http:\/\/\S+)\/v1$/m.exec(text);
      if (found?.[1] === undefined) return;
      clearTimeout(timer);
      resolve(found[1]);
      // The rest of the output is not needed, but must be read.
      text = "";
    };
    child.stdout?.on("data", read);
    child.stderr?.on("data", read);
    child.once("exit", (code) => {
      clearTimeout(timer);
      reject(new Error(`the server ended with ${code}:\n${text}`));
    });
  });
}

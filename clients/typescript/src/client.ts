/** The client: one object for all calls of the HTTP API. */

import { Artifacts } from "./api/artifacts.js";
import { Browsers, Profiles } from "./api/browsers.js";
import { Events } from "./api/events.js";
import { Jobs } from "./api/jobs.js";
import { Lanes } from "./api/lanes.js";
import { Leases } from "./api/leases.js";
import { Runs } from "./api/runs.js";
import { Schedules } from "./api/schedules.js";
import { Server } from "./api/server.js";
import { Sessions } from "./api/sessions.js";
import { Workers } from "./api/workers.js";
import type { Operations } from "./generated/api.js";
import { Transport, type CallArguments, type ClientOptions } from "./http.js";

/** A client of one server. It holds no connection and needs no closing. */
export class Client {
  /** Jobs: submit, read, wait, cancel, retry, explain. */
  readonly jobs: Jobs;
  /** Runs: jobs that depend on one another. */
  readonly runs: Runs;
  /** Sessions: jobs of one conversation, in order. */
  readonly sessions: Sessions;
  /** Schedules: jobs that are submitted at times. */
  readonly schedules: Schedules;
  /** The stream of events. */
  readonly events: Events;
  /** Artifacts: data that a job made. */
  readonly artifacts: Artifacts;
  /** Leases: work for pull workers. */
  readonly leases: Leases;
  /** Lanes: queues with limits. */
  readonly lanes: Lanes;
  /** The connected workers. */
  readonly workers: Workers;
  /** Browser profiles. */
  readonly profiles: Profiles;
  /** The browsers of the server's machine. */
  readonly browsers: Browsers;
  /** The server itself. */
  readonly server: Server;
  readonly #transport: Transport;

  constructor(options: ClientOptions = {}) {
    const transport = new Transport(options);
    this.#transport = transport;
    this.jobs = new Jobs(transport);
    this.runs = new Runs(transport);
    this.sessions = new Sessions(transport);
    this.schedules = new Schedules(transport);
    this.events = new Events(transport);
    this.artifacts = new Artifacts(transport);
    this.leases = new Leases(transport);
    this.lanes = new Lanes(transport);
    this.workers = new Workers(transport);
    this.profiles = new Profiles(transport);
    this.browsers = new Browsers(transport);
    this.server = new Server(transport);
  }

  /** The URL of the server. */
  get url(): string {
    return this.#transport.url;
  }

  /** Any call of the API by its operation id, such as `client.call("put_instance", …)`. */
  call<Id extends keyof Operations>(id: Id, call: CallArguments<Id>): Promise<Operations[Id]["answer"]> {
    return this.#transport.call(id, call);
  }
}

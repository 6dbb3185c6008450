/** The connected workers, as the server sees them. A worker of this program is in `worker/`. */

import type { DrainRequest, PackageRequest, RebindRequest, Worker, WorkerCommandSent } from "../generated/api.js";
import type { CallOptions, Transport } from "../http.js";

/** The calls about workers. */
export class Workers {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** A worker: state, load, registration. */
  get(id: string, options: CallOptions = {}): Promise<Worker> {
    return this.#transport.call("get_worker", { ...options, path: { id } });
  }

  /** The workers, including those that lost their connection and may reconnect. */
  async list(options: CallOptions = {}): Promise<Worker[]> {
    return (await this.#transport.call("list_workers", options)).workers;
  }

  /** The worker gets no new tasks, finishes its attempts and disconnects. `{ drain: false }` reverts this. */
  drain(id: string, request: DrainRequest = {}, options: CallOptions = {}): Promise<Worker> {
    return this.#transport.call("drain_worker", { ...options, path: { id }, body: request, repeatable: true });
  }

  /** The worker gets jobs of these lanes only; no lanes mean all. */
  rebind(id: string, request: RebindRequest, options: CallOptions = {}): Promise<Worker> {
    return this.#transport.call("rebind_worker", { ...options, path: { id }, body: request, repeatable: true });
  }

  /** Installs or removes a package. The outcome is in the audit list. */
  changePackages(id: string, request: PackageRequest, options: CallOptions = {}): Promise<WorkerCommandSent> {
    return this.#transport.call("change_worker_packages", { ...options, path: { id }, body: request, repeatable: true });
  }
}

/** Lanes: queues with limits. Changes need a server-wide token. */

import type { Lane, LaneList, LaneRequest, Operations } from "../generated/api.js";
import type { CallOptions, Transport } from "../http.js";

/** The calls about lanes. Each can be sent twice. */
export class Lanes {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** A lane with its limits and statistics. */
  get(name: string, options: CallOptions = {}): Promise<Lane> {
    return this.#transport.call("get_lane", { ...options, path: { name } });
  }

  /** The lanes. */
  list(query: Operations["list_lanes"]["query"] = {}, options: CallOptions = {}): Promise<LaneList> {
    return this.#transport.call("list_lanes", { ...options, query });
  }

  /** Creates a lane or changes its limits. Absent fields do not change. */
  put(name: string, lane: LaneRequest = {}, options: CallOptions = {}): Promise<Lane> {
    return this.#transport.call("put_lane", { ...options, path: { name }, body: lane });
  }

  /** Deletes a lane that a call created and that has no jobs. */
  async delete(name: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.call("delete_lane", { ...options, path: { name } });
  }

  /** Stops starting jobs in the lane. */
  pause(name: string, options: CallOptions = {}): Promise<Lane> {
    return this.#transport.call("pause_lane", { ...options, path: { name }, repeatable: true });
  }

  /** Starts jobs in the lane again. */
  resume(name: string, options: CallOptions = {}): Promise<Lane> {
    return this.#transport.call("resume_lane", { ...options, path: { name }, repeatable: true });
  }
}

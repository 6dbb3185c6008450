/** Sessions: jobs of one conversation, in order. */

import type { Operations, Session, SessionList, SessionsReset, SessionStopped, SessionUsageRequest } from "../generated/api.js";
import type { CallOptions, Transport } from "../http.js";

/** The calls about sessions. */
export class Sessions {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** A session that has unfinished jobs or stored state. */
  get(key: string, options: CallOptions = {}): Promise<Session> {
    return this.#transport.call("get_session", { ...options, path: { key } });
  }

  /** A page of sessions, by name. */
  list(query: Operations["list_sessions"]["query"] = {}, options: CallOptions = {}): Promise<SessionList> {
    return this.#transport.call("list_sessions", { ...options, query });
  }

  /** All sessions, page by page. */
  async *iterate(options: CallOptions = {}): AsyncGenerator<Session, void> {
    for (let after: string | undefined; ; ) {
      const page = await this.list(after === undefined ? {} : { after }, options);
      yield* page.sessions;
      if (page.next === undefined || page.next === null) return;
      after = page.next;
    }
  }

  /** Ends the job that has run longest; if none runs, the one that waits first. Each call may end another job. */
  stop(key: string, options: CallOptions = {}): Promise<SessionStopped> {
    return this.#transport.call("stop_session", { ...options, path: { key }, repeatable: false });
  }

  /** Ends all running and waiting jobs. */
  stopAll(key: string, options: CallOptions = {}): Promise<SessionStopped> {
    return this.#transport.call("stop_whole_session", { ...options, path: { key }, repeatable: true });
  }

  /** Ends all running and waiting jobs and begins a new generation. */
  reset(key: string, options: CallOptions = {}): Promise<SessionStopped> {
    return this.#transport.call("reset_session", { ...options, path: { key }, repeatable: true });
  }

  /** Resets every session that has jobs. */
  resetAll(options: CallOptions = {}): Promise<SessionsReset> {
    return this.#transport.call("reset_all_sessions", { ...options, repeatable: true });
  }

  /** Reports the usage of its context. */
  reportUsage(key: string, usage: SessionUsageRequest, options: CallOptions = {}): Promise<Session> {
    return this.#transport.call("report_session_usage", { ...options, path: { key }, body: usage });
  }
}

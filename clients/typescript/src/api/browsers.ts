/** Browser profiles, and the browsers of the server's machine. */

import { randomUUID } from "node:crypto";

import type {
  BrowserList, BrowserTab, Job, Operations, Profile, ProfileList, ProfilePatchRequest, ProfileRequest, StartBrowserRequest,
} from "../generated/api.js";
import type { CallOptions, Transport } from "../http.js";

/** The calls about browser profiles. */
export class Profiles {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Creates a profile. With an `id`, a create that is sent twice is rejected with `already_exists`. */
  create(profile: ProfileRequest = {}, options: CallOptions = {}): Promise<Profile> {
    return this.#transport.call("create_profile", { ...options, body: profile, repeatable: false });
  }

  /** A profile, also one of the recycle bin. */
  get(id: string, options: CallOptions = {}): Promise<Profile> {
    return this.#transport.call("get_profile", { ...options, path: { id } });
  }

  /** A page of profiles, newest first. */
  list(query: Operations["list_profiles"]["query"] = {}, options: CallOptions = {}): Promise<ProfileList> {
    return this.#transport.call("list_profiles", { ...options, query });
  }

  /** Changes a profile: absent fields stay, `null` removes a value. */
  update(id: string, patch: ProfilePatchRequest, options: CallOptions = {}): Promise<Profile> {
    return this.#transport.call("update_profile", { ...options, path: { id }, body: patch, repeatable: true });
  }

  /** Puts a profile into the recycle bin. Its browser must be closed. */
  trash(id: string, options: CallOptions = {}): Promise<Profile> {
    return this.#transport.call("trash_profile", { ...options, path: { id }, repeatable: true });
  }

  /** Takes a profile out of the recycle bin. */
  restore(id: string, options: CallOptions = {}): Promise<Profile> {
    return this.#transport.call("restore_profile", { ...options, path: { id }, repeatable: true });
  }

  /** Deletes a profile of the recycle bin with its files. With `force`, also one that is not there. */
  async delete(id: string, query: Operations["delete_profile"]["query"] = {}, options: CallOptions = {}): Promise<void> {
    await this.#transport.call("delete_profile", { ...options, path: { id }, query });
  }
}

/** The calls about browsers. */
export class Browsers {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** The open browsers. */
  list(options: CallOptions = {}): Promise<BrowserList> {
    return this.#transport.call("list_browsers", options);
  }

  /** The tabs of an open browser. */
  async tabs(profile: string, options: CallOptions = {}): Promise<BrowserTab[]> {
    return (await this.#transport.call("list_browser_tabs", { ...options, path: { profile } })).tabs;
  }

  /** Submits a job that starts the browser of a profile, and returns the job. */
  start(profile: string, request: StartBrowserRequest = {}, options: CallOptions = {}): Promise<Job> {
    const headers = { "idempotency-key": `auto-${randomUUID()}` };
    return this.#transport.call("start_browser", { ...options, path: { profile }, body: request, headers, repeatable: true });
  }

  /** Submits a job that closes the browser of a profile, and returns the job. */
  stop(profile: string, options: CallOptions = {}): Promise<Job> {
    const headers = { "idempotency-key": `auto-${randomUUID()}` };
    return this.#transport.call("stop_browser", { ...options, path: { profile }, headers, repeatable: true });
  }
}

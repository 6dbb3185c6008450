/** Schedules: jobs that are submitted at times. */

import type {
  FireScheduleRequest, Operations, PreviewRequest, Schedule, ScheduleFiredByHand, ScheduleFiringList, ScheduleList,
  SchedulePatchRequest, SchedulePreview, ScheduleRequest,
} from "../generated/api.js";
import type { CallOptions, Transport } from "../http.js";

/** The calls about schedules. */
export class Schedules {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Creates a schedule. Its name is unique, so a create that is sent twice is rejected with `already_exists`. */
  create(schedule: ScheduleRequest, options: CallOptions = {}): Promise<Schedule> {
    return this.#transport.call("create_schedule", { ...options, body: schedule, repeatable: false });
  }

  /** A schedule. */
  get(id: string, options: CallOptions = {}): Promise<Schedule> {
    return this.#transport.call("get_schedule", { ...options, path: { id } });
  }

  /** A page of schedules, in the order of their creation. */
  list(query: Operations["list_schedules"]["query"] = {}, options: CallOptions = {}): Promise<ScheduleList> {
    return this.#transport.call("list_schedules", { ...options, query });
  }

  /** All schedules, page by page; paused ones only with `include_disabled`. */
  async *iterate(query: Operations["list_schedules"]["query"] = {}, options: CallOptions = {}): AsyncGenerator<Schedule, void> {
    for (let after = query.after; ; ) {
      const page = await this.list(after === undefined ? query : { ...query, after }, options);
      yield* page.schedules;
      if (page.next === undefined || page.next === null) return;
      after = page.next;
    }
  }

  /** Changes a schedule: absent fields stay, `null` restores a default. */
  update(id: string, patch: SchedulePatchRequest, options: CallOptions = {}): Promise<Schedule> {
    return this.#transport.call("update_schedule", { ...options, path: { id }, body: patch, repeatable: true });
  }

  /** Deletes a schedule. Its jobs go on. */
  delete(id: string, options: CallOptions = {}): Promise<Schedule> {
    return this.#transport.call("delete_schedule", { ...options, path: { id } });
  }

  /** Switches a schedule off. */
  pause(id: string, options: CallOptions = {}): Promise<Schedule> {
    return this.#transport.call("pause_schedule", { ...options, path: { id }, repeatable: true });
  }

  /** Switches a schedule on. */
  resume(id: string, options: CallOptions = {}): Promise<Schedule> {
    return this.#transport.call("resume_schedule", { ...options, path: { id }, repeatable: true });
  }

  /** Fires a schedule manually. Each call may create a job. */
  fire(id: string, request: FireScheduleRequest = {}, options: CallOptions = {}): Promise<ScheduleFiredByHand> {
    return this.#transport.call("fire_schedule", { ...options, path: { id }, body: request, repeatable: false });
  }

  /** Computes the slots of a timing and stores nothing. */
  preview(request: PreviewRequest, options: CallOptions = {}): Promise<SchedulePreview> {
    return this.#transport.call("preview_schedule", { ...options, body: request, repeatable: true });
  }

  /** A page of its firing log, newest first; also after its deletion. */
  firings(id: string, query: Operations["list_schedule_firings"]["query"] = {}, options: CallOptions = {}): Promise<ScheduleFiringList> {
    return this.#transport.call("list_schedule_firings", { ...options, path: { id }, query });
  }

  /** A page of the firing log of all schedules, newest first. */
  allFirings(query: Operations["list_all_schedule_firings"]["query"] = {}, options: CallOptions = {}): Promise<ScheduleFiringList> {
    return this.#transport.call("list_all_schedule_firings", { ...options, query });
  }
}

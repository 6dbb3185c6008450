/** The client and the worker of Laneway for Node. */

export { Client } from "./client.js";
export type { CallArguments, CallOptions, ClientOptions } from "./http.js";
export type { TokenSource } from "./token.js";
export { hasEnded, type WaitOptions } from "./api/jobs.js";
export { EventStream, type StreamItem, type StreamOptions } from "./api/events.js";
export type { LeasedJob, Worked } from "./api/leases.js";
export type { DownloadOptions } from "./api/artifacts.js";
export {
  ApiError, ConflictError, ConnectionError, ForbiddenError, hasCode, InvalidRequestError, JobNotSucceededError, LanewayError,
  LimitError, NotFoundError, ServerFaultError, TimeoutError, UnauthorizedError, UnavailableError, type ProblemCode,
} from "./errors.js";
export type * as api from "./generated/api.js";
export type {
  Event, Explanation, Gap, Job, JobArtifact, JobProgress, JobRequest, Lane, LaneRequest, Lease, LeaseRequest, LogLine, Operations,
  Profile, ProfileRequest, Run, RunRequest, Schedule, ScheduleRequest, Session,
} from "./generated/api.js";
export { Failure, PermanentFailure, RetryableFailure, type FailureOptions } from "./worker/failure.js";
export { Worker, type HandlerOptions, type RunOptions, type WorkerOptions } from "./worker/worker.js";
export { WorkerSupersededError, type Log, type LogLevel } from "./worker/driver.js";
export { NextError, Task, TaskStoppedError, type Channel } from "./worker/task.js";
export { Outcome, type Artifact } from "./worker/outcome.js";
export type { ArtifactInput, ResourceBody } from "./worker/resources.js";
export type { Handler } from "./worker/supervise.js";
export type { Vitals } from "./worker/action.js";
export type { WorkerState } from "./worker/state.js";
export type { WebSocketFactory, WebSocketLike } from "./worker/link.js";

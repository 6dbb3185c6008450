/**
 * The errors of this package. An error of the server has a `code`, see docs/http-api.md; every code belongs to one class,
 * so that a program can catch by class or compare codes. Errors of handlers are in `worker/failure.ts`.
 */

import type { Job, Problem } from "./generated/api.js";
import { PROBLEM_CODES } from "./generated/api.js";

/** A code of the server. */
export type ProblemCode = (typeof PROBLEM_CODES)[number];

/** Every error that this package throws for a call. */
export class LanewayError extends Error {
  override name = "LanewayError";
}

/** The server answered with an error. */
export class ApiError extends LanewayError {
  override name = "ApiError";
  /** The code, for programs. A newer server may have codes that are not in the type. */
  readonly code: ProblemCode;
  /** The HTTP status. */
  readonly status: number;
  /** What was wrong, and the remedy. */
  readonly detail: string;
  /** The path of the field that was wrong. */
  readonly field: string | undefined;
  /** The id of the request, as in the server's log. */
  readonly requestId: string | undefined;
  /** After how many milliseconds a new request may succeed. */
  readonly retryAfterMs: number | undefined;

  constructor(problem: Problem) {
    super(`${problem.code}: ${problem.detail}`);
    this.code = problem.code;
    this.status = problem.status;
    this.detail = problem.detail;
    this.field = problem.field ?? undefined;
    this.requestId = problem.request_id ?? undefined;
    this.retryAfterMs = problem.retry_after_ms ?? undefined;
  }
}

/** The request is wrong and stays wrong: correct it. */
export class InvalidRequestError extends ApiError {
  override name = "InvalidRequestError";
}

/** No token, or an invalid one. */
export class UnauthorizedError extends ApiError {
  override name = "UnauthorizedError";
}

/** The caller may not do this. */
export class ForbiddenError extends ApiError {
  override name = "ForbiddenError";
}

/** There is no such object for this caller, or its data is gone. */
export class NotFoundError extends ApiError {
  override name = "NotFoundError";
}

/** The request conflicts with the state of the job or of the server. */
export class ConflictError extends ApiError {
  override name = "ConflictError";
}

/** A limit is reached: wait for `retryAfterMs`, or raise the limit. */
export class LimitError extends ApiError {
  override name = "LimitError";
}

/** The server, its disk or a worker cannot answer at present. */
export class UnavailableError extends ApiError {
  override name = "UnavailableError";
}

/** The server has a fault. Its log has the cause under `requestId`. */
export class ServerFaultError extends ApiError {
  override name = "ServerFaultError";
}

/** No answer came from the server. */
export class ConnectionError extends LanewayError {
  override name = "ConnectionError";
  /** `not_sent`: the server did not get the request. `unknown`: it may have carried it out. */
  readonly outcome: "not_sent" | "unknown";

  constructor(message: string, outcome: "not_sent" | "unknown", cause: unknown) {
    super(message, { cause });
    this.outcome = outcome;
  }
}

/** The time of a call or of a wait is over. A wait changes nothing: the job goes on. */
export class TimeoutError extends LanewayError {
  override name = "TimeoutError";
}

/** A job that was waited for did not succeed. */
export class JobNotSucceededError extends LanewayError {
  override name = "JobNotSucceededError";
  /** The job, as it ended. */
  readonly job: Job;

  constructor(job: Job) {
    const why = job.error ? `${job.error.code}: ${job.error.message}` : (job.reason ?? "no reason was given");
    super(`the job ${job.id} of the kind ${job.kind} ended as ${job.state}: ${why}`);
    this.job = job;
  }
}

type ApiErrorClass = new (problem: Problem) => ApiError;

/** The class of every code. A code that the schema gains does not compile until it has a class. */
const CLASSES: Record<ProblemCode, ApiErrorClass> = {
  malformed_json: InvalidRequestError,
  invalid_field: InvalidRequestError,
  unknown_field: InvalidRequestError,
  too_deep: InvalidRequestError,
  invalid_id: InvalidRequestError,
  invalid_cursor: InvalidRequestError,
  unauthorized: UnauthorizedError,
  forbidden: ForbiddenError,
  origin_denied: ForbiddenError,
  not_found: NotFoundError,
  method_not_allowed: InvalidRequestError,
  body_timeout: UnavailableError,
  already_ended: ConflictError,
  not_ended: ConflictError,
  not_waiting: ConflictError,
  in_use: ConflictError,
  conflict: ConflictError,
  already_exists: ConflictError,
  gone: NotFoundError,
  body_too_large: InvalidRequestError,
  unsupported_media_type: InvalidRequestError,
  range_not_satisfiable: InvalidRequestError,
  misdirected: ForbiddenError,
  deadline_past: InvalidRequestError,
  idempotency_mismatch: ConflictError,
  unknown_kind: InvalidRequestError,
  unknown_lane: InvalidRequestError,
  invalid: InvalidRequestError,
  no_future_run: InvalidRequestError,
  never_fits: InvalidRequestError,
  batch_rejected: ConflictError,
  queue_full: LimitError,
  stale: ConflictError,
  session_full: LimitError,
  too_many_attempts: LimitError,
  too_many: LimitError,
  internal: ServerFaultError,
  damaged: ServerFaultError,
  worker_failed: ServerFaultError,
  worker_away: UnavailableError,
  worker_timeout: UnavailableError,
  draining: UnavailableError,
  unavailable: UnavailableError,
  storage_low: UnavailableError,
};

/** The error for a problem of the server, in a batch item or in an answer. */
export function apiError(problem: Problem): ApiError {
  const known: ApiErrorClass | undefined = Object.hasOwn(CLASSES, problem.code) ? CLASSES[problem.code] : undefined;
  return new (known ?? ApiError)(problem);
}

/** True when the error is an error of the server with this code. */
export function hasCode(error: unknown, code: ProblemCode): error is ApiError {
  return error instanceof ApiError && error.code === code;
}

/** True when the same read may succeed later: there was no answer, or the server cannot answer at present. */
export function isTransient(error: unknown): boolean {
  if (error instanceof ConnectionError || error instanceof TimeoutError) return true;
  return error instanceof ApiError && (error.status >= 500 || error.status === 429);
}

/** The error for an answer with a status of 400 or more. */
export function apiErrorOf(status: number, body: unknown, headers: Headers): ApiError {
  const retryAfter = Number(headers.get("retry-after") ?? Number.NaN);
  const fromHeaders = {
    request_id: headers.get("request-id"),
    retry_after_ms: Number.isFinite(retryAfter) ? retryAfter * 1_000 : null,
  };
  if (isProblem(body)) return apiError({ ...fromHeaders, ...body });
  // Something between the client and the server answered, such as a proxy.
  return new ApiError({
    type: "about:blank",
    title: "An answer without a problem",
    status,
    code: status >= 500 ? "internal" : "invalid",
    detail: `the answer has the status ${status} and is not an error of Laneway; is the URL right?`,
    ...fromHeaders,
  });
}

function isProblem(body: unknown): body is Problem {
  return typeof body === "object" && body !== null && "code" in body && "detail" in body && "status" in body;
}

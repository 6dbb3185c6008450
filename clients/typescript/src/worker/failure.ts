/** How a handler fails: its code, its message, and whether a retry can help. */

/** Options of a failure. */
export interface FailureOptions {
  /** The remedy, for people. */
  remediation?: string;
  /** The error behind it. */
  cause?: unknown;
}

/** A failure of a handler. Throw it to choose the code; any other error has the code `E.RUNNER.FAILURE` and may be retried. */
export class Failure extends Error {
  override name = "Failure";
  /** A stable code for programs, such as `bad_input`. */
  readonly code: string;
  /** True when a retry may help. */
  readonly retryable: boolean;
  /** The remedy, for people. */
  readonly remediation: string | undefined;

  constructor(code: string, message: string, retryable: boolean, options: FailureOptions = {}) {
    super(message, { cause: options.cause });
    this.code = code === "" || code.length > 1_024 || !code.isWellFormed() ? "E.RUNNER.FAILURE" : code;
    this.retryable = retryable;
    this.remediation = options.remediation;
  }
}

/** A retry will not help: the job fails for good. */
export class PermanentFailure extends Failure {
  override name = "PermanentFailure";

  constructor(code: string, message: string, options: FailureOptions = {}) {
    super(code, message, false, options);
  }
}

/** A retry may help. */
export class RetryableFailure extends Failure {
  override name = "RetryableFailure";

  constructor(code: string, message: string, options: FailureOptions = {}) {
    super(code, message, true, options);
  }
}

/** The failure for anything that a handler threw. */
export function failureOf(error: unknown): Failure {
  if (error instanceof Failure) return error;
  const message = error instanceof Error ? error.message || error.name : String(error);
  return new RetryableFailure("E.RUNNER.FAILURE", message, { cause: error });
}

"""The exceptions of the client. `problems.py` has one for each error code of the HTTP API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .types import Job


class LanewayError(Exception):
    """Every error of this package."""


class Problem(LanewayError):
    """The server answered with an error (RFC 9457). `code` is stable; `detail` is for people."""

    def __init__(
        self,
        code: str,
        status: int,
        detail: str,
        *,
        title: str = "",
        field: str | None = None,
        request_id: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        where = f" ({field})" if field else ""
        super().__init__(f"{code}{where}: {detail}")
        self.code = code
        self.status = status
        self.detail = detail
        self.title = title
        self.field = field
        self.request_id = request_id
        self.retry_after = retry_after
        """Seconds after which the call may succeed, if the server named a time."""

    @property
    def is_outcome_unknown(self) -> bool:
        """True when the call may have been done. All other errors mean that nothing was stored."""
        return self.code in ("unavailable", "internal")


class ConnectionFailed(LanewayError):
    """There was no answer. `was_sent` is false when the request cannot have reached the server."""

    def __init__(self, message: str, *, was_sent: bool) -> None:
        super().__init__(message)
        self.was_sent = was_sent


class WaitTimeout(LanewayError):
    """A job or a run did not end in time. It goes on."""


class JobFailed(LanewayError):
    """A job ended without a result. `job` has its state, reason and error."""

    def __init__(self, job: Job) -> None:
        error = f": {job.error.code}: {job.error.message}" if job.error else ""
        super().__init__(f"job {job.id} ended as {job.state} ({job.reason}){error}")
        self.job = job


class WorkerEnded(LanewayError):
    """The worker ended without a drain. `code` is the code of the protocol."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Failure(LanewayError):
    """A handler raises it to fail with a code, and to say whether a retry can help."""

    def __init__(self, message: str, *, code: str = "failed", retryable: bool = True, remediation: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retryable = retryable
        self.remediation = remediation

    def __reduce__(self) -> Any:
        # Exceptions with named arguments cross a process boundary only with this.
        return (_rebuilt, (self.message, self.code, self.retryable, self.remediation))


def _rebuilt(message: str, code: str, retryable: bool, remediation: str | None) -> Failure:
    return Failure(message, code=code, retryable=retryable, remediation=remediation)


def problem_of(status: int, body: Any, retry_after: float | None) -> Problem:
    """The exception for an answer of 400 or more."""
    from .problems import BY_CODE

    if not isinstance(body, dict) or "code" not in body:
        return Problem("unknown", status, f"the server answered {status} without a problem", retry_after=retry_after)
    after_ms = body.get("retry_after_ms")
    return BY_CODE.get(body["code"], Problem)(
        body["code"],
        status,
        body.get("detail", ""),
        title=body.get("title", ""),
        field=body.get("field"),
        request_id=body.get("request_id"),
        retry_after=after_ms / 1000 if after_ms is not None else retry_after,
    )

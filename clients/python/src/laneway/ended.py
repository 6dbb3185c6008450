"""How an attempt ended, and the frame that reports it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from .errors import Failure
from .frames import FRAME_LEN_MAX, MESSAGE_LEN_MAX, encode
from .tasks import Order, StopReason

# Bytes reserved in a frame for its envelope.
ENVELOPE_LEN_MAX = 64 << 10
# Most artifacts of one result.
ARTIFACTS_MAX = 256


@dataclass(frozen=True)
class Outcome:
    """What a handler returns if it has more than a result. `skipped`: there was nothing to do, and dependents go on."""

    result: Any = None
    metadata: dict[str, Any] | None = None
    skipped: bool = False


@dataclass(frozen=True)
class Ended:
    """How an attempt ended: with an outcome, a failure, too late, or because it was stopped."""

    what: Literal["done", "failed", "timed_out", "stopped"]
    outcome: Outcome = field(default_factory=Outcome)
    artifacts: list[dict[str, Any]] = field(default_factory=list)
    failure: Failure | None = None

    @classmethod
    def of(cls, returned: Any, artifacts: list[dict[str, Any]]) -> Ended:
        """The end of a handler that returned. A result that is not an object is stored under `value`."""
        outcome = returned if isinstance(returned, Outcome) else Outcome(returned)
        result = {} if outcome.result is None else outcome.result
        if not isinstance(result, dict):
            result = {"value": result}
        outcome = Outcome(result, outcome.metadata, outcome.skipped)
        try:
            encode({"result": result, "metadata": outcome.metadata}).encode()
        except (TypeError, ValueError, RecursionError) as error:
            return cls.failed(Failure(f"the result is not JSON: {error}", code="bad_result", retryable=False))
        if len(artifacts) > ARTIFACTS_MAX:
            message = f"the handler made {len(artifacts)} artifacts; {ARTIFACTS_MAX} are allowed"
            return cls.failed(Failure(message, code="too_many_artifacts", retryable=False))
        return cls("done", outcome, artifacts)

    @classmethod
    def failed(cls, error: BaseException) -> Ended:
        """The end of a handler that raised. Errors without a code may pass with a retry."""
        if not isinstance(error, Failure):
            error = Failure(f"{type(error).__name__}: {error}", code="E.RUNNER.FAILURE")
        return cls("failed", failure=error)


def message_of(order: Order, ended: Ended, why: StopReason, took: float | None) -> tuple[str, dict[str, Any]]:
    """The type and the payload of the frame for an end. `why` matters only for attempts that were stopped."""
    dispatch = order.dispatch
    if ended.what == "stopped" and why != "canceled":
        # Not the task's fault: the scheduler retries a task with this code.
        is_drain = why == "drain"
        message = "the worker stopped before the task ended" if is_drain else "the lease expired: the scheduler did not answer"
        details = {name: dispatch[name] for name in ("run_id", "task_id", "node_id")}
        context = {"where": "worker.runner", "details": details}
        return "error", {"code": "E.RUNNER.CANCELLED", "message": message, "context": context}
    payload: dict[str, Any] = {"run_id": dispatch["run_id"], "task_id": dispatch["task_id"], "result": {}}
    if took is not None:
        payload["duration_ms"] = round(took * 1000)
    size = _fill(payload, ended)
    if size > FRAME_LEN_MAX - ENVELOPE_LEN_MAX:
        # It could never arrive, and each attempt to send it would cost a connection.
        message = f"the result has {size} bytes as JSON; keep large data as an artifact"
        for name in ("metadata", "artifacts"):
            payload.pop(name, None)
        _fill(payload, Ended.failed(Failure(message, code="result_too_long", retryable=False)))
    return "result", payload


def clean(text: str) -> str:
    """Text that can be sent: without lone surrogates."""
    return str(text).encode("utf-8", "replace").decode()


def _fill(payload: dict[str, Any], ended: Ended) -> int:
    """Adds the end to the payload of a result. Returns the size of its data in bytes."""
    match ended.what:
        case "done":
            payload["status"] = "SKIPPED" if ended.outcome.skipped else "SUCCEEDED"
            payload["result"] = ended.outcome.result
            if ended.outcome.metadata is not None:
                payload["metadata"] = ended.outcome.metadata
            if ended.artifacts:
                payload["artifacts"] = ended.artifacts
        case "stopped":
            message = "the task was stopped at the request of the scheduler"
            payload |= {"status": "CANCELLED", "error": {"code": "E.RUNNER.CANCELLED", "message": message}}
        case _:
            late = Failure("the task took longer than timeout_ms", code="E.TIMEOUT")
            failure = late if ended.failure is None else ended.failure
            error = {"code": clean(failure.code)[:1024] or "failed", "message": clean(failure.message)[:MESSAGE_LEN_MAX]}
            if failure.remediation is not None:
                error["remediation"] = clean(failure.remediation)[:MESSAGE_LEN_MAX]
            payload |= {"status": "FAILED", "result": {}, "error": error, "metadata": {"retryable": failure.retryable}}
    return len(encode(payload).encode())

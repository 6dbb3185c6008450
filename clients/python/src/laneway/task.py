"""One task as its handler sees it: its input, its cancellation and its reports; and a `logging` handler for its log."""

from __future__ import annotations

import asyncio
import logging
import mimetypes
import threading
import time
import uuid
from collections.abc import Callable
from contextvars import ContextVar
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from .ended import clean
from .errors import Failure, LanewayError
from .model import format_time
from .outbox import TaskKey
from .tasks import Order

# Longest message of a progress report, in characters.
MESSAGE_LEN_MAX = 1_024
# Longest text of one chunk, in characters; longer ones are sent in pieces.
CHUNK_LEN_MAX = 16 << 10
# The server keeps this many log lines of an attempt. More are not sent.
LINES_MAX = 10_000
# How long an artifact is kept unless its maker says otherwise, in seconds.
ARTIFACT_TTL = 3_600.0
CHANNELS = ("stdout", "stderr", "log", "llm", "metric", "custom")

current_task: ContextVar[Task] = ContextVar("laneway_task")
"""The task whose handler runs here: in its coroutine, its thread or its process."""


class NextFailed(LanewayError):
    """The rest of a middleware chain failed. `error` has `code` and `message`."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(f"{error.get('code', 'failed')}: {error.get('message', '')}")
        self.error = error


class Task:
    """One attempt at a job. Its methods may be called from the handler's coroutine, thread or process."""

    def __init__(self, order: Order, worker_id: str, sink: Callable[[str, Any], Any]) -> None:
        """`sink` takes reports: their name and their value. It may be called from any thread."""
        self._order = order
        self._worker_id = worker_id
        self._sink = sink
        self._canceled = threading.Event()
        self._on_cancel: list[Callable[[], None]] = []
        self._indexes = dict.fromkeys(CHANNELS, 0)
        self._lock = threading.Lock()
        self._calls = 0
        timeout_ms = order.dispatch["constraints"].get("timeout_ms")
        self._deadline = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        self.artifacts: list[dict[str, Any]] = []

    @property
    def key(self) -> TaskKey:
        """The id and the number of the attempt."""
        return self._order.key

    @property
    def id(self) -> str:
        """The id of the task, which is the id of the job."""
        return self._order.key.task_id

    @property
    def seq(self) -> int:
        """The number of the attempt. With the id it is a fence that other systems can compare."""
        return self._order.key.seq

    @property
    def run_id(self) -> str:
        """The workflow run, or the id of the job if it belongs to none."""
        return str(self._order.dispatch["run_id"])

    @property
    def kind(self) -> str:
        """The kind of the job."""
        return str(self._order.dispatch["node_type"])

    @property
    def payload(self) -> dict[str, Any]:
        """The payload of the job. One that is not an object arrives as `{"value": …}`, merged jobs as `{"payloads": […]}`."""
        parameters: dict[str, Any] = self._order.dispatch["parameters"]
        return parameters

    @property
    def dispatch(self) -> dict[str, Any]:
        """The whole dispatch, as the protocol describes it."""
        return self._order.dispatch

    @property
    def traceparent(self) -> str | None:
        """The place of this attempt in its trace, as a `traceparent` (W3C Trace Context) for calls that the handler makes."""
        value: str | None = self._order.dispatch.get("traceparent")
        return value

    @property
    def tracestate(self) -> str | None:
        """The `tracestate` that belongs to `traceparent`."""
        value: str | None = self._order.dispatch.get("tracestate")
        return value

    @property
    def canceled(self) -> bool:
        """True when the handler must stop: the job was canceled, its time is over, or the lease of the worker ends."""
        return self._canceled.is_set()

    def check_canceled(self) -> None:
        """Raises `asyncio.CancelledError` when the handler must stop. For threads, which nothing interrupts."""
        if self.canceled:
            raise asyncio.CancelledError("the task was stopped")

    def wait_canceled(self, timeout: float | None = None) -> bool:
        """Blocks until the handler must stop, for at most `timeout` seconds: a sleep for threads that a stop ends."""
        return self._canceled.wait(timeout)

    def time_left(self) -> float | None:
        """Seconds before the timeout of the attempt, if it has one."""
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def progress(self, fraction: float, message: str | None = None) -> None:
        """Reports progress from 0 to 1. A report may be lost; the latest one counts."""
        report: dict[str, Any] = {"progress": min(1.0, max(0.0, float(fraction)))}
        if message is not None:
            report["message"] = clean(message)[:MESSAGE_LEN_MAX]
        self._sink("report", report)

    def metrics(self, **values: float) -> None:
        """Reports numbers about the attempt, such as a loss or a rate."""
        self._sink("report", {"metrics": {name: float(value) for name, value in values.items()}})

    def log(self, text: str, channel: str = "log") -> None:
        """Writes text to the log of the job, in the stream `log`, `stdout`, `stderr`, `llm`, `metric` or `custom`."""
        text = clean(text)
        for start in range(0, len(text), CHUNK_LEN_MAX):
            with self._lock:
                index = self._indexes[channel]
                self._indexes[channel] += 1
            if index < LINES_MAX:
                self._sink("chunk", {"channel": channel, "index": index, "text": text[start : start + CHUNK_LEN_MAX]})

    def keep(
        self,
        data: bytes | str | Path,
        *,
        name: str | None = None,
        mime_type: str | None = None,
        type: str = "file",
        ttl: float = ARTIFACT_TTL,
    ) -> dict[str, Any]:
        """Keeps bytes, or a file by its path, as an artifact of the job, and adds it to the result.

        Clients download it through the server while the worker is connected. The worker owns the file from now on and removes
        it when the artifact expires, when the attempt does not succeed, or when the worker ends.
        """
        body = data if isinstance(data, bytes) else Path(data).absolute()
        if isinstance(body, Path):
            if not body.is_file():
                raise Failure(f"the artifact {body} is not a file", code="bad_artifact", retryable=False)
            name = name or body.name
        if mime_type is None and name is not None:
            mime_type = mimetypes.guess_type(name)[0]
        expires_at = datetime.now(timezone.utc) + timedelta(seconds=ttl)
        artifact: dict[str, Any] = {
            "resource_id": f"res-{uuid.uuid4().hex}",
            "worker_id": self._worker_id,
            "type": type,
            "size_bytes": len(body) if isinstance(body, bytes) else body.stat().st_size,
            "inline": False,
            "expires_at": format_time(expires_at),
        }
        metadata = {"name": name, "mime_type": mime_type}
        known = {key: clean(value) for key, value in metadata.items() if value is not None}
        if known:
            artifact["metadata"] = known
        self._sink("keep", (artifact, body))
        self.artifacts.append(artifact)
        return artifact

    def resource(self, resource_id: str) -> bytes | Path | None:
        """A resource that the dispatch refers to: its bytes, or the path of its file."""
        found: bytes | Path | None = self._sink("resource", resource_id)
        return found

    async def next(self, payload: dict[str, Any] | None = None, *, timeout: float | None = None) -> dict[str, Any]:
        """For middlewares: runs the rest of the chain, and returns its result. Raises `NextFailed` if that fails."""
        host, index = self.dispatch.get("host_node_id"), self.dispatch.get("chain_index")
        if host is None or index is None:
            raise NextFailed({"code": "next_no_chain", "message": "the task is not a middleware of a chain"})
        request: dict[str, Any] = {
            "requestId": f"{self.seq:x}-{self.id[:128]}-{self._calls}",
            "runId": self.run_id,
            "nodeId": host,
            "middlewareId": self.dispatch["node_id"],
            "chainIndex": index,
            "payload": payload or {},
        }
        if timeout is not None:
            request["timeoutMs"] = round(timeout * 1000)
        self._calls += 1
        answer = await asyncio.wait_for(self._sink("next", request), timeout)
        if answer.get("error") is not None:
            raise NextFailed(answer["error"])
        return answer.get("result") or {}

    def on_cancel(self, call: Callable[[], None]) -> None:
        """Calls this when the handler must stop; at once if it must already."""
        with self._lock:
            if not self._canceled.is_set():
                self._on_cancel.append(call)
                return
        call()

    def cancel(self) -> None:
        """Asks the handler to stop. The worker calls it."""
        with self._lock:
            self._canceled.set()
            calls, self._on_cancel = self._on_cancel, []
        for call in calls:
            call()


class JobLogHandler(logging.Handler):
    """Sends log records of handlers to the log of their job: `logging.getLogger().addHandler(JobLogHandler())`."""

    def emit(self, record: logging.LogRecord) -> None:
        task = current_task.get(None)
        # Records of the transport would cause frames, which would cause records.
        if task is None or record.name.split(".")[0] in ("laneway", "websockets", "asyncio"):
            return
        try:
            task.log(self.format(record))
        except Exception:
            self.handleError(record)

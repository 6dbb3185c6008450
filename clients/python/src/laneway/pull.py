"""The pull worker: it requests jobs of a lane over plain HTTP, keeps their leases, and stops a job whose lease it lost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import socket
from collections.abc import Callable
from typing import Any, TypeVar

from . import types
from .client import Client
from .ended import Ended
from .errors import ConnectionFailed, Failure, LanewayError, Problem
from .outbox import TaskKey
from .problems import Forbidden, NotFound
from .running import Handler, Run
from .task import Task
from .tasks import Order

F = TypeVar("F", bound=Callable[[Task], Any])
# How many heartbeats are sent within one lease.
BEATS = 4
# Longest wait before the next request, in seconds.
POLL_MAX = 30.0
log = logging.getLogger("laneway.pull")


class PullWorker:
    """A worker for lanes with `dispatch` `claim` or `reserve`. Its handlers are those of `Worker`.

    It needs no open connection. Logs and artifacts need one, so the tasks of this worker have neither.
    """

    def __init__(
        self,
        client: Client,
        lane: str,
        *,
        name: str | None = None,
        max_parallel: int = 1,
        max_cost: int | None = None,
        stop_grace: float = 10.0,
    ) -> None:
        self.client = client
        self.lane = lane
        self.name = name or f"{socket.gethostname()}-{os.getpid()}"
        self._max_parallel = max_parallel
        self._max_cost = max_cost
        self._stop_grace = stop_grace
        self._handlers: dict[str, Handler] = {}
        self._draining = asyncio.Event()

    def handler(self, kind: str, *, process: bool = False) -> Callable[[F], F]:
        """Registers a function for the jobs of a kind."""

        def register(function: F) -> F:
            self._handlers[kind] = Handler.of(kind, function, process, None)
            return function

        return register

    def drain(self) -> None:
        """Requests no more jobs; running ones go on, and then `serve` returns."""
        self._draining.set()

    async def serve(self) -> None:
        """Requests and runs jobs until the worker drains."""
        pollers = [asyncio.ensure_future(self._poll()) for _ in range(self._max_parallel)]
        try:
            await asyncio.wait(pollers, return_when=asyncio.FIRST_EXCEPTION)
            for poller in pollers:
                if poller.done():
                    poller.result()
        finally:
            for poller in pollers:
                poller.cancel()

    async def _poll(self) -> None:
        failures = 0
        while not self._draining.is_set():
            try:
                wait = await self.poll_once()
                failures = 0
            except LanewayError as error:
                if isinstance(error, Problem) and error.status < 500 and error.status != 429:
                    raise
                failures += 1
                wait = min(0.2 * 2**failures, POLL_MAX)
                log.warning("cannot request a job: %s; retrying", error)
            if wait > 0:
                # Jitter, so that many workers do not request at once.
                wait = min(wait, POLL_MAX) + random.random() * 0.25
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._draining.wait(), wait)

    async def poll_once(self) -> float:
        """Requests one job, and runs it. Returns the seconds to wait before the next request: 0 after a job."""
        request: types.LeaseRequest = {
            "worker": self.name,
            "pid": os.getpid(),
            "lane": self.lane,
            "kinds": list(self._handlers),
            "max_cost": self._max_cost,
        }
        answer = await self.client.request_lease(request)
        if not answer.granted or answer.lease is None:
            return (answer.retry_after_ms or 1000) / 1000
        await self._run(answer.lease, answer)
        return 0.0

    async def _run(self, lease: types.Lease, answer: types.LeaseAnswer) -> None:
        payload = answer.payload if isinstance(answer.payload, dict) else {"value": answer.payload}
        dispatch = {
            "run_id": lease.job,
            "task_id": lease.job,
            "node_id": lease.job,
            "node_type": lease.kind,
            "parameters": payload,
            "constraints": {},
            "traceparent": answer.traceparent,
            "tracestate": answer.tracestate,
        }
        reports: asyncio.Queue[dict[str, Any]] = asyncio.Queue(64)
        task = Task(Order(TaskKey(lease.job, lease.attempt), dispatch), self.name, self._sink(reports))
        run = Run(self._handlers[lease.kind], task, self._stop_grace)
        work = asyncio.ensure_future(run.supervise())
        keeper = asyncio.ensure_future(self._keep(lease, (answer.ttl_ms or 60_000) / 1000, run))
        reporter = asyncio.ensure_future(self._send_reports(lease, reports))
        try:
            ended = await work
            while not reports.empty():
                await self._send_report(lease, reports.get_nowait())
        finally:
            for other in (keeper, reporter, work):
                other.cancel()
        if not keeper.done() or keeper.cancelled() or keeper.result():
            await self._release(lease, ended)

    async def _keep(self, lease: types.Lease, ttl: float, run: Run) -> bool:
        """Renews the lease until it must end. False: it is lost, and there is nothing to report."""
        loop = asyncio.get_running_loop()
        until, stopping = loop.time() + ttl, False
        while True:
            await asyncio.sleep(min(ttl / BEATS, max(0.0, until - loop.time())))
            sent = loop.time()
            try:
                left = max(0.1, until - sent)
                alive = await asyncio.wait_for(self.client.beat_lease(lease.id, {"worker": self.name}), left)
            except (NotFound, Forbidden):
                run.stop()
                return False
            except (LanewayError, asyncio.TimeoutError):
                # The server may give the job to another worker when the lease is over.
                if loop.time() >= until - min(self._stop_grace, ttl / BEATS):
                    run.stop()
                    return False
                continue
            ttl, until = alive.ttl_ms / 1000, sent + alive.ttl_ms / 1000
            if alive.stop and not stopping:
                stopping = True
                run.stop()

    async def _release(self, lease: types.Lease, ended: Ended) -> None:
        release: types.LeaseRelease = {"worker": self.name, "outcome": "succeeded"}
        match ended.what:
            case "done":
                release["result"] = ended.outcome.result
            case "stopped":
                release["outcome"] = "canceled"
            case _:
                failure = ended.failure or Failure("the task took too long", code="timeout")
                release["outcome"] = "failed"
                release["error"] = {"code": _name(failure.code), "message": failure.message, "retryable": failure.retryable}
        for tries in range(8):
            try:
                return await self.client.release_lease(lease.id, release)
            except (NotFound, Forbidden):
                # It has ended: an earlier copy of this call arrived, or the lease was lost.
                return None
            except (ConnectionFailed, Problem) as error:
                if isinstance(error, Problem) and error.status < 500 and error.status != 429:
                    raise
                log.warning("the end of job %s cannot be reported: %s; retrying", lease.job, error)
                await asyncio.sleep(min(0.2 * 2**tries, 5.0))

    def _sink(self, reports: asyncio.Queue[dict[str, Any]]) -> Callable[[str, Any], Any]:
        loop = asyncio.get_running_loop()

        def put(report: dict[str, Any]) -> None:
            with contextlib.suppress(asyncio.QueueFull):
                reports.put_nowait(report)

        def sink(name: str, value: Any) -> Any:
            if name == "report" and "progress" in value:
                loop.call_soon_threadsafe(put, value)
            elif name not in ("report", "chunk"):
                raise Failure(f"a pull worker has no {name}", code="unsupported", retryable=False)

        return sink

    async def _send_reports(self, lease: types.Lease, reports: asyncio.Queue[dict[str, Any]]) -> None:
        while True:
            await self._send_report(lease, await reports.get())

    async def _send_report(self, lease: types.Lease, report: dict[str, Any]) -> None:
        body: types.LeaseReport = {"worker": self.name, "progress": report["progress"]}
        if "message" in report:
            body["message"] = report["message"]
        with contextlib.suppress(LanewayError):
            await self.client.report_lease(lease.id, body)


def _name(code: str) -> str:
    """A code as the API allows it: letters, digits and `. _ : -`."""
    known = "".join(c if c.isascii() and (c.isalnum() or c in "._:-") else "_" for c in code)
    return known[:128] or "failed"

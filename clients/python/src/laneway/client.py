"""The async client of the HTTP API: every operation by its name, and what takes more than one call.

`operations.py` has the operations. This module sends them, repeats calls where that is safe, and adds waiting for jobs and
runs, pages, and downloads. `events.py` has the event stream, `sync.py` the same client for programs without asyncio.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import httpx

from . import types
from .environment import server_token, server_url
from .errors import ConnectionFailed, JobFailed, LanewayError, Problem, WaitTimeout, problem_of
from .events import EventStream
from .model import encode, query_values, segment
from .operations import Operations

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")
C = TypeVar("C", bound="Client")

# Errors that pass by themselves. A full queue is not one of them: its caller decides whether to wait.
PASSING = frozenset({"body_timeout", "draining", "too_many", "unavailable", "worker_away", "worker_timeout"})
# Longest wait of one call for the end of a job, in seconds. The server allows 60.
WAIT_MAX = 30.0
# Wait before the next call after one that was answered early, in seconds.
EARLY_WAIT = 0.25
# Longest wait before a call is repeated, in seconds, unless the server names a time.
RETRY_WAIT_MAX = 5.0
# Longest `Retry-After` that a call waits for, in seconds.
RETRY_AFTER_MAX = 30.0
# How long waits and streams go on without an answer of the server, in seconds: a restart takes less.
OUTAGE_MAX = 60.0
ENDED = frozenset({"succeeded", "failed", "canceled", "rejected"})


def retry_wait(error: LanewayError, tries: int, repeatable: bool, draw: float) -> float | None:
    """Seconds until a call that failed `tries` times is sent again. None: it must not be, or that would not help."""
    wait = min(0.2 * 2 ** (tries - 1), RETRY_WAIT_MAX) * (1 - draw / 2)
    if isinstance(error, ConnectionFailed):
        return wait if repeatable or not error.was_sent else None
    if not isinstance(error, Problem) or error.code not in PASSING:
        return None
    if error.is_outcome_unknown and not repeatable:
        return None
    after = error.retry_after or 0.0
    return None if after > RETRY_AFTER_MAX else max(wait, after)


class Client(Operations):
    """A client of one server. Use it as a context manager, or close it with `aclose`.

    Calls that had no effect are sent again up to `retries` times. Calls that may have had one are sent again only if that does
    no harm: reads, changes that name the new state, and submits, which get a random idempotency key unless they have one.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        tenant: str | None = None,
        timeout: float = 30.0,
        retries: int = 3,
        verify: ssl.SSLContext | bool = True,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """`url` and `token` default to LANEWAY_URL and LANEWAY_TOKEN (or the file that LANEWAY_TOKEN_FILE names).

        `tenant` is for tokens that are server-wide.
        """
        headers = {}
        token = token or server_token()
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if tenant:
            headers["Laneway-Tenant"] = tenant
        self.url = server_url(url)
        self.retries = retries
        self._timeout = timeout
        self._http = httpx.AsyncClient(base_url=self.url, headers=headers, timeout=timeout, verify=verify, transport=transport)

    async def __aenter__(self: C) -> C:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    # Jobs

    async def submit(self, kind: str, payload: Any = None, **options: Unpack[types.JobOptions]) -> types.Job:
        """Submits a job: `await client.submit("render", {"url": url}, lane="browsers", idempotency_key=order)`."""
        body: types.JobRequest = {"kind": kind, "payload": payload, **options}
        return await self.submit_job(body)

    async def submit_many(self, jobs: Iterable[types.JobRequest], *, atomic: bool = False) -> types.BatchResponse:
        """Submits up to 10,000 jobs in one call; with `atomic` all or none of them. Each gets a key unless it has one."""
        keyed: list[types.JobRequest] = []
        for job in jobs:
            keyed.append(job if job.get("idempotency_key") or not self.retries else {**job, "idempotency_key": _key()})
        return await self.submit_batch({"jobs": keyed, "atomic": atomic})

    async def wait(self, job: types.Job | str, *, timeout: float | None = None) -> types.Job:
        """The job when it has ended. The server waits, so there is no polling. Goes on across a restart of the server."""
        id = job if isinstance(job, str) else job.id
        clock = _Clock(timeout)
        while True:
            seconds = min(clock.left(), WAIT_MAX)
            asked = clock.now()
            found = await self._patiently(clock, lambda: self._get_waiting(id, seconds))  # noqa: B023
            if found.state in ENDED:
                return found
            if clock.left() <= 0:
                raise WaitTimeout(f"job {id} has not ended after {timeout} s")
            if clock.now() - asked < seconds / 2:
                # The server stops, or needs this call for another caller. It would answer the next one early, too.
                await asyncio.sleep(min(EARLY_WAIT, clock.left()))

    async def result(self, job: types.Job | str, *, timeout: float | None = None) -> Any:
        """The result of a job when it has succeeded. Raises `JobFailed` if it ends otherwise."""
        ended = await self.wait(job, timeout=timeout)
        if ended.state != "succeeded":
            raise JobFailed(ended)
        return ended.result

    async def wait_run(self, run: types.Run | str, *, timeout: float | None = None) -> types.Run:
        """The run when all of its nodes have ended."""
        id = run if isinstance(run, str) else run.id
        clock = _Clock(timeout)
        while True:
            found = await self._patiently(clock, lambda: self.get_run(id))
            if found.finished_at is not None:
                return found
            for node in found.nodes:
                if node.job.state not in ENDED:
                    await self.wait(node.job.id, timeout=None if timeout is None else clock.left())

    async def iter_jobs(self, **filters: Any) -> AsyncIterator[types.Job]:
        """All jobs of `list_jobs` with these filters, page by page."""
        cursor: str | None = None
        while True:
            page = await self.list_jobs(**filters, cursor=cursor)
            for job in page.jobs:
                yield job
            cursor = page.next
            if cursor is None:
                return

    async def iter_logs(self, job: types.Job | str, *, after: int | None = None) -> AsyncIterator[types.LogLine]:
        """All log lines that a job has now, page by page."""
        id = job if isinstance(job, str) else job.id
        while True:
            page = await self.list_job_logs(id, after=after)
            for line in page.lines:
                yield line
            after = page.next
            if after is None:
                return

    def events(self, *, after: int | None = None, job: types.Job | str | None = None) -> EventStream:
        """The events of the server or of one job, live. `after=0` begins with the oldest one that is kept."""
        id = job.id if isinstance(job, types.Job) else job
        return EventStream(self._http, after=after, job=id, outage_max=OUTAGE_MAX)

    # Artifacts

    async def stream_artifact(self, id: str, *, start: int = 0) -> AsyncIterator[bytes]:
        """The data of an artifact in parts. A download that breaks is resumed where it stopped."""
        tries = 0
        while True:
            try:
                async for part in self._artifact_parts(id, start):
                    start += len(part)
                    tries = 0
                    yield part
                return
            except LanewayError as error:
                tries += 1
                wait = retry_wait(error, tries, True, random.random()) if tries <= self.retries else None
                if wait is None:
                    raise
                await asyncio.sleep(wait)

    async def _artifact_parts(self, id: str, start: int) -> AsyncIterator[bytes]:
        headers = {"Range": f"bytes={start}-"} if start else {}
        try:
            async with self._http.stream("GET", f"/v1/artifacts/{segment(id)}", headers=headers) as response:
                if response.status_code == 416 and start:
                    return
                if response.status_code >= 400:
                    await response.aread()
                    raise _problem(response)
                async for part in response.aiter_bytes():
                    yield part
        except httpx.TransportError as error:
            raise _no_answer(error) from error

    async def read_artifact(self, id: str) -> bytes:
        """The data of an artifact, in memory."""
        return b"".join([part async for part in self.stream_artifact(id)])

    async def download_artifact(self, id: str, path: str | Path) -> int:
        """Writes an artifact to a file, which appears under its name when it is complete. Returns its size."""
        path = Path(path)
        unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
        size = 0
        try:
            with unfinished.open("wb") as file:
                async for part in self.stream_artifact(id):
                    size += file.write(part)
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
        return size

    # Calls

    async def _call(
        self,
        method: str,
        path: str,
        decode: Callable[[Any], T],
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        idempotency_key: str | None = None,
        keyed: bool = False,
        repeatable: bool = False,
    ) -> T:
        has_key = _has_keys(body)
        if keyed and not has_key and idempotency_key is None and self.retries:
            idempotency_key = _key()
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        content = None
        if body is not None:
            content = encode(body)
            headers["Content-Type"] = "application/json"
        request = self._http.build_request(method, path, params=query_values(query or {}), content=content, headers=headers)
        repeatable = repeatable or has_key or idempotency_key is not None
        tries = 0
        while True:
            try:
                return decode(await self._send(request))
            except LanewayError as error:
                tries += 1
                wait = retry_wait(error, tries, repeatable, random.random()) if tries <= self.retries else None
                if wait is None:
                    raise
            await asyncio.sleep(wait)

    async def _send(self, request: httpx.Request) -> Any:
        try:
            response = await self._http.send(request)
        except httpx.TransportError as error:
            raise _no_answer(error) from error
        if response.status_code >= 400:
            raise _problem(response)
        if not response.content:
            return None
        is_json = "json" in response.headers.get("content-type", "")
        return response.json() if is_json else response.text

    async def _get_waiting(self, id: str, seconds: float) -> types.Job:
        query = {"wait": f"{max(0, round(seconds * 1000))}ms"}
        limit = httpx.Timeout(self._timeout, read=self._timeout + seconds)
        request = self._http.build_request("GET", f"/v1/jobs/{segment(id)}", params=query, timeout=limit)
        return types.Job.from_json(await self._send(request))

    async def _patiently(self, clock: _Clock, call: Callable[[], Awaitable[T]]) -> T:
        """Repeats a call while the server is away for the moment."""
        while True:
            try:
                found = await call()
            except LanewayError as error:
                wait = clock.failed(error)
                if wait is None:
                    raise
                await asyncio.sleep(wait)
            else:
                clock.answered()
                return found


class _Clock:
    """How long a wait may go on: its timeout, and the time without an answer."""

    def __init__(self, timeout: float | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._until = None if timeout is None else self._loop.time() + timeout
        self._away_since: float | None = None
        self._tries = 0

    def now(self) -> float:
        return self._loop.time()

    def left(self) -> float:
        return WAIT_MAX if self._until is None else max(0.0, self._until - self._loop.time())

    def answered(self) -> None:
        self._away_since, self._tries = None, 0

    def failed(self, error: LanewayError) -> float | None:
        now = self._loop.time()
        self._away_since = self._away_since or now
        self._tries += 1
        if now - self._away_since > OUTAGE_MAX or (self._until is not None and now >= self._until):
            return None
        return retry_wait(error, self._tries, True, random.random())


def _key() -> str:
    return uuid.uuid4().hex


def _has_keys(body: Any) -> bool:
    """True when every job of a request has an idempotency key of its own."""
    if not isinstance(body, dict):
        return False
    jobs = body.get("jobs")
    if isinstance(jobs, list):
        return all(job.get("idempotency_key") for job in jobs)
    return bool(body.get("idempotency_key"))


def _no_answer(error: httpx.TransportError) -> ConnectionFailed:
    was_sent = not isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout))
    return ConnectionFailed(f"no answer of the server: {error or type(error).__name__}", was_sent=was_sent)


def _problem(response: httpx.Response) -> Problem:
    after = response.headers.get("retry-after", "")
    try:
        body = response.json()
    except ValueError:
        body = None
    return problem_of(response.status_code, body, float(after) if after.isdigit() else None)

"""The client for programs without asyncio: the same methods, which block.

One thread runs the async client, so both clients behave the same. A `SyncClient` may be used by several threads, but not across
a fork: create it in the process that uses it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from . import types
from .client import Client
from .events import EventStream, Item
from .sync_operations import SyncOperations

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")
C = TypeVar("C", bound="SyncClient")


class SyncClient(SyncOperations):
    """The blocking client of one server. Use it as a context manager, or close it with `close`."""

    def __init__(self, url: str | None = None, **options: Any) -> None:
        """The arguments are those of `Client`."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="laneway-client", daemon=True)
        self._thread.start()
        self._client = Client(url, **options)
        self._operations = self._client
        self.url = self._client.url

    def __enter__(self: C) -> C:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections and ends the thread."""
        if self._loop.is_closed():
            return
        self._wait(self._client.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def submit(self, kind: str, payload: Any = None, **options: Unpack[types.JobOptions]) -> types.Job:
        """Submits a job."""
        return self._wait(self._client.submit(kind, payload, **options))

    def submit_many(self, jobs: Iterable[types.JobRequest], *, atomic: bool = False) -> types.BatchResponse:
        """Submits up to 10,000 jobs in one call; with `atomic` all or none of them."""
        return self._wait(self._client.submit_many(jobs, atomic=atomic))

    def wait(self, job: types.Job | str, *, timeout: float | None = None) -> types.Job:
        """The job when it has ended."""
        return self._wait(self._client.wait(job, timeout=timeout))

    def result(self, job: types.Job | str, *, timeout: float | None = None) -> Any:
        """The result of a job when it has succeeded. Raises `JobFailed` if it ends otherwise."""
        return self._wait(self._client.result(job, timeout=timeout))

    def wait_run(self, run: types.Run | str, *, timeout: float | None = None) -> types.Run:
        """The run when all of its nodes have ended."""
        return self._wait(self._client.wait_run(run, timeout=timeout))

    def iter_jobs(self, **filters: Any) -> Iterator[types.Job]:
        """All jobs of `list_jobs` with these filters, page by page."""
        return self._iterate(self._client.iter_jobs(**filters))

    def iter_logs(self, job: types.Job | str, *, after: int | None = None) -> Iterator[types.LogLine]:
        """All log lines that a job has now, page by page."""
        return self._iterate(self._client.iter_logs(job, after=after))

    def events(self, *, after: int | None = None, job: types.Job | str | None = None) -> SyncEventStream:
        """The events of the server or of one job, live."""
        return SyncEventStream(self, self._client.events(after=after, job=job))

    def read_artifact(self, id: str) -> bytes:
        """The data of an artifact, in memory."""
        return self._wait(self._client.read_artifact(id))

    def stream_artifact(self, id: str, *, start: int = 0) -> Iterator[bytes]:
        """The data of an artifact in parts."""
        return self._iterate(self._client.stream_artifact(id, start=start))

    def download_artifact(self, id: str, path: str | Path) -> int:
        """Writes an artifact to a file. Returns its size."""
        return self._wait(self._client.download_artifact(id, path))

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            # Ctrl-C while it waits: the call must not go on alone.
            future.cancel()
            raise

    def _iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        while True:
            try:
                item = self._wait(_next(items))
            except StopAsyncIteration:
                return
            yield item


class SyncEventStream:
    """The blocking form of `EventStream`."""

    def __init__(self, client: SyncClient, stream: EventStream) -> None:
        self._client = client
        self._stream = stream

    @property
    def position(self) -> int | None:
        """The number of the last event that was received."""
        return self._stream.position

    def __enter__(self) -> SyncEventStream:
        self._client._wait(self._stream.__aenter__())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __iter__(self) -> SyncEventStream:
        return self

    def __next__(self) -> Item:
        return self._client._wait(self._stream.__anext__())

    def close(self) -> None:
        """Closes the stream."""
        self._client._wait(self._stream.aclose())


async def _next(items: AsyncIterator[T]) -> T:
    return await items.__anext__()

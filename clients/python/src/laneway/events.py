"""The event stream: server-sent events, resumed after the last one that was received."""

from __future__ import annotations

import asyncio
import json
import random
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import TypeAlias

import httpx

from . import types
from .errors import ConnectionFailed, problem_of

Item: TypeAlias = "types.Event | types.JobProgress | types.Gap"
"""What a stream gives: an event, a report of progress (which has no number), or a gap: read the jobs again then."""

# The server sends a comment after 15 s of silence.
SILENCE_MAX = 45.0
# Wait before the next connection after one without a message, in seconds.
EMPTY_WAIT = 0.2
# No event has this number. A stream that begins after it starts with a gap that names the next number, and goes on with new
# events. So the position is known before the first event, and a stream that breaks early can be resumed, too.
BEYOND = 2**63 - 1


@dataclass
class SseParser:
    """Splits the bytes of a stream into messages. Pure: it reads nothing by itself."""

    _rest: bytes = b""
    _id: str | None = None
    _event: str = "message"
    _data: list[str] = field(default_factory=list)

    def feed(self, data: bytes) -> list[SseMessage]:
        """The messages that these bytes complete. Lines end in \\n or \\r\\n; JSON may contain other separators."""
        found = []
        *lines, self._rest = (self._rest + data).split(b"\n")
        for raw in lines:
            line = raw.rstrip(b"\r").decode("utf-8", "replace")
            if line:
                self._field(line)
                continue
            if self._data:
                found.append(SseMessage(self._id, self._event, "\n".join(self._data)))
            self._id, self._event, self._data = None, "message", []
        return found

    def _field(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if name == "id":
            self._id = value
        elif name == "event":
            self._event = value
        elif name == "data":
            self._data.append(value)


@dataclass(frozen=True)
class SseMessage:
    """One message of a stream."""

    id: str | None
    event: str
    data: str

    def item(self) -> Item:
        """The message as an object of the API."""
        data = json.loads(self.data)
        if self.event == "gap":
            return types.Gap.from_json(data)
        if self.event == "job.progress":
            return types.JobProgress.from_json(data)
        return types.Event.from_json(data)


class EventStream:
    """An iterator over events. Enter it (`async with`) to be sure that it is open before you cause events.

    `position` is the number of the last event that was received: give it as `after` to go on later, without a loss.
    """

    def __init__(self, http: httpx.AsyncClient, *, after: int | None, job: str | None, outage_max: float) -> None:
        self._http = http
        self._job = job
        self._outage_max = outage_max
        self._response: httpx.Response | None = None
        self._parts: AsyncIterator[bytes] | None = None
        self._parser = SseParser()
        self._received: deque[SseMessage] = deque()
        self._is_empty = True
        self.position = after

    async def __aenter__(self) -> EventStream:
        """Opens the stream. Its position is known then."""
        await self._open()
        while self.position is None:
            await self._next()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> Item:
        while True:
            item = await self._next()
            if item is not None:
                return item

    async def aclose(self) -> None:
        """Closes the stream. The next event opens it again."""
        response, self._response = self._response, None
        self._parser = SseParser()
        self._received.clear()
        if response is not None:
            await response.aclose()

    async def _next(self) -> Item | None:
        """The next item. None: the message was not for the caller, or the connection ended."""
        if self._response is None:
            await self._open()
        message = await self._message()
        if message is None:
            await self.aclose()
            if self._is_empty:
                # A server that ends streams at once is not asked in a tight loop.
                await asyncio.sleep(EMPTY_WAIT)
            return None
        self._is_empty = False
        item = message.item()
        if isinstance(item, types.Event):
            self.position = item.number
        if not isinstance(item, types.Gap):
            return item
        if item.reason == "slow_reader":
            # Nothing is lost: the stream ends, and the next one goes on after `position`.
            return None
        is_start = self.position is None
        self.position = max(0, item.resumes_at - 1)
        return None if is_start else item

    async def _message(self) -> SseMessage | None:
        """The next message of this connection; None when the connection has ended."""
        assert self._parts is not None
        while not self._received:
            try:
                part = await self._parts.__anext__()
            except (StopAsyncIteration, httpx.TransportError, httpx.StreamError):
                return None
            self._received.extend(self._parser.feed(part))
        return self._received.popleft()

    async def _open(self) -> None:
        """Opens a connection; tries again while the server is away."""
        loop = asyncio.get_running_loop()
        began, tries = loop.time(), 0
        while True:
            try:
                self._response = await self._connect()
                self._parts = self._response.aiter_raw()
                self._is_empty = True
                return
            except ConnectionFailed:
                tries += 1
                if loop.time() - began > self._outage_max:
                    raise
            await asyncio.sleep(min(0.1 * 2**tries, 5.0) * (1 - random.random() / 2))

    async def _connect(self) -> httpx.Response:
        headers = {"Last-Event-ID": str(BEYOND if self.position is None else self.position)}
        params = {} if self._job is None else {"job": self._job}
        limit = httpx.Timeout(10.0, read=SILENCE_MAX)
        request = self._http.build_request("GET", "/v1/events", params=params, headers=headers, timeout=limit)
        try:
            response = await self._http.send(request, stream=True)
        except httpx.TransportError as error:
            raise ConnectionFailed(f"no event stream: {error or type(error).__name__}", was_sent=True) from error
        if response.status_code < 400:
            return response
        await response.aread()
        await response.aclose()
        body = response.json() if "json" in response.headers.get("content-type", "") else None
        problem = problem_of(response.status_code, body, None)
        if problem.status in (429, 502, 503, 504):
            raise ConnectionFailed(str(problem), was_sent=True)
        raise problem

"""The push worker: handlers by kind, and the loop that carries out the actions of `protocol.py` with a socket and a clock."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import os
import signal
import socket
import ssl
import threading
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeAlias, TypeVar
from urllib.parse import urlsplit, urlunsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from .actions import Abandon, Action, Answered, Close, CloseReason, Now, Profile, Read, Send, Start, Stop
from .ended import Ended
from .environment import server_token, server_url
from .errors import WorkerEnded
from .frames import FRAME_LEN_MAX, BadFrame, encode, parse
from .outbox import TaskKey
from .protocol import Protocol, State
from .resources import Resources
from .running import Handler, Run
from .task import Task
from .tasks import Order, Rejection
from .vitals import Probe

TokenSource: TypeAlias = str | Callable[[], str | Awaitable[str | None] | None] | None
F = TypeVar("F", bound=Callable[[Task], Any])

CONNECT_PATH = "/v1/workers/connect"
# Most frames that wait to be written. A server that reads more slowly counts as gone.
OUTGOING_MAX = 8_192
# Most chunks of output in one frame.
CHUNKS_MAX = 64
# Most parts of resources that are read at a time.
READS_MAX = 16
# How often expired resources are removed, in seconds.
COLLECT_EVERY = 60.0
# How long a connection may take to open, and the last frames to be sent, in seconds.
OPEN_LIMIT = 10.0
FINISH_LIMIT = 5.0

# Python 3.10 has two classes for timeouts.
CONNECT_ERRORS = (OSError, asyncio.TimeoutError, WebSocketException, ValueError)
log = logging.getLogger("laneway.worker")


class Worker:
    """A worker of a Laneway server: it runs the jobs of the kinds that it has handlers for.

    `run` blocks until SIGTERM or SIGINT and then drains; `serve` is the same without signals, for programs with a loop.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        name: str | None = None,
        token: TokenSource = None,
        tenant: str = "default",
        max_parallel: int = 4,
        lanes: Iterable[str] = (),
        labels: Mapping[str, str] | None = None,
        features: Iterable[str] = (),
        packages: Mapping[str, str] | None = None,
        heartbeat: float = 5.0,
        stop_grace: float = 10.0,
        drain_limit: float = 30.0,
        mem_pct_max: float = 90.0,
        disk_pct_max: float = 95.0,
        ssl_context: ssl.SSLContext | None = None,
        on_state: Callable[[State], None] | None = None,
    ) -> None:
        """`url` and `token` default to LANEWAY_URL and LANEWAY_TOKEN (or the file that LANEWAY_TOKEN_FILE names). The file is
        read, and a token that is a function is called, at every connect.

        `packages` are names with versions that jobs can require, and `lanes` limits the jobs to those lanes. A handler has
        `stop_grace` seconds to end after a stop, and running jobs have `drain_limit` seconds when the worker drains. The worker
        requests no jobs while its memory or its disk are as full as `mem_pct_max` and `disk_pct_max` say, in percent.
        """
        if max_parallel < 1:
            raise ValueError(f"max_parallel is {max_parallel}; it must be at least 1")
        self.url = server_url(url)
        self.name = name or f"{socket.gethostname()}-{os.getpid()}"
        self.tenant = tenant
        self.max_parallel = max_parallel
        self._token = token if token is not None else server_token
        self._lanes = list(lanes)
        self._features = [*features, *(f"label:{key}={value}" for key, value in (labels or {}).items())]
        self._packages = dict(packages or {})
        self._heartbeat = heartbeat
        self._stop_grace = stop_grace
        self._drain_limit = drain_limit
        self._thresholds = (mem_pct_max, disk_pct_max)
        self._ssl = ssl_context
        self._on_state = on_state
        self._handlers: dict[str, Handler] = {}
        self._driver: _Driver | None = None
        self._ready: asyncio.Event = asyncio.Event()

    def handler(self, kind: str, *, concurrency: int | None = None, process: bool = False) -> Callable[[F], F]:
        """Registers a function for the jobs of a kind.

        An async function runs in the loop, any other function in a thread, or with `process` in a process of its own.
        `concurrency` limits how many jobs of the kind run at once.
        """

        def register(function: F) -> F:
            self._handlers[kind] = Handler.of(kind, function, process, concurrency)
            return function

        return register

    def run(self) -> None:
        """Runs until SIGTERM or SIGINT; then drains. A second signal stops running jobs at once."""
        loop = asyncio.new_event_loop()
        try:
            loop.run_until_complete(self._run_with_signals())
        finally:
            # Not asyncio.run: it would wait for ever for a handler that ignores its cancellation.
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.wait(left, timeout=FINISH_LIMIT))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    async def _run_with_signals(self) -> None:
        loop = asyncio.get_running_loop()
        signals = 0

        def stop() -> None:
            nonlocal signals
            signals += 1
            self.drain(None if signals == 1 else 0.0)

        for number in (signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(NotImplementedError):
                loop.add_signal_handler(number, stop)
        await self.serve()

    async def serve(self) -> None:
        """Runs until the worker has drained. Raises `WorkerEnded` if a newer connection took its name."""
        if not self._handlers:
            raise ValueError("the worker has no handlers; add one with @worker.handler(kind)")
        self._driver = _Driver(self)
        try:
            why = await self._driver.run()
        finally:
            self._driver = None
            self._ready.clear()
        if why == "superseded":
            raise WorkerEnded("E.SESSION.STALE_BINDING", f"another worker connected as {self.name!r}")

    def drain(self, limit: float | None = None) -> None:
        """Takes no more jobs, gives running ones `limit` seconds, delivers results, and ends. Call it in the worker's loop."""
        if self._driver is not None:
            self._driver.drain(limit)

    async def ready(self) -> None:
        """Waits until the worker is registered."""
        await self._ready.wait()

    async def token(self) -> str | None:
        """The token for the next connection."""
        found = self._token() if callable(self._token) else self._token
        return await found if inspect.isawaitable(found) else found

    def registration(self) -> dict[str, Any]:
        """The payload of `register`, without the tasks of the process."""
        limits = {kind: handler.concurrency for kind, handler in self._handlers.items() if handler.concurrency}
        concurrency: dict[str, Any] = {"max_parallel": self.max_parallel}
        if limits:
            concurrency["per_node_limits"] = limits
        features = [*self._features, *(f"kind:{kind}" for kind in self._handlers)]
        packages = [{"name": name, "version": number, "status": "installed"} for name, number in self._packages.items()]
        manifests = [
            {"name": name, "version": number, "manifest": {"name": name, "version": number}}
            for name, number in self._packages.items()
        ]
        capabilities = {"concurrency": concurrency, "runtimes": ["python"], "features": features}
        return {"capabilities": capabilities, "packages": packages, "channels": self._lanes, "manifests": manifests}

    def profile(self) -> Profile:
        """The identity and the limits for the protocol."""
        return Profile(
            tenant=self.tenant,
            worker_id=self.name,
            version=_version(),
            hostname=socket.gethostname() or "localhost",
            boot_id=uuid.uuid4().hex,
            instance=uuid.uuid4().hex[:8],
            max_parallel=self.max_parallel,
            kind_limits={kind: h.concurrency for kind, h in self._handlers.items() if h.concurrency},
            heartbeat=self._heartbeat,
            heartbeat_jitter=self._heartbeat / 10,
            stop_grace=self._stop_grace,
            drain_limit=self._drain_limit,
            mem_pct_max=self._thresholds[0],
            disk_pct_max=self._thresholds[1],
        )

    def publish(self, state: State) -> None:
        """The state of the session has changed."""
        if state in ("HEARTBEATING", "DRAINING"):
            self._ready.set()
        if self._on_state is not None:
            self._on_state(state)


class _Driver:
    """One run of a worker. All of it happens in one loop; threads only call `call_soon_threadsafe`."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._loop = asyncio.get_running_loop()
        self._probe = Probe()
        self._resources = Resources(worker.name)
        profile = worker.profile()
        profile.unfit = self._unfit
        profile.vitals = lambda: {**self._probe.read(), **self._resources.usage()}
        self._protocol = Protocol(profile)
        self._state: State = "NEW"
        self._link: _Link | None = None
        self._runs: dict[TaskKey, Run] = {}
        self._supervisors: set[asyncio.Task[None]] = set()
        # Handlers that ignored their stop. They still use the machine, so they count.
        self._abandoned: set[Run] = set()
        # What running handlers wrote and is not sent yet. Threads add to it.
        self._chunks: dict[TaskKey, list[dict[str, Any]]] = {}
        self._chunks_lock = threading.Lock()
        self._calls: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._reads: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._finished: asyncio.Future[CloseReason] = self._loop.create_future()

    async def run(self) -> CloseReason:
        connections = self._loop.create_task(self._connect_again())
        collector = self._loop.create_task(self._collect())
        try:
            ends: set[asyncio.Future[Any]] = {connections, self._finished}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if connections.done():
                connections.result()
            why = self._finished.result()
            if self._link is not None:
                await self._link.finish()
            return why
        finally:
            for work in (connections, collector, *self._supervisors, *self._reads):
                work.cancel()
            if self._timer is not None:
                self._timer.cancel()
            if self._link is not None:
                self._link.abort()
            self._resources.close()

    def drain(self, limit: float | None) -> None:
        self._do(self._protocol.drain(self._now(), limit))

    # The connection

    async def _connect_again(self) -> None:
        while True:
            await asyncio.sleep(max(0.0, self._protocol.retry_at - self._loop.time()))
            self._protocol.dial()
            try:
                token = await self._worker.token()
                link = _Link(await self._open(token))
            except CONNECT_ERRORS as error:
                log.warning("cannot connect to %s: %s; retrying", self._worker.url, error)
                self._protocol.disconnected(self._now())
                continue
            self._link = link
            auth: dict[str, Any] = {"mode": "mtls" if token is None and self._worker._ssl is not None else "token"}
            if token is not None:
                auth["token"] = token
            self._do(self._protocol.connected(self._now(), auth, self._worker.registration()))
            await self._receive(link)

    async def _open(self, token: str | None) -> ClientConnection:
        scheme, host, path, *_ = urlsplit(self._worker.url)
        secure = scheme in ("https", "wss")
        path = path if path.endswith("/ws/worker") else path.rstrip("/") + CONNECT_PATH
        url = urlunsplit(("wss" if secure else "ws", host, path, "", ""))
        return await connect(
            url,
            additional_headers={} if token is None else {"Authorization": f"Bearer {token}"},
            ssl=self._worker._ssl if secure else None,
            max_size=FRAME_LEN_MAX + 1,
            compression=None,
            ping_interval=None,
            open_timeout=OPEN_LIMIT,
            close_timeout=1.0,
        )

    async def _receive(self, link: _Link) -> None:
        """Handles the frames of one connection until it ends."""
        try:
            async for data in link.socket:
                if self._link is not link:
                    break
                try:
                    frame = parse(data)
                except BadFrame as bad:
                    log.warning("a frame cannot be read: %s", bad)
                    self._do(self._protocol.received_bad(self._now(), bad))
                else:
                    log.debug("received %s %s", frame["type"], frame["id"])
                    self._do(self._protocol.received(self._now(), frame))
        except ConnectionClosed:
            pass
        finally:
            link.abort()
        if self._link is link and not self._finished.done():
            log.info("the connection to %s was closed", self._worker.url)
            self._disconnected()

    def _disconnected(self) -> None:
        self._link = None
        self._protocol.disconnected(self._now())
        self._publish()
        self._arm()

    # The state machine

    def _now(self, at: float = 0.0) -> Now:
        return Now(max(self._loop.time(), at), datetime.now(timezone.utc))

    def _do(self, actions: list[Action]) -> None:
        """Carries out actions, and those that follow from them."""
        waiting = list(actions)
        while waiting and not self._finished.done():
            action = waiting.pop(0)
            match action:
                case Send(frame):
                    if self._link is not None:
                        self._link.send(encode(frame))
                case Start(order):
                    self._start(order)
                case Stop(key, why):
                    log.info("task %s attempt %s is asked to stop: %s", key.task_id, key.seq, why)
                    self._runs[key].stop()
                case Abandon(key):
                    waiting += self._end(key, Ended("stopped"))
                case Read(asked, payload):
                    self._read(asked, payload)
                case Answered(payload):
                    call = self._calls.pop(payload["requestId"], None)
                    if call is not None and not call.done():
                        call.set_result(payload)
                case Close("retry"):
                    if self._link is not None:
                        self._link.abort()
                        self._disconnected()
                case Close(why):
                    self._finished.set_result(why)
        self._publish()
        self._arm()

    def _publish(self) -> None:
        state = self._protocol.state
        if state != self._state:
            self._state = state
            self._worker.publish(state)

    def _arm(self) -> None:
        """Wakes up when the state machine has something to do."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        at = self._protocol.next_wakeup()
        if at is not None and not self._finished.done():
            self._timer = self._loop.call_at(at, lambda: self._do(self._protocol.tick(self._now(at))))

    # Tasks

    def _unfit(self, order: Order) -> Rejection | None:
        kind = order.dispatch["node_type"]
        if kind not in self._worker._handlers:
            return Rejection("E.CMD.UNKNOWN", "worker.handlers", f"there is no handler for the kind {kind!r}")
        self._abandoned = {run for run in self._abandoned if run.is_running}
        if len(self._protocol.tasks) + len(self._abandoned) >= self._worker.max_parallel and self._abandoned:
            message = f"{len(self._abandoned)} handlers were stopped and still run"
            return Rejection("E.CMD.CONCURRENCY_VIOLATION", "worker.concurrency", message)
        return self._resources.missing(order)

    def _start(self, order: Order) -> None:
        key = order.key
        task = Task(order, self._worker.name, self._sink_of(key))
        run = Run(self._worker._handlers[order.dispatch["node_type"]], task, self._worker._stop_grace)
        self._resources.hold(order)
        self._runs[key] = run
        self._chunks[key] = []
        supervisor = self._loop.create_task(self._supervise(key, run))
        self._supervisors.add(supervisor)
        supervisor.add_done_callback(self._supervisors.discard)

    async def _supervise(self, key: TaskKey, run: Run) -> None:
        try:
            ended = await run.supervise()
        except Exception as error:
            log.exception("task %s attempt %s cannot be supervised", key.task_id, key.seq)
            ended = Ended.failed(error)
        if self._runs.get(key) is run:
            self._do(self._end(key, ended))

    def _end(self, key: TaskKey, ended: Ended) -> list[Action]:
        """An attempt has ended, or is abandoned: its output goes before its outcome."""
        run = self._runs.pop(key)
        if run.is_running:
            run.stop()
            run.task.cancel()
            self._abandoned.add(run)
        self._flush(key)
        del self._chunks[key]
        self._resources.release(key, succeeded=ended.what == "done")
        log.info("task %s attempt %s ended: %s", key.task_id, key.seq, ended.what)
        return self._protocol.ended(self._now(), key, ended)

    # Reports of tasks

    def _sink_of(self, key: TaskKey) -> Callable[[str, Any], Any]:
        def sink(name: str, value: Any) -> Any:
            match name:
                case "keep":
                    artifact, body = value
                    self._resources.keep(artifact, body, key)
                case "resource":
                    return self._resources.body(value)
                case "next":
                    return self._next(key, value)
                case "report":
                    self._soon(self._report, key, value)
                case "chunk":
                    with self._chunks_lock:
                        chunks = self._chunks.get(key)
                        is_first = not chunks
                        if chunks is not None:
                            chunks.append(value)
                    if is_first:
                        # What the handler writes until the loop comes to this goes into the same frame.
                        self._soon(self._flush, key)
            return None

        return sink

    def _soon(self, call: Callable[..., None], *values: Any) -> None:
        """Calls a method in the loop. A thread that outlived the worker has nothing to report to."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call, *values)

    def _report(self, key: TaskKey, value: dict[str, Any]) -> None:
        if self._link is None or not self._link.is_behind:
            self._send_feedback(key, value)

    def _flush(self, key: TaskKey) -> None:
        with self._chunks_lock:
            chunks = self._chunks.get(key, [])
            if chunks:
                self._chunks[key] = []
        for start in range(0, len(chunks), CHUNKS_MAX):
            self._send_feedback(key, {"chunks": chunks[start : start + CHUNKS_MAX]})

    def _send_feedback(self, key: TaskKey, value: dict[str, Any]) -> None:
        if key in self._protocol.tasks.open:
            run_id = self._protocol.tasks.open[key].order.dispatch["run_id"]
            payload = {"run_id": run_id, "task_id": key.task_id, **value}
            self._do(self._protocol.feedback(self._now(), key, payload))

    async def _next(self, key: TaskKey, request: dict[str, Any]) -> dict[str, Any]:
        answer: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._calls[request["requestId"]] = answer
        try:
            self._do(self._protocol.next_request(self._now(), key, request))
            return await answer
        finally:
            self._calls.pop(request["requestId"], None)

    # Resources

    def _read(self, asked: str, payload: dict[str, Any]) -> None:
        async def read() -> None:
            answer: dict[str, Any] | Rejection
            if len(self._reads) > READS_MAX:
                message = f"{READS_MAX} parts of resources are being read already; try again later"
                answer = Rejection("E.CMD.CONCURRENCY_VIOLATION", "worker.resources", message)
            else:
                answer = await asyncio.to_thread(self._resources.read, payload)
            self._do(self._protocol.part_read(self._now(), asked, answer))

        work = self._loop.create_task(read())
        self._reads.add(work)
        work.add_done_callback(self._reads.discard)

    async def _collect(self) -> None:
        while True:
            await asyncio.sleep(COLLECT_EVERY)
            await asyncio.to_thread(self._resources.collect)


class _Link:
    """An open connection with the frames that wait to be written."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self._outgoing: asyncio.Queue[str | None] = asyncio.Queue(OUTGOING_MAX)
        self._writer = asyncio.get_running_loop().create_task(self._write())

    @property
    def is_behind(self) -> bool:
        """True when so many frames wait that reports that may be lost are better dropped."""
        return self._outgoing.qsize() > OUTGOING_MAX // 2

    def send(self, text: str) -> None:
        try:
            self._outgoing.put_nowait(text)
        except asyncio.QueueFull:
            log.warning("the server does not read; the connection is closed")
            self.abort()

    def abort(self) -> None:
        """Closes the connection at once. The reader notices."""
        self._writer.cancel()
        self.socket.transport.abort()

    async def finish(self) -> None:
        """Sends the last frames and closes the connection."""
        with contextlib.suppress(asyncio.QueueFull):
            self._outgoing.put_nowait(None)
            await asyncio.wait({self._writer}, timeout=FINISH_LIMIT)

    async def _write(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            while (text := await self._outgoing.get()) is not None:
                await self.socket.send(text)
            await self.socket.close()


def _version() -> str:
    try:
        return version("laneway")
    except PackageNotFoundError:
        return "0"
